"""Quality of whole k-means fits over many seeds: mean inertia beside scikit-learn's.

``python tests/benchmarks/inertia.py`` fits each problem with twenty seeds by both libraries, one
start each (greedy k-means++ in scikit-learn), and prints the mean inertia of ours over
scikit-learn's, its standard error, and the time of ours over scikit-learn's.  Problems are those of
``whole_fits.py``, with a tenth of their rows, and real sets of ``DASKCLUST_TEST_DATA`` with as many
clusters as they have classes, columns of variance 1.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from _timing import PROBLEMS, TOY, print_table
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
    """Fit by both with each seed; return ratios of mean inertia and of the sum of seconds."""
    found: dict[str, list[tuple[float, float]]] = {"ours": [], "theirs": []}
    kinds: dict[str, Any] = {"ours": daskclust.KMeans, "theirs": Reference}
    # Compiled before.
    daskclust.KMeans(k, random_state=0).fit(rows)
    for seed in range(seeds):
        for name, kind in kinds.items():
            began = time.perf_counter()
            model = kind(k, random_state=seed, n_init=1).fit(rows)
            seconds = time.perf_counter() - began
            found[name].append((inertia(rows, model.cluster_centers_), seconds))
    (ours, fast), (theirs, slow) = (np.array(f).T for f in found.values())
    error = np.hypot(*(part.std(ddof=1) / seeds**0.5 for part in (ours, theirs)))
    return {
        "inertia": float(ours.mean() / theirs.mean()),
        "error": float(error / theirs.mean()),
        "time": float(fast.sum() / slow.sum()),
    }


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--toy", action="store_true")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--share", type=float, default=0.1, help="of the rows of a to d")
    options = parser.parse_args()
    source = TOY if options.toy else PROBLEMS
    share = 1.0 if options.toy else options.share
    problems = {}
    for name, p in source.items():
        size = replace(p, n=int(p.n * share))
        problems[f"{name} ({size.n:.0e}, {p.p}, {p.k})"] = overlapping(size), p.k
    folder = Path(os.environ.get("DASKCLUST_TEST_DATA", "../shared")) / "data"
    for name, (file, k) in SETS.items():
        if not (folder / file).exists():
            print(f"{name} is left out: {folder / file} does not exist.")
        elif not options.toy:
            rows = rows_of(folder / file)
            problems[f"{name} ({len(rows):.0e}, {rows.shape[1]}, {k})"] = rows, k
    table = []
    for name, (rows, k) in problems.items():
        r = measure(rows, k, options.seeds)
        excess = f"{100 * (r['inertia'] - 1):+.2f} ± {100 * r['error']:.2f} %"
        table.append([name, excess, f"{r['time']:.2f}"])
        print(*table[-1], flush=True)
    print_table(["problem (n, p, k)", "inertia over scikit-learn's", "time over it"], table)


if __name__ == "__main__":
    main()
