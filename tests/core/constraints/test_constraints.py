"""PairwiseConstraints and pairs_from_labels."""

from __future__ import annotations

import itertools
import pickle
import warnings
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from daskclust.core.constraints import PairwiseConstraints, pairs_from_labels
from daskclust.exceptions import ConstraintError, ConstraintWarning


def make(*arguments: Any, hard: bool = False, **keywords: Any) -> PairwiseConstraints:
    """Read constraints, and hear about their contradictions."""
    constraints = PairwiseConstraints.from_fit_arguments(*arguments, **keywords)
    if hard:
        constraints.refuse_contradictions()
    constraints.warn_of_contradictions()
    return constraints


# --- indexing ------------------------------------------------------------------------------


def test_index_by_hand() -> None:
    c = make(100, [[7, 3], [90, 7]], [[3, 50]], [2.0, 3.0], 5.0, ([50, 60, 61], [4, 9, -1]))
    assert c.rows.tolist() == [3, 7, 50, 60, 90]
    assert c.pair_left.tolist() == [1, 4, 0]
    assert c.pair_right.tolist() == [0, 1, 2]
    assert c.pair_is_must_link.tolist() == [True, True, False]
    assert c.pair_weight.tolist() == [2.0, 3.0, 5.0]
    assert c.indptr.tolist() == [0, 2, 4, 5, 5, 6]
    assert c.neighbors.tolist() == [2, 1, 0, 4, 0, 1]
    assert c.pair_index.tolist() == [2, 0, 0, 1, 2, 1]
    assert c.is_must_link.tolist() == [False, True, True, True, False, True]
    assert c.classes.tolist() == [-1, -1, 0, 1, -1]
    assert c.class_values.tolist() == [4, 9]
    assert (c.n_pairs, len(c.rows), c.n_classes) == (3, 5, 2)
    # An array of weights is about the pairs listed; a number is about the implied ones as well.
    assert (c.implied_must_link_weight, c.implied_cannot_link_weight) == (1.0, 5.0)
    assert c.n_contradictions == 0


@pytest.mark.parametrize("empty", [None, [], np.empty((0, 2)), np.empty((0, 2), dtype=int)])
def test_no_constraints(empty: Any) -> None:
    c = make(10, empty, empty, y=([], []))
    assert (c.n_pairs, len(c.rows), c.n_classes) == (0, 0, 0)
    assert c.indptr.tolist() == [0]
    assert c.component.shape == (0,)
    assert c.contradicting(np.empty(0, np.int64), np.empty((0, 2))).shape == (0,)


def test_repeats_are_kept() -> None:
    c = make(3, [[0, 1], [1, 0], [0, 1]])
    assert c.n_pairs == 3
    assert c.indptr.tolist() == [0, 3, 6]
    found = c.contradicting(np.array([0, 1]), np.array([[0.0, 5.0], [2.0, 0.0]]))
    assert found[["i", "j", "cost"]].tolist() == [(0, 1, 2.0), (1, 0, 2.0), (0, 1, 2.0)]


def test_inputs_are_not_changed_or_aliased() -> None:
    must, weight = np.array([[0, 1]]), np.array([2.0])
    c = make(2, must, must_link_weight=weight)
    must[:], weight[:] = 0, 0
    assert c.pair_right.tolist() == [1]
    assert c.pair_weight.tolist() == [2.0]


def test_unsigned_and_small_integers() -> None:
    for dtype in (np.uint8, np.int16, np.uint64):
        assert make(10, np.array([[0, 9]], dtype=dtype)).rows.tolist() == [0, 9]


def test_labels_never_list_pairs() -> None:
    # 200 000 labels imply 2e10 pairs.
    n = 200_000
    c = make(n, y=(np.arange(n), np.arange(n) % 5))
    assert c.n_classes == 5
    assert c.n_pairs == 0


