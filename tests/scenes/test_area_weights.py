"""Weights of pixels: areas by latitude, and images of weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest

import daskclust
from daskclust.app import cli
from daskclust.scenes._georeference import PixelGrid
from daskclust.scenes.areas import line_weights

rasterio = pytest.importorskip("rasterio", reason="needs the extra `raster`")
xarray = pytest.importorskip("xarray", reason="needs the extra `raster`")
pytest.importorskip("rioxarray", reason="needs the extra `raster`")

NORTH = (30.0, 0.0, 0.0, 0.0, -30.0, 90.0)


def scene(chunks: Any = None, crs: Any = "EPSG:4326", transform: Any = NORTH) -> Any:
    """Return 3 x 4 pixels from the pole to the equator; one pixel is missing."""
    values = np.arange(24.0).reshape(2, 3, 4) ** 2
    values[:, 1, 2] = np.nan
    image = xarray.DataArray(values, dims=("band", "y", "x"))
    if crs is not None:
        image = image.rio.write_crs(crs).rio.write_transform(rasterio.Affine(*transform))
    return daskclust.open_cube(image, **({} if chunks is None else {"chunks": chunks}))


def test_weights_by_hand() -> None:
    # sin(90) - sin(60), sin(60) - sin(30), sin(30) - sin(0); the mean is 1 / 3.
    third = np.sqrt(3) / 2
    expected = 3 * np.array([1 - third, third - 0.5, 0.5])
    np.testing.assert_allclose(line_weights(PixelGrid((3, 4), NORTH, "EPSG:4326")), expected)
    by_row = scene().row_weights("area").compute()
    np.testing.assert_allclose(by_row, np.repeat(expected, [4, 3, 4]))


def test_south_first_radians_and_beyond_the_pole() -> None:
    south = (30.0, 0.0, 0.0, 0.0, 30.0, -90.0)
    expected = line_weights(PixelGrid((3, 4), NORTH, "EPSG:4326"))
    np.testing.assert_allclose(line_weights(PixelGrid((3, 4), south, "EPSG:4326")), expected)
    # Grads: 100 are 90 degrees.
    grads = (1.0, 0.0, 0.0, 0.0, -100 / 3, 100.0)
    np.testing.assert_allclose(line_weights(PixelGrid((3, 4), grads, "EPSG:4807")), expected)
    beyond = (30.0, 0.0, 0.0, 0.0, -30.0, 120.0)
    np.testing.assert_allclose(
        line_weights(PixelGrid((4, 4), beyond, "EPSG:4326")), [0.0, *expected * 4 / 3]
    )
    nowhere = (30.0, 0.0, 0.0, 0.0, -30.0, 300.0)
    with pytest.raises(ValueError, match="latitudes of the cube must be between -90 and 90"):
        line_weights(PixelGrid((2, 4), nowhere, "EPSG:4326"))


def test_projected_pixels_have_equal_weights() -> None:
    utm = (10.0, 0.0, 5e5, 0.0, -10.0, 5e6)
    assert scene(crs="EPSG:32633", transform=utm).row_weights("area") is None


@pytest.mark.parametrize("chunks", [(1, 3), (2, 2), (3, 1)])
def test_weights_do_not_depend_on_blocks(chunks: Any) -> None:
    whole, cube = scene(), scene(chunks)
    expected = daskclust.KMeans(2, random_state=0).fit(whole, sample_weight="area")
    model = daskclust.KMeans(2, random_state=0).fit(cube, sample_weight="area")
    np.testing.assert_allclose(
        np.sort(model.cluster_centers_, axis=0), np.sort(expected.cluster_centers_, axis=0)
    )
    assert model.score(cube, sample_weight="area") == pytest.approx(-model.inertia_)
    image = cube.to_map(cube.row_weights("area")).compute()
    lines = line_weights(whole.pixel_grid)
    np.testing.assert_allclose(image[:, 0], lines)
    assert image[1, 2] == -1


@pytest.mark.parametrize(
    "make",
    [
        lambda: daskclust.KMeans(2, random_state=0),
        lambda: daskclust.GaussianMixture(2, random_state=0),
        lambda: daskclust.SparseKMeans(2, random_state=0),
        lambda: daskclust.SemiSupervisedKMeans(2, random_state=0),
        lambda: daskclust.preprocessing.StandardScaler(),
    ],
)
def test_area_equals_the_same_weights_by_row(make: Any) -> None:
    cube = scene()
    rows = np.repeat(line_weights(cube.pixel_grid), [4, 3, 4])
    expected, model = make().fit(cube, sample_weight=rows), make().fit(cube, sample_weight="area")
    for name in ("cluster_centers_", "means_", "mean_", "weights_"):
        if hasattr(expected, name):
            np.testing.assert_array_equal(getattr(model, name), getattr(expected, name))


@pytest.mark.parametrize("kind", ["numpy", "dask", "xarray"])
def test_images_of_weights(kind: str) -> None:
    cube = scene((2, 2))
    image: Any = np.arange(12.0).reshape(3, 4)
    image[1, 2] = np.nan  # The pixel is masked.
    expected = cube.values_of_rows(da.asarray(image)).compute()
    if kind == "dask":
        image = da.from_array(image, chunks=(1, 4))
    elif kind == "xarray":
        image = xarray.DataArray(image, dims=("y", "x"))
    np.testing.assert_array_equal(cube.row_weights(image).compute(), expected)
    by_row = daskclust.KMeans(2, random_state=0).fit(cube, sample_weight=expected)
    model = daskclust.KMeans(2, random_state=0).fit(cube, sample_weight=image)
    np.testing.assert_array_equal(model.cluster_centers_, by_row.cluster_centers_)


def test_declared_nodata_of_an_image_is_an_error_at_a_valid_pixel() -> None:
    image = np.ones((3, 4), np.int64)
    image[0, 0] = 255
    weights = xarray.DataArray(image, dims=("y", "x"), attrs={"_FillValue": 255})
    with pytest.raises(ValueError, match="weight of row 0 is NaN"):
        daskclust.KMeans(2).fit(scene(), sample_weight=weights)


def test_bad_weights() -> None:
    turned = (30.0, 1.0, 0.0, 1.0, -30.0, 90.0)
    for cube, weight, message in [
        (scene(crs=None), "area", "require a cube with a coordinate system"),
        (scene(transform=turned), "area", "lines along x, got a rotated grid"),
        (scene(crs="EPSG:4978"), "area", "geographic or projected coordinate system"),
        (scene(crs="EPSG:3857", transform=(9e5, 0, 0, 0, -9e5, 9e6)), "area", "equal area, got"),
        (scene(), "volume", 'must be "area", an image .y, x. or one weight per row'),
        (scene(), np.ones((2, 4)), r"sample_weight.*\(2, 4\)"),
        (scene().samples, "area", "got the string 'area'. If X is a cube"),
        (np.ones((3, 2)), "area", "got the string 'area'. If X is a cube"),
    ]:
        with pytest.raises(ValueError, match=message):
            daskclust.KMeans(2).fit(cube, sample_weight=weight)


def test_weights_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = np.random.default_rng(0).random((2, 60, 20), np.float32)
    image = xarray.DataArray(values, dims=("band", "y", "x"))
    image = image.rio.write_transform(rasterio.Affine(1, 0, 0, 0, -1.5, 90))
    image.rio.to_raster(tmp_path / "nowhere.tif")
    image.rio.write_crs("EPSG:4326").rio.to_raster(tmp_path / "degrees.tif")
    path = str(tmp_path / "degrees.tif")
    fit = ["--n-clusters", "3", "--weights", "area", "--local", "1"]
    model = str(tmp_path / "model.zarr")
    assert cli.main(["fit", path, *fit, "--model", model, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["configuration"]["weights"] == "area"
    cube = daskclust.open_cube(path)
    expected = daskclust.KMeans(3, random_state=0).fit(cube, sample_weight="area")
    saved = daskclust.load(model)
    np.testing.assert_allclose(saved.cluster_centers_, expected.cluster_centers_)
    place = ["--output", str(tmp_path / "map.tif")]
    assert cli.main(["fit", str(tmp_path / "nowhere.tif"), *fit, *place]) != 0
    assert "require a cube with a coordinate system" in capsys.readouterr().err
    (tmp_path / "t.csv").write_text("a,b\n1,2\n3,4\n")
    assert cli.main(["fit", str(tmp_path / "t.csv"), *fit, *place]) == 2
    assert "is a table, and --weights is for pixels" in capsys.readouterr().err
