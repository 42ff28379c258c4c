"""Arrays and metadata of cubes, masks and label maps in files, stores and objects."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import zarr
from numpy.typing import NDArray

from daskclust.core.engine import seen_alike
from daskclust.core.storage.redact import redact
from daskclust.core.storage.stored_array import as_dask, values_of
from daskclust.core.storage.stores import (
    array_of,
    arrays_of,
    decode_fill_value,
    local_path,
    open_store,
    paths_below,
)
from daskclust.scenes import _metadata
from daskclust.scenes._georeference import (
    NOWHERE,
    Coordinate,
    Described,
    Georeference,
    PixelGrid,
    georeference,
    pixel_grid,
)
from daskclust.scenes._metadata import (
    NODATA_ATTRIBUTES,
    attributes_of,
    dimension_names,
    read_colors,
    read_meanings,
    role_of,
)
from daskclust.scenes.formats.format_detection import (
    BAD_BANDS,
    BAND_NAMES,
    CENTERS,
    GOOD,
    NODATA_OF_BANDS,
    OF_BANDS,
)
from daskclust.scenes.formats.opening import kind_of, open_file, open_files
from daskclust.scenes.formats.vector import (
    Features,
    has_pixels,
    no_codes,
    points_image,
    rasterize,
    read_points,
)

#: Maximum number of names of arrays that a message lists.
_LISTED = 20
_SCALES = {"scale_factor": 1.0, "add_offset": 0.0}
_RANGES = ("valid_range", "valid_min", "valid_max")


@dataclass(frozen=True)
class CubeArray:
    """A three-dimensional array with its metadata.

    `unit` is the size of a read along each axis: a shard or chunk. `wavelengths` are candidates
    (values, unit). `encoded` is the stored type of values that xarray has decoded. `files` are the
    local files with the values, if they are not in a store.
    """

    array: Any
    title: str
    names: tuple[str, ...] | None
    unit: tuple[int, ...]
    attributes: Mapping[str, Any]
    wavelengths: Sequence[tuple[Any, Any]]
    position: Callable[[tuple[str, str]], Georeference]
    encoded: np.dtype[Any] | None = None
    files: tuple[Path, ...] = ()


def open_path(path: str | os.PathLike[str]) -> Any:
    """Open a path or URL: return a Zarr node, or the result of `open_file`."""
    local = local_path(path)
    if kind_of(path if local is None else local) == "zarr" or (local and local.is_dir()):
        return open_store(path)
    # This includes missing files, which the reader reports.
    return open_file(path if local is None else local)


def find_arrays(
    source: Any,
    variable: str | Sequence[str] | None,
    guess: Callable[[str, str, Mapping[str, Any]], list[str]],
    name: str = "",
) -> tuple[dict[str, Described], tuple[Path, ...]]:
    """Describe the requested arrays of any kind of source by name; only metadata are read.

    `variable` contains names, or paths of arrays in groups. Without it, ``guess(source, kind,
    arrays)`` chooses names, given words for the source and the arrays in messages. `name` is the
    name of the argument in messages. The second result contains the local files with the values,
    if they are not in a store.
    """
    files: tuple[Path, ...] = ()
    if isinstance(source, str | os.PathLike):
        local = local_path(source)
        source = open_path(source)
        if local is not None and not isinstance(source, zarr.Group | zarr.Array):
            files = (local,)
    elif isinstance(source, list | tuple):
        if all(isinstance(item, str | os.PathLike) for item in source):
            files = tuple(filter(None, map(local_path, source)))
            source = open_files(source)
        else:
            source = np.asanyarray(source)
    elif not isinstance(source, Described) and not hasattr(source, "dtype"):
        source = source if hasattr(source, "data_vars") else open_store(source)
    if isinstance(source, zarr.Group):
        source_word, array_word, items = "store", "array", arrays_of(source)
    elif hasattr(source, "data_vars"):
        source_word, array_word = "Dataset", "variable"
        items = {str(name): source[name] for name in source.data_vars}
    elif variable is not None:
        raise ValueError(
            f"variable={variable!r}, but {name or 'the source'} is a single array. Omit variable."
        )
    elif isinstance(source, dict):  # band files
        return source, files
    else:
        if isinstance(source, zarr.Array) or hasattr(source, "dims"):
            source = describe(source)
        elif not isinstance(source, Described):
            source = Described(seen_alike(source), "The array")
        return {source.title: source}, files
    source_word += name and f" of {name}"
    if variable is None:
        if not items and (paths := _paths_in(source)):
            raise ValueError(
                f"The {source_word} has {array_word}s in groups only. Pass variable= (--variable), "
                f"for example {paths[0]!r}; it has {_listed(paths)}."
            )
        wanted = guess(source_word, array_word, items)
    else:
        several = isinstance(variable, Iterable) and not isinstance(variable, str)
        wanted = [*variable] if several else [variable]  # type: ignore[list-item]
    described = {}
    for key in wanted:
        if key in items:
            described[key] = describe(items[key], source, items)
        elif (in_group := _in_group(source, str(key).strip("/"))) is not None:
            described[key] = in_group
        else:
            names = _paths_in(source) or sorted(items)
            raise KeyError(
                f"No {array_word} {key!r} in the {source_word}; it has {_listed(names)}."
            )
    return described, files


def _in_group(source: Any, path: str) -> Described | None:
    """Describe an array below a Zarr group or a node of a DataTree, or return None."""
    if isinstance(source, zarr.Group):
        array = array_of(source, path)
        return None if array is None else describe(array)
    parent, _, name = path.rpartition("/")
    for node in getattr(source, "subtree", ()):
        if node.relative_to(source) == (parent or ".") and name in node.data_vars:
            dataset = node.to_dataset()
            return describe(dataset[name], dataset)
    return None


def _paths_in(source: Any) -> list[str]:
    """Return the paths of the arrays of a Zarr group or DataTree; none for a Dataset."""
    if isinstance(source, zarr.Group):
        return paths_below(source)
    return sorted(
        f"{node.relative_to(source)}/{name}".removeprefix("./")
        for node in getattr(source, "subtree", ())
        for name in node.data_vars
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{list(names[:_LISTED])}{more}"


def find_cube(
    source: Any, variable: str | Sequence[str] | None, dims: Sequence[str] | None
) -> CubeArray:
    """Find the cube in any kind of source; only metadata are read.

    `variable` names the cube or its bands among several variables. `dims` replaces the names of
    the dimensions.
    """
    return joined(*find_arrays(source, variable, cubes_among), dims)


# Metadata of arrays of Zarr and xarray


def describe(item: Any, group: Any = None, arrays: Mapping[str, Any] | None = None) -> Described:
    """Describe an array of Zarr or xarray, alone or in a group or Dataset.

    `arrays` are the open arrays of the group, if known. Lazy variables of xarray are not read.
    """
    if isinstance(item, zarr.Array):
        group = _parent_of(item) if group is None else group
        title, around = f"The array {item.path!r}", {} if group is None else group.attrs
        names, attributes = dimension_names(item), attributes_of(item)

        def in_group(name: str) -> Coordinate | None:
            if arrays is None:
                array = None if group is None else array_of(group, name)
            else:
                array = arrays.get(name)
            if array is None:
                return None
            attributes_found = {
                key: value for key, value in array.attrs.items() if key != "_ARRAY_DIMENSIONS"
            }
            dims = dimension_names(array) or ((name,) if array.ndim else ())
            return Coordinate(dims, array, attributes_found)

        mapping = _grid_mapping(item.attrs.get("grid_mapping"), in_group)
        return Described(item, title, names, attributes, around, mapping=mapping, find=in_group)
    mapping = item.encoding.get("grid_mapping", item.attrs.get("grid_mapping"))
    coordinates = dict(item.coords)
    if mapping not in coordinates:
        # xarray makes a variable of it unless asked for coordinates.
        neighbors = coordinates if group is None else {**coordinates, **group.data_vars}
        mapping = _grid_mapping(mapping, lambda name: _coordinate(neighbors.get(name)))
        if mapping in neighbors:
            coordinates[mapping] = neighbors[mapping]
    for name in () if group is None else OF_BANDS:
        if name not in coordinates and name in group and group[name].ndim == 1:
            coordinates[name] = group[name]

    def find(name: str) -> Coordinate | None:
        return _coordinate(coordinates.get(name))

    values = seen_alike(item.data if item.chunks is not None else item.chunk().data)
    names = tuple(map(str, item.dims))
    title = f"The DataArray {item.name!r}"
    return Described(values, title, names, dict(item.attrs), {}, item.encoding, mapping, find)


def _coordinate(variable: Any) -> Coordinate | None:
    """Describe a variable of xarray."""
    if variable is None:
        return None
    return Coordinate(tuple(map(str, variable.dims)), variable.data, dict(variable.attrs))


def _grid_mapping(stated: Any, find: Callable[[str], Coordinate | None]) -> Any:
    """Return the name of the grid mapping: the stated one, or a usual name that is present."""
    if isinstance(stated, str):
        return stated
    for name in ("spatial_ref", "crs"):
        coordinate = find(name)
        if (
            coordinate is not None
            and coordinate.values.ndim == 0
            and georeference(coordinate.attributes)
        ):
            return name
    return stated


def _parent_of(array: zarr.Array) -> zarr.Group | None:
    """Return the group that contains an array, which has its coordinates, or None."""
    store, path = array.store, array.path
    if not path and isinstance(store, zarr.storage.LocalStore):
        store, path = zarr.storage.LocalStore(store.root.parent, read_only=True), store.root.name
    try:
        return zarr.open_group(store, path=path.rpartition("/")[0], mode="r") if path else None
    except FileNotFoundError:
        return None


# One cube or image from described arrays


def cubes_among(where: str, what: str, items: Mapping[str, Any]) -> list[str]:
    """Return the name of the only cube, or the names of all images, with B2 before B10."""
    cubes = [name for name, item in items.items() if item.ndim in (3, 4)]
    if not cubes:
        images = [name for name, item in items.items() if item.ndim == 2]
        named = {
            dimension_names(item) or () if isinstance(item, zarr.Array) else tuple(item.dims)
            for item in map(items.__getitem__, images)
        }
        if len(images) > 1 and len(named) == 1 and set(map(role_of, named.pop())) == {"y", "x"}:
            # Stores list their arrays in any order, and files in the order of writing.
            return sorted(images, key=_natural)
    if len(cubes) != 1:
        flat = [name for name in cubes if items[name].ndim == 3]
        if len(flat) == 1:
            return flat
        raise ValueError(
            f"The {where} has {len(flat)} three-dimensional {what}s ({sorted(cubes)}) "
            f"among {sorted(items)}; name the cube with variable= (--variable). For a matrix of "
            "vectors, pass the path of the array, STORE/NAME."
        )
    return cubes


def images_among(where: str, what: str, items: Mapping[str, Any]) -> list[str]:
    """Return the name of the only two-dimensional array."""
    images = two_dimensional(items)
    if len(images) != 1:
        raise ValueError(
            f"The {where} has {len(images)} two-dimensional {what}s ({images}) among "
            f"{sorted(items)}. Name one of them with variable=."
        )
    return images


def two_dimensional(items: Mapping[str, Any]) -> list[str]:
    """Return the names of arrays with two dimensions; xarray may add dimensions of length 1."""
    return sorted(
        name
        for name, item in items.items()
        if (item if isinstance(item, zarr.Array) else item.squeeze()).ndim == 2
    )


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part) if part.isdigit() else -1, part) for part in re.split(r"(\d+)", name)]


def joined(
    parts: Mapping[str, Described], files: tuple[Path, ...], dims: Sequence[str] | None
) -> CubeArray:
    """Join a cube, images, or a stack of cubes to one three-dimensional array."""
    first = next(iter(parts.values()))
    attributes = dict(first.attributes)
    names: Any = first.names if dims is None else dims if isinstance(dims, str) else tuple(dims)
    array = first.values if isinstance(first.values, zarr.Array) else as_lazy(first.values)
    renamed = [_renamed(part, names) for part in parts.values()]
    center_arrays = [first.find(name) for name in CENTERS]
    wavelengths: Sequence[tuple[Any, Any]] = [
        (coordinate.values, coordinate.attributes.get("units"))
        for coordinate in center_arrays
        if coordinate is not None
    ]
    for metadata in (first.attributes, first.around):
        units = metadata.get("wavelength_units")
        wavelengths = [*wavelengths, *((metadata.get(n), units) for n in CENTERS)]
    if len(parts) > 1:
        _check_alike(parts)
        images = [as_lazy(part.values) for part in parts.values()]
        if first.values.ndim == 2:
            array = da.stack(images, axis=2).rechunk({2: -1})
            names = None if names is None else (*names[:2], "band")
        else:
            array = da.concatenate(images).rechunk({0: -1})
            centers = [part.find("wavelength") for part in parts.values()]
            own_centers = [coordinate.values for coordinate in centers if coordinate is not None]
            is_known = len(own_centers) == len(parts)
            wavelengths = [(np.concatenate(own_centers), "nm")] if is_known else []
        attributes = _attributes_of_all(parts)
    elif array.ndim == 4 and names is not None and len(names) == 4:
        array, names, wavelengths = _stacked(as_lazy(array), names, first.title, wavelengths)
    elif first.names is not None and names is not None and BAND_NAMES not in attributes:
        axes = [i for i, name in enumerate(names) if role_of(name) == "band"]
        stated = first.find(first.names[axes[0]]) if len(axes) == 1 else None
        if stated is not None and stated.values.dtype.kind in "UTO" and stated.values.ndim == 1:
            attributes[BAND_NAMES] = list(map(str, np.asarray(stated.values[:]).tolist()))
    if array.ndim != 3 or 0 in array.shape:
        of_vectors = (
            " Open a matrix of vectors by daskclust.open_table; the path of an array in a Zarr "
            "store is STORE/NAME."
        )
        raise ValueError(
            f"{first.title} must have three dimensions, y, x and band, none of them empty, got "
            f"shape {array.shape}.{of_vectors if array.ndim == 2 else ''}"
        )
    if array.dtype.kind not in "iufb":
        raise ValueError(f"{first.title} must contain numbers, got dtype {array.dtype}.")
    good_bands = [
        coordinate.values
        for coordinate in map(first.find, GOOD)
        if coordinate is not None and coordinate.values.ndim == 1
    ]
    if good_bands and BAD_BANDS not in attributes and good_bands[0].size in array.shape:
        attributes[BAD_BANDS] = (values_of(good_bands[0]) == 0).tolist()
    unit = (
        array.shards or array.chunks
        if isinstance(array, zarr.Array)
        else tuple(max(sizes, default=0) for sizes in array.chunks)
    )
    encoded = first.encoding.get("dtype")
    return CubeArray(
        array,
        first.title,
        names,
        unit,
        attributes,
        wavelengths,
        partial(_position_of, renamed),
        None if encoded is None else np.dtype(encoded),
        files,
    )


def _renamed(item: Described, names: Any) -> Described:
    """Return an array whose dimensions have other names, and its coordinates with them."""
    if not isinstance(names, tuple) or item.names == names:
        return item
    old_names = dict(zip(names, item.names or (), strict=False))
    new_names = {old: name for name, old in old_names.items()}

    def find(name: str) -> Coordinate | None:
        coordinate = item.find(old_names.get(name, name))
        return coordinate and replace(
            coordinate, dims=tuple(new_names.get(dim, dim) for dim in coordinate.dims)
        )

    return replace(item, names=names, find=find)


def _position_of(parts: Sequence[Described], names: tuple[str, str]) -> Georeference:
    """Return the position of a cube; raise ValueError if its bands have different positions."""
    first = parts[0]
    position, said = (
        Georeference.of(first, names),
        repr((georeference(first.attributes), first.mapping)),
    )
    for part in parts[1:]:
        # Variables of one store share its coordinates; each band file has its own.
        is_file = part.values.ndim == 3
        if is_file or repr((georeference(part.attributes), part.mapping)) != said:
            own = Georeference.of(part, names)
            wrong = position.differences(own, "the first band's")
            if is_file and [own.crs_text() is None, own.placed.transform is None] != [
                position.crs_text() is None,
                position.placed.transform is None,
            ]:
                wrong.append("one band states its coordinate system or position, and another not")
            if wrong:
                raise ValueError(
                    f"{part.title} lies elsewhere than the first band: {'; '.join(wrong)}. Bring "
                    "the bands to one grid, or name bands of the same grid in variable=."
                )
    return position


def as_lazy(array: Any) -> da.Array:
    if isinstance(array, da.Array):
        return array
    return as_dask(array) if isinstance(array, zarr.Array) else da.from_array(np.asanyarray(array))


def _check_alike(parts: Mapping[str, Described]) -> None:
    """Check that images, or band files (band, y, x), can be the bands of one cube."""
    first_name, first = next(iter(parts.items()))
    for name, part in parts.items():
        for what, mine, theirs in (
            ("dimensions", first.names, part.names),
            ("shape", first.values.shape[-2:], part.values.shape[-2:]),
            ("dtype", first.values.dtype, part.values.dtype),
        ):
            if mine != theirs:
                raise ValueError(
                    f"The bands differ in {what}: {redact(first_name)!r} has {mine}, "
                    f"{redact(name)!r} has {theirs}. Bring them to one grid and type, for example "
                    "with gdalwarp, or pass variable= with the names of those that belong together."
                )
    if first.values.ndim != 2 and first.names != ("band", "y", "x"):
        raise ValueError(
            "variable must name one cube, or several images (y, x), got "
            f"{len(parts)} variables of shape {first.values.shape}."
        )


def _attributes_of_all(parts: Mapping[str, Described]) -> dict[str, Any]:
    """Return attributes of a cube of several parts: one value if all agree, else one per band."""
    attributes = [part.attributes for part in parts.values()]
    sizes = [1 if part.values.ndim == 2 else len(part.values) for part in parts.values()]

    def by_band(key: str, neutral: Any) -> list[Any]:
        of_parts = [each.get(key, neutral) for each in attributes]
        pairs = zip(of_parts, sizes, strict=True)
        return [item for v, n in pairs for item in (v if isinstance(v, list) else [v] * n)]

    common: dict[str, Any] = {
        key: value
        for key, value in attributes[0].items()
        if key not in (BAD_BANDS, BAND_NAMES, NODATA_OF_BANDS)
        and len({repr(np.asarray(each.get(key)).tolist()) for each in attributes}) == 1
        and not (key in _SCALES and isinstance(value, list))
    }
    for key, neutral in _SCALES.items():
        if any(key in each for each in attributes) and key not in common:
            common[key] = [float(value) for value in by_band(key, neutral)]
    if any(BAD_BANDS in each for each in attributes):
        common[BAD_BANDS] = by_band(BAD_BANDS, False)
    nodata = [
        {name: each[name] for name in (*NODATA_ATTRIBUTES, NODATA_OF_BANDS) if name in each}
        for each in attributes
    ]
    if len({*map(repr, nodata)}) > 1 or NODATA_OF_BANDS in nodata[0]:
        common = {key: value for key, value in common.items() if key not in NODATA_ATTRIBUTES}
        common[NODATA_OF_BANDS] = [
            values
            for of_parts, n in zip(nodata, sizes, strict=True)
            for values in of_parts.get(NODATA_OF_BANDS)
            or [[item for v in of_parts.values() for item in (v if np.ndim(v) else [v])]] * n
        ]
    for key in ("_Unsigned", *_RANGES):
        if key not in common and any(key in each for each in attributes):
            stated = {name: part.attributes.get(key) for name, part in parts.items()}
            raise ValueError(
                f"The bands must have the same {key}, got {stated}. Mask them with xarray first, "
                "and pass the Dataset."
            )
    common[BAND_NAMES] = [
        name
        for (key, part), n in zip(parts.items(), sizes, strict=True)
        for name in (
            [key]
            if part.values.ndim == 2
            else part.attributes.get(BAND_NAMES, [Path(key).stem] * n)
        )
    ]
    return common


def _stacked(
    array: da.Array, names: tuple[str, ...], title: str, wavelengths: Sequence[tuple[Any, Any]]
) -> tuple[da.Array, tuple[str, ...], Sequence[tuple[Any, Any]]]:
    """Flatten two axes, such as dates and bands, to one axis of features; the last runs fastest."""
    roles = [role_of(name) for name in names]
    inner = [axis for axis, role in enumerate(roles) if role == "band"]
    if sorted(map(str, roles)) != ["band", "band", "x", "y"]:
        raise ValueError(
            f"{title} must have the dimensions y, x, and two of time and band, got {names}. Pass "
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
        meta=cut._meta.reshape((0, 0, 0)),
    )
    centers = _metadata.find_wavelengths(wavelengths, last)
    tiled = [] if centers is None else [(np.tile(centers, outer), "nm")]
    return flat, (names[y], names[x], "band"), tiled


def _flat(block: Any) -> Any:
    return block.reshape(*block.shape[:2], -1)


_RESAMPLE = (
    "To resample it to the grid of the cube (nearest pixel), pass resample=True to open_map or "
    "rows_of (--resample-labels)."
)


@dataclass(frozen=True)
class Image:
    """An image (y, x), lazy or not, with its metadata.

    `nodata` are the nodata values of its attributes. `colors` are stated colors as ``#rrggbb``.
    `stated` are the codes of features, including features that label no pixel. `by_name` is True if
    codes were assigned to names, so that values of the user are not codes. `features` are the
    rasterized features, and `units` is a lazy image of their numbers, -1 for no feature.
    """

    values: Any
    nodata: tuple[int, ...] = ()
    position: Georeference = NOWHERE
    meanings: dict[int, str] | None = None
    colors: dict[int, str] | None = None
    stated: tuple[int, ...] = ()
    by_name: bool = False
    features: tuple[Features, ...] = ()
    units: da.Array | None = None


def open_image(
    name: str,
    image: Any,
    shape: tuple[int, int],
    *,
    position: Georeference = NOWHERE,
    variable: str | None = None,
    chunks: tuple[tuple[int, ...], tuple[int, ...]] | None = None,
    class_column: str | None = None,
) -> Image:
    """Open an image and check its shape, coordinate system and position against the cube's.

    A group or store must have one two-dimensional array, or `variable` names the array. A path may
    have any format of cubes, or be a vector file (GeoJSON, GeoPackage, Shapefile) or a CSV file of
    pixels. `chunks` are the blocks of images that are rasterized or resampled. `name` is the name
    of the argument in messages.
    """
    if are_features(image):
        return _from_features(image, pixel_grid(position, shape), chunks, class_column, variable)
    if class_column is not None:
        raise ValueError(
            f"class_column={class_column!r}, but {name} has no columns. Omit class_column."
        )
    opened = read_image(name, image, variable)
    # Resampling is not suggested for masks: they would exclude other pixels.
    nearest = "" if name in ("mask", "scales") else f" {_RESAMPLE}"
    if opened.values.shape != shape:
        raise ValueError(
            f"{name} must have the shape of the image, {shape}, got {opened.values.shape}.{nearest}"
        )
    # An image without a position is assumed to have the position of the cube.
    differing = [] if opened.position is NOWHERE else position.differences(opened.position)
    if differing:
        raise ValueError(
            f"{name} lies elsewhere than the cube: {'; '.join(differing)}. Reproject it to the "
            "cube's grid, or pass its values as an array if the values belong to the pixels of the "
            f"cube.{nearest}"
        )
    return opened


def are_features(image: Any) -> bool:
    """Return True for a path of polygons or pixels, and for objects with features."""
    if isinstance(image, str | os.PathLike):
        return kind_of(image) in ("vector", "table")
    return hasattr(image, "__geo_interface__")


#: Value of pixels hidden by a mask, which no class has.
_HIDDEN = int(np.iinfo(np.int64).min)


def read_image(name: str, image: Any, variable: str | None = None) -> Image:
    """Open an image of any size; see :func:`open_image`."""
    if isinstance(image, Image):
        return image
    described, _ = find_arrays(image, variable, images_among, name)
    if len(described) != 1:
        raise ValueError(f"{name} must be one image, got {len(described)}: {[*described]}.")
    return image_of(name, *described.values())


def image_of(name: str, item: Described) -> Image:
    """Return an array as an image; `name` is the name of the argument in messages.

    Masked elements of a NumPy array have no label, and a mask excludes them.
    """
    values = item.values
    if isinstance(values, zarr.Array):
        return _described(item, as_dask(values))
    if item.names is not None:
        return _of_labels(name, item)
    is_lazy = isinstance(values, da.Array)
    if not np.ma.isMaskedArray(values._meta if is_lazy else values):
        return Image(_plain(name, values))
    kind = values.dtype.kind
    if kind not in "iubf" or name == "scales":
        raise no_codes(f"{name}, a masked array,", values.dtype)
    fill: Any = np.nan if kind == "f" else name == "mask" if kind == "b" else _HIDDEN
    out_type = np.int64 if kind in "iu" else values.dtype
    filled = (
        da.map_blocks(_filled, values, fill=fill, meta=np.empty((0,) * values.ndim, out_type))
        if is_lazy
        else _filled(values, fill=fill)
    )
    return Image(filled, (_HIDDEN,) if kind in "iu" else ())


def _plain(name: str, values: Any) -> Any:
    """Return an array whose blocks raise an error if they are masked arrays."""
    if not isinstance(values, da.Array):
        return np.asarray(values)
    return da.map_blocks(
        _without_mask, values, what=name, meta=values._meta, token="daskclust-plain"
    )


def _without_mask(block: Any, what: str) -> Any:
    if np.ma.is_masked(block):
        raise ValueError(
            f"A block of {what} is a masked array, but its Dask array has no mask. Build it from "
            "masked arrays only, or replace masked values by a label that means no label."
        )
    return block


def _filled(values: Any, *, fill: Any) -> NDArray[Any]:
    if values.dtype.kind not in "iu":
        return np.ma.filled(values, fill)
    plain = np.where(np.ma.getmaskarray(values), 0, np.ma.getdata(values))
    if plain.dtype == np.uint64 and plain.size and plain.max() > np.iinfo(np.int64).max:
        raise ValueError(f"label_map must contain labels below 2**63, got {plain.max()}.")
    return np.where(np.ma.getmaskarray(values), fill, plain.astype(np.int64))


def _from_features(
    source: Any,
    grid: PixelGrid,
    chunks: tuple[tuple[int, ...], tuple[int, ...]] | None,
    class_column: str | None,
    layer: str | None,
) -> Image:
    """Return an image of the classes of polygons, or of single pixels, on the cube's grid."""
    cut = chunks or ((grid.shape[0],), (grid.shape[1],))
    is_path = isinstance(source, str | os.PathLike)
    if is_path and (kind_of(source) == "table" or (grid.crs is None and has_pixels(source))):
        if layer is not None:
            raise ValueError(f"variable={layer!r}, but the file has no layers. Omit variable.")
        rows, columns, classes = read_points(source, grid, class_column=class_column)
        values: Any = points_image(rows, columns, classes.codes, cut)
    else:
        values, classes = rasterize(source, grid, cut, class_column=class_column, layer=layer)
    features = () if classes.features is None else (classes.features,)
    return Image(
        values,
        (-1,),
        NOWHERE,
        classes.names,
        stated=tuple(np.unique(classes.codes[classes.codes >= 0]).tolist()),
        by_name=classes.names is not None,
        features=features,
        units=features[0].numbers if features else None,
    )


