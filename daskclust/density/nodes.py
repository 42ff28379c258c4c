"""Exact DBSCAN with a k-d tree, for any number of features.

If the bounds of a node show that all or none of its rows are neighbors, the rows are counted,
joined or skipped together.  Lists of neighbors are not stored.  Bounds are rounded like distances,
so the results are as exact as a comparison of all pairs of rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from sklearn.neighbors import KDTree

from daskclust.core.array_types import Array, Floats, Ints
from daskclust.core.kernels.compiling import compiled, inner
from daskclust.core.kernels.linkage import find_root

#: Approximate maximum number of rows of a leaf.
_LEAF = 16
#: Maximum number of nodes still to be visited: one for each level of the tree, and one more.
_DEPTH = 64


class Nodes(NamedTuple):
    """Rows in the order of a tree: node c contains the rows ``first[c]:stop[c]``.

    The children of node c are 2 c + 1 and 2 c + 2. ``low`` and ``high`` (nodes, p) bound the rows
    of each node. ``limit`` is the maximum squared distance of neighbors.
    """

    x: Floats
    first: Ints
    stop: Ints
    low: Floats
    high: Floats
    limit: float


def grow_nodes(x: Array, eps: float) -> tuple[Nodes, Ints]:
    """Return a tree of at least one row, and the order of its rows."""
    tree = KDTree(x, leaf_size=_LEAF)
    _, order, nodes, bounds = (np.asarray(array) for array in tree.get_arrays())
    x = np.ascontiguousarray(x[order], np.float64)
    first, stop = (np.ascontiguousarray(nodes[name]) for name in ("idx_start", "idx_end"))
    low, high = (np.ascontiguousarray(bound) for bound in bounds)
    return Nodes(x, first, stop, low, high, eps * eps), order


@inner()
def near(x: Array, i: int, j: int, limit: float) -> bool:
    """Return True if two rows are neighbors."""
    total = 0.0
    for f in range(x.shape[1]):
        d = x[i, f] - x[j, f]
        total += d * d
    return total <= limit


@inner()
def _lower_bound(nodes: Nodes, c: int, i: int) -> float:
    """Return a lower bound for the squared distance of row i to the rows of a node."""
    total = 0.0
    for f in range(nodes.x.shape[1]):
        value = nodes.x[i, f]
        d = max(nodes.low[c, f] - value, value - nodes.high[c, f], 0.0)
        total += d * d
        if total > nodes.limit:
            break
    return total


@inner()
def _are_all_near(nodes: Nodes, c: int, i: int) -> bool:
    total = 0.0
    for f in range(nodes.x.shape[1]):
        value = nodes.x[i, f]
        d = max(nodes.high[c, f] - value, value - nodes.low[c, f])
        total += d * d
        if total > nodes.limit:
            return False
    return True


@inner()
def _push_children(nodes: Nodes, c: int, i: int, waiting: Array, size: int) -> int:
    """Add the children of a node that may contain neighbors, the nearer child last."""
    nearer, farther = 2 * c + 1, 2 * c + 2
    a, b = _lower_bound(nodes, nearer, i), _lower_bound(nodes, farther, i)
    if b < a:
        nearer, farther, a, b = farther, nearer, b, a
    if b <= nodes.limit:
        waiting[size] = farther
        size += 1
    if a <= nodes.limit:
        waiting[size] = nearer
        size += 1
    return size


@compiled()
def weight_in_nodes(nodes: Nodes, weight: Array, selected: Array, min_weight: float) -> Array:
    """Return the weight of each selected row's neighbors; stop adding at `min_weight`."""
    x, first, stop, _, _, limit = nodes
    total = np.zeros(len(first))
    for c in range(len(first) - 1, -1, -1):
        if 2 * c + 2 < len(first):
            total[c] = total[2 * c + 1] + total[2 * c + 2]
        else:
            for i in range(first[c], stop[c]):
                total[c] += weight[i]
    out = np.zeros(len(x))
    waiting = np.empty(_DEPTH, np.int64)
    for i in range(len(x)):
        if not selected[i]:
            continue
        weight_sum = 0.0
        waiting[0] = 0
        size = 1
        while size and weight_sum < min_weight:
            size -= 1
            c = waiting[size]
            if _are_all_near(nodes, c, i):
                weight_sum += total[c]
            elif 2 * c + 2 < len(first):
                size = _push_children(nodes, c, i, waiting, size)
            else:
                for j in range(first[c], stop[c]):
                    if near(x, i, j, limit):
                        weight_sum += weight[j]
        out[i] = weight_sum
    return out


