"""The workers of a cluster, as a client that waits for them sees them; notices to the user."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import dask
from dask.utils import format_time, parse_timedelta

from daskclust.core.engine.private_api import worker_infos
from daskclust.exceptions import ClusterError

T = TypeVar("T")
logger = logging.getLogger("daskclust")

_readers: ContextVar[tuple[Callable[[str], None], ...]] = ContextVar(
    "daskclust_readers", default=()
)


@contextmanager
def on_notice(reader: Callable[[str], None]) -> Iterator[None]:
    """Call ``reader`` with each notice of the fits that run in this context.

    A notice says, for example, that the cluster has no workers.  Without a reader,
    notices are logged as warnings.

    Parameters
    ----------
    reader : callable(text)

    Examples
    --------
    >>> seen = []
    >>> with on_notice(seen.append):
    ...     notify("Waiting")
    >>> seen
    ['Waiting']
    """
    token = _readers.set((*_readers.get(), reader))
    try:
        yield
    finally:
        _readers.reset(token)


def notify(text: str) -> None:
    readers = _readers.get()
    logger.log(logging.INFO if readers else logging.WARNING, "%s", text)
    for reader in readers:
        reader(text)


def in_thread(name: str, call: Callable[[], T]) -> Future[T]:
    """Return the coming result of a call in a thread that nobody has to wait for."""
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, name=f"daskclust-{name}", daemon=True).start()
    return answer


#: Seconds without a worker after which that is said, and after which it is said again.
_SAID_AFTER = 15.0
_SAID_AGAIN = 60.0
#: Dask's setting of how long a scheduler usually takes to answer, at most.
_ANSWERS = "distributed.comm.timeouts.connect"
#: Times in a row that workers may be lost, and none of the tasks is done in between.
_LOSSES = 3
#: Status of a client that will not be connected again.
_ENDED = ("closing", "closed")


def workers_of(client: Any) -> dict[str, int]:
    """Return the threads of each worker, by address.

    The scheduler is waited for while the connection stands, and as long as workers are.
    """
    if client.status in _ENDED:
        raise scheduler_lost(client)
    # In a thread: a client that is closed while it asks never gets an answer.
    answer: Future[dict[str, int]] = in_thread("workers", lambda: dict(client.nthreads()))
    usual, patience = parse_timedelta(dask.config.get(_ANSWERS)), _patience()
    began, said = time.monotonic(), False
    while True:
        try:
            return answer.result(min(1.0, usual))
        except Exception as error:
            waited = time.monotonic() - began
            if answer.done() or client.status in _ENDED:
                raise scheduler_lost(client) from error
            if waited < usual:
                continue
            if client.status != "running":
                raise scheduler_lost(client) from error
            problem = f"The scheduler at {client.scheduler.address} has not answered"
            if waited >= patience:
                raise ClusterError(
                    f"{problem} for {format_time(waited)}. Look at its load and its log, and fit "
                    "again, or raise daskclust.worker-timeout; a checkpoint goes on where it was."
                ) from error
            if not said:
                notify(f"{problem} for {format_time(waited)}; it is waited for.")
                said = True


def _patience() -> float:
    limit = dask.config.get("daskclust.worker-timeout")
    return float("inf") if limit is None else float(parse_timedelta(limit))


def scheduler_lost(client: Any) -> ClusterError:
    address = getattr(getattr(client, "scheduler", None), "address", None)
    where = "" if address is None else f" at {address}"
    return ClusterError(
        f"The connection to the Dask scheduler{where} is lost. Start a scheduler, connect to it "
        "and fit again; a checkpoint goes on where it was."
    )


class ClusterWait:
    """Waiting of `what` for a cluster: its messages, its end after ``daskclust.worker-timeout``."""

    def __init__(self, client: Any, what: str) -> None:
        self._client = client
        self._what = what
        self._patience = _patience()
        self._since: float | None = None
        self._said: float | None = None
        self._best = 0
        self._losses = 0
        # Workers that were counted as lost, since they were there.
        self._counted: set[str] = set()
        self._asked = time.monotonic()

    def look(self, threads: Mapping[str, int]) -> None:
        """Take note of the workers; none that takes tasks for too long is a ClusterError."""
        now = time.monotonic()
        problem = self._problem(threads, now)
        if problem is None:
            if self._said is not None:
                notify(f"The cluster has {len(threads)} workers again; {self._what} goes on.")
            self._since = self._said = None
            return
        self._since = now if self._since is None else self._since
        waited = now - self._since
        if waited >= self._patience:
            larger = " with a larger memory_limit" if threads else ""
            raise ClusterError(
                f"{problem} for {format_time(waited)}, so {self._what} was given up. Start workers"
                f"{larger} and fit again, or raise daskclust.worker-timeout."
            )
        if waited >= min(_SAID_AFTER, self._patience / 2) and (
            self._said is None or now - self._said >= _SAID_AGAIN
        ):
            self._said = now
            rest = self._patience - waited
            limit = "" if rest == float("inf") else f", for another {format_time(rest)}"
            notify(f"{problem} for {format_time(waited)}; {self._what} waits for workers{limit}.")

    def _problem(self, threads: Mapping[str, int], now: float) -> str | None:
        address = self._client.scheduler.address
        if not threads:
            return f"The scheduler at {address} has had no workers"
        # Asked seldom: what a scheduler knows of each worker is long.
        if self._since is None and now - self._asked < _SAID_AFTER:
            return None
        self._asked = now
        infos = worker_infos(self._client)
        if infos and all(info.paused for info in infos.values()):
            return (
                f"All {len(infos)} workers of the scheduler at {address} have been paused for want "
                "of memory (distributed.worker.memory.pause of their limit)"
            )
        return None

    def progressed(self, done: int) -> None:
        if done > self._best:
            self._best, self._losses = done, 0
            self._asked = time.monotonic()

    def there(self, present: Mapping[str, int]) -> None:
        """Note the workers: one that is lost after it has come back counts again."""
        self._counted.difference_update(present)

    def lost(self, gone: set[str]) -> None:
        """Count lost workers; too often without a task done in between is a ClusterError."""
        fresh = gone - self._counted
        self._counted |= fresh
        if not fresh:
            return
        self._losses += 1
        if self._losses > _LOSSES:
            raise workers_die(
                self._what,
                f"Workers were lost {self._losses} times in a row ({', '.join(sorted(fresh))} at "
                "last), and none of its tasks was done in between.",
            )

    def killed(self, error: Any) -> None:
        """Count a task that the scheduler has given up, as :meth:`lost`.

        A scheduler may give up at the first loss; it has counted as many as it allows, and one.
        """
        address = str(getattr(error.last_worker, "address", error.last_worker))
        if address in self._counted:
            return
        self._counted.add(address)
        self._losses = max(self._losses, int(error.allowed_failures)) + 1
        if self._losses > _LOSSES:
            raise workers_die(self._what, " ".join(str(error).split())) from error


def workers_die(what: str, how: str) -> ClusterError:
    return ClusterError(
        f"The workers do not survive {what}. {how} Most likely they are killed for want of memory: "
        "use smaller chunks (X.rechunk), fewer threads a worker, or a larger memory_limit; the "
        "workers' logs tell."
    )
