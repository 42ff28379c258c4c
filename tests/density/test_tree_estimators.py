"""AgglomerativeClustering, HDBSCAN and DBSCAN: their peers' results, whatever the chunks."""

from __future__ import annotations

import gc
import os
import pickle
import time
import warnings
from copy import deepcopy
from dataclasses import replace
from functools import partial

import dask
import dask.array as da
import numpy as np
import pytest
import sklearn.preprocessing
from helpers import within
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.cluster.hierarchy import linkage
from scipy.ndimage import label
from scipy.spatial.distance import pdist
from scipy.stats import spearmanr
from sklearn import cluster as peers
from sklearn.base import clone
from sklearn.datasets import make_blobs, make_moons
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.feature_extraction.image import grid_to_graph
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.pairwise import haversine_distances
from sklearn.neighbors import kneighbors_graph

import daskclust
from daskclust import DBSCAN, HDBSCAN, AgglomerativeClustering
from daskclust.core.kernels.linkage import LINKAGES
from daskclust.core.persistence.mixin import (
    class_names_of,
    merge_classes,
    merged_classes_of,
    name_classes,
)
from daskclust.core.storage.atomic_write import reserved
from daskclust.density import dbscan
from daskclust.density.condensed_tree import Bubbles, core_distances
from daskclust.density.hdbscan import _Membership
from daskclust.density.leaves import SCALINGS
from daskclust.exceptions import ConstraintError, ConstraintWarning, StoreError
from daskclust.testing.strategies import row_chunks


def blobs(n=600, p=4, k=4, seed=0):
    return make_blobs(n, p, centers=k, random_state=seed)


def chunked(X, lengths):
    return da.from_array(X, chunks=(lengths, X.shape[1]))


# Agglomerative


@pytest.mark.parametrize("name", LINKAGES)
def test_rows_as_leaves_give_scipys_tree(name):
    X, _ = blobs(300)
    model = AgglomerativeClustering(4, linkage=name).fit(X)
    assert_allclose(model.linkage_, linkage(X, name), rtol=1e-9)
    expected = peers.AgglomerativeClustering(4, linkage=name).fit(X)
    assert adjusted_rand_score(model.labels_, expected.labels_) == 1.0
    assert model.n_iter_ == 0
    assert model.n_leaves_ == 300


def test_prototypes_stand_for_all_rows():
    X, truth = blobs(20_000, p=8)
    model = AgglomerativeClustering(4, n_prototypes=300, random_state=0).fit(X)
    assert adjusted_rand_score(model.labels_, truth) == 1.0
    assert model.leaf_weights_.sum() == len(X)
    assert model.n_iter_ == 5
    # The last merges are those of the rows: means and weights are exact.
    sizes, means = np.bincount(truth), np.stack([X[truth == c].mean(axis=0) for c in range(4)])
    heights = [
        np.sqrt(
            2 * sizes[a] * sizes[b] / (sizes[a] + sizes[b]) * ((means[a] - means[b]) ** 2).sum()
        )
        for a in range(4)
        for b in range(a)
    ]
    assert_allclose(model.linkage_[-3, 2], min(heights), rtol=1e-9)


@given(lengths=row_chunks(3000), name=st.sampled_from(LINKAGES))
def test_chunks_change_nothing(lengths, name):
    X, _ = blobs(3000)
    one = AgglomerativeClustering(5, linkage=name, n_prototypes=100, random_state=3).fit(X)
    many = AgglomerativeClustering(5, linkage=name, n_prototypes=100, random_state=3)
    many.fit(chunked(X, lengths))
    assert_allclose(many.linkage_, one.linkage_, rtol=1e-6)
    assert_array_equal(many.labels_.compute(), one.labels_)
    assert_array_equal(many.predict(X), one.labels_)


def test_cut_needs_no_fit():
    X, _ = blobs()
    D = chunked(X, (250, 350))
    model = AgglomerativeClustering(4).fit(X)
    lazy = AgglomerativeClustering(4).fit(D)
    for cut in (model.cut(7), lazy.cut(7)):
        expected = AgglomerativeClustering(7).fit(X).labels_
        assert_array_equal(np.asarray(cut.labels_), expected)
        assert cut.n_clusters_ == cut.n_clusters == 7
    height = float(model.linkage_[-3:, 2].min())
    by_height = model.cut(height=height)
    assert by_height.n_clusters_ == 4
    expected = AgglomerativeClustering(None, distance_threshold=height).fit(X)
    assert_array_equal(by_height.labels_, expected.labels_)
    assert_array_equal(model.labels_, AgglomerativeClustering(4).fit(X).labels_)


@pytest.mark.parametrize("n_prototypes", [50, 2000])
def test_cannot_link_keeps_rows_apart(n_prototypes):
    X, _ = blobs(1000, k=2)
    model = AgglomerativeClustering(2, n_prototypes=n_prototypes, random_state=0)
    free = model.fit(X).labels_
    a, b = np.flatnonzero(free == 0)[:2]
    labels = model.fit(X, cannot_link=[[a, b]]).labels_
    assert labels[a] != labels[b]
    with pytest.raises(ConstraintError, match="n_clusters must be at least 3"):
        model.fit(X, cannot_link=[[0, 1], [1, 2], [0, 2]])


@pytest.mark.parametrize("n_prototypes", [50, 2000])
def test_cannot_link_of_rows_of_weight_zero(n_prototypes):
    X, _ = blobs(1000, k=2)
    weight = np.ones(len(X))
    weight[[0, 1, 7]] = 0.0
    model = AgglomerativeClustering(2, n_prototypes=n_prototypes, random_state=0)
    expected = clone(model).fit(X, cannot_link=[[5, 6]], sample_weight=weight)
    pairs = [[0, 1], [5, 6], [1, 2], [7, 5]]
    for data in (X, chunked(X, (400, 600))):
        found = model.fit(data, cannot_link=pairs, sample_weight=weight)
        assert (found.leaf_weights_ > 0).all()
        assert found.leaf_weights_.sum() == weight.sum()
        assert found.labels_[5] != found.labels_[6]
    assert adjusted_rand_score(found.predict(X), expected.predict(X)) > 0.99


