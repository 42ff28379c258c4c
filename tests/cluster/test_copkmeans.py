"""COPKMeans: constraints hold, or the fit is refused."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.problems import SEEDS, quiet_fit, violations

from daskclust import COPKMeans, KMeans, pairs_from_labels
from daskclust.exceptions import ConstraintError, ConstraintWarning

NONE = np.empty((0, 2), dtype=np.int64)


def true_pairs(rng: np.random.Generator, y: Any, n_must: int, n_cannot: int) -> dict[str, Any]:
    must, cannot = pairs_from_labels(y)
    return {
        "must_link": must[rng.permutation(len(must))[:n_must]],
        "cannot_link": cannot[rng.permutation(len(cannot))[:n_cannot]],
    }


def hold(labels: Any, must_link: Any = NONE, cannot_link: Any = NONE) -> bool:
    must, cannot = labels[np.asarray(must_link)], labels[np.asarray(cannot_link)]
    return bool((must[:, 0] == must[:, 1]).all() and (cannot[:, 0] != cannot[:, 1]).all())


# --- what it finds -------------------------------------------------------------------------


def test_by_hand() -> None:
    X = np.array([[0.0], [1.0], [5.0], [6.0], [7.0]])
    start = [[0.0], [7.0]]
    assert COPKMeans(2, init=start).fit(X).labels_.tolist() == [0, 0, 1, 1, 1]
    # A group of two: 0 + 49 in either cluster is a tie, and the lower one wins.
    model = COPKMeans(2, init=start).fit(X, must_link=[[0, 4]])
    assert model.labels_.tolist() == [0, 0, 1, 1, 0]
    # Parted: 3 -> 0 costs 36 more than 1, 4 -> 0 would cost 49 more than 0.
    model = COPKMeans(2, init=start).fit(X, cannot_link=[[3, 4]])
    assert model.labels_.tolist() == [0, 0, 1, 0, 1]
    assert model.cluster_centers_.ravel().tolist() == [7 / 3, 6]
    assert model.objective_ == pytest.approx(49 / 9 + 16 / 9 + 121 / 9 + 2)
    assert not violations(model)
    assert model.history_[-1]["exact"]


@given(seed=SEEDS)
def test_first_pass_is_the_cheapest_of_all(seed: int) -> None:
    """All rows constrained, centers given: against trying every labeling."""
    rng = np.random.default_rng(seed)
    k = int(rng.integers(2, 4))
    y = rng.integers(k, size=8)
    X, start = rng.normal(size=(8, 2)), rng.normal(size=(k, 2))
    links = true_pairs(rng, y, 2, 6)
    model = COPKMeans(k, init=start, max_iter=1)
    quiet_fit(model, X, **links)
    assert hold(model.labels_, **links)
    distances = ((X[:, None] - start) ** 2).sum(axis=2)
    costs = [
        distances[np.arange(8), labels].sum()
        for labels in product(range(k), repeat=8)
        if hold(np.array(labels), **links)
    ]
    assert distances[np.arange(8), model.labels_].sum() == pytest.approx(min(costs))
    assert model.objective_ == pytest.approx(min(costs))


@given(seed=SEEDS, n_must=st.integers(0, 60), n_cannot=st.integers(0, 120))
def test_constraints_hold_and_the_objective_falls(seed: int, n_must: int, n_cannot: int) -> None:
    """Also where one component of cannot-links holds most rows."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=60)
    X = rng.normal(size=(60, 3)) + y[:, None]
    links = true_pairs(rng, y, n_must, n_cannot)
    model = quiet_fit(COPKMeans(3, random_state=seed % 1000), X, **links)
    assert hold(model.labels_, **links)
    assert not violations(model)
    for before, now in pairwise(model.history_):
        if not before["repaired"]:
            assert now["objective"] <= before["objective"] * (1 + 1e-12)
    for k in np.unique(model.labels_):
        if model.history_[-1]["converged"]:
            mean = X[model.labels_ == k].mean(axis=0)
            np.testing.assert_allclose(model.cluster_centers_[k], mean, atol=1e-12)


def test_without_constraints_it_is_k_means() -> None:
    X = np.random.default_rng(0).normal(size=(100, 3))
    model, plain = COPKMeans(4, init=X[:4]).fit(X), KMeans(4, init=X[:4], tol=0).fit(X)
    np.testing.assert_array_equal(model.labels_, plain.labels_)
    assert model.objective_ == pytest.approx(plain.inertia_)
    assert model.n_iter_ == plain.n_iter_


def test_labels_are_kept_apart_and_together() -> None:
    """All labels: the only clustering there is; labels of some: the Hungarian method."""
    rng = np.random.default_rng(0)
    y = np.arange(90) % 9
    X = rng.normal(size=(90, 2))
    with pytest.warns(ConstraintWarning, match="raise the within-cluster sum of squares"):
        model = COPKMeans(9, random_state=0).fit(X, y)
    assert len(set(zip(model.labels_.tolist(), y.tolist(), strict=True))) == 9
    some = np.where(np.arange(90) < 40, y, -1)
    model = quiet_fit(COPKMeans(9, random_state=0), da.from_array(X, chunks=(13, 2)), some)
    labels = model.labels_.compute()[:40]
    assert len(set(zip(labels.tolist(), y[:40].tolist(), strict=True))) == 9
    assert all(record["exact"] for record in model.history_)


