"""Maps without salt and pepper: labels smoothed where spectra are alike, and small regions sieved.

Each pixel depends on those within `REACH` of it, so blocks are swept with so much of their
neighbors; the sieve merges what blocks know of their regions.  Neither sees how the image is cut.
"""

from __future__ import annotations

import math
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from daskclust._types import Array, Bools, Ints
from daskclust.cube._labels import align, as_numbers
from daskclust.cube._reading import NEIGHBOR_PIXELS, CubeSource, Scaling, one_object, sample_pixels
from daskclust.cube.layout import BlockGrid, flatten, unflatten
from daskclust.kernels.smoothing import (
    MASKED,
    NONE,
    REACH,
    affinities,
    merge_open,
    regions_of,
    replaced,
    squared_gaps,
    swept,
)


def smoothed(cube: Any, labels: Any, proba: Any, strength: Any, min_pixels: Any) -> da.Array:
    """Return smooth labels; see :meth:`daskclust.cube.Cube.smooth`."""
    if not (
        isinstance(strength, int | float | np.integer | np.floating) and 0 <= strength < math.inf
    ):
        raise ValueError(f"strength={strength!r}; expected a finite number from 0 on.")
    if isinstance(min_pixels, bool) or not isinstance(min_pixels, int | np.integer):
        raise ValueError(f"min_pixels={min_pixels!r}; expected an integer from 0 on.")
    if min_pixels < 0:
        raise ValueError(f"min_pixels={min_pixels!r}; expected an integer from 0 on.")
    given = align(labels, cube.block_counts)
    if given.dtype.kind not in "biuOUST":
        raise ValueError(f"labels have dtype {given.dtype}; expected integers, or text.")
    if proba is not None:
        # Looked at even where the strength is 0: a mistake is one in both cases.
        proba = _checked(proba, cube.block_counts)
    sweeps = proba is not None and strength > 0 and cube.n_valid > 0
    sieves = min_pixels > 1 and cube.n_valid > 0
    if not sweeps and not sieves:
        return given
    grid = cube.blocks
    table = None
    if sweeps:
        both = _swept(cube, given, proba, float(strength))
        votes = _of_each(_votes, both, given, k=proba.shape[1])
        table = da.blockwise(
            _elected,
            "o",
            *(votes, "i"),
            new_axes={"o": 1},
            concatenate=False,
            dtype=object,
            meta=np.empty(0, object),
            wanted=given.dtype,
        )
        codes = _of_each(_decoded, both, table, chunks=grid.pixels, dtype=np.int64)
        if sieves:
            codes = _sieved(codes, grid, int(min_pixels))
        return _of_each(_rows, codes, given, table, chunks=given.chunks[0], dtype=given.dtype)
    numbers_, names = as_numbers(labels, None)
    codes = cube._per_block(
        _spread_codes,
        align(numbers_, cube.block_counts),
        sizes=grid.pixels,
        dtype=np.int64,
        token="daskclust-codes",
    )
    codes = _sieved(codes, grid, int(min_pixels))
    if names is not None:
        table = da.from_array(one_object((np.array(list(names.values())), None)), chunks=1)
    return _of_each(
        *(_rows, codes, given, *(() if table is None else (table,))),
        chunks=given.chunks[0],
        dtype=given.dtype,
    )


def _checked(proba: Any, counts: tuple[int, ...]) -> da.Array:
    if not isinstance(proba, da.Array):
        proba = np.asarray(proba)
    if proba.ndim != 2 or proba.dtype.kind != "f" or not proba.shape[1]:
        raise ValueError(
            f"proba has shape {proba.shape} and dtype {proba.dtype}; expected floats of shape "
            "(n_valid, k), such as model.predict_proba(cube)."
        )
    lazy = proba if isinstance(proba, da.Array) else da.from_array(proba)
    known = not any(math.isnan(size) for size in lazy.chunks[0])
    if known and lazy.shape[0] != sum(counts):
        raise ValueError(
            f"proba has {lazy.shape[0]} rows for {sum(counts)} valid pixels; expected one for "
            "each row of samples."
        )
    if known:
        return lazy.rechunk((tuple(counts), -1))
    if lazy.numblocks != (len(counts), 1):
        raise ValueError(
            f"proba has {lazy.numblocks} blocks of unknown length, the cube has {len(counts)}; "
            "compute it from this cube's samples, or call proba.compute_chunk_sizes() first."
        )
    return lazy


def _of_each(
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
        dtype=dtype,
        meta=np.empty(0, dtype),
        token="daskclust-smooth",
        **options,
    )


def _only(block: Any) -> Any:
    """Return what an array holds of which Dask hands the only chunk, as a list or as it is."""
    return block[0] if isinstance(block, list) else block


# Sweeps


