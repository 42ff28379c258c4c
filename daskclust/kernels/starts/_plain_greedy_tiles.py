"""The plain counterpart of :mod:`daskclust.kernels.starts._greedy_tiles`: loops over scalars."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

__all__ = ["WIDTH", "cost_of_tile", "lower_tile"]

#: Points of a tile.
WIDTH = 128


@njit(nogil=True)
def _tile(points: Any, t: int, tries: Any, c: int, mass: Any, old: Any, lowering: bool) -> float:
    total = 0.0
    for i in range(WIDTH):
        squared = np.float32(0.0)
        for j in range(points.shape[1]):
            gap = points[t, j, i] - tries[c, j]
            squared += gap * gap
        kept = min(squared, old[t, i])
        if lowering:
            old[t, i] = kept
        total += np.float64(kept) * mass[t, i]
    return total


@njit(nogil=True)
def cost_of_tile(points: Any, t: int, tries: Any, c: int, mass: Any, old: Any) -> float:
    """As the emitted kernel does; nothing is written."""
    return _tile(points, t, tries, c, mass, old, False)


@njit(nogil=True)
def lower_tile(points: Any, t: int, tries: Any, c: int, mass: Any, old: Any) -> float:
    """As :func:`cost_of_tile`; the smaller distances take the place of the old ones."""
    return _tile(points, t, tries, c, mass, old, True)
