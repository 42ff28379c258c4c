"""Reads and writes that fail now and then: tried again, and named where they fail for good."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import dask
from dask.utils import parse_timedelta

from daskclust.exceptions import DaskclustError, ReadError
from daskclust.storage.urls import redact

__all__ = ["NEVER_AGAIN", "Retries", "is_passing", "persistently", "read"]

T = TypeVar("T")

#: Errors that say the same when the read is tried again.
_LASTING = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    FileNotFoundError,
    ImportError,
    IsADirectoryError,
    LookupError,
    MemoryError,
    NameError,
    NotADirectoryError,
    NotImplementedError,
    PermissionError,
    RecursionError,
    SyntaxError,
    TypeError,
    ValueError,
    DaskclustError,
)
#: and those of an operating system: no room, no right to write, names that are too long.
_LASTING_NUMBERS = {
    getattr(errno, name)
    for name in ("ENOSPC", "EDQUOT", "EROFS", "ENAMETOOLONG")
    if hasattr(errno, name)
}
#: Seconds that nobody waits longer than between two tries.
_LONGEST = 30.0


def is_passing(error: Exception) -> bool:
    """Whether an error may be gone when a read is tried again.

    Programming errors, missing files, missing rights, and want of memory or space are not.
    All else is: libraries that read from networks have errors of their own, many
    derived from ``Exception`` alone.

    Examples
    --------
    >>> is_passing(ConnectionResetError()), is_passing(FileNotFoundError())
    (True, False)
    """
    if isinstance(error, OSError) and error.errno in _LASTING_NUMBERS:
        return False
    return not isinstance(error, _LASTING)


@dataclass(frozen=True)
class Retries:
    """How often a read is tried again, and how long it is waited before that.

    Parameters
    ----------
    count : int, default=0
        With 0, errors are raised as they are.
    backoff : float, default=0.0
        Seconds before the first; they double from one to the next, up to 30.
    """

    count: int = 0
    backoff: float = 0.0

    @classmethod
    def configured(cls) -> Retries:
        """Return what ``daskclust.read-retries`` and ``daskclust.read-backoff`` say."""
        count = int(dask.config.get("daskclust.read-retries"))
        backoff = float(parse_timedelta(dask.config.get("daskclust.read-backoff")))
        if count < 0 or backoff < 0:
            raise ValueError(
                f"daskclust.read-retries is {count} and daskclust.read-backoff is {backoff} s; "
                "expected numbers that are not negative."
            )
        return cls(count, backoff)

    def pauses(self) -> Iterable[float]:
        """Yield the seconds before each further try."""
        return (min(_LONGEST, self.backoff * 2.0**i) for i in range(self.count))


#: For what is no read, or is tried again elsewhere.
NEVER_AGAIN = Retries()


def _stores(value: Any, depth: int = 4) -> Iterable[str]:
    """Find arrays with a store among what a task is given."""
    store = getattr(value, "store", None)
    if store is not None and hasattr(value, "shape"):
        name = getattr(value, "path", "")
        place = redact(store)
        yield f"{place}/{name}" if name else place
    elif depth and isinstance(value, Mapping):
        for item in value.values():
            yield from _stores(item, depth - 1)
    elif depth and isinstance(value, list | tuple):
        for item in value:
            yield from _stores(item, depth - 1)
    elif depth:
        # Task objects of Dask; where they have none of these, the key must do.
        for name in ("args", "kwargs", "value"):
            inner = getattr(value, name, None)
            if inner is not None and not callable(inner):
                yield from _stores(inner, depth - 1)


def _what(key: Any, graph: Mapping[Any, Any]) -> str:
    name, *index = key if isinstance(key, tuple) else (key,)
    place = next(iter(_stores(graph)), None)
    chunk = f"chunk {tuple(index)} of {name!r}" if index else repr(name)
    return chunk if place is None else f"{chunk} of {place}"


def _text_of(error: BaseException) -> str:
    """Say what failed: libraries that wrap an error name the file in that below it."""
    below: BaseException = error
    for _ in range(8):
        if below.__cause__ is None:
            break
        below = below.__cause__
    text = redact(" ".join(str(below).split())).rstrip(".")
    return f"{type(error).__name__}: {text}"


def persistently(
    call: Callable[[], T],
    what: Callable[[], str],
    retries: Retries,
    failed: Callable[[str, Exception], Exception] = ReadError,
    done: str = "read",
) -> T:
    """Call a function, and again where that fails in a way that may pass.

    Parameters
    ----------
    call : callable()
    what : callable() -> str
        Names what is read or written, for the error.
    retries : Retries
    failed : callable(message, cause) -> Exception
        Makes the error.
    done : str
        What is done to it, for the error.

    Raises
    ------
    ReadError
        Or what ``failed`` makes: where it fails to the last, with the last error as its
        cause.
    """
    began = time.monotonic()
    for pause in (*retries.pauses(), None):
        try:
            return call()
        except Exception as error:
            if not is_passing(error) or not retries.count:
                raise
            if pause is None:
                raise failed(
                    f"{what()} could not be {done} in {retries.count + 1} tries over "
                    f"{time.monotonic() - began:.1f} s: {_text_of(error)}. Check the "
                    "store, or raise daskclust.read-retries or daskclust.read-backoff.",
                    error,
                ) from error
        time.sleep(pause)
    raise AssertionError("unreachable")


def read(load: Callable[[], T], key: Any, graph: Mapping[Any, Any], retries: Retries) -> T:
    """Load a chunk of a Dask array, and again where that fails in a way that may pass.

    Parameters
    ----------
    load : callable()
    key : hashable
        Dask's name of what is loaded; with ``graph``, for the error.
    graph : mapping
    retries : Retries

    Raises
    ------
    ReadError
        Where it fails to the last, with the last error as its cause.
    """
    return persistently(load, lambda: _what(key, graph), retries)
