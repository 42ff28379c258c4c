"""What a graph of prototypes needs to know of an image: some pixels, and what lies side by side.

Pixels are told by their place in the image, so nothing here depends on how the image is
cut into blocks.  Adjacent pixels in different blocks are counted where the blocks' edges
meet, in tasks of their own: edges travel between workers, never to the client.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from daskclust.cube._blocks import BlockGrid, CubeSource, Scaling
from daskclust.cube._cube import Cube
from daskclust.kernels.pair_counts import PairCounts, count_adjacent, count_edges, merge_counts
from daskclust.reduction.connectivity import (
    Connectivity,
    ConnectivityCounts,
    merge_connectivity,
)
from daskclust.reduction.contract import RowBlock

__all__ = ["count_graph", "take_pixels"]

#: Counts that one task merges.
_FOLD = 16


def _one(value: Any) -> NDArray[np.object_]:
    """Wrap a value of any size for a chunk of one: its length is not known beforehand."""
    out = np.empty(1, dtype=object)
    out[0] = value
    return out


def _objects(values: list[Any]) -> da.Array:
    table = np.empty(len(values), dtype=object)
    table[:] = values
    return da.from_array(table, chunks=1)


def _valid_rows(
    number: int, excluded: NDArray[np.bool_] | None, source: CubeSource
) -> tuple[NDArray[np.bool_], NDArray[Any]]:
    """Read a block once: which pixels are valid, and the samples of all its pixels."""
    valid, values, missing = source.valid(number, excluded)
    return valid, source.decoded(source.read(number) if values is None else values, missing)


# Pixels by their place


def _block_pixels(
    ids: NDArray[np.int64],
    wanted: NDArray[np.object_],
    excluded: NDArray[np.bool_] | None = None,
    *,
    source: CubeSource,
    scaling: Scaling,
) -> NDArray[np.object_]:
    places: NDArray[np.int64] = wanted[0]
    if not len(places):
        return _one((places, np.empty((0, source.n_bands), scaling.dtype)))
    valid, values = _valid_rows(int(ids[0]), excluded, source)
    kept = np.flatnonzero(valid[places])
    return _one((kept, scaling(values[places[kept]])))


def _by_block(places: NDArray[np.int64], grid: BlockGrid) -> tuple[NDArray[Any], list[Any]]:
    """Order the places by block, and return each block's own, counted inside it."""
    y, x = np.divmod(places, grid.shape[1])
    i, j = y // grid.block[0], x // grid.block[1]
    number = i * grid.numblocks[1] + j
    widths = np.array(grid.chunks[1])[j]
    inside = (y - i * grid.block[0]) * widths + (x - j * grid.block[1])
    order = np.argsort(number, kind="stable")
    bounds = np.searchsorted(number[order], np.arange(grid.count + 1))
    return order, [inside[order[a:b]] for a, b in pairwise(bounds)]


def take_pixels(cube: Cube, places: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[Any]]:
    """Fetch some pixels by their place in the image.

    Parameters
    ----------
    cube : Cube
    places : ndarray of shape (m,), int64
        ``y * width + x``, each once.

    Returns
    -------
    kept : ndarray of int
        Which of the places hold a valid pixel, ascending.
    values : ndarray of shape (kept, bands)
        These pixels, as in `samples`.

    Notes
    -----
    One pass that reads only the blocks concerned.
    """
    order, inside = _by_block(places, cube._grid)
    found = cube._per_block(
        _block_pixels,
        _objects(inside),
        sizes=(1,) * cube._grid.count,
        dtype=object,
        token="daskclust-pixels",
        scaling=cube._survey.scaling,
    ).compute()
    bounds = np.cumsum([0] + [len(part) for part in inside])
    kept = np.concatenate(
        [order[start + own] for start, (own, _) in zip(bounds, found, strict=False)]
    )
    values = np.concatenate([values for _, values in found])
    ascending = np.argsort(kept)
    return kept[ascending], values[ascending]


# Counts


