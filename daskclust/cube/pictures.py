"""Pictures of cubes and label maps, with matplotlib (an optional dependency)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from daskclust._types import Floats
from daskclust.colors import NODATA_COLOR, draw_codes, require_matplotlib, rgb_bands, stretch
from daskclust.cube.formats.vector import IDENTITY, PixelGrid
from daskclust.engine import compute

__all__ = ["plot_cube", "plot_label_map"]

#: Pixels of a side that are drawn: more do not show.
_SIDE = 1500
#: Classes in a legend.
_MOST_CLASSES = 40


def plot_cube(
    cube: Any,
    bands: int | Sequence[int] | None = None,
    *,
    ax: Any = None,
    title: str | None = None,
) -> Any:
    """Draw a color picture of a cube, or one band; see :meth:`daskclust.Cube.plot`."""
    chosen, single = _chosen(cube, bands)
    step = _step(cube.shape[:2])
    (found,) = compute("a picture of the scene", cube.stored_bands(chosen)[::step, ::step])
    picture = np.ma.getdata(found).astype(float)
    for value in cube.nodata:
        picture[picture == float(value)] = np.nan
    ax = _axes(ax)
    grid = cube.pixel_grid
    extent = _extent(grid)
    if single:
        shown = ax.imshow(picture[:, :, 0], cmap="viridis", interpolation="nearest", extent=extent)
        shown.set_clim(*_limits(picture))
        bar = ax.figure.colorbar(shown, ax=ax, shrink=0.8)
        units = cube.attributes.get("units")
        bar.set_label(_band_name(cube, chosen[0]) + (f" ({units})" if units else ""))
        ax.set_facecolor(NODATA_COLOR)
    else:
        # A pixel that misses one of the colors has none.
        picture[np.isnan(picture).any(axis=2)] = np.nan
        ax.imshow(stretch(picture), interpolation="nearest", extent=extent)
    names = ", ".join(_band_name(cube, band) for band in chosen)
    _label_axes(ax, grid, title if title is not None else names)
    return ax


def plot_label_map(label_map: Any, *, ax: Any = None, title: str | None = None) -> Any:
    """Draw a label map with a legend; see :meth:`daskclust.cube.LabelMap.plot`."""
    ax = _axes(ax)
    from matplotlib.patches import Patch

    step = _step(label_map.shape)
    (codes,) = compute("a picture of the map", label_map.values[::step, ::step])
    present = np.unique(codes)
    shown = np.unique([-1, *present.tolist()])
    colors = [NODATA_COLOR if code < 0 else label_map.color_of(int(code)) for code in shown]
    grid = label_map.grid
    draw_codes(ax, np.searchsorted(shown, codes), colors, extent=_extent(grid))
    _label_axes(ax, grid, title if title is not None else label_map.title)
    # Classes that the picture is too coarse for are in the legend all the same.
    classes = sorted({*label_map.names, *(int(code) for code in present if code >= 0)})
    entries = [
        Patch(facecolor=label_map.color_of(code), label=label_map.name_of(code))
        for code in classes[:_MOST_CLASSES]
    ]
    if len(classes) > _MOST_CLASSES:
        entries.append(Patch(alpha=0, label=f"and {len(classes) - _MOST_CLASSES} more"))
    if (present < 0).any():
        entries.append(Patch(facecolor=NODATA_COLOR, label="no class"))
    ax.legend(
        handles=entries,
        loc="upper left",
        bbox_to_anchor=(1.02, 1.0),
        borderaxespad=0.0,
        frameon=False,
        ncols=1 + (len(entries) - 1) // 20,
    )
    return ax


def _chosen(cube: Any, bands: int | Sequence[int] | None) -> tuple[list[int], bool]:
    """Return the stored numbers of the bands to draw, and whether it is one."""
    if bands is None:
        if cube.shape[2] < 3:
            return [int(cube.bands[0])], True
        return cube.bands[rgb_bands(cube.shape[2], cube.wavelengths)].tolist(), False
    single = isinstance(bands, int | np.integer)
    numbers = [int(bands)] if isinstance(bands, int | np.integer) else [int(b) for b in bands]
    stored = cube.stored.shape[2]
    if len(numbers) not in (1, 3) or not all(0 <= number < stored for number in numbers):
        raise ValueError(
            f"bands={bands!r}; expected one number or three (red, green, blue) from 0 to "
            f"{stored - 1}."
        )
    return numbers, single or len(numbers) == 1


def _band_name(cube: Any, band: int) -> str:
    place = np.flatnonzero(cube.bands == band)
    if cube.wavelengths is not None and len(place):
        return f"{cube.wavelengths[place[0]]:.4g} nm"
    names = cube.attributes.get("band_names")
    if isinstance(names, list) and len(names) > band and names[band]:
        return str(names[band])
    return f"band {band}"


def _limits(picture: Floats) -> tuple[float, float]:
    if np.isnan(picture).all():
        return 0.0, 1.0
    low, high = np.nanpercentile(picture, [2, 98])
    return float(low), float(high if high > low else low + 1.0)


def _step(shape: Sequence[int]) -> int:
    return max(1, math.ceil(max(shape[0], shape[1]) / _SIDE))


def _axes(ax: Any) -> Any:
    require_matplotlib()
    import matplotlib.pyplot as plt

    return plt.subplots(layout="constrained")[1] if ax is None else ax


def _extent(grid: PixelGrid) -> tuple[float, float, float, float] | None:
    """Left, right, bottom and top; None for rows and columns, and for turned images."""
    a, b, left, d, e, top = grid.transform
    if grid.transform == IDENTITY or b or d:
        return None
    height, width = grid.shape
    return left, left + a * width, top + e * height, top


def _label_axes(ax: Any, grid: PixelGrid, title: str) -> None:
    ax.set_title(title, loc="left", fontsize="medium")
    axes, extent = grid.axes, _extent(grid)
    ax.set_xlabel(axes.x_name.lower().removesuffix(" (pixel)"))
    ax.set_ylabel(axes.y_name.lower().removesuffix(" (pixel)"))
    if extent is None:
        return
    if axes.x_name.startswith("Longitude"):
        middle = math.radians((extent[2] + extent[3]) / 2)
        ax.set_aspect(1 / max(0.1, math.cos(middle)))
    ax.ticklabel_format(useOffset=False, style="plain")
    ax.tick_params(labelsize="small")
