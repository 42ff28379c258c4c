"""Smooth posteriors of an image where its spectra are alike: mean-field sweeps of a Potts model."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Array
from daskclust.kernels.compiling import compiled

__all__ = ["MASKED", "NONE", "REACH", "affinities", "squared_gaps", "swept"]

#: Codes of pixels that are no rows, and of rows without a label.
MASKED, NONE = -2, -1
#: Sweeps over all pixels; those of even places are followed by those of odd places.
_SWEEPS = 10
#: Pixels further away than so many cannot change a pixel.
REACH = 2 * _SWEEPS
#: A posterior counts for no less: no class is out of the question.
_FLOOR = 0.001


@compiled()
def squared_gaps(one: Array, other: Array) -> Array:
    """Return the squared distance of each row to one of others; over the bands that both have.

    Scaled up to all bands; NaN where they have none in common.
    """
    n, p = one.shape
    out = np.empty(n, np.float64)
    for i in range(n):
        out[i] = _gap(one[i], other[i], p)
    return out


@compiled()
def _gap(one: Array, other: Array, p: int) -> float:
    total, seen = 0.0, 0
    for f in range(p):
        gap = np.float64(one[f]) - np.float64(other[f])
        if not math.isnan(gap):
            total += gap * gap
            seen += 1
    return total * (p / seen) if seen else math.nan


@compiled()
def affinities(spectra: Array, valid: Array, height: int, width: int, scale: float) -> Array:
    """Return exp(-gap / scale) of each pixel's spectrum to those on the right and below.

    Parameters
    ----------
    spectra : ndarray of shape (height, width + 1 or width, p)
        With the line below and the column on the right, where there are such.
    valid : ndarray of the same lines and columns, bool
    height, width : int
        Of the result.
    scale : float
        Twice the median of the squared gaps; 0 makes all pixels alike.

    Returns
    -------
    ndarray of shape (height, width, 2), float32
        0 where one of both is no row, or there is no such pixel.
    """
    rows, cols, p = spectra.shape
    out = np.zeros((height, width, 2), np.float32)
    for i in range(height):
        for j in range(width):
            if not valid[i, j]:
                continue
            for side in range(2):
                y, x = (i, j + 1) if side == 0 else (i + 1, j)
                if y >= rows or x >= cols or not valid[y, x]:
                    continue
                gap = _gap(spectra[i, j], spectra[y, x], p)
                if not math.isnan(gap):
                    out[i, j, side] = math.exp(-gap / scale) if scale > 0 else 1.0
    return out


@compiled()
def swept(shares: Array, alike: Array, strength: float, odd: int) -> NDArray[np.int32]:
    """Return the best class of each pixel after the sweeps, and before.

    Parameters
    ----------
    shares : ndarray of shape (height, width, k), float32
        Posteriors; NaN where there is no row, negative where it has no label.
    alike : ndarray of shape (height, width, 2), float32
        From :func:`affinities`.
    strength : float
    odd : int
        Parity of the place of the first pixel in the image.

    Returns
    -------
    ndarray of shape (height, width, 2), int32
    """
    height, width, k = shares.shape
    out = np.empty((height, width, 2), np.int32)
    q, energy = np.zeros((height, width, k), np.float32), np.empty(k)
    for i in range(height):
        for j in range(width):
            first = shares[i, j, 0]
            if not first >= 0:
                out[i, j, :] = MASKED if math.isnan(first) else NONE
                continue
            out[i, j, :] = np.argmax(shares[i, j])
            total = 0.0
            for c in range(k):
                total += max(shares[i, j, c], _FLOOR)
            for c in range(k):
                q[i, j, c] = max(shares[i, j, c], _FLOOR) / total
    for step in range(2 * _SWEEPS):
        for i in range(height):
            for j in range((i + odd + step) % 2, width, 2):
                if out[i, j, 0] < 0:
                    continue
                for c in range(k):
                    energy[c] = 0.0
                # Above, left, right, below; those that are no rows count for nothing.
                if i > 0:
                    for c in range(k):
                        energy[c] += alike[i - 1, j, 1] * q[i - 1, j, c]
                if j > 0:
                    for c in range(k):
                        energy[c] += alike[i, j - 1, 0] * q[i, j - 1, c]
                if j < width - 1:
                    for c in range(k):
                        energy[c] += alike[i, j, 0] * q[i, j + 1, c]
                if i < height - 1:
                    for c in range(k):
                        energy[c] += alike[i, j, 1] * q[i + 1, j, c]
                highest, best = -math.inf, 0
                for c in range(k):
                    energy[c] = math.log(max(shares[i, j, c], _FLOOR)) + strength * energy[c]
                    if energy[c] > highest:
                        highest, best = energy[c], c
                total = 0.0
                for c in range(k):
                    energy[c] = math.exp(energy[c] - highest)
                    total += energy[c]
                for c in range(k):
                    q[i, j, c] = energy[c] / total
                out[i, j, 0] = best
    return out
