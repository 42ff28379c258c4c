"""DPMeans against KMeans with as many clusters.

``python tests/benchmarks/dpmeans.py`` fits both on separated clusters, n = 1e6, p = 20, about 50
of them, from an in-memory Dask array in ten chunks, and prints the times of whole fits.
"""

from __future__ import annotations

import time
from typing import Any

import dask.array as da
import numpy as np
from _timing import THREADS, middle, print_table

import daskclust

#: A fit of DPMeans takes at most so many times one of KMeans.
TARGET_RATIO = 3.0


def data(n: int, p: int = 20, k: int = 50, seed: int = 0) -> np.ndarray:
    """Clusters of variance 1 a feature, whose centers have variance 25."""
    rng = np.random.default_rng(seed)
    centers = 5.0 * rng.normal(size=(k, p))
    x = np.empty((n, p), dtype=np.float32)
    for start in range(0, n, 65536):
        part = x[start : start + 65536]
        part[:] = centers[rng.integers(k, size=len(part))]
        part += rng.normal(size=part.shape).astype(np.float32)
    return x


def compare(n: int = 1_000_000, repeats: int = 3) -> dict[str, Any]:
    """Seconds of whole fits, the number of clusters, and iterations and passes of both."""
    import dask

    x = data(n)
    lazy = da.from_array(x, chunks=(-(-n // 10), x.shape[1]))
    # Beyond the squared distance of rows of one cluster, twice chi2(20); below that of others.
    delta = 200.0
    times: dict[str, list[float]] = {"DPMeans": [], "KMeans": []}
    with dask.config.set(scheduler="threads", num_workers=THREADS):
        for repeat in range(repeats + 1):
            began = time.perf_counter()
            ours = daskclust.DPMeans(delta).fit(lazy)
            middle_ = time.perf_counter()
            plain = daskclust.KMeans(ours.n_clusters_, random_state=repeat).fit(lazy)
            if repeat:  # the first compiles
                times["DPMeans"].append(middle_ - began)
                times["KMeans"].append(time.perf_counter() - middle_)
    return {
        "seconds": {name: middle(found) for name, found in times.items()},
        "n_clusters": ours.n_clusters_,
        "n_iter": {"DPMeans": ours.n_iter_, "KMeans": plain.n_iter_},
        "passes": {
            "DPMeans": ours.history_[-1]["passes"],
            "KMeans": plain.history_[-1]["passes"],
        },
        "inertia": {"DPMeans": ours.inertia_, "KMeans": plain.inertia_},
    }


def main() -> None:
    """Run from the command line."""
    found = compare()
    print(f"{found['n_clusters']} clusters")
    print_table(
        ["fit", "seconds", "iterations", "passes", "inertia"],
        [
            [
                name,
                f"{found['seconds'][name]:.2f}",
                *(str(found[key][name]) for key in ("n_iter", "passes")),
                f"{found['inertia'][name]:.4g}",
            ]
            for name in found["seconds"]
        ],
    )


if __name__ == "__main__":
    main()
