"""Nearest centers and sums of one block, against a direct float64 search."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from daskclust.core.kernels.nearest import _tiles
from daskclust.core.kernels.nearest._simd import LANE_BYTES
from daskclust.core.kernels.nearest.assign import (
    SEGMENT,
    accumulate,
    direct_distances,
    nearest,
)

DTYPES = [np.float32, np.float64]


class Case(NamedTuple):
    x: np.ndarray
    centers: np.ndarray
    weight: np.ndarray | None
    feature_weights: np.ndarray | None


def direct(case: Case) -> np.ndarray:
    """All squared distances, by differences in float64."""
    gaps = case.x.astype(np.float64)[:, None, :] - case.centers[None]
    factors = 1.0 if case.feature_weights is None else case.feature_weights
    return (gaps**2 * factors).sum(axis=2)


def expected(case: Case) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Labels, and by cluster: sums, weights and squared distances, in extended precision."""
    distances = direct(case)
    labels = distances.argmin(axis=1)
    k, p = case.centers.shape
    weight = np.ones(len(case.x)) if case.weight is None else case.weight
    sums = np.zeros((k, p), np.longdouble)
    counts, inertia = np.zeros(k, np.longdouble), np.zeros(k, np.longdouble)
    np.add.at(sums, labels, case.x.astype(np.longdouble) * weight[:, None])
    np.add.at(counts, labels, weight)
    np.add.at(inertia, labels, weight * distances.min(axis=1))
    return labels, sums, counts, inertia


def check(case: Case, **options: np.ndarray) -> None:
    """Compare both kernels with the direct search."""
    labels, sums, counts, inertia = expected(case)
    found, distances = nearest(case.x, case.centers, feature_weights=case.feature_weights)
    np.testing.assert_array_equal(found, labels)
    exact = direct(case).min(axis=1, initial=np.inf)
    np.testing.assert_allclose(distances, exact, rtol=1e-12, atol=0)
    stats = accumulate(
        case.x,
        case.centers,
        weight=case.weight,
        feature_weights=case.feature_weights,
        **options,
    )
    p = case.centers.shape[1]
    total = stats.hi + stats.lo
    size = np.abs(case.x).max(initial=0) * (counts.max() + 1)
    np.testing.assert_allclose(total[:, :p], sums.astype(float), rtol=1e-12, atol=1e-12 * size)
    np.testing.assert_allclose(total[:, p], counts.astype(float), rtol=1e-12, atol=0)
    np.testing.assert_allclose(total[:, p + 1], inertia.astype(float), rtol=1e-12, atol=0)


def make(
    seed: int,
    n: int,
    k: int,
    p: int,
    dtype: type,
    *,
    integers: bool,
    offset: float = 0.0,
    weighted: bool = False,
    feature_weighted: bool = False,
) -> Case:
    """Rows and centers with duplicates; distances of integers have no rounding at all."""
    rng = np.random.default_rng(seed)
    draw = (lambda s: rng.integers(-3, 4, s)) if integers else rng.standard_normal
    x = (np.asarray(draw((n, p)), dtype=np.float64) + offset).astype(dtype)
    centers = np.asarray(draw((k, p)), dtype=np.float64) + offset
    if n > 2:
        x[rng.integers(n)] = x[rng.integers(n)]
    if k > 1:
        centers[rng.integers(k)] = centers[rng.integers(k)]
    if n and k:
        # A center that is a row.
        centers[rng.integers(k)] = x[rng.integers(n)]
    weight = rng.integers(0, 4, n) / 2.0 if weighted else None
    features = rng.integers(0, 3, p) / 4.0 if feature_weighted else None
    return Case(x, centers, weight, features)


@pytest.fixture(scope="module", params=DTYPES, ids=["float32", "float64"])
def dtype(request):
    return request.param


# Hand-computed.


