"""Starting centers that the user gives: an array, or a callable that makes one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust.estimator.parameters import check_init_array

__all__ = ["check_given_centers", "given_centers"]


def check_given_centers(init: Any, n_clusters: int, n_features: int) -> None:
    """Check an array of centers before any pass; named and callable starts pass.

    Raises
    ------
    ValueError
        For another shape, NaN and infinity.
    """
    if not (isinstance(init, str) or callable(init)):
        check_init_array(init, n_clusters, n_features)


def given_centers(
    init: Any, X: Any, n_clusters: int, n_features: int, seeds: tuple[int, ...]
) -> NDArray[np.float64]:
    """Return the starting centers of all restarts.

    Parameters
    ----------
    init : array-like of shape (k, p) or callable(X, n_clusters, random_state)
        A callable is called for each seed; an array is the start of the only restart.
    X : ndarray or dask.array.Array of shape (n, p)
        What a callable is given.
    n_clusters, n_features : int
    seeds : tuple of int

    Returns
    -------
    ndarray of shape (r, k, p), float64
    """
    found = [init]
    if callable(init):
        found = [init(X, n_clusters, np.random.RandomState(seed % 2**32)) for seed in seeds]
    return np.stack([check_init_array(centers, n_clusters, n_features) for centers in found])
