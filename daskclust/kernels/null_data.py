"""Rows without clusters, made where they are needed: permuted columns, uniform boxes.

Row i of a reference is a function of (seed, i) and of a small table, so
that references are never stored, are read from nowhere, and do not depend on how
rows are cut.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from daskclust._types import Array, Floats
from daskclust.kernels.compiling import compiled

__all__ = ["permuted_rows", "uniform_rows"]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ONE = np.uint64(1)


@compiled()
def _mix(z: Any) -> Any:
    """Scramble 64 bits (the finalizer of splitmix64)."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@compiled()
def _below(bits: Any, bound: Any) -> Any:
    """Return a number in [0, bound), bound < 2**32, from 64 random bits."""
    return ((bits >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32)


@compiled()
def _shuffle_columns(pool: Any, key: Any, out: Any) -> None:
    """Permute each row of ``pool`` (a column of the data) on its own (Fisher & Yates)."""
    p, m = pool.shape
    for j in range(p):
        state = _mix(key + np.uint64(j) * _GOLDEN)
        for i in range(m):
            out[j, i] = pool[j, i]
        for i in range(m - 1, 0, -1):
            state += _GOLDEN
            other = np.intp(_below(_mix(state), i + 1))
            kept = out[j, i]
            out[j, i] = out[j, other]
            out[j, other] = kept


@compiled()
def _deal(shuffled: Any, key: Any, start: Any, out: Any) -> None:
    """Fill rows ``start ..``: every m rows all values of each column occur once."""
    p, m = shuffled.shape
    n = out.shape[0]
    done = 0
    while done < n:
        turn = (start + done) // m
        first = (start + done) - turn * m
        size = min(m - first, n - done)
        for low in range(0, size, 64):
            high = min(low + 64, size)
            for j in range(p):
                at = first + low
                if turn:
                    # From one turn to the next columns move against each other.
                    word = _mix(key ^ _mix(np.uint64(turn) * np.uint64(p) + np.uint64(j)))
                    at += np.intp(_below(word, m))
                if at >= m:
                    at -= m
                for t in range(low, high):
                    out[done + t, j] = shuffled[j, at]
                    at += 1
                    if at == m:
                        at = 0
        done += size


def _key(seed: int, number: int) -> np.uint64:
    return np.uint64(np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)[0])


def permuted_rows(pool: Array, seed: int, number: int, start: int, count: int) -> Array:
    """Rows ``start .. start + count - 1`` of data whose columns are permuted on their own.

    Parameters
    ----------
    pool : ndarray of shape (p, m), float32 or float64
        m rows of the data, transposed: all of them, or a sample.
    seed, number : int
        Seed, and number of the permutation.
    start, count : int

    Returns
    -------
    ndarray of shape (count, p)
        Rows 0 .. m - 1 hold a uniformly random permutation of each column, and so
        does each further run of m rows, with columns shifted against each other.

    Notes
    -----
    O(p (m + count)).

    Examples
    --------
    >>> import numpy as np
    >>> pool = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    >>> np.sort(permuted_rows(pool, 0, 0, 3, 3), axis=0).T
    array([[1., 2., 3.],
           [4., 5., 6.]])
    """
    out = np.empty((count, len(pool)), pool.dtype)
    shuffled = np.empty_like(pool)
    key = _key(seed, number)
    _shuffle_columns(pool, key, shuffled)
    _deal(shuffled, key, start, out)
    return out


@compiled()
def _fill_uniform(low: Any, width: Any, key: Any, start: Any, out: Any) -> None:
    n, p = out.shape
    for i in range(n):
        counter = np.uint64(start + i) * np.uint64(p)
        for j in range(p):
            word = _mix(key + (counter + np.uint64(j) + _ONE) * _GOLDEN)
            share = np.float64(word >> np.uint64(11)) * (1.0 / 9007199254740992.0)
            out[i, j] = low[j] + width[j] * share


def uniform_rows(
    low: Floats,
    high: Floats,
    dtype: Any,
    seed: int,
    number: int,
    start: int,
    count: int,
) -> Array:
    """Rows ``start .. start + count - 1`` of uniform draws from a box.

    Parameters
    ----------
    low, high : ndarray of shape (p,), float64
    dtype : float32 or float64
    seed, number : int
        Seed, and number of the draw.
    start, count : int

    Returns
    -------
    ndarray of shape (count, p)

    Examples
    --------
    >>> import numpy as np
    >>> whole = uniform_rows(np.zeros(2), np.ones(2), np.float64, 0, 0, 0, 10)
    >>> part = uniform_rows(np.zeros(2), np.ones(2), np.float64, 0, 0, 7, 3)
    >>> bool((part == whole[7:]).all())
    True
    """
    out = np.empty((count, len(low)), dtype)
    _fill_uniform(low, high - low, _key(seed, number), start, out)
    return out
