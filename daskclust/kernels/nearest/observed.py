"""Nearest centers of rows with missing values, by distances over what is observed.

The distance of a row to a center is ``sum_j w_j (x_j - c_j)^2`` over the features that the
row has, and a mean is that of the values that are there: the two steps that never raise the
sum of squares over the observed values, which k-POD lowers as well (Chi, Chi & Baraniuk
2016).  Rows are never filled in.

A row without missing values is handed to :mod:`daskclust.kernels.nearest.assign`, so that it
costs what it always does and gets the same numbers to the last bit.  Of the others a tile at
a time is scored by one matrix product, ``o.(w c^2) - 2 x.(w c)`` with o = 1 where a value is
there; where the best two scores lie within the rounding error, direct differences in float64
decide.  So labels are those of exact distances here, too, with ties to the lowest cluster.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust.kernels.blas import one_blas_thread
from daskclust.kernels.compensated import add_pairs, add_plain
from daskclust.kernels.compiling import compiled, inner
from daskclust.kernels.nearest.assign import (
    BlockStatistics,
    accumulate,
    direct_distances,
    label_sums,
    nearest,
)
from daskclust.kernels.scratch import Scratch

__all__ = [
    "ObservedSums",
    "accumulate_observed",
    "incomplete_rows",
    "nearest_observed",
    "observed_distances",
    "observed_label_sums",
    "observed_pair_boxes",
    "observed_pair_lengths",
    "row_distance_observed",
]

Float = NDArray[np.float64]
Places = NDArray[np.intp]

#: Numbers in the matrix of scores, so that it stays in the cache.
_TILE = 2**16
#: Rounding of a score, in units of the last place, beyond one for each of its terms.
_SPARE = 16
#: Squared lengths up to which scores may be of float32.
_SINGLE = 1e30
_NO_WEIGHT = np.empty(0)


class ObservedSums(NamedTuple):
    """Sums over rows by label, of what is observed.

    Attributes
    ----------
    sums, masses : ndarray of shape (k, p), float64
        Weighted sum of the values of each feature, and the weight of the rows that have one.
    counts : ndarray of shape (k,), float64
        Weight of the rows.
    """

    sums: Float
    masses: Float
    counts: Float


@compiled()
def _count_missing(x: Any, out: Any) -> None:
    for i in range(x.shape[0]):
        missing = 0
        for j in range(x.shape[1]):
            missing += x[i, j] != x[i, j]
        out[i] = missing


def incomplete_rows(x: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each row misses a value.

    Examples
    --------
    >>> import numpy as np
    >>> incomplete_rows(np.array([[0.0, 1.0], [np.nan, 1.0]]))
    array([False,  True])
    """
    missing = np.empty(len(x), np.int64)
    _count_missing(x, missing)
    return missing > 0


@inner(fastmath={"reassoc", "contract"})
def row_distance_observed(row: Any, center: Any, weights: Any) -> float:
    """Squared distance over what both have; NaN in the center counts as missing, too."""
    total = 0.0
    for j in range(row.size):
        gap = np.float64(row[j]) - center[j]
        squared = weights[j] * gap * gap
        # Selected, not branched on: which values are missing is not to be foreseen.
        total += squared if squared == squared else 0.0
    return total


@compiled()
def _all_distances(x: Any, centers: Any, weights: Any, out: Any) -> None:
    for i in range(x.shape[0]):
        for c in range(centers.shape[0]):
            out[i, c] = row_distance_observed(x[i], centers[c], weights)


@compiled()
def _pair_distances(x: Any, y: Any, left: Any, right: Any, weights: Any, out: Any) -> None:
    for e in range(left.size):
        out[e] = row_distance_observed(x[left[e]], y[right[e]], weights)


@compiled(fastmath={"reassoc", "contract"})
def _fill(x: Any, places: Any, shift: Any, weights: Any, filled: Any, lengths: Any) -> None:
    """Put [x - shift, 1] into each row, 0 where a value is missing; and its squared length."""
    p = x.shape[1]
    for t in range(places.size):
        row, values, there = x[places[t]], filled[t, :p], filled[t, p:]
        for j in range(p):
            value = row[j] - shift[j]
            has = value == value
            values[j] = value if has else 0.0
            there[j] = 1.0 if has else 0.0
        length = 0.0
        for j in range(p):
            length += weights[j] * values[j] * values[j]
        if length == 0.0:
            # Without any observed feature of positive weight a row is nowhere.
            some = 0.0
            for j in range(p):
                some += weights[j] * there[j]
            length = length if some > 0.0 else -1.0
        lengths[t] = length


@compiled()
def _two_best(scores: Any, best: Any, second: Any, labels: Any) -> None:
    """Find the two smallest scores of each column, many columns at a time."""
    best[:] = np.inf
    second[:] = np.inf
    labels[:] = 0
    for c in range(scores.shape[0]):
        score, label = scores[c], np.int32(c)
        for t in range(score.size):
            value, low = score[t], best[t]
            closer = value < low
            other = low if closer else value
            best[t] = value if closer else low
            second[t] = other if other < second[t] else second[t]
            labels[t] = label if closer else labels[t]


