"""Transformers of features that read data in one pass and return lazy results."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from daskclust.core.array_types import Array as Rows
from daskclust.core.array_types import Floats, Ints
from daskclust.core.engine import open_rows
from daskclust.core.estimator.base import map_new_rows
from daskclust.core.estimator.parameters import FLAG, Checked, Constraints
from daskclust.core.estimator.validation import (
    check_output,
    check_rows,
    check_values,
    check_weight,
    weights_for,
)
from daskclust.core.kernels.moments import merge_moments
from daskclust.core.persistence.mixin import Saveable
from daskclust.core.persistence.schema import Array, Entry
from daskclust.core.reduction import SurveyRequest
from daskclust.core.reduction.survey import PARTIAL_SURVEY

__all__ = ["StandardScaler"]


@dataclass(frozen=True)
class _Standardized:
    """Function that subtracts the mean and divides by the scale, or does the inverse."""

    mean: Floats
    scale: Floats
    inverse: bool = False

    def __call__(self, x: Rows) -> NDArray[Any]:
        wide = x.astype(np.float64)
        if self.inverse:
            wide *= self.scale
            wide += self.mean
        else:
            wide -= self.mean
            wide /= self.scale
        return wide.astype(x.dtype, copy=False)


class StandardScaler(Checked, Saveable, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Standardize features: subtract the mean and divide by the standard deviation.

    Use it when features have different units, for data larger than memory.  Results are those of
    :class:`sklearn.preprocessing.StandardScaler`.

    Parameters
    ----------
    with_mean : bool, default=True
        Subtract the mean of each feature.
    with_std : bool, default=True
        Divide each feature by its standard deviation.

    Attributes
    ----------
    mean_ : ndarray of shape (n_features,)
        Mean of the observed values of each feature; NaN for a feature without values.
    var_ : ndarray of shape (n_features,)
        Variance of the observed values of each feature (divisor n).
    scale_ : ndarray of shape (n_features,) or None
        Divisor of each feature: the standard deviation, or 1 for a constant feature.  None if
        `with_std` is False.
    n_samples_seen_ : int, float or ndarray of shape (n_features,)
        Number of observed values of each feature, or the sum of their weights.  It is one number if
        all features have the same.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if X has names.

    See Also
    --------
    daskclust.open_table : ``scale="standard"`` scales the columns of a table.
    daskclust.open_cube : ``scale="standard"`` scales the bands of a scene.

    Notes
    -----
    NaN is a missing value: ``fit`` ignores it and ``transform`` keeps it.  ``fit`` takes one pass.
    Other chunks or batches change the statistics only by rounding errors.  They are merged by the
    formula of Chan, Golub and LeVeque (1983).
    ``mean_`` and ``var_`` are also computed if `with_mean` and `with_std` are False.

    Examples
    --------
    >>> import dask.array as da
    >>> from daskclust.preprocessing import StandardScaler
    >>> X = da.from_array([[1.0, 5.0], [3.0, 5.0], [5.0, 5.0]], chunks=(2, -1))
    >>> scaler = StandardScaler().fit(X)
    >>> scaler.mean_.tolist(), scaler.n_samples_seen_
    ([3.0, 5.0], 3)
    >>> scaler.transform(X).compute().round(2).tolist()
    [[-1.22, 0.0], [0.0, 0.0], [1.22, 0.0]]
    """

    _saved_state: ClassVar[Mapping[str, Entry]] = {
        "mean_": Array("p", finite=False),
        "var_": Array("p", low=0.0, finite=False),
        "_divisors": Array("p", low=0.0, finite=False),
        "_observed": Array("p", low=0.0),
    }
    _of_rows: ClassVar[tuple[str, ...]] = ()

    _parameter_constraints: ClassVar[Constraints] = {"with_mean": [FLAG], "with_std": [FLAG]}

    def __init__(self, *, with_mean: bool = True, with_std: bool = True) -> None:
        self.with_mean = with_mean
        self.with_std = with_std

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Compute the mean and the variance of each feature.

        Parameters
        ----------
        X : array-like, dask.array.Array, DataFrame or Cube of shape (n_samples, n_features)
            Rows.  NaN is a missing value.
        y : ignored
        sample_weight : array-like or dask.array.Array of shape (n_samples,), optional
            Weights of the rows.
            Cubes also accept an image (y, x) and ``"area"``; see
            :meth:`daskclust.Cube.row_weights`.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            X contains infinity, or a weight is invalid.
        """
        return self._update(X, sample_weight, reset=True)

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Update the mean and the variance of each feature with more rows.

        Parameters
        ----------
        X : array-like, dask.array.Array or DataFrame of shape (n_samples, n_features)
            More rows.  NaN is a missing value.
        y : ignored
        sample_weight : array-like or dask.array.Array of shape (n_samples,), optional
            Weights of the rows.
            Cubes also accept an image (y, x) and ``"area"``; see
            :meth:`daskclust.Cube.row_weights`.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            X contains infinity or has another number of features, or a weight is invalid.
        """
        return self._update(X, sample_weight, reset=not hasattr(self, "mean_"))

    def _update(self, X: Any, sample_weight: Any, *, reset: bool) -> Self:
        self._check_parameters()
        # A call that fails changes nothing.
        draft = copy(self)
        sample_weight = weights_for(X, sample_weight)
        X = check_rows(draft, X, reset=reset)
        rows = open_rows(X, check_weight(sample_weight, X))
        survey = rows.reduce(PARTIAL_SURVEY, SurveyRequest(X.shape[1]))
        check_values(survey, getattr(draft, "feature_names_in_", None))
        if survey.weight <= 0:
            raise ValueError("At least one sample weight must be positive, got only zeros.")
        draft._observed, draft.mean_, draft.var_ = survey.observed, survey.mean, survey.variance
        if not reset:
            weight, mean, squares = merge_moments(self._moments(), draft._moments())
            with np.errstate(invalid="ignore"):
                draft._observed, draft.mean_ = weight, np.where(weight > 0, mean, np.nan)
                draft.var_ = squares / weight
        # A variance below its rounding error counts as 0, as in scikit-learn.
        n, eps = draft._observed, np.finfo(np.float64).eps
        is_constant = draft.var_ <= n * eps * draft.var_ + (n * draft.mean_ * eps) ** 2
        draft._divisors = np.where(is_constant, 1.0, np.sqrt(draft.var_))
        self.__dict__ = draft.__dict__
        return self

    def _moments(self) -> Floats:
        """Return weights, means and sums of squared deviations (3, p); 0 without values."""
        moments = np.stack([self._observed, self.mean_, self.var_ * self._observed])
        moments[:, self._observed == 0] = 0.0
        return moments

    @property
    def n_samples_seen_(self) -> int | float | Ints | Floats:
        """Number of observed values of each feature; one number if it is the same for all."""
        counts = self._observed
        if (counts == np.round(counts)).all():
            counts = counts.astype(np.int64)
        same: int | float = counts[0].item()
        return same if (counts == same).all() else counts

    @property
    def scale_(self) -> Floats | None:
        """Divisor of each feature; None if `with_std` is False."""
        return self._divisors if self.with_std else None

    def transform(self, X: Any) -> Any:
        """Return the standardized rows.

        Parameters
        ----------
        X : array-like, dask.array.Array, DataFrame or Cube of shape (n_samples, n_features)
            Rows.  NaN stays NaN.

        Returns
        -------
        X_scaled : ndarray or dask.array.Array of shape (n_samples, n_features)
            float32 for float32, float16 and integers of one or two bytes, else float64.  For a Dask
            array the result is lazy and has the chunks of X.

        Raises
        ------
        ValueError
            X contains infinity or has another number of features, or X is lazy after
            ``set_output(transform="pandas")``.
        """
        return self._mapped(X, "transform", inverse=False)

    def inverse_transform(self, X: Any) -> Any:
        """Return rows in the original units.

        Parameters
        ----------
        X : array-like, dask.array.Array or DataFrame of shape (n_samples, n_features)
            Standardized rows.

        Returns
        -------
        X_original : ndarray or dask.array.Array of shape (n_samples, n_features)
            See ``transform``.

        Raises
        ------
        ValueError
            See ``transform``.
        """
        return self._mapped(X, "inverse_transform", inverse=True)

    def _mapped(self, X: Any, name: str, *, inverse: bool) -> Any:
        check_is_fitted(self)
        check_output(self, X)
        p = self.n_features_in_
        mean = self.mean_ if self.with_mean else np.zeros(p)
        function = _Standardized(mean, self._divisors if self.with_std else np.ones(p), inverse)
        return map_new_rows(self, X, function, name, missing=True, n_columns=p)

    def _check_features(self, n_features: int) -> None:
        """Accept any number of features."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def scaler_of(mean: Floats, std: Floats) -> StandardScaler:
    """Return the scaler with these statistics, which a model has stored."""
    scaler = StandardScaler()
    scaler.mean_, scaler.var_, scaler._divisors = mean, np.square(std), std
    scaler._observed, scaler.n_features_in_ = np.ones(len(mean)), len(mean)
    return scaler
