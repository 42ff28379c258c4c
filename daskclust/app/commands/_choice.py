"""``--choose-by-pairs``: choose the estimator of a fit by held-out pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from daskclust.app.commands._estimators import settings_of
from daskclust.app.commands.requests import FitRequest, UsageError
from daskclust.cluster.pcskmeans import PCSKMeans
from daskclust.selection import Selection, choose_by_pairs

#: Options that the choice does not support, and the reason.
_REFUSED = {
    "labels": "it compares estimators only by pairs. Pass known classes with --truth",
    "label_column": "it compares estimators only by pairs. Pass known classes with --truth",
    "checkpoint": "its fits share their passes and have no checkpoint",
}


class ChoiceByPairs:
    """Replaces the estimator of a job until an estimator is chosen."""

    def __init__(self, n_clusters: int, seed: int) -> None:
        self.n_clusters = n_clusters
        self.seed = seed
        self.selection: Selection | None = None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters of the fit with the most passes, for the plan of a job."""
        params = PCSKMeans(self.n_clusters, random_state=self.seed).get_params(deep)
        # The fits share their passes and have no checkpoint.
        del params["checkpoint"]
        return params

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        must_link: Any = None,
        cannot_link: Any = None,
        must_link_weight: Any = None,
        cannot_link_weight: Any = None,
    ) -> Any:
        """Return the estimator that was chosen, fitted to all pairs."""
        self.selection = choose_by_pairs(
            None,
            X,
            must_link,
            cannot_link,
            n_clusters=self.n_clusters,
            must_link_weight=must_link_weight,
            cannot_link_weight=cannot_link_weight,
            random_state=self.seed,
        )
        return self.selection.best_estimator

    def scores(self) -> list[dict[str, Any]]:
        """Return the candidates with their scores as JSON values, the best first."""
        assert self.selection is not None
        selection = self.selection
        order = np.argsort(-np.nan_to_num(selection.scores, nan=-1.0), kind="stable")
        return [
            {
                "candidate": str(selection.grid[i]),
                "score": _number(selection.scores[i]),
                "standard_error": _number(selection.standard_errors[i]),
                "chosen": bool(i == selection.best_index),
            }
            for i in order.tolist()
        ]


def make_choice(options: FitRequest) -> ChoiceByPairs:
    """Return the choice that the options describe."""
    for name, reason in _REFUSED.items():
        if getattr(options, name) is not None:
            raise UsageError(
                f"--choose-by-pairs does not support --{name.replace('_', '-')}: {reason}"
            )
    is_named = options.is_given("estimator")
    conflicting = ["--estimator"] * is_named + [f"--set {name}" for name in settings_of(options)]
    if conflicting:
        raise UsageError(
            f"--choose-by-pairs does not support {conflicting[0]}, because it compares several "
            "estimators with their default parameters"
        )
    if options.must_link is None and options.cannot_link is None:
        raise UsageError("--choose-by-pairs requires --must-link, --cannot-link, or both")
    count = options.n_clusters
    if count is None:
        raise UsageError("--choose-by-pairs requires the number of clusters: --n-clusters K")
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise UsageError(f"--n-clusters must be an integer of at least 1, got {count!r}")
    return ChoiceByPairs(count, options.seed)


def _number(value: float) -> float | None:
    """Return a number; JSON has no NaN."""
    return None if np.isnan(value) else float(value)


def choice_as_text(candidates: Sequence[dict[str, Any]]) -> list[str]:
    """Return a line for each candidate."""
    width = max(len(candidate["candidate"]) for candidate in candidates)
    lines = []
    for candidate in candidates:
        score, error = candidate["score"], candidate["standard_error"]
        shown = "failed" if score is None else f"{score:.3f}"
        shown += "" if error is None else f" +- {error:.3f}"
        mark = "  chosen" if candidate["chosen"] else ""
        lines.append(f"          {candidate['candidate']:<{width}}  {shown}{mark}")
    return [f"Pairs     {lines[0].strip()}", *lines[1:]]
