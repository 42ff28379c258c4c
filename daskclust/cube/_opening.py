"""Finding the cube in a store, an xarray object or an array."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import dask.array as da
import numpy as np
import zarr
from numpy.typing import ArrayLike

from daskclust.cube._blocks import BlockGrid, CubeSource, Scaling
from daskclust.cube._cube import Cube
from daskclust.cube._georeference import NOWHERE, Georeference
from daskclust.cube._images import open_image
from daskclust.cube._layout import flatten
from daskclust.cube._metadata import (
    WAVELENGTH_NAMES,
    check_choice,
    check_signs,
    choose_block,
    dimension_names,
    find_dimensions,
    find_variable,
    find_wavelengths,
    kept_bands,
    nodata_values,
)
from daskclust.cube._survey import sample_dtype
from daskclust.storage.seen import StoredArray
from daskclust.storage.stores import open_store

__all__ = ["open_cube"]


@dataclass(frozen=True)
class _Found:
    """A three-dimensional array, and what is said about it.

    Attributes
    ----------
    array : zarr.Array or dask.array.Array
    title : str
        For messages.
    names : tuple of str, or None
    unit : tuple of int
        What one read takes along each axis: a shard or chunk.
    attributes : mapping
    wavelengths : list of (values, units)
        Candidates.
    place : callable(names of y and x) -> Georeference
    """

    array: Any
    title: str
    names: tuple[str, ...] | None
    unit: tuple[int, ...]
    attributes: Mapping[str, Any]
    wavelengths: Sequence[tuple[Any, Any]]
    place: Callable[[tuple[str, str]], Georeference]


def _in_zarr(node: zarr.Group | zarr.Array, variable: str | None) -> _Found:
    group = node if isinstance(node, zarr.Group) else None
    array = find_variable(node, variable)
    candidates: list[tuple[Any, Any]] = []
    for name in WAVELENGTH_NAMES:
        found = None if group is None else group.get(name)
        if isinstance(found, zarr.Array):
            candidates.append((found, found.attrs.get("units")))
    for attributes in (array.attrs, {} if group is None else group.attrs):
        units = attributes.get("wavelength_units")
        candidates += [(attributes.get(name), units) for name in WAVELENGTH_NAMES]
    return _Found(
        array,
        f"The array {array.path!r}",
        dimension_names(array),
        array.shards or array.chunks,
        dict(array.attrs),
        candidates,
        lambda names: Georeference.from_zarr(array, group, names),
    )


def _in_xarray(item: Any, variable: str | None) -> _Found:
    if hasattr(item, "data_vars"):
        names = [str(name) for name in item.data_vars]
        cubes = [name for name in names if item[name].ndim == 3]
        if variable is None and len(cubes) != 1:
            raise ValueError(
                f"The Dataset has {len(cubes)} three-dimensional variables ({cubes}) among "
                f"{names}; pass variable= to say which is the cube."
            )
        if variable is not None and variable not in names:
            raise KeyError(f"No variable {variable!r} in the Dataset; it has {names}.")
        item = item[variable or cubes[0]]
    elif variable is not None:
        raise ValueError(f"variable={variable!r}, but a DataArray is one; leave variable out.")
    # A variable that xarray has not read yet stays unread.
    lazy = item if item.chunks is not None else item.chunk()
    coordinates = [
        (item.coords[n].values, item.coords[n].attrs.get("units"))
        for n in WAVELENGTH_NAMES
        if n in item.coords
    ]
    units = item.attrs.get("wavelength_units")
    return _Found(
        lazy.data,
        f"The DataArray {item.name!r}",
        tuple(map(str, item.dims)),
        tuple(max(sizes) for sizes in lazy.data.chunks),
        dict(item.attrs),
        coordinates + [(item.attrs.get(name), units) for name in WAVELENGTH_NAMES],
        lambda names: Georeference.from_xarray(item, names),
    )


def _in_array(array: Any) -> _Found:
    lazy = array if isinstance(array, da.Array) else da.from_array(array)
    unit = tuple(max(sizes) for sizes in lazy.chunks)
    return _Found(lazy, "The array", None, unit, {}, [], lambda names: NOWHERE)


def _find(store: Any, variable: str | None) -> _Found:
    if hasattr(store, "dims") and hasattr(store, "coords"):
        found = _in_xarray(store, variable)
    elif isinstance(store, da.Array | np.ndarray):
        if variable is not None:
            raise ValueError(f"variable={variable!r}, but an array is one; leave variable out.")
        found = _in_array(store)
    else:
        return _in_zarr(open_store(store), variable)
    if found.array.ndim != 3 or 0 in found.array.shape:
        raise ValueError(
            f"{found.title} has shape {found.array.shape}; expected three dimensions, y, x and "
            "band, none of them empty."
        )
    if found.array.dtype.kind not in "iufb":
        raise ValueError(f"{found.title} has dtype {found.array.dtype}; expected numbers.")
    return found


def open_cube(
    store: Any,
    *,
    variable: str | None = None,
    nodata: float | Literal["auto"] | None = "auto",
    mask: Any = None,
    bad_bands: ArrayLike | None = None,
    scale: Literal["none", "standard", "unit"] | tuple[ArrayLike, ArrayLike] = "none",
    dims: Sequence[str] | None = None,
    missing: Literal["mask", "nan"] = "mask",
    chunks: tuple[int, int] | None = None,
) -> Cube:
    """Open an image cube in Zarr, or one that xarray or Dask holds.

    Parameters
    ----------
    store : str, path, zarr store, zarr.Group, zarr.Array, xarray object or array
        Zarr v2 or v3; a ``.zip`` path is a zip store, and a URL is opened by fsspec
        (whose package for the protocol must be installed).  With a distributed
        cluster, workers must see it under the same path.  Or an ``xarray.Dataset`` or
        ``DataArray``, whose values are read as xarray has them; or a Dask or NumPy
        array, with `dims`.
    variable : str, default=None
        Array inside a group or Dataset; None takes the only three-dimensional one.
    nodata : float, None or "auto", default="auto"
        Value that means "no data", besides NaN.  ``"auto"`` reads the attributes
        ``_FillValue``, ``missing_value`` and ``nodata`` (never Zarr's own
        ``fill_value``, which says how unwritten chunks read); None means no value does.
    mask : array of shape (y, x), bool, default=None
        True excludes a pixel.  A NumPy, Dask, Zarr or xarray array, or a store of one.
    bad_bands : array of bool, shape (band,), or of int, default=None
        Bands to drop: True, or the numbers.
    scale : {"none", "standard", "unit"} or (mean, std), default="none"
        ``"standard"``: every band to mean 0 and variance 1 over the valid pixels;
        ``"unit"``: every spectrum to length 1.  A pair of arrays, one value a band
        kept: minus the one, divided by the other; see :attr:`Cube.scaling`.
    dims : sequence of str, default=None
        Names of the dimensions in stored order, for an array that has none, or
        other ones than the usual; for example ``("y", "x", "band")``.
    missing : {"mask", "nan"}, default="mask"
        What happens to a pixel with "no data" in some kept bands: excluded, or
        kept with NaN there (for estimators that accept NaN).
    chunks : tuple of int, default=None
        Rows and columns of a block; None takes those of the store (its shards, if
        it has any).  Row numbers depend on it.

    Returns
    -------
    Cube

    Raises
    ------
    FileNotFoundError
        No Zarr store there.
    KeyError
        No such `variable`.
    ValueError
        Dimensions without a (known) name, no or several candidate variables, or a
        parameter outside its range.

    Warns
    -----
    PerformanceWarning
        Blocks of the store are too large to hold all bands at once and get divided,
        so that its chunks are read several times.

    Notes
    -----
    Values are taken as stored: ``scale_factor`` and ``add_offset`` are not applied.
    Opening reads metadata only.

    Examples
    --------
    >>> from daskclust.datasets import make_hyperspectral_cube
    >>> group = make_hyperspectral_cube(
    ...     zarr.storage.MemoryStore(), shape=(40, 60), n_bands=10, chunks=(20, 30),
    ...     random_state=0)
    >>> cube = open_cube(group)
    >>> cube.shape, cube.samples.numblocks, cube.n_valid + cube.n_masked
    ((40, 60, 10), (4, 1), 2400)
    """
    if isinstance(scale, str):
        check_choice("scale", scale, ("none", "standard", "unit"))
    check_choice("missing", missing, ("mask", "nan"))
    found = _find(store, variable)
    array = found.array
    order, names = find_dimensions(dims or found.names, found.title, array.shape)
    height, width, n_bands = (int(array.shape[axis]) for axis in order)
    bands = kept_bands(bad_bands, n_bands)
    unit = found.unit[order[0]], found.unit[order[1]]
    grid = BlockGrid(
        (height, width), choose_block((height, width, n_bands), unit, array.dtype, chunks)
    )
    place = found.place(names)
    source = CubeSource(
        array=StoredArray(array) if isinstance(array, zarr.Array) else None,
        order=order,
        dtype=array.dtype,
        n_stored=n_bands,
        bands=bands,
        nodata=nodata_values(found.attributes, array.dtype, nodata),
        keep_incomplete=missing == "nan",
        grid=grid,
        masked=isinstance(array, da.Array) and np.ma.isMaskedArray(array._meta),
    )
    check_signs(found.attributes, array.dtype, found.title)
    wavelengths = find_wavelengths(found.wavelengths, n_bands)
    if wavelengths is not None and bands is not None:
        wavelengths = wavelengths[bands]
    return Cube(
        source,
        pixels=None if source.array is not None else flatten(array.transpose(order), grid),
        excluded=None if mask is None else flatten(_read_mask(mask, grid.shape, place), grid),
        scale=scale if isinstance(scale, str) else _fixed_scaling(scale, source),
        wavelengths=wavelengths,
        place=place,
        attributes=found.attributes,
        dimension_names=names,
    )


def _fixed_scaling(scale: Any, source: CubeSource) -> Scaling:
    try:
        mean, std = (np.asarray(part, dtype=np.float64) for part in scale)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"scale={scale!r}; expected 'none', 'standard', 'unit' or a pair (mean, std)."
        ) from error
    expected = (source.n_bands,)
    if mean.shape != expected or std.shape != expected:
        raise ValueError(
            f"scale has shapes {mean.shape} and {std.shape}; expected {expected} twice, one value "
            "for each band kept."
        )
    if not (np.isfinite(mean).all() and np.isfinite(std).all() and (std > 0).all()):
        raise ValueError("scale holds values that are not finite, or standard deviations of 0.")
    return Scaling("standard", sample_dtype(source.dtype), mean=mean, std=std)


def _read_mask(mask: Any, shape: tuple[int, int], place: Georeference) -> Any:
    values = open_image("mask", mask, shape, place=place).values
    if values.dtype != bool:
        raise ValueError(
            f"mask has dtype {values.dtype}; expected bool, True where a pixel is excluded."
        )
    return values
