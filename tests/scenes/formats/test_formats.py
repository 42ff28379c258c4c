"""Readers and writers of image files: what is in the file is what comes out, lazily."""

from __future__ import annotations

import json
import signal
import warnings
import zipfile
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import dask
import numpy as np
import pytest

from daskclust.scenes.formats.opening import open_files

rasterio = pytest.importorskip("rasterio", reason="needs the extra `raster`")
pytest.importorskip("rasterio.shutil", reason="needs the extra `raster`")
xarray = pytest.importorskip("xarray", reason="needs the extra `raster`")
pytest.importorskip("pyogrio", reason="needs the extra `raster`")

from pyproj import Transformer  # noqa: E402
from rasterio.transform import from_origin  # noqa: E402

import daskclust  # noqa: E402
from daskclust.colors import Legend  # noqa: E402
from daskclust.core.storage import atomic_write  # noqa: E402
from daskclust.exceptions import StoreError  # noqa: E402
from daskclust.scenes._georeference import PixelGrid  # noqa: E402
from daskclust.scenes.formats.geotiff import GeoTiff, write_cog  # noqa: E402
from daskclust.scenes.formats.opening import kind_of, open_file  # noqa: E402
from daskclust.scenes.formats.vector import rasterize, read_points  # noqa: E402

SHAPE = 6, 40, 50
GRID = PixelGrid((40, 50), (30.0, 0.0, 600_000.0, 0.0, -30.0, 5_200_000.0), "EPSG:32632")


def geotiff(path: Path) -> GeoTiff:
    return GeoTiff(path, "label map")


@pytest.fixture
def values() -> np.ndarray:
    found = np.random.default_rng(0).integers(0, 3000, SHAPE).astype("int16")
    found[:, :5, :5] = -9999
    return found


def write_raster(path: Path, values: np.ndarray, driver: str = "GTiff", **more) -> Path:
    options = {
        "height": values.shape[1],
        "width": values.shape[2],
        "count": len(values),
        "dtype": values.dtype.name,
        "crs": "EPSG:32632",
        "transform": from_origin(600_000, 5_200_000, 30, 30),
        "nodata": -9999,
        **more,
    }
    with rasterio.open(path, "w", driver=driver, **options) as file:
        file.write(values)
    return path


def system_of(found):
    return rasterio.crs.CRS.from_wkt(found.find("spatial_ref").attributes["crs_wkt"])


def test_a_geotiff_comes_out_as_stored(tmp_path, values):
    path = write_raster(tmp_path / "scene.tif", values, tiled=True, blockxsize=16, blockysize=16)
    with rasterio.open(path, "r+") as file:
        file.scales = [1e-4] * 6
        for number in range(6):
            file.update_tags(number + 1, wavelength=str(400 + 10 * number))
            file.set_band_description(number + 1, f"B{number}")
    found = open_file(path)
    assert found.names == ("band", "y", "x")
    assert found.values.dtype == np.int16
    assert found.values.chunks is not None
    np.testing.assert_array_equal(found.values, values)
    assert found.find("wavelength").values.tolist() == [400, 410, 420, 430, 440, 450]
    assert found.attributes["_FillValue"] == -9999
    assert found.attributes["scale_factor"] == 1e-4
    assert "add_offset" not in found.attributes
    assert found.attributes["band_names"] == [f"B{number}" for number in range(6)]
    assert system_of(found).to_epsg() == 32632
    assert found.find("x").values[0] == 600_015


@pytest.mark.parametrize("crs", ["EPSG:32632", "EPSG:4326", "EPSG:3413", None])
@pytest.mark.parametrize("turned", [0, 20])
def test_a_place_is_that_of_rioxarray(tmp_path, values, crs, turned):
    rioxarray = pytest.importorskip("rioxarray")
    transform = from_origin(600_000.3, 5_200_000.7, 30, 31) * rasterio.Affine.rotation(turned)
    path = write_raster(tmp_path / "scene.tif", values, crs=crs, transform=transform)
    found, theirs = open_file(path), rioxarray.open_rasterio(path)
    for name in ("y", "x", "spatial_ref"):
        mine = found.find(name)
        assert (mine is not None) == (name in theirs.coords)
        if mine is not None:
            np.testing.assert_array_equal(mine.values, theirs[name].values)
            assert mine.attributes == theirs[name].attrs


