"""The metric of eigenvectors, by hand, by dense least squares, and by counting pairs."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from daskclust.core.array_types import Floats
from daskclust.core.constraints import PairwiseConstraints
from daskclust.semisupervised import pair_metric
from daskclust.semisupervised.graph import unit_rows
from daskclust.semisupervised.pair_metric import LinkedNodes, NodeLinks
from daskclust.semisupervised.spectral_clustering import _MIN_GAIN

NO_ROWS = np.empty(0, np.int64)


def links_of(
    n: int,
    must: Any,
    cannot: Any,
    weights: tuple[Any, Any] = (None, None),
    labeled: Any = NO_ROWS,
    codes: Any = NO_ROWS,
) -> NodeLinks:
    """Constraints of nodes: row i is node i."""
    pairs = PairwiseConstraints.from_fit_arguments(n, must, cannot, *weights)
    ends = pairs.rows[pairs.pair_left], pairs.rows[pairs.pair_right]
    return NodeLinks(pairs, *ends, np.asarray(labeled), np.asarray(codes))


def everything(links: NodeLinks) -> tuple[Any, Any]:
    return np.ones(len(links.left), bool), np.ones(len(links.labeled), bool)


def test_metric_by_hand() -> None:
    """One cannot-link of two nodes in one direction: (m - 1)^2 + s m^2 is least at 1 / (1 + s)."""
    links = links_of(2, None, [[0, 1]])
    vectors = np.array([[1.0, 0.0], [1.0, 0.0]])
    for strength in (0.0, 1.0, 3.0):
        found = links.fit_metric(vectors, np.diag([1.0, 0.0]), strength, *everything(links))
        assert_allclose(found, np.diag([1 / (1 + strength), 0.0]), atol=1e-6)


def dense_metric(
    vectors: Floats, free: Floats, pairs: list[tuple[int, int, float, float]]
) -> Floats:
    """Least squares over the entries on and above the diagonal, for pairs (i, j, weight, t)."""
    d = vectors.shape[1]
    above = np.triu_indices(d)
    root = np.sqrt(np.where(above[0] == above[1], 1.0, 2.0))
    rows, right = [np.diag(root)], [root * free[above]]
    for i, j, weight, target in pairs:
        product = np.outer(vectors[i], vectors[j])
        both = (product + product.T)[above] / np.where(above[0] == above[1], 2.0, 1.0)
        rows.append(np.sqrt(weight) * both[None])
        right.append(np.array([np.sqrt(weight) * target]))
    found = np.linalg.lstsq(np.concatenate(rows), np.concatenate(right), rcond=None)[0]
    out = np.zeros((d, d))
    out[above] = found
    return np.asarray(out + np.triu(out, 1).T)


@given(seed=st.integers(0, 2**32 - 1), with_labels=st.booleans())
def test_metric_by_dense_least_squares(seed: int, with_labels: bool) -> None:
    rng = np.random.default_rng(seed)
    n, d, strength = 12, 4, 0.7
    vectors = unit_rows(rng.normal(size=(n, d)))
    draws = rng.integers(n, size=(30, 2))
    draws = draws[draws[:, 0] != draws[:, 1]]
    must, cannot = draws[:7], draws[7:15]
    labeled = rng.permutation(n)[:8] if with_labels else NO_ROWS
    codes = rng.integers(0, 2, len(labeled))
    codes[:2] = [0, 1][: len(codes)]
    links = links_of(n, must, cannot, (1.5, 0.5), labeled, codes)
    mean = (1.5 * len(must) + 0.5 * len(cannot)) / (len(must) + len(cannot))
    pairs = [(i, j, strength * 1.5 / mean, 1.0) for i, j in must]
    pairs += [(i, j, strength * 0.5 / mean, 0.0) for i, j in cannot]
    for a, b in combinations(range(len(labeled)), 2):
        same = codes[a] == codes[b]
        weight = strength * (1.5 if same else 0.5) / mean
        pairs.append((labeled[a], labeled[b], weight, float(same)))
    free = np.diag([1.0, 1.0, 0.0, 0.0])
    found = links.fit_metric(vectors, free, strength, *everything(links))
    assert_allclose(found, dense_metric(vectors, free, pairs), atol=1e-4)


def test_only_proportions_of_weights_matter() -> None:
    rng = np.random.default_rng(0)
    vectors = unit_rows(rng.normal(size=(6, 3)))
    metrics = [
        links.fit_metric(vectors, np.eye(3), 1.0, *everything(links))
        for weight in (0.1, 20.0)
        for links in [links_of(6, [[0, 1]], [[2, 3]], (weight, 2 * weight))]
    ]
    assert_allclose(*metrics, atol=1e-5)


def test_without_constraints_the_embedding_is_free() -> None:
    rng = np.random.default_rng(0)
    linked = LinkedNodes.of(links_of(9, [[0, 1]], None), rng.normal(size=(9, 5)), 3, 0)
    assert_allclose(np.linalg.norm(linked.vectors[:, :3], axis=1), 1.0)
    assert np.linalg.norm(linked.vectors[:, 3:], axis=1).max() <= 1 + 1e-12
    free, found = linked.vectors[:, :3], linked.embed(0.0)
    assert_allclose(found @ found.T, free @ free.T, atol=1e-12)


def test_satisfied_constraints_by_counting_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_metric, "_FOLDS", 5)
    rng = np.random.default_rng(0)
    # All nine rows are labeled; row 8 is on the node of row 7.
    codes = np.array([0, 1, 2, 0, 1, 2, 0, 1, 1])
    node = np.array([5, 3, 4, 1, 0, 2, 6, 7, 7])
    given_ = PairwiseConstraints.from_fit_arguments(
        9, [[0, 1], [2, 3]], [[4, 5], [0, 5]], [1.0, 2.0], 0.5
    )
    ends = node[given_.rows[given_.pair_left]], node[given_.rows[given_.pair_right]]
    links = NodeLinks(given_, *ends, node, codes)
    clusters, out = rng.integers(0, 3, 8), np.arange(9) < 4
    some = np.array([True, False, True, False])
    own = clusters[node]
    expected = 1.0 * (own[0] == own[1]) + 0.5 * (own[4] != own[5])
    for i in np.flatnonzero(out):
        for j in range(4, 8):
            same = codes[i] == codes[j]
            # Weights of a kind that has one for each pair do not hold for implied pairs.
            expected += (1.0 if same else 0.5) * ((own[i] == own[j]) == same)
    # The mean weight of the explicit pairs is 1.
    assert links.satisfied(clusters, some, out).sum() == pytest.approx(expected)
    fold, label_fold = links.folds(0)
    assert len(fold) == 4
    assert label_fold[7] == label_fold[8]
    for code in range(3):
        assert np.bincount(label_fold[:8][codes[:8] == code], minlength=5).max() == 1


@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
def test_chance_does_not_gain_and_truth_does() -> None:
    """Two clusters that the third eigenvector tells apart, and the first two do not."""
    rng = np.random.default_rng(0)
    truth = np.arange(60) % 2
    vectors = np.column_stack([np.ones(60), rng.normal(size=60), np.where(truth, 1.0, -1.0)])
    pairs = rng.permutation(60).reshape(-1, 2)

    def cluster(z: Floats) -> Any:
        return KMeans(2, n_init=5, random_state=0).fit_predict(z).astype(np.int64)

    gains: list[list[float]] = [[], []]
    for labels, found in (
        (truth, gains[0]),
        *((rng.permutation(truth), gains[1]) for _ in range(8)),
    ):
        same = labels[pairs[:, 0]] == labels[pairs[:, 1]]
        linked = LinkedNodes.of(links_of(60, pairs[same], pairs[~same]), vectors, 2, 0)
        found.append(linked.gain(cluster))
        if labels is truth:
            assert adjusted_rand_score(truth, cluster(linked.embed(1.0))) > 0.9
    assert gains[0][0] > _MIN_GAIN
    assert np.mean(np.array(gains[1]) > _MIN_GAIN) <= 0.2
