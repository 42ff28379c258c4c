"""Neighbors of rows within a distance, by a k-d tree, for any number of features.

The rows of a node are counted, joined or skipped together if the bounds of the node decide. Lists
of neighbors are not stored. The bounds are rounded like the distances, so that each result equals
the result of a comparison of all pairs of rows.
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
#: Maximum number of waiting nodes: one for each level of the tree, and one more.
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
    _, order, nodes, bounds = (np.asarray(part) for part in tree.get_arrays())
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
def _least(nodes: Nodes, c: int, i: int) -> float:
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
    """Add the children of a node that may hold neighbors, the nearer one last."""
    one, other = 2 * c + 1, 2 * c + 2
    a, b = _least(nodes, one, i), _least(nodes, other, i)
    if b < a:
        one, other, a, b = other, one, b, a
    if b <= nodes.limit:
        waiting[size] = other
        size += 1
    if a <= nodes.limit:
        waiting[size] = one
        size += 1
    return size


@compiled()
def weight_in_nodes(nodes: Nodes, weight: Array, wanted: Array, least: float) -> Array:
    """Return the weight of the neighbors of wanted rows; a sum stops when it reaches `least`."""
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
        if not wanted[i]:
            continue
        found = 0.0
        waiting[0] = 0
        size = 1
        while size and found < least:
            size -= 1
            c = waiting[size]
            if _are_all_near(nodes, c, i):
                found += total[c]
            elif 2 * c + 2 < len(first):
                size = _push_children(nodes, c, i, waiting, size)
            else:
                for j in range(first[c], stop[c]):
                    if near(x, i, j, limit):
                        found += weight[j]
        out[i] = found
    return out


@inner()
def _common_root(parent: Array, nodes: Nodes, core: Array, c: int) -> int:
    """Return the root of all core rows of a leaf; -1 for different roots, -2 without core rows."""
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
def _climb(parent: Array, one: Array, c: int) -> None:
    """Update the common roots of the nodes above c."""
    while c > 0:
        c = (c - 1) // 2
        a, b = one[2 * c + 1], one[2 * c + 2]
        if a == -2 or b == -2:
            one[c] = max(a, b)
        elif a >= 0 and b >= 0 and find_root(parent, a) == find_root(parent, b):
            one[c] = a
        if one[c] == -1:
            return


@compiled()
def join_in_nodes(nodes: Nodes, core: Array) -> Array:
    """Return the cluster of each core row, numbered by one of its rows; -1 for other rows."""
    x, first, stop, _, _, limit = nodes
    n, m = len(x), len(first)
    parent = np.arange(n)
    # For each node: a core row if all core rows are in one cluster, else -1; -2 without core rows.
    one = np.full(m, -1)
    for c in range(m - 1, -1, -1):
        if 2 * c + 2 < m:
            one[c] = -2 if one[2 * c + 1] == -2 and one[2 * c + 2] == -2 else -1
        else:
            one[c] = _common_root(parent, nodes, core, c)
    waiting = np.empty(_DEPTH, np.int64)
    leaf_of = np.empty(n, np.int64)
    for c in range(m):
        if 2 * c + 2 >= m:
            leaf_of[first[c] : stop[c]] = c
    # Each row is compared with the rows before it.
    for i in range(n):
        if core[i]:
            waiting[0] = 0
            size = 1
            while size:
                size -= 1
                c = waiting[size]
                if first[c] >= i or one[c] == -2:
                    continue
                if one[c] >= 0 and find_root(parent, one[c]) == find_root(parent, i):
                    continue
                if _are_all_near(nodes, c, i):
                    if one[c] >= 0:
                        parent[find_root(parent, one[c])] = find_root(parent, i)
                    else:
                        for j in range(first[c], stop[c]):
                            if core[j]:
                                parent[find_root(parent, j)] = find_root(parent, i)
                        one[c] = i
                elif 2 * c + 2 < m:
                    size = _push_children(nodes, c, i, waiting, size)
                else:
                    for j in range(first[c], min(stop[c], i)):
                        if core[j] and near(x, i, j, limit):
                            parent[find_root(parent, j)] = find_root(parent, i)
                            if one[c] >= 0:
                                break
        if i + 1 == stop[leaf_of[i]]:
            one[leaf_of[i]] = _common_root(parent, nodes, core, leaf_of[i])
            _climb(parent, one, leaf_of[i])
    out = np.full(n, -1)
    for i in range(n):
        if core[i]:
            out[i] = find_root(parent, i)
    return out


@compiled()
def name_in_nodes(nodes: Nodes, own: Array, owner: Array, rows: Array, clusters: Array) -> int:
    """Write (row, cluster) of wanted rows, or only count them; a border row may have several."""
    x, first, stop, _, _, limit = nodes
    waiting = np.empty(_DEPTH, np.int64)
    seen = np.empty(16, np.int64)
    n = 0
    for i in range(len(x)):
        if not own[i]:
            continue
        n_seen = 0
        if owner[i] >= 0:
            seen[0] = owner[i]
            n_seen = 1
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
                    if owner[j] < 0:
                        continue
                    known = False
                    for k in range(n_seen):
                        known |= seen[k] == owner[j]
                    if known or not near(x, i, j, limit):
                        continue
                    if n_seen == len(seen):
                        seen = np.append(seen, np.empty(n_seen, np.int64))
                    seen[n_seen] = owner[j]
                    n_seen += 1
        for k in range(n_seen):
            if n < len(rows):
                rows[n] = i
                clusters[n] = seen[k]
            n += 1
    return n
