"""KMeans: results by hand, against scikit-learn, and everything a user may hand it."""

from __future__ import annotations

import pickle
import threading
import warnings
from copy import deepcopy

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from helpers import chunks_of, values
from hypothesis import given
from hypothesis import strategies as st
from sklearn import config_context
from sklearn.base import clone
from sklearn.cluster import KMeans as SklearnKMeans
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.pairwise import euclidean_distances

import daskclust
from daskclust import PCKID, KMeans
from daskclust.cluster import kmeans
from daskclust.core.engine.rows import OpenRows
from daskclust.core.estimator.fit_loop import draw_seeds
from daskclust.exceptions import PerformanceWarning
from daskclust.testing import CountingScheduler
from daskclust.testing.strategies import row_chunks

pytestmark = pytest.mark.usefixtures("synchronous")

chunked = chunks_of(170)

INITS = ["k-means||", "k-means++", "random"]
METRICS = ["euclidean", "cosine", "mahalanobis"]


def blobs(n: int = 600, p: int = 4, k: int = 6, spread: float = 0.7, seed: int = 0):
    rng = np.random.default_rng(seed)
    centers = rng.normal(scale=4.0, size=(k, p))
    truth = rng.integers(0, k, n)
    return centers[truth] + spread * rng.normal(size=(n, p)), truth


X, TRUTH = blobs()
WEIGHT = np.random.default_rng(9).integers(0, 4, len(X)).astype(float)
INIT = X[:6]


@pytest.fixture
def states(monkeypatch):
    """Reduction and state of each pass."""
    made = []
    reduce = OpenRows.reduce

    def noting(self, reduction, state, carry=None):
        made.append((reduction.name, state))
        return reduce(self, reduction, state, carry)

    monkeypatch.setattr(OpenRows, "reduce", noting)
    return made


# By hand.

SQUARE = np.array([[0.0, 0.0], [0.5, 0.0], [0.5, 1.0], [1.0, 1.0]])


@pytest.mark.parametrize("container", [np.asarray, lambda x: da.from_array(x, chunks=(3, 2))])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_four_points_two_clusters_by_hand(container, dtype):
    model = KMeans(2, init=np.array([[0.0, 0.0], [0.5, 1.0]]), tol=0.0)
    model.fit(container(SQUARE.astype(dtype)))
    assert values(model.labels_).tolist() == [0, 0, 1, 1]
    assert model.cluster_centers_.tolist() == [[0.25, 0.0], [0.75, 1.0]]
    assert model.inertia_ == 0.25
    # The second pass finds that nothing moves.
    assert model.n_iter_ == 2
    assert [record["objective"] for record in model.history_] == [0.5, 0.25]
    assert [record["passes"] for record in model.history_] == [2, 3]


def test_four_weighted_points_by_hand():
    model = KMeans(2, init=np.array([[0.0, 0.0], [0.5, 1.0]]), tol=0.0)
    model.fit(SQUARE, sample_weight=[3.0, 1.0, 0.0, 2.0])
    assert model.labels_.tolist() == [0, 0, 1, 1]
    assert model.cluster_centers_.tolist() == [[0.125, 0.0], [1.0, 1.0]]
    assert model.inertia_ == 3 * 0.125**2 + 0.375**2


def test_an_empty_cluster_takes_the_farthest_row_by_hand():
    # Both rows at 1 are nearest to center 0; center 2 is empty and becomes the row at 9.
    data = np.array([[0.0], [1.0], [4.0], [5.0], [9.0]])
    model = KMeans(3, init=np.array([[0.0], [4.0], [100.0]]), max_iter=1).fit(data)
    assert model.cluster_centers_.ravel().tolist() == [0.5, 4.5, 9.0]
    assert model.labels_.tolist() == [0, 0, 1, 1, 2]


def test_one_cluster_is_the_mean():
    model = KMeans(1, random_state=0).fit(X)
    np.testing.assert_allclose(model.cluster_centers_[0], X.mean(axis=0), rtol=1e-12)
    assert model.inertia_ == pytest.approx(((X - X.mean(axis=0)) ** 2).sum(), rel=1e-12)


def test_as_many_clusters_as_rows_leaves_no_inertia():
    for init in INITS:
        model = KMeans(10, init=init, random_state=0).fit(X[:10])
        assert model.inertia_ == 0.0
        assert sorted(model.labels_.tolist()) == list(range(10))


# Against scikit-learn.


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
@pytest.mark.parametrize("offset", [0.0, 1e3])
@pytest.mark.parametrize("container", [np.asarray, chunked])
def test_equals_scikit_learn_from_the_same_centers(dtype, weight, offset, container):
    data = (X + offset).astype(dtype)
    # scikit-learn works in the data's precision; here labels are computed in float64.
    theirs = SklearnKMeans(6, init=data[:6].astype(float), n_init=1, tol=1e-4).fit(
        data.astype(float), sample_weight=weight
    )
    ours = KMeans(6, init=data[:6], tol=1e-4).fit(container(data), sample_weight=weight)
    np.testing.assert_array_equal(values(ours.labels_), theirs.labels_)
    assert ours.n_iter_ == theirs.n_iter_
    assert ours.inertia_ == pytest.approx(theirs.inertia_, rel=1e-6)
    np.testing.assert_allclose(ours.cluster_centers_, theirs.cluster_centers_, rtol=1e-6)
    assert ours.cluster_centers_.dtype == np.float64


@pytest.mark.parametrize("tol", [0.0, 1e-4, 1e-2, 0.5])
def test_stops_after_as_many_iterations_as_scikit_learn(tol):
    theirs = SklearnKMeans(6, init=INIT, n_init=1, tol=tol).fit(X)
    ours = KMeans(6, init=INIT, tol=tol).fit(X)
    assert ours.n_iter_ == theirs.n_iter_
    np.testing.assert_allclose(ours.cluster_centers_, theirs.cluster_centers_, rtol=1e-9)


