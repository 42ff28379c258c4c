"""Coordinate systems and positions of images, as stores and xarray objects state them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from daskclust.core.array_types import Floats
from daskclust.core.storage.stored_array import values_of
from daskclust.core.warn import warn
from daskclust.exceptions import DaskclustWarning
from daskclust.scenes._coordinates import (
    TOLERANCE,
    Line,
    Placed,
    PlacingError,
    Transform,
    composed,
    distance,
    placed_by_lines,
    placed_by_planes,
    rounding_of,
)
from daskclust.scenes.coordinate_systems import (
    are_same,
    known_system,
    system_name,
    unit_factor,
)
from daskclust.scenes.formats.format_detection import needs_extra

_ATTRIBUTES = (
    "crs",
    "crs_wkt",
    "grid_mapping",
    "spatial_ref",
    "GeoTransform",
    "transform",
    "zarr_conventions",
    "_CRS",
)
_PREFIXES = ("proj:", "spatial:")
# Attributes that state a coordinate system, in order of preference.  Two maps are compared by the
# first attribute that both have.
_SYSTEMS = ("proj:code", "proj:projjson", "proj:wkt2", "crs_wkt", "spatial_ref", "crs", "_CRS")
_TRANSFORMS = ("spatial:transform", "transform", "GeoTransform")
#: Rows and columns as coordinates, for an image that is not georeferenced.
IDENTITY = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)
_UNITS = {"metre": "m", "meter": "m", "degree": "\N{DEGREE SIGN}", "kilometre": "km"}
#: Attributes that describe the extent of an image in other words than its transform.
_EXTENTS = ("spatial:bbox", "spatial:shape", "proj:bbox", "proj:shape", "proj:transform")
#: Two-dimensional coordinates x and y of turned images, as rioxarray names them.
_PLANES = ("xc", "yc")
#: Attributes of packed coordinates, as CF has them.
_PACKING = {"scale_factor": 1.0, "add_offset": 0.0}


def georeference(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Select the attributes that georeference an array or group.

    >>> georeference({"proj:code": "EPSG:32632", "units": "1"})
    {'proj:code': 'EPSG:32632'}
    """
    return {k: v for k, v in attributes.items() if k in _ATTRIBUTES or k.startswith(_PREFIXES)}


@dataclass(frozen=True)
class Coordinate:
    """A coordinate of an image, or its grid mapping (no dimensions, a value without meaning).

    ``values`` is anything that ``values_of`` reads, and stays unread until then.
    """

    dims: tuple[str, ...]
    values: Any
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Described:
    """An array with its metadata in Zarr, xarray or a file.

    `names` are the names of its dimensions, or None. `around` are attributes of its group.
    `mapping` is the name of its grid mapping. `find` returns another array of the group, or a
    coordinate, by name. `encoding` is xarray's description of the stored values. `title` names the
    array in messages.
    """

    values: Any
    title: str
    names: tuple[str, ...] | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    around: Mapping[str, Any] = field(default_factory=dict)
    encoding: Mapping[str, Any] = field(default_factory=dict)
    mapping: Any = None
    find: Callable[[str], Coordinate | None] = lambda name: None


