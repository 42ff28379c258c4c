"""The table of areas: by hand, against geodesic polygons, and from files."""

from __future__ import annotations

import csv
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr

from daskclust import open_cube
from daskclust.core.storage.atomic_write import host
from daskclust.scenes import LabelMap, area_table, open_label_map
from daskclust.scenes._georeference import Georeference

pyproj = pytest.importorskip("pyproj", reason="needs the extra `raster`")
rasterio = pytest.importorskip("rasterio", reason="needs the extra `raster`")


def placed(values: Any, crs: str, transform: tuple[float, ...], chunks: Any = None) -> LabelMap:
    place = Georeference({"crs_wkt": pyproj.CRS(crs).to_wkt(), "transform": list(transform)})
    lazy = da.from_array(np.asarray(values), chunks=chunks or np.shape(values))
    return LabelMap(lazy, position=place)


def test_areas_by_hand() -> None:
    values = np.array([[0, 0, 2], [2, -1, 0]], "int16")
    found = area_table(placed(values, "EPSG:32632", (30, 0, 6e5, 0, -30, 5.2e6), (1, 2)))
    assert [(row.code, row.pixels, row.square_meters) for row in found] == [
        (0, 3, 2700.0),
        (2, 2, 1800.0),
    ]
    assert found.unclassified == 1
    assert found[0].share == 0.6
    assert found[1].square_kilometers == 0.0018
    assert "900 m2" in found.method
    assert "EPSG:32632" in found.method


def test_feet_are_no_meters() -> None:
    feet = area_table(placed(np.zeros((2, 2), int), "EPSG:2263", (100, 0, 98e4, 0, -100, 2e5)))
    assert feet[0].square_meters == pytest.approx(4 * (100 * 1200 / 3937) ** 2, rel=1e-12)


def ring(west: float, south: float, size: float, steps: int = 200) -> tuple[Any, Any]:
    """Border of a square in degrees, with the parallels as lines of many points."""
    along = np.linspace(west, west + size, steps)
    return (
        np.concatenate([along, along[::-1]]),
        np.concatenate([np.full(steps, south), np.full(steps, south + size)]),
    )


@pytest.mark.parametrize("crs", ["EPSG:4326", "EPSG:4258", "OGC:CRS84"])
@pytest.mark.parametrize("north", [0.25, 47.5, 90.0])
def test_degrees_are_areas_on_the_ellipsoid(crs: str, north: float) -> None:
    values = np.array([[0], [1], [1]])
    found = area_table(placed(values, crs, (0.25, 0, 11, 0, -0.25, north), (2, 1)))
    geod = pyproj.CRS(crs).get_geod()
    rows = [
        abs(geod.polygon_area_perimeter(*ring(11, north - 0.25 * (k + 1), 0.25))[0])
        for k in range(3)
    ]
    assert found[0].square_meters == pytest.approx(rows[0], rel=2e-5)
    assert found[1].square_meters == pytest.approx(rows[1] + rows[2], rel=2e-5)


def test_a_turned_grid_in_degrees() -> None:
    turn = math.radians(30)
    c, s = 0.01 * math.cos(turn), 0.01 * math.sin(turn)
    found = area_table(placed(np.zeros((40, 50), int), "EPSG:4326", (c, s, 10, s, -c, 50), (7, 9)))
    corners = [(0, 0), (50, 0), (50, 40), (0, 40)]
    lon = [10 + c * col + s * row for col, row in corners]
    lat = [50 + s * col - c * row for col, row in corners]
    geod = pyproj.Geod(ellps="WGS84")
    # Straight lines in degrees, hence many points.
    fine = [
        np.concatenate([np.linspace(v[i], v[(i + 1) % 4], 500) for i in range(4)])
        for v in (lon, lat)
    ]
    assert found[0].square_meters == pytest.approx(
        abs(geod.polygon_area_perimeter(*fine)[0]), rel=1e-5
    )


def test_web_mercator_is_corrected_and_the_chunks_do_not_matter() -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(-1, 3, (60, 80))
    transform = (1000, 0, 1.2e6, 0, -1000, 8.4e6)  # about 60 degrees north
    whole = area_table(placed(values, "EPSG:3857", transform))
    cut = area_table(placed(values, "EPSG:3857", transform, (17, 31)))
    to = pyproj.Transformer.from_crs("EPSG:3857", "EPSG:4326", always_xy=True)
    row_areas = []
    for k in range(60):
        y0, y1 = 8.4e6 - 1000 * (k + 1), 8.4e6 - 1000 * k
        lon0, lat0 = to.transform(1.2e6, y0)
        lon1, lat1 = to.transform(1.2e6 + 1000, y1)
        lon = np.concatenate([np.linspace(lon0, lon1, 50), np.linspace(lon1, lon0, 50)])
        lat = np.repeat([lat0, lat1], 50)
        row_areas.append(abs(pyproj.Geod(ellps="WGS84").polygon_area_perimeter(lon, lat)[0]))
    for code in range(3):
        wanted = float(((values == code).sum(axis=1) * row_areas).sum())
        assert whole[code].square_meters == pytest.approx(wanted, rel=1e-5)
        assert cut[code].square_meters == pytest.approx(wanted, rel=1e-5)
        assert wanted < 0.3 * 1e6 * whole[code].pixels


