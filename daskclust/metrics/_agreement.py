"""Scores of agreement between two label vectors, computed from their contingency table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_matrix, hstack, identity
from scipy.sparse.csgraph import min_weight_full_bipartite_matching

from daskclust.core.array_types import Array, Floats, Ints
from daskclust.core.engine import (
    aligned_labels,
    as_label_vector,
    by_block,
    distinct,
    is_dask,
    missing_labels,
    open_label_pairs,
    unwrap,
)
from daskclust.core.kernels.pair_counts import count_label_pairs
from daskclust.core.reduction.label_tables import CONTINGENCY
from daskclust.core.warn import warn
from daskclust.exceptions import DaskclustWarning

Counts = Ints
#: Label of rows without a label.
_NO_LABEL = -1
#: Maximum number of cells of a dense table for matching: in total, or per nonzero count.
_DENSE, _CELLS_PER_COUNT = 2**20, 8
#: Upper bound of labels in `match_labels`, whose result has a number for each label.
_MAX_LABELS = 2**24


def contingency_table(labels_true: Any, labels_pred: Any, *, ignore_masked: bool = False) -> Counts:
    """Count how often each pair of labels occurs.

    Parameters
    ----------
    labels_true, labels_pred : array-like or dask.array.Array of shape (n,)
        Whole numbers, or any sortable values.  Chunks may differ, but lengths must not.
    ignore_masked : bool, default=False
        If True, ignore rows with the label -1 in any of the vectors, for example masked pixels and
        rows of unknown class.

    Returns
    -------
    ndarray of shape (m, 3), int64
        Class, cluster and number of rows of each pair that occurs, sorted.
        Labels that are not numbers are replaced by their positions in sorted order.

    Raises
    ------
    ValueError
        For vectors of different length, labels that are not whole numbers, masked arrays with
        masked values unless ``ignore_masked=True``, and if all rows are masked.
    ChunkError
        For chunks of unknown length that cannot be matched.

    Notes
    -----
    The function reads the labels once, and lazy labels that are not numbers twice.  *To the
    client*: the table, once per worker thread.

    Examples
    --------
    >>> contingency_table([0, 0, 1], [5, 5, 7])
    array([[0, 5, 2],
           [1, 7, 1]])
    """
    if not isinstance(ignore_masked, bool | np.bool_):
        raise TypeError(f"ignore_masked must be True or False, got {ignore_masked!r}.")
    truth = as_label_vector(labels_true, "labels_true", masked=ignore_masked)
    labels = as_label_vector(labels_pred, "labels_pred", masked=ignore_masked)
    if is_dask(truth) or is_dask(labels):
        table: Counts = open_label_pairs(truth, labels, masked=ignore_masked).reduce(
            CONTINGENCY, None
        )
    elif len(truth) != len(labels):
        raise ValueError(
            "labels_true and labels_pred must have the same length, got "
            f"{len(truth)} and {len(labels)}."
        )
    else:
        table = count_label_pairs(truth, labels)
    if ignore_masked and len(table):
        table = table[(table[:, :2] != _NO_LABEL).all(axis=1)]
        if not len(table):
            raise ValueError(
                "At least one row must have a label other than -1 in both labels_true and "
                "labels_pred, got none. If -1 is a normal label, use ignore_masked=False."
            )
    return table


class Margins:
    """Contingency table with its row and column sums."""

    def __init__(self, table: Counts) -> None:
        self.counts = table[:, 2]
        self.classes, self.row = np.unique(table[:, 0], return_inverse=True)
        self.clusters, self.column = np.unique(table[:, 1], return_inverse=True)
        self.in_class = self._sums(self.row, len(self.classes))
        self.in_cluster = self._sums(self.column, len(self.clusters))
        self.n = int(self.counts.sum())

    @property
    def are_equal(self) -> bool:
        """Return True if both label vectors are the same partition."""
        return len(self.counts) == len(self.classes) == len(self.clusters)

    def _sums(self, index: NDArray[np.intp], size: int) -> Counts:
        sums = np.zeros(size, np.int64)
        np.add.at(sums, index, self.counts)
        return sums

    @property
    def matrix(self) -> csr_matrix:
        """Counts as a sparse matrix of shape (classes, clusters)."""
        shape = len(self.classes), len(self.clusters)
        return csr_matrix((self.counts, (self.row, self.column)), shape=shape)

    def pairs(self) -> tuple[int, int, int, int]:
        """Count pairs of rows that are together in both, only in truth, only in labels, in none."""
        in_both, in_truth, in_labels = (
            sum(int(c) ** 2 for c in counts)
            for counts in (self.counts, self.in_class, self.in_cluster)
        )
        return (
            in_both - self.n,
            in_truth - in_both,
            in_labels - in_both,
            self.n**2 - in_truth - in_labels + in_both,
        )


def margins_of(labels_true: Any, labels_pred: Any, ignore_masked: bool) -> Margins:
    return Margins(contingency_table(labels_true, labels_pred, ignore_masked=ignore_masked))


def _adjusted_rand(margins: Margins) -> float:
    in_both, in_truth, in_labels, neither = margins.pairs()
    if in_truth == 0 and in_labels == 0:
        return 1.0
    chance = (in_both + in_truth) * (in_truth + neither) + (in_both + in_labels) * (
        in_labels + neither
    )
    return 2.0 * (in_both * neither - in_truth * in_labels) / chance


def information(margins: Margins) -> tuple[float, float, float]:
    """Return the mutual information, the entropy of the classes and the entropy of the clusters."""
    # Use logarithms of fractions, because products of counts overflow above 3e9 rows.
    joint, *marginals = (
        c / margins.n for c in (margins.counts, margins.in_class, margins.in_cluster)
    )
    logs = [np.log(s) for s in marginals]
    mutual = float(joint @ (np.log(joint) - logs[0][margins.row] - logs[1][margins.column]))
    class_entropy, cluster_entropy = (
        float(-(s * log).sum()) for s, log in zip(marginals, logs, strict=True)
    )
    return (mutual if mutual > np.finfo(np.float64).eps else 0.0), class_entropy, cluster_entropy


def _normalized_mutual_info(margins: Margins) -> float:
    if margins.are_equal:
        return 1.0
    mutual, class_entropy, cluster_entropy = information(margins)
    # Rounding errors may exceed 1.
    return min(mutual / ((class_entropy + cluster_entropy) / 2), 1.0) if mutual else 0.0


def _pairwise_f(margins: Margins) -> float:
    in_both, in_truth, in_labels, _ = margins.pairs()
    # Without pairs, each row is alone in both partitions: they are equal.
    return (
        2 * in_both / (2 * in_both + in_truth + in_labels)
        if in_both + in_truth + in_labels
        else 1.0
    )


def _matching(counts: csr_matrix) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Match classes and clusters one to one, so that as many rows as possible agree."""
    n_classes, n_clusters = counts.shape
    if n_classes * n_clusters <= max(_DENSE, _CELLS_PER_COUNT * counts.nnz):
        classes, clusters = linear_sum_assignment(counts.toarray(), maximize=True)
    else:
        # An additional column per class stands for "no match".  Adding 1 to each count makes edges
        # nonzero, and does not change the best matching.
        shifted = csr_matrix((counts.data + 1.0, counts.indices, counts.indptr), counts.shape)
        table = hstack([shifted, identity(n_classes)], format="csr")
        classes, clusters = min_weight_full_bipartite_matching(table, maximize=True)
    matched = (clusters < n_clusters).nonzero()[0]
    matched = matched[np.asarray(counts[classes[matched], clusters[matched]]).ravel() > 0]
    return classes[matched], clusters[matched]


