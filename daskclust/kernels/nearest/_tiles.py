"""Loops over the rows of a block, a tile of rows at a time; compiled.

A tile is scored against all centers while it is in the first-level cache, its
doubtful rows are settled exactly, and its rows are summed or measured.  Each
loop holds one kind of vector code: several in one loop cost LLVM its registers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from daskclust.kernels.compensated import add_plain
from daskclust.kernels.nearest._row_loops import (
    LINE_BYTES,
    add_row,
    add_row_weighted,
    pack_row,
    prefetch,
    row_distance,
    row_distance_weighted,
)
from daskclust.kernels.nearest._scores import (
    ROWS,
    few_narrow,
    few_wide,
    nearest_in_row,
    score_pair,
    score_tail,
    score_wide,
)

__all__ = ["NARROW", "PAIRS", "PANELS", "WIDE", "all_direct", "scan", "sum_by_label"]

#: How centers are laid out: one half-width vector, one vector, panels of one, panels of two.
NARROW, WIDE, PANELS, PAIRS = range(4)


@njit(nogil=True, cache=True)
def _gather_row(x: Any, i: Any, shift: Any, active: Any, packed: Any, t: Any) -> None:
    """As ``pack_row``, for some of the features only."""
    for j in range(active.size):
        packed[t, j] = x[i, active[j]] - shift[active[j]]


@njit(nogil=True, cache=True)
def _score_tile(
    rows: Any,
    first: Any,
    m: Any,
    panels: Any,
    consts: Any,
    tail: Any,
    tail_consts: Any,
    variant: Any,
    best: Any,
    second: Any,
    index: Any,
    lows: Any,
    next_lows: Any,
    nearests: Any,
) -> None:
    """Smallest and second smallest score, and nearest center, of a tile's rows.

    Rows are taken ROWS at a time: those beyond m are scored, too, for nothing.
    """
    if variant == NARROW:
        for t in range(0, m, ROWS):
            few_narrow(rows, first + t, panels, consts, lows, next_lows, nearests, t)
    elif variant == WIDE:
        for t in range(0, m, ROWS):
            few_wide(rows, first + t, panels, consts, lows, next_lows, nearests, t)
    else:
        for panel in range(panels.shape[0]):
            if variant == PANELS:
                for t in range(0, m, ROWS):
                    score_wide(rows, first + t, panels, consts, panel, best, second, index, t)
            else:
                for t in range(0, m, ROWS):
                    score_pair(rows, first + t, panels, consts, panel, best, second, index, t)
        if tail_consts.size:
            vectors = consts.size // best.shape[1]
            for t in range(0, m, ROWS):
                score_tail(rows, first + t, tail, tail_consts, vectors, best, second, index, t)
        for t in range(m):
            lows[t], next_lows[t], nearests[t] = nearest_in_row(  # type: ignore[call-arg]
                best, second, index, t
            )


@njit(nogil=True, cache=True)
def _distance(x: Any, i: Any, centers: Any, c: Any, weights: Any, uniform: Any) -> float:
    """Squared distance of a row to a center by direct differences."""
    if uniform:
        return row_distance(x, i, centers, c, weights, 1.0, centers)
    return row_distance_weighted(x, i, centers, c, weights, 1.0, centers)


@njit(nogil=True, cache=True)
def _ask(x: Any, i: Any, lines: Any) -> None:
    """Ask for a row of memory, so that it is there when it is scored.

    Scoring a row takes long enough for the machine to stop reading ahead by
    itself; a row of the next tile at each row of this one keeps it reading.
    """
    for line in range(lines):
        prefetch(x, i, line)  # type: ignore[call-arg]


@njit(nogil=True, cache=True)
def _measure_tile(
    x: Any,
    start: Any,
    m: Any,
    lines: Any,
    centers: Any,
    weights: Any,
    uniform: Any,
    nearests: Any,
    squared: Any,
) -> None:
    """Squared distances of a tile's rows to their centers."""
    if uniform:
        for t in range(m):
            _ask(x, start + m + t, lines)
            squared[t] = row_distance(
                x, start + t, centers, np.intp(nearests[t]), weights, 1.0, centers
            )
    else:
        for t in range(m):
            _ask(x, start + m + t, lines)
            squared[t] = row_distance_weighted(
                x, start + t, centers, np.intp(nearests[t]), weights, 1.0, centers
            )


