"""Time of k-means with missing values beside complete rows of the same size: whole fits.

``python tests/benchmarks/partial.py`` prints the table: ``KMeans(missing="partial")`` on rows
that miss a share of their values at random, and ``KMeans()`` on the same rows with nothing
hidden, both with ``algorithm="lloyd"``, the same start and as many iterations.  Fits take turns
in one process; the ratio is the middle one of ``--repeats`` pairs, of the processor's time and
of the clock's.  ``--start`` includes the default start, by k-means||.
"""

from __future__ import annotations

import argparse
import itertools
import time
import warnings
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from _timing import Problem, middle, print_table

from daskclust import KMeans
from daskclust.datasets import remove_values
from daskclust.exceptions import MissingValuesWarning

N_ROWS = 200_000
FEATURES = (8, 20, 50, 126)
CLUSTERS = (8, 30, 100)
SHARES = (0.1, 0.4)
DTYPES = ("float32", "float64")
#: Iterations of both fits: too few to converge.
ITERATIONS = 10
#: Time over that of complete rows that we ask for.
TARGET = 1.6


class Cell(NamedTuple):
    """What is timed: features, clusters, share of the values that are missing, precision."""

    p: int
    k: int
    share: float
    dtype: str


class Span(NamedTuple):
    """Seconds of a fit: of the processors, and of the clock."""

    processor: float
    clock: float


def fit(rows: np.ndarray, k: int, **parameters: Any) -> Span:
    """Time one fit of :data:`ITERATIONS` iterations."""
    model = KMeans(
        k, n_init=1, max_iter=ITERATIONS, tol=0, algorithm="lloyd", random_state=0, **parameters
    )
    with warnings.catch_warnings():
        # Of few features, some rows miss all.
        warnings.simplefilter("ignore", MissingValuesWarning)
        began, clock = time.process_time(), time.perf_counter()
        model.fit(rows)
        span = Span(time.process_time() - began, time.perf_counter() - clock)
    if model.n_iter_ != ITERATIONS:
        raise RuntimeError(f"{model.n_iter_} iterations, not {ITERATIONS}: choose harder rows.")
    return span


def measure(
    cell: Cell, n: int = N_ROWS, repeats: int = 5, *, start: bool = False
) -> list[tuple[Span, Span]]:
    """Return pairs of spans: with missing values, and complete."""
    rows, centers = Problem(n, cell.p, cell.k).data(cell.dtype, spread=3.0 / cell.p**0.5)
    gaps = remove_values(rows, fraction=cell.share, random_state=0)
    init: dict[str, Any] = {} if start else {"init": centers}
    # The first pair compiles, or reads what was compiled.
    pairs = [
        (fit(gaps, cell.k, missing="partial", **init), fit(rows, cell.k, **init))
        for _ in range(1 + repeats)
    ]
    return pairs[1:]


def ratio(pairs: list[tuple[Span, Span]]) -> Span:
    """Return the middle ratio of time with missing values to time without."""
    return Span(*(middle([a[i] / b[i] for a, b in pairs]) for i in range(2)))


def compare(
    cells: Iterable[Cell], n: int = N_ROWS, repeats: int = 5, *, start: bool = False
) -> dict[Cell, list[tuple[Span, Span]]]:
    """Measure all cells."""
    return {cell: measure(cell, n, repeats, start=start) for cell in cells}


def report(results: dict[Cell, list[tuple[Span, Span]]]) -> None:
    """Print the table."""
    rows = []
    for cell, pairs in results.items():
        found = ratio(pairs)
        partial, complete = (1e3 * middle([pair[i].processor for pair in pairs]) for i in (0, 1))
        row = [str(value) for value in cell]
        rows.append(
            [
                *row,
                f"{complete:.0f}",
                f"{partial:.0f}",
                f"{found.processor:.2f}",
                f"{found.clock:.2f}",
            ]
        )
    times = ["complete ms", "partial ms", "ratio", "by the clock"]
    print_table(["p", "k", "missing", "dtype", *times], rows)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=N_ROWS)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--start", action="store_true")
    parser.add_argument("--features", type=int, nargs="+", default=FEATURES)
    parser.add_argument("--clusters", type=int, nargs="+", default=CLUSTERS)
    parser.add_argument("--shares", type=float, nargs="+", default=SHARES)
    parser.add_argument("--dtypes", nargs="+", default=DTYPES)
    options = parser.parse_args()
    grid = itertools.product(options.features, options.clusters, options.shares, options.dtypes)
    cells = (Cell(*values) for values in grid)
    report(compare(cells, options.rows, options.repeats, start=options.start))


if __name__ == "__main__":
    main()
