"""Arrays of vectors in ``.npy`` or Zarr, as tables with one column of lists."""

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

#: Maximum number of names that a message lists.
SHOWN = 30
#: Name of the column of an array, and number of bytes of a ``.npy`` file that a task reads.
_VECTORS, _TASK_BYTES = "embedding", 2**24
#: Names of dimensions of images, which are not tables.
_IMAGE_DIMENSIONS = ({"y", "x"}, {"lat", "lon"}, {"latitude", "longitude"})


def holds_vectors(path: str) -> bool:
    """Return True for the path of an array in .npy or Zarr that is not a cube.

    >>> holds_vectors("s3://bucket/table.parquet")
    False
    """
    if "://" not in path and not os.path.exists(path):
        return False
    stored = _stored(path)
    return isinstance(stored, NpyFile | zarr.Array) and stored.ndim < 3


def _stored(source: Any) -> Any:
    """Open an array or a group in ``.npy`` or Zarr; return None for tables."""
    if not isinstance(source, str | os.PathLike):
        is_zarr = isinstance(source, zarr.Array | zarr.Group | Store | zarr.storage.StorePath)
    else:
        source = os.fspath(source)
        if "://" not in source and is_npy(source):
            if not os.path.exists(source):
                raise FileNotFoundError(
                    f"The file {source!r} does not exist. Use the path of an existing file."
                )
            return NpyFile(Path(source).absolute())
        metadata = (Path(source) / name for name in ("zarr.json", ".zarray", ".zgroup"))
        is_zarr = ".zarr" in source if "://" in source else any(map(Path.exists, metadata))
    return open_store(source) if is_zarr else None


def stored_vectors(source: Any) -> Any:
    """Return the rows of a stored array as a lazy array; None for tables."""
    stored = _stored(source)
    if stored is None:
        return None
    shown = redact(repr(source))
    if isinstance(stored, zarr.Group):
        names = sorted(arrays_of(stored))
        raise ValueError(
            f"{shown} must be an array, got a group of arrays ({', '.join(names[:SHOWN])}). Use "
            "the path of an array, STORE/NAME."
        )
    dtype = stored.dtype
    if stored.ndim != 2 or dtype.kind not in "fiu" or dtype.itemsize > 8:
        raise ValueError(
            f"{shown} must have numbers of shape (n, p), one vector per row, got shape "
            f"{stored.shape} and dtype {dtype}. Open an image (y, x, band) with open_cube."
        )
    if 0 in stored.shape:
        raise ValueError(
            f"{shown} must have at least one row and one value, got shape {stored.shape}."
        )
    if isinstance(stored, NpyFile):
        rows = max(1, _TASK_BYTES // (dtype.itemsize * stored.shape[1]))
        meta = np.empty((0, 0), dtype)
        array = da.from_array(stored, chunks=(rows, -1), asarray=False, meta=meta)
    else:
        _check_plain(stored, shown)
        array = as_dask(stored).rechunk({1: -1})
    return read_again(array if dtype.isnative else array.astype(dtype.newbyteorder("=")))


def _check_plain(array: zarr.Array, shown: str) -> None:
    """Raise ValueError for an image, and for values that must be decoded."""
    attributes: dict[str, Any] = array.attrs.asdict()
    dimensions = getattr(array.metadata, "dimension_names", None) or attributes.get(
        "_ARRAY_DIMENSIONS"
    )
    names = [str(name).lower() for name in dimensions or ()]
    if any(image <= {*names} for image in _IMAGE_DIMENSIONS):
        raise ValueError(
            f"{shown} must contain rows of vectors, got an image with the dimensions "
            f"{', '.join(names)}. Use open_cube."
        )
    defaults = {"scale_factor": 1, "add_offset": 0}
    encodings = [name for name, value in defaults.items() if attributes.get(name, value) != value]
    for name in ("_FillValue", "missing_value"):
        if name in attributes and not np.isnan(decode_fill_value(attributes[name])):
            encodings.append(name)
    if encodings:
        raise ValueError(
            f"{shown} must contain decoded values, got the attribute {encodings[0]} = "
            f"{attributes[encodings[0]]!r}. Decode the values, or remove the attribute."
        )


def as_lists(rows: NDArray[Any]) -> Any:
    import pandas
    import pyarrow

    flat = pyarrow.array(rows.ravel())
    lists = pyarrow.FixedSizeListArray.from_arrays(flat, rows.shape[1])
    return pandas.DataFrame({_VECTORS: pandas.arrays.ArrowExtensionArray(lists)})
