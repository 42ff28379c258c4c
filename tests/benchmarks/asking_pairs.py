"""What asked pairs are worth: ``suggest_pairs`` against as many random pairs of rows.

``python tests/benchmarks/asking_pairs.py`` asks for 200 pairs in batches of 20, ``--draws``
times with other seeds, on at most ``--rows`` random rows of each set, and prints adjusted Rand
indices of three estimators.  Random pairs are pairs of random rows, answered truly: most of
them are cannot-links.
"""

from __future__ import annotations

import argparse
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from _timing import print_table
from labels import Data
from sklearn.metrics import adjusted_rand_score

from daskclust import PCKMeans, PCSKMeans, SpectralClustering
from daskclust.selection import suggest_pairs

SETS = ("pendigits", "landsat", "segment")
PAIRS, BATCH = 200, 20


def answers(pairs: Any, y: Any) -> tuple[Any, Any]:
    """Divide pairs into must-links and cannot-links."""
    same = y[pairs[:, 0]] == y[pairs[:, 1]]
    return pairs[same], pairs[~same]


def asked(x: Any, y: Any, seed: int) -> tuple[Any, Any]:
    """Ask batch by batch."""
    must = cannot = np.empty((0, 2), np.int64)
    for _ in range(PAIRS // BATCH):
        pairs = suggest_pairs(x, BATCH, must_link=must, cannot_link=cannot, random_state=seed)
        more = answers(pairs, y)
        must, cannot = np.concatenate([must, more[0]]), np.concatenate([cannot, more[1]])
    return must, cannot


def drawn(x: Any, y: Any, seed: int) -> tuple[Any, Any]:
    """Draw pairs of random rows."""
    rng = np.random.default_rng(seed)
    return answers(np.array([rng.choice(len(x), 2, replace=False) for _ in range(PAIRS)]), y)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*", default=list(SETS))
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--rows", type=int, default=2500)
    parser.add_argument(
        "--data", type=Path, default=Path(os.environ.get("DASKCLUST_TEST_DATA", "shared"))
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = []
    for name in options.sets:
        data = Data(name, options.data)
        scores: dict[tuple[str, str], list[float]] = {}
        for seed in range(options.draws):
            some = np.random.default_rng(seed).permutation(data.known)[: options.rows]
            x, y = data.x[some], data.y[some]
            for source, function in (("asked", asked), ("random", drawn)):
                must, cannot = function(x, y, seed)
                for kind in (PCKMeans, PCSKMeans, SpectralClustering):
                    model = kind(data.n_classes, random_state=seed)
                    found = model.fit(x, must_link=must, cannot_link=cannot).labels_
                    key = kind.__name__, source
                    scores.setdefault(key, []).append(float(adjusted_rand_score(y, found)))
        for (kind_name, source), values in scores.items():
            lines.append(
                [name, kind_name, source, f"{np.mean(values):.3f} +- {np.std(values):.3f}"]
            )
    print_table(["set", "estimator", "pairs", "ARI"], lines)


if __name__ == "__main__":
    main()
