"""Colors of classes out of a file: CSV of class and color, or a style of QGIS."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from daskclust.persistence.origin import class_names_of, name_classes
from daskclust.report.legend import legend_of

__all__ = ["paint", "read_class_colors"]

_COLOR = re.compile(r"#[0-9a-f]{6}")


def read_class_colors(path: str) -> dict[str, str]:
    """Return colors, as ``#rrggbb``, by name or code of the class.

    A CSV file has lines ``class,color``. A QGIS style (``.qml``) is that of a raster of classes, or
    of features by category.
    """
    text = Path(path).read_text(encoding="utf-8-sig")
    is_style = path.lower().endswith(".qml")
    pairs = _of_style(path, text) if is_style else _of_lines(path, text)
    if not pairs:
        raise ValueError(f"--colors {path!r} holds no class with a color; expected class,color.")
    for name, color in pairs.items():
        if not _COLOR.fullmatch(color):
            raise ValueError(
                f"--colors {path!r} gives {name!r} the color {color!r}; expected #rrggbb, as in "
                "#1f77b4."
            )
    return pairs


def _of_lines(path: str, text: str) -> dict[str, str]:
    found = {}
    for number, line in enumerate(csv.reader(text.splitlines()), start=1):
        cells = [cell.strip() for cell in line]
        if not any(cells) or (number == 1 and cells[-1].lower() in ("color", "colour")):
            continue
        if len(cells) != 2:
            raise ValueError(
                f"--colors {path!r}, line {number}, has {len(cells)} fields; expected class,color."
            )
        found[cells[0]] = cells[1].lower()
    return found


def _of_style(path: str, text: str) -> dict[str, str]:
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(f"--colors {path!r} cannot be read as a QGIS style: {error}.") from error
    found: dict[str, str] = {}
    for entry in root.iter("paletteEntry"):
        name = entry.get("label", "") or entry.get("value", "")
        found[name] = entry.get("color", "").lower()
    symbols = {}
    for symbol in root.iter("symbol"):
        said = [item.get("value", item.get("v", "")) for item in symbol.iter() if _names(item)]
        if said:
            parts = [int(part) for part in said[0].split(",")[:3]]
            symbols[symbol.get("name", "")] = "#{:02x}{:02x}{:02x}".format(*parts)
    for category in root.iter("category"):
        color = symbols.get(category.get("symbol", ""))
        if color is not None and category.get("value"):
            found[category.get("value", "")] = color
    return found


def _names(item: Any) -> bool:
    """Whether an element of a symbol holds its color, as QGIS 3 or 2 writes it."""
    return item.get("name", item.get("k")) == "color" and item.tag in ("Option", "prop")


def paint(model: Any, path: str) -> None:
    """Let a fitted model remember the colors in a file of its classes or clusters."""
    colors = read_class_colors(path)
    legend = legend_of(model)
    codes = {str(code): code for code in legend.codes}
    codes |= {"_".join(name.split()): code for code, name in legend.by_code.items()}
    wrong = [name for name in colors if "_".join(name.split()) not in codes]
    if len(wrong) == len(colors):
        raise ValueError(
            f"--colors {path!r} names {', '.join(wrong[:10])}, none of which is a class of the "
            f"fit; it has {', '.join(legend.names[:10])}."
        )
    names, known = class_names_of(model)
    given = {
        codes["_".join(name.split())]: color for name, color in colors.items() if name not in wrong
    }
    name_classes(model, names, {**known, **given})
