"""Point clouds with known clusters: the simulations of two papers, for any size."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from daskclust.core.array_types import Floats, Ints
from daskclust.datasets._random import (
    check_finite,
    make_rows,
    positive,
    row_normals,
    row_uniforms,
    seed_of,
    stream,
)

_CENTERS, _LABELS, _NOISE = 0, 1, 2


def _balanced_labels(seed: int, start: int, stop: int, k: int) -> Ints:
    """Return labels of rows start .. stop; each run of k rows contains every label once."""
    first, last = start // k, -(-stop // k)
    order = np.argsort(row_uniforms(seed, _LABELS, first, last - first, k), axis=1)
    return order.ravel()[start - first * k : stop - first * k].astype(np.int64)


def _gaussian_rows(
    start: int, stop: int, *, seed: int, centers: Floats, spread: Floats
) -> tuple[Floats, Ints]:
    k, p = centers.shape
    y = _balanced_labels(seed, start, stop, k)
    X = row_normals(seed, _NOISE, start, stop - start, p)
    X *= spread
    X += centers[y]
    return X, y


def make_gaussian_mixture(
    n_samples: int = 2400,
    n_components: int = 24,
    n_features: int = 15,
    side: float = 10.0,
    *,
    cluster_std: float = 1.0,
    chunks: int | tuple[int, ...] | None = None,
    random_state: Any = None,
) -> tuple[Any, Any]:
    """Draw spherical Gaussian clusters whose centers are uniform in a hypercube.

    Use it to test k-means with many clusters.

    This is the simulation of the ss-k-means++ paper [1]_, with its defaults: centers uniform in
    ``[0, side] ** n_features``, unit covariance, 100 points per cluster.

    Parameters
    ----------
    n_samples : int, default=2400
        Number of rows.  Cluster sizes differ by at most one.
    n_components : int, default=24
        Number of clusters.
    n_features : int, default=15
        Number of features.
    side : float, default=10.0
        Edge length of the hypercube.  The smaller it is, the more clusters overlap.
    cluster_std : float, default=1.0
        Standard deviation of each cluster in every direction.
    chunks : int or tuple of int, default=None
        Rows per Dask block; None gives NumPy arrays.  The values do not depend on chunks.
    random_state : None, int, Generator or RandomState, default=None
        An integer gives the same data every time.

    Returns
    -------
    X : ndarray or dask.array.Array of shape (n_samples, n_features), float64
        Rows.
    y : ndarray or dask.array.Array of shape (n_samples,), int64
        Cluster of each row, in random order.

    Notes
    -----
    Cost: O(n p) time; about 30 bytes of temporary memory per value of a block.

    References
    ----------
    .. [1] J. Yoder and C. E. Priebe, "Semi-supervised k-means++", Journal of
       Statistical Computation and Simulation, section on numerical experiments.

    Examples
    --------
    >>> X, y = make_gaussian_mixture(random_state=0)
    >>> X.shape, np.bincount(y).tolist() == [100] * 24
    ((2400, 15), True)
    >>> lazy, _ = make_gaussian_mixture(2400, chunks=1000, random_state=0)
    >>> lazy.chunks[0], bool((lazy.compute() == X).all())
    ((1000, 1000, 400), True)
    """
    n_samples = positive("n_samples", n_samples)
    shape = positive("n_components", n_components), positive("n_features", n_features)
    check_finite(side=side, cluster_std=cluster_std)
    seed = seed_of(random_state)
    centers = stream(seed, _CENTERS).uniform(0.0, side, shape)
    spread = np.full(shape[1], float(cluster_std))
    maker = partial(_gaussian_rows, seed=seed, centers=centers, spread=spread)
    return make_rows(maker, n_samples, shape[1], chunks)


def make_sparse_blobs(
    n_samples: int = 120,
    n_informative: int = 5,
    n_uninformative: int = 5,
    n_clusters: int = 3,
    *,
    cluster_std: float = 1.0,
    uninformative_std: float = 1.0,
    low: float = 3.0,
    high: float = 6.0,
    chunks: int | tuple[int, ...] | None = None,
    random_state: Any = None,
) -> tuple[Any, Any]:
    """Draw Gaussian clusters that differ in the first features only.

    Use it to test the selection of features.

    This is the simulation of Brodinova et al. [1]_, without outliers, as used by the PCSKM paper
    [2]_: 120 points, 10 features (5 + 5 or 3 + 7), 3 clusters.  The cluster means of each
    informative feature are in ``[-high, -low]`` or ``[low, high]``.  Uninformative features are the
    same noise for all clusters.  (In the original, informative features are correlated; here they
    are independent.)

    Parameters
    ----------
    n_samples : int, default=120
        Number of rows.  Cluster sizes differ by at most one.
    n_informative, n_uninformative : int, default=5
        Number of features of each kind; the informative features come first.
    n_clusters : int, default=3
        Number of clusters.
    cluster_std, uninformative_std : float, default=1.0
        Standard deviation of the informative (within a cluster) and of the
        uninformative features.
    low, high : float, default=3.0, 6.0
        Range of the absolute value of the cluster means.
    chunks : int or tuple of int, default=None
        Rows per Dask block; None gives NumPy arrays.  The values do not depend on chunks.
    random_state : None, int, Generator or RandomState, default=None
        An integer gives the same data every time.

    Returns
    -------
    X : ndarray or dask.array.Array of shape (n_samples, n_informative + n_uninformative), float64
        Rows.
    y : ndarray or dask.array.Array of shape (n_samples,), int64
        Cluster of each row.

    Notes
    -----
    If ``2 ** n_informative >= n_clusters``, the means of different clusters have different signs.

    References
    ----------
    .. [1] S. Brodinova, P. Filzmoser, T. Ortner, C. Breiteneder and M. Rohm,
       "Robust and sparse k-means clustering for high-dimensional data", Advances
       in Data Analysis and Classification, 2017.
    .. [2] A. Vouros and E. Vasilaki, "A semi-supervised sparse K-Means algorithm".

    Examples
    --------
    >>> X, y = make_sparse_blobs(120, 3, 7, random_state=0)
    >>> X.shape, np.bincount(y).tolist()
    ((120, 10), [40, 40, 40])
    """
    n_samples = positive("n_samples", n_samples)
    informative = positive("n_informative", n_informative)
    p = informative + positive("n_uninformative", n_uninformative, minimum=0)
    k = positive("n_clusters", n_clusters)
    check_finite(cluster_std=cluster_std, uninformative_std=uninformative_std, low=low, high=high)
    if high < low:
        raise ValueError(f"high must be at least low={low!r}, got {high!r}.")
    seed = seed_of(random_state)
    rng = stream(seed, _CENTERS)
    centers = np.zeros((k, p))
    centers[:, :informative] = rng.uniform(low, high, (k, informative))
    centers[:, :informative] *= _sign_patterns(rng, k, informative)
    spread = np.full(p, float(uninformative_std))
    spread[:informative] = cluster_std
    maker = partial(_gaussian_rows, seed=seed, centers=centers, spread=spread)
    return make_rows(maker, n_samples, p, chunks)


def _sign_patterns(rng: np.random.Generator, k: int, width: int) -> Floats:
    """Return (k, width) of -1 and 1; rows are distinct if there are enough patterns."""
    # With more than 30 features, 2 ** width does not fit an integer draw, and random patterns
    # practically never repeat.
    if width > 30 or 2**width < k:
        return rng.choice([-1.0, 1.0], (k, width))
    codes = rng.choice(2**width, size=k, replace=False, shuffle=True)
    return np.where(codes[:, None] >> np.arange(width) & 1, 1.0, -1.0)
