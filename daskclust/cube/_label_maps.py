"""Label maps: a Zarr group that is whole or absent, or an xarray object."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dask.array as da
import numpy as np
import zarr

from daskclust.cube._georeference import Georeference
from daskclust.cube._metadata import Names, as_names, flags, label_dtype
from daskclust.cube._zarr_images import new_image
from daskclust.cube.layout import BlockGrid
from daskclust.engine import compute
from daskclust.storage.seen import StoredArray, values_of
from daskclust.storage.stores import open_store
from daskclust.storage.targets import check_written, new_group
from daskclust.storage.urls import redact_all

__all__ = ["LABEL_MAP", "VALUE_MAP", "as_data_array", "write_label_map", "write_value_map"]

#: What the groups are that are written here.
LABEL_MAP = "label map"
VALUE_MAP = "map of values"


def write_label_map(
    grid: BlockGrid,
    place: Georeference,
    names: tuple[str, str],
    write_blocks: Callable[[StoredArray], Sequence[int]],
    dtype: np.dtype[Any],
    store: Any,
    *,
    overwrite: bool,
    n_clusters: int | None,
    largest: int | None,
    class_names: Names | None,
    class_colors: Mapping[int, str] | None,
    attributes: Mapping[str, Any] | None,
) -> zarr.Group:
    """Create the group, let `write_blocks` fill its array, and give both their attributes.

    Parameters
    ----------
    grid : BlockGrid
        Whose blocks become the chunks.
    place : Georeference
    names : tuple of str
        Of y and x.
    write_blocks : callable(target) -> sequence of int
        Writes every block, and returns the labels that occur, ascending.
    dtype : numpy.dtype
        Of the labels.
    largest : int or None
        Largest label, where known.
    store, overwrite, n_clusters, class_names, class_colors, attributes
        As in :meth:`daskclust.Cube.write_labels`.
    """
    if dtype.kind not in "iu":
        raise ValueError(f"labels have dtype {dtype}; expected integers.")
    named = as_names(class_names)
    ends = [1 + code for code in (*named, largest) if code is not None]
    known = max(ends, default=None) if n_clusters is None else max([*ends, n_clusters])
    with new_group(
        store, kind=LABEL_MAP, overwrite=overwrite, consolidated=True, zarr_format=2
    ) as group:
        target = new_image(
            group,
            "labels",
            place,
            names,
            shape=grid.shape,
            chunks=grid.block,
            dtype=label_dtype(dtype, known),
            fill_value=-1,
            attributes={"long_name": "cluster"},
        )
        group.attrs.update(redact_all(attributes or {}))
        found = write_blocks(StoredArray(target))
        check_written(target)
        codes = sorted({*named, *range(n_clusters or 0), *found})
        target.attrs.update({"_FillValue": -1, **flags(codes, named, class_colors)})
    written = open_store(store)
    assert isinstance(written, zarr.Group)
    return written


def write_value_map(
    image: da.Array,
    place: Georeference,
    names: tuple[str, str],
    store: Any,
    *,
    overwrite: bool,
    band_names: Sequence[str] | None,
    attributes: Mapping[str, Any] | None,
    check: Callable[[], None],
) -> zarr.Group:
    """Write numbers (y, x) or (band, y, x), NaN for none, one task a chunk."""
    with new_group(
        store, kind=VALUE_MAP, overwrite=overwrite, consolidated=True, zarr_format=2
    ) as group:
        target = new_image(
            group,
            "values",
            place,
            names,
            shape=image.shape,
            chunks=tuple(max(sizes) for sizes in image.chunks),
            dtype=image.dtype,
            fill_value=np.nan,
            attributes={},
        )
        if band_names is not None:
            target.attrs["band_names"] = [str(name) for name in band_names]
        group.attrs.update(redact_all(attributes or {}))
        stored = da.store(
            image,
            StoredArray(target),  # type: ignore[arg-type]
            lock=False,
            compute=False,
        )
        compute("the writing of the map", stored)
        check_written(target)
        check()
    written = open_store(store)
    assert isinstance(written, zarr.Group)
    return written


def as_data_array(
    image: da.Array,
    place: Georeference,
    names: tuple[str, str],
    *,
    fill_value: float,
    name: str,
    class_names: Names | None,
    class_colors: Mapping[int, str] | None = None,
) -> Any:
    """Wrap a label map with the cube's coordinates; see :meth:`daskclust.Cube.to_xarray`."""
    try:
        import xarray
    except ImportError as error:
        raise ImportError(
            "xarray is not installed. Use: pip install 'daskclust[xarray]', or to_map."
        ) from error
    coordinates = {
        key: (found.dims, values_of(found.values), dict(found.attributes))
        for key, found in place.coordinates.items()
    }
    attributes = {"long_name": "cluster", **place.group_attributes, **place.attributes}
    # Where xarray wants it: in the attributes it would be refused when written.
    encoding = {"_FillValue": fill_value}
    mapping = attributes.pop("grid_mapping", None)
    if mapping is not None:
        encoding["grid_mapping"] = mapping
    if class_names is not None:
        attributes.update(flags(as_names(class_names), class_names, class_colors))
    out = xarray.DataArray(image, coordinates, names, name, attributes)
    out.encoding.update(encoding)
    return out
