"""Classes of a label source: codes as they are, or a code for each name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskclust._types import Array, Ints

#: One value more means none.
_LARGEST = 2**31 - 2
_COLUMNS = ("class", "class_name", "label", "class_id", "classname", "code", "category", "type")


@dataclass(frozen=True)
class Classes:
    """Codes of the items of a label source, -1 for none, and their names if it has names."""

    codes: Ints
    names: dict[int, str] | None


def check_codes(codes: Iterable[int]) -> None:
    """Refuse classes that a label map cannot hold: its values have at most 32 bits.

    >>> check_codes([3, 70_000])
    """
    largest = max(codes, default=-1)
    if largest > _LARGEST:
        raise ValueError(
            f"A class has the code {largest}; expected up to {_LARGEST}, the largest that a label "
            "map holds. Renumber the classes."
        )


def class_column_of(columns: Sequence[str], wanted: str | None, source: str) -> str:
    """Choose the column that holds the classes among all but positions and geometries.

    Without `wanted`, the only column that can be meant.

    >>> class_column_of(["id", "Class"], None, "fields.gpkg")
    'Class'
    """
    if wanted is not None:
        if wanted not in columns:
            raise KeyError(
                f"{source} has no column {wanted!r}; it has {list(columns)}. Give one of them as "
                "class_column."
            )
        return wanted
    if len(columns) == 1:
        return columns[0]
    found = [name for name in columns if name.lower() in _COLUMNS]
    if len(found) != 1:
        raise ValueError(
            f"{source} has the columns {list(columns)}; which of them holds the classes cannot be "
            "told. Pass class_column=, on the command line --class-column."
        )
    return found[0]


def read_classes(values: Any, source: str) -> Classes:
    """Read the classes of items: whole numbers stay, names get the codes 0, 1, ... in order.

    None, NaN and empty text mean no class.

    >>> read_classes(["wheat", None, "maize"], "fields").codes.tolist()
    [1, -1, 0]
    >>> read_classes([3, 7, -1], "fields").codes.tolist()
    [3, 7, -1]
    """
    items = np.asarray(values, dtype=object)
    known = np.array([_is_class(item) for item in items], dtype=bool)
    codes = np.full(len(items), -1, dtype=np.int64)
    if not known.any():
        raise ValueError(f"{source} has no item with a class; expected at least one.")
    present = items[known]
    if all(isinstance(item, str) for item in present):
        numbers = _whole_numbers(present, source)
        if numbers is None:
            names, places = np.unique(present.astype(str), return_inverse=True)
            codes[known] = places
            return Classes(codes, {code: str(name) for code, name in enumerate(names)})
        codes[known] = numbers
    else:
        try:
            floats = np.array([float(item) for item in present])
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{source} mixes numbers and text as classes; expected all numbers or all text."
            ) from error
        # Beyond 2**53 a float is no longer one whole number.
        if not ((floats == np.floor(floats)) & (np.abs(floats) < 2**53)).all():
            raise ValueError(
                f"{source} has classes that are no whole numbers, such as "
                f"{floats[floats != np.floor(floats)][:1].tolist()}; expected codes or names."
            )
        codes[known] = floats.astype(np.int64)
    if (codes[known] < -1).any():
        raise ValueError(
            f"{source} has the class {codes[known].min()}; expected codes of 0 and more, -1 for "
            "none."
        )
    return Classes(codes, None)


def _is_class(item: Any) -> bool:
    if item is None or (isinstance(item, float) and np.isnan(item)):
        return False
    return not (isinstance(item, str) and not item.strip())


def _whole_numbers(texts: Array, source: str) -> Ints | None:
    """Return codes that are written as text; None if some text is no number."""
    # Tools that know one type of numbers write 3.0.
    plain = [text.strip().removesuffix(".0") for text in texts]
    try:
        return np.array([int(text) for text in plain], dtype=np.int64)
    except ValueError:
        pass
    try:
        floats = np.array([float(text) for text in texts])
    except ValueError:
        return None
    if not np.isfinite(floats).all():
        return None
    raise ValueError(
        f"{source} has classes that are no whole numbers, such as "
        f"{texts[floats != np.floor(floats)][:1].tolist()}; expected codes or names."
    )
