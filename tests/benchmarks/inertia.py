"""Quality of whole k-means fits over many seeds: mean inertia beside scikit-learn's.

``python tests/benchmarks/inertia.py`` fits each problem with twenty seeds by both libraries, one
start each (greedy k-means++ in scikit-learn), on two threads, in processes of their own that
alternate.  It prints the mean inertia of ours over scikit-learn's, its standard error, and the
medians of the time of a fit, by the clock and by the processors.  Problems are those of
``whole_fits.py``, with a tenth of their rows, and real sets of ``DASKCLUST_TEST_DATA`` with as many
clusters as they have classes, columns of variance 1; ``--problems a,shuttle`` takes some of them.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from _timing import PROBLEMS, TOY, Problem, middle, print_table, run_alone
from whole_fits import inertia, overlapping

#: File and number of clusters.
SETS = {
    "pendigits": ("uci_pendigits_train.npz", 10),
    "letter": ("uci_letterrecognition.npz", 26),
    "shuttle": ("uci_shuttle.npz", 7),
    "cover": ("scale_covertype_93k.npz", 7),
    "segment": ("uci_segment.npz", 7),
}
PEERS = ("daskclust", "scikit-learn")
#: Turns in which the processes of both libraries alternate.
TURNS = 2


def path_of(name: str) -> Path:
    """Return the file of a set."""
    folder = Path(os.environ.get("DASKCLUST_TEST_DATA", "../shared")) / "data"
    return folder / SETS[name][0]


def rows_of(name: str) -> np.ndarray:
    """Return the rows of a set; columns that vary are scaled to variance 1."""
    with np.load(path_of(name), allow_pickle=False) as file:
        rows = file["X"].astype(np.float64)
    spread = rows.std(axis=0)
    scaled = (rows - rows.mean(axis=0))[:, spread > 0] / spread[spread > 0]
    return np.ascontiguousarray(scaled, dtype=np.float32)


def measure(peer: str, rows: np.ndarray, k: int, seeds: Iterable[int]) -> dict[str, list[float]]:
    """Fit with each seed, in this process; return inertia and seconds of each fit."""
    if peer == "daskclust":
        from daskclust import KMeans
    else:
        from sklearn.cluster import KMeans
    # Compiled before, and threads started.
    KMeans(k, random_state=0, n_init=1).fit(rows)
    models, clock, processor = [], [], []
    for seed in seeds:
        began, worked = time.perf_counter(), time.process_time()
        models.append(KMeans(k, random_state=seed, n_init=1).fit(rows))
        clock.append(time.perf_counter() - began)
        processor.append(time.process_time() - worked)
    # After all fits: threads of its products wait busily for a while.
    found = [inertia(rows, model.cluster_centers_) for model in models]
    return {"inertia": found, "clock": clock, "processor": processor}


def compare(
    names: Iterable[str], seeds: int = 20, source: dict[str, Problem] = PROBLEMS, share: float = 0.1
) -> dict[str, dict[str, dict[str, list[float]]]]:
    """Measure problems and sets, peers in turns; sets whose file is missing are left out."""
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for name in names:
        p = replace(source[name], n=int(source[name].n * share)) if name in source else None
        if p is None and not path_of(name).exists():
            print(f"{name} is left out: {path_of(name)} does not exist.")
            continue
        what: Any = [p.n, p.p, p.k] if p else name
        cell = found[name] = {peer: {} for peer in PEERS}
        for part in np.array_split(np.arange(seeds), min(TURNS, seeds)):
            for peer in PEERS:
                argument = json.dumps([peer, what, part.tolist()])
                for key, values in run_alone(__file__, "--alone", argument).items():
                    cell[peer].setdefault(key, []).extend(values)
    return found


def summary(results: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Return by problem the ratio of mean inertia, its standard error, and medians of seconds."""
    table = {}
    for name, cell in results.items():
        ours, theirs = (np.array(cell[peer]["inertia"]) for peer in PEERS)
        error = np.hypot(*(part.std(ddof=1) / len(part) ** 0.5 for part in (ours, theirs)))
        table[name] = {
            "inertia": float(ours.mean() / theirs.mean()),
            "error": float(error / theirs.mean()),
        }
        for kind in ("clock", "processor"):
            for peer in PEERS:
                table[name][f"{kind}, {peer}"] = middle(cell[peer][kind])
    return table


def report(table: dict[str, dict[str, float]]) -> None:
    """Print the table."""
    rows = []
    for name, r in table.items():
        row = [name, f"{100 * (r['inertia'] - 1):+.2f} ± {100 * r['error']:.2f} %"]
        for kind in ("clock", "processor"):
            ours, theirs = (r[f"{kind}, {peer}"] for peer in PEERS)
            row.append(f"{1e3 * ours:.1f}, {1e3 * theirs:.1f} ({theirs / ours:.2f}x)")
        rows.append(row)
    print_table(
        [
            "",
            "inertia over scikit-learn's",
            "ms, and scikit-learn's (over ours)",
            "processor ms",
        ],
        rows,
    )


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--toy", action="store_true", help="a to d, with 4000 rows")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--share", type=float, default=0.1, help="of the rows of a to d")
    parser.add_argument("--problems", default=",".join((*PROBLEMS, *SETS)))
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        peer, what, seeds = json.loads(options.alone)
        if isinstance(what, str):
            rows, k = rows_of(what), SETS[what][1]
        else:
            rows, k = overlapping(Problem(*what)), what[2]
        print(json.dumps(measure(peer, rows, k, seeds)))
        return
    if options.toy:
        results = compare(TOY, options.seeds, TOY, 1.0)
    else:
        results = compare(options.problems.split(","), options.seeds, share=options.share)
    report(summary(results))


if __name__ == "__main__":
    main()
