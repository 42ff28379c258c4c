"""Whether the cluster of a row can have changed, and what its scores tell for later passes.

Imports the emitted steps of bounds and of rows; the loops over blocks are in
:mod:`daskclust.kernels.nearest._bounded_tiles`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Array, Floats, Ints
from daskclust.kernels.compiling import inner
from daskclust.kernels.nearest._bound_rows import (
    gather_scores,
    highest_below,
    keep_below,
    keep_lows,
    least,
    least_gap,
    lowest_beside,
    n_below,
    two_lowest,
)
from daskclust.kernels.nearest._bound_state import LARGEST, NEAR
from daskclust.kernels.nearest._row_loops import prefetch

__all__ = ["AHEAD", "Nearby", "Rounding", "Window", "ask_bounds", "ask_near", "note"]

# Past what single precision rounds.
_DOWN = 1.0 - 2.0**-22


#: Rows between that which is asked for and that which is looked at.
AHEAD = 8


class Rounding(NamedTuple):
    """What scores of rows may be off by: relative error, floor, and where they may overflow.

    ``shrink`` and ``grow`` are a little less than ``1 / (1 + 2 bound)`` and a little more than
    ``1 / (1 - 2 bound)``: that of a squared distance.
    """

    bound: float
    floor: float
    limit: float
    shrink: float
    grow: float


class Nearby(NamedTuple):
    """Centers a row each: ``-2 c`` of the shifted ones, their squared norms, and room."""

    doubled: Array
    consts: Array
    norms: Floats
    shift: Array
    scores: Array


class Window(NamedTuple):
    """Rows of a segment: clusters as scored and as decided, and who waits."""

    first: NDArray[np.int32]
    final: NDArray[np.int32]
    waiting: Ints


@inner(counted=False)
def _beyond(squared: Any, norm: Any, off: Any) -> float:
    """Squared distance beyond which a center can neither be nearest nor look so.

    ``squared`` is the squared distance to another center, whose squared norm is ``norm``, both
    relative to the shift.  Let B be ``off.bound``, X the squared norm of the row, and d the
    distance to a center c.  A score is off by at most B/2 (|c|^2 + 2 |x| |c|), since B is twice
    what q + 4 roundings of half a unit can do; with |c| <= |x| + d that is at most
    B/2 (5 X + 3 d^2).  So the scores of the two centers are in the order of their distances where

        d^2 - squared > B/2 (10 X + 3 d^2 + 3 squared),

    for any center farther away, too, as the left side grows faster.  X <= 2 norm + 2 squared.
    What the constants have beyond that is for the roundings of float64; ``off.floor`` is for
    what products lose that are too small for the precision of the rows.
    """
    bound = off.bound
    # Beyond the limit scores may overflow; so may squares of no number.
    if not (norm + squared < off.limit and bound < 0.125):
        return np.inf
    return (squared * (1.0 + 12.0 * bound) + 10.0 * bound * norm + off.floor) * off.grow


@inner(counted=False)
def _round_up(value: Any) -> Any:
    """Return a float32 that is no less than a non-negative float64."""
    return np.float32(min(value, LARGEST) * (1.0 + 2.0**-22) + 1e-37)


@inner(counted=False)
def _round_down(value: Any) -> Any:
    """Return a float32 that is no more than a float64, and not negative."""
    if value > 1e-36:
        return np.float32(min(value, LARGEST) * (1.0 - 2.0**-22))
    return np.float32(0.0)


@inner(counted=False)
def _root_down(value: Any) -> Any:
    """Return a float32 that is no more than the root of a float64; 0 for what has none."""
    return _round_down(np.sqrt(value)) if value > 1e-72 else np.float32(0.0)


@inner(counted=False)
def ask_bounds(start: Any, m: Any, norms: Any, past: Any, rows: Any, off: Any, window: Any) -> Any:
    """Decide rows without looking at them; return how many wait."""
    first, moved, movers, renewed = past
    final, waiting = window.final, window.waiting
    n_passes = moved.shape[0]
    count = np.intp(0)
    for t in range(m):
        # What is not signed is not taken for an index from the end.
        i = np.uintp(start + t)
        at = np.intp(rows.decided[i] - first)
        if at >= renewed and at < n_passes:
            age, label = np.uintp(at), np.uintp(rows.label[i])
            upper = np.float64(rows.upper[i]) + np.float64(moved[age, label])
            farthest = np.uintp(movers[age, np.uintp(0)])
            lower = np.float64(rows.lower[i]) - np.float64(moved[age, farthest])
            if lower > 0.0 and lower * lower > _beyond(upper * upper, norms[label], off):
                final[np.uintp(t)] = np.int32(label)
                continue
        final[np.uintp(t)] = -1
        waiting[np.uintp(count)] = t
        count += 1
    return count


@inner(counted=False)
def ask_near(
    x: Any,
    start: Any,
    count: Any,
    number: Any,
    lines: Any,
    past: Any,
    nearby: Any,
    rows: Any,
    off: Any,
    window: Any,
    work: Any,
) -> Any:
    """Decide waiting rows by each near center's bound, or by its score; return how many still wait.

    Squared distances from scores in the precision of the rows: with s the score, X the squared
    norm, and B as of :func:`_beyond`, both rounded, |X + s - d^2| <= B (4 X + d^2).
    """
    first, moved, movers, renewed = past
    doubled, consts, norms, shift, scores = nearby
    final, waiting = window.final, window.waiting
    n_passes = moved.shape[0]
    bound = off.bound
    left, compared = np.intp(0), np.intp(0)
    for w in range(count):
        if w + AHEAD < count:
            ahead = start + waiting[np.uintp(w + AHEAD)]
            for line in range(lines):
                prefetch(x, ahead, line)  # type: ignore[call-arg]
        t = waiting[np.uintp(w)]
        i = np.uintp(start + t)
        at = np.intp(rows.scored[i] - first)
        waiting[np.uintp(left)] = t
        left += 1
        if at < 0 or at >= n_passes:
            continue
        age = np.uintp(at)
        rest = np.float64(rows.rest_low[i])
        still = rest - np.float64(moved[age, np.uintp(movers[age, np.uintp(0)])])

        # First without looking at the row.
        since = np.intp(rows.decided[i] - first)
        known = np.intp(rows.measured[i] - first)
        if since >= 0 and since < n_passes and known >= renewed and known < n_passes:
            label = np.uintp(rows.label[i])
            upper = np.float64(rows.upper[i]) + np.float64(moved[np.uintp(since), label])
            gap = least_gap(rows.near, rows.near_low, i, moved, known, np.intp(label))
            lowest = min(np.float64(gap) * _DOWN, still)
            if lowest > 0.0 and lowest * lowest > _beyond(upper * upper, norms[label], off):
                final[np.uintp(t)] = np.int32(label)
                left -= 1
                rows.upper[i] = _round_up(upper)
                rows.lower[i] = _round_down(lowest)
                rows.decided[i] = number
                if at < renewed:
                    rows.rest_low[i], rows.scored[i] = _round_down(still), number
                continue

        # Then by scores of the near centers, and of the movers if these leave the rest in doubt.
        compared += 1
        squares = np.float64(gather_scores(x, i, shift, doubled, consts, rows.near, i, scores))
        best, found, next_best = two_lowest(scores, rows.near, i)
        slack = 5.0 * bound * squares + off.floor
        base = squares - slack
        squared = max(squares + best + slack, 0.0) * off.grow
        if not squares < off.limit:
            continue
        beyond = _beyond(squared, norms[np.uintp(found)], off)
        lowest = (base + next_best) * off.shrink
        if not lowest > beyond:
            continue
        keep_lows(scores, base, off.shrink, rows.near_low, i)
        rows.measured[i] = number
        if not (still > 0.0 and still * still > beyond):
            still = rest - np.float64(moved[age, np.uintp(movers[age, np.uintp(NEAR)])])
            if not (still > 0.0 and still * still > beyond):
                continue
            compared += 1
            gather_scores(x, i, shift, doubled, consts, movers, age, scores)
            lowest = min(lowest, (base + lowest_beside(scores, movers, age, found)) * off.shrink)
            if not lowest > beyond:
                continue
        elif at < renewed:
            rows.rest_low[i], rows.scored[i] = _round_down(still), number
        final[np.uintp(t)] = np.int32(found)
        left -= 1
        rows.upper[i] = _round_up(np.sqrt(squared))
        rows.lower[i] = _round_down(min(np.sqrt(min(lowest, LARGEST * LARGEST)), still))
        rows.decided[i] = number
    work[1] += compared
    return left


@inner(counted=False)
def note(
    i: Any,
    w: Any,
    number: Any,
    lanes: Any,
    scores: Any,
    squared: Any,
    norm: Any,
    off: Any,
    rows: Any,
) -> None:
    """Keep what the scores of a row tell: near centers, and how far all others are.

    With the error of scores as in :func:`_beyond`, the squared distance y to a center whose
    score is ``gap`` above the smallest, at ``squared``, obeys

        y (1 + 3/2 B) >= squared (1 - 3/2 B) + gap - 5 B X.

    A lane knows its best center and the score of its second: what is beyond the least second
    of all lanes is the rest, and so are the best of lanes that there is no room for.
    """
    near, near_low = rows.near, rows.near_low
    best, second, vector = scores.best, scores.second, scores.vector
    center, bound = scores.nearest[w], off.bound
    rows.decided[i] = rows.measured[i] = rows.scored[i] = -1
    if not norm + squared < off.limit:
        # Scores may have overflowed.
        return
    low, next_low = np.float64(scores.low[w]), np.float64(scores.next_low[w])
    base = squared * (1.0 - 2.0 * bound) - 10.0 * bound * (norm + squared) - off.floor - low
    shrink = off.shrink
    rest = next_low
    if lanes > 0:
        limit = least(second, w)
        while n_below(best, w, limit) > NEAR:
            limit = highest_below(best, w, limit)
        keep_below(best, vector, w, limit, base, shrink, near, near_low, i)
        rest = np.float64(limit)
    else:
        for u in range(NEAR):
            near[i, u], near_low[i, u] = center, LARGEST
        near_low[i, 0] = _root_down((base + low) * shrink)
    rows.rest_low[i] = _root_down((base + rest) * shrink)
    rows.upper[i] = _round_up(np.sqrt(squared))
    rows.lower[i] = _root_down((base + next_low) * shrink)
    rows.decided[i] = rows.measured[i] = rows.scored[i] = number
