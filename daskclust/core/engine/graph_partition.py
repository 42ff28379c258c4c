"""Cut the graph of a Dask array into one small graph per block.

Most blocks may share statistics, such as the mean in ``X - X.mean(axis=0)``.  These are computed
once and inserted as constants.  Other shared tasks are repeated in each block if that is cheap;
otherwise the graph is not cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.sizeof import sizeof
from scipy.sparse import issparse

from daskclust.core.engine.blocks import LazyChunk
from daskclust.core.engine.private_api import (
    Packed,
    delayed_parts,
    graph_of,
    inputs_of,
    is_future,
    needed,
    only_slices,
    renamed,
    task,
    value_of,
)
from daskclust.core.storage.retry import NEVER_AGAIN, Retries, files_in
from daskclust.core.storage.stored_array import (
    Seen,
    SeenFiles,
    StoredArray,
    arrays_in,
    is_zarr_array,
)

Key = Any
#: Prefix of the names of tasks whose reads are retried.
_READ = "daskclust-read-"
#: Minimum fraction of the blocks that refer to a constant.
_CONSTANT_SHARE = 0.5
#: Maximum size of a constant in bytes. Larger values are data, not statistics.
_CONSTANT_BYTES = 2**24
#: Maximum size in bytes of a value that is copied into every task that refers to it.
_CARRIED_BYTES = 2**16
#: Maximum average number of times that a read, or another first task, is run.
_MAX_REPETITION = 2.5


@dataclass(frozen=True)
class ArrayGraph:
    """The graph behind the chunks of an array.

    `inputs` are the keys that each node refers to; it is empty if the graph contains futures.
    `leaves` are the keys of values, and `seen` are fingerprints of the sources that nodes read.
    `values` are the chunks if all of them are in this process, and `futures` if all of them are on
    a cluster.
    """

    keys: list[Key]
    graph: Mapping[Key, Any]
    inputs: Mapping[Key, list[Key]] = field(default_factory=dict)
    leaves: set[Key] = field(default_factory=set)
    seen: Mapping[Key, Sequence[Seen]] = field(default_factory=dict)
    values: list[Any] | None = None
    futures: list[Any] | None = None

    def only(self, chunks: Sequence[int]) -> ArrayGraph:
        def some(items: list[Any] | None) -> list[Any] | None:
            return None if items is None else [items[i] for i in chunks]

        keys = [self.keys[i] for i in chunks]
        return replace(self, keys=keys, values=some(self.values), futures=some(self.futures))

    def whole(self) -> dict[Key, Any]:
        """Return a graph that computes all chunks with retries of reads."""
        if not self.inputs:
            return dict(self.graph)
        read = _guarded(self.graph, self.inputs, self.leaves, Retries.configured(), self.seen)
        # Values that only reads refer to are inside the tasks of these reads.
        return needed(read, self.keys)[0]


def graph_behind(array: Any) -> ArrayGraph:
    graph, keys = graph_of(array)
    chunks = [graph.get(key) for key in keys]
    if all(isinstance(chunk, np.ndarray) or issparse(chunk) for chunk in chunks):
        values_by_key = dict(zip(keys, chunks, strict=True))
        return ArrayGraph(keys, values_by_key, {key: [] for key in keys}, set(keys), values=chunks)
    if any(is_future(value) for value in graph.values()):
        # Optimizing the graph would drop results that the cluster holds.
        return ArrayGraph(keys, graph, futures=chunks if all(map(is_future, chunks)) else None)
    graph, keys = graph_of(array, optimized=True)
    graph, inputs, leaves = needed(graph, keys)
    stored = [key for key in leaves if is_zarr_array(_node_value(graph[key]))]
    for key in _only_sliced(graph, inputs, stored):
        # The chunk retries a failed read, so the array need not retry it.
        graph[key] = StoredArray(_node_value(graph[key]), NEVER_AGAIN)
    for i, key in enumerate(keys):
        # A value may be another key: graphs of expression arrays end in such values.
        while inputs[key] == [graph[key]]:
            key = graph[key]
        keys[i] = key
    values = [value_of(graph, key) for key in keys] if leaves.issuperset(keys) else None
    # Fingerprints of Zarr arrays in nodes and of files that they read, one for each.
    fingerprints: dict[int | str, Seen] = {}
    seen: dict[Key, list[Seen]] = {}
    for key, node in graph.items():
        for array in arrays_in(node):
            if id(array) not in fingerprints:
                fingerprints[id(array)] = StoredArray(array)
            seen.setdefault(key, []).append(fingerprints[id(array)])
        for file in files_in({key: node}):
            if file not in fingerprints:
                fingerprints[file] = SeenFiles([file])
            seen.setdefault(key, []).append(fingerprints[file])
    return ArrayGraph(keys, graph, inputs, leaves, seen, values)


def _node_value(node: Any) -> Any:
    return getattr(node, "value", node)


def _only_sliced(
    graph: Mapping[Any, Any], inputs: Mapping[Any, Collection[Any]], leaves: Iterable[Any]
) -> list[Any]:
    """Return the leaves of which Dask only takes slices."""
    stored = set(leaves)
    others = {
        key
        for name, needs in inputs.items()
        for key in stored.intersection(needs)
        if not only_slices(graph[name], key)
    }
    return sorted(stored - others, key=str)


def read_again(X: Any) -> Any:
    """Return a lazy array that retries each failed read; an array in memory is unchanged.

    The tasks have new names: a cluster that knows the tasks of X would keep its results.  A
    computation of both arrays therefore reads X twice.  Expression arrays of Dask
    (``array.query-planning``) are unchanged, because they take no graphs.
    """
    if hasattr(X, "expr"):
        return X
    graph, keys = graph_of(X)
    if not any(is_future(value) for value in graph.values()):
        graph, inputs, leaves = needed(graph, keys)
        first = [key[0] if isinstance(key, tuple) else key for key in _reads(graph, inputs, leaves)]
        if all(str(name).startswith(_READ) for name in first):
            return X
    behind = graph_behind(X)
    if behind.futures is not None or not behind.inputs or behind.values is not None:
        return X
    name = f"{_READ}{tokenize(X.name)}"
    own = [(name, *index) for index in np.ndindex(X.numblocks)]
    tasks = _one_task_each(behind, own)
    if tasks is None:
        tasks = behind.whole()
        # Several chunks may be the same task.
        names = {key: _own_name(key, X.name) for key in tasks}
        names.update(zip(reversed(behind.keys), reversed(own), strict=True))
        aliases = {mine: names[key] for mine, key in zip(own, behind.keys, strict=True)}
        tasks = {**aliases, **renamed(tasks, names)}
    return da.Array(tasks, name, X.chunks, dtype=X.dtype, meta=X._meta)


def seen_alike(X: Any) -> Any:
    """Return a lazy array whose tasks check that they see the same Zarr stores as the client.

    If a store is missing on a worker, or lacks chunks, Dask and xarray return fill values without
    an error.
    """
    if hasattr(X, "dims") and hasattr(X, "data"):
        X = X.data
    if not isinstance(X, da.Array) or hasattr(X, "expr"):
        return X
    graph, _ = graph_of(X)
    return read_again(X) if any(True for n in graph.values() for _ in arrays_in(n)) else X


def parts_read_again(parts: Sequence[Any], files: Iterable[Path] = ()) -> list[Any]:
    """Return the partitions of a Dask DataFrame with retries of failed reads.

    Reading one of the local `files` raises an error if its size differs from the client's file.
    """
    graph: dict[Key, Any] = {}
    # Most often all partitions share one graph.
    for whole in {id(part.dask): part.dask for part in parts}.values():
        graph.update(whole)
    if any(is_future(value) for value in graph.values()):
        return list(parts)
    keys = [part.key for part in parts]
    graph, inputs, leaves = needed(graph, keys)
    local = frozenset(str(file.absolute()) for file in files)
    seen: dict[Key, list[Seen]] = {}
    if local:
        for key, node in graph.items():
            if read := local.intersection(files_in({key: node})):
                seen[key] = [SeenFiles(read)]
    guarded = _guarded(graph, inputs, leaves, Retries.configured(), seen)
    guarded = needed(guarded, keys)[0]
    owner = uuid4().hex
    names = {key: _own_name(key, owner) for key in guarded}
    return delayed_parts(f"{_READ}{owner}", renamed(guarded, names), [names[key] for key in keys])


def _one_task_each(behind: ArrayGraph, names: list[Key]) -> dict[Key, Any] | None:
    """Return a graph with one task per chunk, or None if chunks share tasks."""
    leaves, retries = behind.leaves, Retries.configured()
    closures = [_closure(behind.inputs, key) for key in behind.keys]
    uses = Counter(key for closure in closures for key in closure)
    if any(count > 1 for key, count in uses.items() if key not in leaves):
        return None
    graph: dict[Key, Any] = {}
    for name, key, closure in zip(names, behind.keys, closures, strict=True):
        outside = [
            leaf for leaf in closure & leaves if uses[leaf] > 1 and _is_large(behind.graph[leaf])
        ]
        subgraph = {inner: behind.graph[inner] for inner in closure.difference(outside)}
        if len(_reads(closure, behind.inputs, leaves)) > 1:
            subgraph = _guarded(subgraph, behind.inputs, leaves, retries, behind.seen)
        seen = _seen_by(closure, behind.seen)
        leaf_names = [_own_name(leaf, name[0]) for leaf in outside]
        graph.update(
            {mine: behind.graph[leaf] for mine, leaf in zip(leaf_names, outside, strict=True)}
        )
        chunk = LazyChunk(subgraph, key, retries, seen)
        graph[name] = task(Packed(partial(chunk.load_with, outside)), *leaf_names)
    return graph


def _own_name(key: Key, owner: str) -> Key:
    first, *index = key if isinstance(key, tuple) else (key,)
    name = f"{_READ}{tokenize(first, owner)}"
    return (name, *index) if isinstance(key, tuple) else name


def _users_of_shared(dependencies: Mapping[Key, list[Key]], keys: list[Key]) -> Counter[Key]:
    """Count, for each shared task, the blocks whose unshared tasks or keys refer to it."""
    owner: dict[Key, int | None] = {}
    for number, root in enumerate(keys):
        stack = [root]
        while stack:
            key = stack.pop()
            if key not in owner:
                owner[key] = number
            elif owner[key] is None or owner[key] == number:
                continue
            else:
                # Reached from a second block: shared, with all its dependencies.
                owner[key] = None
            stack.extend(dependencies[key])
    shared = {key for key, number in owner.items() if number is None}
    return Counter(
        key for root in keys for key in _closure(dependencies, root, shared).intersection(shared)
    )


def _closure(
    dependencies: Mapping[Key, list[Key]], root: Key, ends: Collection[Key] = ()
) -> set[Key]:
    """Return a key and all its dependencies, except the dependencies of `ends`."""
    seen: set[Key] = set()
    stack = [root]
    while stack:
        key = stack.pop()
        if key not in seen:
            seen.add(key)
            stack.extend(() if key in ends else dependencies[key])
    return seen


def cut(
    behind: ArrayGraph, compute: Callable[[Mapping[Key, Any], list[Key]], list[Any]]
) -> list[LazyChunk] | None:
    """Cut a graph into one per chunk, with constants computed; return None if it cannot be cut."""
    if not behind.inputs:
        return None
    retries, keys, leaves = Retries.configured(), behind.keys, set(behind.leaves)
    graph, inputs = _insert_constants(behind, leaves, compute)
    closures = [_closure(inputs, key) for key in keys]
    if _repetition(inputs, closures, leaves) > _MAX_REPETITION:
        return None
    chunks = []
    for key, closure in zip(keys, closures, strict=True):
        subgraph = {name: graph[name] for name in closure}
        if len(_reads(closure, inputs, leaves)) > 1:
            subgraph = _guarded(subgraph, inputs, leaves, retries, behind.seen)
        chunks.append(LazyChunk(subgraph, key, retries, _seen_by(closure, behind.seen)))
    return chunks


def _seen_by(keys: Iterable[Key], seen: Mapping[Key, Sequence[Seen]]) -> tuple[Seen, ...]:
    return tuple({id(source): source for key in keys for source in seen.get(key, ())}.values())


def _reads(
    keys: Iterable[Key], dependencies: Mapping[Key, list[Key]], leaves: set[Key]
) -> list[Key]:
    """Return the first tasks: those that depend only on leaves.  Most of them are reads."""
    return [key for key in keys if key not in leaves and leaves.issuperset(dependencies[key])]


def _guarded(
    graph: Mapping[Key, Any],
    dependencies: Mapping[Key, list[Key]],
    leaves: set[Key],
    retries: Retries,
    seen: Mapping[Key, Sequence[Seen]],
) -> dict[Key, Any]:
    """Return a graph in which each read is retried and contains the values that it refers to.

    Large values stay outside, so that they are stored once.
    """
    guarded = dict(graph)
    for key in _reads(graph, dependencies, leaves):
        outside = [
            name for name in dependencies[key] if name not in graph or _is_large(graph[name])
        ]
        inside = (key, *(name for name in dependencies[key] if name not in outside))
        subgraph = {name: graph[name] for name in inside}
        chunk = LazyChunk(subgraph, key, retries, _seen_by((key, *dependencies[key]), seen))
        guarded[key] = task(Packed(partial(chunk.load_with, outside)), *outside)
    return guarded


def _is_large(node: Any) -> bool:
    value = _node_value(node)
    return isinstance(value, np.ndarray) and value.nbytes > _CARRIED_BYTES


def _repetition(
    dependencies: Mapping[Key, list[Key]], closures: list[set[Key]], leaves: set[Key]
) -> float:
    """Return the average number of runs of a first task in separate blocks, the maximum of all."""
    uses = Counter(key for closure in closures for key in closure - leaves)
    first = _reads(uses, dependencies, leaves)
    return sum(uses[key] for key in first) / max(1, len(first))


def _if_small(value: Any) -> Any:
    return value if sizeof(value) <= _CONSTANT_BYTES else None


def _insert_constants(
    behind: ArrayGraph,
    leaves: set[Key],
    compute: Callable[[Mapping[Key, Any], list[Key]], list[Any]],
) -> tuple[dict[Key, Any], dict[Key, list[Key]]]:
    """Replace tasks that most blocks refer to by their values, and add these to the leaves."""
    keys = behind.keys
    enough = max(2, _CONSTANT_SHARE * len(keys))
    users = _users_of_shared(behind.inputs, keys)
    constants = [key for key, n in users.items() if n >= enough and key not in leaves]
    if not constants:
        return dict(behind.graph), dict(behind.inputs)
    name = f"daskclust-constant-{uuid4().hex}"
    probes: dict[Key, Any] = {(name, i): task(_if_small, key) for i, key in enumerate(constants)}
    values = compute({**behind.whole(), **probes}, list(probes))
    replaced = dict(behind.graph)
    for key, value in zip(constants, values, strict=True):
        if value is not None:
            replaced[key] = value
            leaves.add(key)
    culled = needed(replaced, keys)[0]
    # Values that are not tasks have no dependencies.
    return culled, {key: [] if key in leaves else inputs_of(culled, key) for key in culled}
