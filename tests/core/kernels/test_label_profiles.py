"""Moments and histograms by label, by hand and against loops over the rows."""

import numpy as np
import pytest

from daskclust.explain.profile_kernels import (
    choose_bins,
    fill_histograms,
    histogram_quantiles,
    label_counts,
    label_positions,
    merged_order,
    rank_areas,
    value_moments,
)


def test_moments_by_hand():
    x = np.array([[1.0, np.nan], [3.0, 4.0], [8.0, 9.0], [5.0, 5.0]])
    index = np.array([0, 0, 1, -1])
    sizes, moments, bounds, missing = value_moments(x, index, np.array([1.0, 3.0, 2.0, 1.0]), 2)
    assert sizes.tolist() == [4.0, 2.0]
    assert moments[0].tolist() == [[4.0, 3.0], [2.0, 2.0]]
    assert moments[1].tolist() == [[2.5, 4.0], [8.0, 9.0]]
    # 1 (1 - 2.5)^2 + 3 (3 - 2.5)^2
    assert moments[2].tolist() == [[3.0, 0.0], [0.0, 0.0]]
    assert bounds[0].tolist() == [[1.0, 4.0], [8.0, 9.0]]
    assert bounds[1].tolist() == [[3.0, 4.0], [8.0, 9.0]]
    assert missing.tolist() == [[0.0, 1.0], [0.0, 0.0]]