@inner()
def _common_root(parent: Array, nodes: Nodes, core: Array, c: int) -> int:
    """Return the root of all core rows of a leaf; -1 if roots differ, -2 without core rows."""
    root = -2
    for j in range(nodes.first[c], nodes.stop[c]):
        if core[j]:
            r = find_root(parent, j)
            if root == -2:
                root = r
            elif r != root:
                return -1
    return root


@inner()
def _climb(parent: Array, roots: Array, c: int) -> None:
    """Update the roots of the nodes above c."""
    while c > 0:
        c = (c - 1) // 2
        a, b = roots[2 * c + 1], roots[2 * c + 2]
        if a == -2 or b == -2:
            roots[c] = max(a, b)
        elif a >= 0 and b >= 0 and find_root(parent, a) == find_root(parent, b):
            roots[c] = a
        if roots[c] == -1:
            return


@compiled()
def join_in_nodes(nodes: Nodes, core: Array) -> Array:
    """Return the cluster of each core row, numbered by one of its rows; -1 for other rows."""
    x, first, stop, _, _, limit = nodes
    n, m = len(x), len(first)
    parent = np.arange(n)
    # For each node: one of its core rows if they are all in one cluster, -1 if they are in several
    # clusters, and -2 if the node has no core rows.
    roots = np.full(m, -1)
    for c in range(m - 1, -1, -1):
        if 2 * c + 2 < m:
            roots[c] = -2 if roots[2 * c + 1] == -2 and roots[2 * c + 2] == -2 else -1
        else:
            roots[c] = _common_root(parent, nodes, core, c)
    waiting = np.empty(_DEPTH, np.int64)
    leaf_of_row = np.empty(n, np.int64)
    for c in range(m):
        if 2 * c + 2 >= m:
            leaf_of_row[first[c] : stop[c]] = c
    # Each row is compared with the rows before it.
    for i in range(n):
        if core[i]:
            waiting[0] = 0
            size = 1
            while size:
                size -= 1
                c = waiting[size]
                if first[c] >= i or roots[c] == -2:
                    continue
                if roots[c] >= 0 and find_root(parent, roots[c]) == find_root(parent, i):
                    continue
                if _are_all_near(nodes, c, i):
                    if roots[c] >= 0:
                        parent[find_root(parent, roots[c])] = find_root(parent, i)
                    else:
                        for j in range(first[c], stop[c]):
                            if core[j]:
                                parent[find_root(parent, j)] = find_root(parent, i)
                        roots[c] = i
                elif 2 * c + 2 < m:
                    size = _push_children(nodes, c, i, waiting, size)
                else:
                    for j in range(first[c], min(stop[c], i)):
                        if core[j] and near(x, i, j, limit):
                            parent[find_root(parent, j)] = find_root(parent, i)
                            if roots[c] >= 0:
                                break
        if i + 1 == stop[leaf_of_row[i]]:
            roots[leaf_of_row[i]] = _common_root(parent, nodes, core, leaf_of_row[i])
            _climb(parent, roots, leaf_of_row[i])
    out = np.full(n, -1)
    for i in range(n):
        if core[i]:
            out[i] = find_root(parent, i)
    return out


@compiled()
def pairs_in_nodes(
    nodes: Nodes, in_box: Array, core_clusters: Array, rows: Array, clusters: Array
) -> int:
    """Write (row, cluster) pairs of the rows in the box, and return their number.

    ``core_clusters`` (n,) are the clusters of core rows, and -1 for other rows.  A border row has a
    pair for each of its clusters.  If the arrays are too short, pairs are only counted.
    """
    x, first, stop, _, _, limit = nodes
    waiting = np.empty(_DEPTH, np.int64)
    row_clusters = np.empty(16, np.int64)
    n = 0
    for i in range(len(x)):
        if not in_box[i]:
            continue
        n_row_clusters = 0
        if core_clusters[i] >= 0:
            row_clusters[0] = core_clusters[i]
            n_row_clusters = 1
        else:
            waiting[0] = 0
            size = 1
            while size:
                size -= 1
                c = waiting[size]
                if 2 * c + 2 < len(first):
                    size = _push_children(nodes, c, i, waiting, size)
                    continue
                for j in range(first[c], stop[c]):
                    if core_clusters[j] < 0:
                        continue
                    is_listed = False
                    for k in range(n_row_clusters):
                        is_listed |= row_clusters[k] == core_clusters[j]
                    if is_listed or not near(x, i, j, limit):
                        continue
                    if n_row_clusters == len(row_clusters):
                        row_clusters = np.append(row_clusters, np.empty(n_row_clusters, np.int64))
                    row_clusters[n_row_clusters] = core_clusters[j]
                    n_row_clusters += 1
        for k in range(n_row_clusters):
            if n < len(rows):
                rows[n] = i
                clusters[n] = row_clusters[k]
            n += 1
    return n
