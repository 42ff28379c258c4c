"""Totals of a block of rows, to compare two reads of the same block."""

from __future__ import annotations

import functools

import numpy as np

from daskclust.core.array_types import Array, Floats
from daskclust.core.kernels import sparse
from daskclust.core.kernels.compiling import compiled, read_only

#: Number of sums of a block; each sum includes some of the features.
N_SUMS = 4
#: Minimum number of concurrent sums, so that additions do not wait for each other.
_LANES = 64
#: Number of values of a lane whose plain sum is added to the totals.
_SEGMENT = 2**12


@compiled()
def _add(values, lanes, totals):
    """Add sums of values and of absolute values, by lane, to totals (2, n_lanes)."""
    n = len(lanes[0])
    sums, sizes = lanes[0], lanes[1]
    step = 4 * n
    n_steps = len(values) // step
    for first in range(0, n_steps, _SEGMENT // 4):
        sums[:] = 0.0
        sizes[:] = 0.0
        for at in range(first * step, min(first + _SEGMENT // 4, n_steps) * step, step):
            # Four rows of lanes at a time as slices, whose bounds are checked only once.
            a, b = values[at : at + n], values[at + n : at + 2 * n]
            c, d = values[at + 2 * n : at + 3 * n], values[at + 3 * n : at + 4 * n]
            for i in range(n):
                t, u, v, w = np.float64(a[i]), np.float64(b[i]), np.float64(c[i]), np.float64(d[i])
                sums[i] += (t + u) + (v + w)
                sizes[i] += (abs(t) + abs(u)) + (abs(v) + abs(w))
        for i in range(n):
            totals[0, i] += sums[i]
            totals[1, i] += sizes[i]
    for at in range(n_steps * step, len(values)):
        value = np.float64(values[at])
        totals[0, at % n] += value
        totals[1, at % n] += abs(value)


@functools.lru_cache(maxsize=8)
def _factors(p: int) -> Floats:
    """Return distinct factors of the features, because all rows may have the same sum."""
    factors: Floats = 1.0 + np.arange(p) * ((np.sqrt(5.0) - 1.0) / 2.0) % 1.0
    factors.setflags(write=False)
    return factors


def block_totals(x: Array | sparse.SparseRows) -> tuple[Floats, int]:
    """Return sums of values and absolute values (2, N_SUMS), and the number of non-finite values.

    Non-finite values count as 0.  Up to rounding, the sums do not depend on the blocks.

    >>> block_totals(np.array([[1.0, np.nan], [3.0, -2.0]]))[1]
    1
    """
    p = x.shape[1]
    if isinstance(x, sparse.SparseRows):
        return sparse.totals(x, N_SUMS, _factors(p))
    totals = np.zeros((2, p * max(1, -(-_LANES // max(p, 1)))))
    n_missing = 0
    if x.size:
        _add(read_only(x.reshape(-1)), np.empty_like(totals), totals)
        if not np.isfinite(totals[1]).all():
            finite = np.isfinite(x)
            n_missing = int(x.size - np.count_nonzero(finite))
            if n_missing:
                totals[:] = 0.0
                filled = np.where(finite, x, x.dtype.type(0))
                _add(read_only(filled.reshape(-1)), np.empty_like(totals), totals)
    shares = np.zeros((2, N_SUMS * max(1, -(-p // N_SUMS))))
    # The survey raises an error for values that overflow, with their row.
    with np.errstate(over="ignore", invalid="ignore"):
        if p:
            shares[:, :p] = totals.reshape(2, -1, p).sum(axis=1) * _factors(p)
        return shares.reshape(2, -1, N_SUMS).sum(axis=1), n_missing
