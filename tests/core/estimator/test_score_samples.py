"""`score_samples` of every estimator is lazy and agrees with its docstring."""

import dask.array as da
import numpy as np
import pytest
from scipy.stats import norm

import daskclust

pytestmark = pytest.mark.usefixtures("few_trees")


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    found = rng.normal(size=(600, 3)) + np.repeat([[0.0], [8.0]], 300, axis=0)
    found[17] = 60.0
    return found


def fitted(kind, X):
    y = np.full(len(X), -1)
    y[[1, 2, 400, 401]] = [0, 0, 1, 1]
    init = X[[1, 400]]
    return {
        "kmeans": lambda: daskclust.KMeans(2, init=init).fit(X),
        "cosine": lambda: daskclust.KMeans(2, init=init, metric="cosine").fit(X),
        "mahalanobis": lambda: daskclust.KMeans(2, init=init, metric="mahalanobis").fit(X),
        "partial": lambda: daskclust.KMeans(2, init=init, missing="partial").fit(X),
        "sparse": lambda: daskclust.SparseKMeans(2, init=init).fit(X),
        "labeled": lambda: daskclust.SemiSupervisedKMeans(2, random_state=0).fit(X, y),
        "pairs": lambda: daskclust.MPCKMeans(2, random_state=0).fit(X, must_link=[[1, 2]]),
        "hard": lambda: daskclust.COPKMeans(2, random_state=0).fit(X, must_link=[[1, 2]]),
        "dpmeans": lambda: daskclust.DPMeans(delta=400.0).fit(X),
        "mixture": lambda: daskclust.GaussianMixture(2, random_state=0).fit(X[18:]),
        "pckid": lambda: daskclust.PCKID(
            2, n_initializations=2, max_components=3, random_state=0
        ).fit(X[18:]),
        "spreading": lambda: daskclust.LabelSpreading(n_prototypes=30, random_state=0).fit(X, y),
        "dbscan": lambda: daskclust.DBSCAN(3.0).fit(X),
        "hdbscan": lambda: daskclust.HDBSCAN().fit(X),
        "agglomerative": lambda: daskclust.AgglomerativeClustering(2).fit(X),
        "spectral": lambda: daskclust.SpectralClustering(2, n_prototypes=30, random_state=0).fit(X),
    }[kind]()


CENTERS = ("kmeans", "cosine", "mahalanobis", "partial", "sparse", "labeled", "pairs", "hard")
TREES = ("dbscan", "hdbscan", "agglomerative")
KINDS = (*CENTERS, "dpmeans", "mixture", "pckid", "spreading", "spectral", *TREES)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_lazy_saved_and_lowest_for_what_is_odd(kind, X, tmp_path):
    model = fitted(kind, X)
    scores = model.score_samples(X)
    assert scores.shape == (600,)
    far = np.array([[30.0, -30.0, 30.0], X[3], X[500]])
    odd = model.score_samples(far)
    assert odd.argmin() == 0
    lazy = model.score_samples(da.from_array(X, chunks=(170, 3)))
    assert lazy.chunks == ((170, 170, 170, 90),)
    assert lazy.dtype == scores.dtype
    np.testing.assert_allclose(lazy.compute(), scores, rtol=1e-9, atol=1e-9)
    model.save(tmp_path / "model.zarr")
    again = daskclust.load(tmp_path / "model.zarr")
    np.testing.assert_allclose(again.score_samples(X), scores, rtol=1e-12, atol=1e-12)
    single = model.score_samples(X.astype(np.float32))
    assert single.dtype == (np.float32 if kind in (*CENTERS, "dpmeans") else np.float64)


@pytest.mark.parametrize("kind", CENTERS)
def test_of_centers_it_is_minus_the_least_distance(kind, X):
    model = fitted(kind, X)
    np.testing.assert_array_equal(model.score_samples(X), -model.transform(X).min(axis=1))


def test_a_row_without_any_value_has_no_score(X):
    gaps = X.copy()
    gaps[5, 1] = np.nan
    gaps[6] = np.nan
    scores = fitted("partial", X).score_samples(gaps)
    assert np.flatnonzero(np.isnan(scores)).tolist() == [6]


def test_of_an_ensemble_it_is_the_mean_log_density(X):
    model = fitted("pckid", X)
    found, start = [], 0
    mixtures = model.ensemble_
    for size in mixtures.sizes:
        part = slice(start, start + size)
        start += size
        deviations = np.sqrt(mixtures.covariances[part])
        logs = norm.logpdf(X[:, None], mixtures.means[part], deviations).sum(axis=2)
        found.append(np.log(np.exp(logs[100:]) @ mixtures.weights[part]))
    np.testing.assert_allclose(model.score_samples(X)[100:], np.mean(found, axis=0), rtol=1e-6)


def test_of_prototypes_it_is_the_least_distance_in_the_view(X):
    model = fitted("spectral", X)
    z = model._space(X)
    gaps = np.linalg.norm(z[:, None] - model._vote.nodes, axis=2).min(axis=1)
    np.testing.assert_allclose(model.score_samples(X), -gaps, atol=1e-7)


def test_values_are_checked(X):
    bad = X.copy()
    bad[4, 2] = np.nan
    for kind in ("kmeans", "spectral"):
        with pytest.raises(ValueError, match="NaN"):
            fitted(kind, X).score_samples(bad)