def test_where_going_one_by_one_gets_stuck() -> None:
    """An even cycle has two labelings; rows in order, each nearest, meet a dead end."""
    X = np.array([[0.0], [1.0], [0.1], [0.9], [0.2], [0.8]])
    cycle = [[0, 4], [4, 2], [2, 5], [5, 1], [1, 3], [3, 0]]
    model = quiet_fit(COPKMeans(2, init=[[0.0], [1.0]]), X, cannot_link=cycle)
    assert hold(model.labels_, cannot_link=cycle)
    # a crown: greedy needs many colors, two suffice
    n = 12
    crown = [[2 * i, 2 * j + 1] for i in range(n) for j in range(n) if i != j]
    X = np.repeat(np.arange(n, dtype=float), 2)[:, None]
    model = quiet_fit(COPKMeans(2, random_state=0), X, cannot_link=crown)
    assert hold(model.labels_, cannot_link=crown)


def test_a_chain_of_many_rows_is_one_group() -> None:
    n = 20_000
    X = np.random.default_rng(0).normal(size=(n, 2))
    chain = np.stack([np.arange(n - 3), np.arange(1, n - 2)], axis=1)
    model = quiet_fit(COPKMeans(2, random_state=0), X, must_link=chain, cannot_link=[[5, n - 1]])
    assert len(np.unique(model.labels_[: n - 2])) == 1
    assert model.labels_[n - 1] != model.labels_[0]


# --- what it refuses -----------------------------------------------------------------------

X5 = np.random.default_rng(1).normal(size=(12, 2))


@pytest.mark.parametrize(
    ("k", "arguments", "message"),
    [
        (
            3,
            {"must_link": [[0, 5], [5, 9]], "cannot_link": [[0, 9]]},
            r"contradict each other: 0-5-9 must-linked, 0-9 cannot-linked\. No clustering",
        ),
        (
            2,
            {"cannot_link": [[0, 1], [1, 2], [2, 0], [3, 4]]},
            r"Rows 0, 1, 2 are all cannot-linked to each other and need 3 clusters; n_clusters=2",
        ),
        (
            2,
            {"cannot_link": [[0, 1], [1, 2], [2, 3], [3, 4], [4, 0]]},
            r"The cannot-links among rows 0, 1, 2, 3, 4 need more than 2 clusters",
        ),
        (
            2,
            {"must_link": [[2, 7]], "cannot_link": [[0, 1], [1, 2], [7, 0]]},
            r"Rows 0, 1, 2 are all.*Must-links connect further rows to these rows.*PCKMeans",
        ),
        (
            2,
            {"y": ([3, 5, 8], [0, 1, 2])},
            r"n_clusters must be at least 3, the number of classes.*got 2",
        ),
        (
            2,
            {"y": ([3, 5], [0, 1]), "cannot_link": [[3, 8], [8, 5]]},
            r"Rows 3, 5, 8 are all cannot-linked",
        ),
    ],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_impossible_is_refused(
    k: int, arguments: dict[str, Any], message: str, weighted: bool
) -> None:
    with pytest.raises(ConstraintError, match=message):
        COPKMeans(k, random_state=0).fit(
            X5, **arguments, sample_weight=np.ones(12) if weighted else None
        )


def test_the_impossible_is_refused_before_anything_is_read() -> None:
    def never(block: Any) -> Any:
        raise AssertionError("read")

    lazy = da.zeros((12, 2), chunks=4).map_blocks(never, dtype=float, meta=np.empty((0, 0)))
    with pytest.raises(ConstraintError, match="need 3 clusters"):
        COPKMeans(2).fit(lazy, cannot_link=[[0, 1], [1, 2], [2, 0]])


def test_rows_of_weight_zero_make_nothing_impossible() -> None:
    weight = np.ones(12)
    weight[2] = 0
    links = {"must_link": [[4, 5], [5, 2]], "cannot_link": [[0, 1], [1, 2], [2, 0], [4, 2]]}
    with pytest.warns(ConstraintWarning, match="sample_weight 0"):
        model = COPKMeans(2, random_state=0).fit(X5, **links, sample_weight=weight)
    assert hold(model.labels_, [[4, 5]], [[0, 1]])
    with pytest.raises(ConstraintError):
        COPKMeans(2).fit(X5, **links, sample_weight=np.ones(12))


def test_a_search_that_gives_up_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daskclust.cluster.constrained.assignment._FEASIBLE", 2)
    n = 6
    crown = [[2 * i, 2 * j + 1] for i in range(n) for j in range(n) if i != j]
    shuffled = np.random.default_rng(3).permutation(2 * n)[np.array(crown)]
    X = np.arange(2.0 * n)[:, None]
    odd = [[0, 1], [1, 2], [2, 3], [3, 4], [4, 0]]
    with pytest.raises(ConstraintError, match="gave up after 2 steps"):
        COPKMeans(2).fit(X, cannot_link=[*odd, *shuffled.tolist()])
