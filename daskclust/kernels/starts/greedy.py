"""Greedy k-means++: of several draws by ``w D^2``, keep the one that lowers the cost most."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust.kernels.compiling import PLAIN, compiled, inner

if PLAIN:
    from daskclust.kernels.starts import _plain_greedy_tiles as _tiles
else:
    from daskclust.kernels.starts import _greedy_tiles as _tiles  # type: ignore[no-redef]

__all__ = ["draw_greedy", "n_draws"]

Float = NDArray[np.float64]

#: Points of a tile.
WIDTH: int = _tiles.WIDTH
lower_tile: Any = _tiles.lower_tile


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
    for i in range(tile * WIDTH, (tile + 1) * WIDTH):
        odds = mass[i] * squared[i]
        if odds > 0.0:
            last = i
            if goal < odds:
                break
            goal -= odds
    return last


@compiled()
def _draw(turned: Any, mass: Any, uniforms: Any, places: Any) -> int:
    m = turned.shape[1]
    k, n_tries = uniforms.shape
    n_tiles = m // WIDTH
    found = np.empty((n_tries, m), np.float32)
    sums = np.empty((n_tries, n_tiles))
    tried = np.empty(n_tries, np.intp)
    # Equal distances at first: one draw by mass alone, as there is nothing to compare.
    squared = np.full(m, np.float32(1.0))
    potential = mass.reshape(n_tiles, WIDTH).sum(axis=1)
    for count in range(k):
        now = n_tries if count else 1
        for c in range(now):
            tried[c] = _place(uniforms[count, c], mass, squared, potential)
            if tried[c] < 0:
                return count
        if count == 0:
            squared[:] = np.float32(np.inf)
        # Values of a tile stay in the fast cache for all draws.
        for t in range(n_tiles):
            for c in range(now):
                sums[c, t] = lower_tile(turned, tried[c], t * WIDTH, mass, squared, found, c)
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
    # Whole tiles: points without mass are never drawn.
    room = -len(points) % WIDTH
    mass = np.pad(np.asarray(mass, dtype=np.float64), (0, room))
    # About their middle and of size 1, single precision has digits and range enough.
    turned = np.array(points, dtype=np.float64, order="C")
    turned -= turned.mean(axis=0)
    turned /= np.abs(turned).max(initial=0.0) or 1.0
    turned = np.ascontiguousarray(np.pad(turned.T.astype(np.float32), ((0, 0), (0, room))))
    return places[: _draw(turned, mass, np.ascontiguousarray(uniforms), places)]
