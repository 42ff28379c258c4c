"""How well labels agree with a known truth."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix, pair_confusion_matrix

__all__ = ["agreement", "match_labels", "pairwise_f"]


def pairwise_f(truth: NDArray[Any], labels: NDArray[Any]) -> float:
    """F-score over pairs of rows: of "same cluster" as a guess of "same class".

    Examples
    --------
    >>> pairwise_f(np.array([0, 0, 1, 1]), np.array([5, 5, 3, 3]))
    1.0
    """
    (_, false_positive), (false_negative, true_positive) = pair_confusion_matrix(truth, labels)
    pairs = 2 * int(true_positive) + int(false_positive) + int(false_negative)
    # No pair anywhere: every row alone in both, which agrees.
    return 2 * int(true_positive) / pairs if pairs else 1.0


def agreement(truth: NDArray[Any], labels: NDArray[Any]) -> dict[str, float]:
    """Compute adjusted Rand index, normalised mutual information and pairwise F-score.

    Parameters
    ----------
    truth, labels : ndarray of shape (n,), int

    Returns
    -------
    dict
        With keys ``ari``, ``nmi``, ``pairwise_f``; each is 1 for the same partition.
    """
    return {
        "ari": float(adjusted_rand_score(truth, labels)),
        "nmi": float(normalized_mutual_info_score(truth, labels)),
        "pairwise_f": pairwise_f(truth, labels),
    }


def match_labels(truth: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.int64]:
    """Give clusters the numbers of the classes they cover best (Hungarian method).

    For display only: numbers of clusters carry no meaning.

    Parameters
    ----------
    truth, labels : ndarray of shape (n,), int
        Zero or more.

    Returns
    -------
    ndarray of shape (max(labels) + 1,), int64
        New number of each cluster.  Clusters that match no class are numbered on
        from the classes.

    Examples
    --------
    >>> match_labels(np.array([0, 0, 1, 1]), np.array([2, 2, 0, 0])).tolist()
    [1, 2, 0]
    """
    n_classes, n_clusters = int(truth.max()) + 1, int(labels.max()) + 1
    counts = np.zeros((n_classes, n_clusters))
    found = contingency_matrix(truth, labels, sparse=True).tocoo()
    counts[np.unique(truth)[found.row], np.unique(labels)[found.col]] = found.data
    classes, clusters = linear_sum_assignment(counts, maximize=True)
    matched = counts[classes, clusters] > 0
    numbers = np.full(n_clusters, -1, dtype=np.int64)
    numbers[clusters[matched]] = classes[matched]
    free = numbers < 0
    numbers[free] = n_classes + np.arange(int(free.sum()))
    return numbers
