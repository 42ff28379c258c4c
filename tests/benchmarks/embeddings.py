"""Embeddings: daskclust beside faiss, SuperKMeans and scikit-learn, start included, two threads.

``python tests/benchmarks/embeddings.py`` prints the table, ``--problems e`` a part of it.  Problem
e is 1e5 made rows of length 1 (768 values, decaying spectrum, 1000 planted centers), f the 60 742
text vectors of ``text_debian_256.npz`` in ``DASKCLUST_TEST_DATA`` (256 values of float16).  Each
fit makes 25 iterations over all rows at most, in a process of its own after a short one; peers
alternate; ``embeddings.json`` beside this script keeps what was found.  What counts is the time
after which the inertia of daskclust is no higher than that at which the peer ends.  Processor
seconds are beside those of the clock: a busy machine changes them less.

``--levels`` compares two levels with one, at k = 2000: on f, and on 40 000 made rows of 96 values
around 1000 centers.  ``--hierarchical`` is problem g: 2e6 rows of 256 values of float16 on disk,
1e5 clusters, two workers of 1.5 GB (``--share`` takes a part of rows and clusters, ``--workers``
another number).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from _machine import circumstances, hardware, versions
from _results import dumps
from _timing import THREADS, middle, peak_memory, print_table, run_alone
from whole_fits import inertia

MODULES = {
    "daskclust": "daskclust",
    "faiss": "faiss",
    "faiss k-means++": "faiss",
    "SuperKMeans": "superkmeans",
    "scikit-learn": "sklearn",
}
#: Clusters of each problem.
PROBLEMS = {"e": (1000,), "f": (256, 2048)}
#: Speed over each peer that we ask for, to its final inertia.
TARGETS = {
    ("e", "SuperKMeans"): 1.0,
    ("e", "faiss"): 2.0,
    ("f", "SuperKMeans"): 1.3,
    ("f", "faiss"): 2.5,
}
ITERATIONS = 25
RESULTS = Path(__file__).with_suffix(".json")
#: Ways of two levels; the first is one level.
WAYS: dict[str, dict[str, Any] | None] = {
    "KMeans": None,
    "HierarchicalKMeans": {},
    'n_probe="all", refine=5': {"n_probe": "all", "refine": 5},
    'n_probe="all", refine=5, 6 parents': {"n_clusters": (6, 333), "n_probe": "all", "refine": 5},
    'n_probe="all", refine=5, 22 parents': {"n_clusters": (22, 90), "n_probe": "all", "refine": 5},
    "(5, 20, 20)": {"n_clusters": (5, 20, 20)},
    "(10, 20, 10)": {"n_clusters": (10, 20, 10)},
}


def made(n: int, p: int, k: int, decay: float) -> np.ndarray:
    """Rows about k centers, the spectrum of both decaying by a power of the column."""
    rng = np.random.default_rng(0)
    spread = (np.arange(1, p + 1) ** -decay).astype(np.float32)
    centers = spread * rng.standard_normal((k, p), dtype=np.float32)
    rows = 0.7 * spread * rng.standard_normal((n, p), dtype=np.float32)
    rows += centers[rng.integers(k, size=n)]
    return rows


def rows_of(name: str, share: float = 1.0) -> np.ndarray:
    """Return the rows of a problem, or the first of them."""
    if name == "f":
        folder = Path(os.environ.get("DASKCLUST_TEST_DATA", "../shared")) / "data"
        with np.load(folder / "text_debian_256.npz", allow_pickle=False) as file:
            return np.asarray(file["X"][: int(share * len(file["X"]))])
    if name == "made":
        return made(int(40_000 * share), 96, 1000, 0.0)
    rows = made(int(100_000 * share), 768, 1000, 0.5)
    return rows / np.linalg.norm(rows, axis=1)[:, None]


def _now() -> np.ndarray:
    """Return seconds of the clock and of all threads of this process."""
    return np.array([time.perf_counter(), time.process_time()])


def _fit(peer: str, rows: np.ndarray, k: int, seed: int, iterations: int) -> tuple[Any, Any]:
    """Return centers, and for daskclust after how many seconds which inertia was known."""
    if peer == "daskclust":
        import daskclust

        trace, began = [], _now()

        def note(record: dict[str, Any]) -> None:
            trace.append((*(_now() - began), record["objective"]))

        with daskclust.on_iteration(note):
            model = daskclust.KMeans(k, max_iter=iterations, random_state=seed).fit(rows)
        return model.cluster_centers_, trace
    if peer.startswith("faiss"):
        import faiss

        p, options = rows.shape[1], {"max_points_per_centroid": len(rows)}
        if peer != "faiss":  # by default it starts from random rows
            options["init_method"] = faiss.ClusteringInitMethod_KMEANS_PLUS_PLUS
        model = faiss.Kmeans(p, k, niter=iterations, seed=seed, **options)
        model.train(rows)
        return model.centroids, None
    if peer == "SuperKMeans":
        from superkmeans import SuperKMeans

        # Its defaults stop early, on a sample, at 6 % more inertia.
        model = SuperKMeans(
            k,
            rows.shape[1],
            hierarchical=False,
            iters=iterations,
            sampling_fraction=1.0,
            max_points_per_cluster=len(rows),
            early_termination=False,
            n_threads=THREADS,
            seed=seed,
        )
        return np.asarray(model.train(rows)), None
    from sklearn.cluster import KMeans

    model = KMeans(k, n_init=1, max_iter=iterations, random_state=seed, algorithm="lloyd")
    return model.fit(rows).cluster_centers_, None


def measure(peer: str, name: str, k: int, seed: int, share: float) -> dict[str, Any]:
    """Return seconds and inertia of one fit, in this process."""
    stored = rows_of(name, share)
    rows = np.ascontiguousarray(stored, dtype=np.float32)
    given = stored if peer == "daskclust" else rows
    _fit(peer, given[: max(8192, 2 * k)], k, seed, 3)
    began = _now()
    centers, trace = _fit(peer, given, k, seed, ITERATIONS)
    seconds, processor = _now() - began
    found = {"seconds": seconds, "processor": processor, "inertia": inertia(rows, centers)}
    if trace:
        found["trace"] = [*trace, (seconds, processor, found["inertia"])]
    return found


def compare(
    problems: dict[str, tuple[int, ...]], peers: list[str], seeds: int = 1, share: float = 1.0
) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Measure all peers, alternating; by problem with its clusters and peer a record a seed."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for seed in range(seeds):
        for name, numbers in problems.items():
            for k in numbers:
                for peer in peers:
                    argument = json.dumps([peer, name, k, seed, share])
                    record = run_alone(__file__, "--alone", argument)
                    cell = found.setdefault(f"{name}, k = {k}", {})
                    cell.setdefault(peer, []).append(record)
                    told = {key: value for key, value in record.items() if key != "trace"}
                    print(name, k, peer, seed, told, file=sys.stderr, flush=True)
    return found


def until(trace: list[tuple[float, ...]], goal: float) -> tuple[float, float]:
    """Return seconds until the inertia was no higher than the goal; infinite if it never was.

    Of the clock, then of processors, where these were noted.
    """
    found = [(at[0], at[1] if len(at) > 2 else np.nan) for at in trace if at[-1] <= goal]
    return min(found, default=(np.inf, np.inf))


def report(results: dict[str, Any]) -> None:
    """Print the table."""
    rows = []
    for title, cell in results.items():
        ours = cell["daskclust"]
        for peer, runs in cell.items():
            row = [title, peer]
            row += [f"{middle([r[key] for r in runs]):.2f}" for key in ("seconds", "processor")]
            row.append(f"{100 * (sum(r['inertia'] for r in runs) / _total(ours) - 1):+.2f} %")
            if peer == "daskclust":
                rows.append([*row, "", "", ""])
                continue
            reached = [until(o["trace"], r["inertia"]) for o, r in zip(ours, runs, strict=True)]
            for at, key in enumerate(("seconds", "processor")):
                speed = middle([r[key] / t[at] for r, t in zip(runs, reached, strict=True)])
                row.append(f"{middle([t[at] for t in reached]):.2f}, {speed:.1f}x")
            aim = TARGETS.get((title[0], peer))
            rows.append([*row, f"{aim:g}x" if aim else ""])
    header = ["problem", "", "seconds", "processor", "inertia over daskclust's"]
    print_table([*header, "daskclust to that inertia, s", "of a processor", "aim"], rows)


def _total(runs: list[dict[str, Any]]) -> float:
    return float(sum(r["inertia"] for r in runs))


def level(name: str, way: str, k: int, share: float, seed: int) -> dict[str, float]:
    """Return processor seconds and inertia of a fit of one or more levels, in this process."""
    import daskclust

    rows, options = rows_of(name, share), WAYS[way]
    worked = time.process_time()
    if options is None:
        model: Any = daskclust.KMeans(k, max_iter=ITERATIONS, random_state=seed)
    else:
        model = daskclust.HierarchicalKMeans(**{"n_clusters": k, "random_state": seed, **options})
    model.fit(rows)
    return {"processor": time.process_time() - worked, "inertia": float(model.inertia_)}


def compare_levels(
    names: tuple[str, ...] = ("f", "made"), k: int = 2000, seeds: int = 1, share: float = 1.0
) -> dict[str, dict[str, list[dict[str, float]]]]:
    """Measure two levels beside one; a record a seed."""
    found: dict[str, dict[str, list[dict[str, float]]]] = {}
    for seed in range(seeds):
        for name in names:
            for way in WAYS:
                record = run_alone(__file__, "--level", json.dumps([name, way, k, share, seed]))
                found.setdefault(name, {}).setdefault(way, []).append(record)
    return found


def report_levels(results: dict[str, Any]) -> None:
    """Print the table: medians of processor seconds, means of inertia and the worst seed."""
    rows = []
    for name, cell in results.items():
        one = [r["inertia"] for r in cell["KMeans"]]
        for way, runs in cell.items():
            row = [name, way, f"{middle([r['processor'] for r in runs]):.1f}"]
            more = [100 * (r["inertia"] / o - 1) for r, o in zip(runs, one, strict=True)]
            rows.append([*row, f"{np.mean(more):+.2f} % ({max(more):.2f})"])
    print_table(["rows", "", "processor seconds", "inertia over one level's (worst)"], rows)


def hierarchical(share: float = 1.0, workers: int = 2) -> dict[str, Any]:
    """Return seconds, peaks and processor seconds of problem g: rows on disk."""
    import dask.array as da
    from distributed import Client, LocalCluster

    import daskclust

    n, p, k = int(2_000_000 * share), 256, int(100_000 * share)
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "rows.zarr")
        chunks = 20_000
        centers = np.random.default_rng(0).normal(size=(max(1, k // 4), p)).astype("f4")

        def block(block_info: Any) -> np.ndarray:
            (first, last), _ = block_info[None]["array-location"]
            rng = np.random.default_rng(first)
            noise = 0.7 * rng.standard_normal((last - first, p), dtype=np.float32)
            return (noise + centers[rng.integers(len(centers), size=last - first)]).astype("f2")

        lengths = tuple(min(chunks, n - at) for at in range(0, n, chunks))
        rows = da.map_blocks(block, chunks=(lengths, (p,)), dtype="f2", meta=np.empty((0, 0), "f2"))
        rows.to_zarr(store)
        with (
            LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                memory_limit="1.5GB",
                dashboard_address=":0",
            ) as cluster,
            Client(cluster) as client,
        ):
            clock, spent = [], []

            def note(_: Any = None) -> None:
                clock.append(time.perf_counter())
                spent.append(client.run(time.process_time))

            note()
            model = daskclust.HierarchicalKMeans(k, random_state=0, spill=folder)
            with daskclust.on_iteration(note):
                model.fit(da.from_zarr(store))
            seconds = time.perf_counter() - clock[0]
            peaks = client.run(peak_memory)
    # The last records are of a refinement and of the last pass.
    ends = {"start": 1, "first level": model.n_iter_, "parts": -3, "refinement": -2, "last": -1}
    processor, elapsed, before = {}, {}, 0
    for phase, end in ends.items():
        at = range(len(spent))[end]
        processor[phase] = [round(spent[at][w] - spent[before][w], 2) for w in sorted(spent[0])]
        elapsed[phase] = round(clock[at] - clock[before], 2)
        before = at
    return {
        "n": n,
        "k": len(model.cluster_centers_),
        "workers": workers,
        "processor seconds of workers": processor,
        "seconds of phases": elapsed,
        "seconds": seconds,
        "worker MiB": max(peaks.values()),
        "client MiB": peak_memory(),
        "inertia": float(model.inertia_),
    }


def keep(name: str, found: Any, path: Path) -> None:
    """Put results into a file, with what they were measured on."""
    known = json.loads(path.read_text()) if path.is_file() else {}
    measured_on = {**hardware(), **versions(), **circumstances()}
    known[name] = {"measured on": measured_on, "results": found}
    path.write_text(dumps(dict(sorted(known.items()))) + "\n")


def installed() -> list[str]:
    """Return the peers that are installed."""
    return [peer for peer, module in MODULES.items() if importlib.util.find_spec(module)]


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", default="e,f")
    parser.add_argument("--clusters", type=int, nargs="*", help="instead of the problems' own")
    parser.add_argument("--peers", default=",".join(MODULES))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--share", type=float, default=1.0, help="of the rows")
    parser.add_argument("--levels", action="store_true")
    parser.add_argument("--hierarchical", action="store_true")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where they are kept")
    parser.add_argument("--workers", type=int, default=2, help="of --hierarchical")
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    parser.add_argument("--level", help=argparse.SUPPRESS)
    options = parser.parse_args()
    problems = {
        name: tuple(options.clusters or PROBLEMS[name]) for name in options.problems.split(",")
    }
    if options.alone:
        print(json.dumps(measure(*json.loads(options.alone))))
    elif options.level:
        print(json.dumps(level(*json.loads(options.level))))
    elif options.hierarchical:
        found = hierarchical(options.share, options.workers)
        others = f", {options.workers} workers" if options.workers != 2 else ""
        keep(f"g, share {options.share:g}{others}", found, options.results)
        print(json.dumps(found))
    elif options.levels:
        found = compare_levels(seeds=options.seeds, share=options.share)
        keep("levels", found, options.results)
        report_levels(found)
    else:
        peers = [peer for peer in installed() if peer in options.peers.split(",")]
        found = compare(problems, peers, options.seeds, options.share)
        for title, cell in found.items():
            keep(
                title if options.share == 1 else f"{title}, share {options.share:g}",
                cell,
                options.results,
            )
        report(found)


if __name__ == "__main__":
    main()
