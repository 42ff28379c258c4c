"""Kernels on sparse rows, by hand and against brute force on dense rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.spatial.distance import cdist

from daskclust.core.kernels.draws import approach
from daskclust.core.kernels.missing_values import row_hash
from daskclust.core.kernels.moments import (
    block_moments,
    first_nonfinite,
    label_moments,
    own_and_other,
)
from daskclust.core.kernels.nearest.assign import accumulate, nearest
from daskclust.core.kernels.sparse import (
    SparseRows,
    canonical,
    concatenated,
    dense,
    largest_values,
    of_unit_length,
    split_last,
)
from daskclust.core.kernels.totals import block_totals

KINDS = [sparse.csr_matrix, sparse.csr_array]


def rows_of(seed: int, n: int = 40, p: int = 9, dtype=np.float64) -> tuple[np.ndarray, SparseRows]:
    x = sparse.random_array((n, p), density=0.3, rng=seed, dtype=np.float64).toarray() - 0.2
    x = np.where(np.random.default_rng(seed).random((n, p)) < 0.6, 0.0, x).astype(dtype)
    return x, SparseRows.of(sparse.csr_array(x))


def test_two_clusters_by_hand():
    x = SparseRows.of(sparse.csr_array([[0.0, 1.0], [0.0, 0.0], [3.0, 4.0]]))
    centers = np.array([[0.0, 0.0], [3.0, 3.0]])
    labels, squared = nearest(x, centers)
    assert labels.tolist() == [0, 0, 1]
    assert squared.tolist() == [1.0, 0.0, 1.0]
    # Sums of two columns, weight, squared distances.
    stats = accumulate(x, centers, weight=np.array([2.0, 1.0, 3.0]))
    assert stats.hi.tolist() == [[0.0, 2.0, 3.0, 2.0], [9.0, 12.0, 3.0, 3.0]]


def test_labels_in_the_last_column_by_hand():
    rows, labels = split_last(SparseRows.of(sparse.csr_array([[5.0, 0, -1], [0, 0, 0], [0, 2, 3]])))
    assert dense(rows).tolist() == [[5.0, 0.0], [0.0, 0.0], [0.0, 2.0]]
    assert labels.tolist() == [-1, 0, 3]


def test_own_and_other_centers_and_moments_of_labels_by_hand():
    x = SparseRows.of(sparse.csr_array([[0.0, 1.0], [0.0, 0.0], [3.0, 4.0]]))
    own, other = own_and_other(x, np.array([[0.0, 0.0], [3.0, 4.0]]), np.array([0, 1, 0]))
    assert (own.tolist(), other.tolist()) == ([1.0, 25.0, 25.0], [18.0, 0.0, 0.0])
    own, other = own_and_other(x, np.array([[0.0, 0.0]]), np.zeros(3, np.int64))
    assert (own.tolist(), other.tolist()) == ([1.0, 0.0, 25.0], [np.inf] * 3)
    moments = label_moments(x, np.array([7, 7, 2]), np.array([3.0, 1.0, 0.5]))
    assert [field.tolist() for field in moments] == [
        [2, 7],
        [0.5, 4.0],
        [[3.0, 4.0], [0.0, 0.75]],
        [0.0, 0.75],
        [1.0, 4.0],
    ]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**16), st.integers(1, 7), st.sampled_from([np.float32, np.float64]))
def test_labeled_rows_equal_brute_force(seed, k, dtype):
    x, rows = rows_of(seed, dtype=dtype)
    rng = np.random.default_rng(seed)
    centers, labels = rng.random((k, 9)) - 0.3, rng.integers(0, k, len(x))
    weight = rng.integers(0, 3, len(x)).astype(float)
    for one, other in zip(
        own_and_other(rows, centers, labels), own_and_other(x, centers, labels), strict=True
    ):
        assert_allclose(one, other, atol=1e-13)
    found, expected = label_moments(rows, labels, weight), label_moments(x, labels, weight)
    for one, other in zip(found, expected, strict=True):
        assert_allclose(one, other, atol=1e-12)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**16), st.integers(1, 7), st.sampled_from([np.float32, np.float64]))
def test_statistics_equal_brute_force(seed, k, dtype):
    x, rows = rows_of(seed, dtype=dtype)
    rng = np.random.default_rng(seed)
    centers, weight = rng.random((k, 9)) - 0.3, rng.integers(0, 3, len(x)).astype(float)
    squared = cdist(x.astype(np.float64), centers, "sqeuclidean")
    labels, distances = nearest(rows, centers)
    assert_array_equal(labels, squared.argmin(axis=1))
    assert_allclose(distances, squared.min(axis=1), atol=1e-13)
    one_hot = (labels[:, None] == np.arange(k)) * weight[:, None]
    expected = np.column_stack(
        [one_hot.T @ x.astype(np.float64), one_hot.sum(axis=0), one_hot.T @ squared.min(axis=1)]
    )
    assert_allclose(sum(accumulate(rows, centers, weight=weight)), expected, atol=1e-12)
    found, wanted = block_moments(rows, weight), block_moments(x, weight)
    for one, other in zip(found, wanted, strict=True):
        assert_allclose(one, other, atol=1e-12)
    assert_allclose(largest_values(rows), np.abs(x).max(axis=0))


def test_a_row_at_its_center_has_distance_zero_and_the_lowest_center_wins():
    x, rows = rows_of(3)
    centers = np.repeat(x[5:8], 2, axis=0)
    labels, squared = nearest(rows[5:8], centers)
    assert labels.tolist() == [0, 2, 4]
    assert squared.tolist() == [0.0, 0.0, 0.0]


def test_rows_far_from_the_origin_keep_their_nearest_center():
    x = np.array([[1e8, 1e8 + 1], [1e8 + 1, 1e8]])
    labels, squared = nearest(SparseRows.of(sparse.csr_array(x)), x[::-1] + 0.25)
    assert labels.tolist() == [1, 0]
    assert_allclose(squared, 0.125)


def test_candidates_only_approach():
    x, rows = rows_of(4)
    candidates = x[[1, 7, 9, 30]]
    squared = cdist(x, candidates, "sqeuclidean")
    distance, seen = squared[:, 0].copy(), np.ones(len(x), np.int32)
    places = np.array([3, 7, 8, 30])
    approach(rows, candidates, places, distance, seen)
    assert_allclose(distance[places], squared[places].min(axis=1), atol=1e-14)
    others = np.setdiff1d(np.arange(len(x)), places)
    assert_array_equal(distance[others], squared[others, 0])
    assert_array_equal(seen[places], 4)
    assert_array_equal(seen[others], 1)


@pytest.mark.parametrize("kind", KINDS)
def test_stored_zeros_and_unsorted_or_repeated_indices(kind):
    parts = ([2.0, 1.0, 0.0, 5.0, -5.0], [1, 1, 0, 2, 2], [0, 3, 5])
    x = kind(tuple(np.array(part) for part in parts), shape=(2, 3))
    before = [x.data.copy(), x.indices.copy(), x.indptr.copy()]
    rows = canonical(x)
    assert isinstance(rows, kind)
    assert (rows.data.tolist(), rows.indices.tolist(), rows.indptr.tolist()) == (
        [3.0],
        [1],
        [0, 1, 1],
    )
    for old, new in zip(before, (x.data, x.indices, x.indptr), strict=True):
        assert_array_equal(old, new)
    assert SparseRows.of(x).stored().tolist() == [True, False]


def test_indices_outside_the_matrix_are_refused():
    x = sparse.csr_array(np.eye(3))
    x.indices[1] = 7
    with pytest.raises(ValueError, match=r"index|indices"):
        canonical(x)


def test_slices_and_selections_are_those_of_the_matrix():
    x, rows = rows_of(5)
    for part in (slice(3, 11), slice(0, 0), slice(38, 60), np.array([4, 4, 0]), x[:, 0] > 0):
        assert_array_equal(dense(rows[part]), x[part])
    assert_array_equal(dense(concatenated([rows[:7], rows[7:7], rows[7:]])), x)
    assert np.shares_memory(rows[3:11].data, rows.data)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_the_first_invalid_value_is_found(bad):
    x, _ = rows_of(6)
    x[17, 2] = x[30, 1] = bad
    rows = SparseRows.of(sparse.csr_array(x))
    assert first_nonfinite(rows) == (17, 2)
    assert not block_moments(rows).finite
    assert block_totals(rows)[1] == 2
    assert not np.isfinite(nearest(rows, np.ones((2, 9)))[1][[17, 30]]).any()
    assert_array_equal(np.isfinite(dense(of_unit_length(rows))), np.isfinite(x))


def test_the_hash_does_not_depend_on_blocks_and_changes_with_the_data():
    x, rows = rows_of(7)
    weight = np.arange(40.0)
    whole = row_hash(rows, weight)
    parts = [
        int(row_hash(rows[a:b], weight[a:b], ((a, b - a),)))
        for a, b in ((0, 13), (13, 14), (14, 40))
    ]
    assert sum(parts) % 2**64 == int(whole)
    for change in (x[::-1], x + 1e-9, np.roll(x, 1, axis=1), x.astype(np.float32)):
        assert row_hash(SparseRows.of(sparse.csr_array(change)), weight) != whole
    assert row_hash(rows, weight + 1) != whole


def test_huge_and_tiny_rows_get_unit_length():
    rows = SparseRows.of(sparse.csr_array([[3e200, 4e200, 0], [0, 0, 0], [0, 3e-200, -4e-200]]))
    expected = [[0.6, 0.8, 0], [0, 0, 0], [0, 0.6, -0.8]]
    assert_allclose(dense(of_unit_length(rows)), expected)
