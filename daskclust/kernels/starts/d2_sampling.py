"""D^2 sampling: distances to the nearest of a set of points that grows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Array, Floats
from daskclust.kernels.compiling import compiled
from daskclust.kernels.nearest.assign import nearest, nearest_observed
from daskclust.kernels.nearest.implementation import row_distance

_NO_WEIGHTS = np.empty(0)
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
def _draw(points: Any, mass: Any, uniforms: Any, places: Any, n_first: int, unused: Any) -> int:
    # Equal distances at first: the first draw is by mass alone.
    squared = np.ones(points.shape[0])
    for count in range(places.size):
        if count >= n_first:
            place = _pick(squared, mass, True, uniforms[count])
            if place < 0:
                # Where all that is left attracts no row, it is better than a repeated point.
                place = _pick(squared, mass, False, uniforms[count])
            if place < 0:
                return count
            places[count] = place
        for i in range(squared.size):
            apart = row_distance(points, i, points, places[count], unused, 1.0, points)
            squared[i] = min(squared[i], apart) if count else apart
    return places.size


def draw_apart(points: Floats, mass: Floats, k: int, uniforms: Floats, n_first: int = 0) -> Any:
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
    Cost ``O(m k p)``.

    Examples
    --------
    >>> import numpy as np
    >>> points = np.array([[0.0], [0.0], [3.0], [4.0]])
    >>> draw_apart(points, np.ones(4), 3, np.array([0.0, 0.5, 0.5]))
    array([0, 3, 2])
    """
    places = np.zeros(k, dtype=np.intp)
    places[:n_first] = np.arange(n_first)
    points = np.ascontiguousarray(points)
    return places[: _draw(points, mass, uniforms, places, n_first, _NO_WEIGHTS)]


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
    """Measure rows against the candidates that they have not seen, in place.

    Parameters
    ----------
    x : ndarray of shape (n, p), float32 or float64, C-contiguous
        NaN where a value is missing, with ``missing``.
    candidates : ndarray of shape (m, p), float64, C-contiguous
    places : ndarray of shape (s,), intp
        Rows to measure.
    distance : ndarray of shape (n,), float64
        ``D^2`` of each row to the nearest of the candidates that it has seen; changed.
    seen : ndarray of shape (n,), int32
        How many candidates, the first, each row has seen; changed.
    shift : ndarray of shape (p,), float64, optional
    missing : bool, default=False
        Whether distances are over what rows observe.

    Notes
    -----
    By the kernel that assigns rows to centers: it measures all candidates in the time in which
    single distances measure a twentieth of them, so none is worth being left out.

    Examples
    --------
    >>> import numpy as np
    >>> x, candidates = np.array([[0.0], [9.0]]), np.array([[5.0], [8.0]])
    >>> distance, seen = np.array([25.0, 16.0]), np.ones(2, dtype=np.int32)
    >>> approach(x, candidates, np.array([1]), distance, seen)
    >>> distance, seen
    (array([25.,  1.]), array([1, 2], dtype=int32))
    """
    measure = nearest_observed if missing else nearest
    places = places[np.argsort(seen[places], kind="stable")]
    firsts = seen[places]
    begin = 0
    while begin < len(places) and firsts[begin] < len(candidates):
        # A call for few rows takes longer than to measure some candidates again.
        end = np.searchsorted(firsts, firsts[min(begin + _EACH, len(places)) - 1], side="right")
        unseen = candidates[firsts[begin] :]
        for start in range(begin, end, _ROWS):
            rows = places[start : min(start + _ROWS, end)]
            found = measure(x[rows], unseen, shift=shift)[1]
            distance[rows] = np.minimum(distance[rows], found)
        begin = end
    seen[places] = len(candidates)
