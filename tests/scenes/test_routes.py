"""One scene in all formats: the same samples and the same labels, whatever the route."""

from __future__ import annotations

import json
import shutil
import subprocess
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from file_server import served
from numpy.testing import assert_array_equal

pytest.importorskip("rasterio", reason="needs the extra `raster`")
xarray = pytest.importorskip("xarray", reason="needs the extra `raster`")
pytest.importorskip("rioxarray", reason="needs the extra `raster`")

import rasterio  # noqa: E402
import rasterio.shutil  # noqa: E402
from rasterio.transform import from_origin  # noqa: E402

import daskclust  # noqa: E402
from daskclust.app.cli import main  # noqa: E402

NODATA = -32768
WAVELENGTHS = [450.0, 550.0, 650.0, 850.0, 1600.0]
EMPTY = 3
TRANSFORM = from_origin(600_000, 5_200_000, 30, 30)
CHUNKS = 20, 16


def scene() -> np.ndarray:
    """Three kinds of ground, a band without data, a corner without data: (band, y, x)."""
    rng = np.random.default_rng(3)
    kinds = np.repeat(np.repeat(rng.integers(0, 3, (4, 5)), 12, axis=0), 10, axis=1)
    spectra = rng.integers(500, 6000, (3, 5))
    values = spectra[kinds].transpose(2, 0, 1) + rng.integers(-200, 200, (5, 48, 50))
    values = values.astype("int16")
    values[:, :9, :7] = NODATA
    values[EMPTY] = NODATA
    return values


def write_raster(path: Path, values: np.ndarray, driver: str, **more: Any) -> Path:
    count, height, width = values.shape
    with rasterio.open(
        path,
        "w",
        driver=driver,
        count=count,
        height=height,
        width=width,
        dtype=values.dtype.name,
        crs="EPSG:32632",
        transform=TRANSFORM,
        nodata=NODATA,
        **more,
    ) as file:
        file.write(values)
        file.scales = [1e-4] * count
    return path


def as_dataset(values: np.ndarray) -> Any:
    data = xarray.DataArray(
        values,
        dims=("band", "y", "x"),
        coords={
            "wavelength": ("band", WAVELENGTHS, {"units": "nm"}),
            "y": 5_200_000 - 15 - 30.0 * np.arange(48),
            "x": 600_000 + 15 + 30.0 * np.arange(50),
        },
        attrs={"_FillValue": np.int16(NODATA), "scale_factor": 1e-4},
        name="reflectance",
    )
    return data.to_dataset().rio.write_crs("EPSG:32632")


def geotiff(folder: Path) -> Any:
    return write_raster(
        folder / "s.tif", scene(), "GTiff", tiled=True, blockxsize=16, blockysize=16
    )


def cog(folder: Path) -> Any:
    plain = write_raster(folder / "plain.tif", scene(), "GTiff")
    rasterio.shutil.copy(str(plain), str(folder / "cog.tif"), driver="COG")
    return folder / "cog.tif"


def vrt(folder: Path) -> Any:
    rasterio.shutil.copy(str(geotiff(folder)), str(folder / "s.vrt"), driver="VRT")
    return folder / "s.vrt"


def envi(folder: Path) -> Any:
    write_raster(folder / "s.img", scene(), "ENVI", interleave="bil")
    header = folder / "s.hdr"
    if "data gain" not in header.read_text():
        gains = ",".join(["0.0001"] * 5)
        header.write_text(header.read_text() + f"data gain values = {{{gains}}}\n")
    return header


def bands(folder: Path) -> Any:
    return [write_raster(folder / f"B{n:02d}.tif", scene()[n : n + 1], "GTiff") for n in range(5)]


def netcdf(folder: Path) -> Any:
    as_dataset(scene()).to_netcdf(folder / "s.nc", engine="h5netcdf")
    return folder / "s.nc"


def as_variables() -> Any:
    cube = as_dataset(scene()).drop_vars("wavelength").reflectance
    return xarray.Dataset({f"B{n}": cube.isel(band=n).rename(f"B{n}") for n in range(5)})


def netcdf_variables(folder: Path) -> Any:
    as_variables().to_netcdf(folder / "v.nc", engine="h5netcdf")
    return folder / "v.nc"


def zarr_variables(folder: Path) -> Any:
    as_variables().to_zarr(folder / "v.zarr", zarr_format=3, consolidated=False)
    return folder / "v.zarr"


def stack() -> Any:
    """Five dates of one band."""
    data = as_dataset(scene()).drop_vars("wavelength")
    return data.rename(band="time").expand_dims(band=1, axis=1)


