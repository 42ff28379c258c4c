"""What answers would change, before they are given: a Gaussian field on the graph of cells."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from daskclust._types import Floats, Ints

__all__ = ["Foresight", "foresee", "influence"]


#: How far an answer travels, as labels do, and how much one row may differ from its cell, as a
#: share of the mean variance.
_ALPHA, _NOISE = 0.9, 0.25


class Foresight(NamedTuple):
    """Shares of all rows after each answer, one draw of answers a line.

    Attributes
    ----------
    changed : ndarray of shape (draws, n)
        Of rows with another class than now.
    gain : ndarray of shape (draws, n)
        Growth of the mean probability of the best class.
    """

    changed: Floats
    gain: Floats


def influence(graph: Floats, known: Ints, asked: Ints, noise: float = _NOISE) -> Floats:
    """How much each cell follows the answer at each asked cell.

    The field has the covariance ``(I - alpha S)^(-1)``, as label spreading has; it is
    conditioned on the known cells, then on one asked cell after another.

    Parameters
    ----------
    graph : ndarray of shape (k, k)
        Normalized, symmetric.
    known, asked : ndarray of int
        Cells.
    noise : float
        Variance of an answer, in units of the mean variance.

    Returns
    -------
    ndarray of shape (len(asked), k)
        By how much of the surprise at the asked cell each cell moves.

    Notes
    -----
    Cost O(k^3 + (len(known) + len(asked)) k^2).

    Examples
    --------
    >>> influence(np.zeros((2, 2)), np.array([], int), np.array([0, 0]), noise=1.0)
    array([[0.5       , 0.        ],
           [0.33333333, 0.        ]])
    """
    k = len(graph)
    covariance = np.linalg.inv(np.eye(k) - _ALPHA * graph)
    spare = noise * float(np.trace(covariance)) / k
    steps = []
    for cell in (*np.unique(known), *asked):
        column = covariance[:, cell].copy()
        step = column / (column[cell] + spare)
        covariance -= np.outer(step, column)
        steps.append(step)
    return np.array(steps[len(np.unique(known)) :]).reshape(len(asked), k)


def foresee(
    shares: Floats, mass: Floats, asked: Ints, moves: Floats, draws: int, seed: int
) -> Foresight:
    """Draw answers as the model believes in them, and let them travel.

    Parameters
    ----------
    shares : ndarray of shape (k, c)
        Probabilities of the classes in each cell.
    mass : ndarray of shape (k,)
        Rows of each cell.
    asked : ndarray of shape (n,), int
        Cells, in order.
    moves : ndarray of shape (n, k)
        Of :func:`influence`.
    draws, seed : int

    Notes
    -----
    Cost O(draws n k c).

    Examples
    --------
    >>> sure = foresee(np.array([[1.0, 0.0]]), np.ones(1), np.zeros(1, int), np.ones((1, 1)), 3, 0)
    >>> float(sure.changed.max()), float(sure.gain.max())
    (0.0, 0.0)
    """
    rng = np.random.default_rng(seed)
    part = mass / mass.sum()
    now, before = shares.argmax(axis=1), float(part @ shares.max(axis=1))
    changed, gain = np.empty((2, draws, len(asked)))
    for d in range(draws):
        field = shares.copy()
        for j, (cell, move) in enumerate(zip(asked, moves, strict=True)):
            believed = np.clip(field[cell], 0.0, None)
            answer = np.zeros(shares.shape[1])
            limit = rng.random() * believed.sum()
            answer[
                np.searchsorted(np.cumsum(believed), limit, side="right").clip(0, len(answer) - 1)
            ] = 1
            field += move[:, None] * (answer - field[cell])
            changed[d, j] = part[field.argmax(axis=1) != now].sum()
            gain[d, j] = part @ np.clip(field.max(axis=1), 0.0, 1.0) - before
    return Foresight(changed, gain)
