"""How much the kernel ridge counts beside the spreading, by leaving out each label once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from daskclust.prototypes.posterior import shares

__all__ = ["RIDGE_SHARE", "balanced_loss", "ridge_share", "spread_left_out"]

Float = NDArray[np.float64]

#: Weight of the ridge where nothing speaks for either, and its bounds: few labels do not
#: suffice to choose one of the two (tried, and worse), only to lean to it.
RIDGE_SHARE, _LEAST, _MOST = 0.7, 0.35, 1.2
#: How much of a probability is left to doubt.
_DOUBT = 0.02
#: Exponents beyond which a weight is at its bound anyway.
_FAR = 20.0


def spread_left_out(travelled: Float, seeds: Float) -> Float:
    """Shares of the classes at each labeled node, by the labels of the other nodes.

    Parameters
    ----------
    travelled : ndarray of shape (m, m)
        What reaches node i of a label at node j.
    seeds : ndarray of shape (m, c)
        Weights of the labels.

    Examples
    --------
    >>> spread_left_out(np.array([[1.0, 0.5], [0.5, 1.0]]), np.eye(2))
    array([[0., 1.],
           [1., 0.]])
    """
    others = travelled - np.diag(np.diag(travelled))
    rest = seeds.sum(axis=0) - seeds
    reached = others @ seeds
    # Without the node itself, its class has fewer labels to be shared by.
    return shares(np.divide(reached, rest, out=np.zeros_like(reached), where=rest > 0))


def balanced_loss(found: Float, seeds: Float) -> float:
    """Mean log loss over the classes; classes of a single label do not count.

    Parameters
    ----------
    found : ndarray of shape (m, c)
        Shares of the classes, without the node itself.
    seeds : ndarray of shape (m, c)
        Weights of the labels.

    Examples
    --------
    >>> round(balanced_loss(np.full((4, 2), 0.5), np.eye(2)[[0, 0, 1, 1]]), 4)
    0.6931
    """
    totals = seeds.sum(axis=0)
    counted = np.where(seeds < totals, seeds / np.maximum(totals, 1e-300), 0.0)
    if not counted.any():
        return 0.0
    sure = (1 - _DOUBT) * found + _DOUBT / seeds.shape[1]
    return float(-(counted * np.log(sure)).sum() / counted.sum())


def ridge_share(spread_loss: float, ridge_loss: float, n_labels: int) -> float:
    """Return the weight of the ridge beside the spreading, whose weight is 1.

    Examples
    --------
    >>> ridge_share(0.5, 0.5, 100), ridge_share(0.2, 0.9, 100), ridge_share(0.9, 0.2, 100)
    (0.7, 0.35, 1.2)
    """
    lean = np.clip(np.sqrt(n_labels) * (spread_loss - ridge_loss), -_FAR, _FAR)
    # Rounded: the last bits of a loss must not show.
    return round(float(np.clip(RIDGE_SHARE * np.exp(lean), _LEAST, _MOST)), 6)
