"""Image time series under clouds: from files to a map, with the gaps that are left."""

from __future__ import annotations

import warnings

import dask.array as da
import numpy as np
import pytest
import xarray
import zarr

import daskclust
from daskclust import open_cube

pytestmark = pytest.mark.usefixtures("few_trees")

DIMS = ("time", "band", "y", "x")


def make_series(seed=0):
    """Two kinds of fields in 6 dates of 2 bands, and clouds over a third of the dates."""
    rng = np.random.default_rng(seed)
    classes = np.zeros((12, 10), int)
    classes[:, 5:] = 1
    season = np.sin(np.linspace(0, 3, 6))[:, None] * [1.0, -1.0]
    series = season[..., None, None] * np.where(classes, 4.0, -4.0)
    series = series + rng.normal(0, 0.3, series.shape)
    clouds = rng.random((6, 12, 10)) < 0.3
    clouds[:, 0, 0] = True
    clouds[:, 0, 1] = [False, *[True] * 5]
    return series, clouds, classes


def expected(series, clouds):
    """Rows of all pixels: dates slowest."""
    gaps = np.where(clouds[:, None], np.nan, series)
    return gaps.transpose(2, 3, 0, 1).reshape(120, 12)


@pytest.mark.parametrize("kind", ["numpy", "dask", "xarray", "zarr", "path", "name", "netcdf"])
def test_a_mask_of_each_date_lies_over_all_its_bands(kind, tmp_path):
    series, clouds, _ = make_series()
    store, mask, dims = series, clouds, {"dims": DIMS}
    if kind == "dask":
        store, mask = da.from_array(series, chunks=(6, 2, 5, 10)), da.from_array(clouds, chunks=4)
    elif kind == "xarray":
        store, dims = xarray.DataArray(series, dims=DIMS), {}
        mask = xarray.DataArray(clouds.transpose(1, 2, 0), dims=("y", "x", "time"))
    elif kind == "zarr":
        store = zarr.array(series, chunks=(6, 2, 6, 5))
        mask = zarr.array(clouds, chunks=(3, 6, 5))
    elif kind != "numpy":
        stored = xarray.Dataset({"cloud": (("time", "y", "x"), clouds)}).transpose("y", "x", "time")
        mask = tmp_path / ("mask.nc" if kind == "netcdf" else "mask.zarr")
        if kind == "name":
            # An image beside it: which of the two is meant must be said.
            stored["shadow"] = ("y", "x"), np.ones((12, 10), bool)
        if kind == "netcdf":
            stored.to_netcdf(mask)
        else:
            stored.to_zarr(mask, zarr_format=2)
        mask = (mask, "cloud") if kind == "name" else mask
    cube = open_cube(store, mask=mask, incomplete="keep", chunks=(12, 10), **dims)
    rows = expected(series, clouds)
    there = ~np.isnan(rows).all(axis=1)
    np.testing.assert_allclose(cube.samples.compute(), rows[there], rtol=1e-6)
    assert cube.n_masked == 1


def test_stored_integers_and_one_band():
    series, clouds, _ = make_series()
    stored = np.round(series[:, 0] * 100).astype(np.int16)
    cube = open_cube(stored, dims=("time", "y", "x"), mask=clouds, incomplete="keep")
    rows = np.where(clouds, np.nan, stored).transpose(1, 2, 0).reshape(120, 6)
    there = ~np.isnan(rows).all(axis=1)
    np.testing.assert_array_equal(cube.samples.compute(), rows[there])


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 1.0])
def test_pixels_with_too_few_values_are_masked(share):
    series, clouds, _ = make_series()
    cube = open_cube(series, dims=DIMS, mask=clouds, incomplete="keep", min_observed=share)
    observed = (~np.isnan(expected(series, clouds))).sum(axis=1)
    enough = observed >= max(1, share * 12)
    np.testing.assert_array_equal(cube.valid.compute().ravel(), enough)
    assert len(cube.samples) == enough.sum()


def test_what_cannot_be_a_mask_is_refused():
    series, clouds, _ = make_series()
    with pytest.raises(ValueError, match="same number of bands for each date"):
        open_cube(series, dims=DIMS, mask=np.zeros((5, 12, 10), bool))
    with pytest.raises(ValueError, match="must be bool"):
        open_cube(series, dims=DIMS, mask=clouds.astype(int))
    named = xarray.DataArray(clouds, dims=("time", "y", "wide"))
    with pytest.raises(ValueError, match="mask must have the dimensions"):
        open_cube(series, dims=DIMS, mask=named)
    place = {"y": np.arange(12.0), "x": np.arange(10.0)}
    here = xarray.DataArray(series, dims=DIMS, coords=place)
    there = xarray.DataArray(clouds, dims=("time", "y", "x"), coords={**place, "y": place["y"] + 5})
    with pytest.raises(ValueError, match="mask lies elsewhere than the cube"):
        open_cube(here, mask=there)
    with pytest.raises(ValueError, match=r"min_observed must be a fraction .*, got 1\.5"):
        open_cube(series, dims=DIMS, min_observed=1.5)
    with pytest.raises(ValueError, match=r"incomplete must be one of 'mask', 'keep', got 'drop'\."):
        open_cube(series, dims=DIMS, incomplete="drop")


@pytest.mark.parametrize(
    "model",
    [
        daskclust.LabelSpreading(20, random_state=0),
        daskclust.SpectralClustering(2, n_prototypes=20, random_state=0),
        daskclust.SemiSupervisedKMeans(2, missing="partial", random_state=0),
        daskclust.PCSKMeans(2, missing="partial", random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_from_a_cloudy_series_to_a_map(model):
    series, clouds, classes = make_series()
    cube = open_cube(series, dims=DIMS, mask=clouds, incomplete="keep", chunks=(6, 5))
    truth = np.full((12, 10), -1)
    truth[4, [1, 8]] = [0, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(cube, cube.rows_of(truth))
    found = np.asarray(cube.to_map(model.labels_))
    there = cube.valid.compute()
    assert (found[~there] == -1).all()
    agree = (found[there] == classes[there]).mean()
    assert max(agree, 1 - agree) > 0.97
