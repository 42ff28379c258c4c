"""PCSKMeans: passes, checkpoints, refusals, containers and scikit-learn's habits."""

from __future__ import annotations

import logging
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from oracles.interruption import Interruption, interrupt_at
from oracles.problems import assert_same_model, quiet_fit, random_problem
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import daskclust
from daskclust import PCSKMeans
from daskclust.exceptions import ConstraintError, PerformanceWarning
from daskclust.testing import CountingScheduler

PROBLEM = random_problem(21, n=60)
X, LINKS = PROBLEM.X, PROBLEM.links
Y = np.where(np.arange(60) % 6 == 0, np.arange(60) // 6 % 2, -1)


def blocks(chunks: Any = ((7, 20, 0, 33), 5)) -> da.Array:
    return da.from_array(X, chunks=chunks)


# --- passes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("init", "n_start"), [("array", 0), ("random", 0), ("k-means++", 3), ("k-means||", 1)]
)
@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("lazy", [True])
def test_passes(
    scheduler: CountingScheduler, init: str, n_start: int, constrained: bool, lazy: bool
) -> None:
    """One look, one fetch where there are constraints, the start, one an inner pass."""
    start = PROBLEM.start if init == "array" else init
    model = PROBLEM.model(init=start, n_init=1, random_state=0)
    data = blocks() + 0 if lazy else blocks()
    quiet_fit(model, data, **(LINKS if constrained else {}))
    repairs = scheduler.names.count("daskclust-farthest")
    assert repairs == sum(record["repaired"] for record in model.history_)
    begun = 1 + constrained + n_start
    for record in model.history_[: 1 if repairs else None]:
        assert record["passes"] == begun + record["iteration"] + (repairs > 0)
    assert scheduler.calls == begun + len(model.history_) + repairs
    assert scheduler.names.count("daskclust-survey") == 1
    assert scheduler.names.count("daskclust-take") == constrained + init.startswith("k-means")
    assert scheduler.names.count("daskclust-assign") == len(model.history_)
    before = scheduler.calls
    labels = model.labels_
    assert scheduler.calls == before
    labels.compute()
    assert scheduler.calls == before + 1


def test_neighborhoods_cost_no_pass(scheduler: CountingScheduler) -> None:
    paper = {"init": "ss-k-means||", "penalty": "distance"}
    model = quiet_fit(PCSKMeans(2, **paper), blocks(), Y)
    assert scheduler.calls == 2 + len(model.history_)
    more = quiet_fit(PCSKMeans(3, random_state=0, **paper), blocks(), Y)
    assert more.history_[0]["passes"] == 2 + 1 + 1


def test_dask_labels_cost_one_pass_over_them(scheduler: CountingScheduler) -> None:
    model = PCSKMeans(2, init="ss-k-means||", penalty="distance")
    quiet_fit(model, blocks(), da.from_array(Y, chunks=25))
    assert scheduler.calls == 1 + 2 + len(model.history_)


def test_only_chunks_with_constrained_rows_are_fetched() -> None:
    read: list[int] = []

    def load(block_info: Any = None) -> np.ndarray:
        start, stop = block_info[None]["array-location"][0]
        read.append(start)
        return X[start:stop]

    lazy = da.map_blocks(load, chunks=((20, 20, 20), 5), dtype=float, meta=np.empty((0, 0)))
    with dask.config.set({"scheduler": "synchronous", "daskclust.persist": False}):
        quiet_fit(PROBLEM.model(max_iter=1, max_outer_iter=1), lazy, must_link=[[3, 5], [41, 42]])
    # survey, fetch, one pass
    assert sorted(read) == [0, 0, 0, 20, 20, 40, 40, 40]


# --- checkpoints ---------------------------------------------------------------------------


CHECKPOINTED: dict[str, Any] = {
    "penalized": {"links": LINKS, "parameters": {"penalized_scores": True, "penalty": "constant"}},
    "repaired": {"links": LINKS, "parameters": {"init": PROBLEM.start[[0, 0, 1]]}},
    "limits": {"links": LINKS, "parameters": {"max_iter": 2, "max_outer_iter": 2}},
}


