"""One HTML file about what changed from one label map to another."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np

from daskclust._version import __version__
from daskclust.engine import compute
from daskclust.report.page import Page, escape, map_png
from daskclust.report.sections import share_table

#: Pixels along the longer side of a picture, and transitions that are listed.
_SIDE, _LISTED = 700, 30
_WAYS = {
    "name": "Classes of one name are the same",
    "code": "Classes of one code are the same",
    "overlap": "Classes that share most pixels, one to one, are the same",
}


def changed_page(title: str, old: Any, changes: Any, mark: str = "") -> str:
    """Return a page about the changes, with the mark of its job."""
    legend, pixels = changes.legend, changes.pixels
    page = Page(title)
    page.lead(
        f"{_WAYS[changes.compared_by]}. Written {datetime.now(UTC):%Y-%m-%d %H:%M} UTC by "
        f"daskclust {__version__}."
    )
    page.facts(
        [
            (f"{changes.unchanged:.1%}", "of the pixels kept their class"),
            (f"{pixels.sum():,}", "pixels in both maps"),
            (f"{changes.only_old:,}", "in the first only"),
            (f"{changes.only_new:,}", "in the second only"),
        ]
    )
    moves = changes.transitions()
    changed = changes.changed
    step = max(1, -(-max(old.shape) // _SIDE))
    maps = (old, changes.matched, changed)
    small = compute("pictures of the maps", *(each.values[::step, ::step] for each in maps))
    figures = [
        _figure(heading, np.asarray(values), codes, colors)
        for heading, values, codes, colors in (
            ("First map", small[0], legend.codes, legend.colors),
            ("Second map, in the colors of the first", small[1], legend.codes, legend.colors),
            (
                "What changed, in the color of the new class",
                small[2],
                sorted(changed.colors),
                [changed.colors[code] for code in sorted(changed.colors)],
            ),
        )
    ]
    page.section("Maps", f'<div class="three">{"".join(figures)}</div>')
    alone = changes.only_old or changes.only_new
    page.section(
        "Areas of pixels in both maps" if alone else "Areas",
        f'<div class="wide">{_areas(changes)}</div>',
    )
    if moves:
        page.section("Transitions", f'<div class="wide">{_moves(changes, moves)}</div>')
    heads = list(zip(legend.names, legend.colors, strict=True))
    page.section(
        "From class to class",
        '<div class="agreement"><div class="wide">'
        + share_table(
            pixels,
            legend.names,
            heads,
            caption="Of each class of the first map (down), the share that has each class of the "
            "second (across)",
            corner="first map",
        )
        + "</div></div>",
    )
    return page.html(mark)


def _figure(heading: str, values: Any, codes: Any, colors: Any) -> str:
    picture, said = map_png(values, colors, codes), escape(heading)
    return (
        f'<figure class="viewer"><img src="{picture}" alt="{said}">'
        f"<figcaption>{said}</figcaption></figure>"
    )


def _units(changes: Any) -> tuple[Any, str]:
    """Return what is told of each pair of classes, and its unit."""
    if changes.square_meters is None:
        return changes.pixels, "pixels"
    large = changes.square_meters.sum() >= 1e8
    return changes.square_meters / (1e6 if large else 1e4), "km²" if large else "ha"


def _areas(changes: Any) -> str:
    sizes, unit = _units(changes)
    renamed = any(
        changes.new_names.get(code, name) != name
        for code, name in zip(changes.legend.codes, changes.legend.names, strict=True)
    )
    before, after, kept = sizes.sum(axis=1), sizes.sum(axis=0), np.diag(sizes)
    rows = "".join(
        f'<tr><th scope="row"><i class="chip" style="background:{color}"></i>{escape(name)}</th>'
        + (f"<td>{escape(changes.new_names.get(code, ''))}</td>" if renamed else "")
        + "".join(
            f'<td class="n">{text}</td>'
            for text in (
                f"{a:,.5g}",
                f"{b:,.5g}",
                f"{b - a:+,.4g}" if a != b else "0",
                f"{k / a:.1%}" if a else "",
            )
        )
        + "</tr>"
        for code, name, color, a, b, k in zip(
            changes.legend.codes,
            changes.legend.names,
            changes.legend.colors,
            before.tolist(),
            after.tolist(),
            kept.tolist(),
            strict=True,
        )
    )
    heads = (f"first ({unit})", f"second ({unit})", "change", "kept")
    return (
        '<table><thead><tr><th scope="col">class</th>'
        + ('<th scope="col">called in the second map</th>' if renamed else "")
        + "".join(f'<th scope="col" class="n">{head}</th>' for head in heads)
        + f"</tr></thead><tbody>{rows}</tbody></table>"
    )


def _moves(changes: Any, moves: list[tuple[int, int]]) -> str:
    sizes, unit = _units(changes)
    names, colors = changes.legend.names, changes.legend.colors
    total = sizes.sum()
    rows = "".join(
        f'<tr><th scope="row">{escape(names[a])}</th><td><i class="chip" style="background:'
        f'{colors[b]}"></i>{escape(names[b])}</td><td class="n">{changes.pixels[a, b]:,}</td>'
        + ("" if unit == "pixels" else f'<td class="n">{sizes[a, b]:,.4g}</td>')
        + f'<td class="n">{sizes[a, b] / total:.2%}</td></tr>'
        for a, b in moves[:_LISTED]
    )
    heads = ["pixels", *([] if unit == "pixels" else [unit]), "share"]
    more = len(moves) - _LISTED
    return (
        '<table><thead><tr><th scope="col">from</th><th scope="col">to</th>'
        + "".join(f'<th scope="col" class="n">{head}</th>' for head in heads)
        + f"</tr></thead><tbody>{rows}</tbody></table>"
        + (f"<p>and {more:,} more</p>" if more > 0 else "")
    )
