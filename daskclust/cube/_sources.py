"""Where a cube, a mask or a label map lies, in whatever holds it, and what is said of it."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import zarr
from numpy.typing import NDArray

from daskclust.cube import _metadata
from daskclust.cube._georeference import NOWHERE, Georeference, PixelGrid, pixel_grid
from daskclust.cube._metadata import (
    NODATA_ATTRIBUTES,
    attributes_of,
    dimension_names,
    read_colors,
    read_meanings,
    role_of,
)
from daskclust.cube.formats.found import BAD_BANDS, BAND_NAMES
from daskclust.cube.formats.opening import kind_of, open_file, open_files
from daskclust.cube.formats.vector import (
    no_codes,
    points_image,
    rasterize_file,
    read_points,
    says_pixels,
)
from daskclust.storage.seen import as_dask, values_of
from daskclust.storage.stores import array_of, arrays_of, decode_fill_value, local_path, open_store

#: Variables beside the cube that name good bands: EMIT and its like.
_GOOD = ("good_wavelengths", "good_bands")
_SCALES = {"scale_factor": 1.0, "add_offset": 0.0}
_ONE_FOR_ALL = ("_FillValue", "missing_value", "nodata", "_Unsigned", "units")
_RANGES = ("valid_range", "valid_min", "valid_max")


@dataclass(frozen=True)
class Found:
    """A three-dimensional array with its metadata.

    `unit` is what one read takes along each axis: a shard or chunk. `wavelengths` are candidates
    (values, unit). `encoded` is the stored type of values that come decoded. `files` are local
    files that hold the values, where no store does.
    """

    array: Any
    title: str
    names: tuple[str, ...] | None
    unit: tuple[int, ...]
    attributes: Mapping[str, Any]
    wavelengths: Sequence[tuple[Any, Any]]
    place: Callable[[tuple[str, str]], Georeference]
    encoded: np.dtype[Any] | None = None
    files: tuple[Path, ...] = ()


@dataclass(frozen=True)
class _Part:
    """One variable among several that may be the cube."""

    array: Any
    names: tuple[str, ...] | None
    attributes: Mapping[str, Any]


def open_path(path: str | os.PathLike[str]) -> Any:
    """Open a path or URL by what it holds: a Zarr node, or what `open_file` returns."""
    local = local_path(path)
    if local is None:
        return open_store(path) if kind_of(path) == "zarr" else open_file(path)
    if local.is_dir() or kind_of(local) == "zarr":
        return open_store(path)
    # What is not there, too: the reader says so.
    return open_file(local)


def find_cube(
    source: Any, variable: str | Sequence[str] | None, dims: Sequence[str] | None
) -> Found:
    """Find the cube in any kind of source; metadata only.

    `variable` names the cube, or its bands, among several variables; `dims` the dimensions, where
    those found are not to be used.
    """
    files: tuple[Path, ...] = ()
    if isinstance(source, list | tuple) and all(
        isinstance(item, str | os.PathLike) for item in source
    ):
        places = [local_path(item) for item in source]
        files = tuple(place for place in places if place is not None)
        source = open_files(source)
    elif isinstance(source, str | os.PathLike):
        local = local_path(source)
        source = open_path(source)
        if local is not None and not isinstance(source, zarr.Group | zarr.Array):
            files = (local,)
    if hasattr(source, "dims") and hasattr(source, "coords"):
        found = _in_xarray(source, variable, dims, files)
    elif isinstance(source, da.Array | np.ndarray):
        if variable is not None:
            raise ValueError(f"variable={variable!r}, but there is one array; leave variable out.")
        lazy = source if isinstance(source, da.Array) else da.from_array(source)
        part = {"array": _Part(lazy, None, {})}
        found = _joined(part, "The array", dims, [], lambda names: NOWHERE, files=files)
    else:
        found = _in_zarr(open_store(source), variable, dims)
    array = found.array
    if array.ndim != 3 or 0 in array.shape:
        of_vectors = (
            " Rows of vectors are no image: fit the array itself in Python, or its rows as a "
            "column of lists in Parquet (--columns)."
        )
        raise ValueError(
            f"{found.title} has shape {array.shape}; expected three dimensions, y, x and "
            f"band, none of them empty.{of_vectors if array.ndim == 2 else ''}"
        )
    if array.dtype.kind not in "iufb":
        raise ValueError(f"{found.title} has dtype {array.dtype}; expected numbers.")
    return found


# Zarr


def _in_zarr(
    node: zarr.Group | zarr.Array, variable: str | Sequence[str] | None, dims: Sequence[str] | None
) -> Found:
    group = node if isinstance(node, zarr.Group) else None
    if group is None:
        assert isinstance(node, zarr.Array)
        if variable is not None:
            raise ValueError(
                f"variable={variable!r}, but the store is a single array; leave variable out."
            )
        parts = {node.path: node}
    else:
        parts = _chosen("store", "array", arrays_of(group), variable, _metadata.dimension_names)
    first = next(iter(parts.values()))
    candidates: list[tuple[Any, Any]] = []
    for name in _metadata.WAVELENGTH_NAMES:
        found = None if group is None else array_of(group, name)
        if found is not None:
            candidates.append((found, found.attrs.get("units")))
    for attributes in (first.attrs, {} if group is None else group.attrs):
        units = attributes.get("wavelength_units")
        candidates += [(attributes.get(name), units) for name in _metadata.WAVELENGTH_NAMES]
    read = {
        name: _Part(item, _metadata.dimension_names(item), _metadata.attributes_of(item))
        for name, item in parts.items()
    }
    good = [array_of(group, name) for name in _GOOD] if group is not None else []
    stated = [values_of(item) for item in good if item is not None and item.ndim == 1]
    return _joined(
        read,
        f"The array {first.path!r}",
        dims,
        candidates,
        lambda names: Georeference.from_zarr(first, group, names),
        good=stated[0] if stated else None,
        coordinate=lambda name: None if group is None else array_of(group, name),
    )


# xarray


def _in_xarray(
    item: Any,
    variable: str | Sequence[str] | None,
    dims: Sequence[str] | None,
    files: tuple[Path, ...],
) -> Found:
    group = None
    if hasattr(item, "data_vars"):
        group = item
        variables = {str(name): item[name] for name in item.data_vars}
        parts = _chosen(
            "Dataset", "variable", variables, variable, lambda part: tuple(map(str, part.dims))
        )
    elif variable is not None:
        raise ValueError(f"variable={variable!r}, but there is one image; leave variable out.")
    else:
        parts = {str(item.name): item}
    first = next(iter(parts.values()))
    read = {}
    for name, part in parts.items():
        # A variable that xarray has not read yet stays unread.
        lazy = part if part.chunks is not None else part.chunk()
        read[name] = _Part(lazy.data, tuple(map(str, part.dims)), dict(part.attrs))
    coordinates = [
        (first.coords[n].values, first.coords[n].attrs.get("units"))
        for n in _metadata.WAVELENGTH_NAMES
        if n in first.coords
    ]
    units = first.attrs.get("wavelength_units")
    stored = first.encoding.get("dtype")
    good = [
        owner[name].values
        for name in _GOOD
        for owner in (first.coords, {} if group is None else group)
        if name in owner and owner[name].ndim == 1
    ]
    return _joined(
        read,
        f"The DataArray {first.name!r}",
        dims,
        coordinates + [(first.attrs.get(name), units) for name in _metadata.WAVELENGTH_NAMES],
        lambda names: Georeference.from_xarray(
            first, names, None if group is None else dict(group.data_vars)
        ),
        good=good[0] if good else None,
        coordinate=lambda name: first.coords[name].values if name in first.coords else None,
        encoded=None if stored is None else np.dtype(stored),
        files=files,
    )


# One cube of what was chosen


def _chosen(
    where: str,
    what: str,
    items: Mapping[str, Any],
    variable: str | Sequence[str] | None,
    names_of: Callable[[Any], tuple[str, ...] | None],
) -> dict[str, Any]:
    if variable is not None:
        wanted = [variable] if isinstance(variable, str) else list(variable)
        for name in wanted:
            if name not in items:
                raise KeyError(f"No {what} {name!r} in the {where}; it has {sorted(items)}.")
        return {name: items[name] for name in wanted}
    cubes = {name: item for name, item in items.items() if item.ndim in (3, 4)}
    if not cubes:
        images = {name: item for name, item in items.items() if item.ndim == 2}
        named = {name: names_of(item) for name, item in images.items()}
        roles = [{_metadata.role_of(dim) for dim in found or ()} for found in named.values()]
        if len(images) > 1 and len(set(named.values())) == 1 and roles[0] == {"y", "x"}:
            # Stores list their arrays in any order, and files in that of writing.
            return {name: images[name] for name in sorted(images, key=_natural)}
    if len(cubes) != 1:
        flat = [name for name, item in cubes.items() if item.ndim == 3]
        if len(flat) == 1:
            return {flat[0]: cubes[flat[0]]}
        raise ValueError(
            f"The {where} has {len(flat)} three-dimensional {what}s ({sorted(cubes)}) "
            f"among {sorted(items)}; pass variable= to say which is the cube."
        )
    return cubes


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part) if part.isdigit() else -1, part) for part in re.split(r"(\d+)", name)]


def _joined(
    parts: Mapping[str, _Part],
    title: str,
    dims: Sequence[str] | None,
    wavelengths: Sequence[tuple[Any, Any]],
    place: Callable[[tuple[str, str]], Georeference],
    *,
    good: Any = None,
    coordinate: Callable[[str], Any] = lambda name: None,
    **more: Any,
) -> Found:
    """Make one three-dimensional array of a cube, of images, or of a stack of cubes."""
    first = next(iter(parts.values()))
    attributes = dict(first.attributes)
    names: Any = first.names if dims is None else dims if isinstance(dims, str) else tuple(dims)
    array = first.array
    if len(parts) > 1:
        _check_alike(parts)
        array = da.stack([as_lazy(part.array) for part in parts.values()], axis=2)
        array = array.rechunk({2: -1})
        names = None if names is None else (*names[:2], "band")
        attributes = _attributes_of_all(parts)
    elif array.ndim == 4 and names is not None and len(names) == 4:
        array, names, wavelengths = _stacked(as_lazy(array), names, title, wavelengths)
    elif first.names is not None and names is not None and BAND_NAMES not in attributes:
        axes = [at for at, name in enumerate(names) if _metadata.role_of(name) == "band"]
        stated = coordinate(first.names[axes[0]]) if len(axes) == 1 else None
        if stated is not None and stated.dtype.kind in "UTO" and stated.ndim == 1:
            attributes[BAND_NAMES] = list(map(str, np.asarray(stated[:]).tolist()))
    if good is not None and BAD_BANDS not in attributes and len(good) in array.shape:
        attributes[BAD_BANDS] = (np.asarray(good) == 0).tolist()
    if isinstance(array, zarr.Array):
        unit = tuple(array.shards or array.chunks)
    else:
        unit = tuple(max(sizes, default=0) for sizes in array.chunks)
    return Found(array, title, names, unit, attributes, wavelengths, place, **more)


def as_lazy(array: Any) -> da.Array:
    if isinstance(array, da.Array):
        return array
    if isinstance(array, zarr.Array):
        return as_dask(array)
    return da.from_array(np.asanyarray(array))


def _check_alike(parts: Mapping[str, _Part]) -> None:
    first_name, first = next(iter(parts.items()))
    for name, part in parts.items():
        for what, mine, theirs in (
            ("dimensions", first.names, part.names),
            ("shape", first.array.shape, part.array.shape),
            ("dtype", first.array.dtype, part.array.dtype),
        ):
            if mine != theirs:
                raise ValueError(
                    f"The bands differ in {what}: {first_name!r} has {mine}, {name!r} has "
                    f"{theirs}. Bring them to one, or pass variable= with the names of those "
                    "that belong together."
                )
    if first.array.ndim != 2:
        raise ValueError(
            f"variable= names {len(parts)} variables of shape {first.array.shape}; expected one "
            "cube, or several images (y, x)."
        )


def _attributes_of_all(parts: Mapping[str, _Part]) -> dict[str, Any]:
    """Attributes of a cube whose bands are variables: one value where all agree, or one a band."""
    said = [part.attributes for part in parts.values()]
    found: dict[str, Any] = {
        key: value for key, value in said[0].items() if all(_same(o.get(key), value) for o in said)
    }
    for key, neutral in _SCALES.items():
        values = [attributes.get(key, neutral) for attributes in said]
        if any(key in attributes for attributes in said) and key not in found:
            found[key] = [float(value) for value in values]
    for key in (*_ONE_FOR_ALL[:-1], *_RANGES):
        if key not in found and any(key in attributes for attributes in said):
            stated = {name: part.attributes.get(key) for name, part in parts.items()}
            raise ValueError(
                f"The bands state different {key} ({stated}); expected one for all. Mask them "
                "with xarray first, and pass the Dataset."
            )
    found[BAND_NAMES] = list(parts)
    return found


def _same(one: Any, other: Any) -> bool:
    return repr(np.asarray(one).tolist()) == repr(np.asarray(other).tolist())


def _stacked(
    array: da.Array, names: tuple[str, ...], title: str, wavelengths: Sequence[tuple[Any, Any]]
) -> tuple[da.Array, tuple[str, ...], Sequence[tuple[Any, Any]]]:
    """Make features of all pairs of two axes, such as dates and bands; the last runs fastest."""
    roles = [_metadata.role_of(name) for name in names]
    inner = [axis for axis, role in enumerate(roles) if role == "band"]
    if sorted(map(str, roles)) != ["band", "band", "x", "y"]:
        raise ValueError(
            f"{title} has the dimensions {names}; expected y, x, and two of time and band. Pass "
            "their roles in stored order as dims=."
        )
    y, x = roles.index("y"), roles.index("x")
    cut = array.transpose((y, x, *inner)).rechunk({2: -1, 3: -1})
    outer, last = cut.shape[2:]
    flat = da.map_blocks(
        _flat,
        cut,
        drop_axis=3,
        chunks=(*cut.chunks[:2], (outer * last,)),
        dtype=cut.dtype,
        meta=cut._meta.reshape((0, 0, 0)),
    )
    centers = _metadata.find_wavelengths(wavelengths, last)
    tiled = [] if centers is None else [(np.tile(centers, outer), "nm")]
    return flat, (names[y], names[x], "band"), tiled


def _flat(block: Any) -> Any:
    return block.reshape(*block.shape[:2], -1)


_RESAMPLE = (
    "To take the nearest of its pixels for each of the cube's, pass resample=True to open_map or "
    "rows_of (--resample-labels)."
)


@dataclass(frozen=True)
class Image:
    """An image (y, x), lazy or not, with what its store says about it.

    `nodata` are values that its attributes declare so; `colors` are ``#rrggbb``, as far as they are
    stated; `stated` are codes of features, though they may label no pixel. `by_name`: codes were
    assigned here, so the user's values do not mean them.
    """

    values: Any
    nodata: tuple[int, ...] = ()
    place: Georeference = NOWHERE
    meanings: dict[int, str] | None = None
    colors: dict[int, str] | None = None
    names: tuple[str, str] = ("y", "x")
    stated: tuple[int, ...] = ()
    by_name: bool = False


def open_image(
    name: str,
    image: Any,
    shape: tuple[int, int],
    *,
    place: Georeference = NOWHERE,
    variable: str | None = None,
    names: tuple[str, str] = ("y", "x"),
    chunks: tuple[tuple[int, ...], tuple[int, ...]] | None = None,
    class_column: str | None = None,
) -> Image:
    """Open an image and check its shape, coordinate system and position against the cube's.

    Of a group or store the only two-dimensional array over pixels is taken, or `variable`. A path
    may be of any format that a cube has, of a vector file (GeoJSON, GeoPackage, Shapefile), or of a
    CSV file of pixels; `chunks` are the blocks of images that are rasterized or resampled. `name`
    is that of the argument, for messages.
    """
    if are_features(image):
        return _from_features(image, pixel_grid(place, shape, names), chunks, class_column)
    if class_column is not None:
        raise ValueError(f"class_column={class_column!r}, but {name} has no columns; leave it out.")
    opened = read_image(name, image, variable)
    # A mask of another grid would leave out others than those that were meant.
    nearest = "" if name in ("mask", "scales") else f" {_RESAMPLE}"
    if opened.values.shape != shape:
        raise ValueError(
            f"{name} has shape {opened.values.shape}; expected the image's {shape}.{nearest}"
        )
    found = place.differences(opened.place)
    if found:
        raise ValueError(
            f"{name} lies elsewhere than the cube: {'; '.join(found)}. Reproject it to the cube's "
            f"grid, or pass its values as an array if they do belong to these pixels.{nearest}"
        )
    return opened


def are_features(image: Any) -> bool:
    """Whether an image is a path of polygons or pixels, whose classes may be names."""
    return isinstance(image, str | os.PathLike) and kind_of(image) in ("vector", "table")


def read_image(name: str, image: Any, variable: str | None = None) -> Image:
    """Open an image of any size; see :func:`open_image`."""
    if isinstance(image, Image):
        return image
    if isinstance(image, str | os.PathLike):
        image = open_path(image)
    if hasattr(image, "data_vars"):
        image = _only_variable(name, image, variable)
        variable = None
    if isinstance(image, zarr.Group):
        group = image
        image = _only_image(name, group, variable)
        return _from_zarr(image, group)
    if variable is not None:
        raise ValueError(f"variable={variable!r}, but {name} is a single array; leave it out.")
    if isinstance(image, zarr.Array):
        return _from_zarr(image, None)
    if hasattr(image, "dims") and hasattr(image, "coords"):
        return _from_xarray(name, image)
    return _from_array(name, image)


#: Value of pixels hidden by a mask, which no class has.
_HIDDEN = int(np.iinfo(np.int64).min)


def _from_array(name: str, image: Any) -> Image:
    """Read an array; what a NumPy mask hides is no label, and excluded by a mask."""
    values = image if isinstance(image, da.Array) else np.asanyarray(image)
    masked = np.ma.isMaskedArray(values._meta if isinstance(values, da.Array) else values)
    if not masked:
        return Image(_plain(name, values))
    if values.dtype.kind not in "iub":
        raise no_codes(f"{name}, a masked array,", values.dtype)
    fill = name == "mask" if values.dtype.kind == "b" else _HIDDEN
    if isinstance(values, da.Array):
        dtype = bool if values.dtype.kind == "b" else np.int64
        values = da.map_blocks(
            _filled, values, fill=fill, dtype=dtype, meta=np.empty((0,) * values.ndim, dtype)
        )
    else:
        values = _filled(values, fill=fill)
    return Image(values, () if values.dtype.kind == "b" else (_HIDDEN,))


def _plain(name: str, values: Any) -> Any:
    """Return an array without masks, whose blocks are refused if they have one after all."""
    if not isinstance(values, da.Array):
        return np.asarray(values)
    return da.map_blocks(
        _without_mask,
        values,
        what=name,
        dtype=values.dtype,
        meta=values._meta,
        token="daskclust-plain",
    )


def _without_mask(block: Any, what: str) -> Any:
    if np.ma.is_masked(block):
        raise ValueError(
            f"A block of {what} is a masked array, which its Dask array does not say. Build it "
            "from masked arrays only, or put a label for none where it is masked."
        )
    return block


def _filled(values: Any, *, fill: Any) -> NDArray[Any]:
    mask = np.ma.getmaskarray(values)
    if values.dtype.kind == "b":
        return np.where(mask, fill, np.ma.getdata(values))
    plain = np.where(mask, 0, np.ma.getdata(values))
    if plain.dtype == np.uint64 and plain.size and plain.max() > np.iinfo(np.int64).max:
        raise ValueError(f"label_map holds {plain.max()}; expected labels below 2**63.")
    return np.where(mask, fill, plain.astype(np.int64))


def _only_variable(name: str, dataset: Any, variable: str | None) -> Any:
    names = [str(key) for key in dataset.data_vars]
    if variable is not None:
        if variable not in names:
            raise KeyError(f"No variable {variable!r} in the file of {name}; it has {names}.")
        return dataset[variable]
    images = [key for key in names if dataset[key].squeeze().ndim == 2]
    if len(images) != 1:
        raise ValueError(
            f"The file of {name} has {len(images)} two-dimensional variables ({images}) among "
            f"{names}; say which."
        )
    return dataset[images[0]]


def _from_features(
    path: str | os.PathLike[str],
    grid: PixelGrid,
    chunks: tuple[tuple[int, ...], tuple[int, ...]] | None,
    class_column: str | None,
) -> Image:
    """Make an image of the classes of polygons, or of single pixels, on the cube's grid."""
    cut = chunks or ((grid.shape[0],), (grid.shape[1],))
    if kind_of(path) == "table" or (grid.crs is None and says_pixels(path)):
        rows, columns, classes = read_points(path, grid, class_column=class_column)
        values: Any = points_image(rows, columns, classes.codes, cut)
    else:
        values, classes = rasterize_file(path, grid, cut, class_column=class_column)
    stated = tuple(np.unique(classes.codes[classes.codes >= 0]).tolist())
    is_named = classes.names is not None
    return Image(values, (-1,), NOWHERE, classes.names, stated=stated, by_name=is_named)


