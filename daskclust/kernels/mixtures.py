"""Gaussian mixtures of rows with values missing at random: densities and EM statistics.

A stack of models is worked on at once: restarts of one fit, or the members of an
ensemble.  NaN means missing; a row counts with the values that it has, and a row
that has none has the weights as its posterior and likelihood 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from daskclust.kernels._patterns import condition_rows, group_patterns
from daskclust.kernels._softmax import softmax
from daskclust.kernels.blas import one_blas_thread
from daskclust.kernels.compensated import add_plain

__all__ = [
    "Mixtures",
    "accumulate_mixtures",
    "accumulate_start",
    "impute",
    "posterior_tiles",
    "posteriors",
]

Float = NDArray[np.float64]
Array = NDArray[Any]

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

    weights: Float
    means: Float
    covariances: Float
    sizes: tuple[int, ...]

    @property
    def diagonal(self) -> bool:
        """Whether covariances are diagonal."""
        return self.covariances.ndim == 2

    @property
    def bounds(self) -> NDArray[np.int64]:
        """Where each model's components begin, and D."""
        return np.cumsum((0, *self.sizes), dtype=np.int64)

    @property
    def n_statistics(self) -> int:
        """Numbers a component in the sums of an EM iteration."""
        p = self.means.shape[1]
        return 1 + 3 * p if self.diagonal else 1 + p + p * p


class MixtureSums(NamedTuple):
    """What a block adds to an EM iteration, as unevaluated pairs.

    Attributes
    ----------
    sums : ndarray of shape (2, D, s), float64
        Diagonal, s = 3p + 1: for each component the sums of ``g``, ``g o x^2``,
        ``g o x`` and ``g o``, with posterior ``g``, ``o`` 1 where a value is
        there, and ``x`` less the shift.  Full, s = 1 + p + p^2: the sums of
        ``g``, ``g d`` and ``g (d d^T + C)``, with ``d`` the row less the
        component's mean, missing values at their conditional mean, and ``C`` their
        conditional covariance.
    likelihood : ndarray of shape (2, m + 1), float64
        Weighted log-likelihood of each model, and the weight of the rows.
    """

    sums: Float
    likelihood: Float


@njit(nogil=True, cache=True, error_model="numpy")
def _features(x: Any, shift: Any, out: Any) -> bool:
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