def test_without_a_place_there_are_counts_only() -> None:
    found = area_table(np.array([[3, 3], [70_000_000_000, -1]]))
    assert [(row.code, row.pixels, row.square_meters) for row in found] == [
        (3, 2, None),
        (70_000_000_000, 1, None),
    ]
    assert "no areas: the map has no coordinate system or transform" in repr(found)
    empty = area_table(np.full((2, 2), -1))
    assert len(empty) == 0
    assert empty.unclassified == 4
    # A coordinate system without positions of pixels says nothing of their size.
    place = Georeference({"crs_wkt": pyproj.CRS("EPSG:32632").to_wkt()})
    assert area_table(LabelMap(np.zeros((2, 2), int), position=place))[0].square_meters is None


def test_errors_name_what_is_wrong() -> None:
    with pytest.raises(ValueError, match=r"must contain integer codes .* dtype float64"):
        area_table(np.zeros((2, 2)))
    place = Georeference({"crs": "EPSG:999999", "transform": [30, 0, 0, 0, -30, 0]})
    with pytest.raises(ValueError, match="does not know the coordinate system 'EPSG:999999'"):
        area_table(LabelMap(np.zeros((2, 2), int), position=place))


def written_map(path: Path) -> Any:
    values = np.arange(24, dtype="int16").reshape(4, 6, 1)
    values[0, 0] = -9999
    with rasterio.open(
        path / "scene.tif",
        "w",
        driver="GTiff",
        height=4,
        width=6,
        count=1,
        dtype="int16",
        nodata=-9999,
        crs="EPSG:32632",
        transform=rasterio.Affine(10, 0, 6e5, 0, -10, 5.2e6),
    ) as file:
        file.write(values[..., 0], 1)
    cube = open_cube(path / "scene.tif")
    return cube, np.arange(cube.n_valid) % 3


@pytest.mark.parametrize("name", ["map.zarr", "map.tif"])
def test_maps_that_were_written(name: str, tmp_path: Path) -> None:
    cube, labels = written_map(tmp_path)
    cube.write_labels(labels, tmp_path / name, n_clusters=4, class_names=["wheat", "water"])
    found = area_table(tmp_path / name)
    assert [(row.code, row.name, row.pixels, row.square_meters) for row in found] == [
        (0, "wheat", 8, 800.0),
        (1, "water", 8, 800.0),
        (2, "cluster_2", 7, 700.0),
        (3, "cluster_3", 0, 0.0),
    ]
    assert [row.color for row in found][:2] == ["#0072b2", "#e69f00"]
    assert found.unclassified == 1
    again = area_table(cube.to_xarray(labels, class_names=["wheat"]))
    assert [(row.name, row.square_meters) for row in again] == [
        ("wheat", 800.0),
        ("1", 800.0),
        ("2", 700.0),
    ]


def test_csv_and_frame(tmp_path: Path) -> None:
    cube, labels = written_map(tmp_path)
    cube.write_labels(labels, tmp_path / "m.tif", class_names=["sugar beet, early", "b", "c"])
    table = area_table(tmp_path / "m.tif")
    path = table.to_csv(tmp_path / "areas.csv")
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["name"] == "sugar beet, early"
    assert [float(row["square_meters"]) for row in rows] == [800.0, 800.0, 700.0]
    with pytest.raises(FileExistsError, match="exists already"):
        table.to_csv(path)
    # What a writer that was killed has left goes with the next one.
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left = tmp_path / f".areas.csv.{host()}-{ended.pid}-0123abcd.partial"
    left.touch()
    table.to_csv(path, overwrite=True)
    assert not left.exists()
    frame = table.to_frame()
    assert frame.loc[2, "pixels"] == 7
    assert frame.square_kilometers.sum() == pytest.approx(0.0023)


def test_a_label_map_keeps_what_it_is_told() -> None:
    stored = zarr.create_array(
        zarr.storage.MemoryStore(),
        shape=(2, 2),
        dtype="uint8",
        attributes={
            "_FillValue": 255,
            "flag_values": [1, 7],
            "flag_meanings": "wheat water",
            "flag_colors": "#FF0000 #0000ff",
        },
    )
    stored[:] = [[1, 7], [255, 3]]
    found = open_label_map(stored)
    assert found.values.compute().tolist() == [[1, 7], [-1, 3]]
    assert [(row.name, row.color) for row in area_table(found)] == [
        ("wheat", "#ff0000"),
        ("3", "#cc79a7"),
        ("water", "#0000ff"),
    ]
