"""Zarr stores: opening them, and creating them so that a crash leaves nothing behind."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import shutil
import struct
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import numpy as np
import zarr

__all__ = [
    "INCOMPLETE",
    "decode_fill_value",
    "encode_fill_value",
    "new_group",
    "open_store",
    "stamp",
]

# Set on a group that cannot be renamed into place (an object store, memory) until it is whole.
INCOMPLETE = "daskclust:incomplete"
_REMOVAL_TRIES, _REMOVAL_PAUSE = 20, 0.05  # pause in seconds
_ZARR_MARKS = ("zarr.json", ".zgroup", ".zarray", ".zmetadata")


def local_path(store: object) -> Path | None:
    """Return the absolute local path `store` means, or None for any other kind of store."""
    if isinstance(store, zarr.storage.LocalStore):
        return Path(store.root).absolute()
    if isinstance(store, os.PathLike):
        return Path(os.fspath(store)).absolute()
    if not isinstance(store, str):
        return None
    if store.startswith("file://"):
        return Path(unquote(urlparse(store).path)).absolute()
    return None if "://" in store or "::" in store else Path(store).absolute()


def open_store(store: Any) -> zarr.Group | zarr.Array:
    """Open `store` for reading.

    Parameters
    ----------
    store : str, path, zarr store, zarr.Group or zarr.Array
        A ``.zip`` path is opened as a zip store, a URL by fsspec.  Local paths become
        absolute, so that a worker with another working directory finds them.

    Returns
    -------
    zarr.Group or zarr.Array

    Raises
    ------
    FileNotFoundError
        Nothing is there, or it is no Zarr store.
    ValueError
        The group was left unfinished by a writer that stopped, or nothing knows the
        protocol of a URL.
    ImportError
        The fsspec package for the protocol of a URL is not installed.

    Examples
    --------
    >>> memory = zarr.storage.MemoryStore()
    >>> _ = zarr.create_array(memory, shape=(3,), dtype="int8")
    >>> open_store(memory).shape
    (3,)
    """
    if isinstance(store, zarr.Group | zarr.Array):
        node: zarr.Group | zarr.Array = store
    else:
        path = local_path(store)
        if path is not None and not path.exists():
            raise FileNotFoundError(
                f"There is no Zarr store at {str(path)!r}; give the path of an existing one."
            )
        target: Any = store if path is None else str(path)
        if path is not None and path.is_file():
            if path.suffix.lower() != ".zip":
                raise FileNotFoundError(
                    f"{str(path)!r} is a file; a Zarr store is a directory or a .zip file."
                )
            target = zarr.storage.ZipStore(path, mode="r")
        try:
            node = zarr.open(target, mode="r")
        except FileNotFoundError as error:  # zarr's message names neither what nor where
            raise FileNotFoundError(
                f"{str(store)!r} holds neither a Zarr group nor a Zarr array at its top; "
                "give the folder that contains zarr.json, .zgroup or .zarray."
            ) from error
        except (ImportError, ValueError) as error:
            if path is not None:
                raise
            raise type(error)(
                f"{str(store)!r} cannot be opened: {error}. URLs need the fsspec package of "
                "their protocol, for example s3fs for s3:// or aiohttp for https://."
            ) from error
    if node.attrs.get(INCOMPLETE):
        raise ValueError(
            f"{str(store)!r} is incomplete: its writer stopped before the end. "
            "Write it again with overwrite=True."
        )
    return node


def stamp(array: zarr.Array) -> str | None:
    """Digest of the names, sizes and times of the files that hold an array.

    Parameters
    ----------
    array : zarr.Array

    Returns
    -------
    str or None
        Another one after any of the files was written; None where there are no
        local files to look at.

    Notes
    -----
    Nothing is read; the cost is one look at each file, about 100 000 a second.

    Examples
    --------
    >>> stamp(zarr.zeros((2,), store=zarr.storage.MemoryStore())) is None
    True
    """
    store = array.store
    if isinstance(store, zarr.storage.ZipStore):
        files = [Path(store.path)]
    elif isinstance(store, zarr.storage.LocalStore):
        folder = Path(store.root) / array.path
        files = sorted(Path(top) / name for top, _, names in os.walk(folder) for name in names)
    else:
        return None
    digest = hashlib.sha256()
    for file in files:
        try:
            found = file.stat()
        except FileNotFoundError:  # gone since it was listed: that is a change, too
            continue
        digest.update(f"{file}\0{found.st_size}\0{found.st_mtime_ns}\n".encode())
    return digest.hexdigest()


@contextmanager
def new_group(store: Any, *, overwrite: bool = False) -> Iterator[zarr.Group]:
    """Create a Zarr v3 group that appears under its name only when it is whole.

    A local group is written into a hidden sibling folder and renamed at the
    end; after an exception the sibling is removed, after a crash it is left
    under its hidden name.  Other stores cannot rename: there an attribute marks
    the group as incomplete until the end, and :func:`open_store` refuses it.

    Parameters
    ----------
    store : str, path or zarr store
        The target.
    overwrite : bool, default=False
        Replace an existing Zarr store.  Anything else is never deleted.

    Yields
    ------
    zarr.Group
        Writable; valid inside the ``with`` block only.

    Raises
    ------
    FileExistsError
        The target exists and `overwrite` is False, or it is no Zarr store.
    ValueError
        The target is a ``.zip`` file, which several tasks cannot write at once.
    """
    if isinstance(store, zarr.Group | zarr.Array):
        raise TypeError(
            f"store is a {type(store).__name__}; a new group needs a path or a zarr store."
        )
    path = local_path(store)
    if path is None:
        with _marked_group(store, overwrite=overwrite) as group:
            yield group
        return
    if path.suffix.lower() == ".zip":
        raise ValueError(
            f"{str(path)!r}: a zip store cannot be written by several tasks at once. "
            "Write a folder (for example .zarr) and zip it afterwards."
        )
    _check_target(path, overwrite=overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.partial")
    try:
        yield zarr.open_group(str(partial), mode="w-", zarr_format=3)
        _move_into_place(partial, path, overwrite=overwrite)
    finally:
        _discard(partial)


def _discard(partial: Path) -> None:
    # After a failure, tasks that were already running may still be creating files, and
    # thereby folders that were just removed.  A few tries catch the usual case; what a
    # later one leaves has a hidden name and no metadata, so that it opens as nothing.
    for _ in range(_REMOVAL_TRIES):
        shutil.rmtree(partial, ignore_errors=True)
        if not partial.exists():
            return
        time.sleep(_REMOVAL_PAUSE)


def _check_target(path: Path, *, overwrite: bool) -> None:
    if not path.exists():
        return
    if not overwrite:
        raise FileExistsError(
            f"{str(path)!r} exists already; choose another name or pass overwrite=True."
        )
    is_zarr = any((path / mark).is_file() for mark in _ZARR_MARKS)
    if not is_zarr and (path.is_file() or any(path.iterdir())):
        raise FileExistsError(
            f"{str(path)!r} is not a Zarr store; overwrite=True replaces Zarr stores only. "
            "Remove it yourself or choose another name."
        )


def _move_into_place(partial: Path, path: Path, *, overwrite: bool) -> None:
    # Checked again: writing may have taken hours, and rename replaces an empty folder silently.
    _check_target(path, overwrite=overwrite)
    if not path.exists():
        partial.rename(path)
        return
    old = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.old")
    path.rename(old)
    try:
        partial.rename(path)
    except OSError:
        old.rename(path)
        raise
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _marked_group(store: Any, *, overwrite: bool) -> Iterator[zarr.Group]:
    try:
        group = zarr.open_group(store, mode="w" if overwrite else "w-", zarr_format=3)
    except FileExistsError as error:
        raise FileExistsError(
            f"{str(store)!r} holds a Zarr node already; choose another or pass overwrite=True."
        ) from error
    group.attrs[INCOMPLETE] = True
    yield group
    del group.attrs[INCOMPLETE]


def encode_fill_value(value: float, dtype: np.dtype[Any]) -> int | str:
    """Encode a ``_FillValue`` attribute as xarray does in Zarr v3.

    JSON has no NaN, hence floats are base64 of their eight little-endian bytes.

    Examples
    --------
    >>> encode_fill_value(-9999, np.dtype("int16"))
    -9999
    >>> encode_fill_value(-9999.0, np.dtype("float32"))
    'AAAAAICHw8A='
    """
    if dtype.kind == "f":
        return base64.standard_b64encode(struct.pack("<d", float(value))).decode()
    return int(value)


def decode_fill_value(value: Any) -> float | int:
    """Read a ``_FillValue``-like attribute: a number, ``"NaN"``, or base64 (see xarray).

    Raises
    ------
    ValueError
        The attribute is none of these.

    Examples
    --------
    >>> decode_fill_value("AAAAAICHw8A="), decode_fill_value([-1]), decode_fill_value("nan")
    (-9999.0, -1, nan)
    """
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            pass
        try:
            return float(struct.unpack("<d", base64.b64decode(value, validate=True))[0])
        except (binascii.Error, struct.error):
            pass
    raise ValueError(
        f"The nodata attribute {value!r} is neither a number, nor 'NaN', nor a base64-encoded "
        "float; pass nodata= with the value, or nodata=None."
    )
