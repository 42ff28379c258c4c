"""Groups of must-linked rows, and clusters for them in which linked groups never share one.

Cannot-links that must hold make the assignment of rows a coloring of a graph:
vertices are groups of must-linked rows, edges are cannot-links, colors are the k
clusters, and giving group g cluster c costs ``costs[g, c]``.  Which colors are
possible at all does not depend on the costs; :func:`color` finds that out once.

A vertex with fewer than k neighbors can always be colored after its neighbors.
Vertices are therefore visited in *smallest-last* order, in which only the graph's
k-core, what remains when such vertices are taken away again and again, can get
stuck; only there a search is needed.  (HiGHS, by ``scipy.optimize.milp``, finds the same costs in
100 times the time or more, and other colors of equal cost.)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from daskclust.core.array_types import Bools, Floats, Ints
from daskclust.core.kernels.compiling import compiled, inner
from daskclust.core.kernels.linkage import find_root


@compiled()
def _join(left: Ints, right: Ints, foes: Ints, classes: Ints, parent: Ints) -> None:
    # The cannot-links of a component are a chain of their ends, joined when components are.
    n, n_foes = len(parent), len(foes)
    first, last = np.full(n, -1), np.full(n, -1)
    count = np.zeros(n, np.int64)
    after = np.full(2 * n_foes, -1)
    for end in range(2 * n_foes):
        i = foes[end // 2, end % 2]
        if first[i] < 0:
            first[i] = end
        else:
            after[last[i]] = end
        last[i] = end
        count[i] += 1
    for e in range(len(left)):
        a, b = find_root(parent, left[e]), find_root(parent, right[e])
        if a == b or (classes[a] >= 0 and classes[b] >= 0 and classes[a] != classes[b]):
            continue
        if count[a] > count[b]:
            a, b = b, a
        end = first[a]
        while end >= 0 and find_root(parent, foes[end // 2, 1 - end % 2]) != b:
            end = after[end]
        if end >= 0:
            continue
        parent[a] = b
        classes[b] = max(classes[a], classes[b])
        count[b] += count[a]
        if first[b] < 0:
            first[b], last[b] = first[a], last[a]
        elif first[a] >= 0:
            after[last[b]] = first[a]
            last[b] = last[a]
    for i in range(n):
        parent[i] = find_root(parent, i)


def agreeing_components(left: Ints, right: Ints, cannot_link: Ints, classes: Ints) -> Ints:
    """Join must-linked rows in order, but never two rows that may not be together.

    A must-link is passed over when its ends are by then in groups of which some rows are
    cannot-linked, or have different classes (n,), -1 for none.  Components are numbered in the
    order of their smallest row.  O(n + m + q log q), if refused ones meet a cannot-link soon.
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
    """Order the vertices of a simple graph so that those which may get stuck come first.

    Returned are the reversed order of taking away a vertex of the smallest degree left, and how
    many vertices, the first of the order, are in the k-core.  O(n + edges).
    """
    n = indptr.size - 1
    degree = np.empty(n, dtype=np.int64)
    largest = 0
    for v in range(n):
        degree[v] = indptr[v + 1] - indptr[v]
        largest = max(largest, degree[v])
    # Vertices sorted by degree, kept sorted by swapping (Batagelj & Zaversnik's core numbers).
    starts = np.zeros(largest + 2, dtype=np.int64)
    for v in range(n):
        starts[degree[v] + 1] += 1
    for d in range(largest + 1):
        starts[d + 1] += starts[d]
    at = starts.copy()
    row = np.empty(n, dtype=np.int64)
    place = np.empty(n, dtype=np.int64)
    for v in range(n):
        place[v] = at[degree[v]]
        row[place[v]] = v
        at[degree[v]] += 1
    n_easy = 0
    for i in range(n):
        v = row[i]
        if degree[v] < k:
            n_easy = i + 1
        for e in range(indptr[v], indptr[v + 1]):
            u = neighbors[e]
            if degree[u] > degree[v]:
                first = starts[degree[u]]
                other = row[first]
                if other != u:
                    row[place[u]], row[first] = other, u
                    place[other], place[u] = place[u], first
                starts[degree[u]] += 1
                degree[u] -= 1
    return row[::-1].copy(), n - n_easy


@compiled()
def greedy(costs, indptr, neighbors, order, labels):
    """Give each uncolored vertex (-1), in order, the cheapest color its neighbors leave.

    Return how many were left uncolored because no color remained.
    """
    k = costs.shape[1]
    taken = np.full(k, -1, dtype=np.int64)
    stuck = 0
    for v in order:
        if labels[v] >= 0:
            continue
        for e in range(indptr[v], indptr[v + 1]):
            c = labels[neighbors[e]]
            if c >= 0:
                taken[c] = v
        best = -1
        for c in range(k):
            if taken[c] != v and (best < 0 or costs[v, c] < costs[v, best]):
                best = c
        labels[v] = best
        stuck += best < 0
    return stuck