def test_blocks_as_wide_as_the_image_give_the_same_trees_whatever_their_height():
    values = np.random.default_rng(0).normal(size=(26, 20, 3)).cumsum(axis=0).cumsum(axis=1)
    values[3:5, 7:] = np.nan
    found = []
    for height in (26, 7, 1):
        cube = daskclust.open_cube(values, dims=("y", "x", "band"), chunks=(height, 20))
        model = AgglomerativeClustering(
            5, n_prototypes=40, connectivity="adjacent", random_state=0
        ).fit(cube)
        found.append(np.asarray(cube.to_map(model.labels_)))
    assert_array_equal(found[1], found[0])
    assert_array_equal(found[2], found[0])


def test_only_adjacent_pixels_merge():
    xarray = pytest.importorskip("xarray")
    values = np.zeros((20, 30, 3), np.float32)
    values[:, 20:] = 1.0  # like the left third, but for what lies between
    values[:, :10] = 1.1
    values[:, 10:20] = 9.0
    values += np.random.default_rng(0).normal(scale=0.01, size=values.shape)
    stored = da.from_array(values, chunks=(7, 11, 3))
    cube = daskclust.open_cube(xarray.DataArray(stored, dims=("y", "x", "band"), name="scene"))
    free = AgglomerativeClustering(2, n_prototypes=40, random_state=0).fit(cube)
    image = np.asarray(cube.to_map(free.labels_))
    assert image[0, 0] == image[0, 29] != image[0, 15]
    bound = AgglomerativeClustering(
        2, n_prototypes=40, connectivity="adjacent", linkage="average", random_state=0
    ).fit(cube)
    image = np.asarray(cube.to_map(bound.labels_))
    assert image[0, 0] != image[0, 29]
    with pytest.raises(ValueError, match="requires a cube"):
        AgglomerativeClustering(connectivity="adjacent").fit(values.reshape(-1, 3))


def structured_ward(values):
    """Return scikit-learn's tree of an image whose clusters are connected."""
    height, width, _ = values.shape
    return peers.AgglomerativeClustering(
        2, connectivity=grid_to_graph(height, width), compute_distances=True
    ).fit(values.reshape(height * width, -1))


def n_pieces(image):
    """Count the connected pieces of all clusters in a map."""
    return sum(label(image == c)[1] for c in np.unique(image))


@pytest.mark.parametrize("chunks", [(10, 10), (4, 3)])
def test_equal_pixels_are_leaves_by_their_place(chunks):
    values = np.random.default_rng(0).integers(0, 4, (10, 10, 1)).astype(float)
    for jitter in (0.0, 1e-9):
        values = values + jitter * np.random.default_rng(1).normal(size=values.shape)
        cube = daskclust.open_cube(values, dims=("y", "x", "band"), chunks=chunks)
        model = AgglomerativeClustering(2, connectivity="adjacent").fit(cube)
        assert model.n_leaves_ == 100
        for k in (2, 5, 12, 40):
            image = np.asarray(cube.to_map(model.cut(k).labels_))
            assert len(np.unique(image)) == k == n_pieces(image)
    # Without ties there is one tree.
    expected = structured_ward(values)
    assert_allclose(model.linkage_[:, 2], np.maximum.accumulate(expected.distances_), atol=1e-7)
    for k in (2, 5, 12, 40):
        found = np.asarray(cube.to_map(model.cut(k).labels_)).ravel()
        labels = peers.AgglomerativeClustering(k, connectivity=grid_to_graph(10, 10)).fit_predict(
            values.reshape(100, 1)
        )
        assert adjusted_rand_score(found, labels) == 1.0


def test_pixels_that_cannot_link_are_leaves_by_their_place():
    values = np.zeros((12, 12, 1))
    values[:, 6:] = 1.0
    cube = daskclust.open_cube(values, dims=("y", "x", "band"), chunks=(5, 5))
    # Both in the left half, where all pixels are equal; each touches others.
    rows = cube.rows_of(np.where(np.arange(144).reshape(12, 12) == 26, 1, -1))[0]
    other = cube.rows_of(np.where(np.arange(144).reshape(12, 12) == 98, 1, -1))[0]
    model = AgglomerativeClustering(
        3, n_prototypes=20, connectivity="adjacent", random_state=0
    ).fit(cube, cannot_link=[[rows[0], other[0]]])
    assert np.isfinite(model.linkage_[:, 2]).sum() >= model.n_leaves_ - 2
    image = np.asarray(cube.to_map(model.labels_))
    assert image[2, 2] != image[8, 2]


@pytest.mark.parametrize("estimator", [HDBSCAN, AgglomerativeClustering])
def test_another_metric_is_explained(estimator):
    with pytest.raises(TypeError, match=r"no parameter metric.*'cosine': .*normalize\(X\)"):
        estimator(metric="cosine")
    with pytest.raises(TypeError, match="not for metric='manhattan'"):
        estimator(metric="manhattan")
    assert "metric" not in estimator().get_params()
    assert clone(estimator(n_prototypes=7)).n_prototypes == 7
    with pytest.raises(
        ValueError, match=r"metric must be one of 'euclidean', 'haversine'.*seuclidean.*std"
    ):
        DBSCAN(metric="seuclidean").fit(np.zeros((9, 3)))


@pytest.mark.parametrize("metric", sorted(set(SCALINGS) - {"haversine", "hellinger"}))
def test_scaled_rows_have_the_distances_of_a_metric(metric):
    X = np.random.default_rng(0).normal(size=(60, 3)) * [1.0, 5.0, 0.2] + 1.0
    said = SCALINGS[metric]
    rows = "X" if said.startswith("X itself") else said.split(" (distances")[0]
    names = {"X": X, "numpy": np, "sklearn": sklearn}
    found = pdist(eval(rows, names))
    expected = pdist(X, {"l2": "euclidean"}.get(metric, metric))
    if "same order" in said:
        assert spearmanr(found, expected).statistic > 1 - 1e-12
    else:
        assert_allclose(found, expected)


@pytest.mark.parametrize("views", ["standard", "angle"])
def test_views(views):
    X, truth = blobs(2000)
    if views == "standard":
        X = X * [1.0, 1e4, 1e-4, 1.0]
    else:
        X = X * np.random.default_rng(0).uniform(1, 100, (len(X), 1))
    model = AgglomerativeClustering(4, views=views, n_prototypes=100, random_state=0).fit(X)
    assert adjusted_rand_score(model.labels_, truth) > 0.9


