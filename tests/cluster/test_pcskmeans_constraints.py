"""PCSKMeans: partial labels, weights of pairs, the start from neighborhoods, bad constraints."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.problems import (
    SEEDS,
    Problem,
    assert_same_model,
    quiet_fit,
    random_problem,
    violations,
)

from daskclust import PCSKMeans, pairs_from_labels
from daskclust.cluster.constrained.iteration import RestartState
from daskclust.exceptions import ConstraintError, ConstraintWarning

X = random_problem(0).X


def some_labels(seed: int, n: int = 40) -> np.ndarray:
    """Labels of about a third of the rows, of classes with gaps between their numbers."""
    rng = np.random.default_rng(seed)
    return np.where(rng.random(n) < 0.35, rng.choice([0, 3, 4, 100], n), -1)


# --- partial labels ------------------------------------------------------------------------


@given(
    seed=SEEDS,
    penalty=st.sampled_from(["distance", "constant"]),
    penalized=st.booleans(),
    weights=st.tuples(st.floats(0.1, 3), st.floats(0.1, 3)),
)
def test_labels_equal_all_their_pairs(
    seed: int, penalty: str, penalized: bool, weights: tuple[float, float]
) -> None:
    problem, y = random_problem(seed), some_labels(seed)
    # Not on the rows: leaving a partner that is a center may cost as much as staying, and the
    # closed form rounds such a tie in its own way.
    problem = problem._replace(start=problem.start + 0.01)
    must, cannot = pairs_from_labels(y)
    weight = {"must_link_weight": weights[0], "cannot_link_weight": weights[1]}
    model = problem.model(penalty=penalty, penalized_scores=penalized)
    implied = quiet_fit(model, problem.X, y, **weight)
    assert not violations(implied)
    model = problem.model(penalty=penalty, penalized_scores=penalized)
    listed = quiet_fit(model, problem.X, must_link=must, cannot_link=cannot, **weight)
    assert_same_model(implied, listed)


Y = np.where(np.arange(40) % 4 == 0, np.arange(40) // 4 % 3, -1)


def test_names_of_labels_do_not_matter() -> None:
    want = quiet_fit(PCSKMeans(3, random_state=0), X, Y)
    renamed = np.where(Y < 0, -1, np.array([70, 2**40, 3])[Y])
    assert_same_model(quiet_fit(PCSKMeans(3, random_state=0), X, renamed), want, 1e-12)


def test_labels_from_a_dask_table() -> None:
    """Of known length or not: their rows are counted where they are looked at."""
    table = dd.from_pandas(pd.DataFrame(X).assign(y=Y), npartitions=3)
    want = quiet_fit(PCSKMeans(3, random_state=0), X, Y)
    for y in (table["y"], table[["y"]], table["y"].to_dask_array(lengths=True)):
        assert_same_model(quiet_fit(PCSKMeans(3, random_state=0), X, y), want, 1e-12)
    with pytest.raises(
        ConstraintError, match=r"y must have one label per row of X \(39 rows\).*got shape \(40,\)"
    ):
        PCSKMeans(3).fit(X[1:], table["y"])


@pytest.mark.parametrize("y", [np.full(40, -1), ([], []), (np.arange(3), np.full(3, -1))])
def test_no_label_is_no_constraint(y: Any) -> None:
    free = PCSKMeans(3, random_state=0).fit(X)
    model = PCSKMeans(3, random_state=0).fit(X, y)
    assert_same_model(model, free, 0)
    assert model.history_[-1]["passes"] == free.history_[-1]["passes"]


def test_all_labels() -> None:
    """Well separated classes are found."""
    centers = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
    y = np.arange(60) % 3
    rows = centers[y] + np.random.default_rng(0).normal(size=(60, 2))
    model = PCSKMeans(3, random_state=0).fit(rows, y)
    assert len(set(zip(model.labels_.tolist(), y.tolist(), strict=True))) == 3
    for k in range(3):
        mine = model.labels_ == k
        np.testing.assert_allclose(model.cluster_centers_[k], rows[mine].mean(axis=0))


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (Y + 0.5, r"y must contain integers or strings.*got 0\.5"),
        (Y.astype(object) + 0.5, r"y must contain integers or strings.*got 0\.5"),
        ([1, "b", *[None] * 38], r"got the types int, str"),
        (np.where(Y == 2, 1e300, Y), r"integers below 2\*\*63, got 1e\+300"),
        (Y == 0, r"got dtype bool, which cannot mark unlabeled rows"),
        (Y[:-1], r"one label per row of X \(40 rows\).*got shape \(39,\)"),
        (np.stack([Y, Y], axis=1), r"one label per row.*got shape \(40, 2\)"),
        (
            np.where(np.arange(40) == 8, -3, Y),
            r"Labels must be >= 0, or -1 for an unlabeled row, got -3 in row 8",
        ),
        (
            ([1, 2], [0]),
            r"y = \(rows, labels\) must contain two arrays.*got shapes \(2,\) and \(1,\)",
        ),
        (([1, 40], [0, 1]), r"Row numbers of y must be in \[0, 40\), got 40"),
        (([1, -1], [0, 1]), r"Row numbers of y must be in .*got -1"),
        (([5, 5], [1, 1]), r"several for row 5 \(1, 1\)"),
        (([5, 5], [0, 1]), r"several for row 5 \(0, 1\)"),
        (
            da.from_array(Y[:-1], chunks=7),
            r"y must have one label per row of X \(40 rows\).*got shape \(39,\)",
        ),
        (da.from_array(Y + 0.5, chunks=7), r"y must contain integers or strings.*got -?\d\.5"),
        (
            da.from_array(np.where(Y == 2, -1e300, Y), chunks=7),
            r"y must contain integers below 2\*\*63, got -1e\+300\.",
        ),
        (da.from_array(Y == 0, chunks=7), r"got dtype bool"),
        (da.from_array(np.where(Y < 0, -2, Y), chunks=7), r"got -2 in row 1"),
        (
            da.from_array(np.stack([Y, Y], axis=1), chunks=7),
            r"y must have one label per row.*got shape \(40, 2\)",
        ),
    ],
)
def test_bad_labels(y: Any, message: str) -> None:
    with pytest.raises(ConstraintError, match=message):
        PCSKMeans(3).fit(X, y)
    with pytest.raises(ConstraintError, match=message), dask.config.set(scheduler="synchronous"):
        PCSKMeans(3).fit(da.from_array(X, chunks=(13, -1)), y)


# --- weights of pairs ----------------------------------------------------------------------


def weighted(problem: Problem, must: Any, cannot: Any, **links: Any) -> PCSKMeans:
    links = links or problem.links
    return quiet_fit(
        problem.model(), problem.X, **links, must_link_weight=must, cannot_link_weight=cannot
    )


@given(seed=SEEDS)
def test_weight_two_is_the_pair_twice(seed: int) -> None:
    problem = random_problem(seed)
    twice = {name: np.concatenate([pairs, pairs]) for name, pairs in problem.links.items()}
    once = weighted(problem, 2.0, np.full(12, 2))
    repeated = weighted(problem, 1, None, **twice)
    assert_same_model(once, repeated)
    assert violations(repeated) == sorted(2 * violations(once))


@given(seed=SEEDS, init=st.sampled_from(["start", "auto"]))
def test_weight_zero_is_no_pair(seed: int, init: str) -> None:
    """Neither in the assignment, nor in the start, nor among the violations."""
    problem = random_problem(seed)
    parameters = {} if init == "start" else {"init": "auto", "random_state": 0}
    rng = np.random.default_rng(seed)
    on = rng.random((2, 12)) < 0.5
    switched = quiet_fit(
        problem.model(**parameters),
        problem.X,
        **problem.links,
        must_link_weight=on[0].astype(float),
        cannot_link_weight=on[1].astype(float),
    )
    absent = quiet_fit(
        problem.model(**parameters),
        problem.X,
        must_link=problem.must_link[on[0]],
        cannot_link=problem.cannot_link[on[1]],
    )
    assert_same_model(switched, absent, 0)
    assert switched.contradicting_pairs_.tolist() == absent.contradicting_pairs_.tolist()


def test_weight_zero_contradicts_nothing() -> None:
    pair = [[0, 1]]
    PCSKMeans(2, random_state=0).fit(X, must_link=pair, cannot_link=pair, must_link_weight=0)


def test_heavy_pairs_are_obeyed() -> None:
    problem = random_problem(4)
    cannot = np.array([[0, 1], [2, 3], [4, 5]])
    model = weighted(problem, None, 1e6, cannot_link=cannot)
    assert not violations(model)


@pytest.mark.parametrize("penalty", ["distance", "constant"])
def test_rows_of_weight_zero_lose_their_constraints(penalty: str) -> None:
    """With a warning at the user's line; the weights of implied pairs survive."""
    problem, y = random_problem(5), some_labels(5)
    sample_weight = np.ones(40)
    absent = np.concatenate([problem.must_link[:2].ravel(), np.flatnonzero(y >= 0)[:3]])
    sample_weight[absent] = 0
    weights = {"must_link_weight": 0.3, "cannot_link_weight": 2.5}
    dead = {name: (sample_weight[pairs] == 0).any(axis=1) for name, pairs in problem.links.items()}
    with pytest.warns(ConstraintWarning) as caught:
        model = problem.model(penalty=penalty).fit(
            problem.X, y, **problem.links, **weights, sample_weight=sample_weight
        )
    told = [w for w in caught if "sample_weight 0" in str(w.message)]
    assert len(told) == 1
    assert {warning.filename for warning in caught} == {__file__}
    n_pairs = sum(int(d.sum()) for d in dead.values())
    n_labels = int(((y >= 0) & (sample_weight == 0)).sum())
    assert f"the first is row {absent.min()}" in str(told[0].message)
    assert f"their {n_pairs} pair(s) and {n_labels} label(s)" in str(told[0].message)
    rest = np.flatnonzero(sample_weight)
    number = np.cumsum(sample_weight).astype(int) - 1
    without = quiet_fit(
        problem.model(penalty=penalty),
        problem.X[rest],
        y[rest],
        **{name: number[pairs[~dead[name]]] for name, pairs in problem.links.items()},
        **weights,
    )
    np.testing.assert_array_equal(model.labels_[rest], without.labels_)
    np.testing.assert_allclose(model.feature_weights_, without.feature_weights_, atol=1e-12)
    assert model.objective_ == pytest.approx(without.objective_)
    assert not set(absent) & {*model.contradicting_pairs_.i, *model.contradicting_pairs_.j}


