"""Clusters of labeled classes: one a class, by its moments, or several, by its rows.

One cluster a class needs the sums of the classes only, wherever their rows are.  With
several, a labeled row belongs to the nearest cluster of its class, which changes as
the centers move: the labeled rows are fetched once and assigned on the client.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Floats, Ints
from daskclust.cluster.lloyd import ClassClusters, found_clusters
from daskclust.engine import Rows
from daskclust.estimator.partial_labels import PartialLabels
from daskclust.kernels.nearest.assign import accumulate, nearest
from daskclust.reduction import ClassStatistics, Clusters, ClusterStatistics, RowLabels
from daskclust.starts.sampled import recluster

__all__ = ["OneCluster", "SeveralClusters", "class_clusters"]


def class_clusters(
    rows: Rows, labels: PartialLabels, statistics: ClassStatistics, limit: int
) -> ClassClusters:
    """Return the clusters of the classes, at most ``limit`` each.

    Costs one pass where ``limit`` is not 1, which reads only the chunks with labels.
    """
    if limit == 1 or not labels.n_classes:
        return OneCluster(labels, statistics)
    x, weight = rows.take(labels.rows)
    members = [labels.codes == c for c in range(labels.n_classes)]
    return SeveralClusters(labels, [LabeledRows.of(x[m], weight[m]) for m in members], limit)


@dataclass(frozen=True)
class OneCluster:
    """Cluster c is class c, and starts at its centroid.

    Parameters
    ----------
    labels : PartialLabels
    statistics : ClassStatistics
    """

    labels: PartialLabels
    statistics: ClassStatistics

    @property
    def sizes(self) -> Ints:
        """Return one for each class."""
        return np.ones(self.labels.n_classes, np.int64)

    def centers(self, seed: int) -> Floats:
        """Centroids of the classes."""
        return self.statistics.mean

    def joined(self, stats: ClusterStatistics, centers: Floats) -> ClusterStatistics:
        """Add the rows of class c to cluster c."""
        return self.statistics.joined(stats, centers)

    def assigned(self, centers: Floats) -> RowLabels:
        """Return the labels: they are the clusters."""
        return self.labels


@dataclass(frozen=True, eq=False)
class LabeledRows:
    """Labeled rows of one class: a point for each distinct row.

    Attributes
    ----------
    points : ndarray of shape (d, p), float32 or float64
        In ascending order.
    mass : ndarray of shape (d,), float64
        Weight of the rows that are this point; 0 where all of them are absent.
    places : ndarray of shape (m,), intp
        Point of each row.
    """

    points: NDArray[np.floating]
    mass: Floats
    places: NDArray[np.intp]

    @classmethod
    def of(cls, x: NDArray[np.floating], weight: Floats) -> LabeledRows:
        """Merge equal rows."""
        points, places = np.unique(x, axis=0, return_inverse=True)
        places = places.reshape(-1)
        mass: Floats = np.bincount(places, weights=weight).astype(np.float64)
        return cls(points, mass, places)

    @property
    def n_present(self) -> int:
        """Distinct rows that have a weight."""
        return int((self.mass > 0).sum())

    def centers(self, count: int, seed: int) -> Floats:
        """Cluster the rows: weighted k-means++, then Lloyd; centers in ascending order."""
        there = self.mass > 0
        points = self.points[there].astype(np.float64)
        found = recluster(points, self.mass[there], count, seed)
        if len(found) < count:
            # Points so close that their squared distances are 0: any of them will do.
            found = points[:count]
        return found[np.lexsort(found.T[::-1])]

    def founders(self, centers: Floats) -> Iterator[tuple[Floats, float, int]]:
        """Yield (row, weight, cluster) of the points off their centers, the farthest first."""
        clusters, distances = nearest(self.points, centers)
        for i in np.argsort(-distances, kind="stable"):
            if distances[i] > 0 and self.mass[i] > 0:
                yield self.points[i].astype(np.float64), float(self.mass[i]), int(clusters[i])


class SeveralClusters:
    """Each class has up to ``limit`` clusters, those of one class beside each other.

    Parameters
    ----------
    labels : PartialLabels
    classes : sequence of LabeledRows
        One for each class; each has rows with a weight.
    limit : int
        A class has no more clusters than distinct rows.
    """

    def __init__(self, labels: PartialLabels, classes: Sequence[LabeledRows], limit: int) -> None:
        self.labels = labels
        self._classes = tuple(classes)
        self.sizes = np.array([min(limit, rows.n_present) for rows in classes], np.int64)

    @cached_property
    def _own(self) -> list[slice]:
        """Clusters of each class."""
        ends = np.cumsum(self.sizes).tolist()
        return [slice(end - size, end) for end, size in zip(ends, self.sizes, strict=True)]

    def centers(self, seed: int) -> Floats:
        """Centers found among the labeled rows of each class alone."""
        seeds = np.random.SeedSequence(seed).generate_state(len(self._classes))
        each = zip(self._classes, self.sizes.tolist(), seeds.tolist(), strict=True)
        return np.concatenate([rows.centers(size, word) for rows, size, word in each])

    def joined(self, stats: ClusterStatistics, centers: Floats) -> ClusterStatistics:
        """Add each labeled row to the nearest cluster of its class.

        A cluster that is empty then is founded by the row of its class farthest from
        its center, and stays with the class.
        """
        sums, counts, inertia = stats.sums.copy(), stats.counts.copy(), stats.inertia.copy()
        p = centers.shape[-1]
        for r in range(len(centers)):
            for rows, own in zip(self._classes, self._own, strict=True):
                near = centers[r, own]
                block = accumulate(rows.points, near, weight=rows.mass)
                total = block.hi + block.lo
                sums[r, own] += total[:, :p]
                counts[r, own] += total[:, p]
                inertia[r, own] += total[:, p + 1]
                if (counts[r, own] <= 0).any():
                    founded = found_clusters(
                        Clusters(sums[r, own], counts[r, own]), rows.founders(near)
                    )
                    sums[r, own], counts[r, own] = founded.sums, founded.counts
        return ClusterStatistics(sums, counts, inertia, stats.masses)

    def assigned(self, centers: Floats) -> RowLabels:
        """Nearest cluster of its class for each labeled row."""
        clusters = np.empty_like(self.labels.codes)
        for c, (rows, own) in enumerate(zip(self._classes, self._own, strict=True)):
            found, _ = nearest(rows.points, centers[own])
            clusters[self.labels.codes == c] = own.start + found[rows.places]
        return RowLabels(self.labels.rows, clusters, int(self.sizes.sum()))
