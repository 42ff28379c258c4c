"""Base of the estimators on prototypes: parameters, fitted attributes, rows at prediction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from daskclust.core.array_types import Floats
from daskclust.core.estimator.base import map_new_rows
from daskclust.core.estimator.fit_loop import FirstPass, FitPredict, draw_seeds
from daskclust.core.estimator.validation import Data, check_survey
from daskclust.core.persistence.mixin import Saveable
from daskclust.core.persistence.schema import Array, Entry, Number, Plain
from daskclust.core.reduction.survey import PARTIAL_SURVEY
from daskclust.semisupervised.feature_views import Space, check_views, views_take_missing
from daskclust.semisupervised.predict import Nearness
from daskclust.semisupervised.problem import PrototypeProblem, PrototypeState

#: Part of the warning about rows without any value.
_UNOBSERVED = (
    "their class is unknown. Their margin is 0 and their classes have equal probabilities; "
    "SpectralClustering labels them -1"
)


class BasePrototypes(FitPredict, Saveable, BaseEstimator):
    """Base of the estimators that work on prototypes."""

    _saved_state: ClassVar[Mapping[str, Entry]] = {
        "n_iter_": Number(int, low=0),
        "history_": Plain(list),
        # Coordinates of a kernel are not rows: NaN.
        "prototypes_": Array("m p", finite=False),
    }

    checkpoint: Any
    n_neighbors: int
    random_state: Any
    views: Any

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.views != "auto":
            # The data are not known yet, and a cube supports all kinds of views.
            check_views(self.views, is_cube=True)

    def _first_pass(self, data: Data, read: Any) -> FirstPass:
        first = FirstPass(draw_seeds(self.random_state, 1))
        if not views_take_missing(self.views):
            return first
        check = partial(check_survey, treatment=_UNOBSERVED)
        return replace(first, reduction=PARTIAL_SURVEY, check=check)

    def _set_fitted(
        self,
        problem: PrototypeProblem,
        state: PrototypeState,
        prototypes: Sequence[Floats],
        history: list[dict[str, Any]],
        **facts: Any,
    ) -> None:
        """Set the attributes of all estimators on prototypes.

        ``prototypes`` are the sets that the model uses.  ``facts`` are added to the last record of
        the history.
        """
        # `passes` does not include two passes over a cube: for the sample, and for the graph.
        passes = history[-1]["passes"] + (0 if problem.cube is None else 2)
        nodes = [len(own) + len(problem.extra) for own in prototypes]
        last = {**history[-1], "passes": passes, "nodes": nodes, **facts}
        self.history_ = [*history[:-1], last]
        sets = zip(prototypes, problem.spaces(state), strict=False)
        self.prototypes_ = np.concatenate([space.restore(own) for own, space in sets])
        self.n_iter_ = int(state.n_iter)

    def _map(
        self,
        X: Any,
        function: Callable[[NDArray[Any]], NDArray[Any]],
        dtype: Any,
        name: str,
        n_columns: int | None = None,
        derive: Callable[[NDArray[Any]], NDArray[Any]] | None = None,
    ) -> Any:
        missing = self._space.takes_missing
        return map_new_rows(
            self, X, function, name, dtype, missing=missing, n_columns=n_columns, derive=derive
        )

    @property
    def _space(self) -> Space:
        """All views of the fitted model, side by side."""
        raise NotImplementedError

    def _nodes_of_views(self) -> list[tuple[Space, Floats]]:
        """Return the spaces in which rows are compared with nodes, and the nodes."""
        raise NotImplementedError

    def score_samples(self, X: Any) -> Any:
        """Compute the negative distance of each row to its nearest node, averaged over the views.

        Views are scaled to a total variance of 1: a score of -1 is one standard deviation of the
        data away from all nodes, and 0 is the maximum.

        Parameters
        ----------
        X : array-like, dask.array.Array or Cube of shape (n_samples, n_features)

        Returns
        -------
        scores : ndarray or dask.array.Array of shape (n_samples,), float64
            Lazy, and chunked like X, for a Dask array or a cube.  NaN for a row without any
            value.

        Raises
        ------
        ValueError
            See ``predict``.
        """
        check_is_fitted(self)
        return self._map(X, Nearness(self._nodes_of_views()), np.float64, "score_samples")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = views_take_missing(self.views)
        return tags
