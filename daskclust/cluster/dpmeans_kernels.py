"""Rows that found clusters of their own, one after another, on ONE segment of rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Floats, Ints
from daskclust.core.kernels.compiling import compiled
from daskclust.core.kernels.nearest.row_loops import row_distance


@compiled()
def _found(x, weights, delta, room, first, labels, distances, points, founders):
    """Run through the rows from the first that is too far; return the number of founders."""
    count = 0
    for i in range(founders[0], x.shape[0]):
        nearest, label = distances[i], labels[i]
        for f in range(count):
            squared = row_distance(x, i, points, f, (), 1.0, (), ())
            # A tie goes to the older cluster.
            if squared < nearest:
                nearest, label = squared, first + f
        if nearest > delta and count < room and weights[i] > 0.0:
            for j in range(x.shape[1]):
                points[count, j] = x[i, j]
            founders[count] = i
            nearest, label = 0.0, first + count
            count += 1
        distances[i] = nearest
        labels[i] = label
    return count


def found_in_order(
    x: Array,
    weight: Floats,
    delta: float,
    room: int,
    first: int,
    labels: Ints,
    distances: Floats,
) -> NDArray[np.intp]:
    """Let rows farther than delta (squared) from all clusters found new ones; return places.

    The inner loop of Algorithm 3 of the lecture notes for consecutive rows, once ``labels`` and
    ``distances`` are those of the nearest older cluster; both are changed where a new one, numbered
    from ``first``, is nearer.  At most ``room`` are new.  O(n m p) for m founders.
    """
    far = np.flatnonzero((distances > delta) & (weight > 0))[: max(room, 0)]
    if not len(far):
        return far
    # No more rows found a cluster than are too far now, or than there is room for.
    most = min(int(np.count_nonzero(distances > delta)), room)
    founders = np.empty(most, np.intp)
    founders[0] = far[0]
    points = np.empty((most, x.shape[1]))
    x = np.ascontiguousarray(x)
    count = _found(x, weight, delta, most, first, labels, distances, points, founders)
    return founders[:count]
