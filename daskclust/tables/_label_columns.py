"""Labels in a column of a partition.  Missing values, empty text and -1 mean "no label"."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Ints
from daskclust.core.engine import number_type

#: Code of rows without a label.
NO_LABEL = -1
#: Pattern of codes in CSV.  Some programs write 3.0 for 3.
_CODE = re.compile(r"(-?(?:0|[1-9]\d{0,17}))(?:\.0*)?")


def check_length(part: Any, length: int) -> None:
    """Raise ValueError if a partition has changed since its rows were counted."""
    if len(part) != length:
        raise ValueError(
            f"A partition of the table must have {length} rows, as in the first count, got "
            f"{len(part)}. The files have changed: open the table again."
        )


def labeled(part: Any, length: int) -> tuple[Ints, NDArray[Any]]:
    """Return the positions of labeled rows, and their labels."""
    check_length(part, length)
    positions = np.flatnonzero(part.notna().to_numpy(dtype=bool))
    present = part.iloc[positions]
    kind = number_type(part.dtype)
    if kind is None or kind.kind not in "iuf":
        values = np.array([str(item).strip() for item in present.to_numpy(dtype=object)], object)
        is_known = ~np.isin(values, ("", str(NO_LABEL), str(float(NO_LABEL))))
        return positions[is_known], values[is_known]
    numbers = present.to_numpy(dtype=kind)
    if kind.kind == "f":
        positions, numbers = positions[~np.isnan(numbers)], numbers[~np.isnan(numbers)]
    codes = numbers.astype(np.int64)
    if (codes != numbers).any():
        raise _not_integers(str(part.name))
    return positions[codes != NO_LABEL], codes[codes != NO_LABEL]


def codes_in(texts: NDArray[Any], column: str) -> NDArray[Any]:
    """Convert texts to codes if all of them are codes; raise an error for other numbers.

    >>> codes_in(np.array(["3.0", "7"]), "c"), codes_in(np.array(["3", "oak"]), "c")
    (array([3, 7]), array(['3', 'oak'], dtype='<U3'))
    """
    codes = [_CODE.fullmatch(text) for text in texts.tolist()]
    if all(codes):
        return np.array([int(code[1]) for code in codes if code], np.int64)
    try:
        numbers = np.array([float(text) for text in texts.tolist()])
    except ValueError:
        return texts
    if (np.isfinite(numbers) & (numbers != np.floor(numbers))).any():
        raise _not_integers(column)
    return texts


def _not_integers(column: str) -> ValueError:
    return ValueError(
        f"The label column {column!r} must contain codes or text, got numbers that are not "
        "integers."
    )


def distinct(part: Any, length: int) -> NDArray[Any]:
    """Return the distinct labels."""
    return np.unique(labeled(part, length)[1])


def coded(part: Any, length: int, labels_of_column: NDArray[Any], classes: NDArray[Any]) -> Ints:
    """Return the code of each row: -1 without a label; for texts, the index in `classes`."""
    positions, values = labeled(part, length)
    out = np.full(length, NO_LABEL, np.int64)
    codes = np.searchsorted(labels_of_column, values)
    if classes.dtype.kind != "O":
        numbers = (
            codes_in(labels_of_column, str(part.name))
            if labels_of_column.dtype.kind == "O"
            else labels_of_column
        )
        codes = numbers[codes]
    out[positions] = codes
    return out
