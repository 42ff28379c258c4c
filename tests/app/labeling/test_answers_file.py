"""Files of labels: whole, read again, and read as labels by everything else."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import numpy as np
import pytest

from daskclust import open_cube
from daskclust.app.commands.label import _with_names
from daskclust.app.commands.requests import LabelRequest
from daskclust.app.labeling.files import (
    AnswersFile,
    Label,
    has_only_class,
    read_answers,
    skipped_pixels,
    write_answers,
)
from daskclust.core.storage import atomic_write
from daskclust.scenes._georeference import IDENTITY, PixelGrid

ABOUT = {"shape": [4, 5], "classes": [{"name": "lake", "color": "#0000ff"}]}
LABELS = [
    Label(0, 1, "lake", "2026-01-01T10:00:00+00:00", 1, True, "soil"),
    Label(2, 4, None, "2026-01-01T10:00:01+00:00", 2, True),
    Label(3, 0, "soil", "2026-01-01T10:00:02+00:00", 3),
]
UTM = PixelGrid((4, 5), (30.0, 0.0, 500_000.0, 0.0, -30.0, 4_000_000.0), "EPSG:32633")


@pytest.mark.parametrize("name", ["labels.geojson", "labels.gpkg"])
@pytest.mark.parametrize("labels", [LABELS, LABELS[:2], []])
def test_what_was_written_is_read_again(tmp_path, name, labels):
    file = AnswersFile(str(tmp_path / name))
    write_answers(file, labels[:1], UTM, {})
    write_answers(file, labels, UTM, ABOUT)
    assert read_answers(file, UTM) == (ABOUT, labels)
    assert [one.name for one in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["labels.geojson", "labels.gpkg"])
def test_labels_of_the_file_are_those_of_its_pixels(tmp_path, name):
    import rasterio
    from affine import Affine

    scene = tmp_path / "scene.tif"
    with rasterio.open(
        scene,
        "w",
        driver="GTiff",
        height=4,
        width=5,
        count=2,
        dtype="uint8",
        crs=UTM.crs,
        transform=Affine(*UTM.transform),
    ) as out:
        out.write(np.ones((2, 4, 5), np.uint8))
    cube = open_cube(scene, nodata=None)
    path = tmp_path / name
    write_answers(AnswersFile(str(path)), LABELS, cube.pixel_grid, ABOUT)
    rows, labels = cube.rows_of(path, class_column="class")
    assert rows.tolist() == [1, 15]
    assert labels.tolist() == ["lake", "soil"]


def test_points_that_were_moved_or_added_have_the_pixels_of_their_places(tmp_path):
    path = tmp_path / "labels.geojson"
    write_answers(AnswersFile(str(path)), LABELS, UTM, ABOUT)
    whole = json.loads(path.read_text())
    first, _, last = whole["features"]
    first["geometry"], place = last["geometry"], first["geometry"]
    added = {"type": "Feature", "properties": {"class": "lake", "row": None}, "geometry": place}
    whole["features"].append(added)
    path.write_text(json.dumps(whole))
    labels = read_answers(AnswersFile(str(path)), UTM)[1]
    found = [(one.row, one.column, one.name) for one in labels]
    assert found == [(3, 0, "lake"), (2, 4, None), (3, 0, "soil"), (0, 1, "lake")]
    # Those of another image are not in this one.
    other = replace(UTM, transform=(30.0, 0.0, 600_000.0, 0.0, -30.0, 4_000_000.0))
    assert all(one.column < 0 for one in read_answers(AnswersFile(str(path)), other)[1])
    # An image that does not say where it lies has rows and columns alone.
    with pytest.raises(ValueError, match="must have row and column for each point"):
        read_answers(AnswersFile(str(path)), PixelGrid((4, 5), IDENTITY, None))


def test_points_added_to_a_package_have_the_pixels_of_their_places(tmp_path):
    raw = pytest.importorskip("pyogrio.raw")
    path = tmp_path / "labels.gpkg"
    write_answers(AnswersFile(str(path)), LABELS, UTM, ABOUT)
    meta, _, points, columns = raw.read(path, layer="labels")
    at = list(meta["fields"]).index("class")
    raw.write(
        str(path), points[:1], [columns[at][:1]], ["class"], layer="labels", driver="GPKG",
        geometry_type="Point", crs=UTM.crs, append=True,
    )  # fmt: skip
    labels = read_answers(AnswersFile(str(path)), UTM)[1]
    assert [one.pixel for one in labels] == [(0, 1), (2, 4), (3, 0), (0, 1)]
    assert labels[-1].name == "lake"


@pytest.mark.parametrize("name", ["labels.geojson", "labels.gpkg"])
def test_skipped_pixels_are_found_in_each_format(tmp_path, name):
    path = str(tmp_path / name)
    write_answers(AnswersFile(path), LABELS, UTM, ABOUT)
    assert np.stack(skipped_pixels(path)).tolist() == [[2], [4]]
    assert has_only_class(path, "crop")
    assert not has_only_class(path, "time")


def test_other_packages_hold_no_answers(tmp_path):
    raw = pytest.importorskip("pyogrio.raw")
    shapely = pytest.importorskip("shapely")
    path = str(tmp_path / "fields.gpkg")
    points = shapely.to_wkb(shapely.points([5.0], [6.0]))
    raw.write(
        path, points, [np.array(["oak"], object)], ["class"], layer="fields", driver="GPKG",
        geometry_type="Point", crs=UTM.crs,
    )  # fmt: skip
    assert np.stack(skipped_pixels(path)).tolist() == [[], []]
    assert not has_only_class(path, "crop")


def test_files_of_scenes_that_share_the_first_part_of_a_name_are_two():
    found = []
    for scene in ("LC08.2020.tif", "a/LC08.2021.tif", "s.zarr", "s.zarr.zip"):
        options = _with_names(LabelRequest(cube=(scene,)))
        found.append(options.labels)
        assert options.output.startswith(options.labels.removesuffix("labels.geojson") + "map.")
    names = ("LC08.2020", "LC08.2021", "s", "s")
    assert found == [f"{name}_labels.geojson" for name in names]


def test_a_write_that_fails_leaves_what_was_there(tmp_path):
    file = AnswersFile(str(tmp_path / "labels.geojson"))
    plain = PixelGrid((4, 5), IDENTITY, None)
    write_answers(file, LABELS, plain, ABOUT)
    with pytest.raises(ValueError, match="JSON"):
        write_answers(file, LABELS[:1], plain, {"shape": float("nan")})
    assert read_answers(file, plain) == (ABOUT, LABELS)


@pytest.mark.parametrize("name", ["labels.geojson", "labels.gpkg"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_answer_of_another_that_is_written_meanwhile_is_kept(tmp_path, monkeypatch, name, when):
    """Of two that wrote at once, one took the other's for its own, and then replaced it."""
    place, other = tmp_path / name, tmp_path / f"other_{name}"
    file = AnswersFile(str(place))
    write_answers(file, LABELS[:1], UTM, ABOUT)
    write_answers(AnswersFile(str(other)), LABELS[1:2], UTM, ABOUT)
    put = atomic_write.put_in_place

    def put_and_be_replaced(partial, path):
        put(partial, path)
        other.replace(place)

    if when == "after":
        monkeypatch.setattr(atomic_write, "put_in_place", put_and_be_replaced)
        write_answers(file, LABELS[:2], UTM, ABOUT)
        monkeypatch.undo()
    else:
        monkeypatch.setattr(atomic_write.os, "fsync", lambda _: other.replace(place))
    with pytest.raises(FileExistsError, match="changed by another program"):
        write_answers(file, LABELS, UTM, ABOUT)
    assert read_answers(AnswersFile(str(place)), UTM)[1] == LABELS[1:2]


