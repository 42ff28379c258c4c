"""Data as an estimator takes them: checked by their metadata, bound when first read."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from daskclust.engine import Rows, open_rows
from daskclust.estimator.inputs import check_rows, check_weight

__all__ = ["Data", "check_data"]


@dataclass(frozen=True)
class Data:
    """Checked data, opened once; any number of fits may be made of them.

    Attributes
    ----------
    X : ndarray or dask.array.Array of shape (n, p)
        As checked; what lazy results refer to.
    weight : ndarray or dask.array.Array of shape (n,), or None
    feature_names : ndarray of shape (p,), or None
        ``feature_names_in_``.
    shared : Rows, optional
        Rows that are bound already, whose passes others may share.
    """

    X: Any
    weight: Any = None
    feature_names: NDArray[Any] | None = None
    shared: Rows | None = field(default=None, repr=False)

    @cached_property
    def rows(self) -> Rows:
        """The data, bound to where their passes run.

        A pass counts the rows of Dask arrays with chunks of unknown length.
        """
        return open_rows(self.X, self.weight) if self.shared is None else self.shared

    @property
    def n_rows(self) -> float:
        """Number of rows; NaN where that takes a pass which is not made yet."""
        n = self.X.shape[0]
        return self.rows.n_rows if np.isnan(n) and "rows" in vars(self) else n

    @property
    def n_features(self) -> int:
        """Number of features."""
        return int(self.X.shape[1])


def check_data(X: Any, sample_weight: Any = None, estimator: BaseEstimator | None = None) -> Data:
    """Check what is known without a look at the values.

    Parameters
    ----------
    X : array-like, dask.array.Array, Dask DataFrame or xarray.DataArray of shape (n, p)
    sample_weight : None, number, array-like or dask.array.Array of shape (n,)
    estimator : BaseEstimator, optional
        Named in messages.  It is given ``n_features_in_`` and ``feature_names_in_``.

    Raises
    ------
    ValueError
        For other dimensions, types that are no numbers, or nothing at all.
    """
    estimator = BaseEstimator() if estimator is None else estimator
    X = check_rows(estimator, X, reset=True)
    return Data(X, check_weight(sample_weight, X), getattr(estimator, "feature_names_in_", None))