def test_all_constrained_rows_of_weight_zero() -> None:
    sample_weight = np.ones(40)
    sample_weight[:4] = 0
    with pytest.warns(ConstraintWarning, match=r"4 constrained row\(s\).*2 pair\(s\)"):
        model = PCSKMeans(3, random_state=0).fit(
            X, must_link=[[0, 1], [2, 3]], sample_weight=sample_weight
        )
    free = PCSKMeans(3, random_state=0).fit(X, sample_weight=sample_weight)
    np.testing.assert_array_equal(model.labels_, free.labels_)


# --- the start -----------------------------------------------------------------------------


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """Starting centers of the fits of a test."""
    seen: list[np.ndarray] = []
    begin = RestartState.begin

    def record(centers: np.ndarray, *arguments: Any, **options: Any) -> RestartState:
        seen.append(centers)
        return begin(centers, *arguments, **options)

    monkeypatch.setattr(RestartState, "begin", record)
    return seen


def of_paper(k: int, init: str = "ss-k-means||", **parameters: Any) -> PCSKMeans:
    """An estimator whose only start is at the must-link neighborhoods."""
    return PCSKMeans(k, init=init, n_init=1, penalty="distance", **parameters)


def test_labels_start_from_class_means(starts: list[np.ndarray]) -> None:
    """The largest class first, then farthest-first weighted by sqrt(n n')."""
    rows = np.array([[0.0], [1.0], [2.0], [90.0], [10.0], [12.0], [14.0], [11.0], [13.0], [50.0]])
    y = np.array([5, 5, 5, 7, 2, 2, 2, 2, -1, -1])
    quiet_fit(of_paper(3), rows, y)
    # class 2: four rows about 11.75; class 7: 78.25 sqrt(4 * 1) > class 5: 10.75 sqrt(4 * 3)
    assert starts[0].ravel().tolist() == [11.75, 90.0, 1.0]
    quiet_fit(of_paper(2, "neighborhoods"), rows, y)
    assert starts[1].ravel().tolist() == [11.75, 90.0]
    # must-links join rows and classes
    quiet_fit(of_paper(2), rows, y, must_link=[[3, 9]])
    assert starts[2].ravel().tolist() == [11.75, 70.0]
    quiet_fit(of_paper(2), rows, must_link=[[0, 1], [1, 2], [8, 9]])
    assert starts[3].ravel().tolist() == [1.0, 31.5]
    # rows of weight count so often
    quiet_fit(of_paper(2), rows, y, sample_weight=[9, 1, 1, *[1] * 7])
    assert starts[4].ravel().tolist() == [3 / 11, 90.0]


