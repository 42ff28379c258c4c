"""All estimators on the same small sets: two pictures, as scikit-learn draws its own, and a table.

``python tests/benchmarks/comparison.py`` draws ``estimators.png`` and ``estimators-labels.png`` in
``docs/_static`` and keeps the scores of the suite in ``comparison.json`` next to this file, from
which ``page_tables.py`` writes the table. Each run measures everything again.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from _results import dumps
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from sklearn import datasets
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.cluster import contingency_matrix
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler

import daskclust
from daskclust.colors import NOISE_COLOR, label_colors

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).with_suffix(".json")
Labels = NDArray[np.int64]

N = 500
#: Points of names and figures.
FONT = 10


def drawn_sets() -> dict[str, tuple[NDArray[np.float64], Labels | None]]:
    """Return the sets of scikit-learn's comparison, scaled, with their classes if they have any."""
    blobs, classes = datasets.make_blobs(N, random_state=170)
    sets = {
        "noisy circles": datasets.make_circles(N, factor=0.5, noise=0.05, random_state=30),
        "noisy moons": datasets.make_moons(N, noise=0.05, random_state=30),
        "varied": datasets.make_blobs(N, cluster_std=[1.0, 2.5, 0.5], random_state=170),
        "anisotropic": (blobs @ [[0.6, -0.6], [-0.4, 0.8]], classes),
        "blobs": datasets.make_blobs(N, random_state=30),
        "no structure": (np.random.default_rng(30).random((N, 2)), None),
    }
    return {name: (StandardScaler().fit_transform(X), y) for name, (X, y) in sets.items()}


def distance(X: NDArray[np.float64]) -> float:
    """Return the ``eps`` of DBSCAN by which 98 % of the rows are core rows."""
    near = NearestNeighbors(n_neighbors=5).fit(X).kneighbors(X)[0][:, -1]
    # Rows of a grid or in one place: eps is positive.
    return float(np.quantile(near, 0.98)) * (1.0 + 1e-9) or 1e-6


