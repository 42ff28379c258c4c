"""Writing values of rows as an image, to Zarr or GeoTIFF."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np

from daskclust.cube import _blocks
from daskclust.cube._label_maps import LABEL_MAP, VALUE_MAP, write_label_map, write_value_map
from daskclust.cube._metadata import Names, as_names
from daskclust.cube._pixel_rows import PixelRows
from daskclust.cube._tif_maps import write_label_tif, write_value_tif
from daskclust.cube.formats.classes import check_codes
from daskclust.cube.formats.geotiff import is_geotiff
from daskclust.engine import compute
from daskclust.storage.seen import StoredArray
from daskclust.storage.stores import local_path
from daskclust.storage.urls import redact

__all__ = ["write_labels", "write_values"]


def write_labels(
    cube: PixelRows,
    labels: Any,
    store: Any,
    *,
    overwrite: bool,
    n_clusters: int | None,
    class_names: Names | None,
    class_colors: Mapping[int, str] | None,
    attributes: Mapping[str, Any] | None,
) -> Any:
    """Write labels as an image; see :meth:`daskclust.Cube.write_labels`."""
    largest = None
    if isinstance(labels, np.ndarray) and labels.dtype.kind in "iu":
        shown = np.ma.compressed(labels)
        largest = int(shown.max()) if len(shown) else -1
    # Where they are known before anything is computed.
    check_codes([-1 if largest is None else largest, *as_names(class_names), (n_clusters or 0) - 1])
    aligned = cube._align(labels)
    if is_geotiff(store):
        if aligned.dtype.kind not in "iu":
            raise ValueError(f"labels have dtype {aligned.dtype}; expected integers.")
        write_label_tif(
            cube._image(aligned, -1),
            cube.georeference,
            cube.dimension_names,
            store,
            kind=LABEL_MAP,
            overwrite=overwrite,
            n_clusters=n_clusters,
            class_names=class_names,
            class_colors=class_colors,
            attributes=attributes,
            check=cube._check_unchanged,
        )
        return Path(store)
    _check_target(cube, store)

    def write_blocks(target: StoredArray) -> list[int]:
        written = cube._per_block(
            _blocks.write_block,
            aligned,
            sizes=(1,) * cube.blocks.count,
            dtype=object,
            token="daskclust-write",
            target=target,
        )
        (found,) = compute("the writing of the label map", written)
        cube._check_unchanged()
        return sorted({int(code) for codes in found for code in codes})

    return write_label_map(
        cube.blocks,
        cube.georeference,
        cube.dimension_names,
        write_blocks,
        aligned.dtype,
        store,
        overwrite=overwrite,
        n_clusters=n_clusters,
        largest=largest,
        class_names=class_names,
        class_colors=class_colors,
        attributes=attributes,
    )


def write_values(
    cube: PixelRows,
    values: Any,
    store: Any,
    *,
    overwrite: bool,
    names: Sequence[str] | None,
    attributes: Mapping[str, Any] | None,
) -> Any:
    """Write numbers of the rows as an image; see :meth:`daskclust.Cube.write_map`."""
    if not isinstance(values, da.Array):
        # A mask stays: what it hides is NaN in the map, as in masked blocks.
        values = np.asanyarray(values)
    if values.ndim not in (1, 2) or values.dtype.kind not in "iufb":
        raise ValueError(
            f"values have shape {values.shape} and dtype {values.dtype}; expected numbers of "
            "shape (n_valid,) or (n_valid, m)."
        )
    columns = [values] if values.ndim == 1 else [values[:, k] for k in range(values.shape[1])]
    if names is not None and len(names) != len(columns):
        raise ValueError(f"Got {len(names)} names for {len(columns)} bands; expected one each.")
    dtype = np.float64 if values.dtype == np.float64 else np.float32
    images = [cube._image(column.astype(dtype), np.nan) for column in columns]
    image = images[0] if values.ndim == 1 else da.stack(images)
    if is_geotiff(store):
        write_value_tif(
            image,
            cube.georeference,
            cube.dimension_names,
            store,
            kind=VALUE_MAP,
            overwrite=overwrite,
            band_names=names,
            attributes=attributes,
            check=cube._check_unchanged,
        )
        return Path(store)
    _check_target(cube, store)
    return write_value_map(
        image,
        cube.georeference,
        cube.dimension_names,
        store,
        overwrite=overwrite,
        band_names=names,
        attributes=attributes,
        check=cube._check_unchanged,
    )


def _check_target(cube: PixelRows, store: Any) -> None:
    """Refuse to write over the cube itself."""
    array = cube.stored.array
    if array is None:
        return
    target, own = local_path(store), local_path(array.store)
    if own is None or target is None:
        same = store is array.store
    else:
        same = (own / array.path).resolve().is_relative_to(target.resolve())
    if same:
        raise ValueError(f"{redact(store)!r} holds the cube itself; write the label map elsewhere.")
