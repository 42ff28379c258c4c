"""The one pass that may be needed before rows are known: how many there are, and their spread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import dask
import numpy as np

from daskclust.cube import _blocks
from daskclust.cube._blocks import CubeSource, Scaling

__all__ = ["sample_dtype", "take_survey"]

# Rows of statistics merged by one task.
_FOLD = 256


def sample_dtype(stored: np.dtype[Any]) -> np.dtype[Any]:
    """float32 where it holds what is stored exactly, else float64."""
    small = stored.itemsize <= (4 if stored.kind == "f" else 2)
    return np.dtype(np.float32 if small else np.float64)


def take_survey(
    per_block: Callable[..., Any],
    source: CubeSource,
    scale: Literal["none", "standard", "unit", "whitened"] | Scaling,
) -> tuple[tuple[int, ...], Scaling]:
    """Count the valid pixels of each block, and for ``"standard"`` find the scaling.

    Parameters
    ----------
    per_block : callable
        Runs a function on every block of the cube.
    source : CubeSource
    scale : {"none", "standard", "unit"} or Scaling
    """
    moments = scale == "standard"
    dtype = sample_dtype(source.dtype)
    width = 1 + 3 * source.n_bands if moments else 1
    surveys = per_block(
        _blocks.block_survey,
        sizes=(1,) * source.grid.count,
        width=width,
        dtype=np.float64,
        token="daskclust-survey",
        moments=moments,
    )
    merged = surveys
    while moments and merged.numblocks[0] > 1:
        merged = merged.rechunk({0: _FOLD})
        merged = merged.map_blocks(
            _blocks.merge_surveys,
            chunks=((1,) * merged.numblocks[0], (width,)),
            dtype=np.float64,
            meta=np.empty((0, 0)),
        )
    column, total = dask.compute(surveys[:, 0], merged if moments else None)
    counts = tuple(int(count) for count in column)
    if isinstance(scale, Scaling):
        return counts, scale
    if not moments:
        return counts, Scaling(scale, dtype)
    p = source.n_bands
    n, mean, squares = total[0, 1 : 1 + p], total[0, 1 + p : 1 + 2 * p], total[0, 1 + 2 * p :]
    std = np.sqrt(squares / np.maximum(n, 1.0))
    std[std == 0.0] = 1.0  # a constant band: centered, not divided by zero
    return counts, Scaling("standard", dtype, mean=mean, std=std)
