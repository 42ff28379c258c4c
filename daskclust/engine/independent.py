"""Tasks that do not go over the data: many small ones that share one argument."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from uuid import uuid4

import dask
from dask.base import get_scheduler

from daskclust.engine.executors import cpu_threads
from daskclust.engine.rows import client_of, is_dask

__all__ = ["map_independent"]


def _same(shared: Any) -> Any:
    return shared


def _called(function: Callable[[Any, Any], Any], item: Any, shared: Any) -> Any:
    return function(shared, item)


def map_independent(
    like: Any, name: str, function: Callable[[Any, Any], Any], shared: Any, items: Sequence[Any]
) -> list[Any]:
    """Return ``function(shared, item)`` of each item, in order, where the data's passes run.

    Parameters
    ----------
    like : ndarray or dask.array.Array
        The data: NumPy means threads of this process, Dask the user's scheduler.
    name : str
        Appears in the keys.
    function : callable(shared, item)
        Pure and picklable.
    shared : object
        Travels to each worker once.
    items : sequence
        Of small arguments, a task each.
    """
    if not is_dask(like):
        n_threads = min(cpu_threads(), max(1, len(items)))
        if n_threads == 1:
            return [function(shared, item) for item in items]
        with ThreadPoolExecutor(n_threads, thread_name_prefix="daskclust") as pool:
            return list(pool.map(partial(function, shared), items))
    get = get_scheduler(collections=[like])
    client = getattr(get, "__self__", None)
    client = client_of(get)
    token = uuid4().hex
    held = f"daskclust-{name}-shared-{token}"
    keys = [(f"daskclust-{name}-{token}", i) for i in range(len(items))]
    if client is None:
        graph: dict[Any, Any] = {held: (partial(_same, shared),)}
        for key, item in zip(keys, items, strict=True):
            graph[key] = (partial(_called, function, item), held)
        return list(get(graph, keys))
    # The shared argument is as long as it is, and sent once.
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": 2**60}):
        # A task that returns it, not scattered data: it is there again after a worker is lost.
        future = client.submit(_same, shared, key=held)
    futures = [
        client.submit(function, future, item, key=key)
        for key, item in zip(keys, items, strict=True)
    ]
    return list(client.gather(futures))