@pytest.mark.parametrize(
    "key",
    [
        (slice(None), slice(3, 9), slice(0, 50)),
        (2, slice(None, None, 7), slice(40, 10, -3)),
        (slice(5, None, -2), 39, slice(-4, None)),
        (slice(0, 6), slice(8, 8), 1),
    ],
)
def test_parts_of_a_raster_are_read_as_numpy_cuts_them(tmp_path, values, key):
    found = open_file(write_raster(tmp_path / "scene.tif", values)).values
    np.testing.assert_array_equal(found[key].compute(), values[key])
    # Without Dask's own slicing between.
    (source,) = {id(v): v for v in _sources(found)}.values()
    np.testing.assert_array_equal(source[key], values[key])


def _sources(array):
    for node in dict(array.__dask_graph__()).values():
        held = getattr(node, "value", node)
        if type(held).__name__ == "_Bands":
            yield held


@pytest.mark.parametrize("interleave", ["bil", "bip", "bsq"])
@pytest.mark.parametrize("open_as", ["scene.hdr", "scene.img"])
def test_an_envi_file_is_opened_by_its_header_or_its_data(tmp_path, values, interleave, open_as):
    write_raster(tmp_path / "scene.img", values, "ENVI", interleave=interleave)
    header = tmp_path / "scene.hdr"
    header.write_text(
        header.read_text() + "wavelength units = Micrometers\n"
        "wavelength = {0.40,0.41,0.42,0.43,0.44,0.45}\nbbl = {1,1,0,1,1,1}\n"
    )
    found = open_file(tmp_path / open_as)
    np.testing.assert_array_equal(found.values, values)
    assert found.find("wavelength").values.tolist() == [400, 410, 420, 430, 440, 450]
    assert found.attributes["bad_bands"] == [False, False, True, False, False, False]
    assert found.attributes["_FillValue"] == -9999


def test_a_header_without_data_is_told(tmp_path):
    (tmp_path / "scene.hdr").write_text("ENVI\n")
    with pytest.raises(FileNotFoundError, match=r"must have a data file next to it"):
        open_file(tmp_path / "scene.hdr")


def test_band_files_become_one_image(tmp_path, values):
    paths = [
        write_raster(tmp_path / f"B0{number}.tif", values[number : number + 1])
        for number in range(3)
    ]
    cube = daskclust.open_cube(paths)
    np.testing.assert_array_equal(cube.stored_bands([0, 1, 2]), values[:3].transpose(1, 2, 0))
    assert cube.band_names == ["B00", "B01", "B02"]
    assert cube.nodata == (-9999,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"transform": from_origin(600_015, 5_200_000, 30, 30)}, "pixels of"),
        ({"crs": "EPSG:32633"}, "coordinate system"),
        ({"crs": None}, "one band states its coordinate system or position"),
    ],
)
def test_band_files_of_another_grid_are_refused(tmp_path, values, change, message):
    one = write_raster(tmp_path / "a.tif", values[:1])
    other = write_raster(tmp_path / "b.tif", values[:1], **change)
    with pytest.raises(ValueError, match=f"'b' lies elsewhere than the first band: .*{message}"):
        daskclust.open_cube([one, other])
    smaller = write_raster(tmp_path / "c.tif", values[:1, :20])
    with pytest.raises(ValueError, match=r"differ in shape: .*a\.tif' has .*c\.tif' has"):
        daskclust.open_cube([one, smaller])