@pytest.mark.parametrize("init", ["ss-k-means||", "ss-k-means++"])
def test_missing_neighborhoods_are_sampled(init: str, starts: list[np.ndarray]) -> None:
    """Away from those that are known, whatever the chunks."""
    rng = np.random.default_rng(0)
    centers = np.array([[0.0, 0.0], [40.0, 0.0], [0.0, 40.0], [40.0, 40.0]])
    rows = centers[np.arange(200) % 4] + rng.normal(size=(200, 2))
    y = np.full(200, -1)
    y[[0, 4, 8, 1, 5]] = [0, 0, 0, 1, 1]
    for seed in range(10):
        model = quiet_fit(of_paper(4, init, random_state=seed), rows, y)
        start = starts.pop()
        if init == "ss-k-means++":
            np.testing.assert_allclose(start[0], rows[[0, 4, 8]].mean(axis=0))
            np.testing.assert_allclose(start[1], rows[[1, 5]].mean(axis=0))
        nearest = ((start[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
        assert sorted(nearest) == [0, 1, 2, 3]
        assert nearest[:2].tolist() == [0, 1]
        with dask.config.set(scheduler="synchronous"):
            blocks = da.from_array(rows, chunks=((3, 120, 0, 77), 2))
            cut = quiet_fit(of_paper(4, init, random_state=seed), blocks, y)
        np.testing.assert_array_equal(starts.pop(), start)
        assert_same_model(cut, model, 1e-12)
    quiet_fit(of_paper(4, init, random_state=1), rows, y)
    quiet_fit(of_paper(4, init, random_state=2), rows, y)
    assert not np.array_equal(*starts)


def test_missing_centers_are_not_drawn_from_the_neighborhoods(starts: list[np.ndarray]) -> None:
    """Rows 0 and 1 are must-linked though far apart: neither is drawn."""
    rows = np.array([[0.0], [90.0], [44.0], [46.0], [60.0], [62.0]])
    for seed in range(10):
        quiet_fit(of_paper(2, "ss-k-means++", random_state=seed), rows, must_link=[[0, 1]])
        known, drawn = starts.pop().ravel()
        assert known == 45.0
        assert 44.0 <= drawn <= 62.0
    # Where too few others are left, all rows may be drawn.
    quiet_fit(of_paper(3, "ss-k-means++"), rows[:3], must_link=[[0, 1]])
    assert len(np.unique(starts.pop())) == 3


def test_agreeing_neighborhoods_are_not_misled_by_contradictions(starts: list[np.ndarray]) -> None:
    """Must-links, one of them wrong, would make one neighborhood of all rows."""
    rows = np.array([[0.0], [1.0], [2.0], [10.0], [11.0], [12.0]])
    links = {"must_link": [[0, 1], [1, 2], [2, 3], [3, 4], [4, 5]], "cannot_link": [[0, 5]]}
    quiet_fit(of_paper(2), rows, **links)
    assert starts[0].ravel().tolist() == [1.0, 11.0]
    quiet_fit(of_paper(2, "neighborhoods"), rows, **links)
    assert starts[1].ravel().tolist()[0] == 6.0


def test_without_neighborhoods_rows_are_sampled(starts: list[np.ndarray]) -> None:
    for init in ("ss-k-means||", "k-means||"):
        quiet_fit(of_paper(3, init, random_state=5), X, cannot_link=[[0, 1]])
    for start in starts[1:]:
        np.testing.assert_array_equal(start, starts[0])
    for init in ("neighborhoods", "ss-k-means++", "k-means++"):
        quiet_fit(of_paper(3, init, random_state=5), X, cannot_link=[[0, 1]])
    for start in starts[-3:-1]:
        np.testing.assert_array_equal(start, starts[-1])


@pytest.mark.parametrize(
    "init", ["ss-k-means||", "ss-k-means++", "k-means||", "k-means++", "random"]
)
def test_starts_depend_on_the_seed_only(init: str, starts: list[np.ndarray]) -> None:
    with dask.config.set(scheduler="synchronous"):
        for data in (X, da.from_array(X, chunks=(9, -1)), X):
            quiet_fit(of_paper(4, init, random_state=3), data, must_link=[[0, 9], [4, 5]])
    np.testing.assert_array_equal(starts[0], starts[1])
    np.testing.assert_array_equal(starts[0], starts[2])
    assert len(np.unique(starts[0], axis=0)) == 4


def test_arrays_and_callables_start(starts: list[np.ndarray]) -> None:
    def first(data: Any, n_clusters: int, random_state: Any) -> Any:
        assert isinstance(random_state, np.random.RandomState)
        return data[:n_clusters]

    quiet_fit(PCSKMeans(3, init=first), X)
    quiet_fit(PCSKMeans(3, init=X[:3].tolist()), X)
    np.testing.assert_array_equal(starts[0], X[:3])
    np.testing.assert_array_equal(starts[1], X[:3])


def test_must_links_join_duplicate_neighborhoods() -> None:
    """Two classes with one mean: one of the equal starting centers is moved."""
    rows = np.array([[-1.0], [1.0], [-1.0], [1.0], [8.0], [9.0], [10.0]])
    model = quiet_fit(PCSKMeans(3), rows, [0, 0, 1, 1, 2, 2, -1])
    assert np.bincount(model.labels_, minlength=3).min() > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"must_link": [[0, 40]]},
            r"must_link must contain row numbers in \[0, 40\), got \(0, 40\) at position 0",
        ),
        (
            {"cannot_link": [[0, 1], [-1, 3]]},
            r"cannot_link must contain row numbers in .*got \(-1, 3\) at position 1",
        ),
        (
            {"must_link": [[3, 3]]},
            r"must_link must contain pairs of different rows, got \(3, 3\) at position 0",
        ),
        ({"must_link": [0, 1, 2]}, r"must_link must have shape \(m, 2\).*got \(3,\)"),
        ({"must_link": [[0, 1, 2]]}, r"must_link must have shape \(m, 2\).*got \(1, 3\)"),
        ({"cannot_link": [[0.5, 1]]}, r"cannot_link must contain integers, got dtype float64"),
        ({"cannot_link": [["a", "b"]]}, r"cannot_link must contain row numbers.*got dtype <U1"),
        (
            {"must_link": [[0, 1]], "must_link_weight": np.nan},
            r"must_link_weight must be finite and >= 0, got nan",
        ),
        (
            {"must_link": [[0, 1], [1, 2]], "must_link_weight": [1, np.nan]},
            r"must_link_weight\[1\] must be finite and >= 0, got nan",
        ),
        (
            {"cannot_link": [[0, 1]], "cannot_link_weight": -1},
            r"cannot_link_weight must be finite and >= 0, got -1\.0",
        ),
        (
            {"cannot_link": [[0, 1]], "cannot_link_weight": [1, 2]},
            r"cannot_link_weight must be a number or have shape .*got shape \(2,\)",
        ),
        ({"must_link": [[0, 1]], "must_link_weight": np.inf}, r"use COPKMeans"),
    ],
)
def test_bad_pairs(arguments: dict[str, Any], message: str) -> None:
    for data in (X, da.from_array(X, chunks=(13, -1))):
        with (
            pytest.raises(ConstraintError, match=message),
            dask.config.set(scheduler="synchronous"),
        ):
            PCSKMeans(3).fit(data, **arguments)


# --- bad pairs -----------------------------------------------------------------------------
