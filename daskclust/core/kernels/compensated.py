"""Sums that do not depend on the order of their terms.

A running sum is an unevaluated pair ``hi + lo`` (Knuth's two-sum), good to about 32 digits.
Rounded to one double at the end, it no longer shows how blocks were grouped.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from daskclust.core.array_types import Array, Floats
from daskclust.core.kernels.compiling import compiled, inner


@compiled()
def two_sum(a: float, b: float) -> tuple[float, float]:
    """Return a sum, rounded, and what rounding took of it."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


@compiled()
def add_plain(hi: Floats, lo: Floats, term: Floats) -> None:
    """Add ``term`` to the running sum ``hi + lo``, in place (flat arrays of one length)."""
    for i in range(hi.size):
        total, error = two_sum(hi[i], term[i])
        hi[i] = total
        lo[i] += error


def add_pairs(a: tuple[Floats, Floats], b: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    """Sum of two running sums ``(hi, lo)``, each pair of equal shapes."""
    total = a[0] + b[0]
    part = total - a[0]
    error = (a[0] - (total - part)) + (b[0] - part)
    lo = a[1] + b[1] + error
    # Renormalized so that `hi` alone is the sum rounded to double.
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
    """As :func:`add_pairs`, of arrays ``[hi, lo]`` of one shape, in one sweep."""
    out = np.empty(a.shape)
    _add_flat(a.reshape(2, -1), b.reshape(2, -1), out.reshape(2, -1))
    return out


def sum_terms(terms: Iterable[Floats]) -> Floats:
    """Sum arrays of one shape (at least one array) to a stacked pair ``[hi, lo]``."""
    first, *others = (np.asarray(term, dtype=np.float64) for term in terms)
    zero = np.zeros_like(first)
    pair = first, zero
    for term in others:
        pair = add_pairs(pair, (term, zero))
    return np.stack(pair)


@inner(counted=False)
def flush(hi, lo, sums, totals, halves):
    """Add a segment's plain sums to the compensated totals, and start the next at 0.

    Of p sums of values, or of these and their masses: two halves, each as long as p or more.
    """
    p, width = (hi.shape[1] - totals.shape[1]) // halves, sums.shape[1] // halves
    for c in range(sums.shape[0]):
        if totals[c, 0] != 0.0:
            for h in range(halves):
                own, part = slice(h * p, (h + 1) * p), sums[c, h * width : h * width + p]
                add_plain(hi[c, own], lo[c, own], part)
            add_plain(hi[c, halves * p :], lo[c, halves * p :], totals[c])
        sums[c] = 0.0
        totals[c] = 0.0
