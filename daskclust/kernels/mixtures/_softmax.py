"""Posteriors from log-densities: the softmax of each model's components, for many rows.

Rows are the vector lanes: densities come with a row of the matrix for each
component, so that maximum, exponential and sum of a model run down its
components, on whole vectors, however few components it has.  The compiler has no
vector exponential of its own, so there is one here; the C library's takes its place
where ``DASKCLUST_KERNELS=plain``, and agrees with it to about a unit in the last place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from daskclust._types import Array, Floats, Ints
from daskclust.kernels.compiling import PLAIN, compiled

__all__ = ["exponential", "softmax"]


#: Rows that are worked on together: a model of 30 components stays in the first cache.
_LANES = 128

# exp(x) = 2^k exp(r): adding `_MAGIC` rounds x / ln 2 to an integer k that is then found in
# the low bits of the sum.  (float64: 52 bits of mantissa; float32: 23.)
_MAGIC64, _MAGIC32 = np.float64(6755399441055744.0), np.float32(12582912.0)
_LOG2E, _LOG2E32 = 1.4426950408889634, np.float32(1.4426950408889634)
_LN2_HIGH64, _LN2_LOW64 = np.float64(0.693145751953125), np.float64(1.4286068203094172e-06)
_LN2_HIGH32, _LN2_LOW32 = np.float32(0.693359375), np.float32(-2.12194440e-4)
#: Below this the result is 0 (it would be denormal).
_LEAST64, _LEAST32 = np.float64(-708.0), np.float32(-87.0)
_ONE = np.float32(1.0)


def _exp(x: Any) -> Any:
    """Exponential of a number that is not positive."""
    # Compiled code takes one of them by type, below; this is for NUMBA_DISABLE_JIT.
    return _plain_exp32(x) if isinstance(x, np.float32) else _plain_exp64(x)


def _exp64(x: Any) -> Any:
    y = max(x, _LEAST64)
    shifted = y * _LOG2E + _MAGIC64
    k = shifted - _MAGIC64
    r = (y - k * _LN2_HIGH64) - k * _LN2_LOW64
    # Taylor to degree 13: |r| <= ln(2) / 2, remainder below 1e-17.
    e = 1.0 + r * (1 / 13)
    e = 1.0 + r * (1 / 12) * e
    e = 1.0 + r * (1 / 11) * e
    e = 1.0 + r * (1 / 10) * e
    e = 1.0 + r * (1 / 9) * e
    e = 1.0 + r * (1 / 8) * e
    e = 1.0 + r * (1 / 7) * e
    e = 1.0 + r * (1 / 6) * e
    e = 1.0 + r * (1 / 5) * e
    e = 1.0 + r * (1 / 4) * e
    e = 1.0 + r * (1 / 3) * e
    e = 1.0 + r * (1 / 2) * e
    e = 1.0 + r * e
    bits = np.int64((np.float64(shifted).view(np.int64) + 1023) << 52)
    return e * bits.view(np.float64) if x >= _LEAST64 else 0.0


def _exp32(x: Any) -> Any:
    y = max(x, _LEAST32)
    shifted = np.float32(y * _LOG2E32 + _MAGIC32)
    k = np.float32(shifted - _MAGIC32)
    r = np.float32((y - k * _LN2_HIGH32) - k * _LN2_LOW32)
    e = _ONE + r * np.float32(1 / 7)
    e = _ONE + r * np.float32(1 / 6) * e
    e = _ONE + r * np.float32(1 / 5) * e
    e = _ONE + r * np.float32(1 / 4) * e
    e = _ONE + r * np.float32(1 / 3) * e
    e = _ONE + r * np.float32(1 / 2) * e
    e = np.float32(_ONE + r * e)
    bits = np.int32((np.float32(shifted).view(np.int32) + np.int32(127)) << np.int32(23))
    return np.float32(e * bits.view(np.float32)) if x >= _LEAST32 else np.float32(0.0)


def _plain_exp64(x: Any) -> Any:
    return np.exp(x) if x >= _LEAST64 else 0.0


def _plain_exp32(x: Any) -> Any:
    return np.exp(x) if x >= _LEAST32 else np.float32(0.0)


# No reassociation: the compiler must not cancel the magic numbers.
@overload(_exp, inline="always")
def _exp_of(x: Any) -> Any:
    if PLAIN:
        return _plain_exp32 if x == types.float32 else _plain_exp64
    return _exp32 if x == types.float32 else _exp64


# One short loop a function: the compiler makes vectors of it only where it can tell that the
# arrays do not overlap, which it checks at run time for so few of them.
@compiled(error_model="numpy", fastmath={"contract"})
def _raise_top(row: Any, bias: Any, top: Any) -> None:
    for c in range(row.size):
        v = row[c] + bias
        row[c] = v
        top[c] = v if v > top[c] else top[c]


@compiled(error_model="numpy", fastmath={"contract"})
def _add_exponentials(row: Any, top: Any, norm: Any, out: Any) -> None:
    for c in range(row.size):
        out[c] = row[c] - top[c]  # rounds to the type of the result, where that is float32
        e = _exp(out[c])
        out[c] = e
        norm[c] += e


@compiled(error_model="numpy", fastmath={"contract"})
def _divide(row: Any, norm: Any) -> None:
    for c in range(row.size):
        row[c] /= norm[c]


@compiled()
def _softmax(scores: Any, bias: Any, bounds: Any, top: Any, norm: Any, out: Any) -> None:
    n = scores.shape[1]
    for first in range(0, n, _LANES):
        last = min(first + _LANES, n)
        for m in range(len(bounds) - 1):
            here, total = top[m, first:last], norm[m, first:last]
            for d in range(bounds[m], bounds[m + 1]):
                _raise_top(scores[d, first:last], bias[d], here)
            for d in range(bounds[m], bounds[m + 1]):
                _add_exponentials(scores[d, first:last], here, total, out[d, first:last])
            for d in range(bounds[m], bounds[m + 1]):
                _divide(out[d, first:last], total)


@compiled(error_model="numpy", fastmath={"contract"})
def _exponentials(x: Any, out: Any) -> None:
    for i in range(x.size):
        out[i] = _exp(x[i])


def exponential(x: Array) -> Array:
    """Exponentials of numbers that are not positive, by the code that :func:`softmax` uses.

    Parameters
    ----------
    x : ndarray of shape (n,), float32 or float64
        At most 0; below -708 (float32: -87) the result is 0.

    Examples
    --------
    >>> import numpy as np
    >>> exponential(np.array([0.0, -1.0, -1e9])).round(4)
    array([1.    , 0.3679, 0.    ])
    """
    out = np.empty_like(x)
    _exponentials(x, out)
    return out


def softmax(
    scores: Floats,
    bias: Floats,
    bounds: Ints,
    out: tuple[Array, Floats, Array] | None = None,
) -> tuple[Array, Floats, Array]:
    """Turn log-densities into posteriors, for each model by itself.

    Parameters
    ----------
    scores : ndarray of shape (D, n), float64
        Log-densities of n rows under the D components of all models; overwritten.
    bias : ndarray of shape (D,), float64
        Added to the scores: log-weights.  Minus infinity means no posterior; not
        all of a model may be.
    bounds : ndarray of shape (m + 1,), int64
        Where each model's components begin, and D.
    out : tuple of ndarrays, optional
        Receive what is returned; posteriors (and norm) of float32 or float64.  Never
        ``scores`` itself: loops over arrays that overlap are not made into vectors.

    Returns
    -------
    posteriors : ndarray of shape (D, n)
    top : ndarray of shape (m, n), float64
        Largest log-density of each row under each model.
    norm : ndarray of shape (m, n), of the type of the posteriors
        ``top + log(norm)`` is the log-likelihood.

    Examples
    --------
    >>> import numpy as np
    >>> scores = np.log(np.array([[1.0], [3.0], [5.0]]))
    >>> posteriors, top, norm = softmax(scores, np.zeros(3), np.array([0, 2, 3]))
    >>> posteriors.ravel()  # of 1 + 3, and of 5
    array([0.25, 0.75, 1.  ])
    >>> (np.exp(top) * norm).ravel().round(9)
    array([4., 5.])
    """
    shape = len(bounds) - 1, scores.shape[1]
    if out is None:
        out = np.empty(scores.shape), np.empty(shape), np.empty(shape)
    posteriors, top, norm = out
    top[:], norm[:] = -np.inf, 0.0
    _softmax(scores, bias, bounds, top, norm, posteriors)
    return posteriors, top, norm
