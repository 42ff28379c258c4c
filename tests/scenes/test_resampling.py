"""Label maps of another grid: the nearest of their pixels, whatever the blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

rasterio = pytest.importorskip("rasterio", reason="needs the extra `raster`")
pytest.importorskip("rioxarray", reason="needs the extra `raster`")

from pyproj import Transformer  # noqa: E402
from rasterio.crs import CRS  # noqa: E402
from rasterio.transform import Affine, from_origin  # noqa: E402
from rasterio.vrt import WarpedVRT  # noqa: E402

import daskclust  # noqa: E402
from daskclust.app import cli  # noqa: E402

HERE = from_origin(600_000, 5_200_000, 30, 30)


def write(path: Path, values: np.ndarray, crs: str | None, transform: Any, **more: Any) -> Path:
    values = np.atleast_3d(values.T).T
    with rasterio.open(
        path,
        "w",
        driver="GTiff",
        count=len(values),
        height=values.shape[1],
        width=values.shape[2],
        dtype=values.dtype.name,
        crs=crs,
        transform=transform,
        **more,
    ) as file:
        file.write(values)
    return path


def scene(folder: Path, chunks: tuple[int, int] = (16, 20)) -> Any:
    values = np.random.default_rng(0).integers(1, 100, (3, 40, 50)).astype("int16")
    return daskclust.open_cube(
        write(folder / "s.tif", values, "EPSG:32632", HERE), chunks=chunks, nodata=None
    )


def test_by_hand(tmp_path: Path) -> None:
    # Pixels of 60 m from the third pixel of the first row on; 0 means none, as the file says.
    labels = np.array([[1, 2], [3, 0]], "uint8")
    corner = from_origin(600_060, 5_200_000, 60, 60)
    path = write(tmp_path / "few.tif", labels, "EPSG:32632", corner, nodata=0)
    cube = scene(tmp_path)
    expected = np.full((40, 50), -1)
    expected[:2, 2:4], expected[:2, 4:6], expected[2:4, 2:4], expected[2:4, 4:6] = 1, 2, 3, 0
    opened = cube.open_map("labels", path, resample=True)
    assert_array_equal(opened.values.compute(), expected)
    rows, found = cube.rows_of(path, resample=True)
    image = np.full(2000, -1)
    image[rows] = found
    # Rows are pixels in the order of the blocks.
    assert_array_equal(cube.to_map(image).compute(), np.where(expected == 0, -1, expected))
    with pytest.raises(ValueError, match=r"got \(2, 2\)\. .* resample=True .*--resample-labels"):
        cube.rows_of(path)


@pytest.mark.parametrize("chunks", [(40, 50), (16, 20), (7, 9)])
@pytest.mark.parametrize(
    ("crs", "step"), [("EPSG:4326", (0.00021, 0.00013)), ("EPSG:32633", (17.0, 23.0))]
)
def test_as_gdal_resamples(
    tmp_path: Path, chunks: tuple[int, int], crs: str, step: tuple[float, float]
) -> None:
    to_own = Transformer.from_crs("EPSG:32632", crs, always_xy=True)
    left, top = to_own.transform(600_200, 5_199_900)
    shape = 60, 70
    labels = np.random.default_rng(1).integers(1, 7, shape).astype("int16")
    path = write(tmp_path / "l.tif", labels, crs, from_origin(left, top, *step), nodata=-1)
    cube = scene(tmp_path, chunks)
    found = cube.open_map("labels", path, resample=True).values
    assert found.chunks == cube.chunks
    image = found.compute()
    # Brute force: every center by itself.
    own = ~Affine(step[0], 0, left, 0, -step[1], top)
    for y, x in np.ndindex(40, 50):
        column, row = own * to_own.transform(*(HERE * (x + 0.5, y + 0.5)))
        inside = 0 <= row < shape[0] and 0 <= column < shape[1]
        assert image[y, x] == (labels[int(row), int(column)] if inside else -1)
    with (
        rasterio.open(path) as file,
        WarpedVRT(file, crs=CRS.from_epsg(32632), transform=HERE, width=50, height=40) as warped,
    ):
        # GDAL approximates positions: pixels near an edge may fall on either side.
        assert (warped.read(1) == image).mean() > 0.99


def test_the_same_grid_stays(tmp_path: Path) -> None:
    cube = scene(tmp_path)
    labels = np.arange(2000).reshape(40, 50) % 5
    path = write(tmp_path / "l.tif", labels.astype("uint8"), "EPSG:32632", HERE)
    opened = cube.open_map("labels", path, resample=True)
    assert opened.values.dtype == np.uint8
    assert_array_equal(opened.values, labels)


@pytest.mark.parametrize(
    ("crs", "transform", "message"),
    [
        (None, HERE, "must have a coordinate system and positions"),
        ("EPSG:32632", from_origin(900_000, 5_200_000, 30, 30), r"no pixel in common: .* \[900000"),
    ],
)
def test_maps_that_cannot_be_brought_over(
    tmp_path: Path, crs: str | None, transform: Any, message: str
) -> None:
    cube = scene(tmp_path)
    path = write(tmp_path / "l.tif", np.ones((4, 4), "uint8"), crs, transform)
    with pytest.raises(ValueError, match=message):
        cube.open_map("labels", path, resample=True)


def test_on_the_command_line(
    tmp_path: Path, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    scene(tmp_path)
    labels = np.repeat(np.arange(1, 5, dtype="uint8"), 25).reshape(10, 10)
    corner = from_origin(600_000, 5_200_000, 150, 120)
    path = write(tmp_path / "l.tif", labels, "EPSG:32632", corner, nodata=0)
    words = [
        *("fit", str(tmp_path / "s.tif"), "--estimator", "semisupervisedkmeans"),
        *("--n-clusters", "4", "--labels", str(path), "--output", str(tmp_path / "m.tif")),
        *("--scheduler", address, "--json"),
    ]
    assert cli.main(words) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "--resample-labels" in said
    assert cli.main([*words, "--resample-labels"]) == 0, capsys.readouterr().err
    with rasterio.open(tmp_path / "m.tif") as file:
        expected = np.repeat(np.repeat(labels, 4, axis=0), 5, axis=1)
        assert_array_equal(file.read(1), expected)
