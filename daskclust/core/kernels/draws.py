"""D^2 sampling: points are drawn by their distances to those drawn before, or the best of several.

Greedy k-means++ keeps, of several draws by ``w D^2``, the one that lowers the cost most.  For many
clusters several centers are chosen from one batch of draws, by matrix products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Floats
from daskclust.core.kernels.blas import one_blas_thread
from daskclust.core.kernels.compiling import compiled, inner
from daskclust.core.kernels.nearest.assign import nearest
from daskclust.core.kernels.nearest.row_loops import WIDTH, cost_of_tile, row_distance

#: Rows that are copied at a time.
_ROWS = 8192
#: Rows, at least, that are measured together, though they have seen different numbers.
_EACH = 256


@compiled()
def _pick(squared: Any, mass: Any, weighted: bool, uniform: float) -> int:
    """Place of a point drawn with odds ``mass squared``, or ``squared``; -1 if all are zero."""
    total = 0.0
    for i in range(squared.size):
        total += squared[i] * mass[i] if weighted else squared[i]
    if total == 0.0:
        return -1
    goal, reached, last = uniform * total, 0.0, -1
    for i in range(squared.size):
        odds = squared[i] * mass[i] if weighted else squared[i]
        reached += odds
        if odds > 0.0:
            last = i
            if reached > goal:
                break
    return last


@compiled()
def draw_apart(points: Any, mass: Any, k: int, uniforms: Any, n_first: int = 0) -> Any:
    """Draw k points one after another with probability ``mass D^2`` (k-means++); return places.

    The ``n_first`` first points count as drawn already.  Places are fewer where the others repeat
    points that were drawn.  Cost ``O(m k p)``.
    """
    places = np.arange(k)
    # Equal distances at first: the first draw is by mass alone.
    squared = np.ones(points.shape[0])
    for count in range(k):
        if count >= n_first:
            place = _pick(squared, mass, True, uniforms[count])
            if place < 0:
                # Where all that is left attracts no row, it is better than a repeated point.
                place = _pick(squared, mass, False, uniforms[count])
            if place < 0:
                return places[:count]
            places[count] = place
        for i in range(squared.size):
            apart = row_distance(points, i, points, places[count], (), 1.0, (), ())
            squared[i] = min(squared[i], apart) if count else apart
    return places


def approach(
    x: Array,
    candidates: Floats,
    places: NDArray[np.intp],
    distance: Floats,
    seen: NDArray[np.int32],
    *,
    shift: Floats | None = None,
    missing: bool = False,
) -> None:
    """Measure the rows at ``places`` against the candidates that they have not seen, in place.

    ``distance`` (n,) is ``D^2`` to the nearest of the first ``seen`` (n,) candidates.  The kernel
    measures all in the time in which single distances measure a twentieth: none is left out.
    """
    places = places[np.argsort(seen[places], kind="stable")]
    firsts = seen[places]
    begin = 0
    while begin < len(places) and firsts[begin] < len(candidates):
        # A call for few rows takes longer than to measure some candidates again.
        end = np.searchsorted(firsts, firsts[min(begin + _EACH, len(places)) - 1], side="right")
        unseen = candidates[firsts[begin] :]
        for start in range(begin, end, _ROWS):
            rows = places[start : min(start + _ROWS, end)]
            found = nearest(x[rows], unseen, shift=shift, missing=missing)[1]
            distance[rows] = np.minimum(distance[rows], found)
        begin = end
    seen[places] = len(candidates)


def n_draws(k: int) -> int:
    """Draws for each center, as scikit-learn makes: ``2 + ln k``."""
    return 2 + int(np.log(k))


@inner()
def _place(uniform: float, mass: Any, squared: Any, potential: Any) -> int:
    """Place of a point drawn with odds ``mass squared``, given the sums of tiles."""
    goal = uniform * potential.sum()
    tile, last = 0, -1
    for t in range(potential.size):
        if potential[t] > 0.0:
            tile = t
            if goal < potential[t]:
                break
            goal -= potential[t]
    for i in range(WIDTH):
        odds = mass[tile, i] * squared[tile, i]
        if odds > 0.0:
            last = tile * WIDTH + i
            if goal < odds:
                break
            goal -= odds
    return last


@compiled()
def _draw_greedily(points, mass, uniforms, places, n_first):
    k, n_tries = uniforms.shape
    n_tiles, p = points.shape[:2]
    tries = np.empty((n_tries, p), np.float32)
    tried = np.empty(n_tries, np.intp)
    costs = np.empty(n_tries)
    # Equal distances at first: one draw by mass alone, as there is nothing to compare.
    squared = np.full((n_tiles, WIDTH), np.float32(1.0))
    potential = mass.sum(axis=1)
    for count in range(k):
        now = n_tries if count >= max(1, n_first) else 1
        for c in range(now):
            if count < n_first:
                tried[c] = count
            else:
                tried[c] = _place(uniforms[count, c], mass, squared, potential)
            if tried[c] < 0:
                return count
            costs[c] = 0.0
            for j in range(p):
                tries[c, j] = points[tried[c] // WIDTH, j, tried[c] % WIDTH]
        if count == 0:
            squared[:] = np.float32(np.inf)
        best = 0
        if now > 1:
            # Values of a tile stay in the fast cache for all draws.
            for t in range(n_tiles):
                for c in range(now):
                    costs[c] += cost_of_tile(points, t, tries, c, mass, squared, ())
            best = int(np.argmin(costs))
        # Distances of the best once more: those of all draws would not fit the cache.
        for t in range(n_tiles):
            potential[t] = cost_of_tile(points, t, tries, best, mass, squared, squared)
        places[count] = tried[best]
    return k


class Tiles(NamedTuple):
    """Points that are drawn from: points (tiles, p, WIDTH), float32, and masses (tiles, WIDTH)."""

    points: NDArray[np.float32]
    mass: Floats


def in_tiles(points: Floats, mass: Floats) -> Tiles:
    """Lay out points for :func:`draw_greedy`: each tile by itself, its points side by side."""
    # Whole tiles: points without mass are never drawn.
    m, p = points.shape
    room = -m % WIDTH
    masses = np.pad(np.asarray(mass, dtype=np.float64), (0, room)).reshape(-1, WIDTH)
    # About their middle and of size 1, single precision has digits and range enough.
    scaled = np.array(points, dtype=np.float64, order="C")
    scaled -= scaled.mean(axis=0)
    scaled /= np.abs(scaled).max(initial=0.0) or 1.0
    rows = np.pad(scaled.astype(np.float32), ((0, room), (0, 0)))
    return Tiles(np.ascontiguousarray(rows.reshape(-1, WIDTH, p).transpose(0, 2, 1)), masses)


def draw_greedy(tiles: Tiles, k: int, uniforms: Floats, n_first: int = 0) -> Any:
    """Draw k points by ``mass D^2``, each the best, first among equals, of l draws; return places.

    ``uniforms`` (k, l); of the first point only the first counts.  The ``n_first`` first points
    count as drawn already.  Fewer where the others repeat points that were drawn.
    Distances are in single precision, relative to the extent of the
    points: they only set the odds of a draw.  Cost ``O(m k l p)``; memory ``O(m p)``.

    Arthur, D., Vassilvitskii, S. (2007). k-means++: the advantages of careful seeding. SODA;
    section 7.
    """
    places = np.zeros(k, dtype=np.intp)
    return places[: _draw_greedily(*tiles, np.ascontiguousarray(uniforms), places, n_first)]


#: Points of a tile, and draws that are compared at once.
_TILE, _BATCH = 1024, 64
#: A batch adds at most this share of the centers so far: its draws know nothing of one another.
_SHARE = 0.1

_SUMS = {"reassoc", "nsz", "contract"}


@compiled(fastmath=_SUMS)
def _gain(apart, mass, squared):
    """By how much a point lowers the weighted squared distances of a tile."""
    total = np.float32(0.0)
    for i in range(mass.size):
        total += mass[i] * max(squared[i] - apart[i], np.float32(0.0))
    return total


@compiled()
def _measure(apart, squares, own, slack, mass, squared, gains):
    """Turn products of a tile's points with draws into squared distances; return the gains."""
    for c in range(gains.size):
        for i in range(mass.size):
            both = squares[i] + own[c]
            gap = both - np.float32(2.0) * apart[c, i]
            # What may be rounding is no distance: points that are equal are not drawn twice.
            apart[c, i] = gap if gap > slack * both else np.float32(0.0)
        gains[c] = _gain(apart[c], mass, squared)


