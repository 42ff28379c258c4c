"""Common to all clusterers: opening data, the first pass, labels and distances of rows."""

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
from daskclust.core.engine import map_rows, open_rows, working_dtype
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
) -> Any:
    """Apply a function to new rows of a fitted model; results are of their dtype or another."""
    X = check_rows(model, X, reset=False)
    working = working_dtype(X.dtype)
    of_rows = CheckedRows(function, working, missing, getattr(model, "feature_names_in_", None))
    return map_rows(X, of_rows, dtype=dtype or working, n_columns=n_columns, name=name)


@dataclass(frozen=True)
class CenterSpace:
    """Where a model compares rows with its centers; no metric where rows stay as they are."""

    centers: Floats
    metric: Metric | None
    feature_weights: Floats | None


def center_space(model: Any) -> CenterSpace | None:
    """Return where a fitted model compares rows with its centers; None if it does not."""
    if not isinstance(model, BaseClusterer):
        return None
    metric = None if model._metric.is_identity else model._metric
    return CenterSpace(model._centers, metric, model._prediction_weights)


def label_function(model: Any, dtype: Any) -> RowFunction | None:
    """Return the function by which a model labels rows, where ``predict`` does nothing else."""
    if getattr(type(model), "predict", None) is not BaseClusterer.predict:
        return None
    found: RowFunction = model._row_function(working_dtype(dtype))
    return found


def warn_few_distinct(n_distinct: int, n_clusters: int) -> None:
    """Warn where there are fewer distinct centers than clusters."""
    if n_distinct == n_clusters:
        return
    warn(
        f"Number of distinct clusters ({n_distinct}) found smaller than n_clusters "
        f"({n_clusters}). Possibly due to duplicate points in X; use n_clusters={n_distinct} "
        "or less.",
        ConvergenceWarning,
    )


#: Number of coordinates that a warning names.
_NAMED = 3


def note_observed(model: Any, observed: Bools | None) -> None:
    """Set which coordinates of the centers are observed (None: all), and warn about the others."""
    vars(model).pop("observed_coordinates_", None)
    if not is_partial(model):
        return
    shape = model.cluster_centers_.shape
    model.observed_coordinates_ = np.ones(shape, bool) if observed is None else observed
    places = np.argwhere(~model.observed_coordinates_)
    if not len(places):
        return
    names = getattr(model, "feature_names_in_", range(shape[1]))
    shown = ", ".join(f"cluster {c} and feature {names[j]}" for c, j in places[:_NAMED].tolist())
    more = ", ..." if len(places) > _NAMED else ""
    warn(
        f"{len(places)} of {np.prod(shape)} coordinates of cluster_centers_ are not observed: no "
        f"row of the cluster has a value of the feature ({shown}{more}). Such a coordinate keeps "
        "the value that it had before, which says nothing about the cluster. "
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
    """Base of the center-based clusterers: everything but the fit itself."""

    _saved_state: ClassVar[Mapping[str, Entry]] = {
        "cluster_centers_": Array("k p"),
        "n_iter_": Number(int, low=0),
        "history_": Plain(list, records=True),
        "_centers": Array("k q"),
        "_metric": OneOf(METRICS),
        "observed_coordinates_": Array("k p", kind="b", optional=True),
    }

    n_clusters: Any
    # Set by fit; the space in which rows and centers are compared.
    _metric: Metric
    _centers: Floats
    #: Weights of the features in distances of rows, where they are not ones.
    _prediction_weights: Floats | None = None

    def fit(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> Self:
        """Find the clusters.

        Parameters
        ----------
        X : array-like, dask.array.Array, DataFrame or xarray.DataArray of shape (n, p)
            Rows to cluster.
        y : ignored
        sample_weight : array-like or dask.array.Array of shape (n,), optional
            Weights of the rows: an integer weight equals repetition, 0 absence.

        Returns
        -------
        self
        """
        return fit(self, X, sample_weight)

    def _check_features(self, n_features: int) -> None:
        """Check the parameters that depend on the number of features: centers that are given."""
        init = getattr(self, "init", "")
        if not (isinstance(init, str) or callable(init)):
            check_init_array(init, self.n_clusters, n_features)

    def _check_sizes(self) -> None:
        check_count(self, "n_clusters", len(self.cluster_centers_))

    @property
    def _depends_on_units(self) -> bool:
        """Whether a feature in another unit gives other clusters."""
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
            For infinity, for NaN unless ``missing="partial"``, and another number of
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
        """Distance of each row to each center, in the metric of the fit.

        Over what the row observes, where values may be missing; NaN for a row without any.

        Parameters
        ----------
        X : array-like or dask.array.Array of shape (n_samples, n_features)

        Returns
        -------
        distances : ndarray or dask.array.Array of shape (n_samples, n_clusters)
            float32 for float32 input and for what it holds exactly (float16 and integers of
            one or two bytes), else float64.  Lazy, and chunked like X, for a Dask array.

        Raises
        ------
        ValueError
            See ``predict``; and for lazy input after ``set_output(transform="pandas")``.
        """
        check_output(self, X)
        return self._mapped(X, "transform", distances=True)

    def fit_transform(self, X: Any, y: Any = None, **params: Any) -> Any:
        """Fit, and return the distance of each row to each center.

        Parameters
        ----------
        X : array-like or dask.array.Array of shape (n_samples, n_features)
        y : optional
            Labels, if ``fit`` of the estimator takes some.
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
        """Minus the distance of each row to its nearest center, in the metric of the fit.

        The higher, the more normal; 0 on a center.  Distances are not divided by the spread of
        the cluster, which models do not keep: rows of wide clusters score lower.

        Parameters
        ----------
        X : array-like, dask.array.Array or Cube of shape (n_samples, n_features)

        Returns
        -------
        scores : ndarray or dask.array.Array of shape (n_samples,)
            float32 for float32 input, else float64.  Lazy, and chunked like X, for a Dask
            array.  NaN for a row without any value.

        Raises
        ------
        ValueError
            See ``predict``.
        """
        return self._mapped(X, "score_samples", nearest_only=True)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Minus the sum of squared distances of rows to the centers of :meth:`predict`.

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
            # Only now is a second look worth its pass: to say where the fault lies.
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
