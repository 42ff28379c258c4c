"""HierarchicalKMeans.partial_fit: by hand, against a loop over rows, and for any chunks."""

from __future__ import annotations

import copy
from itertools import pairwise
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import daskclust
from daskclust import HierarchicalKMeans, KMeans
from daskclust.cluster.level_updates import Insertion

RNG = np.random.default_rng(5)
CENTERS = 8 * RNG.normal(size=(12, 3))
X = (CENTERS[RNG.integers(0, 12, 900)] + RNG.normal(size=(900, 3))).astype(np.float32)
WEIGHT = RNG.integers(0, 3, 900).astype(float)
FIRST, BATCHES = slice(0, 300), [slice(300, 320), slice(320, 700), slice(700, 900)]


def means_of_a_loop(model, weight):
    """Update leaves row by row; labels of a batch are those of predict before the batch."""
    model = copy.deepcopy(model)
    for batch in BATCHES:
        centers, counts = model.cluster_centers_.astype(float), model.counts_.copy()
        for row, w, leaf in zip(X[batch], weight[batch], model.predict(X[batch]), strict=True):
            if w:
                counts[leaf] += w
                centers[leaf] += w / counts[leaf] * (row - centers[leaf])
        model.cluster_centers_, model.counts_ = centers.astype(np.float32), counts
        if model._is_flat:
            model._above = centers
    return model


@pytest.mark.parametrize("n_clusters", [(4, 3), (2, 2, 3), 12])
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
def test_leaves_are_those_of_a_loop_over_rows(n_clusters, weight):
    model = HierarchicalKMeans(n_clusters, n_probe=2, random_state=0).partial_fit(X[FIRST])
    expected = means_of_a_loop(model, np.ones(len(X)) if weight is None else weight)
    above = model.level_centers_[:-1]
    n_iter = model.n_iter_
    for batch in BATCHES:
        inertia = -model.score(X[batch], sample_weight=None if weight is None else weight[batch])
        model.partial_fit(X[batch], sample_weight=None if weight is None else weight[batch])
        assert model.inertia_ == pytest.approx(inertia)
    np.testing.assert_allclose(model.cluster_centers_, expected.cluster_centers_, rtol=2e-6)
    np.testing.assert_array_equal(model.counts_, expected.counts_)
    np.testing.assert_array_equal(model.labels_, model.predict(X[BATCHES[-1]]))
    assert model.n_iter_ == n_iter + len(BATCHES)
    for before, after in zip(above, model.level_centers_[:-1], strict=True):
        if n_clusters == 12:
            before = expected._above  # one level, which has the leaves
        np.testing.assert_allclose(before, after, rtol=2e-6)


@pytest.mark.parametrize("most", [None, 60])
def test_leaves_do_not_depend_on_chunks(most):
    model = HierarchicalKMeans((4, 3), max_cluster_size=most, random_state=0).fit(X[FIRST])
    results = []
    for chunks in (None, 7, (100, 1, 0, 499)):
        copied = copy.deepcopy(model)
        batch = X[300:] if chunks is None else da.from_array(X[300:], chunks=(chunks, -1))
        copied.partial_fit(batch)
        results.append(copied)
        assert most is None or len(copied.counts_) > len(model.counts_)
    for other in results[1:]:
        np.testing.assert_array_equal(other.cluster_centers_, results[0].cluster_centers_)
        np.testing.assert_allclose(other.counts_, results[0].counts_, rtol=1e-12)
        np.testing.assert_array_equal(np.asarray(other.labels_), results[0].labels_)
        np.testing.assert_array_equal(other.parents_, results[0].parents_)


def test_a_large_leaf_is_divided_by_hand():
    model = HierarchicalKMeans((2, 1), max_cluster_size=4, random_state=0)
    model.fit(np.array([[0.0], [2.0], [100.0], [102.0]]))
    batch = np.array([[9.0], [9.0], [10.0], [21.0], [21.0], [20.0]])
    model._class_names = {0: "low", 1: "high"}
    model.partial_fit(batch)
    # The mean of 0, 2 and the batch is 92 / 8.  Its deviations are -17/3 for 9, 9, 10 (mean 28/3,
    # and the mean of the batch is 15), and 17/3 for the others.  Each part has 3 of 6 rows.
    low = np.sort(model.cluster_centers_[model.counts_ == 4].ravel())
    np.testing.assert_allclose(low, [11.5 - 17 / 3, 11.5 + 17 / 3], rtol=1e-6)
    assert sorted(model.counts_) == [2, 4, 4]
    assert sorted(np.bincount(model.parents_)) == [1, 2]
    assert not hasattr(model, "_class_names")


