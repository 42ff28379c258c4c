"""Run tasks that survive worker failures, and assign blocks to workers.

Tasks prefer the worker that holds their blocks.  If all workers are lost at once, distributed
keeps these tasks waiting for addresses that never return.  The client therefore submits the
tasks of a lost worker again, on another worker.  Tasks are pure and merged in a fixed order, so
results do not change.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import numpy as np

from daskclust.core.engine.blocks import Block
from daskclust.core.engine.private_api import retry
from daskclust.core.engine.wait_for_workers import (
    ClusterWait,
    in_thread,
    scheduler_lost,
    workers_die,
    workers_of,
)
from daskclust.core.progress import advance


def deal_out(blocks: list[Block], n_groups: int) -> list[list[Block]]:
    ends = np.cumsum([block.size for block in blocks])
    share = ends[-1] / n_groups if len(ends) else 1.0
    which = np.minimum((ends - 1) // max(share, 1.0), n_groups - 1).astype(int)
    return [[blocks[i] for i in np.flatnonzero(which == group)] for group in np.unique(which)]


def even_out(blocks_of: dict[Any, list[Any]], threads: Mapping[str, int]) -> None:
    """Move blocks, or slots, from workers with more rows per thread to workers with fewer.

    >>> blocks = {"a": [Block(10 * i, 10, None) for i in range(4)], "b": []}
    >>> even_out(blocks, {"a": 1, "b": 1})
    >>> [[block.start for block in of_worker] for of_worker in blocks.values()]
    [[0, 10], [30, 20]]
    """
    workers = [worker for worker, count in threads.items() if count > 0]
    load = {w: sum(block.size for block in blocks_of.get(w, ())) / threads[w] for w in workers}
    while workers:
        full, free = max(workers, key=load.__getitem__), min(workers, key=load.__getitem__)
        size = blocks_of[full][-1].size if blocks_of.get(full) else 0
        after = load[free] + size / threads[free]
        if size == 0 or after >= load[full]:
            return
        blocks_of.setdefault(free, []).append(blocks_of[full].pop())
        load[full] -= size / threads[full]
        load[free] = after


def reassign(slots: Sequence[Slot], threads: Mapping[str, int]) -> None:
    """Assign slots evenly to the current workers; slots stay where possible.

    >>> from types import SimpleNamespace
    >>> slots = [SimpleNamespace(size=5, worker=worker) for worker in ("gone", "a", "a")]
    >>> reassign(slots, {"a": 1, "b": 2})
    >>> [slot.worker for slot in slots]
    ['b', 'a', 'b']
    """
    threads = {worker: count for worker, count in threads.items() if count > 0}
    if not threads:
        return
    slots_of: dict[Any, list[Slot]] = {worker: [] for worker in threads}
    load = dict.fromkeys(threads, 0.0)
    unassigned = []
    for slot in slots:
        if slot.worker is not None and slot.worker in slots_of:
            slots_of[slot.worker].append(slot)
            load[slot.worker] += slot.size / threads[slot.worker]
        else:
            unassigned.append(slot)
    for slot in unassigned:
        least_loaded = min(load, key=load.__getitem__)
        slots_of[least_loaded].append(slot)
        load[least_loaded] += slot.size / threads[least_loaded]
    even_out(slots_of, threads)
    for worker, assigned in slots_of.items():
        for slot in assigned:
            slot.worker = worker


def by_location(
    blocks: list[Block], futures: list[Any], who_has: Mapping[Any, Any], threads: Mapping[str, int]
) -> list[tuple[str | None, list[Block]]]:
    """Group blocks by the worker that holds them, one group per thread, in row order."""
    blocks_of: dict[Any, list[Block]] = {}
    for block, future in zip(blocks, futures, strict=True):
        holders = who_has.get(future.key) or [None]
        blocks_of.setdefault(next(iter(holders)), []).append(block)
    even_out(blocks_of, threads)
    groups: list[tuple[str | None, list[Block]]] = []
    for worker, own_blocks in blocks_of.items():
        n_groups = threads.get(worker, 1) if worker is not None else 1
        own_blocks = sorted(own_blocks, key=lambda block: block.start)
        groups.extend((worker, part) for part in deal_out(own_blocks, max(1, n_groups)))
    return sorted(groups, key=lambda part: part[1][0].start)


#: Seconds between checks of the workers while tasks are running.
_CHECK_SECONDS = 1.0
#: Seconds between checks of the workers before a pass.
_CHECK_BEFORE_PASS = 5.0


@dataclass(eq=False)
class Slot:
    """The worker of a group of `size` rows, None for any; it changes if the worker is lost."""

    size: int
    worker: str | None


@dataclass(eq=False, slots=True)
class Task:
    """A task that can be submitted again; tasks in its `arguments` stand for their results."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    slot: Slot | None = None
    address: str | None = field(default=None, init=False)
    future: Any = field(default=None, init=False)

    def submit(self, client: Any) -> Task:
        """Submit the task, under a unique key, to the current worker of its slot."""
        for task in self._inputs():
            if task.future is None:
                task.submit(client)
        arguments = [_sent(argument) for argument in self.arguments]
        self.address = None if self.slot is None else self.slot.worker
        self.future = client.submit(
            self.function,
            *arguments,
            # All tasks of a name form one task group.  Few groups are faster, because the scheduler
            # checks all groups for each new task.
            key=(f"daskclust-{self.name}", uuid4().hex),
            workers=None if self.address is None else [self.address],
            allow_other_workers=self.address is not None,
        )
        return self

    @property
    def done(self) -> bool:
        return self.future is not None and self.future.done() and not self.future.cancelled()

    @property
    def finished(self) -> bool:
        return self.future is not None and self.future.status == "finished"

    def release(self) -> None:
        self.future = None

    def _inputs(self) -> Iterator[Task]:
        for argument in self.arguments:
            if isinstance(argument, Task):
                yield argument
            elif isinstance(argument, list):
                yield from (item for item in argument if isinstance(item, Task))

    def check(self) -> None:
        for task in self._inputs():
            task.check()
        if self.done and self.future.status == "error":
            self.future.result()

    def renew(self, client: Any, present: Mapping[str, int], renewed: set[Task]) -> bool:
        """Submit again the tasks that wait for a lost worker, inputs first.

        Return True if this task was submitted again.
        """
        if self in renewed:
            return True
        if self.done:
            return False
        stale = self.future is None or (self.address is not None and self.address not in present)
        # A released result is only needed by tasks that must run again.
        inputs = [task for task in self._inputs() if stale or task.future is not None]
        if not any([task.renew(client, present, renewed) for task in inputs]) and not stale:
            return False
        self.submit(client)
        renewed.add(self)
        return True


