"""Temporary files of rows, which are written by block and read by group."""

from __future__ import annotations

import os
import struct
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Ints
from daskclust.core.storage.atomic_write import (
    discard,
    hidden_sibling,
    naming,
    new_path,
    remove_stale,
    reserved,
)
from daskclust.core.storage.files import read_range, remove, write_whole
from daskclust.core.storage.redact import redact
from daskclust.core.storage.retry import unseen
from daskclust.core.storage.stores import check_protocol, local_path
from daskclust.exceptions import StoreError

#: Header of a part: magic bytes, number of groups, and number of records.
_HEAD = struct.Struct("<8sqq")
_MAGIC = b"dcrows01"


def remove_remains(base: Path | str | None = None) -> Path | None:
    """Remove files of killed processes in a temporary folder, and return a local folder."""
    path = local_path(_default(base))
    if path is not None:
        with _writable(base):
            remove_stale(path / "daskclust-rows")
    return path


def _default(base: Any) -> Any:
    if base is not None:
        return base
    return dask.config.get("temporary-directory", None) or tempfile.gettempdir()


@contextmanager
def _writable(base: Any) -> Iterator[None]:
    """Add the folder and a remedy to errors of the operating system."""
    try:
        yield
    except OSError as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(
            f"Cannot create or write {redact(os.fspath(_default(base)))!r}: {redact(error)}. "
            "This folder stores rows by group, so the process must be allowed to write there. "
            "Use another folder (spill=, if the function has it), or set Dask's "
            "temporary-directory."
        ) from error


@contextmanager
def temporary_folder(base: Path | str | None = None) -> Iterator[str]:
    """Create a folder in `base` or Dask's ``temporary-directory``, and remove it at the end."""
    path = remove_remains(base)
    if path is None:
        check_protocol(base)
        folder = f"{str(base).rstrip('/')}/{hidden_sibling(Path('daskclust-rows'), 'partial').name}"
        try:
            yield folder
        finally:
            remove(folder, folder=True)
        return
    folder_path = hidden_sibling(path / "daskclust-rows", "partial")
    with _writable(base):
        path.mkdir(parents=True, exist_ok=True)
        folder_path.mkdir()
    try:
        yield str(folder_path)
    finally:
        discard(folder_path)


class TemporaryFolder:
    """Folder for lazy results, removed with the last reference other than pickled copies.

    >>> folder = TemporaryFolder.beside(None)
    >>> Path(folder.make("rows")).is_dir(), folder.has("labels")
    (True, False)
    >>> folder.remove()
    >>> folder.has("rows")
    False
    """

    def __init__(self, path: Path, *, is_own: bool = True) -> None:
        self.path, self._is_own = path, is_own
        self._end: Any = None

    @staticmethod
    def locked(checkpoint: Any) -> AbstractContextManager[None]:
        """Lock the folder next to a checkpoint; raise FileExistsError if another fit uses it."""
        return reserved(_rows_folder(checkpoint))

    @classmethod
    def beside(cls, checkpoint: Any) -> TemporaryFolder:
        """Return the folder of a fit, next to its checkpoint so that a resumed fit can use it."""
        for path in _rows_folder(checkpoint):
            remove_stale(path)
            return cls(path, is_own=False)
        base = remove_remains() or Path(tempfile.gettempdir())
        with _writable(None):
            base.mkdir(parents=True, exist_ok=True)
        return cls(hidden_sibling(base / "daskclust-rows", "partial"))

    def make(self, name: str) -> str:
        folder = self.path / name
        if self._end is None:
            self._end = weakref.finalize(self, discard, self.path)
        with naming(folder):
            folder.mkdir(parents=True, exist_ok=True)
        return str(folder)

    def take(self) -> TemporaryFolder:
        """Rename the folder to a unique name, to which no later fit writes."""
        if self._is_own:
            return self
        moved = TemporaryFolder(hidden_sibling(self.path, "partial"))
        self.path.rename(moved.path)
        moved._end = weakref.finalize(moved, discard, moved.path)
        if self._end is not None:
            self._end.detach()
        return moved

    def has(self, name: str) -> bool:
        return (self.path / name).is_dir()

    def drop(self, name: str) -> None:
        discard(self.path / name)

    def remove(self) -> None:
        if self._end is not None:
            self._end()

    def __reduce__(self) -> Any:
        return type(self), (self.path,)


def _rows_folder(checkpoint: Any) -> list[Path]:
    if not isinstance(checkpoint, str | os.PathLike):
        return []
    return [Path(f"{os.fspath(checkpoint)}.rows").absolute()]