def test_four_points_two_centers_by_hand(dtype):
    x = np.array([[0, 0], [0, 2], [4, 0], [4, 4]], dtype=dtype)
    centers = np.array([[0.0, 1.0], [4.0, 1.0]])
    labels, distances = nearest(x, centers)
    assert labels.tolist() == [0, 0, 1, 1]
    assert distances.tolist() == [1.0, 1.0, 1.0, 9.0]
    stats = accumulate(x, centers)
    # Sum of x, sum of y, rows, squared distances.
    assert stats.hi.tolist() == [[0.0, 2.0, 2.0, 2.0], [8.0, 4.0, 2.0, 10.0]]
    assert not stats.lo.any()


def test_four_points_with_row_weights_by_hand(dtype):
    x = np.array([[0, 0], [0, 2], [4, 0], [4, 4]], dtype=dtype)
    centers = np.array([[0.0, 1.0], [4.0, 1.0]])
    stats = accumulate(x, centers, weight=np.array([3.0, 1.0, 0.0, 0.5]))
    assert stats.hi.tolist() == [[0.0, 2.0, 4.0, 4.0], [2.0, 2.0, 0.5, 4.5]]


def test_four_points_with_feature_weights_by_hand(dtype):
    x = np.array([[0, 0], [0, 2], [4, 0], [4, 4]], dtype=dtype)
    centers = np.array([[0.0, 0.0], [4.0, 4.0]])
    # The first feature does not count: only the height decides, ties to center 0.
    labels, distances = nearest(x, centers, feature_weights=np.array([0.0, 0.5]))
    assert labels.tolist() == [0, 0, 0, 1]
    assert distances.tolist() == [0.0, 2.0, 0.0, 0.0]
    stats = accumulate(x, centers, feature_weights=np.array([0.0, 0.5]))
    # Sums include all features, also features of weight 0.
    assert stats.hi.tolist() == [[4.0, 2.0, 3.0, 2.0], [4.0, 4.0, 1.0, 0.0]]


def test_ties_go_to_the_lowest_cluster_by_hand(dtype):
    x = np.array([[0.0], [1.0], [2.0], [3.0]], dtype=dtype)
    assert nearest(x, np.array([[2.0], [0.0], [2.0]]))[0].tolist() == [1, 0, 0, 0]
    assert nearest(x, np.array([[9.0], [1.0], [1.0]]))[0].tolist() == [1, 1, 1, 1]


def test_no_feature_of_any_weight_puts_all_rows_in_cluster_0(dtype):
    x = np.arange(8, dtype=dtype).reshape(4, 2)
    labels, distances = nearest(x, np.array([[5.0, 5.0], [0.0, 1.0]]), feature_weights=np.zeros(2))
    assert labels.tolist() == [0, 0, 0, 0]
    assert distances.tolist() == [0.0, 0.0, 0.0, 0.0]


# Against the direct search.


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(0, 200),
    k=st.integers(1, 70),
    p=st.integers(1, 40),
    dtype=st.sampled_from(DTYPES),
    integers=st.booleans(),
    weighted=st.booleans(),
    feature_weighted=st.booleans(),
)
@example(0, 0, 3, 2, np.float32, False, True, True)
def test_equals_the_direct_search(seed, n, k, p, dtype, integers, weighted, feature_weighted):
    check(
        make(
            seed,
            n,
            k,
            p,
            dtype,
            integers=integers,
            weighted=weighted,
            feature_weighted=feature_weighted,
        )
    )


def layouts(dtype: type) -> dict[tuple[int, bool], int]:
    """Number of centers that leads to each layout, without and with half a panel at the end."""
    lanes = LANE_BYTES // np.dtype(dtype).itemsize
    return {
        (_tiles.NARROW, False): lanes // 2 if LANE_BYTES > 16 else lanes,
        (_tiles.WIDE, False): lanes,
        (_tiles.PANELS, False): 3 * lanes,
        (_tiles.PANELS, True): 3 * lanes + 1,
        (_tiles.PAIRS, False): 4 * lanes - 1,
        (_tiles.PAIRS, True): 2 * lanes + 1,
    }


