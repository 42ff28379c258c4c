"""DPMeans: the serial algorithm written out, for any chunks; the objective; bad input."""

from __future__ import annotations

import warnings

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

from daskclust import DPMeans
from daskclust.cluster.dpmeans import FOUNDING, Founders, FoundingRequest
from daskclust.cluster.dpmeans_kernels import add_founders
from daskclust.core.engine import open_rows
from daskclust.core.initialization.deterministic import farthest_first_delta
from daskclust.exceptions import CheckpointError
from daskclust.selection import suggest_delta
from daskclust.testing import CountingScheduler, reduce_groups, row_blocks
from daskclust.testing.strategies import row_chunks

pytestmark = pytest.mark.usefixtures("synchronous")


def serial(x, delta, weight=None, max_clusters=None, max_iter=300):
    """Kulis & Jordan, row by row; returns labels, means, objectives."""
    x = np.asarray(x, dtype=float)
    weight = np.ones(len(x)) if weight is None else weight
    means = [np.average(x, axis=0, weights=weight)]
    objectives, before = [], None
    for _ in range(max_iter):
        centers, labels, cost = list(means), np.empty(len(x), int), 0.0
        for i, row in enumerate(x):
            squared = ((np.array(centers) - row) ** 2).sum(axis=1)
            labels[i] = squared.argmin()
            room = max_clusters is None or len(centers) < max_clusters
            if squared.min() > delta and room and weight[i]:
                labels[i] = len(centers)
                centers.append(row)
            cost += weight[i] * ((centers[labels[i]] - row) ** 2).sum()
        kept = [k for k in range(len(centers)) if weight[labels == k].sum() > 0]
        means = [np.average(x[labels == k], axis=0, weights=weight[labels == k]) for k in kept]
        labels = np.array([kept.index(k) if k in kept else -1 for k in labels])
        objectives.append(cost + delta * len(kept))
        if before is not None and np.array_equal(before, labels):
            break
        before = labels
    return labels, np.array(means), objectives


def integers(seed, n=60, p=2, spread=9):
    """Small whole numbers: distances tie often, and all sums are exact."""
    return np.random.default_rng(seed).integers(-spread, spread + 1, (n, p)).astype(float)


def quiet(model, *arguments, **keywords):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(*arguments, **keywords)


