"""Choosing k, s and delta: definitions written out, planted answers, passes, bad input."""

from __future__ import annotations

import warnings

import dask
import numpy as np
import pandas as pd
import pytest
from helpers import chunks_of
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from daskclust import (
    DPMeans,
    GaussianMixture,
    HierarchicalKMeans,
    KMeans,
    MPCKMeans,
    PCSKMeans,
    SparseKMeans,
    datasets,
    metrics,
)
from daskclust.core.kernels.rng import permuted_rows, uniform_rows
from daskclust.selection import choose_n_clusters, choose_sparsity, suggest_delta
from daskclust.selection._grid import one_standard_error, open_grid
from daskclust.testing import CountingScheduler

pytestmark = pytest.mark.usefixtures("synchronous")

chunked = chunks_of(70)

SPARSE, TRUTH = datasets.make_sparse_blobs(240, n_informative=4, n_uninformative=28, random_state=0)
RNG = np.random.default_rng(0)
CENTERS = np.array([[0.0, 0.0], [8.0, 0.0], [0.0, 8.0], [9.0, 9.0]])
BLOBS = CENTERS[RNG.integers(4, size=400)] + RNG.normal(size=(400, 2))


# The rule.


def test_one_standard_error_by_hand():
    scores, errors = np.array([1.0, 2.8, 3.0, 2.9]), np.array([0.1, 0.1, 0.3, 9.0])
    assert one_standard_error(scores, errors, 2) == 1
    assert one_standard_error(scores, errors / 10, 2) == 2
    assert one_standard_error(scores, np.full(4, np.nan), 2) == 2
    assert one_standard_error(np.array([np.nan, 2.0, 2.0]), np.full(3, 0.1), 1) == 1


# Sparsity by the gap.


def test_the_gap_is_its_definition_on_permuted_columns():
    grid = [1.2, 2.0, 5.0]
    model = SparseKMeans(3, random_state=7)
    found = choose_sparsity(model, SPARSE, grid=grid, n_references=2, random_state=3)
    seed = open_grid(model, SPARSE, "sparsity", 3).seed
    pool = np.ascontiguousarray(SPARSE.T)
    logs = np.empty((2, 3))
    for g, s in enumerate(grid):
        sparse = SparseKMeans(3, sparsity=s, random_state=7)
        observed = np.log(sparse.fit(SPARSE).objective_)
        for b in range(2):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                logs[b, g] = np.log(
                    sparse.fit(permuted_rows(pool, seed, b, 0, len(SPARSE))).objective_
                )
        assert found.details["log_objective"][g] == pytest.approx(observed, rel=1e-12)
    np.testing.assert_allclose(found.details["log_reference"], logs, rtol=1e-9)
    np.testing.assert_allclose(
        found.scores, found.details["log_objective"] - logs.mean(axis=0), rtol=1e-9
    )
    np.testing.assert_allclose(
        found.standard_errors, logs.std(axis=0) * np.sqrt(1.5), rtol=1e-6, atol=1e-9
    )


@pytest.mark.slow
def test_the_gap_finds_the_planted_sparsity():
    # Four features of about equal weight have L1 norm 2.
    found = choose_sparsity(SparseKMeans(3), SPARSE, n_references=4, random_state=0)
    assert len(found.grid) == 10
    assert 1.5 < found.best_value < 3.0
    assert found.one_se_value <= found.best_value
    weights = found.best_estimator.feature_weights_
    assert set(np.argsort(weights)[-4:]) == set(np.argsort(SPARSE.var(axis=0))[-4:])
    assert metrics.adjusted_rand_score(TRUTH, found.best_estimator.labels_) > 0.9
    assert found.estimators[0].sparsity == found.grid[0]
    assert (found.parameter, found.criterion) == ("sparsity", "gap")


