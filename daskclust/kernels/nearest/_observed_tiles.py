"""Loops over rows with missing values, a tile at a time; compiled around the emitted code.

As :mod:`daskclust.kernels.nearest._tiles`, by distances over what is observed: a tile is
copied with 0 where a value is missing and a bit where there is one, scored, settled where
rounding leaves a doubt, and summed.  A complete row gets the same label and the same distance
as there, to the last bit.

Imports the emitted code; others import from
:mod:`daskclust.kernels.nearest.implementation`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Array, Floats, Ints
from daskclust.kernels.compensated import flush_observed
from daskclust.kernels.compiling import compiled, inner
from daskclust.kernels.nearest._layout import (
    NARROW,
    PANELS,
    WIDE,
    Layout,
    lay_out,
    on_lines,
    tile_rows,
)
from daskclust.kernels.nearest._observed_scores import (
    WAYS,
    few_narrow_observed,
    few_wide_observed,
    score_pair_observed,
    score_tail_observed,
    score_wide_observed,
)
from daskclust.kernels.nearest._row_loops import (
    LINE_BYTES,
    add_row_observed,
    add_row_observed_weighted,
    pack_row_observed,
    row_distance_observed,
)
from daskclust.kernels.nearest._scores import ROWS
from daskclust.kernels.nearest._simd import SUM_LANES
from daskclust.kernels.nearest._tiles import (
    add_totals,
    any_doubtful,
    ask,
    doubt,
    keep_inside,
    lowest_of_lanes,
    make_room,
)

#: Features of a byte, and of one look into the tables.
_BYTE, _GROUP = 8, 4
#: Tiles of complete rows in one of these: a panel's tables are four times as long as the panel
#: and lie in the second-level cache anyway, so more rows share the way to them.
_LONGER = 2


class _Tables(NamedTuple):
    """What scores begin with, by which values are there.

    Attributes
    ----------
    consts, tail_consts : ndarray
        As of a layout, 0 for centers.
    sums, tail_sums : ndarray of shape (P, groups, WAYS, width) and (groups, WAYS, narrow)
        Sums of ``w c^2`` over four features, those of the bits that are set.
    """

    consts: NDArray
    tail_consts: NDArray
    sums: NDArray
    tail_sums: NDArray


def _lay_tables(layout: Layout, centers: Floats, weights: Floats) -> _Tables:
    """Make the tables of a layout of centers (k, p)."""
    active, dtype = layout.active, layout.panels.dtype
    n_panels, width = layout.consts.shape
    n_groups = _n_bytes(active.size) * _BYTE // _GROUP
    squared = np.zeros((len(centers), n_groups * _GROUP))
    with np.errstate(over="ignore", invalid="ignore"):
        shift = layout.shift[active].astype(np.float64)
        squared[:, : active.size] = weights[active] * (centers[:, active] - shift) ** 2
        there = np.arange(WAYS)[:, None] >> np.arange(_GROUP) & 1
        sums = squared.reshape(len(centers), n_groups, _GROUP) @ there.T.astype(np.float64)
        flat = np.zeros((n_groups, WAYS, n_panels * width + layout.tail_consts.size), dtype)
        flat[..., : len(centers)] = sums.transpose(1, 2, 0)
    n_whole = n_panels * width
    whole = on_lines((n_panels, n_groups, WAYS, width), dtype)
    whole[...] = flat[..., :n_whole].reshape(n_groups, WAYS, n_panels, width).transpose(2, 0, 1, 3)
    consts = np.where(np.arange(flat.shape[2]) < len(centers), 0.0, np.inf).astype(dtype)
    return _Tables(
        consts[:n_whole].reshape(n_panels, width),
        consts[n_whole:],
        whole,
        np.ascontiguousarray(flat[..., n_whole:]),
    )


def _n_bytes(q: int) -> int:
    """Bytes that have a bit for each of q features."""
    return max(1, -(-q // _BYTE))


def _rounding(layout: Layout, k: int) -> Any:
    """Relative error of a score; infinite where the scores of centers may overflow."""
    dtype = layout.consts.dtype
    norms = np.concatenate([layout.consts.ravel(), layout.tail_consts])[:k]
    if not (norms < np.finfo(dtype).max / 16).all():
        return dtype.type(np.inf)
    q = layout.active.size
    terms = q + _n_bytes(q) * _BYTE // _GROUP
    return dtype.type((terms + 8) * np.finfo(dtype).eps)


@inner(counted=False)
def _pack_tile(
    x: Any, start: Any, m: Any, layout: Any, packed: Any, bits: Any, nowhere: Any
) -> None:
    """Copy a tile's rows, less the shift, 0 where a value is missing.

    Without any observed feature of positive weight a row is nowhere.
    """
    shift, active = layout.shift, layout.active
    if active.size == x.shape[1]:
        for t in range(m):
            nowhere[t] = pack_row_observed(  # type: ignore[call-arg]
                x, start + t, shift, packed, bits, t
            )
        return
    for t in range(m):
        for byte in range(bits.shape[1]):
            bits[t, byte] = 0
        some = False
        for j in range(active.size):
            value = x[start + t, active[j]]
            has = value == value
            some |= has
            packed[t, j] = value - shift[active[j]] if has else x.dtype.type(0)
            bits[t, j >> 3] |= np.uint8(has) << np.uint8(j & 7)
        # A complete row is somewhere, even where no feature has a weight.
        if active.size == 0:
            missing = 0
            for j in range(x.shape[1]):
                missing += x[start + t, j] != x[start + t, j]
            some = missing == 0
        nowhere[t] = not some


@inner(counted=False)
def _score_tile(rows: Any, bits: Any, m: Any, layout: Any, tables: Any, tile: Any) -> None:
    """Smallest and second smallest score, and nearest center, of a tile's rows."""
    panels, tail, variant = layout.panels, layout.tail, layout.variant
    consts, tail_consts, sums, tail_sums = tables
    best, second, vector, low, next_low, nearest = tile[:6]
    if variant == NARROW:
        for t in range(0, m, ROWS):
            few_narrow_observed(rows, t, panels, consts, low, next_low, nearest, bits, sums)
    elif variant == WIDE:
        for t in range(0, m, ROWS):
            few_wide_observed(rows, t, panels, consts, low, next_low, nearest, bits, sums)
    else:
        for panel in range(panels.shape[0]):
            if variant == PANELS:
                for t in range(0, m, ROWS):
                    score_wide_observed(
                        rows, t, panels, consts, panel, best, second, vector, bits, sums
                    )
            else:
                for t in range(0, m, ROWS):
                    score_pair_observed(
                        rows, t, panels, consts, panel, best, second, vector, bits, sums
                    )
        if tail_consts.size:
            vectors = consts.size // best.shape[1]
            for t in range(0, m, ROWS):
                score_tail_observed(
                    rows, t, tail, tail_consts, vectors, best, second, vector, bits, tail_sums
                )
        lowest_of_lanes(tile, m)


