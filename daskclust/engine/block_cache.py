"""Cache of blocks: values kept from pass to pass in the process that works on them.

A cache belongs to a group of blocks and ends with it: when the data of a fit are released, on a
cluster as here, so is what was kept of them.  It does not travel: a group that moves to another
process, or is read back from disk, begins with an empty cache.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any

import psutil

__all__ = ["BlockCache"]

#: Share of the machine's memory that is left free; below, nothing is kept.
_FREE = 0.05


class BlockCache:
    """Values that the blocks of a group keep, for one fit at a time.

    Examples
    --------
    >>> cache = BlockCache()
    >>> cache.put("fit", 0, "bounds")
    >>> cache.take("fit", 0), cache.take("fit", 0)
    ('bounds', None)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._name: Hashable = None
        self._kept: dict[int, Any] = {}

    def __reduce__(self) -> tuple[Callable[[], BlockCache], tuple[()]]:
        """Travel without what is kept."""
        return BlockCache, ()

    def take(self, name: Hashable, position: int) -> Any:
        """Return what a block kept under a name, and leave nothing there; None if it kept nothing.

        So a task that runs twice, at the same time, does not share what it writes to.
        """
        with self._lock:
            return self._kept.pop(position, None) if name == self._name else None

    def put(self, name: Hashable, position: int, value: Any) -> None:
        """Keep something of a block; an entry of another fit is released."""
        if value is not None and _is_short():
            value = None
        with self._lock:
            if name != self._name:
                self._kept.clear()
                self._name = name
            if value is not None:
                self._kept[position] = value


def _is_short() -> bool:
    memory = psutil.virtual_memory()
    return bool(memory.available < _FREE * memory.total)
