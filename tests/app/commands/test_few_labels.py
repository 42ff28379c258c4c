"""`label-spreading` and `spectral` on the command line: from a label map to maps and models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray
import zarr
from helpers import small_scene, write_labels
from numpy.testing import assert_array_equal

import daskclust
from daskclust.app import cli
from daskclust.app.commands._outputs import fit_as_text
from daskclust.metrics import adjusted_rand_score

pytestmark = [
    pytest.mark.filterwarnings("ignore:No label reaches"),
    pytest.mark.filterwarnings("ignore:.* labeled pixels are left out"),
    pytest.mark.usefixtures("few_trees"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A scene, and a map of a few of its labels, with codes that are no row of numbers."""
    folder = tmp_path_factory.mktemp("few")
    codes = np.array([4, 7, 20])[np.maximum(small_scene(folder), 0)]
    few = np.full(codes.shape, -1, np.int16)
    few[::6, ::8] = codes[::6, ::8]
    write_labels(folder / "few.zarr", few)
    return folder


def run(capsys: pytest.CaptureFixture[str], address: str, *words: str) -> dict[str, Any]:
    code = cli.main([*words, "--scheduler", address, "--json"])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    found: dict[str, Any] = json.loads(captured.out)
    return found


def written(path: Path) -> np.ndarray:
    return zarr.open_group(path, mode="r")["labels"][:]


def test_a_cloudy_series_becomes_a_map(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    truth = np.repeat([[0, 1]], 10, axis=1).repeat(12, axis=0)
    season = np.sin(np.linspace(0, 3, 6))[:, None, None]
    series = season * np.where(truth, 4.0, -4.0) + rng.normal(0, 0.3, (6, 12, 20))
    clouds = rng.random(series.shape) < 0.3
    clouds[1:, 0, 0] = True
    few = np.where(np.arange(20) % 4 == 0, truth, -1)
    few[:, [0, -1]] = -1
    data = {"ndvi": (("time", "y", "x"), series), "cloud": (("time", "y", "x"), clouds)}
    for name, item in data.items():
        xarray.Dataset({name: item}).to_zarr(tmp_path / f"{name}.zarr", zarr_format=2)
    write_labels(tmp_path / "few.zarr", few)
    paths = {name: str(tmp_path / f"{name}.zarr") for name in ("ndvi", "cloud", "few", "map")}
    found = run(
        capsys,
        address,
        *("fit", paths["ndvi"], "--mask", f"{paths['cloud']}::cloud", "--labels", paths["few"]),
        *("--incomplete", "keep", "--min-observed", "0.5", "--estimator", "label-spreading"),
        *("--set", "n_prototypes=20", "--output", paths["map"]),
    )
    assert found["configuration"]["incomplete"] == "keep"
    seen = (~clouds).sum(axis=0) >= 3
    labels = written(tmp_path / "map.zarr")
    assert not seen.all()
    assert (labels[~seen] == -1).all()
    assert (labels[seen] == truth[seen]).mean() > 0.97


def test_label_spreading_gives_the_map_of_the_estimator(
    folder: Path, address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene, few = str(folder / "scene.zarr"), str(folder / "few.zarr")
    found = run(
        capsys,
        address,
        *("fit", scene, "--estimator", "label-spreading", "--labels", few, "--set", "alpha=0.8"),
        *("--output", str(tmp_path / "map.zarr"), "--model", str(tmp_path / "m.zarr")),
        *("--report", str(tmp_path / "r.html")),
    )
    assert found["configuration"]["parameters"]["alpha"] == 0.8
    assert len(found["mixing_weights"]) == 2
    assert found["left_out_log_loss"].keys() == {"spread", "classifier", "mixture"}
    assert f"Labels    {found['advice']}" in fit_as_text(found)
    assert found["advice"] in (tmp_path / "r.html").read_text()
    cube = daskclust.open_cube(scene)
    model = daskclust.LabelSpreading(alpha=0.8, random_state=0).fit(cube, cube.rows_of(few))
    labels = np.asarray(model.labels_)
    truth = cube.rows_of(zarr.open_group(scene, mode="r")["truth"][:])
    assert adjusted_rand_score(truth[1], labels[truth[0]]) > 0.9

    # Maps keep classes apart as the estimator does; which codes they carry is the writer's.
    def same(found: np.ndarray, labels: Any) -> bool:
        expected = np.asarray(cube.to_map(labels)).ravel()
        return bool(adjusted_rand_score(found.ravel(), expected) == 1.0)

    assert same(written(tmp_path / "map.zarr"), model.labels_)
    run(
        capsys,
        address,
        *("predict", scene, "--model", str(tmp_path / "m.zarr")),
        *("--output", str(tmp_path / "p.zarr"), "--chunks", "16x16"),
    )
    assert same(written(tmp_path / "p.zarr"), model.predict(cube))


@pytest.mark.parametrize("labeled", [False, True])
def test_spectral_gives_the_map_of_the_estimator(
    labeled: bool, folder: Path, address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene, few = str(folder / "scene.zarr"), str(folder / "few.zarr")
    words = ["--labels", few] if labeled else []
    found = run(
        capsys,
        address,
        *("fit", scene, "--estimator", "spectral", "--n-clusters", "3", *words),
        *("--set", "n_prototypes=60", "--set", "views=whitened"),
        *("--output", str(tmp_path / "map.zarr"), "--model", str(tmp_path / "m.zarr")),
    )
    assert found["configuration"]["parameters"]["n_prototypes"] == 60
    cube = daskclust.open_cube(scene)
    model = daskclust.SpectralClustering(3, n_prototypes=60, views="whitened", random_state=0).fit(
        cube, cube.rows_of(few) if labeled else None
    )
    assert_array_equal(written(tmp_path / "map.zarr"), np.asarray(cube.to_map(model.labels_)))
    loaded = daskclust.load(tmp_path / "m.zarr")
    assert_array_equal(loaded.predict(cube), model.labels_)


def test_label_spreading_without_labels_is_refused(
    folder: Path, address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "map.zarr"
    code = cli.main(
        [
            *("fit", str(folder / "scene.zarr"), "--estimator", "label-spreading"),
            *("--output", str(target), "--scheduler", address),
        ]
    )
    assert code != 0
    assert "label" in capsys.readouterr().err
    assert not target.exists()


def test_labels_without_a_label_end_before_the_fit(
    folder: Path, address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = daskclust.open_cube(folder / "scene.zarr").shape[:2]
    write_labels(tmp_path / "none.zarr", np.full(shape, -1, np.int16))
    words = [
        *("fit", str(folder / "scene.zarr"), "--estimator", "semisupervisedkmeans"),
        *("--n-clusters", "3", "--labels", str(tmp_path / "none.zarr")),
        *("--output", str(tmp_path / "map.zarr"), "--scheduler", address),
    ]
    assert cli.main(words) == 1
    said = capsys.readouterr().err
    assert "error: --labels must give a class to at least one pixel with data" in said
    assert "SemiSupervisedKMeans" not in said
    assert not (tmp_path / "map.zarr").exists()
