"""Benefit of pairs: constrained estimators with defaults next to estimators without pairs.

``python tests/benchmarks/pairs.py`` fits ten sets of blobs and the open tables with 20, 100 and
400 pairs, all true and with 10 % wrong ones, and prints the mean gain in the adjusted Rand index
over the counterpart without pairs, and the largest loss on any set.  ``--quick`` takes some of the
sets and one draw.  ``--labels`` gives labels of some rows instead of pairs, ``--only`` selects
estimators, and ``--settings`` evaluates alternatives to the defaults.  The results that the
documentation shows are in ``pairs.json``, which ``--results`` writes.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from _results import dumps
from _timing import print_table
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine, make_blobs
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler

import daskclust
from daskclust.exceptions import ConstraintError

TABLES = {
    "cerrado": "ts_cerrado_2classes",
    "forest": "hsi_forest_pixels_varsel",
    "ionosphere": "uci_ionosphere",
    "landsat": "landsat_statlog",
    "modis": "ts_samples_modis_ndvi",
    "mnist": "mnist_5v6",
    "pendigits": "uci_pendigits_train",
    "segment": "uci_segment",
    "vehicle": "uci_vehicle",
}
LOADERS: dict[str, Callable[..., Any]] = {
    "iris": load_iris,
    "wine": load_wine,
    "cancer": load_breast_cancer,
    "digits": load_digits,
}
BLOBS = [f"blobs {seed}" for seed in range(10)]
QUICK = ("blobs 1", "blobs 4", "blobs 7", *LOADERS, "vehicle", "segment", "ionosphere")
#: Maximum number of rows of a table; larger tables are sampled.
MAX_ROWS = 2000
COUNTS, WRONG = (20, 100, 400), (0.0, 0.1)
#: Estimators with their counterparts without pairs.
COUNTERPARTS = {
    "PCKMeans": "KMeans",
    "PCSKMeans": "SparseKMeans",
    "MPCKMeans": "KMeans",
    "COPKMeans": "KMeans",
    "SpectralClustering": "SpectralClustering",
}
WITH_LABELS = COUNTERPARTS | {"SemiSupervisedKMeans": "KMeans"}
#: Alternatives to the defaults: estimator and parameters.
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    f"{name}, {text}": (name, parameters)
    for name in ("PCKMeans", "PCSKMeans", "MPCKMeans")
    for text, parameters in {
        "distance": {"penalty": "distance"},
        "distance, k-means||": {"penalty": "distance", "init": "k-means||"},
        "k-means||": {"init": "k-means||"},
        "ss-k-means||": {"init": "ss-k-means||"},
        "0.5": {"penalty": 0.5},
        "2": {"penalty": 2.0},
        "4": {"penalty": 4.0},
    }.items()
}


def load(name: str, folder: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return standardized rows (blobs as they are) and their classes."""
    if name in BLOBS:
        seed = int(name.split()[1])
        x, y = make_blobs(5000, centers=5, random_state=seed)
        return x, y
    if name in LOADERS:
        x, y = LOADERS[name](return_X_y=True)
    else:
        with np.load(folder / "data" / f"{TABLES[name]}.npz") as file:
            y = np.unique(file["y"], return_inverse=True)[1]
            x = file["X"].reshape(len(y), -1).astype(np.float64)
        some = np.sort(np.random.default_rng(0).permutation(len(x))[:MAX_ROWS])
        x, y = x[some], y[some]
    return StandardScaler().fit_transform(x), y


def draw_pairs(y: NDArray[Any], count: int, wrong: float, seed: int) -> dict[str, Any]:
    """Draw pairs of rows at random; the kind of a fraction of them is exchanged."""
    rng = np.random.default_rng([seed, count])
    pairs = rng.integers(len(y), size=(2 * count, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]][:count]
    same = y[pairs[:, 0]] == y[pairs[:, 1]]
    same[rng.permutation(count)[: round(wrong * count)]] ^= True
    return {"must_link": pairs[same], "cannot_link": pairs[~same]}


def draw_labels(y: NDArray[Any], count: int, wrong: float, seed: int) -> dict[str, Any]:
    """Draw labels of ``count`` rows of each class; a fraction of them is drawn anew."""
    rng = np.random.default_rng([seed, count])
    each = [rng.permutation(np.flatnonzero(y == c))[:count] for c in np.unique(y)]
    rows = np.sort(np.concatenate(each))
    labels = y[rows].copy()
    changed = rng.permutation(len(rows))[: round(wrong * len(rows))]
    labels[changed] = rng.choice(y, len(changed))
    return {"y": (rows, labels)}


