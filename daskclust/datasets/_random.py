"""Random numbers of rows (or pixels), which do not depend on blocks."""

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

# Philox yields four 64-bit numbers per counter step.  Each row uses complete steps,
# so that a single `advance` moves to a row.
_STEP = 4


def seed_of(random_state: Any) -> int:
    """Convert `random_state` to a nonnegative integer; a generator is advanced by one draw."""
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
        "random_state must be None, a nonnegative integer, or a NumPy Generator or RandomState, "
        f"got {random_state!r}."
    )


def stream(seed: int, number: int) -> Generator:
    """Return a generator for the global draws of stream `number`."""
    return Generator(Philox(SeedSequence([seed, number])))


def row_uniforms(seed: int, number: int, start: int, count: int, width: int) -> Floats:
    """Draw (count, width) uniform numbers in (0, 1) for the rows from `start` on.

    `number` is the number of an independent stream of the seed.

    >>> whole = row_uniforms(0, 1, 0, 10, 3)
    >>> bool((row_uniforms(0, 1, 7, 3, 3) == whole[7:]).all())
    True
    """
    steps = -(-width // _STEP)
    bits = Philox(key=SeedSequence([seed, number]).generate_state(2, np.uint64))
    bits.advance(start * steps)
    raw = np.asarray(bits.random_raw(count * steps * _STEP), dtype=np.uint64)
    raw = raw.reshape(count, steps * _STEP)[:, :width]
    # 53 random bits plus half a step exclude 0 and 1, so that the normal quantile is finite.
    return np.asarray(((raw >> np.uint64(11)) + 0.5) * 2.0**-53, dtype=np.float64)


def row_normals(seed: int, number: int, start: int, count: int, width: int) -> Floats:
    """Draw standard normals like :func:`row_uniforms`.

    They are quantiles of uniform numbers, so that each value uses one draw, and the draws of a row
    can be located.
    """
    return np.asarray(ndtri(row_uniforms(seed, number, start, count, width)))


RowMaker = Callable[[int, int], tuple[NDArray[Any], NDArray[Any]]]


def _block(
    _: NDArray[Any], maker: RowMaker, result_number: int, block_info: Any = None
) -> NDArray[Any]:
    start, stop = block_info[None]["array-location"][0]
    return maker(start, stop)[result_number]


def make_rows(
    maker: RowMaker, n_samples: int, n_features: int, chunks: int | tuple[int, ...] | None
) -> tuple[Any, Any]:
    """Return X (n_samples, n_features) and y from `maker`, a function of first and last row.

    With `chunks`, the number of rows per block, they are lazy.
    """
    if chunks is None:
        return maker(0, n_samples)
    rows = normalize_chunks((chunks,), shape=(n_samples,), dtype=np.float64)[0]
    # The template provides only the chunks; its values are not used.
    template = da.zeros(n_samples, chunks=(rows,), dtype=np.int8)
    make = partial(da.map_blocks, _block, template, maker=maker)
    shape = {"new_axis": 1, "chunks": (rows, (n_features,))}
    X = make(result_number=0, dtype=np.float64, meta=np.empty((0, 0)), **shape)
    y = make(result_number=1, dtype=np.int64, meta=np.empty(0, dtype=np.int64), chunks=(rows,))
    return X, y


def positive(name: str, value: int, minimum: int = 1) -> int:
    """Check an integer parameter and return it as a plain int."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < minimum:
        raise ValueError(f"{name} must be an integer of at least {minimum}, got {value!r}.")
    return int(value)


def check_finite(**values: float) -> None:
    """Raise ValueError unless all parameters are finite and at least 0."""
    for name, value in values.items():
        if not (np.isfinite(value) and value >= 0):
            raise ValueError(f"{name} must be finite and at least 0, got {value!r}.")
