"""Random numbers that belong to rows, not to chunks.

The draw of global row i in round r is a function of (seed, r, i): a Philox
stream keyed by (seed, r) and advanced to row i.  Chunking, scheduler and number
of workers cannot change it.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator, Philox, SeedSequence
from numpy.typing import NDArray

__all__ = ["draw_numbers", "row_uniforms"]

# A counter step of Philox yields four 64-bit numbers, each of which makes one double.
_STEP = 4


def row_uniforms(seed: int, round_: int, start: int, count: int) -> NDArray[np.float64]:
    """Uniform draws of rows ``start .. start + count - 1``.

    Parameters
    ----------
    seed : int
        Seed of the fit, non-negative.
    round_ : int
        Which draw of the fit; rounds are independent.
    start : int
        Global number of the first row.
    count : int
        Number of rows.

    Returns
    -------
    ndarray of shape (count,), float64
        In (0, 1]: never 0, so that a logarithm is finite.

    Examples
    --------
    >>> whole = row_uniforms(0, 1, 0, 10)
    >>> bool((row_uniforms(0, 1, 7, 3) == whole[7:]).all())
    True
    """
    key = SeedSequence([seed, round_]).generate_state(2, np.uint64)
    bits = Philox(key=key)
    bits.advance(start // _STEP)
    skipped = start % _STEP
    return 1.0 - Generator(bits).random(count + skipped)[skipped:]


def draw_numbers(total: int, count: int, seed: int) -> NDArray[np.int64]:
    """Draw different numbers out of [0, total), ascending; all of them where there are few.

    Examples
    --------
    >>> draw_numbers(3, 5, 0).tolist(), len(draw_numbers(100, 5, 0))
    ([0, 1, 2], 5)
    """
    if count >= total:
        return np.arange(total, dtype=np.int64)
    rng = np.random.default_rng(seed)
    return np.sort(rng.choice(total, count, replace=False, shuffle=False)).astype(np.int64)
