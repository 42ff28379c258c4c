"""Common to the estimators on prototypes: parameters, kept state, rows at prediction."""

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
from daskclust.core.estimator.validation import Data, check_integer, check_survey
from daskclust.core.persistence.mixin import Saveable
from daskclust.core.persistence.schema import Array, Entry, Number, Plain
from daskclust.core.reduction.survey import PARTIAL_SURVEY
from daskclust.semisupervised.feature_views import (
    GAP_ENTRIES,
    Space,
    check_gaps,
    check_views,
    keep_gaps,
    kept_gaps,
    takes_gaps,
)
from daskclust.semisupervised.predict import Nearness
from daskclust.semisupervised.problem import PrototypeProblem, PrototypeState

#: What becomes of rows without any value.
_UNOBSERVED = (
    "nothing can be said of them. Their margin is 0 and their classes are equally likely; "
    "SpectralClustering labels them -1"
)


class BasePrototypes(FitPredict, Saveable, BaseEstimator):
    """Base of the estimators that work on prototypes."""

    _saved_state: ClassVar[Mapping[str, Entry]] = {
        "n_iter_": Number(int, low=0),
        "history_": Plain(list),
        # Coordinates of a kernel are those of no row: NaN.
        "prototypes_": Array("m p", finite=False),
        "_units": Array("v", kind="b"),
        "_view_centers": Array("v w"),
        "_matrices": Array("v w q"),
        **GAP_ENTRIES,
    }

    checkpoint: Any
    _nodes: Floats
    n_neighbors: int
    random_state: Any
    views: Any

    def _check_parameters(self) -> None:
        check_integer(self.n_neighbors, "n_neighbors", 1)
        if self.views != "auto":
            # Whether the data are a cube is not known yet; names are checked in any case.
            check_views(self.views, is_cube=True)

    def _first_pass(self, data: Data, read: Any) -> FirstPass:
        first = FirstPass(draw_seeds(self.random_state, 1))
        if not takes_gaps(self.views):
            return first
        check = partial(check_survey, said=_UNOBSERVED)
        return replace(first, reduction=PARTIAL_SURVEY, check=check)

    def _keep(
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
        # Passes over a cube, which its rows do not count: the sample, and the graph.
        passes = history[-1]["passes"] + (0 if problem.cube is None else 2)
        nodes = [len(own) + len(problem.extra) for own in prototypes]
        last = {**history[-1], "passes": passes, "nodes": nodes, **facts}
        self.history_ = [*history[:-1], last]
        self._units, self._view_centers = state.units, state.centers
        self._matrices = state.matrices
        keep_gaps(self, problem.gaps)
        parts = zip(prototypes, problem.spaces(state), strict=False)
        self.prototypes_ = np.concatenate([space.restore(own) for own, space in parts])
        self.n_iter_ = int(state.n_iter)

    def _check_sizes(self) -> None:
        check_gaps(self)

    def _map(
        self,
        X: Any,
        function: Callable[[NDArray[Any]], NDArray[Any]],
        dtype: Any,
        name: str,
        n_columns: int | None = None,
    ) -> Any:
        gaps = self._space.takes_gaps
        return map_new_rows(self, X, function, name, dtype, missing=gaps, n_columns=n_columns)

    def _nodes_of_views(self) -> list[tuple[Space, Floats]]:
        """Return the views in which rows are compared with nodes, and the nodes."""
        return [(self._space, self._nodes)]

    def score_samples(self, X: Any) -> Any:
        """Minus the distance of each row to its nearest prototype, on average over the views.

        Views are scaled to a total variance of 1, so that a score of -1 is one deviation of the
        data away from all that was seen; 0 is on a prototype.

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

    @property
    def _space(self) -> Space:
        return Space(self._units, self._view_centers, self._matrices, kept_gaps(self))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = takes_gaps(self.views)
        return tags
