"""Clouds over an image time series: a mask of each date, laid over all its bands."""

from __future__ import annotations

import os
from typing import Any

import dask.array as da
import numpy as np
import zarr

from daskclust.cube._georeference import Georeference
from daskclust.cube._images import are_features
from daskclust.cube._metadata import find_dimensions, role_of
from daskclust.cube._sources import Found, find_cube, open_path
from daskclust.storage.seen import as_dask
from daskclust.storage.stores import arrays_of

__all__ = ["as_lazy", "find_clouds", "without_clouds"]

#: Dimensions of an array without names.
_NAMES = ("time", "y", "x")


def find_clouds(mask: Any, variable: str | None = None) -> Found | None:
    """Find a mask of each date; None where the mask is one image."""
    if are_features(mask):
        return None
    if isinstance(mask, str | os.PathLike):
        mask = open_path(mask)
    counts = _dimensions(mask, variable)
    if 2 in counts or not counts & {3, 4}:
        return None
    found = find_cube(mask, variable, None)
    return found if found.names is not None else find_cube(mask, variable, _NAMES)


def _dimensions(source: Any, variable: str | None) -> set[int]:
    """Numbers of dimensions among the arrays that may be meant."""
    if hasattr(source, "data_vars"):
        items = {str(name): source[name] for name in source.data_vars}
    elif isinstance(source, zarr.Group):
        items = dict(arrays_of(source))
    else:
        items = {"": source}
        variable = None
    if variable is not None:
        items = {name: item for name, item in items.items() if name == variable}
    # A raster file of one band has a dimension of length 1.
    squeeze = hasattr(source, "dims")
    return {
        sum(size > 1 for size in item.shape) if squeeze and item.ndim == 3 else item.ndim
        for item in items.values()
        if hasattr(item, "ndim")
    }


def without_clouds(
    array: Any, order: tuple[int, ...], clouds: Found, place: Georeference
) -> da.Array:
    """Return a cube (y, x, band) that has no data where there are clouds; lazy.

    `order` are the axes y, x and band of `array`; dates run slowest among its bands.
    """
    if sorted(map(str, map(role_of, clouds.names or ()))) != ["band", "x", "y"]:
        raise ValueError(
            f"mask has the dimensions {clouds.names}; expected time, y and x. Rename them."
        )
    axes, names = find_dimensions(clouds.names, "mask", clouds.array.shape)
    image, mask = as_lazy(array).transpose(order), as_lazy(clouds.array).transpose(axes)
    if mask.dtype != bool:
        raise ValueError(
            f"mask has dtype {mask.dtype}; expected bool, True where a pixel is under clouds."
        )
    dates, bands = mask.shape[2], image.shape[2]
    if mask.shape[:2] != image.shape[:2] or bands % dates:
        raise ValueError(
            f"mask has shape {mask.shape} as (y, x, date), the cube {image.shape} as (y, x, band); "
            "expected the same pixels, and a whole number of bands for each date."
        )
    differences = place.differences(clouds.place(names))
    if differences:
        raise ValueError(
            f"mask lies elsewhere than the cube: {'; '.join(differences)}. Reproject it to the "
            "cube's grid, or pass its values as an array if they do belong to these pixels."
        )
    mask = da.repeat(mask, bands // dates, axis=2).rechunk(image.chunks)
    return da.ma.masked_array(image, mask=mask)


def as_lazy(array: Any) -> da.Array:
    """Return an array of whatever kind as a Dask array."""
    if isinstance(array, da.Array):
        return array
    if isinstance(array, zarr.Array):
        return as_dask(array)
    return da.from_array(np.asanyarray(array))
