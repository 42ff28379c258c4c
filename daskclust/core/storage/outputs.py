"""Outputs: early checks of locations, atomic writes, and marks of files that daskclust wrote."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import zarr
from zarr.abc.store import Store
from zarr.core.sync import sync

from daskclust.core.storage.atomic_write import new_path, remove_stale, reserved
from daskclust.core.storage.redact import redact
from daskclust.core.storage.stored_array import stored_chunks
from daskclust.core.storage.stores import (
    INCOMPLETE,
    at_url,
    check_protocol,
    forget_listings,
    holds_version_2,
    local_path,
    opening_errors,
)
from daskclust.exceptions import StoreError

#: Attribute of an output with a description of the job that wrote it.
JOB = "daskclust_job"


def json_text(value: Any, **options: Any) -> str:
    """Return JSON that all readers accept: NaN as null, and infinities as strings, as in Zarr.

    >>> json_text({"nodata": [float("nan"), 1.5, float("-inf")]})
    '{"nodata": [null, 1.5, "-Infinity"]}'
    """
    return json.dumps(finite(value), allow_nan=False, **options)


def finite(value: Any) -> Any:
    """Return attributes, or other values, in the form that :func:`json_text` writes."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    return [*map(finite, value)] if isinstance(value, list | tuple) else value


class Written(NamedTuple):
    """Description that is stored in an output; `members` are the names in a folder or store."""

    kind: str
    attributes: Mapping[str, Any] = {}
    members: Collection[str] = ()

    @property
    def job(self) -> dict[str, Any]:
        job = self.attributes.get(JOB)
        return job if isinstance(job, dict) else {}


class Output:
    """Output that is written atomically.

    With `overwrite`, it replaces an output of daskclust of the same kind, such as ``"label map"``.
    Outputs of other programs are never replaced.
    """

    #: True if an empty folder may be replaced.
    takes_empty = False

    def __init__(self, location: Any, kind: str, *, overwrite: bool = False) -> None:
        #: Path, URL or store.
        self.location, self.kind, self.overwrite = location, kind, overwrite
        #: Local path; None for URLs and stores.
        self.path: Path | None = local_path(location)

    def check_location(self) -> None:
        """Raise an error if this kind of output cannot be written to this path, URL or store."""
        check_protocol(self.location)

    def exists(self) -> bool:
        return self.path is not None and self.path.exists()

    def written(self) -> Written | None:
        """Return the description of the existing output, or None if daskclust did not write it."""
        raise NotImplementedError

    def names(self) -> set[str]:
        if self.path is None or not self.path.is_dir():
            return set()
        return {item.name for item in self.path.iterdir()}

    def is_of(self, job: str) -> bool:
        """Return True if the existing output was written by the job with this mark."""
        existing = self.written()
        return existing is not None and existing.job.get("mark") == job

    def problem(self) -> str | None:
        """Return the reason why the existing output must not be replaced, or None."""
        names = self.names()
        if not names and self.takes_empty and self.path is not None and self.path.is_dir():
            return None
        existing = self.written()
        if existing is None:
            content = f" (it contains {min(names)!r})" if names else ""
            return f"was not written by daskclust{content}"
        if existing.kind != self.kind:
            return f"is a {existing.kind}"
        added = sorted(names.difference(existing.members))
        return f"also contains {added[0]!r}, which daskclust did not write" if added else None

    def check(self) -> None:
        self.check_location()
        self.check_content()

    def check_content(self) -> None:
        if not self.exists():
            return
        if not self.overwrite:
            raise exists_already(self.location)
        problem = self.problem()
        if problem is not None:
            raise FileExistsError(
                f"{redact(self.location)!r} {problem}; overwrite replaces only a {self.kind} "
                "written by daskclust. Use another name, or remove it yourself."
            )

    def check_now(self) -> None:
        """Run the checks; called before writing and again before the rename."""
        self.check()

    @contextmanager
    def new(self) -> Iterator[Path]:
        """Yield a :func:`new_path`; the caller must create a folder."""
        self.check_now()
        assert self.path is not None
        # A GeoTIFF has its class names in a second file, so two writers could mix their files.
        with reserved([self.path], again=True):
            # The check is repeated before the rename, because writing may take hours.
            with new_path(self.path, check=self.check_now) as partial:
                yield partial
            remove_stale(self.path)


