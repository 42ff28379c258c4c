"""How spreading and kernel ridge are joined, by leaving out each label once.

Either may be too timid or too sure of itself, so each is first raised to the power that
makes the labels left out the most likely; then the one that has foretold them better
weighs more.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from daskclust._types import Floats
from daskclust.prototypes.posterior import LEAST, MOST, Balance, shares, sharpened

__all__ = ["balance", "balanced_loss", "best_power", "ridge_share", "spread_left_out", "weighed"]


#: Weight of the ridge where nothing speaks for either.
_EVEN = 0.7
#: Share of the mean number of labels, below which a class counts for less than others.
_RARE = 0.5
#: Powers that are tried.
_POWERS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
#: Digits of a loss: its last bits must not show.
_DIGITS = 9
#: How much of a probability is left to doubt.
_DOUBT = 0.02
#: Exponents beyond which a weight is at its bound anyway.
_FAR = 20.0


def weighed(given: Floats, totals: Floats) -> Floats:
    """Return what labels give, so that classes count alike, but very rare ones less.

    A class with less than half the mean number of labels counts in proportion to them: else
    its one label would outweigh the many beside it.

    Parameters
    ----------
    given : ndarray of shape (k, c)
    totals : ndarray of shape (c,) or (k, c)
        Weight of the labels of each class.

    Examples
    --------
    >>> weighed(np.array([[4.0, 3.0]]), np.array([4.0, 3.0]))
    array([[1., 1.]])
    >>> weighed(np.array([[19.0, 1.0]]), np.array([19.0, 1.0]))
    array([[1. , 0.2]])
    """
    mean = totals.mean(axis=-1, keepdims=True)
    least = np.maximum(totals, _RARE * mean)
    return np.divide(given, least, out=np.zeros_like(given), where=totals > 0)


def spread_left_out(travelled: Floats, seeds: Floats) -> Floats:
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
    # Without the node itself, its class has fewer labels to be shared by.
    return shares(weighed(others @ seeds, rest))


def balanced_loss(found: Floats, seeds: Floats) -> float:
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
    return round(float(np.clip(_EVEN * np.exp(lean), LEAST, MOST)), 6)


def best_power(left_out: Sequence[Floats], seeds: Floats) -> tuple[float, float]:
    """Return the power of shares that makes labels the most likely, and its loss.

    Parameters
    ----------
    left_out : sequence of ndarray of shape (m, c)
        Shares of the classes of each label by the others, in each view.
    seeds : ndarray of shape (m, c)

    Examples
    --------
    >>> timid = np.array([[0.6, 0.4], [0.6, 0.4], [0.4, 0.6], [0.4, 0.6]])
    >>> best_power([timid], np.eye(2)[[0, 0, 1, 1]])[0]
    6.0
    >>> best_power([timid], np.eye(2)[[0, 1, 0, 1]])[0]
    1.0
    """
    losses = [
        np.mean([balanced_loss(sharpened(own, power), seeds) for own in left_out])
        for power in _POWERS
    ]
    best = int(np.argmin(np.round(losses, _DIGITS)))
    return _POWERS[best], float(losses[best])


def balance(spread: Sequence[Floats], ridge: Sequence[Floats], seeds: Floats) -> Balance:
    """Decide how spreading and ridge are joined.

    Parameters
    ----------
    spread, ridge : sequence of ndarray of shape (m, c)
        Shares of the classes of each label by the others, in each view.
    seeds : ndarray of shape (m, c)
    """
    spread_power, by_spread = best_power(spread, seeds)
    ridge_power, by_ridge = best_power(ridge, seeds)
    share = ridge_share(by_spread, by_ridge, len(seeds))
    return Balance(share, spread_power, ridge_power)
