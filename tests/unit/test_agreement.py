"""Agreement with a truth, against definitions written out."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from daskclust._agreement import agreement, match_labels, pairwise_f


def test_pairwise_f_counts_pairs() -> None:
    rng = np.random.default_rng(0)
    truth, labels = rng.integers(3, size=40), rng.integers(4, size=40)
    both = in_truth = in_labels = 0
    for i, j in combinations(range(40), 2):
        same_class, same_cluster = truth[i] == truth[j], labels[i] == labels[j]
        both += same_class and same_cluster
        in_truth += same_class
        in_labels += same_cluster
    precision, recall = both / in_labels, both / in_truth
    assert pairwise_f(truth, labels) == pytest.approx(2 * precision * recall / (precision + recall))


def test_same_partition_scores_one() -> None:
    truth = np.array([0, 0, 1, 2, 2])
    assert agreement(truth, 7 - truth) == pytest.approx({"ari": 1, "nmi": 1, "pairwise_f": 1})
    assert pairwise_f(np.arange(3), np.arange(3)) == 1.0


@pytest.mark.parametrize(
    ("truth", "labels", "numbers"),
    [
        ([0, 0, 1, 1], [1, 1, 0, 0], [1, 0]),
        ([0, 0, 0, 2], [4, 4, 1, 3], [3, 4, 5, 2, 0]),  # 0, 1 and 2 match no class
        ([0, 1, 1], [0, 0, 0], [1]),
    ],
)
def test_clusters_take_the_numbers_of_their_classes(truth, labels, numbers) -> None:
    assert match_labels(np.array(truth), np.array(labels)).tolist() == numbers
