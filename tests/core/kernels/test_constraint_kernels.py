"""Pair lengths, the ordered pass, implied pairs, violation totals."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from daskclust.core.constraints import PairwiseConstraints, pairs_from_labels
from daskclust.core.kernels import pairs as kernels
from daskclust.exceptions import ConstraintWarning

NO_PAIRS = np.empty((0, 2), dtype=np.int64)
#: Arguments of kernels, by parameter name.
TYPES: dict[str, type] = {
    **dict.fromkeys(("labels", "left", "right", "indptr", "neighbors", "classes"), np.int64),
    **dict.fromkeys(("weights", "pair_weights", "box2", "lengths", "costs", "distances"), float),
    "is_must_link": bool,
}


def typed(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel that takes lists: what estimators have as typed arrays is typed here."""
    signature = inspect.signature(kernel)

    @functools.wraps(kernel)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        for name, value in given.arguments.items():
            if name in TYPES:
                given.arguments[name] = np.asarray(value, dtype=TYPES[name])
        return kernel(*given.args, **given.kwargs)

    return call


explicit_violations = typed(kernels.explicit_violations)
implied_pairs = typed(kernels.implied_pairs)
implied_violations = typed(kernels.implied_violations)
ordered_pass = typed(kernels.ordered_pass)
pair_costs = typed(kernels.pair_costs)
pair_lengths = typed(kernels.pair_lengths)
violated_pairs = typed(kernels.violated_pairs)
pair_contradictions = typed(kernels.pair_contradictions)


def run(
    distances: Any,
    labels: Any,
    must: Any = NO_PAIRS,
    cannot: Any = NO_PAIRS,
    must_cost: Any = 1.0,
    cannot_cost: Any = 1.0,
) -> tuple[list[int], int]:
    """One ordered pass with given costs of the pairs."""
    m = len(distances)
    # Every row touched: a label each, not used here.
    c = index(m, must, cannot)
    costs = np.concatenate(
        [np.broadcast_to(must_cost, len(must)), np.broadcast_to(cannot_cost, len(cannot))]
    )
    new, changed = ordered_pass(
        distances, labels, c.indptr, c.neighbors, costs[c.pair_index], c.is_must_link
    )
    return new.tolist(), changed


