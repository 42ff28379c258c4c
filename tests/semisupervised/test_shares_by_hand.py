"""Probabilities, labels and questions, computed by hand."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose

from daskclust.semisupervised.active_learning import first_pairs, squared_to_nearest
from daskclust.semisupervised.predict import sharpened
from daskclust.semisupervised.spreading import balance_classes


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


def test_first_pairs_are_all_among_as_few_as_possible() -> None:
    assert first_pairs(4) == [(0, 1), (0, 2), (1, 2), (0, 3)]
