"""Clusters of nodes: spectral clustering of an anchor graph, and how rows vote by it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Array, Floats, Ints
from daskclust.kernels.nearest.several import nearest_several
from daskclust.prototypes.graph import Embedding, embed, normalized, propagate_pairs
from daskclust.prototypes.row_function import near_values
from daskclust.prototypes.views import Space
from daskclust.starts.sampled import recluster

__all__ = ["ClusterVote", "cluster_nodes"]


#: Weak ties between all nodes.  0.1 to 2 end alike on most sets tried; less breaks down
#: where small groups hang by a thread.
_REGULARIZATION = 1.0
#: How far constraints travel: 0.8 was ahead of 0.5 on all sets tried.
_PAIRS_ALPHA = 0.8


def cluster_nodes(
    near: Floats, n_near: int, n_clusters: int, seed: int, wanted: Floats | None = None
) -> tuple[Embedding, Ints]:
    """Embed nodes by the leading eigenvectors of their graph, and cluster them there.

    Parameters
    ----------
    near : ndarray of shape (k, k)
        Rows that have both nodes among their nearest ones.
    n_near : int
        How many nearest ones.
    n_clusters, seed : int
    wanted : ndarray of shape (k, k), optional
        Constraints between the nodes, as of :func:`propagate_pairs`.

    Returns
    -------
    embedding : Embedding
    clusters : ndarray of shape (k,), int64

    Notes
    -----
    O(k^3) time, a few matrices of ``8 k^2`` bytes.
    """
    # A row near a node counts for each of the other nodes that it is near to.
    mass = near.sum(axis=1) / max(min(n_near, len(near)) - 1, 1)
    graph = near.copy()
    np.fill_diagonal(graph, mass)
    graph = normalized(graph, loops=True)
    if wanted is not None:
        graph = normalized(propagate_pairs(graph, wanted, _PAIRS_ALPHA), loops=True)
    embedding = embed(graph, min(n_clusters, len(near)), _REGULARIZATION)
    centers = recluster(embedding.vectors, np.maximum(mass, 0.0), n_clusters, seed)
    clusters = nearest_several(embedding.vectors, centers, 1)[0][:, 0].astype(np.int64)
    return embedding, clusters


@dataclass(frozen=True)
class ClusterVote:
    """Clusters of rows, by vote of their nearest nodes; travels to the workers.

    Parameters
    ----------
    space : Space
    nodes : ndarray of shape (k, q)
    clusters : ndarray of shape (k,), int
    n_neighbors : int
    """

    space: Space
    nodes: Floats
    clusters: Ints
    n_neighbors: int

    def __call__(self, x: Array) -> NDArray[np.int32]:
        """Return clusters, (n,); ties go to the first."""
        members = np.eye(int(self.clusters.max()) + 1)[self.clusters]
        votes = near_values(self.space(x), self.nodes, members, self.n_neighbors)
        # A row without any value belongs nowhere.
        found = np.where(np.isnan(x).all(axis=1), -1, votes.argmax(axis=1))
        return found.astype(np.int32)
