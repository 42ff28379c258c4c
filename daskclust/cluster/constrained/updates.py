"""What follows when the centers have moved: nothing, sparse feature weights, or a learned metric.

Sparse weights: a round assigns rows and moves centers until no label changes.  Then the features
are weighted anew, and the next round begins from the same centers, with labels forgotten (as the
published program does).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from daskclust.cluster.constrained.assignment import SoftConstraints
from daskclust.cluster.constrained.iteration import AssignmentRule, Iteration, RestartState
from daskclust.cluster.constrained.sparsity import between_scores, feature_weights
from daskclust.core.array_types import Floats
from daskclust.core.estimator.validation import check_real
from daskclust.core.kernels.pairs import Violations
from daskclust.core.persistence.schema import Array, Entry
from daskclust.core.reduction import Survey
from daskclust.core.warn import warn

#: Number of iterations, or of rounds with other feature weights, before restarts are compared.
_COMPARED_PASSES, _COMPARED_ROUNDS = 5, 2


@dataclass(frozen=True)
class PlainMeans:
    """Nothing but means: Eq. 8 under fixed weights.

    `tolerance` (p,): see :meth:`Iteration.stands_still`.
    """

    max_rounds: ClassVar[int] = 1

    tolerance: Floats

    def is_comparable(self, state: RestartState) -> bool:
        return state.passes >= _COMPARED_PASSES

    def update(self, done: Iteration) -> tuple[RestartState, dict[str, Any]]:
        converged = done.stands_still(self.tolerance)
        state = replace(done.state, finished=converged)
        return state, {"converged": converged}

    def cost(self, state: RestartState) -> float:
        """Eq. 8."""
        return state.objective

    def attributes(self, state: RestartState) -> dict[str, Any]:
        return {"objective_": float(state.objective)}

    def warn(self, state: RestartState, record: Mapping[str, Any]) -> None:
        if not record["converged"]:
            warn(
                f"The clusters had not converged after {state.passes} passes (max_iter). Raise "
                "max_iter, or tol.",
                ConvergenceWarning,
            )


#: Relative error of a difference of two means, amply.
_ROUNDING = 8 * np.finfo(np.float64).eps
#: Number of restarts with ``n_init="auto"``, by initialization.  The first weights decide which
#: features count, and many starts end with the features of a few outlying rows.
SPARSE_RESTARTS: Mapping[str, int] = dict.fromkeys(("k-means||", "k-means++", "random"), 4)


def within_scatter(state: RestartState, survey: Survey) -> Floats:
    """Return the sum of squared differences to the cluster means, by feature (p,).

    TSS - BSS needs no pass of its own.  It loses the digits by which the clusters are narrower than
    the data; below what is left, a feature does not vary within them.
    """
    observed = state.counts if state.masses is None else state.masses
    weight = survey.weight if state.masses is None else state.masses.sum(axis=0)
    everything = weight * survey.variance
    scatter = everything - between_scores(state.sums, observed, survey.mean)
    reach = np.maximum(np.abs(survey.low), np.abs(survey.high))
    noise = (_ROUNDING * reach) * np.sqrt(survey.weight)
    scatter[scatter <= _ROUNDING * everything + noise * (noise + np.sqrt(everything))] = 0.0
    return scatter


#: The weights in a saved model.
SPARSE_ATTRIBUTES: Mapping[str, Entry] = {
    "feature_weights_": Array("p", low=0),
    "feature_scores_": Array("p"),
    "assignment_weights_": Array("p", low=0),
}


def sparsity_bound(sparsity: float | None, p: int) -> float:
    """Return the bound s of the weights' L1 norm for p features."""
    if sparsity is None:
        return float(np.sqrt(p))
    check_real(sparsity, "sparsity", -np.inf)
    # sqrt(p) written with a few digits is meant as sqrt(p).
    if not 1 <= sparsity <= np.sqrt(p) * (1 + 1e-3):
        raise ValueError(
            f"sparsity={sparsity} is out of range; expected 1 <= sparsity <= "
            f"sqrt(n_features) = {np.sqrt(p):.6g}, the L1 norms that weights of unit length "
            "can have. Use sparsity=None for no bound."
        )
    return min(float(sparsity), float(np.sqrt(p)))


