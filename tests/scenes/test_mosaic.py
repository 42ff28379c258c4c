"""One cube from many files: place, values, overlaps, missing values, bad input."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import daskclust
from daskclust.exceptions import DaskclustWarning
from daskclust.scenes.mosaic_grid import shift_of_tile, target_grid
from daskclust.scenes.mosaic_tiles import open_tiles

rasterio = pytest.importorskip("rasterio", reason="needs the extra `raster`")
pytest.importorskip("rioxarray", reason="needs the extra `raster`")

from rasterio.transform import from_origin  # noqa: E402
from rasterio.vrt import WarpedVRT  # noqa: E402
from rasterio.warp import Resampling, transform  # noqa: E402

UTM = "EPSG:32633"
ORIGIN = 500_000.0, 5_100_000.0


def write(path, values, left, top, size=10.0, crs=UTM, nodata=0, **options):
    """Write an array (band, y, x) as a GeoTIFF."""
    values = np.asarray(values)
    with rasterio.open(
        path,
        "w",
        driver="GTiff",
        height=values.shape[1],
        width=values.shape[2],
        count=values.shape[0],
        dtype=values.dtype,
        crs=crs,
        transform=options.pop("transform", from_origin(left, top, size, size)),
        nodata=nodata,
    ) as file:
        file.write(values)
        for name, value in options.items():
            setattr(file, name, value)
    return str(path)


@pytest.fixture
def scene():
    """Values (band, y, x) of a scene without missing values."""
    return np.random.default_rng(0).integers(1, 60_000, (2, 60, 90), np.uint16)


@pytest.fixture
def tiles(scene, tmp_path):
    """Six tiles of the scene, 30 x 30 pixels each."""
    return [
        write(
            tmp_path / f"tile_{i}_{j}.tif",
            scene[:, 30 * i : 30 * i + 30, 30 * j : 30 * j + 30],
            ORIGIN[0] + 300 * j,
            ORIGIN[1] - 300 * i,
        )
        for i in range(2)
        for j in range(3)
    ]


def band(cube, number=0):
    """Return a band as a map, NaN where pixels are not valid."""
    rows = cube.samples[:, number].astype(float)
    return np.asarray(cube.to_map(rows, fill_value=np.nan).compute())


def grid_of(cube):
    return tuple(cube.geobox.transform)[:6]


def test_tiles_of_one_grid_are_the_scene(scene, tiles):
    cube = daskclust.open_mosaic(tiles)
    assert cube.shape == (60, 90, 2)
    np.testing.assert_array_equal(band(cube, 1), scene[1])
    np.testing.assert_allclose(
        grid_of(cube), (10, 0, ORIGIN[0], 0, -10, ORIGIN[1]), rtol=0, atol=1e-6
    )
    np.testing.assert_array_equal(band(daskclust.open_mosaic(tiles[::-1])), scene[0])
    assert cube.samples.dtype == np.float32


def test_one_coordinate_system_in_different_words(tiles):
    ((_, (tile,)),) = open_tiles(tiles[:1], None, False)
    words = tile.crs.replace("WGS 84 / UTM zone 33N", "zone 33")
    words = words.replace(',AUTHORITY["EPSG","32633"]', "")
    assert words != tile.crs
    transform, crs, shape = target_grid([replace(tile, crs=words)], None, UTM, None, None)
    assert shape == (30, 30)
    assert shift_of_tile(replace(tile, crs=words), transform, crs, shape) == (0, 0)


def test_labels_and_maps_lie_where_the_tiles_lie(scene, tiles, tmp_path):
    cube = daskclust.open_mosaic(tiles[1:])  # the tile in the upper left corner is missing
    model = daskclust.KMeans(2, random_state=0).fit(cube)
    cube.write_labels(model.labels_, tmp_path / "map.tif")
    with rasterio.open(tmp_path / "map.tif") as file:
        labels, nodata = file.read(1), file.nodata
        np.testing.assert_allclose(
            tuple(file.transform)[:6], (10, 0, ORIGIN[0], 0, -10, ORIGIN[1]), rtol=0, atol=1e-6
        )
    assert (labels[:30, :30] == nodata).all()
    expected = model.predict(scene.reshape(2, -1).T.astype(np.float32)).reshape(60, 90)
    np.testing.assert_array_equal(labels[30:], expected[30:])


@pytest.mark.parametrize("resampling", ["nearest", "bilinear", "cubic", "average"])
@pytest.mark.parametrize("resolution", [10.0, 25.0])
def test_reprojected_values_are_those_of_the_stitched_image(
    scene, tiles, tmp_path, resampling, resolution
):
    cube = daskclust.open_mosaic(
        tiles, crs="EPSG:3035", resolution=resolution, resampling=resampling
    )
    assert cube.geobox.crs.epsg == 3035
    grid = cube.geobox.transform
    np.testing.assert_allclose(np.array([grid.c, grid.f]) % resolution % resolution, 0, atol=1e-6)
    stitched = write(tmp_path / "stitched.tif", scene, *ORIGIN)
    with (
        rasterio.open(stitched) as file,
        WarpedVRT(
            file,
            crs="EPSG:3035",
            transform=grid,
            height=cube.shape[0],
            width=cube.shape[1],
            resampling=Resampling[resampling],
            tolerance=1e-9,
            # By default GDAL measures these in the window that it reads.
            XSCALE=10.0 / resolution,
            YSCALE=10.0 / resolution,
        ) as warped,
    ):
        expected = warped.read().astype(float)
    # Compare pixels away from the borders of tiles.
    rows, columns = np.indices(cube.shape[:2])
    x, y = grid * (columns.ravel() + 0.5, rows.ravel() + 0.5)
    x, y = map(np.asarray, transform("EPSG:3035", UTM, x, y))
    far = np.ones(len(x), bool)
    for position, edges in (
        (x - ORIGIN[0], range(0, 901, 300)),
        (ORIGIN[1] - y, range(0, 601, 300)),
    ):
        far &= (position > 0) & (position < max(edges))
        far &= np.min([np.abs(position - edge) for edge in edges], axis=0) > 3 * max(10, resolution)
    far = far.reshape(cube.shape[:2])
    assert far.mean() > 0.1
    for number in range(2):
        difference = band(cube, number)[far] - expected[number][far]
        # The map projection changes the scale by up to 0.2 %, and the width of the kernels with it.
        limit = {"nearest": 0, "average": 1}.get(resampling, 20 if resolution > 10 else 1)
        # Releases of PROJ differ by up to 1 mm, so that a nearest pixel may be another one.
        n_others = 2 if resampling == "nearest" else 0
        assert (np.abs(difference) > limit).sum() <= n_others


@pytest.mark.parametrize(("resampling", "overlap"), [("nearest", "first"), ("cubic", "mean")])
def test_values_do_not_depend_on_blocks(tiles, resampling, overlap, monkeypatch):
    options = {"crs": "EPSG:3035", "resolution": 7.0}
    options |= {"resampling": resampling, "overlap": overlap}
    monkeypatch.setattr("daskclust.scenes.mosaic_grid.UNIT", 40)
    expected = band(daskclust.open_mosaic(tiles, **options))
    for chunks in ((17, 23), (64, 1000)):
        np.testing.assert_array_equal(
            band(daskclust.open_mosaic(tiles, chunks=chunks, **options)), expected
        )


@pytest.mark.parametrize(
    ("crs", "size", "target", "resolution"),
    [
        (UTM, 10.0, "EPSG:3035", 13.0),
        (UTM, 10.0, UTM, 20.0),  # centers of pixels are on edges of pixels
        ("EPSG:3413", 20_000.0, "EPSG:3571", 15_000.0),  # the pole: polynomials are not exact
    ],
)
@pytest.mark.parametrize("window_bytes", [2**26, 10_000])
def test_nearest_pixels_are_those_of_gdal(
    crs, size, target, resolution, window_bytes, tmp_path, monkeypatch
):
    monkeypatch.setattr("daskclust.scenes.mosaic_image._WINDOW_BYTES", window_bytes)
    values = np.random.default_rng(0).integers(1, 60_000, (1, 530, 560), np.uint16)
    left, top = ORIGIN if crs == UTM else (-5_600_000.0, 5_300_000.0)
    path = write(tmp_path / "tile.tif", values, left, top, size, crs)
    cube = daskclust.open_mosaic([path], crs=target, resolution=resolution)
    with (
        rasterio.open(path) as file,
        WarpedVRT(
            file,
            crs=target,
            transform=cube.geobox.transform,
            height=cube.shape[0],
            width=cube.shape[1],
            tolerance=1e-9,
        ) as warped,
    ):
        expected = warped.read(1)
    assert (expected > 0).mean() > 0.5
    # Releases of PROJ differ by up to 1 mm, so that a few pixels have another neighbor.
    assert (np.nan_to_num(band(cube)) != expected).mean() < 2e-4


def test_two_zones_meet(tmp_path):
    # The value of a pixel is its latitude in units of 1e-4 degrees.
    paths = []
    for crs, left in (("EPSG:32632", 764_000.0), ("EPSG:32633", 232_000.0)):
        rows, columns = np.indices((60, 60))
        x, y = left + 50.0 + 100 * columns, 5_100_000.0 - 50 - 100 * rows
        _, latitude = transform(crs, "EPSG:4326", x.ravel(), y.ravel())
        values = np.rint(1e4 * (np.array(latitude) - 40)).astype(np.uint16).reshape(1, 60, 60)
        paths.append(write(tmp_path / f"{crs[-5:]}.tif", values, left, 5_100_000.0, 100.0, crs))
    cube = daskclust.open_mosaic(paths, crs="EPSG:3035", resolution=100.0)
    values, grid = band(cube), cube.geobox.transform
    rows, columns = np.nonzero(~np.isnan(values))
    _, latitude = transform("EPSG:3035", "EPSG:4326", *(grid * (columns + 0.5, rows + 0.5)))
    # Nearest pixels are at most 71 m away: 6.4e-4 degrees.
    assert np.abs(values[rows, columns] - 1e4 * (np.array(latitude) - 40)).max() < 7.5
    assert len(rows) > 3700  # both tiles, which overlap a little


def test_overlaps(tmp_path):
    one = np.full((1, 4, 4), 2, np.uint8)
    one[0, 0, 3] = 0  # missing
    other = np.full((1, 4, 4), 5, np.uint8)
    paths = [write(tmp_path / "a.tif", one, 0, 40), write(tmp_path / "b.tif", other, 20, 40)]

    def row(number, **options):
        return band(daskclust.open_mosaic(paths, **options))[number].tolist()

    assert row(1) == [2, 2, 2, 2, 5, 5]
    assert row(0) == [2, 2, 2, 5, 5, 5]
    assert row(1, overlap="last") == [2, 2, 5, 5, 5, 5]
    assert row(1, overlap="mean") == [2, 2, 4, 4, 5, 5]  # 3.5 is rounded to even
    paths.reverse()
    assert row(1) == [2, 2, 5, 5, 5, 5]
    assert row(1, overlap="mean") == [2, 2, 4, 4, 5, 5]


def test_tiles_of_different_types_scales_and_missing_values(tmp_path):
    paths = [
        write(tmp_path / "a.tif", np.full((1, 2, 2), 10, np.uint8), 0, 20, scales=(0.5,)),
        write(tmp_path / "b.tif", [[[7, -9], [7, 7]]] * np.ones(1, np.int16), 20, 20, nodata=-9),
        write(tmp_path / "c.tif", np.full((1, 2, 2), 3.5, np.float32), 40, 20, nodata=None),
    ]
    cube = daskclust.open_mosaic(paths)
    assert band(cube)[1].tolist() == [5, 5, 7, 7, 3.5, 3.5]
    assert np.isnan(band(cube)[0, 3])
    # Zeros of a file without a nodata value are values.
    zeros = write(tmp_path / "d.tif", np.zeros((1, 2, 2), np.uint8), 60, 20, nodata=None)
    assert band(daskclust.open_mosaic([zeros]))[0].tolist() == [0, 0]


def test_scale_and_offset_of_all_tiles_are_kept(tmp_path):
    values = np.full((1, 2, 2), 1100, np.uint16)
    paths = [
        write(tmp_path / f"{i}.tif", values, 20 * i, 20, scales=(1e-4,), offsets=(-0.1,))
        for i in range(2)
    ]
    np.testing.assert_allclose(band(daskclust.open_mosaic(paths)), 0.01, rtol=1e-6)


def test_bands_of_several_resolutions_and_dates(tmp_path):
    fine = np.arange(16, dtype=np.uint8).reshape(1, 4, 4) + 1
    items = []
    for date in (0, 100):
        coarse = np.full((1, 2, 2), 50 + date, np.uint8)
        items.append(
            [
                write(tmp_path / f"b02_{date}.tif", fine + date, 0, 40, 10.0),
                write(tmp_path / f"b05_{date}.tif", coarse, 0, 40, 20.0),
            ]
        )
    with pytest.raises(ValueError, match="must have the same number of bands"):
        daskclust.open_mosaic([items[0], items[1][0]])
    cube = daskclust.open_mosaic(items, time=["2024-06-01", "2023-06-01"])
    assert cube.shape == (4, 4, 4)
    np.testing.assert_array_equal(band(cube, 0), fine[0] + 100)  # the earlier date comes first
    np.testing.assert_array_equal(band(cube, 3), np.full((4, 4), 50))
    with pytest.raises(ValueError, match="time must have 2 dates, one per item, got 1"):
        daskclust.open_mosaic(items, time=["2024-06-01"])


def test_stac_items_and_xarray_objects(scene, tiles):
    import rioxarray

    items = [
        SimpleNamespace(id=str(i), assets={"all": SimpleNamespace(href=path)})
        for i, path in enumerate(tiles)
    ]
    np.testing.assert_array_equal(band(daskclust.open_mosaic(items, assets=["all"])), scene[0])
    with pytest.raises(ValueError, match="must have the assets"):
        daskclust.open_mosaic(items, assets=["red"])
    objects = [rioxarray.open_rasterio(path, chunks=16) for path in tiles]
    np.testing.assert_array_equal(band(daskclust.open_mosaic(objects)), scene[0])
    part = daskclust.open_mosaic([objects[0][:, 4:20, 8:30]])
    np.testing.assert_array_equal(band(part), scene[0, 4:20, 8:30])
    np.testing.assert_allclose(grid_of(part)[2::3], (ORIGIN[0] + 80, ORIGIN[1] - 40), atol=1e-6)


def test_regions_and_grids_of_others(scene, tiles):
    region = ORIGIN[0] + 200, ORIGIN[1] - 400, ORIGIN[0] + 500, ORIGIN[1] - 100
    cube = daskclust.open_mosaic(tiles, region=region)
    np.testing.assert_array_equal(band(cube), scene[0, 10:40, 20:50])
    np.testing.assert_array_equal(band(daskclust.open_mosaic(tiles, like=cube)), band(cube))
    np.testing.assert_array_equal(
        band(daskclust.open_mosaic(tiles, like=tiles[0])), scene[0, :30, :30]
    )
    with pytest.raises(ValueError, match="region must overlap with the tiles"):
        daskclust.open_mosaic(tiles, region=(0, 0, 10, 10))
    with pytest.raises(ValueError, match="region must be"):
        daskclust.open_mosaic(tiles, region=(10, 0, 0, 10))


@pytest.mark.parametrize("resampling", ["nearest", "bilinear"])
@pytest.mark.parametrize("kind", ["mask", "alpha"])
@pytest.mark.parametrize("aligned", [True, False])
def test_pixels_hidden_by_a_mask_or_an_alpha_band(tmp_path, kind, aligned, resampling):
    values = np.full((1, 40, 40), 7, np.uint8)
    visible = np.full((40, 40), 255, np.uint8)
    visible[:20] = 0
    if kind == "alpha":
        values = np.stack([values[0], visible])
    path = write(tmp_path / "tile.tif", values, *ORIGIN, nodata=None)
    with rasterio.open(path, "r+") as file:
        if kind == "mask":
            file.write_mask(visible)
        else:
            file.colorinterp = [rasterio.enums.ColorInterp.gray, rasterio.enums.ColorInterp.alpha]
    options = {} if aligned else {"crs": "EPSG:3035", "resolution": 10.0}
    cube = daskclust.open_mosaic([path], resampling=resampling, **options)
    assert cube.shape[2] == 1
    assert set(band(cube)[~np.isnan(band(cube))].tolist()) == {7.0}
    assert abs(cube.n_valid - 800) <= (0 if aligned else 60)  # 60 pixels along the border


def test_bottom_up_tiles(tmp_path):
    values = np.arange(1, 9, dtype=np.uint8).reshape(1, 4, 2)
    up = rasterio.Affine(10.0, 0.0, 0.0, 0.0, 10.0, 0.0)  # the first row is the southern one
    path = write(tmp_path / "up.tif", values, 0, 0, transform=up)
    cube = daskclust.open_mosaic([path])
    np.testing.assert_array_equal(band(cube), values[0, ::-1])
    np.testing.assert_allclose(grid_of(cube), (10, 0, 0, 0, -10, 40), rtol=0, atol=1e-9)


def test_bad_input(scene, tiles, tmp_path):
    with pytest.raises(ValueError, match="at least one tile"):
        daskclust.open_mosaic([])
    with pytest.raises(OSError, match=r"nosuch\.tif' cannot be opened"):
        daskclust.open_mosaic([tiles[0], tmp_path / "nosuch.tif"])
    plain = write(tmp_path / "plain.tif", scene, 0, 0, crs=None)
    with pytest.raises(ValueError, match="must have a coordinate system, got none"):
        daskclust.open_mosaic([plain])
    single = write(tmp_path / "single.tif", scene[:1], 0, 0)
    with pytest.raises(ValueError, match="same number of bands, got 2"):
        daskclust.open_mosaic([*tiles, single])
    with pytest.raises(ValueError, match="resolution must be given"):
        daskclust.open_mosaic(tiles, crs="EPSG:3035")
    with pytest.raises(ValueError, match=r"at most 1e\+11 pixels, got"):
        daskclust.open_mosaic(tiles, resolution=1e-4)
    east = write(tmp_path / "east.tif", scene[:1], 820_000.0, 100_000.0, 1000, "EPSG:32660")
    with pytest.raises(ValueError, match="must not cross the antimeridian"):
        daskclust.open_mosaic([east], crs="EPSG:4326", resolution=0.01)


def test_damaged_tiles_are_named_or_left_out(scene, tiles, tmp_path):
    (tmp_path / "broken.tif").write_bytes(b"II*\0 and nothing else")
    with pytest.raises(OSError, match=r"broken\.tif' cannot be opened"):
        daskclust.open_mosaic([*tiles, tmp_path / "broken.tif"])
    with pytest.warns(DaskclustWarning, match="1 of 7 items are left out"):
        cube = daskclust.open_mosaic([*tiles, tmp_path / "broken.tif"], skip_damaged=True)
    np.testing.assert_array_equal(band(cube), scene[0])


def test_a_tile_that_changes_after_opening_is_an_error(scene, tiles):
    cube = daskclust.open_mosaic(tiles)
    write(tiles[2], scene[:, :30, :31], *ORIGIN)
    with pytest.raises(daskclust.exceptions.StoreError, match=r"tile_0_2\.tif"):
        band(cube)
