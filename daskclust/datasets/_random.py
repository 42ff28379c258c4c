"""Draws that belong to a row (or pixel) number, whatever block it is made in."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random import Generator, Philox, RandomState, SeedSequence
from scipy.special import ndtri

from daskclust._types import Floats

__all__ = ["row_normals", "row_uniforms", "seed_of", "stream"]

# Philox yields four 64-bit numbers per counter step.  Each row gets whole steps,
# so that jumping to a row is one `advance`.
_STEP = 4


def seed_of(random_state: Any) -> int:
    """Turn `random_state` into one non-negative integer.

    Parameters
    ----------
    random_state : None, int, numpy.random.Generator or numpy.random.RandomState
        None takes fresh entropy; a generator is advanced by one draw.

    Raises
    ------
    ValueError
        A negative integer, or another type.

    Examples
    --------
    >>> seed_of(3)
    3
    """
    if random_state is None:
        return int(Generator(Philox()).integers(2**63))
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        if random_state >= 0:
            return int(random_state)
    elif isinstance(random_state, Generator):
        return int(random_state.integers(2**63))
    elif isinstance(random_state, RandomState):
        return int(random_state.randint(2**31 - 1))
    raise ValueError(
        f"random_state={random_state!r}; expected None, a non-negative integer, or a NumPy "
        "Generator or RandomState."
    )


def stream(seed: int, number: int) -> Generator:
    """Return a generator for the small, global draws of stream `number`."""
    return Generator(Philox(SeedSequence([seed, number])))


def row_uniforms(seed: int, number: int, start: int, count: int, width: int) -> Floats:
    """Uniform draws of rows ``start .. start + count - 1``.

    Parameters
    ----------
    seed, number : int
        Seed, and which independent stream of it.
    start, count : int
        Global number of the first row, and how many.
    width : int
        Draws per row.

    Returns
    -------
    ndarray of shape (count, width), float64
        Inside (0, 1), both ends excluded.

    Examples
    --------
    >>> whole = row_uniforms(0, 1, 0, 10, 3)
    >>> bool((row_uniforms(0, 1, 7, 3, 3) == whole[7:]).all())
    True
    """
    steps = -(-width // _STEP)
    bits = Philox(key=SeedSequence([seed, number]).generate_state(2, np.uint64))
    bits.advance(start * steps)
    raw = np.asarray(bits.random_raw(count * steps * _STEP), dtype=np.uint64)
    raw = raw.reshape(count, steps * _STEP)[:, :width]
    # 53 random bits, shifted by half a step away from 0 and 1: the normal quantile is finite.
    return np.asarray(((raw >> np.uint64(11)) + 0.5) * 2.0**-53, dtype=np.float64)


def row_normals(seed: int, number: int, start: int, count: int, width: int) -> Floats:
    """Draw standard normals like :func:`row_uniforms`.

    By the quantile function: a rejection method would take a different number
    of draws per value, and a row could no longer be reached by counting.
    """
    return np.asarray(ndtri(row_uniforms(seed, number, start, count, width)))
