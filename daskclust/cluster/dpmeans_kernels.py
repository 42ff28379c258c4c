"""Kernel of DP-means: create clusters row by row, on one segment of rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Floats, Ints
from daskclust.core.kernels.compiling import compiled
from daskclust.core.kernels.nearest.row_loops import row_distance


@compiled()
def _add_founders(x, weights, delta, room, first, labels, distances, points, founders):
    """Visit the rows from the first that is too far; return the number of founders."""
    count = 0
    for i in range(founders[0], x.shape[0]):
        nearest, label = distances[i], labels[i]
        for f in range(count):
            squared = row_distance(x, i, points, f, (), 1.0, (), ())
            # If two clusters are equally near, the older one is selected.
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


def add_founders(
    x: Array,
    weight: Floats,
    delta: float,
    room: int,
    first: int,
    labels: Ints,
    distances: Floats,
) -> NDArray[np.intp]:
    """Create a cluster for each row farther than delta (squared) from all clusters.

    This is the inner loop of Algorithm 3 of the lecture notes for consecutive rows.  ``labels`` and
    ``distances`` must be those of the nearest existing cluster.  Both are updated for rows that are
    nearer to a new cluster.  New clusters are numbered from ``first``; there are at most ``room``.
    Return the positions of the founders.  O(n m p) for m founders.
    """
    far = np.flatnonzero((distances > delta) & (weight > 0))[: max(room, 0)]
    if not len(far):
        return far
    # The number of founders is at most the number of far rows, and at most ``room``.
    most = min(int(np.count_nonzero(distances > delta)), room)
    founders = np.empty(most, np.intp)
    founders[0] = far[0]
    points = np.empty((most, x.shape[1]))
    x = np.ascontiguousarray(x)
    count = _add_founders(x, weight, delta, most, first, labels, distances, points, founders)
    return founders[:count]
