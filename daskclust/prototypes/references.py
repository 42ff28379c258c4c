"""Many labeled rows as a classifier of their own: nearest neighbors, searched by cells."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Floats, Ints
from daskclust.kernels.nearest.in_cells import nearest_in_cells
from daskclust.kernels.nearest.several import nearest_several

__all__ = ["References", "best_share", "near_weights"]


#: Labeled neighbors that vote, and cells in which they are looked for.
_VOTERS, _CELLS = 5, 8
#: Shares that are tried, and how much of a probability is left to doubt.
_SHARES = np.linspace(0.0, 1.0, 11)
_DOUBT = 0.02


def near_weights(distances: Floats) -> Floats:
    """Weights of all neighbors but the last, which they are measured by.

    ``1 - d_j^2 / d_m^2``, scaled to a sum of 1: a neighbor's weight fades to 0 where the
    next one takes its place, so that nothing jumps.

    Parameters
    ----------
    distances : ndarray of shape (n, m + 1), float64
        Squared, ascending.

    Returns
    -------
    ndarray of shape (n, m)

    Examples
    --------
    >>> near_weights(np.array([[0.0, 1.0, 2.0], [0.0, 0.0, 0.0]]))
    array([[0.66666667, 0.33333333],
           [0.5       , 0.5       ]])
    """
    present = np.isfinite(distances)
    # Where there is no next one, the last there is; it counts for nothing then.
    last = np.where(present, distances, 0.0).max(axis=1, keepdims=True, initial=0.0)
    near, present = np.where(present, distances, 0.0)[:, :-1], present[:, :-1]
    share = np.divide(near, last, out=np.zeros_like(near), where=last > 0)
    weights = np.where(present, 1.0 - share, 0.0)
    weights = np.where(weights.sum(axis=1, keepdims=True) > 0, weights, present)
    total = weights.sum(axis=1, keepdims=True)
    return np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)


@dataclass(frozen=True)
class References:
    """Labeled points, sorted by their nearest prototype.

    Parameters
    ----------
    points : ndarray of shape (m, q), float64
    starts : ndarray of shape (prototypes + 1,), int64
    shares : ndarray of shape (m, c), float64
        Shares of the classes.
    order : ndarray of shape (m,), int
        Number of each point before they were sorted.
    """

    points: Floats
    starts: Ints
    shares: Floats
    order: NDArray[np.intp]

    @classmethod
    def build(cls, points: Floats, shares: Floats, prototypes: Floats) -> References:
        """Sort points by cell."""
        cell = nearest_several(points, prototypes, 1)[0][:, 0]
        order = np.argsort(cell, kind="stable")
        starts = np.searchsorted(cell[order], np.arange(len(prototypes) + 1)).astype(np.int64)
        return cls(points[order], starts, shares[order], order)

    def unsorted(self) -> tuple[Floats, Floats]:
        """Return points and shares as they were given to :meth:`build`."""
        place = np.argsort(self.order)
        return self.points[place], self.shares[place]

    def posterior(self, z: Floats, prototypes: Floats, own: Ints | None = None) -> Floats:
        """Shares of the classes among the nearest labeled points of each row.

        Rows without labeled points in the cells around them get zeros.

        Parameters
        ----------
        z : ndarray of shape (n, q)
        prototypes : ndarray of shape (k, q)
        own : ndarray of shape (n,), int64, optional
            The point that a row itself is, which does not vote.
        """
        cells, _ = nearest_several(z, prototypes, min(_CELLS, len(prototypes)))
        indices, distances = nearest_in_cells(z, self.points, self.starts, cells, _VOTERS + 1, own)
        weights = near_weights(distances)
        votes: Floats = np.einsum("im,imc->ic", weights, self.shares[indices[:, :-1]])
        return votes


def best_share(graph: Floats, neighbors: Floats, classes: Floats) -> float:
    """Return the share of the nearest neighbors that makes known classes the most likely.

    Parameters
    ----------
    graph, neighbors : ndarray of shape (m, c)
        Probabilities of two classifiers, for rows that neither has seen.
    classes : ndarray of shape (m, c)
        Shares of the classes, known.

    Examples
    --------
    >>> right, wrong = np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])
    >>> best_share(wrong, right, right), best_share(right, wrong, right)
    (1.0, 0.0)
    """
    even = _DOUBT / classes.shape[1]
    losses = []
    for share in _SHARES:
        mixed = (1 - share) * graph + share * neighbors
        losses.append(-(classes * np.log((1 - _DOUBT) * mixed + even)).sum())
    return float(_SHARES[int(np.argmin(np.round(losses, 9)))])
