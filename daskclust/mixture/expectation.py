"""Rows under Gaussian mixtures: statistics of EM, posteriors, missing values, and features.

Rows with missing values under full covariances are grouped by what is missing: those of one
pattern share the factorization of every component's covariance, restricted to the values they have.

The features of a row under an ensemble are its posteriors under all components of all models.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Bools, Floats, Ints
from daskclust.core.kernels.blas import one_blas_thread
from daskclust.core.kernels.buffers import Scratch
from daskclust.core.kernels.compensated import add_plain
from daskclust.core.kernels.compiling import compiled, read_only
from daskclust.mixture.densities import (
    Diagonal,
    Full,
    Mixtures,
    cut_tiles,
    deviations,
    tile_rows,
    with_holes,
)

_LOG_2PI = float(np.log(2 * np.pi))


class Patterns(NamedTuple):
    """Rows sorted by pattern, where they were before, and the first row of each pattern, and n."""

    x: Floats
    weight: Floats
    order: NDArray[np.intp]
    starts: Ints


class Conditioned(NamedTuple):
    """The result of :func:`condition_rows`, of sorted rows: posteriors ``shares`` (D, n).

    ``sums`` and ``likelihood`` (m + 1,) are as in :class:`MixtureSums`. ``filled`` (n, p) are rows
    with missing values at their conditional mean under all components (of use for one model).
    """

    sums: Floats
    likelihood: Floats
    shares: Floats
    rows_likelihood: Floats
    filled: Floats
    order: NDArray[np.intp]


class _Components(NamedTuple):
    """D components with full covariances; those of model i are ``bounds[i]:bounds[i + 1]``."""

    log_weights: Floats
    means: Floats
    covariances: Floats
    bounds: Ints


def group_patterns(x: Array, weight: Floats | None) -> Patterns:
    """Sort rows by what they miss, keeping their order within a pattern."""
    gone = np.packbits(np.isnan(x), axis=1)
    # Bits as one opaque value a row, so that patterns of any length are compared at once.
    keys = np.ascontiguousarray(gone).view(np.dtype((np.void, gone.shape[1]))).ravel()
    patterns, which = np.unique(keys, return_inverse=True)
    order = np.argsort(which, kind="stable")
    # First come, first served: patterns by their first row, as rows come in blocks.
    counts = np.bincount(which, minlength=len(patterns))
    firsts = order[np.cumsum(counts) - counts]
    rank = np.empty(len(patterns), np.intp)
    rank[np.argsort(firsts)] = np.arange(len(patterns))
    order = np.argsort(rank[which], kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(rank[which]))]).astype(np.int64)
    w = np.ones(len(x)) if weight is None else weight[order]
    return Patterns(np.ascontiguousarray(x[order], dtype=np.float64), w, order, starts)


@compiled(error_model="numpy", fastmath={"contract"})
def _factorize(covariance, there, gone, upper, tied):
    """Factorize the covariance of the values that are there; return half its log-determinant.

    ``upper`` receives U with U^T U = covariance[there, there]; ``tied`` receives
    U^-T covariance[there, gone].
    """
    q, m = len(there), len(gone)
    half = 0.0
    for a in range(q):
        for b in range(a, q):
            upper[a, b] = covariance[there[a], there[b]]
        for b in range(m):
            tied[a, b] = covariance[there[a], gone[b]]
    for a in range(q):
        # Four rows at once: a value is loaded and stored once for all of them.
        fours = a // 4 * 4
        for r in range(0, fours, 4):
            f, g, h, i = upper[r, a], upper[r + 1, a], upper[r + 2, a], upper[r + 3, a]
            for b in range(a, q):
                v = upper[a, b] - f * upper[r, b] - g * upper[r + 1, b]
                upper[a, b] = v - h * upper[r + 2, b] - i * upper[r + 3, b]
            for b in range(m):
                v = tied[a, b] - f * tied[r, b] - g * tied[r + 1, b]
                tied[a, b] = v - h * tied[r + 2, b] - i * tied[r + 3, b]
        for r in range(fours, a):
            f = upper[r, a]
            for b in range(a, q):
                upper[a, b] -= f * upper[r, b]
            for b in range(m):
                tied[a, b] -= f * tied[r, b]
        pivot = np.sqrt(upper[a, a])
        half += np.log(pivot)
        inverse = 1.0 / pivot
        for b in range(a, q):
            upper[a, b] *= inverse
        for b in range(m):
            tied[a, b] *= inverse
    return half


@compiled(error_model="numpy", fastmath={"contract"})
def _whiten(row, mean, there, upper, white):
    """Solve U^T white = row - mean over the values that are there; return its squared length."""
    q = len(there)
    for a in range(q):
        white[a] = row[there[a]] - mean[there[a]]
    length = 0.0
    for a in range(q):
        white[a] /= upper[a, a]
        v = white[a]
        length += v * v
        for b in range(a + 1, q):
            white[b] -= v * upper[a, b]
    return length


@compiled(error_model="numpy", fastmath={"contract"})
def _condition(rows, components, found):
    """Fill ``found``, whose sums and likelihood are 0; see :func:`condition_rows`."""
    x, weight, _, starts = rows
    log_weights, means, covariances, bounds = components
    sums, likelihood, shares, rows_likelihood, filled, _ = found
    p = x.shape[1]
    d = len(means)
    upper, tied, white = np.empty((d, p, p)), np.empty((d, p, p)), np.empty((d, p))
    half, mass, gap, tie = np.empty(d), np.empty(d), np.empty(p), np.empty(p)
    spread = np.empty((p, p))
    for g in range(len(starts) - 1):
        here = x[starts[g]] == x[starts[g]]
        there, gone = np.flatnonzero(here), np.flatnonzero(~here)
        q, m = len(there), len(gone)
        for k in range(d):
            half[k] = _factorize(covariances[k], there, gone, upper[k], tied[k])
            mass[k] = 0.0
        for i in range(starts[g], starts[g + 1]):
            for k in range(d):
                length = _whiten(x[i], means[k], there, upper[k], white[k])
                shares[k, i] = log_weights[k] - half[k] - 0.5 * (q * _LOG_2PI + length)
            likelihood[-1] += weight[i]
            for model in range(len(bounds) - 1):
                first, last = bounds[model], bounds[model + 1]
                top = -np.inf
                for k in range(first, last):
                    top = max(top, shares[k, i])
                norm = 0.0
                for k in range(first, last):
                    shares[k, i] = np.exp(shares[k, i] - top)
                    norm += shares[k, i]
                for k in range(first, last):
                    shares[k, i] /= norm
                rows_likelihood[model, i] = top + np.log(norm)
                likelihood[model] += weight[i] * rows_likelihood[model, i]
            for j in range(p):
                filled[i, j] = x[i, j] if here[j] else 0.0
            for k in range(d):
                share = shares[k, i]
                if share == 0.0:
                    continue
                for a in range(q):
                    gap[there[a]] = x[i, there[a]] - means[k, there[a]]
                tie[:m] = 0.0
                # Along rows of memory, here and below, whatever is summed.
                for a in range(q):
                    v = white[k, a]
                    for b in range(m):
                        tie[b] += tied[k, a, b] * v
                for b in range(m):
                    gap[gone[b]] = tie[b]
                    filled[i, gone[b]] += share * (means[k, gone[b]] + tie[b])
                w = weight[i] * share
                mass[k] += w
                sums[k, 0] += w
                for a in range(p):
                    wa = w * gap[a]
                    sums[k, 1 + a] += wa
                    at = 1 + p + a * p
                    for b in range(p):
                        sums[k, at + b] += wa * gap[b]
        for k in range(d):
            # The uncertainty of the missing values: their conditional covariance.
            for a in range(m):
                for b in range(m):
                    spread[a, b] = covariances[k, gone[a], gone[b]]
            for r in range(q):
                for a in range(m):
                    v = tied[k, r, a]
                    for b in range(m):
                        spread[a, b] -= v * tied[k, r, b]
            for a in range(m):
                for b in range(m):
                    sums[k, 1 + p + gone[a] * p + gone[b]] += mass[k] * spread[a, b]


def condition_rows(rows: Patterns, mixtures: Mixtures) -> Conditioned:
    """Condition missing values on those that are there (Ghahramani & Jordan, NIPS 1994, Eq. 4-7).

    One factorization a pattern and component, then O(p^2) a row and component.  Memory:
    O(D (n + p^2)).
    """
    n, p = rows.x.shape
    d, m = len(mixtures.means), len(mixtures.sizes)
    found = Conditioned(
        np.zeros((d, 1 + p + p * p)),
        np.zeros(m + 1),
        np.empty((d, n)),
        np.empty((m, n)),
        np.empty((n, p)),
        rows.order,
    )
    with np.errstate(divide="ignore"):
        log_weights = np.log(mixtures.weights)
    means, covariances = read_only(mixtures.means), read_only(mixtures.covariances)
    components = _Components(log_weights, means, covariances, mixtures.bounds)
    _condition(rows, components, found)
    return found


#: Values (32 MiB) that features of rows may take for them to be kept from pass to pass.
_KEPT_VALUES = 2**22


class MixtureSums(NamedTuple):
    """A block's share of an EM iteration, as unevaluated pairs.

    ``sums`` (2, D, s), of each component.  Diagonal, s = 3p + 1: ``g``, ``g o x^2``, ``g o x`` and
    ``g o``, with posterior ``g``, ``o`` 1 where a value is there, and ``x`` less the shift.  Full,
    s = 1 + p + p^2: ``g``, ``g d`` and ``g (d d^T + C)``, with ``d`` the row less the component's
    mean, missing values at their conditional mean, and ``C`` their conditional covariance.
    ``likelihood`` (2, m + 1): that of each model, weighted, in logarithms, and the rows' weight.
    """

    sums: Floats
    likelihood: Floats


def accumulate_mixtures(
    x: Array,
    mixtures: Mixtures,
    *,
    weight: Floats | None = None,
    shift: Floats,
    segments: Ints | None = None,
) -> MixtureSums:
    """Statistics of a block for an EM iteration; rows up to ``segments`` are summed plainly."""
    n = len(x)
    segments = np.array([n]) if segments is None else segments
    d = len(mixtures.means)
    sums = np.zeros((2, d * mixtures.n_statistics))
    likelihood = np.zeros((2, len(mixtures.sizes) + 1))
    part, fit = np.zeros((d, mixtures.n_statistics)), np.zeros(likelihood.shape[1])
    density: Diagonal | Full = Diagonal(mixtures, shift) if mixtures.diagonal else Full(mixtures)
    # Under full covariances, rows with missing values come last.
    apart = np.zeros(n, bool) if mixtures.diagonal else with_holes(x)
    some = bool(apart.any())
    with one_blas_thread():
        for start, stop, ends in cut_tiles(segments, tile_rows(d, x.shape[1])):
            rows, w = x[start:stop], None if weight is None else weight[start:stop]
            if some:
                kept = ~apart[start:stop]
                rows, w = rows[kept], None if w is None else w[kept]
            if len(rows):
                made, whole = density.features(rows)
                shares, top, norm = density.posteriors(made, whole)
                _weighted_likelihood(top, norm, w, fit)
                shares = shares if w is None else shares * w
                if mixtures.diagonal:
                    _add_features(part, shares, made, density.scratch)
                else:
                    _add_deviations(part, shares, made, mixtures.means, density.scratch)
            if ends:
                add_plain(sums[0], sums[1], part.ravel())
                add_plain(likelihood[0], likelihood[1], fit)
                part[:], fit[:] = 0.0, 0.0
        if some:
            patterns = group_patterns(x[apart], None if weight is None else weight[apart])
            found = condition_rows(patterns, mixtures)
            add_plain(sums[0], sums[1], found.sums.ravel())
            add_plain(likelihood[0], likelihood[1], found.likelihood)
    return MixtureSums(sums.reshape(2, d, -1), likelihood)


def _weighted_likelihood(top: Floats, norm: Floats, weight: Floats | None, into: Floats) -> None:
    total = top + np.log(norm)
    if weight is None:
        into[:-1] += total.sum(axis=1)
        into[-1] += total.shape[1]
    else:
        into[:-1] += total @ weight
        into[-1] += weight.sum()


def _add_features(part: Floats, shares: Floats, features: Floats, scratch: Scratch) -> None:
    mass = shares.sum(axis=1)
    width = features.shape[1]
    part[:, 0] += mass
    products = np.matmul(shares, features, out=scratch("products", (len(shares), width)))
    part[:, 1 : width + 1] += products
    part[:, width + 1 :] += mass[:, None]  # of rows that are whole


class RepeatedRows:
    """Rows that many passes go over, with the sums of :func:`accumulate_mixtures`, to the last bit.

    Under diagonal covariances the rows' features are made once, where they take at most 32 MiB.
    """

    def __init__(self, x: Array, shift: Floats) -> None:
        self._x, self._shift = x, shift

    def sums(self, mixtures: Mixtures) -> Floats:
        if mixtures.diagonal and self._made is not None:
            with one_blas_thread():
                return self._diagonal_sums(mixtures, *self._made)
        high, low = accumulate_mixtures(self._x, mixtures, shift=self._shift).sums
        return np.asarray(high + low)

    @cached_property
    def _made(self) -> tuple[Floats, Bools] | None:
        n, p = self._x.shape
        if 3 * n * p > _KEPT_VALUES:
            return None
        made = np.empty((n, 3 * p))
        deviations(self._x, self._shift, made)
        return made, with_holes(self._x)

    def _diagonal_sums(self, mixtures: Mixtures, made: Floats, holes: Bools) -> Floats:
        n, p = self._x.shape
        d = len(mixtures.means)
        density = Diagonal(mixtures, self._shift)
        sums = np.zeros((d, mixtures.n_statistics))
        for start, stop, _ in cut_tiles(np.array([n]), tile_rows(d, p)):
            whole = not holes[start:stop].any()
            features = made[start:stop, : 2 * p if whole else None]
            shares, _, _ = density.posteriors(features, whole)
            _add_features(sums, shares, features, density.scratch)
        return sums


def _add_deviations(
    part: Floats, shares: Floats, rows: Floats, means: Floats, scratch: Scratch
) -> None:
    p = rows.shape[1]
    part[:, 0] += shares.sum(axis=1)
    gap, weighted = scratch("gap", rows.shape), scratch("weighted", rows.shape)
    for k, mean in enumerate(means):
        np.subtract(rows, mean, out=gap)
        np.multiply(shares[k][:, None], gap, out=weighted)
        part[k, 1 : p + 1] += weighted.sum(axis=0)
        part[k, p + 1 :] += (weighted.T @ gap).ravel()


def accumulate_start(
    x: Array,
    shares: Floats,
    centers: Floats,
    fill: Floats,
    *,
    full: bool,
    weight: Floats | None = None,
    segments: Ints | None = None,
) -> Floats:
    """Take sums over posteriors (K, n), from which the first parameters of one model follow.

    Deviations d are from ``centers`` (K, p), from ``fill``, the shift, for diagonal covariances.
    Returned are unevaluated pairs (2, K, s): sums of ``g``, ``g o d^2``, ``g o d``, ``g o`` and,
    where ``full``, of ``g (o d) (o d)^T``.
    """
    n, p = x.shape
    k = len(centers)
    segments = np.array([n]) if segments is None else segments
    width = 3 * p + 1 + (p * p if full else 0)
    sums = np.zeros((2, k * width))
    part = np.zeros((k, width))
    scratch = Scratch()
    with one_blas_thread():
        for start, stop, ends in cut_tiles(segments, tile_rows(k, p)):
            made = scratch("features", (stop - start, 3 * p))
            here = shares[:, start:stop]
            here = here if weight is None else here * weight[start:stop]
            for c in range(k if full else 1):
                chosen = slice(c, c + 1) if full else slice(None)
                deviations(x[start:stop], centers[c] if full else fill, made)
                _add_features(part[chosen, : 3 * p + 1], here[chosen], made, scratch)
                if full:
                    gap = made[:, p : 2 * p]
                    part[c, 3 * p + 1 :] += ((here[c][:, None] * gap).T @ gap).ravel()
            if ends:
                add_plain(sums[0], sums[1], part.ravel())
                part[:] = 0.0
    return sums.reshape(2, k, width)


@compiled(counted=False, error_model="numpy")
def move_diagonal(sums, mass, means, variances, shift, out):
    """Write the means and variances that follow from the sums of ``g``, ``g o x^2``, ``g o x``.

    A missing value counts with the old mean and variance of its column, under which the sums
    (D, 3p + 1) of :class:`MixtureSums` were taken.  Variances are not bounded below.
    """
    d, p = means.shape
    new_means, new_variances = out
    for k in range(d):
        n = mass[k]
        for j in range(p):
            square, first, there = sums[k, 1 + j], sums[k, 1 + p + j], sums[k, 1 + 2 * p + j]
            # About the old mean; the missing values' share of the variance is the old variance.
            old = means[k, j] - shift[j]
            gap = (first - old * there) / n
            absent = n - there
            if absent <= 1e-9 * n:
                absent = 0.0
            second = square - 2 * old * first + old * old * there
            new_means[k, j] = means[k, j] + gap
            new_variances[k, j] = (second + absent * variances[k, j]) / n - gap * gap


def _expected_tiles(
    x: Array,
    mixtures: Mixtures,
    shift: Floats,
    dtype: Any,
    tiles: list[tuple[int, int, bool]],
) -> Iterator[tuple[int, int, tuple[Array, Floats, Array]]]:
    """Yield (start, stop, what :func:`softmax` returns) of each tile; the next overwrites it."""
    density: Diagonal | Full = Diagonal(mixtures, shift) if mixtures.diagonal else Full(mixtures)
    d, m = len(mixtures.weights), len(mixtures.sizes)
    # Under full covariances, rows with missing values are taken apart.
    holes = np.zeros(len(x), bool) if mixtures.diagonal else with_holes(x)
    scratch = Scratch()
    for start, stop, _ in tiles:
        n, rows = stop - start, x[start:stop]
        gone, kept = np.flatnonzero(holes[start:stop]), np.flatnonzero(~holes[start:stop])
        if not len(gone):
            yield start, stop, density.posteriors(*density.features(rows), dtype)
            continue
        shares = scratch("posteriors", (d, n), dtype)
        top, norm = scratch("top", (m, n)), scratch("norm", (m, n), dtype)
        norm[:] = 1.0
        if len(kept):
            made = density.posteriors(*density.features(rows[kept]), dtype)
            shares[:, kept], top[:, kept], norm[:, kept] = made
        found = condition_rows(group_patterns(rows[gone], None), mixtures)
        back = gone[found.order]
        shares[:, back], top[:, back] = found.shares, found.rows_likelihood
        yield start, stop, (shares, top, norm)


def posterior_tiles(
    x: Array,
    mixtures: Mixtures,
    shift: Floats,
    dtype: Any = np.float64,
    segments: Ints | None = None,
) -> Iterator[tuple[int, int, Array]]:
    """Yield (start, stop, posteriors) of tiles within segments; the next overwrites them."""
    d, p = mixtures.means.shape
    segments = np.array([len(x)]) if segments is None else segments
    for start, stop, made in _expected_tiles(
        x, mixtures, shift, dtype, cut_tiles(segments, tile_rows(d, p))
    ):
        yield start, stop, made[0]


def posteriors(
    x: Array, mixtures: Mixtures, shift: Floats, dtype: Any = np.float64
) -> tuple[Array, Floats]:
    """Return posteriors (D, n) of all components, and log-likelihoods (m, n) under all models."""
    n = len(x)
    d, p = mixtures.means.shape
    out = np.empty((d, n), dtype)
    total = np.empty((len(mixtures.sizes), n))
    # Under full covariances, patterns are factorized once for all rows.
    size = tile_rows(d, p) if mixtures.diagonal else max(n, 1)
    with one_blas_thread():
        for start, stop, (shares, top, norm) in _expected_tiles(
            x, mixtures, shift, dtype, cut_tiles(np.array([n]), size)
        ):
            out[:, start:stop], total[:, start:stop] = shares, top + np.log(norm)
    return out, total


def impute(x: Array, mixtures: Mixtures, shift: Floats) -> Array:
    """Return a copy with missing values at their conditional means under one model."""
    out = x.copy()
    holes = with_holes(x)
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


#: Rows of the second argument of a kernel whose features are held at a time.
_HELD = 1024


def features(x: Array, mixtures: Mixtures, shift: Floats, dtype: Any = np.float64) -> Array:
    """Posteriors of all components, a column a row: (D, n)."""
    out = np.empty((len(mixtures.weights), len(x)), dtype)
    with one_blas_thread():
        for start, stop, tile in posterior_tiles(x, mixtures, shift, dtype):
            out[:, start:stop] = tile
    return out


def project(
    x: Array, mixtures: Mixtures, shift: Floats, basis: Array, dtype: Any = np.float64
) -> Floats:
    """Coordinates (n, d) of rows: their features times a basis (D, d)."""
    out = np.empty((len(x), basis.shape[1]))
    turned = np.ascontiguousarray(basis.T, dtype=dtype)
    with one_blas_thread():
        for start, stop, tile in posterior_tiles(x, mixtures, shift, dtype):
            out[start:stop] = (turned @ tile).T
    return out


def _kept_tiles(kept: Array, segments: Ints) -> Iterator[tuple[int, int, Array]]:
    start = 0
    for stop in segments.tolist():
        if stop > start:
            yield start, stop, kept[:, start:stop]
        start = stop


def add_gram(
    x: Array,
    mixtures: Mixtures,
    shift: Floats,
    basis: Array | None,
    *,
    weight: Floats | None = None,
    segments: Ints | None = None,
    dtype: Any = np.float64,
    kept: Array | None = None,
) -> Floats:
    """Gram matrix of a block's features, maybe kept (D, n), times a basis (D, l) if any."""
    d = len(mixtures.weights)
    segments = np.array([len(x)]) if segments is None else segments
    sums = np.zeros((2, d * (d if basis is None else basis.shape[1])))
    part = np.zeros((d, d if basis is None else basis.shape[1]))
    turned = None if basis is None else np.ascontiguousarray(basis.T, dtype=dtype)
    ends = set(segments.tolist())
    scratch = Scratch()
    with one_blas_thread():
        tiles = (
            posterior_tiles(x, mixtures, shift, dtype, segments)
            if kept is None
            else _kept_tiles(kept, segments)
        )
        for start, stop, tile in tiles:
            image = tile if turned is None else turned @ tile
            if weight is not None:
                image = image * weight[start:stop].astype(dtype)
            part += np.matmul(tile, image.T, out=scratch("product", part.shape, dtype))
            if stop in ends:
                add_plain(sums[0], sums[1], part.ravel())
                part[:] = 0.0
    return sums.reshape(2, *part.shape)


def kernel_block(x: Array, y: Array, mixtures: Mixtures, shift: Floats) -> Floats:
    """Mean over the models of the scalar product of two rows' posteriors (Eq. 6 of PCKID)."""
    out = np.empty((len(x), len(y)))
    for at in range(0, len(y), _HELD):
        held = features(y[at : at + _HELD], mixtures, shift)
        with one_blas_thread():
            for start, stop, tile in posterior_tiles(x, mixtures, shift):
                out[start:stop, at : at + _HELD] = tile.T @ held
    # At most 1, for rounding, too.
    return np.minimum(out / len(mixtures.sizes), 1.0, out=out)
