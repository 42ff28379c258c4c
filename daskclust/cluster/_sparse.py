"""The sparse outer loop: clusters under fixed feature weights, then new weights.

One step is one pass over the data.  An inner run assigns and moves centres until
no label changes; the outer loop then re-weights the features and starts the next
inner run from the centres it has, with labels forgotten (as the published program
does).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from daskclust._warnings import warn
from daskclust.cluster._base import warn_few_distinct
from daskclust.cluster._constrained import Assignment, TouchedRows
from daskclust.cluster._lloyd import found_clusters, means, relocate_empty
from daskclust.engine import Rows, Step
from daskclust.kernels.sparsity import between_scores, feature_weights
from daskclust.reduction import ASSIGN, CentreSets

__all__ = ["SparseProblem", "SparseState"]

Float = NDArray[np.float64]
#: Relative error of a difference of two means, amply.
_ROUNDING = 8 * np.finfo(np.float64).eps


@dataclass(frozen=True)
class SparseState:
    """Where a sparse fit stands.

    Attributes
    ----------
    centres : ndarray of shape (k, p), float64
        Means of the clusters, in the space of the data.
    weights : ndarray of shape (p,), float64
        Newest feature weights w.
    assignment_weights : ndarray of shape (p,), float64
        Weights of this round's distances: ones in the first round, then the
        weights of the round before.
    assignment_centres : ndarray of shape (k, p), float64
        Centres by which rows were last assigned.
    labels : ndarray of shape (m,), int64
        Labels of the touched rows.
    sums, counts : ndarray of shape (k, p) and (k,), float64, or None
        Statistics of the last pass of this round.
    scores : ndarray of shape (p,), float64
        Newest feature scores, gamma or gamma'.
    round : int
        Outer round, from 1.
    inner : int
        Passes made in this round.
    settled : bool
        Whether the last inner run ended with unchanged labels.
    restarts : int
        How often a constrained row has founded an empty cluster anew.
    """

    centres: Float
    weights: Float
    assignment_weights: Float
    assignment_centres: Float
    labels: NDArray[np.int64]
    sums: Float | None
    counts: Float | None
    scores: Float
    round: int
    inner: int
    settled: bool
    restarts: int

    @classmethod
    def begin(cls, centres: Float, n_touched: int) -> SparseState:
        """Return the state before the first pass; ``w_j = 1 / sqrt(p)``."""
        p = centres.shape[1]
        return cls(
            centres=centres,
            weights=np.full(p, 1 / np.sqrt(p)),
            assignment_weights=np.ones(p),
            assignment_centres=centres,
            labels=np.full(n_touched, -1, dtype=np.int64),
            sums=None,
            counts=None,
            scores=np.zeros(p),
            round=1,
            inner=0,
            settled=False,
            restarts=0,
        )


@dataclass(frozen=True)
class SparseProblem:
    """Everything about a sparse fit that does not change.

    Parameters
    ----------
    rows : Rows
        All data.
    touched : TouchedRows
        Constrained rows, none for sparse k-means.
    mean, scale : ndarray of shape (p,), float64
        Mean and largest absolute value of each feature.
    sparsity : float
        L1 bound s of the weights.
    penalized : bool
        Scores gamma' of Eq. 15 instead of gamma of Eq. 6.
    tol : float
        Relative L1 change of the weights at which the outer loop ends.
    max_inner, max_outer : int
        Limits of the two loops.
    """

    rows: Rows
    touched: TouchedRows
    mean: Float
    scale: Float
    sparsity: float
    penalized: bool
    tol: float
    max_inner: int
    max_outer: int

    @cached_property
    def _others(self) -> Rows:
        """The rows that no constraint touches."""
        return self.rows.excluding(self.touched.constraints.rows)

    def step(self, state: SparseState) -> Step[SparseState]:
        """Make one pass, and at the end of an inner run re-weight the features."""
        w = state.assignment_weights
        stats = self._others.reduce(
            ASSIGN,
            CentreSets(state.centres[None], None if (w == 1).all() else w[None], shift=self.mean),
        )
        own = self.touched.assign(state.centres, w, state.labels)
        sums, counts = stats.sums[0] + own.sums, stats.counts[0] + own.counts
        objective = float(stats.inertia.sum()) + own.inertia + self._penalty(own, w)
        sums, counts, repaired, again = self._repair(state, own, sums, counts)
        unchanged = (
            not repaired
            and own.n_changed == 0
            and state.sums is not None
            and state.counts is not None
            and np.array_equal(sums, state.sums)
            and np.array_equal(counts, state.counts)
        )
        centres = means(state.centres, sums, counts)
        moved = float(np.sqrt((w * (centres - state.centres) ** 2).sum()))
        after = replace(
            state,
            centres=centres,
            assignment_centres=state.centres,
            labels=own.labels,
            sums=sums,
            counts=counts,
            inner=state.inner + 1,
            settled=bool(unchanged),
        )
        if again:
            after = replace(after, **self._forgotten(), restarts=state.restarts + 1)
        extra: dict[str, Any] = {"round": state.round, "repaired": bool(repaired)}
        finished = False
        if unchanged or after.inner == self.max_inner:
            after, finished, more = self._reweight(after)
            extra.update(more)
        return Step(
            state=after,
            objective=objective,
            centre_shift=moved,
            finished=finished,
            moved=None if len(own.labels) < self.rows.n_rows else own.n_changed,
            extra=extra,
        )

    def _penalty(self, own: Assignment, w: Float) -> float:
        if not len(self.touched):
            return 0.0
        violations = self.touched.violations(own.labels)
        return violations.objective(w, penalty=self.touched.penalty)

    def _repair(
        self, state: SparseState, own: Assignment, sums: Float, counts: Float
    ) -> tuple[Float, Float, bool, bool]:
        """Give empty clusters the farthest rows; the published program gives up.

        Unconstrained rows come first.  A constrained row would be called back by
        its partners, so the inner run begins again after one has founded a cluster;
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
            state.centres,
            sums,
            counts,
            feature_weights=w,
            shift=self.mean,
        )
        again = False
        may_restart = state.restarts < len(counts) and state.inner + 1 < self.max_inner
        if len(self.touched) and may_restart and (counts <= 0).any():
            left = counts
            founders = self.touched.founders(state.centres, w, own.labels)
            sums, counts = found_clusters(sums, counts, founders)
            again = not np.array_equal(counts, left)
        return sums, counts, not np.array_equal(counts, before), again

    def _forgotten(self) -> dict[str, Any]:
        """Fields of a state whose labels are forgotten."""
        return {
            "labels": self.touched.unlabelled(),
            "sums": None,
            "counts": None,
            "settled": False,
        }

    def scores(self, state: SparseState) -> Float:
        """Feature scores of the present clusters: gamma (Eq. 6) or gamma' (Eq. 15)."""
        assert state.sums is not None
        assert state.counts is not None
        gamma = between_scores(state.sums, state.counts, self.mean)
        # What differences of means amount to when there are none: a constant feature, or k = 1.
        gamma[gamma <= state.counts.sum() * (_ROUNDING * self.scale) ** 2] = 0.0
        if self.penalized and len(self.touched):
            gamma = gamma - self.touched.violations(state.labels).feature_sums
        return gamma

    def _reweight(self, state: SparseState) -> tuple[SparseState, bool, dict[str, Any]]:
        """End an inner run: new weights, and either the end or the next round."""
        scores = self.scores(state)
        found = feature_weights(scores, self.sparsity)
        # Without a positive score the last weights stay, and weights that stay are the end.
        w = state.weights if found is None else found.weights
        change = float(np.abs(w - state.weights).sum() / np.abs(state.weights).sum())
        extra: dict[str, Any] = {
            "weight_change": change,
            "converged": change <= self.tol,
            "weights_kept": found is None,
            "weights_tied": found is not None and found.tied,
        }
        ended = change <= self.tol or state.round == self.max_outer
        after = replace(state, weights=w, scores=scores)
        if ended:
            return after, True, extra
        return (
            replace(
                after,
                assignment_weights=w,
                round=state.round + 1,
                inner=0,
                **self._forgotten(),
            ),
            False,
            extra,
        )

    def warn(self, state: SparseState, record: Mapping[str, Any]) -> None:
        """Say what is not as one would wish at the end of a fit.

        Parameters
        ----------
        state : SparseState
            The last one.
        record : mapping
            Of the last pass.
        """
        if record["weights_kept"]:
            why = (
                "The violated constraints outweigh all between-cluster sums; use "
                "penalized_scores=False."
                if state.scores.min() < 0
                else "No feature separates the clusters: is there more than one?"
            )
            warn(
                f"No feature score is positive in round {state.round}; the last weights are kept. "
                f"{why}",
                ConvergenceWarning,
            )
        if record["weights_tied"]:
            warn(
                f"sparsity={self.sparsity:.4g} cannot be reached: "
                f"{int((state.weights > 0).sum())} features share the largest score and are all "
                "kept. Use a larger sparsity, or drop repeated features.",
                ConvergenceWarning,
            )
        if not record["converged"]:
            warn(
                f"The feature weights had not converged after {state.round} rounds (change "
                f"{record['weight_change']:.2g}, tol {self.tol:.2g}). Raise max_outer_iter.",
                ConvergenceWarning,
            )
        assert state.counts is not None
        n_filled = int((state.counts > 0).sum())
        if n_filled < len(state.counts):
            warn_few_distinct(n_filled, len(state.counts))