def index(m: int, must: Any = NO_PAIRS, cannot: Any = NO_PAIRS) -> PairwiseConstraints:
    """Constraints in which all rows are touched, so that local is global."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConstraintWarning)
        return PairwiseConstraints.from_fit_arguments(
            m, must, cannot, y=(np.arange(m), np.arange(m))
        )


def brute_pass(
    distances: np.ndarray, labels: np.ndarray, must: Any, cannot: Any, cost: Any
) -> np.ndarray:
    """Compute the ordered pass from its definition, cost(i, j, kind) for each pair."""
    labels = labels.copy()
    for i in range(len(distances)):
        score = distances[i].copy()
        for kind, pairs in (("must", must), ("cannot", cannot)):
            for a, b in pairs:
                if i not in (a, b):
                    continue
                other = labels[b if a == i else a]
                if other < 0:
                    continue
                for k in range(len(score)):
                    if (kind == "must") == (other != k):
                        score[k] += cost(a, b, kind)
        labels[i] = np.argmin(score)
    return labels


# --- pair lengths and costs ----------------------------------------------------------------


def test_pair_lengths_by_hand() -> None:
    x = np.array([[0.0, 0.0, 1.0], [3.0, 4.0, 1.0], [1.0, 1.0, 2.0]])
    assert_array_equal(pair_lengths(x, [0, 0, 2], [1, 2, 2], [1, 1, 1]), [25.0, 3.0, 0.0])
    assert_array_equal(pair_lengths(x, [0, 1], [1, 0], [2, 0, 5]), [18.0, 18.0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("p", [1, 3, 4, 7, 50])
def test_pair_lengths_any_input(dtype: Any, p: int) -> None:
    rng = np.random.default_rng(p)
    x = (100 * rng.normal(size=(30, p))).astype(dtype)
    left, right, w = rng.integers(30, size=40), rng.integers(30, size=40), rng.random(p)
    exact = x.astype(np.float64)
    expected = (w * (exact[left] - exact[right]) ** 2).sum(axis=1)
    for rows in (x, np.asfortranarray(x), np.repeat(x, 2, axis=1)[:, ::2]):
        before = rows.copy()
        got = pair_lengths(rows, left, right, w)
        assert got.dtype == np.float64
        assert_allclose(got, expected, rtol=1e-13)
        assert_array_equal(rows, before)


def test_rows_of_other_types_are_refused() -> None:
    # Vector code would take their bytes for floats.
    with pytest.raises(TypeError, match="int16"):
        pair_lengths(np.ones((2, 3), np.int16), [0], [1], np.ones(3))


def test_all_squares_by_hand() -> None:
    # (1, 2) to (0, 0) and (3, 2): 5 + 4; their sum is (3, 2), their squared lengths 0 + 13
    assert kernels._all_squares(5.0, 2, 7.0, 13.0) == 9.0
    # Rounding would make the distance of a point from itself negative.
    assert kernels._all_squares(1.0, 1, 1.0, 1.0 - 1e-15) == 0.0


def test_pair_costs_by_hand() -> None:
    kinds, weights = [True, False], [2.0, 3.0]
    assert_array_equal(pair_costs([4.0, 4.0], kinds, weights, 10.0), [8.0, 18.0])
    assert_array_equal(pair_costs([4, 4], kinds, weights, 10.0, penalty="constant"), [2.0, 3.0])


def test_violated_pairs_by_hand() -> None:
    labels = [0, 0, 1, -1]
    left, right = [0, 0, 0, 0, 0, 3], [1, 2, 1, 2, 3, 0]
    kinds = [True, True, False, False, True, False]
    assert violated_pairs(labels, left, right, kinds).tolist() == [
        False,
        True,
        True,
        False,
        False,
        False,
    ]


def test_pair_contradictions_by_hand() -> None:
    distances = np.array([[0.0, 3.0], [8.0, 1.0], [2.0, 2.5]])
    left, right, kinds = [0, 0, 0, 1], [1, 2, 2, 0], [True, True, False, False]
    assert_array_equal(pair_contradictions(distances, left, right, kinds), [3.0, 0.0, 0.5, 0.0])
    # One cluster: rows cannot be apart.
    assert_array_equal(
        pair_contradictions(distances[:, :1], [0, 0], [1, 2], [True, False]), [0, np.inf]
    )


@given(seed=st.integers(0, 2**32 - 1), k=st.integers(1, 5))
def test_pair_contradictions_by_brute_force(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    distances = rng.integers(0, 6, (8, k)).astype(float)
    ends, kinds = rng.integers(0, 8, (2, 30)), rng.random(30) < 0.5
    for cost, a, b, must in zip(
        pair_contradictions(distances, *ends, kinds), *ends, kinds, strict=True
    ):
        both = distances[a][:, None] + distances[b]
        holds = np.eye(k, dtype=bool) == must
        assert cost == min(both[holds], default=np.inf) - both.min()


def test_without_constraints_it_is_the_nearest_lowest_center() -> None:
    assert run([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]], [-1, -1, -1]) == ([1, 0, 0], 3)
    assert run([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]], [1, 0, 1]) == ([1, 0, 0], 1)


def test_repeated_pairs_count_repeatedly() -> None:
    distances = [[0.0, 1.0], [0.0, 1.0]]
    assert run(distances, [-1, -1], cannot=[[0, 1]] * 3, cannot_cost=0.5)[0] == [0, 1]


# --- ordered pass --------------------------------------------------------------------------


def test_pair_in_both_sets_pays_both() -> None:
    distances = [[0.0, 9.0], [0.0, 1.0]]
    both = {"must": [[0, 1]], "cannot": [[0, 1]]}
    assert run(distances, [-1, -1], **both, must_cost=2.0, cannot_cost=2.9)[0] == [0, 0]
    assert run(distances, [-1, -1], **both, must_cost=2.0, cannot_cost=3.1)[0] == [0, 1]


def test_a_must_link_costs_every_other_cluster() -> None:
    # Partner in cluster 2: clusters 0 and 1 both pay.
    distances = [[0.0, 9.0, 9.0], [9.0, 9.0, 0.0]]
    assert run(distances, [-1, 2], must=[[0, 1]], must_cost=8.0)[0] == [0, 2]
    assert run(distances, [-1, 2], must=[[0, 1]], must_cost=9.5)[0] == [2, 2]


def test_satisfied_must_links_leave_distances_exact() -> None:
    # A penalty far above the distances must not blur them among clusters that pay alike.
    distances = [[0.0, 1.0], [1.0, 1.0 - 1e-15]]
    assert run(distances, [0, -1], cannot=[[0, 1]], cannot_cost=0.0)[0] == [0, 1]
    assert run([[5.0, 5.0 - 1e-15, 9.0], [9, 9, 0.0]], [-1, 2], must=[[0, 1]], must_cost=2.0)[
        0
    ] == [1, 2]


def test_labels_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match=r"labels in \[-1, K\)"):
        run([[1.0, 2.0]], [2])
    with pytest.raises(ValueError, match="m labels"):
        ordered_pass([[1.0, 2.0]], [0, 0], [0, 0, 0], [], [], [])


@st.composite
def problems(draw: st.DrawFn) -> dict[str, Any]:
    """Random rows, pairs and labels; integers (exact ties) or floats."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    m, k, p = draw(st.integers(2, 14)), draw(st.integers(1, 4)), draw(st.integers(1, 5))
    integer = draw(st.booleans())
    x = rng.integers(-3, 4, size=(m, p)).astype(float) if integer else rng.normal(size=(m, p))
    x += draw(st.sampled_from([0.0, 0.0, 7.0, -1000.0]))
    centers = x[rng.integers(m, size=k)] + (0.0 if integer else 0.1 * rng.normal(size=(k, p)))
    w = rng.integers(0, 2, size=p).astype(float) if integer else rng.random(p)
    distances = (w * (x[:, None] - centers) ** 2).sum(axis=2)

    def pairs(n: int) -> np.ndarray:
        i = rng.integers(m, size=n)
        return np.stack([i, (i + rng.integers(1, m, size=n)) % m], axis=1)

    return {
        "x": x,
        "w": w,
        "box2": np.ptp(x, axis=0) ** 2,
        "distances": distances,
        "labels": rng.integers(-1, k, size=m),
        "must": pairs(draw(st.integers(0, 12))),
        "cannot": pairs(draw(st.integers(0, 12))),
        "classes": rng.integers(-1, draw(st.integers(1, 4)), size=m),
        "penalty": draw(st.sampled_from(["distance", "constant"])),
        "integer": integer,
        "weights": draw(st.sampled_from([(1.0, 1.0), (2.0, 0.5), (0.0, 3.0)])),
    }


