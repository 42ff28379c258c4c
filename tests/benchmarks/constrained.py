"""Time of constraints: the ordered pass, partial labels beside pairs, closure, MPCKMeans.

``python tests/benchmarks/constrained.py`` prints all four.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dask.array as da
import numpy as np
from _timing import Problem, middle, show_figures

import daskclust
import daskclust.cluster.constrained.assignment as soft
from daskclust.core.constraints import PairwiseConstraints

#: Share of an iteration that the ordered pass takes, time of labels over that of pairs,
#: seconds of a chain of a million rows, and times as fast as WekaUT's seconds, at most or least.
TARGET_SHARE, TARGET_LABELS, TARGET_CHAIN, TARGET_WEKA = 0.20, 1.0, 5.0, 20.0
#: WekaUT's MPCK-Means on 20 000 rows with 40 000 pairs, on another machine.
WEKA_SECONDS = 2.3
LARGE = Problem(1_000_000, 50, 8)


@contextmanager
def timed(module: Any, name: str) -> Iterator[list[float]]:
    """Collect the seconds of each call of a function of a module."""
    function: Callable[..., Any] = getattr(module, name)
    spans: list[float] = []

    def call(*arguments: Any, **keywords: Any) -> Any:
        began = time.perf_counter()
        result = function(*arguments, **keywords)
        spans.append(time.perf_counter() - began)
        return result

    setattr(module, name, call)
    try:
        yield spans
    finally:
        setattr(module, name, function)


def quiet(model: Any, *arguments: Any, **keywords: Any) -> Any:
    """Fit without warnings of limits and contradictions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(*arguments, **keywords)


def large(
    problem: Problem = LARGE, n_pairs: int = 1_000_000, n_labels: int = 100_000, passes: int = 8
) -> dict[str, float]:
    """Return milliseconds an iteration: of pairs, their ordered pass, and labels beside pairs."""
    x, centers = problem.data()
    rows = da.from_array(x, chunks=(-(-problem.n // 8), problem.p)).persist()
    y = daskclust.KMeans(problem.k, init=centers, max_iter=5).fit(x).labels_
    rng = np.random.default_rng(0)
    pairs = rng.integers(problem.n, size=(n_pairs, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]

    def links(count: int) -> dict[str, Any]:
        some = pairs[:count]
        same = y[some[:, 0]] == y[some[:, 1]]
        return {"must_link": some[same], "cannot_link": some[~same]}

    known = np.sort(rng.permutation(problem.n)[:n_labels])
    given = {
        "many pairs": links(n_pairs),
        "pairs": links(n_labels),
        "labels": {"y": (known, y[known])},
    }
    found: dict[str, list[float]] = {}
    for turn in range(4):  # in turn, so that all meet the same machine; the first compiles
        for name, constraints in given.items():
            with timed(soft, "ordered_pass") as ordered:
                model = quiet(
                    daskclust.PCKMeans(problem.k, init=centers, max_iter=passes),
                    rows,
                    **constraints,
                )
            spans = [1e3 * record["seconds"] for record in model.history_]
            if turn:
                found.setdefault(name, []).append(middle(spans[1:]))
                found.setdefault(f"{name}, fit", []).append(sum(spans))
                if name == "many pairs":
                    found.setdefault("ordered", []).append(1e3 * middle(ordered[1:]))
    return {name: min(values) for name, values in found.items()}


def chain(n: int = 1_000_000) -> float:
    """Return the seconds in which must-links that join n rows one by one are read and closed."""
    links = np.stack([np.arange(n - 1), np.arange(1, n)], axis=1)
    began = time.perf_counter()
    constraints = PairwiseConstraints.from_fit_arguments(n, links, [[0, n - 1]])
    seconds = time.perf_counter() - began
    assert constraints.n_groups == 1
    assert constraints.n_contradictions == 1
    return seconds


def metric(n: int = 20_000, n_pairs: int = 40_000, repeats: int = 5) -> float:
    """Return the median seconds of a fit of MPCKMeans."""
    x, y = daskclust.datasets.make_gaussian_mixture(
        n, n_components=3, n_features=10, side=3.0, random_state=0
    )
    must, cannot = daskclust.pairs_from_labels(y, n_pairs=n_pairs, random_state=0)
    spans = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        quiet(daskclust.MPCKMeans(3, random_state=0), x, must_link=must, cannot_link=cannot)
        spans.append(time.perf_counter() - began)
    return middle(spans[1:])


def measure(toy: bool = False) -> dict[str, float]:
    """Return milliseconds of passes, and seconds of the closure and of MPCKMeans."""
    if toy:
        passes = large(Problem(4000, 6, 3), n_pairs=500, n_labels=200, passes=3)
        return {**passes, "chain": chain(1000), "metric": metric(300, 200, repeats=1)}
    return {**large(), "chain": chain(), "metric": metric()}


def figures(found: dict[str, float]) -> list[list[str]]:
    """Return the lines of a table of single figures."""
    share = found["ordered"] / found["many pairs"]
    labels, pairs = found["labels, fit"], found["pairs, fit"]
    return [
        [
            "MPCKMeans, n=2e4, p=10, k=3, 4e4 pairs",
            f"{found['metric']:.3f} s",
            f"WekaUT {WEKA_SECONDS} s ({WEKA_SECONDS / found['metric']:.0f}x)",
            f">= {TARGET_WEKA}x",
        ],
        [
            "ordered pass, n=1e6, p=50, k=8, 1e6 pairs",
            f"{found['ordered']:.0f} ms",
            f"{found['many pairs']:.0f} ms an iteration ({share:.0%})",
            f"< {TARGET_SHARE:.0%}",
        ],
        [
            "8 passes with 1e5 labels",
            f"{labels:.0f} ms",
            f"with 1e5 pairs {pairs:.0f} ms ({labels / pairs:.2f} of it)",
            f"<= {TARGET_LABELS}",
        ],
        ["closure of a chain of 1e6 rows", f"{found['chain']:.1f} s", "", f"< {TARGET_CHAIN} s"],
    ]


def main() -> None:
    """Run from the command line."""
    show_figures(__doc__, measure, figures)


if __name__ == "__main__":
    main()
