"""The one pass that may be needed before rows are known: how many there are, and their spread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from daskclust.cube import _blocks
from daskclust.cube._reading import CubeSource
from daskclust.cube._scaling import Scaling
from daskclust.engine import compute

__all__ = ["Surveyed", "sample_dtype", "take_survey"]

# Rows of statistics merged by one task.
_FOLD = 256


def sample_dtype(stored: np.dtype[Any]) -> np.dtype[Any]:
    """float32 where it holds what is stored exactly, else float64."""
    small = stored.itemsize <= (4 if stored.kind == "f" else 2)
    return np.dtype(np.float32 if small else np.float64)


@dataclass(frozen=True)
class Surveyed:
    """The results of one pass over a cube.

    `counts` are the valid pixels of each block; `empty` are bands among those kept that hold no
    data at all.
    """

    counts: tuple[int, ...]
    scaling: Scaling
    empty: NDArray[np.intp]


def take_survey(
    _per_block: Callable[..., Any],
    source: CubeSource,
    scale: Literal["none", "standard", "unit", "whitened"] | Scaling,
    dtype: np.dtype[Any],
) -> Surveyed:
    """Count valid pixels of each block, find empty bands, and for ``"standard"`` the scaling.

    Two numbers a block reach the client; statistics of bands are merged in a tree.
    """
    moments = scale == "standard"
    p = source.n_bands
    width = 2 + (4 if moments else 1) * p
    surveys = _per_block(
        _blocks.block_survey,
        sizes=(1,) * source.grid.count,
        width=width,
        dtype=np.float64,
        token="daskclust-survey",
        moments=moments,
    )
    merged = surveys
    while True:
        merged = merged.rechunk({0: _FOLD})
        merged = merged.map_blocks(
            _blocks.merge_surveys,
            n_bands=p,
            keep_incomplete=source.keep_incomplete,
            chunks=((1,) * merged.numblocks[0], (width,)),
            dtype=np.float64,
            meta=np.empty((0, 0)),
        )
        if merged.numblocks[0] == 1:
            break
    heads, total = compute("the count of pixels", surveys[:, :2], merged)
    # Where a band is missing that other blocks have, no pixel is complete.
    whole = source.keep_incomplete | (heads[:, 1] == total[0, 1])
    counts = tuple(int(count) for count in np.where(whole, heads[:, 0], 0))
    present = total[0, 2 : 2 + p] > 0
    if not present.any():
        present[:] = True  # a scene without data has no band to blame
    empty = np.flatnonzero(~present)
    if isinstance(scale, Scaling):
        return Surveyed(counts, scale.of_bands(present), empty)
    if not moments:
        return Surveyed(counts, Scaling(scale, dtype), empty)
    n, mean, squares = (part[present] for part in total[0, 2 + p :].reshape(3, p))
    std = np.sqrt(squares / np.maximum(n, 1.0))
    std[std == 0.0] = 1.0  # a constant band: centered, not divided by zero
    return Surveyed(counts, Scaling("standard", dtype, mean=mean, std=std), empty)
