"""PCKMeans: what it computes, by brute force and by properties."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles.constrained import list_pairs, violated
from oracles.pcskm_reference import pck_run
from oracles.problems import SEEDS, quiet_fit, random_problem, violations

from daskclust import KMeans, PCKMeans


def price(x: Any, pair: Any, box: float, penalty: str) -> float:
    """Eq. 8's price of one violated pair."""
    if penalty == "constant":
        return pair.weight
    length = float(((x[pair.i] - x[pair.j]) ** 2).sum())
    return pair.weight * (length if pair.is_must else box - length)


def test_by_hand() -> None:
    """Row 2 is drawn over by two must-links; one cannot-link of price 49 - 1 parts 0 and 1."""
    X = np.array([[0.0], [1.0], [4.0], [6.0], [7.0]])
    start = [[0.0], [7.0]]
    model = PCKMeans(2, init=start, max_iter=50).fit(X)
    assert model.labels_.tolist() == [0, 0, 1, 1, 1]
    assert model.objective_ == pytest.approx(0.5 + 14 / 3)
    model = PCKMeans(2, init=start, penalty="distance").fit(X, must_link=[[0, 2], [1, 2]])
    assert model.labels_.tolist() == [0, 0, 0, 1, 1]
    assert model.cluster_centers_.tolist() == [[5 / 3], [6.5]]
    assert not model.contradicting_pairs_.violated.any()
    model = PCKMeans(2, init=start, penalty="distance").fit(X, cannot_link=[[0, 1]])
    assert model.labels_.tolist() == [0, 1, 1, 1, 1]
    assert model.objective_ == pytest.approx(21.0)
    # A weight of a tenth is too cheap: violated, for 4.8.
    model = PCKMeans(2, init=start, penalty="distance").fit(
        X, cannot_link=[[0, 1]], cannot_link_weight=0.1
    )
    assert model.labels_.tolist() == [0, 0, 1, 1, 1]
    # Centers 0.5 and 7: row 1 is in (1 - 7)^2 - (1 - 0.5)^2 away from the other cluster.
    (pair,) = model.contradicting_pairs_
    assert pair[["i", "j", "kind", "weight", "violated"]].item() == (0, 1, "cannot-link", 0.1, True)
    assert model.objective_ == pytest.approx(0.5 + 14 / 3 + 4.8)


@given(seed=SEEDS, limit=st.sampled_from([2, 25]))
def test_equals_plain_loops(seed: int, limit: int) -> None:
    problem = random_problem(seed)
    box = float((np.ptp(problem.X, axis=0) ** 2).sum())
    labels, centers, empty = pck_run(
        problem.X, problem.start, problem.must_link, problem.cannot_link, box, limit
    )
    assume(not empty)
    model = quiet_fit(problem.model(PCKMeans, max_iter=limit), problem.X, **problem.links)
    np.testing.assert_array_equal(model.labels_, labels)
    np.testing.assert_allclose(model.cluster_centers_, centers, atol=1e-12)


@given(seed=SEEDS, penalty=st.sampled_from(["distance", "constant"]), weigh=st.booleans())
def test_violations_and_objective(seed: int, penalty: str, weigh: bool) -> None:
    """Pairs with weights, labels and row weights together, all by brute force."""
    problem = random_problem(seed, n=30)
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(30) < 0.3, rng.integers(0, 4, 30) * 7, -1)
    weights: dict[str, Any] = {"must_link_weight": 1.7, "cannot_link_weight": 0.4}
    if weigh:
        weights = {name: rng.uniform(0.1, 2, 12) for name in weights}
    sample_weight = rng.uniform(0.5, 2, 30) if weigh else np.ones(30)
    model = quiet_fit(
        problem.model(PCKMeans, penalty=penalty),
        problem.X,
        y,
        **problem.links,
        **weights,
        sample_weight=sample_weight,
    )
    broken = violated(model.labels_, list_pairs(*problem[3:], *weights.values(), y=y))
    assert violations(model) == sorted(
        (pair.i, pair.j, "must-link" if pair.is_must else "cannot-link")
        for pair in broken
        if not pair.implied
    )
    assume(model.history_[-1]["converged"])
    box = float((np.ptp(problem.X, axis=0) ** 2).sum())
    lengths = ((problem.X - model.cluster_centers_[model.labels_]) ** 2).sum(axis=1)
    want = float(sample_weight @ lengths)
    want += sum(price(problem.X, pair, box, penalty) for pair in broken)
    assert model.objective_ == pytest.approx(want, rel=1e-9)
    for k in np.unique(model.labels_):
        mine = model.labels_ == k
        mean = np.average(problem.X[mine], axis=0, weights=sample_weight[mine])
        np.testing.assert_allclose(model.cluster_centers_[k], mean, atol=1e-12)


@given(seed=SEEDS, penalty=st.sampled_from(["distance", "constant"]))
def test_passes_lower_the_objective(seed: int, penalty: str) -> None:
    """All but the first, in which partners without a label do not count."""
    problem = random_problem(seed, n=80, n_pairs=(40, 40))
    model = quiet_fit(problem.model(PCKMeans, penalty=penalty), problem.X, **problem.links)
    for before, now in pairwise(model.history_):
        if not before["repaired"]:
            assert now["objective"] <= before["objective"] * (1 + 1e-12)


def test_tol_ends_earlier() -> None:
    """As in k-means: squared shift of the centers divided by the mean variance."""
    problem = random_problem(3, n=400)
    exact = PCKMeans(3, init=problem.start).fit(problem.X)
    early = PCKMeans(3, init=problem.start, tol=1e-2).fit(problem.X)
    assert early.n_iter_ < exact.n_iter_
    plain = KMeans(3, init=problem.start, tol=1e-2).fit(problem.X)
    assert early.n_iter_ == plain.n_iter_
    np.testing.assert_array_equal(early.cluster_centers_, plain.cluster_centers_)
    assert early.history_[-1]["converged"]
