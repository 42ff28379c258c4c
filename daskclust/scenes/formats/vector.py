"""Polygons and points with a class (GeoJSON, GeoPackage, Shapefile, CSV) as images of codes."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Bools, Floats, Ints
from daskclust.core.storage.redact import redact
from daskclust.scenes._georeference import PixelGrid
from daskclust.scenes.coordinate_systems import (
    are_same,
    is_geographic,
    is_in_degrees,
    move,
    system_name,
)
from daskclust.scenes.formats.format_detection import needs_extra

#: Largest code of a class; the next value of int32 means no class.
_LARGEST = 2**31 - 2
_COLUMNS = ("class", "class_name", "label", "class_id", "classname", "code", "category", "type")


@dataclass(frozen=True)
class Features:
    """Features of a vector file on the grid of an image.

    `numbers` is a lazy image of the feature that labels each pixel, -1 for none. `classes` are
    the classes of all features, as text. `usable` are the numbers of features with a class and a
    geometry. Features in `outside` are outside the image, and features in `beyond` partly.
    """

    source: str
    numbers: da.Array
    classes: Sequence[str]
    usable: Ints
    outside: Ints
    beyond: Ints


@dataclass(frozen=True)
class Classes:
    """Codes of the items of a label source (-1: none), their names or None, and its features."""

    codes: Ints
    names: dict[int, str] | None
    features: Features | None = None


def check_codes(codes: Iterable[int]) -> None:
    """Raise ValueError for codes of more than 32 bits, which label maps cannot contain.

    >>> check_codes([3, 70_000])
    """
    largest = max(codes, default=-1)
    if largest > _LARGEST:
        raise ValueError(
            f"Codes of classes must be at most {_LARGEST}, the largest in a label map, got "
            f"{largest}. Renumber the classes."
        )


def no_codes(name: str, dtype: Any) -> ValueError:
    """Return the error for an image of labels without codes.

    >>> str(no_codes("label_map", np.dtype("<f4")))  # doctest: +ELLIPSIS
    'label_map must contain integers or booleans, got dtype float32. Convert it with ...'
    """
    if np.dtype(dtype).kind == "f":
        remedy = "Convert it with astype(int), with -1 for pixels without a class."
    else:
        remedy = (
            "Convert text with names, codes = numpy.unique(labels, return_inverse=True), with -1 "
            "for pixels without a class; or pass the text of the labeled rows as y=(rows, labels)."
        )
    return ValueError(f"{name} must contain integers or booleans, got dtype {dtype}. {remedy}")


def class_column_of(columns: Sequence[str], wanted: str | None, source: str) -> str:
    """Return the column of the classes among columns without positions and geometries.

    Without `wanted`, it is the only column with a usual name, or the only column.

    >>> class_column_of(["id", "Class"], None, "fields.gpkg")
    'Class'
    """
    if wanted is not None:
        if wanted not in columns:
            raise KeyError(
                f"{source} has no column {wanted!r}; it has {list(columns)}. Name a column as "
                "class_column."
            )
        return wanted
    if len(columns) == 1:
        return columns[0]
    candidates = [name for name in columns if name.lower() in _COLUMNS]
    if len(candidates) != 1:
        raise ValueError(
            f"{source} has the columns {list(columns)}; the column of the classes is not "
            "known. Pass class_column= (on the command line --class-column)."
        )
    return candidates[0]


def read_classes(values: Any, source: str) -> Classes:
    """Read the classes of items: integers are codes, names get the codes 0, 1, ... in order.

    None, NaN and empty text mean no class.

    >>> read_classes(["wheat", None, "maize"], "fields").codes.tolist()
    [1, -1, 0]
    >>> read_classes([3, 7, -1], "fields").codes.tolist()
    [3, 7, -1]
    """
    items = np.asarray(values, dtype=object)
    has_class = np.array([_is_class(item) for item in items], dtype=bool)
    codes = np.full(len(items), -1, dtype=np.int64)
    if not has_class.any():
        raise ValueError(f"{source} must have at least one item with a class, got none.")
    present = items[has_class].tolist()
    numbers = [_whole_number(item) for item in present]
    if None not in numbers:
        codes[has_class] = np.array(numbers, np.int64)
        if (codes < -1).any():
            raise ValueError(
                f"Classes of {source} must be codes >= 0, or -1 for no class, got {codes.min()}."
            )
        return Classes(codes, None)
    is_text = {isinstance(item, str) for item in present}
    if len(is_text) == 2:
        raise ValueError(f"Classes of {source} must be only numbers or only text, got both.")
    if is_text == {False} or all(np.isfinite(_number(item)) for item in present):
        raise ValueError(
            f"Classes of {source} must be whole numbers or names, got "
            f"{present[numbers.index(None)]!r}."
        )
    names, codes_of_names = np.unique(np.array(present, dtype=str), return_inverse=True)
    codes[has_class] = codes_of_names
    return Classes(codes, {code: str(name) for code, name in enumerate(names)})


def _is_class(item: Any) -> bool:
    is_nan = isinstance(item, float) and np.isnan(item)
    return bool(item.strip()) if isinstance(item, str) else item is not None and not is_nan


def _whole_number(item: Any) -> int | None:
    try:
        if isinstance(item, str):
            # Some programs write whole numbers as 3.0.
            return int(item.strip().removesuffix(".0"))
        number = int(item)
    except (TypeError, ValueError, OverflowError):
        return None
    # A float of 2**53 or more may stand for several integers.
    is_exact = number == item and (abs(number) < 2**53 or not isinstance(item, float))
    return number if is_exact else None


#: Columns by name.
_Table = dict[str, list[Any]]
_ROW = ("row", "line", "pixel_row")
_COLUMN = ("column", "col", "sample", "pixel_column")
_X = ("x", "easting", "lon", "longitude")
_Y = ("y", "northing", "lat", "latitude")
#: Row and column of positions outside the image, or outside the domain of its coordinate system.
_FAR = 2.0**53
#: Names of columns that contain degrees in WGS 84, for any coordinate system of the image.
_DEGREES = {"lon", "longitude", "lat", "latitude"}


def has_pixels(path: str | os.PathLike[str]) -> bool:
    """Return True if all features of a GeoJSON file have a row and a column."""
    return _features(os.fspath(path)) is not None


def _features(name: str) -> list[dict[str, Any]] | None:
    """Return the properties of a GeoJSON file whose features are pixels; None for other files."""
    if not name.lower().endswith((".geojson", ".json")) or "://" in name:
        return None
    try:
        with open(name, encoding="utf-8") as file:
            properties = [dict(feature["properties"]) for feature in json.load(file)["features"]]
    except (ValueError, KeyError, TypeError):
        return None
    return properties if all({"row", "column"} <= item.keys() for item in properties) else None


def read_points(
    path: str | os.PathLike[str], grid: PixelGrid, *, class_column: str | None = None
) -> tuple[Ints, Ints, Classes]:
    """Read rows, columns and classes of labeled pixels from a CSV or GeoJSON file.

    A CSV file has a header with a column of classes, and ``row`` and ``column`` (from 0), ``x`` and
    ``y`` in the image's coordinate system, or ``lon`` and ``lat`` (WGS 84). Features of a GeoJSON
    file have the properties ``row``, ``column`` and a class. A pixel outside the image, or with two
    classes, raises ValueError.
    """
    name = os.fspath(path)
    if "://" not in name and not os.path.exists(name):
        raise FileNotFoundError(
            f"The file {name!r} does not exist; give the path of an existing file."
        )
    features, path_or_url = _features(name), name
    name = redact(name)
    if features is not None:
        keys = list(dict.fromkeys(key for item in features for key in item))
        table: _Table = {key: [item.get(key) for item in features] for key in keys}
    else:
        try:
            table = _read_csv(path_or_url)
        except (ValueError, csv.Error) as error:
            raise ValueError(f"{name!r} cannot be read as CSV: {redact(error)}") from error
    rows, cols, used = _pixels(table, grid, name)
    other_columns = [column for column in table if column not in used]
    if not other_columns:
        raise ValueError(f"{name!r} has the columns {used}, but no column with classes.")
    classes = read_classes(
        table[class_column_of(other_columns, class_column, f"{name!r}")], f"{name!r}"
    )
    has_class = classes.codes != -1
    rows, cols, codes = rows[has_class], cols[has_class], classes.codes[has_class]
    outside = (rows < 0) | (rows >= grid.shape[0]) | (cols < 0) | (cols >= grid.shape[1])
    if outside.any():
        first = int(np.flatnonzero(outside)[0])
        line = int(np.flatnonzero(has_class)[first]) + 2
        where = "" if grid.crs_name is None else f" ({grid.crs_name})"
        raise ValueError(
            f"{name!r}, line {line}: the pixel (row {rows[first]}, column {cols[first]}) lies "
            f"outside the image of {grid.shape[0]} x {grid.shape[1]} pixels{where}."
        )
    _refuse_contradictions(rows, cols, codes, grid, name)
    return rows, cols, Classes(codes, classes.names)


def _read_csv(path: str) -> _Table:
    import fsspec

    with fsspec.open(path, "r", "infer", encoding="utf-8-sig", newline="") as file:
        lines = csv.DictReader(file, restval="", skipinitialspace=True)
        header = [field.strip() for field in lines.fieldnames or []]
        if not header or len(set(header)) < len(header):
            raise ValueError(f"its header line must have different names, got {header}.")
        lines.fieldnames = header
        table: _Table = {key: [] for key in header}
        for row in lines:
            # Fields without a name have the key None.
            if None in row:
                raise ValueError(
                    f"line {lines.line_num} must have {len(header)} fields, as many as the header, "
                    f"got {len(header) + len(row[None])}. Is there a comma at the end of the line?"
                )
            for key in header:
                table[key].append(row[key])
    return table


def points_image(
    rows: Ints, columns: Ints, codes: Ints, chunks: tuple[tuple[int, ...], tuple[int, ...]]
) -> da.Array:
    """Return a lazy image with codes of single pixels, -1 elsewhere.

    >>> index = np.array([1])
    >>> points_image(index, index, np.array([7]), ((2,), (1, 1))).compute().tolist()
    [[-1, -1], [-1, 7]]
    """
    order = np.argsort(rows, kind="stable")
    points = rows[order], columns[order], codes[order]
    meta = np.empty((0, 0), np.int64)
    return da.map_blocks(_points_of_block, points=points, chunks=chunks, dtype=np.int64, meta=meta)


def _points_of_block(*, points: tuple[Ints, Ints, Ints], block_info: Any = None) -> Ints:
    (top, bottom), (left, right) = block_info[None]["array-location"]
    selected = slice(*np.searchsorted(points[0], (top, bottom)))
    rows, columns, codes = (values[selected] for values in points)
    inside = (columns >= left) & (columns < right)
    out = np.full((bottom - top, right - left), -1, dtype=np.int64)
    out[rows[inside] - top, columns[inside] - left] = codes[inside]
    return out


def _pixels(table: _Table, grid: PixelGrid, name: str) -> tuple[Ints, Ints, list[str]]:
    row, column, x, y = (
        next((c for c in table if c.strip().lower() in names), None)
        for names in (_ROW, _COLUMN, _X, _Y)
    )
    if row is not None and column is not None:
        rows, cols = (_numbers(table[key], key, name, whole=True) for key in (row, column))
        positions = [key for key in (x, y) if key is not None]
        rows, cols = np.clip([rows, cols], -_FAR, _FAR).astype(np.int64)
        return rows, cols, [row, column, *positions]
    if x is None or y is None:
        raise ValueError(
            f"{name!r} must have the columns row and column, or x and y, or lon and lat, and a "
            f"class, got {list(table)}."
        )
    east, north = _numbers(table[x], x, name), _numbers(table[y], y, name)
    if {x.strip().lower(), y.strip().lower()} <= _DEGREES:
        if grid.crs is None:
            raise ValueError(
                f"{name!r} has degrees ({x}, {y}), and the image states no coordinate system, so "
                "the pixels are not known. Assign one to the image, or give row and column."
            )
        east, north = _of_degrees(east, north, grid)
    positions_in_pixels = np.nan_to_num(grid.places(east, north), nan=_FAR)
    cols, rows = np.floor(np.clip(positions_in_pixels, -_FAR, _FAR)).astype(np.int64)
    return rows, cols, [x, y]


def _numbers(column: list[Any], key: str, name: str, *, whole: bool = False) -> Floats:
    numbers = np.array([_number(item) for item in column], dtype=np.float64)
    is_valid = np.isfinite(numbers)
    if whole:
        is_valid &= np.floor(numbers) == numbers
    if not is_valid.all():
        line = int(np.flatnonzero(~is_valid)[0])
        value = column[line]
        raise ValueError(
            f"{name!r}, line {line + 2}: {key} must be a "
            f"{'whole number' if whole else 'number'}, got {value!r}."
        )
    return numbers


def _number(item: Any) -> float:
    try:
        return float(item)
    except (TypeError, ValueError):
        return np.nan


def _of_degrees(east: Floats, north: Floats, grid: PixelGrid) -> tuple[Floats, Floats]:
    """Transform longitudes and latitudes to the coordinate system of an image."""
    assert grid.crs is not None
    if is_geographic(grid.crs):
        # The image may contain the 180th meridian, where longitudes jump by 360 degrees.
        west = outline(grid).bounds[0]
        return east + _TURN * np.ceil((west - east) / _TURN), north
    return move(east, north, "EPSG:4326", grid.crs)


def _refuse_contradictions(rows: Ints, cols: Ints, codes: Ints, grid: PixelGrid, name: str) -> None:
    pixels = rows * grid.shape[1] + cols
    order = np.argsort(pixels, kind="stable")
    same = (np.diff(pixels[order]) == 0) & (np.diff(codes[order]) != 0)
    if same.any():
        first = order[int(np.flatnonzero(same)[0])]
        raise ValueError(
            f"{name!r} must have one class per pixel, got two classes for the pixel (row "
            f"{rows[first]}, column {cols[first]}). Remove the repeated lines."
        )


#: Degrees of longitude around the globe.
_TURN = 360.0
#: Largest distance from the middle of an edge to its straight line, as a fraction of the length.
_BENT = 0.25
#: Value of a pixel without a class.
NO_CLASS = -1
#: Fraction of a pixel by which a polygon outside the image covers no center of a pixel.
_CENTER = 0.5


def read_features(
    source: Any, layer: str | None = None
) -> tuple[str | None, Any, dict[str, NDArray[Any]]]:
    """Read polygons or points: their coordinate system, geometries, and columns by name.

    `source` is a vector file, a GeoDataFrame, or another object with ``__geo_interface__`` (a
    feature collection) and ``crs``. `layer` is the layer of a file that has several.
    """
    shown = shown_source(source)
    with needs_extra(shown):
        import pyogrio
        import pyogrio.raw
        import shapely
    crs: str | None
    if not isinstance(source, str | os.PathLike):
        if layer is not None:
            raise ValueError(f"variable={layer!r}, but {shown} has no layers. Omit variable.")
        crs, shapes, columns = _features_of_object(source)
    else:
        try:
            layers = [name for name, kind in pyogrio.list_layers(source).tolist() if kind]
            if layer is None and len(layers) > 1:
                raise ValueError(
                    f"{shown} has the layers {layers}; name a layer in variable= (on the "
                    "command line FILE::LAYER)."
                )
            meta, _, geometry, fields = pyogrio.raw.read(os.fspath(source), layer=layer)
        except (pyogrio.errors.DataSourceError, pyogrio.errors.DataLayerError) as error:
            raise OSError(f"{shown} cannot be read as features: {redact(error)}") from error
        columns = dict(zip(meta["fields"].tolist(), fields, strict=True))
        crs, shapes = meta["crs"], shapely.from_wkb([] if geometry is None else geometry)
    if not len(shapes):
        raise ValueError(f"{shown} must have polygons or points with a class, got no features.")
    return crs, shapes, columns


def shown_source(source: Any) -> str:
    """Return the name of a source of features in messages."""
    is_path = isinstance(source, str | os.PathLike)
    return repr(redact(source)) if is_path else f"The {type(source).__name__}"


def _features_of_object(source: Any) -> tuple[str | None, Any, dict[str, NDArray[Any]]]:
    from shapely.geometry import shape

    crs = getattr(source, "crs", None)
    system: Any = crs.to_wkt() if crs is not None and hasattr(crs, "to_wkt") else crs
    if hasattr(source, "columns"):  # a GeoDataFrame
        names = [name for name in source.columns if name != source.geometry.name]
        columns = {str(name): source[name].to_numpy(object, na_value=None) for name in names}
        return system, np.asarray(source.geometry, object), columns
    items = source.__geo_interface__.get("features", ())
    shapes = np.empty(len(items), object)
    shapes[:] = [item["geometry"] and shape(item["geometry"]) for item in items]
    properties = [item.get("properties") or {} for item in items]
    names = list(dict.fromkeys(name for item_properties in properties for name in item_properties))
    return (
        system,
        shapes,
        {
            n: np.array([item_properties.get(n) for item_properties in properties], object)
            for n in names
        },
    )


def rasterize(
    source: Any,
    grid: PixelGrid,
    chunks: tuple[tuple[int, ...], tuple[int, ...]],
    *,
    class_column: str | None = None,
    layer: str | None = None,
) -> tuple[da.Array, Classes]:
    """Rasterize features lazily to int32 class codes, -1 for none; see :func:`read_features`.

    A polygon labels the pixels whose center it covers. Features of different classes on a pixel
    raise an error when the image is computed. Other errors are raised immediately: features are
    missing or outside the image, a coordinate system is not stated, or the edge of the coordinate
    system of the image cuts a feature.
    """
    crs, shapes, columns = read_features(source, layer)
    shown = shown_source(source)
    column = columns[class_column_of(list(columns), class_column, shown)]
    classes = read_classes(column, shown)
    if classes.codes.max() > np.iinfo(np.int32).max:
        raise ValueError(
            f"{shown} must have codes of classes below 2**31, got {classes.codes.max()}."
        )
    has_class = classes.codes != NO_CLASS
    placed_shapes, numbers, usable, inside = _on_image(shapes, crs, has_class, grid, shown)
    # The last code belongs to the number -1.
    codes = np.append(classes.codes, NO_CLASS).astype(np.int32)
    feature_image = _burnt(
        placed_shapes[inside], numbers[inside], codes, grid, chunks, shown, classes.names
    )
    image = da.map_blocks(_codes_of, feature_image, codes=codes, meta=np.empty((0, 0), np.int32))
    import shapely

    is_inside = shapely.covers(outline(grid, _CENTER), placed_shapes)
    # At the 180th meridian, two copies of a feature may both be partly inside the image.
    has_one_copy = np.isin(numbers, np.flatnonzero(np.bincount(numbers[inside]) == 1))
    names = [str((classes.names or {}).get(code, code)) for code in classes.codes.tolist()]
    features = Features(
        shown,
        feature_image,
        names,
        usable,
        np.setdiff1d(numbers, numbers[inside]),
        np.setdiff1d(numbers[inside & has_one_copy], numbers[is_inside]),
    )
    return image, replace(classes, features=features)


def covered(
    source: Any,
    grid: PixelGrid,
    chunks: tuple[tuple[int, ...], tuple[int, ...]],
    layer: str | None = None,
) -> da.Array:
    """Return a lazy mask of pixels whose center a feature covers; see :func:`rasterize`."""
    crs, shapes, _ = read_features(source, layer)
    shown = shown_source(source)
    placed_shapes, numbers, _, inside = _on_image(
        shapes, crs, np.ones(len(shapes), bool), grid, shown
    )
    return _burnt(placed_shapes[inside], numbers[inside], None, grid, chunks, shown) >= 0


def _on_image(
    shapes: Any, crs: str | None, wanted: Bools, grid: PixelGrid, shown: str
) -> tuple[Any, Ints, Ints, Bools]:
    """Transform the wanted shapes to the coordinate system of an image.

    Return shapes, their numbers, the numbers of all usable shapes, and a mask of the shapes that
    touch the image. In degrees, a shape has a copy on each side of the 180th meridian.
    """
    import shapely

    if crs is None or grid.crs is None:
        which = shown if crs is None else "the image"
        raise ValueError(
            f"{which} states no coordinate system, so the position of the features in the image "
            "is not known. Assign one, for example with ogr2ogr -a_srs, or rioxarray's write_crs."
        )
    _refuse_around(shapes, wanted, crs, shown)
    if not are_same(crs, grid.crs):
        shapes = on_grid(shapes, crs, grid.crs, shown)
    numbers = usable = np.flatnonzero(
        wanted & ~shapely.is_missing(shapes) & ~shapely.is_empty(shapes)
    )
    shapes = shapes[usable]
    if is_geographic(grid.crs):
        turns = [shapely.transform(shapes, partial(np.add, (by, 0.0))) for by in (-_TURN, _TURN)]
        shapes, numbers = np.concatenate([shapes, *turns]), np.tile(usable, 3)
    inside = shapely.intersects(shapes, outline(grid))
    if not inside.any():
        bounds = shapely.total_bounds(shapes[: len(usable)]).round(3).tolist()
        raise ValueError(
            f"None of the {len(usable)} features of {shown} lies in the image: in its coordinate "
            f"system they span {bounds}, the image {list(outline(grid).bounds)}."
        )
    return shapes, numbers, usable, inside


def _edges(shapes: Any) -> tuple[Floats, Floats, Ints]:
    """Return both ends of all edges of polygons, and the number of the shape of each edge."""
    import shapely

    parts, of_part = shapely.get_parts(shapes, return_index=True)
    rings, of_ring = shapely.get_rings(parts, return_index=True)
    corners, of_corner = shapely.get_coordinates(rings, return_index=True)
    joined = of_corner[1:] == of_corner[:-1]
    return corners[:-1][joined], corners[1:][joined], of_part[of_ring[of_corner[1:][joined]]]


def _refuse_around(shapes: Any, wanted: Bools, source: str, shown: str) -> None:
    """Raise ValueError for a shape with an edge that spans more than half the globe in longitude.

    Such an edge goes the long way (RFC 7946, 3.1.9), but is usually meant to cross the 180th
    meridian. An edge around the full globe is allowed.
    """
    if not is_in_degrees(source):
        return
    starts, ends, numbers = _edges(shapes)
    span = np.abs(ends - starts)[:, 0]
    far = np.flatnonzero(wanted[numbers] & (span > _TURN / 2) & (span < _TURN))
    if len(far):
        first, last = starts[far[0], 0], ends[far[0], 0]
        raise ValueError(
            f"Feature {numbers[far[0]]} of {shown} has an edge from longitude {first:g} to "
            f"{last:g}, more than half around the globe. If it crosses the 180th meridian, split "
            "it there (RFC 7946, 3.1.9), for example with ogr2ogr -wrapdateline. Otherwise add a "
            "point to the edge."
        )


def on_grid(shapes: Any, source: str, target: str, shown: str) -> Any:
    """Transform geometries to another coordinate system; outside its domain they become empty.

    A geometry that the edge of the system cuts raises ValueError, because its corners would be
    joined around the globe.
    """
    import shapely

    span = np.abs(shapely.get_coordinates(shapes)).max(axis=0, initial=0.0)
    if is_in_degrees(source) and (span > _TURN).any():
        raise ValueError(
            f"{shown} must have coordinates in degrees, as {system_name(source)} states, got "
            f"values up to {span.round(3).tolist()}. Assign the right system, for example with "
            "ogr2ogr -a_srs."
        )

    def moved(xy: Any) -> Any:
        return np.stack(move(xy[:, 0], xy[:, 1], source, target), axis=1)

    out = shapely.transform(shapes, moved)
    corners, of_corner = shapely.get_coordinates(out, return_index=True)
    out[np.unique(of_corner[~np.isfinite(corners).all(axis=1)])] = shapely.Point()
    if is_geographic(target) and not is_geographic(source):
        west, _, east, _ = shapely.bounds(out).T
        for number in np.flatnonzero(east - west > _TURN / 2):
            out[number] = _around(out[number])
        return out
    starts, ends, numbers = _edges(np.where(shapely.is_empty(out), None, shapes))
    first, last, middle = moved(starts), moved(ends), moved((starts + ends) / 2)
    with np.errstate(invalid="ignore"):
        off = np.linalg.norm(middle - (first + last) / 2, axis=1)
        allowed = _BENT * np.linalg.norm(last - first, axis=1) + 1e-9 * np.abs(first).max(axis=1)
        cut = np.flatnonzero(~(off <= allowed))
    if len(cut):
        raise ValueError(
            f"Feature {numbers[cut[0]]} of {shown} crosses an edge of {system_name(target)}, the "
            "system of the image, so its corners would be joined around the globe. Cut it there, "
            "for example with ogr2ogr -wrapdateline, or give it in that system."
        )
    return out


def _around(shape: Any) -> Any:
    """Join the parts of a shape at the 180th meridian, with a copy on each side of it.

    >>> import shapely
    >>> _around(shapely.box(-179.5, 0, 179.5, 1)).area
    2.0
    """
    import shapely

    parts = shapely.get_parts(shape)
    west, _, east, _ = shapely.bounds(parts).T
    # A feature spans less than half the globe, so its corners are on both sides of the meridian.
    crosses = east - west > _TURN / 2
    joined = shapely.transform(
        parts[crosses], lambda xy: np.stack([xy[:, 0] % _TURN, xy[:, 1]], axis=1)
    )
    other = shapely.transform(joined, lambda xy: xy - [_TURN, 0.0])
    return shapely.union_all([*parts[~crosses], *joined, *other])


def outline(grid: PixelGrid, more: float = 0.0) -> Any:
    """Return the border of an image, moved outward by this number of pixels."""
    import shapely

    (left, top), (right, bottom) = (-more, -more), (grid.shape[1] + more, grid.shape[0] + more)
    corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
    return shapely.Polygon([grid.positions(*corner) for corner in corners])


def _codes_of(numbers: Ints, *, codes: Ints) -> Ints:
    return codes[numbers]


def _burnt(
    shapes: Any,
    numbers: Ints,
    codes: Array | None,
    grid: PixelGrid,
    chunks: tuple[tuple[int, ...], tuple[int, ...]],
    shown: str,
    names: Mapping[int, str] | None = None,
) -> da.Array:
    """Rasterize the numbers of shapes lazily to int32, -1 for none.

    With `codes`, shapes of different codes must not overlap. `names` maps codes to names.
    """
    import shapely

    order = slice(None) if codes is None else np.argsort(codes[numbers], kind="stable")
    return da.map_blocks(
        _burn,
        shapes=list(shapely.to_wkb(shapes[order])),
        numbers=numbers[order],
        codes=codes,
        geobox=grid.geobox,
        names=dict(names or {}),
        shown=shown,
        chunks=chunks,
        dtype=np.int32,
        meta=np.empty((0, 0), np.int32),
    )


def _burn(
    *,
    shapes: list[bytes],
    numbers: Ints,
    codes: Ints | None,
    geobox: Any,
    names: dict[int, str],
    shown: str,
    block_info: Any = None,
) -> NDArray[np.int32]:
    """Rasterize the numbers of shapes, sorted by code, in one block of the image."""
    import shapely
    from rasterio.features import rasterize as burn

    (top, bottom), (left, right) = block_info[None]["array-location"]
    block_box = geobox[top:bottom, left:right]
    pairs = list(zip(shapely.from_wkb(shapes), numbers.tolist(), strict=True))
    options = {
        "out_shape": block_box.shape,
        "fill": -1,
        "transform": block_box.affine,
        "dtype": np.int32,
    }
    # The last shape wins: the one with the largest code, and with the smallest code in reverse.
    numbers_of_pixels: NDArray[np.int32] = burn(pairs, **options)
    if codes is not None:
        highest, lowest = codes[numbers_of_pixels], codes[burn(pairs[::-1], **options)]
        for row, column in np.argwhere(highest != lowest)[:1].tolist():
            low, high = (int(image[row, column]) for image in (lowest, highest))
            raise ValueError(
                f"{shown} must give each pixel one class, got {names.get(low, low)!r} and "
                f"{names.get(high, high)!r} for the pixel (row {top + row}, column "
                f"{left + column}). "
                "Correct the features that overlap there."
            )
    return numbers_of_pixels
