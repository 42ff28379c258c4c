"""Counting how nodes hang together: the same for any cut of the rows, any order, any weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from daskclust.core.reduction import RowLabels
from daskclust.core.reduction.connectivity import (
    CONNECTIVITY,
    Connectivity,
    ConnectivityCounts,
    merge_connectivity,
    nearest_in_sets,
)
from daskclust.testing import reduce_blocks, row_blocks
from daskclust.testing.strategies import row_chunks

N = 40


def _half(x: np.ndarray) -> np.ndarray:
    return x[:, :1] / 2


def _same(x: np.ndarray) -> np.ndarray:
    return x


def problem(seed: int) -> tuple[np.ndarray, np.ndarray, Connectivity]:
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 5, (N, 2)).astype(np.float64)
    weight = rng.integers(0, 3, N).astype(np.float64)
    rows = np.sort(rng.permutation(N)[:12])
    labels = RowLabels(rows, rng.integers(0, 3, 12).astype(np.int32), 3)
    nodes = (rng.normal(size=(6, 2)) * 2, rng.normal(size=(7, 1)) * 2)
    return x, weight, Connectivity((_same, _half), nodes, 3, labels, n_shared=2)


def count_blocks(blocks, connectivity: Connectivity) -> ConnectivityCounts:
    (found,) = reduce_blocks(CONNECTIVITY, [connectivity], blocks)
    return found


def assert_same(one: ConnectivityCounts, other: ConnectivityCounts) -> None:
    for a, b in zip(one.near, other.near, strict=True):
        assert_array_equal(a.keys, b.keys)
        assert_array_equal(a.counts, b.counts)
    assert_array_equal(one.classes, other.classes)


@given(st.integers(0, 10**6), row_chunks(N), st.integers(0, 5))
def test_counts_do_not_depend_on_the_cut_or_the_order_of_merging(
    seed: int, lengths: tuple[int, ...], first: int
) -> None:
    x, weight, connectivity = problem(seed)
    whole = count_blocks(row_blocks(x, weight, (N,)), connectivity)
    blocks = row_blocks(x, weight, lengths)
    assert_same(count_blocks(blocks, connectivity), whole)
    first = min(first, len(blocks))
    later = count_blocks(blocks[first:], connectivity)
    assert_same(merge_connectivity([later, count_blocks(blocks[:first], connectivity)]), whole)
    assert_same(merge_connectivity([connectivity.identity(), whole]), whole)


@given(st.integers(0, 10**6))
def test_a_weight_is_a_repetition_and_inputs_stay_as_they_are(seed: int) -> None:
    x, weight, connectivity = problem(seed)
    before = x.copy()
    times = weight.astype(int)
    labels = connectivity.labels
    assert labels is not None
    code = np.full(N, -1)
    code[labels.rows] = labels.codes
    code = np.repeat(code, times)
    repeated = RowLabels(np.flatnonzero(code >= 0), code[code >= 0].astype(np.int32), 3)
    again = replace(connectivity, labels=repeated)
    many = count_blocks(row_blocks(np.repeat(x, times, axis=0), None, (times.sum(),)), again)
    assert_same(count_blocks(row_blocks(x, weight, (N,)), connectivity), many)
    assert_array_equal(x, before)


def test_labels_count_in_sets_of_different_size() -> None:
    shared = [4.0]
    nodes = (np.array([[0.0], [10.0], shared]), np.array([[7.0], shared]))
    labels = RowLabels(np.array([0]), np.array([1], np.int32), 2)
    connectivity = Connectivity((_same, _same), nodes, 2, labels, n_shared=1)
    counts = count_blocks(row_blocks(np.array([[4.0]]), None, (1,)), connectivity)
    assert counts.classes[:, :, 1].tolist() == [[1.0, 0.0], [1.0, 0.0]]


@given(st.integers(0, 10**6))
def test_nearest_nodes_in_sets_equal_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    z, shared = rng.integers(0, 4, (2, 9, 2)).astype(float)
    prototypes = [rng.integers(0, 4, (k, 2)).astype(float) for k in (1, 5)]
    found = nearest_in_sets(z, prototypes, shared[: seed % 3], 4)
    for own, (first, (indices, distances)) in zip(prototypes, found, strict=True):
        nodes = np.concatenate([own, shared[: seed % 3]])
        squared = ((z[:, None] - nodes) ** 2).sum(axis=2)
        order = squared.argsort(axis=1, kind="stable")[:, :4]
        assert_array_equal(indices, order)
        assert_array_equal(distances, np.take_along_axis(squared, order, axis=1))
        assert_array_equal(first, squared[:, : len(own)].argmin(axis=1))


def test_labels_count_at_the_nearest_prototype_even_where_another_node_is_nearer() -> None:
    nodes = (np.array([[0.0], [10.0], [4.0]]),)
    labels = RowLabels(np.array([0]), np.array([1], np.int32), 2)
    connectivity = Connectivity((_same,), nodes, 2, labels, n_shared=1)
    counts = count_blocks(row_blocks(np.array([[4.0]]), None, (1,)), connectivity)
    assert counts.classes.tolist() == [[[0.0, 1.0], [0.0, 0.0]]]
    assert counts.near[0].matrix(3)[0, 2] == 1