def blobs(n=3000, k=8, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.integers(k, size=n)
    return 12.0 * rng.normal(size=(k, 4))[truth] + rng.normal(size=(n, 4)), truth


SEEDS = st.integers(0, 2**32 - 1)


# The kernel.


@given(seed=SEEDS, delta=st.integers(1, 80), room=st.integers(0, 12))
def test_founders_of_a_segment_are_those_of_a_loop(seed, delta, room):
    x = integers(seed, n=40)
    weight = np.random.default_rng(seed).integers(0, 2, 40).astype(float)
    labels, distances = np.zeros(40, np.int64), (x**2).sum(axis=1)
    found = add_founders(x, weight, float(delta), room, 1, labels, distances)
    centers, founders = [np.zeros(2)], []
    for i, row in enumerate(x):
        squared = ((np.array(centers) - row) ** 2).sum(axis=1)
        if squared.min() > delta and len(founders) < room and weight[i]:
            centers.append(row)
            founders.append(i)
            squared = np.append(squared, 0.0)
        assert labels[i] == squared.argmin()
        assert distances[i] == squared.min()
    assert found.tolist() == founders


# One pass.


@given(seed=SEEDS, delta=st.integers(1, 200), lengths=row_chunks(60), parts=st.integers(1, 4))
def test_a_confirmed_guess_gives_the_serial_sums(seed, delta, lengths, parts):
    x = integers(seed)
    means = integers(seed + 1, n=2)
    centers, labels = list(means), []
    for row in x:
        squared = ((np.array(centers) - row) ** 2).sum(axis=1)
        labels.append(int(squared.argmin()))
        if squared.min() > delta:
            labels[-1] = len(centers)
            centers.append(row)
    founders = [labels.index(k) for k in range(2, len(centers))]
    guess = Founders(np.array(founders, dtype=np.int64), np.array(centers[2:]).reshape(-1, 2))
    request = FoundingRequest(means, guess, float(delta), None, np.zeros(2))
    blocks = row_blocks(x, None, lengths)
    # Groups need not be runs of blocks.
    groups = [blocks[i::parts] for i in range(parts) if blocks[i::parts]]
    ((found, stats, _),) = reduce_groups(FOUNDING, [request], groups)
    assert found.rows.tolist() == founders
    np.testing.assert_array_equal(found.points, guess.points)
    for k in range(len(centers)):
        rows = x[np.array(labels) == k]
        np.testing.assert_array_equal(stats[k, :2], rows.sum(axis=0))
        assert stats[k, 2] == len(rows)
        assert stats[k, 3] == ((rows - centers[k]) ** 2).sum()


def test_a_wrong_guess_is_right_up_to_its_first_error():
    x = np.arange(0.0, 40.0)[:, None]
    request = FoundingRequest(x[:1], Founders.without_rows(1), 24.0, None, np.zeros(1))
    groups = [row_blocks(x, None, (20, 20))[i : i + 1] for i in range(2)]
    ((found, _, _),) = reduce_groups(FOUNDING, [request], groups)
    # Alone, the second group founds at its first row; in truth 20 follows on 5, 10, 15.
    assert found.rows.tolist() == [5, 10, 15, 20, 25, 30, 35]
    assert found.thinned(1, 24.0).rows.tolist() == [5, 10, 15, 20, 25, 30, 35]
    assert found.thinned(1, 26.0).rows.tolist() == [5, 15, 25, 35]


# The fit.


def test_five_rows_by_hand():
    x = np.array([[0.0], [1.0], [9.0], [10.0], [20.0]])
    model = DPMeans(9.0).fit(x)
    # The mean is 8: rows 0 and 20 found clusters, which 1 joins; nothing changes then.
    assert model.labels_.tolist() == [1, 1, 0, 0, 2]
    assert model.cluster_centers_.ravel().tolist() == [9.5, 0.5, 20.0]
    assert model.inertia_ == 1.0
    assert (model.n_clusters_, model.objective_, model.n_iter_) == (3, 28.0, 2)
    assert [record["objective"] for record in model.history_] == [1 + 1 + 4 + 27, 28.0]
    assert [record["founded"] for record in model.history_] == [2, 0]


@given(seed=SEEDS, delta=st.integers(1, 300), lengths=row_chunks(60), weighted=st.booleans())
def test_is_the_serial_algorithm_for_any_chunks(seed, delta, lengths, weighted):
    x = integers(seed)
    weight = None
    if weighted:
        weight = np.random.default_rng(seed).integers(0, 3, 60).astype(float)
        weight[0] = 1.0
    labels, means, objectives = serial(x, delta, weight)
    model = quiet(
        DPMeans(float(delta)), da.from_array(x, chunks=(lengths, 2)), sample_weight=weight
    )
    present = slice(None) if weight is None else weight > 0
    np.testing.assert_array_equal(model.labels_.compute()[present], labels[present])
    np.testing.assert_allclose(model.cluster_centers_, means, rtol=1e-12, atol=1e-12)
    found = [record["objective"] for record in model.history_]
    # Centers that stand still end the fit; the oracle looks at the labels once more.
    assert len(found) <= len(objectives) <= len(found) + 1
    np.testing.assert_allclose(found, objectives[: len(found)], rtol=1e-12)
    assert model.objective_ == pytest.approx(objectives[-1], rel=1e-12)


@given(seed=SEEDS, delta=st.floats(0.05, 6.0), most=st.integers(1, 9), lengths=row_chunks(80))
def test_is_the_serial_algorithm_with_few_clusters_allowed(seed, delta, most, lengths):
    x = np.random.default_rng(seed).normal(size=(80, 2)).astype(np.float32)
    labels, means, _ = serial(x, delta, max_clusters=most)
    model = quiet(DPMeans(delta, max_clusters=most), da.from_array(x, chunks=(lengths, 2)))
    assert model.n_clusters_ == len(means) <= most
    np.testing.assert_array_equal(model.labels_.compute(), labels)


@pytest.mark.parametrize("delta", [0.5, 4.0, 60.0, 900.0])
def test_long_blocks_and_threads_give_the_serial_result(delta):
    # Several segments a block, several groups, founders anywhere.
    x = np.random.default_rng(3).normal(size=(9000, 2)) * 3.0
    whole = quiet(DPMeans(delta, max_iter=2), x)
    _, means, _ = serial(x, delta, max_iter=2)
    np.testing.assert_allclose(whole.cluster_centers_, means, rtol=1e-9)
    for scheduler in ("threads", "sync"):
        with dask.config.set(scheduler=scheduler):
            cut = quiet(DPMeans(delta, max_iter=2), da.from_array(x, chunks=(1300, 2)))
        np.testing.assert_allclose(cut.cluster_centers_, means, rtol=1e-9)
        np.testing.assert_array_equal(cut.labels_.compute(), whole.labels_)


@pytest.mark.slow
def test_the_same_on_a_cluster_of_processes():
    x, _ = blobs()
    expected = DPMeans(100.0).fit(x)
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
        Client(cluster),
    ):
        for lazy in (da.from_array(x, chunks=(311, 4)), da.from_array(x, chunks=(500, 4)) + 0.0):
            found = DPMeans(100.0).fit(lazy)
            np.testing.assert_array_equal(found.labels_.compute(), expected.labels_)
            np.testing.assert_allclose(
                found.cluster_centers_, expected.cluster_centers_, rtol=1e-12
            )


