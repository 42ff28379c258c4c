"""Scenes that were cut, thinned out or flipped: coordinates win over what attributes state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from numpy.testing import assert_allclose, assert_array_equal

rasterio = pytest.importorskip("rasterio", reason="needs the extra `raster`")
rioxarray = pytest.importorskip("rioxarray", reason="needs the extra `raster`")
xarray = pytest.importorskip("xarray", reason="needs the extra `raster`")

from rasterio.transform import Affine, from_origin  # noqa: E402

import daskclust  # noqa: E402
from daskclust.exceptions import DaskclustWarning  # noqa: E402
from daskclust.scenes import open_label_map  # noqa: E402

HERE = from_origin(500_000, 5_100_000, 10, 10)
TURNED = Affine.translation(500_000, 5_100_000) * Affine.rotation(30) * Affine.scale(10, -10)
DEGREES = from_origin(120.3, 47.1, 9e-5, 9e-5)
CUT = {"x": slice(5, None), "y": slice(3, None)}
BACK = slice(None, None, -1)
TWO_WAYS = "states its position in two ways"

pytestmark = pytest.mark.filterwarnings("ignore:Use `@` matmul:PendingDeprecationWarning")


def scene(
    folder: Path, transform: Any = HERE, crs: str = "EPSG:32633", shape: tuple[int, int] = (12, 12)
) -> Any:
    """Return a scene of two bands as rioxarray opens it."""
    values = np.random.default_rng(0).normal(size=(2, *shape)).astype("float32")
    profile = {"count": 2, "height": shape[0], "width": shape[1], "dtype": "float32", "crs": crs}
    with rasterio.open(
        folder / "full.tif", "w", driver="GTiff", transform=transform, **profile
    ) as file:
        file.write(values)
    return rioxarray.open_rasterio(folder / "full.tif", masked=False)


def map_of(cube: Any, folder: Path) -> tuple[Any, Any]:
    """Return transform and values of a map of row numbers, as a program for maps reads it."""
    labels = np.arange(cube.n_valid)
    cube.write_labels(labels, folder / "map.tif", n_clusters=cube.n_valid, overwrite=True)
    with rasterio.open(folder / "map.tif") as file:
        assert file.crs == cube.pixel_grid.crs
        return file.transform, file.read(1)


def check_place(cube: Any, expected: Any, folder: Path, atol: float = 1e-6) -> None:
    """A map lies at `expected` as GeoTIFF, in Zarr and as xarray, and fits the cube."""
    transform, values = map_of(cube, folder)
    assert_allclose(transform, expected, rtol=0, atol=atol)
    labels = np.arange(cube.n_valid)
    assert_array_equal(values, cube.to_map(labels).compute())
    store = folder / "map.zarr"
    written = cube.write_labels(labels, store)
    assert_allclose(open_label_map(store).grid.transform, expected[:6], rtol=0, atol=atol)
    for name, step, first in zip(
        cube.dimension_names, (expected.e, expected.a), (expected.f, expected.c), strict=True
    ):
        if name in written.array_keys():
            # GDAL places it by these.
            centers = first + step * (np.arange(written[name].shape[0]) + 0.5)
            assert_allclose(written[name][:], centers, rtol=0, atol=atol)
    image = cube.to_xarray(labels)
    assert_allclose(image.rio.transform(), expected, rtol=0, atol=atol)
    for again in (store, image, folder / "map.tif"):
        assert_array_equal(cube.rows_of(again)[1], labels)


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        (lambda a: a.isel(**CUT), from_origin(500_050, 5_099_970, 10, 10)),
        (
            lambda a: a.isel(x=slice(None, None, 2), y=slice(None, None, 2)),
            Affine(20, 0, 499_995, 0, -20, 5_100_005),
        ),
        (lambda a: a.coarsen(x=2, y=2).mean(), from_origin(500_000, 5_100_000, 20, 20)),
        (lambda a: a.isel(x=BACK, y=BACK), Affine(-10, 0, 500_120, 0, 10, 5_099_880)),
        (
            lambda a: a.where((a.x > 500_030) & (a.y < 5_099_950), drop=True),
            from_origin(500_030, 5_099_950, 10, 10),
        ),
        (
            lambda a: a.isel(**CUT).transpose("x", "y", "band"),
            from_origin(500_050, 5_099_970, 10, 10),
        ),
        (lambda a: a.isel(**CUT).chunk(x=4, y=4), from_origin(500_050, 5_099_970, 10, 10)),
        (lambda a: a.isel(y=[4], x=[7]), from_origin(500_070, 5_099_960, 10, 10)),
        (lambda a: a.isel(**CUT).drop_vars("x"), from_origin(500_000, 5_099_970, 10, 10)),
        (lambda a: a.assign_coords(x=a.x + 5), from_origin(500_005, 5_100_000, 10, 10)),
        (
            lambda a: a.isel(**CUT).to_dataset("band").rename({1: "a", 2: "b"}),
            from_origin(500_050, 5_099_970, 10, 10),
        ),
    ],
    ids=[
        "cut",
        "step",
        "coarsen",
        "flip-both",
        "where",
        "transpose",
        "dask",
        "pixel",
        "no-x",
        "half",
        "variables",
    ],
)
def test_coordinates_win(select: Any, expected: Affine, tmp_path: Path) -> None:
    with pytest.warns(DaskclustWarning, match=TWO_WAYS) as caught:
        cube = daskclust.open_cube(select(scene(tmp_path)))
    (told,) = [str(one.message) for one in caught if one.category is DaskclustWarning]
    assert "pixels of 10 x -10 from (500000, 5100000) by its GeoTransform" in told
    check_place(cube, expected, tmp_path)


@pytest.mark.parametrize(
    "select",
    [
        lambda a: a,
        lambda a: xarray.concat([a.isel(x=slice(0, 3)), a.isel(x=slice(3, 7))], "x"),
        lambda a: a.drop_vars(["x", "y"]),
    ],
    ids=["whole", "tiles", "no-coordinates"],
)
def test_what_agrees_is_used_without_a_warning(select: Any, tmp_path: Path) -> None:
    check_place(daskclust.open_cube(select(scene(tmp_path))), HERE, tmp_path)


def test_a_renewed_transform_agrees(tmp_path: Path) -> None:
    a = scene(tmp_path).isel(**CUT)
    cube = daskclust.open_cube(a.rio.write_transform(a.rio.transform(recalc=True)))
    check_place(cube, from_origin(500_050, 5_099_970, 10, 10), tmp_path)


def test_counted_pixels_and_kilometers_are_understood(tmp_path: Path) -> None:
    a = scene(tmp_path)
    far = {key: (key, a[key].values / 1000, {"units": "km"}) for key in ("y", "x")}
    for item in (a.assign_coords(x=np.arange(12), y=np.arange(12)), a.assign_coords(far)):
        cube = daskclust.open_cube(item)
        assert map_of(cube, tmp_path)[0] == HERE
        # The image has the coordinates of the scene, the map those by which GDAL places it.
        assert_array_equal(cube.to_xarray(np.zeros(144, int)).x, item.x)
        written = cube.write_labels(np.zeros(144, int), tmp_path / "map.zarr", overwrite=True)
        assert_array_equal(written["x"], a.x)
        assert len(cube.rows_of(written)[0]) == 144
    with pytest.warns(DaskclustWarning, match=TWO_WAYS):
        cut = daskclust.open_cube(a.assign_coords(far).isel(**CUT))
    assert_allclose(
        map_of(cut, tmp_path)[0], from_origin(500_050, 5_099_970, 10, 10), rtol=0, atol=1e-6
    )


@pytest.mark.parametrize(
    ("select", "message"),
    [
        (lambda a: a.isel(x=[0, 1, 3, 4]), "'x' must have equal steps, got 10 to 20"),
        (lambda a: a.isel(x=[0, 0, 0]), "'x' must have equal steps, got 0 to 0"),
        (lambda a: xarray.concat([a.isel(x=slice(0, 3)), a.isel(x=slice(5, 7))], "x"), "10 to 30"),
        (lambda a: a.roll(y=3, roll_coords=True), "'y' must have equal steps, got -10 to 110"),
        (lambda a: a.pad(x=2), "'x' has values that are not finite"),
        (
            lambda a: a.assign_coords(x=np.arange(12), y=np.arange(12)).isel(**CUT),
            "count pixels, from 3 and 5",
        ),
        (
            lambda a: a.assign_coords(x=("x", np.linspace(9, 10, 12), {"units": "degrees_east"})),
            "in degrees_east",
        ),
        (
            lambda a: a.drop_vars("spatial_ref").rio.write_crs("EPSG:32633").isel(x=[0, 1, 3, 4]),
            "10 to 20",
        ),
    ],
    ids=["uneven", "repeated", "gap", "roll", "pad", "numbers", "degrees", "system"],
)
def test_what_is_no_grid_is_refused(select: Any, message: str, tmp_path: Path) -> None:
    item = select(scene(tmp_path))
    with pytest.raises(ValueError, match=f"not on a regular grid: .*{message}"):
        daskclust.open_cube(item)
    cube = daskclust.open_cube(np.zeros((*item.shape[1:], 1)), dims=("y", "x", "band"))
    with pytest.raises(ValueError, match=f"not on a regular grid: .*{message}"):
        cube.rows_of(xarray.zeros_like(item[0], dtype="int32"))


@pytest.mark.parametrize("kind", ["nc", "zarr"])
def test_files_written_from_slices(kind: str, tmp_path: Path) -> None:
    a = scene(tmp_path)
    for name, some in (("cut", CUT), ("uneven", {"x": [0, 1, 3, 4]})):
        item = a.isel(**some).to_dataset(name="scene")
        path = tmp_path / f"{name}.{kind}"
        item.to_netcdf(path) if kind == "nc" else item.to_zarr(path, zarr_format=2)
    with pytest.warns(DaskclustWarning, match=TWO_WAYS):
        cube = daskclust.open_cube(tmp_path / f"cut.{kind}")
    check_place(cube, from_origin(500_050, 5_099_970, 10, 10), tmp_path)
    with pytest.raises(ValueError, match="not on a regular grid"):
        daskclust.open_cube(tmp_path / f"uneven.{kind}")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_single_precision_explains_what_it_rounds(dtype: str, tmp_path: Path) -> None:
    a = scene(tmp_path, DEGREES, "EPSG:4326", (40, 50))
    a = a.assign_coords({key: a[key].astype("float32").astype(dtype) for key in ("x", "y")})
    # Off by up to a tenth of a pixel.
    assert map_of(daskclust.open_cube(a), tmp_path)[0] == DEGREES
    with pytest.warns(DaskclustWarning, match=TWO_WAYS):
        cube = daskclust.open_cube(a.isel(y=BACK, **{"x": CUT["x"]}))
    expected = Affine(9e-5, 0, 120.3 + 5 * 9e-5, 0, 9e-5, 47.1 - 40 * 9e-5)
    # The size is known exactly, the position to half of the last digit.
    assert_allclose(cube.pixel_grid.transform[::4], expected[:5:4], rtol=1e-12)
    check_place(cube, expected, tmp_path, atol=4e-6)
    with pytest.raises(ValueError, match="must have equal steps"):
        daskclust.open_cube(a.isel(x=[0, 1, 3, 4]))


@pytest.mark.parametrize("kind", ["xarray", "nc", "zarr"])
def test_turned_scenes(kind: str, tmp_path: Path) -> None:
    """By the two-dimensional coordinates xc and yc, as rioxarray makes them."""
    a = scene(tmp_path, TURNED)

    def opened(item: Any) -> Any:
        if kind == "xarray":
            return daskclust.open_cube(item)
        path = tmp_path / f"scene{len(list(tmp_path.iterdir()))}.{kind}"
        item = item.to_dataset(name="scene")
        item.to_netcdf(path) if kind == "nc" else item.to_zarr(path, zarr_format=2)
        return daskclust.open_cube(path)

    check_place(opened(a), TURNED, tmp_path)
    for some, expected in (
        (CUT, TURNED * Affine.translation(5, 3)),
        ({"x": slice(None, None, -2)}, TURNED * Affine(-2, 0, 12.5, 0, 1, 0)),
        ({"y": [4]}, TURNED * Affine.translation(0, 4)),
    ):
        with pytest.warns(DaskclustWarning, match=TWO_WAYS):
            cube = opened(a.isel(**some))
        assert_allclose(map_of(cube, tmp_path)[0], expected, rtol=0, atol=1e-6)
    with pytest.raises(ValueError, match="two-dimensional coordinates have unequal steps"):
        opened(a.isel(y=[0, 1, 3, 4]))


def eopf(folder: Path, **attributes: Any) -> Path:
    group = zarr.open_group(folder / "eopf.zarr", mode="w", zarr_format=3)
    values = np.random.default_rng(0).normal(size=(12, 12, 2))
    array = group.create_array("scene", data=values, dimension_names=("y", "x", "band"))
    x, y = 500_005 + 10.0 * np.arange(12), 5_099_995 - 10.0 * np.arange(12)
    for name, line in (("x", x), ("y", y)):
        group.create_array(name, data=line, dimension_names=(name,))
    array.attrs["spatial:transform"] = [10, 0, 500_005, 0, -10, 5_099_995]
    group.attrs.update({"proj:code": "EPSG:32633", "spatial:bbox": [0, 0, 1, 1], **attributes})
    return folder / "eopf.zarr"


def test_a_transform_of_pixel_centers(tmp_path: Path) -> None:
    with pytest.warns(DaskclustWarning, match=r"\(500000, 5100000\) .* \(500005, 5099995\)"):
        cube = daskclust.open_cube(eopf(tmp_path))
    check_place(cube, HERE, tmp_path)
    assert "spatial:bbox" not in zarr.open_group(tmp_path / "map.zarr").attrs
    # Of centers by the convention: nothing contradicts.
    found = daskclust.open_cube(eopf(tmp_path, **{"spatial:registration": "node"}))
    assert found.pixel_grid.transform == HERE[:6]
    # Two attributes without coordinates.
    group = zarr.open_group(eopf(tmp_path, GeoTransform="500000 10 0 5100000 0 -10"))
    del group["x"], group["y"]
    with pytest.warns(DaskclustWarning, match="by its spatial:transform; .* by its GeoTransform"):
        daskclust.open_cube(tmp_path / "eopf.zarr")


def test_a_coordinate_of_another_length_is_refused(tmp_path: Path) -> None:
    group = zarr.open_group(eopf(tmp_path))
    del group["x"]
    group.create_array("x", data=np.arange(6.0), dimension_names=("x",))
    with pytest.raises(ValueError, match=r"along 'x' .* each of the 12 pixels, got 6"):
        daskclust.open_cube(tmp_path / "eopf.zarr")


def test_a_mask_whose_pixels_are_counted_lies_anywhere(tmp_path: Path) -> None:
    group = zarr.open_group(eopf(tmp_path))
    del group["x"], group["y"]
    hidden = np.zeros((12, 12), bool)
    hidden[2, 3] = True
    counts = {"y": np.arange(12), "x": np.arange(12)}
    mask = xarray.DataArray(hidden, dims=("y", "x"), coords=counts)
    assert daskclust.open_cube(tmp_path / "eopf.zarr", mask=mask).n_masked == 1
    # By its coordinates, where the scene has none.
    far = {"y": 5_099_995 - 10.0 * np.arange(12), "x": 10.0 * np.arange(12)}
    with pytest.raises(ValueError, match="mask lies elsewhere"):
        daskclust.open_cube(tmp_path / "eopf.zarr", mask=mask.assign_coords(far))


def test_bands_of_two_places_are_refused(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "two.zarr", mode="w")
    for name, left in (("a", 500_000), ("b", 500_050)):
        array = group.create_array(name, data=np.zeros((4, 4)), dimension_names=("y", "x"))
        array.attrs["spatial:transform"] = [10, 0, left, 0, -10, 5_100_000]
    with pytest.raises(ValueError, match="'b' lies elsewhere than the first band"):
        daskclust.open_cube(tmp_path / "two.zarr")


def test_packed_coordinates_and_other_units(tmp_path: Path) -> None:
    a = scene(tmp_path).drop_vars("spatial_ref").rio.write_crs("EPSG:32633")
    packed = a.to_dataset(name="scene")
    packed.x.encoding = {"dtype": "int16", "scale_factor": 10.0, "add_offset": 500_005.0}
    packed.to_netcdf(tmp_path / "packed.nc")
    cube = daskclust.open_cube(tmp_path / "packed.nc")
    check_place(cube, HERE, tmp_path)
    assert_array_equal(cube.to_xarray(np.zeros(144)).x, a.x)
    # Angles of view of a geostationary satellite.
    view = {"x": 5.6e-5 * np.arange(12) - 0.1, "y": 0.1 - 5.6e-5 * np.arange(12)}
    a = a.assign_coords({key: (key, line, {"units": "rad"}) for key, line in view.items()})
    a = a.rio.write_crs("+proj=geos +h=35786023 +lon_0=-75 +sweep=x +ellps=GRS80")
    found = daskclust.open_cube(a).pixel_grid.transform
    step, left = 5.6e-5 * 35_786_023, (-0.1 - 2.8e-5) * 35_786_023
    assert_allclose(found, (step, 0, left, 0, -step, -left), rtol=1e-12)


def test_the_names_of_dimensions_may_be_given(tmp_path: Path) -> None:
    a = scene(tmp_path).isel(**CUT).rename(x="E", y="N")
    with pytest.warns(DaskclustWarning, match=TWO_WAYS):
        cube = daskclust.open_cube(a, dims=("band", "y", "x"))
    check_place(cube, from_origin(500_050, 5_099_970, 10, 10), tmp_path)


@pytest.mark.filterwarnings(f"ignore:.*{TWO_WAYS}")
def test_masks_labels_and_polygons_of_slices(tmp_path: Path) -> None:
    a = scene(tmp_path)
    cube, whole = daskclust.open_cube(a.isel(**CUT)), daskclust.open_cube(a)
    image = a[0].astype("int32").copy(data=np.full((12, 12), -1))
    image[8, 8], image[4, 6] = 1, 0
    for given in (image, image.isel(**CUT), image.isel(y=BACK)):
        rows, labels = cube.rows_of(given, resample=True)
        assert_array_equal(rows, [1 * 7 + 1, 5 * 7 + 3])
        assert_array_equal(labels, [0, 1])
    rows, labels = whole.rows_of(image.isel(**CUT), resample=True)
    assert_array_equal(rows, [4 * 12 + 6, 8 * 12 + 8])
    # Of the same size, elsewhere; also where the one states a transform, the other coordinates.
    corner = {"x": slice(0, 7), "y": slice(0, 9)}
    for item in (image, image.drop_vars("spatial_ref")):
        with pytest.raises(ValueError, match=r"lies elsewhere .* \(500000, 5100000\)"):
            cube.rows_of(item.isel(**corner))
        with pytest.raises(ValueError, match="mask lies elsewhere"):
            daskclust.open_cube(a.isel(**CUT), mask=item.isel(**corner) == 1)
    for item in (image, image.drop_vars("spatial_ref")):
        masked = daskclust.open_cube(a.isel(**CUT), mask=item.isel(**CUT) == 1)
        assert_array_equal(np.argwhere(~masked.valid.compute()), [[5, 3]])
    box = [[500_080, 5_099_920], [500_100, 5_099_920], [500_100, 5_099_900], [500_080, 5_099_900]]
    (tmp_path / "p.geojson").write_text(
        json.dumps(
            {
                "type": "FeatureCollection",
                "crs": {"type": "name", "properties": {"name": "urn:ogc:def:crs:EPSG::32633"}},
                "features": [
                    {
                        "type": "Feature",
                        "properties": {"class": 1},
                        "geometry": {"type": "Polygon", "coordinates": [[*box, box[0]]]},
                    }
                ],
            }
        )
    )
    assert_array_equal(cube.rows_of(tmp_path / "p.geojson")[0], [38, 39, 45, 46])
    flipped = daskclust.open_cube(a.isel(y=BACK))
    assert_array_equal(flipped.rows_of(tmp_path / "p.geojson")[0], [32, 33, 44, 45])


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_a_geotiff_that_cannot_say_where_it_lies_warns(tmp_path: Path) -> None:
    a = scene(tmp_path).drop_vars("spatial_ref")
    for item in (a.isel(x=[0, 1, 3, 4]), a.isel(x=[3]).rio.write_crs("EPSG:32633")):
        cube = daskclust.open_cube(item)
        labels = np.zeros(cube.n_valid, int)
        with pytest.warns(DaskclustWarning, match=r"'.*map.tif' has only rows and columns"):
            cube.write_labels(labels, tmp_path / "map.tif", overwrite=True)
        assert_array_equal(
            cube.write_labels(labels, tmp_path / "m.zarr", overwrite=True)["x"], item.x
        )


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_an_array_of_a_store_lies_where_its_group_says(zarr_format: Any, tmp_path: Path) -> None:
    cut = scene(tmp_path).isel(CUT).to_dataset(name="scene")
    cut.to_zarr(tmp_path / "cut.zarr", zarr_format=zarr_format, consolidated=False)
    group = zarr.open_group(tmp_path / "cut.zarr", mode="r")
    for source in (tmp_path / "cut.zarr" / "scene", group["scene"]):
        with pytest.warns(DaskclustWarning, match=TWO_WAYS):
            cube = daskclust.open_cube(source)
        expected = from_origin(500_050, 5_099_970, 10, 10)
        assert_allclose(map_of(cube, tmp_path)[0], expected, rtol=0, atol=1e-6)
    with pytest.warns(DaskclustWarning, match=TWO_WAYS):
        cube = daskclust.open_cube(eopf(tmp_path) / "scene")
    check_place(cube, HERE, tmp_path)


@pytest.mark.parametrize("cut", [{}, CUT, {"y": BACK}, {"x": slice(None, None, 2)}])
def test_the_geobox_is_that_of_the_coordinates(tmp_path: Path, cut: dict[str, slice]) -> None:
    pytest.importorskip("odc.geo.xr", reason="needs the extra `raster`")
    image = scene(tmp_path).isel(cut)
    image.spatial_ref.attrs.pop("GeoTransform")  # of the image before it was cut
    assert daskclust.open_cube(image).geobox == image.odc.geobox


def test_coordinates_of_files_may_state_a_fill_value(tmp_path: Path) -> None:
    lat, lon = (50 - 0.01 * np.arange(4)).astype("f4"), (0.01 * np.arange(5)).astype("f4")
    image = xarray.DataArray(np.ones((4, 5, 2)), {"lat": lat, "lon": lon}, ("lat", "lon", "band"))
    # xarray writes a _FillValue of NaN, of the type of the coordinate.
    image.rename("scene").to_netcdf(tmp_path / "scene.nc", engine="h5netcdf")
    cube = daskclust.open_cube(tmp_path / "scene.nc")
    written = cube.write_labels(np.zeros(20, int), tmp_path / "map.zarr")
    assert_array_equal(written["lat"], lat)
    assert "_FillValue" not in written["lat"].attrs


@pytest.mark.parametrize("name", ["spatial_ref", "crs"])
def test_a_store_whose_array_names_no_grid_mapping_has_that_of_its_group(
    name: str, tmp_path: Path
) -> None:
    def store(item: Any, file: str) -> Any:
        item = item.rename(spatial_ref=name)
        item.encoding.pop("grid_mapping", None)
        data = item.reset_coords(name).rename({item.name or "band_data": "scene"})
        data["scene"].attrs.pop("grid_mapping", None)
        data.to_zarr(tmp_path / file, consolidated=False)
        group = zarr.open_group(tmp_path / file, mode="r")
        assert "grid_mapping" not in group["scene"].attrs
        return group

    full = scene(tmp_path).rename("scene")
    group = store(full.isel(CUT), "cut.zarr")
    for source in (tmp_path / "cut.zarr", group, group["scene"], tmp_path / "cut.zarr" / "scene"):
        with pytest.warns(DaskclustWarning, match=TWO_WAYS):
            cube = daskclust.open_cube(source)
        assert rasterio.crs.CRS.from_user_input(cube.pixel_grid.crs).to_epsg() == 32633
        expected = from_origin(500_050, 5_099_970, 10, 10)
        assert_allclose(map_of(cube, tmp_path)[0], expected, rtol=0, atol=1e-6)
    with pytest.warns(DaskclustWarning, match=TWO_WAYS):
        column = daskclust.open_cube(store(full.isel(x=[4]), "column.zarr"))
    expected = from_origin(500_040, 5_100_000, 10, 10)
    assert_allclose(map_of(column, tmp_path)[0], expected, rtol=0, atol=1e-6)
    with pytest.raises(ValueError, match="regular grid"):
        daskclust.open_cube(store(full.isel(x=[0, 1, 3, 4]), "gaps.zarr"))