@compiled()
def _decide(
    x: Any,
    places: Any,
    scores: Any,
    best: Any,
    second: Any,
    nearest: Any,
    lengths: Any,
    largest: float,
    rounding: float,
    centers: Any,
    weights: Any,
    labels: Any,
    distances: Any,
) -> None:
    """Distances by direct differences, also to all centers that rounding leaves in question."""
    for t in range(places.size):
        i = places[t]
        if lengths[t] < 0.0:
            labels[i], distances[i] = -1, 0.0
            continue
        label = nearest[t]
        bound = rounding * (largest + 2.0 * np.sqrt(largest * lengths[t]))
        if second[t] - best[t] > bound:
            labels[i], distances[i] = label, row_distance_observed(x[i], centers[label], weights)
            continue
        found, limit = np.inf, best[t] + bound
        for c in range(centers.shape[0]):
            if not scores[c, t] > limit:
                squared = row_distance_observed(x[i], centers[c], weights)
                if squared < found:  # ties go to the lowest center
                    found, label = squared, c
        labels[i], distances[i] = label, found


def _weights(feature_weights: Float | None, p: int) -> Float:
    if feature_weights is None:
        return np.ones(p)
    return np.ascontiguousarray(feature_weights, dtype=np.float64)


class _Search:
    """The search for the nearest center of rows with missing values, a tile at a time.

    Parameters
    ----------
    centers, feature_weights, shift
        As of :func:`nearest_observed`.
    """

    def __init__(self, centers: Float, feature_weights: Float | None, shift: Float | None) -> None:
        k, p = centers.shape
        self._centers = centers
        self._weights = _weights(feature_weights, p)
        self._origin = centers.mean(axis=0) if shift is None else shift
        moved = centers - self._origin
        self._largest = float((self._weights * moved**2).sum(axis=1).max())
        self._factors = np.concatenate(
            [-2.0 * self._weights * moved, self._weights * moved**2], axis=1
        )
        self._size = max(1, _TILE // max(k, 2 * p))
        self._scratch = Scratch()

    def __call__(
        self, x: NDArray[Any], places: Places, labels: NDArray[np.int32], distances: Float
    ) -> None:
        """Fill in labels and distances of some rows; -1 and 0 for those that are nowhere."""
        for start in range(0, len(places), self._size):
            self._tile(x, places[start : start + self._size], labels, distances)

    def _tile(
        self, x: NDArray[Any], tile: Places, labels: NDArray[np.int32], distances: Float
    ) -> None:
        m, (k, p), take = len(tile), self._centers.shape, self._scratch
        lengths = take("lengths", (m,))
        # Scores only say between which centers to decide: single precision will do.
        for dtype in (np.dtype(np.float32), np.dtype(np.float64)):
            filled = take(f"filled {dtype}", (m, 2 * p), dtype)
            _fill(x, tile, self._origin, self._weights, filled, lengths)
            if max(self._largest, float(lengths.max())) <= _SINGLE:
                break
        scores = take(f"scores {dtype}", (k, m), dtype)
        np.matmul(self._factors.astype(dtype), filled.T, out=scores)
        best, second = take(f"best {dtype}", (m,), dtype), take(f"second {dtype}", (m,), dtype)
        nearest_ = take("nearest", (m,), np.int32)
        _two_best(scores, best, second, nearest_)
        _decide(
            x,
            tile,
            scores,
            best,
            second,
            nearest_,
            lengths,
            self._largest,
            float((4 * p + 2 * _SPARE) * np.finfo(dtype).eps),
            self._centers,
            self._weights,
            labels,
            distances,
        )


def nearest_observed(
    x: NDArray[Any],
    centers: Float,
    *,
    feature_weights: Float | None = None,
    shift: Float | None = None,
) -> tuple[NDArray[np.int32], Float]:
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
        -1 for rows that observe no feature (of positive weight).
    distances : ndarray of shape (n,), float64
        0 for these.

    Notes
    -----
    Cost ``O(n k p)``: of rows with missing values about twice that of complete ones.  Memory
    beyond the block O(n) and a tile; complete rows of a mixed block are copied.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([[0.0, np.nan], [np.nan, 8.0], [np.nan, np.nan]])
    >>> nearest_observed(x, np.array([[1.0, 0.0], [5.0, 9.0]]))
    (array([ 0,  1, -1], dtype=int32), array([1., 1., 0.]))
    """
    x = np.ascontiguousarray(x)
    centers = np.ascontiguousarray(centers, dtype=np.float64)
    incomplete = incomplete_rows(x)
    places = np.flatnonzero(incomplete)
    if not len(places):
        return nearest(x, centers, feature_weights=feature_weights, shift=shift)
    labels, distances = np.empty(len(x), np.int32), np.empty(len(x))
    with one_blas_thread():
        _Search(centers, feature_weights, shift)(x, places, labels, distances)
    whole = ~incomplete
    if len(places) < len(x):
        labels[whole], distances[whole] = nearest(
            x[whole], centers, feature_weights=feature_weights, shift=shift
        )
    return labels, distances


@compiled()
def _add_observed(
    x: Any, places: Any, row_weights: Any, labels: Any, distances: Any, sums: Any
) -> None:
    """Add rows to ``sums[label]``: sums, masses, weight, squared distance."""
    p = x.shape[1]
    for t in range(places.size):
        i = places[t]
        c = labels[i]
        w = row_weights[i] if row_weights.size else 1.0
        if c < 0 or w == 0.0:
            continue
        row, total, mass = x[i], sums[c, :p], sums[c, p : 2 * p]
        for j in range(p):
            value = w * np.float64(row[j])
            has = value == value
            total[j] += value if has else 0.0
            mass[j] += w if has else 0.0
        sums[c, 2 * p] += w
        sums[c, 2 * p + 1] += w * distances[i]


def accumulate_observed(
    x: NDArray[Any],
    centers: Float,
    *,
    weight: Float | None = None,
    feature_weights: Float | None = None,
    shift: Float | None = None,
    segments: NDArray[np.int64] | None = None,
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
    complete rows.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([[0.0, np.nan], [2.0, 4.0], [np.nan, np.nan]])
    >>> accumulate_observed(x, np.array([[0.0, 3.0]])).hi
    array([[2., 4., 2., 1., 2., 5.]])
    """
    x = np.ascontiguousarray(x)
    n, (k, p) = len(x), centers.shape
    hi, lo = np.zeros((k, 2 * p + 2)), np.zeros((k, 2 * p + 2))
    incomplete = incomplete_rows(x)
    if not incomplete.any():
        found = accumulate(
            x,
            centers,
            weight=weight,
            feature_weights=feature_weights,
            shift=shift,
            segments=segments,
        )
        return BlockStatistics(_widened(found.hi, p), _widened(found.lo, p))
    centers = np.ascontiguousarray(centers, dtype=np.float64)
    row_weights = _NO_WEIGHT if weight is None else weight
    labels, distances = np.empty(n, np.int32), np.empty(n)
    search = _Search(centers, feature_weights, shift)
    with one_blas_thread():
        start = 0
        for stop in [n] if segments is None else segments.tolist():
            missing = incomplete[start:stop]
            places = start + np.flatnonzero(missing)
            whole = start + np.flatnonzero(~missing)
            start = stop
            if len(whole):
                found = accumulate(
                    x[whole],
                    centers,
                    weight=None if weight is None else weight[whole],
                    feature_weights=feature_weights,
                    shift=shift,
                )
                hi, lo = add_pairs((hi, lo), (_widened(found.hi, p), _widened(found.lo, p)))
            if len(places):
                search(x, places, labels, distances)
                sums = np.zeros_like(hi)
                _add_observed(x, places, row_weights, labels, distances, sums)
                # Views of the arrays, which are flat for this.
                add_plain(hi.reshape(-1), lo.reshape(-1), sums.reshape(-1))
    return BlockStatistics(hi, lo)


def _widened(stats: Float, p: int) -> Float:
    """Statistics of complete rows with the weight of each feature's values."""
    masses = np.repeat(stats[:, p : p + 1], p, axis=1)
    return np.concatenate([stats[:, :p], masses, stats[:, p:]], axis=1)


def observed_distances(
    x: NDArray[Any], centers: Float, feature_weights: Float | None = None
) -> Float:
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

    Examples
    --------
    >>> import numpy as np
    >>> observed_distances(np.array([[0.0, np.nan]]), np.array([[3.0, 7.0]]))
    array([[9.]])
    """
    x = np.ascontiguousarray(x)
    centers = np.ascontiguousarray(centers, dtype=np.float64)
    incomplete = incomplete_rows(x)
    if not (incomplete.any() or np.isnan(centers).any()):
        return direct_distances(x, centers, feature_weights)
    out = np.empty((len(x), len(centers)))
    _all_distances(x, centers, _weights(feature_weights, x.shape[1]), out)
    if not np.isnan(centers).any():
        # As everywhere else: bit for bit those of complete rows.
        out[~incomplete] = direct_distances(x[~incomplete], centers, feature_weights)
    return out


def observed_pair_lengths(
    x: NDArray[Any], left: NDArray[np.int64], right: NDArray[np.int64], weights: Float
) -> Float:
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


def observed_pair_boxes(
    x: NDArray[Any], left: NDArray[np.int64], right: NDArray[np.int64], sides: Float
) -> Float:
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


def observed_label_sums(
    x: NDArray[Any], weight: Float, labels: NDArray[np.int64], k: int
) -> ObservedSums:
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
