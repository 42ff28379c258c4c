"""Tasks on a cluster that are finished whatever happens to its workers; who goes over which blocks.

Tasks are softly restricted to the worker that holds their blocks.  Where all workers are gone at
once, distributed keeps them waiting for addresses that never come back.  So the client submits
again, elsewhere, what was bound to a worker that is gone.  Tasks are pure and merged in a fixed
order: that changes no bit of a result.
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


def deal_out(blocks: list[Block], n_groups: int) -> list[list[Block]]:
    ends = np.cumsum([block.size for block in blocks])
    share = ends[-1] / n_groups if len(ends) else 1.0
    which = np.minimum((ends - 1) // max(share, 1.0), n_groups - 1).astype(int)
    return [[blocks[i] for i in np.flatnonzero(which == group)] for group in np.unique(which)]


def even_out(at: dict[Any, list[Any]], threads: Mapping[str, int]) -> None:
    """Move blocks, or slots, from workers that hold more rows a thread to those that hold fewer.

    >>> held = {"a": [Block(10 * i, 10, None) for i in range(4)], "b": []}
    >>> even_out(held, {"a": 1, "b": 1})
    >>> [[block.start for block in blocks] for blocks in held.values()]
    [[0, 10], [30, 20]]
    """
    workers = [worker for worker, count in threads.items() if count > 0]
    load = {w: sum(block.size for block in at.get(w, ())) / threads[w] for w in workers}
    while workers:
        full, free = max(workers, key=load.__getitem__), min(workers, key=load.__getitem__)
        size = at[full][-1].size if at.get(full) else 0
        after = load[free] + size / threads[free]
        if size == 0 or after >= load[full]:
            return
        at.setdefault(free, []).append(at[full].pop())
        load[full] -= size / threads[full]
        load[free] = after


def resettle(slots: Sequence[Slot], threads: Mapping[str, int]) -> None:
    """Move slots to the workers that are there now, evenly; what can stay, stays.

    >>> from types import SimpleNamespace
    >>> slots = [SimpleNamespace(size=5, worker=worker) for worker in ("gone", "a", "a")]
    >>> resettle(slots, {"a": 1, "b": 2})
    >>> [slot.worker for slot in slots]
    ['b', 'a', 'b']
    """
    threads = {worker: count for worker, count in threads.items() if count > 0}
    if not threads:
        return
    at: dict[Any, list[Slot]] = {worker: [] for worker in threads}
    load = dict.fromkeys(threads, 0.0)
    homeless = []
    for slot in slots:
        if slot.worker is not None and slot.worker in at:
            at[slot.worker].append(slot)
            load[slot.worker] += slot.size / threads[slot.worker]
        else:
            homeless.append(slot)
    for slot in homeless:
        free = min(load, key=load.__getitem__)
        at[free].append(slot)
        load[free] += slot.size / threads[free]
    even_out(at, threads)
    for worker, here in at.items():
        for slot in here:
            slot.worker = worker


def by_location(
    blocks: list[Block], futures: list[Any], who_has: Mapping[Any, Any], threads: Mapping[str, int]
) -> list[tuple[str | None, list[Block]]]:
    """Group blocks by the worker that holds them, one group a thread, in row order."""
    at: dict[Any, list[Block]] = {}
    for block, future in zip(blocks, futures, strict=True):
        holders = who_has.get(future.key) or [None]
        at.setdefault(next(iter(holders)), []).append(block)
    even_out(at, threads)
    parts: list[tuple[str | None, list[Block]]] = []
    for worker, here in at.items():
        n_groups = threads.get(worker, 1) if worker is not None else 1
        here = sorted(here, key=lambda block: block.start)
        parts.extend((worker, part) for part in deal_out(here, max(1, n_groups)))
    return sorted(parts, key=lambda part: part[1][0].start)


#: Seconds between two looks at the workers while tasks are waited for.
_LOOK = 1.0
#: and before a pass.
_NEWS = 5.0


@dataclass(eq=False)
class Slot:
    """The worker for a group of `size` rows, None for any; another one where it is lost."""

    size: int
    worker: str | None


@dataclass(eq=False, slots=True)
class Task:
    """A task that can be submitted again; tasks among its `arguments` stand for their results."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    slot: Slot | None = None
    at: str | None = field(default=None, init=False)
    future: Any = field(default=None, init=False)

    def submit(self, client: Any) -> Task:
        """Submit the task, under a key of its own, to where its slot is now."""
        for task in self._inputs():
            if task.future is None:
                task.submit(client)
        arguments = [_sent(argument) for argument in self.arguments]
        self.at = None if self.slot is None else self.slot.worker
        self.future = client.submit(
            self.function,
            *arguments,
            # One task group for all of a name: with each task that arrives, the scheduler goes
            # over all groups that it knows, to see whether it is idle.
            key=(f"daskclust-{self.name}", uuid4().hex),
            workers=None if self.at is None else [self.at],
            allow_other_workers=self.at is not None,
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
        """Submit again what waits for a worker that is gone, inputs first; whether this one did."""
        if self in renewed:
            return True
        if self.done:
            return False
        stale = self.future is None or (self.at is not None and self.at not in present)
        # A released result is only needed by tasks that have to be made again.
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
        self._looked = time.monotonic()

    def settle(self, bound: Sequence[Task]) -> None:
        """Bring bound groups to where their slots are, after workers have come or gone."""
        now = time.monotonic()
        if now - self._looked > _NEWS:
            self._looked = now
            present = workers_of(self.client)
            if present and present != self._threads:
                self._threads = present
                resettle(self.slots, present)
        for task in bound:
            if task.slot is not None and task.at != task.slot.worker:
                task.submit(self.client)


def gather(
    client: Any,
    what: str,
    tasks: Sequence[Task],
    watched: Sequence[Task] = (),
    slots: Sequence[Slot] = (),
) -> list[Any]:
    """Return the tasks' results, submitting again what was lost with its worker.

    Ends of the `watched` tasks, or of `tasks`, count as progress. `slots` are all that share the
    workers, so that moved ones are dealt out evenly.
    """
    slots = slots or [task.slot for task in tasks if task.slot is not None]

    def lost(present: Mapping[str, int]) -> set[str]:
        waiting = (task.at for task in (*watched, *tasks) if not task.done)
        return {worker for worker in waiting if worker is not None and worker not in present}

    def renew(present: Mapping[str, int]) -> None:
        resettle(slots, present)
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
            lost,
            renew,
        )
    except CancelledError:
        # Tasks are cancelled, too, where one that they stand on could not even be submitted.
        for task in tasks:
            task.check()
        raise
    except BaseException:
        # An error refers to the frames that it passed through; it must not keep failed tasks.
        for task in (*tasks, *watched):
            task.release()
        raise


