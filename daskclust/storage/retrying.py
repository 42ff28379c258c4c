"""Zarr stores whose requests are made again where they fail in a way that may pass."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, TypeVar

from dask.utils import format_time
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import FsspecStore, LocalStore, MemoryStore, WrapperStore, ZipStore

from daskclust.exceptions import ReadError
from daskclust.storage.reads import Retries, Tries, unwritten
from daskclust.storage.urls import redact

__all__ = ["RetryingStore", "retrying", "underlying"]

T = TypeVar("T")

#: Stores of this machine, which fail for good where they fail.
_AT_HAND = (LocalStore, MemoryStore, ZipStore)


def retrying(store: Store) -> Store:
    """Return the store, its requests made again where it may be out of reach for a while.

    Examples
    --------
    >>> retrying(MemoryStore())
    MemoryStore('memory://...')
    """
    if type(store) in _AT_HAND or isinstance(store, RetryingStore):
        return store
    return RetryingStore(store)


def underlying(store: Any) -> Any:
    """Return what was given to :func:`retrying`."""
    return store._store if isinstance(store, RetryingStore) else store


class RetryingStore(WrapperStore[Store]):
    """A store of which every request, of metadata and of chunks, is made again if need be.

    Each request has the same effect however often it is made. `retries` are those of the
    configuration by default, and travel with the store.
    """

    def __init__(self, store: Store, retries: Retries | None = None) -> None:
        super().__init__(store)
        self.retries = Retries.configured() if retries is None else retries

    def _with_store(self, store: Store) -> RetryingStore:
        return type(self)(store, self.retries)

    def with_read_only(self, read_only: bool = False) -> RetryingStore:
        """Return the same store, to be read only or to be written."""
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
        # A whole folder may be removed: as many requests as there are objects.
        return await self._again(request, key, unwritten, done, timed=done == "written")

    async def _all(self, names: Callable[[], AsyncIterator[str]], prefix: str = "") -> list[str]:
        async def found() -> list[str]:
            return [name async for name in names()]

        # A long listing is many requests; libraries have time limits for each.
        return await self._again(found, prefix, done="listed", timed=False)

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Return an object, or a part of it; None where there is none."""
        return await self._again(lambda: self._store.get(key, prototype, byte_range), key)

    async def get_partial_values(
        self,
        prototype: BufferPrototype,
        key_ranges: Iterable[tuple[str, ByteRequest | None]],
    ) -> list[Buffer | None]:
        """Return parts of objects."""
        wanted = list(key_ranges)
        name = wanted[0][0] if wanted else ""
        return await self._again(lambda: self._store.get_partial_values(prototype, wanted), name)

    async def _get_many(
        self, requests: Iterable[tuple[str, BufferPrototype, ByteRequest | None]]
    ) -> AsyncGenerator[tuple[str, Buffer | None], None]:
        for key, prototype, byte_range in requests:
            yield key, await self.get(key, prototype, byte_range)

    async def getsize(self, key: str) -> int:
        """Return the bytes of an object."""
        return await self._again(lambda: self._store.getsize(key), key)

    async def exists(self, key: str) -> bool:
        """Whether there is such an object."""
        return await self._again(lambda: self._store.exists(key), key)

    async def is_empty(self, prefix: str) -> bool:
        """Whether nothing is there."""
        return await self._again(
            lambda: self._store.is_empty(prefix), prefix, done="listed", timed=False
        )

    async def set(self, key: str, value: Buffer) -> None:
        """Write an object."""
        await self._write(lambda: self._store.set(key, value), key, "written")

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Write an object where there is none."""
        await self._write(lambda: self._store.set_if_not_exists(key, value), key, "written")

    async def _set_many(self, values: Iterable[tuple[str, Buffer]]) -> None:
        await asyncio.gather(*(self.set(key, value) for key, value in values))

    async def delete(self, key: str) -> None:
        """Remove an object."""
        await self._write(lambda: self._store.delete(key), key, "removed")

    async def delete_dir(self, prefix: str) -> None:
        """Remove all that is there."""
        await self._write(lambda: self._store.delete_dir(prefix), prefix, "removed")

    async def clear(self) -> None:
        """Remove everything."""
        await self._write(self._store.clear, "", "removed")

    async def list(self) -> AsyncIterator[str]:
        """Yield the names of all objects."""
        for name in await self._all(self._store.list):
            yield name

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names of the objects that begin so."""
        for name in await self._all(lambda: self._store.list_prefix(prefix), prefix):
            yield name

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Yield what is in a folder."""
        for name in await self._all(lambda: self._store.list_dir(prefix), prefix):
            yield name
