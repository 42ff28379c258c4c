"""Loops over the rows of a block that score only rows whose bounds do not decide them.

The arithmetic of a row, and its order, are those of :mod:`daskclust.kernels.nearest._tiles`: rows
that are scored go through the same register tiles, gathered; all rows are summed in row order.

Imports the loops of the plain pass; others import from
:mod:`daskclust.kernels.nearest.bounds`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust.kernels.compiling import compiled, inner
from daskclust.kernels.nearest._bound_rows import (
    highest_below,
    keep_below,
    least,
    lowest_bit,
    n_below,
    near_gaps,
)
from daskclust.kernels.nearest._bound_state import LARGEST, NEAR, Past, RowState
from daskclust.kernels.nearest._layout import Layout, lay_out, tile_rows
from daskclust.kernels.nearest._row_loops import LINE_BYTES, pack_row, prefetch, row_distance
from daskclust.kernels.nearest._segments import flush
from daskclust.kernels.nearest._tiles import (
    add_tile,
    any_doubtful,
    make_room,
    rounding,
    score_tile,
    settle,
    with_weights,
)

# Past what single precision rounds.
_UP, _DOWN = 1.0 + 2.0**-22, 1.0 - 2.0**-22

__all__ = ["bounded_scan"]

Float = NDArray[np.float64]


# Bytes of the rows that are decided together, so that those to be scored fill tiles.
_WINDOW_BYTES = 2**17
# Rows between that which is asked for and that which is looked at.
_AHEAD = 16


@inner(counted=False)
def _reach(squared: Any, norm: Any, bound: Any, floor: Any, limit: Any) -> float:
    """Distance beyond which a center can neither be nearest nor look so.

    ``squared`` is the squared distance to another center, whose squared norm is ``norm``, both
    relative to the shift.  Let B be ``bound``, X the squared norm of the row, and d the distance
    to a center c.  A score is off by at most B/2 (|c|^2 + 2 |x| |c|), since B is twice what q + 4
    roundings of half a unit can do; with |c| <= |x| + d that is at most B/2 (5 X + 3 d^2).  So
    the scores of the two centers are in the order of their distances where

        d^2 - squared > B/2 (10 X + 3 d^2 + 3 squared),

    for any center farther away, too, as the left side grows faster.  X <= 2 norm + 2 squared.
    What the constants have beyond that is for the roundings of float64; ``floor`` is for what
    products lose that are too small for the precision of the rows.
    """
    if not norm + squared < limit:
        # Scores may overflow; so may squares of no number.
        return np.inf
    share = 1.0 - 2.0 * bound
    if not share > 0.0:
        return np.inf
    return np.sqrt((squared * (1.0 + 12.0 * bound) + 10.0 * bound * norm + floor) / share)


@inner(counted=False)
def _round_up(value: Any) -> Any:
    """Return a float32 that is no less than a non-negative float64."""
    return np.float32(min(value, LARGEST) * (1.0 + 2.0**-22) + 1e-37)


@inner(counted=False)
def _round_down(value: Any) -> Any:
    """Return a float32 that is no more than the root of a float64; 0 for what has none."""
    if value > 1e-72:
        return np.float32(min(np.sqrt(value), LARGEST) * (1.0 - 2.0**-22))
    return np.float32(0.0)


@inner(counted=False)
def _decide(
    x: Any,
    start: Any,
    m: Any,
    lines: Any,
    points: Any,
    norms: Any,
    past: Any,
    rows: Any,
    bound: Any,
    floor: Any,
    limit: Any,
    most: Any,
    nearest: Any,
    work: Any,
) -> None:
    """Find the nearest centers of m rows by their bounds; -1 where these do not tell."""
    first, moved, movers = past
    labels, uppers, scored, near, near_low, rest_low = rows
    n_passes = moved.shape[0]
    n_movers, top = movers.shape[1], np.intp(0)
    for t in range(m):
        i = start + t
        for line in range(lines):
            prefetch(x, i + _AHEAD, line)  # type: ignore[call-arg]
        nearest[t] = -1
        at = np.intp(scored[i] - first)
        if at < 0 or at >= n_passes:
            continue
        label = np.intp(labels[i])
        rest = np.float64(rest_low[i])

        # First without looking at the row.
        upper = np.float64(uppers[i]) + np.float64(moved[n_passes - 1, label])
        reach = _reach(upper * upper, norms[label], bound, floor, limit)
        gap, _ = near_gaps(near, near_low, i, moved, at, label, reach)
        lowest = min(np.float64(gap) * _DOWN, rest - np.float64(moved[at, movers[at, 0]]))
        if lowest > reach:
            nearest[t] = label
            continue

        # Then by its distance, and by those to the centers that the bounds leave.
        squared = row_distance(x, i, points, label, points[0], 1.0, points)
        work[1] += 1
        reach = _reach(squared, norms[label], bound, floor, limit)
        if lowest > reach:
            nearest[t] = label
            continue
        _, bits = near_gaps(near, near_low, i, moved, at, label, min(reach, LARGEST) * _UP)
        last = top
        while last < n_movers and not rest - np.float64(moved[at, movers[at, last]]) > reach:
            last += 1
        if last > most:
            continue

        # Of centers that are not nearest: none that was not measured is nearer than `reach`.
        runner_up = np.inf
        found, least_squared = label, squared
        left, u = most - last, top
        while u < last or (bits != 0 and left > 0):
            if u < last:
                c = np.intp(movers[at, u])
                u += 1
            else:
                c = np.intp(near[i, lowest_bit(bits)])
                bits &= bits - 1
                left -= 1
            # One of the movers may be near, too: equal then, and not counted.
            if c == found or c == label:
                continue
            work[1] += 1
            d = row_distance(x, i, points, c, points[0], 1.0, points)
            if d < least_squared:
                runner_up, least_squared, found = least_squared, d, c
            elif d < runner_up:
                runner_up = d
        if bits == 0 and min(np.sqrt(runner_up), reach * _UP) > _reach(
            least_squared, norms[found], bound, floor, limit
        ):
            nearest[t] = found


@inner(counted=False)
def _note(
    x: Any,
    first: Any,
    waiting: Any,
    count: Any,
    number: Any,
    lanes: Any,
    scores: Any,
    points: Any,
    norms: Any,
    bound: Any,
    floor: Any,
    limit: Any,
    rows: Any,
) -> None:
    """Keep what the scores of some rows tell: near centers, and how far all others are.

    With the error of scores as in :func:`_reach`, the squared distance y to a center whose
    score is ``gap`` above the smallest, at ``squared``, obeys

        y (1 + 3/2 B) >= squared (1 - 3/2 B) + gap - 5 B X.

    A lane knows its best center and the score of its second: what is beyond the least second
    of all lanes is the rest, and so are the best of lanes that there is no room for.
    """
    scored, near, near_low, rest_low = rows[2:]
    best, second, vector, lows, next_lows, nearest = scores[:6]
    for w in range(count):
        r = first + waiting[w]
        center = np.intp(nearest[w])
        squared = row_distance(x, r, points, center, points[0], 1.0, points)
        norm = norms[center]
        scored[r] = -1
        if not norm + squared < limit:
            # Scores may have overflowed.
            continue
        scored[r] = number
        low = np.float64(lows[w])
        base = squared * (1.0 - 2.0 * bound) - 10.0 * bound * (norm + squared) - floor - low
        shrink = 1.0 / (1.0 + 2.0 * bound)
        if lanes > 0:
            rest = least(second, w)
            while n_below(best, w, rest) > NEAR:
                rest = highest_below(best, w, rest)
            keep_below(best, vector, w, rest, base, shrink, near, near_low, r)
        else:
            rest = next_lows[w]
            near[r] = center
            near_low[r] = _round_down((base + low) * shrink)
        rest_low[r] = _round_down((base + np.float64(rest)) * shrink)


@compiled(counted=False)
def _scan(
    x: Any,
    row_weights: Any,
    centers: Any,
    norms: Any,
    layout: Any,
    ends: Any,
    stats: Any,
    number: Any,
    past: Any,
    rows: Any,
    most: Any,
    packed: Any,
    tile: Any,
    scores: Any,
    window: Any,
    sums: Any,
    totals: Any,
    work: Any,
) -> None:
    """Go over the windows of a block; :func:`bounded_scan` has the parameters, and the room."""
    n, p = x.shape
    points = centers.points
    k = points.shape[0]
    hi, lo = stats
    weighted = row_weights.size > 0
    size = packed.shape[0]
    labels, lows, next_lows, waiting = window
    lanes = scores.best.shape[1] if scores.best.shape[0] else 0
    lines = -(-p * x.itemsize // LINE_BYTES)
    bound = rounding(layout, k)
    slack = np.float64(bound)
    floor = 64.0 * (p + 8) * np.float64(np.finfo(x.dtype).tiny)
    limit = min(np.float64(np.finfo(x.dtype).max), 1e70) / 128

    top = np.intp(0)
    start = top
    segment = 0
    while start < n:
        # Whole tiles, so that these are those of the plain pass.
        m = min(np.intp(labels.size), ends[segment] - start)
        _decide(
            x, start, m, lines, points, norms, past, rows, slack, floor, limit, most, labels, work
        )
        count = 0
        for t in range(m):
            lows[t], next_lows[t] = 0, np.inf
            if labels[t] < 0:
                waiting[count] = t
                count += 1
        work[0] += count
        for at in range(0, count, size):
            some = min(size, count - at)
            for w in range(some):
                pack_row(x, start + waiting[at + w], layout.shift, packed, w)  # type: ignore[call-arg]
            score_tile(packed, top, some, layout, scores)
            for w in range(some):
                t = waiting[at + w]
                labels[t] = scores.nearest[w]
                lows[t], next_lows[t] = scores.low[w], scores.next_low[w]
            _note(
                x,
                start,
                waiting[at:],
                some,
                number,
                lanes,
                scores,
                points,
                norms,
                slack,
                floor,
                limit,
                rows,
            )
        for first in range(0, m, size):
            some = min(size, m - first)
            row = start + first
            for t in range(some):
                tile.nearest[t] = labels[first + t]
                tile.low[t], tile.next_low[t] = lows[first + t], next_lows[first + t]
                tile.weight[t] = row_weights[row + t] if weighted else 1.0
            add_tile(x, row, some, top, centers, tile, sums)
            if count and any_doubtful(tile, some, bound):
                settle(x, row, some, centers, tile, bound, sums)
            for t in range(some):
                label = np.intp(tile.nearest[t])
                squared = tile.squared[t]
                totals[label, 0] += tile.weight[t]
                totals[label, 1] += tile.weight[t] * squared
                rows.label[row + t] = label
                rows.upper[row + t] = _round_up(np.sqrt(squared))
        start += m
        if start == ends[segment]:
            segment += 1
            flush(hi, lo, sums, totals)


class _Window(NamedTuple):
    """Rows that are decided together: nearest center, two lowest scores, and who waits."""

    nearest: NDArray[np.int32]
    low: NDArray[Any]
    next_low: NDArray[Any]
    waiting: NDArray[np.int64]


def _window(x: NDArray[Any], size: int) -> _Window:
    """Make room for as many rows as stay in the second-level cache, in whole tiles."""
    rows = max(1, _WINDOW_BYTES // (max(1, x.shape[1]) * x.itemsize * size)) * size
    rows = min(rows, 32 * size)
    return _Window(
        np.empty(rows, np.int32),
        np.empty(rows, x.dtype),
        np.empty(rows, x.dtype),
        np.empty(rows, np.int64),
    )


def bounded_scan(
    x: NDArray[Any],
    row_weights: Float,
    centers: Float,
    shift: Float | None,
    ends: NDArray[np.int64],
    stats: Any,
    number: int,
    past: Past,
    rows: RowState,
    most: int,
) -> tuple[int, int]:
    """One sweep over a block that scores only the rows whose bounds do not decide them.

    Parameters
    ----------
    x, row_weights, centers, shift, ends, stats
        As of :func:`daskclust.kernels.nearest._tiles.scan`.
    number : int
        Of this pass.
    past : Past
        Of these centers.
    rows : RowState
        Of these rows; brought up to date.
    most : int
        Centers that a row is measured against instead of being scored.

    Returns
    -------
    n_scored, n_measured : int
        Rows that were scored against all centers, and single distances.
    """
    layout: Layout = lay_out(centers, None, shift, x.dtype)
    exact = with_weights(centers, None)
    size = tile_rows(x.shape[1], x.dtype.itemsize)
    packed = np.zeros((size, x.shape[1]), x.dtype)
    # What overflows makes rows be scored.
    with np.errstate(over="ignore"):
        norms = ((centers - layout.shift.astype(np.float64)) ** 2).sum(axis=1)
    work = np.zeros(2, np.int64)
    _scan(
        x,
        row_weights,
        exact,
        norms,
        layout,
        ends,
        tuple(stats),
        number,
        past,
        rows,
        most,
        packed,
        make_room(size, layout, x.dtype),
        make_room(size, layout, x.dtype),
        _window(x, size),
        np.zeros((len(centers), x.shape[1])),
        np.zeros((len(centers), 2)),
        work,
    )
    return int(work[0]), int(work[1])
