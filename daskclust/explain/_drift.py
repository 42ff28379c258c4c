"""Changes since the fit: shares of the clusters, and where their rows lie now."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from daskclust._types import Bools, Floats, Ints
from daskclust.estimator.base import center_space
from daskclust.explain._data import Labeled, model_input, open_labeled
from daskclust.explain._profiles import sample_labeled

__all__ = ["Drift", "drift"]

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
        where the model does not keep it.
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
        return f"Drift of {len(self.labels)} clusters: psi {self.psi:.3f}, spread {self.spread:.3f}"

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
        """Return a table for notebooks."""
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
    found = sample_labeled(data)
    shares = _fit_shares(model)
    centers = _fit_means(model)
    k = len(shares) if shares is not None else 0 if centers is None else len(centers)
    labels = np.union1d(found.labels, np.arange(k))
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
    return None if found is None else np.asarray(found / np.sum(found), dtype=np.float64)


def _fit_means(model: Any) -> Floats | None:
    """Centers in the space of the data, where the model has such."""
    space = center_space(model)
    if space is None:
        found = getattr(model, "means_", None)
        return None if found is None else np.asarray(found, dtype=np.float64)
    return None if getattr(model, "_is_angular", False) else model.cluster_centers_


def _spread(model: Any, data: Labeled, found: Any) -> float:
    """Root mean square distance to the centers, now over then."""
    space, counts = center_space(model), getattr(model, "counts_", None)
    inertia = getattr(model, "inertia_", None)
    if space is None or counts is None or not inertia or space.metric is not None:
        return float("nan")
    known = found.labels >= 0
    weight, mean, squares = found.moments[:, known]
    around = squares + weight * (mean - space.centers[found.labels[known]]) ** 2
    now = float(around.sum()) / float(found.weights[known].sum())
    return float(np.sqrt(now / (inertia / float(np.sum(counts)))))
