"""Smoothing of label maps: labels of similar neighbors, and replacement of small regions.

A pixel depends on pixels at a distance of at most `REACH`, so a block is swept with this many
pixels of its neighbors.  Regions at the edges of blocks are merged in one task.  Results do not
depend on the chunks.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import accumulate
from operator import itemgetter
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Bools, Ints
from daskclust.core.engine import seen_alike
from daskclust.core.engine.private_api import on_top_of, task
from daskclust.scenes._block_tasks import (
    CubeBlocks,
    CubeSource,
    Scaling,
    Surveyed,
    align,
    as_numbers,
    expand_block,
    one_object,
)
from daskclust.scenes.block_grid import BlockGrid, flatten, unflatten
from daskclust.scenes.pixels import NEIGHBOR_PIXELS, of_each, sample_pixels
from daskclust.scenes.smoothing_kernels import (
    MASKED,
    NONE,
    REACH,
    BlockRegions,
    OpenRegions,
    affinities,
    merge_open,
    regions_of,
    replaced,
    squared_gaps,
    swept,
)


def smooth(
    blocks: CubeBlocks,
    counted: Surveyed,
    labels: Any,
    proba: Any = None,
    *,
    strength: float = 0.5,
    min_pixels: int = 0,
) -> da.Array:
    """Smooth labels of similar neighbors, and replace small regions; see ``Cube.smooth``."""
    is_number = isinstance(strength, int | float | np.integer | np.floating)
    if not (is_number and 0 <= strength < math.inf):
        raise ValueError(f"strength must be a finite number >= 0, got {strength!r}.")
    is_whole = isinstance(min_pixels, int | np.integer) and not isinstance(min_pixels, bool)
    if not is_whole or min_pixels < 0:
        raise ValueError(f"min_pixels must be an integer >= 0, got {min_pixels!r}.")
    aligned = align(labels, counted.counts)
    if aligned.dtype.kind not in "biuOUST":
        raise ValueError(f"labels must be integers or text, got dtype {aligned.dtype}.")
    if proba is not None:
        # Check `proba` also if the strength is 0.
        proba = _checked(proba, counted.counts)
    sweeps = proba is not None and strength > 0 and sum(counted.counts) > 0
    sieves = min_pixels > 1 and sum(counted.counts) > 0
    if not sweeps and not sieves:
        return aligned
    grid = blocks.grid
    unknown = (math.nan,) * grid.count
    if sweeps:
        both = _swept(blocks, counted, aligned, proba, float(strength))
        unchanged = of_each(
            _labels_without_code, both, aligned, chunks=unknown, dtype=aligned.dtype
        )
        # `unchanged` is an input, so that the labels of a block are not needed after its sweeps.
        votes = of_each(_votes, both, aligned, unchanged, k=proba.shape[1])
        table = _election(votes, aligned.dtype)
        codes = of_each(_decoded, both, table, chunks=grid.pixels, dtype=both.dtype)
    else:
        numbers_, names = as_numbers(labels)
        names_by_code = None if names is None else np.array(list(names.values()))
        table = da.from_array(one_object((names_by_code, None)), chunks=1)
        numbers = align(numbers_, counted.counts)
        codes = blocks.map(
            _spread_codes,
            numbers,
            sizes=grid.pixels,
            dtype=_signed(numbers.dtype),
            token="daskclust-codes",
        )
        unchanged = of_each(
            _labels_without_code, codes, aligned, chunks=unknown, dtype=aligned.dtype
        )
    if sieves:
        codes = _sieved(codes, grid, int(min_pixels))
    return of_each(_rows, codes, unchanged, table, chunks=aligned.chunks[0], dtype=aligned.dtype)


def _checked(proba: Any, counts: tuple[int, ...]) -> da.Array:
    if not isinstance(proba, da.Array):
        proba = np.asarray(proba)
    if proba.ndim != 2 or proba.dtype.kind != "f" or not proba.shape[1]:
        raise ValueError(
            "proba must contain floats of shape (n_valid, k), such as model.predict_proba(cube), "
            f"got shape {proba.shape} and dtype {proba.dtype}."
        )
    lazy = seen_alike(proba) if isinstance(proba, da.Array) else da.from_array(proba)
    lengths_known = not any(math.isnan(size) for size in lazy.chunks[0])
    if lengths_known and lazy.shape[0] != sum(counts):
        raise ValueError(
            "proba must have one row for each row of samples, got "
            f"{lazy.shape[0]} rows for {sum(counts)} valid pixels."
        )
    if lengths_known:
        return lazy.rechunk((tuple(counts), -1))
    if lazy.numblocks != (len(counts), 1):
        raise ValueError(
            "proba must have one block for each block of the cube if its length is unknown, got "
            f"{lazy.numblocks} blocks for {len(counts)}. Compute it from the samples of this cube, "
            "or call proba.compute_chunk_sizes() first."
        )
    return lazy


def _only(block: Any) -> Any:
    """Return a chunk, which Dask passes directly or in a list of one."""
    return block[0] if isinstance(block, list) else block


# Sweeps


def _swept(
    blocks: CubeBlocks, counted: Surveyed, labels: da.Array, proba: da.Array, strength: float
) -> da.Array:
    """Return the best column of `proba` for each pixel after the sweeps and before; flat."""
    grid, k = blocks.grid, proba.shape[1]
    shares = blocks.map(
        _spread_shares,
        labels,
        proba,
        sizes=grid.pixels,
        width=k,
        dtype=np.float32,
        token="daskclust-shares",
    )
    scaling = Scaling("none", counted.scaling.dtype)
    counted = replace(counted, scaling=scaling)
    _, (one, other) = sample_pixels(blocks, counted, NEIGHBOR_PIXELS, 0)
    gaps = squared_gaps(np.ascontiguousarray(one), np.ascontiguousarray(other))
    gaps = gaps[~np.isnan(gaps)]
    scale = 2 * float(np.median(gaps)) if len(gaps) else 0.0
    steps = tuple(
        max(size, reach)
        for size, reach in zip(grid.block, (min(REACH, n) for n in grid.shape), strict=True)
    )
    wide = tuple(_at_least(n, step) for n, step in zip(grid.shape, steps, strict=True))
    both = da.map_blocks(
        _joined,
        unflatten(shares, grid),
        _affinities(blocks, scaling, scale),
        chunks=(*grid.chunks, (k + 2,)),
        meta=np.empty((0, 0, 0), np.float32),
    )
    return flatten(_swept_blocks(both.rechunk((*wide, -1)), strength), grid)


# Blocks wait for the next line of blocks.  The edges that other blocks need are copied first.
# Views, as in ``dask.array.overlap``, would keep complete blocks in memory without being counted by
# Dask.


def _affinities(blocks: CubeBlocks, scaling: Scaling, scale: float) -> da.Array:
    """Return the similarity of each pixel to its right and its lower neighbor: (y, x, 2)."""
    grid = blocks.grid
    inner = blocks.map(
        _block_alike,
        sizes=(1,) * grid.count,
        dtype=object,
        token="daskclust-alike",
        scaling=scaling,
        scale=scale,
    )
    down, across = grid.numblocks
    name = f"daskclust-affinities-{inner.name}"
    first = f"daskclust-first-{inner.name}"
    layer: dict[Any, Any] = {}
    for i, j in np.ndindex(down, across):
        number = i * across + j
        layer[first, number] = task(itemgetter(1), (inner.name, number))
        right = (first, number + 1) if j + 1 < across else None
        below = (first, number + across) if i + 1 < down else None
        layer[name, i, j, 0] = task(_alike, (inner.name, number), right, below, scale)
    return on_top_of(inner, name, layer, (*grid.chunks, (2,)), np.float32)


def _block_alike(
    source: CubeSource,
    number: int,
    excluded: Bools | None,
    *,
    scaling: Scaling,
    scale: float,
) -> tuple[Array, tuple[Array, Array], tuple[Array, Array]]:
    """Return affinities within a block, and the spectra of its first and last column and line.

    The first value of a spectrum is 1 if the pixel is a row, and 0 otherwise.
    """
    valid, values = source.pixels(number, excluded)
    flat = np.zeros((len(valid), values.shape[1] + 1), np.result_type(scaling.dtype, np.float32))
    flat[:, 0] = valid
    flat[valid, 1:] = scaling(values[valid])
    rows, _ = source.grid.region(number)
    block = flat.reshape(rows.stop - rows.start, -1, flat.shape[1])
    height, width, _ = block.shape
    inner = affinities(block[:, :, 1:], block[:, :, 0] != 0, height, width, scale)
    return inner, (block[:, :1].copy(), block[:1].copy()), (block[:, -1:].copy(), block[-1:].copy())


def _alike(block: Any, right: Any, below: Any, scale: float) -> Array:
    """Return the affinities of a block, with those to the blocks on the right and below."""
    inner, _, (column, line) = block
    out: Array = inner.copy()
    for side, own, other in ((0, column, right), (1, line, below)):
        if other is not None:
            pair = np.concatenate([own, other[side]], axis=1 - side)
            between = affinities(pair[:, :, 1:], pair[:, :, 0] != 0, *own.shape[:2], scale)
            (out[:, -1:] if side == 0 else out[-1:])[:, :, side] = between[:, :, side]
    return out


def _joined(shares: Array, alike: Array) -> Array:
    return np.concatenate([shares, alike], axis=2)


def _swept_blocks(image: da.Array, strength: float) -> da.Array:
    """Sweep an image (y, x, classes and affinities) in blocks with `REACH` more pixels around."""
    down, across = image.numblocks[:2]
    edge, name = f"daskclust-edge-{image.name}", f"daskclust-swept-{strength}-{image.name}"
    dtype = np.min_scalar_type(-max(image.shape[2] - 2, 2))
    layer: dict[Any, Any] = {}

    def edge_of(i: int, j: int, side: int) -> Any:
        if not (0 <= i < down and 0 <= j < across):
            return None
        key = (edge, i, j, side)
        layer[key] = task(_edge, (image.name, i, j, 0), side)
        return key

    tops, lefts = (list(accumulate(sizes, initial=0)) for sizes in image.chunks[:2])
    for i, j in np.ndindex(down, across):
        core = (image.name, i, j, 0)
        around = [
            [edge_of(i - 1, j - 1, 1), edge_of(i - 1, j, 1), edge_of(i - 1, j + 1, 1)],
            [edge_of(i, j - 1, 3), core, edge_of(i, j + 1, 2)],
            [edge_of(i + 1, j - 1, 0), edge_of(i + 1, j, 0), edge_of(i + 1, j + 1, 0)],
        ]
        before = (REACH if i else 0) + (REACH if j else 0)
        odd = (tops[i] + lefts[j] - before) % 2
        # The block's edges are inputs, so that the block is not needed after its sweeps.
        own_edges = [edge_of(i, j, side) for side in range(4)] if down * across > 1 else []
        layer[name, i, j, 0] = task(_block_swept, around, own_edges, strength, odd, dtype)
    return on_top_of(image, name, layer, (*image.chunks[:2], (2,)), dtype)


def _edge(block: Array, side: int) -> Array:
    """Return lines of a block (0: first, 1: last) or columns (2, 3)."""
    return (block[:REACH], block[-REACH:], block[:, :REACH], block[:, -REACH:])[side].copy()


def _block_swept(around: Any, _: Any, strength: float, odd: int, dtype: Any) -> Array:
    """Sweep a block; `around` contains 3 x 3 blocks or their edges, None outside the image."""
    core = around[1][1]
    k = core.shape[2] - 2
    before = [REACH if edge is not None else 0 for edge in (around[0][1], around[1][0])]
    after = [REACH if edge is not None else 0 for edge in (around[2][1], around[1][2])]
    height, width = (sum(sizes) for sizes in zip(before, core.shape[:2], after, strict=True))
    shares, alike = (np.empty((height, width, n), np.float32) for n in (k, 2))
    spans = [
        (slice(0, first), slice(first, size - last), slice(size - last, size))
        for size, first, last in zip((height, width), before, after, strict=True)
    ]
    for rows, line in zip(spans[0], around, strict=True):
        for i, (columns, edge) in enumerate(zip(spans[1], line, strict=True)):
            if edge is not None:
                # A block at a corner contributes the end of its line.
                values = edge[:, -REACH:] if i == 0 else edge[:, :REACH] if i == 2 else edge
                shares[rows, columns], alike[rows, columns] = values[..., :k], values[..., k:]
    best = swept(shares, alike, strength, odd)[spans[0][1], spans[1][1]]
    return best.astype(dtype)


def _at_least(size: int, step: int) -> tuple[int, ...]:
    """Cut a length into steps; the last is not shorter than others."""
    count = max(1, size // step)
    return (*(step,) * (count - 1), size - step * (count - 1))


def _signed(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a signed type for labels and negative codes."""
    signed = np.result_type(dtype, np.int8)
    return signed if signed.kind == "i" else np.dtype(np.int64)


