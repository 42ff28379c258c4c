"""Feature scores, the closed-form threshold, sparse weights."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from oracles.published import bisection_threshold

from daskclust.cluster.constrained.sparsity import (
    between_scores,
    feature_weights,
    soft_threshold,
)


def l1(scores: np.ndarray, delta: float) -> float:
    """L1 norm of the thresholded scores at unit L2 norm."""
    kept = np.maximum(scores - delta, 0.0)
    kept = kept / kept.max()
    return float(kept.sum() / np.sqrt((kept**2).sum()))


def root_finder(scores: np.ndarray, sparsity: float) -> float:
    """Delta by 200 halvings, scores at most 1."""
    low, high = 0.0, float(scores.max())
    if l1(scores, 0.0) <= sparsity:
        return 0.0
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if l1(scores, middle) < sparsity:
            high = middle
        else:
            low = middle
    return (low + high) / 2


# --- between_scores ------------------------------------------------------------------------


def test_between_scores_by_hand() -> None:
    # Clusters {0, 2} and {4} of one feature: means 1, 4, overall 2; 2 * 1 + 1 * 4 = 6.
    assert_allclose(between_scores([[2.0], [4.0]], [2, 1], [2.0]), [6.0])


def test_empty_cluster_contributes_nothing() -> None:
    assert_allclose(between_scores([[2.0], [0.0], [4.0]], [2, 0, 1], [2.0]), [6.0])
    assert_array_equal(between_scores(np.zeros((2, 3)), [0, 0], np.ones(3)), np.zeros(3))


def test_between_is_total_minus_within() -> None:
    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=(60, 5)), rng.integers(4, size=60)
    sums = np.array([x[labels == k].sum(axis=0) for k in range(4)])
    within = sum(((x[labels == k] - x[labels == k].mean(0)) ** 2).sum(0) for k in range(4))
    got = between_scores(sums, np.bincount(labels), x.mean(axis=0))
    assert_allclose(got, ((x - x.mean(0)) ** 2).sum(0) - within)


def test_between_scores_does_not_change_its_inputs() -> None:
    sums, counts, mean = np.ones((2, 2)), np.array([1.0, 0.0]), np.zeros(2)
    before = (sums.copy(), counts.copy(), mean.copy())
    between_scores(sums, counts, mean)
    for now, then in zip((sums, counts, mean), before, strict=True):
        assert_array_equal(now, then)


# --- soft_threshold ------------------------------------------------------------------------


def test_threshold_by_hand() -> None:
    # (4 - d, 1 - d) with ratio 1.4 at d = 0.5: 4 / sqrt(12.5) = 1.1314.
    sparsity = 4 / math.sqrt(12.5)
    assert soft_threshold([4.0, 1.0], sparsity) == pytest.approx(0.5, abs=1e-14)


def test_threshold_is_zero_when_the_bound_does_not_bind() -> None:
    assert soft_threshold([4.0, 1.0], 5 / math.sqrt(17) + 1e-9) == 0.0
    assert soft_threshold([3.0, 3.0, 3.0, 3.0], 2.0) == 0.0
    assert soft_threshold([3.0, 3.0, 3.0], math.sqrt(3)) == 0.0
    assert soft_threshold([1.0, 2.0, 5.0], 100.0) == 0.0


def test_negative_scores_take_no_part() -> None:
    assert soft_threshold([4.0, 1.0, -3.0, -50.0, 0.0], 1.2) == soft_threshold([4.0, 1.0], 1.2)


def test_sparsity_one_keeps_the_largest_only() -> None:
    result = feature_weights([1.0, 5.0, 4.999, -7.0], 1.0)
    assert result is not None
    assert_array_equal(result.weights, [0.0, 1.0, 0.0, 0.0])
    assert not result.tied
    assert 4.999 <= result.delta < 5.0


@pytest.mark.parametrize("scale", [1e-300, 1e-12, 1.0, 1e12, 1e300])
def test_any_scale(scale: float) -> None:
    scores = np.array([0.9, 0.5, 0.3, 0.29, 0.0, -0.4])
    one, scaled = feature_weights(scores, 1.4), feature_weights(scale * scores, 1.4)
    assert one is not None
    assert scaled is not None
    assert_allclose(scaled.weights, one.weights, rtol=0, atol=1e-14)
    assert_allclose(scaled.delta / scale, one.delta, rtol=1e-13)


@given(
    st.lists(st.floats(-1, 1), min_size=1, max_size=40),
    st.floats(1, 7),
    st.integers(-300, 300),
)
def test_against_a_root_finder(values: list[float], sparsity: float, exponent: int) -> None:
    scores = np.array(values)
    result = feature_weights(scores * 10.0**exponent, sparsity)
    if scores.max() * 10.0**exponent <= 0.0:
        assert result is None
        return
    assert result is not None
    if scores.max() < 1e-3:
        return  # the oracle works in absolute numbers
    scores = scores / scores.max()
    ties = np.count_nonzero(scores >= 1 - 1e-12)
    assert result.tied == (ties > sparsity**2 * (1 + 1e-12))
    assert np.linalg.norm(result.weights) == pytest.approx(1.0, abs=1e-14)
    assert (result.weights >= 0).all()
    assert (result.weights[scores <= 0] == 0).all()
    if result.tied:
        assert_allclose(
            result.weights, np.where(scores >= 1 - 1e-12, 1 / math.sqrt(ties), 0.0), atol=1e-15
        )
        return
    positive = np.maximum(scores, 0.0)
    norm = result.weights.sum()
    assert norm <= sparsity + 1e-9
    if result.delta > 0:
        assert norm == pytest.approx(sparsity, abs=1e-12)
        top = max(np.array(values).max(), 0.0) * 10.0**exponent
        # If several thresholds are possible (only ties remain), weights decide, not Delta.
        if ties < sparsity**2 * (1 - 1e-9):
            assert result.delta / top == pytest.approx(root_finder(positive, sparsity), abs=1e-9)
    else:
        assert_allclose(result.weights, positive / np.linalg.norm(positive), atol=1e-15)


@given(st.integers(2, 30), st.floats(1e-11, 1e-6), st.floats(1.0001, 5))
def test_nearly_equal_scores(p: int, gap: float, sparsity: float) -> None:
    # The differences are far below the scores: max(gamma - Delta, 0) would be noise.
    scores = 1.0 - gap * np.arange(p) ** 1.5
    result = feature_weights(scores, sparsity)
    assert result is not None
    assert not result.tied
    assert result.weights.sum() == pytest.approx(min(sparsity, l1(scores, 0.0)), abs=1e-11)


def test_ties_stay_and_are_flagged() -> None:
    result = feature_weights([2.0, 2.0, 2.0, 1.0, -1.0], 1.5)
    assert result is not None
    assert result.tied
    assert_allclose(result.weights, np.array([1, 1, 1, 0, 0]) / math.sqrt(3))
    assert 1.0 <= result.delta < 2.0


def test_ties_below_the_bound_are_not_special() -> None:
    # s**2 = 2.25 > 2 ties: a third feature enters, (1 - d, 1 - d, 0.5 - d).
    result = feature_weights([1.0, 1.0, 0.5], 1.5)
    assert result is not None
    assert not result.tied
    assert result.weights.sum() == pytest.approx(1.5, abs=1e-14)
    assert result.weights[0] == result.weights[1] > result.weights[2] > 0


def test_ties_that_meet_the_bound_exactly_are_not_flagged() -> None:
    for t in range(1, 30):
        scores = np.array([7.0] * t + [6.0, 5.0])
        result = feature_weights(scores, math.sqrt(t))
        assert result is not None
        assert not result.tied
        assert_allclose(result.weights[:t], 1 / math.sqrt(t), rtol=1e-6)


def test_rounding_does_not_break_a_tie() -> None:
    exact = feature_weights([2.0, 2.0, 1.0], 1.2)
    rounded = feature_weights([2.0, np.nextafter(2.0, 0), 1.0], 1.2)
    assert exact is not None
    assert rounded is not None
    assert rounded.tied
    assert_allclose(rounded.weights, exact.weights, atol=1e-15)


def test_no_positive_score() -> None:
    assert feature_weights([0.0, -1.0], 1.5) is None
    assert feature_weights([], 1.5) is None
    assert soft_threshold([0.0, -1.0], 1.5) == 0.0


def test_inputs_are_not_changed() -> None:
    scores = np.array([3.0, 2.0, -1.0])
    feature_weights(scores, 1.1)
    assert_array_equal(scores, [3.0, 2.0, -1.0])


def test_another_threshold_can_be_plugged_in() -> None:
    scores = np.array([30.0, 20.0, 11.0, 3.0, -2.0])
    exact = feature_weights(scores, 1.3)
    published = feature_weights(scores, 1.3, threshold=bisection_threshold)
    assert exact is not None
    assert published is not None
    assert published.delta == bisection_threshold(np.maximum(scores, 0), 1.3)
    assert published.delta != exact.delta
    assert_allclose(published.weights, exact.weights, atol=1e-4)


@pytest.mark.parametrize("sparsity", [0.99, 0.0, -1.0, math.nan, math.inf])
def test_sparsity_out_of_range(sparsity: float) -> None:
    with pytest.raises(ValueError, match=r"^sparsity must be a finite number of at least 1"):
        soft_threshold([1.0, 2.0], sparsity)


def test_scores_must_be_finite_and_one_dimensional() -> None:
    with pytest.raises(ValueError, match="got nan for feature 1"):
        feature_weights([1.0, math.nan], 1.2)
    with pytest.raises(ValueError, match=r"got \(1, 2\)"):
        soft_threshold([[1.0, 2.0]], 1.2)


def test_useless_threshold_is_refused() -> None:
    with pytest.raises(ValueError, match="must return a number below the largest"):
        feature_weights([1.0, 2.0], 1.2, threshold=lambda scores, s: 2.0)
