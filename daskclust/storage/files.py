"""Small files, on this machine or at a URL: written whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from daskclust.storage.atomic import new_file, remove_stale
from daskclust.storage.stores import local_path, opening_errors

__all__ = ["read_start", "remove", "write_whole"]


def _at_url(place: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs

    with opening_errors(place):
        file_system, inner = url_to_fs(place)
    return file_system, inner


def read_start(place: Any, size: int) -> bytes | None:
    """Return the first bytes of a file; None where there is none.

    Parameters
    ----------
    place : str or path
        A local path, or a URL that fsspec knows.
    size : int

    Examples
    --------
    >>> read_start("memory://nobody/was/here", 10) is None
    True
    """
    path = local_path(place)
    try:
        if path is not None:
            with path.open("rb") as file:
                return file.read(size)
        file_system, inner = _at_url(place)
        with file_system.open(inner, "rb", block_size=max(size, 2**16)) as file:
            found: bytes = file.read(size)
            return found
    except FileNotFoundError:
        return None


def write_whole(place: Any, content: bytes, *, check: Callable[[], None]) -> None:
    """Write a file that appears under its name only when it is whole.

    Parameters
    ----------
    place : str or path
        A local path, or a URL; object stores take an object at once or not at all.
    content : bytes
    check : callable()
        Called right before the file appears; may refuse it.

    Examples
    --------
    >>> write_whole("memory://somewhere/a.txt", b"abc", check=lambda: None)
    >>> read_start("memory://somewhere/a.txt", 2)
    b'ab'
    """
    path = local_path(place)
    if path is not None:
        with new_file(path, check=check) as partial:
            partial.write_bytes(content)
        remove_stale(path)
        return
    file_system, inner = _at_url(place)
    check()
    file_system.pipe_file(inner, content)


def remove(place: str) -> None:
    """Remove the file at a URL; none that is not there."""
    file_system, inner = _at_url(place)
    with suppress(FileNotFoundError):
        file_system.rm_file(inner)