@compiled()
def _select(apart, mass, squared, gains, chosen):
    """Choose the best draws, one after another; lower the distances, and return how many."""
    n_tiles = mass.shape[0]
    for count in range(chosen.size):
        # Gains only fall as centers are added: an old one is a bound.
        best, fresh = np.argmax(gains), count == 0
        while not fresh:
            gain = 0.0
            for t in range(n_tiles):
                gain += _gain(apart[t, best], mass[t], squared[t])
            gains[best] = gain
            following = np.argmax(gains)
            fresh, best = following == best, following
        if not gains[best] > 0.0:
            return count
        chosen[count] = best
        gains[best] = 0.0
        for t in range(n_tiles):
            for i in range(mass.shape[1]):
                squared[t, i] = min(squared[t, i], apart[t, best, i])
    return chosen.size


class WideTiles(NamedTuple):
    """Points that are compared by matrix products, in float32, about their middle and of size 1.

    `points` (m + padding, p). `tiles` (t, p, rows of a tile): their transposes. `mass`, `squares`
    (t, rows of a tile): masses and squared norms. `slack`: relative rounding of a distance.
    """

    points: NDArray[np.float32]
    tiles: NDArray[np.float32]
    mass: NDArray[np.float32]
    squares: NDArray[np.float32]
    slack: np.float32


