"""Starts of PCKMeans compared: neighborhoods of pairs, DKM++, k-means||.

``python tests/benchmarks/pairwise_seeding.py`` prints the table of notebook 02.  Ten stratified
folds, pairs from the labels of nine of them, pairwise F-score of the rows of the tenth after
PCKMeans; "wrong" has one pair in ten turned into its opposite.  ``auto`` is the default: must-link
neighborhoods, farthest-first, the clusters they do not cover drawn by D^2 among the other rows,
and contradicting must-links passed over; ``neighborhoods`` is the "Seeding" of the literature,
which takes must-links at their word.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from _timing import print_table
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.model_selection import StratifiedKFold

import daskclust
from daskclust.metrics import pairwise_f_score

STARTS = ("auto", "neighborhoods", "dkm++", "k-means||")
#: Pairs a row, and the share of wrong ones.
AMOUNTS = ((0.1, 0.0), (0.3, 0.0), (1.0, 0.0), (1.0, 0.1))

Data = tuple[np.ndarray, np.ndarray]


def _standardized(data: Data) -> Data:
    x, y = data
    return (x - x.mean(axis=0)) / x.std(axis=0), y


def _digits(n: int = 600) -> Data:
    x, y = load_digits(return_X_y=True)
    return x[:n], y[:n]


def _swimming_paths() -> Data:
    beside = Path(__file__).resolve().parents[2].parent / "shared"
    folder = Path(os.environ.get("DASKCLUST_TEST_DATA") or beside) / "golden"
    with np.load(folder / "TTSCST.npz", allow_pickle=False) as file:
        return file["X"], file["y"]


DATA: dict[str, Callable[[], Data]] = {
    "iris, k=3": lambda: load_iris(return_X_y=True),
    "wine, k=3": lambda: _standardized(load_wine(return_X_y=True)),
    "digits, k=10": _digits,
    "mixture, k=24": lambda: daskclust.datasets.make_gaussian_mixture(
        600, 24, 6, side=6.0, random_state=0
    ),
    "swimming paths, k=3": _swimming_paths,
}


def draw_pairs(
    y: np.ndarray, train: np.ndarray, per_row: float, wrong: float, seed: list[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Half must-links, half cannot-links among the training rows, some of them swapped."""
    rng = np.random.default_rng(seed)
    known = np.full(len(y), -1)
    known[train] = y[train]
    must, cannot = daskclust.pairs_from_labels(
        known, n_pairs=round(per_row * len(y)), random_state=rng
    )
    swap_must, swap_cannot = (rng.random(len(pairs)) < wrong for pairs in (must, cannot))
    return (
        np.concatenate([must[~swap_must], cannot[swap_cannot]]),
        np.concatenate([cannot[~swap_cannot], must[swap_must]]),
    )


def compare(names: list[str], repetitions: int = 3) -> dict[tuple[str, float, float], np.ndarray]:
    """F-scores by (data, pairs a row, wrong ones): shape (starts, runs)."""
    found = {}
    for name in names:
        x, y = DATA[name]()
        for per_row, wrong in AMOUNTS:
            scores: list[list[float]] = [[] for _ in STARTS]
            for repetition in range(repetitions):
                folds = StratifiedKFold(10, shuffle=True, random_state=repetition)
                for fold, (train, test) in enumerate(folds.split(x, y)):
                    seed = [repetition, fold, round(100 * per_row)]
                    must, cannot = draw_pairs(y, train, per_row, wrong, seed)
                    for at, init in enumerate(STARTS):
                        model = daskclust.PCKMeans(
                            len(np.unique(y)), init=init, random_state=repetition
                        )
                        with warnings.catch_warnings():
                            # Contradictions are the point of the last column.
                            warnings.simplefilter("ignore")
                            model.fit(x, must_link=must, cannot_link=cannot)
                        scores[at].append(pairwise_f_score(y[test], model.labels_[test]))
            found[name, per_row, wrong] = np.array(scores)
    return found


def table(
    found: dict[tuple[str, float, float], np.ndarray],
) -> tuple[list[str], list[list[str]]]:
    """Header and rows: mean F-score and its standard error."""
    header = ["data", "pairs a row", *(start.replace("|", "\\|") for start in STARTS)]
    rows = []
    for (name, per_row, wrong), scores in found.items():
        mean = scores.mean(axis=1)
        error = scores.std(axis=1, ddof=1) / np.sqrt(scores.shape[1])
        amount = f"{per_row:g}" + (f", {wrong:.0%} wrong" if wrong else "")
        rows.append(
            [name, amount, *(f"{m:.3f} ± {e:.3f}" for m, e in zip(mean, error, strict=True))]
        )
    return header, rows


def main(argv: list[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--data", nargs="+", choices=list(DATA), default=list(DATA))
    options = parser.parse_args(argv)
    print_table(*table(compare(options.data, options.repetitions)))


if __name__ == "__main__":
    main()
