"""Held-out labels of a fit: complete fields, complete groups, and their output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import small_scene, write_labels
from numpy.testing import assert_array_equal
from scipy import ndimage
from sklearn.metrics import cohen_kappa_score

import daskclust
from daskclust.app import cli
from daskclust.app.commands._fit_request import fields_of, hold_out
from daskclust.metrics import wilson_interval

pytestmark = pytest.mark.usefixtures("few_trees")


def test_fields_are_touching_pixels_of_one_class() -> None:
    rng = np.random.default_rng(0)
    image = np.where(rng.random((30, 40)) < 0.5, rng.integers(0, 3, (30, 40)), -1)
    lines, columns = np.nonzero(image >= 0)
    found = fields_of(lines, columns, image[lines, columns])
    wanted = np.zeros(image.shape, int)
    for label in range(3):
        part, _ = ndimage.label(image == label, structure=np.ones((3, 3)))
        wanted[part > 0] = part[part > 0] + wanted.max()
    pairs = set(zip(found.tolist(), wanted[lines, columns].tolist(), strict=True))
    assert len(pairs) == len(np.unique(found)) == len(np.unique(wanted[lines, columns]))


@pytest.mark.parametrize("seed", range(3))
def test_groups_stay_whole_and_classes_stay(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 30, 400)
    labels = np.array(["a", "b", "c"])[groups % 3]
    rows = np.sort(rng.choice(10_000, 400, replace=False))
    kept = hold_out(rows, labels, groups, 0.3, unit="fields", seed=seed)
    held = np.isin(rows, kept.rows)
    assert not np.intersect1d(groups[held], groups[~held]).size
    assert_array_equal(np.sort(np.concatenate([kept.rows, kept.y[0]])), rows)
    for label in "abc":
        own = np.unique(groups[labels == label])
        assert len(np.unique(groups[held & (labels == label)])) == round(0.3 * len(own))
    assert kept.n_held_out == len(np.unique(groups[held]))


def test_what_cannot_be_kept_apart() -> None:
    labels = np.array(["a", "b"])
    with pytest.raises(ValueError, match="requires a class with labels in at least two"):
        hold_out(np.arange(2), labels, np.arange(2), 0.5, unit="fields", seed=0)
    # Either group goes with both classes, and takes the other along where it is drawn for one.
    labels = np.array(["a", "a", "b", "b", "b"])
    groups = np.array([0, 1, 0, 1, 1])
    found = []
    for seed in range(9):
        try:
            hold_out(np.arange(5), labels, groups, 0.5, unit="groups of id", seed=seed)
        except ValueError as error:
            found.append(str(error))
    assert found
    assert all(
        "must leave a label of each class for the fit, got none of 'a'" in text for text in found
    )


def test_a_scene_and_its_baselines(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    truth = small_scene(tmp_path)
    cells = (np.arange(40)[:, None] // 4 + np.arange(50) // 4) % 2 == 0
    cells &= (np.arange(40)[:, None] % 4 < 3) & (np.arange(50) % 4 < 3)
    write_labels(tmp_path / "few.zarr", np.where(cells, truth, -1))
    words = ["fit", "scene.zarr", "--variable", "cube", "--estimator", "label-spreading"]
    words += ["--labels", "few.zarr", "--hold-out", "0.3", "--baseline", "--model", "m.zarr"]
    assert cli.main([*words, "--report", "r.html", "--json", "--scheduler", address]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)["held_out"]
    cube = daskclust.open_cube("scene.zarr", variable="cube")
    rows, labels = cube.rows_of("few.zarr")
    places = np.asarray(cube.to_map(np.arange(cube.n_valid)))
    where = {int(row): at for at, row in np.ndenumerate(places) if row >= 0}
    at = np.array([where[int(row)] for row in rows])
    apart = hold_out(rows, labels, fields_of(*at.T, labels), 0.3, unit="fields", seed=0)
    assert found["rows"] == len(apart.rows)
    assert found["groups_held_out"] == apart.n_held_out
    model = daskclust.load("m.zarr")
    guess = np.asarray(model.predict(cube))[apart.rows]
    assert found["accuracy"] == (guess == apart.labels).mean()
    np.testing.assert_allclose(found["kappa"], cohen_kappa_score(apart.labels, guess))
    X = cube.samples.compute()
    x, z = X[apart.y[0]], X[apart.rows]
    scaled = [(part - x.mean(axis=0)) / x.std(axis=0) for part in (x, z)]
    near = ((scaled[1][:, None] - scaled[0][None]) ** 2).sum(axis=2).argmin(axis=1)
    share = (apart.y[1][near] == apart.labels).mean()
    assert found["baselines"]["1-NN, standardized"] == pytest.approx(share, abs=1 / len(z))
    # Fields are drawn, not their pixels.
    right = guess == apart.labels
    shares = []
    for seed in range(400):
        some = np.random.default_rng(seed).choice(np.unique(apart.groups), apart.n_held_out)
        of_some = [right[apart.groups == group] for group in some]
        shares.append(np.concatenate(of_some).mean())
    assert found["independent_units"] == apart.n_held_out
    if right.all():
        low = wilson_interval(apart.n_held_out, apart.n_held_out)[0]
        np.testing.assert_allclose(found["accuracy_interval"], [low, 1.0])
    else:
        want = np.quantile(shares, [0.025, 0.975])
        np.testing.assert_allclose(found["accuracy_interval"], want, atol=0.01)
    page = (tmp_path / "r.html").read_text()
    assert f"{found['accuracy']:.3f} (" in page
    assert f"{apart.n_held_out} of {apart.n_groups} fields with {len(apart.rows):,} labels" in page
    assert "Agreement with labels" not in page
    words = ["fit", "scene.zarr", "--n-clusters", "3", "--hold-out", "0.3", "--model", "x"]
    assert cli.main(words) == 2


@pytest.mark.filterwarnings("ignore:The accuracy is based on:daskclust.exceptions.DaskclustWarning")
def test_groups_of_a_table(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    site = rng.integers(0, 12, 240)
    kind = np.where(rng.random(240) < 0.9, site % 3, 0)
    table = pandas.DataFrame({"a": 5.0 * kind + rng.normal(size=240), "b": rng.normal(size=240)})
    table["site"], table["kind"] = site, np.array(["oak", "ash", "elm"])[kind]
    table.loc[::7, "kind"] = None
    table.to_parquet("t.parquet")
    words = ["fit", "t.parquet", "--estimator", "semisupervisedkmeans", "--n-clusters", "3"]
    words += ["--label-column", "kind", "--groups", "site", "--hold-out", "0.25", "--output", "o"]
    assert cli.main([*words, "--json", "--scheduler", address]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["columns"] == ["a", "b"]
    found = found["held_out"]
    labels = table.kind.dropna()
    rows = labels.index.to_numpy()
    texts = labels.to_numpy().astype(str)
    apart = hold_out(rows, texts, site[rows], 0.25, unit="groups of site", seed=0)
    guess = pandas.read_parquet("o").label.to_numpy().astype(str)
    assert found["rows"] == len(apart.rows)
    assert found["accuracy"] == (guess[apart.rows] == apart.labels).mean()
    for item in found["by_class"]:
        mine = apart.labels == item["class"]
        assert item["producers"] == (guess[apart.rows] == item["class"])[mine].mean()
