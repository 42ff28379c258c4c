"""Time of one EM iteration of GaussianMixture: daskclust and scikit-learn, on NumPy.

``python tests/benchmarks/mixtures.py`` prints the table: diagonal and full
covariances on complete rows, and daskclust alone with 20 % of the values missing
completely at random.  Each cell runs in a process of its own, alternating, medians
of ``--repeats`` runs, two threads.  ``--size 50000,200,5`` takes other rows, features and
components; ``--patterns 1000`` adds full covariances with the missing values in so many patterns.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings

import numpy as np
from _timing import Problem, middle, print_table, run_alone

PROBLEM = Problem(500_000, 20, 10)
TOY = Problem(4000, 5, 3)
#: (peer, covariances, share of values missing)
CELLS = (
    ("daskclust", "diag", 0.0),
    ("scikit-learn", "diag", 0.0),
    ("daskclust", "diag", 0.2),
    ("daskclust", "full", 0.0),
    ("scikit-learn", "full", 0.0),
)
#: Most that an iteration may take: over scikit-learn's (complete), over our own (missing).
TARGETS = {"diag": 1.0, "full": 1.5, "missing": 3.0}

Cell = tuple[str, str, float]


def remove(x: np.ndarray, share: float, patterns: int) -> None:
    """Remove a share of the values at random, or in so many patterns."""
    rng = np.random.default_rng(1)
    if not patterns:
        x[rng.random(x.shape) < share] = np.nan
        return
    hidden = rng.random((patterns, x.shape[1])) < share
    x[hidden[rng.integers(patterns, size=len(x))]] = np.nan


def measure(
    cell: Cell, problem: Problem, patterns: int = 0, short: int = 2, long: int = 8
) -> float:
    """Return seconds an iteration, from two fits of different length, in this process."""
    peer, covariance_type, missing = cell
    x, means = problem.data("float64")
    if missing:
        remove(x, missing, patterns if covariance_type == "full" else 0)
    p, k = problem.p, problem.k
    start = {
        "weights_init": np.full(k, 1 / k),
        "means_init": np.nan_to_num(means),
        "precisions_init": np.ones((k, p))
        if covariance_type == "diag"
        else np.array([np.eye(p)] * k),
    }
    if peer == "scikit-learn":
        from sklearn.mixture import GaussianMixture
    else:
        from daskclust import GaussianMixture

    def fit(n_iter: int) -> float:
        model = GaussianMixture(
            k, covariance_type=covariance_type, max_iter=n_iter, tol=0.0, **start
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            began = time.perf_counter()
            model.fit(x)
        assert model.n_iter_ == n_iter
        return time.perf_counter() - began

    fit(1)
    return (fit(long) - fit(short)) / (long - short)


def compare(
    problem: Problem = PROBLEM, *, patterns: int = 0, repeats: int = 3
) -> dict[Cell, float]:
    """Milliseconds an iteration by cell; all cells in turn, in processes of their own."""
    cells = (*CELLS, ("daskclust", "full", 0.2)) if patterns else CELLS
    found: dict[Cell, list[float]] = {cell: [] for cell in cells}
    for _ in range(repeats):
        for cell in cells:
            argument = json.dumps([list(cell), problem.n, problem.p, problem.k, patterns])
            found[cell].append(1e3 * run_alone(__file__, "--alone", argument)["seconds"])
    return {cell: middle(values) for cell, values in found.items()}


def ratios(found: dict[Cell, float]) -> dict[str, float]:
    """Return what :data:`TARGETS` are about."""
    ours = {(c, m): t for (peer, c, m), t in found.items() if peer == "daskclust"}
    return {
        "diag": ours["diag", 0.0] / found["scikit-learn", "diag", 0.0],
        "full": ours["full", 0.0] / found["scikit-learn", "full", 0.0],
        "missing": ours["diag", 0.2] / ours["diag", 0.0],
    }


def report(found: dict[Cell, float]) -> None:
    """Print the table, and what :data:`TARGETS` are about."""
    print_table(
        ["peer", "covariances", "missing", "ms an iteration"],
        [[peer, c, f"{m:.0%}", f"{t:.0f}"] for (peer, c, m), t in found.items()],
    )
    print()
    for name, ratio in ratios(found).items():
        print(f"- {name}: {ratio:.2f} (at most {TARGETS[name]})")


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--size", default=f"{PROBLEM.n},{PROBLEM.p},{PROBLEM.k}", help="n,p,k")
    parser.add_argument("--patterns", type=int, default=0)
    options = parser.parse_args()
    if options.alone:
        cell, n, p, k, patterns = json.loads(options.alone)
        print(json.dumps({"seconds": measure(tuple(cell), Problem(n, p, k), patterns)}))
        return
    problem = Problem(*map(int, options.size.split(",")))
    report(compare(problem, patterns=options.patterns, repeats=options.repeats))


if __name__ == "__main__":
    main()