def _swept(cube: Any, labels: da.Array, proba: da.Array, strength: float) -> da.Array:
    """Return the best column of `proba` for each pixel after the sweeps and before; flat."""
    grid, k = cube.blocks, proba.shape[1]
    shares = cube._per_block(
        _spread_shares,
        labels,
        proba,
        sizes=grid.pixels,
        width=k,
        dtype=np.float32,
        token="daskclust-shares",
    )
    scaling = Scaling("none", cube.sample_scaling.dtype)
    _, (one, other) = sample_pixels(cube, NEIGHBOR_PIXELS, cube.n_valid, 0, scaling)
    gaps = squared_gaps(np.ascontiguousarray(one), np.ascontiguousarray(other))
    gaps = gaps[~np.isnan(gaps)]
    spectra = cube._per_block(
        _spread_spectra,
        sizes=grid.pixels,
        width=cube.shape[2] + 1,
        dtype=np.result_type(scaling.dtype, np.float32),
        token="daskclust-spectra",
        scaling=scaling,
    )
    steps = tuple(
        max(size, reach)
        for size, reach in zip(grid.block, (min(REACH, n) for n in grid.shape), strict=True)
    )
    wide = tuple(_at_least(n, step) for n, step in zip(grid.shape, steps, strict=True))
    beyond = {axis: (0, int(len(sizes) > 1)) for axis, sizes in enumerate(grid.chunks)}
    alike = da.map_blocks(
        _alike,
        da.overlap.overlap(unflatten(spectra, grid), {**beyond, 2: 0}, "none"),
        scale=2 * float(np.median(gaps)) if len(gaps) else 0.0,
        sizes=grid.chunks,
        chunks=(*grid.chunks, (2,)),
        dtype=np.float32,
        meta=np.empty((0, 0, 0), np.float32),
    )
    around = {axis: REACH if len(sizes) > 1 else 0 for axis, sizes in enumerate(wide)} | {2: 0}
    image = da.map_blocks(
        _block_swept,
        *(
            da.overlap.overlap(part.rechunk((*wide, -1)), around, "none")
            for part in (unflatten(shares, grid), alike)
        ),
        strength=strength,
        sizes=wide,
        chunks=(*wide, (2,)),
        dtype=np.int32,
        meta=np.empty((0, 0, 0), np.int32),
    )
    return flatten(image, grid)