@pytest.mark.parametrize(
    ("params", "match"),
    [
        (
            {"n_clusters": 3, "distance_threshold": 1.0},
            "n_clusters or distance_threshold must be set",
        ),
        ({"n_clusters": None}, "n_clusters or distance_threshold must be set"),
        ({"n_clusters": 50}, "n_clusters=50 must be at most n_samples=20"),
        ({"n_clusters": 15, "n_prototypes": 10}, "n_prototypes must be at least n_clusters=15"),
        (
            {"connectivity": np.eye(19)},
            r"connectivity must have the shape \(20, 20\), got \(19, 19\)",
        ),
        ({"connectivity": np.eye(20), "n_prototypes": 10}, "Raise n_prototypes to 20"),
        ({"connectivity": np.eye(20) * np.nan}, "matrix of finite numbers"),
        ({"connectivity": np.eye}, "connectivity must be an array-like"),
        ({"gini_threshold": 0.5}, "requires linkage='genie'"),
    ],
)
def test_bad_parameters(params, match):
    with pytest.raises(ValueError, match=match):
        AgglomerativeClustering(**params).fit(blobs(20)[0])


def test_connected_rows_give_scikit_learns_clusters():
    X, _ = blobs(200, p=2, k=6)
    X[100:] += 90.0
    graph = kneighbors_graph(X, 6)
    weight = np.arange(200) % 5 > 0  # rows of weight 0 are no leaves
    for name in LINKAGES:
        model = AgglomerativeClustering(5, linkage=name, connectivity=graph)
        peer = peers.AgglomerativeClustering(5, linkage=name, connectivity=graph)
        used = clone(peer).set_params(connectivity=graph[weight][:, weight])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            labels = peer.fit_predict(X)
            of_used = used.fit_predict(X[weight])
        for data, w, expected in (
            (X, None, labels),
            (chunked(X, (70, 130)), None, labels),
            (X, weight, of_used),
        ):
            with pytest.warns(ConstraintWarning, match=r"connectivity matrix is \d > 1"):
                model.fit(data, sample_weight=w)
            found = np.asarray(model.labels_)[slice(None) if w is None else w]
            assert adjusted_rand_score(found, expected) == 1.0
    assert model.children_.shape == (159, 2)
    assert_array_equal(model.children_, model.linkage_[:, :2])


def test_genie_finds_what_single_linkage_does_not():
    X, truth = make_moons(1500, noise=0.07, random_state=0)
    X[0] = 9.0, 9.0
    single = AgglomerativeClustering(2, linkage="single").fit(X)
    assert np.bincount(single.labels_).min() == 1
    for n_prototypes in (2000, 300):
        model = AgglomerativeClustering(
            2, linkage="genie", n_prototypes=n_prototypes, random_state=0
        ).fit(X)
        assert adjusted_rand_score(model.labels_, truth) > 0.95
        lazy = clone(model).fit(chunked(X, (400, 1100)))
        assert_array_equal(lazy.labels_.compute(), model.labels_)
        assert (
            adjusted_rand_score(
                model.cut(5).labels_, clone(model).set_params(n_clusters=5).fit(X).labels_
            )
            == 1
        )
    a, b = np.flatnonzero(model.labels_ == 0)[:2]
    bound = clone(model).fit(X, cannot_link=[[a, b]])
    assert bound.labels_[a] != bound.labels_[b]


def test_bad_cuts():
    model = AgglomerativeClustering().fit(blobs(20)[0])
    with pytest.raises(ValueError, match="n_clusters or height must be set"):
        model.cut()
    with pytest.raises(ValueError, match="at most 20, the number of leaves"):
        model.cut(21)


def test_fewer_leaves_than_clusters():
    X = np.repeat(np.arange(3.0)[:, None], 50, axis=0)
    with pytest.warns(ConstraintWarning, match="each leaf is a cluster"):
        model = AgglomerativeClustering(5, n_prototypes=20, random_state=0).fit(X)
    assert model.n_clusters_ == 3


# HDBSCAN


def noisy(n=4000, p=8, seed=0):
    X, truth = make_blobs(int(0.8 * n), p, centers=6, cluster_std=0.4, random_state=seed)
    noise = np.random.default_rng(seed).uniform(X.min(), X.max(), (n - len(X), p))
    return np.concatenate([X, noise]), np.append(truth, np.full(len(noise), -1))


def test_rows_as_leaves_give_scikit_learns_clusters():
    X, _ = noisy(1500)
    model = HDBSCAN(20).fit(X)
    expected = peers.HDBSCAN(20, copy=True).fit(X)
    assert adjusted_rand_score(model.labels_, expected.labels_) == 1.0
    assert_array_equal(model.labels_ < 0, expected.labels_ < 0)
    assert_allclose(model.probabilities_, expected.probabilities_)
    assert_array_equal(model.predict(X), model.labels_)
    assert model.n_clusters_ == expected.labels_.max() + 1


def test_a_row_of_weight_three_is_three_rows():
    # Core distances repeat, so merges tie: one leaf in place of three would change their order.
    for seed in range(3):
        X, _ = noisy(300, p=2, seed=seed)
        weight = np.random.default_rng(seed).integers(0, 4, len(X))
        repeated = np.repeat(X, weight, axis=0)
        weighted = HDBSCAN().fit(X, sample_weight=weight)
        expected = HDBSCAN().fit(repeated)
        first = (np.cumsum(weight) - weight)[weight > 0]
        assert_array_equal(weighted.condensed_tree_, expected.condensed_tree_)
        for name in ("labels_", "probabilities_", "outlier_scores_"):
            found = getattr(weighted, name)[weight > 0]
            assert_array_equal(found, getattr(expected, name)[first])
        assert_array_equal(weighted.predict(repeated), expected.predict(repeated))


@pytest.mark.parametrize("n_used", [199, 200])
def test_rows_of_weight_zero_are_no_rows(n_used):
    # There are no more rows of any weight than prototypes: they are the leaves.
    X, _ = noisy(400, p=2)
    weight = np.zeros(len(X))
    weight[np.random.default_rng(0).permutation(len(X))[:n_used]] = 1.0
    used = X[weight > 0]
    for model in (HDBSCAN(n_prototypes=200), AgglomerativeClustering(4, n_prototypes=200)):
        found = clone(model).fit(X, sample_weight=weight)
        expected = model.fit(used)
        assert found.n_iter_ == 0
        assert_array_equal(found.labels_[weight > 0], expected.labels_)
        assert_array_equal(found.predict(X), expected.predict(X))


