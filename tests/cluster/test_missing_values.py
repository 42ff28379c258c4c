"""k-means over what is observed: against brute force, k-POD, and itself where all is there."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from oracles.problems import violations
from sklearn.metrics import adjusted_rand_score

import daskclust
from daskclust import (
    COPKMeans,
    DPMeans,
    KMeans,
    MPCKMeans,
    PCKMeans,
    PCSKMeans,
    SemiSupervisedKMeans,
    SparseKMeans,
)
from daskclust.exceptions import ConstraintWarning, MissingValuesWarning

FAMILY = (KMeans, SemiSupervisedKMeans, SparseKMeans, PCKMeans, PCSKMeans)
K, P = 3, 5


def make(n=300, share=0.3, seed=0, spread=3.0):
    """Rows with gaps, none of them empty, their classes, and the complete rows."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(K, size=n)
    X = spread * rng.normal(size=(K, P))[classes] + rng.normal(size=(n, P))
    gaps = rng.random(X.shape) < share
    gaps[np.arange(n), rng.integers(P, size=n)] = False
    return np.where(gaps, np.nan, X), classes, X


def given(model, classes):
    """Class statistics as the estimator receives them."""
    y = np.full(len(classes), -1)
    y[:15] = classes[:15]
    if isinstance(model, SemiSupervisedKMeans):
        return {"y": y}
    if isinstance(model, PCKMeans | PCSKMeans):
        i, j = np.triu_indices(15, 1)
        same = classes[i] == classes[j]
        pairs = np.column_stack([i, j])
        return {"must_link": pairs[same], "cannot_link": pairs[~same]}
    return {}


def squared_to(X, centers, w=1.0):
    return np.nansum(w * (X[:, None] - centers) ** 2, axis=2)


def lloyd(X, centers):
    """Alternate labels by partial distances and means of what is there."""
    while True:
        labels = squared_to(X, centers).argmin(axis=1)
        moved = centers.copy()
        for c in range(len(centers)):
            for j in range(X.shape[1]):
                values = X[labels == c, j]
                values = values[~np.isnan(values)]
                if len(values):
                    moved[c, j] = values.mean()
        if np.allclose(moved, centers, rtol=0, atol=1e-12):
            return labels, moved
        centers = moved