def test_files_of_others_are_not_replaced(tmp_path):
    path = tmp_path / "labels.geojson"
    path.write_text('{"type": "FeatureCollection", "features": []}')
    file = AnswersFile(str(path))
    with pytest.raises(FileExistsError, match="not written by daskclust"):
        write_answers(file, LABELS, UTM, ABOUT)
    with pytest.raises(FileExistsError):
        read_answers(file, UTM)


def test_places_that_cannot_be_written_to_are_refused(tmp_path):
    for place, text in (("s3://b/labels.geojson", "URL"), (str(tmp_path / "l.shp"), "must end in")):
        with pytest.raises(ValueError, match=text):
            write_answers(AnswersFile(place), LABELS, UTM, ABOUT)
    with pytest.raises(ValueError, match="no coordinate system"):
        write_answers(
            AnswersFile(str(tmp_path / "labels.gpkg")),
            LABELS,
            PixelGrid((4, 5), IDENTITY, None),
            ABOUT,
        )


@pytest.mark.skipif(os.name == "nt", reason="files have no limit on Windows")
@pytest.mark.parametrize("name", ["labels.geojson", "labels.gpkg"])
def test_a_disk_that_is_full_is_named_and_costs_nothing(tmp_path, name):
    import resource

    file = AnswersFile(str(tmp_path / name))
    write_answers(file, LABELS, UTM, ABOUT)
    many = [replace(LABELS[0], step=step) for step in range(4000)]
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))
    try:
        with pytest.raises(OSError, match=str(tmp_path)):
            write_answers(file, many, UTM, ABOUT)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert read_answers(file, UTM) == (ABOUT, LABELS)
    assert [one.name for one in tmp_path.iterdir()] == [name]
