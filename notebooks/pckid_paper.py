"""The experiments of the PCKID paper, and one beyond: labels together with incomplete data.

``python notebooks/pckid_paper.py`` makes the runs and adds them to ``pckid_paper.json`` beside
this file; what is there is not run again, so that the whole may be done in parts.  The notebook
``04_pckid_paper.ipynb`` shows what came out.  Data: MNIST 5 and 6, the cloudy Sentinel-2 series
and the Landsat set of the test data where there are, scikit-learn's digits otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.spatial.distance import pdist
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.impute import SimpleImputer
from sklearn.metrics.pairwise import rbf_kernel
from threadpoolctl import threadpool_limits

import daskclust
from daskclust.metrics import clustering_accuracy

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

#: Accuracies of all runs so far.
RESULTS = Path(__file__).with_suffix(".json")
#: Imputations of the baselines, by the paper's names.
IMPUTATIONS = {
    "zero": {"strategy": "constant", "fill_value": 0.0},
    "mean": {"strategy": "mean"},
    "median": {"strategy": "median"},
    "most frequent": {"strategy": "most_frequent"},
}


def find_data(name: str) -> Path | None:
    """Path of a file of the test data, or None."""
    beside = Path(__file__).resolve().parents[1].parent / "shared"
    path = Path(os.environ.get("DASKCLUST_TEST_DATA") or beside) / "data" / name
    return path if path.is_file() else None


# The baselines of Section 4.1.


def impute(X: Floats, name: str) -> Floats:
    """Fill missing values in as one of :data:`IMPUTATIONS`."""
    return SimpleImputer(**IMPUTATIONS[name], keep_empty_features=True).fit_transform(X)


def spectral(X: Floats, k: int, seed: int, n_init: int = 100) -> Labels:
    """Cluster by k-means in the k leading coordinates of an RBF kernel (Eq. 4 and 5).

    The width is 20 % of the median distance of all pairs.
    """
    sigma = 0.2 * np.median(pdist(X))
    kernel = rbf_kernel(X, gamma=1 / (2 * sigma**2))
    n = len(X)
    values, vectors = eigh(kernel, subset_by_index=[n - k, n - 1])
    embedding = vectors * np.sqrt(np.maximum(values, 0.0))
    return KMeans(k, n_init=n_init, random_state=seed).fit_predict(embedding)


def baselines(n_init: int = 100) -> dict[str, Callable[[Floats, int, int], Labels]]:
    """Return the paper's eight baselines, by name: imputation, then k-means or RBF spectral."""
    made: dict[str, Callable[[Floats, int, int], Labels]] = {}
    for name in IMPUTATIONS:
        made[f"{name} + k-means"] = lambda X, k, seed, name=name: KMeans(
            k, n_init=n_init, random_state=seed
        ).fit_predict(impute(X, name))
        made[f"{name} + spectral"] = lambda X, k, seed, name=name: spectral(
            impute(X, name), k, seed, n_init
        )
    return made


def pckid(k: int, seed: int, *, q: int = 30, g: int = 30, **parameters: object) -> daskclust.PCKID:
    """Return PCKID with the paper's parameters."""
    return daskclust.PCKID(
        k, n_initializations=q, max_components=g, random_state=seed, **parameters
    )


def methods(q: int = 30, g: int = 30) -> dict[str, Callable[[Floats, int, int], Labels]]:
    """Return PCKID and the baselines."""
    ours = {"PCKID": lambda X, k, seed: pckid(k, seed, q=q, g=g).fit(X).labels_}
    return {**ours, **baselines()}


def accuracies(X: Floats, truth: Labels, seed: int, q: int = 30, g: int = 30) -> dict[str, float]:
    """Accuracy (Eq. 7) of PCKID and of all baselines on one draw."""
    k = len(np.unique(truth))
    return {
        name: clustering_accuracy(truth, np.asarray(method(X, k, seed)))
        for name, method in methods(q, g).items()
    }


