"""Commands on a mosaic: tiles in two UTM zones instead of one cube."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import daskclust
from daskclust.app import cli
from daskclust.app.commands._cubes import tiles_of_pixels
from daskclust.app.commands._fit_request import hold_out
from daskclust.app.commands.requests import CubeOptions
from daskclust.app.labeling.server import Page
from daskclust.scenes.mosaic_grid import tiles_of_points
from daskclust.scenes.mosaic_tiles import open_tiles

rasterio = pytest.importorskip("rasterio", reason="needs the extra `raster`")
pytest.importorskip("rioxarray", reason="needs the extra `raster`")

from rasterio.transform import from_origin  # noqa: E402
from rasterio.warp import transform  # noqa: E402

GRID = ["--crs", "EPSG:3035", "--resolution", "100"]
LOCAL = ["--local", "1"]


def write_tile(path: Path, zone: int, left: float, top: float, seed: int) -> str:
    """Write 12 x 12 pixels of 100 m, with two bands that follow the latitude."""
    values = np.random.default_rng(seed).integers(1, 20, (2, 12, 12), np.uint16)
    values[:, :6] += 200
    with rasterio.open(
        path,
        "w",
        driver="GTiff",
        height=12,
        width=12,
        count=2,
        dtype="uint16",
        crs=f"EPSG:326{zone}",
        transform=from_origin(left, top, 100, 100),
        nodata=0,
    ) as file:
        file.write(values)
    return str(path)


@pytest.fixture
def tiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of four tiles on both sides of the border of two zones."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiles").mkdir()
    (tmp_path / "fields.geojson").write_text('{"type": "FeatureCollection", "features": []}')
    (x,), (y,) = transform("EPSG:4326", "EPSG:32632", [12.0], [46.0])
    (x2,), (y2,) = transform("EPSG:4326", "EPSG:32633", [12.0], [46.0])
    for i in range(2):
        write_tile(tmp_path / f"tiles/a{i}.tif", 32, x - 1200, y - 1200 * i, i)
        write_tile(tmp_path / f"tiles/b{i}.tif", 33, x2, y2 - 1200 * i, 2 + i)
    return sorted(f"tiles/{path.name}" for path in (tmp_path / "tiles").iterdir())


def call(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    code = cli.main([*words])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return json.loads(captured.out)


def test_fit_and_predict_write_maps_on_the_grid_of_the_mosaic(
    tiles: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    fit = ["fit", "--mosaic", *tiles, *GRID, "--n-clusters", "2", "--json"]
    plan = call(capsys, *fit, "--output", "map.tif", "--dry-run")
    cube = daskclust.open_mosaic(tiles, crs="EPSG:3035", resolution=100)
    assert plan["pixels"] == cube.shape[0] * cube.shape[1]
    outputs = ["--output", "map.tif", "--model", "m.zarr", "--report", "r.html"]
    found = call(capsys, *fit, *outputs, *LOCAL)
    assert found["configuration"]["mosaic"] is True
    assert "a0.tif and 3 more" in Path("r.html").read_text()
    predict = ["predict", "--model", "m.zarr", *GRID, "--json", *LOCAL]
    # In another order, with other blocks, and a part of the tiles.
    call(capsys, *predict, "--mosaic", *tiles[::-1], "--chunks", "7x9", "--output", "again.tif")
    call(capsys, *predict, "--mosaic", *tiles[:2], "--output", "part.tif")
    with rasterio.open("map.tif") as one, rasterio.open("again.tif") as two:
        assert tuple(one.transform) == tuple(cube.geobox.transform)
        assert one.crs.to_epsg() == 3035
        assert one.shape == cube.shape[:2]
        first = one.read(1)
        assert (first != one.nodata).sum() == cube.n_valid
        np.testing.assert_array_equal(first, two.read(1))
    part = daskclust.open_mosaic(tiles[:2], crs="EPSG:3035", resolution=100)
    with rasterio.open("part.tif") as file:
        assert tuple(file.transform) == tuple(part.geobox.transform)


@pytest.mark.slow
def test_other_commands_take_a_mosaic(tiles: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    mosaic = ["--mosaic", *tiles, *GRID]
    found = call(capsys, "inspect", *mosaic, "--json")
    assert found["kind"] == "cube"
    call(capsys, "fit", *mosaic, "--n-clusters", "2", "--model", "m.zarr", "--json", *LOCAL)
    found = call(capsys, "explain", "m.zarr", *mosaic, "--json", *LOCAL)
    assert len(found["clusters"]) == 2
    assert sorted(Path(tile["tile"]).name for tile in found["tiles"]) == [
        Path(tile).name for tile in tiles
    ]
    assert all(0 <= tile["distance"] <= 1 for tile in found["tiles"])
    cube = daskclust.open_mosaic(tiles, crs="EPSG:3035", resolution=100)
    bounds = cube.geobox.boundingbox
    region = f"--region={bounds.left},{bounds.bottom},{bounds.left + 500},{bounds.top}"
    assert call(capsys, "inspect", *mosaic, region, "--json")["dimensions"]["x"] == 5


def test_stac_items_instead_of_files(tiles: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    features = [
        {"type": "Feature", "id": tile, "assets": {"all": {"href": tile}, "other": {"href": "x"}}}
        for tile in tiles
    ]
    Path("items.json").write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    words = ["--n-clusters", "2", "--output", "map.tif", "--dry-run", "--json", *GRID]
    stac = ["fit", "--mosaic", "items.json", *words]
    plan = call(capsys, *stac, "--assets", "all")
    assert plan["pixels"] == call(capsys, "fit", "--mosaic", *tiles, *words)["pixels"]
    assert cli.main(stac) == 1
    assert "assets must name the bands of STAC items" in capsys.readouterr().err
    assert cli.main(["fit", tiles[0], "--assets", "all", *words]) == 2
    assert "--assets requires --mosaic" in capsys.readouterr().err
    options = CubeOptions(cube=("items.json",), mosaic=True, assets=("all",), overlap="first")
    cube = daskclust.open_mosaic("items.json", assets=["all"], crs="EPSG:3035", resolution=100)
    numbers = tiles_of_pixels(cube, options, np.array([0]), np.array([cube.shape[1] - 1]))
    assert tiles[numbers[0]] == "tiles/b0.tif"


def test_doctor_and_suggest_read_all_tiles(
    tiles: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    mosaic = ["--mosaic", *tiles, *GRID, "--json", *LOCAL]
    assert call(capsys, "doctor", *mosaic)["problems"] == []
    found = call(capsys, "suggest", *mosaic, "--n", "3", "--output", "q.geojson")
    assert len(found["pixels"]) == 3
    assert len(json.loads(Path("q.geojson").read_text())["features"]) == 3


@pytest.mark.slow
def test_the_page_saves_a_map_of_all_tiles(
    tiles: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(page: Page, prepare: Any) -> None:
        page.learner = prepare(page)
        for name, row, column in (("north", 0, 24), ("south", 12, 20), ("south", 7, 12)):
            page.act({"do": "label", "row": row, "column": column, "class": name})
        page._save()

    monkeypatch.setattr(Page, "run", run)
    words = ["--classes", "north,south", "--output", "map.tif", "--no-browser", *LOCAL]
    assert cli.main(["label", "--mosaic", *tiles, *GRID, *words]) == 0
    cube = daskclust.open_mosaic(tiles, crs="EPSG:3035", resolution=100)
    with rasterio.open("map.tif") as file:
        assert (file.read(1) != file.nodata).sum() == cube.n_valid


def test_a_job_file_names_the_tiles(tiles: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    job = {"mosaic": tiles, "crs": "EPSG:3035", "resolution": 100, "n-clusters": 2}
    Path("job.json").write_text(json.dumps(job))
    plan = ["--output", "map.tif", "--dry-run", "--json"]
    found = call(capsys, "fit", "--config", "job.json", *plan)
    assert found == call(capsys, "fit", "--mosaic", *tiles, *GRID, "--n-clusters", "2", *plan)
    # Tiles of the command line take the place of those of the file.
    other = call(capsys, "fit", "--config", "job.json", "--mosaic", tiles[0], *plan)
    assert other["pixels"] < found["pixels"]


@pytest.mark.filterwarnings("always::daskclust.exceptions.DaskclustWarning")
def test_damaged_tiles_are_named_or_left_out(
    tiles: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("tiles/c.tif").write_bytes(b"no image")
    words = ["fit", "--mosaic", *tiles, "tiles/c.tif", *GRID, "--n-clusters", "2"]
    plan = [*words, "--output", "map.tif", "--dry-run"]
    assert cli.main(plan) == 1
    assert "c.tif" in capsys.readouterr().err
    assert cli.main([*plan, "--skip-damaged"]) == 0
    assert "1 of 5 items are left out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (
            "fit tiles/a0.tif --crs EPSG:3035 --n-clusters 2 --output m.tif",
            2,
            "--crs requires --mosaic",
        ),
        ("inspect tiles/a0.tif --skip-damaged", 2, "--skip-damaged requires --mosaic"),
        (
            "fit tiles/a0.tif --mosaic tiles/a1.tif --output m.tif",
            2,
            "either as CUBE or after --mosaic",
        ),
        (
            "fit --mosaic tiles/a1.tif --output m.tif tiles/a0.tif",
            2,
            "either as CUBE or after --mosaic",
        ),
        ("fit --mosaic tiles/a0.tif --resolution 0 --output m.tif", 2, "is not a positive size"),
        ("fit --mosaic tiles/a0.tif --resolution x --output m.tif", 2, "is not a list of numbers"),
        ("fit --mosaic tiles/a0.tif --region 1,2,1,4 --output m.tif", 2, "LEFT < RIGHT"),
        ("fit --mosaic tiles/a0.tif --overlap all --output m.tif", 2, "invalid choice: 'all'"),
        (
            "fit --mosaic tiles/a0.tif --region 0,0,1,1 --n-clusters 2 --output m.tif",
            1,
            "must overlap with the tiles",
        ),
        (
            "fit tiles/a0.tif --hold-out-by tiles --output m.tif",
            2,
            "--hold-out-by requires held-out labels",
        ),
        (
            "fit tiles/a0.tif --estimator label-spreading --labels p.csv --hold-out 0.3 "
            "--hold-out-by tiles --output m.tif",
            2,
            "--hold-out-by tiles requires --mosaic",
        ),
        (
            "fit --mosaic tiles/a0.tif tiles/a1.tif --estimator label-spreading --labels p.csv "
            "--hold-out 0.3 --hold-out-by tiles --overlap mean --output m.tif",
            2,
            "does not support --overlap mean",
        ),
        ("explain --mosaic tiles/a0.tif tiles/a1.tif m.zarr", 2, "are required: MODEL\n"),
        ("inspect fields.geojson --crs EPSG:3035", 2, "--crs requires --mosaic"),
        ("fit t.csv --crs EPSG:3035 --output m.csv", 2, "--crs is for pixels"),
    ],
)
def test_options_that_contradict_each_other(
    tiles: list[str], capsys: pytest.CaptureFixture[str], words: str, code: int, message: str
) -> None:
    assert cli.main(words.split()) == code
    assert message in capsys.readouterr().err


def test_points_belong_to_the_first_tile_that_contains_them(tiles: list[str]) -> None:
    opened = [parts[0] for _, parts in open_tiles([*tiles, tiles[0]], None, False)]
    assert opened[0].shown.endswith("a0.tif")
    left, top = opened[0].affine @ (0, 0)
    # Two in the first tile, one in the tile below it, one that is left of both.
    x = np.array([left + 50, left + 1150, left + 50, left - 50])
    y = np.array([top - 50, top - 1150, top - 1250, top - 1450])
    assert tiles_of_points(opened, x, y, "EPSG:32632").tolist() == [0, 0, 1, 1]


def test_pixels_of_several_tiles_belong_to_the_tile_that_overlap_names(tiles: list[str]) -> None:
    with rasterio.open(tiles[0]) as file:
        left, top = file.transform @ (0, 0)
    names = tiles[0], write_tile(Path("c.tif"), 32, left + 600, top, 5)
    cube = daskclust.open_mosaic(names)
    for overlap, first in (("first", True), ("last", False)):
        request = CubeOptions(cube=names, mosaic=True, overlap=overlap)
        # In the first tile, in both, and in the second.
        one, both, two = tiles_of_pixels(cube, request, np.full(3, 2), np.array([2, 8, 14]))
        assert one != two
        assert both == (one if first else two)


def write_points(tiles: list[str]) -> list[int]:
    """Write the labels of four points of each tile, two of each class; return their tiles."""
    lines, found = ["longitude,latitude,class"], []
    for number, name in enumerate(tiles):
        with rasterio.open(name) as file:
            for row, column in ((2, 3), (3, 8), (8, 3), (9, 8)):
                x, y = file.transform @ (column + 0.5, row + 0.5)
                (lon,), (lat,) = transform(file.crs, "EPSG:4326", [x], [y])
                lines.append(f"{lon:.9f},{lat:.9f},{'north' if row < 6 else 'south'}")
                found.append(number)
    Path("points.csv").write_text("\n".join(lines) + "\n")
    return found


@pytest.mark.filterwarnings("ignore:The accuracy is based on 2 independent units")
def test_whole_tiles_are_held_out(tiles: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    write_points(tiles)
    fit = ["fit", "--estimator", "label-spreading", "--labels", "points.csv", "--json", *GRID]
    fit += ["--mosaic", *tiles, "--hold-out", "0.5", "--hold-out-by", "tiles", *LOCAL]
    held = call(capsys, *fit)["held_out"]
    counts = held["unit"], held["groups"], held["groups_held_out"], held["rows"]
    assert counts == ("tiles", 4, 2, 8)
    assert held["accuracy"] == 1.0
    write_points(tiles[:1])
    assert cli.main(fit) == 1
    assert "needs labels in at least two tiles, got 1" in capsys.readouterr().err


def test_tiles_with_the_only_labels_of_a_class_are_not_held_out() -> None:
    labels = np.array(["a", "b", "a", "b", "a", "c"])
    tiles = np.array([0, 0, 1, 1, 2, 2])
    for seed in range(5):
        kept = hold_out(np.arange(6), labels, tiles, 0.6, unit="tiles", seed=seed)
        # Two tiles are due. Without the first two there is no b, without the last no c.
        assert kept.n_held_out == 1
        assert kept.not_held_out == ["c"]
        assert kept.rows.tolist() in ([0, 1], [2, 3])
