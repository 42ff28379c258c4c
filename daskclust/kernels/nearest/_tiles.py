"""Loops over the rows of a block, a tile of rows at a time; compiled around the emitted code.

A tile is scored against all centers while it is in the first-level cache, its
doubtful rows are settled exactly, and its rows are summed or measured.  Each
loop holds one kind of vector code: several in one loop cost LLVM its registers.
What runs for each tile is handed its arrays and counts no references to them.

Imports the emitted code; others import from
:mod:`daskclust.kernels.nearest.implementation`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Array, Floats, Ints
from daskclust.kernels.compensated import flush
from daskclust.kernels.compiling import compiled, inner
from daskclust.kernels.nearest._layout import (
    NARROW,
    PAIRS,
    PANELS,
    WIDE,
    Layout,
    lay_out,
    on_lines,
    place,
    tile_rows,
    whole_weights,
)
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
    lowest_in_rows,
    score_pair,
    score_tail,
    score_wide,
)


class _Centers(NamedTuple):
    """Centers (k, p) as they are, for exact distances; weights (p,) unless uniform."""

    points: Floats
    weights: Floats
    uniform: bool


class _Tile(NamedTuple):
    """What is known of the T rows of a tile.

    ``best``, ``second`` and ``vector`` of shape (T, lanes) are the running minima of
    each lane: smallest score, second smallest, vector number of the smallest.  The
    rest is by row: smallest score, second smallest, nearest center, squared
    distance to it, weight.
    """

    best: NDArray
    second: NDArray
    vector: NDArray[np.int32]
    low: NDArray
    next_low: NDArray
    nearest: NDArray[np.int32]
    squared: Floats
    weight: Floats


@inner(counted=False)
def _gather_row(x: Any, i: Any, shift: Any, active: Any, packed: Any, t: Any) -> None:
    """As ``pack_row``, for some of the features only."""
    for j in range(active.size):
        packed[t, j] = x[i, active[j]] - shift[active[j]]


@inner(counted=False)
def lowest_of_lanes(tile: Any, m: Any) -> None:
    """Reduce the running minima of a tile's rows to smallest scores and nearest centers."""
    best, second, vector, low, next_low, nearest = tile[:6]
    for t in range(0, m, ROWS):
        lowest_in_rows(best, second, vector, low, next_low, nearest, t)  # type: ignore[call-arg]


@inner(counted=False)
def keep_inside(tile: Any, m: Any, k: Any) -> None:
    """Give a row a center where scores overflowed, so that the padding won, which is infinite.

    Such rows are doubtful: :func:`settle` decides them.
    """
    nearest = tile.nearest
    for t in range(m):
        nearest[t] = nearest[t] if nearest[t] < k else 0


@inner(counted=False)
def add_totals(tile: Any, m: Any, totals: Any) -> None:
    """Add weights and squared distances of a tile's rows to those of their clusters."""
    nearest, squared, weight = tile.nearest, tile.squared, tile.weight
    for t in range(m):
        label = np.intp(nearest[t])
        totals[label, 0] += weight[t]
        totals[label, 1] += weight[t] * squared[t]


@inner(counted=False)
def score_tile(rows: Any, first: Any, m: Any, layout: Any, tile: Any) -> None:
    """Smallest and second smallest score, and nearest center, of a tile's rows.

    Rows are taken ROWS at a time: those beyond m are scored, too, for nothing.
    """
    panels, consts, tail, tail_consts, variant = layout[:5]
    best, second, vector, low, next_low, nearest = tile[:6]
    if variant == NARROW:
        for t in range(0, m, ROWS):
            few_narrow(rows, first + t, panels, consts, low, next_low, nearest, t)
    elif variant == WIDE:
        for t in range(0, m, ROWS):
            few_wide(rows, first + t, panels, consts, low, next_low, nearest, t)
    else:
        for panel in range(panels.shape[0]):
            if variant == PANELS:
                for t in range(0, m, ROWS):
                    score_wide(rows, first + t, panels, consts, panel, best, second, vector, t)
            else:
                for t in range(0, m, ROWS):
                    score_pair(rows, first + t, panels, consts, panel, best, second, vector, t)
        if tail_consts.size:
            vectors = consts.size // best.shape[1]
            for t in range(0, m, ROWS):
                score_tail(rows, first + t, tail, tail_consts, vectors, best, second, vector, t)
        lowest_of_lanes(tile, m)


