"""The worked example of CONTRIBUTING.md is held to what is asked of every algorithm here."""

from __future__ import annotations

import re
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest
import trimmed_kmeans as example
from hypothesis import given
from hypothesis import strategies as st
from trimmed_kmeans import (
    N_BINS,
    TRIMMED,
    TrimmedKMeans,
    TrimmedState,
    bins_of,
    trimmed_statistics,
)

import daskclust
from daskclust.testing import check_reduction_laws
from daskclust.testing.strategies import row_chunks

ROOT = Path(__file__).resolve().parents[2]
SEEDS = st.integers(0, 2**32 - 1)


def scattered(seed=0, n=300):
    """Three clusters, and a tenth of the rows far away."""
    rng = np.random.default_rng(seed)
    means = np.array([[0.0, 0.0], [20.0, 0.0], [0.0, 20.0]])
    x = means[rng.integers(0, 3, n)] + rng.normal(size=(n, 2))
    x[: n // 10] = 300.0 + 50.0 * rng.normal(size=(n // 10, 2))
    return x[rng.permutation(n)]


# The kernel: by hand, and by brute force.


def test_kernel_by_hand():
    x = np.array([[0.0], [2.0], [9.0], [100.0]])
    weight = np.array([1.0, 2.0, 1.0, 1.0])
    last = int(bins_of(np.array([4.0]))[0])
    stats, histogram = trimmed_statistics(x, weight, np.array([[0.0], [10.0]]), last)
    # Row 3 lies at 8100 and does not count; the sums are 0 + 2 * 2 and 9.
    assert stats.tolist() == [[4.0, 3.0, 8.0], [9.0, 1.0, 1.0]]
    assert histogram.sum() == 5.0
    assert histogram[bins_of(np.array([0.0, 4.0, 1.0, 8100.0]))].tolist() == [1, 2, 1, 1]


@given(values=st.lists(st.floats(0, 1e300), min_size=2, max_size=20))
def test_bins_go_up_with_distances_and_are_narrow(values):
    squared = np.sort(np.array(values))
    bins = bins_of(squared)
    assert (np.diff(bins) >= 0).all()
    assert 0 <= bins.min() <= bins.max() < N_BINS
    above = (bins.astype(np.int64) + 1 << 48).view(np.float64)
    assert (squared < above).all()
    normal = squared > 1e-300
    assert (above[normal] <= squared[normal] * (1 + 2**-4)).all()


@given(seed=SEEDS)
def test_kernel_is_brute_force(seed):
    rng = np.random.default_rng(seed)
    x, weight = rng.integers(-5, 6, (40, 2)).astype(float), rng.integers(0, 3, 40).astype(float)
    centers = rng.integers(-5, 6, (3, 2)).astype(float)
    squared = ((x[:, None] - centers) ** 2).sum(axis=2)
    labels, squared = squared.argmin(axis=1), squared.min(axis=1)
    last = int(rng.choice(bins_of(squared)))
    expected = np.zeros((3, 4))
    for row, w, label, d in zip(x, weight, labels, squared, strict=True):
        if bins_of(np.array([d]))[0] <= last:
            expected[label] += w * np.array([*row, 1.0, d])
    stats, histogram = trimmed_statistics(x, weight, centers, last)
    np.testing.assert_array_equal(stats, expected)
    assert histogram.sum() == weight.sum()


# The reduction: its laws.


@given(seed=SEEDS, lengths=row_chunks(50), weighted=st.booleans())
def test_laws(seed, lengths, weighted):
    rng = np.random.default_rng(seed)
    x = rng.integers(-3, 4, (50, 2)) + rng.random((50, 2))
    weight = rng.integers(0, 4, 50).astype(float) if weighted else None
    centers = rng.integers(-2, 3, (3, 2)).astype(float)
    states = [TrimmedState(centers, int(last)) for last in (0, bins_of(np.array([2.0]))[0], N_BINS)]
    check_reduction_laws(TRIMMED, states, x, weight, lengths=lengths)


# The estimator.


def test_outliers_do_not_move_the_centers():
    x = scattered()
    model = TrimmedKMeans(3, trim=0.1, random_state=0).fit(x)
    found = model.cluster_centers_[np.argsort(model.cluster_centers_ @ [1.0, 2.0])]
    np.testing.assert_allclose(found, [[0, 0], [20, 0], [0, 20]], atol=0.4)
    near = model.transform(x).min(axis=1) <= model.radius_
    assert 270 <= near.sum() <= 275
    assert model.inertia_ == pytest.approx((model.transform(x).min(axis=1)[near] ** 2).sum())
    assert np.abs(daskclust.KMeans(3, random_state=0).fit(x).cluster_centers_).max() > 100


def test_nothing_trimmed_is_k_means():
    x = scattered()
    x = x[x.max(axis=1) < 100]
    model = TrimmedKMeans(3, trim=0.0, tol=0.0, random_state=0).fit(x)
    # From the same place, as there may be several optima.
    lloyd = daskclust.KMeans(3, init=model.cluster_centers_ + 1.0, tol=0.0).fit(x)
    np.testing.assert_allclose(model.cluster_centers_, lloyd.cluster_centers_, rtol=1e-12)
    assert model.inertia_ == pytest.approx(lloyd.inertia_)


@given(seed=st.integers(0, 20), lengths=row_chunks(300), weighted=st.booleans())
def test_any_chunks_give_the_same_model(seed, lengths, weighted):
    x = scattered(seed)
    weight = np.random.default_rng(seed).random(300) if weighted else None
    whole = TrimmedKMeans(3, random_state=0).fit(x, sample_weight=weight)
    with dask.config.set(scheduler="sync"):
        data = da.from_array(x, chunks=(lengths, 2))
        cut = TrimmedKMeans(3, random_state=0).fit(data, sample_weight=weight)
        np.testing.assert_array_equal(cut.labels_.compute(), whole.labels_)
    np.testing.assert_allclose(cut.cluster_centers_, whole.cluster_centers_, rtol=1e-12)
    assert cut.history_[-1]["passes"] == whole.history_[-1]["passes"]


def test_goes_on_from_a_checkpoint_to_the_same_model(tmp_path):
    x, path = scattered(), tmp_path / "fit.npz"
    whole = TrimmedKMeans(3, tol=0.0, random_state=0).fit(x)
    assert whole.n_iter_ > 1
    TrimmedKMeans(3, tol=0.0, max_iter=1, random_state=0, checkpoint=path).fit(x)
    again = TrimmedKMeans(3, tol=0.0, random_state=0, checkpoint=path).fit(x)
    np.testing.assert_array_equal(again.cluster_centers_, whole.cluster_centers_)
    assert again.n_iter_ == whole.n_iter_


def test_runs_on_a_cluster(client):
    x = scattered()
    data = da.from_array(x, chunks=(70, 2))
    found = TrimmedKMeans(3, random_state=0).fit(data)
    expected = TrimmedKMeans(3, random_state=0).fit(x)
    np.testing.assert_allclose(found.cluster_centers_, expected.cluster_centers_, rtol=1e-12)
    np.testing.assert_array_equal(found.labels_.compute(), expected.labels_)


@pytest.mark.parametrize("trim", [-0.1, 1.0, "much"])
def test_refuses_shares_that_are_none(trim):
    with pytest.raises((ValueError, TypeError), match="trim"):
        TrimmedKMeans(3, trim=trim).fit(scattered())


# The guide.


def test_the_code_in_the_guide_is_that_of_the_example():
    source = Path(example.__file__).read_text()
    blocks = re.findall(
        r"^```python\n(.*?)^```$",
        (ROOT / "CONTRIBUTING.md").read_text(),
        flags=re.MULTILINE | re.DOTALL,
    )
    assert len(blocks) >= 3
    for block in blocks:
        for part in block.strip().split("\n...\n"):
            assert part in source, part
