"""Zarr arrays in tasks: every process must see the store that the client opened.

Zarr answers with fill values where files are absent, and creates folders where it
writes, so that a worker without the store reads and writes something else in
silence.  An array that travels to workers is therefore wrapped: before its first
read in a process, and before every write, its metadata must be those that the
client saw.  A copy of the store may have these and lack chunks: where a chunk has no
file, the client must have seen none either.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Iterable
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.core.buffer import default_buffer_prototype
from zarr.core.buffer.cpu import NDBuffer
from zarr.core.sync import sync

from daskclust.exceptions import MemoryPlanError, StoreError
from daskclust.storage.chunks import absent_chunks, read_chunks, stored_chunks
from daskclust.storage.reads import Retries, persistently, unseen, unwritten
from daskclust.storage.urls import redact

#: Arrays whose store this process has seen.
_seen: set[str] = set()
#: Bytes of a list of chunks that travels with an array; where it is longer, none does.
_MOST_LISTED = 2**16
#: Bytes of metadata that are believed to be metadata.
_MOST_METADATA = 2**26
#: Chunks of an array beyond which no graph of theirs fits in memory.
MOST_CHUNKS = 2**24
#: Errors of readers and codecs about bytes that make no sense; `ValueError` says it by itself.
_DAMAGED = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NotImplementedError,
    RecursionError,
    TypeError,
)
_METADATA = {2: (".zarray",), 3: ("zarr.json",)}


def metadata_digest(array: zarr.Array) -> str | None:
    """Return a digest of the stored metadata of an array; None where there are none.

    Attributes of Zarr v2 lie in a file of their own and are left out.
    """
    names = [f"{array.path}/{name}".lstrip("/") for name in _METADATA[array.metadata.zarr_format]]
    store, found = array.store, hashlib.sha256()
    for name in names:
        if type(store) is zarr.storage.LocalStore:
            # Opening such a store creates its folder: that must not happen here.
            try:
                file = Path(store.root) / name
                if file.stat().st_size > _MOST_METADATA:
                    raise ValueError(
                        f"{str(file)!r} holds {file.stat().st_size} bytes, more than any metadata; "
                        "the store is damaged."
                    )
                content = file.read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None
        else:
            buffer = sync(store.get(name, default_buffer_prototype()))
            if buffer is None:
                return None
            content = buffer.to_bytes()
        found.update(content)
    return found.hexdigest()


class SeenFiles:
    """Local files as the client saw them, for tasks that read them under the same paths.

    Paths that are not files of this machine are left out.

    Sizes are compared, once in each process: a copy that was cut off is shorter.  Times are not:
    copies have their own.
    """

    def __init__(self, paths: Iterable[str | os.PathLike[str]]) -> None:
        self._sizes = {
            path: os.stat(path).st_size
            for path in sorted(map(str, paths))
            if os.path.isabs(path) and os.path.isfile(path)
        }
        self._key = hashlib.sha256(repr(self._sizes).encode()).hexdigest()
        _seen.add(self._key)

    def check(self) -> None:
        """Raise where this process sees other files."""
        if self._key in _seen:
            return
        for path, size in self._sizes.items():
            here = os.stat(path).st_size
            if here != size:
                raise unseen(
                    repr(path),
                    verb=f"sees {here} bytes at",
                    who=f"of which the client opened {size}",
                )
        _seen.add(self._key)


class StoredArray:
    """A Zarr array, for tasks: reads and writes of another store are errors.

    Requests that fail in a way that may pass are tried again, as often as the configuration said
    when the array was opened, in any graph: a fit, labels that the user computes, a label map that
    is written.

    Opening costs one read of metadata on the client and one in each process that
    reads, whatever the number of blocks; a block that holds nothing but the fill
    value, and every block written, cost one more each.  An array in a local folder
    that travels to other processes costs a list of the folder's files, once, and each
    chunk without a file one look.
    """

    def __init__(self, array: zarr.Array) -> None:
        self.array = array
        self.shape: tuple[int, ...] = tuple(array.shape)
        self.dtype: np.dtype[Any] = array.dtype
        self.ndim: int = array.ndim
        self.retries = Retries.configured()
        self.digest = persistently(
            lambda: metadata_digest(array), lambda: f"The metadata of {self.name!r}", self.retries
        )
        name = f"{array.store!r} {array.path} {self.digest}"
        self.key = hashlib.sha256(name.encode()).hexdigest()
        #: In a process that it travelled to: which chunks the client saw, packed.
        self._listed: bytes | None = None
        archive = getattr(array.store, "path", "")
        self._files = SeenFiles([archive] if type(array.store) is zarr.storage.ZipStore else [])

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in self.__dict__.items() if name != "_list"}
        return {**state, "_listed": self._list}

    @cached_property
    def _list(self) -> bytes | None:
        """Which chunks have a file, packed, as the client sees it."""
        if self._listed is not None:
            return self._listed
        found = stored_chunks(self.array)
        if found is None:
            return None
        packed = zlib.compress(np.packbits(found).tobytes())
        return packed if len(packed) <= _MOST_LISTED else None

    def _seen_chunks(self) -> NDArray[np.uint8] | None:
        if self._listed is None:
            return None
        return np.unpackbits(np.frombuffer(zlib.decompress(self._listed), np.uint8))

    def compare_chunks(self) -> str | None:
        """Say which chunks this process lacks of those that the client has, or None.

        Costs a list of the folder's files.
        """
        mine, theirs = stored_chunks(self.array), self._seen_chunks()
        if mine is None or theirs is None:
            return None
        lacking = theirs[: len(mine)].astype(bool) & ~mine
        if not lacking.any():
            return None
        return (
            f"it lacks {lacking.sum()} of the {theirs.sum()} stored chunks of {self.name!r}, and "
            "would read fill values there: copy the store again, or use a shared file system"
        )

    def _check_chunks(self, selection: Any) -> None:
        """Raise where chunks of a part have no file here, and have one where the client is."""
        if self._listed is None:
            return
        absent = absent_chunks(self.array, selection)
        seen = self._seen_chunks() if absent else None
        for number, file in absent:
            if seen is not None and seen[number]:
                raise unseen(f"the chunk {file!r} of {self.name!r}", who="which the client has")

    def __repr__(self) -> str:
        # Dask logs the arguments of tasks that fail.
        return f"<StoredArray {self.name} {self.shape} {self.dtype}>"

    def __dask_tokenize__(self) -> tuple[str, str]:
        return ("daskclust-stored", self.key)

    @property
    def name(self) -> str:
        """Store and path, without credentials."""
        store = redact(self.array.store)
        return f"{store.rstrip('/')}/{self.array.path}".rstrip("/")

    def check(self, *, again: bool = False) -> None:
        """Raise where this process does not see the array that the client opened."""
        if self.digest is None or (not again and self.key in _seen):
            return
        try:
            found = metadata_digest(self.array)
        except FileNotFoundError:
            found = None
        if found == self.digest:
            _seen.add(self.key)
            return
        _seen.discard(self.key)
        verb = "does not see" if found is None else "sees another array at"
        raise unseen(repr(self.name), verb=verb)

    def __getitem__(self, selection: Any) -> NDArray[Any]:
        return self.read(selection)

    def read(self, selection: Any, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Read a part, into `out` (of its shape and dtype, C-contiguous) where that is given."""
        return persistently(
            lambda: self._read(selection, out), lambda: self._part(selection), self.retries
        )

    def _part(self, selection: Any) -> str:
        """Name a part of the array, in numbers of elements."""
        parts = selection if isinstance(selection, tuple) else (selection,)
        shown = (
            f"{part.start or 0}:{'' if part.stop is None else part.stop}"
            if isinstance(part, slice)
            else str(part)
            for part in parts
        )
        return f"{self.name!r} at [{', '.join(shown)}]"

    def _read(self, selection: Any, out: NDArray[Any] | None) -> NDArray[Any]:
        self.check()
        self._files.check()
        try:
            found = read_chunks(self.array, selection, out)
            if found is not None:
                values = found
            elif out is None:
                values = np.asarray(self.array[selection])
            else:
                self.array.get_basic_selection(selection, out=NDBuffer.from_numpy_array(out))
                values = out
        except MemoryError as error:
            raise MemoryPlanError(
                f"{self._part(selection)} does not fit in memory: the array has shape {self.shape} "
                f"and dtype {self.dtype}, in chunks of {self.array.chunks}. Use a store with "
                "smaller chunks; if it should have them, its metadata are damaged."
            ) from error
        except _DAMAGED as error:
            raise StoreError(
                f"{self._part(selection)} cannot be read ({type(error).__name__}: "
                f"{redact(error)}): its data or metadata are damaged, or of a format that this "
                "version of Zarr does not know. Copy or write them again."
            ) from error
        if found is None:
            # Zarr fills what is absent.
            self._check_chunks(selection)
        if self._is_empty(values):
            # The answer of a store that is gone since.
            self.check(again=True)
        return values

    def _is_empty(self, values: NDArray[Any]) -> bool:
        fill = self.array.fill_value
        fill = values.dtype.type(0 if fill is None else fill)
        if not values.size or not _same(values.flat[0], fill):
            return False
        return bool(_same(values, fill).all())

    def __setitem__(self, selection: Any, values: NDArray[Any]) -> None:
        persistently(
            lambda: self._write(selection, values),
            lambda: self._part(selection),
            self.retries,
            unwritten,
            "written",
        )

    def _write(self, selection: Any, values: NDArray[Any]) -> None:
        self.check(again=True)
        self.array[selection] = values


def _same(values: Any, fill: Any) -> Any:
    return np.isnan(values) if fill != fill else values == fill


def values_of(array: Any) -> NDArray[Any]:
    """Read a whole small array; one in Zarr with the tries and errors of those in tasks."""
    return StoredArray(array)[...] if isinstance(array, zarr.Array) else np.asarray(array[...])


def as_dask(array: zarr.Array | StoredArray) -> da.Array:
    """Return a lazy array of the chunks (shards, where there are) of a stored one."""
    stored = array if isinstance(array, StoredArray) else StoredArray(array)
    chunks = stored.array.shards or stored.array.chunks
    count = prod(-(-n // max(1, size)) for n, size in zip(stored.shape, chunks, strict=True))
    if count > MOST_CHUNKS:
        raise ValueError(
            f"The array {stored.array.name!r} of shape {stored.shape} has {count} chunks of "
            f"{chunks}; at most {MOST_CHUNKS} can be handled. Are its metadata damaged? If not, "
            "write it again in larger chunks."
        )
    return da.from_array(
        stored,
        chunks=chunks,
        asarray=False,
        fancy=False,
        meta=np.empty((0,) * stored.ndim, dtype=stored.dtype),
    )
