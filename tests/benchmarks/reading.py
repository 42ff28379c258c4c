"""Passes over a Zarr store beside a bare Dask sum over it: clock and processor time.

``python tests/benchmarks/reading.py`` writes stores of ``--gigabytes`` each, and compares on each,
in alternation, ``da.sum`` with passes of ``KMeans`` that read the store anew, on two threads of one
process and on two processes of one thread.  It also takes a pass apart, in processor seconds of
one thread, and says what share of a bare sum's speed they allow where both cores are always busy:
``(Zarr's read + sum) / (read + convert + kernel)``.  With ``--kept`` the store is kept in memory: a
pass then reads nothing, which is told as its speed over that of a pass that does.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import dask
import dask.array as da
import numpy as np
import psutil
import zarr
from _timing import THREADS, middle, print_table
from distributed import Client, LocalCluster

import daskclust
from daskclust.core.engine.blocks import as_matrix
from daskclust.core.kernels.nearest.assign import SEGMENT, accumulate, no_statistics
from daskclust.core.storage.stored_array import StoredArray

MIB = 2**20
#: Share of a bare sum's speed that a pass is to reach.
TARGET = 0.95
#: Share that it is to reach even where the processors do not allow more.
FLOOR = 0.65
#: Distinct spectra of the store that compresses well.
_FEW = 1000
#: Materials: more than clusters, which are then not torn out of the noise of one of them.
_MATERIALS = 100


def _blobs(rng: np.random.Generator, n: int, p: int) -> np.ndarray:
    """Return float32 rows of overlapping clusters, as noisy as they come."""
    centers = np.random.default_rng(0).normal(size=(20, p)).astype(np.float32)
    return centers[rng.integers(20, size=n)] + rng.standard_normal((n, p), np.float32)


def _spectra(rng: np.random.Generator, n: int, p: int) -> np.ndarray:
    """Return int16 spectra of some materials with the noise of a sensor."""
    centers = np.random.default_rng(0).uniform(500, 4000, (_MATERIALS, p)).astype(np.float32)
    noise = 100 * rng.standard_normal((n, p), np.float32)
    return (centers[rng.integers(_MATERIALS, size=n)] + noise).astype(np.int16)


def _repeated(rng: np.random.Generator, n: int, p: int) -> np.ndarray:
    """Return few spectra over and over: chunks that are decoded nearly for free."""
    return np.resize(_spectra(np.random.default_rng(1), _FEW, p), (n, p))


class Kind(NamedTuple):
    """Rows of a store: how they are made, how many columns, and whether they are compressed."""

    make: Callable[[np.random.Generator, int, int], np.ndarray]
    p: int
    dtype: str
    compressed: bool = True


#: Compressed by Zarr's default, which is Zstandard.
STORES = {
    "float32, noise": Kind(_blobs, 50, "float32"),
    "int16, noisy spectra": Kind(_spectra, 100, "int16"),
    "int16, few spectra": Kind(_repeated, 100, "int16"),
    "float32, uncompressed": Kind(_blobs, 50, "float32", compressed=False),
}


def write_store(path: Path, kind: Kind, n_bytes: int, chunk_bytes: int = 8 * MIB) -> float:
    """Write a store chunk by chunk; return its bytes in memory over those on disk."""
    row = kind.p * np.dtype(kind.dtype).itemsize
    rows = max(1, chunk_bytes // row)
    n = max(4, n_bytes // (rows * row)) * rows
    options: dict[str, Any] = {} if kind.compressed else {"compressors": None}
    store = zarr.create_array(
        path, shape=(n, kind.p), chunks=(rows, kind.p), dtype=kind.dtype, **options
    )
    rng = np.random.default_rng(2)
    for start in range(0, n, rows):
        store[start : start + rows] = kind.make(rng, rows, kind.p)
    on_disk = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return float(store.nbytes / on_disk)


class Seconds(NamedTuple):
    """Of the clock, and of the processors of all that work."""

    clock: float
    processors: float


class Watch:
    """Reads the clock, and the processors' time of this process and of workers."""

    def __init__(self, pids: list[int]) -> None:
        self._workers = [psutil.Process(pid) for pid in pids]

    def __call__(self) -> Seconds:
        there = sum(sum(worker.cpu_times()[:2]) for worker in self._workers)
        return Seconds(time.perf_counter(), time.process_time() + there)


def between(began: Seconds, ended: Seconds) -> Seconds:
    """Return the seconds from one reading to another."""
    return Seconds(ended.clock - began.clock, ended.processors - began.processors)


