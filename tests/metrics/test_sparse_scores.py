"""Scores of clusterings of sparse rows: the results of dense rows."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from helpers import with_repeated_indices
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import sparse

from daskclust import metrics

N, P, K = 300, 30, 4
X = sparse.random_array((N, P), density=0.15, rng=0, format="csr")
LABELS = np.random.default_rng(1).integers(-1, K, N)
WEIGHT = np.random.default_rng(2).integers(0, 3, N).astype(float)


def lazy(x, rows=70):
    return da.from_array(x, chunks=(rows, -1), asarray=False)


def scores(x, labels, **options):
    found = metrics.centroid_scores(x, labels, **options)
    values = [found.silhouette, found.silhouette_error, found.calinski_harabasz]
    options.pop("centers", None)
    others = (metrics.calinski_harabasz_score, metrics.davies_bouldin_score)
    return [*values, found.davies_bouldin, *(f(x, labels, **options) for f in others)]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32])
@pytest.mark.parametrize(
    "options",
    [{}, {"sample_weight": WEIGHT}, {"ignore_masked": True, "sample_weight": WEIGHT}],
    ids=["plain", "weights", "masked"],
)
def test_scores_are_those_of_dense_rows(dtype, options):
    x = (X * 10).astype(dtype)
    expected = scores(x.toarray(), LABELS, **options)
    for rows in (x, sparse.csr_matrix(x), x.tocoo(), lazy(x)):
        assert_allclose(scores(rows, LABELS, **options), expected, rtol=1e-6)
    assert_allclose(scores(x, da.from_array(LABELS, chunks=90), **options), expected, rtol=1e-6)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(1, N - 1), max_size=5, unique=True))
def test_scores_do_not_depend_on_chunks(cuts):
    lengths = tuple(int(n) for n in np.diff([0, *sorted(cuts), N]))
    chunked = da.from_array(X, chunks=(lengths, -1), asarray=False)
    assert_allclose(scores(chunked, LABELS), scores(X, LABELS), rtol=1e-12)


def test_given_centers_and_a_single_row_per_cluster():
    centers = np.random.default_rng(3).random((N - 1, P))
    labels = np.minimum(np.arange(N), N - 2)
    expected = scores(X.toarray(), labels, centers=centers)
    assert_allclose(scores(X, labels, centers=centers), expected, rtol=1e-12)


@pytest.mark.parametrize("sample_size", [None, 120])
@pytest.mark.parametrize("ignore_masked", [False, True])
def test_silhouettes_are_those_of_dense_rows(sample_size, ignore_masked):
    options = {"sample_size": sample_size, "ignore_masked": ignore_masked, "random_state": 0}
    for make in (lambda x: x, lazy):
        dense = X.toarray() if make is not lazy else da.from_array(X.toarray(), chunks=(70, -1))
        expected = metrics.silhouette_score(dense, LABELS, **options)
        assert_allclose(metrics.silhouette_score(make(X), LABELS, **options), expected, rtol=1e-9)


def test_stored_zeros_and_repeated_indices_change_nothing():
    odd = with_repeated_indices(X)
    before = odd.data.copy(), odd.indices.copy()
    for rows in (odd, lazy(odd)):
        assert_allclose(scores(rows, LABELS), scores(X, LABELS), rtol=1e-9)
        found = metrics.silhouette_score(rows, LABELS, random_state=0)
        assert_allclose(found, metrics.silhouette_score(X, LABELS), rtol=1e-9)
    for one, other in zip(before, (odd.data, odd.indices), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("make", [lambda x: x, lazy], ids=["scipy", "dask"])
def test_an_invalid_value_is_named_unless_its_row_is_ignored(make):
    x = X.copy()
    x.data[x.indptr[137]] = np.nan
    column, labels = int(x.indices[x.indptr[137]]), LABELS.copy()
    labels[137] = 0
    with pytest.raises(ValueError, match=f"got nan at row 137, column {column}"):
        metrics.davies_bouldin_score(make(x), labels)
    labels[137] = -1
    expected = metrics.davies_bouldin_score(X, labels, ignore_masked=True)
    found = metrics.davies_bouldin_score(make(x), labels, ignore_masked=True)
    assert_allclose(found, expected)


def test_blocks_that_are_dense_are_refused():
    blocks = lazy(X).map_blocks(lambda b: b.toarray(), meta=X[:0])
    with pytest.raises(Exception, match="must be a SciPy sparse matrix, as its metadata state"):
        metrics.davies_bouldin_score(blocks, LABELS)
