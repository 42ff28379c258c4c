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
from daskclust.core.kernels.pair_counts import count_adjacent, count_edges, merge_counts
from daskclust.core.kernels.projection import noise_whitening
from daskclust.core.kernels.rng import draw_numbers
from daskclust.core.reduction.connectivity import Connections, Connectivity, merge_connections
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
    pixels_wanted: Ints = wanted[0]
    valid, values = source.pixels(number, excluded)
    positions = np.flatnonzero(valid[pixels_wanted])
    samples = scaling(values[pixels_wanted[positions]])
    return one_object((positions, samples if make is None else make(samples)))


def _fetched(
    blocks: CubeBlocks, function: Callable[..., Any], number: Ints, inside: Ints, **options: Any
) -> tuple[Ints, Ints, list[Any]]:
    """Run a function on the blocks that contain some pixels.

    `number` is the block of each pixel, and `inside` its position in the block. Return the order of
    the pixels by block, the start of each block in this order, and the results of the blocks.
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
    used = np.flatnonzero(np.diff(bounds))
    results = compute("the reading of pixels", lazy.blocks[used])[0] if len(used) else ()
    return order, bounds[used], list(results)


def take_pixels(
    blocks: CubeBlocks,
    places: Ints,
    scaling: Scaling,
    make: Callable[[NDArray[Any]], NDArray[Any]] | None = None,
) -> tuple[NDArray[np.intp], NDArray[Any]]:
    """Return positions and samples of the valid pixels in `places`; see ``Cube.take_pixels``."""
    grid = blocks.grid
    y, x = np.divmod(places, grid.shape[1])
    i, j = y // grid.block[0], x // grid.block[1]
    inside = (y - i * grid.block[0]) * np.array(grid.chunks[1])[j] + x - j * grid.block[1]
    order, starts, results = _fetched(
        blocks,
        _block_pixels,
        i * grid.numblocks[1] + j,
        inside,
        scaling=scaling,
        make=make,
    )
    positions, values = zip(*results, strict=True)
    taken = np.concatenate(
        [order[start + inner] for start, inner in zip(starts, positions, strict=True)]
    )
    ascending = np.argsort(taken)
    return taken[ascending], np.concatenate(values)[ascending]


#: Maximum number of pixels that are drawn to find rare valid pixels.
_MAX_DRAWN = 2**24
#: Minimum fraction of the requested pixels; with fewer valid pixels, more pixels are drawn.
_ENOUGH = 0.25


def sample_pixels(
    blocks: CubeBlocks, counted: Surveyed, count: int, seed: int, *, without: Any = None
) -> tuple[NDArray[Any], tuple[NDArray[Any], NDArray[Any]]]:
    """Draw valid pixels, and pairs of adjacent ones; see ``Cube.sample_pixels``."""
    height, width = blocks.grid.shape
    total = height * width
    # If many pixels are masked, more pixels must be drawn.
    n_valid = max(1, sum(counted.counts))
    n_drawn = -(-count * total // n_valid)
    if without is None:
        return _sampled(blocks, counted, n_drawn, seed)
    (n_without,) = compute("the excluded pixels", da.asarray(without).sum())
    n_drawn = int(n_drawn * total / max(1, total - int(n_without)))
    blocks = blocks.excluding(without)
    while True:
        n_drawn = min(n_drawn, total, _MAX_DRAWN)
        sampled = _sampled(blocks, counted, n_drawn, seed)
        if len(sampled[0]) >= _ENOUGH * count or n_drawn in (total, _MAX_DRAWN):
            return sampled
        n_drawn *= 16


def _sampled(
    blocks: CubeBlocks, counted: Surveyed, n_places: int, seed: int
) -> tuple[NDArray[Any], tuple[NDArray[Any], NDArray[Any]]]:
    """Read the valid pixels among some positions of an image, and their neighbors, in one pass."""
    height, width = blocks.grid.shape
    total = height * width
    drawn_pixels = draw_numbers(total, n_places, seed)
    first_pixels = drawn_pixels[draw_numbers(len(drawn_pixels), NEIGHBOR_PIXELS, seed + 1)]
    right = first_pixels[first_pixels % width < width - 1]
    below = first_pixels[first_pixels < total - width]
    pixels_read = np.unique(np.concatenate([drawn_pixels, right + 1, below + width]))
    is_taken, values = take_pixels(blocks, pixels_read, counted.scaling)
    valid = np.append(pixels_read[is_taken], -1)

    def positions_of(pixels: Ints) -> tuple[NDArray[np.intp], Bools]:
        positions = np.searchsorted(valid[:-1], pixels)
        return positions, valid[positions] == pixels

    left, right_values = [], []
    for first, second in ((right, right + 1), (below, below + width)):
        (a, has_a), (b, has_b) = positions_of(first), positions_of(second)
        both = has_a & has_b
        left.append(values[a[both]])
        right_values.append(values[b[both]])
    positions_drawn, is_valid = positions_of(drawn_pixels)
    return values[positions_drawn[is_valid]], (np.concatenate(left), np.concatenate(right_values))


def whitened(blocks: CubeBlocks, counted: Surveyed) -> Scaling:
    """Return the scaling that nearly whitens the noise of the spectra's directions; one pass."""
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
    """Return pixel numbers and values of some valid pixels of a block."""
    valid, values = source.pixels(number, excluded)
    inside = np.flatnonzero(valid)[wanted[0]]
    down, across = source.grid.region(number)
    lines, columns = np.divmod(inside, across.stop - across.start)
    numbers = (lines + down.start) * source.grid.shape[1] + columns + across.start
    return one_object((numbers, None if scaling is None else scaling(values[inside])))


