"""Turn "rows a .. b of the data" into NumPy or Dask arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
from dask.array.core import normalize_chunks
from numpy.typing import NDArray

__all__ = ["make_rows"]

RowMaker = Callable[[int, int], tuple[NDArray[Any], NDArray[Any]]]


def _block(_: NDArray[Any], maker: RowMaker, which: int, block_info: Any = None) -> NDArray[Any]:
    start, stop = block_info[None]["array-location"][0]
    return maker(start, stop)[which]


def make_rows(
    maker: RowMaker, n_samples: int, n_features: int, chunks: int | tuple[int, ...] | None
) -> tuple[Any, Any]:
    """Return ``(X, y)`` of `maker`, lazily where `chunks` is given.

    Parameters
    ----------
    maker : callable (start, stop) -> (X, y)
        A pure function of global row numbers.
    n_samples, n_features : int
    chunks : int, tuple of int or None
        Rows per block; None gives NumPy arrays.

    Returns
    -------
    X : ndarray or dask.array.Array of shape (n_samples, n_features), float64
    y : ndarray or dask.array.Array of shape (n_samples,), int64
    """
    if chunks is None:
        return maker(0, n_samples)
    rows = normalize_chunks((chunks,), shape=(n_samples,), dtype=np.float64)[0]
    # The template only carries the chunks; its values are never looked at.
    template = da.zeros(n_samples, chunks=(rows,), dtype=np.int8)
    X = da.map_blocks(
        _block,
        template,
        maker=maker,
        which=0,
        dtype=np.float64,
        new_axis=1,
        chunks=(rows, (n_features,)),
        meta=np.empty((0, 0)),
    )
    y = da.map_blocks(
        _block,
        template,
        maker=maker,
        which=1,
        dtype=np.int64,
        chunks=(rows,),
        meta=np.empty(0, dtype=np.int64),
    )
    return X, y


def positive(name: str, value: int, minimum: int = 1) -> int:
    """Check an integer parameter and return it as a plain int.

    Examples
    --------
    >>> positive("n_samples", np.int64(3))
    3
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < minimum:
        raise ValueError(f"{name}={value!r}; expected an integer of at least {minimum}.")
    return int(value)
