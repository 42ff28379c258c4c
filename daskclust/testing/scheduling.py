"""A scheduler that counts computations."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import dask
from dask.utils import key_split

__all__ = ["CountingScheduler"]


class CountingScheduler:
    """Dask scheduler that counts computations: ``dask.config.set(scheduler=...)``.

    Parameters
    ----------
    get : callable(graph, keys), optional
        The scheduler that does the work; the synchronous one by default.

    Attributes
    ----------
    calls : int
        Computations so far.
    names : list of str
        Names of the computed tasks, as the dashboard shows them.

    Examples
    --------
    >>> import dask, dask.array as da
    >>> scheduler = CountingScheduler()
    >>> with dask.config.set(scheduler=scheduler):
    ...     total = da.ones(4, chunks=2).sum().compute()
    >>> scheduler.calls
    1
    """

    def __init__(self, get: Callable[..., Any] | None = None) -> None:
        self._get = dask.get if get is None else get
        self._lock = threading.Lock()
        self.calls = 0
        self.names: list[str] = []

    def __call__(self, graph: Mapping[Any, Any], keys: Any, **options: Any) -> Any:
        """Compute ``keys`` and count one call."""
        first = keys
        while isinstance(first, list) and first:
            first = first[0]
        with self._lock:
            self.calls += 1
            self.names.append(str(key_split(first)))
        return self._get(graph, keys, **options)
