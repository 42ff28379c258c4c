"""Results as long as the data: what is known beforehand replaces what is worked out."""

from __future__ import annotations

import pickle

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskclust.engine import labeled_rows, map_rows
from daskclust.testing.strategies import row_chunks

N = 300


def none(x, start):
    return np.full(len(x), -7, dtype=np.int32)


@given(
    lengths=row_chunks(N),
    rows=st.sets(st.integers(0, N - 1)).map(sorted),
    low=st.sampled_from([-(2**31), -129, -1, 0]),
    high=st.sampled_from([1, 200, 70_000, 2**31 - 1]),
)
def test_a_patch_replaces_its_rows_and_no_others(lengths, rows, low, high):
    X = da.zeros((N, 2), chunks=(lengths, (2,)))
    places = np.array(rows, dtype=np.int64)
    values = np.random.default_rng(0).integers(low, high, len(rows), endpoint=True)
    out = map_rows(X, none, dtype=np.int32, patch=(places, values.astype(np.int32)))
    expected = np.full(N, -7, dtype=np.int32)
    expected[places] = values
    np.testing.assert_array_equal(out.compute(scheduler="sync"), expected)


@pytest.mark.parametrize("every", [1, 5])
def test_the_patch_of_millions_of_rows_is_no_large_graph(every):
    n = 4_000_000
    X = da.zeros((n, 1), chunks=(500_000, 1))
    rows = np.arange(0, n, every)
    out = map_rows(X, none, dtype=np.int32, patch=(rows, (rows % 20).astype(np.int32)))
    # distributed warns of graphs of 10 MB.
    assert len(pickle.dumps(dict(out.__dask_graph__()))) < 6_000_000
    assert out[-every].compute(scheduler="sync") == rows[-1] % 20


def test_masked_labels_are_none():
    y = np.ma.masked_array(np.arange(12) % 3, mask=np.arange(12) % 2 == 0)
    with dask.config.set(scheduler="sync"):
        rows, labels, n = labeled_rows(
            da.from_array(y, chunks=5), lambda part: (np.flatnonzero(part >= 1), part[part >= 1])
        )
    assert n == 12
    expected = [i for i in range(12) if i % 2 and i % 3]
    assert rows.tolist() == expected
    assert labels.tolist() == [i % 3 for i in expected]
