"""Passes over a Zarr store beside a bare Dask sum over it: clock and processor time.

``python tests/benchmarks/reading.py`` writes stores of ``--gigabytes`` each, and compares on each,
in alternation, ``da.sum`` with passes of ``KMeans`` that read the store anew, on two threads of one
process and on two processes of one thread.  The processor's part says what is possible: where
both cores are busy all the time, the share of a bare sum's speed can be no more than ``(decode +
sum) / (decode + kernel)``, which is measured by one thread, block by block (``best``).
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import psutil
import zarr
from _timing import THREADS, middle, print_table
from distributed import Client, LocalCluster

import daskclust
from daskclust.kernels.nearest.assign import SEGMENT, accumulate, no_statistics

MIB = 2**20
#: Share of a bare sum's speed that a pass is to reach.
TARGET = 0.95
#: Distinct spectra of the store that compresses well.
_FEW = 320


def _blobs(rng: np.random.Generator, n: int, p: int) -> np.ndarray:
    """Return float32 rows of overlapping clusters, as noisy as they come."""
    centers = np.random.default_rng(0).normal(size=(20, p)).astype(np.float32)
    return centers[rng.integers(20, size=n)] + rng.standard_normal((n, p), np.float32)


def _spectra(rng: np.random.Generator, n: int, p: int) -> np.ndarray:
    """Return int16 spectra of 20 classes with sensor noise."""
    centers = np.random.default_rng(0).uniform(500, 4000, (20, p)).astype(np.float32)
    noise = 100 * rng.standard_normal((n, p), np.float32)
    return (centers[rng.integers(20, size=n)] + noise).astype(np.int16)


def _repeated(rng: np.random.Generator, n: int, p: int) -> np.ndarray:
    """Return few spectra over and over: chunks that are decoded nearly for free."""
    return np.resize(_spectra(np.random.default_rng(1), _FEW, p), (n, p))


#: Rows, columns, type, and whether they are compressed (by Zarr's default, Zstandard).
STORES: dict[str, tuple[Callable[..., np.ndarray], int, str, bool]] = {
    "noisy float32": (_blobs, 50, "float32", True),
    "noisy int16": (_spectra, 100, "int16", True),
    "repeated int16": (_repeated, 100, "int16", True),
    "raw float32": (_blobs, 50, "float32", False),
}


def write_store(path: Path, kind: str, n_bytes: int, chunk_bytes: int = 8 * MIB) -> float:
    """Write a store chunk by chunk; return its bytes in memory over those on disk."""
    make, p, dtype, compressed = STORES[kind]
    row = p * np.dtype(dtype).itemsize
    rows = max(1, chunk_bytes // row)
    n = max(4, n_bytes // (rows * row)) * rows
    options: dict[str, Any] = {} if compressed else {"compressors": None}
    store = zarr.create_array(path, shape=(n, p), chunks=(rows, p), dtype=dtype, **options)
    rng = np.random.default_rng(2)
    for start in range(0, n, rows):
        store[start : start + rows] = make(rng, rows, p)
    on_disk = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return float(store.nbytes / on_disk)


def _seconds_of(processes: list[psutil.Process]) -> float:
    """Processor time of some processes, that of the system included."""
    return float(sum(sum(process.cpu_times()[:2]) for process in processes))


@contextmanager
def scheduler(kind: str) -> Iterator[list[psutil.Process]]:
    """Run on two threads, or on two processes of one thread each; yield who works."""
    here = psutil.Process()
    if kind == "threads":
        with dask.config.set(scheduler="threads", num_workers=THREADS):
            yield [here]
        return
    with (
        LocalCluster(
            n_workers=THREADS, threads_per_worker=1, memory_limit="4GiB", dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        yield [here, *(psutil.Process(pid) for pid in client.run(os.getpid).values())]


class Pair(tuple[float, float]):
    """Seconds of the clock and of the processor."""


def passes(
    array: da.Array, k: int, count: int, workers: list[psutil.Process]
) -> list[tuple[float, float]]:
    """Seconds of the clock and of the processors of each of some passes of one fit."""
    centers = np.asarray(array[:k].compute(scheduler="sync"), dtype=np.float64)
    marks: list[tuple[float, float]] = []

    def mark(record: dict[str, Any]) -> None:
        marks.append((time.perf_counter(), _seconds_of(workers)))

    # The first pass looks at the values, and the first iteration may compile.
    model = daskclust.KMeans(k, init=centers, algorithm="lloyd", max_iter=1 + count, tol=0.0)
    with daskclust.on_iteration(mark):
        model.fit(array)
    return [(b[0] - a[0], b[1] - a[1]) for a, b in zip(marks, marks[1:], strict=False)]


def bare_sum(array: da.Array, workers: list[psutil.Process]) -> tuple[float, float]:
    """Seconds of the clock and of the processors of a bare sum."""
    began = time.perf_counter(), _seconds_of(workers)
    array.sum().compute()
    return time.perf_counter() - began[0], _seconds_of(workers) - began[1]


def compare(path: Path, ks: list[int], kind: str, repeats: int) -> dict[str, tuple[float, float]]:
    """Seconds of clock and processors of a bare sum, and of a pass with each number of clusters."""
    found: dict[str, list[tuple[float, float]]] = {}
    with scheduler(kind) as workers, dask.config.set({"daskclust.persist": False}):
        array = da.from_zarr(str(path))
        for turn in range(repeats + 1):
            timed = {"sum": [bare_sum(array, workers)]}
            for k in ks:
                timed[f"k={k}"] = passes(array, k, 2, workers)
            if turn:  # what is imported and compiled first is not the speed of reading
                for name, values in timed.items():
                    found.setdefault(name, []).extend(values)
    return {
        name: (middle([v[0] for v in values]), middle([v[1] for v in values]))
        for name, values in found.items()
    }


def pieces(path: Path, k: int, count: int = 24) -> dict[str, float]:
    """Processor seconds of one thread for each part of a pass over some chunks, a GB.

    ``decode`` is what Zarr takes for a chunk (with fresh memory for it), ``sum`` is NumPy's, and
    ``kernel`` the assignment of rows that are at hand as float32, which ``convert`` makes of them.
    """
    store = zarr.open_array(path, mode="r")
    size = store.chunks[0]
    starts = range(0, min(store.shape[0], count * size), size)
    centers = np.asarray(store[:k], dtype=np.float64)
    spent = dict.fromkeys(("decode", "sum", "convert", "kernel"), 0.0)
    n_bytes = 0

    def timed(name: str, work: Callable[[], Any]) -> Any:
        began = _seconds_of([here])
        value = work()
        spent[name] += _seconds_of([here]) - began
        return value

    here = psutil.Process()
    accumulate(np.asarray(store[:SEGMENT], np.float32), centers)
    into = no_statistics(*centers.shape)
    for start in starts:
        x = timed("decode", lambda start=start: store[start : start + size])
        n_bytes += x.nbytes
        timed("sum", x.sum)
        rows = timed("convert", lambda x=x: np.ascontiguousarray(x, np.float32))
        ends = np.append(np.arange(SEGMENT, len(rows), SEGMENT), len(rows))
        timed("kernel", lambda rows=rows, ends=ends: accumulate(rows, centers, segments=ends, into=into))
    return {name: seconds * 1e9 / n_bytes for name, seconds in spent.items()}


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0, help="of each store")
    parser.add_argument("--store", nargs="+", choices=list(STORES), default=list(STORES))
    parser.add_argument("--k", type=int, nargs="+", default=[6, 20])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where stores are kept from run to run")
    parser.add_argument("--scheduler", nargs="+", default=["threads", "processes"])
    options = parser.parse_args()
    lines = []
    with tempfile.TemporaryDirectory() as temporary:
        for kind in options.store:
            path = (options.folder or Path(temporary)) / f"{kind.replace(' ', '-')}.zarr"
            if not path.exists():
                print(f"{kind}: {write_store(path, kind, int(options.gigabytes * 1e9)):.2f} times smaller on disk")
            gigabytes = zarr.open_array(path, mode="r").nbytes / 1e9
            parts = {k: pieces(path, k) for k in options.k}
            for where in options.scheduler:
                found = compare(path, options.k, where, options.repeats)
                clock, used = found["sum"]
                for k in options.k:
                    part = parts[k]
                    best = (part["decode"] + part["sum"]) / (part["decode"] + part["kernel"])
                    mine = found[f"k={k}"]
                    lines.append(
                        [
                            kind,
                            where,
                            str(k),
                            f"{clock / gigabytes:.2f} ({used / gigabytes:.2f})",
                            f"{mine[0] / gigabytes:.2f} ({mine[1] / gigabytes:.2f})",
                            f"{clock / mine[0]:.2f}",
                            *(f"{part[name]:.2f}" for name in part),
                            f"{best:.2f}",
                        ]
                    )
    print_table(
        ["store", "on two", "k", "bare sum, s a GB (processors)", "a pass", "share of its speed",
         "decode", "sum", "convert", "kernel", "best share"],
        lines,
    )


if __name__ == "__main__":
    main()
