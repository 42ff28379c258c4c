"""Nearest center of each row of a block, and sums by center.

Distances are computed in the precision of the input, on rows shifted to the origin, by
``|x|^2 - 2 x.c + |c|^2`` in register tiles (:mod:`daskclust.core.kernels.nearest._scores`).  If
the two smallest scores of a row differ by less than a rigorous bound on the rounding error, direct
differences in float64 decide.  Therefore labels are those of exact float64 distances.  Of equally
near centers, the lowest wins.  Distances that are summed or returned are always direct differences.

With missing values, the distance is ``sum_j w_j (x_j - c_j)^2`` over the observed features of the
row, and a mean is the mean of the observed values.  Neither step can increase the sum of squares
over the observed values, which k-POD also minimizes (Chi, Chi & Baraniuk 2016).  Results of
complete rows equal those in complete data.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Bools, Floats, Ints
from daskclust.core.kernels import sparse
from daskclust.core.kernels.compensated import add_pairs
from daskclust.core.kernels.compiling import compiled, read_only
from daskclust.core.kernels.nearest._tiles import sweeper
from daskclust.core.kernels.nearest.row_loops import OBSERVED, row_distance

#: Number of rows whose plain sum is added to the compensated total.  Segments are aligned to global
#: row numbers, so that sums depend little on the blocks.
SEGMENT = 4096


class BlockStatistics(NamedTuple):
    """Sums of rows, weights, and weighted squared distances of clusters, as pairs (k, p + 2).

    With missing values, the weights of the values of each feature follow the sums: (k, 2p + 2).
    """

    hi: Floats
    lo: Floats


def no_statistics(k: int, p: int, missing: bool = False) -> BlockStatistics:
    return BlockStatistics(*np.zeros((2, k, 2 * p + 2 if missing else p + 2)))


_NO_FLOATS = np.empty(0)
_NO_LABELS = np.empty(0, np.int32)
_NO_STATS = BlockStatistics(np.empty((0, 0)), np.empty((0, 0)))


def check_rows(x: Array, centers: Floats, **features: Floats | None) -> tuple[Array, Floats]:
    """Check rows and centers for compiled code, which does not check its arguments."""
    if x.dtype not in (np.float32, np.float64):
        raise TypeError(f"Rows must be float32 or float64, got {x.dtype}.")
    p = centers.shape[1]
    if x.ndim != 2 or x.shape[1] != p:
        raise ValueError(f"Rows must have shape (n, {p}) like the centers, got {x.shape}.")
    if not len(centers):
        raise ValueError("Rows must be compared with at least one center, got none.")
    for name, values in features.items():
        if values is not None and values.shape != (p,):
            raise ValueError(f"{name} must have shape ({p},), got {values.shape}.")
    points = np.ascontiguousarray(centers, dtype=np.float64)
    return read_only(np.ascontiguousarray(x)), read_only(points)


def check_plain(feature_weights: Floats | None, missing: bool) -> None:
    if feature_weights is not None or missing:
        raise TypeError("Sparse rows have no feature weights and no missing values.")


def accumulate(
    x: Any,
    centers: Floats,
    *,
    weight: Floats | None = None,
    feature_weights: Floats | None = None,
    shift: Floats | None = None,
    segments: Ints | None = None,
    missing: bool = False,
    into: BlockStatistics | None = None,
) -> BlockStatistics:
    """Assign the rows of a block to their nearest centers, and sum them by cluster.

    ``x`` may be :class:`~daskclust.core.kernels.sparse.SparseRows`, without ``shift``, feature
    weights and missing values.  Features of weight 0 are not read.  ``shift``, a point near the
    data (default: the mean of the centers), is subtracted to keep precision.  ``segments`` are the
    ends of runs of rows, whose plain sum is added to the compensated total; the last is n.  Sums
    are added to ``into``, in place unless values may be ``missing``.  Rows without values have no
    cluster.  Segments without missing values are processed as complete rows.

    Cost ``O(n k q)`` for q features of non-zero weight; memory in addition to the block: O(k p).

    >>> x = np.array([[0.0], [1.0], [10.0]])
    >>> accumulate(x, np.array([[0.0], [9.0]])).hi  # sum, weight, squared distances
    array([[ 1.,  2.,  1.],
           [10.,  1.,  1.]])
    """
    if isinstance(x, sparse.SparseRows):
        check_plain(feature_weights, missing)
        stats = no_statistics(*centers.shape) if into is None else into
        sparse.accumulate(x, centers, weight, *stats)
        return stats
    x, centers = check_rows(x, centers, feature_weights=feature_weights, shift=shift)
    n, (k, p) = len(x), centers.shape
    if weight is not None and len(weight) != n:
        raise ValueError(
            f"There must be one weight per row, got {n} rows and {len(weight)} weights."
        )
    weights = _NO_FLOATS if weight is None else weight
    ends = np.array([n]) if segments is None else segments
    space = centers, feature_weights, shift
    if not missing:
        stats = no_statistics(k, p) if into is None else into
        if n:
            sweeper(x, weights, *space, ends, stats, _NO_LABELS, _NO_FLOATS)()
        return stats
    parts: list[tuple[Floats, Floats]] = [] if into is None else [into]
    for start, stop, own, gaps in _runs(x, ends):
        stats, out = no_statistics(k, p, gaps), (_NO_LABELS, _NO_FLOATS)
        part = x[start:stop], weights[start:stop]
        sweeper(part[0], part[1], *space, own, stats, *out, observed=gaps)()
        parts.append(stats if gaps else (_widened(stats.hi, p), _widened(stats.lo, p)))
    return BlockStatistics(*functools.reduce(add_pairs, parts or [no_statistics(k, p, missing)]))


def nearest(
    x: Any,
    centers: Floats,
    *,
    feature_weights: Floats | None = None,
    shift: Floats | None = None,
    missing: bool = False,
) -> tuple[NDArray[np.int32], Floats]:
    """Return the nearest center of each row, and the squared distance to it.

    If values may be ``missing``, distances use the observed values of the row.  This takes 1.25
    times the arithmetic of complete rows, and tables of ``4 k p`` numbers.  An incomplete row whose
    observed features all have weight 0 has label -1 and distance 0.
    """
    if isinstance(x, sparse.SparseRows):
        check_plain(feature_weights, missing)
        return sparse.nearest(x, centers)
    x, centers = check_rows(x, centers, feature_weights=feature_weights, shift=shift)
    n = len(x)
    labels, distances = np.empty(n, np.int32), np.empty(n)
    out = np.array([n]), _NO_STATS, labels, distances
    if n:
        gaps = missing and _any_missing(x, 0, n)
        sweeper(x, _NO_FLOATS, centers, feature_weights, shift, *out, observed=gaps)()
    return labels, distances


@compiled()
def _all_distances(x, centers, weights, gaps, out):
    # Inlined, because a function call per pair takes as long as a short row.
    for i in range(x.shape[0]):
        for c in range(centers.shape[0]):
            out[i, c] = row_distance(x, i, centers, c, weights, 1.0, (), gaps)


def direct_distances(
    x: NDArray, centers: Floats, feature_weights: Floats | None = None, *, missing: bool = False
) -> Floats:
    """Return squared distances of a few rows to all centers, as :func:`nearest` uses for ties.

    If values may be ``missing``, distances use the values that both have.  Complete rows have equal
    results.
    """
    x, centers = check_rows(x, centers, feature_weights=feature_weights)
    out = np.empty((len(x), len(centers)))
    weights: Any = ()
    if feature_weights is not None:
        weights = np.ascontiguousarray(feature_weights, dtype=np.float64)
    _all_distances(x, centers, weights, OBSERVED if missing else (), out)
    return out


@compiled()
def _sum_by_label(x, weights, labels, sums):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            sums[labels[i], j] += weights[i] * np.float64(x[i, j])


def label_sums(x: NDArray, weight: Floats, labels: Ints, k: int) -> tuple[Floats, Floats]:
    labels = np.ascontiguousarray(labels, dtype=np.int64)
    if len(labels) and not 0 <= labels.min() <= labels.max() < k:
        # Compiled code does not check its indices.
        raise ValueError(f"Labels must be in [0, {k}), got [{labels.min()}, {labels.max()}].")
    sums = np.zeros((k, x.shape[1]))
    _sum_by_label(np.ascontiguousarray(x), weight, labels, sums)
    weights: Floats = np.bincount(labels, weights=weight, minlength=k).astype(np.float64)
    return sums, weights


@compiled(counted=False)
def _move(hi: Any, lo: Any, n_fixed: int, centers: Any) -> bool:
    """Move centers to the means of their points; return True if any center has moved."""
    p = centers.shape[1]
    moved = False
    for c in range(n_fixed, centers.shape[0]):
        weight = hi[c, p] + lo[c, p]
        if weight > 0.0:
            for j in range(p):
                mean = (hi[c, j] + lo[c, j]) / weight
                moved |= mean != centers[c, j]
                centers[c, j] = mean
    return moved


def cluster_points(
    points: Floats,
    mass: Floats,
    centers: Floats,
    *,
    max_iter: int,
    shift: Floats,
    n_fixed: int = 0,
) -> tuple[Floats, float]:
    """Move centers, except the first ``n_fixed``, until no weighted point changes its cluster.

    Return the centers, and the weighted sum of squared distances to the centers of the last
    comparison.  Cost ``O(m k p)`` per iteration, in one thread.
    """
    points, centers = check_rows(points, centers, shift=shift)
    if len(mass) != len(points):
        raise ValueError(
            f"There must be one weight per point, got {len(points)} points and {len(mass)} weights."
        )
    centers = centers.copy()
    stats = no_statistics(*centers.shape)
    out = np.array([len(points)]), stats, _NO_LABELS, _NO_FLOATS
    sweep = sweeper(points, mass, centers, None, shift, *out)
    for _ in range(max_iter):
        for part in stats:
            part.fill(0.0)
        sweep()
        if not _move(stats.hi, stats.lo, n_fixed, centers):
            break
    return centers, float((stats.hi[:, -1] + stats.lo[:, -1]).sum())


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
    """Yield runs of segments with or without missing values: start, stop, segment ends, missing."""
    starts = np.concatenate([[0], ends[:-1]])
    gaps = [bool(_any_missing(x, *bounds)) for bounds in zip(starts, ends, strict=True)]
    changes = [0, *(np.flatnonzero(np.diff(gaps)) + 1).tolist(), len(ends)]
    for first, last in itertools.pairwise(changes):
        start = int(starts[first])
        if ends[last - 1] > start:
            yield start, int(ends[last - 1]), ends[first:last] - start, gaps[first]


def _widened(stats: Floats, p: int) -> Floats:
    """Return statistics of complete rows with the weight of each feature's values."""
    masses = np.repeat(stats[:, p : p + 1], p, axis=1)
    return np.concatenate([stats[:, :p], masses, stats[:, p:]], axis=1)


