"""Images in Zarr that GDAL, rioxarray and xarray open with their place.

GDAL up to 3.10 does not read version 3 as Zarr writes it ("Unsupported codec: bytes"), and
rebuilds version 2 always; hence version 2, with the one compressor that every GDAL has.  GDAL
finds the coordinate system in the attribute ``_CRS`` of an array, and the positions in the
coordinates of its dimensions; rioxarray in the grid mapping.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import zarr
from numcodecs import Zlib

from daskclust.cube._georeference import Coordinate, Georeference
from daskclust.cube._grids import pixel_grid
from daskclust.cube.formats.vector import IDENTITY
from daskclust.storage.seen import values_of

__all__ = ["new_image"]

_LEVEL = 4
_DIMENSIONS = "_ARRAY_DIMENSIONS"


def new_image(
    group: zarr.Group,
    name: str,
    place: Georeference,
    names: tuple[str, str],
    *,
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
    dtype: np.dtype[Any],
    fill_value: float,
    attributes: Mapping[str, Any],
) -> zarr.Array:
    """Create an empty image, (y, x) or (band, y, x), and its coordinates in a Zarr group."""
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
    group.attrs.update(place.group_attributes)
    for key, found in coordinates.items():
        _write_coordinate(group, key, found)
    return group.create_array(
        name,
        shape=shape,
        chunks=chunks,
        dtype=dtype,
        compressors=Zlib(level=_LEVEL),
        fill_value=fill_value,
        # So that a block that is not there is a block that was not written.
        config={"write_empty_chunks": True},
        attributes={
            _DIMENSIONS: list(names if len(shape) == 2 else ("band", *names)),
            **attributes,
            **place.attributes,
            **_system(grid.crs),
        },
    )


def _write_coordinate(group: zarr.Group, name: str, found: Coordinate) -> None:
    values = found.values
    numeric = values.dtype.kind in "iuf"
    copy = group.create_array(
        name,
        shape=values.shape,
        chunks=values.shape,
        dtype=values.dtype if numeric else np.int32,
        compressors=Zlib(level=_LEVEL),
        # A coordinate has no "no data": a position of 0 is one.
        fill_value=None,
        config={"write_empty_chunks": True},
        attributes={_DIMENSIONS: list(found.dims), **found.attributes},
    )
    copy[...] = values_of(values) if numeric else 0


def _system(crs: str | None) -> dict[str, Any]:
    """Return the coordinate system as GDAL writes it: the same in several ways."""
    if crs is None:
        return {}
    try:
        from pyproj import CRS
        from pyproj.exceptions import CRSError
    except ImportError:
        return {"_CRS": {"wkt": crs}} if "[" in crs and "{" not in crs else {}
    try:
        known = CRS.from_user_input(crs)
    except CRSError:
        return {}
    said: dict[str, Any] = {"wkt": known.to_wkt(), "projjson": json.loads(known.to_json())}
    code = known.to_epsg()
    if code is not None:
        said["url"] = f"http://www.opengis.net/def/crs/EPSG/0/{code}"
    return {"_CRS": said}
