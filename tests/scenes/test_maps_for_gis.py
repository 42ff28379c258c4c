"""Maps as GIS see them: GDAL's programs, rasterio, rioxarray and xarray open what is written."""

from __future__ import annotations

import json
import shutil
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pytest
import zarr
from numpy.testing import assert_array_equal

rasterio = pytest.importorskip("rasterio", reason="needs the extra `raster`")
xarray = pytest.importorskip("xarray", reason="needs the extra `raster`")
pytest.importorskip("rioxarray", reason="needs the extra `raster`")

from daskclust import Cube, open_cube  # noqa: E402
from daskclust.exceptions import DaskclustWarning  # noqa: E402
from daskclust.scenes import area_table, open_label_map  # noqa: E402

SHAPE = 40, 50
NAMES = ["wheat", "sugar beet"]


def has_zarr() -> bool:
    """Whether GDAL's programs are there, and read Zarr."""
    if shutil.which("gdalinfo") is None or shutil.which("gdal_translate") is None:
        return False
    done = subprocess.run(["gdalinfo", "--formats"], capture_output=True, text=True, check=False)
    return " Zarr " in done.stdout


programs = pytest.mark.skipif(
    not has_zarr(), reason="needs the programs gdalinfo and gdal_translate, with the driver Zarr"
)


