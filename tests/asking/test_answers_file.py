"""Files of labels: whole, read again, and read as labels by everything else."""

from __future__ import annotations

import numpy as np
import pytest

from daskclust import open_cube
from daskclust.asking.files import AnswersFile, Label, read_answers, write_answers
from daskclust.cube._georeference import IDENTITY, PixelGrid

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
    assert read_answers(file) == (ABOUT, labels)
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


def test_a_write_that_fails_leaves_what_was_there(tmp_path):
    file = AnswersFile(str(tmp_path / "labels.geojson"))
    plain = PixelGrid((4, 5), IDENTITY, None)
    write_answers(file, LABELS, plain, ABOUT)
    with pytest.raises(ValueError, match="JSON"):
        write_answers(file, LABELS[:1], plain, {"shape": float("nan")})
    assert read_answers(file) == (ABOUT, LABELS)


def test_files_of_others_are_not_replaced(tmp_path):
    path = tmp_path / "labels.geojson"
    path.write_text('{"type": "FeatureCollection", "features": []}')
    file = AnswersFile(str(path))
    with pytest.raises(FileExistsError, match="not written by daskclust"):
        write_answers(file, LABELS, UTM, ABOUT)
    with pytest.raises(FileExistsError):
        read_answers(file)


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
