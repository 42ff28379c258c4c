"""Exact DBSCAN of the rows of one box, and the splitting of space into boxes.

Rows of up to three features are sorted into a grid of cells.  Cells are so small that any two rows
of a cell are neighbors.  Therefore the core rows of a cell belong to one cluster, and all rows are
core rows if the cell has at least ``min_samples`` rows.  Neighbors are at most two cells apart.
Rows of more features are sorted into the nodes of a tree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from daskclust.core.array_types import Array, Bools, Floats, Ints
from daskclust.core.kernels.compiling import compiled, inner
from daskclust.core.kernels.linkage import find_root
from daskclust.density.nodes import (
    grow_nodes,
    join_in_nodes,
    near,
    pairs_in_nodes,
    weight_in_nodes,
)


@dataclass(frozen=True)
class BoxTree:
    """Binary tree of splits of space.  Each split uses one feature, and the leaves are boxes.

    ``axis`` (t,) is the feature of each split, or -1 for a box.  Rows below ``thresholds`` (t,) are
    on the left side.  ``left`` and ``right`` (t,) are the nodes of the two sides.  For a box, both
    are the number of the box.
    """

    axis: Ints
    thresholds: Floats
    left: Ints
    right: Ints

    def __len__(self) -> int:
        return int((self.axis < 0).sum())

    def bounds(self, p: int) -> tuple[Floats, Floats]:
        """Return the lower and upper bounds of the boxes (boxes, p); outer bounds are infinite."""
        low, high = np.full((len(self.axis), p), -np.inf), np.full((len(self.axis), p), np.inf)
        for node, f in enumerate(self.axis.tolist()):
            if f >= 0:
                sides = [self.left[node], self.right[node]]
                low[sides], high[sides] = low[node], high[node]
                high[sides[0], f] = low[sides[1], f] = self.thresholds[node]
        boxes = np.flatnonzero(self.axis < 0)
        boxes = boxes[np.argsort(self.left[boxes])]
        return low[boxes], high[boxes]

    def boxes_of_rows(self, x: Array, margin: float) -> tuple[Ints, Ints]:
        """Return pairs of a row and a box that contains it or is within `margin` of it."""
        nodes = (self.axis, self.thresholds, self.left, self.right)
        rows, boxes = np.empty((2, 0), np.int64)
        rows, boxes = np.empty((2, _boxes_of_rows(nodes, x, margin, rows, boxes)), np.int64)
        _boxes_of_rows(nodes, x, margin, rows, boxes)
        return rows, boxes


@compiled()
def _boxes_of_rows(nodes: Any, x: Array, margin: float, rows: Array, boxes: Array) -> int:
    """Write the pairs of rows and boxes, and return their number.

    If the arrays are too short, pairs are only counted.
    """
    axis, thresholds, left, right = nodes
    waiting = np.empty(len(axis) + 1, np.int64)
    n = 0
    for i in range(len(x)):
        waiting[0] = 0
        size = 1
        while size:
            size -= 1
            node = waiting[size]
            f = axis[node]
            if f < 0:
                if n < len(rows):
                    rows[n] = i
                    boxes[n] = left[node]
                n += 1
                continue
            value = float(x[i, f])
            if value >= thresholds[node] - margin:
                waiting[size] = right[node]
                size += 1
            if value < thresholds[node] + margin:
                waiting[size] = left[node]
                size += 1
    return n


#: Quantiles of a feature at which a box may be split.
_CUT_QUANTILES = np.linspace(0.25, 0.75, 21)


def grow_boxes(sample: Floats, rows_per_box: float, margin: float) -> BoxTree:
    """Split space until each box, with its margin, has at most `rows_per_box` rows of a sample.

    Rows within `margin` of a split are on both sides.  A box is not split if this would not save
    rows.
    """
    axis: list[int] = []
    thresholds: list[float] = []
    left: list[int] = []
    right: list[int] = []
    n_boxes = 0
    # Rows of one side of a split, the node that was split, and the list ``left`` or ``right``.
    waiting: list[tuple[Ints, int, list[int]]] = [(np.arange(len(sample)), -1, [])]
    while waiting:
        rows, parent, side = waiting.pop(0)
        node = len(axis)
        if parent >= 0:
            side[parent] = node
        f, cut = _cut(sample[rows], margin) if len(rows) > rows_per_box else (-1, 0.0)
        axis.append(f)
        thresholds.append(cut)
        left.append(n_boxes)
        right.append(n_boxes)
        if f < 0:
            n_boxes += 1
            continue
        values = sample[rows, f]
        waiting.append((rows[values < cut + margin], node, left))
        waiting.append((rows[values >= cut - margin], node, right))
    return BoxTree(np.array(axis), np.array(thresholds), np.array(left), np.array(right))


def _cut(x: Floats, margin: float) -> tuple[int, float]:
    """Return feature and threshold of the cheapest split, or feature -1 if no split saves rows.

    The cost is the number of rows on the fuller side plus the number of rows on both sides.
    """
    best, feature, threshold = float(len(x)), -1, 0.0
    for f in np.argsort(-np.ptp(x, axis=0), kind="stable"):
        values = np.sort(x[:, f])
        cuts = np.quantile(values, _CUT_QUANTILES)
        below = np.searchsorted(values, cuts + margin)
        above = len(x) - np.searchsorted(values, cuts - margin)
        costs = np.maximum(below, above) + (below + above - len(x))
        cheapest = int(np.argmin(costs))
        if costs[cheapest] < best:
            best, feature, threshold = float(costs[cheapest]), int(f), float(cuts[cheapest])
    return feature, threshold


#: Maximum number of cells along one feature.  Rounding errors of the positions of rows then stay
#: far below the tolerance of the size of a cell.
MOST_CELLS = 2.0**38
#: Fraction by which the size of cells is reduced, so that all rows of a cell are within `eps` in
#: spite of rounding.
_SLACK = 2.0**-10


@dataclass(frozen=True)
class BoxClusters:
    """Clusters of the rows in and around one box, numbered from 0.

    ``rows`` (m,) are positions of the rows of the box that belong to clusters; a border row occurs
    once for each of its clusters.  ``clusters`` (m,) are the clusters of ``rows``, and ``core``
    (m,) marks core rows.  ``first_core_rows`` (k,) is the smallest row number of the core rows of
    each cluster.  ``shared`` (s,) are positions of core rows that other boxes also contain, and
    ``owners`` (s,) are the clusters of these rows.
    """

    rows: Ints
    clusters: Ints
    core: Bools
    first_core_rows: Ints
    shared: Ints
    owners: Ints


class _Grid(NamedTuple):
    """Rows sorted by cell: cell c contains the rows ``first[c]:first[c + 1]``.

    ``adjacent`` (c, s) are the cells around each cell, or -1.  ``limit`` is the maximum squared
    distance of neighbors.
    """

    x: Floats
    first: Ints
    adjacent: Array
    limit: float


@inner()
def _find(keys: Array, key: int) -> int:
    low, high = 0, len(keys)
    while low < high:
        middle = (low + high) // 2
        if keys[middle] < key:
            low = middle + 1
        else:
            high = middle
    return low if low < len(keys) and keys[low] == key else -1


@compiled()
def _neighbors(keys: Array, ranks: Array, shifts: Array, steps: Array, sizes: Array) -> Array:
    """Return the cell at each shift (s, p) from each cell, or -1 if it has no rows.

    ``keys`` (c,) are sorted.  ``ranks`` (c, p) are ranks of the coordinates of the cells.
    ``steps`` (p, 5, ranks) is the rank of the coordinate that is -2 to 2 steps away, or -1.
    """
    out = np.empty((len(keys), len(shifts)), np.int32)
    for c in range(len(keys)):
        for s in range(len(shifts)):
            key = 0
            for f in range(ranks.shape[1]):
                rank = steps[f, shifts[s, f] + 2, ranks[c, f]]
                if rank < 0:
                    key = -1
                    break
                key = key * sizes[f] + rank
            out[c, s] = _find(keys, key) if key >= 0 else -1
    return out


@compiled()
def _weight_around(grid: _Grid, weight: Array, selected: Array, min_weight: float) -> Array:
    """Return the weight of each selected row's neighbors; stop adding at `min_weight`."""
    x, first, adjacent, limit = grid
    out = np.zeros(len(x))
    for c in range(len(first) - 1):
        cell_weight = 0.0
        for i in range(first[c], first[c + 1]):
            cell_weight += weight[i]
        for i in range(first[c], first[c + 1]):
            if not selected[i]:
                continue
            weight_sum = cell_weight
            for s in range(adjacent.shape[1]):
                if weight_sum >= min_weight:
                    break
                d = adjacent[c, s]
                if d >= 0:
                    for j in range(first[d], first[d + 1]):
                        if near(x, i, j, limit):
                            weight_sum += weight[j]
                            if weight_sum >= min_weight:
                                break
            out[i] = weight_sum
    return out