def _accuracy(margins: Margins) -> float:
    if not margins.n:
        return 1.0
    counts = margins.matrix
    return int(counts[_matching(counts)].sum()) / margins.n


def adjusted_rand_score(
    labels_true: Any, labels_pred: Any, *, ignore_masked: bool = False
) -> float:
    """Return the adjusted Rand index: 1 for equal partitions, about 0 for random partitions.

    Parameters
    ----------
    labels_true, labels_pred, ignore_masked
        See :func:`contingency_table`.

    Returns
    -------
    float
        The value of :func:`sklearn.metrics.adjusted_rand_score`.

    Examples
    --------
    >>> adjusted_rand_score([0, 0, 1, 1], [1, 1, 0, 0])
    1.0
    """
    return _adjusted_rand(margins_of(labels_true, labels_pred, ignore_masked))


def ari_of_table(table: NDArray[Any]) -> float:
    """Return the adjusted Rand index of two labelings, from counts (classes, clusters).

    >>> ari_of_table(np.array([[0, 3], [2, 0]]))
    1.0
    """
    rows, columns = np.nonzero(table)
    counts = np.rint(table[rows, columns]).astype(np.int64)
    return _adjusted_rand(Margins(np.column_stack([rows, columns, counts])))


def normalized_mutual_info_score(
    labels_true: Any, labels_pred: Any, *, ignore_masked: bool = False
) -> float:
    """Return the mutual information divided by the mean of the two entropies.

    Parameters
    ----------
    labels_true, labels_pred, ignore_masked
        See :func:`contingency_table`.

    Returns
    -------
    float
        1 for equal partitions; the value of :func:`sklearn.metrics.normalized_mutual_info_score`
        with its default.

    Examples
    --------
    >>> normalized_mutual_info_score([0, 0, 1, 1], [0, 1, 0, 1])
    0.0
    """
    return _normalized_mutual_info(margins_of(labels_true, labels_pred, ignore_masked))


