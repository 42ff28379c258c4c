"""Time and memory of PCKID with Q = G = 30 on incomplete rows, by their number.

``python tests/benchmarks/pckid.py`` prints the table: p = 20, 20 % of the values missing
completely at random, 5 clusters; from a lazy Dask array on two worker processes of one
thread, whose memory counts, too.  ``--threads`` runs on NumPy and two threads instead.
Each size runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import dask.array as da
import numpy as np
from _timing import peak_memory, print_table, run_alone

import daskclust

P, K, MISSING = 20, 5, 0.2
#: Seconds and GiB at most, by number of rows.
TARGETS = {100_000: (180.0, 4.0), 1_000_000: (1500.0, 12.0)}
#: How much faster than the rows the time may grow: linear, but for noise.
TARGET_GROWTH = 1.15
ROWS = (10_000, 30_000, 100_000, 300_000, 1_000_000)
CHUNK = 5_000


def incomplete_rows(start: int, n: int, p: int = P) -> np.ndarray:
    """Return rows ``start .. start + n - 1`` of the problem; float32."""
    centers = np.random.default_rng(0).normal(scale=1.5, size=(K, p))
    rng = np.random.default_rng([1, start])
    x = centers[rng.integers(K, size=n)] + rng.normal(size=(n, p))
    x[rng.random((n, p)) < MISSING] = np.nan
    return x.astype(np.float32)


def _block(start: np.ndarray) -> np.ndarray:
    return incomplete_rows(int(start[0]), CHUNK)


def lazy_rows(n: int) -> da.Array:
    """Return the problem as a lazy Dask array; n is a multiple of the chunk."""
    starts = da.from_array(np.arange(0, n, CHUNK), chunks=1)
    meta = np.empty((0, 0), np.float32)
    return da.blockwise(
        _block,
        "ij",
        starts,
        "i",
        new_axes={"j": P},
        adjust_chunks={"i": CHUNK},
        dtype=np.dtype(np.float32),
        meta=meta,
    )


def measure(
    n: int, *, ensemble: int = 30, n_init: int = 100, cluster: bool = False
) -> dict[str, Any]:
    """Fit in this process (or on a cluster); return seconds, GiB and the agreement."""
    model = daskclust.PCKID(
        K, n_initializations=ensemble, max_components=ensemble, n_init=n_init, random_state=0
    )
    if not cluster:
        x = np.concatenate([incomplete_rows(s, min(CHUNK, n - s)) for s in range(0, n, CHUNK)])
        began = time.perf_counter()
        model.fit(x)
        seconds, memory = time.perf_counter() - began, peak_memory()
    else:
        from distributed import Client, LocalCluster

        with (
            LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as running,
            Client(running) as client,
        ):
            began = time.perf_counter()
            model.fit(lazy_rows(n))
            counts = da.bincount(model.labels_, minlength=K).compute()
            seconds = time.perf_counter() - began
            assert counts.sum() == n
            memory = peak_memory() + sum(client.run(peak_memory).values())
    spectrum = [r for r in model.history_ if r["stage"] == "spectrum"]
    return {
        "n": n,
        "seconds": seconds,
        "spectrum": sum(r["seconds"] for r in spectrum),
        "kmeans": sum(r["seconds"] for r in model.history_) - sum(r["seconds"] for r in spectrum),
        "gib": memory / 1024,
        "solver": spectrum[0]["solver"],
        "turn": spectrum[-2]["center_shift"] if len(spectrum) > 1 else 0.0,
    }


def compare(rows: Sequence[int] = ROWS, *, cluster: bool = True) -> list[dict[str, Any]]:
    """Measure some sizes, smallest first, each in a process of its own."""
    flags = [] if cluster else ["--threads"]
    return [run_alone(__file__, "--alone", *flags, "--rows", str(n)) for n in sorted(rows)]


def growth(found: list[dict[str, Any]]) -> list[float]:
    """How many times faster than the rows the time has grown, from each size to the next."""
    return [(b["seconds"] / a["seconds"]) / (b["n"] / a["n"]) for a, b in pairwise(found)]


def report(found: list[dict[str, Any]]) -> None:
    """Print the table."""
    print_table(
        ["rows", "seconds", "of which spectrum", "k-means", "GiB", "solver", "growth"],
        [
            [
                f"{r['n']:_}",
                *(f"{r[k]:.1f}" for k in ("seconds", "spectrum", "kmeans", "gib")),
                r["solver"],
                more,
            ]
            for r, more in zip(found, ["", *(f"{g:.2f}" for g in growth(found))], strict=True)
        ],
    )


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--threads", action="store_true")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.alone:
        print(json.dumps(measure(options.rows[0], cluster=not options.threads)))
        return
    report(compare(options.rows, cluster=not options.threads))


if __name__ == "__main__":
    main()