@compiled()
def _join_cells(grid: _Grid, core: Array) -> Array:
    """Return the cluster of each core row, numbered by one of its cells; -1 for other rows."""
    x, first, adjacent, limit = grid
    n, p = len(first) - 1, x.shape[1]
    parent = np.arange(n)
    has_core = np.zeros(n, np.bool_)
    low = np.full((n, p), np.inf)
    high = np.full((n, p), -np.inf)
    for c in range(n):
        for i in range(first[c], first[c + 1]):
            if core[i]:
                has_core[c] = True
                for f in range(p):
                    low[c, f] = min(low[c, f], x[i, f])
                    high[c, f] = max(high[c, f], x[i, f])
    # The nearest cells come first.  Most pairs of other cells are then already connected.
    for s in range(adjacent.shape[1]):
        for c in range(n):
            d = adjacent[c, s]
            if d < 0 or not has_core[c] or not has_core[d]:
                continue
            a, b = find_root(parent, c), find_root(parent, d)
            if a == b:
                continue
            joined = False
            for i in range(first[c], first[c + 1]):
                if not core[i]:
                    continue
                squared_distance = 0.0
                for f in range(p):
                    gap = max(low[d, f] - x[i, f], x[i, f] - high[d, f], 0.0)
                    squared_distance += gap * gap
                if squared_distance > limit:
                    continue
                for j in range(first[d], first[d + 1]):
                    if core[j] and near(x, i, j, limit):
                        joined = True
                        break
                if joined:
                    break
            if joined:
                parent[max(a, b)] = min(a, b)
    out = np.full(len(x), -1)
    for c in range(n):
        for i in range(first[c], first[c + 1]):
            if core[i]:
                out[i] = find_root(parent, c)
    return out