def test_division_preserves_weight_and_mean_and_keeps_to_the_limit(tmp_path: Path):
    model = HierarchicalKMeans((4, 3), max_cluster_size=50, random_state=0).fit(X[FIRST])
    undivided = copy.deepcopy(model).set_params(max_cluster_size=10**6)
    model.partial_fit(X[300:])
    undivided.partial_fit(X[300:])
    assert model.counts_.sum() == pytest.approx(900)
    assert model.counts_.max() <= 50 * (1 + 1e-9)
    assert (model.counts_ > 0).all()
    np.testing.assert_allclose(
        model.counts_ @ model.cluster_centers_, undivided.counts_ @ undivided.cluster_centers_, 1e-5
    )
    model.save(tmp_path / "m.zarr")
    loaded = daskclust.load(tmp_path / "m.zarr")
    for each in (model, loaded):
        each.partial_fit(X[:200])
    np.testing.assert_array_equal(loaded.cluster_centers_, model.cluster_centers_)
    np.testing.assert_array_equal(loaded.labels_, model.labels_)


def test_a_leaf_of_equal_rows_is_not_divided():
    model = HierarchicalKMeans((2, 1), max_cluster_size=3, random_state=0)
    model.fit(np.array([[0.0], [2.0], [100.0], [102.0]]))
    model._class_names = names = {0: "low", 1: "high"}
    model.partial_fit(np.full((5, 1), 1.0))
    assert sorted(model.counts_) == [2, 7]
    assert model._class_names == names


def test_a_flat_model_equals_kmeans_and_may_be_divided():
    model = HierarchicalKMeans(4, max_cluster_size=10**6, random_state=0).fit(X[FIRST])
    flat = KMeans(4, max_iter=25, random_state=0).fit(X[FIRST])
    model.partial_fit(X[300:])
    flat.partial_fit(X[300:])
    np.testing.assert_allclose(model.cluster_centers_, flat.cluster_centers_, rtol=1e-5)
    np.testing.assert_array_equal(model.counts_, flat.counts_)
    model.set_params(max_cluster_size=100).partial_fit(X)
    assert len(model.level_centers_[0]) == 4
    assert len(model.cluster_centers_) > 4
    assert model.counts_.max() <= 100 * (1 + 1e-9)


@pytest.mark.parametrize(
    ("rows", "weight", "message"),
    [
        (np.zeros((5, 2)), None, "X has 2 features, but HierarchicalKMeans is expecting 3"),
        (np.full((5, 3), np.nan), None, "contains NaN: the first at row 0, column 0"),
        (np.full((5, 3), np.inf), None, "contains infinity"),
        (np.zeros((0, 3)), None, "0 sample"),
        (np.zeros((5, 3)), np.zeros(5), "weight must be positive"),
        (np.full((5, 3), 1e60), None, "float32 can represent"),
        (np.zeros((5, 3)), np.full(5, -1.0), "the weight of row 0 is"),
    ],
)
def test_a_batch_that_cannot_be_used_changes_nothing(rows, weight, message):
    model = HierarchicalKMeans((4, 3), random_state=0).fit(X)
    before = copy.deepcopy(vars(model))
    with pytest.raises(ValueError, match=message):
        model.partial_fit(rows, sample_weight=weight)
    np.testing.assert_equal(vars(model), before)


def test_models_that_cannot_be_updated_are_refused():
    with pytest.raises(AttributeError, match="has no attribute 'partial_fit'") as raised:
        HierarchicalKMeans((4, 3), metric="cosine").partial_fit(X)
    assert "metric='cosine'" in str(raised.value.__cause__)
    model = HierarchicalKMeans((4, 3), random_state=0).fit(X)
    with pytest.raises(
        ValueError, match=r"levels must have 5, 15 centers.* got 4, 12\. Set the parameters"
    ):
        model.set_params(n_clusters=(5, 3)).partial_fit(X)
    for other, changed in (
        (HierarchicalKMeans((4, 3), metric="cosine"), {"metric": "euclidean"}),
        (KMeans(3, missing="partial"), {"missing": "error"}),
    ):
        other.fit(X).set_params(**changed)
        with pytest.raises(ValueError, match="a model that was fitted with metric"):
            other.partial_fit(X)
    few = HierarchicalKMeans((3, 3), random_state=0)
    with pytest.warns(UserWarning, match="distinct"):
        few.fit(X, sample_weight=np.arange(len(X)) < 5)
    with pytest.raises(ValueError, match="few distinct values"):
        few.partial_fit(X)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.data())
def test_parts_are_inserted_like_in_a_loop(sizes, data):
    starts = np.concatenate([[0], np.cumsum(sizes)])
    k = sum(sizes)
    n_parts = data.draw(st.lists(st.integers(0, 3), min_size=k, max_size=k).filter(any))
    divided = np.flatnonzero(n_parts)
    expected, expected_sizes = [], []
    for low, high in pairwise(starts):
        own = [
            [f"{leaf}.{j}" for j in range(n_parts[leaf])] or [str(leaf)]
            for leaf in range(low, high)
        ]
        expected += [name for names in own for name in names]
        expected_sizes.append(sum(map(len, own)))
    inserted = Insertion.of(divided, [n_parts[leaf] for leaf in divided], starts)
    values = np.arange(k).astype("U8")
    new = [np.array([f"{leaf}.{j}" for j in range(n_parts[leaf])], "U8") for leaf in divided]
    assert inserted.put(values, new).tolist() == expected
    assert inserted.sizes.tolist() == expected_sizes
