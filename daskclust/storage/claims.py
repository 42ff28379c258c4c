"""Claims: who writes a group of a store that cannot rename, so that chunks of two are not mixed.

A writer puts one object beside what it writes, by a request that fails where there is one already,
and every write looks at it: before, so that a writer whose claim was taken over stops, and after,
so that a write that came too late is found out.  Whose token is in the object holds the place.
Nobody puts a token twice, so that a writer whose token is there in the end was alone.

One mixture is not found out: a writer loses its claim while a request is on its way for more than
a second, and is killed between the answer and the second look (at most 43 ms on a server for S3 on
the same machine, 0.2 ms for files).  Its late block then stays.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

import zarr
from zarr.abc.store import Store
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

from daskclust.exceptions import StoreError
from daskclust.storage.atomic import host, is_gone
from daskclust.storage.reads import Retries
from daskclust.storage.stores import (
    INCOMPLETE,
    RetryingStore,
    creates_alone,
    holds_version_2,
    underlying,
)
from daskclust.storage.urls import redact

#: How the objects are named: the claim, and with a token at the end a sign of life of its writer.
CLAIM = ".daskclust-writer"
#: Seconds between two signs of life, and without one after which a writer elsewhere is gone.
_BEAT, _SILENT = 60.0, 600.0
#: Seconds for which writes of others are waited for, and how often.
_MOMENT, _TRIES = 1.0, 10


class LostClaimError(StoreError): ...


@dataclass(frozen=True)
class Claim:
    """Who writes a group, and since when; `mixed` where two have written to it."""

    host: str = ""
    process: int = 0
    machine: str = ""
    since: float = 0.0
    mixed: bool = False
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    @classmethod
    def of_this_process(cls) -> Claim:
        return cls(host(), os.getpid(), socket.gethostname(), time.time())

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since, UTC).isoformat(timespec="seconds")
        return f"process {self.process} on {self.machine or '?'}, since {since}"


@dataclass(frozen=True)
class Held:
    """A claim as it was found, and when its writer last said that it lives.

    It does so for the first time when it may remove what lies there.
    """

    claim: Claim
    heard: float | None

    @property
    def has_begun(self) -> bool:
        """Whether all that lies there is this writer's."""
        return self.claim.mixed or self.heard is not None

    @property
    def is_gone(self) -> bool:
        if self.claim.mixed:
            return True
        if self.claim.host == host():
            return is_gone(self.claim.process, self.claim.since)
        return time.time() - max(self.claim.since, self.heard or 0.0) > _SILENT


def holder(store: Store, inner: str) -> Held | None:
    """Return who holds a place; None where nobody does, or the store has no place for a claim."""
    claim = sync(_claim(store, inner)) if holds_version_2(store, inner) else None
    if claim is None:
        return None
    beat = sync(_get(store, _key(inner, claim.token)))
    return Held(claim, None if beat is None else float(beat))


def _key(inner: str, token: str = "") -> str:
    return f"{inner}/{CLAIM}{'-' * bool(token)}{token}".lstrip("/")


async def _get(store: Store, key: str) -> bytes | None:
    found = await store.get(key, default_buffer_prototype())
    return None if found is None else found.to_bytes()


async def _put(store: Store, key: str, value: str, *, new: bool = False) -> None:
    buffer = default_buffer_prototype().buffer.from_bytes(value.encode())
    await (store.set_if_not_exists(key, buffer) if new else store.set(key, buffer))


async def _claim(store: Store, inner: str) -> Claim | None:
    found = await _get(store, _key(inner))
    if found is None:
        return None
    try:
        return Claim(**json.loads(found))
    except (ValueError, TypeError):
        # Of a version that wrote something else.
        return Claim(token="unknown")


def _text(claim: Claim) -> str:
    return json.dumps(asdict(claim))


def being_written(place: Any, held: Held) -> FileExistsError:
    return FileExistsError(
        f"{redact(place)!r} is being written by {held.claim}: wait for it, give another name, or "
        "pass overwrite=True (--overwrite) to write in its place. Who ends without a word counts "
        f"as gone after {_SILENT / 60:.0f} minutes, and at once on its own machine."
    )


class ClaimedStore(RetryingStore):
    def __init__(
        self, store: Store, retries: Retries | None = None, *, inner: str, claim: Claim
    ) -> None:
        super().__init__(store, retries)
        self.inner, self.claim = inner, claim

    def _with_store(self, store: Store) -> ClaimedStore:
        return type(self)(store, self.retries, inner=self.inner, claim=self.claim)

    async def _write(self, request: Callable[[], Awaitable[Any]], key: str, done: str) -> Any:
        await self.check()
        found = await super()._write(request, key, done)
        await self.check(late=True)
        return found

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        # Zarr looks into whatever it finds in a group.
        async for name in super().list_dir(prefix):
            if not name.startswith(CLAIM):
                yield name

    async def check(self, *, late: bool = False) -> None:
        found = await _claim(self, self.inner)
        if found == self.claim:
            return
        if late:
            await self._spoil()
        other = "another process" if found is None or found.mixed else str(found)
        raise LostClaimError(
            f"{redact(self)!r} was taken over by {other}, which writes or has written the same "
            "place; nothing of this writer is whole. Give each its own name."
        )

    async def _spoil(self) -> None:
        """Let nobody take for whole what this process has just written into another's group."""
        plain = RetryingStore(self._store, self.retries)
        await _put(plain, _key(self.inner), _text(Claim(mixed=True)))
        with contextlib.suppress(FileNotFoundError):
            group = await zarr.api.asynchronous.open_group(
                plain, path=self.inner, mode="r+", use_consolidated=False
            )
            await group.update_attributes({INCOMPLETE: True})


@contextmanager
def claimed(
    store: Store, inner: str, place: Any, *, overwrite: bool, check: Callable[[], None]
) -> Iterator[ClaimedStore]:
    """Hold a place of a store, and yield the store to write by; `check` may refuse what lies there.

    The claim of a writer that is gone is taken over, with `overwrite` that of one that lives, too.
    FileExistsError: somebody else holds the place.  LostClaimError: somebody else took it.
    """
    mine = Claim.of_this_process()
    key, life = _key(inner), _key(inner, mine.token)
    sync(_put(store, key, _text(mine), new=True))
    if not creates_alone(store):
        time.sleep(_MOMENT)
    for _ in range(_TRIES):
        held = holder(store, inner)
        if held is None:
            sync(_put(store, key, _text(mine), new=True))
            continue
        if held.claim == mine:
            break
        if not (overwrite or held.is_gone):
            raise being_written(place, held)
        # Once: of several that take it over, the last one keeps it.
        overwrite = False
        if held.has_begun:
            sync(_put(store, life, str(time.time())))
        sync(_put(store, key, _text(mine)))
        sync(store.delete(_key(inner, held.claim.token)))
        # What others were writing meanwhile lies there by then, and goes with what they wrote.
        time.sleep(_MOMENT)
    else:
        raise LostClaimError(f"{redact(place)!r} cannot be held: others write there as well.")
    ours = ClaimedStore(underlying(store), getattr(store, "retries", None), inner=inner, claim=mine)
    try:
        if not held.has_begun:
            check()
        with _living(store, life):
            yield ours
        sync(ours.check())
    finally:
        if sync(_claim(store, inner)) == mine:
            sync(store.delete(key))


@contextmanager
def _living(store: Store, key: str) -> Iterator[None]:
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(_BEAT):
            with contextlib.suppress(Exception):  # the next may arrive
                sync(_put(store, key, str(time.time())))

    sync(_put(store, key, str(time.time())))
    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        sync(store.delete(key))
