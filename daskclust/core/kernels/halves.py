"""Two halves of a cluster: two-means, begun along the first principal direction."""

from __future__ import annotations

from typing import Any

import numpy as np

from daskclust.core.kernels.compiling import compiled

#: Power iterations for the principal direction, and iterations of two-means.
_POWER, _ITERATIONS = 4, 5

_SUMS = {"reassoc", "nsz", "contract"}


@compiled(fastmath=_SUMS)
def halve(x: Any, weight: Any, members: Any, halves: Any) -> float:
    """Split the rows `members` of x (m, p), weighted, in two; return by how much the cost falls.

    `halves` (2, p), float64, receives the means of the halves.  The cost falls by
    ``a b / (a + b) |u - v|^2`` for halves of weights a and b and means u and v.  It falls by 0 if
    the rows are equal or have no weight; then `halves` means nothing.  Cost ``O(m p)``.
    """
    p = x.shape[1]
    middle, direction, sums = np.zeros(p), np.zeros(p), np.zeros(p)
    total = 0.0
    for i in members:
        total += weight[i]
        for j in range(p):
            middle[j] += weight[i] * x[i, j]
    if not total > 0.0:
        return 0.0
    middle /= total
    most = 0.0
    for i in members:
        squared = 0.0
        for j in range(p):
            squared += (x[i, j] - middle[j]) ** 2
        if squared > most:
            most = squared
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
        length = np.sqrt((sums**2).sum())
        if not length > 0.0:
            return 0.0
        direction[:] = sums / length
    gain = 0.0
    for _ in range(_ITERATIONS):
        # Rows of one half lie on one side of the plane amid the means.
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
        found = weights[0] * weights[1] / total * apart
        if not found > gain:
            break
        gain = found
    return gain
