"""Initial centers on samples that grow, and momentum."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest
from helpers import chunks_of, values
from hypothesis import given
from numpy.testing import assert_array_equal
from oracles.interruption import Interruption, interrupt_at
from oracles.problems import initialization_of
from sklearn.cluster import KMeans as SklearnKMeans
from sklearn.metrics import adjusted_rand_score

from daskclust import KMeans, on_iteration
from daskclust.cluster.lloyd import LloydProblem
from daskclust.core.engine import open_rows
from daskclust.core.estimator.fit_loop import OpenData
from daskclust.core.initialization.growing import grow
from daskclust.core.initialization.problem import Initialization
from daskclust.core.initialization.samples import Sample, draw_sample
from daskclust.core.initialization.steps import MOMENTUM, LloydStep
from daskclust.core.reduction.assign import ClusterStatistics
from daskclust.exceptions import MissingValuesWarning
from daskclust.testing.strategies import row_chunks

pytestmark = pytest.mark.usefixtures("synchronous")

N, P, K = 9000, 3, 5
chunked = chunks_of(1234)


def overlapping(n: int = N, p: int = P, k: int = K, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, k, n)
    return (3.0 * rng.normal(size=(k, p)))[truth] + rng.normal(size=(n, p)), truth


X, TRUTH = overlapping()


# ---- the sample ---------------------------------------------------------------------------


def test_a_part_weighs_as_much_as_all_rows_by_hand() -> None:
    rows, weight = np.array([[9.0], [1.0], [2.0], [3.0]]), np.array([2.0, 1.0, 3.0, 2.0])
    sample = Sample(rows, weight, 1, 20.0, 100)
    x, w, spread = sample.part(2)
    assert x.ravel().tolist() == [9.0, 1.0, 2.0]
    # 2 for itself; 1 and 3 stand for 20: five times as much.
    assert w.tolist() == [2.0, 5.0, 15.0]
    assert spread == (5.0**2 + 15.0**2) / 20.0
    assert sample.size == pytest.approx(6.0**2 / 14.0)


def test_the_farthest_rows_are_all_taken_and_the_others_drawn_evenly() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(20_000, 2))
    rows[7::40] *= 1e3
    # Sorted: any run of rows is unlike the others.
    rows = rows[np.argsort(rows[:, 0])]
    sample = draw_sample(initialization_of(open_rows(rows), K, (1,)))
    size = np.abs(rows).max(axis=1)
    assert sample.n_far == 1024
    far, others = sample.rows[:1024, 0], sample.rows[1024:, 0]
    assert set(far) >= set(rows[size > 50][:, 0])
    assert sample.total == 20_000.0 - 1024.0
    drawn = np.searchsorted(rows[:, 0], others)
    assert not set(far) & set(others)
    # Each tenth of the usual rows has its share, in any first part.
    usual = np.setdiff1d(np.arange(20_000), np.searchsorted(rows[:, 0], far))
    for part in (drawn, drawn[:2000]):
        shares = np.histogram(np.searchsorted(usual, part), bins=10, range=(0, len(usual)))[0]
        assert np.abs(shares / len(part) - 0.1).max() < 0.025


@given(lengths=row_chunks(N))
def test_the_sample_does_not_depend_on_chunks(lengths) -> None:
    whole = draw_sample(initialization_of(open_rows(X), K, (3,)))
    lazy = open_rows(da.from_array(X, chunks=(lengths, P)))
    cut = draw_sample(initialization_of(lazy, K, (3,)))
    for name, value in vars(whole).items():
        np.testing.assert_array_equal(getattr(cut, name), value)


def test_samples_lie_in_the_space_of_the_metric() -> None:
    rows, truth = overlapping(9001, 5, 4)
    rows[:, 2] = 3.0
    model = KMeans(4, metric="mahalanobis", random_state=0).fit(rows)
    # One column less than the rows, and than their means.
    whole = KMeans(4, metric="mahalanobis", algorithm="lloyd", random_state=0).fit(rows)
    assert model.inertia_ <= 1.001 * whole.inertia_
    assert adjusted_rand_score(truth, model.labels_) > 0.5


def test_the_best_try_survives_the_parts() -> None:
    rng = np.random.default_rng(5)
    good = np.stack([X[TRUTH == k].mean(axis=0) for k in range(K)])
    poor = np.tile(good.mean(axis=0), (K, 1)) + 1e-3 * rng.normal(size=(K, P))
    poor[1:] += 50.0
    problem = initialization_of(open_rows(X), K, tolerance=1e-9)
    sample = draw_sample(problem)
    tries = np.array([[poor, good, poor], [good, poor, poor]])
    found = grow(problem, tries, sample)
    for centers in found:
        np.testing.assert_allclose(centers, good, atol=0.2)


# ---- the fit ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("init", ["k-means||", "random", X[:K]])
def test_the_end_is_a_fixed_point_of_lloyd_on_all_rows(init, dtype) -> None:
    rows = X.astype(dtype)
    model = KMeans(K, init=init, algorithm="nested", tol=0.0, random_state=0).fit(rows)
    labels = model.labels_
    means = np.stack([rows[labels == k].mean(axis=0, dtype=np.float64) for k in range(K)])
    np.testing.assert_allclose(model.cluster_centers_, means, rtol=1e-6)
    np.testing.assert_array_equal(model.counts_, np.bincount(labels))
    inertia = ((rows.astype(float) - model.cluster_centers_[labels]) ** 2).sum()
    assert model.inertia_ == pytest.approx(inertia, rel=1e-6)
    plain = KMeans(K, init=model.cluster_centers_, algorithm="lloyd", tol=0.0).fit(rows)
    assert plain.n_iter_ == 1


@given(lengths=row_chunks(N))
def test_any_chunks_give_the_same_labels(lengths) -> None:
    whole = KMeans(K, n_init=2, random_state=4).fit(X)
    cut = KMeans(K, n_init=2, random_state=4).fit(da.from_array(X, chunks=(lengths, P)))
    np.testing.assert_array_equal(values(cut.labels_), whole.labels_)
    np.testing.assert_allclose(cut.cluster_centers_, whole.cluster_centers_, rtol=1e-12)
    assert cut.n_iter_ == whole.n_iter_


@pytest.mark.parametrize("metric", ["euclidean", "mahalanobis"])
@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_any_scheduler_gives_the_same_labels(scheduler, metric) -> None:
    wanted = KMeans(K, metric=metric, random_state=1).fit(X)
    with dask.config.set(scheduler=scheduler):
        model = KMeans(K, metric=metric, random_state=1).fit(chunked(X))
        np.testing.assert_array_equal(values(model.labels_), wanted.labels_)


def test_a_cluster_of_processes_gives_the_same_labels(client) -> None:
    wanted = KMeans(K, random_state=1).fit(X)
    model = KMeans(K, random_state=1).fit(chunked(X))
    np.testing.assert_array_equal(values(model.labels_), wanted.labels_)


@pytest.mark.parametrize(("init", "like"), [("k-means||", "nested"), ("random", "lloyd")])
def test_auto_uses_samples_and_momentum_if_it_draws_the_centers(init, like) -> None:
    rows = slow_data()
    found = {
        name: KMeans(
            20, init=init, n_init=1, algorithm=name, tol=0.0, max_iter=30, random_state=2
        ).fit(rows)
        for name in ("auto", "lloyd", "nested")
    }
    assert_array_equal(found["auto"].cluster_centers_, found[like].cluster_centers_)
    other = "lloyd" if like == "nested" else "nested"
    assert not np.array_equal(found["auto"].cluster_centers_, found[other].cluster_centers_)


def test_all_of_few_rows_are_the_sample() -> None:
    model = KMeans(K, random_state=0).fit(chunked(X[:8000]))
    # The survey, the rows, and an iteration.
    assert model.history_[0]["passes"] == 3


@pytest.mark.parametrize("n_init", [1, 3])
def test_passes_do_not_depend_on_restarts(n_init) -> None:
    model = KMeans(K, n_init=n_init, random_state=0).fit(X)
    # A look, five rounds of candidates, the sample and the farthest rows; then the iterations.
    assert model.history_[0]["passes"] == 1 + 5 + 2 + 1
    assert model.history_[-1]["passes"] == 8 + len(model.history_)


def test_a_fit_that_was_cut_off_goes_on_to_the_same_model(tmp_path: Path) -> None:
    wanted = KMeans(40, random_state=0).fit(X)
    assert wanted.n_iter_ > 3
    for at in (1, 3):
        model = KMeans(40, random_state=0, checkpoint=tmp_path / f"{at}.ckpt")
        with pytest.raises(Interruption), on_iteration(interrupt_at(at)):
            model.fit(X)
        model.fit(X)
        np.testing.assert_array_equal(model.cluster_centers_, wanted.cluster_centers_)
        np.testing.assert_array_equal(model.labels_, wanted.labels_)
        np.testing.assert_array_equal(model.counts_, wanted.counts_)


@pytest.mark.parametrize("n", [40, 500])
def test_few_rows_are_all_in_the_sample(n) -> None:
    model = KMeans(K, algorithm="nested", random_state=0).fit(X[:n])
    plain = KMeans(K, algorithm="lloyd", n_init=10, random_state=0).fit(X[:n])
    assert model.inertia_ <= 1.05 * plain.inertia_


def test_rows_of_weight_0_are_absent_and_few_weights_are_no_sample() -> None:
    weight = np.zeros(N)
    weight[::300] = 1.0
    model = KMeans(K, algorithm="nested", random_state=0).fit(X, sample_weight=weight)
    few = KMeans(K, init=model.cluster_centers_, algorithm="lloyd").fit(X[::300])
    assert model.inertia_ == pytest.approx(few.inertia_)
    weight = np.where(TRUTH == 0, 0.0, 1.0)
    model = KMeans(K - 1, random_state=0).fit(X, sample_weight=weight)
    rest = KMeans(K - 1, random_state=0).fit(X[TRUTH != 0])
    assert model.inertia_ == pytest.approx(rest.inertia_, rel=1e-3)


def test_an_integer_weight_is_as_good_as_repetition() -> None:
    weight = np.random.default_rng(0).integers(0, 4, N).astype(float)
    model = KMeans(K, random_state=0).fit(X, sample_weight=weight)
    repeated = KMeans(K, random_state=0).fit(np.repeat(X, weight.astype(int), axis=0))
    assert model.inertia_ == pytest.approx(repeated.inertia_, rel=1e-3)


def test_missing_values_stay_missing() -> None:
    rows = X.copy()
    rows[np.random.default_rng(0).random(X.shape) < 0.1] = np.nan
    with pytest.warns(MissingValuesWarning, match="have no values"):
        model = KMeans(K, missing="partial", random_state=0).fit(rows)
    with pytest.warns(MissingValuesWarning, match="have no values"):
        plain = KMeans(K, missing="partial", algorithm="lloyd", n_init=5, random_state=0).fit(rows)
    assert model.inertia_ <= 1.001 * plain.inertia_


def test_fewer_distinct_rows_than_clusters_end_as_ever() -> None:
    rows = np.repeat([[0.0, 1.0], [5.0, 5.0]], 5000, axis=0)
    with pytest.warns(match=r"distinct clusters \(2\)"):
        assert KMeans(3, random_state=0).fit(rows).inertia_ == 0.0


# ---- how good it is -----------------------------------------------------------------------


def mean_inertia(rows: np.ndarray, k: int, **params) -> float:
    return float(
        np.mean([KMeans(k, random_state=s, **params).fit(rows).inertia_ for s in range(6)])
    )


@pytest.mark.parametrize("order", ["as drawn", "sorted"])
def test_inertia_is_no_higher_than_that_of_greedy_k_means_plus_plus(order) -> None:
    rng = np.random.default_rng(1)
    rows, truth = overlapping(10_000, 40, 7, seed=2)
    rows += 2.0 * rng.normal(size=rows.shape)
    if order == "sorted":
        rows = rows[np.argsort(truth, kind="stable")]
    peers = [SklearnKMeans(7, random_state=s).fit(rows).inertia_ for s in range(6)]
    assert mean_inertia(rows, 7) <= 1.0001 * np.mean(peers)


def test_few_rows_that_are_most_of_the_inertia_are_not_overlooked() -> None:
    rng = np.random.default_rng(7)
    rows = rng.standard_t(1.2, size=(20_000, 3))
    peers = [SklearnKMeans(6, random_state=s).fit(rows).inertia_ for s in range(6)]
    assert mean_inertia(rows, 6) <= 1.01 * np.mean(peers)
    # A cluster of 9 of 20 000 rows, of which a sample of 4096 has about two.
    rows = rng.normal(size=(20_000, 3))
    rows[::2500] += 400.0
    model = KMeans(2, random_state=0).fit(rows)
    assert sorted(model.counts_.tolist()) == [8.0, 19_992.0]


def slow_data(p=3):
    """One cloud of rows, on which Lloyd's algorithm takes many iterations."""
    rng = np.random.default_rng(4)
    return rng.standard_normal((20_000, p)).astype("f4")


