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


def constrained_kmeans(X, y, start, weight, *, clamp, max_iter, cluster_classes=None):
    """Iterate from a start until nothing moves; y holds codes 0.., -1 for none.

    ``cluster_classes`` is the class of each cluster, -1 for none; by default cluster c is
    class c.  Returns labels, centers, inertia and the number of iterations.
    """
    centers = np.array(start, dtype=float)
    if cluster_classes is None:
        cluster_classes = np.arange(len(centers))

    def assign():
        labels = np.empty(len(X), dtype=int)
        for i, row in enumerate(X):
            far = ((row - centers) ** 2).sum(1)
            if clamp and y[i] >= 0:
                far[cluster_classes != y[i]] = np.inf
            labels[i] = np.argmin(far)
        return labels

    def refill(labels):
        """Give an empty cluster of a class the labeled row farthest from its center."""
        labels = labels.copy()
        far = ((X - centers[labels]) ** 2).sum(1)
        for k in np.flatnonzero(cluster_classes >= 0):
            if weight[labels == k].sum() > 0:
                continue
            for i in np.argsort(-far, kind="stable"):
                alone = weight[labels == labels[i]].sum() == weight[i]
                if y[i] == cluster_classes[k] and weight[i] > 0 and not alone:
                    labels[i] = k
                    far[i] = -1.0
                    break
        return labels

    n_iter = 0
    while n_iter < max_iter:
        labels = refill(assign()) if clamp else assign()
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