@pytest.mark.parametrize("n_prototypes", [400, 2000])
def test_bubbles_find_the_clusters_of_all_rows(n_prototypes):
    X, truth = noisy(20_000)
    model = HDBSCAN(200, min_samples=10, n_prototypes=n_prototypes, random_state=0).fit(X)
    planted = truth >= 0
    assert adjusted_rand_score(model.labels_[planted], truth[planted]) > 0.97
    found = model.labels_ < 0
    assert (found & ~planted).sum() / (~planted).sum() > 0.95
    assert (found & ~planted).sum() / found.sum() > 0.95
    assert (model.outlier_scores_[~planted] > 0.5).mean() > 0.9
    assert (model.outlier_scores_[planted] < 0.5).mean() > 0.5


@given(lengths=row_chunks(3000))
def test_chunks_do_not_change_density_clusters(lengths):
    X, _ = noisy(3000)
    one = HDBSCAN(0.02, min_samples=10, n_prototypes=300, random_state=3).fit(X)
    many = HDBSCAN(0.02, min_samples=10, n_prototypes=300, random_state=3).fit(chunked(X, lengths))
    results = dask.compute(many.labels_, many.probabilities_, many.outlier_scores_)
    assert_array_equal(results[0], one.labels_)
    assert_allclose(results[1], one.probabilities_, atol=1e-6)
    assert_allclose(results[2], one.outlier_scores_, atol=1e-6)


def test_rows_are_measured_as_their_bubbles():
    # Of a bubble whose 16 rows fill a disk of radius 4, four lie within 4 (4 / 16)^(1/2) = 2, its
    # core distance. A row 5 away has the core distance of a disk of radius 5: 2.5.
    bubble = Bubbles(np.zeros((1, 2)), np.array([16.0]), np.array([4.0]))
    core, one = core_distances(bubble, 4), np.ones(1)
    then = _Membership(
        "labels",
        labels=np.zeros(1, np.int64),
        falls=np.array([np.inf]),
        ends=one,
        core=core,
        scales=bubble.extent_fractions(4),
        births=np.array([1 / 3, np.inf]),
        deaths=np.array([1 / 2, 0.0]),
    )
    distances = np.array([0.0, 4.0, 5.0, 5.9, 6.1])
    leaves = np.zeros(5, np.int64)
    assert then(leaves, distances).tolist() == [0, 0, 0, 0, -1]
    shares = replace(then, output="probabilities")(leaves, distances)
    assert_allclose(shares, [1.0, 1.0, 2 / 2.5, 2 / 2.95, 0.0])


def test_the_slope_of_a_cluster_is_no_cluster():
    # A dense cluster and a wide one around it part nowhere; four bubbles are enough for a cluster.
    rng = np.random.default_rng(0)
    parts = ((9000, 0.12, 0.0), (4000, 0.35, 0.3), (3000, 0.2, 4.0))
    X = [rng.normal(size=(n, 2)) * spread + (place, 0) for n, spread, place in parts]
    X = np.concatenate([*X, rng.uniform(-3, 7, (4000, 2))])
    counts = []
    for seed in range(3):
        model = HDBSCAN(100, min_samples=10, n_prototypes=400, random_state=seed).fit(X)
        counts.append(model.n_clusters_)
        assert (model.labels_[:9000] >= 0).all()
    # A small group of noise can be a cluster by chance: rounding decides it for one seed.
    assert np.median(counts) <= 3


@pytest.mark.parametrize("n_prototypes", [2000, 100])
def test_rows_in_one_place(n_prototypes):
    X = np.ones((300, 2))
    # No prototype but one is used; rows as leaves are parted at will.
    match = "each leaf is a cluster" if n_prototypes == 100 else "Number of distinct clusters"
    with pytest.warns((ConstraintWarning, ConvergenceWarning), match=match):
        AgglomerativeClustering(3, n_prototypes=n_prototypes, random_state=0).fit(X)
    with pytest.warns(ConvergenceWarning, match="allow_single_cluster=True"):
        HDBSCAN(20, n_prototypes=n_prototypes, random_state=0).fit(X)
    single = HDBSCAN(20, n_prototypes=n_prototypes, allow_single_cluster=True, random_state=0)
    assert not single.fit(X).labels_.any()
    assert not DBSCAN(1e-9).fit(X).labels_.any()


def test_all_noise_is_said():
    X = np.random.default_rng(0).uniform(size=(300, 2))
    with pytest.warns(ConvergenceWarning, match="All rows are noise"):
        model = HDBSCAN(100, min_samples=50).fit(X)
    assert (model.labels_ == -1).all()
    assert model.n_clusters_ == 0
    assert not model.probabilities_.any()
    assert (pickle.loads(pickle.dumps(model)).predict(X) == -1).all()


def test_duplicates_in_masses():
    X = np.repeat([[0.0, 0.0], [4.0, 4.0]], 500, axis=0)
    for n_prototypes in (2000, 100):
        labels = (
            HDBSCAN(50, min_samples=5, n_prototypes=n_prototypes, random_state=0).fit(X).labels_
        )
        assert len(set(labels[:500])) == len(set(labels[500:])) == 1
        assert labels[0] != labels[500]
        assert labels.min() == 0


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"min_cluster_size": np.float32(2.5)}, "an integer >= 2 or a number > 0 and < 1, got"),
        ({"min_samples": 31}, "n_samples=30"),
    ],
)
def test_bad_parameters_of_hdbscan(params, match):
    with pytest.raises(ValueError, match=match):
        HDBSCAN(**params).fit(blobs(30)[0])


def test_min_samples_counts_weights():
    X = blobs(4, 2, 4)[0]
    model = HDBSCAN(min_samples=5).fit(X, sample_weight=np.full(4, 10))
    assert_array_equal(model.labels_, HDBSCAN(min_samples=5).fit(np.repeat(X, 10, 0)).labels_[::10])
    with pytest.raises(ValueError, match=r"min_samples \(5\).*n_samples=4 "):
        HDBSCAN(min_samples=5).fit(blobs(30)[0], sample_weight=np.arange(30) < 4)