@pytest.mark.parametrize("n", [1, 3, 7, 8, 63, 64, 65, 200])
def test_every_tiles_of_centers_equals_the_direct_search(dtype, n):
    seen = set()
    for (variant, _), k in layouts(dtype).items():
        if variant == _tiles.WIDE and LANE_BYTES == 16:
            continue
        for p in (1, 3, 16, 33):
            case = make(n * k + p, n, k, p, dtype, integers=False)
            laid = _tiles.lay_out(case.centers, None, np.zeros(p), np.dtype(dtype))
            seen.add((laid.variant, laid.tail.size > 0))
            check(case)
    if LANE_BYTES == 16:
        assert {found for found, _ in seen} == {_tiles.NARROW, _tiles.PANELS, _tiles.PAIRS}
    else:
        assert seen == set(layouts(dtype))


def test_all_numbers_of_centers_around_register_widths(dtype):
    for k in range(1, 71):
        check(make(k, 37, k, 5, dtype, integers=True))


@pytest.mark.parametrize("offset", [1e4, -1e6])
@pytest.mark.parametrize("shifted", [False, True], ids=["no shift", "shift"])
def test_a_large_offset_of_the_data_does_not_change_labels(dtype, offset, shifted):
    for seed, k in enumerate([2, 9, 40, 70]):
        case = make(seed, 150, k, 7, dtype, integers=False, offset=offset)
        options = {"shift": case.x.mean(axis=0, dtype=np.float64)} if shifted else {}
        check(case, **options)


@given(seed=st.integers(0, 2**32 - 1), k=st.integers(2, 40), p=st.integers(1, 12))
def test_float32_near_ties_are_settled_exactly(seed, k, p):
    # Integers that float32 holds, far from the origin, all centers at nearly one distance:
    # the float32 scores are noise, yet distances in float64 are exact.
    rng = np.random.default_rng(seed)
    origin = rng.integers(-(2**20), 2**20, p)
    side = rng.integers(-(2**10), 2**10, (k, p))
    centers = (origin + side).astype(np.float64)
    x = (origin + rng.integers(-2, 3, (50, p))).astype(np.float32)
    spread = rng.integers(0, 2, k)[:, None] * np.eye(p)[rng.integers(0, p, k)]
    near = np.where(rng.random((k, 1)) < 0.7, centers[:1] + spread, centers)
    check(Case(x, near, None, None))


def test_a_tie_of_float64_distances_beyond_float32_goes_to_the_lowest_cluster():
    x = np.array([[16777215.0, 0.0], [3.0, 16777213.0]], dtype=np.float32)
    centers = np.array([[16777215.0, 1.0], [16777215.0, -1.0], [2.0, 16777213.0], [4.0, 16777213]])
    assert nearest(x, centers)[0].tolist() == [0, 2]


def test_a_row_equal_to_its_center_has_distance_exactly_0(dtype):
    rng = np.random.default_rng(3)
    for p in (1, 7, 31):
        x = (rng.standard_normal((60, p)) * 1e3 + 1e5).astype(dtype)
        centers = x[::2].astype(np.float64)
        labels, distances = nearest(x, centers)
        assert (distances[::2] == 0.0).all()
        np.testing.assert_array_equal(labels[::2], np.arange(30))
        weighted = nearest(x, centers, feature_weights=rng.random(p))[1]
        assert (weighted[::2] == 0.0).all()


def test_direct_distances_are_the_numbers_nearest_returns(dtype):
    for feature_weighted in (False, True):
        case = make(5, 80, 23, 9, dtype, integers=False, feature_weighted=feature_weighted)
        full = direct_distances(case.x, case.centers, case.feature_weights)
        labels, distances = nearest(case.x, case.centers, feature_weights=case.feature_weights)
        np.testing.assert_array_equal(full.argmin(axis=1), labels)
        np.testing.assert_array_equal(full.min(axis=1), distances)
        np.testing.assert_allclose(full, direct(case), rtol=1e-12)


