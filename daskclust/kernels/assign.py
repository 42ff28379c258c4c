"""Nearest centre of every row of a block, and the sums that follow from it.

The distance work runs in the input's precision on rows shifted near the origin,
by ``|x|^2 - 2 x.c + |c|^2`` in register tiles (:mod:`daskclust.kernels._simd`).
That form loses digits, so a row whose two smallest scores lie within a rigorous
bound on the rounding error is decided again by direct differences in float64.
Hence labels are those of exact float64 distances, ties go to the lowest
cluster, and neither precision nor chunking nor the order of rows can change
them.  Distances that are summed or returned are direct differences throughout.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from daskclust.kernels._rows import (
    add_row,
    add_row_weighted,
    pack_row,
    row_distance,
    row_distance_weighted,
)
from daskclust.kernels._scores import (
    NARROW_BYTES,
    ROWS,
    few_narrow,
    few_wide,
    nearest_in_row,
    score_pair,
    score_wide,
)
from daskclust.kernels._vector import LANE_BYTES
from daskclust.kernels.compensated import add_plain

__all__ = [
    "SEGMENT",
    "BlockStatistics",
    "accumulate",
    "direct_distances",
    "nearest",
]

Float = NDArray[np.float64]

#: Rows that are summed plainly before the sum joins the compensated total.  Segments are
#: aligned to global row numbers, so that the cut of blocks hardly shows in the sums.
SEGMENT = 4096
#: Bytes of packed rows that share the first-level cache with the centres.
_TILE_BYTES = 16384
_TILE_ROWS = 64
# How centres are laid out: one half-width vector, one vector, panels of one, panels of two.
_NARROW, _WIDE, _PANELS, _PAIRS = range(4)


class _Centres(NamedTuple):
    """Centres laid out for the register tiles, and what the scan needs to know of them."""

    panels: NDArray
    consts: NDArray
    variant: int
    lanes: int
    shift: NDArray
    active: NDArray[np.intp]
    weights: NDArray


class BlockStatistics(NamedTuple):
    """Sufficient statistics of one block, each an unevaluated pair of sums.

    Attributes
    ----------
    hi, lo : ndarray of shape (k, p + 2), float64
        For each cluster: the weighted sum of its rows, its weight, and the
        weighted sum of squared distances of its rows to the given centre.
    """

    hi: Float
    lo: Float


def _lay_out(
    centres: Float, feature_weights: Float | None, shift: Float, dtype: np.dtype
) -> _Centres:
    k, p = centres.shape
    if feature_weights is None:
        active = np.arange(p)
        weights = np.ones(p)
    else:
        active = np.flatnonzero(feature_weights)
        weights = feature_weights[active]
    shift = shift.astype(dtype)
    moved = centres[:, active] - shift[active].astype(np.float64)

    full = LANE_BYTES // dtype.itemsize
    narrow = NARROW_BYTES // dtype.itemsize
    # Padding costs as much as centres do; panels of two reuse each broadcast twice.
    if k <= narrow:
        variant, width = _NARROW, narrow
    elif k <= full:
        variant, width = _WIDE, full
    elif -(-k // full) % 2 and k < 8 * full:
        variant, width = _PANELS, full
    else:
        variant, width = _PAIRS, 2 * full
    n_panels = -(-k // width)
    flat = np.zeros((active.size, n_panels * width))
    flat[:, :k] = (-2.0 * moved * weights).T
    panels = flat.reshape(active.size, n_panels, width).transpose(1, 0, 2)
    consts = np.full(n_panels * width, np.inf)
    consts[:k] = (weights * moved**2).sum(axis=1)
    return _Centres(
        np.ascontiguousarray(panels, dtype=dtype),
        consts.reshape(n_panels, width).astype(dtype),
        variant,
        min(width, full),
        shift,
        active,
        weights.astype(dtype),
    )


@njit(nogil=True, cache=True)
def _gather_row(x, i, shift, active, weights, packed, t):
    """As ``pack_row``, for some of the features only."""
    norm = x.dtype.type(0)
    for j in range(active.size):
        v = x[i, active[j]] - shift[active[j]]
        packed[t, j] = v
        norm += weights[j] * v * v
    return norm


@njit(nogil=True, cache=True)
def _flush(hi, lo, sums, totals):
    """Add a segment's plain sums to the compensated totals, and start the next at 0."""
    p = sums.shape[1]
    for c in range(sums.shape[0]):
        if totals[c, 0] == 0.0:
            continue
        add_plain(hi[c, :p], lo[c, :p], sums[c])
        add_plain(hi[c, p:], lo[c, p:], totals[c])
        sums[c] = 0.0
        totals[c] = 0.0