@pytest.mark.parametrize("kind", ["vrt", "files", "variables"])
def test_each_band_may_have_its_own_nodata_value(tmp_path, kind):
    pair = np.stack([np.arange(1, 65, dtype="uint16").reshape(8, 8)] * 2)
    # What means "no data" in one band is a value of the other.
    pair[0, 0, 0], pair[0, 3, 3], pair[1, 7, 7], pair[1, 4, 4] = 65535, 65000, 65000, 65535
    paths = [
        write_raster(tmp_path / f"b{at}.tif", pair[at : at + 1], nodata=nodata)
        for at, nodata in enumerate((65535, 65000))
    ]
    source = paths
    if kind == "vrt":
        bands = "".join(
            f'<VRTRasterBand dataType="UInt16" band="{at + 1}"><NoDataValue>{nodata}</NoDataValue>'
            f'<SimpleSource><SourceFilename relativeToVRT="1">b{at}.tif</SourceFilename>'
            "<SourceBand>1</SourceBand></SimpleSource></VRTRasterBand>"
            for at, nodata in enumerate((65535, 65000))
        )
        source = tmp_path / "scene.vrt"
        source.write_text(f'<VRTDataset rasterXSize="8" rasterYSize="8">{bands}</VRTDataset>')
    elif kind == "variables":
        images = {
            f"b{at}": xarray.DataArray(pair[at], dims=("y", "x"), attrs={"_FillValue": nodata})
            for at, nodata in enumerate((65535, 65000))
        }
        source = xarray.Dataset(images)
    cube = daskclust.open_cube(source)
    assert np.argwhere(~cube.valid.compute()).tolist() == [[0, 0], [7, 7]]
    assert cube.samples.compute().max(axis=0).tolist() == [65000, 65535]
    assert cube.nodata == (65535, 65000)
    assert cube.nodata_of(1) == (65000,)
    missing = np.isnan(daskclust.open_cube(source, incomplete="keep").samples.compute())
    assert np.argwhere(missing).tolist() == [[0, 0], [63, 1]]
    second = daskclust.open_cube(source, bands=[1])
    assert np.argwhere(~second.valid.compute()).tolist() == [[7, 7]]
    same = daskclust.open_cube(source, nodata=65000)
    assert np.argwhere(~same.valid.compute()).tolist() == [[3, 3], [7, 7]]
    swapped = daskclust.open_cube(source, nodata=[65000, 65535])
    assert np.argwhere(~swapped.valid.compute()).tolist() == [[3, 3], [4, 4]]
    second_only = daskclust.open_cube(source, nodata=[None, 65000])
    assert np.argwhere(~second_only.valid.compute()).tolist() == [[7, 7]]
    assert second_only.nodata == (65000,)
    with pytest.raises(ValueError, match="a number or None for each of 2 bands"):
        daskclust.open_cube(source, nodata=[1, 2, 3])


def test_labels_beside_an_alpha_band_keep_their_nodata_value(tmp_path):
    image = np.array([[[1, 2], [9, 2]], [[255, 255], [255, 255]]], "uint8")
    write_raster(tmp_path / "l.tif", image, nodata=None, photometric="MINISBLACK", alpha="YES")
    bands = "".join(
        f'<VRTRasterBand dataType="Byte" band="{band}">{more}<SimpleSource><SourceFilename '
        f'relativeToVRT="1">l.tif</SourceFilename><SourceBand>{band}</SourceBand></SimpleSource>'
        "</VRTRasterBand>"
        for band, more in (
            (1, "<NoDataValue>9</NoDataValue>"),
            (2, "<ColorInterp>Alpha</ColorInterp>"),
        )
    )
    path = tmp_path / "l.vrt"
    path.write_text(f'<VRTDataset rasterXSize="2" rasterYSize="2">{bands}</VRTDataset>')
    cube = daskclust.open_cube(np.zeros((2, 2, 1)), dims=("y", "x", "band"))
    rows, labels = cube.rows_of(path)
    assert (rows.tolist(), labels.tolist()) == ([0, 1, 3], [1, 2, 2])


def test_nothing_is_read_before_it_is_asked_for(tmp_path, values):
    def fail(*_, **__):
        raise AssertionError("something was computed")

    path = write_raster(tmp_path / "scene.tif", values)
    np.save(tmp_path / "scene.npy", values)
    with dask.config.set(scheduler=fail):
        open_file(path)
        open_file(tmp_path / "scene.npy")


@pytest.mark.parametrize("engine", ["h5netcdf", "scipy"])
def test_netcdf_comes_out_undecoded(tmp_path, values, engine):
    path = tmp_path / "scene.nc"
    attributes = {"scale_factor": 1e-4, "_FillValue": np.int16(-9999)}
    dims = ("band", "y", "x")
    xarray.Dataset({"reflectance": (dims, values, attributes)}).to_netcdf(path, engine=engine)
    found = open_file(path)
    assert found.reflectance.dtype == np.int16
    np.testing.assert_array_equal(found.reflectance.values, values)
    assert found.reflectance.attrs["scale_factor"] == 1e-4
    assert found.reflectance.attrs["_FillValue"] == -9999


