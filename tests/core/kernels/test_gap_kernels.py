"""Positions of missing and infinite values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskclust.core.kernels.missing_values import find_gaps


def test_nan_is_not_infinity():
    assert find_gaps(np.array([[np.nan, 1.0]]))[1:] == (-1, -1)
    assert find_gaps(np.array([[np.nan, 1.0], [0.0, np.inf]]))[1:] == (1, 1)


def test_rows_after_an_infinity_are_counted_too():
    found = find_gaps(np.array([[-np.inf, np.inf], [np.nan, np.nan], [1.0, np.nan]]))
    assert found.missing.tolist() == [0, 2, 1]
    assert (found.row, found.column) == (0, 0)


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(0, 9), p=st.integers(1, 19))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_equals_numpy(dtype, seed, n, p):
    rng = np.random.default_rng(seed)
    values = [0.0, -1e30, np.nan, np.inf, -np.inf]
    x = rng.choice(values, size=(n, p), p=[0.4, 0.4, 0.16, 0.02, 0.02]).astype(dtype)
    found = find_gaps(x)
    np.testing.assert_array_equal(found.missing, np.isnan(x).sum(axis=1))
    places = np.argwhere(np.isinf(x))
    assert (found.row, found.column) == (tuple(places[0]) if len(places) else (-1, -1))
