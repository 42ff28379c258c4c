"""Decorators that compile kernels."""

from __future__ import annotations

from typing import Any

import numba.experimental.function_type  # noqa: F401  # registers types
from numba import njit
from numba.core.entrypoints import init_all

# Numba would register the last types of arguments, its own and those of its extensions, when it
# compiles for the first time.  A second thread that looks up a type in that moment fails:
# "dictionary changed size during iteration".  So it is done here, under the lock of the import.
init_all()


def compiled(*, counted: bool = True, **options: Any) -> Any:
    """Compile a function without the interpreter lock, and keep the machine code on disk.

    ``counted``: whether references to arrays are counted.  Counts are atomic: those of a dozen
    arrays take as long as the arithmetic of a few rows.  A function that makes no array and returns
    none, whose callers hold what it is handed, does without.
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
    """View an array that is not written to: where all are read-only, a kernel is compiled once."""
    view = array.view()
    view.flags.writeable = False
    return view


def inner(*, counted: bool = True, **options: Any) -> Any:
    """Compile a function into the compiled ones that alone call it; options of :func:`compiled`.

    It has no way in from Python, which takes as long to compile as a small function.
    """
    options.update(no_cpython_wrapper=True, no_cfunc_wrapper=True)
    if not counted:
        options["_nrt"] = False
    return njit(nogil=True, **options)