@pytest.mark.parametrize("what", CHECKPOINTED)
def test_interrupted_and_resumed(tmp_path: Path, what: str) -> None:
    """After the first, a middle and the last pass: bit for bit the model of a fit in one go."""
    case = CHECKPOINTED[what]
    parameters = {"init": "auto", "random_state": 1, **case.get("parameters", {})}
    arguments = {"y": case.get("y"), **case.get("links", {})}
    with dask.config.set(scheduler="synchronous"):
        want = quiet_fit(PROBLEM.model(**parameters), blocks(), **arguments)
        n = len(want.history_)
        for at in sorted({1, n // 2 + 1, n}):
            path = tmp_path / f"{at}.npz"
            model = PROBLEM.model(checkpoint=path, **parameters)
            with pytest.raises(Interruption), daskclust.on_iteration(interrupt_at(at)):
                quiet_fit(model, blocks(), **arguments)
            resumed = quiet_fit(clone(model), blocks(), **arguments)
            assert_same_model(resumed, want, 0)
            assert resumed.contradicting_pairs_.tolist() == want.contradicting_pairs_.tolist()
            for got, record in zip(resumed.history_, want.history_, strict=True):
                assert {**got, "seconds": 0} == {**record, "seconds": 0}


def test_a_finished_fit_is_not_repeated(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = PROBLEM.model(checkpoint=tmp_path)
    quiet_fit(model, X, **LINKS)
    with caplog.at_level(logging.INFO, "daskclust"):
        again = quiet_fit(clone(model), X, **LINKS)
    assert not caplog.records
    assert_same_model(again, model, 0)


def test_warnings_survive_a_resumed_fit(tmp_path: Path) -> None:
    model = PROBLEM.model(checkpoint=tmp_path, max_outer_iter=1)
    for _ in range(2):
        with pytest.warns(ConvergenceWarning, match="had not converged after 1 rounds"):
            clone(model).fit(X)


def with_value(value: float) -> np.ndarray:
    bad = X.copy()
    bad[30, 2] = bad[41, 0] = value
    return bad


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (with_value(np.nan), r"Input X contains NaN: the first at row 30, column 2"),
        (with_value(np.inf), r"Input X contains infinity: the first at row 30, column 2"),
        (X[:2], "n_clusters=3 must be at most n_samples=2"),
        (X[0], "2D array|2 dimensions"),
        (X[:0], r"0 sample\(s\)"),
        (X[:, :0], r"0 feature\(s\)"),
        (X.astype(complex), r"[Cc]omplex"),
        (X.astype(str), r"dtype <U|numeric|could not convert|must be real"),
    ],
)
def test_bad_rows(data: np.ndarray, message: str) -> None:
    model = PCSKMeans(3)
    if data.dtype.kind != "U":
        with pytest.raises(ValueError, match=message):
            model.fit(data, must_link=[[0, 1]])
    if data.dtype.kind != "c" and 0 not in data.shape:
        with (
            pytest.raises(ValueError, match=message),
            dask.config.set(scheduler="synchronous"),
        ):
            model.fit(da.from_array(data, chunks=11), must_link=[[0, 1]])


# --- refusals ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"sparsity": 3}, ValueError, r"sqrt\(n_features\) = 2\.23607, got 3\..*None"),
        ({"penalized_scores": "scaled"}, TypeError, "penalized_scores must be True or False, got"),
    ],
)
def test_bad_parameters(
    scheduler: CountingScheduler, parameters: dict[str, Any], error: type[Exception], message: str
) -> None:
    """Refused before anything is read."""
    with pytest.raises(error, match=message):
        PCSKMeans(**{"n_clusters": 3, **parameters}).fit(blocks(), must_link=[[0, 1]])
    assert scheduler.calls == 0


