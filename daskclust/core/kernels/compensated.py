"""Sums that do not depend on the order of their terms.

A running sum is a pair ``hi + lo`` (Knuth's two-sum) with about 32 digits.  It is rounded to
float64 at the end, so it does not depend on the groups of blocks.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from daskclust.core.array_types import Array, Floats
from daskclust.core.kernels.compiling import compiled, inner


@inner()
def two_sum(a: float, b: float) -> tuple[float, float]:
    """Return a rounded sum and its rounding error."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


@compiled()
def add_plain(hi: Floats, lo: Floats, term: Floats) -> None:
    """Add ``term`` to the running sum ``hi + lo``, in place (flat arrays of equal length)."""
    for i in range(hi.size):
        total, error = two_sum(hi[i], term[i])
        hi[i] = total
        lo[i] += error


def add_pairs(a: tuple[Floats, Floats], b: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    """Return the sum of two running sums ``(hi, lo)`` of equal shapes."""
    total = a[0] + b[0]
    part = total - a[0]
    error = (a[0] - (total - part)) + (b[0] - part)
    lo = a[1] + b[1] + error
    # Normalized, so that `hi` is the sum rounded to double.
    hi = total + lo
    return hi, lo - (hi - total)


@compiled()
def _add_flat(a: Floats, b: Floats, out: Floats) -> None:
    for i in range(out.shape[1]):
        total, error = two_sum(a[0, i], b[0, i])
        lo = a[1, i] + b[1, i] + error
        out[0, i] = total + lo
        out[1, i] = lo - (out[0, i] - total)


def add_stacked(a: Array, b: Array) -> Array:
    """Return the sum of two running sums ``[hi, lo]`` of equal shape, in one loop."""
    out = np.empty(a.shape)
    _add_flat(a.reshape(2, -1), b.reshape(2, -1), out.reshape(2, -1))
    return out


def sum_terms(terms: Iterable[Floats]) -> Floats:
    """Sum at least one array of equal shapes to a stacked pair ``[hi, lo]``."""
    first, *others = (np.asarray(term, dtype=np.float64) for term in terms)
    zero = np.zeros_like(first)
    pair = first, zero
    for term in others:
        pair = add_pairs(pair, (term, zero))
    return np.stack(pair)


@inner(counted=False)
def _add_columns(hi, lo, c, column, terms, first, count):
    for j in range(count):
        total, error = two_sum(hi[c, column + j], terms[c, first + j])
        hi[c, column + j] = total
        lo[c, column + j] += error


@inner(counted=False)
def flush(hi, lo, sums, totals, n_kinds):
    """Add the plain sums of a segment to the compensated totals, and reset them to 0.

    The columns of `sums` are `n_kinds` groups of at least p columns: sums of values and, if
    `n_kinds` is 2, weights of the observed values.
    """
    p, width = (hi.shape[1] - totals.shape[1]) // n_kinds, sums.shape[1] // n_kinds
    for c in range(sums.shape[0]):
        if totals[c, 0] != 0.0:
            for kind in range(n_kinds):
                _add_columns(hi, lo, c, kind * p, sums, kind * width, p)
            _add_columns(hi, lo, c, n_kinds * p, totals, 0, totals.shape[1])
        for j in range(sums.shape[1]):
            sums[c, j] = 0.0
        for j in range(totals.shape[1]):
            totals[c, j] = 0.0
