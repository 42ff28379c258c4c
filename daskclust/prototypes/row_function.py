"""What becomes of a block's rows in a fitted model on prototypes; travels to the workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskclust._types import Array, Floats
from daskclust.engine import as_matrix
from daskclust.estimator.values import check_block
from daskclust.kernels.nearest.several import nearest_several
from daskclust.prototypes.references import near_weights

__all__ = ["RowFunction", "near_values"]


@dataclass(frozen=True)
class RowFunction:
    """A function of rows that checks their values first.

    Parameters
    ----------
    function : callable(x) -> ndarray
    dtype : numpy.dtype
        In which rows are taken.
    gaps : bool
        Whether rows may miss values.
    """

    function: Callable[[Array], Array]
    dtype: np.dtype[Any]
    gaps: bool = False

    def __call__(self, x: Array, start: int) -> Array:
        """Apply the function to a block whose first row has this number.

        Raises
        ------
        ValueError
            For infinity, and for NaN unless rows may miss values.
        """
        x = as_matrix(x, self.dtype)
        check_block(x, start, missing=self.gaps)
        return self.function(x)


def near_values(z: Floats, nodes: Floats, values: Floats, n_neighbors: int) -> Floats:
    """Return what rows are given by their nearest nodes, the nearer ones weighing more.

    Parameters
    ----------
    z : ndarray of shape (n, q)
    nodes : ndarray of shape (k, q)
    values : ndarray of shape (k, c)
        Of the nodes.
    n_neighbors : int

    Returns
    -------
    ndarray of shape (n, c)

    Examples
    --------
    >>> nodes = np.array([[0.0], [1.0], [4.0]])
    >>> near_values(np.array([[0.5], [4.0]]), nodes, np.array([[0.0], [1.0], [9.0]]), 1)
    array([[0.],
           [9.]])
    """
    count = min(n_neighbors + 1, len(nodes))
    indices, distances = nearest_several(z, nodes, count)
    if count == 1:
        return values[indices[:, 0]]
    weights = near_weights(distances)
    found: Floats = np.einsum("im,imc->ic", weights, values[indices[:, :-1]])
    return found
