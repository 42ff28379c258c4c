"""The price of a cluster, from a wanted number of clusters."""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator

from daskclust.engine import open_rows
from daskclust.estimator.inputs import check_rows, check_values, check_weight
from daskclust.estimator.parameters import check_integer
from daskclust.reduction import SURVEY, SurveyRequest
from daskclust.starts.deterministic import farthest_first_delta


def suggest_delta(X: Any, n_clusters: int, *, sample_weight: Any = None) -> float:
    """Suggest ``delta`` of :class:`~daskclust.DPMeans` for about so many clusters.

    The farthest-first heuristic of [1]_: starting from the mean, take the row
    farthest from all points taken, ``n_clusters`` times; delta is the squared
    distance of the last one.  Outliers are far from everything: where there are
    any, delta comes out too large and the clusters too few.

    Parameters
    ----------
    X : array-like, dask.array.Array, DataFrame or xarray.DataArray of shape (n, p)
    n_clusters : int
    sample_weight : array-like or dask.array.Array of shape (n,), optional
        Rows of weight 0 are absent.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        For NaN or infinity in X, and for fewer distinct rows than ``n_clusters``.

    Notes
    -----
    *Passes*: ``n_clusters + 1``.  *To the client*: a row a worker thread and pass.

    References
    ----------
    .. [1] Kulis, B., Jordan, M. (2012). Revisiting k-means: new algorithms via
       Bayesian nonparametrics. ICML.

    Examples
    --------
    >>> import numpy as np
    >>> suggest_delta(np.array([[0.0], [1.0], [10.0], [11.0]]), 2)  # mean, 0, then 11
    30.25
    """
    check_integer(n_clusters, "n_clusters", 1)
    X = check_rows(BaseEstimator(), X, reset=True)
    rows = open_rows(X, check_weight(sample_weight, X))
    survey = rows.reduce(SURVEY, SurveyRequest(rows.n_features))
    check_values(survey)
    delta = farthest_first_delta(rows, survey.mean, int(n_clusters))
    if delta <= 0:
        raise ValueError(
            f"X has fewer distinct rows than n_clusters={n_clusters}, so no positive delta gives "
            "so many clusters. Ask for fewer."
        )
    return delta