def test_huge_finite_values_take_the_safe_path_and_stay_right():
    # Squares overflow float32; the result must still equal the result in float64.
    x = np.array([[3e30], [1e30], [-3e30]], dtype=np.float32)
    centers = np.array([[-2e30], [2e30], [0.0]])
    labels, distances = nearest(x, centers)
    assert labels.tolist() == [1, 1, 0]
    np.testing.assert_allclose(distances, [1e60, 1e60, 1e60], rtol=1e-6)


@given(seed=st.integers(0, 2**32 - 1), k=st.integers(2, 40), p=st.integers(1, 9))
def test_float32_scores_that_overflow_never_decide(seed, k, p):
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((40, p)) * 10.0 ** rng.uniform(16, 21, (40, 1))).astype(np.float32)
    centers = rng.standard_normal((k, p)) * 10.0 ** rng.uniform(16, 21, (k, 1))
    shift = rng.standard_normal(p) * 1e18
    labels = expected(Case(x, centers, None, None))[0]
    for option in (None, np.zeros(p), shift):
        found, distances = nearest(x, centers, shift=option)
        np.testing.assert_array_equal(found, labels)
    np.testing.assert_allclose(
        distances, direct(Case(x, centers, None, None)).min(axis=1), rtol=1e-12
    )


@pytest.mark.parametrize("k", [1, 3, 17, 40])
@pytest.mark.parametrize("p", [1, 40])
@pytest.mark.parametrize("scale", [1e39, 1e139])
def test_centers_beyond_float32_are_centers_and_never_padding(k, p, scale):
    # Their scores are infinite, as those of the padding of the last vector of centers are.
    rng = np.random.default_rng(0)
    x = rng.standard_normal((50, p)).astype(np.float32)
    case = Case(x, rng.standard_normal((k, p)) * scale, None, None)
    labels = expected(case)[0]
    observed, _ = nearest(x, case.centers, missing=True)
    np.testing.assert_array_equal(nearest(x, case.centers)[0], labels)
    np.testing.assert_array_equal(observed, labels)
    sums = accumulate(x, case.centers).hi
    np.testing.assert_array_equal(sums[:, p], np.bincount(labels, minlength=k))


@pytest.mark.parametrize("bad", [np.inf, np.nan])
@pytest.mark.parametrize("k", [1, 3, 17])
@pytest.mark.parametrize("dtype", DTYPES)
def test_centers_that_are_none_lead_to_no_address_outside(bad, k, dtype):
    x = np.random.default_rng(0).standard_normal((50, 3)).astype(dtype)
    centers = np.full((k, 3), bad)
    for missing in (False, True):
        labels, _ = nearest(x, centers, missing=missing)
        assert 0 <= labels.min() <= labels.max() < k
    assert accumulate(x, centers).hi[:, 3].sum() == 50


# Independence of where rows lie.


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 150),
    k=st.integers(1, 40),
    p=st.integers(1, 20),
    dtype=st.sampled_from(DTYPES),
    data=st.data(),
)
def test_labels_and_distances_do_not_depend_on_order_or_cut(seed, n, k, p, dtype, data):
    case = make(seed, n, k, p, dtype, integers=False)
    labels, distances = nearest(case.x, case.centers)
    order = np.random.default_rng(seed).permutation(n)
    moved_labels, moved_distances = nearest(case.x[order], case.centers)
    np.testing.assert_array_equal(moved_labels, labels[order])
    np.testing.assert_array_equal(moved_distances, distances[order])
    at = data.draw(st.integers(0, n))
    parts = [nearest(part, case.centers) for part in (case.x[:at], case.x[at:])]
    np.testing.assert_array_equal(np.concatenate([part[0] for part in parts]), labels)
    np.testing.assert_array_equal(np.concatenate([part[1] for part in parts]), distances)