@njit(nogil=True, cache=True)
def _add_tile(
    x: Any,
    start: Any,
    m: Any,
    lines: Any,
    centers: Any,
    weights: Any,
    uniform: Any,
    nearests: Any,
    scales: Any,
    sums: Any,
    squared: Any,
) -> None:
    """Add a tile's rows to their clusters' sums, and measure them in the same sweep."""
    if uniform:
        for t in range(m):
            _ask(x, start + m + t, lines)
            squared[t] = add_row(
                x, start + t, centers, np.intp(nearests[t]), weights, scales[t], sums
            )
    else:
        for t in range(m):
            _ask(x, start + m + t, lines)
            squared[t] = add_row_weighted(
                x, start + t, centers, np.intp(nearests[t]), weights, scales[t], sums
            )


@njit(nogil=True, cache=True)
def _exact_nearest(x: Any, i: Any, centers: Any, weights: Any, uniform: Any) -> int:
    """Nearest center by direct differences, ties to the lowest."""
    nearest_distance = np.inf
    label = 0
    for c in range(centers.shape[0]):
        d = _distance(x, i, centers, c, weights, uniform)
        if d < nearest_distance:
            nearest_distance = d
            label = c
    return label


@njit(nogil=True, cache=True)
def _doubt(squared: Any, low: Any, bound: Any) -> None:
    """Gap of two scores below which rounding may have swapped them.

    In the precision of the scores, so that it overflows no later than they do.
    """
    return bound * (type(low)(9) * type(low)(squared) - type(low)(5) * low)


