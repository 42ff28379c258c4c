"""Opening a cube: arrays and metadata become blocks of rows."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, cast

import dask.array as da
import numpy as np
import zarr
from numpy.typing import ArrayLike

from daskclust.config import check_choice, without_mask
from daskclust.core.storage.stored_array import StoredArray
from daskclust.scenes import _metadata
from daskclust.scenes._block_tasks import CubeSource, Scaling
from daskclust.scenes._cube import Cube
from daskclust.scenes._georeference import Georeference
from daskclust.scenes._open_array import (
    CubeArray,
    Image,
    are_features,
    as_lazy,
    cubes_among,
    find_arrays,
    find_cube,
    image_of,
    images_among,
    joined,
    open_image,
    two_dimensional,
)
from daskclust.scenes.bands import chosen_bands, kept_bands
from daskclust.scenes.block_grid import BlockGrid, flatten
from daskclust.scenes.mosaic_image import mosaic_image
from daskclust.scenes.mosaic_tiles import open_tiles
from daskclust.scenes.products import is_product
from daskclust.scenes.quantization import NO_CODE, OF_CODES, chosen_quantization, with_scales

#: Dimensions of an array without names.
_NAMES = ("time", "y", "x")


def _masks_among(where: str, what: str, items: Mapping[str, Any]) -> list[str]:
    """Return the name of the only image; if there is no image, of the only series of masks."""
    is_series = not two_dimensional(items) and any(item.ndim in (3, 4) for item in items.values())
    return cubes_among(where, what, items) if is_series else images_among(where, what, items)


def _find_mask(
    mask: Any, variable: str | None, shape: tuple[int, int], position: Georeference
) -> tuple[CubeArray | None, Any]:
    """Open a mask per date, or a mask of pixels; the other result is None."""
    if not isinstance(mask, Image) and not are_features(mask):
        parts, files = find_arrays(mask, variable, _masks_among, "mask")
        (item,) = parts.values()
        # An image of xarray, or of a raster file, may have a dimension of length 1.
        sizes = item.values.shape
        is_squeezed = item.names is not None and not isinstance(item.values, zarr.Array)
        n_dimensions = sum(size > 1 for size in sizes) if is_squeezed else len(sizes)
        if len(sizes) in (3, 4) and n_dimensions != 2:
            clouds = joined(parts, files, None)
            return clouds if clouds.names is not None else replace(clouds, names=_NAMES), None
        mask, variable = image_of("mask", item), None
    values = open_image("mask", mask, shape, position=position, variable=variable).values
    if values.dtype != bool:
        raise ValueError(
            f"mask must be bool, True where a pixel is excluded, got dtype {values.dtype}."
        )
    return None, values


def without_clouds(
    array: Any, order: tuple[int, ...], clouds: CubeArray, position: Georeference
) -> da.Array:
    """Return a lazy cube (y, x, band) whose values under clouds are masked.

    `order` are the axes y, x and band of `array`. Dates run slowest among its bands.
    """
    if sorted(map(str, map(_metadata.role_of, clouds.names or ()))) != ["band", "x", "y"]:
        raise ValueError(
            f"mask must have the dimensions time, y and x, got {clouds.names}. Rename them."
        )
    axes, names = _metadata.find_dimensions(clouds.names, "mask", clouds.array.shape)
    image, mask = as_lazy(array).transpose(order), as_lazy(clouds.array).transpose(axes)
    if mask.dtype != bool:
        raise ValueError(
            f"mask must be bool, True where a pixel is under clouds, got dtype {mask.dtype}."
        )
    dates, bands = mask.shape[2], image.shape[2]
    if mask.shape[:2] != image.shape[:2] or bands % dates:
        raise ValueError(
            "mask must have the pixels of the cube, and the cube the same number of bands for each "
            f"date, got shape {mask.shape} as (y, x, date) for {image.shape} as (y, x, band)."
        )
    differences = position.differences(clouds.position(names))
    if differences:
        raise ValueError(
            f"mask lies elsewhere than the cube: {'; '.join(differences)}. Reproject it to the "
            "cube's grid, or pass its values as an array if they do belong to these pixels."
        )
    mask = da.repeat(mask, bands // dates, axis=2).rechunk(image.chunks)
    return da.ma.masked_array(image, mask=mask)


def open_cube(
    store: Any,
    *,
    variable: str | Sequence[str] | None = None,
    nodata: float | Sequence[float | None] | Literal["auto"] | None = "auto",
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
    wavelengths: ArrayLike | None = None,
    resolution: float | tuple[float, float] | None = None,
    exclude_classes: Sequence[int] | None = None,
) -> Cube:
    """Open an image cube from a file, a store, an xarray object or a Dask array.

    Parameters
    ----------
    store : str, path, list of paths, zarr store, group or array, xarray object, array
        - Zarr v2 or v3: a path, a ``.zip`` file, or a URL, which fsspec opens (the package for the
          protocol must be installed).
        - With the extra ``raster``: GeoTIFF, COG, VRT, ENVI (header or data), NetCDF and HDF5, or
          a list of band files on one grid.
        - A ``.npy`` file, or a Dask or NumPy array, with `dims`.
        - An ``xarray.Dataset``, ``DataTree`` or ``DataArray``.
        - A product of satellites: a Sentinel-2 SAFE folder or its zip file, a Sentinel-2 EOPF Zarr
          store, or the folder of a TESSERA tile.

        Workers of a cluster must have access to the same path.
    variable : str or sequence of str, default=None
        Array inside a group or Dataset, or the images that are its bands.  Arrays in groups of a
        Zarr hierarchy or DataTree are named by path, such as ``"a/b/b02"``.  None takes the only
        array of three (or four) dimensions, else all images (y, x) in the order of their names,
        with B2 before B10.  For a Sentinel-2 product: names of bands, such as
        ``["B02", "B8A"]``; None takes all bands.
    nodata : float, sequence of float, None or "auto", default="auto"
        Value that means "no data", in addition to NaN.  A sequence has one value per stored band,
        and None for a band without such a value.
        ``"auto"`` reads the attributes ``_FillValue``, ``missing_value`` and ``nodata``,
        and the range of valid values; bands of a raster file, several files or variables may
        each have their own values.
        Zarr's own ``fill_value`` is the value of chunks that were not written.  It counts as
        "no data" only in stores of version 2 that xarray wrote, where it has that meaning.
        None means that no value is "no data".
    mask : array of shape (y, x) or (date, y, x), bool, default=None
        True excludes a pixel.  A NumPy, Dask, Zarr or xarray array, a store of one, or a pair of a
        store and the name of an array in it.  A mask of three dimensions contains clouds: True
        means that a pixel has no data in any band on a date.  The bands of the cube must then be
        stored date by date.
    bad_bands : array of bool, shape (band,), array of int, str or None, default="auto"
        Bands to drop: True, or the numbers, or text such as ``"0-3,107,400nm-450nm"``.
        ``"auto"`` drops the bands that the file marks as bad (``bad_bands``, ENVI's ``bbl``,
        ``good_wavelengths``); None drops no band.
    bands : array of int, default=None
        Stored numbers of exactly the bands to use, in place of `bad_bands`; for example the bands
        that a model was fitted to.
    scale : {"none", "standard", "unit", "angle", "whitened"} or (mean, std), default="none"
        - ``"standard"``: each band has mean 0 and variance 1 over the valid pixels.
        - ``"unit"`` or ``"angle"``: each spectrum has length 1.
        - ``"whitened"``: each spectrum has length 1, and the noise of the bands is nearly equal
          and uncorrelated.  The noise is estimated from differences of adjacent pixels, in a
          sample of 16 384 pixels.
        - (mean, std): arrays with one value per band kept, as :attr:`Cube.scaling` returns them.
          The mean is subtracted, and the result divided by the standard deviation.
    dims : sequence of str, default=None
        Names of the dimensions in stored order, for example ``("y", "x", "band")``, if the array
        has no names or unusual names.  If there are four, two of them are time and band, and all
        pairs of these become features.
    incomplete : {"mask", "keep"}, default="mask"
        Treatment of a pixel with "no data" in some kept bands: excluded, or
        kept with NaN, for estimators that support NaN.
    min_observed : float in [0, 1], default=0.0
        With ``"keep"``: minimum fraction of the bands (or dates) of a pixel, at least one band.
    chunks : tuple of int, default=None
        Rows and columns of a block; None uses the chunks of the store, or its shards.  Row numbers
        depend on the columns of a block, and random draws depend on row numbers.
    quantization : {"auto", "alphaearth", "tessera"} or None, default="auto"
        Meaning of int8 codes q.

        - ``"alphaearth"``: ``sign(q) (q / 127.5)^2`` for 64 bands, and "no data" for -128.
        - ``"tessera"``: q times the scale of the pixel.
        - ``"auto"``: AlphaEarth if the bands are ``A00`` to ``A63`` with its "no data" value,
          TESSERA if `scales` are passed, else None.
        - None: the codes are values.
    scales : array of shape (y, x), store or path, default=None
        Scales of TESSERA: one float of at least 0 per pixel, NaN or inf for missing values.
    wavelengths : array of float, shape (band,) or (2,), default=None
        Centers of all stored bands in nm (in micrometers if all are below 100), in place of the
        centers in the file; or two numbers, the first and the last center, with equal steps
        between them.
    resolution : float or (float, float), default=None
        Width and height of a pixel in units of the coordinate system, for a product or a list of
        band files.  Bands are resampled to it (nearest pixel).  With None, a product has the
        resolution of most of its pixels, 10 m for all bands of Sentinel-2.
    exclude_classes : sequence of int, default=None
        Classes of the scene classification (SCL) of a Sentinel-2 L2A product whose pixels are
        missing.  None means 0, 1, 3, 8, 9 and 10 (no data, saturated, cloud shadow, clouds,
        cirrus); () excludes no class.

    Returns
    -------
    Cube

    Raises
    ------
    FileNotFoundError
        The file or store does not exist, or a product lacks its bands, metadata, scales or grid.
    ImportError
        A package that reads the format is missing; the message names the extra.
    KeyError
        No such `variable`.
    ValueError
        Dimensions without a (known) name, no or several candidate variables, or a
        parameter outside its range.  Pixels are not on a regular grid, though the image
        states a position.  Bands lie at different positions.

    Warns
    -----
    DaskclustWarning
        A stated transform (``GeoTransform``, ``spatial:transform``) contradicts the
        coordinates.
    PerformanceWarning
        Blocks of the store are too large with all bands.  They are divided, so that chunks of the
        store are read several times.
    QuantizationWarning
        The metadata of an int8 cube do not state what its codes mean.

    Notes
    -----
    Samples are ``stored * scale_factor + add_offset``, computed in float64, with one number or one
    per band in the attributes.  Samples are float32 if 16 bits or float32 are stored.  The
    attribute ``_Unsigned`` is supported.  Opening reads metadata and coordinates only.

    Bands of Sentinel-2 have their finest resolution and become reflectance: the scale and the
    offsets are those in the metadata of the product, which have changed with processing baseline
    04.00.  The stored value 0 is missing.  See :func:`open_mosaic` for several products.

    Coordinates along y and x are positions of pixel centers.  They take precedence over stated
    transforms, because xarray does not update transforms when pixels are selected.  A transform is
    used if there are no coordinates, for the size of a single row or column, and if it agrees with
    the rounded coordinates.

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
                "scale='whitened' requires incomplete='mask', because a missing value would make "
                "all bands of a pixel missing. Use incomplete='mask', or another scale."
            )
    check_choice(incomplete, "incomplete", ("mask", "keep"))
    if not 0 <= min_observed <= 1:
        raise ValueError(
            f"min_observed must be a fraction of the bands from 0 to 1, got {min_observed!r}."
        )
    is_list = isinstance(store, list | tuple) and all(
        isinstance(p, str | os.PathLike) for p in store
    )
    if is_product(store) or (is_list and resolution is not None):
        bands_of_product = [variable] if isinstance(variable, str) else variable
        opened = open_tiles([store], None if is_list else bands_of_product, skip_damaged=False)
        store, _ = mosaic_image(
            opened, (None, None, resolution, None), exclude_classes=exclude_classes
        )
        variable = variable if is_list else None
    elif resolution is not None or exclude_classes is not None:
        raise ValueError(
            "resolution and exclude_classes require a product of satellites, or resolution a list "
            f"of band files, got resolution={resolution!r}, exclude_classes={exclude_classes!r} "
            f"and {type(store).__name__}. Use open_mosaic([...])."
        )
    opened_cube = find_cube(store, variable, dims)
    array = opened_cube.array
    order, names = _metadata.find_dimensions(opened_cube.names, opened_cube.title, array.shape)
    height, width, n_bands = (int(array.shape[axis]) for axis in order)
    unit = opened_cube.unit[order[0]], opened_cube.unit[order[1]]
    position = opened_cube.position(names)
    is_pair = isinstance(mask, tuple) and len(mask) == 2 and isinstance(mask[1], str)
    if not is_pair and isinstance(mask, list | tuple) and str in map(type, mask):
        raise ValueError(
            "mask must be an array, a path, or a pair (array or path, name of its variable or "
            f"kind), got a {type(mask).__name__} of {len(mask)} items with text."
        )
    mask, name = mask if is_pair else (mask, None)
    if mask is not None:
        clouds, mask = _find_mask(mask, name, (height, width), position)
        if clouds is not None:
            array, order = without_clouds(array, order, clouds, position), (0, 1, 2)
    coding = chosen_quantization(quantization, scales, array.dtype, n_bands, opened_cube.attributes)
    attributes = opened_cube.attributes
    if nodata is None or isinstance(nodata, str) or np.isscalar(nodata):
        nodata_value = cast("float | str | None", nodata)
    else:
        attributes = _metadata.with_nodata_of_bands(attributes, nodata, n_bands)
        nodata_value = "auto"
    if coding == "tessera":
        if _metadata.nodata_of_bands(attributes, array.dtype, nodata_value):
            raise ValueError(
                "The bands must have the same nodata value with scales=, got different values. "
                "Pass one value as nodata=."
            )
        codes = _metadata.nodata_values(attributes, array.dtype, nodata_value)
        array, order = with_scales(array, order, scales, position, codes), (0, 1, 2)
        attributes = {name: attributes[name] for name in attributes if name not in OF_CODES}
    if wavelengths is None:
        centers = _metadata.find_wavelengths(opened_cube.wavelengths, n_bands)
    else:
        centers = _metadata.given_wavelengths(wavelengths, n_bands)
    if bands is None:
        kept_numbers = kept_bands(bad_bands, n_bands, opened_cube.attributes, centers)
    else:
        kept_numbers = chosen_bands(bands, n_bands)
    grid = BlockGrid(
        (height, width), _metadata.choose_block((height, width, n_bands), unit, array.dtype, chunks)
    )
    meaning = _metadata.meaning_of(attributes, array.dtype, n_bands, opened_cube.title)
    dtype = array.dtype if meaning.dtype is None else meaning.dtype
    no_data = _metadata.nodata_values(attributes, dtype, nodata_value)
    if coding == "alphaearth":
        meaning = _metadata.Meaning(curved=True)
        no_data = (NO_CODE,) if nodata_value == "auto" else no_data
    source = CubeSource(
        array=StoredArray(array) if isinstance(array, zarr.Array) else None,
        order=order,
        dtype=dtype,
        n_stored=n_bands,
        bands=kept_numbers,
        nodata=no_data,
        nodata_of_bands=_metadata.nodata_of_bands(attributes, dtype, nodata_value),
        keep_incomplete=incomplete == "keep",
        min_observed=float(min_observed),
        grid=grid,
        masked=isinstance(array, da.Array) and np.ma.isMaskedArray(array._meta),
        meaning=meaning if nodata is not None else replace(meaning, low=None, high=None),
    )
    if centers is not None and kept_numbers is not None:
        centers = centers[kept_numbers]
    if dtype == np.float64 and opened_cube.encoded is not None and opened_cube.encoded.kind in "iu":
        # Values that xarray has decoded give the same samples as the stored numbers.
        dtype = opened_cube.encoded
    # float32 if it represents all stored values.
    is_small = dtype.itemsize <= (4 if dtype.kind == "f" else 2)
    samples = np.dtype(np.float32 if is_small else np.float64)
    return Cube(
        source,
        pixels=None if source.array is not None else flatten(array.transpose(order), grid),
        excluded=None if mask is None else flatten(mask, grid),
        scale=scale if isinstance(scale, str) else _fixed_scaling(scale, source, samples),
        wavelengths=centers,
        position=position,
        attributes=opened_cube.attributes,
        dtype=samples,
        bands_are_fixed=bands is not None,
        sources=source.array or opened_cube.files,
    )


def _fixed_scaling(scale: Any, source: CubeSource, dtype: np.dtype[Any]) -> Scaling:
    try:
        parts = tuple(scale)
        mean, std = (np.asarray(part, dtype=np.float64) for part in parts)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "scale must be 'none', 'standard', 'unit', 'angle', 'whitened' or a pair (mean, std), "
            f"got {scale!r}."
        ) from error
    without_mask(parts[0], "The mean in scale")
    without_mask(parts[1], "The standard deviation in scale")
    expected = (source.n_bands,)
    if mean.shape != expected or std.shape != expected:
        raise ValueError(
            f"scale must be a pair (mean, std) of arrays of shape {expected}, one value per band, "
            f"got shapes {mean.shape} and {std.shape}."
        )
    if not (np.isfinite(mean).all() and np.isfinite(std).all() and (std > 0).all()):
        raise ValueError("scale holds values that are not finite, or standard deviations of 0.")
    return Scaling("standard", dtype, mean=mean, std=std)
