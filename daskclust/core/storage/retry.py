"""Retries of reads and writes, with errors that name the block or chunk."""

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
    process, address = f"process {os.getpid()} on {platform.node()}", _address()
    return process if address is None else f"worker {address} ({process})"


def unseen(
    what: str, *, who: str = "which the client opened", verb: str = "does not see"
) -> StoreError:
    """Return the error for a file or store that this process cannot read, although `who` can."""
    return StoreError(
        f"The {this_process()} {verb} {what}, {who}. Every worker must reach the same files or "
        "stores under the same path: use a shared file system or an object store, and check "
        "mounts and containers."
    )


def lacking(error: Exception) -> DaskclustError | None:
    """Return the error if a file or package is missing in this process, or None."""
    if isinstance(error, _UNSEEN):
        verb = "may not read" if isinstance(error, PermissionError) else "does not see"
        return unseen(f"a file ({reason_of(error)})", verb=verb)
    if isinstance(error, OSError | MemoryError):
        return None
    module = error.name if isinstance(error, ImportError) else None
    return ClusterError(
        f"The {this_process()} "
        + (f"cannot import {module!r}" if module else "cannot unpickle the task of the client")
        + f" ({reason_of(error)}). Install the same packages and versions on each worker as on the "
        "client (Client.upload_file sends a module of your own), and restart the workers; "
        "daskclust doctor compares them."
    )


T = TypeVar("T")

#: Errors that a retry cannot fix.
_PERMANENT = (
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
#: Errors of a worker that cannot reach a file.
_UNSEEN = (FileNotFoundError, NotADirectoryError, PermissionError)
#: Errors of the operating system that a retry cannot fix: full disk, read-only, name too long.
_PERMANENT_NUMBERS = {
    getattr(errno, name)
    for name in ("ENOSPC", "EDQUOT", "EROFS", "ENAMETOOLONG")
    if hasattr(errno, name)
}
#: HTTP status codes of client errors after which a request is retried.
_RETRY_STATUS = (408, 425, 429)
#: Maximum pause between two attempts, in seconds.
_MAX_PAUSE = 30.0
#: Number of retries of a request by GDAL, and seconds between retries.
_GDAL_RETRIES, _GDAL_DELAY = 2, 1


def is_temporary(error: BaseException) -> bool:
    """Return True if a retry of a read may fix an error.

    Network libraries have their own errors, many of which are derived only from ``Exception``.
    Therefore unknown errors are retried.
    """
    if not isinstance(error, Exception):
        return False
    if isinstance(error, OSError) and error.errno in _PERMANENT_NUMBERS:
        return False
    status = getattr(error, "status", None)
    if isinstance(status, int) and 400 <= status < 500 and status not in _RETRY_STATUS:
        return False
    return not isinstance(error, _PERMANENT)


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
        """Return the settings ``daskclust.read-retries``, ``read-backoff`` and ``read-timeout``."""
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
            retry=retry_if_exception(is_temporary),
            stop=stop if self.timeout is None else stop | stop_after_delay(2 * self.timeout),
            wait=wait_exponential(multiplier=self.backoff, max=_MAX_PAUSE),
            retry_error_callback=give_up,
            reraise=True,
        )


#: No retries: for operations other than reads, and if the caller retries.
NEVER_AGAIN = Retries()


def _sources(value: Any, depth: int = 12) -> Iterable[tuple[Callable[[], str], str | None]]:
    """Yield the sources that a task reads: a description, and the file name or None."""
    store, kind = getattr(value, "store", None), type(value).__module__.partition(".")[0]
    if store is not None and hasattr(value, "shape"):
        yield lambda: f"{redact(store)}/{getattr(value, 'path', '')}".rstrip("/"), None
    elif _is_open_file(value):
        yield lambda: redact(value.path), value.path
    elif type(value).__name__ == "ParquetFileFragment":
        yield lambda: _piece(value.path, [group.id for group in value.row_groups]), value.path
    elif kind in ("xarray", "rioxarray") and (file := file_of_xarray(value)) is not None:
        yield lambda: repr(redact(file)), file
    elif depth and isinstance(value, Mapping):
        if isinstance(value.get("piece"), tuple):
            # A Parquet read of Dask: a file, and its row group numbers.
            yield lambda: _piece(*value["piece"]), str(value["piece"][0])
        for item in value.values():
            yield from _sources(item, depth - 1)
    elif depth and isinstance(value, list | tuple):
        if len(value) > 2 and _is_open_file(value[0]):
            # A CSV read of Dask: a file, the first byte, and the number of bytes.
            yield lambda: f"{redact(value[0].path)!r} from byte {value[1]}", value[0].path
        for item in value:
            yield from _sources(item, depth - 1)
    elif depth:
        # Tasks of Dask and wrappers of xarray; without sources, the message has only the key.
        for name in ("args", "kwargs", "value", "array"):
            inner = getattr(value, name, None)
            if inner is not None and not callable(inner):
                yield from _sources(inner, depth - 1)


def files_in(graph: Mapping[Any, Any]) -> list[str]:
    """Return the files of tables, and files opened by xarray, that tasks read."""
    return sorted({file for _, file in _sources(graph) if file is not None})


def _piece(path: object, groups: Any = None, *_: object) -> str:
    rows = f", row groups {groups}" if groups and groups != [None] else ""
    return f"{redact(path)!r}{rows}"


def _is_open_file(value: Any) -> bool:
    return hasattr(value, "fs") and isinstance(getattr(value, "path", None), str)


def _chunk_description(key: Any, graph: Mapping[Any, Any]) -> str:
    name, *index = key if isinstance(key, tuple) else (key,)
    describe, _ = next(iter(_sources(graph)), (None, None))
    chunk = f"chunk {tuple(index)} of {name!r}" if index else repr(name)
    return chunk if describe is None else f"{chunk} of {describe()}"


def reason_of(error: BaseException) -> str:
    """Return the text of an error, or of the innermost error that a library has wrapped."""
    cause: BaseException = error
    for _ in range(8):
        if cause.__cause__ is None:
            break
        cause = cause.__cause__
    text = redact(" ".join(str(cause).split())).rstrip(".")
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
        where = f" by the {this_process()}" if on_worker() else ""
        raise failed(
            f"{what()} could not be {done} in {state.attempt_number} tries over "
            f"{state.seconds_since_start or 0:.1f} s{where}: {reason_of(error)}. Check the store, "
            "or increase daskclust.read-retries, daskclust.read-backoff or daskclust.read-timeout.",
            error,
        ) from error

    with patience_of_gdal(retries.timeout):
        return retries.attempts(give_up)(call)


def unwritten(message: str, cause: Exception) -> StoreError:
    """Return the error for a failed write; the argument ``failed`` of :func:`persistently`."""
    return StoreError(message)


def patience_of_gdal(timeout: float | None) -> AbstractContextManager[Any]:
    """Set retries and time limits of GDAL, if it is imported."""
    rasterio = sys.modules.get("rasterio")
    if rasterio is None or timeout is None:
        return nullcontext()
    seconds = max(1, math.ceil(timeout))
    # A slow transfer continues; a stalled transfer fails.
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
    """Load a chunk of a Dask array with retries; `key` and `graph` name the file in errors."""
    try:
        return persistently(load, lambda: _chunk_description(key, graph), retries)
    except (*_UNSEEN, ImportError) as error:
        missing_error = lacking(error) if on_worker() else None
        if missing_error is None:
            raise
        raise missing_error from error