@given(seed=SEEDS, delta=st.floats(0.01, 20.0))
def test_no_iteration_raises_the_objective(seed, delta):
    x = np.random.default_rng(seed).normal(size=(70, 2)) * 2
    model = quiet(DPMeans(delta), x)
    objective = np.array([record["objective"] for record in model.history_])
    assert (np.diff(objective) <= 1e-9 * objective[0]).all()
    assert model.objective_ <= objective[-1] * (1 + 1e-12)
    # In the end no row is too far, and labels are the nearest centers.
    distances = model.transform(x) ** 2
    assert distances.min(axis=1).max() <= delta * (1 + 1e-9)
    np.testing.assert_array_equal(model.predict(x), model.labels_)


def test_weights_equal_repetition():
    x, _ = blobs(300)
    weight = np.random.default_rng(1).integers(0, 4, 300).astype(float)
    repeated = np.repeat(x, weight.astype(int), axis=0)
    one, two = DPMeans(80.0).fit(x, sample_weight=weight), DPMeans(80.0).fit(repeated)
    np.testing.assert_allclose(one.cluster_centers_, two.cluster_centers_, rtol=1e-9)
    assert one.objective_ == pytest.approx(two.objective_, rel=1e-9)
    np.testing.assert_array_equal(np.repeat(one.labels_, weight.astype(int)), two.labels_)


def test_clusters_that_are_left_empty_are_dropped():
    # The first mean is between two distant groups and loses all rows.
    x = np.r_[np.full((5, 1), -10.0), np.full((5, 1), 10.0)]
    model = DPMeans(50.0).fit(x)
    assert model.n_clusters_ == 2
    assert model.history_[0]["dropped"] == 1
    assert model.cluster_centers_.ravel().tolist() == [-10.0, 10.0]
    assert model.objective_ == 100.0


def test_one_cluster_is_said_to_be_one():
    x, _ = blobs(200)
    with pytest.warns(ConvergenceWarning, match=r"no row is farther than delta = 1e\+06"):
        model = DPMeans(1e6).fit(x)
    assert model.n_clusters_ == 1
    np.testing.assert_allclose(model.cluster_centers_[0], x.mean(axis=0))


def test_reaching_max_clusters_is_said():
    x, _ = blobs(200)
    with pytest.warns(ConvergenceWarning, match="max_clusters=3 is reached"):
        model = DPMeans(1.0, max_clusters=3).fit(x)
    assert model.n_clusters_ == 3