def await_workers(client: Any) -> None:
    """Wait until a cluster has workers; one that starts them on demand is given a task."""
    if not workers_of(client):
        gather(client, "the start", [Task("hello", _nothing, ()).submit(client)])


def _nothing() -> None:
    pass


def gather_futures(client: Any, what: str, futures: Sequence[Any]) -> list[Any]:
    """Return the results of a fit's own futures.

    Where one fails, all are released: other fits must not be answered with its error.
    """
    futures = list(futures)
    try:
        return _wait(
            client,
            what,
            lambda: futures,
            lambda: sum(future.status == "finished" for future in futures),
        )
    except BaseException:
        discard(client, futures)
        raise


def discard(client: Any, futures: Sequence[Any]) -> None:
    """Let a cluster forget futures, and the failed tasks that they stand on."""
    if client.status == "running":
        with suppress(Exception):  # the first error is what counts
            client.cancel(list(futures))


def _gathering(client: Any, futures: Sequence[Any]) -> Future[list[Any]]:
    """Fetch what futures hold, in a thread: ``Client.gather`` alone waits for ever."""
    return in_thread("gather", lambda: client.gather(list(futures)))


def _given_up(error: Any) -> bool:
    """Whether a scheduler has given up a task for the workers that it was lost with."""
    return type(error).__name__ == "KilledWorker"  # not imported for its name alone


def _killed(futures: Sequence[Any]) -> list[Any]:
    """Return the futures of tasks that a scheduler has given up, or of tasks that need such."""
    failed = [future for future in futures if future is not None and future.status == "error"]
    return [future for future in failed if _given_up(future.exception())]


class _Arrival:
    """Waiting for futures without fetching what they hold."""

    def __init__(self, client: Any, futures: Sequence[Any]) -> None:
        self._futures = futures

    def result(self, timeout: float) -> list[Any]:
        from distributed import wait

        # Of a cluster that is lost, futures are cancelled, which is raised here.
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
        wait_for=_Arrival,
    )


@contextmanager
def _aside() -> Iterator[None]:
    """Give the thread of a task that fits, and waits for other tasks, to these meanwhile."""
    from distributed import rejoin, secede

    try:
        secede()
    except Exception:
        # Not in a task, or aside already, as within `worker_client`.
        yield
        return
    try:
        yield
    finally:
        rejoin()


@_aside()
def _wait(
    client: Any,
    what: str,
    futures: Callable[[], list[Any]],
    n_done: Callable[[], int],
    lost: Callable[[Mapping[str, int]], set[str]] = lambda present: set(),
    renew: Callable[[Mapping[str, int]], None] | None = None,
    wait_for: Callable[[Any, Sequence[Any]], Any] = _gathering,
) -> list[Any]:
    waiting = wait_for(client, futures())
    wait: ClusterWait | None = None
    # Workers that are gone, and whose tasks have been submitted again.
    noted: set[str] = set()
    while True:
        killed: Exception | None = None
        try:
            found: list[Any] = waiting.result(_LOOK)
            return found
        except TimeoutError as error:
            if waiting.done():
                # The error of a task, or a result that has just come.
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
        wait.there(present)
        wait.progressed(n_done())
        if killed is not None:
            # How often workers may be lost is decided here, whatever the scheduler allows.
            wait.killed(killed)
            if not retry(client, _killed(futures())):
                raise workers_die(what, " ".join(str(killed).split())) from killed
            if renew is not None and present:
                renew(present)
            waiting = wait_for(client, futures())
            continue
        wait.look(present)
        if not present:
            continue
        noted -= present.keys()
        gone = lost(present) - noted
        if gone and renew is not None:
            noted |= gone
            wait.lost(gone)
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
