"""PCSKMeans: what it computes, by brute force and by properties."""

from __future__ import annotations

import warnings
from itertools import pairwise
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles.constrained import between, list_pairs, objective, penalized_scores, violated
from oracles.pcskm_reference import EMPTY, KEPT, OUTER_LIMIT, closed_threshold, pcskm
from oracles.problems import (
    SEEDS,
    assert_same_model,
    quiet_fit,
    random_problem,
    tangled_problem,
    violations,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

from daskclust import PCSKMeans
from daskclust.datasets import make_sparse_blobs
from daskclust.exceptions import ConstraintWarning

# --- against plain loops -------------------------------------------------------------------


@given(seed=SEEDS)
def test_equals_plain_loops(seed: int) -> None:
    problem = random_problem(seed)
    want = pcskm(*problem)
    assume(want.status != EMPTY)
    model = quiet_fit(problem.model(), problem.X, **problem.links)
    np.testing.assert_array_equal(model.labels_, want.labels)
    assert model.n_iter_ == want.passes
    np.testing.assert_allclose(model.feature_weights_, want.weights, atol=1e-9)
    np.testing.assert_allclose(model.assignment_weights_, want.weights_of_labels, atol=1e-9)
    np.testing.assert_allclose(model.cluster_centers_, want.centers, atol=1e-9)
    assert model.history_[-1]["converged"] == (want.status != OUTER_LIMIT)


def test_a_start_on_linked_rows_is_a_tie() -> None:
    """Rows i and j are linked and both start a cluster: staying with j costs as much as leaving.

    In exact arithmetic, that is; here too, so the lower cluster gets row i.
    """
    once = {"penalty": "distance", "max_iter": 1, "max_outer_iter": 1}
    for seed in range(10):
        rng = np.random.default_rng(seed)
        for p in (1, 3, 5, 9, 18):
            X = rng.normal(size=(12, p)) * rng.uniform(0.1, 9, p)
            for dtype in (np.float64, np.float32):
                rows = X.astype(dtype)
                model = PCSKMeans(2, init=rows[[7, 4]], **once)
                quiet_fit(model, rows, must_link=[[4, 7]])
                assert model.labels_[[4, 7]].tolist() == [1, 0]
                model = PCSKMeans(2, init=rows[[4, 7]], **once)
                quiet_fit(model, rows, must_link=[[4, 7]])
                assert model.labels_[[4, 7]].tolist() == [0, 0]


def test_penalized_scores_equal_plain_loops() -> None:
    """Also where no score is positive, in the first round and in later ones."""
    kept_in_round = set()
    for seed in range(150):
        problem = tangled_problem(seed)
        want = pcskm(*problem, penalized=True)
        if want.status == EMPTY:
            continue
        model = quiet_fit(problem.model(penalized_scores=True), problem.X, **problem.links)
        np.testing.assert_array_equal(model.labels_, want.labels)
        assert model.n_iter_ == want.passes
        np.testing.assert_allclose(model.feature_weights_, want.weights, atol=1e-9)
        last = model.history_[-1]
        assert last["weights_kept"] == (want.status == KEPT)
        if want.status == KEPT:
            kept_in_round.add(model.n_iter_)
            assert (model.feature_scores_ <= 0).all()
            assert last["weight_change"] == 0
    assert {1, 2, 3} <= kept_in_round


def test_kept_weights_are_announced() -> None:
    problem = tangled_problem(
        next(s for s in range(99) if pcskm(*tangled_problem(s), penalized=True).status == KEPT)
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        problem.model(penalized_scores=True).fit(problem.X, **problem.links)
    contradiction, kept = caught
    assert contradiction.category is ConstraintWarning
    assert kept.category is ConvergenceWarning
    assert "No feature score is positive in round 1" in str(kept.message)
    assert "use penalized_scores=False" in str(kept.message)
    assert {warning.filename for warning in caught} == {__file__}


def test_scaled_penalties_leave_half_of_the_scores() -> None:
    """Data for which Eq. 15 has no positive score in any round."""
    scaled = 0
    for seed in range(150):
        problem = tangled_problem(seed)
        model = problem.model(penalized_scores=True)
        model._penalty_share = 0.5
        quiet_fit(model, problem.X, **problem.links)
        assert not any(record.get("weights_kept") for record in model.history_)
        gamma = between(problem.X, model.labels_, None)
        lost = gamma - model.feature_scores_
        assert lost.sum() <= gamma.sum() / 2 * (1 + 1e-9)
        pairs = list_pairs(*problem[3:], 1.0, 1.0)
        full = gamma - penalized_scores(problem.X, model.labels_, pairs, None)
        if full.sum() <= gamma.sum() / 2:
            np.testing.assert_allclose(lost, full, atol=1e-9 * gamma.sum())
        else:
            scaled += 1
            part = full * (gamma.sum() / 2 / full.sum())
            np.testing.assert_allclose(lost, part, rtol=1e-6, atol=1e-9 * gamma.sum())
    assert scaled > 20


def test_scaled_penalties_of_satisfied_constraints_change_nothing() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    X[:30, 0] += 20
    for share in (np.inf, 0.5):
        model = PCSKMeans(2, penalized_scores=True, random_state=0)
        model._penalty_share = share
        model.fit(X, must_link=[[0, 1]], cannot_link=[[0, 59]])
        assert not violations(model)
        plain = PCSKMeans(2, random_state=0).fit(X, must_link=[[0, 1]], cannot_link=[[0, 59]])
        assert_same_model(model, plain, 0)


@given(
    seed=SEEDS,
    penalty=st.sampled_from(["distance", "constant"]),
    penalized=st.booleans(),
    weigh=st.booleans(),
)
def test_scores_violations_and_objective(
    seed: int, penalty: str, penalized: bool, weigh: bool
) -> None:
    """Pairs with weights, labels and row weights together, all by brute force."""
    problem = random_problem(seed, n=30)
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(30) < 0.3, rng.integers(0, 4, 30) * 7, -1)
    weights: dict[str, Any] = {"must_link_weight": 1.7, "cannot_link_weight": 0.4}
    if weigh:
        weights = {name: rng.uniform(0.1, 2, 12) for name in weights}
    sample_weight = rng.uniform(0.5, 2, 30) if weigh else None
    model = quiet_fit(
        problem.model(penalty=penalty, penalized_scores=penalized),
        problem.X,
        y,
        **problem.links,
        **weights,
        sample_weight=sample_weight,
    )
    labels = model.labels_
    pairs = list_pairs(*problem[3:], *weights.values(), y=y)
    explicit = [
        (pair.i, pair.j, "must-link" if pair.is_must else "cannot-link")
        for pair in violated(labels, pairs)
        if not pair.implied
    ]
    assert violations(model) == sorted(explicit)
    scores = between(problem.X, labels, sample_weight)
    if penalized:
        scores = penalized_scores(problem.X, labels, pairs, sample_weight)
    size = np.abs(scores).max() + len(pairs)
    np.testing.assert_allclose(model.feature_scores_, scores, rtol=0, atol=1e-9 * size)
    want = objective(problem.X, labels, model.feature_weights_, pairs, penalty, sample_weight)
    assert model.objective_ == pytest.approx(want, rel=0, abs=1e-9 * size)
    if not model.history_[-1]["weights_kept"]:
        kept = np.maximum(scores - closed_threshold(scores, problem.sparsity), 0)
        np.testing.assert_allclose(
            model.feature_weights_, kept / np.linalg.norm(kept), rtol=0, atol=1e-9
        )


@given(seed=SEEDS, constrained=st.booleans(), weigh=st.booleans())
def test_inner_passes_lower_the_objective(seed: int, constrained: bool, weigh: bool) -> None:
    """Within a round; a row visited sees what the others cost it, so this holds for pairs too."""
    problem = random_problem(seed, n=80, n_pairs=(40, 40))
    sample_weight = np.random.default_rng(seed).exponential(size=80) if weigh else None
    links = problem.links if constrained else {}
    model = quiet_fit(problem.model(), problem.X, **links, sample_weight=sample_weight)
    inner = 0
    for before, now in pairwise(model.history_):
        if now["round"] == before["round"] and not before["repaired"]:
            assert now["objective"] <= before["objective"] * (1 + 1e-12)
            inner += 1
    assert inner
    assert [r["iteration"] for r in model.history_] == list(range(1, len(model.history_) + 1))
    assert model.history_[-1]["round"] == model.n_iter_


def test_history_of_a_fully_constrained_fit_counts_moves() -> None:
    problem = random_problem(0, n=10)
    y = np.arange(10) % 3
    moved = [r["moved"] for r in quiet_fit(problem.model(), problem.X, y).history_]
    assert moved[0] == 10
    assert moved[-1] == 0
    free = quiet_fit(problem.model(), problem.X, must_link=[[0, 1]])
    assert {r["moved"] for r in free.history_} == {None}


def test_scale_and_place_of_the_data_do_not_matter() -> None:
    problem = random_problem(3)
    model = quiet_fit(problem.model(), problem.X, **problem.links)
    for factor, shift in ((1e-8, 0.0), (1e8, 0.0), (1.0, 1e4), (2.0, -500.0)):
        moved = quiet_fit(
            problem.model(init=problem.start * factor + shift),
            problem.X * factor + shift,
            **problem.links,
        )
        np.testing.assert_array_equal(moved.labels_, model.labels_)
        np.testing.assert_allclose(moved.feature_weights_, model.feature_weights_, atol=1e-9)


@pytest.mark.parametrize("constrained", [False, True])
def test_float32(constrained: bool) -> None:
    """Distances in float32, sums in float64: the fit of the same values in float64."""
    problem = random_problem(11, n=500)
    links = problem.links if constrained else {}
    narrow = problem.X.astype(np.float32)
    one = quiet_fit(problem.model(), narrow, **links)
    two = quiet_fit(problem.model(), narrow.astype(np.float64), **links)
    assert_same_model(one, two, 1e-12)
    assert one.cluster_centers_.dtype == np.float64
    assert one.transform(narrow).dtype == np.float32


# --- chunks and weights of rows ------------------------------------------------------------


# --- sparsity ------------------------------------------------------------------------------


def test_bound_is_met() -> None:
    X, _ = make_sparse_blobs(300, 4, 8, random_state=0)
    for s in (1.0, 1.3, 2.0, 2.5, np.sqrt(12), None):
        model = PCSKMeans(3, sparsity=s, random_state=0).fit(X)
        w = model.feature_weights_
        assert np.linalg.norm(w) == pytest.approx(1)
        assert w.min() >= 0
        assert w.sum() <= (s or np.sqrt(12)) + 1e-9
        if s == 1:
            assert np.count_nonzero(w) == 1
            assert w.argmax() == model.feature_scores_.argmax()


def test_sparsity_rounded_up_means_the_root() -> None:
    X, _ = make_sparse_blobs(60, 2, 3, random_state=0)
    rounded = PCSKMeans(3, sparsity=2.237, random_state=0).fit(X)
    assert_same_model(rounded, PCSKMeans(3, random_state=0).fit(X), 0)


@pytest.mark.parametrize("sparsity", [1.0, 1.2])
def test_tied_features_stay_together(sparsity: float) -> None:
    X, _ = make_sparse_blobs(90, 1, 3, random_state=1)
    X = np.hstack([X[:, :1], X[:, :1], X])
    with pytest.warns(ConvergenceWarning, match="3 features share the largest score") as caught:
        model = PCSKMeans(3, sparsity=sparsity, random_state=0).fit(X)
    assert [warning.filename for warning in caught] == [__file__]
    np.testing.assert_allclose(model.feature_weights_, [3**-0.5] * 3 + [0] * 3, atol=1e-12)
    assert model.history_[-1]["weights_tied"] is True


def test_constant_features_get_no_weight() -> None:
    X, _ = make_sparse_blobs(90, 3, 3, random_state=1)
    # A mean of values like 0.1 is not exactly 0.1, and differs from the clusters' means.
    constant = np.full((90, 1), 0.1)
    X = np.hstack([constant, X, 1e9 * constant])
    with dask.config.set(scheduler="synchronous"):
        for data in (X, da.from_array(X, chunks=(17, -1))):
            model = PCSKMeans(3, random_state=0).fit(data)
            assert model.feature_scores_[[0, -1]].tolist() == [0, 0]
            assert model.feature_weights_[[0, -1]].tolist() == [0, 0]
            assert (model.feature_weights_[1:-1] > 0).all()


def test_large_features_count_more() -> None:
    X, _ = make_sparse_blobs(90, 2, 3, random_state=1)
    X[:, 3] *= 1000
    model = PCSKMeans(3, sparsity=1.1, random_state=0).fit(X)
    assert model.feature_weights_.argmax() == 3


def test_features_without_weight_are_not_looked_at() -> None:
    X, _ = make_sparse_blobs(90, 2, 6, random_state=1)
    model = PCSKMeans(3, sparsity=1.2, random_state=0).fit(X)
    out = model.feature_weights_ == 0
    assert out.any()
    other = np.where(out, 1e200, X)
    np.testing.assert_array_equal(model.predict(other), model.predict(X))
    np.testing.assert_array_equal(model.transform(other), model.transform(X))


def test_one_feature() -> None:
    X = np.concatenate([np.zeros(10), np.ones(10), np.full(5, 7.0)])[:, None]
    X += np.random.default_rng(0).normal(scale=0.01, size=X.shape)
    for sparsity in (None, 1):
        model = PCSKMeans(3, sparsity=sparsity, random_state=0).fit(X, cannot_link=[[0, 1]])
        assert model.feature_weights_.tolist() == [1.0]
        assert model.n_iter_ == 1


def test_one_cluster() -> None:
    """Nothing is between clusters, exactly: the weights stay uniform."""
    X = np.random.default_rng(0).normal(size=(50, 4)) + 1e6
    for links in ({}, {"must_link": [[0, 1]]}):
        with pytest.warns(ConvergenceWarning, match="No feature separates the clusters"):
            model = PCSKMeans(1, sparsity=1.5, random_state=0).fit(X, **links)
        assert model.feature_scores_.tolist() == [0] * 4
        assert model.feature_weights_.tolist() == [0.5] * 4
        assert model.n_iter_ == 1
        assert model.objective_ == 0
        np.testing.assert_allclose(model.cluster_centers_, X.mean(axis=0)[None], rtol=1e-12)


# --- empty clusters ------------------------------------------------------------------------


@given(seed=SEEDS, n_pairs=st.sampled_from([0, 5, 60]), penalized=st.booleans())
def test_clusters_that_start_empty_are_filled(seed: int, n_pairs: int, penalized: bool) -> None:
    """From a start whose centers coincide, also where every row is constrained."""
    problem = random_problem(seed, n_pairs=(0, n_pairs))
    model = quiet_fit(
        problem.model(init=problem.start[[0, 0, 0]], penalized_scores=penalized),
        problem.X,
        **problem.links,
    )
    assert np.bincount(model.labels_, minlength=3).min() > 0
    assert np.isfinite(model.cluster_centers_).all()


def test_constrained_rows_found_clusters_when_there_are_no_others() -> None:
    """Two far neighborhoods, all rows in them, both nearest to the same center at first."""
    X = np.concatenate([np.zeros(10), np.full(10, 50.0)])[:, None]
    X += np.random.default_rng(0).normal(size=X.shape)
    chain = np.array([[i, i + 1] for i in range(19) if i != 9])
    model = PCSKMeans(2, init=[[25.0], [1e6]]).fit(X, must_link=chain)
    assert model.labels_.tolist() in ([0] * 10 + [1] * 10, [1] * 10 + [0] * 10)
    assert model.history_[0]["repaired"]
    assert not model.history_[-1]["repaired"]
    assert not violations(model)


def test_constraints_may_leave_a_cluster_empty() -> None:
    """All rows must-linked: the fit ends, with a warning before and after."""
    X = np.random.default_rng(0).normal(size=(30, 2))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = PCSKMeans(3, init="ss-k-means||", penalty="distance", random_state=0)
        model.fit(X, np.zeros(30, dtype=int))
    assert caught[0].category is ConstraintWarning
    assert "leave 1 group(s) of rows that stay together" in str(caught[0].message)
    assert any("found smaller than n_clusters (3)" in str(w.message) for w in caught)
    assert {warning.filename for warning in caught} == {__file__}
    assert len(np.unique(model.labels_)) == 1
    # k attempts to found a cluster, and two passes that agree
    assert len(model.history_) <= 3 + 2


def test_fewer_distinct_rows_than_clusters() -> None:
    X = np.repeat([[0.0, 1.0], [5.0, 2.0]], 10, axis=0)
    with pytest.warns(ConvergenceWarning, match=r"distinct clusters \(2\)") as caught:
        model = PCSKMeans(3, random_state=0).fit(X)
    assert [warning.filename for warning in caught] == [__file__]
    assert len(np.unique(model.labels_)) == 2


# --- is it any good ------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_finds_the_informative_features(seed: int) -> None:
    X, y = make_sparse_blobs(600, 5, 45, random_state=seed)
    model = PCSKMeans(3, sparsity=2.0, random_state=seed).fit(X)
    assert set(np.argsort(-model.feature_weights_)[:5]) == set(range(5))
    assert model.feature_weights_[5:].sum() < 0.05
    assert adjusted_rand_score(y, model.labels_) > 0.95
