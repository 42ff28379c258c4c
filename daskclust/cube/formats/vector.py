"""Polygons and points with a class (GeoJSON, GeoPackage, Shapefile) as an image of codes."""

from __future__ import annotations

import os
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from daskclust._types import Ints
from daskclust.cube._georeference import PixelGrid, system_name
from daskclust.cube.formats.classes import Classes, class_column_of, read_classes
from daskclust.cube.formats.found import needs_extra
from daskclust.storage.urls import redact

#: Degrees of longitude; and how far the middle of an edge may lie off, as a share of its length.
_HALF_TURN, _BENT = 180.0, 0.25
#: Value of a pixel without a class.
NO_CLASS = -1


def rasterize_file(
    path: str | os.PathLike[str],
    grid: PixelGrid,
    chunks: tuple[tuple[int, ...], tuple[int, ...]],
    *,
    class_column: str | None = None,
    all_touched: bool = False,
) -> tuple[da.Array, Classes]:
    """Burn the features of a vector file into a lazy image of int32 class codes, -1 for none.

    With `all_touched` a polygon takes all pixels that it touches, else those whose center it
    covers. Features that give one pixel different classes are an error when the image is computed;
    earlier errors are no features, none inside the image, no way to tell where features or image
    lie, and features that the image's coordinate system cuts.
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
        shapes = _on_grid(shapes, meta["crs"], grid.crs, shown)
    usable = (classes.codes != NO_CLASS) & ~shapely.is_missing(shapes) & ~shapely.is_empty(shapes)
    shapes, codes = shapes[usable], classes.codes[usable]
    inside = shapely.intersects(shapes, _outline(grid))
    if not inside.any():
        bounds = shapely.total_bounds(shapes).round(3).tolist()
        raise ValueError(
            f"None of the {len(shapes)} features of {shown} lies in the image: in its coordinate "
            f"system they span {bounds}, the image {list(_outline(grid).bounds)}."
        )
    wkb, some = shapely.to_wkb(shapes[inside]), codes[inside]
    return _lazy(wkb, some, grid, chunks, all_touched, classes.names, shown), classes


def _on_grid(shapes: Any, source: str, target: str, shown: str) -> Any:
    """Bring geometries to another coordinate system; those beyond its bounds become empty.

    Geometries that the edge of the system cuts are refused: their corners would be joined around
    the globe.
    """
    import pyproj
    import shapely

    there = pyproj.CRS.from_user_input(source)
    to_grid = pyproj.Transformer.from_crs(source, target, always_xy=True)
    span = np.abs(shapely.get_coordinates(shapes)).max(axis=0, initial=0.0)
    if there.is_geographic and there.axis_info[0].unit_name == "degree" and (span > 360).any():
        raise ValueError(
            f"{shown} is in {system_name(source)}, in degrees, but its coordinates go up to "
            f"{span.round(3).tolist()}; expected coordinates of its own system. Assign the right "
            "one, for example with ogr2ogr -a_srs."
        )

    def moved(xy: Any) -> Any:
        return np.stack(to_grid.transform(*xy.T), axis=1)

    out = shapely.transform(shapes, moved)
    corners = shapely.get_coordinates(out)
    finite = shapely.get_coordinates(out, return_index=True)[1][~np.isfinite(corners).all(axis=1)]
    out[np.unique(finite)] = shapely.Point()
    if pyproj.CRS.from_user_input(target).is_geographic and not there.is_geographic:
        return np.array([_around(shape) for shape in out], dtype=object)
    _refuse_cut(shapes, out, moved, shown, target)
    return out


def _around(shape: Any) -> Any:
    """Put parts that cross the seam of longitudes together, on both sides of it.

    Examples
    --------
    >>> import shapely
    >>> _around(shapely.box(-179.5, 0, 179.5, 1)).area
    2.0
    """
    import shapely

    parts = []
    for part in shapely.get_parts(shape):
        west, _, east, _ = part.bounds if not part.is_empty else (0.0,) * 4
        if east - west <= _HALF_TURN:
            parts.append(part)
            continue
        # No feature spans half the globe: its corners lie on two sides of the seam.
        whole = shapely.transform(
            part, lambda xy: np.stack([xy[:, 0] % (2 * _HALF_TURN), xy[:, 1]], axis=1)
        )
        parts += [whole, shapely.transform(whole, lambda xy: xy - [2 * _HALF_TURN, 0.0])]
    return shape if len(parts) == len(shapely.get_parts(shape)) else shapely.union_all(parts)


def _refuse_cut(shapes: Any, moved: Any, to_grid: Any, shown: str, target: str) -> None:
    """Refuse rings an edge of which has its middle elsewhere than between its ends."""
    import shapely

    for number, shape in enumerate(shapes):
        if shapely.is_empty(moved[number]) or shapely.is_missing(shape):
            continue
        for ring in shapely.get_rings(shapely.get_parts(shape)):
            xy = shapely.get_coordinates(ring)
            ends = to_grid(xy)
            lengths = np.linalg.norm(np.diff(ends, axis=0), axis=1)
            middles = to_grid((xy[1:] + xy[:-1]) / 2)
            off = np.linalg.norm(middles - (ends[1:] + ends[:-1]) / 2, axis=1)
            if not (off <= _BENT * lengths + 1e-9 * np.abs(ends).max()).all():
                raise ValueError(
                    f"Feature {number} of {shown} crosses an edge of {system_name(target)}, the "
                    "system of the image, so its corners would be joined around the globe. Cut it "
                    "there, for example with ogr2ogr -wrapdateline, or give it in that system."
                )


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
    names: dict[int, str] | None,
    shown: str,
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
        names=names,
        shown=shown,
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
    names: dict[int, str] | None,
    shown: str,
) -> NDArray[np.int32]:
    """Burn all features into one block of the image."""
    import shapely
    from affine import Affine
    from rasterio.features import rasterize

    top, left, height, width = window[0, 0].tolist()
    order = np.argsort(codes, kind="stable")
    a, b, c, d, e, f = transform
    here = Affine(a, b, a * left + b * top + c, d, e, d * left + e * top + f)
    pairs = [(shapely.from_wkb(shape), code) for shape, code in zip(shapes, codes, strict=True)]
    found: list[NDArray[np.int32]] = [
        rasterize(
            [pairs[at] for at in some],
            out_shape=(height, width),
            fill=NO_CLASS,
            transform=here,
            all_touched=all_touched,
            dtype=np.int32,
        )
        # The last counts: the largest code of each pixel, and the smallest.
        for some in (order, order[::-1])
    ]
    highest, lowest = found
    if (highest != lowest).any():
        row, column = (int(axis[0]) for axis in np.nonzero(highest != lowest))
        classes = [
            (names or {}).get(int(image[row, column]), int(image[row, column])) for image in found
        ]
        raise ValueError(
            f"{shown} gives the pixel (row {top + row}, column {left + column}) the classes "
            f"{classes[1]!r} and {classes[0]!r}; expected one a pixel. Correct the features that "
            "overlap there."
        )
    return highest
