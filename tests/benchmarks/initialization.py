"""Initial centers: agreement with the truth and inertia with default settings, beside scikit-learn.

``python tests/benchmarks/initialization.py`` fits Gaussian clusters in many and few dimensions, of
equal and unequal sizes and scales, with correlated features, and counts.  It prints the mean
adjusted Rand index and the processor time of ``KMeans(k)``, and of scikit-learn's with 1 and 10
restarts.  ``--quick`` takes a few small cases, ``--estimators`` the other estimators that need
initial centers.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.cluster import KMeans as SklearnKMeans
from sklearn.metrics import adjusted_rand_score

import daskclust


class Case(NamedTuple):
    """Rows n, features p and clusters k, whose centers lie about `separation` from their mean."""

    n: int
    p: int
    k: int
    separation: float = 5.0
    kind: str = "equal"


QUICK = (Case(2000, 2000, 4), Case(2000, 50, 10), Case(3000, 500, 10, 6.0, "unequal"))
CASES = (
    *QUICK,
    Case(2000, 200, 4),
    Case(8000, 2000, 4),
    Case(12_000, 500, 10),
    Case(5000, 500, 10, 6.0),
    Case(2000, 10, 10),
    Case(200, 5000, 4, 8.0),
    Case(2000, 5000, 4),
    Case(200, 50, 3),
    Case(300, 2, 5, 6.0),
    Case(20_000, 300, 25),
    Case(20_000, 300, 25, 5.0, "unequal"),
    Case(100_000, 20, 50, 6.0),
    Case(5000, 200, 50, 7.0),
    Case(3000, 500, 10, 6.0, "scales"),
    Case(3000, 300, 6, 8.0, "correlated"),
    Case(3000, 500, 8, 0.0, "counts"),
    Case(4000, 1000, 8, 6.0, "float32"),
    Case(2000, 300, 2, 4.0),
    Case(1000, 1000, 20, 9.0),
)


def make(case: Case, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and their true clusters."""
    n, p, k, separation, kind = case
    rng = np.random.RandomState(seed)
    shares = np.full(k, 1.0 / k)
    if kind == "unequal":
        shares = np.maximum(rng.dirichlet(np.full(k, 2.0)), 0.3 / k)
    truth = rng.choice(k, n, p=shares / shares.sum())
    if kind == "counts":
        return rng.poisson(np.exp(rng.randn(k, p) - 1.5)[truth]).astype(float), truth
    centers, noise = rng.randn(k, p) * separation / p**0.5, rng.randn(n, p)
    if kind == "scales":
        noise *= np.exp(0.3 * rng.randn(k))[truth, None]
    if kind == "correlated":
        noise = 0.7 * noise + 0.3 * rng.randn(n, 3) @ rng.randn(3, p)
    rows = centers[truth] + noise
    return (rows.astype(np.float32) if kind == "float32" else rows), truth


def estimators(k: int, truth: np.ndarray) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Yield estimators with what their fit is given: one pair, or three labels."""
    pair = {"must_link": [np.flatnonzero(truth == 0)[:2]]}
    for name in ("PCKMeans", "PCSKMeans", "MPCKMeans", "COPKMeans"):
        yield name, getattr(daskclust, name)(k), pair
    y = np.full(len(truth), -1)
    y[[np.flatnonzero(truth == c)[0] for c in range(3)]] = range(3)
    yield "SemiSupervisedKMeans", daskclust.SemiSupervisedKMeans(k), {"y": y}
    for name in ("SparseKMeans", "HierarchicalKMeans", "SpectralClustering"):
        yield name, getattr(daskclust, name)(k), {}
    yield "GaussianMixture", daskclust.GaussianMixture(k, covariance_type="diag"), {}


def measure(
    estimator: Any, rows: np.ndarray, truth: np.ndarray, **given: Any
) -> tuple[float, float, float]:
    """Fit; return the adjusted Rand index, the inertia if there is one, and processor seconds."""
    begun = time.process_time()
    estimator.fit(rows, **given)
    seconds = time.process_time() - begun
    index = adjusted_rand_score(truth, np.asarray(estimator.labels_))
    return index, getattr(estimator, "inertia_", np.nan), seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few small cases")
    parser.add_argument("--estimators", action="store_true", help="the other estimators")
    parser.add_argument("--seeds", type=int, default=4, help="data sets per case (default: 4)")
    options = parser.parse_args()
    if options.estimators:
        case = Case(3000, 300, 8, 6.0) if options.quick else Case(20_000, 300, 25)
        rows, truth = make(case, 0)
        for name, estimator, given in estimators(case.k, truth):
            model = estimator.set_params(random_state=0)
            index, _, seconds = measure(model, rows, truth, **given)
            print(f"{name:>22}  index {index:.3f}  {seconds:.2f} s", flush=True)
        return
    for case in QUICK if options.quick else CASES:
        found: dict[str, list[tuple[float, float, float]]] = {}
        for seed in range(options.seeds):
            rows, truth = make(case, seed)
            models = {
                "daskclust": daskclust.KMeans(case.k, random_state=seed),
                "scikit-learn, 1": SklearnKMeans(case.k, n_init=1, random_state=seed),
                "scikit-learn, 10": SklearnKMeans(case.k, n_init=10, random_state=seed),
            }
            for name, model in models.items():
                found.setdefault(name, []).append(measure(model, rows, truth))
        means = {name: np.mean(values, axis=0) for name, values in found.items()}
        least = means["scikit-learn, 10"][1]
        columns = [
            f"{name}: index {index:.3f}, inertia {inertia / least:.4f}, {seconds:.2f} s"
            for name, (index, inertia, seconds) in means.items()
        ]
        print(f"{case.n} x {case.p}, {case.k} {case.kind};", "; ".join(columns), flush=True)


if __name__ == "__main__":
    main()
