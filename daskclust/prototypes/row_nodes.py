"""Rows of the data that are nodes themselves, beside the prototypes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust.engine import Rows

__all__ = ["RowNodes", "take_rows"]

Float = NDArray[np.float64]


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

    def __init__(self, x: NDArray[Any], weight: Float) -> None:
        if len(x):
            self.x, self.node = np.unique(x, axis=0, return_inverse=True)
            self.node = self.node.ravel()
        else:
            self.x, self.node = x, np.empty(0, np.intp)
        sums = np.bincount(self.node, weights=weight, minlength=len(self.x))
        self.weight: Float = sums.astype(np.float64)

    def sums(self, values: Float) -> Float:
        """Add the values of equal rows: (m, c) to (k, c)."""
        out = np.zeros((len(self.x), values.shape[1]))
        np.add.at(out, self.node, values)
        return out


def take_rows(rows: Rows, numbers: NDArray[np.int64]) -> tuple[NDArray[Any], Float]:
    """Fetch rows by (sorted, unique) number; no pass where there are none."""
    if not len(numbers):
        return np.empty((0, rows.n_features), rows.dtype), np.empty(0)
    return rows.take(numbers)
