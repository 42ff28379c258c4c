"""Restarts of a fit: a seed for each, and which of them is kept."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["best_restart", "draw_seeds"]

#: Costs that differ by less, relatively, are those of the same solution.
_TOLERANCE = 1e-9


def draw_seeds(random_state: Any, count: int) -> tuple[int, ...]:
    """One seed for each restart, from whatever scikit-learn takes as ``random_state``.

    Parameters
    ----------
    random_state : None, int, numpy.random.RandomState or numpy.random.Generator
    count : int
    """
    if isinstance(random_state, np.random.Generator):
        root = int(random_state.integers(2**32))
    elif isinstance(random_state, np.random.RandomState):
        root = int(random_state.randint(2**32, dtype=np.uint32))
    elif random_state is None:
        root = int(np.random.SeedSequence().generate_state(1)[0])
    elif isinstance(random_state, numbers.Integral):
        root = int(random_state)
        if root < 0:
            raise ValueError(
                f"random_state={random_state} is negative; give a non-negative integer."
            )
    else:
        raise ValueError(
            f"random_state={random_state!r} is no seed; give a non-negative integer, a NumPy "
            "Generator or RandomState, or None."
        )
    words = np.random.SeedSequence(root).generate_state(count, np.uint64)
    return tuple(int(word >> np.uint64(1)) for word in words)


def best_restart(costs: Sequence[float] | NDArray[np.float64], *, at_least: float = 0.0) -> int:
    """Return the first restart whose cost is the least, up to rounding.

    Restarts often end in the same clusters, numbered differently; the last bits of
    their sums depend on the chunks and must not choose between them.

    Parameters
    ----------
    costs : array-like of shape (r,)
    at_least : float, default=0.0
        Magnitude to which rounding is relative, where the least cost is smaller:
        1 for logarithms, which may be near 0.

    Examples
    --------
    >>> best_restart([3.0, 2.0 + 1e-12, 2.0])
    1
    """
    costs = np.asarray(costs)
    least = costs.min()
    return int(np.flatnonzero(costs <= least + _TOLERANCE * max(at_least, abs(least)))[0])
