"""Cutting the graph of a Dask array into one small graph for each block.

Three things can lie behind a block: the values themselves (a persisted or
in-memory array), a chain of tasks of its own (a read, an arithmetic expression),
or tasks that it shares with other blocks.  Statistics that nearly all blocks
share, such as the mean in ``X - X.mean(axis=0)``, are computed once and put in
as constants; what is then still shared is repeated if that is cheap, and
otherwise the graph is left whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import dask
from dask.core import flatten, get_dependencies, istask
from dask.optimization import cull
from dask.sizeof import sizeof

from daskclust.engine.blocks import LazyChunk

__all__ = ["CutGraph", "cut"]

Key = Any
#: A constant is what at least this share of the blocks refer to.
_CONSTANT_SHARE = 0.5
#: and what has at most so many bytes; anything larger is data, not a statistic.
_CONSTANT_BYTES = 2**24
#: Reads, and whatever else tasks begin with, may be repeated this often on average.
_MAX_REPETITION = 2.5


@dataclass(frozen=True)
class CutGraph:
    """The chunks of an array.

    Attributes
    ----------
    keys : list
        One key a block, in row order.
    chunks : list of (array or LazyChunk), or None
        What is behind each block; ``None`` when the graph has to stay whole.
    graph : mapping
        The whole graph.
    futures : list, or None
        The blocks' futures, when all of them live on a cluster already.
    """

    keys: list[Key]
    chunks: list[Any] | None
    graph: Mapping[Key, Any]
    futures: list[Any] | None = None

    @property
    def in_memory(self) -> bool:
        """Whether all values are at hand in this process."""
        return self.chunks is not None and not any(isinstance(c, LazyChunk) for c in self.chunks)


def _is_future(value: Any) -> bool:
    # Without importing distributed: its futures are the only ones with both.
    return hasattr(value, "key") and hasattr(value, "client")


def _value(graph: Mapping[Key, Any], key: Key) -> Any:
    return dask.get({key: graph[key]}, key)


def _resolved(graph: Mapping[Key, Any], dependencies: Mapping[Key, list[Key]], key: Key) -> Key:
    """Follow a key whose value is another key; expression arrays end in such."""
    while list(dependencies[key]) == [graph[key]]:
        key = graph[key]
    return key


class _Ownership:
    """Which tasks belong to one block alone, and which are shared."""

    def __init__(self, dependencies: Mapping[Key, list[Key]], keys: list[Key]) -> None:
        self.owner: dict[Key, int | None] = {}
        self.users: Counter[Key] = Counter()
        for number, root in enumerate(keys):
            stack = [root]
            while stack:
                key = stack.pop()
                if key not in self.owner:
                    self.owner[key] = number
                elif self.owner[key] is None or self.owner[key] == number:
                    continue
                else:
                    # Met from a second block: shared, with all it stands on.
                    self.owner[key] = None
                stack.extend(dependencies[key])
        for root in keys:
            used: set[Key] = set()
            seen: set[Key] = set()
            stack = [root]
            while stack:
                key = stack.pop()
                if key in seen:
                    continue
                seen.add(key)
                if self.owner[key] is None:
                    used.add(key)
                else:
                    stack.extend(dependencies[key])
            self.users.update(used)


def _closure(dependencies: Mapping[Key, list[Key]], root: Key) -> set[Key]:
    seen: set[Key] = set()
    stack = [root]
    while stack:
        key = stack.pop()
        if key not in seen:
            seen.add(key)
            stack.extend(dependencies[key])
    return seen


def cut(array: Any, compute: Callable[[Mapping[Key, Any], list[Key]], list[Any]]) -> CutGraph:
    """Cut the graph of a row-chunked array into blocks.

    Parameters
    ----------
    array : dask.array.Array
        With one chunk along every axis but the first.
    compute : callable(graph, keys) -> list
        Computes keys of a graph with the user's scheduler; for constants.

    Returns
    -------
    CutGraph
    """
    keys = list(flatten(array.__dask_keys__()))
    graph = dict(array.__dask_graph__())
    if any(_is_future(value) for value in graph.values()):
        # Optimizing would drop what the cluster holds.
        futures = [graph[key] for key in keys]
        held = all(_is_future(future) for future in futures)
        return CutGraph(keys, None, graph, futures if held else None)
    # `dask.optimize` leaves expressions such as a rechunk unlowered; their own method does not.
    array = array.optimize() if hasattr(array, "optimize") else dask.optimize(array)[0]
    keys = list(flatten(array.__dask_keys__()))
    graph, dependencies = cull(dict(array.__dask_graph__()), keys)
    # A value may also be another task's key: neither a task nor a leaf.
    leaves = {key for key, value in graph.items() if not istask(value) and not dependencies[key]}
    keys = [_resolved(graph, dependencies, key) for key in keys]
    if leaves.issuperset(keys):
        return CutGraph(keys, [_value(graph, key) for key in keys], graph)

    graph, dependencies = _insert_constants(graph, dependencies, keys, leaves, compute)
    closures = [_closure(dependencies, key) for key in keys]
    if _repetition(dependencies, closures, leaves) > _MAX_REPETITION:
        return CutGraph(keys, None, graph)
    chunks = [
        LazyChunk({task: graph[task] for task in closure}, key)
        for key, closure in zip(keys, closures, strict=True)
    ]
    return CutGraph(keys, chunks, graph)


def _repetition(
    dependencies: Mapping[Key, list[Key]], closures: list[set[Key]], leaves: set[Key]
) -> float:
    """How often the tasks that others begin with would run, on average, in separate blocks.

    Those are the reads, where there are any; no task is part of more blocks than
    the tasks it begins with.
    """
    uses = Counter(key for closure in closures for key in closure - leaves)
    first = [key for key in uses if leaves.issuperset(dependencies[key])]
    return sum(uses[key] for key in first) / max(1, len(first))


def _if_small(value: Any) -> Any:
    """Return the value, or None where it is too large to travel with every block."""
    return value if sizeof(value) <= _CONSTANT_BYTES else None


def _insert_constants(
    graph: Mapping[Key, Any],
    dependencies: Mapping[Key, list[Key]],
    keys: list[Key],
    leaves: set[Key],
    compute: Callable[[Mapping[Key, Any], list[Key]], list[Any]],
) -> tuple[dict[Key, Any], dict[Key, list[Key]]]:
    """Replace tasks that most blocks refer to by their values."""
    ownership = _Ownership(dependencies, keys)
    enough = max(2, _CONSTANT_SHARE * len(keys))
    constants = [
        key for key, users in ownership.users.items() if users >= enough and key not in leaves
    ]
    if not constants:
        return dict(graph), dict(dependencies)
    probes: dict[Key, Any] = {
        ("daskclust-constant", i): (_if_small, key) for i, key in enumerate(constants)
    }
    values = compute({**graph, **probes}, list(probes))
    replaced = dict(graph)
    for key, value in zip(constants, values, strict=True):
        if value is not None:
            replaced[key] = value
            leaves.add(key)
    culled, _ = cull(replaced, keys)
    # `cull` leaves values alone that are no tasks, so constants have no dependencies.
    return culled, {
        key: [] if key in leaves else list(get_dependencies(culled, key)) for key in culled
    }
