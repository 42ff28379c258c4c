"""``daskclust fit`` on a cube ten times larger than its workers: memory, time, the report.

``python tests/benchmarks/cube.py`` writes a cube of ``--gigabytes`` in a ``--format`` and runs
``daskclust fit`` from the file to label map, model and report on two workers of 1 GB each.  The
memory of all processes is measured from outside.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import zarr
from _timing import print_table

BANDS = 100
LIMIT = 10**9


def _tiles(side: int, block: int) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yield square tiles (y, x, band) of noisy spectra of five classes in patches."""
    rng = np.random.default_rng(0)
    spectra = rng.integers(500, 4000, (5, BANDS))
    # Few distinct spectra, repeated: it is clustering that is measured, not the disk.
    rows = spectra[:, None] + rng.integers(-100, 100, (5, 64, BANDS))
    for y in range(0, side, block):
        for x in range(0, side, block):
            kind = (y // block + x // block // 3) % 5
            tile = np.resize(rows[kind].astype(np.int16), (block, block, BANDS))
            if (y + x) // block % 8 == 0:
                tile[: block // 2, : block // 4] = -9999
            yield y, x, tile[: min(block, side - y), : min(block, side - x)]


def write_zarr(path: Path, side: int, block: int) -> None:
    """Write a square int16 cube, block by block."""
    array = zarr.create_array(
        path,
        shape=(side, side, BANDS),
        chunks=(block, block, BANDS),
        dtype="int16",
        dimension_names=("y", "x", "band"),
        attributes={"_FillValue": -9999},
    )
    for y, x, tile in _tiles(side, block):
        array[y : y + block, x : x + block] = tile


def write_geotiff(path: Path, side: int, block: int) -> None:
    """Write the same as a tiled GeoTIFF, deflated."""
    import rasterio
    from rasterio.windows import Window

    with rasterio.open(
        path,
        "w",
        driver="GTiff",
        count=BANDS,
        height=side,
        width=side,
        dtype="int16",
        nodata=-9999,
        crs="EPSG:32632",
        transform=rasterio.Affine(30, 0, 600_000, 0, -30, 5_200_000),
        tiled=True,
        blockxsize=block,
        blockysize=block,
        compress="deflate",
        zlevel=1,
        bigtiff="yes",
    ) as file:
        for y, x, tile in _tiles(side, block):
            window = Window(x, y, tile.shape[1], tile.shape[0])
            file.write(np.ascontiguousarray(tile.transpose(2, 0, 1)), window=window)


def write_netcdf(path: Path, side: int, block: int) -> None:
    """Write the same as NetCDF, chunked and deflated."""
    import h5netcdf

    with h5netcdf.File(path, "w") as file:
        file.dimensions = {"y": side, "x": side, "band": BANDS}
        array = file.create_variable(
            "scene",
            ("y", "x", "band"),
            dtype="int16",
            chunks=(block, block, BANDS),
            compression="gzip",
            compression_opts=1,
            fillvalue=-9999,
        )
        for y, x, tile in _tiles(side, block):
            array[y : y + tile.shape[0], x : x + tile.shape[1]] = tile


#: Writers by the names that their files get.
FORMATS: dict[str, Callable[[Path, int, int], None]] = {
    "scene.zarr": write_zarr,
    "scene.tif": write_geotiff,
    "scene.nc": write_netcdf,
}


def _run(*arguments: str, folder: Path) -> tuple[dict[str, Any], float, float]:
    """Run a command; return its results, the largest worker and the client, in bytes."""
    log = folder / "progress.txt"
    with log.open("a") as progress:
        process = subprocess.Popen(
            [sys.executable, "-m", "daskclust", *arguments, "--json"],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=progress,
            text=True,
            env={**os.environ, "MALLOC_TRIM_THRESHOLD_": "65536"},
        )
    client = psutil.Process(process.pid)
    worker = mine = 0.0
    while process.poll() is None:
        try:
            mine = max(mine, client.memory_info().rss)
            for child in client.children(recursive=True):
                worker = max(worker, child.memory_info().rss)
        except psutil.Error:
            pass
        time.sleep(0.2)
    assert process.stdout is not None
    out = process.stdout.read()
    process.stdout.close()
    if process.returncode:
        raise RuntimeError(log.read_text()[-3000:])
    return json.loads(out), worker, mine


def measure(
    side: int, block: int, *, scene: str = "scene.zarr", k: int = 5, iterations: int = 3
) -> dict[str, float]:
    """Write a cube of `side` squared pixels and measure the commands on it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        FORMATS[scene](folder / scene, side, block)
        found, worker, client = _run(
            *("fit", scene, "--n-clusters", str(k), "--set", f"max_iter={iterations}"),
            *("--set", "init=random", "--set", "n_init=1"),
            *("--output", "labels.zarr", "--model", "model.zarr", "--report", "report.html"),
            *("--local", "2", "--memory-limit", str(LIMIT)),
            folder=folder,
        )
        assert sum(found["sizes"]) == found["pixels"]["valid"]
        return {
            "gigabytes": side * side * BANDS * 2 / 1e9,
            "fit_seconds": found["seconds"],
            "passes": float(found["passes"]),
            "worker": worker,
            "client": client,
            "report": float((folder / "report.html").stat().st_size),
        }


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=20.0)
    parser.add_argument("--block", type=int, default=256)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--format", choices=list(FORMATS), default="scene.zarr")
    options = parser.parse_args()
    side = int((options.gigabytes * 1e9 / (2 * BANDS)) ** 0.5)
    found = measure(side, options.block, scene=options.format, iterations=options.passes)
    print_table(
        [
            "cube GB",
            "fit s",
            "passes",
            "largest worker MB",
            "client MB",
            "report MB",
        ],
        [
            [
                f"{found['gigabytes']:.1f}",
                f"{found['fit_seconds']:.0f}",
                f"{found['passes']:.0f}",
                f"{found['worker'] / 1e6:.0f}",
                f"{found['client'] / 1e6:.0f}",
                f"{found['report'] / 1e6:.2f}",
            ]
        ],
    )


if __name__ == "__main__":
    main()
