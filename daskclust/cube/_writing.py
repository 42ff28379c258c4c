"""Values of rows written as an image: a Zarr group by tasks, a GeoTIFF strip by strip."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import zarr
from numcodecs import Zlib
from numpy.typing import NDArray
from zarr.codecs import GzipCodec

from daskclust.colors import Legend
from daskclust.cube import _blocks
from daskclust.cube._georeference import (
    IDENTITY,
    Coordinate,
    PixelGrid,
    known_system,
    pixel_grid,
)
from daskclust.cube._metadata import Names, as_names, flags, label_dtype
from daskclust.cube.formats.geotiff import LABEL_MAP, VALUE_MAP, GeoTiff, map_at, write_cog
from daskclust.cube.formats.vector import check_codes
from daskclust.engine import compute
from daskclust.storage.outputs import Output, check_written, new_group
from daskclust.storage.seen import StoredArray, values_of
from daskclust.storage.stores import local_path, open_store
from daskclust.storage.urls import redact, redact_all

_LEVEL = 4
_DIMENSIONS = "_ARRAY_DIMENSIONS"


@contextmanager
def _new_map(
    output: Output,
    name: str,
    like: Any,
    *,
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
    dtype: np.dtype[Any],
    fill_value: float,
    said: Mapping[str, Any],
    attributes: Mapping[str, Any] | None,
) -> Iterator[zarr.Array]:
    """Create a Zarr group with an empty image, (y, x) or (band, y, x), that lies as `like` does.

    `said` are attributes of the image, `attributes` those of the group. The group is there when all
    blocks of the image have been written inside the context.
    """
    place, names = like.georeference, like.dimension_names
    coordinates = dict(place.coordinates)
    grid = pixel_grid(place, shape[-2:], names)
    a, b, left, d, e, top = grid.transform
    if not set(names) & coordinates.keys() and grid.transform != IDENTITY and b == d == 0:
        for axis, size, first, step in (
            (names[0], shape[-2], top, e),
            (names[1], shape[-1], left, a),
        ):
            centers = first + (np.arange(size) + 0.5) * step
            coordinates[axis] = Coordinate((axis,), centers)
    with new_group(
        output.place,
        kind=output.kind,
        overwrite=output.overwrite,
        consolidated=True,
        zarr_format=2,
    ) as group:
        group.attrs.update(place.group_attributes)
        for key, found in coordinates.items():
            _write_coordinate(group, key, found)
        image = _new_array(
            group,
            name,
            names if len(shape) == 2 else ("band", *names),
            {**said, **place.attributes, **_system(grid.crs)},
            shape=shape,
            chunks=chunks,
            dtype=dtype,
            fill_value=fill_value,
        )
        group.attrs.update(redact_all(attributes or {}))
        yield image
        check_written(image)


def _new_array(
    group: zarr.Group,
    name: str,
    dims: Sequence[str],
    attributes: Mapping[str, Any],
    **options: Any,
) -> zarr.Array:
    """Create an array that has its dimensions where its version of Zarr has them."""
    if group.metadata.zarr_format == 2:
        attributes = {_DIMENSIONS: list(dims), **attributes}
        options["compressors"] = Zlib(level=_LEVEL)
    else:
        options |= {"dimension_names": dims, "compressors": GzipCodec(level=_LEVEL)}
    # So that a block that is not there is a block that was not written.
    config: Any = {"write_empty_chunks": True}
    return group.create_array(name, config=config, attributes=dict(attributes), **options)


def _store(image: da.Array, target: zarr.Array) -> None:
    """Write a lazy image whose chunks are those of the target, by one task a block."""
    stored = da.store(image, StoredArray(target), lock=False, compute=False)  # type: ignore[arg-type]
    compute("the writing of the map", stored)


def _write_coordinate(group: zarr.Group, name: str, found: Coordinate) -> None:
    values = found.values
    numeric = values.dtype.kind in "iuf"
    copy = _new_array(
        group,
        name,
        found.dims,
        found.attributes,
        shape=values.shape,
        chunks=values.shape,
        dtype=values.dtype if numeric else np.int32,
        # A coordinate has no "no data": a position of 0 is one.
        fill_value=None,
    )
    copy[...] = values_of(values) if numeric else 0


def _system(crs: str | None) -> dict[str, Any]:
    """Return the coordinate system as GDAL writes it: the same in several ways."""
    if crs is None:
        return {}
    known = known_system(crs)
    if known is None:
        is_wkt = "[" in crs and "{" not in crs and find_spec("pyproj") is None
        return {"_CRS": {"wkt": crs}} if is_wkt else {}
    said: dict[str, Any] = {"wkt": known.to_wkt(), "projjson": json.loads(known.to_json())}
    code = known.to_epsg()
    if code is not None:
        said["url"] = f"http://www.opengis.net/def/crs/EPSG/0/{code}"
    return {"_CRS": said}


def write_labels(
    cube: Any,
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
    named = as_names(class_names)
    # Where they are known before anything is computed.
    check_codes([-1 if largest is None else largest, *named, (n_clusters or 0) - 1])
    aligned = cube._align(labels)
    if aligned.dtype.kind not in "iu":
        raise ValueError(f"labels have dtype {aligned.dtype}; expected integers.")
    output = map_at(store, LABEL_MAP, overwrite=overwrite)
    if isinstance(output, GeoTiff):
        output.check()
        return _write_label_tif(
            cube._image(aligned, -1),
            cube.pixel_grid,
            output,
            n_clusters,
            named,
            class_colors,
            attributes,
            cube._check_unchanged,
        )
    _check_target(cube, store)
    ends = [1 + code for code in (*named, largest) if code is not None]
    ends += [] if n_clusters is None else [n_clusters]
    with _new_map(
        output,
        "labels",
        cube,
        shape=cube.blocks.shape,
        chunks=cube.blocks.block,
        dtype=label_dtype(aligned.dtype, max(ends, default=None)),
        fill_value=-1,
        said={"long_name": "cluster"},
        attributes=attributes,
    ) as target:
        written = cube._per_block(
            _blocks.write_block,
            aligned,
            sizes=(1,) * cube.blocks.count,
            dtype=object,
            token="daskclust-write",
            target=StoredArray(target),
        )
        (found,) = compute("the writing of the label map", written)
        cube._check_unchanged()
        present = (int(code) for codes in found for code in codes)
        codes = sorted({*named, *range(n_clusters or 0), *present})
        target.attrs.update({"_FillValue": -1, **flags(codes, named, class_colors)})
    return open_store(store)


def write_map(
    label_map: Any, store: Any, *, overwrite: bool, attributes: Mapping[str, Any] | None = None
) -> Any:
    """Write a map all of whose codes have names; see :meth:`daskclust.cube.LabelMap.write`."""
    names, colors = label_map.names, label_map.colors
    check_codes(names)
    output = map_at(store, LABEL_MAP, overwrite=overwrite)
    if isinstance(output, GeoTiff):
        output.check()
        return _write_label_tif(
            label_map.values, label_map.grid, output, None, names, colors, attributes, None
        )
    chunks = tuple(max(sizes) for sizes in label_map.values.chunks)
    with _new_map(
        output,
        "labels",
        label_map,
        shape=label_map.shape,
        chunks=chunks,
        dtype=label_dtype(label_map.values.dtype, 1 + max(names)),
        fill_value=-1,
        said={"_FillValue": -1, **flags(names, names, colors)},
        attributes=attributes,
    ) as target:
        _store(label_map.values.rechunk(chunks), target)
    return open_store(store)


def _write_label_tif(
    image: da.Array,
    grid: PixelGrid,
    output: GeoTiff,
    n_clusters: int | None,
    named: dict[int, str],
    class_colors: Mapping[int, str] | None,
    attributes: Mapping[str, Any] | None,
    check: Callable[[], None] | None,
) -> Path:
    """Write labels (y, x), -1 for none, as 8 or 16 bits with a color table, else as 32.

    Without `n_clusters`, up to 65 535 are written.
    """
    ends = [1 + code for code in named] + ([] if n_clusters is None else [n_clusters])
    # One value more than labels, for none.
    room = max(ends, default=2**8)
    dtype: np.dtype[Any] = np.dtype(
        np.uint8 if room < 2**8 else np.uint16 if room < 2**16 else np.int32
    )
    limit = int(np.iinfo(dtype).max) - 1
    nodata = -1 if dtype.kind == "i" else limit + 1
    found: set[int] = {*named, *range(n_clusters or 0)}

    def convert(labels: NDArray[Any]) -> NDArray[Any]:
        codes = np.unique(labels)
        if len(codes) and (codes[0] < -1 or codes[-1] > limit):
            raise ValueError(
                f"Labels run from {codes[0]} to {codes[-1]}; expected -1 to {limit} ({dtype}). "
                "For more clusters pass n_clusters= to write_labels."
            )
        found.update(codes[codes >= 0].tolist())
        return np.where(labels < 0, nodata, labels).astype(dtype)

    def legend() -> Legend:
        return Legend.of(sorted(found), named, class_colors)

    return write_cog(
        output,
        _strips(image, convert),
        grid,
        dtype=dtype,
        nodata=nodata,
        legend=legend,
        attributes=attributes,
        check=check,
    )


def _strips(
    image: da.Array, convert: Callable[[NDArray[Any]], NDArray[Any]]
) -> Iterator[tuple[slice, slice, NDArray[Any]]]:
    """Compute an image (y, x) or (m, y, x) by rows of blocks: what the client holds at once."""
    ends = np.concatenate([[0], np.cumsum(image.chunks[-2])]).tolist()
    columns = slice(0, image.shape[-1])
    for start, stop in pairwise(ends):
        (strip,) = compute("the writing of the map", image[..., start:stop, :])
        yield slice(start, stop), columns, convert(strip)


def write_values(
    cube: Any,
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
    output = map_at(store, VALUE_MAP, overwrite=overwrite)
    if isinstance(output, GeoTiff):
        output.check()
        return write_cog(
            output,
            _strips(image, lambda values: values),
            cube.pixel_grid,
            dtype=dtype,
            count=len(columns),
            nodata=float("nan"),
            band_names=names,
            attributes=attributes,
            check=cube._check_unchanged,
        )
    _check_target(cube, store)
    with _new_map(
        output,
        "values",
        cube,
        shape=image.shape,
        chunks=tuple(max(sizes) for sizes in image.chunks),
        dtype=image.dtype,
        fill_value=np.nan,
        said={} if names is None else {"band_names": list(names)},
        attributes=attributes,
    ) as target:
        _store(image, target)
        cube._check_unchanged()
    return open_store(store)


def _check_target(cube: Any, store: Any) -> None:
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
