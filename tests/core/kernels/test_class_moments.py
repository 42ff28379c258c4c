"""Moments of the labeled rows of a block against plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskclust.core.kernels.moments import class_moments


@given(
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from([np.float32, np.float64]),
    weighted=st.booleans(),
    offset=st.sampled_from([0.0, 1e4]),
)
def test_equals_numpy(seed, dtype, weighted, offset):
    rng = np.random.default_rng(seed)
    n, p, n_classes = rng.integers(1, 40), rng.integers(1, 6), rng.integers(1, 5)
    x = (rng.normal(size=(n, p)) + offset).astype(dtype)
    places = np.sort(rng.choice(n, rng.integers(0, n + 1), replace=False))
    codes = rng.integers(0, n_classes, len(places)).astype(np.int32)
    weight = rng.integers(0, 3, n).astype(float) if weighted else None
    found = class_moments(x, places, codes, weight, n_classes)
    w = np.ones(n) if weight is None else weight
    for c in range(n_classes):
        mine = places[codes == c]
        total = w[mine].sum()
        assert found.hi[c, -1] + found.lo[c, -1] == total
        sums = (w[mine, None] * x[mine].astype(float)).sum(axis=0)
        np.testing.assert_allclose(found.hi[c, :-1] + found.lo[c, :-1], sums, rtol=1e-14, atol=1e-9)
        if not total:
            assert not found.moments[:, c].any()
            continue
        mean = np.average(x[mine].astype(float), axis=0, weights=w[mine])
        squares = (w[mine, None] * (x[mine] - mean) ** 2).sum(axis=0)
        np.testing.assert_allclose(found.moments[0, c], total)
        # A mean may be much smaller than the rows that cancel in it.
        np.testing.assert_allclose(found.moments[1, c], mean, rtol=1e-13, atol=1e-15)
        np.testing.assert_allclose(found.moments[2, c], squares, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("code", [-1, 2])
def test_codes_out_of_range_are_refused(code):
    with pytest.raises(ValueError, match=r"codes must be in \[0, 2\), got"):
        class_moments(np.ones((3, 1)), np.array([1]), np.array([code], np.int32), None, 2)
