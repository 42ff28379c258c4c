"""Images written as maps: a Zarr group by tasks, a GeoTIFF strip by strip."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain, islice, pairwise
from typing import Any

import dask.array as da
import numpy as np
import zarr
from numcodecs import Zlib
from numpy.typing import NDArray
from zarr.codecs import GzipCodec

from daskclust.colors import Legend
from daskclust.core.array_types import Ints
from daskclust.core.engine import compute, seen_alike, start_on_workers
from daskclust.core.storage.outputs import Output, check_written, finite, new_group
from daskclust.core.storage.redact import redact, redact_all
from daskclust.core.storage.stored_array import StoredArray, values_of
from daskclust.core.storage.stores import local_path, open_store
from daskclust.core.warn import warn
from daskclust.exceptions import DaskclustWarning
from daskclust.scenes._coordinates import Axis, agrees
from daskclust.scenes._georeference import (
    IDENTITY,
    Coordinate,
    Georeference,
    PixelGrid,
    pixel_grid,
)
from daskclust.scenes._metadata import NODATA_ATTRIBUTES, flags, label_dtype
from daskclust.scenes.areas import indices_of_codes
from daskclust.scenes.coordinate_systems import known_system
from daskclust.scenes.formats.geotiff import (
    LABEL_MAP,
    VALUE_MAP,
    GeoTiff,
    environment,
    map_at,
    write_cog,
)
from daskclust.scenes.formats.vector import check_codes

_LEVEL = 4
_DIMENSIONS = "_ARRAY_DIMENSIONS"


@dataclass(frozen=True)
class MapWriter:
    """A map to be written by :func:`write_together`.

    The generator `steps` first yields lazy arrays, the requests.  Then it receives their values, in
    order, and returns the map.  With `one_by_one`, the client receives one value at a time.
    """

    steps: Generator[Any, NDArray[Any], Any]
    one_by_one: bool


def write_together(*writers: MapWriter) -> list[Any]:
    """Write several maps in one pass over the data.

    Parameters
    ----------
    *writers : MapWriter
        Results of :meth:`daskclust.Cube.write_labels` and :meth:`daskclust.Cube.write_map` with
        ``compute=False``.

    Returns
    -------
    maps : list of (zarr.Group or Path)
        Results of the methods, in the order of the writers.

    Raises
    ------
    FileExistsError, StoreError, ValueError
        Errors of the methods, and an error for a writer that was used before.  Incomplete maps do
        not get their names.

    Notes
    -----
    Blocks are read once for the values of all maps, and once for their masks.  Lazy values that
    share an evaluation, such as ``model.predict(cube)`` and ``model.margin(cube)`` of
    :class:`daskclust.LabelSpreading`, are evaluated once.  If one of the maps is a GeoTIFF, the
    client fetches one line of blocks at a time.  Later lines stay on the workers of a cluster, up
    to 16 bytes per pixel and map, and Dask spills them; without a cluster they are computed later.

    Examples
    --------
    >>> import numpy as np, zarr
    >>> from daskclust import open_cube
    >>> from daskclust.scenes import write_together
    >>> cube = open_cube(zarr.ones(shape=(2, 2, 1)), dims=("y", "x", "band"))
    >>> stores = zarr.storage.MemoryStore(), zarr.storage.MemoryStore()
    >>> labels, margin = write_together(
    ...     cube.write_labels(np.array([0, 1, 1, 0]), stores[0], compute=False),
    ...     cube.write_map(np.array([0.1, 0.2, 0.3, 0.4]), stores[1], compute=False),
    ... )
    >>> labels["labels"][:].tolist(), margin["values"].shape
    ([[0, 1], [1, 0]], (2, 2))
    """
    results: list[Any] = [None] * len(writers)
    strips = any(writer.one_by_one for writer in writers)
    with ExitStack() as stack:
        if strips:
            stack.enter_context(environment())
        waiting = []
        for writer in writers:
            stack.callback(writer.steps.close)
            lazy = next(writer.steps, None)
            if lazy is None:
                raise ValueError(
                    "Each writer must be used once, got one whose map is written. Call "
                    "write_labels or write_map again."
                )
            waiting.append(list(lazy))
        if strips:
            # Compute one graph, and fetch its results line by line.
            started = iter(start_on_workers(*chain(*waiting)))
            waiting = [list(islice(started, len(requests))) for requests in waiting]
        while any(waiting):
            requests = []
            for number, of_map in enumerate(waiting):
                count = 1 if strips else len(of_map)
                requests += [(number, request) for request in of_map[:count]]
                del of_map[:count]
            values = compute("the maps", *(request for _, request in requests))
            for (number, _), value in zip(requests, values, strict=True):
                try:
                    writers[number].steps.send(value)
                except StopIteration as stop:
                    results[number] = stop.value
    return results


def label_writer(
    image: da.Array,
    position: Georeference,
    store: Any,
    *,
    dtype: np.dtype[Any],
    names: Mapping[int, str],
    colors: Mapping[int, str] | None = None,
    largest: int | None = None,
    n_clusters: int | None = None,
    overwrite: bool = False,
    attributes: Mapping[str, Any] | None = None,
    check: Callable[[], None] | None = None,
) -> MapWriter:
    """Return the writer of an image of labels (-1: no label) as a Zarr group or a GeoTIFF.

    `dtype` is the type of the labels, and `largest` the largest label if it is known. `check` is
    called before the map gets its name; it raises an error if the map must not be written.
    """
    check_codes([-1 if largest is None else largest, *names, (n_clusters or 0) - 1])
    output = map_at(store, LABEL_MAP, overwrite=overwrite)
    limits = [1 + code for code in names] + ([] if n_clusters is None else [n_clusters])
    codes_so_far = {*names, *range(n_clusters or 0)}

    def legend() -> Legend:
        return Legend.of(sorted(codes_so_far), dict(names), colors)

    if isinstance(output, GeoTiff):
        # One more value than labels stands for no label.
        small = np.min_scalar_type(max(limits, default=2**8))
        kind = small if small.itemsize <= 2 else np.dtype(np.int32)
        limit = int(np.iinfo(kind).max) - 1
        nodata = -1 if kind.kind == "i" else limit + 1

        def convert(labels: NDArray[Any]) -> NDArray[Any]:
            codes_so_far.update(_labels_in(labels, limit, kind))
            return np.where(labels < 0, nodata, labels).astype(kind)

        return _geotiff_writer(
            image,
            position,
            output,
            convert,
            dtype=kind,
            nodata=nodata,
            legend=legend,
            attributes=attributes,
            check=check,
        )
    limits += [] if largest is None else [1 + largest]
    return _zarr_writer(
        image,
        position,
        output,
        "labels",
        dtype=label_dtype(dtype, max(limits, default=None)),
        fill_value=-1,
        image_attributes={"long_name": "cluster"},
        attributes=attributes,
        check=check,
        finish=lambda codes: {
            "_FillValue": -1,
            **flags(sorted(codes_so_far | codes), dict(names), colors),
        },
    )


def columns_of(values: Any, names: Sequence[str] | None) -> list[Any]:
    """Return the columns of `values`: float64 stays float64, other types become float32."""
    values = seen_alike(values)
    if not isinstance(values, da.Array):
        # Keep a mask: masked values become NaN in the map.
        values = np.asanyarray(values)
    if values.ndim not in (1, 2) or values.dtype.kind not in "iufb":
        raise ValueError(
            "`values` must be numbers of shape (n_valid,) or (n_valid, m), got shape "
            f"{values.shape} and dtype {values.dtype}."
        )
    values = values.astype(np.float64 if values.dtype == np.float64 else np.float32)
    columns = [values] if values.ndim == 1 else [values[:, k] for k in range(values.shape[1])]
    if names is not None and len(names) != len(columns):
        raise ValueError(
            f"names must have one name for each of the {len(columns)} bands, got {len(names)}."
        )
    return columns


def value_writer(
    image: da.Array,
    position: Georeference,
    store: Any,
    *,
    names: Sequence[str] | None = None,
    overwrite: bool = False,
    attributes: Mapping[str, Any] | None = None,
    check: Callable[[], None] | None = None,
) -> MapWriter:
    """Return the writer of floats (y, x) or (band, y, x) as a Zarr group or a GeoTIFF."""
    output = map_at(store, VALUE_MAP, overwrite=overwrite)
    if isinstance(output, GeoTiff):
        return _geotiff_writer(
            image,
            position,
            output,
            lambda values: values,
            dtype=image.dtype,
            count=1 if image.ndim == 2 else len(image),
            nodata=float("nan"),
            band_names=names,
            attributes=attributes,
            check=check,
        )
    return _zarr_writer(
        image,
        position,
        output,
        "values",
        dtype=image.dtype,
        fill_value=np.nan,
        image_attributes={} if names is None else {"band_names": list(names)},
        attributes=attributes,
        check=check,
    )


def _geotiff_writer(
    image: da.Array,
    position: Georeference,
    output: GeoTiff,
    convert: Callable[[NDArray[Any]], NDArray[Any]],
    **options: Any,
) -> MapWriter:
    """Return the writer of an image by lines of blocks, to bound the client's memory."""

    def steps() -> Generator[Any, NDArray[Any], Any]:
        output.check()
        ends = np.concatenate([[0], np.cumsum(image.chunks[-2])]).tolist()
        rows = [slice(start, stop) for start, stop in pairwise(ends)]
        windows = [(rows_of_blocks, slice(0, image.shape[-1])) for rows_of_blocks in rows]
        grid = _grid_of_tif(position, image.shape[-2:], output)
        with closing(write_cog(output, windows, grid, **options)) as writing:
            next(writing)
            values = yield [image[..., rows_of_blocks, :] for rows_of_blocks in rows]
            while True:
                try:
                    writing.send(convert(values))
                except StopIteration as stop:
                    return stop.value
                values = yield

    return MapWriter(steps(), one_by_one=True)


