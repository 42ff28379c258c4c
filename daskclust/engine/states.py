"""States of loops as named arrays, and what shapes these must have.

A state is a dataclass of arrays and numbers.  Its class may say of what type and shape
each field is, in ``shapes``: the kind of the dtype (``"f"``, ``"i"``, ``"b"``), then a
name for each axis, as in ``"f r k p"``; nothing after it for a number.  Axes of one name
are equally long.  ``|`` separates alternatives, ``?`` allows None.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import numpy as np

from daskclust._types import Array

__all__ = ["Fitted", "StateError", "pack_state", "unpack_state"]


S = TypeVar("S")


@dataclasses.dataclass(frozen=True)
class Fitted(Generic[S]):
    """Where a loop stands: its newest state, its records, whether it is done, passes so far."""

    state: S
    history: list[dict[str, Any]]
    finished: bool
    passes: int


class StateError(ValueError):
    """Arrays that cannot be a state."""


def pack_state(state: Any) -> tuple[dict[str, Array], list[str]]:
    """Return the fields of a state that are there, as arrays, and the names of the others."""
    arrays, missing = {}, []
    for field in dataclasses.fields(state):
        value = getattr(state, field.name)
        if value is None:
            missing.append(field.name)
        else:
            arrays[field.name] = np.asarray(value)
    return arrays, missing


def unpack_state(
    kind: type,
    arrays: Mapping[str, Array],
    missing: list[str],
    sizes: Mapping[str, int],
) -> Any:
    """Make a state of the result of :func:`pack_state`.

    `sizes` are lengths of axes that are known, by name. Fields that are missing, or of another type
    or shape than ``kind.shapes`` says, are a StateError.
    """
    known = dict(sizes)
    values: dict[str, Any] = {}
    shapes: Mapping[str, str] = getattr(kind, "shapes", {})
    for field in dataclasses.fields(kind):
        name = field.name
        shape = shapes.get(name)
        if name in missing:
            if shape is not None and "?" not in shape:
                raise StateError(f"{name} is missing")
            values[name] = None
            continue
        if name not in arrays:
            raise StateError(f"{name} is missing")
        value = arrays[name]
        if shape is not None and not any(
            _fits(value, option.split(), known) for option in shape.replace("?", "").split("|")
        ):
            raise StateError(
                f"{name} is of dtype {value.dtype} and shape {value.shape}; expected {shape!r} "
                f"with {known}"
            )
        values[name] = value.item() if value.ndim == 0 else value
    return kind(**values)


def _fits(value: Array, wanted: list[str], known: dict[str, int]) -> bool:
    """Whether an array is as wanted; lengths not known yet become known."""
    kind, *axes = wanted
    if value.dtype.kind != kind or value.ndim != len(axes):
        return False
    found = dict(known)
    for axis, length in zip(axes, value.shape, strict=True):
        if found.setdefault(axis, length) != length:
            return False
    known.update(found)
    return True
