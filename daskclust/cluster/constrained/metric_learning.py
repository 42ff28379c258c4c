"""A diagonal metric that is learned on the way: feature weights that follow the clusters.

The printed Eq. 12 of the PCSKM paper is corrupt.  Given clusters, the objective
of a feature is ``a_j S_j - c n log a_j``, where S_j is its scatter: squared
distances to the means and the price of violated pairs, each once.  Its only
minimizer is ``a_j = c n / S_j``, with c = 1 in the paper and 0.01 in WekaUT.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from daskclust._types import Floats
from daskclust.cluster.constrained.iteration import Iteration, RestartState
from daskclust.cluster.constrained.plain import PlainMeans
from daskclust.cluster.constrained.soft import SoftConstraints
from daskclust.kernels.constraints import Violations
from daskclust.kernels.sparsity import between_scores
from daskclust.reduction import Survey

__all__ = ["DiagonalMetric"]

#: Relative error of a difference of two means, amply.
_ROUNDING = 8 * np.finfo(np.float64).eps


@dataclass(frozen=True)
class DiagonalMetric(PlainMeans):
    """After each iteration, weight the features by the scatter of the clusters.

    Parameters
    ----------
    tolerance
        As of :class:`PlainMeans`.
    survey : Survey
        Of the data.
    assignment : SoftConstraints
        Of the constrained rows.
    scale : float
        c, the factor of the weights.
    least_gain : float, optional
        Change of the objective up to which the fit has converged; None: by the
        shift of the centers.
    """

    survey: Survey
    assignment: SoftConstraints
    scale: float
    least_gain: float | None

    def update(self, done: Iteration) -> Iteration:
        """Let the metric follow the clusters."""
        if done.refounded:
            # Labels are forgotten: there are no clusters to learn from.
            objective = done.state.objective - self._gauge(done.state.weights)
            state, converged = replace(done.state, objective=objective), False
        else:
            state = self._follow(done.state, done.violations)
            converged = (
                done.stands_still(self.tolerance)
                if self.least_gain is None
                else bool(abs(state.objective - done.before.objective) <= self.least_gain)
            )
        state = replace(state, finished=converged or done.last)
        return done.followed_by(state, converged=converged)

    def attributes(self, state: RestartState) -> dict[str, Any]:
        """Return the metric, too."""
        return {**super().attributes(state), "metric_weights_": state.weights}

    def _gauge(self, weights: Floats) -> float:
        """Return what keeps the weights from vanishing: log a, for each row."""
        return self.scale * self.survey.weight * float(np.log(weights).sum())

    def _follow(self, state: RestartState, violations: Violations | None) -> RestartState:
        """Weights and objective of the newest clusters."""
        survey = self.survey
        # TSS - BSS needs no pass of its own.  It loses the digits by which the clusters are
        # narrower than the data; below what is left, a feature does not vary within them.
        everything = survey.weight * survey.variance
        scatter = everything - between_scores(state.sums, state.counts, survey.mean)
        reach = np.maximum(np.abs(survey.low), np.abs(survey.high))
        noise = (_ROUNDING * reach) * np.sqrt(survey.weight)
        scatter[scatter <= _ROUNDING * everything + noise * (noise + np.sqrt(everything))] = 0.0
        price = 0.0
        if violations is not None:
            if self.assignment.penalty == "constant":
                price = violations.objective(state.weights, penalty="constant")
            else:
                scatter = scatter + violations.feature_sums
        varies = scatter > 0
        weights = state.weights.copy()
        # No weight minimizes log a alone: it stays what it was, as in WekaUT.
        weights[varies] = self.scale * survey.weight / scatter[varies]
        objective = float(weights @ scatter) + price - self._gauge(weights)
        return replace(state, weights=weights, objective=objective)
