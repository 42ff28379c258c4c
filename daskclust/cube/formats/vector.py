"""Polygons and points with a class (GeoJSON, GeoPackage, Shapefile) as an image of codes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from daskclust._types import Ints
from daskclust.cube._georeference import system_name
from daskclust.cube.formats.classes import Classes, class_column_of, read_classes
from daskclust.cube.formats.found import needs_extra
from daskclust.storage.urls import redact

__all__ = ["PixelGrid", "rasterize_file"]

#: What a pixel without a class holds.
NO_CLASS = -1


@dataclass(frozen=True)
class PixelGrid:
    """Where the pixels of an image lie.

    Attributes
    ----------
    shape : tuple of int
        Rows and columns.
    transform : tuple of 6 floats
        ``x = a col + b row + c``, ``y = d col + e row + f``, of pixel corners.
    crs : str or None
        Anything that pyproj reads.
    """

    shape: tuple[int, int]
    transform: tuple[float, ...]
    crs: str | None

    @property
    def crs_name(self) -> str | None:
        """Name and EPSG code of the coordinate system; None where none is stated.

        Examples
        --------
        >>> PixelGrid((2, 3), (30.0, 0.0, 0.0, 0.0, -30.0, 0.0), "EPSG:32610").crs_name
        'WGS 84 / UTM zone 10N (EPSG:32610)'
        """
        return None if self.crs is None else system_name(self.crs)


def rasterize_file(
    path: str | os.PathLike[str],
    grid: PixelGrid,
    chunks: tuple[tuple[int, ...], tuple[int, ...]],
    *,
    class_column: str | None = None,
    all_touched: bool = False,
) -> tuple[da.Array, Classes]:
    """Burn the features of a vector file into an image of class codes.

    Parameters
    ----------
    path : str or path
        GeoJSON, GeoPackage, Shapefile or what else OGR reads.
    grid : PixelGrid
        Of the image.
    chunks : tuple of tuples
        Rows and columns of the blocks of the result.
    class_column : str, optional
    all_touched : bool, default=False
        Whether a polygon takes all pixels that it touches; else those whose center
        it covers.

    Returns
    -------
    values : dask.array.Array of shape (y, x), int32
        Lazy; -1 where there is no class.  Of features that overlap, the last counts.
    classes : Classes
        Of the features.

    Raises
    ------
    ValueError
        No features, none inside the image, no way to tell where the features or the
        image lie, or class codes that do not fit 32 bits.
    """
    with needs_extra(f"{str(path)!r}"):
        import pyogrio.raw
        import pyproj
        import shapely
    name, shown = os.fspath(path), repr(redact(path))
    try:
        meta, _, geometry, fields = pyogrio.raw.read(name)
    except pyogrio.errors.DataSourceError as error:
        raise OSError(f"{shown} cannot be read as features: {redact(error)}") from error
    if not len(geometry):
        raise ValueError(f"{shown} has no features; expected polygons or points with a class.")
    column = class_column_of(list(meta["fields"]), class_column, shown)
    classes = read_classes(fields[list(meta["fields"]).index(column)], shown)
    if classes.codes.max() > np.iinfo(np.int32).max:
        raise ValueError(
            f"{shown} has the class {classes.codes.max()}; expected codes below 2**31."
        )
    shapes = shapely.from_wkb(geometry)
    if meta["crs"] is None or grid.crs is None:
        which = shown if meta["crs"] is None else "the image"
        raise ValueError(
            f"{which} states no coordinate system, so where the features lie in the image cannot "
            "be told. Assign one, for example with ogr2ogr -a_srs, or rioxarray's write_crs."
        )
    if pyproj.CRS.from_user_input(meta["crs"]) != pyproj.CRS.from_user_input(grid.crs):
        to_grid = pyproj.Transformer.from_crs(meta["crs"], grid.crs, always_xy=True)
        shapes = shapely.transform(shapes, lambda xy: np.stack(to_grid.transform(*xy.T), axis=1))
    usable = (classes.codes != NO_CLASS) & ~shapely.is_missing(shapes) & ~shapely.is_empty(shapes)
    shapes, codes = shapes[usable], classes.codes[usable]
    inside = shapely.intersects(shapes, _outline(grid))
    if not inside.any():
        bounds = shapely.total_bounds(shapes).round(3).tolist()
        raise ValueError(
            f"None of the {len(shapes)} features of {shown} lies in the image: in its coordinate "
            f"system they span {bounds}, the image {list(_outline(grid).bounds)}."
        )
    burnt = _lazy(shapely.to_wkb(shapes[inside]), codes[inside], grid, chunks, all_touched)
    return burnt, classes


def _outline(grid: PixelGrid) -> Any:
    import shapely

    a, b, c, d, e, f = grid.transform
    rows, cols = grid.shape
    corners = [(0, 0), (cols, 0), (cols, rows), (0, rows)]
    return shapely.Polygon([(a * x + b * y + c, d * x + e * y + f) for x, y in corners])


def _lazy(
    shapes: NDArray[Any],
    codes: Ints,
    grid: PixelGrid,
    chunks: tuple[tuple[int, ...], tuple[int, ...]],
    all_touched: bool,
) -> da.Array:
    starts = [np.concatenate([[0], np.cumsum(sizes)[:-1]]) for sizes in chunks]
    corners = np.stack(np.meshgrid(*starts, indexing="ij"), axis=-1).astype(np.int64)
    ends = np.stack(np.meshgrid(*map(np.array, chunks), indexing="ij"), axis=-1).astype(np.int64)
    windows = da.from_array(np.concatenate([corners, ends], axis=2), chunks=(1, 1, 4))
    return da.map_blocks(
        _burn,
        windows,
        shapes=list(shapes),
        codes=codes.tolist(),
        transform=grid.transform,
        all_touched=all_touched,
        drop_axis=2,
        chunks=chunks,
        dtype=np.int32,
        meta=np.empty((0, 0), np.int32),
    )


def _burn(
    window: Ints,
    *,
    shapes: list[bytes],
    codes: list[int],
    transform: tuple[float, ...],
    all_touched: bool,
) -> NDArray[np.int32]:
    """Burn all features into one block of the image."""
    import shapely
    from affine import Affine
    from rasterio.features import rasterize

    top, left, height, width = window[0, 0].tolist()
    a, b, c, d, e, f = transform
    here = Affine(a, b, a * left + b * top + c, d, e, d * left + e * top + f)
    pairs = [(shapely.from_wkb(shape), code) for shape, code in zip(shapes, codes, strict=True)]
    burnt: NDArray[np.int32] = rasterize(
        pairs,
        out_shape=(height, width),
        fill=NO_CLASS,
        transform=here,
        all_touched=all_touched,
        dtype=np.int32,
    )
    return burnt
