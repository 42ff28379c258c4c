"""SpectralClustering from end to end, without and with constraints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from helpers import moons
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import make_blobs, make_circles
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

import daskclust
from daskclust import KMeans, SpectralClustering, open_cube, pairs_from_labels
from daskclust.exceptions import CheckpointError, ConstraintError, ConstraintWarning
from daskclust.testing import CountingScheduler
from daskclust.testing.strategies import row_chunks

N = 600


def four_blobs(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Blobs on the corners of a square, to be paired as nobody would without constraints."""
    rng = np.random.default_rng(seed)
    corner = np.repeat(np.arange(4), 200)
    corners = np.array([[0, 0], [0, 5], [6, 0], [6, 5]])
    # Left blobs are nearer to each other, but upper belongs to upper.
    return corners[corner] + rng.normal(size=(800, 2)), corner % 2


def test_two_moons_are_told_apart() -> None:
    X, truth = moons()
    model = SpectralClustering(2, random_state=0).fit(X)
    assert adjusted_rand_score(truth, model.labels_) > 0.95
    assert adjusted_rand_score(truth, KMeans(2, random_state=0).fit(X).labels_) < 0.5
    assert model.embedding_.shape == (len(model.prototypes_), 2)
    assert model.eigenvalues_[0] == pytest.approx(1.0)
    assert_array_equal(model.predict(X), model.labels_)
    assert_array_equal(SpectralClustering(2, random_state=0).fit_predict(X), model.labels_)


@pytest.mark.parametrize("n", [200, 500])
def test_circles_of_few_rows_are_told_apart(n: int) -> None:
    for seed in range(3):
        X, truth = make_circles(n, factor=0.5, noise=0.05, random_state=seed)
        model = SpectralClustering(2, random_state=seed).fit(X)
        assert adjusted_rand_score(truth, model.labels_) == 1.0
        # All rows are nodes.
        assert model.history_[-1]["nodes"] == [n]
        assert len(model.prototypes_) == n


def test_more_rows_than_nodes_are_represented_by_prototypes() -> None:
    X, truth = make_circles(5200, factor=0.5, noise=0.05, random_state=0)
    model = SpectralClustering(2, random_state=0).fit(X)
    assert model.history_[-1]["nodes"] == [1000]
    assert adjusted_rand_score(truth, model.labels_) == 1.0
    few = SpectralClustering(2, n_prototypes=100, random_state=0).fit(X[::10])
    assert few.history_[-1]["nodes"] == [100]


@given(row_chunks(N), st.sampled_from(["synchronous", "threads"]))
def test_any_chunks_and_scheduler_give_the_model_of_one_block(
    lengths: tuple[int, ...], scheduler: str
) -> None:
    X, truth = moons()
    must, cannot = pairs_from_labels(truth, n_pairs=20, random_state=0)
    links = {"must_link": must, "cannot_link": cannot}
    expected = SpectralClustering(2, random_state=0).fit(X, **links)
    with dask.config.set(scheduler=scheduler):
        chunked = da.from_array(X, chunks=(lengths, 2))
        model = SpectralClustering(2, random_state=0).fit(chunked, **links)
        assert_array_equal(model.labels_.compute(), expected.labels_)
        assert_array_equal(model.embedding_, expected.embedding_)


@pytest.mark.slow
def test_on_a_cluster_of_processes(client: object) -> None:
    X, _ = moons()
    expected = SpectralClustering(2, random_state=0).fit(X)
    model = SpectralClustering(2, random_state=0).fit(da.from_array(X, chunks=(170, 2)))
    assert_array_equal(model.labels_.compute(), expected.labels_)


@pytest.mark.parametrize("linked", [False, True])
def test_passes_are_few_and_counted(linked: bool) -> None:
    X, _ = moons()
    scheduler = CountingScheduler()
    links: dict[str, Any] = {"must_link": [[0, 5]]} if linked else {}
    with dask.config.set({"scheduler": scheduler, "daskclust.persist": False}):
        model = SpectralClustering(2, random_state=0).fit(
            da.from_array(X, chunks=(200, 2)), **links
        )
    assert scheduler.calls == model.history_[-1]["passes"] == 3 + linked


def test_constraints_decide_what_the_data_leave_open() -> None:
    X, truth = four_blobs()
    free = SpectralClustering(2, random_state=0).fit(X).labels_
    assert adjusted_rand_score(truth, free) < 0.1
    must, cannot = pairs_from_labels(truth, n_pairs=60, random_state=0)
    linked = SpectralClustering(2, random_state=0).fit(X, must_link=must, cannot_link=cannot)
    assert adjusted_rand_score(truth, linked.labels_) > 0.9
    y = np.full(len(X), -1)
    y[::40] = truth[::40]
    named = SpectralClustering(2, random_state=0).fit(X, y)
    assert adjusted_rand_score(truth, named.labels_) > 0.9


