"""Constrained- and Seeded-KMeans of Basu et al. (2002), one row at a time."""

from __future__ import annotations

import numpy as np

__all__ = ["class_centroids", "constrained_kmeans"]


def class_centroids(X, y, weight):
    """Means of the rows of each label; -1 is none."""
    names = sorted({int(label) for label in y} - {-1})
    return np.array(
        [np.average(X[y == name], axis=0, weights=weight[y == name]) for name in names]
    ).reshape(-1, X.shape[1])


def constrained_kmeans(X, y, start, weight, *, clamp, max_iter):
    """Iterate from a start until nothing moves; y holds codes 0.., -1 for none.

    Returns labels, centers, inertia and the number of iterations.
    """
    centers = np.array(start, dtype=float)

    def assign():
        labels = np.empty(len(X), dtype=int)
        for i, row in enumerate(X):
            labels[i] = y[i] if clamp and y[i] >= 0 else np.argmin(((row - centers) ** 2).sum(1))
        return labels

    n_iter = 0
    while n_iter < max_iter:
        labels = assign()
        moved = centers.copy()
        for k in range(len(centers)):
            mine = labels == k
            if weight[mine].sum() > 0:
                moved[k] = np.average(X[mine], axis=0, weights=weight[mine])
        n_iter += 1
        still = np.allclose(moved, centers, rtol=0, atol=1e-13)
        centers = moved
        if still:
            break
    labels = assign()
    inertia = (weight * ((X - centers[labels]) ** 2).sum(axis=1)).sum()
    return labels, centers, inertia, n_iter
