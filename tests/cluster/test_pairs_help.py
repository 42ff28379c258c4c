"""Scaled penalties, initial centers of several kinds, and warnings of pairs that contradict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from numpy.testing import assert_array_equal
from oracles.constrained import list_pairs, violated
from oracles.interruption import Interruption
from oracles.problems import SEEDS, assert_same_model, quiet_fit, random_problem, violations
from sklearn.datasets import load_wine, make_blobs
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler

import daskclust
from daskclust import (
    COPKMeans,
    KMeans,
    MPCKMeans,
    PCKMeans,
    PCSKMeans,
    SemiSupervisedKMeans,
    SparseKMeans,
    pairs_from_labels,
)
from daskclust.exceptions import ConstraintWarning

SOFT = (PCKMeans, PCSKMeans, MPCKMeans)
each = pytest.mark.parametrize("kind", SOFT)


def random_pairs(y: Any, count: int, wrong: float, seed: int) -> dict[str, Any]:
    """Pairs of rows drawn at random; a fraction of them is of the wrong kind."""
    rng = np.random.default_rng(seed)
    pairs = rng.integers(len(y), size=(2 * count, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]][:count]
    same = y[pairs[:, 0]] == y[pairs[:, 1]]
    same[: round(wrong * count)] ^= True
    return {"must_link": pairs[same], "cannot_link": pairs[~same]}


# --- the penalty ---------------------------------------------------------------------------


def test_a_violation_costs_one_mean_squared_distance() -> None:
    """Without pairs: clusters 0, 1 and 10, 11 of inertia 1, so 0.25 a row."""
    X = np.array([[0.0], [1.0], [10.0], [11.0]])
    for penalty, weight, price in (("scaled", 1.0, 0.25), (4.0, 1.0, 1.0), (1, 3.0, 0.75)):
        model = PCKMeans(2, init=[[0.0], [11.0]], penalty=penalty)
        model.fit(X, cannot_link=[[0, 1]], cannot_link_weight=weight)
        assert model.labels_.tolist() == [0, 0, 1, 1]
        assert model.objective_ == pytest.approx(1 + price)
    # Dear enough to be obeyed.
    quiet_fit(model.set_params(penalty=1e4), X, cannot_link=[[0, 1]])
    assert not violations(model)


@each
@given(seed=SEEDS)
def test_scaled_objective_by_brute_force(kind: Any, seed: int) -> None:
    """The unit is that of the fit without constraints, and a label counts as four pairs."""
    problem = random_problem(seed, n=60)
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(60) < 0.5, rng.integers(0, 2, 60), -1)
    weights = {"must_link_weight": 0.7, "cannot_link_weight": 1.3}
    limits = {"max_outer_iter": 1} if kind is PCSKMeans else {}
    given_ = {"init": problem.start, "max_iter": 10, **limits}
    free = quiet_fit(kind(3, **given_), problem.X)
    model = quiet_fit(kind(3, penalty=0.5, **given_), problem.X, y, **problem.links, **weights)
    within = np.zeros(5)
    for k in range(3):
        mine = problem.X[free.labels_ == k]
        within += ((mine - mine.mean(axis=0)) ** 2).sum(axis=0) if len(mine) else 0.0
    share = min(1.0, 4 * 2 / (y >= 0).sum())
    mass = sum(
        pair.weight * (share if pair.implied else 1.0)
        for pair in violated(model.labels_, list_pairs(*problem[3:], *weights.values(), y=y))
    )
    if not (free.history_[-1]["center_shift"] == 0 and model.history_[-1]["center_shift"] == 0):
        return
    price = 0.5 * mass * within / 60
    if kind is PCKMeans:
        assert model.objective_ == pytest.approx(model.inertia_ + price.sum(), rel=1e-9)
    elif kind is PCSKMeans:
        w = model.feature_weights_
        gained = w @ (model.feature_scores_ - price)
        assert model.objective_ == pytest.approx(gained, rel=1e-9)


def test_labels_equal_their_pairs_of_less_weight() -> None:
    problem = random_problem(11, n=60)
    y = np.where(np.arange(60) % 2, np.arange(60) % 3, -1)
    must, cannot = pairs_from_labels(y)
    share = 4 * 3 / 30
    start = problem.start + 0.01
    implied = quiet_fit(PCKMeans(3, init=start), problem.X, y)
    listed = quiet_fit(
        PCKMeans(3, init=start),
        problem.X,
        must_link=must,
        cannot_link=cannot,
        must_link_weight=share,
        cannot_link_weight=share,
    )
    assert_same_model(implied, listed)


@pytest.mark.parametrize("penalty", [-1.0, np.nan, np.inf, "square"])
def test_bad_penalties(penalty: Any) -> None:
    with pytest.raises(ValueError, match="penalty"):
        PCKMeans(2, penalty=penalty).fit(np.eye(4))


# --- initial centers -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*SOFT, COPKMeans])
def test_few_pairs_do_not_mislead(kind: Any) -> None:
    """Forty pairs of 5000 rows: with centers at must-linked pairs the index was 0.4."""
    X, y = make_blobs(5000, centers=5, random_state=7)
    links = random_pairs(y, 40, 0.0, 7)
    free = KMeans(5, random_state=7).fit(X)
    model = quiet_fit(kind(5, random_state=7), X, **links)
    indices = [adjusted_rand_score(y, m.labels_) for m in (free, model)]
    assert indices[1] >= indices[0] - 0.005


@each
def test_wrong_pairs_do_not_drag_rows(kind: Any) -> None:
    X, y = load_wine(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    links = random_pairs(y, 400, 0.1, 0)
    found = quiet_fit(kind(3, random_state=0), X, **links)
    assert adjusted_rand_score(y, found.labels_) > 0.85


def test_the_better_kind_is_kept() -> None:
    """Classes that k-means does not find, and labels that are enough to find them."""
    rng = np.random.default_rng(0)
    y = np.arange(300) % 2
    X = rng.normal(size=(300, 2)) * [10.0, 1.0]
    X[:, 1] += 6 * y
    labels = np.where(np.arange(300) < 60, y, -1)
    objectives = {
        init: quiet_fit(PCKMeans(2, init=init, penalty=50.0, random_state=0), X, labels).objective_
        for init in ("k-means||", "neighborhoods")
    }
    model = quiet_fit(PCKMeans(2, penalty=50.0, random_state=0), X, labels)
    assert model.objective_ <= min(objectives.values()) * (1 + 1e-9)


def test_restarts_of_both_kinds_differ() -> None:
    problem = random_problem(3, n=90, k=4)
    seen: list[Any] = []
    with daskclust.on_iteration(seen.append):
        model = PCKMeans(4, n_init=6, random_state=0)
        quiet_fit(model, problem.X, **problem.links)
    fits = [record for record in seen if "restarts" in record and len(record["restarts"]) > 3]
    assert len(fits[0]["restarts"]) > 3
    ends = {}
    for record in fits:
        ends.update({r: m["objective"] for r, m in enumerate(record["restarts"]) if m})
    assert model.objective_ == pytest.approx(min(ends.values()))


@pytest.mark.parametrize("kind", [*SOFT, COPKMeans])
def test_chunks_do_not_matter_for_defaults(kind: Any) -> None:
    problem = random_problem(5, n=200)
    truth = np.arange(200) % 3
    links = random_pairs(truth, 30, 0.0, 1)
    want = quiet_fit(kind(3, random_state=0), problem.X, **links)
    with dask.config.set(scheduler="synchronous"):
        blocks = da.from_array(problem.X, chunks=((90, 0, 7, 103), -1))
        cut = quiet_fit(kind(3, random_state=0), blocks, **links)
    assert_same_model(cut, want, 1e-9)


@pytest.mark.parametrize("kind", [*SOFT, COPKMeans])
def test_a_default_fit_resumes(tmp_path: Path, kind: Any) -> None:
    """After each pass, also one of the fit without constraints, with the same unit."""
    problem = random_problem(6, n=80)
    links = random_pairs(np.arange(80) % 3, 20, 0.0, 1)
    want = quiet_fit(kind(3, random_state=0), problem.X, **links)
    seen: list[Any] = []
    with daskclust.on_iteration(seen.append):
        quiet_fit(kind(3, random_state=0), problem.X, **links)
    for at in range(0, len(seen), 3):
        model = kind(3, random_state=0, checkpoint=tmp_path / f"{at}.npz")
        records = iter(range(len(seen)))

        def interrupt(record: Any, at: int = at, records: Any = records) -> None:
            if next(records) == at:
                raise Interruption

        with pytest.raises(Interruption), daskclust.on_iteration(interrupt):
            quiet_fit(model, problem.X, **links)
        assert_same_model(quiet_fit(model, problem.X, **links), want, 0)


def test_one_label_per_class_does_not_mislead() -> None:
    """On average: a label may be in another cluster, and k-means has two similar optima here."""
    X, y = load_wine(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    scores, free = [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        rows = np.array([rng.choice(np.flatnonzero(y == c)) for c in range(3)])
        model = SemiSupervisedKMeans(3, random_state=seed).fit(X, (rows, np.arange(3)))
        scores.append(adjusted_rand_score(y, model.labels_))
        free.append(adjusted_rand_score(y, KMeans(3, random_state=seed).fit(X).labels_))
        assert_array_equal(model.labels_[rows], np.arange(3))
    assert np.mean(scores) > np.mean(free) - 0.01


# --- warnings, and pairs by name -----------------------------------------------------------


def test_contradicting_pairs_are_named() -> None:
    X, y = make_blobs(300, centers=[[0, 0], [20, 0]], random_state=0)
    links = random_pairs(y, 40, 0.0, 0)
    free = np.setdiff1d(np.arange(300), np.concatenate(list(links.values())))
    wrong = np.stack([free[y[free] == c][:20] for c in (0, 1)], axis=1)
    with pytest.warns(ConstraintWarning, match=r"20 of 60 pairs are violated \(33%\)") as caught:
        model = PCKMeans(2, random_state=0).fit(
            X,
            must_link=np.concatenate([links["must_link"], wrong]),
            cannot_link=links["cannot_link"],
        )
    (message,) = (str(w.message) for w in caught if "violated" in str(w.message))
    assert message.count("must-link") == 10
    assert sum(f"{i}-{j} (must-link)" in message for i, j in wrong) == 10
    assert violations(model) == sorted((i, j, "must-link") for i, j in wrong.tolist())


def test_a_wrong_pair_is_the_first_to_check() -> None:
    """Soft and hard constraints; rows of a DataFrame have names."""
    X, y = make_blobs(300, centers=[[0, 0], [20, 0]], random_state=0)
    frame = pd.DataFrame(X, index=[f"row {i}" for i in range(300)])
    links = random_pairs(y, 40, 0.0, 0)
    free = np.setdiff1d(np.arange(300), np.concatenate(list(links.values())))
    wrong = [free[y[free] == c][0] for c in (0, 1)]
    links["must_link"] = np.vstack([links["must_link"], wrong])
    for kind in (*SOFT, COPKMeans):
        pairs = kind(2, random_state=0).fit(frame, **links).contradicting_pairs_
        assert [frame.index[pairs.i][0], frame.index[pairs.j][0]] == [f"row {i}" for i in wrong]
        assert (np.diff(pairs.cost) <= 0).all()
        assert pairs.violated[0] == (kind is not COPKMeans)
        assert pairs.weight[0] == 1


def test_costly_constraints_are_announced() -> None:
    X, y = make_blobs(60, centers=[[0, 0], [20, 0]], random_state=0)
    wrong = np.array([[np.flatnonzero(y == 0)[i], np.flatnonzero(y == 1)[i]] for i in range(9)])
    with pytest.warns(ConstraintWarning, match="raise the within-cluster sum of squares to"):
        COPKMeans(2, random_state=0).fit(X, must_link=wrong)


def test_without_pairs_the_counterparts_are_the_same() -> None:
    problem = random_problem(9, n=120)
    for kind, free in ((PCSKMeans, SparseKMeans), (PCKMeans, COPKMeans)):
        models = [each(3, random_state=1).fit(problem.X) for each in (kind, free)]
        assert_same_model(*models, 0)


def test_violated_pairs_are_those_of_the_list() -> None:
    x = np.array([[0.0], [0.1], [9.0], [9.1]])
    model = PCKMeans(2, penalty=0.01, random_state=0).fit(x, must_link=[[0, 2], [0, 1]])
    violated = model.constraint_violations_
    assert violated.dtype.names == ("i", "j", "kind")
    assert violated.tolist() == [(0, 2, "must-link")]
    assert violated.i.tolist() == [0]