def test_chunks_schedulers_and_containers_do_not_change_the_choice():
    grid = [1.3, 2.0, 4.0]

    def choose(x):
        return choose_sparsity(SparseKMeans(3), x, grid=grid, n_references=2, random_state=1).scores

    expected = choose(SPARSE)
    for x in (chunked(SPARSE), chunked(SPARSE, 101), pd.DataFrame(SPARSE)):
        np.testing.assert_allclose(choose(x), expected, rtol=1e-9)
    with dask.config.set(scheduler="threads"):
        np.testing.assert_allclose(choose(chunked(SPARSE, 33)), expected, rtol=1e-9)


def test_a_sample_stands_in_for_data_that_are_too_large(monkeypatch):
    options = {"grid": [1.5, 2.0, 3.0], "n_references": 4, "random_state": 0}
    expected = choose_sparsity(SparseKMeans(3), SPARSE, **options)
    monkeypatch.setattr("daskclust.selection._sparsity._POOL_BYTES", 32 * 8 * 100)
    found = choose_sparsity(SparseKMeans(3), SPARSE, **options)
    assert not np.array_equal(found.scores, expected.scores)
    np.testing.assert_allclose(found.scores, expected.scores, atol=0.15)


def test_a_grid_reads_the_data_as_often_as_its_longest_fit():
    grid = np.geomspace(1.1, np.sqrt(32), 10)
    lazy = chunked(SPARSE, 20).map_blocks(np.positive)
    counting = CountingScheduler()
    with dask.config.set({"scheduler": counting, "daskclust.persist": False}):
        found = choose_sparsity(SparseKMeans(3), lazy, grid=grid, n_references=2, random_state=0)
    longest = max(model.history_[-1]["passes"] for model in found.estimators)
    assert found.passes == longest
    # References are computations, too, but of blocks without columns.
    assert counting.calls > longest


# Sparsity by held-out labels.


def test_held_out_labels_choose_a_sparsity():
    noisy = SPARSE + np.random.default_rng(0).normal(size=SPARSE.shape)
    rows = np.arange(0, 240, 4)
    y = np.full(240, -1)
    y[rows] = TRUTH[rows]
    grid = [1.0, 2.0, 5.6]
    for model in (SparseKMeans(3), PCSKMeans(3)):
        found = choose_sparsity(model, noisy, y, method="f-score", grid=grid, random_state=0)
        assert found.details["fold_scores"].shape == (5, 3)
        np.testing.assert_allclose(found.scores, found.details["fold_scores"].mean(axis=0))
        assert found.best_value == 2.0
        again = choose_sparsity(
            model, chunked(noisy), (rows, TRUTH[rows]), method="f-score", grid=grid, random_state=0
        )
        np.testing.assert_allclose(again.scores, found.scores, rtol=1e-12)
        assert again.passes <= max(m.history_[-1]["passes"] for m in again.estimators) + 10


def test_folds_hold_their_labels_out(monkeypatch):
    given = []
    read = PCSKMeans._read

    def noting(self, data, **arguments):
        given.append(arguments["y"])
        return read(self, data, **arguments)

    monkeypatch.setattr(PCSKMeans, "_read", noting)
    rows = np.arange(0, 240, 8)
    choose_sparsity(
        PCSKMeans(3),
        SPARSE,
        (rows, TRUTH[rows]),
        method="f-score",
        grid=[2.0],
        n_folds=3,
        random_state=0,
    )
    whole, *folds = [set(y[0].tolist()) for y in given]
    assert whole == set(rows.tolist())
    held = [whole - fold for fold in folds]
    assert len(folds) == 3
    assert set().union(*held) == whole
    assert sum(len(h) for h in held) == len(whole)
    for h in held:
        assert set(TRUTH[list(h)]) == set(TRUTH[rows])


# The number of clusters.


@pytest.mark.parametrize("criterion", ["silhouette", "calinski_harabasz", "davies_bouldin", "gap"])
@pytest.mark.parametrize("make", [lambda x: x, chunked], ids=["numpy", "dask"])
def test_every_criterion_finds_four_clusters(criterion, make):
    found = choose_n_clusters(
        KMeans(), make(BLOBS), range(1, 8), criterion=criterion, n_references=4, random_state=0
    )
    assert found.best_value == 4
    assert found.one_se_value == 4
    assert np.isnan(found.scores[0]) == (criterion != "gap")
    assert found.best_estimator.n_clusters == 4
    assert found.greater_is_better == (criterion != "davies_bouldin")
    assert found.grid.tolist() == list(range(1, 8))
    longest = max(model.history_[-1]["passes"] for model in found.estimators)
    # The fits, the pass that settles them, and the one of the criterion.
    assert found.passes <= longest + 2


