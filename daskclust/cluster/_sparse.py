"""The sparse outer loop: clusters under fixed feature weights, then new weights.

One step is one pass over the data.  An inner run assigns and moves centres until
no label changes; the outer loop then re-weights the features and starts the next
inner run from the centres it has, with labels forgotten (as the published program
does).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust.cluster._constrained import Assignment, TouchedRows
from daskclust.cluster._lloyd import means, relocate_empty
from daskclust.engine import Rows, Step
from daskclust.kernels.sparsity import between_scores, feature_weights
from daskclust.reduction import ASSIGN, CentreSets

__all__ = ["SparseProblem", "SparseState"]

Float = NDArray[np.float64]


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
    mean : ndarray of shape (p,), float64
        Mean of all rows.
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
    sparsity: float
    penalized: bool
    tol: float
    max_inner: int
    max_outer: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "_others", self.rows.excluding(self.touched.constraints.rows))

    def step(self, state: SparseState) -> Step[SparseState]:
        """Make one pass, and at the end of an inner run re-weight the features."""
        w = state.assignment_weights
        stats = self._others.reduce(  # type: ignore[attr-defined]
            ASSIGN,
            CentreSets(
                state.centres[None], None if (w == 1).all() else w[None], shift=self.mean
            ),
        )
        own = self.touched.assign(state.centres, w, state.labels)
        sums, counts = stats.sums[0] + own.sums, stats.counts[0] + own.counts
        objective = float(stats.inertia.sum()) + own.inertia + self._penalty(own, w)
        sums, counts, repaired = self._repair(state, own, sums, counts)
        unchanged = (
            not repaired
            and own.n_changed == 0
            and state.sums is not None
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
    ) -> tuple[Float, Float, bool]:
        """Give empty clusters the farthest unconstrained rows; the published program gives up."""
        if (counts > 0).all():
            return sums, counts, False
        w = state.assignment_weights
        fixed, taken = relocate_empty(
            self._others,  # type: ignore[attr-defined]
            state.centres,
            sums,
            counts,
            feature_weights=w,
            shift=self.mean,
        )
        return fixed, taken, not np.array_equal(taken, counts)

    def scores(self, state: SparseState) -> Float:
        """Feature scores of the present clusters: gamma (Eq. 6) or gamma' (Eq. 15)."""
        gamma = between_scores(state.sums, state.counts, self.mean)
        if self.penalized and len(self.touched):
            gamma = gamma - self.touched.violations(state.labels).feature_sums
        return gamma

    def _reweight(self, state: SparseState) -> tuple[SparseState, bool, dict[str, Any]]:
        """End an inner run: new weights, and either the end or the next round."""
        scores = self.scores(state)
        found = feature_weights(scores, self.sparsity)
        extra: dict[str, Any] = {"weights_kept": found is None, "weights_tied": False}
        if found is None:
            warnings.warn(
                f"No feature score is positive in round {state.round}: the last weights are kept. "
                + (
                    "The violated constraints outweigh all between-cluster sums; use "
                    "penalized_scores=False."
                    if self.penalized
                    else "No feature separates the clusters; use more than one cluster."
                ),
                stacklevel=6,
            )
            return replace(state, scores=scores), True, extra
        extra["weights_tied"] = found.tied
        if found.tied:
            warnings.warn(
                f"sparsity={self.sparsity:.4g} cannot be reached: "
                f"{int((found.weights > 0).sum())} features share the largest score and are kept "
                "all. Use a larger sparsity, or drop repeated features.",
                stacklevel=6,
            )
        w = found.weights
        change = float(np.abs(w - state.weights).sum() / np.abs(state.weights).sum())
        extra["weight_change"] = change
        ended = change <= self.tol or state.round == self.max_outer
        after = replace(state, weights=w, scores=scores)
        extra["converged"] = change <= self.tol
        if ended:
            return after, True, extra
        return (
            replace(
                after,
                assignment_weights=w,
                labels=self.touched.unlabelled(),
                sums=None,
                counts=None,
                round=state.round + 1,
                inner=0,
                settled=False,
            ),
            False,
            extra,
        )
