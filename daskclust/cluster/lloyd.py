"""Lloyd's algorithm for several restarts at once, and the base class of its estimators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Protocol

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from daskclust.core.array_types import Bools, Floats, Ints
from daskclust.core.engine import Carry, Rows
from daskclust.core.estimator.base import BaseClusterer, note_observed, warn_few_distinct
from daskclust.core.estimator.fit_loop import DataAlone, OpenData, Step, best_restart, row_labels
from daskclust.core.estimator.partial_labels import PartialLabels
from daskclust.core.estimator.transforms import Metric
from daskclust.core.estimator.validation import check_missing
from daskclust.core.initialization.centers import initial_centers
from daskclust.core.initialization.methods import note_compared_rows
from daskclust.core.initialization.problem import Initialization
from daskclust.core.initialization.samples import is_large
from daskclust.core.initialization.steps import LloydStep
from daskclust.core.kernels.nearest.bounds import BYTES_A_ROW, moves_of
from daskclust.core.persistence.schema import Array, Entry, Number
from daskclust.core.reduction import (
    ASSIGN,
    CenterSets,
    ClusterStatistics,
    RowLabels,
)
from daskclust.core.reduction.assign import ASSIGN_WITH_BOUNDS, MovedCenters
from daskclust.core.warn import warn

#: Limits for caching bounds of rows between passes.  Bounds are only cached for at least
#: ``MIN_CACHED_FEATURES`` features and ``MIN_CACHED_COORDINATES`` coordinates of all centers:
#:
#: - in every pass with at least ``_BOUNDS_CENTERS`` centers,
#: - in every pass with at least ``_BOUNDS_FEATURES`` features, if the centers are large,
#: - otherwise if no center moves more than ``_BOUNDS_MOVE`` times the spread of a feature.
_BOUNDS_CENTERS, MIN_CACHED_FEATURES, _BOUNDS_FEATURES = 1000, 8, 64
MIN_CACHED_COORDINATES, _BOUNDS_MOVE = 4096, 0.1
#: Limits of a collapsed fit.  ``_COLLAPSED`` is the maximum fraction of rows outside the largest
#: cluster, and the maximum weight of a useless cluster as a fraction of the largest weight.
#: Useless clusters explain a fraction of the variance that is at most ``_EXPLAINED`` times their
#: fraction of the rows.
_COLLAPSED, _EXPLAINED = 0.01, 3.0
#: Limits on the passes that a lost worker's cache makes necessary: bytes of their centers, and
#: number of passes.
_REPEATED_BYTES, _REPEATED_PASSES = 2**27, 4


@dataclass(frozen=True)
class LloydState:
    """State of all restarts of one fit.

    - `centers` (r, k, p).
    - `inertia` (r,): inertia of the last assignment.
    - `converged` (r,): True if the centers moved at most by the tolerance.
    - `settled` (r,): True if the centers did not move, so that `inertia` belongs to `centers`.
    - `n_iter` (r,): number of iterations.
    - `counts` (r, k): total weight of the rows of each cluster.
    - `before` (r, k, p): centers of the previous iteration, or `centers` if momentum was reset.
    - `observed` (r, k, p): True if a row of the cluster has a value of the feature.  None if the
      data have no missing values.
    """

    centers: Annotated[Floats, "f r k p"]
    inertia: Annotated[Floats, "f r"]
    converged: Annotated[Bools, "b r"]
    settled: Annotated[Bools, "b r"]
    n_iter: Annotated[Ints, "i r"]
    counts: Annotated[Floats, "f r k"]
    before: Annotated[Floats, "f r k p"]
    observed: Annotated[Bools | None, "? b r k p"] = field(default=None, kw_only=True)


class ClassClusters(Protocol):
    """Labeled rows, and the clusters of their classes, which are the first clusters."""

    @property
    def labels(self) -> PartialLabels:
        """Labels that the user passed.  A checkpoint is valid for the same labels only."""

    @property
    def sizes(self) -> Ints:
        """Number of clusters of each class, at least one."""

    def centers(self, seed: int) -> Floats:
        """Return the initial centers of these clusters."""

    def joined(self, stats: ClusterStatistics, centers: Floats) -> ClusterStatistics:
        """Add the labeled rows to statistics of the other rows for the centers (r, k, p)."""

    def assigned(self, centers: Floats) -> RowLabels:
        """Return the cluster of each labeled row, for one set of centers."""


def explain_little(centers: Floats, counts: Floats, inertia: float, small: Bools) -> bool:
    """Return True if the clusters `small` (k,) explain little variance for their number of rows.

    Clusters of far outliers explain much more variance than clusters of as many typical rows.
    """
    weight = np.where(small, counts, 0.0)
    if not weight.any():
        return False
    squared = ((centers - counts @ centers / counts.sum()) ** 2).sum(axis=1)
    limit = _EXPLAINED * weight.sum() / counts.sum()
    return bool(weight @ squared <= limit * (counts @ squared + inertia))


def useless_clusters(centers: Floats, counts: Floats, inertia: float) -> Bools:
    """Return a mask (k,) of the clusters that have few rows and are not outliers."""
    small: Bools = counts <= _COLLAPSED * counts.max()
    return small if explain_little(centers, counts, inertia, small) else np.zeros_like(small)


@dataclass
class _LastPass:
    """Data of the last assignment pass that speed up the next pass.

    `spread` is the root mean squared difference of rows and their centers, over all features.
    """

    carry: Carry = field(default_factory=Carry)
    centers: Floats | None = None
    spread: float = 0.0
    #: Number of passes until the cache is reset, which limits the passes to repeat.
    n_left: int = 0
    #: True if a collapsed restart was compared with another initialization.
    compared: bool = False


@dataclass(frozen=True)
class LloydProblem(DataAlone):
    """Lloyd's algorithm for several restarts, which share every pass.

    - `rows`: rows that are assigned to the nearest center, transformed by the metric.
    - `initialization`: determines the initial centers, the metric and the use of missing values.
    - `tolerance`: maximum squared shift of the centers of a converged restart.
    - `clamped`: clusters of labeled rows that stay in their class; `rows` then excludes these rows.
    - `momentum`: see :class:`~daskclust.core.initialization.steps.LloydStep`.
    - `fallback`: initialization of a restart that replaces a collapsed fit, if its inertia is
      smaller.
    """

    kind: ClassVar[type[LloydState]] = LloydState

    rows: Rows
    initialization: Initialization
    max_iter: int
    tolerance: float
    classes: ClassClusters | None = None
    clamped: ClassClusters | None = None
    momentum: float = 0.0
    fallback: Initialization | None = None
    _last: _LastPass = field(default_factory=_LastPass, init=False, compare=False, repr=False)

    @property
    def metric(self) -> Metric:
        return self.initialization.metric

    @property
    def shift(self) -> Floats | None:
        return self.initialization.shift

    @property
    def missing(self) -> bool:
        return self.initialization.missing

    @property
    def compared(self) -> bool:
        """True if the centers were compared with the centers of the fallback."""
        return self._last.compared

    def identity(self) -> Mapping[str, Any]:
        return {} if self.classes is None else {"labels": self.classes.labels.digest()}

    def begin(self) -> LloydState:
        centers = initial_centers(self.initialization)
        r = len(centers)
        return LloydState(
            centers,
            np.full(r, np.inf),
            np.zeros(r, bool),
            np.zeros(r, bool),
            np.zeros(r, np.int64),
            np.zeros(centers.shape[:2]),
            centers,
            observed=np.zeros(centers.shape, bool) if self.missing else None,
        )

    def _assign(self, centers: Floats) -> ClusterStatistics:
        """Run an assignment pass; reuse bounds of the previous pass if that is faster."""
        sets = CenterSets(centers, shift=self.shift, missing=self.missing)
        r, k, p = centers.shape
        rows, last_pass = self.rows, self._last
        is_faster = k >= _BOUNDS_CENTERS or (p >= _BOUNDS_FEATURES and is_large(k, p))
        is_possible = r == 1 and not self.missing and not rows.is_sparse
        is_possible &= (
            p >= MIN_CACHED_FEATURES
            and k * p >= MIN_CACHED_COORDINATES
            and rows.can_keep(BYTES_A_ROW)
        )
        moves = None
        if is_possible and last_pass.centers is not None:
            moves = moves_of(last_pass.centers, centers[0], self.shift, rows.dtype)
            is_faster |= moves.most <= _BOUNDS_MOVE * last_pass.spread
        stats: ClusterStatistics
        if is_faster and is_possible:
            if not last_pass.n_left:
                last_pass.carry, last_pass.n_left = (
                    Carry(),
                    max(_REPEATED_PASSES, _REPEATED_BYTES // centers.nbytes),
                )
            usable_moves = None if last_pass.carry.cache is None else moves
            stats = rows.reduce(
                ASSIGN_WITH_BOUNDS, MovedCenters(sets, usable_moves), last_pass.carry
            )
            last_pass.n_left -= 1
        else:
            last_pass.carry, last_pass.n_left = Carry(), 0
            stats = rows.reduce(ASSIGN, sets)
        last_pass.centers = centers[0] if is_possible else None
        if is_possible:
            weight = float(stats.counts.sum()) or 1.0
            last_pass.spread = float(np.sqrt(stats.inertia.sum() / (p * weight)))
        return stats if self.clamped is None else self.clamped.joined(stats, centers)

    def step(self, state: LloydState) -> Step[LloydState]:
        """Assign all rows and move the centers of the restarts that still move."""
        move = LloydStep(self.rows, self.metric, self.shift, self.momentum)
        active = np.flatnonzero(~state.converged)
        momentum_centers = np.stack(
            [move.ahead(state.before[r], state.centers[r], int(state.n_iter[r])) for r in active]
        )
        stats = self._assign(momentum_centers)
        before = state.before.copy()
        centers, inertia = state.centers.copy(), state.inertia.copy()
        converged, settled = state.converged.copy(), state.settled.copy()
        n_iter, counts = state.n_iter.copy(), state.counts.copy()
        observed = None if state.observed is None else state.observed.copy()
        shifts: list[float] = []
        for position, r in enumerate(active):
            centers[r], counts[r], before[r] = move.means(
                momentum_centers[position], state.centers[r], stats, position
            )
            if observed is not None and stats.masses is not None:
                # An empty cluster got one row.
                observed[r] = (stats.masses[position] > 0) | (stats.counts[position] <= 0)[:, None]
            inertia[r] = stats.inertia[position].sum()
            squared_shift = float(((centers[r] - momentum_centers[position]) ** 2).sum())
            shifts.append(squared_shift)
            settled[r] = squared_shift == 0.0
            converged[r] = squared_shift <= self.tolerance
            n_iter[r] += 1
        new_state = LloydState(
            centers, inertia, converged, settled, n_iter, counts, before, observed=observed
        )
        if converged.all():
            new_state = self._repaired(new_state)
        return Step(
            state=new_state,
            objective=float(new_state.inertia.min()),
            center_shift=float(np.sqrt(max(shifts))),
            finished=bool(new_state.converged.all()),
        )

    def _repaired(self, state: LloydState) -> LloydState:
        """Replace the centers of the best restart if they collapsed and the fallback is better.

        This happens at most once per fit.  It takes the passes of the fallback, and one more.
        """
        best = best_restart(state.inertia)
        centers, counts = state.centers[best], state.counts[best]
        if self.fallback is None or self._last.compared or self.missing:
            return state
        useless = useless_clusters(centers, counts, float(state.inertia[best]))
        if not useless.any():
            return state
        self._last.compared = True
        new_centers = initial_centers(self.fallback)
        stats = self._assign(new_centers)
        inertia = stats.inertia.sum()
        if not inertia < state.inertia[best]:
            return state
        warn(
            f"{useless.sum()} of {len(useless)} clusters contained "
            f"{counts[useless].sum() / counts.sum():.2%} of the rows, and these rows are not "
            "outliers. The fit continued from the centers of "
            'init="k-means||".',
            ConvergenceWarning,
        )
        arrays = {
            name: getattr(state, name).copy()
            for name in ("centers", "before", "inertia", "counts", "converged", "settled")
        }
        arrays["centers"][best] = arrays["before"][best] = new_centers[0]
        arrays["inertia"][best], arrays["counts"][best] = inertia, stats.counts[0]
        arrays["converged"][best] = arrays["settled"][best] = False
        return replace(state, **arrays)

    def settle(self, state: LloydState) -> LloydState:
        """Compute the inertia of the current centers, in one pass if they moved."""
        unsettled = np.flatnonzero(~state.settled)
        if not len(unsettled):
            return state
        inertia = state.inertia.copy()
        stats = self._assign(state.centers[unsettled])
        inertia[unsettled] = stats.inertia.sum(axis=1)
        return replace(state, inertia=inertia)

    def last_labels(self, centers: Floats) -> Ints | None:
        """Return the labels of rows in memory from the last pass, if it used these centers."""
        last = self._last
        if self.clamped is not None or not self.metric.is_identity or last.carry.cache is None:
            return None
        if last.centers is None or not np.array_equal(last.centers, centers):
            return None
        return np.concatenate([bounds.labels for group in last.carry.cache for bounds in group])


class LloydClusterer(BaseClusterer):
    """Base class of the estimators that run Lloyd's algorithm."""

    _saved_state: ClassVar[Mapping[str, Entry]] = {
        "inertia_": Number(low=0),
        # Models of earlier versions do not have counts.
        "counts_": Array("k", low=0, optional=True),
    }
    _resumes_with: ClassVar[tuple[str, ...]] = ("max_iter",)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_missing(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _finish(
        self,
        data: OpenData,
        problem: LloydProblem,
        state: LloydState,
        history: list[dict[str, Any]],
    ) -> None:
        note_compared_rows(history, self.init, data.rows.n_rows, self.n_clusters)
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
            # Centers of equal rows may differ by rounding, so count clusters that have rows.
            n_distinct = min(n_distinct, int((self.counts_ > 0).sum()))
        warn_few_distinct(n_distinct, self.n_clusters)
        counts, total = self.counts_, float(self.counts_.sum())
        is_other = np.arange(len(counts)) != counts.argmax()
        can_compare = bool(self.n_iter_) and not (problem.missing or problem.compared)
        is_collapsed = can_compare and counts[is_other].sum() <= _COLLAPSED * total
        if is_collapsed and explain_little(self._centers, counts, self.inertia_, is_other):
            warn(
                f"One cluster contains {counts.max() / total:.2%} of the rows, and the other rows "
                "are not outliers. The initial centers were not comparable, for example single "
                'rows and means of many rows. Use init="k-means||", which gives comparable '
                "centers.",
                ConvergenceWarning,
            )
        note_observed(self, None if state.observed is None else state.observed[best])
        in_memory = isinstance(data.X, np.ndarray)
        labels = problem.last_labels(self._centers) if in_memory else None
        if labels is None:
            labels = row_labels(
                data,
                self._row_function(data.rows.dtype),
                None if problem.clamped is None else problem.clamped.assigned(self._centers),
            )
        self.labels_ = labels
