"""Bounds leave rows out of the search, and nothing else: sums are those of the plain pass."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from daskclust.kernels.compiling import PLAIN
from daskclust.kernels.nearest.assign import (
    accumulate,
    direct_distances,
    nearest,
    no_statistics,
)
from daskclust.kernels.nearest.bounds import (
    Past,
    Work,
    accumulate_bounded,
    bytes_a_row,
    no_cells,
    no_past,
    no_state,
    past_of,
)

pytestmark = pytest.mark.skipif(PLAIN, reason="the plain kernels have no bounds")


def passes(x, walk, *, weight=None, shift=None, segments=None, looked_back=24, measured=True):
    """Make a pass for each of the centers; yield bounded statistics, work, plain ones, the rows."""
    rows, past_centers = no_state(len(x)), []
    ends = np.array([len(x)]) if segments is None else segments
    k, p = walk[0].shape
    cells = no_cells(ends, k, p)
    before = None if cells is None else (no_statistics(k, p), walk[0])
    for number, centers in enumerate(walk):
        past = past_of(centers, past_centers, number - len(past_centers), looked_back)
        given_ = {"weight": weight, "shift": shift, "segments": ends}
        found, work = accumulate_bounded(
            x, centers, past, rows, number, cells=cells, before=before, measured=measured, **given_
        )
        # They are brought up to date in the next pass.
        yield deepcopy(found), work, accumulate(x, centers, **given_), rows
        before = None if cells is None else (found, centers)
        past_centers = [*past_centers, centers][-looked_back:]


def assert_same(found, plain):
    assert_array_equal(found.hi, plain.hi)
    assert_array_equal(found.lo, plain.lo)


def test_by_hand():
    x = np.array([[0.0], [1.0], [4.9], [10.0]])
    first, second = np.array([[0.0], [10.0]]), np.array([[0.5], [9.5]])
    rows, cells = no_state(4), no_cells(np.array([4]), 2, 1)
    before = no_statistics(2, 1), first
    stats, work = accumulate_bounded(x, first, no_past(2), rows, 0, cells=cells, before=before)
    assert work == Work(scored=4, compared=0, changed=1, summed=4)
    assert_array_equal(stats.hi, [[5.9, 3, 4.9**2 + 1], [10, 1, 0]])
    assert_array_equal(cells.sums, [[5.9], [10]])
    assert_array_equal(cells.weights, [[3, 1]])
    assert_array_equal(rows.label, [0, 0, 0, 1])
    # To the other center it is 10, 9, 5.1 and 10; rounded down.
    np.testing.assert_allclose(rows.rest_low, [10, 9, 5.1, 10], rtol=1e-6)
    assert (rows.rest_low <= [10, 9, 5.1, 10]).all()
    past = past_of(second, [first], 0)
    np.testing.assert_allclose(past.moved, [[0.5, 0.5]], rtol=2e-6)
    before = stats, first
    stats, work = accumulate_bounded(x, second, past, rows, 1, cells=cells, before=before)
    # The third row may have changed: up to 4.9 + 0.5 to its center, from 5.1 - 0.5 to the other.
    # It is 4.4 to one and at least 4.6 to the other, which tells it.  No row is summed.
    assert work == Work(scored=0, compared=1, changed=0, summed=0)
    plain = accumulate(x, second)
    assert_array_equal(stats.hi[:, :2], plain.hi[:, :2])
    # Inertia from sums: 25.01 + 2 (0 - 0.5) 5.9 + 3 / 4, and 0 + 1 / 4.
    np.testing.assert_allclose(stats.hi[:, 2], [19.86, 0.25], rtol=1e-14)
    third = np.array([[2.5], [4.95]])
    past = past_of(third, [first, second], 0)
    before = stats, second
    stats, work = accumulate_bounded(x, third, past, rows, 2, cells=cells, before=before)
    # The third row goes over.
    assert (work.changed, work.summed) == (1, 4)
    assert_array_equal(stats.hi[:, :2], [[1, 2], [14.9, 2]])
    np.testing.assert_allclose(stats.hi[:, 2], [8.5, 0.05**2 + 5.05**2], rtol=1e-13)


walks = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32 - 1),
        "n": st.integers(1, 300),
        "k": st.integers(2, 70),
        "p": st.integers(1, 20),
        "dtype": st.sampled_from([np.float32, np.float64]),
        "step": st.sampled_from([0.0, 1e-9, 1e-3, 0.1, 3.0]),
        "offset": st.sampled_from([0.0, 3.0, 1e4, -1e8]),
        "scale": st.sampled_from([1.0, 1e-30, 1e15]),
        "integers": st.booleans(),
        "weighted": st.booleans(),
        "shifted": st.booleans(),
        "measured": st.booleans(),
    }
)


@given(walk=walks)
def test_statistics_are_those_of_the_plain_pass(walk):
    rng = np.random.default_rng(walk["seed"])
    n, k, p = walk["n"], walk["k"], walk["p"]
    # Integers make duplicates and ties; rows that lie on centers, too.
    draw = (lambda s: rng.integers(-2, 3, s)) if walk["integers"] else rng.standard_normal
    x = ((draw((n, p)) + walk["offset"]) * walk["scale"]).astype(walk["dtype"])
    centers = x[rng.integers(0, n, k)].astype(np.float64)
    steps = [rng.standard_normal((k, p)) * (rng.random((k, 1)) < 0.5) for _ in range(6)]
    road = [centers]
    for step in steps:
        road.append(road[-1] + walk["step"] * walk["scale"] * step)
    road.append(road[-1][rng.permutation(k)])
    weight = rng.integers(0, 3, n) / 2.0 if walk["weighted"] else None
    shift = x.mean(axis=0).astype(np.float64) if walk["shifted"] else None
    segments = np.unique(np.append(rng.integers(1, n + 1, 2), n))
    measured = walk["measured"]
    given_ = {"weight": weight, "shift": shift, "segments": segments, "measured": measured}
    whole = ((x.astype(float) - x.mean(axis=0, dtype=float)) ** 2).sum() + n * (
        walk["scale"] * max(walk["step"], abs(walk["offset"]) * 1e-7)
    ) ** 2
    for found, work, plain, rows in passes(x, road, looked_back=4, **given_):
        upto = p + 2 if measured else p + 1
        assert_array_equal(found.hi[:, :upto], plain.hi[:, :upto])
        assert_array_equal(found.lo[:, :upto], plain.lo[:, :upto])
        # Units in the last place, of squares about the center that rows had before.
        np.testing.assert_allclose(found.hi[:, -1], plain.hi[:, -1], rtol=1e-9, atol=1e-9 * whole)
        assert 0 <= work.scored <= n
        assert (rows.label < k).all()


def test_sums_of_rows_in_doubt_keep_their_traces():
    """Rows that the scores first put in a wrong cluster leave roundings in the sums."""
    rng = np.random.default_rng(5)
    k, p = 30, 8
    centers = 5.0 + rng.standard_normal((k, p))
    pair = np.array([rng.choice(k, 2, replace=False) for _ in range(400)])
    x = centers[pair].mean(axis=1) * (1.0 + 1e-7 * rng.standard_normal((400, 1)))
    x = np.concatenate([x, 5.0 + rng.standard_normal((400, p))]).astype(np.float32)
    tiny = [1e-8 * rng.standard_normal((k, p)) for _ in range(4)]
    ends = np.array([300, 700, 800])
    road = [centers, *(centers + t for t in tiny)]
    for found, _, plain, _ in passes(x, road, segments=ends, measured=False):
        assert_array_equal(found.hi[:, :-1], plain.hi[:, :-1])
        assert_array_equal(found.lo[:, :-1], plain.lo[:, :-1])


@given(seed=st.integers(0, 2**32 - 1), k=st.integers(2, 60), exponent=st.integers(-30, 2))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_near_ties_are_decided_as_ever(seed, k, exponent, dtype):
    """Rows halfway between two centers, but for a last few bits."""
    rng = np.random.default_rng(seed)
    p = 8
    centers = rng.standard_normal((k, p)) + 5.0
    pair = np.array([rng.choice(k, 2, replace=False) for _ in range(150)])
    x = centers[pair].mean(axis=1) * (1.0 + 2.0**exponent * rng.standard_normal((150, 1)))
    x = x.astype(dtype)
    tiny = 2.0**exponent * rng.standard_normal((4, k, p))
    made = list(passes(x, [centers, *(centers + t for t in tiny)]))
    for found, _, plain, _ in made:
        assert_same(found, plain)
    assert_array_equal(made[-1][-1].label, nearest(x, centers + tiny[-1])[0])


@given(walk=walks)
def test_bounds_are_bounds(walk):
    rng = np.random.default_rng(walk["seed"])
    n, k, p = walk["n"], walk["k"], walk["p"]
    x = (rng.standard_normal((n, p)) + walk["offset"]).astype(walk["dtype"])
    centers = rng.standard_normal((k, p)) + walk["offset"]
    rows = no_state(n)
    accumulate_bounded(x, centers, no_past(k), rows, 0)
    distances = np.sqrt(direct_distances(x, centers))
    known = rows.scored == 0
    near = rows.near[known].astype(int)
    is_kept = rows.near_low[known] < 1e36
    beyond = np.ones((known.sum(), k), bool)
    for i, (centers_, kept) in enumerate(zip(near, is_kept, strict=True)):
        beyond[i, centers_[kept]] = False
    lows = np.where(is_kept, rows.near_low[known], 0)
    assert (lows <= np.take_along_axis(distances[known], near, axis=1)).all()
    rest = np.where(beyond, distances[known], np.inf).min(axis=1)
    assert (rows.rest_low[known] <= rest).all()
    own = np.take_along_axis(distances, rows.label[:, None].astype(int), axis=1)[:, 0]
    assert (rows.upper >= own).all()


@given(
    seed=st.integers(0, 2**32 - 1),
    scale=st.sampled_from([1e-300, 1e-160, 1e-40, 1.0, 1e20, 1e40, 1e200]),
)
def test_moves_are_not_underrated(seed, scale):
    rng = np.random.default_rng(seed)
    before = [rng.standard_normal((30, 3)) * scale for _ in range(3)]
    centers = np.where(rng.random((30, 1)) < 0.5, before[0], before[1])
    past = past_of(centers, before, 7)
    exact = np.linalg.norm((centers - np.stack(before)) / scale, axis=2) * scale
    assert past.first == 7
    assert (past.moved >= exact).all()
    assert (past.moved[0][(centers == before[0]).all(axis=1)] == 0).all()
    ordered = np.take_along_axis(past.moved, past.movers.astype(int), axis=1)
    assert (ordered[:, 1:] <= ordered[:, :-1]).all()
    left = np.ones(past.moved.shape, bool)
    np.put_along_axis(left, past.movers.astype(int), False, axis=1)
    assert (np.where(left, past.moved, 0) <= ordered[:, -1:]).all()


def test_rows_of_separated_clusters_are_left_out():
    rng = np.random.default_rng(0)
    centers = 20.0 * rng.standard_normal((40, 6))
    x = (centers[rng.integers(40, size=20_000)] + rng.standard_normal((20_000, 6))).astype("f4")
    road = [centers + 0.05 * rng.standard_normal((40, 6)) for _ in range(5)]
    work = [work for _, work, _, _ in passes(x, road, measured=False)]
    assert (work[0].scored, work[0].summed) == (20_000, 20_000)
    assert max(did.scored for did in work[1:]) < 200
    assert max(did.compared for did in work[1:]) < 1000
    assert [did.summed for did in work[1:]] == [0] * 4


def test_a_past_that_is_too_short_is_no_past():
    rng = np.random.default_rng(0)
    x, centers = rng.standard_normal((500, 3)), rng.standard_normal((20, 3))
    rows = no_state(500)
    accumulate_bounded(x, centers, no_past(20), rows, 0)
    moved = centers + 10.0
    late = past_of(moved, [centers + 9.0], 4)
    stats, work = accumulate_bounded(x, moved, late, rows, 5)
    assert work.scored == 500
    assert_same(stats, accumulate(x, moved))


def test_what_is_kept_is_what_is_said():
    n, k, p = 8192, 60, 7
    cells = no_cells(np.array([4096, 8192]), k, p)
    kept = sum(array.nbytes for array in [*no_state(n), cells.sums, cells.weights])
    assert kept - n < n * bytes_a_row(k, p) <= kept
    # Sums of segments with fewer rows than clusters are not.
    assert no_cells(np.array([59]), k, p) is None
    assert no_cells(np.arange(100, 8192, 100), k, p) is None


def test_states_of_other_rows_are_refused():
    x, centers = np.zeros((5, 2)), np.zeros((3, 2))
    with pytest.raises(ValueError, match="4 rows and the past of 3 centers meet 5 rows and 3"):
        accumulate_bounded(x, centers, no_past(3), no_state(4), 0)
    with pytest.raises(ValueError, match="past of 2 centers"):
        accumulate_bounded(x, centers, no_past(2), no_state(5), 0)
    with pytest.raises(ValueError, match="5 rows have 2 weights"):
        accumulate_bounded(x, centers, no_past(3), no_state(5), 0, weight=np.ones(2))
    cells = no_cells(np.array([5]), 2, 2)
    with pytest.raises(ValueError, match="sums of 1 x 2 segments and clusters meet 1 segments"):
        accumulate_bounded(x, centers, no_past(3), no_state(5), 0, cells=cells)
    assert isinstance(no_past(3), Past)
