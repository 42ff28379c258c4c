"""``daskclust fit`` on a cube ten times larger than its workers: memory, speed, the report.

``python tests/benchmarks/cube.py`` writes a cube of ``--gigabytes``, reads it bare and for
clustering (``daskclust bench``), and runs ``daskclust fit`` from Zarr to label map, model and
report, all on two workers of 1 GB each, whose memory is watched from outside.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import dask
import numpy as np
import psutil
import zarr
from _timing import print_table

BANDS = 100
#: Share of a bare sum's speed that a pass must reach.
TARGET_SPEED = 0.5
LIMIT = 10**9


def write_cube(path: Path, side: int, block: int) -> None:
    """Write a square int16 cube, block by block: noisy spectra of five classes in patches."""
    rng = np.random.default_rng(0)
    spectra = rng.integers(500, 4000, (5, BANDS))
    # Few distinct spectra, repeated: it is clustering that is measured, not the disk.
    rows = spectra[:, None] + rng.integers(-100, 100, (5, 64, BANDS))
    array = zarr.create_array(
        path,
        shape=(side, side, BANDS),
        chunks=(block, block, BANDS),
        dtype="int16",
        dimension_names=("y", "x", "band"),
        attributes={"_FillValue": -9999},
    )

    def write(y: int, x: int) -> None:
        kind = (y // block + x // block // 3) % 5
        tile = np.resize(rows[kind].astype(np.int16), (block, block, BANDS))
        if (y + x) // block % 8 == 0:
            tile[: block // 2, : block // 4] = -9999
        part = tile[: min(block, side - y), : min(block, side - x)]
        array[y : y + block, x : x + block] = part

    corners = range(0, side, block)
    writer = dask.delayed(write, pure=False)
    dask.compute(*(writer(y, x) for y in corners for x in corners), scheduler="threads")


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


def measure(side: int, block: int, *, k: int = 5, iterations: int = 3) -> dict[str, float]:
    """Write a cube of `side` squared pixels and measure the commands on it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_cube(folder / "scene.zarr", side, block)
        cluster = ("--local", "2", "--memory-limit", str(LIMIT))
        speed, _, _ = _run(
            *("bench", "scene.zarr", "--n-clusters", str(k), "--passes", str(iterations)),
            *cluster,
            folder=folder,
        )
        found, worker, client = _run(
            *("fit", "scene.zarr", "--n-clusters", str(k), "--max-iter", str(iterations)),
            *("--init", "random", "--n-init", "1"),
            *("--output", "labels.zarr", "--model", "model.zarr", "--report", "report.html"),
            *cluster,
            folder=folder,
        )
        assert sum(found["sizes"]) == found["pixels"]["valid"]
        return {
            "gigabytes": side * side * BANDS * 2 / 1e9,
            "bare": speed["bare_sum_seconds"],
            "pass": min(speed["pass_seconds"]),
            "share": speed["share_of_bare_speed"],
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
    options = parser.parse_args()
    side = int((options.gigabytes * 1e9 / (2 * BANDS)) ** 0.5)
    found = measure(side, 256)
    print_table(
        [
            "cube GB",
            "bare sum s",
            "a pass s",
            "share of its speed",
            "fit s",
            "passes",
            "largest worker MB",
            "client MB",
            "report MB",
        ],
        [
            [
                f"{found['gigabytes']:.1f}",
                f"{found['bare']:.1f}",
                f"{found['pass']:.1f}",
                f"{found['share']:.2f}",
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
