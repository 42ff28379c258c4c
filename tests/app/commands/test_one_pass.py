"""A command evaluates its model once per row, and reads each block once, for all outputs."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from helpers import small_scene, spread_by_less, write_labels

import daskclust
from daskclust.app import cli
from daskclust.scenes._block_tasks import CubeSource
from daskclust.semisupervised.predict import Posterior

#: Valid pixels of the scene.
_PIXELS = 1938


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count evaluated rows, and reads of blocks."""
    found: Counter[str] = Counter()
    evaluate, read = Posterior.__call__, CubeSource._stored

    def evaluated(self: Posterior, x: Any) -> Any:
        found["rows"] += len(x)
        return evaluate(self, x)

    def stored(self: CubeSource, number: int) -> Any:
        found["reads"] += 1
        return read(self, number)

    monkeypatch.setattr(Posterior, "__call__", evaluated)
    monkeypatch.setattr(CubeSource, "_stored", stored)
    return found


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str) -> list[str]:
    """Return the words of a fit, and write its scene, labels and model."""
    monkeypatch.chdir(tmp_path)
    spread_by_less(monkeypatch)
    truth = small_scene(tmp_path)
    cells = (np.arange(40)[:, None] // 4 + np.arange(50) // 4) % 2 == 0
    cells &= (np.arange(40)[:, None] % 4 < 3) & (np.arange(50) % 4 < 3)
    write_labels(tmp_path / "few.zarr", np.where(cells, truth, -1))
    words = ["scene.zarr", "--variable", "cube", "--scheduler", address, "--json"]
    fit = ["--estimator", "label-spreading", "--labels", "few.zarr", "--hold-out", "0.3"]
    assert cli.main(["fit", *words, *fit, "--model", "m.zarr"]) == 0
    return words


@pytest.mark.parametrize("ending", ["zarr", pytest.param("tif", marks=pytest.mark.slow)])
def test_all_outputs_of_a_prediction(
    scene: list[str], counts: Counter[str], capsys: pytest.CaptureFixture[str], ending: str
) -> None:
    if ending == "tif":
        rasterio = pytest.importorskip("rasterio")
    names = {name: f"{name}.{ending}" for name in ("output", "uncertainty", "score")}
    flags = [word for name, path in names.items() for word in (f"--{name}", path)]
    report = ["--report", "r.html", "--truth", "few.zarr"]
    capsys.readouterr()
    assert cli.main(["predict", *scene, "--model", "m.zarr", *flags]) == 0
    # Blocks are read to count valid pixels, for the samples, and for the masks of all maps.
    assert counts == {"rows": _PIXELS, "reads": 3 * 4}
    counts.clear()
    assert cli.main(["predict", *scene, "--model", "m.zarr", *flags, *report, "--overwrite"]) == 0
    # The profiles take the labels from the map.
    assert counts["rows"] == _PIXELS
    model, cube = daskclust.load("m.zarr"), daskclust.open_cube("scene.zarr", variable="cube")
    expected = {
        "output": cube.to_map(model.predict(cube)),
        "uncertainty": cube.to_map(model.margin(cube), fill_value=np.nan),
        "score": cube.to_map(model.score_samples(cube), fill_value=np.nan),
    }
    for name, path in names.items():
        if ending == "tif":
            with rasterio.open(path) as file:
                found = file.read(1).astype(float)
                found[file.read_masks(1) == 0] = -1 if name == "output" else np.nan
        else:
            group = zarr.open(path, mode="r")
            found = group["labels" if name == "output" else "values"][:]
        np.testing.assert_array_equal(found, np.asarray(expected[name]))


@pytest.mark.slow
def test_smoothing_and_a_report_without_a_map(
    scene: list[str], counts: Counter[str], tmp_path: Path
) -> None:
    words = ["predict", *scene, "--model", "m.zarr", "--smooth", "--min-pixels", "9"]
    words += ["--uncertainty", "u.zarr", "--report", "r.html"]
    assert cli.main(words) == 0
    assert counts["rows"] == _PIXELS


def test_held_out_rows_are_predicted_alone(
    scene: list[str], counts: Counter[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    before = {path.name for path in tmp_path.iterdir()}
    words = ["--estimator", "label-spreading", "--labels", "few.zarr", "--hold-out", "0.3"]
    capsys.readouterr()
    assert cli.main(["fit", *scene, *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert counts["rows"] == found["held_out"]["rows"] < _PIXELS / 4
    assert found["outputs"] == {}
    assert {path.name for path in tmp_path.iterdir()} == before
