"""Rows that must not be asked about, in whatever form they are given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from daskclust.core.engine import is_dask, mask_without, open_rows, unwrap
from daskclust.core.estimator.validation import fetched


@dataclass(frozen=True)
class Excluded:
    """The rows `kept` (n,), bool, that may be asked about: NumPy, or lazy.

    `pixels` (y, x), bool, is the image of what is excluded, if it was given as an image.
    """

    kept: Any
    pixels: Any = None

    def image(self, cube: Any) -> Any:
        """Return which pixels of the cube are excluded: (y, x), bool."""
        if self.pixels is not None:
            return self.pixels
        return cube.to_map(~self.kept, fill_value=1).astype(bool)


def read_excluded(exclude: Any, data: Any, cube: Any = None) -> Excluded:
    """Read a mask of the rows of `data`, row numbers, or an image for a cube; lazy masks stay lazy.

    >>> read_excluded([0, 2], np.zeros((4, 1))).kept.tolist()
    [False, True, False, True]
    """
    if cube is not None and getattr(exclude, "ndim", None) != 1:
        # A list of numbers is one of rows; nested ones, paths and stores are images.
        image = np.asarray(exclude) if isinstance(exclude, list | tuple) else exclude
        if not (isinstance(image, np.ndarray) and image.ndim == 1):
            pixels = cube.open_exclusion("exclude", image)
            return Excluded(cube.rows_where(~pixels), pixels)
    values = unwrap(exclude)
    if np.ma.is_masked(values):
        raise ValueError(
            "exclude is a masked array with masked values; expected True or False for each row. "
            "Use exclude.filled(True)."
        )
    if not is_dask(values):
        values = np.asarray(values)
        if values.dtype.kind == "O" and all(isinstance(one, bool | np.bool_) for one in values):
            values = values.astype(bool)
    if values.ndim != 1:
        raise ValueError(
            f"exclude has shape {values.shape}; expected a mask of shape ({data.shape[0]},), or "
            "row numbers."
        )
    if values.dtype == bool:
        return Excluded(~_mask(values, data))
    if values.dtype.kind not in "iu" and values.size:
        raise ValueError(
            f"exclude has dtype {values.dtype}; expected bool, True for a row that must not be "
            "asked about, or integers, the numbers of such rows."
        )
    rows = np.unique(fetched(values, "exclude")).astype(np.int64)
    lengths = data.chunks[0] if is_dask(data) else (len(data),)
    if np.isnan(lengths).any():
        lengths = open_rows(data).lengths
    n_rows = int(sum(lengths))
    if len(rows) and not 0 <= rows[0] <= rows[-1] < n_rows:
        row = int(rows[0] if rows[0] < 0 else rows[-1])
        raise ValueError(
            f"exclude lists row {row}; expected row numbers in [0, {n_rows}). Row numbers count "
            "from 0 over all of X."
        )
    return Excluded(mask_without(rows, lengths if is_dask(data) else None, n_rows))


def _mask(mask: Any, data: Any) -> Any:
    """Check a mask against the data; lazy only for lazy data."""
    known = not np.isnan([data.shape[0], mask.shape[0]]).any()
    if known and mask.shape[0] != data.shape[0]:
        raise ValueError(
            f"exclude has shape {mask.shape}; X has {data.shape[0]} rows. Give one value a row, "
            "or row numbers."
        )
    if is_dask(data) and is_dask(mask) and not known and mask.numblocks[0] != data.numblocks[0]:
        raise ValueError(
            f"exclude has {mask.numblocks[0]} blocks and X has {data.numblocks[0]}, of unknown "
            "length; expected blocks of the same rows. Use compute_chunk_sizes() on both."
        )
    return mask if is_dask(data) else fetched(mask, "exclude")
