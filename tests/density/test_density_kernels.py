"""Density trees equal scikit-learn's; the cells of a box find DBSCAN's clusters."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from sklearn.cluster import HDBSCAN
from sklearn.datasets import make_blobs, make_moons
from sklearn.metrics import adjusted_rand_score

from daskclust.density.cells import cluster_box, grow_boxes
from daskclust.density.condensed_tree import (
    CONDENSED,
    Bubbles,
    condense,
    core_distances,
    cut_longest,
    density_tree,
    prune,
    select_clusters,
    spanning_edges,
    stabilities,
)
from daskclust.density.nodes import (
    grow_nodes,
    join_in_nodes,
    pairs_in_nodes,
    weight_in_nodes,
)


def rows(X):
    return Bubbles(X, np.ones(len(X)), np.zeros(len(X)))


@given(seed=st.integers(0, 2**32 - 1))
def test_core_distances_count_weights(seed):
    rng = np.random.default_rng(seed)
    n, p = int(rng.integers(1, 60)), int(rng.integers(1, 4))
    X, weights = rng.integers(0, 6, (n, p)).astype(float), rng.integers(1, 6, n).astype(float)
    least = int(rng.integers(1, weights.sum() + 1))
    found = core_distances(Bubbles(X, weights, np.zeros(n)), least)
    for i, x in enumerate(X):
        far = np.sqrt(((X - x) ** 2).sum(axis=1))
        order = np.argsort(far, kind="stable")
        reached = far[order][np.searchsorted(np.cumsum(weights[order]), least)]
        # A point of enough weight has it in one place.
        assert found[i] == (0.0 if weights[i] >= least else reached)


def test_a_bubble_is_a_ball_of_rows():
    rng = np.random.default_rng(0)
    ball = rng.normal(size=(200_000, 3))
    ball *= (rng.uniform(size=(len(ball), 1)) ** (1 / 3)) / np.linalg.norm(ball, axis=1)[:, None]
    one = Bubbles.of_sums(ball[:1] * 0, np.array([2e5]), np.array([(ball**2).sum()]))
    assert_allclose(one.extents, 1.0, rtol=1e-2)
    nearest = np.sort(np.linalg.norm(ball, axis=1))[999]
    assert_allclose(core_distances(one, 1000), nearest, rtol=5e-2)


def test_condensed_by_hand():
    X = np.array([[0.0], [1.0], [3.0], [20.0], [21.0]])
    core = core_distances(rows(X), 2)
    assert_array_equal(core, [1, 1, 2, 1, 1])
    tree = density_tree(spanning_edges(rows(X), core), np.ones(len(X)))
    assert_array_equal(np.sort(tree[:, 2]), [1, 1, 2, 17])
    lines = condense(tree, np.ones(5), core, 2)
    left = lines[lines["child"] >= 5]
    assert_array_equal(left["lambda_val"], [1 / 17, 1 / 17])
    stability, births = stabilities(lines, 5)
    assert_array_equal(births, [0, 1 / 17, 1 / 17])
    # Three rows leave at 1, 1 and 1/2, two at 1 and 1.
    assert_allclose(np.sort(stability[1:]), [2 * (1 - 1 / 17), 2.5 - 3 / 17])
    chosen = select_clusters(lines, 5, "eom", 0.0, False)
    assert len(set(chosen.labels[:3])) == len(set(chosen.labels[3:])) == 1


def of_kind(kind, seed):
    rng = np.random.default_rng(seed)
    if kind == 0:
        return make_moons(300, noise=0.1, random_state=seed)[0]
    if kind == 1:
        spreads = rng.uniform(0.3, 2, 4)
        blobs = make_blobs(250, centers=4, cluster_std=spreads, random_state=seed)[0]
        return np.concatenate([blobs, rng.uniform(-10, 10, (50, 2))])
    return rng.normal(size=(200, 3))


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("epsilon", [0.0, 0.5])
@pytest.mark.parametrize("method", ["eom", "leaf"])
@pytest.mark.parametrize("kind", range(3))
def test_clusters_are_scikit_learns(kind, method, epsilon, single):
    for seed, size, samples in ((3 * kind, 5, 5), (7, 15, 5), (8, 8, 3)):
        X = of_kind(kind, seed)
        core = core_distances(rows(X), samples)
        tree = density_tree(spanning_edges(rows(X), core), np.ones(len(X)))
        lines = condense(tree, np.ones(len(X)), core, size)
        found = select_clusters(lines, len(X), method, epsilon, single)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = HDBSCAN(
                size,
                min_samples=samples,
                cluster_selection_method=method,
                cluster_selection_epsilon=epsilon,
                allow_single_cluster=single,
                copy=True,
            )
            try:
                expected = model.fit(X)
            except TypeError:  # its search fails where a cluster that was merged is the root
                assert epsilon > 0
                continue
        assert_array_equal(found.labels < 0, expected.labels_ < 0)
        assert adjusted_rand_score(found.labels, expected.labels_) == 1.0
        deaths = np.append(found.deaths, np.inf)[found.labels]
        shares = np.where(found.labels < 0, 0.0, np.minimum(found.falls, deaths) / deaths)
        assert_allclose(shares, expected.probabilities_)


def test_rows_in_one_place_are_infinitely_dense():
    X = np.repeat([[0.0], [5.0]], 10, axis=0)
    core = core_distances(rows(X), 3)
    assert not core.any()
    tree = density_tree(spanning_edges(rows(X), core), np.ones(20))
    lines = condense(tree, np.ones(20), core, 5)
    stability, _ = stabilities(lines, 20)
    assert not np.isnan(stability).any()
    labels = select_clusters(lines, 20, "eom", 0.0, False).labels
    assert len(set(labels[:10])) == len(set(labels[10:])) == 1
    assert labels[0] != labels[10]


@given(seed=st.integers(0, 2**32 - 1))
def test_rows_are_in_one_box_and_near_others(seed):
    rng = np.random.default_rng(seed)
    n, p = int(rng.integers(1, 300)), int(rng.integers(1, 4))
    X, margin = rng.integers(-9, 9, (n, p)).astype(float), float(rng.integers(0, 4))
    tree = grow_boxes(X, 20, 2.0)
    low, high = tree.bounds(p)
    inside = ((X[:, None] >= low) & (X[:, None] < high)).all(axis=2)
    assert (inside.sum(axis=1) == 1).all()
    near = ((X[:, None] >= low - margin) & (X[:, None] < high + margin)).all(axis=2)
    places, boxes = tree.boxes_of_rows(X, margin)
    found = np.zeros_like(near)
    found[places, boxes] = True
    assert len(places) == near.sum()
    assert_array_equal(found, near)


def test_clusters_born_later_end_as_noise_by_hand():
    # Two clusters part at density 1; one ends at 1.03, before 1.04.
    lines = [(4, 5, 1.0, 2.0), (4, 6, 1.0, 2.0), (5, 0, 1.0, 1.0), (5, 1, 1.03, 1.0)]
    lines += [(6, 2, 1.02, 1.0), (6, 3, 2.0, 1.0)]
    condensed = np.array(lines, CONDENSED)
    both = select_clusters(condensed, 4, "eom", 0.0, False)
    assert_array_equal(both.labels, [0, 0, 1, 1])
    assert_array_equal(both.births, [1.0, 1.0])
    one = select_clusters(condensed, 4, "eom", 0.0, False, birth_factor=1.04)
    assert_array_equal(one.labels, [-1, -1, 0, 0])
    assert_array_equal(one.births, [1.04])
    assert_array_equal(one.deaths, [2.0])


def test_parts_by_chance_fall_out_by_hand():
    # 6 parts at density 1 into 7, which parts at 2 into 9 and 10, and 8; 9 hardly outlives that.
    lines = [(6, 7, 1.0, 8), (6, 8, 1.0, 4), (7, 9, 2.0, 2), (7, 10, 2.0, 4), (7, 0, 1.5, 2)]
    lines += [(9, 1, 2.2, 2), (10, 2, 4.0, 3), (10, 3, 3.0, 1), (8, 4, 2.0, 2), (8, 5, 1.2, 2)]
    condensed = np.array(lines, CONDENSED)
    assert_array_equal(prune(condensed, 6, 1.05), condensed)
    # The rows of 9 leave 7 as it parts; 10 goes on as 7.  Those of 8 leave at 1.6 on average.
    expected = [(6, 7, 1.0, 8), (6, 8, 1.0, 4), (7, 0, 1.5, 2), (7, 1, 2.0, 2), (7, 2, 4.0, 3)]
    expected += [(7, 3, 3.0, 1), (8, 4, 2.0, 2), (8, 5, 1.2, 2)]
    assert prune(condensed, 6, 1.5).tolist() == expected
    # The last split stays.
    assert prune(condensed, 6, 9.0).tolist() == expected
    # Where 9 outlives it, and 8 hardly does: the parts of 7 are those of 6.
    condensed["lambda_val"][5] = 8.0
    assert prune(condensed, 6, 1.7).tolist() == [
        *[(6, 7, 2.0, 2), (6, 8, 2.0, 4), (6, 0, 1.5, 2), (7, 1, 8.0, 2), (8, 2, 4.0, 3)],
        *[(8, 3, 3.0, 1), (6, 4, 1.0, 2), (6, 5, 1.0, 2)],
    ]


def chain(lengths):
    """Return the edges of points in a row, shortest first."""
    edges = np.column_stack([np.arange(len(lengths)), np.arange(1, len(lengths) + 1), lengths])
    return edges[np.argsort(lengths, kind="stable")].astype(float)


def test_the_longest_edges_are_cut_by_hand():
    # Points 0 to 7 in a row. Both ends are leaves: six points count, two are a third of those.
    edges = chain([9, 1, 5, 1, 2, 1, 3])
    weights = np.ones(8)
    # 9 and 3 leave no point that counts on one side; 5 leaves two and four.
    labels, lengths = cut_longest(edges, weights, 2, 0.6)
    assert_array_equal(labels, [0, 0, 0, 1, 1, 1, 1, 1])
    assert_array_equal(lengths, [5.0])
    # With three clusters, the bound is 1.2: then 2 leaves two and two.
    labels, lengths = cut_longest(edges, weights, 3, 0.6)
    assert_array_equal(labels, [0, 0, 0, 1, 1, 2, 2, 2])
    assert_array_equal(lengths, [5.0, 2.0])
    # No edge leaves 5.4 on both sides. The bound is halved: the middle one leaves three and three.
    labels, lengths = cut_longest(edges, weights, 2, 0.9, n_bound=1)
    assert_array_equal(labels, [0, 0, 0, 0, 1, 1, 1, 1])
    assert_array_equal(lengths, [1.0])
    # In the end every point is a cluster, and leaves of the tree are cut off last.
    labels, lengths = cut_longest(edges, weights, 8, 0.25)
    assert_array_equal(np.sort(labels), np.arange(8))
    assert_array_equal(lengths, [5.0, 2.0, 1.0, 1.0, 1.0, 9.0, 3.0])


def cut_by_definition(edges, weights, n_clusters, bound):
    """Cut the longest edge that leaves enough on both sides, searched anew after each cut."""
    m = len(weights)
    ends = edges[:, :2].astype(int)
    counted = np.where(np.bincount(ends.ravel(), minlength=m) > 1, weights, 0.0)
    counted = np.maximum(counted, weights - weights.mean())
    left, lengths = np.ones(m - 1, bool), []

    def parts():
        graph = coo_array((np.ones(left.sum()), ends[left].T), (m, m))
        return connected_components(graph, directed=False)[1]

    while len(lengths) < n_clusters - 1:
        for e in np.flatnonzero(left)[::-1]:
            left[e] = False
            labels = parts()
            sides = [counted[labels == labels[x]].sum() for x in ends[e]]
            if min(sides) >= bound:
                lengths.append(edges[e, 2])
                break
            left[e] = True
        else:
            return None
    return parts(), lengths


@given(seed=st.integers(0, 2**32 - 1))
def test_cuts_are_those_of_the_definition(seed):
    rng = np.random.default_rng(seed)
    m, k = int(rng.integers(2, 40)), int(rng.integers(1, 6))
    X, weights = rng.normal(size=(m, 2)), rng.integers(1, 5, m).astype(float)
    edges = spanning_edges(rows(X), core_distances(rows(X), min(3, m)))
    k, most = min(k, m), min(k + int(rng.integers(3)), m)
    degree = np.bincount(edges[:, :2].astype(int).ravel(), minlength=m)
    ends = np.maximum(weights - weights.mean(), 0.0)
    bound = 0.25 / most * np.where(degree > 1, weights, ends).sum()
    expected = cut_by_definition(edges, weights, k, bound)
    labels, lengths = cut_longest(edges, weights, k, 0.25, most)
    assert len(np.unique(labels)) == k
    if expected is not None:
        assert adjusted_rand_score(labels, expected[0]) == 1.0
        assert_array_equal(lengths, expected[1])
    # Cuts of one bound are nested.
    finer, more = cut_longest(edges, weights, most, 0.25, most)
    assert_array_equal(more[: k - 1], lengths)
    assert len(np.unique(np.column_stack([labels, finer]), axis=0)) == most


def test_a_box_by_hand():
    X = np.array([[0.0], [0.4], [0.8], [1.5], [9.0]])
    everywhere = np.full(1, -np.inf), np.full(1, np.inf)
    found = cluster_box(X, np.arange(5) + 10, None, *everywhere, X[0], 0.5, 3)
    # 0.4 has both neighbors; they border on it.
    assert_array_equal(np.sort(found.rows), [0, 1, 2])
    assert_array_equal(found.first_core_rows, [11])
    assert not len(found.shared)
    # A box that ends at 0.6 shares its core row with the next box.
    part = cluster_box(X, np.arange(5) + 10, None, *everywhere[:1], np.full(1, 0.6), X[0], 0.5, 3)
    assert_array_equal(np.sort(part.rows), [0, 1])
    assert_array_equal(part.shared, [1])
    assert_array_equal(found.rows[found.core], [1])
    nothing = cluster_box(X[:0], np.arange(0), None, *everywhere, X[0], 0.5, 3)
    assert not len(nothing.rows)


def test_boxes_are_cut_in_gaps_by_hand():
    X = np.repeat([[0.0, 0.0], [10.0, 0.1]], 50, axis=0)
    tree = grow_boxes(X, 60, 2.0)
    assert_array_equal(tree.axis, [0, -1, -1])
    assert 2.0 <= tree.thresholds[0] <= 8.0
    # A margin that holds all rows on both sides: no cut.
    assert_array_equal(grow_boxes(X, 60, 11.0).axis, [-1])


@pytest.mark.parametrize("p", [1, 5, 17])
@given(seed=st.integers(0, 2**32 - 1))
def test_nodes_are_pairs_of_rows(p, seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 200))
    X = rng.integers(0, 4, (n, p)) * 0.1 if seed % 2 else rng.normal(size=(n, p))
    eps = 0.1 * np.sqrt(p) if seed % 2 else np.sqrt(p)
    nodes, order = grow_nodes(X, eps)
    X, weight, wanted = X[order], rng.integers(0, 4, n) * 1.0, rng.random(n) < 0.7
    squared = np.zeros((n, n))
    for f in range(p):  # in the order of the kernel, whose ties are those of these sums
        squared += (X[:, None, f] - X[None, :, f]) ** 2
    near = squared <= eps * eps
    assert_array_equal(nodes.x, X)
    full = weight_in_nodes(nodes, weight, wanted, np.inf)
    assert_array_equal(full, np.where(wanted, near @ weight, 0.0))
    some = weight_in_nodes(nodes, weight, wanted, 3.0)
    assert_array_equal(some >= 3.0, full >= 3.0)
    core = rng.random(n) < 0.5
    owner = join_in_nodes(nodes, core)
    assert_array_equal(owner >= 0, core)
    _, parts = connected_components(near & core & core[:, None])
    if core.any():
        assert adjusted_rand_score(parts[core], owner[core]) == 1.0
    none = np.empty(0, np.int64)
    size = pairs_in_nodes(nodes, wanted, owner, none, none)
    rows, clusters = np.empty((2, size), np.int64)
    pairs_in_nodes(nodes, wanted, owner, rows, clusters)
    expected = {
        (i, c)
        for i in np.flatnonzero(wanted)
        for c in ([owner[i]] if core[i] else owner[near[i] & core])
    }
    assert set(zip(rows, clusters, strict=True)) == expected
    assert size == len(expected)


def test_nodes_by_hand():
    X = np.array([[0.0], [0.4], [0.8], [1.5], [9.0]])
    nodes, order = grow_nodes(X, 0.5)
    every = np.ones(5, bool)
    counts = weight_in_nodes(nodes, np.ones(5), every, np.inf)
    assert_array_equal(counts[np.argsort(order)], [2, 3, 2, 1, 1])
    owner = join_in_nodes(nodes, np.isin(order, [0, 1, 3]))[np.argsort(order)]
    assert owner[0] == owner[1] != owner[3]
    assert_array_equal(owner[[2, 4]], [-1, -1])
