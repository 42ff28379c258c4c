"""Fits by bounds are plain fits, bit for bit, wherever they run and whatever is lost on the way."""

from __future__ import annotations

import os
import signal

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from daskclust import KMeans, PCKMeans, SemiSupervisedKMeans
from daskclust.cluster import passes
from daskclust.cluster.passes import AssignmentPasses
from daskclust.engine import open_rows
from daskclust.engine.blocks import Group
from daskclust.engine.rows import OpenRows
from daskclust.reduction import ASSIGN, CenterSets
from daskclust.reduction.bounded import BOUNDED_ASSIGN
from daskclust.testing.strategies import row_chunks


def assert_same_fit(found, plain):
    assert_array_equal(found.labels_, plain.labels_)
    assert_array_equal(found.cluster_centers_, plain.cluster_centers_)
    assert found.inertia_ == plain.inertia_
    assert found.n_iter_ == plain.n_iter_
    for one, other in zip(found.history_, plain.history_, strict=True):
        # Where rows are not read, inertia follows from sums.
        assert one["objective"] == pytest.approx(other["objective"], rel=1e-12)
        left_out = ("seconds", "objective")
        assert {k: v for k, v in one.items() if k not in left_out} == {
            k: v for k, v in other.items() if k not in left_out
        }


def clouds(seed, n=3000, p=4, k=40, dtype="float32", spread=3.0):
    rng = np.random.default_rng(seed)
    centers = spread * rng.standard_normal((k, p))
    return (centers[rng.integers(k, size=n)] + rng.standard_normal((n, p))).astype(dtype)


@pytest.fixture
def counted(monkeypatch):
    """Work of the bounded passes that are made."""
    work, scan = [], OpenRows.scan

    def noting(self, reduction, state, carry):
        result, carry = scan(self, reduction, state, carry)
        if reduction is BOUNDED_ASSIGN:
            work.append((state.trial, *result.work.sum(axis=0).tolist()))
        return result, carry

    monkeypatch.setattr(OpenRows, "scan", noting)
    return work


@settings(max_examples=15)
@given(
    seed=st.integers(0, 2**32 - 1),
    lengths=row_chunks(700),
    dtype=st.sampled_from(["float32", "float64"]),
    k=st.sampled_from([3, 12, 40]),
    weighted=st.booleans(),
    n_init=st.integers(1, 3),
    lazy=st.booleans(),
)
def test_is_the_plain_fit_bit_for_bit(seed, lengths, dtype, k, weighted, n_init, lazy):
    data = clouds(seed, 700, 3, 9, dtype, 2.0)
    weight = np.random.default_rng(seed).integers(0, 3, 700) / 2.0 if weighted else None
    X = da.from_array(data, chunks=(lengths, (3,)))
    options = {"init": "random", "n_init": n_init, "random_state": seed, "tol": 0.0, "max_iter": 15}
    with dask.config.set({"daskclust.persist": not lazy, "scheduler": "sync"}):
        plain = KMeans(k, algorithm="lloyd", **options).fit(X, sample_weight=weight)
        found = KMeans(k, algorithm="bounds", **options).fit(X, sample_weight=weight)
    assert_same_fit(found, plain)


def test_numpy_rows_on_threads(counted):
    data = clouds(0, 60_000, 8, 60)
    plain = KMeans(60, init=data[:60], algorithm="lloyd").fit(data)
    assert not counted
    assert_same_fit(KMeans(60, init=data[:60], algorithm="bounds").fit(data), plain)
    rows = [n for _, n, *_ in counted]
    scored = [n for _, _, n, *_ in counted]
    assert rows == [60_000] * len(counted)
    assert scored[0] == 60_000
    assert scored[-2] < 6000


def test_auto_asks_all_rows_once_a_trial_pays(counted, monkeypatch):
    # Few products make a search of all centers; taken for dearer, bounds may begin and end.
    monkeypatch.setitem(passes._PRODUCT, 4, 1.0)
    data = clouds(1, 140_000, 4, 60)
    plain = KMeans(60, init=data[:60], algorithm="lloyd", max_iter=30).fit(data)
    assert_same_fit(KMeans(60, init=data[:60], max_iter=30).fit(data), plain)
    trials = [trial for trial, *_ in counted]
    # One pass more at the end, for the inertia.
    assert len(trials) == plain.n_iter_ + 1 - passes._PATIENCE
    assert trials[:3] == [True] * 3
    assert not trials[-1]
    rows = [n for trial, n, *_ in counted if trial]
    assert rows == [2 * 4096] * len(rows)


