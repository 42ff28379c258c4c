"""Where a process runs: versions, memory, disk, clock; and whether it sees files of the client."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import psutil
from dask.system import CPU_COUNT

from daskclust.exceptions import StoreError
from daskclust.storage.seen import StoredArray

__all__ = [
    "EXTRAS",
    "MUST_MATCH",
    "OTHERS",
    "look_around",
    "look_around_worker",
    "sees",
    "shares_folder",
]

#: Packages whose versions must be the same everywhere: their objects travel.
MUST_MATCH = ("daskclust", "dask", "distributed", "numpy", "numba", "zarr")
OTHERS = ("scikit-learn", "scipy", "cloudpickle", "msgpack")
EXTRAS = {"matplotlib": "plot", "xarray": "xarray", "pandas": "dataframe", "bokeh": "dashboard"}

_CGROUP_LIMITS = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)


def look_around() -> dict[str, Any]:
    """Describe the process this runs in: client, scheduler or worker."""
    versions: dict[str, str | None] = {}
    for name in (*MUST_MATCH, *OTHERS, *EXTRAS):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    return {
        "python": platform.python_version(),
        "host": platform.node(),
        "versions": versions,
        "cores": CPU_COUNT,
        "memory": _usable_memory(),
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


def _usable_memory() -> int:
    """Bytes of the machine, or of the container this runs in if that allows less."""
    total = int(psutil.virtual_memory().total)
    for name in _CGROUP_LIMITS:
        try:
            limit = Path(name).read_text().strip()
        except OSError:
            continue
        if limit.isdigit():
            return min(total, int(limit))
    return total


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


def sees(array: StoredArray) -> str | None:
    """Return why this process does not see an array as the client does, or None."""
    try:
        array.check(again=True)
        array.array[tuple(slice(0, 1) for _ in array.shape)]
    except (StoreError, OSError, ValueError, KeyError, ImportError) as error:
        return " ".join(str(error).split())
    return None


def shares_folder(folder: str, token: str) -> str | None:
    """Return why this process cannot write where the client does, or None.

    Parameters
    ----------
    folder : str
    token : str
        Name of a file that the client has made there.
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
