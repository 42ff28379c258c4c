"""Arguments of the constraint kernels, as arrays that compiled code takes."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "Bools",
    "Floats",
    "Ints",
    "Penalty",
    "as_bools",
    "as_floats",
    "as_ints",
    "as_rows",
    "check_penalty",
]

Penalty = Literal["distance", "constant"]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def as_rows(x: ArrayLike) -> NDArray[Any]:
    """``x`` as a C-contiguous float32 or float64 matrix; copied only when it is not one."""
    array = np.asarray(x)
    if array.dtype != np.float32:
        array = array.astype(np.float64, copy=False)
    return np.ascontiguousarray(array)


def as_ints(values: ArrayLike) -> Ints:
    return np.ascontiguousarray(values, dtype=np.int64)


def as_floats(values: ArrayLike) -> Floats:
    return np.ascontiguousarray(values, dtype=np.float64)


def as_bools(values: ArrayLike) -> Bools:
    return np.ascontiguousarray(values, dtype=np.bool_)


def check_penalty(penalty: str) -> None:
    if penalty not in ("distance", "constant"):
        raise ValueError(f"penalty={penalty!r}; expected 'distance' or 'constant'.")
