"""Zarr groups that are written: nothing of others is replaced, nothing is left half."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import zarr
from zarr.abc.store import Store
from zarr.core.sync import sync

from daskclust.exceptions import StoreError
from daskclust.storage.outputs import Output, Written
from daskclust.storage.stores import INCOMPLETE, opening_errors, retrying
from daskclust.storage.urls import redact

#: Attribute of every group that daskclust writes: its kind and the names inside.
_WRITTEN = "daskclust_written"
#: Endings of files that are not Zarr stores.
_FOREIGN = frozenset(
    ".bmp .bil .bsq .cdf .csv .dat .gif .gpkg .h5 .hdf5 .hdr .html .img .jp2 .jpeg .jpg .json "
    ".nc .nc4 .npy .npz .parquet .pdf .pkl .png .shp .svg .tif .tiff .txt .vrt".split()
)
#: Files of a group itself, in versions 3 and 2.
_METADATA = ("zarr.json", ".zgroup", ".zattrs", ".zmetadata")


class Group(Output):
    """A Zarr group, on this machine, at a URL or in a store."""

    takes_empty = True

    def __init__(self, place: Any, kind: str, *, overwrite: bool = False) -> None:
        super().__init__(place, kind, overwrite=overwrite)
        if (
            isinstance(place, zarr.storage.LocalStore)
            and type(place) is not zarr.storage.LocalStore
        ):
            # A subclass may do more than write files: it stays what it is.
            self.path = None

    def check_place(self) -> None:
        """Refuse ``.zip`` files, which several tasks cannot write at once, and names of files."""
        super().check_place()
        path, shown = self.path, redact(self.place)
        if path is None:
            return
        if path.suffix.lower() in _FOREIGN and not path.exists():
            tif = " or a GeoTIFF (.tif)" if "map" in self.kind else ""
            raise ValueError(
                f"{shown!r} ends like a file of another format; a {self.kind} is written as a "
                f"Zarr store, which is a folder (for example .zarr){tif}. Choose another name."
            )
        if path.suffix.lower() == ".zip":
            raise ValueError(
                f"{shown!r}: a zip store cannot be written by several tasks at once. "
                "Write a folder (for example .zarr) and zip it afterwards."
            )

    def exists(self) -> bool:
        """Whether there is a file, a folder, or an object."""
        if self.path is not None:
            return super().exists()
        store, inner = resolve(self.place)
        return not sync(store.is_empty(inner))

    def names(self) -> set[str]:
        """Return the names inside."""
        if self.path is not None:
            return super().names()
        return set(sync(_names(*resolve(self.place))))

    def written(self) -> Written | None:
        """Return the attributes of the group, and the names of its arrays."""
        try:
            store, inner = resolve(self.place) if self.path is None else (str(self.path), "")
            group = zarr.open_group(store, path=inner, mode="r", use_consolidated=False)
            attributes = group.attrs.asdict()
        except Exception:  # whatever it is, it is not ours
            return None
        mark = attributes.get(_WRITTEN)
        if not isinstance(mark, dict) or not isinstance(mark.get("members"), list):
            return None
        return Written(str(mark.get("kind")), attributes, (*_METADATA, *mark["members"]))


async def _names(store: Store, inner: str) -> list[str]:
    return [name.rstrip("/") async for name in store.list_dir(inner)]


def resolve(target: Any) -> tuple[Store, str]:
    """Return the store, and the path inside it, that a target which is no folder means."""
    if isinstance(target, Store):
        return retrying(target), ""
    if isinstance(target, zarr.storage.StorePath):
        return retrying(target.store), target.path
    if isinstance(target, dict):
        return zarr.storage.MemoryStore(target), ""
    if isinstance(target, str):
        with opening_errors(target):
            return retrying(zarr.storage.FsspecStore.from_url(target)), ""
    raise TypeError(
        f"store is a {type(target).__name__}; a new group needs a path, a URL or a zarr store."
    )


@contextmanager
def new_group(
    target: Any,
    *,
    kind: str,
    overwrite: bool = False,
    consolidated: bool = False,
    zarr_format: Literal[2, 3] = 3,
) -> Iterator[zarr.Group]:
    """Create a Zarr group that is whole or absent.

    A local group is written into a hidden sibling folder and renamed at the end; after an exception
    the sibling is removed, after a crash it is left under its hidden name until the next write to
    this target. Other stores cannot rename: there an attribute marks the group as incomplete until
    the end, and :func:`daskclust.storage.stores.open_store` refuses it; after an exception it is
    removed. With `overwrite` a group that daskclust has written of the same kind is replaced.
    Metadata that are `consolidated` are kept at the group, too, where xarray looks for them.
    """
    output = Group(target, kind, overwrite=overwrite)
    if output.path is None:
        output.check()
        store, inner = resolve(target)
        with _marked_group(
            store, inner, kind=kind, consolidated=consolidated, zarr_format=zarr_format
        ) as group:
            yield group
        return
    with output.new() as partial:
        group = zarr.open_group(str(partial), mode="w-", zarr_format=zarr_format)
        yield group
        _sign(group, kind)
        if consolidated:
            _consolidate(group.store, group.path, zarr_format)


@contextmanager
def _marked_group(
    store: Store, inner: str, *, kind: str, consolidated: bool, zarr_format: Literal[2, 3]
) -> Iterator[zarr.Group]:
    if not sync(store.is_empty(inner)):  # ours, as was checked
        sync(store.delete_dir(inner))
    group = zarr.open_group(store, path=inner, mode="w-", zarr_format=zarr_format)
    try:
        group.attrs[INCOMPLETE] = True
        yield group
        _sign(group, kind)
        del group.attrs[INCOMPLETE]
        if consolidated:
            _consolidate(store, inner, zarr_format)
    except BaseException:
        sync(store.delete_dir(inner))
        raise


def _consolidate(store: Store, inner: str, zarr_format: Literal[2, 3]) -> None:
    with warnings.catch_warnings():
        # Version 3 of Zarr leaves it to implementations; those who do not know it ignore it.
        warnings.filterwarnings("ignore", message="Consolidated metadata")
        zarr.consolidate_metadata(store, path=inner, zarr_format=zarr_format)


def _sign(group: zarr.Group, kind: str) -> None:
    group.attrs[_WRITTEN] = {"kind": kind, "members": sorted(group.keys())}


def check_written(array: zarr.Array) -> None:
    """Raise where chunks of an array that was written by tasks are not in the store.

    Empty chunks must have been written, too (``write_empty_chunks``).

    Lists the array's files once.
    """
    written = array.nchunks_initialized
    if written == array.nchunks:
        return
    raise StoreError(
        f"{array.nchunks - written} of {array.nchunks} blocks written by workers are not in "
        f"{redact(array.store)!r}{_examples(array)}. Every worker must reach the same store "
        "under the same path; a store in memory reaches threads of this process only. The "
        "unfinished output was removed."
    )


def _examples(array: zarr.Array) -> str:
    """Name a few chunks that are missing, where that costs little."""
    store = array.store
    if type(store) is not zarr.storage.LocalStore:
        return ""
    folder = Path(store.root) / array.path
    counts = [-(-size // step) for size, step in zip(array.shape, array.chunks, strict=True)]
    missing = []
    for number in np.ndindex(*counts):
        name = array.metadata.encode_chunk_key(number)
        if not (folder / name).is_file():
            missing.append(name)
            if len(missing) == 3:
                break
    return f" (such as {', '.join(missing)})" if missing else ""
