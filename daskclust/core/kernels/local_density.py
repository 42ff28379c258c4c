"""How dense the data are about each row: what the DKM++ and ROBIN starts rest on.

Looks at all pairs of some thousands of rows: O(m^2 p) time, O(m p) memory.  Distances are direct
differences in float64, summed feature after feature: the same bits whichever of two rows comes
first, and those by which the published programs decide what ties.

A weight is a count: a row of weight 2 is two equal rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Floats
from daskclust.core.kernels.compiling import compiled

_CACHED = 1024


class LocalDensity(NamedTuple):
    """``density`` (m,) is the sum of ``exp(-d / radius)`` over the other rows within the radius.

    Radius and ascending ``edges`` of the spanning tree are in units of the ``largest`` distance.
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
    """Distances of row i to the first ``len(out)`` rows; ``columns`` is (p, m)."""
    # Sums of so many rows stay in the first-level cache.
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
    """Fill in edges of Prim's tree and each row's shortest; return the largest distance.

    Rows at distance 0 have no edge.
    """
    m = columns.shape[1]
    best = np.full(m, np.inf)
    distances = np.empty(m)
    waiting = np.arange(1, m)
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
            if best[waiting[t]] < best[waiting[nearest]]:
                nearest = t
        new = waiting[nearest]
        edges[step] = best[new]
        waiting[nearest] = waiting[m - 2 - step]
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
    """Quantile by Hazen's rule of ascending values that occur ``counts`` times.

    ``numpy.quantile(repeated, q, method="hazen")`` for whole counts.
    """
    ends = np.cumsum(counts)
    # Copies of a value stand at begin + 1/2, ..., end - 1/2 on a line of length sum(counts).
    low, high = ends - counts + 0.5, ends - 0.5
    places = np.stack([np.minimum(low, high), np.maximum(low, high)], axis=1).ravel()
    return float(np.interp(q * ends[-1], places, np.repeat(values, 2)))


def local_densities(x: NDArray, weight: Floats) -> LocalDensity:
    """Local densities within a radius that a spanning tree gives (DKM++).

    The radius is the longest edge of the minimum spanning tree that is no outlier,
    ``min(max, Q3 + 3 (Q3 - Q1))`` of the lengths, with quartiles by Hazen's rule.

    Nidheesh, N., Abdul Nazeer, K., Ameer, P. (2017). An enhanced deterministic k-means clustering
    algorithm for cancer subtype prediction from gene expression data. Computers in Biology and
    Medicine 91.
    """
    columns = _columns(x)
    m = len(x)
    edges, shortest = np.empty(m - 1), np.empty(m)
    largest = float(_grow_tree(columns, edges, shortest))
    # Each row also counts for its own copies, at distance 0.
    density = weight - 1.0
    if largest == 0:
        return LocalDensity(density + weight.sum() - weight, 0.0, np.empty(0), np.empty(0), 0.0)
    # A further copy of a row hangs on that row's shortest edge.
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
    """Return the least distance within which row i has neighbors of mass k."""
    size, total = 0, 0.0
    for j in range(len(distances)):
        w = weight[j] - 1.0 if j == i else weight[j]
        d = distances[j]
        if w <= 0.0 or (total >= k and d >= near[size - 1]):
            continue
        at = size
        while at > 0 and near[at - 1] > d:
            near[at], mass[at] = near[at - 1], mass[at - 1]
            at -= 1
        near[at], mass[at] = d, w
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
        # Its own copies are just as dense.
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
    """Local outlier factors by average relative density (ROBIN).

    The density of a row is the inverse of the mean distance of its neighbors: the ``n_neighbors``
    nearest other rows and those that tie with the last.  The factor is the mean density of the
    neighbors over the row's own, infinite for a row off a neighbor all of whose neighbors equal it.

    Al Hasan, M., Chaoji, V., Salem, S., Zaki, M. (2009). Robust partitional clustering by outlier
    and density insensitive seeding. Pattern Recognition Letters 30.
    """
    out = np.empty(len(x))
    _outlier_factors(_columns(x), np.ascontiguousarray(weight), float(n_neighbors), out)
    return out