@pytest.mark.parametrize("n_empty", [1, 2])
def test_empty_clusters_are_relocated_as_scikit_learn_does(n_empty):
    init = np.concatenate([X[: 6 - n_empty], np.full((n_empty, 4), 1e3)])
    theirs = SklearnKMeans(6, init=init, n_init=1, max_iter=1).fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        ours = KMeans(6, init=init, max_iter=1).fit(X)
    # Several empty clusters take the same rows; scikit-learn's order among them is unsorted.
    order = np.lexsort(ours.cluster_centers_.T), np.lexsort(theirs.cluster_centers_.T)
    np.testing.assert_allclose(
        ours.cluster_centers_[order[0]], theirs.cluster_centers_[order[1]], rtol=1e-9
    )
    assert ours.inertia_ == pytest.approx(theirs.inertia_, rel=1e-9)


@given(lengths=row_chunks(60), weighted=st.booleans())
def test_relocation_does_not_depend_on_chunks(lengths, weighted):
    data, weight = X[:60], WEIGHT[:60] if weighted else None
    init = np.concatenate([data[:2], np.full((3, 4), 1e3)])
    whole = KMeans(5, init=init).fit(data, sample_weight=weight)
    cut = KMeans(5, init=init).fit(da.from_array(data, chunks=(lengths, 4)), sample_weight=weight)
    np.testing.assert_array_equal(values(cut.labels_), whole.labels_)
    np.testing.assert_allclose(cut.cluster_centers_, whole.cluster_centers_, rtol=1e-12)


def test_no_cluster_ends_empty_where_rows_are_left():
    for seed in range(5):
        rng = np.random.default_rng(seed)
        data = rng.normal(size=(30, 2))
        model = KMeans(12, init=rng.normal(size=(12, 2)) + 20.0).fit(data)
        assert len(np.unique(model.labels_)) == 12


def test_a_relocated_row_is_taken_from_its_own_cluster():
    # The farthest row is the only one of its cluster: moving it would empty that one instead.
    data = np.array([[0.0], [0.5], [1.0], [1.5], [50.0]])
    model = KMeans(3, init=np.array([[0.75], [10.0], [500.0]]), max_iter=1).fit(data)
    assert sorted(np.bincount(model.labels_, minlength=3).tolist()) != [0, 0, 5]
    assert (np.bincount(model.labels_, minlength=3) > 0).all()


# Weights.


@pytest.mark.parametrize("metric", METRICS)
def test_an_integer_weight_equals_repetition(metric):
    repeated = np.repeat(X, WEIGHT.astype(int), axis=0)
    whole = KMeans(6, init=INIT, metric=metric).fit(repeated)
    model = KMeans(6, init=INIT, metric=metric).fit(X, sample_weight=WEIGHT)
    np.testing.assert_allclose(model.cluster_centers_, whole.cluster_centers_, rtol=1e-9)
    assert model.inertia_ == pytest.approx(whole.inertia_, rel=1e-9)
    assert model.n_iter_ == whole.n_iter_
    np.testing.assert_array_equal(np.repeat(model.labels_, WEIGHT.astype(int)), whole.labels_)


@pytest.mark.parametrize("metric", METRICS)
def test_a_weight_of_0_equals_absence(metric):
    weight = np.where(np.arange(len(X)) % 3, 1.0, 0.0)
    far = X.copy()
    far[::3] += 1e6
    kept = KMeans(6, init=INIT, metric=metric).fit(X[weight > 0])
    model = KMeans(6, init=INIT, metric=metric).fit(far, sample_weight=weight)
    np.testing.assert_allclose(model.cluster_centers_, kept.cluster_centers_, rtol=1e-9)
    np.testing.assert_array_equal(model.labels_[weight > 0], kept.labels_)
    assert model.inertia_ == pytest.approx(kept.inertia_, rel=1e-9)


@pytest.mark.parametrize("init", INITS)
def test_a_row_of_weight_0_is_never_a_starting_center(init):
    data = np.concatenate([X, X[:50] + 1e4])
    weight = np.r_[np.ones(len(X)), np.zeros(50)]
    for seed in range(5):
        model = KMeans(6, init=init, max_iter=1, random_state=seed)
        model.fit(data, sample_weight=weight)
        assert np.abs(model.cluster_centers_).max() < 100.0


@pytest.mark.parametrize("init", INITS)
def test_a_heavy_row_attracts_the_start(init):
    # One far row has half of all weight.
    data = np.concatenate([X, [[300.0, 0, 0, 0]]])
    weight = np.r_[np.ones(len(X)), len(X)]
    hits = [
        np.abs(
            KMeans(2, init=init, n_init=1, max_iter=1, random_state=seed)
            .fit(data, sample_weight=weight)
            .cluster_centers_
            - data[-1]
        )
        .max(axis=1)
        .min()
        < 1e-9
        for seed in range(10)
    ]
    assert sum(hits) >= 7


def test_weights_of_1_and_no_weights_give_the_same_bits():
    plain = KMeans(6, random_state=0).fit(X)
    for weight in (np.ones(len(X)), 1, 1.0, [1] * len(X)):
        model = KMeans(6, random_state=0).fit(X, sample_weight=weight)
        np.testing.assert_array_equal(model.cluster_centers_, plain.cluster_centers_)
        assert model.inertia_ == plain.inertia_


@pytest.mark.parametrize("two", [2, np.float32(2)])
def test_one_weight_for_all_rows(two):
    plain = KMeans(6, init=INIT).fit(X)
    unknown = chunked(X, 70)[da.ones(len(X), dtype=bool, chunks=70)]
    for data in (X, chunked(X, 70), unknown, unknown.rechunk({1: 2})):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PerformanceWarning)
            model = KMeans(6, init=INIT).fit(data, sample_weight=two)
            assert model.score(data, sample_weight=two) == pytest.approx(-2 * plain.inertia_)
        np.testing.assert_array_equal(values(model.labels_), plain.labels_)
        assert model.inertia_ == pytest.approx(2 * plain.inertia_)


