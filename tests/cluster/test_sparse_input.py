"""KMeans on sparse rows: the results of dense rows, for any chunks, in little memory."""

from __future__ import annotations

import tracemalloc

import dask.array as da
import numpy as np
import pytest
import sklearn.cluster.tests.test_k_means as theirs
from helpers import with_repeated_indices
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.metrics import adjusted_rand_score

import daskclust
from daskclust import KMeans
from daskclust.exceptions import ChunkError

N, P, K = 900, 40, 4
TRUTH = np.arange(N) % K
_noise = sparse.random_array((N, P), density=0.1, rng=0)
_peaks = sparse.csr_array((np.full(N, 3.0), (np.arange(N), TRUTH)), shape=(N, P))
X = sparse.csr_array(_noise + _peaks)
DENSE = X.toarray()
WEIGHT = np.random.default_rng(0).integers(1, 4, N).astype(float)


def lazy(x, rows=200):
    return da.from_array(x, chunks=(rows, -1), asarray=False)


def assert_same(one, other):
    assert_array_equal(np.asarray(one.labels_), np.asarray(other.labels_))
    assert_allclose(one.cluster_centers_, other.cluster_centers_, atol=1e-12)
    assert_allclose(one.inertia_, other.inertia_)
    assert_allclose(one.counts_, other.counts_)
    assert one.n_iter_ == other.n_iter_


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"metric": "cosine"},
        {"init": "random", "n_init": 2},
        {"init": "k-means++"},
        {"init": "maximin"},
        {"init": DENSE[:K]},
        {"init": "random", "algorithm": "nested", "n_init": 2},
    ],
    ids=repr,
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_results_are_those_of_dense_rows(params, dtype):
    x, d = X.astype(dtype), DENSE.astype(dtype)
    model = KMeans(K, random_state=0, **params)
    expected = model.fit(d, sample_weight=WEIGHT)
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype == np.float32 else {"atol": 1e-12}
    for given_rows in (x, sparse.csr_matrix(x), lazy(x), x.tocsc(), x.tocoo()):
        found = KMeans(K, random_state=0, **params).fit(given_rows, sample_weight=WEIGHT)
        assert_array_equal(np.asarray(found.labels_), expected.labels_)
        assert_allclose(found.cluster_centers_, expected.cluster_centers_, **tolerance)
        assert_allclose(found.inertia_, expected.inertia_, rtol=1e-5)
        assert found.n_iter_ == expected.n_iter_
        assert_array_equal(np.asarray(found.predict(given_rows)), expected.predict(d))
        for method in ("transform", "score_samples"):
            result = getattr(found, method)(given_rows)
            assert result.dtype == dtype
            assert_allclose(np.asarray(result), getattr(expected, method)(d), **tolerance)
        assert_allclose(
            found.score(given_rows, sample_weight=WEIGHT),
            expected.score(d, sample_weight=WEIGHT),
            1e-5,
        )
    assert adjusted_rand_score(TRUTH, expected.labels_) == 1.0


@given(
    st.lists(st.integers(1, N - 1), max_size=6, unique=True),
    st.sampled_from(["euclidean", "cosine"]),
)
def test_results_do_not_depend_on_chunks(cuts, metric):
    lengths = tuple(int(n) for n in np.diff([0, *sorted(cuts), N]))
    chunked = da.from_array(X, chunks=(lengths, -1), asarray=False)
    whole = KMeans(K, metric=metric, random_state=1).fit(X)
    found = KMeans(K, metric=metric, random_state=1).fit(chunked)
    assert isinstance(found.labels_, da.Array)
    assert found.labels_.chunks == (lengths,)
    assert_same(found, whole)


def test_blocks_made_by_a_function_are_read_lazily():
    made = da.from_array(DENSE, chunks=(250, -1)).map_blocks(
        sparse.csr_matrix, meta=sparse.csr_matrix((0, 0))
    )
    assert_same(KMeans(K, random_state=0).fit(made), KMeans(K, random_state=0).fit(DENSE))
    unknown = da.Array(made.dask, made.name, ((np.nan,) * 4, (P,)), meta=made._meta)
    with pytest.warns(daskclust.exceptions.PerformanceWarning, match="unknown length"):
        assert_same(KMeans(K, random_state=0).fit(unknown), KMeans(K, random_state=0).fit(DENSE))


