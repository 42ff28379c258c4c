"""Data as an estimator takes them: checked by their metadata, bound when first read."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from daskclust.engine import Rows, open_rows
from daskclust.estimator.inputs import check_rows, check_weight

__all__ = ["Data", "check_data"]


class Data:
    """Checked data, opened once; any number of fits may be made of them.

    Parameters
    ----------
    X : ndarray or dask.array.Array of shape (n, p)
        As checked; what lazy results refer to.
    weight : ndarray or dask.array.Array of shape (n,), or None
    feature_names : ndarray of shape (p,), or None
        ``feature_names_in_``.
    rows : Rows, optional
        X, where it is bound already.
    """

    def __init__(
        self,
        X: Any,
        weight: Any = None,
        feature_names: NDArray[Any] | None = None,
        rows: Rows | None = None,
    ) -> None:
        self.X, self.weight, self.feature_names = X, weight, feature_names
        self._rows = rows

    @property
    def rows(self) -> Rows:
        """The data, bound to where their passes run, when first asked for.

        A pass counts the rows of Dask arrays with chunks of unknown length.
        """
        if self._rows is None:
            self._rows = open_rows(self.X, self.weight)
        return self._rows

    @property
    def opened(self) -> Rows | None:
        """The same rows, where they were asked for."""
        return self._rows

    def through(self, rows: Rows) -> Data:
        """Return the same data, read through another handle."""
        return Data(self.X, self.weight, self.feature_names, rows)

    @property
    def n_rows(self) -> float:
        """Number of rows; NaN where that takes a pass which is not made yet."""
        return self.X.shape[0] if self._rows is None else self._rows.n_rows

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
