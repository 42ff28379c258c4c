"""All estimators on the same eight small sets, in one picture, as scikit-learn draws its own.

``python tests/benchmarks/comparison.py docs/_static`` draws ``estimators.png`` anew.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image
from sklearn import datasets
from sklearn.preprocessing import StandardScaler

import daskclust
from daskclust.colors import label_colors
from daskclust.metrics import adjusted_rand_score

N = 400
blobs, classes = datasets.make_blobs(N, random_state=170)
SETS = {
    "circles": datasets.make_circles(N, factor=0.5, noise=0.05, random_state=30),
    "moons": datasets.make_moons(N, noise=0.05, random_state=30),
    "blobs": datasets.make_blobs(N, random_state=8),
    "varied": datasets.make_blobs(N, cluster_std=[1.0, 2.5, 0.5], random_state=170),
    "stretched": (blobs @ [[0.6, -0.6], [-0.4, 0.8]], classes),
    "unequal": datasets.make_blobs([300, 80, 20], centers=[[0, 0], [5, 2], [2, 5]], random_state=1),
    "overlapping": datasets.make_blobs(N, centers=4, cluster_std=2.2, random_state=3),
    "uniform": (np.random.default_rng(30).random((N, 2)), np.zeros(N, int)),
}


def estimators(k: int) -> dict[str, daskclust.KMeans]:
    """Return the estimators by what they are told."""
    seed = {"random_state": 0}
    return {
        "KMeans": daskclust.KMeans(k, **seed),
        "Hierarchical\nKMeans": daskclust.HierarchicalKMeans(k, **seed),
        "DPMeans": daskclust.DPMeans(n_clusters_hint=k),
        "SparseKMeans": daskclust.SparseKMeans(k, **seed),
        "Gaussian\nMixture": daskclust.GaussianMixture(k, **seed),
        "PCKID": daskclust.PCKID(k, n_initializations=4, **seed),
        "Spectral": daskclust.SpectralClustering(k, **seed),
        "Agglomerative": daskclust.AgglomerativeClustering(k),
        "HDBSCAN": daskclust.HDBSCAN(),
        "DBSCAN": daskclust.DBSCAN(eps=0.25),
        "labels:\nSemiSupervised": daskclust.SemiSupervisedKMeans(k, **seed),
        "labels:\nLabelSpreading": daskclust.LabelSpreading(**seed),
        "pairs:\nPCKMeans": daskclust.PCKMeans(k, **seed),
        "pairs:\nMPCKMeans": daskclust.MPCKMeans(k, **seed),
        "pairs:\nPCSKMeans": daskclust.PCSKMeans(k, **seed),
        "pairs:\nCOPKMeans": daskclust.COPKMeans(k, **seed),
    }


#: Points of names and figures.
FONT = 9


def main() -> None:
    """Draw a column for each set, a row for each estimator: names stay legible at 500 pixels."""
    rows_drawn = len(estimators(2))
    figure, axes = plt.subplots(
        rows_drawn, len(SETS), figsize=(6.6, 11.5), dpi=150, layout="constrained"
    )
    for at, (column, (title, (X, y))) in enumerate(zip(axes.T, SETS.items(), strict=True)):
        X = StandardScaler().fit_transform(X)
        k = len(np.unique(y)) if y.any() else 3
        known = y if y.any() else np.arange(N) % 3
        # Five labels of each class, and the pairs among them.
        rows = np.concatenate([np.flatnonzero(known == c)[:5] for c in range(k)])
        must_link, cannot_link = daskclust.pairs_from_labels((rows, known[rows]))
        for axis, (name, model) in zip(column, estimators(k).items(), strict=True):
            if name.startswith("labels"):
                model.fit(X, (rows, known[rows]))
            elif name.startswith("pairs"):
                model.fit(X, must_link=must_link, cannot_link=cannot_link)
            else:
                model.fit(X)
            labels = np.asarray(model.labels_)
            colors = np.array([*label_colors(max(labels.max() + 1, 1)), "#bdbdbd"])
            axis.scatter(*X.T, s=1, color=colors[labels], linewidths=0)
            axis.set(xticks=(), yticks=())
            if y.any():
                axis.text(
                    0.98,
                    0.02,
                    f"{round(adjusted_rand_score(y, labels), 2) + 0.0:.2f}",
                    transform=axis.transAxes,
                    ha="right",
                    fontsize=FONT,
                )
            if at == 0:
                axis.set_ylabel(name, fontsize=FONT, rotation=0, ha="right", va="center")
        column[0].set_title(title, fontsize=FONT)
    figure.canvas.draw()
    picture = Image.fromarray(np.asarray(figure.canvas.buffer_rgba())[..., :3])
    picture.quantize(64).save(Path(sys.argv[1]) / "estimators.png", optimize=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
