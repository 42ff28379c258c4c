"""Opening a cube: what is found becomes blocks of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import dask.array as da
import numpy as np
import zarr
from numpy.typing import ArrayLike

from daskclust._choices import check_choice, without_mask
from daskclust.cube._clouds import find_clouds, without_clouds
from daskclust.cube._cube import Cube
from daskclust.cube._georeference import Georeference
from daskclust.cube._images import open_image
from daskclust.cube._metadata import (
    choose_block,
    find_dimensions,
    find_wavelengths,
)
from daskclust.cube._quantization import NO_CODE, chosen_quantization, with_scales
from daskclust.cube._reading import CubeSource
from daskclust.cube._scaling import Scaling
from daskclust.cube._sources import find_cube
from daskclust.cube._survey import sample_dtype
from daskclust.cube._values import NODATA_ATTRIBUTES, Meaning, meaning_of, nodata_values
from daskclust.cube.bands import chosen_bands, kept_bands
from daskclust.cube.layout import BlockGrid, flatten
from daskclust.storage.seen import StoredArray

__all__ = ["open_cube"]

#: Attributes that are about codes, not about what becomes of them.
_OF_CODES = (*NODATA_ATTRIBUTES, "valid_min", "valid_max", "valid_range", "_Unsigned")


def open_cube(
    store: Any,
    *,
    variable: str | Sequence[str] | None = None,
    nodata: float | Literal["auto"] | None = "auto",
    mask: Any = None,
    bad_bands: ArrayLike | str | None = "auto",
    bands: ArrayLike | None = None,
    scale: Literal["none", "standard", "unit", "angle", "whitened"]
    | tuple[ArrayLike, ArrayLike] = "none",
    dims: Sequence[str] | None = None,
    incomplete: Literal["mask", "keep"] = "mask",
    min_observed: float = 0.0,
    chunks: tuple[int, int] | None = None,
    quantization: Literal["auto", "alphaearth", "tessera"] | None = "auto",
    scales: Any = None,
) -> Cube:
    """Open an image cube in a file or store, or one that xarray or Dask holds.

    Parameters
    ----------
    store : str, path, list of paths, zarr store, group or array, xarray object, array
        Zarr v2 or v3; a ``.zip`` path is a zip store, and a URL is opened by fsspec
        (whose package for the protocol must be installed).  With the extra ``raster``
        also GeoTIFF, COG, VRT, ENVI (header or data), NetCDF and HDF5, and a list of band
        files of one grid; and ``.npy`` files, with `dims`.  With a distributed cluster,
        workers must see it under the same path.  Or an ``xarray.Dataset`` or
        ``DataArray``; or a Dask or NumPy array, with `dims`.
    variable : str or sequence of str, default=None
        Array inside a group or Dataset, or the images that are its bands; None takes the
        only one of three (or four) dimensions, else all images (y, x) in the order of
        their names, B2 before B10.
    nodata : float, None or "auto", default="auto"
        Value that means "no data", besides NaN.  ``"auto"`` reads the attributes
        ``_FillValue``, ``missing_value`` and ``nodata``, and the range of valid values.
        Zarr's own ``fill_value`` is the value of chunks that were not written.  It counts as
        "no data" only in stores of version 2 that xarray wrote, where it has that meaning.
        None means that no value is "no data".
    mask : array of shape (y, x) or (date, y, x), bool, default=None
        True excludes a pixel.  A NumPy, Dask, Zarr or xarray array, or a store of one, or a
        pair of a store and the name of an array in it.  Of three dimensions: clouds, True
        where a pixel has no data on a date, in any band; dates come before bands in the
        stored order of a series of both.
    bad_bands : array of bool, shape (band,), array of int, str or None, default="auto"
        Bands to drop: True, or the numbers, or text such as ``"0-3,107,400nm-450nm"``.
        ``"auto"`` drops those that the file calls bad (``bad_bands``, ENVI's ``bbl``,
        ``good_wavelengths``); None none.
    bands : array of int, default=None
        Exactly these bands, by their stored numbers, instead of `bad_bands`; such as
        those that a model was fitted to.
    scale : {"none", "standard", "unit", "angle", "whitened"} or (mean, std), default="none"
        ``"standard"``: every band to mean 0 and variance 1 over the valid pixels;
        ``"unit"`` or ``"angle"``: every spectrum to length 1.  ``"whitened"``: to length
        1, after the noise of the bands was made nearly equal and uncorrelated.  The noise is
        estimated from the differences of adjacent pixels, in a sample of 16 384. A pair of
        arrays, one value a band kept: minus the one, divided by the other; see
        :attr:`Cube.scaling`.
    dims : sequence of str, default=None
        Names of the dimensions in stored order, for an array that has none, or
        other ones than the usual; for example ``("y", "x", "band")``.  Of four, two are
        time and band: all their pairs become features.
    incomplete : {"mask", "keep"}, default="mask"
        What happens to a pixel with "no data" in some kept bands: excluded, or
        kept with NaN there, for estimators that take NaN.
    min_observed : float in [0, 1], default=0.0
        With ``"keep"``: share of the bands (or dates) that a pixel must have; one at least.
    chunks : tuple of int, default=None
        Rows and columns of a block; None takes those of the store (its shards, if
        it has any).  Row numbers depend on it.
    quantization : {"auto", "alphaearth", "tessera"} or None, default="auto"
        What codes of int8 mean.  ``"alphaearth"``: ``sign(q) (q / 127.5)^2`` of 64 bands, -128
        for "no data"; ``"tessera"``: q times the scale of the pixel.  ``"auto"`` knows AlphaEarth
        by its bands ``A00`` to ``A63`` and its "no data", and TESSERA by `scales`.  None: values.
    scales : array of shape (y, x), store or path, default=None
        One float a pixel, of TESSERA.

    Returns
    -------
    Cube

    Raises
    ------
    FileNotFoundError
        There is no such file or store.
    ImportError
        A package that reads the format is missing; the message names the extra.
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
    QuantizationWarning
        The cube holds int8, and nothing says what these codes mean.

    Notes
    -----
    Samples are ``stored * scale_factor + add_offset`` (one number, or one a band) of the
    attributes, computed in float64; float32 where 16 bits or float32 are stored.
    ``_Unsigned`` is followed.  Opening reads metadata only.

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
        check_choice(scale, "scale", ("none", "standard", "unit", "angle", "whitened"))
        # Spectral angles are distances between directions.
        scale = "unit" if scale == "angle" else scale
        if scale == "whitened" and incomplete == "keep":
            raise ValueError(
                "scale='whitened' mixes the bands, so that one missing value would spoil a whole "
                "pixel; use incomplete='mask', or another scale."
            )
    check_choice(incomplete, "incomplete", ("mask", "keep"))
    if not 0 <= min_observed <= 1:
        raise ValueError(f"min_observed={min_observed!r}; expected a share of the bands, 0 to 1.")
    found = find_cube(store, variable, dims)
    array = found.array
    order, names = find_dimensions(found.names, found.title, array.shape)
    height, width, n_bands = (int(array.shape[axis]) for axis in order)
    unit = found.unit[order[0]], found.unit[order[1]]
    place = found.place(names)
    mask, name = mask if _is_pair(mask) else (mask, None)
    clouds = None if mask is None else find_clouds(mask, name)
    if clouds is not None:
        array = without_clouds(array, order, clouds, place)
        mask, order = None, (0, 1, 2)
    coded = chosen_quantization(
        quantization,
        scales,
        array.dtype,
        _band_names(store, found, order),
        n_bands,
        found.attributes,
    )
    attributes = found.attributes
    if coded == "tessera":
        codes = nodata_values(attributes, array.dtype, nodata)
        array, order = with_scales(array, order, scales, place, codes), (0, 1, 2)
        attributes = {name: attributes[name] for name in attributes if name not in _OF_CODES}
    wavelengths = find_wavelengths(found.wavelengths, n_bands)
    if bands is None:
        kept = kept_bands(bad_bands, n_bands, found.attributes, wavelengths)
    else:
        kept = chosen_bands(bands, n_bands)
    grid = BlockGrid(
        (height, width), choose_block((height, width, n_bands), unit, array.dtype, chunks)
    )
    meaning = meaning_of(attributes, array.dtype, n_bands, found.title)
    dtype = array.dtype if meaning.dtype is None else meaning.dtype
    no_data = nodata_values(attributes, dtype, nodata)
    if coded == "alphaearth":
        meaning = Meaning(curved=True)
        no_data = (NO_CODE,) if nodata == "auto" else no_data
    source = CubeSource(
        array=StoredArray(array) if isinstance(array, zarr.Array) else None,
        order=order,
        dtype=dtype,
        n_stored=n_bands,
        bands=kept,
        nodata=no_data,
        keep_incomplete=incomplete == "keep",
        min_observed=float(min_observed),
        grid=grid,
        masked=isinstance(array, da.Array) and np.ma.isMaskedArray(array._meta),
        meaning=meaning if nodata is not None else replace(meaning, low=None, high=None),
    )
    if wavelengths is not None and kept is not None:
        wavelengths = wavelengths[kept]
    samples = sample_dtype(dtype)
    if dtype == np.float64 and found.encoded is not None and found.encoded.kind in "iu":
        # Decoded by xarray: the same samples as from the stored numbers.
        samples = sample_dtype(found.encoded)
    return Cube(
        source,
        pixels=None if source.array is not None else flatten(array.transpose(order), grid),
        excluded=None if mask is None else flatten(_read_mask(mask, name, grid.shape, place), grid),
        scale=scale if isinstance(scale, str) else _fixed_scaling(scale, source, samples),
        wavelengths=wavelengths,
        place=place,
        attributes=found.attributes,
        dimension_names=names,
        dtype=samples,
        bands_are_fixed=bands is not None,
        files=found.files,
    )