@inner(counted=False)
def _distance(x: Any, i: Any, centers: Any, c: Any) -> float:
    """Squared distance of a row to a center by direct differences."""
    points, weights, uniform = centers
    if uniform:
        return row_distance(x, i, points, c, weights, 1.0, points)
    return row_distance_weighted(x, i, points, c, weights, 1.0, points)


@inner(counted=False)
def ask(x: Any, i: Any, lines: Any) -> None:
    """Ask for a row of memory, so that it is there when it is scored.

    Scoring a row takes long enough for the machine to stop reading ahead by
    itself; a row of the next tile at each row of this one keeps it reading.
    """
    for line in range(lines):
        prefetch(x, i, line)  # type: ignore[call-arg]


@inner(counted=False)
def _measure_tile(x: Any, start: Any, m: Any, lines: Any, centers: Any, tile: Any) -> None:
    """Squared distances of a tile's rows to their centers."""
    points, weights, uniform = centers
    nearest, squared = tile.nearest, tile.squared
    if uniform:
        for t in range(m):
            ask(x, start + m + t, lines)
            c = np.intp(nearest[t])
            squared[t] = row_distance(x, start + t, points, c, weights, 1.0, points)
    else:
        for t in range(m):
            ask(x, start + m + t, lines)
            c = np.intp(nearest[t])
            squared[t] = row_distance_weighted(x, start + t, points, c, weights, 1.0, points)


@inner(counted=False)
def add_tile(x: Any, start: Any, m: Any, lines: Any, centers: Any, tile: Any, sums: Any) -> None:
    """Add a tile's rows to their clusters' sums, and measure them in the same sweep."""
    points, weights, uniform = centers
    nearest, squared, scales = tile.nearest, tile.squared, tile.weight
    if uniform:
        for t in range(m):
            ask(x, start + m + t, lines)
            c = np.intp(nearest[t])
            squared[t] = add_row(x, start + t, points, c, weights, scales[t], sums)
    else:
        for t in range(m):
            ask(x, start + m + t, lines)
            c = np.intp(nearest[t])
            squared[t] = add_row_weighted(x, start + t, points, c, weights, scales[t], sums)


@inner(counted=False)
def exact_nearest(x: Any, i: Any, centers: Any) -> int:
    """Nearest center by direct differences, ties to the lowest."""
    least = np.inf
    label = 0
    for c in range(centers.points.shape[0]):
        d = _distance(x, i, centers, c)
        if d < least:
            least = d
            label = c
    return label


@inner(counted=False)
def doubt(squared: Any, low: Any, bound: Any) -> Any:
    """Gap of two scores below which rounding may have swapped them.

    In the precision of the scores, so that it overflows no later than they do.
    """
    return bound * (type(low)(9) * type(low)(squared) - type(low)(5) * low)