@dataclass(frozen=True)
class GroupedRows:
    """Records of rows in the files of a folder, of which tasks read one group.

    A part is a block of rows in one file, which is written atomically.  Tasks write parts and read
    groups in any order, on any worker that can access the folder.  A part may be written twice.
    """

    folder: str
    dtype: np.dtype[Any]

    def write(self, part: int, groups: Ints, records: NDArray[Any]) -> None:
        """Write the records of the block that starts at row `part`, sorted by group and row."""
        order = np.argsort(groups, kind="stable")
        present, first = np.unique(groups[order], return_index=True)
        bounds = np.concatenate([first, [len(order)]]).astype("<i8")
        head = _HEAD.pack(_MAGIC, len(present), len(order))
        sorted_records = np.ascontiguousarray(records, self.dtype)[order]
        location = self._location(part)
        path = local_path(location)
        pieces = (present.astype("<i8"), bounds, sorted_records)
        if path is None:
            content = b"".join([head, *(piece.tobytes() for piece in pieces)])
            write_whole(location, content, check=lambda: None)
            return
        if not path.parent.is_dir():
            raise unseen(repr(self.folder), who="in which the client stores rows by group")
        with new_path(path) as partial, partial.open("wb") as file:
            file.write(head)
            for piece in pieces:
                file.write(piece.view(np.uint8).data)

    def read(self, parts: Sequence[int], group: int) -> NDArray[Any]:
        """Return the records of one group in one array, in the order of `parts`."""
        ranges = [(self._location(part), *self._bounds(part, group)) for part in parts]
        out = np.empty(sum(count for _, _, count in ranges), self.dtype)
        n_read = 0
        for location, start, count in ranges:
            if count:
                content = self._range(location, start, count * self.dtype.itemsize)
                out[n_read : n_read + count] = np.frombuffer(content, self.dtype)
                n_read += count
        return out

    def parts(self) -> list[int]:
        """Return the parts in a local folder, ascending."""
        return sorted(int(path.stem) for path in Path(self.folder).glob("*.rows"))

    def _location(self, part: int) -> str:
        return f"{self.folder}/{part}.rows"

    def _bounds(self, part: int, group: int) -> tuple[int, int]:
        location = self._location(part)
        magic, n_groups, _ = _HEAD.unpack(self._range(location, 0, _HEAD.size))
        if magic != _MAGIC:
            raise StoreError(
                f"{redact(location)!r} must be a file of rows, got a damaged or changed file. Run "
                "the fit again, and do not change temporary files."
            )
        index = self._range(location, _HEAD.size, 8 * (2 * n_groups + 1))
        present, bounds = np.split(np.frombuffer(index, "<i8"), [n_groups])
        position = int(np.searchsorted(present, group))
        if position == n_groups or present[position] != group:
            return 0, 0
        first, stop = int(bounds[position]), int(bounds[position + 1])
        start = _HEAD.size + len(index) + first * self.dtype.itemsize
        return start, stop - first

    @staticmethod
    def _range(location: str, start: int, size: int) -> bytes:
        try:
            content = read_range(location, start, size)
        except FileNotFoundError as error:
            raise unseen(
                repr(redact(location)), who="in which another worker stored rows"
            ) from error
        if len(content) != size:
            raise StoreError(
                f"{redact(location)!r} must have {size} bytes from byte {start} on, got "
                f"{len(content)}. Do not change temporary files while a fit runs."
            )
        return content


class Spill:
    """Temporary folder for rows in `base` (path or URL), which is removed after use."""

    def __init__(self, base: Any) -> None:
        if base is not None and not isinstance(base, str | os.PathLike):
            raise TypeError(f"spill must be the path or URL of a folder, or None, got {base!r}.")
        if isinstance(base, str) and (not base.strip() or base.endswith("://")):
            raise ValueError(f"spill must be the path or URL of a folder, or None, got {base!r}.")
        self.base: Any = base
        self._stack = ExitStack()

    def __enter__(self) -> Spill:
        """Remove files of killed fits, even if this fit creates no folder."""
        remove_remains(self.base)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def check(self) -> None:
        """Raise StoreError or ValueError if the folder cannot be written; no files remain."""
        with temporary_folder(self.base) as folder, _writable(self.base):
            if local_path(folder) is None:
                write_whole(f"{folder}/0.rows", b"", check=lambda: None)

    def store(self, record: np.dtype[Any]) -> GroupedRows:
        """Return a store in a new folder, and remove the previous folder."""
        self._stack.close()
        return GroupedRows(self._stack.enter_context(temporary_folder(self.base)), record)