def test_passes_over_the_data():
    x, _ = blobs()
    for n_chunks, most in ((1, 1), (10, 2)):
        counting = CountingScheduler()
        with dask.config.set({"scheduler": counting, "num_workers": 2}):
            model = DPMeans(100.0).fit(da.from_array(x, chunks=(3000 // n_chunks, 4)))
        record = model.history_
        founding = [r["iteration"] for r in record if r["founded"]]
        assert founding == [1]
        # To look, to found (and to confirm), one an iteration; the end stands still.
        assert record[-1]["passes"] <= 1 + 1 + most + (model.n_iter_ - 1)
        assert counting.calls == record[-1]["passes"]


# A suggested delta.


@given(seed=SEEDS, k=st.integers(1, 12), lengths=row_chunks(50))
def test_a_suggested_delta_is_the_farthest_first_distance(seed, k, lengths):
    x = integers(seed, n=50)
    points, expected = [x.mean(axis=0)], 0.0
    for _ in range(k):
        squared = ((x[:, None] - np.array(points)) ** 2).sum(axis=2).min(axis=1)
        expected = squared.max()
        points.append(x[squared.argmax()])
    for rows in (open_rows(x), open_rows(da.from_array(x, chunks=(lengths, 2)))):
        found = farthest_first_delta(rows, x.mean(axis=0), k)
        assert found == pytest.approx(expected, rel=1e-12)


def test_a_hint_gives_about_so_many_clusters():
    x, _ = blobs(k=6)
    model = DPMeans(n_clusters_hint=6).fit(x)
    assert model.n_clusters_ == 6
    given = DPMeans(model.delta_).fit(x)
    assert model.objective_ <= given.objective_ * (1 + 1e-12)


def test_many_features():
    """Single rows are as far from their own cluster as from the others."""
    rng = np.random.default_rng(0)
    y = rng.integers(4, size=800)
    x = (rng.normal(size=(4, 600)) * 6 / 600**0.5)[y] + rng.normal(size=(800, 600))
    delta = suggest_delta(x, 4)
    with pytest.warns(ConvergenceWarning, match="clusters contained few rows"):
        repaired = DPMeans(delta, random_state=0).fit(x)
    hinted = DPMeans(n_clusters_hint=4, random_state=0).fit(x)
    assert hinted.delta_ == delta
    assert 4 <= hinted.n_clusters_ <= 8
    for model in (repaired, hinted):
        assert adjusted_rand_score(y, model.labels_) > 0.85
    lazy = DPMeans(n_clusters_hint=4, random_state=0).fit(da.from_array(x, chunks=(170, 600)))
    np.testing.assert_array_equal(lazy.labels_, hinted.labels_)


def test_more_clusters_wanted_than_there_are_rows():
    x = np.repeat([[0.0], [4.0], [9.0]], 2, axis=0)
    assert DPMeans(n_clusters_hint=8).fit(x).n_clusters_ == 3
    assert DPMeans(n_clusters_hint=8).fit(np.zeros((4, 2))).n_clusters_ == 1


# Other steps of the fit.


def test_a_checkpoint_goes_on_to_the_identical_model(tmp_path):
    x = np.random.default_rng(0).normal(size=(400, 3))
    whole = DPMeans(2.0).fit(x)
    path = tmp_path / "fit.npz"
    quiet(DPMeans(2.0, max_iter=2, checkpoint=path), x)
    model = DPMeans(2.0, checkpoint=path).fit(x)
    np.testing.assert_array_equal(model.cluster_centers_, whole.cluster_centers_)
    assert model.objective_ == whole.objective_
    with pytest.raises(CheckpointError, match="delta"):
        DPMeans(3.0, checkpoint=path).fit(x)


def test_nan_in_the_rows_is_named():
    x, _ = blobs(100)
    x[17, 2] = np.nan
    with pytest.raises(ValueError, match="NaN: the first at row 17, column 2"):
        DPMeans(1.0).fit(da.from_array(x, chunks=(30, 4)))


@pytest.mark.parametrize("n_workers", [2, 3, 8])
def test_centers_do_not_show_the_number_of_groups(n_workers):
    """The sums of one group alone are rounded like those of many that were merged."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4)) + rng.integers(0, 3, (600, 1)) * 3.0
    found = []
    for count in (1, n_workers):
        data = da.from_array(X, chunks=(60, 4)).map_blocks(np.copy, meta=np.empty((0, 0)))
        persist = count == 1  # kept in memory, these rows are one group
        with dask.config.set(
            {"scheduler": "threads", "num_workers": count, "daskclust.persist": persist}
        ):
            found.append(DPMeans(60.0, max_iter=3).fit(data))
    np.testing.assert_array_equal(found[0].cluster_centers_, found[1].cluster_centers_)
    assert found[0].inertia_ == found[1].inertia_


@pytest.mark.parametrize("seed", range(5))
def test_a_hint_of_one_gives_one_cluster(seed: int) -> None:
    rows = np.random.default_rng(seed).normal(size=(500, 3)) + 1e3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = DPMeans(n_clusters_hint=1, random_state=seed).fit(rows)
    assert model.n_clusters_ == 1
