"""The arithmetic of shares, labels and questions, by hand."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose

from daskclust.core.kernels.pair_counts import PairCounts
from daskclust.semisupervised.active_learning import first_pairs, squared_to_nearest
from daskclust.semisupervised.classifiers import squared_distances
from daskclust.semisupervised.predict import sharpened
from daskclust.semisupervised.problem import GraphCounts
from daskclust.semisupervised.spreading import _travel, balance, weighed


def test_squares_of_shares() -> None:
    assert_allclose(sharpened(np.array([[0.75, 0.25]]), 2.0), [[0.9, 0.1]])


def test_a_rare_class_counts_for_less() -> None:
    assert weighed(np.array([[4.0, 3.0]]), np.array([4.0, 3.0])).tolist() == [[1.0, 1.0]]
    assert weighed(np.array([[19.0, 1.0]]), np.array([19.0, 1.0])).tolist() == [[1.0, 0.2]]


def test_a_label_left_out_is_told_by_the_others() -> None:
    near = PairCounts(np.array([1]), np.array([1.0]))
    pair = GraphCounts(near, None, np.empty((0, 0)), 2)
    found = _travel(pair, [(pair.classes, np.eye(2))], 0, 0.5)
    # Each node has two thirds of its own label; alone it would be the other's.
    assert_allclose(found.shares[0], [[2 / 3, 1 / 3], [1 / 3, 2 / 3]])
    assert found.left_out[0].tolist() == [[0.0, 1.0], [1.0, 0.0]]


def test_the_ridge_weighs_what_its_losses_say() -> None:
    seeds = np.eye(2)[np.arange(100) % 2]
    even, right = [np.full((100, 2), 0.5)], [0.1 + 0.8 * seeds]
    assert balance(even, even, seeds).ridge_share == 0.7
    assert balance(right, even, seeds).ridge_share == 0.35
    assert balance(even, right, seeds).ridge_share == 1.2


def test_squared_distances() -> None:
    assert squared_distances(np.array([[0.0], [3.0]]), np.array([[1.0]])).tolist() == [[1], [4]]
    points, others = np.array([[0.0], [4.0]]), np.array([[1.0], [2.0]])
    assert squared_to_nearest(points, others).tolist() == [1.0, 4.0]
    assert squared_to_nearest(points, others[:0]).tolist() == [np.inf, np.inf]


def test_first_pairs_are_all_among_as_few_as_possible() -> None:
    assert first_pairs(4) == [(0, 1), (0, 2), (1, 2), (0, 3)]
