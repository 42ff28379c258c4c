"""Starts that begin with centers which are known beforehand."""

from __future__ import annotations

import numpy as np
import pytest

from daskclust.engine import open_rows
from daskclust.reduction import SURVEY, SurveyRequest
from daskclust.starts.sampled import recluster, sample_centers

GRID = np.array([[float(10 * i), float(10 * j)] for i in range(3) for j in range(3)])
X = np.repeat(GRID, 20, axis=0) + np.random.default_rng(0).normal(scale=0.1, size=(180, 2))
INITS = ["k-means||", "k-means++", "random"]


def start(init, fixed, k, seeds=(1, 2), rounds=5):
    rows = open_rows(X)
    survey = rows.reduce(SURVEY, SurveyRequest(2, seeds, k))
    before = rows.passes
    found = sample_centers(
        rows,
        survey,
        init,
        k,
        seeds,
        oversampling_factor=2.0,
        init_rounds=rounds,
        shift=survey.mean,
        fixed=fixed,
    )
    return found, rows.passes - before


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("m", [1, 4, 8, 9])
def test_fixed_centers_come_first_and_do_not_move(init, m):
    fixed = GRID[:m] + 0.05
    centers, passes = start(init, fixed, 9)
    assert centers.shape == (2, 9, 2)
    for found in centers:
        np.testing.assert_array_equal(found[:m], fixed)
    missing = 9 - m
    assert passes == (
        0 if not missing else {"k-means||": 6, "k-means++": missing, "random": 0}[init]
    )
    if init != "random":
        # Sampled away from what is covered: every blob has its center.
        for found in centers:
            nearest = np.abs(found[:, None] - GRID).max(axis=2).argmin(axis=1)
            assert sorted(nearest) == list(range(9))


@pytest.mark.parametrize("init", INITS)
def test_no_fixed_centers_are_none_at_all(init):
    np.testing.assert_array_equal(start(init, np.empty((0, 2)), 9)[0], start(init, None, 9)[0])


def test_rounds_end_where_nothing_is_left_to_draw():
    rows = open_rows(np.repeat(GRID[:2], 5, axis=0))
    survey = rows.reduce(SURVEY, SurveyRequest(2, (1,), 1))
    found = sample_centers(
        rows,
        survey,
        "k-means||",
        4,
        (1,),
        oversampling_factor=2.0,
        init_rounds=5,
        shift=None,
        fixed=GRID[:2],
    )
    assert found[0].tolist() == [*GRID[:2].tolist(), *[GRID[0].tolist()] * 2]
    # The survey, a round that finds nothing, and the weighing.
    assert rows.passes == 3


def test_reclustering_moves_all_but_the_fixed_candidates():
    points = np.array([[0.0], [1.0], [10.0], [12.0]])
    mass = np.array([5.0, 1.0, 3.0, 1.0])
    assert recluster(points, mass, 2, 0, 1).tolist() == [[0.0], [10.5]]
    assert sorted(recluster(points, mass, 2, 0).ravel()) == [pytest.approx(1 / 6), 10.5]
    # A fixed candidate stays though no row is nearest to it.
    assert recluster(points, np.array([0.0, 1.0, 3.0, 1.0]), 2, 0, 1)[0].tolist() == [0.0]