def lock_outputs(targets: Iterable[Any]) -> AbstractContextManager[None]:
    """Lock local paths for this process, so that another command fails before it computes."""
    paths = (local_path(target) for target in targets if target is not None)
    return reserved([path for path in paths if path is not None])


def exists_already(location: Any) -> FileExistsError:
    return FileExistsError(
        f"{redact(location)!r} exists already. Use another name, or overwrite=True (--overwrite)."
    )


#: Attribute of groups that daskclust writes: the kind and the names of the members.
_WRITTEN = "daskclust_written"
#: Suffixes of other file formats.
_FOREIGN = frozenset(
    ".bmp .bil .bsq .cdf .csv .dat .gif .gpkg .h5 .hdf5 .hdr .html .img .jp2 .jpeg .jpg .json "
    ".nc .nc4 .npy .npz .parquet .pdf .pkl .png .shp .svg .tif .tiff .txt .vrt".split()
)
#: Metadata files of a group, in versions 3 and 2.
_METADATA = ("zarr.json", ".zgroup", ".zattrs", ".zmetadata")


class Group(Output):
    takes_empty = True

    def __init__(self, location: Any, kind: str, *, overwrite: bool = False) -> None:
        super().__init__(location, kind, overwrite=overwrite)
        if (
            isinstance(location, zarr.storage.LocalStore)
            and type(location) is not zarr.storage.LocalStore
        ):
            # A subclass may do more than write files, so it is used as a store and not as a path.
            self.path = None

    def check_location(self) -> None:
        """Raise ValueError for ``.zip`` files (no parallel writes) and names of other formats."""
        super().check_location()
        path, shown = self.path, redact(self.location)
        if path is None:
            return
        if path.suffix.lower() in _FOREIGN and not path.exists():
            tif = " or a GeoTIFF (.tif)" if "map" in self.kind else ""
            raise ValueError(
                f"{shown!r} must not have the suffix of another file format: a {self.kind} is "
                f"written as a Zarr store, which is a folder (for example .zarr){tif}. Use another "
                "name."
            )
        if path.suffix.lower() == ".zip":
            raise ValueError(
                f"{shown!r} must be a folder, because tasks cannot write a zip store in parallel. "
                "Write a folder (for example .zarr) and zip it afterwards."
            )

    def check_content(self) -> None:
        """Check the existing content; an incomplete group may always be replaced."""
        # A complete group of Zarr version 2 has both files.  A crash can leave one of the two.
        is_incomplete = self.path is None and self.names() in ({".zgroup"}, {".zattrs"})
        if not is_incomplete and INCOMPLETE not in self._attributes():
            super().check_content()

    def exists(self) -> bool:
        return super().exists() if self.path is not None else bool(self.names())

    def names(self) -> set[str]:
        if self.path is not None:
            return super().names()
        return set(sync(_names(*resolve(self.location))))

    def _attributes(self) -> dict[str, Any]:
        """Return the attributes of the existing group, or {} if it is not a group."""
        try:
            store, inner = resolve(self.location) if self.path is None else (str(self.path), "")
            group = zarr.open_group(store, path=inner, mode="r", use_consolidated=False)
            return group.attrs.asdict()
        except Exception:  # a readable group is missing
            return {}

    def written(self) -> Written | None:
        attributes = self._attributes()
        mark = None if INCOMPLETE in attributes else attributes.get(_WRITTEN)
        if not isinstance(mark, dict) or not isinstance(mark.get("members"), list):
            return None
        return Written(str(mark.get("kind")), attributes, (*_METADATA, *mark["members"]))


async def _names(store: Store, inner: str) -> list[str]:
    forget_listings(store)
    return sorted([name.rstrip("/") async for name in store.list_dir(inner)])


