"""Images of the size of a cube: masks and label maps, from whatever holds them."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
import zarr
from numpy.typing import NDArray

from daskclust.cube._georeference import NOWHERE, Georeference, PixelGrid, pixel_grid
from daskclust.cube._metadata import (
    NODATA_ATTRIBUTES,
    attributes_of,
    dimension_names,
    read_colors,
    read_meanings,
    role_of,
)
from daskclust.cube._sources import open_path
from daskclust.cube.formats.opening import kind_of
from daskclust.cube.formats.vector import (
    no_codes,
    points_image,
    rasterize_file,
    read_points,
    says_pixels,
)
from daskclust.storage.seen import as_dask
from daskclust.storage.stores import array_of, arrays_of, decode_fill_value

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
