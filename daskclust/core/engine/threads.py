"""Threads that are kept: to start one may take longer than a pass over an array in memory."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from contextvars import copy_context
from functools import lru_cache
from typing import Any, TypeVar

import dask
from dask.system import CPU_COUNT

#: From so many values of an array a second thread saves more than it costs.
_SIZE = 2**18
#: The same in products of scores, where the number of centers is known: of a pass, of a row besides
#: its scores, and of each of its values.
_WORK, _ROW_WORK, _VALUE_WORK = 2**25, 1000, 20

T = TypeVar("T")


def threads_pay(n_rows: int, n_columns: int, n_clusters: int | None = None) -> bool:
    if n_clusters is None:
        return n_rows * n_columns >= _SIZE
    return n_rows * (_ROW_WORK + n_columns * (_VALUE_WORK + n_clusters)) >= _WORK


def cpu_threads() -> int:
    """Threads for NumPy input: ``daskclust.num-threads``, ``OMP_NUM_THREADS``, or usable cores.

    A nanny sets the second to 1, so that a fit inside a Dask worker does not multiply threads.
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


# Threads do not live on in a child process.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_helpers.cache_clear)


class _Calls:
    """Calls of which each is made once, by whichever thread comes first."""

    def __init__(self, calls: Sequence[Callable[[], Any]]) -> None:
        self._calls = calls
        self._next = 0
        self._lock = threading.Lock()
        self.made: dict[int, Any] = {}
        self.failed: dict[int, BaseException] = {}

    def work(self) -> None:
        """Make calls until none is left; after an error no further call is begun."""
        while True:
            with self._lock:
                if self._next >= len(self._calls):
                    return
                i, call = self._next, self._calls[self._next]
                self._next += 1
            try:
                self.made[i] = call()
            except BaseException as error:
                self.failed[i] = error
                self.close()

    def close(self) -> None:
        """Let no further call begin; helpers that come late hold nothing but this object."""
        with self._lock:
            self._calls = ()


def _dismiss(helpers: Sequence[Future[None]]) -> None:
    """Wait for the helpers that have begun, and send the others away."""
    wait([helper for helper in helpers if not helper.cancel()])


def side_by_side(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Return the results of calls, which this thread and the helpers make.

    The caller makes calls itself that no helper has begun, so a call may make such calls in turn.
    After an error no further call is begun, and of several that of the first call is raised.
    Helpers work in the caller's context, such as :func:`numpy.errstate`.
    """
    limit = cpu_threads()
    n_threads = min(limit, len(calls))
    if n_threads < 2:
        return [call() for call in calls]
    shared = _Calls(calls)
    helpers: list[Future[None]] = []
    try:
        # Where no thread can be started, or the interpreter ends, the caller makes all calls.
        with suppress(RuntimeError):
            for _ in range(n_threads - 1):
                helpers.append(_helpers(limit - 1).submit(copy_context().run, shared.work))
        shared.work()
        _dismiss(helpers)
    finally:
        # After any failure or interrupt no thread works on rows any more.
        shared.close()
        _dismiss(helpers)
    # Helpers that come late hold the calls' object.
    made, shared.made = shared.made, {}
    if not shared.failed:
        return [made[i] for i in range(len(calls))]
    try:
        # An interrupt before any error.
        first = min(shared.failed, key=lambda i: (isinstance(shared.failed[i], Exception), i))
        raise shared.failed[first]
    finally:
        # The error's frames hold these, and arrays by them.
        shared.failed.clear()
        made.clear()