def gdal(*arguments: object) -> str:
    done = subprocess.run(list(map(str, arguments)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "ERROR" not in done.stderr
    return done.stdout


def values() -> np.ndarray:
    found = np.random.default_rng(0).integers(0, 3000, (3, *SHAPE)).astype("int16")
    found[:, :5, :5] = -9999
    return found


def geotiff(folder: Path) -> Path:
    options = {
        "height": SHAPE[0],
        "width": SHAPE[1],
        "count": 3,
        "dtype": "int16",
        "crs": "EPSG:32632",
        "transform": rasterio.Affine(30, 0, 600_000, 0, -30, 5_200_000),
        "nodata": -9999,
    }
    with rasterio.open(folder / "scene.tif", "w", driver="GTiff", **options) as file:
        file.write(values())
    return folder / "scene.tif"


def geozarr(folder: Path) -> Path:
    """Without coordinates: the conventions `proj:` and `spatial:` only."""
    group = zarr.open_group(folder / "scene.zarr", mode="w")
    array = group.create_array(
        "scene",
        data=np.moveaxis(values(), 0, 2),
        chunks=(16, 32, 3),
        dimension_names=("y", "x", "band"),
    )
    array.attrs.update({"_FillValue": -9999})
    group.attrs.update(
        {"proj:code": "EPSG:32632", "spatial:transform": [30, 0, 600_000, 0, -30, 5_200_000]}
    )
    return folder / "scene.zarr"


def degrees(folder: Path) -> Path:
    """In latitudes and longitudes, as climate data are."""
    data = xarray.DataArray(
        values(),
        dims=("band", "lat", "lon"),
        coords={"lat": 50 - 0.01 * np.arange(SHAPE[0]), "lon": 0.01 * np.arange(SHAPE[1])},
        name="scene",
        attrs={"_FillValue": -9999},
    )
    data = data.rio.write_crs("EPSG:4326")
    data.to_netcdf(folder / "scene.nc", engine="h5netcdf")
    return folder / "scene.nc"


@pytest.fixture(params=[geotiff, geozarr, degrees], ids=["geotiff", "geozarr", "degrees"])
def cube(request: pytest.FixtureRequest, tmp_path: Path) -> Cube:
    return open_cube(request.param(tmp_path), chunks=(16, 32))


def wanted(cube: Cube) -> tuple[int, tuple[float, float], tuple[float, float]]:
    """Code of the coordinate system, origin and steps."""
    if "lat" in cube.dimension_names:
        return 4326, (-0.005, 50.005), (0.01, -0.01)
    return 32632, (600_000, 5_200_000), (30, -30)


@programs
def test_gdal_reads_a_label_map_in_zarr(cube: Cube, tmp_path: Path) -> None:
    labels = np.arange(cube.n_valid) % 3
    code, origin, steps = wanted(cube)
    cube.write_labels(labels, tmp_path / "m.zarr", class_names=NAMES, n_clusters=3)
    said = json.loads(gdal("gdalinfo", "-json", tmp_path / "m.zarr"))
    left, dx, _, top, _, dy = said["geoTransform"]
    np.testing.assert_allclose([left, top, dx, dy], [*origin, *steps], rtol=1e-9)
    assert said["size"] == [SHAPE[1], SHAPE[0]]
    assert f'ID["EPSG",{code}]]' in said["coordinateSystem"]["wkt"]
    assert said["bands"][0]["noDataValue"] == -1
    facts = said["metadata"][""]
    assert facts["flag_meanings"] == "wheat sugar_beet cluster_2"
    assert facts["flag_colors"] == "#0072b2 #e69f00 #009e73"
    gdal("gdal_translate", "-q", tmp_path / "m.zarr", tmp_path / "m.tif")
    with rasterio.open(tmp_path / "m.tif") as file:
        assert file.crs.to_epsg() == code
        assert file.nodata == -1
        assert_array_equal(file.read(1), cube.to_map(labels).compute())


def test_xarray_and_rioxarray_read_maps_without_a_warning(cube: Cube, tmp_path: Path) -> None:
    labels = np.arange(cube.n_valid) % 3
    code, origin, _ = wanted(cube)
    cube.write_labels(labels, tmp_path / "m.zarr")
    cube.write_map(np.random.default_rng(1).random((cube.n_valid, 2)), tmp_path / "p.zarr")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="Use `@` matmul")
        opened = xarray.open_zarr(tmp_path / "m.zarr", decode_coords="all")
        other = xarray.open_dataset(tmp_path / "p.zarr", engine="zarr", decode_coords="all")
    assert opened.labels.dims == cube.dimension_names
    assert int(opened.labels.isnull().sum()) == 25
    assert int(other["values"].isnull().sum()) == 50
    assert set(cube.dimension_names) <= set(opened.coords)
    if "proj:code" not in cube.georeference.group_attributes:
        # GeoZarr's conventions have no grid mapping.
        assert opened.rio.crs.to_epsg() == code
        assert other.rio.crs.to_epsg() == code
    steps = opened.labels.rio.set_spatial_dims(*cube.dimension_names[::-1]).rio.transform()
    np.testing.assert_allclose((steps.c, steps.f), origin)


def test_a_map_lies_where_its_cube_does(cube: Cube, tmp_path: Path) -> None:
    labels = np.arange(cube.n_valid) % 3
    for name in ("m.zarr", "m.tif"):
        cube.write_labels(labels, tmp_path / name, class_names=NAMES)
        rows, found = cube.rows_of(tmp_path / name)
        assert_array_equal(rows, np.arange(cube.n_valid))
        assert_array_equal(found, labels)
        assert cube.open_map("map", tmp_path / name).colors[1] == "#e69f00"
    one, two = (area_table(tmp_path / name) for name in ("m.zarr", "m.tif"))
    for mine, theirs in zip(one, two, strict=True):
        assert mine.pixels == theirs.pixels
        assert mine.square_meters == pytest.approx(theirs.square_meters, rel=1e-9)


def test_maps_of_version_3_are_read_as_before(cube: Cube, tmp_path: Path) -> None:
    labels = np.arange(cube.n_valid) % 3
    group = zarr.open_group(tmp_path / "old.zarr", mode="w", zarr_format=3)
    group.create_array(
        "labels",
        data=cube.to_map(labels).compute(),
        dimension_names=cube.dimension_names,
        attributes={"_FillValue": -1, "flag_values": [0, 1, 2], "flag_meanings": "a b c"},
    )
    group.attrs["daskclust_written"] = {"kind": "label map", "members": ["labels"]}
    assert_array_equal(cube.rows_of(tmp_path / "old.zarr")[1], labels)
    assert open_label_map(tmp_path / "old.zarr").names == {0: "a", 1: "b", 2: "c"}
    cube.write_labels(labels, tmp_path / "old.zarr", overwrite=True)
    cube.write_labels(labels, tmp_path / "old.zarr", overwrite=True)
    assert sorted(p.name for p in tmp_path.glob("old.zarr/.z*")) == [
        ".zattrs",
        ".zgroup",
        ".zmetadata",
    ]


def test_labels_that_xarray_wrote_in_version_2(tmp_path: Path) -> None:
    scene = open_cube(geotiff(tmp_path), chunks=(16, 32))
    image = np.full(SHAPE, 7, "int16")
    image[20:] = 99
    data = xarray.DataArray(image, dims=("y", "x"), name="truth")
    data.encoding["_FillValue"] = 99
    data.to_dataset().to_zarr(tmp_path / "truth.zarr", zarr_format=2, consolidated=True)
    with pytest.warns(DaskclustWarning, match="25 of 1000 labeled pixels are left out"):
        rows, found = scene.rows_of(tmp_path / "truth.zarr")
    assert set(found.tolist()) == {7}
    assert len(rows) == 20 * 50 - 25