# --- refusals ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"must_link": [0, 1]}, r"must_link must have shape \(m, 2\).*got \(2,\)"),
        ({"cannot_link": [[0, 1, 2]]}, r"cannot_link must have shape \(m, 2\).*got \(1, 3\)"),
        ({"must_link": np.empty((0, 3))}, r"must_link must have shape \(m, 2\).*got \(0, 3\)"),
        ({"must_link": [[0, 1], [2]]}, "must_link must be an array of integers"),
        ({"must_link": [[True, False]]}, r"dtype bool.*flatnonzero"),
        ({"must_link": [[0.0, 1.0]]}, r"dtype float64.*must_link\.astype\(numpy\.int64\)"),
        ({"must_link": [[0.5, 1.0]]}, r"dtype float64.*not integers"),
        ({"must_link": [[np.nan, 1.0]]}, r"not integers"),
        ({"must_link": [["a", "b"]]}, r"row numbers as integers.*got dtype <U1"),
        (
            {"must_link": {(0, 1), (2, 3)}},
            r"must_link must be an array of integers, got set.*list\(must_link\)",
        ),
        (
            {"cannot_link": zip([0], [1], strict=True)},
            r"cannot_link must be an array of integers, got zip",
        ),
        ({"must_link": np.array([[2**63, 1]], dtype=np.uint64)}, r"below 2\*\*63"),
        (
            {"must_link": [[0, 1], [2, 10], [99, 0]]},
            r"must_link must contain row numbers in \[0, 10\), got \(2, 10\) at position 1",
        ),
        (
            {"cannot_link": [[0, 1], [-1, 2]]},
            r"cannot_link must contain row numbers in \[0, 10\), got \(-1, 2\) at position 1",
        ),
        (
            {"cannot_link": [[0, 1], [3, 3]]},
            r"cannot_link must contain pairs of different rows, got \(3, 3\) at position 1",
        ),
        (
            {"must_link": [[0, 1]], "must_link_weight": [1.0, 2.0]},
            r"must_link_weight must be a number or have shape \(1,\).*got shape \(2,\)",
        ),
        (
            {"must_link": [[0, 1], [1, 2]], "must_link_weight": [1.0, np.nan]},
            r"must_link_weight\[1\] must be finite and >= 0, got nan",
        ),
        (
            {"cannot_link": [[0, 1]], "cannot_link_weight": -2},
            r"cannot_link_weight must be finite and >= 0, got -2\.0",
        ),
        ({"cannot_link": [[0, 1]], "cannot_link_weight": np.inf}, r"COPKMeans"),
        (
            {"must_link_weight": "high"},
            r"must_link_weight must be a number, or one number per pair, got dtype",
        ),
        (
            {"must_link_weight": [[1.0]]},
            r"must_link_weight must be a number or have shape .*got shape \(1, 1\)",
        ),
        ({"y": ([0, 1], [0])}, r"shapes \(2,\) and \(1,\)"),
        ({"y": ([0, 11], [0, 0])}, r"Row numbers of y must be in \[0, 10\), got 11"),
        ({"y": ([0, 4], [0, -2])}, r"got -2 in row 4"),
        ({"y": ([4, 0, 4], [1, 0, 2])}, r"several for row 4 \(1, 2\)"),
        ({"y": ([0, 4], [0.5, 1.0])}, r"y must contain integers or strings.*got 0.5"),
    ],
)
def test_refusals_name_the_culprit(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConstraintError, match=message):
        make(10, **arguments)


def test_consistent_constraints_do_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(9, [[0, 5], [5, 8]], [[0, 1], [1, 2]], y=([0, 8, 1], [3, 3, 4]), hard=True)


# --- contradictions ------------------------------------------------------------------------


def test_cannot_link_inside_a_component() -> None:
    must, cannot = [[5, 0], [5, 9], [1, 2]], [[1, 0], [0, 9]]
    with pytest.warns(ConstraintWarning, match="0-5-9 must-linked, 0-9 cannot-linked") as record:
        c = make(10, must, cannot)
    assert len(record) == 1
    assert record[0].filename == __file__
    assert c.n_contradictions == 1
    with pytest.raises(ConstraintError, match=r"0-5-9 must-linked, 0-9 cannot-linked\. No clust"):
        make(10, must, cannot, hard=True)