@pytest.mark.parametrize("n_prototypes", [2000, 300])
def test_a_number_of_density_clusters(n_prototypes, tmp_path):
    X, truth = make_moons(1500, noise=0.07, random_state=0)
    model = HDBSCAN(n_clusters=2, n_prototypes=n_prototypes, random_state=0).fit(X)
    assert model.n_clusters_ == 2
    assert adjusted_rand_score(model.labels_, truth) > 0.98
    assert_array_equal(model.predict(X), model.labels_)
    assert_allclose(model.probabilities_, 1.0 - model.outlier_scores_)
    lazy = clone(model).fit(chunked(X, (400, 1100)))
    model.save(tmp_path / "m")
    loaded = daskclust.load(tmp_path / "m")
    table = model.cut_table(6)
    assert [cut.n_clusters for cut in table] == [2, 3, 4, 5, 6]
    finer = model.cut(6).labels_
    for k, cut in enumerate(table, 2):
        expected = HDBSCAN(n_clusters=k, n_prototypes=n_prototypes, random_state=0).fit(X)
        for labels in (model.cut(k).labels_, lazy.cut(k).labels_, loaded.cut(k).predict(X)):
            assert_array_equal(np.asarray(labels), expected.labels_)
        nested = model.cut(k, most=6).labels_
        # Prototypes count their rows before their last move.
        assert abs(np.bincount(nested).min() - cut.smallest) <= (5 if model.n_iter_ else 0)
        assert len(np.unique(np.column_stack([nested, finer]), axis=0)) == 6
    assert model.cut(1).labels_.max() == 0
    with pytest.raises(ValueError, match="leaves"):
        model.cut(1501)
    with pytest.raises(ValueError, match="most"):
        model.cut(5, most=4)


@settings(max_examples=5)
@given(lengths=row_chunks(3000))
def test_chunks_do_not_change_a_number_of_density_clusters(lengths):
    X, _ = noisy(3000)
    model = HDBSCAN(n_clusters=6, n_prototypes=300, random_state=3)
    one, many = clone(model).fit(X), model.fit(chunked(X, lengths))
    assert_array_equal(many.labels_.compute(), one.labels_)
    assert_allclose(many.outlier_scores_.compute(), one.outlier_scores_, atol=1e-6)


@pytest.mark.parametrize("n_prototypes", [400, 5000])
def test_outlier_scores_of_a_number_of_clusters_tell_noise(n_prototypes):
    X, truth = (part[:3400] for part in noisy(4000))
    model = HDBSCAN(n_clusters=6, n_prototypes=n_prototypes, random_state=0).fit(X)
    planted = truth >= 0
    assert model.labels_.min() == 0
    assert adjusted_rand_score(model.labels_[planted], truth[planted]) > 0.97
    found = np.where(model.outlier_scores_ > 0.7, -1, model.labels_)
    assert (found[~planted] < 0).mean() > 0.8
    assert (found[planted] < 0).mean() < 0.1


def test_as_many_clusters_as_rows():
    X = np.random.default_rng(0).normal(size=(30, 2))
    for k in (1, 2, 13, 30):
        assert len(np.unique(HDBSCAN(n_clusters=k).fit(X).labels_)) == k
    with pytest.raises(ValueError, match="n_clusters=31 must be at most n_samples=30"):
        HDBSCAN(n_clusters=31).fit(X)
    for n_prototypes in (20, 2000):
        model = HDBSCAN(n_clusters=3, n_prototypes=n_prototypes, random_state=0)
        with pytest.warns(ConstraintWarning, match="each leaf is a cluster"):
            model.fit(np.ones((30, 2)))
        assert model.n_clusters_ == 1


def test_neither_order_nor_repetition_changes_a_number_of_density_clusters():
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.integers(0, 9, (60, 2)).astype(float)  # ties
        weight = rng.integers(0, 4, 60)
        repeated = np.repeat(np.arange(60), weight)
        order = rng.permutation(len(repeated))
        labels = HDBSCAN(n_clusters=4).fit(X, sample_weight=weight).labels_
        found = HDBSCAN(n_clusters=4).fit(X[repeated[order]]).labels_
        assert adjusted_rand_score(found, labels[repeated[order]]) == 1.0


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"n_clusters": 9, "n_prototypes": 8}, "n_prototypes must be at least n_clusters=9, got 8"),
        ({"n_clusters": 2, "cluster_selection_method": "leaf"}, "is not supported with n_clusters"),
        ({"n_clusters": 2, "cluster_selection_epsilon": 1.0}, "Omit cluster_selection_epsilon"),
        ({"n_clusters": 2, "allow_single_cluster": True}, "Omit allow_single_cluster"),
    ],
)
def test_bad_parameters_of_a_number_of_density_clusters(params, match):
    with pytest.raises(ValueError, match=match):
        HDBSCAN(**params).fit(blobs(30)[0])
    model = HDBSCAN().fit(blobs(30)[0])
    for cut in (model.cut, model.cut_table):
        with pytest.raises(ValueError, match="Fit HDBSCAN"):
            cut(2)


# DBSCAN


@pytest.fixture
def small_boxes(monkeypatch):
    monkeypatch.setattr(dbscan, "_BOX_BYTES", 12_000)


