"""Tiles of a mosaic: metadata of files and xarray objects, and reading of their pixels."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from dask.base import is_dask_collection

from daskclust.core.array_types import Array, Floats
from daskclust.core.storage.redact import redact
from daskclust.core.storage.retry import reason_of
from daskclust.core.storage.stored_array import SeenFiles
from daskclust.core.warn import warn
from daskclust.exceptions import DaskclustWarning
from daskclust.scenes.coordinate_systems import are_same, move
from daskclust.scenes.formats.format_detection import needs_extra
from daskclust.scenes.mosaic_items import Asset, StacItem, StatedBand, assets_of
from daskclust.scenes.products import Band, is_product, open_product

#: Number of points on each edge of a rectangle that is transformed to another system.
_EDGE_POINTS = 21
#: Radius of the resampling kernels in source pixels, or in target pixels if these are larger.
_RADIUS = {"bilinear": 2, "cubic": 3, "average": 2}
#: Maximum error in pixels of positions in other coordinate systems.  GDAL's default, 0.125, depends
#: on the rectangle that is read.
_POSITION_ERROR = 1e-9
#: Maximum distance in pixels of the corners of a file from those that a STAC item states.
_STATED_ERROR = 0.01


def edges() -> tuple[Floats, Floats]:
    """Return x and y of points on the edges of the unit square."""
    t = np.linspace(0.0, 1.0, _EDGE_POINTS)
    one, zero = np.ones_like(t), np.zeros_like(t)
    return np.concatenate([t, one, t, zero]), np.concatenate([zero, t, one, t])


@dataclass(frozen=True)
class Tile:
    """Metadata of one file, or of one xarray object, of a mosaic.

    ``source`` is the name of the file or the object.  ``first`` is the number of its first band
    among the bands of the mosaic, ``item`` the number of its item.  ``nodata``, ``scales`` and
    ``offsets`` have one value per band.
    ``classes`` is the scene classification of the product that the tile is a part of.  If
    ``is_stated``, the metadata are those of a STAC item, and are compared with the file when it is
    read.
    """

    source: Any
    shown: str
    crs: str
    transform: tuple[float, ...]
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    nodata: tuple[float | None, ...]
    scales: tuple[float, ...]
    offsets: tuple[float, ...]
    names: tuple[str, ...]
    is_masked: bool
    files: SeenFiles
    first: int = field(default=0, compare=False)
    item: int = field(default=0, compare=False)
    wavelengths: tuple[float, ...] = ()
    classes: Tile | None = None
    is_stated: bool = False

    @property
    def n_bands(self) -> int:
        """Number of bands of the tile."""
        return len(self.names)

    @property
    def affine(self) -> Any:
        """Transform from columns and rows to coordinates."""
        from affine import Affine

        return Affine(*self.transform)

    def read(self, bands: Sequence[int], rows: slice, columns: slice) -> Any:
        """Read a window of some bands, as a masked array without decoding."""
        self.files.check()
        if not isinstance(self.source, str):
            values = self.source.variable[list(bands), rows, columns].data
            if is_dask_collection(values):
                # In this thread. An option of Dask would hold for all threads.
                values = values.compute(scheduler="synchronous")
            return self._masked(np.asarray(values), bands)
        import rasterio

        window = rasterio.windows.Window.from_slices(rows, columns)
        with self._opened() as file:
            numbers = [band + 1 for band in bands]
            values = file.read(numbers, window=window, masked=self.is_masked)
        return values if self.is_masked else self._masked(values, bands)

    def resample(
        self,
        bands: Sequence[int],
        target: tuple[Any, str, tuple[int, int]],
        method: str,
        steps: Sequence[float],
    ) -> Any:
        """Return some bands on another grid, as a masked array without decoding.

        ``target`` are transform, coordinate system and shape of the grid, ``steps`` the pixels of
        the tile that a column and a row of the grid cover.  None if tile and grid do not overlap.
        """
        self.files.check()
        if isinstance(self.source, str):
            with self._opened() as file:
                return self._resampled(file, bands, target, method, steps)
        from affine import Affine
        from rasterio.io import MemoryFile

        window = self._window(target, _RADIUS[method], steps)
        if window is None:
            return None
        values = self.read(bands, *window).data
        with MemoryFile() as memory:
            with memory.open(
                driver="GTiff",
                count=len(bands),
                height=values.shape[1],
                width=values.shape[2],
                dtype=values.dtype,
                crs=self.crs,
                transform=self.affine @ Affine.translation(window[1].start, window[0].start),
            ) as file:
                file.write(values)
            alone = replace(self, nodata=tuple(self.nodata[band] for band in bands))
            with memory.open() as file:
                return alone._resampled(file, range(len(bands)), target, method, steps)

    def _resampled(
        self,
        file: Any,
        bands: Sequence[int],
        target: tuple[Any, str, tuple[int, int]],
        method: str,
        steps: Sequence[float],
    ) -> Any:
        from rasterio.enums import ColorInterp, Resampling
        from rasterio.vrt import WarpedVRT

        transform, crs, (height, width) = target
        out = np.ma.masked_all((len(bands), height, width), self.dtype)
        # GDAL warps the bands of one nodata value together.
        groups: dict[str, list[int]] = {}
        for i, band in enumerate(bands):
            groups.setdefault(repr(self.nodata[band]), []).append(i)
        for own in groups.values():
            nodata = self.nodata[bands[own[0]]]
            # Without nodata, an alpha band marks the pixels of the grid outside the tile.
            outside: dict[str, Any] = {"src_nodata": nodata, "nodata": nodata}
            if nodata is None:
                outside = {"add_alpha": ColorInterp.alpha not in file.colorinterp}
            with WarpedVRT(
                file,
                src_crs=self.crs,
                crs=crs,
                transform=transform,
                height=height,
                width=width,
                resampling=Resampling[method],
                tolerance=_POSITION_ERROR,
                XSCALE=1.0 / steps[0],
                YSCALE=1.0 / steps[1],
                **outside,
            ) as warped:
                values = warped.read([bands[i] + 1 for i in own], masked=True)
            if values.dtype.kind == "f":
                values = np.ma.masked_invalid(values)
            out[own] = values
        return out

    def _window(
        self, target: tuple[Any, str, tuple[int, int]], radius: int, steps: Sequence[float]
    ) -> tuple[slice, slice] | None:
        """Return rows and columns of the tile from which a grid is resampled."""
        transform, crs, (height, width) = target
        x, y = edges()
        x, y = transform @ (x * width, y * height)
        columns, rows = ~self.affine @ move(x, y, crs, self.crs)
        window = []
        for positions, step, size in zip((rows, columns), steps[::-1], self.shape, strict=True):
            low, high = float(positions.min()), float(positions.max())
            if not math.isfinite(low + high):
                low, high = 0, size
            # Edges of the grid may be curved between their points: add a fiftieth.
            margin = radius * max(step, 1.0) + 2 + 0.02 * (high - low)
            start, stop = max(math.floor(low - margin), 0), min(math.ceil(high + margin), size)
            if start >= stop:
                return None
            window.append(slice(start, stop))
        return window[0], window[1]

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        import rasterio

        try:
            with rasterio.open(self.source) as file:
                self._check_stated(file)
                yield file
                return
        except rasterio.errors.RasterioError as error:
            message = f"{self.shown!r}, a tile of a mosaic, cannot be read: {reason_of(error)}"
        # Errors of GDAL cannot be sent to another process.
        raise OSError(message)

    def _check_stated(self, file: Any) -> None:
        """Raise an error if a file differs from its STAC item."""
        if not self.is_stated:
            return
        found = _tile_of_dataset(file, self.source)
        corners = [(0, 0), (self.shape[1], 0), (0, self.shape[0])]
        moved = [~self.affine @ (found.affine @ corner) for corner in corners]
        nodata = [known for known in found.nodata if known is not None]
        same = {
            "shape": found.shape == self.shape,
            "transform": np.allclose(moved, corners, rtol=0, atol=_STATED_ERROR),
            "coordinate system": are_same(found.crs, self.crs) is not False,
            "number of bands": found.n_bands == self.n_bands,
            "data type": found.dtype == self.dtype,
            "missing value": not nodata
            or np.array_equal(
                np.array(nodata, float), np.array(self.nodata[: len(nodata)], float), equal_nan=True
            ),
            # Files without scale and offset have 1 and 0.
            "scale or offset": all(
                own in ((1.0, 0.0), known)
                for own, known in zip(
                    zip(found.scales, found.offsets, strict=True),
                    zip(self.scales, self.offsets, strict=True),
                    strict=False,
                )
            ),
            "mask": self.is_masked or not found.is_masked,
        }
        wrong = [name for name, is_same in same.items() if not is_same]
        if wrong:
            raise ValueError(
                f"The STAC item of {self.shown!r} must describe the file, but the file has another "
                f"{' and '.join(wrong)}. Correct the item, or pass the file itself."
            )

    def _masked(self, values: Array, bands: Sequence[int]) -> Any:
        mask = np.zeros(values.shape, bool)
        for i, band in enumerate(bands):
            nodata = self.nodata[band]
            if nodata is not None and not math.isnan(nodata):
                mask[i] = values[i] == nodata
            if values.dtype.kind == "f":
                mask[i] |= np.isnan(values[i])
        return np.ma.masked_array(values, mask)


def _tile_of_file(name: str) -> Tile:
    import rasterio

    # Workers may have another working directory.
    name = os.path.abspath(name) if os.path.exists(name) else name
    try:
        with rasterio.open(name) as file:
            return _tile_of_dataset(file, name)
    except rasterio.errors.RasterioIOError as error:
        raise OSError(f"The tile {redact(name)!r} cannot be opened: {reason_of(error)}") from None


def _tile_of_dataset(file: Any, name: str) -> Tile:
    from rasterio.enums import ColorInterp, MaskFlags

    shown = redact(name)
    if file.crs is None:
        raise ValueError(
            f"The tile {shown!r} must have a coordinate system, got none. Assign it, for example "
            "with gdal_edit.py -a_srs."
        )
    # An alpha band is the mask of the other bands.
    n = file.count - (file.colorinterp[-1] == ColorInterp.alpha)
    stem = Path(name).stem
    names = [
        text or (stem if file.count == 1 else f"band {i + 1}")
        for i, text in enumerate(file.descriptions[:n])
    ]
    return Tile(
        source=name,
        shown=shown,
        crs=file.crs.to_wkt(),
        transform=tuple(file.transform)[:6],
        shape=file.shape,
        dtype=np.result_type(*file.dtypes[:n]),
        nodata=file.nodatavals[:n],
        scales=file.scales[:n],
        offsets=file.offsets[:n],
        names=tuple(names),
        is_masked=any(MaskFlags.per_dataset in flags for flags in file.mask_flag_enums[:n]),
        # The archive that contains the file, if the file is in a zip file.
        files=SeenFiles([name.removeprefix("zip://").partition("!/")[0]]),
    )


def _tile_of_object(image: Any) -> Tile:
    shown = f"DataArray {image.name!r}" if image.name else "DataArray"
    if image.ndim == 2:
        image = image.expand_dims("band")
    spatial = image.rio.x_dim, image.rio.y_dim
    (band,) = (name for name in image.dims if name not in spatial)
    image = image.transpose(band, spatial[1], spatial[0])
    if image.rio.crs is None:
        raise ValueError(
            f"The tile {shown} must have a coordinate system, got none. Use "
            "image.rio.write_crs(...)."
        )
    n = image.shape[0]
    long_names = image.attrs.get("long_name", ())
    names = long_names if len(long_names) == n and not isinstance(long_names, str) else ()
    if not names:
        stated = image.coords[band].values if band in image.coords else np.arange(1, n + 1)
        names = [name if isinstance(name, str) else f"band {name}" for name in stated.tolist()]
    nodata = image.rio.nodata
    return Tile(
        source=image,
        shown=shown,
        crs=image.rio.crs.to_wkt(),
        transform=tuple(image.rio.transform(recalc=True))[:6],
        shape=image.shape[1:],
        dtype=image.dtype,
        nodata=(None if nodata is None else float(nodata),) * n,
        scales=(float(image.attrs.get("scale_factor", 1.0)),) * n,
        offsets=(float(image.attrs.get("add_offset", 0.0)),) * n,
        names=tuple(map(str, names)),
        is_masked=False,
        files=SeenFiles([]),
    )


def _tile_of_asset(asset: Asset, like: Tile | None) -> Tile:
    """Return the tile of an asset.

    The file is opened if the item does not state the grid.  `like` is a file of the same asset, for
    types and missing values that the item does not state.
    """
    bands, grid = asset.bands, asset.grid
    like = None if _is_complete(bands) else like
    if grid is None or (like is None and not _is_complete(bands)):
        return _with_stated(_tile_of_file(asset.href), asset)
    crs, transform, shape = grid
    name = os.path.abspath(asset.href) if os.path.exists(asset.href) else asset.href
    shown = redact(name)
    if os.path.isabs(name) and not name.startswith("/vsi") and not os.path.exists(name):
        raise OSError(f"The tile {shown!r} cannot be opened: the file does not exist")
    dtypes = [band.dtype for band in bands or () if band.dtype is not None]
    has_types = bool(dtypes) and len(dtypes) == len(bands or ())
    n = len(bands or ()) if like is None else like.n_bands
    tile = Tile(
        source=name,
        shown=shown,
        crs=crs,
        transform=transform,
        shape=shape,
        dtype=np.result_type(*dtypes) if like is None or has_types else like.dtype,
        nodata=(None,) * n if like is None else like.nodata,
        scales=(1.0,) * n if like is None else like.scales,
        offsets=(0.0,) * n if like is None else like.offsets,
        names=("",) * n,
        is_masked=like is not None and like.is_masked,
        files=SeenFiles([name]),
        is_stated=True,
    )
    return _with_stated(tile, asset)


def _is_complete(bands: Sequence[StatedBand] | None) -> bool:
    """Return True if types and missing values of the bands are stated."""
    return bands is not None and all(b.dtype is not None and b.nodata is not None for b in bands)


def _with_stated(tile: Tile, asset: Asset) -> Tile:
    """Return a tile with names, missing values, scales and offsets that a STAC item states."""
    bands, n = asset.bands, tile.n_bands
    if bands is None:
        names = [asset.name if n == 1 else f"{asset.name} {i + 1}" for i in range(n)]
        return replace(tile, names=tuple(names))
    if len(bands) != n:
        raise ValueError(
            f"The STAC item of {tile.shown!r} must describe all bands of the file, got "
            f"{len(bands)} descriptions for {n} bands."
        )

    def stated(name: str, known: tuple[Any, ...]) -> tuple[Any, ...]:
        values = [getattr(band, name) for band in bands]
        return tuple(old if new is None else new for new, old in zip(values, known, strict=True))

    return replace(
        tile,
        names=tuple(band.name for band in bands),
        nodata=stated("nodata", tile.nodata),
        scales=stated("scale", tile.scales),
        offsets=stated("offset", tile.offsets),
    )


def _tile_of(source: Any) -> Tile:
    if isinstance(source, Band):
        return replace(_tile_of(source.source), **source.metadata)
    is_file = isinstance(source, str | os.PathLike)
    return _tile_of_file(os.fspath(source)) if is_file else _tile_of_object(source)


def _tiles_of(item: Any, assets: Sequence[str] | None, like: Mapping[str, Tile]) -> list[Tile]:
    """Return the tiles of one item, whose files are the bands of one place."""
    tiles: list[Tile] = []
    first = 0
    parts = item if isinstance(item, list | tuple) else [item]
    if assets is not None and not any(isinstance(p, Asset) or is_product(p) for p in parts):
        raise ValueError(
            f"assets must be None, got {list(assets)}, because an item is neither a STAC item nor "
            "a Sentinel-2 product. Choose the bands of the cube with bands=."
        )
    for part in parts:
        if isinstance(part, Asset):
            found = [_tile_of_asset(part, like.get(part.name))]
        elif (product := open_product(part, assets)) is None:
            found = [_tile_of(part)]
        else:
            classes = None if product.classes is None else _tile_of(product.classes)
            if classes is not None:  # Class 0 is not a missing value.
                classes = replace(classes, nodata=(None,), scales=(1.0,), offsets=(0.0,))
            found = [replace(_tile_of(band), classes=classes) for band in product.bands]
        for tile in found:
            tiles.append(replace(tile, first=first))
            first += tile.n_bands
    return tiles


def _first_files(items: Sequence[Any]) -> dict[str, Tile]:
    """Open one file of each asset of which items do not state type or missing value."""
    found: dict[str, Tile] = {}
    for item in items:
        for asset in item if isinstance(item, list) else ():
            if not isinstance(asset, Asset) or asset.name in found:
                continue
            if asset.grid is None or _is_complete(asset.bands):
                continue
            try:
                found[asset.name] = _tile_of_file(asset.href)
            except OSError:
                continue  # The item itself raises an error, or is left out.
    return found


def open_tiles(
    items: Sequence[Any], assets: Sequence[str] | None, skip_damaged: bool
) -> list[tuple[int, list[Tile]]]:
    """Return number and tiles of each item; files are opened in threads."""
    if not items:
        raise ValueError("items must have at least one tile, got none.")
    with needs_extra("A mosaic"):
        import odc.geo  # noqa: F401
        import rasterio  # noqa: F401
        import rioxarray  # noqa: F401
        import xarray  # noqa: F401

    items = [assets_of(item, assets) if isinstance(item, StacItem) else item for item in items]
    like = _first_files(items)

    def opened(item: Any) -> list[Tile] | OSError:
        try:
            return _tiles_of(item, assets, like)
        except OSError as error:
            if not skip_damaged:
                raise
            return error

    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(opened, items))
    errors = [result for result in results if isinstance(result, OSError)]
    tiles = [(number, result) for number, result in enumerate(results) if isinstance(result, list)]
    if not tiles:
        raise errors[0]
    if errors:
        warn(
            f"{len(errors)} of {len(items)} items are left out, because their files cannot be "
            f"opened. The first error is: {errors[0]}",
            DaskclustWarning,
        )
    return tiles


def names_of_bands(opened: Sequence[tuple[int, list[Tile]]]) -> list[str]:
    """Return the names of the bands, which all items must share."""
    first = opened[0][1]
    names = [name for tile in first for name in tile.names]
    for _, tiles in opened[1:]:
        others = [name for tile in tiles for name in tile.names]
        if len(others) != len(names):
            raise ValueError(
                f"All items must have the same number of bands, got {len(names)} in "
                f"{first[0].shown!r} and {len(others)} in {tiles[0].shown!r}."
            )
        # Names of files differ between tiles; names of bands must not.
        stems = {Path(str(tile.shown)).stem for tile in (*first, *tiles)}
        if any(a != b and not {a, b} <= stems for a, b in zip(names, others, strict=True)):
            raise ValueError(
                f"All items must have the same bands in the same order, got {names} in "
                f"{first[0].shown!r} and {others} in {tiles[0].shown!r}."
            )
    return names
