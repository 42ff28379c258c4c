"""Values of near nodes: by hand, and against a plain computation."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from daskclust.core.kernels.nearest.k_nearest import merge_nearest, nearest_several
from daskclust.semisupervised.near_nodes import near_weights, weighted_values


def test_weights_and_values_by_hand() -> None:
    distances = np.array([[1.0, 2.0, 4.0], [0.0, 0.0, 0.0], [1.0, np.inf, np.inf]])
    indices = np.array([[2, 0, 1], [0, 1, 2], [1, -1, -1]])
    assert_allclose(near_weights(distances), [[0.6, 0.4], [0.5, 0.5], [1.0, 0.0]])
    values = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 10.0]])
    expected = [[0.4, 6.0], [0.5, 0.5], [0.0, 1.0]]
    assert_allclose(weighted_values(distances, indices, values), expected)
    assert_array_equal(weighted_values(distances[:, :1], indices[:, :1], values)[0], values[2])


@given(st.integers(0, 2**32 - 1), st.integers(1, 80), st.integers(1, 80), st.integers(1, 6))
def test_nearest_nodes_of_two_groups_are_those_of_all_nodes(
    seed: int, k: int, others: int, count: int
) -> None:
    rng = np.random.default_rng(seed)
    z, nodes = rng.integers(0, 4, (20, 3)) * 1.0, rng.integers(0, 4, (k + others, 3)) * 1.0
    parts = [nearest_several(z, own, min(count, len(own))) for own in (nodes[:k], nodes[k:])]
    found = merge_nearest(*parts, k, count)
    for one, expected in zip(found, nearest_several(z, nodes, min(count, len(nodes))), strict=True):
        assert_array_equal(one, expected)
