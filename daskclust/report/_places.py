"""Axes of a map in the units of its coordinate system, and of spectra in those of the sensor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from daskclust._types import Floats

__all__ = ["MapAxes", "SpectrumAxes", "map_axes", "spectrum_axes"]

_UNITS = {"metre": "m", "meter": "m", "degree": "\N{DEGREE SIGN}", "kilometre": "km"}
#: Wavelengths from which micrometers read better than nanometers.
_LONG = 3000.0


@dataclass(frozen=True)
class MapAxes:
    """Where columns and rows lie: ``x = left + across * column``, ``y = top + down * row``.

    Attributes
    ----------
    left, across, top, down : float
        Of pixel edges.
    x_name, y_name : str
        What the axes are, with their unit.
    unit : str
        ``"pixel"`` where nothing is known.
    system : str or None
        Name of the coordinate system.
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


def map_axes(cube: Any) -> MapAxes:
    """Return the axes of a cube's maps; rows and columns where the image is turned."""
    grid = cube.pixel_grid
    a, b, c, d, e, f = grid.transform
    plain = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)
    if b != 0 or d != 0 or (a, b, c, d, e, f) == plain:
        return MapAxes(0.0, 1.0, 0.0, 1.0, "Column (pixel)", "Row (pixel)", "pixel", None)
    x_name, y_name, unit, system = _of_system(grid.crs)
    return MapAxes(c, a, f, e, x_name, y_name, unit, system)


def _of_system(text: str | None) -> tuple[str, str, str, str | None]:
    """Return names of x and y, their unit, and the name of a coordinate system."""
    unknown = ("x", "y", "units", None)
    if text is None:
        return unknown
    try:
        from pyproj import CRS
        from pyproj.exceptions import CRSError
    except ImportError:
        return unknown
    try:
        system = CRS.from_user_input(text)
    except CRSError:
        return unknown
    axes = {axis.direction: axis for axis in system.axis_info}
    unit = next((axis.unit_name for axis in axes.values()), "units")
    unit = _UNITS.get(unit, unit)
    x_name, y_name = ("Longitude", "Latitude") if system.is_geographic else ("Easting", "Northing")
    return f"{x_name} ({unit})", f"{y_name} ({unit})", unit, str(system.name)


@dataclass(frozen=True)
class SpectrumAxes:
    """Axes of spectra.

    Attributes
    ----------
    wavelengths : ndarray of shape (bands,) or None
        In the unit that `x_name` states.
    x_name, y_name : str
    """

    wavelengths: Floats | None
    x_name: str
    y_name: str


def spectrum_axes(cube: Any) -> SpectrumAxes:
    """Return the axes of a cube's spectra, with the units that its attributes state."""
    said = cube.attributes
    name = next((said[key] for key in ("long_name", "standard_name") if key in said), "value")
    unit = said.get("units")
    shown = str(name).replace("_", " ")
    if isinstance(unit, str) and unit.strip() not in ("", "1"):
        shown = f"{shown} ({unit})"
    if cube.sample_scaling.kind == "unit":
        shown = "share of the spectrum's length"
    where = cube.wavelengths
    if where is None:
        return SpectrumAxes(None, "band", shown)
    if np.max(where) >= _LONG:
        return SpectrumAxes(where / 1000.0, "wavelength (\N{MICRO SIGN}m)", shown)
    return SpectrumAxes(where, "wavelength (nm)", shown)
