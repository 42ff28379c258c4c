"""What holds for every estimator of the constrained and sparse family.

``PCSKMeans`` has tests of its own of the same things, and more of them.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from distributed import Client
from hypothesis import example, given
from hypothesis import strategies as st
from oracles.interruption import Interruption, interrupt_at
from oracles.problems import SEEDS, assert_same_model, quiet_fit, random_problem
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import daskclust
from daskclust import COPKMeans, MPCKMeans, PCKMeans, PCSKMeans, SparseKMeans, pairs_from_labels
from daskclust.exceptions import CheckpointError, ConstraintError, ConstraintWarning
from daskclust.testing import CountingScheduler
from daskclust.testing.strategies import row_chunks


class Member(NamedTuple):
    """An estimator of the family and what it takes."""

    kind: Any
    parameters: dict[str, Any]
    constraints: tuple[str, ...]
    hard: bool = False


PAIRS, WEIGHTS = ("must_link", "cannot_link"), ("must_link_weight", "cannot_link_weight")
MEMBERS = {
    "SparseKMeans": Member(SparseKMeans, {}, ()),
    "PCKMeans": Member(PCKMeans, {}, ("y", *PAIRS, *WEIGHTS)),
    "PCKMeans, scaled": Member(PCKMeans, {"penalty": "scaled"}, ("y", *PAIRS, *WEIGHTS)),
    "MPCKMeans": Member(MPCKMeans, {}, ("y", *PAIRS, *WEIGHTS)),
    "PCSKMeans": Member(PCSKMeans, {"sparsity": 1.7}, ("y", *PAIRS, *WEIGHTS)),
    "COPKMeans": Member(COPKMeans, {}, ("y", *PAIRS), hard=True),
}
PROBLEM = random_problem(21, n=60)
X = PROBLEM.X
Y = np.where(np.arange(60) % 6 == 0, np.arange(60) // 6 % 2, -1)

each = pytest.mark.parametrize("member", MEMBERS.values(), ids=MEMBERS.keys())


def members(which: Callable[[Member], Any]) -> Any:
    chosen = {name: member for name, member in MEMBERS.items() if which(member)}
    return pytest.mark.parametrize("member", chosen.values(), ids=chosen.keys())


constrained = members(lambda member: member.constraints)
soft = members(lambda member: member.constraints and not member.hard)
hard = members(lambda member: member.hard)
#: Estimators share checks, checkpoints and containers: one with soft, one with hard constraints.
two = pytest.mark.parametrize("member", [MEMBERS[name] for name in ("PCSKMeans", "COPKMeans")])


def model_of(member: Member, problem: Any = PROBLEM, **parameters: Any) -> Any:
    return problem.model(member.kind, **{**member.parameters, **parameters})


def arguments_of(member: Member, problem: Any = PROBLEM, **given: Any) -> dict[str, Any]:
    """The problem's pairs and what else is given, as far as the estimator takes them.

    Pairs that cannot all hold are no use to one that insists: it gets others, true to `Y`.
    """
    links = problem.links
    if member.hard:
        truth = np.arange(len(problem.X)) // 6 % 2
        count = 2 * len(problem.must_link)
        links = dict(
            zip(PAIRS, pairs_from_labels(truth, n_pairs=count, random_state=1), strict=True)
        )
    given = {**links, **given}
    return {name: given[name] for name in given if name in member.constraints}


def blocks(chunks: Any = ((7, 20, 0, 33), 5)) -> da.Array:
    return da.from_array(X, chunks=chunks)


# --- chunks, containers, precision ---------------------------------------------------------


@each
@given(seed=SEEDS, data=st.data())
def test_chunks_do_not_matter(member: Member, seed: int, data: st.DataObject) -> None:
    """Neither for the fit nor for its start."""
    problem = random_problem(seed)
    arguments = arguments_of(member, problem)
    parameters = {"random_state": seed % 1000}
    if data.draw(st.booleans()):
        parameters["init"] = "k-means||"
    whole = quiet_fit(model_of(member, problem, **parameters), problem.X, **arguments)
    chunks = data.draw(row_chunks(40))
    with dask.config.set(scheduler="synchronous"):
        cut = quiet_fit(
            model_of(member, problem, **parameters),
            da.from_array(problem.X, chunks=(chunks, -1)),
            **arguments,
        )
        assert cut.labels_.chunks == (chunks,)
        assert_same_model(cut, whole, 1e-12)


@two
def test_containers(member: Member) -> None:
    """NumPy in, NumPy out; Dask in, lazy Dask out; state concrete."""
    arguments = arguments_of(member, y=Y)
    want = quiet_fit(model_of(member), X, **arguments)
    assert isinstance(want.labels_, np.ndarray)
    assert want.labels_.dtype == np.int32
    frame = pd.DataFrame(X, columns=list("abcde"))
    named = quiet_fit(model_of(member), frame, **arguments)
    assert named.feature_names_in_.tolist() == list("abcde")
    assert_same_model(named, want, 0)
    with dask.config.set(scheduler="synchronous"):
        for data in (blocks(), xr.DataArray(blocks())):
            model = quiet_fit(model_of(member), data, **arguments)
            assert_same_model(model, want, 1e-12)
            assert isinstance(model.labels_, da.Array)
            assert isinstance(model.cluster_centers_, np.ndarray)
            assert model.predict(data).chunks[0] == model.labels_.chunks[0]
            np.testing.assert_allclose(model.transform(data).compute(), want.transform(X))
            assert not hasattr(pickle.loads(pickle.dumps(model)), "labels_")


@each
def test_inertia_is_that_of_the_labels(member: Member) -> None:
    """In the metric of the fit, without the price of violations."""
    rng = np.random.default_rng(2)
    sample_weight = rng.integers(1, 4, len(X)).astype(float)
    arguments = arguments_of(member, y=Y, sample_weight=sample_weight)
    model = quiet_fit(model_of(member), X, **arguments, sample_weight=sample_weight)
    assert model.history_[-1]["converged"]
    metric = next(
        (
            getattr(model, name)
            for name in ("assignment_weights_", "metric_weights_")
            if hasattr(model, name)
        ),
        np.ones(X.shape[1]),
    )
    gaps = (X - model.cluster_centers_[model.labels_]) ** 2 @ metric
    # WekaUT's criterion ends before the metric stands still.
    tolerance = 1e-3 if member.parameters.get("criterion") == "objective" else 1e-9
    assert isinstance(model.inertia_, float)
    assert model.inertia_ == pytest.approx(float(gaps @ sample_weight), rel=tolerance)
    assert model.inertia_ == model.history_[-1]["inertia"]


@two
def test_single_precision_stays(member: Member) -> None:
    """Of the distances; the state is in double precision."""
    arguments = arguments_of(member)
    model = quiet_fit(model_of(member), X.astype(np.float32), **arguments)
    assert model.cluster_centers_.dtype == np.float64
    assert model.transform(X.astype(np.float32)).dtype == np.float32
    same = quiet_fit(model_of(member), X.astype(np.float32).astype(float), **arguments)
    np.testing.assert_array_equal(model.labels_, same.labels_)
    np.testing.assert_allclose(model.cluster_centers_, same.cluster_centers_, rtol=1e-12)


@two
def test_inputs_are_left_alone(member: Member) -> None:
    given = {"X": X.copy(), "sample_weight": np.ones(60)}
    given |= {name: pairs.copy() for name, pairs in arguments_of(member, y=Y).items()}
    before = {name: array.copy() for name, array in given.items()}
    for array in given.values():
        array.flags.writeable = False
    start = PROBLEM.start.copy()
    model = quiet_fit(model_of(member, init=start), **given)
    model.cluster_centers_[:] = 0
    np.testing.assert_array_equal(start, PROBLEM.start)
    for name, array in given.items():
        np.testing.assert_array_equal(array, before[name])


# --- weights of rows -----------------------------------------------------------------------


@each
@given(seed=SEEDS)
@example(seed=2311)  # an empty cluster takes a repeated row
def test_integer_row_weights_are_repetition(member: Member, seed: int) -> None:
    """Of unconstrained rows; weight 0 is absence."""
    problem = random_problem(seed, n_pairs=(6, 6))
    rng = np.random.default_rng(seed)
    times = rng.integers(0, 4, 40)
    arguments = arguments_of(member, problem)
    for pairs in arguments.values():
        times[pairs] = 1
    times[:3] = 1
    rows = np.repeat(np.arange(40), times)
    first = np.searchsorted(rows, np.arange(40))
    weighted = quiet_fit(model_of(member, problem), problem.X, **arguments, sample_weight=times)
    moved = {name: first[pairs] for name, pairs in arguments.items()}
    repeated = quiet_fit(model_of(member, problem), problem.X[rows], **moved)
    np.testing.assert_array_equal(weighted.labels_[rows], repeated.labels_)
    np.testing.assert_allclose(weighted.cluster_centers_, repeated.cluster_centers_, rtol=1e-9)
    assert weighted.objective_ == pytest.approx(repeated.objective_, rel=1e-9)


@two
def test_rows_of_weight_zero_lose_their_constraints(member: Member) -> None:
    weight = np.ones(60)
    weight[8] = 0
    with pytest.warns(ConstraintWarning, match=r"1 constrained row\(s\) have sample_weight 0") as w:
        model_of(member).fit(X, must_link=[[1, 8], [2, 3]], sample_weight=weight)
    assert {warning.filename for warning in w} == {__file__}


@constrained
def test_all_rows_in_one_group(member: Member) -> None:
    """With several clusters: said at the start, and fitted as well as can be."""
    chain = np.stack([np.arange(59), np.arange(1, 60)], axis=1)
    for arguments in ({"must_link": chain}, {"y": np.zeros(60, dtype=int)}):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = model_of(member).fit(X, **arguments)
        assert "leave 1 group(s) of rows" in str(caught[0].message)
        assert caught[0].category is ConstraintWarning
        assert {warning.filename for warning in caught} == {__file__}
        assert np.isfinite(model.objective_)


CONTRADICTION = {"must_link": [[0, 5], [5, 9]], "cannot_link": [[0, 9]]}
CHAIN = "0-5-9 must-linked, 0-9 cannot-linked"
#: Four, of three clusters: not all of them can be apart.
CLASSES = ([0, 1, 20, 21, 40, 41, 42], [0, 0, 1, 1, 2, 2, 3])


@soft
@pytest.mark.parametrize(
    ("arguments", "message"),
    [(CONTRADICTION, CHAIN), ({"y": CLASSES}, "y has 4 classes.*n_clusters=3")],
)
def test_soft_constraints_that_cannot_all_hold_are_announced(
    member: Member, arguments: dict[str, Any], message: str
) -> None:
    with pytest.warns(ConstraintWarning, match=message) as caught:
        model = model_of(member, max_iter=1000).fit(X, **arguments)
    assert [warning.filename for warning in caught] == [__file__]
    assert np.isfinite(model.objective_)


@hard
@pytest.mark.parametrize(
    ("arguments", "message"),
    [(CONTRADICTION, CHAIN), ({"y": CLASSES}, "n_clusters must be at least 4")],
)
def test_hard_constraints_that_cannot_all_hold_are_refused(
    member: Member, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConstraintError, match=message):
        model_of(member).fit(X, **arguments)


# --- schedulers ----------------------------------------------------------------------------


def test_cluster_of_two_processes(client: Client) -> None:
    """From arrays that are read there and from persisted ones."""
    persisted = client.persist(blocks((15, 5)))
    for member in (MEMBERS["PCSKMeans"], MEMBERS["COPKMeans"]):
        want = quiet_fit(model_of(member), X, **arguments_of(member, y=Y))
        for data in (blocks() + 0, persisted):
            model = quiet_fit(model_of(member), data, **arguments_of(member, y=Y))
            assert_same_model(model, want, 1e-12)


# --- passes and checkpoints ----------------------------------------------------------------


@each
def test_passes(scheduler: CountingScheduler, member: Member) -> None:
    """One look, one fetch where there are constraints, one an iteration."""
    model = quiet_fit(model_of(member), blocks(), **arguments_of(member))
    repairs = scheduler.names.count("daskclust-farthest")
    begun = 1 + bool(member.constraints)
    if member.parameters.get("penalty") == "scaled":
        # Iterations without constraints give the unit of the penalty.
        free = quiet_fit(model_of(member, max_iter=10), X)
        begun += len(free.history_)
    assert scheduler.calls == begun + len(model.history_) + repairs
    assert model.history_[-1]["passes"] == scheduler.calls
    assert [r["iteration"] for r in model.history_] == list(range(1, len(model.history_) + 1))


@each
def test_interrupted_and_resumed(tmp_path: Path, member: Member) -> None:
    """After the first, a middle and the last pass: bit for bit the model of a fit in one go."""
    arguments = arguments_of(member, y=Y)
    with dask.config.set(scheduler="synchronous"):
        want = quiet_fit(model_of(member), blocks(), **arguments)
        n = len(want.history_)
        for at in sorted({1, n // 2 + 1, n}):
            model = model_of(member, checkpoint=tmp_path / f"{at}.npz")
            with pytest.raises(Interruption), daskclust.on_iteration(interrupt_at(at)):
                quiet_fit(model, blocks(), **arguments)
            resumed = quiet_fit(clone(model), blocks(), **arguments)
            assert_same_model(resumed, want, 0)
            for got, record in zip(resumed.history_, want.history_, strict=True):
                assert {**got, "seconds": 0} == {**record, "seconds": 0}


@pytest.mark.parametrize("member", [MEMBERS["PCKMeans"], MEMBERS["COPKMeans"]])
def test_max_iter_may_differ_when_a_fit_is_resumed(tmp_path: Path, member: Member) -> None:
    """Bit for bit, also where the last iteration had left a cluster empty."""
    truth = np.arange(60) % 2
    found = np.vstack([X[:3], np.full(5, 1e3)])  # a center to which no row is near
    for name, rows, parameters, links in (
        ("plain", X, {"init": X[:4]}, arguments_of(member, y=Y)),
        ("restarts", X, {"init": "random", "n_init": 3, "random_state": 1}, arguments_of(member)),
        ("empty", X + 6 * truth[:, None], {"init": found}, {"y": np.arange(60) % 3}),
    ):
        want = quiet_fit(model_of(member).set_params(n_clusters=4, **parameters), rows, **links)
        for first in range(1, len(want.history_) + 1, 3):
            model = clone(want).set_params(max_iter=first, checkpoint=tmp_path / f"{name}{first}")
            short = quiet_fit(model, rows, **links)
            assert len(short.history_) <= first
            assert_same_model(quiet_fit(clone(model), rows, **links), short, 0)
            longer = quiet_fit(clone(model).set_params(max_iter=100), rows, **links)
            assert_same_model(longer, want, 0)
            for got, record in zip(longer.history_, want.history_, strict=True):
                assert {**got, "seconds": 0} == {**record, "seconds": 0}


@two
def test_a_checkpoint_of_another_fit_is_refused(tmp_path: Path, member: Member) -> None:
    quiet_fit(model_of(member, checkpoint=tmp_path), X, **arguments_of(member))
    with pytest.raises(CheckpointError, match="the data differ"):
        quiet_fit(model_of(member, checkpoint=tmp_path), 2 * X, **arguments_of(member))
    with pytest.raises(CheckpointError, match="init was"):
        model_of(member, checkpoint=tmp_path, init=PROBLEM.start[::-1]).fit(X)
    if member.constraints:
        with pytest.raises(CheckpointError, match="constraints was"):
            model_of(member, checkpoint=tmp_path).fit(X)


# --- starts --------------------------------------------------------------------------------


@two
@pytest.mark.parametrize("init", ["k-means||", "k-means++", "random", "array", "callable"])
def test_starts(member: Member, init: str) -> None:
    given = {"array": PROBLEM.start.tolist(), "callable": lambda data, k, random_state: data[:k]}
    model = quiet_fit(model_of(member, init=given.get(init, init), random_state=3), X)
    assert np.isfinite(model.objective_)
    if init == "callable":
        same = quiet_fit(model_of(member, init=X[:3]), X)
        assert_same_model(model, same, 0)


@two
def test_labels_may_be_text_or_masked(member: Member) -> None:
    """In every form the same model, and the classes by the names given."""
    want = quiet_fit(model_of(member), X, Y)
    assert want.classes_.tolist() == [0, 1]
    text = np.where(Y < 0, None, np.array(["elm", "oak"])[Y])
    rows = np.arange(0, 60, 3)  # half of them without a label
    given = np.ma.masked_array(np.abs(Y[rows]), mask=Y[rows] < 0)
    for y, names in (
        (text, ["elm", "oak"]),
        (da.from_array(text, chunks=9), ["elm", "oak"]),
        ((rows, text[rows]), ["elm", "oak"]),
        ((rows, given), [0, 1]),
        (np.ma.masked_array(np.abs(Y), mask=Y < 0), [0, 1]),
        (da.ma.masked_less(da.from_array(Y, chunks=11), 0), [0, 1]),
    ):
        model = quiet_fit(model_of(member), X, y)
        assert_same_model(model, want, 0)
        assert model.classes_.tolist() == names
    assert quiet_fit(model_of(member), X).classes_.tolist() == []


@two
def test_classes_are_those_of_present_rows(member: Member) -> None:
    """A class whose rows have weight 0 is absent; saved models keep the rest."""
    weight = np.where(np.arange(60) < 6, 0, 1)
    names = np.array(["ash", *["elm", "oak"] * 30])
    y = np.where(np.arange(60) % 6 == 0, names[np.arange(60) // 6], "-1")
    model = quiet_fit(model_of(member), X, y, sample_weight=weight)
    assert model.classes_.tolist() == ["elm", "oak"]
    loaded = pickle.loads(pickle.dumps(model))
    assert loaded.classes_.tolist() == ["elm", "oak"]


@two
def test_a_fit_that_fails_changes_nothing(member: Member) -> None:
    model = quiet_fit(model_of(member, init="random"), X, **arguments_of(member))
    before = dict(vars(model))
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.where(np.arange(60)[:, None] == 7, np.nan, X[:, :3]))
    assert list(vars(model)) == list(before)
    assert all(vars(model)[name] is value for name, value in before.items())
    np.testing.assert_array_equal(model.predict(X), model.predict(X.copy()))


@constrained
def test_labels_start_from_class_means(member: Member) -> None:
    start = np.array([X[Y == 0].mean(axis=0), X[Y == 1].mean(axis=0)])
    known = random_problem(21, n=60)._replace(start=start)
    for init in ("neighborhoods", "ss-k-means||", "ss-k-means++"):
        given = {"penalty": "distance", **member.parameters}
        if member.hard:
            del given["penalty"]
        model = quiet_fit(member.kind(2, init=init, **given), X, Y)
        assert_same_model(model, quiet_fit(model_of(member, known), X, Y), 1e-12)


# --- refusals ------------------------------------------------------------------------------


BAD_PARAMETERS: list[tuple[dict[str, Any], str]] = [
    ({"max_iter": 0}, r"max_iter must be an integer >= 1, got 0"),
    ({"sparsity": 9}, r"sparsity must be between 1 and .*got 9"),
    ({"init": X[:4]}, r"initial centers must have shape \(3, 5\).*got \(4, 5\)"),
    ({"n_clusters": 61, "init": "random"}, "n_clusters=61 must be at most n_samples=60"),
]


@pytest.mark.parametrize(
    ("member", "parameters", "message"),
    [
        pytest.param(member, parameters, message, id=f"{name}-{message}")
        for name, member in MEMBERS.items()
        if name in ("PCSKMeans", "COPKMeans")
        for parameters, message in BAD_PARAMETERS
        if set(parameters) <= set(member.kind().get_params())
    ],
)
def test_bad_parameters(
    scheduler: CountingScheduler, member: Member, parameters: dict[str, Any], message: str
) -> None:
    """Refused before anything is read."""
    with pytest.raises(ValueError, match=message):
        model_of(member).set_params(**parameters).fit(blocks())
    assert scheduler.calls == 0


@two
def test_bad_rows_and_weights(member: Member) -> None:
    bad = X.copy()
    bad[30, 2] = np.nan
    for data in (bad, da.from_array(bad, chunks=11)):
        with (
            pytest.raises(ValueError, match="NaN: the first at row 30, column 2"),
            dask.config.set(scheduler="synchronous"),
        ):
            model_of(member).fit(data)
    with pytest.raises(ValueError, match=r"weight of row 9 is NaN"):
        model_of(member).fit(X, sample_weight=np.where(np.arange(60) == 9, np.nan, 1))
    hidden = np.ma.masked_array(np.ones(60), mask=np.arange(60) == 9)
    with pytest.raises(
        ValueError, match=r"sample_weight must have a weight for each row.*in row 9"
    ):
        model_of(member).fit(X, sample_weight=hidden)
    with (
        pytest.raises(ValueError, match=r"weight of row 9 is NaN"),
        dask.config.set(scheduler="synchronous"),
    ):
        model_of(member).fit(blocks(), sample_weight=da.from_array(hidden, chunks=11))
    with pytest.raises(NotFittedError):
        model_of(member).predict(X)


BAD_CONSTRAINTS: list[tuple[dict[str, Any], str]] = [
    (
        {"must_link": [[0, 60]]},
        r"must_link must contain row numbers in .*got \(0, 60\) at position 0",
    ),
    ({"must_link": np.ma.masked_equal([[0, 1], [2, 3]], 3)}, r"must_link .* masked values"),
    ({"cannot_link": [[3, 3]]}, r"pairs of different rows, got \(3, 3\)"),
    ({"y": Y[1:]}, r"y must have one label per row of X \(60 rows\).*got shape \(59,\)"),
    ({"y": ([4, 4], [0, 1])}, r"several for row 4 \(0, 1\)"),
    ({"y": ([4, 4], [1, 1])}, r"several for row 4 \(1, 1\)"),
    ({"y": np.where(Y == 1, 1e300, Y)}, r"integers below 2\*\*63, got 1e\+300"),
    (
        {"y": np.where(Y == 1, -9999, Y)},
        r"Labels must be >= 0, or -1 for an unlabeled row, got -9999 in row 6",
    ),
    (
        {"must_link": [[0, 1]], "must_link_weight": np.nan},
        r"must_link_weight must be finite and >= 0, got nan",
    ),
    (
        {"cannot_link": [[0, 1]], "cannot_link_weight": -1},
        r"cannot_link_weight must be finite and >= 0, got -1\.0",
    ),
    (
        {"must_link": [[0, 1]], "must_link_weight": np.ma.masked_equal([2.0], 2)},
        "must_link_weight must not contain masked values",
    ),
]


@pytest.mark.parametrize(
    ("member", "arguments", "message"),
    [
        pytest.param(member, arguments, message, id=f"{name}-{message}")
        for name, member in MEMBERS.items()
        if name in ("PCSKMeans", "COPKMeans")
        for arguments, message in BAD_CONSTRAINTS
        if set(arguments) <= set(member.constraints)
    ],
)
def test_bad_constraints(
    scheduler: CountingScheduler, member: Member, arguments: dict[str, Any], message: str
) -> None:
    """Refused before anything is read."""
    with pytest.raises(ConstraintError, match=message):
        model_of(member).fit(blocks(), **arguments)
    assert scheduler.calls == 0


@each
def test_the_limit_is_announced_at_the_users_line(member: Member) -> None:
    limit = "max_outer_iter" if "sparsity" in member.kind().get_params() else "max_iter"
    with pytest.warns(ConvergenceWarning, match=f"Raise {limit}") as caught:
        model_of(member, **{limit: 1}).fit(X)
    assert [warning.filename for warning in caught] == [__file__]
