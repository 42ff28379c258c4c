"""Draws that belong to a row (or pixel) number, whatever block it is made in."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import dask.array as da
import numpy as np
from dask.array.core import normalize_chunks
from numpy.random import Generator, Philox, RandomState, SeedSequence
from numpy.typing import NDArray
from scipy.special import ndtri

from daskclust.core.array_types import Floats

# Philox yields four 64-bit numbers per counter step.  Each row gets whole steps,
# so that jumping to a row is one `advance`.
_STEP = 4


def seed_of(random_state: Any) -> int:
    """Turn `random_state` into one non-negative integer; a generator is advanced by one draw."""
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
    """Draw (count, width) uniform numbers of the rows from `start` on, both 0 and 1 excluded.

    `number` is that of an independent stream of the seed.

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


RowMaker = Callable[[int, int], tuple[NDArray[Any], NDArray[Any]]]


def _block(_: NDArray[Any], maker: RowMaker, which: int, block_info: Any = None) -> NDArray[Any]:
    start, stop = block_info[None]["array-location"][0]
    return maker(start, stop)[which]


def make_rows(
    maker: RowMaker, n_samples: int, n_features: int, chunks: int | tuple[int, ...] | None
) -> tuple[Any, Any]:
    """Return X (n_samples, n_features) and y of `maker`, a pure function of global row numbers.

    They are lazy where `chunks`, the rows per block, is given.
    """
    if chunks is None:
        return maker(0, n_samples)
    rows = normalize_chunks((chunks,), shape=(n_samples,), dtype=np.float64)[0]
    # The template only carries the chunks; its values are never looked at.
    template = da.zeros(n_samples, chunks=(rows,), dtype=np.int8)
    make = partial(da.map_blocks, _block, template, maker=maker)
    shape = {"new_axis": 1, "chunks": (rows, (n_features,))}
    X = make(which=0, dtype=np.float64, meta=np.empty((0, 0)), **shape)
    y = make(which=1, dtype=np.int64, meta=np.empty(0, dtype=np.int64), chunks=(rows,))
    return X, y


def positive(name: str, value: int, minimum: int = 1) -> int:
    """Check an integer parameter and return it as a plain int."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < minimum:
        raise ValueError(f"{name}={value!r}; expected an integer of at least {minimum}.")
    return int(value)


def check_finite(**values: float) -> None:
    """Refuse parameters that are no finite numbers from 0 on."""
    for name, value in values.items():
        if not (np.isfinite(value) and value >= 0):
            raise ValueError(f"{name}={value!r}; expected a finite number, zero or more.")