def _spread_codes(source: CubeSource, number: int, excluded: Bools | None, labels: Array) -> Ints:
    plain = np.ma.filled(labels.astype(_signed(labels.dtype)), NONE)
    if len(plain) and int(plain.min()) < NONE:
        raise ValueError(f"labels must be >= 0, or -1 for no class, got {plain.min()}.")
    return expand_block(source, number, excluded, plain, fill_value=MASKED)


def _spread_shares(
    source: CubeSource, number: int, excluded: Bools | None, labels: Array, proba: Any
) -> Array:
    """Put posteriors on the pixels of a block: NaN if masked, -1 without a label."""
    shares = _only(proba)
    valid, _ = source.valid(number, excluded)
    out = np.full((source.grid.pixels_of(number), shares.shape[1]), np.nan, np.float32)
    usable = np.isfinite(shares).all(axis=1) & (shares >= 0).all(axis=1)
    out[valid] = np.where((usable & ~_lacks(labels))[:, None], shares, -1.0)
    return out


def _lacks(labels: Array) -> Bools:
    absent = np.ma.getmaskarray(labels)
    return absent | (np.ma.getdata(labels) == -1) if labels.dtype.kind == "i" else absent


# The label of each column of posteriors


def _labels_without_code(codes: Any, labels: Array) -> Array:
    """Return the labels of rows without a code."""
    codes = _only(codes)
    codes = codes[:, 1] if codes.ndim == 2 else codes
    codes = codes[codes != MASKED]
    if len(codes) != len(labels):
        raise ValueError(f"A block has {len(codes)} valid pixels but got {len(labels)} labels.")
    return labels[codes == NONE]


