"""Whether blocks fit the workers, found out before the first of them is read."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psutil
from dask.utils import format_bytes

from daskclust.engine.dask_surface import WorkerInfo, worker_infos
from daskclust.engine.tasks import Slot, Task, gather
from daskclust.exceptions import MemoryPlanError

__all__ = ["Room", "check_blocks", "free_memory", "measure"]

#: Share of its limit at which a nanny ends a worker.
_DEADLY = 0.95


@dataclass(frozen=True)
class Room:
    """Memory of one worker.

    Parameters
    ----------
    address : str
    n_threads : int
    limit : int
        Bytes that it may use: its limit, or what there is where it has none.
    used : int
        Bytes that it uses whatever it does: the process with all its imports, without
        results, which can be moved to disk.
    held : int
        Bytes of results.
    strict : bool
        Whether more ends it.
    """

    address: str
    n_threads: int
    limit: int
    used: int
    held: int = 0
    strict: bool = True

    @property
    def free(self) -> int:
        """Bytes for what is read."""
        return max(0, int(_DEADLY * self.limit) - self.used)


def _process() -> tuple[int, int, int]:
    """Return the process's number, its bytes and those that its machine still has.

    To find this function, a worker has imported the package with all that it needs.
    """
    process = psutil.Process()
    return os.getpid(), process.memory_info().rss, psutil.virtual_memory().available


def measure(client: Any, threads: Mapping[str, int]) -> list[Room]:
    """Measure what each worker really has left: one small task on each.

    Parameters
    ----------
    client : distributed.Client
    threads : mapping of str to int
        Of each worker.
    """
    slots = [Slot(1, address) for address in threads]
    tasks = [Task("memory", _process, (), slot).submit(client) for slot in slots]
    # Without slots to move: a worker that goes now is not measured where another is.
    found = gather(client, "the measuring of memory", tasks)
    infos = worker_infos(client)
    rooms, seen = [], set()
    shared = sum(1 for address in threads if address in infos and not infos[address].limit)
    for address, (pid, used, available) in zip(threads, found, strict=True):
        info = infos.get(address)
        if info is not None:
            rooms.append(_room(address, info, used, available, max(1, shared), pid in seen))
            seen.add(pid)
    return rooms


def _room(
    address: str, info: WorkerInfo, used: int, available: int, shared: int, again: bool
) -> Room:
    own = max(0, used - info.managed)
    if info.limit:
        return Room(address, info.n_threads, info.limit, own, min(info.managed, used), info.watched)
    # Workers without a limit share the machine, and results there are in nobody's way.
    rest = available // shared
    return Room(address, info.n_threads, used + rest, used, 0, not again)


def free_memory(rooms: list[Room]) -> float:
    """Return the bytes that a cluster may still fill."""
    return float(sum(max(0, room.limit - room.used - room.held) for room in rooms))


def check_blocks(
    rooms: list[Room],
    n_rows: int,
    n_columns: int,
    stored: int,
    worked: int,
    n_groups: int,
) -> None:
    """Raise where the blocks that are in memory at the same time do not fit.

    Each thread works on a block while the next is read: one as it is stored, and
    both in the precision of the distance work, where that is another.  Anything
    else a pass needs comes on top, so nothing is refused that could have worked.

    Parameters
    ----------
    rooms : list of Room
    n_rows, n_columns : int
        Of the largest block.
    stored, worked : int
        Bytes of a value as it is read, and as it is worked on.
    n_groups : int
        Tasks of a pass.

    Raises
    ------
    MemoryPlanError
    """
    row = n_columns * (2 * stored if stored == worked else stored + 2 * worked)
    most = math.ceil(n_groups / max(1, len(rooms)))
    for room in sorted(rooms, key=lambda room: room.free / max(1, room.n_threads)):
        busy = max(1, min(room.n_threads, most))
        need = busy * n_rows * row
        if need <= room.free or not room.strict:
            continue
        fitting = room.free // (busy * row)
        mib = 2**20
        limit = math.ceil((room.used + need) / _DEADLY / (16 * mib)) * 16
        advice = [f"a memory_limit of at least {limit} MiB a worker"]
        if fitting >= 1:
            advice.insert(0, f"X = X.rechunk({{0: {fitting}}}), or smaller chunks in the store")
        if busy > 1:
            advice.append("fewer threads a worker")
        raise MemoryPlanError(
            f"Blocks do not fit worker {room.address}: {busy} thread(s) at a time hold two blocks "
            f"of {n_rows} rows and {n_columns} columns each, {format_bytes(need)} in all; of its "
            f"{format_bytes(room.limit)} the process itself takes {format_bytes(room.used)}, and "
            f"at {_DEADLY:.0%} it is killed, which leaves {format_bytes(room.free)}. Use "
            f"{'; or '.join(advice)}."
        )
