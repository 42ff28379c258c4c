"""Changes since the fit: shares of the clusters, and where their rows lie now."""

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
        raise ValueError(
            f"old and new are {type(old).__name__} and {type(new).__name__}; expected two models "
            "or two labels. Of a model that does not predict give labels_."
        )
    if are_models[0]:
        for model in (old, new):
            check_is_fitted(model)
        if X is None:
            names = (getattr(model, "feature_names_in_", None) for model in (old, new))
            check_same_features("old and new have", *names)
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
    found = data_centers(model)
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
    found: Floats = cdist(a, b, "sqeuclidean")
    return found


def _in_order(old: Any, new: Any, k_old: int, every: Ints) -> Ints:
    """Return the new cluster of each old one, then the new ones that are left."""
    out = np.full(k_old, -1, np.int64)
    out[old] = new
    return np.concatenate([out, np.setdiff1d(every, out)])


#: Share that stands for none where logarithms are taken.
_LEAST = 1e-4


@dataclass(frozen=True, repr=False)
class Drift:
    """How new rows differ from those of the fit.

    Attributes
    ----------
    labels : ndarray of shape (k,), int64
    names : list of str
    features : list of str
    sizes : ndarray of shape (k,), float64
        New rows of each cluster.
    fit_shares, shares : ndarray of shape (k,), float64
        Share of the rows at the fit (NaN where the model does not keep it), and now.
    shifts : ndarray of shape (k, p), float64
        Mean of the new rows less the center of the fit, in deviations of the new rows; NaN
        where the model has no centers among the data.
    psi : float
        Population stability index, ``sum (new - old) ln(new / old)`` over the clusters, shares
        below 1e-4 taken as that: 0 for the same shares, above 0.25 a large change.
    spread : float
        Root mean square distance of the new rows to their centers over that of the fit; NaN
        where the model does not keep it, or clusters were joined.
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
            "not known" if np.isnan(value) else f"{value:.3f}" for value in (self.psi, self.spread)
        )
        return f"Drift of {np.count_nonzero(self.labels >= 0)} clusters: psi {psi}, spread {spread}"

    def to_frame(self) -> Any:
        """Return one line for each cluster.

        Returns
        -------
        pandas.DataFrame
            Columns ``cluster``, ``size``, ``fit_share``, ``share``, ``shift`` (root mean square
            over the features), ``feature`` (that moved most) and ``feature_shift``.
        """
        import pandas

        finite = np.nan_to_num(self.shifts, nan=0.0)
        most = np.abs(finite).argmax(axis=1)
        known: Bools = np.asarray(np.isfinite(self.shifts).any(axis=1))
        with np.errstate(invalid="ignore"):
            overall = np.sqrt((finite**2).mean(axis=1))
        at = np.arange(len(most))
        return pandas.DataFrame(
            {
                "cluster": self.names,
                "size": self.sizes,
                "fit_share": self.fit_shares,
                "share": self.shares,
                "shift": np.where(known, overall, np.nan),
                "feature": [
                    self.features[j] if there else None
                    for j, there in zip(most.tolist(), known.tolist(), strict=True)
                ],
                "feature_shift": np.where(known, finite[at, most], np.nan),
            }
        )

    def _repr_html_(self) -> str:
        return f"{self.to_frame().to_html(index=False)}<p>{escape(repr(self))}</p>"


def drift(model: Any, X: Any) -> Drift:
    """Compare new rows with those that a model was fitted on.

    Parameters
    ----------
    model : fitted estimator
    X : array-like, dask.array.Array, DataFrame, xarray.DataArray or Cube of shape (n, p)
        The new rows.

    Returns
    -------
    Drift

    Raises
    ------
    ValueError
        For values that ``predict`` refuses.

    Notes
    -----
    One pass.  The fit is known by the model: ``counts_`` or ``weights_`` for
    shares, centers or means, and ``inertia_``.

    Examples
    --------
    >>> import numpy as np
    >>> import daskclust
    >>> from daskclust.explain import drift
    >>> X = np.array([[0.0], [1.0], [9.0], [10.0]])
    >>> model = daskclust.KMeans(n_clusters=2, random_state=0).fit(X)
    >>> found = drift(model, np.array([[0.5], [1.5], [1.0], [10.0]]))
    >>> found.shares[np.argsort(model.cluster_centers_[:, 0])]
    array([0.75, 0.25])
    """
    data = open_labeled(model, model_input(model, X))
    found = sample_labeled(data, n_rows=0, each=0)
    shares, centers = _fit_shares(model), _fit_means(model)
    if data.joined:
        shares, centers = _of_joined(shares, centers, data.joined)
    k = len(shares) if shares is not None else 0 if centers is None else len(centers)
    labels = np.union1d(found.labels, np.setdiff1d(np.arange(k), list(data.joined)))
    at = np.searchsorted(labels, found.labels)
    sizes = np.zeros(len(labels))
    sizes[at] = found.weights
    p = len(data.features)
    old = np.full(len(labels), np.nan)
    if shares is not None:
        old[labels < 0] = 0.0
        old[labels >= 0] = shares[labels[labels >= 0]]
    now = sizes / sizes.sum()
    moved = np.full((len(labels), p), np.nan)
    if centers is not None and centers.shape[1] == p:
        known = found.labels >= 0
        weight, mean, squares = found.moments[:, known]
        with np.errstate(invalid="ignore", divide="ignore"):
            gaps = mean - centers[found.labels[known]]
            moved[at[known]] = np.where(gaps == 0, 0.0, gaps / np.sqrt(squares / weight))
        moved[at[known]] = np.where(weight > 0, moved[at[known]], np.nan)
    a, b = np.maximum(old, _LEAST), np.maximum(now, _LEAST)
    return Drift(
        labels,
        [data.name(int(label)) for label in labels],
        data.features,
        sizes,
        old,
        now,
        moved,
        float(((b - a) * np.log(b / a)).sum()),
        _spread(model, data, found),
    )


def _fit_shares(model: Any) -> Floats | None:
    """Shares of the clusters at the fit, where the model keeps them."""
    found = getattr(model, "counts_", None)
    if found is None and hasattr(model, "means_"):
        found = model.weights_
    # A fit of no iteration has centers and no counts.
    if found is None or not np.sum(found):
        return None
    return np.asarray(found / np.sum(found), dtype=np.float64)


def _fit_means(model: Any) -> Floats | None:
    """Centers in the space of the data, where the model has such."""
    space = center_space(model)
    if space is None:
        found = getattr(model, "means_", None)
        return None if found is None else np.asarray(found, dtype=np.float64)
    return None if isinstance(space.metric, UnitSphere) else model.cluster_centers_


def _of_joined(
    shares: Floats | None, centers: Floats | None, into: dict[int, int]
) -> tuple[Floats | None, Floats | None]:
    """Shares and means of what clusters were joined to; without shares neither is known."""
    if shares is None:
        return None, None
    codes = np.arange(len(shares))
    codes[list(into)] = list(into.values())
    joined = np.zeros_like(shares)
    np.add.at(joined, codes, shares)
    if centers is not None:
        sums = np.zeros_like(centers)
        np.add.at(sums, codes, centers * shares[:, None])
        with np.errstate(invalid="ignore", divide="ignore"):
            centers = sums / joined[:, None]
    return joined, centers


def _spread(model: Any, data: Labeled, found: Any) -> float:
    space, inertia = center_space(model), getattr(model, "inertia_", None)
    if space is None or space.metric is not None or not inertia or data.joined:
        return float("nan")
    if _fit_shares(model) is None:
        return float("nan")
    known = found.labels >= 0
    weight, mean, squares = found.moments[:, known]
    around = squares + weight * (mean - space.centers[found.labels[known]]) ** 2
    now = float(around.sum()) / float(found.weights[known].sum())
    return float(np.sqrt(now / (inertia / float(np.sum(model.counts_)))))
