"""Threads of this process, on which passes over arrays in memory run.

The threads are kept: a pass may take less time than the start of one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import lru_cache
from typing import TypeVar

import dask
from dask.system import CPU_COUNT

__all__ = ["cpu_threads", "side_by_side"]

T = TypeVar("T")


def cpu_threads() -> int:
    """Threads that NumPy input may use: ``daskclust.num-threads``, else the usable cores.

    ``OMP_NUM_THREADS`` is honoured, so a fit inside a Dask worker, where a nanny
    sets it to 1, does not multiply threads.
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


def side_by_side(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Return the results of calls, which this thread and the helpers make.

    What no helper has begun, the caller makes itself.  So a call may make such calls in turn: none
    waits for a helper that is not there.  After an error no further call is begun, and of several
    errors that of the first call is raised.

    Examples
    --------
    >>> side_by_side([lambda: 1, lambda: 2])
    [1, 2]
    """
    n_threads = min(cpu_threads(), len(calls))
    if n_threads < 2:
        return [call() for call in calls]
    helpers = _helpers(cpu_threads() - 1)
    futures = [helpers.submit(call) for call in calls[1:]]
    made: dict[int, T] = {}
    failed: dict[int, BaseException] = {}
    at = 0
    try:
        made[0] = calls[0]()
        for at, (call, future) in enumerate(zip(calls[1:], futures, strict=True), 1):
            if future.cancel():
                made[at] = call()
    except Exception as error:
        failed[at] = error
    finally:
        # Whatever fails: nothing works on rows any more.
        begun = {i: future for i, future in enumerate(futures, 1) if not future.cancel()}
        wait(begun.values())
    for i, future in begun.items():
        raised = future.exception()
        if raised is None:
            made[i] = future.result()
        else:
            failed[i] = raised
    if not failed:
        return [made[i] for i in range(len(calls))]
    try:
        raise failed[min(failed)]
    finally:
        # The error's frames hold these, and arrays by them.
        failed.clear()
        futures.clear()
        begun.clear()