def _of_labels(name: str, item: Described) -> Image:
    """Return labels of an xarray object or a raster file as an image; missing labels are -1."""
    values, names = item.values, item.names or ()
    if values.ndim == 3:
        # A raster file may have one band and an alpha band.
        is_bad = item.attributes.get("bad_bands")
        band = next((axis for axis, dim in enumerate(names) if role_of(dim) == "band"), None)
        if band is not None and is_bad is not None and len(is_bad) == values.shape[band]:
            kept = np.flatnonzero(~np.asarray(is_bad, bool))
            values = values[(slice(None),) * band + (kept,)]
            nodata = item.attributes.get(NODATA_OF_BANDS)
            if nodata is not None and len(kept) == 1:
                item = replace(
                    item, attributes={**item.attributes, "missing_value": nodata[kept[0]]}
                )
        if band is not None and values.shape[band] > 1:
            raise ValueError(
                f"{name} must have one band, of labels, got {values.shape[band]}. Select a band, "
                "for example with gdal_translate -b 1."
            )
        single = [axis for axis, size in enumerate(values.shape) if size == 1]
        dropped = single if band not in single else [band]
        values = values.squeeze(tuple(dropped))
        names = tuple(dim for axis, dim in enumerate(names) if axis not in dropped)
    values = _plain(name, values)
    if values.dtype.kind == "f" and np.dtype(item.encoding.get("dtype", float)).kind in "iu":
        # Integers with a _FillValue, or a mask, were converted to floats with NaN.
        missing = np.isnan(values)
        where = da.where if isinstance(values, da.Array) else np.where
        values = where(missing, -1, values).astype(np.int64)
    return _described(replace(item, names=names, values=values), values)


def _described(item: Described, values: Any) -> Image:
    """Create an image with rows from north to south from values and metadata."""
    position = NOWHERE
    if item.names is not None and len(item.names) == 2:
        names = item.names[0], item.names[1]
        if role_of(names[0]) == "x":
            names = names[::-1]
            values = values.T if role_of(names[0]) == "y" else values
        position = Georeference.of(item, names)
    described = {**item.encoding, **item.attributes}
    return Image(
        values,
        _nodata(described),
        position,
        read_meanings(described),
        read_colors(described) or None,
    )


def _nodata(attributes: Any) -> tuple[int, ...]:
    values = [
        decode_fill_value(item)
        for value in (attributes[name] for name in NODATA_ATTRIBUTES if name in attributes)
        for item in (value if np.ndim(value) else [value])
    ]
    return tuple({int(value) for value in values if math.isfinite(value) and value == int(value)})
