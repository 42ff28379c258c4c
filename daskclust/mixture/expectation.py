"""E-step of Gaussian mixtures: sums, posteriors, imputed values, and features of rows.

With full covariances, rows are grouped by pattern of missing values.  Each covariance, restricted
to the observed features, is factorized once per pattern.

``resp`` are posteriors, also called responsibilities, with a row per component.  The features of a
row are its posteriors for all components of all models.
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
    incomplete_rows,
    tile_rows,
)

_LOG_2PI = float(np.log(2 * np.pi))


class Patterns(NamedTuple):
    """Rows and weights sorted by pattern of missing values.

    ``order`` (n,) are the positions of the sorted rows before sorting.  ``starts`` is the first row
    of each pattern, and n.
    """

    x: Floats
    weight: Floats
    order: NDArray[np.intp]
    starts: Ints


class Conditioned(NamedTuple):
    """Result of :func:`condition_rows` for sorted rows.

    ``sums`` and ``likelihood`` (m + 1,) are as in :class:`MixtureSums`.  ``resp`` (D, n) are
    posteriors.  ``filled`` (n, p) are the rows, with conditional means for missing values; it is
    valid only for a single model.
    """

    sums: Floats
    likelihood: Floats
    resp: Floats
    rows_likelihood: Floats
    filled: Floats
    order: NDArray[np.intp]


class _Components(NamedTuple):
    """D components with full covariances; model i has ``bounds[i]:bounds[i + 1]``."""

    log_weights: Floats
    means: Floats
    covariances: Floats
    bounds: Ints


def group_patterns(x: Array, weight: Floats | None) -> Patterns:
    """Sort rows by pattern of missing values, without changing the order of rows of a pattern."""
    missing = np.packbits(np.isnan(x), axis=1)
    # View the bits of a row as one value, to compare patterns of any length.
    keys = np.ascontiguousarray(missing).view(np.dtype((np.void, missing.shape[1]))).ravel()
    patterns, pattern_of_row = np.unique(keys, return_inverse=True)
    order = np.argsort(pattern_of_row, kind="stable")
    # Order patterns by their first row.
    counts = np.bincount(pattern_of_row, minlength=len(patterns))
    firsts = order[np.cumsum(counts) - counts]
    rank = np.empty(len(patterns), np.intp)
    rank[np.argsort(firsts)] = np.arange(len(patterns))
    order = np.argsort(rank[pattern_of_row], kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(rank[pattern_of_row]))]).astype(np.int64)
    w = np.ones(len(x)) if weight is None else weight[order]
    return Patterns(np.ascontiguousarray(x[order], dtype=np.float64), w, order, starts)


@compiled(error_model="numpy", fastmath={"contract"})
def _factorize(covariance, observed, missing, upper, cross):
    """Factorize the covariance of the observed values; return half its log-determinant.

    ``observed`` and ``missing`` are the observed and missing features.  The results are ``upper``,
    U with U^T U = covariance[observed, observed], and ``cross``, U^-T covariance[observed,
    missing].
    """
    q, m = len(observed), len(missing)
    half_log_det = 0.0
    for a in range(q):
        for b in range(a, q):
            upper[a, b] = covariance[observed[a], observed[b]]
        for b in range(m):
            cross[a, b] = covariance[observed[a], missing[b]]
    for a in range(q):
        # Four rows at once, so that a value is loaded and stored once for all of them.
        n_unrolled = a // 4 * 4
        for r in range(0, n_unrolled, 4):
            f, g, h, i = upper[r, a], upper[r + 1, a], upper[r + 2, a], upper[r + 3, a]
            for b in range(a, q):
                v = upper[a, b] - f * upper[r, b] - g * upper[r + 1, b]
                upper[a, b] = v - h * upper[r + 2, b] - i * upper[r + 3, b]
            for b in range(m):
                v = cross[a, b] - f * cross[r, b] - g * cross[r + 1, b]
                cross[a, b] = v - h * cross[r + 2, b] - i * cross[r + 3, b]
        for r in range(n_unrolled, a):
            f = upper[r, a]
            for b in range(a, q):
                upper[a, b] -= f * upper[r, b]
            for b in range(m):
                cross[a, b] -= f * cross[r, b]
        pivot = np.sqrt(upper[a, a])
        half_log_det += np.log(pivot)
        inverse = 1.0 / pivot
        for b in range(a, q):
            upper[a, b] *= inverse
        for b in range(m):
            cross[a, b] *= inverse
    return half_log_det


@compiled(error_model="numpy", fastmath={"contract"})
def _whiten(row, mean, observed, upper, white):
    """Solve U^T white = row - mean for the observed values; return the squared length of white."""
    q = len(observed)
    for a in range(q):
        white[a] = row[observed[a]] - mean[observed[a]]
    length = 0.0
    for a in range(q):
        white[a] /= upper[a, a]
        v = white[a]
        length += v * v
        for b in range(a + 1, q):
            white[b] -= v * upper[a, b]
    return length


@compiled(error_model="numpy", fastmath={"contract"})
def _condition(rows, components, out):
    """Fill ``out``, whose sums and likelihood must be 0; see :func:`condition_rows`."""
    x, weight, _, starts = rows
    log_weights, means, covariances, bounds = components
    sums, likelihood, resp, rows_likelihood, filled, _ = out
    p = x.shape[1]
    d = len(means)
    upper, cross, white = np.empty((d, p, p)), np.empty((d, p, p)), np.empty((d, p))
    half_log_det, mass, deviation, expected = np.empty(d), np.empty(d), np.empty(p), np.empty(p)
    conditional = np.empty((p, p))
    for g in range(len(starts) - 1):
        is_observed = x[starts[g]] == x[starts[g]]
        observed, missing = np.flatnonzero(is_observed), np.flatnonzero(~is_observed)
        q, m = len(observed), len(missing)
        for k in range(d):
            half_log_det[k] = _factorize(covariances[k], observed, missing, upper[k], cross[k])
            mass[k] = 0.0
        for i in range(starts[g], starts[g + 1]):
            for k in range(d):
                length = _whiten(x[i], means[k], observed, upper[k], white[k])
                resp[k, i] = log_weights[k] - half_log_det[k] - 0.5 * (q * _LOG_2PI + length)
            likelihood[-1] += weight[i]
            for model in range(len(bounds) - 1):
                first, last = bounds[model], bounds[model + 1]
                top = -np.inf
                for k in range(first, last):
                    top = max(top, resp[k, i])
                norm = 0.0
                for k in range(first, last):
                    resp[k, i] = np.exp(resp[k, i] - top)
                    norm += resp[k, i]
                for k in range(first, last):
                    resp[k, i] /= norm
                rows_likelihood[model, i] = top + np.log(norm)
                likelihood[model] += weight[i] * rows_likelihood[model, i]
            for j in range(p):
                filled[i, j] = x[i, j] if is_observed[j] else 0.0
            for k in range(d):
                posterior = resp[k, i]
                if posterior == 0.0:
                    continue
                for a in range(q):
                    deviation[observed[a]] = x[i, observed[a]] - means[k, observed[a]]
                expected[:m] = 0.0
                for a in range(q):
                    v = white[k, a]
                    for b in range(m):
                        expected[b] += cross[k, a, b] * v
                for b in range(m):
                    deviation[missing[b]] = expected[b]
                    filled[i, missing[b]] += posterior * (means[k, missing[b]] + expected[b])
                w = weight[i] * posterior
                mass[k] += w
                sums[k, 0] += w
                for a in range(p):
                    wa = w * deviation[a]
                    sums[k, 1 + a] += wa
                    offset = 1 + p + a * p
                    for b in range(p):
                        sums[k, offset + b] += wa * deviation[b]
        for k in range(d):
            # Add the conditional covariance of the missing values.
            for a in range(m):
                for b in range(m):
                    conditional[a, b] = covariances[k, missing[a], missing[b]]
            for r in range(q):
                for a in range(m):
                    v = cross[k, r, a]
                    for b in range(m):
                        conditional[a, b] -= v * cross[k, r, b]
            for a in range(m):
                for b in range(m):
                    sums[k, 1 + p + missing[a] * p + missing[b]] += mass[k] * conditional[a, b]


def condition_rows(rows: Patterns, mixtures: Mixtures) -> Conditioned:
    """Condition missing values on observed values (Ghahramani & Jordan, NIPS 1994, Eq. 4-7).

    Time: O(p^3) per pattern and component, then O(p^2) per row and component.  Memory:
    O(D (n + p^2)).
    """
    n, p = rows.x.shape
    d, m = len(mixtures.means), len(mixtures.sizes)
    out = Conditioned(
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
    _condition(rows, components, out)
    return out


#: Maximum number of feature values that are stored between passes (32 MiB).
_MAX_VALUES = 2**22


class MixtureSums(NamedTuple):
    """Sums of a block for an EM iteration.  Each number is a pair whose sum is the value.

    ``sums`` (2, D, s) has the sums of each component.  For diagonal covariances, s = 3p + 1: the
    sums of ``g``, ``g o x^2``, ``g o x`` and ``g o``.  Here ``g`` is the posterior, ``o`` is 1 for
    an observed value and 0 for a missing value, and ``x`` is the value minus the shift.  For full
    covariances, s = 1 + p + p^2: the sums of ``g``, ``g d`` and ``g (d d^T + C)``.  Here ``d`` is
    the row minus the mean of the component, with conditional means for missing values, and ``C``
    is the conditional covariance of the missing values.  ``likelihood`` (2, m + 1) is the weighted
    log-likelihood of each model, and the total weight of the rows.
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
    """Return the sums of a block for an EM iteration: compensated sums of plain segment sums."""
    n = len(x)
    segments = np.array([n]) if segments is None else segments
    d = len(mixtures.means)
    sums = np.zeros((2, d * mixtures.n_statistics))
    likelihood = np.zeros((2, len(mixtures.sizes) + 1))
    segment_sums, segment_likelihood = (
        np.zeros((d, mixtures.n_statistics)),
        np.zeros(likelihood.shape[1]),
    )
    density: Diagonal | Full = Diagonal(mixtures, shift) if mixtures.diagonal else Full(mixtures)
    # With full covariances, rows with missing values are processed after the tiles.
    incomplete = np.zeros(n, bool) if mixtures.diagonal else incomplete_rows(x)
    any_incomplete = bool(incomplete.any())
    with one_blas_thread():
        for start, stop, ends in cut_tiles(segments, tile_rows(d, x.shape[1])):
            rows, w = x[start:stop], None if weight is None else weight[start:stop]
            if any_incomplete:
                complete_rows = ~incomplete[start:stop]
                rows, w = rows[complete_rows], None if w is None else w[complete_rows]
            if len(rows):
                values, complete = density.features(rows)
                resp, top, norm = density.posteriors(values, complete)
                _weighted_likelihood(top, norm, w, segment_likelihood)
                resp = resp if w is None else resp * w
                if mixtures.diagonal:
                    _add_features(segment_sums, resp, values, density.scratch)
                else:
                    _add_deviations(segment_sums, resp, values, mixtures.means, density.scratch)
            if ends:
                add_plain(sums[0], sums[1], segment_sums.ravel())
                add_plain(likelihood[0], likelihood[1], segment_likelihood)
                segment_sums[:], segment_likelihood[:] = 0.0, 0.0
        if any_incomplete:
            patterns = group_patterns(x[incomplete], None if weight is None else weight[incomplete])
            conditioned = condition_rows(patterns, mixtures)
            add_plain(sums[0], sums[1], conditioned.sums.ravel())
            add_plain(likelihood[0], likelihood[1], conditioned.likelihood)
    return MixtureSums(sums.reshape(2, d, -1), likelihood)


