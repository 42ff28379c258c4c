"""Kernels of Gaussian mixtures: by hand, by brute force, and their laws with missing values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.mixtures import conditional, expectation
from scipy.special import logsumexp

from daskclust.core.kernels.moments import block_moments
from daskclust.core.reduction.survey import PARTIAL_SURVEY, SurveyRequest
from daskclust.mixture.densities import Mixtures, _add_exponentials, softmax
from daskclust.mixture.expectation import (
    RepeatedRows,
    accumulate_initial,
    accumulate_mixtures,
    group_patterns,
    impute,
    posteriors,
)
from daskclust.mixture.reductions import (
    EXPECTATION,
    INITIAL_SUMS,
    LIKELIHOOD,
    InitialPosteriors,
    MixtureStack,
)
from daskclust.testing import check_reduction_laws
from daskclust.testing.strategies import row_chunks

SEEDS = st.integers(0, 2**32 - 1)


def incomplete(rng, n=40, p=4, share=0.3):
    x = rng.normal(size=(n, p))
    x[rng.random((n, p)) < share] = np.nan
    x[n // 2] = np.nan
    return x


def random_mixtures(rng, p, sizes=(3,), full=True):
    d = sum(sizes)
    weights = np.concatenate([w / w.sum() for w in (rng.random(k) + 0.1 for k in sizes)])
    roots = rng.normal(size=(d, p, p))
    covariances = roots @ roots.transpose(0, 2, 1) + 0.5 * np.eye(p)
    if not full:
        covariances = rng.uniform(0.2, 2.0, (d, p))
    return Mixtures(weights, rng.normal(size=(d, p)), covariances, sizes)


# The exponential and the softmax.


def exponential(x):
    """Exponentials of numbers that are not positive, by the code of the softmax."""
    out, zeros = np.empty_like(x), np.zeros_like(x)
    _add_exponentials(x, zeros, zeros.copy(), out)
    return out


def test_the_exponential_is_exact_to_about_a_unit_in_the_last_place():
    x = -np.concatenate([np.linspace(0, 700, 100_001), [0.0]])
    np.testing.assert_allclose(exponential(x), np.exp(x), rtol=5e-16)
    small = x[x > -87].astype(np.float32)
    np.testing.assert_allclose(exponential(small), np.exp(small.astype(float)), rtol=2e-7)


def test_what_is_too_small_is_0():
    assert exponential(np.array([-709.0, -1e300, -np.inf])).tolist() == [0.0, 0.0, 0.0]
    assert exponential(np.array([-88.0, -np.inf], dtype=np.float32)).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 127, 128, 129, 300])
def test_softmax_of_several_models(dtype, n):
    rng = np.random.default_rng(n)
    bounds = np.array([0, 1, 4, 9])
    scores, bias = 50 * rng.normal(size=(9, n)), rng.normal(size=9)
    bias[5] = -np.inf
    total = scores + bias[:, None]
    # The previous content of the arrays does not matter.
    out = np.full((9, n), np.nan, dtype), np.full((3, n), np.inf), np.ones((3, n), dtype)
    shares, top, norm = softmax(scores.copy(), bias, bounds, out)
    assert [id(array) for array in (shares, top, norm)] == [id(array) for array in out]
    tolerance = 1e-13 if dtype == np.float64 else 1e-5
    for m in range(3):
        part = total[bounds[m] : bounds[m + 1]]
        likelihood = logsumexp(part, axis=0)
        np.testing.assert_allclose(top[m] + np.log(norm[m]), likelihood, rtol=tolerance)
        found = shares[bounds[m] : bounds[m + 1]]
        np.testing.assert_allclose(found, np.exp(part - likelihood), rtol=0, atol=tolerance)
    assert not shares[5].any()


# Densities and sums.


def test_two_rows_one_missing_value_full_covariance_by_hand():
    # Correlation 1/2: the missing second value of 2 is expected at 1, with variance 3/4.
    tied = np.array([[[1.0, 0.5], [0.5, 1.0]]])
    one = Mixtures(np.ones(1), np.zeros((1, 2)), tied, (1,))
    x = np.array([[2.0, np.nan], [1.0, -1.0]])
    found = accumulate_mixtures(x, one, shift=np.zeros(2))
    mass, a, b, aa, ab, ba, bb = found.sums.sum(axis=0)[0]
    assert mass == 2.0
    np.testing.assert_allclose([a, b], [3.0, 0.0], atol=1e-15)
    np.testing.assert_allclose([aa, ab, ba, bb], [5.0, 1.0, 1.0, 1.0 + 0.75 + 1.0])
    first = -0.5 * np.log(2 * np.pi) - 2.0
    second = -np.log(2 * np.pi) - 0.5 * np.log(0.75) - 0.5 * 4.0
    np.testing.assert_allclose(found.likelihood.sum(axis=0), [first + second, 2.0])


@pytest.mark.parametrize("full", [False, True], ids=["diag", "full"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(seed=SEEDS)
def test_sums_and_posteriors_equal_brute_force(full, dtype, seed):
    rng = np.random.default_rng(seed)
    x = incomplete(rng).astype(dtype)
    weight = rng.random(len(x))
    mixtures = random_mixtures(rng, 4, (3, 2), full)
    shift = rng.normal(size=4)
    expected = expectation(x, weight, mixtures, shift)
    shares, likelihood = posteriors(x, mixtures, shift)
    np.testing.assert_allclose(shares, expected.shares, atol=1e-12)
    np.testing.assert_allclose(likelihood, expected.likelihood, rtol=1e-11, atol=1e-11)
    found = accumulate_mixtures(
        x, mixtures, weight=weight, shift=shift, segments=np.array([7, 7, 30, len(x)])
    )
    np.testing.assert_allclose(found.sums.sum(axis=0), expected.sums, rtol=1e-10, atol=1e-10)
    fit = [*(expected.likelihood @ weight), weight.sum()]
    np.testing.assert_allclose(found.likelihood.sum(axis=0), fit, rtol=1e-11)


@pytest.mark.parametrize("full", [False, True], ids=["diag", "full"])
@pytest.mark.parametrize("kept", [0, 2**22])
def test_rows_gone_over_again_have_the_sums_of_a_pass(full, kept, monkeypatch):
    monkeypatch.setattr("daskclust.mixture.expectation._MAX_VALUES", kept)
    rng = np.random.default_rng(2)
    x, shift = incomplete(rng, n=2500), rng.normal(size=4)
    x[:1024] = rng.normal(size=(1024, 4))  # a tile that misses nothing
    rows = RepeatedRows(x, shift)
    for sizes in ((3, 2), (4,)):
        mixtures = random_mixtures(rng, 4, sizes, full)
        high, low = accumulate_mixtures(x, mixtures, shift=shift).sums
        np.testing.assert_array_equal(rows.sums(mixtures), high + low)


@pytest.mark.parametrize("full", [False, True], ids=["diag", "full"])
def test_missing_values_are_filled_with_conditional_means(full):
    rng = np.random.default_rng(3)
    x = incomplete(rng)
    mixtures = random_mixtures(rng, 4, (3,), full)
    shares = posteriors(x, mixtures, np.zeros(4))[0]
    filled = impute(x, mixtures, np.zeros(4))
    means = np.array(
        [[conditional(row, mixtures, k)[0] + mixtures.means[k] for k in range(3)] for row in x]
    )
    expected = np.einsum("ki,ikj->ij", shares, means)
    there = ~np.isnan(x)
    np.testing.assert_array_equal(filled[there], x[there])
    np.testing.assert_allclose(filled, expected, rtol=1e-10, atol=1e-12)


def test_a_row_without_any_value_has_the_weights_as_posterior():
    rng = np.random.default_rng(0)
    for full in (False, True):
        mixtures = random_mixtures(rng, 3, (4,), full)
        shares, likelihood = posteriors(np.full((1, 3), np.nan), mixtures, np.ones(3))
        np.testing.assert_allclose(shares[:, 0], mixtures.weights, rtol=1e-14)
        assert abs(likelihood[0, 0]) < 1e-14


@pytest.mark.parametrize("full", [False, True], ids=["diag", "full"])
def test_rows_far_from_0_keep_their_digits(full):
    rng = np.random.default_rng(1)
    x = incomplete(rng, n=60)
    mixtures = random_mixtures(rng, 4, (3,), full)
    away = Mixtures(mixtures.weights, mixtures.means + 1e6, mixtures.covariances, (3,))
    near = posteriors(x, mixtures, np.zeros(4))[0]
    far = posteriors(x + 1e6, away, np.full(4, 1e6))[0]
    np.testing.assert_allclose(far, near, atol=1e-8)


def test_sums_of_given_posteriors_equal_brute_force():
    rng = np.random.default_rng(2)
    x, weight = incomplete(rng), rng.random(40)
    shares, centers, fill = rng.random((3, 40)), rng.normal(size=(3, 4)), rng.normal(size=4)
    for full in (False, True):
        found = accumulate_initial(x, shares, centers, fill, full=full, weight=weight).sum(axis=0)
        for k in range(3):
            d = np.nan_to_num(x - (centers[k] if full else fill))
            g = (shares[k] * weight)[:, None]
            expected = [[g.sum()], *((g * v).sum(axis=0) for v in (d**2, d, ~np.isnan(x)))]
            if full:
                expected.append(((g * d).T @ d).ravel())
            np.testing.assert_allclose(found[k], np.concatenate(expected), rtol=1e-11, atol=1e-12)


@given(seed=SEEDS, p=st.integers(1, 70))
def test_rows_of_a_pattern_are_together_in_their_order(seed, p):
    # More than 64 features: a pattern does not fit one word.
    rng = np.random.default_rng(seed)
    x = np.where(rng.random((30, p)) < 0.5 / p, np.nan, 1.0)
    rows = group_patterns(x, np.arange(30.0))
    assert sorted(rows.order.tolist()) == list(range(30))
    np.testing.assert_array_equal(rows.weight, rows.order)
    seen = set()
    for start, stop in zip(rows.starts[:-1], rows.starts[1:], strict=True):
        gone = np.isnan(rows.x[start:stop])
        assert (gone == gone[0]).all()
        assert (np.diff(rows.order[start:stop]) > 0).all()
        seen.add(gone[0].tobytes())
    assert len(seen) == len(rows.starts) - 1


# What there is.


@given(seed=SEEDS, weighted=st.booleans())
def test_moments_of_what_is_there(seed, weighted):
    rng = np.random.default_rng(seed)
    x = incomplete(rng) + 1e4
    weight = rng.integers(0, 3, 40).astype(float) if weighted else None
    found = block_moments(x, weight, np.array([11, 11, 40]), missing=True)
    w = np.ones(40) if weight is None else weight
    there = ~np.isnan(x) & (w > 0)[:, None]
    mass = (there * w[:, None]).sum(axis=0)
    mean = np.where(there, x * w[:, None], 0).sum(axis=0) / mass
    squares = np.where(there, (x - mean) ** 2 * w[:, None], 0).sum(axis=0)
    np.testing.assert_allclose(found.hi[:4] / mass, mean, rtol=1e-14)
    np.testing.assert_allclose(found.hi[4:8], mass)
    assert found.hi[8:].tolist() == [w.sum(), there.any(axis=1).sum()]
    np.testing.assert_allclose(found.moments, [mass, mean, squares], rtol=1e-9)
    np.testing.assert_array_equal(found.low, np.where(there, x, np.inf).min(axis=0))
    np.testing.assert_array_equal(found.high, np.where(there, x, -np.inf).max(axis=0))


# The laws of the reductions, with values missing.


@given(data=st.data(), seed=SEEDS)
def test_laws_with_missing_values(data, seed):
    rng = np.random.default_rng(seed)
    n = data.draw(st.integers(1, 40))
    x = rng.normal(size=(n, 3))
    x[rng.random((n, 3)) < 0.4] = np.nan
    weight = rng.integers(0, 4, n).astype(float)
    weight[rng.integers(n)] = 2.0
    lengths = data.draw(row_chunks(n, max_chunks=6))
    stacks = [
        MixtureStack(random_mixtures(rng, 3, (2, 3), full), np.full(3, 0.25))
        for full in (False, True)
    ]
    centers = rng.normal(size=(2, 3, 3))
    for reduction, states in (
        (EXPECTATION, stacks),
        (LIKELIHOOD, stacks),
        (
            INITIAL_SUMS,
            [InitialPosteriors(centers, np.full(3, 0.5), full) for full in (False, True)],
        ),
    ):
        check_reduction_laws(reduction, states, x, weight, lengths=lengths, tolerance=1e-11)
    check_reduction_laws(
        PARTIAL_SURVEY,
        [SurveyRequest(3, (7,), 2)],
        x,
        weight,
        lengths=lengths,
        repetition_invariant=lambda s: (s.weight, s.mean, s.variance, s.observed),
    )
