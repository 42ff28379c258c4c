"""Posteriors under an ensemble of mixtures as features, and their products.

The features of a row are its posteriors under all components of all models.  They
are made for a tile of rows at a time, used, and forgotten, unless there is room to
keep them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from daskclust._types import Array, Floats, Ints
from daskclust.kernels.blas import one_blas_thread
from daskclust.kernels.compensated import add_plain
from daskclust.kernels.mixtures.densities import Mixtures
from daskclust.kernels.mixtures.posteriors import posterior_tiles
from daskclust.kernels.scratch import Scratch

__all__ = ["add_gram", "features", "kernel_block", "project"]

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
