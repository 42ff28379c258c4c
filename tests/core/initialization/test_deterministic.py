"""The starts "maximin", "dkm++" and "robin", for KMeans and the constrained family."""

from __future__ import annotations

import logging
from functools import cache
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.golden import load
from sklearn.exceptions import ConvergenceWarning

from daskclust import KMeans, PCKMeans, PCSKMeans, SparseKMeans
from daskclust.cluster import lloyd
from daskclust.core.engine import open_rows
from daskclust.core.initialization.deterministic import (
    dkm_rows,
    maximin_centers,
    robin_rows,
)
from daskclust.core.initialization.methods import passes_of_initialization
from daskclust.core.kernels.local_density import local_densities, local_outlier_factors
from daskclust.testing import CountingScheduler
from daskclust.testing.strategies import row_chunks

pytestmark = pytest.mark.usefixtures("synchronous")

INITS = ("maximin", "dkm++", "robin")
GOLDEN = ("fisheriris", "digits048_data1", "digits048_data2", "digits048_data3", "TTSCST")


@pytest.fixture
def starts(monkeypatch):
    """Starting centers of every fit."""
    seen: list[np.ndarray] = []

    def record(*args: Any, **kwargs: Any) -> Any:
        start = initial_centers(*args, **kwargs)
        seen.append(start)
        return start

    initial_centers = lloyd.initial_centers
    monkeypatch.setattr(lloyd, "initial_centers", record)
    return seen


