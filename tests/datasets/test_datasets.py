"""Synthetic data: reproducible, independent of chunks, and of the promised difficulty."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from daskclust.datasets import (
    make_gaussian_mixture,
    make_hyperspectral_cube,
    make_sparse_blobs,
    remove_values,
)
from daskclust.datasets._random import row_normals, row_uniforms, seed_of
from daskclust.exceptions import ChunkError
from daskclust.testing.strategies import row_chunks

# Draws


@given(
    start=st.integers(0, 10**12),
    count=st.integers(0, 9),
    width=st.integers(1, 9),
    cut=st.integers(0, 9),
)
def test_draws_belong_to_rows(start, count, width, cut):
    whole = row_uniforms(3, 1, start, count, width)
    cut = min(cut, count)
    parts = [
        row_uniforms(3, 1, start, cut, width),
        row_uniforms(3, 1, start + cut, count - cut, width),
    ]
    assert_array_equal(np.concatenate(parts), whole)
    assert whole.shape == (count, width)


def test_draws_have_their_distribution():
    uniform = row_uniforms(0, 0, 0, 20_000, 5)
    assert uniform.min() > 0
    assert uniform.max() < 1
    assert_allclose(np.histogram(uniform, 10, (0, 1))[0] / uniform.size, 0.1, atol=0.005)
    normal = row_normals(0, 0, 0, 20_000, 5)
    assert_allclose(normal.mean(axis=0), 0, atol=0.03)
    assert_allclose(np.cov(normal.T), np.eye(5), atol=0.04)


def test_seeds():
    assert seed_of(np.int64(4)) == 4
    assert seed_of(np.random.default_rng(0)) == seed_of(np.random.default_rng(0))
    assert seed_of(np.random.RandomState(0)) == seed_of(np.random.RandomState(0))
    assert seed_of(None) != seed_of(None)
    for wrong in (-1, True, "0", 1.5):
        with pytest.raises(ValueError, match="nonnegative integer"):
            seed_of(wrong)


# Point clouds


@pytest.mark.parametrize("make", [make_gaussian_mixture, make_sparse_blobs])
@pytest.mark.parametrize("chunks", [1, 7, 50, (20, 60, 21), -1])
def test_rows_do_not_depend_on_chunks(make, chunks):
    X, y = make(101, random_state=1)
    lazy_X, lazy_y = make(101, random_state=1, chunks=chunks)
    assert lazy_X.chunks[0] == lazy_y.chunks[0]
    assert lazy_X.numblocks[1] == 1
    assert (lazy_X.dtype, lazy_y.dtype) == (X.dtype, y.dtype)
    assert_array_equal(lazy_X.compute(scheduler="sync"), X)
    assert_array_equal(lazy_y.compute(scheduler="sync"), y)


def test_gaussian_mixture_is_the_papers():
    X, y = make_gaussian_mixture(24 * 400, random_state=0)
    assert_array_equal(np.bincount(y), 400)
    centers = np.array([X[y == k].mean(axis=0) for k in range(24)])
    assert centers.min() > -0.3
    assert centers.max() < 10.3
    assert centers.std() == pytest.approx(10 / np.sqrt(12), rel=0.1)
    assert_allclose((X - centers[y]).std(axis=0), 1.0, atol=0.05)
    other, _ = make_gaussian_mixture(24 * 400, random_state=1)
    assert not np.isclose(other, X).any(axis=1).all()


@pytest.mark.parametrize(("informative", "uninformative"), [(5, 5), (3, 7), (4, 0)])
def test_sparse_blobs_differ_in_the_informative_features(informative, uninformative):
    X, y = make_sparse_blobs(3000, informative, uninformative, 3, random_state=2)
    centers = np.array([X[y == k].mean(axis=0) for k in range(3)])
    assert (np.abs(centers[:, :informative]) > 2.8).all()
    assert (np.abs(centers[:, informative:]) < 0.2).all()
    assert adjusted_rand_score(y, KMeans(3, n_init=5, random_state=0).fit_predict(X)) > 0.95


def test_sparse_blobs_with_more_clusters_than_sign_patterns_or_very_many_features():
    assert make_sparse_blobs(20, 2, 1, 7, random_state=0)[0].shape == (20, 3)
    assert make_sparse_blobs(20, 70, 1, 7, random_state=0)[0].shape == (20, 71)


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (make_gaussian_mixture, {"n_samples": 0}),
        (make_gaussian_mixture, {"n_samples": 5, "side": -1.0}),
        (make_gaussian_mixture, {"n_samples": 5, "n_components": 2.5}),
        (make_sparse_blobs, {"n_informative": 0}),
        (make_sparse_blobs, {"low": 6.0, "high": 3.0}),
        (make_sparse_blobs, {"cluster_std": np.nan}),
    ],
)
def test_point_clouds_refuse(make, options):
    with pytest.raises(ValueError, match="must be"):
        make(**options)


# Missing values


@pytest.mark.parametrize("mechanism", ["mcar", "mar", "nmar"])
@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_fraction_removed(mechanism, fraction):
    X = np.random.default_rng(0).normal(size=(2000, 8))
    before = X.copy()
    out = remove_values(X, mechanism, fraction=fraction, random_state=0)
    assert_array_equal(X, before)
    gone = np.isnan(out)
    assert_array_equal(out[~gone], X[~gone])
    considered = gone[:, 1:] if mechanism == "mar" else gone
    assert considered.mean() == pytest.approx(fraction, abs=0.02)
    assert_array_equal(out, remove_values(X, mechanism, fraction=fraction, random_state=0))


@given(lengths=row_chunks(30), width=st.integers(1, 6), columns=st.integers(1, 6))
def test_values_of_dask_arrays_are_removed_lazily_whatever_the_chunks(lengths, width, columns):
    X = np.random.default_rng(0).normal(size=(30, width)).astype(np.float32)
    lazy = remove_values(da.from_array(X, chunks=(lengths, columns)), random_state=0)
    assert isinstance(lazy, da.Array)
    assert lazy.chunks == (lengths, (width,))
    assert lazy.dtype == np.float32
    assert_array_equal(lazy.compute(scheduler="sync"), remove_values(X, random_state=0))


def test_values_of_dask_arrays_of_unknown_length_are_not_removed():
    X = da.ones((20, 3), chunks=10)
    with pytest.raises(ChunkError, match=r"known length.*compute_chunk_sizes"):
        remove_values(X[X[:, 0] > 0])


def test_mechanisms_depend_on_what_they_should():
    X = np.random.default_rng(0).normal(size=(4000, 3))
    mar = np.isnan(remove_values(X, "mar", fraction=0.3, random_state=0))
    assert not mar[:, 0].any()
    high = X[:, 0] > np.median(X[:, 0])
    assert mar[high, 1].mean() > 3 * mar[~high, 1].mean()
    nmar = np.isnan(remove_values(X, "nmar", fraction=0.3, random_state=0))
    for j in range(3):
        assert X[nmar[:, j], j].mean() > X[~nmar[:, j], j].mean() + 0.5
    mcar = np.isnan(remove_values(X, "mcar", fraction=0.3, random_state=0))
    assert abs(X[mcar[:, 1], 1].mean() - X[~mcar[:, 1], 1].mean()) < 0.1


@pytest.mark.parametrize("side", [2, 5, 8])
def test_quadrants(side):
    X = np.ones((40, side * side), dtype=np.float32)
    out = remove_values(X, "quadrants", fraction=0.25, random_state=0)
    assert out.dtype == np.float32
    images = np.isnan(out).reshape(40, side, side)
    hit = images.any(axis=(1, 2))
    assert hit.sum() == 10
    for image in images[hit]:
        rows, cols = image.any(axis=1), image.any(axis=0)
        assert_array_equal(image, np.outer(rows, cols))
        half = side // 2
        assert rows.sum() in (half, side - half)
        assert rows[0] != rows[-1]


def test_already_missing_values_stay():
    X = np.random.default_rng(0).normal(size=(50, 4))
    X[::3, 2] = np.nan
    out = remove_values(X, "nmar", fraction=0.2, random_state=0)
    assert np.isnan(out[::3, 2]).all()
    assert not np.isnan(out).all(axis=0).any()
    assert_array_equal(remove_values([[0, 1], [2, 3]], fraction=0.0), [[0, 1], [2, 3]])


@pytest.mark.parametrize(
    ("X", "mechanism", "fraction", "message"),
    [
        (np.zeros((3, 4)), "other", 0.2, "mechanism must be mcar"),
        (np.zeros((3, 4)), "mcar", 1.2, "between 0 and 1"),
        (np.zeros(3), "mcar", 0.2, "must have 2 dimensions"),
        (np.zeros((3, 5)), "quadrants", 0.2, "square images"),
        (np.full((3, 5), np.nan), "mar", 0.2, "complete feature first"),
    ],
)
def test_remove_values_refuses(X, mechanism, fraction, message):
    with pytest.raises(ValueError, match=message):
        remove_values(X, mechanism, fraction=fraction)


# Hyperspectral scene

SMALL = {"shape": (37, 53), "n_bands": 21, "n_classes": 4, "random_state": 5}


@pytest.fixture(scope="module")
def scene():
    return make_hyperspectral_cube(**SMALL)


@pytest.mark.parametrize("chunks", [(1, 53), (37, 1), (7, 13), (16, 16), (500, 500)])
def test_scene_does_not_depend_on_chunks(scene, chunks):
    other = make_hyperspectral_cube(**SMALL, chunks=chunks)
    assert_array_equal(other.cube, scene.cube)
    assert_array_equal(other.truth, scene.truth)


def test_scene_in_zarr_equals_scene_in_memory(scene, tmp_path):
    group = make_hyperspectral_cube(tmp_path / "a" / "scene.zarr", **SMALL, chunks=(10, 16))
    assert group.metadata.zarr_format == 3
    assert_array_equal(group["cube"][:], scene.cube)
    assert_array_equal(group["truth"][:], scene.truth)
    assert_array_equal(group["wavelength"][:], scene.wavelengths)
    assert_array_equal(group["informative"][:], scene.informative)
    assert group["cube"].chunks == (10, 16, 21)
    assert group["cube"].metadata.dimension_names == ("y", "x", "band")
    assert group["truth"].dtype == np.int16
    assert group["truth"].attrs["flag_meanings"] == "class_0 class_1 class_2 class_3"
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["scene.zarr"]


def test_scene_is_what_it_says(scene):
    missing = scene.truth == -1
    assert missing.any()
    assert_array_equal((scene.cube == scene.nodata).all(axis=2), missing)
    assert_array_equal((scene.cube == scene.nodata).any(axis=2), missing)
    assert set(np.unique(scene.truth)) == {-1, 0, 1, 2, 3}
    assert scene.cube.dtype == np.float32
    assert scene.informative.sum() == 7
    means = np.array([scene.cube[scene.truth == k].mean(axis=0) for k in range(4)])
    spread = means.std(axis=0)
    assert spread[scene.informative].mean() > 2 * spread[~scene.informative].mean()


def test_nodata_fraction():
    for fraction in (0.0, 0.03, 0.2):
        scene = make_hyperspectral_cube(
            shape=(150, 120), n_bands=1, nodata_fraction=fraction, random_state=0
        )
        assert (scene.truth < 0).mean() == pytest.approx(fraction, abs=0.2 * fraction)


def test_scene_without_noise_is_its_spectra():
    options = {**SMALL, "noise": 0, "uninformative_noise": 0, "illumination": 0, "mixing": 0}
    scene = make_hyperspectral_cube(**options, contrast=0.3, nodata_fraction=0)
    spectra = np.array([scene.cube[scene.truth == k][0] for k in range(4)])
    assert_array_equal(spectra[scene.truth], scene.cube)
    assert_array_equal(np.ptp(spectra, axis=0)[~scene.informative], 0)
    distances = np.linalg.norm(spectra[:, None] - spectra[None], axis=2)
    assert_allclose(distances[0, 1:], 0.3, rtol=1e-5)
    assert distances[1, 2] == pytest.approx(0.12, rel=1e-5)  # twins


def test_integer_scene(tmp_path):
    options = {**SMALL, "dtype": "int16"}
    scene = make_hyperspectral_cube(**options)
    reference = make_hyperspectral_cube(**{**SMALL, "dtype": "float64"})
    valid = scene.truth >= 0
    assert scene.cube.dtype == np.int16
    assert np.abs(scene.cube[valid] - reference.cube[valid] * 1e4).max() <= 0.5
    group = make_hyperspectral_cube(tmp_path / "i.zarr", **options)
    assert group["cube"].attrs["_FillValue"] == -9999
    assert group["cube"].attrs["scale_factor"] == 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_difficulty(seed):
    """Plain k-means loses clusters to noise; the informative bands alone do clearly better."""
    scene = make_hyperspectral_cube(random_state=seed)
    valid = scene.truth >= 0
    X, y = scene.cube[valid], scene.truth[valid]
    plain = KMeans(6, n_init=1, random_state=0).fit_predict(X)
    informed = KMeans(6, n_init=3, random_state=0).fit_predict(X[:, scene.informative])
    assert 0.4 < adjusted_rand_score(y, plain) < 0.85
    assert adjusted_rand_score(y, informed) > adjusted_rand_score(y, plain) + 0.1


def test_existing_store_is_kept(tmp_path):
    path = tmp_path / "s.zarr"
    make_hyperspectral_cube(path, shape=(4, 4), n_bands=2, random_state=0)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        make_hyperspectral_cube(path, shape=(5, 4), n_bands=2, random_state=0)
    assert zarr.open_group(path, mode="r")["cube"].shape == (4, 4, 2)
    make_hyperspectral_cube(path, shape=(5, 4), n_bands=2, random_state=0, overwrite=True)
    assert zarr.open_group(path, mode="r")["cube"].shape == (5, 4, 2)
    assert [entry.name for entry in tmp_path.iterdir()] == ["s.zarr"]


@pytest.mark.parametrize(
    "options",
    [
        {"shape": (0, 4)},
        {"shape": 4},
        {"n_bands": 3, "n_informative": 4},
        {"dtype": "uint16"},
        {"noise": -1.0},
        {"nodata_fraction": 1.0},
        {"dtype": "int16", "nodata": -99999.0},
        {"dtype": "int16", "nodata": np.nan},
        {"n_classes": 0},
    ],
)
def test_scene_refuses(options):
    with pytest.raises(ValueError, match="must be"):
        make_hyperspectral_cube(**options)


def test_zip_target_is_refused(tmp_path):
    with pytest.raises(ValueError, match="zip it afterwards"):
        make_hyperspectral_cube(tmp_path / "s.zarr.zip", shape=(4, 4), n_bands=2)
