"""What ``daskclust inspect`` says of files that are no cubes, and of how much is stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daskclust import open_cube
from daskclust.app import cli

rasterio = pytest.importorskip("rasterio", reason="needs the extra `raster`")
pytest.importorskip("rioxarray", reason="needs the extra `raster`")

from rasterio.transform import from_origin  # noqa: E402

VALUES = np.arange(3 * 20 * 30, dtype="int16").reshape(3, 20, 30)


def scene(path: Path, driver: str) -> Path:
    place = {"crs": "EPSG:32632", "transform": from_origin(600_000, 5_200_000, 30, 30)}
    sizes = {"count": 3, "height": 20, "width": 30, "dtype": "int16"}
    with rasterio.open(path, "w", driver=driver, **sizes, **place) as file:
        file.write(VALUES)
    return path


def test_a_label_map_is_one_whatever_its_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cube = open_cube(scene(tmp_path / "s.tif", "GTiff"))
    labels = np.arange(cube.n_valid) % 2
    for name in ("m.tif", "m.zarr"):
        cube.write_labels(labels, tmp_path / name, class_names=["suhkrupeet õ", "wheat"])
        assert cli.main(["inspect", str(tmp_path / name), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["kind"], found["shape"]) == ("label map", [20, 30])
        assert found["classes"] == ["suhkrupeet õ", "wheat"]
        assert cli.main(["inspect", str(tmp_path / name)]) == 0
        text = capsys.readouterr().out
        assert text.startswith("Label map\n")
        assert "crs: WGS 84 / UTM zone 32N (EPSG:32632)\n" in text
        assert 'classes: ["suhkrupeet õ", "wheat"]\n' in text
    # Any other GeoTIFF is a cube.
    assert cli.main(["inspect", str(tmp_path / "s.tif")]) == 0
    text = capsys.readouterr().out
    assert text.startswith("Cube ")
    assert "\nPlace     WGS 84 / UTM zone 32N (EPSG:32632)\n" in text


def test_coordinates_are_no_coordinate_system(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    xarray = pytest.importorskip("xarray")
    places = {"y": np.arange(20) * -30.0, "x": np.arange(30) * 30.0}
    array = xarray.DataArray(VALUES, dims=("band", "y", "x"), coords=places, name="scene")
    array.to_dataset().to_zarr(tmp_path / "s.zarr", consolidated=False)
    assert cli.main(["inspect", str(tmp_path / "s.zarr")]) == 0
    assert "\nPlace     coordinates without a coordinate system\n" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["e.hdr", "e.img"])
def test_the_stored_size_of_envi_is_that_of_the_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    scene(tmp_path / "e.img", "ENVI")
    assert cli.main(["inspect", str(tmp_path / name), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bytes_stored"] == VALUES.nbytes


def test_json_is_json_whatever_the_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_json(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    def found_in(*words: str) -> dict[str, Any]:
        assert cli.main(["inspect", *words, "--json"]) == 0
        return dict(json.loads(capsys.readouterr().out, parse_constant=no_json))

    monkeypatch.chdir(tmp_path)
    scene(Path("s.tif"), "GTiff")
    with (
        rasterio.open("s.tif") as whole,
        rasterio.open(
            "f.tif", "w", **{**whole.profile, "dtype": "float32", "nodata": -np.inf}
        ) as f,
    ):
        f.write(VALUES.astype("float32"))
    assert found_in("f.tif")["nodata"] == ["-Infinity"]
    assert found_in("f.tif", "--nodata", "nan", "--nodata", "7")["nodata"] in (
        [None],
        [7],
        [7, None],
    )
    job = {"daskclust_job": {"mark": "1", "worst": float("inf")}}
    cube = open_cube("s.tif")
    cube.write_labels(np.zeros(cube.n_valid, int), "m.tif", attributes=job)
    with rasterio.open("m.tif") as file:
        said = json.loads(file.tags()["daskclust_job"], parse_constant=no_json)
    assert said["worst"] == "Infinity"


def vector(path: Path, *items: tuple[str | None, tuple[float, float, float, float]]) -> Path:
    """Write boxes (west, south, east, north in UTM 32) with a class as GeoPackage or GeoJSON."""
    pyogrio = pytest.importorskip("pyogrio", reason="needs the extra `raster`")
    shapely = pytest.importorskip("shapely", reason="needs the extra `raster`")
    pyogrio.raw.write(
        path,
        shapely.to_wkb([shapely.box(*box) for _, box in items]),
        [np.array([name for name, _ in items], object), np.arange(len(items))],
        ["Klasse", "id"],
        geometry_type="Polygon",
        crs="EPSG:32632",
    )
    return path


def test_a_vector_file_is_described(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inside, beyond = (
        (600_000, 5_199_700, 600_300, 5_200_000),
        (599_000, 5_199_700, 600_500, 5_199_900),
    )
    path = vector(
        tmp_path / "fields.gpkg",
        ("Grünland", inside),
        ("Grunland", beyond),
        ("Mais", (0.0, 0.0, 100.0, 100.0)),
        (None, inside),
    )
    scene(tmp_path / "s.tif", "GTiff")
    arguments = ["inspect", str(path), "--scene", str(tmp_path / "s.tif")]
    assert cli.main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["features"]) == ("vector file", 4)
    assert found["geometries"] == {"polygon": 4}
    assert found["class_column"] == "Klasse"
    assert found["crs"] == "WGS 84 / UTM zone 32N (EPSG:32632)"
    assert found["scene"] == {"inside": 2, "partly": 1, "outside": 1}
    classes = {item["name"]: item for item in found["classes"]}
    assert {name: item["features"] for name, item in classes.items()} == {
        "Grunland": 1,
        "Grünland": 1,
        "Mais": 1,
    }
    # On the ellipsoid: near the meridian in the middle, the map is 0.9996 of it.
    assert classes["Grünland"]["square_meters"] == pytest.approx(90_000 / 0.9997**2, rel=2e-4)
    assert len(found["advice"]) == 2
    assert cli.main(arguments) == 0
    text = capsys.readouterr().out
    assert "Features  4 (4 polygon), " in text
    assert "Classes   3, in the column Klasse\n" in text
    assert "Scene     2 features inside, 1 partly, 1 outside\n" in text
    assert "'Grunland' and 'Grünland'" in text
    # Without a scene, too.
    assert cli.main(["inspect", str(path)]) == 0
    assert "Scene" not in capsys.readouterr().out


def test_what_a_vector_file_lacks_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = vector(tmp_path / "f.gpkg", ("a", (0.0, 0.0, 100.0, 100.0)))
    scene(tmp_path / "s.tif", "GTiff")
    assert cli.main(["inspect", str(path), "--scene", str(tmp_path / "s.tif")]) == 0
    assert "All features are outside the scene" in capsys.readouterr().out
    assert cli.main(["inspect", str(path), "--class-column", "crop"]) == 1
    assert "has no column 'crop'; it has ['Klasse', 'id']" in capsys.readouterr().err
    assert cli.main(["inspect", str(tmp_path / "s.tif"), "--scene", str(path)]) == 1
    assert "--scene requires a vector file" in capsys.readouterr().err