def _sent(argument: Any) -> Any:
    if isinstance(argument, Task):
        return argument.future
    if isinstance(argument, list):
        return [item.future if isinstance(item, Task) else item for item in argument]
    return argument


class WorkerSlots:
    def __init__(self, client: Any, slots: Sequence[Slot], threads: Mapping[str, int]) -> None:
        self.client = client
        self.slots = slots
        self._threads = dict(threads)
        self._last_check = time.monotonic()

    def settle(self, bound: Sequence[Task]) -> None:
        """Rebind groups to the workers of their slots, after workers have joined or left."""
        time_now = time.monotonic()
        if time_now - self._last_check > _CHECK_BEFORE_PASS:
            self._last_check = time_now
            present = workers_of(self.client)
            if present and present != self._threads:
                self._threads = present
                reassign(self.slots, present)
        for task in bound:
            if task.slot is not None and task.address != task.slot.worker:
                task.submit(self.client)


def gather(
    client: Any,
    what: str,
    tasks: Sequence[Task],
    watched: Sequence[Task] = (),
    slots: Sequence[Slot] = (),
) -> list[Any]:
    """Return the results of tasks; tasks that are lost with their worker are submitted again.

    Progress is measured by the finished `watched` tasks, or by `tasks`.  `slots` are all slots that
    share the workers, so that moved slots are distributed evenly.
    """
    slots = slots or [task.slot for task in tasks if task.slot is not None]

    def lost(present: Mapping[str, int]) -> set[str]:
        waiting = (task.address for task in (*watched, *tasks) if not task.done)
        return {worker for worker in waiting if worker is not None and worker not in present}

    def renew(present: Mapping[str, int]) -> None:
        reassign(slots, present)
        renewed: set[Task] = set()
        for task in tasks:
            task.renew(client, present, renewed)

    counted = list(watched or tasks)
    try:
        return _wait(
            client,
            what,
            lambda: [task.future for task in tasks],
            lambda: sum(task.finished for task in counted),
            len(counted),
            lost,
            renew,
        )
    except CancelledError:
        # Tasks are also cancelled if one of their inputs could not be submitted.
        for task in tasks:
            task.check()
        raise
    except BaseException:
        # An error refers to the frames that it passed; these must not keep failed tasks alive.
        for task in (*tasks, *watched):
            task.release()
        raise


def await_workers(client: Any) -> None:
    """Wait until a cluster has workers; a task makes adaptive clusters start some."""
    if not workers_of(client):
        gather(client, "the start of workers", [Task("hello", _nothing, ()).submit(client)])


def _nothing() -> None:
    pass


