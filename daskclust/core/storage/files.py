"""Reads and atomic writes of small files, on this machine or at a URL."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from daskclust.core.storage.atomic_write import new_path, remove_stale
from daskclust.core.storage.private_api import walks
from daskclust.core.storage.redact import redact
from daskclust.core.storage.retry import Retries, persistently, unwritten
from daskclust.core.storage.stores import check_protocol, local_path, opening_errors, url_options
from daskclust.exceptions import ReadError

T = TypeVar("T")


def unanswered(error: BaseException) -> bool:
    """Return True if a request timed out: fsspec then raises FileNotFoundError."""
    cause: BaseException | None = error
    for _ in range(8):
        if cause is None or isinstance(cause, TimeoutError):
            break
        cause = cause.__cause__ or cause.__context__
    return isinstance(cause, TimeoutError)


def _at_url(target: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs

    with opening_errors(target):
        file_system, inner = url_to_fs(target, **url_options(target))
    return file_system, inner


def _with_retries(
    target: Any,
    call: Callable[[], T],
    failed: Callable[[str, Exception], Exception] = ReadError,
    done: str = "read",
) -> T:
    return persistently(call, lambda: repr(redact(target)), Retries.configured(), failed, done)


def read_start(target: Any, size: int) -> bytes | None:
    """Return the first bytes of a local file or URL, or None if it does not exist.

    >>> read_start("memory://nobody/was/here", 10) is None
    True
    """
    path = local_path(target)
    try:
        if path is not None:
            with path.open("rb") as file:
                return file.read(size)
        file_system, inner = _at_url(target)

        def start() -> bytes:
            with file_system.open(inner, "rb", block_size=max(size, 2**16)) as file:
                return bytes(file.read(size))

        return _with_retries(target, start)
    except FileNotFoundError:
        return None


def read_range(target: Any, start: int, size: int) -> bytes:
    """Return bytes from the middle of a local file or URL; fewer at the end of the file.

    >>> write_whole("memory://middle.txt", b"abcde", check=lambda: None)
    >>> read_range("memory://middle.txt", 1, 3)
    b'bcd'
    """
    path = local_path(target)
    if path is not None:
        with path.open("rb", buffering=0) as file:
            file.seek(start)
            content = bytearray(size)
            view, n_read = memoryview(content), 0
            while count := file.readinto(view[n_read:]):
                n_read += count
        return bytes(content) if n_read == size else bytes(view[:n_read])
    file_system, inner = _at_url(target)
    return bytes(_with_retries(target, lambda: file_system.cat_file(inner, start, start + size)))


def is_folder_at_url(target: Any) -> bool:
    """Return True if a URL is a folder, such as a store; False for local paths."""
    if local_path(target) is not None:
        return False
    file_system, inner = _at_url(target)
    return bool(_with_retries(target, lambda: file_system.isdir(inner)))


def matching(target: str) -> list[str]:
    """Return the files that match a URL with ``*``, or the target itself without ``*``.

    It is an error if a folder cannot be listed (fsspec would return no files).
    """
    if "*" not in target or "::" in target or "://" not in target:
        return [target]
    file_system, inner = _at_url(target)
    if not walks(file_system):
        # Object stores list all files in one request, so no folder can be missing.
        return [target]
    files = _with_retries(
        target, lambda: sorted(file_system.glob(inner, on_error="raise")), done="listed"
    )
    if not files:
        raise FileNotFoundError(
            f"{redact(target)!r} must match a file, got no matches. Use the path of an existing "
            "file."
        )
    if target.endswith(inner):
        # The names of fsspec have no hosts and users, so the start of the URL is added.
        return [target.removesuffix(inner) + name for name in files]
    return [str(file_system.unstrip_protocol(name)) for name in files]


def write_whole(target: Any, content: bytes, *, check: Callable[[], None]) -> None:
    """Write a local file or an object atomically, unless `check` raises an error.

    >>> write_whole("memory://somewhere/a.txt", b"abc", check=lambda: None)
    >>> read_start("memory://somewhere/a.txt", 2)
    b'ab'
    """
    path = local_path(target)
    if path is not None:
        with new_path(path, check=check) as scratch:
            scratch.write_bytes(content)
        remove_stale(path)
        return
    check_protocol(target)
    file_system, inner = _at_url(target)
    check()
    _with_retries(target, lambda: file_system.pipe_file(inner, content), unwritten, "written")


def remove(target: str, *, folder: bool = False) -> None:
    file_system, inner = _at_url(target)
    with suppress(FileNotFoundError):
        remove_path = partial(file_system.rm, recursive=True) if folder else file_system.rm_file
        _with_retries(target, lambda: remove_path(inner), unwritten, "removed")
