"""HDBSCAN on weighted points: core distances, the density tree, and the choice of clusters.

A point is a row, or a *data bubble* (Breunig et al. 2001).  A bubble represents n rows by their
mean and extent R: the rows are assumed to fill a ball of radius R evenly.  Then the distance from
the mean to the k-th nearest row is ``R (k / n)^(1 / p)``.  With points of weight 1 and extent 0,
the clusters equal scikit-learn's (Campello, Moulavi and Sander 2013).

For a given number of clusters, the longest edges of the minimum spanning tree are cut, if both
sides have enough weight, as in Lumbermark (Gagolewski 2026).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from daskclust.core.array_types import Array, Bools, Floats, Ints
from daskclust.core.kernels.compiling import compiled
from daskclust.core.kernels.linkage import number_merges

Method = Literal["eom", "leaf"]

#: Record of a condensed tree of m points.  The child separates from its parent at the density
#: ``lambda_val``.  Children 0 to m - 1 are points, and larger numbers are clusters.  The root is m.
CONDENSED = np.dtype(
    [
        ("parent", np.int64),
        ("child", np.int64),
        ("lambda_val", np.float64),
        ("child_size", np.float64),
    ]
)


@dataclass(frozen=True)
class Bubbles:
    """Points (m, p), their positive weights, and the radii of the balls that their rows fill."""

    centers: Floats
    weights: Floats
    extents: Floats

    @classmethod
    def of_sums(cls, centers: Floats, weights: Floats, squares: Floats) -> Bubbles:
        p = centers.shape[1]
        # A ball of radius R filled evenly has a mean squared distance of R^2 p / (p + 2).
        return cls(centers, weights, np.sqrt(squares / weights * (p + 2) / p))

    @property
    def spacings(self) -> Floats:
        """Distance from a row to the nearest other row of its bubble, for each bubble."""
        return self.extents * np.maximum(self.weights, 1.0) ** (-1.0 / self.centers.shape[1])

    def extent_fractions(self, min_samples: float) -> Floats:
        """Return the fraction of the radius that contains `min_samples` rows, at most 1."""
        return np.minimum(min_samples / self.weights, 1.0) ** (1.0 / self.centers.shape[1])


@compiled()
def _core_distances(centers: Array, weights: Array, inside: Array, target: float) -> Array:
    m, p = centers.shape
    out = np.empty(m)
    # A heap of the nearest points whose total weight reaches the target.  The farthest is first.
    near = np.empty(m + 1)
    mass = np.empty(m + 1)
    for i in range(m):
        if inside[i] >= 0.0:
            out[i] = inside[i]
            continue
        size, total_weight, bound = 0, 0.0, np.inf
        for j in range(m):
            d = 0.0
            for f in range(p):
                step = centers[i, f] - centers[j, f]
                d += step * step
            if d >= bound:
                continue
            slot = size
            size += 1
            while slot > 0 and near[(slot - 1) // 2] < d:
                near[slot] = near[(slot - 1) // 2]
                mass[slot] = mass[(slot - 1) // 2]
                slot = (slot - 1) // 2
            near[slot] = d
            mass[slot] = weights[j]
            total_weight += weights[j]
            while total_weight - mass[0] >= target:
                total_weight -= mass[0]
                size -= 1
                moved, weight = near[size], mass[size]
                slot = 0
                while 2 * slot + 1 < size:
                    child = 2 * slot + 1
                    if child + 1 < size and near[child + 1] > near[child]:
                        child += 1
                    if near[child] <= moved:
                        break
                    near[slot] = near[child]
                    mass[slot] = mass[child]
                    slot = child
                near[slot] = moved
                mass[slot] = weight
            if total_weight >= target:
                bound = near[0]
        out[i] = np.sqrt(near[0])
    return out


def core_distances(points: Bubbles, min_samples: float) -> Floats:
    """Return the distance within which each point has `min_samples` rows, including its own.

    If a bubble has fewer rows itself, the distance is measured to the centers of other bubbles.
    """
    inside = points.extents * points.extent_fractions(min_samples)
    inside[points.weights < min_samples] = -1.0
    return _core_distances(points.centers, points.weights, inside, float(min_samples))


@compiled()
def _spanning_tree(
    centers: Array, extents: Array, spacings: Array, core: Array, edges: Array
) -> None:
    m, p = centers.shape
    in_tree = np.zeros(m, np.bool_)
    best = np.full(m, np.inf)
    source = np.zeros(m, np.int64)
    x = 0
    for k in range(m - 1):
        in_tree[x] = True
        shortest = np.inf
        y, origin = -1, 0
        for j in range(m):
            if in_tree[j]:
                continue
            reach = max(core[x], core[j])
            if reach < best[j]:
                total = 0.0
                for f in range(p):
                    d = centers[x, f] - centers[j, f]
                    total += d * d
                d = np.sqrt(total)
                gap = d - extents[x] - extents[j]
                if extents[x] == 0.0 and extents[j] == 0.0:
                    reach = max(reach, d)
                elif gap >= 0.0:
                    reach = max(reach, gap + spacings[x] + spacings[j])
                else:
                    reach = max(reach, max(spacings[x], spacings[j]))
                if reach < best[j]:
                    best[j] = reach
                    source[j] = x
            if best[j] < shortest or y < 0:
                shortest = best[j]
                y, origin = j, source[j]
        edges[k, 0] = origin
        edges[k, 1] = y
        edges[k, 2] = shortest
        x = y


def spanning_edges(points: Bubbles, core: Floats) -> Floats:
    """Return the edges ``(a, b, length)`` of the minimum spanning tree, shortest first.

    Lengths are mutual reachability distances.
    """
    edges = np.empty((len(points.weights) - 1, 3))
    _spanning_tree(points.centers, points.extents, points.spacings, core, edges)
    # Many lengths are equal, because they are core distances.  NumPy's default sort orders equal
    # lengths as in scikit-learn.
    return edges[np.argsort(edges[:, 2])]


def density_tree(edges: Floats, weights: Floats) -> Floats:
    """Return the single-linkage tree of the spanning edges, as a linkage matrix."""
    tree = np.empty((len(edges), 4))
    number_merges(edges, weights, tree)
    return tree


@compiled()
def _cut_longest(
    edges: Array, weights: Array, n_clusters: int, fraction: float, labels: Array, lengths: Array
) -> None:
    m = len(weights)
    ends = edges[:, :2].astype(np.int64)
    # Sort the edges by point.
    starts = np.zeros(m + 1, np.int64)
    for e in range(m - 1):
        starts[ends[e, 0] + 1] += 1
        starts[ends[e, 1] + 1] += 1
    # A leaf of the tree counts only by its weight above the mean weight of a point.
    counted = np.where(starts[1:] > 1, weights, np.maximum(weights - weights.mean(), 0.0))
    starts = np.cumsum(starts)
    free, incident = starts[:-1].copy(), np.empty(2 * (m - 1), np.int64)
    for e in range(m - 1):
        for x in ends[e]:
            incident[free[x]] = e
            free[x] += 1
    # With point 0 as the root, each edge has a lower point and a subtree below it.
    parent, lower = np.full(m, -1), np.empty(m - 1, np.int64)
    order = np.zeros(m, np.int64)
    tail = 1
    for head in range(m):
        x = order[head]
        for e in incident[starts[x] : starts[x + 1]]:
            y = ends[e, 0] + ends[e, 1] - x
            if y != parent[x]:
                parent[y], lower[e], order[tail] = x, y, y
                tail += 1
    subtree = counted.copy()
    for x in order[:0:-1]:
        subtree[parent[x]] += subtree[x]
    bound = fraction * subtree[0]
    min_weight = counted[counted > 0.0].min() if subtree[0] > 0.0 else np.inf
    tops, is_cut = np.zeros(n_clusters, np.int64), np.zeros(m, np.bool_)
    labels[:] = 0
    n = 1
    while n < n_clusters:
        # A cut only reduces the weights on the sides of other edges.  So an edge that failed the
        # bound is not tried again.
        for e in range(m - 2, -1, -1):
            top, weight_below = lower[e], subtree[lower[e]]
            label = labels[top]
            if is_cut[top] or weight_below < bound or subtree[tops[label]] - weight_below < bound:
                continue
            x = top
            while x != tops[label]:
                x = parent[x]
                subtree[x] -= weight_below
            is_cut[top] = True
            lengths[n - 1], tops[n] = edges[e, 2], top
            order[0], tail = top, 1
            while tail:
                tail -= 1
                x = order[tail]
                labels[x] = n
                for edge in incident[starts[x] : starts[x + 1]]:
                    y = lower[edge]
                    if y != x and not is_cut[y]:
                        order[tail] = y
                        tail += 1
            n += 1
            if n == n_clusters:
                break
        # If there are too few cuts, allow smaller clusters, and finally single points.
        bound = bound / 2 if bound > min_weight else 0.0


def cut_longest(
    edges: Floats, weights: Floats, n_clusters: int, min_side: float, n_bound: int | None = None
) -> tuple[Ints, Floats]:
    """Cut the longest edges of a spanning tree whose edges are sorted by length.

    An edge is cut if the clusters on both sides of it have a minimum weight: the fraction
    `min_side` of the mean weight of `n_bound` clusters (default: `n_clusters`).  Points that are
    leaves of the tree add only the part of their weight above the mean weight of a point.  If too
    few edges qualify, the minimum weight is halved.  Return the cluster of each point, numbered in
    the order of the cuts, and the length of each cut.
    """
    labels, lengths = np.empty(len(weights), np.int64), np.empty(n_clusters - 1)
    fraction = min_side / (n_bound or n_clusters)
    _cut_longest(edges, weights, n_clusters, fraction, labels, lengths)
    return labels, lengths


@compiled()
def _condense(tree: Array, weights: Array, core: Array, smallest: float, out: Array) -> int:
    m = len(weights)
    root = 2 * m - 2
    cluster = np.full(2 * m - 1, -1)
    cluster[root] = m
    newest = m
    queue = np.empty(2 * m - 1, np.int64)
    queue[0] = root
    head, tail, n = 0, 1, 0
    stack = np.empty(2 * m - 1, np.int64)
    while head < tail:
        node = queue[head]
        head += 1
        if node < m:
            # A single point is a cluster until the density of its core distance.
            out[n, 0], out[n, 1], out[n, 3] = cluster[node], node, weights[node]
            out[n, 2] = 1.0 / core[node] if core[node] > 0.0 else np.inf
            n += 1
            continue
        a, b = int(tree[node - m, 0]), int(tree[node - m, 1])
        height = tree[node - m, 2]
        density = 1.0 / height if height > 0.0 else np.inf
        mass_a = weights[a] if a < m else tree[a - m, 3]
        mass_b = weights[b] if b < m else tree[b - m, 3]
        splits = mass_a >= smallest and mass_b >= smallest
        for child, mass in ((a, mass_a), (b, mass_b)):
            if mass >= smallest:
                cluster[child] = cluster[node]
                if splits:
                    newest += 1
                    cluster[child] = newest
                    out[n, 0], out[n, 1], out[n, 2], out[n, 3] = (
                        cluster[node],
                        newest,
                        density,
                        mass,
                    )
                    n += 1
                queue[tail] = child
                tail += 1
                continue
            # The child is too small for a cluster: all its points leave the parent.
            stack[0] = child
            size = 1
            while size:
                size -= 1
                x = stack[size]
                if x < m:
                    out[n, 0], out[n, 1], out[n, 2] = cluster[node], x, density
                    out[n, 3] = weights[x]
                    n += 1
                else:
                    stack[size] = int(tree[x - m, 0])
                    stack[size + 1] = int(tree[x - m, 1])
                    size += 2
    return n


def condense(tree: Floats, weights: Floats, core: Floats, min_cluster_size: float) -> Array:
    """Return the condensed tree of clusters of at least `min_cluster_size` rows."""
    m = len(weights)
    records = np.empty((3 * m, 4))
    n = _condense(tree, weights, core, float(min_cluster_size), records)
    out = np.empty(n, CONDENSED)
    for column, field in enumerate(CONDENSED.names or ()):
        out[field] = records[:n, column]
    return out


def prune(condensed: Any, m: int, min_density: float) -> Array:
    """Remove clusters of low density, which consist of a few bubbles that are close by chance.

    A cluster is removed if the mean density at which its rows leave it is below `min_density`
    times the density at which it separates from its parent.  Its points then leave the parent at
    that density, and the sibling is merged with the parent.  One split of the root always remains.
    """
    cluster_records, points = condensed[condensed["child"] >= m], condensed[condensed["child"] < m]
    k = len(cluster_records) + 1
    births, sizes, parents = np.zeros(k), np.zeros(k), np.zeros(k, np.int64)
    numbers = cluster_records["child"] - m
    births[numbers], sizes[numbers] = cluster_records["lambda_val"], cluster_records["child_size"]
    parents[numbers] = cluster_records["parent"] - m
    sums = np.bincount(points["parent"] - m, points["lambda_val"] * points["child_size"], k)
    merged_into, caps, splits = np.arange(k), np.full(k, np.inf), np.zeros(k, bool)
    # The two clusters of a split have consecutive numbers, larger than the number of the parent.
    for a in range(k - 2, 0, -2):
        parent, means = parents[a], sums[a : a + 2] / sizes[a : a + 2]
        means[splits[a : a + 2]] = np.inf
        weak = a + int(means.argmin())
        sibling = 2 * a + 1 - weak
        if not means.min() < min_density * births[a] or (parent == 0 and not splits[sibling]):
            splits[parent] = True
            continue
        merged_into[a : a + 2], caps[weak], splits[parent] = parent, births[a], splits[sibling]
        sums[parent] += births[a] * sizes[weak] + sums[sibling]
    remains = merged_into == np.arange(k)
    for c in range(1, k):
        caps[c] = min(caps[c], caps[merged_into[c]])
        merged_into[c] = merged_into[merged_into[c]]
    new_numbers = np.cumsum(remains) - 1 + m
    out = condensed[(condensed["child"] < m) | remains[np.maximum(condensed["child"] - m, 0)]]
    clusters, owner = out["child"] >= m, out["parent"] - m
    out["lambda_val"] = np.minimum(out["lambda_val"], caps[owner])
    out["parent"] = new_numbers[merged_into[owner]]
    out["child"][clusters] = new_numbers[out["child"][clusters] - m]
    return out


def stabilities(condensed: Any, m: int) -> tuple[Floats, Floats]:
    """Return the stability of each cluster, and the density at which it begins."""
    k = int(condensed["parent"].max()) - m + 1
    births = np.zeros(k)
    clusters = condensed[condensed["child"] >= m]
    births[clusters["child"] - m] = clusters["lambda_val"]
    owner = condensed["parent"] - m
    life = np.zeros(len(condensed))
    # Clusters of equal rows begin and end at infinite density: their stability is 0.
    np.subtract(condensed["lambda_val"], births[owner], out=life, where=np.isfinite(births[owner]))
    stability = np.bincount(owner, life * condensed["child_size"], minlength=k)
    return np.asarray(stability, np.float64), births


@dataclass(frozen=True)
class Selection:
    """Chosen clusters, and the densities (1 / distance) from which labels and scores follow.

    ``labels`` (m,) are the clusters of the points, -1 for noise.  ``falls`` (m,) is the density at
    which each point leaves the tree.  ``ends`` (m,) is the largest density in the subtree of the
    cluster that the point leaves: GLOSH scores are relative to it.  For each chosen cluster,
    ``births`` (k,) is the density at which it begins, and ``deaths`` (k,) is the largest density
    at which a point or cluster leaves it.
    """

    labels: Ints
    falls: Floats
    ends: Floats
    births: Floats
    deaths: Floats


def _excess_of_mass(stability: Floats, parents: Ints, first_cluster: int) -> Bools:
    """Choose disjoint clusters with the largest total stability."""
    total = stability.copy()
    below = np.zeros(len(total))
    chosen = np.zeros(len(total), bool)
    for c in range(len(total) - 1, -1, -1):
        if c >= first_cluster:
            chosen[c] = not below[c] > total[c]
        total[c] = total[c] if chosen[c] else below[c]
        if c:
            below[parents[c]] += total[c]
    return chosen


def select_clusters(
    condensed: Any,
    m: int,
    method: Method,
    epsilon: float,
    allow_single_cluster: bool,
    birth_factor: float = 1.0,
) -> Selection:
    """Choose clusters from a condensed tree of m points.

    The method is excess of mass (Campello et al. 2013), or the leaves of the tree.  Clusters are
    not split below the distance `epsilon` (Malzer and Baum 2020).  Chosen clusters begin at
    `birth_factor` times the density at which they separate.  Clusters that end before that density
    are noise.
    """
    stability, births = stabilities(condensed, m)
    k = len(stability)
    parents = np.full(k, -1)
    cluster_records = condensed[condensed["child"] >= m]
    parents[cluster_records["child"] - m] = cluster_records["parent"] - m
    if method == "eom":
        chosen = _excess_of_mass(stability, parents, 0 if allow_single_cluster else 1)
    else:
        chosen = np.full(k, k > 1)
        chosen[parents[1:]] = False
    if epsilon > 0.0 and k > 1 and not chosen[0]:
        chosen = _merged_below(chosen, parents, births, epsilon, allow_single_cluster)
    ends = np.zeros(k)
    np.maximum.at(ends, condensed["parent"] - m, condensed["lambda_val"])
    own_ends = ends.copy()
    for c in range(k - 1, 0, -1):
        ends[parents[c]] = max(ends[parents[c]], ends[c])
    births = births * birth_factor
    chosen &= births <= ends
    # The outermost chosen cluster that contains each cluster.  Parents have lower numbers.
    above = np.where(chosen, np.arange(k), -1)
    for c in range(1, k):
        if above[parents[c]] >= 0:
            above[c] = above[parents[c]]
    chosen &= above == np.arange(k)
    points = condensed[condensed["child"] < m]
    owner, falls, point_numbers = np.empty(m, np.int64), np.empty(m), points["child"]
    owner[point_numbers], falls[point_numbers] = points["parent"] - m, points["lambda_val"]
    # Clusters are numbered by weight, then by their first point, so that numbers depend neither on
    # the order of the points nor on repeated points.
    mass, first = np.zeros(k + 1), np.full(k + 1, m)
    np.add.at(mass, above[owner], points["child_size"][np.argsort(point_numbers)])
    np.minimum.at(first, above[owner], np.arange(m))
    order = np.flatnonzero(chosen)
    order = order[np.lexsort([first[order], -mass[order]])]
    cluster_numbers = np.full(k + 1, -1)
    cluster_numbers[order] = np.arange(len(order))
    labels = cluster_numbers[above[owner]]
    deaths = own_ends[order]
    if chosen[0]:
        # The root is the only cluster.  Points that leave it before its last split, or at a
        # distance above epsilon, are noise.
        births[0] = 1.0 / epsilon if epsilon > 0.0 else deaths[0]
        labels[falls < births[0]] = -1
        if not allow_single_cluster:
            labels[:] = -1
    return Selection(labels, falls, ends[owner], births[order], deaths)


def _merged_below(
    chosen: Bools, parents: Ints, births: Floats, epsilon: float, allow_single_cluster: bool
) -> Bools:
    """Replace clusters that begin below the distance epsilon by ancestors that begin above it."""
    out = np.zeros_like(chosen)
    for c in np.flatnonzero(chosen):
        while births[c] * epsilon > 1.0:
            if parents[c] == 0 and not allow_single_cluster:
                break
            c = parents[c]
            if c == 0:
                break
        out[c] = True
    return out
