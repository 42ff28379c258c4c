"""Coordinate systems, by pyproj if it is installed: their names, and the units of coordinates."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

#: Meters of the units of coordinates.
_METERS = {
    **dict.fromkeys(("m", "metre", "metres", "meter", "meters"), 1.0),
    **dict.fromkeys(("km", "kilometre", "kilometres", "kilometer", "kilometers"), 1000.0),
}
_RADIANS = {"rad", "radian", "radians"}


def system_name(system: Any) -> str:
    """Return name and EPSG code of a coordinate system, given in any form that pyproj reads."""
    known = known_system(system)
    if known is None:
        text = json.dumps(system) if isinstance(system, Mapping) else str(system)
        return f"{'unknown: ' if find_spec('pyproj') else ''}{text[:60]}"
    code = known.to_epsg()
    return str(known.name) if code is None else f"{known.name} (EPSG:{code})"


def known_system(system: Any) -> Any:
    """Return pyproj's coordinate system; None if pyproj is missing or does not know it."""
    try:
        from pyproj import CRS
        from pyproj.exceptions import CRSError
    except ImportError:
        return None
    try:
        return CRS.from_user_input(system)
    except CRSError:
        return None


def are_same(one: Any, other: Any) -> bool | None:
    """Compare coordinate systems, ignoring the order of axes; None if one of both is unknown.

    >>> are_same("EPSG:4326", "OGC:CRS84"), are_same("EPSG:4326", "EPSG:32632")
    (True, False)
    """
    left, right = known_system(one), known_system(other)
    if left is None or right is None:
        return None
    return bool(left.equals(right, ignore_axis_order=True))


@lru_cache(maxsize=16)
def transformer(source: str, target: str) -> Any:
    """Return pyproj's transformer of positions (x, y); None if both systems are the same."""
    if source == target:
        return None
    from pyproj import Transformer

    return (
        None if are_same(source, target) else Transformer.from_crs(source, target, always_xy=True)
    )


def move(x: Any, y: Any, source: str, target: str) -> tuple[Any, Any]:
    """Transform positions to another system; positions outside its domain become infinite."""
    to_target = transformer(source, target)
    return (x, y) if to_target is None else to_target.transform(x, y)


@lru_cache(maxsize=8)
def to_degrees(system: str) -> Any:
    """Return pyproj's transformer to longitude and latitude on the ellipsoid of a system."""
    from pyproj import CRS, Transformer

    own = CRS.from_user_input(system).to_2d()
    assert own.geodetic_crs is not None
    return Transformer.from_crs(own, own.geodetic_crs.to_2d(), always_xy=True)


def is_geographic(system: str) -> bool:
    """Return True if positions are angles of longitude and latitude."""
    known = known_system(system)
    return known is not None and bool(known.is_geographic)


def is_in_degrees(system: str) -> bool:
    """Return True if positions are degrees of longitude and latitude."""
    return is_geographic(system) and known_system(system).axis_info[0].unit_name == "degree"


def unit_factor(unit: str, text: str | None) -> float | None:
    """Return the factor from a unit to the unit of a coordinate system; None if impossible.

    The factor is 1 if one of both is unknown.

    >>> unit_factor("km", "EPSG:32633"), unit_factor("degrees_east", "EPSG:32633")
    (1000.0, None)
    >>> unit_factor("degrees_east", "EPSG:4326"), unit_factor("", "EPSG:4326")
    (1.0, 1.0)
    """
    in_degrees = unit.startswith("degree")
    is_known = in_degrees or unit in _METERS or unit in _RADIANS
    system = known_system(text) if text and is_known else None
    if system is None or not system.axis_info:
        return 1.0
    # Meters or radians.
    to_si = system.axis_info[0].unit_conversion_factor
    if system.is_geographic:
        return 1.0 if in_degrees else 1.0 / to_si if unit in _RADIANS else None
    if unit in _METERS:
        return _METERS[unit] / to_si
    # Geostationary satellites have angles of view as coordinates.
    height = system.to_cf().get("perspective_point_height") if unit in _RADIANS else None
    return None if height is None else float(height) / to_si
