"""Time of a start in iterations of Lloyd: k-means|| and ss-k-means||, n = 1e6, p = 50, k = 100.

``python tests/benchmarks/seeding.py`` prints the table.  The start's passes and the clustering of
the candidates are timed, on an in-memory Dask array; the first look at the data is not, as any
start needs it.  Half of the classes have ten labeled rows for ss-k-means||.
"""

from __future__ import annotations

import argparse
import time

import dask.array as da
import numpy as np
from _timing import Problem, print_table

from daskclust.core.engine import open_rows
from daskclust.core.initialization.sampled import sample_centers
from daskclust.core.reduction import ASSIGN, SURVEY, CenterSets, RowLabels, SurveyRequest

PROBLEM = Problem(1_000_000, 50, 100)
#: Iterations that a start may take, and ss-k-means|| over k-means||.
TARGET, TARGET_RATIO = 5.0, 1.1


def rows_of(problem: Problem, separation: float) -> tuple[np.ndarray, np.ndarray]:
    """Return rows about random centers, so many standard deviations apart, and their classes."""
    rng = np.random.default_rng(0)
    centers = separation * rng.normal(size=(problem.k, problem.p))
    classes = rng.integers(problem.k, size=problem.n)
    x = rng.standard_normal((problem.n, problem.p), dtype=np.float32)
    x += centers[classes].astype(np.float32)
    return x, classes


def labels_of(classes: np.ndarray, n_classes: int, each: int = 10) -> RowLabels:
    """Label the first rows of some classes."""
    rows = np.concatenate([np.flatnonzero(classes == c)[:each] for c in range(n_classes)])
    rows.sort()
    return RowLabels(rows, classes[rows].astype(np.int32), n_classes)


def measure(problem: Problem, separation: float, repeats: int = 3) -> dict[str, float]:
    """Return the least seconds of an iteration and of both starts, and the passes of a start."""
    x, classes = rows_of(problem, separation)
    labels = labels_of(classes, problem.k // 2)
    array = da.from_array(x, chunks=(-(-problem.n // 8), problem.p)).persist()
    rows = open_rows(array)
    survey = rows.reduce(SURVEY, SurveyRequest(problem.p, (1,), 1, labels))
    unlabeled = rows.excluding(labels.rows)
    spans: dict[str, list[float]] = {"plain": [], "labeled": [], "iteration": []}
    found: dict[str, float] = {}
    for _ in range(repeats + 1):
        for name, data, fixed in (
            ("plain", rows, None),
            ("labeled", unlabeled, survey.classes.mean),
        ):
            before, began = data.passes, time.perf_counter()
            start = sample_centers(
                data,
                survey,
                "k-means||",
                problem.k,
                (1,),
                oversampling_factor=2.0,
                init_rounds=5,
                shift=survey.mean,
                fixed=fixed,
            )
            spans[name].append(time.perf_counter() - began)
            found[f"passes, {name}"] = data.passes - before
        for _ in range(2):
            began = time.perf_counter()
            rows.reduce(ASSIGN, CenterSets(start, shift=survey.mean))
            spans["iteration"].append(time.perf_counter() - began)
    # The first of each may compile.
    return {**found, **{name: min(times[1:]) for name, times in spans.items()}}


def compare(problem: Problem = PROBLEM) -> dict[str, dict[str, float]]:
    """Measure clusters that overlap and clusters far apart."""
    return {"overlapping": measure(problem, 1.0), "far apart": measure(problem, 8.0)}


def main() -> None:
    """Run from the command line."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    print_table(
        ["clusters", "an iteration, ms", "k-means|| (iterations)", "ss-k-means|| (of k-means||)"],
        [
            [
                name,
                f"{1e3 * cell['iteration']:.0f}",
                f"{1e3 * cell['plain']:.0f} ms ({cell['plain'] / cell['iteration']:.1f})",
                f"{1e3 * cell['labeled']:.0f} ms ({cell['labeled'] / cell['plain']:.2f}x)",
            ]
            for name, cell in compare().items()
        ],
    )


if __name__ == "__main__":
    main()
