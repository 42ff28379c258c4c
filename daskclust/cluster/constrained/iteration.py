"""One pass of a constrained fit: assign all rows, repair empty clusters, move the centers.

Every estimator of the family makes such passes; they differ in what happens
between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from daskclust._warnings import warn
from daskclust.cluster.constrained.rows import Assignment, TouchedRows
from daskclust.cluster.lloyd import found_clusters, means, relocate_empty
from daskclust.engine import Rows, Step
from daskclust.estimator.base import warn_few_distinct
from daskclust.kernels.constraints import Violations
from daskclust.reduction import ASSIGN, CenterSets

__all__ = ["Pass", "PassProblem", "PassState"]

Float = NDArray[np.float64]
S = TypeVar("S", bound="PassState")


@dataclass(frozen=True, kw_only=True)
class PassState:
    """What a pass starts from, and what it leaves.

    Attributes
    ----------
    centers : ndarray of shape (k, p), float64
        Means of the clusters, in the space of the data.
    assignment_weights : ndarray of shape (p,), float64
        Feature weights of the distances, ones for plain ones.
    assignment_centers : ndarray of shape (k, p), float64
        Centers by which rows were last assigned.
    labels : ndarray of shape (m,), int64
        Labels of the touched rows, -1 before their first pass.
    sums, counts : ndarray of shape (k, p) and (k,), float64, or None
        Statistics of the last pass of this run; None before the first.
    passes : int
        Passes made in this run.
    settled : bool
        Whether the last pass changed nothing.
    restarts : int
        How often a constrained row has founded an empty cluster anew.
    """

    shapes: ClassVar[Mapping[str, str]] = {
        "centers": "f k p",
        "assignment_weights": "f p",
        "assignment_centers": "f k p",
        "labels": "i t",
        "sums": "f k p ?",
        "counts": "f k ?",
        "passes": "i",
        "settled": "b",
        "restarts": "i",
    }

    centers: Float
    assignment_weights: Float
    assignment_centers: Float
    labels: NDArray[np.int64]
    sums: Float | None = None
    counts: Float | None = None
    passes: int = 0
    settled: bool = False
    restarts: int = 0

    @classmethod
    def begin(cls, centers: Float, n_touched: int) -> Self:
        """Return the state before the first pass."""
        return cls(
            centers=centers,
            assignment_weights=np.ones(centers.shape[1]),
            assignment_centers=centers,
            labels=np.full(n_touched, -1, dtype=np.int64),
        )


@dataclass(frozen=True)
class Pass(Generic[S]):
    """What one pass did.

    Attributes
    ----------
    state : PassState
        After the pass.
    inertia : float
        Weighted squared distances to the centers given.
    objective : float
        These, and the violated pairs.
    squared_shift : float
        Weighted squared shift of all centers.
    moved : int or None
        Rows that changed their cluster, where all are constrained.
    repaired : bool
        Whether an empty cluster was given a row.
    violations : Violations or None
        What the labels of the touched rows violate; None where there are none.
    """

    state: S
    inertia: float
    objective: float
    squared_shift: float
    moved: int | None
    repaired: bool
    violations: Violations | None

    def step(self, state: S, finished: bool, extra: Mapping[str, Any] | None = None) -> Step[S]:
        """Put the pass on record; the next goes on from ``state``."""
        return Step(
            state=state,
            objective=self.objective,
            center_shift=float(np.sqrt(self.squared_shift)),
            finished=finished,
            moved=self.moved,
            extra={**(extra or {}), "inertia": self.inertia, "repaired": self.repaired},
        )


@dataclass(frozen=True)
class PassProblem:
    """Clusters under fixed weights, pass after pass (Eq. 8).

    Parameters
    ----------
    rows : Rows
        All data.
    touched : TouchedRows
        Constrained rows; there may be none.
    mean : ndarray of shape (p,), float64
        Mean of each feature.
    max_iter : int
        Passes of a run at most.
    tolerance : ndarray of shape (p,), float64
        Of each feature; a run has converged when the weighted squared shift of all
        centers is at most their weighted mean.  0: only when nothing changes at all.
    """

    #: Of the state, for checkpoints.
    kind: ClassVar[type[PassState]] = PassState

    rows: Rows
    touched: TouchedRows
    mean: Float
    max_iter: int
    tolerance: Float

    @property
    def max_passes(self) -> int:
        """Passes of all runs at most."""
        return self.max_iter

    @cached_property
    def _others(self) -> Rows:
        """The rows that no constraint touches."""
        return self.rows.excluding(self.touched.constraints.rows)

    def step(self, state: Any) -> Step[Any]:
        """Make one pass, and end where nothing changes any more."""
        done = self.advance(state, last=state.passes + 1 == self.max_iter)
        converged = self.stands_still(done)
        return done.step(done.state, converged, {"converged": converged})

    def stands_still(self, done: Pass[S]) -> bool:
        """Whether the centers moved no more than the tolerance."""
        if done.state.settled or done.repaired or not self.tolerance.any():
            return done.state.settled
        allowed = float((done.state.assignment_weights * self.tolerance).mean())
        return done.squared_shift <= allowed

    def advance(self, state: S, *, last: bool) -> Pass[S]:
        """Make one pass.

        Parameters
        ----------
        state : PassState
        last : bool
            Whether no pass of this run may follow.
        """
        w = state.assignment_weights
        stats = self._others.reduce(
            ASSIGN,
            CenterSets(state.centers[None], None if (w == 1).all() else w[None], shift=self.mean),
        )
        own = self.touched.assign(state.centers, w, state.labels)
        sums, counts = stats.sums[0] + own.sums, stats.counts[0] + own.counts
        objective = inertia = float(stats.inertia.sum()) + own.inertia
        violations = self.touched.violations(own.labels) if len(self.touched) else None
        if violations is not None:
            objective += violations.objective(w, penalty=self.touched.penalty)
        sums, counts, repaired, again = self._repair(state, own, sums, counts, last)
        unchanged = (
            not repaired
            and own.n_changed == 0
            and state.sums is not None
            and state.counts is not None
            and np.array_equal(sums, state.sums)
            and np.array_equal(counts, state.counts)
        )
        centers = means(state.centers, sums, counts)
        after = replace(
            state,
            centers=centers,
            assignment_centers=state.centers,
            labels=own.labels,
            sums=sums,
            counts=counts,
            passes=state.passes + 1,
            settled=bool(unchanged),
        )
        if again:
            after = replace(after, restarts=state.restarts + 1, **self.forgotten())
        return Pass(
            state=after,
            inertia=inertia,
            objective=objective,
            squared_shift=float((w * (centers - state.centers) ** 2).sum()),
            moved=None if len(own.labels) < self.rows.n_rows else own.n_changed,
            repaired=bool(repaired),
            violations=violations,
        )

    def _repair(
        self, state: PassState, own: Assignment, sums: Float, counts: Float, last: bool
    ) -> tuple[Float, Float, bool, bool]:
        """Give empty clusters the farthest rows; the published program gives up.

        Unconstrained rows come first.  A constrained row would be called back by
        its partners, so the run begins again after one has founded a cluster;
        that may happen k times a fit, since constraints may want fewer clusters.

        Returns
        -------
        sums, counts : ndarray
        repaired : bool
        again : bool
            Whether labels are to be forgotten.
        """
        if (counts > 0).all():
            return sums, counts, False, False
        w = state.assignment_weights
        before = counts
        sums, counts = relocate_empty(
            self._others,
            state.centers,
            sums,
            counts,
            feature_weights=w,
            shift=self.mean,
        )
        again = False
        may_restart = state.restarts < len(counts) and not last
        if len(self.touched) and may_restart and (counts <= 0).any():
            left = counts
            founders = self.touched.founders(state.centers, w, own.labels)
            sums, counts = found_clusters(sums, counts, founders)
            again = not np.array_equal(counts, left)
        return sums, counts, not np.array_equal(counts, before), again

    def forgotten(self) -> dict[str, Any]:
        """Fields of a state whose labels are forgotten."""
        return {
            "labels": self.touched.unlabeled(),
            "sums": None,
            "counts": None,
            "settled": False,
        }

    def warn(self, state: Any, record: Mapping[str, Any]) -> None:
        """Say what is not as one would wish at the end of a fit.

        Parameters
        ----------
        state : PassState
            The last one.
        record : mapping
            Of the last pass.
        """
        if not record["converged"]:
            warn(
                f"The clusters had not converged after {state.passes} passes (max_iter). Raise "
                "max_iter, or tol.",
                ConvergenceWarning,
            )
        self.warn_empty(state)

    @staticmethod
    def warn_empty(state: PassState) -> None:
        """Warn of clusters that could not be given a row."""
        assert state.counts is not None
        n_filled = int((state.counts > 0).sum())
        if n_filled < len(state.counts):
            warn_few_distinct(n_filled, len(state.counts))
