"""Products as they are on disk: Sentinel-2 (SAFE, EOPF Zarr), AlphaEarth and TESSERA."""

import json
import shutil

import numpy as np
import pytest
import zarr
from file_server import served

import daskclust
from daskclust.app import cli
from daskclust.exceptions import DaskclustWarning

rasterio = pytest.importorskip("rasterio", reason="needs the extra `raster`")
pytest.importorskip("rioxarray", reason="needs the extra `raster`")

from rasterio.drivers import raster_driver_extensions  # noqa: E402
from rasterio.transform import Affine, from_origin  # noqa: E402

UTM = "EPSG:32633"
ORIGIN = 500_040.0, 5_100_000.0
NAME = "S2A_MSIL2A_{date}T101559_N0510_R065_T33UUP_{date}T160000.SAFE"
#: Bands of the made products, with their resolutions in m.
SIZES = {"B02": 10, "B08": 10, "B05": 20, "B8A": 20, "B01": 60, "B11": 20}
#: Order of the bands in a cube.
NAMES = ["B01", "B02", "B05", "B08", "B8A", "B11"]

needs_jp2 = pytest.mark.skipif(
    "jp2" not in raster_driver_extensions(), reason="this GDAL does not write JPEG 2000"
)


def write(path, values, size, driver="JP2OpenJPEG", transform=None, **options):
    """Write an image (y, x) or (band, y, x) with the corner of all products."""
    values = np.asarray(values)
    values = values[None] if values.ndim == 2 else values
    path.parent.mkdir(parents=True, exist_ok=True)
    if driver == "JP2OpenJPEG":
        options = {"QUALITY": "100", "REVERSIBLE": "YES"}
    with rasterio.open(
        path,
        "w",
        driver=driver,
        height=values.shape[1],
        width=values.shape[2],
        count=values.shape[0],
        dtype=values.dtype,
        crs=UTM,
        transform=transform or from_origin(*ORIGIN, size, size),
        **options,
    ) as file:
        file.write(values)
    return path


