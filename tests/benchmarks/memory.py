"""Peak memory of a fit on a Zarr array ten times larger than the workers' memory.

``python tests/benchmarks/memory.py`` writes a store, starts a cluster of two
workers of ``--limit`` MiB each, fits, and prints what workers and client held at
most.  Workers are sampled by the scheduler's own measure and by their processes'
high-water marks.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import zarr
from _timing import peak_memory, print_table
from distributed import Client, LocalCluster

import daskclust

MIB = 2**20
#: MiB that the client may grow.
TARGET_CLIENT = 200.0


def write_store(path: Path, n_mib: int, p: int = 64, chunk_mib: int = 8) -> None:
    """Write ``n_mib`` MiB of float32 rows, chunk by chunk, compressible."""
    rows_a_chunk = chunk_mib * MIB // (4 * p)
    n = n_mib * MIB // (4 * p) // rows_a_chunk * rows_a_chunk
    store = zarr.create_array(
        path, shape=(n, p), chunks=(rows_a_chunk, p), dtype="float32", zarr_format=3
    )
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(5, p)).astype("float32")
    # A few thousand distinct rows, repeated: it is memory that is measured, not the disk.
    base = np.round(centers[rng.integers(5, size=4096)] + 0.3 * rng.normal(size=(4096, p)), 1)
    block = np.resize(base.astype("float32"), (rows_a_chunk, p))
    for start in range(0, n, rows_a_chunk):
        store[start : start + rows_a_chunk] = block


def measure(n_mib: int, limit_mib: int, chunk_mib: int = 8) -> dict[str, float]:
    """Fit and return MiB: workers' high-water mark and the client's growth."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.zarr"
        write_store(path, n_mib, chunk_mib=chunk_mib)
        with (
            # Nothing may be spilled: what does not fit must be an error.
            dask.config.set({"distributed.worker.memory.spill": False}),
            LocalCluster(
                n_workers=2,
                threads_per_worker=1,
                memory_limit=limit_mib * MIB,
                dashboard_address=":0",
            ) as cluster,
            Client(cluster) as client,
        ):
            array = da.from_zarr(str(path))
            before = peak_memory()
            model = daskclust.KMeans(5, random_state=0, max_iter=5).fit(array)
            counts = da.bincount(model.labels_, minlength=5).compute()
            assert counts.sum() == array.shape[0]
            marks = client.run(peak_memory)
            # A worker killed for its memory would have been replaced: same processes at the end.
            return {
                "data": array.nbytes / MIB,
                "limit": float(limit_mib),
                "worker": max(marks.values()),
                "client_growth": peak_memory() - before,
                "passes": float(model.history_[-1]["passes"]),
            }


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=int, default=1024, help="MiB a worker")
    parser.add_argument("--factor", type=float, default=10.0, help="data over all workers' memory")
    parser.add_argument("--json", action="store_true", help="print all that was measured")
    options = parser.parse_args()
    os.environ.setdefault("MALLOC_TRIM_THRESHOLD_", "65536")
    found = measure(int(options.factor * 2 * options.limit), options.limit)
    if options.json:
        print(json.dumps(found))
        return
    print_table(
        ["data MiB", "limit a worker MiB", "peak of a worker MiB", "client's growth MiB"],
        [[f"{found[k]:.0f}" for k in ("data", "limit", "worker", "client_growth")]],
    )


if __name__ == "__main__":
    main()
