"""Nearest center of every row, of which most need not be looked for anew.

A pass leaves for each row its center and a bound: no other center is nearer than that.  In the
next pass the bound falls by how far centers moved.  But for those that moved most: they are
compared with the row again.  Where the bound is still above the distance to the row's own center,
which is measured, the row stays.  All other rows are compared with all centers.

Rounding is on the safe side: a row stays only where scores in the precision of the rows could
not have preferred another center.  So labels and sums equal those of
:func:`daskclust.kernels.nearest.assign.accumulate` to the last bit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Array, Floats, Ints
from daskclust.kernels.compensated import flush
from daskclust.kernels.compiling import PLAIN, compiled, inner
from daskclust.kernels.nearest._row_loops import LINE_BYTES, pack_row, row_distance
from daskclust.kernels.nearest._tiles import (
    add_tile,
    add_totals,
    choose_origin,
    doubt,
    exact_nearest,
    keep_inside,
    lay_out,
    make_tile,
    move_row,
    place,
    rounding,
    score_tile,
    tile_rows,
    with_weights,
)
from daskclust.kernels.nearest.assign import BlockStatistics, check_rows, no_statistics

#: Bytes of what is kept.
BYTES_A_ROW = 8
#: Plain kernels are for tests.
CAN_KEEP = not PLAIN
#: Share of the centers that are always compared.
_ALWAYS = 0.1
#: More than rounding takes of a number in single precision.
_ROUNDED = 2.0**-22


class Kept(NamedTuple):
    """What a pass leaves for the next: for each of n rows its center, and a bound.

    ``low`` is no larger than the distance to any other center; negative where nothing is known.
    """

    labels: NDArray[np.int32]
    low: NDArray[np.float32]


class Moves(NamedTuple):
    """What a pass needs to know of the moves of k centers since the pass before.

    ``movers`` are those that moved most, ``places`` (k,) the place of each center among them, -1
    for others; ``most`` is how far any of the others moved, or more.  Before rows are scored
    ``origin`` is subtracted; ``bound`` is the relative error of a score.
    """

    movers: Ints
    places: Ints
    most: float
    origin: Floats
    bound: float


def moves_of(before: Floats, centers: Floats, shift: Floats | None, dtype: np.dtype) -> Moves:
    """Compare two sets of centers, for rows of a type; ``shift`` as of ``accumulate``.

    >>> import numpy as np
    >>> after = np.array([[1.0], [3.0], [-3.0]])
    >>> moves = moves_of(np.zeros((3, 1)), after, None, np.dtype("f8"))
    >>> moves.movers, moves.places, round(moves.most, 3)
    (array([1, 2]), array([-1,  0,  1]), 1.0)
    """
    k, p = centers.shape
    far = np.sqrt(((centers - before) ** 2).sum(axis=1)) * (1.0 + _ROUNDED)
    order = np.argsort(-far, kind="stable")
    # The nearest of two or more others is one of them.
    count = min(k, max(2, round(_ALWAYS * k)))
    movers = np.sort(order[:count])
    places = np.full(k, -1)
    places[movers] = np.arange(count)
    origin = choose_origin(centers, shift, dtype)[0].astype(np.float64)
    # As `rounding`, which is asked where all centers are laid out.
    limit = np.finfo(dtype).max / 32
    finite = bool((((centers - origin) ** 2).sum(axis=1) < limit).all())
    bound = float((p + 8) * np.finfo(dtype).eps) if finite else np.inf
    return Moves(movers, places, float(far[order[count:]].max(initial=0.0)), origin, bound)


@inner(counted=False)
def _score(x, rows, at, m, layout, packed, tile):
    """Score m rows, given by their numbers, against the centers that are laid out."""
    for t in range(m):
        pack_row(x, rows[at + t], layout.shift, packed, (), t)
    score_tile(packed, np.intp(0), m, layout, tile, (), ())


@inner(counted=False)
def _error(x, square, squared, bound):
    """More than two scores are off; of small numbers, by what is lost below the least normal."""
    kind = np.finfo(x.dtype)
    return 2.0 * bound * (5.0 * square + 4.0 * squared + kind.tiny / kind.eps)


@inner(counted=False)
def _least(x, square, score, bound):
    """Distance that a score stands for, or less, of a row of squared length ``square``.

    -1 where it may be anything.
    """
    squared = square + np.float64(score)
    squared -= _error(x, square, squared, bound)
    return np.sqrt(squared) if 0.0 < squared < np.inf else -1.0


@inner(counted=False)
def _stays(x, low, squared, square, bound):
    """Whether scores could prefer no center at the distance ``low`` or more to the row's own."""
    return low > 0.0 and low * low - squared > _error(x, square, low * low, bound)


@compiled(counted=False)
def _review(x, centers, moves, layout, origins, kept, rows, room):
    """Bring bounds up to date; put rows that do not stay first in ``rows``, return how many.

    ``layout`` holds the movers; ``origins`` (2, p) are what is subtracted from rows for all centers
    and for the movers.
    """
    points = centers.points
    labels, low = kept
    packed, tile = room
    size = packed.shape[0]
    away = rounding(layout, moves.movers.size, ())
    n, count = x.shape[0], 0
    for start in range(0, n, size):
        # Rows that wait for the movers lie behind all that do not stay.
        m = 0
        for i in range(start, min(n, start + size)):
            squared = row_distance(x, i, points, np.intp(labels[i]), (), 1.0, (), ())
            square = row_distance(x, i, origins, np.intp(0), (), 1.0, (), ())
            least = np.float64(low[i]) - moves.most
            low[i] = least * (1.0 - _ROUNDED)
            if _stays(x, np.float64(low[i]), squared, square, moves.bound):
                rows[n + m] = i
                tile.squared[m], tile.weight[m] = squared, square
                m += 1
            else:
                rows[count] = i
                count += 1
        _score(x, rows, n, m, layout, packed, tile)
        for t in range(m):
            i = rows[n + t]
            own = tile.nearest[t] == moves.places[labels[i]]
            score = tile.next_low[t] if own else tile.low[t]
            square = row_distance(x, i, origins, np.intp(1), (), 1.0, (), ())
            least = _least(x, square, score, away) * (1.0 - _ROUNDED)
            # What no longer stays is looked for; its bound is new then.
            low[i] = min(np.float64(low[i]), least)
            if not _stays(x, np.float64(low[i]), tile.squared[t], tile.weight[t], moves.bound):
                rows[count] = i
                count += 1
    return count


