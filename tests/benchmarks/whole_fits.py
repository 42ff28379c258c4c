"""Time of whole k-means fits, start included: daskclust beside its peers, at equal quality.

``python tests/benchmarks/whole_fits.py`` prints the table. Every fit runs in a process of its own,
on two threads, after a short fit that compiles and loads what is needed; peers alternate, and
seeds differ from run to run. ``--python PATH`` names another interpreter for peers that are not
installed in this one. A peer whose fit of a problem takes more than a minute is measured with one
seed of it, and one that takes more than five minutes is ended.

The rule of equal quality: a speed counts where the mean inertia is at most 0.1 % above scikit-
learn's over the same seeds; the excess is in the table.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from contextlib import suppress
from subprocess import TimeoutExpired
from typing import Any

import numpy as np
from _timing import PROBLEMS, THREADS, TOY, Problem, middle, print_table, run_alone

#: The module that each peer is imported from.
MODULES = {
    "daskclust": "daskclust",
    "scikit-learn": "sklearn",
    "scikit-learn-intelex": "sklearnex",
    "faiss": "faiss",
    "dask-ml": "dask_ml",
}
PEERS = tuple(MODULES)
REFERENCE = "scikit-learn"
#: Seconds of a fit, from which one seed is enough, and of a process of a peer at most.
LONG, LIMIT = 60.0, 300.0
#: Mean inertia over that of scikit-learn, up to which quality is equal.
EQUAL = 1.001
#: Speed over scikit-learn that we ask for.
TARGETS = {"a": 2.6, "b": 2.8, "c": 8.0, "d": 20.0}


def overlapping(problem: Problem) -> np.ndarray:
    """Rows about centers so close that many rows are in doubt: N(0, 9 / p), unit noise."""
    rng = np.random.default_rng(1)
    centers = rng.normal(size=(problem.k, problem.p)) * np.sqrt(9 / problem.p)
    rows = rng.standard_normal((problem.n, problem.p), dtype=np.float32)
    rows += centers.astype(np.float32)[rng.integers(problem.k, size=problem.n)]
    return rows


def inertia(rows: np.ndarray, centers: np.ndarray) -> float:
    """Sum of squared distances in double precision, the same for all peers."""
    centers, total = centers.astype(np.float64), 0.0
    squares = (centers**2).sum(axis=1)
    for start in range(0, len(rows), 16384):
        part = rows[start : start + 16384].astype(np.float64)
        nearest = (squares - 2.0 * part @ centers.T).min(axis=1)
        total += float((nearest + (part**2).sum(axis=1)).sum())
    return total


def fit(peer: str, rows: np.ndarray, k: int, seed: int, max_iter: int = 300, **options: Any) -> Any:
    """Return centers and the number of iterations, by the peer's own start and defaults."""
    if peer == "faiss":
        import faiss

        # Its defaults, but for a sample of the rows: 25 iterations over all of them.
        model = faiss.Kmeans(
            rows.shape[1], k, niter=min(25, max_iter), seed=seed, max_points_per_centroid=len(rows)
        )
        model.train(rows)
        return model.centroids, model.cp.niter
    if peer == "dask-ml":
        import dask
        import dask.array as da
        from dask_ml.cluster import KMeans

        array = da.from_array(rows, chunks=(-(-len(rows) // 8), rows.shape[1]))
        with dask.config.set(scheduler="threads", num_workers=THREADS):
            model = KMeans(k, random_state=seed, max_iter=max_iter).fit(array)
        return model.cluster_centers_, int(model.n_iter_)
    if peer == "daskclust":
        from daskclust import KMeans
    elif peer == "scikit-learn-intelex":
        from sklearnex.cluster import KMeans
    else:
        from sklearn.cluster import KMeans
    model = KMeans(k, random_state=seed, n_init=1, max_iter=max_iter, **options).fit(rows)
    return model.cluster_centers_, int(model.n_iter_)


def measure(peer: str, problem: Problem, seed: int) -> dict[str, float]:
    """Return seconds, iterations and inertia of one fit, in this process."""
    rows = overlapping(problem)
    few = rows[: max(20_000, 40 * problem.k)]
    fit(peer, few, problem.k, seed, max_iter=30)
    began = time.perf_counter()
    centers, n_iter = fit(peer, rows, problem.k, seed)
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "iterations": n_iter, "inertia": inertia(rows, centers)}


def installed(python: str = sys.executable) -> dict[str, str]:
    """Return which interpreter runs each peer that is installed anywhere."""
    found = {peer: sys.executable for peer in PEERS if importlib.util.find_spec(MODULES[peer])}
    if python != sys.executable:
        others = run_alone(__file__, "--installed", python=python)
        found |= {peer: python for peer in others if peer not in found}
    return {peer: found[peer] for peer in PEERS if peer in found}


def compare(
    problems: dict[str, Problem], pythons: dict[str, str], seeds: int = 5, limit: float = LIMIT
) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Measure all peers, alternating; by problem and peer a record a seed.

    A peer that is ended after ``limit`` seconds has no inertia and no iterations.
    """
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for seed in range(seeds):
        for name, p in problems.items():
            for peer, python in pythons.items():
                runs = found.setdefault(name, {}).setdefault(peer, [])
                bounded = peer not in ("daskclust", REFERENCE)
                if bounded and runs and runs[0]["seconds"] > min(LONG, 0.99 * limit):
                    continue
                argument = json.dumps([peer, p.n, p.p, p.k, seed])
                record: dict[str, Any] = {"seconds": limit, "iterations": None, "inertia": None}
                with suppress(TimeoutExpired):
                    record = run_alone(
                        __file__,
                        "--alone",
                        argument,
                        python=python,
                        limit=limit if bounded else None,
                    )
                runs.append(record)
                print(name, peer, seed, record, file=sys.stderr, flush=True)
    return found


def summary(results: dict[str, Any]) -> dict[str, dict[str, dict[str, float]]]:
    """Return medians, speeds over scikit-learn and mean inertia over scikit-learn's.

    A peer is compared with scikit-learn over the seeds that it was measured with.
    """
    table: dict[str, dict[str, dict[str, float]]] = {}
    for name, cell in results.items():
        table[name] = {}
        for peer, runs in cell.items():
            same = cell[REFERENCE][: len(runs)]
            seconds, theirs = (middle([r["seconds"] for r in part]) for part in (runs, same))
            ended = any(r["inertia"] is None for r in runs)
            table[name][peer] = {
                "seconds": seconds,
                "iterations": np.nan if ended else middle([r["iterations"] for r in runs]),
                "seeds": len(runs),
                "speed": theirs / seconds,
                "inertia": np.nan
                if ended
                else sum(r["inertia"] for r in runs) / sum(r["inertia"] for r in same),
            }
    return table


def _told(result: dict[str, float], seeds: float) -> str:
    """Return the cell of a peer."""
    if np.isnan(result["inertia"]):
        return f"ended after {result['seconds']:.0f} s"
    text = f"{result['seconds']:.2f} s ({result['iterations']:.0f}) {result['speed']:.2f}x"
    if result["seeds"] < seeds:
        text += f" of {result['seeds']} seed"
    return f"{text}, {100 * (result['inertia'] - 1):+.2f} %"


def report(table: dict[str, Any], problems: dict[str, Problem]) -> None:
    """Print the table."""
    peers = list(next(iter(table.values())))
    rows = []
    for name, cell in table.items():
        told = [_told(cell[peer], cell[REFERENCE]["seeds"]) for peer in peers]
        rows.append([problems[name].titled(name), *told])
    print_table(["problem (n, p, k)", *peers], rows)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--toy", action="store_true")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--problems", default="abcd")
    parser.add_argument("--share", type=float, default=1.0, help="of the rows")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    parser.add_argument("--installed", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.installed:
        print(json.dumps(installed()))
        return
    if options.alone:
        peer, n, p, k, seed = json.loads(options.alone)
        print(json.dumps(measure(peer, Problem(n, p, k), seed)))
        return
    source = TOY if options.toy else PROBLEMS
    problems = {
        name: Problem(int(source[name].n * options.share), source[name].p, source[name].k)
        for name in options.problems
    }
    pythons = {
        peer: python
        for peer, python in installed(options.python).items()
        if peer in options.peers.split(",")
    }
    report(summary(compare(problems, pythons, options.seeds)), problems)


if __name__ == "__main__":
    main()
