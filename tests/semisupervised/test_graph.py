"""Graphs of a few nodes, worked out by hand, and against dense algebra."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from daskclust.core.kernels.pair_counts import PairCounts
from daskclust.core.kernels.projection import noise_whitening
from daskclust.core.reduction import RowBlock
from daskclust.core.reduction.connectivity import Connectivity
from daskclust.semisupervised.classifiers import shares
from daskclust.semisupervised.feature_views import SampleRows, check_views, find_views
from daskclust.semisupervised.graph import (
    leading_eigenvectors,
    neighbor_graph,
    normalized,
    spread_seeds,
    unit_rows,
    unreached,
)
from daskclust.semisupervised.near_nodes import near_weights
from daskclust.semisupervised.predict import near_values


def test_normalized_by_hand() -> None:
    graph = np.array([[7.0, 1.0, 3.0], [1.0, 0.0, 0.0], [3.0, 0.0, 0.0]])
    # Degrees 4, 1 and 3.
    expected = [[0, 0.5, np.sqrt(3) / 2], [0.5, 0, 0], [np.sqrt(3) / 2, 0, 0]]
    assert_allclose(normalized(graph), expected)
    looped = normalized(graph, loops=True)
    assert_allclose(looped[0, 0], 7 / 11)
    assert graph[0, 0] == 7.0


def test_an_isolated_node_stays_isolated() -> None:
    graph = np.zeros((3, 3))
    graph[0, 1] = graph[1, 0] = 2.0
    assert_array_equal(normalized(graph)[2], 0.0)


def test_labels_travel_along_a_path_by_the_series() -> None:
    """(I - a S)^(-1) Y is the sum of a^t S^t Y."""
    path = normalized(np.diag(np.ones(3), 1) + np.diag(np.ones(3), -1))
    seeds = np.array([[1.0, 0], [0, 0], [0, 0], [0, 1.0]])
    series, term = np.zeros((4, 2)), seeds
    for _ in range(400):
        series, term = series + term, 0.9 * path @ term
    (found,) = spread_seeds(path, 0.9, [seeds])
    assert_allclose(found, series, rtol=1e-10)
    assert found[1, 0] > found[1, 1]
    assert_allclose(spread_seeds(path, 0.0, [seeds])[0], seeds)


def test_nodes_that_no_label_reaches_are_found() -> None:
    graph = np.zeros((5, 5))
    for a, b in ((0, 1), (2, 3)):
        graph[a, b] = graph[b, a] = 1.0
    labeled = np.array([False, True, False, False, False])
    assert unreached(graph, labeled).tolist() == [False, False, True, True, True]


def test_neighbors_of_nodes_are_connected_and_components_joined_by_hand() -> None:
    nodes = np.array([[0.0], [1.0], [3.0], [10.0], [12.0]])
    graph = neighbor_graph(nodes, 2).toarray()
    expected = np.zeros((5, 5))
    # Both ends have the other one; then one of both; then a link of length 7.
    expected[0, 1] = expected[3, 4] = 1.0
    expected[1, 2] = 0.5
    # The distances from its ends to their last neighbors are 2, those of the nodes next to them.
    expected[2, 3] = 0.01 * 4 / 49
    assert_allclose(graph, expected + expected.T + np.eye(5), atol=1e-15)
    assert_array_equal(neighbor_graph(nodes[:1], 10).toarray(), [[1.0]])


@given(st.integers(0, 1000), st.integers(2, 30), st.integers(2, 6))
def test_neighbor_graphs_are_connected_and_hold_all_neighbors(seed: int, k: int, n: int) -> None:
    nodes = np.random.default_rng(seed).normal(size=(k, 2))
    graph = neighbor_graph(nodes, n)
    assert connected_components(graph, directed=False)[0] == 1
    near = np.linalg.norm(nodes[:, None] - nodes, axis=2).argsort(axis=1)[:, : min(n, k)]
    edges = np.zeros((k, k))
    np.put_along_axis(edges, near, 0.5, axis=1)
    edges += edges.T
    found = graph.toarray()
    assert_allclose(found[edges > 0], edges[edges > 0])
    # Anything else is a weak link of a tree.
    others = found[edges == 0]
    assert (others < 0.02).all()
    components = connected_components(csr_matrix(edges), directed=False)[0]
    assert np.count_nonzero(others) == 2 * (components - 1)


def test_a_sparse_graph_is_embedded_like_a_dense_one() -> None:
    rng = np.random.default_rng(0)
    nodes = np.concatenate(
        [rng.normal(size=(220, 2)), np.array([6.0, 0.0]) + rng.normal(size=(220, 2))]
    )
    graph = neighbor_graph(nodes, 10)
    sparse = leading_eigenvectors(graph, 3)
    values, vectors = np.linalg.eigh(normalized(graph.toarray(), loops=True))
    assert_allclose(sparse.values, values[::-1][:3], atol=1e-9)
    agreement = np.abs(np.einsum("ij,ij->j", sparse.vectors, vectors[:, ::-1][:, :3]))
    assert_allclose(agreement, 1.0, atol=1e-6)
    # The largest entry of each eigenvector is positive.
    largest = np.abs(sparse.vectors).argmax(axis=0)
    assert (sparse.vectors[largest, range(3)] > 0).all()


def test_sums_and_sparse_matrices_of_pairs_are_those_of_the_dense_one() -> None:
    counts = PairCounts(np.array([0, 1, 5]), np.array([1.0, 2.0, 4.0]))
    assert_array_equal(counts.degrees(3), [4.0, 6.0, 4.0])
    assert_array_equal(counts.sparse(3).toarray(), counts.matrix(3))
    assert_array_equal(counts.degrees(3), counts.matrix(3).sum(axis=1))


def test_two_groups_are_told_apart_by_the_second_eigenvector() -> None:
    graph = np.kron(np.eye(2), np.ones((3, 3)))
    graph[2, 3] = graph[3, 2] = 0.1
    found = leading_eigenvectors(csr_matrix(graph), 2)
    assert found.values[0] == pytest.approx(1.0)
    assert len(set(np.sign(found.vectors[:3, 1]))) == 1
    assert np.sign(found.vectors[0, 1]) != np.sign(found.vectors[5, 1])
    assert_allclose(np.linalg.norm(unit_rows(found.vectors), axis=1), 1.0)


def test_shares_and_weights_of_neighbors() -> None:
    assert shares(np.zeros((1, 4))).tolist() == [[0.25] * 4]
    assert near_weights(np.array([[1.0, 1.0, np.inf]])).tolist() == [[0.5, 0.5]]
    assert near_weights(np.array([[1.0, np.inf, np.inf]])).tolist() == [[1.0, 0.0]]
    assert near_weights(np.full((1, 3), np.inf)).tolist() == [[0.0, 0.0]]


def test_views_have_a_total_variance_of_one_and_lose_constant_features() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 4)) * [1, 100, 0, 5] + [3, 0, 7, 0]
    for name in ("raw", "standard", "angle"):
        space = find_views([name], SampleRows(x, np.ones(500)))
        z = space(x)
        assert z.var(axis=0).sum() == pytest.approx(1.0)
        assert_allclose(z.mean(axis=0), 0.0, atol=1e-12)
    assert find_views(["standard"], SampleRows(x, np.ones(500))).n_dimensions == 3


def test_standard_distances_do_not_depend_on_units() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3))
    units = np.array([1e-3, 1.0, 1e4])

    def distances(values: np.ndarray) -> np.ndarray:
        z = find_views(["standard"], SampleRows(values, np.ones(300)))(values)
        found: np.ndarray = ((z[:, None] - z) ** 2).sum(axis=2)
        return found

    assert_allclose(distances(x * units + 5), distances(x), rtol=1e-6, atol=1e-9)


def test_integer_weights_are_repetitions_for_views() -> None:
    rng = np.random.default_rng(0)
    x, times = rng.normal(size=(50, 3)), rng.integers(1, 4, 50)
    one = find_views(["raw", "standard"], SampleRows(x, times.astype(float)))
    many = np.repeat(x, times, axis=0)
    other = find_views(["raw", "standard"], SampleRows(many, np.ones(len(many))))
    assert_allclose(one(x), other(x), atol=1e-10)


def test_several_views_lie_side_by_side() -> None:
    x = np.random.default_rng(0).normal(size=(50, 3)) + 5
    both = find_views(["raw", "angle"], SampleRows(x, np.ones(50)))
    assert_array_equal(both(x), np.hstack([one(x) for one in both.alone()]))


def test_prototypes_come_back_as_rows() -> None:
    x = np.random.default_rng(0).normal(size=(50, 3)) * [1, 9, 2] + 5
    for name in ("raw", "standard"):
        space = find_views([name], SampleRows(x, np.ones(50)))
        assert_allclose(space.restore(space(x)), x)


def test_whitening_makes_noise_alike_but_softly() -> None:
    rng = np.random.default_rng(0)
    one = 10 + rng.normal(size=(4000, 2))
    other = one + rng.normal(size=(4000, 2))
    turned = noise_whitening(one, other)
    assert_allclose(turned, turned.T)
    assert_array_equal(noise_whitening(one, one), np.eye(2))


def test_all_rows_the_same_is_no_division_by_zero() -> None:
    x = np.full((20, 3), 2.0)
    for name in ("raw", "standard", "angle"):
        assert_array_equal(find_views([name], SampleRows(x, np.ones(20)))(x), 0.0)


@pytest.mark.parametrize(
    ("views", "message"),
    [
        (
            "sharp",
            "views must be one of.*'raw', 'standard', 'angle', 'whitened', 'mean', 'mixture',",
        ),
        ((), "one or more"),
        (("raw", "raw"), "one or more"),
        ("whitened", "needs a Cube"),
        (
            ("raw", "auto"),
            "views must be one of.*'raw', 'standard', 'angle', 'whitened', 'mean', 'mixture',",
        ),
    ],
)
def test_views_that_cannot_be_used(views: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_views(views, is_cube=False)


def test_auto_views() -> None:
    assert check_views("auto", is_cube=False) == ("standard",)
    assert check_views("auto", is_cube=True) == ("raw", "angle", "whitened")
    assert check_views("raw", is_cube=True) == ("raw",)


@pytest.mark.parametrize("n_neighbors", [1, 3, 9])
def test_values_of_near_nodes_by_brute_force(n_neighbors: int) -> None:
    rng = np.random.default_rng(0)
    z, nodes, values = rng.normal(size=(20, 3)), rng.normal(size=(6, 3)), rng.random((6, 2))
    m = min(n_neighbors, 5)
    for row, found in zip(z, near_values(z, nodes, values, n_neighbors), strict=True):
        squared = ((nodes - row) ** 2).sum(axis=1)
        order = np.argsort(squared)
        weights = 1 - squared[order[:m]] / squared[order[m]]
        assert_allclose(found, weights @ values[order[:m]] / weights.sum())
    assert_array_equal(near_values(z, nodes[:1], values[:1], 3), np.repeat(values[:1], 20, axis=0))


def test_a_space_of_several_sets_is_worked_out_once() -> None:
    rng = np.random.default_rng(0)
    calls = []

    def space(x: np.ndarray) -> np.ndarray:
        calls.append(len(x))
        return x

    def other(x: np.ndarray) -> np.ndarray:
        calls.append(-len(x))
        return -x

    nodes = tuple(rng.normal(size=(5, 2)) for _ in range(3))
    x = rng.normal(size=(30, 2))
    found, first = Connectivity((space, space, other), nodes, 2).count(
        RowBlock(x, None, ((0, 30),))
    )
    assert calls == [30, -30]
    assert first.shape == (3, 30)
    for v, (one, own) in enumerate(zip((x, x, -x), nodes, strict=True)):
        nearest = ((one[:, None] - own) ** 2).sum(axis=2).argsort(axis=1)
        assert_array_equal(first[v], nearest[:, 0])
        expected = np.zeros((5, 5))
        np.add.at(expected, (nearest[:, 0], nearest[:, 1]), 1)
        assert_array_equal(found[v].matrix(5), expected + expected.T)


def test_many_nodes_in_one_place_are_connected() -> None:
    nodes = np.repeat([[0.0], [1.0], [9.0]], 40, axis=0)
    graph = neighbor_graph(nodes, 3)
    assert np.isfinite(graph.data).all()
    assert connected_components(graph, directed=False)[0] == 1
    # Links between places weigh less than those inside one.
    rows, columns = graph.nonzero()
    inside = nodes[rows, 0] == nodes[columns, 0]
    assert graph.data[~inside].max() < graph.data[inside].min()