def price(q: dict[str, Any], must_weight: float, cannot_weight: float) -> Any:
    """Cost of a violated pair by its definition."""

    def cost(i: int, j: int, kind: str) -> float:
        weight = must_weight if kind == "must" else cannot_weight
        if q["penalty"] == "constant":
            return weight
        d2 = (q["x"][i] - q["x"][j]) ** 2
        return weight * float((q["w"] * (d2 if kind == "must" else q["box2"] - d2)).sum())

    return cost


@given(problems())
def test_explicit_pass_against_brute_force(q: dict[str, Any]) -> None:
    c = index(len(q["x"]), q["must"], q["cannot"])
    lengths = pair_lengths(q["x"], c.pair_left, c.pair_right, q["w"])
    box = float((q["w"] * q["box2"]).sum())
    costs = pair_costs(lengths, c.pair_is_must_link, c.pair_weight, box, penalty=q["penalty"])
    got, changed = ordered_pass(
        q["distances"], q["labels"], c.indptr, c.neighbors, costs[c.pair_index], c.is_must_link
    )
    want = brute_pass(q["distances"], q["labels"], q["must"], q["cannot"], price(q, 1.0, 1.0))
    assert_array_equal(got, want)
    assert changed == np.count_nonzero(got != q["labels"])


# --- implied pairs -------------------------------------------------------------------------


