"""How well two label vectors agree: all from one table of counts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_matrix, hstack, identity
from scipy.sparse.csgraph import min_weight_full_bipartite_matching

from daskclust._types import Ints
from daskclust.engine import as_label_vector, is_dask, open_label_pairs
from daskclust.kernels.contingency import count_pairs
from daskclust.reduction.label_tables import CONTINGENCY

__all__ = [
    "adjusted_rand_score",
    "agreement_scores",
    "ari_of_table",
    "clustering_accuracy",
    "contingency_table",
    "match_labels",
    "normalized_mutual_info_score",
    "pairwise_f_score",
    "scores_of_table",
]

Counts = Ints
_MASKED = -1
#: Cells up to which a table is matched as a dense matrix, and for each count beyond.
_DENSE, _SPARSEST = 2**20, 8
#: Largest label that clusters are renumbered for: the result holds a number for each below.
_MOST_LABELS = 2**24


def _check_flag(value: Any) -> None:
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"ignore_masked={value!r} must be True or False.")


def contingency_table(labels_true: Any, labels_pred: Any, *, ignore_masked: bool = False) -> Counts:
    """Count how often each pair of labels occurs.

    Parameters
    ----------
    labels_true, labels_pred : array-like or dask.array.Array of shape (n,)
        Whole numbers; for NumPy input anything that can be sorted.  Chunks may
        differ, lengths may not.
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
    One pass.  *To the client*: the table, once a worker thread.

    Examples
    --------
    >>> contingency_table([0, 0, 1], [5, 5, 7])
    array([[0, 5, 2],
           [1, 7, 1]])
    """
    _check_flag(ignore_masked)
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
        table = count_pairs(truth, found)
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


def _adjusted_rand(margins: _Margins) -> float:
    both, truth, found, neither = margins.pairs()
    if truth == 0 and found == 0:
        return 1.0
    chance = (both + truth) * (truth + neither) + (both + found) * (found + neither)
    return 2.0 * (both * neither - truth * found) / chance


def _entropy(counts: Counts, n: int) -> float:
    share = counts / n
    return float(-(share * np.log(share)).sum())


def _normalized_mutual_info(margins: _Margins) -> float:
    if len(margins.counts) == len(margins.classes) == len(margins.clusters):
        # The same partition, to the last bit.
        return 1.0
    # By logarithms of shares: products of counts would overflow beyond 3e9 rows.
    share = margins.counts / margins.n
    alone = [np.log(c / margins.n) for c in (margins.in_class, margins.in_cluster)]
    shared = float(share @ (np.log(share) - alone[0][margins.row] - alone[1][margins.column]))
    if shared <= np.finfo(np.float64).eps:
        return 0.0
    entropies = (_entropy(c, margins.n) for c in (margins.in_class, margins.in_cluster))
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
    labels_true, labels_pred : array-like or dask.array.Array of shape (n,)
        Whole numbers; for NumPy input anything that can be sorted.  Chunks may
        differ, lengths may not.
    ignore_masked : bool, default=False
        Leave out rows that are labeled -1 in either vector.

    Returns
    -------
    float
        As :func:`sklearn.metrics.adjusted_rand_score`.

    Examples
    --------
    >>> adjusted_rand_score([0, 0, 1, 1], [1, 1, 0, 0])
    1.0
    """
    return _adjusted_rand(
        _Margins(contingency_table(labels_true, labels_pred, ignore_masked=ignore_masked))
    )


def ari_of_table(table: NDArray[Any]) -> float:
    """Return the adjusted Rand index of two labelings, from their table.

    Parameters
    ----------
    table : ndarray of shape (classes, clusters)
        Number of rows of each class and cluster.

    Examples
    --------
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
    labels_true, labels_pred : array-like or dask.array.Array of shape (n,)
        Whole numbers; for NumPy input anything that can be sorted.  Chunks may
        differ, lengths may not.
    ignore_masked : bool, default=False
        Leave out rows that are labeled -1 in either vector.

    Returns
    -------
    float
        As :func:`sklearn.metrics.normalized_mutual_info_score` with its default,
        the arithmetic mean.

    Examples
    --------
    >>> normalized_mutual_info_score([0, 0, 1, 1], [0, 1, 0, 1])
    0.0
    """
    return _normalized_mutual_info(
        _Margins(contingency_table(labels_true, labels_pred, ignore_masked=ignore_masked))
    )


def pairwise_f_score(labels_true: Any, labels_pred: Any, *, ignore_masked: bool = False) -> float:
    """F-score over pairs of rows: of "same cluster" as a guess of "same class".

    ``2 P R / (P + R)`` with P the share of pairs of rows in one cluster that are
    of one class, and R the share of pairs of one class that are in one cluster.

    Parameters
    ----------
    labels_true, labels_pred : array-like or dask.array.Array of shape (n,)
        Whole numbers; for NumPy input anything that can be sorted.  Chunks may
        differ, lengths may not.
    ignore_masked : bool, default=False
        Leave out rows that are labeled -1 in either vector.

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
    return _pairwise_f(
        _Margins(contingency_table(labels_true, labels_pred, ignore_masked=ignore_masked))
    )


def clustering_accuracy(
    labels_true: Any, labels_pred: Any, *, ignore_masked: bool = False
) -> float:
    """Share of rows whose cluster is matched with their class (Hungarian method).

    Clusters and classes are matched one to one so that most rows agree, in memory of
    the pairs that occur where these are few out of many.  Where
    there are more clusters than classes, or fewer, the surplus is matched with
    nothing and its rows count as wrong.  Labels that mean the same in both need no
    matching: their accuracy is the share of rows where they are equal.  The matching is
    made on the client, and takes seconds for 2e4 classes and a minute for 1e5.

    Parameters
    ----------
    labels_true, labels_pred : array-like or dask.array.Array of shape (n,)
        Whole numbers; for NumPy input anything that can be sorted.  Chunks may
        differ, lengths may not.
    ignore_masked : bool, default=False
        Leave out rows that are labeled -1 in either vector.

    Returns
    -------
    float

    Examples
    --------
    >>> clustering_accuracy([0, 0, 1, 1], [7, 7, 7, 5])
    0.75
    """
    return _accuracy(
        _Margins(contingency_table(labels_true, labels_pred, ignore_masked=ignore_masked))
    )


def agreement_scores(
    labels_true: Any, labels_pred: Any, *, ignore_masked: bool = False
) -> dict[str, float]:
    """Compute all scores of agreement from one pass.

    Parameters
    ----------
    labels_true, labels_pred : array-like or dask.array.Array of shape (n,)
        Whole numbers; for NumPy input anything that can be sorted.  Chunks may
        differ, lengths may not.
    ignore_masked : bool, default=False
        Leave out rows that are labeled -1 in either vector.

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

    Parameters
    ----------
    table : ndarray of shape (m, 3), int64

    Examples
    --------
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
