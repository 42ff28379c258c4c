"""What all clusterers share: opening data, the first pass, labels and distances of rows."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from daskclust._warnings import warn
from daskclust.engine import Checkpoint, Fingerprint, Rows, as_matrix, map_rows, open_rows
from daskclust.estimator.inputs import check_rows, check_weight
from daskclust.estimator.spaces import METRICS, Euclidean, Metric
from daskclust.kernels.moments import first_nonfinite
from daskclust.kernels.nearest.assign import nearest
from daskclust.persistence.saveable import Saveable
from daskclust.persistence.schema import Array, Entry, Number, OneOf, Plain
from daskclust.reduction import ASSIGN, SURVEY, CenterSets, RowLabels, Survey, SurveyRequest

__all__ = [
    "BaseClusterer",
    "OpenData",
    "check_values",
    "draw_seeds",
    "output_dtype",
    "warn_few_distinct",
]

Float = NDArray[np.float64]


def draw_seeds(random_state: Any, count: int) -> tuple[int, ...]:
    """One seed for each restart, from whatever scikit-learn takes as ``random_state``.

    Parameters
    ----------
    random_state : None, int, numpy.random.RandomState or numpy.random.Generator
    count : int
    """
    if isinstance(random_state, np.random.Generator):
        root = int(random_state.integers(2**32))
    elif isinstance(random_state, np.random.RandomState):
        root = int(random_state.randint(2**32, dtype=np.uint32))
    elif random_state is None:
        root = int(np.random.SeedSequence().generate_state(1)[0])
    elif isinstance(random_state, numbers.Integral):
        root = int(random_state)
        if root < 0:
            raise ValueError(
                f"random_state={random_state} is negative; give a non-negative integer."
            )
    else:
        raise ValueError(
            f"random_state={random_state!r} is no seed; give a non-negative integer, a NumPy "
            "Generator or RandomState, or None."
        )
    words = np.random.SeedSequence(root).generate_state(count, np.uint64)
    return tuple(int(word >> np.uint64(1)) for word in words)


def _nonfinite_message(is_nan: bool, row: int, column: int) -> str:
    what = "NaN" if is_nan else "infinity"
    return (
        f"Input X contains {what}: the first at row {row}, column {column}. Drop or mask such "
        "rows, or use an estimator that models missing values."
    )


def check_values(survey: Survey) -> None:
    """Raise for the first NaN or infinity, and the first unusable weight."""
    if survey.first_bad is not None:
        raise ValueError(_nonfinite_message(survey.bad_is_nan, *survey.first_bad))
    if survey.bad_weight_row is not None:
        raise ValueError(
            f"sample_weight of row {survey.bad_weight_row} is NaN, infinite or negative; "
            "weights must be finite and non-negative."
        )


@dataclass(frozen=True)
class RowFunction:
    """What becomes of a block's rows in ``predict`` and ``transform``; travels to workers."""

    centers: Float
    metric: Metric
    feature_weights: Float | None
    dtype: np.dtype[Any]
    distances: bool = False

    def with_centers(self, centers: Float, feature_weights: Float | None) -> RowFunction:
        """Return the same function for other centers and weights."""
        return replace(self, centers=centers, feature_weights=feature_weights)

    def __call__(self, x: NDArray[Any], start: int) -> NDArray[Any]:
        """Labels of the rows, or their distances to all centers."""
        x = as_matrix(x, self.dtype)
        row, column = first_nonfinite(x)
        if row >= 0:
            is_nan = bool(np.isnan(x[row, column]))
            raise ValueError(_nonfinite_message(is_nan, start + row, column))
        x = self.metric(x)
        if not self.distances:
            return nearest(x, self.centers, feature_weights=self.feature_weights)[0]
        out = np.empty((len(x), len(self.centers)), dtype=self.dtype)
        for k in range(len(self.centers)):
            squared = nearest(x, self.centers[k : k + 1], feature_weights=self.feature_weights)[1]
            out[:, k] = np.sqrt(squared)
        return out


@dataclass(frozen=True)
class OpenData:
    """Data after their first pass.

    Attributes
    ----------
    X : ndarray or dask.array.Array
        As checked; what lazy results refer to.
    rows : Rows
    survey : Survey
    seeds : tuple of int
        One for each restart.
    """

    X: Any
    rows: Rows
    survey: Survey
    seeds: tuple[int, ...]


def warn_few_distinct(n_distinct: int, n_clusters: int) -> None:
    """Warn that there are fewer distinct rows than clusters."""
    warn(
        f"Number of distinct clusters ({n_distinct}) found smaller than n_clusters "
        f"({n_clusters}). Possibly due to duplicate points in X; use n_clusters={n_distinct} "
        "or less.",
        ConvergenceWarning,
    )