@dataclass(frozen=True)
class Georeference:
    """The position of an image, as a store or an xarray object states it.

    `attributes` are attributes of the array. `coordinates` are the positions along y and x, and the
    grid mapping. `names` are the names of the dimensions y and x, and `shape` is the number of
    pixels along them.
    """

    attributes: Mapping[str, Any] = field(default_factory=dict)
    group_attributes: Mapping[str, Any] = field(default_factory=dict)
    coordinates: Mapping[str, Coordinate] = field(default_factory=dict)
    names: tuple[str, str] = ("y", "x")
    shape: tuple[int, int] = (1, 1)

    @classmethod
    def of(cls, item: Described, names: tuple[str, str]) -> Georeference:
        """Return the georeference of an array whose dimensions y and x are called `names`.

        Transforms that contradict the coordinates are corrected, with a warning.

        Raises
        ------
        ValueError
            The image states a position, and its coordinates are not those of a regular grid.
        """
        attributes, wanted_names = georeference(item.attributes), {*names}
        if isinstance(item.mapping, str):
            attributes["grid_mapping"] = item.mapping
            wanted_names.add(item.mapping)
        sizes = dict(zip(item.names or (), map(int, item.values.shape), strict=False))
        coordinates = {}
        for name in sorted(wanted_names):
            coordinate = item.find(name)
            # Positions are numbers along one axis, which text is not.
            if (
                coordinate is not None
                and coordinate.dims == (name,)
                and coordinate.values.dtype.kind in "iuf"
            ):
                coordinates[name] = _read(coordinate, name, item.title, sizes.get(name))
            elif coordinate is not None and coordinate.values.ndim == 0:
                coordinates[name] = coordinate
        shape = sizes.get(names[0], 1), sizes.get(names[1], 1)
        reference = cls(attributes, georeference(item.around), coordinates, names, shape)
        try:
            placed = reference._placed_by_planes(item) or reference.placed
        except PlacingError as error:
            raise ValueError(f"{item.title} is not on a regular grid: {error}.") from error
        return reference._corrected(placed, item.title)

    @property
    def stated(self) -> dict[str, Transform]:
        """Transforms that attributes state, by their names; the first one is used."""
        facts, transforms = self.facts(), {}
        for name in _TRANSFORMS:
            numbers = _stated(name, facts.get(name))
            if numbers is None:
                continue
            if name == "spatial:transform":
                if facts.get("spatial:transform_type", "affine") != "affine":
                    continue
                if facts.get("spatial:registration") == "node":
                    numbers = composed(numbers, (1.0, 0.0, -0.5, 0.0, 1.0, -0.5))
            transforms[name] = numbers
        return transforms

    @cached_property
    def placed(self) -> Placed:
        """Transform of the pixels: by the coordinates if they are usable, else as stated.

        Raises
        ------
        PlacingError
            The image states a position, and its coordinates are not those of a regular grid.
        """
        stated = list(self.stated.values())
        y, x = map(self._line, self.names)
        if y is None and x is None:
            return Placed(stated[0] if stated else None)
        try:
            return placed_by_lines(y, x, stated)
        except PlacingError:
            if stated or self.crs_text() is not None:
                raise
            # A map has these coordinates, but no transform.
            return Placed(None)

    @property
    def counts(self) -> bool:
        """True if the coordinates only number rows and columns, without a stated transform."""
        lines = [self._line(name) for name in self.names]
        return not self.stated and all(
            line is not None and np.array_equal(line.values, np.arange(len(line.values)))
            for line in lines
        )

    def _line(self, name: str) -> Line | None:
        coordinate = self.coordinates.get(name)
        if coordinate is None or not coordinate.dims:
            return None
        attributes_found = coordinate.attributes
        unit = str(attributes_found.get("units", "")).lower()
        size = attributes_found.get("resolution")  # odc-geo
        return Line(
            name,
            np.asarray(values_of(coordinate.values)),
            "pixel" if unit == "pixels" else unit,
            unit_factor(unit, self.crs_text()),
            float(size) if isinstance(size, int | float) else None,
        )

    def _placed_by_planes(self, item: Described) -> Placed | None:
        """Place a turned image by its two-dimensional coordinates; None without them."""
        if any(name in self.coordinates for name in self.names):
            return None
        planes = []
        for plane in map(item.find, _PLANES):
            if plane is None or {*plane.dims} != {*self.names}:
                return None
            planes.append(plane.values if plane.dims == self.names else plane.values.T)
        x, y = planes
        placed = placed_by_planes(x, y, next(iter(self.stated.values()), None))
        return None if placed.transform is None else placed

    def _corrected(self, placed: Placed, title: str) -> Georeference:
        """Replace transforms that contradict the coordinates of the pixels, with a warning."""
        correct, stated = placed.transform, self.stated
        if correct is None:
            return self
        allowed = TOLERANCE + placed.slack
        wrong = [name for name in stated if distance(correct, stated[name], self.shape) > allowed]
        if not wrong:
            # Two-dimensional coordinates are not kept.
            is_stated = bool(stated) or any(name in self.coordinates for name in self.names)
            added = {} if is_stated else {"transform": list(correct)}
            return replace(self, attributes={**self.attributes, **added})
        lines = {name: self._line(name) for name in self.names}
        counting = {name for name, line in lines.items() if line and line.unit == "pixel"}
        if not counting:
            used = next((name for name in stated if name not in wrong), "coordinates")
            warn(
                f"{title} states its position in two ways: {_pixels(correct)} by its {used}; "
                + "; ".join(f"{_pixels(stated[name])} by its {name}" for name in wrong)
                + ". The first is used. Selecting pixels from an array leaves its attributes as "
                "they were; update them, for example with write_transform() of rioxarray. "
                "Coordinates are those of the centers of pixels.",
                DaskclustWarning,
            )

        def corrected(attributes: Mapping[str, Any]) -> dict[str, Any]:
            out = {name: value for name, value in attributes.items() if name not in _EXTENTS}
            for name in out.keys() & {*wrong}:
                out[name] = _written(name, correct, attributes[name])
            if "spatial:transform" in wrong:
                out.pop("spatial:registration", None)
            return out

        # Numbers of pixels of a larger image do not match the corrected transform.
        coordinates = {k: v for k, v in self.coordinates.items() if k not in counting}
        mapping = self.facts().get("grid_mapping")
        if mapping in coordinates:
            coordinate = coordinates[mapping]
            coordinates[mapping] = replace(coordinate, attributes=corrected(coordinate.attributes))
        return replace(
            self,
            attributes=corrected(self.attributes),
            group_attributes=corrected(self.group_attributes),
            coordinates=coordinates,
        )

    def differences(self, other: Georeference, whose: str = "the cube's") -> list[str]:
        """List how the position of another map differs, in what both maps state.

        >>> here = Georeference({"proj:code": "EPSG:32632"})
        >>> len(here.differences(Georeference({"proj:code": "EPSG:4326"})))
        1
        >>> here.differences(Georeference())
        []
        """
        texts = []
        mine, theirs = self.facts(), other.facts()
        # Compare by an attribute that both have, if there is one.
        key = next((k for k in _SYSTEMS if k in mine and k in theirs), "")
        left, right = (mine[key], theirs[key]) if key else (self.crs_text(), other.crs_text())
        if None not in (left, right) and not _same_text(left, right):
            same = are_same(left, right)
            # Without pyproj, different texts may state the same system.
            if not same if same is not None else key:
                names = [system_name(text) for text in (right, left)]
                if names[0] == names[1]:  # the difference is in what the names leave out
                    names = [_short(right), _short(left)]
                texts.append(f"its coordinate system is {names[0]}, {whose} {names[1]}")
        here, there = self.placed, other.placed
        if None not in (here.transform, there.transform) and not (self.counts or other.counts):
            assert here.transform is not None
            assert there.transform is not None
            shape = max(self.shape[0], other.shape[0]), max(self.shape[1], other.shape[1])
            shift = distance(here.transform, there.transform, shape)
            if shift > TOLERANCE + here.slack + there.slack:
                texts.append(
                    f"it has {_pixels(there.transform)}, {whose} {_pixels(here.transform)}"
                )
            return texts
        for name, left in self.coordinates.items():
            if left.dims and name in other.coordinates:
                if not _same_positions(left.values, other.coordinates[name].values):
                    texts.append(f"coordinate {name!r} has other values")
        return texts

    def crs_text(self) -> str | None:
        """Return the coordinate system as text for pyproj, or None."""
        facts = self.facts()
        for name in _SYSTEMS:
            value = facts.get(name)
            if name == "_CRS" and isinstance(value, Mapping):
                # GDAL writes the same coordinate system in up to three ways.
                value = value.get("wkt", value.get("projjson", value.get("url")))
            if isinstance(value, Mapping):
                return json.dumps(value)
            if isinstance(value, str) and value.strip():
                return value
        return None

    def facts(self) -> dict[str, Any]:
        """Return the attributes of array, group and grid mapping that georeference the image."""
        facts = {**self.group_attributes, **self.attributes}
        mapping = facts.get("grid_mapping")
        if isinstance(mapping, str) and mapping in self.coordinates:
            facts.update(georeference(self.coordinates[mapping].attributes))
        return facts


