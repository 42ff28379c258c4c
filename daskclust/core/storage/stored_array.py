"""Checks in each process that Zarr arrays and files equal those that the client opened.

Zarr returns fill values for chunks without a file, and creates folders when it writes, so a wrong
path would not raise an error.  Each process therefore compares every Zarr array with the array of
the client, once, before the first read.  It compares the metadata and, in a local folder, the list
of chunks with a file and sampled bytes of some files.  Other local files are compared by size and
sampled bytes.  The metadata are compared again before each write, and if a read returns only fill
values.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
import zlib
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache, partial
from itertools import product
from math import prod
from operator import eq
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle  # type: ignore[import-untyped]
import dask.array as da
import numpy as np
from numpy.typing import NDArray

from daskclust.core.storage.private_api import inside_xarray
from daskclust.core.storage.redact import redact
from daskclust.core.storage.retry import Retries, persistently, unseen, unwritten
from daskclust.exceptions import MemoryPlanError, StoreError

# The code that opens an array imports Zarr, which takes as long as a small fit.
if TYPE_CHECKING:
    import zarr

#: Maximum number of chunks of an array whose files the client lists.
_MAX_LISTED = 2**20
#: Bytes of the header of a Blosc chunk.  The header ends with the length of the chunk.
_BLOSC_HEADER = 16


def _grid(array: zarr.Array) -> tuple[str, tuple[int, ...], tuple[int, ...]] | None:
    """Return the folder of an array's files, the chunk shape, and the shape of the chunk grid."""
    from zarr.storage import FsspecStore, LocalStore

    store, root = array.store, None
    if type(store) is LocalStore:
        root = str(store.root)
    elif type(store) is FsspecStore:
        from fsspec.implementations.local import LocalFileSystem

        # `dask.array.from_zarr` converts a path to this kind of store.
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

    The decoder does not check the length.  It would read memory behind the end of the chunk.
    """
    try:
        with open(name, "rb", buffering=0) as file:
            head, size = file.read(_BLOSC_HEADER), os.fstat(file.fileno()).st_size
    except OSError:  # Zarr returns fill values, or raises an error.
        return
    needed = int.from_bytes(head[12:16], "little") if len(head) == _BLOSC_HEADER else _BLOSC_HEADER
    if size < needed:
        raise StoreError(
            f"The chunk {name!r} of {redact(array.store)!r} is cut off: it has {size} bytes and "
            f"needs {needed}. Write the store again, or delete this file if its values may be the "
            "fill value."
        )


def _is_blosc(array: zarr.Array) -> bool:
    codecs = array.compressors
    return array.shards is None and "Blosc" in "".join(type(codec).__name__ for codec in codecs)


def _ranges(selection: Any, shape: tuple[int, ...]) -> list[range] | None:
    """Return the indices of a selection along each axis, or None if it is not made of slices."""
    slices = selection if isinstance(selection, tuple) else (selection,)
    if len(slices) > len(shape) or not all(isinstance(axis_slice, slice) for axis_slice in slices):
        return None
    slices += (slice(None),) * (len(shape) - len(slices))
    ranges = [
        range(*axis_slice.indices(size)) for axis_slice, size in zip(slices, shape, strict=True)
    ]
    return (
        ranges if all(axis_range.step == 1 and len(axis_range) for axis_range in ranges) else None
    )


def _overlapping(ranges: list[range], sizes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the grid positions of the chunks that overlap the wanted ranges."""
    return product(
        *(
            range(axis_range.start // size, -(-axis_range.stop // size))
            for axis_range, size in zip(ranges, sizes, strict=True)
        )
    )


def stored_chunks(array: zarr.Array) -> NDArray[np.bool_] | None:
    """Return a mask of the chunks (or shards) with a file in a local folder, in grid order.

    The folder is listed.  Return None for other stores, and for more than a million chunks.
    """
    grid = _grid(array)
    if grid is None or np.prod(grid[2], dtype=float) > _MAX_LISTED:
        return None
    folder, _, counts = grid
    names: set[str] = set()
    for directory, _, files in os.walk(folder):
        relative = os.path.relpath(directory, folder)
        prefix = "" if relative == "." else f"{relative}{os.sep}".replace(os.sep, "/")
        names.update(prefix + name for name in files)
    key = array.metadata.encode_chunk_key
    positions = product(*map(range, counts))
    return np.fromiter(
        (key(directory) in names for directory in positions), bool, int(np.prod(counts))
    )


def _some_files(array: zarr.Array, numbers: NDArray[np.intp]) -> list[str]:
    """Return local files of a sample of the chunks or shards, with the first and the last."""
    grid = _grid(array)
    if grid is None:
        return []
    folder, _, counts = grid
    selected = np.linspace(0, len(numbers) - 1, min(len(numbers), _SAMPLED)).astype(np.intp)
    positions = (
        map(int, np.unravel_index(position, counts) if counts else ())
        for position in numbers[selected]
    )
    return [
        os.path.join(folder, array.metadata.encode_chunk_key(tuple(position)))
        for position in positions
    ]


#: Arrays that this process has checked: metadata, list of chunks and sampled bytes.
_seen: set[tuple[str, bytes | None, str | None]] = set()
#: Maximum bytes of the list of chunks that is pickled with an array; longer lists are omitted.
_MAX_PACKED = 2**16
#: Maximum bytes of metadata; larger files are considered damaged.
_MAX_METADATA = 2**26
#: Maximum number of chunks of an array; a graph of more chunks does not fit in memory.
MOST_CHUNKS = 2**24
#: Errors of readers and codecs for damaged bytes; a `ValueError` has a clear message already.
_DAMAGED = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NotImplementedError,
    RecursionError,
    TypeError,
)
#: Positions in a file where bytes are compared, bytes per position, and number of chunk files.
_POSITIONS, _SAMPLE, _SAMPLED = 5, 4096, 16
_METADATA = {2: ".zarray", 3: "zarr.json"}


