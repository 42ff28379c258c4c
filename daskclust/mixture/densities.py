"""Models of Gaussian mixtures, and densities of rows with missing values.

Several models are evaluated together: restarts of a fit, or members of an ensemble.  For a row
without any value, the posteriors are the weights, and the likelihood is 1.

Vector instructions process several rows at once, which is fast also for models of few components.
The compiler has no vectorized exponential function, so this module defines one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload
from scipy.linalg import solve_triangular

from daskclust.core.array_types import Array, Bools, Floats, Ints
from daskclust.core.kernels.buffers import Scratch
from daskclust.core.kernels.compiling import compiled

#: Number of rows that are processed together.  With 30 components they fit the first-level cache.
_LANES = 128

# exp(x) = 2^k exp(r).  Adding `_MAGIC` to x / ln 2 rounds it to the integer k: the low bits of the
# mantissa of the sum are k.
_MAGIC64, _MAGIC32 = np.float64(6755399441055744.0), np.float32(12582912.0)
_LOG2E, _LOG2E32 = 1.4426950408889634, np.float32(1.4426950408889634)
_LN2_HIGH64, _LN2_LOW64 = np.float64(0.693145751953125), np.float64(1.4286068203094172e-06)
_LN2_HIGH32, _LN2_LOW32 = np.float32(0.693359375), np.float32(-2.12194440e-4)
#: Minimum argument of the exponential: the result is 0 for smaller arguments, not denormal.
_LEAST64, _LEAST32 = np.float64(-708.0), np.float32(-87.0)
_ONE = np.float32(1.0)


def _exp(x: Any) -> Any:
    raise NotImplementedError("Compiled code uses _exp32 or _exp64, depending on the dtype.")


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


# No reassociation is allowed: the compiler would cancel the magic numbers.
@overload(_exp, inline="always")
def _exp_of(x: Any) -> Any:
    return _exp32 if x == types.float32 else _exp64


# The loops are separate functions of a few arrays: the compiler vectorizes a loop only if it can
# check at run time that its arrays do not overlap.
@compiled(error_model="numpy", fastmath={"contract"})
def _add_bias(row, bias, top):
    for c in range(row.size):
        v = row[c] + bias
        row[c] = v
        top[c] = v if v > top[c] else top[c]


@compiled(error_model="numpy", fastmath={"contract"})
def _add_exponentials(row, top, norm, out):
    for c in range(row.size):
        out[c] = row[c] - top[c]  # rounds to the type of the result
        e = _exp(out[c])
        out[c] = e
        norm[c] += e


@compiled(error_model="numpy", fastmath={"contract"})
def _divide(row, norm):
    for c in range(row.size):
        row[c] /= norm[c]


@compiled()
def _softmax(scores, bias, bounds, top, norm, out):
    n = scores.shape[1]
    for first in range(0, n, _LANES):
        last = min(first + _LANES, n)
        for m in range(len(bounds) - 1):
            highest, total = top[m, first:last], norm[m, first:last]
            for d in range(bounds[m], bounds[m + 1]):
                _add_bias(scores[d, first:last], bias[d], highest)
            for d in range(bounds[m], bounds[m + 1]):
                _add_exponentials(scores[d, first:last], highest, total, out[d, first:last])
            for d in range(bounds[m], bounds[m + 1]):
                _divide(out[d, first:last], total)


def softmax(
    scores: Floats,
    bias: Floats,
    bounds: Ints,
    out: tuple[Array, Floats, Array] | None = None,
) -> tuple[Array, Floats, Array]:
    """Convert log-densities to posteriors, separately for each model.

    The log-weights ``bias`` (D,) are added to ``scores`` (D, n), which are overwritten.  A
    component with a bias of minus infinity has posterior 0.  Each model must have a component with
    a finite bias.  ``bounds`` (m + 1,) is the index of the first component of each model, and D.

    Returns posteriors (D, n), the largest log-density ``top`` (m, n) of each row for each model,
    and ``norm`` (m, n).  The log-likelihood is ``top + log(norm)``.  The results are written to
    ``out``, which must not overlap ``scores``.
    """
    shape = len(bounds) - 1, scores.shape[1]
    if out is None:
        out = np.empty(scores.shape), np.empty(shape), np.empty(shape)
    posteriors, top, norm = out
    top[:], norm[:] = -np.inf, 0.0
    _softmax(scores, bias, bounds, top, norm, posteriors)
    return posteriors, top, norm


#: Maximum and minimum number of rows of a tile, and its maximum number of values.  A tile fits the
#: second-level cache.
_TILE, _LEAST_TILE, _TILE_VALUES = 1024, 128, 2**17
#: Number of components processed together.
_COMPONENTS = 512


@dataclass(frozen=True)
class Mixtures:
    """Components of several models, with covariances (D, p, p) or variances (D, p).

    ``sizes`` are the numbers of components of the models.
    """

    weights: Floats
    means: Floats
    covariances: Floats
    sizes: tuple[int, ...]

    @property
    def diagonal(self) -> bool:
        return self.covariances.ndim == 2

    @property
    def arrays(self) -> dict[str, Floats]:
        return {"weights": self.weights, "means": self.means, "covariances": self.covariances}

    @property
    def bounds(self) -> Ints:
        """Index of the first component of each model, and D."""
        return np.cumsum((0, *self.sizes), dtype=np.int64)

    @property
    def n_statistics(self) -> int:
        """Number of sums per component in an EM iteration."""
        p = self.means.shape[1]
        return 1 + 3 * p if self.diagonal else 1 + p + p * p


def stack_models(models: Sequence[Mixtures]) -> Mixtures:
    columns = {name: [model.arrays[name] for model in models] for name in models[0].arrays}
    joined = {name: np.concatenate(arrays) for name, arrays in columns.items()}
    return Mixtures(**joined, sizes=tuple(size for model in models for size in model.sizes))


@compiled(error_model="numpy")
def deviations(x, shift, out):
    """Fill ``out`` with [x^2 o, x o, o], and return True if no value is missing.

    ``x`` are the rows minus the shift, and o is 1 for observed values, else 0.
    """
    n, p = x.shape
    complete = True
    for i in range(n):
        for j in range(p):
            v = np.float64(x[i, j]) - shift[j]
            observed = v == v
            complete &= observed
            v = v if observed else 0.0
            out[i, j] = v * v
            out[i, p + j] = v
            out[i, 2 * p + j] = 1.0 if observed else 0.0
    return complete


@compiled(counted=False, error_model="numpy")
def _fill_coefficients(means, variances, shift, logs, out):
    """Fill ``out`` with [-1/2v, m/v, -(m^2/v + log 2 pi v)/2]: m is the mean minus the shift."""
    d, p = means.shape
    for k in range(d):
        for j in range(p):
            m, precision = means[k, j] - shift[j], 1.0 / variances[k, j]
            out[k, j] = -0.5 * precision
            out[k, p + j] = m * precision
            out[k, 2 * p + j] = -0.5 * (m * m * precision + logs[k, j])


def _model_groups(bounds: Ints) -> list[tuple[int, int]]:
    if bounds[-1] <= _COMPONENTS:
        return [(0, len(bounds) - 1)]
    group_of_model = bounds[:-1] // _COMPONENTS
    starts = np.flatnonzero(np.diff(group_of_model, prepend=-1)).tolist()
    return list(pairwise([*starts, len(bounds) - 1]))


class Diagonal:
    """Log-densities under diagonal covariances, as products with [x^2 o, x o, o].

    Each call of a method overwrites earlier results.
    """

    def __init__(self, mixtures: Mixtures, shift: Floats) -> None:
        d, self.p = mixtures.means.shape
        self.shift = shift
        self.bounds = mixtures.bounds
        self.groups = _model_groups(self.bounds)
        self.coefficients = np.empty((d, 3 * self.p))
        logs = np.log(2 * np.pi * mixtures.covariances)
        _fill_coefficients(mixtures.means, mixtures.covariances, shift, logs, self.coefficients)
        with np.errstate(divide="ignore"):
            self.bias = np.log(mixtures.weights)
        self.complete_bias = self.bias + self.coefficients[:, 2 * self.p :].sum(axis=1)
        self.scratch = Scratch()

    def features(self, x: Array) -> tuple[Floats, bool]:
        """Return [x^2 o, x o, o] and False, or [x^2, x] and True if no value is missing."""
        out = self.scratch("features", (len(x), 3 * self.p))
        complete = bool(deviations(x, self.shift, out))
        return (out[:, : 2 * self.p] if complete else out), complete

    def posteriors(
        self, features: Floats, complete: bool, dtype: Any = np.float64
    ) -> tuple[Array, Floats, Array]:
        bias = self.complete_bias if complete else self.bias
        n, width = features.shape
        m = len(self.bounds) - 1
        out = self.scratch("posteriors", (len(bias), n), dtype)
        top, norm = self.scratch("top", (m, n)), self.scratch("norm", (m, n), dtype)
        # The scores of a few models fit the second-level cache.
        for first, last in self.groups:
            components = slice(self.bounds[first], self.bounds[last])
            scores = self.scratch("scores", (components.stop - components.start, n))
            np.matmul(self.coefficients[components, :width], features.T, out=scores)
            bounds = self.bounds[first : last + 1] - self.bounds[first]
            softmax(
                scores,
                bias[components],
                bounds,
                (out[components], top[first:last], norm[first:last]),
            )
        return out, top, norm


class Full:
    """Log-densities of complete rows under full covariances.

    Each call of a method overwrites earlier results.
    """

    def __init__(self, mixtures: Mixtures) -> None:
        d, p = mixtures.means.shape
        self.means = mixtures.means
        self.bounds = mixtures.bounds
        # Upper factors of the precisions: |(x - mean) @ factor|^2 is the Mahalanobis distance.
        lower = np.linalg.cholesky(mixtures.covariances)
        eye = np.eye(p)
        self.factors = np.empty((d, p, p))
        for k in range(d):
            self.factors[k] = solve_triangular(lower[k], eye, lower=True).T
        half_log_det = np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(axis=1)
        with np.errstate(divide="ignore"):
            self.bias = np.log(mixtures.weights) - half_log_det - 0.5 * p * np.log(2 * np.pi)
        self.scratch = Scratch()

    def features(self, x: Array) -> tuple[Floats, bool]:
        """Return the rows in float64, and True, because no value is missing."""
        return x.astype(np.float64, copy=False), True

    def posteriors(
        self, x: Floats, complete: bool, dtype: Any = np.float64
    ) -> tuple[Array, Floats, Array]:
        d, n, m = len(self.means), len(x), len(self.bounds) - 1
        scores = self.scratch("scores", (d, n))
        deviation, white = self.scratch("deviation", x.shape), self.scratch("white", x.shape)
        for k, (mean, factor) in enumerate(zip(self.means, self.factors, strict=True)):
            np.matmul(np.subtract(x, mean, out=deviation), factor, out=white)
            np.einsum("ij,ij->i", white, white, out=scores[k])
        scores *= -0.5
        out = self.scratch("posteriors", (d, n), dtype)
        top, norm = self.scratch("top", (m, n)), self.scratch("norm", (m, n), dtype)
        return softmax(scores, self.bias, self.bounds, (out, top, norm))


def incomplete_rows(x: Array) -> Bools:
    return np.asarray(np.isnan(x).any(axis=1))


def tile_rows(n_components: int, n_features: int) -> int:
    n_rows = _TILE_VALUES // max(n_components, 3 * n_features)
    return max(_LEAST_TILE, min(_TILE, n_rows))


def cut_tiles(segments: Ints, size: int) -> list[tuple[int, int, bool]]:
    """Split segments into tiles: (start, stop, True if a segment ends here)."""
    tiles, start = [], 0
    for end in segments.tolist():
        for first in range(start, end, size):
            tiles.append((first, min(first + size, end), first + size >= end))
        start = end
    return tiles
