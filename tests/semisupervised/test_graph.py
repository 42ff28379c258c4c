"""Graphs of a few nodes, worked out by hand, and against dense algebra."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components
from sklearn.kernel_ridge import KernelRidge as ReferenceRidge

from daskclust.core.array_types import Floats, Ints
from daskclust.core.kernels.pair_counts import PairCounts
from daskclust.core.kernels.projection import noise_whitening
from daskclust.core.reduction import RowBlock
from daskclust.core.reduction.connectivity import Connectivity
from daskclust.semisupervised.classifiers import (
    _LEVEL,
    KernelRidge,
    References,
    Tried,
    best_share,
    choose_kernels,
    fit_ridge,
)
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
from daskclust.semisupervised.predict import (
    LEAST,
    MOST,
    Balance,
    NodeShares,
    SpacePosterior,
    near_values,
    shares,
)
from daskclust.semisupervised.problem import GraphCounts
from daskclust.semisupervised.spreading import (
    _travel,
    balance,
    balanced_loss,
    settle,
)


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


def pairs_of(matrix: np.ndarray) -> PairCounts:
    """Counts of the pairs of different nodes."""
    half = np.triu(matrix, 1).ravel()
    keys = np.flatnonzero(half)
    return PairCounts(keys, half[keys])


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


@settings(max_examples=20, deadline=None)
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


def _fitted_ridge(
    points: Floats, targets: Floats, variances: Floats | None = None, weight: Floats | None = None
) -> tuple[KernelRidge, Floats]:
    """A ridge of the kernels that are chosen by the same points."""
    weight = np.ones(len(points)) if weight is None else weight
    variances = np.ones(points.shape[1]) if variances is None else variances
    kernels = choose_kernels(points, targets, weight, variances)
    assert sum(one.share for one in kernels) == pytest.approx(1.0)
    return fit_ridge(kernels, points, targets, weight, np.ones(len(points), bool))


def test_kernels_count_by_the_likelihood_of_errors_of_refits() -> None:
    rng = np.random.default_rng(0)
    given, targets = rng.normal(size=(12, 2)) * [1.0, 0.1], np.eye(3)[rng.integers(0, 3, 12)]
    variances = np.array([1.0, 0.01])
    found, left_out = _fitted_ridge(given, targets, variances)
    tried: list[tuple[float, Floats, Floats]] = []
    # The noise is a thousandth of the mean variance.
    deviations = np.sqrt(variances + 0.505e-3)
    for power, factor in product((0.0, 0.5, 1.0), 2.0 ** np.arange(-5, 3)):
        points = given / deviations**power
        squared = ((points[:, None] - points) ** 2).sum(axis=2)
        unit = np.median(squared[np.triu_indices(12, 1)])
        gram = _LEVEL + np.exp(-squared / (factor * unit))
        ridges: list[tuple[float, Floats, Floats]] = []
        for ridge in 10.0 ** np.arange(-4, 2):
            model = ReferenceRidge(alpha=ridge, kernel="precomputed")
            others = np.empty_like(targets)
            for i in range(12):
                rest = np.arange(12) != i
                model.fit(gram[np.ix_(rest, rest)], targets[rest])
                others[i] = model.predict(gram[i : i + 1, rest])[0]
            error = ((others - targets) ** 2).sum()
            ridges.append((error, others, model.fit(gram, targets).predict(gram)))
        tried.append(min(ridges, key=lambda one: one[0]))
    likely = np.array([error for error, _, _ in tried]) ** -12.0
    likely[likely < 0.01 * likely.max()] = 0.0
    assert len(found.widths) == np.count_nonzero(likely) > 3
    alone, scores = (np.average([one[i] for one in tried], 0, likely) for i in (1, 2))
    assert_allclose(found(given), np.clip(scores, 0, 1), atol=1e-8)
    assert_allclose(left_out, np.clip(alone, 0, 1), atol=1e-8)


def test_a_ridge_of_some_landmarks_is_least_squares_of_their_bumps() -> None:
    rng = np.random.default_rng(0)
    points, targets = rng.normal(size=(40, 2)), np.eye(2)[rng.integers(0, 2, 40)]
    landmarks, weight = np.arange(40) % 3 == 0, rng.random(40) + 0.5
    weight /= weight.mean()
    kernel = Tried(0.7, np.ones(2), 0.1)

    def solve(rows: Ints) -> Floats:
        squared = ((points[:, None] - points[landmarks]) ** 2).sum(axis=2)
        bumps = _LEVEL + np.exp(-squared / 0.7)
        own = bumps[landmarks] + 1e-6 * np.eye(14)
        system = bumps[rows].T @ (weight[rows, None] * bumps[rows]) + 0.1 * own
        return bumps @ np.linalg.solve(system, bumps[rows].T @ (weight[rows, None] * targets[rows]))

    found, left_out = fit_ridge([kernel], points, targets, weight, landmarks)
    assert_allclose(found(points), np.clip(solve(np.arange(40)), 0, 1), atol=1e-6)
    for i in range(40):
        others = solve(np.delete(np.arange(40), i))
        assert_allclose(left_out[i], np.clip(others[i], 0, 1), atol=1e-6)


def test_few_labels_leave_many_kernels_and_many_one_power() -> None:
    rng = np.random.default_rng(0)
    codes, variances = np.arange(200) % 2, np.array([1.0, 1.0, 1e-4])
    points = rng.normal(size=(200, 3)) * np.sqrt(variances)
    points[:, 2] += (2 * codes - 1) / 100
    few, many = (
        choose_kernels(points[:n], np.eye(2)[codes[:n]], np.ones(n), variances) for n in (6, 200)
    )
    assert len({one.axes.tobytes() for one in few}) == 3
    assert len({one.axes.tobytes() for one in many}) == 1
    assert len(many) < 5 < len(few)


def test_axes_of_small_variance_are_stretched_where_they_tell_classes_apart() -> None:
    rng = np.random.default_rng(0)
    codes, variances = np.arange(60) % 2, np.array([1.0, 1.0, 1e-4])
    points = rng.normal(size=(60, 3)) * np.sqrt(variances)
    points[:, 2] = (2 * codes - 1) * rng.uniform(0.5, 1.5, 60) / 100
    found, left_out = _fitted_ridge(points[:20], np.eye(2)[codes[:20]], variances)
    assert (found.axes[:, 2] > 9 * found.axes[:, 0]).all()
    assert (left_out.argmax(axis=1) == codes[:20]).mean() > 0.9
    assert (found(points[20:]).argmax(axis=1) == codes[20:]).mean() > 0.9
    # Where variances are alike, the space stays as it is.
    assert (_fitted_ridge(points, np.eye(2)[codes])[0].axes == 1).all()


def test_a_weighted_point_is_a_repeated_one_for_the_scores() -> None:
    points = np.array([[0.0], [1.0], [3.0]])
    targets = np.eye(2)[[0, 1, 1]]
    found, _ = _fitted_ridge(points, targets, weight=np.array([2.0, 2.0, 2.0]))
    assert_allclose(found(points), _fitted_ridge(points, targets)[0](points))


def test_labels_left_out_of_the_spreading_are_those_of_refits() -> None:
    rng = np.random.default_rng(0)
    counts = rng.random((8, 8))
    counts += counts.T
    graph = normalized(counts)
    seeds = np.eye(2)[[0, 0, 1, 1, 1]]
    counted = np.array([[2.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    for classes in (np.empty((3, 0)), counted):
        (found,) = _travel(
            GraphCounts(pairs_of(counts), None, classes, 8), [(classes, seeds)], 3, 0.9
        ).left_out
        for i in range(5):
            rest = np.concatenate([counted * bool(classes.size), seeds])
            rest[3 + i] = 0.0
            again = shares(spread_seeds(graph, 0.9, [rest / rest.sum(axis=0)])[0])
            assert_allclose(found[i], again[3 + i])


def test_the_ridge_leans_but_is_never_alone() -> None:
    seeds = np.eye(2)[[0, 0, 1, 1]]
    pairs = ((seeds, 1 - seeds), (seeds, seeds), (1 - seeds, seeds))
    least, even, most = (balance([one], [other], seeds).ridge_share for one, other in pairs)
    assert 0.3 < least < even < most
    # A class of a single label cannot be judged.
    assert balanced_loss(np.full((2, 2), 0.5), np.eye(2)) == 0.0


def test_far_from_all_labels_the_ridge_names_the_class_that_is_spread_out() -> None:
    found, _ = _fitted_ridge(np.array([[0.0], [1.0]]), np.eye(2))
    one, other = found(np.array([[1e6]]))[0]
    assert one == pytest.approx(other)
    dense, wide = np.linspace(-0.1, 0.1, 6), np.array([-9.0, -5.0, -2.0, 2.0, 5.0, 9.0])
    points = np.concatenate([dense, wide])[:, None]
    found, _ = _fitted_ridge(points, np.eye(2)[np.repeat([0, 1], 6)])
    dense_far, wide_far = found(np.array([[-1e3], [1e3], [40.0]])).T
    assert (wide_far > 0.7).all()
    assert (dense_far < 0.3).all()


def test_shares_and_weights_of_neighbors() -> None:
    assert shares(np.zeros((1, 4))).tolist() == [[0.25] * 4]
    assert near_weights(np.array([[1.0, 1.0, np.inf]])).tolist() == [[0.5, 0.5]]
    assert near_weights(np.array([[1.0, np.inf, np.inf]])).tolist() == [[1.0, 0.0]]
    assert near_weights(np.full((1, 3), np.inf)).tolist() == [[0.0, 0.0]]


def test_references_vote_without_themselves() -> None:
    points = np.array([[0.0], [1.0], [10.0], [11.0]])
    known = np.eye(2)[[0, 0, 1, 1]]
    prototypes = np.array([[10.5], [0.5]])
    found = References.build(points, known, prototypes)
    place = np.argsort(found.order)
    assert found.posterior(points, prototypes).argmax(axis=1).tolist() == [0, 0, 1, 1]
    alone = found.posterior(points[:1], prototypes, place[:1])
    assert alone[0, 0] > alone[0, 1]


def test_the_share_of_neighbors_is_what_makes_labels_likely() -> None:
    rng = np.random.default_rng(0)
    known = np.eye(2)[rng.integers(0, 2, 100)]
    noise = np.full((100, 2), 0.5)
    assert best_share(noise, known, known) == 1.0
    assert best_share(known, noise, known) == 0.0


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


def test_what_is_timid_but_right_outweighs_what_is_sure_and_wrong() -> None:
    classes = np.eye(2)[[0, 0, 0, 1, 1, 1]]
    timid = 0.45 + 0.1 * classes
    surer = 0.25 + 0.5 * classes
    surer[0] = surer[0, ::-1]
    # Taken as they are, the one that errs would weigh more.
    losses = [balanced_loss(own, classes) for own in (timid, surer)]
    found = balance([timid], [surer], classes)
    assert found.spread_power == 6.0
    assert found.ridge_share < 0.7
    assert losses[0] > losses[1]
    by_spread, by_ridge = (
        balanced_loss(shares(own**power), classes)
        for own, power in ((timid, 6.0), (surer, found.ridge_power))
    )
    share = np.clip(0.7 * np.exp(np.sqrt(6) * (by_spread - by_ridge)), LEAST, MOST)
    assert found.ridge_share == pytest.approx(share, abs=1e-6)
    # Of what says nothing, no power is better than another.
    even = [np.full((6, 2), 0.5)]
    assert balance(even, even, classes) == Balance(0.7, 1.0, 1.0)


def test_without_a_fold_labels_travel_as_if_it_had_none() -> None:
    rng = np.random.default_rng(0)
    near = rng.integers(0, 4, (12, 12)).astype(float)
    near += near.T
    # A part of the graph that only the fold reaches.
    near[[5, 11]], near[:, [5, 11]] = 0.0, 0.0
    near[5, 11] = near[11, 5] = 3.0
    seeds = np.eye(3)[[0, 1, 2, 1]]
    rest = seeds * [[1], [1], [1], [0]]
    counted = rng.integers(0, 2, (8, 3)).astype(float)
    counted[5] = 0.0
    for classes in (np.empty((8, 0)), counted):
        counts = GraphCounts(pairs_of(near), None, classes, 12)
        whole = _travel(counts, [(classes, seeds), (classes, rest)], 8, 0.9)
        alone = _travel(counts, [(classes, rest)], 8, 0.9)
        assert_allclose(whole.shares[1], alone.shares[0])
        assert_allclose(whole.shares[1][5], 1 / 3)
        # Of labeled nodes that are not in the fold.
        assert_allclose(whole.left_out[1], alone.left_out[0])
        assert whole.shares[0][5, 1] > 0.9
        pairs = [(whole.shares[0], seeds), (alone.shares[0], rest)]
        assert_allclose(settle(near / 40, pairs)[1], settle(near / 40, pairs[1:])[0])


def test_what_is_known_settles_by_hand() -> None:
    edge = np.array([[0.0, 1.0], [1.0, 0.0]])
    given = np.array([[0.4, 0.6], [0.5, 0.5]])
    # The second node has a label; (I - S/2)^(-1) is 4/3 on the diagonal, and 2/3.
    (found,) = settle(edge, [(given, np.array([[2.0, 0.0]]))])
    assert_allclose(found, [[0.9 / 1.5, 0.6 / 1.5], [1.2 / 1.5, 0.3 / 1.5]])
    assert_array_equal(given[1], [0.5, 0.5])
    # Alone, a node keeps what it has.
    (found,) = settle(0 * edge, [(given, np.array([[2.0, 0.0]]))])
    assert_allclose(found, [[0.4, 0.6], [1.0, 0.0]])


def test_a_balance_by_hand() -> None:
    spread_, ridge = np.array([[0.5, 0.5], [0.8, 0.2]]), np.array([[0.3, 0.1], [0.0, 0.0]])
    found = Balance(ridge_share=0.5, spread_power=2.0, ridge_power=1.0)(spread_, ridge)
    # (1/2, 1/2) + (3/4, 1/4) / 2; 16/17 and 1/17, with an even ridge where it knows nothing.
    assert_allclose(found[0], [0.875 / 1.5, 0.625 / 1.5])
    assert_allclose(found[1], np.array([16 / 17 + 0.25, 1 / 17 + 0.25]) / 1.5)


@pytest.mark.parametrize(("ridge_share", "lean"), [(LEAST, 0.0), (0.775, 0.5), (MOST, 1.0)])
def test_rows_are_judged_by_themselves_as_far_as_the_ridge_is_better(
    ridge_share: float, lean: float
) -> None:
    x = np.array([[-1.0], [1.0]])
    space = find_views(["raw"], SampleRows(x, np.ones(2)))
    nodes = space(x)
    graph = NodeShares(nodes, 1, np.array([[0.5, 0.5], [1.0, 0.0]]), np.eye(2), np.zeros(2, bool))
    ridge, _ = _fitted_ridge(nodes, np.eye(2))
    one = SpacePosterior(space, (graph,), ridge, Balance(ridge_share))
    own = Balance(ridge_share)(graph.shares, ridge(nodes))
    assert_allclose(one.graph(nodes, 1)[0], (1 - lean) * np.eye(2) + lean * own)


@pytest.mark.parametrize("n_neighbors", [1, 3, 9])
def test_values_of_near_nodes_by_brute_force(n_neighbors: int) -> None:
    rng = np.random.default_rng(0)
    z, nodes, values = rng.normal(size=(20, 3)), rng.normal(size=(6, 3)), rng.random((6, 2))
    m = min(n_neighbors, 5)
    for row, found in zip(z, near_values(z, nodes, values, n_neighbors)[0], strict=True):
        squared = ((nodes - row) ** 2).sum(axis=1)
        order = np.argsort(squared)
        weights = 1 - squared[order[:m]] / squared[order[m]]
        assert_allclose(found, weights @ values[order[:m]] / weights.sum())
    assert_array_equal(
        near_values(z, nodes[:1], values[:1], 3)[0], np.repeat(values[:1], 20, axis=0)
    )


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
        assert_array_equal(found.near[v].matrix(5), expected + expected.T)


def test_many_nodes_in_one_place_are_connected() -> None:
    nodes = np.repeat([[0.0], [1.0], [9.0]], 40, axis=0)
    graph = neighbor_graph(nodes, 3)
    assert np.isfinite(graph.data).all()
    assert connected_components(graph, directed=False)[0] == 1
    # Links between places weigh less than those inside one.
    rows, columns = graph.nonzero()
    inside = nodes[rows, 0] == nodes[columns, 0]
    assert graph.data[~inside].max() < graph.data[inside].min()
