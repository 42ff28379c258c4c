"""Base class of all clusterers: open data, run the first pass, label rows, measure distances."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

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

from daskclust.core.array_types import Bools, Floats
from daskclust.core.engine import Derived, map_rows, open_rows, working_dtype
from daskclust.core.estimator.fit_loop import FitPredict, fit
from daskclust.core.estimator.row_functions import CheckedRows, RowFunction
from daskclust.core.estimator.transforms import METRICS, Metric
from daskclust.core.estimator.validation import (
    Data,
    check_enough_rows,
    check_init_array,
    check_output,
    check_rows,
    check_values,
    check_weight,
    is_partial,
    weights_for,
)
from daskclust.core.persistence.mixin import Saveable, check_count
from daskclust.core.persistence.schema import Array, Entry, Number, OneOf, Plain
from daskclust.core.reduction import ASSIGN, SURVEY, CenterSets, ClusterStatistics, SurveyRequest
from daskclust.core.reduction.survey import PARTIAL_SURVEY
from daskclust.core.warn import warn
from daskclust.exceptions import MissingValuesWarning


def map_new_rows(
    model: Any,
    X: Any,
    function: Callable[[NDArray[Any]], NDArray[Any]],
    name: str,
    dtype: Any = None,
    *,
    missing: bool = False,
    n_columns: int | None = None,
    derive: Callable[[NDArray[Any]], NDArray[Any]] | None = None,
) -> Any:
    """Apply a function to new rows of a fitted model; default dtype: the working precision.

    `derive` computes the results from those of the function.  Calls with `derive` for the same X
    share the tasks of the function.
    """
    X = check_rows(model, X, reset=False)
    working = working_dtype(X.dtype)
    of_rows: Any = CheckedRows(
        function, working, missing, getattr(model, "feature_names_in_", None)
    )
    of_rows = of_rows if derive is None else Derived(of_rows, derive)
    return map_rows(X, of_rows, dtype=dtype or working, n_columns=n_columns, name=name)


@dataclass(frozen=True)
class CenterSpace:
    """Centers of a model and the space of its distances; `metric` is None for unchanged rows."""

    centers: Floats
    metric: Metric | None
    feature_weights: Floats | None


def center_space(model: Any) -> CenterSpace | None:
    """Return the space in which a fitted model compares rows with centers, or None."""
    if not isinstance(model, BaseClusterer):
        return None
    metric = None if model._metric.is_identity else model._metric
    return CenterSpace(model._centers, metric, model._prediction_weights)


def label_function(model: Any, dtype: Any) -> RowFunction | None:
    """Return the function by which a model labels rows, or None if ``predict`` does more."""
    if getattr(type(model), "predict", None) is not BaseClusterer.predict:
        return None
    function: RowFunction = model._row_function(working_dtype(dtype))
    return function


def warn_few_distinct(n_distinct: int, n_clusters: int) -> None:
    """Warn if there are fewer distinct centers than clusters."""
    if n_distinct == n_clusters:
        return
    warn(
        f"Number of distinct clusters ({n_distinct}) found smaller than n_clusters "
        f"({n_clusters}). Possibly due to duplicate points in X; use n_clusters={n_distinct} "
        "or less.",
        ConvergenceWarning,
    )


#: Maximum number of coordinates that a warning names.
_NAMED = 3


def note_observed(model: Any, observed: Bools | None) -> None:
    """Store which center coordinates are observed (None: all), and warn about the others."""
    vars(model).pop("observed_coordinates_", None)
    if not is_partial(model):
        return
    shape = model.cluster_centers_.shape
    model.observed_coordinates_ = np.ones(shape, bool) if observed is None else observed
    unobserved = np.argwhere(~model.observed_coordinates_)
    if not len(unobserved):
        return
    names = getattr(model, "feature_names_in_", range(shape[1]))
    shown = ", ".join(
        f"cluster {c} and feature {names[j]}" for c, j in unobserved[:_NAMED].tolist()
    )
    more = ", ..." if len(unobserved) > _NAMED else ""
    warn(
        f"{len(unobserved)} of {np.prod(shape)} coordinates of cluster_centers_ are not observed: "
        f"no row of the cluster has a value of the feature ({shown}{more}). Such a coordinate "
        "keeps its previous value, which contains no information about the cluster. "
        "observed_coordinates_ is False there.",
        MissingValuesWarning,
    )


class BaseClusterer(
    FitPredict,
    Saveable,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    ClusterMixin,
    BaseEstimator,
):
    """Base class of the center-based clusterers: everything except the fit."""

    _saved_state: ClassVar[Mapping[str, Entry]] = {
        "cluster_centers_": Array("k p"),
        "n_iter_": Number(int, low=0),
        "history_": Plain(list, records=True),
        "_centers": Array("k q"),
        "_metric": OneOf(METRICS),
        "observed_coordinates_": Array("k p", kind="b", optional=True),
    }

    n_clusters: Any
    # Set by fit: the space in which rows and centers are compared.
    _metric: Metric
    _centers: Floats
    #: Weights of the features in distances, or None if all weights are 1.
    _prediction_weights: Floats | None = None

    def fit(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> Self:
        """Find the clusters.

        Parameters
        ----------
        X : array-like, dask.array.Array, DataFrame or xarray.DataArray of shape (n, p)
            Rows to cluster.  ``KMeans`` also takes SciPy sparse matrices.
        y : ignored
        sample_weight : array-like or dask.array.Array of shape (n,), optional
            Weights of the rows.  An integer weight equals repetition; weight 0 equals absence.
            Cubes also accept an image (y, x) and ``"area"``; see
            :meth:`daskclust.Cube.row_weights`.

        Returns
        -------
        self
        """
        return fit(self, X, sample_weight)

    def _check_features(self, n_features: int) -> None:
        """Check parameters that depend on the number of features, such as an array `init`."""
        init = getattr(self, "init", "")
        if not (isinstance(init, str) or callable(init)):
            check_init_array(init, self.n_clusters, n_features)

    def _check_sizes(self) -> None:
        check_count(self, "n_clusters", len(self.cluster_centers_))

    @property
    def _depends_on_units(self) -> bool:
        """True if other units of a feature lead to other clusters."""
        return getattr(self, "metric", "euclidean") == "euclidean"

    def _read(self, data: Data) -> Any:
        check_enough_rows(data, self.n_clusters)

    def _row_function(self, dtype: Any) -> RowFunction:
        weights, missing = self._prediction_weights, is_partial(self)
        names = getattr(self, "feature_names_in_", None)
        return RowFunction(
            self._centers, self._metric, weights, dtype, missing=missing, names=names
        )

    def predict(self, X: Any) -> Any:
        """Return the nearest center of each row.

        Parameters
        ----------
        X : array-like or dask.array.Array of shape (n_samples, n_features)

        Returns
        -------
        labels : ndarray or dask.array.Array of shape (n_samples,), int32
            For a Dask array the result is lazy and has the chunks of X.  The values of X are
            checked when the result is computed.

        Raises
        ------
        ValueError
            If X contains infinity, or NaN unless ``missing="partial"``, or has another number of
            features.
        """
        return self._mapped(X, "predict", dtype=np.int32)

    def _mapped(self, X: Any, name: str, dtype: Any = None, **kind: Any) -> Any:
        check_is_fitted(self)
        X = check_rows(self, X, reset=False)
        function = replace(self._row_function(working_dtype(X.dtype)), **kind)
        n_columns = len(self._centers) if function.distances else None
        return map_rows(X, function, dtype=dtype or function.dtype, n_columns=n_columns, name=name)

    def transform(self, X: Any) -> Any:
        """Return the distance of each row to each center, in the metric of the fit.

        If values may be missing, the distance uses the observed values; a row without values has
        NaN.

        Parameters
        ----------
        X : array-like or dask.array.Array of shape (n_samples, n_features)

        Returns
        -------
        distances : ndarray or dask.array.Array of shape (n_samples, n_clusters)
            float32 for float32, float16 and integers of one or two bytes, else float64.  For a Dask
            array the result is lazy and has the chunks of X.

        Raises
        ------
        ValueError
            Like ``predict``, and for lazy input after ``set_output(transform="pandas")``.
        """
        check_output(self, X)
        return self._mapped(X, "transform", distances=True)

    def fit_transform(self, X: Any, y: Any = None, **params: Any) -> Any:
        """Fit, and return the distance of each row to each center.

        Parameters
        ----------
        X : array-like or dask.array.Array of shape (n_samples, n_features)
        y : optional
            Labels, if ``fit`` of the estimator uses labels.
        **params
            Other arguments of ``fit``, such as ``sample_weight``.

        Returns
        -------
        distances : ndarray or dask.array.Array of shape (n_samples, n_clusters)
            See ``transform``.
        """
        check_output(self, X)
        return super().fit_transform(X, y, **params)

    def score_samples(self, X: Any) -> Any:
        """Return the negative distance of each row to its nearest center, in the metric of the fit.

        Higher scores are more normal; a row on a center has score 0.  Distances are not divided by
        the spread of the cluster, so rows of wide clusters score lower.

        Parameters
        ----------
        X : array-like, dask.array.Array or Cube of shape (n_samples, n_features)

        Returns
        -------
        scores : ndarray or dask.array.Array of shape (n_samples,)
            float32 for float32 input, else float64.  For a Dask array the result is lazy and has
            the chunks of X.  A row without values has NaN.

        Raises
        ------
        ValueError
            See ``predict``.
        """
        return self._mapped(X, "score_samples", nearest_only=True)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the negative sum of squared distances of rows to the centers of :meth:`predict`.

        Parameters
        ----------
        X : array-like or dask.array.Array of shape (n_samples, n_features)
        y : ignored
        sample_weight : array-like of shape (n_samples,), optional
            Cubes also accept an image (y, x) and ``"area"``; see
            :meth:`daskclust.Cube.row_weights`.

        Returns
        -------
        float
            Computed in one pass.
        """
        check_is_fitted(self)
        sample_weight = weights_for(X, sample_weight)
        X = check_rows(self, X, reset=False)
        return -self._inertia(X, sample_weight)

    def _inertia(self, X: Any, sample_weight: Any) -> float:
        return float(self._assigned(X, sample_weight).inertia.sum())

    def _assigned(self, X: Any, sample_weight: Any) -> ClusterStatistics:
        rows = open_rows(X, check_weight(sample_weight, X)).transformed(
            None if self._metric.is_identity else self._metric
        )
        weights = self._prediction_weights
        state = CenterSets(
            self._centers[None],
            feature_weights=None if weights is None else weights[None],
            missing=is_partial(self),
        )
        stats: ClusterStatistics = rows.reduce(ASSIGN, state)
        if not np.isfinite(stats.inertia.sum()):
            # An additional pass, only after a failure, finds the invalid row.
            survey = PARTIAL_SURVEY if is_partial(self) else SURVEY
            names = getattr(self, "feature_names_in_", None)
            check_values(rows.reduce(survey, SurveyRequest(X.shape[1])), names)
        return stats

    @property
    def _n_features_out(self) -> int:
        return len(self._centers)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = is_partial(self)
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
