"""Where on Earth the pixels are: copied unchanged, compared, never invented."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np

from daskclust._types import Floats
from daskclust.storage.seen import values_of

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
# Ways to name a coordinate system, best first: where both maps use one, it decides.
_SYSTEMS = ("proj:code", "proj:projjson", "proj:wkt2", "crs_wkt", "spatial_ref", "crs", "_CRS")
_TRANSFORMS = ("spatial:transform", "GeoTransform", "transform")
#: Rows and columns themselves: an image that does not say where it lies.
IDENTITY = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)
_UNITS = {"metre": "m", "meter": "m", "degree": "\N{DEGREE SIGN}", "kilometre": "km"}
#: Steps of a regular coordinate differ by no more, as a share of a step.
_UNEVEN = 1e-3


def georeference(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Select the attributes that georeference an array or group.

    >>> georeference({"proj:code": "EPSG:32632", "units": "1"})
    {'proj:code': 'EPSG:32632'}
    """
    return {k: v for k, v in attributes.items() if k in _ATTRIBUTES or k.startswith(_PREFIXES)}


@dataclass(frozen=True)
class Coordinate:
    """A coordinate of an image, or its grid mapping (no dimensions, a value without meaning).

    ``values`` is anything that ``values_of`` reads: nothing is read until it is asked for.
    """

    dims: tuple[str, ...]
    values: Any
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Described:
    """An array, and what Zarr, xarray or a file says of it: all that is read of scenes and maps.

    `names` are those of its dimensions, None where they have none. `around` are attributes of the
    group that it lies in, `mapping` is the name of its grid mapping, and `find` returns another
    array of the group, or a coordinate, by its name. `encoding` is what xarray knows of the stored
    values. `title` is for messages.
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

    `attributes` are those of the array, `coordinates` the positions along y and x and the grid
    mapping.
    """

    attributes: Mapping[str, Any] = field(default_factory=dict)
    group_attributes: Mapping[str, Any] = field(default_factory=dict)
    coordinates: Mapping[str, Coordinate] = field(default_factory=dict)

    @classmethod
    def of(cls, item: Described, names: tuple[str, str]) -> Georeference:
        """Find what belongs to an array whose dimensions y and x are called `names`."""
        attributes, wanted = georeference(item.attributes), {*names}
        if isinstance(item.mapping, str):
            attributes["grid_mapping"] = item.mapping
            wanted.add(item.mapping)
        found = {name: item.find(name) for name in sorted(wanted)}
        # Positions are numbers along one axis, which text is not.
        coordinates = {
            name: one
            for name, one in found.items()
            if one is not None
            and (one.values.ndim == 0 or (one.values.ndim == 1 and one.values.dtype.kind in "iuf"))
        }
        return cls(attributes, georeference(item.around), coordinates)

    def differences(self, other: Georeference, whose: str = "the cube's") -> list[str]:
        """Say in which respects another map lies elsewhere; what only one states is no difference.

        >>> here = Georeference({"proj:code": "EPSG:32632"})
        >>> len(here.differences(Georeference({"proj:code": "EPSG:4326"})))
        1
        >>> here.differences(Georeference())
        []
        """
        found = []
        mine, theirs = self.facts(), other.facts()
        # By the way of saying that both use, where there is one.
        key = next((k for k in _SYSTEMS if k in mine and k in theirs), "")
        one, two = (mine[key], theirs[key]) if key else (self.crs_text(), other.crs_text())
        if None not in (one, two) and not _same_text(one, two):
            left, right = known_system(one), known_system(two)
            is_known = left is not None and right is not None
            # Without pyproj, other ways of saying may say the same.
            if not left.equals(right, ignore_axis_order=True) if is_known else key:
                names = [system_name(text) for text in (two, one)]
                if names[0] == names[1]:  # the difference is in what the names leave out
                    names = [_short(two), _short(one)]
                found.append(f"its coordinate system is {names[0]}, {whose} {names[1]}")
        key = next((k for k in _TRANSFORMS if k in mine and k in theirs), "")
        if key and not _same_numbers(mine[key], theirs[key]):
            found.append(f"its {key} is {_short(theirs[key])}, {whose} {_short(mine[key])}")
            return found
        for name, one in self.coordinates.items():
            if name not in other.coordinates or not one.dims:
                continue
            if not _same_numbers(values_of(one.values), values_of(other.coordinates[name].values)):
                found.append(f"coordinate {name!r} has other values")
        return found

    def crs_text(self) -> str | None:
        """Return the coordinate system as text that pyproj reads; None where none is stated."""
        facts = self.facts()
        for name in _SYSTEMS:
            value = facts.get(name)
            if name == "_CRS" and isinstance(value, Mapping):
                # As GDAL writes it: the same in up to three ways.
                value = value.get("wkt", value.get("projjson", value.get("url")))
            if isinstance(value, Mapping):
                return json.dumps(value)
            if isinstance(value, str) and value.strip():
                return value
        return None

    def facts(self) -> dict[str, Any]:
        """Return what the attributes of array, group and grid mapping say."""
        facts = {**self.group_attributes, **self.attributes}
        mapping = facts.get("grid_mapping")
        if isinstance(mapping, str) and mapping in self.coordinates:
            facts.update(georeference(self.coordinates[mapping].attributes))
        return facts


