"""Clouds over an image time series: a mask of each date, laid over all its bands."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import zarr

from daskclust.cube._metadata import role_of

__all__ = ["without_clouds"]

#: Roles of the axes of an array without names.
_ROLES = ("band", "y", "x")


def without_clouds(array: Any, order: tuple[int, ...], clouds: Any) -> da.Array:
    """Return a cube (y, x, band) that has no data where there are clouds; lazy.

    Parameters
    ----------
    array : zarr.Array, numpy.ndarray or dask.array.Array
        Of three dimensions; dates run slowest among its bands.
    order : tuple of int
        Its axes y, x and band.
    clouds : array of shape (date, y, x), bool
        With named dimensions in any order.

    Raises
    ------
    ValueError
        For other types and shapes.
    """
    roles = tuple(role_of(str(name)) for name in getattr(clouds, "dims", ())) or _ROLES
    values = getattr(clouds, "data", clouds) if hasattr(clouds, "dims") else clouds
    image = _lazy(array).transpose(order)
    if sorted(map(str, roles)) != ["band", "x", "y"]:
        raise ValueError(
            f"mask has the dimensions {clouds.dims}; expected time, y and x. Rename them."
        )
    mask = _lazy(values).transpose([roles.index(role) for role in ("y", "x", "band")])
    if mask.dtype != bool:
        raise ValueError(
            f"mask has dtype {mask.dtype}; expected bool, True where a pixel is under clouds."
        )
    dates, bands = mask.shape[2], image.shape[2]
    if mask.shape[:2] != image.shape[:2] or not dates or bands % dates:
        raise ValueError(
            f"mask has shape {mask.shape} as (y, x, date), the cube {image.shape} as (y, x, band); "
            "expected the same pixels, and a whole number of bands for each date."
        )
    mask = da.repeat(mask, bands // dates, axis=2).rechunk(image.chunks)
    return da.ma.masked_array(image, mask=mask)


def _lazy(array: Any) -> da.Array:
    if isinstance(array, da.Array):
        return array
    if isinstance(array, zarr.Array):
        return da.from_zarr(array)
    return da.from_array(np.asanyarray(array))