def test_shortest_chain_and_total() -> None:
    must = [[0, 1], [1, 2], [2, 3], [3, 4], [0, 4]]
    with pytest.raises(ConstraintError, match=r"3-4-0 must-linked, 3-0 cannot-linked\. \(2 contra"):
        make(5, must, [[3, 0], [1, 2]], hard=True)


def test_pair_in_both_sets() -> None:
    with pytest.raises(ConstraintError, match="2-7 must-linked, 2-7 cannot-linked"):
        make(9, [[2, 7]], [[2, 7]], hard=True)


def test_long_chains_are_elided() -> None:
    n = 50_000  # recursion would fail
    must = np.stack([np.arange(n - 1), np.arange(1, n)], axis=1)
    with pytest.raises(ConstraintError) as error:
        make(n, must, [[0, n - 1]], hard=True)
    text = str(error.value)
    assert f"0-1-2-3-4-5-...({n - 12} more)...-49994" in text
    assert len(text) < 400


def test_same_class_cannot_linked() -> None:
    with pytest.raises(ConstraintError, match="4 and 6 both labeled 7, 4-6 cannot-linked"):
        make(9, cannot_link=[[4, 6]], y=([4, 6], [7, 7]), hard=True)


def test_chain_through_a_class() -> None:
    message = "0-1 must-linked, 1 and 5 both labeled 7, 5-6-8 must-linked, 0-8 cannot-linked"
    with pytest.raises(ConstraintError, match=message):
        make(9, [[0, 1], [5, 6], [6, 8]], [[0, 8]], y=([1, 5], [7, 7]), hard=True)


def test_different_classes_must_linked() -> None:
    must, labels = [[3, 4], [4, 8]], ([3, 8, 1], [20, 10, 30])
    message = "8-4-3 must-linked, but 8 is labeled 10 and 3 is labeled 20"
    with pytest.raises(ConstraintError, match=message):
        make(9, must, y=labels, hard=True)
    with pytest.warns(ConstraintWarning, match=message):
        assert make(9, must, y=labels).n_contradictions == 1


def test_three_classes_in_one_component() -> None:
    # Classes 0 and 2 meet only through class 1: the chain named stops there.
    with pytest.raises(ConstraintError, match="0-1 must-linked, but 0 is labeled 0 and 1 is"):
        make(9, [[0, 1], [2, 3]], y=([0, 1, 2, 3], [0, 1, 1, 2]), hard=True)


def test_many_repeats_of_a_pair_are_still_an_edge() -> None:
    with pytest.raises(ConstraintError, match="0-1 must-linked, 0-1 cannot-linked"):
        make(9, [[0, 1]] * 256, [[0, 1]], hard=True)
    assert make(9, [[0, 1]] * 256).component.tolist() == [0, 0]


# --- components, contradicting pairs, digest -------------------------------------------------


def test_components_by_hand() -> None:
    c = make(30, [[9, 20], [20, 12]], [[3, 9]], y=([5, 12, 25, 26], [1, 1, 2, 3]))
    assert c.rows.tolist() == [3, 5, 9, 12, 20, 25, 26]
    assert c.component.tolist() == [0, 1, 1, 1, 1, 2, 3]


def test_components_are_numbered_by_their_smallest_row() -> None:
    c = make(10, [[0, 9], [1, 8], [2, 7], [8, 3]])
    assert c.component.tolist() == [0, 1, 2, 1, 2, 1, 0]


def test_contradicting_pairs_by_hand() -> None:
    weights = {"must_link_weight": [1, 2], "cannot_link_weight": [3, 4, 5]}
    c = make(100, [[10, 20], [20, 30]], [[10, 40], [40, 20], [30, 50]], **weights)
    # Rows 10 to 50; row 40 is kept out of its nearest cluster.
    distances = np.array([[0, 3, 9], [8, 0, 9], [5, 0, 9], [1, 0, 4], [0, 7, 9]], float)
    got = c.contradicting(np.array([0, 1, 1, 0, 0]), distances)
    assert got.tolist() == [
        (10, 20, "must-link", 1.0, 3.0, True),
        (40, 20, "cannot-link", 4.0, 1.0, False),
        (10, 40, "cannot-link", 3.0, 0.0, True),
    ]
    assert got.i.tolist() == [10, 40, 10]
    assert got.dtype.fields["kind"][0] == np.dtype("U11")


