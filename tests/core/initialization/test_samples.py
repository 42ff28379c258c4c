"""Starts of many wide clusters, drawn from a sample of the rows."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from daskclust import KMeans
from daskclust.core.engine import open_rows
from daskclust.core.initialization import growing, samples
from daskclust.core.initialization.growing import draw_tries
from daskclust.core.initialization.samples import (
    Sample,
    first_rows,
    grows,
    is_complete,
    is_large,
    n_candidates,
    sample_size,
    tried_rows,
)
from daskclust.core.kernels.draws import n_draws

pytestmark = pytest.mark.usefixtures("synchronous")

P, K = 128, 256


def wide(n: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(K, P))
    return (centers[rng.integers(K, size=n)] + 0.7 * rng.normal(size=(n, P))).astype(np.float32)


def test_the_sizes_by_hand() -> None:
    assert is_large(256, 128)
    assert not is_large(1000, 16)
    rows = open_rows(np.zeros((20_000, P), np.float32))
    # Twenty rows of the sample for each cluster.
    assert not grows(rows, K)
    assert grows(rows, 64)
    assert n_candidates(rows, 1000, 2.0, 5) == 10_000
    assert n_candidates(rows, 1000, 0.5, 5) == 4096
    assert n_candidates(rows, 5000, 2.0, 5) == 20_000
    assert (first_rows(5), first_rows(1000)) == (4096, 10_000)
    assert (tried_rows(5), tried_rows(100), tried_rows(256)) == (4096, 25_600, 4096)
    assert sample_size(rows, 5) == 5000
    assert not is_complete(rows, 5)
    few = open_rows(np.zeros((8192, P), np.float32))
    assert is_complete(few, 5)
    assert sample_size(few, 5) == 8192
    # At most 2 ** 28 bytes.
    wide_rows = open_rows(np.zeros((1, 100_000)))
    wide_rows.n_rows = 20_000
    assert sample_size(wide_rows, 5) == 2**28 // 800_000


def test_many_centers_are_better_than_random_rows() -> None:
    X = wide(6000)
    drawn = [KMeans(K, max_iter=3, random_state=seed).fit(X).inertia_ for seed in range(3)]
    random = KMeans(K, init="random", n_init=3, max_iter=3, random_state=0).fit(X).inertia_
    assert np.mean(drawn) < 0.97 * random


def test_rows_far_from_all_others_get_centers() -> None:
    X = wide(12_000)
    X[::1500] += 1e3 * np.arange(1, 9, dtype=np.float32)[:, None]
    model = KMeans(K, max_iter=2, random_state=0).fit(X)
    assert len(np.unique(model.labels_[::1500])) == 8
    assert model.inertia_ < 1e6 * P


@pytest.mark.parametrize("chunks", [1700, (1, 2999, 3000)])
def test_the_start_does_not_depend_on_chunks(chunks) -> None:
    X = wide(6000)
    weight = np.random.default_rng(1).integers(0, 3, 6000).astype(float)
    cut = da.from_array(X, chunks=(chunks, P))
    whole = KMeans(K, max_iter=1, random_state=0).fit(X, sample_weight=weight)
    model = KMeans(K, max_iter=1, random_state=0).fit(cut, sample_weight=weight)
    assert_array_equal(model.cluster_centers_, whole.cluster_centers_)


def draws(rows: np.ndarray, k: int, count: int) -> list[np.ndarray]:
    sample = Sample(rows, np.ones(len(rows)), 0, float(len(rows)), len(rows))
    none = rows[:0]
    return draw_tries(sample, k, 0, rows.mean(axis=0), count=count, candidates=none, known=none)


@pytest.mark.parametrize("p", [4, P])
def test_fewer_distinct_rows_than_clusters_give_fewer_centers(p) -> None:
    rows = np.repeat(np.eye(4, p, dtype=np.float32), 100, axis=0)
    assert min(len(centers) for centers in draws(rows, 5, 400)) == 4
    for found in draws(rows, 4, 400):
        assert_array_equal(np.sort(found.argmax(axis=1)), np.arange(4))


def test_parts_of_a_large_sample_are_iterated() -> None:
    X = wide(40_000)
    model = KMeans(K, max_iter=1, random_state=0)
    drawn = model.fit(X).inertia_
    whole = KMeans(K, max_iter=20, random_state=0).fit(X).inertia_
    assert whole <= drawn < 1.3 * whole


@pytest.mark.parametrize("n", [1000, 20_000, 1_000_000])
@pytest.mark.parametrize("p", [2, 100, 1536])
@pytest.mark.parametrize("k", [256, 3000, 100_000])
def test_draws_of_many_centers_take_at_most_four_passes(monkeypatch, n, p, k) -> None:
    if k > n:
        return
    products: list[float] = []

    def draw(points, mass, k, seed, n_sets, draws, n_first=0):
        products.append(n_sets * draws * len(points))
        return [np.zeros(k, np.intp)]

    monkeypatch.setattr(growing, "_greedy_sets", draw)
    rows = open_rows(np.zeros((1, p), np.float32))
    rows.n_rows = n
    count = n_candidates(rows, k, 2.0, 5)
    n_far = 0 if is_complete(rows, k) else min(first_rows(k) // 4, n // 8, samples._LARGE_FAR)
    # Rows of one feature stand for them, as they decide which of the draws is made.
    drawn = np.zeros((min(n, count) + n_far, min(p, samples.NARROW)), np.float32)
    sample = Sample(drawn, np.ones(len(drawn)), n_far, 1.0, n)
    none = drawn[:0]
    draw_tries(sample, k, 0, drawn[0], count=count, candidates=none, known=none)
    slower = 1.0 if p >= samples.NARROW else growing._SLOWER
    # Two draws per center are made in any case.
    assert slower * products[0] / n < max(4, 2 * slower * len(drawn) / n) + 1e-9
    assert n_draws(k) >= products[0] / len(drawn) >= 2


def test_many_centers_of_few_rows_each_need_no_rounds() -> None:
    X = np.random.default_rng(0).random((20_000, 2), np.float32)
    model = KMeans(300, random_state=0, max_iter=1).fit(X)
    # The survey, the drawn rows, the farthest ones, an iteration, and the last assignment.
    assert model.history_[0]["passes"] <= 4
    greedy = KMeans(300, init="k-means++", algorithm="lloyd", random_state=0, max_iter=1).fit(X)
    assert model.inertia_ < greedy.inertia_


def test_many_narrow_centers_find_small_clusters_far_away() -> None:
    X = np.random.default_rng(0).random((20_000, 2), np.float32)
    X[::2500] += 100 * np.arange(1, 9, dtype=np.float32)[:, None]
    model = KMeans(300, random_state=0, max_iter=2).fit(X)
    assert len(np.unique(model.labels_[::2500])) == 8
