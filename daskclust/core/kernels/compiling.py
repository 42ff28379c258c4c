"""Decorators that compile kernels."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numba.core.event as numba_events
import numba.experimental.function_type  # noqa: F401  # registers types
from numba import njit
from numba.core.entrypoints import init_all

# Numba registers the last argument types, its own and those of its extensions, at the first
# compilation.  If a second thread looks up a type at that moment, it fails with "dictionary changed
# size during iteration".  So they are registered here, under the import lock.
init_all()

#: Seconds of compilation after which :func:`noticing` reports it.
_DELAY = 2.0


class _CompileTime(numba_events.Listener):
    """Calls `notice` once if the compilations of this process take more than two seconds."""

    def __init__(self, notice: Callable[[], None]) -> None:
        self._notice: Callable[[], None] | None = notice
        self._seconds, self._of_thread = 0.0, threading.local()

    def on_start(self, event: Any) -> None:
        starts = self._of_thread.__dict__.setdefault("starts", [])
        starts.append(time.perf_counter())

    def on_end(self, event: Any) -> None:
        starts = self._of_thread.__dict__.get("starts")
        if not starts:
            return
        start = starts.pop()
        # The time of an outer function contains that of the functions it calls.
        if not starts:
            self._seconds += time.perf_counter() - start
        if self._seconds > _DELAY and self._notice is not None:
            notice, self._notice = self._notice, None
            notice()


@contextmanager
def noticing(notice: Callable[[], None]) -> Iterator[None]:
    """Call `notice` once if kernels are compiled for more than two seconds in this context."""
    listener = _CompileTime(notice)
    numba_events.register("numba:compile", listener)
    try:
        yield
    finally:
        numba_events.unregister("numba:compile", listener)


def compiled(*, counted: bool = True, **options: Any) -> Any:
    """Compile a function without the interpreter lock, and cache the machine code on disk.

    With ``counted=False``, references to arrays are not counted.  Counting is atomic and takes as
    long for a dozen arrays as the arithmetic of a few rows.  The function must not create or return
    arrays, and its callers must keep its arguments alive.
    """
    if not counted:
        options["_nrt"] = False

    def decorate(function: Any) -> Any:
        try:
            return njit(nogil=True, cache=True, **options)(function)
        except RuntimeError:  # "no locator available for file ..."
            return njit(nogil=True, **options)(function)

    return decorate


def read_only(array: Any) -> Any:
    """Return a read-only view; if all arguments are read-only, a kernel is compiled only once."""
    view = array.view()
    view.flags.writeable = False
    return view


def inner(*, counted: bool = True, **options: Any) -> Any:
    """Compile a function that is called only by compiled functions; options of :func:`compiled`.

    It cannot be called from Python, which saves the compile time of a small function.
    """
    options.update(no_cpython_wrapper=True, no_cfunc_wrapper=True)
    if not counted:
        options["_nrt"] = False
    return njit(nogil=True, **options)