def k_pod(X, centers, n_iter=500):
    """Chi, Chi & Baraniuk: fill in from the own center, then a step of k-means on full rows."""
    gaps = np.isnan(X)
    labels = squared_to(X, centers).argmin(axis=1)
    for _ in range(n_iter):
        full = np.where(gaps, centers[labels], X)
        labels = ((full[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
        centers = np.stack([full[labels == c].mean(axis=0) for c in range(len(centers))])
    return labels, centers


@pytest.mark.parametrize("seed", range(3))
def test_it_is_lloyd_over_what_is_observed(seed):
    X, _, full = make(seed=seed)
    start = full[:K]
    model = KMeans(K, init=start, tol=0, missing="partial").fit(X)
    labels, centers = lloyd(X, start)
    np.testing.assert_array_equal(model.labels_, labels)
    np.testing.assert_allclose(model.cluster_centers_, centers, rtol=1e-9)
    squared = squared_to(X, model.cluster_centers_)
    np.testing.assert_allclose(model.inertia_, squared.min(axis=1).sum())
    np.testing.assert_allclose(model.score(X), -model.inertia_)
    np.testing.assert_allclose(model.transform(X), np.sqrt(squared))
    objectives = [record["objective"] for record in model.history_]
    assert all(a >= b - 1e-9 for a, b in itertools.pairwise(objectives))


@pytest.mark.parametrize("seed", range(2))
def test_k_pod_ends_where_it_does(seed):
    X, _, full = make(seed=seed)
    model = KMeans(K, init=full[:K], tol=0, missing="partial").fit(X)
    # A fixed point of k-POD, too, which from the same start gets no further.
    labels, centers = k_pod(X, model.cluster_centers_)
    np.testing.assert_array_equal(labels, model.labels_)
    np.testing.assert_allclose(centers, model.cluster_centers_, atol=1e-9)
    labels, centers = k_pod(X, full[:K])
    assert model.inertia_ <= squared_to(X, centers).min(axis=1).sum() * (1 + 1e-9)


@pytest.mark.parametrize("init", ["k-means||", "k-means++"])
@pytest.mark.parametrize("estimator", FAMILY)
def test_complete_data_are_clustered_the_same_to_the_last_bit(estimator, init):
    _, classes, X = make()
    if estimator is SemiSupervisedKMeans:
        init = f"ss-{init}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one, two = (
            estimator(K, init=init, random_state=0, **more).fit(X, **given(estimator(), classes))
            for more in ({}, {"missing": "partial"})
        )
    np.testing.assert_array_equal(one.cluster_centers_, two.cluster_centers_)
    np.testing.assert_array_equal(one.labels_, two.labels_)
    assert one.inertia_ == two.inertia_
    assert one.n_iter_ == two.n_iter_


@pytest.mark.parametrize("estimator", FAMILY)
def test_any_chunks_give_the_same(estimator):
    X, classes, _ = make(n=400, share=0.4, seed=1)
    X[:70] = np.nan_to_num(X[:70])  # some chunks are complete
    model = estimator(K, missing="partial", random_state=0)
    whole = estimator(K, missing="partial", random_state=0).fit(X, **given(model, classes))
    for chunks in ((61,), (7, 93, 0, 150, 150), (400,)):
        lazy = da.from_array(X, chunks=(chunks if len(chunks) > 1 else chunks[0], P))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(lazy, **given(model, classes))
        np.testing.assert_array_equal(model.labels_.compute(), whole.labels_)
        np.testing.assert_allclose(model.cluster_centers_, whole.cluster_centers_, rtol=1e-9)
        predicted = model.predict(lazy).compute()
        np.testing.assert_array_equal(predicted, whole.predict(X))
    assert adjusted_rand_score(classes, whole.labels_) > 0.8


@pytest.mark.parametrize("estimator", FAMILY)
def test_weights_are_repetitions(estimator):
    X, _classes, _ = make(n=120, share=0.4, seed=2)
    weight = np.random.default_rng(0).integers(1, 4, 120)
    start = [[0.0] * P, [2.0] * P, [-2.0] * P]
    model = estimator(K, init=start, missing="partial")
    weighted = model.fit(X, sample_weight=weight).cluster_centers_
    repeated = model.fit(np.repeat(X, weight, axis=0)).cluster_centers_
    np.testing.assert_allclose(weighted, repeated, rtol=1e-9)


def test_scores_of_features_are_from_observed_sums():
    X, _, _ = make()
    X[:, 4] = np.where(np.isnan(X[:, 4]), np.nan, np.random.default_rng(0).normal(size=len(X)))
    model = SparseKMeans(K, sparsity=1.8, missing="partial", random_state=0).fit(X)
    within = np.zeros(P)
    for c in range(K):
        mine = X[model.labels_ == c]
        within += np.nansum((mine - np.nanmean(mine, axis=0)) ** 2, axis=0)
    total = np.nansum((X - np.nanmean(X, axis=0)) ** 2, axis=0)
    np.testing.assert_allclose(model.feature_scores_, total - within, rtol=1e-9)
    assert model.feature_weights_.argmin() == 4


@pytest.mark.parametrize("estimator", [PCKMeans, PCSKMeans])
def test_pairs_are_priced_by_what_both_rows_observe(estimator):
    X, classes, _ = make(n=150, share=0.4, seed=3, spread=1.0)
    classes[:4] = classes[3::-1]  # some of them wrong
    y = np.full(150, -1)
    y[:20] = classes[:20]
    i, j = np.triu_indices(20, 1)
    pairs = np.column_stack([i, j])
    same = classes[i] == classes[j]
    start = X[:K]
    start = np.where(np.isnan(start), 0.0, start)
    model = estimator(K, init=start, missing="partial")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        implied = model.fit(X, y).labels_
        objective = model.objective_
        model.fit(X, must_link=pairs[same], cannot_link=pairs[~same])
    # Labels are the pairs they imply.
    np.testing.assert_array_equal(model.labels_, implied)
    np.testing.assert_allclose(model.objective_, objective)
    if estimator is PCKMeans:
        cost = squared_to(X, model.cluster_centers_)[np.arange(150), model.labels_].sum()
        box = (np.nanmax(X, axis=0) - np.nanmin(X, axis=0)) ** 2
        for a, b, kind in violations(model):
            gaps = (X[a] - X[b]) ** 2
            cost += np.nansum(gaps if kind == "must-link" else box - gaps)
        np.testing.assert_allclose(objective, cost, rtol=1e-6)


def test_rows_without_any_value_are_told_and_count_for_nothing():
    X, classes, _ = make()
    more = np.concatenate([X, np.full((2, P), np.nan)])
    with pytest.warns(MissingValuesWarning, match=r"2 row\(s\) .* first is row 300"):
        model = KMeans(K, missing="partial", random_state=0).fit(more)
    alone = KMeans(K, init=model, missing="partial").fit(X)
    assert alone.n_iter_ <= 2
    np.testing.assert_allclose(model.cluster_centers_, alone.cluster_centers_, rtol=1e-3)
    assert model.labels_[-2:].tolist() == [-1, -1]
    assert model.predict(more)[-2:].tolist() == [-1, -1]
    assert np.isnan(model.transform(more)[-1]).all()
    y = np.full(302, -1)
    y[[0, 1, 2, 300]] = [*classes[:3], classes[0]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        labeled = SemiSupervisedKMeans(K, missing="partial", random_state=0).fit(more, y)
    assert labeled.labels_[300] == labeled.labels_[0]
    assert labeled.labels_[301] == -1
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        linked = PCKMeans(K, missing="partial", random_state=0).fit(more, must_link=[[0, 300]])
    assert {w.category for w in told} >= {ConstraintWarning, MissingValuesWarning}
    assert linked.labels_[300] == -1


@pytest.mark.parametrize("estimator", [KMeans, PCSKMeans])
def test_what_cannot_be_used_is_refused(estimator):
    X, _, full = make(n=40)
    with pytest.raises(ValueError, match=r'contains NaN: .* missing="partial"'):
        estimator(K).fit(X)
    model = estimator(K, missing="partial", random_state=0)
    infinite = X.copy()
    infinite[3, 1] = np.inf
    with pytest.raises(ValueError, match="infinity: the first at row 3, column 1"):
        model.fit(infinite)
    unseen = X.copy()
    unseen[:, 2] = np.nan
    with pytest.raises(ValueError, match=r"column 2 contains only NaN.*Drop the columns 2"):
        model.fit(unseen)
    with pytest.raises(ValueError, match="missing"):
        estimator(K, missing="drop").fit(X)
    model.fit(X)
    with pytest.raises(ValueError, match="infinity"):
        model.predict(infinite)
    with pytest.raises(ValueError, match="infinity"):
        model.score(infinite)
    with pytest.raises(ValueError, match="NaN"):
        estimator(K, random_state=0).fit(full).predict(X)


def test_what_does_not_go_together_is_refused():
    X, classes, _ = make(n=40)
    for init in ("dkm++", "robin"):
        with pytest.raises(ValueError, match="complete rows"):
            KMeans(K, init=init, missing="partial").fit(X)
    with pytest.raises(ValueError, match="cosine"):
        KMeans(K, metric="cosine", missing="partial").fit(X)
    several = SemiSupervisedKMeans(2 * K, clusters_per_class=2, missing="partial")
    with pytest.raises(ValueError, match="clusters_per_class=2"):
        several.fit(X, classes)
    for other in (COPKMeans, MPCKMeans, DPMeans):
        with pytest.raises(ValueError, match="contains NaN"):
            other().fit(X)


def test_empty_clusters_found_themselves_on_incomplete_rows():
    X, _, _ = make()
    start = np.array([[0.0] * P, [1e3] * P, [-1e3] * P])
    model = KMeans(K, init=start, missing="partial").fit(X)
    assert len(np.unique(model.labels_)) == K
    assert np.isfinite(model.cluster_centers_).all()


@pytest.mark.parametrize("estimator", [KMeans, PCSKMeans])
def test_a_checkpoint_is_continued(estimator, tmp_path):
    X, classes, _ = make(spread=1.0)
    path = tmp_path / "state"
    whole = estimator(K, missing="partial", random_state=0, max_iter=25, tol=0.0)
    cut = estimator(K, missing="partial", random_state=0, max_iter=2, tol=0.0, checkpoint=path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole.fit(X, **given(whole, classes))
        if estimator is KMeans:
            cut.fit(X)
            cut.set_params(max_iter=25).fit(X)
        else:
            cut.set_params(max_iter=25).fit(X, **given(cut, classes))
            cut.fit(X, **given(cut, classes))
    np.testing.assert_array_equal(cut.cluster_centers_, whole.cluster_centers_)


def test_coordinates_without_an_observation_are_reported(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(at, 1, size=(50, 3)) for at in (0.0, 9.0)])
    rows[50:, 2] = np.nan
    table = pd.DataFrame(rows, columns=["red", "green", "blue"])
    links = {"must_link": [(0, 1)], "cannot_link": [(0, 99)]}
    for model, given in (
        (daskclust.KMeans(2, missing="partial", random_state=0), {}),
        (daskclust.SemiSupervisedKMeans(2, missing="partial", random_state=0), {"y": ([60], [1])}),
        (daskclust.PCKMeans(2, missing="partial", random_state=0), links),
        (daskclust.SparseKMeans(2, missing="partial", random_state=0), {}),
        (daskclust.PCSKMeans(2, missing="partial", random_state=0), links),
    ):
        message = r"1 of 6 coordinates .* not observed: .* \(cluster \d and feature blue\)"
        with pytest.warns(MissingValuesWarning, match=message):
            model.fit(table, **given)
        cluster = model.predict(table[:0].reindex([0]).fillna(9.0))[0]
        assert (model.labels_[50:] == cluster).all()
        expected = np.ones((2, 3), bool)
        expected[cluster, 2] = False
        np.testing.assert_array_equal(model.observed_coordinates_, expected)
        assert np.isfinite(model.cluster_centers_).all()
        np.testing.assert_allclose(
            model.cluster_centers_[expected],
            [np.nanmean(rows[model.labels_ == c, j]) for c, j in np.argwhere(expected)],
        )
        model.save(tmp_path / type(model).__name__)
        loaded = daskclust.load(tmp_path / type(model).__name__)
        np.testing.assert_array_equal(loaded.observed_coordinates_, expected)
        # Of the next fit, whose values are all there.
        if not given:
            model.set_params(missing="error").fit(rows[:, :2])
            assert not hasattr(model, "observed_coordinates_")
    whole = daskclust.KMeans(2, missing="partial", random_state=0).fit(rows[:, :2])
    assert whole.observed_coordinates_.all()
