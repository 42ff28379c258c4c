"""Every use of xarray and fsspec that their documentation does not promise.

Each use is one function, with a test in ``tests/core/storage/test_surface.py``.  The uses of Dask
are in ``core/engine/private_api.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fsspec import AbstractFileSystem
from fsspec.asyn import AsyncFileSystem


def file_of_xarray(value: Any) -> str | None:
    """Return the file that an array of a backend is read from (NetCDF, HDF5; of rioxarray)."""
    manager = getattr(getattr(value, "datastore", value), "_manager", None)
    opened = getattr(manager or getattr(value, "manager", None), "_args", None)
    file = opened[0] if isinstance(opened, tuple) and opened else None
    return file if isinstance(file, str) else None


def inside_xarray(layer: Any) -> Iterator[Any]:
    """Yield what a layer around an array of xarray holds."""
    for name in ("array", "_array"):
        yield getattr(layer, name, None)


def walks(files: Any) -> bool:
    """Whether a file system of fsspec finds files by walking through folders."""
    kind = type(files)
    # Those that are asynchronous have `find` from `_find`, in each object.
    own = getattr(kind, "_find", AsyncFileSystem._find) is not AsyncFileSystem._find
    return kind.find is AbstractFileSystem.find and not own
