"""Classes from labels to maps, models, reports and predictions, and how sure all that is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from helpers import small_scene, write_labels
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import cohen_kappa_score

import daskclust
from daskclust.app import cli
from daskclust.app.commands._outputs import add_classes, fit_as_text, margin_kind, margins
from daskclust.app.report.summary import legend_of
from daskclust.colors import Legend
from daskclust.core.persistence.mixin import merge_classes

pytestmark = pytest.mark.usefixtures("few_trees")

#: Classes as people have them: no ranks, and names with blanks.
CODES, NAMES = (3, 11, 12), ("winter wheat", "maize", "open water")
COLORS = {3: "#112233", 11: "#445566", 12: "#778899"}
Result = tuple[int, dict[str, Any], str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classes")
    truth = np.append(CODES, -1)[small_scene(folder)].astype(np.int16)
    few = np.where((np.arange(50) % 7 == 0) & (np.arange(40)[:, None] % 5 == 0), truth, -1)
    words = " ".join(name.replace(" ", "_") for name in NAMES)
    said = {"_FillValue": -1, "flag_values": list(CODES), "flag_meanings": words}
    names = {str(k): name for k, name in zip(CODES, NAMES, strict=True)}
    colors = " ".join(COLORS.values())
    write_labels(folder / "few.zarr", few, **said, class_names=names, flag_colors=colors)
    write_labels(folder / "truth.zarr", truth, **said)
    return folder


@pytest.fixture
def run(
    folder: Path,
    address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., Result]:
    monkeypatch.chdir(tmp_path)

    def call(command: str, *words: str) -> Result:
        scene = str(folder / "scene.zarr")
        code = cli.main([command, scene, *words, "--scheduler", address, "--json"])
        captured = capsys.readouterr()
        return code, json.loads(captured.out or "{}"), captured.err

    return call


def image_in(path: Path, name: str = "labels") -> np.ndarray:
    return zarr.open_group(path, mode="r")[name][:]


def check_map(path: Path) -> np.ndarray:
    """Check what a map says of its classes, and return its values."""
    array = zarr.open_group(path, mode="r")["labels"]
    assert array.attrs["flag_values"] == list(CODES)
    assert array.attrs["flag_meanings"] == "winter_wheat maize open_water"
    assert list(array.attrs["class_names"].values()) == list(NAMES)
    assert array.attrs["flag_colors"].split() == list(COLORS.values())
    values = array[:]
    assert set(np.unique(values)) <= {-1, *CODES}
    return values


@pytest.mark.parametrize(
    "estimator",
    [
        ("label-spreading", "--set", "n_prototypes=30"),
        ("semisupervisedkmeans", "--n-clusters", "6", "--set", "clusters_per_class=2"),
    ],
)
def test_classes_keep_codes_names_and_colors(
    run: Callable[..., Result], folder: Path, tmp_path: Path, estimator: tuple[str, ...]
) -> None:
    code, found, err = run(
        *("fit", "--estimator", *estimator, "--labels", str(folder / "few.zarr")),
        *("--truth", str(folder / "truth.zarr"), "--output", "l.zarr", "--model", "m.zarr"),
        *("--uncertainty", "u.zarr", "--report", "r.html"),
    )
    assert code == 0, err
    values = check_map(tmp_path / "l.zarr")
    assert [item["name"] for item in found["classes"]] == list(NAMES)
    assert [item["code"] for item in found["classes"]] == list(CODES)
    assert found["sizes"] == [int((values == k).sum()) for k in CODES]
    scores = found["agreement_with_truth"]
    assert scores["cluster_names"] == list(NAMES)
    assert scores["accuracy"] > 0.5
    # By code, not by luck: the diagonal of the confusion is where it should be.
    assert np.trace(scores["counts"]) == pytest.approx(scores["accuracy"] * scores["pixels"])
    page = (tmp_path / "r.html").read_text()
    assert "winter wheat" in page
    assert "Uncertainty" in page
    code, again, err = run(
        *("predict", "--model", "m.zarr", "--output", "p.zarr", "--uncertainty", "v.zarr")
    )
    assert code == 0, err
    predicted = check_map(tmp_path / "p.zarr")
    assert again["classes"][0]["name"] == "winter wheat"
    # Labeled pixels may differ: a fit keeps what it was told.
    few = image_in(folder / "few.zarr", "classes")
    assert_array_equal(predicted[few < 0], values[few < 0])
    fitted, margin = (image_in(tmp_path / name, "values") for name in ("u.zarr", "v.zarr"))
    assert_array_equal(fitted, margin)
    assert_array_equal(np.isnan(margin), values == -1)
    assert np.nanmin(margin) >= 0
    assert np.nanmax(margin) <= 1


def test_prediction_is_judged_scored_and_reported(
    run: Callable[..., Result], folder: Path, tmp_path: Path
) -> None:
    truth = str(folder / "truth.zarr")
    code, fitted, err = run(
        *("fit", "--estimator", "label-spreading", "--labels", str(folder / "few.zarr")),
        *("--model", "m.zarr", "--score", "fs.zarr"),
    )
    assert code == 0, err
    assert fitted["outputs"] == {"model": "m.zarr", "score": "fs.zarr"}
    code, found, err = run(
        *("predict", "--model", "m.zarr", "--truth", truth, "--report", "p.html"),
        *("--score", "s.zarr", "--output", "l.zarr"),
    )
    assert code == 0, err
    known, values = image_in(folder / "truth.zarr", "classes"), image_in(tmp_path / "l.zarr")
    both = (known >= 0) & (values >= 0)
    # Every figure again, in a few lines.
    scores = found["agreement_with_truth"]
    assert scores["accuracy"] == np.mean(known[both] == values[both])
    assert scores["kappa"] == pytest.approx(cohen_kappa_score(known[both], values[both]))
    low, high = scores["accuracy_interval"]
    assert low < scores["accuracy"] < high
    for item, code_ in zip(scores["by_class"], CODES, strict=True):
        right = np.sum((known == code_) & (values == code_))
        assert item["producers"] == right / np.sum(both & (known == code_))
        assert item["users"] == right / np.sum(both & (values == code_))
    page = (tmp_path / "p.html").read_text()
    assert "producer" in page
    assert f"{scores['by_class'][1]['users']:.3f}" in page
    score = image_in(tmp_path / "s.zarr", "values")
    assert_array_equal(score, image_in(tmp_path / "fs.zarr", "values"))
    assert_array_equal(np.isnan(score), values == -1)
    model = daskclust.load(tmp_path / "m.zarr")
    cube = daskclust.open_cube(folder / "scene.zarr")
    # Rows go block by block.
    rows = np.sort(model.score_samples(cube).compute())
    assert_allclose(np.sort(score[values >= 0]), rows, rtol=1e-5, atol=1e-5)
    # Nothing is written, but told.
    code, told, err = run("predict", "--model", "m.zarr", "--truth", truth)
    assert code == 0, err
    assert told["agreement_with_truth"] == scores
    assert told["outputs"] == {}


def test_a_truth_that_was_told_is_no_test(
    run: Callable[..., Result], folder: Path, tmp_path: Path
) -> None:
    few = str(folder / "few.zarr")
    code, found, err = run(
        *("fit", "--estimator", "semisupervisedkmeans", "--n-clusters", "3"),
        *("--labels", few, "--truth", few, "--model", "m.zarr", "--report", "r.html"),
    )
    assert code == 0, err
    assert "agreement_with_truth" not in found
    why = "the fit used the labels of all pixels of known class"
    assert found["not_compared"] == {"truth": why}
    assert f"Truth     not compared: {why}" in fit_as_text(found)
    assert f"<p>Not compared: {why}.</p>" in (tmp_path / "r.html").read_text()
    # Part of the truth is a test.
    truth = str(folder / "truth.zarr")
    code, found, err = run(
        *("fit", "--estimator", "semisupervisedkmeans", "--n-clusters", "3"),
        *("--labels", few, "--truth", truth, "--model", "n.zarr"),
    )
    assert code == 0, err
    assert "not_compared" not in found
    said = next(line for line in fit_as_text(found) if line.startswith("Truth"))
    assert said.endswith("pixels not used in the fit")


@pytest.mark.slow
def test_scales_are_taken_along(run: Callable[..., Result], tmp_path: Path) -> None:
    for scale in ("angle", "whitened", "standard"):
        name = f"{scale}.zarr"
        code, _, err = run(
            *("fit", "--n-clusters", "3", "--scale", scale, "--output", name),
            *("--model", f"m-{name}"),
        )
        assert code == 0, err
        code, _, err = run("predict", "--model", f"m-{name}", "--output", f"p-{name}")
        assert code == 0, err
        assert_array_equal(image_in(tmp_path / name), image_in(tmp_path / f"p-{name}"))


def test_uncertainty_is_checked_as_the_other_outputs(
    run: Callable[..., Result], tmp_path: Path
) -> None:
    words = ("fit", "--n-clusters", "3", "--uncertainty")
    code, _, err = run(*words, "m.zarr", "--model", "m.zarr")
    assert code == 1
    assert "same place" in err
    zarr.create_group(tmp_path / "precious.zarr")
    code, _, err = run(*words, "precious.zarr", "--overwrite")
    assert code == 1
    assert "was not written by daskclust" in err
    code, found, err = run(*words, "u.zarr")
    assert code == 0, err
    assert found["outputs"] == {"uncertainty": "u.zarr"}
    # Its own output of the same job.
    assert run(*words, "u.zarr")[0] == 0


def test_margins_by_hand() -> None:
    x = np.array([[0.0], [1.0], [4.0], [5.0]])
    model = daskclust.KMeans(2, init=np.array([[0.5], [4.5]])).fit(x)
    found = margins(model, da.from_array(np.array([[0.5], [2.5], [1.5]]), chunks=2)).compute()
    assert_allclose(found, [1.0, 0.0, 1 - 1 / 3])
    mixture = daskclust.GaussianMixture(2, random_state=0).fit(x)
    shares = np.sort(mixture.predict_proba(x), axis=1)
    lazy = margins(mixture, da.from_array(x, chunks=3)).compute()
    assert_allclose(lazy, shares[:, 1] - shares[:, 0])
    # Two clusters of one class are no rivals.
    seeded = daskclust.SemiSupervisedKMeans(4, clusters_per_class=2, random_state=0)
    seeded.fit(np.array([[0.0], [2], [10], [12]]), np.array([0, 0, 1, 1]))
    assert_allclose(margins(seeded, da.from_array([[1.0]], chunks=1)).compute(), [1 - 1 / 9])
    one = daskclust.KMeans(1).fit(x)
    assert margins(one, da.from_array(x, chunks=2)).compute().tolist() == [1.0] * 4
    assert margin_kind(daskclust.SpectralClustering()) is None
    assert margin_kind(daskclust.PCKID()) is None
    assert "distance" in str(margin_kind(daskclust.PCSKMeans()))


@pytest.mark.slow
def test_a_map_with_two_classes_exchanged_is_not_called_right(
    run: Callable[..., Result], folder: Path, tmp_path: Path
) -> None:
    exchanged = {3: 11, 11: 3, 12: 12, -1: -1}
    truth = image_in(folder / "truth.zarr", "classes")
    wrong = np.vectorize(exchanged.get)(truth).astype(np.int16)
    names = {"3": NAMES[1], "11": NAMES[0], "12": NAMES[2]}
    said = {"_FillValue": -1, "flag_values": list(CODES)}
    meanings = " ".join(name.replace(" ", "_") for name in NAMES)
    # The same codes, other pixels; and the same pixels, other codes.
    write_labels(tmp_path / "wrong.zarr", wrong, **said, flag_meanings=meanings,
                 class_names=dict(zip(map(str, CODES), NAMES, strict=True)))  # fmt: skip
    write_labels(tmp_path / "coded.zarr", wrong, **said, class_names=names)
    words = ("--estimator", "semisupervisedkmeans", "--n-clusters", "3", "--model", "m.zarr")
    few = ("--labels", str(folder / "few.zarr"), "--overwrite", "--report", "r.html")
    found = {}
    for name in ("wrong", "coded"):
        code, result, err = run("fit", *words, *few, "--truth", str(tmp_path / f"{name}.zarr"))
        assert code == 0, err
        found[name] = result["agreement_with_truth"]
        assert found[name]["compared_by"] == "name"
        assert "Accuracy, classes compared by name" in (tmp_path / "r.html").read_text()
    # The third class, nearly half of the pixels, is where it was.
    assert found["wrong"]["accuracy"] < 0.5 < 0.8 < found["coded"]["accuracy"]
    truth_of = str(tmp_path / "wrong.zarr")
    code, result, err = run("predict", "--model", "m.zarr", "--truth", truth_of)
    assert code == 0, err
    assert result["agreement_with_truth"]["accuracy"] < 0.5
    # Names are those of the labels in Python, too.
    model = daskclust.load(tmp_path / "m.zarr")
    assert legend_of(model).names == NAMES


def test_the_names_of_text_labels_are_the_classes_of_the_model(
    run: Callable[..., Result], folder: Path, tmp_path: Path
) -> None:
    pytest.importorskip("pandas", reason="needs the extra `raster`")
    truth = image_in(folder / "truth.zarr", "classes")
    rows, columns = np.nonzero(truth >= 0)
    named = dict(zip(CODES, ("low vegetation", "bare soil", "water"), strict=True))
    lines = [
        f"{r},{c},{named[truth[r, c]]}"
        for r, c in zip(rows[::40].tolist(), columns[::40].tolist(), strict=True)
    ]
    (tmp_path / "few.csv").write_text("row,column,class\n" + "\n".join(lines) + "\n")
    code, found, err = run(
        *("fit", "--estimator", "label-spreading", "--set", "n_prototypes=30"),
        *("--labels", "few.csv", "--output", "l.zarr", "--model", "m.zarr", "--report", "r.html"),
    )
    assert code == 0, err
    # As many iterations everywhere, though history_ has a record of each round.
    page = re.sub(r"(<[^>]*>|\s)+", " ", (tmp_path / "r.html").read_text())
    assert f" {found['n_iter']} iterations " in page
    assert daskclust.load(tmp_path / "m.zarr").classes_.tolist() == sorted(named.values())
    assert [item["name"] for item in found["classes"]] == sorted(named.values())
    assert [row.name for row in daskclust.scenes.area_table(tmp_path / "l.zarr")] == sorted(
        named.values()
    )


def test_classes_that_were_joined_are_no_rivals() -> None:
    x = np.array([[0.0], [1.0], [5.0], [6.0], [50.0], [51.0]])
    between = da.from_array(np.array([[3.0], [28.0]]), chunks=1)
    kmeans = daskclust.KMeans(3, random_state=0).fit(x)
    mixture = daskclust.GaussianMixture(3, random_state=0).fit(x)
    for model in (kmeans, mixture):
        low, middle = np.asarray(model.predict(np.array([[0.0], [6.0]]))).tolist()
        before = margins(model, between).compute()
        merge_classes(model, {max(low, middle): min(low, middle)})
        after = margins(model, between).compute()
        assert before[0] < 0.5 < 0.9 < after[0]
        if model is kmeans:  # between what was joined and another, as it was
            assert after[1] == before[1]


def test_rows_of_noise_are_not_clustered() -> None:
    """And what no fit did is not told: trees make no iterations."""
    legend = Legend((0, 1), ("cluster_0", "noise"), ("", ""), noise=1)
    found = {
        "estimator": "HDBSCAN", "n_clusters": 1, "n_iter": 0, "seconds": 1.0, "outputs": {},
        "pixels": {"valid": 100, "masked": 20},
    }  # fmt: skip
    add_classes(found, legend, [60, 40], "pixels")
    lines = fit_as_text(found)
    assert lines[:2] == [
        "Pixels    60 clustered, 40 noise, 20 masked",
        "Fit       HDBSCAN, 1 clusters",
    ]
    found = {**found, "rows": 100, "columns": ["a"], "features_used": 1, "n_iter": 3, "passes": 5}
    lines = fit_as_text(found)
    assert lines[0] == "Rows      60 clustered, 40 noise by 1 column"
    assert lines[1].endswith(" 3 iterations, 5 passes")
    assert "Columns   1 with weight" in lines
