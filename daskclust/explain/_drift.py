"""Changes since the fit: sizes of the clusters, and shifts of their rows."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from sklearn.utils.validation import check_is_fitted

from daskclust.core.array_types import Bools, Floats, Ints
from daskclust.core.estimator.base import center_space
from daskclust.core.estimator.transforms import UnitSphere
from daskclust.core.estimator.validation import check_same_features, data_centers
from daskclust.explain._labeled_rows import Labeled, model_input, open_labeled
from daskclust.explain._profiles import sample_labeled
from daskclust.metrics import contingency_table

#: Maximum number of pairs of clusters that are compared.
_MOST_PAIRS = 2**25


def match_clusters(old: Any, new: Any, X: Any = None) -> Ints:
    """Match the clusters of two fits by the Hungarian method.

    Use it to compare two fits of the same data, or to renumber the clusters of a new fit like the
    old clusters.

    Parameters
    ----------
    old, new : fitted estimators, or array-like or dask.array.Array of shape (n,)
        Models, or labels of the same rows: whole numbers, negative for rows without a label.
    X : array-like, dask.array.Array, DataFrame or Cube of shape (n, p), optional
        Rows that both models label.  The matching maximizes the number of rows in matched clusters.
        Without X, it minimizes the squared distances of matched centers.

    Returns
    -------
    ndarray of shape (k_old + number of unmatched new clusters,), int64
        Number of the new cluster for old cluster 0, 1, ...; -1 for an old cluster without a match.
        Unmatched new clusters follow, in ascending order.

    Raises
    ------
    ValueError
        For models without centers and X, for different features, and for a model together with
        labels.

    Notes
    -----
    The function reads X or the labels once.  Without X, it compares only centers.

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
        raise ValueError(
            "old and new must be two models or two vectors of labels, got "
            f"{type(old).__name__} and {type(new).__name__}. For a model without predict, use "
            "labels_."
        )
    if are_models[0]:
        for model in (old, new):
            check_is_fitted(model)
        if X is None:
            names = (getattr(model, "feature_names_in_", None) for model in (old, new))
            check_same_features("old and new have", *names)
            cost = _squared_distances(
                _centers_in_data_space(old, "old"), _centers_in_data_space(new, "new")
            )
            rows, columns = linear_sum_assignment(cost)
            return _with_unmatched(rows, columns, len(cost), np.arange(cost.shape[1]))
        old, new = (model.predict(model_input(model, X)) for model in (old, new))
    elif X is not None:
        raise ValueError("X must be None if old and new are labels. Omit X, or pass two models.")
    table = contingency_table(old, new)
    old_labels, new_labels = (np.unique(table[table[:, i] >= 0, i]) for i in (0, 1))
    table = table[(table[:, :2] >= 0).all(axis=1)]
    if not len(table):
        raise ValueError(
            "old and new must both label at least one row, got no such row. Check that the rows "
            "are equal."
        )
    _check_size(len(old_labels), len(new_labels))
    counts = np.zeros((len(old_labels), len(new_labels)))
    cells = np.searchsorted(old_labels, table[:, 0]), np.searchsorted(new_labels, table[:, 1])
    counts[cells] = table[:, 2]
    rows, columns = linear_sum_assignment(counts, maximize=True)
    have_rows = counts[rows, columns] > 0
    return _with_unmatched(
        old_labels[rows[have_rows]],
        new_labels[columns[have_rows]],
        int(old_labels[-1]) + 1,
        new_labels,
    )


def _check_size(k_old: int, k_new: int) -> None:
    if k_old * k_new > _MOST_PAIRS:
        raise ValueError(
            f"old and new must have at most {_MOST_PAIRS} pairs of clusters, got {k_old} x "
            f"{k_new}. Number labels from 0, or match coarser clusters."
        )


def _centers_in_data_space(model: Any, name: str) -> Floats:
    centers = data_centers(model)
    if centers is None or len(centers[0]) != model.n_features_in_:
        raise ValueError(
            f"{name} must have centers of the features of the data for X=None, got a "
            f"{type(model).__name__} without centers. Pass rows that both models label as X."
        )
    return np.asarray(centers, dtype=np.float64)


