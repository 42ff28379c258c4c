"""Pictures of cubes and label maps, with matplotlib (an optional dependency)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from dask.utils import format_bytes

from daskclust.colors import NODATA_COLOR, drawn, require_matplotlib, rgb_bands, stretch
from daskclust.core.array_types import Floats
from daskclust.core.engine import compute
from daskclust.scenes._georeference import IDENTITY, PixelGrid

#: Pixels of a side that are drawn: more do not show.
_SIDE = 1500
#: Classes in a legend.
_MOST_CLASSES = 40


def plot_cube(
    cube: Any, bands: int | Sequence[int] | None = None, *, ax: Any = None, title: str | None = None
) -> Any:
    """Draw the cube in colors, or one of its bands.

    Parameters
    ----------
    bands : int or sequence of 3 int, default=None
        Stored number of one band, or of the three bands for red, green and blue.
        None takes the bands nearest to red, green and blue light.  Without
        wavelengths, None takes three bands spread over the cube; with fewer than
        three bands, the first one.
    ax : matplotlib Axes, default=None
        None makes a new figure.
    title : str, default=None
        None names the bands.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ImportError
        matplotlib is not installed.
    ValueError
        A band does not exist.

    Notes
    -----
    One pass over the chunks that hold these bands; large scenes are reduced to at
    most 1500 pixels a side.  Axes are in the units of the coordinate system.

    Examples
    --------
    >>> import numpy as np, zarr
    >>> from daskclust import open_cube
    >>> values = zarr.array(np.array([[[1], [-9]], [[2], [3]]], dtype="int16"))
    >>> ax = open_cube(values, dims=("y", "x", "band"), nodata=-9).plot(0)
    >>> ax.get_xlabel(), ax.get_title(loc="left")
    ('column', 'band 0')
    """
    chosen, single = _chosen(cube, bands)
    step = _step(cube.shape[:2])
    (found,) = compute("a picture of the scene", cube.stored_bands(chosen)[::step, ::step])
    picture = np.ma.getdata(found).astype(float)
    for number, band in enumerate(chosen):
        missing = np.isin(picture[:, :, number], cube.nodata_of(band))
        picture[missing, number] = np.nan
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
    """Draw the map with a legend of its classes.

    Parameters
    ----------
    ax : matplotlib Axes, default=None
        None makes a new figure.
    title : str, default=None

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ImportError
        matplotlib is not installed.

    Notes
    -----
    Large maps are reduced to at most 1500 pixels a side by taking every n-th pixel;
    all blocks are read.

    Examples
    --------
    >>> from daskclust.scenes import LabelMap
    >>> ax = LabelMap(np.array([[0, 1], [-1, 1]]), names={0: "wheat", 1: "water"}).plot()
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['wheat', 'water', 'no class']
    """
    ax = _axes(ax)
    from matplotlib.patches import Patch

    step = _step(label_map.shape)
    (codes,) = compute("a picture of the map", label_map.values[::step, ::step])
    # Classes that the picture is too coarse for are in the legend all the same.
    classes = sorted({*label_map.names, *np.unique(codes[codes >= 0]).tolist()})
    grid = label_map.grid
    places, table = drawn(codes, [label_map.color_of(code) for code in classes], classes)
    ax.imshow(table[places], interpolation="nearest", extent=_extent(grid))
    _label_axes(ax, grid, title if title is not None else label_map.title)
    entries = [
        Patch(facecolor=label_map.color_of(code), label=label_map.name_of(code))
        for code in classes[:_MOST_CLASSES]
    ]
    if len(classes) > _MOST_CLASSES:
        entries.append(Patch(alpha=0, label=f"and {len(classes) - _MOST_CLASSES} more"))
    if (codes < 0).any():
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
    numbers = [int(bands)] if isinstance(bands, int | np.integer) else [int(b) for b in bands]
    stored = cube.stored.shape[2]
    if len(numbers) not in (1, 3) or not all(0 <= number < stored for number in numbers):
        raise ValueError(
            f"bands={bands!r}; expected one number or three (red, green, blue) from 0 to "
            f"{stored - 1}."
        )
    return numbers, len(numbers) == 1


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
    return max(1, math.ceil(max(shape[:2]) / _SIDE))


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


_MOST_LISTED = 60


def cube_html(cube: Any, n_valid: int | None) -> str:
    """Describe a cube; `n_valid` where it is known."""
    height, width, n_bands = cube.shape
    stored = cube.stored
    down, across = cube.blocks.numblocks
    facts = {
        "Pixels": f"{height} x {width} ({', '.join(cube.dimension_names)})",
        "Bands": str(n_bands)
        if n_bands == stored.shape[2]
        else f"{n_bands} of {stored.shape[2]} stored",
        "Wavelengths": _wavelengths(cube.wavelengths),
        "Blocks": f"{down} x {across}, of {cube.blocks.block[0]} x {cube.blocks.block[1]} pixels",
        "Stored as": f"{stored.dtype}, {format_bytes(stored.nbytes)} uncompressed",
        "Scaled by": ", ".join(
            f"{key} {'one a band' if isinstance(value, list) else f'{value:g}'}"
            for key, value in cube.values.items()
        ),
        "No data": ", ".join(f"{value:g}" for value in cube.nodata),
        "Valid pixels": "not counted yet" if n_valid is None else str(n_valid),
        **_place(cube.pixel_grid),
    }
    return _table("daskclust.Cube", facts)


def label_map_html(label_map: Any) -> str:
    """Describe a label map, with its classes."""
    height, width = label_map.shape
    facts = {
        "Pixels": f"{height} x {width} ({', '.join(label_map.dimension_names)})",
        **_place(label_map.grid),
    }
    codes = sorted(label_map.names)
    rows = [
        f'<tr><td style="text-align:right">{code}</td>'
        f'<td><span style="display:inline-block;width:1.2em;height:0.9em;vertical-align:middle;'
        f'background:{escape(label_map.color_of(code))}"></span></td>'
        f'<td style="text-align:left">{escape(label_map.name_of(code))}</td></tr>'
        for code in codes[:_MOST_LISTED]
    ]
    if len(codes) > _MOST_LISTED:
        rows.append(f'<tr><td colspan="3">and {len(codes) - _MOST_LISTED} more</td></tr>')
    return _table(f"daskclust {label_map.title}", facts, rows)


def _table(title: str, facts: Mapping[str, str], more: Iterable[str] = ()) -> str:
    rows = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:left" colspan="2">{escape(value)}</td></tr>'
        for name, value in facts.items()
        if value
    )
    return (
        f"<div><strong>{escape(title)}</strong>"
        f'<table style="margin-left:0">{rows}{"".join(more)}</table></div>'
    )


def _wavelengths(centers: Any) -> str:
    return "" if centers is None else f"{np.min(centers):.5g} to {np.max(centers):.5g} nm"


def _place(grid: PixelGrid) -> dict[str, str]:
    if grid.transform == IDENTITY:
        return {"Position": "not stated", "Coordinate system": grid.crs_name or "not stated"}
    facts, extent = {"Coordinate system": grid.crs_name or "not stated"}, _extent(grid)
    if extent is not None:
        left, right, bottom, top = extent
        facts["Extent"] = f"x {left:.10g} to {right:.10g}, y {top:.10g} to {bottom:.10g}"
        facts["Pixel size"] = f"{abs(grid.transform[0]):.6g} x {abs(grid.transform[4]):.6g}"
    return facts
