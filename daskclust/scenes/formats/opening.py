"""Choice of the reader of a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import dask
import dask.array as da
import numpy as np

from daskclust.core.storage.files import unanswered
from daskclust.core.storage.npy import NpyFile
from daskclust.core.storage.redact import redact
from daskclust.core.storage.stored_array import SeenFiles
from daskclust.core.storage.stores import url_options
from daskclust.scenes._georeference import Described
from daskclust.scenes.formats.format_detection import OF_BANDS, needs_extra
from daskclust.scenes.formats.raster import open_raster, zipped_image


def open_netcdf(path: str | os.PathLike[str], *, classic: bool) -> Any:
    """Open the top group of a NetCDF or HDF5 file as a lazy, undecoded ``xarray.Dataset``.

    `classic` means NetCDF 3, which is not HDF5. Wavelengths and lists of good bands may also be in
    groups below (EMIT stores them in ``sensor_band_parameters``). OSError is raised if a server
    does not answer within ``daskclust.read-timeout``.
    """
    engine = "scipy" if classic else "h5netcdf"
    with needs_extra(f"{str(path)!r}"):
        import xarray

        if not classic:
            import h5netcdf  # noqa: F401
            import h5py  # noqa: F401
    options: dict[str, Any] = {"engine": engine, "mask_and_scale": False, "decode_coords": "all"}
    if not classic:
        # HDF5 files that are not NetCDF have dimensions without names.
        options["phony_dims"] = "access"
        if limits := url_options(str(path)):
            options["storage_options"] = limits
    try:
        dataset = xarray.open_dataset(path, chunks={}, **options)
        groups = {} if classic else xarray.open_groups(path, **options)
    except Exception as error:  # errors of parsers, which damaged files cause
        if unanswered(error):
            limit = dask.config.get("daskclust.read-timeout")
            raise OSError(
                f"{redact(path)!r} cannot be read: the server gave no answer within {limit}. Check "
                "it, or raise daskclust.read-timeout."
            ) from error
        if isinstance(error, FileNotFoundError):
            raise FileNotFoundError(
                f"The file {redact(path)!r} does not exist. Use the path or URL of an existing "
                f"file."
            ) from error
        raise OSError(
            f"{redact(path)!r} cannot be read as NetCDF or HDF5: {redact(error)}. Is the file "
            "complete?"
        ) from error
    # Files at URLs are not compared.
    files = SeenFiles([path])
    for variable in dataset.data_vars.values():
        if dask.is_dask_collection(variable.data):
            variable.data = variable.data.map_blocks(
                files.having_read, dtype=variable.dtype, meta=variable.data._meta
            )
    sizes = {
        size
        for variable_found in dataset.data_vars.values()
        if variable_found.ndim == 3
        for size in variable_found.shape
    }
    for name in OF_BANDS:
        in_groups = (group[name] for group in groups.values() if name in group.variables)
        variable_found = next(
            (item for item in in_groups if item.ndim == 1 and item.size in sizes), None
        )
        if variable_found is not None and name not in dataset.variables:
            # A new axis, because the group may have another axis with this name.
            dataset[name] = (f"{name} of a group", variable_found.values, variable_found.attrs)
    return dataset


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
    """Return the kind of a file by its first bytes, else by its suffix.

    Folders are Zarr stores. The kind of a URL depends on its suffix.

    >>> kind_of("scene.zarr"), kind_of("s3://bucket/scene.tif"), kind_of("rows.csv.gz")
    ('zarr', 'raster', 'table')
    """
    name = os.fspath(path)
    plain = name.rstrip("/").lower()
    if "://" in name or plain.startswith("/vsi"):
        plain = plain.split("?")[0].split("#")[0].rstrip("/")
    ending = ".csv" if plain.endswith(".csv.gz") else os.path.splitext(plain)[1]
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


def _existing(name: str) -> str:
    """Return the absolute path of a file, which is valid for workers in other directories."""
    if "://" in name:
        return name
    if not Path(name).exists():
        raise FileNotFoundError(
            f"The file {redact(name)!r} does not exist. Use the path of an existing file."
        )
    return str(Path(name).absolute())


def open_file(path: str | os.PathLike[str]) -> Any:
    """Open an image file other than a Zarr store, lazy and undecoded.

    Return a described array for a raster, a Dataset for NetCDF, and a Dask array for ``.npy``.
    """
    name = os.fspath(path)
    name = name if name.startswith("/vsi") else _existing(name)
    kind = kind_of(name)
    if kind == "npy":
        npy_file = NpyFile(Path(name))
        meta = np.empty((0,) * npy_file.ndim, npy_file.dtype)
        return da.from_array(npy_file, chunks="auto", asarray=False, meta=meta)
    if kind in ("netcdf", "netcdf3"):
        return open_netcdf(name, classic=kind == "netcdf3")
    if kind in ("table", "vector"):
        raise ValueError(
            "The image must be in Zarr, NetCDF, GeoTIFF, ENVI or .npy format, got the "
            f"{kind} file {redact(name)!r}."
        )
    return open_raster(name)


def open_files(paths: Sequence[str | os.PathLike[str]]) -> dict[str, Described]:
    """Open band files as images by their paths, in the order given."""
    if not paths:
        raise ValueError("The list of band files must name at least one file, got an empty list.")
    images: dict[str, Described] = {}
    for path in paths:
        if kind_of(path) != "raster":
            raise ValueError(
                f"Band files must be GeoTIFF, JPEG 2000 or ENVI files, got {redact(path)!r}."
            )
        name = _existing(os.fspath(path))
        if name in images:
            raise ValueError(
                f"The list of band files must name each file once, got {name!r} twice."
            )
        images[name] = open_raster(name)
    return images
