"""Fits that share passes are the fits one by one; views of rows; made-up rows."""

from __future__ import annotations

import threading
import time
from functools import partial

import dask
import numpy as np
import pytest
from helpers import chunks_of
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

from daskclust import DPMeans, KMeans, PCSKMeans, SparseKMeans, on_iteration
from daskclust.core.engine import Job, open_blank, open_rows, run_together
from daskclust.core.estimator.fit_loop import fit
from daskclust.core.estimator.validation import check_data
from daskclust.core.kernels.rng import permuted_rows, uniform_rows
from daskclust.core.reduction import ASSIGN, SURVEY, CenterSets, RowBlock, SurveyRequest
from daskclust.core.reduction.row_views import (
    BATCH,
    PermutedColumns,
    Request,
    Transformed,
    UniformBox,
    WithoutRows,
)
from daskclust.testing import CountingScheduler, assert_results_close, reduce_blocks, row_blocks
from daskclust.testing.strategies import row_chunks

pytestmark = pytest.mark.usefixtures("synchronous")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(500, 5)) + 3.0 * RNG.integers(3, size=500)[:, None] * [1, 1, 0, 0, 0]
LABELED = np.arange(0, 60, 3), (X[:60:3, 0] > 3).astype(int)


chunked = partial(chunks_of(120), X)


def sharing(model, data, views=(), **given_):
    """Return a job that fits a clone to data that are open, through the shared handle."""
    opened = check_data(data)
    return Job(lambda rows: fit(clone(model), opened.through(rows), **given_), views)


def assert_same(found, expected):
    np.testing.assert_array_equal(found.cluster_centers_, expected.cluster_centers_)
    np.testing.assert_array_equal(np.asarray(found.labels_), np.asarray(expected.labels_))
    assert len(found.history_) == len(expected.history_)
    for one, two in zip(found.history_, expected.history_, strict=True):
        assert {**one, "seconds": 0} == {**two, "seconds": 0}


# Fits.


MODELS = [
    (KMeans(3, random_state=0), {}),
    (KMeans(4, random_state=1, n_init=3), {}),
    (KMeans(3, random_state=0, metric="cosine"), {}),
    (KMeans(3, random_state=0, metric="mahalanobis"), {}),
    (KMeans(3, random_state=0, init="maximin"), {}),
    (SparseKMeans(3, sparsity=1.3, random_state=0), {}),
    (SparseKMeans(3, sparsity=2.0, random_state=0), {}),
    (PCSKMeans(2, sparsity=1.5, random_state=0), {"y": LABELED}),
    (DPMeans(40.0), {}),
]


@pytest.mark.parametrize("make", [lambda: X, chunked], ids=["numpy", "dask"])
def test_fits_together_are_the_fits_alone(make):
    data = make()
    expected = [model.fit(data, **given_) for model, given_ in MODELS]
    lengths = [record["passes"] for model in expected for record in model.history_[-1:]]
    rows = open_rows(data)
    jobs = [sharing(model, data, **given_) for model, given_ in MODELS]
    found = run_together(rows, jobs)
    for one, two in zip(found, expected, strict=True):
        assert_same(one, two)
    # Most passes are shared, except rows that initializations fetch, and the passes of DPMeans.
    assert rows.passes <= sum(lengths) / 2


def test_passes_are_those_of_the_longest_fit_and_equal_requests_are_computed_once():
    counting = CountingScheduler()
    lazy = chunked().map_blocks(np.positive)
    with dask.config.set({"scheduler": counting, "daskclust.persist": False}):
        expected = [SparseKMeans(3, sparsity=s, random_state=0).fit(lazy) for s in (1.2, 1.6, 2.2)]
        longest = max(model.history_[-1]["passes"] for model in expected)
        rows = open_rows(lazy)
        before = counting.calls
        made = []
        reduce_ = rows.reduce
        rows.reduce = lambda reduction, state: made.append(len(state)) or reduce_(reduction, state)
        jobs = [sharing(SparseKMeans(3, sparsity=s, random_state=0), lazy) for s in (1.2, 1.6, 2.2)]
        run_together(rows, jobs)
    assert rows.passes == counting.calls - before == longest
    # The first pass and the first assignment have no sparsity in them.
    assert made[:2] == [1, 1]
    assert max(made) > 1


