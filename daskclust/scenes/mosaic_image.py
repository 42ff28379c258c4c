"""One image from many tiles: resampling to the target grid, and overlaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Ints
from daskclust.scenes.formats.raster import cache_of_gdal
from daskclust.scenes.mosaic_grid import (
    UNIT,
    bounds_of_tiles,
    nearest_pixels,
    shift_of_tile,
    steps_of_tiles,
    target_grid,
    units,
)
from daskclust.scenes.mosaic_tiles import Tile, names_of_bands
from daskclust.scenes.products import UNCLEAR_CLASSES
from daskclust.scenes.quantization import ALPHAEARTH_BANDS

Overlap = Literal["first", "last", "mean"]
Resampling = Literal["nearest", "bilinear", "cubic", "average"]

#: Number of rows and columns of a block of the target grid.
_BLOCK = 1024
#: Maximum number of bytes of such a block.  Blocks with more bytes have the size of a unit.
_BLOCK_BYTES = 2**28
#: Maximum number of bytes of a window of a tile that is read at once.
_WINDOW_BYTES = 2**26


class _Mosaic:
    """Bands of a mosaic on the target grid, whose pixels are read when they are indexed."""

    ndim = 3

    def __init__(
        self,
        tiles: Sequence[Tile],
        n_bands: int,
        grid: tuple[Any, str, tuple[int, int]],
        resampling: Resampling,
        overlap: Overlap,
        excluded: Sequence[int],
    ) -> None:
        self.transform, self.crs, shape = grid
        self.shape = n_bands, *shape
        self.resampling, self.overlap, self.excluded = resampling, overlap, tuple(excluded)
        # The mean does not depend on the order of the tiles, not even in the last bits.
        if overlap == "mean":
            tiles = sorted(tiles, key=lambda tile: (tile.shown, tile.transform))
        classes = {t.classes.shown: t.classes for t in tiles if t.classes is not None}
        self._n_tiles = len(tiles)
        # No band of the mosaic is in the tiles of classes, which follow the others.
        self.tiles = (
            *(reversed(tiles) if overlap == "last" else tiles),
            *(replace(tile, first=n_bands) for tile in classes.values()),
        )
        self._classes = {name: len(tiles) + i for i, name in enumerate(classes)}
        self.dtype, self.nodata, self.decodes = _common_type(tiles)
        self._bounds = bounds_of_tiles(self.tiles, self.transform, self.crs)
        for tile, bounds in zip(self.tiles, self._bounds, strict=True):
            if tile.classes is None or not excluded:
                continue
            # Outside the classification, clouds would not be missing.
            classified = self._bounds[self._classes[tile.classes.shown]]
            if not np.allclose(classified, bounds, rtol=0, atol=0.5):
                raise ValueError(
                    f"The scene classification {tile.classes.shown!r} must cover the same area as "
                    f"{tile.shown!r}, got another area. Download the product again, or pass "
                    "exclude_classes=()."
                )
        self._steps = steps_of_tiles(self.tiles, self.transform, self.crs)
        self._shifts = [shift_of_tile(tile, self.transform, self.crs, shape) for tile in self.tiles]

    def __dask_tokenize__(self) -> Any:
        grid = tuple(self.transform)[:6], self.crs, self.shape
        keys = [
            (t.source, t.files.key, t.first, t.transform, t.nodata, t.scales, t.offsets)
            for t in self.tiles
        ]
        return grid, keys, self.resampling, self.overlap, self.excluded

    def __getitem__(self, key: Any) -> Array:
        return self.indexed(key)

    def indexed(self, key: Any, *, items: bool = False) -> Array:
        """Return values, or with `items` the number of the item of each value, -1 for none."""
        dtype = np.dtype(np.int32) if items else self.dtype
        slices = [slice(k, k + 1) if isinstance(k, int | np.integer) else k for k in key]
        spans = [range(size)[part] for part, size in zip(slices, self.shape, strict=True)]
        if 0 in map(len, spans):
            return np.empty([len(span) for span in spans], dtype)
        bands, rows, columns = (range(min(span), max(span) + 1) for span in spans)
        with cache_of_gdal():
            if self.resampling == "nearest":
                out = self._read(bands, rows, columns, items)
            else:
                out = np.empty((len(bands), len(rows), len(columns)), dtype)
                for y in units(rows, self.shape[1]):
                    for x in units(columns, self.shape[2]):
                        self._read_unit(out, bands, (y, x), (rows, columns), items)
        out = out[tuple(slice(None, None, span.step) for span in spans)]
        return out[tuple(0 if isinstance(k, int | np.integer) else slice(None) for k in key)]

    def _read_unit(
        self,
        out: Array,
        bands: range,
        unit: tuple[range, range],
        wanted: tuple[range, range],
        items: bool,
    ) -> None:
        """Read a unit of the grid, and copy the wanted rows and columns."""
        values = self._read(bands, *unit, items)
        own = [
            range(max(whole.start, part.start), min(whole.stop, part.stop))
            for whole, part in zip(unit, wanted, strict=True)
        ]
        target = [_slice(part, whole) for part, whole in zip(own, wanted, strict=True)]
        out[:, *target] = values[:, _slice(own[0], unit[0]), _slice(own[1], unit[1])]

    def _read(self, bands: range, rows: range, columns: range, items: bool) -> Array:
        """Return the values of some bands on a part of the grid, or the numbers of their items."""
        shape = len(bands), len(rows), len(columns)
        out = np.full(shape, -1, np.int32) if items else np.full(shape, self.nodata, self.dtype)
        is_mean = self.overlap == "mean"
        count = np.zeros(shape, np.int32 if is_mean else bool)
        total = np.zeros(shape if is_mean else 0)
        # A kernel adds up to two pixels at the border of a tile.
        left, top = np.floor(self._bounds[:, :2].T) - 2
        right, bottom = np.ceil(self._bounds[:, 2:].T) + 2
        touches = (left < columns.stop) & (right > columns.start)
        touches &= (top < rows.stop) & (bottom > rows.start)
        hidden: dict[Any, Any] = {}
        for number in np.flatnonzero(touches).tolist():
            tile = self.tiles[number]
            own = [band for band in bands if tile.first <= band < tile.first + tile.n_bands]
            y = range(int(max(rows.start, top[number])), int(min(rows.stop, bottom[number])))
            x = range(int(max(columns.start, left[number])), int(min(columns.stop, right[number])))
            if not own:
                continue
            here = (
                slice(own[0] - bands.start, own[-1] - bands.start + 1),
                _slice(y, rows),
                _slice(x, columns),
            )
            if not is_mean and count[here].all():
                continue
            values = self._warped(number, [band - tile.first for band in own], y, x)
            if values is None:
                continue
            is_valid = ~np.isnan(values) if np.isnan(self.nodata) else values != self.nodata
            if tile.classes is not None and self.excluded:
                # The bands of a product share the classes.
                key = tile.classes.shown, y, x
                if key not in hidden:
                    found = self._warped(self._classes[tile.classes.shown], [0], y, x)
                    hidden[key] = found is not None and np.isin(found, self.excluded)
                is_valid &= ~hidden[key]
            if is_mean:
                np.add(total[here], values, out=total[here], where=is_valid)
                count[here] += is_valid
            else:
                is_valid &= ~count[here]
                np.copyto(out[here], tile.item if items else values, where=is_valid)
                count[here] |= is_valid
        if is_mean:
            has_values = count > 0
            mean = total[has_values] / count[has_values]
            out[has_values] = np.rint(mean) if self.dtype.kind in "iu" else mean
        return out

    def _warped(
        self, number: int, bands: Sequence[int], rows: range, columns: range
    ) -> Array | None:
        """Return the values of a tile on a rectangle of the grid, None if they do not overlap."""
        from affine import Affine

        tile, shift = self.tiles[number], self._shifts[number]
        shape = len(rows), len(columns)
        method = self.resampling if number < self._n_tiles else "nearest"
        if shift is None and method == "nearest":
            pixels = nearest_pixels(tile, self.transform, self.crs, rows, columns)
            return self._gathered(tile, bands, *pixels)
        if shift is None:
            corner = self.transform @ Affine.translation(columns.start, rows.start)
            target = corner, self.crs, shape
            values = tile.resample(bands, target, method, self._steps[number].tolist())
            return None if values is None else self._decoded(tile, bands, values)
        # The pixels of the tile are pixels of the grid.
        x, y = columns.start + shift[0], rows.start + shift[1]
        left, right = max(x, 0), min(x + shape[1], tile.shape[1])
        top, bottom = max(y, 0), min(y + shape[0], tile.shape[0])
        if left >= right or top >= bottom:
            return None
        values = tile.read(bands, slice(top, bottom), slice(left, right))
        out = np.full((len(bands), *shape), self.nodata, self.dtype)
        out[:, top - y : bottom - y, left - x : right - x] = self._decoded(tile, bands, values)
        return out

    def _gathered(self, tile: Tile, bands: Sequence[int], y: Ints, x: Ints) -> Array | None:
        """Return the values of some pixels of a tile, None if all are outside of the tile."""
        height, width = tile.shape
        top, bottom = max(int(y.min()), 0), min(int(y.max()) + 1, height)
        left, right = max(int(x.min()), 0), min(int(x.max()) + 1, width)
        if left >= right or top >= bottom:
            return None
        n_bytes = (bottom - top) * (right - left) * len(bands) * tile.dtype.itemsize
        if n_bytes > _WINDOW_BYTES and y.size > 1:
            # Coarse grids use few pixels of a large window.
            axis = int(y.shape[1] > y.shape[0])
            halves = []
            for part in zip(np.array_split(y, 2, axis), np.array_split(x, 2, axis), strict=True):
                values = self._gathered(tile, bands, *part)
                if values is None:
                    values = np.full((len(bands), *part[0].shape), self.nodata, self.dtype)
                halves.append(values)
            return np.concatenate(halves, axis + 1)
        values = tile.read(bands, slice(top, bottom), slice(left, right))
        is_outside = (y < top) | (y >= bottom) | (x < left) | (x >= right)
        chosen = np.where(is_outside, 0, (y - top) * (right - left) + (x - left))
        parts = values.data, np.ma.getmaskarray(values)
        data, mask = (
            np.take(part.reshape(len(bands), -1), chosen, axis=1, mode="clip") for part in parts
        )
        out = self._decoded(tile, bands, np.ma.masked_array(data, mask))
        out[:, is_outside] = self.nodata
        return out

    def _decoded(self, tile: Tile, bands: Sequence[int], values: Any) -> Array:
        """Return values in the data type of the mosaic, with its nodata value where masked."""
        out = values.data
        if self.decodes:
            scale = np.array([tile.scales[band] for band in bands])[:, None, None]
            offset = np.array([tile.offsets[band] for band in bands])[:, None, None]
            out = out * scale + offset
        out = out.astype(self.dtype)
        np.copyto(out, self.nodata, where=np.ma.getmaskarray(values))
        return out


class _Items:
    """Numbers of the items of the pixels of a mosaic (y, x), which are read when indexed."""

    ndim, dtype = 2, np.dtype(np.int32)

    def __init__(self, mosaic: _Mosaic) -> None:
        self.mosaic, self.shape = mosaic, mosaic.shape[1:]

    def __dask_tokenize__(self) -> Any:
        return "items", self.mosaic.__dask_tokenize__()

    def __getitem__(self, key: Any) -> Array:
        return np.asarray(self.mosaic.indexed((0, *key), items=True))


def _lazy(source: _Mosaic | _Items, chunks: tuple[int, ...]) -> da.Array:
    meta = np.empty((0,) * source.ndim, source.dtype)
    return da.from_array(source, chunks=chunks, asarray=False, fancy=False, meta=meta)


def _slice(part: range, whole: range) -> slice:
    return slice(part.start - whole.start, part.stop - whole.start)


def _common_type(tiles: Sequence[Tile]) -> tuple[np.dtype[Any], Any, bool]:
    """Return data type and nodata value of a mosaic, and True if its values are decoded.

    Stored integers are kept if all tiles have the same type, nodata value, scale and offset.
    """
    coding = {
        (tile.dtype, value, scale, offset, tile.is_masked)
        for tile in tiles
        for value, scale, offset in zip(tile.nodata, tile.scales, tile.offsets, strict=True)
    }
    dtype = np.result_type(*(tile.dtype for tile in tiles))
    if len(coding) == 1 and dtype.kind in "iu":
        ((_, value, _, _, is_masked),) = coding
        limits = np.iinfo(dtype)
        if value is not None and not is_masked and limits.min <= value <= limits.max:
            return dtype, dtype.type(value), False
    decodes = any(scale != 1.0 or offset != 0.0 for _, _, scale, offset, _ in coding)
    small = dtype.itemsize <= (4 if dtype.kind == "f" else 2)
    return np.dtype(np.float32 if small else np.float64), np.nan, decodes


def mosaic_image(
    opened: Sequence[tuple[int, list[Tile]]],
    grid_options: tuple[Any, Any, Any, Any],
    dates: NDArray[np.datetime64] | None = None,
    resampling: Resampling = "nearest",
    overlap: Overlap = "first",
    exclude_classes: Sequence[int] | None = None,
) -> tuple[Any, da.Array | None]:
    """Return a lazy DataArray (band, y, x) of many tiles; see :func:`open_mosaic`.

    `opened` are the numbers and tiles of the items, `dates` the date of each number, and
    `grid_options` are `like`, `crs`, `resolution` and `region`.  Also return the number of the item
    of each pixel; None for several dates and for means.
    """
    import rasterio
    import rioxarray  # noqa: F401
    import xarray

    names = names_of_bands(opened)
    n_bands = len(names)
    own_dates = np.zeros(opened[-1][0] + 1) if dates is None else dates
    steps, step_of_item = np.unique(own_dates, return_inverse=True)
    empty = np.setdiff1d(steps, own_dates[[number for number, _ in opened]])
    if len(empty):
        raise ValueError(
            "Each date must have an item whose files can be opened, got none for "
            f"{', '.join(map(str, empty))}. Remove the items of these dates."
        )
    tiles = [
        replace(tile, first=tile.first + int(step_of_item[number]) * n_bands, item=number)
        for number, parts in opened
        for tile in parts
    ]
    if exclude_classes is not None and all(tile.classes is None for tile in tiles):
        raise ValueError(
            f"exclude_classes must be None, got {exclude_classes!r}, because no item has a scene "
            "classification. Use mask=."
        )
    excluded = UNCLEAR_CLASSES if exclude_classes is None else exclude_classes
    is_coded = names == ALPHAEARTH_BANDS and any(tile.dtype == np.int8 for tile in tiles)
    if is_coded and (resampling != "nearest" or overlap == "mean"):
        raise ValueError(
            "Codes of AlphaEarth require resampling='nearest' and overlap='first' or 'last', "
            f"because a mean of codes is not the code of a mean, got {resampling!r} and "
            f"{overlap!r}."
        )
    with rasterio.Env():
        grid = target_grid(tiles, *grid_options)
        mosaic = _Mosaic(tiles, n_bands * len(steps), grid, resampling, overlap, excluded)
    size = _BLOCK if mosaic.shape[0] * mosaic.dtype.itemsize * _BLOCK**2 <= _BLOCK_BYTES else UNIT
    centers = [center for tile in opened[0][1] for center in tile.wavelengths] * len(steps)
    if dates is not None:
        names = [f"{date} {name}" for date in steps for name in names]
    attributes: dict[str, Any] = {"long_name": names}
    if not np.isnan(mosaic.nodata):
        attributes["_FillValue"] = mosaic.nodata
    if not mosaic.decodes and mosaic.dtype.kind in "iu":
        attributes |= {"scale_factor": tiles[0].scales[0], "add_offset": tiles[0].offsets[0]}
    transform, system, (height, width) = grid
    x, y = transform @ (np.arange(width) + 0.5, 0.5), transform @ (0.5, np.arange(height) + 0.5)
    image = xarray.DataArray(
        _lazy(mosaic, (-1, size, size)),
        dims=("band", "y", "x"),
        coords={"band": names, "y": np.asarray(y[1]), "x": np.asarray(x[0])},
        attrs=attributes,
    )
    if len(centers) == len(names):
        image.coords["wavelength"] = "band", centers, {"units": "nm"}
    has_items = overlap != "mean" and len(steps) < 2
    numbers = _lazy(_Items(mosaic), (size, size)) if has_items else None
    return image.rio.write_crs(system), numbers
