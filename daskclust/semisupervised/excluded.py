"""Rows that are excluded from questions: a mask, row numbers, or an image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from daskclust.core.engine import is_dask, mask_without, open_rows, unwrap
from daskclust.core.estimator.validation import fetched


@dataclass(frozen=True)
class Excluded:
    """Excluded rows, as masks that may be lazy.

    ``included`` (n,) is True for rows that are not excluded.  ``pixels`` (y, x) is True for
    excluded pixels, if an image was passed.
    """

    included: Any
    pixels: Any = None

    def image(self, cube: Any) -> Any:
        """Return the mask (y, x) of excluded pixels of the cube."""
        if self.pixels is not None:
            return self.pixels
        return cube.to_map(~self.included, fill_value=1).astype(bool)


def read_excluded(exclude: Any, data: Any, cube: Any = None) -> Excluded:
    """Read excluded rows: a mask of the rows of `data`, row numbers, or an image for a cube.

    Lazy masks of lazy data stay lazy.

    >>> read_excluded([0, 2], np.zeros((4, 1))).included.tolist()
    [False, True, False, True]
    """
    if cube is not None and getattr(exclude, "ndim", None) != 1:
        # A flat list contains row numbers; nested lists, paths and stores are images.
        image = np.asarray(exclude) if isinstance(exclude, list | tuple) else exclude
        if not (isinstance(image, np.ndarray) and image.ndim == 1):
            pixels = cube.open_exclusion("exclude", image)
            return Excluded(cube.values_of_rows(~pixels), pixels)
    values = unwrap(exclude)
    if np.ma.is_masked(values):
        raise ValueError(
            "exclude must be True or False for each row, got masked values. "
            "Use exclude.filled(True)."
        )
    if not is_dask(values):
        values = np.asarray(values)
        if values.dtype.kind == "O" and all(isinstance(value, bool | np.bool_) for value in values):
            values = values.astype(bool)
    if values.ndim != 1:
        raise ValueError(
            f"exclude must be a mask of shape ({data.shape[0]},) or row numbers, got shape "
            f"{values.shape}."
        )
    if values.dtype == bool:
        return Excluded(~_mask(values, data))
    if values.dtype.kind not in "iu" and values.size:
        raise ValueError(
            "exclude must be bool (True for excluded rows) or int (their numbers), got dtype "
            f"{values.dtype}."
        )
    rows = np.unique(fetched(values, "exclude")).astype(np.int64)
    lengths = data.chunks[0] if is_dask(data) else (len(data),)
    if np.isnan(lengths).any():
        lengths = open_rows(data).lengths
    n_rows = int(sum(lengths))
    if len(rows) and not 0 <= rows[0] <= rows[-1] < n_rows:
        row = int(rows[0] if rows[0] < 0 else rows[-1])
        raise ValueError(
            f"exclude must contain row numbers in [0, {n_rows}), got {row}. Row numbers start at 0 "
            "in the first row of X."
        )
    return Excluded(mask_without(rows, lengths if is_dask(data) else None, n_rows))


def _mask(mask: Any, data: Any) -> Any:
    """Check a mask against the data; lazy only for lazy data."""
    lengths_known = not np.isnan([data.shape[0], mask.shape[0]]).any()
    if lengths_known and mask.shape[0] != data.shape[0]:
        raise ValueError(
            f"exclude must have one value per row of X ({data.shape[0]}), or contain row numbers, "
            f"got shape {mask.shape}."
        )
    if (
        is_dask(data)
        and is_dask(mask)
        and not lengths_known
        and mask.numblocks[0] != data.numblocks[0]
    ):
        raise ValueError(
            "exclude and X must have blocks of the same rows, got "
            f"{mask.numblocks[0]} and {data.numblocks[0]} blocks of unknown length. Use "
            "compute_chunk_sizes() on both."
        )
    return mask if is_dask(data) else fetched(mask, "exclude")
