import numpy as np
import pytest

from daskclust.kernels.starts.d2_sampling import approach, draw_apart


def brute_force(points, mass, k, uniforms, n_first):
    """Draw by the definition: the first point whose running sum of odds exceeds u times all."""
    chosen = list(range(n_first))
    while len(chosen) < k:
        odds = mass
        if chosen:
            squared = ((points[:, None] - points[chosen]) ** 2).sum(axis=2).min(axis=1)
            odds = squared * mass if (squared * mass).any() else squared
        if not odds.any():
            break
        steps = np.cumsum(odds)
        chosen.append(int(np.searchsorted(steps, uniforms[len(chosen)] * steps[-1], "right")))
    return chosen


def test_draws_by_hand():
    points = np.array([[0.0], [1.0], [3.0]])
    mass = np.array([1.0, 2.0, 1.0])
    # The first by mass: 1, 2, 1 of 4; then D^2 from 1 is 1, 0, 4 of 5.
    assert draw_apart(points, mass, 2, np.array([0.3, 0.1])).tolist() == [1, 0]
    assert draw_apart(points, mass, 2, np.array([0.3, 0.2])).tolist() == [1, 2]
    assert draw_apart(points, mass, 1, np.array([0.99])).tolist() == [2]


@pytest.mark.parametrize("n", [1, 7, 64, 65, 300])
@pytest.mark.parametrize("n_first", [0, 1, 3])
def test_draws_equal_brute_force(n, n_first):
    rng = np.random.default_rng([n, n_first])
    # Half-integers: sums are exact, so that both agree on every draw.
    points = rng.integers(-20, 20, size=(n, 5)) / 2
    mass = rng.integers(0, 9, size=n).astype(float)
    mass[0] = 1.0
    n_first = min(n, n_first)
    k = min(n, 20)
    uniforms = rng.random(k)
    expected = brute_force(points, mass, k, uniforms, n_first)
    assert draw_apart(points, mass, k, uniforms, n_first).tolist() == expected


def test_points_without_mass_come_last_and_repeated_ones_never():
    points = np.array([[0.0], [5.0], [0.0], [9.0], [5.0]])
    mass = np.array([1.0, 0.0, 1.0, 1.0, 0.0])
    found = draw_apart(points, mass, 5, np.full(5, 0.5))
    assert len(found) == 3
    assert {points[i, 0] for i in found[:2]} == {0.0, 9.0}
    assert points[found[2], 0] == 5.0


def test_draws_have_the_odds_of_their_definition():
    points = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [3.0, 3.0]])
    mass = np.array([1.0, 3.0, 2.0, 1.0])
    uniforms = np.random.default_rng(0).random((20_000, 2))
    second = [draw_apart(points, mass, 2, u, 1)[1] for u in uniforms]
    odds = mass * (points**2).sum(axis=1)
    share = np.bincount(second, minlength=4) / len(second)
    assert share == pytest.approx(odds / odds.sum(), abs=4 * 0.5 / np.sqrt(len(second)))


def test_input_is_not_written_to():
    points, mass, uniforms = np.arange(8.0).reshape(4, 2), np.ones(4), np.full(3, 0.25)
    for array in (points, mass, uniforms):
        array.flags.writeable = False
    assert len(draw_apart(points, mass, 3, uniforms)) == 3


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_are_measured_until_they_fall_behind(dtype):
    rng = np.random.default_rng(4)
    x = rng.integers(-9, 9, size=(50, 7)).astype(dtype)
    candidates = rng.integers(-9, 9, size=(30, 7)).astype(float)
    seen = rng.integers(0, 31, size=50).astype(np.int32)
    all_distances = ((x[:, None].astype(float) - candidates) ** 2).sum(axis=2)
    distance = np.array(
        [row[:m].min(initial=500.0) for row, m in zip(all_distances, seen, strict=True)]
    )
    arrival, limit = rng.exponential(100.0, size=50), 1.0
    expected_distance, expected_seen = distance.copy(), seen.copy()
    places = rng.permutation(50)[:40]
    for i, e in zip(places, arrival[:40], strict=True):
        while expected_seen[i] < 30 and e / expected_distance[i] <= limit:
            found = all_distances[i, expected_seen[i]]
            expected_distance[i] = min(expected_distance[i], found)
            expected_seen[i] += 1
    approach(x, candidates, places, arrival[:40], limit, distance, seen)
    assert distance.tolist() == expected_distance.tolist()
    assert seen.tolist() == expected_seen.tolist()
    assert 0 < (seen[places] < 30).sum() < 40


def test_without_a_limit_rows_meet_all_candidates():
    x, candidates = np.array([[0.0], [7.0]]), np.array([[4.0], [6.0], [9.0]])
    distance, seen = np.full(2, np.inf), np.zeros(2, dtype=np.int32)
    approach(x, candidates, np.array([1]), np.ones(1), np.inf, distance, seen)
    assert distance.tolist() == [np.inf, 1.0]
    assert seen.tolist() == [0, 3]


def test_rows_that_know_the_first_candidate_only_try_promising_ones_first():
    rng = np.random.default_rng(8)
    centers = 50 * rng.normal(size=(40, 6))
    x = centers[rng.integers(40, size=300)] + rng.normal(size=(300, 6))
    candidates = centers[rng.permutation(np.repeat(np.arange(35), 2))] + rng.normal(size=(70, 6))
    all_distances = ((x[:, None] - candidates) ** 2).sum(axis=2)
    distance, seen = all_distances[:, 0].copy(), np.ones(300, dtype=np.int32)
    arrival, limit = np.full(300, 500.0), 1.0
    approach(x, candidates, np.arange(300), arrival, limit, distance, seen)
    whole = seen == 70
    np.testing.assert_allclose(distance[whole], all_distances[whole].min(axis=1))
    assert (distance[~whole] < 500.0).all()
    np.testing.assert_allclose(np.abs(all_distances - distance[:, None]).min(axis=1), 0, atol=1e-9)
    # Rows of clusters without a candidate meet all; of the others most need few.
    assert 0 < whole.sum() < 60
    assert (seen == 1).sum() > 150