# Images with missing quadrants (Section 4.2).


def load_images() -> tuple[Floats, Labels, str]:
    """Images of fives and sixes, row by row and in [0, 1]; MNIST's where there are."""
    path = find_data("mnist_5v6.npz")
    if path is not None:
        with np.load(path, allow_pickle=False) as data:
            return data["X"].reshape(len(data["X"]), -1) / 255.0, data["y"].astype(int), "MNIST"
    digits = load_digits()
    kept = np.isin(digits.target, (5, 6))
    return digits.data[kept] / 16.0, digits.target[kept], "scikit-learn's digits"


def quadrants(
    images: Floats, truth: Labels, share: float, seed: int, n: int = 1000
) -> tuple[Floats, Labels]:
    """Draw a balanced subset, remove a quadrant of a share of it, drop constant pixels."""
    rng = np.random.default_rng(seed)
    each = min(n // 2, *np.bincount(truth)[np.unique(truth)])
    rows = np.concatenate(
        [rng.choice(np.flatnonzero(truth == c), each, replace=False) for c in np.unique(truth)]
    )
    X = daskclust.datasets.remove_values(
        images[rows], "quadrants", fraction=share, random_state=seed
    )
    return X[:, np.nanmax(X, axis=0) > np.nanmin(X, axis=0)], truth[rows]


def run_quadrants(share: float, seed: int) -> dict[str, float]:
    """One run of Figure 1b: accuracies where a share of the images miss a quadrant."""
    images, truth, _ = load_images()
    return accuracies(*quadrants(images, truth, share, seed), seed)


def run_robustness(q: int, g: int, seed: int) -> dict[str, float]:
    """One run of PCKID with other Q and G, half of the images missing a quadrant."""
    images, truth, _ = load_images()
    X, classes = quadrants(images, truth, 0.5, seed)
    labels = pckid(2, seed, q=q, g=g).fit(X).labels_
    return {"PCKID": clustering_accuracy(classes, labels)}


# Land cover under clouds (Section 4.3).


def standardize(X: Floats) -> Floats:
    """Scale each column by the mean and deviation of what is observed; drop constant ones."""
    deviation = np.nanstd(X, axis=0)
    kept = deviation > 0
    return (X[:, kept] - np.nanmean(X[:, kept], axis=0)) / deviation[kept]


def load_cloudy_series() -> tuple[Floats, Labels, dict[int, str]] | None:
    """Sentinel-2 NDVI by date, NaN under clouds, with the land cover of each pixel."""
    path = find_data("s2_ndvi_clouds_slovenia.npz")
    if path is None:
        return None
    with np.load(path, allow_pickle=False) as data:
        series = np.where(data["cloud"], np.nan, data["ndvi"].astype(float))
        cover = data["lulc"].ravel().astype(int)
    X = series.reshape(len(series), -1).T
    # Dates on which more than half of the pixels are under clouds tell little.
    X = X[:, np.isnan(X).mean(axis=0) < 0.5]
    names = {2: "forest", 3: "grassland", 4: "shrubland", 8: "artificial"}
    kept = np.isin(cover, list(names)) & ~np.isnan(X).all(axis=1)
    return X[kept], cover[kept], names


def load_landsat() -> tuple[Floats, Labels, dict[int, str]] | None:
    """Landsat MSS, 3 x 3 neighborhoods of 4 bands; clouds are for :func:`hide_pixels`."""
    path = find_data("landsat_statlog.npz")
    if path is None:
        return None
    with np.load(path, allow_pickle=False) as data:
        names = {c: n.replace("grey", "gray") for c, n in enumerate(data["class_names"].tolist())}
        return data["X"].astype(float), data["y"].astype(int), names


def hide_pixels(X: Floats, share: float, seed: int, group: int = 4) -> Floats:
    """Hide a share of the pixels of the neighborhoods, all bands of a pixel together."""
    rng = np.random.default_rng(seed)
    X = X.copy()
    gone = rng.random((len(X), X.shape[1] // group)) < share
    X[np.repeat(gone, group, axis=1)] = np.nan
    return X


def draw_pair(
    X: Floats, truth: Labels, pair: tuple[int, int], seed: int, n: int = 600
) -> tuple[Floats, Labels]:
    """Draw at most n / 2 rows of each of two classes, standardized on what is observed."""
    rng = np.random.default_rng(seed)
    rows = np.concatenate(
        [
            rng.permutation(np.flatnonzero(truth == c))[: min(n // 2, int((truth == c).sum()))]
            for c in pair
        ]
    )
    return standardize(X[rows]), truth[rows]


def landcover_pairs() -> list[tuple[str, int, int]]:
    """All pairs of classes of the sets that are there."""
    sets = {"clouds": load_cloudy_series(), "landsat": load_landsat()}
    return [
        (name, *pair)
        for name, data in sets.items()
        if data is not None
        for pair in combinations(data[2], 2)
    ]


def run_landcover(name: str, one: int, other: int, seed: int) -> dict[str, float]:
    """One run of Table 1's form: accuracies for a pair of classes."""
    data = load_cloudy_series() if name == "clouds" else load_landsat()
    assert data is not None
    X, truth, _ = data
    if name == "landsat":
        X = hide_pixels(X, 0.3, seed)
    return accuracies(*draw_pair(X, truth, (one, other), seed), seed)


# Beyond: a few labels together with incomplete data.


def load_soybean() -> tuple[Floats, Labels] | None:
    """Diseases of soybeans: 35 coded features, a tenth of the values missing, 19 classes."""
    path = find_data("miss_soybean.npz")
    if path is None:
        return None
    with np.load(path, allow_pickle=False) as data:
        return standardize(data["X"].astype(float)), data["y"].astype(int)


def run_labels(share: float, seed: int, q: int = 30, g: int = 30) -> dict[str, float]:
    """Accuracies, on the rows without labels, of clustering with a share of the labels known.

    Constrained k-means (the labels' pairs, unweighted) and k-means, in the embedding of
    PCKID and on imputed rows.
    """
    data = load_soybean()
    if data is None:
        images, classes, _ = load_images()
        data = quadrants(images, classes, 0.5, seed)
    X, truth = data
    codes = np.unique(truth, return_inverse=True)[1]
    k = int(codes.max()) + 1
    known = np.random.default_rng([seed, 1]).permutation(len(X))
    known = known[: max(k, round(share * len(X)))]
    y = np.full(len(X), -1)
    y[known] = codes[known]
    embedding = pckid(k, seed, q=q, g=g, embedding_dim=2 * k).fit(X).embedding_
    found = {}
    for name, rows in (("PCKID", embedding), ("mean", impute(X, "mean"))):
        fits = {
            "k-means": KMeans(k, n_init=100, random_state=seed).fit_predict(rows),
            "PCKMeans": daskclust.PCKMeans(k, random_state=seed).fit(rows, y).labels_,
            "SemiSupervisedKMeans": daskclust.SemiSupervisedKMeans(k, random_state=seed)
            .fit(rows, y)
            .labels_,
        }
        for method, labels in fits.items():
            score = clustering_accuracy(codes[y < 0], np.asarray(labels)[y < 0])
            found[f"{name} + {method}"] = score
    return found


# All runs, a small entry each in one file.

EXPERIMENTS: dict[str, Callable[..., dict[str, float]]] = {
    "quadrants": run_quadrants,
    "robustness": run_robustness,
    "landcover": run_landcover,
    "labels": run_labels,
}


def all_runs(n_runs: int) -> list[tuple[str, tuple]]:
    """List the runs: an experiment and its arguments, the seed last."""
    cells: list[tuple[str, tuple]] = []
    cells += [("quadrants", (tenth / 10,)) for tenth in (0, 3, 6, 9, 1, 2, 4, 5, 7, 8)]
    cells += [("landcover", pair) for pair in landcover_pairs()]
    cells += [("labels", (share,)) for share in (0.1, 0.05, 0.2)]
    cells += [("robustness", (q, g)) for q in (5, 15, 30) for g in (5, 15, 30)]
    return [(name, (*cell, seed)) for seed in range(n_runs) for name, cell in cells]


def load_results(path: Path = RESULTS) -> dict[str, dict[str, float]]:
    """Return what has been run: accuracies by method, by ``"experiment:arguments:seed"``."""
    found: dict[str, dict[str, float]] = json.loads(path.read_text()) if path.is_file() else {}
    return found


class Mean(NamedTuple):
    """Mean over runs, its standard error, the deviation of the runs, and their number."""

    mean: float
    error: float
    deviation: float
    runs: int

    @classmethod
    def of(cls, values: list[float]) -> Mean:
        """Return the mean of some runs."""
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else np.nan
        return cls(float(np.mean(values)), deviation / len(values) ** 0.5, deviation, len(values))

    def __str__(self) -> str:
        """With its standard error."""
        return f"{self.mean:.3f} ± {self.error:.3f}"


def cells_of(
    results: dict[str, dict[str, float]], experiment: str
) -> dict[tuple[str, ...], dict[str, list[float]]]:
    """Accuracies of all runs, by the experiment's arguments and by method."""
    gathered: dict[tuple[str, ...], dict[str, list[float]]] = {}
    for key, scores in sorted(results.items()):
        name, *arguments, _ = key.split(":")
        if name == experiment:
            cell = gathered.setdefault(tuple(arguments), {})
            for method, score in scores.items():
                cell.setdefault(method, []).append(score)
    return dict(sorted(gathered.items()))


def means(
    results: dict[str, dict[str, float]], experiment: str
) -> dict[tuple[str, ...], dict[str, Mean]]:
    """Mean accuracies, by the experiment's arguments and by method."""
    return {
        cell: {method: Mean.of(values) for method, values in scores.items()}
        for cell, scores in cells_of(results, experiment).items()
    }


def gain(scores: dict[str, list[float]], method: str, other: str) -> Mean:
    """Mean difference of two methods, run by run: both see the same draw."""
    pairs = zip(scores[method], scores[other], strict=True)
    return Mean.of([ours - theirs for ours, theirs in pairs])


def run(name: str, arguments: tuple, results: dict[str, dict[str, float]]) -> dict[str, float]:
    """Make one run, unless another experiment has made the same."""
    if name == "robustness" and arguments[:2] == (30, 30):
        # Q = G = 30 on half of the images incomplete: PCKID's part of another experiment.
        same = results.get(f"quadrants:0.5:{arguments[-1]}")
        if same is not None:
            return {"PCKID": same["PCKID"]}
    # The baselines are small, and threads that wait for each other took most of their time:
    # a run of `landcover` 5 to 24 s on two shared cores, with one thread 3 s.
    with threadpool_limits(1):
        return EXPERIMENTS[name](*arguments)


def main(argv: list[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--only", choices=EXPERIMENTS, nargs="+", default=list(EXPERIMENTS))
    parser.add_argument("--seconds", type=float, default=np.inf, help="begin no run after these")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    results, began = load_results(options.results), time.perf_counter()
    for name, arguments in all_runs(options.runs):
        key = ":".join(map(str, (name, *arguments)))
        if name not in options.only or key in results:
            continue
        if time.perf_counter() - began > options.seconds:
            break
        found = run(name, arguments, results)
        results[key] = {method: round(score, 4) for method, score in found.items()}
        scratch = options.results.with_suffix(".tmp")
        runs = (f"{json.dumps(key)}: {json.dumps(results[key])}" for key in sorted(results))
        scratch.write_text("{\n" + ",\n".join(runs) + "\n}\n")
        scratch.replace(options.results)
        print(key, results[key], flush=True)


if __name__ == "__main__":
    main()
