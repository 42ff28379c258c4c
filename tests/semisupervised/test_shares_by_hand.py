"""Probabilities, labels and questions, computed by hand."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose

from daskclust.semisupervised.active_learning import first_pairs, squared_to_nearest
from daskclust.semisupervised.feature_views import Space, View
from daskclust.semisupervised.predict import LabelGraph, ViewPosterior, sharpened
from daskclust.semisupervised.spreading import _Labels, balance_classes


def test_squares_of_shares() -> None:
    assert_allclose(sharpened(np.array([[0.75, 0.25]]), 2.0), [[0.9, 0.1]])


def test_a_rare_class_counts_for_less() -> None:
    totals = np.array([4.0, 3.0])
    assert balance_classes(np.array([[4.0, 3.0]]), totals).tolist() == [[1.0, 1.0]]
    totals = np.array([19.0, 1.0])
    # The second class is divided by half the mean weight, 5, instead of 1.
    assert balance_classes(np.array([[19.0, 1.0]]), totals).tolist() == [[1.0, 0.2]]
    # A class without labels has no score.
    assert balance_classes(np.array([[2.0, 0.0]]), np.array([2.0, 0.0])).tolist() == [[1.0, 0.0]]


def test_squared_distances() -> None:
    points, others = np.array([[0.0], [4.0]]), np.array([[1.0], [2.0]])
    assert squared_to_nearest(points, others).tolist() == [1.0, 4.0]
    assert squared_to_nearest(points, others[:0]).tolist() == [np.inf, np.inf]


def test_the_labels_of_a_fold_do_not_count_at_prototypes_and_nodes() -> None:
    seeds = np.array([[0.0, 0.0], [0.0, 2.0]])
    labels = _Labels(np.array([False, True]), seeds, np.array([True, False, True]))
    weights = np.array([[3.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    found = labels.at_nodes(np.array([0, 1, 1]), weights, 2)
    assert found.tolist() == [[3.0, 0.0], [0.0, 1.0], [0.0, 0.0], [0.0, 2.0]]


def test_the_graphs_of_a_view_are_averaged() -> None:
    # One labeled node at 2 in both graphs, and one prototype each.
    space = Space((View("raw", np.zeros(1), np.eye(1)),))
    probabilities = np.array([[1.0, 0.0], [0.0, 1.0]])
    graphs = tuple(
        LabelGraph(np.array([[at], [2.0]]), 1, probabilities, np.array([missed, False]))
        for at, missed in ((0.0, True), (1.0, True))
    )
    found, unreached = ViewPosterior(space, graphs)(np.array([[0.0], [1.5]]), 1)
    # With one neighbor, the nearest node decides; with equal distances it is the prototype.
    assert found.tolist() == [[1.0, 0.0], [0.5, 0.5]]
    assert unreached.tolist() == [True, False]


def test_first_pairs_are_all_among_as_few_as_possible() -> None:
    assert first_pairs(4) == [(0, 1), (0, 2), (1, 2), (0, 3)]
