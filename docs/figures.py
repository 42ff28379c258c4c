"""Draw the pictures of the user guide: ``python docs/figures.py`` writes ``docs/_static``."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from sklearn.datasets import load_wine, make_blobs, make_circles, make_moons
from sklearn.preprocessing import StandardScaler

import daskclust
from daskclust.selection import choose_n_clusters

STATIC = Path(__file__).parent / "_static"
COLORS = matplotlib.colormaps["tab10"]


def panels(n: int, titles: tuple[str, ...]) -> tuple[Any, Any]:
    """Return a figure with a row of square panels without ticks."""
    figure, axes = plt.subplots(1, n, figsize=(3.1 * n, 3.2), layout="constrained")
    for ax, title in zip(np.atleast_1d(axes), titles, strict=True):
        ax.set_title(title, fontsize=11)
        ax.set_xticks([])
        ax.set_yticks([])
    return figure, np.atleast_1d(axes)


def scatter(ax: Any, X: Any, labels: Any, size: float = 6) -> None:
    """Draw rows in the colors of their labels; noise is gray."""
    labels = np.asarray(labels)
    noise = labels < 0
    ax.scatter(*X[noise].T, s=size, c="lightgray", linewidths=0)
    ax.scatter(*X[~noise].T, s=size, c=COLORS(labels[~noise] % 10), linewidths=0)


def kmeans() -> Any:
    """Draw the rows, three iterations from poor centers, and a default fit."""
    X, _ = make_blobs(900, centers=5, cluster_std=0.9, random_state=3)
    titles = ("iteration 1", "iteration 2", "iteration 10", "default initialization")
    figure, axes = panels(4, titles)
    first = X[:5]
    models = [daskclust.KMeans(5, init=first, max_iter=n, algorithm="lloyd") for n in (1, 2, 10)]
    for ax, model in zip(axes, [*models, daskclust.KMeans(5, random_state=0)], strict=True):
        model.fit(X)
        scatter(ax, X, model.labels_)
        ax.plot(*model.cluster_centers_.T, "k+", markersize=12, markeredgewidth=2.5)
        ax.set_xlabel(f"inertia {model.inertia_:.0f}")
    return figure


def constraints() -> Any:
    """Draw clusters without and with pairs, and the weights of sparse k-means."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=400)
    X = np.c_[y * 2.5 + rng.normal(size=400) * 0.6, rng.normal(size=400) * 2.2]
    must, cannot = daskclust.pairs_from_labels(y, n_pairs=60, random_state=0)
    titles = ("KMeans", "SpectralClustering, 60 pairs", "weights of PCSKMeans")
    figure, axes = panels(3, titles)
    scatter(axes[0], X, daskclust.KMeans(2, random_state=0).fit(X).labels_, 10)
    model = daskclust.SpectralClustering(2, random_state=0)
    model.fit(X, must_link=must, cannot_link=cannot)
    scatter(axes[1], X, model.labels_, 10)
    for pairs, style in ((must, "-"), (cannot, ":")):
        for i, j in pairs:
            axes[1].plot(*X[[i, j]].T, style, color="black", linewidth=0.7, alpha=0.6)
    Z, truth = daskclust.datasets.make_sparse_blobs(
        1000, n_informative=5, n_uninformative=25, random_state=0
    )
    Z[:, 5:] += 2 * np.random.default_rng(0).normal(size=(1000, 1))
    must, cannot = daskclust.pairs_from_labels(truth, n_pairs=30, random_state=0)
    model = daskclust.PCSKMeans(3, sparsity=1.8, random_state=0)
    model.fit(Z, must_link=must, cannot_link=cannot)
    axes[2].bar(range(30), model.feature_weights_, color=["C0"] * 5 + ["C1"] * 25)
    axes[2].set_xlabel("feature (blue: informative)")
    return figure


