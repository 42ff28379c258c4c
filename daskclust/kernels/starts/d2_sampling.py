"""D^2 sampling: distances to the nearest of a set of points that grows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust.kernels.compiling import compiled
from daskclust.kernels.nearest.implementation import (
    LINE_BYTES,
    prefetch,
    row_distance,
    row_distance_observed,
)

__all__ = ["approach", "approach_observed", "draw_apart"]

Float = NDArray[np.float64]

_NO_WEIGHTS = np.empty(0)
#: Promising candidates that a row tries before it goes through all.
_PROBES = 32


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


@compiled()
def _probe(
    x: Any,
    i: int,
    candidates: Any,
    order: Any,
    apart: Any,
    squared: float,
    enough: float,
    unused: Any,
) -> float:
    """Lower a distance by the candidates that lie about as far from the first one as the row."""
    high = np.searchsorted(apart, squared)
    low, goal = high - 1, squared
    for _ in range(_PROBES):
        if high < apart.size and (low < 0 or apart[high] - goal < goal - apart[low]):
            c = order[high]
            high += 1
        elif low >= 0:
            c = order[low]
            low -= 1
        else:
            break
        squared = min(squared, row_distance(x, i, candidates, c, unused, 1.0, candidates))
        if squared < enough:
            break
    return squared


@compiled()
def _measure(
    x: Any,
    candidates: Any,
    order: Any,
    apart: Any,
    places: Any,
    arrival: Any,
    limit: float,
    distance: Any,
    seen: Any,
    unused: Any,
) -> None:
    lines = x.shape[1] * x.itemsize // LINE_BYTES + 1
    for t in range(places.size):
        i = places[t]
        # Rows lie anywhere: memory is asked for those to come.
        ahead = places[min(t + 2, places.size - 1)]
        for line in range(lines):
            prefetch(x, ahead, line)
        squared, c = distance[i], seen[i]
        if c == 1 and limit < np.inf and squared * limit >= arrival[t]:
            enough = arrival[t] / limit if limit > 0.0 else 0.0
            squared = _probe(x, i, candidates, order, apart, squared, enough, unused)
        while c < candidates.shape[0] and squared * limit >= arrival[t]:
            squared = min(squared, row_distance(x, i, candidates, c, unused, 1.0, candidates))
            c += 1
        distance[i] = squared
        seen[i] = c


def approach(
    x: NDArray[Any],
    candidates: Float,
    places: NDArray[np.intp],
    arrival: Float,
    limit: float,
    distance: Float,
    seen: NDArray[np.int32],
) -> None:
    """Measure rows against the candidates they have not seen while they lead a race, in place.

    Rows that have seen the first candidate only try those first that lie about as far from
    it as they do: where clusters are far apart, one of their own is soon among them.

    Parameters
    ----------
    x : ndarray of shape (n, p), float32 or float64, C-contiguous
    candidates : ndarray of shape (m, p), float64, C-contiguous
    places : ndarray of shape (s,), intp
        Rows to measure.
    arrival : ndarray of shape (s,), float64
        When each row would arrive at a distance of 1; it arrives at ``arrival / D^2``.
    limit : float
        A row that would arrive later is left alone; infinite to measure all.
    distance : ndarray of shape (n,), float64
        ``D^2`` of each row to the nearest of some candidates, among them all it has seen;
        changed.
    seen : ndarray of shape (n,), int32
        How many candidates, the first, each row has seen; changed.

    Examples
    --------
    >>> import numpy as np
    >>> x, candidates = np.array([[0.0], [9.0]]), np.array([[5.0], [8.0], [9.0], [0.0]])
    >>> distance, seen = np.full(2, np.inf), np.zeros(2, dtype=np.int32)
    >>> approach(x, candidates, np.array([0, 1]), np.array([1.0, 40.0]), 20.0, distance, seen)
    >>> distance, seen
    (array([0., 1.]), array([4, 2], dtype=int32))
    """
    apart = ((candidates[1:] - candidates[0]) ** 2).sum(axis=1)
    order = np.argsort(apart)
    _measure(
        x,
        candidates,
        order + 1,
        apart[order],
        places,
        arrival,
        limit,
        distance,
        seen,
        _NO_WEIGHTS,
    )


@compiled()
def _measure_observed(
    x: Any,
    candidates: Any,
    places: Any,
    arrival: Any,
    limit: float,
    distance: Any,
    seen: Any,
    ones: Any,
) -> None:
    for t in range(places.size):
        i = places[t]
        squared, c = distance[i], seen[i]
        while c < candidates.shape[0] and squared * limit >= arrival[t]:
            squared = min(
                squared, row_distance_observed(x, i, candidates, c, ones, 1.0, candidates)
            )
            c += 1
        distance[i] = squared
        seen[i] = c


def approach_observed(
    x: NDArray[Any],
    candidates: Float,
    places: NDArray[np.intp],
    arrival: Float,
    limit: float,
    distance: Float,
    seen: NDArray[np.int32],
) -> None:
    """As :func:`approach`, for rows with missing values: by distances over what they observe.

    Examples
    --------
    >>> import numpy as np
    >>> x, candidates = np.array([[0.0, np.nan]]), np.array([[5.0, 1.0], [1.0, 8.0]])
    >>> distance, seen = np.full(1, np.inf), np.zeros(1, dtype=np.int32)
    >>> approach_observed(x, candidates, np.array([0]), np.ones(1), np.inf, distance, seen)
    >>> distance, seen
    (array([1.]), array([2], dtype=int32))
    """
    ones = np.ones(x.shape[1])
    _measure_observed(x, candidates, places, arrival, limit, distance, seen, ones)
