"""Kernel ridge regression on the labeled rows; width and ridge by leave-one-out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh

from daskclust._types import Array, Floats

__all__ = ["KernelRidge", "fit_ridge", "squared_distances"]


#: Squared widths, as multiples of the median squared distance, and ridges that are tried.
_WIDTHS = 2.0 ** np.arange(-5, 3)
_RIDGES = 10.0 ** np.arange(-4, 2)
#: Errors that differ by less, relatively, are the same: the first pair counts.
_RELATIVE_GAIN = 1e-9


def squared_distances(a: Array, b: Array) -> Floats:
    """Squared distances of all rows of a to all rows of b, by a matrix product.

    Examples
    --------
    >>> squared_distances(np.array([[0.0], [3.0]]), np.array([[1.0]]))
    array([[1.],
           [4.]])
    """
    gaps = (a * a).sum(axis=1)[:, None] - 2.0 * (a @ b.T) + (b * b).sum(axis=1)
    found: Floats = np.maximum(gaps, 0.0)
    return found


@dataclass(frozen=True)
class KernelRidge:
    """Scores of classes as sums of Gaussian bumps.

    Parameters
    ----------
    points : ndarray of shape (m, q)
    width : float
        The bump of a point is ``exp(-d^2 / width)``.
    weights : ndarray of shape (m, c)
    """

    points: Floats
    width: float
    weights: Floats

    def __call__(self, z: Floats) -> Floats:
        """Scores of rows, in [0, 1]: near 0 for all classes far from every labeled row."""
        bumps = squared_distances(z, self.points)
        bumps /= -self.width
        scores: Floats = np.exp(bumps, out=bumps) @ self.weights
        return np.clip(scores, 0.0, 1.0, out=scores)


def fit_ridge(points: Floats, targets: Floats, weight: Floats) -> tuple[KernelRidge, Floats]:
    """Fit scores to labeled points.

    Parameters
    ----------
    points : ndarray of shape (m, q)
        Different from each other.
    targets : ndarray of shape (m, c)
        Shares of the classes.
    weight : ndarray of shape (m,)
        Of the points; positive.

    Returns
    -------
    ridge : KernelRidge
    left_out : ndarray of shape (m, c)
        Scores of each point when it is left out, in [0, 1].

    Notes
    -----
    The squared error on each point left out is known in closed form from one
    decomposition a width; the pair of width and ridge of least error is taken.  Cost
    O(m^3), with 8 widths.
    """
    root = np.sqrt(weight / weight.mean())[:, None]
    distances = squared_distances(points, points)
    apart = distances[np.triu_indices(len(points), 1)]
    apart = apart[apart > 0]
    unit = float(np.median(apart)) if len(apart) else 1.0
    best: tuple[float, float, Floats, Floats] | None = None
    for factor in _WIDTHS:
        values, vectors = eigh(root * np.exp(-distances / (factor * unit)) * root.T)
        turned, squares = vectors.T @ (root * targets), vectors**2
        for ridge in _RIDGES:
            inverse = 1.0 / (np.maximum(values, 0.0) + ridge)
            solved = vectors @ (inverse[:, None] * turned)
            left_out = solved / (squares @ inverse)[:, None]
            error = float((left_out**2).mean())
            if best is None or error < best[0] * (1 - _RELATIVE_GAIN):
                best = error, factor * unit, root * solved, left_out
    assert best is not None
    _, width, weights, left_out = best
    return KernelRidge(points, width, weights), np.clip(targets - left_out / root, 0.0, 1.0)
