"""Lloyd's iterations over a few weighted points."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import plain_kernels

from daskclust.core.kernels.nearest import _tiles
from daskclust.core.kernels.nearest.assign import accumulate, cluster_points, no_statistics


def test_by_hand() -> None:
    points = np.array([[0.0], [2.0], [10.0], [16.0], [99.0]])
    mass = np.array([3.0, 1.0, 1.0, 2.0, 0.0])
    # First 0 and 2 against 10 and 16: means 0.5 and 14; no point changes sides.
    centers, cost = cluster_points(
        points, mass, np.array([[1.0], [10.0]]), max_iter=9, shift=np.zeros(1)
    )
    assert centers.tolist() == [[0.5], [14.0]]
    assert cost == 3 * 0.25 + 2.25 + 16.0 + 2 * 4.0
    # One iteration compares with the first centers only.
    centers, cost = cluster_points(
        points, mass, np.array([[1.0], [10.0]]), max_iter=1, shift=np.zeros(1)
    )
    assert centers.tolist() == [[0.5], [14.0]]
    assert cost == 3 * 1.0 + 1.0 + 0.0 + 2 * 36.0


def test_fixed_centers_and_those_without_points_stay() -> None:
    points, given_ = np.array([[0.0], [1.0], [9.0]]), np.array([[-1.0], [50.0], [8.0]])
    centers, _ = cluster_points(points, np.ones(3), given_, max_iter=9, shift=np.zeros(1))
    assert centers.tolist() == [[0.5], [50.0], [9.0]]
    assert given_.tolist() == [[-1.0], [50.0], [8.0]]
    centers, cost = cluster_points(
        points, np.ones(3), given_, max_iter=9, shift=np.zeros(1), n_fixed=1
    )
    assert centers.tolist() == [[-1.0], [50.0], [9.0]]
    assert cost == 1.0 + 4.0


def _by_numpy(points, mass, centers, n_fixed, max_iter):
    for _ in range(max_iter):
        squared = ((points[:, None] - centers) ** 2).sum(axis=2)
        owner = squared.argmin(axis=1)
        cost = (mass * squared.min(axis=1)).sum()
        moved = centers.copy()
        for c in range(n_fixed, len(centers)):
            if mass[owner == c].sum() > 0:
                moved[c] = np.average(points[owner == c], axis=0, weights=mass[owner == c])
        if np.array_equal(moved, centers):
            break
        centers = moved
    return centers, cost


@given(
    seed=st.integers(0, 2**32 - 1),
    m=st.integers(1, 120),
    k=st.integers(1, 40),
    p=st.integers(1, 20),
    n_fixed=st.integers(0, 3),
    max_iter=st.integers(1, 6),
)
def test_equals_lloyd_by_numpy(seed, m, k, p, n_fixed, max_iter) -> None:
    rng = np.random.default_rng(seed)
    points, mass = 3.0 + rng.normal(size=(m, p)), rng.integers(0, 4, m) / 2.0
    start, n_fixed = 3.0 + rng.normal(size=(k, p)), min(n_fixed, k)
    found, cost = cluster_points(
        points, mass, start, max_iter=max_iter, shift=points.mean(axis=0), n_fixed=n_fixed
    )
    expected, least = _by_numpy(points, mass, start, n_fixed, max_iter)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert cost == pytest.approx(least, rel=1e-10)


@pytest.mark.parametrize("k", [3, 7, 16, 45])
@pytest.mark.parametrize("module", [_tiles, plain_kernels])
def test_sweeps_of_centers_that_move_equal_those_of_a_block(module, k) -> None:
    rng = np.random.default_rng(k)
    points, mass = rng.normal(size=(90, 5)), rng.random(90)
    centers = rng.normal(size=(k, 5)) + 7.0
    shift, stats = points.mean(axis=0), no_statistics(k, 5)
    out = np.array([90]), stats, np.empty(0, np.int32), np.empty(0)
    sweep = module.sweeper(points, mass, centers, None, shift, *out)
    for _ in range(3):
        # Far from the origin first, and amid the points then.
        stats.hi[:], stats.lo[:] = 0.0, 0.0
        sweep()
        alone = accumulate(points, centers, weight=mass, shift=shift)
        np.testing.assert_array_equal(stats.hi[:, 5:], alone.hi[:, 5:])
        np.testing.assert_allclose(stats.hi + stats.lo, alone.hi + alone.lo, rtol=0, atol=1e-12)
        centers[:] = rng.normal(size=(k, 5))


def test_weights_of_another_number_are_refused() -> None:
    with pytest.raises(ValueError, match="got 3 points and 2 weights"):
        cluster_points(
            np.zeros((3, 1)), np.ones(2), np.zeros((1, 1)), max_iter=1, shift=np.zeros(1)
        )


def test_no_centers_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"Rows must be compared with at least one center, got none\."
    ):
        cluster_points(
            np.zeros((3, 1)), np.ones(3), np.zeros((0, 1)), max_iter=1, shift=np.zeros(1)
        )