def _band_names(store: Any, found: Any, order: tuple[int, ...]) -> list[str]:
    """Return the names of the bands, as far as the source has some."""
    names = found.attributes.get("band_names")
    if isinstance(names, list | tuple):
        return [str(name) for name in names]
    known = getattr(store, "coords", {})
    dimension = None if found.names is None else found.names[order[2]]
    return [str(name) for name in np.asarray(known[dimension])] if dimension in known else []


def _fixed_scaling(scale: Any, source: CubeSource, dtype: np.dtype[Any]) -> Scaling:
    try:
        parts = tuple(scale)
        mean, std = (np.asarray(part, dtype=np.float64) for part in parts)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"scale={scale!r}; expected 'none', 'standard', 'unit', 'angle', 'whitened' or a pair "
            "(mean, std)."
        ) from error
    without_mask(parts[0], "The mean in scale")
    without_mask(parts[1], "The standard deviation in scale")
    expected = (source.n_bands,)
    if mean.shape != expected or std.shape != expected:
        raise ValueError(
            f"scale has shapes {mean.shape} and {std.shape}; expected {expected} twice, one value "
            "for each band kept."
        )
    if not (np.isfinite(mean).all() and np.isfinite(std).all() and (std > 0).all()):
        raise ValueError("scale holds values that are not finite, or standard deviations of 0.")
    return Scaling("standard", dtype, mean=mean, std=std)


def _is_pair(mask: Any) -> bool:
    """Whether a mask is given as a store and the name of an array in it."""
    return isinstance(mask, tuple) and len(mask) == 2 and isinstance(mask[1], str)


def _read_mask(mask: Any, name: str | None, shape: tuple[int, int], place: Georeference) -> Any:
    values = open_image("mask", mask, shape, place=place, variable=name).values
    if values.dtype != bool:
        raise ValueError(
            f"mask has dtype {values.dtype}; expected bool, True where a pixel is excluded."
        )
    return values
