"""One step of Lloyd's algorithm: centers move to means, and empty clusters get far rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from daskclust.core.array_types import Floats
from daskclust.core.engine import Rows
from daskclust.core.estimator.transforms import EUCLIDEAN, Metric
from daskclust.core.reduction import FARTHEST, Clusters, ClusterStatistics, FarthestRequest

#: Momentum coefficient: fraction of the last center shift that is added to the next update.
MOMENTUM = 0.9
#: Iterations before the first one with momentum.
PLAIN_ITERATIONS = 3
#: Number of farthest rows requested per empty cluster, because some of them may be equal, or the
#: only row of a cluster.
_SPARE = 4
#: Maximum number of farthest rows that are requested, even if most of them are equal.
_MAX_FAR = 2**14

#: A row, its weight and its cluster.
Founder = tuple[Floats, float, int]


def relocate_empty(
    rows: Rows,
    centers: Floats,
    clusters: Clusters,
    *,
    feature_weights: Floats | None = None,
    shift: Floats | None = None,
) -> Clusters:
    """Give the rows farthest from their centers to the empty clusters; usually one pass.

    `centers` (k, p) are the centers of the assignment, and `clusters` its statistics.  Of equally
    far rows, the lowest number comes first.  A cluster stays empty if all rows equal their centers.
    """
    n_empty = int((clusters.counts <= 0).sum())
    missing = clusters.masses is not None
    count = _SPARE * n_empty
    while True:
        request = FarthestRequest(centers, count, feature_weights, shift, missing)
        farthest = rows.reduce(FARTHEST, request)["x"]
        founders = _merge_equal((v[:-2], v[-2], int(v[-1])) for v in farthest)
        # The last founder may have more equal rows than these.
        if len(farthest) < count or len(founders) > n_empty or count >= _MAX_FAR:
            return fill_empty(clusters, founders, centers)
        count *= 8


def _merge_equal(founders: Iterable[Founder]) -> list[Founder]:
    """Merge equal rows of a cluster, so that repeated rows are one row with the sum of weights."""
    merged: dict[tuple[bytes, int], Founder] = {}
    for row, weight, source in founders:
        key = (row + 0.0).tobytes(), source
        merged[key] = row, weight + (merged[key][1] if key in merged else 0.0), source
    return list(merged.values())


def fill_empty(clusters: Clusters, founders: Iterable[Founder], centers: Floats) -> Clusters:
    """Fill each empty cluster with one row, which is taken from another cluster.

    `founders` are sorted, the best first.  Missing values of a founder are replaced by values of
    its previous center.  If there are too few founders, clusters stay empty.
    """
    sums, counts = clusters.sums.copy(), clusters.counts.copy()
    masses = None if clusters.masses is None else clusters.masses.copy()
    empty = np.flatnonzero(counts <= 0).tolist()
    for row, weight, source in founders:
        if not empty:
            break
        if counts[source] <= weight:
            # The only row of its cluster: moving it would leave that cluster empty.
            continue
        k = empty.pop(0)
        counts[k] = weight
        counts[source] -= weight
        is_missing = np.isnan(row)
        sums[k] = weight * np.where(is_missing, centers[source], row)
        sums[source] -= np.where(is_missing, 0.0, sums[k])
        if masses is not None:
            masses[k] = weight
            masses[source] -= np.where(is_missing, 0.0, weight)
    return Clusters(sums, counts, masses)


@dataclass(frozen=True)
class LloydStep:
    """Update rule of the centers, with momentum.

    A step of Lloyd's algorithm is a step of gradient descent, so Nesterov's method [1]_ applies.
    With the momentum coefficient b, rows are assigned to the points ``y = m + b (m - m')``.  Here m
    are the means of the last iteration, and m' are the means of the iteration before.  If the means
    move back against their last shift, momentum restarts [2]_.  The final centers are means.  A fit
    has converged when the points differ from their means by at most the tolerance.

    Near a fixed point, a plain iteration multiplies errors by eigenvalues e in [0, 1).  An
    iteration with momentum multiplies them by ``sqrt(b e)`` if e is below ``4 b / (1 + b)^2``.  So
    slow directions converge faster, and fast directions slower.  Inertia may rise in some
    iterations.

    Parameters
    ----------
    rows : Rows
        Rows from which empty clusters take their new centers.
    metric : Metric
        Metric in whose space the rows are.
    shift : ndarray of shape (p,), optional
        A point near the data.
    momentum : float
        Momentum coefficient, below 1; 0 for plain iterations.
    n_plain : int
        Iterations before the first one with momentum.

    References
    ----------
    .. [1] Nesterov, Y. (1983). A method of solving a convex programming problem with
       convergence rate O(1/k^2). Soviet Mathematics Doklady 27.
    .. [2] O'Donoghue, B., Candes, E. (2015). Adaptive restart for accelerated gradient
       schemes. Foundations of Computational Mathematics 15.
    """

    rows: Rows
    metric: Metric = EUCLIDEAN
    shift: Floats | None = None
    momentum: float = 0.0
    n_plain: int = PLAIN_ITERATIONS

    def means(
        self, points: Floats, before: Floats, stats: ClusterStatistics, i: int
    ) -> tuple[Floats, Floats, Floats]:
        """Return the means and weights of assigned set number `i`, and the origin of momentum.

        `points` (k, p) are the points to which rows were assigned, and `before` (k, p) the means of
        the iteration before.  The origin of momentum is `before`, with two exceptions.  It is the
        new means if these move back, and for clusters that were empty.
        """
        refilled = clusters = stats.of(i)
        if (clusters.counts <= 0).any():
            refilled = relocate_empty(self.rows, points, clusters, shift=self.shift)
        means = self.metric.project(refilled.means(points))
        weights = clusters.counts[:, None]
        turned = (weights * (points - means) * (means - before)).sum() > 0
        return means, refilled.counts, means if turned else np.where(weights > 0, before, means)

    def ahead(self, before: Floats, means: Floats, n_iter: int) -> Floats:
        """Return the points to which rows are assigned after `n_iter` iterations."""
        # Projecting centers that have not moved may round them.
        if self.momentum == 0.0 or n_iter < self.n_plain or np.array_equal(before, means):
            return means
        return self.metric.project(means + self.momentum * (means - before))
