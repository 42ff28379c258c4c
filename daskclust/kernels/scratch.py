"""Arrays that are used again for one tile of rows after another."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Scratch"]


class Scratch:
    """Uninitialized arrays by name: asked for again, the same memory comes back.

    Fresh memory for every tile would be taken from the operating system and given
    back each time where the allocator trims eagerly, as it does on Dask's workers:
    clearing its pages then takes as long as the arithmetic.

    Examples
    --------
    >>> scratch = Scratch()
    >>> scratch("scores", (2, 3)).shape, scratch("scores", (2, 2)).flags.c_contiguous
    ((2, 3), True)
    >>> scratch("scores", (2, 3)).base is scratch("scores", (2, 2)).base
    True
    """

    def __init__(self) -> None:
        self._held: dict[str, NDArray[Any]] = {}

    def __call__(self, name: str, shape: tuple[int, ...], dtype: Any = np.float64) -> NDArray[Any]:
        """Return an array of this shape, of whatever values it had."""
        size = prod(shape)
        held = self._held.get(name)
        if held is None or held.size < size or held.dtype != dtype:
            held = self._held[name] = np.empty(size, dtype)
        return held[:size].reshape(shape)
