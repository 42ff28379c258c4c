"""Compensated sums, moments, the sampling race and row-wise random numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare, kstest

from daskclust.core.kernels.compensated import add_pairs, add_plain, add_stacked
from daskclust.core.kernels.moments import block_moments, first_nonfinite, merge_moments
from daskclust.core.kernels.pair_counts import count_edges
from daskclust.core.kernels.rng import draw_numbers, low_draws, race_keys, row_uniforms, smallest
from daskclust.explain.profile_kernels import distances_to_centers
from daskclust.mixture.densities import Mixtures
from daskclust.mixture.expectation import add_gram, move_diagonal, project

# Compensated sums.

wild = st.lists(
    st.builds(
        lambda sign, digits, power: sign * digits * 2.0**power,
        st.sampled_from([-1.0, 1.0]),
        st.integers(0, 2**20),
        st.integers(-20, 20),
    ),
    min_size=1,
    max_size=60,
)


def total(terms: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """Sum by the pairs that partials are merged with."""
    zero = np.zeros(1)
    pair = zero, zero
    for term in terms:
        pair = add_pairs(pair, (np.array([term]), zero))
    return pair


@given(wild, st.randoms(use_true_random=False))
def test_pairs_sum_wild_magnitudes_exactly_in_any_order(terms, random):
    # 61 bits of range: more than a double's 53, within a pair's 106.
    exact = math.fsum(terms)
    assert total(terms)[0][0] == exact
    shuffled = list(terms)
    random.shuffle(shuffled)
    assert total(shuffled)[0][0] == exact


@given(wild, wild, wild)
def test_merging_pairs_is_associative(a, b, c):
    a, b, c = total(a), total(b), total(c)
    left, right = add_pairs(add_pairs(a, b), c), add_pairs(a, add_pairs(b, c))
    assert left[0] == right[0]
    assert left[1] == right[1]
    np.testing.assert_array_equal(add_stacked(np.stack(a), np.stack(b)), add_pairs(a, b))


def test_the_first_of_a_pair_is_the_rounded_sum():
    hi, lo = total([1.0, 1e-17, 1e-17])
    assert hi + lo == hi
    assert lo == 2e-17


@given(wild)
def test_plain_terms_are_added_without_loss(terms):
    hi, lo = np.zeros(1), np.zeros(1)
    for term in terms:
        add_plain(hi, lo, np.array([term]))
    assert hi[0] + lo[0] == math.fsum(terms)


def test_a_plain_sum_would_have_lost_the_small_term():
    hi, lo = np.zeros(2), np.zeros(2)
    for term in (1e16, 1.0, -1e16):
        add_plain(hi, lo, np.array([term, 1.0]))
    assert (hi + lo).tolist() == [1.0, 3.0]


# Moments.


def numpy_moments(x, weight):
    x = x.astype(np.float64)
    mean = np.average(x, axis=0, weights=weight)
    return np.stack([np.full(x.shape[1], weight.sum()), mean, weight @ (x - mean) ** 2])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("segments", [None, [1, 1, 40, 301]])
def test_moments_equal_numpys(dtype, weighted, segments):
    rng = np.random.default_rng(0)
    x = rng.normal(3, 2, (301, 5)).astype(dtype)
    weight = rng.random(301) if weighted else np.ones(301)
    found = block_moments(x, weight if weighted else None, segments)
    np.testing.assert_allclose(found.moments, numpy_moments(x, weight), rtol=1e-12)
    np.testing.assert_allclose(found.hi[:-1] + found.lo[:-1], weight @ x.astype(float), rtol=1e-12)
    np.testing.assert_allclose(found.hi[-1], weight.sum(), rtol=1e-14)
    np.testing.assert_array_equal(found.low, x.min(axis=0))
    np.testing.assert_array_equal(found.high, x.max(axis=0))
    assert found.finite


@pytest.mark.parametrize("segments", [None, [100, 2000]])
def test_variance_keeps_its_digits_at_offset_1e8(segments):
    x = np.random.default_rng(1).normal(size=(2000, 3)) + 1e8
    moments = block_moments(x, None, segments).moments
    np.testing.assert_allclose(moments[2] / moments[0], x.var(axis=0), rtol=1e-9)


def test_merged_moments_equal_those_of_all_rows():
    rng = np.random.default_rng(2)
    x = rng.normal(1e6, 1, (90, 4))
    weight = rng.random(90)
    parts = [block_moments(x[s], weight[s]).moments for s in (slice(0, 10), slice(10, 90))]
    np.testing.assert_allclose(merge_moments(*parts), numpy_moments(x, weight), rtol=1e-9)


def test_merging_with_no_rows_changes_nothing():
    some = block_moments(np.arange(12.0).reshape(4, 3)).moments
    none = np.zeros((3, 3))
    np.testing.assert_array_equal(merge_moments(some, none), some)
    np.testing.assert_array_equal(merge_moments(none, some), some)
    np.testing.assert_array_equal(merge_moments(none, none), none)


def test_rows_of_weight_0_count_for_nothing():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(50, 3))
    x[::3] *= 1e6
    weight = np.where(np.arange(50) % 3, 2.0, 0.0)
    found = block_moments(x, weight)
    kept = block_moments(x[weight > 0], weight[weight > 0])
    np.testing.assert_allclose(found.moments, kept.moments, rtol=1e-13)
    np.testing.assert_array_equal(found.low, kept.low)
    np.testing.assert_array_equal(found.high, kept.high)


def test_no_rows_have_weight_0_and_an_empty_range():
    found = block_moments(np.empty((0, 2)))
    assert not found.moments.any()
    assert found.low.tolist() == [np.inf, np.inf]
    assert found.high.tolist() == [-np.inf, -np.inf]
    assert found.finite


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("weight", [None, 0.0, 1.0])
def test_a_single_bad_value_anywhere_is_noticed(bad, weight):
    for row, column in [(0, 0), (0, 3), (17, 1), (29, 3)]:
        x = np.zeros((30, 4), dtype=np.float32)
        x[row, column] = bad
        weights = None
        if weight is not None:
            weights = np.ones(30)
            weights[row] = weight
        assert not block_moments(x, weights).finite
        assert first_nonfinite(x) == (row, column)


def test_infinities_of_both_signs_do_not_cancel():
    x = np.array([[np.inf, 0.0], [-np.inf, 0.0], [1.0, 2.0]])
    assert not block_moments(x).finite
    assert first_nonfinite(x) == (0, 0)


def test_the_first_bad_value_is_the_first_in_row_order():
    x = np.ones((5, 4))
    x[3, 0], x[2, 3], x[2, 1] = np.nan, np.nan, np.inf
    assert first_nonfinite(x) == (2, 1)
    assert first_nonfinite(np.ones((3, 2))) == (-1, -1)
    assert first_nonfinite(np.empty((0, 2))) == (-1, -1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_finite_values_whose_sums_overflow_are_not_bad(dtype):
    x = np.full((4, 2), np.finfo(dtype).max, dtype=dtype)
    assert block_moments(x).finite


# The race.


@pytest.mark.parametrize("n", [1, 15, 16, 17, 40, 1000, 1003])
@pytest.mark.parametrize("values", [3, 10**6])
def test_the_smallest_keys_are_those_of_a_sorted_list(n, values):
    rng = np.random.default_rng(n)
    keys = rng.integers(values, size=n).astype(float)
    for gone, what in ((0, 0.0), (n // 2, np.inf), (n // 3, np.nan), (n, np.nan)):
        keys[rng.permutation(n)[:gone]] = what
        for count in (0, 1, 2, n // 20 + 1, n, n + 1):
            wanted = sorted((key, i) for i, key in enumerate(keys) if key < np.inf)[:count]
            assert smallest(keys, count).tolist() == [i for _, i in wanted]


def test_the_first_winner_is_drawn_in_proportion_to_mass():
    mass = np.array([1.0, 2.0, 0.0, 5.0, 0.5, 1.5])
    n = 20_000
    wins = np.zeros(len(mass))
    for round_ in range(n):
        wins[smallest(race_keys(row_uniforms(7, round_, 0, len(mass)), mass), 1)[0]] += 1
    assert wins[2] == 0
    alive = mass > 0
    assert chisquare(wins[alive], n * mass[alive] / mass.sum()).pvalue > 1e-3


def test_the_second_winner_is_drawn_in_proportion_to_the_mass_that_is_left():
    mass = np.array([4.0, 1.0, 2.0, 3.0])
    n = 20_000
    wins = np.zeros((4, 4))
    for round_ in range(n):
        first, second = smallest(race_keys(row_uniforms(8, round_, 0, 4), mass), 2)
        wins[first, second] += 1
    share = mass / mass.sum()
    pairs = np.outer(share, share) / (1 - share)[:, None]
    off = ~np.eye(4, dtype=bool)
    assert wins[~off].sum() == 0
    assert chisquare(wins[off], n * pairs[off]).pvalue > 1e-3


def test_low_draws_are_of_rows_not_of_runs():
    n = 20_000
    index = np.random.default_rng(0).integers(-1, 3, n)
    limits = np.array([0.01, 0.2, 1.0, -1.0])
    places, draws = low_draws(5, [(0, n)], index, limits)
    assert (draws <= limits[index[places]]).all()
    rates = np.bincount(index[places], minlength=3) / np.bincount(index[index >= 0])
    np.testing.assert_allclose(rates, limits[:3], atol=0.015)
    assert kstest(draws[index[places] == 2], "uniform").pvalue > 1e-3
    # Rows in two runs, of which the second comes first; other seeds draw others.
    order = np.concatenate([np.arange(7000, n), np.arange(7000)])
    moved, again = low_draws(5, [(7000, n - 7000), (0, 0), (0, 7000)], index[order], limits)
    back = np.argsort(order[moved])
    assert order[moved][back].tolist() == places.tolist()
    assert again[back].tolist() == draws.tolist()
    assert low_draws(6, [(0, n)], index, limits)[0].tolist() != places.tolist()


@given(st.integers(0, 2**32), st.integers(1, 50), st.integers(1, 60))
def test_mass_0_is_never_drawn_however_many_are_wanted(seed, n, count):
    mass = np.random.default_rng(seed).integers(0, 3, n).astype(float)
    drawn = smallest(race_keys(row_uniforms(seed, 0, 0, n), mass), count)
    assert (mass[drawn] > 0).all()
    assert len(drawn) == min(count, np.count_nonzero(mass)) == len(set(drawn.tolist()))


@given(st.lists(st.integers(0, 5), max_size=40), st.integers(-1, 50))
def test_the_smallest_keys_come_in_order_with_ties_by_position(keys, count):
    keys = np.array([np.inf if key == 5 else float(key) for key in keys])
    order = sorted((key, i) for i, key in enumerate(keys) if key < np.inf)
    assert smallest(keys, count).tolist() == [i for _, i in order[: max(count, 0)]]


# Random numbers of rows.


@given(
    st.integers(0, 2**62),
    st.integers(0, 1000),
    st.lists(st.integers(0, 30), min_size=1, max_size=8),
    st.integers(0, 2**40),
)
def test_draws_do_not_depend_on_chunks(seed, round_, chunks, offset):
    n = sum(chunks)
    whole = row_uniforms(seed, round_, offset, n)
    starts = np.cumsum([0, *chunks[:-1]]).tolist()
    parts = [
        row_uniforms(seed, round_, offset + start, size)
        for start, size in zip(starts, chunks, strict=True)
    ]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("row", [0, 1, 3, 4, 5, 4095, 10**9 + 3])
def test_draws_are_the_documented_philox_stream(row):
    key = np.random.SeedSequence([123, 6]).generate_state(2, np.uint64)
    stream = np.random.Philox(key=key)
    stream.advance(row // 4)
    raw = stream.random_raw(row % 4 + 1)[-1]
    assert row_uniforms(123, 6, row, 1)[0] == 1.0 - (int(raw) >> 11) * 2.0**-53


def test_draws_lie_above_0_and_are_uniform():
    draws = row_uniforms(0, 0, 0, 200_000)
    assert draws.min() > 0.0
    assert draws.max() <= 1.0
    assert kstest(draws, "uniform").pvalue > 1e-3


def test_rounds_and_seeds_draw_different_numbers():
    streams = [row_uniforms(seed, round_, 0, 1000) for seed in (0, 1) for round_ in (0, 1)]
    correlation = np.corrcoef(streams)[~np.eye(4, dtype=bool)]
    assert np.abs(correlation).max() < 0.12


# By hand, of what other tests meet only inside of passes.


def test_different_numbers_are_drawn_ascending() -> None:
    assert draw_numbers(3, 5, 0).tolist() == [0, 1, 2]
    drawn = draw_numbers(100, 5, 0)
    assert len(drawn) == 5
    assert (np.diff(drawn) > 0).all()
    assert 0 <= drawn[0] <= drawn[-1] < 100


def test_pixels_side_by_side_are_counted_with_the_lower_node_first() -> None:
    found = count_edges(np.array([1, -1, 0]), np.array([0, 0, 1]), 2)
    assert (found.keys.tolist(), found.counts.tolist()) == ([1], [2.0])


def test_distances_to_own_centers_are_over_what_is_there() -> None:
    x, index, centers = np.array([[3.0, 4.0], [np.nan, 4.0]]), np.array([0, 0]), np.zeros((1, 2))
    assert distances_to_centers(x, index, centers, None).tolist() == [25.0, 32.0]
    assert distances_to_centers(x, index, centers, np.array([4.0, 0.0])).tolist() == [36.0, 0.0]


def test_a_missing_value_counts_with_the_old_mean_and_variance() -> None:
    # A row with value 3, and one without, which counts as 0: the variance is theirs, 2.25, and
    # half of the old one.
    sums, mass = np.array([[2.0, 9.0, 3.0, 1.0]]), np.array([2.0])
    means, variances = np.empty((2, 1, 1))
    old = np.zeros((1, 1)), np.ones((1, 1)), np.zeros(1)
    move_diagonal(sums, mass, *old, (means, variances))
    assert (means[0, 0], variances[0, 0]) == (1.5, 2.75)


def test_the_gram_matrix_of_posteriors() -> None:
    two = Mixtures(np.full(2, 0.5), np.array([[0.0], [2.0]]), np.ones((2, 1)), (2,))
    x, shift = np.array([[1.0], [50.0]]), np.zeros(1)
    assert add_gram(x, two, shift, None)[0].tolist() == [[0.25, 0.25], [0.25, 1.25]]
    assert project(x, two, shift, np.array([[1.0], [3.0]])).ravel().tolist() == [2.0, 3.0]
