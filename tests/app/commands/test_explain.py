"""``daskclust explain`` on cubes and tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import small_scene

import daskclust
from daskclust.app import cli
from daskclust.explain import profiles, rules

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")


@pytest.fixture
def explain(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> tuple[int, str, str]:
        code = cli.main(["explain", *words, "--scheduler", address])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_a_table(explain: Callable[..., Any], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(300, 3)), columns=["size", "<weight>", "age"])
    table.loc[100:, "age"] += 9
    table.to_parquet(tmp_path / "t.parquet")
    model = daskclust.KMeans(2, random_state=0).fit(table.to_numpy())
    model.save(tmp_path / "m.zarr")
    code, out, err = explain("m.zarr", "t.parquet", "--output", "e.csv", "--json")
    assert code == 0, err
    found = json.loads(out)
    expected = profiles(model, table.to_numpy())
    for at, cluster in enumerate(found["clusters"]):
        assert cluster["size"] == expected.sizes[at]
        assert cluster["what"].startswith("age")
        assert cluster["features"]["age"]["auc"] == expected.aucs[at, 2]
        assert cluster["nearest_rows"] == expected.nearest_rows[at].tolist()
    assert found["fidelity"] == 1.0
    assert found["rules"][0]["rule"].startswith("age")
    (interval,) = found["rules"][0]["intervals"]
    assert interval["feature"] == "age"
    # Exact where it is a number, and in words where it has no end.
    assert interval["low"] == "-Infinity" or interval["high"] == "Infinity"
    frame = pd.read_csv(tmp_path / "e.csv", index_col=["cluster", "feature"])
    np.testing.assert_allclose(frame["mean"], expected.means.ravel())
    code, out, err = explain("m.zarr", "t.parquet", "--output", "e.html")
    assert code == 0, err
    assert "age high" in out
    page = (tmp_path / "e.html").read_text()
    assert "&lt;weight&gt;" in page
    assert "<weight>" not in page
    # What is there stays there.
    code, _, err = explain("m.zarr", "t.parquet", "--output", "e.html")
    assert code == 1
    assert "--overwrite" in err
    assert explain("m.zarr", "t.parquet", "--output", "e.html", "--overwrite")[0] == 0
    (tmp_path / "mine.html").write_text("<p>mine")
    code, _, err = explain("m.zarr", "t.parquet", "--output", "mine.html", "--overwrite")
    assert code == 1
    assert "written by daskclust. Use" in err
    assert (tmp_path / "mine.html").read_text() == "<p>mine"


def test_codes_without_names_are_called_as_fit_calls_them(
    explain: Callable[..., Any], tmp_path: Path, address: str, capsys: Any
) -> None:
    X = np.repeat([[0.0], [9.0], [20.0]], 20, axis=0) + np.linspace(0, 1, 60)[:, None]
    codes = np.repeat([1, 7, -1], 20)
    codes[25:] = -1
    pd.DataFrame({"x": X[:, 0], "known": codes}).to_csv(tmp_path / "t.csv", index=False)
    words = ("fit", "t.csv", "--label-column", "known", "--n-clusters", "3", "--seed", "0")
    words += ("--estimator", "SemiSupervisedKMeans", "--model", "m.zarr", "--json")
    assert cli.main([*words, "--output", "l.csv", "--scheduler", address]) == 0
    fitted = capsys.readouterr().out
    code, out, err = explain("m.zarr", "t.csv", "--columns", "x", "--json")
    assert code == 0, err
    called = {each["name"].split()[0] for each in json.loads(out)["clusters"]}
    assert called == {"class_1", "class_7", "cluster_8"}
    assert '"class_1"' in fitted
    assert '"class_7"' in fitted


def test_a_scene(explain: Callable[..., Any], tmp_path: Path) -> None:
    small_scene(tmp_path)
    cube = daskclust.open_cube(tmp_path / "scene.zarr")
    model = daskclust.KMeans(3, random_state=0).fit(cube)
    model.save(tmp_path / "m.zarr")
    code, out, err = explain("m.zarr", "scene.zarr", "--output", "e.json")
    assert code == 0, err
    assert "fidelity" in out
    found = json.loads((tmp_path / "e.json").read_text())
    expected = profiles(model, cube)
    assert [c["nearest_pixels"] for c in found["clusters"]] == expected.pixels.tolist()
    assert list(found["clusters"][0]["features"]) == expected.features


def test_clusters_without_rules(explain: Callable[..., Any], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(400, 20)) * np.repeat([[0.1], [1.0]], 200, axis=0))
    table.columns = [f"c{j}" for j in range(20)]
    table.to_parquet(tmp_path / "t.parquet")
    model = daskclust.KMeans(1).fit(table.to_numpy())
    model.save(tmp_path / "one.zarr")
    why = "Rules were skipped, because they need at least 2 clusters."
    code, out, err = explain("one.zarr", "t.parquet", "--output", "e.html")
    assert code == 0, err
    assert f"Rules     {why}" in out
    assert why in (tmp_path / "e.html").read_text()
    assert json.loads(explain("one.zarr", "t.parquet", "--json")[1])["rules_left_out"] == why
    # Forty leaves leave out some of twenty clusters in noise.
    model = daskclust.KMeans(20, random_state=0).fit(table.to_numpy())
    model.save(tmp_path / "m.zarr")
    expected = rules(model, table.to_numpy())
    assert expected.without_rule
    code, out, err = explain("m.zarr", "t.parquet", "--output", "f.html")
    assert code == 0, err
    found = json.loads(explain("m.zarr", "t.parquet", "--json")[1])
    assert [tuple(each.values()) for each in found["without_rule"]] == expected.without_rule
    assert {each["cluster"] for each in found["rules"]} | {
        each["cluster"] for each in found["without_rule"]
    } == set(expected.names)
    for name, *_ in expected.without_rule:
        assert f"\n          {name}: no rule, because" in out
        assert f"<p>{name}: no rule, because" in (tmp_path / "f.html").read_text()