def _votes(both: Any, labels: Array, _: Array, *, k: int) -> NDArray[np.object_]:
    """Count the labels of the rows with the highest posterior in each column."""
    before = _only(both)[:, 1]
    before = before[before != MASKED]
    has_code = before != NONE
    names, inverse = np.unique(np.ma.getdata(labels)[has_code], return_inverse=True)
    pairs, counts = np.unique(
        before[has_code].astype(np.int64) + k * inverse.ravel(), return_counts=True
    )
    return one_object((k, names[pairs // k], pairs % k, counts))


def _election(votes: da.Array, wanted: Any) -> da.Array:
    """Add up votes block by block, and elect the label of each column.

    Votes are added in a chain, so that Dask sweeps blocks in order and few wait for neighbors.
    """
    name = f"daskclust-elected-{votes.name}"
    layer: dict[Any, Any] = {("sum-" + name, 0): (votes.name, 0)}
    last = votes.numblocks[0] - 1
    for i in range(last):
        layer["sum-" + name, i + 1] = task(_added, ("sum-" + name, i), (votes.name, i + 1))
    layer[name, 0] = task(_elected, ("sum-" + name, last), wanted)
    return on_top_of(votes, name, layer, ((1,),), object)


def _added(first: NDArray[np.object_], second: NDArray[np.object_]) -> NDArray[np.object_]:
    k = first[0][0]
    names, columns, counts = (
        np.concatenate(pair) for pair in zip(first[0][1:], second[0][1:], strict=True)
    )
    values, inverse = np.unique(names, return_inverse=True)
    pairs, at = np.unique(columns + k * inverse.ravel(), return_inverse=True)
    total = np.zeros(len(pairs), np.int64)
    np.add.at(total, at.ravel(), counts)
    return one_object((k, values[pairs // k], pairs % k, total))


def _elected(votes: NDArray[np.object_], wanted: Any) -> NDArray[np.object_]:
    """Return the most frequent label of each column, and a mask of columns with labels."""
    k, names, columns, counts = votes[0]
    values, inverse = np.unique(names, return_inverse=True)
    table = np.zeros((k, max(len(values), 1)), np.int64)
    table[columns, inverse.ravel()] = counts
    has_label = table.sum(axis=1) > 0
    chosen = table.argmax(axis=1)
    if len(np.unique(chosen[has_label])) < has_label.sum():
        raise ValueError(
            "labels and proba must be of the same model, got two columns of proba for one label. "
            "Use model.predict(cube) and model.predict_proba(cube)."
        )
    names = values[chosen] if len(values) else np.zeros(k, wanted)
    return one_object((names, has_label))


def _decoded(both: Any, table: Any) -> Ints:
    """Return the column of each pixel; columns without a label are not used."""
    after, before = _only(both).T
    _, has_label = _only(table)[0]
    no_label = after >= 0
    no_label[no_label] = ~has_label[after[no_label]]
    out: Ints = np.where(no_label, before, after)
    return out


def _rows(codes: Ints, unchanged: Array, table: Any) -> Array:
    """Return codes of pixels as labels of rows; rows without a code keep their labels."""
    codes = codes[codes != MASKED]
    names, has_code = _only(table)[0][0], codes >= 0
    # The result has a mask if `unchanged` has a mask.
    out = np.repeat(
        unchanged[:1] if len(unchanged) else np.zeros_like(unchanged, shape=1), len(codes)
    )
    out[~has_code] = unchanged
    out[has_code] = codes[has_code] if names is None else names[codes[has_code]]
    return out


# Small regions


def _sieved(codes: da.Array, grid: BlockGrid, least: int) -> da.Array:
    """Replace the small regions of a flat map; the result does not depend on the blocks.

    Regions are found twice, because they take more memory than the map.
    """
    ids = da.arange(grid.count, chunks=1, dtype=np.int64)
    verdicts = da.blockwise(
        _merged,
        "o",
        *(of_each(_opened, ids, codes, grid=grid, least=least), "i"),
        new_axes={"o": 1},
        concatenate=False,
        meta=np.empty(0, object),
        grid=grid,
        least=least,
    )
    return of_each(
        _block_replaced,
        *(ids, codes, verdicts),
        chunks=grid.pixels,
        dtype=codes.dtype,
        grid=grid,
        least=least,
    )


def _block_regions(
    ids: Ints, codes: Ints, grid: BlockGrid, least: int
) -> tuple[BlockRegions, OpenRegions]:
    rows, cols = grid.region(int(ids[0]))
    image = codes.reshape(rows.stop - rows.start, -1).astype(np.int64)
    return regions_of(image, least, (rows.start, cols.start), grid.shape[1])


def _opened(ids: Ints, codes: Ints, *, grid: BlockGrid, least: int) -> NDArray[np.object_]:
    return one_object(_block_regions(ids, codes, grid, least)[1])


def _merged(
    blocks: list[NDArray[np.object_]], *, grid: BlockGrid, least: int
) -> NDArray[np.object_]:
    return one_object(merge_open([b[0] for b in blocks], grid.numblocks, least, grid.shape[1]))


def _block_replaced(ids: Ints, codes: Ints, verdicts: Any, *, grid: BlockGrid, least: int) -> Ints:
    regions, _ = _block_regions(ids, codes, grid, least)
    return replaced(regions, _only(verdicts)[0][int(ids[0])]).ravel().astype(codes.dtype)
