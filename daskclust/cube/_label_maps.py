"""Label maps: a Zarr group that is whole or absent, or an xarray object."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dask.array as da
import numpy as np
import zarr

from daskclust.cube._blocks import BlockGrid
from daskclust.cube._georeference import Georeference
from daskclust.cube._metadata import flags, label_dtype
from daskclust.storage.stores import new_group, open_store

__all__ = ["as_data_array", "write_label_map"]


def write_label_map(
    grid: BlockGrid,
    place: Georeference,
    names: tuple[str, str],
    write_blocks: Callable[[zarr.Array], int],
    dtype: np.dtype[Any],
    store: Any,
    *,
    overwrite: bool,
    n_clusters: int | None,
    class_names: Sequence[str] | None,
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
    write_blocks : callable(target) -> int
        Writes every block, and returns the largest label.
    dtype : numpy.dtype
        Of the labels.
    store, overwrite, n_clusters, class_names, attributes
        As in :meth:`daskclust.Cube.write_labels`.
    """
    if dtype.kind not in "iu":
        raise ValueError(f"labels have dtype {dtype}; expected integers.")
    if n_clusters is None and class_names is not None:
        n_clusters = len(class_names)
    with new_group(store, overwrite=overwrite) as group:
        target = group.create_array(
            "labels",
            shape=grid.shape,
            chunks=grid.block,
            dtype=label_dtype(dtype, n_clusters),
            fill_value=-1,
            dimension_names=names,
            attributes={"long_name": "cluster", **place.attributes},
        )
        group.attrs.update(attributes or {})
        place.write(group)
        found = max(write_blocks(target) + 1, n_clusters or 0)
        target.attrs.update({"_FillValue": -1, **flags(found, class_names)})
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
    class_names: Sequence[str] | None,
) -> Any:
    """Wrap a label map with the cube's coordinates; see :meth:`daskclust.Cube.to_xarray`."""
    try:
        import xarray
    except ImportError as error:
        raise ImportError(
            "xarray is not installed. Use: pip install 'daskclust[xarray]', or to_map."
        ) from error
    coordinates = {
        key: (found.dims, np.asarray(found.values[...]), dict(found.attributes))
        for key, found in place.coordinates.items()
    }
    attributes = {"long_name": "cluster", **place.group_attributes, **place.attributes}
    # Where xarray wants it: in the attributes it would be refused when written.
    encoding = {"_FillValue": fill_value}
    mapping = attributes.pop("grid_mapping", None)
    if mapping is not None:
        encoding["grid_mapping"] = mapping
    if class_names is not None:
        attributes.update(flags(len(class_names), class_names))
    out = xarray.DataArray(image, coordinates, names, name, attributes)
    out.encoding.update(encoding)
    return out
