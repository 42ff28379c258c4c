"""Greedy k-means++: draws by hand and against a loop."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import plain_kernels

from daskclust.core.kernels.compiling import compiled
from daskclust.core.kernels.draws import draw_greedy, in_tiles, n_draws
from daskclust.core.kernels.nearest import row_loops
from daskclust.core.kernels.nearest.row_loops import WIDTH


def draw(points: np.ndarray, mass: np.ndarray, k: int, uniforms: np.ndarray) -> np.ndarray:
    return draw_greedy(in_tiles(points, mass), k, uniforms)


def looped(points: np.ndarray, mass: np.ndarray, k: int, uniforms: np.ndarray) -> list[int]:
    """Draw by cumulative odds, one candidate after another, and keep the best."""
    squared, places = np.ones(len(points)), []
    for count in range(k):
        odds = mass * squared
        if not odds.any():
            break
        reached = np.cumsum(odds)
        best = (np.inf, -1, squared)
        for uniform in uniforms[count, : n_draws(k) if count else 1]:
            place = int(np.searchsorted(reached, uniform * reached[-1], side="right"))
            apart = ((points - points[place]) ** 2).sum(axis=1)
            left = np.minimum(squared, apart) if count else apart
            best = min(best, ((mass * left).sum(), place, left), key=lambda found: found[0])
        places.append(best[1])
        squared = best[2]
    return places


@pytest.mark.parametrize("seed", range(12))
def test_draws_are_those_of_a_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    # Below, at and above whole tiles.
    sizes = [5, WIDTH - 1, WIDTH, WIDTH + 1, 5 * WIDTH + 60]
    m, p, k = int(rng.choice(sizes)), int(rng.integers(1, 9)), 5
    points, mass = rng.normal(size=(m, p)), rng.integers(0, 4, m).astype(float)
    mass[0] = 1.0
    uniforms = rng.random((k, n_draws(k)))
    wanted = looped(points, mass, k, uniforms)
    assert draw(points, mass, k, uniforms).tolist() == wanted
    assert draw(points + 1e6, mass, k, uniforms).tolist() == wanted


def test_of_two_draws_the_better_is_kept_by_hand() -> None:
    points, mass = np.array([[0.0], [10.0], [11.0]]), np.ones(3)
    # After 0: odds 0, 100, 121 of 221. Left by 10: 1; by 11: 1; equal costs go to the first.
    for draws, place in (((0.9, 0.1), 2), ((0.1, 0.9), 1)):
        assert draw(points, mass, 2, np.array([[0.0, 0.0], draws])).tolist() == [0, place]
    # With weight, 11 leaves 1 and 10 leaves 5.
    mass = np.array([1.0, 1.0, 5.0])
    assert draw(points, mass, 2, np.array([[0.0, 0.0], [0.1, 0.9]])).tolist() == [0, 2]


def test_points_that_repeat_those_drawn_and_points_without_mass_are_not_drawn() -> None:
    points = np.array([[1.0], [1.0], [2.0], [3.0]])
    uniforms = np.full((4, 3), 0.999999)
    assert draw(points, np.array([1.0, 1.0, 1.0, 0.0]), 4, uniforms).tolist() == [2, 1]


@pytest.mark.parametrize("scale", [1e-140, 1e-30, 1e30, 1e140])
def test_the_scale_does_not_matter(scale: float) -> None:
    rng = np.random.default_rng(0)
    points, uniforms = rng.normal(size=(50, 3)), rng.random((4, 3))
    wanted = draw(points, np.ones(50), 4, uniforms)
    np.testing.assert_array_equal(draw(points * scale, np.ones(50), 4, uniforms), wanted)


@compiled()
def emitted_cost(points, t, tries, c, mass, old, into):
    return row_loops.cost_of_tile(points, t, tries, c, mass, old, into)


@pytest.mark.parametrize(
    ("width", "weigh"),
    [(row_loops.WIDTH, emitted_cost), (plain_kernels.WIDTH, plain_kernels.cost_of_tile)],
)
def test_a_tile_is_weighed_and_lowered(width, weigh) -> None:
    rng = np.random.default_rng(3)
    points = rng.normal(size=(3, 5, width)).astype(np.float32)
    tries = rng.normal(size=(2, 5)).astype(np.float32)
    mass, before = rng.random((3, width)), rng.exponential(8.0, (3, width)).astype(np.float32)
    old = before.copy()
    gaps = points[1].astype(float) - tries[1, :, None]
    wanted = np.minimum((gaps**2).sum(axis=0), before[1])
    total = weigh(points, 1, tries, 1, mass, old, ())
    assert total == pytest.approx((wanted * mass[1]).sum(), rel=1e-6)
    np.testing.assert_array_equal(old, before)
    assert weigh(points, 1, tries, 1, mass, old, old) == total
    np.testing.assert_allclose(old[1], wanted, rtol=1e-6)
    assert total == pytest.approx((old[1] * mass[1]).sum(), rel=1e-13)
    # One value decreases, one stays, and no value outside the tile is written.
    assert 0 < (old[1] < before[1]).sum() < width
    np.testing.assert_array_equal(old[[0, 2]], before[[0, 2]])
