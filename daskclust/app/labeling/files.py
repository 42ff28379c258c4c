"""Files of suggested points and their classes, as GeoJSON or CSV."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from daskclust.core.array_types import Ints
from daskclust.core.storage.outputs import Output, Written
from daskclust.core.storage.redact import redact
from daskclust.scenes.coordinate_systems import move
from daskclust.scenes.formats.format_detection import needs_extra

#: Suffixes of the files that are written.
KINDS = (".geojson", ".json", ".csv")
_FIELDS = ("order", "row", "column", "x", "y", "class")
#: Member of a GeoJSON file that marks questions of this program.
_MARK = "daskclust_questions"


class _Points(Output):
    """A local file with a suffix in `suffixes`; `content` names its content in messages."""

    suffixes: tuple[str, ...]
    content: str

    def check_location(self) -> None:
        shown = redact(self.location)
        if "://" in self.location:
            raise ValueError(
                f"{shown!r} must be a local path, because {self.content} cannot be written to "
                "a URL."
            )
        if Path(self.location).suffix.lower() not in self.suffixes:
            raise ValueError(f"{shown!r} must end in {' or '.join(self.suffixes)}.")


class QuestionsFile(_Points):
    """GeoJSON or CSV; answers in it are never deleted."""

    suffixes, content = KINDS, "questions"

    def __init__(self, location: str, *, overwrite: bool = False) -> None:
        super().__init__(location, "file of questions", overwrite=overwrite)

    def written(self) -> Written | None:
        items = _pixels_of(self.location)
        if items is None:
            return None
        return Written(self.kind, {"answers": sum(bool(item["class"]) for item in items)})

    def problem(self) -> str | None:
        existing = self.written()
        if existing is not None and existing.attributes["answers"]:
            return f"contains {existing.attributes['answers']} answers (pass it as --labels)"
        return super().problem()


def write_questions(output: QuestionsFile, questions: Any) -> None:
    """Write points with an empty column ``class`` as GeoJSON or CSV, atomically."""
    with output.new() as partial:
        if output.location.lower().endswith(".csv"):
            with partial.open("w", encoding="utf-8", newline="") as file:
                rows = csv.writer(file)
                # A band with the name of one of our columns would hide that column from readers.
                band_names = (
                    f"band {name}" if name in _FIELDS else name for name in questions.bands
                )
                rows.writerow([*_FIELDS, *band_names])
                for facts, spectrum in _lines(questions):
                    rows.writerow([*facts.values(), *spectrum])
            return
        items = ({**facts, "spectrum": spectrum} for facts, spectrum in _lines(questions))
        location, about = (questions.crs, questions.x, questions.y), {"bands": questions.bands}
        partial.write_text(_geojson(*location, items, _MARK, about), encoding="utf-8")


def _lines(questions: Any) -> Iterator[tuple[dict[str, Any], list[float]]]:
    numbers = (questions.lines, questions.columns, questions.x, questions.y)
    for order, facts in enumerate(zip(*(array.tolist() for array in numbers), strict=True)):
        values = (order + 1, *facts, None)
        yield dict(zip(_FIELDS, values, strict=True)), questions.spectra[order].tolist()


def _geojson(
    system: str | None, x: Any, y: Any, items: Iterable[Mapping[str, Any]], mark: str, about: Any
) -> str:
    """Write points with their answers, and mark the file as written by daskclust."""
    crs, (x, y) = position(system, x, y)
    features = [
        {
            "type": "Feature",
            "geometry": {"type": "Point", "coordinates": coordinates},
            "properties": item,
        }
        for item, coordinates in zip(items, np.column_stack([x, y]).tolist(), strict=True)
    ]
    crs_member = {} if crs is None else {"crs": {"type": "name", "properties": {"name": crs}}}
    collection = {"type": "FeatureCollection", **crs_member, mark: about, "features": features}
    return json.dumps(collection, indent=1, allow_nan=False) + "\n"


def position(system: str | None, x: Any, y: Any) -> tuple[str | None, tuple[Any, Any]]:
    """Return the name of the coordinate system (None for longitude and latitude), and positions."""
    points = x, y
    if system is None:
        return None, points
    with needs_extra("A GeoJSON file of a scene with a coordinate system"):
        import pyproj
    code = pyproj.CRS.from_user_input(system).to_epsg(min_confidence=100)
    if code is not None and code != 4326:
        return f"urn:ogc:def:crs:EPSG::{code}", points
    # The coordinate system of a GeoJSON file that names none.
    turned = move(*points, system, "OGC:CRS84")
    return None, (np.asarray(turned[0]), np.asarray(turned[1]))


def _properties(path: Path) -> list[dict[str, Any]]:
    if path.suffix.lower() == ".gpkg":
        return _read(AnswersFile(str(path)))[1]
    if path.suffix.lower() == ".csv":
        with path.open(encoding="utf-8-sig", newline="") as file:
            return list(csv.DictReader(file, skipinitialspace=True))
    whole = json.loads(path.read_text(encoding="utf-8"))
    return [feature["properties"] for feature in whole["features"]]


def _pixels_of(path: str) -> list[dict[str, Any]] | None:
    """Return the pixels of a file with ``row``, ``column`` and ``class``; None for other files."""
    file = Path(path)
    if file.suffix.lower() not in (*KINDS, ".gpkg") or not file.is_file():
        return None
    try:
        return [
            {
                **item,
                "row": int(item["row"]),
                "column": int(item["column"]),
                "class": "" if item["class"] is None else str(item["class"]).strip(),
            }
            for item in _properties(file)
        ]
    except (ValueError, KeyError, TypeError, AttributeError, OSError, RuntimeError):
        # RuntimeError: the layer is not the layer of answers.
        return None


def skipped_pixels(path: str) -> tuple[Ints, Ints]:
    """Read lines and columns of the questions that have no answer."""
    pixels = [(i["row"], i["column"]) for i in _pixels_of(path) or () if not i["class"]]
    lines, columns = np.array(pixels, np.int64).reshape(-1, 2).T
    return lines, columns


def has_only_class(path: str, column: str) -> bool:
    """Return True if the file contains classes of pixels but no column ``class``."""
    items = _pixels_of(path)
    return items is not None and not any(column in item for item in items)


#: Member of a GeoJSON file, or metadata of a GeoPackage, that marks files of this program.
_ANSWERS_MARK = "daskclust_labels"
_LAYER = "labels"


@dataclass(frozen=True)
class Label:
    """Answer for a pixel; `name` is None if the person did not know its class.

    `step` is the number of the answer; the pixels of a polygon share one number. `predicted` is the
    class that a model predicted before the answer.
    """

    row: int
    column: int
    name: str | None
    time: str
    step: int = 0
    asked: bool = False
    predicted: str | None = None

    @property
    def pixel(self) -> tuple[int, int]:
        return self.row, self.column


class AnswersFile(_Points):
    """File of points with a class; it replaces only files of labels of this program."""

    suffixes, content = (".geojson", ".gpkg"), "labels"

    def __init__(self, location: str) -> None:
        super().__init__(location, "file of labels", overwrite=True)
        self.is_package = location.lower().endswith(".gpkg")
        #: Contents of the file when it was last read or written here.
        self.seen: Written | None = None

    def written(self) -> Written | None:
        try:
            about, items, _ = _read(self)
        except (ValueError, KeyError, TypeError, OSError, ImportError):
            return None
        return Written(self.kind, {"about": about, "items": items})

    def check_now(self) -> None:
        super().check_now()
        existing = self.written() if self.exists() else self.seen
        if existing is not None and existing != self.seen:
            # For example, another page or QGIS has changed the file.
            raise FileExistsError(
                f"{self.location!r} was changed by another program since it was read. Its labels "
                "are kept, but this answer is not. Start the command again to continue with all "
                "labels."
            )

    @contextmanager
    def new(self) -> Iterator[Path]:
        with super().new() as partial:
            yield partial
            ours = _version(partial)
        seen = self.written()
        # Another process may have written at the same time: the next answer then raises an error.
        self.seen = seen if self.exists() and _version(Path(self.location)) == ours else None


def _version(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return status.st_ino, status.st_mtime_ns, status.st_size


def _read(file: AnswersFile) -> tuple[dict[str, Any], list[dict[str, Any]], str | None]:
    """Return metadata, the labels with their ``place``, and the coordinate system."""
    if not file.is_package:
        collection = json.loads(Path(file.location).read_text(encoding="utf-8"))
        places = (feature["geometry"]["coordinates"][:2] for feature in collection["features"])
        pairs = zip(collection["features"], places, strict=True)
        items = [{**feature["properties"], "place": location} for feature, location in pairs]
        system = collection.get("crs", {"properties": {"name": "OGC:CRS84"}})["properties"]["name"]
        return dict(collection[_ANSWERS_MARK]), items, system
    with needs_extra("A GeoPackage"):
        import pyogrio
        import pyogrio.raw
        import shapely
    try:
        metadata = pyogrio.read_info(file.location, layer=_LAYER)["layer_metadata"][_ANSWERS_MARK]
        meta, _, points, columns = pyogrio.raw.read(file.location, layer=_LAYER)
    except pyogrio.errors.DataSourceError as error:
        raise OSError(f"{redact(file.location)!r} cannot be read: {redact(error)}") from error
    places = shapely.get_coordinates(shapely.from_wkb(points)).tolist()
    # Missing numbers are NaN here, and NaN would make two reads of the same file differ.
    plain = ([None if v != v else v for v in column.tolist()] for column in columns)
    values = zip(*plain, places, strict=True)
    names = [*meta["fields"], "place"]
    labels = [dict(zip(names, item, strict=True)) for item in values]
    return json.loads(metadata), labels, meta["crs"]


def read_answers(file: AnswersFile, grid: Any) -> tuple[dict[str, Any], list[Label]]:
    """Return the stored metadata, and the labels in the order of the answers.

    If the image is georeferenced, a label belongs to the pixel at its coordinates: points may have
    been moved or added, for example in QGIS, or may be from another image.
    """
    file.check()
    about, items, system = _read(file)
    file.seen = Written(file.kind, {"about": about, "items": items})
    # Features that other programs added lack some of the columns.
    pixels: list[Any] = [(item.get("row"), item.get("column")) for item in items]
    if grid.crs is not None and items:
        pixels = _pixels_at([item["place"] for item in items], system, grid)
    elif any(None in pixel for pixel in pixels):
        raise ValueError(
            f"{file.location!r} must have row and column for each point, because the image is not "
            f"georeferenced, got points without them."
        )
    last = max((int(item.get("step") or 0) for item in items), default=0)
    labels = [
        Label(
            int(row),
            int(column),
            item.get("class") or None,
            item.get("time") or "",
            int(item.get("step") or last + 1),
            bool(item.get("asked")),
            item.get("predicted") or None,
        )
        for item, (row, column) in zip(items, pixels, strict=True)
    ]
    return about, sorted(labels, key=lambda label: label.step)


def _pixels_at(places: Any, system: Any, grid: Any) -> list[tuple[int, int]]:
    x, y = np.array(places, float).T
    columns, rows = np.floor(grid.places(*move(x, y, system, grid.crs)))
    return list(zip(rows.astype(np.int64).tolist(), columns.astype(np.int64).tolist(), strict=True))


def write_answers(
    file: AnswersFile, labels: Sequence[Label], grid: Any, about: dict[str, Any]
) -> None:
    rows, columns = np.array([label.pixel for label in labels]).reshape(-1, 2).T + 0.5
    x, y = grid.positions(columns, rows)
    items = [asdict(label) for label in labels]
    for item in items:
        item["class"] = item.pop("name")
    with file.new() as partial:
        if file.is_package:
            _write_package(partial, items, x, y, grid.crs, about)
            return
        text = _geojson(grid.crs, x, y, items, _ANSWERS_MARK, about)
        partial.write_text(text, encoding="utf-8")


def _write_package(
    partial: Path, items: list[dict[str, Any]], x: Any, y: Any, crs: str | None, about: Any
) -> None:
    if crs is None:
        raise ValueError(
            "The image states no coordinate system, which a GeoPackage needs; write the labels to "
            "a .geojson."
        )
    with needs_extra("A GeoPackage"):
        import pyogrio.errors
        import pyogrio.raw
        import shapely
    types = {"row": np.int64, "column": np.int64, "step": np.int64, "asked": bool}
    fields = ["row", "column", "class", "time", "step", "asked", "predicted"]
    # The driver warns about other suffixes.
    package = partial.with_name(f"{partial.name}.gpkg")
    try:
        pyogrio.raw.write(
            str(package),
            shapely.to_wkb(shapely.points(x, y)),
            [np.array([item[name] for item in items], types.get(name, object)) for name in fields],
            np.array(fields),
            driver="GPKG",
            layer=_LAYER,
            geometry_type="Point",
            crs=crs,
            layer_metadata={_ANSWERS_MARK: json.dumps(about)},
        )
        package.replace(partial)
    except (pyogrio.errors.DataLayerError, pyogrio.errors.DataSourceError) as error:
        # For example on a full disk: the library states neither the path nor the reason.
        raise OSError(
            f"A GeoPackage cannot be written to {str(partial.parent)!r} (is the disk full?): "
            f"{redact(error)}"
        ) from error
    finally:
        package.unlink(missing_ok=True)
