"""Chunks of Zarr arrays in local folders, decoded in the thread that wants them.

Zarr hands each chunk from thread to thread, and takes fresh memory for the bytes of its file,
for what they decode to, and for the array that is returned: clearing those pages takes as long
as a sum over the values.  Here a file is read, and decoded straight into its place, in memory
that is used again (:func:`daskclust.kernels.scratch.spare`).

Only of what is most common, and only where nothing is unusual: for all else the answer is
None, and it is Zarr that reads, fills what is absent, or says what is wrong.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numcodecs
import numpy as np
import zarr
from fsspec.implementations.local import LocalFileSystem
from numpy.typing import NDArray
from zarr.codecs import BloscCodec, BytesCodec, ZstdCodec

from daskclust.exceptions import StoreError
from daskclust.kernels.scratch import spare

Bytes = NDArray[np.uint8]
#: Chunks of an array up to which the client takes down which of them there are.
_MOST_LISTED = 2**20
#: Bytes in whose multiples memory for encoded chunks is taken.
_STEP = 2**20


def _zstd_size(data: Bytes) -> int | None:
    """Return the bytes that a Zstandard frame says it decodes to (RFC 8878, 3.1.1.1)."""
    if len(data) < 18 or data[:4].tobytes() != b"\x28\xb5\x2f\xfd":
        return None
    head = int(data[4])
    single, flag = head >> 5 & 1, head >> 6
    at = 5 + (1 - single) + (0, 1, 2, 4)[head & 3]
    width = (single, 2, 4, 8)[flag]
    if not width:
        return None
    size = int.from_bytes(data[at : at + width].tobytes(), "little")
    return size + 256 if width == 2 else size


def _blosc_size(data: Bytes) -> int | None:
    """Return the bytes that a Blosc buffer says it decodes to; None where more follows it.

    A buffer that is cut off is an EOFError: its decoder trusts the length that it is told, reads on
    behind the end, and returns foreign memory.
    """
    wanted = int.from_bytes(data[12:16].tobytes(), "little") if len(data) >= 16 else 16
    if len(data) < wanted:
        raise EOFError(f"it has {len(data)} bytes and needs {wanted}")
    return int.from_bytes(data[4:8].tobytes(), "little") if len(data) == wanted else None


#: Of each compressor that is known here: what a chunk says of its length, and the decoder.
#: A decoder given more room than it needs would leave what lay there before.
_Decoder = tuple[Callable[[Bytes], int | None], Any]
_ZSTD: _Decoder = (_zstd_size, numcodecs.Zstd())
_BLOSC: _Decoder = (_blosc_size, numcodecs.Blosc())
_DECODERS: dict[type, _Decoder] = {
    ZstdCodec: _ZSTD,
    numcodecs.Zstd: _ZSTD,
    BloscCodec: _BLOSC,
    numcodecs.Blosc: _BLOSC,
}


def _folder(store: Any) -> str | None:
    """Return the folder of a store on this machine; None for any other store."""
    if type(store) is zarr.storage.LocalStore:
        return str(store.root)
    if type(store) is zarr.storage.FsspecStore:
        # The form that `dask.array.from_zarr` gives a path.
        files = getattr(store.fs, "sync_fs", store.fs)
        return str(store.path) if type(files) is LocalFileSystem else None
    return None


def _layout(array: zarr.Array) -> tuple[str, tuple[int, ...], _Decoder | None] | None:
    """Return the folder, the chunks and the decoder; None where anything is unusual."""
    root = _folder(array.store)
    if root is None or array.dtype.kind not in "iuf":
        return None
    # Pipelines of others have their own way to be fast.
    if not str(zarr.config.get("codec_pipeline.path", "")).startswith("zarr."):
        return None
    if not array.ndim or array.order != "C" or not array.dtype.isnative or array.filters:
        return None
    if array.metadata.zarr_format == 3:
        # Not of shards: those are a serializer of their own.
        serializer = array.serializer
        if type(serializer) is not BytesCodec:
            return None
        endian = getattr(serializer.endian, "value", serializer.endian)
        if array.dtype.itemsize > 1 and endian != sys.byteorder:
            return None
    compressors = array.compressors
    if len(compressors) > 1 or any(type(one) not in _DECODERS for one in compressors):
        return None
    try:
        chunks = tuple(int(size) for size in array.chunks)
    except (NotImplementedError, TypeError):  # no regular grid
        return None
    if not all(chunks):
        return None
    decoder = _DECODERS[type(compressors[0])] if compressors else None
    return os.path.join(root, array.path), chunks, decoder


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


def _grid(array: zarr.Array) -> tuple[str, tuple[int, ...], tuple[int, ...]] | None:
    """Return the folder of an array's files, what one of them holds, and how many there may be."""
    root = _folder(array.store)
    try:
        sizes = tuple(int(size) for size in array.shards or array.chunks)
    except (NotImplementedError, TypeError):  # no regular grid
        return None
    if root is None or not all(sizes):
        return None
    counts = tuple(-(-n // size) for n, size in zip(array.shape, sizes, strict=True))
    return os.path.join(root, array.path), sizes, counts


def stored_chunks(array: zarr.Array) -> NDArray[np.bool_] | None:
    """Return which chunks (or shards) of an array in a local folder have a file, in grid order.

    Chunks without a file hold the fill value. None for another store, and for more than a million
    chunks. Cost: a list of the folder's files.

    >>> stored_chunks(zarr.zeros((2,), store=zarr.storage.MemoryStore())) is None
    True
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


def absent_chunks(array: zarr.Array, selection: Any) -> list[tuple[int, str]]:
    """Return the chunks of a part without a file that this process sees, by number and file."""
    grid, wanted = _grid(array), _ranges(selection, array.shape)
    if grid is None or wanted is None:
        return []
    folder, sizes, counts = grid
    files = (
        (place, os.path.join(folder, array.metadata.encode_chunk_key(place)))
        for place in _touched(wanted, sizes)
    )
    return [
        (int(np.ravel_multi_index(place, counts)) if place else 0, file)
        for place, file in files
        if not os.path.exists(file)
    ]


def _read_file(name: str) -> Bytes:
    with open(name, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        # Rounded up: files differ in length a little, and their memory is to be used again.
        room = size if size < _STEP else -(-size // _STEP) * _STEP
        data = spare((room,), np.uint8)[:size]
        _fill(file, data)
        return data


def _fill(file: Any, out: Bytes) -> None:
    """Read as many bytes as there is room for; one call may return fewer."""
    done = 0
    while done < len(out):
        count = file.readinto(out[done:])
        if not count:
            raise EOFError("the file is shorter than it was")
        done += count


def _decode(name: str, out: NDArray[Any], decoder: _Decoder | None) -> bool:
    """Read one chunk into a C-contiguous array; False where it is of another length."""
    room = out.reshape(-1).view(np.uint8)
    if decoder is None:
        if os.stat(name).st_size != room.nbytes:
            return False
        with open(name, "rb", buffering=0) as file:
            _fill(file, room)
        return True
    data = _read_file(name)
    size, codec = decoder
    try:
        promised = size(data)
    except EOFError as error:
        raise StoreError(
            f"The chunk {name!r} is cut off: {error}. Write the store again, or delete this file "
            "if its values may be the fill value."
        ) from error
    if promised != room.nbytes:
        return False
    codec.decode(data, out=room)
    return True


def read_chunks(
    array: zarr.Array, selection: Any, out: NDArray[Any] | None = None
) -> NDArray[Any] | None:
    """Read a part of a Zarr array as ``array[selection]`` does, in this thread alone.

    `out` is C-contiguous, of the part's shape and dtype. Returns None where Zarr has to read it: no
    local folder, a type that is not a number, shards, filters, a compressor other than Zstandard
    and Blosc, absent or damaged chunks, or another selection than slices. A chunk in Blosc that is
    cut off, which Zarr would answer with other values, is a StoreError.

    Holds one encoded chunk beside the result, and one decoded where the selection cuts it.

    >>> array = zarr.zeros((2,), store=zarr.storage.MemoryStore())
    >>> read_chunks(array, slice(0, 2)) is None
    True
    """
    layout, wanted = _layout(array), _ranges(selection, array.shape)
    if layout is None or wanted is None:
        return None
    folder, chunks, decoder = layout
    shape = tuple(len(one) for one in wanted)
    if out is None:
        out = spare(shape, array.dtype)
    try:
        for place in _touched(wanted, chunks):
            name = os.path.join(folder, array.metadata.encode_chunk_key(place))
            inside, target = [], []
            for number, size, one in zip(place, chunks, wanted, strict=True):
                low, high = max(one.start, number * size), min(one.stop, (number + 1) * size)
                inside.append(slice(low - number * size, high - number * size))
                target.append(slice(low - one.start, high - one.start))
            here = out[tuple(target)]
            whole = here.shape == chunks and here.flags.c_contiguous
            room = here if whole else spare(chunks, array.dtype)
            if not _decode(name, room, decoder):
                return None
            if not whole:
                here[...] = room[tuple(inside)]
            # Before memory for the next is taken.
            del room
    except StoreError:
        raise
    except (OSError, EOFError, ValueError, RuntimeError, MemoryError):
        # Zarr knows what that means, or says it.
        return None
    return out


class DirectArray:
    """A Zarr array that answers slices by :func:`read_chunks` where that can be done."""

    def __init__(self, array: zarr.Array) -> None:
        self.array = array
        self.shape: tuple[int, ...] = tuple(array.shape)
        self.dtype: np.dtype[Any] = array.dtype
        self.ndim: int = array.ndim

    def __repr__(self) -> str:
        return repr(self.array)

    @property
    def store(self) -> Any:
        return self.array.store

    @property
    def path(self) -> str:
        return str(self.array.path)

    def __getitem__(self, selection: Any) -> Any:
        found = read_chunks(self.array, selection)
        return self.array[selection] if found is None else found