@pytest.mark.parametrize(
    "arguments", [{"must_link": [[0, 60]]}, {"y": Y[1:]}, {"cannot_link": [[1, 1]]}]
)
def test_bad_constraints_are_refused_before_anything_is_read(
    scheduler: CountingScheduler, arguments: dict[str, Any]
) -> None:
    with pytest.raises(ConstraintError):
        PCSKMeans(3).fit(blocks(), **arguments)
    with pytest.raises(ValueError, match="n_clusters=61"):
        PCSKMeans(61).fit(blocks())
    assert scheduler.calls == 0


def test_bad_sample_weights() -> None:
    for weight, message in (
        (np.full(59, 1.0), r"sample_weight"),
        (np.where(np.arange(60) == 9, np.nan, 1), r"weight of row 9 is NaN"),
        (
            np.where(np.arange(60) == 9, -1, 1),
            r"sample_weight must be finite and 0, or from 1e-140 to 1e\+140, but",
        ),
        (np.zeros(60), r"At least one sample weight must be positive|at least one non-zero"),
    ):
        with pytest.raises(ValueError, match=message):
            PCSKMeans(3).fit(X, sample_weight=weight)


def test_limits_warn_at_the_users_line() -> None:
    calls: list[Callable[[PCSKMeans], Any]] = [
        lambda model: model.fit(X),
        lambda model: model.fit_predict(X),
        lambda model: model.fit_transform(X),
        lambda model: make_pipeline(StandardScaler(), model).fit(X),
        lambda model: model.fit(blocks()),
    ]
    for call in calls:
        with pytest.warns(ConvergenceWarning, match="Raise max_outer_iter") as caught:
            call(PROBLEM.model(max_outer_iter=1))
        assert [warning.filename for warning in caught] == [__file__]


# --- containers ----------------------------------------------------------------------------


def test_unknown_lengths() -> None:
    """Rows are counted first, with a warning; constraints are checked after that."""
    with dask.config.set(scheduler="synchronous"):
        ragged = blocks()[da.from_array(np.arange(60) != 5, chunks=60)]
        assert np.isnan(ragged.shape[0])
        kept = np.delete(X, 5, axis=0)
        with pytest.warns(PerformanceWarning, match="unknown length") as caught:
            model = PROBLEM.model().fit(ragged, must_link=[[0, 58]])
        assert [warning.filename for warning in caught] == [__file__]
        assert_same_model(model, PROBLEM.model().fit(kept, must_link=[[0, 58]]), 1e-12)
        for arguments, message in (
            ({"must_link": [[0, 59]]}, r"row numbers in \[0, 59\), got \(0, 59\)"),
            ({"y": Y}, r"y must have one label per row of X \(59 rows\).*got shape \(60,\)"),
        ):
            with (
                pytest.warns(PerformanceWarning, match="unknown length"),
                pytest.raises(ConstraintError, match=message),
            ):
                PROBLEM.model().fit(ragged, **arguments)


def test_feature_chunks_are_joined() -> None:
    with dask.config.set(scheduler="synchronous"):
        with pytest.warns(PerformanceWarning, match="2 chunks along the features") as caught:
            model = PROBLEM.model().fit(blocks((20, 3)))
        assert [warning.filename for warning in caught] == [__file__]
        assert_same_model(model, PROBLEM.model().fit(X), 1e-12)


def test_parameters() -> None:
    model = PCSKMeans(4, sparsity=1.5, penalized_scores=True, penalty="constant", tol=0.1)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert set(model.get_params()) == {
        *("n_clusters", "sparsity", "penalized_scores", "init", "n_init", "penalty"),
        *("max_iter", "max_outer_iter", "tol", "missing", "random_state", "checkpoint"),
    }
    assert copy.set_params(n_clusters=2).n_clusters == 2
    assert repr(PCSKMeans(sparsity=2)) == "PCSKMeans(sparsity=2)"
    defaults = PCSKMeans()
    assert (defaults.n_clusters, defaults.max_iter, defaults.max_outer_iter) == (8, 25, 25)
    assert (defaults.sparsity, defaults.penalty, defaults.init) == (None, "scaled", "auto")
    assert defaults.penalized_scores is False
    with pytest.raises(TypeError):
        PCSKMeans(3, 1.5)


def test_unfitted() -> None:
    for method in ("predict", "transform", "score"):
        with pytest.raises(NotFittedError):
            getattr(PCSKMeans(3), method)(X)


