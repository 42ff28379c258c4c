"""The experiments of "Semi-supervised k-means++" (Yoder & Priebe, 2017).

``python notebooks/ss_kmeanspp_paper.py FOLDER`` makes the runs on a local cluster; the notebook
beside this file shows what came out.  Each replicate of a data set is a task of its own, a second
or two long, whose result is a small file in FOLDER: what is there already is not run again, so that
the whole may be done in parts.

The protocol is the paper's.  Of k classes G are chosen at random and a few rows of each are
labeled; labeled rows keep their label.  The cost of a clustering is the sum of squared distances
to the centers, and "optimal" is that of the centroids of the true classes.
"""

from __future__ import annotations

import argparse
import os
import warnings
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import zarr
from distributed import Client, LocalCluster, as_completed
from numpy.typing import NDArray
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score

import daskclust

Float = NDArray[np.float64]


class DataSet(NamedTuple):
    """A data set of the paper, or what stands in for it."""

    title: str
    k: int
    #: Rows that are labeled in a supervised class.
    labels: int
    #: Numbers of supervised classes.
    levels: tuple[int, ...]


DATA = {
    "mixture": DataSet("Gaussian mixture", 24, 5, tuple(range(0, 25, 2))),
    "iris": DataSet("Iris", 3, 5, tuple(range(4))),
    "salinas": DataSet("Salinas-A", 6, 50, tuple(range(7))),
    "scene": DataSet("synthetic scene", 7, 50, tuple(range(8))),
}
#: The paper's five algorithms in its colors, then the oversampled start, which is ours.
ALGORITHMS = {
    "Constrained-KMeans (no Lloyd)": "goldenrod",
    "ss-k-means++ (no Lloyd)": "tab:blue",
    "Constrained-KMeans": "tab:red",
    "ss-k-means++": "tab:green",
    "true centroids, then Lloyd": "hotpink",
    "ss-k-means|| (no Lloyd)": "0.6",
    "ss-k-means||": "black",
}
SAMPLED = {
    "Constrained-KMeans": "seeded-random",
    "ss-k-means++": "ss-k-means++",
    "ss-k-means||": "ss-k-means||",
}
MEASURES = {
    "cost": "cost",
    "fraction": "fraction of optimal",
    "n_iter": "Lloyd iterations",
    "ari": "adjusted Rand index",
}
N_COMPONENTS = 6


# --- data ----------------------------------------------------------------------------------------


def salinas_file() -> Path:
    """Path of Salinas-A: below $DASKCLUST_TEST_DATA, else below `shared` beside the repository."""
    beside = Path(__file__).resolve().parents[1].parent / "shared"
    folder = Path(os.environ.get("DASKCLUST_TEST_DATA") or beside)
    return folder / "data" / "hsi_salinas_a.zarr.zip"


def available() -> list[str]:
    """Names of the data sets that are here."""
    return [name for name in DATA if name != "salinas" or salinas_file().is_file()]


def _components(spectra: Float) -> tuple[Float, float]:
    """Six principal components, and the share of the variance that they cover."""
    pca = PCA(N_COMPONENTS, svd_solver="full").fit(spectra)
    return pca.transform(spectra), float(pca.explained_variance_ratio_.sum())


@cache
def _fixed_data(name: str) -> tuple[Float, NDArray[np.int64], float]:
    if name == "iris":
        return (*load_iris(return_X_y=True), 1.0)
    if name == "salinas":
        with zarr.storage.ZipStore(salinas_file(), mode="r") as store:
            scene = zarr.open_group(store, mode="r")
            cube, truth = scene["cube"][:], scene["gt"][:]
        valid = truth > 0
    else:
        # As many pixels and classes as the paper's scene; noise as low as that of such scenes.
        made = daskclust.datasets.make_hyperspectral_cube(
            shape=(123, 123),
            n_bands=126,
            n_classes=7,
            contrast=0.3,
            noise=0.0015,
            uninformative_noise=0.0015,
            illumination=0.03,
            random_state=0,
        )
        cube, truth = made.cube, made.truth
        valid = truth >= 0
    rows, covered = _components(cube[valid].astype(np.float64))
    return rows, np.unique(truth[valid], return_inverse=True)[1], covered


def load(name: str, replicate: int = 0) -> tuple[Float, NDArray[np.int64]]:
    """Rows and classes; the mixture is drawn anew in each replicate."""
    if name == "mixture":
        return daskclust.datasets.make_gaussian_mixture(2400, random_state=replicate)
    return _fixed_data(name)[:2]


def covered_variance(name: str) -> float:
    """Share of the variance of all bands that the principal components cover."""
    return _fixed_data(name)[2]


# --- one replicate -------------------------------------------------------------------------------