@inner(counted=False)
def _add_tile(
    x: Any,
    start: Any,
    m: Any,
    lines: Any,
    points: Any,
    weights: Any,
    uniform: Any,
    tile: Any,
    sums: Any,
) -> None:
    """Add a tile's rows to their clusters' sums, and measure them in the same sweep."""
    nearest, squared, scales = tile.nearest, tile.squared, tile.weight
    if uniform:
        for t in range(m):
            ask(x, start + m + t, lines)
            c = np.intp(nearest[t])
            squared[t] = add_row_observed(x, start + t, points, c, weights, scales[t], sums)
    else:
        for t in range(m):
            ask(x, start + m + t, lines)
            c = np.intp(nearest[t])
            squared[t] = add_row_observed_weighted(
                x, start + t, points, c, weights, scales[t], sums
            )


@inner(counted=False)
def _settle(
    x: Any, start: Any, m: Any, points: Any, weights: Any, tile: Any, bound: Any, sums: Any
) -> None:
    """Decide the doubtful rows of a tile by direct differences, and move their sums."""
    low, next_low, nearest, squared = tile.low, tile.next_low, tile.nearest, tile.squared
    for t in range(m):
        if next_low[t] - low[t] > doubt(squared[t], low[t], bound):
            continue
        i = start + t
        label, exact, least = np.intp(nearest[t]), 0, np.inf
        for c in range(points.shape[0]):
            d = row_distance_observed(x, i, points, c, weights, 1.0, points)
            if d < least:  # ties go to the lowest center
                least, exact = d, c
        if exact != label and sums.size:
            half = sums.shape[1] // 2
            for j in range(x.shape[1]):
                v = tile.weight[t] * np.float64(x[i, j])
                if v == v:
                    sums[label, j] -= v
                    sums[exact, j] += v
                    sums[label, half + j] -= tile.weight[t]
                    sums[exact, half + j] += tile.weight[t]
        nearest[t] = exact
        squared[t] = least


