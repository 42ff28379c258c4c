"""Work beside the passes: graphs such as labels and maps, and tasks without the data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from uuid import uuid4

import dask

from daskclust.engine.dask_surface import (
    client_behind,
    compute_by,
    scheduler_of,
    sending_once,
    task,
)
from daskclust.engine.rows import is_dask
from daskclust.engine.tasks import Task, gather, gather_futures
from daskclust.engine.threads import side_by_side

__all__ = ["compute", "map_independent"]


def _same(shared: Any) -> Any:
    return shared


def _called(function: Callable[[Any, Any], Any], item: Any, shared: Any) -> Any:
    return function(shared, item)


def map_independent(
    like: Any, name: str, function: Callable[[Any, Any], Any], shared: Any, items: Sequence[Any]
) -> list[Any]:
    """Compute ``function(shared, item)`` of each item, in order, where the data's passes run.

    With NumPy data (`like`) the tasks run on threads of this process, with Dask on the active
    scheduler. `function` is pure and picklable; `shared` is sent to each worker once; one task for
    each of the small `items`.
    """
    if not is_dask(like):
        return side_by_side([partial(function, shared, item) for item in items])
    get = scheduler_of(like)
    client = client_behind(get)
    if client is None:
        token = uuid4().hex
        held = f"daskclust-{name}-shared-{token}"
        graph: dict[Any, Any] = {held: task(partial(_same, shared))}
        keys = [(f"daskclust-{name}-{token}", i) for i in range(len(items))]
        for key, item in zip(keys, items, strict=True):
            graph[key] = task(partial(_called, function, item), held)
        return list(get(graph, keys))
    with sending_once():
        # A task that returns it, not scattered data: it is there again after a worker is lost.
        sent = Task(f"{name}-shared", _same, (shared,)).submit(client)
    tasks = [Task(name, function, (sent, item)).submit(client) for item in items]
    return gather(client, f"the tasks {name!r}", tasks)


def compute(what: str, *collections: Any) -> tuple[Any, ...]:
    """Compute collections on the user's scheduler, and give up where a cluster has no workers.

    `what` names the result in messages. No workers for ``daskclust.worker-timeout``, workers that
    die repeatedly and a scheduler that cannot be reached are a ClusterError.

    >>> import dask.array as da
    >>> total, = compute("the sum", da.ones(4, chunks=2).sum())
    >>> float(total)
    4.0
    """
    client = client_behind(scheduler_of(collections[0]))
    if client is None:
        return tuple(dask.compute(*collections))
    return compute_by(lambda futures: gather_futures(client, what, futures), client, collections)