@compiled()
def _pairs_on_grid(
    grid: _Grid, in_box: Array, core_clusters: Array, rows: Array, clusters: Array
) -> int:
    """Write (row, cluster) pairs of the rows in the box, and return their number.

    ``core_clusters`` (n,) are the clusters of core rows, and -1 for other rows.  If the arrays are
    too short, pairs are only counted.
    """
    x, first, adjacent, limit = grid
    cell_clusters = np.full(len(first) - 1, -1)
    for c in range(len(cell_clusters)):
        for i in range(first[c], first[c + 1]):
            cell_clusters[c] = max(cell_clusters[c], core_clusters[i])
    row_clusters = np.empty(adjacent.shape[1] + 1, np.int64)
    n = 0
    for c in range(len(cell_clusters)):
        for i in range(first[c], first[c + 1]):
            if not in_box[i]:
                continue
            size = 0
            if cell_clusters[c] >= 0:
                # All rows of a cell are neighbors of its core rows.
                row_clusters[0] = cell_clusters[c]
                size = 1
            if core_clusters[i] < 0:
                for s in range(adjacent.shape[1]):
                    d = adjacent[c, s]
                    if d < 0 or cell_clusters[d] < 0:
                        continue
                    is_listed = False
                    for k in range(size):
                        is_listed |= row_clusters[k] == cell_clusters[d]
                    if is_listed:
                        continue
                    for j in range(first[d], first[d + 1]):
                        if core_clusters[j] >= 0 and near(x, i, j, limit):
                            row_clusters[size] = cell_clusters[d]
                            size += 1
                            break
            for k in range(size):
                if n < len(rows):
                    rows[n] = i
                    clusters[n] = row_clusters[k]
                n += 1
    return n


#: Functions for a grid and for a tree: weights of neighbors, clusters of core rows, clusters of
#: all rows.
_ON_GRID = _weight_around, _join_cells, _pairs_on_grid
_IN_NODES = weight_in_nodes, join_in_nodes, pairs_in_nodes
#: Maximum number of features for a grid.  With three features, 124 cells surround each cell.
MOST_ON_GRID = 3


def _shifts(p: int) -> Ints:
    """Return the offsets of all cells that may contain neighbors, the nearest cells first."""
    steps = np.stack(np.meshgrid(*[np.arange(-2, 3)] * p, indexing="ij"), axis=-1).reshape(-1, p)
    steps = steps[steps.any(axis=1)]
    # Cells two steps apart in each feature are included: one diagonal of a cell separates them,
    # which is slightly less than eps.
    return np.asarray(steps[np.argsort((steps**2).sum(axis=1), kind="stable")])


