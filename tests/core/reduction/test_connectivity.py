"""Counting how nodes hang together: the same for any cut of the rows, any order, any weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from daskclust.core.reduction.connectivity import (
    CONNECTIVITY,
    Connections,
    Connectivity,
    merge_connections,
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
    nodes = (rng.normal(size=(6, 2)) * 2, rng.normal(size=(7, 1)) * 2)
    return x, weight, Connectivity((_same, _half), nodes, 3, n_shared=2)


def count_blocks(blocks, connectivity: Connectivity) -> Connections:
    (found,) = reduce_blocks(CONNECTIVITY, [connectivity], blocks)
    return found


def assert_same(one: Connections, other: Connections) -> None:
    for a, b in zip(one, other, strict=True):
        assert_array_equal(a.keys, b.keys)
        assert_array_equal(a.counts, b.counts)


@given(st.integers(0, 10**6), row_chunks(N), st.integers(0, 5), st.sampled_from([0.5, 1.0]))
def test_counts_do_not_depend_on_the_cut_or_the_order_of_merging(
    seed: int, lengths: tuple[int, ...], first: int, fraction: float
) -> None:
    x, weight, connectivity = problem(seed)
    connectivity = replace(connectivity, fraction=fraction, seed=seed)
    whole = count_blocks(row_blocks(x, weight, (N,)), connectivity)
    blocks = row_blocks(x, weight, lengths)
    assert_same(count_blocks(blocks, connectivity), whole)
    first = min(first, len(blocks))
    later = count_blocks(blocks[first:], connectivity)
    assert_same(merge_connections([later, count_blocks(blocks[:first], connectivity)]), whole)


def test_drawn_rows_are_counted() -> None:
    x, _, connectivity = problem(0)
    some = replace(connectivity, fraction=0.5, seed=3)
    drawn = some.drawn(0, N)
    assert 0 < drawn.sum() < N
    expected = count_blocks(row_blocks(x[drawn], None, (drawn.sum(),)), connectivity)
    assert_same(count_blocks(row_blocks(x, None, (N,)), some), expected)


@given(st.integers(0, 10**6))
def test_a_weight_is_a_repetition_and_inputs_stay_as_they_are(seed: int) -> None:
    x, weight, connectivity = problem(seed)
    before = x.copy()
    times = weight.astype(int)
    repeated = np.repeat(x, times, axis=0)
    many = count_blocks(row_blocks(repeated, None, (times.sum(),)), connectivity)
    assert_same(count_blocks(row_blocks(x, weight, (N,)), connectivity), many)
    assert_array_equal(x, before)


@given(st.integers(0, 10**6))
def test_nearest_nodes_in_sets_equal_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    z, shared = rng.integers(0, 4, (2, 9, 2)).astype(float)
    prototypes = [rng.integers(0, 4, (k, 2)).astype(float) for k in (1, 5)]
    found = nearest_in_sets(z, prototypes, shared[: seed % 3], 4)
    for own, (indices, distances) in zip(prototypes, found, strict=True):
        nodes = np.concatenate([own, shared[: seed % 3]])
        squared = ((z[:, None] - nodes) ** 2).sum(axis=2)
        order = squared.argsort(axis=1, kind="stable")[:, :4]
        assert_array_equal(indices, order)
        assert_array_equal(distances, np.take_along_axis(squared, order, axis=1))
