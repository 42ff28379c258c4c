"""All uses of undocumented features of Dask and ``distributed``.

Each use is one function, with a test in ``tests/core/engine/test_dask_surface.py``.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from uuid import uuid4

import dask
import dask.array as da
import numpy as np
from dask._task_spec import Task as Node
from dask._task_spec import TaskRef, convert_legacy_graph
from dask.array.core import getter, getter_inline, getter_nofancy
from dask.base import get_scheduler, normalize_token
from dask.core import flatten, get_dependencies, istask
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from dask.optimization import cull

from daskclust.core.storage.retry import lacking

__all__ = [
    "Packed",
    "WorkerInfo",
    "compute_by",
    "delayed_parts",
    "graph_of",
    "hold_for_futures",
    "inputs_of",
    "is_future",
    "needed",
    "on_top_of",
    "only_slices",
    "renamed",
    "retry",
    "scheduler_of",
    "sending_once",
    "submit_graph",
    "task",
    "value_of",
    "worker_infos",
]

Key = Any
T = TypeVar("T")


def task(function: Callable[..., Any], *arguments: Any) -> tuple[Any, ...]:
    """Return a node of a graph as a tuple, which Dask converts: the module of `Task` is private."""
    return (function, *arguments)


class Packed:
    """A function that is unpickled where it is called, so that a failure is an error of the task.

    A worker that cannot unpickle a task exits, and a fit would wait for it.
    """

    def __init__(
        self, function: Callable[..., Any] | None, data: bytes = b"", *buffers: Any
    ) -> None:
        self._function, self._data, self._buffers = function, data, buffers

    def __reduce_ex__(self, protocol: Any) -> Any:
        # Unlike plain pickle, this pickles objects such as files opened by h5py.
        from distributed.protocol.pickle import dumps

        # Buffers become arrays: Python before 3.12.7 crashes if the garbage collector frees a
        # memoryview whose memory is exported (python/cpython#77894), and tasks of a scheduler are
        # collected.
        arrays: list[Any] = [np.asarray(memoryview(buffer)) for buffer in self._buffers]
        data, pickle_buffers = self._data, [pickle.PickleBuffer(array) for array in arrays]
        if self._function is not None:
            data = dumps(self._function, buffer_callback=pickle_buffers.append)
        # Large arrays are sent out of band, as Dask does for arrays outside a function.
        return Packed, (
            None,
            data,
            *(pickle_buffers if protocol >= 5 else map(bytes, pickle_buffers)),
        )

    def __call__(self, *arguments: Any) -> Any:
        function = self._function
        if function is None:
            try:
                function = pickle.loads(self._data, buffers=self._buffers)
            except Exception as error:
                missing_module_error = lacking(error)
                if missing_module_error is None:
                    raise
                raise missing_module_error from error
        return function(*arguments)


def _packed(node: Any) -> Any:
    """Return a node whose function, with everything but its inputs, is packed."""
    if not isinstance(node, Node) or isinstance(node.func, Packed):
        return node
    inputs = list(node.dependencies)
    return Node(node.key, Packed(partial(_run, node, inputs)), *map(TaskRef, inputs))


def _run(node: Any, inputs: list[Key], *values: Any) -> Any:
    return node(dict(zip(inputs, values, strict=True)))


def itself(value: T) -> T:
    return value


def graph_of(array: Any, *, optimized: bool = False) -> tuple[dict[Key, Any], list[Key]]:
    """Return the complete graph of an array as one mapping, and the keys of its chunks, in order.

    In an `optimized` graph, chains of tasks are fused.
    """
    if optimized:
        # `dask.optimize` does not lower expressions such as a rechunk; their own method does.
        array = array.optimize() if hasattr(array, "optimize") else dask.optimize(array)[0]
    return dict(array.__dask_graph__()), list(flatten(array.__dask_keys__()))


def needed(
    graph: Mapping[Key, Any], keys: Collection[Key]
) -> tuple[dict[Key, Any], dict[Key, list[Key]], set[Key]]:
    """Return the subgraph that some keys need, the inputs of its nodes, and its leaves.

    A leaf is a value: neither a task nor another task's key.
    """
    small, inputs = cull(dict(graph), list(keys))
    leaves = {key for key, node in small.items() if not istask(node) and not inputs[key]}
    return dict(small), {key: list(input_keys) for key, input_keys in inputs.items()}, leaves


def inputs_of(graph: Mapping[Key, Any], key: Key) -> list[Key]:
    """Return the keys that a node refers to."""
    return list(get_dependencies(graph, key))


def only_slices(node: Any, key: Key) -> bool:
    """Return True if a node, fused or not, certainly only slices the value of `key`."""
    function: Any = getattr(node, "func", None)
    arguments: Any = getattr(node, "args", ())
    if function in (getter, getter_inline, getter_nofancy):
        return True
    if getattr(function, "__name__", "") != "_execute_subgraph" or len(arguments) < 3:
        return False
    # Tasks, key of the result, names of the outside inputs, and the values of these inputs.
    tasks, _, names, *values = arguments
    if not isinstance(tasks, dict) or not isinstance(names, tuple):
        return False
    bound = [
        name
        for name, value in zip(names, values, strict=False)
        if getattr(value, "key", None) == key
    ]
    users = [
        (inner, name)
        for name in (key, *bound)
        for inner in tasks.values()
        if name in getattr(inner, "dependencies", ())
    ]
    return bool(users) and all(only_slices(*user) for user in users)


def value_of(graph: Mapping[Key, Any], key: Key) -> Any:
    """Return the value of a leaf; Dask never searches NumPy arrays for keys."""
    node = graph[key]
    return node if isinstance(node, np.ndarray) else dask.get({key: node}, key)


def is_future(value: Any) -> bool:
    """Return True if a value has the attributes of a future, without importing distributed."""
    return hasattr(value, "key") and hasattr(value, "client")


def scheduler_of(array: Any) -> tuple[Callable[..., Any], Any]:
    """Return the ``get`` that would compute a collection now, and the client if it is a cluster."""
    try:
        get: Callable[..., Any] = get_scheduler(collections=[array])
    except RuntimeError as error:  # an asynchronous client, in its event loop
        raise RuntimeError(
            f"{error}. Fits and other calls wait for their results: call them in a thread, use "
            "await asyncio.to_thread(model.fit, X), or use a Client without asynchronous=True."
        ) from error
    owner = getattr(get, "__self__", None)
    return get, owner if hasattr(owner, "who_has") else None


def on_top_of(
    array: Any, name: str, layer: Mapping[Key, Any], chunks: Any, dtype: Any, *more: Any
) -> Any:
    """Return an array of a layer of tasks that refer to the chunks of `array`, and of `more`."""
    graph = HighLevelGraph.from_collections(name, dict(layer), dependencies=[array, *more])
    return da.Array(graph, name, chunks, meta=np.empty((0,) * len(chunks), dtype))


def renamed(graph: Mapping[Key, Any], names: Mapping[Key, Key]) -> dict[Key, Any]:
    """Return the same graph with new names for some keys; futures keep their names."""
    futures = {key: node for key, node in graph.items() if is_future(node)}
    names = {key: name for key, name in names.items() if key not in futures}
    tasks = {key: node for key, node in graph.items() if key not in futures}
    nodes = convert_legacy_graph(tasks, all_keys=graph.keys())
    renamed_nodes = {
        names.get(key, key): node.substitute(names, key=names.get(key, key))
        for key, node in nodes.items()
    }
    return {**futures, **renamed_nodes}


def delayed_parts(name: str, graph: Mapping[Key, Any], keys: Sequence[Key]) -> list[Delayed]:
    """Return delayed values of one graph as a single layer: merging it with itself is free."""
    layers = HighLevelGraph.from_collections(name, dict(graph), dependencies=())
    return [Delayed(key, layers, layer=name) for key in keys]


def submit_graph(client: Any, graph: Mapping[Key, Any], keys: Sequence[Key]) -> list[Any]:
    """Send a graph to a cluster, under unique names, and return the futures of some keys.

    Names must be unique.  For a key that failed before and still has users, a cluster returns the
    old error.  For a key that it knows from another graph, it keeps the old inputs; and Dask's
    optimization gives a key different inputs in each graph.
    """
    token = uuid4().hex
    names = {key: (f"daskclust-rows-{token}", number) for number, key in enumerate(graph)}
    own = _NamedGraph({key: _packed(node) for key, node in renamed(graph, names).items()})
    own.token = token
    return list(client.get(own, [names[key] for key in keys], sync=False))


class _NamedGraph(dict[Key, Any]):
    """A graph that Dask does not hash: hashing would pickle a store for each of 1000 chunks."""

    token: str

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


@normalize_token.register(_NamedGraph)
def _token_of(graph: _NamedGraph) -> str:
    return graph.token


def compute_by(
    wait: Callable[[list[Any]], list[Any]], client: Any, collections: Sequence[Any]
) -> tuple[Any, ...]:
    """Compute collections like ``dask.compute``; `wait` returns the values of their futures."""

    def get(graph: Any, keys: Any, **options: Any) -> list[Any]:
        # `graph` may be an expression that becomes one; keys may be nested like the collections.
        names = list(flatten(keys))
        values = dict(zip(names, wait(list(client.get(graph, names, sync=False))), strict=True))

        def nested(keys: Any) -> Any:
            return [nested(k) for k in keys] if isinstance(keys, list) else values[keys]

        return [nested(k) for k in keys]

    results: tuple[Any, ...] = dask.compute(*collections, scheduler=get)
    return results


def hold_for_futures(obj: object) -> None:
    """Keep an object alive until all futures that are pending now are released.

    The object is part of a graph that is being sent.  A persisted collection has futures in place
    of its graph, so it does not refer to the object, but the cluster may rerun the tasks.
    """
    distributed = sys.modules.get("distributed")
    for client in list(distributed.Client._instances) if distributed else ():
        pending = [key for key, state in list(client.futures.items()) if state.status == "pending"]
        if pending:
            client.loop.add_callback(_hold, client, pending, obj)


def _hold(client: Any, keys: list[Key], obj: object) -> None:
    # A future does not report its release, so this function checks once per second.
    if not client.futures.keys().isdisjoint(keys):
        client.loop.call_later(1.0, _hold, client, keys, obj)


@contextmanager
def sending_once() -> Iterator[None]:
    """Send a large object that is used once, without Dask's warning about large graphs."""
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": 2**60}):
        yield