def _squared_distances(a: Floats, b: Floats) -> Floats:
    if a.shape[1] != b.shape[1]:
        raise ValueError(
            f"old and new must have the same features, got {a.shape[1]} and {b.shape[1]}. Pass "
            "models of the same features."
        )
    _check_size(len(a), len(b))
    squares: Floats = cdist(a, b, "sqeuclidean")
    return squares


def _with_unmatched(old: Any, new: Any, k_old: int, new_labels: Ints) -> Ints:
    out = np.full(k_old, -1, np.int64)
    out[old] = new
    return np.concatenate([out, np.setdiff1d(new_labels, out)])


#: Minimum fraction in the logarithms of the population stability index.
_MIN_FRACTION = 1e-4


@dataclass(frozen=True, repr=False)
class Drift:
    """Differences between new rows and the rows of the fit.

    Attributes
    ----------
    labels : ndarray of shape (k,), int64
        Labels of the clusters.
    names : list of str
        Names of the clusters.
    features : list of str
        Names of the features.
    sizes : ndarray of shape (k,), float64
        Number of new rows of each cluster.
    fit_shares, shares : ndarray of shape (k,), float64
        Fraction of the rows in each cluster: at the fit (NaN if the model does not store it), and
        of the new rows.
    shifts : ndarray of shape (k, p), float64
        Mean of the new rows minus the center of the fit, in standard deviations of the new rows.
        NaN if the model has no centers of the features of the data.
    psi : float
        Population stability index, ``sum (new - old) ln(new / old)`` over the clusters, with
        fractions of at least 1e-4.  It is 0 for equal fractions.  Values above 0.25 are large
        changes.
    spread : float
        Root mean square distance of the new rows to their centers, divided by the same distance
        for the rows of the fit.  NaN if the model does not store it, or if clusters were joined.
    """

    labels: Ints
    names: list[str]
    features: list[str]
    sizes: Floats
    fit_shares: Floats
    shares: Floats
    shifts: Floats
    psi: float
    spread: float

    def __repr__(self) -> str:
        psi, spread = (
            "unknown" if np.isnan(value) else f"{value:.3f}" for value in (self.psi, self.spread)
        )
        return f"Drift of {np.count_nonzero(self.labels >= 0)} clusters: psi {psi}, spread {spread}"

    def to_frame(self) -> Any:
        """Return a table with a line for each cluster.

        Returns
        -------
        pandas.DataFrame
            Columns ``cluster``, ``size``, ``fit_share``, ``share``, ``shift`` (root mean square
            over the features), ``feature`` (with the largest shift) and ``feature_shift``.
        """
        import pandas

        finite = np.nan_to_num(self.shifts, nan=0.0)
        largest = np.abs(finite).argmax(axis=1)
        has_center: Bools = np.asarray(np.isfinite(self.shifts).any(axis=1))
        with np.errstate(invalid="ignore"):
            overall = np.sqrt((finite**2).mean(axis=1))
        rows = np.arange(len(largest))
        return pandas.DataFrame(
            {
                "cluster": self.names,
                "size": self.sizes,
                "fit_share": self.fit_shares,
                "share": self.shares,
                "shift": np.where(has_center, overall, np.nan),
                "feature": [
                    self.features[j] if is_present else None
                    for j, is_present in zip(largest.tolist(), has_center.tolist(), strict=True)
                ],
                "feature_shift": np.where(has_center, finite[rows, largest], np.nan),
            }
        )

    def _repr_html_(self) -> str:
        return f"{self.to_frame().to_html(index=False)}<p>{escape(repr(self))}</p>"


