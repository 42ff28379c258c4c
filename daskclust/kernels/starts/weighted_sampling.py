"""Weighted sampling without replacement as a race that can be run in blocks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from daskclust.kernels.compiling import compiled

__all__ = ["race_keys", "smallest"]

Float = NDArray[np.float64]


@compiled()
def _race(uniforms: Float, mass: Float, keys: Float) -> None:
    for i in range(keys.size):
        if mass[i] > 0.0:
            keys[i] = -np.log(uniforms[i]) / mass[i]
        else:
            keys[i] = np.inf


def race_keys(uniforms: Float, mass: Float) -> Float:
    """Arrival times of rows in an exponential race (Efraimidis & Spirakis).

    The m smallest keys of all rows are a sample of m rows drawn one after
    another, without replacement, with probability proportional to ``mass``.  So
    a weighted sample needs no total beforehand, and its size is exact.

    Parameters
    ----------
    uniforms : ndarray of shape (n,), in (0, 1]
    mass : ndarray of shape (n,), non-negative
        Rows of mass 0 get an infinite key: never drawn.

    Returns
    -------
    ndarray of shape (n,), float64

    Examples
    --------
    >>> import numpy as np
    >>> race_keys(np.array([np.exp(-1), np.exp(-1), 0.5]), np.array([1.0, 2.0, 0.0]))
    array([1. , 0.5, inf])
    """
    keys = np.empty(len(mass))
    _race(uniforms, mass, keys)
    return keys


def smallest(keys: Float, count: int) -> NDArray[np.intp]:
    """Positions of the (at most) ``count`` smallest finite keys, in order, ties by position.

    Examples
    --------
    >>> import numpy as np
    >>> smallest(np.array([3.0, 1.0, np.inf, 1.0]), 2)
    array([1, 3])
    """
    if count <= 0:
        return np.empty(0, np.intp)
    if count < len(keys):
        # All keys up to the count-th smallest, so that ties at the cut are settled below.
        limit = np.partition(keys, count - 1)[count - 1]
        candidates = np.flatnonzero((keys <= limit) & (keys < np.inf))
    else:
        candidates = np.flatnonzero(keys < np.inf)
    order = np.argsort(keys[candidates], kind="stable")
    return candidates[order[:count]]
