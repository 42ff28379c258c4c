"""Rows put by groups for a while: written a block at a time, read a group at a time."""

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
    new_place,
    remove_stale,
    reserved,
)
from daskclust.core.storage.files import read_range, remove, write_whole
from daskclust.core.storage.redact import redact
from daskclust.core.storage.retry import unseen
from daskclust.core.storage.stores import check_protocol, local_path
from daskclust.exceptions import StoreError

#: The head of a part: these letters, its number of groups, and of records.
_HEAD = struct.Struct("<8sqq")
_MAGIC = b"dcrows01"


def remove_remains(base: Path | str | None = None) -> Path | None:
    """Remove what killed processes left beside temporary folders; return that place, if local."""
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
    """Let the system's errors say of which folder they are, and what may be done."""
    try:
        yield
    except OSError as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(
            f"{redact(os.fspath(_default(base)))!r} cannot be made or written to: {redact(error)}. "
            "Rows are put there by groups, so it must be a folder in which this process may write. "
            "Give another one (spill=, where there is that argument), or set Dask's "
            "temporary-directory."
        ) from error


@contextmanager
def temporary_folder(base: Path | str | None = None) -> Iterator[str]:
    """Make a folder that is gone at the end, in `base` or Dask's ``temporary-directory``."""
    path = remove_remains(base)
    if path is None:
        check_protocol(base)
        folder = f"{str(base).rstrip('/')}/{hidden_sibling(Path('daskclust-rows'), 'partial').name}"
        try:
            yield folder
        finally:
            remove(folder, folder=True)
        return
    made = hidden_sibling(path / "daskclust-rows", "partial")
    with _writable(base):
        path.mkdir(parents=True, exist_ok=True)
        made.mkdir()
    try:
        yield str(made)
    finally:
        discard(made)


