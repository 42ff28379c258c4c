"""Rows under Gaussian mixtures: posteriors, likelihoods, missing values, and ensembles as features.

The features of a row under an ensemble are its posteriors under all components of all models.
They are made for a tile of rows at a time, used, and forgotten, unless there is room to
keep them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from daskclust._types import Array, Floats, Ints
from daskclust.kernels.blas import one_blas_thread
from daskclust.kernels.compensated import add_plain
from daskclust.kernels.mixtures.densities import (
    Diagonal,
    Full,
    Mixtures,
    cut_tiles,
    tile_rows,
    with_holes,
)
from daskclust.kernels.mixtures.expectation import condition_rows, group_patterns
from daskclust.kernels.scratch import Scratch


def _expected_tiles(
    x: Array,
    mixtures: Mixtures,
    shift: Floats,
    dtype: Any,
    tiles: list[tuple[int, int, bool]],
) -> Iterator[tuple[int, int, tuple[Array, Floats, Array]]]:
    """Yield (start, stop, what :func:`softmax` returns) of each tile; the next overwrites it."""
    if mixtures.diagonal:
        diagonal = Diagonal(mixtures, shift)
        for start, stop, _ in tiles:
            yield start, stop, diagonal.posteriors(*diagonal.features(x[start:stop]), dtype)
        return
    density = Full(mixtures)
    d, m = len(mixtures.weights), len(mixtures.sizes)
    holes = with_holes(x)
    scratch = Scratch()
    for start, stop, _ in tiles:
        n = stop - start
        shares = scratch("posteriors", (d, n), dtype)
        top, norm = scratch("top", (m, n)), scratch("norm", (m, n), dtype)
        norm[:] = 1.0
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
    shift: Floats,
    dtype: Any = np.float64,
    segments: Ints | None = None,
) -> Iterator[tuple[int, int, Array]]:
    """Yield posteriors of a tile of rows at a time: (start, stop, (D, stop - start)).

    The next tile overwrites them.

    Parameters
    ----------
    x, mixtures, shift, dtype
        See :func:`posteriors`.
    segments : ndarray of int64, optional
        No tile reaches over the end of one.
    """
    d, p = mixtures.means.shape
    segments = np.array([len(x)]) if segments is None else segments
    for start, stop, made in _expected_tiles(
        x, mixtures, shift, dtype, cut_tiles(segments, tile_rows(d, p))
    ):
        yield start, stop, made[0]


def posteriors(
    x: Array, mixtures: Mixtures, shift: Floats, dtype: Any = np.float64
) -> tuple[Array, Floats]:
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
    # Under full covariances, patterns are factorized once for all rows.
    size = tile_rows(d, p) if mixtures.diagonal else max(n, 1)
    with one_blas_thread():
        for start, stop, (shares, top, norm) in _expected_tiles(
            x, mixtures, shift, dtype, cut_tiles(np.array([n]), size)
        ):
            out[:, start:stop], total[:, start:stop] = shares, top + np.log(norm)
    return out, total


def impute(x: Array, mixtures: Mixtures, shift: Floats) -> Array:
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
    """Posteriors of all components, a column a row.

    Parameters
    ----------
    x : ndarray of shape (n, p), float32 or float64
        NaN where a value is missing.
    mixtures : Mixtures
    shift : ndarray of shape (p,), float64
    dtype : float32 or float64

    Returns
    -------
    ndarray of shape (D, n), of ``dtype``
    """
    out = np.empty((len(mixtures.weights), len(x)), dtype)
    with one_blas_thread():
        for start, stop, tile in posterior_tiles(x, mixtures, shift, dtype):
            out[:, start:stop] = tile
    return out


def project(
    x: Array, mixtures: Mixtures, shift: Floats, basis: Array, dtype: Any = np.float64
) -> Floats:
    """Coordinates of rows: their features times a basis.

    Parameters
    ----------
    x, mixtures, shift, dtype
        See :func:`features`.
    basis : ndarray of shape (D, d)

    Returns
    -------
    ndarray of shape (n, d), float64

    Examples
    --------
    >>> import numpy as np
    >>> two = Mixtures(np.full(2, 0.5), np.array([[0.0], [2.0]]), np.ones((2, 1)), (2,))
    >>> project(np.array([[1.0], [50.0]]), two, np.zeros(1), np.array([[1.0], [3.0]])).ravel()
    array([2., 3.])
    """
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
    """Features' Gram matrix of one block, times a basis if there is one.

    Parameters
    ----------
    x, mixtures, shift, dtype
        See :func:`features`.
    basis : ndarray of shape (D, l), optional
    weight : ndarray of shape (n,), float64, optional
    segments : ndarray of int64, optional
        Ends of the runs of rows that are summed plainly; the last is n.
    kept : ndarray of shape (D, n), optional
        The features, where they are known already.

    Returns
    -------
    ndarray of shape (2, D, l) or (2, D, D), float64
        Unevaluated pairs.

    Examples
    --------
    >>> import numpy as np
    >>> two = Mixtures(np.full(2, 0.5), np.array([[0.0], [2.0]]), np.ones((2, 1)), (2,))
    >>> add_gram(np.array([[1.0], [50.0]]), two, np.zeros(1), None)[0]
    array([[0.25, 0.25],
           [0.25, 1.25]])
    """
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
    """Kernel between the rows of two blocks (Eq. 6 of the PCKID paper).

    Parameters
    ----------
    x, y : ndarray of shape (n, p) and (m, p), float32 or float64
    mixtures : Mixtures
    shift : ndarray of shape (p,), float64

    Returns
    -------
    ndarray of shape (n, m), float64
        Mean over the models of the scalar product of two rows' posteriors.
    """
    out = np.empty((len(x), len(y)))
    for at in range(0, len(y), _HELD):
        held = features(y[at : at + _HELD], mixtures, shift)
        with one_blas_thread():
            for start, stop, tile in posterior_tiles(x, mixtures, shift):
                out[start:stop, at : at + _HELD] = tile.T @ held
    # At most 1, for rounding, too.
    return np.minimum(out / len(mixtures.sizes), 1.0, out=out)