def _weighted_likelihood(top: Floats, norm: Floats, weight: Floats | None, out: Floats) -> None:
    total = top + np.log(norm)
    if weight is None:
        out[:-1] += total.sum(axis=1)
        out[-1] += total.shape[1]
    else:
        out[:-1] += total @ weight
        out[-1] += weight.sum()


def _add_features(sums: Floats, resp: Floats, features: Floats, scratch: Scratch) -> None:
    mass = resp.sum(axis=1)
    width = features.shape[1]
    sums[:, 0] += mass
    products = np.matmul(resp, features, out=scratch("products", (len(resp), width)))
    sums[:, 1 : width + 1] += products
    sums[:, width + 1 :] += mass[:, None]  # only for rows without missing values


class RepeatedRows:
    """Rows in memory that many EM iterations read.

    Sums equal the sums of :func:`accumulate_mixtures`.  For diagonal covariances, the features are
    computed once and stored, if they take at most 32 MiB.
    """

    def __init__(self, x: Array, shift: Floats) -> None:
        self._x, self._shift = x, shift

    def sums(self, mixtures: Mixtures) -> Floats:
        if mixtures.diagonal and self._features is not None:
            with one_blas_thread():
                return self._diagonal_sums(mixtures, *self._features)
        high, low = accumulate_mixtures(self._x, mixtures, shift=self._shift).sums
        return np.asarray(high + low)

    @cached_property
    def _features(self) -> tuple[Floats, Bools] | None:
        n, p = self._x.shape
        if 3 * n * p > _MAX_VALUES:
            return None
        out = np.empty((n, 3 * p))
        deviations(self._x, self._shift, out)
        return out, incomplete_rows(self._x)

    def _diagonal_sums(self, mixtures: Mixtures, all_features: Floats, incomplete: Bools) -> Floats:
        n, p = self._x.shape
        d = len(mixtures.means)
        density = Diagonal(mixtures, self._shift)
        sums = np.zeros((d, mixtures.n_statistics))
        for start, stop, _ in cut_tiles(np.array([n]), tile_rows(d, p)):
            complete = not incomplete[start:stop].any()
            features = all_features[start:stop, : 2 * p if complete else None]
            resp, _, _ = density.posteriors(features, complete)
            _add_features(sums, resp, features, density.scratch)
        return sums