class BaseClusterer(
    Saveable, ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator
):
    """Base of the center-based clusterers: everything but the fit itself."""

    _saved_state: ClassVar[Mapping[str, Entry]] = {
        "cluster_centers_": Array("k", "p"),
        "n_iter_": Number(int, low=0),
        "history_": Plain(list, records=True),
        "_centers": Array("k", "q"),
        "_metric": OneOf(METRICS),
    }

    # Set by fit; the space in which rows and centers are compared.
    _metric: Metric
    _centers: Float

    def _check_data(self, X: Any, sample_weight: Any) -> tuple[Any, Any]:
        """Return X and weights as arrays, checked by what is known without looking at values."""
        X = check_rows(self, X, reset=True)
        return X, check_weight(sample_weight, X)

    def _open(
        self,
        X: Any,
        weight: Any,
        *,
        n_restarts: int,
        n_picks: int,
        metric: Metric,
        labels: RowLabels | None = None,
    ) -> OpenData:
        """Bind checked data, and make the first pass."""
        rows = open_rows(X, weight)
        if not metric.is_identity:
            rows = rows.transformed(metric)
        if rows.n_rows == 0:
            raise ValueError(
                f"Found array with 0 sample(s) (shape=(0, {rows.n_features})) while a minimum "
                "of 1 is required."
            )
        seeds = draw_seeds(self.random_state, n_restarts)
        request = SurveyRequest(rows.n_features, seeds, n_picks, labels)
        survey: Survey = rows.reduce(SURVEY, request)
        check_values(survey)
        if survey.weight <= 0:
            raise ValueError("All sample weights are zero; at least one must be positive.")
        return OpenData(X, rows, survey, seeds)

    def _check_n_clusters(self, n_rows: int) -> None:
        if n_rows < self.n_clusters:
            raise ValueError(
                f"n_samples={n_rows} should be >= n_clusters={self.n_clusters}. Ask for fewer "
                "clusters."
            )

    def _checkpoint(
        self, data: OpenData, ignore: tuple[str, ...] = (), more: Mapping[str, Any] | None = None
    ) -> Checkpoint | None:
        """Open the checkpoint file, if one is wanted."""
        if self.checkpoint is None or isinstance(self.checkpoint, Checkpoint):
            # Open already: this fit is part of another one, which is what the file belongs to.
            return self.checkpoint
        params = self.get_params(deep=False)
        for name in ("checkpoint", *ignore):
            params.pop(name)
        params.update(more or {})
        name = type(self).__name__
        return Checkpoint(self.checkpoint, Fingerprint(name, params, data.rows.n_rows, data.survey))

    def _row_function(self, dtype: Any, *, distances: bool = False) -> RowFunction:
        return RowFunction(
            self._centers, self._metric, self._prediction_weights(), dtype, distances
        )

    def _prediction_weights(self) -> Float | None:
        """Return the feature weights of the distance, if the estimator has any."""
        return None

    def fit_predict(self, X: Any, y: Any = None, **params: Any) -> Any:
        """Fit and return ``labels_``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : optional
            As for ``fit``.
        **params
            As for ``fit``.

        Returns
        -------
        labels : ndarray or dask.array.Array of shape (n_samples,), int32
        """
        return self.fit(X, y, **params).labels_

    def predict(self, X: Any) -> Any:
        """Nearest center of each row.

        Parameters
        ----------
        X : array-like or dask.array.Array of shape (n_samples, n_features)

        Returns
        -------
        labels : ndarray or dask.array.Array of shape (n_samples,), int32
            Lazy, and chunked like X, for a Dask array: values of X are checked
            when it is computed.

        Raises
        ------
        ValueError
            For NaN or infinity, and another number of features.
        """
        check_is_fitted(self)
        X = check_rows(self, X, reset=False)
        return map_rows(X, self._row_function(output_dtype(X)), dtype=np.int32, name="predict")

    def transform(self, X: Any) -> Any:
        """Distance of each row to each center, in the metric of the fit.

        Parameters
        ----------
        X : array-like or dask.array.Array of shape (n_samples, n_features)

        Returns
        -------
        distances : ndarray or dask.array.Array of shape (n_samples, n_clusters)
            float32 for float32 input, else float64.
        """
        check_is_fitted(self)
        X = check_rows(self, X, reset=False)
        dtype = output_dtype(X)
        return map_rows(
            X,
            self._row_function(dtype, distances=True),
            dtype=dtype,
            n_columns=len(self._centers),
            name="transform",
        )

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Minus the sum of squared distances of rows to their nearest center.

        Parameters
        ----------
        X : array-like or dask.array.Array of shape (n_samples, n_features)
        y : ignored
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        float
            Computed in one pass.
        """
        check_is_fitted(self)
        X = check_rows(self, X, reset=False)
        rows = open_rows(X, check_weight(sample_weight, X)).transformed(
            None if self._metric.is_identity else self._metric
        )
        weights = self._prediction_weights()
        state = CenterSets(
            self._centers[None], feature_weights=None if weights is None else weights[None]
        )
        inertia = float(rows.reduce(ASSIGN, state).inertia.sum())
        if not np.isfinite(inertia):
            # Only now is a second look worth its pass: to say where the fault lies.
            check_values(rows.reduce(SURVEY, SurveyRequest(X.shape[1])))
        return -inertia

    @property
    def _n_features_out(self) -> int:
        return len(self._centers)

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn what this estimator takes."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def output_dtype(X: Any) -> np.dtype[Any]:
    """Return the precision of what is made of rows: float32 for float32 rows, else float64."""
    return np.dtype(np.float32) if X.dtype in (np.float32, np.float16) else np.dtype(np.float64)


EUCLIDEAN = Euclidean()
