"""Where a process runs: versions, memory, disk, clock; and whether it sees files of the client."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import shutil
import sys
import time
import uuid
from functools import cache
from pathlib import Path
from typing import Any

import psutil
from dask.system import CPU_COUNT

from daskclust.exceptions import StoreError
from daskclust.storage.files import read_start, remove, write_whole
from daskclust.storage.seen import StoredArray
from daskclust.storage.urls import redact

__all__ = [
    "EXTRAS",
    "MUST_MATCH",
    "OTHERS",
    "control_group",
    "look_around",
    "look_around_worker",
    "sees",
    "shares_folder",
    "shares_url",
]

#: Packages whose versions must be the same everywhere: their objects travel.
MUST_MATCH = ("daskclust", "dask", "distributed", "numpy", "numba", "zarr")
OTHERS = ("scikit-learn", "scipy", "cloudpickle", "msgpack")
EXTRAS = {"matplotlib": "plot", "xarray": "xarray", "pandas": "dataframe", "bokeh": "dashboard"}


def look_around() -> dict[str, Any]:
    """Describe the process this runs in: client, scheduler or worker."""
    versions: dict[str, str | None] = {}
    for name in (*MUST_MATCH, *OTHERS, *EXTRAS):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    group, allowed = control_group()
    return {
        "python": platform.python_version(),
        "host": platform.node(),
        "versions": versions,
        "code": code_digest(),
        "cores": CPU_COUNT,
        "memory": int(psutil.virtual_memory().total),
        "control_group": group,
        "control_group_limit": allowed,
        "clock": time.time(),
        "environment": {
            name: os.environ.get(name)
            for name in ("OMP_NUM_THREADS", "MALLOC_TRIM_THRESHOLD_", "NUMBA_CACHE_DIR")
        },
        "temporary_is_writable": os.access(os.environ.get("TMPDIR", "/tmp"), os.W_OK),
        "executable": sys.executable,
    }


def look_around_worker(dask_worker: Any) -> dict[str, Any]:
    """Describe the process of a worker, and where it spills to."""
    folder = Path(dask_worker.local_directory)
    return {
        **look_around(),
        "spill_folder": str(folder),
        "spill_file_system": file_system_of(folder),
        "disk_free": shutil.disk_usage(folder).free,
        "has_nanny": dask_worker.nanny is not None,
    }


@cache
def code_digest() -> str:
    """Digest of the package's modules: working copies of one version number may differ."""
    root = Path(__file__).resolve().parents[1]
    found = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        found.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return found.hexdigest()[:12]


def control_group(
    membership: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")
) -> tuple[str | None, int | None]:
    """Return the control group that bounds the memory of this process most, and its bytes.

    Of groups inside each other, the one that sets the limit. `membership` is what the kernel says
    of the groups of a process; `root` is where groups are mounted, of version 1 or 2.
    """
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return None, None
    best: tuple[str | None, int | None] = (None, None)
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, name = root, "memory.max"
        elif "memory" in controllers.split(","):
            top, name = root / "memory", "memory.limit_in_bytes"
        else:
            continue
        # In a container the group of the host may not be visible: then its top is ours.
        group = top / path.lstrip("/")
        for place in (group, *group.parents):
            if not place.is_relative_to(top):
                break
            limit = _bytes_in(place / name)
            if limit is not None and (best[1] is None or limit < best[1]):
                best = (f"/{place.relative_to(top)}".replace("/.", "/"), limit)
    return best


def _bytes_in(file: Path) -> int | None:
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    # Version 1 says "no limit" by a number that no machine has.
    return int(text) if text.isdigit() and int(text) < 2**60 else None


def file_system_of(folder: Path) -> str:
    """Return the type of the file system that holds a folder, such as ``"ext4"``.

    Examples
    --------
    >>> file_system_of(Path("/proc/self"))
    'proc'
    """
    place = folder.resolve()
    best = ("", "unknown")
    for partition in psutil.disk_partitions(all=True):
        mount = Path(partition.mountpoint)
        if place.is_relative_to(mount) and len(str(mount)) >= len(best[0]):
            best = str(mount), partition.fstype
    return best[1]


def sees(array: Any) -> str | None:
    """Return why this process does not see an array as the client does, or None.

    Of a Dask array the first block is read.
    """
    try:
        if not isinstance(array, StoredArray):
            array.blocks[(0,) * array.ndim].compute(scheduler="sync")
            return None
        array.check(again=True)
        lacking = array.compare_chunks()
        if lacking is None:
            array.array[tuple(slice(0, 1) for _ in array.shape)]
    except (StoreError, OSError, ValueError, KeyError, ImportError) as error:
        return " ".join(redact(error).split())
    return lacking


def shares_folder(folder: str, token: str) -> str | None:
    """Return why this process cannot write where the client does, or None.

    The client has made a file with the name `token` there.
    """
    place = Path(folder)
    if not (place / token).is_file():
        return f"it does not see {folder!r} as the client does"
    mine = place / f".{token}.{uuid.uuid4().hex[:8]}"
    try:
        mine.write_bytes(b"daskclust")
    except OSError as error:
        return f"it cannot write to {folder!r}: {error.strerror}"
    finally:
        mine.unlink(missing_ok=True)
    return None


def shares_url(token: str) -> str | None:
    """Return why this process cannot write where the client has made an object, or None."""
    folder = redact(token.rpartition("/")[0])
    mine = f"{token}.{uuid.uuid4().hex[:8]}"
    try:
        if read_start(token, 1) is None:
            return f"it does not see {folder!r} as the client does"
        write_whole(mine, b"daskclust", check=lambda: None)
        remove(mine)
    except Exception as error:  # libraries of object stores have errors of their own
        return f"it cannot write to {folder!r}: {' '.join(redact(error).split())}"
    return None
