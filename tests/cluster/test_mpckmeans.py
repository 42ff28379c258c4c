"""MPCKMeans: against WekaUT, by brute force and by properties."""

from __future__ import annotations

import warnings
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles.constrained import between, list_pairs, violated
from oracles.golden import DATA_SETS, cases
from oracles.problems import SEEDS, assert_same_model, quiet_fit, random_problem
from sklearn.metrics import adjusted_rand_score

from daskclust import MPCKMeans, PCKMeans, pairs_from_labels
from daskclust.cluster.constrained.iteration import RestartState
from daskclust.core.constraints import PairwiseConstraints
from daskclust.datasets import make_sparse_blobs
from daskclust.exceptions import ConstraintWarning

WEKA: dict[str, Any] = {
    "_metric_scale": 0.01,
    "_box_from_origin": True,
    "_tol_of_objective": True,
    "tol": 1e-5,
    "penalty": "distance",
    "max_iter": 10_000,
}


def fit(want: dict[str, Any], X: Any = None, **parameters: Any) -> MPCKMeans:
    start = want["init_centres"]
    options = {**WEKA, **parameters}
    private = {name: options.pop(name) for name in list(options) if name.startswith("_")}
    model = type("Weka", (MPCKMeans,), private)(len(start), init=start, **options)
    return model.fit(
        want["X"] if X is None else X,
        must_link=want["must_link"],
        cannot_link=want["cannot_link"],
    )


# --- against WekaUT ------------------------------------------------------------------------


@pytest.mark.parametrize("name", DATA_SETS)
def test_weka_cases(data_dir: Path, name: str) -> None:
    """Labels identical, weights to 1e-6, from the centers that were given."""
    seen = 0
    for case, want in cases(data_dir, name, "mpckm"):
        if case.endswith("__seeding"):
            continue  # its own start
        chunks = (31, 0, 1, 58, len(want["X"]) - 90)
        with dask.config.set(scheduler="synchronous"):
            for X in (want["X"], da.from_array(want["X"], chunks=(chunks, -1))):
                model = fit(want, X)
                np.testing.assert_array_equal(
                    np.asarray(model.labels_), want["labels"], err_msg=case
                )
                np.testing.assert_allclose(
                    model.metric_weights_, want["w"], rtol=1e-6, err_msg=case
                )
                np.testing.assert_allclose(
                    model.cluster_centers_, want["centres"], rtol=1e-6, atol=1e-9, err_msg=case
                )
        seen += 1
    assert seen == 6


#: Cases that WekaUT starts itself and that depend on the labels with which it does so.
LABELED_START = {
    ("digits048_data1", "java__mpckm__c5__seeding"),
    ("TTSCST", "java__mpckm__c1__seeding"),
}


def seeded_labels(want: dict[str, Any]) -> Any:
    """Labels of the constrained rows that belong to the neighborhoods WekaUT started from."""
    given = PairwiseConstraints.from_fit_arguments(
        len(want["X"]), want["must_link"], want["cannot_link"]
    )
    x, labels = want["X"][given.rows], np.full(len(given.rows), -1)
    for component in range(given.component.max() + 1):
        mine = given.component == component
        # The centers are on record to six decimals.
        near = np.abs(want["init_centres"] - x[mine].mean(axis=0)).max(axis=1) < 1e-5
        if mine.sum() > 1 and near.any():
            labels[mine] = np.flatnonzero(near)[0]
    assert len(np.unique(labels[labels >= 0])) == len(want["init_centres"])
    return labels


