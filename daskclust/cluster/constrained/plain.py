"""Clusters under fixed weights: nothing follows when the centers have moved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from sklearn.exceptions import ConvergenceWarning

from daskclust._types import Floats
from daskclust._warnings import warn
from daskclust.cluster.constrained.iteration import Iteration, RestartState

__all__ = ["PlainMeans"]


@dataclass(frozen=True)
class PlainMeans:
    """Nothing but means: Eq. 8 under fixed weights.

    Parameters
    ----------
    tolerance : ndarray of shape (p,), float64
        As of :meth:`Iteration.stands_still`.
    """

    max_rounds: ClassVar[int] = 1

    tolerance: Floats

    def update(self, done: Iteration) -> Iteration:
        """End where nothing changes any more."""
        converged = done.stands_still(self.tolerance)
        state = replace(done.state, finished=converged or done.last)
        return done.followed_by(state, converged=converged)

    def cost(self, state: RestartState) -> float:
        """Eq. 8."""
        return state.objective

    def attributes(self, state: RestartState) -> dict[str, Any]:
        """Return the objective."""
        return {"objective_": float(state.objective)}

    def warn(self, state: RestartState, record: Mapping[str, Any]) -> None:
        """Warn where the clusters had not converged."""
        if not record["converged"]:
            warn(
                f"The clusters had not converged after {state.passes} passes (max_iter). Raise "
                "max_iter, or tol.",
                ConvergenceWarning,
            )