def _block_counts(
    ids: NDArray[np.int64],
    *arrays: NDArray[Any],
    source: CubeSource,
    scaling: Scaling,
    starts: tuple[int, ...],
    connectivity: Connectivity,
    weighted: bool,
) -> NDArray[np.object_]:
    """Count a block, and keep the nodes along its edges."""
    weight = arrays[0].astype(np.float64) if weighted else None
    excluded = arrays[weighted] if len(arrays) > weighted else None
    number = int(ids[0])
    height, width = (part.stop - part.start for part in source.grid.region(number))
    valid, values = _valid_rows(number, excluded, source)
    x = np.ascontiguousarray(scaling(values if valid.all() else values[valid]))
    if x.dtype.kind != "f":
        x = x.astype(np.float64)
    runs = ((starts[number], len(x)),)
    counts, first = connectivity.count(RowBlock(x, weight, runs))
    nodes = np.full((len(first), height * width), -1, np.int32)
    if weight is not None:
        first[:, weight == 0] = -1  # absent, and no neighbor of anybody
    nodes[:, valid] = first
    nodes = nodes.reshape(-1, height, width)
    adjacent = tuple(
        count_adjacent(image, len(own))
        for image, own in zip(nodes, connectivity.nodes, strict=True)
    )
    edges = tuple(
        edge.copy() for edge in (nodes[:, 0], nodes[:, -1], nodes[:, :, 0], nodes[:, :, -1])
    )
    return _one((counts, adjacent, edges))


def _inner(block: NDArray[np.object_]) -> NDArray[np.object_]:
    return _one(block[0][:2])


def _across(
    ids: NDArray[np.int64],
    one: NDArray[np.object_],
    other: NDArray[np.object_],
    *,
    last: int,
    sides: tuple[int, int],
    connectivity: Connectivity,
) -> NDArray[np.object_]:
    """Count adjacent pixels of two blocks; none where the first ends a row of blocks."""
    if last and (int(ids[0]) + 1) % last == 0:
        return _one(None)
    edges = zip(one[0][2][sides[0]], other[0][2][sides[1]], connectivity.nodes, strict=True)
    return _one((None, tuple(count_edges(a, b, len(nodes)) for a, b, nodes in edges)))


def _merge(parts: NDArray[np.object_]) -> NDArray[np.object_]:
    found = [part for part in parts if part is not None]
    if not found:
        return _one(None)
    counts = [part[0] for part in found if part[0] is not None]
    adjacent = zip(*(part[1] for part in found), strict=True)
    return _one(
        (
            merge_connectivity(counts) if counts else None,
            tuple(merge_counts(space) for space in adjacent),
        )
    )


def _of_each(function: Any, *arrays: da.Array, **options: Any) -> da.Array:
    pairs = [item for array in arrays for item in (array, "i")]
    return da.blockwise(
        function,
        "i",
        *pairs,
        align_arrays=False,
        dtype=object,
        meta=np.empty(0, object),
        token="daskclust-adjacent",
        **options,
    )


def count_graph(
    cube: Cube, connectivity: Connectivity, weight: Any = None
) -> tuple[ConnectivityCounts, tuple[PairCounts, ...]]:
    """Count near nodes, and nodes of adjacent pixels, in one pass over the cube.

    Parameters
    ----------
    cube : Cube
    connectivity : Connectivity
    weight : ndarray or dask.array.Array of shape (n_valid,), optional
        Of the pixels; those of weight 0 are absent.

    Returns
    -------
    counts : ConnectivityCounts
    adjacent : tuple of PairCounts
        For each space, pairs of horizontally and vertically adjacent pixels by their
        nearest nodes: the same whatever the blocks.

    Notes
    -----
    One task a block, one for each two adjacent blocks, and a tree of merges.
    """
    grid = cube._grid
    starts = tuple(int(n) for n in np.cumsum((0, *cube.block_counts[:-1])))
    blocks = cube._per_block(
        _block_counts,
        *([] if weight is None else [cube._align(weight)]),
        sizes=(1,) * grid.count,
        dtype=object,
        token="daskclust-graph",
        scaling=cube._survey.scaling,
        starts=starts,
        connectivity=connectivity,
        weighted=weight is not None,
    )
    parts = [_of_each(_inner, blocks)]
    ids = da.arange(grid.count, chunks=1, dtype=np.int64)
    down, across = grid.numblocks
    if across > 1:
        pair = ids[:-1], blocks[:-1], blocks[1:]
        parts.append(_of_each(_across, *pair, last=across, sides=(3, 2), connectivity=connectivity))
    if down > 1:
        pair = ids[:-across], blocks[:-across], blocks[across:]
        parts.append(_of_each(_across, *pair, last=0, sides=(1, 0), connectivity=connectivity))
    merged = da.concatenate(parts)
    while True:
        merged = merged.rechunk(_FOLD).map_blocks(
            _merge,
            chunks=((1,) * -(-merged.shape[0] // _FOLD),),
            dtype=object,
            meta=np.empty(0, object),
        )
        if merged.numblocks[0] == 1:
            break
    counts, adjacent = merged.compute()[0]
    return counts, adjacent