@pytest.mark.parametrize("init", INITS)
def test_scaled_weights_give_the_same_labels(init):
    weight = WEIGHT + 0.5
    one = KMeans(6, init=init, random_state=0).fit(X, sample_weight=weight)
    # By a power of two, so that nothing is rounded.
    two = KMeans(6, init=init, random_state=0).fit(X, sample_weight=weight / 1024)
    np.testing.assert_array_equal(one.labels_, two.labels_)
    np.testing.assert_array_equal(one.cluster_centers_, two.cluster_centers_)
    assert two.inertia_ == one.inertia_ / 1024


# Labels, centers and inertia agree.


@pytest.mark.parametrize("max_iter", [1, 4])
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("container", [np.asarray, chunked])
def test_predict_equals_labels_for_any_max_iter(max_iter, metric, container):
    data = container(X)
    model = KMeans(6, max_iter=max_iter, metric=metric, random_state=0, tol=0.0).fit(data)
    np.testing.assert_array_equal(values(model.predict(data)), values(model.labels_))
    assert model.score(data) == pytest.approx(-model.inertia_, rel=1e-12)
    distances = values(model.transform(data))
    assert (distances.min(axis=1) ** 2).sum() == pytest.approx(model.inertia_, rel=1e-9)
    np.testing.assert_array_equal(distances.argmin(axis=1), values(model.labels_))


@pytest.mark.parametrize("offset", [0.0, 1e5])
def test_inertia_is_the_sum_of_squared_distances(offset):
    model = KMeans(6, random_state=0, max_iter=2).fit(X + offset)
    gaps = (X + offset) - model.cluster_centers_[model.labels_]
    assert model.inertia_ == pytest.approx((gaps**2).sum(), rel=1e-12)


def test_the_objective_never_rises():
    model = KMeans(8, init="random", n_init=1, random_state=1, tol=0.0).fit(X)
    objective = [record["objective"] for record in model.history_]
    assert len(objective) > 3
    assert (np.diff(objective) <= 0).all()
    assert model.history_[-1]["center_shift"] == 0.0
    assert model.inertia_ == objective[-1]


def test_fit_predict_and_fit_transform_are_fit_and_the_rest():
    model = KMeans(6, random_state=0)
    np.testing.assert_array_equal(model.fit_predict(X), model.labels_)
    np.testing.assert_array_equal(model.fit_transform(X), model.transform(X))
    weighted = KMeans(6, random_state=0).fit(X, sample_weight=WEIGHT).labels_
    np.testing.assert_array_equal(model.fit_predict(X, sample_weight=WEIGHT), weighted)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_transform_equals_euclidean_distances_in_the_type_of_the_data(dtype):
    data = X.astype(dtype)
    model = KMeans(6, random_state=0).fit(data)
    expected = euclidean_distances(data.astype(float), model.cluster_centers_)
    for container in (np.asarray, chunked):
        found = model.transform(container(data))
        assert found.dtype == dtype
        assert values(found).dtype == dtype
        np.testing.assert_allclose(
            values(found), expected, rtol=1e-5 if dtype == np.float32 else 1e-9
        )
    assert model.get_feature_names_out().tolist() == [f"kmeans{i}" for i in range(6)]


def test_score_of_other_data_with_weights():
    model = KMeans(6, random_state=0).fit(X)
    other, weight = X[:40] + 0.3, WEIGHT[:40]
    squared = euclidean_distances(other, model.cluster_centers_).min(axis=1) ** 2
    assert model.score(other) == pytest.approx(-squared.sum(), rel=1e-9)
    assert model.score(other, sample_weight=weight) == pytest.approx(-(weight @ squared), rel=1e-9)
    assert model.score(chunked(other, 7), sample_weight=weight) == pytest.approx(
        -(weight @ squared), rel=1e-9
    )


# Inputs.


@pytest.mark.parametrize("container", [np.asarray, chunked])
@pytest.mark.parametrize("metric", METRICS)
def test_inputs_are_not_written_to(container, metric):
    data, weight, init = X.copy(), WEIGHT.copy(), INIT.copy()
    for array in (data, weight, init):
        array.setflags(write=False)
    model = KMeans(6, init=init, metric=metric).fit(container(data), sample_weight=weight)
    values(model.predict(container(data)))
    values(model.transform(container(data)))
    model.score(container(data))
    assert values(model.labels_).shape == (len(X),)
    np.testing.assert_array_equal(data, X)
    np.testing.assert_array_equal(weight, WEIGHT)
    np.testing.assert_array_equal(init, INIT)


@pytest.mark.parametrize("arrange", [np.asfortranarray, lambda a: np.repeat(a, 2, 1)[:, ::2]])
def test_memory_layout_does_not_matter(arrange):
    expected = KMeans(6, random_state=0).fit(X)
    model = KMeans(6, random_state=0).fit(arrange(X))
    np.testing.assert_array_equal(model.cluster_centers_, expected.cluster_centers_)


def test_a_list_of_lists_will_do():
    assert KMeans(2, random_state=0).fit([[0, 0], [1, 1], [9, 9]]).predict([[8, 8]]).shape == (1,)


def test_a_pandas_table_brings_its_names():
    table = pd.DataFrame(X, columns=list("abcd"))
    model = KMeans(6, random_state=0).fit(table)
    assert model.feature_names_in_.tolist() == list("abcd")
    np.testing.assert_array_equal(model.labels_, KMeans(6, random_state=0).fit(X).labels_)
    np.testing.assert_array_equal(model.predict(table), model.labels_)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(table[["b", "a", "c", "d"]])


