"""Access to some pixels of a cube, by row or position, and counts of adjacent nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Bools, Ints
from daskclust.core.engine import compute
from daskclust.core.kernels.blas import one_blas_thread
from daskclust.core.kernels.pair_counts import PairCounts, count_adjacent, count_edges, merge_counts
from daskclust.core.kernels.projection import noise_whitening
from daskclust.core.kernels.rng import draw_numbers
from daskclust.core.reduction.connectivity import (
    Connectivity,
    ConnectivityCounts,
    merge_connectivity,
)
from daskclust.core.reduction.contract import RowBlock
from daskclust.scenes._block_tasks import (
    CubeBlocks,
    CubeSource,
    Scaling,
    Surveyed,
    align,
    one_object,
)
from daskclust.scenes.block_grid import merged_in_tree

#: Number of pixels whose right and lower neighbors are used to estimate the noise.
NEIGHBOR_PIXELS = 2**14


def _block_pixels(
    source: CubeSource,
    number: int,
    excluded: Bools | None,
    wanted: NDArray[np.object_],
    *,
    scaling: Scaling,
    make: Callable[[NDArray[Any]], NDArray[Any]] | None,
) -> NDArray[np.object_]:
    places: Ints = wanted[0]
    valid, values = source.pixels(number, excluded)
    kept = np.flatnonzero(valid[places])
    found = scaling(values[places[kept]])
    return one_object((kept, found if make is None else make(found)))


def _fetched(
    blocks: CubeBlocks, function: Callable[..., Any], number: Ints, inside: Ints, **options: Any
) -> tuple[Ints, Ints, list[Any]]:
    """Run a function on the blocks that hold some pixels, given their places inside these.

    `number` is the block of each pixel. Returns the pixels ordered by block, where each block
    that was read begins among them, and its result.
    """
    order = np.argsort(number, kind="stable")
    bounds = np.searchsorted(number[order], np.arange(blocks.grid.count + 1))
    table = np.empty(blocks.grid.count, dtype=object)
    table[:] = [inside[order[a:b]] for a, b in pairwise(bounds)]
    lazy = blocks.map(
        function,
        da.from_array(table, chunks=1),
        sizes=(1,) * len(table),
        dtype=object,
        token="daskclust-pixels",
        **options,
    )
    concerned = np.flatnonzero(np.diff(bounds))
    found = compute("the reading of pixels", lazy.blocks[concerned])[0] if len(concerned) else ()
    return order, bounds[concerned], list(found)


def take_pixels(
    blocks: CubeBlocks,
    places: Ints,
    scaling: Scaling,
    make: Callable[[NDArray[Any]], NDArray[Any]] | None = None,
) -> tuple[NDArray[np.intp], NDArray[Any]]:
    """Return which of some places are valid, and their samples; see ``Cube.take_pixels``."""
    grid = blocks.grid
    y, x = np.divmod(places, grid.shape[1])
    i, j = y // grid.block[0], x // grid.block[1]
    inside = (y - i * grid.block[0]) * np.array(grid.chunks[1])[j] + x - j * grid.block[1]
    order, starts, found = _fetched(
        blocks,
        _block_pixels,
        i * grid.numblocks[1] + j,
        inside,
        scaling=scaling,
        make=make,
    )
    own, values = zip(*found, strict=True)
    kept = np.concatenate([order[at + inner] for at, inner in zip(starts, own, strict=True)])
    ascending = np.argsort(kept)
    return kept[ascending], np.concatenate(values)[ascending]


#: Places in an image that are drawn at most, for pixels that are rare.
_MOST_PLACES = 2**24
#: Pixels of which there must be so large a share of those wanted, or more places are drawn.
_ENOUGH = 0.25


def sample_pixels(
    blocks: CubeBlocks, counted: Surveyed, count: int, seed: int, *, without: Any = None
) -> tuple[NDArray[Any], tuple[NDArray[Any], NDArray[Any]]]:
    """Draw valid pixels, and pairs of adjacent ones; see ``Cube.sample_pixels``."""
    height, width = blocks.grid.shape
    total = height * width
    # A mostly masked image needs more places for as many pixels.
    known = max(1, sum(counted.counts))
    n_places = -(-count * total // known)
    if without is None:
        return _sampled(blocks, counted, n_places, seed)
    (n_without,) = compute("the excluded pixels", da.asarray(without).sum())
    n_places = int(n_places * total / max(1, total - int(n_without)))
    blocks = blocks.excluding(without)
    while True:
        n_places = min(n_places, total, _MOST_PLACES)
        found = _sampled(blocks, counted, n_places, seed)
        if len(found[0]) >= _ENOUGH * count or n_places in (total, _MOST_PLACES):
            return found
        n_places *= 16


def _sampled(
    blocks: CubeBlocks, counted: Surveyed, n_places: int, seed: int
) -> tuple[NDArray[Any], tuple[NDArray[Any], NDArray[Any]]]:
    """Read the valid pixels among some positions of an image, and their neighbors, in one pass."""
    height, width = blocks.grid.shape
    total = height * width
    wanted = draw_numbers(total, n_places, seed)
    some = wanted[draw_numbers(len(wanted), NEIGHBOR_PIXELS, seed + 1)]
    right = some[some % width < width - 1]
    below = some[some < total - width]
    places = np.unique(np.concatenate([wanted, right + 1, below + width]))
    kept, values = take_pixels(blocks, places, counted.scaling)
    valid = np.append(places[kept], -1)

    def at(pixels: Ints) -> tuple[NDArray[np.intp], Bools]:
        found = np.searchsorted(valid[:-1], pixels)
        return found, valid[found] == pixels

    one, other = [], []
    for first, second in ((right, right + 1), (below, below + width)):
        (a, has_a), (b, has_b) = at(first), at(second)
        both = has_a & has_b
        one.append(values[a[both]])
        other.append(values[b[both]])
    drawn, has = at(wanted)
    return values[drawn[has]], (np.concatenate(one), np.concatenate(other))


def whitened(blocks: CubeBlocks, counted: Surveyed) -> Scaling:
    """Return the scaling that makes the noise of the cube's directions soft white; one pass."""
    _, (one, other) = sample_pixels(blocks, counted, NEIGHBOR_PIXELS, 0)
    with one_blas_thread():
        matrix = noise_whitening(one, other)
    return Scaling("whitened", counted.scaling.dtype, matrix=matrix)