@pytest.mark.parametrize(
    ("name", "score_of"),
    [
        ("silhouette", metrics.simplified_silhouette_score),
        ("calinski_harabasz", metrics.calinski_harabasz_score),
        ("davies_bouldin", metrics.davies_bouldin_score),
    ],
)
def test_criteria_are_the_metrics_of_the_fits(name, score_of):
    found = choose_n_clusters(KMeans(tol=0.0), BLOBS, [2, 3, 5], criterion=name, random_state=0)
    for model, score in zip(found.estimators, found.scores, strict=True):
        expected = score_of(BLOBS, model.labels_)
        assert score == pytest.approx(expected, rel=1e-9)


def test_criteria_are_worked_out_in_the_space_of_the_estimator():
    angles = RNG.uniform(0, 0.2, 200) + np.repeat([0.0, 1.0], 100)
    rays = np.stack([np.cos(angles), np.sin(angles)], axis=1) * RNG.uniform(1, 50, (200, 1))
    found = choose_n_clusters(KMeans(metric="cosine"), rays, [2, 3, 4], random_state=0)
    assert found.best_value == 2
    assert found.scores[0] > 0.8
    weighted = choose_n_clusters(SparseKMeans(sparsity=2.0), SPARSE, [2, 3], random_state=0)
    for model, score in zip(weighted.estimators, weighted.scores, strict=True):
        stretched = SPARSE * np.sqrt(model.assignment_weights_)
        assert score == pytest.approx(metrics.simplified_silhouette_score(stretched, model.labels_))


def test_the_gap_of_k_is_its_definition_on_boxes():
    model = KMeans(random_state=5)
    found = choose_n_clusters(model, BLOBS, [1, 3], criterion="gap", n_references=2, random_state=3)
    seed = open_grid(model, BLOBS, "n_clusters", 3).seed
    low, high = BLOBS.min(axis=0), BLOBS.max(axis=0)
    for g, k in enumerate([1, 3]):
        fit = KMeans(k, random_state=5).fit
        logs = [
            np.log(fit(uniform_rows(low, high, float, seed, b, 0, 400)).inertia_) for b in range(2)
        ]
        expected = np.mean(logs) - np.log(fit(BLOBS).inertia_)
        assert found.scores[g] == pytest.approx(expected, rel=1e-9)
        assert found.standard_errors[g] == pytest.approx(np.std(logs) * np.sqrt(1.5), rel=1e-6)


@pytest.mark.parametrize("missing", [False, True])
def test_bic_is_that_of_mixtures_and_shares_passes(missing):
    data = BLOBS.copy()
    if missing:
        data[np.random.default_rng(2).random(data.shape) < 0.1] = np.nan
    model = GaussianMixture(covariance_type="diag")
    found = choose_n_clusters(model, chunked(data), range(1, 7), criterion="bic", random_state=0)
    assert found.parameter == "n_components"
    assert found.best_value == found.one_se_value == 4
    assert not found.greater_is_better
    assert found.scores[1] == pytest.approx(found.estimators[1].bic(data), rel=1e-9)
    longest = max(model.history_[-1]["passes"] for model in found.estimators)
    assert found.passes <= longest + 2


def test_a_suggested_delta_is_that_of_dpmeans():
    for x in (BLOBS, chunked(BLOBS), pd.DataFrame(BLOBS)):
        delta = suggest_delta(x, 4)
        model = DPMeans(n_clusters_hint=4).fit(x)
        assert delta == pytest.approx(model.delta_, rel=1e-12)
        assert model.n_clusters_ in (3, 4, 5)
    weight = np.ones(401)
    weight[400] = 0
    far = np.r_[BLOBS, [[1e5, 1e5]]]
    assert suggest_delta(far, 4, sample_weight=weight) == pytest.approx(delta)
    assert suggest_delta(far, 1) > 1e9