def _zarr_writer(
    image: da.Array,
    location: Georeference,
    output: Output,
    name: str,
    *,
    check: Callable[[], None] | None,
    finish: Callable[[set[int]], dict[str, Any]] | None = None,
    **options: Any,
) -> MapWriter:
    """Return the writer of an image by tasks; `finish(labels)` returns attributes of the image.

    Each task writes one chunk of the target.
    """

    def steps() -> Generator[Any, NDArray[Any], Any]:
        chunks = tuple(max(sizes) for sizes in image.chunks)
        cut = image.rechunk(chunks)
        codes: set[int] = set()
        with _new_map(output, name, location, shape=image.shape, chunks=chunks, **options) as array:
            written = da.map_blocks(
                _write_block,
                cut,
                target=StoredArray(array),
                lists_labels=finish is not None,
                chunks=tuple((1,) * count for count in cut.numblocks),
                meta=np.empty((0,) * image.ndim, object),
                token="daskclust-write",
            )
            lines = [written[..., i : i + 1, :] for i in range(written.shape[-2])]
            codes.update(*(yield lines).ravel())
            for _ in lines[1:]:
                codes.update(*(yield).ravel())
            if check is not None:
                check()
            if finish is not None:
                array.attrs.update(finish(codes))
        return open_store(output.location)

    return MapWriter(steps(), one_by_one=False)


