"""GeoTIFF and NetCDF at a URL: read by ranges, as from a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from file_server import served
from numpy.testing import assert_array_equal

from daskclust import open_cube

rasterio = pytest.importorskip("rasterio", reason="needs the extra `raster`")
xarray = pytest.importorskip("xarray", reason="needs the extra `raster`")
pytest.importorskip("h5netcdf", reason="needs the extra `raster`")
pytest.importorskip("aiohttp", reason="fsspec reads http by it: pip install 'fsspec[http]'")
pytest.importorskip("requests", reason="fsspec reads http by it: pip install 'fsspec[http]'")

from rasterio.transform import from_origin  # noqa: E402

VALUES = np.random.default_rng(0).integers(0, 3000, (3, 40, 50)).astype("int16")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("served")
    sizes = {"count": 3, "height": 40, "width": 50, "dtype": "int16"}
    place = {"crs": "EPSG:32632", "transform": from_origin(600_000, 5_200_000, 30, 30)}
    with rasterio.open(folder / "s.tif", "w", driver="GTiff", **sizes, **place) as file:
        file.write(VALUES)
    array = xarray.DataArray(VALUES, dims=("band", "y", "x"), name="s")
    array.to_netcdf(folder / "s.nc", engine="h5netcdf")
    with served(folder) as found:
        yield found


@pytest.mark.parametrize("name", ["s.tif", "s.nc"])
def test_a_cube_at_a_url(url: str, name: str) -> None:
    cube = open_cube(f"{url}/{name}")
    assert cube.shape == (40, 50, 3)
    image = cube.stored_bands([0, 1, 2]).compute()
    assert_array_equal(image, VALUES.transpose(1, 2, 0))


@pytest.mark.parametrize("name", ["none.tif", "none.nc"])
def test_nothing_at_a_url_is_told(url: str, name: str) -> None:
    with pytest.raises(OSError, match="none"):
        open_cube(f"{url}/{name}")
