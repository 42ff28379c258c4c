"""Where a cube lies: the array in a store, file, xarray object or array, and what is said of it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import zarr

from daskclust.cube import _metadata
from daskclust.cube._georeference import NOWHERE, Georeference
from daskclust.cube.formats.found import BAD_BANDS
from daskclust.cube.formats.opening import kind_of, open_file, open_files
from daskclust.storage.seen import as_dask, values_of
from daskclust.storage.stores import array_of, arrays_of, local_path, open_store

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
        raise ValueError(
            f"{found.title} has shape {array.shape}; expected three dimensions, y, x and "
            "band, none of them empty."
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
    **more: Any,
) -> Found:
    """Make one three-dimensional array of a cube, of images, or of a stack of cubes."""
    first = next(iter(parts.values()))
    attributes = dict(first.attributes)
    names: Any = first.names if dims is None else dims if isinstance(dims, str) else tuple(dims)
    array = first.array
    if len(parts) > 1:
        _check_alike(parts)
        array = da.stack([_lazy(part.array) for part in parts.values()], axis=2)
        array = array.rechunk({2: -1})
        names = None if names is None else (*names[:2], "band")
        attributes = _attributes_of_all(parts)
    elif array.ndim == 4 and names is not None and len(names) == 4:
        array, names, wavelengths = _stacked(_lazy(array), names, title, wavelengths)
    if good is not None and BAD_BANDS not in attributes and len(good) in array.shape:
        attributes[BAD_BANDS] = (np.asarray(good) == 0).tolist()
    return Found(array, title, names, _unit(array), attributes, wavelengths, place, **more)


def _lazy(array: Any) -> Any:
    return as_dask(array) if isinstance(array, zarr.Array) else array


def _unit(array: Any) -> tuple[int, ...]:
    if isinstance(array, zarr.Array):
        return tuple(array.shards or array.chunks)
    return tuple(max(sizes, default=0) for sizes in array.chunks)


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
    found["band_names"] = list(parts)
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
