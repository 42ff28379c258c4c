"""Weighted means of the values at the nearest nodes of rows; nearer nodes weigh more."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Floats
from daskclust.core.kernels.compiling import compiled, read_only


@compiled(counted=False)
def _weigh(distances: Any, weights: Any) -> None:
    n, m = weights.shape
    for i in range(n):
        # Without a further neighbor, the last one defines the scale, and has weight 0.
        last, present = 0.0, 0
        for j in range(m + 1):
            if distances[i, j] < np.inf:
                last = max(last, distances[i, j])
                present = j + 1
        present = min(present, m)
        total = 0.0
        for j in range(m):
            weights[i, j] = 0.0
            if j < present:
                weights[i, j] = 1.0 - distances[i, j] / last if last > 0 else 1.0
            total += weights[i, j]
        for j in range(present):
            weights[i, j] = weights[i, j] / total if total > 0 else 1.0 / present


@compiled(counted=False)
def _add(weights: Any, indices: Any, values: Any, out: Any) -> None:
    n, m = weights.shape
    for i in range(n):
        for j in range(m):
            weight = weights[i, j]
            if weight > 0:
                node = np.uintp(indices[i, j])
                for c in range(values.shape[1]):
                    out[i, c] += weight * values[node, c]


def near_weights(distances: Floats) -> Floats:
    """Return the weights of all neighbors except the last one, which defines the scale.

    They are ``1 - d_j^2 / d_m^2``, scaled to a sum of 1.  The weight of a neighbor decreases to 0
    before another one replaces it, so that the result is continuous.  Squared distances ascend.
    """
    weights = np.empty((len(distances), distances.shape[1] - 1))
    _weigh(read_only(np.ascontiguousarray(distances)), weights)
    return weights


def weighted_values(distances: Floats, indices: NDArray[Any], values: Floats) -> Floats:
    """Return the means (n, c) of the values (k, c) of near nodes, with :func:`near_weights`.

    A single neighbor has weight 1.  Missing neighbors have infinite distances.
    """
    n, m = distances.shape
    weights = np.ones((n, 1)) if m == 1 else near_weights(distances)
    out = np.zeros((n, values.shape[1]))
    _add(
        read_only(weights),
        read_only(np.ascontiguousarray(indices[:, : weights.shape[1]], dtype=np.int64)),
        read_only(np.ascontiguousarray(values)),
        out,
    )
    return out