def drift(model: Any, X: Any) -> Drift:
    """Compare new rows with the rows of the fit.

    Use it to decide if a model describes new data, or must be fitted again.

    Parameters
    ----------
    model : fitted estimator
        Model whose ``predict`` returns the clusters.
    X : array-like, dask.array.Array, DataFrame, xarray.DataArray or Cube of shape (n, p)
        New rows.

    Returns
    -------
    Drift

    Raises
    ------
    ValueError
        For values that ``predict`` does not accept.

    Notes
    -----
    The function reads the new rows once.  It does not need the data of the fit: the model stores
    ``counts_`` or ``weights_``, centers or means, and ``inertia_``.

    Examples
    --------
    >>> import numpy as np
    >>> import daskclust
    >>> from daskclust.explain import drift
    >>> X = np.array([[0.0], [1.0], [9.0], [10.0]])
    >>> model = daskclust.KMeans(n_clusters=2, random_state=0).fit(X)
    >>> result = drift(model, np.array([[0.5], [1.5], [1.0], [10.0]]))
    >>> result.shares[np.argsort(model.cluster_centers_[:, 0])]
    array([0.75, 0.25])
    """
    data = open_labeled(model, model_input(model, X))
    sample = sample_labeled(data, n_rows=0, n_per_label=0)
    shares, centers = _fit_shares(model), _fit_means(model)
    if data.joined:
        shares, centers = _join_clusters(shares, centers, data.joined)
    k = len(shares) if shares is not None else 0 if centers is None else len(centers)
    labels = np.union1d(sample.labels, np.setdiff1d(np.arange(k), list(data.joined)))
    positions = np.searchsorted(labels, sample.labels)
    sizes = np.zeros(len(labels))
    sizes[positions] = sample.weights
    p = len(data.features)
    old_shares = np.full(len(labels), np.nan)
    if shares is not None:
        old_shares[labels < 0] = 0.0
        old_shares[labels >= 0] = shares[labels[labels >= 0]]
    new_shares = sizes / sizes.sum()
    shifts = np.full((len(labels), p), np.nan)
    if centers is not None and centers.shape[1] == p:
        is_cluster = sample.labels >= 0
        weight, mean, squares = sample.moments[:, is_cluster]
        with np.errstate(invalid="ignore", divide="ignore"):
            differences = mean - centers[sample.labels[is_cluster]]
            shifts[positions[is_cluster]] = np.where(
                differences == 0, 0.0, differences / np.sqrt(squares / weight)
            )
        shifts[positions[is_cluster]] = np.where(weight > 0, shifts[positions[is_cluster]], np.nan)
    a, b = np.maximum(old_shares, _MIN_FRACTION), np.maximum(new_shares, _MIN_FRACTION)
    return Drift(
        labels,
        [data.name(int(label)) for label in labels],
        data.features,
        sizes,
        old_shares,
        new_shares,
        shifts,
        float(((b - a) * np.log(b / a)).sum()),
        _spread(model, data, sample),
    )


def _fit_shares(model: Any) -> Floats | None:
    """Return the fraction of rows of each cluster at the fit, or None if it is unknown."""
    counts = getattr(model, "counts_", None)
    if counts is None and hasattr(model, "means_"):
        counts = model.weights_
    # After a fit without iterations all counts are 0.
    if counts is None or not np.sum(counts):
        return None
    return np.asarray(counts / np.sum(counts), dtype=np.float64)


def _fit_means(model: Any) -> Floats | None:
    space = center_space(model)
    if space is None:
        means = getattr(model, "means_", None)
        return None if means is None else np.asarray(means, dtype=np.float64)
    return None if isinstance(space.metric, UnitSphere) else model.cluster_centers_


def _join_clusters(
    shares: Floats | None, centers: Floats | None, targets: dict[int, int]
) -> tuple[Floats | None, Floats | None]:
    """Return fractions and means of joined clusters, or two times None without fractions."""
    if shares is None:
        return None, None
    codes = np.arange(len(shares))
    codes[list(targets)] = list(targets.values())
    joined = np.zeros_like(shares)
    np.add.at(joined, codes, shares)
    if centers is not None:
        sums = np.zeros_like(centers)
        np.add.at(sums, codes, centers * shares[:, None])
        with np.errstate(invalid="ignore", divide="ignore"):
            centers = sums / joined[:, None]
    return joined, centers


def _spread(model: Any, data: Labeled, sample: Any) -> float:
    space, inertia = center_space(model), getattr(model, "inertia_", None)
    if space is None or space.metric is not None or not inertia or data.joined:
        return float("nan")
    if _fit_shares(model) is None:
        return float("nan")
    is_cluster = sample.labels >= 0
    weight, mean, squares = sample.moments[:, is_cluster]
    squares_to_centers = squares + weight * (mean - space.centers[sample.labels[is_cluster]]) ** 2
    new_inertia = float(squares_to_centers.sum()) / float(sample.weights[is_cluster].sum())
    return float(np.sqrt(new_inertia / (inertia / float(np.sum(model.counts_)))))
