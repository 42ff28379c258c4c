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
    """Yield posteriors of a tile of rows at a time: (start, stop, (D, stop - start)).

    The next tile overwrites them.  No tile reaches over the end of a segment.
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
    """Return posteriors (D, n) of all components, and log-likelihoods (m, n) under all models.

    ``shift`` is a point amid the data; ``dtype`` that of the posteriors.
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
    """Features' Gram matrix of one block, times a basis (D, l) if there is one, as pairs.

    ``kept`` (D, n) are the features, where they are known already.
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

    It is the mean over the models of the scalar product of two rows' posteriors.
    """
    out = np.empty((len(x), len(y)))
    for at in range(0, len(y), _HELD):
        held = features(y[at : at + _HELD], mixtures, shift)
        with one_blas_thread():
            for start, stop, tile in posterior_tiles(x, mixtures, shift):
                out[start:stop, at : at + _HELD] = tile.T @ held
    # At most 1, for rounding, too.
    return np.minimum(out / len(mixtures.sizes), 1.0, out=out)
