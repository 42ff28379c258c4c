"""Rows of small types stay as they are stored, and give what their float32 copy gives."""

from __future__ import annotations

import tracemalloc

import dask.array as da
import numpy as np
import pytest
from sklearn.base import clone

import daskclust
from daskclust.core.engine.blocks import tiles_of
from daskclust.core.kernels.nearest.assign import SEGMENT
from daskclust.metrics import centroid_scores, davies_bouldin_score, silhouette_score

pytestmark = pytest.mark.usefixtures("few_trees")

TYPES = ["float16", "int8", "uint8", "int16", "uint16"]


def stored(dtype: str, n: int = 600, p: int = 5, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(n, p)) + 6 * rng.integers(0, 4, (n, 1))
    if dtype == "float16":
        return values.astype(np.float16)
    scaled = np.round(values * 4)
    return (scaled - scaled.min() if dtype.startswith("u") else scaled).astype(dtype)


MODELS = [
    daskclust.KMeans(4, random_state=0),
    daskclust.KMeans(4, metric="cosine", random_state=0),
    daskclust.KMeans(4, metric="mahalanobis", random_state=0),
    daskclust.HierarchicalKMeans((3, 3), random_state=0),
    daskclust.SemiSupervisedKMeans(4, random_state=0),
    daskclust.SparseKMeans(4, random_state=0),
    daskclust.PCKMeans(4, random_state=0),
    daskclust.MPCKMeans(4, random_state=0),
    daskclust.DPMeans(delta=60.0, random_state=0),
    daskclust.GaussianMixture(4, random_state=0),
    daskclust.LabelSpreading(40, random_state=0),
    daskclust.SpectralClustering(4, n_prototypes=40, random_state=0),
]


@pytest.mark.parametrize(
    ("model", "dtype", "lazy"),
    [
        *((MODELS[0], dtype, lazy) for dtype, lazy in zip(TYPES, [True, False] * 3, strict=False)),
        *((model, "int16", True) for model in MODELS[1:]),
        *((model, "float16", False) for model in MODELS[1::3]),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_stored_rows_give_what_their_float32_copy_gives(model, dtype, lazy):
    X = stored(dtype)
    if model.__class__.__name__.startswith(("SemiS", "LabelS")):
        y = np.full(len(X), -1)
        y[::50] = np.arange(12) % 3
    else:
        y = None
    wide = X.astype(np.float32)
    if lazy:
        X, wide = (da.from_array(x, chunks=(170, -1)) for x in (X, wide))
    found, expected = (clone(model).fit(x, y) for x in (X, wide))
    assert X.dtype == dtype
    np.testing.assert_array_equal(found.labels_, expected.labels_)
    np.testing.assert_array_equal(found.predict(X), expected.predict(wide))
    for name in ("transform", "predict_proba"):
        if not hasattr(model, name) or not hasattr(found, name):
            continue
        result, of_wide = getattr(found, name)(X), getattr(expected, name)(wide)
        assert result.dtype == of_wide.dtype
        assert name != "transform" or result.dtype == np.float32
        np.testing.assert_array_equal(result, of_wide)


@pytest.mark.parametrize("dtype", TYPES)
def test_scores_take_stored_rows(dtype):
    X = stored(dtype)
    labels = np.arange(len(X)) % 4
    wide = X.astype(np.float32)
    found, expected = centroid_scores(X, labels), centroid_scores(wide, labels)
    assert found.silhouette == expected.silhouette
    assert found.calinski_harabasz == expected.calinski_harabasz
    assert davies_bouldin_score(X, labels) == davies_bouldin_score(wide, labels)
    exact = silhouette_score(X, labels)
    assert exact == silhouette_score(wide, labels)
    model = daskclust.KMeans(4, random_state=0).fit(X)
    assert model.score(X) == model.score(wide)


def test_sums_of_half_precision_do_not_overflow():
    X = np.full((5000, 3), 60_000, np.float16)
    X[::2] = -60_000
    for x in (X, da.from_array(X, chunks=(700, -1))):
        model = daskclust.KMeans(2, random_state=0).fit(x)
        np.testing.assert_array_equal(np.sort(model.cluster_centers_[:, 0]), [-60_000, 60_000])
        assert model.inertia_ == 0
        assert np.isfinite(np.asarray(model.transform(x))).all()


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_no_copy_of_a_block_is_made(dtype):
    """A tile at a time is converted: far less than the rows take in float32."""
    X = np.zeros((40 * SEGMENT, 256), dtype)
    X[: 20 * SEGMENT] = 1
    # Kernels are loaded beforehand.
    model = daskclust.KMeans(2, init=X[[0, -1]].astype(float)).fit(X[:: 2 * SEGMENT])
    tracemalloc.start()
    try:
        model.fit(X)
        model.predict(X)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 0.3 * 4 * X.size


def test_tiles_end_at_segments_and_cover_a_block():
    for start, size, p in ((0, 10, 3), (5, 3 * SEGMENT, 700), (SEGMENT, 400_000, 2), (7, 0, 4)):
        cuts = list(tiles_of(start, size, p))
        ends = [0, *(high for _, high in cuts)]
        assert [low for low, _ in cuts] == ends[:-1]
        assert ends[-1] == size
        assert all((start + end) % SEGMENT == 0 for end in ends[1:-1])
