"""Cost of profiles of 1e6 rows, 50 features and 20 clusters, in passes of KMeans.

``python tests/benchmarks/profiles.py [float32]``.  Processor time, which other work on the machine
changes little: seconds of all threads, the least of some runs.  A pass of KMeans labels all rows
(``predict``); reading the rows once is a sum over them.

Two cores of an AVX-512 EPYC at a load of 1, float64: reading 21 ms, a pass 51 ms, profiles of an
array 200 ms, of Dask 223 ms (232 and 277 with 512 bins, chosen by 16 384 rows).  Float32: reading
9 ms, a pass 40 ms, profiles 178 and 190 ms.
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
    one = seconds(lambda: model.predict(X))
    print(f"reading {1e3 * seconds(lambda: X.sum()):.0f} ms, pass {1e3 * one:.0f} ms")
    for name, rows in (("array", X), ("Dask", lazy)):
        found = seconds(lambda rows=rows: profiles(model, rows))
        print(f"profiles of {name}: {1e3 * found:.0f} ms, {found / one:.1f} passes")


if __name__ == "__main__":
    main()
