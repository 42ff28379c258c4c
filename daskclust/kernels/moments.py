"""First and second moments of a block's columns, their ranges, and bad values."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Floats, Ints
from daskclust.kernels.compensated import add_plain
from daskclust.kernels.compiling import compiled

__all__ = ["BlockMoments", "block_moments", "first_nonfinite", "merge_moments"]


class BlockMoments(NamedTuple):
    """Column statistics of the rows of non-zero weight of one block.

    Attributes
    ----------
    hi, lo : ndarray of shape (p + 1,), float64
        Weighted column sums and, last, the weight, as unevaluated pairs.
    moments : ndarray of shape (3, p), float64
        Weight, mean and sum of squared deviations from it.
    low, high : ndarray of shape (p,), float64
        Range of each column; (inf, -inf) without rows.
    finite : bool
        Whether all values, those of weight 0 too, are finite.
    """

    hi: Floats
    lo: Floats
    moments: Floats
    low: Floats
    high: Floats
    finite: bool


class _Columns(NamedTuple):
    """Sums of each column, all of shape (p,).

    Weighted sums of the values minus ``shift`` and of their squares, smallest and
    largest value, and a probe that is NaN once a row of weight 0 is not finite.
    """

    shift: Floats
    sums: Floats
    squares: Floats
    low: Floats
    high: Floats
    probe: Floats


@compiled(fastmath={"contract"})
def _segment(x: Any, start: Any, stop: Any, weights: Any, weighted: Any, columns: Any) -> float:
    """Add rows ``start .. stop - 1`` to the columns; return their weight."""
    p = x.shape[1]
    shift, sums, squares, low, high, probe = columns
    total = 0.0
    for i in range(start, stop):
        w = 1.0
        if weighted:
            w = weights[i]
            if w == 0.0:
                for j in range(p):
                    v = np.float64(x[i, j])
                    probe[j] += v - v
                continue
        total += w
        for j in range(p):
            v = np.float64(x[i, j])
            d = v - shift[j]
            wd = w * d
            sums[j] += wd
            squares[j] += wd * d
            low[j] = min(low[j], v)
            high[j] = max(high[j], v)
    return total


@compiled()
def _first_nonfinite(x: Any) -> tuple[int, int]:
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            if not np.isfinite(x[i, j]):
                return i, j
    return -1, -1


def first_nonfinite(x: NDArray) -> tuple[int, int]:
    """Row and column of the first NaN or infinity in row order, (-1, -1) if there is none.

    Examples
    --------
    >>> import numpy as np
    >>> first_nonfinite(np.array([[0.0, 1.0], [2.0, np.nan]]))
    (1, 1)
    """
    row, column = _first_nonfinite(x)
    return int(row), int(column)


def merge_moments(a: Floats, b: Floats) -> Floats:
    """Merge (weight, mean, sum of squared deviations) of two sets of rows (Chan et al.).

    Parameters
    ----------
    a, b : ndarray of shape (3, p), float64

    Examples
    --------
    >>> import numpy as np
    >>> one, three = np.array([[1.0], [1.0], [0.0]]), np.array([[1.0], [3.0], [0.0]])
    >>> merge_moments(one, three).ravel()  # 2 rows, mean 2, squares 1 + 1
    array([2., 2., 2.])
    """
    weight = a[0] + b[0]
    share = np.divide(b[0], weight, out=np.zeros_like(weight), where=weight > 0)
    # Values whose squares overflow are refused by their range, once all rows are known.
    with np.errstate(over="ignore", invalid="ignore"):
        gap = b[1] - a[1]
        return np.stack([weight, a[1] + gap * share, a[2] + b[2] + gap**2 * a[0] * share])


def block_moments(
    x: NDArray, weight: Floats | None = None, segments: Ints | None = None
) -> BlockMoments:
    """Column statistics of one block in one sweep.

    Parameters
    ----------
    x : ndarray of shape (n, p), float32 or float64
    weight : ndarray of shape (n,), float64, optional
        Row weights; rows of weight 0 count for nothing but the finite check.
    segments : ndarray of int64, optional
        Ends of the runs of rows that are summed plainly; the last is n.

    Returns
    -------
    BlockMoments

    Examples
    --------
    >>> import numpy as np
    >>> block_moments(np.array([[1.0, 5.0], [3.0, 5.0]])).moments
    array([[2., 2.],
           [2., 5.],
           [2., 0.]])
    """
    n, p = x.shape
    hi, lo = np.zeros(p + 1), np.zeros(p + 1)
    moments = np.zeros((3, p))
    low, high = np.full(p, np.inf), np.full(p, -np.inf)
    probe = np.zeros(p)
    weights = np.empty(0) if weight is None else weight
    start = 0
    # Infinities and overflow are reported by the finite check, not by NumPy's warnings.
    with np.errstate(invalid="ignore", over="ignore"):
        for stop in [n] if segments is None else segments:
            if stop == start:
                continue
            sums, squares = np.zeros(p), np.zeros(p)
            # Squares about a row of the segment keep their digits whatever the offset of the
            # data; a row that counts, since one of weight 0 may lie anywhere.
            first = start if weight is None else start + int(np.argmax(weight[start:stop] != 0))
            shift = x[first].astype(np.float64)
            columns = _Columns(shift, sums, squares, low, high, probe)
            total = _segment(x, start, stop, weights, weight is not None, columns)
            add_plain(hi, lo, np.append(sums + total * shift, total))
            if total:
                mean = sums / total
                deviation = np.maximum(squares - sums * mean, 0.0)
                part = np.stack([np.full(p, total), shift + mean, deviation])
                moments = merge_moments(moments, part)
            start = stop
    finite = bool(np.isfinite(hi).all() and np.isfinite(probe).all())
    # An overflowing sum of finite values is not a bad value.
    finite = finite or first_nonfinite(x)[0] < 0
    return BlockMoments(hi, lo, moments, low, high, finite)