def test_pandas_output_can_be_asked_for():
    table = pd.DataFrame(X, columns=list("abcd"), index=np.arange(len(X)) + 5)
    out = KMeans(6, random_state=0).set_output(transform="pandas").fit(table).transform(table)
    assert out.columns.tolist() == [f"kmeans{i}" for i in range(6)]
    assert out.index.equals(table.index)


def test_pandas_output_of_lazy_input_is_refused_before_anything_is_computed():
    lazy = da.from_array(X, chunks=(50, 4))
    image = daskclust.open_cube(X.reshape(-1, 10, 4), dims=("y", "x", "band"))
    plain = KMeans(6, random_state=0).fit(X)
    counting = CountingScheduler()
    with dask.config.set(scheduler=counting):
        for data in (lazy, xr.DataArray(lazy), image):
            for model in (plain, PCKID(3)):
                with pytest.raises(ValueError, match=r"transform='pandas'.*from_dask_array"):
                    clone(model).set_output(transform="pandas").fit_transform(data)
        with pytest.raises(ValueError, match="transform='pandas'"):
            deepcopy(plain).set_output(transform="pandas").transform(lazy)
        with config_context(transform_output="pandas"), pytest.raises(ValueError, match="pandas"):
            plain.transform(lazy)
    assert counting.calls == 0
    assert isinstance(plain.set_output(transform="default").transform(lazy), da.Array)


def test_a_dask_table_brings_its_names():
    dd = pytest.importorskip("dask.dataframe")
    table = dd.from_pandas(pd.DataFrame(X, columns=list("abcd")), npartitions=3)
    with pytest.warns(PerformanceWarning, match=r"to_dask_array\(lengths=True\)"):
        model = KMeans(6, random_state=0).fit(table)
    assert model.feature_names_in_.tolist() == list("abcd")
    expected = KMeans(6, random_state=0).fit(X)
    np.testing.assert_array_equal(values(model.labels_), expected.labels_)
    np.testing.assert_array_equal(values(model.predict(table)), expected.labels_)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(table[["b", "a", "c", "d"]])


@pytest.mark.parametrize("container", [np.asarray, chunked])
def test_an_xarray_array_is_its_array(container):
    array = xr.DataArray(container(X), dims=("pixel", "band"))
    model = KMeans(6, random_state=0).fit(array)
    assert isinstance(model.labels_, np.ndarray) == (container is np.asarray)
    expected = KMeans(6, random_state=0).fit(X)
    np.testing.assert_array_equal(values(model.labels_), expected.labels_)
    np.testing.assert_array_equal(values(model.predict(array)), expected.labels_)


def test_dask_in_is_dask_out_in_the_same_chunks():
    data = da.from_array(X, chunks=((100, 0, 450, 50), (4,)))
    model = KMeans(6, random_state=0).fit(data)
    for lazy in (model.labels_, model.predict(data), model.transform(data)):
        assert isinstance(lazy, da.Array)
        assert lazy.chunks[0] == (100, 0, 450, 50)
        computed = lazy.compute()
        assert computed.shape == lazy.shape
        assert computed.dtype == lazy.dtype
    assert model.labels_.dtype == np.int32
    assert isinstance(model.cluster_centers_, np.ndarray)
    assert isinstance(model.inertia_, float)


def test_numpy_and_dask_models_predict_each_others_data():
    one = KMeans(6, random_state=0).fit(X)
    two = KMeans(6, random_state=0).fit(chunked(X))
    np.testing.assert_array_equal(values(one.predict(chunked(X))), two.predict(X))


def test_a_model_of_lazy_data_pickles_without_its_data_and_labels():
    model = KMeans(6, random_state=0).fit(chunked(X))
    sent = pickle.dumps(model)
    assert len(sent) < 10_000 < X.nbytes
    again = pickle.loads(sent)
    assert not hasattr(again, "labels_")
    # The model itself keeps them.
    assert isinstance(model.labels_, da.Array)
    np.testing.assert_array_equal(again.predict(X), values(model.labels_))
    assert again.inertia_ == model.inertia_


def test_a_model_of_held_data_pickles_with_its_labels():
    model = KMeans(6, random_state=0).fit(X)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.labels_, model.labels_)


# Starts.


def test_an_array_start_is_used_as_it_is(states):
    KMeans(6, init=INIT, max_iter=1).fit(X)
    name, state = states[1]
    assert name == "assign"
    np.testing.assert_array_equal(state.centers[0], INIT)


@pytest.mark.parametrize("container", [np.asarray, chunked])
def test_a_callable_start_is_given_the_data_and_a_random_state(container, states):
    seen = []

    def start(data, n_clusters, random_state):
        seen.append((type(data), n_clusters, random_state.randint(2**31)))
        return INIT

    data = container(X)
    model = KMeans(6, init=start, n_init=3, random_state=0).fit(data)
    assert len(seen) == 3
    assert {s[:2] for s in seen} == {(type(data), 6)}
    assert len({s[2] for s in seen}) == 3
    np.testing.assert_array_equal(
        values(model.labels_), values(KMeans(6, init=INIT).fit(data).labels_)
    )


def test_n_init_auto_is_10_for_random_and_callable_starts_else_1(states):
    counts = {}
    for init in [*INITS, INIT, lambda X, k, r: INIT]:
        states.clear()
        KMeans(6, init=init, random_state=0, max_iter=1).fit(X)
        counts[str(init)[:9]] = len(next(s for name, s in states if name == "assign").centers)
    assert list(counts.values()) == [1, 1, 10, 1, 10]


def test_equal_restarts_are_not_chosen_between_by_rounding():
    # Two blobs: all restarts find them, numbered one way or the other.
    data = np.concatenate([X[:100], X[:100] + 40.0])
    for seed in range(10):
        whole = KMeans(2, n_init=6, random_state=seed).fit(data)
        cut = KMeans(2, n_init=6, random_state=seed).fit(chunked(data, 37))
        np.testing.assert_array_equal(values(cut.labels_), whole.labels_)