def lloyd(data, start, momentum):
    """All states of Lloyd's algorithm, from the initial centers to a tolerance."""
    rows = open_rows(data)
    survey = initialization_of(rows, len(start)).survey
    data = OpenData(data, rows, survey, (0,), None, None)
    initialization = Initialization(data, len(start), start)
    problem = LloydProblem(rows, initialization, 300, 1e-5, momentum=momentum)
    states = [problem.begin()]
    while not states[-1].converged.all():
        states.append(problem.step(states[-1]).state)
    return problem, states


def test_momentum_takes_fewer_iterations_to_a_fixed_point():
    data, k = slow_data(5), 50
    start = data[:k].astype(float)
    (problem, plain), (_, fast) = (lloyd(data, start, momentum) for momentum in (0.0, MOMENTUM))
    assert len(fast) < 0.7 * len(plain)
    first, last = problem.settle(plain[-1]), problem.settle(fast[-1])
    assert last.inertia[0] <= first.inertia[0] * (1 + 2e-3)
    # Means that a plain iteration moves very little.
    initialization = replace(problem.initialization, init=last.centers[0])
    again = problem.step(replace(problem, initialization=initialization).begin())
    assert again.center_shift**2 <= 2e-5


def test_momentum_by_hand():
    # Two clusters on a line, for which assignments never change: centers 1 and 12.
    data = np.array([[0.0], [2.0], [11.0], [13.0]])
    step = LloydStep(open_rows(data), momentum=0.5)
    before, means = np.array([[0.0], [10.0]]), np.array([[1.0], [12.0]])
    assert step.ahead(before, means, 2).tolist() == [[1.0], [12.0]]
    assert step.ahead(before, means, 3).tolist() == [[1.5], [13.0]]
    assert replace(step, n_plain=2).ahead(before, means, 2).tolist() == [[1.5], [13.0]]

    def counted_from(points, counts):
        sums = (counts[:, None] * means)[None]
        stats = ClusterStatistics(sums, counts[None], np.zeros((1, 2)))
        return step.means(points, before, stats, 0)[2].tolist()

    points, counts = np.array([[0.5], [11.0]]), np.array([2.0, 2.0])
    # The means continue from these points, with their momentum.
    assert counted_from(points, counts) == before.tolist()
    # They turn back: 2 (1.5 - 1) 1 + 2 (13 - 12) 2 > 0.
    points = np.array([[1.5], [13.0]])
    assert counted_from(points, counts) == means.tolist()
    # By weight: 8 (0.5 - 1) 1 + 2 (13 - 12) 2 = 0, so kept.
    points, counts = np.array([[0.5], [13.0]]), np.array([8.0, 2.0])
    assert counted_from(points, counts) == before.tolist()
    # A cluster that was empty has been given a row far off, at 2, to which it did not move.
    counts = np.array([8.0, 0.0])
    assert counted_from(points, counts) == [[0.0], [2.0]]


def test_momentum_begins_anew_where_means_turn_back():
    data, k = slow_data(), 20
    _, states = lloyd(data, data[:k].astype(float), MOMENTUM)
    anew = [np.array_equal(s.before, s.centers) for s in states[1:]]
    assert any(anew)
    assert not all(anew)


def test_a_fit_with_momentum_that_was_cut_off_goes_on_where_it_was(tmp_path):
    data = slow_data()
    options = {"random_state": 0, "algorithm": "nested", "tol": 1e-6}
    whole = KMeans(20, **options).fit(data)
    assert whole.n_iter_ > 9
    path = tmp_path / "state"
    KMeans(20, **options, max_iter=8, checkpoint=path).fit(data)
    found = KMeans(20, **options, checkpoint=path).fit(data)
    assert_array_equal(found.cluster_centers_, whole.cluster_centers_)
    assert found.n_iter_ == whole.n_iter_
    # Means of the rows that were assigned last, however far the next step would have gone.
    assert found.inertia_ <= found.history_[-1]["objective"]
