"""Updates after the centers have moved: sparse feature weights, and a learned metric.

Sparse weights: a round assigns rows and moves centers until no label changes.  Then new feature
weights are computed.  The next round begins at the same centers without labels, as in the
published program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from daskclust.cluster.constrained.iteration import Assignment, Iteration, RestartState, Update
from daskclust.cluster.constrained.sparsity import between_scores, feature_weights
from daskclust.core.array_types import Floats
from daskclust.core.kernels.pairs import Violations
from daskclust.core.persistence.schema import Array, Entry
from daskclust.core.reduction import Survey
from daskclust.core.warn import warn

#: Minimum number of rounds before restarts are compared.
_COMPARED_ROUNDS = 2
#: Upper bound for the relative error of a difference of two means.
_ROUNDING = 8 * np.finfo(np.float64).eps
#: Number of restarts with ``n_init="auto"``, by initialization.  Several are needed, because many
#: restarts converge to the features of a few outliers.
SPARSE_RESTARTS: Mapping[str, int] = dict.fromkeys(("k-means||", "k-means++", "random"), 4)


def within_scatter(state: RestartState, survey: Survey) -> Floats:
    """Return the sum of squared differences to the cluster means, by feature (p,).

    It is computed as TSS - BSS, without another pass.  Values below the rounding error of this
    difference are set to 0.
    """
    weight = survey.weight if state.masses is None else state.masses.sum(axis=0)
    total_scatter = weight * survey.variance
    scatter = total_scatter - between_scores(state.sums, state.observed, survey.mean)
    reach = np.maximum(np.abs(survey.low), np.abs(survey.high))
    noise = (_ROUNDING * reach) * np.sqrt(survey.weight)
    scatter[scatter <= _ROUNDING * total_scatter + noise * (noise + np.sqrt(total_scatter))] = 0.0
    return scatter


#: Attributes of feature weights in a saved model.
SPARSE_ATTRIBUTES: Mapping[str, Entry] = {
    "feature_weights_": Array("p", low=0),
    "feature_scores_": Array("p"),
    "assignment_weights_": Array("p", low=0),
}


def sparsity_bound(sparsity: float | None, p: int) -> float:
    """Return the bound s of the L1 norm of the weights of p features."""
    if sparsity is None:
        return float(np.sqrt(p))
    # The user may have rounded sqrt(p).
    if not 1 <= sparsity <= np.sqrt(p) * (1 + 1e-3):
        raise ValueError(
            f"sparsity must be between 1 and sqrt(n_features) = {np.sqrt(p):.6g}, got {sparsity}. "
            "These are the L1 norms of weights of unit length. Use sparsity=None for no bound."
        )
    return min(float(sparsity), float(np.sqrt(p)))


@dataclass(frozen=True, kw_only=True)
class SparseWeights(Update):
    """Feature weights from scores under an L1 bound, at the end of each round.

    `sparsity` is the bound s.  `tolerance` is the maximum relative L1 change of the weights of a
    converged fit.  Violated constraints subtract at most the fraction `penalty_share` of the sum of
    gamma (Eq. 6) from the scores.  With 0 the scores are gamma; with infinity they are gamma' of
    Eq. 15.
    """

    survey: Survey
    assignment: Assignment
    sparsity: float
    penalty_share: float = 0.0

    def is_comparable(self, state: RestartState) -> bool:
        # Without passes in its round, a state has no labels and no cost.
        return bool(state.round > _COMPARED_ROUNDS and state.passes)

    def update(self, iteration: Iteration) -> tuple[RestartState, dict[str, Any]]:
        """Update the weights at the end of a round; the fit ends if they do not change."""
        state, number = iteration.state, int(iteration.state.round)
        if not (state.settled or iteration.last):
            return state, {"round": number}
        w = state.assignment_weights
        # Initial weights of 1 stand for ``w_j = 1 / sqrt(p)``.
        old = np.full(len(w), 1 / np.sqrt(len(w))) if (w == 1).all() else w
        solution = feature_weights(self.scores(state), self.sparsity)
        # Without a positive score the weights do not change, which ends the fit.
        weights = old if solution is None else solution.weights
        change = float(np.abs(weights - old).sum() / np.abs(old).sum())
        finished = change <= self.tolerance or number == self.max_rounds
        state = replace(state, weights=weights, finished=finished)
        if not finished:
            state = replace(state, round=number + 1, passes=0).forget_labels()
        return state, {
            "round": number,
            "weight_change": change,
            "converged": change <= self.tolerance,
            "weights_kept": solution is None,
            "weights_tied": solution is not None and solution.tied,
        }

    def _between(self, state: RestartState) -> Floats:
        scale = np.maximum(np.abs(self.survey.low), np.abs(self.survey.high))
        gamma = between_scores(state.sums, state.observed, self.survey.mean)
        # For a constant feature or k = 1, differences of means are rounding errors.
        gamma[gamma <= state.counts.sum() * (_ROUNDING * scale) ** 2] = 0.0
        return gamma

    def scores(self, state: RestartState) -> Floats:
        """Return the feature scores of the clusters: gamma (Eq. 6) or gamma' (Eq. 15)."""
        gamma = self._between(state)
        violations = self.assignment.violations(state.labels) if self.penalty_share else None
        if violations is None:
            return gamma
        penalties = violations.feature_sums(state.unit)
        total, limit = float(penalties.sum()), self.penalty_share * float(gamma.sum())
        if total > limit:
            penalties = penalties * (limit / total)
        return gamma - penalties

    def cost(self, state: RestartState) -> float:
        """Return minus Eq. 13, which is maximized, for the newest weights."""
        gain = float(state.weights @ self._between(state))
        violations = self.assignment.violations(state.labels)
        if violations is not None:
            gain -= violations.objective(
                state.weights, penalty=self.assignment.penalty, unit=state.unit
            )
        return -gain

    def attributes(self, state: RestartState) -> dict[str, Any]:
        return {
            "feature_weights_": state.weights,
            "feature_scores_": self.scores(state),
            "assignment_weights_": state.assignment_weights,
            "objective_": -self.cost(state),
            "n_iter_": int(state.round),
        }

    def warn(self, state: RestartState, record: Mapping[str, Any]) -> None:
        if record["weights_kept"]:
            why = (
                "The violated constraints outweigh all between-cluster sums; use "
                "penalized_scores=False."
                if self.scores(state).min() < 0
                else "No feature separates the clusters; use at least two distinct clusters."
            )
            warn(
                f"No feature score is positive in round {state.round}; weights did not change. "
                f"{why}",
                ConvergenceWarning,
            )
        if record["weights_tied"]:
            warn(
                f"sparsity={self.sparsity:.4g} cannot be reached: "
                f"{int((state.weights > 0).sum())} features share the largest score, so all have a "
                "positive weight. Use a larger sparsity, or drop repeated features.",
                ConvergenceWarning,
            )
        if not record["converged"]:
            warn(
                f"The feature weights had not converged after {state.round} rounds (change "
                f"{record['weight_change']:.2g}, tol {self.tolerance:.2g}). Raise max_outer_iter.",
                ConvergenceWarning,
            )


