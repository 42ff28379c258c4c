"""Declarations of the saved state of fitted models, one entry per attribute.

An estimator names the attributes that make up its state::

    _saved_state = {"cluster_centers_": Array("k p"), "inertia_": Number(low=0)}

The entries of base classes are added.  Letters are sizes, which must be equal in all entries of a
model; ``p`` is ``n_features_in_``.  The module :mod:`daskclust.core.persistence.models` reads and
writes files.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import named_axes
from daskclust.exceptions import ModelFormatError

Arrays = dict[str, NDArray[Any]]
#: Key of floats that standard JSON cannot represent: infinity and NaN.
_FLOAT = "$float"
#: Maximum magnitude of a value.  Squares of larger values overflow, so fits do not produce them.
_LARGEST = 1e150
#: Maximum number of bytes of an array of strings.
_MAX_TEXT = 2**26


def to_json(value: Any) -> Any:
    """Return a value as standard JSON, which :func:`from_json` restores exactly."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {_FLOAT: repr(value)}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: to_json(item) for key, item in value.items()}
    raise TypeError(f"{type(value).__name__} has no JSON form")


def from_json(value: Any) -> Any:
    """Undo :func:`to_json`, except that tuples become lists."""
    if isinstance(value, dict):
        if value.keys() == {_FLOAT}:
            if value[_FLOAT] not in ("inf", "-inf", "nan"):
                raise ModelFormatError(f"{value!r} must be inf, -inf or nan.")
            return float(value[_FLOAT])
        return {key: from_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [from_json(item) for item in value]
    return value


def _check(condition: bool, name: str, problem: str) -> None:
    if not condition:
        raise ModelFormatError(f"{name} {problem}.")


def _check_text(value: Any, name: str) -> None:
    is_text = isinstance(value, list) and all(isinstance(item, str) for item in value)
    _check(is_text, name, "must be a list of strings")


@dataclasses.dataclass(frozen=True)
class Entry(ABC):
    """Attribute of a fitted model: how it is stored, and which stored values are valid."""

    optional: bool = dataclasses.field(default=False, kw_only=True)

    def store(self, name: str, value: Any) -> tuple[Any, Arrays]:
        """Return the JSON part and the arrays, by name."""
        return to_json(value), {}

    @abstractmethod
    def restore(self, name: str, meta: Any, arrays: Arrays, sizes: dict[str, int]) -> Any:
        """Check the stored values and return the attribute; removes its arrays from `arrays`."""


@dataclasses.dataclass(frozen=True)
class Array(Entry):
    """Array of float64 ("f"), int64 ("i") or bool ("b"), with axes as in :func:`named_axes`.

    Values are in [low, high].  Their sum is the size `total`, and values are less than the size
    `below`, if these are set.
    """

    axes: str
    kind: str = "f"
    low: float | None = None
    high: float = _LARGEST
    finite: bool = True
    total: str | None = None
    below: str | None = None

    @property
    def _dtype(self) -> np.dtype[Any]:
        return np.dtype({"f": np.float64, "i": np.int64, "b": np.bool_}[self.kind])

    def store(self, name: str, value: Any) -> tuple[Any, Arrays]:
        """Store the array, and do not change a dtype such as float32."""
        array = np.asarray(value)
        if array.dtype.kind != self.kind:
            array = array.astype(self._dtype)
        return None, {name: array}

    def restore(self, name: str, meta: Any, arrays: Arrays, sizes: dict[str, int]) -> Any:
        _check(meta is None and name in arrays, name, "is missing")
        array = arrays.pop(name)
        _check(array.dtype.kind == self.kind, name, f"has dtype {array.dtype}")
        lengths = named_axes(self.axes, array.shape, sizes)
        if lengths is None:
            forms = [form.split() for form in self.axes.split("|")]
            expected = " or ".join(f"({', '.join(form)})" for form in forms)
            sizes_so_far = ", ".join(f"{letter} = {size}" for letter, size in sorted(sizes.items()))
            raise ModelFormatError(
                f"{name} must have shape {expected} with {sizes_so_far}, got {array.shape}."
            )
        _check(all(array.shape), name, f"must have values, got shape {array.shape}")
        sizes.update(lengths)
        if self.kind == "f" and self.finite:
            _check(bool(np.isfinite(array).all()), name, "must not contain NaN or infinity")
        if self.low is not None and array.size:
            _check(not (array < self.low).any(), name, f"must not have values below {self.low}")
        if self.finite and self.kind != "b":
            beyond = np.abs(array) > np.float64(self.high)  # float32 may not represent `high`
            _check(not beyond.any(), name, f"must not have values beyond {self.high}")
        if self.total is not None:
            expected_total = sizes[self.total]
            # Python integers, because NumPy integers overflow.
            total = sum(int(value) for value in array)
            _check(
                total == expected_total,
                name,
                f"must sum to {self.total} = {expected_total}, got {total}",
            )
        if self.below is not None and array.size:
            maximum = int(array.max())
            size = sizes[self.below]
            _check(maximum < size, name, f"must be below {self.below} = {size}, got {maximum}")
        return array


class Covariances(Array):
    """Positive definite covariance matrices, or positive variances."""

    def restore(self, name: str, meta: Any, arrays: Arrays, sizes: dict[str, int]) -> Any:
        array = super().restore(name, meta, arrays, sizes)
        if array.ndim == 2:
            _check(bool((array > 0.0).all()), name, "must have positive variances")
            return array
        try:
            factors = np.linalg.cholesky(array)
        except np.linalg.LinAlgError as error:
            raise ModelFormatError(f"{name} must be positive definite.") from error
        diagonal = np.diagonal(factors, axis1=1, axis2=2)
        _check(bool((diagonal > 0.0).all()), name, "must be positive definite")
        return array


@dataclasses.dataclass(frozen=True)
class Number(Entry):
    """Float, int or bool (`kind`).  If `dim` is set, the value is the size with this letter."""

    kind: type = float
    low: float | None = None
    finite: bool = True
    dim: str | None = None

    def store(self, name: str, value: Any) -> tuple[Any, Arrays]:
        return to_json(self.kind(value)), {}

    def restore(self, name: str, meta: Any, arrays: Arrays, sizes: dict[str, int]) -> Any:
        value = from_json(meta)
        _check(type(value) is self.kind, name, f"must be {self.kind.__name__}, got {meta!r}")
        if self.kind is float and self.finite:
            _check(math.isfinite(value), name, f"must be finite, got {value}")
        if self.low is not None:
            _check(not value < self.low, name, f"must be at least {self.low}, got {value}")
        if self.dim is not None:
            expected = sizes.setdefault(self.dim, value)
            _check(value == expected, name, f"must be {self.dim} = {expected}, got {value}")
        return value


@dataclasses.dataclass(frozen=True)
class Plain(Entry):
    """JSON value of type `kind`; with `records`, a list of dictionaries."""

    kind: type = list
    records: bool = False

    def restore(self, name: str, meta: Any, arrays: Arrays, sizes: dict[str, int]) -> Any:
        value = from_json(meta)
        _check(isinstance(value, self.kind), name, f"must be a {self.kind.__name__}")
        if self.records:
            _check(all(isinstance(item, dict) for item in value), name, "must be a list of records")
        return value


@dataclasses.dataclass(frozen=True)
class Choice(Entry):
    words: tuple[str, ...]

    def restore(self, name: str, meta: Any, arrays: Arrays, sizes: dict[str, int]) -> Any:
        _check(meta in self.words, name, f"must be one of {self.words}, got {meta!r}")
        return meta


@dataclasses.dataclass(frozen=True)
class Names(Entry):
    """Array of strings, one for each item of a dimension."""

    dim: str

    def store(self, name: str, value: Any) -> tuple[Any, Arrays]:
        return [str(item) for item in value], {}

    def restore(self, name: str, meta: Any, arrays: Arrays, sizes: dict[str, int]) -> Any:
        _check_text(meta, name)
        expected = sizes.setdefault(self.dim, len(meta))
        _check(len(meta) == expected, name, f"must have {expected} items, got {len(meta)}")
        return np.array(meta, dtype=object)


@dataclasses.dataclass(frozen=True)
class Classes(Entry):
    """Class names: all integers or all strings."""

    def store(self, name: str, value: Any) -> tuple[Any, Arrays]:
        return np.asarray(value).tolist(), {}

    def restore(self, name: str, meta: Any, arrays: Arrays, sizes: dict[str, int]) -> Any:
        _check(isinstance(meta, list), name, "must be a list")
        kind = int if not meta or type(meta[0]) is int else str
        _check(all(type(item) is kind for item in meta), name, f"must be a list of {kind.__name__}")
        _check(len(set(meta)) == len(meta), name, "must not repeat names")
        _check(
            len(meta) <= sizes.get("k", len(meta)), name, "must not have more names than clusters"
        )
        if kind is int:
            return np.array(meta, dtype=np.int64)
        # In an array of strings, each string takes as many bytes as the longest string.
        n_bytes = 4 * len(meta) * max(map(len, meta))
        _check(n_bytes <= _MAX_TEXT, name, f"must take at most {_MAX_TEXT} bytes, needs {n_bytes}")
        return np.array(meta, dtype=str)


@dataclasses.dataclass(frozen=True)
class Records(Entry):
    """Record array of numbers and short strings, stored by column."""

    dtype: tuple[tuple[str, str], ...]

    def store(self, name: str, value: Any) -> tuple[Any, Arrays]:
        text = {n: value[n].tolist() for n, kind in self.dtype if "U" in kind}
        return text, {f"{name}.{n}": np.asarray(value[n]) for n, _ in self.dtype if n not in text}

    def restore(self, name: str, meta: Any, arrays: Arrays, sizes: dict[str, int]) -> Any:
        _check(isinstance(meta, dict), name, "must have columns")
        columns = {}
        for column, kind in self.dtype:
            if "U" in kind:
                data = meta.get(column)
                _check_text(data, f"{name}.{column}")
                longest = int(kind.partition("U")[2])
                _check(
                    all(len(item) <= longest for item in data),
                    f"{name}.{column}",
                    f"must have strings of at most {longest} characters",
                )
                columns[column] = np.array(data, dtype=kind)
            else:
                data = arrays.pop(f"{name}.{column}", None)
                _check(
                    data is not None and data.dtype == kind and data.ndim == 1,
                    f"{name}.{column}",
                    f"must be a column of {kind}",
                )
                columns[column] = data
        lengths = {len(column) for column in columns.values()}
        _check(len(lengths) == 1, name, f"must have columns of one length, got {sorted(lengths)}")
        return np.rec.fromarrays(list(columns.values()), dtype=list(self.dtype))


@dataclasses.dataclass(frozen=True)
class Fields:
    """Entries for the fields of a dataclass, and two sizes that must be equal."""

    entries: Mapping[str, Entry] = dataclasses.field(default_factory=dict)
    same: tuple[str, str] | None = None


@dataclasses.dataclass(frozen=True)
class OneOf(Entry):
    """Instance of one of several dataclasses, or None if the entry is optional."""

    kinds: Mapping[type, Fields]

    def store(self, name: str, value: Any) -> tuple[Any, Arrays]:
        if value is None and self.optional:
            return None, {}
        meta: dict[str, Any] = {}
        arrays: Arrays = {}
        for field, entry in self.kinds[type(value)].entries.items():
            meta[field], field_arrays = entry.store(f"{name}.{field}", getattr(value, field))
            arrays.update(field_arrays)
        return {"kind": type(value).__name__, "fields": meta}, arrays

    def restore(self, name: str, meta: Any, arrays: Arrays, sizes: dict[str, int]) -> Any:
        if meta is None and self.optional:
            return None
        by_name = {kind.__name__: kind for kind in self.kinds}
        kind = by_name.get(str(meta.get("kind"))) if isinstance(meta, dict) else None
        if kind is None:
            raise ModelFormatError(f"{name} must be one of {sorted(by_name)}, got {meta!r}.")
        entries, fields = self.kinds[kind].entries, meta.get("fields")
        _check(
            isinstance(fields, dict) and fields.keys() == entries.keys(),
            name,
            f"must have the fields of {kind.__name__}",
        )
        pair = self.kinds[kind].same
        if pair is not None:
            first, second = pair
            same = sizes[first] == sizes.setdefault(second, sizes[first])
            _check(
                same, name, f"must have {first} = {second} for {kind.__name__}, got {sizes[first]}"
            )
        return kind(
            **{
                field: entry.restore(f"{name}.{field}", fields[field], arrays, sizes)
                for field, entry in entries.items()
            }
        )


@dataclasses.dataclass(frozen=True)
class Several(Entry):
    """A tuple of one or more values of the same entry; sizes inside an item belong to this item."""

    entry: Entry

    def store(self, name: str, value: Any) -> tuple[Any, Arrays]:
        items = [self.entry.store(f"{name}.{i}", item) for i, item in enumerate(value)]
        return [meta for meta, _ in items], {k: v for _, arrays in items for k, v in arrays.items()}

    def restore(self, name: str, meta: Any, arrays: Arrays, sizes: dict[str, int]) -> Any:
        _check(isinstance(meta, list) and len(meta) > 0, name, "must be a list with items")
        return tuple(
            self.entry.restore(f"{name}.{i}", item, arrays, dict(sizes))
            for i, item in enumerate(meta)
        )


#: ``contradicting_pairs_`` of the constrained estimators.
CONTRADICTING_PAIRS = Records(
    (
        ("i", "<i8"),
        ("j", "<i8"),
        ("kind", "<U11"),
        ("weight", "<f8"),
        ("cost", "<f8"),
        ("violated", "|b1"),
    )
)


def saved_entries(estimator: type) -> dict[str, Entry]:
    """Collect ``_saved_state`` of a class and its bases; None removes the entry of a base."""
    entries: dict[str, Entry | None] = {}
    for base in reversed(estimator.__mro__):
        entries.update(base.__dict__.get("_saved_state", {}))
    return {name: entry for name, entry in entries.items() if entry is not None}