def _add_deviations(
    sums: Floats, resp: Floats, rows: Floats, means: Floats, scratch: Scratch
) -> None:
    p = rows.shape[1]
    sums[:, 0] += resp.sum(axis=1)
    deviation, weighted = scratch("deviation", rows.shape), scratch("weighted", rows.shape)
    for k, mean in enumerate(means):
        np.subtract(rows, mean, out=deviation)
        np.multiply(resp[k][:, None], deviation, out=weighted)
        sums[k, 1 : p + 1] += weighted.sum(axis=0)
        sums[k, p + 1 :] += (weighted.T @ deviation).ravel()


def accumulate_initial(
    x: Array,
    resp: Floats,
    centers: Floats,
    fill: Floats,
    *,
    full: bool,
    weight: Floats | None = None,
    segments: Ints | None = None,
) -> Floats:
    """Return the sums that determine the initial parameters of one model.

    ``resp`` (K, n) are the posteriors g.  Deviations d are from ``centers`` (K, p), or from
    ``fill`` (p,) for diagonal covariances.  The result (2, K, s) has pairs as in
    :class:`MixtureSums`: the sums of ``g``, ``g o d^2``, ``g o d``, ``g o`` and, if ``full``, of
    ``g (o d) (o d)^T``.
    """
    n, p = x.shape
    k = len(centers)
    segments = np.array([n]) if segments is None else segments
    width = 3 * p + 1 + (p * p if full else 0)
    sums = np.zeros((2, k * width))
    segment_sums = np.zeros((k, width))
    scratch = Scratch()
    with one_blas_thread():
        for start, stop, ends in cut_tiles(segments, tile_rows(k, p)):
            values = scratch("features", (stop - start, 3 * p))
            tile_resp = resp[:, start:stop]
            tile_resp = tile_resp if weight is None else tile_resp * weight[start:stop]
            for c in range(k if full else 1):
                chosen = slice(c, c + 1) if full else slice(None)
                deviations(x[start:stop], centers[c] if full else fill, values)
                _add_features(segment_sums[chosen, : 3 * p + 1], tile_resp[chosen], values, scratch)
                if full:
                    deviation = values[:, p : 2 * p]
                    segment_sums[c, 3 * p + 1 :] += (
                        (tile_resp[c][:, None] * deviation).T @ deviation
                    ).ravel()
            if ends:
                add_plain(sums[0], sums[1], segment_sums.ravel())
                segment_sums[:] = 0.0
    return sums.reshape(2, k, width)


