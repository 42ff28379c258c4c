"""Which nodes to ask about next: pure functions on a few hundred nodes."""

from __future__ import annotations

import numpy as np

from daskclust._types import Floats, Ints

__all__ = ["spread_out", "squared_gaps"]


#: Digits by which nodes are compared: sums in another order must not decide.
_DIGITS = 12


def squared_gaps(points: Floats, others: Floats) -> Floats:
    """Squared distance of each point to the nearest of others; infinity without any.

    Parameters
    ----------
    points : ndarray of shape (k, q)
    others : ndarray of shape (m, q)

    Examples
    --------
    >>> squared_gaps(np.array([[0.0], [4.0]]), np.array([[1.0], [2.0]]))
    array([1., 4.])
    """
    found = np.full(len(points), np.inf)
    for other in others:
        np.minimum(found, ((points - other) ** 2).sum(axis=1), out=found)
    return found


def spread_out(points: Floats, mass: Floats, known: Floats, count: int) -> Ints:
    """Choose heavy points far from those that are known and from each other.

    Farthest-first with weights: the next point is the one whose mass times distance to the
    nearest known or chosen one is the largest.  (By squared distances outliers come first.)

    Parameters
    ----------
    points : ndarray of shape (k, q)
    mass : ndarray of shape (k,)
        Points of mass 0 are not chosen.
    known : ndarray of shape (m, q)
    count : int

    Returns
    -------
    ndarray of int64
        At most ``count`` points, in the order of their choice.  Without known points the
        heaviest one is the first; ties go to the lowest number.  Points on known or chosen
        ones come last, the heaviest first.

    Notes
    -----
    Cost O((m + count) k q).

    Examples
    --------
    >>> line = np.array([[0.0], [1.0], [5.0], [6.0]])
    >>> spread_out(line, np.array([3.0, 1.0, 1.0, 1.0]), np.empty((0, 1)), 3).tolist()
    [0, 3, 1]
    >>> spread_out(line, np.ones(4), np.array([[6.0]]), 1).tolist()
    [0]
    """
    left = np.asarray(mass, dtype=np.float64).copy()
    gaps = squared_gaps(points, known)
    chosen: list[int] = []
    while len(chosen) < count and (left > 0).any():
        scores = left if np.isinf(gaps).all() else left * np.sqrt(gaps)
        if not (scores > 0).any():
            scores = left
        # Relative to the largest: equal scores differ in their last bits.
        best = int(np.argmax(np.round(scores / scores.max(), _DIGITS)))
        chosen.append(best)
        left[best] = 0.0
        gaps = np.minimum(gaps, ((points - points[best]) ** 2).sum(axis=1))
    return np.array(chosen, dtype=np.int64)