def test_groups_below_tell_wavelengths_and_good_bands(tmp_path, values):
    path = tmp_path / "EMIT.nc"
    dims = ("downtrack", "crosstrack", "bands")
    cube = xarray.Dataset({"reflectance": (dims, values.transpose(1, 2, 0))})
    cube.to_netcdf(path, engine="h5netcdf")
    parameters = xarray.Dataset(
        {
            "wavelengths": ("bands", np.arange(6) * 7.5 + 381, {"units": "nm"}),
            "good_wavelengths": ("bands", np.array([1.0, 1, 0, 0, 1, 1])),
        }
    )
    parameters.to_netcdf(path, mode="a", engine="h5netcdf", group="sensor_band_parameters")
    found = daskclust.open_cube(path)
    assert found.bands.tolist() == [0, 1, 4, 5]
    assert found.attributes["bad_bands"] == [False, False, True, True, False, False]
    np.testing.assert_allclose(found.wavelengths, (np.arange(6) * 7.5 + 381)[found.bands])


@pytest.mark.parametrize("kind", ["zarr", "xarray"])
def test_variables_beside_a_cube_tell_its_bands(tmp_path, values, kind):
    dataset = xarray.Dataset(
        {
            "reflectance": (("band", "y", "x"), values),
            "wavelengths": ("band", np.arange(6) / 100 + 0.4, {"units": "um"}),
            "good_bands": ("band", np.array([1, 1, 0, 1, 1, 1])),
        }
    )
    if kind == "zarr":
        dataset.to_zarr(tmp_path / "scene.zarr", consolidated=False)
    found = daskclust.open_cube(tmp_path / "scene.zarr" if kind == "zarr" else dataset)
    assert found.bands.tolist() == [0, 1, 3, 4, 5]
    np.testing.assert_allclose(found.wavelengths, [400, 410, 430, 440, 450])


def test_an_npy_file_travels_as_its_path(tmp_path, values):
    np.save(tmp_path / "scene.npy", values)
    found = open_file(tmp_path / "scene.npy")
    np.testing.assert_array_equal(found.compute(scheduler="processes"), values)
    np.save(tmp_path / "scene.npy", values[:, :10])
    with pytest.raises(
        OSError, match=r"if the file was changed, open it again|open it again if it was changed"
    ):
        found.compute()


@pytest.mark.parametrize("name", ["scene.npy", "scene.tif", "scene.nc"])
@pytest.mark.parametrize("change", ["replaced", "cut off"])
def test_a_file_that_changes_after_it_was_opened_is_an_error(tmp_path, values, name, change):
    path = tmp_path / name

    def write(place, image):
        if name.endswith(".npy"):
            np.save(place, image)
        elif name.endswith(".nc"):
            xarray.Dataset({"r": (("band", "y", "x"), image)}).to_netcdf(place, engine="h5netcdf")
        else:
            band, height, width = image.shape
            size = {"count": band, "height": height, "width": width, "dtype": image.dtype}
            with rasterio.open(place, "w", driver="GTiff", crs="EPSG:32632", **size) as file:
                file.write(image)

    image = np.ascontiguousarray(values, np.float32)
    write(path, image)
    found = daskclust.open_cube(path, dims=("band", "y", "x"))
    found.samples.compute(scheduler="sync")
    if change == "replaced":
        write(tmp_path / f"other_{name}", image + 1)
        (tmp_path / f"other_{name}").replace(path)
    else:
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size // 2)
    with (
        dask.config.set({"daskclust.read-retries": 0}),
        pytest.raises(
            OSError, match=r"if the file was changed, open it again|open it again if it was changed"
        ),
    ):
        daskclust.KMeans(2, random_state=0).fit(found)


