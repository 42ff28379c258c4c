"""Restarts of the constrained and sparse family: they share passes, and the best is kept."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, NamedTuple

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from oracles.interruption import Interruption, interrupt_at
from oracles.problems import SEEDS, assert_same_model, quiet_fit, random_problem
from sklearn.base import clone

import daskclust
from daskclust import COPKMeans, MPCKMeans, PCKMeans, PCSKMeans, SparseKMeans, pairs_from_labels
from daskclust.testing import CountingScheduler


class Member(NamedTuple):
    """An estimator, and whether its objective is maximized."""

    model: Any
    links: dict[str, Any]
    largest: bool = False


PROBLEM = random_problem(4, n=90, k=4)
X = PROBLEM.X
TRUE = dict(
    zip(
        ("must_link", "cannot_link"),
        pairs_from_labels(np.arange(90) % 4, n_pairs=30, random_state=0),
        strict=True,
    )
)
MEMBERS = {
    "PCKMeans": Member(PCKMeans(4, penalty="distance"), PROBLEM.links),
    "MPCKMeans": Member(MPCKMeans(4, penalty="distance"), PROBLEM.links),
    "PCSKMeans": Member(
        PCSKMeans(4, sparsity=1.5, penalty="distance"), PROBLEM.links, largest=True
    ),
    "PCSKMeans, penalized": Member(
        PCSKMeans(4, penalized_scores=True, penalty="distance"), PROBLEM.links, largest=True
    ),
    "SparseKMeans": Member(SparseKMeans(4, sparsity=1.5), {}, largest=True),
    "COPKMeans": Member(COPKMeans(4), TRUE),
}
each = pytest.mark.parametrize("member", MEMBERS.values(), ids=MEMBERS.keys())
#: One with soft constraints, one with sparse weights, one with hard constraints.
THREE = ("PCKMeans", "PCSKMeans, penalized", "COPKMeans")
three = pytest.mark.parametrize("member", [MEMBERS[name] for name in THREE], ids=THREE)


class Starts:
    """A callable start that deals out given centers, one call after another."""

    def __init__(self, centers: Any) -> None:
        self.centers, self.calls = centers, 0

    def __call__(self, data: Any, n_clusters: int, random_state: Any) -> Any:
        self.calls += 1
        return self.centers[(self.calls - 1) % len(self.centers)]


def some_starts(seed: int, r: int, rows: Any = X) -> Any:
    rng = np.random.default_rng(seed)
    return np.stack([rows[rng.choice(len(rows), 4, replace=False)] + 0.01 for _ in range(r)])


def alone(member: Member, starts: Any, data: Any = X) -> list[Any]:
    """The fits from each start alone."""
    models = [clone(member.model).set_params(init=start) for start in starts]
    return [quiet_fit(model, data, **member.links) for model in models]


def best_of(member: Member, models: list[Any]) -> Any:
    """The first of the best, up to rounding."""
    sign = -1 if member.largest else 1
    costs = np.array([sign * model.objective_ for model in models])
    return models[int(np.flatnonzero(costs <= costs.min() + 1e-9 * abs(costs.min()))[0])]


def together(member: Member, starts: Any, data: Any = X, **parameters: Any) -> Any:
    model = clone(member.model).set_params(
        init=Starts(starts), n_init=len(starts), random_state=0, **parameters
    )
    return quiet_fit(model, data, **member.links)


@each
@given(seed=SEEDS)
def test_the_best_of_the_fits_alone_is_kept(member: Member, seed: int) -> None:
    """To the last bit, its history included, but for the passes that repair other restarts."""
    starts = some_starts(seed, 4)
    want = best_of(member, alone(member, starts))
    model = together(member, starts)
    assert_same_model(model, want, 0)
    for got, record in zip(model.history_, want.history_, strict=True):
        assert {**got, "seconds": 0, "passes": 0} == {**record, "seconds": 0, "passes": 0}
    if member.links:
        assert model.contradicting_pairs_.tolist() == want.contradicting_pairs_.tolist()


@each
def test_each_restart_is_the_fit_from_that_start(member: Member) -> None:
    """Record by record, of those that are not kept, too."""
    starts = some_starts(3, 5)
    seen: list[Any] = []
    with daskclust.on_iteration(seen.append):
        together(member, starts)
    models = alone(member, starts)
    assert len({len(model.history_) for model in models}) > 1
    for r, model in enumerate(models):
        mine = [record["restarts"][r] for record in seen]
        n = len(model.history_)
        assert mine[n:] == [None] * (len(seen) - n)
        shared = {"iteration", "seconds", "passes"}
        assert mine[:n] == [
            {key: value for key, value in record.items() if key not in shared}
            for record in model.history_
        ]


@three
def test_passes_are_those_of_the_slowest_restart(member: Member) -> None:
    """And of repairs, each of which is one restart's own."""
    starts = some_starts(3, 5)
    blocks = da.from_array(X, chunks=((30, 0, 41, 19), -1))
    scheduler = CountingScheduler()
    with dask.config.set({"scheduler": scheduler, "daskclust.persist": False}):
        lengths = [len(model.history_) for model in alone(member, starts, blocks)]
        before, repairs = scheduler.calls, scheduler.names.count("daskclust-farthest")
        model = together(member, starts, blocks)
    # A look at the data, and a fetch of the constrained rows.
    assert scheduler.calls - before == 1 + bool(member.links) + max(lengths) + repairs
    assert scheduler.names.count("daskclust-farthest") == 2 * repairs
    assert len(model.history_) in lengths
    assert model.history_[-1]["passes"] == scheduler.calls - before


