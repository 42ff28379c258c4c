"""D^2 sampling: distances to the nearest of a set of points that grows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Array, Floats
from daskclust.kernels.compiling import compiled
from daskclust.kernels.nearest.assign import nearest
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
    """Draw k points one after another with probability ``mass D^2`` (k-means++); return places.

    Points without mass are drawn only where no others are away from those drawn.  There is a
    uniform number for each draw; the ``n_first`` first points count as drawn already.  Places are
    fewer where the others repeat points that were drawn.  Cost ``O(m k p)``.
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
    """Measure the rows at ``places`` against the candidates that they have not seen, in place.

    ``distance`` (n,) is ``D^2`` to the nearest of the first ``seen`` (n,) candidates.  By the
    kernel that assigns rows to centers: it measures all candidates in the time in which single
    distances measure a twentieth of them, so none is worth being left out.
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
