"""Densities and outlier factors against plain formulas with all distances at hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import minimum_spanning_tree
from sklearn.neighbors import LocalOutlierFactor

from daskclust.core.initialization.deterministic import dkm_rows, robin_rows
from daskclust.core.kernels.local_density import (
    local_densities,
    local_outlier_factors,
    weighted_quantile,
)


def distances(x: np.ndarray) -> np.ndarray:
    return np.sqrt(((x[:, None] - x) ** 2).sum(axis=2))


def densities_oracle(x: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
    """Densities, radius and edges; SciPy, too, takes a distance of 0 for no edge."""
    d = distances(x)
    d /= d.max()
    edges = np.sort(minimum_spanning_tree(d).data)
    first, third = np.quantile(edges, [0.25, 0.75], method="hazen")
    radius = min(edges[-1], third + 3 * (third - first))
    near = np.where(d <= radius * (1 + 1e-12), np.exp(-d / radius), 0.0)
    return near.sum(axis=1) - 1, radius, edges


def outliers_oracle(x: np.ndarray, k: int) -> np.ndarray:
    d = distances(x)
    np.fill_diagonal(d, np.inf)
    near = d <= np.sort(d, axis=1)[:, min(k, len(x) - 1) - 1, None]
    mean = np.array([d[i, near[i]].mean() for i in range(len(x))])
    return np.array([(mean[i] / mean[near[i]]).mean() for i in range(len(x))])


def problem(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rng.integers(3, 40), rng.integers(1, 7)))
    return np.concatenate([x, x[:2]]) if rng.random() < 0.3 else x


SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS)
def test_densities_are_those_of_the_formula(seed: int) -> None:
    x = problem(seed)
    found = local_densities(x, np.ones(len(x)))
    density, radius, edges = densities_oracle(x)
    np.testing.assert_allclose(found.edges, edges, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.radius, radius, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.density, density, rtol=0, atol=1e-11)


@given(SEEDS, st.integers(1, 12))
def test_outlier_factors_are_those_of_the_formula(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 6, (20, 2)) + 1e-3 * rng.normal(size=(20, 2))
    np.testing.assert_allclose(
        local_outlier_factors(x, np.ones(20), k), outliers_oracle(x, k), rtol=1e-12
    )


def test_ties_with_the_last_neighbor_are_neighbors() -> None:
    x = np.array([[0.0], [1.0], [-1.0], [5.0], [-7.0]])
    np.testing.assert_allclose(
        local_outlier_factors(x, np.ones(5), 1), outliers_oracle(x, 1), rtol=1e-14
    )


def test_far_rows_are_outliers_as_scikit_learn_says() -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(60, 3)), [[30.0, 0.0, 0.0]]])
    theirs = -LocalOutlierFactor(10).fit(x).negative_outlier_factor_
    ours = local_outlier_factors(x, np.ones(61))
    assert ours.argmax() == theirs.argmax() == 60
    assert np.corrcoef(ours, theirs)[0, 1] > 0.99


@given(SEEDS)
def test_a_weight_is_a_count(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = problem(seed)
    count = rng.integers(1, 5, len(x))
    rows = np.repeat(np.arange(len(x)), count)
    one, many = (
        local_densities(x, count.astype(float)),
        local_densities(x[rows], np.ones(len(rows))),
    )
    np.testing.assert_allclose(np.repeat(one.edges, one.counts.astype(int)), many.edges, atol=1e-13)
    np.testing.assert_allclose(one.radius, many.radius, rtol=1e-12)
    np.testing.assert_allclose(one.density[rows], many.density, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        local_outlier_factors(x, count.astype(float), 3)[rows],
        local_outlier_factors(x[rows], np.ones(len(rows)), 3),
        rtol=1e-9,
    )


@given(SEEDS, st.floats(0, 1))
def test_quantiles_of_counted_values_are_numpys(seed: int, q: float) -> None:
    rng = np.random.default_rng(seed)
    values = np.sort(rng.normal(size=rng.integers(1, 8)))
    count = rng.integers(1, 4, len(values))
    assert weighted_quantile(values, count.astype(float), q) == pytest.approx(
        np.quantile(np.repeat(values, count), q, method="hazen")
    )


@pytest.mark.parametrize("m", [1, 2, 5])
def test_rows_that_are_all_equal(m: int) -> None:
    x = np.full((m, 2), 3.0)
    found = local_densities(x, np.ones(m))
    assert found.radius == 0
    assert found.density.tolist() == [m - 1.0] * m
    assert local_outlier_factors(x, np.ones(m)).tolist() == [1.0] * m
    assert len(dkm_rows(x, np.ones(m), 3)) == 1
    assert len(robin_rows(x, np.ones(m), 3)) == 1


def test_a_row_beside_rows_that_are_all_equal_is_an_outlier() -> None:
    x = np.array([[0.0]] * 4 + [[1.0]])
    assert local_outlier_factors(x, np.ones(5), 2).tolist() == [1, 1, 1, 1, np.inf]
    # There are no rows except equal rows.
    assert robin_rows(x, np.ones(5), 3).tolist() == [0, 4]


def test_the_sparsest_row_is_taken_when_it_is_all_there_is() -> None:
    x = np.array([[0.0], [0.0], [1.0]])
    assert dkm_rows(x, np.ones(3), 2).tolist() == [0, 2]
    assert dkm_rows(x, np.ones(3), 3).tolist() == [0, 2]


def test_float32_rows_are_compared_in_float64() -> None:
    x = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
    weight = np.ones(30)
    np.testing.assert_array_equal(
        local_densities(x, weight).density, local_densities(x.astype(float), weight).density
    )
