"""What bounds are made of: where centers were, and what is kept of rows.

Imports NumPy only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["LARGEST", "NEAR", "Past", "RowState"]

#: Near centers that are kept of a row.
NEAR = 8
#: Distances beyond are not told apart: bounds must not round up to infinity.
LARGEST = 1e37


class Past(NamedTuple):
    """Where the centers were, as far as bounds need it.

    Attributes
    ----------
    first : int
        Number of the oldest pass that is known; the newest is the one before this.
    moved : ndarray of shape (G, k), float32
        How far each center is now from where it was in each of these passes, rounded up.
    movers : ndarray of shape (G, T), int32
        The centers that have moved farthest since then, farthest first.
    """

    first: int
    moved: NDArray[np.float32]
    movers: NDArray[np.int32]


class RowState(NamedTuple):
    """What is kept of n rows; a cache that may be lost.

    Attributes
    ----------
    label : ndarray of shape (n,), int32
        Nearest center in the newest pass.
    upper : ndarray of shape (n,), float32
        Distance to it then, rounded up.
    scored : ndarray of shape (n,), int32
        Number of the pass in which the row was scored against all centers; -1 for none.
    near : ndarray of shape (n, m), int32
        The nearest centers then, -1 where there are fewer.
    near_low : ndarray of shape (n, m), float32
        Distances to them then, rounded down.
    rest_low : ndarray of shape (n,), float32
        No other center was nearer than this.
    """

    label: NDArray[np.int32]
    upper: NDArray[np.float32]
    scored: NDArray[np.int32]
    near: NDArray[np.int32]
    near_low: NDArray[np.float32]
    rest_low: NDArray[np.float32]

    def part(self, at: slice) -> RowState:
        """Return the state of some rows, where it lies."""
        return RowState._make(array[at] for array in self)
