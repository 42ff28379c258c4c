"""Decorators that compile kernels."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
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


class _Notice(numba_events.TimingListener):
    """Calls `notice` once if the compilations of this process take more than two seconds."""

    def __init__(self, notice: Callable[[], None]) -> None:
        super().__init__()
        self._notice: Callable[[], None] | None = notice

    def on_end(self, event: Any) -> None:
        super().on_end(event)
        if self._notice is not None and self.done and self.duration > _DELAY:
            notice, self._notice = self._notice, None
            notice()


def noticing(notice: Callable[[], None]) -> AbstractContextManager[None]:
    """Call `notice` once if kernels are compiled for more than two seconds in this context."""
    installed: AbstractContextManager[None] = numba_events.install_listener(
        "numba:compile", _Notice(notice)
    )
    return installed


def compiled(*, counted: bool = True, **options: Any) -> Any:
    """Compile a function without the interpreter lock, and cache the machine code on disk.

    With ``counted=False``, references to arrays are not counted.  Counting is atomic and takes as
    long for a dozen arrays as the arithmetic of a few rows.  The function must not create or return
    arrays, and its callers must keep its arguments alive.
    """
    options.update(nogil=True, no_cfunc_wrapper=True)
    if not counted:
        options["_nrt"] = False

    def decorate(function: Any) -> Any:
        try:
            return njit(cache=True, **options)(function)
        except RuntimeError:  # "no locator available for file ..."
            return njit(**options)(function)

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
