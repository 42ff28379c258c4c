"""Wait for the scheduler and the workers of a cluster, with notices to the user."""

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

    A notice reports, for example, that the cluster has no workers.  Without a reader,
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
    """Run a call in a daemon thread and return its future."""
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, name=f"daskclust-{name}", daemon=True).start()
    return answer


#: Seconds without a worker before the first notice, and between notices.
_NOTICE_AFTER = 15.0
_NOTICE_EVERY = 60.0
#: Dask's setting of the maximum time in which a scheduler usually answers.
_ANSWERS = "distributed.comm.timeouts.connect"
#: Maximum number of consecutive losses of workers without a finished task in between.
_LOSSES = 3
#: Status of a client that will not connect again.
_ENDED = ("closing", "closed")


def workers_of(client: Any) -> dict[str, int]:
    """Return the threads of each worker, by address.

    If the scheduler does not answer, wait while the connection exists, for at most
    ``daskclust.worker-timeout``.
    """
    if client.status in _ENDED:
        raise scheduler_lost(client)
    # The request runs in a thread, because it never returns if the client is closed.
    answer: Future[dict[str, int]] = in_thread("workers", lambda: dict(client.nthreads()))
    usual, patience = parse_timedelta(dask.config.get(_ANSWERS)), _patience()
    start, notified = time.monotonic(), False
    while True:
        try:
            return answer.result(min(1.0, usual))
        except Exception as error:
            waited = time.monotonic() - start
            if answer.done() or client.status in _ENDED:
                raise scheduler_lost(client) from error
            if waited < usual:
                continue
            if client.status != "running":
                raise scheduler_lost(client) from error
            problem = f"The scheduler at {client.scheduler.address} has not answered"
            if waited >= patience:
                raise ClusterError(
                    f"{problem} for {format_time(waited)}. Check its load and its log, and fit "
                    "again, or increase daskclust.worker-timeout; a checkpoint resumes the fit."
                ) from error
            if not notified:
                notify(f"{problem} for {format_time(waited)}; waiting for its answer.")
                notified = True


def _patience() -> float:
    limit = dask.config.get("daskclust.worker-timeout")
    return float("inf") if limit is None else float(parse_timedelta(limit))


def scheduler_lost(client: Any) -> ClusterError:
    address = getattr(getattr(client, "scheduler", None), "address", None)
    where = "" if address is None else f" at {address}"
    return ClusterError(
        f"The connection to the Dask scheduler{where} is lost. Start a scheduler, connect to it "
        "and fit again; a checkpoint resumes the fit."
    )


class ClusterWait:
    """Waiting for a cluster: notices, and the error after ``daskclust.worker-timeout``."""

    def __init__(self, client: Any, what: str) -> None:
        self._client = client
        self._what = what
        self._patience = _patience()
        self._since: float | None = None
        self._notified: float | None = None
        self._best = 0
        self._losses = 0
        # Workers that were counted as lost and have not come back.
        self._counted: set[str] = set()
        self._last_request = time.monotonic()

    def check(self, threads: Mapping[str, int]) -> None:
        """Check the workers; raise ClusterError if none of them accepts tasks for too long."""
        time_now = time.monotonic()
        problem = self._problem(threads, time_now)
        if problem is None:
            if self._notified is not None:
                notify(f"The cluster has {len(threads)} workers again; {self._what} continues.")
            self._since = self._notified = None
            return
        self._since = time_now if self._since is None else self._since
        waited = time_now - self._since
        if waited >= self._patience:
            larger = " with a larger memory_limit" if threads else ""
            raise ClusterError(
                f"{problem} for {format_time(waited)}, so {self._what} was stopped. Start workers"
                f"{larger} and fit again, or increase daskclust.worker-timeout."
            )
        if waited >= min(_NOTICE_AFTER, self._patience / 2) and (
            self._notified is None or time_now - self._notified >= _NOTICE_EVERY
        ):
            self._notified = time_now
            rest = self._patience - waited
            limit = "" if rest == float("inf") else f", for another {format_time(rest)}"
            notify(f"{problem} for {format_time(waited)}; {self._what} waits for workers{limit}.")

    def _problem(self, threads: Mapping[str, int], time_now: float) -> str | None:
        address = self._client.scheduler.address
        if not threads:
            return f"The scheduler at {address} has had no workers"
        # Requested rarely, because the scheduler's reports on workers are long.
        if self._since is None and time_now - self._last_request < _NOTICE_AFTER:
            return None
        self._last_request = time_now
        infos = worker_infos(self._client)
        if infos and all(info.paused for info in infos.values()):
            return (
                f"All {len(infos)} workers of the scheduler at {address} have been paused because "
                "their memory is full (distributed.worker.memory.pause of their limit)"
            )
        return None

    def register_progress(self, done: int) -> None:
        if done > self._best:
            self._best, self._losses = done, 0
            self._last_request = time.monotonic()

    def register_workers(self, present: Mapping[str, int]) -> None:
        """Register the current workers: a worker that is lost again counts again."""
        self._counted.difference_update(present)

    def lost(self, lost_workers: set[str]) -> None:
        """Count lost workers; raise ClusterError after too many losses without a finished task."""
        newly_lost = lost_workers - self._counted
        self._counted |= newly_lost
        if not newly_lost:
            return
        self._losses += 1
        if self._losses > _LOSSES:
            raise workers_die(
                self._what,
                f"Workers were lost {self._losses} times in a row (most recently "
                f"{', '.join(sorted(newly_lost))}), and no task finished in between.",
            )

    def killed(self, error: Any) -> None:
        """Count a task that the scheduler has given up, like :meth:`lost`.

        A scheduler may give up at the first loss.  The number of losses is its limit plus one.
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
        f"Workers died while computing {what}. {how} They probably ran out of memory: use smaller "
        "chunks (X.rechunk), fewer threads per worker, or a larger memory_limit. See the logs of "
        "the workers."
    )