def resolve(target: Any) -> tuple[Store, str]:
    """Return the store of a target that is not a local path, and the path inside it."""
    if isinstance(target, Store):
        return target, ""
    if isinstance(target, zarr.storage.StorePath):
        return target.store, target.path
    if isinstance(target, dict):
        return zarr.storage.MemoryStore(target), ""
    if isinstance(target, str):
        with opening_errors(target):
            return at_url(target), ""
    raise TypeError(f"store must be a path, a URL or a zarr store, got {type(target).__name__}.")


@contextmanager
def new_group(
    target: Any,
    *,
    kind: str,
    overwrite: bool = False,
    consolidated: bool = False,
    zarr_format: Literal[2, 3] = 3,
) -> Iterator[zarr.Group]:
    """Create a Zarr group that is either complete or missing.

    A local group is written as in :func:`new_path`.  Other stores cannot rename, so an attribute
    marks the group as incomplete until the end, and
    :func:`~daskclust.core.storage.stores.open_store` rejects such a group.  After an exception the
    group is removed.  After a crash the next writer replaces the group without `overwrite`.  Two
    writers of one group at the same time are not supported: their chunks may mix.  A store that
    supports only Zarr version 3 gets version 3, without consolidated metadata.
    """
    output = Group(target, kind, overwrite=overwrite)
    if output.path is None:
        output.check()
        store, inner = resolve(target)
        if zarr_format == 2 and not holds_version_2(store, inner):
            zarr_format, consolidated = 3, False
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
    try:
        _remove_all(store, inner)
        group = zarr.create_group(
            store, path=inner, zarr_format=zarr_format, attributes={INCOMPLETE: True}
        )
        yield group
        _sign(group, kind)
        del group.attrs[INCOMPLETE]
        if consolidated:
            _consolidate(store, inner, zarr_format)
    except BaseException:
        _remove_all(store, inner)
        raise


def _remove_all(store: Store, inner: str) -> None:
    """Remove a group; mark it as incomplete first, in case of a crash."""
    names = sync(_names(store, inner))
    if ".zmetadata" in names:
        # Consolidated metadata contain the old attributes, without the mark.
        sync(store.delete(f"{inner}/.zmetadata".lstrip("/")))
    if not {"zarr.json", ".zgroup"}.isdisjoint(names):
        group = zarr.open_group(store, path=inner, mode="r+", use_consolidated=False)
        group.attrs[INCOMPLETE] = True
    names = sync(_names(store, inner))
    for name in names:
        if name not in _METADATA:
            sync(store.delete_dir(f"{inner}/{name}".lstrip("/")))
    for name in _METADATA:
        if name in names:
            sync(store.delete(f"{inner}/{name}".lstrip("/")))


def _consolidate(store: Store, inner: str, zarr_format: Literal[2, 3]) -> None:
    with warnings.catch_warnings():
        # Consolidated metadata are optional in Zarr version 3; other readers ignore them.
        warnings.filterwarnings("ignore", message="Consolidated metadata")
        zarr.consolidate_metadata(store, path=inner, zarr_format=zarr_format)


def _sign(group: zarr.Group, kind: str) -> None:
    names = sync(_names(group.store, group.path))
    members = [name for name in names if name not in _METADATA]
    group.attrs[_WRITTEN] = {"kind": kind, "members": members}


def check_written(array: zarr.Array) -> None:
    """List the store, and raise StoreError if chunks that tasks wrote are missing."""
    forget_listings(array.store)
    written = array.nchunks_initialized
    if written == array.nchunks:
        return
    raise StoreError(
        f"{array.nchunks - written} of {array.nchunks} blocks written by workers are missing in "
        f"{redact(array.store)!r}{_examples(array)}. Every worker must reach the same store "
        "under the same path; a store in memory reaches only threads of this process. The "
        "unfinished output was removed."
    )


def _examples(array: zarr.Array) -> str:
    stored = stored_chunks(array)
    if stored is None or stored.all():
        return ""
    indices = zip(*np.unravel_index(np.flatnonzero(~stored)[:3], array.cdata_shape), strict=True)
    names = (array.metadata.encode_chunk_key(tuple(map(int, index))) for index in indices)
    return f" (such as {', '.join(names)})"