def _only_image(name: str, group: zarr.Group, variable: str | None) -> zarr.Array:
    if variable is not None:
        found = array_of(group, variable)
        if found is None:
            raise KeyError(
                f"No array {variable!r} in the store of {name}; it has "
                f"{sorted(group.array_keys())}."
            )
        return found
    images = {key: array for key, array in arrays_of(group).items() if array.ndim == 2}
    if len(images) != 1:
        raise ValueError(
            f"The store of {name} has {len(images)} two-dimensional arrays ({sorted(images)}) "
            f"among {sorted(group.array_keys())}; say which."
        )
    return next(iter(images.values()))


def _upright(values: Any, names: Any) -> Any:
    if names is not None and [role_of(name) for name in names] == ["x", "y"]:
        return values.T
    return values


def _from_zarr(array: zarr.Array, group: zarr.Group | None) -> Image:
    names = dimension_names(array)
    values = _upright(as_dask(array), names)
    place, upright = NOWHERE, ("y", "x")
    if names is not None and len(names) == 2:
        upright = names if role_of(names[0]) != "x" else names[::-1]
        place = Georeference.from_zarr(array, group, upright)
    return _described(values, place, upright, attributes_of(array))


def _from_xarray(name: str, array: Any) -> Image:
    if array.ndim == 3:
        # A raster file of one band, beside which an alpha band may lie.
        bad = array.attrs.get("bad_bands")
        band = next((dim for dim in array.dims if role_of(dim) == "band"), None)
        if band is not None and bad is not None and len(bad) == array.sizes[band]:
            array = array.isel({band: np.flatnonzero(~np.asarray(bad, bool))})
        if band is not None and array.sizes[band] > 1:
            raise ValueError(
                f"{name} has {array.sizes[band]} bands; expected one, of labels. Take one of them, "
                "for example with gdal_translate -b 1."
            )
        single = [str(dim) for dim in array.dims if array.sizes[dim] == 1]
        array = array.squeeze(next((d for d in single if role_of(d) == "band"), None), drop=True)
    names = tuple(map(str, array.dims))
    values = _plain(name, _upright(array.data, names))
    if values.dtype.kind == "f" and np.dtype(array.encoding.get("dtype", float)).kind in "iu":
        # xarray makes integers with a _FillValue, or a mask, floats with NaN.
        missing = array.isnull().data
        values = (
            da.where(missing, -1, values)
            if isinstance(values, da.Array)
            else np.where(missing, -1, values)
        )
        values = values.astype(np.int64)
    place, upright = NOWHERE, ("y", "x")
    if len(names) == 2:
        upright = names if role_of(names[0]) != "x" else names[::-1]
        place = Georeference.from_xarray(array, upright)
    return _described(values, place, upright, {**array.encoding, **array.attrs})


def _described(
    values: Any, place: Georeference, names: tuple[str, str], attributes: Mapping[str, Any]
) -> Image:
    return Image(
        values,
        _nodata(attributes),
        place,
        read_meanings(attributes),
        read_colors(attributes) or None,
        names,
    )


def _nodata(attributes: Any) -> tuple[int, ...]:
    found = [decode_fill_value(attributes[n]) for n in NODATA_ATTRIBUTES if n in attributes]
    return tuple({int(value) for value in found if math.isfinite(value) and value == int(value)})
