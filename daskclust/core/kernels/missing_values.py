"""Find missing and infinite values of a block, and compute a hash of rows that can be summed."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Floats
from daskclust.core.kernels import sparse
from daskclust.core.kernels.compiling import compiled, read_only


class Gaps(NamedTuple):
    """Number of missing values of each row, and position of the first infinity, or -1."""

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
#: An odd factor, so that the multiplication is reversible.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_FACTOR = np.uint64(0xD6E8FEB86659FD93)


@compiled(inline="always")
def _mix(word):
    """Mix the bits of a word one-to-one, so that every bit depends on every bit."""
    word = (word ^ (word >> _HALF)) * _FACTOR
    word = (word ^ (word >> _HALF)) * _FACTOR
    return word ^ (word >> _HALF)


@compiled()
def _run(x, weights, weighted, first, stop, number, keys, seed):
    """Sum hashes of rows ``first .. stop - 1``; the first one has the global ``number``."""
    p = x.shape[1]
    low_keys, high_keys = keys[0], keys[1]
    total = _ZERO
    for i in range(first, stop):
        h = _ZERO
        # A key is added to each half of a value, and the two sums are multiplied.
        for j in range(p):
            value = np.float64(x[i, j])
            word = value.view(np.uint64)
            # All zeros and all NaN have the same bits.
            word = _ZERO if value == 0.0 else word
            word = _NAN if value != value else word
            low = ((word & _LOW) + low_keys[j]) & _LOW
            h += low * (((word >> _HALF) + high_keys[j]) & _LOW)
        # The weight is hashed like a value.
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
    """Return two keys of 32 bits per column, (2, p), independent of their number; read-only."""
    starts = [np.uint64(j * int(_STEP) % 2**64) for j in range(1, p + 1)]
    words = np.array([int(_mix(start)) for start in starts], dtype=np.uint64)
    keys: Words = np.stack([words & _LOW, words >> _HALF])
    keys.setflags(write=False)
    return keys


def row_hash(
    x: Array | sparse.SparseRows,
    weight: Floats | None = None,
    runs: tuple[tuple[int, int], ...] | None = None,
) -> np.uint64:
    """Return the sum, modulo 2**64, of a hash of each row's number, values and weight.

    The sum does not depend on the blocks.  Two different data sets of equal shape have different
    sums, except with a probability of about 2**-64.  All NaN are equal, and so are both zeros.
    float32 and float64 data have different hashes.

    Cost: one multiplication of 32 bits per value (the NH hash of UMAC), and two rounds of a mixing
    function per row, about half the time of the moments of rows in memory.
    """
    if isinstance(x, sparse.SparseRows):
        return sparse.row_hash(x, weight, runs)
    n, p = x.shape
    keys = column_keys(p + 1)
    # The precision is part of the identity, because distances are computed in it.
    seed = np.uint64(x.dtype.itemsize)
    x, weights = read_only(x), read_only(np.empty(0) if weight is None else weight)
    sums, at = [0], 0
    for start, size in ((0, n),) if runs is None else runs:
        part = _run(x, weights, weight is not None, at, at + size, start, keys, seed)
        sums.append(int(part))
        at += size
    return np.uint64(sum(sums) % 2**64)