def test_digest() -> None:
    base: dict[str, Any] = {
        "must_link": [[0, 1], [2, 3]],
        "cannot_link": [[0, 2]],
        "y": ([5, 6], [0, 1]),
    }
    first = make(10, **base).digest()
    assert len(first) == 64
    assert make(10, **base).digest() == first
    assert pickle.loads(pickle.dumps(make(10, **base))).digest() == first
    others = [
        make(11, **base),
        make(10, **{**base, "must_link": [[0, 1], [2, 4]]}),
        make(10, **{**base, "must_link": [[0, 1]], "cannot_link": [[2, 3], [0, 2]]}),
        make(10, **base, must_link_weight=2.0),
        make(10, **base, cannot_link_weight=[2.0]),
        make(10, **{**base, "y": ([5, 6], [0, 0])}),
        make(10, **{**base, "y": ([5, 6], [0, 2])}),
        make(10, **{**base, "y": ([5, 7], [0, 1])}),
    ]
    digests = {c.digest() for c in others}
    assert len(digests) == len(others)
    assert first not in digests


def test_digest_is_the_same_everywhere() -> None:
    # A checkpoint must outlive versions of Python, NumPy and the machine.
    got = make(10, [[0, 1]], [[1, 2]], 2.0).digest()
    assert got == "33e4384c04373da4b119cae69cedbdc4606588ad8e65d45c37936f6c64b66eea"


@given(st.integers(0, 2**32), st.integers(1, 15), st.integers(0, 15), st.integers(0, 15))
def test_index_is_consistent(seed: int, n: int, n_must: int, n_cannot: int) -> None:
    rng = np.random.default_rng(seed)
    n += 1
    i = rng.integers(n, size=n_must + n_cannot)
    pairs = np.stack([i, (i + rng.integers(1, n, size=i.size)) % n], axis=1)
    must, cannot = pairs[:n_must], pairs[n_must:]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConstraintWarning)
        c = make(n, must, cannot)
    assert_array_equal(c.rows, np.unique(pairs))
    assert_array_equal(c.rows[np.stack([c.pair_left, c.pair_right], 1)], pairs.reshape(-1, 2))
    seen = Counter()
    for row in range(len(c.rows)):
        for e in range(c.indptr[row], c.indptr[row + 1]):
            kind = bool(c.is_must_link[e])
            assert kind == (c.pair_index[e] < n_must)
            seen[row, int(c.neighbors[e]), kind] += 1
    want = Counter()
    for a, b, kind in zip(c.pair_left, c.pair_right, c.pair_is_must_link, strict=True):
        want[int(a), int(b), bool(kind)] += 1
        want[int(b), int(a), bool(kind)] += 1
    assert seen == want

    # Union-find by brute force.
    component = {int(r): {int(r)} for r in c.rows}
    for a, b in must.tolist():
        merged = component[a] | component[b]
        for r in merged:
            component[r] = merged
    contradictions = sum(b in component[a] for a, b in cannot.tolist())
    assert c.n_contradictions == contradictions
    ours = c.component
    for a, b in itertools.combinations(range(len(c.rows)), 2):
        together = int(c.rows[b]) in component[int(c.rows[a])]
        assert (ours[a] == ours[b]) == together


# --- pairs_from_labels ---------------------------------------------------------------------


def brute_pairs(y: Any) -> tuple[list[list[int]], list[list[int]]]:
    """All must-links and cannot-links of the labels, by definition."""
    pairs = [[i, j] for i, j in itertools.combinations(range(len(y)), 2) if min(y[i], y[j]) >= 0]
    return [p for p in pairs if y[p[0]] == y[p[1]]], [p for p in pairs if y[p[0]] != y[p[1]]]


