"""Initial centers: known centers, too few distinct rows, and the fallback of a collapsed fit."""

from __future__ import annotations

import numpy as np
import pytest
from oracles.problems import initialization_of

from daskclust.core.engine import open_rows
from daskclust.core.initialization.centers import initial_centers, match
from daskclust.core.initialization.few_points import cluster_few

GRID = np.array([[float(10 * i), float(10 * j)] for i in range(3) for j in range(3)])
X = np.repeat(GRID, 20, axis=0) + np.random.default_rng(0).normal(scale=0.1, size=(180, 2))
INITS = ["k-means||", "k-means++", "random"]


def start(init, known, k, seeds=(1, 2)):
    rows = open_rows(X)
    problem = initialization_of(rows, k, seeds, init=init, known=known)
    before = rows.passes
    return initial_centers(problem), rows.passes - before


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("m", [1, 4, 8, 9])
def test_known_centers_come_first(init, m):
    fixed = GRID[:m] + 0.05
    centers, passes = start(init, fixed, 9)
    assert centers.shape == (2, 9, 2)
    for found in centers:
        if init == "k-means||" and m < 9:
            # The mean of the rows near a known center, and not the known center.
            np.testing.assert_allclose(found[:m], X.reshape(9, 20, 2).mean(axis=1)[:m])
        else:
            np.testing.assert_array_equal(found[:m], fixed)
    missing = 9 - m
    assert passes == (
        0 if not missing else {"k-means||": 1, "k-means++": missing, "random": 0}[init]
    )
    if init != "random":
        # Sampled away from what is covered: every blob has its center.
        for found in centers:
            nearest = np.abs(found[:, None] - GRID).max(axis=2).argmin(axis=1)
            assert sorted(nearest) == list(range(9))


def test_centers_are_matched_to_known_ones_by_hand():
    centers = np.array([[0.0], [10.0], [20.0], [30.0]])
    # 19 is nearest to 20, but 21 is nearer to it and 10 is the next best partner of 14.
    known = np.array([[21.0], [14.0]])
    assert match(centers, known).ravel().tolist() == [20.0, 10.0, 0.0, 30.0]
    assert match(centers, known[:0]).ravel().tolist() == [0.0, 10.0, 20.0, 30.0]


@pytest.mark.parametrize("init", INITS)
def test_no_fixed_centers_are_none_at_all(init):
    np.testing.assert_array_equal(start(init, np.empty((0, 2)), 9)[0], start(init, None, 9)[0])


def test_fewer_distinct_rows_than_centers_are_repeated():
    rows = open_rows(np.repeat(GRID[:2], 5, axis=0))
    found = initial_centers(initialization_of(rows, 4, (1,), known=GRID[:2]))
    assert found[0][:2].tolist() == GRID[:2].tolist()
    assert {tuple(center) for center in found[0]} == {tuple(row) for row in GRID[:2]}
    # The survey and the rows.
    assert rows.passes == 2


def test_the_fallback_has_one_restart_and_a_fixed_seed():
    problems = [
        initialization_of(open_rows(X), 9, seeds, init="random") for seeds in [(1,), (1, 2, 3)]
    ]
    one, several = (initial_centers(problem.fallback()) for problem in problems)
    assert one.shape == several.shape == (1, 9, 2)
    np.testing.assert_array_equal(np.sort(one, axis=1), np.sort(several, axis=1))


def test_a_few_weighted_points_are_clustered_by_hand():
    points = np.array([[0.0], [1.0], [10.0], [12.0]])
    mass = np.array([5.0, 1.0, 3.0, 1.0])
    assert sorted(cluster_few(points, mass, 2, 0).ravel()) == [pytest.approx(1 / 6), 10.5]
    assert sorted(cluster_few(points, mass, 4, 0).ravel()) == points.ravel().tolist()
