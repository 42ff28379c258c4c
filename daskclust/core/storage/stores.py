"""Opening of Zarr stores, and attributes that describe values."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import os
import re
import struct
import zlib
from collections.abc import (
    Callable,
    Iterator,
    Sequence,
)
from contextlib import contextmanager
from json import JSONDecodeError
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlparse
from zipfile import BadZipFile

import numpy as np
import zarr
from zarr.abc.store import Store
from zarr.core.sync import sync
from zarr.storage import FsspecStore, LocalStore, MemoryStore, ZipStore

from daskclust.core.storage.redact import redact
from daskclust.core.storage.retry import Retries, persistently
from daskclust.core.storage.stored_array import StoredArray

T = TypeVar("T")

#: Stores on this machine, whose errors are permanent.
_LOCAL_STORES = (LocalStore, MemoryStore, ZipStore)


def forget_listings(store: Store) -> None:
    """Discard cached listings of a file system, because other processes may have written."""
    if isinstance(store, FsspecStore):
        store.fs.invalidate_cache()


def holds_version_2(store: Store, inner: str) -> bool:
    """Return True if a store supports Zarr version 2; icechunk supports only version 3."""
    try:
        sync(store.exists(f"{inner}/.zgroup".lstrip("/")))
    except KeyError:
        return False
    return True


# Attribute that marks an incomplete group in a store without renames (object store, memory).
INCOMPLETE = "daskclust:incomplete"
#: Protocols of fsspec that can only be read.
_READ_ONLY = frozenset({"http", "https"})
_NEEDS = (
    "URLs need the fsspec package of their protocol, for example s3fs for s3:// or aiohttp for "
    "https://."
)
_PLAIN_STORES = (*_LOCAL_STORES, FsspecStore)


def local_path(store: object) -> Path | None:
    if isinstance(store, zarr.storage.LocalStore):
        return Path(store.root).absolute()
    if isinstance(store, os.PathLike):
        return Path(os.fspath(store)).absolute()
    if not isinstance(store, str):
        return None
    if store.startswith("file://"):
        return Path(unquote(urlparse(store).path)).absolute()
    return None if "://" in store or "::" in store else Path(store).absolute()


def check_protocol(target: object) -> None:
    """Raise ValueError for a URL that can only be read, before any computation.

    >>> check_protocol("s3://bucket/map.zarr")
    >>> check_protocol("https://host/map.zarr")
    Traceback (most recent call last):
    ValueError: 'https://host/map.zarr' must not be on a web server, which can only be read. ...
    """
    if isinstance(target, zarr.storage.StorePath):
        target = target.store
    if isinstance(target, str):
        # Protocols may be chained, as in simplecache::https://...
        protocols = {link.partition("://")[0] for link in target.split("::") if "://" in link}
    else:
        protocol = getattr(getattr(target, "fs", None), "protocol", ())
        protocols = {protocol} if isinstance(protocol, str) else set(protocol)
    if _READ_ONLY.intersection(map(str.lower, protocols)):
        raise ValueError(
            f"{redact(target)!r} must not be on a web server, which can only be read. Write to a "
            "local path or an object store (such as s3://), and upload the result."
        )


def open_store(store: Any) -> zarr.Group | zarr.Array:
    """Open `store` for reading; local paths become absolute for workers in other directories.

    An incomplete group, whose writer was stopped, raises ValueError.
    """
    if isinstance(store, zarr.Group | zarr.Array):
        node: zarr.Group | zarr.Array = store
    elif isinstance(store, Store) and type(store) not in _PLAIN_STORES:
        # A user's subclass of a store may do more than read files, so it is opened as it is.
        node = _open(store, "r" if store.read_only else "r+")
    else:
        path = local_path(store)
        if path is not None and not path.exists():
            raise FileNotFoundError(
                f"The Zarr store {str(path)!r} does not exist; use the path of an existing store."
            )
        target: Any = store if path is None else str(path)
        if path is not None and path.is_file():
            if path.suffix.lower() != ".zip":
                raise FileNotFoundError(
                    f"{str(path)!r} must be a Zarr store (a folder or a .zip file), an image file, "
                    "or an array in a .npy file, got a file of an unknown format."
                )
            target = zarr.storage.ZipStore(path, mode="r")
        with opening_errors(store):
            if path is None and isinstance(store, str):
                target = at_url(store, read_only=True)
            node = _open(target, "r")
    with opening_errors(store):
        _check_attributes(node)
    if node.attrs.get(INCOMPLETE):
        raise ValueError(
            f"{redact(store)!r} is incomplete: its writer is still running or was stopped. Wait "
            "for the writer, or write the store again."
        )
    return node


def _open(target: Any, mode: Any) -> zarr.Group | zarr.Array:
    name = str(target.root) if isinstance(target, LocalStore) else redact(target)
    return _read(lambda: zarr.open(target, mode=mode), repr(name))


def _read(call: Callable[[], T], name: str) -> T:
    """Read metadata with retries, except for a damaged archive."""

    def attempt() -> T | BadZipFile:
        try:
            return call()
        except BadZipFile as error:
            return error

    result = persistently(attempt, lambda: f"The metadata of {name}", Retries.configured())
    if isinstance(result, BadZipFile):
        raise result
    return result


def at_url(url: str, *, read_only: bool = False) -> FsspecStore:
    """Return the store at a URL; requests to a web server have a time limit."""
    return FsspecStore.from_url(url, storage_options=url_options(url), read_only=read_only)


def url_options(target: str) -> dict[str, Any]:
    """Return fsspec's options for a time limit of HTTP requests."""
    protocols = {"http", "https"}.intersection(re.split("::|://", target))
    if not protocols:
        return {}
    try:
        from aiohttp import ClientTimeout
    except ImportError:
        # Opening the URL raises the error about the missing package.
        return {}
    limit = ClientTimeout(total=Retries.configured().timeout)
    return {protocol: {"client_kwargs": {"timeout": limit}} for protocol in protocols}


