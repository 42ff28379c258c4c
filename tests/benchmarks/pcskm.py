"""Time of PCSKMeans: a small constrained problem, and a pass over a large one beside KMeans.

``python tests/benchmarks/pcskm.py`` prints both, the first beside the time of the authors' program.
"""

from __future__ import annotations

import time
import warnings

import dask.array as da
import numpy as np
from _timing import Problem, middle, show_figures

import daskclust

#: Seconds of the small fit, and a pass of PCSKMeans over one of KMeans, at most.
TARGET_SMALL, TARGET_RATIO = 0.1, 1.5
#: The authors' MATLAB program under Octave on the small problem, processor time, another machine.
OCTAVE_SECONDS = 15.4
LARGE = Problem(1_000_000, 50, 8)


def small(n: int = 2000, n_pairs: int = 4000, repeats: int = 9) -> float:
    """Return the median seconds of a fit of n rows, 10 features and 3 clusters."""
    x, y = daskclust.datasets.make_gaussian_mixture(
        n, n_components=3, n_features=10, side=3.0, random_state=0
    )
    must, cannot = daskclust.pairs_from_labels(y, n_pairs=n_pairs, random_state=0)
    spans = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            daskclust.PCSKMeans(3, sparsity=1.5, random_state=0).fit(
                x, must_link=must, cannot_link=cannot
            )
        spans.append(time.perf_counter() - began)
    # The first fit compiles.
    return middle(spans[1:])


def large(problem: Problem = LARGE, n_pairs: int = 10_000, passes: int = 12) -> tuple[float, float]:
    """Return milliseconds a pass of PCSKMeans with pairs, and of KMeans."""
    x, centers = problem.data()
    array = da.from_array(x, chunks=(-(-problem.n // 8), problem.p)).persist()
    rng = np.random.default_rng(0)
    pairs = rng.integers(problem.n, size=(n_pairs, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    labels = daskclust.KMeans(problem.k, init=centers, max_iter=5).fit(x).labels_
    same = labels[pairs[:, 0]] == labels[pairs[:, 1]]
    spans: dict[str, list[float]] = {"pcskm": [], "kmeans": []}
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sparse = daskclust.PCSKMeans(
                problem.k, init=centers, max_iter=passes, max_outer_iter=1
            ).fit(array, must_link=pairs[same], cannot_link=pairs[~same])
            plain = daskclust.KMeans(problem.k, init=centers, max_iter=passes, tol=0).fit(array)
        spans["pcskm"] += [r["seconds"] for r in sparse.history_[1:]]
        spans["kmeans"] += [r["seconds"] for r in plain.history_[1:]]
    return 1e3 * middle(spans["pcskm"]), 1e3 * middle(spans["kmeans"])


def measure(toy: bool = False) -> dict[str, float]:
    """Return the seconds of the small fit, and the milliseconds of both passes."""
    seconds = small(200, 100, repeats=1) if toy else small()
    ours, plain = large(Problem(5000, 10, 4), n_pairs=100, passes=3) if toy else large()
    return {"small": seconds, "pass": ours, "pass of KMeans": plain}


def figures(found: dict[str, float]) -> list[list[str]]:
    """Return the lines of a table of single figures."""
    seconds, ours, plain = found["small"], found["pass"], found["pass of KMeans"]
    return [
        [
            "PCSKMeans, n=2000, p=10, k=3, 4000 pairs",
            f"{seconds:.3f} s",
            f"MATLAB program {OCTAVE_SECONDS} s ({OCTAVE_SECONDS / seconds:.0f}x)",
            f"< {TARGET_SMALL} s",
        ],
        [
            "pass of PCSKMeans, n=1e6, p=50, k=8, 1e4 pairs",
            f"{ours:.1f} ms",
            f"KMeans {plain:.1f} ms (ours takes {ours / plain:.2f} of it)",
            f"<= {TARGET_RATIO}",
        ],
    ]


def main() -> None:
    """Run from the command line."""
    show_figures(__doc__, measure, figures)


if __name__ == "__main__":
    main()