def estimators(X: NDArray[np.float64], k: int) -> dict[str, Any]:
    """Return the estimators of rows without labels."""
    seed = {"random_state": 0}
    return {
        "KMeans": daskclust.KMeans(k, **seed),
        "HierarchicalKMeans": daskclust.HierarchicalKMeans(k, **seed),
        "SparseKMeans": daskclust.SparseKMeans(k, **seed),
        "DPMeans": daskclust.DPMeans(n_clusters_hint=k),
        "GaussianMixture": daskclust.GaussianMixture(k, **seed),
        "PCKID": daskclust.PCKID(k, n_initializations=4, **seed),
        "Agglomerative, ward": daskclust.AgglomerativeClustering(k, **seed),
        "Agglomerative, genie": daskclust.AgglomerativeClustering(k, linkage="genie", **seed),
        "Spectral": daskclust.SpectralClustering(k, **seed),
        "HDBSCAN, n_clusters": daskclust.HDBSCAN(n_clusters=k, **seed),
        "HDBSCAN": daskclust.HDBSCAN(max(5, len(X) // 50), min_samples=5, **seed),
        "DBSCAN": daskclust.DBSCAN(distance(X)),
    }


def with_labels(k: int) -> dict[str, Any]:
    """Return the estimators that learn from labels (the first two), or from pairs."""
    seed = {"random_state": 0}
    return {
        "LabelSpreading": daskclust.LabelSpreading(**seed),
        "SemiSupervisedKMeans": daskclust.SemiSupervisedKMeans(k, **seed),
        "Spectral": daskclust.SpectralClustering(k, **seed),
        "PCKMeans": daskclust.PCKMeans(k, **seed),
        "MPCKMeans": daskclust.MPCKMeans(k, **seed),
        "PCSKMeans": daskclust.PCSKMeans(k, **seed),
        "COPKMeans": daskclust.COPKMeans(k, **seed),
    }


def timed(model: Any, *args: Any, **more: Any) -> tuple[Labels, float]:
    """Return labels of all rows, and the least processor time of three fits, in seconds."""
    seconds = []
    for _ in range(3):
        began = time.process_time()
        labels = np.asarray(model.fit(*args, **more).labels_)
        seconds.append(time.process_time() - began)
    return labels, min(seconds)


def fits(X: NDArray[np.float64], y: Labels | None, labeled: bool) -> Iterator[tuple[str, Any]]:
    """Fit each estimator of a picture; yield its name, and its labels and seconds."""
    known = np.arange(len(X)) % 3 if y is None else y
    k = int(known.max()) + 1
    if not labeled:
        for name, model in estimators(X, k).items():
            yield name, timed(model, X)
        return
    # Five labels of each class, and the pairs among them.
    rows = np.concatenate([np.flatnonzero(known == c)[:5] for c in range(k)])
    must_link, cannot_link = daskclust.pairs_from_labels((rows, known[rows]))
    for at, (name, model) in enumerate(with_labels(k).items()):
        if at < 2:
            yield name, timed(model, X, (rows, known[rows]))
        else:
            yield name, timed(model, X, must_link=must_link, cannot_link=cannot_link)


def numbered_like(labels: Labels, wanted: Labels) -> Labels:
    """Return the clusters with the numbers of the classes that they share most rows with."""
    rows = labels >= 0
    counts = contingency_matrix(wanted[rows], labels[rows])
    count = max(counts.shape)
    square = np.zeros((count, count), np.int64)
    square[: counts.shape[0], : counts.shape[1]] = counts
    numbers = np.append(linear_sum_assignment(-square.T)[1], -1)
    return numbers[labels]


def column_title(name: str) -> str:
    """Return the name of an estimator on at most two lines."""
    name = name.replace(", ", "\n")
    return name if len(name) < 16 else name.replace("KMeans", "\nKMeans")


def draw(path: Path, *, labeled: bool) -> None:
    """Draw a row for each set and a column for each estimator: index on the left, then seconds."""
    import matplotlib
    from PIL import Image

    matplotlib.use("Agg")
    from matplotlib import pyplot

    sets = drawn_sets()
    if labeled:
        del sets["no structure"]
    names = list(with_labels(2) if labeled else estimators(np.zeros((5, 1)), 2))
    size = 1.25 * len(names), 1.25 * len(sets) + 0.5
    figure, axes = pyplot.subplots(len(sets), len(names), figsize=size, layout="constrained")
    for line, (title, (X, y)) in zip(axes, sets.items(), strict=True):
        wanted = y
        for axis, (_, (labels, seconds)) in zip(line, fits(X, y, labeled), strict=True):
            # Without classes, the first estimator decides the colors.
            wanted = labels if wanted is None else wanted
            labels = numbered_like(labels, wanted)
            colors = np.array([*label_colors(max(labels.max() + 1, 1)), NOISE_COLOR])
            axis.scatter(*X.T, s=2, color=colors[labels], linewidths=0)
            axis.set(xticks=(), yticks=())
            axis.margins(y=0.2)
            told = {
                "left": "" if y is None else f"{round(adjusted_rand_score(y, labels), 2) + 0.0:.2f}"
            }
            told["right"] = f"{seconds:.2f} s"
            for side, text in told.items():
                at = 0.02 if side == "left" else 0.98
                axis.text(at, 0.02, text, transform=axis.transAxes, ha=side, fontsize=FONT - 1)
        line[0].set_ylabel(title, fontsize=FONT)
    for axis, name in zip(axes[0], names, strict=True):
        axis.set_title(column_title(name), fontsize=FONT)
    figure.set_dpi(110)
    figure.canvas.draw()
    picture = Image.fromarray(np.asarray(figure.canvas.buffer_rgba())[..., :3])
    picture.quantize(256, Image.Quantize.FASTOCTREE).save(path, optimize=True)
    pyplot.close(figure)


def suite() -> Iterator[tuple[str, NDArray[np.float64], dict[int, list[Labels]]]]:
    """Yield the name, the rows and the reference labels by number of clusters of each set."""
    data = Path(os.environ.get("DASKCLUST_TEST_DATA") or ROOT.parent / "shared") / "data"
    with np.load(data / "suite_unlabeled.npz") as file:
        for name in sorted({key.rsplit("/", 1)[0] for key in file.files}):
            references: dict[int, list[Labels]] = {}
            for key in file.files:
                if key.startswith(f"{name}/labels"):
                    labels = file[key].astype(int)
                    references.setdefault(int(labels.max()), []).append(labels)
            yield name, file[f"{name}/X"], references


def measure(sets: int | None) -> dict[str, dict[str, list[float]]]:
    """Return the index and the processor time of each set and estimator.

    The number of clusters is known. The best reference counts; its noise, label 0, is left out.
    """
    found: dict[str, dict[str, list[float]]] = {}
    for name, X, references in list(suite())[:sets]:
        found[name] = {}
        for k, wanted in references.items():
            for title, model in estimators(X, k).items():
                began = time.process_time()
                labels = np.asarray(model.fit(X).labels_)
                seconds = time.process_time() - began
                index = max(adjusted_rand_score(y[y > 0], labels[y > 0]) for y in wanted)
                before = found[name].get(title, [-1.0, 0.0])
                if index > before[0]:
                    found[name][title] = [round(float(index), 4), round(seconds, 3)]
        print(name, {title: index for title, (index, _) in found[name].items()}, flush=True)
    return found


def table(results: Mapping[str, Mapping[str, list[float]]]) -> str:
    """Return the table of the page: a row for each set, then means; the best index is bold."""
    names = list(next(iter(results.values())))
    lines = ["| set | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for title, row in results.items():
        best = max(round(row[name][0], 2) for name in names)
        told = [f"{round(row[name][0], 2) + 0.0:.2f}" for name in names]
        cells = [f"**{text}**" if float(text) == best else text for text in told]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    index = np.array([[row[name][0] for name in names] for row in results.values()])
    seconds = np.array([[row[name][1] for name in names] for row in results.values()])
    rows = {
        "*mean*": [f"{value:.3f}" for value in index.mean(axis=0)],
        "*sets with at least 0.9*": [f"{value}" for value in (index >= 0.9).sum(axis=0)],
        "*processor time in seconds, median*": [
            f"{value:.2f}" for value in np.median(seconds, axis=0)
        ],
    }
    lines += [f"| {title} | " + " | ".join(cells) + " |" for title, cells in rows.items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Draw, measure, and keep the scores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / "docs" / "_static")
    parser.add_argument("--sets", type=int, help="measure so many sets only, and keep nothing")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    draw(options.folder / "estimators.png", labeled=False)
    draw(options.folder / "estimators-labels.png", labeled=True)
    found = measure(options.sets)
    if options.sets is None:
        RESULTS.write_text(dumps(found) + "\n")


if __name__ == "__main__":
    main()
