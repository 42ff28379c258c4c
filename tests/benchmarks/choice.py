"""Choice by pairs left out: the index of the choice next to that of each candidate.

``python tests/benchmarks/choice.py`` compares the default candidates of ``choose_by_pairs`` on
blobs and open tables with 20, 100 and 400 pairs, all true and with 10 % wrong ones, and prints mean
adjusted Rand indices: of each candidate, of the best score, of the first candidate within one
standard error, and of the candidate that is the best by the truth.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from _timing import print_table
from labels import Data
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine, make_blobs
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler

from daskclust.selection import choose_by_pairs

BLOBS = tuple(f"blobs {seed}" for seed in range(10))
LOADERS = {
    "iris": load_iris,
    "wine": load_wine,
    "cancer": load_breast_cancer,
    "digits": load_digits,
}
TABLES = ("pendigits", "landsat", "segment")
COUNTS, WRONG = (20, 100, 400), (0.0, 0.1)


def load(name: str, options: argparse.Namespace) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return at most ``--rows`` rows, standardized, and their classes."""
    if name in BLOBS:
        x, y = make_blobs(options.rows, centers=5, random_state=int(name.split()[1]))
        return x, y
    if name in LOADERS:
        x, y = LOADERS[name](return_X_y=True)
    else:
        data = Data(name, options.data)
        x, y = data.x[data.known], data.y[data.known]
    some = np.random.default_rng(0).permutation(len(x))[: options.rows]
    return StandardScaler().fit_transform(x[some]), np.unique(y[some], return_inverse=True)[1]


def draw(y: NDArray[Any], count: int, wrong: float, seed: int) -> dict[str, Any]:
    """Draw pairs of random rows; the kind of a fraction of them is exchanged."""
    rng = np.random.default_rng([count, seed])
    pairs = np.array([rng.choice(len(y), 2, replace=False) for _ in range(count)])
    same = y[pairs[:, 0]] == y[pairs[:, 1]]
    same[rng.permutation(count)[: round(wrong * count)]] ^= True
    return {"must_link": pairs[same], "cannot_link": pairs[~same]}


def cases(
    options: argparse.Namespace,
) -> Iterator[tuple[tuple[int, float], str, Any, Any, Any, int]]:
    """Yield number of pairs and wrong fraction, name, rows, classes, pairs, and seed."""
    for name in options.sets:
        x, y = load(name, options)
        for seed in range(options.draws):
            for count in COUNTS:
                for wrong in WRONG:
                    yield (count, wrong), name, x, y, draw(y, count, wrong, seed), seed


def choices(options: argparse.Namespace) -> dict[str, dict[tuple[int, float], list[float]]]:
    """Return the indices of all cases by candidate, or rule, and kind of pairs."""
    found: dict[str, dict[tuple[int, float], list[float]]] = {}
    for kind, _, x, y, pairs, seed in cases(options):
        k = len(np.unique(y))
        chosen = choose_by_pairs(None, x, **pairs, n_clusters=k, random_state=seed)
        index = [float(adjusted_rand_score(y, one.labels_)) for one in chosen.estimators]
        rules = {
            "best score": index[chosen.best_index],
            "first within one standard error": index[chosen.one_se_index],
            "best by the truth": max(index),
        }
        for name, value in {**dict(zip(chosen.grid.tolist(), index, strict=True)), **rules}.items():
            found.setdefault(name, {}).setdefault(kind, []).append(value)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*", default=[*BLOBS, *LOADERS, *TABLES])
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--rows", type=int, default=1500)
    parser.add_argument(
        "--data", type=Path, default=Path(os.environ.get("DASKCLUST_TEST_DATA", "shared"))
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found = choices(options)
    kinds = [(count, wrong) for count in COUNTS for wrong in WRONG]
    lines = [
        [name, *(f"{np.mean(by_kind[kind]):.3f}" for kind in kinds)]
        for name, by_kind in found.items()
    ]
    print_table(["", *(f"{count}, {wrong:.0%} wrong" for count, wrong in kinds)], lines)


if __name__ == "__main__":
    main()
