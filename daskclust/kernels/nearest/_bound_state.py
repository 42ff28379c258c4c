"""What bounds are made of: where centers were, and what is kept of rows.

Imports NumPy only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Floats

__all__ = ["KNOWN", "LARGEST", "MIXED", "NEAR", "UNKNOWN", "CellState", "Past", "RowState"]

#: Near centers that are kept of a row.
NEAR = 8
#: Distances beyond are not told apart: bounds must not round up to infinity.
LARGEST = 1e37
#: Sums of a segment by cluster.
UNKNOWN, KNOWN, MIXED = range(3)


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
    renewed : int
        Bounds of passes before this one, counted from the oldest, are renewed where rows are
        looked at: so they are before what is known of the past ends.
    """

    first: int
    moved: NDArray[np.float32]
    movers: NDArray[np.int32]
    renewed: int = 0


class RowState(NamedTuple):
    """What is kept of n rows; a cache that may be lost.

    Each bound is of a pass, -1 for none, and is lowered by what the centers have moved since.

    Attributes
    ----------
    label : ndarray of shape (n,), int32
        Nearest center in the newest pass.
    upper, lower : ndarray of shape (n,), float32
        Distance to it, rounded up, and to the next center, rounded down.
    decided : ndarray of shape (n,), int32
        Number of the pass of ``upper`` and ``lower``.
    near : ndarray of shape (n, m), int32
        The nearest centers when the row was scored, 0 where there are fewer.
    near_low : ndarray of shape (n, m), float32
        Distances to them, rounded down.
    measured : ndarray of shape (n,), int32
        Number of the pass of ``near_low``.
    rest_low : ndarray of shape (n,), float32
        No other center is nearer than this.
    scored : ndarray of shape (n,), int32
        Number of the pass of ``rest_low``.
    """

    label: NDArray[np.int32]
    upper: NDArray[np.float32]
    lower: NDArray[np.float32]
    decided: NDArray[np.int32]
    near: NDArray[np.int32]
    near_low: NDArray[np.float32]
    measured: NDArray[np.int32]
    rest_low: NDArray[np.float32]
    scored: NDArray[np.int32]

    def part(self, at: slice) -> RowState:
        """Return the state of some rows, where it lies."""
        return RowState._make(array[at] for array in self)


class CellState(NamedTuple):
    """Sums of the rows of each segment by cluster: those without a change need not be read.

    Attributes
    ----------
    sums : ndarray of shape (s * k, p), float64
        Of segment i and cluster c in row ``i * k + c``.
    weights : ndarray of shape (s, k), float64
        Weights of these rows.
    state : ndarray of shape (s,), int8
        Whether sums are known: :data:`UNKNOWN`, :data:`KNOWN`, or :data:`MIXED` if rows were
        taken to the wrong cluster first, which leaves a trace of rounding.
    """

    sums: Floats
    weights: Floats
    state: NDArray[np.int8]

    def part(self, at: slice) -> CellState:
        """Return the cells of some segments, where they lie."""
        k = self.weights.shape[1]
        return CellState(self.sums[at.start * k : at.stop * k], self.weights[at], self.state[at])
