"""Graphs of nodes on the client.

The graph of nearest neighbors is sparse.  Each function on dense matrices costs O(k^3) time with
k nodes, and a few matrices of ``8 k^2`` bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve, cholesky, eigh
from scipy.sparse import csr_matrix, diags, identity
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import LinearOperator, eigsh, splu

from daskclust.core.array_types import Bools, Floats, Ints
from daskclust.core.kernels.blas import one_blas_thread
from daskclust.core.kernels.nearest.k_nearest import nearest_several


def normalized(graph: Floats, *, loops: bool = False) -> Floats:
    """Return ``D^(-1/2) A D^(-1/2)`` with D the sums of the rows of A, symmetric and not negative.

    The diagonal is set to zero unless ``loops``; rows of isolated nodes are zero.
    """
    graph = np.array(graph, dtype=np.float64)
    if not loops:
        np.fill_diagonal(graph, 0.0)
    degree = graph.sum(axis=1)
    scale = np.divide(1.0, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0)
    graph *= scale[:, None]
    graph *= scale
    return graph


def spread_seeds(similarity: Floats, alpha: float, *groups: Sequence[Floats]) -> list[Floats]:
    """Spread labels Y of nodes (k, c): ``(I - alpha S)^(-1) Y`` (Zhou et al. 2004).

    The graph S is :func:`normalized`, with eigenvalues of at most 1, and alpha is below 1.  The
    result has one array for each Y of all groups.  One system is solved per group, so that the last
    bits do not depend on other groups.
    """
    system = -alpha * similarity
    system[np.diag_indices_from(system)] += 1.0
    factor = cholesky(system, lower=True, overwrite_a=True, check_finite=False)
    spread: list[Floats] = []
    for seeds in filter(len, groups):
        joined = np.hstack(seeds)
        scores = cho_solve((factor, True), joined, overwrite_b=True, check_finite=False)
        ends = np.cumsum([own.shape[1] for own in seeds])[:-1]
        spread += np.hsplit(np.maximum(scores, 0.0), ends)
    return spread


def unreached(similarity: Floats, labeled: Bools) -> Bools:
    """Return True for nodes that are not connected with a labeled node."""
    count, component = connected_components(csr_matrix(similarity > 0), directed=False)
    reached = np.zeros(count, dtype=bool)
    reached[component[labeled]] = True
    missed: Bools = ~reached[component]
    return missed


#: Weight of a link between two components whose length equals the distances from its ends to their
#: farthest neighbors.  It is far below the weight of an edge, so clusters do not divide components.
_LINK = 0.01
#: Minimum of the weight of a link, as a fraction of ``_LINK``.
_LEAST = 1e-9


def neighbor_graph(nodes: Floats, n_neighbors: int) -> csr_matrix:
    """Return a connected graph of the nearest neighbors of nodes (k, q), as a sparse matrix (k, k).

    A node is the first of its own ``n_neighbors`` neighbors.  The weight of an edge is 1 if each of
    its two ends is among the neighbors of the other one, and 1/2 if only one is.  Connected
    components are joined by weak links along a minimum spanning tree; longer links are weaker.  The
    time is O(k^2 q).
    """
    k = len(nodes)
    indices, distances = nearest_several(nodes, nodes, min(n_neighbors, k))
    left, right = np.repeat(np.arange(k), indices.shape[1]), indices.ravel().astype(np.int64)
    weights, reach = np.full(len(left), 0.5), distances[:, -1]
    while True:
        graph = csr_matrix((weights, (left, right)), shape=(k, k))
        count, component = connected_components(graph, directed=False)
        if count == 1:
            return (graph + graph.T).tocsr()
        links = _shortest_links(nodes, component, count)
        squares = ((nodes[links[:, 0]] - nodes[links[:, 1]]) ** 2).sum(axis=1)
        scale = np.sqrt(reach[links[:, 0]] * reach[links[:, 1]])
        length = np.divide(scale, squares, out=np.full(len(links), np.inf), where=squares > 0)
        # Links between equal nodes have the weight 1/2 of an edge.
        weights = np.append(weights, np.clip(_LINK * length, _LINK * _LEAST, 0.5))
        left, right = np.append(left, links[:, 0]), np.append(right, links[:, 1])


def _shortest_links(nodes: Floats, component: Ints, count: int) -> Ints:
    """Return the shortest link from each component to another one, without duplicates: (m, 2).

    This is a step of Boruvka's algorithm; ties go to the first nodes.
    """
    links = np.empty((count, 2), np.int64)
    for number in range(count):
        own = np.flatnonzero(component == number)
        others = np.flatnonzero(component != number)
        indices, distances = nearest_several(nodes[own], nodes[others], 1)
        best = int(distances[:, 0].argmin())
        links[number] = np.sort([own[best], others[indices[best, 0]]])
    return np.unique(links, axis=0)


class Embedding(NamedTuple):
    """Eigenvalues (d,), the largest first, and the coordinates of the nodes (k, d)."""

    values: Floats
    vectors: Floats


#: Maximum number of nodes of a sparse graph that is decomposed as a dense matrix.
_DENSE = 400
#: Shift of the inverse iteration, because the Laplacian is singular.
_SHIFT = 1e-5


def leading_eigenvectors(graph: csr_matrix, count: int) -> Embedding:
    """Return the leading eigenvectors of a graph that is normalized (Ng, Jordan & Weiss 2002).

    The largest entry of each eigenvector is positive.  Lanczos iterations with the inverse of the
    Laplacian find the eigenvectors.  This takes seconds for 5000 nodes of many features, and less
    for few features.
    """
    with one_blas_thread():
        values, vectors = _leading(graph, count)
    peak = vectors[np.abs(vectors).argmax(axis=0), np.arange(count)]
    return Embedding(values, vectors * np.where(peak < 0, -1.0, 1.0))


def unit_rows(vectors: Floats) -> Floats:
    """Scale rows to length 1; a row of zeros stays."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, length, out=vectors.copy(), where=length > 0)


def _leading(graph: csr_matrix, count: int) -> tuple[Floats, Floats]:
    """Return the leading eigenvalues, the largest first, and their eigenvectors (k, count)."""
    k = graph.shape[0]
    if k <= _DENSE or 4 * count > k:
        dense = normalized(graph.toarray(), loops=True)
        values, vectors = eigh(dense, subset_by_index=[k - count, k - 1])
        return values[::-1], vectors[:, ::-1]
    degree = np.asarray(graph.sum(axis=1)).ravel()
    scale = diags(1.0 / np.sqrt(degree))
    laplacian = (identity(k) - scale @ graph @ scale).tocsc()
    factors = splu(
        laplacian + _SHIFT * identity(k, format="csc"),
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )
    inverse = LinearOperator((k, k), factors.solve, dtype=np.float64)
    first = np.random.default_rng(0).uniform(-1.0, 1.0, k)
    values, vectors = eigsh(laplacian, count, sigma=-_SHIFT, v0=first, OPinv=inverse)
    order = np.argsort(values, kind="stable")
    return 1.0 - values[order], vectors[:, order]