@given(st.lists(st.integers(-1, 4), max_size=25))
def test_all_pairs(y: list[int]) -> None:
    must, cannot = brute_pairs(y)
    got = pairs_from_labels(np.array(y, dtype=int))
    assert (got[0].tolist(), got[1].tolist()) == (must, cannot)
    assert got[0].dtype == got[1].dtype == np.int64
    assert got[0].shape[1] == got[1].shape[1] == 2
    only_must = pairs_from_labels(np.array(y, dtype=int), kind="must")
    assert (only_must[0].tolist(), only_must[1].tolist()) == (must, [])
    only_cannot = pairs_from_labels(np.array(y, dtype=int), kind="cannot")
    assert (only_cannot[0].tolist(), only_cannot[1].tolist()) == ([], cannot)


@given(st.lists(st.integers(-1, 3), min_size=2, max_size=25), st.data())
def test_sampled_pairs(y: list[int], data: st.DataObject) -> None:
    must, cannot = brute_pairs(y)
    n = data.draw(st.integers(0, 2 * min(len(must), len(cannot))))
    got_must, got_cannot = pairs_from_labels(y, n_pairs=n, random_state=data.draw(st.integers(0)))
    assert (len(got_must), len(got_cannot)) == (n - n // 2, n // 2)
    for got, pool in ((got_must.tolist(), must), (got_cannot.tolist(), cannot)):
        assert all(p in pool for p in got)
        assert len({tuple(p) for p in got}) == len(got)


@pytest.mark.parametrize("n_pairs", [1, 5])
def test_sample_is_uniform(n_pairs: int) -> None:
    y = [0, 0, 0, 1, 1, 1, 1]  # 9 must-links, 12 cannot-links
    rng, counts, rounds = np.random.default_rng(0), Counter(), 800
    for _ in range(rounds):
        for kind, at in (("must", 0), ("cannot", 1)):
            for p in pairs_from_labels(y, n_pairs=n_pairs, kind=kind, random_state=rng)[at]:  # type: ignore[arg-type]
                counts[tuple(p.tolist())] += 1
    for kind, pool in zip(("must", "cannot"), brute_pairs(y), strict=True):
        expected = rounds * n_pairs / len(pool)
        for p in pool:
            assert abs(counts[tuple(p)] - expected) < 5 * np.sqrt(expected), kind


def test_random_state() -> None:
    y = np.arange(60) % 3

    def draw(state: Any) -> list[Any]:
        return [part.tolist() for part in pairs_from_labels(y, n_pairs=20, random_state=state)]

    assert draw(3) == draw(3)
    assert draw(3) != draw(4)
    assert draw(np.random.default_rng(1)) == draw(np.random.default_rng(1))
    assert draw(np.random.RandomState(1)) == draw(np.random.RandomState(1))


def test_pool_is_never_listed() -> None:
    # 2e6 labels: 4e11 must-links, 1.6e12 cannot-links.
    y = np.arange(2_000_000) % 5
    # A list of them would not fit any memory.
    must, cannot = pairs_from_labels(y, n_pairs=10_000, random_state=0)
    assert (y[must[:, 0]] == y[must[:, 1]]).all()
    assert (y[cannot[:, 0]] != y[cannot[:, 1]]).all()
    assert (must[:, 0] < must[:, 1]).all()
    assert must.max() > 1_900_000
    with pytest.raises(ConstraintError, match="pairs can be listed"):
        pairs_from_labels(y)
    with pytest.raises(ConstraintError, match="pairs can be listed, got 60000000"):
        pairs_from_labels(y, n_pairs=60_000_000)


@pytest.mark.parametrize("size", [3, 1000, 94_906_267, 1_000_000_000])
def test_ranks_of_huge_classes(size: int) -> None:
    # The square root behind the numbering rounds: check it where doubles have gaps.
    from daskclust.core.constraints import _PairPool

    class Rows:
        """Row numbers equal to positions, without the memory."""

        size = 0

        def __getitem__(self, index: Any) -> Any:
            return index

    pool = size * (size - 1) // 2
    holder = _PairPool(
        Rows(),  # type: ignore[arg-type]
        np.array([0, size]),
        np.array([0, pool]),
        np.array([0, 0]),
    )
    b = np.unique(np.clip(np.array([1, 2, size // 3, size // 2, size - 2, size - 1]), 1, size - 1))
    first = b * (b - 1) // 2
    for a, rank in ((np.zeros_like(b), first), (b - 1, first + b - 1)):
        assert_array_equal(holder.must(rank), np.stack([a, b], axis=1))


def test_pairs_from_labels_refusals() -> None:
    with pytest.raises(ConstraintError, match=r"needs 3 must-links, got 1\."):
        pairs_from_labels([0, 0, 1], n_pairs=6)
    with pytest.raises(ConstraintError, match=r"kind='cannot' needs 3 cannot-links, got 2\."):
        pairs_from_labels([0, 0, 1], n_pairs=3, kind="cannot")
    with pytest.raises(ValueError, match=r"kind must be 'both', 'must' or 'cannot', got 'all'\."):
        pairs_from_labels([0, 1], kind="all")  # type: ignore[arg-type]
    for wrong in (-1, 1.5, True):
        with pytest.raises(ValueError, match="n_pairs must be"):
            pairs_from_labels([0, 1], n_pairs=wrong)  # type: ignore[arg-type]
    with pytest.raises(ConstraintError, match=r"got -5 in row 1"):
        pairs_from_labels([0, -5])
    with pytest.raises(ConstraintError, match=r"-1 or NaN for unlabeled rows, got inf"):
        pairs_from_labels([0.0, np.inf])
    assert [pairs.tolist() for pairs in pairs_from_labels([1.0, np.nan, 2.0])] == [[], [[0, 2]]]
    with pytest.raises(ConstraintError, match=r"y must have one label per row.*got shape \(1, 2\)"):
        pairs_from_labels([[0, 1]])


def test_units_and_folds_by_hand() -> None:
    must = [[0, 1], [1, 2], [10, 11], [20, 21]]
    # Two cannot-links between the same components, one inside a component, one on its own.
    cannot = [[0, 10], [11, 2], [0, 2], [30, 31]]
    with pytest.warns(ConstraintWarning, match="contradict"):
        pairs = make(40, must, cannot)
    assert pairs.units().tolist() == [0, 0, 1, 2, 3, 3, 0, 4]
    for seed in range(5):
        fold = pairs.folds(3, seed)
        assert fold[0] == fold[1] == fold[6]
        assert fold[4] == fold[5]
        # Every fold has a component of must-links, the largest comes first.
        assert sorted({fold[0], fold[2], fold[3]}) == [0, 1, 2]
        assert fold[0] == 0
    assert len({tuple(pairs.folds(3, seed)) for seed in range(20)}) > 1
    assert make(4, None, [[0, 1], [2, 3]]).folds(2, 0).tolist() in ([0, 1], [1, 0])
    assert make(2, [[0, 1]]).units().tolist() == [0]


@given(st.integers(0, 2**16), st.integers(2, 6))
def test_no_left_out_pair_follows_from_the_other_folds(seed: int, n_folds: int) -> None:
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 4, 30)
    ends = np.array([rng.choice(30, 2, replace=False) for _ in range(25)])
    same = truth[ends[:, 0]] == truth[ends[:, 1]]
    pairs = make(30, ends[same], ends[~same])
    fold = pairs.folds(n_folds, seed)
    for number in range(n_folds):
        mine, rest = fold == number, fold != number
        ends = pairs.rows[np.stack([pairs.pair_left, pairs.pair_right], axis=1)]
        must = pairs.pair_is_must_link
        others = make(30, ends[rest & must], ends[rest & ~must])
        component = np.arange(-30, 0)
        component[others.rows] = others.component
        apart = {frozenset(component[pair]) for pair in ends[rest & ~must].tolist()}
        for pair, kind in zip(ends[mine].tolist(), must[mine], strict=True):
            if kind:
                assert component[pair[0]] != component[pair[1]]
            else:
                assert frozenset(component[pair]) not in apart