def _model_groups(bounds: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Cut the models into runs (first, last) of about as many components as work best."""
    which = bounds[:-1] // _COMPONENTS
    starts = np.flatnonzero(np.diff(which, prepend=-1)).tolist()
    return list(pairwise([*starts, len(bounds) - 1]))


class _Diagonal:
    """Log-densities under diagonal covariances: products with [x^2 o, x o, o]."""

    def __init__(self, mixtures: Mixtures, shift: Float) -> None:
        means, precision = mixtures.means - shift, 1.0 / mixtures.covariances
        constant = -0.5 * (means**2 * precision + np.log(2 * np.pi * mixtures.covariances))
        self.p = means.shape[1]
        self.shift = shift
        self.bounds = mixtures.bounds
        self.groups = _model_groups(self.bounds)
        self.forms = np.concatenate([-0.5 * precision, means * precision, constant], axis=1)
        with np.errstate(divide="ignore"):
            self.bias = np.log(mixtures.weights)
        self.whole_bias = self.bias + constant.sum(axis=1)

    def features(self, x: Array) -> tuple[Float, bool]:
        """Return [x^2 o, x o, o], or [x^2, x] where nothing is missing, and which of them."""
        made = np.empty((len(x), 3 * self.p))
        whole = _features(x, self.shift, made)
        return (made[:, : 2 * self.p] if whole else made), whole

    def posteriors(
        self, features: Float, whole: bool, dtype: Any = np.float64
    ) -> tuple[Array, Float, Array]:
        """Return posteriors and log-likelihoods as :func:`softmax` does."""
        bias = self.whole_bias if whole else self.bias
        n, width = features.shape
        out = np.empty((len(bias), n), dtype)
        top = np.empty((len(self.bounds) - 1, n))
        norm = np.empty(top.shape, dtype)
        # A few models at a time, whose scores stay in the second cache.
        for first, last in self.groups:
            here = slice(self.bounds[first], self.bounds[last])
            scores = self.forms[here, :width] @ features.T
            bounds = self.bounds[first : last + 1] - self.bounds[first]
            _, top[first:last], norm[first:last] = softmax(scores, bias[here], bounds, out[here])
        return out, top, norm


class _Full:
    """Log-densities of complete rows under full covariances."""

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

    def posteriors(self, x: Float, dtype: Any = np.float64) -> tuple[Array, Float, Array]:
        """Return posteriors and log-likelihoods as :func:`softmax` does."""
        scores = np.empty((len(self.means), len(x)))
        white = np.empty_like(x)
        for k, (mean, factor) in enumerate(zip(self.means, self.factors, strict=True)):
            np.matmul(x - mean, factor, out=white)
            np.einsum("ij,ij->i", white, white, out=scores[k])
        scores *= -0.5
        return softmax(scores, self.bias, self.bounds, np.empty(scores.shape, dtype))


def _with_holes(x: Array) -> NDArray[np.bool_]:
    """Whether each row misses a value."""
    return np.asarray(np.isnan(x).any(axis=1))


def _tile_rows(n_components: int, n_features: int) -> int:
    room = _TILE_VALUES // max(n_components, 3 * n_features)
    return max(_LEAST_TILE, min(_TILE, room))


def _tiles(segments: NDArray[np.int64], size: int) -> list[tuple[int, int, bool]]:
    """Cut segments into tiles: (start, stop, whether a segment ends here)."""
    found, start = [], 0
    for end in segments.tolist():
        for at in range(start, end, size):
            found.append((at, min(at + size, end), at + size >= end))
        start = end
    return found


def accumulate_mixtures(
    x: Array,
    mixtures: Mixtures,
    *,
    weight: Float | None = None,
    shift: Float,
    segments: NDArray[np.int64] | None = None,
) -> MixtureSums:
    """Statistics of one block for one EM iteration of all models.

    Parameters
    ----------
    x : ndarray of shape (n, p), float32 or float64
        NaN where a value is missing.
    mixtures : Mixtures
    weight : ndarray of shape (n,), float64, optional
    shift : ndarray of shape (p,), float64
        A point amid the data.
    segments : ndarray of int64, optional
        Ends of the runs of rows that are summed plainly; the last is n.

    Returns
    -------
    MixtureSums

    Notes
    -----
    Rows with missing values are summed pattern by pattern under full covariances,
    each pattern's covariances factorised once.

    Examples
    --------
    >>> import numpy as np
    >>> one = Mixtures(np.ones(1), np.zeros((1, 2)), np.ones((1, 2)), (1,))
    >>> x = np.array([[1.0, 2.0], [3.0, np.nan]])
    >>> accumulate_mixtures(x, one, shift=np.zeros(2)).sums[0, 0]  # g; x^2, x, o by feature
    array([ 2., 10.,  4.,  4.,  2.,  2.,  1.])
    """
    n = len(x)
    segments = np.array([n]) if segments is None else segments
    d = len(mixtures.means)
    sums = np.zeros((2, d * mixtures.n_statistics))
    likelihood = np.zeros((2, len(mixtures.sizes) + 1))
    work = _accumulate_diagonal if mixtures.diagonal else _accumulate_full
    with one_blas_thread():
        work(x, mixtures, weight, shift, segments, sums, likelihood)
    return MixtureSums(sums.reshape(2, d, -1), likelihood)


def _weighted_likelihood(top: Float, norm: Float, weight: Float | None, into: Float) -> None:
    total = top + np.log(norm)
    if weight is None:
        into[:-1] += total.sum(axis=1)
        into[-1] += total.shape[1]
    else:
        into[:-1] += total @ weight
        into[-1] += weight.sum()


def _accumulate_diagonal(
    x: Array,
    mixtures: Mixtures,
    weight: Float | None,
    shift: Float,
    segments: NDArray[np.int64],
    sums: Float,
    likelihood: Float,
) -> None:
    density = _Diagonal(mixtures, shift)
    d, p = mixtures.means.shape
    part, fit = np.zeros((d, 3 * p + 1)), np.zeros(likelihood.shape[1])
    for start, stop, ends in _tiles(segments, _tile_rows(d, p)):
        w = None if weight is None else weight[start:stop]
        features, whole = density.features(x[start:stop])
        shares, top, norm = density.posteriors(features, whole)
        _weighted_likelihood(top, norm, w, fit)
        _add_features(part, shares if w is None else shares * w, features, p)
        if ends:
            add_plain(sums[0], sums[1], part.ravel())
            add_plain(likelihood[0], likelihood[1], fit)
            part[:], fit[:] = 0.0, 0.0


def _add_features(part: Float, shares: Float, features: Float, p: int) -> None:
    mass = shares.sum(axis=1)
    width = features.shape[1]
    part[:, 0] += mass
    part[:, 1 : width + 1] += shares @ features
    if width == 2 * p:
        part[:, width + 1 :] += mass[:, None]


def _accumulate_full(
    x: Array,
    mixtures: Mixtures,
    weight: Float | None,
    shift: Float,
    segments: NDArray[np.int64],
    sums: Float,
    likelihood: Float,
) -> None:
    density = _Full(mixtures)
    d, p = mixtures.means.shape
    part, fit = np.zeros((d, 1 + p + p * p)), np.zeros(likelihood.shape[1])
    holes = _with_holes(x)
    some = bool(holes.any())
    for start, stop, ends in _tiles(segments, _tile_rows(d, p)):
        rows = x[start:stop].astype(np.float64, copy=False)
        w = None if weight is None else weight[start:stop]
        if some:
            kept = ~holes[start:stop]
            rows, w = rows[kept], None if w is None else w[kept]
        if len(rows):
            shares, top, norm = density.posteriors(rows)
            _weighted_likelihood(top, norm, w, fit)
            _add_deviations(part, shares if w is None else shares * w, rows, mixtures.means)
        if ends:
            add_plain(sums[0], sums[1], part.ravel())
            add_plain(likelihood[0], likelihood[1], fit)
            part[:], fit[:] = 0.0, 0.0
    if some:
        found = condition_rows(
            group_patterns(x[holes], None if weight is None else weight[holes]), mixtures
        )
        add_plain(sums[0], sums[1], found.sums.ravel())
        add_plain(likelihood[0], likelihood[1], found.likelihood)


def _add_deviations(part: Float, shares: Float, rows: Float, means: Float) -> None:
    p = rows.shape[1]
    part[:, 0] += shares.sum(axis=1)
    for k, mean in enumerate(means):
        gap = rows - mean
        weighted = shares[k][:, None] * gap
        part[k, 1 : p + 1] += weighted.sum(axis=0)
        part[k, p + 1 :] += (weighted.T @ gap).ravel()


def accumulate_start(
    x: Array,
    shares: Float,
    centres: Float,
    fill: Float,
    *,
    full: bool,
    weight: Float | None = None,
    segments: NDArray[np.int64] | None = None,
) -> Float:
    """Take sums over given posteriors, from which the first parameters of one model follow.

    Parameters
    ----------
    x : ndarray of shape (n, p), float32 or float64
        NaN where a value is missing.
    shares : ndarray of shape (K, n), float64
        Posteriors.
    centres : ndarray of shape (K, p), float64
        What deviations are from.  (``fill`` for diagonal covariances.)
    fill : ndarray of shape (p,), float64
        The shift.
    full : bool
        Whether products of features are wanted.
    weight, segments
        As of :func:`accumulate_mixtures`.

    Returns
    -------
    ndarray of shape (2, K, s), float64
        Unevaluated pairs: sums of ``g``, ``g o d^2``, ``g o d``, ``g o`` and, where
        ``full``, of ``g (o d) (o d)^T``; ``d`` is the row less the centre.
    """
    n, p = x.shape
    k = len(centres)
    segments = np.array([n]) if segments is None else segments
    width = 3 * p + 1 + (p * p if full else 0)
    sums = np.zeros((2, k * width))
    part = np.zeros((k, width))
    with one_blas_thread():
        for start, stop, ends in _tiles(segments, _tile_rows(k, p)):
            made = np.empty((stop - start, 3 * p))
            here = shares[:, start:stop]
            here = here if weight is None else here * weight[start:stop]
            for c in range(k if full else 1):
                chosen = slice(c, c + 1) if full else slice(None)
                _features(x[start:stop], centres[c] if full else fill, made)
                _add_features(part[chosen, : 3 * p + 1], here[chosen], made, p)
                if full:
                    gap = made[:, p : 2 * p]
                    part[c, 3 * p + 1 :] += ((here[c][:, None] * gap).T @ gap).ravel()
            if ends:
                add_plain(sums[0], sums[1], part.ravel())
                part[:] = 0.0
    return sums.reshape(2, k, width)


def _expected_tiles(
    x: Array,
    mixtures: Mixtures,
    shift: Float,
    dtype: Any,
    tiles: list[tuple[int, int, bool]],
) -> Iterator[tuple[int, int, tuple[Array, Float, Array]]]:
    """Yield (start, stop, what :func:`softmax` returns) of each tile."""
    if mixtures.diagonal:
        diagonal = _Diagonal(mixtures, shift)
        for start, stop, _ in tiles:
            yield start, stop, diagonal.posteriors(*diagonal.features(x[start:stop]), dtype)
        return
    density = _Full(mixtures)
    d, m = len(mixtures.weights), len(mixtures.sizes)
    holes = _with_holes(x)
    for start, stop, _ in tiles:
        shares = np.empty((d, stop - start), dtype)
        top, norm = np.empty((m, stop - start)), np.ones((m, stop - start), dtype)
        gone, kept = np.flatnonzero(holes[start:stop]), np.flatnonzero(~holes[start:stop])
        if len(kept):
            rows = x[start + kept].astype(np.float64, copy=False)
            shares[:, kept], top[:, kept], norm[:, kept] = density.posteriors(rows, dtype)
        if len(gone):
            found = condition_rows(group_patterns(x[start + gone], None), mixtures)
            back = gone[found.order]
            shares[:, back], top[:, back] = found.shares, found.rows_likelihood
        yield start, stop, (shares, top, norm)


def posterior_tiles(
    x: Array,
    mixtures: Mixtures,
    shift: Float,
    dtype: Any = np.float64,
    segments: NDArray[np.int64] | None = None,
) -> Iterator[tuple[int, int, Array]]:
    """Yield posteriors of a tile of rows at a time: (start, stop, (D, stop - start)).

    Parameters
    ----------
    x, mixtures, shift, dtype
        As of :func:`posteriors`.
    segments : ndarray of int64, optional
        No tile reaches over the end of one.
    """
    d, p = mixtures.means.shape
    segments = np.array([len(x)]) if segments is None else segments
    for start, stop, made in _expected_tiles(
        x, mixtures, shift, dtype, _tiles(segments, _tile_rows(d, p))
    ):
        yield start, stop, made[0]


def posteriors(
    x: Array, mixtures: Mixtures, shift: Float, dtype: Any = np.float64
) -> tuple[Array, Float]:
    """Posteriors of all components, and log-likelihoods under all models.

    Parameters
    ----------
    x : ndarray of shape (n, p), float32 or float64
        NaN where a value is missing.
    mixtures : Mixtures
    shift : ndarray of shape (p,), float64
        A point amid the data.
    dtype : float32 or float64
        Of the posteriors.

    Returns
    -------
    posteriors : ndarray of shape (D, n), of ``dtype``
    likelihood : ndarray of shape (m, n), float64

    Examples
    --------
    >>> import numpy as np
    >>> two = Mixtures(np.full(2, 0.5), np.array([[0.0], [2.0]]), np.ones((2, 1)), (2,))
    >>> posteriors(np.array([[1.0], [np.nan], [50.0]]), two, np.zeros(1))[0].round(6)
    array([[0.5, 0.5, 0. ],
           [0.5, 0.5, 1. ]])
    """
    n = len(x)
    d, p = mixtures.means.shape
    out = np.empty((d, n), dtype)
    total = np.empty((len(mixtures.sizes), n))
    # Under full covariances, patterns are factorised once for all rows.
    size = _tile_rows(d, p) if mixtures.diagonal else max(n, 1)
    with one_blas_thread():
        for start, stop, (shares, top, norm) in _expected_tiles(
            x, mixtures, shift, dtype, _tiles(np.array([n]), size)
        ):
            out[:, start:stop], total[:, start:stop] = shares, top + np.log(norm)
    return out, total


def impute(x: Array, mixtures: Mixtures, shift: Float) -> Array:
    """Replace missing values by their conditional means under one model.

    Parameters
    ----------
    x : ndarray of shape (n, p), float32 or float64
    mixtures : Mixtures
        Of one model.
    shift : ndarray of shape (p,), float64

    Returns
    -------
    ndarray of shape (n, p), of the type of x
        A copy.

    Examples
    --------
    >>> import numpy as np
    >>> tied = np.array([[[1.0, 0.5], [0.5, 1.0]]])
    >>> one = Mixtures(np.ones(1), np.zeros((1, 2)), tied, (1,))
    >>> impute(np.array([[2.0, np.nan], [np.nan, np.nan]]), one, np.zeros(2))
    array([[2., 1.],
           [0., 0.]])
    """
    out = x.copy()
    holes = _with_holes(x)
    if not holes.any():
        return out
    rows = x[holes]
    if mixtures.diagonal:
        filled = posteriors(rows, mixtures, shift)[0].T @ mixtures.means
    else:
        found = condition_rows(group_patterns(rows, None), mixtures)
        filled = np.empty(rows.shape)
        filled[found.order] = found.filled
    out[holes] = np.where(np.isnan(rows), filled, rows)
    return out
