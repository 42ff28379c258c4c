"""Time of one null iteration: tiny blocks on a cluster of two processes.

``python tests/benchmarks/overhead.py`` prints the median time of an assignment
pass with 40 kB of centers over persisted blocks of ten rows each: all of it is
overhead of the engine and of the cluster.
"""

from __future__ import annotations

import argparse
import time

import dask.array as da
import numpy as np
from _timing import middle, print_table
from distributed import Client, LocalCluster

from daskclust.core.engine import open_rows
from daskclust.core.reduction import ASSIGN, CenterSets

#: Milliseconds that a null iteration may take.
TARGET = 100.0


def measure(n_blocks: int, repeats: int = 15) -> float:
    """Return the median milliseconds of a pass over ``n_blocks`` blocks."""
    blocks = da.zeros((n_blocks * 10, 5), chunks=(10, 5)).persist()
    rows = open_rows(blocks)
    state = CenterSets(np.random.default_rng(0).normal(size=(1, 1000, 5)))
    rows.reduce(ASSIGN, state)
    spans = []
    for _ in range(repeats):
        began = time.perf_counter()
        rows.reduce(ASSIGN, state)
        spans.append(1e3 * (time.perf_counter() - began))
    return middle(spans)


def compare(counts: tuple[int, ...], repeats: int = 15) -> dict[int, float]:
    """Measure several numbers of blocks on one cluster."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster),
    ):
        return {count: measure(count, repeats) for count in counts}


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", default="8,64,512,4096")
    options = parser.parse_args()
    found = compare(tuple(int(n) for n in options.blocks.split(",")))
    print_table(
        ["blocks", "null iteration, ms"], [[str(n), f"{ms:.0f}"] for n, ms in found.items()]
    )


if __name__ == "__main__":
    main()
