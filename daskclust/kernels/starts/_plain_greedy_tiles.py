"""The plain counterpart of :mod:`daskclust.kernels.starts._greedy_tiles`: loops over scalars."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

__all__ = ["WIDTH", "lower_tile"]

#: Points of a tile.
WIDTH = 128


@njit(nogil=True)
def lower_tile(turned: Any, at: int, start: int, mass: Any, old: Any, found: Any, c: int) -> float:
    """Set ``found[c, i]`` for a tile of i, as the emitted kernel does; return its weighted sum."""
    total = 0.0
    for i in range(start, start + WIDTH):
        squared = np.float32(0.0)
        for j in range(turned.shape[0]):
            gap = turned[j, i] - turned[j, at]
            squared += gap * gap
        found[c, i] = min(squared, old[i])
        total += np.float64(found[c, i]) * mass[i]
    return total