def test_one_fit_runs_at_a_time_and_listeners_hear_all():
    seen, inside = [], []

    def listen(record):
        inside.append(threading.get_ident())
        time.sleep(0.001)
        assert inside[-1] == threading.get_ident()
        seen.append(record)

    jobs = [sharing(KMeans(k, random_state=0), X) for k in (2, 3, 4)]
    with on_iteration(listen):
        models = run_together(open_rows(X), jobs)
    assert len(seen) == sum(model.n_iter_ for model in models)


def test_a_fit_that_fails_ends_the_others_and_says_why():
    before = threading.active_count()
    jobs = [sharing(KMeans(3, random_state=0), X), sharing(KMeans(9000), X)]
    with pytest.raises(ValueError, match="n_clusters=9000 must be at most n_samples=500"):
        run_together(open_rows(X), jobs)
    bad = X.copy()
    bad[7, 1] = np.nan
    with pytest.raises(ValueError, match="NaN: the first at row 7, column 1"):
        run_together(open_rows(bad), [sharing(KMeans(3), bad)] * 2)
    assert threading.active_count() == before


@pytest.mark.parametrize("make", [lambda: X, chunked], ids=["numpy", "dask"])
@pytest.mark.parametrize("weight", [None, RNG.integers(0, 3, size=500).astype(float)])
def test_a_fit_inside_a_fit_is_on_its_own_data(make, weight):
    """Other data of the same shape are not confused with the shared data."""

    def start(data, k, random_state):
        inner = KMeans(k, random_state=0).fit(data * scale, sample_weight=weight)
        return inner.cluster_centers_ / scale

    data, scale = make(), np.array([1, 1, 1, 1, 50.0])
    model = KMeans(3, init=start, n_init=2, max_iter=2)
    others = [sharing(KMeans(3, random_state=0), data) for _ in range(2)]
    *_, found = run_together(open_rows(data), [*others, sharing(model, data)])
    assert_same(found, clone(model).fit(data))


def test_rows_that_several_jobs_fetch_by_number_take_one_pass():
    weight = np.arange(1.0, 501.0)
    wanted = [np.array([7, 3, 499]), np.array([3]), np.arange(100, 400, 7)]
    jobs = [Job(lambda rows, take=take: rows.take(take)) for take in wanted]
    jobs.append(Job(lambda rows: rows.take(wanted[0]), (Transformed(np.abs),)))
    scheduler = CountingScheduler()
    with dask.config.set({"scheduler": scheduler, "daskclust.persist": False}):
        rows = open_rows(chunked(), weight)
        before = rows.passes
        *plain, seen = run_together(rows, jobs)
    assert rows.passes - before == 1
    for (values, weights), take in zip(plain, wanted, strict=True):
        np.testing.assert_array_equal(values, X[take])
        np.testing.assert_array_equal(weights, weight[take])
    np.testing.assert_array_equal(seen[0], np.abs(X[wanted[0]]))


# Views.


def test_a_batch_is_its_reductions_one_by_one_for_long_blocks():
    x = np.random.default_rng(1).normal(size=(100_000, 3))
    centers = CenterSets(x[:4][None])
    pool = np.ascontiguousarray(x[:1000].T)
    views = [
        (),
        (Transformed(np.abs),),
        (WithoutRows(np.arange(0, 100_000, 3)),),
        (PermutedColumns(pool, 3, 0),),
        (PermutedColumns(pool, 3, 0), Transformed(np.abs), WithoutRows(np.array([5, 70_000]))),
    ]
    state = tuple(Request(ASSIGN, centers, view) for view in views)
    blocks = row_blocks(x, None, (70_000, 30_000))
    (found,) = reduce_blocks(BATCH, [state], blocks)
    for result, view in zip(found, views, strict=True):
        seen = []
        for block in blocks:
            for step in view:
                block = step(block)
            seen.append(block)
        (expected,) = reduce_blocks(ASSIGN, [centers], seen)
        assert_results_close(result, expected)


