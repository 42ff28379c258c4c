"""Whether blocks fit the workers, found out before the first of them is read."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import dask
import numpy as np
import psutil
from dask.utils import format_bytes

from daskclust.core.engine.private_api import WorkerInfo, worker_infos
from daskclust.core.engine.resilient_tasks import Slot, Task, gather
from daskclust.core.engine.wait_for_workers import workers_of
from daskclust.exceptions import MemoryPlanError

#: Dask's settings of a worker's memory, as shares of its limit; False means never.
_SHARES = "distributed.worker.memory"
#: Share that is used where there is no limit, or no setting.
_DEADLY = 0.95
#: Bytes by which a worker grows when it first runs kernels: they are loaded, and compiled where
#: no cache has them, and neither is ever given back.  Measured: 60 MiB and 130.
_KERNELS = 2**27
#: Bytes of a worker with all imports, before kernels, where none is there to be measured: 300 MiB,
#: and 90 where it reads and writes Parquet.
_IMPORTS = 400 * 2**20
#: Times that new workers are measured before a fit begins without.
_ROUNDS = 3


@cache
def _at_first() -> int:
    return int(psutil.Process().memory_info().rss)


@dataclass(frozen=True)
class WorkerMemory:
    """Memory of one worker, in bytes.

    `used` is the process with all its imports and kernels, without the results `held` that can be
    moved to disk. A `strict` worker is ended above its limit; above the shares `pause` (0: none)
    and `terminate` of it it takes no tasks, and is ended.
    """

    address: str
    n_threads: int
    limit: int
    used: int
    held: int = 0
    strict: bool = True
    pause: float = 0.8
    terminate: float = _DEADLY

    @property
    def free(self) -> int:
        return max(0, int(self.terminate * self.limit) - self.used)

    def limit_for(self, need: int) -> int:
        """Return the bytes of a limit, in steps of 16 MiB, that leaves so many."""
        most = (self.used + need) / self.terminate
        if self.pause:
            most = max(most, self.used / self.pause)
        return math.ceil(most / (16 * 2**20)) * 16 * 2**20


@dataclass(frozen=True)
class _Process:
    """A worker's report of its process, which has imported the package to find this class."""

    address: str
    pid: int
    used: int
    at_first: int
    available: int
    shares: Mapping[str, float]

    @classmethod
    def here(cls) -> _Process:
        from distributed import get_worker

        shares = {
            name: float(dask.config.get(f"{_SHARES}.{name}", False) or 0.0)
            for name in ("target", "spill", "pause", "terminate")
        }
        first, used = _at_first(), int(psutil.Process().memory_info().rss)
        address = str(get_worker().address)
        return cls(address, os.getpid(), used, first, psutil.virtual_memory().available, shares)


def measure(client: Any) -> tuple[dict[str, int], list[WorkerMemory]]:
    """Return the threads of each worker that is there now, and the memory of those that answered.

    One small task on each; a cluster without workers starts some for the first, or is waited for.
    """
    found: dict[str, _Process] = {}
    threads = workers_of(client)
    # Each worker that goes meanwhile is started again under another address, or is not.
    for _ in range(_ROUNDS):
        slots = [Slot(1, address) for address in threads if address not in found]
        if threads and not slots:
            break
        tasks = [
            Task("memory", _Process.here, (), slot).submit(client)
            for slot in slots or [Slot(1, None)]
        ]
        answers: list[_Process] = gather(client, "the measuring of memory", tasks)
        found.update((process.address, process) for process in answers)
        threads = workers_of(client)
    infos = worker_infos(client)
    workers, seen = [], set()
    measured = [address for address in threads if address in found and address in infos]
    shared = sum(1 for address in measured if not infos[address].limit)
    for address in measured:
        process = found[address]
        again = process.pid in seen
        workers.append(_worker_memory(address, infos[address], process, max(1, shared), again))
        seen.add(process.pid)
    return threads, workers


def _worker_memory(
    address: str, info: WorkerInfo, process: _Process, shared: int, again: bool
) -> WorkerMemory:
    held = min(info.managed, process.used)
    own = process.used - held
    own += max(0, _KERNELS - max(0, own - process.at_first))
    if not info.limit:
        # Workers without a limit share the machine, whose memory has space for results.
        rest = process.available // shared
        return WorkerMemory(
            address, info.n_threads, process.used + rest, own, 0, not again, pause=0.0
        )
    shares = process.shares
    if not shares["target"] and not shares["spill"]:
        own, held = own + held, 0  # results stay where they are
    strict = info.watched and bool(shares["terminate"])
    terminate = shares["terminate"] or _DEADLY
    return WorkerMemory(
        address, info.n_threads, info.limit, own, held, strict, shares["pause"], terminate
    )


def free_memory(workers: list[WorkerMemory]) -> float:
    return float(sum(max(0, worker.limit - worker.used - worker.held) for worker in workers))


def bytes_at_once(
    n_rows: int, n_columns: int, stored: int, tile: int, read: int = 0
) -> tuple[int, int]:
    """Return the bytes that a thread holds, and those of them that are read and cut away.

    It works on a block while the next is read, both as `stored` (bytes a value), and on a converted
    `tile` (bytes, 0 for none); `read` is the largest array that is read to make a block of it.
    """
    more = max(0, read - n_rows * n_columns * stored)
    return 2 * n_rows * n_columns * stored + more + tile, more