#: The georeference of an image that says nothing about its place.
NOWHERE = Georeference()


def system_name(system: Any) -> str:
    """Name and EPSG code of a coordinate system, from anything that pyproj reads."""
    found = known_system(system)
    if found is None:
        text = json.dumps(system) if isinstance(system, Mapping) else str(system)
        return f"{'unknown: ' if find_spec('pyproj') else ''}{text[:60]}"
    code = found.to_epsg()
    return str(found.name) if code is None else f"{found.name} (EPSG:{code})"


def known_system(system: Any) -> Any:
    """Return pyproj's coordinate system; None where pyproj is missing or does not know it."""
    try:
        from pyproj import CRS
        from pyproj.exceptions import CRSError
    except ImportError:
        return None
    try:
        return CRS.from_user_input(system)
    except CRSError:
        return None


def _same_text(one: Any, other: Any) -> bool:
    return " ".join(str(one).split()) == " ".join(str(other).split())


def _same_numbers(one: Any, other: Any) -> bool:
    try:
        left, right = _numbers(one), _numbers(other)
    except ValueError:
        return _same_text(one, other)
    # Positions written with different numbers of digits are the same.
    scale = np.abs(left).max(initial=0.0)
    return left.shape == right.shape and bool(np.allclose(left, right, rtol=0, atol=1e-9 * scale))