@njit(nogil=True, cache=True)
def _rounding(consts: Any, tail_consts: Any, k: Any, q: Any) -> None:
    """Relative error of scores of q features; infinite where those of centers may overflow."""
    width = consts.shape[1]
    limit = np.finfo(consts.dtype).max / 16
    for c in range(k):
        # A score's terms are at most |x|^2 + |c|^2, and |x|^2 is bounded by the doubt.
        norm = consts[c // width, c % width] if c < consts.size else tail_consts[c - consts.size]
        if not norm < limit:
            return consts.dtype.type(np.inf)
    return consts.dtype.type((q + 8) * np.finfo(consts.dtype).eps)


@njit(nogil=True, cache=True)
def _any_doubtful(lows: Any, next_lows: Any, squared: Any, m: Any, bound: Any) -> bool:
    """Whether rounding may have swapped a row's two nearest centers, in any row of a tile.

    |x|^2 of the shifted row is its squared distance minus its score; the bound
    follows from |c| <= |x| + |x - c|.
    """
    doubtful = False
    for t in range(m):
        # `not >`: what overflowed is doubtful, too.
        doubtful |= not (next_lows[t] - lows[t] > _doubt(squared[t], lows[t], bound))
    return doubtful


@njit(nogil=True, cache=True)
def _settle(
    x: Any,
    start: Any,
    m: Any,
    centers: Any,
    weights: Any,
    uniform: Any,
    lows: Any,
    next_lows: Any,
    bound: Any,
    want_stats: Any,
    tile_weights: Any,
    nearests: Any,
    squared: Any,
    sums: Any,
) -> None:
    """Decide the doubtful rows of a tile by direct differences, and move their sums."""
    for t in range(m):
        if next_lows[t] - lows[t] > _doubt(squared[t], lows[t], bound):
            continue
        i = start + t
        label = np.intp(nearests[t])
        exact = _exact_nearest(x, i, centers, weights, uniform)
        if exact != label:
            if want_stats:
                for j in range(sums.shape[1]):
                    v = tile_weights[t] * np.float64(x[i, j])
                    sums[label, j] -= v
                    sums[exact, j] += v
            nearests[t] = exact
            squared[t] = _distance(x, i, centers, exact, weights, uniform)


@njit(nogil=True, cache=True)
def _flush(hi: Any, lo: Any, sums: Any, totals: Any) -> None:
    """Add a segment's plain sums to the compensated totals, and start the next at 0."""
    p = sums.shape[1]
    for c in range(sums.shape[0]):
        if totals[c, 0] != 0.0:
            add_plain(hi[c, :p], lo[c, :p], sums[c])
            add_plain(hi[c, p:], lo[c, p:], totals[c])
        sums[c] = 0.0
        totals[c] = 0.0


@njit(nogil=True, cache=True)
def scan(
    x: Any,
    row_weights: Any,
    weighted: Any,
    centers: Any,
    feature_weights: Any,
    uniform: Any,
    panels: Any,
    consts: Any,
    tail: Any,
    tail_consts: Any,
    variant: Any,
    lanes: Any,
    shift: Any,
    active: Any,
    in_place: Any,
    tile: Any,
    ends: Any,
    want_stats: Any,
    hi: Any,
    lo: Any,
    want_rows: Any,
    labels: Any,
    distances: Any,
) -> None:
    """One sweep over a block; see :func:`accumulate` and :func:`nearest`."""
    n, p = x.shape
    k = centers.shape[0]
    q = panels.shape[1]
    whole = q == p
    dtype = x.dtype
    packed = np.zeros((tile, q), dtype)
    best = np.empty((tile, lanes), dtype)
    second = np.empty((tile, lanes), dtype)
    index = np.empty((tile, lanes), np.int32)
    lows = np.empty(tile, dtype)
    next_lows = np.empty(tile, dtype)
    nearests = np.empty(tile, np.int32)
    squared = np.empty(tile)
    tile_weights = np.ones(tile)
    sums = np.zeros((k if want_stats else 0, p))
    totals = np.zeros((k if want_stats else 0, 2))
    # A copy reads ahead by itself.
    lines = -(-p * x.itemsize // LINE_BYTES) if in_place else 0
    bound = _rounding(consts, tail_consts, k, q)

    start = 0
    segment = 0
    while start < n:
        # A tile never crosses the end of a segment.
        m = min(tile, ends[segment] - start)
        if in_place and start + m + ROWS <= n:
            _score_tile(
                x,
                start,
                m,
                panels,
                consts,
                tail,
                tail_consts,
                variant,
                best,
                second,
                index,
                lows,
                next_lows,
                nearests,
            )
        else:
            for t in range(m):
                if whole:
                    pack_row(x, start + t, shift, packed, t)  # type: ignore[call-arg]
                else:
                    _gather_row(x, start + t, shift, active, packed, t)
            _score_tile(
                packed,
                0,
                m,
                panels,
                consts,
                tail,
                tail_consts,
                variant,
                best,
                second,
                index,
                lows,
                next_lows,
                nearests,
            )
        if weighted:
            for t in range(m):
                tile_weights[t] = row_weights[start + t]
        if want_stats:
            _add_tile(
                x,
                start,
                m,
                lines,
                centers,
                feature_weights,
                uniform,
                nearests,
                tile_weights,
                sums,
                squared,
            )
        else:
            _measure_tile(x, start, m, lines, centers, feature_weights, uniform, nearests, squared)
        if k > 1 and _any_doubtful(lows, next_lows, squared, m, bound):
            _settle(
                x,
                start,
                m,
                centers,
                feature_weights,
                uniform,
                lows,
                next_lows,
                bound,
                want_stats,
                tile_weights,
                nearests,
                squared,
                sums,
            )
        if want_stats:
            for t in range(m):
                label = np.intp(nearests[t])
                totals[label, 0] += tile_weights[t]
                totals[label, 1] += tile_weights[t] * squared[t]
        if want_rows:
            for t in range(m):
                labels[start + t] = nearests[t]
                distances[start + t] = squared[t]
        start += m
        if start == ends[segment]:
            segment += 1
            if want_stats:
                _flush(hi, lo, sums, totals)


@njit(nogil=True, cache=True)
def all_direct(x: Any, centers: Any, weights: Any, uniform: Any, out: Any) -> None:
    for i in range(x.shape[0]):
        for c in range(centers.shape[0]):
            if uniform:
                out[i, c] = row_distance(x, i, centers, c, weights, 1.0, centers)
            else:
                out[i, c] = row_distance_weighted(x, i, centers, c, weights, 1.0, centers)


@njit(nogil=True, cache=True)
def sum_by_label(x: Any, weights: Any, labels: Any, sums: Any) -> None:
    """Add each row, times its weight, to the sums of its label."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            sums[labels[i], j] += weights[i] * np.float64(x[i, j])
