"""Details of the published program that the package replaces by something better."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def bisection_threshold(scores: NDArray[np.float64], sparsity: float) -> float:
    """Threshold Delta as the published program finds it.

    Bisection of ``[0, max|gamma| - 1e-5]``, at most 15 halvings, ended early
    when the bracket is no wider than 1e-4; the midpoint is returned.  The
    tolerances are absolute, so the result depends on the unit of the data.
    """

    def ratio(delta: float) -> float:
        kept = np.maximum(np.abs(scores) - delta, 0.0)
        length = float(np.sqrt(np.sum(kept**2)))
        return float(np.sum(kept)) / length if length > 0 else 0.0

    if ratio(0.0) <= sparsity:
        return 0.0
    low, high = 0.0, float(np.max(np.abs(scores))) - 1e-5
    halvings = 0
    while halvings < 15 and high - low > 1e-4:
        middle = (low + high) / 2
        if ratio(middle) < sparsity:
            high = middle
        else:
            low = middle
        halvings += 1
    return (low + high) / 2
