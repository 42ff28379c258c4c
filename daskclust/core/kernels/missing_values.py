"""A sweep over a block: missing and infinite values, and a hash of rows that can be summed."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Floats
from daskclust.core.kernels.compiling import compiled, read_only


class Gaps(NamedTuple):
    """Number of missing values of each row; place of the first infinity in row order, or -1."""

    missing: NDArray[np.int32]
    row: int
    column: int


@compiled()
def _sweep(x, out):
    first = -1
    for i in range(x.shape[0]):
        missing = infinite = 0
        for j in range(x.shape[1]):
            missing += x[i, j] != x[i, j]
            infinite += abs(x[i, j]) == np.inf
        out[i] = missing
        if infinite and first < 0:
            first = i
    return first


def find_gaps(x: Array) -> Gaps:
    missing = np.empty(len(x), np.int32)
    row = int(_sweep(np.ascontiguousarray(x), missing))
    column = int(np.isinf(x[row]).argmax()) if row >= 0 else -1
    return Gaps(missing, row, column)


Words = NDArray[np.uint64]

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_NAN = np.uint64(0x7FF8000000000000)
_ZERO = np.uint64(0)
_ONE = np.uint64(0x3FF0000000000000)
#: Odd, so that multiplying by it loses nothing.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_FACTOR = np.uint64(0xD6E8FEB86659FD93)


@compiled(inline="always")
def _mix(word):
    """Let every bit depend on every bit; one to one."""
    word = (word ^ (word >> _HALF)) * _FACTOR
    word = (word ^ (word >> _HALF)) * _FACTOR
    return word ^ (word >> _HALF)


@compiled()
def _run(x, weights, weighted, first, stop, number, keys, seed):
    """Sum over rows ``first .. stop - 1``, of which the first has the global ``number``."""
    p = x.shape[1]
    low_keys, high_keys = keys[0], keys[1]
    total = _ZERO
    for i in range(first, stop):
        h = _ZERO
        # One multiplication of the halves of each value, each shifted by a key.
        for j in range(p):
            value = np.float64(x[i, j])
            word = value.view(np.uint64)
            # One zero and one NaN, whatever their bits.
            word = _ZERO if value == 0.0 else word
            word = _NAN if value != value else word
            low = ((word & _LOW) + low_keys[j]) & _LOW
            h += low * (((word >> _HALF) + high_keys[j]) & _LOW)
        # The weight is one more value.
        if weighted:
            weight = np.float64(weights[i])
            mass = weight.view(np.uint64)
            mass = _ZERO if weight == 0.0 else mass
            mass = _NAN if weight != weight else mass
        else:
            mass = _ONE
        low = ((mass & _LOW) + low_keys[p]) & _LOW
        h += low * (((mass >> _HALF) + high_keys[p]) & _LOW)
        total += _mix(_mix(np.uint64(number + i - first) * _STEP + seed) ^ h)
    return total


@lru_cache(maxsize=8)
def column_keys(p: int) -> Words:
    """Two keys of 32 bits for each column, (2, p), whatever their number; read-only."""
    starts = [np.uint64(j * int(_STEP) % 2**64) for j in range(1, p + 1)]
    words = np.array([int(_mix(start)) for start in starts], dtype=np.uint64)
    keys: Words = np.stack([words & _LOW, words >> _HALF])
    keys.setflags(write=False)
    return keys


def row_hash(
    x: Array, weight: Floats | None = None, runs: tuple[tuple[int, int], ...] | None = None
) -> np.uint64:
    """Sum, modulo 2**64, of a hash of each row's number, values and weight, however rows are cut.

    Any two data sets of one shape that differ have different sums, but for one chance in about
    2**64.  All NaN are the same, and so are both zeros; float32 values count as such.

    One multiplication of 32 bits a value (the NH hash of UMAC), and two rounds of a
    mixing function a row: about half the time of the moments of rows in memory.
    """
    n, p = x.shape
    keys = column_keys(p + 1)
    # The precision is part of the identity: distances are worked out in it.
    seed = np.uint64(x.dtype.itemsize)
    x, weights = read_only(x), read_only(np.empty(0) if weight is None else weight)
    sums, at = [0], 0
    for start, size in ((0, n),) if runs is None else runs:
        part = _run(x, weights, weight is not None, at, at + size, start, keys, seed)
        sums.append(int(part))
        at += size
    return np.uint64(sum(sums) % 2**64)
