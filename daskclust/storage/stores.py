"""Zarr stores: opening them, persistent requests, and what attributes say about values."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import os
import struct
import zlib
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
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
from dask.utils import format_time
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.core.sync import sync
from zarr.storage import FsspecStore, LocalStore, MemoryStore, WrapperStore, ZipStore

from daskclust.exceptions import ReadError
from daskclust.storage.reads import Retries, Tries, unwritten
from daskclust.storage.seen import StoredArray
from daskclust.storage.urls import redact

T = TypeVar("T")

#: Stores of this machine, which fail for good where they fail.
_AT_HAND = (LocalStore, MemoryStore, ZipStore)


def retrying(store: Store) -> Store:
    """Return the store, its requests made again where it may be out of reach for a while."""
    if type(store) in _AT_HAND or isinstance(store, RetryingStore):
        return store
    return RetryingStore(store)


def underlying(store: Any) -> Any:
    return store._store if isinstance(store, RetryingStore) else store


class RetryingStore(WrapperStore[Store]):
    """A store of which every request is made again if need be: all have the same effect then."""

    def __init__(self, store: Store, retries: Retries | None = None) -> None:
        super().__init__(store)
        self.retries = Retries.configured() if retries is None else retries

    def _with_store(self, store: Store) -> RetryingStore:
        return type(self)(store, self.retries)

    def with_read_only(self, read_only: bool = False) -> RetryingStore:
        return self._with_store(self._store.with_read_only(read_only))

    def __str__(self) -> str:
        return str(self._store)

    def __repr__(self) -> str:
        return repr(self._store)

    async def _again(
        self,
        request: Callable[[], Awaitable[T]],
        key: str,
        failed: Callable[[str, Exception], Exception] = ReadError,
        done: str = "read",
        *,
        timed: bool = True,
    ) -> T:
        tries = Tries(self.retries, lambda: self._name(key), failed, done)
        while True:
            try:
                return await self._in_time(request()) if timed else await request()
            except Exception as error:
                pause = tries.pause_after(error)
            await asyncio.sleep(pause)

    def _name(self, key: str) -> str:
        place: Any = self._store
        if isinstance(place, FsspecStore):
            place = place.fs.unstrip_protocol(place.path)
        return f"{key!r} of {redact(place)!r}" if key else repr(redact(place))

    async def _in_time(self, request: Awaitable[T]) -> T:
        try:
            return await asyncio.wait_for(request, self.retries.timeout)
        except TimeoutError as error:
            if str(error) or self.retries.timeout is None:
                raise
            raise TimeoutError(f"no answer within {format_time(self.retries.timeout)}") from None

    async def _write(self, request: Callable[[], Awaitable[T]], key: str, done: str) -> T:
        if done == "removed":
            self._forget_listings()
        # A whole folder may be removed: as many requests as there are objects.
        return await self._again(request, key, unwritten, done, timed=done == "written")

    async def _all(self, names: Callable[[], AsyncIterator[str]], prefix: str = "") -> list[str]:
        async def found() -> list[str]:
            return [name async for name in names()]

        self._forget_listings()
        # A long listing is many requests; libraries have time limits for each.
        return await self._again(found, prefix, done="listed", timed=False)

    def _forget_listings(self) -> None:
        """Let file systems list anew: others may have written since."""
        if isinstance(self._store, FsspecStore):
            self._store.fs.invalidate_cache()

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        return await self._again(lambda: self._store.get(key, prototype, byte_range), key)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        wanted = list(key_ranges)
        name = wanted[0][0] if wanted else ""
        return await self._again(lambda: self._store.get_partial_values(prototype, wanted), name)

    async def _get_many(
        self, requests: Iterable[tuple[str, BufferPrototype, ByteRequest | None]]
    ) -> AsyncGenerator[tuple[str, Buffer | None], None]:
        for key, prototype, byte_range in requests:
            yield key, await self.get(key, prototype, byte_range)

    async def getsize(self, key: str) -> int:
        return await self._again(lambda: self._store.getsize(key), key)

    async def exists(self, key: str) -> bool:
        return await self._again(lambda: self._store.exists(key), key)

    async def is_empty(self, prefix: str) -> bool:
        return await self._again(
            lambda: self._store.is_empty(prefix), prefix, done="listed", timed=False
        )

    async def set(self, key: str, value: Buffer) -> None:
        await self._write(lambda: self._store.set(key, value), key, "written")

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        await self._write(lambda: self._store.set_if_not_exists(key, value), key, "written")

    async def _set_many(self, values: Iterable[tuple[str, Buffer]]) -> None:
        await asyncio.gather(*(self.set(key, value) for key, value in values))

    async def delete(self, key: str) -> None:
        await self._write(lambda: self._store.delete(key), key, "removed")

    async def delete_dir(self, prefix: str) -> None:
        await self._write(lambda: self._store.delete_dir(prefix), prefix, "removed")

    async def clear(self) -> None:
        await self._write(self._store.clear, "", "removed")

    async def list(self) -> AsyncIterator[str]:
        for name in await self._all(self._store.list):
            yield name

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        for name in await self._all(lambda: self._store.list_prefix(prefix), prefix):
            yield name

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        for name in await self._all(lambda: self._store.list_dir(prefix), prefix):
            yield name


def holds_version_2(store: Store, inner: str) -> bool:
    """Whether a store can hold version 2 of Zarr: icechunk has 3 alone, and no other objects."""
    try:
        sync(store.exists(f"{inner}/.zgroup".lstrip("/")))
    except KeyError:
        return False
    return True


# Set on a group that cannot be renamed into place (an object store, memory) until it is whole.
INCOMPLETE = "daskclust:incomplete"
#: Protocols of fsspec by which no store is written.
_READ_ONLY = frozenset({"http", "https"})
_NEEDS = (
    "URLs need the fsspec package of their protocol, for example s3fs for s3:// or aiohttp for "
    "https://."
)
_PLAIN_STORES = (*_AT_HAND, FsspecStore)


def local_path(store: object) -> Path | None:
    store = underlying(store)
    if isinstance(store, zarr.storage.LocalStore):
        return Path(store.root).absolute()
    if isinstance(store, os.PathLike):
        return Path(os.fspath(store)).absolute()
    if not isinstance(store, str):
        return None
    if store.startswith("file://"):
        return Path(unquote(urlparse(store).path)).absolute()
    return None if "://" in store or "::" in store else Path(store).absolute()


def check_protocol(place: object) -> None:
    """Refuse a place that can only be read, before anything is computed for it.

    >>> check_protocol("s3://bucket/map.zarr")
    >>> check_protocol("https://host/map.zarr")
    Traceback (most recent call last):
    ValueError: 'https://host/map.zarr' is at a web server, which is only read from. Write ...
    """
    if isinstance(place, zarr.storage.StorePath):
        place = place.store
    place = underlying(place)
    if isinstance(place, str):
        # Protocols may be chained, as in simplecache::https://...
        protocols = {link.partition("://")[0] for link in place.split("::") if "://" in link}
    else:
        found = getattr(getattr(place, "fs", None), "protocol", ())
        protocols = {found} if isinstance(found, str) else set(found)
    if _READ_ONLY.intersection(map(str.lower, protocols)):
        raise ValueError(
            f"{redact(place)!r} is at a web server, which is only read from. Write to a local path "
            "or an object store (such as s3://), and upload it if need be."
        )


def open_store(store: Any) -> zarr.Group | zarr.Array:
    """Open `store` for reading: local paths become absolute, for workers in another directory.

    A group that was left unfinished by a writer that stopped is refused.
    """
    if isinstance(store, zarr.Group | zarr.Array):
        node: zarr.Group | zarr.Array = store
    elif isinstance(store, Store) and type(store) not in _PLAIN_STORES:
        # A store of the user's own class: its additions to reading files must not be lost.
        node = zarr.open(retrying(store), mode="r" if store.read_only else "r+")
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
                    f"{str(path)!r} is a file of no known kind; expected a Zarr store (a folder or "
                    "a .zip file), an image file, or an array in a .npy file."
                )
            target = zarr.storage.ZipStore(path, mode="r")
        with opening_errors(store):
            if path is None and isinstance(store, str):
                target = zarr.storage.FsspecStore.from_url(store, read_only=True)
            if isinstance(target, Store):
                target = retrying(target)
            node = zarr.open(target, mode="r")
    with opening_errors(store):
        _check_attributes(node)
    if node.attrs.get(INCOMPLETE):
        raise ValueError(
            f"{redact(store)!r} is incomplete: its writer is still running or was stopped. Wait "
            "for the writer, or write it again."
        )
    return node


@contextmanager
def opening_errors(store: Any) -> Iterator[None]:
    """Let errors of opening a store say which one, and what to do; never its credentials."""
    try:
        yield
    except FileNotFoundError as error:  # zarr's message names neither what nor where
        raise FileNotFoundError(
            f"{redact(store)!r} holds neither a Zarr group nor a Zarr array at its top; "
            "give the folder that contains zarr.json, .zgroup or .zarray."
        ) from error
    except BadZipFile as error:
        raise ValueError(
            f"{redact(store)!r} is no whole zip file: {redact(error)}. Copy or download it again."
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
        # Of recursion, of what zip files are not known to do, and of codecs.
        RuntimeError,
        EOFError,
        struct.error,
        zlib.error,
    ) as error:
        raise _damaged(store, error) from error


def _damaged(store: Any, error: Exception) -> ValueError:
    return ValueError(
        f"{redact(store)!r} cannot be opened: its metadata are damaged, or of a format that this "
        f"version of Zarr does not know ({type(error).__name__}: {redact(error)})."
    )


def arrays_of(group: zarr.Group) -> dict[str, zarr.Array]:
    """Open all arrays of a group; damaged metadata are an error that names the store."""
    with opening_errors(group.store):
        found = dict(group.arrays())
        for array in found.values():
            _check_attributes(array)
        return found


def array_of(group: zarr.Group, name: str) -> zarr.Array | None:
    """Open one array of a group, or return None; errors are those of :func:`arrays_of`."""
    with opening_errors(group.store):
        found = group.get(name)
        if not isinstance(found, zarr.Array):
            return None
        _check_attributes(found)
        return found


def _check_attributes(node: zarr.Group | zarr.Array) -> None:
    """Refuse attributes of an array that are no JSON object: zarr looks at those of groups only."""
    found: object = node.metadata.attributes
    if not isinstance(found, dict):
        raise TypeError(f"the attributes of {node.path!r} are a {type(found).__name__}")


def stamp(files: StoredArray | Sequence[Path]) -> str | None:
    """Return a digest of names, sizes and times of local files, as of those that hold an array.

    None without any.  The cost is one look at each file, about 100 000 a second.
    """
    if isinstance(files, StoredArray):
        store = underlying(files.store)
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
            found = file.stat()
        except FileNotFoundError:  # gone since it was listed: that is a change, too
            continue
        digest.update(f"{file}\0{found.st_size}\0{found.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def encode_fill_value(value: float, dtype: np.dtype[Any]) -> int | str:
    """Encode a ``_FillValue`` attribute as xarray does in Zarr v3: floats, as JSON has no NaN."""
    if dtype.kind == "f":
        return base64.standard_b64encode(struct.pack("<d", float(value))).decode()
    return int(value)


def decode_fill_value(value: Any, dtype: np.dtype[Any] | None = None) -> float | int:
    """Read a ``_FillValue``-like attribute: a number, ``"NaN"``, or base64 (see xarray).

    A negative one of an unsigned `dtype` is read as NetCDF means it: by its bits.
    """
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    found = value if isinstance(value, bool | int | float) else None
    if isinstance(value, str):
        try:
            found = float(value)
        except ValueError:
            with contextlib.suppress(binascii.Error, struct.error):
                found = float(struct.unpack("<d", base64.b64decode(value, validate=True))[0])
    if found is None:
        raise ValueError(
            f"The nodata attribute {value!r} is neither a number, nor 'NaN', nor a base64-encoded "
            "float; pass nodata= with the value, or nodata=None."
        )
    bits = 8 * dtype.itemsize if dtype is not None and dtype.kind == "u" else 0
    is_signed = bits and -(2.0 ** (bits - 1)) <= found < 0 and found == int(found)
    return int(found) + 2**bits if is_signed else found
