"""Small files, on this machine or at a URL: written whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from daskclust.core.storage.atomic_write import new_place, remove_stale
from daskclust.core.storage.private_api import walks
from daskclust.core.storage.redact import redact
from daskclust.core.storage.retry import Retries, persistently, unwritten
from daskclust.core.storage.stores import check_protocol, local_path, opening_errors, url_options
from daskclust.exceptions import ReadError

T = TypeVar("T")


def unanswered(error: BaseException) -> bool:
    """Whether a request had no answer in time: fsspec calls that a file that is not there."""
    below: BaseException | None = error
    for _ in range(8):
        if below is None or isinstance(below, TimeoutError):
            break
        below = below.__cause__ or below.__context__
    return isinstance(below, TimeoutError)


def _at_url(place: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs

    with opening_errors(place):
        file_system, inner = url_to_fs(place, **url_options(place))
    return file_system, inner


def _again(
    place: Any,
    call: Callable[[], T],
    failed: Callable[[str, Exception], Exception] = ReadError,
    done: str = "read",
) -> T:
    return persistently(call, lambda: repr(redact(place)), Retries.configured(), failed, done)


def read_start(place: Any, size: int) -> bytes | None:
    """Return the first bytes of a local file or URL; None where there is none.

    >>> read_start("memory://nobody/was/here", 10) is None
    True
    """
    path = local_path(place)
    try:
        if path is not None:
            with path.open("rb") as file:
                return file.read(size)
        file_system, inner = _at_url(place)

        def start() -> bytes:
            with file_system.open(inner, "rb", block_size=max(size, 2**16)) as file:
                return bytes(file.read(size))

        return _again(place, start)
    except FileNotFoundError:
        return None


def read_range(place: Any, start: int, size: int) -> bytes:
    """Return bytes from the middle of a local file or URL; fewer where it ends before.

    >>> write_whole("memory://middle.txt", b"abcde", check=lambda: None)
    >>> read_range("memory://middle.txt", 1, 3)
    b'bcd'
    """
    path = local_path(place)
    if path is not None:
        with path.open("rb", buffering=0) as file:
            file.seek(start)
            content = bytearray(size)
            view, done = memoryview(content), 0
            while count := file.readinto(view[done:]):
                done += count
        return bytes(content) if done == size else bytes(view[:done])
    file_system, inner = _at_url(place)
    return bytes(_again(place, lambda: file_system.cat_file(inner, start, start + size)))


def is_folder_at_url(place: Any) -> bool:
    """Whether there are objects below a URL, such as a store; False for local paths."""
    if local_path(place) is not None:
        return False
    file_system, inner = _at_url(place)
    return bool(_again(place, lambda: file_system.isdir(inner)))


def matching(place: str) -> list[str]:
    """Return the files that a URL with ``*`` means; of any other place itself alone.

    fsspec takes a folder that it could not list for one without files.  Here that is an error.
    """
    if "*" not in place or "::" in place or "://" not in place:
        return [place]
    file_system, inner = _at_url(place)
    if not walks(file_system):
        # Object stores have one listing for all, which fails or does not.
        return [place]
    found = _again(place, lambda: sorted(file_system.glob(inner, on_error="raise")), done="listed")
    if not found:
        raise FileNotFoundError(
            f"There is no file {redact(place)!r}; give the path of an existing one."
        )
    if place.endswith(inner):
        # The part before the path stays: hosts and users are not in fsspec's names.
        return [place.removesuffix(inner) + name for name in found]
    return [str(file_system.unstrip_protocol(name)) for name in found]


def write_whole(place: Any, content: bytes, *, check: Callable[[], None]) -> None:
    """Write a local file or an object that appears when it is whole, unless `check` refuses it.

    >>> write_whole("memory://somewhere/a.txt", b"abc", check=lambda: None)
    >>> read_start("memory://somewhere/a.txt", 2)
    b'ab'
    """
    path = local_path(place)
    if path is not None:
        with new_place(path, check=check) as scratch:
            scratch.write_bytes(content)
        remove_stale(path)
        return
    check_protocol(place)
    file_system, inner = _at_url(place)
    check()
    _again(place, lambda: file_system.pipe_file(inner, content), unwritten, "written")


def remove(place: str, *, folder: bool = False) -> None:
    file_system, inner = _at_url(place)
    with suppress(FileNotFoundError):
        gone = partial(file_system.rm, recursive=True) if folder else file_system.rm_file
        _again(place, lambda: gone(inner), unwritten, "removed")