def test_a_mosaic_of_very_many_files_that_changes_is_an_error(tmp_path):
    grid = {"driver": "GTiff", "width": 2, "height": 2, "count": 1, "dtype": "int16"}
    parts = []
    for number in range(80):
        with rasterio.open(tmp_path / f"{number}.tif", "w", **grid) as file:
            file.write(np.full((1, 2, 2), number, np.int16))
        parts.append(
            f'<SimpleSource><SourceFilename relativeToVRT="1">{number}.tif</SourceFilename>'
            '<SourceBand>1</SourceBand><SrcRect xOff="0" yOff="0" xSize="2" ySize="2"/>'
            f'<DstRect xOff="{2 * number}" yOff="0" xSize="2" ySize="2"/></SimpleSource>'
        )
    (tmp_path / "all.vrt").write_text(
        '<VRTDataset rasterXSize="160" rasterYSize="2"><VRTRasterBand dataType="Int16" band="1">'
        f"{''.join(parts)}</VRTRasterBand></VRTDataset>"
    )
    cube = daskclust.open_cube(tmp_path / "all.vrt")
    assert cube.samples.compute(scheduler="sync").max() == 79
    (tmp_path / "7.tif").unlink()
    (tmp_path / "71.tif").rename(tmp_path / "7.tif")
    with pytest.raises(
        StoreError,
        match=r"7\.tif'.*if the file was changed, open it again|open it again if it was changed",
    ):
        cube.samples.compute(scheduler="sync")


@pytest.mark.parametrize("name", ["scene.npy", "scene.zarr"])
def test_a_scene_that_was_written_anew_alike_is_opened_again(client, tmp_path, values, name):
    """As a map that is written twice; the workers have read the first one."""
    found = set()
    for _ in range(2):
        if name == "scene.npy":
            np.save(tmp_path / name, values)
        else:
            pytest.importorskip("zarr").save_array(tmp_path / name, values, overwrite=True)
        cube = daskclust.open_cube(tmp_path / name, dims=("band", "y", "x"))
        found.add(cube.samples.compute().tobytes())
    assert len(found) == 1


def test_the_header_of_an_npy_file_may_be_damaged(tmp_path, values):
    np.save(tmp_path / "scene.npy", values)
    content = (tmp_path / "scene.npy").read_bytes()
    # The header is an expression in Python: this one has no end.
    (tmp_path / "scene.npy").write_bytes(content.replace(b"}", b"{", 1))
    with pytest.raises(ValueError, match=r"scene\.npy' cannot be read as a numeric array"):
        open_file(tmp_path / "scene.npy")


@pytest.mark.parametrize("name", ["scene.tif", "scene.nc", "scene.npy"])
def test_files_cut_off_and_missing_are_told_in_one_line(tmp_path, values, name):
    path = tmp_path / name
    with pytest.raises(FileNotFoundError, match="does not exist"):
        open_file(path)
    if name == "scene.tif":
        write_raster(path, values)
    elif name == "scene.nc":
        xarray.Dataset({"a": (("band", "y", "x"), values)}).to_netcdf(path, engine="h5netcdf")
    else:
        np.save(path, values)
    whole = path.read_bytes()
    for size in (60, 100, 200):
        path.write_bytes(whole[:size])
        with pytest.raises((OSError, ValueError), match="cannot be read") as caught:
            open_file(path)
        assert name in str(caught.value)


@pytest.mark.parametrize(
    ("driver", "more"),
    [
        ("GTiff", {}),
        ("GTiff", {"tiled": True, "blockxsize": 16, "blockysize": 16, "interleave": "band"}),
        ("GTiff", {"compress": "deflate", "interleave": "pixel"}),
        ("COG", {"blocksize": 128}),
        ("ENVI", {}),
    ],
)
def test_pixels_that_were_cut_off_are_told_before_they_are_read(tmp_path, values, driver, more):
    path = write_raster(tmp_path / "scene.img", values, driver, **more)
    np.testing.assert_array_equal(open_file(path).values, values)
    whole = path.read_bytes()
    path.write_bytes(whole[:-200])
    with pytest.raises(OSError, match=r"scene\.img' is cut off: it has .* Copy or download"):
        open_file(path)


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        (lambda text: text[: text.index("data type")], "it lacks data type, interleave"),
        (lambda text: text + "wavelength = {0.4, 0.5", "a brace is not closed"),
    ],
)
def test_a_header_that_was_cut_off_is_told(tmp_path, values, keep, message):
    # GDAL would read bytes where two make a number.
    path = write_raster(tmp_path / "scene.img", values, "ENVI")
    header = tmp_path / "scene.hdr"
    header.write_text(keep(header.read_text()))
    for name in (path, header):
        with pytest.raises(OSError, match=rf"scene\.hdr' is incomplete: {message}"):
            open_file(name)