def _block_rows(
    source: CubeSource,
    number: int,
    excluded: Bools | None,
    wanted: NDArray[np.object_],
    *,
    scaling: Scaling | None,
) -> NDArray[np.object_]:
    """Places and values of some of the valid pixels of a block, by their number."""
    valid, values = source.pixels(number, excluded)
    inside = np.flatnonzero(valid)[wanted[0]]
    down, across = source.grid.region(number)
    lines, columns = np.divmod(inside, across.stop - across.start)
    places = (lines + down.start) * source.grid.shape[1] + columns + across.start
    return one_object((places, None if scaling is None else scaling(values[inside])))


def _block_of_rows(counts: Sequence[int], rows: Ints) -> tuple[Ints, Ints]:
    """Return the block of each row, and its number among the rows of that block."""
    starts = np.cumsum((0, *counts))
    number = np.searchsorted(starts, rows, side="right") - 1
    return number, rows - starts[number]


def find_pixels(
    blocks: CubeBlocks, counts: Sequence[int], rows: Ints, scaling: Scaling | None
) -> tuple[Ints, Any]:
    """Places of rows in the image (``y * width + x``), and their values if scaled; one pass."""
    order, _, found = _fetched(blocks, _block_rows, *_block_of_rows(counts, rows), scaling=scaling)
    places, n_bands = np.empty(len(rows), np.int64), blocks.source.n_bands
    values = None if scaling is None else np.empty((len(rows), n_bands), scaling.dtype)
    if found:
        places[order] = np.concatenate([own for own, _ in found])
        if values is not None:
            values[order] = np.concatenate([own for _, own in found])
    return places, values


