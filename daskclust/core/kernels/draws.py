"""D^2 sampling: points are drawn by their distances to the points that are already drawn.

Greedy k-means++ makes several draws by ``w D^2`` and keeps the one that lowers the cost most.  For
many clusters, several centers are chosen from one batch of draws, by matrix products.
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
from daskclust.core.kernels.sparse import SparseRows
from daskclust.core.kernels.sparse import approach as sparse_approach

#: Number of rows that are copied together.
_ROWS = 8192
#: Minimum number of rows that are compared together.  Fewer rows are compared together even if the
#: numbers of candidates that they were compared with differ.
_EACH = 256


@compiled()
def _pick(squared: Any, mass: Any, weighted: bool, uniform: float) -> int:
    """Draw a position with odds ``mass squared``, or ``squared``; return -1 if all are zero."""
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
    """Draw k points one after another with probability ``mass D^2`` (k-means++); return positions.

    The ``n_first`` first points count as drawn.  If the other points repeat drawn points, fewer
    positions are returned.  Cost ``O(m k p)``.
    """
    positions = np.arange(k)
    # All distances are equal at the start, so only the mass determines the first draw.
    squared = np.ones(points.shape[0])
    for count in range(k):
        if count >= n_first:
            position = _pick(squared, mass, True, uniforms[count])
            if position < 0:
                # A point without mass is still better than a repeated point.
                position = _pick(squared, mass, False, uniforms[count])
            if position < 0:
                return positions[:count]
            positions[count] = position
        for i in range(squared.size):
            apart = row_distance(points, i, points, positions[count], (), 1.0, (), ())
            squared[i] = min(squared[i], apart) if count else apart
    return positions


def approach(
    x: Array | SparseRows,
    candidates: Floats,
    places: NDArray[np.intp],
    distance: Floats,
    seen: NDArray[np.int32],
    *,
    shift: Floats | None = None,
    missing: bool = False,
) -> None:
    """Update the distances of the rows at ``places`` by the candidates after the first ``seen``.

    ``distance`` (n,) is ``D^2`` to the nearest of the first ``seen`` (n,) candidates.  Rows are
    compared with all further candidates, because this kernel is twenty times as fast as single
    distances.
    """
    if isinstance(x, SparseRows):
        sparse_approach(x, candidates, places, distance, seen)
        return
    places = places[np.argsort(seen[places], kind="stable")]
    firsts = seen[places]
    first = 0
    while first < len(places) and firsts[first] < len(candidates):
        # A call for few rows takes longer than comparing some candidates again.
        end = np.searchsorted(firsts, firsts[min(first + _EACH, len(places)) - 1], side="right")
        unseen = candidates[firsts[first] :]
        for start in range(first, end, _ROWS):
            rows = places[start : min(start + _ROWS, end)]
            to_new = nearest(x[rows], unseen, shift=shift, missing=missing)[1]
            distance[rows] = np.minimum(distance[rows], to_new)
        first = end
    seen[places] = len(candidates)


def n_draws(k: int) -> int:
    """Return the number of draws per center, ``2 + ln k`` as in scikit-learn."""
    return 2 + int(np.log(k))


@inner(counted=False)
def _draw_position(uniform: float, mass: Any, squared: Any, potential: Any) -> int:
    """Draw a position with odds ``mass squared``, using the sums of tiles."""
    total = 0.0
    for t in range(potential.size):
        total += potential[t]
    goal = uniform * total
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


@compiled(counted=False)
def _draw_greedily(points, mass, uniforms, positions, n_first, room):
    # Buffers come from the caller, because the functions of NumPy take long to compile.
    tries, tried, costs, squared, potential = room
    k, n_tries = uniforms.shape
    n_tiles, p = points.shape[0], points.shape[1]
    # All distances are equal at the start, so there is one draw by mass.
    for t in range(n_tiles):
        for i in range(WIDTH):
            potential[t] += mass[t, i]
            squared[t, i] = np.float32(1.0)
    for count in range(k):
        n_now = n_tries if count >= max(1, n_first) else 1
        for c in range(n_now):
            if count < n_first:
                tried[c] = count
            else:
                tried[c] = _draw_position(uniforms[count, c], mass, squared, potential)
            if tried[c] < 0:
                return count
            costs[c] = 0.0
            for j in range(p):
                tries[c, j] = points[tried[c] // WIDTH, j, tried[c] % WIDTH]
        if count == 0:
            for t in range(n_tiles):
                for i in range(WIDTH):
                    squared[t, i] = np.float32(np.inf)
        best = 0
        if n_now > 1:
            # The values of a tile stay in the cache for all draws.
            for t in range(n_tiles):
                for c in range(n_now):
                    costs[c] += cost_of_tile(points, t, tries, c, mass, squared, ())
            for c in range(1, n_now):
                if costs[c] < costs[best]:
                    best = c
        # The distances of the best draw are computed again, because the distances of all draws do
        # not fit the cache.
        for t in range(n_tiles):
            potential[t] = cost_of_tile(points, t, tries, best, mass, squared, squared)
        positions[count] = tried[best]
    return k


class Tiles(NamedTuple):
    """Points to draw from: points (tiles, p, WIDTH), float32, and masses (tiles, WIDTH)."""

    points: NDArray[np.float32]
    mass: Floats


def in_tiles(points: Floats, mass: Floats) -> Tiles:
    """Return the layout of points for :func:`draw_greedy`: tiles with their points side by side."""
    # Padding to complete tiles is harmless, because points without mass are never drawn.
    m, p = points.shape
    room = -m % WIDTH
    masses = np.pad(np.asarray(mass, dtype=np.float64), (0, room)).reshape(-1, WIDTH)
    # About the mean and scaled to size 1, single precision is sufficient.
    scaled = np.array(points, dtype=np.float64, order="C")
    scaled -= scaled.mean(axis=0)
    scaled /= np.abs(scaled).max(initial=0.0) or 1.0
    rows = np.pad(scaled.astype(np.float32), ((0, room), (0, 0)))
    return Tiles(np.ascontiguousarray(rows.reshape(-1, WIDTH, p).transpose(0, 2, 1)), masses)


def draw_greedy(tiles: Tiles, k: int, uniforms: Floats, n_first: int = 0) -> Any:
    """Draw k points by ``mass D^2``, each the best of l draws (ties: first); return positions.

    ``uniforms`` (k, l) are random numbers; the first point uses only the first one.  The
    ``n_first`` first points count as drawn.  If the other points repeat drawn points, fewer
    positions are returned.  Distances are in single precision, relative to the extent of the
    points, because they only determine the odds of a draw.  Cost ``O(m k l p)``; memory ``O(m p)``.

    Arthur, D., Vassilvitskii, S. (2007). k-means++: the advantages of careful seeding. SODA;
    section 7.
    """
    places = np.zeros(k, dtype=np.intp)
    (n_tiles, p, _), n_tries = tiles.points.shape, uniforms.shape[1]
    room = (
        np.empty((n_tries, p), np.float32),
        np.empty(n_tries, np.intp),
        np.empty(n_tries),
        np.empty((n_tiles, WIDTH), np.float32),
        np.zeros(n_tiles),
    )
    return places[: _draw_greedily(*tiles, np.ascontiguousarray(uniforms), places, n_first, room)]


#: Number of points of a tile, and maximum number of draws that are compared at once.
_TILE, _BATCH = 1024, 64
#: Maximum size of a batch as a fraction of the centers so far, because draws of a batch ignore each
#: other.
_SHARE = 0.1

_SUMS = {"reassoc", "nsz", "contract"}


@compiled(fastmath=_SUMS)
def _gain(apart, mass, squared):
    """Return the decrease of the weighted squared distances of a tile by a point."""
    total = np.float32(0.0)
    for i in range(mass.size):
        total += mass[i] * max(squared[i] - apart[i], np.float32(0.0))
    return total


@compiled()
def _measure(apart, squares, own, slack, mass, squared, gains):
    """Convert products of a tile's points with draws to squared distances; write the gains."""
    for c in range(gains.size):
        for i in range(mass.size):
            both = squares[i] + own[c]
            gap = both - np.float32(2.0) * apart[c, i]
            # Differences within rounding become 0, so that equal points are not drawn twice.
            apart[c, i] = gap if gap > slack * both else np.float32(0.0)
        gains[c] = _gain(apart[c], mass, squared)