@pytest.mark.parametrize("name", DATA_SETS)
def test_weka_cases_that_it_started_itself(
    data_dir: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From its neighborhoods' centers alone, and with labels for their rows, as it starts."""
    begin = RestartState.begin
    for case, want in cases(data_dir, name, "mpckm"):
        if not case.endswith("__seeding"):
            continue
        given = {"labels": seeded_labels(want)}
        differs = {(name, case)} <= LABELED_START
        for started, same in (({}, not differs), (given, True)):
            with monkeypatch.context() as patch:
                patch.setattr(
                    RestartState,
                    "begin",
                    lambda *of, more=started, **kw: replace(begin(*of, **kw), **more),
                )
                model = fit(want)
            assert np.array_equal(model.labels_, want["labels"]) is same, case
            if same:
                np.testing.assert_allclose(
                    model.metric_weights_, want["w"], rtol=1e-6, err_msg=case
                )


def test_what_each_switch_of_weka_changes(data_dir: Path) -> None:
    """The scale changes the weights alone; the box changes labels, too."""
    changed = {}
    for name in DATA_SETS:
        for case, want in cases(data_dir, name, "mpckm"):
            if case.endswith("__seeding"):
                continue
            base = fit(want)
            scaled = fit(want, _metric_scale=1.0)
            np.testing.assert_array_equal(scaled.labels_, base.labels_)
            varies = base.metric_weights_ != 1
            np.testing.assert_allclose(
                scaled.metric_weights_[varies], 100 * base.metric_weights_[varies], rtol=1e-9
            )
            by_shift = fit(want, _tol_of_objective=False, tol=0.0)
            np.testing.assert_array_equal(by_shift.labels_, base.labels_)
            in_box = fit(want, _box_from_origin=False)
            changed[name, case] = int((in_box.labels_ != base.labels_).sum())
    assert sum(count > 0 for count in changed.values()) == 1


# --- against plain loops -------------------------------------------------------------------


def plain_loops(
    X: Any, start: Any, must: Any, cannot: Any, limit: int
) -> tuple[Any, Any, Any] | None:
    """Labels, centers and weights after `limit` passes, or at the fixed point; None if empty."""
    n, k = len(X), len(start)
    box2 = np.ptp(X, axis=0) ** 2
    a, labels, centers = np.ones(X.shape[1]), np.full(n, -1), start
    for _ in range(limit):
        before = labels.copy()
        for i in range(n):
            score = [float(a @ (X[i] - c) ** 2) for c in centers]
            for pairs, is_must in ((must, True), (cannot, False)):
                for one, two in pairs:
                    if i not in (one, two):
                        continue
                    other = labels[two if i == one else one]
                    squares = (X[one] - X[two]) ** 2
                    price = float(a @ (squares if is_must else box2 - squares))
                    for c in range(k):
                        if other >= 0 and (other == c) != is_must:
                            score[c] += price
            labels[i] = int(np.argmin(score))
        if len(np.unique(labels)) < k:
            return None
        centers = np.array([X[labels == c].mean(axis=0) for c in range(k)])
        scatter = ((X - centers[labels]) ** 2).sum(axis=0)
        for pairs, is_must in ((must, True), (cannot, False)):
            for one, two in pairs:
                squares = (X[one] - X[two]) ** 2
                if (labels[one] == labels[two]) != is_must:
                    scatter = scatter + (squares if is_must else box2 - squares)
        a = n / scatter
        if np.array_equal(labels, before):
            break
    return labels, centers, a


@given(seed=SEEDS, limit=st.sampled_from([1, 3, 50]))
def test_equals_plain_loops(seed: int, limit: int) -> None:
    problem = random_problem(seed, n=30)
    # Not on the rows, where leaving a partner may cost as much as staying with it.
    problem = problem._replace(start=problem.start + 0.01)
    want = plain_loops(problem.X, problem.start, problem.must_link, problem.cannot_link, limit)
    assume(want is not None)
    model = quiet_fit(problem.model(MPCKMeans, max_iter=limit), problem.X, **problem.links)
    labels, centers, weights = want
    np.testing.assert_array_equal(model.labels_, labels)
    np.testing.assert_allclose(model.cluster_centers_, centers, atol=1e-12)
    np.testing.assert_allclose(model.metric_weights_, weights, rtol=1e-9)


@given(
    seed=SEEDS,
    penalty=st.sampled_from(["distance", "constant"]),
    scale=st.sampled_from([1.0, 0.01]),
    limit=st.sampled_from([2, 100]),
)
def test_weights_and_objective(seed: int, penalty: str, scale: float, limit: int) -> None:
    """Eq. 10 and its stationary point by brute force, also where the fit is cut off."""
    problem = random_problem(seed, n=30)
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(30) < 0.3, rng.integers(0, 4, 30) * 7, -1)
    weights: dict[str, Any] = {"must_link_weight": 1.7, "cannot_link_weight": 0.4}
    sample_weight = rng.uniform(0.5, 2, 30)
    kind = type("Scaled", (MPCKMeans,), {"_metric_scale": scale})
    model = quiet_fit(
        problem.model(kind, penalty=penalty, max_iter=limit),
        problem.X,
        y,
        **problem.links,
        **weights,
        sample_weight=sample_weight,
    )
    assume(not model.history_[-1]["repaired"])
    x, n = problem.X, sample_weight.sum()
    broken = violated(model.labels_, list_pairs(*problem[3:], *weights.values(), y=y))
    everything = (sample_weight[:, None] * (x - np.average(x, 0, sample_weight)) ** 2).sum(axis=0)
    scatter = everything - between(x, model.labels_, sample_weight)
    prices = 0.0
    for pair in broken:
        squares = (x[pair.i] - x[pair.j]) ** 2
        if penalty == "constant":
            prices += pair.weight
        else:
            box2 = np.ptp(x, axis=0) ** 2
            scatter = scatter + pair.weight * (squares if pair.is_must else box2 - squares)
    a = model.metric_weights_
    np.testing.assert_allclose(a, scale * n / scatter, rtol=1e-9)
    want = float(a @ scatter) + prices - scale * n * np.log(a).sum()
    assert model.objective_ == pytest.approx(want, rel=1e-9, abs=1e-9)


