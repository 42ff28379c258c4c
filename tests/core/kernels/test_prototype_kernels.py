"""Kernels of prototype graphs: against hand counts and brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from daskclust.core.kernels.nearest.k_nearest import nearest_several
from daskclust.core.kernels.pair_counts import count_adjacent, count_near, count_pairs, merge_counts
from daskclust.core.kernels.projection import project_rows, unit_rows

#: Coordinates on a coarse grid, so that distances tie.
grids = st.integers(0, 2**32 - 1)


def lattice(seed: int, n: int, q: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 3, (n, q)).astype(np.float64)


@given(grids, st.integers(0, 20), st.integers(1, 9), st.integers(1, 4))
def test_nearest_several_is_a_stable_sort_of_all_distances(
    seed: int, n: int, k: int, q: int
) -> None:
    x, centers = lattice(seed, n, q), lattice(seed + 1, k, q)
    count = 1 + seed % k
    indices, distances = nearest_several(x, centers, count)
    everything = ((x[:, None] - centers) ** 2).sum(axis=2)
    expected = np.argsort(everything, axis=1, kind="stable")[:, :count]
    assert_array_equal(indices, expected)
    assert_array_equal(distances, np.take_along_axis(everything, expected, 1))


def test_nearest_of_many_centers_by_hand() -> None:
    # Centers 0, 1, ..., 39, and 12 again.
    centers = np.append(np.arange(40.0), 12.0)[:, None]
    x = np.repeat([[12.25], [-3.0], [38.5]], 6, axis=0)
    indices, distances = nearest_several(x, centers, 3)
    assert_array_equal(indices[::6], [[12, 40, 13], [0, 1, 2], [38, 39, 37]])
    assert_array_equal(distances[::6], [[0.0625, 0.0625, 0.5625], [9, 16, 25], [0.25, 0.25, 2.25]])
    assert_array_equal(indices, np.repeat(indices[::6], 6, axis=0))


@given(
    grids,
    st.integers(24, 90),
    st.integers(1, 11),
    st.sampled_from([1, 3, 8, 20, 33]),
    st.sampled_from([1e-200, 1.0, 1e19, 1e160]),
    st.booleans(),
)
def test_of_many_centers_none_is_passed_over(
    seed: int, k: int, q: int, count: int, unit: float, far: bool
) -> None:
    rng = np.random.default_rng(seed)
    # Ties, distances that are equal in single precision, and rows outside its range.
    x, centers = lattice(seed, 37, q), lattice(seed + 1, k, q)
    x[::2] += rng.normal(scale=1e-9, size=(19, q))
    x[0] *= 1e18
    if far:
        x, centers = x + 1e6, centers + 1e6
    x, centers, count = x * unit, centers * unit, min(count, k)
    found = nearest_several(x, centers, count)
    # Single rows are compared with all centers.  Other blocks are searched by scores.
    for blocks in (np.split(x, len(x)), np.split(x, [17])):
        parts = [nearest_several(block, centers, count) for block in blocks]
        for i, result in enumerate(found):
            assert_array_equal(result, np.concatenate([part[i] for part in parts]))


def test_more_neighbors_than_centers_are_refused() -> None:
    with pytest.raises(ValueError, match=r"count must be in 1\.\.2"):
        nearest_several(np.zeros((1, 1)), np.zeros((2, 1)), 3)


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_projected_row_does_not_depend_on_its_block(unit: bool, dtype: type) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(101, 37)).astype(dtype)
    center, matrix = rng.normal(size=37), rng.normal(size=(37, 11))
    whole = project_rows(x, unit, center, matrix)
    parts = [project_rows(x[i : i + 7], unit, center, matrix) for i in range(0, 101, 7)]
    assert_array_equal(np.concatenate(parts), whole)
    rows = unit_rows(x) if unit else x.astype(np.float64)
    np.testing.assert_allclose(whole, (rows - center) @ matrix, atol=1e-6)


def test_rows_without_a_direction_and_of_any_size_stay_finite() -> None:
    x = np.array([[0.0, 0.0], [3e-200, 4e-200], [3e200, 4e200]])
    expected = [[0.0, 0.0], [0.6, 0.8], [0.6, 0.8]]
    np.testing.assert_allclose(project_rows(x, True, np.zeros(2), np.eye(2)), expected)
    np.testing.assert_allclose(unit_rows(x), expected)


@given(grids, st.integers(0, 30), st.integers(3, 6), st.integers(2, 3))
def test_counts_of_near_nodes_are_those_of_a_double_loop(seed: int, n: int, k: int, m: int) -> None:
    rng = np.random.default_rng(seed)
    indices = np.array([rng.permutation(k)[:m] for _ in range(n)], dtype=np.int32).reshape(n, m)
    weight = rng.integers(0, 3, n).astype(np.float64)
    expected = np.zeros((k, k))
    for row, w in zip(indices, weight, strict=True):
        for a in row:
            for b in row:
                expected[a, b] += w * (a != b)
    assert_array_equal(count_near(indices, weight, k).matrix(k), expected)
    half = n // 2
    parts = [
        count_near(indices[:half], weight[:half], k),
        count_near(indices[half:], weight[half:], k),
    ]
    assert_array_equal(merge_counts(parts).matrix(k), expected)


def test_pairs_of_no_weight_leave_no_trace() -> None:
    counts = count_pairs(np.array([0, 0]), np.array([1, 2]), np.array([0.0, 2.0]), 3)
    assert counts.keys.tolist() == [2]


@given(grids, st.integers(1, 6), st.integers(1, 6))
def test_adjacent_pixels_are_those_of_a_double_loop(seed: int, height: int, width: int) -> None:
    nodes = np.random.default_rng(seed).integers(-1, 3, (height, width)).astype(np.int32)
    expected = np.zeros((3, 3))
    for i in range(height):
        for j in range(width):
            for a, b in ((i + 1, j), (i, j + 1)):
                if a < height and b < width and min(nodes[i, j], nodes[a, b]) >= 0:
                    expected[nodes[i, j], nodes[a, b]] += 1
                    expected[nodes[a, b], nodes[i, j]] += 1
    assert_array_equal(count_adjacent(nodes, 3).matrix(3), expected)