def label_spreading() -> Any:
    """Draw labels, prototypes, the spread labels, and the margin."""
    X, y = make_moons(1500, noise=0.06, random_state=0)
    rows = np.array([int(np.flatnonzero(y == c)[n]) for c in (0, 1) for n in (0, 7)])
    model = daskclust.LabelSpreading(classifier=None, random_state=0).fit(X, (rows, y[rows]))
    titles = ("1. labels of four rows", "2. prototypes", "3. labels of all rows", "4. margin")
    figure, axes = panels(4, titles)
    for ax in axes[:2]:
        scatter(ax, X, np.full(len(X), -1))
    axes[0].scatter(*X[rows].T, s=90, c=COLORS(y[rows]), edgecolors="black")
    centers = daskclust.KMeans(120, random_state=0).fit(X).cluster_centers_
    near = np.argsort(((centers[:, None] - centers) ** 2).sum(axis=2), axis=1)[:, 1:5]
    for i, others in enumerate(near):
        for j in others:
            axes[1].plot(*centers[[i, j]].T, "-", color="gray", linewidth=0.6)
    axes[1].plot(*centers.T, "k.", markersize=4)
    scatter(axes[2], X, model.labels_)
    axes[2].scatter(*X[rows].T, s=90, c=COLORS(y[rows]), edgecolors="black")
    margin = axes[3].scatter(*X.T, s=6, c=model.margin(X), cmap="viridis", vmin=0, vmax=1)
    figure.colorbar(margin, ax=axes[3], shrink=0.8)
    return figure


def spectral() -> Any:
    """Draw three sets by k-means and by spectral clustering."""
    sets = (
        make_circles(1500, factor=0.5, noise=0.05, random_state=0)[0],
        make_moons(1500, noise=0.06, random_state=0)[0],
    )
    titles = ("KMeans", "SpectralClustering") * 2
    figure, axes = panels(4, titles)
    for at, X in enumerate(sets):
        for ax, kind in zip(
            axes[2 * at : 2 * at + 2],
            (daskclust.KMeans, daskclust.SpectralClustering),
            strict=True,
        ):
            scatter(ax, X, kind(2, random_state=0).fit(X).labels_)
    return figure


def density() -> Any:
    """Draw how `min_cluster_size` and `eps` change the clusters."""
    X, _ = make_blobs([500, 300, 120, 80], cluster_std=[1.2, 0.4, 0.3, 0.9], random_state=5)
    X = np.concatenate([X, np.random.default_rng(0).uniform(X.min(0), X.max(0), (150, 2))])
    models = (
        daskclust.HDBSCAN(5),
        daskclust.HDBSCAN(30),
        daskclust.DBSCAN(eps=0.3),
        daskclust.DBSCAN(eps=0.8),
    )
    titles = (
        "HDBSCAN, min_cluster_size=5",
        "HDBSCAN, min_cluster_size=30",
        "DBSCAN, eps=0.3",
        "DBSCAN, eps=0.8",
    )
    figure, axes = panels(4, titles)
    for ax, model in zip(axes, models, strict=True):
        labels = np.asarray(model.fit(X).labels_)
        scatter(ax, X, labels)
        ax.set_xlabel(f"{labels.max() + 1} clusters, {np.mean(labels < 0):.0%} noise")
    return figure


def mixtures() -> Any:
    """Draw elongated groups by k-means and by a mixture, and the same with missing values."""
    rng = np.random.default_rng(0)
    X = make_blobs(900, random_state=170)[0] @ [[0.6, -0.6], [-0.4, 0.8]]
    incomplete = X.copy()
    rows = rng.permutation(900)[:270]
    incomplete[rows, rng.integers(2, size=270)] = np.nan
    titles = (
        "KMeans",
        "GaussianMixture",
        "30 % of the rows incomplete",
        "probability of the group",
    )
    figure, axes = panels(4, titles)
    scatter(axes[0], X, daskclust.KMeans(3, random_state=0).fit(X).labels_)
    for ax, rows_seen in ((axes[1], X), (axes[2], incomplete)):
        model = daskclust.GaussianMixture(3, random_state=0).fit(rows_seen)
        scatter(ax, X, model.predict(rows_seen))
    best = axes[3].scatter(*X.T, s=6, c=model.predict_proba(incomplete).max(axis=1), vmin=0.3)
    figure.colorbar(best, ax=axes[3], shrink=0.8)
    return figure


def choosing() -> Any:
    """Draw the scores by number of clusters of three well-known wines."""
    X = StandardScaler().fit_transform(load_wine().data)
    figure, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
    selection = choose_n_clusters(daskclust.KMeans(random_state=0), X, range(2, 9))
    selection.plot(ax)
    return figure


FIGURES: tuple[Callable[[], Any], ...] = (
    kmeans,
    constraints,
    label_spreading,
    spectral,
    density,
    mixtures,
    choosing,
)

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for draw in FIGURES:
        name = STATIC / f"guide-{draw.__name__.replace('_', '-')}.png"
        draw().savefig(name, dpi=80)
        print(name)
