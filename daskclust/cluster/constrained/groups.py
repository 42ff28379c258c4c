"""Assign groups of must-linked rows to clusters, so that cannot-linked groups differ.

This is the coloring of a graph.  Vertices are groups of must-linked rows, edges are cannot-links,
and colors are the k clusters.  ``costs[g, c]`` is the cost of color c for vertex g.  The costs do
not decide if a coloring exists, so :func:`color` finds a first coloring without them.

A vertex with fewer than k neighbors can always be colored after its neighbors.  If such vertices
are removed repeatedly, the k-core of the graph remains.  In *smallest-last* order the k-core comes
first.  Only its vertices may have no color left, so only the k-core needs a search.
(``scipy.optimize.milp`` finds colorings of the same cost, but takes more than 100 times as long.)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from daskclust.core.array_types import Bools, Floats, Ints
from daskclust.core.kernels.compiling import compiled, inner
from daskclust.core.kernels.linkage import find_root


@compiled()
def _join(left: Ints, right: Ints, cannot_links: Ints, classes: Ints, parent: Ints) -> None:
    # Cannot-link f has the ends 2 f and 2 f + 1.  The ends in a component form a linked list, and
    # lists are concatenated when their components are joined.
    n, n_cannot_links = len(parent), len(cannot_links)
    first, last = np.full(n, -1), np.full(n, -1)
    count = np.zeros(n, np.int64)
    next_end = np.full(2 * n_cannot_links, -1)
    for end in range(2 * n_cannot_links):
        i = cannot_links[end // 2, end % 2]
        if first[i] < 0:
            first[i] = end
        else:
            next_end[last[i]] = end
        last[i] = end
        count[i] += 1
    for e in range(len(left)):
        a, b = find_root(parent, left[e]), find_root(parent, right[e])
        if a == b or (classes[a] >= 0 and classes[b] >= 0 and classes[a] != classes[b]):
            continue
        if count[a] > count[b]:
            a, b = b, a
        end = first[a]
        while end >= 0 and find_root(parent, cannot_links[end // 2, 1 - end % 2]) != b:
            end = next_end[end]
        if end >= 0:
            continue
        parent[a] = b
        classes[b] = max(classes[a], classes[b])
        count[b] += count[a]
        if first[b] < 0:
            first[b], last[b] = first[a], last[a]
        elif first[a] >= 0:
            next_end[last[b]] = first[a]
            last[b] = last[a]
    for i in range(n):
        parent[i] = find_root(parent, i)


def agreeing_components(left: Ints, right: Ints, cannot_link: Ints, classes: Ints) -> Ints:
    """Join must-linked rows in order, unless this violates a cannot-link or a class.

    A must-link is skipped if a cannot-link connects the components of its two rows, or if these
    components have different classes.  `classes` (n,) is -1 for rows without a class.  Components
    are numbered in the order of their smallest row.  The time is O(n + m + q log q) for m
    must-links and q cannot-links, if skipped must-links find a cannot-link quickly.
    """
    n = len(classes)
    parent = np.arange(n)
    _join(
        np.ascontiguousarray(left, dtype=np.int64),
        np.ascontiguousarray(right, dtype=np.int64),
        np.ascontiguousarray(cannot_link, dtype=np.int64).reshape(-1, 2),
        np.array(classes, dtype=np.int64),
        parent,
    )
    _, first, inverse = np.unique(parent, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]


#: Maximum number of groups of a component that is solved by branch and bound.
EXACT_SIZE = 16


@compiled()
def smallest_last(indptr: Any, neighbors: Any, k: int) -> tuple[Any, int]:
    """Return the vertices of a simple graph in smallest-last order, and the size of the k-core.

    Vertices of the smallest remaining degree are removed one after another, and the order of their
    removal is reversed.  The vertices of the k-core come first.  O(n + edges).
    """
    n = indptr.size - 1
    degree = np.empty(n, dtype=np.int64)
    largest = 0
    for v in range(n):
        degree[v] = indptr[v + 1] - indptr[v]
        largest = max(largest, degree[v])
    # Swaps keep the vertices sorted by degree (core numbers of Batagelj and Zaversnik).
    starts = np.zeros(largest + 2, dtype=np.int64)
    for v in range(n):
        starts[degree[v] + 1] += 1
    for d in range(largest + 1):
        starts[d + 1] += starts[d]
    next_position = starts.copy()
    ordered = np.empty(n, dtype=np.int64)
    position = np.empty(n, dtype=np.int64)
    for v in range(n):
        position[v] = next_position[degree[v]]
        ordered[position[v]] = v
        next_position[degree[v]] += 1
    n_easy = 0
    for i in range(n):
        v = ordered[i]
        if degree[v] < k:
            n_easy = i + 1
        for e in range(indptr[v], indptr[v + 1]):
            u = neighbors[e]
            if degree[u] > degree[v]:
                first = starts[degree[u]]
                other = ordered[first]
                if other != u:
                    ordered[position[u]], ordered[first] = other, u
                    position[other], position[u] = position[u], first
                starts[degree[u]] += 1
                degree[u] -= 1
    return ordered[::-1].copy(), n - n_easy


@compiled()
def greedy(costs, indptr, neighbors, order, labels):
    """Give each uncolored vertex (-1), in order, the cheapest color that no neighbor has.

    Return the number of vertices that remain uncolored because their neighbors have all colors.
    """
    k = costs.shape[1]
    # Last vertex with a neighbor of this color.
    vertex_of_color = np.full(k, -1, dtype=np.int64)
    n_uncolored = 0
    for v in order:
        if labels[v] >= 0:
            continue
        for e in range(indptr[v], indptr[v + 1]):
            c = labels[neighbors[e]]
            if c >= 0:
                vertex_of_color[c] = v
        best = -1
        for c in range(k):
            if vertex_of_color[c] != v and (best < 0 or costs[v, c] < costs[v, best]):
                best = c
        labels[v] = best
        n_uncolored += best < 0
    return n_uncolored


#: Maximum number of groups whose clusters are exchanged at once.
_LONGEST_CHAIN = 256
#: Maximum rounding error of the gain of an exchange, as a fraction of the cost.
_NO_GAIN = 1e-12


@inner()
def _chain(costs: Any, graph: Any, labels: Any, c: int, chain: Any, seen: Any) -> tuple[int, float]:
    """Collect the Kempe chain of vertex ``chain[0]`` and color ``c``; return its length and gain.

    The gain is the decrease of the cost if the two colors of the chain are exchanged, 0 if it may
    be a rounding error.  The length is 0 if the chain does not fit into ``chain``.
    """
    indptr, neighbors = graph
    v = chain[0]
    old = labels[v]
    mark = seen[v]
    size, position, gain, old_cost = 1, 0, 0.0, 0.0
    while position < size:
        u = chain[position]
        other = c if labels[u] == old else old
        gain += costs[u, labels[u]] - costs[u, other]
        old_cost += costs[u, labels[u]]
        for e in range(indptr[u], indptr[u + 1]):
            w = neighbors[e]
            if labels[w] == other and seen[w] != mark:
                if size == chain.size:
                    return 0, 0.0
                seen[w] = mark
                chain[size] = w
                size += 1
        position += 1
    return size, gain if gain > _NO_GAIN * old_cost else 0.0


@compiled()
def improve(costs: Any, indptr: Any, neighbors: Any, labels: Any, n_sweeps: int) -> None:
    """Lower the cost of a proper coloring by exchanging two colors along Kempe chains.

    The chain of vertex v and color c is a connected component that contains v.  Its vertices have
    color c or the color of v.  If no neighbor of v has color c, the chain is v alone.
    """
    n, k = costs.shape
    seen = np.full(n, -1, dtype=np.int64)
    chain = np.empty(min(n, _LONGEST_CHAIN), dtype=np.int64)
    mark = 0
    for _ in range(n_sweeps):
        moved = False
        for v in range(n):
            for c in range(k):
                old = labels[v]
                # If an exchange lowers the cost of a chain, it lowers the cost of at least one of
                # its vertices.  So only chains of such vertices are tried.
                if costs[v, c] >= costs[v, old]:
                    continue
                mark += 1
                chain[0], seen[v] = v, mark
                size, gain = _chain(costs, (indptr, neighbors), labels, c, chain, seen)
                if size and gain > 0.0:
                    for i in range(size):
                        u = chain[i]
                        labels[u] = c if labels[u] == old else old
                    moved = True
        if not moved:
            break


class _Part(NamedTuple):
    """Vertices that a search colors; the fields are arguments of :func:`search`."""

    costs: Floats
    indptr: Ints
    neighbors: Ints
    members: Ints
    local: Ints
    ignore_costs: bool


class _Tree(NamedTuple):
    """State of a search for a coloring of m vertices (members) with k colors.

    - `colors` (m,): color of each member, or -1.
    - `blocked` (m, k): number of neighbors of a member that have the color.
    - `used` (k,): number of members that have the color.
    - `stack` (m,): colored members, in order.  A depth is a position in this order.
    - `tried` (m + 1, k): True if the color was tried at this depth.
    - `spent` (m + 1,): cost of the members that are colored before this depth.
    """

    colors: Ints
    blocked: Ints
    used: Ints
    stack: Ints
    tried: Bools
    spent: Floats


#: Returned in place of the next member: all members are colored; a member has no color left.
_COMPLETE, _DEAD = -1, -2


@inner()
def _two_cheapest(costs: Any, v: int, blocked: Any, i: int) -> tuple[int, float, float]:
    """Return the number of possible colors of member i, vertex v, and their two lowest costs."""
    n_possible = 0
    first = np.inf
    second = np.inf
    for c in range(costs.shape[1]):
        if blocked[i, c]:
            continue
        n_possible += 1
        cost = costs[v, c]
        if cost < first:
            second = first
            first = cost
        elif cost < second:
            second = cost
    return n_possible, first, second


@inner()
def _next_vertex(part: Any, tree: Any, depth: int) -> tuple[int, float]:
    """Return the member to color next, and a lower bound of the cost of the coloring.

    This is the member with the fewest possible colors.  Ties are broken by the largest difference
    of the two lowest costs, or by the most neighbors if costs are ignored.
    """
    costs, indptr, _, members, _, ignore_costs = part
    colors, blocked = tree.colors, tree.blocked
    bound = tree.spent[depth]
    pick, fewest, highest = _COMPLETE, costs.shape[1] + 1, -1.0
    for i in range(members.size):
        if colors[i] >= 0:
            continue
        v = members[i]
        n_possible, first, second = _two_cheapest(costs, v, blocked, i)
        if n_possible == 0:
            return _DEAD, np.inf
        if ignore_costs:
            priority = float(indptr[v + 1] - indptr[v])
        else:
            bound += first
            priority = second - first if n_possible > 1 else np.inf
        if n_possible < fewest or (n_possible == fewest and priority > highest):
            pick, fewest, highest = i, n_possible, priority
    return pick, bound


@inner()
def _next_color(part: Any, tree: Any, depth: int) -> int:
    """Return the color to try next for the member of this depth, or -1 if all were tried."""
    costs, ignore_costs = part.costs, part.ignore_costs
    blocked, used, tried = tree.blocked, tree.used, tree.tried
    i = tree.stack[depth]
    v = part.members[i]
    best = -1
    for c in range(used.size):
        if blocked[i, c] or tried[depth, c]:
            continue
        if best < 0 or (not ignore_costs and costs[v, c] < costs[v, best]):
            best = c
    if best >= 0:
        tried[depth, best] = True
        if ignore_costs and used[best] == 0:
            # Unused colors are equivalent, so try only the first.
            for c in range(used.size):
                if used[c] == 0:
                    tried[depth, c] = True
    return best


@inner()
def _count_color(part: Any, tree: Any, i: int, c: int, sign: int) -> None:
    """Assign color ``c`` to member i (sign 1), or remove it (sign -1)."""
    indptr, neighbors, local, blocked = part.indptr, part.neighbors, part.local, tree.blocked
    v = part.members[i]
    tree.colors[i] = c if sign > 0 else -1
    tree.used[c] += sign
    for e in range(indptr[v], indptr[v + 1]):
        j = local[neighbors[e]]
        if j >= 0:
            blocked[j, c] += sign


@inner()
def _search_tree(part: Any, tree: Any, labels: Any, best: float, budget: int) -> int:
    """Search for cheaper colorings than ``best``, and store the cheapest one in ``labels``.

    Return the number of improvements, or -1 if the search was not completed within the budget.
    """
    costs, members, ignore_costs = part.costs, part.members, part.ignore_costs
    depth = 0
    n_improvements = 0
    for _ in range(budget):
        pick, bound = _next_vertex(part, tree, depth)
        cheaper = ignore_costs or bound < best
        if pick == _COMPLETE and cheaper:
            best = bound
            n_improvements += 1
            labels[members] = tree.colors
            if ignore_costs:
                return n_improvements
        color = -1
        if pick >= 0 and cheaper:
            tree.stack[depth] = pick
            tree.tried[depth, :] = False
            color = _next_color(part, tree, depth)
        while color < 0:
            # Return to the last member with an untried color.
            if depth == 0:
                return n_improvements
            depth -= 1
            i = tree.stack[depth]
            _count_color(part, tree, i, tree.colors[i], -1)
            color = _next_color(part, tree, depth)
        i = tree.stack[depth]
        _count_color(part, tree, i, color, 1)
        cost = 0.0 if ignore_costs else costs[members[i], color]
        tree.spent[depth + 1] = tree.spent[depth] + cost
        depth += 1
    return -1


@compiled()
def search(
    costs: Any,
    indptr: Any,
    neighbors: Any,
    members: Any,
    local: Any,
    labels: Any,
    budget: int,
    ignore_costs: bool,
) -> int:
    """Color the vertices `members` (m,) by branch and bound, without regard to other vertices.

    `labels` of the members are a proper coloring to improve, or all -1; they are overwritten.
    `local` (n,) is a buffer of -1, and is reset.  `budget` is the maximum number of nodes of the
    search tree.  With `ignore_costs` the search ends at the first coloring.

    Return 1 if the coloring is the cheapest, or the first with `ignore_costs`.  Return 0 if the
    search was not completed within the budget, and -1 if no coloring exists.
    """
    m, k = members.size, costs.shape[1]
    is_uncolored = labels[members[0]] < 0
    best = np.inf if is_uncolored else 0.0
    for i in range(m):
        local[members[i]] = i
        if not is_uncolored:
            best += costs[members[i], labels[members[i]]]
    part = _Part(costs, indptr, neighbors, members, local, ignore_costs)
    tree = _Tree(
        np.full(m, -1, dtype=np.int64),
        np.zeros((m, k), dtype=np.int64),
        np.zeros(k, dtype=np.int64),
        np.empty(m, dtype=np.int64),
        np.zeros((m + 1, k), dtype=np.bool_),
        np.zeros(m + 1),
    )
    n_improvements = _search_tree(part, tree, labels, best, budget)
    for i in range(m):
        local[members[i]] = -1
    if n_improvements < 0:
        return 0
    return -1 if n_improvements == 0 and is_uncolored else 1


@compiled()
def solve_small(
    costs: Any, indptr: Any, neighbors: Any, starts: Any, members: Any, labels: Any, budget: int
) -> Any:
    """Improve the coloring of each small component.

    The vertices of component i are ``members[starts[i]:starts[i + 1]]``.  Return a mask of the
    components whose coloring is known to be the cheapest.
    """
    n_components = starts.size - 1
    exact = np.zeros(n_components, dtype=np.bool_)
    local = np.full(costs.shape[0], -1, dtype=np.int64)
    for i in range(n_components):
        size = starts[i + 1] - starts[i]
        if size == 1:
            v = members[starts[i]]
            best = 0
            for c in range(1, costs.shape[1]):
                if costs[v, c] < costs[v, best]:
                    best = c
            labels[v] = best
            exact[i] = True
        elif size <= EXACT_SIZE:
            component = members[starts[i] : starts[i + 1]]
            exact[i] = (
                search(costs, indptr, neighbors, component, local, labels, budget, False) == 1
            )
    return exact


def color(
    indptr: Ints, neighbors: Ints, order: Ints, n_core: int, k: int, budget: int
) -> tuple[Ints, int]:
    """Return a proper coloring with k colors, and its state.

    The state is 1 if the coloring is complete, -1 if no coloring exists, and 0 if the search was
    not completed within the budget.  `order` and `n_core` are results of :func:`smallest_last`.
    """
    n = len(order)
    labels = np.full(n, -1, dtype=np.int64)
    no_costs = np.zeros((n, k))
    if greedy(no_costs, indptr, neighbors, order, labels) == 0:
        return labels, 1
    labels[:] = -1
    core = np.sort(order[:n_core])
    local = np.full(n, -1, dtype=np.int64)
    state = search(no_costs, indptr, neighbors, core, local, labels, budget, True)
    if state == 1:
        greedy(no_costs, indptr, neighbors, order, labels)
    return labels, int(state)
