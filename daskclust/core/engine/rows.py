"""The interface of estimators to the rows of a data set, through which they run passes.

An executor maps functions over bound groups: in this process, on a local Dask scheduler or on a
cluster.  A call is one pass and one blocking round trip.  The overhead does not grow with the
number of blocks, because a group of blocks is one task and is bound only once.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter
from typing import Any, Self, cast
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Floats, Ints
from daskclust.core.engine.blocks import (
    READ,
    Block,
    Group,
    Prepare,
    Range,
    collect_rows,
    fold,
    joined_ranges,
    merge,
    over_blocks,
    overlap,
    working_dtype,
)
from daskclust.core.engine.memory import MemoryPlan
from daskclust.core.engine.private_api import itself, sending_once, submit_graph, task
from daskclust.core.engine.resilient_tasks import Slot, Task, WorkerSlots, gather, gather_futures
from daskclust.core.engine.threads import showing_tasks, side_by_side
from daskclust.core.engine.unchanged import FirstTotals
from daskclust.core.kernels.nearest.assign import SEGMENT
from daskclust.core.kernels.sparse import concatenated
from daskclust.core.progress import begin_pass
from daskclust.core.reduction import Partial, Reduction, RowBlock


@dataclass
class PassRecord:
    """Number of passes over the same data, and the totals of the first one, for all views."""

    passes: int = 0
    first_totals: FirstTotals = field(default_factory=FirstTotals)


@dataclass
class Carry:
    """Optional cache per block, passed from one pass to the next.  It never changes results."""

    cache: Any = None


class Rows(ABC):
    """Access to the rows of a data set; `lengths` of chunks include empty ones."""

    pass_record: PassRecord
    lengths: tuple[int, ...]
    n_rows: int
    n_features: int
    #: Precision of the distance work: float32 or float64.
    dtype: np.dtype[Any]
    #: True if only the values that are not zero are stored.
    is_sparse: bool = False

    @property
    def dashboard(self) -> str | None:
        return None

    @property
    def passes(self) -> int:
        return self.pass_record.passes

    @passes.setter
    def passes(self, count: int) -> None:
        self.pass_record.passes = count

    @abstractmethod
    def can_keep(self, bytes_a_row: int) -> bool: ...

    @abstractmethod
    def reduce(self, reduction: Reduction, state: Any, carry: Carry | None = None) -> Any:
        """Run one pass and return the finalized result; the pass updates `carry`."""

    @abstractmethod
    def only(self, blocks: Sequence[int]) -> Rows: ...

    @abstractmethod
    def map(self, name: str, function: Callable[[RowBlock], NDArray[Any]]) -> NDArray[Any]:
        """Run one pass and return one result per row, in order; the client holds all of them."""

    @abstractmethod
    def take(self, rows: Ints) -> tuple[Any, Floats]:
        """Return values and weights of rows, given by (sorted, unique) global numbers.

        The values are an array, or ``SparseRows`` if the rows are sparse.
        """

    @abstractmethod
    def excluding(self, rows: Ints) -> Rows:
        """Return the same data without some (sorted, unique) rows in sums."""

    @abstractmethod
    def transformed(self, transform: Any) -> Rows:
        """Return the same data with ``transform`` applied to each block; it has ``n_columns``."""


class OpenRows(Rows):
    def __init__(
        self,
        executor: Executor,
        dtype: np.dtype[Any],
        lengths: tuple[int, ...],
        n_features: int,
        keepable: float = np.inf,
        *,
        sparse: bool = False,
    ) -> None:
        self._executor = executor
        self._prepare = Prepare(working_dtype(dtype), n_columns=n_features, sparse=sparse)
        self.is_sparse = sparse
        self.lengths = lengths
        self.n_rows = sum(lengths)
        self.n_features = n_features
        self.dtype = self._prepare.dtype
        self.pass_record = PassRecord()
        self._keepable = keepable

    @property
    def dashboard(self) -> str | None:
        client = getattr(self._executor, "client", None)
        return None if client is None else client.dashboard_link

    def can_keep(self, bytes_a_row: int) -> bool:
        # The old and the new values exist at the same time.  If the data are much larger than
        # memory, nothing is kept and the values are recomputed.
        return 2 * bytes_a_row * self.n_rows <= self._keepable

    def reduce(self, reduction: Reduction, state: Any, carry: Carry | None = None) -> Any:
        carry = Carry() if carry is None else carry
        begin_pass(reduction.name, self.pass_record)
        cache, carry.cache = carry.cache, None
        partial, carry.cache = self._executor.reduce(self._prepare, reduction, state, cache)
        self.compare(partial.pop(READ, None))
        return reduction.finalize(partial, state)

    def compare(self, totals: NDArray[Any] | None) -> None:
        """Compare totals of blocks with the totals of the first pass over these rows."""
        if totals is not None and len(totals):
            self.pass_record.first_totals.check(totals, self._prepare.dtype)

    def map(self, name: str, function: Callable[[RowBlock], NDArray[Any]]) -> NDArray[Any]:
        begin_pass(name, self.pass_record)
        by_group = self._executor.map(name, over_blocks, self._prepare, function)
        chunks = sorted((chunk for own in by_group for chunk in own), key=itemgetter(0))
        return np.concatenate([results for _, results in chunks])

    def take(self, rows: Ints) -> tuple[Any, Floats]:
        # Reads only the chunks with these rows, or all chunks if blocks share costly tasks.
        begin_pass("take", self.pass_record)
        fetched = self._executor.map("take", collect_rows, self._prepare, rows)
        fetched = [group_rows for group_rows in fetched if len(group_rows[0])]
        if not fetched:
            return np.empty((0, self.n_features), self.dtype), np.empty(0)
        numbers, values, weights, totals = map(concatenated, zip(*fetched, strict=True))
        self.compare(totals)
        # Groups of in-memory arrays are in row order already.
        if (numbers[1:] < numbers[:-1]).any():
            order = np.argsort(numbers, kind="stable")
            values, weights = values[order], weights[order]
        return values, weights

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """Bounds of the units of a partial pass: chunks, or ``SEGMENT`` rows of a NumPy array."""
        if len(self.lengths) > 1:
            ends = np.cumsum(self.lengths).tolist()
            return list(zip([0, *ends[:-1]], ends, strict=True))
        starts = range(0, self.n_rows, SEGMENT)
        return [(start, min(start + SEGMENT, self.n_rows)) for start in starts]

    def only(self, blocks: Sequence[int]) -> Rows:
        """Return a view of some :attr:`blocks`, by position, whose passes read only these blocks.

        Rows keep their numbers.  Passes count for the complete data.  Block caches belong to the
        view.
        """
        wanted = sorted({int(block) for block in blocks})
        bounds = self.blocks
        if not wanted or wanted[0] < 0 or wanted[-1] >= len(bounds):
            raise ValueError(
                f"blocks must contain positions in Rows.blocks, integers in [0, {len(bounds)}), at "
                f"least one, got {list(blocks)}."
            )
        ranges = joined_ranges([bounds[block] for block in wanted])
        lengths = tuple(bounds[block][1] - bounds[block][0] for block in wanted)
        executor = self._executor.only(ranges)
        return self._view(_executor=executor, lengths=lengths, n_rows=sum(lengths))

    def excluding(self, rows: Ints) -> Rows:
        if not len(rows):
            return self
        return self._view(_executor=self._executor.excluding(np.asarray(rows, dtype=np.int64)))

    def transformed(self, transform: Any) -> Rows:
        prepare = replace(self._prepare, transform=transform)
        n_features = getattr(transform, "n_columns", self.n_features)
        return self._view(_prepare=prepare, n_features=n_features)

    def _view(self, **changes: Any) -> OpenRows:
        view = copy(self)
        vars(view).update(changes)
        return view


#: Maximum number of partials that one task, or the client, merges.
_SPLIT_EVERY = 8
#: Size in bytes from which an argument of all tasks is sent to the cluster once, not per task.
_SENT_ONCE = 2**20


class Executor(ABC):
    @abstractmethod
    def map(self, name: str, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return ``function(group, *arguments)`` for each group, in order."""

    @abstractmethod
    def reduce(
        self, prepare: Prepare, reduction: Reduction, state: Any, carry: Any = None
    ) -> tuple[Partial, Any]:
        """Reduce all groups to one partial; the carry is an opaque object."""

    @abstractmethod
    def excluding(self, rows: Ints) -> Executor: ...

    @abstractmethod
    def only(self, ranges: Sequence[Range]) -> Executor: ...


