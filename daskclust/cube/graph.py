"""An image as a graph of prototypes needs it: some pixels, and pairs of adjacent ones.

Pixels are told by their place in the image, so nothing here depends on how the image is
cut into blocks.  Adjacent pixels in different blocks are counted where the blocks' edges
meet, in tasks of their own: edges travel between workers, never to the client.
"""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from daskclust._types import Ints
from daskclust.cube._reading import CubeSource, Scaling, one_object, take_pixels
from daskclust.engine import compute
from daskclust.kernels.pair_counts import PairCounts, count_adjacent, count_edges, merge_counts
from daskclust.reduction.connectivity import Connectivity, ConnectivityCounts, merge_connectivity
from daskclust.reduction.contract import RowBlock

__all__ = ["count_graph", "take_pixels"]

#: Counts that one task merges.
_FOLD = 16


# Counts


def _block_counts(
    ids: Ints,
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
    valid, values = source.pixels(number, excluded)
    x = np.ascontiguousarray(scaling(values if valid.all() else values[valid]))
    if x.dtype.kind != "f":
        x = x.astype(np.float64)
    runs = ((starts[number], len(x)),)
    counts, first = connectivity.count(RowBlock(x, weight, runs))
    nodes = np.full((len(first), height * width), -1, np.int32)
    if weight is not None:
        first[:, weight == 0] = -1  # absent, and not a neighbor
    nodes[:, valid] = first
    nodes = nodes.reshape(-1, height, width)
    adjacent = tuple(
        count_adjacent(image, len(own))
        for image, own in zip(nodes, connectivity.nodes, strict=True)
    )
    edges = tuple(
        edge.copy() for edge in (nodes[:, 0], nodes[:, -1], nodes[:, :, 0], nodes[:, :, -1])
    )
    return one_object((counts, adjacent, edges))


def _inner(block: NDArray[np.object_]) -> NDArray[np.object_]:
    return one_object(block[0][:2])


def _across(
    ids: Ints,
    one: NDArray[np.object_],
    other: NDArray[np.object_],
    *,
    last: int,
    sides: tuple[int, int],
    connectivity: Connectivity,
) -> NDArray[np.object_]:
    """Count adjacent pixels of two blocks; none where the first ends a row of blocks."""
    if last and (int(ids[0]) + 1) % last == 0:
        return one_object(None)
    edges = zip(one[0][2][sides[0]], other[0][2][sides[1]], connectivity.nodes, strict=True)
    return one_object((None, tuple(count_edges(a, b, len(nodes)) for a, b, nodes in edges)))


def _merge(parts: NDArray[np.object_]) -> NDArray[np.object_]:
    found = [part for part in parts if part is not None]
    if not found:
        return one_object(None)
    counts = [part[0] for part in found if part[0] is not None]
    adjacent = zip(*(part[1] for part in found), strict=True)
    return one_object(
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
    cube: Any, connectivity: Connectivity, weight: Any = None
) -> tuple[ConnectivityCounts, tuple[PairCounts, ...]]:
    """Count near nodes, and nodes of adjacent pixels, in one pass over the cube.

    Pixels of weight 0 are absent. For each space one `PairCounts` of horizontally and vertically
    adjacent pixels by their nearest nodes, the same whatever the blocks.

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
    (found,) = compute("the count of neighbors", merged)
    counts, adjacent = found[0]
    return counts, adjacent
