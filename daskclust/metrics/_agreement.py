"""How well two label vectors agree: all from one table of counts."""

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
#: The label of rows that have none.
_MASKED = -1
#: Cells up to which a table is matched as a dense matrix, and for each count beyond.
_DENSE, _SPARSEST = 2**20, 8
#: Largest label that clusters are renumbered for: the result holds a number for each below.
_MOST_LABELS = 2**24


def contingency_table(labels_true: Any, labels_pred: Any, *, ignore_masked: bool = False) -> Counts:
    """Count how often each pair of labels occurs.

    Parameters
    ----------
    labels_true, labels_pred : array-like or dask.array.Array of shape (n,)
        Whole numbers, or anything that can be sorted.  Chunks may differ, lengths may not.
    ignore_masked : bool, default=False
        Leave out rows that are labeled -1 in either vector: masked pixels,
        rows of unknown class.

    Returns
    -------
    ndarray of shape (m, 3), int64
        Class, cluster and number of rows of each pair that occurs, sorted.
        Labels that are no numbers are numbered in sorted order.

    Raises
    ------
    ValueError
        For vectors of different length, labels that are no whole numbers, masked arrays
        that hide labels unless ``ignore_masked=True``, and where every row is masked.
    ChunkError
        For chunks of unknown length that cannot be matched.

    Notes
    -----
    One pass, and one more over lazy labels that are no numbers.  *To the client*: the table,
    once a worker thread.

    Examples
    --------
    >>> contingency_table([0, 0, 1], [5, 5, 7])
    array([[0, 5, 2],
           [1, 7, 1]])
    """
    if not isinstance(ignore_masked, bool | np.bool_):
        raise TypeError(f"ignore_masked={ignore_masked!r} must be True or False.")
    truth = as_label_vector(labels_true, "labels_true", masked=ignore_masked)
    found = as_label_vector(labels_pred, "labels_pred", masked=ignore_masked)
    if is_dask(truth) or is_dask(found):
        table: Counts = open_label_pairs(truth, found, masked=ignore_masked).reduce(
            CONTINGENCY, None
        )
    elif len(truth) != len(found):
        raise ValueError(
            f"labels_true has {len(truth)} rows, labels_pred has {len(found)}; they must be of the "
            "same length."
        )
    else:
        table = count_label_pairs(truth, found)
    if ignore_masked and len(table):
        table = table[(table[:, :2] != _MASKED).all(axis=1)]
        if not len(table):
            raise ValueError(
                "Every row is labeled -1 in labels_true or labels_pred, so none is left to "
                "compare. Use ignore_masked=False if -1 is a label like others."
            )
    return table


class _Margins:
    """A table of counts with its sums, in integers that do not overflow."""

    def __init__(self, table: Counts) -> None:
        self.counts = table[:, 2]
        self.classes, self.row = np.unique(table[:, 0], return_inverse=True)
        self.clusters, self.column = np.unique(table[:, 1], return_inverse=True)
        self.in_class = self._sums(self.row, len(self.classes))
        self.in_cluster = self._sums(self.column, len(self.clusters))
        self.n = int(self.counts.sum())

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
        """Ordered pairs of rows: together in both, in truth only, in labels only, in neither."""
        both, truth, found = (
            sum(int(c) ** 2 for c in counts)
            for counts in (self.counts, self.in_class, self.in_cluster)
        )
        return both - self.n, truth - both, found - both, self.n**2 - truth - found + both


def _margins(labels_true: Any, labels_pred: Any, ignore_masked: bool) -> _Margins:
    return _Margins(contingency_table(labels_true, labels_pred, ignore_masked=ignore_masked))


def _adjusted_rand(margins: _Margins) -> float:
    both, truth, found, neither = margins.pairs()
    if truth == 0 and found == 0:
        return 1.0
    chance = (both + truth) * (truth + neither) + (both + found) * (found + neither)
    return 2.0 * (both * neither - truth * found) / chance


