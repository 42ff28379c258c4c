"""EM of Gaussian mixtures: statistics of one block, also for the start, and what follows."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from daskclust._types import Array, Bools, Floats, Ints
from daskclust.kernels.blas import one_blas_thread
from daskclust.kernels.compensated import add_plain
from daskclust.kernels.compiling import compiled
from daskclust.kernels.mixtures._patterns import condition_rows, group_patterns
from daskclust.kernels.mixtures.densities import (
    Diagonal,
    Full,
    Mixtures,
    cut_tiles,
    deviations,
    tile_rows,
    with_holes,
)
from daskclust.kernels.scratch import Scratch, spare

__all__ = [
    "MixtureSums",
    "RepeatedRows",
    "accumulate_mixtures",
    "accumulate_start",
    "move_diagonal",
]

#: Values (32 MiB) that features of rows may take for them to be kept from pass to pass.
_KEPT_VALUES = 2**22


class MixtureSums(NamedTuple):
    """A block's share of an EM iteration, as unevaluated pairs.

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
    each pattern's covariances factorized once.

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


def _weighted_likelihood(top: Floats, norm: Floats, weight: Floats | None, into: Floats) -> None:
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
    weight: Floats | None,
    shift: Floats,
    segments: Ints,
    sums: Floats,
    likelihood: Floats,
) -> None:
    density = Diagonal(mixtures, shift)
    d, p = mixtures.means.shape
    part, fit = np.zeros((d, 3 * p + 1)), np.zeros(likelihood.shape[1])
    for start, stop, ends in cut_tiles(segments, tile_rows(d, p)):
        w = None if weight is None else weight[start:stop]
        features, whole = density.features(x[start:stop])
        shares, top, norm = density.posteriors(features, whole)
        _weighted_likelihood(top, norm, w, fit)
        _add_features(part, shares if w is None else shares * w, features, density.scratch)
        if ends:
            add_plain(sums[0], sums[1], part.ravel())
            add_plain(likelihood[0], likelihood[1], fit)
            part[:], fit[:] = 0.0, 0.0


def _add_features(part: Floats, shares: Floats, features: Floats, scratch: Scratch) -> None:
    mass = shares.sum(axis=1)
    width = features.shape[1]
    part[:, 0] += mass
    products = np.matmul(shares, features, out=scratch("products", (len(shares), width)))
    part[:, 1 : width + 1] += products
    part[:, width + 1 :] += mass[:, None]  # of rows that are whole


class RepeatedRows:
    """Rows that many passes go over, one right after the other, as in a short fit.

    The passes have the sums of :func:`accumulate_mixtures`, to the last bit, but neither
    likelihoods nor pairs.  Under diagonal covariances the rows' features are made once,
    where they take no more than 32 MiB.

    Parameters
    ----------
    x : ndarray of shape (n, p), float32 or float64
        NaN where a value is missing; n is not 0.
    shift : ndarray of shape (p,), float64
        A point amid the data.

    Examples
    --------
    >>> import numpy as np
    >>> one = Mixtures(np.ones(1), np.zeros((1, 2)), np.ones((1, 2)), (1,))
    >>> rows = RepeatedRows(np.array([[1.0, 2.0], [3.0, np.nan]]), np.zeros(2))
    >>> rows.sums(one)[0]  # g; x^2, x, o by feature
    array([ 2., 10.,  4.,  4.,  2.,  2.,  1.])
    """

    def __init__(self, x: Array, shift: Floats) -> None:
        self._x, self._shift = x, shift

    def sums(self, mixtures: Mixtures) -> Floats:
        """Return the sums of one pass.

        Parameters
        ----------
        mixtures : Mixtures

        Returns
        -------
        ndarray of shape (D, s), float64
            See :class:`MixtureSums`, pairs added up.
        """
        if mixtures.diagonal and self._made is not None:
            with one_blas_thread():
                return self._diagonal_sums(mixtures, *self._made)
        high, low = accumulate_mixtures(self._x, mixtures, shift=self._shift).sums
        return np.asarray(high + low)

    @cached_property
    def _made(self) -> tuple[Floats, Bools] | None:
        """Features of all rows, and which rows miss a value, where they are kept."""
        n, p = self._x.shape
        if 3 * n * p > _KEPT_VALUES:
            return None
        made = spare((n, 3 * p), np.float64)
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


def _accumulate_full(
    x: Array,
    mixtures: Mixtures,
    weight: Floats | None,
    shift: Floats,
    segments: Ints,
    sums: Floats,
    likelihood: Floats,
) -> None:
    density = Full(mixtures)
    d, p = mixtures.means.shape
    part, fit = np.zeros((d, 1 + p + p * p)), np.zeros(likelihood.shape[1])
    holes = with_holes(x)
    some = bool(holes.any())
    for start, stop, ends in cut_tiles(segments, tile_rows(d, p)):
        rows = x[start:stop].astype(np.float64, copy=False)
        w = None if weight is None else weight[start:stop]
        if some:
            kept = ~holes[start:stop]
            rows, w = rows[kept], None if w is None else w[kept]
        if len(rows):
            shares, top, norm = density.posteriors(rows)
            _weighted_likelihood(top, norm, w, fit)
            shares = shares if w is None else shares * w
            _add_deviations(part, shares, rows, mixtures.means, density.scratch)
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
    """Take sums over given posteriors, from which the first parameters of one model follow.

    Parameters
    ----------
    x : ndarray of shape (n, p), float32 or float64
        NaN where a value is missing.
    shares : ndarray of shape (K, n), float64
        Posteriors.
    centers : ndarray of shape (K, p), float64
        What deviations are from.  (``fill`` for diagonal covariances.)
    fill : ndarray of shape (p,), float64
        The shift.
    full : bool
        Whether products of features are wanted.
    weight, segments
        See :func:`accumulate_mixtures`.

    Returns
    -------
    ndarray of shape (2, K, s), float64
        Unevaluated pairs: sums of ``g``, ``g o d^2``, ``g o d``, ``g o`` and, where
        ``full``, of ``g (o d) (o d)^T``; ``d`` is the row less the center.
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
def move_diagonal(sums: Any, mass: Any, means: Any, variances: Any, shift: Any, out: Any) -> None:
    """Write the means and variances that follow from the sums of ``g``, ``g o x^2``, ``g o x``.

    A missing value counts with the old mean and variance of its column.  Variances are
    not bounded below.

    Parameters
    ----------
    sums : ndarray of shape (D, 3p + 1), float64
        See :class:`daskclust.kernels.mixtures.expectation.MixtureSums`.
    mass : ndarray of shape (D,), float64
        Of the components; positive.
    means, variances : ndarray of shape (D, p), float64
        Under which the sums were taken.
    shift : ndarray of shape (p,), float64
    out : tuple of two ndarrays of shape (D, p), float64
        Receive means and variances.

    Examples
    --------
    A row with value 3, and one without, which counts as 0: the variance is theirs, 2.25, and
    half of the old one.

    >>> import numpy as np
    >>> sums, mass = np.array([[2.0, 9.0, 3.0, 1.0]]), np.array([2.0])
    >>> means, variances = np.empty((2, 1, 1))
    >>> move_diagonal(
    ...     sums, mass, np.zeros((1, 1)), np.ones((1, 1)), np.zeros(1), (means, variances)
    ... )
    >>> float(means[0, 0]), float(variances[0, 0])
    (1.5, 2.75)
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