@inner(counted=False)
def rounding(layout: Any, k: Any) -> Any:
    """Relative error of a score; infinite where the scores of centers may overflow."""
    consts, tail_consts = layout.consts, layout.tail_consts
    width = consts.shape[1]
    limit = np.finfo(consts.dtype).max / 16
    for c in range(k):
        # A score's terms are at most |x|^2 + |c|^2, and |x|^2 is bounded by the doubt.
        norm = consts[c // width, c % width] if c < consts.size else tail_consts[c - consts.size]
        if not norm < limit:
            return consts.dtype.type(np.inf)
    q = layout.panels.shape[1]
    return consts.dtype.type((q + 8) * np.finfo(consts.dtype).eps)


@inner(counted=False)
def any_doubtful(tile: Any, m: Any, bound: Any) -> bool:
    """Whether rounding may have swapped a row's two nearest centers, in any row of a tile.

    |x|^2 of the shifted row is its squared distance minus its score; the bound
    follows from |c| <= |x| + |x - c|.
    """
    low, next_low, squared = tile.low, tile.next_low, tile.squared
    doubtful = False
    for t in range(m):
        # `not >`: what overflowed is doubtful, too.
        doubtful |= not (next_low[t] - low[t] > doubt(squared[t], low[t], bound))
    return doubtful


@inner(counted=False)
def move_row(x: Any, i: Any, t: Any, exact: Any, centers: Any, tile: Any, sums: Any) -> None:
    """Give row t of a tile its exact nearest center, and move its sums there."""
    label = np.intp(tile.nearest[t])
    if exact != label:
        if sums.size:
            for j in range(sums.shape[1]):
                v = tile.weight[t] * np.float64(x[i, j])
                sums[label, j] -= v
                sums[exact, j] += v
        tile.nearest[t] = exact
        tile.squared[t] = _distance(x, i, centers, exact)


@inner(counted=False)
def settle(x: Any, start: Any, m: Any, centers: Any, tile: Any, bound: Any, sums: Any) -> None:
    """Decide the doubtful rows of a tile by direct differences, and move their sums."""
    low, next_low, squared = tile.low, tile.next_low, tile.squared
    for t in range(m):
        if next_low[t] - low[t] > doubt(squared[t], low[t], bound):
            continue
        i = start + t
        move_row(x, i, t, exact_nearest(x, i, centers), centers, tile, sums)


@compiled(counted=False)
def _scan(
    x: Any,
    row_weights: Any,
    centers: Any,
    layout: Any,
    ends: Any,
    stats: Any,
    labels: Any,
    distances: Any,
    packed: Any,
    tile: Any,
    sums: Any,
    totals: Any,
) -> None:
    """Go over the tiles of a block; :func:`scan` has the parameters, and makes the room."""
    n, p = x.shape
    k = centers.points.shape[0]
    hi, lo = stats
    weighted, want_stats, want_rows = row_weights.size > 0, hi.size > 0, labels.size > 0
    shift, active, in_place = layout.shift, layout.active, layout.in_place
    size, q = packed.shape
    nearest, squared, weight = tile.nearest, tile.squared, tile.weight
    # A copy reads ahead by itself.
    lines = -(-p * x.itemsize // LINE_BYTES) if in_place else 0
    bound = rounding(layout, k)

    # Not literal zeros, for which Numba would compile what they are handed to once more.
    top = np.intp(0)
    start = top
    segment = 0
    while start < n:
        # A tile never crosses the end of a segment.
        m = min(size, ends[segment] - start)
        if in_place and start + m + ROWS <= n:
            score_tile(x, start, m, layout, tile)
        else:
            for t in range(m):
                if q == p:
                    pack_row(x, start + t, shift, packed, t)  # type: ignore[call-arg]
                else:
                    _gather_row(x, start + t, shift, active, packed, t)
            score_tile(packed, top, m, layout, tile)
        keep_inside(tile, m, k)
        if weighted:
            for t in range(m):
                weight[t] = row_weights[start + t]
        if want_stats:
            add_tile(x, start, m, lines, centers, tile, sums)
        else:
            _measure_tile(x, start, m, lines, centers, tile)
        if k > 1 and any_doubtful(tile, m, bound):
            settle(x, start, m, centers, tile, bound, sums)
        if want_stats:
            add_totals(tile, m, totals)
        if want_rows:
            for t in range(m):
                labels[start + t] = nearest[t]
                distances[start + t] = squared[t]
        start += m
        if start == ends[segment]:
            segment += 1
            if want_stats:
                flush(hi, lo, sums, totals)


@compiled()
def _all_direct(x: Any, points: Any, weights: Any, uniform: Any, out: Any) -> None:
    # Not by `_distance`: a call for each pair takes as long as a short row.
    for i in range(x.shape[0]):
        for c in range(points.shape[0]):
            if uniform:
                out[i, c] = row_distance(x, i, points, c, weights, 1.0, points)
            else:
                out[i, c] = row_distance_weighted(x, i, points, c, weights, 1.0, points)


def with_weights(centers: Floats, feature_weights: Floats | None) -> _Centers:
    return _Centers(centers, whole_weights(feature_weights), feature_weights is None)


def make_room(size: int, layout: Layout, dtype: np.dtype[Any]) -> _Tile:
    """Make room for a tile.  Made here: in compiled code it takes a second more to compile."""
    # Centers that fit one vector have no running minima.
    panels = layout.variant in (PANELS, PAIRS)
    make, shape = (on_lines, (size, layout.lanes)) if panels else (np.empty, (0, layout.lanes))
    return _Tile(
        make(shape, dtype),
        make(shape, dtype),
        make(shape, np.int32),
        np.empty(size, dtype),
        np.empty(size, dtype),
        np.empty(size, np.int32),
        np.empty(size),
        np.ones(size),
    )


def scan(
    x: Array,
    row_weights: Floats,
    centers: Floats,
    feature_weights: Floats | None,
    shift: Floats | None,
    ends: Ints,
    stats: Any,
    labels: NDArray[np.int32],
    distances: Floats,
) -> None:
    """One sweep over a block: labels, distances and sums, as far as there is room for them.

    Parameters
    ----------
    x : ndarray of shape (n, p), float32 or float64, C-contiguous; n > 0
    row_weights : ndarray of shape (n,), or empty
    centers : ndarray of shape (k, p), float64, C-contiguous
    feature_weights : ndarray of shape (p,), optional
    shift : ndarray of shape (p,), optional
    ends : ndarray of int64
        Ends of the segments; the last is n.
    stats : pair of ndarray of shape (k, p + 2), or both empty
        Receive the sums.
    labels, distances : ndarray of shape (n,), or both empty
        Receive the nearest center of each row and the squared distance to it.
    """
    layout: Layout = lay_out(centers, feature_weights, shift, x.dtype)
    exact = with_weights(centers, feature_weights)
    room = _scan_room(layout, x, len(centers) if stats[0].size else 0)
    _scan(x, row_weights, exact, layout, ends, tuple(stats), labels, distances, *room)


def _scan_room(layout: Layout, x: Array, k: int) -> tuple[NDArray, _Tile, Floats, Floats]:
    """Make room for the work on a tile, and for the sums of k clusters."""
    size, q = tile_rows(layout.active.size, x.dtype.itemsize), layout.active.size
    packed, tile = np.zeros((size, q), x.dtype), make_room(size, layout, x.dtype)
    return packed, tile, np.zeros((k, x.shape[1])), np.zeros((k, 2))


def sweeps(
    x: Array, row_weights: Floats, centers: Floats, shift: Floats, stats: Any
) -> Callable[[], None]:
    """Return a function that fills the sums for what ``centers`` hold when it is called.

    For a few rows, where to make room takes longer than a sweep; the parameters of
    :func:`scan`, of which all are held.
    """
    layout, exact = lay_out(centers, None, shift, x.dtype), with_weights(centers, None)
    room = _scan_room(layout, x, len(centers))
    ends, labels, distances = np.array([len(x)]), np.empty(0, np.int32), np.empty(0)
    stats = tuple(stats)

    def sweep() -> None:
        place(centers, exact.weights, layout)
        for part in stats:
            part.fill(0.0)
        _scan(x, row_weights, exact, layout, ends, stats, labels, distances, *room)

    return sweep


def all_direct(x: Array, centers: Floats, feature_weights: Floats | None, out: Floats) -> None:
    """Fill ``out`` with the squared distances of all rows to all centers."""
    _all_direct(x, *with_weights(centers, feature_weights), out)
