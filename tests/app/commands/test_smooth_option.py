"""``--smooth`` and ``--min-pixels`` write the map that ``Cube.smooth`` makes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import zarr
from helpers import small_scene

import daskclust
from daskclust.app import cli
from daskclust.app.commands.console import Parser


def test_map_is_that_of_cube_smooth(
    tmp_path: Path, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    small_scene(tmp_path)
    scene, model, out = (str(tmp_path / f"{name}.zarr") for name in ("scene", "model", "map"))
    words = ["fit", scene, "--variable", "cube", "--n-clusters", "3"]
    words += ["--scheduler", address]
    words += ["--estimator", "gaussianmixture", "--model", model, "--output", out]
    report = tmp_path / "report.html"
    words += ["--json", "--report", str(report)]
    assert cli.main([*words, "--smooth", "--min-pixels", "30"]) == 0
    classes = json.loads(capsys.readouterr().out)["classes"]
    found = daskclust.load(model)
    cube = daskclust.open_cube(scene, variable="cube")
    before, proba = found.predict(cube), found.predict_proba(cube)
    expected = cube.to_map(cube.smooth(before, proba, min_pixels=30)).compute()
    assert np.array_equal(zarr.open(out, mode="r")["labels"][:], expected)
    assert not np.array_equal(expected, cube.to_map(before).compute())
    shown = cube.to_map(before).compute()
    assert [one["pixels_before_smoothing"] for one in classes] == [
        (shown == one["code"]).sum() for one in classes
    ]
    assert "pixels before smoothing" in report.read_text()
    words = ["fit", scene, "--variable", "cube", "--n-clusters", "3", "--output", out]
    assert cli.main([*words, "--smooth"]) == 2
    assert "requires an estimator with probabilities, got KMeans" in capsys.readouterr().err


def test_a_scene_behind_a_bare_smooth_is_a_scene() -> None:
    parser = Parser()
    parser.add_argument("--smooth", nargs="?", const=0.5, type=float)
    parser.add_argument("cube", nargs="*")
    for words, smooth, cube in (
        (["--smooth", "scene.tif"], 0.5, ["scene.tif"]),
        (["--smooth", "2", "scene.tif"], 2.0, ["scene.tif"]),
        (["--smooth=2", "scene.tif"], 2.0, ["scene.tif"]),
        (["scene.tif", "--smooth"], 0.5, ["scene.tif"]),
        (["scene.tif", "--smooth", "-1"], -1.0, ["scene.tif"]),
    ):
        found = parser.parse_args(words)
        assert (found.smooth, found.cube) == (smooth, cube), words
