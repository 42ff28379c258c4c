"""Lloyd's algorithm for several restarts at once, and what its estimators share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Protocol

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from daskclust.core.array_types import Bools, Floats, Ints
from daskclust.core.engine import Carry, Rows
from daskclust.core.estimator.base import BaseClusterer, note_observed, warn_few_distinct
from daskclust.core.estimator.fit_loop import DataAlone, OpenData, Step, best_restart, row_labels
from daskclust.core.estimator.partial_labels import PartialLabels
from daskclust.core.estimator.transforms import EUCLIDEAN, Metric
from daskclust.core.estimator.validation import check_integer, check_missing, check_real
from daskclust.core.initialization.sampled import note_start
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
from daskclust.core.reduction.assign import ASSIGN_KEPT, MovedCenters
from daskclust.core.warn import warn

#: Bounds of rows are kept between passes for so many centers of so many features, and for centers
#: of more features that are large together.  Of fewer, from so many products on, while centers move
#: by less than a share of the spread of a feature: otherwise scores cost no more.
_KEPT_CENTERS, KEPT_WIDTH, _KEPT_FEATURES = 1000, 8, 64
KEPT_PRODUCTS, _CALM = 4096, 0.1
#: Limits of a collapsed fit.  The first is the maximum fraction of rows outside the largest
#: cluster, and the maximum size of a useless cluster relative to the largest one.  The second is
#: the maximum fraction of the variance that such clusters explain, relative to their fraction of
#: the rows.
_COLLAPSED, _OWN_SHARE = 0.01, 3.0
#: Bytes of centers whose passes a lost worker may have to make again, and passes at least.
_AGAIN, _PASSES = 2**27, 4


@dataclass(frozen=True)
class LloydState:
    """All restarts of one fit.

    `centers` (r, k, p). `inertia` (r,): of the last assignment; of the present centers where
    ``settled``. `converged` (r,), bool: whether the restart moves no more than the tolerance.
    `settled` (r,), bool: whether it does not move at all: inertia agrees with the centers. `n_iter`
    (r,). `counts` (r, k): weight of the rows of which each center is the mean. `before` (r, k, p):
    centers an iteration before; the present ones where momentum begins anew. `observed` (r, k, p):
    whether any of these rows has a value of the feature; None where no value is missing.
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


def explain_little(centers: Floats, counts: Floats, inertia: float, few: Bools) -> bool:
    """Return True if the clusters `few` (k,) explain little variance for their number of rows.

    A cluster of one row explains the squared distance of this row from the mean.  For a typical row
    this is about its share of the variance; for a far outlier it is much more.
    """
    weight = np.where(few, counts, 0.0)
    if not weight.any():
        return False
    squared = ((centers - counts @ centers / counts.sum()) ** 2).sum(axis=1)
    share = _OWN_SHARE * weight.sum() / counts.sum()
    return bool(weight @ squared <= share * (counts @ squared + inertia))


def useless_clusters(centers: Floats, counts: Floats, inertia: float) -> Bools:
    """Return which clusters (k,) have few rows that are not outliers."""
    few: Bools = counts <= _COLLAPSED * counts.max()
    return few if explain_little(centers, counts, inertia, few) else np.zeros_like(few)


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
    #: True if a collapsed restart was compared with another initialization.
    compared: bool = False


