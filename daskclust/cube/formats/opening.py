"""Which reader a file needs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from daskclust.cube.formats.netcdf import open_netcdf
from daskclust.cube.formats.numpy_files import open_npy
from daskclust.cube.formats.raster import open_raster, open_rasters, zipped_image
from daskclust.storage.urls import redact

__all__ = ["Kind", "kind_of", "open_file", "open_files"]

Kind = Literal["zarr", "netcdf", "netcdf3", "npy", "raster", "table", "vector"]

_BY_ENDING: dict[str, Kind] = {
    ".zarr": "zarr",
    ".zip": "zarr",
    ".nc": "netcdf",
    ".nc4": "netcdf",
    ".cdf": "netcdf",
    ".h5": "netcdf",
    ".hdf5": "netcdf",
    ".he5": "netcdf",
    ".npy": "npy",
    ".tif": "raster",
    ".tiff": "raster",
    ".vrt": "raster",
    ".hdr": "raster",
    ".img": "raster",
    ".jp2": "raster",
    ".parquet": "table",
    ".csv": "table",
    ".geojson": "vector",
    ".gpkg": "vector",
    ".shp": "vector",
}
_ZIP = b"PK\x03\x04"
_BY_START: tuple[tuple[bytes, Kind], ...] = (
    (b"\x89HDF\r\n\x1a\n", "netcdf"),
    (b"CDF\x01", "netcdf3"),
    (b"CDF\x02", "netcdf3"),
    (b"CDF\x05", "netcdf3"),
    (b"\x93NUMPY", "npy"),
    (b"II*\x00", "raster"),
    (b"MM\x00*", "raster"),
    (b"II+\x00", "raster"),
    (b"MM\x00+", "raster"),
    (_ZIP, "zarr"),
    (b"PAR1", "table"),
)


def kind_of(path: str | os.PathLike[str]) -> Kind:
    """Return the kind of a file by its first bytes, else by the ending of its name.

    Folders are Zarr stores; URLs go by their ending.

    >>> kind_of("scene.zarr"), kind_of("s3://bucket/scene.tif"), kind_of("fields.geojson")
    ('zarr', 'raster', 'vector')
    """
    name = os.fspath(path)
    plain = name.split("?")[0].split("#")[0].rstrip("/")
    ending = os.path.splitext(plain)[1].lower()
    if "://" not in name and os.path.isfile(name):
        with open(name, "rb") as file:
            start = file.read(8)
        if start.startswith(_ZIP) and zipped_image(name) is not None:
            return "raster"
        for mark, kind in _BY_START:
            if start.startswith(mark):
                return kind
        return _BY_ENDING.get(ending, "raster")
    return _BY_ENDING.get(ending, "zarr")


def open_file(path: str | os.PathLike[str]) -> Any:
    """Open an image file other than a Zarr store: a lazy xarray object or Dask array, undecoded."""
    name = os.fspath(path)
    local = "://" not in name and not name.startswith("/vsi")
    if local and not Path(name).exists():
        raise FileNotFoundError(
            f"There is no file {redact(name)!r}; give the path of an existing one."
        )
    if local:
        # Absolute, so that a worker with another working directory finds it.
        name = str(Path(name).absolute())
    kind = kind_of(name)
    if kind == "npy":
        return open_npy(name)
    if kind in ("netcdf", "netcdf3"):
        return open_netcdf(name, classic=kind == "netcdf3")
    if kind in ("table", "vector"):
        raise ValueError(
            f"{redact(name)!r} is a {kind} file, no image; expected Zarr, NetCDF, GeoTIFF, "
            "ENVI or .npy."
        )
    return open_raster(name)


def open_files(paths: Sequence[str | os.PathLike[str]]) -> Any:
    """Open band files of one grid as one image, in the order given."""
    if not paths:
        raise ValueError("The list of band files is empty; give one path a band.")
    for path in paths:
        if kind_of(path) != "raster":
            raise ValueError(
                f"{redact(path)!r} is no raster file; expected a list of GeoTIFF, JPEG 2000 or "
                "ENVI files, one or more bands each."
            )
        if "://" not in os.fspath(path) and not Path(path).exists():
            raise FileNotFoundError(
                f"There is no file {redact(path)!r}; give the path of an existing one."
            )
    names = [_absolute(path) for path in paths]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(
                f"The list of band files names {redact(name)!r} twice; expected each file once."
            )
    return open_rasters(names)


def _absolute(path: str | os.PathLike[str]) -> str:
    name = os.fspath(path)
    return name if "://" in name else str(Path(name).absolute())
