"""Files of questions: points to be given a class, as GeoJSON or CSV, and their answers."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from daskclust._types import Ints
from daskclust.cube.formats.found import needs_extra
from daskclust.storage.outputs import Output, Written
from daskclust.storage.urls import redact

__all__ = ["KINDS", "QuestionsFile", "position", "read_pixels", "write_questions"]

#: Endings of the files that are written.
KINDS = (".geojson", ".json", ".csv")
_FIELDS = ("order", "row", "column", "x", "y", "class")
#: Member of a GeoJSON file that says whose it is.
_MARK = "daskclust_questions"


class QuestionsFile(Output):
    """GeoJSON or CSV; answers in it are never deleted."""

    def __init__(self, place: str, *, overwrite: bool = False) -> None:
        super().__init__(place, "file of questions", overwrite=overwrite)

    def check_place(self) -> None:
        """Refuse URLs and other endings."""
        shown = redact(self.place)
        if "://" in self.place:
            raise ValueError(f"{shown!r} is a URL; questions are written to a local path.")
        if Path(self.place).suffix.lower() not in KINDS:
            raise ValueError(f"{shown!r} must end in one of {', '.join(KINDS)}.")

    def written(self) -> Written | None:
        """Return how many questions have an answer."""
        try:
            answers = sum(has_class for _, _, has_class in _items(Path(self.place)))
        except (ValueError, KeyError, TypeError, AttributeError, OSError):
            return None
        return Written(self.kind, {"answers": answers})

    def problem(self) -> str | None:
        """Say that there are answers, too."""
        found = self.written()
        if found is not None and found.attributes["answers"]:
            return f"holds {found.attributes['answers']} answers (give it to --labels)"
        return super().problem()


def write_questions(output: QuestionsFile, questions: Any) -> None:
    """Write points with an empty column ``class``: GeoJSON or CSV, whole or absent."""
    with output.new() as partial:
        if output.place.lower().endswith(".csv"):
            with partial.open("w", encoding="utf-8", newline="") as file:
                out = csv.writer(file)
                out.writerow([*_FIELDS, *questions.bands])
                for facts, spectrum in _lines(questions):
                    out.writerow([*facts.values(), *spectrum])
            return
        partial.write_text(_geojson(questions), encoding="utf-8")


def _lines(questions: Any) -> Iterator[tuple[dict[str, Any], list[float]]]:
    numbers = (questions.lines, questions.columns, questions.x, questions.y)
    for order, facts in enumerate(zip(*(part.tolist() for part in numbers), strict=True)):
        values = (order + 1, *facts, None)
        yield dict(zip(_FIELDS, values, strict=True)), questions.spectra[order].tolist()


def _geojson(questions: Any) -> str:
    crs, (x, y) = position(questions.crs, questions.x, questions.y)
    features = [
        {
            "type": "Feature",
            "geometry": {"type": "Point", "coordinates": [east, north]},
            "properties": {**facts, "spectrum": spectrum},
        }
        for (facts, spectrum), east, north in zip(
            _lines(questions), x.tolist(), y.tolist(), strict=True
        )
    ]
    named = {} if crs is None else {"crs": {"type": "name", "properties": {"name": crs}}}
    whole = {
        "type": "FeatureCollection",
        **named,
        _MARK: {"bands": questions.bands},
        "features": features,
    }
    return json.dumps(whole, indent=1, allow_nan=False) + "\n"


def position(system: str | None, x: Any, y: Any) -> tuple[str | None, tuple[Any, Any]]:
    """Name of the coordinate system and positions in it; longitude and latitude have no name."""
    here = x, y
    if system is None:
        return None, here
    with needs_extra("A GeoJSON file of a scene with a coordinate system"):
        import pyproj
    crs = pyproj.CRS.from_user_input(system)
    code = crs.to_epsg(min_confidence=100)
    if code is not None and code != 4326:
        return f"urn:ogc:def:crs:EPSG::{code}", here
    # GeoJSON's system where it names none.
    turned = pyproj.Transformer.from_crs(crs, "OGC:CRS84", always_xy=True).transform(*here)
    return None, (np.asarray(turned[0]), np.asarray(turned[1]))


def _items(path: Path) -> Iterator[tuple[int, int, bool]]:
    """Row, column and whether there is a class, of each item that says its pixel."""
    found: list[Mapping[str, Any]]
    if path.suffix.lower() == ".csv":
        with path.open(encoding="utf-8", newline="") as file:
            found = list(csv.DictReader(file, skipinitialspace=True))
    else:
        whole = json.loads(path.read_text(encoding="utf-8"))
        found = [feature["properties"] for feature in whole["features"]]
    for item in found:
        known = item["class"]
        has_class = known is not None and bool(str(known).strip())
        yield int(item["row"]), int(item["column"]), has_class


def read_pixels(path: str, *, answered: bool) -> tuple[Ints, Ints] | None:
    """Read lines and columns of the questions that have an answer, or of those without one.

    None for files without ``row`` and ``column``.
    """
    place, path = Path(path), redact(path)
    if place.suffix.lower() not in KINDS or not place.is_file():
        return None
    try:
        found = [(row, column) for row, column, has in _items(place) if has == answered]
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    pixels = np.array(found, np.int64).reshape(-1, 2)
    return pixels[:, 0], pixels[:, 1]
