"""NetCDF and HDF5 by xarray: undecoded values in the file's own chunks."""

from __future__ import annotations

import os
from typing import Any

import dask
import numpy as np

from daskclust.cube.formats.found import BAD_BANDS, needs_extra
from daskclust.cube.formats.wavelengths import in_nm, truth_values
from daskclust.storage.files import unanswered, url_options
from daskclust.storage.urls import redact

__all__ = ["open_netcdf"]

_CENTERS = ("wavelengths", "wavelength", "center_wavelength", "center_wavelengths")
#: Of EMIT and its like: 1 where a band is good.
_GOOD = ("good_wavelengths", "good_bands")


def open_netcdf(path: str | os.PathLike[str], *, classic: bool) -> Any:
    """Open the top group of a NetCDF or HDF5 file as a lazy, undecoded ``xarray.Dataset``.

    `classic` is NetCDF 3, which is not an HDF5 file. Wavelengths and lists of good bands are also
    looked for in the groups below (EMIT keeps them in ``sensor_band_parameters``). A server that
    gives no answer within ``daskclust.read-timeout`` is an OSError.
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
        found = xarray.open_dataset(path, chunks={}, **options)
        groups = {} if classic else xarray.open_groups(path, **options)
    except Exception as error:  # of parsers of bytes: whatever damage makes of them
        if unanswered(error):
            limit = dask.config.get("daskclust.read-timeout")
            raise OSError(
                f"{redact(path)!r} cannot be read: the server gave no answer within {limit}. Check "
                "it, or raise daskclust.read-timeout."
            ) from error
        if isinstance(error, FileNotFoundError):
            raise FileNotFoundError(
                f"There is no file {redact(path)!r}; give the path or URL of an existing one."
            ) from error
        raise OSError(
            f"{redact(path)!r} cannot be read as NetCDF or HDF5: {redact(error)}. Is the file "
            "whole?"
        ) from error
    below = [group for name, group in groups.items() if name != "/"]
    return _with_bands(found, below)


def _with_bands(dataset: Any, groups: list[Any]) -> Any:
    """Add wavelengths and bad bands from the groups below to the cubes that they fit."""
    for name, cube in dataset.data_vars.items():
        if cube.ndim != 3:
            continue
        # Of the lengths of the cube, the one that a list of wavelengths has is that of its bands.
        for group in groups:
            centers = _first(group, _CENTERS)
            if centers is None or centers.ndim != 1 or centers.size not in cube.shape:
                continue
            n = centers.size
            values = in_nm(np.asarray(centers.values), centers.attrs.get("units"), n)
            dimension = cube.dims[[int(size) for size in cube.shape].index(n)]
            if values is not None and "wavelength" not in cube.coords:
                dataset = dataset.assign_coords(wavelength=(dimension, values, {"units": "nm"}))
            good = _first(group, _GOOD)
            stated = None if good is None else truth_values(np.asarray(good.values), n)
            if stated is not None:
                dataset[name].attrs[BAD_BANDS] = (~stated).tolist()
    return dataset


def _first(group: Any, names: tuple[str, ...]) -> Any:
    return next((group[name] for name in names if name in group.variables), None)