#: Maximum number of groups that exchange their clusters at once.
_LONGEST_CHAIN = 256
#: Relative gain of an exchange that might be rounding.
_NO_GAIN = 1e-12


@inner()
def _chain(costs: Any, graph: Any, labels: Any, c: int, chain: Any, seen: Any) -> tuple[int, float]:
    """Collect the chain of vertex ``chain[0]`` and color ``c``; return its length and its gain.

    The length is 0 if the chain is too long.
    """
    indptr, neighbors = graph
    v = chain[0]
    old = labels[v]
    mark = seen[v]
    size, at, gain, paid = 1, 0, 0.0, 0.0
    while at < size:
        u = chain[at]
        other = c if labels[u] == old else old
        gain += costs[u, labels[u]] - costs[u, other]
        paid += costs[u, labels[u]]
        for e in range(indptr[u], indptr[u + 1]):
            w = neighbors[e]
            if labels[w] == other and seen[w] != mark:
                if size == chain.size:
                    return 0, 0.0
                seen[w] = mark
                chain[size] = w
                size += 1
        at += 1
    return size, gain if gain > _NO_GAIN * paid else 0.0


@compiled()
def improve(costs: Any, indptr: Any, neighbors: Any, labels: Any, n_sweeps: int) -> None:
    """Lower the cost of a proper coloring by exchanging two colors along Kempe chains.

    The chain of a vertex and a color consists of all vertices of this color and of the color of the
    vertex that edges connect to it.  It is the vertex alone if its neighbors leave the color.
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
                # Some vertex gains in each exchange that lowers the cost: its chain is the same.
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
    """The vertices that a search colors; as :func:`search` takes them."""

    costs: Floats
    indptr: Ints
    neighbors: Ints
    members: Ints
    local: Ints
    any_will_do: bool


class _Tree(NamedTuple):
    """State of a search for a coloring of m vertices with k colors.

    ``now`` (m,) is the color of each member, -1 = none yet; ``blocked`` (m, k) how many of its
    neighbors have the color; ``used`` (k,) how many members have it.  ``stack`` (m,) holds members
    in the order in which they were colored, ``tried`` (m + 1, k) the colors that the member of each
    depth has had, ``spent`` (m + 1,) the cost of the members colored at each depth.
    """

    now: Ints
    blocked: Ints
    used: Ints
    stack: Ints
    tried: Bools
    spent: Floats


#: Instead of the next vertex: all are colored; one has no color left.
_COMPLETE, _DEAD = -1, -2


@inner()
def _two_cheapest(costs: Any, v: int, blocked: Any, i: int) -> tuple[int, float, float]:
    """Colors that member i, vertex v, has left, and its two lowest costs among them."""
    left = 0
    first = np.inf
    second = np.inf
    for c in range(costs.shape[1]):
        if blocked[i, c]:
            continue
        left += 1
        cost = costs[v, c]
        if cost < first:
            second = first
            first = cost
        elif cost < second:
            second = cost
    return left, first, second


@inner()
def _next_vertex(part: Any, tree: Any, depth: int) -> tuple[int, float]:
    """Member to color next, and a lower bound of what the coloring will cost.

    That with the fewest colors left; of those the one that would lose most by its
    second best, or has the most neighbors where costs do not matter.
    """
    costs, indptr, _, members, _, any_will_do = part
    now, blocked = tree.now, tree.blocked
    bound = tree.spent[depth]
    pick, fewest, widest = _COMPLETE, costs.shape[1] + 1, -1.0
    for i in range(members.size):
        if now[i] >= 0:
            continue
        v = members[i]
        left, first, second = _two_cheapest(costs, v, blocked, i)
        if left == 0:
            return _DEAD, np.inf
        if any_will_do:
            gap = float(indptr[v + 1] - indptr[v])
        else:
            bound += first
            gap = second - first if left > 1 else np.inf
        if left < fewest or (left == fewest and gap > widest):
            pick, fewest, widest = i, left, gap
    return pick, bound


@inner()
def _next_color(part: Any, tree: Any, depth: int) -> int:
    """Color to try next for the member of this depth, -1 = all were tried."""
    costs, any_will_do = part.costs, part.any_will_do
    blocked, used, tried = tree.blocked, tree.used, tree.tried
    i = tree.stack[depth]
    v = part.members[i]
    best = -1
    for c in range(used.size):
        if blocked[i, c] or tried[depth, c]:
            continue
        if best < 0 or (not any_will_do and costs[v, c] < costs[v, best]):
            best = c
    if best >= 0:
        tried[depth, best] = True
        if any_will_do and used[best] == 0:
            # Unused colors are equivalent, so only one of them is tried.
            for c in range(used.size):
                if used[c] == 0:
                    tried[depth, c] = True
    return best


@inner()
def _count_color(part: Any, tree: Any, i: int, c: int, sign: int) -> None:
    """Member i gets (sign 1) or gives back (sign -1) color ``c``."""
    indptr, neighbors, local, blocked = part.indptr, part.neighbors, part.local, tree.blocked
    v = part.members[i]
    tree.now[i] = c if sign > 0 else -1
    tree.used[c] += sign
    for e in range(indptr[v], indptr[v + 1]):
        j = local[neighbors[e]]
        if j >= 0:
            blocked[j, c] += sign


@inner()
def _search_tree(part: Any, tree: Any, labels: Any, best: float, budget: int) -> int:
    """Return how many colorings cheaper than ``best`` were found, or -1 when the budget ran out."""
    costs, members, any_will_do = part.costs, part.members, part.any_will_do
    depth = 0
    found = 0
    for _ in range(budget):
        pick, bound = _next_vertex(part, tree, depth)
        cheaper = any_will_do or bound < best
        if pick == _COMPLETE and cheaper:
            best = bound
            found += 1
            labels[members] = tree.now
            if any_will_do:
                return found
        color = -1
        if pick >= 0 and cheaper:
            tree.stack[depth] = pick
            tree.tried[depth, :] = False
            color = _next_color(part, tree, depth)
        while color < 0:
            # Back to the last member that has a color left to try.
            if depth == 0:
                return found
            depth -= 1
            i = tree.stack[depth]
            _count_color(part, tree, i, tree.now[i], -1)
            color = _next_color(part, tree, depth)
        i = tree.stack[depth]
        _count_color(part, tree, i, color, 1)
        cost = 0.0 if any_will_do else costs[members[i], color]
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
    any_will_do: bool,
) -> int:
    """Color some vertices by branch and bound, as if the others were not there.

    ``local`` (n,) is -1 everywhere, and handed back so.  The labels of the members are a proper
    coloring to improve, or -1; ``budget`` is the number of nodes of the search tree at most.  With
    ``any_will_do`` it stops at the first coloring: costs are not looked at, colors exchangeable.

    Return 1 when the coloring found is the cheapest (or wanted at all), 0 when the
    budget ran out, -1 when there is none: only if the members had none before.
    """
    m, k = members.size, costs.shape[1]
    had_none = labels[members[0]] < 0
    best = np.inf if had_none else 0.0
    for i in range(m):
        local[members[i]] = i
        if not had_none:
            best += costs[members[i], labels[members[i]]]
    part = _Part(costs, indptr, neighbors, members, local, any_will_do)
    tree = _Tree(
        np.full(m, -1, dtype=np.int64),
        np.zeros((m, k), dtype=np.int64),
        np.zeros(k, dtype=np.int64),
        np.empty(m, dtype=np.int64),
        np.zeros((m + 1, k), dtype=np.bool_),
        np.zeros(m + 1),
    )
    found = _search_tree(part, tree, labels, best, budget)
    for i in range(m):
        local[members[i]] = -1
    if found < 0:
        return 0
    return -1 if found == 0 and had_none else 1


@compiled()
def solve_small(
    costs: Any, indptr: Any, neighbors: Any, starts: Any, members: Any, labels: Any, budget: int
) -> Any:
    """Improve the coloring of each small component, ``members[starts[i]:starts[i + 1]]``.

    Return which components' coloring is known to be the cheapest.
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
            part = members[starts[i] : starts[i + 1]]
            exact[i] = search(costs, indptr, neighbors, part, local, labels, budget, False) == 1
    return exact


def color(
    indptr: Ints, neighbors: Ints, order: Ints, n_core: int, k: int, budget: int
) -> tuple[Ints, int]:
    """Find any proper coloring with k colors: 1 = found, -1 = there is none, 0 = not known.

    The order and ``n_core`` are those of :func:`smallest_last`.
    """
    n = len(order)
    labels = np.full(n, -1, dtype=np.int64)
    flat = np.zeros((n, k))
    if greedy(flat, indptr, neighbors, order, labels) == 0:
        return labels, 1
    labels[:] = -1
    core = np.sort(order[:n_core])
    local = np.full(n, -1, dtype=np.int64)
    state = search(flat, indptr, neighbors, core, local, labels, budget, True)
    if state == 1:
        greedy(flat, indptr, neighbors, order, labels)
    return labels, int(state)