def test_labels_stand_for_all_their_pairs() -> None:
    X, truth = four_blobs()
    rows = np.arange(0, 800, 100)
    y = np.full(len(X), -1)
    y[rows] = truth[rows]
    must, cannot = pairs_from_labels(y)
    strong = SpectralClustering(2, pair_strength=1.0, random_state=0)
    one = clone(strong).fit(X, y)
    other = clone(strong).fit(X, must_link=must, cannot_link=cannot)
    np.testing.assert_allclose(np.abs(one.embedding_), np.abs(other.embedding_), atol=1e-4)
    assert_array_equal(one.labels_, other.labels_)


def test_more_constrained_rows_than_nodes() -> None:
    X, truth = four_blobs()
    must, cannot = pairs_from_labels(truth, n_pairs=400, random_state=0)
    model = SpectralClustering(2, n_prototypes=40, random_state=0).fit(
        X, must_link=must, cannot_link=cannot
    )
    assert model.history_[-1]["nodes"] == [40]
    assert adjusted_rand_score(truth, model.labels_) > 0.9
    whole = SpectralClustering(2, n_prototypes=40, random_state=0).fit(X, truth)
    assert adjusted_rand_score(truth, whole.labels_) > 0.9


def test_weights_decide_between_constraints() -> None:
    X, truth = four_blobs()
    good = pairs_from_labels(truth, n_pairs=60, random_state=0)
    bad = pairs_from_labels(np.repeat([0, 0, 1, 1], 200), n_pairs=60, random_state=1)
    links = {
        "must_link": np.concatenate([good[0], bad[0]]),
        "cannot_link": np.concatenate([good[1], bad[1]]),
    }
    weight = np.repeat([1.0, 0.0], 30)
    model = SpectralClustering(2, random_state=0).fit(
        X, **links, must_link_weight=weight, cannot_link_weight=weight
    )
    assert adjusted_rand_score(truth, model.labels_) > 0.9


