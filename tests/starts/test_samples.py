"""Starts of many wide clusters, drawn from a sample of the rows."""

from __future__ import annotations

from types import SimpleNamespace

import dask.array as da
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from daskclust import KMeans
from daskclust.cluster import kmeans
from daskclust.engine import open_rows
from daskclust.starts import sampled
from daskclust.starts.sampled import (
    Sample,
    first_rows,
    grows,
    is_large,
    large_starts,
    n_candidates,
)

pytestmark = pytest.mark.usefixtures("synchronous")

P, K = 128, 256


def wide(n: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(K, P))
    return (centers[rng.integers(K, size=n)] + 0.7 * rng.normal(size=(n, P))).astype(np.float32)


def test_the_regime_by_hand() -> None:
    assert is_large(256, 128)
    assert not is_large(1000, 16)
    rows = open_rows(np.zeros((20_000, P), np.float32))
    # Twenty rows of the sample for each cluster.
    assert not grows(rows, K)
    assert grows(rows, 64)
    assert n_candidates(rows, 1000, 2.0, 5) == 10_000
    assert n_candidates(rows, 1000, 0.5, 5) == 4096
    assert n_candidates(rows, 5000, 2.0, 5) == 20_000


def test_a_start_is_better_than_random_rows_and_as_good_as_that_of_all_rows(monkeypatch) -> None:
    X = wide(6000)
    drawn = [KMeans(K, max_iter=3, random_state=seed).fit(X).inertia_ for seed in range(3)]
    random = KMeans(K, init="random", n_init=3, max_iter=3, random_state=0).fit(X).inertia_
    assert np.mean(drawn) < 0.97 * random
    monkeypatch.setattr(sampled, "is_large", lambda k, p: False)
    whole = KMeans(K, algorithm="lloyd", max_iter=3, random_state=0).fit(X).inertia_
    assert np.mean(drawn) < 1.006 * whole


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


def test_fewer_distinct_rows_than_clusters_fall_back() -> None:
    rows = np.repeat(np.eye(4, P, dtype=np.float32), 100, axis=0)
    sample = Sample(rows, np.ones(400), 0, 400.0, 400)
    assert large_starts(sample, 5, [0], rows.mean(axis=0), 400) is None
    (found,) = large_starts(sample, 4, [0], rows.mean(axis=0), 400) or [None]
    assert_array_equal(np.sort(found.argmax(axis=1)), np.arange(4))


def test_parts_of_a_large_sample_are_iterated() -> None:
    X = wide(40_000)
    model = KMeans(K, max_iter=1, random_state=0)
    drawn = model.fit(X).inertia_
    whole = KMeans(K, max_iter=20, random_state=0).fit(X).inertia_
    assert whole <= drawn < 1.3 * whole


@pytest.mark.parametrize("n", [1000, 20_000, 300_000, 1_000_000])
@pytest.mark.parametrize("p", [2, 16, 100, 768, 1536])
def test_starts_of_many_centers_take_less_than_five_passes(monkeypatch, n, p) -> None:
    made: list[float] = []

    def draw(points, weight, k, draws, rng, run):
        # Multiplications over those of a pass, a value each.
        made.append(draws * len(points) / n)
        return np.zeros(k, np.intp)

    def draw_one_by_one(tiles, k, uniforms):
        made.append(sampled._SLOWER * uniforms.shape[1] * tiles.mass.size / n)
        return np.zeros(k, np.intp)

    monkeypatch.setattr(sampled, "draw_in_batches", draw)
    monkeypatch.setattr(sampled, "draw_greedy", draw_one_by_one)
    monkeypatch.setattr(kmeans, "draw_greedy", draw_one_by_one)
    if p >= sampled._NARROW:
        # Rows of one feature stand for them.
        monkeypatch.setattr(sampled, "_NARROW", 0)
    rows = SimpleNamespace(n_rows=n, n_features=p, dtype=np.dtype("f4"))
    shapes = [k for k in (2, 11, 100, 300, 1000, 2048, 3000, 10_000, 100_000) if k <= n]
    for k in (k for k in shapes if k >= sampled._MANY or is_large(k, p)):
        count = n_candidates(rows, k, 2.0, 5)
        far = min(first_rows(k) // 4, n // 8)
        at_once = sampled.drawn_at_once(rows, k)
        size = count + min(far, sampled._LARGE_FAR) if at_once else first_rows(k) + far
        part = np.zeros((min(n, size), 1))
        sample = SimpleNamespace(
            total=1.0, size=n, n_rows=n, part=lambda _, part=part: (part, np.ones(len(part)), 0.0)
        )
        if at_once:
            assert large_starts(sample, k, [0], np.zeros(1), count) is not None
        else:
            monkeypatch.setattr(kmeans, "filled", lambda x, mean: x)
            kmeans.greedy_tries(sample, np.zeros((10 * k, 1)), k, 0, np.zeros(1))
        # The farthest rows are measured against some of the others.
        usual = min(k, sampled._LARGE_USUAL) if at_once else k
        assert sum(made) + usual / k < 5
        made.clear()


def test_many_centers_of_few_rows_each_need_no_rounds() -> None:
    X = np.random.default_rng(0).random((20_000, 2), np.float32)
    model = KMeans(300, random_state=0, max_iter=1).fit(X)
    # The survey, the drawn rows, the farthest ones, an iteration, and the last assignment.
    assert model.history_[0]["passes"] <= 4
    greedy = KMeans(300, init="k-means++", algorithm="lloyd", random_state=0, max_iter=1).fit(X)
    assert model.inertia_ < 0.9 * greedy.inertia_


def test_many_narrow_centers_find_small_clusters_far_away() -> None:
    X = np.random.default_rng(0).random((20_000, 2), np.float32)
    X[::2500] += 100 * np.arange(1, 9, dtype=np.float32)[:, None]
    model = KMeans(300, random_state=0, max_iter=2).fit(X)
    assert len(np.unique(model.labels_[::2500])) == 8