# A price of clusters.


# The result.


# Bad input.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"grid": [0.5, 2.0]}, r"grid must be a list .*, got \[0.5, 2.0\], which contains 0.5"),
        ({"grid": [2.0, 5.8]}, r"sqrt\(n_features\) = 5.65685, .*which contains 5.8"),
        ({"grid": [np.nan]}, "which contains nan"),
        ({"grid": []}, "grid must be a list"),
        ({"grid": [[1.5]]}, "grid must be a list"),
        ({"method": "best"}, r"method must be one of 'gap', 'f-score', got 'best'\."),
        ({"method": "f-score"}, "y must be set"),
        ({"y": TRUTH}, "y must be None for method='gap'"),
        ({"n_references": 1}, "n_references must be an integer >= 2, got 1"),
        ({"n_folds": 1}, "n_folds must be an integer >= 2, got 1"),
        ({"method": "f-score", "y": np.r_[0, 1, np.full(238, -1)]}, "got 2 rows of 2 classes"),
        ({"method": "f-score", "y": np.zeros(240, int)}, "240 rows of 1 classes"),
        (
            {"method": "f-score", "y": TRUTH[1:]},
            r"y must have one label per row of X \(240 rows\).*got shape \(239,\)",
        ),
        (
            {"random_state": -1},
            "random_state must be an integer >= 0, a Generator, a RandomState or None, got",
        ),
    ],
)
def test_what_cannot_choose_a_sparsity_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        choose_sparsity(SparseKMeans(3), SPARSE, **arguments)


def test_estimators_that_cannot_be_varied_are_refused(tmp_path):
    with pytest.raises(ValueError, match="must have the parameter 'sparsity'"):
        choose_sparsity(KMeans(3), SPARSE)
    with pytest.raises(ValueError, match="must have the parameter 'n_clusters'"):
        choose_n_clusters(DPMeans(1.0), SPARSE, [2])
    with pytest.raises(ValueError, match="must have the parameter 'sparsity'"):
        choose_sparsity("SparseKMeans", SPARSE)
    with pytest.raises(ValueError, match="checkpoint must be None"):
        choose_sparsity(SparseKMeans(3, checkpoint=tmp_path / "fit"), SPARSE)
    with pytest.raises(ValueError, match="init must not be callable"):
        choose_sparsity(SparseKMeans(3, init=lambda X, k, r: X[:k]), SPARSE, grid=[2.0])
    with pytest.raises(ValueError, match=r"must have a method bic, .*criterion='bic'"):
        choose_n_clusters(KMeans(), BLOBS, [2], criterion="bic")
    with pytest.raises(ValueError, match=r"must have centers, .*criterion='silhouette'"):
        choose_n_clusters(GaussianMixture(), BLOBS, [2])
    with pytest.raises(ValueError, match=r"must have an inertia_ .*criterion='gap'"):
        choose_n_clusters(MPCKMeans(), BLOBS, [2], criterion="gap")


@pytest.mark.parametrize(
    ("ks", "message"),
    [
        ([0, 2], "n_samples = 400, got .*, which contains 0"),
        ([2, 401], "which contains 401"),
        ([2.5], "which contains 2.5"),
        ([], "ks must be a list"),
        (["two"], "which contains 'two'"),
        ([1], "ks must contain a number from 2 .*criterion='silhouette'"),
    ],
)
def test_numbers_that_cannot_be_tried_are_refused(ks, message):
    with pytest.raises(ValueError, match=message):
        choose_n_clusters(KMeans(), BLOBS, ks)


def test_data_without_any_cluster_have_no_gap():
    with (
        pytest.warns(ConvergenceWarning),
        pytest.raises(ValueError, match="no feature separates the clusters"),
    ):
        choose_sparsity(SparseKMeans(1), SPARSE, grid=[2.0], n_references=2)


