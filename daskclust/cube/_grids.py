"""Where pixels lie, as six numbers and a coordinate system, from however it was said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from daskclust.cube._georeference import Georeference
from daskclust.cube.formats.vector import IDENTITY, PixelGrid
from daskclust.storage.seen import values_of

__all__ = ["pixel_grid"]

#: Steps of a regular coordinate differ by no more, as a share of a step.
_UNEVEN = 1e-3


def pixel_grid(place: Georeference, shape: tuple[int, ...], names: tuple[str, str]) -> PixelGrid:
    """Return the grid of an image: by its coordinates if they are regular, else a stated transform.

    Rows and columns themselves where the image does not say where it lies.

    >>> from daskclust.cube._georeference import NOWHERE
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
    """Whether the coordinates are latitude and longitude, by their units."""
    units = [
        str(place.coordinates[name].attributes.get("units", "")).lower()
        for name in names
        if name in place.coordinates
    ]
    return len(units) == 2 and all(map(str.startswith, units, ("degrees_n", "degrees_e")))


def _stated(facts: Mapping[str, Any]) -> tuple[float, ...] | None:
    for name in ("spatial:transform", "transform", "GeoTransform"):
        value = facts.get(name)
        if value is None:
            continue
        try:
            parts = value.replace(",", " ").split() if isinstance(value, str) else value
            numbers = tuple(float(part) for part in parts)[:6]
        except (TypeError, ValueError):
            continue
        if len(numbers) < 6:
            continue
        if name == "GeoTransform":
            c, a, b, f, d, e = numbers
            numbers = (a, b, c, d, e, f)
        return numbers
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
