"""Greedy k-means++: of several draws by ``w D^2``, keep the one that lowers the cost most."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Floats
from daskclust.kernels.compiling import PLAIN, compiled, inner

if PLAIN:
    from daskclust.kernels.starts import _plain_greedy_tiles as _tiles
else:
    from daskclust.kernels.starts import _greedy_tiles as _tiles  # type: ignore[no-redef]

__all__ = ["Tiles", "draw_greedy", "in_tiles", "n_draws"]


#: Points of a tile.
WIDTH: int = _tiles.WIDTH
cost_of_tile: Any = _tiles.cost_of_tile
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
    for i in range(WIDTH):
        odds = mass[tile, i] * squared[tile, i]
        if odds > 0.0:
            last = tile * WIDTH + i
            if goal < odds:
                break
            goal -= odds
    return last


@compiled()
def _draw(points: Any, mass: Any, uniforms: Any, places: Any) -> int:
    k, n_tries = uniforms.shape
    n_tiles, p = points.shape[:2]
    tries = np.empty((n_tries, p), np.float32)
    tried = np.empty(n_tries, np.intp)
    costs = np.empty(n_tries)
    # Equal distances at first: one draw by mass alone, as there is nothing to compare.
    squared = np.full((n_tiles, WIDTH), np.float32(1.0))
    potential = mass.sum(axis=1)
    for count in range(k):
        now = n_tries if count else 1
        for c in range(now):
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
                    costs[c] += cost_of_tile(points, t, tries, c, mass, squared)
            best = int(np.argmin(costs))
        # Distances of the best once more: those of all draws would not fit the cache.
        for t in range(n_tiles):
            potential[t] = lower_tile(points, t, tries, best, mass, squared)
        places[count] = tried[best]
    return k


class Tiles(NamedTuple):
    """Points that are drawn from, by :func:`in_tiles`.

    Attributes
    ----------
    points : ndarray of shape (tiles, p, WIDTH), float32
    mass : ndarray of shape (tiles, WIDTH), float64
    """

    points: NDArray[np.float32]
    mass: Floats


def in_tiles(points: Floats, mass: Floats) -> Tiles:
    """Lay out points for :func:`draw_greedy`: each tile by itself, its points side by side.

    Parameters
    ----------
    points : ndarray of shape (m, p), float64
    mass : ndarray of shape (m,), float64, non-negative, not all zero
        Points without mass are not drawn.

    Examples
    --------
    >>> import numpy as np
    >>> in_tiles(np.zeros((3, 2)), np.ones(3)).mass.sum()
    np.float64(3.0)
    """
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


def draw_greedy(tiles: Tiles, k: int, uniforms: Floats) -> Any:
    """Draw points one after another by ``mass D^2``, each the best of several draws.

    Parameters
    ----------
    tiles : Tiles
        The m points, and their mass.
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
    the odds of a draw.  Cost ``O(m k l p)``; memory ``O(m p)``.

    References
    ----------
    .. [1] Arthur, D., Vassilvitskii, S. (2007). k-means++: the advantages of careful
       seeding. SODA; section 7.

    Examples
    --------
    The first draw is at 3.0; of the draws 0.0 and 4.0 after it, 0.0 leaves less.

    >>> import numpy as np
    >>> tiles = in_tiles(np.array([[0.0], [0.0], [3.0], [4.0]]), np.ones(4))
    >>> draw_greedy(tiles, 2, np.array([[0.5, 0.0], [0.96, 0.0]]))
    array([2, 0])
    """
    places = np.zeros(k, dtype=np.intp)
    return places[: _draw(*tiles, np.ascontiguousarray(uniforms), places)]