def in_wide_tiles(points: Array, mass: Floats) -> WideTiles:
    """Lay out points for :func:`draw_in_batches`; memory ``O(m p)``."""
    m, p = points.shape
    n_tiles = -(-m // _TILE)
    center = points.mean(axis=0, dtype=np.float64)
    extent = max(points.max(initial=0.0) - center.min(), center.max() - points.min(initial=0.0))
    # About their middle and of size 1, single precision has digits and range enough.
    moved = np.zeros((n_tiles * _TILE, p), np.float32)
    for start in range(0, m, _TILE):
        part = points[start : start + _TILE]
        moved[start : start + len(part)] = (part - center) / (extent or 1.0)
    tiles = np.ascontiguousarray(moved.reshape(-1, _TILE, p).transpose(0, 2, 1))
    weights = np.zeros(n_tiles * _TILE, np.float32)
    weights[:m] = mass / mass.max()
    squares = np.einsum("ij,ij->i", moved, moved).reshape(-1, _TILE)
    slack = np.float32((p + 8) * np.finfo(np.float32).eps)
    return WideTiles(moved, tiles, weights.reshape(-1, _TILE), squares, slack)


def draw_in_batches(
    points: WideTiles,
    k: int,
    n_draws: int,
    rng: np.random.Generator,
    run: Callable[[Sequence[Callable[[], None]]], Any],
    n_first: int = 0,
) -> NDArray[np.intp]:
    """Draw points by ``mass D^2``, so many for each center, and keep those that lower most.

    A batch of up to 64 draws gives ``1 / n_draws`` as many centers.  ``run`` makes calls, in any
    order.  The ``n_first`` first points count as drawn already.  Places are fewer where others
    repeat points that were drawn, in single precision.

    Cost ``O(m k p n_draws)``, by matrix products in single precision; memory ``O(64 m)``.
    """
    moved, tiles, weights, squares, slack = points
    squared = np.full(squares.shape, np.inf, np.float32)
    apart = np.empty((len(tiles), _BATCH, _TILE), np.float32)
    gains = np.empty((len(tiles), _BATCH))

    def compare(draws: NDArray[np.intp], t: int) -> None:
        own = slice(0, len(draws))
        np.matmul(moved[draws], tiles[t], out=apart[t, own])
        norms = squares.ravel()[draws]
        _measure(apart[t, own], squares[t], norms, slack, weights[t], squared[t], gains[t, own])

    def measure(draws: NDArray[np.intp]) -> None:
        run([partial(compare, draws, t) for t in range(len(tiles))])

    places: list[int] = list(range(n_first))
    with one_blas_thread():
        for start in range(0, n_first, _BATCH):
            draws = np.arange(start, min(start + _BATCH, n_first))
            measure(draws)
            np.minimum(squared, apart[:, : len(draws)].min(axis=1), out=squared)
        odds = np.cumsum(weights * squared if places else weights, dtype=np.float64)
        while len(places) < k and odds[-1] > 0.0:
            wanted = min(k - len(places), int(_SHARE * len(places)), _BATCH // n_draws) or 1
            uniforms = rng.random(min(wanted * n_draws, _BATCH) if places else 1)
            draws = np.searchsorted(odds, uniforms * odds[-1], side="right")
            # Never beyond the last point with odds, whatever rounding does.
            draws = np.unique(np.minimum(draws, np.searchsorted(odds, odds[-1])))
            measure(draws)
            if not places:
                squared[:] = apart[:, 0]
                places.append(int(draws[0]))
            else:
                chosen = np.empty(wanted, np.intp)
                total = gains[:, : len(draws)].sum(axis=0)
                count = _select(apart, weights, squared, total, chosen)
                places += draws[chosen[:count]].tolist()
            odds = np.cumsum(weights * squared, dtype=np.float64)
    return np.array(places, dtype=np.intp)