def test_rows_left_out_have_no_weight_in_joined_blocks():
    joined = RowBlock(X[:6], None, ((10, 2), (50, 4)))
    seen = WithoutRows(np.array([0, 11, 50, 53, 99]))(joined)
    assert seen.weight.tolist() == [1, 0, 0, 1, 1, 0]
    weighted = RowBlock(X[:6], np.arange(6.0), ((10, 2), (50, 4)))
    assert WithoutRows(np.array([51]))(weighted).weight.tolist() == [0, 1, 2, 0, 4, 5]
    assert weighted.weight.tolist() == [0, 1, 2, 3, 4, 5]
    assert WithoutRows(np.array([51])).key == WithoutRows(np.array([51])).key
    assert WithoutRows(np.array([51])).key != WithoutRows(np.array([52])).key


# Made-up rows.


@given(m=st.integers(1, 12), n=st.integers(1, 60), seed=st.integers(0, 2**32), lengths=st.data())
def test_every_run_of_rows_is_a_permutation_of_each_column(m, n, seed, lengths):
    pool = np.random.default_rng(seed).normal(size=(3, m))
    whole = permuted_rows(pool, seed, 5, 0, n)
    for turn in range(n // m):
        part = whole[turn * m : (turn + 1) * m]
        np.testing.assert_array_equal(np.sort(part, axis=0), np.sort(pool, axis=1).T)
    start, cut = 0, []
    for size in lengths.draw(row_chunks(n)):
        cut.append(permuted_rows(pool, seed, 5, start, size))
        start += size
    np.testing.assert_array_equal(np.concatenate(cut), whole)


def test_permutations_are_uniform_and_columns_independent():
    pool = np.tile(np.arange(3.0), (2, 1))
    seen = [permuted_rows(pool, 0, number, 0, 3) for number in range(6000)]
    orders = [tuple(rows[:, 0].astype(int)) + tuple(rows[:, 1].astype(int)) for rows in seen]
    values, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(values) == 36
    # 167 each, give or take 13.
    assert 100 < counts.min()
    assert counts.max() < 240


def test_permuted_columns_lose_their_correlation_beyond_the_sample_too():
    rng = np.random.default_rng(0)
    common = rng.normal(size=2000)
    pool = np.stack([common, common, -common])
    rows = permuted_rows(pool, 0, 0, 0, 50_000)
    correlation = np.corrcoef(rows.T)
    assert np.abs(correlation - np.eye(3)).max() < 0.06
    assert len(np.unique(rows[:, 0])) == 2000


@given(lengths=row_chunks(50))
def test_uniform_rows_fill_their_box_whatever_the_cut(lengths):
    low, high = np.array([-1.0, 5.0, 2.0]), np.array([1.0, 5.0, 12.0])
    whole = uniform_rows(low, high, np.float32, 1, 2, 0, 50)
    assert whole.dtype == np.float32
    assert (whole >= low).all()
    assert (whole <= high).all()
    view = UniformBox(low, high, np.float32, 1, 2)
    blank = np.empty((50, 0), np.float32)
    parts = [view(block).x for block in row_blocks(blank, None, lengths)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_uniform_rows_are_uniform():
    rows = uniform_rows(np.zeros(2), np.ones(2), np.float64, 0, 0, 0, 40_000)
    assert np.abs(rows.mean(axis=0) - 0.5).max() < 0.01
    assert np.abs(rows.var(axis=0) - 1 / 12).max() < 0.002
    assert abs(np.corrcoef(rows.T)[0, 1]) < 0.02
    assert abs(np.corrcoef(rows[1:, 0], rows[:-1, 0])[0, 1]) < 0.02


@pytest.mark.parametrize("make", [lambda: X, chunked], ids=["numpy", "dask"])
def test_blank_rows_have_numbers_and_weights_but_no_values(make):
    data = make()
    rows, stand_in = open_blank(data, open_rows(data))
    assert (rows.n_rows, rows.n_features, stand_in.shape) == (500, 5, (500, 5))
    pool = np.ascontiguousarray(X.T)
    (survey,) = run_together(
        rows,
        [
            Job(
                lambda rows: rows.reduce(SURVEY, SurveyRequest(5)),
                (PermutedColumns(pool, 0, 0),),
            )
        ],
    )
    assert survey.weight == 500
    np.testing.assert_allclose(survey.mean, X.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(survey.variance, X.var(axis=0), rtol=1e-12)
