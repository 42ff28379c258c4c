"""Counts of labels by tile of a mosaic, and near the seams between tiles."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
from dask.array.overlap import overlap
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter1d

from daskclust.core.array_types import Array, Bools, Ints
from daskclust.core.engine import compute


def count_seams(items: da.Array, labels: da.Array, chunks: Any, width: int) -> Ints:
    """Count the labels of each tile, and near each other tile, in one pass.

    Columns of the result, shape (4, counts), are a tile, the other tile (-1: anywhere), a label and
    the number of pixels; a combination may occur several times. A pixel is near another tile if a
    pixel of that tile is at most `width` pixels away in its row or column.
    """
    # Margins must not be larger than the image.
    lacking = [(0, max(0, width - size)) for size in items.shape]
    both = [
        overlap(
            da.pad(image.rechunk(chunks), lacking, constant_values=-1),
            depth=width,
            boundary=-1,
        )
        for image in (items, labels)
    ]
    blocks = da.map_blocks(
        _counts,
        *both,
        width=width,
        chunks=tuple((1,) * n for n in both[0].numblocks),
        meta=np.empty((0, 0), object),
    )
    (parts,) = compute("the count of clusters by tile", blocks)
    return np.concatenate(list(parts.ravel()), axis=1)


def _counts(items: Array, labels: Array, *, width: int) -> NDArray[np.object_]:
    """Count a block with a margin: rows of tile, other tile (-1: all pixels), label, pixels."""
    inner = slice(width, -width), slice(width, -width)
    tile, label = items[inner], labels[inner]
    is_labeled = (tile >= 0) & (label >= 0)
    found = [_tally(tile, label, is_labeled, -1)]
    present = np.unique(items[items >= 0])
    for other in present.tolist() if len(present) > 1 else ():
        there = items == other
        near = maximum_filter1d(there, 2 * width + 1, axis=0, mode="constant")
        near |= maximum_filter1d(there, 2 * width + 1, axis=1, mode="constant")
        found.append(_tally(tile, label, near[inner] & is_labeled & (tile != other), other))
    out = np.empty((1, 1), object)
    out[0, 0] = np.concatenate(found, axis=1)
    return out


def _tally(tile: Array, label: Array, where: Bools, other: int) -> Ints:
    """Count pairs of tile and label among some pixels."""
    tile, label = tile[where].astype(np.int64), label[where].astype(np.int64)
    n_labels = int(label.max(initial=0)) + 1
    pairs, counts = np.unique(tile * n_labels + label, return_counts=True)
    tile, label = np.divmod(pairs, n_labels)
    return np.stack([tile, np.full_like(tile, other), label, counts])