def pairwise_f_score(labels_true: Any, labels_pred: Any, *, ignore_masked: bool = False) -> float:
    """Return the F-score of pairs of rows: "same cluster" predicts "same class".

    The score is ``2 P R / (P + R)``.  The precision P is the fraction of pairs in one cluster that
    belong to one class.  The recall R is the fraction of pairs of one class that are in one
    cluster.

    Parameters
    ----------
    labels_true, labels_pred, ignore_masked
        See :func:`contingency_table`.

    Returns
    -------
    float
        1 for equal partitions, also if each row is alone in both; 0 if no pair agrees.

    Examples
    --------
    >>> pairwise_f_score([0, 0, 1, 1], [5, 5, 5, 3])
    0.4
    """
    return _pairwise_f(margins_of(labels_true, labels_pred, ignore_masked))


def clustering_accuracy(
    labels_true: Any, labels_pred: Any, *, ignore_masked: bool = False
) -> float:
    """Return the fraction of rows whose cluster is matched with their class (Hungarian method).

    Clusters and classes are matched one to one, so that as many rows as possible agree.  Rows of
    unmatched clusters or classes count as wrong.  If labels are codes of classes, use
    :func:`accuracy_report`.  The client computes the matching in seconds for 2e4 classes, and in a
    minute for 1e5.

    Parameters
    ----------
    labels_true, labels_pred, ignore_masked
        See :func:`contingency_table`.

    Returns
    -------
    float
        Fraction in [0, 1].

    Examples
    --------
    >>> clustering_accuracy([0, 0, 1, 1], [7, 7, 7, 5])
    0.75
    """
    return _accuracy(margins_of(labels_true, labels_pred, ignore_masked))


def agreement_scores(
    labels_true: Any, labels_pred: Any, *, ignore_masked: bool = False
) -> dict[str, float]:
    """Return all scores of agreement, computed in one pass.

    Parameters
    ----------
    labels_true, labels_pred, ignore_masked
        See :func:`contingency_table`.

    Returns
    -------
    dict
        ``ari``, ``nmi``, ``pairwise_f`` and ``accuracy``, each 1 for equal partitions.

    Examples
    --------
    >>> agreement_scores([0, 0, 1], [3, 3, 8])
    {'ari': 1.0, 'nmi': 1.0, 'pairwise_f': 1.0, 'accuracy': 1.0}
    """
    return scores_of_table(contingency_table(labels_true, labels_pred, ignore_masked=ignore_masked))


def scores_of_table(table: Counts) -> dict[str, float]:
    """Return the scores of :func:`agreement_scores` for a :func:`contingency_table`.

    >>> scores_of_table(np.array([[0, 3, 2], [1, 8, 1]]))["ari"]
    1.0
    """
    margins = Margins(table)
    return {
        "ari": _adjusted_rand(margins),
        "nmi": _normalized_mutual_info(margins),
        "pairwise_f": _pairwise_f(margins),
        "accuracy": _accuracy(margins),
    }


