"""Random numbers that belong to rows, not to chunks.

The draw of global row i in round r is a function of (seed, r, i): a Philox
stream keyed by (seed, r) and advanced to row i.  Chunking, scheduler and number
of workers cannot change it.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator, Philox, SeedSequence
from numpy.typing import NDArray

from daskclust._types import Floats, Ints
from daskclust.kernels.compiling import compiled

__all__ = ["draw_numbers", "race_keys", "row_uniforms", "smallest"]


# A counter step of Philox yields four 64-bit numbers, each of which makes one double.
_STEP = 4


def row_uniforms(seed: int, round_: int, start: int, count: int) -> Floats:
    """Uniform draws of rows ``start .. start + count - 1``.

    Parameters
    ----------
    seed : int
        Seed of the fit, non-negative.
    round_ : int
        Which draw of the fit; rounds are independent.
    start : int
        Global number of the first row.
    count : int
        Number of rows.

    Returns
    -------
    ndarray of shape (count,), float64
        In (0, 1]: never 0, so that a logarithm is finite.

    Examples
    --------
    >>> whole = row_uniforms(0, 1, 0, 10)
    >>> bool((row_uniforms(0, 1, 7, 3) == whole[7:]).all())
    True
    """
    key = SeedSequence([seed, round_]).generate_state(2, np.uint64)
    bits = Philox(key=key)
    bits.advance(start // _STEP)
    skipped = start % _STEP
    return 1.0 - Generator(bits).random(count + skipped)[skipped:]


def draw_numbers(total: int, count: int, seed: int) -> Ints:
    """Draw different numbers out of [0, total), ascending; all of them where there are few.

    Examples
    --------
    >>> draw_numbers(3, 5, 0).tolist(), len(draw_numbers(100, 5, 0))
    ([0, 1, 2], 5)
    """
    if count >= total:
        return np.arange(total, dtype=np.int64)
    rng = np.random.default_rng(seed)
    return np.sort(rng.choice(total, count, replace=False, shuffle=False)).astype(np.int64)


@compiled()
def _race(uniforms: Floats, mass: Floats, keys: Floats) -> None:
    for i in range(keys.size):
        if mass[i] > 0.0:
            keys[i] = -np.log(uniforms[i]) / mass[i]
        else:
            keys[i] = np.inf


def race_keys(uniforms: Floats, mass: Floats) -> Floats:
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


def smallest(keys: Floats, count: int) -> NDArray[np.intp]:
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
