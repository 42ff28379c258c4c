"""Errors of dask-ml's KMeans: each test shows the error, and that daskclust is correct."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from daskclust import KMeans

dask_ml_cluster = pytest.importorskip("dask_ml.cluster", reason="dask-ml is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def x() -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(scale=10, size=(5, 4))[rng.integers(5, size=2000)] + rng.normal(
        scale=4, size=(2000, 4)
    )


@pytest.fixture(scope="module")
def array(x: np.ndarray) -> da.Array:
    return da.from_array(x, chunks=(500, 4))


@pytest.fixture(scope="module")
def blobs() -> tuple[da.Array, float]:
    """30 easy blobs on a grid, and the inertia of the true clusters."""
    rng = np.random.default_rng(1)
    grid = np.array([(20.0 * i, 20.0 * j) for i in range(6) for j in range(5)])
    label = np.repeat(np.arange(30), 200)
    rows = grid[label] + 0.5 * rng.normal(size=(6000, 2))
    means = np.array([rows[label == k].mean(axis=0) for k in range(30)])
    order = rng.permutation(6000)
    return da.from_array(rows[order], chunks=(1000, 2)), float(((rows - means[label]) ** 2).sum())


def theirs(*args: Any, **kwargs: Any) -> Any:
    return dask_ml_cluster.KMeans(*args, **kwargs)


def _sse(x: np.ndarray, model: Any) -> float:
    return float(((x - model.cluster_centers_[np.asarray(model.labels_)]) ** 2).sum())


def test_inertia_is_the_sum_of_squares(x: np.ndarray, array: da.Array) -> None:
    other = theirs(5, init=x[:5].copy(), max_iter=3).fit(array)
    assert other.inertia_ < 0.5 * _sse(x, other)
    model = KMeans(5, init=x[:5], max_iter=3).fit(array)
    assert model.inertia_ == pytest.approx(_sse(x, model), rel=1e-12)


def test_an_empty_cluster_is_not_moved_to_the_origin(x: np.ndarray, array: da.Array) -> None:
    start = np.vstack([x[:4], np.full((1, 4), 1e4)])
    other = theirs(5, init=start.copy(), max_iter=1).fit(array)
    assert (other.cluster_centers_[4] == 0).all()
    model = KMeans(5, init=start, max_iter=1).fit(array)
    # The row farthest from its center becomes its new center.
    nearest = ((x[:, None] - start[None]) ** 2).sum(axis=-1).min(axis=1)
    np.testing.assert_array_equal(model.cluster_centers_[4], x[nearest.argmax()])


def test_the_tolerance_is_relative_to_the_data(x: np.ndarray, array: da.Array) -> None:
    def iterations(make: Any, scale: float) -> int:
        return int(make(5, init=scale * x[:5], tol=1e-4).fit(scale * array).n_iter_)

    assert iterations(theirs, 1e-3) < iterations(theirs, 1.0) / 2
    assert iterations(KMeans, 1e-3) == iterations(KMeans, 1.0) == iterations(KMeans, 1e3)


def test_oversampling_finds_enough_candidates(
    blobs: tuple[da.Array, float], capfd: pytest.CaptureFixture[str]
) -> None:
    rows, best = blobs
    worst = {"theirs": 0.0, "ours": 0.0}
    for seed in range(3):
        other = theirs(30, random_state=seed).fit(rows)
        worst["theirs"] = max(worst["theirs"], _sse(rows.compute(), other))
        worst["ours"] = max(worst["ours"], KMeans(30, random_state=seed).fit(rows).inertia_)
    assert worst["theirs"] > 10 * best
    assert worst["ours"] == pytest.approx(best, rel=1e-9)


def test_the_result_does_not_depend_on_the_chunks(array: da.Array) -> None:
    def centers(make: Any, rows: da.Array) -> np.ndarray:
        found = make(5, random_state=0).fit(rows).cluster_centers_
        return found[np.lexsort(found.T)]

    other = array.rechunk((333, 4))
    assert np.abs(centers(theirs, array) - centers(theirs, other)).max() > 1e-6
    np.testing.assert_allclose(centers(KMeans, array), centers(KMeans, other), rtol=1e-12)


def test_rows_have_weights(x: np.ndarray, array: da.Array) -> None:
    weight = np.random.default_rng(0).integers(0, 4, size=len(x)).astype(float)
    with pytest.raises(TypeError, match="sample_weight"):
        theirs(5).fit(array, sample_weight=weight)
    model = KMeans(5, init=x[:5]).fit(array, sample_weight=weight)
    repeated = KMeans(5, init=x[:5]).fit(np.repeat(x, weight.astype(int), axis=0))
    np.testing.assert_allclose(model.cluster_centers_, repeated.cluster_centers_, rtol=1e-10)


def _passes(make: Any, x: np.ndarray, **kwargs: Any) -> float:
    """Count how often each block of a lazy array is computed during a fit."""
    reads = []

    def read(block: np.ndarray) -> np.ndarray:
        reads.append(1)
        return block

    lazy = da.from_array(x, chunks=(500, 4)).map_blocks(read, dtype=x.dtype, meta=np.empty((0, 0)))
    with dask.config.set({"scheduler": "sync", "daskclust.persist": False}):
        make(5, max_iter=1, **kwargs).fit(lazy)
    return len(reads) / 4


def test_lazy_data_are_read_once_a_pass(x: np.ndarray) -> None:
    # One to look at the data (checks for NaN and all), one iteration, one to settle.
    assert _passes(KMeans, x, init=x[:5]) == 3
    assert _passes(theirs, x, init=x[:5].copy()) > 3
    # k-means||: one more, since all rows are the sample.
    assert _passes(KMeans, x, random_state=0) == 4
    assert _passes(theirs, x, random_state=0) > 18


def test_pickling_a_model_leaves_the_data_behind(x: np.ndarray, array: da.Array) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = theirs(5, init=x[:5].copy()).fit(array)
    assert len(pickle.dumps(other)) > x.nbytes
    model = pickle.loads(pickle.dumps(KMeans(5, init=x[:5]).fit(array)))
    assert len(pickle.dumps(model)) < x.nbytes / 10
    assert model.predict(x[:7]).shape == (7,)


def test_n_init_is_not_ignored(array: da.Array) -> None:
    def best(make: Any, n_init: int) -> float:
        model = make(5, init="random", n_init=n_init, random_state=3).fit(array)
        return _sse(array.compute(), model)

    assert best(theirs, 1) == pytest.approx(best(theirs, 8), rel=1e-12)
    assert best(KMeans, 8) <= best(KMeans, 1)
