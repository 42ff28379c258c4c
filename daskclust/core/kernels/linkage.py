"""Trees of weighted points: agglomerative linkage by chains of nearest neighbors.

A point represents rows and has their weight.  Distances between clusters are updated by the formula
of Lance and Williams, in the order of SciPy's loops, so that points of weight 1 give SciPy's tree,
including ties.  Trees are SciPy's linkage matrices: one row ``(a, b, height, number of points)``
per merge.

Memory for ``m^2 / 4`` distances of m points is allocated.  A cluster of several points has a row of
stored distances.  Distances of a single point are computed when they are needed, until the
distances of all remaining clusters fit into the memory.  Single linkage stores no distances.
Adjacency takes two bits per pair of points, and reduces the number of stored distances.

Genie (Gagolewski, Bartoszuk, Cena 2016) is single linkage that merges the smallest clusters first
when weights of clusters are too unequal.  It merges along the edges of the minimum spanning tree.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from daskclust.core.array_types import Array, Floats, Ints
from daskclust.core.kernels.compiling import compiled, inner

Linkage = Literal["ward", "average", "complete", "single", "genie"]
#: Linkages with the formula of Lance and Williams, in the order of their numbers in compiled code.
LINKAGES: tuple[Linkage, ...] = ("ward", "average", "complete", "single")
_AVERAGE, _COMPLETE, _SINGLE = 1, 2, 3
#: Fraction of the ``m^2 / 2`` distances (``4 m^2`` bytes) for which there is memory: half of them,
#: or less if the adjacency matrix takes ``m^2 / 8`` bytes.
_FULL_SHARE, _MATRIX_SHARE = 16 / 32, 15 / 32


@inner()
def find_root(parent: Ints, i: int) -> int:
    """Return the root of a node, and shorten its path (union-find)."""
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


@inner()
def _index(n: int, i: int, j: int) -> int:
    if i > j:
        i, j = j, i
    return n * i - (i * (i + 1)) // 2 + j - i - 1


@inner()
def _measure(x: int, points: Array, weights: Array, ward: bool, out: Array) -> None:
    """Write the heights of merges of a point with all other points; `points` are (p, m)."""
    p, n = points.shape
    out[:] = 0.0
    for f in range(p):
        value = points[f, x]
        for i in range(n):
            d = points[f, i] - value
            out[i] += d * d
    for i in range(n):
        out[i] = np.sqrt(out[i])
    if ward:
        for i in range(n):
            if weights[x] != 1.0 or weights[i] != 1.0:
                out[i] *= np.sqrt(2.0 * weights[x] * weights[i] / (weights[x] + weights[i]))


@inner()
def _row(x: int, leaves: Any, stored: Any, width: int, rows: int, alive: Array, out: Array) -> None:
    """Write the distances of a cluster to all other remaining clusters.

    The first `rows` rows of a condensed distance matrix of `width` clusters are stored.
    """
    points, weights, ward, starts, cannot_link = leaves
    d, positions, _ = stored
    position = positions[x]
    if position >= rows:
        _measure(x, points, weights, ward, out)
        for k in range(starts[x], starts[x + 1]):
            out[cannot_link[k]] = np.inf
    for i in range(len(positions)):
        if alive[i] and i != x and min(position, positions[i]) < rows:
            out[i] = d[_index(width, position, positions[i])]


@inner()
def _store_row(x: int, y: int, row: Array, stored: Any, width: int, rows: int, alive: Array) -> int:
    """Store the distances of `y`, the union of clusters `x` and `y`; return the number of rows."""
    d, positions, owner = stored
    if positions[y] >= rows:
        if positions[x] < rows:
            slot, moved = positions[x], x
        else:
            slot, moved = rows, owner[rows]
            for r in range(rows):
                d[_index(width, r, positions[y])] = d[_index(width, r, rows)]
            rows += 1
        positions[moved], owner[positions[y]] = positions[y], moved
        positions[y], owner[slot] = slot, y
    for i in range(len(positions)):
        if alive[i] and i != y:
            d[_index(width, positions[i], positions[y])] = row[i]
    return rows


@inner()
def _make_room(
    leaves: Any, stored: Any, width: int, rows: int, alive: Array, n_left: int, max_stored: int
) -> tuple[int, int]:
    """Make room for another row of distances; return the width and the number of stored rows.

    If the distances of all remaining clusters fit, all are stored.  Otherwise, if the memory is
    full, columns of merged clusters are removed.  This suffices: a row belongs to a cluster of at
    least two points, so rows take at most a sixth of the matrix.
    """
    d, positions, owner = stored
    n_rows_before, all_fit = rows, n_left <= max_stored
    if rows == width or (not all_fit and _index(width, rows, width - 1) < len(d)):
        return width, rows
    order = np.array([i for i in owner[:width] if alive[i]])
    rows = len(order) if all_fit else int(np.count_nonzero(positions[order] < rows))
    row = np.empty(len(positions))
    done = 0
    # Rows are read before they are overwritten, because stored rows come first.
    for k in range(rows):
        _row(order[k], leaves, stored, width, n_rows_before, alive, row)
        for i in order[k + 1 :]:
            d[done] = row[i]
            done += 1
    for k in range(len(order)):
        positions[order[k]] = k
        owner[k] = order[k]
    return len(order), rows


def _begin(
    points: Floats, weights: Floats, linkage: Linkage, cannot_link: Ints | None, share: float
) -> tuple[Any, Any, int]:
    """Return the points, buffers for distances, and the number of clusters whose distances fit."""
    m = len(points)
    pairs = np.empty((0, 2), np.int64) if cannot_link is None else cannot_link
    pairs = np.concatenate([pairs, pairs[:, ::-1]]).astype(np.int64)
    pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
    starts = np.searchsorted(pairs[:, 0], np.arange(m + 1))
    columns = np.ascontiguousarray(np.transpose(points), np.float64)
    leaves = (columns, weights, linkage == "ward", starts, np.ascontiguousarray(pairs[:, 1]))
    max_stored = 1 + math.ceil(m * math.sqrt(share))
    return (
        leaves,
        (np.empty(max_stored * (max_stored - 1) // 2), np.arange(m), np.arange(m)),
        max_stored,
    )


@inner()
def _joined(kind: int, dx: float, dy: float, dxy: float, x: float, y: float, z: float) -> float:
    """Return the distance of a cluster to the union of two clusters (Lance and Williams)."""
    if not (dx < np.inf and dy < np.inf):
        return np.inf  # a forbidden pair forbids the merge of its clusters
    if kind == _SINGLE:
        return min(dx, dy)
    if kind == _COMPLETE:
        return max(dx, dy)
    if kind == _AVERAGE:
        return (x * dx + y * dy) / (x + y)
    t = 1.0 / (x + y + z)
    square = (z + x) * t * dx * dx + (z + y) * t * dy * dy - z * t * dxy * dxy
    return np.sqrt(max(square, 0.0))


@compiled()
def _chain(leaves: Any, stored: Any, max_stored: int, kind: int, merges: Array) -> int:
    """Merge along chains of nearest neighbors; return the number of allowed merges."""
    size = leaves[1].copy()
    n = n_left = width = len(size)
    rows = 0
    alive = np.ones(n, np.bool_)
    row, row_y = np.empty(n), np.empty(n)
    chain = np.empty(n, np.int64)
    length = 0
    done = 0
    while done < n - 1:
        width, rows = _make_room(leaves, stored, width, rows, alive, n_left, max_stored)
        if length == 0:
            for i in range(n):
                if alive[i]:
                    chain[0] = i
                    break
            length = 1
        stuck = False
        while True:
            x = chain[length - 1]
            _row(x, leaves, stored, width, rows, alive, row)
            y = -1
            nearest = np.inf
            if length > 1:
                y = chain[length - 2]
                nearest = row[y]
            for i in range(n):
                if alive[i] and i != x and row[i] < nearest:
                    nearest = row[i]
                    y = i
            if y < 0:
                stuck = True
                break
            if length > 1 and y == chain[length - 2]:
                break
            chain[length] = y
            length += 1
        if stuck:
            # Constraints forbid all merges of this cluster, so it leaves the search.
            alive[chain[length - 1]] = False
            length -= 1
            n_left -= 1
            if n_left == 0:
                break
            continue
        length -= 2
        _row(y, leaves, stored, width, rows, alive, row_y)
        if x > y:
            x, y = y, x
            row, row_y = row_y, row
        merges[done, 0] = x
        merges[done, 1] = y
        merges[done, 2] = nearest
        done += 1
        alive[x] = False
        n_left -= 1
        for i in range(n):
            if alive[i] and i != y:
                row[i] = _joined(kind, row[i], row_y[i], nearest, size[x], size[y], size[i])
        rows = _store_row(x, y, row, stored, width, rows, alive)
        size[y] += size[x]
    return done


@compiled()
def _spanning_tree(points: Array, weights: Array, with_edges: bool, merges: Array) -> None:
    """Compute the minimum spanning tree by Prim's algorithm, without storing distances.

    `with_edges`: a merge contains the two ends of an edge.  Otherwise it contains the new point and
    the point that was added before, as in SciPy's single linkage.
    """
    n = len(weights)
    row = np.empty(n)
    in_tree = np.zeros(n, np.bool_)
    best = np.full(n, np.inf)
    source = np.zeros(n, np.int64)
    x = 0
    for k in range(n - 1):
        shortest = np.inf
        y = -1
        in_tree[x] = True
        _measure(x, points, weights, False, row)
        for i in range(n):
            if not in_tree[i]:
                if row[i] < best[i]:
                    best[i] = row[i]
                    source[i] = x
                if best[i] < shortest or y < 0:
                    y = i
                    shortest = best[i]
        merges[k, 0] = source[y] if with_edges else x
        merges[k, 1] = y
        merges[k, 2] = shortest
        x = y


@compiled()
def number_merges(merges: Array, weights: Array, tree: Array) -> None:
    """Convert merges of clusters, given by one member each, to a linkage matrix of weights."""
    n = len(weights)
    parent = np.arange(2 * n - 1)
    mass = np.empty(2 * n - 1)
    mass[:n] = weights
    for k in range(len(merges)):
        a, b = find_root(parent, int(merges[k, 0])), find_root(parent, int(merges[k, 1]))
        parent[a] = n + k
        parent[b] = n + k
        mass[n + k] = mass[a] + mass[b]
        tree[k, 0], tree[k, 1], tree[k, 2], tree[k, 3] = a, b, merges[k, 2], mass[n + k]


@inner()
def _spread(sizes: Array) -> float:
    """Return the sum of the absolute differences of all pairs of sizes."""
    ordered = np.sort(sizes)
    total = 0.0
    for i in range(len(ordered)):
        total += (2 * i - len(ordered) + 1) * ordered[i]
    return total


@inner()
def _spread_after(spread: float, sizes: Array, a: float, b: float) -> float:
    """Return the sum of the differences after two clusters of sizes a and b in `sizes` merge."""
    for size in sizes:
        spread += abs(size - a - b) - abs(size - a) - abs(size - b)
    # Remove the terms of the two clusters themselves, which are in `sizes`.
    return spread - b - a + abs(a - b)


@compiled()
def _genie(edges: Array, weights: Array, threshold: float, merges: Array) -> None:
    """Merge along edges of the minimum spanning tree, sorted by length."""
    n = len(weights)
    parent = np.arange(n)
    # Sizes of the remaining clusters, the cluster of each size, and the index of the size of each
    # cluster.
    sizes, owner, slot = weights.copy(), np.arange(n), np.arange(n)
    following, before = np.arange(1, n + 1), np.arange(-1, n - 1)  # remaining edges
    first = resume = 0
    spread, total, smallest, highest = _spread(sizes), weights.sum(), -1.0, 0.0
    for done in range(n - 1):
        n_left = n - done
        e = first
        if spread > threshold * (n_left - 1) * total:
            min_size = sizes[:n_left].min()
            # While the smallest size is unchanged, edges that were skipped are skipped again.
            e = resume if min_size == smallest else first
            smallest = min_size
            while (
                sizes[slot[find_root(parent, int(edges[e, 0]))]] > min_size
                and sizes[slot[find_root(parent, int(edges[e, 1]))]] > min_size
            ):
                e = following[e]
            resume = following[e]
        elif resume == e:
            resume = following[e]
        if e == first:
            first = following[e]
        else:
            following[before[e]] = following[e]
        if following[e] < n:
            before[following[e]] = before[e]
        x, y = find_root(parent, int(edges[e, 0])), find_root(parent, int(edges[e, 1]))
        spread = _spread_after(spread, sizes[:n_left], sizes[slot[x]], sizes[slot[y]])
        sizes[slot[y]] += sizes[slot[x]]
        parent[x] = y
        last = owner[n_left - 1]
        sizes[slot[x]], owner[slot[x]], slot[last] = sizes[n_left - 1], last, slot[x]
        highest = max(highest, edges[e, 2])
        merges[done, 0], merges[done, 1], merges[done, 2] = x, y, highest


def _as_tree(merges: Floats, done: int, n: int) -> Floats:
    """Return the linkage matrix of sorted merges; forbidden merges have infinite height."""
    if done < n - 1:
        components = np.arange(n)
        for a, b in merges[:done, :2].astype(np.int64):
            components[components == components[a]] = components[b]
        roots = np.unique(components)
        merges[done:, 0], merges[done:, 1], merges[done:, 2] = roots[0], roots[1:], np.inf
    tree = np.empty((n - 1, 4))
    number_merges(merges, np.ones(n), tree)
    tree[:, :2].sort(axis=1)
    return tree


def link(
    points: Floats,
    weights: Floats,
    linkage: Linkage,
    cannot_link: Ints | None = None,
    gini_threshold: float = 1.0,
) -> Floats:
    """Return the tree of weighted points, as SciPy's linkage matrix (m - 1, 4).

    ``"average"`` is the mean over all pairs of rows, at the positions of their points.  ``"genie"``
    merges the two nearest clusters.  If the Gini index of the cluster weights is above
    `gini_threshold`, one of the two must have the smallest weight.  The height of a ``"genie"``
    merge is the largest length so far, so heights do not decrease.  Merges that join both points of
    a pair in `cannot_link` come last and have infinite height.
    """
    n = len(points)
    if n < 2:
        return np.empty((0, 4))
    merges = np.empty((n - 1, 3))
    done = n - 1
    free = cannot_link is None or not len(cannot_link)
    if linkage == "genie" and not free:
        adjacent = np.full((n, -(-n // 8)), 255, np.uint8)
        return link_adjacent(
            points, weights, linkage, adjacent, cannot_link, gini_threshold=gini_threshold
        )
    if linkage in ("single", "genie") and free:
        columns = np.ascontiguousarray(np.transpose(points), np.float64)
        _spanning_tree(columns, weights, linkage == "genie", merges)
    else:
        leaves, stored, max_stored = _begin(points, weights, linkage, cannot_link, _FULL_SHARE)
        done = _chain(leaves, stored, max_stored, LINKAGES.index(linkage), merges)
    merges[:done] = merges[:done][np.argsort(merges[:done, 2], kind="stable")]
    if linkage == "genie":
        _genie(merges.copy(), weights, gini_threshold, merges)
    return _as_tree(merges, done, n)


@inner()
def _is_adjacent(adjacent: Array, i: int, j: int) -> bool:
    return (adjacent[i, j >> 3] >> (j & 7)) & 1 != 0


@inner()
def _mark_adjacent(adjacent: Array, i: int, j: int) -> None:
    adjacent[i, j >> 3] |= 1 << (j & 7)
    adjacent[j, i >> 3] |= 1 << (i & 7)


@compiled()
def _mark_all_adjacent(keys: Array, adjacent: Array) -> None:
    for key in keys:
        i, j = divmod(key, len(adjacent))
        if i != j:
            _mark_adjacent(adjacent, i, j)


def adjacency(keys: Ints, n: int) -> Array:
    """Return the adjacency matrix as bits (n, n / 8), from the keys ``a n + b`` of pairs."""
    adjacent = np.zeros((n, -(-n // 8)), np.uint8)
    _mark_all_adjacent(keys, adjacent)
    return adjacent


@compiled()
def _greedy(
    leaves: Any,
    stored: Any,
    max_stored: int,
    adjacent: Array,
    kind: int,
    by_edges: bool,
    threshold: float,
    merges: Array,
) -> int:
    """Merge the two nearest adjacent clusters until no adjacent clusters are left.

    If the Gini index of the sizes is above `threshold`, one of the two must have the smallest size.
    With a `threshold` of 1, sizes are ignored.
    """
    size = leaves[1].copy()
    n = width = len(size)
    rows = 0
    row, row_y = np.empty(n), np.empty(n)
    alive = np.ones(n, np.bool_)
    near = np.full(n, -1)
    near_distance = np.full(n, np.inf)
    stale = np.ones(n, np.bool_)
    highest = 0.0
    is_genie = threshold < 1.0
    spread, total = (_spread(size), size.sum()) if is_genie else (0.0, 0.0)
    for done in range(n - 1):
        width, rows = _make_room(leaves, stored, width, rows, alive, n - done, max_stored)
        x = -1
        smallest = np.inf
        for i in range(n):
            if not alive[i]:
                continue
            if stale[i]:
                near[i] = -1
                near_distance[i] = np.inf
                _row(i, leaves, stored, width, rows, alive, row)
                for j in range(n):
                    if (
                        j != i
                        and alive[j]
                        and row[j] < near_distance[i]
                        and _is_adjacent(adjacent, i, j)
                    ):
                        near_distance[i] = row[j]
                        near[i] = j
                stale[i] = False
            if near[i] >= 0:
                smallest = min(smallest, size[i])
                if x < 0 or near_distance[i] < near_distance[x]:
                    x = i
        if x < 0:
            return done
        if is_genie:
            if spread > threshold * (n - done - 1) * total:
                for i in range(n):
                    if alive[i] and near[i] >= 0 and size[i] == smallest:
                        if size[x] > smallest or near_distance[i] < near_distance[x]:
                            x = i
            spread = _spread_after(spread, size[alive], size[x], size[near[x]])
        y = near[x]
        if x > y:
            x, y = y, x
        _row(x, leaves, stored, width, rows, alive, row)
        _row(y, leaves, stored, width, rows, alive, row_y)
        height = row[y]
        # A merge may bring clusters nearer to each other than the height of the merge.  The heights
        # of a tree must not decrease.
        highest = max(highest, height)
        merges[done, 0] = x
        merges[done, 1] = y
        merges[done, 2] = highest
        alive[x] = False
        for i in range(n):
            if alive[i] and i != y:
                near_x, near_y = _is_adjacent(adjacent, x, i), _is_adjacent(adjacent, y, i)
                if by_edges and near_x != near_y and max(row[i], row_y[i]) < np.inf:
                    row[i] = row[i] if near_x else row_y[i]
                else:
                    row[i] = _joined(kind, row[i], row_y[i], height, size[x], size[y], size[i])
                if near_x:
                    _mark_adjacent(adjacent, i, y)
                if near[i] == x or near[i] == y:
                    stale[i] = True
                elif _is_adjacent(adjacent, y, i) and row[i] < near_distance[i]:
                    near_distance[i] = row[i]
                    near[i] = y
        rows = _store_row(x, y, row, stored, width, rows, alive)
        stale[y] = True
        size[y] += size[x]
    return n - 1


def link_adjacent(
    points: Floats,
    weights: Floats,
    linkage: Linkage,
    adjacent: Array,
    cannot_link: Ints | None = None,
    *,
    by_edges: bool = False,
    gini_threshold: float = 1.0,
) -> Floats:
    """Return the tree, as `link` does, in which only adjacent clusters merge.

    Clusters are adjacent if any two of their points are; `adjacent` is overwritten.  If `by_edges`,
    distances of clusters, except with Ward's linkage, use only adjacent points.  Each height is the
    largest so far, so heights do not decrease.  Clusters without adjacent clusters merge at
    infinite height.
    """
    n = len(points)
    if n < 2:
        return np.empty((0, 4))
    merges = np.empty((n - 1, 3))
    leaves, stored, max_stored = _begin(points, weights, linkage, cannot_link, _MATRIX_SHARE)
    kind = LINKAGES.index("single" if linkage == "genie" else linkage)
    by_edges = by_edges and linkage != "ward"
    threshold = float(gini_threshold) if linkage == "genie" else 1.0
    done = _greedy(leaves, stored, max_stored, adjacent, kind, by_edges, threshold, merges)
    return _as_tree(merges, done, n)


def cut_tree(tree: Floats, weights: Floats, n_clusters: int) -> Ints:
    """Return the cluster of each point for `n_clusters` clusters, numbered by decreasing weight.

    Clusters of equal weight are numbered by their first point.  So the numbers do not depend on the
    order of the points, or on repeated points.
    """
    m = len(tree) + 1
    owner = np.arange(2 * m - 1)
    for k in range(m - n_clusters - 1, -1, -1):
        # The loop runs backwards, so that each cluster gets the number of the last merge above it.
        owner[tree[k, :2].astype(np.int64)] = owner[m + k]
    return number_by_weight(owner[:m], weights)


def number_by_weight(clusters: Ints, weights: Floats) -> Ints:
    """Return clusters numbered by decreasing weight, then by their first point."""
    _, first, codes = np.unique(clusters, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.lexsort([first, -np.bincount(codes, weights)])] = np.arange(len(first))
    return rank[codes]
