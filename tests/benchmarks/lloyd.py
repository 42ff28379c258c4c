"""Time of one Lloyd iteration: daskclust on an in-memory Dask array, scikit-learn, dask-ml.

``python tests/benchmarks/lloyd.py`` prints the table; each peer runs in a process of its own,
alternating, medians of ``--repeats`` runs, two threads. ``limit`` is what the machine allows: the
longer of reading the rows once and of the products of their scores, by the bandwidth and the rate
of products that two threads of its BLAS reach.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np
from _timing import PROBLEMS, TOY, Problem, middle, print_table, run_alone

PEERS = ("daskclust", "scikit-learn", "dask-ml", "limit")
#: Least speed over scikit-learn, and over dask-ml, on any machine: below it something is broken.
LEAST = {"a": (1.0, 5.0), "b": (1.0, 5.0), "c": (1.5, 5.0), "d": (2.5, 3.0)}


def _per_iteration(fit: Callable[[int], int], short: int, long: int) -> float:
    """Seconds an iteration, from two fits of different length."""
    fit(1)
    spans = []
    for limit in (short, long):
        began = time.perf_counter()
        made = fit(limit)
        spans.append((time.perf_counter() - began, made))
    (t0, n0), (t1, n1) = spans
    return (t1 - t0) / (n1 - n0)


def _best(work: Callable[[], object], times: int = 7) -> float:
    """Return the least seconds that the work takes."""
    spans = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        spans.append(time.perf_counter() - began)
    return min(spans)


def limit_of(problem: Problem, dtype: str) -> float:
    """Return the least seconds of an iteration that this machine's memory and BLAS allow."""
    square = np.random.default_rng(0).random((2048, 2048)).astype(dtype)
    # More than caches hold.
    line = np.ones(2**28 // np.dtype(dtype).itemsize, dtype)
    a_product = _best(lambda: square @ square) / 2048**3
    a_byte = _best(lambda: line @ line) / line.nbytes
    values = problem.n * problem.p
    return max(values * problem.k * a_product, values * np.dtype(dtype).itemsize * a_byte)


def measure(peer: str, problem: Problem, dtype: str, long: int = 12) -> float:
    """Return seconds an iteration of one peer, in this process."""
    if peer == "limit":
        return limit_of(problem, dtype)
    x, centers = problem.data(dtype)
    if peer == "scikit-learn":
        from sklearn.cluster import KMeans

        def fit(limit: int) -> int:
            model = KMeans(
                problem.k, init=centers.astype(dtype), n_init=1, max_iter=limit, tol=0
            ).fit(x)
            return int(model.n_iter_)

        return _per_iteration(fit, 2, long)
    import dask.array as da

    array = da.from_array(x, chunks=(-(-problem.n // 8), problem.p)).persist()
    if peer == "dask-ml":
        from dask_ml.cluster import KMeans as DaskKMeans

        def fit(limit: int) -> int:
            model = DaskKMeans(problem.k, init=centers.astype(dtype), max_iter=limit, tol=0)
            return int(model.fit(array).n_iter_) + 1

        return _per_iteration(fit, 1, 4)
    from daskclust import KMeans as OurKMeans

    def fit(limit: int) -> int:
        model = OurKMeans(problem.k, init=centers, max_iter=limit, tol=0, algorithm="lloyd")
        return int(model.fit(array).n_iter_)

    return _per_iteration(fit, 2, long)


def compare(
    problems: dict[str, Problem],
    *,
    dtypes: tuple[str, ...] = ("float32",),
    repeats: int = 5,
    peers: tuple[str, ...] = PEERS,
) -> dict[tuple[str, str], dict[str, float]]:
    """Measure all peers, alternating; milliseconds by (problem, dtype) and peer."""
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for _ in range(repeats):
        for name in problems:
            for dtype in dtypes:
                for peer in peers:
                    p = problems[name]
                    argument = json.dumps([peer, p.n, p.p, p.k, dtype])
                    seconds = run_alone(__file__, "--alone", argument)["seconds"]
                    cell = found.setdefault((name, dtype), {})
                    cell.setdefault(peer, []).append(1e3 * seconds)
    return {key: {peer: middle(v) for peer, v in cell.items()} for key, cell in found.items()}


def report(results: dict[tuple[str, str], dict[str, float]], problems: dict[str, Problem]) -> None:
    """Print the table."""
    peers = [peer for peer in PEERS[1:] if peer in next(iter(results.values()))]
    rows = []
    for (name, dtype), cell in results.items():
        ours = cell["daskclust"]
        row = [f"{problems[name].titled(name)} {dtype}", f"{ours:.1f}"]
        rows.append([*row, *(f"{cell[peer]:.1f} ({cell[peer] / ours:.2f}x)" for peer in peers)])
    columns = [f"{peer} ms (over ours)" for peer in peers]
    print_table(["problem (n, p, k)", "daskclust ms", *columns], rows)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--toy", action="store_true")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--problems", default="abcd")
    parser.add_argument("--dtypes", default="float32")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        peer, n, p, k, dtype = json.loads(options.alone)
        print(json.dumps({"seconds": measure(peer, Problem(n, p, k), dtype)}))
        return
    source = TOY if options.toy else PROBLEMS
    problems = {name: source[name] for name in options.problems}
    dtypes = tuple(options.dtypes.split(","))
    peers = tuple(options.peers.split(","))
    report(compare(problems, dtypes=dtypes, repeats=options.repeats, peers=peers), problems)


if __name__ == "__main__":
    np.seterr(all="ignore")
    main()
