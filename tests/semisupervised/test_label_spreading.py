"""LabelSpreading from end to end: any container, any chunks, any scheduler, bad input."""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import dask
import dask.array as da
import numpy as np
import pytest
from helpers import moons, spread_by_less
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_circles
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import adjusted_rand_score, roc_auc_score
from sklearn.neighbors import KNeighborsClassifier

import daskclust
from daskclust import KMeans, LabelSpreading, open_cube
from daskclust.exceptions import CheckpointError, ConstraintError, ConstraintWarning
from daskclust.semisupervised import classifiers
from daskclust.semisupervised.predict import Posterior
from daskclust.testing import CountingScheduler
from daskclust.testing.strategies import row_chunks

N = 600
#: A height, a width and bands.
SCENE = (20, 26, 5)


def few(truth: np.ndarray, each: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rows = np.sort(np.concatenate([np.flatnonzero(truth == c)[:each] for c in np.unique(truth)]))
    return rows, truth[rows]


def scene(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three fields of different spectra and changing light, and some pixels without data."""
    rng = np.random.default_rng(seed)
    truth = np.zeros(SCENE[:2], int)
    truth[:, 13:] = 1
    truth[12:, :13] = 2
    spectra = rng.uniform(100, 1000, (3, SCENE[2]))
    light = rng.uniform(0.5, 1.5, SCENE[:2])[..., None]
    values = (spectra[truth] * light + rng.normal(scale=20, size=SCENE)).clip(1).astype(np.int16)
    values[rng.random(SCENE[:2]) < 0.1] = 0
    return values, truth


def opened(values: np.ndarray, chunks: tuple[int, int], **options: Any) -> daskclust.Cube:
    return open_cube(values, dims=("y", "x", "band"), chunks=chunks, nodata=0, **options)


@pytest.mark.parametrize("seed", range(3))
def test_two_labels_tell_circles_of_200_rows_apart(seed: int) -> None:
    X, truth = make_circles(200, factor=0.5, noise=0.05, random_state=seed)
    rows = [int(np.flatnonzero(truth == c)[0]) for c in (0, 1)]
    model = LabelSpreading(random_state=seed).fit(X, (rows, [0, 1]))
    assert_array_equal(model.labels_, truth)
    assert model.transduction_ is model.labels_


def of_moons(X: Any) -> LabelSpreading:
    """Fit by less: the bits are compared, whatever they foretell."""
    with pytest.MonkeyPatch.context() as patch:
        spread_by_less(patch)
        return LabelSpreading(60, random_state=0).fit(X, few(moons()[1]))


@cache
def of_one_block() -> LabelSpreading:
    return of_moons(moons()[0])


@given(row_chunks(N), st.sampled_from(["synchronous", "threads"]))
def test_any_chunks_and_scheduler_give_the_model_of_one_block(
    lengths: tuple[int, ...], scheduler: str
) -> None:
    X, expected = moons()[0], of_one_block()
    with dask.config.set(scheduler=scheduler):
        chunked = da.from_array(X, chunks=(lengths, 2))
        model = of_moons(chunked)
        assert model.labels_.chunks == (lengths,)
        assert_array_equal(model.labels_.compute(), expected.labels_)
        assert_array_equal(model.prototypes_, expected.prototypes_)
        assert_array_equal(model.predict_proba(chunked).compute(), expected.predict_proba(X))
        assert_array_equal(model.margin(chunked).compute(), expected.margin(X))


def map_of_a_scene_in(height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    values, truth = scene()
    labels = np.full(truth.shape, -1)
    labels[2, 3:6], labels[5, 20:23], labels[16, 3:6] = 0, 1, 2
    with dask.config.set(scheduler="synchronous"), pytest.MonkeyPatch.context() as patch:
        spread_by_less(patch)
        cube = opened(values, (height, width))
        model = LabelSpreading(random_state=0).fit(cube, cube.rows_of(labels))
        margins = cube.to_map(model.margin(cube), fill_value=np.nan)
        return np.asarray(cube.to_map(model.labels_)), np.asarray(margins)


@cache
def map_of_a_scene_in_one_block() -> tuple[np.ndarray, np.ndarray]:
    return map_of_a_scene_in(*SCENE[:2])


@settings(max_examples=3)
@given(st.integers(3, SCENE[0]), st.integers(3, SCENE[1]))
def test_a_scene_gets_the_same_map_however_it_is_cut(height: int, width: int) -> None:
    values, truth = scene()
    expected, margins = map_of_a_scene_in_one_block()
    found, others = map_of_a_scene_in(height, width)
    assert_array_equal(found, expected)
    assert_array_equal(others, margins)
    valid = values[..., 0] != 0
    assert_array_equal(expected[~valid], -1)
    assert (expected[valid] == truth[valid]).mean() > 0.95


@pytest.mark.filterwarnings("ignore:.* labeled pixels are left out")
@pytest.mark.parametrize("masked", [False, True])
def test_more_labels_than_nodes_give_the_same_map_however_it_is_cut(masked: bool) -> None:
    values, truth = scene()
    values = values if masked else values + np.int16(1)
    rng = np.random.default_rng(0)
    labels = np.where(rng.random(truth.shape) < 0.7, rng.integers(0, 3, truth.shape), -1)
    # In a forest every label counts as often as it is drawn: the order of the rows shows.
    forest = RandomForestClassifier(3)
    found = []
    for chunks in (SCENE[:2], (7, 9)):
        cube = opened(values, chunks)
        model = LabelSpreading(20, random_state=0, classifier=forest).fit(cube, labels)
        proba = cube.to_map(model.predict_proba(cube)[:, 0], fill_value=np.nan)
        said = model.classifier_.predict_proba(values.reshape(-1, SCENE[2]))
        found.append((np.asarray(cube.to_map(model.labels_)), np.asarray(proba), said))
    for one, other in zip(*found, strict=True):
        assert_array_equal(one, other)


@pytest.mark.slow
def test_on_a_cluster_of_processes(client: object) -> None:
    X, truth = moons()
    expected = LabelSpreading(random_state=0).fit(X, few(truth))
    model = LabelSpreading(random_state=0).fit(da.from_array(X, chunks=(170, 2)), few(truth))
    assert_array_equal(model.labels_.compute(), expected.labels_)


def test_passes_are_few_and_counted() -> None:
    X, truth = moons()
    scheduler = CountingScheduler()
    with dask.config.set({"scheduler": scheduler, "daskclust.persist": False}):
        model = LabelSpreading(random_state=0).fit(da.from_array(X, chunks=(200, 2)), few(truth))
    assert scheduler.calls == model.history_[-1]["passes"] == 4


def test_probabilities_sum_to_one_and_give_the_labels_and_the_margin() -> None:
    X, truth = moons()
    model = LabelSpreading(random_state=0).fit(X, few(truth))
    found = model.predict_proba(X)
    assert_allclose(found.sum(axis=1), 1.0)
    assert_array_equal(model.classes_[found.argmax(axis=1)], model.predict(X))
    assert_allclose(model.margin(X), np.abs(found[:, 0] - found[:, 1]))


@pytest.mark.filterwarnings("ignore:No label reaches")
def test_labeled_rows_keep_their_label() -> None:
    X, truth = moons()
    rows, labels = few(truth, 5)
    labels[0] = 1 - labels[0]
    model = LabelSpreading(random_state=0).fit(X, (rows, labels))
    assert_array_equal(model.labels_[rows], labels)


def test_equal_rows_with_different_labels_are_one_node_of_two_classes() -> None:
    X, truth = moons()
    rows, labels = few(truth, 3)
    X = np.concatenate([X, X[rows[:1]], X[rows[:1]]])
    given_ = np.append(rows, [N, N + 1]), np.append(labels, [1 - labels[0], labels[0]])
    model = LabelSpreading(random_state=0).fit(X, given_)
    assert model.history_[-1]["nodes"] == 6 * [60 + 6]
    assert (model.predict(X[:N]) == truth).mean() > 0.9


def test_nodes_that_no_label_reaches_are_reported() -> None:
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(200, 2)) + at for at in ([0, 0], [500, 0], [0, 500])])
    y = ([0, 200], [0, 1])
    with pytest.warns(ConstraintWarning, match=r"No label reaches .*about 200 rows, 33.3% of"):
        model = LabelSpreading(random_state=0).fit(X, y)
    assert model.history_[-1]["unreached_rows"] == 6 * [200.0]
    assert model.margin(X[400:]).max() < 0.5 < model.margin(X[:400]).min()


@pytest.mark.parametrize("third", [-1000.0, -20.0, 1020.0])
def test_rows_that_no_label_reaches_have_a_margin_of_zero(third: float, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(at, 1, size=(300, 2)) for at in (0, 1000, third)])
    y = ([0, 1, 300, 301], [0, 0, 1, 1])
    with pytest.warns(ConstraintWarning, match="about 300 rows.*class is arbitrary"):
        model = LabelSpreading(classifier=None, random_state=0).fit(X, y)
    model.save(tmp_path / "model")
    for one in (model, daskclust.load(tmp_path / "model")):
        margin = one.margin(X)
        assert_array_equal(margin[600:], 0.0)
        assert margin[:600].min() > 0.5
        assert_array_equal(one.predict_proba(X[600:]), 0.5)


def test_a_fit_without_labels_says_what_to_give() -> None:
    X, _ = moons()
    with pytest.raises(ConstraintError, match=r"requires y.*fit\(X, y\) with -1 or NaN"):
        LabelSpreading().fit(X)


def test_rows_of_weight_zero_are_absent() -> None:
    X, truth = moons()
    rows, labels = few(truth)
    weight = np.ones(N)
    weight[rows[0]] = 0.0
    with pytest.warns(ConstraintWarning, match=rf"1 labeled row.*; the first is row {rows[0]}"):
        LabelSpreading(random_state=0).fit(X, (rows, labels), sample_weight=weight)
    with pytest.raises(ConstraintError, match="All labeled rows"):
        LabelSpreading().fit(X, (rows[:1], labels[:1]), sample_weight=weight)


@pytest.mark.parametrize("each", [1, 300])
def test_from_two_labels_to_one_on_every_row(each: int) -> None:
    """Classes in a chequered pattern finer than the prototypes, nearly as good as 1-NN."""
    rng = np.random.default_rng(0)
    X = rng.random((4000, 2))
    truth = (np.floor(X * 9).sum(axis=1) % 2).astype(int)
    rows = np.concatenate([np.flatnonzero(truth[:2000] == c)[:each] for c in (0, 1)])
    k = 100
    model = LabelSpreading(k, random_state=0).fit(X, (rows, truth[rows]))
    test = np.arange(2000, 4000)
    nearest = KNeighborsClassifier(1).fit(X[rows], truth[rows]).score(X[test], truth[test])
    assert model.score(X[test], truth[test]) >= nearest - 0.05
    assert_array_equal(model.labels_[rows], truth[rows])
    # The number of nodes is bounded by the number of prototypes.
    assert max(model.history_[-1]["nodes"]) <= 3 * k
    assert model._posterior.has_other_labels == (len(rows) > 2 * k)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.full(N, -1), "y must have at least one label"),
        (None, "requires y"),
        (np.zeros(N - 1, int), r"shape \(599,\)"),
        (([0, 0], [1, 2]), "one label per row, got several"),
        (([N], [1]), r"Row numbers of y must be in \[0, 600\), got 600"),
        (np.full(N, 0.5), "y must contain integers or strings, and -1 or NaN for unlabeled"),
    ],
)
def test_labels_that_cannot_be_used(y: Any, message: str) -> None:
    with pytest.raises(ConstraintError, match=message):
        LabelSpreading().fit(moons()[0], y)


@pytest.mark.parametrize(
    "params",
    [
        {"views": "whitened"},
        {"views": ("raw", "raw")},
    ],
)
def test_parameters_out_of_range(params: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(params)).split("_")[0]):
        LabelSpreading(**params).fit(moons()[0], ([0], [1]))


def test_missing_values_are_named_and_a_failed_fit_changes_nothing() -> None:
    X, truth = moons()
    model = LabelSpreading(random_state=0).fit(X, few(truth))
    before = vars(model).copy()
    X = X.copy()
    X[17, 1] = np.nan
    # A model fitted to complete rows knows nothing of missing values.
    with pytest.raises(ValueError, match="row 17, column 1"):
        model.predict(X)
    X[17, 1] = np.inf
    with pytest.raises(ValueError, match="row 17, column 1"):
        model.fit(X, few(truth))
    assert vars(model) == before


@pytest.mark.filterwarnings("ignore:.* labeled pixels are left out")
def test_a_loaded_model_predicts_the_same(tmp_path: Path) -> None:
    values, truth = scene()
    cube = opened(values, (9, 9))
    labels = np.where(np.random.default_rng(0).random(truth.shape) < 0.05, truth, -1)
    model = LabelSpreading(random_state=0).fit(cube, cube.rows_of(labels))
    model.save(tmp_path / "m.zarr")
    loaded = daskclust.load(tmp_path / "m.zarr")
    assert_array_equal(loaded.predict_proba(cube).compute(), model.predict_proba(cube).compute())
    many = LabelSpreading(12, random_state=0).fit(*moons())
    many.save(tmp_path / "many.zarr")
    X = moons(seed=5)[0]
    again = daskclust.load(tmp_path / "many.zarr")
    assert_array_equal(again.predict_proba(X), many.predict_proba(X))


def test_a_checkpoint_is_continued_and_guarded(tmp_path: Path) -> None:
    X, truth = moons()
    path = tmp_path / "fit.npz"
    first = LabelSpreading(random_state=0, checkpoint=path).fit(X, few(truth))
    again = LabelSpreading(random_state=0, checkpoint=path).fit(X, few(truth))
    assert_array_equal(first.predict_proba(X), again.predict_proba(X))
    with pytest.raises(CheckpointError, match="labels was"):
        LabelSpreading(random_state=0, checkpoint=path).fit(X, few(truth, 3))


@pytest.mark.parametrize(
    "model",
    [
        LabelSpreading(random_state=0),
        daskclust.PCKMeans(3, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
@pytest.mark.filterwarnings("ignore:No label reaches")
@pytest.mark.filterwarnings("ignore:.* labeled pixels are left out")
def test_of_a_cube_a_label_map_is_y(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Five fits, of which only the labels that they read are compared.
    monkeypatch.setattr(classifiers, "_TREES", 10)
    values, truth = scene()
    cube = opened(values, (9, 9))
    labels = np.where(np.random.default_rng(0).random(truth.shape) < 0.1, truth, -1)
    expected = np.asarray(model.fit(cube, cube.rows_of(labels)).labels_)
    np.save(tmp_path / "few.npy", labels)
    for y in (labels, da.from_array(labels, chunks=7), tmp_path / "few.npy"):
        assert_array_equal(model.fit(cube, y).labels_, expected)
    # One label a row is no map.
    rows, known = cube.rows_of(labels)
    whole = np.full(cube.n_valid, -1)
    whole[rows] = known
    assert_array_equal(model.fit(cube, whole).labels_, expected)
    with pytest.raises(ValueError, match="label_map must have the shape"):
        model.fit(cube, labels[1:])
    if isinstance(model, LabelSpreading):
        assert model.score(cube, labels) == model.score(cube, (rows, known)) > 0.9


def test_every_estimator_takes_a_cube() -> None:
    values, _ = scene()
    cube = opened(values, (9, 9))
    model = KMeans(3, random_state=0).fit(cube)
    assert_array_equal(model.labels_, KMeans(3, random_state=0).fit(cube.samples).labels_)
    assert_array_equal(model.predict(cube), model.labels_)
    assert model.transform(cube).shape == (cube.n_valid, 3)
    assert model.score(cube) == pytest.approx(-model.inertia_)
    assert cube.to_map(model.labels_).shape == SCENE[:2]


def _real(data_dir: Path, name: str) -> tuple[Any, np.ndarray, np.ndarray]:
    with np.load(data_dir / "data" / f"{name}.npz") as file:
        if "cube" not in file:
            X = file["X"].reshape(len(file["y"]), -1).astype(float)
            return X, file["y"].astype(int), np.arange(len(X))
        truth = file["gt"].astype(int)
        cube = open_cube(file["cube"], dims=("y", "x", "band"))
        rows, labels = cube.rows_of(truth, unlabeled=0 if "salinas" in name else -1)
    y = np.full(cube.n_valid, -1)
    y[rows] = labels
    return cube, y, rows


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:No label reaches")
@pytest.mark.parametrize(
    ("name", "least", "auc"),
    [
        ("hsi_salinas_a", 0.95, 0.9),
        ("hsi_jasper_ridge", 0.85, 0.9),
        ("uci_pendigits_train", 0.78, 0.85),
    ],
)
def test_one_per_cent_of_labels_on_real_data(
    data_dir: Path, name: str, least: float, auc: float
) -> None:
    data, y, known = _real(data_dir, name)
    rows = np.sort(np.random.default_rng(0).permutation(known)[: len(known) // 100])
    model = LabelSpreading(random_state=0).fit(data, (rows, y[rows]))
    test = np.setdiff1d(known, rows)
    found = np.asarray(model.predict(data))[test]
    assert adjusted_rand_score(y[test], found) > least
    assert roc_auc_score(found == y[test], np.asarray(model.margin(data))[test]) > auc


def test_a_range_beyond_float32_is_a_range() -> None:
    largest = float(np.finfo(np.float32).max)
    x = np.array([[0.0], [-largest], [largest]], dtype=np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = LabelSpreading(4, random_state=0).fit(x, np.array([0, -1, -1]))
    assert np.asarray(model.labels_).tolist() == [0, 0, 0]


@pytest.mark.parametrize("dtype", ["float64", "uint8"])
def test_lazy_results_share_the_evaluation(dtype: str) -> None:
    X, truth = moons()
    X = X if dtype == "float64" else np.round(100 * (X - X.min())).astype(dtype)
    lazy = da.from_array(X, chunks=(97, -1))
    model = LabelSpreading(random_state=0).fit(lazy, few(truth, 3))
    results = [model.labels_, model.predict(lazy), model.margin(lazy), model.predict_proba(lazy)]
    calls = []
    original = Posterior.__call__

    def counted(self: Posterior, x: Any) -> Any:
        calls.append(len(x))
        return original(self, x)

    with patch.object(Posterior, "__call__", counted):
        labels, *found = dask.compute(*results, scheduler="sync")
    assert sum(calls) == len(X)
    rows, known = few(truth, 3)
    assert_array_equal(labels[rows], known)
    assert_array_equal(np.delete(labels, rows), np.delete(found[0], rows))
    for values, method in zip(
        found, (model.predict, model.margin, model.predict_proba), strict=True
    ):
        assert_array_equal(values, method(X))
