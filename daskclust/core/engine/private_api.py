"""Every use of Dask and ``distributed`` that their documentation does not promise.

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
    """Return a node of a graph: a tuple, which Dask converts; the objects' module is private."""
    return (function, *arguments)


class Packed:
    """A function that is unpacked where it is called, so that a failure is an error of the task.

    A worker that cannot unpack what it is sent ends, and a fit would wait for it.
    """

    def __init__(
        self, function: Callable[..., Any] | None, data: bytes = b"", *buffers: Any
    ) -> None:
        self._function, self._data, self._buffers = function, data, buffers

    def __reduce_ex__(self, protocol: Any) -> Any:
        # Packs what pickle alone does not, such as a file that h5py has opened.
        from distributed.protocol.pickle import dumps

        # As arrays: Python before 3.12.7 crashes where it collects a memoryview that lends its
        # memory (python/cpython#77894), and a scheduler's tasks are collected.
        arrays: list[Any] = [np.asarray(memoryview(buffer)) for buffer in self._buffers]
        data, found = self._data, [pickle.PickleBuffer(array) for array in arrays]
        if self._function is not None:
            data = dumps(self._function, buffer_callback=found.append)
        # Large arrays travel beside, as they would by themselves.
        return Packed, (None, data, *(found if protocol >= 5 else map(bytes, found)))

    def __call__(self, *arguments: Any) -> Any:
        function = self._function
        if function is None:
            try:
                function = pickle.loads(self._data, buffers=self._buffers)
            except Exception as error:
                found = lacking(error)
                if found is None:
                    raise
                raise found from error
        return function(*arguments)


def _packed(node: Any) -> Any:
    """Return a node whose function, with all but its inputs, is packed."""
    if not isinstance(node, Node) or isinstance(node.func, Packed):
        return node
    inputs = list(node.dependencies)
    return Node(node.key, Packed(partial(_run, node, inputs)), *map(TaskRef, inputs))


def _run(node: Any, inputs: list[Key], *values: Any) -> Any:
    return node(dict(zip(inputs, values, strict=True)))


def itself(value: T) -> T:
    return value


def graph_of(array: Any, *, optimized: bool = False) -> tuple[dict[Key, Any], list[Key]]:
    """Return the whole graph of an array as one mapping, and the keys of its chunks, in order.

    Chains of tasks are fused in an `optimized` one.
    """
    if optimized:
        # `dask.optimize` leaves expressions such as a rechunk unlowered; their own method does not.
        array = array.optimize() if hasattr(array, "optimize") else dask.optimize(array)[0]
    return dict(array.__dask_graph__()), list(flatten(array.__dask_keys__()))


def needed(
    graph: Mapping[Key, Any], keys: Collection[Key]
) -> tuple[dict[Key, Any], dict[Key, list[Key]], set[Key]]:
    """Return the part of a graph that some keys need, the inputs of its nodes, and its leaves.

    A leaf is a value: neither a task nor another task's key.
    """
    small, inputs = cull(dict(graph), list(keys))
    leaves = {key for key, node in small.items() if not istask(node) and not inputs[key]}
    return dict(small), {key: list(found) for key, found in inputs.items()}, leaves


def inputs_of(graph: Mapping[Key, Any], key: Key) -> list[Key]:
    """Return the keys that a node refers to."""
    return list(get_dependencies(graph, key))


def only_slices(node: Any, key: Key) -> bool:
    """Whether a node, fused or not, certainly does nothing but slice another's value."""
    function: Any = getattr(node, "func", None)
    arguments: Any = getattr(node, "args", ())
    if function in (getter, getter_inline, getter_nofancy):
        return True
    if getattr(function, "__name__", "") != "_execute_subgraph" or len(arguments) < 3:
        return False
    # The tasks, the key of the result, names of what comes from outside, and these values.
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
    """Return the value of a leaf; no graph ever looks into NumPy arrays."""
    node = graph[key]
    return node if isinstance(node, np.ndarray) else dask.get({key: node}, key)


def is_future(value: Any) -> bool:
    """Whether a value has both names of a future, without importing distributed."""
    return hasattr(value, "key") and hasattr(value, "client")


def scheduler_of(array: Any) -> tuple[Callable[..., Any], Any]:
    """Return the ``get`` that would compute a collection now, and the client of a cluster."""
    try:
        get: Callable[..., Any] = get_scheduler(collections=[array])
    except RuntimeError as error:  # of a client that is asynchronous, in its event loop
        raise RuntimeError(
            f"{error}. Fits and other calls wait for their results: make them in a thread, await "
            "asyncio.to_thread(model.fit, X), or use a Client without asynchronous=True."
        ) from error
    owner = getattr(get, "__self__", None)
    return get, owner if hasattr(owner, "who_has") else None