def netcdf_stack(folder: Path) -> Any:
    stack().to_netcdf(folder / "4.nc", engine="h5netcdf")
    return folder / "4.nc"


def zarr_stack(folder: Path) -> Any:
    stack().to_zarr(folder / "4.zarr", zarr_format=3, consolidated=False)
    return folder / "4.zarr"


def zipped(folder: Path) -> Any:
    return Path(shutil.make_archive(str(folder / "3"), "zip", zarr_3(folder)))


def zipped_tif(folder: Path) -> Any:
    with zipfile.ZipFile(folder / "tif.zip", "w") as file:
        file.write(geotiff(folder), "s.tif")
    return folder / "tif.zip"


def samples() -> np.ndarray:
    """What is stored where there are no attributes: NaN where there is no data."""
    values = (scene().astype("f8") * 1e-4).astype("f4")
    return np.where(scene() == NODATA, np.float32(np.nan), values)


def npy(folder: Path) -> Any:
    np.save(folder / "s.npy", samples())
    return folder / "s.npy"


def zarr_3(folder: Path) -> Any:
    as_dataset(scene()).to_zarr(folder / "3.zarr", zarr_format=3, consolidated=False)
    return folder / "3.zarr"


def zarr_2(folder: Path) -> Any:
    as_dataset(scene()).to_zarr(folder / "2.zarr", zarr_format=2, consolidated=False)
    return folder / "2.zarr"


def consolidated(folder: Path) -> Any:
    """Servers of files cannot list folders."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Consolidated metadata")
        as_dataset(scene()).to_zarr(folder / "c.zarr", zarr_format=3, consolidated=True)
    return folder / "c.zarr"


def by_xarray(folder: Path) -> Any:
    return xarray.open_dataset(netcdf(folder), engine="h5netcdf", chunks={})


def by_rioxarray(folder: Path) -> Any:
    import rioxarray

    return rioxarray.open_rasterio(geotiff(folder), chunks={}, mask_and_scale=True)


def by_numpy(folder: Path) -> Any:
    return samples()


@dataclass(frozen=True)
class Route:
    """A way for the scene to come in."""

    write: Callable[[Path], Any]
    #: Keywords of `open_cube`, besides the block.
    options: dict[str, Any] = field(default_factory=dict)
    placed: bool = True
    served: bool = False

    def source(self, folder: Path, server: str) -> Any:
        if self.served and self.write is not cog:
            # GDAL reads URLs by itself.
            pytest.importorskip("aiohttp", reason="fsspec reads http by it: 'fsspec[http]'")
        found = self.write(folder)
        return f"{server}/{folder.name}/{found.name}" if self.served else found

    def words(self, folder: Path, server: str) -> list[str]:
        """The same on the command line."""
        source = self.source(folder, server)
        paths = [str(path) for path in (source if isinstance(source, list) else [source])]
        return [*paths, *(f"--{name}={','.join(value)}" for name, value in self.options.items())]

    def __str__(self) -> str:
        return self.write.__name__ + ("-url" if self.served else "")


FILES = [
    *map(Route, (geotiff, cog, vrt, envi, bands, netcdf, netcdf_variables, netcdf_stack)),
    *map(Route, (zarr_3, zarr_2, zarr_variables, zarr_stack, zipped, zipped_tif)),
    Route(npy, {"dims": ("band", "y", "x")}, placed=False),
    *(Route(write, served=True) for write in (consolidated, cog, netcdf)),
]
IN_PYTHON = [
    Route(by_xarray),
    Route(by_rioxarray),
    Route(by_numpy, {"dims": ("band", "y", "x")}, placed=False),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.getbasetemp()) as url:
        yield url


def labels_of(source: Any, **options: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    cube = daskclust.open_cube(source, chunks=CHUNKS, **options)
    with pytest.warns(daskclust.exceptions.DaskclustWarning, match="Bands 3 hold no data"):
        rows = cube.samples.compute()
    model = daskclust.KMeans(4, random_state=0).fit(cube.samples)
    return cube, rows, cube.to_map(model.labels_).compute()


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[np.ndarray, np.ndarray]:
    _, rows, image = labels_of(zarr_3(tmp_path_factory.mktemp("expected")))
    valid = (scene()[[0, 1, 2, 4]] != NODATA).all(axis=0)
    assert_array_equal(image >= 0, valid)
    assert len(rows) == valid.sum()
    first = (scene()[[0, 1, 2, 4], 0, 7].astype("f8") * 1e-4).astype("f4")
    assert_array_equal(rows[0], first)
    return rows, image


@pytest.mark.parametrize("route", FILES + IN_PYTHON, ids=str)
def test_every_route_gives_the_same_labels(
    route: Route, expected: Any, tmp_path: Path, server: str
) -> None:
    cube, rows, image = labels_of(route.source(tmp_path, server), **route.options)
    assert rows.dtype == np.float32
    if route.write is by_rioxarray:
        # It scales in float32: the last bit of the samples is its own.
        np.testing.assert_allclose(rows, expected[0], rtol=2e-7)
    else:
        assert_array_equal(rows, expected[0])
    assert_array_equal(image, expected[1])
    assert cube.bands.tolist() == [0, 1, 2, 4]
    assert (cube.georeference.crs_text() is not None) == route.placed


def gdal(*words: object) -> Any:
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "ERROR" not in done.stderr
    return json.loads(done.stdout) if done.stdout else None


def as_labels(image: np.ndarray, nodata: int) -> np.ndarray:
    return np.where(image == nodata, -1, image.astype(int))


def check_map(path: Path, image: np.ndarray, placed: bool) -> None:
    """A map is the one that is wanted, for GDAL's programs and for rioxarray."""
    import rioxarray

    nodata = 255 if path.suffix == ".tif" else -1
    names = "cluster_0 cluster_1 cluster_2 cluster_3"
    if shutil.which("gdalinfo") and shutil.which("gdal_translate"):
        said = gdal("gdalinfo", "-json", path)
        assert said["size"] == [50, 48]
        assert said["bands"][0]["noDataValue"] == nodata
        if placed:
            assert 'ID["EPSG",32632]]' in said["coordinateSystem"]["wkt"]
            assert said["geoTransform"] == [600_000, 30, 0, 5_200_000, 0, -30]
        if path.suffix == ".tif":
            assert len(said["bands"][0]["colorTable"]["entries"]) == 256
            assert said["bands"][0]["metadata"][""]["flag_meanings"] == names
        else:
            assert said["metadata"][""]["flag_meanings"] == names
            assert len(said["metadata"][""]["flag_colors"].split()) == 4
        gdal("gdal_translate", "-q", path, path.with_suffix(".copy.tif"))
        with rasterio.open(path.with_suffix(".copy.tif")) as file:
            assert file.nodata == nodata
            assert_array_equal(as_labels(file.read(1), nodata), image)
    if path.suffix == ".tif":
        opened = rioxarray.open_rasterio(path, masked=False)[0]
    else:
        opened = xarray.open_zarr(path, decode_coords="all", mask_and_scale=False).labels
    assert_array_equal(as_labels(opened.values, nodata), image)
    if placed:
        assert opened.rio.crs.to_epsg() == 32632
        assert opened.rio.transform() == TRANSFORM
    opened.close()


