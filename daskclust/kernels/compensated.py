"""Sums that do not depend on the order of their terms.

A running sum is kept as an unevaluated pair ``hi + lo`` (Knuth's two-sum), good
to about 32 digits.  Rounded to one double at the end, it no longer shows how
blocks were grouped, which worker came first or how many threads there were.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from daskclust._types import Floats
from daskclust.kernels.compiling import compiled

__all__ = ["add_pairs", "add_plain", "sum_terms"]


@compiled()
def _two_sum(a: float, b: float) -> tuple[float, float]:
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


@compiled()
def add_plain(hi: Floats, lo: Floats, term: Floats) -> None:
    """Add ``term`` to the running sum ``hi + lo``, in place (flat arrays of one length)."""
    for i in range(hi.size):
        total, error = _two_sum(hi[i], term[i])
        hi[i] = total
        lo[i] += error


def add_pairs(
    a: tuple[Floats, Floats],
    b: tuple[Floats, Floats],
) -> tuple[Floats, Floats]:
    """Sum of two running sums ``(hi, lo)``, each pair of equal shapes.

    Examples
    --------
    >>> import numpy as np
    >>> big, small, zero = np.array([1e16]), np.array([1.0]), np.zeros(1)
    >>> hi, lo = add_pairs(add_pairs((big, zero), (small, zero)), (-big, zero))
    >>> float(hi[0] + lo[0])
    1.0
    """
    total = a[0] + b[0]
    part = total - a[0]
    error = (a[0] - (total - part)) + (b[0] - part)
    lo = a[1] + b[1] + error
    # Renormalized so that `hi` alone is the sum rounded to double.
    hi = total + lo
    return hi, lo - (hi - total)


def sum_terms(terms: Iterable[Floats]) -> Floats:
    """Sum arrays of one shape (at least one array) to a stacked pair ``[hi, lo]``.

    Examples
    --------
    >>> import numpy as np
    >>> sum_terms([np.array([1.0, 2.0]), np.array([3.0, 4.0])])
    array([[4., 6.],
           [0., 0.]])
    """
    first, *others = (np.asarray(term, dtype=np.float64) for term in terms)
    zero = np.zeros_like(first)
    pair = first, zero
    for term in others:
        pair = add_pairs(pair, (term, zero))
    return np.stack(pair)