@compiled(counted=False)
def _search(x, centers, layout, origin, rows, count, first, kept, room):
    """Compare the first rows of ``rows`` with all centers.

    ``first`` is what scores prefer, before doubtful rows are settled.
    """
    labels, low = kept
    packed, tile = room
    size = packed.shape[0]
    k = centers.points.shape[0]
    bound = rounding(layout, k, ())
    for start in range(0, count, size):
        m = min(size, count - start)
        _score(x, rows, start, m, layout, packed, tile)
        keep_inside(tile, m, k)
        for t in range(m):
            i, label = rows[start + t], tile.nearest[t]
            squared = row_distance(x, i, centers.points, np.intp(label), (), 1.0, (), ())
            square = row_distance(x, i, origin, np.intp(0), (), 1.0, (), ())
            first[i] = labels[i] = label
            low[i] = _least(x, square, tile.next_low[t], bound) * (1.0 - _ROUNDED)
            if not (tile.next_low[t] - tile.low[t] > doubt(squared, tile.low[t], bound)):
                labels[i] = exact_nearest(x, i, centers, ())
                if labels[i] != label:
                    low[i] = -1.0


@compiled(counted=False)
def _sum(x, row_weights, centers, ends, stats, first, labels, room, sums, totals):
    """Sum rows by cluster in the very order of ``accumulate``, which moves some of them."""
    hi, lo = stats
    packed, tile = room
    lines = -(-x.shape[1] * x.itemsize // LINE_BYTES)
    start, segment = 0, 0
    while start < x.shape[0]:
        m = min(packed.shape[0], ends[segment] - start)
        for t in range(m):
            tile.nearest[t] = first[start + t]
            tile.weight[t] = row_weights[start + t] if row_weights.size else 1.0
        add_tile(x, start, m, lines, centers, tile, sums, ())
        for t in range(m):
            i = start + t
            move_row(x, i, t, np.intp(labels[i]), centers, tile, sums, ())
        add_totals(tile, m, totals)
        start += m
        if start == ends[segment]:
            segment += 1
            flush(hi, lo, sums, totals)


def accumulate_kept(
    x: Array,
    centers: Floats,
    *,
    weight: Floats | None = None,
    shift: Floats | None = None,
    segments: Ints | None = None,
    kept: Kept | None = None,
    moves: Moves | None = None,
    into: BlockStatistics | None = None,
) -> tuple[BlockStatistics, Kept]:
    """Return what ``accumulate`` does, with the help of the pass before, and help for the next.

    ``kept`` is what that pass left of these rows, not written to, and ``moves`` are from its
    centers to these; without both, all rows are compared with all centers.  Cost ``O(n m p)`` for m
    movers, and ``O(k p)`` for each row that does not stay.

    >>> import numpy as np
    >>> x, centers = np.array([[0.0], [1.0], [10.0]]), np.array([[0.0], [9.0]])
    >>> stats, kept = accumulate_kept(x, centers)
    >>> stats.hi[:, 0], kept.labels
    (array([ 1., 10.]), array([0, 0, 1], dtype=int32))
    >>> after = np.array([[0.5], [9.5]])
    >>> moves = moves_of(centers, after, None, x.dtype)
    >>> accumulate_kept(x, after, kept=kept, moves=moves)[0].hi[:, 0]
    array([ 1., 10.])
    """
    x, centers = check_rows(x, centers, shift=shift)
    n, (k, p) = len(x), centers.shape
    stats = no_statistics(k, p) if into is None else into
    exact = with_weights(centers, None)
    size = tile_rows(p, x.dtype.itemsize)
    packed, rows, count = np.zeros((size, p), x.dtype), np.arange(n + size), n
    if kept is None or moves is None:
        kept = Kept(np.empty(n, np.int32), np.empty(n, np.float32))
    else:
        kept = Kept(kept.labels.copy(), kept.low.copy())
        some = with_weights(centers[moves.movers], None)
        layout = lay_out(some.points, None, shift, x.dtype)
        place(some, layout)
        origins = np.stack([moves.origin, layout.shift.astype(np.float64)])
        room = packed, make_tile(size, layout, x.dtype)
        count = _review(x, exact, moves, layout, origins, kept, rows, room)
    first = kept.labels.copy()
    if count:
        layout = lay_out(centers, None, shift, x.dtype)
        place(exact, layout)
        room = packed, make_tile(size, layout, x.dtype)
        origin = layout.shift[None].astype(np.float64)
        _search(x, exact, layout, origin, rows, count, first, kept, room)
    if n:
        ends = np.array([n]) if segments is None else segments
        weights = np.empty(0) if weight is None else weight
        sums, totals = np.zeros((k, p)), np.zeros((k, 2))
        _sum(x, weights, exact, ends, tuple(stats), first, kept.labels, room, sums, totals)
    return stats, kept
