"""Swaps of centers: two clusters are merged and a third one is split if that lowers the cost.

Lloyd's iterations do not move a center from one group of rows to another.  In a poor local
optimum, one center serves two groups while two centers share a third.  A swap repairs that.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from daskclust.core.array_types import Array, Floats
from daskclust.core.engine import side_by_side
from daskclust.core.kernels.halves import halve
from daskclust.core.kernels.nearest.assign import cluster_points, nearest

#: Number of iterations after a swap.
_ITERATIONS = 5
#: Number of failed single swaps after which the search ends.
_FAILURES = 3
#: Number of multiplications of a search that is cheap in any case.
CHEAP = 2**28
#: Minimum fraction by which a swap must lower the cost.
_GAIN = 1e-5


@dataclass(frozen=True)
class WeightedRows:
    """Rows (m, p) with their weights (m,), and a point `shift` (p,) near them."""

    x: Array
    weight: Floats
    shift: Floats

    def iterate(self, centers: Floats, max_iter: int) -> tuple[Floats, float]:
        """Return the centers after some iterations of Lloyd, and their cost."""
        return cluster_points(self.x, self.weight, centers, max_iter=max_iter, shift=self.shift)


def _propose(
    rows: WeightedRows, centers: Floats, limit: int, forbidden: set[int]
) -> tuple[Floats, list[int]]:
    """Return centers after the best swaps, at most `limit`, and the clusters that were split."""
    k = len(centers)
    labels = nearest(rows.x, centers, shift=rows.shift)[0]
    order = np.argsort(labels, kind="stable")
    bounds = np.searchsorted(labels[order], np.arange(k + 1))
    halves = np.empty((k, 2, rows.x.shape[1]))
    gains = np.array(
        side_by_side(
            [
                partial(halve, rows.x, rows.weight, order[bounds[i] : bounds[i + 1]], halves[i])
                for i in range(k)
            ]
        )
    )
    gains[list(forbidden)] = 0.0
    mass = np.bincount(labels, rows.weight, k)
    # The cost of a merge (Ward).
    squared_distances = ((centers[:, None] - centers[None]) ** 2).sum(axis=-1)
    total = mass[:, None] + mass[None]
    price = np.divide(mass[:, None] * mass[None], total, out=np.zeros((k, k)), where=total > 0)
    left, right = np.triu_indices(k, 1)
    prices = (price * squared_distances)[left, right]
    pairs = np.argsort(prices, kind="stable")
    free, proposal = np.ones(k, bool), centers.copy()
    split_clusters: list[int] = []
    for i in np.argsort(-gains, kind="stable").tolist():
        if not gains[i] > 0.0 or len(split_clusters) == limit:
            break
        if not free[i]:
            continue
        usable = pairs[free[left[pairs]] & free[right[pairs]]]
        usable = usable[(left[usable] != i) & (right[usable] != i)]
        if not len(usable) or not gains[i] > prices[usable[0]]:
            break
        a, b = int(left[usable[0]]), int(right[usable[0]])
        if total[a, b] > 0:
            proposal[a] = (mass[a] * centers[a] + mass[b] * centers[b]) / total[a, b]
        proposal[b], proposal[i] = halves[i]
        free[[a, b, i]] = False
        split_clusters.append(i)
    return proposal, split_clusters


def products_per_swap(x: Array, k: int) -> int:
    """Return the multiplications that a swap of k centers takes on rows x."""
    return (_ITERATIONS + 1) * x.size * k


def improve_by_swaps(rows: WeightedRows, centers: Floats, n_products: int) -> tuple[Floats, float]:
    """Improve centers (k, p) by iterations of Lloyd and swaps; return the centers and their cost.

    The search ends after about `n_products` multiplications.
    """
    centers, cost = rows.iterate(centers, _ITERATIONS)
    limit, forbidden = len(centers), set[int]()
    for _ in range(n_products // products_per_swap(rows.x, len(centers))):
        if len(forbidden) == _FAILURES:
            break
        proposal, split = _propose(rows, centers, limit, forbidden)
        if not split:
            break
        new_centers, new_cost = rows.iterate(proposal, _ITERATIONS)
        if new_cost < (1.0 - _GAIN) * cost:
            centers, cost = new_centers, new_cost
            limit, forbidden = len(centers), set()
        elif len(split) > 1:
            limit = max(1, len(split) // 4)
        else:
            forbidden.update(split)
    return centers, cost
