"""A cube's description of its storage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
import zarr

__all__ = ["StoredCube"]


@dataclass(frozen=True)
class StoredCube:
    """How the values of a cube are stored; `array` is None where they come from a Dask array.

    `order` are the axes of y, x and band in the array, and `shape` counts the bands that are left
    out. `values` are lazy: pixels as rows where there is no array in Zarr. `may_be_masked`: some
    value can mean "no data", so that valid pixels have to be counted.
    """

    array: zarr.Array | None
    order: tuple[int, int, int]
    shape: tuple[int, int, int]
    dtype: np.dtype[Any]
    values: da.Array
    may_be_masked: bool

    @property
    def nbytes(self) -> int:
        """Bytes of all values, uncompressed."""
        rows, columns, bands = self.shape
        return rows * columns * bands * self.dtype.itemsize
