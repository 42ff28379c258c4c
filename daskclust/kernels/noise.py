"""The noise of an image, told from what adjacent pixels differ by, and how to make it white."""

from __future__ import annotations

import numpy as np

from daskclust._types import Array, Floats
from daskclust.kernels.projection import unit_rows

__all__ = ["noise_whitening"]


#: Isotropic noise that is added before whitening, as a multiple of the mean noise: bands
#: without noise would be blown up, which ruins some scenes.
_SOFTNESS = 10.0
#: Pairs that are handled at a time.
_SLICE = 8192


def noise_whitening(one: Array, other: Array) -> Floats:
    """Return the matrix that turns the noise of directions in an image soft white.

    Parameters
    ----------
    one, other : ndarray of shape (pairs, p)
        Adjacent pixels; half the mean square of what they differ by, each scaled to
        length 1, is their noise.

    Returns
    -------
    ndarray of shape (p, p)
        ``(N + 10 tr(N) / p I)^(-1/2)`` for the noise N; unity where there is none.
    """
    p = one.shape[1]
    noise = np.zeros((p, p))
    for start in range(0, len(one), _SLICE):
        s = slice(start, start + _SLICE)
        gaps = unit_rows(one[s]) - unit_rows(other[s])
        noise += gaps.T @ gaps
    noise /= max(2 * len(one), 1)
    level = np.trace(noise) / p
    if not level > 0:
        return np.eye(p)
    values, vectors = np.linalg.eigh(noise / level + _SOFTNESS * np.eye(p))
    whitening: Floats = (vectors / np.sqrt(values)) @ vectors.T
    return whitening
