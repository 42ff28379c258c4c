"""Pictures of cubes and label maps, with matplotlib (an optional dependency)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from dask.utils import format_bytes

from daskclust.colors import NODATA_COLOR, drawn, require_matplotlib, rgb_bands, stretch
from daskclust.core.array_types import Floats, Ints
from daskclust.core.engine import compute
from daskclust.scenes._georeference import IDENTITY, PixelGrid

#: Maximum number of pixels per side that are drawn; more are not visible.
_SIDE = 1500
#: Maximum number of classes in a legend.
_MAX_CLASSES = 40


def draw_cube(
    cube: Any, bands: int | Sequence[int] | None = None, *, ax: Any = None, title: str | None = None
) -> Any:
    """Draw a cube in colors, or one of its bands; see ``Cube.plot``."""
    chosen = _bands_to_draw(bands, cube.bands, cube.stored.shape[2], cube.wavelengths)
    names = [_name_of_band(cube, band) for band in chosen]
    step, grid = _step(cube.shape), cube.pixel_grid
    (values,) = compute("a picture of the scene", cube.stored_bands(chosen)[::step, ::step])
    picture = np.ma.getdata(values).astype(float)
    for number, band in enumerate(chosen):
        picture[np.isin(picture[:, :, number], cube.nodata_of(band)), number] = np.nan
    ax, extent = _axes(ax), _extent(grid)
    if len(names) == 1:
        drawn_image = ax.imshow(
            picture[:, :, 0], cmap="viridis", interpolation="nearest", extent=extent
        )
        drawn_image.set_clim(*_limits(picture))
        bar, units = (
            ax.figure.colorbar(drawn_image, ax=ax, shrink=0.8),
            cube.attributes.get("units"),
        )
        bar.set_label(names[0] + (f" ({units})" if units else ""))
        ax.set_facecolor(NODATA_COLOR)
    else:
        # A pixel is drawn only if it has all three colors.
        picture[np.isnan(picture).any(axis=2)] = np.nan
        ax.imshow(stretch(picture), interpolation="nearest", extent=extent)
    _label_axes(ax, grid, title if title is not None else ", ".join(names))
    return ax


def _bands_to_draw(
    bands: int | Sequence[int] | None, kept: Ints, n_stored: int, wavelengths: Floats | None
) -> list[int]:
    """Return the stored numbers of the bands to draw: one, or three for red, green and blue."""
    if bands is None:
        if len(kept) < 3:
            return [int(kept[0])]
        return [int(band) for band in kept[rgb_bands(len(kept), wavelengths)]]
    numbers = [int(bands)] if isinstance(bands, int | np.integer) else [int(b) for b in bands]
    if len(numbers) not in (1, 3) or not all(0 <= number < n_stored for number in numbers):
        raise ValueError(
            "bands must be one number or three (red, green, blue) from 0 to "
            f"{n_stored - 1}, got {bands!r}."
        )
    return numbers


def _name_of_band(cube: Any, band: int) -> str:
    index = np.flatnonzero(cube.bands == band)
    if cube.wavelengths is not None and len(index):
        return f"{cube.wavelengths[index[0]]:.4g} nm"
    names = cube.stored_names
    return names[band] if names and names[band] else f"band {band}"


def draw_labels(label_map: Any, *, ax: Any = None, title: str | None = None) -> Any:
    """Draw a `LabelMap` with a legend; see ``LabelMap.plot``."""
    values, grid, color_of = label_map.values, label_map.grid, label_map.color_of
    ax = _axes(ax)
    from matplotlib.patches import Patch

    step = _step(values.shape)
    (codes,) = compute("a picture of the map", values[::step, ::step])
    # The legend also contains named classes that the reduced picture does not show.
    classes = sorted({*label_map.names, *np.unique(codes[codes >= 0]).tolist()})
    indices, table = drawn(codes, [color_of(code) for code in classes], classes)
    ax.imshow(table[indices], interpolation="nearest", extent=_extent(grid))
    _label_axes(ax, grid, label_map.title if title is None else title)
    entries = [
        Patch(facecolor=color_of(code), label=label_map.name_of(code))
        for code in classes[:_MAX_CLASSES]
    ]
    if len(classes) > _MAX_CLASSES:
        entries.append(Patch(alpha=0, label=f"and {len(classes) - _MAX_CLASSES} more"))
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
    """Return left, right, bottom and top; None without a position, and for rotated images."""
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


_MAX_LISTED = 60


def label_map_html(label_map: Any) -> str:
    """Describe a `LabelMap` and its classes."""
    height, width = label_map.shape
    facts = {
        "Pixels": f"{height} x {width} ({', '.join(label_map.dimension_names)})",
        **position_facts(label_map.grid),
    }
    codes = sorted(label_map.names)
    rows = [
        f'<tr><td style="text-align:right">{code}</td>'
        f'<td><span style="display:inline-block;width:1.2em;height:0.9em;vertical-align:middle;'
        f'background:{escape(label_map.color_of(code))}"></span></td>'
        f'<td style="text-align:left">{escape(label_map.name_of(code))}</td></tr>'
        for code in codes[:_MAX_LISTED]
    ]
    if len(codes) > _MAX_LISTED:
        rows.append(f'<tr><td colspan="3">and {len(codes) - _MAX_LISTED} more</td></tr>')
    return html_table(f"daskclust {label_map.title}", facts, rows)


def html_table(title: str, facts: Mapping[str, str], more: Iterable[str] = ()) -> str:
    """Return a table of the facts that are not empty, and more rows of HTML."""
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


def cube_html(cube: Any, *, counted: bool) -> str:
    """Describe a cube; its valid pixels only if they are `counted`, which takes a pass."""
    height, width, n_bands = cube.shape
    stored, (down, across), (rows, columns) = cube.stored, cube.blocks.numblocks, cube.blocks.block
    n_stored, centers = stored.shape[2], cube.wavelengths
    facts = {
        "Pixels": f"{height} x {width} ({', '.join(cube.dimension_names)})",
        "Bands": str(n_bands) if n_bands == n_stored else f"{n_bands} of {n_stored} stored",
        "Wavelengths": ""
        if centers is None
        else f"{np.min(centers):.5g} to {np.max(centers):.5g} nm",
        "Blocks": f"{down} x {across}, of {rows} x {columns} pixels",
        "Stored as": f"{stored.dtype}, {format_bytes(stored.nbytes)} uncompressed",
        "Scaled by": ", ".join(f"{key} {_decoding(value)}" for key, value in cube.values.items()),
        "No data": ", ".join(f"{value:g}" for value in cube.nodata),
        "Valid pixels": str(cube.n_valid) if counted else "not counted yet",
        **position_facts(cube.pixel_grid),
    }
    return html_table("daskclust.Cube", facts)


def _decoding(value: Any) -> str:
    """Describe a factor, a factor for each band, or the name of a quantization."""
    if isinstance(value, list):
        return "one per band"
    return value if isinstance(value, str) else f"{value:g}"


def position_facts(grid: PixelGrid) -> dict[str, str]:
    """Return facts about the position of an image."""
    if grid.transform == IDENTITY:
        return {"Position": "not stated", "Coordinate system": grid.crs_name or "not stated"}
    facts, extent = {"Coordinate system": grid.crs_name or "not stated"}, _extent(grid)
    if extent is not None:
        left, right, bottom, top = extent
        facts["Extent"] = f"x {left:.10g} to {right:.10g}, y {top:.10g} to {bottom:.10g}"
        facts["Pixel size"] = f"{abs(grid.transform[0]):.6g} x {abs(grid.transform[4]):.6g}"
    return facts
