"""What several test files need, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np

__all__ = ["chunks_of", "values"]


def chunks_of(default: int) -> Callable[..., da.Array]:
    """Return a function that cuts an array into chunks of rows, ``default`` each if not told."""

    def chunked(array: Any, rows: int = default) -> da.Array:
        array = np.asarray(array)
        return da.from_array(array, chunks=(rows, *array.shape[1:]))

    return chunked


def values(array: Any) -> np.ndarray:
    """Return the values of an array, lazy or not."""
    return array if isinstance(array, np.ndarray) else array.compute()
