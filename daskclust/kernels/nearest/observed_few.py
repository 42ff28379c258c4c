"""Distances and sums of a few rows with missing values: constrained rows, pairs, components."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from daskclust._types import Array, Floats, Ints
from daskclust.kernels.compiling import compiled
from daskclust.kernels.nearest.assign import label_sums
from daskclust.kernels.nearest.implementation import row_distance_observed

__all__ = [
    "ObservedSums",
    "observed_distances",
    "observed_label_sums",
    "observed_pair_boxes",
    "observed_pair_lengths",
]


class ObservedSums(NamedTuple):
    """Sums over rows by label, of what is observed.

    Attributes
    ----------
    sums, masses : ndarray of shape (k, p), float64
        Weighted sum of the values of each feature, and the weight of the rows that have one.
    counts : ndarray of shape (k,), float64
        Weight of the rows.
    """

    sums: Floats
    masses: Floats
    counts: Floats


@compiled()
def _all_distances(x: Any, centers: Any, weights: Any, out: Any) -> None:
    for i in range(x.shape[0]):
        for c in range(centers.shape[0]):
            out[i, c] = row_distance_observed(x, i, centers, c, weights, 1.0, centers)


@compiled()
def _pair_distances(x: Any, y: Any, left: Any, right: Any, weights: Any, out: Any) -> None:
    for e in range(left.size):
        out[e] = row_distance_observed(x, left[e], y, right[e], weights, 1.0, y)


def observed_distances(x: Array, centers: Floats, feature_weights: Floats | None = None) -> Floats:
    """Squared distances of a few rows to all centers over what the rows observe.

    Parameters
    ----------
    x : ndarray of shape (m, p)
        NaN where a value is missing.
    centers : ndarray of shape (k, p), float64
        NaN where a value is missing.
    feature_weights : ndarray of shape (p,), float64, optional

    Returns
    -------
    ndarray of shape (m, k), float64
        Of complete rows and centers those of
        :func:`daskclust.kernels.nearest.assign.direct_distances`, to the last bit.

    Examples
    --------
    >>> import numpy as np
    >>> observed_distances(np.array([[0.0, np.nan]]), np.array([[3.0, 7.0]]))
    array([[9.]])
    """
    x = np.ascontiguousarray(x)
    centers = np.ascontiguousarray(centers, dtype=np.float64)
    weights = np.ones(x.shape[1]) if feature_weights is None else feature_weights
    out = np.empty((len(x), len(centers)))
    _all_distances(x, centers, np.ascontiguousarray(weights, dtype=np.float64), out)
    return out


def observed_pair_lengths(x: Array, left: Ints, right: Ints, weights: Floats) -> Floats:
    """Squared distance of each pair of rows over what both observe.

    Parameters
    ----------
    x : ndarray of shape (m, p)
        NaN where a value is missing.
    left, right : ndarray of shape (n_pairs,), int64
    weights : ndarray of shape (p,), float64

    Returns
    -------
    ndarray of shape (n_pairs,), float64
        0 for a pair that has no feature in common.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([[0.0, np.nan], [2.0, 1.0]])
    >>> observed_pair_lengths(x, np.array([0]), np.array([1]), np.ones(2))
    array([4.])
    """
    out = np.empty(len(left))
    if len(left):
        x = np.ascontiguousarray(x)
        wide = np.ascontiguousarray(x, dtype=np.float64)
        _pair_distances(x, wide, left, right, np.ascontiguousarray(weights), out)
    return out


@compiled()
def _pair_boxes(x: Any, left: Any, right: Any, sides: Any, out: Any) -> None:
    for e in range(left.size):
        a, b, total = x[left[e]], x[right[e]], 0.0
        for j in range(sides.size):
            gap = a[j] - b[j]
            total += sides[j] if gap == gap else 0.0
        out[e] = total


def observed_pair_boxes(x: Array, left: Ints, right: Ints, sides: Floats) -> Floats:
    """Sum of ``sides`` over the features that both rows of a pair observe.

    Parameters
    ----------
    x, left, right
        As of :func:`observed_pair_lengths`.
    sides : ndarray of shape (p,), float64

    Returns
    -------
    ndarray of shape (n_pairs,), float64

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([[0.0, np.nan], [2.0, 1.0]])
    >>> observed_pair_boxes(x, np.array([0]), np.array([1]), np.array([4.0, 5.0]))
    array([4.])
    """
    out = np.empty(len(left))
    _pair_boxes(np.ascontiguousarray(x), left, right, np.ascontiguousarray(sides), out)
    return out


def observed_label_sums(x: Array, weight: Floats, labels: Ints, k: int) -> ObservedSums:
    """Weighted sums of what rows observe, by their labels.

    Parameters
    ----------
    x : ndarray of shape (m, p)
        NaN where a value is missing.
    weight : ndarray of shape (m,), float64
    labels : ndarray of shape (m,), int64, in [0, k)
    k : int

    Examples
    --------
    >>> import numpy as np
    >>> observed_label_sums(np.array([[1.0], [np.nan]]), np.ones(2), np.array([0, 0]), 1)
    ObservedSums(sums=array([[1.]]), masses=array([[1.]]), counts=array([2.]))
    """
    missing = np.isnan(x)
    sums, counts = label_sums(np.where(missing, x.dtype.type(0), x), weight, labels, k)
    masses, _ = label_sums((~missing).astype(np.float64), weight, labels, k)
    return ObservedSums(sums, masses, counts)
