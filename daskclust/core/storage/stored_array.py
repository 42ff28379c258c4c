"""Zarr arrays and files in tasks: every process must see what the client opened.

Zarr returns fill values for chunks without a file, and creates folders when it writes.  So a wrong
path would not be noticed.  Each process therefore compares every Zarr array once, before the first
read, with what the client opened.  It compares the metadata.  In a local folder it also compares
which chunks have a file, and sampled bytes of some of these files.  Other local files are compared
by size and sampled bytes.  The metadata are compared again before each write, and if a read returns
only fill values.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import zlib
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache, partial
from itertools import product
from math import prod
from operator import eq
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import dask.array as da
import numpy as np
import zarr
from fsspec.implementations.local import LocalFileSystem
from numpy.typing import NDArray
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

from daskclust.core.storage.private_api import inside_xarray
from daskclust.core.storage.redact import redact
from daskclust.core.storage.retry import Retries, persistently, unseen, unwritten
from daskclust.exceptions import MemoryPlanError, StoreError

#: Maximum number of chunks of an array whose files the client lists.
_MOST_LISTED = 2**20
#: Bytes of the header of a Blosc chunk.  The header ends with the length of the chunk.
_BLOSC_HEADER = 16


def _grid(array: zarr.Array) -> tuple[str, tuple[int, ...], tuple[int, ...]] | None:
    """Return the folder of an array's files, what one of them holds, and how many there may be."""
    store, root = array.store, None
    if type(store) is zarr.storage.LocalStore:
        root = str(store.root)
    elif type(store) is zarr.storage.FsspecStore:
        # The form that `dask.array.from_zarr` gives a path.
        files = getattr(store.fs, "sync_fs", store.fs)
        root = str(store.path) if type(files) is LocalFileSystem else None
    try:
        sizes = tuple(int(size) for size in array.shards or array.chunks)
    except (NotImplementedError, TypeError):  # no regular grid
        return None
    if root is None or not all(sizes):
        return None
    counts = tuple(-(-n // size) for n, size in zip(array.shape, sizes, strict=True))
    return os.path.join(root, array.path), sizes, counts


def _check_not_cut(array: zarr.Array, name: str) -> None:
    """Raise an error if a Blosc chunk is shorter than the length in its header.

    The decoder does not check the length. It would read memory behind the end of the chunk.
    """
    try:
        with open(name, "rb", buffering=0) as file:
            head, size = file.read(_BLOSC_HEADER), os.fstat(file.fileno()).st_size
    except OSError:  # Zarr returns fill values, or raises an error.
        return
    wanted = int.from_bytes(head[12:16], "little") if len(head) == _BLOSC_HEADER else _BLOSC_HEADER
    if size < wanted:
        raise StoreError(
            f"The chunk {name!r} of {redact(array.store)!r} is cut off: it has {size} bytes and "
            f"needs {wanted}. Write the store again, or delete this file if its values may be the "
            "fill value."
        )


def _is_blosc(array: zarr.Array) -> bool:
    codecs = array.compressors
    return array.shards is None and "Blosc" in "".join(type(one).__name__ for one in codecs)


def _ranges(selection: Any, shape: tuple[int, ...]) -> list[range] | None:
    """Return the rows, columns, ... of a selection by slices; None for any other."""
    parts = selection if isinstance(selection, tuple) else (selection,)
    if len(parts) > len(shape) or not all(isinstance(part, slice) for part in parts):
        return None
    parts += (slice(None),) * (len(shape) - len(parts))
    found = [range(*part.indices(size)) for part, size in zip(parts, shape, strict=True)]
    return found if all(one.step == 1 and len(one) for one in found) else None


def _touched(wanted: list[range], sizes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the places in the grid of the chunks of which something is wanted."""
    return product(
        *(
            range(one.start // size, -(-one.stop // size))
            for one, size in zip(wanted, sizes, strict=True)
        )
    )


def stored_chunks(array: zarr.Array) -> NDArray[np.bool_] | None:
    """Return which chunks (or shards) in a local folder have a file, in grid order, by listing it.

    None for another store, and for more than a million chunks.
    """
    grid = _grid(array)
    if grid is None or np.prod(grid[2], dtype=float) > _MOST_LISTED:
        return None
    folder, _, counts = grid
    found: set[str] = set()
    for place, _, files in os.walk(folder):
        inside = os.path.relpath(place, folder)
        head = "" if inside == "." else f"{inside}{os.sep}".replace(os.sep, "/")
        found.update(head + name for name in files)
    key = array.metadata.encode_chunk_key
    places = product(*map(range, counts))
    return np.fromiter((key(place) in found for place in places), bool, int(np.prod(counts)))


def _some_files(array: zarr.Array, numbers: NDArray[np.intp]) -> list[str]:
    """Return local files of some of these chunks or shards, including the first and the last."""
    grid = _grid(array)
    if grid is None:
        return []
    folder, _, counts = grid
    some = np.linspace(0, len(numbers) - 1, min(len(numbers), _SAMPLED)).astype(np.intp)
    places = (map(int, np.unravel_index(at, counts) if counts else ()) for at in numbers[some])
    return [os.path.join(folder, array.metadata.encode_chunk_key(tuple(at))) for at in places]


#: Arrays that this process has compared, by their metadata, chunks and sampled bytes.
_seen: set[tuple[str, bytes | None, str | None]] = set()
#: Bytes of a list of chunks that travels with an array; where it is longer, none does.
_MOST_PACKED = 2**16
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
#: Places of a file of which bytes are compared, and how many bytes; files of an array's chunks.
_PLACES, _SAMPLE, _SAMPLED = 5, 4096, 16
_METADATA = {2: ".zarray", 3: "zarr.json"}


def metadata_digest(array: zarr.Array) -> str | None:
    """Return a digest of an array's metadata, without attributes of Zarr v2, or None."""
    name = f"{array.path}/{_METADATA[array.metadata.zarr_format]}".lstrip("/")
    if type(array.store) is zarr.storage.LocalStore:
        # Opening such a store creates its folder: that must not happen here.
        try:
            file = Path(array.store.root) / name
            if file.stat().st_size > _MOST_METADATA:
                raise ValueError(
                    f"{str(file)!r} holds {file.stat().st_size} bytes, more than any metadata; "
                    "the store is damaged."
                )
            content = file.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
    else:
        buffer = sync(array.store.get(name, default_buffer_prototype()))
        if buffer is None:
            return None
        content = buffer.to_bytes()
    return hashlib.sha256(content).hexdigest()


def _unpacked(listed: bytes) -> NDArray[np.uint8]:
    return np.unpackbits(np.frombuffer(zlib.decompress(listed), np.uint8))


class SeenFiles:
    """Local files as the client saw them, for tasks that read them under the same paths.

    Sizes and sampled bytes are compared, but not times, because copies have other times.  A process
    reads the bytes again only if the size or time of a file has changed.
    """

    def __init__(self, paths: Iterable[str | os.PathLike[str]]) -> None:
        self._found = {
            path: _look(path)
            for path in sorted(map(str, paths))
            if os.path.isabs(path) and os.path.isfile(path)
        }
        self.key = hashlib.sha256(repr(self._found).encode()).hexdigest()

    def check(self) -> None:
        """Raise if this process sees other files."""
        for path, (size, content) in self._found.items():
            here, now = _look(path)
            if here != size:
                raise unseen(
                    repr(path),
                    verb=f"sees {here} bytes at",
                    who=f"of which the client opened {size} (if it was changed, open it again)",
                )
            if now != content:
                raise unseen(
                    repr(path),
                    verb="sees other values in",
                    who="than the client at its opening (if it was changed, open it again)",
                )

    def having_read(self, block: Any) -> Any:
        """Return a block that was read from the files, after :meth:`check`."""
        self.check()
        return block


def _look(path: str) -> tuple[int, str]:
    """Return the size of a file, and a digest of bytes at its start, its end and between."""
    found = os.stat(path)
    return found.st_size, _content(path, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=2**16)
def _content(path: str, size: int, changed: int) -> str:
    sha = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        for place in range(_PLACES):
            file.seek(max(0, size - _SAMPLE) * place // (_PLACES - 1))
            sha.update(file.read(_SAMPLE))
    return sha.hexdigest()


class StoredArray:
    """Zarr array in tasks, which raises an error if a process sees another array.

    Each process reads the metadata once, and again for each block that is written or has only
    fill values.  If the array is in a local folder, a process that receives it also lists the files
    once, and reads bytes of 16 of them.
    """

    def __init__(self, array: zarr.Array, retries: Retries | None = None) -> None:
        self.__dict__["array"] = array
        self.path = array.path
        self.shape: tuple[int, ...] = tuple(array.shape)
        self.dtype: np.dtype[Any] = array.dtype
        self.ndim: int = array.ndim
        self.digest = persistently(
            lambda: metadata_digest(array),
            lambda: f"The metadata of {self.name!r}",
            Retries.configured(),
        )
        self.retries = Retries.configured() if retries is None else retries
        name = f"{array.store!r} {array.path} {self.digest}"
        self.key = hashlib.sha256(name.encode()).hexdigest()
        self._pickled: bytes
        #: In a process that received the array: which chunks the client saw, packed.
        self._listed: bytes | None = None
        self._some: SeenFiles | None = None
        store = array.store
        archive = [store.path] if isinstance(store, zarr.storage.ZipStore) else []
        self._archive = SeenFiles(archive)

    def __getstate__(self) -> dict[str, Any]:
        own = {"array", "_list", "_sample"}
        state = {name: value for name, value in self.__dict__.items() if name not in own}
        # Unpickled when it is used: else a worker without the archive or a package would end.
        state.setdefault("_pickled", cloudpickle.dumps(self.array))
        return {**state, "_listed": self._list, "_some": self._sample}

    @cached_property
    def array(self) -> zarr.Array:
        """The array, opened by the first task of a process that asks for it."""
        self._archive.check()
        found: zarr.Array = pickle.loads(self._pickled)
        return found

    @property
    def store(self) -> Any:
        return self.array.store

    @cached_property
    def _list(self) -> bytes | None:
        """Which chunks have a file, packed, as the client sees it."""
        if self._listed is not None:
            return self._listed
        found = stored_chunks(self.array)
        if found is None:
            return None
        packed = zlib.compress(np.packbits(found).tobytes())
        return packed if len(packed) <= _MOST_PACKED else None

    @cached_property
    def _sample(self) -> SeenFiles | None:
        """Some files of the chunks, as the client sees them; None for another store."""
        if self._list is None or self._listed is not None:
            return self._some
        return SeenFiles(_some_files(self.array, np.flatnonzero(_unpacked(self._list))))

    def compare(self) -> None:
        """Raise an error if this process sees another array, or lacks chunks of the client."""
        self._archive.check()
        self._check_metadata()
        mine = None if self._listed is None else stored_chunks(self.array)
        if mine is None or self._listed is None:
            return
        theirs = _unpacked(self._listed)[: len(mine)].astype(bool)
        lacking = np.flatnonzero(theirs & ~mine)
        if len(lacking):
            raise unseen(
                f"{len(lacking)} of the {theirs.sum()} stored chunks of {self.name!r}, such as "
                f"{_some_files(self.array, lacking)[0]!r}",
                who="which the client has, and would read fill values; copy the store again",
            )
        if self._some is not None:
            self._some.check()

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

    @property
    def _mark(self) -> tuple[str, bytes | None, str | None]:
        return self.key, self._listed, None if self._some is None else self._some.key

    def _check_metadata(self) -> None:
        if self.digest is None:
            return
        try:
            found = metadata_digest(self.array)
        except FileNotFoundError:
            found = None
        if found != self.digest:
            _seen.discard(self._mark)
            verb = "does not see" if found is None else "sees another array at"
            raise unseen(repr(self.name), verb=verb)

    def check(self) -> None:
        """Compare the array once in each process, and a zip archive each time."""
        self._archive.check()
        if self._mark not in _seen:
            self.compare()
            _seen.add(self._mark)

    def __getitem__(self, selection: Any) -> NDArray[Any]:
        return self.read(selection)

    def read(self, selection: Any) -> NDArray[Any]:
        return persistently(
            lambda: self._read(selection), lambda: self._part(selection), self.retries
        )

    def _part(self, selection: Any) -> str:
        parts = selection if isinstance(selection, tuple) else (selection,)
        shown = (
            f"{part.start or 0}:{'' if part.stop is None else part.stop}"
            if isinstance(part, slice)
            else str(part)
            for part in parts
        )
        return f"{self.name!r} at [{', '.join(shown)}]"

    def _read(self, selection: Any) -> NDArray[Any]:
        self.check()
        if _is_blosc(self.array):
            for file in self._files_of(selection):
                _check_not_cut(self.array, file)
        try:
            values = np.asarray(self.array[selection])
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
        fill = self.array.fill_value
        fill = values.dtype.type(0 if fill is None else fill)
        is_fill = np.isnan if fill != fill else partial(eq, fill)
        # The first value decides for most reads, without a comparison of all values.
        if values.size and is_fill(values.flat[0]) and is_fill(values).all():
            # Zarr returns fill values also if the store was removed.
            self._check_metadata()
        return values

    def _files_of(self, selection: Any) -> Iterator[str]:
        """Yield the local files of the chunks of a selection; all files if it is not by slices."""
        grid = _grid(self.array)
        if grid is None:
            return
        folder, sizes, _ = grid
        wanted = _ranges(selection, self.shape) or [range(size) for size in self.shape]
        for place in _touched(wanted, sizes):
            yield os.path.join(folder, self.array.metadata.encode_chunk_key(place))

    def __setitem__(self, selection: Any, values: NDArray[Any]) -> None:
        persistently(
            lambda: self._write(selection, values),
            lambda: self._part(selection),
            self.retries,
            unwritten,
            "written",
        )

    def _write(self, selection: Any, values: NDArray[Any]) -> None:
        self._check_metadata()
        self.array[selection] = values


#: What a task reads, as the client sees it: to be checked in each process.
Seen = SeenFiles | StoredArray


def arrays_in(value: Any, depth: int = 12) -> Iterator[zarr.Array]:
    """Yield the Zarr arrays in a node of a graph that are not wrapped as here."""
    if isinstance(value, zarr.Array):
        yield value
    elif depth and isinstance(value, dict):
        for item in value.values():
            yield from arrays_in(item, depth - 1)
    elif depth and isinstance(value, list | tuple):
        for item in value:
            yield from arrays_in(item, depth - 1)
    elif depth:
        # Of tasks of Dask, and of the layers around an array of xarray.
        kind = type(value).__module__.partition(".")[0]
        inner: Iterable[Any] = inside_xarray(value) if kind == "xarray" else ()
        if kind == "dask":
            inner = (getattr(value, name, None) for name in ("args", "kwargs", "value"))
        for item in inner:
            yield from arrays_in(item, depth - 1)


def values_of(array: Any) -> NDArray[Any]:
    """Read a whole small array; one in Zarr with the tries and errors of those in tasks."""
    return StoredArray(array).read(...) if isinstance(array, zarr.Array) else np.asarray(array[...])


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
