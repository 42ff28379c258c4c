"""Salinas-A: agreement with the ground truth from 1 % labels, against plain k-means.

``python tests/benchmarks/salinas.py`` prints the table of the README.  The
labeled pixels of the scene (5348 in 6 classes; the other 1790 are of unknown
classes and left out) are read from Zarr and clustered into 6.  Each seed draws
1 % of them, at least one a class, at random within the classes; these are the
partial labels of PCSKMeans, and are left out of the comparison for every method.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import sklearn.cluster
import zarr
from _timing import print_table

import daskclust
from daskclust.metrics import agreement_scores

SCORES = {"ari": "ARI", "nmi": "NMI", "pairwise_f": "pairwise F"}
SCALES = {"none": "raw", "standard": "standardized"}
K, SHARE = 6, 0.01

Fit = Callable[[Any, tuple[np.ndarray, np.ndarray], int], Any]


def find_scene() -> Path:
    """Path of the scene: below $DASKCLUST_TEST_DATA, else below `shared` beside the repository."""
    beside = Path(__file__).resolve().parents[2].parent / "shared"
    return Path(os.environ.get("DASKCLUST_TEST_DATA") or beside) / "data/hsi_salinas_a.zarr.zip"


def methods(n_bands: int) -> dict[str, Fit]:
    """Return the methods; each fits rows, given partial labels (used or not) and a seed."""
    half = 0.5 * np.sqrt(n_bands)
    found: dict[str, Fit] = {}
    for text, s in (("", None), (f", s = {half:.1f}", half)):
        found[f"PCSKMeans, 1 % labels{text}"] = lambda X, y, seed, s=s: daskclust.PCSKMeans(
            K, sparsity=s, random_state=seed
        ).fit(X, y)
        found[f"PCSKMeans, no labels (sparse k-means){text}"] = lambda X, y, seed, s=s: (
            daskclust.PCSKMeans(K, sparsity=s, random_state=seed).fit(X)
        )
    found["KMeans"] = lambda X, y, seed: daskclust.KMeans(K, random_state=seed).fit(X)
    found["scikit-learn KMeans"] = lambda X, y, seed: sklearn.cluster.KMeans(
        K, random_state=seed
    ).fit(X.compute())
    return found


def draw_labels(classes: np.ndarray, seed: int) -> np.ndarray:
    """Draw 1 % of the rows of each class, at least one; ascending row numbers."""
    rng = np.random.default_rng(seed)
    drawn = []
    for label in np.unique(classes):
        rows = np.flatnonzero(classes == label)
        drawn.append(rng.choice(rows, max(1, round(SHARE * len(rows))), replace=False))
    return np.sort(np.concatenate(drawn))


def compare(seeds: int, scales: tuple[str, ...] = tuple(SCALES)) -> dict[tuple[str, str], Any]:
    """Scores by (method, scaling): arrays of shape (seeds, 3)."""
    path = find_scene()
    with zarr.storage.ZipStore(path, mode="r") as store:
        truth = zarr.open_group(store, mode="r")["gt"][:]
    found: dict[tuple[str, str], list[list[float]]] = {}
    for scale in scales:
        cube = daskclust.open_cube(
            path, variable="cube", dims=("y", "x", "band"), mask=truth == 0, scale=scale
        )
        rows, classes = cube.rows_of(truth.astype(np.int64), unlabeled=0)
        assert len(rows) == cube.n_valid == (truth > 0).sum()
        for seed in range(seeds):
            drawn = draw_labels(classes, seed)
            judged = np.ones(len(classes), dtype=bool)
            judged[drawn] = False
            for name, fit in methods(cube.shape[2]).items():
                labels = np.asarray(fit(cube.samples, (drawn, classes[drawn]), seed).labels_)
                scores = agreement_scores(classes[judged], labels[judged])
                found.setdefault((name, scale), []).append([scores[key] for key in SCORES])
    return {key: np.array(scores) for key, scores in found.items()}


def main(argv: list[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args(argv)
    with warnings.catch_warnings():
        # Loops that end at their limit are part of what is compared.
        warnings.simplefilter("ignore")
        found = compare(options.seeds)
    print_table(
        ["method", "bands", *SCORES.values()],
        [
            [name, SCALES[scale], *(f"{m:.3f} ± {s:.3f}" for m, s in zip(mean, sd, strict=True))]
            for (name, scale), scores in found.items()
            for mean, sd in [(scores.mean(axis=0), scores.std(axis=0, ddof=1))]
        ],
    )


if __name__ == "__main__":
    main()
