"""Files that are replaced as a whole, and what killed processes left of that."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import IO
from uuid import uuid4

import psutil

__all__ = ["remove_leftovers", "write_whole"]

#: Seconds by which the clocks of a process and of a file may differ.
_CLOCKS = 2.0
#: Seconds after which nobody writes to such a small file any more.
_WRITTEN = 60.0


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9]", "_", socket.gethostname())


def write_whole(path: Path, write: Callable[[IO[bytes]], None]) -> None:
    """Replace a file; a crash leaves the old one or the new one.

    A process that is killed meanwhile leaves a scratch file, which is named after
    the file and the process.  :func:`remove_leftovers` knows it by that.
    """
    scratch = path.with_name(f".{path.name}.{_host()}-{os.getpid()}-{uuid4().hex[:8]}.tmp")
    try:
        with scratch.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def remove_leftovers(path: Path) -> None:
    """Remove scratch files of this file that no living process writes to.

    Those of processes of this host that are gone, and those of other hosts which
    are older than the file by more than a minute.
    """
    pattern = re.compile(rf"\.{re.escape(path.name)}\.(?:(\w+)-(\d+)-)?[0-9a-f]{{8,32}}\.tmp")
    for found in path.parent.glob(".*.tmp"):
        match = pattern.fullmatch(found.name)
        if match is None:
            continue
        try:
            changed = found.stat().st_mtime
            here = match[1] == _host()
            if _is_gone(int(match[2]), changed) if here else _is_older(changed, path):
                found.unlink()
        except OSError:
            # Its owner was quicker, or it is not ours to remove.
            continue


def _is_gone(pid: int, changed: float) -> bool:
    """Whether the process has ended; another may have its number by now."""
    try:
        return psutil.Process(pid).create_time() > changed + _CLOCKS
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        return False


def _is_older(changed: float, path: Path) -> bool:
    return path.exists() and changed + _WRITTEN < path.stat().st_mtime