@dataclass(frozen=True)
class LloydProblem(DataAlone):
    """Lloyd's algorithm for several restarts, which share every pass.

    `rows`: those that are assigned to the nearest center, in the metric's space. `start`: finds the
    centers of all restarts, (r, k, p), there. `tolerance`: squared shift of a restart's centers, up
    to which it has converged. `shift` (p,): a point amid the data. `clamped`: the classes where
    labeled rows, which ``rows`` leaves out then, keep to the clusters of their class whatever their
    distance. `momentum`: see
    :class:`~daskclust.core.initialization.steps.LloydStep`. `again`: function that finds other
    centers, (1, k, p), which replace the centers of a collapsed fit if their inertia is smaller.
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
    again: Callable[[], Floats] | None = None
    _last: _LastPass = field(default_factory=_LastPass, init=False, compare=False, repr=False)

    @property
    def compared(self) -> bool:
        """Return True if the centers were compared with those of another initialization."""
        return self._last.compared

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
            observed=np.zeros(centers.shape, bool) if self.missing else None,
        )

    def _assign(self, centers: Floats) -> ClusterStatistics:
        """Make a pass, with the help of the one before where that pays."""
        sets = CenterSets(centers, shift=self.shift, missing=self.missing)
        r, k, p = centers.shape
        rows, last = self.rows, self._last
        pays = k >= _KEPT_CENTERS or (p >= _KEPT_FEATURES and is_large(k, p))
        able = r == 1 and not self.missing
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

    def step(self, state: LloydState) -> Step[LloydState]:
        """Assign all rows and move the centers of the restarts that still move."""
        move = LloydStep(self.rows, self.metric, self.shift, self.momentum)
        active = np.flatnonzero(~state.converged)
        points = np.stack(
            [move.ahead(state.before[r], state.centers[r], int(state.n_iter[r])) for r in active]
        )
        stats = self._assign(points)
        before = state.before.copy()
        centers, inertia = state.centers.copy(), state.inertia.copy()
        converged, settled = state.converged.copy(), state.settled.copy()
        n_iter, counts = state.n_iter.copy(), state.counts.copy()
        observed = None if state.observed is None else state.observed.copy()
        shifts: list[float] = []
        for at, r in enumerate(active):
            centers[r], counts[r], before[r] = move.means(points[at], state.centers[r], stats, at)
            if observed is not None and stats.masses is not None:
                # A cluster that was empty has a row of its own now.
                observed[r] = (stats.masses[at] > 0) | (stats.counts[at] <= 0)[:, None]
            inertia[r] = stats.inertia[at].sum()
            moved = float(((centers[r] - points[at]) ** 2).sum())
            shifts.append(moved)
            settled[r] = moved == 0.0
            converged[r] = moved <= self.tolerance
            n_iter[r] += 1
        found = LloydState(
            centers, inertia, converged, settled, n_iter, counts, before, observed=observed
        )
        if converged.all():
            found = self._repaired(found)
        return Step(
            state=found,
            objective=float(found.inertia.min()),
            center_shift=float(np.sqrt(max(shifts))),
            finished=bool(found.converged.all()),
        )

    def _repaired(self, state: LloydState) -> LloydState:
        """Replace the centers of the best restart if they collapsed and other centers are better.

        This happens at most once per fit, and only if the fit collapsed.  It takes one pass and
        the passes of the other initialization.
        """
        best = best_restart(state.inertia)
        centers, counts = state.centers[best], state.counts[best]
        if self.again is None or self._last.compared or self.missing:
            return state
        few = useless_clusters(centers, counts, float(state.inertia[best]))
        if not few.any():
            return state
        self._last.compared = True
        other = self.again()
        stats = self._assign(other)
        inertia = stats.inertia.sum()
        if not inertia < state.inertia[best]:
            return state
        warn(
            f"{few.sum()} of {len(few)} clusters contained {counts[few].sum() / counts.sum():.2%} "
            "of the rows, and these rows are not outliers. The fit continued from the centers of "
            'init="k-means||".',
            ConvergenceWarning,
        )
        arrays = {
            name: getattr(state, name).copy()
            for name in ("centers", "before", "inertia", "counts", "converged", "settled")
        }
        arrays["centers"][best] = arrays["before"][best] = other[0]
        arrays["inertia"][best], arrays["counts"][best] = inertia, stats.counts[0]
        arrays["converged"][best] = arrays["settled"][best] = False
        return replace(state, **arrays)

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
        counts, total = self.counts_, float(self.counts_.sum())
        others = np.arange(len(counts)) != counts.argmax()
        known = bool(self.n_iter_) and not (problem.missing or problem.compared)
        few = known and counts[others].sum() <= _COLLAPSED * total
        if few and explain_little(self._centers, counts, self.inertia_, others):
            warn(
                f"One cluster holds {counts.max() / total:.2%} of the rows, and "
                "the other rows are not outliers. The initial centers were not comparable, for "
                'example single rows and means of many rows. Use init="k-means||", which finds '
                "comparable centers.",
                ConvergenceWarning,
            )
        note_observed(self, None if state.observed is None else state.observed[best])
        here = isinstance(data.X, np.ndarray)
        labels = problem.kept_labels(self._centers) if here else None
        if labels is None:
            labels = row_labels(
                data,
                self._row_function(data.rows.dtype),
                None if problem.clamped is None else problem.clamped.assigned(self._centers),
            )
        self.labels_ = labels
