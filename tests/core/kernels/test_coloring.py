"""Coloring of groups: by hand, and against trying everything."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from daskclust.cluster.constrained.groups import (
    color,
    greedy,
    improve,
    search,
    smallest_last,
    solve_small,
)


def rows(n: int, edges: Any) -> tuple[np.ndarray, np.ndarray]:
    """A graph in compressed rows."""
    near: list[set[int]] = [set() for _ in range(n)]
    for u, v in edges:
        near[u].add(v)
        near[v].add(u)
    indptr = np.cumsum([0, *map(len, near)]).astype(np.int64)
    return indptr, np.array([u for s in near for u in sorted(s)], dtype=np.int64)


@st.composite
def problems(draw: st.DrawFn) -> tuple[int, int, list[tuple[int, int]], np.ndarray]:
    n, k = draw(st.integers(1, 7)), draw(st.integers(1, 4))
    pairs = list(combinations(range(n), 2))
    edges = [pair for pair in pairs if draw(st.booleans())]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return n, k, edges, rng.random((n, k))


def cheapest(costs: np.ndarray, edges: Any) -> float | None:
    n, k = costs.shape
    totals = [
        sum(costs[i, c] for i, c in enumerate(labels))
        for labels in product(range(k), repeat=n)
        if all(labels[u] != labels[v] for u, v in edges)
    ]
    return min(totals, default=None)


def is_proper(labels: np.ndarray, edges: Any) -> bool:
    return bool((labels >= 0).all()) and all(labels[u] != labels[v] for u, v in edges)


def test_a_triangle_with_a_tail_by_hand() -> None:
    edges = [(0, 1), (1, 2), (0, 2), (2, 3)]
    graph = rows(4, edges)
    order, n_core = smallest_last(*graph, 2)
    assert (set(order[:3]), n_core) == ({0, 1, 2}, 3)
    assert smallest_last(*graph, 3)[1] == 0
    assert color(*graph, order, n_core, 2, 1000)[1] == -1
    costs = np.array([[0.0, 5, 9], [0.0, 1, 9], [0.0, 9, 2], [3.0, 9, 0]])
    labels = color(*graph, order, n_core, 3, 1000)[0]
    local = np.full(4, -1)
    assert search(costs, *graph, np.arange(4), local, labels, 1000, False) == 1
    # 0 -> 0 (0), 1 -> 1 (1), 2 -> 2 (2), 3 -> 0 (3); the next best costs 7
    assert labels.tolist() == [0, 1, 2, 0]


@given(problem=problems())
def test_search_and_color_equal_trying_everything(problem: Any) -> None:
    n, k, edges, costs = problem
    graph, want = rows(n, edges), cheapest(costs, edges)
    order, n_core = smallest_last(*graph, k)
    labels, state = color(*graph, order, n_core, k, 100_000)
    local, members = np.full(n, -1), np.arange(n)
    if want is None:
        assert state == -1
        none = np.full(n, -1)
        assert search(costs, *graph, members, local, none, 100_000, False) == -1
        return
    assert state == 1
    assert is_proper(labels, edges)
    for start in (labels, np.full(n, -1)):
        found = start.copy()
        assert search(costs, *graph, members, local, found, 100_000, False) == 1
        assert is_proper(found, edges)
        assert sum(costs[members, found]) == pytest.approx(want, abs=1e-12)
        assert_array_equal(local, -1)


@given(problem=problems())
def test_the_order_starts_with_the_core(problem: Any) -> None:
    n, k, edges, costs = problem
    graph = rows(n, edges)
    order, n_core = smallest_last(*graph, k)
    assert sorted(order) == list(range(n))
    core = set(range(n))
    while True:
        weak = {v for v in core if sum(v in e and set(e) <= core for e in edges) < k}
        if not weak:
            break
        core -= weak
    assert set(order[:n_core].tolist()) == core
    labels = np.full(n, -1)
    stuck = greedy(costs, *graph, order, labels)
    assert stuck == (labels < 0).sum()
    # Only the core may get stuck.
    assert set(np.flatnonzero(labels < 0)) <= core


@given(problem=problems())
def test_improving_keeps_a_coloring_and_lowers_its_cost(problem: Any) -> None:
    n, k, edges, costs = problem
    graph = rows(n, edges)
    labels, state = color(*graph, *smallest_last(*graph, k), k, 100_000)
    assume(state >= 0)
    before = costs[np.arange(n), labels].sum()
    improve(costs, *graph, labels, 100)
    assert is_proper(labels, edges)
    assert costs[np.arange(n), labels].sum() <= before
    for v in range(n):
        near = {labels[u] for e in edges for u in e if v in e and u != v}
        assert all(c in near for c in range(k) if costs[v, c] < costs[v, labels[v]])


def test_linked_vertices_exchange_their_colors() -> None:
    """No vertex can move alone: of two colors along a path, all must change at once."""
    n = 21
    graph = rows(n, [(i, i + 1) for i in range(n - 1)])
    labels = np.arange(n) % 2
    costs = np.stack([np.where(np.arange(n) % 2, 0.0, 1.0), np.where(np.arange(n) % 2, 1.0, 0.5)])
    costs = np.ascontiguousarray(costs.T)
    improve(costs, *graph, labels, 100)
    assert labels.tolist() == [1 - i % 2 for i in range(n)]


def test_components_are_solved_one_by_one_and_large_ones_left() -> None:
    n, k = 24, 2
    path = [(i, i + 1) for i in range(3, 22)]
    graph = rows(n, [(0, 1), *path])
    rng = np.random.default_rng(0)
    costs = rng.random((n, k))
    labels = np.zeros(n, dtype=np.int64)
    labels[1] = 1
    labels[3:23] = np.arange(20) % 2
    starts, members = np.array([0, 2, 3, 23, 24]), np.arange(n)
    exact = solve_small(costs, *graph, starts, members, labels, 1000)
    assert exact.tolist() == [True, True, False, True]
    assert labels[2] == costs[2].argmin()
    assert labels[23] == costs[23].argmin()
    assert labels[3:23].tolist() == [0, 1] * 10
    assert costs[0, labels[0]] + costs[1, labels[1]] == min(
        costs[0, 0] + costs[1, 1], costs[0, 1] + costs[1, 0]
    )


def test_a_budget_that_runs_out_is_no_proof() -> None:
    n, k = 9, 3
    graph = rows(n, list(combinations(range(n), 2))[:20])
    costs = np.random.default_rng(0).random((n, k))
    labels, local = np.full(n, -1), np.full(n, -1)
    assert search(costs, *graph, np.arange(n), local, labels, 3, False) == 0
    assert (labels == -1).all()