def match_labels(truth: NDArray[Any], labels: NDArray[Any]) -> Ints:
    """Renumber clusters by the classes that match them best (Hungarian method).

    Use it for display only: the numbers of clusters have no meaning.

    Parameters
    ----------
    truth, labels : ndarray or dask.array.Array of shape (n,), int
        Labels of the same rows, 0 or more.

    Returns
    -------
    ndarray of shape (max(labels) + 1,), int64
        New number of each cluster.  Clusters without a class get the numbers after the classes.

    Raises
    ------
    ValueError
        For negative labels, and for labels of 2**24 or more.

    Examples
    --------
    >>> match_labels(np.array([0, 0, 1, 1]), np.array([2, 2, 0, 0])).tolist()
    [1, 2, 0]
    """
    table = contingency_table(truth, labels)
    if not len(table):
        return np.empty(0, np.int64)
    low, high = table[:, :2].min(), table[:, :2].max()
    if low < 0 or high >= _MAX_LABELS:
        raise ValueError(
            f"truth and labels must be between 0 and {_MAX_LABELS - 1}, got "
            f"{low if low < 0 else high}. Omit masked rows, and number classes from 0."
        )
    margins = Margins(table)
    n_classes, n_clusters = int(margins.classes[-1]) + 1, int(margins.clusters[-1]) + 1
    classes, clusters = _matching(margins.matrix)
    numbers = np.full(n_clusters, -1, dtype=np.int64)
    numbers[margins.clusters[clusters]] = margins.classes[classes]
    free = numbers < 0
    numbers[free] = n_classes + np.arange(int(free.sum()))
    return numbers


#: Quantile of the normal distribution for 95 % intervals.
_Z = 1.959963984540054


