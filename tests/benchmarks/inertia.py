"""Quality of whole k-means fits over many seeds: mean inertia beside scikit-learn's.

``python tests/benchmarks/inertia.py`` fits each problem with twenty seeds by both libraries, one
start each (greedy k-means++ in scikit-learn), and prints the mean inertia of ours over
scikit-learn's, its standard error, and the medians of the time of both, by the clock and by the
processors.  Problems are those of ``whole_fits.py``, with a tenth of their rows, and real sets of
``DASKCLUST_TEST_DATA`` with as many clusters as they have classes, columns of variance 1;
``--problems a,shuttle`` takes some of them.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from _timing import PROBLEMS, TOY, Problem, middle, print_table
from sklearn.cluster import KMeans as Reference
from whole_fits import inertia, overlapping

import daskclust

#: File and number of clusters.
SETS = {
    "pendigits": ("uci_pendigits_train.npz", 10),
    "letter": ("uci_letterrecognition.npz", 26),
    "shuttle": ("uci_shuttle.npz", 7),
    "cover": ("scale_covertype_93k.npz", 7),
    "segment": ("uci_segment.npz", 7),
}


def rows_of(path: Path) -> np.ndarray:
    """Return the rows of a set; columns that vary are scaled to variance 1."""
    with np.load(path, allow_pickle=False) as file:
        rows = file["X"].astype(np.float64)
    spread = rows.std(axis=0)
    scaled = (rows - rows.mean(axis=0))[:, spread > 0] / spread[spread > 0]
    return np.ascontiguousarray(scaled, dtype=np.float32)


def measure(rows: np.ndarray, k: int, seeds: int) -> dict[str, float]:
    """Fit by both with each seed; return the ratio of mean inertia and the medians of times."""
    found: dict[str, list[tuple[float, float, float]]] = {"ours": [], "theirs": []}
    kinds: dict[str, Any] = {"ours": daskclust.KMeans, "theirs": Reference}
    # Compiled before, and threads started.
    for kind in kinds.values():
        kind(k, random_state=0, n_init=1).fit(rows)
    for seed in range(seeds):
        for name, kind in kinds.items():
            began, worked = time.perf_counter(), time.process_time()
            model = kind(k, random_state=seed, n_init=1).fit(rows)
            spans = time.perf_counter() - began, time.process_time() - worked
            found[name].append((inertia(rows, model.cluster_centers_), *spans))
    (ours, clock, processor), (theirs, their_clock, their_processor) = (
        np.array(f).T for f in found.values()
    )
    error = np.hypot(*(part.std(ddof=1) / seeds**0.5 for part in (ours, theirs)))
    return {
        "inertia": float(ours.mean() / theirs.mean()),
        "error": float(error / theirs.mean()),
        "clock": middle(clock),
        "their clock": middle(their_clock),
        "processor": middle(processor),
        "their processor": middle(their_processor),
    }


def beside(record: dict[str, float], kind: str) -> str:
    """Return the milliseconds of both, and how many times as long scikit-learn takes."""
    ours, theirs = record[kind], record[f"their {kind}"]
    return f"{1e3 * ours:.0f}, {1e3 * theirs:.0f} ({theirs / ours:.2f}x)"


def named(names: str, share: float, source: dict[str, Problem]) -> Iterator[tuple[str, Any, int]]:
    """Yield title, rows and number of clusters of the problems and sets that are asked for."""
    folder = Path(os.environ.get("DASKCLUST_TEST_DATA", "../shared")) / "data"
    for name in names.split(","):
        if name in source:
            p = source[name]
            size = replace(p, n=int(p.n * share))
            yield f"{name} ({size.n:.0e}, {p.p}, {p.k})", overlapping(size), p.k
        elif (path := folder / SETS[name][0]).exists():
            rows, k = rows_of(path), SETS[name][1]
            yield f"{name} ({len(rows):.0e}, {rows.shape[1]}, {k})", rows, k
        else:
            print(f"{name} is left out: {path} does not exist.")


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--toy", action="store_true", help="a to d alone, with 4000 rows")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--share", type=float, default=0.1, help="of the rows of a to d")
    parser.add_argument("--problems", default=",".join((*PROBLEMS, *SETS)))
    options = parser.parse_args()
    names, share, source = options.problems, options.share, PROBLEMS
    if options.toy:
        names, share, source = ",".join(TOY), 1.0, TOY
    table = []
    for name, rows, k in named(names, share, source):
        r = measure(rows, k, options.seeds)
        excess = f"{100 * (r['inertia'] - 1):+.2f} ± {100 * r['error']:.2f} %"
        table.append([name, excess, beside(r, "clock"), beside(r, "processor")])
        print(*table[-1], flush=True)
    print_table(
        [
            "problem (n, p, k)",
            "inertia over scikit-learn's",
            "ms, scikit-learn's (over ours)",
            "processor",
        ],
        table,
    )


if __name__ == "__main__":
    main()