@compiled(counted=False, error_model="numpy")
def move_diagonal(sums, mass, means, variances, shift, out):
    """Write new means and variances, from the sums (D, 3p + 1) of :class:`MixtureSums`, to ``out``.

    Missing values contribute the old ``means`` and ``variances``.  Variances have no lower bound.
    """
    d, p = means.shape
    new_means, new_variances = out
    for k in range(d):
        n = mass[k]
        for j in range(p):
            square, first, n_observed = sums[k, 1 + j], sums[k, 1 + p + j], sums[k, 1 + 2 * p + j]
            # The second moment is about the old mean.
            center = means[k, j] - shift[j]
            delta = (first - center * n_observed) / n
            n_missing = n - n_observed
            if n_missing <= 1e-9 * n:
                n_missing = 0.0
            second = square - 2 * center * first + center * center * n_observed
            new_means[k, j] = means[k, j] + delta
            new_variances[k, j] = (second + n_missing * variances[k, j]) / n - delta * delta


def _softmax_tiles(
    x: Array,
    mixtures: Mixtures,
    shift: Floats,
    dtype: Any,
    tiles: list[tuple[int, int, bool]],
) -> Iterator[tuple[int, int, tuple[Array, Floats, Array]]]:
    """Yield (start, stop, results of :func:`softmax`) of tiles, each overwriting the last."""
    density: Diagonal | Full = Diagonal(mixtures, shift) if mixtures.diagonal else Full(mixtures)
    d, m = len(mixtures.weights), len(mixtures.sizes)
    # With full covariances, rows with missing values are processed separately.
    incomplete = np.zeros(len(x), bool) if mixtures.diagonal else incomplete_rows(x)
    scratch = Scratch()
    for start, stop, _ in tiles:
        n, rows = stop - start, x[start:stop]
        incomplete_numbers, complete_numbers = (
            np.flatnonzero(incomplete[start:stop]),
            np.flatnonzero(~incomplete[start:stop]),
        )
        if not len(incomplete_numbers):
            yield start, stop, density.posteriors(*density.features(rows), dtype)
            continue
        resp = scratch("posteriors", (d, n), dtype)
        top, norm = scratch("top", (m, n)), scratch("norm", (m, n), dtype)
        norm[:] = 1.0
        if len(complete_numbers):
            results = density.posteriors(*density.features(rows[complete_numbers]), dtype)
            resp[:, complete_numbers], top[:, complete_numbers], norm[:, complete_numbers] = results
        conditioned = condition_rows(group_patterns(rows[incomplete_numbers], None), mixtures)
        positions = incomplete_numbers[conditioned.order]
        resp[:, positions], top[:, positions] = conditioned.resp, conditioned.rows_likelihood
        yield start, stop, (resp, top, norm)


