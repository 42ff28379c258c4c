"""Gaussian mixtures of rows with values missing at random: models, and densities under them.

A stack of models is worked on at once: restarts of one fit, or the members of an
ensemble.  NaN means missing; a row counts with the values that it has, and a row
that has none has the weights as its posterior and likelihood 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from daskclust._types import Array, Bools, Floats, Ints
from daskclust.kernels.compiling import compiled
from daskclust.kernels.mixtures._softmax import softmax
from daskclust.kernels.scratch import Scratch

__all__ = [
    "Diagonal",
    "Full",
    "Mixtures",
    "cut_tiles",
    "deviations",
    "stack_models",
    "tile_rows",
    "with_holes",
]


#: Rows worked on together, such that what is made of them stays in the second cache.
_TILE, _LEAST_TILE, _TILE_VALUES = 1024, 128, 2**17
#: Components worked on together.
_COMPONENTS = 512


@dataclass(frozen=True)
class Mixtures:
    """Components of several models, one model after another.

    Parameters
    ----------
    weights : ndarray of shape (D,), float64
        Of each component; they sum to 1 for each model.
    means : ndarray of shape (D, p), float64
    covariances : ndarray of shape (D, p) or (D, p, p), float64
        Variances (diagonal covariances), or full covariance matrices.
    sizes : tuple of int
        Components of each model; they sum to D.
    """

    weights: Floats
    means: Floats
    covariances: Floats
    sizes: tuple[int, ...]

    @property
    def diagonal(self) -> bool:
        """Whether covariances are diagonal."""
        return self.covariances.ndim == 2

    @property
    def arrays(self) -> dict[str, Floats]:
        """Weights, means and covariances by their names."""
        return {"weights": self.weights, "means": self.means, "covariances": self.covariances}

    @property
    def bounds(self) -> Ints:
        """Where each model's components begin, and D."""
        return np.cumsum((0, *self.sizes), dtype=np.int64)

    @property
    def n_statistics(self) -> int:
        """Numbers a component in the sums of an EM iteration."""
        p = self.means.shape[1]
        return 1 + 3 * p if self.diagonal else 1 + p + p * p


def stack_models(models: Sequence[Mixtures]) -> Mixtures:
    """Put the components of several stacks one after another."""
    columns = {name: [model.arrays[name] for model in models] for name in models[0].arrays}
    joined = {name: np.concatenate(arrays) for name, arrays in columns.items()}
    return Mixtures(**joined, sizes=tuple(size for model in models for size in model.sizes))


@compiled(error_model="numpy")
def deviations(x: Any, shift: Any, out: Any) -> bool:
    """Fill ``out`` with [x^2 o, x o, o] of rows less the shift; return whether all are there."""
    n, p = x.shape
    whole = True
    for i in range(n):
        for j in range(p):
            v = np.float64(x[i, j]) - shift[j]
            here = v == v
            whole &= here
            v = v if here else 0.0
            out[i, j] = v * v
            out[i, p + j] = v
            out[i, 2 * p + j] = 1.0 if here else 0.0
    return whole


@compiled(counted=False, error_model="numpy")
def _make_forms(means: Any, variances: Any, shift: Any, logs: Any, out: Any) -> None:
    """Fill ``out`` with [-1/2v, m/v, -(m^2/v + log 2 pi v)/2] of means less the shift."""
    d, p = means.shape
    for k in range(d):
        for j in range(p):
            m, precision = means[k, j] - shift[j], 1.0 / variances[k, j]
            out[k, j] = -0.5 * precision
            out[k, p + j] = m * precision
            out[k, 2 * p + j] = -0.5 * (m * m * precision + logs[k, j])


def _model_groups(bounds: Ints) -> list[tuple[int, int]]:
    """Cut the models into runs (first, last) of about as many components as work best."""
    if bounds[-1] <= _COMPONENTS:
        return [(0, len(bounds) - 1)]
    which = bounds[:-1] // _COMPONENTS
    starts = np.flatnonzero(np.diff(which, prepend=-1)).tolist()
    return list(pairwise([*starts, len(bounds) - 1]))


