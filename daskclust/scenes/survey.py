"""Survey of the blocks of a cube: valid pixels, bands without data, and moments of bands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import dask.array as da
import numpy as np

from daskclust.core.array_types import Bools
from daskclust.core.engine import compute
from daskclust.core.warn import warn
from daskclust.exceptions import DaskclustWarning
from daskclust.scenes import _block_tasks
from daskclust.scenes._block_tasks import CubeBlocks, CubeSource, Scaling, Surveyed
from daskclust.scenes.bands import as_ranges
from daskclust.scenes.block_grid import merged_in_tree

#: Maximum number of rows of statistics that one task merges.
_FOLD = 256
#: Scaling of samples: a name, or the scaling of another cube.
Scale = Literal["none", "standard", "unit", "whitened"] | Scaling


def _of_blocks(blocks: CubeBlocks, token: str, *, moments: bool) -> da.Array:
    return blocks.map(
        _block_tasks.block_survey,
        sizes=(1,) * blocks.grid.count,
        width=2 + (4 if moments else 1) * blocks.source.n_bands,
        dtype=np.float64,
        token=token,
        moments=moments,
    )


def survey_some(blocks: CubeBlocks, numbers: Sequence[int]) -> tuple[int, Bools]:
    """Count the valid pixels of some blocks, and find the bands with data in any of them."""
    surveys = _of_blocks(blocks, "daskclust-count", moments=False)
    (statistics,) = compute(
        "the count of pixels", surveys.blocks[[int(number) for number in numbers]]
    )
    p, keep = blocks.source.n_bands, blocks.source.keep_incomplete
    (merged,) = _block_tasks.merge_surveys(statistics, n_bands=p, keep_incomplete=keep)
    return int(merged[0]), merged[2 : 2 + p] != 0


def warn_of_empty_bands(source: CubeSource, present: Bools, *, must_have_data: bool) -> None:
    """Warn about used bands without data; raise ValueError if bands `must_have_data`."""
    kept = np.arange(source.n_stored) if source.bands is None else source.bands
    text = as_ranges(kept[~present])
    if must_have_data:
        raise ValueError(
            "bands= must name bands with data, because a model was fitted to every band, got the "
            f"bands {text} without data in any pixel. Fit the model without them."
        )
    warn(
        f"Bands {text} hold no data in any pixel and are left out: {int(present.sum())} of "
        f"{source.n_stored} bands are used. Name them in bad_bands (--bad-bands) to avoid this "
        "warning.",
        DaskclustWarning,
    )


def survey(blocks: CubeBlocks, scale: Scale, dtype: np.dtype[Any]) -> tuple[Surveyed, Bools]:
    """Count the valid pixels of each block, and return the scaling and the bands with data.

    One pass, which is skipped if all pixels are valid and `scale` needs no moments. Two numbers
    per block reach the client. A tree of tasks merges the statistics of the bands. The scaling is
    for the bands with data. For ``"whitened"``, it does not scale samples.
    """
    moments, scaling = scale == "standard", scale
    if not isinstance(scaling, Scaling):
        scaling = Scaling("none" if scale == "whitened" else scaling, dtype)
    p, keep = blocks.source.n_bands, blocks.source.keep_incomplete
    if not moments and blocks.is_complete:
        return Surveyed(blocks.grid.pixels, scaling), np.ones(p, bool)
    surveys = _of_blocks(blocks, "daskclust-survey", moments=moments)
    merged = merged_in_tree(
        surveys, _block_tasks.merge_surveys, _FOLD, n_bands=p, keep_incomplete=keep
    )
    heads, total = compute("the count of pixels", surveys[:, :2], merged)
    # If a block lacks a band that other blocks have, none of its pixels is complete.
    complete = keep | (heads[:, 1] == total[0, 1])
    counts = tuple(int(count) for count in np.where(complete, heads[:, 0], 0))
    present = total[0, 2 : 2 + p] > 0
    if not present.any():
        present[:] = True  # a scene without any data keeps its bands
    if moments:
        n, mean, squares = (values[present] for values in total[0, 2 + p :].reshape(3, p))
        std = np.sqrt(squares / np.maximum(n, 1.0))
        std[std == 0.0] = 1.0  # a constant band: centered, not divided by zero
        scaling = replace(scaling, mean=mean, std=std)
    elif scaling.mean is not None and scaling.std is not None:
        scaling = replace(scaling, mean=scaling.mean[present], std=scaling.std[present])
    return Surveyed(counts, scaling), present