@njit(nogil=True, cache=True)
def _scan(
    x,
    row_weights,
    weighted,
    centres,
    feature_weights,
    uniform,
    panels,
    consts,
    variant,
    lanes,
    shift,
    active,
    active_weights,
    tile,
    ends,
    want_stats,
    hi,
    lo,
    want_rows,
    labels,
    distances,
):
    """One sweep over a block; see :func:`accumulate` and :func:`nearest`."""
    n, p = x.shape
    k = centres.shape[0]
    q = panels.shape[1]
    whole = q == p
    dtype = x.dtype
    packed = np.zeros((tile, q), dtype)
    norms = np.zeros(tile, dtype)
    best = np.empty((tile, lanes), dtype)
    second = np.empty((tile, lanes), dtype)
    index = np.empty((tile, lanes), np.int32)
    lows = np.empty(tile, dtype)
    next_lows = np.empty(tile, dtype)
    nearests = np.empty(tile, np.int32)
    sums = np.zeros((k if want_stats else 0, p))
    totals = np.zeros((k if want_stats else 0, 2))
    eps = np.finfo(dtype).eps
    bound = dtype.type((q + 8) * eps)

    start = 0
    segment = 0
    while start < n:
        # A tile never crosses the end of a segment.
        m = min(tile, ends[segment] - start)
        for t in range(m):
            if whole:
                norms[t] = pack_row(x, start + t, shift, active_weights, packed, t)
            else:
                norms[t] = _gather_row(x, start + t, shift, active, active_weights, packed, t)
        if variant == _NARROW:
            for row in range(0, m, ROWS):
                few_narrow(packed, row, panels, consts, lows, next_lows, nearests)
        elif variant == _WIDE:
            for row in range(0, m, ROWS):
                few_wide(packed, row, panels, consts, lows, next_lows, nearests)
        else:
            for panel in range(panels.shape[0]):
                for row in range(0, m, ROWS):
                    if variant == _PANELS:
                        score_wide(packed, row, panels, consts, panel, best, second, index)
                    else:
                        score_pair(packed, row, panels, consts, panel, best, second, index)
            for t in range(m):
                lows[t], next_lows[t], nearests[t] = nearest_in_row(best, second, index, t)
        for t in range(m):
            i = start + t
            low, next_low, label = lows[t], next_lows[t], np.intp(nearests[t])
            spread = max(low + norms[t], dtype.type(0))
            # `not >` so that overflow to inf or nan also takes the safe path.
            if not (next_low - low > bound * (5 * norms[t] + 4 * spread)) and k > 1:
                nearest_distance = np.inf
                label = 0
                for c in range(k):
                    if uniform:
                        d = row_distance(x, i, centres, c, feature_weights, 1.0, sums)
                    else:
                        d = row_distance_weighted(x, i, centres, c, feature_weights, 1.0, sums)
                    if d < nearest_distance:
                        nearest_distance = d
                        label = c
            w = 1.0
            if weighted:
                w = row_weights[i]
            if want_stats and w != 0.0:
                if uniform:
                    d = add_row(x, i, centres, label, feature_weights, w, sums)
                else:
                    d = add_row_weighted(x, i, centres, label, feature_weights, w, sums)
                totals[label, 0] += w
                totals[label, 1] += w * d
            if want_rows:
                if uniform:
                    d = row_distance(x, i, centres, label, feature_weights, 1.0, sums)
                else:
                    d = row_distance_weighted(x, i, centres, label, feature_weights, 1.0, sums)
                labels[i] = label
                distances[i] = d
        start += m
        if start == ends[segment]:
            segment += 1
            if want_stats:
                _flush(hi, lo, sums, totals)


