"""Polygons and points with a class (GeoJSON, GeoPackage, Shapefile, CSV) as images of codes."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Floats, Ints
from daskclust.core.storage.redact import redact
from daskclust.scenes._coordinate_systems import system_name
from daskclust.scenes._georeference import PixelGrid
from daskclust.scenes.formats.format_detection import needs_extra

#: One value more means none.
_LARGEST = 2**31 - 2
_COLUMNS = ("class", "class_name", "label", "class_id", "classname", "code", "category", "type")


@dataclass(frozen=True)
class Features:
    """How the features of a vector file lie in an image.

    `numbers` is a lazy image of the feature that labels each pixel, -1 for none. `classes` are
    those of all features, as text. `usable` are the numbers of features with a class and a
    geometry, of which `outside` lie outside of the image, and `beyond` reach beyond it.
    """

    source: str
    numbers: da.Array
    classes: Sequence[str]
    usable: Ints
    outside: Ints
    beyond: Ints


@dataclass(frozen=True)
class Classes:
    """Codes of the items of a label source, -1 for none, and their names if it has names.

    `features` are those of a vector file.
    """

    codes: Ints
    names: dict[int, str] | None
    features: Features | None = None


def check_codes(codes: Iterable[int]) -> None:
    """Refuse classes that a label map cannot hold: its values have at most 32 bits.

    >>> check_codes([3, 70_000])
    """
    largest = max(codes, default=-1)
    if largest > _LARGEST:
        raise ValueError(
            f"A class has the code {largest}; expected up to {_LARGEST}, the largest that a label "
            "map holds. Renumber the classes."
        )


def no_codes(name: str, dtype: Any) -> ValueError:
    """Return the error of an image of labels that holds no codes.

    >>> str(no_codes("label_map", np.dtype("<f4")))  # doctest: +ELLIPSIS
    'label_map has dtype float32; expected integers or booleans. Make codes of it by ...'
    """
    if np.dtype(dtype).kind == "f":
        remedy = "Make codes of it by astype(int), with -1 where no class is known."
    else:
        remedy = (
            "Of text make codes, names, codes = numpy.unique(labels, return_inverse=True), with -1 "
            "where no class is known; or give the text of the rows that have a class, as "
            "y=(rows, labels)."
        )
    return ValueError(f"{name} has dtype {dtype}; expected integers or booleans. {remedy}")


def class_column_of(columns: Sequence[str], wanted: str | None, source: str) -> str:
    """Choose the column that holds the classes among all but positions and geometries.

    Without `wanted`, the only column that can be meant.

    >>> class_column_of(["id", "Class"], None, "fields.gpkg")
    'Class'
    """
    if wanted is not None:
        if wanted not in columns:
            raise KeyError(
                f"{source} has no column {wanted!r}; it has {list(columns)}. Give one of them as "
                "class_column."
            )
        return wanted
    if len(columns) == 1:
        return columns[0]
    found = [name for name in columns if name.lower() in _COLUMNS]
    if len(found) != 1:
        raise ValueError(
            f"{source} has the columns {list(columns)}; which of them holds the classes cannot be "
            "told. Pass class_column=, on the command line --class-column."
        )
    return found[0]


def read_classes(values: Any, source: str) -> Classes:
    """Read the classes of items: whole numbers stay, names get the codes 0, 1, ... in order.

    None, NaN and empty text mean no class.

    >>> read_classes(["wheat", None, "maize"], "fields").codes.tolist()
    [1, -1, 0]
    >>> read_classes([3, 7, -1], "fields").codes.tolist()
    [3, 7, -1]
    """
    items = np.asarray(values, dtype=object)
    known = np.array([_is_class(item) for item in items], dtype=bool)
    codes = np.full(len(items), -1, dtype=np.int64)
    if not known.any():
        raise ValueError(f"{source} has no item with a class; expected at least one.")
    present = items[known]
    if all(isinstance(item, str) for item in present):
        numbers = _whole_numbers(present, source)
        if numbers is None:
            names, places = np.unique(present.astype(str), return_inverse=True)
            codes[known] = places
            return Classes(codes, {code: str(name) for code, name in enumerate(names)})
        codes[known] = numbers
    else:
        try:
            floats = np.array([float(item) for item in present])
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{source} mixes numbers and text as classes; expected all numbers or all text."
            ) from error
        # Beyond 2**53 a float is no longer one whole number.
        if not ((floats == np.floor(floats)) & (np.abs(floats) < 2**53)).all():
            raise ValueError(
                f"{source} has classes that are no whole numbers, such as "
                f"{floats[floats != np.floor(floats)][:1].tolist()}; expected codes or names."
            )
        codes[known] = floats.astype(np.int64)
    if (codes[known] < -1).any():
        raise ValueError(
            f"{source} has the class {codes[known].min()}; expected codes of 0 and more, -1 for "
            "none."
        )
    return Classes(codes, None)


def _is_class(item: Any) -> bool:
    is_nan = isinstance(item, float) and np.isnan(item)
    return bool(item.strip()) if isinstance(item, str) else item is not None and not is_nan


def _whole_numbers(texts: Array, source: str) -> Ints | None:
    """Return codes that are written as text; None if some text is no number."""
    # Tools that know one type of numbers write 3.0.
    plain = [text.strip().removesuffix(".0") for text in texts]
    try:
        return np.array([int(text) for text in plain], dtype=np.int64)
    except ValueError:
        pass
    try:
        floats = np.array([float(text) for text in texts])
    except ValueError:
        return None
    if not np.isfinite(floats).all():
        return None
    raise ValueError(
        f"{source} has classes that are no whole numbers, such as "
        f"{texts[floats != np.floor(floats)][:1].tolist()}; expected codes or names."
    )


#: Columns by name.
_Table = dict[str, list[Any]]
_ROW = ("row", "line", "pixel_row")
_COLUMN = ("column", "col", "sample", "pixel_column")
_X = ("x", "easting", "lon", "longitude")
_Y = ("y", "northing", "lat", "latitude")
#: Rows and columns beyond are outside of any image, as is what has no place in its system.
_FAR = 2.0**53
#: Names that say degrees, whatever the image is in.
_DEGREES = {"lon", "longitude", "lat", "latitude"}


def says_pixels(path: str | os.PathLike[str]) -> bool:
    """Whether a GeoJSON file says the row and column of each feature, as questions do."""
    return _features(os.fspath(path)) is not None


def _features(name: str) -> list[dict[str, Any]] | None:
    """Properties of the features of a GeoJSON file that are pixels; None for any other file."""
    if not name.lower().endswith((".geojson", ".json")) or "://" in name:
        return None
    try:
        with open(name, encoding="utf-8") as file:
            found = [dict(feature["properties"]) for feature in json.load(file)["features"]]
    except (ValueError, KeyError, TypeError):
        return None
    return found if all({"row", "column"} <= item.keys() for item in found) else None


def read_points(
    path: str | os.PathLike[str], grid: PixelGrid, *, class_column: str | None = None
) -> tuple[Ints, Ints, Classes]:
    """Read labeled pixels from a CSV or GeoJSON file: rows, columns and classes of labeled lines.

    A CSV file has a header line: ``row`` and ``column`` (from 0), or ``x`` and ``y`` in the image's
    coordinate system, or ``lon`` and ``lat`` (WGS 84); and a class. Features of a GeoJSON file have
    the properties ``row``, ``column`` and a class. A pixel outside the image or with two classes is
    an error.
    """
    name = os.fspath(path)
    if "://" not in name and not os.path.exists(name):
        raise FileNotFoundError(f"There is no file {name!r}; give the path of an existing one.")
    features, place = _features(name), name
    name = redact(name)  # as it is shown
    if features is not None:
        keys = list(dict.fromkeys(key for item in features for key in item))
        table: _Table = {key: [item.get(key) for item in features] for key in keys}
    else:
        try:
            table = _read_csv(place)
        except (ValueError, csv.Error) as error:
            raise ValueError(f"{name!r} cannot be read as CSV: {redact(error)}") from error
    rows, cols, used = _pixels(table, grid, name)
    rest = [column for column in table if column not in used]
    if not rest:
        raise ValueError(f"{name!r} has no column with classes beside {used}.")
    classes = read_classes(table[class_column_of(rest, class_column, f"{name!r}")], f"{name!r}")
    known = classes.codes != -1
    rows, cols, codes = rows[known], cols[known], classes.codes[known]
    outside = (rows < 0) | (rows >= grid.shape[0]) | (cols < 0) | (cols >= grid.shape[1])
    if outside.any():
        first = int(np.flatnonzero(outside)[0])
        line = int(np.flatnonzero(known)[first]) + 2
        where = "" if grid.crs_name is None else f" ({grid.crs_name})"
        raise ValueError(
            f"{name!r}, line {line}: the pixel (row {rows[first]}, column {cols[first]}) lies "
            f"outside the image of {grid.shape[0]} x {grid.shape[1]} pixels{where}."
        )
    _refuse_contradictions(rows, cols, codes, grid, name)
    return rows, cols, Classes(codes, classes.names)


def _read_csv(place: str) -> _Table:
    import fsspec

    with fsspec.open(place, "r", "infer", encoding="utf-8-sig", newline="") as file:
        lines = csv.reader(file, skipinitialspace=True)
        header = [field.strip() for field in next(lines, [])]
        if not header:
            raise ValueError("it is empty; expected a header line.")
        if len(set(header)) < len(header):
            raise ValueError(f"its columns are {header}; expected each name once.")
        table: _Table = {key: [] for key in header}
        for row in lines:
            if len(row) > len(header):
                raise ValueError(
                    f"line {lines.line_num} has {len(row)} fields, the header {len(header)}; "
                    "expected as many. Remove what is too much (a comma at the end of the line?)."
                )
            if row:
                for key, field in zip_longest(header, row, fillvalue=""):
                    table[key].append(field)
    return table


class _Points:
    """Single pixels with values as an image, made block by block."""

    def __init__(self, rows: Any, columns: Any, codes: Any, shape: tuple[int, int]) -> None:
        order = np.lexsort((columns, rows))
        self.rows, self.columns, self.codes = rows[order], columns[order], codes[order]
        self.shape, self.dtype, self.ndim = shape, np.dtype(np.int64), 2

    def __getitem__(self, key: tuple[slice, slice]) -> Ints:
        down, across = (part.indices(size) for part, size in zip(key, self.shape, strict=True))
        out = np.full((down[1] - down[0], across[1] - across[0]), -1, dtype=np.int64)
        first, last = np.searchsorted(self.rows, down[:2])
        columns = self.columns[first:last]
        inside = (columns >= across[0]) & (columns < across[1])
        rows = self.rows[first:last][inside] - down[0]
        out[rows, columns[inside] - across[0]] = self.codes[first:last][inside]
        return out


def points_image(
    rows: Ints, columns: Ints, codes: Ints, chunks: tuple[tuple[int, ...], tuple[int, ...]]
) -> da.Array:
    """Put codes of single pixels into an image; lazy, -1 elsewhere.

    >>> one = np.array([1])
    >>> points_image(one, one, np.array([7]), ((2,), (1, 1))).compute().tolist()
    [[-1, -1], [-1, 7]]
    """
    held = _Points(rows, columns, codes, (sum(chunks[0]), sum(chunks[1])))
    meta = np.empty((0, 0), np.int64)
    return da.from_array(held, chunks=chunks, asarray=False, fancy=False, meta=meta)


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
            f"{name!r} has the columns {list(table)}; expected row and column, "
            "or x and y, or lon and lat, and a class."
        )
    east, north = _numbers(table[x], x, name), _numbers(table[y], y, name)
    if {x.strip().lower(), y.strip().lower()} <= _DEGREES:
        if grid.crs is None:
            raise ValueError(
                f"{name!r} has degrees ({x}, {y}), and the image states no coordinate system, so "
                "which pixels are meant cannot be told. Assign one to the image, or give row and "
                "column."
            )
        east, north = _of_degrees(east, north, grid)
    found = np.nan_to_num(grid.places(east, north), nan=_FAR)
    cols, rows = np.floor(np.clip(found, -_FAR, _FAR)).astype(np.int64)
    return rows, cols, [x, y]


def _numbers(column: list[Any], key: str, name: str, *, whole: bool = False) -> Floats:
    found = np.array([_number(item) for item in column], dtype=np.float64)
    good = np.isfinite(found)
    if whole:
        good &= np.floor(found) == found
    if not good.all():
        bad = int(np.flatnonzero(~good)[0])
        said = column[bad]
        raise ValueError(
            f"{name!r}, line {bad + 2}: {key} is {said!r}; expected a "
            f"{'whole number' if whole else 'number'}."
        )
    return found


def _number(item: Any) -> float:
    try:
        return float(item)
    except (TypeError, ValueError):
        return np.nan


def _of_degrees(east: Floats, north: Floats, grid: PixelGrid) -> tuple[Floats, Floats]:
    """Bring longitudes and latitudes to the coordinate system of an image in meters."""
    from pyproj import CRS, Transformer

    rows, cols = grid.shape
    if CRS.from_user_input(grid.crs).is_geographic:
        edges = [grid.positions(column, row)[0] for column in (0, cols) for row in (0, rows)]
        west, most = min(edges), max(edges)
        # The image may go on beyond the seam of longitudes, where they begin anew.
        there = west + (east - west) % _TURNS[1]
        return np.where((there < most) & ~((west <= east) & (east < most)), there, east), north
    to_grid = Transformer.from_crs("EPSG:4326", grid.crs, always_xy=True)
    return to_grid.transform(east, north)


def _refuse_contradictions(rows: Ints, cols: Ints, codes: Ints, grid: PixelGrid, name: str) -> None:
    pixels = rows * grid.shape[1] + cols
    order = np.argsort(pixels, kind="stable")
    same = (np.diff(pixels[order]) == 0) & (np.diff(codes[order]) != 0)
    if same.any():
        at = order[int(np.flatnonzero(same)[0])]
        raise ValueError(
            f"{name!r} gives the pixel (row {rows[at]}, column {cols[at]}) two classes; expected "
            "one a pixel. Remove the repeated lines."
        )


#: Longitudes of one meridian differ by these.
_TURNS = (-360.0, 360.0)
#: Degrees of longitude; and how far the middle of an edge may lie off, as a share of its length.
_HALF_TURN, _BENT = 180.0, 0.25
#: Value of a pixel without a class.
NO_CLASS = -1
#: What reaches beyond the image by less of a pixel covers no center there.
_CENTER = 0.5


def read_features(
    path: str | os.PathLike[str],
) -> tuple[str | None, Any, dict[str, NDArray[Any]]]:
    """Read the features of a vector file: coordinate system, geometries, and columns by name."""
    with needs_extra(f"{str(path)!r}"):
        import pyogrio.raw
        import shapely
    shown = repr(redact(path))
    try:
        meta, _, geometry, fields = pyogrio.raw.read(os.fspath(path))
    except pyogrio.errors.DataSourceError as error:
        raise OSError(f"{shown} cannot be read as features: {redact(error)}") from error
    if geometry is None or not len(geometry):
        raise ValueError(f"{shown} has no features; expected polygons or points with a class.")
    columns = dict(zip(meta["fields"].tolist(), fields, strict=True))
    return meta["crs"], shapely.from_wkb(geometry), columns


def rasterize_file(
    path: str | os.PathLike[str],
    grid: PixelGrid,
    chunks: tuple[tuple[int, ...], tuple[int, ...]],
    *,
    class_column: str | None = None,
    covers: bool = False,
) -> tuple[da.Array, Classes]:
    """Burn the features of a vector file into a lazy image of int32 class codes, -1 for none.

    With `covers`, classes are not read: the code of a feature is its number, and features may
    overlap.

    A polygon takes the pixels whose center it covers. Features that give one pixel different
    classes are an error when the image is computed; earlier errors are no features, none inside the
    image, no way to tell where features or image lie, and features that the image's coordinate
    system cuts.
    """
    with needs_extra(f"{str(path)!r}"):
        import pyproj
        import shapely
    crs, shapes, columns = read_features(path)
    shown = repr(redact(path))
    if covers:
        classes = Classes(np.arange(len(shapes)), None)
    else:
        column = columns[class_column_of(list(columns), class_column, shown)]
        classes = read_classes(column, shown)
    if classes.codes.max() > np.iinfo(np.int32).max:
        raise ValueError(
            f"{shown} has the class {classes.codes.max()}; expected codes below 2**31."
        )
    if crs is None or grid.crs is None:
        which = shown if crs is None else "the image"
        raise ValueError(
            f"{which} states no coordinate system, so where the features lie in the image cannot "
            "be told. Assign one, for example with ogr2ogr -a_srs, or rioxarray's write_crs."
        )
    _refuse_around(shapes, classes.codes, crs, shown)
    if pyproj.CRS.from_user_input(crs) != pyproj.CRS.from_user_input(grid.crs):
        shapes = on_grid(shapes, crs, grid.crs, shown)
    usable = (classes.codes != NO_CLASS) & ~shapely.is_missing(shapes) & ~shapely.is_empty(shapes)
    shapes, numbers = shapes[usable], np.flatnonzero(usable)
    if pyproj.CRS.from_user_input(grid.crs).is_geographic:
        # The image may go on beyond the seam of longitudes, where they begin anew.
        turns = [shapely.transform(shapes, partial(np.add, (turn, 0.0))) for turn in _TURNS]
        shapes, numbers = np.concatenate([shapes, *turns]), np.tile(numbers, 1 + len(turns))
    inside = shapely.intersects(shapes, outline(grid))
    if not inside.any():
        bounds = shapely.total_bounds(shapes[: usable.sum()]).round(3).tolist()
        raise ValueError(
            f"None of the {usable.sum()} features of {shown} lies in the image: in its coordinate "
            f"system they span {bounds}, the image {list(outline(grid).bounds)}."
        )
    # A window is the corner and the size of a block.
    starts = [np.concatenate([[0], np.cumsum(sizes)[:-1]]) for sizes in chunks]
    parts = [np.stack(np.meshgrid(*at, indexing="ij"), axis=-1) for at in (starts, chunks)]
    windows = da.from_array(np.concatenate(parts, axis=2).astype(np.int64), chunks=(1, 1, 4))
    # The last one stands for a number of -1.
    codes = np.append(classes.codes, NO_CLASS).astype(np.int32)
    burnt = da.map_blocks(
        _burn,
        windows,
        shapes=list(shapely.to_wkb(shapes[inside])),
        numbers=numbers[inside],
        codes=codes,
        transform=grid.transform,
        names=classes.names,
        shown=shown,
        may_overlap=covers,
        drop_axis=2,
        chunks=chunks,
        meta=np.empty((0, 0), np.int32),
    )
    image = da.map_blocks(_codes_of, burnt, codes=codes, meta=np.empty((0, 0), np.int32))
    whole = shapely.covers(outline(grid, _CENTER), shapes)
    # At the seam of longitudes, parts that one copy has outside another may have inside.
    once = np.isin(numbers, np.flatnonzero(np.bincount(numbers[inside]) == 1))
    names = [str((classes.names or {}).get(code, code)) for code in classes.codes.tolist()]
    features = Features(
        shown,
        burnt,
        names,
        np.flatnonzero(usable),
        np.setdiff1d(numbers, numbers[inside]),
        np.setdiff1d(numbers[inside & once], numbers[whole]),
    )
    return image, replace(classes, features=features)


def _refuse_around(shapes: Any, codes: Ints, source: str, shown: str) -> None:
    """Refuse rings an edge of which spans more than half the globe in longitude.

    As written it goes the long way (RFC 7946, 3.1.9); drawn across the seam of longitudes the short
    one is meant. From one side of the seam to the other it is the edge of the whole globe.
    """
    import pyproj
    import shapely

    there = pyproj.CRS.from_user_input(source)
    if not there.is_geographic or there.axis_info[0].unit_name != "degree":
        return
    west, _, most, _ = shapely.bounds(shapes).T
    for number in np.flatnonzero((codes != NO_CLASS) & (most - west > _HALF_TURN)):
        for ring in shapely.get_rings(shapely.get_parts(shapes[number])):
            east = shapely.get_coordinates(ring)[:, 0]
            span = np.abs(np.diff(east))
            far = np.flatnonzero((span > _HALF_TURN) & (span < 2 * _HALF_TURN))
            if len(far):
                ends = " to ".join(f"{value:g}" for value in east[far[0] : far[0] + 2])
                raise ValueError(
                    f"Feature {number} of {shown} has an edge from longitude {ends}, more than "
                    "half around the globe. If it crosses the 180th meridian, split it there (RFC "
                    "7946, 3.1.9), for example with ogr2ogr -wrapdateline; if it does go around, "
                    "give the edge a point between."
                )


def on_grid(shapes: Any, source: str, target: str, shown: str) -> Any:
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


def outline(grid: PixelGrid, more: float = 0.0) -> Any:
    """Return the edge of an image, moved outward by so many pixels."""
    import shapely

    (left, top), (right, bottom) = (-more, -more), (grid.shape[1] + more, grid.shape[0] + more)
    corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
    return shapely.Polygon([grid.positions(*corner) for corner in corners])


def _codes_of(numbers: Ints, *, codes: Ints) -> Ints:
    return codes[numbers]


def _burn(
    window: Ints,
    *,
    shapes: list[bytes],
    numbers: Ints,
    codes: Ints,
    transform: tuple[float, ...],
    names: dict[int, str] | None,
    shown: str,
    may_overlap: bool = False,
) -> NDArray[np.int32]:
    """Burn the numbers of all features into one block of the image."""
    import shapely
    from affine import Affine
    from rasterio.features import rasterize

    top, left, height, width = window[0, 0].tolist()
    order = np.argsort(codes[numbers], kind="stable")
    a, b, c, d, e, f = transform
    here = Affine(a, b, a * left + b * top + c, d, e, d * left + e * top + f)
    pairs = list(zip(shapely.from_wkb(shapes), numbers.tolist(), strict=True))
    found: list[NDArray[np.int32]] = [
        rasterize(
            [pairs[at] for at in some],
            out_shape=(height, width),
            fill=-1,
            transform=here,
            dtype=np.int32,
        )
        # The last counts: the largest code of each pixel, and the smallest.
        for some in (order, order[::-1])
    ]
    highest, lowest = (codes[image] for image in found)
    if not may_overlap and (highest != lowest).any():
        row, column = (int(axis[0]) for axis in np.nonzero(highest != lowest))
        two = [int(image[row, column]) for image in (highest, lowest)]
        classes = [(names or {}).get(code, code) for code in two]
        raise ValueError(
            f"{shown} gives the pixel (row {top + row}, column {left + column}) the classes "
            f"{classes[1]!r} and {classes[0]!r}; expected one a pixel. Correct the features that "
            "overlap there."
        )
    return found[0]