@pytest.mark.parametrize("init", INITS)
def test_restarts_share_the_passes_of_the_slowest(init, monkeypatch):
    data, _ = blobs(spread=4.0)
    seeds = draw_seeds(4, 5)
    single = []
    for seed in seeds:
        with monkeypatch.context() as patch:
            patch.setattr(kmeans, "draw_seeds", lambda *_, seed=seed: (seed,))
            single.append(KMeans(6, init=init, n_init=1).fit(data))
    scheduler = CountingScheduler()
    with dask.config.set(scheduler=scheduler):
        model = KMeans(6, init=init, n_init=5, random_state=4).fit(chunked(data))
    slowest = max(one.n_iter_ for one in single)
    # All rows are the sample, on which draws are judged.
    start = {"k-means||": 1, "k-means++": 6, "random": 0}[init]
    if init == "k-means||":
        # Restarts share the sample, so they differ from single fits.
        assert model.history_[0]["passes"] == 1 + start + 1
        return
    assert slowest > min(one.n_iter_ for one in single)
    assert len(model.history_) == slowest
    passes = model.history_[-1]["passes"]
    assert passes == 1 + start + slowest
    assert scheduler.calls in (passes, passes + 1)
    best = min(single, key=lambda one: one.inertia_)
    assert model.inertia_ == pytest.approx(best.inertia_, rel=1e-12)
    assert model.n_iter_ == best.n_iter_
    np.testing.assert_array_equal(values(model.labels_), best.labels_)


