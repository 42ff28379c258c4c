"""Projection of rows to a linear space, and whitening of the noise of an image.

A matrix product of BLAS adds in an order that depends on the number of rows, so the result of a
row would depend on its block.  Here each row is projected separately.
"""

from __future__ import annotations

import numpy as np

from daskclust.core.array_types import Array, Floats
from daskclust.core.kernels.compiling import compiled, read_only


@compiled()
def _project(x, unit, center, matrix, out):
    p, q = matrix.shape
    row = np.empty(p)
    for i in range(x.shape[0]):
        peak = 0.0
        for j in range(p):
            row[j] = x[i, j]
            peak = max(peak, abs(row[j]))
        if unit and peak > 0.0:
            # Two steps, so that neither tiny nor huge rows underflow or overflow.
            total = 0.0
            for j in range(p):
                row[j] /= peak
                total += row[j] * row[j]
            length = np.sqrt(total)
            for j in range(p):
                row[j] /= length
        for k in range(q):
            out[i, k] = 0.0
        for j in range(p):
            gap = row[j] - center[j]
            for k in range(q):
                out[i, k] += gap * matrix[j, k]


def project_rows(x: Array, unit: bool, center: Floats, matrix: Floats) -> Floats:
    """Return ``(u - center) @ matrix`` for the rows u, scaled to length 1 if ``unit``."""
    out = np.empty((len(x), matrix.shape[1]))
    if len(x):
        _project(
            read_only(np.ascontiguousarray(x)),
            bool(unit),
            read_only(np.ascontiguousarray(center, dtype=np.float64)),
            read_only(np.ascontiguousarray(matrix, dtype=np.float64)),
            out,
        )
    return out


def unit_rows(x: Array) -> Floats:
    """Return the rows in float64, scaled to length 1; zero rows stay zero."""
    wide = np.asarray(x, dtype=np.float64)
    peak = np.abs(wide).max(axis=1, keepdims=True, initial=0.0)
    wide = np.divide(wide, peak, out=np.zeros_like(wide), where=peak > 0)
    length = np.sqrt((wide * wide).sum(axis=1, keepdims=True))
    return np.divide(wide, length, out=wide, where=length > 0)


#: Isotropic noise that is added before whitening, as a multiple of the mean noise. Without it,
#: bands without noise would dominate, which ruins some scenes.
_SOFTNESS = 10.0
#: Number of pairs that are processed at a time.
_SLICE = 8192


def noise_whitening(first: Array, second: Array) -> Floats:
    """Return the matrix that whitens the noise of directions in an image, with regularization.

    ``first`` and ``second`` (pairs, p) are adjacent pixels.  The noise N is half the mean square of
    their differences, after scaling each to length 1.  The matrix is
    ``(N + 10 tr(N) / p I)^(-1/2)``, and the identity without noise.
    """
    p = first.shape[1]
    noise = np.zeros((p, p))
    for start in range(0, len(first), _SLICE):
        s = slice(start, start + _SLICE)
        gaps = unit_rows(first[s]) - unit_rows(second[s])
        noise += gaps.T @ gaps
    noise /= max(2 * len(first), 1)
    level = np.trace(noise) / p
    if not level > 0:
        return np.eye(p)
    values, vectors = np.linalg.eigh(noise / level + _SOFTNESS * np.eye(p))
    whitening: Floats = (vectors / np.sqrt(values)) @ vectors.T
    return whitening