def _at_least(size: int, step: int) -> tuple[int, ...]:
    """Cut a length into steps; the last is not shorter than others."""
    count = max(1, size // step)
    return (*(step,) * (count - 1), size - step * (count - 1))


def _spread_codes(
    ids: Ints, labels: Array, excluded: Bools | None = None, *, source: CubeSource
) -> Ints:
    """Put labels on the pixels of a block."""
    number = int(ids[0])
    valid, _ = source.valid(number, excluded)
    out = np.full(source.grid.pixels_of(number), MASKED, np.int64)
    plain = np.ma.filled(labels.astype(np.int64), NONE)
    if len(plain) and int(plain.min()) < NONE:
        raise ValueError(f"labels hold {plain.min()}; expected -1 (none) and numbers from 0 on.")
    out[valid] = plain
    return out


def _spread_shares(
    ids: Ints, labels: Array, proba: Any, excluded: Bools | None = None, *, source: CubeSource
) -> Array:
    """Put posteriors on the pixels of a block: NaN where it is masked, -1 where it has no label."""
    number, shares = int(ids[0]), _only(proba)
    valid, _ = source.valid(number, excluded)
    out = np.full((source.grid.pixels_of(number), shares.shape[1]), np.nan, np.float32)
    usable = np.isfinite(shares).all(axis=1) & (shares >= 0).all(axis=1)
    out[valid] = np.where((usable & ~_lacks(labels))[:, None], shares, -1.0)
    return out


def _lacks(labels: Array) -> Bools:
    """Whether a row has no label."""
    absent = np.ma.getmaskarray(labels)
    return absent | (np.ma.getdata(labels) == -1) if labels.dtype.kind == "i" else absent


def _spread_spectra(
    ids: Ints, excluded: Bools | None = None, *, source: CubeSource, scaling: Scaling
) -> Array:
    """Put spectra on the pixels of a block, and before them whether the pixel is a row."""
    valid, values = source.pixels(int(ids[0]), excluded)
    out = np.zeros((len(valid), values.shape[1] + 1), np.result_type(scaling.dtype, np.float32))
    out[:, 0] = valid
    out[valid, 1:] = scaling(values[valid])
    return out


def _alike(
    block: Array, *, scale: float, sizes: tuple[tuple[int, ...], ...], block_id: Any = None
) -> Array:
    height, width = (part[at] for part, at in zip(sizes, block_id, strict=False))
    return affinities(block[:, :, 1:], block[:, :, 0] != 0, height, width, scale)


def _block_swept(
    shares: Array,
    alike: Array,
    *,
    strength: float,
    sizes: tuple[tuple[int, ...], ...],
    block_id: Any = None,
) -> NDArray[np.int32]:
    inner, odd = [], 0
    for part, at in zip(sizes, block_id, strict=False):
        before = REACH if at else 0
        odd += sum(part[:at]) - before
        inner.append(slice(before, before + part[at]))
    found: NDArray[np.int32] = swept(
        np.ascontiguousarray(shares), np.ascontiguousarray(alike), strength, odd % 2
    )[tuple(inner)]
    return found


# Which label a column of posteriors stands for


def _votes(both: Any, labels: Array, *, k: int) -> NDArray[np.object_]:
    """Count which labels the rows have whose posterior is the highest in each column."""
    before = _only(both)[:, 1]
    before = before[before != MASKED]
    if len(before) != len(labels):
        raise ValueError(f"A block has {len(before)} valid pixels but got {len(labels)} labels.")
    there = before != NONE
    found, inverse = np.unique(np.ma.getdata(labels)[there], return_inverse=True)
    pairs, counts = np.unique(
        before[there].astype(np.int64) + k * inverse.ravel(), return_counts=True
    )
    return one_object((k, found[pairs // k], pairs % k, counts))


def _elected(votes: list[NDArray[np.object_]], *, wanted: Any) -> NDArray[np.object_]:
    """Return the most frequent label of each column, and which columns have any."""
    parts = [part[0] for part in votes]
    k = parts[0][0]
    values, inverse = np.unique(np.concatenate([part[1] for part in parts]), return_inverse=True)
    table = np.zeros((k, max(len(values), 1)), np.int64)
    columns = np.concatenate([part[2] for part in parts])
    np.add.at(table, (columns, inverse.ravel()), np.concatenate([part[3] for part in parts]))
    known = table.sum(axis=1) > 0
    chosen = table.argmax(axis=1)
    if len(np.unique(chosen[known])) < known.sum():
        raise ValueError(
            "labels and proba are not of one model: two columns of proba stand for one label. "
            "Expected model.predict(cube) and model.predict_proba(cube)."
        )
    names = values[chosen] if len(values) else np.zeros(k, wanted)
    return one_object((names, known))


def _decoded(both: Any, table: Any) -> Ints:
    """Return the column of each pixel; one for which no label is known stays away."""
    after, before = _only(both).astype(np.int64).T
    _, known = _only(table)[0]
    strange = after >= 0
    strange[strange] = ~known[after[strange]]
    out: Ints = np.where(strange, before, after)
    return out


def _rows(codes: Ints, labels: Array, table: Any = None) -> Array:
    """Return codes of pixels as labels of rows, of the type of the labels; others stay."""
    codes = codes[codes != MASKED]
    out = labels.copy()
    there = codes >= 0
    names = codes if table is None else _only(table)[0][0][codes]
    out[there] = names[there].astype(labels.dtype)
    return out


# Sieve


def _sieved(codes: da.Array, grid: BlockGrid, least: int) -> da.Array:
    """Replace the small regions of a flat map; exact whatever the blocks."""
    ids = da.arange(grid.count, chunks=1, dtype=np.int64)
    blocks = _of_each(_block_regions, ids, codes, grid=grid, least=least)
    verdicts = da.blockwise(
        _merged,
        "o",
        *(_of_each(_opened, blocks), "i"),
        new_axes={"o": 1},
        concatenate=False,
        dtype=object,
        meta=np.empty(0, object),
        grid=grid,
        least=least,
    )
    return _of_each(_block_replaced, ids, blocks, verdicts, chunks=grid.pixels, dtype=np.int64)


def _block_regions(ids: Ints, codes: Ints, *, grid: BlockGrid, least: int) -> NDArray[np.object_]:
    rows, cols = grid.region(int(ids[0]))
    image = codes.reshape(rows.stop - rows.start, -1)
    return one_object(regions_of(image, least, (rows.start, cols.start), grid.shape[1]))


def _opened(block: NDArray[np.object_]) -> NDArray[np.object_]:
    """Leave the map behind: only what others have to know travels."""
    return one_object(block[0][1])


def _merged(
    blocks: list[NDArray[np.object_]], *, grid: BlockGrid, least: int
) -> NDArray[np.object_]:
    return one_object(merge_open([b[0] for b in blocks], grid.numblocks, least, grid.shape[1]))


def _block_replaced(ids: Ints, block: NDArray[np.object_], verdicts: Any) -> Ints:
    return replaced(block[0][0], _only(verdicts)[0][int(ids[0])]).ravel()
