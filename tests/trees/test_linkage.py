"""Trees of weighted points equal SciPy's of the rows that they stand for."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from sklearn.metrics import adjusted_rand_score

from daskclust.kernels.linkage import LINKAGES, adjacency, cut_tree, link, link_adjacent

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
        labels = fcluster(expected, k, "maxclust")
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