@pytest.mark.parametrize("damage", ["gone", "cut off"])
def test_a_mosaic_needs_its_files_whole(tmp_path, values, damage):
    path = write_raster(tmp_path / "scene.tif", values)
    mosaic = tmp_path / "all.vrt"
    rasterio.shutil.copy(str(path), str(mosaic), driver="VRT")
    np.testing.assert_array_equal(open_file(mosaic).values, values)
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-200])
    with dask.config.set({"daskclust.read-retries": 0}), pytest.raises(OSError, match=r"all\.vrt'"):
        open_file(mosaic).values.compute()


def test_a_band_file_counts_once(tmp_path, values):
    path = write_raster(tmp_path / "B1.tif", values[:1])
    with pytest.raises(ValueError, match=r"B1\.tif' twice"):
        open_files([path, path])


def test_an_image_without_a_place_makes_no_noise(tmp_path, values):
    path = write_raster(tmp_path / "scene.tif", values)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bare = write_raster(tmp_path / "bare.tif", values, crs=None, transform=None)
    with warnings.catch_warnings():
        warnings.simplefilter("error", rasterio.errors.NotGeoreferencedWarning)
        np.testing.assert_array_equal(open_file(bare).values, values)
        np.testing.assert_array_equal(open_file(path).values, values)
        grid = PixelGrid((40, 50), (1.0, 0.0, 0.0, 0.0, 1.0, 0.0), None)
        write_cog(
            geotiff(tmp_path / "m.tif"), blocks_of(values[0]), grid, dtype="int16", nodata=-9999
        )


def test_a_geotiff_in_an_archive(tmp_path, values):
    path = write_raster(tmp_path / "scene.tif", values)
    packed = tmp_path / "scene.zip"
    with zipfile.ZipFile(packed, "w") as file:
        file.write(path, "folder/scene.tif")
        file.writestr("readme.txt", "a scene")
    assert kind_of(packed) == "raster"
    found = open_file(packed)
    np.testing.assert_array_equal(found.values, values)
    assert system_of(found).to_epsg() == 32632
    with zipfile.ZipFile(packed, "a") as file:
        file.write(path, "other.tif")
    with pytest.raises(ValueError, match=r"got 2 images and no Zarr store .* Unpack"):
        open_file(packed)


def test_a_geotiff_with_blocks_that_are_not_stored_is_whole(tmp_path, values):
    options = {"tiled": True, "blockxsize": 16, "blockysize": 16, "sparse_ok": True}
    values[:] = -9999
    path = write_raster(tmp_path / "scene.tif", values, **options)
    assert path.stat().st_size < values.nbytes
    np.testing.assert_array_equal(open_file(path).values, values)


def test_the_first_bytes_say_what_a_file_is(tmp_path, values):
    np.save(tmp_path / "scene", values)
    (tmp_path / "scene.npy").rename(tmp_path / "scene.dat")
    assert kind_of(tmp_path / "scene.dat") == "npy"
    write_raster(tmp_path / "image", values)
    assert kind_of(tmp_path / "image") == "raster"


# --- labels ------------------------------------------------------------------------------------


def polygons(path: Path, *items: tuple[str | int | None, tuple[float, ...]]) -> Path:
    """Write boxes (x0, y0, x1, y1 in the image's system) with a class, in WGS 84."""
    to_degrees = Transformer.from_crs(32632, 4326, always_xy=True)

    def ring(x0, y0, x1, y1):
        corners = [(x0, y0), (x1, y0), (x1, y1), (x0, y1), (x0, y0)]
        return [list(to_degrees.transform(*corner)) for corner in corners]

    features = [
        {
            "type": "Feature",
            "properties": {"field": number, "class": name},
            "geometry": {"type": "Polygon", "coordinates": [ring(*box)]},
        }
        for number, (name, box) in enumerate(items)
    ]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return path


WHEAT = "wheat", (600_000, 5_199_700, 600_300, 5_200_000)
MAIZE = "maize", (600_600, 5_199_000, 601_050, 5_199_700)