@contextmanager
def scheduler(where: str) -> Iterator[Watch]:
    """Run on two threads, or on two processes of one thread each."""
    if where == "threads":
        with dask.config.set(scheduler="threads", num_workers=THREADS):
            yield Watch([])
        return
    with (
        LocalCluster(
            n_workers=THREADS, threads_per_worker=1, memory_limit="4GiB", dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        yield Watch(list(client.run(os.getpid).values()))


def passes(array: da.Array, centers: np.ndarray, count: int, watch: Watch) -> list[Seconds]:
    """Seconds of each of some passes of one fit."""
    marks: list[Seconds] = []
    # The survey, and the first iteration, which may compile, come before the first mark.
    model = daskclust.KMeans(
        len(centers), init=centers, algorithm="lloyd", max_iter=1 + count, tol=0.0
    )
    with daskclust.on_iteration(lambda record: marks.append(watch())):
        model.fit(array)
    made = [record["passes"] for record in model.history_]
    if len(marks) <= count or made[-1] - made[0] != len(marks) - 1:
        # Empty clusters take passes of their own.
        raise RuntimeError(f"{len(marks)} iterations made {made} passes; expected one each.")
    return [between(*pair) for pair in pairwise(marks)]


def bare_sum(array: da.Array, watch: Watch) -> Seconds:
    """Seconds of a bare sum."""
    began = watch()
    array.sum().compute()
    return between(began, watch())


def compare(
    path: Path, ks: list[int], where: str, repeats: int, *, kept: bool = False
) -> dict[str, Seconds]:
    """Medians of a bare sum and of passes with some numbers of clusters, in seconds."""
    found: dict[str, list[Seconds]] = {}
    centers = np.asarray(zarr.open_array(path, mode="r")[: max(ks)], dtype=np.float64)
    with scheduler(where) as watch:
        array = da.from_zarr(str(path))
        for turn in range(repeats + 1):
            timed = {"sum": [bare_sum(array, watch)]}
            for k in ks:
                with dask.config.set({"daskclust.persist": False}):
                    timed[f"k={k}"] = passes(array, centers[:k], 2, watch)
                if kept:
                    with dask.config.set({"daskclust.persist": True}):
                        timed[f"k={k} kept"] = passes(array, centers[:k], 2, watch)
            if turn:  # what is imported and compiled first is not the speed of reading
                for name, values in timed.items():
                    found.setdefault(name, []).extend(values)
    return {
        name: Seconds(middle([v.clock for v in values]), middle([v.processors for v in values]))
        for name, values in found.items()
    }


#: The parts of a pass.  ``zarr`` and ``sum`` are those of a bare sum.
PIECES = ("zarr", "sum", "read", "convert", "kernel")


def pieces(path: Path, k: int, count: int = 30) -> dict[str, float]:
    """Processor seconds a GB of one thread for each part of a pass, from some chunks."""
    store = zarr.open_array(path, mode="r")
    direct, size = StoredArray(store), store.chunks[0]
    centers = np.asarray(store[:k], dtype=np.float64)
    spent = dict.fromkeys(PIECES, 0.0)

    def timed(name: str, work: Callable[[], Any]) -> Any:
        began = time.process_time()
        value = work()
        spent[name] += time.process_time() - began
        return value

    def chunk(start: int, into: Any) -> int:
        part = slice(start, start + size)
        x = timed("zarr", lambda: store[part])
        timed("sum", x.sum)
        x = timed("read", lambda: direct[part])
        rows = timed("convert", lambda: as_matrix(x, np.dtype(np.float32)))
        ends = np.append(np.arange(SEGMENT, len(rows), SEGMENT), len(rows))
        timed("kernel", lambda: accumulate(rows, centers, segments=ends, into=into))
        return int(x.nbytes)

    with ThreadPoolExecutor(1) as reader:
        into = no_statistics(*centers.shape)
        reader.submit(chunk, 0, into).result()
        spent.update(dict.fromkeys(PIECES, 0.0))
        starts = range(0, min(store.shape[0], count * size), size)
        n_bytes = sum(reader.submit(chunk, start, into).result() for start in starts)
    return {name: seconds * 1e9 / n_bytes for name, seconds in spent.items()}


def best_share(parts: dict[str, float]) -> float:
    """Share of a bare sum's speed that processors allow which are always busy."""
    return (parts["zarr"] + parts["sum"]) / (parts["read"] + parts["convert"] + parts["kernel"])


def lines_of(
    name: str, path: Path, ks: list[int], where: list[str], repeats: int, kept: bool
) -> list[list[str]]:
    """Measure one store; return rows of the table."""
    gigabytes = zarr.open_array(path, mode="r").nbytes / 1e9
    parts = {k: pieces(path, k) for k in ks}
    lines = []
    for kind in where:
        found = compare(path, ks, kind, repeats, kept=kept)
        shown = {
            label: f"{seconds.clock / gigabytes:.2f} ({seconds.processors / gigabytes:.2f})"
            for label, seconds in found.items()
        }
        for k in ks:
            mine = found[f"k={k}"]
            lines.append([name, kind, str(k), shown["sum"], shown[f"k={k}"]])
            lines[-1] += [f"**{found['sum'].clock / mine.clock:.2f}**"]
            lines[-1] += [f"{best_share(parts[k]):.2f}"]
            lines[-1] += [" + ".join(f"{parts[k][part]:.2f}" for part in PIECES[:2])]
            lines[-1] += [" + ".join(f"{parts[k][part]:.2f}" for part in PIECES[2:])]
            if kept:
                lines[-1] += [f"{mine.clock / found[f'k={k} kept'].clock:.1f}"]
    return lines


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0, help="of each store")
    parser.add_argument("--store", nargs="+", choices=list(STORES), default=list(STORES))
    parser.add_argument("--k", type=int, nargs="+", default=[6, 20])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--where", nargs="+", default=["threads", "processes"])
    parser.add_argument("--kept", action="store_true", help="also passes over what is kept")
    parser.add_argument("--folder", type=Path, help="of stores that stay for the next run")
    options = parser.parse_args()
    header = ["store", "on two", "k", "bare sum, s a GB (of the processors)", "a pass"]
    header += ["share of its speed", "by processor time", "Zarr's read + sum"]
    header += ["read + convert + kernel"]
    header += ["kept, times as fast"] if options.kept else []
    lines = []
    with tempfile.TemporaryDirectory() as temporary:
        for name in options.store:
            path = (options.folder or Path(temporary)) / f"{name.replace(', ', '-')}.zarr"
            if not path.exists():
                times = write_store(path, STORES[name], int(options.gigabytes * 1e9))
                print(f"{name}: {times:.1f} times smaller on disk", flush=True)
            lines += lines_of(name, path, options.k, options.where, options.repeats, options.kept)
    print_table(header, lines)


if __name__ == "__main__":
    main()
