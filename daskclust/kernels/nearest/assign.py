"""Nearest center of every row of a block, and the sums that follow from it.

The distance work runs in the input's precision on rows shifted near the origin,
by ``|x|^2 - 2 x.c + |c|^2`` in register tiles (:mod:`daskclust.kernels.nearest._scores`).
That form loses digits, so a row whose two smallest scores lie within a rigorous
bound on the rounding error is decided again by direct differences in float64.
Hence labels are those of exact float64 distances, ties go to the lowest
cluster, and neither precision nor chunking nor the order of rows can change
them.  Distances that are summed or returned are direct differences throughout.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Array, Floats, Ints
from daskclust.kernels.compiling import compiled
from daskclust.kernels.nearest.implementation import all_direct, scan

__all__ = [
    "SEGMENT",
    "BlockStatistics",
    "accumulate",
    "check_rows",
    "direct_distances",
    "label_sums",
    "nearest",
    "no_statistics",
]


#: Rows that are summed plainly before the sum joins the compensated total.  Segments are
#: aligned to global row numbers, so that the cut of blocks hardly shows in the sums.
SEGMENT = 4096


class BlockStatistics(NamedTuple):
    """Sufficient statistics of one block, each an unevaluated pair of sums.

    Attributes
    ----------
    hi, lo : ndarray of shape (k, p + 2), float64
        For each cluster: the weighted sum of its rows, its weight, and the
        weighted sum of squared distances of its rows to the given center.
    """

    hi: Floats
    lo: Floats


def no_statistics(k: int, p: int) -> BlockStatistics:
    """Return the statistics of no rows.

    Examples
    --------
    >>> no_statistics(2, 1).hi
    array([[0., 0., 0.],
           [0., 0., 0.]])
    """
    return BlockStatistics(np.zeros((k, p + 2)), np.zeros((k, p + 2)))


_NO_FLOATS = np.empty(0)
_NO_LABELS = np.empty(0, np.int32)
_NO_STATS = BlockStatistics(np.empty((0, 0)), np.empty((0, 0)))


def check_rows(x: Array, centers: Floats, **features: Floats | None) -> tuple[Array, Floats]:
    """Return rows and centers as the compiled code takes them, which checks nothing itself."""
    if x.dtype not in (np.float32, np.float64):
        raise TypeError(f"rows are of dtype {x.dtype}; expected float32 or float64.")
    p = centers.shape[1]
    if x.ndim != 2 or x.shape[1] != p:
        raise ValueError(f"rows of shape {x.shape} meet centers of {p} features.")
    if not len(centers):
        raise ValueError("rows are compared with no center; expected one or more.")
    for name, values in features.items():
        if values is not None and values.shape != (p,):
            raise ValueError(f"{name} has shape {values.shape}; expected ({p},).")
    return np.ascontiguousarray(x), np.ascontiguousarray(centers, dtype=np.float64)


def accumulate(
    x: NDArray,
    centers: Floats,
    *,
    weight: Floats | None = None,
    feature_weights: Floats | None = None,
    shift: Floats | None = None,
    segments: Ints | None = None,
    into: BlockStatistics | None = None,
) -> BlockStatistics:
    """Assign a block's rows and sum them by cluster (Algorithm 1 of the lecture notes).

    Parameters
    ----------
    x : ndarray of shape (n, p), float32 or float64
        One block of rows, finite.  Never written to.
    centers : ndarray of shape (k, p), float64
        Current centers.
    weight : ndarray of shape (n,), float64, optional
        Row weights; rows of weight 0 are left out.
    feature_weights : ndarray of shape (p,), float64, optional
        ``w >= 0`` of the squared distance ``sum_j w_j (x_j - c_j)^2``; features
        of weight 0 are not touched by the distance work.
    shift : ndarray of shape (p,), float64, optional
        A point amid the data, subtracted before the distance work so that it
        keeps its digits; the mean of the centers when omitted.
    segments : ndarray of int64, optional
        Ends of the runs of rows that are summed plainly before their sum joins
        the compensated total; the last is n.
    into : BlockStatistics, optional
        Statistics of the rows before, to which these are added; new ones by default.

    Returns
    -------
    BlockStatistics
        Sums, weights and squared distances by cluster.

    Notes
    -----
    Cost ``O(n k q)`` for q features of non-zero weight; memory beyond the block
    O(k p), no array of length n.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([[0.0], [1.0], [10.0]])
    >>> stats = accumulate(x, np.array([[0.0], [9.0]]))
    >>> stats.hi  # sum, weight, squared distances
    array([[ 1.,  2.,  1.],
           [10.,  1.,  1.]])
    """
    x, centers = check_rows(x, centers, feature_weights=feature_weights, shift=shift)
    n, (k, p) = len(x), centers.shape
    if weight is not None and len(weight) != n:
        raise ValueError(f"{n} rows have {len(weight)} weights.")
    stats = no_statistics(k, p) if into is None else into
    if n:
        weights = _NO_FLOATS if weight is None else weight
        ends = np.array([n]) if segments is None else segments
        scan(x, weights, centers, feature_weights, shift, ends, stats, _NO_LABELS, _NO_FLOATS)
    return stats


def nearest(
    x: NDArray,
    centers: Floats,
    *,
    feature_weights: Floats | None = None,
    shift: Floats | None = None,
) -> tuple[NDArray[np.int32], Floats]:
    """Nearest center of each row and the squared distance to it.

    Parameters
    ----------
    x, centers, feature_weights, shift
        As for :func:`accumulate`.

    Returns
    -------
    labels : ndarray of shape (n,), int32
    distances : ndarray of shape (n,), float64
        Squared distances by direct differences: exactly 0 for a row equal to
        its center.

    Examples
    --------
    >>> import numpy as np
    >>> nearest(np.array([[0.0], [1.0], [10.0]]), np.array([[0.0], [9.0]]))
    (array([0, 0, 1], dtype=int32), array([0., 1., 1.]))
    """
    x, centers = check_rows(x, centers, feature_weights=feature_weights, shift=shift)
    n = len(x)
    labels = np.empty(n, np.int32)
    distances = np.empty(n)
    if n:
        ends = np.array([n])
        scan(x, _NO_FLOATS, centers, feature_weights, shift, ends, _NO_STATS, labels, distances)
    return labels, distances


def direct_distances(x: NDArray, centers: Floats, feature_weights: Floats | None = None) -> Floats:
    """Squared distances of all rows to all centers by direct differences.

    Parameters
    ----------
    x : ndarray of shape (m, p)
        A few rows.
    centers : ndarray of shape (k, p), float64
    feature_weights : ndarray of shape (p,), float64, optional

    Returns
    -------
    ndarray of shape (m, k), float64
        The very numbers by which :func:`nearest` settles its ties.

    Examples
    --------
    >>> import numpy as np
    >>> direct_distances(np.array([[0.0, 2.0]]), np.array([[0.0, 0.0], [3.0, 2.0]]))
    array([[4., 9.]])
    """
    x, centers = check_rows(x, centers, feature_weights=feature_weights)
    out = np.empty((len(x), len(centers)))
    all_direct(x, centers, feature_weights, out)
    return out


@compiled()
def _sum_by_label(x: Any, weights: Any, labels: Any, sums: Any) -> None:
    """Add each row, times its weight, to the sums of its label."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            sums[labels[i], j] += weights[i] * np.float64(x[i, j])


def label_sums(x: NDArray, weight: Floats, labels: Ints, k: int) -> tuple[Floats, Floats]:
    """Weighted sums and weights of rows by their labels.

    Parameters
    ----------
    x : ndarray of shape (m, p)
    weight : ndarray of shape (m,), float64
    labels : ndarray of shape (m,), int64, in [0, k)
    k : int

    Returns
    -------
    sums : ndarray of shape (k, p), float64
    weights : ndarray of shape (k,), float64

    Examples
    --------
    >>> import numpy as np
    >>> label_sums(np.array([[1.0], [2.0]]), np.array([1.0, 3.0]), np.array([1, 1]), 2)
    (array([[0.],
           [7.]]), array([0., 4.]))
    """
    labels = np.ascontiguousarray(labels, dtype=np.int64)
    if len(labels) and not 0 <= labels.min() <= labels.max() < k:
        # Compiled code does not check its indices.
        raise ValueError(f"labels lie in [{labels.min()}, {labels.max()}]; expected [0, {k}).")
    sums = np.zeros((k, x.shape[1]))
    _sum_by_label(np.ascontiguousarray(x), weight, labels, sums)
    weights: Floats = np.bincount(labels, weights=weight, minlength=k).astype(np.float64)
    return sums, weights
