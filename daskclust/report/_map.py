"""The map of a report: a picture for all, and its data for a viewer that zooms."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from daskclust._types import Array, Floats
from daskclust.colors import Legend
from daskclust.report._page import Page, escape
from daskclust.report._pictures import map_png, photo_jpeg, photo_of
from daskclust.report.summary import MapSummary

__all__ = ["add_map", "packed"]

#: Characters that the layers of a map may take in the page.
_ROOM = 3_000_000
#: Pixels along the longer side of the plain picture, and of the scene.
_SMALL, _PHOTO = 600, 1000
#: Steps of a margin; the highest number means no margin.
_MARGIN_STEPS, _NO_MARGIN = 100, 255


def _deflated(values: Array) -> str:
    return base64.b64encode(zlib.compress(np.ascontiguousarray(values).tobytes(), 9)).decode()


def packed(summary: MapSummary, n_codes: int) -> dict[str, Any]:
    """Return the layers of a map as text: deflated, and thinned out until they fit the page.

    Labels are one byte up to 255 codes, else two, little end first. The result holds ``width``,
    ``height``, ``step`` (pixels of the map for one that is shown), ``bytes`` of a label, ``labels``
    (0 means no label), and ``margins`` if there are any, in hundredths, 255 for none.
    """
    size = 1 if n_codes < 2**8 else 2
    thin = 1
    while True:
        labels = (summary.preview[::thin, ::thin] + 1).astype(f"<u{size}")
        found: dict[str, Any] = {
            "width": labels.shape[1],
            "height": labels.shape[0],
            "step": summary.step * thin,
            "bytes": size,
            "labels": _deflated(labels),
        }
        if summary.values is not None:
            margins = summary.values[::thin, ::thin]
            steps = np.rint(np.clip(np.nan_to_num(margins), 0, 1) * _MARGIN_STEPS)
            steps = np.where(np.isnan(margins) | (labels == 0), _NO_MARGIN, steps)
            found["margins"] = _deflated(steps.astype(np.uint8))
        if sum(len(found.get(name, "")) for name in ("labels", "margins")) <= _ROOM:
            return found
        thin += 1


def add_map(
    page: Page,
    cube: Any,
    summary: MapSummary,
    legend: Legend,
    *,
    mostly: Mapping[int, str],
    uncertainty_is: str | None,
) -> None:
    """Add the map with its layers and its legend."""
    axes = cube.pixel_grid.axes
    layers = packed(summary, len(legend.codes))
    thin = max(1, -(-max(summary.preview.shape) // _PHOTO))
    picture_of_scene = photo_of(cube, summary.step * thin, summary.preview[::thin, ::thin] >= 0)
    photo = None if picture_of_scene is None else photo_jpeg(picture_of_scene)
    step = layers["step"]
    shown = "every pixel" if step == 1 else f"one of {step} x {step} pixels"
    data = {
        **layers,
        "rows": cube.shape[0],
        "columns": cube.shape[1],
        "names": legend.names,
        "codes": legend.codes,
        "colors": legend.colors,
        "photo": photo,
        **{name: getattr(axes, name) for name in ("left", "across", "top", "down", "unit")},
        "xName": axes.x_name,
        "yName": axes.y_name,
    }
    thin = max(1, -(-max(summary.preview.shape) // _SMALL))
    picture = map_png(summary.preview[::thin, ::thin], legend.colors)
    what = f"Label map of {cube.shape[0]} x {cube.shape[1]} pixels: {_in_words(summary, legend)}"
    light = "red, green and blue light" if cube.wavelengths is not None else "three bands"
    choices = [("labels", "Label map")]
    choices += [("photo", f"The scene in {light}")] * (photo is not None)
    choices += [("margins", "Uncertainty")] * (summary.values is not None)
    radios = "".join(
        f'<label><input type="radio" name="layer" value="{value}"'
        f"{' checked' if value == 'labels' else ''}> {escape(text)}</label>"
        for value, text in choices
    )
    place = f"{axes.system}, " if axes.system else ""
    size = f"pixels of {axes.pixel}; " if axes.pixel else ""
    viewer = (
        f'<figure class="viewer" id="viewer"><div class="tools" hidden><span>{radios}</span><span>'
        '<button type="button" data-do="in" aria-label="Zoom in">+</button>'
        '<button type="button" data-do="out" aria-label="Zoom out">\N{MINUS SIGN}</button>'
        '<button type="button" data-do="all">Whole map</button></span></div>'
        f'<img src="{picture}" alt="{escape(what)}">'
        f'<canvas hidden tabindex="0" role="img" aria-label="{escape(what)}. Arrow keys move, + '
        'and - zoom, 0 shows the whole map."></canvas>'
        f"{_scale_of_margins(summary, uncertainty_is)}"
        '<p class="readout" aria-live="polite" hidden></p>'
        f"<figcaption>{escape(place + size)}{shown} shown; dark: no data. "
        '<span class="how" hidden>Drag to move; double-click, + and \N{MINUS SIGN} zoom, or the '
        "wheel once the map is clicked.</span></figcaption></figure>"
    )
    page.section("Map", f'<div class="map">{viewer}{_legend_table(summary, legend, mostly)}</div>')
    page.data("map-data", json.dumps(data))


def _in_words(summary: MapSummary, legend: Legend) -> str:
    """Name the five largest classes with their shares."""
    total = max(1, int(summary.sizes.sum()))
    order = np.argsort(-summary.sizes, kind="stable")[:5]
    words = [f"{legend.names[i]} {summary.sizes[i] / total:.0%}" for i in order.tolist()]
    rest = len(legend.names) - len(words)
    return ", ".join(words) + (f", and {rest} more" if rest > 0 else "")


def _scale_of_margins(summary: MapSummary, uncertainty_is: str | None) -> str:
    if summary.values is None:
        return ""
    values = summary.values[np.isfinite(summary.values)]
    median = float(np.median(values)) if len(values) else float("nan")
    low = float(np.mean(values < 0.1)) if len(values) else 0.0
    said = f"Margin: {uncertainty_is}. " if uncertainty_is else ""
    return (
        '<p class="scale"><span>uncertain 0</span><i></i><span>1 certain</span></p>'
        f'<p class="about">{escape(said)}Median {median:.2f}; {low:.1%} of the pixels shown lie '
        "below 0.1.</p>"
    )


def _legend_table(summary: MapSummary, legend: Legend, mostly: Mapping[int, str]) -> str:
    total = max(int(summary.sizes.sum()), 1)
    largest = max(int(summary.sizes.max(initial=0)), 1)
    areas, unit = _areas(summary)
    margins = _mean_margins(summary, len(legend.codes))
    heads = ["class", "code", "pixels", "share"]
    heads += [f"area ({unit})"] * bool(unit) + ["margin"] * (margins is not None)
    heads += ["known pixels"] * bool(mostly)
    rows = []
    for i, (code, name, color) in enumerate(
        zip(legend.codes, legend.names, legend.colors, strict=True)
    ):
        size = int(summary.sizes[i])
        cells = [f"{code}", f"{size:,}", f"{size / total:.1%}"]
        if unit:
            cells.append(f"{areas[i]:,.4g}")
        if margins is not None:
            cells.append("" if np.isnan(margins[i]) else f"{margins[i]:.2f}")
        numbers = "".join(f'<td class="n">{cell}</td>' for cell in cells)
        known = f"<td>{escape(mostly.get(code, ''))}</td>" if mostly else ""
        rows.append(
            f'<tr><th scope="row"><label><input type="checkbox" checked data-class="{i}" hidden '
            f'aria-label="Show {escape(name)}"><i class="chip" style="background:{color}"></i>'
            f'<span>{escape(name)}</span></label><div class="bar" style="background:{color};'
            f'width:{100 * size / largest:.2f}%"></div></th>{numbers}{known}</tr>'
        )
    head = "".join(
        f'<th scope="col"{"" if text in ("class", "known pixels") else " class=n"}>{text}</th>'
        for text in heads
    )
    return (
        f'<div class="legend"><table id="legend"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>"
        '<p class="tools" hidden><button type="button" data-do="show">Show all</button>'
        '<button type="button" data-do="hide">Hide all</button></p></div>'
    )


def _areas(summary: MapSummary) -> tuple[Sequence[float], str]:
    """Return the area of each class, in ha or km2; no unit where pixels have no area."""
    if summary.square_meters is None:
        return [], ""
    areas = np.asarray(summary.square_meters)
    large = areas.sum() >= 1e8
    found: list[float] = (areas / (1e6 if large else 1e4)).tolist()
    return found, "km\N{SUPERSCRIPT TWO}" if large else "ha"


def _mean_margins(summary: MapSummary, n_codes: int) -> Floats | None:
    """Return the mean margin of each class over the pixels shown; NaN for classes not shown."""
    if summary.values is None:
        return None
    kept = (summary.preview >= 0) & np.isfinite(summary.values)
    labels = summary.preview[kept]
    sums = np.bincount(labels, summary.values[kept], n_codes)
    counts = np.bincount(labels, minlength=n_codes)
    found: Floats = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return found
