"""Distances over what is observed: by hand, and against all differences."""

from __future__ import annotations

import numpy as np
import pytest

from daskclust.core.kernels.moments import class_moments
from daskclust.core.kernels.nearest.assign import (
    accumulate,
    direct_distances,
    nearest,
    observed_label_sums,
    observed_pair_boxes,
)
from daskclust.core.kernels.pairs import pair_lengths


def gapped(rng, n, p, dtype, share=0.4, offset=0.0):
    x = (rng.normal(size=(n, p)) + offset).astype(dtype)
    x[rng.random((n, p)) < share] = np.nan
    return x


def brute(x, centers, w):
    gaps = (x[:, None].astype(np.float64) - centers) ** 2 * w
    squared = np.nansum(gaps, axis=2)
    labels = squared.argmin(axis=1)
    nowhere = ~((~np.isnan(x)) & (w > 0)).any(axis=1)
    labels[nowhere] = -1
    return labels, np.where(nowhere, 0.0, squared.min(axis=1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_labels_are_those_of_all_differences(dtype, weighted, offset):
    rng = np.random.default_rng(0)
    for n, p, k in ((1, 1, 1), (50, 1, 3), (700, 7, 5), (3000, 20, 40)):
        x = gapped(rng, n, p, dtype, offset=offset)
        centers = rng.normal(size=(k, p)) + offset
        w = np.append(1.0, rng.integers(0, 3, p - 1)) if weighted else np.ones(p)
        found = nearest(x, centers, feature_weights=w if weighted else None, missing=True)
        labels, squared = brute(x, centers, w)
        np.testing.assert_array_equal(found[0], labels)
        np.testing.assert_allclose(found[1], squared, rtol=1e-12)


def test_ties_go_to_the_lowest_center_and_near_ties_are_decided_exactly():
    x = np.array([[0.0, np.nan, 1.0], [np.nan, 5.0, np.nan]])
    centers = np.array([[1.0, 9, 1], [-1, 5, 1], [1, 5, 1]])
    assert nearest(x, centers, missing=True)[0].tolist() == [0, 1]
    # Nearer by less than single precision holds.
    close = np.array([[1.0, 0, 0], [1 - 1e-12, 0, 0]])
    assert nearest(x[:1], close, missing=True)[0].tolist() == [1]
    huge = np.array([[1e30, np.nan, 1.0]])
    far = np.array([[1e30, 0, 5.0], [1e30, 0, 2.0]])
    assert nearest(huge, far, missing=True)[0].tolist() == [1]


def test_complete_rows_get_the_bits_of_complete_rows():
    rng = np.random.default_rng(1)
    x, centers = rng.normal(size=(400, 6)), rng.normal(size=(9, 6))
    some = x.copy()
    some[::3, 2] = np.nan
    kept = ~np.isnan(some).any(axis=1)
    found = nearest(some, centers, missing=True)
    for here, there in zip(found, nearest(x, centers), strict=True):
        np.testing.assert_array_equal(here[kept], there[kept])
    found, whole = accumulate(x, centers, missing=True), accumulate(x, centers)
    np.testing.assert_array_equal(found.hi[:, :6], whole.hi[:, :6])
    np.testing.assert_array_equal(found.hi[:, -2:], whole.hi[:, -2:])
    np.testing.assert_array_equal(found.hi[:, 6:12], np.repeat(whole.hi[:, 6:7], 6, axis=1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_are_of_what_is_observed(dtype):
    rng = np.random.default_rng(2)
    x, centers = gapped(rng, 9000, 4, dtype, 0.2), rng.normal(size=(5, 4))
    weight = rng.integers(0, 3, 9000).astype(float)
    segments = np.array([100, 4196, 8292, 9000])
    found = accumulate(x, centers, weight=weight, segments=segments, missing=True)
    total = found.hi + found.lo
    labels, squared = brute(x, centers, np.ones(4))
    for c in range(5):
        mine, w = labels == c, weight[labels == c]
        there = ~np.isnan(x[mine])
        wide = np.where(there, x[mine].astype(float), 0.0)
        np.testing.assert_allclose(total[c, :4], w @ wide, rtol=1e-9)
        np.testing.assert_array_equal(total[c, 4:8], w @ there.astype(float))
        assert total[c, 8] == w.sum()
        np.testing.assert_allclose(total[c, 9], w @ squared[mine], rtol=1e-12)


def test_pairs_and_few_rows():
    nan = np.nan
    x = np.array([[0.0, 1, nan], [2, nan, 5], [nan, nan, 1]])
    left, right = np.array([0, 1, 0]), np.array([1, 2, 2])
    w = np.array([1.0, 2, 3])
    # Together they observe feature 0; feature 2; nothing.
    assert pair_lengths(x, left, right, w).tolist() == [4, 48, 0]
    assert observed_pair_boxes(x, left, right, w).tolist() == [1, 3, 0]
    assert direct_distances(x, x, np.ones(3), missing=True)[0].tolist() == [0, 4, 0]
    sums = observed_label_sums(x, np.array([1.0, 1, 2]), np.array([0, 0, 1]), 2)
    assert sums.sums.tolist() == [[2, 1, 5], [0, 0, 2]]
    assert sums.masses.tolist() == [[2, 1, 1], [0, 0, 2]]
    assert sums.counts.tolist() == [2, 2]


def test_class_moments_over_what_is_observed():
    rng = np.random.default_rng(3)
    x = gapped(rng, 40, 3, np.float64)
    x[7] = np.nan
    places, weight = np.arange(0, 40), rng.random(40)
    codes = rng.integers(0, 3, 40).astype(np.int32)
    found = class_moments(x, places, codes, weight, 3, missing=True)
    for c in range(3):
        for j in range(3):
            mine = (codes == c) & ~np.isnan(x[:, j])
            mean = np.average(x[mine, j], weights=weight[mine])
            np.testing.assert_allclose(found.moments[0, c, j], weight[mine].sum())
            np.testing.assert_allclose(found.moments[1, c, j], mean)
            squares = weight[mine] @ (x[mine, j] - mean) ** 2
            np.testing.assert_allclose(found.moments[2, c, j], squares)
    here = ~np.isnan(x).all(axis=1)
    np.testing.assert_allclose(found.hi[:, -1], np.bincount(codes[here], weight[here]))
    whole = rng.normal(size=(9, 2))
    at, same = np.arange(9), np.zeros(9, np.int32)
    complete = class_moments(whole, at, same, None, 1)
    np.testing.assert_array_equal(
        class_moments(whole, at, same, None, 1, missing=True).hi[:, [0, 1, -1]], complete.hi
    )
