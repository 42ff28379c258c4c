"""Files and folders that appear under their name only when they are whole: one rename for all."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from daskclust.core.storage.redact import redact

#: Errors of a disk that takes no more.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)

#: The form that :class:`pathlib.Path` gives a URL.
_WAS_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+:/")
_REMOVAL_TRIES, _REMOVAL_PAUSE, _LAST_LOOKS = 20, 0.05, 3  # pause in seconds
#: Seconds by which the clocks of a process and of a file may differ.
_CLOCKS = 2.0
#: Seconds after which a process of another host that wrote nothing counts as gone.
_SILENT = 60.0


@cache
def host() -> str:
    """Name where numbers of processes mean something: containers may share a host name."""
    name = re.sub(r"[^A-Za-z0-9]", "_", socket.gethostname())
    try:
        started = Path("/proc/sys/kernel/random/boot_id").read_bytes()
        numbering = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return name
    return f"{name}_{hashlib.sha256(started + str(numbering).encode()).hexdigest()[:8]}"


def hidden_sibling(path: Path, ending: str) -> Path:
    """Return a new hidden name beside `path`, which names this process for :func:`remove_stale`."""
    owner = f"{host()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    return path.with_name(f".{path.name}.{owner}.{ending}")


def put_in_place(partial: Path, path: Path) -> None:
    """Rename a whole file or folder to `path`, in place of another; folders take two steps."""
    if not partial.is_dir() or not path.exists():
        partial.replace(path)
        return
    old = hidden_sibling(path, "old")
    path.rename(old)
    try:
        partial.rename(path)
    except OSError:
        old.rename(path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def discard(partial: Path, *, failed: bool = False) -> None:
    """Remove an unfinished file or folder, if it is still there.

    After a failure, running tasks may still make files, and thereby the folder, anew.  A few tries
    and looks catch the usual case; what a later one leaves has a hidden name and no metadata.
    """
    looks = _LAST_LOOKS if failed and partial.is_dir() else 0
    for _ in range(_REMOVAL_TRIES):
        if partial.is_dir():
            shutil.rmtree(partial, ignore_errors=True)
        else:
            # A task may have made the folder only now.
            with contextlib.suppress(IsADirectoryError):
                partial.unlink(missing_ok=True)
        if not partial.exists():
            if not looks:
                return
            looks -= 1
        time.sleep(_REMOVAL_PAUSE)


def remove_stale(path: Path) -> None:
    """Remove what killed processes left unfinished beside `path`.

    Touches hidden names of this very target: of processes of this host that are gone, and those of
    other hosts which are older than the target by more than a minute.
    """
    ours = re.compile(
        rf"\.{re.escape(path.name)}\.(\w+)-(\d+)-[0-9a-f]{{8}}\.(?:partial|old)"
        r"(?:\.aux\.xml|\.gpkg(?:-\w+)?)?"  # what GDAL keeps beside a GeoTIFF, and SQLite
    )
    try:
        with os.scandir(path.parent) as entries:
            found = [(Path(entry.path), ours.fullmatch(entry.name)) for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return
    for item, match in found:
        if match is None or not _is_abandoned(item, match[1], int(match[2]), path):
            continue
        if item.is_dir() and not item.is_symlink():
            shutil.rmtree(item, ignore_errors=True)
        else:
            item.unlink(missing_ok=True)


def _is_abandoned(item: Path, owner: str, pid: int, path: Path) -> bool:
    try:
        changed = item.stat().st_mtime
        if owner == host():
            return is_gone(pid, changed)
        # A folder's own time does not tell what is written deep in it.
        newest = max([changed, *(inner.lstat().st_mtime for inner in item.rglob("*"))])
        return newest + _SILENT < path.stat().st_mtime
    except OSError:
        # Its owner was quicker, or it is not ours to remove.
        return False


def is_gone(pid: int, changed: float) -> bool:
    """Whether the process has ended; another may have its number by now."""
    try:
        return psutil.Process(pid).create_time() > changed + _CLOCKS
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        return False


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let errors of a disk that takes no more say what was written; the system does not."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL or error.filename is not None:
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from error


@contextmanager
def new_place(path: Path, *, check: Callable[[], None] | None = None) -> Iterator[Path]:
    """Yield a hidden sibling of `path`, renamed to it at the end; removed after a failure.

    A crash leaves the old file or the new one. `check` may refuse the rename.
    """
    _make_parent(path)
    partial = hidden_sibling(path, "partial")
    try:
        with naming(path):
            yield partial
            if not partial.is_dir():
                with partial.open("rb") as file:
                    os.fsync(file.fileno())
        if check is not None:
            check()
        put_in_place(partial, path)
    except BaseException as error:
        discard(partial, failed=True)
        if isinstance(error, Exception) and not path.parent.is_dir():
            raise FileNotFoundError(
                f"{str(path)!r} was not written: its folder was removed meanwhile. Do the same "
                "again, and leave the folder alone."
            ) from error
        raise


def _make_parent(path: Path) -> None:
    """Make the folder of a path; not of a URL, which would be one here."""
    if _WAS_URL.match(str(path)):
        raise ValueError(f"{redact(path)!r} is a URL; expected a path on this machine.")
    path.parent.mkdir(parents=True, exist_ok=True)


@contextmanager
def reserved(paths: Iterable[Path], *, again: bool = False) -> Iterator[None]:
    """Keep places for this process, by locks of hidden files beside them; FileExistsError: taken.

    With `again`, what this process keeps already is no error, and stays the first's. On file
    systems without locks, and on Windows, nothing is kept.
    """
    with ExitStack() as held:
        for path in sorted(set(paths)):
            _make_parent(path)
            place = path.parent.resolve() / f".{path.name}.lock"
            if not (again and place in _locks):
                held.enter_context(_locked(path, place))
        yield


#: Files that this process has locked.
_locks: list[Path] = []


@contextmanager
def _locked(path: Path, place: Path) -> Iterator[None]:
    file = _lock(path, place)
    if file is None:
        yield
        return
    _locks.append(place)
    try:
        yield
    finally:
        # While it is locked: nobody else can hold a file that is gone.
        _locks.remove(place)
        place.unlink(missing_ok=True)
        file.close()


def _lock(path: Path, place: Path) -> Any:
    try:
        import fcntl
    except ImportError:
        return None
    while True:
        file = place.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            who = file.read().strip() or "another process"
            file.close()
            raise FileExistsError(
                f"{str(path)!r} is being written by {who}: wait for it, or give another name."
            ) from None
        except OSError:
            # A file system that knows no locks.
            return file
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), place.stat()):
                break
        # Who had it has just ended, and removed it.
        file.close()
    file.truncate(0)
    since = datetime.now(UTC).isoformat(timespec="seconds")
    file.write(f"process {os.getpid()} on {socket.gethostname()}, since {since}")
    file.flush()
    return file