@compiled()
def _select(apart, mass, squared, gains, chosen):
    """Choose the best draws one after another; update the distances, and return their number."""
    n_tiles = mass.shape[0]
    for count in range(chosen.size):
        # Gains can only decrease as centers are added, so an old gain is an upper bound.
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
    """Points for matrix products, in float32, shifted to their mean and scaled to size 1.

    `points` has shape (m + padding, p), and `tiles` (t, p, rows of a tile) are the transposed
    tiles.  `mass` and `squares` (t, rows of a tile) are masses and squared norms.  `slack` is the
    relative rounding error of a distance.
    """

    points: NDArray[np.float32]
    tiles: NDArray[np.float32]
    mass: NDArray[np.float32]
    squares: NDArray[np.float32]
    slack: np.float32


def in_wide_tiles(points: Array, mass: Floats) -> WideTiles:
    """Return the layout of points for :func:`draw_in_batches`; memory ``O(m p)``."""
    m, p = points.shape
    n_tiles = -(-m // _TILE)
    center = points.mean(axis=0, dtype=np.float64)
    extent = max(points.max(initial=0.0) - center.min(), center.max() - points.min(initial=0.0))
    # About the mean and scaled to size 1, single precision is sufficient.
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
    """Draw points by ``mass D^2``, ``n_draws`` per center, and keep those that lower the cost most.

    One of ``n_draws`` draws of a batch becomes a center; a batch has up to 64 draws.  ``run`` runs
    calls, in any order.  The ``n_first`` first points count as drawn.  If the other points repeat
    drawn points, in single precision, fewer positions are returned.

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
            # Rounding must not lead to a position after the last point with odds.
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