def check_small_boxes(model, X, weight, expected, core, chunk):
    """Compare fits of many boxes, of an array and of a lazy one, with labels and core rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dbscan, "_BOX_BYTES", 60 * (86 + 32 * X.shape[1]))
        for data in (X, da.from_array(X, chunks=(chunk, X.shape[1]))):
            model.fit(data, sample_weight=weight)
            labels, mask = dask.compute(model.labels_, model.core_mask_)
            assert_array_equal(model.core_sample_indices_, np.flatnonzero(mask))
            assert_array_equal(labels, expected)
            assert_array_equal(mask, core)
            assert model.n_clusters_ == expected.max() + 1


@given(seed=st.integers(0, 2**32 - 1))
@pytest.mark.filterwarnings("ignore:All rows are noise")
def test_boxes_give_scikit_learns_labels(seed):
    rng = np.random.default_rng(seed)
    n, p = int(rng.integers(1, 700)), int(rng.integers(1, 4))
    kind = int(rng.integers(4))
    X = [
        rng.normal(size=(n, p)),
        rng.integers(0, 15, (n, p)).astype(float),  # ties, and duplicates
        rng.uniform(-100, 100, (n, p)),
        np.concatenate([rng.normal(size=(n, p)), rng.normal(scale=0.1, size=(n, p)) + 5]),
    ][kind]
    eps, least = [0.3, 1.0, 8.0, 0.2][kind], int(rng.integers(1, 8))
    weight = rng.integers(1, 4, len(X)).astype(float) if seed % 3 == 0 else None
    expected = peers.DBSCAN(eps=eps, min_samples=least).fit(X, sample_weight=weight)
    core = np.zeros(len(X), bool)
    core[expected.core_sample_indices_] = True
    model = DBSCAN(eps, min_samples=least)
    check_small_boxes(model, X, weight, expected.labels_, core, int(rng.integers(20, 300)))


def many_features(seed):
    """Return rows of 4 to 20 features with an eps, min_samples and weights."""
    rng = np.random.default_rng(seed)
    n, p, kind = int(rng.integers(1, 500)), int(rng.integers(4, 21)), int(rng.integers(4))
    X = [
        rng.normal(size=(n, p)),
        rng.integers(0, 4, (n, p)).astype(float),  # ties, and duplicates
        rng.normal(size=(n, p)) + 8 * rng.integers(0, 3, (n, 1)),
        np.concatenate([rng.normal(size=(n, p)) * 2, rng.normal(scale=0.1, size=(n, p)) + 5]),
    ][kind]
    eps = [0.9 * np.sqrt(p), float(rng.choice([1.0, 2.0])), 0.9 * np.sqrt(p), 0.3 * np.sqrt(p)]
    weight = [None, rng.integers(1, 4, len(X)).astype(float), rng.random(len(X))][seed % 3]
    return X, eps[kind], int(rng.integers(1, 9)), weight


@given(seed=st.integers(0, 2**32 - 1))
@pytest.mark.filterwarnings("ignore:All rows are noise")
def test_rows_of_many_features_get_scikit_learns_labels(seed):
    X, eps, least, weight = many_features(seed)
    expected = peers.DBSCAN(eps=eps, min_samples=least).fit(X, sample_weight=weight)
    core = np.zeros(len(X), bool)
    core[expected.core_sample_indices_] = True
    model = DBSCAN(eps, min_samples=least)
    for chunk in (7 + seed % 50, 1000):
        check_small_boxes(model, X, weight, expected.labels_, core, chunk)
    model.fit(X, sample_weight=weight)  # in one box
    assert_array_equal(model.labels_, expected.labels_)
    apart = ((X[:, None] - X) ** 2).sum(axis=2)
    assert_array_equal(model.score_samples(X), (apart <= eps * eps).sum(axis=1))


@given(seed=st.integers(0, 2**32 - 1))
@pytest.mark.filterwarnings("ignore:All rows are noise")
def test_rows_of_weight_zero_join_nothing(seed):
    rng = np.random.default_rng(seed)
    n, p = int(rng.integers(5, 500)), int(rng.integers(1, 4))
    on_globe = p == 2 and seed % 2 == 0
    if on_globe:
        X = np.deg2rad(rng.uniform(-3, 3, (n, p)))
        eps, metric = float(np.deg2rad(0.4)), "haversine"
        apart = haversine_distances(X)
    else:
        X, eps = [(rng.normal(size=(n, p)), 0.3), (rng.integers(0, 12, (n, p)) * 1.0, 1.0)][
            seed % 2
        ]
        metric = "euclidean"
        apart = np.sqrt(((X[:, None] - X) ** 2).sum(axis=2))
    least = int(rng.integers(1, 8))
    weight = rng.integers(0, 4, n).astype(float) * (rng.random(n) < rng.choice([0.4, 1.0]))
    used = weight > 0
    weight[: not used.any()] = used[: not used.any()] = 1.0
    without = peers.DBSCAN(eps=eps, min_samples=least, metric=metric)
    without.fit(X[used], sample_weight=weight[used])
    core = np.zeros(n, bool)
    core[np.flatnonzero(used)[without.core_sample_indices_]] = True
    expected = np.full(n, -1)
    expected[used] = without.labels_
    none = n  # more than any number of a cluster
    of_core = np.where(apart[:, core] <= eps, expected[core], none).min(axis=1, initial=none)
    expected[~used] = np.where(of_core < none, of_core, -1)[~used]
    model = DBSCAN(eps, min_samples=least, metric=metric)
    check_small_boxes(model, X, weight, expected, core, int(rng.integers(20, 300)))


def test_a_row_of_weight_zero_is_no_bridge():
    x = np.array([0.0, 0.4, 0.8, 1.2, 1.6])
    weight = np.array([2, 1, 0, 1, 2])
    scene = daskclust.open_cube(x.reshape(1, 5, 1), dims=("y", "x", "band"))
    for data in (x[:, None], scene):
        model = DBSCAN(0.5, min_samples=2).fit(data, sample_weight=weight)
        assert_array_equal(model.labels_, [0, 0, 0, 1, 1])
        assert_array_equal(model.core_mask_, [True, True, False, True, True])


@given(seed=st.integers(0, 2**32 - 1))
@pytest.mark.filterwarnings("ignore:All rows are noise")
def test_scores_are_numbers_of_neighbors(seed):
    rng = np.random.default_rng(seed)
    n, p = int(rng.integers(1, 500)), int(rng.integers(1, 4))
    X, eps = [
        (rng.normal(size=(n, p)), 0.3),
        (rng.integers(0, 15, (n, p)).astype(float), 1.0),  # ties, and duplicates
        (np.concatenate([rng.normal(size=(n, p)), rng.normal(scale=0.1, size=(n, p)) + 5]), 0.2),
    ][seed % 3]
    apart = ((X[:, None] - X) ** 2).sum(axis=2)
    expected = (apart <= eps * eps).sum(axis=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dbscan, "_BOX_BYTES", 60 * (86 + 32 * X.shape[1]))
        model = DBSCAN(eps, min_samples=4).fit(X)
        assert_array_equal(model.score_samples(X), expected)
        assert_array_equal(model.core_mask_, expected >= 4)
        lazy = model.score_samples(da.from_array(X, chunks=(int(rng.integers(20, 300)), p)))
        assert_array_equal(lazy.compute(), expected)


def test_haversine():
    rng = np.random.default_rng(0)
    X = np.deg2rad(np.column_stack([rng.normal(48, 0.1, 2000), rng.normal(179.95, 0.1, 2000)]))
    X[:, 1] = np.where(X[:, 1] > np.pi, X[:, 1] - 2 * np.pi, X[:, 1])  # across the date line
    eps = 1 / 6371
    expected = peers.DBSCAN(eps=eps, min_samples=4, metric="haversine").fit(X)
    model = DBSCAN(eps, min_samples=4, metric="haversine").fit(X)
    assert_array_equal(model.labels_, expected.labels_)
    near = haversine_distances(X) <= eps
    assert_array_equal(model.score_samples(X), near.sum(axis=1))
    with pytest.raises(ValueError, match="radians"):
        DBSCAN(eps, metric="haversine").fit(np.rad2deg(X))
    with pytest.raises(ValueError, match="must have the 2 features"):
        DBSCAN(eps, metric="haversine").fit(np.zeros((9, 3)))


def test_folder_lives_as_long_as_the_labels(tmp_path, small_boxes):
    X = blobs(500, p=2)[0]
    with dask.config.set({"temporary-directory": str(tmp_path)}):
        labels = DBSCAN(0.5).fit(chunked(X, (100,) * 5)).labels_
        assert list(tmp_path.iterdir())
        assert_array_equal(labels.compute(), peers.DBSCAN(eps=0.5).fit(X).labels_)
        del labels
        assert not list(tmp_path.iterdir())
        DBSCAN(0.5).fit(X)
        assert not list(tmp_path.iterdir())


def test_labels_that_outlive_their_folder_say_so():
    # As of a graph that was pickled without a cluster.
    model = DBSCAN(0.5).fit(chunked(blobs(500, p=2)[0], (100,) * 5))
    scores = model.score_samples(chunked(blobs(500, p=2)[0], (100,) * 5))
    copies = pickle.loads(pickle.dumps([model.labels_, scores]))
    del model, scores
    for copy in copies:
        with pytest.raises(
            StoreError, match=r"The process of the fit removes it .* keep a reference to one"
        ):
            copy.compute()


def test_folder_lives_as_long_as_what_is_persisted(client, tmp_path, small_boxes):
    X, folder = blobs(500, p=2)[0], tmp_path / "rows"
    expected = peers.DBSCAN(eps=0.5).fit(X).labels_
    lazy = chunked(X, (100,) * 5)
    with dask.config.set({"temporary-directory": str(folder)}):
        labels = DBSCAN(0.5).fit(lazy).labels_ + 1
        # The workers are busy until the model, its labels and their graph are gone.
        gate = tmp_path / "gate"
        busy = client.map(_wait_for, [gate] * 2, range(2))
        labels = client.persist(labels)
        gc.collect()
        gate.touch()
        assert_array_equal(labels.compute(), expected + 1)
        assert list(folder.iterdir())
        del labels, busy
        within(60, partial(_wait_for, folder, is_empty=True))


def _wait_for(path, number=0, *, is_empty=False):
    while any(path.iterdir()) if is_empty else not path.exists():
        time.sleep(0.05)


def test_checkpoint_of_a_finished_fit(tmp_path, small_boxes):
    X = chunked(blobs(500, p=2)[0], (100,) * 5)
    model = DBSCAN(0.5, checkpoint=tmp_path / "fit").fit(X)
    labels = model.labels_.compute()
    del model
    # The folder is gone, the state is there: the rows are sorted again.
    again = DBSCAN(0.5, checkpoint=tmp_path / "fit").fit(X)
    assert_array_equal(again.labels_.compute(), labels)


def test_lazy_labels_stay_when_another_fit_begins_beside_the_checkpoint(tmp_path, small_boxes):
    path, (X, other) = tmp_path / "fit", (blobs(500, p=2, seed=seed)[0] for seed in (0, 1))
    model = DBSCAN(0.5, checkpoint=path).fit(chunked(X, (100,) * 5))
    path.unlink()
    later = DBSCAN(0.5, checkpoint=path).fit(chunked(other, (100,) * 5))
    for fitted, rows in ((model, X), (later, other)):
        assert_array_equal(fitted.labels_.compute(), peers.DBSCAN(eps=0.5).fit(rows).labels_)
    del model, later, fitted
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name == "nt", reason="files are not locked there")
def test_two_fits_do_not_share_a_folder(tmp_path):
    with (
        reserved([tmp_path / "fit.rows"]),  # as another fit has it
        pytest.raises(FileExistsError, match=r"fit\.rows' is being written by process \d+"),
    ):
        DBSCAN(0.5, checkpoint=tmp_path / "fit").fit(blobs(500, p=2)[0])
    DBSCAN(0.5, checkpoint=tmp_path / "fit").fit(blobs(500, p=2)[0])


@pytest.mark.parametrize(
    ("eps", "X", "match"),
    [
        (1e-300, np.arange(18.0).reshape(9, 2), "eps must be larger than"),
        (1.0, np.full((9, 2), np.nan), "NaN"),
    ],
)
def test_bad_input_of_dbscan(eps, X, match):
    with pytest.raises(ValueError, match=match):
        DBSCAN(eps).fit(X)


def test_longitude_before_latitude():
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(np.zeros((9, 2)), columns=["Longitude", "lat"])
    with pytest.raises(ValueError, match="columns latitude and longitude, in this order"):
        DBSCAN(0.1, metric="haversine").fit(X)
    assert not DBSCAN(0.1, metric="haversine").fit(X[["lat", "Longitude"]]).labels_.any()


def test_one_box_that_no_task_holds(monkeypatch):
    X = blobs(500, p=2)[0]
    monkeypatch.setattr(dbscan, "_MOST_BYTES", 400 * 150)
    with pytest.raises(
        ValueError, match=r"at most 400 rows of 2 features, got 500 of 500 rows. Lower eps"
    ):
        DBSCAN(100.0).fit(X)
    # Too many by any draw: said before rows are written.
    monkeypatch.setattr(dbscan, "SORT_ROWS", None)
    monkeypatch.setattr(dbscan, "_MOST_BYTES", 300 * 150)
    with pytest.raises(ValueError, match=r"got 388 of 500 rows. Lower eps"):
        DBSCAN(100.0).fit(X)


def test_no_row_is_dense():
    with pytest.warns(ConvergenceWarning, match="All rows are noise: the weight within eps"):
        assert (DBSCAN(1e-6).fit_predict(blobs(30, p=2)[0]) == -1).all()


def test_noise_is_a_class_of_its_own():
    from daskclust.app.report.summary import legend_of

    X, _ = noisy(1000, p=2)
    for model in (HDBSCAN(20).fit(X), DBSCAN(0.5).fit(X)):
        legend, k = legend_of(model), model.n_clusters_
        assert legend.codes == tuple(range(k + 1))
        assert legend.names[-1] == "noise"
        assert legend.is_of_clusters
        values = legend.encode(model.labels_)
        assert_array_equal(values, np.where(model.labels_ < 0, k, model.labels_))


def test_a_model_without_predict_is_refused_by_the_command(tmp_path, capsys):
    from daskclust.app.cli import main

    DBSCAN(3.0).fit(blobs(500, p=2)[0]).save(tmp_path / "m.zarr")
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    arguments = ["predict", str(tmp_path / "t.csv"), "--model", str(tmp_path / "m.zarr")]
    assert main([*arguments, "--output", str(tmp_path / "out.csv")]) == 1
    assert "which labels only the rows of its fit" in capsys.readouterr().err


# Pictures and choices


def test_cut_table_and_pictures():
    pytest.importorskip("matplotlib")
    from daskclust import plotting

    X, _ = blobs(300)
    model = AgglomerativeClustering(4).fit(X)
    table = model.cut_table(6)
    assert [cut.n_clusters for cut in table] == [2, 3, 4, 5, 6]
    for cut in table:
        labels = model.cut(cut.n_clusters).labels_
        assert np.bincount(labels).min() == cut.smallest
        assert model.cut(height=cut.height).n_clusters_ == cut.n_clusters
    html = model._repr_mimebundle_()["text/html"]
    assert "size of the smallest" in html
    ax = plotting.dendrogram(model, n_leaves=20)
    assert len(ax.get_xticks()) == 20
    assert sum(float(text.get_text()) for text in ax.get_xticklabels()) == 300
    assert len(ax.lines) == 19 + 1  # the cut
    bound = AgglomerativeClustering(3).fit(X, cannot_link=[[0, 1], [1, 2], [0, 2]])
    assert plotting.dendrogram(bound).get_ylim()[1] < np.inf
    dense = HDBSCAN(20).fit(noisy(1000)[0])
    # Two blobs in one chosen cluster: it is named once.
    joined = HDBSCAN(20, cluster_selection_epsilon=4.0).fit(noisy(1000)[0])
    for model in (dense, joined):
        names = [text.get_text() for text in plotting.condensed_tree(model).texts]
        assert sorted(map(int, names)) == list(range(model.n_clusters_))
    # Densities far below 1 fill the picture as well.
    wide = HDBSCAN(20).fit(1000.0 * noisy(1000)[0])
    top = wide.condensed_tree_["lambda_val"].max()
    assert plotting.condensed_tree(wide).get_ylim()[0] == top < 1.0


def test_what_has_no_dendrogram_is_refused():
    pytest.importorskip("matplotlib")
    from daskclust import plotting

    X = blobs(30)[0]
    with pytest.raises(TypeError, match="must be a fitted AgglomerativeClustering, got a HDBSCAN"):
        plotting.dendrogram(HDBSCAN().fit(X))
    one = AgglomerativeClustering(1).fit(X, sample_weight=np.arange(30) == 3)
    with pytest.raises(ValueError, match="at least two leaves, got one"):
        plotting.dendrogram(one)
    with pytest.raises(NotFittedError):
        plotting.dendrogram(AgglomerativeClustering())


@pytest.mark.parametrize("criterion", [None, "height", "stability"])
def test_a_tree_tells_how_many_clusters(criterion):
    from daskclust.selection import choose_n_clusters

    X, truth = make_blobs(900, 4, centers=6.0 * np.eye(3, 4), cluster_std=0.3, random_state=0)
    tree = AgglomerativeClustering(n_prototypes=200)
    found = choose_n_clusters(
        tree, X, range(1, 8), method="tree", criterion=criterion, random_state=0
    )
    if criterion != "stability":
        assert found.best_value == 3
    assert found.scores[2] >= 0.99
    assert np.isnan(found.scores[0])
    assert adjusted_rand_score(found.estimators[2].labels_, truth) == 1.0
    assert found.details["agreement"].shape == (10, 7)


def test_a_tree_of_six_places_has_six_clusters():
    from daskclust.selection import choose_n_clusters

    X = np.repeat(np.random.default_rng(0).normal(size=(6, 2)), 20, axis=0)
    found = choose_n_clusters(
        AgglomerativeClustering(), X, range(1, 7), method="tree", random_state=0
    )
    assert found.best_value == 6


def test_bad_choices_by_a_tree():
    from daskclust.selection import choose_n_clusters

    X, _ = blobs(60)
    tree = AgglomerativeClustering()
    with pytest.raises(ValueError, match="must be an AgglomerativeClustering"):
        choose_n_clusters(daskclust.KMeans(), X, [2, 3], method="tree")
    with pytest.raises(ValueError, match="must have at least two distinct rows"):
        choose_n_clusters(tree, np.ones((60, 2)), [2, 3], method="tree")
    with pytest.raises(ValueError, match="criterion"):
        choose_n_clusters(tree, X, [2, 3], method="tree", criterion="gap")
    with pytest.raises(ValueError, match="ks must contain a number between 1"):
        choose_n_clusters(tree, X, [1], method="tree")


def test_names_and_joins_are_of_one_cut_and_one_fit():
    """Codes of another cut, or another fit, are other clusters."""
    X, _ = blobs()
    model = AgglomerativeClustering(4).fit(X)
    name_classes(model, {0: "field", 1: "water"})
    merge_classes(model, {2: 0})
    of_cut, again = model.cut(3), deepcopy(model).fit(X)
    for other in (of_cut, again):
        assert (class_names_of(other)[0], merged_classes_of(other)) == ({}, {})
    assert (class_names_of(model)[0][1], merged_classes_of(model)) == ("water", {2: 0})