def blobs(n: int = 300, p: int = 3, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(scale=4.0, size=(4, p))[rng.integers(0, 4, n)] + rng.normal(size=(n, p))


X = blobs()


# Choices of the published program.


@pytest.mark.parametrize("name", GOLDEN)
def test_rows_chosen_are_those_of_the_published_program(data_dir: Path, name: str) -> None:
    golden = load(data_dir, name)
    x, k = golden["X"], int(golden["K"])
    weight = np.ones(len(x))
    assert dkm_rows(x, weight, k).tolist() == golden["init_dkmpp_idx"].tolist()
    assert robin_rows(x, weight, k).tolist() == golden["init_robin_idx"].tolist()
    found = maximin_centers(open_rows(x), k, x.mean(axis=0))
    np.testing.assert_array_equal(found, x[golden["init_maximin_idx"]])


@pytest.mark.parametrize("name", GOLDEN)
def test_densities_and_outlier_factors_are_the_published_programs(
    data_dir: Path, name: str
) -> None:
    golden = load(data_dir, name)
    weight = np.ones(len(golden["X"]))
    found = local_densities(golden["X"], weight)
    for ours, theirs in [
        (found.density, golden["init_dkmpp_density"]),
        (found.radius, golden["init_dkmpp_radius"]),
        (found.edges, golden["init_dkmpp_mst_lengths"]),
        (local_outlier_factors(golden["X"], weight), golden["init_robin_lof"]),
    ]:
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


KEYS = {"maximin": "init_maximin_idx", "dkm++": "init_dkmpp_idx", "robin": "init_robin_idx"}


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("name", GOLDEN[:2])
def test_estimators_start_from_those_rows(data_dir: Path, name: str, init: str) -> None:
    golden = load(data_dir, name)
    x, rows = golden["X"], golden[KEYS[init]]
    lazy = da.from_array(x, chunks=(37, -1))
    must, cannot = golden["c5_must_link"], golden["c5_cannot_link"]
    for data in (x, lazy):
        plain = KMeans(len(rows), init=init).fit(data)
        same = KMeans(len(rows), init=x[rows]).fit(x)
        np.testing.assert_array_equal(np.asarray(plain.labels_), same.labels_)
        sparse = PCSKMeans(len(rows), init=init, sparsity=1.5)
        sparse.fit(data, must_link=must, cannot_link=cannot)
        given_ = PCSKMeans(len(rows), init=x[rows], sparsity=1.5)
        given_.fit(x, must_link=must, cannot_link=cannot)
        np.testing.assert_array_equal(np.asarray(sparse.labels_), given_.labels_)
        assert sparse.n_iter_ == given_.n_iter_


# By hand.


def test_maximin_by_hand(starts):
    x = np.array([[1.0, 0.0], [0.0, -9.0], [0.0, 0.0], [9.0, 0.0], [-2.0, 0.0]])
    # Rows 1 and 3 tie in norm; from row 1 row 3 is farthest, from both row 4.
    KMeans(3, init="maximin").fit(x)
    assert starts[0][0].tolist() == [[0, -9], [9, 0], [-2, 0]]


def test_robin_passes_over_an_outlier_that_maximin_takes(starts):
    grid = np.stack(np.meshgrid(np.arange(8.0), np.arange(8.0)), axis=-1).reshape(-1, 2)
    x = np.concatenate([grid, [[60.0, 60.0]]])
    KMeans(2, init="robin").fit(x)
    KMeans(2, init="maximin").fit(x)
    robin, maximin = (s[0] for s in starts)
    assert [60.0, 60.0] in maximin.tolist()
    assert [60.0, 60.0] not in robin.tolist()


# Wherever the data are.


@cache
def fit_whole(dtype, **parameters):
    """Return the fit of all rows in one, which is the same for every cut."""
    return KMeans(4, **parameters).fit(X.astype(dtype))


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("metric", ["euclidean", "cosine", "mahalanobis"])
@given(lengths=row_chunks(300), dtype=st.sampled_from([np.float32, np.float64]))
def test_chunks_do_not_matter(init, metric, lengths, dtype):
    whole = fit_whole(dtype, init=init, metric=metric, max_iter=3)
    rows = da.from_array(X.astype(dtype), (lengths, -1))
    cut = KMeans(4, init=init, metric=metric, max_iter=3).fit(rows)
    np.testing.assert_array_equal(whole.labels_, cut.labels_.compute())
    np.testing.assert_allclose(whole.cluster_centers_, cut.cluster_centers_, rtol=1e-12)


@pytest.mark.parametrize("init", INITS)
def test_without_chance_seeds_and_restarts_do_not_matter(init, starts):
    models = [KMeans(4, init=init, random_state=s, n_init=n).fit(X) for s, n in [(0, 1), (5, 7)]]
    assert [len(s) for s in starts] == [1, 1]
    assert models[0].inertia_ == models[1].inertia_


@pytest.mark.parametrize("init", ["dkm++", "robin"])
@pytest.mark.parametrize("make", [KMeans, SparseKMeans, PCKMeans, PCSKMeans])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.filterwarnings("ignore:X has chunks of unknown length")
def test_above_the_budget_a_sample_is_drawn_and_said_so(init, make, known, caplog):
    x = da.from_array(X, (100, -1))
    if not known:
        x = da.map_blocks(lambda b: b, x, chunks=((np.nan,) * 3, (3,)), dtype=x.dtype)
    with (
        caplog.at_level(logging.WARNING, "daskclust"),
        dask.config.set({"daskclust.init-rows": 50}),
    ):
        model = make(4, init=init, random_state=0).fit(x)
    assert model.history_[0]["init_rows"] == 50
    assert f'init="{init}" used a uniform sample of 50 of 300 rows' in caplog.text
    caplog.clear()
    with dask.config.set({"daskclust.init-rows": 300}):
        assert make(4, init=init).fit(X).history_[0]["init_rows"] == 300
    assert not caplog.text
    assert "init_rows" not in make(4, init="maximin").fit(X).history_[0]


def test_another_seed_draws_another_sample_and_the_same_seed_the_same(starts):
    with dask.config.set({"daskclust.init-rows": 50}):
        for seed in (0, 0, 1):
            KMeans(4, init="dkm++", random_state=seed).fit(X)
    np.testing.assert_array_equal(starts[0], starts[1])
    assert not np.array_equal(starts[0], starts[2])
    # All are rows of the data.
    assert all((X == row).all(axis=1).any() for row in starts[2][0])


# Weights.


@pytest.mark.parametrize("init", INITS)
def test_an_integer_weight_equals_repetition(init, starts):
    count = np.random.default_rng(1).integers(0, 4, len(X))
    weighted = KMeans(4, init=init).fit(X, sample_weight=count.astype(float))
    repeated = KMeans(4, init=init).fit(np.repeat(X, count, axis=0))
    np.testing.assert_array_equal(starts[0], starts[1])
    np.testing.assert_allclose(weighted.inertia_, repeated.inertia_, rtol=1e-12)


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("budget", [5000, 40])
def test_a_row_of_weight_0_is_never_a_starting_center(init, budget, starts):
    weight = (np.arange(len(X)) % 5 == 0).astype(float)
    weight[0] = 0
    x = X.copy()
    x[0] = 100.0
    with dask.config.set({"daskclust.init-rows": budget}):
        KMeans(4, init=init, random_state=0).fit(x, sample_weight=weight)
    present = x[weight > 0]
    assert all((present == row).all(axis=1).any() for row in starts[0][0])


@pytest.mark.parametrize("init", INITS)
def test_fewer_distinct_rows_than_clusters(init):
    x = np.repeat([[0.0, 0.0], [3.0, 4.0]], 6, axis=0)
    with pytest.warns(ConvergenceWarning, match=r"\(2\).*\(3\)"):
        model = KMeans(3, init=init).fit(x)
    assert model.inertia_ == 0


def test_rows_that_are_all_zero():
    with pytest.warns(ConvergenceWarning):
        assert KMeans(2, init="maximin").fit(np.zeros((5, 2))).inertia_ == 0


# Passes.


@pytest.mark.parametrize(("init", "start"), [("maximin", 5), ("dkm++", 1), ("robin", 1)])
@pytest.mark.parametrize("lazy", [True, False])
def test_passes_of_the_starts(init, start, lazy):
    scheduler = CountingScheduler()
    with dask.config.set({"scheduler": scheduler, "daskclust.persist": False}):
        x = da.from_array(X, (100, -1))
        if lazy:
            x = x + 0
        model = KMeans(5, init=init, max_iter=1).fit(x)
    assert model.history_[-1]["passes"] == 1 + start + 1
    assert scheduler.calls <= 1 + start + 2


@pytest.mark.parametrize("init", ["k-means||", "k-means++", "random", *INITS])
def test_passes_of_a_start_are_foreseen(init):
    # Few rows are all in the sample, which takes fewer passes.
    many = init in ("k-means||", "k-means++")
    rows = np.random.default_rng(0).normal(size=(9000, 2)) if many else X
    model = KMeans(5, init=init, n_init=1, max_iter=1, algorithm="lloyd", random_state=0).fit(rows)
    foreseen = passes_of_initialization(model.get_params())
    assert model.history_[-1]["passes"] == 1 + foreseen + 1


@pytest.mark.parametrize("init", ["dkm++", "robin"])
def test_a_sample_costs_no_pass(init):
    with dask.config.set({"daskclust.init-rows": 50}):
        model = KMeans(5, init=init, max_iter=1).fit(da.from_array(X, (100, -1)))
    assert model.history_[0]["passes"] == 2


@pytest.mark.parametrize("weighted", [False, True])
def test_maximin_is_the_same_without_room_to_keep_distances(monkeypatch, weighted):
    weight = np.arange(300) % 3.0 if weighted else None
    kept = maximin_centers(open_rows(X, weight), 6, X.mean(axis=0))
    monkeypatch.setattr("daskclust.core.engine.rows.OpenRows.can_keep", lambda self, n: False)
    np.testing.assert_array_equal(kept, maximin_centers(open_rows(X, weight), 6, X.mean(axis=0)))
