"""``daskclust suggest``: the loop from questions to a map, and label sources that are joined."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from helpers import write_labels

from daskclust import open_cube
from daskclust.app import cli
from daskclust.app.labeling import report
from daskclust.scenes.questions import questions_of

pytestmark = [
    pytest.mark.filterwarnings("ignore::daskclust.exceptions.ConstraintWarning"),
    pytest.mark.usefixtures("few_trees"),
]

SHAPE = (30, 36)
NAMES = ("field", "water", "wood")


@pytest.fixture(scope="module")
def truth() -> np.ndarray:
    found = np.zeros(SHAPE, int)
    found[:, 12:] = 1
    found[15:, 20:] = 2
    return found


@pytest.fixture(scope="module")
def folder(request: Any, truth: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A scene of three classes with a corner without data; in UTM, or where a test says."""
    crs = getattr(request, "param", "EPSG:32632")
    folder = tmp_path_factory.mktemp("suggest")
    rng = np.random.default_rng(0)
    spectra = np.array([[1, 2, 3, 4], [4, 1, 3, 1], [2, 4, 1, 2]], np.float32)
    values = spectra[truth] + rng.normal(scale=0.2, size=(*SHAPE, 4)).astype(np.float32)
    values[:4, :5] = np.nan
    group = zarr.create_group(folder / "scene.zarr")
    place = {}
    if crs is not None:
        place = {"proj:code": crs, "spatial:transform": [10, 0, 6e5, 0, -10, 5e6]}
    group.create_array(
        "cube",
        data=values,
        chunks=(11, 13, 4),
        dimension_names=("y", "x", "band"),
        attributes=place,
    )
    few = np.full(SHAPE, -1, np.int16)
    few[20, 3], few[10, 30], few[28, 30] = 0, 1, 2
    write_labels(folder / "few.zarr", few)
    return folder