@dataclass(frozen=True)
class WorkerInfo:
    """A scheduler's report on a worker; `limit`, `used` and `managed` (by results) are in bytes.

    A `paused` worker accepts no tasks, because its memory is full.  The nanny of a `watched` worker
    kills it at the limit.
    """

    n_threads: int
    limit: int
    used: int
    managed: int
    paused: bool
    watched: bool


def retry(client: Any, futures: Sequence[Any]) -> int:
    """Let a cluster rerun failed tasks, with the failed tasks that they depend on.

    Return the number of futures that are pending again.  `Client.retry` fails if the client does
    not have all of these futures.
    """
    keys = [future.key for future in futures]

    async def retry_on_scheduler() -> int:
        states = [
            client.futures.get(key)
            for key in await client.scheduler.retry(keys=keys, client=client.id)
        ]
        present_states = [state for state in states if state is not None]
        for state in present_states:
            state.retry()
        return len(present_states)

    return int(client.sync(retry_on_scheduler)) if keys else 0


def worker_infos(client: Any) -> dict[str, WorkerInfo]:
    """Return the scheduler's report on each worker, by address."""
    return {
        address: WorkerInfo(
            int(info["nthreads"]),
            int(info["memory_limit"] or 0),
            int(info["metrics"].get("memory", 0)),
            int(info["metrics"].get("managed_bytes", 0)),
            info["status"] == "paused",
            info["nanny"] is not None,
        )
        for address, info in client.scheduler_info(n_workers=-1)["workers"].items()
    }
