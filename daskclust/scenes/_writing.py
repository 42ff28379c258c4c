"""Values of rows written as an image: a Zarr group by tasks, a GeoTIFF strip by strip."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import zarr
from numcodecs import Zlib
from numpy.typing import ArrayLike, NDArray
from zarr.codecs import GzipCodec

from daskclust.colors import Legend
from daskclust.core.engine import compute, seen_alike
from daskclust.core.storage.outputs import Output, check_written, finite, new_group
from daskclust.core.storage.redact import redact, redact_all
from daskclust.core.storage.stored_array import StoredArray, values_of
from daskclust.core.storage.stores import local_path, open_store
from daskclust.core.warn import warn
from daskclust.exceptions import DaskclustWarning
from daskclust.scenes import _block_tasks
from daskclust.scenes._coordinate_systems import known_system
from daskclust.scenes._coordinates import Axis, agrees
from daskclust.scenes._georeference import IDENTITY, Coordinate, PixelGrid, pixel_grid
from daskclust.scenes._metadata import Names, flags, label_dtype
from daskclust.scenes.formats.geotiff import LABEL_MAP, VALUE_MAP, GeoTiff, map_at, write_cog
from daskclust.scenes.formats.vector import check_codes

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
    grid = pixel_grid(place, shape[-2:])
    a, b, left, d, e, top = grid.transform
    axes = dict(zip(names, (Axis(top, e), Axis(left, a)), strict=True))
    # GDAL places a map by its coordinates, which may be in another unit, or number the pixels.
    kept = [key for key in names if key in coordinates]
    is_right = b == d == 0 and all(agrees(axes[key], coordinates[key].values) for key in kept)
    if place.placed.transform is not None and not is_right:
        for key in kept:
            del coordinates[key]
        kept = []
    if not kept and grid.transform != IDENTITY and b == d == 0:
        for (key, axis), size in zip(axes.items(), shape[-2:], strict=True):
            coordinates[key] = Coordinate((key,), axis.edge + (np.arange(size) + 0.5) * axis.step)
    kind, overwrite = output.kind, output.overwrite
    with new_group(
        output.place, kind=kind, overwrite=overwrite, consolidated=True, zarr_format=2
    ) as group:
        group.attrs.update(finite(place.group_attributes))
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
        group.attrs.update(finite(redact_all(attributes or {})))
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
    return group.create_array(name, config=config, attributes=finite(attributes), **options)


def _grid_of_tif(like: Any, output: GeoTiff) -> PixelGrid:
    """Return the grid of a map; warn if its coordinates are not those of a regular grid."""
    place = like.georeference
    has_lines = any(name in place.coordinates for name in like.dimension_names)
    if has_lines and place.placed.transform is None:
        warn(
            f"The coordinates of the image do not state a regular grid with pixels of known size, "
            f"so {redact(output.place)!r} has rows and columns alone. A map in Zarr has the "
            "coordinates.",
            DaskclustWarning,
        )
    return pixel_grid(place, like.shape[:2])


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
    overwrite: bool = False,
    n_clusters: int | None = None,
    classes: ArrayLike | None = None,
    class_names: Names | None = None,
    class_colors: Mapping[int, str] | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> Any:
    """Write labels as an image into a new Zarr group, or a GeoTIFF.

    Parameters
    ----------
    labels : array of shape (n_valid,), integer or text
        NumPy, or Dask with the chunks of `samples`; -1 means "no label".  `classes`
        turns text into codes, and the text becomes the names of the classes.
    store : str, path or zarr store
        The target.  The workers of a distributed cluster must be able to reach it.
        If the name ends in .tif, the client writes a cloud-optimized GeoTIFF with
        colors, class names, nodata value and coordinate system.
    overwrite : bool, default=False
        Replace a label map that daskclust has written; nothing else is ever replaced.
    n_clusters : int, default=None
        Number of clusters, if known.  Up to 32 767 clusters are stored as int16.
    classes : array of shape (k,), default=None
        The model's ``classes_``, if labels are text; see :meth:`to_map`.
    class_names : sequence of str or mapping of int to str, default=None
        Meanings of the labels 0, 1, ..., or by label; ``cluster_0``, ... by default.
    class_colors : mapping of int to str, default=None
        Colors by label, as ``#rrggbb``; distinct colors by default.
    attributes : mapping, default=None
        More attributes of the group, such as the origin of the labels.  JSON values;
        credentials in URLs are not stored.

    Returns
    -------
    zarr.Group or Path
        The path of a GeoTIFF, else the group, open for reading.  Its array ``labels``
        (y, x) is int16 or int32 with ``_FillValue = -1``.  CF ``flag_values`` and
        ``flag_meanings`` list the known clusters and all labels that occur.  The
        georeference of the cube (attributes, coordinates, grid mapping) is copied
        unchanged.

    Raises
    ------
    FileExistsError
        The target exists and `overwrite` is False, or daskclust has not written it.
    StoreError
        A worker cannot reach the cube or the target, or blocks of the target are
        missing.
    ValueError
        The target is the cube's own store or contains it.  The number of labels is
        not `n_valid`, or a label is less than -1 or too large for the dtype.  The
        local files of the cube were changed after its valid pixels were counted.

    Notes
    -----
    One task per block writes one chunk, on the active Dask scheduler.  A local target
    appears under its name only when it is complete.

    Examples
    --------
    >>> import numpy as np, zarr
    >>> from daskclust import open_cube
    >>> values = zarr.array(np.array([[[1], [-9]], [[2], [3]]], dtype="int16"))
    >>> cube = open_cube(values, dims=("y", "x", "band"), nodata=-9)
    >>> written = cube.write_labels(np.array([0, 0, 1]), zarr.storage.MemoryStore())
    >>> written["labels"][:].tolist(), written["labels"].attrs["flag_meanings"]
    ([[0, -1], [0, 1]], 'cluster_0 cluster_1')
    """
    labels, names = _block_tasks.as_numbers(labels, classes, class_names)
    largest = None
    if isinstance(labels, np.ndarray) and labels.dtype.kind in "iu":
        shown = np.ma.compressed(labels)
        largest = int(shown.max()) if len(shown) else -1
    named = names or {}
    # Where they are known before anything is computed.
    check_codes([-1 if largest is None else largest, *named, (n_clusters or 0) - 1])
    aligned = _block_tasks.align(labels, cube.block_counts)
    if aligned.dtype.kind not in "iu":
        raise ValueError(f"labels have dtype {aligned.dtype}; expected integers.")
    output = map_at(store, LABEL_MAP, overwrite=overwrite)
    if isinstance(output, GeoTiff):
        output.check()
        return _write_label_tif(
            cube._image(aligned, -1),
            _grid_of_tif(cube, output),
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
            _block_tasks.write_block,
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


def write_label_map(
    label_map: Any,
    store: Any,
    *,
    overwrite: bool = False,
    attributes: Mapping[str, Any] | None = None,
) -> Any:
    """Write the map, all of whose codes must have names, as ``Cube.write_labels`` does.

    Parameters
    ----------
    store : str or path
        A name that ends in ``.tif`` makes a GeoTIFF, any other a Zarr store.
    overwrite : bool, default=False
        Replace a label map that daskclust has written.
    attributes : mapping, optional
        JSON values to keep beside the map.

    Returns
    -------
    Path or zarr.Group

    Raises
    ------
    FileExistsError
        Something is there, and `overwrite` is False or daskclust has not written it.

    Examples
    --------
    >>> import tempfile
    >>> from daskclust.scenes import LabelMap, open_label_map
    >>> found = LabelMap(np.array([[0, 1], [-1, 1]]), names={0: "wheat", 1: "water"})
    >>> group = found.write(tempfile.mkdtemp() + "/map.zarr")
    >>> open_label_map(group).names
    {0: 'wheat', 1: 'water'}
    """
    names, colors = label_map.names, label_map.colors
    check_codes(names)
    output = map_at(store, LABEL_MAP, overwrite=overwrite)
    if isinstance(output, GeoTiff):
        output.check()
        return _write_label_tif(
            label_map.values,
            _grid_of_tif(label_map, output),
            output,
            None,
            names,
            colors,
            attributes,
            None,
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
    small = np.min_scalar_type(room)
    dtype = small if small.itemsize <= 2 else np.dtype(np.int32)
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

    return write_cog(
        output,
        _strips(image, convert),
        grid,
        dtype=dtype,
        nodata=nodata,
        legend=lambda: Legend.of(sorted(found), named, class_colors),
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


def write_map(
    cube: Any,
    values: Any,
    store: Any,
    *,
    overwrite: bool = False,
    names: Iterable[Any] | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> Any:
    """Write numbers of the rows, such as margins or probabilities, as an image.

    Parameters
    ----------
    values : array of shape (n_valid,) or (n_valid, m), float
        NumPy, or Dask with the chunks of `samples`.  float64 is kept; other types
        become float32.
    store : str or path
        The target.  If the name ends in .tif, a cloud-optimized GeoTIFF of m bands;
        otherwise a Zarr group with the array ``values``, (y, x) or (band, y, x).
    overwrite : bool, default=False
        Replace a map of values that daskclust has written; nothing else is ever
        replaced.
    names : iterable, default=None
        Names of the m bands, such as ``model.classes_``; converted by ``str``.
    attributes : mapping, default=None
        More attributes; JSON values.

    Returns
    -------
    zarr.Group or Path

    Raises
    ------
    FileExistsError
        The target exists and `overwrite` is False, or it is not a map of values that
        daskclust has written.
    ValueError
        `values` does not have `n_valid` rows, or there are not m names.

    Notes
    -----
    Masked pixels are NaN.  The client writes a GeoTIFF, one row of blocks at a time.
    A Zarr group is written by one task per block.

    Examples
    --------
    >>> import numpy as np, zarr
    >>> from daskclust import open_cube
    >>> values = zarr.array(np.array([[[1], [-9]], [[2], [3]]], dtype="int16"))
    >>> cube = open_cube(values, dims=("y", "x", "band"), nodata=-9)
    >>> written = cube.write_map(np.array([0.5, 0.25, 1.0]), zarr.storage.MemoryStore())
    >>> written["values"][:].tolist()
    [[0.5, nan], [0.25, 1.0]]
    """
    bands = None if names is None else [str(name) for name in names]
    values = seen_alike(values)
    if not isinstance(values, da.Array):
        # A mask stays: what it hides is NaN in the map, as in masked blocks.
        values = np.asanyarray(values)
    if values.ndim not in (1, 2) or values.dtype.kind not in "iufb":
        raise ValueError(
            f"values have shape {values.shape} and dtype {values.dtype}; expected numbers of "
            "shape (n_valid,) or (n_valid, m)."
        )
    columns = [values] if values.ndim == 1 else [values[:, k] for k in range(values.shape[1])]
    if bands is not None and len(bands) != len(columns):
        raise ValueError(f"Got {len(bands)} names for {len(columns)} bands; expected one each.")
    dtype = np.float64 if values.dtype == np.float64 else np.float32
    images = [cube._image(column.astype(dtype), np.nan) for column in columns]
    image = images[0] if values.ndim == 1 else da.stack(images)
    output = map_at(store, VALUE_MAP, overwrite=overwrite)
    if isinstance(output, GeoTiff):
        output.check()
        return write_cog(
            output,
            _strips(image, lambda values: values),
            _grid_of_tif(cube, output),
            dtype=dtype,
            count=len(columns),
            nodata=float("nan"),
            band_names=bands,
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
        said={} if bands is None else {"band_names": bands},
        attributes=attributes,
    ) as target:
        _store(image, target)
        cube._check_unchanged()
    return open_store(store)


def _check_target(cube: Any, store: Any) -> None:
    """Refuse to write over the cube itself."""
    array = cube.stored.array
    target, own = local_path(store), None if array is None else local_path(array.store)
    if own is None or target is None:
        same = array is not None and store is array.store
    else:
        same = (own / array.path).resolve().is_relative_to(target.resolve())
    if same:
        raise ValueError(f"{redact(store)!r} holds the cube itself; write the label map elsewhere.")