def listed(classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All pairs the labels imply."""
    return pairs_from_labels(classes)


@given(problems(), st.booleans())
def test_implied_pass_equals_listed_pairs(q: dict[str, Any], with_pairs: bool) -> None:
    must_weight, cannot_weight = q["weights"]
    must, cannot = (q["must"], q["cannot"]) if with_pairs else (NO_PAIRS, NO_PAIRS)
    m = len(q["x"])
    c = index(m, must, cannot)
    lengths = pair_lengths(q["x"], c.pair_left, c.pair_right, q["w"])
    box = float((q["w"] * q["box2"]).sum())
    given_weights = np.where(c.pair_is_must_link, must_weight, cannot_weight)
    costs = pair_costs(lengths, c.pair_is_must_link, given_weights, box, penalty=q["penalty"])
    implied = implied_pairs(
        q["x"],
        q["classes"],
        q["w"],
        q["box2"],
        must_link_weight=must_weight,
        cannot_link_weight=cannot_weight,
        penalty=q["penalty"],
    )
    all_must, all_cannot = listed(q["classes"])
    all_must, all_cannot = np.concatenate([must, all_must]), np.concatenate([cannot, all_cannot])
    labels = q["labels"]
    # Several passes: labels of the pass before count too.
    for _ in range(3):
        got, changed = ordered_pass(
            q["distances"],
            labels,
            c.indptr,
            c.neighbors,
            costs[c.pair_index],
            c.is_must_link,
            implied,
        )
        cost = price(q, must_weight, cannot_weight)
        want = brute_pass(q["distances"], labels, all_must, all_cannot, cost)
        # Float data has no ties except by symmetry (two rows, one center between them).
        assert_array_equal(got, want)
        assert changed == np.count_nonzero(got != labels)
        labels = got


def test_implied_pairs_by_hand() -> None:
    # One feature; classes {0, 10} and {1}; clusters at 0 and 10.
    x = np.array([[0.0], [10.0], [1.0]])
    distances = (x - np.array([[0.0, 10.0]])) ** 2
    implied = implied_pairs(x, [0, 0, 1], [1.0], [100.0])
    c = index(3)
    got, _ = ordered_pass(distances, [-1] * 3, c.indptr, [], [], [], implied)
    # Row 1: 100 at cluster 0, 0 + 100 (must-link) at cluster 1: the tie goes to 0.
    # Row 2: 1 + (100 - 1) + (100 - 81) = 119 at cluster 0, 81 at cluster 1.
    assert got.tolist() == [0, 0, 1]


def test_far_from_the_origin() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(60, 4))
    classes, labels = rng.integers(-1, 3, size=60), rng.integers(3, size=60)
    distances, w, box2 = rng.random((60, 3)), np.ones(4), np.ptp(x, axis=0) ** 2
    c = index(60)
    here, there = (
        ordered_pass(
            distances, labels, c.indptr, [], [], [], implied_pairs(x + shift, classes, w, box2)
        )[0]
        for shift in (0.0, 1e7)
    )
    assert_array_equal(here, there)


def test_labels_without_any_class() -> None:
    x = np.arange(4.0).reshape(2, 2)
    implied = implied_pairs(x, [-1, -1], [1.0, 1.0], [4.0, 4.0])
    c = index(2)
    got, _ = ordered_pass([[1.0, 0.0], [0.0, 1.0]], [-1, -1], c.indptr, [], [], [], implied)
    assert got.tolist() == [1, 0]


# --- violation totals ----------------------------------------------------------------------


def test_violations_by_hand() -> None:
    x = np.array([[0.0, 1.0], [3.0, 1.0], [1.0, 5.0]])
    got = explicit_violations(
        x, [0, 1, 1], [0, 1, 0, 0], [1, 2, 1, 2], [True, False, False, True], [2, 3, 1, 1], [9, 16]
    )
    # Must-links 0-1 (weight 2: 2 * (9, 0)) and 0-2 (1, 16); cannot-link 1-2 (weight 3).
    assert_array_equal(got.must_link, [19.0, 16.0])
    assert_array_equal(got.cannot_link, [3 * (9 - 4), 0.0])
    assert (got.must_link_mass, got.cannot_link_mass) == (3.0, 3.0)
    assert (got.n_must_link, got.n_cannot_link) == (2, 1)
    assert_array_equal(got.feature_sums(), [34.0, 16.0])
    assert got.objective(np.array([1.0, 0.5])) == 42.0
    assert got.objective(np.array([1.0, 0.5]), penalty="constant") == 6.0


def test_no_violation_is_exactly_nothing() -> None:
    x = np.random.default_rng(0).normal(size=(9, 3)) + 1e3
    classes = np.repeat([0, 1, 2], 3)
    got = implied_violations(x, 2 - classes, classes, np.ptp(x, axis=0) ** 2)
    assert (got.n_must_link, got.n_cannot_link) == (0, 0)
    assert_array_equal(got.feature_sums(), np.zeros(3))


@given(problems())
def test_implied_violations_equal_listed_pairs(q: dict[str, Any]) -> None:
    must_weight, cannot_weight = q["weights"]
    must, cannot = listed(q["classes"])
    pairs = np.concatenate([must, cannot])
    kinds = np.arange(len(pairs)) < len(must)
    want = explicit_violations(
        q["x"],
        q["labels"],
        pairs[:, 0],
        pairs[:, 1],
        kinds,
        np.where(kinds, must_weight, cannot_weight),
        q["box2"],
    )
    got = implied_violations(
        q["x"],
        q["labels"],
        q["classes"],
        q["box2"],
        must_link_weight=must_weight,
        cannot_link_weight=cannot_weight,
    )
    scale = 1 + q["box2"].max() * len(pairs)
    assert_allclose(got.must_link, want.must_link, rtol=0, atol=1e-13 * scale)
    assert_allclose(got.cannot_link, want.cannot_link, rtol=0, atol=1e-13 * scale)
    assert (got.n_must_link, got.n_cannot_link) == (want.n_must_link, want.n_cannot_link)
    assert_allclose(got.objective(q["w"]), want.objective(q["w"]), rtol=0, atol=1e-12 * scale)
    assert_allclose(
        got.objective(q["w"], penalty="constant"), want.objective(q["w"], penalty="constant")
    )


@given(problems())
def test_explicit_violations_against_brute_force(q: dict[str, Any]) -> None:
    c = index(len(q["x"]), q["must"], q["cannot"])
    got = explicit_violations(
        q["x"],
        q["labels"],
        c.pair_left,
        c.pair_right,
        c.pair_is_must_link,
        c.pair_weight,
        q["box2"],
    )
    cost, labels, total = price(q, 1.0, 1.0), q["labels"], 0.0
    for kind, pairs in (("must", q["must"]), ("cannot", q["cannot"])):
        for i, j in pairs:
            if min(labels[i], labels[j]) >= 0 and (labels[i] == labels[j]) == (kind == "cannot"):
                total += cost(i, j, kind)
    assert got.objective(q["w"], penalty=q["penalty"]) == pytest.approx(total, rel=1e-12, abs=1e-9)


def test_totals_add_up() -> None:
    x, box2 = np.array([[0.0], [1.0], [5.0]]), [25.0]
    one = explicit_violations(x, [0, 1, 1], [0], [1], [True], [2.0], box2)
    two = implied_violations(x, [0, 1, 1], [-1, 0, 1], box2)
    both = one + two
    assert both.must_link.tolist() == [2.0]
    assert both.cannot_link.tolist() == [25.0 - 16.0]
    assert (both.must_link_mass, both.cannot_link_mass) == (2.0, 1.0)
    assert (both.n_must_link, both.n_cannot_link) == (1, 1)


def test_the_pass_score_is_the_change_of_the_objective() -> None:
    # With everything else fixed, moving row i changes distances plus violations by the score.
    rng = np.random.default_rng(5)
    x, classes = rng.normal(size=(20, 3)), rng.integers(-1, 3, size=20)
    centers, box2, w = rng.normal(size=(3, 3)), np.ptp(x, axis=0) ** 2, np.ones(3)
    distances = ((x[:, None] - centers) ** 2).sum(axis=2)
    labels = rng.integers(3, size=20)
    c = index(20)
    implied = implied_pairs(x, classes, w, box2)

    def objective(labels: np.ndarray) -> float:
        inertia = distances[np.arange(20), labels].sum()
        return float(inertia + implied_violations(x, labels, classes, box2).objective(w))

    for _ in range(5):
        new, changed = ordered_pass(distances, labels, c.indptr, [], [], [], implied)
        assert objective(new) <= objective(labels) + 1e-9
        if not changed:
            break
        labels = new
    else:
        pytest.fail("the passes did not settle")


@pytest.mark.parametrize("penalty", ["distance", "constant"])
def test_kept_statistics_change_nothing(penalty: Any) -> None:
    """Passes with one preparation, whose statistics are kept, equal passes with a new one each."""
    rng = np.random.default_rng(0)
    x, classes = rng.normal(size=(30, 3)), rng.integers(-1, 3, 30)
    indptr, none = np.zeros(31, dtype=np.int64), np.empty(0, dtype=np.int64)

    def prepared() -> Any:
        return implied_pairs(x, classes, np.ones(3), np.full(3, 9.0), penalty=penalty)

    kept = prepared()
    one = other = np.full(30, -1)
    n_kept = 0
    for scale in (1.0, 1.0, 1.0, 1.0, 50.0, 50.0, 50.0, 1.0):
        for k in (4, 4, 4, 4, 3, 3):  # another number of clusters does not mislead it either
            distances = scale * ((x[:, None] - x[:k]) ** 2).sum(axis=2)
            one, other = np.minimum(one, k - 1), np.minimum(other, k - 1)
            n_kept += "labels" in kept.kept and np.array_equal(kept.kept["labels"], one)
            one, moved = ordered_pass(distances, one, indptr, none, none, none, kept)
            other, want = ordered_pass(distances, other, indptr, none, none, none, prepared())
            assert_array_equal(one, other)
            assert moved == want
    assert n_kept > 0
