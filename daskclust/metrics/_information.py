"""Scores of scikit-learn that compare two partitions by entropies and by pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics.cluster import expected_mutual_information

from daskclust.metrics._agreement import information, margins_of, normalized_mutual_info_score


def homogeneity_score(labels_true: Any, labels_pred: Any, *, ignore_masked: bool = False) -> float:
    """Return 1.0 if each cluster contains rows of a single class, and less otherwise.

    Parameters
    ----------
    labels_true, labels_pred, ignore_masked
        See :func:`contingency_table`.

    Returns
    -------
    float
        As :func:`sklearn.metrics.homogeneity_score`.

    Examples
    --------
    >>> homogeneity_score([0, 0, 1, 1], [0, 1, 2, 2])
    1.0
    """
    mutual, class_entropy, _ = information(margins_of(labels_true, labels_pred, ignore_masked))
    return min(1.0, mutual / class_entropy) if class_entropy > 0 else 1.0


def completeness_score(labels_true: Any, labels_pred: Any, *, ignore_masked: bool = False) -> float:
    """Return 1.0 if all rows of each class are in one cluster, and less otherwise.

    Parameters
    ----------
    labels_true, labels_pred, ignore_masked
        See :func:`contingency_table`.

    Returns
    -------
    float
        As :func:`sklearn.metrics.completeness_score`.

    Examples
    --------
    >>> completeness_score([0, 0, 1, 1], [0, 0, 0, 0])
    1.0
    """
    mutual, _, cluster_entropy = information(margins_of(labels_true, labels_pred, ignore_masked))
    return min(1.0, mutual / cluster_entropy) if cluster_entropy > 0 else 1.0


def v_measure_score(labels_true: Any, labels_pred: Any, *, ignore_masked: bool = False) -> float:
    """Return the harmonic mean of homogeneity and completeness.

    This is another name of :func:`normalized_mutual_info_score`.

    Parameters
    ----------
    labels_true, labels_pred, ignore_masked
        See :func:`contingency_table`.

    Returns
    -------
    float
        As :func:`sklearn.metrics.v_measure_score` with its default.

    Examples
    --------
    >>> round(v_measure_score([0, 0, 1, 1], [0, 0, 1, 2]), 3)
    0.8
    """
    return normalized_mutual_info_score(labels_true, labels_pred, ignore_masked=ignore_masked)


def adjusted_mutual_info_score(
    labels_true: Any, labels_pred: Any, *, ignore_masked: bool = False
) -> float:
    """Return the mutual information, adjusted so that random partitions score about 0.

    Parameters
    ----------
    labels_true, labels_pred, ignore_masked
        See :func:`contingency_table`.

    Returns
    -------
    float
        As :func:`sklearn.metrics.adjusted_mutual_info_score` with its default.

    Notes
    -----
    The time on the client grows with the number of rows: seconds for 1e8 rows in 10 classes and
    10 clusters.

    Examples
    --------
    >>> adjusted_mutual_info_score([0, 0, 1, 1], [1, 1, 0, 0])
    1.0
    """
    margins = margins_of(labels_true, labels_pred, ignore_masked)
    if margins.are_equal:
        return 1.0
    mutual, *entropies = information(margins)
    expected = float(expected_mutual_information(margins.matrix, margins.n))
    largest = sum(entropies) / 2 - expected
    tiny = float(np.finfo(np.float64).eps)
    return (mutual - expected) / (min(largest, -tiny) if largest < 0 else max(largest, tiny))


def fowlkes_mallows_score(
    labels_true: Any, labels_pred: Any, *, ignore_masked: bool = False
) -> float:
    """Return the geometric mean of precision and recall over pairs of rows.

    Parameters
    ----------
    labels_true, labels_pred, ignore_masked
        See :func:`contingency_table`.

    Returns
    -------
    float
        As :func:`sklearn.metrics.fowlkes_mallows_score`.

    Examples
    --------
    >>> fowlkes_mallows_score([0, 0, 1, 1], [0, 0, 1, 1])
    1.0
    """
    in_both, in_truth, in_labels, _ = margins_of(labels_true, labels_pred, ignore_masked).pairs()
    return (
        float(np.sqrt(in_both / (in_both + in_labels) * (in_both / (in_both + in_truth))))
        if in_both
        else 0.0
    )