def test_batches_and_checkpoints(tmp_path):
    one, other = KMeans(K, random_state=0), KMeans(K, random_state=0)
    for rows in (slice(0, 400), slice(400, N)):
        one.partial_fit(X[rows])
        other.partial_fit(DENSE[rows])
    assert_same(one, other)
    path = tmp_path / "fit"
    first = KMeans(K, random_state=0, init="random", max_iter=1, checkpoint=path).fit(X)
    resumed = KMeans(K, random_state=0, init="random", checkpoint=path).fit(lazy(X))
    assert resumed.n_iter_ >= first.n_iter_
    assert_same(resumed, KMeans(K, random_state=0, init="random").fit(X))
    with pytest.raises(daskclust.exceptions.CheckpointError):
        KMeans(K, random_state=0, init="random", checkpoint=path).fit(X * 2)
    first.save(tmp_path / "model")
    assert_array_equal(daskclust.load(tmp_path / "model").predict(X), first.predict(DENSE))


def test_stored_zeros_and_repeated_indices_change_nothing():
    odd = with_repeated_indices(X)
    before = odd.data.copy(), odd.indices.copy()
    assert_same(KMeans(K, random_state=0).fit(odd), KMeans(K, random_state=0).fit(X))
    assert_same(KMeans(K, random_state=0).fit(lazy(odd)), KMeans(K, random_state=0).fit(X))
    assert_array_equal(odd.data, before[0])
    assert_array_equal(odd.indices, before[1])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("container", [lambda x: x, lazy])
def test_an_invalid_value_is_named_with_its_row(bad, container):
    other = X.copy()
    other.data[other.indptr[437]] = bad
    column = other.indices[other.indptr[437]]
    what = "NaN" if np.isnan(bad) else "infinity"
    model = KMeans(K, random_state=0).fit(X)
    for work in (
        lambda: KMeans(K).fit(container(other)),
        lambda: KMeans(K, metric="cosine").fit(container(other)),
        lambda: model.score(container(other)),
    ):
        with pytest.raises(
            ValueError, match=f"contains {what}: the first at row 437, column {column}"
        ):
            work()
    with pytest.raises(ValueError, match=f"contains {what}.*column {column}"):
        np.asarray(model.predict(container(other)))


def test_rows_of_zeros_have_no_direction():
    other = sparse.vstack([X, sparse.csr_array((3, P))], format="csr")
    found = KMeans(K, metric="cosine", random_state=0).fit(other)
    expected = KMeans(K, metric="cosine", random_state=0).fit(other.toarray())
    assert_same(found, expected)
    assert_array_equal(found.labels_[-3:], 0)


@pytest.mark.parametrize("params", [{}, {"clamp": False}, {"init": "ss-k-means++"}], ids=repr)
def test_partial_labels(params):
    labels = np.where(np.arange(N) % 30 < 3, TRUTH, -1)
    labels[TRUTH == 3] = -1
    whole = daskclust.SemiSupervisedKMeans(K, random_state=0, **params)
    expected = whole.fit(DENSE, labels, sample_weight=WEIGHT)
    for given_rows in (X, lazy(X, 70)):
        found = daskclust.SemiSupervisedKMeans(K, random_state=0, **params)
        found.fit(given_rows, labels, sample_weight=WEIGHT)
        assert_same(found, expected)
        assert_array_equal(found.classes_, expected.classes_)
        assert_array_equal(np.asarray(found.predict(given_rows)), expected.predict(DENSE))
    with pytest.raises(ValueError, match=r"clusters_per_class must be 1 for sparse X"):
        daskclust.SemiSupervisedKMeans(K, clusters_per_class=2).fit(X, labels)


def test_other_estimators_and_parameters_refuse_sparse_rows():
    for rows in (X, lazy(X)):
        for model in (daskclust.DPMeans(0.5), daskclust.GaussianMixture(2), daskclust.HDBSCAN()):
            with pytest.raises(TypeError, match=r"X must be dense, got a sparse matrix.*KMeans"):
                model.fit(rows)
        with pytest.raises(TypeError, match="X must be dense"):
            KMeans(K, random_state=0).fit(rows) and daskclust.SparseKMeans(K).fit(rows)
        for params in ({"metric": "mahalanobis"}, {"missing": "partial"}, {"init": "dkm++"}):
            with pytest.raises(ValueError, match=r"does not support sparse X, because"):
                KMeans(K, **params).fit(rows)
    dense_blocks = lazy(X).map_blocks(lambda b: b.toarray(), meta=X[:0])
    with pytest.raises(ChunkError, match="must be a SciPy sparse matrix, as its metadata state"):
        KMeans(K).fit(dense_blocks)
    broken = X.copy()
    broken.indices[5] = P + 3
    with pytest.raises(ValueError, match=r"index|indices"):
        KMeans(K).fit(broken)