def planned(limit: float, kept: float) -> WorkerMemory:
    """Return a worker of one thread that is not there yet, and will keep so many bytes."""
    return WorkerMemory("", 1, int(limit), _IMPORTS + _KERNELS + int(kept))


def check_blocks(
    workers: list[WorkerMemory],
    n_rows: int,
    n_columns: int,
    stored: int,
    tile: int,
    n_groups: int,
    read: int = 0,
) -> None:
    """Raise where the :func:`bytes_at_once` do not fit; `n_groups` are the tasks of a pass.

    Anything else a pass needs comes on top, so nothing is refused that could have worked.
    """
    each, more = bytes_at_once(n_rows, n_columns, stored, tile, read)
    most = math.ceil(n_groups / max(1, len(workers)))
    for worker in sorted(workers, key=lambda worker: worker.free / max(1, worker.n_threads)):
        busy = max(1, min(worker.n_threads, most))
        need = busy * each
        if need <= worker.free or not worker.strict:
            continue
        if busy * more > worker.free // 2:
            raise MemoryPlanError(
                f"The input does not fit worker {worker.address}: {busy} thread(s) at a time read "
                f"arrays of {format_bytes(read)} each, of which blocks of {n_rows} rows are cut; "
                f"of its {format_bytes(worker.limit)} {format_bytes(worker.free)} are left. A "
                "rechunk does not help: use smaller chunks in the store, or "
                f"{'; or '.join(_remedies(worker, need, busy))}."
            )
        fitting = (worker.free // busy - tile) // (2 * n_columns * stored)
        advice = _remedies(worker, need, busy)
        if fitting >= 1:
            advice.insert(0, f"X = X.rechunk({{0: {fitting}}}), or smaller chunks in the store")
        raise MemoryPlanError(
            f"Blocks do not fit worker {worker.address}: {busy} thread(s) at a time hold two "
            f"blocks of {n_rows} rows and {n_columns} columns each, {format_bytes(need)} in all; "
            f"of its {format_bytes(worker.limit)} the process itself takes "
            f"{format_bytes(worker.used)}, and at {worker.terminate:.0%} it is killed, which "
            f"leaves {format_bytes(worker.free)}. Use {'; or '.join(advice)}."
        )


def _larger(worker: WorkerMemory, need: int) -> str:
    return f"a memory_limit of at least {worker.limit_for(need) >> 20} MiB a worker"


def _remedies(worker: WorkerMemory, need: int, busy: int) -> list[str]:
    advice = [_larger(worker, need)]
    return [*advice, "fewer threads a worker"] if busy > 1 else advice


@dataclass(frozen=True)
class MemoryPlan:
    """Memory for states and partials; each thread holds `block` bytes of blocks, 0 if kept."""

    workers: list[WorkerMemory]
    n_groups: int
    block: int = 0
    merged: int = 8

    def check(self, name: str, partial: int, state: int) -> None:
        """Raise where a pass does not fit whose groups return and are given so many bytes.

        Each thread holds the running partial, that of a block and their sum; a task of the
        tree of merges holds all that it merges.
        """
        most = math.ceil(self.n_groups / max(1, len(self.workers)))
        at_once = self.merged + 1 if self.n_groups > self.merged else 0
        for worker in self.workers:
            busy = max(1, min(worker.n_threads, most))
            need = max(busy * (self.block + 3 * partial), at_once * partial) + state
            if need <= worker.free or not worker.strict:
                continue
            raise MemoryPlanError(
                f"The pass {name!r} does not fit worker {worker.address}: what {busy} thread(s) "
                f"add up takes {format_bytes(need)} (a partial result {format_bytes(partial)}, "
                f"what is given to it {format_bytes(state)}); of the worker's "
                f"{format_bytes(worker.limit)} {format_bytes(worker.free)} are left. Use "
                f"fewer clusters, components or features; or "
                f"{'; or '.join(_remedies(worker, need, busy))}."
            )


#: Chunks whose reads are looked at; more would cost time where there are many.
_LOOKED_AT = 64


def largest_read(graphs: Sequence[Mapping[Any, Any]]) -> int:
    """Return the bytes of the largest array read at once, a chunk of a store, as metadata tell."""
    step = max(1, len(graphs) // _LOOKED_AT)
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
            whole = (min(size, most) for size, most in zip(chunk, shape, strict=False))
            largest = max(largest, math.prod(whole) * itemsize)
        for part in slices:
            if len(part) == len(shape):
                sizes = (len(range(*s.indices(n))) for s, n in zip(part, shape, strict=True))
                largest = max(largest, math.prod(sizes) * itemsize)
    return largest


def _search(value: Any, stores: list[Any], slices: list[tuple[slice, ...]], depth: int) -> None:
    """Find arrays of a store, and what is cut out of them, among what tasks are given."""
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
        # Task objects of Dask, and whatever holds a stored array.
        for name in ("args", "kwargs", "value", "array"):
            inner = getattr(value, name, None)
            if inner is not None and not callable(inner):
                _search(inner, stores, slices, depth - 1)
