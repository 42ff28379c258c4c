"""A persistent pool of threads, and the progress of local schedulers.

Starting a thread can take longer than a pass over an array.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import lru_cache
from typing import Any, TypeVar

import dask
from dask.callbacks import Callback
from dask.system import CPU_COUNT

from daskclust.core.progress import advance, is_shown

#: Minimum number of values of an array for which a second thread saves time.
_SIZE = 2**18
#: If the number of centers is known: minimum work of a pass for which a second thread saves time,
#: and the work per row and per value in addition to distances. The unit is one multiplication.
_WORK, _ROW_WORK, _VALUE_WORK = 2**25, 1000, 20

T = TypeVar("T")


def threads_pay(n_rows: int, n_columns: int, n_clusters: int | None = None) -> bool:
    if n_clusters is None:
        return n_rows * n_columns >= _SIZE
    return n_rows * (_ROW_WORK + n_columns * (_VALUE_WORK + n_clusters)) >= _WORK


def cpu_threads() -> int:
    """Return the number of threads for NumPy input.

    This is ``daskclust.num-threads``, else ``OMP_NUM_THREADS``, else the number of cores.  A nanny
    sets ``OMP_NUM_THREADS`` to 1, so a fit inside a Dask worker uses one thread.
    """
    configured = dask.config.get("daskclust.num-threads", None)
    if configured is None:
        configured = os.environ.get("OMP_NUM_THREADS", "")
    try:
        return max(1, min(int(configured), CPU_COUNT))
    except ValueError:
        return CPU_COUNT


@lru_cache(maxsize=1)
def _helpers(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="daskclust")


# A child process does not inherit threads.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_helpers.cache_clear)


class _Calls:
    """Calls that are each run once, by the first free thread."""

    def __init__(self, calls: Sequence[Callable[[], Any]]) -> None:
        self._calls = calls
        self._next = 0
        self._lock = threading.Lock()
        self.results: dict[int, Any] = {}
        self.errors: dict[int, BaseException] = {}

    def work(self) -> None:
        """Run calls until all are done; after an error, no further call starts."""
        while True:
            with self._lock:
                if self._next >= len(self._calls):
                    return
                i, call = self._next, self._calls[self._next]
                self._next += 1
            try:
                self.results[i] = call()
            except BaseException as error:
                self.errors[i] = error
                self.close()

    def close(self) -> None:
        """Start no further call.  Helpers that start late refer to this object only."""
        with self._lock:
            self._calls = ()


def _wait_or_cancel(helpers: Sequence[Future[None]]) -> None:
    """Wait for the helpers that have started, and cancel the others."""
    wait([helper for helper in helpers if not helper.cancel()])


def side_by_side(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Return the results of calls that this thread and helper threads run.

    The caller runs the calls that no helper has started, so a call may call this function again.
    After an error no further call starts; of several errors, the one of the first call is raised.
    Helpers run in the caller's context, such as :func:`numpy.errstate`.
    """
    limit = cpu_threads()
    n_threads = min(limit, len(calls))
    if n_threads < 2:
        return [call() for call in calls]
    shared = _Calls(calls)
    helpers: list[Future[None]] = []
    try:
        # If no thread can be started, or the interpreter is exiting, the caller runs all calls.
        with suppress(RuntimeError):
            for _ in range(n_threads - 1):
                helpers.append(_helpers(limit - 1).submit(copy_context().run, shared.work))
        shared.work()
        _wait_or_cancel(helpers)
    finally:
        # After a failure or interrupt, no thread uses the rows any more.
        shared.close()
        _wait_or_cancel(helpers)
    # Late helpers still refer to `shared`.
    results, shared.results = shared.results, {}
    if not shared.errors:
        return [results[i] for i in range(len(calls))]
    try:
        # Interrupts take precedence over errors.
        first = min(shared.errors, key=lambda i: (isinstance(shared.errors[i], Exception), i))
        raise shared.errors[first]
    finally:
        # The frames of the error refer to errors and results, and thereby to arrays.
        shared.errors.clear()
        results.clear()


@contextmanager
def showing_tasks(what: str) -> Iterator[None]:
    """Show the finished tasks of computations by the schedulers of this process.

    On a cluster, the wait for its tasks shows them.
    """
    if not is_shown():
        # Dask's callbacks are global: computations in other threads would call them, too.
        yield
        return
    start = time.monotonic()

    def finished(key: Any, result: Any, graph: Any, state: Any, worker: Any) -> None:
        done = len(state["finished"])
        total = done + sum(len(state[kind]) for kind in ("running", "ready", "waiting"))
        advance(what, done, total, time.monotonic() - start)

    with Callback(posttask=finished):
        yield
