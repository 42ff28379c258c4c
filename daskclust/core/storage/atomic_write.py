"""Atomic writes: files and folders have a hidden name until they are complete."""

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

#: Errors of a disk that is full or read-only.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)

#: Pattern of the start of a URL in which :class:`pathlib.Path` has replaced ``//``.
_WAS_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+:/")
#: Maximum number of attempts to remove a file, seconds between attempts, and number of checks after
#: a removal.
_REMOVAL_TRIES, _REMOVAL_PAUSE, _LAST_CHECKS = 20, 0.05, 3
#: Maximum difference in seconds between the clocks of a process and of a file.
_CLOCKS = 2.0
#: Seconds without writing after which a process of another host is considered dead.
_SILENT = 60.0


@cache
def host() -> str:
    """Return a name of the host or container, within which process numbers are unique."""
    name = re.sub(r"[^A-Za-z0-9]", "_", socket.gethostname())
    try:
        started = Path("/proc/sys/kernel/random/boot_id").read_bytes()
        numbering = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return name
    return f"{name}_{hashlib.sha256(started + str(numbering).encode()).hexdigest()[:8]}"


def hidden_sibling(path: Path, suffix: str) -> Path:
    """Return a new hidden path next to `path` that contains the number of this process."""
    owner = f"{host()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    return path.with_name(f".{path.name}.{owner}.{suffix}")


def put_in_place(partial: Path, path: Path) -> None:
    """Rename a complete file or folder to `path`, and replace an old file or folder."""
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
    """Remove an incomplete file or folder if it exists.

    After a failure, running tasks may still write files and create the folder again.  A few retries
    usually remove these files.  Files that appear later have a hidden name and no metadata.
    """
    n_checks = _LAST_CHECKS if failed and partial.is_dir() else 0
    for _ in range(_REMOVAL_TRIES):
        if partial.is_dir():
            shutil.rmtree(partial, ignore_errors=True)
        else:
            # A task may have just created the folder.
            with contextlib.suppress(IsADirectoryError):
                partial.unlink(missing_ok=True)
        if not partial.exists():
            if not n_checks:
                return
            n_checks -= 1
        time.sleep(_REMOVAL_PAUSE)


def remove_stale(path: Path) -> None:
    """Remove incomplete files of killed processes next to `path`.

    Only hidden names for this path are removed: of dead processes on this host, and of processes on
    other hosts if the file is older than `path` by more than a minute.
    """
    ours = re.compile(
        rf"\.{re.escape(path.name)}\.(\w+)-(\d+)-[0-9a-f]{{8}}\.(?:partial|old)"
        r"(?:\.aux\.xml|\.gpkg(?:-\w+)?)?"  # files of GDAL next to a GeoTIFF, and of SQLite
    )
    try:
        with os.scandir(path.parent) as entries:
            candidates = [(Path(entry.path), ours.fullmatch(entry.name)) for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return
    for item, match in candidates:
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
        # The time of a folder does not change when files deep inside it are written.
        newest = max([changed, *(inner.lstat().st_mtime for inner in item.rglob("*"))])
        return newest + _SILENT < path.stat().st_mtime
    except OSError:
        # The owner has removed the file, or this process may not read it.
        return False


def is_gone(pid: int, changed: float) -> bool:
    """Return True if the process has ended.  Newer processes may have the same number."""
    try:
        return psutil.Process(pid).create_time() > changed + _CLOCKS
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        return False


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the path to errors of a full or read-only disk."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL or error.filename is not None:
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from error


@contextmanager
def new_path(path: Path, *, check: Callable[[], None] | None = None) -> Iterator[Path]:
    """Yield a hidden path next to `path`; rename it at the end, or remove it after a failure.

    After a crash, the old or the new file exists.  `check` may prevent the rename by an error.
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
                f"{str(path)!r} was not written, because its folder was removed during writing. "
                "Write it again, and keep the folder."
            ) from error
        raise


def _make_parent(path: Path) -> None:
    """Create the parent folder of a path; raise ValueError for a URL."""
    if _WAS_URL.match(str(path)):
        raise ValueError(f"{redact(path)!r} must be a path on this machine, not a URL.")
    path.parent.mkdir(parents=True, exist_ok=True)


@contextmanager
def reserved(paths: Iterable[Path], *, again: bool = False) -> Iterator[None]:
    """Lock paths for this process by hidden lock files; raise FileExistsError if one is locked.

    With `again`, paths that this process has already locked are skipped.  On Windows, and on file
    systems without locks, no path is locked.
    """
    with ExitStack() as stack:
        for path in sorted(set(paths)):
            _make_parent(path)
            lock_path = path.parent.resolve() / f".{path.name}.lock"
            if not (again and lock_path in _locks):
                stack.enter_context(_locked(path, lock_path))
        yield


#: Lock files of this process.
_locks: list[Path] = []


@contextmanager
def _locked(path: Path, lock_path: Path) -> Iterator[None]:
    file = _lock(path, lock_path)
    if file is None:
        yield
        return
    _locks.append(lock_path)
    try:
        yield
    finally:
        # The file is removed while it is locked, so that no process can lock a removed file.
        _locks.remove(lock_path)
        lock_path.unlink(missing_ok=True)
        file.close()


def _lock(path: Path, lock_path: Path) -> Any:
    try:
        import fcntl
    except ImportError:
        return None
    while True:
        file = lock_path.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip() or "another process"
            file.close()
            raise FileExistsError(
                f"{str(path)!r} is being written by {owner}. Wait for it, or use another name."
            ) from None
        except OSError:
            # The file system does not support locks.
            return file
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), lock_path.stat()):
                break
        # The previous owner has just finished and removed the file.
        file.close()
    file.truncate(0)
    since = datetime.now(UTC).isoformat(timespec="seconds")
    file.write(f"process {os.getpid()} on {socket.gethostname()}, since {since}")
    file.flush()
    return file