#: Commands open files as Python does. Two readers are tested here, the others by slow tests.
BY_COMMAND = (geotiff, zarr_3)


@pytest.mark.parametrize(
    "route",
    [
        pytest.param(
            route,
            id=str(route),
            marks=() if route.write in BY_COMMAND and not route.served else pytest.mark.slow,
        )
        for route in FILES
    ],
)
def test_every_file_gives_the_same_maps_on_the_command_line(
    route: Route,
    expected: Any,
    tmp_path: Path,
    server: str,
    address: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = route.words(tmp_path, server)
    local = ("--chunks", "20x16", "--scheduler", address, "--json")
    code, out, err = run(
        *(capsys, "fit", *words, "--n-clusters", 4, "--seed", 0, *local),
        *("--output", tmp_path / "map.tif", "--model", tmp_path / "m.model"),
    )
    assert code == 0, err
    assert json.loads(out)["bands"] == {"used": 4, "stored": 5}
    code, _, err = run(
        *(capsys, "predict", *words, "--model", tmp_path / "m.model", *local),
        *("--output", tmp_path / "map.zarr"),
    )
    assert code == 0, err
    for name in ("map.tif", "map.zarr"):
        check_map(tmp_path / name, expected[1], route.placed)


def run(capsys: Any, *words: Any) -> tuple[int, str, str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            code = main([*map(str, words)])
    except SystemExit as error:
        code = int(error.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


def test_the_command_line_takes_files_and_models_remember_their_data(
    expected: Any, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.chdir(tmp_path)
    local = ("--scheduler", address, "--chunks", "20x16", "--json")
    fit = ("--n-clusters", "4", "--seed", "0", *local)
    for name, source in (("tif", [geotiff(tmp_path)]), ("bands", bands(tmp_path))):
        code, out, err = run(
            capsys, "fit", *source, *fit, "--output", f"{name}.zarr", "--model", f"{name}.model"
        )
        assert code == 0, err
        assert json.loads(out)["bands"] == {"used": 4, "stored": 5}
        assert_array_equal(zarr.open_group(f"{name}.zarr", mode="r")["labels"][:], expected[1])
    # The model takes its bands from the whole scene, by another route.
    code, _, err = run(
        capsys, "predict", netcdf(tmp_path), "--model", "tif.model", "--output", "p.zarr", *local
    )
    assert code == 0, err
    assert_array_equal(zarr.open_group("p.zarr", mode="r")["labels"][:], expected[1])
    raw = write_raster(tmp_path / "raw.tif", scene(), "GTiff")
    with rasterio.open(raw, "r+") as file:
        file.scales = [1.0] * 5
    six = write_raster(tmp_path / "six.tif", np.concatenate([scene(), scene()[:1]]), "GTiff")
    for wrong, message in (
        (raw, "values of the model are scaled (scale_factor 0.0001, add_offset 0)"),
        (six, "got 6 bands; the model was fitted to 4 of 5"),
    ):
        words = ("predict", wrong, "--model", "tif.model", "--output", "q.zarr", *local)
        code, _, err = run(capsys, *words)
        assert code == 1
        assert message in err
    code, out, err = run(capsys, "inspect", tmp_path / "s.tif")
    assert code == 0, err
    assert "raster" in out
    assert "scale_factor 0.0001" in out


def test_polygons_in_and_a_geotiff_out(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    pytest.importorskip("pyogrio", reason="needs the extra `raster`")
    monkeypatch.chdir(tmp_path)
    geotiff(tmp_path)
    features = []
    for name, (top, left) in {"wheat": (12, 10), "beet": (24, 30)}.items():
        x, y = 600_000 + 30 * left, 5_200_000 - 30 * top
        ring = [(x, y), (x + 150, y), (x + 150, y - 150), (x, y - 150), (x, y)]
        geometry = {"type": "Polygon", "coordinates": [ring]}
        features.append({"type": "Feature", "properties": {"crop": name}, "geometry": geometry})
    crs = {"type": "name", "properties": {"name": "urn:ogc:def:crs:EPSG::32632"}}
    fields = {"type": "FeatureCollection", "crs": crs, "features": features}
    (tmp_path / "fields.geojson").write_text(json.dumps(fields))
    words = (
        *("fit", "s.tif", "--estimator", "semisupervisedkmeans", "--n-clusters", "3"),
        *("--bad-bands", "3", "--labels", "fields.geojson", "--class-column", "crop"),
        *("--output", "map.tif", "--scheduler", address, "--seed", "0", "--json"),
    )
    code, out, err = run(capsys, *words)
    assert code == 0, err
    found = json.loads(out)
    assert found["agreement_with_labels"]["class_names"] == ["beet", "wheat"]
    assert found["agreement_with_labels"]["pixels"] == 50
    with rasterio.open("map.tif") as file:
        image = file.read(1)
        assert file.crs.to_epsg() == 32632
        assert file.tags(1)["flag_meanings"] == "beet wheat cluster_2"
        assert sorted(np.unique(image).tolist()) == [0, 1, 2, 255]
        assert (image[24:29, 30:35] == 0).all()
        assert (image[12:17, 10:15] == 1).all()
    assert run(capsys, *words)[0] == 0  # its own output
    code, _, err = run(capsys, *words, "--set", "tol=0.5")
    assert code == 1
    assert "exists already" in err
    (tmp_path / "map.tif").unlink()
    geotiff(tmp_path).rename("map.tif")
    geotiff(tmp_path)
    code, _, err = run(capsys, *words, "--overwrite")
    assert code == 1
    assert "was not written by daskclust" in err


def test_bad_input_is_one_clear_line(tmp_path: Path) -> None:
    whole = geotiff(tmp_path)
    cut = tmp_path / "cut.tif"
    cut.write_bytes(whole.read_bytes()[:100])
    with pytest.raises(OSError, match="Is the file complete"):
        daskclust.open_cube(cut)
    cut = tmp_path / "cut.nc"
    cut.write_bytes(netcdf(tmp_path).read_bytes()[:500])
    with pytest.raises(OSError, match="Is the file complete"):
        daskclust.open_cube(cut)
    other = write_raster(tmp_path / "other.tif", scene()[:1, :40], "GTiff")
    with pytest.raises(ValueError, match="differ in shape"):
        daskclust.open_cube([*bands(tmp_path), other])
    np.save(tmp_path / "a.npy", scene())
    with pytest.raises(ValueError, match="order cannot be guessed"):
        daskclust.open_cube(tmp_path / "a.npy")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        daskclust.open_cube(tmp_path / "none.tif")


# Bad input