# --- scikit-learn --------------------------------------------------------------------------


def test_predict_repeats_the_labels_of_unconstrained_rows() -> None:
    model = quiet_fit(PROBLEM.model(), X, **LINKS)
    assert model.history_[-1]["repaired"] is False
    free = np.setdiff1d(np.arange(60), np.concatenate(list(LINKS.values())))
    np.testing.assert_array_equal(model.predict(X)[free], model.labels_[free])
    alone = quiet_fit(PROBLEM.model(), X)
    np.testing.assert_array_equal(alone.predict(X), alone.labels_)
    distances = alone.transform(X)
    np.testing.assert_array_equal(distances.argmin(axis=1), alone.labels_)
    w = alone.assignment_weights_
    differences = X[:, None] - alone.cluster_centers_
    np.testing.assert_allclose(distances, np.sqrt((w * differences**2).sum(axis=2)))
    assert alone.score(X) == pytest.approx(-(distances.min(axis=1) ** 2).sum())


def test_labels_of_a_fit_cut_short_are_those_of_its_last_pass() -> None:
    model = quiet_fit(PROBLEM.model(max_iter=1, max_outer_iter=1), X)
    nearest = ((X[:, None] - PROBLEM.start) ** 2).sum(axis=2).argmin(axis=1)
    np.testing.assert_array_equal(model.labels_, nearest)
    with dask.config.set(scheduler="synchronous"):
        lazy = quiet_fit(PROBLEM.model(max_iter=1, max_outer_iter=1), blocks())
        np.testing.assert_array_equal(lazy.labels_.compute(), nearest)


def test_fit_predict_and_fit_transform_take_constraints() -> None:
    want = quiet_fit(PROBLEM.model(), X, **LINKS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_array_equal(PROBLEM.model().fit_predict(X, **LINKS), want.labels_)
        labeled = PROBLEM.model().fit_predict(X, Y)
        np.testing.assert_array_equal(labeled, PROBLEM.model().fit(X, Y).labels_)
        distances = PROBLEM.model().fit_transform(X, None, **LINKS)
        np.testing.assert_array_equal(distances, want.transform(X))


def test_pipeline() -> None:
    pipeline = make_pipeline(StandardScaler(), PCSKMeans(3, random_state=0))
    labels = pipeline.fit_predict(X, pcskmeans__must_link=[[0, 1]])
    assert labels.shape == (60,)
    assert pipeline.get_feature_names_out().tolist() == [f"pcskmeans{k}" for k in range(3)]


@pytest.mark.parametrize("lazy", [False, True])
def test_pickle(lazy: bool) -> None:
    """Lazy labels stay behind: they would drag the data along."""
    model = quiet_fit(PROBLEM.model(), blocks() if lazy else X, **LINKS)
    text = pickle.dumps(model)
    back = pickle.loads(text)
    assert hasattr(back, "labels_") != lazy
    assert hasattr(model, "labels_")
    assert len(text) < 20_000
    np.testing.assert_array_equal(back.predict(X), model.predict(X))
    np.testing.assert_array_equal(back.transform(X), model.transform(X))
    assert back.contradicting_pairs_.tolist() == model.contradicting_pairs_.tolist()
    assert back.history_ == model.history_


def test_fitted_twice() -> None:
    """Nothing is left of the first fit."""
    model = quiet_fit(PROBLEM.model(), X, **LINKS)
    assert_same_model(quiet_fit(model, X), quiet_fit(PROBLEM.model(), X), 0)
    assert len(model.contradicting_pairs_) == 0
    names = ("i", "j", "kind", "weight", "cost", "violated")
    assert model.contradicting_pairs_.dtype.names == names


def test_random_states() -> None:
    for make in (lambda: 3, lambda: np.random.RandomState(3), lambda: np.random.default_rng(3)):
        one, two = (quiet_fit(PCSKMeans(3, random_state=make()), X) for _ in range(2))
        assert_same_model(one, two, 0)
    quiet_fit(PCSKMeans(3), X)