@given(seed=SEEDS, penalty=st.sampled_from(["distance", "constant"]))
def test_passes_lower_the_objective(seed: int, penalty: str) -> None:
    """With the box every step is monotone, once all rows have labels."""
    problem = random_problem(seed, n=80, n_pairs=(40, 40))
    model = quiet_fit(problem.model(MPCKMeans, penalty=penalty), problem.X, **problem.links)
    for before, now in pairwise(model.history_):
        if not (before["repaired"] or now["repaired"]):
            assert now["objective"] <= before["objective"] + 1e-9 * abs(before["objective"])


@given(seed=SEEDS)
def test_labels_equal_all_their_pairs(seed: int) -> None:
    problem = random_problem(seed)
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(40) < 0.35, rng.choice([0, 3, 4, 100], 40), -1)
    must, cannot = pairs_from_labels(y)
    problem = problem._replace(start=problem.start + 0.01)
    implied = quiet_fit(problem.model(MPCKMeans), problem.X, y)
    listed = quiet_fit(problem.model(MPCKMeans), problem.X, must_link=must, cannot_link=cannot)
    assert_same_model(implied, listed)


@given(seed=SEEDS)
def test_units_of_features_cancel(seed: int) -> None:
    """In a_j (x - x')_j^2, given the clusters; labels of great weight give them."""
    problem = random_problem(seed)
    y = np.arange(40) % 3
    unit = np.array([2.0, 0.25, 8.0, 1.0, 0.5])
    weight = {"must_link_weight": 1e6, "cannot_link_weight": 1e6}
    one = quiet_fit(MPCKMeans(3), problem.X, y, **weight)
    other = quiet_fit(MPCKMeans(3), problem.X * unit, y, **weight)
    np.testing.assert_array_equal(one.labels_[:3][y], one.labels_)
    np.testing.assert_allclose(other.metric_weights_ * unit**2, one.metric_weights_, rtol=1e-9)


def test_features_that_do_not_vary_keep_their_weight() -> None:
    """A constant one, and one that separates the clusters without any spread."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    X[:, 2] = 1e6 + 7.3
    X[:, 3] = np.where(np.arange(60) < 30, 0.1, 5.3)
    model = MPCKMeans(2, init=X[[0, 59]]).fit(X)
    assert model.labels_.tolist() == [0] * 30 + [1] * 30
    np.testing.assert_array_equal(model.metric_weights_[2:], [1.0, 1.0])
    within = X[:30, :2].var(axis=0) / 2 + X[30:, :2].var(axis=0) / 2
    np.testing.assert_allclose(model.metric_weights_[:2], 1 / within)
    assert np.isfinite(model.objective_)


# --- odd features --------------------------------------------------------------------------


# --- is it any good ------------------------------------------------------------------------


def test_the_metric_helps_where_units_mislead() -> None:
    """Clusters in four features, noise of twelve times the size in four others."""
    X, y = make_sparse_blobs(300, 4, 4, random_state=1)
    X = X * np.where(np.arange(8) < 4, 1.0, 12.0)
    must, cannot = pairs_from_labels(y, n_pairs=600, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConstraintWarning)
        learned = MPCKMeans(3, random_state=0).fit(X, must_link=must, cannot_link=cannot)
        plain = PCKMeans(3, random_state=0).fit(X, must_link=must, cannot_link=cannot)
    found, missed = (adjusted_rand_score(y, model.labels_) for model in (learned, plain))
    assert found > 0.9
    assert missed < found - 0.05
    assert learned.metric_weights_[:4].min() > 10 * learned.metric_weights_[4:].max()