class Diagonal:
    """Log-densities under diagonal covariances: products with [x^2 o, x o, o].

    The next call overwrites the results of the methods.
    """

    def __init__(self, mixtures: Mixtures, shift: Floats) -> None:
        d, self.p = mixtures.means.shape
        self.shift = shift
        self.bounds = mixtures.bounds
        self.groups = _model_groups(self.bounds)
        self.forms = np.empty((d, 3 * self.p))
        logs = np.log(2 * np.pi * mixtures.covariances)
        _make_forms(mixtures.means, mixtures.covariances, shift, logs, self.forms)
        with np.errstate(divide="ignore"):
            self.bias = np.log(mixtures.weights)
        self.whole_bias = self.bias + self.forms[:, 2 * self.p :].sum(axis=1)
        self.scratch = Scratch()

    def features(self, x: Array) -> tuple[Floats, bool]:
        """Return [x^2 o, x o, o], or [x^2, x] where nothing is missing, and which of them."""
        made = self.scratch("features", (len(x), 3 * self.p))
        whole = bool(deviations(x, self.shift, made))
        return (made[:, : 2 * self.p] if whole else made), whole

    def posteriors(
        self, features: Floats, whole: bool, dtype: Any = np.float64
    ) -> tuple[Array, Floats, Array]:
        """Return posteriors and log-likelihoods as :func:`softmax` does."""
        bias = self.whole_bias if whole else self.bias
        n, width = features.shape
        m = len(self.bounds) - 1
        out = self.scratch("posteriors", (len(bias), n), dtype)
        top, norm = self.scratch("top", (m, n)), self.scratch("norm", (m, n), dtype)
        # A few models at a time, whose scores stay in the second cache.
        for first, last in self.groups:
            here = slice(self.bounds[first], self.bounds[last])
            scores = self.scratch("scores", (here.stop - here.start, n))
            np.matmul(self.forms[here, :width], features.T, out=scores)
            bounds = self.bounds[first : last + 1] - self.bounds[first]
            softmax(scores, bias[here], bounds, (out[here], top[first:last], norm[first:last]))
        return out, top, norm


class Full:
    """Log-densities of complete rows under full covariances.

    The next call overwrites the results of the methods.
    """

    def __init__(self, mixtures: Mixtures) -> None:
        d, p = mixtures.means.shape
        self.means = mixtures.means
        self.bounds = mixtures.bounds
        # Upper factors of the precisions: the squared length of (x - mean) @ factor.
        lower = np.linalg.cholesky(mixtures.covariances)
        eye = np.eye(p)
        self.factors = np.empty((d, p, p))
        for k in range(d):
            self.factors[k] = solve_triangular(lower[k], eye, lower=True).T
        half_log_det = np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(axis=1)
        with np.errstate(divide="ignore"):
            self.bias = np.log(mixtures.weights) - half_log_det - 0.5 * p * np.log(2 * np.pi)
        self.scratch = Scratch()

    def posteriors(self, x: Floats, dtype: Any = np.float64) -> tuple[Array, Floats, Array]:
        """Return posteriors and log-likelihoods as :func:`softmax` does."""
        d, n, m = len(self.means), len(x), len(self.bounds) - 1
        scores = self.scratch("scores", (d, n))
        gap, white = self.scratch("gap", x.shape), self.scratch("white", x.shape)
        for k, (mean, factor) in enumerate(zip(self.means, self.factors, strict=True)):
            np.matmul(np.subtract(x, mean, out=gap), factor, out=white)
            np.einsum("ij,ij->i", white, white, out=scores[k])
        scores *= -0.5
        out = self.scratch("posteriors", (d, n), dtype)
        top, norm = self.scratch("top", (m, n)), self.scratch("norm", (m, n), dtype)
        return softmax(scores, self.bias, self.bounds, (out, top, norm))


def with_holes(x: Array) -> Bools:
    """Tell of each row whether it misses a value."""
    return np.asarray(np.isnan(x).any(axis=1))


def tile_rows(n_components: int, n_features: int) -> int:
    """Return how many rows are worked on together."""
    room = _TILE_VALUES // max(n_components, 3 * n_features)
    return max(_LEAST_TILE, min(_TILE, room))


def cut_tiles(segments: Ints, size: int) -> list[tuple[int, int, bool]]:
    """Cut segments into tiles: (start, stop, whether a segment ends here)."""
    found, start = [], 0
    for end in segments.tolist():
        for at in range(start, end, size):
            found.append((at, min(at + size, end), at + size >= end))
        start = end
    return found