class ObservedSums(NamedTuple):
    """Weighted sums of observed values, weights of their rows (k, p), and of all rows."""

    sums: Floats
    masses: Floats
    counts: Floats


#: Maximum difference of equal rows and their mean, from rounding, as a fraction of their length.
#: 343 epsilon were measured for a million rows of float64.
_MEAN_ROUNDING = 512 * float(np.finfo(np.float64).eps)


def off_center(x: Array, distances: Floats, feature_weights: Floats | None = None) -> Bools:
    """Return a mask of rows whose distance from a mean is larger than its rounding error."""
    weights = np.ones(x.shape[1]) if feature_weights is None else feature_weights
    lengths = np.square(np.nan_to_num(x, nan=0.0).astype(np.float64)) @ weights
    return np.asarray(distances > _MEAN_ROUNDING**2 * lengths)


@compiled()
def _pair_boxes(x, left, right, sides, out):
    for e in range(left.size):
        a, b, total = x[left[e]], x[right[e]], 0.0
        for j in range(sides.size):
            gap = a[j] - b[j]
            total += sides[j] if gap == gap else 0.0
        out[e] = total


def observed_pair_boxes(x: Array, left: Ints, right: Ints, sides: Floats) -> Floats:
    """Return the sum of ``sides`` over the features that both rows of a pair observe."""
    out = np.empty(len(left))
    _pair_boxes(np.ascontiguousarray(x), left, right, np.ascontiguousarray(sides), out)
    return out


def observed_label_sums(x: Array, weight: Floats, labels: Ints, k: int) -> ObservedSums:
    missing = np.isnan(x)
    sums, counts = label_sums(np.where(missing, x.dtype.type(0), x), weight, labels, k)
    masses, _ = label_sums((~missing).astype(np.float64), weight, labels, k)
    return ObservedSums(sums, masses, counts)