def _numbers(value: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.asarray(value.split() if isinstance(value, str) else value, dtype=np.float64)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


@dataclass(frozen=True)
class MapAxes:
    """Where columns and rows lie.

    ``x = left + across * column``, ``y = top + down * row``, of pixel edges. `x_name` and `y_name`
    are titles with units; `unit` is ``"pixel"`` where the place is not known.
    """

    left: float
    across: float
    top: float
    down: float
    x_name: str
    y_name: str
    unit: str
    system: str | None

    @property
    def pixel(self) -> str:
        """Size of a pixel, as text."""
        if self.unit == "pixel":
            return ""
        return f"{abs(self.across):g} x {abs(self.down):g} {self.unit}"


@dataclass(frozen=True)
class PixelGrid:
    """Where the pixels of an image lie.

    `shape` is (rows, columns). `transform` is ``x = a col + b row + c``, ``y = d col + e row + f``,
    of pixel corners. `crs` is anything that pyproj reads.
    """

    shape: tuple[int, int]
    transform: tuple[float, ...]
    crs: str | None

    @property
    def crs_name(self) -> str | None:
        """Name and EPSG code of the coordinate system; None where none is stated.

        >>> PixelGrid((2, 3), (30.0, 0.0, 0.0, 0.0, -30.0, 0.0), "EPSG:32610").crs_name
        'WGS 84 / UTM zone 10N (EPSG:32610)'
        """
        return None if self.crs is None else system_name(self.crs)

    def positions(self, columns: Any, rows: Any) -> tuple[Any, Any]:
        """Return x and y of places in pixels; the first pixel reaches from 0 to 1."""
        a, b, c, d, e, f = self.transform
        return a * columns + b * rows + c, d * columns + e * rows + f

    def places(self, x: Floats, y: Floats) -> Floats:
        """Return columns and rows in pixels, (2, ...), of positions.

        >>> grid = PixelGrid((2, 3), (30.0, 0.0, 600.0, 0.0, -30.0, 90.0), None)
        >>> grid.places(*grid.positions(np.array([0.5]), np.array([1.5]))).tolist()
        [[0.5], [1.5]]
        """
        a, b, c, d, e, f = self.transform
        return np.asarray(np.linalg.solve([[a, b], [d, e]], [x - c, y - f]), np.float64)

    @property
    def axes(self) -> MapAxes:
        """The axes of a picture; rows and columns where the image is turned."""
        a, b, c, d, e, f = self.transform
        if b != 0 or d != 0 or self.transform == IDENTITY:
            return MapAxes(0.0, 1.0, 0.0, 1.0, "Column (pixel)", "Row (pixel)", "pixel", None)
        return MapAxes(c, a, f, e, *_names_of(self.crs))


def _names_of(text: str | None) -> tuple[str, str, str, str | None]:
    system = None if text is None else known_system(text)
    if system is None:
        return "x", "y", "units", None
    axes = {axis.direction: axis for axis in system.axis_info}
    unit = next((axis.unit_name for axis in axes.values()), "units")
    unit = _UNITS.get(unit, unit)
    x_name, y_name = ("Longitude", "Latitude") if system.is_geographic else ("Easting", "Northing")
    return f"{x_name} ({unit})", f"{y_name} ({unit})", unit, str(system.name)


def pixel_grid(place: Georeference, shape: tuple[int, ...], names: tuple[str, str]) -> PixelGrid:
    """Return the grid of an image: by its coordinates if they are regular, else a stated transform.

    Rows and columns themselves where the image does not say where it lies.

    >>> pixel_grid(NOWHERE, (2, 3), ("y", "x")).crs is None
    True
    """
    facts = place.facts()
    found = _stated(facts) or _of_coordinates(place, names) or IDENTITY
    system = place.crs_text()
    if system is None and found != IDENTITY and _are_degrees(place, names):
        # CF's coordinates alone, as most climate data have them; the ellipsoid is not stated.
        system = "EPSG:4326"
    return PixelGrid((int(shape[0]), int(shape[1])), found, system)


def _are_degrees(place: Georeference, names: tuple[str, str]) -> bool:
    found = map(place.coordinates.get, names)
    units = ["" if one is None else str(one.attributes.get("units", "")).lower() for one in found]
    ways = ("n(orth)?", "e(ast)?")
    return all(re.fullmatch(f"degrees?_?{way}", u) for way, u in zip(ways, units, strict=True))


def _stated(facts: Mapping[str, Any]) -> tuple[float, ...] | None:
    for name in ("spatial:transform", "transform", "GeoTransform"):
        value = facts.get(name)
        try:
            parts = value.replace(",", " ").split() if isinstance(value, str) else value
            numbers = tuple(float(part) for part in (() if parts is None else parts))[:6]
        except (TypeError, ValueError):
            continue
        if len(numbers) == 6:
            a, b, c, d, e, f = numbers
            return (b, c, a, e, f, d) if name == "GeoTransform" else numbers
    return None


def _of_coordinates(place: Georeference, names: tuple[str, str]) -> tuple[float, ...] | None:
    steps = []
    for name in names:
        found = place.coordinates.get(name)
        if found is None or not found.dims:
            return None
        values = np.asarray(values_of(found.values), dtype=np.float64)
        if len(values) < 2:
            return None
        step = (values[-1] - values[0]) / (len(values) - 1)
        if step == 0 or np.abs(np.diff(values) - step).max() > _UNEVEN * abs(step):
            return None
        steps.append((float(values[0] - step / 2), float(step)))
    (top, down), (left, right) = steps
    return right, 0.0, left, 0.0, down, top
