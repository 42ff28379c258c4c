"""Trees of weighted points: agglomerative linkage by chains of nearest neighbors.

A point stands for rows: its weight is theirs.  Distances between clusters follow Lance and
Williams, in the order of SciPy's own loops, so that points of weight 1 give SciPy's tree, ties
included.  Trees are SciPy's linkage matrices: a row ``(a, b, height, number of points)`` a merge.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from daskclust._types import Array, Bools, Floats, Ints
from daskclust.kernels.compiling import compiled, inner

Linkage = Literal["ward", "average", "complete", "single"]
#: Their numbers in compiled code.
LINKAGES: tuple[Linkage, ...] = ("ward", "average", "complete", "single")
_AVERAGE, _COMPLETE, _SINGLE = 1, 2, 3

#: Points up to which distances are float64: SciPy's tree to the last tie.  Beyond, float32.
EXACT_POINTS = 10_000


@inner()
def find_root(parent: Ints, i: int) -> int:
    """Return the root of a node, and shorten the way to it (union-find)."""
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


@inner()
def _place(n: int, i: int, j: int) -> int:
    """Return where a pair lies in a condensed matrix."""
    if i > j:
        i, j = j, i
    return n * i - (i * (i + 1)) // 2 + j - i - 1


@compiled()
def _distances(points: Array, weights: Array, ward: bool, out: Array) -> None:
    n, p = points.shape
    place = 0
    for i in range(n):
        for j in range(i + 1, n):
            total = 0.0
            for f in range(p):
                d = points[i, f] - points[j, f]
                total += d * d
            d = np.sqrt(total)
            if ward and (weights[i] != 1.0 or weights[j] != 1.0):
                d = d * np.sqrt(2.0 * weights[i] * weights[j] / (weights[i] + weights[j]))
            out[place] = d
            place += 1


def distances(
    points: Floats, weights: Floats, linkage: Linkage, cannot_link: Ints | None = None
) -> Array:
    """Return heights at which any two points would merge, condensed like SciPy's ``pdist``.

    Ward's of weighted points is that of the rows: ``sqrt(2 u v / (u + v)) |a - b|``.  Points of a
    pair in `cannot_link` would merge at infinity.
    """
    m = len(points)
    out = np.empty(m * (m - 1) // 2, np.float64 if m <= EXACT_POINTS else np.float32)
    _distances(np.ascontiguousarray(points, np.float64), weights, linkage == "ward", out)
    if cannot_link is not None:
        a, b = np.sort(cannot_link, axis=1).T.astype(np.int64)
        out[m * a - a * (a + 1) // 2 + b - a - 1] = np.inf
    return out


@inner()
def _joined(kind: int, dx: float, dy: float, dxy: float, x: float, y: float, z: float) -> float:
    """Return the distance of a third cluster to the union of two (Lance and Williams)."""
    if not (dx < np.inf and dy < np.inf):
        return np.inf  # a pair that may not merge forbids its clusters to
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
def _chain(d: Array, weights: Array, kind: int, merges: Array) -> int:
    """Merge along chains of nearest neighbors; returns how many merges are allowed."""
    n = len(weights)
    size = weights.copy()
    alive = np.ones(n, np.bool_)
    chain = np.empty(n, np.int64)
    length = 0
    done = 0
    while done < n - 1:
        if length == 0:
            for i in range(n):
                if alive[i]:
                    chain[0] = i
                    break
            length = 1
        stuck = False
        while True:
            x = chain[length - 1]
            y = -1
            least = np.inf
            if length > 1:
                y = chain[length - 2]
                least = d[_place(n, x, y)]
            for i in range(n):
                if alive[i] and i != x:
                    found = d[_place(n, x, i)]
                    if found < least:
                        least = found
                        y = i
            if y < 0:
                stuck = True
                break
            if length > 1 and y == chain[length - 2]:
                break
            chain[length] = y
            length += 1
        if stuck:
            # Nothing may join this cluster any more: it is whole, and leaves the search.
            alive[chain[length - 1]] = False
            length -= 1
            left = 0
            for i in range(n):
                left += alive[i]
            if left == 0:
                break
            continue
        length -= 2
        if x > y:
            x, y = y, x
        merges[done, 0] = x
        merges[done, 1] = y
        merges[done, 2] = least
        done += 1
        alive[x] = False
        for i in range(n):
            if alive[i] and i != y:
                d[_place(n, i, y)] = _joined(
                    kind, d[_place(n, i, x)], d[_place(n, i, y)], least, size[x], size[y], size[i]
                )
        size[y] += size[x]
    return done


@compiled()
def _spanning_tree(d: Array, n: int, merges: Array) -> None:
    """Prim's algorithm: single linkage without a change of the matrix."""
    seen = np.zeros(n, np.bool_)
    best = np.full(n, np.inf)
    x = 0
    for k in range(n - 1):
        least = np.inf
        y = -1
        seen[x] = True
        for i in range(n):
            if not seen[i]:
                found = d[_place(n, x, i)]
                best[i] = min(best[i], found)
                if best[i] < least or y < 0:
                    y = i
                    least = best[i]
        merges[k, 0] = x
        merges[k, 1] = y
        merges[k, 2] = least
        x = y