def test_labels_do_not_depend_on_the_shift(dtype):
    case = make(11, 200, 30, 6, dtype, integers=False, offset=50.0)
    labels, distances = nearest(case.x, case.centers)
    for shift in (np.zeros(6), np.full(6, 50.0), np.full(6, -1e3)):
        found = nearest(case.x, case.centers, shift=shift)
        np.testing.assert_array_equal(found[0], labels)
        np.testing.assert_array_equal(found[1], distances)


@pytest.mark.parametrize("k", [5, 40, 100])
def test_segments_only_change_the_last_bits_of_sums(dtype, k):
    case = make(12, 500, k, 4, dtype, integers=False, weighted=True)
    whole = accumulate(case.x, case.centers, weight=case.weight)
    cut = accumulate(
        case.x, case.centers, weight=case.weight, segments=np.array([0, 1, 1, 64, 499, 500])
    )
    np.testing.assert_allclose(cut.hi + cut.lo, whole.hi + whole.lo, rtol=1e-13, atol=1e-13)


def test_sums_over_many_segments_keep_their_digits(dtype):
    n = 3 * SEGMENT + 17
    x = np.full((n, 2), 0.1, dtype=dtype)
    stats = accumulate(x, np.zeros((1, 2)), segments=np.append(np.arange(SEGMENT, n, SEGMENT), n))
    exact = n * float(dtype(0.1))
    np.testing.assert_allclose(stats.hi[0, :2] + stats.lo[0, :2], exact, rtol=1e-13)
    assert stats.hi[0, 2] == n


def test_an_integer_weight_equals_repetition(dtype):
    case = make(13, 60, 6, 3, dtype, integers=True)
    weight = np.random.default_rng(13).integers(0, 4, 60)
    weighted = accumulate(case.x, case.centers, weight=weight.astype(float))
    repeated = accumulate(np.repeat(case.x, weight, axis=0), case.centers)
    np.testing.assert_allclose(weighted.hi, repeated.hi, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(
    "arrange",
    [np.asfortranarray, lambda a: np.repeat(a, 2, axis=0)[::2], lambda a: a[::-1][::-1]],
    ids=["fortran", "strided", "reversed twice"],
)
def test_memory_tiles_of_rows_does_not_matter(dtype, arrange):
    case = make(14, 50, 11, 6, dtype, integers=False, weighted=True)
    labels, distances = nearest(case.x, case.centers)
    found = nearest(arrange(case.x), case.centers)
    np.testing.assert_array_equal(found[0], labels)
    np.testing.assert_array_equal(found[1], distances)
    np.testing.assert_array_equal(
        accumulate(arrange(case.x), case.centers, weight=case.weight).hi,
        accumulate(case.x, case.centers, weight=case.weight).hi,
    )


# Inputs.


def test_read_only_inputs_are_taken_and_no_input_is_written_to(dtype):
    case = make(15, 70, 9, 5, dtype, integers=False, weighted=True, feature_weighted=True)
    shift = case.centers.mean(axis=0)
    arrays = [*case, shift]
    before = [a.copy() for a in arrays]
    writable = accumulate(*case[:2], weight=case[2], feature_weights=case[3], shift=shift)
    for a in arrays:
        a.setflags(write=False)
    locked = accumulate(*case[:2], weight=case[2], feature_weights=case[3], shift=shift)
    labels, _ = nearest(case.x, case.centers, feature_weights=case[3], shift=shift)
    direct_distances(case.x, case.centers, case[3])
    np.testing.assert_array_equal(locked.hi, writable.hi)
    np.testing.assert_array_equal(labels, direct(case).argmin(axis=1))
    for a, b in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(a, b)


def test_an_empty_block_has_no_labels_and_no_sums(dtype):
    labels, distances = nearest(np.empty((0, 3), dtype), np.ones((2, 3)))
    assert labels.shape == distances.shape == (0,)
    stats = accumulate(np.empty((0, 3), dtype), np.ones((2, 3)), weight=np.empty(0))
    assert stats.hi.shape == (2, 5)
    assert not stats.hi.any()