@dataclass(frozen=True)
class SparseWeights:
    """At the end of each round, weight the features by their scores under an L1 bound.

    `sparsity`: the bound s. `tol`: relative L1 change of the weights at which the rounds end.
    `penalty_share`: how much of the sum of all gamma (Eq. 6) the violated constraints may take
    from the scores, as a share; 0 leaves gamma, infinity is gamma' of Eq. 15.
    """

    survey: Survey
    assignment: AssignmentRule
    sparsity: float
    tol: float
    max_rounds: int
    penalty_share: float = 0.0

    def is_comparable(self, state: RestartState) -> bool:
        # Costs are those of clusters: labels are forgotten when a round ends.
        return bool(state.round > _COMPARED_ROUNDS and state.passes)

    def update(self, done: Iteration) -> tuple[RestartState, dict[str, Any]]:
        """Weight the features anew where the round ends; end it all where weights stay."""
        state, number = done.state, int(done.state.round)
        if not (state.settled or done.last):
            return state, {"round": number}
        w = state.assignment_weights
        # Ones, with which a fit begins, stand for ``w_j = 1 / sqrt(p)``.
        old = np.full(len(w), 1 / np.sqrt(len(w))) if (w == 1).all() else w
        found = feature_weights(self.scores(state), self.sparsity)
        # Without a positive score the weights stay as they are, which ends the fit.
        weights = old if found is None else found.weights
        change = float(np.abs(weights - old).sum() / np.abs(old).sum())
        finished = change <= self.tol or number == self.max_rounds
        state = replace(state, weights=weights, finished=finished)
        if not finished:
            state = replace(state, round=number + 1, passes=0).forget_labels()
        return state, {
            "round": number,
            "weight_change": change,
            "converged": change <= self.tol,
            "weights_kept": found is None,
            "weights_tied": found is not None and found.tied,
        }

    def _between(self, state: RestartState) -> Floats:
        """Gamma of the clusters (Eq. 6)."""
        scale = np.maximum(np.abs(self.survey.low), np.abs(self.survey.high))
        observed = state.counts if state.masses is None else state.masses
        gamma = between_scores(state.sums, observed, self.survey.mean)
        # Rounding of differences of equal means: a constant feature, or k = 1.
        gamma[gamma <= state.counts.sum() * (_ROUNDING * scale) ** 2] = 0.0
        return gamma

    def scores(self, state: RestartState) -> Floats:
        """Feature scores of the clusters: gamma (Eq. 6) or gamma' (Eq. 15)."""
        gamma = self._between(state)
        violations = self.assignment.violations(state.labels) if self.penalty_share else None
        if violations is None:
            return gamma
        lost = violations.feature_sums(state.unit)
        total, most = float(lost.sum()), self.penalty_share * float(gamma.sum())
        if total > most:
            lost = lost * (most / total)
        return gamma - lost

    def cost(self, state: RestartState) -> float:
        """Minus Eq. 13, which is maximized, under the newest weights."""
        gained = float(state.weights @ self._between(state))
        violations = self.assignment.violations(state.labels)
        if violations is not None:
            gained -= violations.objective(
                state.weights, penalty=self.assignment.penalty, unit=state.unit
            )
        return -gained

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
                'penalized_scores="scaled" or False.'
                if self.scores(state).min() < 0
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


@dataclass(frozen=True)
class DiagonalMetric(PlainMeans):
    """After each iteration, weight the features by the scatter of the clusters.

    `scale`: c, the factor of the weights. `least_gain`: change of the objective up to which the fit
    has converged; None: by the shift of the centers.

    The printed Eq. 12 of the PCSKM paper is corrupt.  Given clusters, the objective of a feature
    is ``a_j S_j - c n log a_j``, where S_j is its scatter: squared distances to the means and the
    price of violated pairs, each once.  Its only minimizer is ``a_j = c n / S_j``, with c = 1 in
    the paper and 0.01 in WekaUT.
    """

    survey: Survey
    assignment: SoftConstraints
    scale: float
    least_gain: float | None

    def update(self, done: Iteration) -> tuple[RestartState, dict[str, Any]]:
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
        state = replace(state, finished=converged)
        return state, {"converged": converged}

    def cost(self, state: RestartState) -> float:
        """Eq. 10 to the first order, about the clusters without constraints if they are known.

        By Eq. 10 itself a feature that hardly varies within some clusters outweighs all others.
        """
        if state.spread is None:
            return state.objective
        scatter = within_scatter(state, self.survey)
        violations = self.assignment.violations(state.labels)
        price = 0.0
        if violations is not None and self.assignment.penalty == "constant":
            price = violations.mass
        elif violations is not None:
            scatter = scatter + violations.feature_sums(state.unit)
        varies = state.spread > 0
        return float((scatter[varies] / state.spread[varies]).sum()) + price

    def attributes(self, state: RestartState) -> dict[str, Any]:
        return {**super().attributes(state), "metric_weights_": state.weights}

    def _gauge(self, weights: Floats) -> float:
        """Return what keeps the weights from vanishing: log a, for each row."""
        return self.scale * self.survey.weight * float(np.log(weights).sum())

    def _follow(self, state: RestartState, violations: Violations | None) -> RestartState:
        """Weights and objective of the newest clusters."""
        survey, scatter = self.survey, within_scatter(state, self.survey)
        price = 0.0
        if violations is not None:
            if self.assignment.penalty == "constant":
                price = violations.objective(state.weights, penalty="constant")
            else:
                scatter = scatter + violations.feature_sums(state.unit)
        varies = scatter > 0
        weights = state.weights.copy()
        # No weight minimizes log a alone: it stays what it was, as in WekaUT.
        weights[varies] = self.scale * survey.weight / scatter[varies]
        objective = float(weights @ scatter) + price - self._gauge(weights)
        return replace(state, weights=weights, objective=objective)
