"""Cubes and label maps in notebooks: tables from metadata, no pixel is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

import numpy as np

from daskclust.cube.formats.vector import IDENTITY, PixelGrid

__all__ = ["cube_html", "label_map_html"]

_MOST_CLASSES = 60
_STEPS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


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
        "Stored as": f"{stored.dtype}, {_bytes(stored.nbytes)}",
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
        for code in codes[:_MOST_CLASSES]
    ]
    if len(codes) > _MOST_CLASSES:
        rows.append(f'<tr><td colspan="3">and {len(codes) - _MOST_CLASSES} more</td></tr>')
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
    if centers is None or not len(centers):
        return ""
    return f"{np.min(centers):.5g} to {np.max(centers):.5g} nm"


def _bytes(count: float) -> str:
    for size, unit in _STEPS:
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:g} bytes"


def _place(grid: PixelGrid) -> dict[str, str]:
    if grid.transform == IDENTITY:
        return {"Position": "not stated", "Coordinate system": grid.crs_name or "not stated"}
    a, b, left, d, e, top = grid.transform
    height, width = grid.shape
    facts = {"Coordinate system": grid.crs_name or "not stated"}
    if not (b or d):
        right, bottom = left + a * width, top + e * height
        facts["Extent"] = f"x {left:.10g} to {right:.10g}, y {top:.10g} to {bottom:.10g}"
        facts["Pixel size"] = f"{abs(a):.6g} x {abs(e):.6g}"
    return facts
