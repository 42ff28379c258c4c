"""Swaps of centers: what one swap repairs, by hand and compared with many restarts."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.cluster import KMeans as SklearnKMeans

from daskclust.core.initialization.swaps import WeightedRows, _propose, improve_by_swaps
from daskclust.core.kernels.halves import halve


def rows_of(x: np.ndarray, weight: np.ndarray | None = None) -> WeightedRows:
    weight = np.ones(len(x)) if weight is None else weight
    return WeightedRows(x, weight, weight @ x / weight.sum())


def split(x: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, float]:
    halves = np.empty((2, x.shape[1]))
    return halves, halve(x, weight, np.arange(len(x)), halves)


def test_a_cluster_is_split_in_its_two_groups_by_hand() -> None:
    halves, gain = split(np.array([[0.0], [2.0], [10.0]]), np.array([1.0, 1.0, 2.0]))
    assert sorted(halves.ravel().tolist()) == [1.0, 10.0]
    # About the mean 5.5 the cost is 30.25 + 12.25 + 2 * 20.25 = 83; of the two groups 2.
    assert gain == pytest.approx(81.0)


@pytest.mark.parametrize("x", [np.zeros((1, 2)), np.ones((5, 2))])
def test_equal_rows_are_not_split(x) -> None:
    assert split(x, np.ones(len(x)))[1] == 0.0
    assert split(x + np.arange(len(x))[:, None], np.zeros(len(x)))[1] == 0.0


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_halves_are_means_and_the_gain_is_the_fall_of_the_cost(seed, dtype) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(300, 7)).astype(dtype)
    members = np.flatnonzero(rng.random(300) < 0.5)
    x[members[::3], 2] += 8.0
    weight, halves = rng.random(300), np.empty((2, 7))
    gain = halve(x, weight, members, halves)
    rows, mass = x[members].astype(np.float64), weight[members]
    side = np.arange(len(members)) % 3 == 0
    means = [np.average(rows[s], axis=0, weights=mass[s]) for s in (side, ~side)]
    found = halves[np.argsort(-halves[:, 2])]
    assert_allclose(found, means, rtol=1e-6, atol=1e-6)

    def cost(rows: np.ndarray, mass: np.ndarray) -> float:
        return float(mass @ ((rows - np.average(rows, axis=0, weights=mass)) ** 2).sum(axis=1))

    parts = cost(rows[side], mass[side]) + cost(rows[~side], mass[~side])
    assert gain == pytest.approx(cost(rows, mass) - parts, rel=1e-6)


def test_the_cheapest_merge_pays_for_the_best_split_by_hand() -> None:
    x = np.array([[0.0], [1.0], [20.0], [30.0]])
    # Two centers on the first two rows, one on the other two.
    centers = np.array([[0.0], [1.0], [25.0]])
    proposal, split = _propose(rows_of(x), centers, 3, set())
    assert split == [2]
    assert sorted(proposal.ravel().tolist()) == [0.5, 20.0, 30.0]
    # Not if the cluster may not be split, and not if the merge costs more than the split gains.
    assert _propose(rows_of(x), centers, 3, {2})[1] == []
    best = np.array([[0.5], [20.0], [30.0]])
    assert _propose(rows_of(x), best, 3, set())[1] == []


def test_an_empty_cluster_is_merged_first() -> None:
    x = np.array([[0.0], [0.1], [10.0], [10.1], [50.0]])
    found, cost = improve_by_swaps(rows_of(x), np.array([[5.0], [50.0], [1000.0]]), 10**6)
    assert cost == pytest.approx(0.01)
    assert_allclose(np.sort(found.ravel()), [0.05, 10.05, 50.0])


@pytest.mark.parametrize("seed", range(3))
def test_the_cost_never_rises_and_is_that_of_ten_restarts(seed) -> None:
    rng = np.random.default_rng(seed)
    centers = 6.0 * rng.normal(size=(20, 5))
    x = centers[rng.integers(20, size=3000)] + rng.normal(size=(3000, 5))
    rows = rows_of(x)
    first = x[:20].copy()
    found, _ = improve_by_swaps(rows, first, 10**9)
    (_, before), (_, after) = rows.iterate(first, 50), rows.iterate(found, 50)
    peer = SklearnKMeans(20, n_init=10, random_state=seed).fit(x).inertia_
    assert after <= before
    assert after <= 1.001 * peer


def test_an_integer_weight_equals_repetition() -> None:
    rng = np.random.default_rng(0)
    x, weight = rng.normal(size=(200, 3)), rng.integers(1, 4, 200).astype(float)
    once, _ = improve_by_swaps(rows_of(x, weight), x[:6].copy(), 10**8)
    again = rows_of(np.repeat(x, weight.astype(int), axis=0))
    repeated, _ = improve_by_swaps(again, x[:6].copy(), 10**8)
    assert_allclose(once, repeated, rtol=1e-9)


def test_the_search_is_the_same_every_time() -> None:
    x = np.random.default_rng(1).normal(size=(500, 4))
    found = [improve_by_swaps(rows_of(x), x[:8].copy(), 10**8)[0] for _ in range(2)]
    assert_array_equal(*found)