@pytest.mark.parametrize(
    "init",
    [
        "k-means||",
        *(pytest.param(init, marks=pytest.mark.slow) for init in ("k-means++", "random")),
    ],
)
def test_memory_is_that_of_stored_values_and_centers(init):
    n, p, stored = 20_000, 50_000, 20
    rng = np.random.default_rng(0)
    column = rng.integers(0, p // 5, (n, stored)) + p // 5 * (np.arange(n) % 5)[:, None]
    column[:, 0] = np.arange(n) % 5
    place = (np.repeat(np.arange(n), stored), column.ravel())
    wide = sparse.csr_array((rng.random(n * stored), place), shape=(n, p))
    tracemalloc.start()
    model = KMeans(5, init=init, n_init=1, max_iter=2, random_state=0).fit(wide)
    assert model.predict(wide).shape == (n,)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # The dense rows take 8 GB.
    assert peak < 300 * 2**20


def _as_ours(n_clusters=8, *, algorithm="lloyd", copy_x=True, verbose=0, **params):
    return KMeans(n_clusters, algorithm="lloyd", **params)


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csr_array])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_of_scikit_learn(kind, monkeypatch):
    """Those tests of scikit-learn's k-means that take sparse rows."""
    monkeypatch.setattr(theirs, "KMeans", _as_ours)
    for dtype in (np.float32, np.float64):
        theirs.test_kmeans_results(kind, "lloyd", dtype)
        theirs.test_centers_not_mutated(_as_ours, dtype)
    theirs.test_kmeans_relocated_clusters(kind, "lloyd")
    theirs.test_kmeans_empty_cluster_relocated(kind)
    theirs.test_dense_sparse(_as_ours, kind(theirs.X), 0)
    for init in ("random", "k-means++", theirs.centers):
        theirs.test_predict_dense_sparse(_as_ours, init, kind(theirs.X))
    for dtype in (np.int32, np.int64):
        for init in ("k-means++", "ndarray"):
            theirs.test_integer_input(_as_ours, kind, dtype, init, 0)
    theirs.test_kmeans_predict(_as_ours, "lloyd", kind, 100, np.float64, 0)
    theirs.test_k_means_1_iteration(kind, "lloyd", 0)
    theirs.test_unit_weights_vs_no_weights(_as_ours, kind(theirs.X), 0)
    theirs.test_scaled_weights(_as_ours, kind(theirs.X), 0)
    theirs.test_predict_does_not_change_cluster_centers(kind)
    theirs.test_relocating_with_duplicates("lloyd", kind)


def test_clusters_of_the_default_initialization_are_found_in_wide_rows():
    """The sample of sparse rows is bounded in bytes, but there is one."""
    rng = np.random.default_rng(0)
    n, p, k = 4000, 5000, 10
    truth = rng.integers(k, size=n)
    columns = truth[:, None] * (p // k) + rng.integers(0, p // k // 4, (n, 40))
    rows = np.repeat(np.arange(n), 40)
    X = sparse.csr_array((rng.random(40 * n), (rows, columns.ravel())), shape=(n, p))
    labels = daskclust.KMeans(k, random_state=0).fit(X).labels_
    assert adjusted_rand_score(truth, labels) > 0.99


@pytest.mark.parametrize("rows", [X, lazy(X)], ids=["scipy", "dask"])
def test_functions_that_need_dense_rows_say_so(rows):
    model = KMeans(K, random_state=0).fit(X)
    for function in (
        lambda: daskclust.explain.profiles(model, rows),
        lambda: daskclust.explain.rules(model, rows),
        lambda: daskclust.selection.suggest_labels(rows, 10),
        lambda: daskclust.deduplicate(rows, threshold=0.9),
    ):
        with pytest.raises(TypeError, match="X must be dense, got a sparse matrix"):
            function()
