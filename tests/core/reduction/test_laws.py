"""Every reduction of the package obeys the laws the engine relies on."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import cloudpickle
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import daskclust
from daskclust.cluster.dpmeans import FOUNDING, Founders, FoundingRequest
from daskclust.cluster.level_updates import LEAF_SUMS
from daskclust.core.estimator.transforms import COVARIANCE, MeanState
from daskclust.core.kernels.nearest.bounds import moves_of
from daskclust.core.kernels.nearest.k_nearest import CenterTree
from daskclust.core.reduction import (
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
    Merge,
    Reduction,
    RowBlock,
    RowLabels,
    SpreadRequest,
    SurveyRequest,
)
from daskclust.core.reduction.assign import (
    ASSIGN_WITH_BOUNDS,
    LEAF_STATISTICS,
    LeafQuery,
    MovedCenters,
)
from daskclust.core.reduction.connectivity import CELLS, CONNECTIVITY, CellRequest, Connectivity
from daskclust.core.reduction.contract import top_dtype
from daskclust.core.reduction.label_tables import (
    AGREEMENT,
    CONTINGENCY,
    LABEL_MOMENTS,
    AgreementRequest,
    LabelMomentsRequest,
)
from daskclust.core.reduction.row_views import BATCH, Request, Transformed
from daskclust.core.reduction.survey import PARTIAL_SURVEY
from daskclust.core.storage.shuffle_files import GroupedRows, TemporaryFolder
from daskclust.density.cells import grow_boxes
from daskclust.density.dbscan import SORT_ROWS, SortRequest
from daskclust.explain.profile_kernels import choose_bins
from daskclust.explain.profile_reductions import (
    LABEL_HISTOGRAMS,
    LABEL_SAMPLE,
    CenterDistances,
    HistogramsRequest,
    LabelSampleRequest,
)
from daskclust.mixture.densities import Mixtures
from daskclust.mixture.reductions import (
    EXPECTATION,
    GRAM,
    GRAM_STORED,
    INITIAL_SUMS,
    LIKELIHOOD,
    GramRequest,
    InitialPosteriors,
    MixtureStack,
)
from daskclust.testing import (
    assert_results_close,
    check_merge_laws,
    check_reduction_laws,
    reduce_blocks,
    reduce_groups,
    row_blocks,
)
from daskclust.testing.strategies import row_chunks

Maker = Callable[..., tuple[list[Any], Callable[[Any], Any]]]

#: The reductions that are tested below, how to make their states from some rows, and the fewest
#: columns that these have.
LAWS: dict[str, tuple[Reduction, Maker, int]] = {}
#: Temporary folders of reductions that write.
FOLDERS: list[TemporaryFolder] = []
#: Reductions that refuse weights which are not whole numbers.
COUNTS_ROWS = {CONTINGENCY.name}


def law(reduction: Reduction, columns: int = 1, name: str = ""):
    """Register a maker of (states, what repetition leaves alone).

    A maker may put missing values into the rows.
    """

    def register(maker):
        LAWS[name or reduction.name] = (reduction, maker, columns)
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


@law(ASSIGN_WITH_BOUNDS)
def kept_states(rng, x):
    shift, dtype = np.full(x.shape[1], 0.25), x.dtype
    centers = rng.integers(-2, 3, (1, 5, x.shape[1])).astype(float)
    after = centers + 0.25 * rng.integers(-1, 2, centers.shape)
    fresh, moved = (CenterSets(points, shift=shift) for points in (centers, after))
    moves = moves_of(centers[0], after[0], shift, dtype)
    return [MovedCenters(fresh), MovedCenters(moved, moves)], everything


@law(LEAF_STATISTICS)
@law(LEAF_SUMS)
def leaf_states(rng, x):
    p = x.shape[1]
    parents = rng.integers(-2, 3, (3, p)).astype(float)
    leaves = rng.integers(-2, 3, (6, p)).astype(np.float32)
    tree = CenterTree((parents, leaves), (np.array([0, 1, 4, 6]),))
    return [LeafQuery(tree, n_probe) for n_probe in (1, 2, None)], everything


@law(SORT_ROWS)
def sharing_states(rng, x):
    folder = TemporaryFolder.beside(None)
    record = np.dtype([("row", "i8"), ("x", x.dtype.str, (x.shape[1],))])
    tree = grow_boxes(rng.normal(size=(50, x.shape[1])), 10, 0.1)
    store = GroupedRows(folder.make("rows"), record)
    FOLDERS.append(folder)

    def boxes(found):
        # Rows are counted, independent of their weights.
        return found.shape

    return [SortRequest(tree, 0.5, store)], boxes


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
        # The variance of equal values is rounding of the squares of their mean.
        variance = np.stack([survey.variance, survey.mean**2])
        return survey.weight, survey.mean, variance, survey.low, survey.high

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


@law(FOUNDING)
def founding_states(rng, x):
    means = rng.integers(-2, 3, (3, x.shape[1])).astype(float)
    nobody = Founders.without_rows(x.shape[1])
    # None may found a cluster: with rows that may, see the test of right guesses.
    requests = [FoundingRequest(means, nobody, 0.5, 3, shift) for shift in (means[0], means[0] + 1)]
    return requests, everything


@law(CONTINGENCY, columns=2)
def contingency_states(rng, x):
    return [None], everything


def _first_column(x):
    return np.ascontiguousarray(x[:, :1], dtype=np.float64)


def _as_float64(x):
    return x.astype(np.float64)


@law(CONNECTIVITY)
def connectivity_states(rng, x):
    nodes = (rng.normal(size=(5, x.shape[1])), rng.normal(size=(4, 1)))
    return [Connectivity((_as_float64, _first_column), nodes, 2)], everything


def _sign(x):
    return (x[:, 0] > 0).astype(np.int32)


def _large(x):
    return (np.abs(x[:, -1]) > 1) + 1


@law(AGREEMENT)
def agreement_states(rng, x):
    return [
        AgreementRequest(_sign, (_large, _sign), 3),
        AgreementRequest(_large, (), 3),
    ], everything


def _distance_to_one(x):
    return np.column_stack([np.exp(-np.abs(x[:, 0] - 1)), np.ones(len(x))])


@law(CELLS)
def cell_states(rng, x):
    def sums(table):
        # Repetition gives other row numbers.
        return table.counts, table.uncertainties, table.near, table.is_row

    p = x.shape[1]
    nodes, labeled = rng.normal(size=(5, p)), np.concatenate([x[:2], rng.normal(size=(1, p))])
    known = np.sort(rng.choice(len(x), min(len(x), 2), replace=False))
    return [
        CellRequest(_as_float64, nodes, known, labeled, _distance_to_one, 2, 3, 7, known),
        CellRequest(_as_float64, nodes[:1], known[:0], labeled[:0]),
    ], sums


@law(LABEL_MOMENTS, columns=2)
def label_moments_states(rng, x):
    return [LabelMomentsRequest(x.shape[1] - 1, ignored) for ignored in (None, 0)], everything


@law(LABEL_SAMPLE, columns=2)
def label_sample_states(rng, x):
    x[:, :-1][rng.random((len(x), x.shape[1] - 1)) < 0.2] = np.nan

    def facts(sample):
        # Repetition gives other row numbers, and so other draws.
        return sample[:5]

    p = x.shape[1] - 1
    return [
        LabelSampleRequest(p, 3, 0.2, 2),
        LabelSampleRequest(p, 4, 1.0, 1, ignored=0),
    ], facts


@law(LABEL_HISTOGRAMS, columns=2)
def label_histogram_states(rng, x):
    x[:, :-1][rng.random((len(x), x.shape[1] - 1)) < 0.2] = np.nan
    rows, labels = x[:, :-1], x[:, -1].astype(np.int64)
    bins = choose_bins(rows, labels, np.ones(len(x), bool), 9)
    center_distances = CenterDistances(
        rng.normal(size=(2, rows.shape[1])), np.full(rows.shape[1], 0.5)
    )

    def counts(found):
        return found.counts

    # Weights are any: whole ones are counted in whole numbers where their sum is known to be small.
    return [HistogramsRequest(np.array([-1, 2]), bins, center_distances, 3, np.inf)], counts


@law(COVARIANCE)
def covariance_states(rng, x):
    return [MeanState(np.full(x.shape[1], 0.5))], everything


def with_gaps(maker):
    """The same states for rows with missing values, some of them without any value."""

    def gapped(rng, x):
        states, invariant = maker(rng, x)
        x[rng.random(x.shape) < 0.3] = np.nan
        x[rng.random(len(x)) < 0.1] = np.nan
        return [replace(state, missing=True) for state in states], invariant

    return gapped


for _reduction, _maker in (
    (ASSIGN, assign_states),
    (FARTHEST, farthest_states),
    (FARTHEST_FIRST, farthest_first_states),
    (CANDIDATES, candidate_states),
    (ATTRACTED, attraction_states),
):
    law(_reduction, name=f"{_reduction.name}, missing values")(with_gaps(_maker))


@law(PARTIAL_SURVEY)
def partial_survey_states(rng, x):
    states, _ = survey_states(rng, x)
    half = slice(len(x) // 2, None)
    # Some chunks are complete.
    x[half][rng.random(x[half].shape) < 0.3] = np.nan

    def moments(survey):
        # Not the classes: labels are of row numbers, which repetition moves.
        variance = np.stack([survey.variance, survey.mean**2])
        found = survey.weight, survey.mean, variance, survey.low, survey.high
        return *found, survey.observed, survey.informed

    return states, moments


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


@law(GRAM_STORED)
def kept_gram_states(rng, x):
    return gram_requests(rng, x), everything


def all_reductions() -> dict[str, Reduction]:
    """Return all Reductions in the modules of the package."""
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
    tested = {id(reduction) for reduction, *_ in LAWS.values()}
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
    reduction, maker, columns = LAWS[name]
    n, p = data.draw(st.integers(1, 60)), data.draw(st.integers(columns, 5))
    # Each block is merged with two others in each order: of six there are all kinds.
    lengths = data.draw(row_chunks(n, max_chunks=6))
    seed = data.draw(st.integers(0, 2**32 - 1))
    dtype = data.draw(st.sampled_from([np.float32, np.float64]))
    weightings = ["none", "integer", "real"][: 2 if name in COUNTS_ROWS else 3]
    weighting = data.draw(st.sampled_from(weightings))
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
    reduction, maker, _ = LAWS[name]
    rng = np.random.default_rng(5)
    x = rng.standard_normal((10_000, 3)) + 100.0
    states, _ = maker(rng, x)
    whole = reduce_blocks(reduction, states, row_blocks(x, None, (10_000,)))
    for lengths in [(1, 9999), (4096, 4096, 1808), (5000, 0, 5000), (100,) * 100]:
        found = reduce_blocks(reduction, states, row_blocks(x, None, lengths))
        assert_results_close(found, whole)


def test_drawn_rows_do_not_depend_on_the_cut():
    # Rows are drawn by number, so the laws about repeated rows do not hold.
    x = np.random.default_rng(3).standard_normal((200, 3))
    drawn = Connectivity((_as_float64,), (x[:5],), 2, fraction=0.5, seed=1)
    whole = reduce_blocks(CONNECTIVITY, [drawn], row_blocks(x, None, (200,)))
    n_counted = whole[0][0].counts.sum()
    assert 70 <= n_counted <= 130
    for lengths in [(1, 199), (50, 0, 150), (20,) * 10]:
        found = reduce_blocks(CONNECTIVITY, [drawn], row_blocks(x, None, lengths))
        assert_results_close(found, whole)


@pytest.mark.parametrize("name", LAWS)
def test_sums_do_not_depend_on_where_groups_of_tiny_blocks_end(name):
    # The engine joins tiny chunks within a group; groups differ between schedulers.
    reduction, maker, _ = LAWS[name]
    rng = np.random.default_rng(6)
    x = rng.standard_normal((120, 4))
    weight = rng.integers(0, 4, 120).astype(float) if name in COUNTS_ROWS else rng.random(120)
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
    """The draws equal those from comparing all rows with all candidates."""
    rng = np.random.default_rng(count)
    blob = np.repeat(rng.normal(scale=20.0, size=(30, 3)), 100, axis=0)
    x = blob + rng.normal(size=blob.shape)
    weight = rng.integers(0, 3, len(x)).astype(float) if weighted else None
    candidates = x[rng.choice(len(x), 90, replace=False)]
    states = [CandidateRound((candidates[:m],), (7,), m, count) for m in (1, 20, 45, 90)]
    lengths = (1000, 0, 1999, 1)
    blocks, (block,) = row_blocks(x, weight, lengths), row_blocks(x, weight, (len(x),))
    carry = None
    alone = reduce_blocks(CANDIDATES, states, blocks)
    grouped = reduce_groups(CANDIDATES, states, [blocks])
    for state, found, of_group in zip(states, alone, grouped, strict=True):
        assert_results_close(of_group, found, 0.0)
        squared = ((x[:, None] - state.candidates[0]) ** 2).sum(axis=2).min(axis=1)
        mass = squared if weight is None else squared * weight
        with np.errstate(divide="ignore"):
            keys = -np.log(block.uniforms(7, state.round)) / mass
        best = np.argsort(keys, kind="stable")[:count]
        assert found["row"][0].tolist() == best.tolist()
        np.testing.assert_allclose(found["key"][0], keys[best], rtol=1e-9)
        _, carry = CANDIDATES.step(CANDIDATES.identity(state), block, state, carry)
    # Most rows were never measured against most candidates.
    assert np.mean(carry[0].seen == len(candidates)) < (0.5 if count < 40 else 1.0)


def test_a_block_measures_no_rows_that_others_have_beaten():
    rng = np.random.default_rng(0)
    blob = np.repeat(rng.normal(scale=20.0, size=(30, 3)), 200, axis=0)
    x = rng.permutation(blob + rng.normal(size=blob.shape))
    candidates = x[:80]
    states = [CandidateRound((candidates[:m],), (7,), m, 20) for m in (1, 40, 80)]
    blocks = row_blocks(x, None, (1000,) * 6)
    measured, carries = [], [None] * len(blocks)
    for state in states:
        before = CANDIDATES.identity(state)
        for i, block in enumerate(blocks):
            before, carries[i] = CANDIDATES.step(before, block, state, carries[i])
        measured.append(
            [int((carry[0].seen == len(state.candidates[0])).sum()) for carry in carries]
        )
    # The first of a group measures six times as many as may be among the first of all.
    assert measured[-1][-1] < 0.5 * measured[-1][0]


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


@given(data=st.data())
def test_founders_do_not_depend_on_the_cut_once_they_are_guessed_right(data):
    n, p = data.draw(st.integers(1, 60)), data.draw(st.integers(1, 4))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    x = rng.integers(-4, 5, (n, p)) + rng.random((n, p))
    weight = rng.integers(0, 3, n).astype(float) if data.draw(st.booleans()) else None
    request = FoundingRequest(
        x[:1] + 0.5,
        Founders.without_rows(p),
        data.draw(st.sampled_from([0.1, 3.0, 20.0])),
        data.draw(st.sampled_from([None, 4])),
        np.zeros(p),
    )
    # One group finds its own founders in row order: nothing is there to guess.
    serial = reduce_blocks(FOUNDING, [request], row_blocks(x, weight, (n,)))[0].founders
    check_reduction_laws(
        FOUNDING,
        [replace(request, guess=serial)],
        x,
        weight,
        lengths=data.draw(row_chunks(n)),
        # Founders are named by their row, which repetition changes.
        repetition_invariant=lambda found: None,
    )


def test_a_batch_tells_sequential_reductions_what_went_before():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 2)) * 5
    request = FoundingRequest(x[:2], Founders.without_rows(2), 9.0, None, np.zeros(2))
    blocks = row_blocks(x, None, (100, 50, 150))
    batch = (Request(SURVEY, SurveyRequest(2)), Request(FOUNDING, request))
    before = BATCH.identity(batch)
    alone = FOUNDING.identity(request)
    for block in blocks:
        before = BATCH.add(before, block, batch)
        alone = FOUNDING.add(alone, block, request)
    survey, founding = BATCH.finalize(before, batch)
    assert len(founding.founders) > 5
    assert_results_close(founding, FOUNDING.finalize(alone, request), 0.0)
    assert_results_close(survey, reduce_blocks(SURVEY, [SurveyRequest(2)], blocks)[0], 0.0)


def test_labels_that_occur_by_hand():
    x = np.array([[1.0, 5.0], [3.0, 5.0], [9.0, 7.0], [0.0, -1.0]])
    for lengths in [(4,), (1, 0, 3), (1, 1, 1, 1)]:
        blocks = row_blocks(x, None, lengths)
        (moments,) = reduce_blocks(LABEL_MOMENTS, [LabelMomentsRequest(1, -1)], blocks)
        assert moments.labels.tolist() == [5, 7]
        assert moments.means.tolist() == [[2.0], [9.0]]
        assert moments.squares.tolist() == [2.0, 0.0]
        (table,) = reduce_blocks(CONTINGENCY, [None], blocks)
        assert table.tolist() == [[0, -1, 1], [1, 5, 1], [3, 5, 1], [9, 7, 1]]


def test_pairs_of_labels_refuse_weights_that_are_not_whole():
    with pytest.raises(
        ValueError, match=r"Weights of label pairs must be integers, because pairs are counted\."
    ):
        reduce_blocks(CONTINGENCY, [None], row_blocks(np.zeros((2, 2)), np.array([1, 0.5]), (2,)))


def _log_add(a, b):
    return np.logaddexp(a, b)


def _nothing(shape, dtype):
    return np.full(shape, -np.inf, dtype)


def _log_sizes(rows, state):
    weight = np.ones(len(rows.x)) if rows.weight is None else rows.weight
    with np.errstate(divide="ignore"):
        return {"total": np.log(np.array([weight.sum()]))}


def _only_total(partial, state):
    return float(partial["total"][0])


def _log_fields(state):
    return {"total": Field((1,), Merge("log of a sum", _nothing, _log_add))}


def test_a_merge_of_another_kind_needs_no_change_of_the_contract():
    total = Reduction("log-total", _log_fields, _log_sizes, _only_total)
    x = np.arange(10.0).reshape(5, 2)
    check_reduction_laws(total, [None], x, np.array([0, 1, 2, 3, 0.0]), lengths=(2, 0, 3))
    assert np.isclose(reduce_blocks(total, [None], row_blocks(x, None, (4, 1)))[0], np.log(5))


@pytest.mark.parametrize(
    ("combine", "law_broken"),
    [
        (np.subtract, "Not equal"),
        (lambda a, b: a, "Not equal"),
        (lambda a, b: np.hypot(a, b) + np.where((a == 0) | (b == 0), 0, 1e-3), "Not equal"),
        (lambda a, b: np.add(a, b, out=a), "modifies its arguments"),
        (lambda a, b: (a + b)[:1], "merged"),
        (lambda a, b: (a + b).astype(np.float32), "merged"),
    ],
    ids=["not commutative", "first only", "not associative", "in place", "shape", "type"],
)
def test_a_merge_that_breaks_a_law_is_caught(combine, law_broken, monkeypatch):
    # Functions of a test cannot be pickled otherwise.
    monkeypatch.setattr("daskclust.testing.laws.pickle", cloudpickle)
    field = Field((2,), Merge("broken", np.zeros, combine))
    parts = [np.array([1.0, 2.0]), np.array([3.0, 4.0]), np.array([5.0, 6.0])]
    with pytest.raises(AssertionError, match=law_broken):
        check_merge_laws(field, parts)


def test_a_name_that_stands_for_no_merge_is_refused():
    with pytest.raises(
        ValueError, match=r"merge must be a Merge or one of .*'moments'.*got 'median'"
    ):
        Field((2,), "median")


# The check itself must be able to fail.


def broken(block, merge="sum"):
    return Reduction(
        "broken", lambda state: {"s": Field((2, 1), merge)}, block, lambda p, s: p["s"][0]
    )


def sequential(add):
    return replace(broken(lambda rows, state, before: add(rows, before)), sequential=True)


def add_in_place(rows, before):
    before["s"][0] += len(rows.x) if rows.weight is None else rows.weight.sum()
    return before


def pair(value):
    return {"s": np.array([[float(value)], [0.0]])}


@pytest.mark.parametrize(
    ("reduction", "law_broken"),
    [
        (broken(lambda rows, state: pair(1)), "Not equal"),
        (broken(lambda rows, state: pair(len(rows.x))), "Not equal"),
        (broken(lambda rows, state: pair(rows.x.max(initial=0))), "Not equal"),
        (broken(lambda rows, state: {"s": np.zeros((2, 2))}), "broken"),
        (broken(lambda rows, state: rows.x.sort(axis=0) or pair(0)), "read-only"),
        (broken(lambda rows, state: state.append(1) or pair(0)), "modifies its inputs"),
        (sequential(add_in_place), "modifies the previous partial"),
        (sequential(lambda rows, before: pair(before["s"][0, 0] + 1)), "Not equal"),
    ],
    ids=[
        "not split",
        "weights ignored",
        "not a sum",
        "wrong shape",
        "writes to x",
        "writes state",
        "modifies the previous partial",
        "counts blocks",
    ],
)
def test_a_reduction_that_breaks_a_law_is_caught(reduction, law_broken, monkeypatch):
    # Functions of a test cannot be pickled otherwise.
    monkeypatch.setattr("daskclust.testing.laws.pickle", cloudpickle)
    x = np.array([[1.0], [3.0], [2.0]])
    with pytest.raises((AssertionError, ValueError), match=law_broken):
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
