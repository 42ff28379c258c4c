"""``daskclust compare``: what changed from one map to another."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from helpers import small_scene
from numpy.testing import assert_array_equal

import daskclust
from daskclust.app import cli

pytest.importorskip("matplotlib")
pytest.importorskip("rasterio")


@pytest.fixture
def compare(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> tuple[int, str, str]:
        code = cli.main(["compare", *words, "--scheduler", address])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.mark.filterwarnings("ignore:.* labeled pixels are left out")
def test_two_maps(compare: Callable[..., Any], tmp_path: Path) -> None:
    truth = small_scene(tmp_path)
    cube = daskclust.open_cube("scene.zarr")
    names = {0: "<b>water", 1: "wheat", 2: "soil"}
    labels = np.maximum(truth, 0)
    cube.write_labels(cube.rows_of(labels)[1], "a.tif", class_names=names)
    later = np.where(np.arange(labels.shape[1]) < 9, 2, labels)
    later_names = {0: "soil", 1: "wheat", 2: "<b>water"}
    other = 2 - later
    cube.write_labels(cube.rows_of(other)[1], "b.zarr", class_names=later_names)
    words = ("a.tif", "b.zarr", "--output", "change.tif", "--report", "change.html")
    code, out, err = compare(*words, "--json")
    assert code == 0, err
    found = json.loads(out)
    valid = cube.valid.compute()
    assert found["compared_by"] == "name"
    assert found["pixels"] == valid.sum()
    assert found["unchanged"] == (labels == later)[valid].mean()
    for item in found["classes"]:
        assert item["first_pixels"] == (labels == item["code"])[valid].sum()
        assert item["second_pixels"] == (later == item["code"])[valid].sum()
        assert item["kept_pixels"] == ((labels == later) & (later == item["code"]))[valid].sum()
        assert item["second_code"] == 2 - item["code"]
    moves = {(item["from"], item["to"]): item["pixels"] for item in found["transitions"]}
    assert moves == {
        (names[a], "soil"): ((labels == a) & (later == 2))[valid].sum() for a in (0, 1)
    }
    written = daskclust.scenes.open_label_map("change.tif")
    changed = written.values.compute()
    assert_array_equal(changed >= 0, valid)
    assert_array_equal(changed[valid] == 0, (labels == later)[valid])
    assert set(written.names.values()) == {"unchanged", "<b>water -> soil", "wheat -> soil"}
    page = (tmp_path / "change.html").read_text()
    assert "&lt;b&gt;water" in page
    assert "<b>water" not in page
    assert f"{found['unchanged']:.1%}" in page
    # The same comparison may replace its own; another may not.
    assert compare(*words)[0] == 0
    code, out, err = compare("b.zarr", "a.tif", "--output", "change.tif")
    assert code == 1
    assert "--overwrite" in err
    code, out, err = compare("a.tif", "b.zarr", "--match", "code")
    assert code == 0, err
    assert "wheat -> <b>water" in out or "<b>water -> soil" in out
    assert "The following numbers are about the pixels in both maps" not in out
    part = np.where(np.arange(labels.shape[1]) < 5, -1, labels)
    cube.write_labels(cube.rows_of(part, unlabeled=-9)[1], "part.tif", class_names=names)
    code, out, err = compare("a.tif", "part.tif")
    assert code == 0, err
    assert "The following numbers are about the pixels in both maps" in out


def test_maps_of_one_model_are_compared_by_code(
    compare: Callable[..., Any], tmp_path: Path, address: str, capsys: Any
) -> None:
    small_scene(tmp_path)
    fit = ["fit", "scene.zarr", "--variable", "cube", "--n-clusters", "3", "--seed", "0"]
    run = ["--scheduler", address]
    assert cli.main([*fit, "--output", "a.zarr", "--model", "m.zarr", *run]) == 0
    again = ["predict", "scene.zarr", "--variable", "cube", "--model", "m.zarr"]
    assert cli.main([*again, "--output", "b.zarr", *run]) == 0
    labels = daskclust.scenes.open_label_map("a.zarr").values.compute()
    cube = daskclust.open_cube("scene.zarr", variable="cube")
    cube.write_labels((cube.rows_of(labels)[1] + 1) % 3, "c.zarr")
    capsys.readouterr()
    code, out, err = compare("a.zarr", "b.zarr")
    assert code == 0, err
    assert "Unchanged 100.0%, classes compared by code" in out
    code, out, err = compare("a.zarr", "c.zarr")
    assert code == 0, err
    assert "Unchanged 100.0%, classes compared by the pixels that classes share" in out


def test_maps_of_one_job_on_other_data_are_not_compared_by_code(
    compare: Callable[..., Any], tmp_path: Path, address: str, capsys: Any
) -> None:
    small_scene(tmp_path)
    words = ["fit", "scene.zarr", "--variable", "cube", "--n-clusters", "3", "--seed", "0"]
    for output in ("a.zarr", "b.zarr"):
        assert cli.main([*words, "--output", output, "--scheduler", address]) == 0
    capsys.readouterr()
    assert "classes compared by code" in compare("a.zarr", "b.zarr")[1]
    array = zarr.open_group("scene.zarr")["cube"]
    array[:] = 2 * array[:]
    assert cli.main([*words, "--output", "c.zarr", "--scheduler", address]) == 0
    capsys.readouterr()
    code, out, err = compare("a.zarr", "c.zarr")
    assert code == 0, err
    assert "classes compared by the pixels that classes share" in out


def test_tables_are_refused(compare: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("label\n1\n")
    (tmp_path / "b.parquet").mkdir()
    for first, second in (("a.csv", "b.parquet"), ("b.parquet", "a.csv")):
        code, _, err = compare(first, second)
        assert code == 2
        assert f"{first!r} must be a label map" in err
        assert "use predict --truth COLUMN" in err