#: Georeference of an image without a coordinate system and positions.
NOWHERE = Georeference()


def _same_text(one: Any, other: Any) -> bool:
    return " ".join(str(one).split()) == " ".join(str(other).split())


def _same_positions(one: Any, other: Any) -> bool:
    left, right = (np.asarray(values_of(values)) for values in (one, other))
    if left.shape != right.shape:
        return False
    step = np.abs(np.diff(left[:2])).max(initial=0.0)
    allowed = TOLERANCE * step + rounding_of(left) + rounding_of(right)
    return bool(np.allclose(left, right, rtol=0, atol=allowed, equal_nan=True))


def _pixels(transform: Transform) -> str:
    """Describe a transform in words."""
    a, b, c, d, e, f = (f"{part:.10g}" for part in transform)
    size = f"{a} x {e}" if b == d == "0" else f"({a}, {d}) x ({b}, {e})"
    return f"pixels of {size} from ({c}, {f})"


def _written(name: str, transform: Transform, like: Any) -> Any:
    """Return a transform in the form of an attribute."""
    a, b, c, d, e, f = transform
    numbers = [c, a, b, f, d, e] if name == "GeoTransform" else [a, b, c, d, e, f]
    if not isinstance(like, str):
        return numbers
    return (", " if "," in like else " ").join(map(repr, numbers))


