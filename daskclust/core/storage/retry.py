"""Retries of reads of blocks and writes of chunks, and errors that name the block or chunk."""

from __future__ import annotations

import errno
import math
import os
import platform
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import dask
from dask.utils import parse_timedelta
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    stop_after_attempt,
    stop_after_delay,
    wait_exponential,
)

from daskclust.config import check_settings
from daskclust.core.storage.private_api import file_of_xarray
from daskclust.core.storage.redact import redact
from daskclust.exceptions import ClusterError, DaskclustError, ReadError, StoreError


def on_worker() -> bool:
    return _address() is not None


def _address() -> str | None:
    try:
        from distributed import get_worker

        return str(get_worker().address)
    except (ImportError, ValueError):
        return None


def this_process() -> str:
    place, address = f"process {os.getpid()} on {platform.node()}", _address()
    return place if address is None else f"worker {address} ({place})"


def unseen(
    what: str, *, who: str = "which the client opened", verb: str = "does not see"
) -> StoreError:
    """Return the error for something that this process should see, as `who` does, and does not."""
    return StoreError(
        f"The {this_process()} {verb} {what}, {who}. Every worker must reach the same files or "
        "stores under the same path: use a shared file system or an object store, and check "
        "mounts and containers."
    )


def lacking(error: Exception) -> DaskclustError | None:
    """Return the error for a process that lacks a file or a package (version), if it is that."""
    if isinstance(error, _UNSEEN):
        verb = "may not read" if isinstance(error, PermissionError) else "does not see"
        return unseen(f"a file ({reason_of(error)})", verb=verb)
    if isinstance(error, OSError | MemoryError):
        return None
    lacks = error.name if isinstance(error, ImportError) else None
    return ClusterError(
        f"The {this_process()} "
        + (f"cannot import {lacks!r}" if lacks else "cannot unpack what the client sent")
        + f" ({reason_of(error)}). Install the client's packages, in the same versions, for each "
        "worker (Client.upload_file sends a module of your own), and start the workers again; "
        "daskclust doctor compares them."
    )


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
#: Those of them that say what a worker does not reach.
_UNSEEN = (FileNotFoundError, NotADirectoryError, PermissionError)
#: and those of an operating system: no room, no right to write, names that are too long.
_LASTING_NUMBERS = {
    getattr(errno, name)
    for name in ("ENOSPC", "EDQUOT", "EROFS", "ENAMETOOLONG")
    if hasattr(errno, name)
}
#: Answers of HTTP that ask for another try, among those that say the request is wrong.
_TRY_AGAIN = (408, 425, 429)
#: Maximum pause between two attempts, in seconds.
_LONGEST = 30.0
#: Number of retries that GDAL makes of a request, and seconds between them.
_GDAL_RETRIES, _GDAL_DELAY = 2, 1


def is_passing(error: BaseException) -> bool:
    """Whether an error may be gone when a read is tried again.

    Libraries that read from networks have errors of their own, many derived from ``Exception``
    alone: whatever is not known to last is passing.
    """
    if not isinstance(error, Exception):
        return False
    if isinstance(error, OSError) and error.errno in _LASTING_NUMBERS:
        return False
    status = getattr(error, "status", None)
    if isinstance(status, int) and 400 <= status < 500 and status not in _TRY_AGAIN:
        return False
    return not isinstance(error, _LASTING)


@dataclass(frozen=True)
class Retries:
    """Number of retries of a read or write, and the seconds before the first retry.

    The pause doubles from one retry to the next, up to 30 seconds. A read or write is not retried
    after twice the `timeout`.
    """

    count: int = 0
    backoff: float = 0.0
    timeout: float | None = None

    @classmethod
    def configured(cls) -> Retries:
        """Return what ``daskclust.read-retries``, ``read-backoff`` and ``read-timeout`` say."""
        check_settings()
        count = int(dask.config.get("daskclust.read-retries"))
        backoff = float(parse_timedelta(dask.config.get("daskclust.read-backoff")))
        patience = dask.config.get("daskclust.read-timeout")
        timeout = None if patience is None else float(parse_timedelta(patience))
        return cls(count, backoff, timeout)

    def attempts(self, give_up: Callable[[RetryCallState], Any] | None = None) -> Retrying:
        """Return an object that calls a function with retries.

        After the last attempt it calls `give_up`, or raises the error.
        """
        stop: Any = stop_after_attempt(self.count + 1)
        return Retrying(
            retry=retry_if_exception(is_passing),
            stop=stop if self.timeout is None else stop | stop_after_delay(2 * self.timeout),
            wait=wait_exponential(multiplier=self.backoff, max=_LONGEST),
            retry_error_callback=give_up,
            reraise=True,
        )