def class_centroids(rows: Float, truth: NDArray[np.int64]) -> Float:
    """Means of the true classes."""
    return np.stack([rows[truth == c].mean(axis=0) for c in range(truth.max() + 1)])


def optimal_cost(rows: Float, centroids: Float) -> float:
    """Potential of the centroids of the true classes: each row counts to the nearest."""
    k = len(centroids)
    model = daskclust.SemiSupervisedKMeans(k, init=centroids, max_iter=0).fit(rows)
    return model.inertia_


def draw_labels(
    truth: NDArray[np.int64], n_classes: int, per_class: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Choose classes at random, and rows of each."""
    chosen = rng.choice(truth.max() + 1, n_classes, replace=False)
    rows = [rng.choice(np.flatnonzero(truth == c), per_class, replace=False) for c in chosen]
    known = np.concatenate([np.empty(0, np.int64), *rows])
    return known, truth[known]


def run_replicate(name: str, replicate: int) -> Float:
    """Measure all algorithms at all levels of supervision.

    Returns an array of shape (levels, algorithms, measures).
    """
    spec = DATA[name]
    rows, truth = load(name, replicate)
    centroids = class_centroids(rows, truth)
    optimal = optimal_cost(rows, centroids)
    rng = np.random.default_rng([replicate, list(DATA).index(name)])
    out = np.empty((len(spec.levels), len(ALGORITHMS), len(MEASURES)))
    for at, level in enumerate(spec.levels):
        known = draw_labels(truth, level, spec.labels, rng)
        # Centers come in the order of the labeled classes, then the others.
        first = np.unique(known[1])
        order = np.concatenate([first, np.setdiff1d(np.arange(spec.k), first)])
        starts = {"true centroids, then Lloyd": centroids[order]}
        fitted: dict[str, Any] = {}
        for algorithm, init in SAMPLED.items():
            model = daskclust.SemiSupervisedKMeans(
                spec.k, init=init, n_init=1, max_iter=0, random_state=replicate
            ).fit(rows, known)
            fitted[f"{algorithm} (no Lloyd)"] = model
            starts[algorithm] = model.cluster_centers_
        for algorithm, start in starts.items():
            fitted[algorithm] = daskclust.SemiSupervisedKMeans(
                spec.k, init=start, tol=0.0, max_iter=1000
            ).fit(rows, known)
        for a, algorithm in enumerate(ALGORITHMS):
            model = fitted[algorithm]
            ari = adjusted_rand_score(truth, model.labels_)
            out[at, a] = model.inertia_, model.inertia_ / optimal, model.n_iter_, ari
    return out


# --- all replicates ------------------------------------------------------------------------------


def _run_to_file(name: str, replicate: int, path: str) -> None:
    with warnings.catch_warnings():
        # Two of a start's rows may be equal in Iris.
        warnings.simplefilter("ignore")
        found = run_replicate(name, replicate)
    scratch = Path(f"{path}.part")
    with scratch.open("wb") as file:
        np.save(file, found)
    scratch.replace(path)


def result_file(folder: Path, name: str, replicate: int) -> Path:
    """Where the result of a replicate is kept."""
    return folder / f"{name}-{replicate:03d}.npy"


def run(client: Client, folder: Path | str, replicates: int, names: list[str]) -> int:
    """Run what is not in the folder yet, a task a replicate; return how many that were."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [(name, r) for r in range(replicates) for name in names]
    paths = {(name, r): result_file(folder, name, r) for name, r in wanted}
    futures = [
        client.submit(_run_to_file, name, r, str(paths[name, r]), pure=False)
        for name, r in wanted
        if not paths[name, r].exists()
    ]
    for future in as_completed(futures):
        future.result()
    return len(futures)


def read(folder: Path | str, replicates: int, names: list[str]) -> dict[str, Float]:
    """Results by data set: (replicates, levels, algorithms, measures)."""
    return {
        name: np.stack([np.load(result_file(Path(folder), name, r)) for r in range(replicates)])
        for name in names
    }


# --- what is made of them ------------------------------------------------------------------------


def class_shares(name: str) -> Float:
    """Share of each true class in the optimal cost, and their sizes: shape (2, k)."""
    rows, truth = load(name)
    gaps = rows - class_centroids(rows, truth)[truth]
    cost = np.bincount(truth, weights=(gaps**2).sum(axis=1))
    return np.stack([cost / cost.sum(), np.bincount(truth).astype(float)])


def bounds(name: str) -> tuple[Float, Float]:
    """Theorem 4.7 and the last line of its proof, as fractions of the optimal cost, by level.

    The theorem, 8 (2 + log u) for u = k - G, says nothing for u = 0: NaN.  The proof ends with
    (8 - sum of (7 - r) phi) (1 + H_u), r = (n - g) / (g (n - 1)), over the supervised classes (the
    minus is printed as a plus), here for the mean class: for u = 0 this is Lemma 4.1.
    """
    spec = DATA[name]
    shares, sizes = class_shares(name)
    excess = (sizes - spec.labels) / (spec.labels * (sizes - 1))
    theorem, proof = [], []
    for level in spec.levels:
        u = spec.k - level
        theorem.append(8 * (2 + np.log(u)) if u else np.nan)
        harmonic = (1 / np.arange(1, u + 1)).sum()
        proof.append((8 - level / spec.k * ((7 - excess) * shares).sum()) * (1 + harmonic))
    return np.array(theorem), np.array(proof)


class Ratio(NamedTuple):
    """Median cost of ss-k-means|| after Lloyd over that of ss-k-means++, and a 95 % interval."""

    level: int
    ratio: float
    low: float
    high: float


def quality(found: Float, levels: tuple[int, ...], resamples: int = 5000) -> list[Ratio]:
    """Compare the medians by level; replicates are resampled in pairs."""
    names = list(ALGORITHMS)
    ours = found[:, :, names.index("ss-k-means||"), 0]
    theirs = found[:, :, names.index("ss-k-means++"), 0]
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(found), size=(resamples, len(found)))
    out = []
    for at, level in enumerate(levels):
        a, b = ours[:, at], theirs[:, at]
        many = np.median(a[drawn], axis=1) / np.median(b[drawn], axis=1)
        low, high = np.quantile(many, [0.025, 0.975])
        out.append(Ratio(level, float(np.median(a) / np.median(b)), float(low), float(high)))
    return out


