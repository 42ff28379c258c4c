"""Nearest-center assignment with distance bounds that are reused between iterations.

A pass stores two centers for each row: the nearest and the second nearest center.  It also stores
two lower bounds: ``near`` for the distance to the second center, and ``low`` for the distances to
all remaining centers.

The next pass decreases the bounds by the shifts of the centers.  Then it processes each row:

1. If ``near`` is too small, the distance to the second center is computed.  The nearer of the two
   stored centers is the candidate.
2. If ``low`` is too small, the row is compared with the centers that moved most (the movers).  Then
   ``low`` decreases only by the largest shift of the other centers.
3. If ``low`` is still too small, or if the two stored centers are about equally near, the row is
   compared with all centers.  Otherwise the candidate is the nearest center.

Bounds include rounding errors: a comparison is skipped only if scores in the precision of the rows
could not have preferred another center.  Therefore labels and sums equal those of
:func:`daskclust.core.kernels.nearest.assign.accumulate`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Floats, Ints
from daskclust.core.kernels.compensated import flush
from daskclust.core.kernels.compiling import compiled, inner, read_only
from daskclust.core.kernels.nearest._scores import ROWS, next_in_rows
from daskclust.core.kernels.nearest._simd import SUM_LANES
from daskclust.core.kernels.nearest._tiles import (
    add_totals,
    choose_origin,
    doubt,
    exact_nearest,
    keep_inside,
    lay_out,
    make_tile,
    move_row,
    place,
    score_tile,
    tile_rows,
    with_weights,
)
from daskclust.core.kernels.nearest.assign import BlockStatistics, check_rows, no_statistics
from daskclust.core.kernels.nearest.row_loops import pack_row, row_distance

#: Number of bytes per row in the cache between passes.
BYTES_A_ROW = 20
#: Fraction of the centers that is always compared; fraction of moved centers up to which all of
#: them are compared.  If centers times features are below the last number, two are always compared.
_ALWAYS, _FEW, _PANELS = 0.1, 0.2, 8000
#: A row is not compared with the movers if its bound exceeds the distance to its center even after
#: it decreases by this multiple of the largest shift.
_SPARED = 2.0
#: Upper bound of the relative rounding error of float32.
_ROUNDED = 2.0**-22
#: Range in which float32 has full precision.
_SMALL, _LARGE = 2.0**-120, 2.0**127


class Kept(NamedTuple):
    """Bounds of n rows that a pass stores for the next pass.

    ``labels`` are the nearest centers, and ``others`` the next nearest centers, or ``labels`` if
    they are unknown.  ``near`` is a lower bound of the distance to the next center, ``low`` of the
    distance to all other centers; both are negative if unknown.  ``square`` is a lower bound of the
    squared distance to ``origin`` (p,), the shift of the rows.
    """

    labels: NDArray[np.int32]
    others: NDArray[np.int32]
    near: NDArray[np.float32]
    low: NDArray[np.float32]
    square: NDArray[np.float32]
    origin: NDArray


class Moves(NamedTuple):
    """Shifts of k centers since the last pass.

    ``movers`` are the centers that moved most, and ``places`` (k,) the positions of centers among
    them, or -1.  ``far`` (k,) are upper bounds of the shifts, ``far_most`` is their maximum, and
    ``most`` the maximum without the movers.  ``reach`` (k,) is the squared distance to the shift of
    the rows, and ``bound`` the relative error of a score.
    """

    movers: Ints
    places: Ints
    far: Floats
    far_most: float
    most: float
    reach: Floats
    bound: float


def moves_of(before: Floats, centers: Floats, shift: Floats | None, dtype: np.dtype) -> Moves:
    """Return the shifts between two sets of centers; ``shift`` is as in ``accumulate``.

    >>> after = np.array([[1.0], [3.0], [-3.0]])
    >>> moves = moves_of(np.zeros((3, 1)), after, None, np.dtype("f8"))
    >>> moves.movers, moves.places, round(moves.most, 3)
    (array([1, 2]), array([-1,  0,  1]), 1.0)
    """
    k, p = centers.shape
    far = np.sqrt(((centers - before) ** 2).sum(axis=1)) * (1.0 + _ROUNDED)
    order = np.argsort(-far, kind="stable")
    # There are at least two movers, so at least one is not the center of the row.  If all moved
    # centers are movers, bounds do not decrease.
    n_moved = np.count_nonzero(far)
    share = _ALWAYS if k * p >= _PANELS else 0.0
    count = min(k, max(2, n_moved if n_moved <= _FEW * k else round(share * k)))
    movers = np.sort(order[:count])
    places = np.full(k, -1)
    places[movers] = np.arange(count)
    origin = choose_origin(centers, shift, dtype)[0].astype(np.float64)
    # Like `place`, which needs a layout of all centers.
    limit = np.finfo(dtype).max / 32
    reach = ((centers - origin) ** 2).sum(axis=1)
    bound = float((p + 8) * np.finfo(dtype).eps) if (reach < limit).all() else np.inf
    far_most, most = float(far[order[0]]), float(far[order[count:]].max(initial=0.0))
    return Moves(movers, places, far, far_most, most, reach, bound)


@inner(counted=False)
def _score(x, rows, first, m, layout, packed, tile):
    """Score the m rows ``rows[first : first + m]`` against the centers of a layout."""
    for t in range(m):
        pack_row(x, rows[first + t], layout.shift, packed, (), t)
    score_tile(packed, np.intp(0), m, layout, tile, (), ())


@inner(counted=False)
def _error(x, square, squared, bound):
    """Return an upper bound of the error of two scores, including subnormal numbers."""
    kind = np.finfo(x.dtype)
    return 2.0 * bound * (5.0 * square + 4.0 * squared + kind.tiny / kind.eps)


@inner(counted=False)
def _least(x, square, score, bound):
    """Return a lower bound of the distance that belongs to a score, or -1; ``square`` is |x|^2."""
    squared = square + np.float64(score)
    squared -= _error(x, square, squared, bound)
    return np.sqrt(squared) if 0.0 < squared < np.inf else -1.0


@inner(counted=False)
def _excludes(x, far, squared, square, bound):
    """Return True if no center at a squared distance >= ``far`` can have the lowest score.

    ``squared`` is the squared distance of the row to its center.  Scores have rounding errors, so
    the difference must exceed their error.
    """
    return far - squared > _error(x, square, far, bound)


@inner(counted=False)
def _excludes_from(x, low, squared, square, bound):
    """Return the result of `_excludes` for a distance ``low``, which is not squared."""
    return low > _SMALL and _excludes(x, low * low, squared, square, bound)


@compiled(counted=False)
def _measure(x, origin, square):
    """Compute lower bounds of the squared distances of rows from ``origin`` (1, p)."""
    for i in range(x.shape[0]):
        length = row_distance(x, i, origin, np.intp(0), (), 1.0, (), ())
        square[i] = min(length * (1.0 - _ROUNDED), _LARGE) if length > _SMALL else 0.0


@compiled(counted=False)
def _review(x, centers, moves, layout, away, kept, apart, rows, room):
    """Update bounds; write the rows to compare to the start of ``rows``, and return their number.

    ``layout`` contains the movers, and ``away`` is the error of their scores.  ``apart`` receives
    squared distances of rows to their centers.
    """
    points = centers.points
    labels, others, near, low, lengths, _ = kept
    packed, tile = room
    size = packed.shape[0]
    n, count = x.shape[0], 0
    for start in range(0, n, size):
        # Rows to compare with the movers are stored after n.
        m = 0
        for i in range(start, min(n, start + size)):
            squared = row_distance(x, i, points, np.intp(labels[i]), (), 1.0, (), ())
            # Upper bound of the squared length that is added to the scores of all centers.
            square = 2.0 * (squared + moves.reach[labels[i]])
            clear = others[i] == labels[i]
            if not clear:
                near[i] = (np.float64(near[i]) - moves.far[others[i]]) * (1.0 - _ROUNDED)
                clear = _excludes_from(x, np.float64(near[i]), squared, square, moves.bound)
            if not clear:
                far = row_distance(x, i, points, np.intp(others[i]), (), 1.0, (), ())
                if far < squared:
                    labels[i], others[i] = others[i], labels[i]
                    squared, far = far, squared
                    square = 2.0 * (squared + moves.reach[labels[i]])
                near[i] = np.sqrt(far) * (1.0 - _ROUNDED)
                clear = _excludes(x, far, squared, square, moves.bound)
            fallen = np.float64(low[i]) - moves.far_most
            left = fallen - _SPARED * moves.far_most
            if clear and _excludes_from(x, left, squared, square, moves.bound):
                low[i] = fallen * (1.0 - _ROUNDED)
                apart[i] = squared
                continue
            low[i] = (np.float64(low[i]) - moves.most) * (1.0 - _ROUNDED)
            if clear and _excludes_from(x, np.float64(low[i]), squared, square, moves.bound):
                rows[n + m] = i
                apart[i] = tile.squared[m] = squared
                tile.weight[m] = square
                m += 1
            else:
                rows[count] = i
                count += 1
        _score(x, rows, n, m, layout, packed, tile)
        for t in range(m):
            i = rows[n + t]
            mover = tile.nearest[t]
            own = mover == moves.places[labels[i]] or mover == moves.places[others[i]]
            score = tile.next_low[t] if own else tile.low[t]
            least = _least(x, np.float64(lengths[i]), score, away) * (1.0 - _ROUNDED)
            # Rows whose bound is too small are compared with all centers, which gives a new bound.
            low[i] = min(np.float64(low[i]), least)
            if not _excludes_from(
                x, np.float64(low[i]), tile.squared[t], tile.weight[t], moves.bound
            ):
                rows[count] = i
                count += 1
    return count


@compiled(counted=False)
def _search(x, centers, layout, bound, rows, count, first, kept, apart, room, runners):
    """Compare the first rows of ``rows`` with all centers.

    ``first`` receives the centers of the lowest scores, before doubtful rows are decided exactly,
    and ``apart`` the squared distances to them.  ``runners`` is a buffer: for each row of a tile
    the score of the next center, the smallest of all other scores, and the next center.
    """
    labels, others, near, low, lengths, _ = kept
    packed, tile = room
    size = packed.shape[0]
    k = centers.points.shape[0]
    for start in range(0, count, size):
        m = min(size, count - start)
        _score(x, rows, start, m, layout, packed, tile)
        keep_inside(tile, m, k)
        next_low, rest, runner = runners
        for t in range(0, m if tile.best.shape[0] else 0, ROWS):
            next_in_rows(tile.best, tile.second, tile.vector, next_low, rest, runner, t)
        for t in range(m):
            i, label = rows[start + t], tile.nearest[t]
            squared = row_distance(x, i, centers.points, np.intp(label), (), 1.0, (), ())
            apart[i] = squared
            square = np.float64(lengths[i])
            first[i] = labels[i] = others[i] = label
            near[i] = -1.0
            clear = tile.next_low[t] - tile.low[t] > doubt(squared, tile.low[t], bound)
            # The next center is unknown for ties, and if the two nearest centers are in one lane.
            known = clear and tile.best.shape[0] > 0 and next_low[t] < rest[t] and runner[t] < k
            if known:
                others[i] = runner[t]
                near[i] = _least(x, square, next_low[t], bound)
                near[i] *= 1.0 - _ROUNDED
            low[i] = _least(x, square, rest[t] if known else tile.next_low[t], bound)
            low[i] *= 1.0 - _ROUNDED
            if not clear:
                labels[i] = others[i] = exact_nearest(x, i, centers, ())
                if labels[i] != label:
                    low[i] = -1.0


@compiled(counted=False)
def _sum(x, row_weights, centers, ends, stats, first, labels, apart, room, sums, totals):
    """Sum rows by cluster in the order of ``accumulate``, which corrects some rows afterwards."""
    hi, lo = stats
    packed, tile = room
    start, segment = 0, 0
    while start < x.shape[0]:
        m = min(packed.shape[0], ends[segment] - start)
        for t in range(m):
            i, weight = start + t, 1.0
            if row_weights.size:
                weight = row_weights[i]
            tile.nearest[t], tile.weight[t], tile.squared[t] = first[i], weight, apart[i]
            row_distance(x, i, (), np.intp(first[i]), (), weight, sums, ())
        for t in range(m):
            i = start + t
            # Most rows stay in their cluster, so calls with all arrays of a tile are avoided.
            if labels[i] != tile.nearest[t]:
                move_row(x, i, t, np.intp(labels[i]), centers, tile, sums, ())
        add_totals(tile, m, totals)
        start += m
        if start == ends[segment]:
            segment += 1
            flush(hi, lo, sums, totals, 1)


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
    """Return the result of ``accumulate`` from bounds of the last pass, and new bounds.

    ``moves`` are relative to the centers of the last pass; without them, all rows are compared with
    all centers.  Cost ``O(n m p)`` for m movers, and ``O(k p)`` for each row that is compared.


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
    apart = np.empty(n)
    origin, _ = choose_origin(centers, shift, x.dtype)
    if kept is not None and np.array_equal(kept.origin, origin):
        lengths = kept.square
    else:
        lengths = np.empty(n, np.float32)
        _measure(x, origin[None].astype(np.float64), lengths)
    if kept is None or moves is None:
        (labels, others), (near, low) = np.empty((2, n), np.int32), np.empty((2, n), np.float32)
        kept = Kept(labels, others, near, low, lengths, origin)
    else:
        labels, others = kept.labels.copy(), kept.others.copy()
        kept = Kept(labels, others, kept.near.copy(), kept.low.copy(), lengths, origin)
        some = read_only(centers[moves.movers])
        layout = lay_out(some, None, shift, x.dtype)._replace(shift=origin)
        away = place(some, layout)
        room = packed, make_tile(size, layout, x.dtype)
        count = _review(x, exact, moves, layout, away, kept, apart, rows, room)
    first = kept.labels.copy()
    if count:
        layout = lay_out(centers, None, shift, x.dtype)
        bound = place(exact.points, layout)
        room = packed, make_tile(size, layout, x.dtype)
        runners = np.empty(size, x.dtype), np.empty(size, x.dtype), np.empty(size, np.int32)
        _search(x, exact, layout, bound, rows, count, first, kept, apart, room, runners)
    if n:
        ends = np.array([n]) if segments is None else segments
        weights = read_only(np.empty(0) if weight is None else weight)
        sums, totals = np.zeros((k, -(-p // SUM_LANES) * SUM_LANES)), np.zeros((k, 2))
        labels, out = kept.labels, tuple(stats)
        _sum(x, weights, exact, ends, out, first, labels, apart, room, sums, totals)
    return stats, kept