#: For what is no read, or is tried again elsewhere.
NEVER_AGAIN = Retries()


def _places(value: Any, depth: int = 12) -> Iterable[tuple[Callable[[], str], str | None]]:
    """Yield what a task reads, to be said in messages, and the name of the file, if it is one."""
    store, kind = getattr(value, "store", None), type(value).__module__.partition(".")[0]
    if store is not None and hasattr(value, "shape"):
        yield lambda: f"{redact(store)}/{getattr(value, 'path', '')}".rstrip("/"), None
    elif _is_open_file(value):
        yield lambda: redact(value.path), value.path
    elif kind in ("xarray", "rioxarray") and (file := file_of_xarray(value)) is not None:
        yield lambda: repr(redact(file)), file
    elif depth and isinstance(value, Mapping):
        if isinstance(value.get("piece"), tuple):
            # Of Dask's Parquet: a file, and the numbers of its row groups.
            yield lambda: _piece(*value["piece"]), str(value["piece"][0])
        for item in value.values():
            yield from _places(item, depth - 1)
    elif depth and isinstance(value, list | tuple):
        if len(value) > 2 and _is_open_file(value[0]):
            # Of Dask's CSV: a file, the first byte, and how many.
            yield lambda: f"{redact(value[0].path)!r} from byte {value[1]}", value[0].path
        for item in value:
            yield from _places(item, depth - 1)
    elif depth:
        # Tasks of Dask, and layers of xarray; where they have none of these, the key must do.
        for name in ("args", "kwargs", "value", "array"):
            inner = getattr(value, name, None)
            if inner is not None and not callable(inner):
                yield from _places(inner, depth - 1)


def files_in(graph: Mapping[Any, Any]) -> list[str]:
    """Return the files of tables, and those that xarray opened, that tasks read."""
    return sorted({file for _, file in _places(graph) if file is not None})


def _piece(path: object, groups: Any = None, *_: object) -> str:
    rows = f", row groups {groups}" if groups and groups != [None] else ""
    return f"{redact(path)!r}{rows}"


def _is_open_file(value: Any) -> bool:
    return hasattr(value, "fs") and isinstance(getattr(value, "path", None), str)


def _what(key: Any, graph: Mapping[Any, Any]) -> str:
    name, *index = key if isinstance(key, tuple) else (key,)
    place, _ = next(iter(_places(graph)), (None, None))
    chunk = f"chunk {tuple(index)} of {name!r}" if index else repr(name)
    return chunk if place is None else f"{chunk} of {place()}"


def reason_of(error: BaseException) -> str:
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
    """Call a function with retries after temporary errors; raise ``failed(message, cause)``."""

    def give_up(state: RetryCallState) -> T:
        error = cast("Exception", cast("Any", state.outcome).exception())
        if not retries.count:
            raise error
        who = f" by the {this_process()}" if on_worker() else ""
        raise failed(
            f"{what()} could not be {done} in {state.attempt_number} tries over "
            f"{state.seconds_since_start or 0:.1f} s{who}: {reason_of(error)}. Check the store, or "
            "raise daskclust.read-retries, daskclust.read-backoff or daskclust.read-timeout.",
            error,
        ) from error

    with patience_of_gdal(retries.timeout):
        return retries.attempts(give_up)(call)


def unwritten(message: str, cause: Exception) -> StoreError:
    """Return the error for what could not be written: the argument ``failed`` of a call."""
    return StoreError(message)


def patience_of_gdal(timeout: float | None) -> AbstractContextManager[Any]:
    """Let GDAL, if it is imported, retry requests, and fail if a server does not send data."""
    rasterio = sys.modules.get("rasterio")
    if rasterio is None or timeout is None:
        return nullcontext()
    seconds = max(1, math.ceil(timeout))
    # A slow transfer goes on; one that stands still does not.
    return cast(
        "AbstractContextManager[Any]",
        rasterio.Env(
            GDAL_HTTP_CONNECTTIMEOUT=seconds,
            GDAL_HTTP_LOW_SPEED_TIME=seconds,
            GDAL_HTTP_LOW_SPEED_LIMIT=1,
            GDAL_HTTP_MAX_RETRY=_GDAL_RETRIES,
            GDAL_HTTP_RETRY_DELAY=_GDAL_DELAY,
        ),
    )


def read(load: Callable[[], T], key: Any, graph: Mapping[Any, Any], retries: Retries) -> T:
    """Load a chunk of a Dask array persistently; `key` and `graph` name the file in the error."""
    try:
        return persistently(load, lambda: _what(key, graph), retries)
    except (*_UNSEEN, ImportError) as error:
        found = lacking(error) if on_worker() else None
        if found is None:
            raise
        raise found from error