def _block_of_rows(counts: Sequence[int], rows: Ints) -> tuple[Ints, Ints]:
    """Return the block of each row, and the number of the row in its block."""
    starts = np.cumsum((0, *counts))
    number = np.searchsorted(starts, rows, side="right") - 1
    return number, rows - starts[number]


def find_pixels(
    blocks: CubeBlocks, counts: Sequence[int], rows: Ints, scaling: Scaling | None
) -> tuple[Ints, Any]:
    """Return pixel numbers (``y * width + x``) and scaled values of rows, in one pass."""
    order, _, results = _fetched(
        blocks, _block_rows, *_block_of_rows(counts, rows), scaling=scaling
    )
    numbers, n_bands = np.empty(len(rows), np.int64), blocks.source.n_bands
    values = None if scaling is None else np.empty((len(rows), n_bands), scaling.dtype)
    if results:
        numbers[order] = np.concatenate([of_block for of_block, _ in results])
        if values is not None:
            values[order] = np.concatenate([of_block for _, of_block in results])
    return numbers, values


def places_of_rows(blocks: CubeBlocks, counts: Sequence[int], rows: Ints) -> Ints:
    """Return the pixel numbers ``y * width + x`` of rows; see ``Cube.places_of_rows``."""
    grid = blocks.grid
    if sum(counts) < grid.shape[0] * grid.shape[1]:
        return find_pixels(blocks, counts, rows, None)[0]
    number, inside = _block_of_rows(counts, rows)
    i, j = np.divmod(number, grid.numblocks[1])
    y, x = np.divmod(inside, np.array(grid.chunks[1])[j])
    numbers: Ints = (y + i * grid.block[0]) * grid.shape[1] + x + j * grid.block[1]
    return numbers


#: Maximum number of counts that one task merges.
_FOLD = 16
#: Lines and columns of a tile, whose pixels are counted together or not at all.
TILE = 8


def _drawn_tiles(grid: Any, number: int, connectivity: Connectivity) -> Bools:
    """Return True for the pixels of a block that are in drawn tiles of the image."""
    down, across = grid.region(number)
    lines, columns = (np.arange(s.start, s.stop) // TILE for s in (down, across))
    in_row, first = -(-grid.shape[1] // TILE), int(columns[0])
    size = int(columns[-1]) - first + 1
    rows = [connectivity.drawn(i * in_row + first, size) for i in np.unique(lines).tolist()]
    return np.stack(rows)[lines - lines[0]][:, columns - first].ravel()


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
    """Count nodes and neighbors of a block, and return the nodes along its edges."""
    weight = None if weight is None else weight.astype(np.float64)
    height, width = (part.stop - part.start for part in source.grid.region(number))
    valid, values = source.pixels(number, excluded)
    if connectivity.fraction < 1:
        drawn = _drawn_tiles(source.grid, number, connectivity)
        weight = None if weight is None else weight[drawn[valid]]
        valid = valid & drawn
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
    """Count adjacent pixels of two blocks; no pixels if the first block ends a row of blocks."""
    if last and (int(ids[0]) + 1) % last == 0:
        return one_object(None)
    edges = zip(one[0][2][sides[0]], other[0][2][sides[1]], connectivity.nodes, strict=True)
    return one_object((None, tuple(count_edges(a, b, len(nodes)) for a, b, nodes in edges)))


def _merge(parts: NDArray[np.object_]) -> NDArray[np.object_]:
    present = [counts_of_part for counts_of_part in parts if counts_of_part is not None]
    if not present:
        return one_object(None)
    counts = [counts_of_part[0] for counts_of_part in present if counts_of_part[0] is not None]
    adjacent = tuple(
        map(merge_counts, zip(*(counts_of_part[1] for counts_of_part in present), strict=True))
    )
    return one_object((merge_connections(counts) if counts else None, adjacent))


def of_each(
    function: Any, *arrays: da.Array, chunks: Any = None, dtype: Any = object, **options: Any
) -> da.Array:
    """Run a function on block i of each array; a table of one block is an input of each task."""
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
) -> tuple[Connections, Connections]:
    """Count near nodes, and nodes of adjacent pixels; see ``Cube.count_neighbors``.

    One task per block, one per pair of adjacent blocks, and a tree of merges.
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
    count_arrays = [of_each(_inner, by_block)]
    ids = da.arange(grid.count, chunks=1, dtype=np.int64)
    down, across = grid.numblocks
    if across > 1:
        pair = ids[:-1], by_block[:-1], by_block[1:]
        count_arrays.append(
            of_each(_across, *pair, last=across, sides=(3, 2), connectivity=connectivity)
        )
    if down > 1:
        pair = ids[:-across], by_block[:-across], by_block[across:]
        count_arrays.append(
            of_each(_across, *pair, last=0, sides=(1, 0), connectivity=connectivity)
        )
    merged = merged_in_tree(da.concatenate(count_arrays), _merge, _FOLD)
    (merged_counts,) = compute("the count of neighbors", merged)
    near, adjacent = merged_counts[0]
    return near, adjacent
