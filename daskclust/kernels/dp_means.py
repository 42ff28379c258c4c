"""Rows that found clusters of their own, one after another, on ONE segment of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Array, Floats, Ints
from daskclust.kernels.compiling import compiled
from daskclust.kernels.nearest.implementation import row_distance


@compiled()
def _found(
    x: Any,
    weights: Any,
    delta: Any,
    room: Any,
    first: Any,
    labels: Any,
    distances: Any,
    points: Any,
    founders: Any,
    unused: Any,
) -> int:
    """Run through the rows from the first that is too far; return the number of founders."""
    count = 0
    for i in range(founders[0], x.shape[0]):
        nearest, label = distances[i], labels[i]
        for f in range(count):
            squared = row_distance(x, i, points, f, unused, 1.0, points)
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
    """Let rows farther than delta from all clusters found new ones, in row order.

    The inner loop of Algorithm 3 of the lecture notes for some consecutive rows,
    once their distances to the clusters that are older than all of them are known.

    Parameters
    ----------
    x : ndarray of shape (n, p)
    weight : ndarray of shape (n,), float64
        Rows of weight 0 are absent, hence found nothing.
    delta : float
        Squared distance beyond which a row founds a cluster.
    room : int
        New clusters at most.
    first : int
        Number of the first new cluster.
    labels : ndarray of shape (n,), int64
    distances : ndarray of shape (n,), float64
        Nearest older cluster of each row and the squared distance to it; where a
        new cluster is nearer, both are changed in place.

    Returns
    -------
    ndarray of intp
        Places of the rows that founded a cluster, ascending.

    Notes
    -----
    O(n m p) for m founders, from the first of them on; nothing where no row is
    too far.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([[0.0], [5.0], [1.0], [5.5]])
    >>> labels, distances = np.zeros(4, int), x[:, 0] ** 2
    >>> found_in_order(x, np.ones(4), 4.0, 10, 1, labels, distances), labels
    (array([1]), array([0, 1, 0, 1]))
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
    count = _found(x, weight, delta, most, first, labels, distances, points, founders, np.empty(0))
    return founders[:count]