def check_not_within(array: zarr.Array | None, store: Any) -> None:
    """Raise ValueError if a map would overwrite the cube, whose values are in `array`."""
    target, own = local_path(store), None if array is None else local_path(array.store)
    if own is None or target is None:
        same = array is not None and store is array.store
    else:
        assert array is not None
        same = (own / array.path).resolve().is_relative_to(target.resolve())
    if same:
        raise ValueError(f"{redact(store)!r} contains the cube. Write the map to another path.")


def _write_block(
    block: NDArray[Any], *, target: StoredArray, lists_labels: bool, block_info: Any = None
) -> NDArray[Any]:
    """Write one block, which is a chunk of `target`; return its labels without -1 if requested."""
    out = np.empty((1,) * block.ndim, object)
    out[(0,) * block.ndim] = (
        _labels_in(block, np.iinfo(target.dtype).max, target.dtype) if lists_labels else []
    )
    region = tuple(slice(*at) for at in block_info[0]["array-location"])
    target[region] = block.astype(target.dtype)
    return out


def _labels_in(labels: Ints, limit: int, dtype: np.dtype[Any]) -> list[int]:
    """Return the labels that occur, without -1; check that a dtype holds them."""
    if not labels.size:
        return []
    low, high = int(labels.min()), int(labels.max())
    if low < -1 or high > limit:
        raise ValueError(
            f"Labels must be from -1 to {limit} ({dtype}), got {low} to {high}. For more clusters "
            "pass n_clusters= to write_labels."
        )
    codes, indices = indices_of_codes(labels)
    return [int(code) for code in codes[np.bincount(indices) > 0] if code >= 0]


def _grid_of_tif(position: Georeference, shape: tuple[int, ...], output: GeoTiff) -> PixelGrid:
    """Return the grid of a map; warn if its coordinates are not those of a regular grid."""
    if (
        any(name in position.coordinates for name in position.names)
        and position.placed.transform is None
    ):
        warn(
            f"The coordinates of the image do not state a regular grid with pixels of known size, "
            f"so {redact(output.location)!r} has only rows and columns. A map in Zarr has the "
            "coordinates.",
            DaskclustWarning,
        )
    return pixel_grid(position, shape)