def _sorted_by_cell(x: Array, origin: Floats, eps: float) -> tuple[_Grid, Ints]:
    """Sort rows into cells; return the cells and the order of the rows."""
    n, p = x.shape
    x = np.ascontiguousarray(x, np.float64)
    side = eps / np.sqrt(p) * (1.0 - _SLACK)
    cells = np.floor((x - origin) / side).astype(np.int64)
    ranks = np.empty_like(cells)
    values, sizes = [], np.empty(p, np.int64)
    for f in range(p):
        coordinates, ranks[:, f] = np.unique(cells[:, f], return_inverse=True)
        values.append(coordinates)
        sizes[f] = len(coordinates)
    keys = np.zeros(n, np.int64)
    for f in range(p):
        keys = keys * sizes[f] + ranks[:, f]
    order = np.argsort(keys, kind="stable")
    keys, first = np.unique(keys[order], return_index=True)
    heads = order[first]
    first = np.append(first, n)
    steps = np.full((p, 5, int(sizes.max())), -1)
    for f, coordinates in enumerate(values):
        for step in range(-2, 3):
            rank = np.searchsorted(coordinates, coordinates + step)
            exists = rank < len(coordinates)
            exists[exists] = coordinates[rank[exists]] == coordinates[exists] + step
            steps[f, step + 2, : len(coordinates)][exists] = rank[exists]
    adjacent = _neighbors(keys, ranks[heads], _shifts(p), steps, sizes)
    return _Grid(x[order], first, adjacent, eps * eps), order


def cluster_box(
    x: Array,
    numbers: Ints,
    weight: Floats | None,
    low: Floats,
    high: Floats,
    origin: Floats,
    eps: float,
    min_samples: float,
) -> BoxClusters:
    """Find the clusters of the rows in a box.

    ``x`` are the rows in the box and within ``2 eps`` of it, and ``numbers`` are their row numbers
    in the data.  The lower bounds ``low`` belong to the box, the upper bounds ``high`` do not.  All
    boxes use the same ``origin`` of the grid.
    """
    if not len(x):
        no_rows = np.empty(0, np.int64)
        return BoxClusters(no_rows, no_rows, no_rows.astype(bool), no_rows, no_rows, no_rows)
    on_grid = x.shape[1] <= MOST_ON_GRID
    grid, order = _sorted_by_cell(x, origin, eps) if on_grid else grow_nodes(x, eps)
    x, numbers = grid.x, numbers[order]
    weights = np.ones(len(x)) if weight is None else weight[order]
    margin = _margin(eps, low, high)
    in_box = ((x >= low) & (x < high)).all(axis=1)
    is_complete = ((x >= low - margin) & (x < high + margin)).all(axis=1)
    is_complete &= weights > 0.0  # Rows of weight 0 are not core rows.
    weigh, join, list_pairs = _ON_GRID if on_grid else _IN_NODES
    # The tolerance covers rounding errors of sums, which depend on the order of the rows.
    min_weight = min_samples if weight is None else min_samples * (1.0 - 1e-12)
    core = weigh(grid, weights, is_complete, min_weight) >= min_weight
    core_clusters = join(grid, core)
    rows, clusters = np.empty((2, 0), np.int64)
    rows, clusters = np.empty(
        (2, list_pairs(grid, in_box, core_clusters, rows, clusters)), np.int64
    )
    list_pairs(grid, in_box, core_clusters, rows, clusters)
    cluster_numbers = np.zeros(len(x), np.int64)
    cluster_numbers[core_clusters[core]] = 1
    first_core_rows = np.full(int(cluster_numbers.sum()), np.iinfo(np.int64).max)
    cluster_numbers = cluster_numbers.cumsum() - 1
    np.minimum.at(first_core_rows, cluster_numbers[core_clusters[core]], numbers[core])
    # Core rows that other boxes also contain: outside this box, or close to its bounds.
    inside = ((x >= low + margin) & (x < high - margin)).all(axis=1)
    shared = np.flatnonzero(core & ~inside)
    return BoxClusters(
        order[rows],
        cluster_numbers[clusters],
        core[rows],
        first_core_rows,
        order[shared],
        cluster_numbers[core_clusters[shared]],
    )


def count_neighbors(
    x: Array, low: Floats, high: Floats, origin: Floats, eps: float
) -> tuple[Ints, Floats]:
    """Return the positions of the rows in a box, and the number of neighbors of each."""
    if not len(x):
        return np.empty(0, np.int64), np.empty(0)
    on_grid = x.shape[1] <= MOST_ON_GRID
    grid, order = _sorted_by_cell(x, origin, eps) if on_grid else grow_nodes(x, eps)
    weigh, _, _ = _ON_GRID if on_grid else _IN_NODES
    in_box = ((grid.x >= low) & (grid.x < high)).all(axis=1)
    return order[in_box], weigh(grid, np.ones(len(x)), in_box, np.inf)[in_box]


def _margin(eps: float, low: Floats, high: Floats) -> float:
    bounds = np.abs(np.concatenate([low, high]))
    largest = float(bounds[np.isfinite(bounds)].max(initial=0.0))
    return eps * (1.0 + 1e-9) + 4.0 * float(np.spacing(largest))