@compiled(counted=False)
def _scan(
    x: Any,
    row_weights: Any,
    points: Any,
    weights: Any,
    uniform: Any,
    layout: Any,
    tables: Any,
    bound: Any,
    ends: Any,
    stats: Any,
    labels: Any,
    distances: Any,
    packed: Any,
    bits: Any,
    nowhere: Any,
    tile: Any,
    sums: Any,
    totals: Any,
) -> None:
    """Go over the tiles of a block; :func:`scan_observed` has the parameters."""
    n = x.shape[0]
    k, size = points.shape[0], packed.shape[0]
    hi, lo = stats
    weighted, want_stats, want_rows = row_weights.size > 0, hi.size > 0, labels.size > 0
    nearest, squared, weight, next_low = tile.nearest, tile.squared, tile.weight, tile.next_low
    lines = -(-x.shape[1] * x.itemsize // LINE_BYTES)
    start = np.intp(0)
    segment = 0
    while start < n:
        # A tile never crosses the end of a segment.
        m = min(size, ends[segment] - start)
        _pack_tile(x, start, m, layout, packed, bits, nowhere)
        _score_tile(packed, bits, m, layout, tables, tile)
        keep_inside(tile, m, k)
        for t in range(m):
            weight[t] = row_weights[start + t] if weighted else 1.0
            if nowhere[t]:
                # Counts for no center, and is as far from all of them.
                weight[t], next_low[t] = 0.0, np.inf
        if want_stats:
            _add_tile(x, start, m, lines, points, weights, uniform, tile, sums)
        else:
            for t in range(m):
                ask(x, start + m + t, lines)
                c = np.intp(nearest[t])
                squared[t] = row_distance_observed(x, start + t, points, c, weights, 1.0, points)
        if k > 1 and any_doubtful(tile, m, bound):
            _settle(x, start, m, points, weights, tile, bound, sums)
        if want_stats:
            add_totals(tile, m, totals)
        if want_rows:
            for t in range(m):
                labels[start + t] = np.int32(-1) if nowhere[t] else nearest[t]
                distances[start + t] = squared[t]
        start += m
        if start == ends[segment]:
            segment += 1
            if want_stats:
                flush_observed(hi, lo, sums, totals)


def scan_observed(
    x: Array,
    row_weights: Floats,
    centers: Floats,
    feature_weights: Floats,
    shift: Floats | None,
    ends: Ints,
    stats: Any,
    labels: NDArray[np.int32],
    distances: Floats,
) -> None:
    """One sweep over a block that may miss values.

    Parameters
    ----------
    x : ndarray of shape (n, p), float32 or float64, C-contiguous; n > 0
        NaN where a value is missing.
    row_weights, centers, shift, ends
        As of :func:`daskclust.kernels.nearest._tiles.scan`.
    feature_weights : ndarray of shape (p,), float64
    stats : pair of ndarray of shape (k, 2p + 2), or both empty
        Receive sums, weights of the values, weights and squared distances.
    labels, distances : ndarray of shape (n,), or both empty
        -1 and 0 for rows that are nowhere.
    """
    uniform = bool((feature_weights == 1.0).all())
    layout: Layout = lay_out(centers, None if uniform else feature_weights, shift, x.dtype)
    tables = _lay_tables(layout, centers, feature_weights)
    q = layout.active.size
    size = tile_rows(q, x.dtype.itemsize, _LONGER)
    packed, bits = np.zeros((size, q), x.dtype), np.zeros((size, _n_bytes(q)), np.uint8)
    tile = make_room(size, layout, x.dtype)
    k = len(centers) if stats[0].size else 0
    padded = -(-x.shape[1] // SUM_LANES) * SUM_LANES
    sums, totals = np.zeros((k, 2 * padded)), np.zeros((k, 2))
    _scan(
        x,
        row_weights,
        centers,
        feature_weights,
        uniform,
        layout,
        tables,
        _rounding(layout, len(centers)),
        ends,
        tuple(stats),
        labels,
        distances,
        packed,
        bits,
        np.empty(size, np.bool_),
        tile,
        sums,
        totals,
    )
