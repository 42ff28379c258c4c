"""Rows of the data that are nodes themselves, beside the prototypes."""

from __future__ import annotations

import numpy as np

from daskclust._types import Array, Floats, Ints
from daskclust.engine import Rows

__all__ = ["RowNodes", "take_rows"]


class RowNodes:
    """Different rows that become nodes, in an order of their values.

    Parameters
    ----------
    x : ndarray of shape (m, p)
    weight : ndarray of shape (m,)
        Positive.

    Attributes
    ----------
    x : ndarray of shape (k, p)
        Each once.
    node : ndarray of shape (m,), int
        Node of each row.
    weight : ndarray of shape (k,)
    """

    def __init__(self, x: Array, weight: Floats) -> None:
        if len(x):
            # What is missing comes first: NaN is in no order.
            keys = np.where(np.isnan(x), -np.inf, x)
            _, first, self.node = np.unique(keys, axis=0, return_index=True, return_inverse=True)
            self.x, self.node = x[first], self.node.ravel()
        else:
            self.x, self.node = x, np.empty(0, np.intp)
        sums = np.bincount(self.node, weights=weight, minlength=len(self.x))
        self.weight: Floats = sums.astype(np.float64)

    def sums(self, values: Floats) -> Floats:
        """Add the values of equal rows: (m, c) to (k, c)."""
        out = np.zeros((len(self.x), values.shape[1]))
        np.add.at(out, self.node, values)
        return out


def take_rows(rows: Rows, numbers: Ints) -> tuple[Array, Floats]:
    """Fetch rows by (sorted, unique) number; no pass where there are none."""
    if not len(numbers):
        return np.empty((0, rows.n_features), rows.dtype), np.empty(0)
    x, weight = rows.take(numbers)
    # A row without any value is nowhere.
    return x, np.where(np.isnan(x).all(axis=1), 0.0, weight)
