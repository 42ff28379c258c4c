"""How kernels are compiled, and the choice between emitted and plain ones.

The innermost loops of the nearest-center search are emitted as LLVM vector code, and
the exponential of the mixtures is written for vectors.  Each has a plain counterpart,
which loops over scalars and serves as its oracle.
``DASKCLUST_KERNELS=plain`` in the environment, read once when the package is
imported, makes a process use the plain ones; ``emitted`` is the default.  Labels
and distances are the same to the last bit, and so are sums but for the traces of
rows that the emitted kernel first puts in a wrong cluster and then moves; posteriors
are the same to about a unit in the last place.  Plain
kernels take 10 to 100 times as long.  They need none of llvmlite, and with
``NUMBA_DISABLE_JIT=1`` they run as Python, for debuggers.

Imports Numba only.
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

    ``counted``: whether references to arrays are counted.  Counts are atomic: those of a function
    that is handed a dozen arrays take as long as the arithmetic of a few rows, in each call.  A
    function that makes no array and returns none, whose callers hold what it is handed, does
    without, and is compiled sooner.  Other options are those of :func:`numba.njit`.

    Numba writes its cache beside the source, or below the user's home.  Where neither can be
    written to, as in some containers, functions are compiled anew in each process.  Plain kernels
    are not cached: the cache cannot tell their callers from those of the emitted ones.
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
    """View an array that is not written to: what callers hold, of which some is read-only.

    Numba compiles for such arrays by themselves, as they come from other processes, memory maps and
    broadcasting.  Where all are, a kernel is compiled once.
    """
    view = array.view()
    view.flags.writeable = False
    return view


def inner(*, counted: bool = True, **options: Any) -> Any:
    """Compile a function that only other compiled functions call; options of :func:`compiled`.

    It is compiled into its callers, and kept with their machine code: none of its own, and no way
    in from Python, which takes as long to compile as a small function.
    """
    if config.DISABLE_JIT:  # type: ignore[attr-defined]  # set by name
        return njit
    options.update(no_cpython_wrapper=True, no_cfunc_wrapper=True)
    if not counted:
        options["_nrt"] = False
    return njit(nogil=True, **options)
