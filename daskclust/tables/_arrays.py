"""Vectors that are stored as an array, in ``.npy`` or Zarr: a table of one column of lists."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.abc.store import Store

from daskclust.core.engine import read_again
from daskclust.core.storage.npy import NpyFile, is_npy
from daskclust.core.storage.redact import redact
from daskclust.core.storage.stored_array import as_dask
from daskclust.core.storage.stores import arrays_of, decode_fill_value, open_store

#: Names that a message lists.
SHOWN = 30
#: Name of the column of an array, and number of bytes of a ``.npy`` file that a task reads.
_VECTORS, _PART = "embedding", 2**24
#: Names of the dimensions of images, which are not tables.
_OF_IMAGES = ({"y", "x"}, {"lat", "lon"}, {"latitude", "longitude"})


def holds_vectors(path: str) -> bool:
    """Return True for the path of an array in .npy or Zarr with fewer dimensions than a cube.

    >>> holds_vectors("s3://bucket/table.parquet")
    False
    """
    if "://" not in path and not os.path.exists(path):
        return False
    found = _stored(path)
    return isinstance(found, NpyFile | zarr.Array) and found.ndim < 3


def _stored(source: Any) -> Any:
    """Open an array or a group in ``.npy`` or Zarr; None for tables."""
    if not isinstance(source, str | os.PathLike):
        is_zarr = isinstance(source, zarr.Array | zarr.Group | Store | zarr.storage.StorePath)
    else:
        source = os.fspath(source)
        if "://" not in source and is_npy(source):
            if not os.path.exists(source):
                raise FileNotFoundError(
                    f"The file {source!r} does not exist; use the path of an existing one."
                )
            return NpyFile(Path(source).absolute())
        metadata = (Path(source) / name for name in ("zarr.json", ".zarray", ".zgroup"))
        is_zarr = ".zarr" in source if "://" in source else any(map(Path.exists, metadata))
    return open_store(source) if is_zarr else None


def stored_vectors(source: Any) -> Any:
    """Return the rows of a stored array as a lazy array; None for tables."""
    found = _stored(source)
    if found is None:
        return None
    shown = redact(repr(source))
    if isinstance(found, zarr.Group):
        names = sorted(arrays_of(found))
        raise ValueError(
            f"{shown} is a group of arrays ({', '.join(names[:SHOWN])}); expected an array. Use "
            "its path, STORE/NAME."
        )
    dtype = found.dtype
    if found.ndim != 2 or dtype.kind not in "fiu" or dtype.itemsize > 8:
        raise ValueError(
            f"{shown} has shape {found.shape} and dtype {dtype}; expected numbers of shape (n, p), "
            "one vector per row. Open an image (y, x, band) with open_cube."
        )
    if 0 in found.shape:
        raise ValueError(f"{shown} has shape {found.shape}; expected one row and value at least.")
    if isinstance(found, NpyFile):
        rows = max(1, _PART // (dtype.itemsize * found.shape[1]))
        meta = np.empty((0, 0), dtype)
        array = da.from_array(found, chunks=(rows, -1), asarray=False, meta=meta)
    else:
        _check_plain(found, shown)
        array = as_dask(found).rechunk({1: -1})
    return read_again(array if dtype.isnative else array.astype(dtype.newbyteorder("=")))


def _check_plain(array: zarr.Array, shown: str) -> None:
    """Raise ValueError for an image, and for values that have to be decoded."""
    attributes: dict[str, Any] = array.attrs.asdict()
    stated = getattr(array.metadata, "dimension_names", None) or attributes.get("_ARRAY_DIMENSIONS")
    names = [str(name).lower() for name in stated or ()]
    if any(image <= {*names} for image in _OF_IMAGES):
        raise ValueError(
            f"{shown} has the dimensions {', '.join(names)}: an image, not rows of vectors. Use "
            "open_cube."
        )
    plain = {"scale_factor": 1, "add_offset": 0}
    said = [name for name, value in plain.items() if attributes.get(name, value) != value]
    for name in ("_FillValue", "missing_value"):
        if name in attributes and not np.isnan(decode_fill_value(attributes[name])):
            said.append(name)
    if said:
        raise ValueError(
            f"{shown} states {said[0]} = {attributes[said[0]]!r}, which is not applied to vectors; "
            "expected decoded values. Decode them first, or remove the attribute."
        )


def as_lists(rows: NDArray[Any]) -> Any:
    import pandas
    import pyarrow

    flat = pyarrow.array(rows.ravel())
    lists = pyarrow.FixedSizeListArray.from_arrays(flat, rows.shape[1])
    return pandas.DataFrame({_VECTORS: pandas.arrays.ArrowExtensionArray(lists)})