def test_auto_leaves_few_centers_alone(counted):
    data = clouds(2, 5000, 4, 4)
    KMeans(4, init=data[:4]).fit(data)
    assert not counted


@pytest.mark.parametrize("pattern", ["aatta", "tataa", "attat"])
def test_trials_between_are_no_harm(pattern):
    """Rows that a trial leaves alone are not taken for known after it."""
    data = clouds(3, 20_000, 3, 40)
    rows, rng = open_rows(data), np.random.default_rng(0)
    made = AssignmentPasses(rows, "bounds")
    centers = data[None, :40].astype(float)
    for turn in pattern * 3:
        made._asking = turn == "a"
        sets = CenterSets(centers, shift=data.mean(axis=0).astype(float))
        found, plain = made.assign(sets, [0]), rows.reduce(ASSIGN, sets)
        for one, other in zip(found[:3], plain[:3], strict=True):
            assert_array_equal(one, other)
        centers = centers + 0.2 * rng.standard_normal(centers.shape)


def test_nothing_is_kept_where_there_is_no_room(counted):
    data = da.from_array(clouds(4), chunks=(1000, 4))
    with dask.config.set({"daskclust.persist-fraction": 1e-9}):
        bounded = KMeans(40, init=clouds(4)[:40], algorithm="bounds").fit(data)
    assert not counted
    assert_same_fit(bounded, KMeans(40, init=clouds(4)[:40], algorithm="lloyd").fit(data))


def test_nothing_is_kept_of_missing_values(counted):
    data = clouds(5)
    data[0, 0] = np.nan
    KMeans(40, init=data[1:41], missing="partial", algorithm="bounds", max_iter=3).fit(data)
    assert not counted


def test_what_is_kept_ends_with_another_fit():
    rows = open_rows(clouds(6))
    groups: list[Group] = rows._executor.groups
    for _ in range(2):
        made = AssignmentPasses(rows, "bounds")
        made.assign(CenterSets(clouds(6)[None, :40].astype(float)), [0])
        assert [len(group.cache._kept) for group in groups] == [1] * len(groups)
        assert groups[0].cache._name == made._fit


@pytest.mark.filterwarnings("ignore:The clusters had not converged")
@pytest.mark.parametrize("model", [SemiSupervisedKMeans, PCKMeans])
def test_partial_labels(model, counted, monkeypatch):
    monkeypatch.setitem(passes._PRODUCT, 4, 1.0)
    data = clouds(7, 140_000, 4, 30)
    y = np.full(len(data), -1)
    y[:90] = np.arange(90) % 30
    found = model(30, random_state=0, max_iter=12).fit(data, y)
    assert any(not trial for trial, *_ in counted)
    monkeypatch.setattr(AssignmentPasses, "_may_bound", lambda *_: False)
    assert_same_fit(found, model(30, random_state=0, max_iter=12).fit(data, y))


def test_a_worker_that_dies_takes_bounds_with_it_and_nothing_else():
    data = clouds(8, 40_000, 4, 40)
    init = data[:40].astype(float)
    plain = KMeans(40, init=init, algorithm="lloyd", max_iter=12, tol=0).fit(data)
    killed = []

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        made = OpenRows.scan

        def killing(self, reduction, state, carry):
            if reduction is BOUNDED_ASSIGN and state.number == 5 and not killed:
                worker, pid = next(iter(client.run(os.getpid).items()))
                killed.append(worker)
                os.kill(pid, signal.SIGKILL)
            result, carry = made(self, reduction, state, carry)
            if reduction is BOUNDED_ASSIGN:
                work.append(int(result.work[0, 1]))
            return result, carry

        work: list[int] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(OpenRows, "scan", killing)
            X = da.from_array(data, chunks=(5000, 4))
            found = KMeans(40, init=init, algorithm="bounds", max_iter=12, tol=0).fit(X)
        found.labels_ = found.labels_.compute()
        assert killed
        # Bounds worked before, and what was lost was made again.
        assert work[0] == 40_000 > 2 * work[3]
        assert max(work[4:]) > 3 * work[-1]
    assert_array_equal(found.labels_, plain.labels_)
    np.testing.assert_allclose(found.cluster_centers_, plain.cluster_centers_, rtol=1e-13)
    assert found.n_iter_ == plain.n_iter_