def score(name: str, parameters: dict[str, Any], data: Any, given: dict[str, Any]) -> float:
    """Return the adjusted Rand index of one fit; NaN if the constraints cannot hold."""
    x, y, seed = data
    model = getattr(daskclust, name)(len(np.unique(y)), random_state=seed, **parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            labels = model.fit(x, **given).labels_
        except ConstraintError:
            return float("nan")
    return float(adjusted_rand_score(y, labels))


def evaluate(options: argparse.Namespace) -> Iterator[list[str]]:
    """Yield the rows of the table: an estimator, its gains and its largest loss."""
    draw, counterparts = draw_pairs, COUNTERPARTS
    counts = COUNTS
    if options.labels:
        draw, counterparts, counts = draw_labels, WITH_LABELS, (1, 5, 50)
    fits = {name: (name, {}) for name in counterparts} | (SETTINGS if options.settings else {})
    if options.only:
        fits = {name: fit for name, fit in fits.items() if name.split(",")[0] in options.only}
    names = QUICK if options.quick else (*BLOBS, *LOADERS, *TABLES)
    sets = {name: load(name, options.data) for name in names}
    free: dict[tuple[str, str, int], float] = {}
    titles = [f"{base}, no pairs" for base in counterparts.values()]
    seconds = dict.fromkeys([*fits, *titles], 0.0)

    def timed(title: str, name: str, *arguments: Any) -> float:
        began = time.process_time()
        index = score(name, *arguments)
        seconds[title] += time.process_time() - began
        return index

    for base in dict.fromkeys(counterparts[name] for name, _ in fits.values()):
        title = f"{base}, no pairs"
        for set_name, (x, y) in sets.items():
            for seed in range(options.draws):
                free[base, set_name, seed] = timed(title, base, {}, (x, y, seed), {})
        means = np.mean([value for key, value in free.items() if key[0] == base])
        yield [title, "", "", f"{means:.3f}", "", "", "", f"{seconds[title]:.1f}"]
    for title, (name, parameters) in fits.items():
        for count in counts:
            for wrong in WRONG:
                if name == "COPKMeans" and wrong:
                    continue
                before = seconds[title]
                gains: dict[str, float] = {}
                means = []
                for set_name, (x, y) in sets.items():
                    pairs = [
                        timed(title, name, parameters, (x, y, s), draw(y, count, wrong, s))
                        for s in range(options.draws)
                    ]
                    base = [free[counterparts[name], set_name, s] for s in range(options.draws)]
                    gains[set_name] = float(np.nanmean(np.array(pairs) - base))
                    means.append(np.nanmean(pairs))
                worst = min(gains, key=lambda key: gains[key])
                yield [
                    title,
                    str(count),
                    str(wrong),
                    f"{np.mean(means):.3f}",
                    f"{np.mean(list(gains.values())):+.3f}",
                    f"{gains[worst]:+.3f}",
                    worst,
                    f"{seconds[title] - before:.1f}",
                ]
                if options.verbose:
                    print(title, count, wrong, {k: round(v, 3) for k, v in gains.items()})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="some sets, one draw")
    parser.add_argument("--labels", action="store_true", help="labels instead of pairs")
    parser.add_argument("--settings", action="store_true", help="alternatives to the defaults, too")
    parser.add_argument("--only", nargs="*", help="estimators to fit")
    parser.add_argument("--draws", type=int, help="draws of pairs for each set (default: 3)")
    parser.add_argument("--verbose", action="store_true", help="gains of each set")
    parser.add_argument("--results", type=Path, help="JSON file of the table, for the pages")
    parser.add_argument("--data", type=Path, required=True, help="folder with data/*.npz")
    options = parser.parse_args()
    options.draws = options.draws or (1 if options.quick else 3)
    header = ["estimator", "pairs", "wrong", "index", "gain", "worst", "set", "cpu s"]
    table = list(evaluate(options))
    print_table(header, table)
    if options.results is not None:
        gains = [dict(zip(header, row, strict=True)) for row in table if row[1]]
        content = {"version": daskclust.__version__, "gains": gains}
        options.results.write_text(dumps(content) + "\n")
