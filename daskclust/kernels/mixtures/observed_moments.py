"""Moments of the values that are there, for rows with missing values."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from daskclust._types import Array, Floats, Ints
from daskclust.kernels.compensated import add_plain
from daskclust.kernels.compiling import compiled
from daskclust.kernels.moments import merge_moments

__all__ = ["ObservedMoments", "observed_moments"]


class ObservedMoments(NamedTuple):
    """Column statistics of the values that are there, in rows of non-zero weight.

    Attributes
    ----------
    hi, lo : ndarray of shape (2p + 2,), float64
        As unevaluated pairs: weighted sums and weights of each column's values,
        weight of the rows, and number of rows that have any value.
    moments : ndarray of shape (3, p), float64
        Weight, mean and sum of squared deviations from it.
    low, high : ndarray of shape (p,), float64
    """

    hi: Floats
    lo: Floats
    moments: Floats
    low: Floats
    high: Floats


@compiled()
def _origins(x: Any, start: Any, stop: Any, weights: Any, weighted: Any, origin: Any) -> None:
    """Put the first value of each column there, 0 where there is none."""
    p = x.shape[1]
    found = np.zeros(p, np.bool_)
    left = p
    for i in range(start, stop):
        if left == 0:
            return
        if weighted and weights[i] == 0.0:
            continue
        for j in range(p):
            if not found[j] and not np.isnan(x[i, j]):
                origin[j], found[j] = x[i, j], True
                left -= 1


@compiled()
def _segment(
    x: Any,
    start: Any,
    stop: Any,
    weights: Any,
    weighted: Any,
    origin: Any,
    mass: Any,
    sums: Any,
    squares: Any,
    low: Any,
    high: Any,
) -> Any:
    """Add rows, about each column's origin; what is missing adds nothing, without a branch."""
    p = x.shape[1]
    total, informed = 0.0, 0.0
    for i in range(start, stop):
        w = weights[i] if weighted else 1.0
        if w == 0.0:
            continue
        total += w
        missing = 0
        for j in range(p):
            v = np.float64(x[i, j])
            has = v == v
            missing += not has
            d = v - origin[j] if has else 0.0
            mass[j] += w if has else 0.0
            sums[j] += w * d
            squares[j] += w * d * d
            low[j] = min(low[j], v if has else np.inf)
            high[j] = max(high[j], v if has else -np.inf)
        informed += missing < p
    return total, informed


def observed_moments(
    x: Array, weight: Floats | None = None, segments: Ints | None = None
) -> ObservedMoments:
    """Column statistics of one block in one sweep, missing values left out.

    Parameters
    ----------
    x : ndarray of shape (n, p), float32 or float64
        NaN where a value is missing.
    weight : ndarray of shape (n,), float64, optional
    segments : ndarray of int64, optional
        Ends of the runs of rows that are summed plainly; the last is n.

    Returns
    -------
    ObservedMoments

    Examples
    --------
    >>> import numpy as np
    >>> found = observed_moments(np.array([[1.0, np.nan], [3.0, 5.0]]))
    >>> found.hi  # sums, values, rows, rows with any value
    array([4., 5., 2., 1., 2., 2.])
    >>> found.moments[2]
    array([2., 0.])
    """
    n, p = x.shape
    hi, lo = np.zeros(2 * p + 2), np.zeros(2 * p + 2)
    moments = np.zeros((3, p))
    low, high = np.full(p, np.inf), np.full(p, -np.inf)
    weights = np.empty(0) if weight is None else weight
    start = 0
    # Infinities and overflow are found by the check of the values, not by NumPy's warnings.
    with np.errstate(invalid="ignore", over="ignore"):
        for stop in [n] if segments is None else segments:
            if stop == start:
                continue
            origin, mass, sums, squares = np.zeros((4, p))
            weighted = weight is not None
            _origins(x, start, stop, weights, weighted, origin)
            total, informed = _segment(
                x, start, stop, weights, weighted, origin, mass, sums, squares, low, high
            )
            add_plain(hi, lo, np.concatenate([sums + mass * origin, mass, [total, informed]]))
            mean = np.divide(sums, mass, out=np.zeros(p), where=mass > 0)
            deviation = np.maximum(squares - sums * mean, 0.0)
            moments = merge_moments(moments, np.stack([mass, origin + mean, deviation]))
            start = stop
    return ObservedMoments(hi, lo, moments, low, high)
