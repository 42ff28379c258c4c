"""Decorators that compile kernels."""

from __future__ import annotations

from typing import Any

import numba.experimental.function_type  # noqa: F401  # registers types
from numba import njit
from numba.core.entrypoints import init_all

# Numba registers the last argument types, its own and those of its extensions, at the first
# compilation.  If a second thread looks up a type at that moment, it fails with "dictionary changed
# size during iteration".  So they are registered here, under the import lock.
init_all()


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
