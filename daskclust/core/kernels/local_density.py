"""Density of the data around each row, for the initializations DKM++ and ROBIN.

The functions use all pairs of some thousands of rows:  O(m^2 p) time, O(m p) memory.  Distances are
direct differences in float64, summed feature by feature.  They have the same bits for both orders
of two rows, and ties are decided as in the published programs.

A weight is a count: a row of weight 2 is two equal rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Floats
from daskclust.core.kernels.compiling import compiled

#: Number of sums that stay in the first-level cache.
_CACHED = 1024


class LocalDensity(NamedTuple):
    """``density`` (m,) is the sum of ``exp(-d / radius)`` over the other rows within the radius.

    ``radius`` and the ascending ``edges`` of the spanning tree are fractions of the ``largest``
    distance.
    """

    density: Floats
    radius: float
    edges: Floats
    counts: Floats
    largest: float


def _columns(x: NDArray) -> Floats:
    return np.ascontiguousarray(np.asarray(x, dtype=np.float64).T)


@compiled()
def _distances_from(columns: Floats, i: int, out: Floats) -> None:
    """Compute distances of row i to the first ``len(out)`` rows; ``columns`` is (p, m)."""
    # The rows are processed in tiles, so that the sums of a tile stay in the first-level cache.
    for start in range(0, len(out), _CACHED):
        part = out[start : start + _CACHED]
        part[:] = 0.0
        for column in columns:
            here, there = column[i], column[start : start + _CACHED]
            for j in range(len(part)):
                gap = there[j] - here
                part[j] += gap * gap
        for j in range(len(part)):
            part[j] = np.sqrt(part[j])


@compiled()
def _grow_tree(columns: Floats, edges: Floats, shortest: Floats) -> float:
    """Write the edges of Prim's tree and each row's shortest edge; return the largest distance.

    Rows at distance 0 have no edge.
    """
    m = columns.shape[1]
    best = np.full(m, np.inf)
    distances = np.empty(m)
    remaining = np.arange(1, m)
    largest = 0.0
    new = 0
    for step in range(m):
        _distances_from(columns, new, distances)
        shortest[new] = np.inf
        for j in range(m):
            d = distances[j]
            largest = max(largest, d)
            if d > 0.0:
                best[j] = min(best[j], d)
                shortest[new] = min(shortest[new], d)
        if step == m - 1:
            break
        nearest = 0
        for t in range(m - 1 - step):
            if best[remaining[t]] < best[remaining[nearest]]:
                nearest = t
        new = remaining[nearest]
        edges[step] = best[new]
        remaining[nearest] = remaining[m - 2 - step]
    return largest


@compiled()
def _densities(columns: Floats, weight: Floats, largest: float, radius: float, out: Floats) -> None:
    distances = np.empty(columns.shape[1])
    for i in range(columns.shape[1]):
        _distances_from(columns, i, distances[:i])
        for j in range(i):
            d = distances[j] / largest
            if d <= radius:
                near = np.exp(-d / radius)
                out[i] += weight[j] * near
                out[j] += weight[i] * near


def weighted_quantile(values: Floats, counts: Floats, q: float) -> float:
    """Return a quantile by Hazen's rule of ascending values that occur ``counts`` times.

    It equals ``numpy.quantile(repeated, q, method="hazen")`` for integer counts.
    """
    ends = np.cumsum(counts)
    # Copies of a value are at begin + 1/2, ..., end - 1/2 on a line of length sum(counts).
    low, high = ends - counts + 0.5, ends - 0.5
    positions = np.stack([np.minimum(low, high), np.maximum(low, high)], axis=1).ravel()
    return float(np.interp(q * ends[-1], positions, np.repeat(values, 2)))


def local_densities(x: NDArray, weight: Floats) -> LocalDensity:
    """Return local densities within a radius from a spanning tree (DKM++).

    The radius is the longest edge of the minimum spanning tree that is not an outlier,
    ``min(max, Q3 + 3 (Q3 - Q1))`` of the lengths, with quartiles by Hazen's rule.

    Nidheesh, N., Abdul Nazeer, K., Ameer, P. (2017). An enhanced deterministic k-means clustering
    algorithm for cancer subtype prediction from gene expression data. Computers in Biology and
    Medicine 91.
    """
    columns = _columns(x)
    m = len(x)
    edges, shortest = np.empty(m - 1), np.empty(m)
    largest = float(_grow_tree(columns, edges, shortest))
    # A row of weight w has w - 1 copies, which are neighbors at distance 0.
    density = weight - 1.0
    if largest == 0:
        return LocalDensity(density + weight.sum() - weight, 0.0, np.empty(0), np.empty(0), 0.0)
    # Each copy of a row is attached by that row's shortest edge.
    copies = np.maximum(weight - 1.0, 0.0)
    lengths = np.concatenate([edges, shortest]) / largest
    counts = np.concatenate([np.ones(m - 1), copies])
    order = np.argsort(lengths, kind="stable")
    order = order[counts[order] > 0]
    lengths, counts = lengths[order], counts[order]
    first, third = (weighted_quantile(lengths, counts, q) for q in (0.25, 0.75))
    radius = min(float(lengths[-1]), third + 3 * (third - first))
    _densities(columns, np.ascontiguousarray(weight), largest, radius, density)
    return LocalDensity(density, radius, lengths, counts, largest)


@compiled()
def _reach(
    distances: Floats, weight: Floats, i: int, k: float, near: Floats, mass: Floats
) -> float:
    """Return the smallest distance within which row i has neighbors of mass k."""
    size, total = 0, 0.0
    for j in range(len(distances)):
        w = weight[j] - 1.0 if j == i else weight[j]
        d = distances[j]
        if w <= 0.0 or (total >= k and d >= near[size - 1]):
            continue
        position = size
        while position > 0 and near[position - 1] > d:
            near[position], mass[position] = near[position - 1], mass[position - 1]
            position -= 1
        near[position], mass[position] = d, w
        size += 1
        total += w
        while total - mass[size - 1] >= k:
            size -= 1
            total -= mass[size]
    return near[size - 1] if size else 0.0


@compiled()
def _outlier_factors(columns: Floats, weight: Floats, k: float, out: Floats) -> None:
    m = columns.shape[1]
    reach, mean = np.empty(m), np.empty(m)
    distances, near, mass = np.empty(m), np.empty(m), np.empty(m)
    for i in range(m):
        _distances_from(columns, i, distances)
        reach[i] = _reach(distances, weight, i, k, near, mass)
        total, count = 0.0, weight[i] - 1.0
        for j in range(m):
            if j != i and distances[j] <= reach[i]:
                total += weight[j] * distances[j]
                count += weight[j]
        mean[i] = total / count if count > 0.0 else 0.0
    for i in range(m):
        _distances_from(columns, i, distances)
        # Copies of the row have the same density.
        total = count = weight[i] - 1.0
        for j in range(m):
            if j != i and distances[j] <= reach[i]:
                count += weight[j]
                if mean[j] > 0.0:
                    total += weight[j] * (mean[i] / mean[j])
                elif mean[i] == 0.0:
                    total += weight[j]
                else:
                    total = np.inf
        out[i] = total / count if count > 0.0 else 1.0


def local_outlier_factors(x: NDArray, weight: Floats, n_neighbors: int = 10) -> Floats:
    """Return local outlier factors by average relative density (ROBIN).

    The density of a row is the inverse of the mean distance of its neighbors: the ``n_neighbors``
    nearest other rows, and rows at the distance of the last one.  The factor is the mean density of
    the neighbors divided by the density of the row.  It is infinite if all neighbors of a neighbor
    equal it, but the row does not.

    Al Hasan, M., Chaoji, V., Salem, S., Zaki, M. (2009). Robust partitional clustering by outlier
    and density insensitive seeding. Pattern Recognition Letters 30.
    """
    out = np.empty(len(x))
    _outlier_factors(_columns(x), np.ascontiguousarray(weight), float(n_neighbors), out)
    return out
