"""Lloyd's algorithm for several restarts at once, and what its estimators share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Protocol

import numpy as np

from daskclust._types import Bools, Floats, Ints
from daskclust.engine import Carry, Rows
from daskclust.estimator.base import BaseClusterer, warn_few_distinct
from daskclust.estimator.fitting import DataAlone, OpenData, Step, best_restart, row_labels
from daskclust.estimator.inputs import check_integer, check_missing, check_real
from daskclust.estimator.partial_labels import PartialLabels
from daskclust.estimator.spaces import EUCLIDEAN, Metric
from daskclust.kernels.nearest.kept import BYTES_A_ROW, CAN_KEEP, moves_of
from daskclust.persistence.schema import Array, Entry, Number
from daskclust.reduction import (
    ASSIGN,
    FARTHEST,
    CenterSets,
    Clusters,
    ClusterStatistics,
    FarthestRequest,
    RowLabels,
)
from daskclust.reduction.assign import ASSIGN_KEPT, MovedCenters
from daskclust.starts.sampled import is_large, note_start

#: Farthest rows asked for, for each empty cluster: some may be unfit.
_SPARE = 4
#: Iterations before the first with momentum: a fit that ends with them converges too fast to gain.
_PLAIN = 3
#: Bounds of rows are kept between passes for so many centers of so many features, and for centers
#: of more features that are large together.  Of fewer, from so many products on, while centers move
#: by less than a share of the spread of a feature: otherwise scores cost no more.
_KEPT_CENTERS, KEPT_WIDTH, _KEPT_FEATURES = 1000, 8, 64
KEPT_PRODUCTS, _CALM = 4096, 0.1
#: Bytes of centers whose passes a lost worker may have to make again, and passes at least.
_AGAIN, _PASSES = 2**27, 4


@dataclass(frozen=True)
class LloydState:
    """All restarts of one fit.

    `centers` (r, k, p). `inertia` (r,): of the last assignment; of the present centers where
    ``settled``. `converged` (r,), bool: whether the restart moves no more than the tolerance.
    `settled` (r,), bool: whether it does not move at all: inertia agrees with the centers. `n_iter`
    (r,). `counts` (r, k): weight of the rows of which each center is the mean. `before` (r, k, p):
    centers an iteration before; the present ones where momentum begins anew.
    """

    centers: Annotated[Floats, "f r k p"]
    inertia: Annotated[Floats, "f r"]
    converged: Annotated[Bools, "b r"]
    settled: Annotated[Bools, "b r"]
    n_iter: Annotated[Ints, "i r"]
    counts: Annotated[Floats, "f r k"]
    before: Annotated[Floats, "f r k p"]


def relocate_empty(
    rows: Rows,
    centers: Floats,
    clusters: Clusters,
    *,
    feature_weights: Floats | None = None,
    shift: Floats | None = None,
) -> Clusters:
    """Give empty clusters, of which there are some, the rows farthest from their centers; one pass.

    `centers` (k, p): by which rows were assigned. `clusters`: statistics of that assignment. Ties
    go by row number. A cluster stays empty where every row lies on its center.
    """
    n_empty = int((clusters.counts <= 0).sum())
    missing = clusters.masses is not None
    request = FarthestRequest(centers, _SPARE * n_empty, feature_weights, shift, missing)
    far = rows.reduce(FARTHEST, request)["x"]
    founders = ((v[:-2], v[-2], int(v[-1])) for v in far)
    return found_clusters(clusters, founders, centers)


def found_clusters(
    clusters: Clusters, founders: Iterable[tuple[Floats, float, int]], centers: Floats
) -> Clusters:
    """Make each empty cluster of one row, taken from the cluster it was in.

    `founders`: (row, weight, its cluster), best first. What a founder misses is taken from the
    center it had. Where founders are too few, clusters stay empty.
    """
    sums, counts = clusters.sums.copy(), clusters.counts.copy()
    masses = None if clusters.masses is None else clusters.masses.copy()
    waiting = np.flatnonzero(counts <= 0).tolist()
    for row, weight, donor in founders:
        if not waiting:
            break
        if counts[donor] <= weight:
            # The only row of its cluster: moving it would empty that one.
            continue
        k = waiting.pop(0)
        counts[k] = weight
        counts[donor] -= weight
        gone = np.isnan(row)
        sums[k] = weight * np.where(gone, centers[donor], row)
        sums[donor] -= np.where(gone, 0.0, sums[k])
        if masses is not None:
            masses[k] = weight
            masses[donor] -= np.where(gone, 0.0, weight)
    return Clusters(sums, counts, masses)


class ClassClusters(Protocol):
    """Labeled rows, and the clusters of their classes: the first, in the order of the classes."""

    @property
    def labels(self) -> PartialLabels:
        """Labels as given: what a checkpoint belongs to, besides data and parameters."""

    @property
    def sizes(self) -> Ints:
        """Clusters of each class, at least one."""

    def centers(self, seed: int) -> Floats:
        """Find a starting center for each of these clusters."""

    def joined(self, stats: ClusterStatistics, centers: Floats) -> ClusterStatistics:
        """Add the labeled rows to statistics of the others, which centers (r, k, p) have made."""

    def assigned(self, centers: Floats) -> RowLabels:
        """Cluster of each labeled row, for one set of centers."""


@dataclass
class _LastPass:
    """What helps the next assignment pass: what blocks kept, the centers, and their spread.

    That is the root of the mean square of a row's distance to its center in one feature.
    """

    carry: Carry = field(default_factory=Carry)
    centers: Floats | None = None
    spread: float = 0.0
    #: Passes that may follow before a lost worker would have too many to make again.
    n_left: int = 0


@dataclass(frozen=True)
class LloydProblem(DataAlone):
    """Lloyd's algorithm for several restarts, which share every pass.

    `rows`: those that are assigned to the nearest center, in the metric's space. `start`: finds the
    centers of all restarts, (r, k, p), there. `tolerance`: squared shift of a restart's centers, up
    to which it has converged. `shift` (p,): a point amid the data. `clamped`: the classes where
    labeled rows, which ``rows`` leaves out then, keep to the clusters of their class whatever their
    distance. `momentum`: how far the centers go on after the first `n_plain` iterations, as a share
    of their last move; below 1.

    With momentum b, rows are assigned to ``y = m + b (m - m')``, of the means m of the last
    iteration and m' of the one before (Nesterov's method, as a step of Lloyd's algorithm is one
    of gradient descent).  Where the means turn back, against their last move, momentum begins
    anew (O'Donoghue and Candes).  Centers go beyond the means for the next assignment only: the
    final centers are means, and converged are points that differ from their means by no more
    than the tolerance.  Near a fixed point a plain iteration multiplies errors by eigenvalues e
    in [0, 1), one with momentum by ``sqrt(b e)`` where e is below ``4 b / (1 + b)^2``: slow
    directions gain, fast ones lose.  Inertia may rise for some iterations.

    References
    ----------
    .. [1] Nesterov, Y. (1983). A method of solving a convex programming problem with
       convergence rate O(1/k^2). Soviet Mathematics Doklady 27.
    .. [2] O'Donoghue, B., Candes, E. (2015). Adaptive restart for accelerated gradient
       schemes. Foundations of Computational Mathematics 15.
    """

    kind: ClassVar[type[LloydState]] = LloydState

    rows: Rows
    start: Callable[[], Floats]
    max_iter: int
    tolerance: float
    metric: Metric = EUCLIDEAN
    shift: Floats | None = None
    classes: ClassClusters | None = None
    clamped: ClassClusters | None = None
    missing: bool = False
    momentum: float = 0.0
    n_plain: int = _PLAIN
    _last: _LastPass = field(default_factory=_LastPass, init=False, compare=False, repr=False)

    def identity(self) -> Mapping[str, Any]:
        return {} if self.classes is None else {"labels": self.classes.labels.digest()}

    def begin(self) -> LloydState:
        centers = self.start()
        r = len(centers)
        return LloydState(
            centers,
            np.full(r, np.inf),
            np.zeros(r, bool),
            np.zeros(r, bool),
            np.zeros(r, np.int64),
            np.zeros(centers.shape[:2]),
            centers,
        )

    def _assign(self, centers: Floats) -> ClusterStatistics:
        """Make a pass, with the help of the one before where that pays."""
        sets = CenterSets(centers, shift=self.shift, missing=self.missing)
        r, k, p = centers.shape
        rows, last = self.rows, self._last
        pays = k >= _KEPT_CENTERS or (p >= _KEPT_FEATURES and is_large(k, p))
        able = r == 1 and CAN_KEEP and not self.missing
        able &= p >= KEPT_WIDTH and k * p >= KEPT_PRODUCTS and rows.can_keep(BYTES_A_ROW)
        moves = None
        if able and last.centers is not None:
            moves = moves_of(last.centers, centers[0], self.shift, rows.dtype)
            pays |= moves.most <= _CALM * last.spread
        stats: ClusterStatistics
        if pays and able:
            if not last.n_left:
                last.carry, last.n_left = Carry(), max(_PASSES, _AGAIN // centers.nbytes)
            known = None if last.carry.held is None else moves
            stats = rows.reduce(ASSIGN_KEPT, MovedCenters(sets, known), last.carry)
            last.n_left -= 1
        else:
            last.carry, last.n_left = Carry(), 0
            stats = rows.reduce(ASSIGN, sets)
        last.centers = centers[0] if able else None
        if able:
            weight = float(stats.counts.sum()) or 1.0
            last.spread = float(np.sqrt(stats.inertia.sum() / (p * weight)))
        return stats if self.clamped is None else self.clamped.joined(stats, centers)

    def moved(
        self, points: Floats, before: Floats, stats: ClusterStatistics, at: int
    ) -> tuple[Floats, Floats, Floats]:
        """Return means and weights of one of the assigned sets, and from where momentum counts.

        `points`, `before` (k, p): what rows were assigned to, and the means before. Momentum counts
        from these, or begins anew at the new means: where these turn back, and for clusters that
        were empty and are refilled.
        """
        found = clusters = stats.of(at)
        if (clusters.counts <= 0).any():
            found = relocate_empty(self.rows, points, clusters, shift=self.shift)
        means = self.metric.project(found.means(points))
        filled = clusters.counts[:, None]
        turned = (filled * (points - means) * (means - before)).sum() > 0
        return means, found.counts, means if turned else np.where(filled > 0, before, means)

    def ahead(self, before: Floats, means: Floats, n_iter: int) -> Floats:
        """Points to which rows are assigned after so many iterations."""
        if self.momentum == 0.0 or n_iter < self.n_plain:
            return means
        return self.metric.project(means + self.momentum * (means - before))

    def step(self, state: LloydState) -> Step[LloydState]:
        """Assign all rows and move the centers of the restarts that still move."""
        active = np.flatnonzero(~state.converged)
        points = np.stack(
            [self.ahead(state.before[r], state.centers[r], int(state.n_iter[r])) for r in active]
        )
        stats = self._assign(points)
        before = state.before.copy()
        centers, inertia = state.centers.copy(), state.inertia.copy()
        converged, settled = state.converged.copy(), state.settled.copy()
        n_iter, counts = state.n_iter.copy(), state.counts.copy()
        shifts: list[float] = []
        for at, r in enumerate(active):
            centers[r], counts[r], before[r] = self.moved(points[at], state.centers[r], stats, at)
            inertia[r] = stats.inertia[at].sum()
            moved = float(((centers[r] - points[at]) ** 2).sum())
            shifts.append(moved)
            settled[r] = moved == 0.0
            converged[r] = moved <= self.tolerance
            n_iter[r] += 1
        return Step(
            state=LloydState(centers, inertia, converged, settled, n_iter, counts, before),
            objective=float(inertia.min()),
            center_shift=float(np.sqrt(max(shifts))),
            finished=bool(converged.all()),
        )

    def settle(self, state: LloydState) -> LloydState:
        """Make the inertia that of the present centers; a pass where centers moved."""
        loose = np.flatnonzero(~state.settled)
        if not len(loose):
            return state
        inertia = state.inertia.copy()
        stats = self._assign(state.centers[loose])
        inertia[loose] = stats.inertia.sum(axis=1)
        return replace(state, inertia=inertia)

    def kept_labels(self, centers: Floats) -> Ints | None:
        """Labels that the last pass left of rows in memory, if it went to these centers."""
        last = self._last
        if self.clamped is not None or not self.metric.is_identity or last.carry.held is None:
            return None
        if last.centers is None or not np.array_equal(last.centers, centers):
            return None
        return np.concatenate([kept.labels for group in last.carry.held for kept in group])


class LloydClusterer(BaseClusterer):
    """Common to the estimators that run Lloyd's algorithm."""

    _saved_state: ClassVar[Mapping[str, Entry]] = {
        "inertia_": Number(low=0),
        # Models of before have none.
        "counts_": Array("k", low=0, optional=True),
    }
    _resumes_with: ClassVar[tuple[str, ...]] = ("max_iter",)

    def _check_parameters(self) -> None:
        check_integer(self.n_clusters, "n_clusters", 1)
        check_real(self.tol, "tol", 0)
        check_real(self.oversampling_factor, "oversampling_factor", 0, boundaries="neither")
        check_integer(self.init_rounds, "init_rounds", 1)
        if self.n_init != "auto":
            check_integer(self.n_init, "n_init", 1)
        check_missing(self)

    def _finish(
        self,
        data: OpenData,
        problem: LloydProblem,
        state: LloydState,
        history: list[dict[str, Any]],
    ) -> None:
        note_start(history, self.init, data.rows.n_rows, self.n_clusters)
        state = problem.settle(state)
        best = best_restart(state.inertia)
        self._metric = problem.metric
        self._centers = state.centers[best]
        self.cluster_centers_ = problem.metric.restore(self._centers)
        self.inertia_ = float(state.inertia[best])
        self.counts_ = state.counts[best]
        self.n_iter_ = int(state.n_iter[best])
        self.history_ = history
        n_distinct = len(np.unique(self._centers, axis=0))
        if self.n_iter_:
            # Centers of equal rows may differ by their rounding: clusters without rows tell.
            n_distinct = min(n_distinct, int((self.counts_ > 0).sum()))
        warn_few_distinct(n_distinct, self.n_clusters)
        here = isinstance(data.X, np.ndarray)
        labels = problem.kept_labels(self._centers) if here else None
        if labels is None:
            labels = row_labels(
                data,
                self._row_function(data.rows.dtype),
                None if problem.clamped is None else problem.clamped.assigned(self._centers),
            )
        self.labels_ = labels