@pytest.mark.parametrize("k", [2, 10, 34])
@pytest.mark.parametrize(("factor", "rounds"), [(2.0, 5), (0.5, 3), (1.3, 1)])
def test_kmeans_parallel_draws_candidates_in_proportion_to_k(k, factor, rounds, states):
    data, _ = blobs(9000, 3, 40)
    KMeans(k, oversampling_factor=factor, init_rounds=rounds, random_state=0, max_iter=1).fit(data)
    drawing = [state for name, state in states if name == "candidates"]
    assert {state.n_picks for state in drawing} == {round(factor * k)}
    # Rounds beyond `init_rounds` only while there are fewer candidates than clusters.
    assert len(drawing) == max(rounds, -(-(k - 1) // round(factor * k)))
    n_drawn = round(factor * k)
    assert [len(state.candidates[0]) for state in drawing] == [
        1 + i * n_drawn for i in range(len(drawing))
    ]


def test_passes_of_kmeans_parallel_do_not_depend_on_k(states):
    data, _ = blobs(9000, 3, 40)
    counts = []
    for k in (2, 20, 34):
        states.clear()
        KMeans(k, random_state=0, max_iter=1).fit(data)
        counts.append(sum(name in ("candidates", "farthest") for name, _ in states))
    assert counts == [6, 6, 6]


@pytest.mark.parametrize("container", [np.asarray, lambda x: chunked(x, 777)])
def test_kmeans_parallel_finds_30_easy_blobs_from_every_seed(container):
    rng = np.random.default_rng(5)
    centers = np.stack(np.meshgrid(range(6), range(5)), axis=-1).reshape(30, 2) * 20.0
    truth = rng.integers(0, 30, 3000)
    data = centers[truth] + rng.normal(size=(3000, 2))
    for seed in range(10):
        model = KMeans(30, random_state=seed).fit(container(data))
        assert adjusted_rand_score(truth, values(model.labels_)) == 1.0


def test_kmeans_plus_plus_draws_with_probability_in_proportion_to_d2():
    # From either end: the other end has D^2 = 100, the middle 1 or 81.
    data = np.array([[0.0], [1.0], [10.0]])
    starts = np.zeros(2)
    for seed in range(150):
        model = KMeans(2, init="k-means++", n_init=1, max_iter=1, random_state=seed).fit(data)
        starts["".join(map(str, model.labels_)) in ("001", "110")] += 1
    # P(the two ends, or middle and right) = 1 - P(left, middle) - ... = 0.9868.
    far = 1 / 3 * (100 / 101) + 1 / 3 * (81 / 82) + 1 / 3
    assert abs(starts[1] / 150 - far) < 0.03


@pytest.mark.parametrize("init", INITS)
def test_a_start_does_not_depend_on_where_the_data_lie(init):
    one = KMeans(6, init=init, random_state=3).fit(X)
    # A power of two, far enough to show and near enough to keep all digits that matter.
    two = KMeans(6, init=init, random_state=3).fit(X + 1024.0)
    np.testing.assert_array_equal(one.labels_, two.labels_)


# Tolerance and scale.


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("scale", [1e3, 2.0**-40])
def test_the_scale_of_the_data_changes_neither_labels_nor_iterations(init, scale):
    one = KMeans(6, init=init, random_state=0).fit(X)
    two = KMeans(6, init=init, random_state=0).fit(X * scale)
    assert two.n_iter_ == one.n_iter_
    np.testing.assert_array_equal(two.labels_, one.labels_)
    assert two.inertia_ == pytest.approx(one.inertia_ * scale**2, rel=1e-9)


# Metrics.


def spherical(data, centers, max_iter=100):
    """Spherical k-means: nearest by angle, mean directions."""
    unit = data / np.linalg.norm(data, axis=1, keepdims=True)
    centers = centers / np.linalg.norm(centers, axis=1, keepdims=True)
    for _ in range(max_iter):
        labels = (unit @ centers.T).argmax(axis=1)
        sums = np.stack([unit[labels == k].sum(axis=0) for k in range(len(centers))])
        moved = sums / np.linalg.norm(sums, axis=1, keepdims=True)
        if np.allclose(moved, centers, rtol=0, atol=1e-15):
            break
        centers = moved
    return labels, centers, (2 - 2 * (unit * centers[labels]).sum(axis=1)).sum()


@pytest.mark.parametrize("container", [np.asarray, chunked])
def test_cosine_is_spherical_kmeans(container):
    data = X * np.random.default_rng(4).uniform(0.1, 10.0, (len(X), 1))
    labels, centers, inertia = spherical(data, data[:6])
    model = KMeans(6, init=data[:6], metric="cosine", tol=0.0).fit(container(data))
    np.testing.assert_array_equal(values(model.labels_), labels)
    np.testing.assert_allclose(model.cluster_centers_, centers, rtol=1e-9)
    assert model.inertia_ == pytest.approx(inertia, rel=1e-9)
    np.testing.assert_allclose(
        values(model.transform(container(data))) ** 2 / 2,
        1 - (data / np.linalg.norm(data, axis=1, keepdims=True)) @ centers.T,
        atol=1e-12,
    )


def test_cosine_does_not_see_the_length_of_rows():
    lengths = 2.0 ** np.random.default_rng(4).integers(-20, 20, (len(X), 1))
    one = KMeans(6, metric="cosine", random_state=0).fit(X)
    two = KMeans(6, metric="cosine", random_state=0).fit(X * lengths)
    np.testing.assert_array_equal(one.labels_, two.labels_)
    np.testing.assert_allclose(one.cluster_centers_, two.cluster_centers_, rtol=1e-12)


def test_cosine_takes_a_row_of_zeros():
    data = np.concatenate([X, np.zeros((1, 4))])
    model = KMeans(6, metric="cosine", random_state=0).fit(data)
    assert np.isfinite(model.cluster_centers_).all()
    assert np.isfinite(model.inertia_)
    without = KMeans(6, metric="cosine", init=model.cluster_centers_).fit(X)
    np.testing.assert_allclose(model.cluster_centers_, without.cluster_centers_, rtol=1e-12)
    assert model.inertia_ == pytest.approx(without.inertia_, rel=1e-12)


@pytest.mark.parametrize("container", [np.asarray, chunked])
@pytest.mark.parametrize("init", ["k-means||", "random"])
def test_rows_of_zeros_take_no_center(container, init):
    """A former error: one of six centers was at the origin, and two clusters were merged."""
    rng = np.random.default_rng(0)
    centers = 8 * rng.normal(size=(6, 4))
    data = centers[rng.integers(0, 6, 3000)] + rng.normal(size=(3000, 4))
    data[::10] = 0
    model = KMeans(6, metric="cosine", init=init, random_state=0).fit(container(data))
    np.testing.assert_allclose(np.linalg.norm(model.cluster_centers_, axis=1), 1, rtol=1e-12)
    assert model.counts_.sum() == 2700
    assert (values(model.labels_)[::10] == 0).all()
    assert model.score(container(data)) == pytest.approx(-model.inertia_, rel=1e-12)
    absent = np.where(np.arange(3000) % 10 == 0, 0.0, 1.0)
    data[::10] = 1
    left_out = KMeans(6, metric="cosine", init=init, random_state=0)
    left_out.fit(container(data), sample_weight=absent)
    np.testing.assert_array_equal(model.cluster_centers_, left_out.cluster_centers_)
    assert model.inertia_ == left_out.inertia_


def test_rows_of_zeros_alone_have_no_clusters():
    with pytest.raises(ValueError, match="a row of zeros has weight 0"):
        KMeans(2, metric="cosine").fit(np.zeros((9, 3)))


@pytest.mark.parametrize("container", [np.asarray, chunked])
def test_mahalanobis_is_kmeans_on_whitened_rows(container):
    mixed = X @ np.random.default_rng(2).normal(size=(4, 4)) + 7.0
    covariance = np.cov(mixed.T, bias=True)
    inverse = np.linalg.cholesky(np.linalg.inv(covariance))
    theirs = SklearnKMeans(6, init=mixed[:6] @ inverse, n_init=1).fit(mixed @ inverse)
    model = KMeans(6, init=mixed[:6], metric="mahalanobis").fit(container(mixed))
    np.testing.assert_array_equal(values(model.labels_), theirs.labels_)
    assert model.inertia_ == pytest.approx(theirs.inertia_, rel=1e-6)
    assert model.n_iter_ == theirs.n_iter_
    means = np.stack([mixed[theirs.labels_ == k].mean(axis=0) for k in range(6)])
    np.testing.assert_allclose(model.cluster_centers_, means, rtol=1e-6)
    np.testing.assert_allclose(
        values(model.transform(container(mixed))), theirs.transform(mixed @ inverse), rtol=1e-6
    )


def test_mahalanobis_drops_directions_without_variance():
    flat = np.column_stack([X, X[:, 0] - X[:, 1], np.full(len(X), 3.0)])
    one = KMeans(6, init=X[:6], metric="mahalanobis").fit(X)
    two = KMeans(6, init=flat[:6], metric="mahalanobis").fit(flat)
    np.testing.assert_array_equal(one.labels_, two.labels_)
    np.testing.assert_allclose(two.cluster_centers_[:, :4], one.cluster_centers_, rtol=1e-6)
    np.testing.assert_allclose(two.cluster_centers_[:, 5], 3.0, rtol=1e-9)


def test_mahalanobis_of_rows_that_are_all_alike_is_one_cluster():
    with pytest.warns(ConvergenceWarning, match=r"\(1\) found smaller than n_clusters \(2\)"):
        model = KMeans(2, metric="mahalanobis", random_state=0).fit(np.ones((5, 3)))
    assert model.inertia_ == 0.0
    np.testing.assert_array_equal(model.cluster_centers_, np.ones((2, 3)))


@pytest.mark.parametrize("metric", METRICS)
@given(lengths=row_chunks(150), init=st.sampled_from(INITS), dtype=st.sampled_from(["f4", "f8"]))
def test_any_chunks_give_the_same_labels_in_every_metric(metric, lengths, init, dtype):
    data = X[:150].astype(dtype)
    options = {"metric": metric, "init": init, "random_state": 2, "n_init": 2}
    whole = KMeans(5, **options).fit(data)
    cut = KMeans(5, **options).fit(da.from_array(data, chunks=(lengths, 4)))
    np.testing.assert_array_equal(values(cut.labels_), whole.labels_)
    assert cut.n_iter_ == whole.n_iter_
    assert cut.inertia_ == pytest.approx(whole.inertia_, rel=1e-9)


# Random state.


@pytest.mark.parametrize("init", INITS)
def test_the_same_seed_gives_the_same_bits_and_another_another_start(init):
    fits = [KMeans(6, init=init, n_init=1, max_iter=1, random_state=s).fit(X) for s in (0, 0, 1)]
    np.testing.assert_array_equal(fits[0].cluster_centers_, fits[1].cluster_centers_)
    assert not np.array_equal(fits[0].cluster_centers_, fits[2].cluster_centers_)


@pytest.mark.parametrize("make", [np.random.default_rng, np.random.RandomState])
def test_a_generator_fixes_the_result_and_moves_on(make):
    def centers(state):
        model = KMeans(6, init="random", n_init=1, max_iter=1, random_state=state)
        return model.fit(X).cluster_centers_

    one, two = make(5), make(5)
    first = centers(one)
    np.testing.assert_array_equal(centers(two), first)
    second = centers(one)
    assert not np.array_equal(second, first)
    np.testing.assert_array_equal(centers(two), second)


def test_no_random_state_starts_anew_each_time():
    fits = [KMeans(6, init="random", n_init=1, max_iter=1).fit(X) for _ in range(4)]
    assert len({fit.cluster_centers_.tobytes() for fit in fits}) > 1


@pytest.mark.parametrize("state", [0, np.int64(3), 2**63])
def test_any_non_negative_integer_is_a_seed(state):
    assert KMeans(3, random_state=state).fit(X).n_iter_ >= 1


# Few distinct rows.


@pytest.mark.parametrize("init", [*INITS, np.array([[0.0, 1.0], [0.0, 1.0], [5.0, 5.0]])])
@pytest.mark.parametrize("container", [np.asarray, lambda x: chunked(x, 7)])
def test_fewer_distinct_rows_than_clusters_is_a_warning_with_both_numbers(init, container):
    # The mean of 15 equal rows is not the row: sums are rounded.
    data = np.repeat([[-0.4009657126267237, 0.3], [2.1, 3.7]], 15, axis=0)
    with pytest.warns(
        ConvergenceWarning, match=r"clusters \(2\) found smaller than n_clusters \(3\).*=2 or less"
    ) as caught:
        model = KMeans(3, init=init, random_state=0).fit(container(data))
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert model.inertia_ == pytest.approx(0.0, abs=1e-25)
    assert len(np.unique(values(model.labels_))) == 2
    assert np.isfinite(model.cluster_centers_).all()


def test_weightless_rows_do_not_count_as_distinct():
    data = np.array([[0.0], [0.0], [1.0], [2.0]])
    with pytest.warns(ConvergenceWarning, match=r"\(2\) found smaller than n_clusters \(3\)"):
        KMeans(3, random_state=0).fit(data, sample_weight=[1.0, 1.0, 1.0, 0.0])


# Bad input.


@pytest.mark.parametrize(("bad", "name"), [(np.nan, "NaN"), (-np.inf, "inf")])
@pytest.mark.parametrize("metric", METRICS[:2])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_first_bad_value_is_named_after_one_pass(bad, name, metric, weighted):
    data = X.copy()
    data[321, 2], data[321, 3], data[500, 0] = bad, np.nan, np.inf
    weight = None
    if weighted:
        # A row of weight 0 is checked, too.
        weight = np.ones(len(X))
        weight[321] = 0.0
    scheduler = CountingScheduler()
    for container in (np.asarray, chunked):
        model = KMeans(6, metric=metric, random_state=0)
        with (
            dask.config.set(scheduler=scheduler),
            pytest.raises(ValueError, match=rf"contains {name}.*row 321, column 2"),
        ):
            model.fit(container(data), sample_weight=weight)
    assert scheduler.names == ["daskclust-survey"]


@pytest.mark.parametrize("method", ["predict", "transform"])
def test_bad_values_are_named_when_rows_are_predicted(method):
    model = KMeans(6, random_state=0).fit(X)
    data = X.copy()
    data[401, 1] = np.nan
    for container in (np.asarray, chunked):
        with pytest.raises(ValueError, match=r"contains NaN.*row 401, column 1"):
            values(getattr(model, method)(container(data)))


@pytest.mark.parametrize("container", [np.asarray, chunked])
def test_bad_values_are_named_when_rows_are_scored(container):
    model = KMeans(6, random_state=0).fit(X)
    data = X.copy()
    data[401, 1] = np.nan
    with pytest.raises(ValueError, match=r"contains NaN.*row 401, column 1"):
        model.score(container(data))


CONTAINERS = pytest.mark.parametrize(
    "container", [np.asarray, lambda x: da.from_array(x, chunks=-1)]
)


@CONTAINERS
def test_more_clusters_than_rows_is_refused(container):
    with pytest.raises(ValueError, match="n_clusters=6 must be at most n_samples=5"):
        KMeans(6).fit(container(X[:5]))


@CONTAINERS
@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((12,), "2D array|2 dimensions"),
        ((2, 3, 4), "3"),
        ((), "2D array|2 dimensions"),
    ],
)
def test_other_dimensions_than_two_are_refused(container, shape, message):
    with pytest.raises(ValueError, match=message):
        KMeans(2).fit(container(np.ones(shape)))


