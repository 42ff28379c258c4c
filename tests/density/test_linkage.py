"""Trees of weighted points equal SciPy's of the rows that they stand for."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.cluster import hierarchy
from scipy.cluster.hierarchy import linkage
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from sklearn.cluster import linkage_tree, ward_tree
from sklearn.cluster._agglomerative import _hc_cut
from sklearn.metrics import adjusted_rand_score

from daskclust.core.kernels.linkage import LINKAGES, adjacency, cut_tree, link, link_adjacent

BY_LINKAGE = pytest.mark.parametrize("name", LINKAGES)


def every_pair(n):
    return adjacency(np.arange(n * n), n)


def test_by_hand():
    # Two rows at 0, one at 3: 2 * 2 * 1 / 3 * 9 = 12.
    tree = link(np.array([[0.0], [3.0]]), np.array([2.0, 1.0]), "ward")
    assert_allclose(tree, [[0, 1, np.sqrt(12), 2]])
    tree = link(np.array([[0.0], [1.0], [5.0]]), np.array([3.0, 1.0, 1.0]), "average")
    assert_allclose(tree[:, 2], [1.0, (3 * 5 + 4) / 4])


@BY_LINKAGE
@given(seed=st.integers(0, 2**32 - 1), whole=st.booleans())
def test_is_scipys_tree(name, seed, whole):
    rng = np.random.default_rng(seed)
    n, p = int(rng.integers(2, 60)), int(rng.integers(1, 5))
    # Whole numbers tie: the order of the merges is SciPy's, too.
    X = rng.integers(0, 5, (n, p)).astype(float) if whole else rng.normal(size=(n, p))
    found, expected = link(X, np.ones(n), name), linkage(X, name)
    assert_array_equal(found[:, [0, 1, 3]], expected[:, [0, 1, 3]])
    assert_allclose(found[:, 2], expected[:, 2], rtol=1e-12, atol=1e-12)
    k = int(rng.integers(1, n + 1))
    if not whole:
        # fcluster(..., "maxclust") of old releases does not cut into exactly k clusters.
        labels = hierarchy.cut_tree(expected, k)[:, 0]
        assert adjusted_rand_score(labels, cut_tree(found, np.ones(n), k)) == 1.0


@BY_LINKAGE
@given(seed=st.integers(0, 2**32 - 1))
def test_weights_are_repetitions(name, seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 40))
    X, weights = rng.normal(size=(n, 3)), rng.integers(1, 5, n)
    heights = linkage(np.repeat(X, weights, axis=0), name)[:, 2]
    # Merges of rows in one place come first, at 0.
    assert_allclose(link(X, weights.astype(float), name)[:, 2], heights[-(n - 1) :], rtol=1e-9)


@BY_LINKAGE
@given(seed=st.integers(0, 2**32 - 1))
def test_all_adjacent_is_the_same_tree(name, seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 40))
    X, weights = rng.normal(size=(n, 2)), rng.integers(1, 5, n).astype(float)
    found = link_adjacent(X, weights, name, every_pair(n))
    assert_allclose(found[:, 2], link(X, weights, name)[:, 2], rtol=1e-9)


@BY_LINKAGE
@given(seed=st.integers(0, 2**32 - 1))
def test_forbidden_pairs_never_meet(name, seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 30))
    X = rng.normal(size=(n, 2))
    pairs = np.array([rng.choice(n, 2, replace=False) for _ in range(int(rng.integers(1, 10)))])
    full = every_pair(n)
    for tree in (link(X, np.ones(n), name, pairs), link_adjacent(X, np.ones(n), name, full, pairs)):
        allowed = 1 + int(np.isinf(tree[:, 2]).sum())
        for k in {allowed, n}:
            labels = cut_tree(tree, np.ones(n), k)
            assert len(np.unique(labels)) == k
            assert (labels[pairs[:, 0]] != labels[pairs[:, 1]]).all()
        # One less is not allowed: any two of the clusters hold a pair.
        if allowed > 1:
            parts = cut_tree(tree, np.ones(n), allowed)[pairs]
            met = {tuple(sorted(pair)) for pair in parts.tolist()}
            assert met == {(a, b) for a in range(allowed) for b in range(a + 1, allowed)}


@BY_LINKAGE
def test_a_quarter_of_the_square_is_kept(name):
    n, p = 1000, 2
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(n, p)), rng.integers(1, 5, n).astype(float)
    pairs = np.array([[0, 1], [1, 2]])
    keys = np.arange(n * n)
    for grow, limit in (
        (lambda: link(X, weights, name), 0 if name == "single" else 2 * n**2),
        (lambda: link(X, weights, name, pairs), 2 * n**2),
        (lambda: link_adjacent(X, weights, name, adjacency(keys, n)), 2 * n**2),
    ):
        grow()  # compiles
        tracemalloc.start()
        try:
            grow()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak <= limit + 170 * n


def test_only_neighbors_merge():
    X = np.array([[0.0], [10.0], [0.1]])
    tree = link_adjacent(X, np.ones(3), "single", adjacency(np.array([1, 5]), 3))
    # 0 and 2 are near, and meet only by way of 1.
    assert_allclose(tree, [[1, 2, 9.9, 2], [0, 3, 9.9, 3]])
    apart = adjacency(np.empty(0, np.int64), 3)
    assert np.isinf(link_adjacent(X, np.ones(3), "ward", apart)[:, 2]).all()


@BY_LINKAGE
@given(seed=st.integers(0, 2**32 - 1))
def test_what_hangs_together_becomes_one(name, seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 60))
    beside = rng.integers(0, n, (int(rng.integers(0, 2 * n)), 2))
    near = adjacency(beside @ [n, 1], n)
    tree = link_adjacent(rng.normal(size=(n, 2)), np.ones(n), name, near)
    edges = coo_array((np.ones(len(beside)), beside.T), (n, n))
    parts, expected = connected_components(edges, directed=False)
    assert parts == 1 + np.isinf(tree[:, 2]).sum()
    assert adjusted_rand_score(expected, cut_tree(tree, np.ones(n), parts)) == 1.0


def genie_by_definition(points, weights, threshold, connected, apart=()):
    """Return merges of members, and their heights, by search among all pairs of clusters."""
    clusters = [[i] for i in range(len(points))]
    heights, merges = [], []
    while True:
        sizes = [weights[c].sum() for c in clusters]
        pairs = {}
        for a in range(len(clusters)):
            for b in range(a):
                near = [(i, j) for i in clusters[a] for j in clusters[b] if connected[i, j]]
                met = any(
                    (i, j) in apart or (j, i) in apart for i in clusters[a] for j in clusters[b]
                )
                if near and not met:
                    pairs[a, b] = min(np.linalg.norm(points[i] - points[j]) for i, j in near)
        if not pairs:
            return merges, heights
        spread = sum(abs(a - b) for a in sizes for b in sizes) / 2
        if spread > threshold * (len(sizes) - 1) * sum(sizes):
            least = min(sizes[c] for pair in pairs for c in pair)
            pairs = {p: d for p, d in pairs.items() if least in (sizes[p[0]], sizes[p[1]])}
        a, b = min(pairs, key=pairs.__getitem__)
        merges.append((frozenset(clusters[a]), frozenset(clusters[b])))
        heights.append(pairs[a, b])
        clusters[b] += clusters.pop(a)


def merged_members(tree):
    """Return the two sets of points of each finite merge."""
    members = [frozenset([i]) for i in range(len(tree) + 1)]
    for a, b in tree[:, :2].astype(int):
        members.append(members[a] | members[b])
    return [{members[int(a)], members[int(b)]} for a, b in tree[np.isfinite(tree[:, 2]), :2]]


def test_genie_by_hand():
    # Sizes 3, 1, 1 after two merges: their Gini index is 4 / (2 * 5) = 0.4.
    X = np.array([[0.0], [1.0], [2.1], [4.0], [9.0]])
    plain = link(X, np.ones(5), "genie", gini_threshold=0.4)
    assert_allclose(plain, link(X, np.ones(5), "single"))
    # Below 0.4 the merge that follows has one of the single points: the nearest pair, too.  Then
    # 4 and 1 are left.
    X[4] = 5.0
    tree = link(X, np.ones(5), "genie", gini_threshold=0.3)
    assert_allclose(tree, [[0, 1, 1, 2], [3, 4, 1, 2], [2, 5, 1.1, 3], [6, 7, 1.9, 5]])
    # 10 and 20 are alone, and merge before the pair at 30 does, although it is nearer to 27.
    X = np.array([[0.0], [0.1], [0.2], [0.3], [3.0], [7.0]])
    tree = link(X, np.ones(6), "genie", gini_threshold=0.1)
    assert_allclose(tree[:, 2], np.maximum.accumulate(tree[:, 2]))
    assert {frozenset([4]), frozenset([5])} not in merged_members(link(X, np.ones(6), "single"))


@given(seed=st.integers(0, 2**32 - 1), threshold=st.sampled_from([0.0, 0.1, 0.3, 0.6, 1.0]))
def test_genie_is_that_of_the_definition(seed, threshold):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 25))
    X, weights = rng.normal(size=(n, 2)), np.ones(n)
    if seed % 2:
        weights = rng.integers(1, 6, n).astype(float)
    full = np.ones((n, n), bool)
    connected = rng.random((n, n)) < 0.3
    connected |= connected.T
    pairs = np.array([rng.choice(n, 2, replace=False) for _ in range(int(rng.integers(1, 4)))])
    apart = {tuple(pair) for pair in pairs.tolist()}
    keys = np.flatnonzero(connected)
    for found, expected in (
        (link(X, weights, "genie", None, threshold), (full, ())),
        (link(X, weights, "genie", pairs, threshold), (full, apart)),
        (
            link_adjacent(
                X, weights, "genie", adjacency(keys, n), by_edges=True, gini_threshold=threshold
            ),
            (connected, ()),
        ),
    ):
        merges, heights = genie_by_definition(X, weights, threshold, *expected)
        assert merged_members(found) == [set(merge) for merge in merges]
        assert_allclose(found[: len(heights), 2], np.maximum.accumulate(heights))


@BY_LINKAGE
@given(seed=st.integers(0, 2**32 - 1))
def test_connected_rows_give_scikit_learns_tree(name, seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 40))
    X = rng.normal(size=(n, 2))
    path = np.arange(n - 1)
    edges = np.concatenate([np.column_stack([path, path + 1]), rng.integers(0, n, (n, 2))])
    graph = coo_array((np.ones(len(edges)), edges.T), (n, n))
    near = adjacency(edges @ [n, 1], n)
    tree = link_adjacent(X, np.ones(n), name, near, by_edges=True)
    children, _, _, _, heights = (
        linkage_tree(X, connectivity=graph, linkage=name, return_distance=True)
        if name != "ward"
        else ward_tree(X, connectivity=graph, return_distance=True)
    )
    assert_allclose(tree[:, 2], np.maximum.accumulate(heights), rtol=1e-6)
    for k in range(1, n):
        labels = _hc_cut(k, children, n)
        assert adjusted_rand_score(labels, cut_tree(tree, np.ones(n), k)) == 1.0
