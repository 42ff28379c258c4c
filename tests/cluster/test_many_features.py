"""Clusters in many dimensions are found with default settings, by every estimator with centers."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.cluster import KMeans as SklearnKMeans
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

import daskclust
from daskclust import KMeans

pytestmark = pytest.mark.usefixtures("synchronous")


def gaussians(n: int, p: int, k: int, separation: float = 5.0, seed: int = 0):
    """Rows of k clusters of variance 1 whose centers lie about ``separation`` from the mean."""
    rng = np.random.RandomState(seed)
    truth = rng.randint(0, k, n)
    centers = rng.randn(k, p) * separation / p**0.5
    return centers[truth] + rng.randn(n, p), truth


@pytest.mark.parametrize(
    ("n", "p", "k", "separation", "least"),
    [
        (2000, 2000, 4, 5.0, 0.98),
        (2000, 200, 4, 5.0, 0.99),
        (2000, 50, 10, 5.0, 0.97),
        (3000, 500, 10, 6.0, 0.99),
        (1000, 1000, 20, 9.0, 0.99),
        # Fewer rows than features.
        (200, 2000, 3, 9.0, 0.98),
    ],
)
def test_gaussian_clusters_are_found(n, p, k, separation, least) -> None:
    X, truth = gaussians(n, p, k, separation)
    model = KMeans(k, random_state=0).fit(X)
    assert adjusted_rand_score(truth, model.labels_) > least


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_clusters_of_unequal_sizes_are_found(dtype) -> None:
    X, truth = gaussians(4000, 400, 4, 7.0)
    few = (truth == 0) & (np.arange(4000) % 10 > 0)
    X, truth = X[~few].astype(dtype), truth[~few]
    model = KMeans(4, random_state=1).fit(X)
    assert adjusted_rand_score(truth, model.labels_) > 0.98


def test_counts_are_clustered_as_by_ten_restarts_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(8, size=3000)
    X = rng.poisson(np.exp(rng.normal(size=(8, 500)) - 1.5)[truth]).astype(float)
    model = KMeans(8, random_state=0).fit(X)
    assert adjusted_rand_score(truth, model.labels_) == 1.0


@pytest.mark.parametrize(
    "estimator",
    [
        daskclust.PCKMeans(8),
        daskclust.PCSKMeans(8),
        daskclust.COPKMeans(8),
        daskclust.MPCKMeans(8),
        daskclust.SparseKMeans(8),
        daskclust.HierarchicalKMeans(8),
        daskclust.GaussianMixture(8, covariance_type="diag"),
        daskclust.SemiSupervisedKMeans(8),
        daskclust.SpectralClustering(8),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_every_estimator_with_centers_finds_them(estimator) -> None:
    X, truth = gaussians(4000, 300, 8, 6.0)
    given: dict[str, object] = {}
    if hasattr(estimator, "contradicting_pairs_") or "must_link" in estimator.fit.__doc__:
        given["must_link"] = [np.flatnonzero(truth == 0)[:2]]
    if isinstance(estimator, daskclust.SemiSupervisedKMeans):
        first = [np.flatnonzero(truth == c)[0] for c in range(3)]
        given["y"] = (np.sort(first), truth[np.sort(first)])
    estimator.set_params(random_state=0).fit(X, **given)
    assert adjusted_rand_score(truth, estimator.labels_) > 0.97


@pytest.mark.parametrize("chunks", [700, (1, 1999, 1000)])
def test_labels_do_not_depend_on_chunks(chunks) -> None:
    X, _ = gaussians(3000, 150, 6)
    whole = KMeans(6, random_state=3).fit(X)
    cut = KMeans(6, random_state=3).fit(da.from_array(X, chunks=(chunks, -1)))
    assert_array_equal(np.asarray(cut.labels_), whole.labels_)
    assert_allclose(cut.cluster_centers_, whole.cluster_centers_, rtol=1e-12, atol=1e-13)


def test_k_means_plus_plus_keeps_the_best_of_several_draws() -> None:
    X, _ = make_blobs(2000, centers=20, random_state=0)
    ours = [
        KMeans(20, init="k-means++", random_state=s).fit(X).inertia_ / len(X) for s in range(10)
    ]
    peer = [SklearnKMeans(20, n_init=1, random_state=s).fit(X).inertia_ / len(X) for s in range(10)]
    assert np.mean(ours) <= 1.03 * np.mean(peer)


def test_inertia_is_that_of_ten_restarts_of_scikit_learn() -> None:
    X, _ = gaussians(2000, 10, 10)
    ours = [KMeans(10, random_state=seed).fit(X).inertia_ for seed in range(5)]
    peer = SklearnKMeans(10, n_init=10, random_state=0).fit(X).inertia_
    assert np.mean(ours) <= 1.003 * peer


def test_a_collapsed_fit_is_noticed() -> None:
    X, _ = gaussians(3000, 1000, 3, 5.0)
    # The mean of many rows next to two rows.
    init = np.stack([X.mean(axis=0), X[0], X[1]])
    with pytest.warns(ConvergenceWarning, match=r"One cluster contains 99\.\d+% of the rows"):
        KMeans(3, init=init).fit(X)


def test_useless_clusters_of_a_named_initialization_are_replaced() -> None:
    X, truth = gaussians(2000, 1000, 4, 8.0)
    # The farthest rows are single rows with more noise, which attract no others.
    X[:4] *= np.array([1.5, 1.4, 1.3, 1.2])[:, None]
    with pytest.warns(ConvergenceWarning, match="2 of 4 clusters contained 0.10% of the rows"):
        model = KMeans(4, init="maximin").fit(X)
    assert adjusted_rand_score(truth, model.labels_) > 0.98
    with pytest.warns(ConvergenceWarning, match="2 of 4 clusters"):
        cut = KMeans(4, init="maximin").fit(da.from_array(X, chunks=(777, -1)))
    assert_array_equal(np.asarray(cut.labels_), model.labels_)


def test_outliers_are_not_a_collapsed_fit(recwarn) -> None:
    X, _ = gaussians(3000, 50, 1)
    X[:3] += 100.0
    assert sorted(KMeans(2, random_state=0).fit(X).counts_.tolist()) == [3.0, 2997.0]
    KMeans(3, random_state=0).fit(X[3:])
    assert not recwarn.list
