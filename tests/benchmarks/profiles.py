"""Cost of profiles of 1e6 rows, 50 features and 20 clusters, in passes of KMeans.

``python tests/benchmarks/profiles.py [float32]``.  Processor time, which other work on the machine
changes little: seconds of all threads, the least of some runs.  A pass of KMeans is one more
iteration of a fit; ``predict`` labels all rows once; reading them is a sum.

Two cores of an AVX-512 EPYC, float64, idle, five runs: reading 12 to 14 ms, a pass 80 to 90 ms,
predict 75 to 90 ms, profiles of an array 241 to 253 ms (2.8 to 3.0 passes), of Dask 247 to 259 ms
(2.8 to 3.1).  Before rows were read ahead and distances carried: 296 to 343 and 320 to 352 ms.
Since rows are counted label by label, idle, six runs: a pass 79 to 89 ms, an array 203 to 270 ms
(2.6 to 3.2 passes, on the mean 2.9), Dask 239 to 277 ms (2.9 to 3.2, on the mean 3.05).
Since bins and AUC are compiled and rows are drawn by a hash, idle, six runs while the machine had
half its speed (reading 25 to 28 ms, a pass 130 to 151): an array 290 to 336 ms (2.0 to 2.6 passes),
Dask 307 to 379 ms (2.1 to 2.8).
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np

import daskclust
from daskclust.explain import profiles

N, P, K = 1_000_000, 50, 20


def seconds(work: Callable[[], Any], runs: int = 5) -> float:
    """Return processor time of the best run, after one that compiles."""
    work()
    found = []
    for _ in range(runs):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def main() -> None:
    """Print times in milliseconds, and profiles in passes."""
    random = np.random.default_rng(0)
    centers = random.normal(size=(K, P)) * 3
    X = centers[random.integers(0, K, N)] + random.normal(size=(N, P))
    X = X.astype(sys.argv[1] if len(sys.argv) > 1 else float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = daskclust.KMeans(K, init=X[:K], max_iter=3).fit(X)
    lazy = da.from_array(X, chunks=(N // 8, P))

    def fitting(n: int) -> float:
        return seconds(lambda: daskclust.KMeans(K, init=X[:K], max_iter=n, tol=0).fit(X), 3)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = (fitting(15) - fitting(5)) / 10
    print(
        f"reading {1e3 * seconds(lambda: X.sum()):.0f} ms, pass {1e3 * one:.0f} ms, "
        f"predict {1e3 * seconds(lambda: model.predict(X)):.0f} ms"
    )
    for name, rows in (("array", X), ("Dask", lazy)):
        found = seconds(lambda rows=rows: profiles(model, rows))
        print(f"profiles of {name}: {1e3 * found:.0f} ms, {found / one:.1f} passes")


if __name__ == "__main__":
    main()