def blobs_with_pairs(n_pairs: int, n_wrong: int) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Five overlapping blobs and random pairs, some of which are wrong."""
    X, y = make_blobs(1500, centers=5, random_state=2)
    rng = np.random.default_rng(0)
    pairs = rng.choice(len(X), (n_pairs, 2), replace=False)
    same = y[pairs[:, 0]] == y[pairs[:, 1]]
    same[:n_wrong] = ~same[:n_wrong]
    return X, y, {"must_link": pairs[same], "cannot_link": pairs[~same]}


@pytest.mark.filterwarnings("ignore:Left-out constraints")
def test_wrong_pairs_do_not_bend_whole_clusters() -> None:
    X, y, links = blobs_with_pairs(100, 10)
    free, full, auto = (
        adjusted_rand_score(
            y, SpectralClustering(5, random_state=0, **params).fit(X, **own).labels_
        )
        for params, own in (({}, {}), ({"pair_strength": 1}, links), ({}, links))
    )
    assert full > free - 0.05
    assert auto > free - 0.02


@pytest.mark.filterwarnings("ignore:Left-out constraints")
def test_random_pairs_are_rarely_used() -> None:
    X, y, _ = blobs_with_pairs(0, 0)
    alone = SpectralClustering(5, random_state=0).fit(X)
    free = adjusted_rand_score(y, alone.labels_)
    scores, n_used = [], 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        pairs = rng.choice(len(X), (100, 2), replace=False)
        links = {"must_link": pairs[:50], "cannot_link": pairs[50:]}
        model = SpectralClustering(5, random_state=0).fit(X, **links)
        scores.append(adjusted_rand_score(y, model.labels_))
        n_used += int(model.pair_strength_ > 0)
        if not model.pair_strength_:
            assert_array_equal(model.labels_, alone.labels_)
            assert_array_equal(model.prototypes_, alone.prototypes_)
            assert_allclose(model.embedding_, alone.embedding_, atol=1e-12)
    assert n_used <= 1
    assert np.mean(scores) > free - 0.05


def test_pairs_that_left_out_pairs_contradict_are_reported() -> None:
    X, *_ = blobs_with_pairs(0, 0)
    pairs = np.random.default_rng(2).choice(len(X), (100, 2), replace=False)
    links = {"must_link": pairs[:50], "cannot_link": pairs[50:]}
    with pytest.warns(ConstraintWarning, match="no constraint is used"):
        model = SpectralClustering(5, random_state=0).fit(X, **links)
    assert model.pair_strength_ == 0


def test_strength_0_is_the_fit_without_constraints() -> None:
    X, y, links = blobs_with_pairs(40, 0)
    expected = SpectralClustering(5, random_state=0).fit(X)
    for known in (links, {"y": (np.arange(30), y[:30])}):
        model = SpectralClustering(5, pair_strength=0, random_state=0).fit(X, **known)
        assert_array_equal(model.labels_, expected.labels_)
        assert_array_equal(model.embedding_, expected.embedding_)
        assert model.pair_strength_ == expected.pair_strength_ == 0
    with pytest.raises(
        ConstraintError,
        match=r"must_link must contain row numbers in \[0, 1500\), got \(0, 1500\) at",
    ):
        model.fit(X, must_link=[[0, 1500]])


def test_contradictions_and_absent_rows_are_reported() -> None:
    X, _ = moons()
    with pytest.warns(ConstraintWarning):
        SpectralClustering(2, random_state=0).fit(X, must_link=[[0, 1]], cannot_link=[[0, 1]])
    weight = np.ones(N)
    weight[4] = 0
    with pytest.warns(ConstraintWarning, match="first is row 4"):
        SpectralClustering(2, random_state=0).fit(X, must_link=[[4, 5]], sample_weight=weight)


def test_fewer_distinct_rows_than_clusters() -> None:
    X = np.repeat([[0.0, 1.0], [1.0, 0.0]], 30, axis=0)
    with pytest.warns(ConvergenceWarning, match=r"distinct clusters \(2\)"):
        model = SpectralClustering(3, random_state=0).fit(X)
    assert adjusted_rand_score(np.repeat([0, 1], 30), model.labels_) == 1.0


@pytest.mark.parametrize(
    ("params", "given", "error", "message"),
    [
        ({"n_clusters": N + 1}, {}, ValueError, "n_samples=600"),
        ({"views": "whitened"}, {}, ValueError, "needs a Cube"),
        ({}, {"must_link": [[0, N]]}, ConstraintError, "must_link"),
        ({}, {"must_link": [[0, 0, 1]]}, ConstraintError, "must_link"),
        ({}, {"y": np.zeros(3, int)}, ConstraintError, "600 rows"),
    ],
)
def test_what_cannot_be_used_is_refused(
    params: dict[str, Any], given: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        SpectralClustering(**params).fit(moons()[0], **given)


def test_missing_values_are_named() -> None:
    X, _ = moons()
    X[17, 1] = np.nan
    # The views "auto" take missing values, others do not.
    with pytest.raises(ValueError, match="row 17, column 1"):
        SpectralClustering(2, views="standard").fit(X)
    X[17, 1] = np.inf
    with pytest.raises(ValueError, match="row 17, column 1"):
        SpectralClustering(2).fit(X)


def test_saved_and_continued(tmp_path: Path) -> None:
    X, _ = moons()
    path = tmp_path / "fit.npz"
    model = SpectralClustering(2, random_state=0, checkpoint=path).fit(X)
    again = SpectralClustering(2, random_state=0, checkpoint=path).fit(X)
    assert_array_equal(model.labels_, again.labels_)
    with pytest.raises(CheckpointError, match="constraints was"):
        SpectralClustering(2, random_state=0, checkpoint=path).fit(X, must_link=[[0, 1]])
    model.pair_strength_ = 0.3
    model.save(tmp_path / "m.zarr")
    loaded = daskclust.load(tmp_path / "m.zarr")
    assert_array_equal(loaded.predict(X), model.labels_)
    assert loaded.pair_strength_ == 0.3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "k", "alone", "linked"),
    [("hsi_salinas_a", 6, 0.74, 0.92), ("hsi_jasper_ridge", 4, 0.72, 0.78)],
)
def test_on_real_scenes(data_dir: Path, name: str, k: int, alone: float, linked: float) -> None:
    with np.load(data_dir / "data" / f"{name}.npz") as file:
        cube = open_cube(file["cube"], dims=("y", "x", "band"))
        rows, labels = cube.rows_of(file["gt"].astype(int), unlabeled=0 if k == 6 else -1)
    y = np.full(cube.n_valid, -1)
    y[rows] = labels
    model = SpectralClustering(k, random_state=0).fit(cube)
    assert adjusted_rand_score(labels, model.labels_.compute()[rows]) > alone
    must, cannot = pairs_from_labels(y, n_pairs=200, random_state=0)
    model.fit(cube, must_link=must, cannot_link=cannot)
    assert adjusted_rand_score(labels, model.labels_.compute()[rows]) > linked
