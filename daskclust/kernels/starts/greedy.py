"""Greedy k-means++: of several draws by ``w D^2``, keep the one that lowers the cost most."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust.kernels.compiling import compiled, inner

__all__ = ["draw_greedy", "n_draws"]

Float = NDArray[np.float64]

#: Points measured at a time: their values stay in the fast cache for all draws.
_TILE = 256


def n_draws(k: int) -> int:
    """Draws for each center, as scikit-learn makes: ``2 + ln k``.

    Examples
    --------
    >>> n_draws(1), n_draws(100)
    (2, 6)
    """
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
    for i in range(tile * _TILE, min((tile + 1) * _TILE, mass.size)):
        odds = mass[i] * squared[i]
        if odds > 0.0:
            last = i
            if goal < odds:
                break
            goal -= odds
    return last


@inner(fastmath={"reassoc", "contract"})
def _weigh(tile: Any, mass: Any, start: int) -> float:
    """Sum of ``mass`` times the values of a tile, in any order: vector code."""
    total = 0.0
    for i in range(tile.size):
        total += tile[i] * mass[start + i]
    return total


@compiled(fastmath={"contract"})
def _draw(turned: Any, mass: Any, uniforms: Any, places: Any) -> int:
    p, m = turned.shape
    k, n_tries = uniforms.shape
    n_tiles = (m + _TILE - 1) // _TILE
    pairs = p // 2 * 2
    squared = np.full(m, np.float32(1.0))
    found = np.empty((n_tries, m), np.float32)
    sums = np.empty((n_tries, n_tiles))
    potential = np.empty(n_tiles)
    tried = np.empty(n_tries, np.intp)
    for t in range(n_tiles):
        stop = min((t + 1) * _TILE, m)
        potential[t] = _weigh(squared[t * _TILE : stop], mass, t * _TILE)
    for count in range(k):
        # Equal distances at first: one draw by mass alone, as there is nothing to compare.
        now = n_tries if count else 1
        for c in range(now):
            tried[c] = _place(uniforms[count, c], mass, squared, potential)
            if tried[c] < 0:
                return count
        for t in range(n_tiles):
            start, stop = t * _TILE, min((t + 1) * _TILE, m)
            for c in range(now):
                tile = found[c, start:stop]
                tile[:] = np.float32(0.0)
                for j in range(0, pairs, 2):
                    # Two features at once: one load and store of the sums for both.
                    one, other = turned[j, start:stop], turned[j + 1, start:stop]
                    at_one, at_other = turned[j, tried[c]], turned[j + 1, tried[c]]
                    for i in range(tile.size):
                        first, second = one[i] - at_one, other[i] - at_other
                        tile[i] += first * first + second * second
                for j in range(pairs, p):
                    value, row = turned[j, tried[c]], turned[j, start:stop]
                    for i in range(tile.size):
                        apart = row[i] - value
                        tile[i] += apart * apart
                if count:
                    old = squared[start:stop]
                    for i in range(tile.size):
                        tile[i] = min(tile[i], old[i])
                sums[c, t] = _weigh(tile, mass, start)
        best, least = 0, np.inf
        for c in range(now):
            cost = sums[c].sum()
            if cost < least:
                best, least = c, cost
        places[count] = tried[best]
        squared[:] = found[best]
        potential[:] = sums[best]
    return k


def draw_greedy(points: Float, mass: Float, k: int, uniforms: Float) -> Any:
    """Draw points one after another by ``mass D^2``, each the best of several draws.

    Parameters
    ----------
    points : ndarray of shape (m, p), float64
    mass : ndarray of shape (m,), float64, non-negative, not all zero
        Points without mass are not drawn.
    k : int
        Points to draw.
    uniforms : ndarray of shape (k, l), float64, in [0, 1)
        Of each draw; of the first point only the first counts.

    Returns
    -------
    ndarray of shape (k,), intp
        Places of the points, in the order of their draw; shorter where the others
        repeat points that were drawn.  Equal costs go to the first draw.

    Notes
    -----
    Distances are in single precision, relative to the extent of the points; they only set
    the odds of a draw.  Cost ``O(m k l p)``; memory ``O(m (p + l))``.

    References
    ----------
    .. [1] Arthur, D., Vassilvitskii, S. (2007). k-means++: the advantages of careful
       seeding. SODA; section 7.

    Examples
    --------
    The first draw is at 3.0; of the draws 0.0 and 4.0 after it, 0.0 leaves less.

    >>> import numpy as np
    >>> points = np.array([[0.0], [0.0], [3.0], [4.0]])
    >>> draw_greedy(points, np.ones(4), 2, np.array([[0.5, 0.0], [0.96, 0.0]]))
    array([2, 0])
    """
    places = np.zeros(k, dtype=np.intp)
    # About their middle and of size 1, single precision has digits and range enough.
    turned = np.array(points, dtype=np.float64, order="C")
    turned -= turned.mean(axis=0)
    turned /= np.abs(turned).max(initial=0.0) or 1.0
    turned = np.ascontiguousarray(turned.T, dtype=np.float32)
    return places[: _draw(turned, mass, np.ascontiguousarray(uniforms), places)]