@pytest.mark.parametrize("chunks", [((40,), (50,)), ((16, 16, 8), (32, 18)), ((1,) * 40, (50,))])
def test_polygons_are_burnt_whatever_the_blocks(tmp_path, chunks):
    path = polygons(tmp_path / "fields.geojson", WHEAT, (None, WHEAT[1]), MAIZE)
    found, classes = rasterize(path, GRID, chunks)
    assert found.chunks == chunks
    assert classes.names == {0: "maize", 1: "wheat"}
    expected = np.full((40, 50), -1)
    expected[:10, :10] = 1
    expected[10:34, 20:35] = 0
    # The first cells that a border crosses may fall on either side: positions went through degrees.
    burnt = found.compute()
    assert (burnt != expected).mean() < 0.02
    assert set(np.unique(burnt)) == {-1, 0, 1}
    whole, _ = rasterize(path, GRID, ((40,), (50,)))
    np.testing.assert_array_equal(burnt, whole.compute())


def test_polygons_outside_are_told(tmp_path):
    path = polygons(tmp_path / "far.geojson", ("wheat", (700_000, 5_100_000, 700_300, 5_100_300)))
    with pytest.raises(ValueError, match="None of the 1 features"):
        rasterize(path, GRID, ((40,), (50,)))


def test_degrees_are_brought_to_the_image(tmp_path):
    lon, lat = Transformer.from_crs(32632, 4326, always_xy=True).transform(601_485, 5_199_895)
    path = tmp_path / "few.csv"
    path.write_text(f"lon,lat,class\n{lon},{lat},3\n")
    rows, cols, _ = read_points(path, GRID)
    assert (rows.tolist(), cols.tolist()) == ([3], [49])
    path.write_text(f"x,y,class\n{lon},{lat},3\n")
    with pytest.raises(ValueError, match=r"lies outside the image .* UTM zone 32N"):
        read_points(path, GRID)


def test_no_features_and_no_file(tmp_path):
    path = polygons(tmp_path / "none.geojson")
    with pytest.raises(
        ValueError, match="must have polygons or points with a class, got no features"
    ):
        rasterize(path, GRID, ((40,), (50,)))
    with pytest.raises(FileNotFoundError, match=r"none\.csv' does not exist"):
        read_points(tmp_path / "none.csv", GRID)


def test_classes_of_features_need_a_column(tmp_path):
    path = polygons(tmp_path / "fields.geojson", WHEAT)
    with pytest.raises(KeyError, match="no column 'crop'"):
        rasterize(path, GRID, ((40,), (50,)), class_column="crop")
    text = path.read_text().replace('"class"', '"crop"')
    path.write_text(text)
    with pytest.raises(ValueError, match="--class-column"):
        rasterize(path, GRID, ((40,), (50,)))
    _, classes = rasterize(path, GRID, ((40,), (50,)), class_column="crop")
    assert classes.names == {0: "wheat"}


def test_points_are_pixels(tmp_path):
    path = tmp_path / "few.csv"
    path.write_text("row,column,class\n0,0,wheat\n3,49,maize\n1,1,\n")
    rows, cols, classes = read_points(path, GRID)
    assert rows.tolist(), cols.tolist() == ([0, 3], [0, 49])
    assert classes.names == {0: "maize", 1: "wheat"}
    assert classes.codes.tolist() == [1, 0]
    path.write_text("x,y,class\n600015,5199985,3\n601485,5199895,7\n")
    rows, cols, classes = read_points(path, GRID)
    assert (rows.tolist(), cols.tolist()) == ([0, 3], [0, 49])
    assert classes.codes.tolist() == [3, 7]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("row,column,class\n0,0,1\n40,0,1\n", "line 3: the pixel .row 40, column 0. lies outside"),
        ("row,column,class\n0,0,1\n0,0,2\n", "two classes"),
        ("row,column,class\n0,zero,1\n", "line 2: column must be a whole number, got 'zero'"),
        ("row,column,class\n0,0,1.5\n", "must be whole numbers or names"),
        ("row,column,class\n0,0,\n", "at least one item with a class, got none"),
        ("row,column,class\n0.5,0,1\n", "line 2: row must be a whole number, got '0.5'"),
        ("a,b,class\n0,0,1\n", "must have the columns row and column, or x and y, or lon"),
    ],
)
def test_bad_points_are_told(tmp_path, text, message):
    path = tmp_path / "few.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_points(path, GRID)