@pytest.fixture
def run(
    folder: Path,
    address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Any:
    monkeypatch.chdir(tmp_path)

    def call(command: str, *, cluster: bool = True) -> tuple[int, str, str]:
        words = [
            word.replace("S:", f"{folder}/scene.zarr").replace("F:", f"{folder}/few.zarr")
            for word in command.split()
        ]
        code = cli.main([*words, *(["--scheduler", address] if cluster else [])])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def answer(path: str, truth: np.ndarray, names: bool = False, leave: int = 0) -> None:
    """Fill in the classes, all but the first few."""
    place = Path(path)

    def of(item: Any) -> Any:
        code = int(truth[int(item["row"]), int(item["column"])])
        return NAMES[code] if names else code

    if place.suffix == ".csv":
        with place.open(newline="") as file:
            rows = list(csv.DictReader(file))
        for item in rows[leave:]:
            item["class"] = of(item)
        with place.open("w", newline="") as file:
            out = csv.DictWriter(file, list(rows[0]))
            out.writeheader()
            out.writerows(rows)
        return
    whole = json.loads(place.read_text())
    for feature in whole["features"][leave:]:
        feature["properties"]["class"] = of(feature["properties"])
    place.write_text(json.dumps(whole))


@pytest.mark.parametrize(
    ("folder", "one", "two"),
    [
        ("EPSG:32632", "one.csv", "two.geojson"),
        pytest.param(None, "one.geojson", "two.csv", marks=pytest.mark.slow),
    ],
    indirect=["folder"],
)
def test_the_loop(run: Any, folder: Path, truth: np.ndarray, one: str, two: str) -> None:
    code, out, err = run(f"suggest S: --n 5 --output {one} --json")
    assert code == 0, err
    first = {(item["row"], item["column"]) for item in json.loads(out)["pixels"]}
    assert len(first) == 5
    answer(one, truth, leave=1)
    code, out, err = run(
        f"suggest S: --labels {one},F: --n 6 --output {two} --report ask.html --json"
    )
    assert code == 0, err
    found = json.loads(out)
    second = {(item["row"], item["column"]) for item in found["pixels"]}
    # Neither labeled pixels nor the one left empty.
    assert len(second) == 6
    assert not second & first
    assert not second & {(20, 3), (10, 30), (28, 30)}
    assert found["labels"] == 7
    assert 0 <= found["expected"]["changed"][-1] <= 1
    page = Path("ask.html").read_text()
    assert page.count("<svg") == 3
    assert 'name="generator" content="daskclust"' in page
    answer(two, truth)
    code, out, err = run(
        f"fit S: --estimator label-spreading --labels {one},{two},F: --output map.zarr --json"
    )
    assert code == 0, err
    labels = zarr.open_group("map.zarr", mode="r")["labels"][:]
    known = labels >= 0
    assert known.sum() == truth.size - 20
    assert (labels[known] == truth[known]).mean() > 0.97
    assert json.loads(out)["agreement_with_labels"]["pixels"] == 4 + 6 + 3


@pytest.mark.parametrize("kind", [pytest.param("raster", marks=pytest.mark.slow), "polygons"])
def test_pixels_that_nobody_can_label_are_not_asked_about(
    run: Any, truth: np.ndarray, kind: str
) -> None:
    nobody = truth != 1
    if kind == "raster":
        np.save("roads.npy", nobody)
    else:
        pytest.importorskip("pyogrio")
        rings = [[0, 0, 12, 30], [20, 15, 36, 30]]
        boxes = [
            [[6e5 + 10 * x, 5e6 - 10 * y] for x, y in ((a, b), (c, b), (c, d), (a, d), (a, b))]
            for a, b, c, d in rings
        ]
        features = [
            {
                "type": "Feature",
                "properties": {},
                "geometry": {"type": "Polygon", "coordinates": [box]},
            }
            for box in boxes
        ]
        system = {"type": "name", "properties": {"name": "urn:ogc:def:crs:EPSG::32632"}}
        whole = {"type": "FeatureCollection", "crs": system, "features": features}
        Path("roads.geojson").write_text(json.dumps(whole))
    path = "roads.npy" if kind == "raster" else "roads.geojson"
    for labels in ("", "--labels F:"):
        code, out, err = run(f"suggest S: --exclude {path} --n 30 {labels} --output q.csv --json")
        assert code == 0, err
        pixels = [(item["row"], item["column"]) for item in json.loads(out)["pixels"]]
        Path("q.csv").unlink()
        assert len(pixels) == 30
        assert not nobody[tuple(np.transpose(pixels))].any()
    assert "--exclude 'q.csv'" not in err
    code, _, err = run("suggest S: --exclude none.npy --output q.csv", cluster=False)
    assert code == 1
    assert "none.npy" in err


def test_a_saved_model_asks_too(run: Any, truth: np.ndarray) -> None:
    assert run("suggest S: --n 8 --output one.geojson")[0] == 0
    answer("one.geojson", truth, names=True)
    code, _, err = run(
        "fit S: --estimator label-spreading --labels one.geojson --model m.zarr --output l.zarr"
    )
    assert code == 0, err
    code, out, err = run("suggest S: --model m.zarr --labels one.geojson --n 3 --output t.csv")
    assert code == 0, err
    assert "8 labels so far" in out
    assert zarr.open_group("l.zarr", mode="r")["labels"].attrs["flag_meanings"] == " ".join(NAMES)


@pytest.mark.parametrize("folder", ["EPSG:32632"], indirect=True)
def test_points_lie_where_the_pixels_are(run: Any, folder: Path) -> None:
    assert run("suggest S: --n 4 --output a.geojson")[0] == 0
    assert run("suggest S: --n 4 --output a.csv")[0] == 0
    whole = json.loads(Path("a.geojson").read_text())
    cube = open_cube(folder / "scene.zarr")
    image = cube.stored.values.compute()
    with Path("a.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    for i, (feature, line) in enumerate(zip(whole["features"], lines, strict=True), start=1):
        facts = feature["properties"]
        row, column = facts["row"], facts["column"]
        assert facts["order"] == i == int(line["order"])
        assert facts["class"] is None
        assert line["class"] == ""
        np.testing.assert_allclose(facts["spectrum"], image[row, column])
        np.testing.assert_allclose([float(line[f"band_{b}"]) for b in range(4)], image[row, column])
        x, y = feature["geometry"]["coordinates"]
        if "crs" in whole:
            assert whole["crs"]["properties"]["name"] == "urn:ogc:def:crs:EPSG::32632"
            assert (x, y) == (6e5 + 10 * (column + 0.5), 5e6 - 10 * (row + 0.5))
        else:
            assert (x, y) == (column + 0.5, row + 0.5)


def test_contradictions_name_the_pixel(run: Any, truth: np.ndarray) -> None:
    Path("a.csv").write_text("row,column,class\n20,3,1\n")
    for command in (
        "fit S: --estimator label-spreading --output l.zarr",
        "suggest S: --output q.csv",
    ):
        code, _, err = run(f"{command} --labels a.csv,F:")
        assert code == 1
        assert "(row 20, column 3) '1' in a.csv and '0' in" in err
    assert not Path("l.zarr").exists()
    assert not Path("q.csv").exists()


def test_names_and_codes_do_not_mix(run: Any) -> None:
    Path("a.csv").write_text("row,column,class\n20,3,wood\n")
    code, _, err = run("suggest S: --labels a.csv,F: --output q.csv")
    assert code == 1
    assert "a.csv names its classes" in err


def test_answers_are_not_overwritten(run: Any, truth: np.ndarray) -> None:
    assert run("suggest S: --n 4 --output a.geojson")[0] == 0
    code, _, err = run("suggest S: --n 4 --output a.geojson", cluster=False)
    assert code == 1
    assert "exists already" in err
    assert run("suggest S: --n 5 --output a.geojson --overwrite")[0] == 0
    answer("a.geojson", truth)
    code, _, err = run("suggest S: --output a.geojson --overwrite", cluster=False)
    assert code == 1
    assert "contains 5 answers" in err
    Path("other.csv").write_text("name,size\n")
    Path("note.csv").write_text("name,size\na,1\n")
    code, _, err = run("suggest S: --output note.csv --overwrite", cluster=False)
    assert "was not written by daskclust; " in err


@pytest.mark.slow
def test_a_command_that_ended_after_its_report_goes_on(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = report.write_questions_report

    def fail_after(*args: Any, **options: Any) -> None:
        write(*args, **options)
        raise OSError("the machine goes down")

    command = "suggest S: --n 4 --output a.csv --report r.html"
    with monkeypatch.context() as patch:
        patch.setattr(report, "write_questions_report", fail_after)
        assert run(command)[0] == 1
    assert Path("r.html").exists()
    assert not Path("a.csv").exists()
    code, _, err = run(command)
    assert code == 0, err
    assert len(Path("a.csv").read_text().splitlines()) == 5


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("suggest S: --n 4", "--output is required"),
        ("suggest S: --output a.tif", "must end in .geojson or .json or .csv"),
        ("suggest S: --n 2000 --output a.csv", "got 2000"),
        ("suggest S: --labels a.csv --output a.csv", "in the same place as --labels"),
    ],
)
def test_wrong_usage(run: Any, command: str, message: str) -> None:
    code, _, err = run(command)
    assert code in (1, 2)
    assert message in err
    assert not Path("a.csv").exists()


def test_a_dry_run_asks_nothing(run: Any) -> None:
    code, out, _ = run("suggest S: --output a.csv --dry-run --json", cluster=False)
    assert code == 0
    assert json.loads(out)["dry_run"]
    assert not Path("a.csv").exists()


@pytest.mark.filterwarnings("ignore:.* labeled pixels are left out")
def test_pixels_of_rows_are_those_of_brute_force(folder: Path) -> None:
    cube = open_cube(folder / "scene.zarr")
    numbers = np.arange(SHAPE[0] * SHAPE[1]).reshape(SHAPE)
    _, place = cube.rows_of(numbers)
    rng = np.random.default_rng(3)
    rows = rng.permutation(cube.n_valid)[:50]
    found = questions_of(cube, rows)
    np.testing.assert_array_equal(found.lines * SHAPE[1] + found.columns, place[rows])
    np.testing.assert_array_equal(found.spectra, cube.samples.compute()[rows])
    np.testing.assert_array_equal(cube.rows_of_pixels(found.lines, found.columns), np.sort(rows))
    with pytest.raises(ValueError, match="outside the image"):
        cube.rows_of_pixels(np.array([30]), np.array([0]))
    with pytest.raises(ValueError, match="must be in"):
        questions_of(cube, np.array([cube.n_valid]))
