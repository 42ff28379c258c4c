"""Files of labels that a person gives one after another: GeoJSON or GeoPackage."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from daskclust.cube.formats.found import needs_extra
from daskclust.cube.formats.questions import position
from daskclust.cube.formats.vector import PixelGrid
from daskclust.storage.outputs import Output, Written
from daskclust.storage.urls import redact

__all__ = ["AnswersFile", "Label", "read_answers", "write_answers"]

KINDS = (".geojson", ".gpkg")
#: Member of a GeoJSON file, and metadata of a GeoPackage, that say whose it is.
_MARK = "daskclust_labels"
_LAYER = "labels"


@dataclass(frozen=True)
class Label:
    """What was said of a pixel.

    Attributes
    ----------
    row, column : int
    name : str or None
        The class; None where it could not be told.
    time : str
        ISO 8601.
    step : int
        Number of the answer; a polygon labels many pixels by one.
    asked : bool
        Whether the pixel was asked for, and not chosen by a person.
    foretold : str or None
        What a model that did not know the answer took the pixel for.
    """

    row: int
    column: int
    name: str | None
    time: str
    step: int = 0
    asked: bool = False
    foretold: str | None = None


class AnswersFile(Output):
    """Points with a class; only what was written as such is replaced."""

    def __init__(self, place: str) -> None:
        super().__init__(place, "file of labels", overwrite=True)

    @property
    def is_package(self) -> bool:
        """Whether it is a GeoPackage."""
        return self.place.lower().endswith(".gpkg")

    def check_place(self) -> None:
        """Refuse URLs and other endings."""
        shown = redact(self.place)
        if "://" in self.place:
            raise ValueError(f"{shown!r} is a URL; labels are written to a local path.")
        if Path(self.place).suffix.lower() not in KINDS:
            raise ValueError(f"{shown!r} must end in one of {', '.join(KINDS)}.")

    def written(self) -> Written | None:
        """Return what is in the file besides the labels."""
        try:
            found, _ = _read(self)
        except (ValueError, KeyError, TypeError, OSError, ImportError):
            return None
        return Written(self.kind, found)


def _read(file: AnswersFile) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    if not file.is_package:
        whole = json.loads(Path(file.place).read_text(encoding="utf-8"))
        return dict(whole[_MARK]), [feature["properties"] for feature in whole["features"]]
    with needs_extra("A GeoPackage"):
        import pyogrio
        import pyogrio.raw
    try:
        about = pyogrio.read_info(file.place, layer=_LAYER)["layer_metadata"][_MARK]
        meta, _, _, columns = pyogrio.raw.read(file.place, layer=_LAYER, read_geometry=False)
    except pyogrio.errors.DataSourceError as error:
        raise OSError(f"{redact(file.place)!r} cannot be read: {redact(error)}") from error
    values = zip(*(column.tolist() for column in columns), strict=True)
    return json.loads(about), [dict(zip(meta["fields"], item, strict=True)) for item in values]


def read_answers(file: AnswersFile) -> tuple[dict[str, Any], list[Label]]:
    """Return what was kept beside the labels, and these in the order of their answers.

    Raises
    ------
    FileExistsError
        Something else lies there.
    """
    file.check()
    about, items = _read(file)
    labels = [
        Label(
            int(item["row"]),
            int(item["column"]),
            item["class"] or None,
            item["time"],
            int(item["step"]),
            bool(item["asked"]),
            item["foretold"] or None,
        )
        for item in items
    ]
    return about, sorted(labels, key=lambda label: label.step)


def write_answers(
    file: AnswersFile, labels: Sequence[Label], grid: PixelGrid, about: dict[str, Any]
) -> None:
    """Write labels; the file is whole, or what it was before.

    Raises
    ------
    ValueError
        A GeoPackage of an image without a coordinate system.
    """
    a, b, c, d, e, f = grid.transform
    east = np.array([label.column + 0.5 for label in labels])
    south = np.array([label.row + 0.5 for label in labels])
    x, y = a * east + b * south + c, d * east + e * south + f
    items = [asdict(label) for label in labels]
    for item in items:
        item["class"] = item.pop("name")
    with file.new() as partial:
        if file.is_package:
            _write_package(partial, items, x, y, grid.crs, about)
            return
        crs, (x, y) = position(grid.crs, x, y)
        features = [
            {
                "type": "Feature",
                "geometry": {"type": "Point", "coordinates": [east, north]},
                "properties": item,
            }
            for item, east, north in zip(items, x.tolist(), y.tolist(), strict=True)
        ]
        named = {} if crs is None else {"crs": {"type": "name", "properties": {"name": crs}}}
        whole = {"type": "FeatureCollection", **named, _MARK: about, "features": features}
        partial.write_text(json.dumps(whole, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def _write_package(
    partial: Path, items: list[dict[str, Any]], x: Any, y: Any, crs: str | None, about: Any
) -> None:
    if crs is None:
        raise ValueError(
            "The image states no coordinate system, which a GeoPackage needs; write the labels to "
            "a .geojson."
        )
    with needs_extra("A GeoPackage"):
        import pyogrio.raw
        import shapely
    types = {"row": np.int64, "column": np.int64, "step": np.int64, "asked": bool}
    fields = ["row", "column", "class", "time", "step", "asked", "foretold"]
    # The driver warns of any other ending.
    named = partial.with_name(f"{partial.name}.gpkg")
    try:
        pyogrio.raw.write(
            str(named),
            shapely.to_wkb(shapely.points(x, y)),
            [np.array([item[name] for item in items], types.get(name, object)) for name in fields],
            np.array(fields),
            driver="GPKG",
            layer=_LAYER,
            geometry_type="Point",
            crs=crs,
            layer_metadata={_MARK: json.dumps(about)},
        )
        named.replace(partial)
    finally:
        named.unlink(missing_ok=True)
