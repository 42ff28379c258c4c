"""partial_fit: against a loop, scikit-learn, and the mean of all rows."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
from helpers import chunks_of, values
from sklearn.cluster import MiniBatchKMeans

import daskclust
from daskclust import KMeans

pytestmark = pytest.mark.usefixtures("synchronous")

RNG = np.random.default_rng(3)
X = RNG.normal(size=(600, 3)) + 4.0 * RNG.integers(0, 3, (600, 1))
WEIGHT = RNG.integers(0, 3, 600).astype(float)
INIT = X[:4]
PARTS = [slice(0, 100), slice(100, 130), slice(130, 420), slice(420, 600)]


def looped(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Row by row: each batch is assigned as a whole, then joins the means."""
    centers, counts = INIT.copy(), np.zeros(len(INIT))
    for part in PARTS:
        nearest = [int(((row - centers) ** 2).sum(axis=1).argmin()) for row in X[part]]
        for row, w, k in zip(X[part], weight[part], nearest, strict=True):
            if w:
                counts[k] += w
                centers[k] = centers[k] + w / counts[k] * (row - centers[k])
    return centers, counts


@pytest.mark.parametrize("container", [np.asarray, chunks_of(37)])
@pytest.mark.parametrize("weight", [np.ones(len(X)), WEIGHT], ids=["plain", "weighted"])
def test_centers_are_those_of_a_loop_over_rows(container, weight) -> None:
    model = KMeans(4, init=INIT)
    for part in PARTS:
        labels = model.partial_fit(container(X[part]), sample_weight=weight[part]).labels_
    centers, counts = looped(weight)
    np.testing.assert_allclose(model.cluster_centers_, centers, rtol=1e-12)
    np.testing.assert_array_equal(model.counts_, counts)
    assert model.n_iter_ == len(model.history_) == len(PARTS)
    np.testing.assert_array_equal(values(labels), values(model.predict(X[PARTS[-1]])))


def test_centers_are_those_of_mini_batch_kmeans() -> None:
    peer = MiniBatchKMeans(4, init=INIT, n_init=1, reassignment_ratio=0.0, random_state=0)
    model = KMeans(4, init=INIT)
    for part in PARTS:
        met = model.score(X[part]) if hasattr(model, "counts_") else None
        peer.partial_fit(X[part])
        model.partial_fit(X[part])
        np.testing.assert_allclose(model.cluster_centers_, peer.cluster_centers_, rtol=1e-10)
        assert met is None or model.inertia_ == pytest.approx(-met)


def test_a_fit_is_carried_on_to_the_mean_of_all_rows() -> None:
    groups = np.repeat([0.0, 100.0], 50)[:, None]
    rows = groups + np.random.default_rng(0).normal(size=(100, 1))
    model = KMeans(2, random_state=0).fit(rows[::2]).partial_fit(rows[1::2])
    means = [rows[:50].mean(), rows[50:].mean()]
    assert sorted(model.cluster_centers_.ravel()) == pytest.approx(means, rel=1e-12)
    assert model.counts_.tolist() == [50.0, 50.0]


def test_a_saved_model_goes_on_where_it_stopped(tmp_path: Path) -> None:
    model = KMeans(4, random_state=0).partial_fit(X[PARTS[0]]).partial_fit(X[PARTS[1]])
    model.save(tmp_path / "model.zarr")
    loaded = daskclust.load(tmp_path / "model.zarr")
    for one in (model, loaded):
        one.partial_fit(X[PARTS[2]])
    np.testing.assert_array_equal(loaded.cluster_centers_, model.cluster_centers_)
    np.testing.assert_array_equal(loaded.counts_, model.counts_)


def test_a_model_without_counts_is_not_begun_anew() -> None:
    model = KMeans(4, random_state=0).fit(X)
    del model.counts_
    with pytest.raises(ValueError, match="counts_ is missing"):
        model.partial_fit(X)


@pytest.mark.parametrize(
    ("rows", "weight", "message"),
    [
        (np.zeros((5, 2)), None, "X has 2 features, but KMeans is expecting 3"),
        (np.full((5, 3), np.nan), None, "NaN.*partial_fit takes complete rows only"),
        (np.full((5, 3), np.inf), None, "infinity"),
        (np.zeros((5, 3)), np.full(5, -1.0), "weight"),
        (np.zeros((5, 3)), np.full(5, np.nan), "weight"),
    ],
)
def test_a_batch_that_cannot_be_used_changes_nothing(rows, weight, message) -> None:
    model = KMeans(4, random_state=0).partial_fit(X)
    before = copy.deepcopy(vars(model))
    with pytest.raises(ValueError, match=message):
        model.partial_fit(rows, sample_weight=weight)
    for name, value in vars(model).items():
        np.testing.assert_equal(value, before[name])


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"metric": "cosine"}, "metric='cosine'"),
        ({"metric": "mahalanobis"}, "metric='mahalanobis'"),
        ({"missing": "partial"}, 'missing="partial"'),
    ],
)
def test_means_that_cannot_be_carried_on_are_refused(params, message) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'partial_fit'") as found:
        KMeans(4, **params).partial_fit(X)
    assert message in str(found.value.__cause__)


def test_another_number_of_clusters_is_refused() -> None:
    model = KMeans(4, random_state=0).partial_fit(X)
    with pytest.raises(ValueError, match=r"n_clusters must be 4, .*, got 5"):
        model.set_params(n_clusters=5).partial_fit(X)


def test_the_first_batch_needs_a_row_a_cluster_and_leaves_parameters_alone() -> None:
    model = KMeans(4, random_state=0, checkpoint="nowhere.ckpt")
    with pytest.raises(ValueError, match="n_clusters=4 must be at most n_samples=3"):
        model.partial_fit(X[:3])
    model.partial_fit(X)
    assert (model.max_iter, model.checkpoint) == (300, "nowhere.ckpt")
    assert not Path("nowhere.ckpt").exists()