@contextmanager
def _new_map(
    output: Output,
    name: str,
    location: Georeference,
    *,
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
    dtype: np.dtype[Any],
    fill_value: float,
    image_attributes: Mapping[str, Any],
    attributes: Mapping[str, Any] | None,
) -> Iterator[zarr.Array]:
    """Create a Zarr group with an empty image, (y, x) or (band, y, x), at a position.

    `image_attributes` are attributes of the image, and `attributes` of the group. The group appears
    when all blocks of the image have been written inside the context.
    """
    names, grid = location.names, pixel_grid(location, shape[-2:])
    with new_group(
        output.location,
        kind=output.kind,
        overwrite=output.overwrite,
        consolidated=True,
        zarr_format=2,
    ) as group:
        group.attrs.update(finite(location.group_attributes))
        for key, coordinate in _coordinates_of_map(location, grid).items():
            _write_coordinate(group, key, coordinate)
        image = _new_array(
            group,
            name,
            names if len(shape) == 2 else ("band", *names),
            {**image_attributes, **location.attributes, **_system(grid.crs)},
            shape=shape,
            chunks=chunks,
            dtype=dtype,
            fill_value=fill_value,
        )
        group.attrs.update(finite(redact_all(attributes or {})))
        yield image
        check_written(image)


def _coordinates_of_map(position: Georeference, grid: PixelGrid) -> dict[str, Coordinate]:
    """Return the coordinates of a map: the coordinates of the image, or centers of the pixels.

    GDAL takes the position of a map from its coordinates. Coordinates of the image are replaced if
    they are in another unit, or number the pixels.
    """
    out = dict(position.coordinates)
    a, b, left, d, e, top = grid.transform
    axes = dict(zip(position.names, (Axis(top, e), Axis(left, a)), strict=True))
    stated = [key for key in position.names if key in out]
    is_right = b == d == 0 and all(agrees(axes[key], out[key].values) for key in stated)
    if position.placed.transform is not None and not is_right:
        for key in stated:
            del out[key]
        stated = []
    if not stated and grid.transform != IDENTITY and b == d == 0:
        for (key, axis), size in zip(axes.items(), grid.shape, strict=True):
            out[key] = Coordinate((key,), axis.edge + (np.arange(size) + 0.5) * axis.step)
    return out


def _new_array(
    group: zarr.Group,
    name: str,
    dims: Sequence[str],
    attributes: Mapping[str, Any],
    **options: Any,
) -> zarr.Array:
    """Create an array with names of its dimensions in the form of its version of Zarr."""
    if group.metadata.zarr_format == 2:
        attributes = {_DIMENSIONS: list(dims), **attributes}
        options["compressors"] = Zlib(level=_LEVEL)
    else:  # stores such as Icechunk have version 3 only
        options |= {"dimension_names": dims, "compressors": GzipCodec(level=_LEVEL)}
    # Write empty chunks, so that a missing chunk shows that a block was not written.
    config: Any = {"write_empty_chunks": True}
    return group.create_array(name, config=config, attributes=finite(attributes), **options)


def _write_coordinate(group: zarr.Group, name: str, coordinate: Coordinate) -> None:
    values = coordinate.values
    numeric = values.dtype.kind in "iuf"
    # Coordinates have no nodata value: 0 is a position.
    said = {k: v for k, v in coordinate.attributes.items() if k not in NODATA_ATTRIBUTES}
    copy = _new_array(
        group,
        name,
        coordinate.dims,
        said,
        shape=values.shape,
        chunks=values.shape,
        dtype=values.dtype if numeric else np.int32,
        fill_value=None,
    )
    copy[...] = values_of(values) if numeric else 0


def _system(crs: str | None) -> dict[str, Any]:
    """Return the attribute by which GDAL states a coordinate system, in several forms."""
    if crs is None:
        return {}
    system = known_system(crs)
    if system is None:
        is_wkt = "[" in crs and "{" not in crs and find_spec("pyproj") is None
        return {"_CRS": {"wkt": crs}} if is_wkt else {}
    texts: dict[str, Any] = {"wkt": system.to_wkt(), "projjson": json.loads(system.to_json())}
    code = system.to_epsg()
    if code is not None:
        texts["url"] = f"http://www.opengis.net/def/crs/EPSG/0/{code}"
    return {"_CRS": texts}
