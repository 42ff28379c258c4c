"""What the estimators that find sparse feature weights share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from daskclust.cluster.constrained.base import PairwiseClusterer
from daskclust.cluster.constrained.rows import TouchedRows
from daskclust.cluster.constrained.sparse import SparseProblem, SparseState
from daskclust.estimator.fitting import OpenData
from daskclust.estimator.parameters import check_integer, check_real
from daskclust.persistence.schema import Array, Entry

__all__ = ["SparseClusterer"]


class SparseClusterer(PairwiseClusterer):
    """Base of sparse k-means with and without constraints."""

    _saved_state: ClassVar[Mapping[str, Entry]] = {
        "feature_weights_": Array("p", low=0),
        "feature_scores_": Array("p"),
        "assignment_weights_": Array("p", low=0),
    }

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_integer(self.max_outer_iter, "max_outer_iter", 1)

    def _check_features(self, n_features: int) -> None:
        self._bound(n_features)
        super()._check_features(n_features)

    def _bound(self, p: int) -> float:
        """Return the bound s of the weights' L1 norm for p features."""
        if self.sparsity is None:
            return float(np.sqrt(p))
        check_real(self.sparsity, "sparsity", -np.inf)
        # sqrt(p) written with a few digits is meant as sqrt(p).
        if not 1 <= self.sparsity <= np.sqrt(p) * (1 + 1e-3):
            raise ValueError(
                f"sparsity={self.sparsity} is out of range; expected 1 <= sparsity <= "
                f"sqrt(n_features) = {np.sqrt(p):.6g}, the L1 norms that weights of unit length "
                "can have. Use sparsity=None for no bound."
            )
        return min(float(self.sparsity), float(np.sqrt(p)))

    def _penalty_share(self) -> float:
        """Share of the feature scores that violated constraints may take."""
        return 0.0

    def _iteration(self, data: OpenData, touched: TouchedRows) -> SparseProblem:
        survey = data.survey
        return SparseProblem(
            data.rows,
            touched,
            survey.mean,
            max_iter=int(self.max_iter),
            tolerance=np.zeros_like(survey.mean),
            scale=np.maximum(np.abs(survey.low), np.abs(survey.high)),
            sparsity=self._bound(data.rows.n_features),
            penalty_share=self._penalty_share(),
            tol=float(self.tol),
            max_outer=int(self.max_outer_iter),
        )

    def _take(
        self, problem: SparseProblem, state: SparseState, history: list[dict[str, Any]]
    ) -> None:
        self.feature_weights_ = state.weights
        self.feature_scores_ = state.scores
        self.assignment_weights_ = state.assignment_weights
        self.n_iter_ = state.round
        self.objective_ = problem.objective(state)

    def _prediction_weights(self) -> NDArray[np.float64] | None:
        w = self.assignment_weights_
        return None if (w == 1).all() else w