def _read(coordinate: Coordinate, name: str, title: str, size: int | None) -> Coordinate:
    """Read and unpack the positions along an axis of `size` pixels."""
    values = np.asarray(values_of(coordinate.values))
    if size is not None and len(values) != size:
        raise ValueError(
            f"{title} must have a coordinate along {name!r} with one value for each of the {size} "
            f"pixels, got {len(values)}. Correct the coordinate, or remove it."
        )
    if _PACKING.keys().isdisjoint(coordinate.attributes):
        return replace(coordinate, values=values)
    scale, offset = (
        float(coordinate.attributes.get(key, value)) for key, value in _PACKING.items()
    )
    rest = {key: value for key, value in coordinate.attributes.items() if key not in _PACKING}
    return Coordinate(coordinate.dims, scale * values.astype(np.float64) + offset, rest)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


@dataclass(frozen=True)
class MapAxes:
    """Positions of columns and rows.

    The position of a pixel edge is ``x = left + across * column``, ``y = top + down * row``.
    `x_name` and `y_name` are titles with units. `unit` is ``"pixel"`` if the position is unknown.
    `system` and `pixel` are texts of the report.
    """

    left: float
    across: float
    top: float
    down: float
    x_name: str
    y_name: str
    unit: str
    system: str | None = None

    @property
    def pixel(self) -> str:
        """Size of a pixel, as text."""
        if self.unit == "pixel":
            return ""
        return f"{abs(self.across):g} x {abs(self.down):g} {self.unit}"


