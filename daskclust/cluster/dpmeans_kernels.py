"""Kernel of DP-means: create clusters row by row, in a segment of rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Floats, Ints
from daskclust.core.kernels.compiling import compiled
from daskclust.core.kernels.nearest.row_loops import row_distance


@compiled()
def _add_founders(x, weights, delta, max_new, first, labels, distances, points, founders):
    """Visit rows from the first founder on; return the number of founders."""
    count = 0
    for i in range(founders[0], x.shape[0]):
        nearest, label = distances[i], labels[i]
        for f in range(count):
            squared = row_distance(x, i, points, f, (), 1.0, (), ())
            # Of equally near clusters, the older cluster is selected.
            if squared < nearest:
                nearest, label = squared, first + f
        if nearest > delta and count < max_new and weights[i] > 0.0:
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
    max_new: int,
    first: int,
    labels: Ints,
    distances: Floats,
) -> NDArray[np.intp]:
    """Create a cluster for each row farther than delta (squared) from all clusters.

    ``labels`` and ``distances`` are the nearest existing clusters and their distances.  They are
    updated for rows nearer to a new cluster.  At most ``max_new`` clusters are created, numbered
    from ``first``.  Return the positions of the m founders.  Cost: O(n m p).
    """
    far = np.flatnonzero((distances > delta) & (weight > 0))[: max(max_new, 0)]
    if not len(far):
        return far
    max_founders = min(int(np.count_nonzero(distances > delta)), max_new)
    founders = np.empty(max_founders, np.intp)
    founders[0] = far[0]
    points = np.empty((max_founders, x.shape[1]))
    x = np.ascontiguousarray(x)
    count = _add_founders(
        x, weight, delta, max_founders, first, labels, distances, points, founders
    )
    return founders[:count]