def posterior_tiles(
    x: Array,
    mixtures: Mixtures,
    shift: Floats,
    dtype: Any = np.float64,
    segments: Ints | None = None,
) -> Iterator[tuple[int, int, Array]]:
    """Yield (start, stop, posteriors) of tiles.  Each tile overwrites the last one."""
    d, p = mixtures.means.shape
    segments = np.array([len(x)]) if segments is None else segments
    for start, stop, results in _softmax_tiles(
        x, mixtures, shift, dtype, cut_tiles(segments, tile_rows(d, p))
    ):
        yield start, stop, results[0]


def posteriors(
    x: Array, mixtures: Mixtures, shift: Floats, dtype: Any = np.float64
) -> tuple[Array, Floats]:
    """Return posteriors (D, n) of all components, and log-likelihoods (m, n) of all models."""
    n = len(x)
    d, p = mixtures.means.shape
    out = np.empty((d, n), dtype)
    total = np.empty((len(mixtures.sizes), n))
    # With full covariances, patterns are factorized once for all rows.
    size = tile_rows(d, p) if mixtures.diagonal else max(n, 1)
    with one_blas_thread():
        for start, stop, (resp, top, norm) in _softmax_tiles(
            x, mixtures, shift, dtype, cut_tiles(np.array([n]), size)
        ):
            out[:, start:stop], total[:, start:stop] = resp, top + np.log(norm)
    return out, total


