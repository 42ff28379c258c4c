"""Where on Earth the pixels are: copied unchanged, compared, never invented."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import zarr

from daskclust.storage.seen import values_of
from daskclust.storage.stores import array_of

__all__ = ["NOWHERE", "Coordinate", "Georeference", "georeference", "system_name"]

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


def georeference(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Select the attributes that georeference an array or group.

    Examples
    --------
    >>> georeference({"proj:code": "EPSG:32632", "units": "1"})
    {'proj:code': 'EPSG:32632'}
    """
    return {
        key: value
        for key, value in attributes.items()
        if key in _ATTRIBUTES or key.startswith(_PREFIXES)
    }


@dataclass(frozen=True)
class Coordinate:
    """A coordinate of an image, or its grid mapping (no dimensions, a value without meaning).

    ``values`` is anything that ``values_of`` reads: nothing is read until it is asked for.
    """

    dims: tuple[str, ...]
    values: Any
    attributes: Mapping[str, Any] = field(default_factory=dict)


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
    def from_zarr(
        cls, array: zarr.Array, group: zarr.Group | None, names: tuple[str, str]
    ) -> Georeference:
        """Find what belongs to an array whose dimensions y and x are called `names`."""
        attributes = georeference(array.attrs)
        if group is None:
            return cls(attributes)
        mapping = attributes.get("grid_mapping")
        coordinates = {}
        for name in sorted({*names, *([mapping] if isinstance(mapping, str) else [])}):
            found = array_of(group, name)
            if found is None or found.ndim > 1:
                continue
            # Coordinates of text cannot be positions.
            if found.ndim and found.dtype.kind not in "iuf":
                continue
            kept = {k: v for k, v in found.attrs.items() if k != "_ARRAY_DIMENSIONS"}
            coordinates[name] = Coordinate((name,) if found.ndim else (), found, kept)
        return cls(attributes, georeference(group.attrs), coordinates)

    @classmethod
    def from_xarray(
        cls, array: Any, names: tuple[str, str], others: Mapping[str, Any] | None = None
    ) -> Georeference:
        """Find what belongs to an ``xarray.DataArray``, or lies beside it in a Dataset."""
        mapping = array.encoding.get("grid_mapping", array.attrs.get("grid_mapping"))
        attributes = georeference(array.attrs)
        if mapping is None or mapping not in array.coords:
            # xarray makes a variable of it unless asked for coordinates.
            beside = _demoted(array, others, mapping)
            if beside is not None:
                mapping = str(beside.name)
                array = array.assign_coords({mapping: beside})
        if isinstance(mapping, str):
            attributes["grid_mapping"] = mapping
        coordinates = {}
        for name in sorted({*names, *([mapping] if isinstance(mapping, str) else [])}):
            if name not in array.coords or array.coords[name].ndim > 1:
                continue
            found = array.coords[name]
            if found.ndim and found.dtype.kind not in "iuf":
                continue
            values = np.asarray(found.values)
            coordinates[name] = Coordinate(tuple(map(str, found.dims)), values, dict(found.attrs))
        return cls(attributes, {}, coordinates)

    def differences(self, other: Georeference, whose: str = "the cube's") -> list[str]:
        """Say in which respects another map lies elsewhere; what only one states is no difference.

        Examples
        --------
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
            # Without pyproj, other ways of saying may say the same.
            same = _same_system(one, two)
            if same is False or (same is None and key):
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


def _demoted(array: Any, others: Mapping[str, Any] | None, mapping: Any) -> Any:
    """Find the grid mapping among the coordinates, and the variables beside an array."""
    known = {**dict(array.coords), **dict(others or {})}
    names = [mapping] if isinstance(mapping, str) else ["spatial_ref", "crs"]
    for name in names:
        found = known.get(name)
        if found is not None and found.ndim == 0 and georeference(found.attrs):
            return found
    return None


#: Of an image that says nothing about its place.
NOWHERE = Georeference()


def system_name(system: Any) -> str:
    """Name and EPSG code of a coordinate system, from anything that pyproj reads."""
    text = json.dumps(system) if isinstance(system, Mapping) else str(system)
    try:
        from pyproj import CRS
        from pyproj.exceptions import CRSError
    except ImportError:
        return text[:60]
    try:
        found = CRS.from_user_input(system)
    except CRSError:
        return f"unknown: {text[:60]}"
    code = found.to_epsg()
    return str(found.name) if code is None else f"{found.name} (EPSG:{code})"


def _same_system(one: Any, other: Any) -> bool | None:
    """Compare coordinate systems by what they are; None where pyproj cannot tell."""
    try:
        from pyproj import CRS
        from pyproj.exceptions import CRSError
    except ImportError:
        return None
    try:
        left, right = CRS.from_user_input(one), CRS.from_user_input(other)
    except CRSError:
        return None
    return bool(left.equals(right, ignore_axis_order=True))


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