def on_top_of(array: Any, name: str, layer: Mapping[Key, Any], chunks: Any, dtype: Any) -> Any:
    """Return an array of a layer of tasks that refer to the chunks of another one."""
    graph = HighLevelGraph.from_collections(name, dict(layer), dependencies=[array])
    return da.Array(graph, name, chunks, meta=np.empty((0,) * len(chunks), dtype))


def renamed(graph: Mapping[Key, Any], names: Mapping[Key, Key]) -> dict[Key, Any]:
    """Return the same graph with other names for some of its keys; futures keep theirs."""
    held = {key: node for key, node in graph.items() if is_future(node)}
    names = {key: name for key, name in names.items() if key not in held}
    tasks = {key: node for key, node in graph.items() if key not in held}
    nodes = convert_legacy_graph(tasks, all_keys=graph.keys())
    moved = {
        names.get(key, key): node.substitute(names, key=names.get(key, key))
        for key, node in nodes.items()
    }
    return {**held, **moved}


def delayed_parts(name: str, graph: Mapping[Key, Any], keys: Sequence[Key]) -> list[Delayed]:
    """Return delayed values of one graph, which is one layer: merging it with itself is free."""
    layers = HighLevelGraph.from_collections(name, dict(graph), dependencies=())
    return [Delayed(key, layers, layer=name) for key in keys]


def submit_graph(client: Any, graph: Mapping[Key, Any], keys: Sequence[Key]) -> list[Any]:
    """Send a graph to a cluster, under names of its own, and return the futures of some keys.

    A cluster answers for a key that failed before, and that somebody still refers to, with the
    old error.  Where it knows a key from another graph, with other inputs, it keeps those; and
    Dask's optimization gives the same key other inputs in each graph that it is part of.
    """
    token = uuid4().hex
    names = {key: (f"daskclust-rows-{token}", number) for number, key in enumerate(graph)}
    own = _NamedGraph({key: _packed(node) for key, node in renamed(graph, names).items()})
    own.token = token
    return list(client.get(own, [names[key] for key in keys], sync=False))


class _NamedGraph(dict[Key, Any]):
    """A graph that Dask need not hash: it would pickle a store for each of 1000 chunks."""

    token: str

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


@normalize_token.register(_NamedGraph)
def _token_of(graph: _NamedGraph) -> str:
    return graph.token


def compute_by(
    wait: Callable[[list[Any]], list[Any]], client: Any, collections: Sequence[Any]
) -> tuple[Any, ...]:
    """Compute collections as ``dask.compute`` does, but wait for the cluster's futures oneself."""

    def get(graph: Any, keys: Any, **options: Any) -> list[Any]:
        # A graph, or an expression that becomes one; keys nested as the collections' are, or not.
        names = list(flatten(keys))
        values = dict(zip(names, wait(list(client.get(graph, names, sync=False))), strict=True))

        def nested(keys: Any) -> Any:
            return [nested(k) for k in keys] if isinstance(keys, list) else values[keys]

        return [nested(k) for k in keys]

    found: tuple[Any, ...] = dask.compute(*collections, scheduler=get)
    return found


def hold_for_futures(held: object) -> None:
    """Hold an object, of a graph that is being sent, until the futures asked for are released.

    What is persisted has futures in the place of its graph, and its tasks may be run again.
    """
    found = sys.modules.get("distributed")
    for client in list(found.Client._instances) if found else ():
        pending = [key for key, state in list(client.futures.items()) if state.status == "pending"]
        if pending:
            client.loop.add_callback(_hold, client, pending, held)


def _hold(client: Any, keys: list[Key], held: object) -> None:
    # A future tells nobody that it is released.
    if not client.futures.keys().isdisjoint(keys):
        client.loop.call_later(1.0, _hold, client, keys, held)


@contextmanager
def sending_once() -> Iterator[None]:
    """Send something large that travels once, whatever distributed thinks of large graphs."""
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": 2**60}):
        yield


@dataclass(frozen=True)
class WorkerInfo:
    """A scheduler's report of a worker; `limit`, `used` and `managed` (by results) are bytes.

    A `paused` one takes no tasks, for want of memory; its nanny ends a `watched` one at the limit.
    """

    n_threads: int
    limit: int
    used: int
    managed: int
    paused: bool
    watched: bool


def retry(client: Any, futures: Sequence[Any]) -> int:
    """Let a cluster run failed tasks again, with the failed ones that they stand on.

    Returns the number of futures that wait again. `Client.retry` fails where a client does not
    hold all of these.
    """
    keys = [future.key for future in futures]

    async def again() -> int:
        states = [
            client.futures.get(key)
            for key in await client.scheduler.retry(keys=keys, client=client.id)
        ]
        held = [state for state in states if state is not None]
        for state in held:
            state.retry()
        return len(held)

    return int(client.sync(again)) if keys else 0


def worker_infos(client: Any) -> dict[str, WorkerInfo]:
    """Return what the scheduler knows of each worker, by address."""
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
