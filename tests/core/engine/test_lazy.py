"""Results as long as the data: what is known beforehand replaces what is worked out."""

from __future__ import annotations

import pickle
import threading
import tracemalloc

import dask
import dask.array as da
import dask.system
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import daskclust
from daskclust.core.engine import labeled_rows, map_rows
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


@pytest.mark.skipif(dask.system.CPU_COUNT < 2, reason="this machine has one core")
def test_an_array_is_worked_on_by_threads_with_the_numbers_of_its_rows():
    # More values than for one thread; the number of rows is a prime.
    X = np.arange(2 * 200_003, dtype=np.float32).reshape(-1, 2)
    # The first parts are worked on at the same time.
    meet = threading.Barrier(2, timeout=60)

    def numbers(x, start):
        assert len(x) < 200_003
        if start <= 2**16:
            meet.wait()
        return start + np.arange(len(x))

    patch = (np.array([5, 150_000]), np.array([-1, -2]))
    with dask.config.set({"daskclust.num-threads": 3}):
        out = map_rows(X, numbers, dtype=np.int64, patch=patch)
    expected = np.arange(len(X))
    expected[[5, 150_000]] = -1, -2
    np.testing.assert_array_equal(out, expected)


def test_of_several_bad_rows_the_first_is_named():
    X = np.zeros((200_000, 2), dtype=np.float32)
    X[[70_000, 190_000]] = np.inf
    model = daskclust.KMeans(2, init=np.eye(2), max_iter=1).fit(np.eye(2))
    with pytest.raises(ValueError, match=r"[Rr]ow 70,?000"):
        model.predict(X)


def test_the_result_of_an_array_is_held_once():
    x = np.zeros((2**19, 1), dtype=np.float32)

    def wide(part, start):
        return np.zeros((len(part), 16))

    with dask.config.set({"daskclust.num-threads": 2}):
        tracemalloc.start()
        try:
            out = map_rows(x, wide, dtype=np.float64, n_columns=16)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert out.shape == (2**19, 16)
    assert peak < 1.5 * out.nbytes