@CONTAINERS
@pytest.mark.parametrize("shape", [(0, 3), (5, 0), (0, 0)])
def test_empty_arrays_are_refused(container, shape):
    with pytest.raises(ValueError, match=r"Found array with 0 (sample|feature)\(s\)"):
        KMeans(2).fit(container(np.empty(shape)))


def test_rows_that_all_vanish_on_counting_are_refused():
    data = chunked(X)[da.from_array(np.zeros(len(X), bool), chunks=170)]
    with (
        pytest.warns(PerformanceWarning),
        pytest.raises(ValueError, match=r"Found array with 0 sample\(s\)"),
    ):
        KMeans(2).fit(data)


@pytest.mark.parametrize("dtype", [str, "U3", complex, "M8[s]", object])
@CONTAINERS
def test_values_that_are_no_real_numbers_are_refused(dtype, container):
    data = np.array([["a", "b"], ["c", "d"]]) if dtype in (str, object) else np.ones((2, 2))
    with pytest.raises((ValueError, TypeError), match=r"(?i)complex|numbers|string|dtype"):
        KMeans(2).fit(container(data.astype(dtype)))


def test_masked_values_are_refused_and_empty_masks_are_not():
    masked = np.ma.masked_where(X > 1e9, X)
    assert not masked.mask.any()
    np.testing.assert_array_equal(
        KMeans(2, random_state=0).fit(masked).labels_, KMeans(2, random_state=0).fit(X).labels_
    )
    masked[7, 1] = np.ma.masked
    for use in (KMeans(2).fit, KMeans(2).fit(X).predict):
        with pytest.raises(ValueError, match="masked values, got one in row 7"):
            use(masked)
    # Blocks of a Dask array may be masked without notice: masked values are NaN.
    lazy = da.from_array(masked, chunks=(70, -1), asarray=False)
    with pytest.raises(ValueError, match="contains NaN: the first at row 7, column 1"):
        KMeans(2).fit(lazy)
    labels = KMeans(2).fit(X).predict(lazy)
    with pytest.raises(ValueError, match="contains NaN: the first at row 7, column 1"):
        labels.compute()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
