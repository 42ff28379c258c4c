"""Passes that know what the pass before found: the same to the last bit, with less work."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskclust.core.kernels.nearest import bounds as module
from daskclust.core.kernels.nearest.assign import SEGMENT, accumulate, direct_distances, nearest
from daskclust.core.kernels.nearest.bounds import Kept, accumulate_kept, moves_of


def check(x, walk, weight=None, shift=None, segments=None) -> list[Kept]:
    """Compare the passes of a walk of the centers with passes that know nothing."""
    options = {"weight": weight, "shift": shift, "segments": segments}
    before, kept, left = None, None, []
    for centers in walk:
        moves = None if before is None else moves_of(before, centers, shift, x.dtype)
        frozen = None if kept is None else [part.copy() for part in kept]
        found, after = accumulate_kept(x, centers, kept=kept, moves=moves, **options)
        if frozen is not None:
            for part, copy in zip(kept, frozen, strict=True):
                np.testing.assert_array_equal(part, copy)
        plain = accumulate(x, centers, **options)
        np.testing.assert_array_equal(found.hi, plain.hi)
        np.testing.assert_array_equal(found.lo, plain.lo)
        np.testing.assert_array_equal(after.labels, nearest(x, centers, shift=shift)[0])
        apart = np.sqrt(direct_distances(x, centers))
        known = after.others != after.labels
        of_next = apart[np.arange(len(x)), after.others]
        assert (after.near <= of_next)[known].all()
        lengths = direct_distances(x, after.origin[None].astype(np.float64))[:, 0]
        assert (after.square <= lengths).all()
        apart[np.arange(len(x)), after.labels] = np.inf
        apart[np.arange(len(x)), after.others] = np.inf
        assert (after.low <= apart.min(axis=1)).all()
        before, kept = centers, after
        left.append(after)
    return left


def test_a_walk_by_hand() -> None:
    x = np.array([[0.0], [1.0], [10.0], [5.2]])
    walk = [np.array([[0.0], [10.0], [30.0]]), np.array([[0.5], [10.0], [6.0]])]
    first, second = check(x, walk)
    assert first.labels.tolist() == [0, 0, 1, 1]
    # The second nearest: 10, 9, 10 and 5.2 away.
    np.testing.assert_allclose(first.low, [10.0, 9.0, 10.0, 5.2], rtol=1e-6)
    np.testing.assert_allclose(first.square, [0.0, 1.0, 100.0, 27.04], rtol=1e-6)
    assert second.labels.tolist() == [0, 0, 1, 2]
    # The mover is nearer than the bound of the others.
    np.testing.assert_allclose(second.low, [6.0, 5.0, 4.0, 4.7], rtol=1e-6)


@given(
    seed=st.integers(0, 2**32 - 1),
    k=st.sampled_from([1, 2, 5, 40]),
    p=st.sampled_from([1, 3, 17]),
    dtype=st.sampled_from([np.float32, np.float64]),
    offset=st.sampled_from([0.0, 100.0]),
    step=st.sampled_from([0.0, 0.01, 1.0]),
)
def test_random_walks_on_a_grid(seed, k, p, dtype, offset, step) -> None:
    # Integers: ties, equal rows and equal centers.
    rng = np.random.default_rng(seed)
    n = int(rng.integers(0, 90))
    x = (rng.integers(-3, 4, (n, p)) + offset).astype(dtype)
    walk = [rng.integers(-3, 4, (k, p)) + offset]
    for _ in range(4):
        move = step * rng.integers(-2, 3, (k, p)) * (rng.random((k, 1)) < 0.4)
        walk.append(walk[-1] + move)
    weight = rng.integers(0, 3, n) / 2.0 if seed % 2 else None
    shift = np.full(p, offset) if seed % 3 else None
    ends = np.unique(np.append(rng.integers(0, n + 1, 2), n))[-3:]
    check(x, [np.asarray(c, float) for c in walk], weight, shift, ends[ends > 0] if n else None)


@pytest.mark.parametrize("scale", [1e-30, 1e19, 3e38])
def test_what_is_too_small_or_too_large_for_scores_is_compared(scale: float) -> None:
    rng = np.random.default_rng(0)
    x = (scale * rng.uniform(-1, 1, (50, 4))).astype(np.float32)
    centers = x[:12].astype(np.float64)
    check(x, [centers, centers * 1.0001, centers * 1.0002])


def test_rows_that_cannot_have_changed_are_not_searched(monkeypatch) -> None:
    searched = []
    search = module._search
    monkeypatch.setattr(
        module, "_search", lambda *args: (searched.append(args[5]), search(*args))[1]
    )
    rng = np.random.default_rng(0)
    n, k, p = SEGMENT + 100, 50, 32
    centers = rng.normal(size=(k, p))
    x = (centers[rng.integers(k, size=n)] + 0.1 * rng.normal(size=(n, p))).astype(np.float32)
    # One center moves far in each pass, the others move little.
    walk = [centers]
    for t in range(5):
        after = walk[-1] + 1e-3 * rng.normal(size=(k, p))
        after[t] += 0.5
        walk.append(after)
    check(x, walk, segments=np.array([SEGMENT, n]))
    assert searched[0] == n
    assert sum(searched[1:]) < 0.1 * n


def test_the_next_center_is_bounded_by_its_own_move() -> None:
    # Centers 2 apart, on the diagonal; each row is .5 from its own and 1.5 from the next.
    centers = np.tile(2.0 * np.arange(64.0)[:, None], (1, 8))
    x = centers[:-1] + 0.5
    after = centers.copy()
    after[::2] += 0.01
    first, second = check(x, [centers, after])
    known = first.others != first.labels
    assert known.any()
    root = np.sqrt(8.0)
    np.testing.assert_allclose(first.near[known], 1.5 * root, rtol=1e-3)
    far = np.where(np.arange(63) % 2, 0.01, 0.0)
    same = known & (first.others == second.others)
    fallen = first.near - far * root
    np.testing.assert_allclose(second.near[same], fallen[same], rtol=1e-6)


def test_few_products_are_compared_with_two_movers() -> None:
    rng = np.random.default_rng(0)
    before = rng.normal(size=(200, 50))
    after = before + rng.normal(size=(200, 1)) * 0.1
    assert len(moves_of(before, after, None, np.dtype("f4")).movers) == 20
    few = moves_of(before[:100], after[:100], None, np.dtype("f4"))
    far = np.sqrt(((after - before)[:100] ** 2).sum(axis=1))
    assert few.movers.tolist() == sorted(np.argsort(-far)[:2].tolist())
    np.testing.assert_allclose(few.far, far, rtol=1e-6)
    assert few.most == pytest.approx(np.sort(far)[-3], rel=1e-6)


def test_rows_far_from_all_others_are_not_compared_with_movers() -> None:
    centers = 100.0 * np.arange(30.0)[:, None]
    x = np.repeat(centers, 3, axis=0) + 1.0
    after = centers.copy()
    after[7] += 0.5
    first, second = check(x, [centers, after])
    # The bound falls by the farthest move; a comparison would have found the mover as far as ever.
    far = first.labels != 7
    np.testing.assert_allclose(second.low[far], first.low[far] - 0.5, rtol=1e-6)


def test_rows_of_tiny_numbers_have_bounds_that_hold() -> None:
    # Squared lengths have few digits in single precision, or none.
    rng = np.random.default_rng(0)
    for scale in (1e-10, 1e-19, 1e-22, 1e-30):
        x = scale * rng.uniform(-1, 1, (50, 4))
        centers = x[:12].copy()
        check(x, [centers, centers * 1.0001, centers * 1.0002])


def test_rows_between_two_centers_are_not_searched(monkeypatch) -> None:
    searched = []
    search = module._search
    monkeypatch.setattr(
        module, "_search", lambda *args: (searched.append(args[5]), search(*args))[1]
    )
    rng = np.random.default_rng(0)
    # Pairs of centers, neighbors in number and so in lanes, and rows amid the two of each pair.
    pairs = 3 * rng.normal(size=(50, 1, 8))
    steps = rng.normal(size=(50, 1, 8))
    n, walk = 3000, []
    for t in range(4):
        ends = pairs + np.array([[-1.0], [1.0 + 0.01 * (-1) ** t]]) * steps
        walk.append(ends.reshape(100, 8))
    own = rng.integers(50, size=n)
    x = (pairs + 0.03 * rng.normal(size=(50, 1, 8)))[own, 0] + 0.01 * rng.normal(size=(n, 8))
    left = check(x.astype(np.float32), walk)
    changed = [(a.labels != b.labels).mean() for a, b in pairwise(left)]
    assert min(changed) > 0.05
    assert searched[0] == n
    assert sum(searched[1:]) < 0.05 * n
