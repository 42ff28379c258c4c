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
from daskclust.storage.atomic import (
    discard,
    hidden_sibling,
    naming,
    put_in_place,
    remove_stale,
)
from daskclust.storage.retrying import retrying
from daskclust.storage.stores import INCOMPLETE, check_protocol, local_path, opening_errors
from daskclust.storage.urls import redact

__all__ = ["WRITTEN", "check_target", "check_written", "new_group", "resolve", "written_attributes"]

#: Attribute of every group that daskclust writes: its kind and the names inside.
WRITTEN = "daskclust_written"
#: Files of a group itself, in versions 3 and 2.
#: Endings of files that nobody would look for a Zarr store behind.
_FOREIGN = frozenset(
    ".bmp .bil .bsq .cdf .csv .dat .gif .gpkg .h5 .hdf5 .hdr .html .img .jp2 .jpeg .jpg .json "
    ".nc .nc4 .npy .npz .parquet .pdf .pkl .png .shp .svg .tif .tiff .txt .vrt".split()
)
_METADATA = ("zarr.json", ".zgroup", ".zattrs", ".zmetadata")


def check_target(target: Any, *, kind: str, overwrite: bool) -> None:
    """Refuse a target that holds something, unless it may be replaced.

    Parameters
    ----------
    target : str, path or zarr store
    kind : str
        What would be written, such as ``"label map"``.
    overwrite : bool
        Replace what daskclust has written of the same kind; never anything else.

    Raises
    ------
    FileExistsError
    ValueError
        The target is a ``.zip`` file, which several tasks cannot write at once, its name is
        that of a file of another format, or it is at a web server.
    """
    check_protocol(target)
    path = _local_target(target)
    shown = redact(target)
    if path is not None:
        if path.suffix.lower() in _FOREIGN and not path.exists():
            tif = " or a GeoTIFF (.tif)" if "map" in kind else ""
            raise ValueError(
                f"{shown!r} ends like a file of another format; a {kind} is written as a Zarr "
                f"store, which is a folder (for example .zarr){tif}. Choose another name."
            )
        if path.suffix.lower() == ".zip":
            raise ValueError(
                f"{shown!r}: a zip store cannot be written by several tasks at once. "
                "Write a folder (for example .zarr) and zip it afterwards."
            )
        if not path.exists() or (path.is_dir() and not any(path.iterdir())):
            if path.exists() and not overwrite:
                raise _exists(shown)
            return
    else:
        store, inner = resolve(target)
        if sync(store.is_empty(inner)):
            return
    if not overwrite:
        raise _exists(shown)
    problem = _foreign(target, path, kind)
    if problem is not None:
        raise FileExistsError(
            f"{shown!r} {problem}; overwrite replaces a {kind} written by daskclust only. "
            "Choose another name, or remove it yourself."
        )


def _exists(shown: str) -> FileExistsError:
    return FileExistsError(
        f"{shown!r} exists already; choose another name or pass overwrite=True (--overwrite)."
    )


def written_attributes(target: Any) -> dict[str, Any] | None:
    """Return the attributes of a group that daskclust has written; None for anything else."""
    path = _local_target(target)
    try:
        if path is not None:
            group = zarr.open_group(str(path), mode="r", use_consolidated=False)
        else:
            store, inner = resolve(target)
            group = zarr.open_group(store, path=inner, mode="r", use_consolidated=False)
        attributes = group.attrs.asdict()
    except Exception:  # whatever it is, it is none of ours
        return None
    mark = attributes.get(WRITTEN)
    if not isinstance(mark, dict) or not isinstance(mark.get("members"), list):
        return None
    return attributes


def _foreign(target: Any, path: Path | None, kind: str) -> str | None:
    """Say why a target is not ours to replace; None if it is."""
    attributes = written_attributes(target)
    if attributes is None:
        return "was not written by daskclust"
    mark = attributes[WRITTEN]
    if mark.get("kind") != kind:
        return f"is a {mark.get('kind')}"
    if path is not None:
        names = {item.name for item in path.iterdir()}
    else:
        store, inner = resolve(target)
        names = set(sync(_names(store, inner)))
    added = sorted(names - {*_METADATA, *mark["members"]})
    return f"also holds {added[0]!r}, which daskclust did not write" if added else None


async def _names(store: Store, inner: str) -> list[str]:
    return [name.rstrip("/") async for name in store.list_dir(inner)]


def _local_target(target: Any) -> Path | None:
    # A subclass may do more than write files: it stays what it is.
    if isinstance(target, zarr.storage.LocalStore) and type(target) is not zarr.storage.LocalStore:
        return None
    return local_path(target)


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

    A local group is written into a hidden sibling folder and renamed at the
    end; after an exception the sibling is removed, after a crash it is left
    under its hidden name until the next write to this target.  Other stores cannot
    rename: there an attribute marks the group as incomplete until the end, and
    :func:`daskclust.storage.stores.open_store` refuses it; after an exception it is
    removed.

    Parameters
    ----------
    target : str, path or zarr store
    kind : str
        What is written, such as ``"label map"``.
    overwrite : bool, default=False
        Replace what daskclust has written of the same kind; never anything else.
    consolidated : bool, default=False
        Keep the metadata of all arrays at the group, too, where xarray looks for them.
    zarr_format : {2, 3}, default=3

    Yields
    ------
    zarr.Group
        Writable; valid inside the ``with`` block only.

    Raises
    ------
    FileExistsError
        The target exists and `overwrite` is False, or it is not ours to replace.
    ValueError
        The target is a ``.zip`` file, which several tasks cannot write at once.
    """
    check_target(target, kind=kind, overwrite=overwrite)
    path = _local_target(target)
    if path is None:
        store, inner = resolve(target)
        with _marked_group(
            store, inner, kind=kind, consolidated=consolidated, zarr_format=zarr_format
        ) as group:
            yield group
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = hidden_sibling(path, "partial")
    try:
        with naming(path):
            group = zarr.open_group(str(partial), mode="w-", zarr_format=zarr_format)
            yield group
            _sign(group, kind)
            if consolidated:
                _consolidate(group.store, group.path, zarr_format)
        # Checked again: writing may have taken hours.
        check_target(target, kind=kind, overwrite=overwrite)
        put_in_place(partial, path)
        remove_stale(path)
    finally:
        discard(partial)


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
    group.attrs[WRITTEN] = {"kind": kind, "members": sorted(group.keys())}


def check_written(array: zarr.Array) -> None:
    """Raise where chunks of an array that was written by tasks are not in the store.

    Empty chunks must have been written, too (``write_empty_chunks``).

    Raises
    ------
    StoreError

    Notes
    -----
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