@pytest.mark.parametrize("container", [np.asarray, chunked])
def test_the_first_bad_weight_is_named_after_one_pass(bad, container):
    weight = np.ones(len(X))
    weight[[222, 400]] = bad
    scheduler = CountingScheduler()
    with (
        dask.config.set(scheduler=scheduler),
        pytest.raises(
            ValueError, match=r"sample_weight must be finite and 0, or from 1e-140 to 1e\+140, but"
        ),
    ):
        KMeans(6).fit(container(X), sample_weight=weight)
    assert scheduler.calls <= 1


@pytest.mark.parametrize("container", [np.asarray, chunked])
def test_weights_that_are_all_zero_are_refused(container):
    with pytest.raises(ValueError, match="At least one sample weight must be positive"):
        KMeans(6).fit(container(X), sample_weight=np.zeros(len(X)))


@pytest.mark.parametrize("data", [np.asarray, chunked])
@pytest.mark.parametrize("weight", [np.asarray, chunked])
@pytest.mark.parametrize("shape", [(599,), (600, 2)])
def test_weights_of_another_shape_are_refused(data, weight, shape):
    with pytest.raises(ValueError, match=r"(?i)sample.?weight"):
        KMeans(6).fit(data(X), sample_weight=weight(np.ones(shape)))


@pytest.mark.parametrize("init", [INIT[:5], INIT[:, :3], INIT[0], np.ones((6, 4, 1))])
def test_a_start_of_another_shape_is_refused(init):
    for start in (init, lambda X, k, r: init):
        with pytest.raises(ValueError, match=r"centers must have shape \(6, 4\)"):
            KMeans(6, init=start).fit(X)


def test_a_start_that_is_not_finite_is_refused():
    init = INIT.copy()
    init[2, 3] = np.nan
    with pytest.raises(
        ValueError, match=r"The initial centers must be finite, got nan \(center 2, feature 3\)\."
    ):
        KMeans(6, init=init).fit(X)


def test_bad_parameters_are_refused_before_the_data_are_looked_at():
    scheduler = CountingScheduler()
    for bad in ({"max_iter": 0}, {"init": "no"}, {"random_state": -1}, {"init": INIT[:2]}):
        with dask.config.set(scheduler=scheduler), pytest.raises((ValueError, TypeError)):
            KMeans(6, **bad).fit(chunked(X))
    assert scheduler.calls == 0


def test_parameters_behind_the_first_are_keyword_only():
    with pytest.raises(TypeError, match="positional"):
        KMeans(6, "random")


def test_a_model_that_is_not_fitted_says_so():
    for method in ("predict", "transform", "score"):
        with pytest.raises(NotFittedError):
            getattr(KMeans(2), method)(X)


@pytest.mark.parametrize("container", [np.asarray, chunked])
def test_another_number_of_features_is_refused(container):
    model = KMeans(6, random_state=0).fit(X)
    for method in (model.predict, model.transform, model.score):
        with pytest.raises(ValueError, match="X has 3 features, but KMeans is expecting 4"):
            method(container(X[:, :3]))


def test_fitting_again_forgets_the_last_fit():
    model = KMeans(6, random_state=0).fit(pd.DataFrame(X, columns=list("abcd")))
    model.set_params(n_clusters=3).fit(X[:, :2])
    assert not hasattr(model, "feature_names_in_")
    assert model.n_features_in_ == 2
    assert model.cluster_centers_.shape == (3, 2)


def test_a_clone_has_the_parameters_and_no_fit():
    model = KMeans(6, init=INIT, metric="cosine", tol=0.1).fit(X)
    copy = clone(model)
    assert copy.get_params()["metric"] == "cosine"
    assert not hasattr(copy, "labels_")


def test_a_second_fit_of_lazy_data_with_a_failed_pass_leaves_no_thread_or_pool_behind():
    before = threading.active_count()
    data = X.copy()
    data[5, 0] = np.nan
    for _ in range(3):
        with pytest.raises(ValueError, match="NaN"):
            KMeans(6).fit(chunked(data).map_blocks(np.copy))
    assert threading.active_count() == before