def places_of_rows(blocks: CubeBlocks, counts: Sequence[int], rows: Ints) -> Ints:
    """Return the places ``y * width + x`` of rows in the image; see ``Cube.places_of_rows``."""
    grid = blocks.grid
    if sum(counts) < grid.shape[0] * grid.shape[1]:
        return find_pixels(blocks, counts, rows, None)[0]
    number, inside = _block_of_rows(counts, rows)
    i, j = np.divmod(number, grid.numblocks[1])
    y, x = np.divmod(inside, np.array(grid.chunks[1])[j])
    places: Ints = (y + i * grid.block[0]) * grid.shape[1] + x + j * grid.block[1]
    return places


#: Counts that one task merges.
_FOLD = 16


def _block_counts(
    source: CubeSource,
    number: int,
    excluded: Bools | None,
    weight: Array | None = None,
    *,
    scaling: Scaling,
    starts: tuple[int, ...],
    connectivity: Connectivity,
) -> NDArray[np.object_]:
    """Count a block, and keep the nodes along its edges."""
    weight = None if weight is None else weight.astype(np.float64)
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
    adjacent = tuple(map(count_adjacent, nodes, map(len, connectivity.nodes)))
    edges = nodes[:, 0], nodes[:, -1], nodes[:, :, 0], nodes[:, :, -1]
    return one_object((counts, adjacent, tuple(edge.copy() for edge in edges)))


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
    adjacent = tuple(map(merge_counts, zip(*(part[1] for part in found), strict=True)))
    return one_object((merge_connectivity(counts) if counts else None, adjacent))


def of_each(
    function: Any, *arrays: da.Array, chunks: Any = None, dtype: Any = object, **options: Any
) -> da.Array:
    """Run a function on block i of each array; the one block of a table goes to all."""
    pairs: list[Any] = []
    for array in arrays:
        everywhere = array.dtype == object and array.numblocks[0] == 1 != arrays[0].numblocks[0]
        pairs += [array, "o" if everywhere else "ic"[: array.ndim]]
    return da.blockwise(
        function,
        "i",
        *pairs,
        adjust_chunks={"i": (1,) * arrays[0].numblocks[0] if chunks is None else tuple(chunks)},
        align_arrays=False,
        concatenate=False,
        meta=np.empty(0, dtype),
        token="daskclust-blocks",
        **options,
    )


def count_graph(
    blocks: CubeBlocks, counted: Surveyed, connectivity: Connectivity, weight: Any = None
) -> tuple[ConnectivityCounts, tuple[PairCounts, ...]]:
    """Count near nodes, and nodes of adjacent pixels; see ``Cube.count_neighbors``.

    One task a block, one for each two adjacent blocks, and a tree of merges.
    """
    grid, counts = blocks.grid, counted.counts
    starts = tuple(int(n) for n in np.cumsum((0, *counts[:-1])))
    by_block = blocks.map(
        _block_counts,
        *([] if weight is None else [align(weight, counts)]),
        sizes=(1,) * grid.count,
        dtype=object,
        token="daskclust-graph",
        scaling=counted.scaling,
        starts=starts,
        connectivity=connectivity,
    )
    parts = [of_each(_inner, by_block)]
    ids = da.arange(grid.count, chunks=1, dtype=np.int64)
    down, across = grid.numblocks
    if across > 1:
        pair = ids[:-1], by_block[:-1], by_block[1:]
        parts.append(of_each(_across, *pair, last=across, sides=(3, 2), connectivity=connectivity))
    if down > 1:
        pair = ids[:-across], by_block[:-across], by_block[across:]
        parts.append(of_each(_across, *pair, last=0, sides=(1, 0), connectivity=connectivity))
    merged = merged_in_tree(da.concatenate(parts), _merge, _FOLD)
    (found,) = compute("the count of neighbors", merged)
    near, adjacent = found[0]
    return near, adjacent
