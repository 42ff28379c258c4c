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

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust.kernels.nearest._scores import NARROW_BYTES, ROWS
from daskclust.kernels.nearest._simd import LANE_BYTES
from daskclust.kernels.nearest._tiles import (
    NARROW,
    PAIRS,
    PANELS,
    WIDE,
    all_direct,
    scan,
    sum_by_label,
)

__all__ = [
    "SEGMENT",
    "BlockStatistics",
    "accumulate",
    "direct_distances",
    "label_sums",
    "nearest",
]

Float = NDArray[np.float64]

#: Rows that are summed plainly before the sum joins the compensated total.  Segments are
#: aligned to global row numbers, so that the cut of blocks hardly shows in the sums.
SEGMENT = 4096
#: Bytes of packed rows that share the first-level cache with the centers.
_TILE_BYTES = 16384
_TILE_ROWS = 64
# Data are near the origin when the centers' mean square is at most so many times their variance.
_NEAR_ORIGIN = 16.0


class _Centers(NamedTuple):
    """Centers laid out for the register tiles, and what the scan needs to know of them."""

    panels: NDArray
    consts: NDArray
    tail: NDArray
    tail_consts: NDArray
    variant: int
    lanes: int
    shift: NDArray
    active: NDArray[np.intp]
    in_place: bool


class BlockStatistics(NamedTuple):
    """Sufficient statistics of one block, each an unevaluated pair of sums.

    Attributes
    ----------
    hi, lo : ndarray of shape (k, p + 2), float64
        For each cluster: the weighted sum of its rows, its weight, and the
        weighted sum of squared distances of its rows to the given center.
    """

    hi: Float
    lo: Float


def _near_origin(centers: Float, shift: NDArray) -> bool:
    """Whether scores of rows as they are lose no digits worth a shifted copy of each row."""
    with np.errstate(over="ignore", invalid="ignore"):
        spread = ((centers - shift) ** 2).sum()
        return bool((centers**2).sum() <= _NEAR_ORIGIN * spread)


def _choose_panels(k: int, full: int, narrow: int) -> tuple[int, int]:
    """Variant and width of the panels of k centers, for vectors of so many lanes.

    Padding costs as much as centers do, so a few centers beyond whole vectors
    get half a one; panels of two reuse each broadcast twice.
    """
    if k <= narrow:
        return NARROW, narrow
    if k <= full:
        return WIDE, full
    vectors = k // full + (k % full > narrow)
    if vectors % 2 and vectors < 8:
        return PANELS, full
    return PAIRS, 2 * full


def _lay_out(
    centers: Float, feature_weights: Float | None, shift: Float, dtype: np.dtype
) -> _Centers:
    k, p = centers.shape
    if feature_weights is None:
        active = np.arange(p)
        weights = np.ones(p)
    else:
        active = np.flatnonzero(feature_weights)
        weights = feature_weights[active]
    shift = shift.astype(dtype)
    full = LANE_BYTES // dtype.itemsize
    narrow = NARROW_BYTES // dtype.itemsize
    variant, width = _choose_panels(k, full, narrow)
    in_place = active.size == p and _near_origin(centers, shift)
    if in_place:
        shift[:] = 0
    moved = centers[:, active] - shift[active].astype(np.float64)

    has_tail = k > width and 0 < k % width <= narrow
    n_panels = k // width if has_tail else -(-k // width)
    flat = np.zeros((active.size, n_panels * width + has_tail * narrow), dtype)
    consts = np.full(flat.shape[1], np.inf, dtype)
    # What overflows makes rows take the safe path, which does not need it.
    with np.errstate(over="ignore", invalid="ignore"):
        flat[:, :k] = (-2.0 * moved * weights).T
        consts[:k] = (weights * moved**2).sum(axis=1)
    whole, tail = np.split(flat, [n_panels * width], axis=1)
    panels = whole.reshape(active.size, n_panels, width).transpose(1, 0, 2)
    return _Centers(
        np.ascontiguousarray(panels),
        consts[: n_panels * width].reshape(n_panels, width),
        np.ascontiguousarray(tail),
        consts[n_panels * width :],
        variant,
        min(width, full),
        shift,
        active,
        in_place,
    )


_NO_FLOATS = np.empty(0)
_NO_LABELS = np.empty(0, np.int32)
_NO_STATS = np.empty((0, 0))


def _sweep(
    x: NDArray,
    weight: Float | None,
    centers: Float,
    feature_weights: Float | None,
    shift: Float | None,
    segments: NDArray[np.int64] | None,
    stats: BlockStatistics | None,
    labels: NDArray[np.int32] | None,
    distances: Float | None,
) -> None:
    if not x.flags.c_contiguous:
        x = np.ascontiguousarray(x)
    centers = np.ascontiguousarray(centers, dtype=np.float64)
    laid = _lay_out(
        centers, feature_weights, centers.mean(axis=0) if shift is None else shift, x.dtype
    )
    q = laid.active.size
    tile = _TILE_BYTES // max(1, q * x.dtype.itemsize) // ROWS * ROWS
    tile = min(_TILE_ROWS, max(ROWS, tile))
    want_rows = labels is not None
    scan(
        x,
        _NO_FLOATS if weight is None else weight,
        weight is not None,
        centers,
        _NO_FLOATS if feature_weights is None else feature_weights,
        feature_weights is None,
        laid.panels,
        laid.consts,
        laid.tail,
        laid.tail_consts,
        laid.variant,
        laid.lanes,
        laid.shift,
        laid.active,
        laid.in_place,
        tile,
        np.array([len(x)]) if segments is None else segments,
        stats is not None,
        _NO_STATS if stats is None else stats.hi,
        _NO_STATS if stats is None else stats.lo,
        want_rows,
        _NO_LABELS if labels is None else labels,
        _NO_FLOATS if distances is None else distances,
    )


def accumulate(
    x: NDArray,
    centers: Float,
    *,
    weight: Float | None = None,
    feature_weights: Float | None = None,
    shift: Float | None = None,
    segments: NDArray[np.int64] | None = None,
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
    k, p = centers.shape
    stats = BlockStatistics(np.zeros((k, p + 2)), np.zeros((k, p + 2)))
    if len(x):
        _sweep(x, weight, centers, feature_weights, shift, segments, stats, None, None)
    return stats


def nearest(
    x: NDArray,
    centers: Float,
    *,
    feature_weights: Float | None = None,
    shift: Float | None = None,
) -> tuple[NDArray[np.int32], Float]:
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
    labels = np.empty(len(x), np.int32)
    distances = np.empty(len(x))
    if len(x):
        _sweep(x, None, centers, feature_weights, shift, None, None, labels, distances)
    return labels, distances


def direct_distances(x: NDArray, centers: Float, feature_weights: Float | None = None) -> Float:
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
    out = np.empty((len(x), len(centers)))
    centers = np.ascontiguousarray(centers, dtype=np.float64)
    weights = _NO_FLOATS if feature_weights is None else feature_weights
    all_direct(np.ascontiguousarray(x), centers, weights, feature_weights is None, out)
    return out


def label_sums(x: NDArray, weight: Float, labels: NDArray[np.int64], k: int) -> tuple[Float, Float]:
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
    sum_by_label(np.ascontiguousarray(x), weight, labels, sums)
    weights: Float = np.bincount(labels, weights=weight, minlength=k).astype(np.float64)
    return sums, weights