@three
def test_an_empty_cluster_is_repaired_in_its_restart_only(member: Member) -> None:
    starts = some_starts(5, 3)
    starts[1, 3] = 1e3  # no row is near
    models = alone(member, starts)
    assert any(record["repaired"] for record in models[1].history_)
    assert_same_model(together(member, starts), best_of(member, models), 0)
    for order in ([1], [1, 0], [2, 1, 0]):
        want = best_of(member, [models[r] for r in order])
        assert_same_model(together(member, starts[order]), want, 0)


@three
def test_a_refounded_restart_leaves_the_others_alone(member: Member) -> None:
    """All rows are constrained, so that a constrained one founds the empty cluster."""
    truth = np.arange(40) % 2
    rows = random_problem(8, n=40).X + 6 * truth[:, None]
    member = member._replace(links={"y": np.where(np.arange(40) < 30, truth, 2)})
    starts = some_starts(1, 3, rows)
    starts[0, 3] = 1e3  # no row is near
    models = alone(member, starts, rows)
    assert any(record["repaired"] for record in models[0].history_)
    assert_same_model(together(member, starts, rows), best_of(member, models), 0)


@three
def test_auto_is_one_restart(member: Member) -> None:
    """If features are not weighted; drawn rows included."""
    for init in ("random", "k-means||", lambda data, k, state: data[state.choice(90, k)]):
        given = clone(member.model).set_params(init=init, random_state=5)
        one = clone(given).set_params(n_init=1)
        model = quiet_fit(clone(given), X, **member.links)
        if hasattr(one, "sparsity") and isinstance(init, str):
            # Sparse weights: four, of which the better ones are iterated to the end.
            assert model.objective_ >= quiet_fit(one, X, **member.links).objective_ * (1 - 1e-9)
            continue
        assert_same_model(model, quiet_fit(one, X, **member.links), 0)
        more = quiet_fit(clone(given).set_params(n_init=6), X, **member.links)
        sign = -1 if member.largest else 1
        assert sign * more.objective_ <= sign * model.objective_ + 1e-9 * abs(model.objective_)


@three
@pytest.mark.parametrize("init", ["maximin", "array"])
def test_equal_starts_are_iterated_once(
    member: Member, init: Any, caplog: pytest.LogCaptureFixture
) -> None:
    given = clone(member.model).set_params(init=X[:4] if init == "array" else init)
    want = quiet_fit(clone(given), X, **member.links)
    with caplog.at_level(logging.INFO, "daskclust"):
        model = quiet_fit(given.set_params(n_init=7), X, **member.links)
    assert_same_model(model, want, 0)
    assert all("restarts" not in record for record in model.history_)


def test_neighborhoods_that_give_all_centers_are_one_start() -> None:
    y = np.where(np.arange(90) < 12, np.arange(90) % 4, -1)
    seen: list[Any] = []
    with daskclust.on_iteration(seen.append):
        model = quiet_fit(PCKMeans(4, init="ss-k-means||", n_init=5, random_state=0), X, y)
    assert not any("restarts" in record for record in seen)
    assert_same_model(model, quiet_fit(PCKMeans(4, init="ss-k-means||"), X, y), 0)
    # One center is missing: it is drawn anew for each restart.
    with daskclust.on_iteration(seen.append):
        quiet_fit(PCKMeans(5, n_init=5, init="ss-k-means++", random_state=0), X, y)
    assert len(seen[-1]["restarts"]) > 1


@three
def test_interrupted_and_resumed(tmp_path: Path, member: Member) -> None:
    """After the first and the last iteration, at which faster restarts have ended."""
    given = clone(member.model).set_params(init="random", n_init=3, random_state=2)
    want = quiet_fit(clone(given), X, **member.links)
    seen: list[Any] = []
    with daskclust.on_iteration(seen.append):
        quiet_fit(clone(given), X, **member.links)
    for at in (1, len(seen)):
        model = clone(given).set_params(checkpoint=tmp_path / f"{at}.npz")
        with pytest.raises(Interruption), daskclust.on_iteration(interrupt_at(at)):
            quiet_fit(model, X, **member.links)
        resumed = quiet_fit(clone(model), X, **member.links)
        assert_same_model(resumed, want, 0)
        assert len(resumed.history_) == len(want.history_)


@three
def test_chunks_do_not_matter(member: Member) -> None:
    given = clone(member.model).set_params(init="random", n_init=4, random_state=1)
    want = quiet_fit(clone(given), X, **member.links)
    with dask.config.set(scheduler="synchronous"):
        blocks = da.from_array(X, chunks=((7, 43, 0, 40), -1))
        assert_same_model(quiet_fit(clone(given), blocks, **member.links), want, 1e-12)
