"""Tables of labeled pixels: CSV with row and column, or with x and y, and a class."""

from __future__ import annotations

import csv
import json
import os
from itertools import zip_longest
from typing import Any

import dask.array as da
import numpy as np

from daskclust._types import Floats, Ints
from daskclust.cube._georeference import PixelGrid
from daskclust.cube.formats.classes import Classes, class_column_of, read_classes
from daskclust.storage.urls import redact

#: Columns by name.
_Table = dict[str, list[Any]]
_ROW = ("row", "line", "pixel_row")
_COLUMN = ("column", "col", "sample", "pixel_column")
_X = ("x", "easting", "lon", "longitude")
_Y = ("y", "northing", "lat", "latitude")
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

    with fsspec.open(place, "r", encoding="utf-8-sig", newline="") as file:
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

    Examples
    --------
    >>> one = np.array([1])
    >>> points_image(one, one, np.array([7]), ((2,), (1, 1))).compute().tolist()
    [[-1, -1], [-1, 7]]
    """
    held = _Points(rows, columns, codes, (sum(chunks[0]), sum(chunks[1])))
    meta = np.empty((0, 0), np.int64)
    return da.from_array(held, chunks=chunks, asarray=False, fancy=False, meta=meta)


def _find(table: _Table, names: tuple[str, ...]) -> str | None:
    return next((c for c in table if c.strip().lower() in names), None)


def _pixels(table: _Table, grid: PixelGrid, name: str) -> tuple[Ints, Ints, list[str]]:
    row, column = _find(table, _ROW), _find(table, _COLUMN)
    if row is not None and column is not None:
        found = [_numbers(table[key], key, name, whole=True) for key in (row, column)]
        positions = [key for key in (_find(table, _X), _find(table, _Y)) if key is not None]
        return found[0].astype(np.int64), found[1].astype(np.int64), [row, column, *positions]
    x, y = _find(table, _X), _find(table, _Y)
    if x is None or y is None:
        raise ValueError(
            f"{name!r} has the columns {list(table)}; expected row and column, "
            "or x and y, or lon and lat, and a class."
        )
    a, b, c, d, e, f = grid.transform
    east, north = _numbers(table[x], x, name), _numbers(table[y], y, name)
    if {x.strip().lower(), y.strip().lower()} <= _DEGREES:
        if grid.crs is None:
            raise ValueError(
                f"{name!r} has degrees ({x}, {y}), and the image states no coordinate system, so "
                "which pixels are meant cannot be told. Assign one to the image, or give row and "
                "column."
            )
        east, north = _of_degrees(east, north, grid)
    east, north = east - c, north - f
    cols, rows = np.linalg.solve([[a, b], [d, e]], np.stack([east, north]))
    return np.floor(rows).astype(np.int64), np.floor(cols).astype(np.int64), [x, y]


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

    if CRS.from_user_input(grid.crs).is_geographic:
        return east, north
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