def gather_futures(client: Any, what: str, futures: Sequence[Any]) -> list[Any]:
    """Return the results of futures that belong to one fit.

    If one of them fails, all are released, so that other fits do not get its error.
    """
    futures = list(futures)
    try:
        return _wait(
            client,
            what,
            lambda: futures,
            lambda: sum(future.status == "finished" for future in futures),
            len(futures),
        )
    except BaseException:
        discard(client, futures)
        raise


def discard(client: Any, futures: Sequence[Any]) -> None:
    """Let a cluster forget futures, and the failed tasks that they depend on."""
    if client.status == "running":
        with suppress(Exception):  # the first error is the relevant one
            client.cancel(list(futures))


def _gathering(client: Any, futures: Sequence[Any]) -> Future[list[Any]]:
    """Fetch the values of futures in a thread: ``Client.gather`` has no timeout."""
    return in_thread("gather", lambda: client.gather(list(futures)))


def _given_up(error: Any) -> bool:
    """Return True if the scheduler gave up a task because its workers were lost."""
    # Checked by name, so that distributed is not imported.
    return type(error).__name__ == "KilledWorker"


def _killed(futures: Sequence[Any]) -> list[Any]:
    """Return the futures of tasks that a scheduler has given up, or that depend on such tasks."""
    failed = [future for future in futures if future is not None and future.status == "error"]
    return [future for future in failed if _given_up(future.exception())]


class _Arrival:
    """Wait for futures without fetching their values."""

    def __init__(self, client: Any, futures: Sequence[Any]) -> None:
        self._futures = futures

    def result(self, timeout: float) -> list[Any]:
        from distributed import wait

        # If the cluster is lost, futures are cancelled, which raises an error here.
        wait(self._futures, timeout=timeout)
        failed = [future for future in self._futures if future.status == "error"]
        for future in _killed(failed):
            raise future.exception()
        return failed

    def done(self) -> bool:
        return False


def arrive(client: Any, what: str, futures: Sequence[Any]) -> list[Any]:
    """Wait until a cluster has computed futures, and return those that failed."""
    return _wait(
        client,
        what,
        lambda: list(futures),
        lambda: sum(future.status == "finished" for future in futures),
        len(futures),
        wait_for=_Arrival,
    )


@contextmanager
def _seceded() -> Iterator[None]:
    """Free the worker thread of a task that runs a fit, while the fit waits for other tasks."""
    from distributed import rejoin, secede

    try:
        secede()
    except Exception:
        # Not inside a task, or seceded already, as within `worker_client`.
        yield
        return
    try:
        yield
    finally:
        rejoin()


@_seceded()
def _wait(
    client: Any,
    what: str,
    futures: Callable[[], list[Any]],
    n_done: Callable[[], int],
    n_tasks: int,
    lost: Callable[[Mapping[str, int]], set[str]] = lambda present: set(),
    renew: Callable[[Mapping[str, int]], None] | None = None,
    wait_for: Callable[[Any, Sequence[Any]], Any] = _gathering,
) -> list[Any]:
    began = time.monotonic()
    waiting = wait_for(client, futures())
    wait: ClusterWait | None = None
    # Lost workers whose tasks have been submitted again.
    resubmitted: set[str] = set()
    while True:
        killed: Exception | None = None
        try:
            results: list[Any] = waiting.result(_CHECK_SECONDS)
            return results
        except TimeoutError as error:
            if waiting.done():
                # The error of a task, or a result that arrived in the meantime.
                if waiting.exception() is error:
                    raise
                continue
        except CancelledError as error:
            if not _answers(client):
                raise scheduler_lost(client) from error
            raise
        except Exception as error:
            if not _given_up(error):
                raise
            killed = error
        wait = ClusterWait(client, what) if wait is None else wait
        present = workers_of(client)
        wait.register_workers(present)
        done = n_done()
        wait.register_progress(done)
        advance(what, done, n_tasks, time.monotonic() - began)
        if killed is not None:
            # The limit on lost workers is decided here, not by the setting of the scheduler.
            wait.killed(killed)
            if not retry(client, _killed(futures())):
                raise workers_die(what, " ".join(str(killed).split())) from killed
            if renew is not None and present:
                renew(present)
            waiting = wait_for(client, futures())
            continue
        wait.check(present)
        if not present:
            continue
        resubmitted -= present.keys()
        newly_lost = lost(present) - resubmitted
        if newly_lost and renew is not None:
            resubmitted |= newly_lost
            wait.lost(newly_lost)
            renew(present)
            waiting = wait_for(client, futures())


def _answers(client: Any) -> bool:
    if client.status != "running":
        return False
    try:
        workers_of(client)
    except Exception:
        return False
    return True
