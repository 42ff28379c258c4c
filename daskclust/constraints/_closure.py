"""Closure of must-links by connected components, and contradictions that it brings to light.

Iterative throughout: a chain of a million rows is one component like any other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

__all__ = ["components", "contradictions", "must_link_graph"]

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

#: Rows of a chain that are named before its middle is left out.
_CHAIN_ROWS = 12


def must_link_graph(left: Ints, right: Ints, classes: Ints, n_classes: int) -> csr_array:
    """Must-links as a graph of the m constrained rows and, after them, one node a class.

    A class is a star around its node, not a clique: L edges instead of L^2 / 2.
    """
    m = classes.size
    labeled = np.flatnonzero(classes >= 0)
    start = np.concatenate([left, labeled])
    end = np.concatenate([right, m + classes[labeled]])
    size = m + n_classes
    # Entries of repeated pairs add up: floats cannot wrap round to 0, "no edge".
    return csr_array((np.ones(start.size), (start, end)), shape=(size, size))


def components(graph: csr_array) -> Ints:
    """Component of each node of a :func:`must_link_graph`, in the order of their smallest node."""
    count, component = connected_components(graph, directed=False)
    # The last assignment counts: the smallest node of each.
    first = np.empty(count, dtype=np.int64)
    first[component[::-1]] = np.arange(component.size)[::-1]
    rank = np.empty(count, dtype=np.int64)
    rank[np.argsort(first)] = np.arange(count)
    found: Ints = rank[component]
    return found


def contradictions(
    graph: csr_array,
    component: Ints,
    rows: Ints,
    left: Ints,
    right: Ints,
    kinds: Bools,
    classes: Ints,
    values: NDArray[Any],
) -> tuple[int, str]:
    """Count the contradictions, and put the first of them into words.

    Parameters
    ----------
    graph : csr_array
        Of :func:`must_link_graph`.
    component : int64 array
        Of :func:`components`.
    rows, left, right, kinds, classes, values
        As of :class:`PairwiseConstraints`.
    """
    m, n_classes = rows.size, values.size
    inside = np.flatnonzero(~kinds & (component[left] == component[right]))
    # Two classes in one component: rows of different classes are must-linked.
    _, first, inverse = np.unique(component[m:], return_index=True, return_inverse=True)
    merged = np.flatnonzero(first[inverse] != np.arange(n_classes))
    count = int(inside.size + merged.size)
    if merged.size:
        other, here = int(first[inverse[merged[0]]]), int(merged[0])
        return count, _class_chain(graph, m + other, m + here, rows, classes, values)
    if inside.size:
        a, b = int(left[inside[0]]), int(right[inside[0]])
        chain = _describe(_shortest_path(graph, a, b), rows, values)
        return count, f"{chain}, {rows[a]}-{rows[b]} cannot-linked"
    return 0, ""


def _shortest_path(graph: csr_array, start: int, end: int) -> list[int]:
    """Nodes from ``start`` to ``end``, which are connected, by breadth-first search."""
    _, before = breadth_first_order(graph, start, directed=False, return_predecessors=True)
    path = [end]
    while path[-1] != start:
        path.append(int(before[path[-1]]))
    return path[::-1]


def _class_chain(
    graph: csr_array, start: int, end: int, rows: Ints, classes: Ints, values: NDArray[Any]
) -> str:
    """Words for a must-link chain between rows of two classes."""
    m = rows.size
    path = _shortest_path(graph, start, end)
    # Up to the next class node: the piece between two neighboring classes is pure must-links.
    stop = next(at for at in range(1, len(path)) if path[at] >= m)
    chain = path[1:stop]
    a, b = chain[0], chain[-1]
    return (
        f"{_describe(chain, rows, values)}, but {rows[a]} is labeled {values[classes[a]]} "
        f"and {rows[b]} is labeled {values[classes[b]]}"
    )


def _describe(path: list[int], rows: Ints, values: NDArray[Any]) -> str:
    """``0-5-9 must-linked`` for a path of rows; class nodes read ``5 and 9 both labeled 2``."""
    m = rows.size
    parts: list[str] = []
    chain: list[int] = []
    for at, node in enumerate(path):
        if node < m:
            chain.append(int(rows[node]))
            continue
        if len(chain) > 1:
            parts.append(f"{_elide(chain)} must-linked")
        chain = []
        before, after = int(rows[path[at - 1]]), int(rows[path[at + 1]])
        parts.append(f"{before} and {after} both labeled {values[node - m]}")
    if len(chain) > 1:
        parts.append(f"{_elide(chain)} must-linked")
    return ", ".join(parts)


def _elide(chain: list[int]) -> str:
    """Row numbers joined by dashes; the middle of a long chain is counted only."""
    names = [str(row) for row in chain]
    if len(names) <= _CHAIN_ROWS:
        return "-".join(names)
    half = _CHAIN_ROWS // 2
    hidden = len(names) - 2 * half
    return "-".join([*names[:half], f"...({hidden} more)...", *names[-half:]])
