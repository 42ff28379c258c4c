"""The accessor of xarray's objects."""

from __future__ import annotations

from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest
from numpy.testing import assert_array_equal

xarray = pytest.importorskip("xarray", reason="needs the extra `xarray`")
pytest.importorskip("rioxarray", reason="needs the extra `raster`")

import daskclust.xarray  # noqa: E402, F401
from daskclust import KMeans, LabelSpreading, SemiSupervisedKMeans, open_cube  # noqa: E402

pytestmark = pytest.mark.usefixtures("few_trees")


@pytest.fixture
def scene() -> xarray.DataArray:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(4, 30, 40)) + 8 * (np.arange(40) // 14)
    values[:, :3, :3] = np.nan
    found = xarray.DataArray(
        da.from_array(values, chunks=(4, 10, 40)),
        dims=("band", "y", "x"),
        coords={"y": 5.2e6 - 30.0 * np.arange(30), "x": 6e5 + 30.0 * np.arange(40)},
        name="scene",
    )
    return found.rio.write_crs("EPSG:32632")


def test_fit_predict_is_georeferenced_lazy_and_right(scene: xarray.DataArray) -> None:
    model = KMeans(3, random_state=0)
    found = scene.daskclust.fit_predict(model)
    assert dask.is_dask_collection(found.data)
    assert found.rio.crs.to_epsg() == 32632
    assert_array_equal(found.x, scene.x)
    cube = open_cube(scene)
    wanted = cube.to_map(KMeans(3, random_state=0).fit(cube).labels_)
    assert_array_equal(found.values, wanted.compute())
    assert (found.values[:3, :3] == -1).all()
    assert_array_equal(scene.daskclust.predict(model).values, found.values)
    # Another order of the axes, and bands as variables, are the same scene.
    turned = scene.transpose("y", "x", "band").daskclust.fit_predict(KMeans(3, random_state=0))
    assert_array_equal(turned.values, found.values)
    bands = xarray.Dataset({f"B{k}": scene.isel(band=k) for k in range(4)})
    assert_array_equal(bands.daskclust.predict(model).values, found.values)


def test_options_are_those_of_open_cube(scene: xarray.DataArray) -> None:
    model = KMeans(3, random_state=0)
    scene.daskclust.fit_predict(model, scale="standard", bad_bands=[1])
    assert model.n_features_in_ == 3


def test_partial_labels_that_are_text(scene: xarray.DataArray, tmp_path: Path) -> None:
    image = np.full((30, 40), -1)
    image[10, 5], image[10, 20], image[10, 35] = 2, 0, 1
    as_image = scene.isel(band=0, drop=True).copy(data=image)
    model = SemiSupervisedKMeans(3, random_state=0)
    found = scene.daskclust.fit_predict(model, as_image)
    assert found.values[10, [5, 20, 35]].tolist() == [2, 0, 1]
    assert found.attrs["flag_meanings"] == "class_0 class_1 class_2"
    names = np.array(["maize", "water", "wheat"], dtype=object)
    stated = as_image.assign_attrs(flag_values=[0, 1, 2], flag_meanings="maize water wheat")
    for estimator in (SemiSupervisedKMeans(3, random_state=0), LabelSpreading(random_state=0)):
        codes_named = scene.daskclust.fit_predict(estimator, stated)
        assert codes_named.attrs["flag_meanings"] == "maize water wheat"
        assert codes_named.values[10, [5, 20, 35]].tolist() == [2, 0, 1]
    rows, codes = open_cube(scene).rows_of(as_image)
    named = SemiSupervisedKMeans(3, random_state=0)
    text = scene.daskclust.fit_predict(named, (rows, names[codes]))
    assert text.attrs["flag_meanings"] == "maize water wheat"
    assert_array_equal(text.values, found.values)
    # What is written has class names and colors for whoever reads it.
    text.rio.to_raster(tmp_path / "map.tif", driver="COG")
    assert open_cube(scene).open_map("map", tmp_path / "map.tif").values.shape == (30, 40)
