"""Rows with missing values under full covariances, grouped by what is missing.

Rows of one missingness pattern share the factorization of every component's
covariance, restricted to the values they have: it is made once a pattern.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Array, Floats, Ints
from daskclust.kernels.compiling import compiled

if TYPE_CHECKING:
    from daskclust.kernels.mixtures.densities import Mixtures

__all__ = ["Conditioned", "Patterns", "condition_rows", "group_patterns"]

_LOG_2PI = float(np.log(2 * np.pi))


class Patterns(NamedTuple):
    """Rows sorted by pattern.

    Attributes
    ----------
    x : ndarray of shape (n, p), float64
        NaN where a value is missing.
    weight : ndarray of shape (n,), float64
    order : ndarray of shape (n,), int
        Where each row was before.
    starts : ndarray of shape (g + 1,), int64
        First row of each pattern, and n.
    """

    x: Floats
    weight: Floats
    order: NDArray[np.intp]
    starts: Ints


class Conditioned(NamedTuple):
    """The result of :func:`condition_rows`.

    Attributes
    ----------
    sums : ndarray of shape (D, 1 + p + p * p), float64
        As in :class:`daskclust.kernels.mixtures.expectation.MixtureSums`.
    likelihood : ndarray of shape (m + 1,), float64
        Weighted log-likelihood of each model, and the weight of the rows.
    shares : ndarray of shape (D, n), float64
        Posteriors of the sorted rows.
    rows_likelihood : ndarray of shape (m, n), float64
    filled : ndarray of shape (n, p), float64
        Sorted rows with missing values at their conditional mean, under all
        components weighted by their posteriors (of use for one model).
    order : ndarray of shape (n,), int
        Where each sorted row was before.
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
    """Sort rows by what they miss, keeping their order within a pattern.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([[1.0, np.nan], [np.nan, 2.0], [3.0, np.nan]])
    >>> found = group_patterns(x, None)
    >>> found.order.tolist(), found.starts.tolist()
    ([0, 2, 1], [0, 2, 3])
    """
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
def _factorize(covariance: Any, there: Any, gone: Any, upper: Any, tied: Any) -> float:
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
def _whiten(row: Any, mean: Any, there: Any, upper: Any, white: Any) -> float:
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
def _condition(rows: Any, components: Any, found: Any) -> None:
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
    """Condition all components' missing values on those that are there (Eq. 4-7 of [1]_).

    Parameters
    ----------
    rows : Patterns
    mixtures : Mixtures
        With full covariances.

    Notes
    -----
    Cost: one factorization a pattern and component, then O(p^2) a row and
    component.  Memory: O(D (n + p^2)).

    References
    ----------
    .. [1] Ghahramani, Z., Jordan, M. (1994). Supervised learning from incomplete
       data via an EM approach. NIPS.
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
    components = _Components(log_weights, mixtures.means, mixtures.covariances, mixtures.bounds)
    _condition(rows, components, found)
    return found
