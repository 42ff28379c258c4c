"""Colors of classes and of scenes, the same in pictures, reports and maps for GIS."""

from __future__ import annotations

from collections.abc import Iterable
from colorsys import hsv_to_rgb

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Array, Floats

__all__ = ["NODATA_COLOR", "N_DISTINCT", "class_colors", "label_colors", "rgb_bands", "stretch"]

# Okabe & Ito's colors, told apart with any color vision; then a few more.
_COLORS = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#d55e00",
    "#f0e442",
    "#332288",
    "#999933",
    "#882255",
    "#44aa99",
    "#aaaaaa",
)
#: So many are told apart with any color vision.
N_DISTINCT = len(_COLORS)
#: Of pixels without data or class.
NODATA_COLOR = "#1a1a1a"
# Red, green and blue light in nm: what a composite shows if there are wavelengths.
_RGB = (660.0, 550.0, 470.0)
#: Turn of the color wheel from one further color to the next: never near the last ones.
_GOLDEN = 0.618034


def label_colors(count: int) -> list[str]:
    """Return a color for each label, as ``#rrggbb``.

    The first twelve are told apart with any color vision; further ones are spread
    over the color wheel.

    Examples
    --------
    >>> label_colors(2), len(set(label_colors(40)))
    (['#0072b2', '#e69f00'], 40)
    """
    return [_color(code) for code in range(count)]


def class_colors(codes: Iterable[int]) -> dict[int, str]:
    """Return the color of each code: that of the label with this number.

    Examples
    --------
    >>> class_colors([1, 0, -2])
    {1: '#e69f00', 0: '#0072b2', -2: '#1a1a1a'}
    """
    return {int(code): _color(int(code)) if code >= 0 else NODATA_COLOR for code in codes}


def _color(code: int) -> str:
    if code < len(_COLORS):
        return _COLORS[code]
    red, green, blue = hsv_to_rgb(
        code * _GOLDEN % 1.0, (0.45, 0.7, 0.95)[code % 3], 0.9 - code % 2 * 0.25
    )
    return f"#{int(255 * red):02x}{int(255 * green):02x}{int(255 * blue):02x}"


def rgb_bands(n_bands: int, wavelengths: Floats | None) -> NDArray[np.intp]:
    """Return the bands nearest to red, green and blue light, or spread over the cube."""
    if wavelengths is None:
        return np.linspace(n_bands - 1, 0, 3).astype(np.intp)
    return np.array([np.abs(wavelengths - light).argmin() for light in _RGB])


def stretch(picture: Array) -> Array:
    """Stretch each band of a picture (y, x, 3) between its 2nd and 98th percentile."""
    values = np.asarray(picture, dtype=float)
    if np.isnan(values).all():
        return np.full(values.shape, 0.1)
    low, high = np.nanpercentile(values, [2, 98], axis=(0, 1))
    values = np.clip((values - low) / np.where(high > low, high - low, 1.0), 0.0, 1.0)
    return np.nan_to_num(values, nan=0.1)
