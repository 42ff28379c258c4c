"""All uses of undocumented features of xarray and fsspec.

Each use is one function, with a test in ``tests/core/storage/test_surface.py``.  The uses of Dask
are in ``core/engine/private_api.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def file_of_xarray(value: Any) -> str | None:
    """Return the file of an array of an xarray backend (NetCDF, HDF5 or rioxarray), or None."""
    manager = getattr(getattr(value, "datastore", value), "_manager", None)
    opened = getattr(manager or getattr(value, "manager", None), "_args", None)
    file = opened[0] if isinstance(opened, tuple) and opened else None
    return file if isinstance(file, str) else None


def inside_xarray(layer: Any) -> Iterator[Any]:
    """Yield the arrays inside a wrapper of xarray."""
    for name in ("array", "_array"):
        yield getattr(layer, name, None)


def walks(files: Any) -> bool:
    """Return True if a file system of fsspec finds files by walking through folders."""
    from fsspec import AbstractFileSystem
    from fsspec.asyn import AsyncFileSystem

    kind = type(files)
    # Asynchronous file systems get `find` from `_find`, in each object.
    own = getattr(kind, "_find", AsyncFileSystem._find) is not AsyncFileSystem._find
    return kind.find is AbstractFileSystem.find and not own
