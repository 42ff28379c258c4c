"""``daskclust rename``, and what predict and explain make of it; ``--wavelengths``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import daskclust
from daskclust.app import cli
from daskclust.app.commands._arguments import _wavelengths
from daskclust.app.report.summary import legend_of

pytestmark = pytest.mark.usefixtures("few_trees")

#: Four fields of one value each.
SCENE = np.repeat(np.repeat([[1.0, 5.0], [20.0, 40.0]], 6, axis=0), 7, axis=1)


@pytest.fixture
def run(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> tuple[int, str, str]:
        more = () if words[0] == "rename" else ("--scheduler", address)
        code = cli.main([*words, *more])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def _model(tmp_path: Path, **more: Any) -> tuple[Any, Any, dict[float, int]]:
    """Return a scene with four clusters, a saved model, and the cluster of each value."""
    image = np.stack([SCENE, SCENE + 1], axis=-1).astype(np.float32)
    array = zarr.create_array(
        str(tmp_path / "s.zarr"),
        data=image,
        chunks=(5, 7, 2),
        dimension_names=("y", "x", "band"),
    )
    array.attrs["wavelength"] = [500.0, 600.0]
    cube = daskclust.open_cube(str(tmp_path / "s.zarr"))
    model = daskclust.KMeans(4, random_state=0, **more).fit(cube)
    model.save(tmp_path / "m.zarr")
    found = cube.to_map(model.labels_).compute()
    return cube, model, {float(v): int(found[SCENE == v][0]) for v in np.unique(SCENE)}


def test_predict_and_explain_obey(run: Callable[..., Any], tmp_path: Path) -> None:
    _, _, of = _model(tmp_path)
    lines = f"old,new\n{of[1.0]},water\ncluster_{of[5.0]},water\n{of[40.0]},roof\n"
    (tmp_path / "n.csv").write_text(lines)
    code, out, err = run("rename", "m.zarr", "n.csv")
    assert code == 0, err
    assert "water (was cluster_" in out
    first = min(of[1.0], of[5.0])
    code, out, err = run("predict", "s.zarr", "--model", "m.zarr", "--output", "map.zarr", "--json")
    assert code == 0, err
    classes = {item["name"]: item for item in json.loads(out)["classes"]}
    assert set(classes) == {"water", "roof", f"cluster_{of[20.0]}"}
    assert classes["water"]["code"] == first
    assert classes["water"]["pixels"] == 84
    labels = zarr.open_group(str(tmp_path / "map.zarr"))["labels"][:]
    expected = np.select(
        [SCENE <= 5, SCENE == 20, SCENE == 40], [first, of[20.0], of[40.0]], default=-1
    )
    np.testing.assert_array_equal(labels, expected)
    code, out, err = run("explain", "m.zarr", "s.zarr", "--json")
    assert code == 0, err
    told = {item["name"]: item["size"] for item in json.loads(out)["clusters"]}
    assert told == {"water": 84, "roof": 42, str(of[20.0]): 42}
    # Once more: what is joined stays so, under its new name.
    (tmp_path / "n.csv").write_text("water,ground\nroof,ground\n")
    code, out, _ = run("rename", "m.zarr", "n.csv", "--json")
    assert code == 0
    assert len(json.loads(out)["classes"]) == 2
    legend = legend_of(daskclust.load(tmp_path / "m.zarr"))
    assert sorted(legend.names) == sorted(["ground", f"cluster_{of[20.0]}"])
    codes = np.asarray(legend.encode(np.arange(4)))
    assert len({int(codes[of[v]]) for v in (1.0, 5.0, 40.0)}) == 1


def test_clusters_of_one_class_are_told_apart(run: Callable[..., Any], tmp_path: Path) -> None:
    cube, _, _ = _model(tmp_path)
    truth = np.searchsorted([1, 5, 20, 40], SCENE).ravel()
    rows = np.asarray(cube.rows_of(np.arange(SCENE.size).reshape(SCENE.shape))[1])
    y = np.array(["a", "b", "c", "d"])[truth[rows]]
    model = daskclust.SemiSupervisedKMeans(4, random_state=0).fit(cube, (np.arange(len(y)), y))
    model.save(tmp_path / "m.zarr", overwrite=True)
    assert "Clusters of one class" not in run("explain", "m.zarr", "s.zarr")[1]
    (tmp_path / "n.csv").write_text("a,land\nb,land\n")
    assert run("rename", "m.zarr", "n.csv")[0] == 0
    code, out, err = run("explain", "m.zarr", "s.zarr", "--output", "e.html")
    assert code == 0, err
    assert "Clusters of one class are shown separately: land has 2." in out
    assert (
        "Clusters of one class are shown separately: land has 2."
        in (tmp_path / "e.html").read_text()
    )
    found = json.loads(run("explain", "m.zarr", "s.zarr", "--json")[1])["clusters"]
    assert sorted(item["class"] for item in found) == ["c", "d", "land", "land"]


def test_names_can_be_exchanged_and_smoothed(run: Callable[..., Any], tmp_path: Path) -> None:
    cube, _, _ = _model(tmp_path)
    few = np.full(SCENE.shape, -1, dtype=object)
    truth = np.array(["a", "b", "c", "d"], dtype=object)[np.searchsorted([1, 5, 20, 40], SCENE)]
    few[::3, ::3] = truth[::3, ::3]
    rows = np.flatnonzero((few != -1).ravel())
    at = cube.rows_of(np.arange(SCENE.size).reshape(SCENE.shape))
    order = np.argsort(at[1])
    model = daskclust.LabelSpreading(random_state=0, classifier=None)
    model.fit(cube, (np.asarray(at[0])[order][rows], truth.ravel()[rows].astype(str)))
    model.save(tmp_path / "l.zarr")
    (tmp_path / "n.csv").write_text("a,b\nb,a\nd,c\n")
    assert run("rename", "l.zarr", "n.csv")[0] == 0
    words = ("predict", "s.zarr", "--model", "l.zarr", "--smooth", "--min-pixels", "3")
    code, out, err = run(*words, "--output", "map.zarr", "--json")
    assert code == 0, err
    assert {item["name"]: item["pixels"] for item in json.loads(out)["classes"]} == {
        "b": 42,
        "a": 42,
        "c": 84,
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("9,water\n", "must contain lines old,new, got the names '9'"),
        ("old,new\n", "must contain lines old,new, got an empty file"),
        ("1,\n", "empty new name"),
        ("1,a\ncluster_1,b\n", "must have one line per class, got a class by its name"),
        ("1,a\n1,b\n", "got two different lines for '1'"),
        ("1,a,b\n", "must have the two fields old,new, got 3"),
    ],
)
def test_what_is_no_list_of_names(
    run: Callable[..., Any], tmp_path: Path, text: str, message: str
) -> None:
    model = daskclust.KMeans(2, random_state=0).fit(np.array([[0.0], [1.0], [9.0]]))
    model.save(tmp_path / "m.zarr")
    (tmp_path / "n.csv").write_text(text)
    code, _, err = run("rename", "m.zarr", "n.csv")
    assert code == 1
    assert message in err


def test_wavelengths(run: Callable[..., Any], tmp_path: Path) -> None:
    _model(tmp_path)
    (tmp_path / "w.txt").write_text("wavelength\n418.24 nm\n0.9 um\n")
    for given, wanted in (
        ("w.txt", [418.24, 900.0]),
        ("400-2500", [400.0, 2500.0]),
        ("400nm-800 nm", [400.0, 800.0]),
        ("0.4,0.8", [400.0, 800.0]),
    ):
        cube = daskclust.open_cube(
            str(tmp_path / "s.zarr"),
            wavelengths=_wavelengths(str(tmp_path / given) if given.endswith("txt") else given),
        )
        np.testing.assert_allclose(cube.wavelengths, wanted)
    five = daskclust.open_cube(
        np.zeros((2, 3, 5)),
        dims=("y", "x", "band"),
        wavelengths=(400, 800),
        bad_bands="500nm-500nm",
    )
    assert five.wavelengths.tolist() == [400.0, 600.0, 700.0, 800.0]
    code, out, err = run("explain", "m.zarr", "s.zarr", "--wavelengths", "490-610", "--json")
    assert code == 0, err
    assert list(json.loads(out)["clusters"][0]["features"]) == ["490 nm", "610 nm"]
    code, _, err = run("explain", "m.zarr", "s.zarr", "--wavelengths", "1,2,3")
    assert code == 1
    assert "wavelengths must be 2 positive numbers" in err
    assert run("explain", "m.zarr", "s.zarr", "--wavelengths", "none.txt")[0] == 2


def test_tables_obey(run: Callable[..., Any], tmp_path: Path) -> None:
    import pandas as pd

    table = pd.DataFrame({"a": SCENE.ravel(), "b": SCENE.ravel() + 1})
    table.to_csv(tmp_path / "t.csv", index=False)
    model = daskclust.KMeans(4, random_state=0).fit(table.to_numpy())
    model.save(tmp_path / "m.zarr")
    values = table["a"].to_numpy()
    of = {v: int(np.asarray(model.labels_)[values == v][0]) for v in np.unique(values)}
    (tmp_path / "n.csv").write_text(f"old,new\n{of[1.0]},low\n{of[5.0]},low\n{of[40.0]},high\n")
    code, _, err = run("rename", "m.zarr", "n.csv")
    assert code == 0, err
    words = ("predict", "t.csv", "--model", "m.zarr", "--output", "p.parquet", "--json")
    code, out, err = run(*words)
    assert code == 0, err
    told = {item["name"]: item["rows"] for item in json.loads(out)["classes"]}
    middle = f"cluster_{of[20.0]}"
    assert told == {"low": 84, middle: 42, "high": 42}
    written = pd.read_parquet(tmp_path / "p.parquet")["label"].astype(str)
    expected = np.select([values <= 5, values == 20, values == 40], ["low", middle, "high"], "")
    assert written.tolist() == expected.tolist()
