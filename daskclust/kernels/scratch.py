"""Arrays whose memory is used again, for one tile or block of rows after another."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Array
from daskclust.kernels.compiling import compiled


class Scratch:
    """Uninitialized arrays by name: asked for again, the same memory comes back.

    On Dask's workers the allocator trims eagerly: clearing fresh pages for every tile would take
    as long as the arithmetic.
    """

    def __init__(self) -> None:
        self._held: dict[str, Array] = {}

    def __call__(self, name: str, shape: tuple[int, ...], dtype: Any = np.float64) -> Array:
        size = prod(shape)
        held = self._held.get(name)
        if held is None or held.size < size or held.dtype != dtype:
            held = self._held[name] = np.empty(size, dtype)
        return held[:size].reshape(shape)


#: Smaller arrays are not taken from the operating system.
_SMALL = 2**17
#: Arrays that wait to be used again, of each thread.
_WAITING = 6


class _Recycler:
    """Memory of arrays that are gone, with all their views, for the next ones."""

    def __init__(self) -> None:
        # Given back by finalizers, at any moment in any thread: a deque needs no lock.
        self._free: deque[NDArray[np.uint8]] = deque(maxlen=_WAITING)

    def empty(self, size: int) -> NDArray[np.uint8]:
        held: NDArray[np.uint8] | None = None
        for _ in range(len(self._free)):
            try:
                found = self._free.pop()
            except IndexError:
                break
            if not size <= len(found) <= 2 * size or (held is not None and len(held) <= len(found)):
                self._free.appendleft(found)
                continue
            # The smallest that will do: a larger one may be wanted next.
            if held is not None:
                self._free.appendleft(held)
            held = found
        if held is None:
            if len(self._free):
                # Unused buffers are freed first: waiting memory does not grow with odd sizes.
                self._free.popleft()
            held = np.empty(size, np.uint8)
        # By way of the buffer protocol: views of an array refer to the one at the bottom, and
        # that has to be this one.
        lent = np.frombuffer(held.data, np.uint8, size)
        weakref.finalize(lent, self._free.append, held).atexit = False
        return lent


_own = threading.local()


def recycle() -> None:
    """Let :func:`spare` use memory again, in this thread, until it ends."""
    _own.recycler = _Recycler()


def spare(shape: tuple[int, ...], dtype: Any) -> Array:
    """Return an uninitialized C-contiguous array, after :func:`recycle` where earlier ones lay."""
    dtype = np.dtype(dtype)
    size = prod(shape) * dtype.itemsize
    recycler = getattr(_own, "recycler", None)
    if recycler is None or size < _SMALL:
        return np.empty(shape, dtype)
    found: Array = recycler.empty(size).view(dtype).reshape(shape)
    return found


#: From the exponent of half precision to that of single precision.
_REBIASED = np.float32(2.0**112)
#: Numbers that are converted while they are in the first-level cache.
_NEAR = 2048


@compiled()
def _from_half(halves, out, bits):
    """Fill ``out``, of which ``bits`` is a view, with numbers whose bits are ``halves``."""
    for start in range(0, halves.size, _NEAR):
        given, to = halves[start : start + _NEAR], bits[start : start + _NEAR]
        for i in range(given.size):
            to[i] = (given[i] & 0x7FFF) << 13
        values = out[start : start + _NEAR]
        for i in range(given.size):
            # Subnormal numbers come out normal.
            values[i] *= _REBIASED
        for i in range(given.size):
            top = 0x7F800000 if given[i] & 0x7C00 == 0x7C00 else 0
            to[i] |= top | (given[i] & 0x8000) << 16


def converted(x: Array, dtype: np.dtype[Any]) -> Array:
    """Return a copy in another type, C-contiguous, in memory of :func:`spare`.

    >>> converted(np.array([0.1, np.inf], np.float16), np.dtype(np.float32)).tolist()
    [0.0999755859375, inf]
    """
    out = spare(x.shape, dtype)
    if x.dtype == np.float16 and dtype == np.float32 and x.flags.c_contiguous:
        # NumPy's own conversion takes as long as a hundred centers.
        flat = out.reshape(-1)
        _from_half(x.reshape(-1).view(np.uint16), flat, flat.view(np.uint32))
    else:
        np.copyto(out, x, casting="unsafe")
    return out
