"""GeoTIFF and NetCDF at a URL: read by ranges, as from a file."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from daskclust import open_cube

rasterio = pytest.importorskip("rasterio", reason="needs the extra `raster`")
xarray = pytest.importorskip("xarray", reason="needs the extra `raster`")
pytest.importorskip("h5netcdf", reason="needs the extra `raster`")
pytest.importorskip("aiohttp", reason="fsspec reads http by it: pip install 'fsspec[http]'")
pytest.importorskip("requests", reason="fsspec reads http by it: pip install 'fsspec[http]'")

from rasterio.transform import from_origin  # noqa: E402

#: A process of its own: GDAL holds the interpreter's lock while it waits for an answer.
SERVER = """
import http.server, os, re, sys

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer(False)

    def do_GET(self):
        self.answer(True)

    def answer(self, with_body):
        path = os.path.join(sys.argv[1], os.path.basename(self.path))
        if not os.path.isfile(path):
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        with open(path, "rb") as file:
            content = file.read()
        first, last = 0, len(content) - 1
        wanted = re.match(r"bytes=(\\d+)-(\\d*)", self.headers.get("Range", ""))
        self.send_response(206 if wanted else 200)
        if wanted:
            first, last = int(wanted[1]), min(int(wanted[2] or last), last)
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(last + 1 - first))
        self.end_headers()
        if with_body:
            self.wfile.write(content[first : last + 1])

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""
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
    words = [sys.executable, "-c", SERVER, str(folder)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.kill()


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