def impute(x: Array, mixtures: Mixtures, shift: Floats) -> Array:
    """Return a copy of rows in which conditional means of one model replace missing values."""
    out = x.copy()
    incomplete = incomplete_rows(x)
    if not incomplete.any():
        return out
    rows = x[incomplete]
    if mixtures.diagonal:
        filled = posteriors(rows, mixtures, shift)[0].T @ mixtures.means
    else:
        conditioned = condition_rows(group_patterns(rows, None), mixtures)
        filled = np.empty(rows.shape)
        filled[conditioned.order] = conditioned.filled
    out[incomplete] = np.where(np.isnan(rows), filled, rows)
    return out


#: Number of rows of ``y`` that `kernel_block` processes at a time.
_KERNEL_ROWS = 1024


def features(x: Array, mixtures: Mixtures, shift: Floats, dtype: Any = np.float64) -> Array:
    """Return posteriors of all components, with a column per row: (D, n)."""
    out = np.empty((len(mixtures.weights), len(x)), dtype)
    with one_blas_thread():
        for start, stop, tile in posterior_tiles(x, mixtures, shift, dtype):
            out[:, start:stop] = tile
    return out


def project(
    x: Array, mixtures: Mixtures, shift: Floats, basis: Array, dtype: Any = np.float64
) -> Floats:
    """Return coordinates (n, d) of rows: their features times a basis (D, d)."""
    out = np.empty((len(x), basis.shape[1]))
    transposed = np.ascontiguousarray(basis.T, dtype=dtype)
    with one_blas_thread():
        for start, stop, tile in posterior_tiles(x, mixtures, shift, dtype):
            out[start:stop] = (transposed @ tile).T
    return out


def _stored_tiles(stored: Array, segments: Ints) -> Iterator[tuple[int, int, Array]]:
    start = 0
    for stop in segments.tolist():
        if stop > start:
            yield start, stop, stored[:, start:stop]
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
    stored: Array | None = None,
) -> Floats:
    """Return the Gram matrix of a block's features, or its product with a basis (D, l).

    ``stored`` are the features (D, n) of an earlier pass, if they were stored.
    """
    d = len(mixtures.weights)
    segments = np.array([len(x)]) if segments is None else segments
    sums = np.zeros((2, d * (d if basis is None else basis.shape[1])))
    segment_sums = np.zeros((d, d if basis is None else basis.shape[1]))
    transposed = None if basis is None else np.ascontiguousarray(basis.T, dtype=dtype)
    ends = set(segments.tolist())
    scratch = Scratch()
    with one_blas_thread():
        tiles = (
            posterior_tiles(x, mixtures, shift, dtype, segments)
            if stored is None
            else _stored_tiles(stored, segments)
        )
        for start, stop, tile in tiles:
            image = tile if transposed is None else transposed @ tile
            if weight is not None:
                image = image * weight[start:stop].astype(dtype)
            segment_sums += np.matmul(
                tile, image.T, out=scratch("product", segment_sums.shape, dtype)
            )
            if stop in ends:
                add_plain(sums[0], sums[1], segment_sums.ravel())
                segment_sums[:] = 0.0
    return sums.reshape(2, *segment_sums.shape)


def kernel_block(x: Array, y: Array, mixtures: Mixtures, shift: Floats) -> Floats:
    """Return the kernel of all pairs of rows: the mean dot product of their posteriors (Eq. 6)."""
    out = np.empty((len(x), len(y)))
    for first in range(0, len(y), _KERNEL_ROWS):
        columns = features(y[first : first + _KERNEL_ROWS], mixtures, shift)
        with one_blas_thread():
            for start, stop, tile in posterior_tiles(x, mixtures, shift):
                out[start:stop, first : first + _KERNEL_ROWS] = tile.T @ columns
    # Rounding may give values above 1.
    return np.minimum(out / len(mixtures.sizes), 1.0, out=out)
