"""Every reduction of the package obeys the laws the engine relies on."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import daskclust
from daskclust.estimator.spaces import COVARIANCE, MeanState
from daskclust.kernels.mixtures.densities import Mixtures
from daskclust.reduction import (
    ASSIGN,
    ATTRACTED,
    CANDIDATES,
    FARTHEST,
    FARTHEST_FIRST,
    SPREAD,
    SURVEY,
    Attraction,
    CandidateRound,
    CenterSets,
    FarthestFirst,
    FarthestRequest,
    Field,
    Reduction,
    RowBlock,
    RowLabels,
    SpreadRequest,
    SurveyRequest,
)
from daskclust.reduction.batch import BATCH, Request
from daskclust.reduction.contract import top_dtype
from daskclust.reduction.ensemble import GRAM, GRAM_KEPT, GramRequest
from daskclust.reduction.mixtures import (
    EXPECTATION,
    INITIAL_SUMS,
    LIKELIHOOD,
    InitialPosteriors,
    MixtureStack,
)
from daskclust.reduction.observed_survey import OBSERVED
from daskclust.reduction.views import Transformed
from daskclust.testing import assert_results_close, check_reduction_laws, reduce_blocks, row_blocks
from daskclust.testing.strategies import row_chunks

#: The reductions that are tested below, and how to make their states from some rows.
LAWS: dict[str, tuple[Reduction, Callable[..., tuple[list[Any], Callable[[Any], Any]]]]] = {}


def law(reduction: Reduction):
    """Register a maker of (states, what repetition leaves alone)."""

    def register(maker):
        LAWS[reduction.name] = (reduction, maker)
        return maker

    return register


def everything(result):
    return result


@law(ASSIGN)
def assign_states(rng, x):
    p = x.shape[1]
    centers = rng.integers(-2, 3, (2, 5, p)).astype(float)
    plain = CenterSets(centers)
    full = CenterSets(centers, rng.integers(0, 3, (2, p)) / 2.0, np.full(p, 0.25))
    return [plain, full], everything


@law(FARTHEST)
def farthest_states(rng, x):
    centers = rng.integers(-2, 3, (3, x.shape[1])).astype(float)

    def keys(found):
        # Repetition gives other row numbers, and other rows that tie at the last place.
        return found["key"][:1]

    return [FarthestRequest(centers, 4), FarthestRequest(centers, 100)], keys


@law(FARTHEST_FIRST)
def farthest_first_states(rng, x):
    p = x.shape[1]

    def keys(found):
        return found["key"]

    points = rng.integers(-2, 3, (4, p)).astype(float)
    # The last pass has nothing new to measure.
    return [
        FarthestFirst(points[:1]),
        *(FarthestFirst(points[:m], np.full(p, 0.5)) for m in (3, 4, 4)),
    ], keys


@law(SURVEY)
def survey_states(rng, x):
    def moments(survey):
        return survey.weight, survey.mean, survey.variance, survey.low, survey.high

    n, p = x.shape
    rows = np.sort(rng.choice(n, rng.integers(0, n + 1), replace=False))
    labels = RowLabels(rows, rng.integers(0, 3, len(rows)).astype(np.int32), 3)
    return [
        SurveyRequest(p),
        SurveyRequest(p, (3, 4), 2),
        SurveyRequest(p, (5,), 200),
        SurveyRequest(p, (6,), 3, labels, hashed=True),
    ], moments


@law(CANDIDATES)
def candidate_states(rng, x):
    p = x.shape[1]
    one, two = (rng.integers(-2, 3, (m, p)).astype(float) for m in (6, 4))
    rounds = [
        CandidateRound((one[:1], two[:2]), (1, 2), 1, 3),
        # A restart without new candidates.
        CandidateRound((one[:1], two), (1, 2), 2, 3, shift=np.full(p, 0.5)),
        CandidateRound((one, two), (1, 2), 3, 5),
    ]

    def nothing(picks):
        # Repetition gives other row numbers, and so other draws.
        return picks.shape

    return rounds, nothing


@law(ATTRACTED)
def attraction_states(rng, x):
    p = x.shape[1]
    points = tuple(rng.integers(-2, 3, (m, p)).astype(float) for m in (1, 4))
    return [Attraction(points, (1, 2)), Attraction(points, (1, 2), shift=np.full(p, 0.5))], (
        everything
    )


@law(SPREAD)
def spread_states(rng, x):
    p = x.shape[1]

    def sums(spread):
        return spread[:-1]

    nearest = SpreadRequest(rng.integers(-2, 3, (3, p)).astype(float))
    # Labels in the last column, which may be no label of a center.
    labeled = SpreadRequest(rng.random((2, p - 1)), np.array([-1, 2]), ignored=0)
    weighted = SpreadRequest(rng.random((2, p)), feature_weights=rng.random(p))
    return [nearest, labeled, weighted] if p > 1 else [nearest, weighted], sums


@law(BATCH)
def batch_states(rng, x):
    p = x.shape[1]
    centers = CenterSets(rng.integers(-2, 3, (1, 3, p)).astype(float))
    survey = SurveyRequest(p)
    # Views that depend on values only: rows by number are others when rows are repeated.
    halved = (Transformed(partial(np.multiply, np.float32(0.5))),)
    requests = (Request(ASSIGN, centers), Request(SURVEY, survey), Request(ASSIGN, centers, halved))

    def sums(results):
        return results[0], results[2]

    return [requests, requests[:1]], lambda r: sums(r) if len(r) == 3 else r


@law(COVARIANCE)
def covariance_states(rng, x):
    return [MeanState(np.full(x.shape[1], 0.5))], everything


@law(OBSERVED)
def observed_states(rng, x):
    def moments(survey):
        return survey.weight, survey.mean, survey.variance, survey.low, survey.high, survey.observed

    p = x.shape[1]
    return [
        SurveyRequest(p),
        SurveyRequest(p, (3, 4), 2),
        SurveyRequest(p, (5,), 200, hashed=True),
    ], moments


def mixture_stacks(rng, x):
    """Two models of 2 and 3 components, with diagonal and with full covariances."""
    p = x.shape[1]
    weights = np.array([0.3, 0.7, 0.2, 0.2, 0.6])
    means = rng.integers(-2, 3, (5, p)).astype(float)
    variances = rng.uniform(0.5, 2.0, (5, p))
    roots = rng.normal(size=(5, p, p))
    full = roots @ roots.transpose(0, 2, 1) + np.eye(p)
    shift = np.full(p, 0.25)
    return [
        MixtureStack(Mixtures(weights, means, covariances, (2, 3)), shift)
        for covariances in (variances, full)
    ]


@law(EXPECTATION)
def expectation_states(rng, x):
    return mixture_stacks(rng, x), everything


@law(LIKELIHOOD)
def likelihood_states(rng, x):
    return mixture_stacks(rng, x), everything


@law(INITIAL_SUMS)
def partition_states(rng, x):
    p = x.shape[1]
    centers = rng.integers(-2, 3, (2, 3, p)).astype(float)
    fill = np.full(p, 0.5)
    hard = [InitialPosteriors(centers, fill, full) for full in (False, True)]

    def of_centers(sums):
        # Random posteriors (of one restart, here) belong to row numbers, which repetition changes.
        return sums if len(sums) == 2 else None

    return [*hard, InitialPosteriors(centers[:1], fill, True, (1,))], of_centers


def gram_requests(rng, x):
    """With and without a basis, for an ensemble of two models."""
    stack, _ = mixture_stacks(rng, x)
    basis = rng.normal(size=(5, 2))
    return [GramRequest(stack.mixtures, stack.shift, b, np.float64) for b in (basis, None)]


@law(GRAM)
def gram_states(rng, x):
    return gram_requests(rng, x), everything


@law(GRAM_KEPT)
def kept_gram_states(rng, x):
    return gram_requests(rng, x), everything


def all_reductions() -> dict[str, Reduction]:
    """Whatever is a Reduction in any module of the package."""
    found = {}
    for info in pkgutil.walk_packages(daskclust.__path__, "daskclust."):
        if info.name.endswith("__main__"):
            continue
        module = importlib.import_module(info.name)
        found.update(
            {f"{info.name}.{n}": v for n, v in vars(module).items() if isinstance(v, Reduction)}
        )
    return found


def test_every_reduction_of_the_package_has_its_laws_tested_here():
    found = all_reductions()
    assert len({id(reduction) for reduction in found.values()}) >= 5
    tested = {id(reduction) for reduction, _ in LAWS.values()}
    missing = [name for name, reduction in found.items() if id(reduction) not in tested]
    assert not missing, f"register a law for {missing}"


def test_names_of_reductions_are_unique():
    # They become Dask keys and the rows of a dashboard.
    reductions = {id(r): r for r in all_reductions().values()}.values()
    names = [reduction.name for reduction in reductions]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", LAWS)
@given(data=st.data())
def test_laws(name, data):
    reduction, maker = LAWS[name]
    n, p = data.draw(st.integers(1, 60)), data.draw(st.integers(1, 5))
    lengths = data.draw(row_chunks(n))
    seed = data.draw(st.integers(0, 2**32 - 1))
    dtype = data.draw(st.sampled_from([np.float32, np.float64]))
    weighting = data.draw(st.sampled_from(["none", "integer", "real"]))
    rng = np.random.default_rng(seed)
    x = rng.integers(-3, 4, (n, p)).astype(dtype)
    if data.draw(st.booleans()):
        x += rng.standard_normal((n, p)).astype(dtype)
    weight = None
    if weighting == "integer":
        weight = rng.integers(0, 4, n).astype(float)
        weight[rng.integers(n)] = 2.0
    elif weighting == "real":
        weight = rng.random(n)
    states, invariant = maker(rng, x)
    check_reduction_laws(
        reduction, states, x, weight, lengths=lengths, repetition_invariant=invariant
    )


@pytest.mark.parametrize("name", LAWS)
def test_cuts_inside_long_blocks_only_change_the_last_bits(name):
    # Long enough that sums are flushed segment by segment.
    reduction, maker = LAWS[name]
    rng = np.random.default_rng(5)
    x = rng.standard_normal((10_000, 3)) + 100.0
    states, _ = maker(rng, x)
    whole = reduce_blocks(reduction, states, row_blocks(x, None, (10_000,)))
    for lengths in [(1, 9999), (4096, 4096, 1808), (5000, 0, 5000), (100,) * 100]:
        found = reduce_blocks(reduction, states, row_blocks(x, None, lengths))
        assert_results_close(found, whole)


@pytest.mark.parametrize("name", LAWS)
def test_sums_do_not_depend_on_where_groups_of_tiny_blocks_end(name):
    # The engine joins tiny chunks within a group; groups differ between schedulers.
    reduction, maker = LAWS[name]
    rng = np.random.default_rng(6)
    x = rng.standard_normal((120, 4))
    weight = rng.random(120)
    states, _ = maker(rng, x)
    blocks = row_blocks(x, weight, (40, 40, 40))
    joined = [
        RowBlock(x[:80], weight[:80], ((0, 40), (40, 40))),
        RowBlock(x[80:], weight[80:], ((80, 40),)),
    ]
    found = reduce_blocks(reduction, states, joined)
    assert_results_close(found, reduce_blocks(reduction, states, blocks), 0.0)


def test_survey_names_the_first_bad_value_whatever_the_cut():
    x = np.zeros((9, 3))
    x[4, 2], x[4, 1], x[7, 0] = np.nan, -np.inf, np.nan
    for lengths in [(9,), (5, 4), (4, 0, 5), (8, 1), (1,) * 9]:
        (survey,) = reduce_blocks(SURVEY, [SurveyRequest(3)], row_blocks(x, None, lengths))
        assert survey.first_bad == (4, 1)
        assert not survey.bad_is_nan
        assert survey.bad_weight_row is None


def test_survey_sums_the_classes_and_draws_none_of_their_rows():
    x = np.array([[1.0, 0.0], [9.0, 9.0], [5.0, 2.0], [7.0, 7.0], [0.0, 4.0], [3.0, 3.0]])
    weight = np.array([1.0, 0.0, 3.0, 1.0, 2.0, 1.0])
    labels = RowLabels(np.array([0, 1, 2, 4]), np.array([1, 0, 1, 2], np.int32), 3)
    for lengths in [(6,), (1, 0, 5), (2, 2, 2)]:
        (survey,) = reduce_blocks(
            SURVEY, [SurveyRequest(2, (1,), 5, labels)], row_blocks(x, weight, lengths)
        )
        classes = survey.classes
        assert classes.weight.tolist() == [0.0, 4.0, 2.0]
        assert classes.mean.tolist() == [[0.0, 0.0], [4.0, 1.5], [0.0, 4.0]]
        # Row 0: 9 + 2.25; row 2, three times: 1 + 0.25.
        assert classes.scatter.tolist() == [0.0, 15.0, 0.0]
        assert classes.first_weightless == 1
        assert sorted(survey.picks["row"][0]) == [-1, -1, -1, 3, 5]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_survey_names_the_first_bad_weight_whatever_the_cut(bad):
    x, weight = np.zeros((9, 1)), np.ones(9)
    weight[[3, 8]] = bad
    for lengths in [(9,), (5, 4), (3, 0, 6), (1,) * 9]:
        (survey,) = reduce_blocks(SURVEY, [SurveyRequest(1)], row_blocks(x, weight, lengths))
        assert survey.bad_weight_row == 3
        assert survey.first_bad is None


def test_farthest_rows_come_in_order_with_their_cluster_and_weight():
    x = np.array([[0.0], [5.0], [-5.0], [1.0], [20.0], [9.0]])
    weight = np.array([1.0, 2.0, 3.0, 1.0, 0.0, 1.0])
    request = FarthestRequest(np.array([[0.0], [10.0]]), 4)
    (found,) = reduce_blocks(FARTHEST, [request], row_blocks(x, weight, (2, 2, 2)))
    # Row 4 has no weight; rows 1 (tie to cluster 0) and 2 tie by row number; row 0 has distance 0.
    assert found["row"].tolist() == [1, 2, 3, 5]
    assert found["x"].tolist() == [[5.0, 2.0, 0.0], [-5.0, 3.0, 0.0], [1.0, 1.0, 0.0], [9.0, 1, 1]]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("count", [1, 5, 40])
def test_only_the_front_of_the_race_is_measured_and_wins_as_if_all_were(weighted, count):
    """The draws are those of all rows measured against all candidates."""
    rng = np.random.default_rng(count)
    blob = np.repeat(rng.normal(scale=20.0, size=(30, 3)), 100, axis=0)
    x = blob + rng.normal(size=blob.shape)
    weight = rng.integers(0, 3, len(x)).astype(float) if weighted else None
    candidates = x[rng.choice(len(x), 90, replace=False)]
    states = [CandidateRound((candidates[:m],), (7,), m, count) for m in (1, 20, 45, 90)]
    lengths = (1000, 0, 1999, 1)
    (block,) = row_blocks(x, weight, (len(x),))
    carry = None
    for state, found in zip(
        states, reduce_blocks(CANDIDATES, states, row_blocks(x, weight, lengths)), strict=True
    ):
        squared = ((x[:, None] - state.candidates[0]) ** 2).sum(axis=2).min(axis=1)
        mass = squared if weight is None else squared * weight
        with np.errstate(divide="ignore"):
            keys = -np.log(block.uniforms(7, state.round)) / mass
        best = np.argsort(keys, kind="stable")[:count]
        assert found["row"][0].tolist() == best.tolist()
        np.testing.assert_allclose(found["key"][0], keys[best], rtol=1e-9)
        _, carry = CANDIDATES.block(block, state, carry)
    # Most rows were never measured against most candidates.
    assert np.mean(carry[0].seen == len(candidates)) < (0.5 if count < 40 else 1.0)


def test_attraction_of_a_sample_is_right_in_expectation():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 1))
    weight = rng.integers(0, 4, len(x)).astype(float)
    weight[17] = 5000.0
    points = (np.array([[-1.0], [0.0], [1.0]]),)
    blocks = row_blocks(x, weight, (1500, 2500))
    (exact,) = reduce_blocks(ATTRACTED, [Attraction(points, (0,))], blocks)[0]
    owner = np.abs(x - points[0].ravel()).argmin(axis=1)
    assert exact.tolist() == np.bincount(owner, weights=weight).tolist()
    many = np.array(
        [
            reduce_blocks(ATTRACTED, [Attraction(points, (seed,), rate=2.0**-4)], blocks)[0][0]
            for seed in range(200)
        ]
    )
    error = many.std(axis=0, ddof=1) / np.sqrt(len(many))
    assert (error > 0).all()
    assert (np.abs(many.mean(axis=0) - exact) < 4 * error).all()
    # The heavy row is always looked at.
    assert many[:, owner[17]].min() > 5000.0


# The check itself must be able to fail.


def broken(block, merge="sum"):
    return Reduction(
        "broken", lambda state: {"s": Field((2, 1), merge)}, block, lambda p, s: p["s"][0]
    )


def pair(value):
    return {"s": np.array([[float(value)], [0.0]])}


@pytest.mark.parametrize(
    "reduction",
    [
        broken(lambda rows, state: pair(1)),
        broken(lambda rows, state: pair(len(rows.x))),
        broken(lambda rows, state: pair(rows.x.max(initial=0))),
        broken(lambda rows, state: {"s": np.zeros((2, 2))}),
        broken(lambda rows, state: rows.x.sort(axis=0) or pair(0)),
        broken(lambda rows, state: state.append(1) or pair(0)),
    ],
    ids=["not split", "weights ignored", "not a sum", "wrong shape", "writes to x", "writes state"],
)
def test_a_reduction_that_breaks_a_law_is_caught(reduction, monkeypatch):
    # Functions local to a test cannot be pickled; every other law is checked as ever.
    monkeypatch.setattr("daskclust.testing.laws.pickle.loads", lambda _: (reduction, [[]]))
    monkeypatch.setattr("daskclust.testing.laws.pickle.dumps", lambda o: repr(o).encode())
    x = np.array([[1.0], [3.0], [2.0]])
    with pytest.raises((AssertionError, ValueError)):
        check_reduction_laws(reduction, [[]], x, np.array([3.0, 2.0, 0.0]), lengths=(1, 2))


def test_top_records_with_equal_keys_keep_the_lowest_rows():
    field = Field((2,), "top", top_dtype(1))
    parts = []
    for row in (7, 3, 5):
        record = field.identity()
        record["key"][0], record["row"][0] = 1.0, row
        parts.append(record)
    merged = field.combine(field.combine(parts[0], parts[1]), parts[2])
    assert merged["row"].tolist() == [3, 5]