@compiled()
def number_merges(merges: Array, weights: Array, tree: Array) -> None:
    """Turn merges of members, in order, into a linkage matrix, with weights as last column."""
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


def _as_tree(merges: Floats, done: int, n: int) -> Floats:
    """Return the linkage matrix of merges in order; merges that are forbidden are at infinity."""
    if done < n - 1:
        parts = np.arange(n)
        for a, b in merges[:done, :2].astype(np.int64):
            parts[parts == parts[a]] = parts[b]
        roots = np.unique(parts)
        merges[done:, 0], merges[done:, 1], merges[done:, 2] = roots[0], roots[1:], np.inf
    tree = np.empty((n - 1, 4))
    number_merges(merges, np.ones(n), tree)
    tree[:, :2].sort(axis=1)
    return tree


def link(
    points: Floats, weights: Floats, linkage: Linkage, cannot_link: Ints | None = None
) -> Floats:
    """Return the tree of weighted points, as SciPy's linkage matrix (m - 1, 4).

    ``"average"`` is the mean over all pairs of rows, each at its point.  No cluster holds both
    points of a pair in `cannot_link`: merges that are forbidden come last, at infinity.
    """
    n = len(points)
    if n < 2:
        return np.empty((0, 4))
    d = distances(points, weights, linkage, cannot_link)
    merges = np.empty((n - 1, 3))
    done = n - 1
    if linkage == "single" and (cannot_link is None or not len(cannot_link)):
        _spanning_tree(d, n, merges)
    else:
        done = _chain(d, weights, LINKAGES.index(linkage), merges)
    merges[:done] = merges[:done][np.argsort(merges[:done, 2], kind="stable")]
    return _as_tree(merges, done, n)


@compiled()
def _greedy(d: Array, beside: Array, weights: Array, kind: int, merges: Array) -> int:
    """Merge the nearest two adjacent clusters, again and again."""
    n = len(weights)
    size = weights.copy()
    alive = np.ones(n, np.bool_)
    near = np.full(n, -1)
    least = np.full(n, np.inf)
    stale = np.ones(n, np.bool_)
    highest = 0.0
    for done in range(n - 1):
        x = -1
        for i in range(n):
            if not alive[i]:
                continue
            if stale[i]:
                near[i] = -1
                least[i] = np.inf
                for j in range(n):
                    if alive[j] and j != i and beside[i, j]:
                        found = d[_place(n, i, j)]
                        if found < least[i]:
                            least[i] = found
                            near[i] = j
                stale[i] = False
            if near[i] >= 0 and (x < 0 or least[i] < least[x]):
                x = i
        if x < 0:
            return done
        y = near[x]
        if x > y:
            x, y = y, x
        height = d[_place(n, x, y)]
        # A merge may bring clusters together that are nearer than it was itself: heights of a
        # tree do not fall.
        highest = max(highest, height)
        merges[done, 0] = x
        merges[done, 1] = y
        merges[done, 2] = highest
        alive[x] = False
        for i in range(n):
            if alive[i] and i != y:
                d[_place(n, i, y)] = _joined(
                    kind, d[_place(n, i, x)], d[_place(n, i, y)], height, size[x], size[y], size[i]
                )
                if beside[i, x]:
                    beside[i, y] = beside[y, i] = True
                if near[i] == x or near[i] == y:
                    stale[i] = True
                elif beside[i, y] and d[_place(n, i, y)] < least[i]:
                    least[i] = d[_place(n, i, y)]
                    near[i] = y
        stale[y] = True
        size[y] += size[x]
    return n - 1


def link_adjacent(
    points: Floats,
    weights: Floats,
    linkage: Linkage,
    beside: Bools,
    cannot_link: Ints | None = None,
) -> Floats:
    """Return the tree, as `link` does, in which only adjacent clusters merge.

    Points are adjacent by the symmetric matrix `beside`, clusters where any two of their points
    are. Heights never fall: each is the largest so far.  Clusters that are not adjacent to any
    other merge at infinity.
    """
    n = len(points)
    if n < 2:
        return np.empty((0, 4))
    d = distances(points, weights, linkage, cannot_link)
    merges = np.empty((n - 1, 3))
    done = _greedy(d, beside.copy(), weights, LINKAGES.index(linkage), merges)
    return _as_tree(merges, done, n)


def cut_tree(tree: Floats, weights: Floats, n_clusters: int) -> Ints:
    """Return the cluster of each point where `n_clusters` are left, the heaviest first.

    Of clusters of like weight the one with the first point comes first: numbers depend neither
    on the order of the points nor on repetition.
    """
    m = len(tree) + 1
    owner = np.arange(2 * m - 1)
    for k in range(m - n_clusters - 1, -1, -1):
        # Backwards: a merge within a merge is told the number of the outermost.
        owner[tree[k, :2].astype(np.int64)] = owner[m + k]
    _, first, codes = np.unique(owner[:m], return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.lexsort([first, -np.bincount(codes, weights)])] = np.arange(len(first))
    return rank[codes]
