"""Functions that workers apply to blocks of rows: check values, find labels and distances.

Workers import this module to compute the labels of a fit.  It imports no module that needs
scikit-learn, because that import takes a third of the time of all others together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Floats
from daskclust.core.engine import as_matrix
from daskclust.core.estimator.transforms import Metric
from daskclust.core.kernels.missing_values import find_gaps
from daskclust.core.kernels.moments import first_nonfinite
from daskclust.core.kernels.nearest.assign import nearest
from daskclust.core.kernels.sparse import dense


def column_name(column: int, names: Any) -> str:
    """Return the number of a column, and its name if it has one, for messages.

    >>> column_name(1, None), column_name(1, ["age", "income"])
    ('1', "1 ('income')")
    """
    return str(column) if names is None else f"{column} ({str(names[column])!r})"


def nonfinite_message(is_nan: bool, row: int, column: str) -> str:
    """Return the message for the first invalid value of complete rows, with the remedy."""
    what = "NaN" if is_nan else "infinity"
    remedy = (
        '; if NaN means missing, fit with missing="partial" (KMeans, SemiSupervisedKMeans, '
        "SparseKMeans, PCKMeans, PCSKMeans; partial_fit takes complete rows only), or use an "
        "estimator that models missing values (GaussianMixture, PCKID, and LabelSpreading and "
        'SpectralClustering with views="auto").'
        if is_nan
        else ", or use an estimator that models missing values, with NaN in its place."
    )
    return (
        f"Input X contains {what}: the first at row {row}, column {column}. Drop or mask such "
        f"rows{remedy}"
    )


def infinite_message(row: int, column: str) -> str:
    """Return the message for the first infinity if values may be missing."""
    return (
        f"Input X contains infinity: the first at row {row}, column {column}. NaN marks a missing "
        "value, infinity does not. Replace infinity by NaN if the value is missing."
    )


def check_block(x: Array, start: int, *, missing: bool, names: Any = None) -> None:
    """Raise ValueError for the first infinity of a block, or NaN unless values may be missing."""
    row, column = find_gaps(x)[1:] if missing else first_nonfinite(x)
    if row < 0:
        return
    name = column_name(column, names)
    if missing:
        raise ValueError(infinite_message(start + row, name))
    is_nan = bool(np.isnan(dense(x[row : row + 1])[0, column]))
    raise ValueError(nonfinite_message(is_nan, start + row, name))


def check_squares(squared: Floats, start: int) -> None:
    """Raise ValueError for the first row of a block whose squared distances overflow."""
    if not np.isfinite(squared).all():
        row = start + int(np.flatnonzero(~np.isfinite(squared))[0])
        raise ValueError(
            f"Row {row} of X is so far from the centers that squared distances overflow. Mask "
            "values that stand for missing data, or rescale the features."
        )


@dataclass(frozen=True)
class CheckedRows:
    """A picklable function that converts rows to a dtype and checks their values first."""

    function: Callable[[NDArray[Any]], NDArray[Any]]
    dtype: Any
    missing: bool = False
    #: Names of the columns, for messages.
    names: Any = None

    @property
    def nbytes(self) -> int:
        """Size of the function: a large one is in a graph once."""
        return int(getattr(self.function, "nbytes", 0))

    @property
    def token(self) -> str:
        """Identity of the results, for functions that several outputs share."""
        return f"{self.function.token}-{np.dtype(self.dtype)}-{self.missing}"  # type: ignore[attr-defined]

    def __call__(self, x: NDArray[Any], start: int) -> NDArray[Any]:
        """Return one result per row."""
        x = as_matrix(x, self.dtype)
        check_block(x, start, missing=self.missing, names=self.names)
        return self.function(x)


@dataclass(frozen=True)
class RowFunction:
    """A picklable function for the rows of a block in ``predict`` and ``transform``."""

    centers: Floats
    metric: Metric
    feature_weights: Floats | None
    dtype: np.dtype[Any]
    distances: bool = False
    missing: bool = False
    nearest_only: bool = False
    #: Names of the columns, for messages.
    names: Any = None

    def with_centers(self, centers: Floats, feature_weights: Floats | None) -> RowFunction:
        """Return the same function for other centers and weights."""
        return replace(self, centers=centers, feature_weights=feature_weights)

    def __call__(self, x: NDArray[Any], start: int) -> NDArray[Any]:
        """Return labels of rows, distances to all centers, or the negative smallest distance."""
        if not self.distances:
            labels, squared = self.labeled(x, start)
            if self.nearest_only:
                return np.where(labels < 0, np.nan, -np.sqrt(squared)).astype(self.dtype)
            return labels
        x, z = self._in_space(x, start)
        out = np.empty((len(x), len(self.centers)), dtype=self.dtype)
        for k in range(len(self.centers)):
            labels, squared = self._nearest(x, z, self.centers[k : k + 1], start)
            out[:, k] = np.sqrt(squared)
            # A row without observed values has no distance.
            out[labels < 0, k] = np.nan
        return out

    def labeled(self, x: NDArray[Any], start: int) -> tuple[NDArray[np.int32], Floats]:
        """Return labels, and squared distances to the centers in the space of the metric."""
        x, z = self._in_space(x, start)
        labels, squared = self._nearest(x, z, self.centers, start)
        return self.metric.break_ties(z, labels), squared

    def _in_space(self, x: NDArray[Any], start: int) -> tuple[NDArray[Any], NDArray[Any]]:
        x = as_matrix(x, self.dtype)
        if not self.metric.is_identity:
            check_block(x, start, missing=self.missing, names=self.names)
        return x, self.metric(x)

    def _nearest(
        self, x: NDArray[Any], z: NDArray[Any], centers: Floats, start: int
    ) -> tuple[NDArray[np.int32], Floats]:
        """Return the nearest centers of rows x (z in the space), and finite squared distances."""
        weights, missing = self.feature_weights, self.missing
        labels, squared = nearest(z, centers, feature_weights=weights, missing=missing)
        if not np.isfinite(squared).all():
            # Values are checked only here: an invalid value, even of weight 0, makes an invalid
            # distance.
            check_block(x, start, missing=missing, names=self.names)
            check_squares(squared, start)
        return labels, squared
