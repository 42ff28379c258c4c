"""Nearest centers of rows with missing values, by distances over what is observed.

The distance of a row to a center is ``sum_j w_j (x_j - c_j)^2`` over the features that the
row has, and a mean is that of the values that are there: the two steps that never raise the
sum of squares over the observed values, which k-POD lowers as well (Chi, Chi & Baraniuk
2016).  Rows are never filled in.

As for complete rows (:mod:`daskclust.kernels.nearest.assign`), scores in the input's
precision say between which centers to decide, and where they leave a doubt, direct
differences in float64 decide.  So labels are those of exact distances here, too, with ties
to the lowest cluster; and a complete row gets the numbers it gets there, to the last bit.
Runs of segments without missing values are handed over, and cost what they always do.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Array, Floats, Ints
from daskclust.kernels.compensated import add_pairs
from daskclust.kernels.compiling import compiled
from daskclust.kernels.nearest.assign import BlockStatistics, accumulate, nearest
from daskclust.kernels.nearest.implementation import scan_observed

__all__ = ["accumulate_observed", "nearest_observed"]


_NO_FLOATS = np.empty(0)
_NO_LABELS = np.empty(0, np.int32)
_NO_STATS = BlockStatistics(np.empty((0, 0)), np.empty((0, 0)))


def nearest_observed(
    x: Array,
    centers: Floats,
    *,
    feature_weights: Floats | None = None,
    shift: Floats | None = None,
) -> tuple[NDArray[np.int32], Floats]:
    """Nearest center of each row, and the squared distance to it, over what the row observes.

    Parameters
    ----------
    x : ndarray of shape (n, p), float32 or float64
        NaN where a value is missing; without infinities.
    centers : ndarray of shape (k, p), float64
        Finite.
    feature_weights, shift
        As of :func:`daskclust.kernels.nearest.assign.nearest`.

    Returns
    -------
    labels : ndarray of shape (n,), int32
        -1 for rows that observe no feature (of positive weight), complete ones excepted.
    distances : ndarray of shape (n,), float64
        0 for these.

    Notes
    -----
    Cost ``O(n k p)``: 1.25 times the arithmetic of complete rows.  Memory beyond the block
    O(n), and tables of ``4 k p`` numbers.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([[0.0, np.nan], [np.nan, 8.0], [np.nan, np.nan]])
    >>> nearest_observed(x, np.array([[1.0, 0.0], [5.0, 9.0]]))
    (array([ 0,  1, -1], dtype=int32), array([1., 1., 0.]))
    """
    x, centers, weights = _prepared(x, centers, feature_weights)
    if not _any_missing(x, 0, len(x)):
        return nearest(x, centers, feature_weights=feature_weights, shift=shift)
    labels, distances = np.empty(len(x), np.int32), np.empty(len(x))
    ends = np.array([len(x)])
    scan_observed(x, _NO_FLOATS, centers, weights, shift, ends, _NO_STATS, labels, distances)
    return labels, distances


def accumulate_observed(
    x: Array,
    centers: Floats,
    *,
    weight: Floats | None = None,
    feature_weights: Floats | None = None,
    shift: Floats | None = None,
    segments: Ints | None = None,
) -> BlockStatistics:
    """Assign a block's rows and sum what they observe by cluster.

    Parameters
    ----------
    x : ndarray of shape (n, p), float32 or float64
        NaN where a value is missing; without infinities.
    centers, weight, feature_weights, shift, segments
        As of :func:`daskclust.kernels.nearest.assign.accumulate`.

    Returns
    -------
    BlockStatistics
        Of shape (k, 2p + 2): sums, weights of the values, weight of the rows and squared
        distances by cluster.  Rows that are nowhere count for none.

    Notes
    -----
    Cost as of :func:`nearest_observed`.  A segment without missing values takes the way of
    complete rows, and other segments look at the values once more, up to the first gap.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([[0.0, np.nan], [2.0, 4.0], [np.nan, np.nan]])
    >>> accumulate_observed(x, np.array([[0.0, 3.0]])).hi
    array([[2., 4., 2., 1., 2., 5.]])
    """
    x, centers, weights = _prepared(x, centers, feature_weights)
    k, p = centers.shape
    parts: list[tuple[Floats, Floats]] = []
    for start, stop, own, gaps in _runs(x, np.array([len(x)]) if segments is None else segments):
        rows, row_weights = x[start:stop], None if weight is None else weight[start:stop]
        if gaps:
            stats = BlockStatistics(np.zeros((k, 2 * p + 2)), np.zeros((k, 2 * p + 2)))
            masses = _NO_FLOATS if row_weights is None else row_weights
            scan_observed(rows, masses, centers, weights, shift, own, stats, _NO_LABELS, _NO_FLOATS)
            parts.append(stats)
        else:
            found = accumulate(
                rows,
                centers,
                weight=row_weights,
                feature_weights=feature_weights,
                shift=shift,
                segments=own,
            )
            parts.append((_widened(found.hi, p), _widened(found.lo, p)))
    if not parts:
        parts.append((np.zeros((k, 2 * p + 2)), np.zeros((k, 2 * p + 2))))
    return BlockStatistics(*functools.reduce(add_pairs, parts))


def _prepared(
    x: Array, centers: Floats, feature_weights: Floats | None
) -> tuple[Array, Floats, Floats]:
    """Return rows, centers and weights as the compiled code takes them."""
    centers = np.ascontiguousarray(centers, dtype=np.float64)
    weights = np.ones(centers.shape[1]) if feature_weights is None else feature_weights
    return np.ascontiguousarray(x), centers, np.ascontiguousarray(weights, dtype=np.float64)


@compiled()
def _any_missing(x: Any, start: int, stop: int) -> bool:
    for i in range(start, stop):
        missing = 0
        for j in range(x.shape[1]):
            missing += x[i, j] != x[i, j]
        if missing:
            return True
    return False


def _runs(x: Array, ends: Ints) -> Iterator[tuple[int, int, Ints, bool]]:
    """Yield runs of segments with and without missing values: start, stop, own ends, and which.

    By segments, so that sums do not show how rows were cut into blocks.
    """
    starts = np.concatenate([[0], ends[:-1]])
    gaps = [bool(_any_missing(x, *bounds)) for bounds in zip(starts, ends, strict=True)]
    changes = [0, *(np.flatnonzero(np.diff(gaps)) + 1).tolist(), len(ends)]
    for first, last in itertools.pairwise(changes):
        start = int(starts[first])
        if ends[last - 1] > start:
            yield start, int(ends[last - 1]), ends[first:last] - start, gaps[first]


def _widened(stats: Floats, p: int) -> Floats:
    """Statistics of complete rows with the weight of each feature's values."""
    masses = np.repeat(stats[:, p : p + 1], p, axis=1)
    return np.concatenate([stats[:, :p], masses, stats[:, p:]], axis=1)
