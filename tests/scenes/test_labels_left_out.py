"""Labels that no row takes are counted, with the reason, and their polygons are named."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from numpy.testing import assert_array_equal

rasterio = pytest.importorskip("rasterio", reason="needs the extra `raster`")
pytest.importorskip("pyogrio", reason="needs the extra `raster`")
from rasterio.transform import from_origin  # noqa: E402

import daskclust  # noqa: E402
from daskclust.exceptions import DaskclustWarning  # noqa: E402
from daskclust.scenes.label_images import join_labels  # noqa: E402

LEFT, TOP = 500_000, 5_100_000
#: Column, row, width and height of fields: in 6 columns and 4 rows of the corner are clouds.
FIELDS = [
    ("wheat", (0, 0, 2, 2)),  # under clouds
    ("wheat", (3, 2, 4, 4)),  # partly
    ("rye", (8, 8, 2, 2)),
    ("rye", (10, 10, 5, 5)),  # reaches beyond
    ("maize", (50, 50, 2, 2)),  # outside
    ("maize", (7.1, 1.1, 0.2, 0.2)),  # without a center
    ("maize", (6, 6, 2, 1)),  # masked
    (None, (0, 0, 1, 1)),
]


def scene(folder: Path, **options: Any) -> Any:
    values = np.random.default_rng(0).integers(1, 9, (2, 12, 12)).astype("int16")
    values[:, :4, :6] = 0
    place = {"crs": "EPSG:32633", "transform": from_origin(LEFT, TOP, 10, 10), "nodata": 0}
    shape = {"count": 2, "height": 12, "width": 12, "dtype": "int16"}
    with rasterio.open(folder / "s.tif", "w", driver="GTiff", **shape, **place) as file:
        file.write(values)
    return daskclust.open_cube(folder / "s.tif", **options)


def fields(path: Path, items: list[Any]) -> Path:
    features = []
    for name, (column, row, width, height) in items:
        x, y = [LEFT + 10 * at for at in (column, column + width)], [TOP - 10 * row, 0.0]
        y[1] = y[0] - 10 * height
        ring = [[x[i], y[j]] for i, j in ((0, 0), (1, 0), (1, 1), (0, 1), (0, 0))]
        shape = {"type": "Polygon", "coordinates": [ring]}
        features.append({"type": "Feature", "properties": {"class": name}, "geometry": shape})
    system = {"type": "name", "properties": {"name": "urn:ogc:def:crs:EPSG::32633"}}
    collection = {"type": "FeatureCollection", "crs": system, "features": features}
    path.write_text(json.dumps(collection))
    return path


def told(cube: Any, labels: Any, **options: Any) -> list[str]:
    # Filters of warnings are those of all threads.
    with dask.config.set(scheduler="sync"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DaskclustWarning)
        cube.rows_of(labels, **options)
    return [str(one.message) for one in caught if one.category is DaskclustWarning]


@pytest.mark.parametrize("chunks", [(12, 12), (5, 7)])
def test_polygons_are_named_with_the_reason(chunks: Any, tmp_path: Path) -> None:
    mask = np.zeros((12, 12), bool)
    mask[6, 6:8] = True
    cube = scene(tmp_path, mask=mask, chunks=chunks)
    path = fields(tmp_path / "f.geojson", FIELDS)
    expected = (
        "12 of 30 labeled pixels are left out: 10 have no data and 2 are masked. Of 8 features of "
        f"'{path}', without data: 0 (wheat); masked, or without data: 6 (maize); outside of the "
        "scene: 4 (maize); without the center of a pixel of their own: 5 (maize); in part masked, "
        "or without data: 1 (wheat); in part outside of the scene: 3 (rye)."
    )
    assert told(cube, path)[0] == expected
    # As the command line joins several files.
    clean = fields(tmp_path / "g.geojson", FIELDS[2:3])
    assert told(cube, clean) == []
    opened = [(str(one), cube.open_map("labels", one)) for one in (clean, path)]
    assert told(cube, join_labels(opened, cube.chunks))[0] == expected


def test_labels_of_images_and_points_are_counted(tmp_path: Path) -> None:
    cube = scene(tmp_path)
    image = np.full((12, 12), -1)
    image[2:6, 0] = 1
    with pytest.warns(DaskclustWarning, match="left out"):
        rows, _ = cube.rows_of(image)
    assert len(rows) == 2
    assert told(cube, image) == ["2 of 4 labeled pixels are left out: 2 have no data."]
    assert told(cube, np.where(image == 1, 1, 0), unlabeled=0) == told(cube, image)
    assert told(cube, np.where(cube.valid.compute(), 1, -1)) == []
    (tmp_path / "p.csv").write_text("row,column,class\n0,0,1\n9,9,1\n")
    assert told(cube, tmp_path / "p.csv") == ["1 of 2 labeled pixels are left out: 1 has no data."]
    # Also where labels are given to a fit.
    image[9, :9] = 0
    with pytest.warns(DaskclustWarning, match="2 of 13 labeled pixels are left out"):
        daskclust.LabelSpreading(random_state=0).fit(cube, image)


def test_rows_of_pixels_are_asked_for_in_silence(tmp_path: Path) -> None:
    found = scene(tmp_path).rows_of_pixels(np.array([0, 4]), np.array([0, 0]))
    assert_array_equal(found, [8 * 0 + 24 + 0])


def test_names_that_are_nearly_the_same_warn(tmp_path: Path) -> None:
    cube = scene(tmp_path)
    items = [("Grünland", (6, 0, 2, 2)), ("Grunland", (8, 8, 2, 2)), ("C3", (0, 6, 1, 1))]
    path = fields(tmp_path / "f.geojson", [*items, ("C4", (0, 8, 1, 1))])
    (said,) = told(cube, path)
    assert said.startswith("Some class names are nearly the same: 'Grunland' and 'Grünland'.")
    # Also where each file has one of them.
    files = [fields(tmp_path / f"{at}.geojson", [item]) for at, item in enumerate(items[:2])]
    opened = [(str(one), cube.open_map("labels", one)) for one in files]
    assert told(cube, join_labels(opened, cube.chunks)) == [said]
    assert told(cube, fields(tmp_path / "c.geojson", items[1:])) == []
