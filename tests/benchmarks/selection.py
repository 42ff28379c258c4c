"""How often a grid of sparsities reads data that do not fit the memory.

``python tests/benchmarks/selection.py`` writes a Zarr array larger than the memory of a worker,
chooses among ten sparsities by the gap statistic, and counts how often chunks are read: for the
grid with its references, and for the single fit that makes the most passes.
"""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
from _timing import print_table
from distributed import Client, LocalCluster
from memory import MIB, write_store

import daskclust
from daskclust.selection import choose_sparsity

#: Reads of the grid over reads of its slowest fit, at most.
TARGET_RATIO = 1.5
#: Limits of the fits, to make an end.
_LIMITS = {"max_iter": 5, "max_outer_iter": 3}


def _note(block: np.ndarray, path: str = "") -> np.ndarray:
    """Add a byte to a file: one read of a chunk, in whatever process."""
    if block.size:
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, b".")
        os.close(file)
    return block


def _reads(path: Path, lazy: da.Array) -> float:
    """How often the array has been read since the last time."""
    count = path.stat().st_size / lazy.numblocks[0] if path.exists() else 0.0
    path.unlink(missing_ok=True)
    return count


def measure(
    n_mib: int = 704,
    limit_mib: int = 640,
    chunk_mib: int = 4,
    n_grid: int = 10,
    n_references: int = 2,
    k: int = 3,
) -> dict[str, Any]:
    """Return reads of the grid and of its slowest fit, and seconds of both."""
    with tempfile.TemporaryDirectory() as folder:
        store, notes = Path(folder) / "rows.zarr", Path(folder) / "reads"
        write_store(store, n_mib, chunk_mib=chunk_mib)
        with (
            # Nothing may be spilled, and nothing kept: each pass is a read.
            dask.config.set(
                {
                    "distributed.worker.memory.spill": False,
                    "distributed.worker.memory.pause": False,
                    "daskclust.persist": False,
                }
            ),
            LocalCluster(
                n_workers=1,
                threads_per_worker=1,
                memory_limit=limit_mib * MIB,
                dashboard_address=":0",
            ) as cluster,
            Client(cluster),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            lazy = da.from_zarr(str(store))
            lazy = lazy.map_blocks(partial(_note, path=str(notes)), meta=np.empty((0, 0), "f4"))
            grid = np.geomspace(1.1, np.sqrt(lazy.shape[1]), n_grid)
            model = daskclust.SparseKMeans(k, random_state=0, **_LIMITS)
            began = time.perf_counter()
            found = choose_sparsity(
                model, lazy, grid=grid, n_references=n_references, random_state=0
            )
            seconds = time.perf_counter() - began
            reads = _reads(notes, lazy)
            passes = [fit.history_[-1]["passes"] for fit in found.estimators]
            slowest = found.estimators[int(np.argmax(passes))]
            began = time.perf_counter()
            alone = model.set_params(sparsity=slowest.sparsity).fit(lazy)
            alone_seconds = time.perf_counter() - began
            return {
                "data": lazy.nbytes / MIB,
                "memory": float(limit_mib),
                "reads": reads,
                "reads_alone": _reads(notes, lazy),
                "one_by_one": sum(passes),
                "passes_alone": alone.history_[-1]["passes"],
                "seconds": seconds,
                "seconds_alone": alone_seconds,
            }


def main() -> None:
    """Run from the command line."""
    found = measure()
    print_table(list(found), [[f"{value:.4g}" for value in found.values()]])


if __name__ == "__main__":
    main()