def test_nan_is_named_and_prices_out_of_range_are_refused():
    bad = BLOBS.copy()
    bad[11, 1] = np.nan
    for choose in (
        lambda: choose_n_clusters(KMeans(), chunked(bad), [2, 3]),
        lambda: choose_sparsity(SparseKMeans(2), bad, grid=[1.2]),
        lambda: suggest_delta(bad, 3),
    ):
        with pytest.raises(ValueError, match="NaN: the first at row 11, column 1"):
            choose()
    with pytest.raises(ValueError, match="at most the number of distinct rows of X, got 3"):
        suggest_delta(np.repeat([[0.0], [1.0]], 5, axis=0), 3)
    with pytest.raises(ValueError, match="n_clusters must be an integer >= 1, got 0"):
        suggest_delta(BLOBS, 0)


# Estimators with a fit of their own, and fits inside fits.

SCALES = np.array([1.0, 1000.0])


class ScaledKMeans(KMeans):
    """Scales the features before it clusters, as users write it."""

    def fit(self, X, y=None, *, sample_weight=None):
        """Fit scaled rows."""
        return super().fit(X / SCALES, sample_weight=sample_weight)


class ScaledSparse(SparseKMeans):
    """The same for sparse k-means; rows of any width."""

    def fit(self, X, y=None, *, sample_weight=None):
        """Fit scaled rows."""
        return super().fit(X * np.linspace(1, 9, X.shape[1]), sample_weight=sample_weight)


def init_of_another_fit(data, k, random_state):
    """Take the centers of a fit of the same shape, in another space."""
    inner = KMeans(k, random_state=3).fit(data / SCALES)
    return inner.cluster_centers_ * SCALES


WIDE = BLOBS * SCALES + np.random.default_rng(2).normal(size=BLOBS.shape) * [0, 5000.0]


def assert_same_fit(found, alone):
    np.testing.assert_array_equal(found.cluster_centers_, alone.cluster_centers_)
    np.testing.assert_array_equal(np.asarray(found.labels_), np.asarray(alone.labels_))
    assert found.inertia_ == alone.inertia_
    assert [{**r, "seconds": 0} for r in found.history_] == [
        {**r, "seconds": 0} for r in alone.history_
    ]


@pytest.mark.parametrize("make", [np.asarray, chunked], ids=["numpy", "dask"])
@pytest.mark.parametrize(
    "model",
    [ScaledKMeans(random_state=0), KMeans(init=init_of_another_fit, n_init=2, random_state=0)],
    ids=["subclass", "init"],
)
def test_in_a_grid_of_k_every_fit_is_the_fit_alone(make, model):
    data = make(WIDE)
    found = choose_n_clusters(model, data, [2, 3, 4], random_state=0)
    for k, fitted in zip([2, 3, 4], found.estimators, strict=True):
        assert_same_fit(fitted, clone(model).set_params(n_clusters=k).fit(data))


@pytest.mark.parametrize("make", [np.asarray, chunked], ids=["numpy", "dask"])
def test_in_a_grid_of_sparsity_every_fit_is_the_fit_alone(make):
    def inner(data, k, random_state):
        return SparseKMeans(k, random_state=1).fit(data * 3.0).cluster_centers_ / 3.0

    data = make(SPARSE)
    y = np.arange(40), TRUTH[:40]
    for model in (ScaledSparse(3, random_state=0), SparseKMeans(3, init=inner, random_state=0)):
        found = choose_sparsity(
            model, data, y, method="f-score", grid=[1.3, 2.5], n_folds=2, random_state=0
        )
        for s, fitted in zip([1.3, 2.5], found.estimators, strict=True):
            assert_same_fit(fitted, clone(model).set_params(sparsity=s).fit(data))


def test_two_levels_share_no_passes_and_what_to_use_instead_is_said() -> None:
    X = np.random.default_rng(0).normal(size=(90, 2))
    with pytest.raises(TypeError, match="Use KMeans"):
        choose_n_clusters(HierarchicalKMeans(), X, [2, 3])
