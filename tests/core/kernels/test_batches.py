"""Greedy k-means++ by batches: draws by hand, against a loop, and in any order of the calls."""

from __future__ import annotations

import numpy as np
import pytest

from daskclust.core.kernels import draws
from daskclust.core.kernels.draws import (
    draw_greedy,
    draw_in_batches,
    in_tiles,
    in_wide_tiles,
)


def in_turn(calls):
    for call in calls:
        call()


def draw(points, mass, k, n_draws, seed=0, run=in_turn, n_first=0):
    tiles = in_wide_tiles(points, mass)
    return draw_in_batches(tiles, k, n_draws, np.random.default_rng(seed), run, n_first)


def left(points, mass, places):
    apart = ((points[:, None] - points[places]) ** 2).sum(axis=2)
    return mass @ apart.min(axis=1)


def looped(points, mass, k, n_draws, seed):
    """Draw batches with the same random numbers; choose from each by recomputed costs."""
    rng, last = np.random.default_rng(seed), len(points) - 1
    places, squared = [], np.ones(len(points))
    while len(places) < k:
        wanted = min(k - len(places), len(places) // 10, 64 // n_draws) or 1
        odds = np.cumsum(mass * squared)
        draws = np.searchsorted(odds, rng.random(wanted * n_draws if places else 1) * odds[-1])
        draws = np.unique(np.minimum(draws, last))
        for _ in range(wanted):
            costs = [left(points, mass, [*places, d]) for d in draws]
            places.append(int(draws[np.argmin(costs)]))
            squared = ((points[:, None] - points[places]) ** 2).sum(axis=2).min(axis=1)
    return places


@pytest.mark.parametrize("m", [60, 1024, 1500])
def test_draws_are_those_of_a_loop(m: int) -> None:
    rng = np.random.default_rng(m)
    points, mass = rng.normal(size=(m, 3)), rng.integers(1, 4, m).astype(float)
    found = draw(points, mass, 25, 3, seed=m)
    assert found.tolist() == looped(points, mass, 25, 3, m)
    # Far from 0, and in other units.
    assert draw(1e3 * points + 1e4, mass, 25, 3, seed=m).tolist() == found.tolist()


def test_the_order_of_the_calls_does_not_matter() -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(2500, 40)).astype(np.float32)
    mass = rng.random(2500)
    found = draw(points, mass, 300, 4)
    backwards = draw(points, mass, 300, 4, run=lambda calls: in_turn(calls[::-1]))
    np.testing.assert_array_equal(backwards, found)
    assert len(set(found.tolist())) == 300
    random = np.mean([left(points, mass, rng.choice(2500, 300, False)) for _ in range(3)])
    assert left(points, mass, found) < random


def test_points_that_repeat_those_drawn_and_points_without_mass_are_not_drawn() -> None:
    points = np.array([[1.0, 7.0], [1.0, 7.0], [2.0, 7.0], [3.0, 7.0]])
    found = draw(points, np.array([1.0, 1.0, 1.0, 0.0]), 4, 3)
    assert len(found) == 2
    assert set(points[found, 0]) == {1.0, 2.0}


@pytest.mark.parametrize("scale", [1e-140, 1e-30, 1e30, 1e140])
def test_the_scale_does_not_matter(scale: float) -> None:
    points = np.random.default_rng(0).normal(size=(50, 3))
    wanted = draw(points, np.ones(50), 4, 2)
    np.testing.assert_array_equal(draw(points * scale, np.ones(50), 4, 2), wanted)


def test_a_batch_is_no_more_than_its_share(monkeypatch) -> None:
    sizes = []

    def run(calls):
        sizes.append(len(calls[0].args[0]))
        in_turn(calls)

    points = np.random.default_rng(1).normal(size=(3000, 2))
    draw(points, np.ones(3000), 200, 4, run=run)
    assert sizes[0] == 1
    assert max(sizes[:20]) <= 4
    assert 32 < max(sizes) <= draws._BATCH


@pytest.mark.parametrize("kind", ["batches", "one by one"])
def test_the_first_points_count_as_drawn(kind) -> None:
    # The known points cover two of three groups, so the third draw is from the third group.
    points = np.array([[0.0], [10.0], *[[0.0]] * 20, *[[10.0]] * 20, *[[50.0]] * 3])
    mass = np.ones(len(points))
    for seed in range(20):
        if kind == "batches":
            places = draw(points, mass, 3, 2, seed=seed, n_first=2)
        else:
            uniforms = np.random.default_rng(seed).random((3, 2))
            places = draw_greedy(in_tiles(points, mass), 3, uniforms, 2)
        assert places[:2].tolist() == [0, 1]
        assert points[places[2], 0] == 50.0
