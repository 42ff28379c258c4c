"""Buffers that are reused for each tile of rows, and conversion of rows to another type."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from daskclust.core.array_types import Array
from daskclust.core.kernels.compiling import compiled


class Scratch:
    """Uninitialized arrays by name; a second request for a name returns the same memory.

    On Dask's workers the allocator returns memory early.  Clearing new pages for every tile would
    take as long as the arithmetic.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, Array] = {}

    def __call__(self, name: str, shape: tuple[int, ...], dtype: Any = np.float64) -> Array:
        size = prod(shape)
        buffer = self._buffers.get(name)
        if buffer is None or buffer.size < size or buffer.dtype != dtype:
            buffer = self._buffers[name] = np.empty(size, dtype)
        return buffer[:size].reshape(shape)


#: Factor that converts exponents of half precision to exponents of single precision.
_REBIASED = np.float32(2.0**112)
#: Number of values that are converted together, so that they stay in the first-level cache.
_NEAR = 2048


@compiled()
def _from_half(halves, out, bits):
    """Convert half-precision bits ``halves`` to single precision; ``bits`` is a view of ``out``."""
    for start in range(0, halves.size, _NEAR):
        given, to = halves[start : start + _NEAR], bits[start : start + _NEAR]
        for i in range(given.size):
            to[i] = (given[i] & 0x7FFF) << 13
        values = out[start : start + _NEAR]
        for i in range(given.size):
            # Subnormal numbers become normal.
            values[i] *= _REBIASED
        for i in range(given.size):
            top = 0x7F800000 if given[i] & 0x7C00 == 0x7C00 else 0
            to[i] |= top | (given[i] & 0x8000) << 16


def converted(x: Array, dtype: np.dtype[Any]) -> Array:
    """Return a C-contiguous copy with another type.

    >>> converted(np.array([0.1, np.inf], np.float16), np.dtype(np.float32)).tolist()
    [0.0999755859375, inf]
    """
    out = np.empty(x.shape, dtype)
    if x.dtype == np.float16 and dtype == np.float32 and x.flags.c_contiguous:
        # NumPy's conversion takes as long as the comparison with 100 centers.
        flat = out.reshape(-1)
        _from_half(x.reshape(-1).view(np.uint16), flat, flat.view(np.uint32))
    else:
        np.copyto(out, x, casting="unsafe")
    return out
