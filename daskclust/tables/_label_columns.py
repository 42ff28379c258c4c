"""Labels in a column of one partition: missing values, empty text and -1 mean "no label"."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Ints
from daskclust.core.engine import number_type

#: Code of rows without a label.
NO_LABEL = -1
#: Labels in CSV that are codes; programs with one type of numbers write 3.0.
_CODE = re.compile(r"(-?(?:0|[1-9]\d{0,17}))(?:\.0*)?")


def check_length(part: Any, length: int) -> None:
    """Raise ValueError if a partition has changed since its rows were counted."""
    if len(part) != length:
        raise ValueError(
            f"A partition of the table has {len(part)} rows, and had {length} when they were "
            "counted; expected files that do not change. Open the table again."
        )


def labeled(part: Any, length: int) -> tuple[Ints, NDArray[Any]]:
    """Return the positions of labeled rows, and their labels."""
    check_length(part, length)
    places = np.flatnonzero(part.notna().to_numpy(dtype=bool))
    present = part.iloc[places]
    kind = number_type(part.dtype)
    if kind is None or kind.kind not in "iuf":
        values = np.array([str(item).strip() for item in present.to_numpy(dtype=object)], object)
        is_known = ~np.isin(values, ("", str(NO_LABEL), str(float(NO_LABEL))))
        return places[is_known], values[is_known]
    numbers = present.to_numpy(dtype=kind)
    if kind.kind == "f":
        places, numbers = places[~np.isnan(numbers)], numbers[~np.isnan(numbers)]
    codes = numbers.astype(np.int64)
    if (codes != numbers).any():
        raise _not_integers(str(part.name))
    return places[codes != NO_LABEL], codes[codes != NO_LABEL]


def codes_in(texts: NDArray[Any], column: str) -> NDArray[Any]:
    """Return texts as codes if all of them are codes; other numbers raise an error.

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


def coded(part: Any, length: int, known: NDArray[Any], classes: NDArray[Any]) -> Ints:
    """Return a code per row, -1 for no label; the code of a text is its position in `classes`."""
    places, values = labeled(part, length)
    out = np.full(length, NO_LABEL, np.int64)
    codes = np.searchsorted(known, values)
    if classes.dtype.kind != "O":
        numbers = codes_in(known, str(part.name)) if known.dtype.kind == "O" else known
        codes = numbers[codes]
    out[places] = codes
    return out