# --- maps --------------------------------------------------------------------------------------


def write_map(output, blocks, grid, **options):
    blocks = list(blocks)
    with closing(write_cog(output, [block[:2] for block in blocks], grid, **options)) as steps:
        next(steps)
        with suppress(StopIteration):
            for _, _, values in blocks:
                steps.send(values() if callable(values) else values)


def blocks_of(image, step=16):
    for top in range(0, image.shape[0], step):
        rows = slice(top, min(top + step, image.shape[0]))
        yield rows, slice(0, image.shape[1]), image[rows]


def test_a_map_has_colors_names_nodata_and_a_place(tmp_path):
    image = np.arange(2000).reshape(40, 50) // 500
    image[0, 0] = 255
    path = tmp_path / "map.tif"
    write_map(
        geotiff(path),
        blocks_of(image),
        GRID,
        dtype="uint8",
        nodata=255,
        legend=lambda: Legend(
            (0, 1, 3), ("wheat", "maize & beans", "<none>"), ("#ff0000", "#00ff00", "#090909")
        ),
    )
    with rasterio.open(path) as file:
        np.testing.assert_array_equal(file.read(1), image)
        assert file.crs.to_epsg() == 32632
        assert file.nodata == 255
        assert file.colormap(1)[1] == (0, 255, 0, 255)
        assert file.tags()["daskclust"] == "label map"
        assert tuple(file.transform)[:6] == GRID.transform
        assert file.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"
    names = (tmp_path / "map.tif.aux.xml").read_text()
    assert "<Category>maize &amp; beans</Category>" in names
    assert sorted(p.name for p in tmp_path.iterdir()) == ["map.tif", "map.tif.aux.xml"]


def test_a_map_that_fails_leaves_nothing(tmp_path):
    def died():
        raise RuntimeError("a worker died")

    columns = slice(0, 50)
    broken = [(slice(0, 20), columns, np.zeros((20, 50), "uint8")), (slice(20, 40), columns, died)]
    with pytest.raises(RuntimeError, match="a worker died"):
        write_map(geotiff(tmp_path / "map.tif"), broken, GRID, dtype="uint8", nodata=255)
    assert not list(tmp_path.iterdir())


@contextmanager
def largest_file(size: int):
    """Let no file grow larger, as on a disk that is full."""
    resource = pytest.importorskip("resource", reason="limits are those of Unix")
    usual, before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.RLIMIT_FSIZE
    limits = resource.getrlimit(before)
    resource.setrlimit(before, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(before, limits)
        signal.signal(signal.SIGXFSZ, usual)


@pytest.mark.parametrize("size", [3_000, 20_000, 40_000, 60_000])
def test_a_map_that_a_full_disk_cuts_off_is_an_error(size, tmp_path):
    image = np.random.default_rng(0).integers(0, 7, (400, 400)).astype("uint8")
    grid, path = PixelGrid((400, 400), GRID.transform, GRID.crs), tmp_path / "map.tif"
    with largest_file(size), pytest.raises(OSError, match=r"map\.tif"):
        write_map(geotiff(path), blocks_of(image), grid, dtype="uint8", nodata=255)
    assert not list(tmp_path.iterdir())
    write_map(geotiff(path), blocks_of(image), grid, dtype="uint8", nodata=255)
    with rasterio.open(path) as file:
        np.testing.assert_array_equal(file.read(1), image)


def test_what_a_killed_writer_of_a_map_left_goes_with_the_next(tmp_path):
    owner = f"{atomic_write.host()}-{2**22 + 1}-0123abcd"
    for name in (f".map.tif.{owner}.partial", f".map.tif.{owner}.partial.aux.xml"):
        (tmp_path / name).write_bytes(b"half")
    image = np.zeros((40, 50), "uint8")
    write_map(geotiff(tmp_path / "map.tif"), blocks_of(image), GRID, dtype="uint8", nodata=255)
    assert [path.name for path in tmp_path.iterdir()] == ["map.tif"]