class TemporaryFolder:
    """A folder for lazy results: removed with the last reference to it, not with pickled copies.

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
    def for_one(checkpoint: Any) -> AbstractContextManager[None]:
        """Keep the folder beside a checkpoint for one fit; FileExistsError: another has it."""
        return reserved(_beside(checkpoint))

    @classmethod
    def beside(cls, checkpoint: Any) -> TemporaryFolder:
        """Return the folder of a fit: beside its checkpoint, where a killed fit finds it again."""
        for path in _beside(checkpoint):
            remove_stale(path)
            return cls(path, is_own=False)
        base = remove_remains() or Path(tempfile.gettempdir())
        with _writable(None):
            base.mkdir(parents=True, exist_ok=True)
        return cls(hidden_sibling(base / "daskclust-rows", "partial"))

    def make(self, part: str) -> str:
        place = self.path / part
        if self._end is None:
            self._end = weakref.finalize(self, discard, self.path)
        with naming(place):
            place.mkdir(parents=True, exist_ok=True)
        return str(place)

    def take(self) -> TemporaryFolder:
        """Return the folder under a name of its own, at which no later fit writes."""
        if self._is_own:
            return self
        mine = TemporaryFolder(hidden_sibling(self.path, "partial"))
        self.path.rename(mine.path)
        mine._end = weakref.finalize(mine, discard, mine.path)
        if self._end is not None:
            self._end.detach()
        return mine

    def has(self, part: str) -> bool:
        return (self.path / part).is_dir()

    def drop(self, part: str) -> None:
        discard(self.path / part)

    def remove(self) -> None:
        if self._end is not None:
            self._end()

    def __reduce__(self) -> Any:
        return type(self), (self.path,)


def _beside(checkpoint: Any) -> list[Path]:
    if not isinstance(checkpoint, str | os.PathLike):
        return []
    return [Path(f"{os.fspath(checkpoint)}.rows").absolute()]


@dataclass(frozen=True)
class GroupedRows:
    """Records of rows, in files of a folder, from which the rows of one group are read at once.

    A part is a block of rows: one file, whole or absent.  Tasks write parts and read groups in any
    order, on any worker that reaches the folder; a part that is written twice is the same.
    """

    folder: str
    dtype: np.dtype[Any]

    def write(self, part: int, groups: Ints, records: NDArray[Any]) -> None:
        """Write the records of the block that begins at row `part`, in order within a group."""
        order = np.argsort(groups, kind="stable")
        present, first = np.unique(groups[order], return_index=True)
        bounds = np.concatenate([first, [len(order)]]).astype("<i8")
        head = _HEAD.pack(_MAGIC, len(present), len(order))
        sorted_records = np.ascontiguousarray(records, self.dtype)[order]
        place = self._place(part)
        path = local_path(place)
        pieces = (present.astype("<i8"), bounds, sorted_records)
        if path is None:
            content = b"".join([head, *(piece.tobytes() for piece in pieces)])
            write_whole(place, content, check=lambda: None)
            return
        if not path.parent.is_dir():
            raise unseen(repr(self.folder), who="in which the client puts rows by groups")
        with new_place(path) as partial, partial.open("wb") as file:
            file.write(head)
            for piece in pieces:
                file.write(piece.view(np.uint8).data)

    def read(self, parts: Sequence[int], group: int) -> NDArray[Any]:
        """Return the records of one group, held once, by parts in the order that is wanted."""
        found = [(self._place(part), *self._bounds(part, group)) for part in parts]
        out = np.empty(sum(count for _, _, count in found), self.dtype)
        done = 0
        for place, start, count in found:
            if count:
                content = self._range(place, start, count * self.dtype.itemsize)
                out[done : done + count] = np.frombuffer(content, self.dtype)
                done += count
        return out

    def parts(self) -> list[int]:
        """Return the parts that are in a folder on this machine, ascending."""
        return sorted(int(path.stem) for path in Path(self.folder).glob("*.rows"))

    def _place(self, part: int) -> str:
        return f"{self.folder}/{part}.rows"

    def _bounds(self, part: int, group: int) -> tuple[int, int]:
        place = self._place(part)
        magic, n_groups, _ = _HEAD.unpack(self._range(place, 0, _HEAD.size))
        if magic != _MAGIC:
            raise StoreError(f"{redact(place)!r} was changed by others: it is no part of rows.")
        index = self._range(place, _HEAD.size, 8 * (2 * n_groups + 1))
        present, bounds = np.split(np.frombuffer(index, "<i8"), [n_groups])
        at = int(np.searchsorted(present, group))
        if at == n_groups or present[at] != group:
            return 0, 0
        first, stop = int(bounds[at]), int(bounds[at + 1])
        start = _HEAD.size + len(index) + first * self.dtype.itemsize
        return start, stop - first

    @staticmethod
    def _range(place: str, start: int, size: int) -> bytes:
        try:
            content = read_range(place, start, size)
        except FileNotFoundError as error:
            raise unseen(repr(redact(place)), who="in which another worker put rows") from error
        if len(content) != size:
            raise StoreError(
                f"{redact(place)!r} has {len(content)} bytes from byte {start} on, where {size} "
                "were written. Leave temporary files alone while a fit runs."
            )
        return content


class Spill:
    """A folder for rows in `base`, a path or URL, made when first needed, and gone in the end."""

    def __init__(self, base: Any) -> None:
        if base is not None and not isinstance(base, str | os.PathLike):
            raise TypeError(f"spill={base!r}; expected the path or URL of a folder, or None.")
        if isinstance(base, str) and (not base.strip() or base.endswith("://")):
            raise ValueError(f"spill={base!r} names no folder; give a path or URL, or None.")
        self.base: Any = base
        self._stack = ExitStack()

    def __enter__(self) -> Spill:
        """Remove what killed fits left there: this one may need no folder of its own."""
        remove_remains(self.base)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def check(self) -> None:
        """Raise StoreError or ValueError where nothing can be written; leaves nothing behind."""
        with temporary_folder(self.base) as folder, _writable(self.base):
            if local_path(folder) is None:
                write_whole(f"{folder}/0.rows", b"", check=lambda: None)

    def store(self, record: np.dtype[Any]) -> GroupedRows:
        """Return a new store in a folder of its own; the one before is removed."""
        self._stack.close()
        return GroupedRows(self._stack.enter_context(temporary_folder(self.base)), record)