@dataclass(frozen=True, kw_only=True)
class DiagonalMetric(Update):
    """Feature weights from the scatter of the clusters, after each iteration.

    `scale`: factor c of the weights. `least_gain`: maximum change of the objective of a converged
    fit; None: the shift of the centers decides.

    The printed Eq. 12 of the PCSKM paper is corrupt.  Given clusters, the objective of a feature
    is ``a_j S_j - c n log a_j``.  S_j is its scatter: squared distances to the means and the cost
    of violated pairs, each once.  Its only minimizer is ``a_j = c n / S_j``, with c = 1 in the
    paper and 0.01 in WekaUT.
    """

    survey: Survey
    assignment: Assignment
    scale: float
    least_gain: float | None

    def update(self, iteration: Iteration) -> tuple[RestartState, dict[str, Any]]:
        if iteration.refounded:
            # Labels are forgotten, so there are no clusters to learn from.
            objective = iteration.state.objective - self._log_term(iteration.state.weights)
            state, converged = replace(iteration.state, objective=objective), False
        else:
            state = self._weighted(iteration.state, iteration.violations)
            converged = (
                iteration.has_converged(self.tolerance)
                if self.least_gain is None
                else bool(abs(state.objective - iteration.before.objective) <= self.least_gain)
            )
        return replace(state, finished=converged), {"converged": converged}

    def cost(self, state: RestartState) -> float:
        """Return Eq. 10 to the first order about the clusters without constraints, if known.

        In Eq. 10, a feature with a small variance within some clusters would outweigh all others.
        """
        if state.spread is None:
            return state.objective
        scatter, price = self._scatter(state, self.assignment.violations(state.labels))
        varies = state.spread > 0
        return float((scatter[varies] / state.spread[varies]).sum()) + price

    def attributes(self, state: RestartState) -> dict[str, Any]:
        return {**super().attributes(state), "metric_weights_": state.weights}

    def _log_term(self, weights: Floats) -> float:
        """Return the sum of log a over all rows, which prevents weights of 0."""
        return self.scale * self.survey.weight * float(np.log(weights).sum())

    def _scatter(self, state: RestartState, violations: Violations | None) -> tuple[Floats, float]:
        """Return S_j of each feature (p,), and the constant cost of violated pairs."""
        scatter = within_scatter(state, self.survey)
        if violations is None:
            return scatter, 0.0
        if self.assignment.penalty == "constant":
            return scatter, violations.objective(state.weights, penalty="constant")
        return scatter + violations.feature_sums(state.unit), 0.0

    def _weighted(self, state: RestartState, violations: Violations | None) -> RestartState:
        """Return the state with the weights and the objective of the newest clusters."""
        scatter, price = self._scatter(state, violations)
        varies = scatter > 0
        weights = state.weights.copy()
        # If S_j is 0, the weight has no minimizer and does not change, as in WekaUT.
        weights[varies] = self.scale * self.survey.weight / scatter[varies]
        objective = float(weights @ scatter) + price - self._log_term(weights)
        return replace(state, weights=weights, objective=objective)
