"""Passes that learn a diagonal metric on the way: the weights follow the clusters.

The printed Eq. 12 of the PCSKM paper is corrupt.  Given clusters, the objective
of a feature is ``a_j S_j - c n log a_j``, where S_j is its scatter: squared
distances to the means and the price of violated pairs, each once.  Its only
minimizer is ``a_j = c n / S_j``, with c = 1 in the paper and 0.01 in WekaUT.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from daskclust.cluster.constrained.iteration import PassProblem, PassState
from daskclust.engine import Step
from daskclust.kernels.constraints import Violations
from daskclust.kernels.sparsity import between_scores

__all__ = ["MetricProblem", "MetricState"]

Float = NDArray[np.float64]
#: Relative error of a difference of two means, amply.
_ROUNDING = 8 * np.finfo(np.float64).eps


@dataclass(frozen=True, kw_only=True)
class MetricState(PassState):
    """Where such a fit stands; ``assignment_weights`` are those of the pass before.

    Attributes
    ----------
    weights : ndarray of shape (p,), float64
        Newest metric weights a.
    objective : float
        Of the newest clusters, centers and weights.
    """

    weights: Float
    objective: float = np.inf

    shapes: ClassVar[Mapping[str, str]] = {
        **PassState.shapes,
        "weights": "f p",
        "objective": "f",
    }

    @classmethod
    def begin(cls, centers: Float, n_touched: int) -> Self:
        """Return the state before the first pass; ``a_j = 1``."""
        base = PassState.begin(centers, n_touched)
        return cls(**vars(base), weights=base.assignment_weights)


@dataclass(frozen=True)
class MetricProblem(PassProblem):
    """Everything about such a fit that does not change.

    Parameters
    ----------
    rows, touched, mean, max_iter, tolerance
        As of :class:`PassProblem`.
    variance, reach : ndarray of shape (p,), float64
        Variance and largest absolute value of each feature.
    total : float
        Weight of all rows.
    scale : float
        c, the factor of the weights.
    least_gain : float, optional
        Change of the objective up to which the fit has converged; None: by the
        shift of the centers.
    """

    kind: ClassVar[type[PassState]] = MetricState

    variance: Float
    reach: Float
    total: float
    scale: float
    least_gain: float | None

    def step(self, state: MetricState) -> Step[MetricState]:
        """Make one pass, and let the metric follow."""
        done = self.advance(
            replace(state, assignment_weights=state.weights),
            last=state.passes + 1 == self.max_iter,
        )
        after, converged = done.state, False
        if after.sums is None:
            # Labels were forgotten: there are no clusters to learn from.
            objective = done.objective - self._gauge(after.weights)
        else:
            after = self._follow(after, done.violations)
            objective = after.objective
            converged = (
                self.stands_still(done)
                if self.least_gain is None
                else abs(objective - state.objective) <= self.least_gain
            )
        extra = {"converged": converged}
        return replace(done, objective=objective).step(after, converged, extra)

    def _gauge(self, weights: Float) -> float:
        """Return what keeps the weights from vanishing: log a, for each row."""
        return self.scale * self.total * float(np.log(weights).sum())

    def _follow(self, state: MetricState, violations: Violations | None) -> MetricState:
        """Weights and objective of the newest clusters."""
        assert state.sums is not None
        assert state.counts is not None
        # TSS - BSS needs no pass of its own.  It loses the digits by which the clusters are
        # narrower than the data; below what is left, a feature does not vary within them.
        everything = self.total * self.variance
        scatter = everything - between_scores(state.sums, state.counts, self.mean)
        noise = (_ROUNDING * self.reach) * np.sqrt(self.total)
        scatter[scatter <= _ROUNDING * everything + noise * (noise + np.sqrt(everything))] = 0.0
        price = 0.0
        if violations is not None:
            if self.touched.penalty == "constant":
                price = violations.objective(state.weights, penalty="constant")
            else:
                scatter = scatter + violations.feature_sums
        varies = scatter > 0
        weights = state.weights.copy()
        # No weight minimizes log a alone: it stays what it was, as in WekaUT.
        weights[varies] = self.scale * self.total / scatter[varies]
        objective = float(weights @ scatter) + price - self._gauge(weights)
        return replace(state, weights=weights, objective=objective)