def _normalized_mutual_info(margins: _Margins) -> float:
    if len(margins.counts) == len(margins.classes) == len(margins.clusters):
        # The same partition, to the last bit.
        return 1.0
    # By logarithms of shares: products of counts would overflow beyond 3e9 rows.
    share, *alone = (c / margins.n for c in (margins.counts, margins.in_class, margins.in_cluster))
    logs = [np.log(s) for s in alone]
    shared = float(share @ (np.log(share) - logs[0][margins.row] - logs[1][margins.column]))
    if shared <= np.finfo(np.float64).eps:
        return 0.0
    entropies = (float(-(s * log).sum()) for s, log in zip(alone, logs, strict=True))
    # Rounding errors may exceed 1.
    return min(shared / (sum(entropies) / 2), 1.0)


def _pairwise_f(margins: _Margins) -> float:
    both, truth, found, _ = margins.pairs()
    # No pair anywhere: every row alone in both, which agrees.
    return 2 * both / (2 * both + truth + found) if both + truth + found else 1.0


def _matching(counts: csr_matrix) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Classes and clusters matched one to one so that most rows agree."""
    n_classes, n_clusters = counts.shape
    if n_classes * n_clusters <= max(_DENSE, _SPARSEST * counts.nnz):
        classes, clusters = linear_sum_assignment(counts.toarray(), maximize=True)
    else:
        # A class may stay alone, with a column of its own, where no row agrees: one more for
        # each edge of a matching leaves their order as it is, and no edge is 0.
        more = csr_matrix((counts.data + 1.0, counts.indices, counts.indptr), counts.shape)
        table = hstack([more, identity(n_classes)], format="csr")
        classes, clusters = min_weight_full_bipartite_matching(table, maximize=True)
    agree = (clusters < n_clusters).nonzero()[0]
    agree = agree[np.asarray(counts[classes[agree], clusters[agree]]).ravel() > 0]
    return classes[agree], clusters[agree]


def _accuracy(margins: _Margins) -> float:
    if not margins.n:
        return 1.0
    counts = margins.matrix
    return int(counts[_matching(counts)].sum()) / margins.n


def adjusted_rand_score(
    labels_true: Any, labels_pred: Any, *, ignore_masked: bool = False
) -> float:
    """Rand index adjusted for chance: 1 for the same partition, about 0 for chance.

    Parameters
    ----------
    labels_true, labels_pred, ignore_masked
        See :func:`contingency_table`.

    Returns
    -------
    float
        As :func:`sklearn.metrics.adjusted_rand_score`.

    Examples
    --------
    >>> adjusted_rand_score([0, 0, 1, 1], [1, 1, 0, 0])
    1.0
    """
    return _adjusted_rand(_margins(labels_true, labels_pred, ignore_masked))


def ari_of_table(table: NDArray[Any]) -> float:
    """Return the adjusted Rand index of two labelings, from counts (classes, clusters).

    >>> ari_of_table(np.array([[0, 3], [2, 0]]))
    1.0
    """
    rows, columns = np.nonzero(table)
    counts = np.rint(table[rows, columns]).astype(np.int64)
    return _adjusted_rand(_Margins(np.column_stack([rows, columns, counts])))


def normalized_mutual_info_score(
    labels_true: Any, labels_pred: Any, *, ignore_masked: bool = False
) -> float:
    """Mutual information over the mean of the two entropies: 1 for the same partition.

    Parameters
    ----------
    labels_true, labels_pred, ignore_masked
        See :func:`contingency_table`.

    Returns
    -------
    float
        As :func:`sklearn.metrics.normalized_mutual_info_score` with its default.

    Examples
    --------
    >>> normalized_mutual_info_score([0, 0, 1, 1], [0, 1, 0, 1])
    0.0
    """
    return _normalized_mutual_info(_margins(labels_true, labels_pred, ignore_masked))


def pairwise_f_score(labels_true: Any, labels_pred: Any, *, ignore_masked: bool = False) -> float:
    """F-score over pairs of rows: of "same cluster" as a guess of "same class".

    ``2 P R / (P + R)`` with P the share of pairs of rows in one cluster that are
    of one class, and R the share of pairs of one class that are in one cluster.

    Parameters
    ----------
    labels_true, labels_pred, ignore_masked
        See :func:`contingency_table`.

    Returns
    -------
    float
        1 for the same partition, also where every row is alone in both; 0 where
        no pair agrees.

    Examples
    --------
    >>> pairwise_f_score([0, 0, 1, 1], [5, 5, 5, 3])
    0.4
    """
    return _pairwise_f(_margins(labels_true, labels_pred, ignore_masked))


def clustering_accuracy(
    labels_true: Any, labels_pred: Any, *, ignore_masked: bool = False
) -> float:
    """Share of rows whose cluster is matched with their class (Hungarian method).

    Clusters and classes are matched one to one so that most rows agree; where there are more of
    the one than of the other, the surplus counts as wrong.  Labels that mean the same in both need
    no matching: see :func:`accuracy_report`.  The matching is made on the client, in memory of the
    pairs that occur, and takes seconds for 2e4 classes and a minute for 1e5.

    Parameters
    ----------
    labels_true, labels_pred, ignore_masked
        See :func:`contingency_table`.

    Returns
    -------
    float

    Examples
    --------
    >>> clustering_accuracy([0, 0, 1, 1], [7, 7, 7, 5])
    0.75
    """
    return _accuracy(_margins(labels_true, labels_pred, ignore_masked))


def agreement_scores(
    labels_true: Any, labels_pred: Any, *, ignore_masked: bool = False
) -> dict[str, float]:
    """Compute all scores of agreement from one pass.

    Parameters
    ----------
    labels_true, labels_pred, ignore_masked
        See :func:`contingency_table`.

    Returns
    -------
    dict
        ``ari``, ``nmi``, ``pairwise_f`` and ``accuracy``, each 1 for the same
        partition.

    Examples
    --------
    >>> agreement_scores([0, 0, 1], [3, 3, 8])
    {'ari': 1.0, 'nmi': 1.0, 'pairwise_f': 1.0, 'accuracy': 1.0}
    """
    return scores_of_table(contingency_table(labels_true, labels_pred, ignore_masked=ignore_masked))


def scores_of_table(table: Counts) -> dict[str, float]:
    """Return what :func:`agreement_scores` does, from a :func:`contingency_table`.

    >>> scores_of_table(np.array([[0, 3, 2], [1, 8, 1]]))["ari"]
    1.0
    """
    margins = _Margins(table)
    return {
        "ari": _adjusted_rand(margins),
        "nmi": _normalized_mutual_info(margins),
        "pairwise_f": _pairwise_f(margins),
        "accuracy": _accuracy(margins),
    }


def match_labels(truth: NDArray[Any], labels: NDArray[Any]) -> Ints:
    """Give clusters the numbers of the classes they cover best (Hungarian method).

    For display only: numbers of clusters carry no meaning.

    Parameters
    ----------
    truth, labels : ndarray or dask.array.Array of shape (n,), int
        Zero or more.

    Returns
    -------
    ndarray of shape (max(labels) + 1,), int64
        New number of each cluster.  Clusters that match no class are numbered on
        from the classes.

    Raises
    ------
    ValueError
        For labels that are negative, or 2**24 and more.

    Examples
    --------
    >>> match_labels(np.array([0, 0, 1, 1]), np.array([2, 2, 0, 0])).tolist()
    [1, 2, 0]
    """
    table = contingency_table(truth, labels)
    if not len(table):
        return np.empty(0, np.int64)
    low, high = table[:, :2].min(), table[:, :2].max()
    if low < 0 or high >= _MOST_LABELS:
        raise ValueError(
            f"truth and labels hold {low if low < 0 else high}; expected numbers from 0 to "
            f"{_MOST_LABELS - 1}. Leave out what is masked, and number classes from 0."
        )
    margins = _Margins(table)
    n_classes, n_clusters = int(margins.classes[-1]) + 1, int(margins.clusters[-1]) + 1
    classes, clusters = _matching(margins.matrix)
    numbers = np.full(n_clusters, -1, dtype=np.int64)
    numbers[margins.clusters[clusters]] = margins.classes[classes]
    free = numbers < 0
    numbers[free] = n_classes + np.arange(int(free.sum()))
    return numbers


#: Quantile of the normal distribution for an interval of 95 %.
_Z = 1.959963984540054


def wilson_interval(right: Any, total: Any) -> Floats:
    """Return the Wilson score interval of shares, to 95 %: (..., 2), NaN where there are none.

    >>> wilson_interval(8, 10).round(3)
    array([0.49 , 0.943])
    """
    hits, n = np.asarray(right, dtype=np.float64), np.asarray(total, dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = hits / n
        middle = (share + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
        half = _Z / (1 + _Z**2 / n) * np.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    return np.stack([middle - half, middle + half], axis=-1).clip(0.0, 1.0)


#: Draws of the bootstrap, at most and at least, and units that are drawn in all, about.
_MOST_DRAWS, _LEAST_DRAWS, _DRAWN = 2000, 200, 2**25
#: Shares of the draws on either side of an interval of 95 %.
_TAILS = (0.025, 0.975)
#: Number of independent units below which intervals are too rough to be relied on.
FEW_UNITS = 20


def bootstrap_interval(right: Any, total: Any) -> Floats:
    """Return intervals of shares, to 95 %, by a bootstrap over units: (..., 2).

    `right` and `total` (u, ...) are counts of each unit, such as the pixels of a field.  Units are
    drawn with replacement, one less than there are, which makes the variance of few units unbiased.
    If the shares of all units are equal, as of a single unit, draws cannot tell how far others
    are away: then the interval is Wilson's for as many independent rows as there are units.

    >>> bootstrap_interval([90, 60, 100, 80], [100, 100, 100, 100]).round(2)
    array([0.67, 0.97])
    >>> bootstrap_interval([100, 100, 100], [100, 100, 100]).round(3)
    array([0.439, 1.   ])
    """
    hits, n = np.asarray(right, dtype=np.float64), np.asarray(total, dtype=np.float64)
    shape, count = hits.shape[1:], len(hits)
    hits, n = hits.reshape(count, -1), n.reshape(count, -1)
    rng = np.random.default_rng(0)
    draws = np.clip(_DRAWN // max(count, 1), _LEAST_DRAWS, _MOST_DRAWS)
    shares = np.full((draws, hits.shape[1]), np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        for draw in shares if count > 1 else ():
            times = np.bincount(rng.integers(count, size=count - 1), minlength=count)
            draw[:] = (times @ hits) / (times @ n)
        of_units = hits / n
        overall = hits.sum(axis=0) / n.sum(axis=0)
    found = np.full((hits.shape[1], 2), np.nan)
    for at in range(hits.shape[1]):
        own, drawn = of_units[n[:, at] > 0, at], shares[:, at]
        if len(own) and (own == own[0]).all():
            found[at] = wilson_interval(overall[at] * len(own), len(own))
        elif len(own):
            found[at] = np.quantile(drawn[~np.isnan(drawn)], _TAILS)
    return found.reshape(*shape, 2)


def warn_of_few_units(n_units: int | None) -> None:
    """Warn where an accuracy rests on few independent units."""
    if n_units is not None and n_units < FEW_UNITS:
        warn(
            f"The accuracy rests on {n_units} independent units (fields, polygons or groups); with "
            f"fewer than {FEW_UNITS} its interval is rough. Judge it on more of them.",
            DaskclustWarning,
        )


@dataclass(frozen=True, repr=False)
class AccuracyReport:
    """How well labels tell known classes.

    Attributes
    ----------
    classes : list
        Classes that occur in the truth or in the labels, sorted.
    confusion : ndarray of shape (m, m), int64
        Rows of each true class (down) that have each label (across).
    unlabeled : ndarray of shape (m,), int64
        Rows of each true class whose label is -1; they count as wrong.
    n : int
        Rows that are compared.
    overall : float
        Share of the rows of the right class.
    overall_interval : ndarray of shape (2,)
        To 95 %.  Without groups it is Wilson's for independent rows, which the pixels of one
        polygon are not; with groups it is that of a bootstrap over these.
    kappa : float
        Cohen's.
    producers, users, f1 : ndarray of shape (m,), float64
        Producer's accuracy (recall), user's accuracy (precision), and their harmonic mean;
        NaN for producer's where the class is not in the truth, for user's where it is not
        among the labels.
    producers_interval, users_interval : ndarray of shape (m, 2)
    n_units : int or None
        Number of groups, the sample size that the intervals rest on; None without groups.
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
        """Return one line for each class.

        Returns
        -------
        pandas.DataFrame
            Indexed by class; columns ``truth`` and ``labels`` (rows), ``producers``, ``users``,
            ``f1``, and the bounds ``producers_low``, ``producers_high``, ``users_low``,
            ``users_high``.  ``frame.attrs`` holds ``overall``, ``overall_low``,
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
        """Return a table for notebooks."""
        frame = self.to_frame()
        return f"<p>{escape(repr(self))}</p>{frame.to_html(float_format='{:.3f}'.format)}"


def accuracy_of_counts(
    counts: Ints,
    classes: Sequence[Any],
    unlabeled: Ints | None = None,
    by_unit: Ints | None = None,
) -> AccuracyReport:
    """Return the report of a confusion matrix (m, m): rows of each true class by their label.

    `unlabeled` (m,): rows of each true class without a label. `by_unit` (r, 4): the same counts
    for each independent unit, as records of unit, true class, label (-1 for none) and rows.

    >>> accuracy_of_counts(np.array([[3, 1], [0, 4]]), ["oak", "ash"])
    Overall accuracy 0.875 (0.529 to 0.978), kappa 0.750, on 8 rows of 2 classes
    """
    counts = np.asarray(counts, dtype=np.int64)
    none = np.zeros(len(counts), np.int64) if unlabeled is None else np.asarray(unlabeled)
    right = np.diag(counts)
    truth, found = counts.sum(axis=1) + none, counts.sum(axis=0)
    n, hits = int(truth.sum()), int(right.sum())
    # Python integers: products of counts overflow.
    chance = sum(int(a) * int(b) for a, b in zip(truth, found, strict=True)) / n**2 if n else 1.0
    overall = hits / n if n else float("nan")
    with np.errstate(invalid="ignore", divide="ignore"):
        producers, users = right / truth, right / found
        f1 = 2 * right / (truth + found)
    intervals = tuple(map(wilson_interval, (hits, right, right), (n, truth, found)))
    n_units = None
    if by_unit is not None:
        intervals, n_units = _intervals_of_units(by_unit, len(counts))
    return AccuracyReport(
        list(classes),
        counts,
        none,
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
    """Return the intervals of the accuracy, of producer's and of user's, and the units."""
    units, at = np.unique(by_unit[:, 0], return_inverse=True)
    classes, labels, rows = by_unit[:, 1:].T
    right, truth, found = np.zeros((3, len(units), n_classes))
    np.add.at(truth, (at, classes), rows)
    told = labels >= 0
    np.add.at(found, (at[told], labels[told]), rows[told])
    same = classes == labels
    np.add.at(right, (at[same], classes[same]), rows[same])
    overall = bootstrap_interval(right.sum(axis=1), truth.sum(axis=1))
    each = bootstrap_interval(right, truth), bootstrap_interval(right, found)
    return (overall, *each), len(units)


def _as_text(values: Any, name: str) -> Any:
    """Return labels that are text, "" for none; None for others."""
    data = unwrap(values)
    if not is_dask(data):
        data = np.ma.asanyarray(data)
    if data.dtype.kind not in "USO" or data.ndim != 1:
        return None
    if data.dtype.kind == "O":
        kinds = {isinstance(item, str) for item in distinct(data, name, masked=True).tolist()}
        if kinds == {False}:
            return None
    return data.map_blocks(_text_of, dtype=np.dtype(str)) if is_dask(data) else _text_of(data)


def _text_of(values: Array) -> Array:
    return np.where(missing_labels(values), "", np.ma.getdata(values).astype(str))


def accuracy_report(truth: Any, labels: Any, *, groups: Any = None) -> AccuracyReport:
    """Compare labels with known classes, by name or code.

    Parameters
    ----------
    truth : array-like or dask.array.Array of shape (n,)
        Known classes: whole numbers, or text. Rows with -1, NaN, None or "", and masked rows,
        have no class, and are left out.
    labels : array-like or dask.array.Array of shape (n,)
        Classes that were found, of the same kind; rows without a label count as wrong.
    groups : array-like or dask.array.Array of shape (n,), optional
        The independent unit of each row, such as its field, polygon, tile or block: whole
        numbers, or text.  The intervals then rest on the number of groups, not of rows.  Give
        what was sampled or held out together.

    Returns
    -------
    AccuracyReport

    Raises
    ------
    ValueError
        For vectors of different length, text beside numbers, where nothing is known, and
        where truth and labels have no class in common.

    Warns
    -----
    DaskclustWarning
        If there are fewer than 20 groups.

    See Also
    --------
    clustering_accuracy : For clusters without names, under the best matching.

    Notes
    -----
    One pass, one more over lazy labels that are text, and one or two more with `groups`.  *To the
    client*: the table of the pairs that occur, with `groups` that of each group.

    Rows of one group are alike: 3000 pixels of 11 fields say as much about other fields as 11
    rows do, not as 3000.  With `groups` the intervals are percentiles of 2000 draws of as many
    groups with replacement.

    Examples
    --------
    >>> found = accuracy_report([0, 0, 1, 1, -1], [0, 1, 1, 1, 0])
    >>> found.overall, found.producers.tolist(), found.users.round(3).tolist()
    (0.75, [0.5, 1.0], [1.0, 0.667])
    >>> truth, labels = np.repeat([0, 1], 1000), np.repeat([0, 1, 0, 1], [1000, 900, 50, 50])
    >>> accuracy_report(truth, labels).overall_interval.round(3)
    array([0.967, 0.981])
    >>> fields = np.repeat(np.arange(20), 100)
    >>> accuracy_report(truth, labels, groups=fields).overall_interval.round(3)
    array([0.921, 1.   ])
    """
    one, other = _as_text(truth, "truth"), _as_text(labels, "labels")
    names: Array | None = None
    if one is not None and other is not None:
        names = np.unique(np.concatenate([distinct(one, "truth"), distinct(other, "labels")]))
        names = names[(names != "") & (names != str(_MASKED))]
        truth, labels = (by_block(part, partial(_numbers, names=names)) for part in (one, other))
    elif one is not None or other is not None:
        which = "labels" if one is None else "truth"
        raise ValueError(
            f"{which} is text and the other is not; expected names in both, or codes in both."
        )
    known = as_label_vector(truth, "truth", masked=True)
    found = as_label_vector(labels, "labels", masked=True)
    by_unit = None if groups is None else _table_of_units(groups, known, found)
    table = contingency_table(known, found) if by_unit is None else by_unit[:, 1:]
    table = table[table[:, 0] != _MASKED]
    if not len(table):
        raise ValueError("truth holds no class; expected one row at least that is not -1.")
    codes = np.unique(table[:, :2])
    codes = codes[codes != _MASKED]
    if not np.intersect1d(table[:, 0], table[:, 1]).size:
        shown = codes if names is None else names[codes]
        raise ValueError(
            f"truth and labels have no class in common, of {shown[:10].tolist()}; expected the "
            "same codes or names. For clusters without names use clustering_accuracy."
        )
    counts = np.zeros((len(codes), len(codes)), np.int64)
    none = np.zeros(len(codes), np.int64)
    rows = np.searchsorted(codes, table[:, 0])
    told = table[:, 1] != _MASKED
    columns = np.where(told, np.searchsorted(codes, table[:, 1]), _MASKED)
    np.add.at(counts, (rows[told], columns[told]), table[told, 2])
    np.add.at(none, rows[~told], table[~told, 2])
    if by_unit is not None:
        units = by_unit[by_unit[:, 1] != _MASKED, 0]
        by_unit = np.column_stack([units, rows, columns, table[:, 2]])
    classes = (codes if names is None else names[codes]).tolist()
    report = accuracy_of_counts(counts, classes, none, by_unit)
    warn_of_few_units(report.n_units)
    return report


def _table_of_units(groups: Any, known: Any, found: Any) -> Counts:
    """Count how often each triple of group, class and label occurs: (m, 4)."""
    units, known = aligned_labels(as_label_vector(groups, "groups"), known, ("groups", "truth"))
    pairs = contingency_table(units, known)[:, :2]
    numbers, classes = np.unique(pairs[:, 0]), np.unique(pairs[:, 1])
    number = partial(_number_of_pair, numbers=numbers, classes=classes)
    is_lazy = is_dask(units)
    both = units.map_blocks(number, known, dtype=np.int64) if is_lazy else number(units, known)
    table = contingency_table(both, found)
    unit, of_class = np.divmod(table[:, 0], len(classes))
    return np.column_stack([numbers[unit], classes[of_class], table[:, 1:]])


def _number_of_pair(units: Array, known: Array, numbers: Array, classes: Array) -> Ints:
    found: Ints = np.searchsorted(numbers, units) * len(classes) + np.searchsorted(classes, known)
    return found


def _numbers(texts: Array, names: Array) -> Ints:
    """Places of texts among sorted names, -1 for none."""
    at = np.minimum(np.searchsorted(names, texts), max(len(names) - 1, 0))
    found = names[at] == texts if len(names) else np.zeros(len(texts), bool)
    return np.where(found, at, _MASKED)