def counts(seed=0):
    """Return stored values of the bands of a product of 360 m x 360 m."""
    rng = np.random.default_rng(seed)
    return {
        name: rng.integers(1001, 12_000, (360 // size, 360 // size)).astype(np.uint16)
        for name, size in SIZES.items()
    }


def metadata(level="2A", baseline="05.10", offset=-1000):
    quantity, tag = {
        "2A": ("BOA_QUANTIFICATION_VALUE", "BOA_ADD_OFFSET"),
        "1C": ("QUANTIFICATION_VALUE", "RADIO_ADD_OFFSET"),
    }[level]
    offsets = [f'<{tag} band_id="{i}">{offset}</{tag}>' for i in range(13) if offset is not None]
    return (
        f'<n1:Product xmlns:n1="https://psd"><PROCESSING_BASELINE>{baseline}</PROCESSING_BASELINE>'
        f'<{quantity} unit="none">10000</{quantity}>{"".join(offsets)}</n1:Product>'
    )


def write_safe(folder, date="20240501", seed=0, scl=None, **options):
    """Write a SAFE folder of level 2A; some bands also at coarser resolutions."""
    safe = folder / NAME.format(date=date)
    images = safe / "GRANULE" / "L2A_T33UUP_A046000_20240501T101600" / "IMG_DATA"
    for name, values in counts(seed).items():
        size = SIZES[name]
        for coarse in {size, 60}:
            step = coarse // size
            stem = f"T33UUP_{date}T101559_{name}_{coarse}m.jp2"
            write(images / f"R{coarse}m" / stem, values[::step, ::step], coarse)
    write(images / "R10m" / f"T33UUP_{date}T101559_TCI_10m.jp2", np.ones((36, 36), np.uint8), 10)
    scl = np.full((18, 18), 4, np.uint8) if scl is None else scl
    write(images / "R20m" / f"T33UUP_{date}T101559_SCL_20m.jp2", scl, 20)
    (safe / "MTD_MSIL2A.xml").write_text(metadata(**options))
    return safe


def fine(values, size=10):
    """Return an image at 10 m."""
    return np.kron(values, np.ones((360 // len(values) // size,) * 2, values.dtype))


def image_of(cube):
    """Return samples (band, y, x), NaN where a pixel is not valid."""
    return np.stack(
        [
            np.asarray(cube.to_map(cube.samples[:, i].astype(float), fill_value=np.nan))
            for i in range(cube.samples.shape[1])
        ]
    )


@needs_jp2
def test_safe_folder_is_reflectance_at_10_m(tmp_path):
    cube = daskclust.open_cube(write_safe(tmp_path))
    assert cube.band_names == NAMES
    assert cube.shape == (36, 36, 6)
    assert cube.geobox.crs.to_epsg() == 32633
    np.testing.assert_allclose(cube.wavelengths, [442.7, 492.7, 704.1, 832.8, 864.7, 1613.7])
    stored = counts()
    expected = np.stack([(fine(stored[name]).astype(float) - 1000) / 10_000 for name in NAMES])
    np.testing.assert_allclose(image_of(cube), expected, rtol=1e-6, atol=1e-7)


@needs_jp2
def test_zipped_safe_folder_equals_the_folder(tmp_path):
    safe = write_safe(tmp_path)
    expected = image_of(daskclust.open_cube(safe))
    archive = shutil.make_archive(str(safe), "zip", tmp_path, safe.name)
    shutil.rmtree(safe)
    with served(tmp_path) as url:
        for source in (archive, f"{url}/{safe.name}.zip"):
            cube = daskclust.open_cube(source)
            assert cube.band_names == NAMES
            np.testing.assert_array_equal(image_of(cube), expected)
            cube = daskclust.open_mosaic([source], time="names")
            assert cube.band_names[0] == "2024-05-01 B01"
    (tmp_path / "S2A_MSIL2A_damaged.zip").write_bytes(b"no archive")
    with pytest.raises(OSError, match=r"damaged\.zip' must be a zip file of a SAFE folder"):
        daskclust.open_cube(tmp_path / "S2A_MSIL2A_damaged.zip")


@needs_jp2
def test_before_baseline_04_there_is_no_offset(tmp_path):
    safe = write_safe(tmp_path, baseline="03.01", offset=None)
    image = image_of(daskclust.open_cube(str(safe), variable=["B8A", "B02"], resolution=10))
    np.testing.assert_allclose(image[1], counts()["B02"] / 10_000, rtol=1e-6)
    np.testing.assert_allclose(image[0], fine(counts()["B8A"]) / 10_000, rtol=1e-6)


@needs_jp2
def test_level_1c(tmp_path):
    safe = tmp_path / NAME.format(date="20240501").replace("L2A", "L1C")
    images = safe / "GRANULE" / "L1C_T33UUP_A046000_20240501T101600" / "IMG_DATA"
    for name, values in counts().items():
        write(images / f"T33UUP_20240501T101559_{name}.jp2", values, SIZES[name])
    (safe / "MTD_MSIL1C.xml").write_text(metadata("1C"))
    cube = daskclust.open_cube(safe)
    assert cube.band_names == NAMES
    np.testing.assert_allclose(image_of(cube)[3], (counts()["B08"] - 1000.0) / 10_000, rtol=1e-5)
    with pytest.raises(ValueError, match="no item has a scene classification"):
        daskclust.open_cube(safe, exclude_classes=[3])


@needs_jp2
def test_unclear_classes_and_stored_zeros_are_missing(tmp_path):
    scl = np.full((18, 18), 4, np.uint8)
    scl[0, :12] = range(12)
    safe = write_safe(tmp_path, scl=scl)
    missing = np.isnan(image_of(daskclust.open_cube(safe))[0])
    np.testing.assert_array_equal(missing, fine(np.isin(scl, [0, 1, 3, 8, 9, 10])))
    missing = np.isnan(image_of(daskclust.open_cube(safe, exclude_classes=[5, 4]))[0])
    np.testing.assert_array_equal(missing, fine(np.isin(scl, [4, 5])))
    b02 = counts()["B02"]
    b02[7, 9] = 0
    write(next(safe.glob("**/*_B02_10m.jp2")), b02, 10)
    missing = np.isnan(image_of(daskclust.open_cube(safe, exclude_classes=()))[1])
    assert missing[7, 9]
    assert missing.sum() == 1


@needs_jp2
def test_other_resolution(tmp_path):
    cube = daskclust.open_cube(write_safe(tmp_path), variable="B05", resolution=20)
    assert cube.shape == (18, 18, 1)
    np.testing.assert_allclose(image_of(cube)[0], (counts()["B05"] - 1000.0) / 1e4, rtol=1e-5)
    cube = daskclust.open_cube(tmp_path / NAME.format(date="20240501"), resolution=60)
    assert cube.shape == (6, 6, 6)


@needs_jp2
def test_commands_take_safe_folders(tmp_path, capsys):
    assert cli.main(["inspect", str(write_safe(tmp_path)), "--variable", "B05"]) == 0
    assert "y 18 x x 18 x band 1, uint16" in capsys.readouterr().out


@needs_jp2
def test_dates_are_those_of_the_names(tmp_path):
    scl = np.full((18, 18), 4, np.uint8)
    scl[:9] = 9
    new = write_safe(tmp_path, "20240501", 1, scl)
    old = write_safe(tmp_path, "20210701", 2, baseline="03.01", offset=None)
    cube = daskclust.open_mosaic([new, old], time="names", assets=["B02", "B05"], incomplete="keep")
    assert cube.band_names == [
        "2021-07-01 B02",
        "2021-07-01 B05",
        "2024-05-01 B02",
        "2024-05-01 B05",
    ]
    np.testing.assert_allclose(cube.wavelengths, [492.7, 704.1] * 2)
    image = image_of(cube)
    np.testing.assert_allclose(image[1], fine(counts(2)["B05"]) / 10_000, rtol=1e-6)
    assert np.isnan(image[2, :18]).all()
    expected = (counts(1)["B02"][18:] - 1000.0) / 10_000
    np.testing.assert_allclose(image[2, 18:], expected, rtol=1e-5, atol=1e-7)


@needs_jp2
def test_first_clear_product_has_the_value(tmp_path):
    scl = np.full((18, 18), 4, np.uint8)
    scl[:9] = 9
    new, old = write_safe(tmp_path, "20240501", 1, scl), write_safe(tmp_path, "20240601", 2)
    (found,) = image_of(daskclust.open_mosaic([new, old], assets=["B08"], chunks=(7, 11)))
    expected = np.concatenate([counts(2)["B08"][:18], counts(1)["B08"][18:]])
    np.testing.assert_allclose(found, (expected - 1000.0) / 10_000, rtol=1e-5, atol=1e-7)


@needs_jp2
def test_incomplete_safe_folders_are_errors_with_names(tmp_path):
    safe = write_safe(tmp_path)
    with pytest.raises(ValueError, match=r"must be among \['B01', .*got \['B03'\]"):
        daskclust.open_cube(safe, variable=["B02", "B03"])
    xml = safe / "MTD_MSIL2A.xml"
    for text in ("<a>", "<a/>", metadata(offset=None), metadata(offset="x")):
        xml.write_text(text)
        with pytest.raises(OSError, match=r"MTD_MSIL2A\.xml' must state PROCESSING_BASELINE"):
            daskclust.open_cube(safe)
    xml.unlink()
    with pytest.raises(FileNotFoundError, match=r"\.SAFE' must contain MTD_MSIL2A\.xml or"):
        daskclust.open_cube(safe)
    image = next(safe.glob("**/*_B02_10m.jp2"))
    image.rename(image.with_name("T33UVP_20240501T101559_B02_10m.jp2"))
    with pytest.raises(ValueError, match=r"one tile and date, got .*T33UVP"):
        daskclust.open_cube(safe)
    empty = tmp_path / "S1A_IW_GRDH.SAFE"
    empty.mkdir()
    with pytest.raises(FileNotFoundError, match=r"S1A_IW_GRDH\.SAFE' must contain bands of"):
        daskclust.open_cube(empty)
    other = write_safe(tmp_path / "other")
    with pytest.warns(DaskclustWarning, match="1 of 2 items are left out"):
        cube = daskclust.open_mosaic([empty, other], skip_damaged=True)
    assert cube.shape == (36, 36, 6)


def test_options_of_products_need_a_product():
    with pytest.raises(ValueError, match="resolution and exclude_classes require a product"):
        daskclust.open_cube(np.ones((3, 4, 2)), dims=("y", "x", "band"), resolution=20)


def test_band_files_of_several_resolutions(tmp_path):
    files = [
        write(tmp_path / f"{name}.tif", counts()[name], SIZES[name], "GTiff", nodata=0)
        for name in ("B02", "B05")
    ]
    cube = daskclust.open_cube(files, resolution=20)
    assert cube.shape == (18, 18, 2)
    np.testing.assert_array_equal(image_of(cube)[1], counts()["B05"])


def write_alphaearth(path, codes, bottom_up, left=0):
    rows = codes.shape[1]
    x, y = ORIGIN[0] + 10 * left, ORIGIN[1]
    transform = Affine(10, 0, x, 0, 10, y - 10 * rows) if bottom_up else from_origin(x, y, 10, 10)
    codes = codes[:, ::-1] if bottom_up else codes
    write(path, codes, 10, "GTiff", transform, nodata=-128)
    with rasterio.open(path, "r+") as file:
        file.descriptions = [f"A{i:02d}" for i in range(codes.shape[0])]
    return path


def test_tiles_of_alphaearth_may_run_from_south_to_north(tmp_path):
    codes = np.random.default_rng(0).integers(-127, 128, (64, 12, 20)).astype(np.int8)
    codes[:, 3, 4] = -128
    tiles = [
        write_alphaearth(tmp_path / "2023" / "a.tif", codes[:, :, :10], True),
        write_alphaearth(tmp_path / "2023" / "b.tif", codes[:, :, 10:], False, 10),
    ]
    cube = daskclust.open_mosaic(tiles, time="names")
    assert cube.band_names[63] == "2023 A63"
    wide = codes.astype(float)
    wide[:, 3, 4] = np.nan
    expected = (wide / 127.5) ** 2 * np.sign(wide)
    np.testing.assert_allclose(image_of(cube), expected, rtol=1e-6)
    np.testing.assert_allclose(image_of(daskclust.open_mosaic(tiles)), expected, rtol=1e-6)
    # A cube of one file has the rows of the file.
    found = image_of(daskclust.open_cube(tiles[0]))
    np.testing.assert_allclose(found, expected[:, ::-1, :10], rtol=1e-6)
    with pytest.raises(ValueError, match="Codes of AlphaEarth require resampling='nearest'"):
        daskclust.open_mosaic(tiles, overlap="mean")
    values = write_alphaearth(tmp_path / "values.tif", codes.astype(np.float32), False)
    np.testing.assert_array_equal(image_of(daskclust.open_mosaic([values], overlap="mean")), wide)


def write_tessera(folder, name="grid_15.05_46.05", left=0, seed=0):
    """Write a tile as geotessera stores it."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(-127, 128, (9, 7, 128)).astype(np.int8)
    scales = rng.random((9, 7)).astype(np.float32)
    scales[0, 1] = np.nan
    tile = folder / "global_0.1_degree_representation" / "2024" / name
    tile.mkdir(parents=True)
    np.save(tile / f"{name}.npy", codes)
    np.save(tile / f"{name}_scales.npy", scales)
    transform = from_origin(ORIGIN[0] + 10 * left, ORIGIN[1], 10, 10)
    grids = folder / "global_0.1_degree_tiff_all"
    write(grids / f"{name}.tiff", np.ones((9, 7), np.uint8), 10, "GTiff", transform)
    return tile, np.moveaxis(codes * scales[:, :, None], 2, 0)


def test_tessera_tiles_are_codes_times_scales(tmp_path):
    first, left = write_tessera(tmp_path)
    second, right = write_tessera(tmp_path, "grid_15.15_46.05", 7, 1)
    np.testing.assert_array_equal(image_of(daskclust.open_cube(first)), left)
    cube = daskclust.open_mosaic([first, str(second)], time="names")
    assert cube.shape == (9, 14, 128)
    assert cube.band_names[0] == "2024 band 1"
    np.testing.assert_array_equal(image_of(cube), np.concatenate([left, right], axis=2))
    assert daskclust.KMeans(2, random_state=0).fit(cube).labels_.shape == (9 * 14 - 2,)


@pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning")
def test_tessera_store_of_several_zones(tmp_path):
    import xarray

    rng = np.random.default_rng(0)
    codes = rng.integers(-127, 127, (2, 3, 8, 8)).astype(np.int8)
    scales = rng.random((2, 8, 8)).astype(np.float32)
    scales[:, 0, :2], codes[:, :, 0, :2] = np.inf, 0  # never written
    scales[:, 1, 1] = np.nan  # water
    store = tmp_path / "v1.zarr"
    root = zarr.open_group(store, mode="w", zarr_format=3)
    for zone in (32, 33):
        group = root.create_group(f"utm{zone}")
        for name, values, dims in (
            ("embeddings", codes, ("time", "band", "y", "x")),
            ("scales", scales, ("time", "y", "x")),
            ("time", np.array([2023, 2024]), ("time",)),
            ("x", 250_005.0 + 10 * np.arange(8), ("x",)),
            ("y", 5_099_995.0 - 10 * np.arange(8), ("y",)),
        ):
            group.create_array(name, data=values, dimension_names=dims)
    zarr.consolidate_metadata(store)
    zones = {zone: xarray.open_zarr(store, group=f"utm{zone}").sel(time=2024) for zone in (32, 33)}
    expected = codes[1] * np.where(np.isinf(scales[1]), np.nan, scales[1])
    cube = daskclust.open_cube(zones[32].embeddings, scales=zones[32].scales)
    np.testing.assert_allclose(image_of(cube), expected)
    tiles = [
        (zone.embeddings * zone.scales.where(zone.scales < np.inf)).rio.write_crs(
            f"EPSG:326{number}"
        )
        for number, zone in zones.items()
    ]
    for number in zones:
        region = 250_000, 5_099_920, 250_080, 5_100_000
        cube = daskclust.open_mosaic(tiles, crs=f"EPSG:326{number}", region=region)
        np.testing.assert_allclose(image_of(cube), expected)


@pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning")
def test_alphaearth_store(tmp_path):
    rng = np.random.default_rng(0)
    codes = rng.integers(-127, 128, (2, 64, 6, 6)).astype(np.int8)
    codes[0, :, 2, 3] = -128
    group = zarr.open_group(tmp_path / "aef.zarr", mode="w", zarr_format=3)
    for name, values, dims in (
        ("embeddings", codes, ("time", "band", "y", "x")),
        ("time", np.array([2023, 2024]), ("time",)),
        ("x", 10 + 1e-4 * np.arange(6), ("x",)),
        ("y", 50 - 1e-4 * np.arange(6), ("y",)),
    ):
        group.create_array(name, data=values, dimension_names=dims)
    group.attrs["proj:code"] = "EPSG:4326"
    zarr.consolidate_metadata(tmp_path / "aef.zarr")
    cube = daskclust.open_cube(tmp_path / "aef.zarr", quantization="alphaearth")
    assert cube.shape == (6, 6, 128)
    assert cube.n_masked == 1
    values = codes[:, :, 0, 0].ravel().astype(float) / 127.5
    expected = values**2 * np.sign(values)
    np.testing.assert_allclose(np.asarray(cube.samples[0]), expected, rtol=1e-5)


def test_incomplete_tessera_tiles_are_errors_with_names(tmp_path):
    tile, _ = write_tessera(tmp_path)
    np.save(tile / f"{tile.name}_scales.npy", np.ones((9, 8), np.float32))
    with pytest.raises(ValueError, match=r"_scales\.npy' must have floats of shape \(9, 7\)"):
        daskclust.open_cube(tile)
    np.save(tile / f"{tile.name}.npy", np.ones((9, 8, 128), np.int8))
    with pytest.raises(ValueError, match=r"46\.05\.npy' must have codes of dtype int8"):
        daskclust.open_cube(tile)
    (tile / f"{tile.name}_scales.npy").unlink()
    with pytest.raises(FileNotFoundError, match=r"46\.05\.npy' must have scales in '.*_scales"):
        daskclust.open_cube(tile)
    np.save(tile / f"{tile.name}_scales.npy", np.ones((9, 8), np.float32))
    next(tmp_path.glob("**/*.tiff")).unlink()
    with pytest.raises(FileNotFoundError, match=r"46\.05\.npy' must have a file with its grid"):
        daskclust.open_cube(tile)


EOPF = NAME.format(date="20240501").replace("SAFE", "zarr")


def write_eopf(folder, seed=0, decoded=False, attributes=None, scl=None, **said):
    """Write a store with the groups of EOPF; decoded values are floats."""
    root = zarr.open_group(folder / EOPF, mode="w", zarr_format=3 if decoded else 2)
    system = {"other_metadata": {"horizontal_CRS_code": UTM}}
    root.attrs.update(system if attributes is None else attributes)
    said = said or {"_eopf_attrs": {"scale_factor": 1e-4, "add_offset": -0.1, "fill_value": 0}}

    def put(group, name, values, size, attributes):
        group = root.require_group(group)
        names = {"dimension_names": ("y", "x")} if decoded else {}
        array = group.create_array(name, data=values, chunks=(6, 6), **names)
        array.attrs.update({"_ARRAY_DIMENSIONS": ["y", "x"], **attributes})
        for key, first, step in (("x", ORIGIN[0], size), ("y", ORIGIN[1], -size)):
            if key not in group:
                centers = (first + step * (np.arange(len(values)) + 0.5)).astype(np.int64)
                axis = group.create_array(key, data=centers, **{k: (key,) for k in names})
                axis.attrs["_ARRAY_DIMENSIONS"] = [key]

    for name, values in counts(seed).items():
        group = f"measurements/reflectance/r{SIZES[name]}m"
        if decoded:
            values = np.where(values == 0, np.nan, values * 1e-4 - 0.1).astype(np.float32)
        put(group, name.lower(), values, SIZES[name], {} if decoded else said)
    put("measurements/reflectance/r60m", "b02", np.zeros((6, 6), np.uint16), 60, said)
    scl = np.full((18, 18), 4, np.uint8) if scl is None else scl
    put("conditions/mask/l2a_classification/r20m", "scl", scl, 20, said)
    return folder / EOPF


@pytest.mark.parametrize("decoded", [True, False])
@pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning")
def test_eopf_store_is_reflectance(tmp_path, decoded):
    scl = np.full((18, 18), 4, np.uint8)
    scl[2, 3:5] = 8, 0
    store = write_eopf(tmp_path, decoded=decoded, scl=scl)
    cube = daskclust.open_cube(store)
    assert cube.band_names == NAMES
    assert cube.shape == (36, 36, 6)
    assert cube.geobox.crs.to_epsg() == 32633
    expected = np.stack([(fine(counts()[name]).astype(float) - 1000) / 10_000 for name in NAMES])
    expected[:, fine(scl != 4)] = np.nan
    np.testing.assert_allclose(image_of(cube), expected, rtol=1e-5, atol=1e-7)
    other = write_eopf(
        tmp_path / "other", 1, decoded, {"stac_discovery": {"properties": {"proj:epsg": 32633}}}
    )
    (found,) = image_of(daskclust.open_mosaic([other, store], assets=["B02"]))
    np.testing.assert_allclose(found, (counts(1)["B02"] - 1000.0) / 1e4, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning")
def test_eopf_store_and_stac_items_by_url(tmp_path):
    store = write_eopf(tmp_path)
    zarr.consolidate_metadata(store)
    expected = image_of(daskclust.open_cube(store))
    write(tmp_path / "red.tif", np.full((4, 4), 7, np.uint8), 10, "GTiff", nodata=0)
    item = {"type": "Feature", "id": "one", "assets": {"red": {"href": "./red.tif"}}}
    (tmp_path / "items.json").write_text(json.dumps(item))
    with served(tmp_path) as url:
        np.testing.assert_array_equal(image_of(daskclust.open_cube(f"{url}/{EOPF}")), expected)
        cube = daskclust.open_mosaic(f"{url}/items.json", assets=["red"])
        np.testing.assert_array_equal(image_of(cube), np.full((1, 4, 4), 7))


@pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning")
def test_eopf_stores_must_state_scale_and_system(tmp_path):
    store = write_eopf(tmp_path, units="digital_counts")
    with pytest.raises(ValueError, match=r"r10m/b0\d' must state scale_factor and add_offset"):
        daskclust.open_cube(store)
    store = write_eopf(tmp_path, attributes={})
    with pytest.raises(ValueError, match=r"\.zarr' must state a coordinate system"):
        daskclust.open_cube(store)
    # The scale of an image of classes does not change the classes.
    scl = np.full((18, 18), 4, np.uint8)
    scl[2, 3] = 8
    stated = {"scale_factor": 1e-4, "add_offset": 0.0, "proj:epsg": 32633}
    store = write_eopf(tmp_path, attributes={}, scl=scl, **stated)
    expected = np.where(fine(scl == 8), np.nan, counts()["B02"] / 1e4)
    found = image_of(daskclust.open_cube(store, variable="B02"))
    np.testing.assert_allclose(found[0], expected, rtol=1e-6)


@pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning")
def test_classes_must_cover_the_bands(tmp_path):
    store = write_eopf(tmp_path, scl=np.full((17, 17), 4, np.uint8))
    with pytest.raises(ValueError, match=r"r20m/scl' must cover the same area as .*b02"):
        daskclust.open_cube(store, variable="B02")
    assert daskclust.open_cube(store, variable="B02", exclude_classes=()).n_valid == 36 * 36
    shutil.rmtree(store / "conditions")
    with pytest.warns(DaskclustWarning, match=r"zarr' of level 2A has no scene classification"):
        daskclust.open_cube(store, variable="B02")


def test_mosaics_of_other_arrays_have_other_names():
    xarray = pytest.importorskip("xarray")
    images = [
        xarray.DataArray(
            np.full((1, 4, 4), value, np.uint8),
            dims=("band", "y", "x"),
            coords={"y": np.arange(4)[::-1], "x": np.arange(4)},
        ).rio.write_crs(UTM)
        for value in (1, 2)
    ]
    first, second = (daskclust.open_mosaic([image]).samples for image in images)
    assert first.name != second.name
