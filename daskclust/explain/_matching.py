"""Clusters of two models, or two labelings, matched one to one."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.utils.validation import check_is_fitted

from daskclust._types import Floats, Ints
from daskclust.explain._data import model_input
from daskclust.metrics import contingency_table

__all__ = ["match_clusters"]

#: Pairs of clusters that are compared.
_MOST_PAIRS = 2**25


def match_clusters(old: Any, new: Any, X: Any = None) -> Ints:
    """Find which new cluster is which old one (Hungarian method).

    Parameters
    ----------
    old, new : fitted estimators, or array-like or dask.array.Array of shape (n,)
        Models, or labels of the same rows: whole numbers, negative for none.
    X : array-like, dask.array.Array, DataFrame or Cube of shape (n, p), optional
        Rows that both models label: those clusters are matched that share most rows.  Without
        it models are matched by the distances of their centers.

    Returns
    -------
    ndarray of int64, of shape (k_old + number of new clusters without an old one,)
        Number of the new cluster that is old cluster 0, 1, ...; -1 where there is none, as of
        clusters that share no row with any.  New clusters that are no old one follow, ascending.

    Raises
    ------
    ValueError
        For models without centers where X is not given, centers of different features, and a
        model beside labels.

    Notes
    -----
    One pass over X or the labels; none without.

    Examples
    --------
    >>> import numpy as np
    >>> import daskclust
    >>> daskclust.match_clusters([0, 0, 1, 2], [5, 5, 0, 1])
    array([5, 0, 1])
    >>> X = np.array([[0.0], [1.0], [8.0], [9.0]])
    >>> old = daskclust.KMeans(2, init=X[[0, 3]]).fit(X)
    >>> new = daskclust.KMeans(2, init=X[[3, 0]]).fit(X)
    >>> daskclust.match_clusters(old, new)
    array([1, 0])
    """
    are_models = [hasattr(item, "predict") for item in (old, new)]
    if are_models[0] != are_models[1]:
        raise ValueError("old and new are a model and labels; expected two models or two labels.")
    if are_models[0]:
        for model in (old, new):
            check_is_fitted(model)
        if X is None:
            cost = _squares(_centers(old, "old"), _centers(new, "new"))
            rows, columns = linear_sum_assignment(cost)
            return _in_order(rows, columns, len(cost), np.arange(cost.shape[1]))
        old, new = (model.predict(model_input(model, X)) for model in (old, new))
    elif X is not None:
        raise ValueError("X is given beside labels; expected models, or labels alone.")
    table = contingency_table(old, new)
    mine, theirs = (np.unique(table[table[:, i] >= 0, i]) for i in (0, 1))
    table = table[(table[:, :2] >= 0).all(axis=1)]
    if not len(table):
        raise ValueError("No row has a label in old and new, so nothing can be matched.")
    _check_size(len(mine), len(theirs))
    counts = np.zeros((len(mine), len(theirs)))
    at = np.searchsorted(mine, table[:, 0]), np.searchsorted(theirs, table[:, 1])
    counts[at] = table[:, 2]
    rows, columns = linear_sum_assignment(counts, maximize=True)
    shared = counts[rows, columns] > 0
    return _in_order(mine[rows[shared]], theirs[columns[shared]], int(mine[-1]) + 1, theirs)


def _check_size(k_old: int, k_new: int) -> None:
    if k_old * k_new > _MOST_PAIRS:
        raise ValueError(
            f"{k_old} old and {k_new} new clusters are more than {_MOST_PAIRS} pairs to compare; "
            "number the labels from 0, or match coarser clusters."
        )


def _centers(model: Any, name: str) -> Floats:
    found = getattr(model, "cluster_centers_", getattr(model, "means_", None))
    if found is None or len(found[0]) != model.n_features_in_:
        raise ValueError(
            f"{name} is a {type(model).__name__} without centers among the data; give rows as X "
            "that both models label."
        )
    return np.asarray(found, dtype=np.float64)


def _squares(a: Floats, b: Floats) -> Floats:
    if a.shape[1] != b.shape[1]:
        raise ValueError(
            f"old has {a.shape[1]} features and new {b.shape[1]}; expected models of the same "
            "features."
        )
    _check_size(len(a), len(b))
    out = np.empty((len(a), len(b)))
    for i, center in enumerate(a):
        out[i] = ((b - center) ** 2).sum(axis=1)
    return out


def _in_order(old: Any, new: Any, k_old: int, every: Ints) -> Ints:
    """Return the new cluster of each old one, then the new ones that are left."""
    out = np.full(k_old, -1, np.int64)
    out[old] = new
    return np.concatenate([out, np.setdiff1d(every, out)])
