"""Stability: by brute force, for any chunks, in as many passes as the longest fit."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import adjusted_rand_score

import daskclust
from daskclust import KMeans, SpectralClustering
from daskclust.core.engine import open_rows
from daskclust.core.kernels.rng import row_uniforms
from daskclust.core.reduction import RowBlock
from daskclust.core.reduction.label_tables import AGREEMENT, AgreementRequest
from daskclust.core.reduction.row_views import Subsampled
from daskclust.selection import choose_n_clusters, stability

N = 400


def blobs(seed: int = 0) -> np.ndarray:
    """Three groups far apart, and one row between two of them."""
    rng = np.random.default_rng(seed)
    x = np.array([[0, 0], [9, 0], [0, 9]], float)[rng.integers(0, 3, N)]
    x += rng.normal(scale=0.5, size=x.shape)
    x[17] = [4.5, 0.0]
    return x


def left(x: np.ndarray) -> np.ndarray:
    return (x[:, 0] > 4).astype(np.int32)


def low(x: np.ndarray) -> np.ndarray:
    return (x[:, 1] > 4).astype(np.int64)


def test_tables_are_those_of_brute_force() -> None:
    x = blobs()
    request = AgreementRequest(left, (low, left), 2)
    tables = open_rows(da.from_array(x, chunks=(90, 2))).reduce(AGREEMENT, request)
    for table, other in zip(tables, (low, left), strict=True):
        expected = np.zeros((2, 2))
        for a, b in zip(left(x), other(x), strict=True):
            expected[a, b] += 1
        assert_array_equal(table, expected)


def test_a_half_is_the_same_rows_however_they_are_cut() -> None:
    view = Subsampled(0.5, 7, 3)
    whole = view(RowBlock(np.zeros((50, 1)), None, ((0, 50),))).weight
    assert_array_equal(whole, row_uniforms(7, 3, 0, 50) <= 0.5)
    parts = [view(RowBlock(np.zeros((25, 1)), None, ((at, 25),))).weight for at in (0, 25)]
    assert_array_equal(np.concatenate(parts), whole)
    halved = view(RowBlock(np.zeros((50, 1)), np.full(50, 3.0), ((0, 50),))).weight
    assert_array_equal(halved, 3 * whole)


def test_a_fit_sees_its_half_only() -> None:
    """A fit to a half equals the fit to its rows with weight 1 and all others with 0."""
    x = blobs()
    kept = row_uniforms(7, 0, 0, N) <= 0.5
    from daskclust.core.engine import Job, run_together
    from daskclust.core.estimator.fit_loop import fit
    from daskclust.core.estimator.validation import Data

    def of_half(rows):
        return fit(KMeans(5, random_state=1), Data(x).through(rows))

    (found,) = run_together(open_rows(x), [Job(of_half, (Subsampled(0.5, 7, 0),))])
    expected = KMeans(5, random_state=1).fit(x, sample_weight=kept.astype(float))
    assert_array_equal(found.cluster_centers_, expected.cluster_centers_)


def test_rows_and_score_by_brute_force() -> None:
    x = blobs()
    found = stability(KMeans(3), x, n_draws=4, random_state=0)
    labels = found.estimator.labels_
    assert found.rows.shape == (N,)
    far = np.ones(N, bool)
    far[17] = False
    assert (found.rows[far] == 1.0).all()
    assert found.score == found.agreement.mean() > 0.97
    assert set(np.unique(found.rows * 4)) <= {0, 1, 2, 3, 4}
    others = stability(KMeans(6), x, n_draws=4, random_state=0)
    assert others.score < found.score
    assert others.rows.mean() < 1.0
    assert len(np.unique(labels)) == 3


def test_shares_are_those_of_the_fits() -> None:
    from daskclust.selection._grid import open_grid
    from daskclust.selection._stability import fit_halves

    x = blobs()
    grid = open_grid(KMeans(5), x, "n_clusters", 3)
    (halves,) = fit_halves(grid, [5], 3)
    labels = [np.asarray(one.predict(x)) for one in halves.half_models]
    scores = [adjusted_rand_score(halves.estimator.labels_, other) for other in labels]
    assert_allclose(halves.agreement, scores)
    assert len({one.random_state for one in halves.half_models}) == 3
    assert_allclose(stability(KMeans(5), x, n_draws=3, random_state=3).agreement, scores)


@pytest.mark.parametrize("chunk", [N, 63])
def test_chunks_do_not_matter(chunk: int) -> None:
    x = blobs()
    expected = stability(KMeans(4), x, n_draws=3, random_state=5)
    found = stability(KMeans(4), da.from_array(x, chunks=(chunk, 2)), n_draws=3, random_state=5)
    assert isinstance(found.rows, da.Array)
    assert found.rows.chunks[0][0] == chunk
    assert_allclose(found.agreement, expected.agreement)
    assert_array_equal(found.rows.compute(), expected.rows)


def test_as_many_passes_as_the_longest_fit_and_one() -> None:
    x = da.from_array(blobs(), chunks=(100, 2))
    found = choose_n_clusters(
        KMeans(max_iter=5, tol=0),
        x,
        [2, 3, 4],
        criterion="stability",
        n_references=3,
        random_state=0,
    )
    alone = stability(KMeans(3, max_iter=5, tol=0), x, n_draws=3, random_state=0)
    assert alone.passes <= found.passes
    assert found.passes <= 5 + 2 + 8 + 1  # iterations, survey and end, start, agreement


@pytest.mark.parametrize(
    "estimator",
    [
        SpectralClustering(3, n_prototypes=30),
        daskclust.GaussianMixture(3),
        daskclust.SparseKMeans(3),
    ],
    ids=lambda e: type(e).__name__,
)
def test_other_estimators(estimator) -> None:
    found = stability(estimator, blobs(), n_draws=2, random_state=0)
    assert found.score > 0.9


def test_bad_input() -> None:
    x = blobs()

    class Own(KMeans):
        def fit(self, X, y=None, *, sample_weight=None):
            return super().fit(X)

    with pytest.raises(ValueError, match="Own must not override fit"):
        stability(Own(3), x)
    with pytest.raises(ValueError, match="n_draws must be an integer >= 2, got 1"):
        stability(KMeans(3), x, n_draws=1)
    with pytest.raises(ValueError, match="must have predict"):
        stability(object(), x)
    with pytest.raises(ValueError, match="ks must contain a number from 2"):
        choose_n_clusters(KMeans(), x, [1], criterion="stability")
