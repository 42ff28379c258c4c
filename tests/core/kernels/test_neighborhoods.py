"""Must-links joined where cannot-links leave them, against sets of rows."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from daskclust.cluster.constrained.base import agreeing_groups, choose_neighborhoods
from daskclust.cluster.constrained.groups import agreeing_components
from daskclust.cluster.constrained.iteration import ConstrainedRows
from daskclust.core.constraints import PairwiseConstraints
from daskclust.core.engine import open_rows


def oracle(left, right, foes, classes) -> list[int]:
    groups = [{i} for i in range(len(classes))]

    def of(i):
        return next(g for g in groups if i in g)

    for a, b in zip(left, right, strict=True):
        one, other = of(a), of(b)
        if one is other:
            continue
        known = {classes[i] for i in one | other if classes[i] >= 0}
        apart = any((i in one and j in other) or (i in other and j in one) for i, j in foes)
        if len(known) < 2 and not apart:
            groups.remove(other)
            one |= other
    groups.sort(key=min)
    return [groups.index(of(i)) for i in range(len(classes))]


@given(st.integers(0, 2**32 - 1))
def test_groups_are_those_of_the_plain_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 15))
    pairs = rng.integers(n, size=(int(rng.integers(0, 25)), 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    must, foes = np.split(pairs, [int(rng.integers(0, len(pairs) + 1))])
    classes = np.where(rng.random(n) < 0.3, rng.integers(0, 3, n), -1)
    # Of rows in a cannot-link none has a class, or the oracle would have to know more.
    found = agreeing_components(must[:, 0], must[:, 1], foes, classes)
    assert found.tolist() == oracle(must[:, 0], must[:, 1], foes.tolist(), classes.tolist())


def fetch(x, must=None, cannot=None, weight=None, y=None) -> ConstrainedRows:
    constraints = PairwiseConstraints.from_fit_arguments(len(x), must, cannot, weight, None, y)
    return ConstrainedRows.fetch(open_rows(x), constraints)


X = np.array([[0.0], [1.0], [2.0], [10.0], [11.0], [12.0]])


def test_without_contradictions_groups_are_the_must_link_components() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 2)), rng.integers(0, 3, 60)
    left, right = rng.integers(60, size=(2, 40))
    pairs = np.stack([left, right], axis=1)[left != right]
    same = y[pairs[:, 0]] == y[pairs[:, 1]]
    constrained = fetch(x, pairs[same], pairs[~same])
    c = constrained.constraints
    np.testing.assert_array_equal(agreeing_groups(constrained), c.component)
    must = c.pair_is_must_link
    foes = np.column_stack([c.pair_left[~must], c.pair_right[~must]])
    np.testing.assert_array_equal(
        agreeing_components(c.pair_left[must], c.pair_right[must], foes, c.classes),
        c.component,
    )


def test_a_wrong_must_link_does_not_join_what_cannot_links_tell_apart() -> None:
    must, cannot = [[2, 3], [0, 1], [1, 2], [3, 4], [4, 5]], [[0, 5]]
    constrained = fetch(X, must, cannot)
    # The long one, (2, 3), is passed over, wherever it stands.
    assert agreeing_groups(constrained).tolist() == [0, 0, 0, 1, 1, 1]
    found = choose_neighborhoods(constrained, 2, agreeing=True)
    assert found.centroids.ravel().tolist() == [1.0, 11.0]
    assert found.rows.tolist() == list(range(6))
    assert choose_neighborhoods(constrained, 2, agreeing=False).centroids.ravel().tolist() == [6.0]


def test_a_heavy_must_link_comes_before_short_ones() -> None:
    must, cannot = [[0, 3], [0, 1]], [[1, 3]]
    constrained = fetch(X, must, cannot, weight=[5.0, 1.0])
    assert agreeing_groups(constrained).tolist() == [0, 1, 0]


def test_classes_are_told_apart() -> None:
    constrained = fetch(X, [[1, 3]], y=([0, 1, 3, 4], [7, 7, 2, 2]))
    assert agreeing_groups(constrained).tolist() == [0, 0, 1, 1]
    # A row without a class joins the first that comes, and never both.
    constrained = fetch(X, [[2, 4], [1, 2]], y=([0, 1, 3, 4], [7, 7, 2, 2]))
    assert agreeing_groups(constrained).tolist() == [0, 0, 0, 1, 1]


def test_many_contradicting_pairs_are_told_apart() -> None:
    # Quadratic work would meet the time limit of tests.
    rng = np.random.default_rng(0)
    n, m = 60_000, 300_000
    y = rng.integers(0, 5, n)
    left, right = rng.integers(n, size=(2, m))
    left, right = left[left != right], right[left != right]
    same = (y[left] == y[right]) ^ (rng.random(len(left)) < 0.01)
    foes = np.column_stack([left[~same], right[~same]])
    found = agreeing_components(left[same], right[same], foes, np.full(n, -1))
    assert (found[foes[:, 0]] != found[foes[:, 1]]).all()
    # Many are joined nevertheless.
    assert np.mean(found[left[same]] == found[right[same]]) > 0.1
