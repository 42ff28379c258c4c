"""Leaves below the nearest parents: by hand, and by comparing with all of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskclust.core.kernels.nearest.k_nearest import CenterTree, nearest_leaf


def brute(x, tree, n_probe):
    labels, squared = [], []
    for row in x.astype(float):
        probed = np.arange(len(tree.levels[0]))
        for centers, starts in zip(tree.levels, tree.starts, strict=False):
            far = ((centers[probed].astype(float) - row) ** 2).sum(axis=1)
            probed = np.sort(probed[np.argsort(far, kind="stable")[:n_probe]])
            probed = np.concatenate([np.arange(*starts[m : m + 2]) for m in probed])
        found = ((tree.leaves[probed].astype(float) - row) ** 2).sum(axis=1)
        labels.append(probed[found.argmin()])
        squared.append(found.min())
    return np.array(labels), np.array(squared)


def test_by_hand():
    leaves = np.array([[0.0], [4.0], [6.0], [9.0]], np.float32)
    tree = CenterTree((np.array([[2.0], [7.0]]), leaves), (np.array([0, 2, 4]),))
    x = np.array([[4.6], [4.5], [9.0]], np.float32)
    for n_probe, expected in ((1, [2, 1, 3]), (2, [1, 1, 3]), (None, [1, 1, 3])):
        labels, squared = nearest_leaf(x, tree, n_probe)
        np.testing.assert_array_equal(labels, expected)
        np.testing.assert_allclose(squared, (x[:, 0] - leaves[labels, 0].astype(float)) ** 2)


@given(
    n_top=st.integers(1, 6),
    n_levels=st.integers(1, 4),
    n_probe=st.integers(1, 7),
    n=st.integers(0, 30),
    seed=st.integers(0, 99),
    single=st.booleans(),
)
def test_by_brute_force(n_top, n_levels, n_probe, n, seed, single):
    rng = np.random.default_rng(seed)
    dtype = np.float32 if single else np.float64
    # Few values, so that many are equally far.
    levels, starts = [rng.integers(-2, 3, (n_top, 2)).astype(float)], []
    for _ in range(n_levels - 1):
        sizes = rng.integers(1, 5, len(levels[-1]))
        starts.append(np.concatenate([[0], np.cumsum(sizes)]))
        levels.append(rng.integers(-2, 3, (sizes.sum(), 2)).astype(np.float32))
    tree = CenterTree(tuple(levels), tuple(starts))
    x = rng.integers(-3, 4, (n, 2)).astype(dtype)
    labels, squared = nearest_leaf(x, tree, n_probe)
    if n:
        expected = brute(x, tree, n_probe)
        np.testing.assert_array_equal(labels, expected[0])
        np.testing.assert_array_equal(squared, expected[1])
    flat = nearest_leaf(x, tree, None)
    np.testing.assert_array_equal(flat[0], brute(x, tree, 999)[0] if n else [])


@pytest.mark.parametrize("n_probe", [1, 3])
def test_a_row_alone_is_labeled_as_among_others(n_probe):
    rng = np.random.default_rng(0)
    levels = [rng.normal(size=(m, 9)).astype(np.float32) for m in (7, 70, 700)]
    tree = CenterTree(tuple(levels), (np.arange(0, 71, 10), np.arange(0, 701, 10)))
    x = rng.normal(size=(900, 9)).astype(np.float32)
    whole = nearest_leaf(x, tree, n_probe)[0]
    parts = [nearest_leaf(part, tree, n_probe)[0] for part in np.split(x, [1, 13, 500])]
    np.testing.assert_array_equal(whole, np.concatenate(parts))