def test_moments_keep_their_digits_far_from_zero():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1000, 2)) + 1e9
    _, moments, *_ = value_moments(x, np.zeros(1000, np.int64), None, 1)
    np.testing.assert_allclose(moments[2, 0] / 1000, x.var(axis=0), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("p", [1, 7, 8, 50, 600])
def test_moments_of_complete_rows_are_those_of_a_loop(p, dtype):
    rng = np.random.default_rng(p)
    x = rng.normal(size=(2500, p)).astype(dtype)
    index = rng.integers(-1, 4, 2500)
    # A last column that does not count, as labels are.
    x = np.column_stack([x, index.astype(dtype)])
    found = value_moments(x, index, None, 5, p)
    # Rows of weights take the loop that looks at each value.
    for ours, theirs in zip(found, value_moments(x, index, np.ones(2500), 5, p), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert found[0].tolist() == [*np.bincount(index[index >= 0], minlength=4), 0]
    own = x[index == 2, :p].astype(np.float64)
    np.testing.assert_allclose(found[1][1, 2], own.mean(axis=0), rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(found[2][:, 2], [own.min(axis=0), own.max(axis=0)])


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
def test_places_and_counts_of_labels(dtype):
    labels = np.array([-100, 100, 3, -100, 7], dtype)
    assert label_positions(labels, np.array([-100, 3, 100])).tolist() == [0, 2, 1, 0, -1]
    counts = label_counts(labels, -100, 100)
    assert counts[[0, 103, 107, 200]].tolist() == [2, 1, 1, 1]
    assert counts.sum() == 5


COLUMNS = {
    "normal": lambda rng, n: rng.normal(size=n),
    "few values": lambda rng, n: rng.integers(0, 4, n).astype(float),
    "half zeros": lambda rng, n: np.where(rng.random(n) < 0.5, 0.0, rng.normal(size=n)),
    "heavy tail": lambda rng, n: rng.standard_cauchy(n),
    "constant": lambda rng, n: np.full(n, 3.0),
    "gaps": lambda rng, n: np.where(rng.random(n) < 0.3, np.nan, rng.normal(size=n)),
    "nothing": lambda rng, n: np.full(n, np.nan),
    "far": lambda rng, n: rng.normal(size=n) + 1e8,
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("most", [8, 64, 2048])
def test_values_fall_into_their_bins(dtype, most):
    rng = np.random.default_rng(1)
    x = np.column_stack([make(rng, 3000) for make in COLUMNS.values()]).astype(dtype)
    index = rng.integers(-1, 3, 3000)
    sampled = rng.random(3000) < 0.7
    bins = choose_bins(x[sampled], index[sampled], rng.random(sampled.sum()) < 0.8, most)
    assert bins.count <= most
    found = fill_histograms(x, index, None, 3, bins)
    for j, name in enumerate(COLUMNS):
        there = ~np.isnan(x[:, j]) & (index >= 0)
        exact = np.zeros((3, bins.count))
        at = np.searchsorted(bins.edges[j], x[there, j])
        np.add.at(exact, (index[there], at), 1.0)
        if (bins.starts[j] == bins.stops[j]).all() and name != "constant":
            # Edges are the ends of cells: rounding may put a value on either side.
            assert np.abs(np.cumsum(found[j] - exact, axis=1)).max() <= 2, name
        else:
            np.testing.assert_array_equal(found[j], exact, err_msg=name)
        assert found[j].sum() == there.sum()


def test_a_value_that_many_share_has_a_bin_of_its_own():
    rng = np.random.default_rng(2)
    x = np.where(rng.random(5000) < 0.4, 0.0, rng.normal(size=5000))[:, None]
    bins = choose_bins(x, np.zeros(5000, int), np.ones(5000, bool), 128)
    counts = fill_histograms(x, np.zeros(5000, np.int64), None, 1, bins)[0, 0]
    assert counts[bins.single()[0]].sum() == (x == 0).sum()


def counted(seed):
    """Rows of few whole values with gaps, their labels, and histograms of a bin a value."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 9, (400, 3)).astype(float)
    x[rng.random(x.shape) < 0.1] = np.nan
    index = rng.integers(-1, 4, 400)
    bins = choose_bins(x, index, np.ones(400, bool), 64)
    return x, index, bins, fill_histograms(x, index, None, 5, bins)


def test_areas_are_shares_of_pairs():
    x, index, bins, counts = counted(3)
    areas, errors = rank_areas(counts, bins.single())
    assert np.isnan(areas[4]).all()  # of no rows
    for c in range(4):
        for j in range(3):
            own, rest = x[index == c, j], x[(index >= 0) & (index != c), j]
            own, rest = own[~np.isnan(own)][:, None], rest[~np.isnan(rest)]
            expected = ((own > rest) + 0.5 * (own == rest)).mean()
            np.testing.assert_allclose(areas[c, j], expected, rtol=1e-12)
    assert (errors[:4] == 0).all()
    _, errors = rank_areas(counts, np.zeros_like(bins.single()))
    own, rest = counts[0, 0], counts[0].sum(axis=0) - counts[0, 0]
    np.testing.assert_allclose(errors[0, 0], own @ rest / 2 / own.sum() / rest.sum())


@pytest.mark.parametrize("seed", [4, 5])
def test_quantiles_of_bins_of_one_value_are_those_of_the_values(seed):
    x, index, bins, counts = counted(seed)
    bounds = value_moments(x, index, None, 5)[2]
    shares = [0.0, 0.05, 0.25, 0.5, 0.95, 1.0]
    found = histogram_quantiles(counts, bins, bounds, shares)
    assert np.isnan(found[4]).all()
    for c in range(4):
        expected = np.nanquantile(x[index == c], shares, axis=0).T
        np.testing.assert_allclose(found[c], expected, rtol=1e-12)


def test_quantiles_lie_inside_bins_of_many_values():
    rng = np.random.default_rng(6)
    x, index = rng.normal(size=(20_000, 2)), rng.integers(0, 2, 20_000)
    bins = choose_bins(x, index, np.ones(20_000, bool), 64)
    counts, bounds = fill_histograms(x, index, None, 2, bins), value_moments(x, index, None, 2)[2]
    shares = np.linspace(0.02, 0.98, 25)
    found = histogram_quantiles(counts, bins, bounds, shares)
    for c in range(2):
        for j in range(2):
            exact = np.quantile(x[index == c, j], shares)
            at = np.searchsorted(bins.edges[j], exact)
            ends = np.concatenate([[bounds[0, c, j]], bins.edges[j], [bounds[1, c, j]]])
            assert (np.abs(found[c, j] - exact) <= np.diff(ends)[at] + 1e-9).all()
            assert (np.diff(found[c, j]) > 0).all()


@pytest.mark.parametrize("sizes", [(0, 7), (300, 200), (200, 0)])
def test_merged_samples_keep_the_smallest_keys_of_each_label(sizes):
    rng = np.random.default_rng(7)
    n = sum(sizes)
    labels, keys, rows = rng.integers(-2, 5, n), rng.integers(0, 50, n) / 50, rng.permutation(n)
    first = np.lexsort((rows[: sizes[0]], keys[: sizes[0]], labels[: sizes[0]]))
    second = np.lexsort((rows[sizes[0] :], keys[sizes[0] :], labels[sizes[0] :])) + sizes[0]
    order = np.concatenate([first, second])
    labels, keys, rows = labels[order], keys[order], rows[order]
    kept = merged_order(labels, keys, rows, sizes[0], 0.3, 20)
    expected = []
    for at in np.lexsort((rows, keys, labels)):
        ahead = (labels == labels[at]) & (
            (keys < keys[at]) | ((keys == keys[at]) & (rows < rows[at]))
        )
        if keys[at] <= 0.3 or ahead.sum() < 20:
            expected.append(at)
    assert kept.tolist() == expected
