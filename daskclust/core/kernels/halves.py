"""Split a cluster in two by two-means, initialized along the first principal direction."""

from __future__ import annotations

from typing import Any

import numpy as np

from daskclust.core.kernels.compiling import compiled

#: Number of power iterations for the principal direction, and maximum iterations of two-means.
_POWER, _ITERATIONS = 4, 5

_SUMS = {"reassoc", "nsz", "contract"}


@compiled(fastmath=_SUMS)
def halve(x: Any, weight: Any, members: Any, halves: Any) -> float:
    """Split the weighted rows `members` of x (m, p) in two, and return the decrease of the cost.

    The means of the halves are written to `halves` (2, p), float64.  For halves of weights a and b
    and means u and v, the cost decreases by ``a b / (a + b) |u - v|^2``.  If the rows are equal or
    have no weight, the function returns 0, and `halves` is undefined.  The time is ``O(m p)``.
    """
    p = x.shape[1]
    # Loops compile in a fifth of the time of array expressions.
    middle, direction, sums = np.zeros(p), np.zeros(p), np.zeros(p)
    total = 0.0
    for i in members:
        total += weight[i]
        for j in range(p):
            middle[j] += weight[i] * x[i, j]
    if not total > 0.0:
        return 0.0
    for j in range(p):
        middle[j] /= total
    largest = 0.0
    for i in members:
        squared = 0.0
        for j in range(p):
            squared += (x[i, j] - middle[j]) ** 2
        if squared > largest:
            largest = squared
            for j in range(p):
                direction[j] = x[i, j] - middle[j]
    for _ in range(_POWER):
        sums[:] = 0.0
        for i in members:
            along = 0.0
            for j in range(p):
                along += (x[i, j] - middle[j]) * direction[j]
            along *= weight[i]
            for j in range(p):
                sums[j] += along * (x[i, j] - middle[j])
        squared = 0.0
        for j in range(p):
            squared += sums[j] ** 2
        length = np.sqrt(squared)
        if not length > 0.0:
            return 0.0
        for j in range(p):
            direction[j] = sums[j] / length
    gain = 0.0
    for _ in range(_ITERATIONS):
        # The plane midway between the means separates the halves.
        means = np.zeros((2, p))
        weights = np.zeros(2)
        for i in members:
            along = 0.0
            for j in range(p):
                along += (x[i, j] - middle[j]) * direction[j]
            side = 1 if along > 0.0 else 0
            weights[side] += weight[i]
            for j in range(p):
                means[side, j] += weight[i] * x[i, j]
        if not (weights[0] > 0.0 and weights[1] > 0.0):
            return 0.0
        apart = 0.0
        for j in range(p):
            left, right = means[0, j] / weights[0], means[1, j] / weights[1]
            halves[0, j], halves[1, j] = left, right
            middle[j], direction[j] = 0.5 * (left + right), right - left
            apart += direction[j] ** 2
        decrease = weights[0] * weights[1] / total * apart
        if not decrease > gain:
            break
        gain = decrease
    return gain
