import numpy as np
import pytest

from daskclust.core.kernels import draws
from daskclust.core.kernels.draws import approach, draw_apart
from daskclust.core.kernels.nearest.assign import nearest


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


# Few numbers, and one for nearly every row.
@pytest.mark.parametrize("numbers", [[1, 10, 30], np.arange(1, 31)], ids=["few", "many"])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_meet_the_candidates_that_they_have_not_seen(dtype, missing, numbers):
    rng = np.random.default_rng(4)
    x = rng.integers(-9, 9, size=(50, 7)).astype(dtype)
    if missing:
        x[rng.random(x.shape) < 0.3] = np.nan
    candidates = rng.integers(-9, 9, size=(30, 7)).astype(float)
    all_distances = np.nansum((x[:, None].astype(float) - candidates) ** 2, axis=2)
    seen = rng.choice(numbers, size=50).astype(np.int32)
    distance = np.array([row[:m].min() for row, m in zip(all_distances, seen, strict=True)])
    places = rng.permutation(50)[:40]
    expected, others = distance.copy(), np.setdiff1d(np.arange(50), places)
    expected[places] = all_distances[places].min(axis=1)
    before = seen.copy()
    approach(x, candidates, places, distance, seen, shift=np.full(7, 0.5), missing=missing)
    assert distance.tolist() == expected.tolist()
    assert (seen[places] == 30).all()
    assert seen[others].tolist() == before[others].tolist()


def test_rows_are_copied_some_at_a_time(monkeypatch):
    monkeypatch.setattr(draws, "_ROWS", 3)
    x, candidates = np.arange(10.0)[:, None], np.array([[4.0], [6.0], [9.0]])
    distance, seen = (x[:, 0] - 4.0) ** 2, np.ones(10, dtype=np.int32)
    approach(x, candidates, np.arange(9), distance, seen)
    assert distance.tolist() == [16, 9, 4, 1, 0, 1, 0, 1, 1, 25]
    assert seen.tolist() == [3] * 9 + [1]


def test_rows_that_have_seen_different_numbers_share_a_call_if_they_are_few(monkeypatch):
    starts = []

    def measure(x, unseen, **options):
        starts.append((10 - len(unseen), len(x)))
        return nearest(x, unseen, **options)

    monkeypatch.setattr(draws, "nearest", measure)
    monkeypatch.setattr(draws, "_EACH", 4)
    x, candidates = np.arange(10.0)[:, None], np.arange(10.0)[::-1, None].copy()
    for numbers, calls in (
        ([3, 7], [(3, 5), (7, 5)]),
        # Two rows each: those of two numbers together; who has seen all is not measured.
        ([2, 5, 6, 9, 10], [(2, 4), (6, 4)]),
        (range(1, 11), [(1, 4), (5, 4), (9, 2)]),
    ):
        seen = np.resize(np.array(numbers, dtype=np.int32), 10)
        distance = np.maximum(0.0, 10.0 - x[:, 0] - seen) ** 2
        starts.clear()
        approach(x, candidates, np.arange(10), distance, seen)
        assert starts == calls
        assert (seen == 10).all()
        assert distance.tolist() == [0.0] * 10
