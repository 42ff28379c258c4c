"""Time of a fit of which 2 % of the reads fail, beside one of which none does.

``python tests/benchmarks/failing_reads.py`` prints the ratio of the medians, for a Zarr
store on this machine that raises, and for a server that answers 503; fits with and
without failures alternate.  All must come to the same centers, to the last bit.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import zarr
from _timing import THREADS, middle, print_table
from zarr.storage import LocalStore

import daskclust

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from file_server import served

#: Times as long that a fit may take.
TARGET = 1.3
#: One read of a chunk in so many fails.
EVERY = 50
FEATURES = 50


class Failing(LocalStore):
    """A store of which one read of a chunk in `EVERY` raises."""

    reads = itertools.count(1)
    lock = threading.Lock()

    async def get(self, key: str, *args: Any, **options: Any) -> Any:
        if "/c/" in f"/{key}":
            with self.lock:
                fails = next(Failing.reads) % EVERY == 0
            if fails:
                raise ConnectionResetError("a read failed")
        return await super().get(key, *args, **options)


def fit(store: Any, persist: bool) -> tuple[float, float, np.ndarray]:
    """Return the seconds by the clock, those of the processor, and the centers."""
    array = zarr.open_array(store, mode="r")
    data = da.from_array(array, chunks=array.chunks)
    began, used = time.perf_counter(), time.process_time()
    with dask.config.set(
        {"daskclust.persist": persist, "scheduler": "threads", "num_workers": THREADS}
    ):
        model = daskclust.KMeans(8, init="random", max_iter=6, tol=0, random_state=0).fit(data)
    return time.perf_counter() - began, time.process_time() - used, model.cluster_centers_


def compare(
    n_chunks: int, rows: int, repeats: int, cases: tuple[str, ...] = ("raises", "503")
) -> dict[tuple[str, bool], dict[str, float]]:
    """Measure all ways: by the clock and the processor, as ratios of medians."""
    found: dict[tuple[str, bool], dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        shape = n_chunks * rows, FEATURES
        path = Path(scratch, "x.zarr")
        array = zarr.create_array(path, shape=shape, chunks=(rows, FEATURES), dtype="f4")
        rng = np.random.default_rng(0)
        for first in range(0, shape[0], rows):
            block = rng.normal(size=(rows, FEATURES)) + 3.0 * rng.integers(0, 8, (rows, 1))
            array[first : first + rows] = block
        with served(Path(scratch)) as url, served(Path(scratch), EVERY) as failing_url:
            stores: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
                "raises": (lambda: LocalStore(path), lambda: Failing(path)),
                "503": (lambda: f"{url}/x.zarr", lambda: f"{failing_url}/x.zarr"),
            }
            for case, persist in itertools.product(cases, (False, True)):
                spans: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
                well, failing = stores[case]
                _, _, expected = fit(well(), persist)
                for turn in range(2 * repeats):
                    fails = turn % 4 in (1, 2)
                    clock, used, centers = fit((failing if fails else well)(), persist)
                    np.testing.assert_array_equal(centers, expected)
                    spans[fails].append((clock, used))
                (one, one_cpu), (two, two_cpu) = (
                    tuple(middle([s[i] for s in spans[fails]]) for i in range(2))
                    for fails in (False, True)
                )
                found[case, persist] = {
                    "seconds": one,
                    "with failures": two,
                    "ratio": two / one,
                    "processor": two_cpu / one_cpu,
                }
    return found


def report(found: dict[tuple[str, bool], dict[str, float]]) -> None:
    """Print a table."""
    print_table(
        ["store", "chunks", "s, no failure", "s, 2 % fail", "ratio", "of processor time"],
        [
            [
                {"raises": "Zarr store that raises", "503": "HTTP, 503"}[case],
                "kept" if persist else "streamed",
                *(f"{row[name]:.2f}" for name in ("seconds", "with failures")),
                *(f"{row[name]:.3f}" for name in ("ratio", "processor")),
            ]
            for (case, persist), row in found.items()
        ],
    )


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, default=50)
    parser.add_argument("--rows", type=int, default=40_000, help="of a chunk, 50 float32 each")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cases", default="raises,503")
    options = parser.parse_args()
    cases = tuple(options.cases.split(","))
    report(compare(options.chunks, options.rows, options.repeats, cases))


if __name__ == "__main__":
    main()