def full_supervision(found: Float) -> tuple[float, float, float]:
    """Cost of the start over the optimal with all classes of the mixture labeled.

    Returns the mean over the replicates, its standard error, and what Lemma 4.1 expects.
    """
    ratios = found[:, -1, list(ALGORITHMS).index("ss-k-means++ (no Lloyd)"), 1]
    n, g = 100, DATA["mixture"].labels
    error = ratios.std(ddof=1) / np.sqrt(len(ratios))
    return float(ratios.mean()), float(error), 1 + (n - g) / (g * (n - 1))


def draw(results: dict[str, Float], measure: str) -> Any:
    """Draw one figure of the paper: means and two standard deviations, a panel a data set."""
    import matplotlib.pyplot as plt

    at = list(MEASURES).index(measure)
    figure, axes = plt.subplots(
        1, len(results), figsize=(3.3 * len(results), 3.6), layout="constrained", squeeze=False
    )
    axes = axes[0]
    for ax, (name, found) in zip(axes, results.items(), strict=True):
        spec = DATA[name]
        percent = 100 * np.array(spec.levels) / spec.k
        for a, (algorithm, color) in enumerate(ALGORITHMS.items()):
            if measure == "n_iter" and "no Lloyd" in algorithm:
                continue
            mean, sd = found[:, :, a, at].mean(axis=0), found[:, :, a, at].std(axis=0)
            style = "--" if "||" in algorithm else "-"
            ax.plot(percent, mean, style, color=color, label=algorithm, linewidth=1.4)
            if "||" not in algorithm:
                ax.fill_between(percent, mean - 2 * sd, mean + 2 * sd, color=color, alpha=0.12)
        if measure == "fraction":
            theorem, proof = bounds(name)
            ceiling = np.where(np.isnan(theorem), proof, theorem)
            ax.fill_between(percent, 1e-9, ceiling, color="0.5", alpha=0.12, label="Theorem 4.7")
            ax.plot(percent, proof, ":", color="0.3", label="its proof")
            ax.set_yscale("log")
            ax.set_ylim(0.6, 60)
        ax.set_title(f"{spec.title} (k = {spec.k})", fontsize=10)
        ax.set_xlabel("classes with labels, %")
    axes[0].set_ylabel(MEASURES[measure])
    lines, names = axes[0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside lower center", ncols=3, fontsize=8)
    return figure


def main(argv: list[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--replicates", type=int, default=100)
    parser.add_argument("--data", nargs="*", choices=list(DATA), default=None)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args(argv)
    names = options.data or available()
    with (
        LocalCluster(
            n_workers=options.workers, threads_per_worker=1, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        made = run(client, options.folder, options.replicates, names)
    print(f"{made} replicates run.")
    for name, found in read(options.folder, options.replicates, names).items():
        print(f"{DATA[name].title}: median cost of ss-k-means|| over ss-k-means++, after Lloyd")
        for q in quality(found, DATA[name].levels):
            share = q.level / DATA[name].k
            print(f"  {share:4.0%} {q.ratio:.4f} (95 % interval {q.low:.4f} to {q.high:.4f})")


if __name__ == "__main__":
    main()