def wilson_interval(correct: Any, total: Any) -> Floats:
    """Return 95 % Wilson score intervals of fractions: (..., 2), NaN for totals of 0.

    >>> wilson_interval(8, 10).round(3)
    array([0.49 , 0.943])
    """
    n_correct, n = np.asarray(correct, dtype=np.float64), np.asarray(total, dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        fraction = n_correct / n
        middle = (fraction + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
        half = _Z / (1 + _Z**2 / n) * np.sqrt(fraction * (1 - fraction) / n + _Z**2 / (4 * n**2))
    return np.stack([middle - half, middle + half], axis=-1).clip(0.0, 1.0)


#: Maximum and minimum number of bootstrap draws; approximate number of units in all draws.
_MAX_DRAWS, _MIN_DRAWS, _TOTAL_DRAWN = 2000, 200, 2**25
#: Quantiles of the draws for 95 % intervals.
_TAILS = (0.025, 0.975)
#: Minimum number of independent units for reliable intervals.
FEW_UNITS = 20


def bootstrap_interval(correct: Any, total: Any) -> Floats:
    """Return 95 % bootstrap intervals (..., 2) of fractions, from counts of independent units.

    `correct` and `total` (u, ...) are counts per unit, for example the pixels of a field.  A draw
    has u - 1 units with replacement, so that the variance is unbiased for few units.  If all units
    have the same fraction, draws do not vary, and the Wilson interval of u rows is returned.

    >>> bootstrap_interval([90, 60, 100, 80], [100, 100, 100, 100]).round(2)
    array([0.67, 0.97])
    >>> bootstrap_interval([100, 100, 100], [100, 100, 100]).round(3)
    array([0.439, 1.   ])
    """
    n_correct, n = np.asarray(correct, dtype=np.float64), np.asarray(total, dtype=np.float64)
    shape, count = n_correct.shape[1:], len(n_correct)
    n_correct, n = n_correct.reshape(count, -1), n.reshape(count, -1)
    rng = np.random.default_rng(0)
    draws = np.clip(_TOTAL_DRAWN // max(count, 1), _MIN_DRAWS, _MAX_DRAWS)
    drawn = np.full((draws, n_correct.shape[1]), np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        for draw in drawn if count > 1 else ():
            times = np.bincount(rng.integers(count, size=count - 1), minlength=count)
            draw[:] = (times @ n_correct) / (times @ n)
        unit_fractions = n_correct / n
        overall = n_correct.sum(axis=0) / n.sum(axis=0)
    intervals = np.full((n_correct.shape[1], 2), np.nan)
    for column in range(n_correct.shape[1]):
        fractions, draws_of_column = unit_fractions[n[:, column] > 0, column], drawn[:, column]
        if len(fractions) and (fractions == fractions[0]).all():
            intervals[column] = wilson_interval(overall[column] * len(fractions), len(fractions))
        elif len(fractions):
            intervals[column] = np.quantile(draws_of_column[~np.isnan(draws_of_column)], _TAILS)
    return intervals.reshape(*shape, 2)


def warn_of_few_units(n_units: int | None) -> None:
    """Warn if an accuracy is based on few independent units."""
    if n_units is not None and n_units < FEW_UNITS:
        warn(
            f"The accuracy is based on {n_units} independent units (fields, polygons or groups). "
            f"With fewer than {FEW_UNITS} its interval is rough. Use more units.",
            DaskclustWarning,
        )


@dataclass(frozen=True, repr=False)
class AccuracyReport:
    """Agreement of labels with known classes.

    Attributes
    ----------
    classes : list
        Classes that occur in the truth or in the labels, sorted.
    confusion : ndarray of shape (m, m), int64
        Number of rows by true class (row) and label (column).
    unlabeled : ndarray of shape (m,), int64
        Number of rows of each true class whose label is -1; they count as wrong.
    n : int
        Number of compared rows.
    overall : float
        Fraction of the rows with the correct class.
    overall_interval : ndarray of shape (2,)
        95 % interval: a bootstrap interval over groups, or without groups the Wilson interval.  The
        Wilson interval assumes independent rows, and pixels of a polygon are not independent.
    kappa : float
        Cohen's kappa.
    producers, users, f1 : ndarray of shape (m,), float64
        Producer's accuracy (recall), user's accuracy (precision), and their harmonic mean.
        Producer's accuracy is NaN if the class is missing in the truth, user's accuracy if it is
        missing in the labels.
    producers_interval, users_interval : ndarray of shape (m, 2)
        95 % intervals.
    n_units : int or None
        Number of groups, which is the sample size for the intervals; None without groups.
    """

    classes: list[Any]
    confusion: Ints
    unlabeled: Ints
    n: int
    overall: float
    overall_interval: Floats
    kappa: float
    producers: Floats
    users: Floats
    f1: Floats
    producers_interval: Floats
    users_interval: Floats
    n_units: int | None = None

    def __repr__(self) -> str:
        low, high = self.overall_interval
        return (
            f"Overall accuracy {self.overall:.3f} ({low:.3f} to {high:.3f}), kappa "
            f"{self.kappa:.3f}, on {self.n} rows of {len(self.classes)} classes"
            + ("" if self.n_units is None else f" in {self.n_units} independent units")
        )

    def to_frame(self) -> Any:
        """Return a table with a line for each class.

        Returns
        -------
        pandas.DataFrame
            Indexed by class; columns ``truth`` and ``labels`` (numbers of rows), ``producers``,
            ``users``, ``f1``, and the bounds ``producers_low``, ``producers_high``, ``users_low``,
            ``users_high``.  ``frame.attrs`` contains ``overall``, ``overall_low``,
            ``overall_high``, ``kappa``, ``n`` and ``n_units``.
        """
        import pandas

        frame = pandas.DataFrame(
            {
                "truth": self.confusion.sum(axis=1) + self.unlabeled,
                "labels": self.confusion.sum(axis=0),
                "producers": self.producers,
                "users": self.users,
                "f1": self.f1,
                "producers_low": self.producers_interval[:, 0],
                "producers_high": self.producers_interval[:, 1],
                "users_low": self.users_interval[:, 0],
                "users_high": self.users_interval[:, 1],
            },
            index=pandas.Index(self.classes, name="class"),
        )
        low, high = self.overall_interval.tolist()
        frame.attrs.update(overall=self.overall, overall_low=low, overall_high=high)
        frame.attrs.update(kappa=self.kappa, n=self.n, n_units=self.n_units)
        return frame

    def _repr_html_(self) -> str:
        frame = self.to_frame()
        return f"<p>{escape(repr(self))}</p>{frame.to_html(float_format='{:.3f}'.format)}"


def accuracy_of_counts(
    counts: Ints,
    classes: Sequence[Any],
    unlabeled: Ints | None = None,
    by_unit: Ints | None = None,
) -> AccuracyReport:
    """Return the report for a confusion matrix (m, m), with true classes as rows.

    `unlabeled` (m,) is the number of rows of each true class without a label.  `by_unit` (r, 4) has
    the counts for independent units: unit, true class, label (-1 without a label), number of rows.

    >>> accuracy_of_counts(np.array([[3, 1], [0, 4]]), ["oak", "ash"])
    Overall accuracy 0.875 (0.529 to 0.978), kappa 0.750, on 8 rows of 2 classes
    """
    counts = np.asarray(counts, dtype=np.int64)
    missing = np.zeros(len(counts), np.int64) if unlabeled is None else np.asarray(unlabeled)
    correct = np.diag(counts)
    truth, labeled = counts.sum(axis=1) + missing, counts.sum(axis=0)
    n, n_correct = int(truth.sum()), int(correct.sum())
    # Python integers, because products of counts would overflow.
    chance = sum(int(a) * int(b) for a, b in zip(truth, labeled, strict=True)) / n**2 if n else 1.0
    overall = n_correct / n if n else float("nan")
    with np.errstate(invalid="ignore", divide="ignore"):
        producers, users = correct / truth, correct / labeled
        f1 = 2 * correct / (truth + labeled)
    intervals = tuple(map(wilson_interval, (n_correct, correct, correct), (n, truth, labeled)))
    n_units = None
    if by_unit is not None:
        intervals, n_units = _intervals_of_units(by_unit, len(counts))
    return AccuracyReport(
        list(classes),
        counts,
        missing,
        n,
        overall,
        intervals[0],
        (overall - chance) / (1 - chance) if chance < 1 else float("nan"),
        producers,
        users,
        f1,
        intervals[1],
        intervals[2],
        n_units,
    )


def _intervals_of_units(by_unit: Ints, n_classes: int) -> tuple[tuple[Floats, ...], int]:
    units, at = np.unique(by_unit[:, 0], return_inverse=True)
    classes, labels, rows = by_unit[:, 1:].T
    correct, truth, labeled = np.zeros((3, len(units), n_classes))
    np.add.at(truth, (at, classes), rows)
    has_label = labels >= 0
    np.add.at(labeled, (at[has_label], labels[has_label]), rows[has_label])
    is_correct = classes == labels
    np.add.at(correct, (at[is_correct], classes[is_correct]), rows[is_correct])
    overall = bootstrap_interval(correct.sum(axis=1), truth.sum(axis=1))
    by_class = bootstrap_interval(correct, truth), bootstrap_interval(correct, labeled)
    return (overall, *by_class), len(units)


def _as_text(values: Any, name: str) -> Any:
    """Return text labels, with "" for missing labels; None if labels are not text."""
    data = unwrap(values)
    if not is_dask(data):
        data = np.ma.asanyarray(data)
    if data.dtype.kind not in "USO" or data.ndim != 1:
        return None
    if data.dtype.kind == "O":
        are_text = {isinstance(item, str) for item in distinct(data, name, masked=True).tolist()}
        if are_text == {False}:
            return None
    return data.map_blocks(_text_of, dtype=np.dtype(str)) if is_dask(data) else _text_of(data)


def _text_of(values: Array) -> Array:
    return np.where(missing_labels(values), "", np.ma.getdata(values).astype(str))


def accuracy_report(truth: Any, labels: Any, *, groups: Any = None) -> AccuracyReport:
    """Compare labels with known classes that have the same codes or names.

    Use it to evaluate a classification.  For clusters without classes, use
    :func:`clustering_accuracy`.

    Parameters
    ----------
    truth : array-like or dask.array.Array of shape (n,)
        Known classes: whole numbers, or text.  Rows with -1, NaN, None or "" and masked rows have
        no class, and are ignored.
    labels : array-like or dask.array.Array of shape (n,)
        Predicted classes, of the same kind.  Rows without a label count as wrong.
    groups : array-like or dask.array.Array of shape (n,), optional
        Independent unit of each row, such as its field, polygon, tile or block: whole numbers, or
        text.  Intervals then depend on the number of groups instead of the number of rows.  Rows
        that were sampled or held out together must be in one group.

    Returns
    -------
    AccuracyReport

    Raises
    ------
    ValueError
        For vectors of different length, text together with numbers, a truth without classes, and
        if truth and labels have no class in common.

    Warns
    -----
    DaskclustWarning
        If there are fewer than 20 groups.

    See Also
    --------
    clustering_accuracy : Accuracy of clusters for the best matching with classes.

    Notes
    -----
    *Passes* over the labels: 1, another one for lazy text, and one or two for `groups`.  *To the
    client*: the contingency table, or one table per group.

    Rows of a group are similar: 3000 pixels of 11 fields are as informative about other fields as
    11 independent rows.  With `groups`, intervals are percentiles of up to 2000 bootstrap draws.

    Examples
    --------
    >>> result = accuracy_report([0, 0, 1, 1, -1], [0, 1, 1, 1, 0])
    >>> result.overall, result.producers.tolist(), result.users.round(3).tolist()
    (0.75, [0.5, 1.0], [1.0, 0.667])
    >>> truth, labels = np.repeat([0, 1], 1000), np.repeat([0, 1, 0, 1], [1000, 900, 50, 50])
    >>> accuracy_report(truth, labels).overall_interval.round(3)
    array([0.967, 0.981])
    >>> fields = np.repeat(np.arange(20), 100)
    >>> accuracy_report(truth, labels, groups=fields).overall_interval.round(3)
    array([0.921, 1.   ])
    """
    truth_text, label_text = _as_text(truth, "truth"), _as_text(labels, "labels")
    names: Array | None = None
    if truth_text is not None and label_text is not None:
        names = np.unique(
            np.concatenate([distinct(truth_text, "truth"), distinct(label_text, "labels")])
        )
        names = names[(names != "") & (names != str(_NO_LABEL))]
        truth, labels = (
            by_block(texts, partial(_numbers, names=names)) for texts in (truth_text, label_text)
        )
    elif truth_text is not None or label_text is not None:
        text_argument = "labels" if truth_text is None else "truth"
        raise ValueError(
            f"truth and labels must both be names or both be codes, got text in "
            f"{text_argument} only."
        )
    true_codes = as_label_vector(truth, "truth", masked=True)
    label_codes = as_label_vector(labels, "labels", masked=True)
    by_unit = None if groups is None else _table_of_units(groups, true_codes, label_codes)
    table = contingency_table(true_codes, label_codes) if by_unit is None else by_unit[:, 1:]
    table = table[table[:, 0] != _NO_LABEL]
    if not len(table):
        raise ValueError(
            "truth must have a class in at least one row, got no classes. Check the codes: -1 "
            "means no class."
        )
    codes = np.unique(table[:, :2])
    codes = codes[codes != _NO_LABEL]
    if not np.intersect1d(table[:, 0], table[:, 1]).size:
        shown = codes if names is None else names[codes]
        raise ValueError(
            "truth and labels must have a class in common, got none of "
            f"{shown[:10].tolist()} in both. For clusters without names, use clustering_accuracy."
        )
    counts = np.zeros((len(codes), len(codes)), np.int64)
    missing = np.zeros(len(codes), np.int64)
    rows = np.searchsorted(codes, table[:, 0])
    has_label = table[:, 1] != _NO_LABEL
    columns = np.where(has_label, np.searchsorted(codes, table[:, 1]), _NO_LABEL)
    np.add.at(counts, (rows[has_label], columns[has_label]), table[has_label, 2])
    np.add.at(missing, rows[~has_label], table[~has_label, 2])
    if by_unit is not None:
        units = by_unit[by_unit[:, 1] != _NO_LABEL, 0]
        by_unit = np.column_stack([units, rows, columns, table[:, 2]])
    classes = (codes if names is None else names[codes]).tolist()
    report = accuracy_of_counts(counts, classes, missing, by_unit)
    warn_of_few_units(report.n_units)
    return report


def _table_of_units(groups: Any, true_codes: Any, label_codes: Any) -> Counts:
    """Count the rows of each triple of group, class and label: (m, 4)."""
    units, true_codes = aligned_labels(
        as_label_vector(groups, "groups"), true_codes, ("groups", "truth")
    )
    pairs = contingency_table(units, true_codes)[:, :2]
    numbers, classes = np.unique(pairs[:, 0]), np.unique(pairs[:, 1])
    number = partial(_number_of_pair, numbers=numbers, classes=classes)
    is_lazy = is_dask(units)
    unit_and_class = (
        units.map_blocks(number, true_codes, dtype=np.int64)
        if is_lazy
        else number(units, true_codes)
    )
    table = contingency_table(unit_and_class, label_codes)
    unit, class_number = np.divmod(table[:, 0], len(classes))
    return np.column_stack([numbers[unit], classes[class_number], table[:, 1:]])


def _number_of_pair(units: Array, true_codes: Array, numbers: Array, classes: Array) -> Ints:
    pair_numbers: Ints = np.searchsorted(numbers, units) * len(classes) + np.searchsorted(
        classes, true_codes
    )
    return pair_numbers


def _numbers(texts: Array, names: Array) -> Ints:
    """Return positions of texts in sorted names, -1 for other texts."""
    positions = np.minimum(np.searchsorted(names, texts), max(len(names) - 1, 0))
    is_name = names[positions] == texts if len(names) else np.zeros(len(texts), bool)
    return np.where(is_name, positions, _NO_LABEL)