def metadata_digest(array: zarr.Array) -> str | None:
    """Return a digest of an array's metadata, without attributes in Zarr v2, or None."""
    from zarr.core.buffer import default_buffer_prototype
    from zarr.core.sync import sync
    from zarr.storage import LocalStore

    name = f"{array.path}/{_METADATA[array.metadata.zarr_format]}".lstrip("/")
    if type(array.store) is LocalStore:
        # Opening the store would create its folder.
        try:
            file = Path(array.store.root) / name
            if file.stat().st_size > _MAX_METADATA:
                raise ValueError(
                    f"{str(file)!r} must have at most {_MAX_METADATA} bytes of metadata, got "
                    f"{file.stat().st_size}; the store is damaged."
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
    """Fingerprints of local files on the client, for tasks that read the same paths.

    Sizes and sampled bytes are compared, but not times, because copies have other times.  A process
    reads the bytes again only if the size or time of a file has changed.
    """

    def __init__(self, paths: Iterable[str | os.PathLike[str]]) -> None:
        self._fingerprints = {
            path: _fingerprint(path)
            for path in sorted(map(str, paths))
            if os.path.isabs(path) and os.path.isfile(path)
        }
        self.key = hashlib.sha256(repr(self._fingerprints).encode()).hexdigest()

    def check(self) -> None:
        """Raise StoreError if a file differs in this process."""
        for path, (size, content) in self._fingerprints.items():
            size_here, content_here = _fingerprint(path)
            if size_here != size:
                raise unseen(
                    repr(path),
                    verb=f"sees {size_here} bytes at",
                    who=f"of which the client opened {size} (open it again if it was changed)",
                )
            if content_here != content:
                raise unseen(
                    repr(path),
                    verb="sees other values in",
                    who="than the client (if the file was changed, open it again)",
                )

    def having_read(self, block: Any) -> Any:
        """Return a block that was read from the files, after :meth:`check`."""
        self.check()
        return block


def _fingerprint(path: str) -> tuple[int, str]:
    """Return the size of a file, and a digest of bytes at several positions."""
    status = os.stat(path)
    return status.st_size, _content_digest(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=2**16)
def _content_digest(path: str, size: int, changed: int) -> str:
    sha = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        for i in range(_POSITIONS):
            file.seek(max(0, size - _SAMPLE) * i // (_POSITIONS - 1))
            sha.update(file.read(_SAMPLE))
    return sha.hexdigest()


class StoredArray:
    """Zarr array in tasks, which raises an error if a process reads another array.

    Each process reads the metadata once, and again for each block that is written or has only
    fill values.  If the array is in a local folder, a process that receives it also lists the files
    once, and reads bytes of 16 files.
    """

    def __init__(self, array: zarr.Array, retries: Retries | None = None) -> None:
        from zarr.storage import ZipStore

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
        #: Packed list of chunks of the client, in a process that received the array.
        self._listed: bytes | None = None
        self._some: SeenFiles | None = None
        store = array.store
        archive = [store.path] if isinstance(store, ZipStore) else []
        self._archive = SeenFiles(archive)

    def __getstate__(self) -> dict[str, Any]:
        not_pickled = {"array", "_list", "_sample"}
        state = {name: value for name, value in self.__dict__.items() if name not in not_pickled}
        # Unpickled on first use: otherwise a worker without the archive or a package would exit.
        state.setdefault("_pickled", cloudpickle.dumps(self.array))
        return {**state, "_listed": self._list, "_some": self._sample}

    @cached_property
    def array(self) -> zarr.Array:
        """The array, opened by the first task of a process that uses it."""
        self._archive.check()
        array: zarr.Array = pickle.loads(self._pickled)
        return array

    @property
    def store(self) -> Any:
        return self.array.store

    @cached_property
    def _list(self) -> bytes | None:
        """Packed mask of the chunks with a file, as the client sees it."""
        if self._listed is not None:
            return self._listed
        mask = stored_chunks(self.array)
        if mask is None:
            return None
        packed = zlib.compress(np.packbits(mask).tobytes())
        return packed if len(packed) <= _MAX_PACKED else None

    @cached_property
    def _sample(self) -> SeenFiles | None:
        """Some files of the chunks, as the client sees them; None for other stores."""
        if self._list is None or self._listed is not None:
            return self._some
        return SeenFiles(_some_files(self.array, np.flatnonzero(_unpacked(self._list))))

    def compare(self) -> None:
        """Raise StoreError if this process reads another array, or if chunks are missing."""
        self._archive.check()
        self._check_metadata()
        here = None if self._listed is None else stored_chunks(self.array)
        if here is None or self._listed is None:
            return
        on_client = _unpacked(self._listed)[: len(here)].astype(bool)
        missing = np.flatnonzero(on_client & ~here)
        if len(missing):
            raise unseen(
                f"{len(missing)} of the {on_client.sum()} stored chunks of {self.name!r}, such as "
                f"{_some_files(self.array, missing)[0]!r}",
                who="which the client has, so it would read fill values; copy the store again",
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
        """Name of store and path, without credentials."""
        store = redact(self.array.store)
        return f"{store.rstrip('/')}/{self.array.path}".rstrip("/")

    @property
    def _mark(self) -> tuple[str, bytes | None, str | None]:
        return self.key, self._listed, None if self._some is None else self._some.key

    def _check_metadata(self) -> None:
        if self.digest is None:
            return
        try:
            digest_here = metadata_digest(self.array)
        except FileNotFoundError:
            digest_here = None
        if digest_here != self.digest:
            _seen.discard(self._mark)
            verb = "does not see" if digest_here is None else "sees another array at"
            raise unseen(repr(self.name), verb=verb)

    def check(self) -> None:
        """Compare the array once per process, and a zip archive each time."""
        self._archive.check()
        if self._mark not in _seen:
            self.compare()
            _seen.add(self._mark)

    def __getitem__(self, selection: Any) -> NDArray[Any]:
        return self.read(selection)

    def read(self, selection: Any) -> NDArray[Any]:
        return persistently(
            lambda: self._read(selection), lambda: self._selection_name(selection), self.retries
        )

    def _selection_name(self, selection: Any) -> str:
        indices = selection if isinstance(selection, tuple) else (selection,)
        shown = (
            f"{index.start or 0}:{'' if index.stop is None else index.stop}"
            if isinstance(index, slice)
            else str(index)
            for index in indices
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
                f"{self._selection_name(selection)} does not fit in memory: the array has shape "
                f"{self.shape} and dtype {self.dtype}, in chunks of {self.array.chunks}. Use a "
                "store with smaller chunks. If its chunks should be smaller, its metadata are "
                "damaged."
            ) from error
        except _DAMAGED as error:
            raise StoreError(
                f"{self._selection_name(selection)} cannot be read ({type(error).__name__}: "
                f"{redact(error)}): data or metadata are damaged, or in a format that this "
                "version of Zarr does not support. Copy or write the store again."
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
        """Yield the local files of the chunks of a selection; all files if it has no slices."""
        grid = _grid(self.array)
        if grid is None:
            return
        folder, sizes, _ = grid
        wanted = _ranges(selection, self.shape) or [range(size) for size in self.shape]
        for position in _overlapping(wanted, sizes):
            yield os.path.join(folder, self.array.metadata.encode_chunk_key(position))

    def __setitem__(self, selection: Any, values: NDArray[Any]) -> None:
        persistently(
            lambda: self._write(selection, values),
            lambda: self._selection_name(selection),
            self.retries,
            unwritten,
            "written",
        )

    def _write(self, selection: Any, values: NDArray[Any]) -> None:
        self._check_metadata()
        self.array[selection] = values


#: A source that a task reads, as the client sees it, which each process checks.
Seen = SeenFiles | StoredArray


def is_zarr_array(value: Any) -> bool:
    """Return True if a value is an array of Zarr, which is not imported for this check."""
    return isinstance(value, getattr(sys.modules.get("zarr"), "Array", ()))


def arrays_in(value: Any, depth: int = 12) -> Iterator[zarr.Array]:
    """Yield the Zarr arrays in a node of a graph that are not in a :class:`StoredArray`."""
    if is_zarr_array(value):
        yield value
    elif depth and isinstance(value, dict):
        for item in value.values():
            yield from arrays_in(item, depth - 1)
    elif depth and isinstance(value, list | tuple):
        for item in value:
            yield from arrays_in(item, depth - 1)
    elif depth:
        # Tasks of Dask, and wrappers of xarray.
        kind = type(value).__module__.partition(".")[0]
        inner: Iterable[Any] = inside_xarray(value) if kind == "xarray" else ()
        if kind == "dask":
            inner = (getattr(value, name, None) for name in ("args", "kwargs", "value"))
        for item in inner:
            yield from arrays_in(item, depth - 1)


def values_of(array: Any) -> NDArray[Any]:
    """Read a small array; a Zarr array is read with the retries and errors of tasks."""
    return StoredArray(array).read(...) if is_zarr_array(array) else np.asarray(array[...])


def as_dask(array: zarr.Array | StoredArray) -> da.Array:
    """Return a lazy array with the chunks (or shards) of a stored array."""
    stored = array if isinstance(array, StoredArray) else StoredArray(array)
    chunks = stored.array.shards or stored.array.chunks
    count = prod(-(-n // max(1, size)) for n, size in zip(stored.shape, chunks, strict=True))
    if count > MOST_CHUNKS:
        raise ValueError(
            f"The array {stored.array.name!r} of shape {stored.shape} must have at most "
            f"{MOST_CHUNKS} chunks, got {count} chunks of {chunks}. Write it in larger chunks, "
            "unless its metadata are damaged."
        )
    return da.from_array(
        stored,
        chunks=chunks,
        asarray=False,
        fancy=False,
        meta=np.empty((0,) * stored.ndim, dtype=stored.dtype),
    )