@dataclass(frozen=True, eq=False)
class _GroupExecutor(Executor):
    groups: list[Group]

    @abstractmethod
    def _run(self, name: str, calls: Sequence[Callable[[], Any]]) -> list[Any]: ...

    def map(self, name: str, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        return self._run(name, [partial(function, group, *arguments) for group in self.groups])

    def reduce(
        self, prepare: Prepare, reduction: Reduction, state: Any, carry: Any = None
    ) -> tuple[Partial, Any]:
        carries = [None] * len(self.groups) if carry is None else carry
        calls = [
            partial(fold, group, prepare, reduction, state, group_carry)
            for group, group_carry in zip(self.groups, carries, strict=True)
        ]
        results = self._run(reduction.name, calls)
        merged = merge(reduction, state, [partial for partial, _ in results])
        return merged, [group_carry for _, group_carry in results]

    def excluding(self, rows: Ints) -> Self:
        return replace(self, groups=[group.excluding(rows) for group in self.groups])

    def only(self, ranges: Sequence[Range]) -> Self:
        selected = [group.only(ranges) for group in self.groups]
        return replace(self, groups=[group_rows for group_rows in selected if group_rows.blocks])


class ThreadExecutor(_GroupExecutor):
    """Groups of in-memory rows, one per thread; for NumPy input, without Dask."""

    def _run(self, name: str, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        return side_by_side(calls)


@dataclass(frozen=True, eq=False)
class LocalExecutor(_GroupExecutor):
    """Groups on the user's local scheduler: synchronous, threads, processes or a callable."""

    get: Callable[..., Any]

    def _run(self, name: str, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        token = uuid4().hex
        graph = {(f"daskclust-{name}-{token}", i): task(call) for i, call in enumerate(calls)}
        with showing_tasks(f"the pass {name!r}"):
            return list(self.get(graph, list(graph)))


def _fold_chunk(
    block: Block, call: Callable[..., Any], x: Any, weight: Any = None, carry: Any = None
) -> Any:
    group = Group([Block(block.start, block.size, x, weight, block.skip, computed=True)])
    return call(group) if carry is None else call(group, carry=carry)


def _merge_folded(reduction: Reduction, state: Any, folded: Sequence[Any]) -> Partial:
    return merge(reduction, state, [partial for partial, _ in folded])


@dataclass(frozen=True, eq=False)
class GraphExecutor(Executor):
    """One task per block inside the array's graph; inputs that blocks share are computed once."""

    blocks: list[Block]
    keys: list[Any]
    weight_keys: list[Any] | None
    graph: Mapping[Any, Any]
    get: Callable[..., Any]
    client: Any = None

    def _tasks(
        self, name: str, call: Callable[..., Any], carry: list[Any] | None
    ) -> dict[Any, Any]:
        token = uuid4().hex
        tasks = {}
        for i, block in enumerate(self.blocks):
            arguments = [self.keys[i], None if self.weight_keys is None else self.weight_keys[i]]
            if carry is not None:
                arguments.append(carry[i])
            tasks[(f"daskclust-{name}-{token}", i)] = task(
                partial(_fold_chunk, block, call), *arguments
            )
        return tasks

    def map(self, name: str, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        tasks = self._tasks(name, partial(_call_first, function, arguments), None)
        return self._run(name, {**self.graph, **tasks}, list(tasks))

    def _run(self, name: str, graph: Mapping[Any, Any], keys: list[Any]) -> list[Any]:
        if self.client is None:
            with showing_tasks(f"the pass {name!r}"):
                return list(self.get(graph, keys))
        futures = submit_graph(self.client, graph, keys)
        return gather_futures(self.client, f"the pass {name!r}", futures)

    def reduce(
        self, prepare: Prepare, reduction: Reduction, state: Any, carry: Any = None
    ) -> tuple[Partial, Any]:
        if not self.blocks:
            return reduction.identity(state), []
        call = partial(fold, prepare=prepare, reduction=reduction, state=state)
        tasks = self._tasks(reduction.name, call, carry)
        graph = {**self.graph, **tasks}
        folded = list(tasks)
        level = []
        for folded_key in folded:
            level.append((f"{folded_key[0]}-partial", folded_key[1]))
            graph[level[-1]] = task(itemgetter(0), folded_key)
        depth = 0
        while len(level) > 1:
            name = f"{folded[0][0]}-merge{depth}"
            batches = [level[i : i + _SPLIT_EVERY] for i in range(0, len(level), _SPLIT_EVERY)]
            level = []
            for i, batch in enumerate(batches):
                graph[(name, i)] = task(partial(merge, reduction, state), batch)
                level.append((name, i))
            depth += 1
        if not reduction.carries:
            return self._run(reduction.name, graph, [level[0]])[0], None
        # Results without their partials: the block caches.
        carry_keys = [(f"{name}-cache", i) for name, i in folded]
        graph.update(
            {
                key: task(itemgetter(1), folded_key)
                for key, folded_key in zip(carry_keys, folded, strict=True)
            }
        )
        if self.client is None:
            merged, *new_carries = self.get(graph, [level[0], *carry_keys])
            return merged, new_carries
        future, *new_carries = submit_graph(self.client, graph, [level[0], *carry_keys])
        return gather_futures(self.client, f"the pass {reduction.name!r}", [future])[0], new_carries

    def excluding(self, rows: Ints) -> GraphExecutor:
        return replace(self, blocks=Group(self.blocks).excluding(rows).blocks)

    def only(self, ranges: Sequence[Range]) -> GraphExecutor:
        bounds = [(block.start, block.start + block.size) for block in self.blocks]
        selected = [i for i, bound in enumerate(bounds) if overlap([bound], ranges)]
        return replace(
            self,
            blocks=[self.blocks[i] for i in selected],
            keys=[self.keys[i] for i in selected],
            weight_keys=self.weight_keys and [self.weight_keys[i] for i in selected],
        )


def _call_first(function: Callable[..., Any], arguments: tuple[Any, ...], group: Group) -> Any:
    return function(group, *arguments)


def bind_group(blocks: list[Block], packs: list[Any], weights: list[Any] | None) -> Group:
    """Join blocks with values on the worker, by reference; a pack has one or more chunks."""
    values = [x for pack in packs for x in (pack if isinstance(pack, list) else [pack])]
    return Group(
        [
            Block(
                b.start, b.size, x, None if weights is None else weights[i], b.skip, computed=True
            )
            for i, (b, x) in enumerate(zip(blocks, values, strict=True))
        ]
    )


def _n_bytes(value: Any) -> int:
    """Return the pickled size of a value, without copying its arrays."""
    buffers: list[pickle.PickleBuffer] = []
    size = len(pickle.dumps(value, protocol=5, buffer_callback=buffers.append))
    return size + sum(buffer.raw().nbytes for buffer in buffers)


@dataclass(frozen=True, eq=False)
class ClusterExecutor(Executor):
    """Groups bound to the workers of a cluster: a task with references to blocks on its worker.

    Tasks are pure: if a worker is lost, its blocks are computed again elsewhere.
    """

    worker_slots: WorkerSlots
    groups: list[Task]
    #: Rows of each group.
    ranges: Sequence[Sequence[Range]]
    plan: MemoryPlan | None = None

    @property
    def client(self) -> Any:
        return self.worker_slots.client

    @property
    def workers(self) -> list[str | None]:
        return [None if task.slot is None else task.slot.worker for task in self.groups]

    def _submit(
        self, name: str, function: Callable[..., Any], *arguments: Any, slot: Slot | None = None
    ) -> Task:
        return Task(name, function, arguments, slot).submit(self.client)

    def _gather(self, name: str, tasks: list[Task], watched: Sequence[Task] = ()) -> list[Any]:
        return gather(self.client, f"the pass {name!r}", tasks, watched, self.worker_slots.slots)

    def _to_send(self, value: Any) -> Any:
        if _n_bytes(value) < _SENT_ONCE:
            return value
        # A task that returns it, unlike scattered data, can run again if a worker is lost.
        with sending_once():
            return self._submit("state", itself, value)

    def map(self, name: str, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        self.worker_slots.settle(self.groups)
        arguments = tuple(self._to_send(argument) for argument in arguments)
        tasks = [
            self._submit(name, function, group, *arguments, slot=group.slot)
            for group in self.groups
        ]
        return self._gather(name, tasks)

    def reduce(
        self, prepare: Prepare, reduction: Reduction, state: Any, carry: Any = None
    ) -> tuple[Partial, Any]:
        if self.plan is not None:
            size = reduction.nbytes(state)
            if size > _SENT_ONCE:
                self.plan.check(reduction.name, size, _n_bytes(state))
        self.worker_slots.settle(self.groups)
        sent = self._to_send(state)
        carries = [None] * len(self.groups) if carry is None else carry
        folded = [
            self._submit(
                reduction.name, fold, group, prepare, reduction, sent, group_carry, slot=group.slot
            )
            for group, group_carry in zip(self.groups, carries, strict=True)
        ]
        if not reduction.carries and len(folded) <= _SPLIT_EVERY:
            results = self._gather(reduction.name, folded)
            return merge(reduction, state, [result[0] for result in results]), None
        name = f"{reduction.name}-merge"
        level, join = folded, cast("Callable[..., Partial]", _merge_folded)
        if reduction.carries:
            level = [self._submit(name, itemgetter(0), task, slot=task.slot) for task in folded]
            join = merge
        while len(level) > _SPLIT_EVERY:
            batches = [level[i : i + _SPLIT_EVERY] for i in range(0, len(level), _SPLIT_EVERY)]
            level = [self._submit(name, join, reduction, sent, batch) for batch in batches]
            join = merge
        partials = self._gather(reduction.name, level, folded)
        merged = merge(reduction, state, partials)
        if not reduction.carries:
            return merged, None
        # The block caches are separate from the partials, so that these can be released.
        name = f"{reduction.name}-cache"
        carry_tasks = [self._submit(name, itemgetter(1), task, slot=task.slot) for task in folded]
        for old_task in (*folded, *(carry or ())):
            # If a worker is lost, these results are computed again.
            old_task.release()
        return merged, carry_tasks

    def excluding(self, rows: Ints) -> ClusterExecutor:
        self.worker_slots.settle(self.groups)
        rows = self._to_send(rows)
        groups = [
            self._submit("bind", Group.excluding, group, rows, slot=group.slot)
            for group in self.groups
        ]
        return replace(self, groups=groups)

    def only(self, ranges: Sequence[Range]) -> ClusterExecutor:
        self.worker_slots.settle(self.groups)
        groups = [
            self._submit("bind", Group.only, group, ranges, slot=group.slot)
            for group, group_ranges in zip(self.groups, self.ranges, strict=True)
            if overlap(group_ranges, ranges)
        ]
        return replace(self, groups=groups, ranges=[list(ranges) for _ in groups])