@dataclass(frozen=True)
class PixelGrid:
    """Shape, transform and coordinate system of an image.

    `shape` is (rows, columns). `transform` is ``x = a col + b row + c``, ``y = d col + e row + f``,
    of pixel corners. `crs` is anything that pyproj reads.
    """

    shape: tuple[int, int]
    transform: tuple[float, ...]
    crs: str | None

    @property
    def crs_name(self) -> str | None:
        """Return name and EPSG code of the coordinate system, or None.

        >>> PixelGrid((2, 3), (30.0, 0.0, 0.0, 0.0, -30.0, 0.0), "EPSG:32610").crs_name
        'WGS 84 / UTM zone 10N (EPSG:32610)'
        """
        return None if self.crs is None else system_name(self.crs)

    def positions(self, columns: Any, rows: Any) -> tuple[Any, Any]:
        """Return x and y of columns and rows; the first pixel reaches from 0 to 1."""
        a, b, c, d, e, f = self.transform
        return a * columns + b * rows + c, d * columns + e * rows + f

    def places(self, x: Floats, y: Floats) -> Floats:
        """Return columns and rows (2, ...) of positions; the first pixel reaches from 0 to 1.

        >>> grid = PixelGrid((2, 3), (30.0, 0.0, 600.0, 0.0, -30.0, 90.0), None)
        >>> grid.places(*grid.positions(np.array([0.5]), np.array([1.5]))).tolist()
        [[0.5], [1.5]]
        """
        a, b, c, d, e, f = self.transform
        return np.asarray(np.linalg.solve([[a, b], [d, e]], [x - c, y - f]), np.float64)

    @property
    def geobox(self) -> Any:
        """The grid as ``odc.geo.geobox.GeoBox``, for which odc-geo is needed.

        >>> PixelGrid((2, 3), (30.0, 0.0, 600.0, 0.0, -30.0, 90.0), "EPSG:32610").geobox.resolution
        Resolution(x=30, y=-30)
        """
        with needs_extra("A GeoBox"):
            from affine import Affine
            from odc.geo.geobox import GeoBox

        return GeoBox(self.shape, Affine(*self.transform), self.crs)

    @property
    def axes(self) -> MapAxes:
        """Return the axes of a picture; rows and columns if the image is rotated."""
        a, b, c, d, e, f = self.transform
        if b != 0 or d != 0 or self.transform == IDENTITY:
            return MapAxes(0.0, 1.0, 0.0, 1.0, "Column (pixel)", "Row (pixel)", "pixel")
        return MapAxes(c, a, f, e, *_names_of(self.crs))


def _names_of(text: str | None) -> tuple[str, str, str, str | None]:
    """Return the titles of x and y, their unit, and the name of the coordinate system."""
    system = None if text is None else known_system(text)
    if system is None:
        return "x", "y", "units", None
    axes = {axis.direction: axis for axis in system.axis_info}
    unit = next((axis.unit_name for axis in axes.values()), "units")
    unit = _UNITS.get(unit, unit)
    x_name, y_name = ("Longitude", "Latitude") if system.is_geographic else ("Easting", "Northing")
    return f"{x_name} ({unit})", f"{y_name} ({unit})", unit, str(system.name)


def pixel_grid(georeference: Georeference, shape: tuple[int, ...]) -> PixelGrid:
    """Return the grid of an image: by its coordinates if they are regular, else a stated transform.

    The grid has row and column numbers if the image has no position.

    >>> pixel_grid(NOWHERE, (2, 3)).crs is None
    True
    """
    transform_used = georeference.placed.transform or IDENTITY
    system = georeference.crs_text()
    if system is None and transform_used != IDENTITY and _are_degrees(georeference):
        # CF's coordinates alone, as most climate data have them; the ellipsoid is not stated.
        system = "EPSG:4326"
    return PixelGrid((int(shape[0]), int(shape[1])), transform_used, system)


def _are_degrees(georeference: Georeference) -> bool:
    lines = map(georeference.coordinates.get, georeference.names)
    units = [
        "" if coordinate is None else str(coordinate.attributes.get("units", "")).lower()
        for coordinate in lines
    ]
    patterns = ("n(orth)?", "e(ast)?")
    return all(
        re.fullmatch(f"degrees?_?{pattern}", u) for pattern, u in zip(patterns, units, strict=True)
    )


def _stated(name: str, value: Any) -> Transform | None:
    """Read a stated transform; None if it is not a transform, or gives pixels no area."""
    try:
        values = value.replace(",", " ").split() if isinstance(value, str) else value
        numbers = tuple(float(part) for part in (() if values is None else values))[:6]
    except (TypeError, ValueError):
        return None
    if len(numbers) != 6 or not np.isfinite(numbers).all():
        return None
    if name == "GeoTransform":
        c, a, b, f, d, e = numbers
    else:
        a, b, c, d, e, f = numbers
    return (a, b, c, d, e, f) if a * e != b * d else None
