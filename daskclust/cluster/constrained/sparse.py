"""The sparse outer loop: clusters under fixed feature weights, then new weights.

One step is one pass over the data.  An inner run assigns and moves centers until
no label changes; the outer loop then re-weights the features and starts the next
inner run from the centers it has, with labels forgotten (as the published program
does).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from daskclust._warnings import warn
from daskclust.cluster.constrained.iteration import PassProblem, PassState
from daskclust.engine import Step
from daskclust.kernels.sparsity import between_scores, feature_weights

__all__ = ["SparseProblem", "SparseState"]

Float = NDArray[np.float64]
#: Relative error of a difference of two means, amply.
_ROUNDING = 8 * np.finfo(np.float64).eps


@dataclass(frozen=True, kw_only=True)
class SparseState(PassState):
    """Where a sparse fit stands.

    ``assignment_weights`` are ones in the first round, then the weights of the
    round before.

    Attributes
    ----------
    weights : ndarray of shape (p,), float64
        Newest feature weights w.
    scores : ndarray of shape (p,), float64
        Newest feature scores, gamma or gamma'.
    round : int
        Outer round, from 1.
    """

    weights: Float
    scores: Float
    round: int

    shapes: ClassVar[Mapping[str, str]] = {
        **PassState.shapes,
        "weights": "f p",
        "scores": "f p",
        "round": "i",
    }

    @classmethod
    def begin(cls, centers: Float, n_touched: int) -> Self:
        """Return the state before the first pass; ``w_j = 1 / sqrt(p)``."""
        p = centers.shape[1]
        return cls(
            **vars(PassState.begin(centers, n_touched)),
            weights=np.full(p, 1 / np.sqrt(p)),
            scores=np.zeros(p),
            round=1,
        )


@dataclass(frozen=True)
class SparseProblem(PassProblem):
    """Everything about a sparse fit that does not change.

    Parameters
    ----------
    rows, touched, mean, max_iter, tolerance
        As of :class:`PassProblem`, for the inner runs.
    scale : ndarray of shape (p,), float64
        Largest absolute value of each feature.
    sparsity : float
        L1 bound s of the weights.
    penalty_share : float
        How much of the sum of all gamma (Eq. 6) the violated constraints may take
        from the scores, as a share; 0 leaves gamma, infinity is gamma' of Eq. 15.
    tol : float
        Relative L1 change of the weights at which the outer loop ends.
    max_outer : int
        Rounds at most.
    """

    kind: ClassVar[type[PassState]] = SparseState

    scale: Float
    sparsity: float
    penalty_share: float
    tol: float
    max_outer: int

    @property
    def max_passes(self) -> int:
        """Passes of all runs at most."""
        return self.max_iter * self.max_outer

    def step(self, state: SparseState) -> Step[SparseState]:
        """Make one pass, and at the end of an inner run re-weight the features."""
        done = self.advance(state, last=state.passes + 1 == self.max_iter)
        after, finished = done.state, False
        extra: dict[str, Any] = {"round": state.round}
        if after.settled or after.passes == self.max_iter:
            after, finished, more = self._reweight(after)
            extra.update(more)
        return done.step(after, finished, extra)

    def _between(self, state: SparseState) -> Float:
        """Return gamma of the present clusters (Eq. 6)."""
        assert state.sums is not None
        assert state.counts is not None
        gamma = between_scores(state.sums, state.counts, self.mean)
        # What differences of means amount to when there are none: a constant feature, or k = 1.
        gamma[gamma <= state.counts.sum() * (_ROUNDING * self.scale) ** 2] = 0.0
        return gamma

    def scores(self, state: SparseState) -> Float:
        """Feature scores of the present clusters: gamma (Eq. 6) or gamma' (Eq. 15)."""
        gamma = self._between(state)
        if not self.penalty_share or not len(self.touched):
            return gamma
        lost = self.touched.violations(state.labels).feature_sums
        total, most = float(lost.sum()), self.penalty_share * float(gamma.sum())
        if total > most:
            lost = lost * (most / total)
        return gamma - lost

    def objective(self, state: SparseState) -> float:
        """Eq. 13 under the newest weights."""
        violations = self.touched.violations(state.labels)
        penalty = violations.objective(state.weights, penalty=self.touched.penalty)
        return float(state.weights @ self._between(state)) - penalty

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
                passes=0,
                **self.forgotten(),
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
                'penalized_scores="scaled" or False.'
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
        self.warn_empty(state)
