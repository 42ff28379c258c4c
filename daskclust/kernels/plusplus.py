"""Sequential D^2 sampling among few weighted points that one process holds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["draw_apart"]

Float = NDArray[np.float64]

#: Points whose distances are worked out together: their sums stay in the first-level cache.
_TOGETHER = 64


@njit(nogil=True, cache=True)
def _approach(columns: Any, place: int, squared: Any) -> None:
    """Lower squared distances to those to one of the points; a column a point."""
    p, m = columns.shape
    sums = np.empty(_TOGETHER)
    for start in range(0, m, _TOGETHER):
        size = min(_TOGETHER, m - start)
        sums[:] = 0.0
        # Points are SIMD lanes, so that every sum is taken in the order of the features.
        for j in range(p):
            here = columns[j, place]
            for i in range(size):
                difference = columns[j, start + i] - here
                sums[i] += difference * difference
        for i in range(size):
            squared[start + i] = min(squared[start + i], sums[i])


@njit(nogil=True, cache=True)
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


@njit(nogil=True, cache=True)
def _draw(columns: Any, mass: Any, uniforms: Any, places: Any, count: int) -> int:
    squared = np.full(columns.shape[1], np.inf)
    for t in range(count):
        _approach(columns, places[t], squared)
    while count < places.size:
        if count == 0:
            place = _pick(np.ones(mass.size), mass, True, uniforms[0])
        else:
            place = _pick(squared, mass, True, uniforms[count])
            if place < 0:
                # Where all that is left attracts no row, it is better than a repeated point.
                place = _pick(squared, mass, False, uniforms[count])
        if place < 0:
            break
        places[count] = place
        count += 1
        _approach(columns, place, squared)
    return count


def draw_apart(points: Float, mass: Float, k: int, uniforms: Float, n_first: int = 0) -> Any:
    """Draw points one after another with probability ``mass D^2`` (k-means++).

    Parameters
    ----------
    points : ndarray of shape (m, p), float64
    mass : ndarray of shape (m,), float64, non-negative, not all zero
        Points without mass are drawn only where no others are away from those drawn.
    k : int
        Points to draw, at most m.
    uniforms : ndarray of shape (k,), float64, in [0, 1)
        One for each draw; those of the first points are not used.
    n_first : int, default=0
        So many points, the first, count as drawn already.

    Returns
    -------
    ndarray of shape (k,), intp
        Places of the points, in the order of their draw; shorter where the others
        repeat points that were drawn.

    Notes
    -----
    Cost ``O(m k p)``; memory: a copy of the points.

    Examples
    --------
    >>> import numpy as np
    >>> points = np.array([[0.0], [0.0], [3.0], [4.0]])
    >>> draw_apart(points, np.ones(4), 3, np.array([0.0, 0.5, 0.5]))
    array([0, 3, 2])
    """
    places = np.zeros(k, dtype=np.intp)
    places[:n_first] = np.arange(n_first)
    columns = np.ascontiguousarray(points.T)
    return places[: _draw(columns, mass, uniforms, places, n_first)]
