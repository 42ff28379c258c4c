"""How kernels are compiled, and the choice between emitted and plain ones.

The innermost loops of the nearest-center search are emitted as LLVM vector code, and the
exponential of the mixtures is written for vectors.  Each has a plain counterpart, its oracle, which
``DASKCLUST_KERNELS=plain`` in the environment, read at import, chooses.  Labels and distances are
the same to the last bit, and so are sums but for the traces of rows that the emitted kernel first
puts in a wrong cluster and then moves; posteriors are the same to about a unit in the last place.
Plain kernels take 10 to 100 times as long.  They need none of llvmlite, and with
``NUMBA_DISABLE_JIT=1`` they run as Python, for debuggers.
"""

from __future__ import annotations

import os
from typing import Any

import numba.experimental.function_type  # noqa: F401  # registers types
from numba import config, njit
from numba.core.entrypoints import init_all


def _is_plain() -> bool:
    chosen = os.environ.get("DASKCLUST_KERNELS", "emitted")
    if chosen not in ("emitted", "plain"):
        raise ValueError(
            f"DASKCLUST_KERNELS={chosen!r} names no kernels; expected 'emitted' or 'plain'."
        )
    # Vector code cannot run without being compiled.
    return chosen == "plain" or bool(config.DISABLE_JIT)  # type: ignore[attr-defined]  # set by name


# Numba would register the last types of arguments, its own and those of its extensions, when it
# compiles for the first time.  A second thread that looks up a type in that moment fails:
# "dictionary changed size during iteration".  So it is done here, under the lock of the import.
init_all()

#: Whether this process runs the plain kernels.
PLAIN: bool = _is_plain()


def compiled(*, counted: bool = True, **options: Any) -> Any:
    """Compile a function without the interpreter lock, and keep the machine code on disk.

    ``counted``: whether references to arrays are counted.  Counts are atomic: those of a dozen
    arrays take as long as the arithmetic of a few rows.  A function that makes no array and returns
    none, whose callers hold what it is handed, does without.

    Plain kernels are not cached: the cache cannot tell their callers from those of emitted ones.
    """
    if not counted:
        options["_nrt"] = False

    def decorate(function: Any) -> Any:
        if not PLAIN:
            try:
                return njit(nogil=True, cache=True, **options)(function)
            except RuntimeError:  # "no locator available for file ..."
                pass
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
    if config.DISABLE_JIT:  # type: ignore[attr-defined]  # set by name
        return njit
    options.update(no_cpython_wrapper=True, no_cfunc_wrapper=True)
    if not counted:
        options["_nrt"] = False
    return njit(nogil=True, **options)