@contextmanager
def opening_errors(store: Any) -> Iterator[None]:
    """Add the store (without credentials) and a remedy to errors of opening it."""
    try:
        yield
    except FileNotFoundError as error:  # the message of Zarr names no store
        raise FileNotFoundError(
            f"{redact(store)!r} must be a Zarr group or a Zarr array; "
            "use the folder that contains zarr.json, .zgroup or .zarray."
        ) from error
    except BadZipFile as error:
        raise ValueError(
            f"{redact(store)!r} is not a complete zip file: {redact(error)}. Copy or download it "
            "again."
        ) from error
    except (ImportError, ValueError) as error:
        is_local, is_import = local_path(store) is not None, isinstance(error, ImportError)
        if is_local and is_import:
            raise
        if is_local or isinstance(error, JSONDecodeError):
            raise _damaged(store, error) from error
        kind = ImportError if is_import else ValueError
        raise kind(f"{redact(store)!r} cannot be opened: {redact(error)}. {_NEEDS}") from error
    except (
        TypeError,
        AttributeError,
        LookupError,
        ArithmeticError,
        AssertionError,
        MemoryError,
        # Errors of recursion, of unsupported zip features, and of codecs.
        RuntimeError,
        EOFError,
        struct.error,
        zlib.error,
    ) as error:
        raise _damaged(store, error) from error


def _damaged(store: Any, error: Exception) -> ValueError:
    return ValueError(
        f"{redact(store)!r} cannot be opened: its metadata are damaged, or in a format that this "
        f"version of Zarr does not support ({type(error).__name__}: {redact(error)})."
    )


def arrays_of(group: zarr.Group) -> dict[str, zarr.Array]:
    """Open all arrays of a group; damaged metadata raise an error that names the store."""
    with opening_errors(group.store):
        by_name = _read(lambda: dict(group.arrays()), repr(redact(group.store)))
        for array in by_name.values():
            _check_attributes(array)
        return by_name


def array_of(group: zarr.Group, name: str) -> zarr.Array | None:
    """Open one array of a group, or return None if it is missing."""
    with opening_errors(group.store):
        node = _read(lambda: group.get(name), repr(redact(group.store)))
        if not isinstance(node, zarr.Array):
            return None
        _check_attributes(node)
        return node


def paths_below(group: zarr.Group) -> list[str]:
    """Return the paths of all arrays in a group and the groups below it; reads all metadata."""
    with opening_errors(group.store):
        members = _read(lambda: group.members(max_depth=None), repr(redact(group.store)))
    return sorted(path for path, node in members if isinstance(node, zarr.Array))


def _check_attributes(node: zarr.Group | zarr.Array) -> None:
    """Raise TypeError if attributes are not a JSON object; zarr checks this only for groups."""
    content: object = node.metadata.attributes
    if not isinstance(content, dict):
        raise TypeError(f"the attributes of {node.path!r} are a {type(content).__name__}")


def stamp(files: StoredArray | Sequence[Path]) -> str | None:
    """Return a digest of names, sizes and times of local files, such as the files of an array.

    Return None if there are no files.  About 100 000 files per second are checked.
    """
    if isinstance(files, StoredArray):
        store = files.store
        if isinstance(store, zarr.storage.LocalStore):
            walked = os.walk(Path(store.root) / files.path)
            files = sorted(Path(top) / name for top, _, names in walked for name in names)
        else:
            files = [Path(store.path)] if isinstance(store, zarr.storage.ZipStore) else []
    if not files:
        return None
    digest = hashlib.sha256()
    for file in files:
        try:
            status = file.stat()
        except FileNotFoundError:  # removed since it was listed, which changes the digest
            continue
        digest.update(f"{file}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def encode_fill_value(value: float, dtype: np.dtype[Any]) -> int | str:
    """Encode a ``_FillValue`` attribute like xarray in Zarr v3: floats as base64, for NaN."""
    if dtype.kind == "f":
        return base64.standard_b64encode(struct.pack("<d", float(value))).decode()
    return int(value)


def decode_fill_value(value: Any, dtype: np.dtype[Any] | None = None) -> float | int:
    """Read a ``_FillValue``-like attribute: a number, ``"NaN"``, or base64 (see xarray).

    A negative value for an unsigned `dtype` is converted by its bits, as in NetCDF.
    """
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    decoded = value if isinstance(value, bool | int | float) else None
    if isinstance(value, str):
        try:
            decoded = float(value)
        except ValueError:
            with contextlib.suppress(binascii.Error, struct.error):
                decoded = float(struct.unpack("<d", base64.b64decode(value, validate=True))[0])
    if decoded is None:
        raise ValueError(
            "The nodata attribute must be a number, 'NaN', or a base64-encoded float, got "
            f"{value!r}. Pass nodata= with the value, or nodata=None."
        )
    bits = 8 * dtype.itemsize if dtype is not None and dtype.kind == "u" else 0
    is_signed = bits and -(2.0 ** (bits - 1)) <= decoded < 0 and decoded == int(decoded)
    return int(decoded) + 2**bits if is_signed else decoded