_NO_FLOATS = np.empty(0)
_NO_LABELS = np.empty(0, np.int32)
_NO_STATS = np.empty((0, 0))


def _sweep(
    x: NDArray,
    weight: Float | None,
    centres: Float,
    feature_weights: Float | None,
    shift: Float | None,
    segments: NDArray[np.int64] | None,
    stats: BlockStatistics | None,
    labels: NDArray[np.int32] | None,
    distances: Float | None,
) -> None:
    if not x.flags.c_contiguous:
        x = np.ascontiguousarray(x)
    centres = np.ascontiguousarray(centres, dtype=np.float64)
    k, p = centres.shape
    laid = _lay_out(
        centres, feature_weights, centres.mean(axis=0) if shift is None else shift, x.dtype
    )
    q = laid.active.size
    tile = _TILE_BYTES // max(1, q * x.dtype.itemsize) // ROWS * ROWS
    tile = min(_TILE_ROWS, max(ROWS, tile))
    want_rows = labels is not None
    _scan(
        x,
        _NO_FLOATS if weight is None else weight,
        weight is not None,
        centres,
        _NO_FLOATS if feature_weights is None else feature_weights,
        feature_weights is None,
        laid.panels,
        laid.consts,
        laid.variant,
        laid.lanes,
        laid.shift,
        laid.active,
        laid.weights,
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
    centres: Float,
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
    centres : ndarray of shape (k, p), float64
        Current centres.
    weight : ndarray of shape (n,), float64, optional
        Row weights; rows of weight 0 are left out.
    feature_weights : ndarray of shape (p,), float64, optional
        ``w >= 0`` of the squared distance ``sum_j w_j (x_j - c_j)^2``; features
        of weight 0 are not touched by the distance work.
    shift : ndarray of shape (p,), float64, optional
        A point amid the data, subtracted before the distance work so that it
        keeps its digits; the mean of the centres when omitted.
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
    k, p = centres.shape
    stats = BlockStatistics(np.zeros((k, p + 2)), np.zeros((k, p + 2)))
    if len(x):
        _sweep(x, weight, centres, feature_weights, shift, segments, stats, None, None)
    return stats


def nearest(
    x: NDArray,
    centres: Float,
    *,
    feature_weights: Float | None = None,
    shift: Float | None = None,
) -> tuple[NDArray[np.int32], Float]:
    """Nearest centre of each row and the squared distance to it.

    Parameters
    ----------
    x, centres, feature_weights, shift
        As for :func:`accumulate`.

    Returns
    -------
    labels : ndarray of shape (n,), int32
    distances : ndarray of shape (n,), float64
        Squared distances by direct differences: exactly 0 for a row equal to
        its centre.

    Examples
    --------
    >>> import numpy as np
    >>> nearest(np.array([[0.0], [1.0], [10.0]]), np.array([[0.0], [9.0]]))
    (array([0, 0, 1], dtype=int32), array([0., 1., 1.]))
    """
    labels = np.empty(len(x), np.int32)
    distances = np.empty(len(x))
    if len(x):
        _sweep(x, None, centres, feature_weights, shift, None, None, labels, distances)
    return labels, distances


@njit(nogil=True, cache=True)
def _all_direct(x, centres, weights, uniform, out):
    for i in range(x.shape[0]):
        for c in range(centres.shape[0]):
            if uniform:
                out[i, c] = row_distance(x, i, centres, c, weights, 1.0, centres)
            else:
                out[i, c] = row_distance_weighted(x, i, centres, c, weights, 1.0, centres)


def direct_distances(x: NDArray, centres: Float, feature_weights: Float | None = None) -> Float:
    """Squared distances of all rows to all centres by direct differences.

    Parameters
    ----------
    x : ndarray of shape (m, p)
        A few rows.
    centres : ndarray of shape (k, p), float64
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
    out = np.empty((len(x), len(centres)))
    centres = np.ascontiguousarray(centres, dtype=np.float64)
    weights = _NO_FLOATS if feature_weights is None else feature_weights
    _all_direct(np.ascontiguousarray(x), centres, weights, feature_weights is None, out)
    return out
