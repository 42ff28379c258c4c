"""Check that blocks fit in worker memory, before any of them is read."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dask
import numpy as np
import psutil
from dask.utils import format_bytes

from daskclust.core.engine.private_api import WorkerInfo, worker_infos
from daskclust.core.engine.resilient_tasks import Slot, Task, gather
from daskclust.core.engine.wait_for_workers import workers_of
from daskclust.exceptions import MemoryPlanError

#: Dask's settings of worker memory, as fractions of the limit; False disables one.
_MEMORY_SETTINGS = "distributed.worker.memory"
#: Fraction of the limit that is used if Dask has no setting, or the worker no limit.
_DEFAULT_TERMINATE = 0.95
#: Minimum bytes of a worker with all imports (about 300 MiB) and all kernels (about 120 MiB), which
#: a new worker loads later and never frees.
_MIN_WORKER_BYTES = 420 * 2**20
#: Minimum bytes of a worker that also reads and writes Parquet.
_MIN_PARQUET_WORKER_BYTES = _MIN_WORKER_BYTES + 100 * 2**20


@dataclass(frozen=True)
class WorkerMemory:
    """Memory of one worker, in bytes.

    `used` is the memory of the process with all imports and kernels, without the `results`, which
    can be moved to disk.  A worker pauses above the fraction `pause` of its limit (0: never).
    A `strict` worker is killed above the fraction `terminate`.
    """

    address: str
    n_threads: int
    limit: int
    used: int
    results: int = 0
    strict: bool = True
    pause: float = 0.8
    terminate: float = _DEFAULT_TERMINATE

    @property
    def free(self) -> int:
        return max(0, int(self.terminate * self.limit) - self.used)

    def limit_for(self, need: int) -> int:
        """Return the memory limit (a multiple of 16 MiB) that leaves `need` bytes free."""
        limit = (self.used + need) / self.terminate
        if self.pause:
            limit = max(limit, self.used / self.pause)
        return math.ceil(limit / (16 * 2**20)) * 16 * 2**20


@dataclass(frozen=True)
class _Process:
    """Memory of a worker process, measured on the worker after it has imported this package."""

    address: str
    pid: int
    used: int
    available: int
    shares: Mapping[str, float]

    @classmethod
    def here(cls) -> _Process:
        from distributed import get_worker

        shares = {
            name: float(dask.config.get(f"{_MEMORY_SETTINGS}.{name}", False) or 0.0)
            for name in ("target", "spill", "pause", "terminate")
        }
        address, used = str(get_worker().address), int(psutil.Process().memory_info().rss)
        return cls(address, os.getpid(), used, psutil.virtual_memory().available, shares)


def measure(client: Any) -> tuple[dict[str, int], list[WorkerMemory]]:
    """Return the threads of each worker, and the memory of the workers that answered.

    Each worker gets a small task.  If the cluster has no workers, the task starts some, or waits.
    """
    slots = [Slot(1, address) for address in workers_of(client)] or [Slot(1, None)]
    tasks = [Task("memory", _Process.here, (), slot).submit(client) for slot in slots]
    answers: list[_Process] = gather(client, "the measuring of memory", tasks)
    processes = {process.address: process for process in answers}
    threads = workers_of(client)
    infos = worker_infos(client)
    workers, seen = [], set()
    measured = [address for address in threads if address in processes and address in infos]
    shared = sum(1 for address in measured if not infos[address].limit)
    for address in measured:
        process = processes[address]
        same_process = process.pid in seen
        workers.append(
            _worker_memory(address, infos[address], process, max(1, shared), same_process)
        )
        seen.add(process.pid)
    return threads, workers


def _worker_memory(
    address: str, info: WorkerInfo, process: _Process, shared: int, same_process: bool
) -> WorkerMemory:
    results = min(info.managed, process.used)
    needed = max(process.used - results, _MIN_WORKER_BYTES)
    if not info.limit:
        # Workers without a limit share the free memory of the machine, which also holds results.
        rest = process.available // shared
        return WorkerMemory(
            address, info.n_threads, process.used + rest, needed, 0, not same_process, pause=0.0
        )
    shares = process.shares
    if not shares["target"] and not shares["spill"]:
        needed, results = needed + results, 0  # results cannot move to disk
    strict = info.watched and bool(shares["terminate"])
    terminate = shares["terminate"] or _DEFAULT_TERMINATE
    return WorkerMemory(
        address, info.n_threads, info.limit, needed, results, strict, shares["pause"], terminate
    )


def free_memory(workers: list[WorkerMemory]) -> float:
    return float(sum(max(0, worker.limit - worker.used - worker.results) for worker in workers))


def bytes_at_once(n_rows: int, row_bytes: float, tile: int, read: int = 0) -> tuple[int, int]:
    """Return the bytes that a thread needs at once, and how many of them only the reading needs.

    A thread works on one block while it reads the next.  `tile` is the size of a converted tile in
    bytes, 0 without conversion.  `read` is the size of the largest array that is read to get a
    block.
    """
    block = math.ceil(n_rows * row_bytes)
    only_read = max(0, read - block)
    return 2 * block + only_read + tile, only_read


def planned(limit: float, persisted: float) -> WorkerMemory:
    """Return a future worker of one thread that will hold `persisted` bytes of persisted data."""
    return WorkerMemory("", 1, int(limit), _MIN_PARQUET_WORKER_BYTES + int(persisted))


def check_blocks(
    workers: list[WorkerMemory],
    n_rows: int,
    row_bytes: float,
    tile: int,
    n_groups: int,
    read: int = 0,
) -> None:
    """Raise MemoryPlanError if :func:`bytes_at_once` do not fit; a pass has `n_groups` tasks.

    A pass needs more memory than this, so the check never rejects data that would fit.
    """
    bytes_per_thread, only_read = bytes_at_once(n_rows, row_bytes, tile, read)
    tasks_per_worker = math.ceil(n_groups / max(1, len(workers)))
    for worker in sorted(workers, key=lambda worker: worker.free / max(1, worker.n_threads)):
        busy = max(1, min(worker.n_threads, tasks_per_worker))
        need = busy * bytes_per_thread
        if need <= worker.free or not worker.strict:
            continue
        if busy * only_read > worker.free // 2:
            raise MemoryPlanError(
                f"The input does not fit worker {worker.address}: {busy} thread(s) at a time read "
                f"arrays of {format_bytes(read)} each, to get blocks of {n_rows} rows. "
                f"{format_bytes(worker.free)} of its {format_bytes(worker.limit)} are free. A "
                "rechunk does not help: use smaller chunks in the store, or "
                f"{'; or '.join(_remedies(worker, need, busy))}."
            )
        fitting = int((worker.free // busy - tile) / (2 * row_bytes))
        advice = _remedies(worker, need, busy)
        if fitting >= 1:
            advice.insert(0, f"X = X.rechunk({{0: {fitting}}}), or smaller chunks in the store")
        raise MemoryPlanError(
            f"Blocks do not fit worker {worker.address}: {busy} thread(s) at a time hold two "
            f"blocks of {n_rows} rows of {row_bytes:.0f} bytes, {format_bytes(need)} in all. "
            f"The process itself takes {format_bytes(worker.used)} of its "
            f"{format_bytes(worker.limit)}, and it is killed at {worker.terminate:.0%}, which "
            f"leaves {format_bytes(worker.free)}. Use {'; or '.join(advice)}."
        )


def _larger(worker: WorkerMemory, need: int) -> str:
    return f"a memory_limit of at least {worker.limit_for(need) >> 20} MiB per worker"


def _remedies(worker: WorkerMemory, need: int, busy: int) -> list[str]:
    advice = [_larger(worker, need)]
    return [*advice, "fewer threads per worker"] if busy > 1 else advice


@dataclass(frozen=True)
class MemoryPlan:
    """Memory of a pass; each thread needs `block` bytes for blocks, 0 if they are persisted."""

    workers: list[WorkerMemory]
    n_groups: int
    block: int = 0
    merged: int = 8

    def check(self, name: str, partial: int, state: int) -> None:
        """Raise MemoryPlanError if a pass with these sizes of partial and state does not fit.

        Each thread holds the running partial, the partial of a block and their sum.  A task that
        merges partials holds all of them.
        """
        tasks_per_worker = math.ceil(self.n_groups / max(1, len(self.workers)))
        n_merged = self.merged + 1 if self.n_groups > self.merged else 0
        for worker in self.workers:
            busy = max(1, min(worker.n_threads, tasks_per_worker))
            need = max(busy * (self.block + 3 * partial), n_merged * partial) + state
            if need <= worker.free or not worker.strict:
                continue
            raise MemoryPlanError(
                f"The pass {name!r} does not fit worker {worker.address}: {busy} thread(s) need "
                f"{format_bytes(need)} (a partial result has {format_bytes(partial)}, "
                f"the state {format_bytes(state)}), and {format_bytes(worker.free)} of the "
                f"worker's {format_bytes(worker.limit)} are free. Use "
                f"fewer clusters, components or features; or "
                f"{'; or '.join(_remedies(worker, need, busy))}."
            )


#: Maximum number of chunks whose reads are examined; more chunks would cost too much time.
_MAX_EXAMINED = 64


def largest_read(graphs: Sequence[Mapping[Any, Any]]) -> int:
    """Return the bytes of the largest array that is read at once, according to the metadata."""
    step = max(1, len(graphs) // _MAX_EXAMINED)
    return max((_read_by(graph) for graph in graphs[::step]), default=0)


def _read_by(graph: Mapping[Any, Any]) -> int:
    stores: list[Any] = []
    slices: list[tuple[slice, ...]] = []
    _search(graph, stores, slices, 12)
    largest = 0
    for store in stores:
        shape, itemsize = tuple(store.shape), np.dtype(store.dtype).itemsize
        chunk = getattr(getattr(store, "array", store), "chunks", None)
        if isinstance(chunk, tuple) and all(isinstance(size, int) for size in chunk):
            clipped = (min(size, length) for size, length in zip(chunk, shape, strict=False))
            largest = max(largest, math.prod(clipped) * itemsize)
        for index in slices:
            if len(index) == len(shape):
                sizes = (len(range(*s.indices(n))) for s, n in zip(index, shape, strict=True))
                largest = max(largest, math.prod(sizes) * itemsize)
    return largest


def _search(value: Any, stores: list[Any], slices: list[tuple[slice, ...]], depth: int) -> None:
    """Collect stored arrays and slices from the arguments of tasks."""
    if isinstance(value, np.ndarray) or depth < 0:
        return
    if isinstance(getattr(value, "shape", None), tuple) and hasattr(value, "__getitem__"):
        if isinstance(getattr(value, "dtype", None), np.dtype):
            stores.append(value)
    elif isinstance(value, tuple) and value and all(isinstance(s, slice) for s in value):
        slices.append(value)
    elif isinstance(value, Mapping):
        for item in value.values():
            _search(item, stores, slices, depth - 1)
    elif isinstance(value, list | tuple):
        for item in value:
            _search(item, stores, slices, depth - 1)
    else:
        # Task objects of Dask and wrappers of a stored array.
        for name in ("args", "kwargs", "value", "array"):
            inner = getattr(value, name, None)
            if inner is not None and not callable(inner):
                _search(inner, stores, slices, depth - 1)
