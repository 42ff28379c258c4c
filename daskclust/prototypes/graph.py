"""Graphs of a few hundred nodes, as dense matrices, on the client.

With k nodes each function costs O(k^3) time and a few matrices of ``8 k^2`` bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh, inv, lu_factor, lu_solve
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from daskclust._types import Bools, Floats


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
    """Let labels Y of nodes (k, c) travel: ``(I - alpha S)^(-1) Y`` (Zhou et al. 2004).

    The graph S is :func:`normalized`, with eigenvalues of at most 1, and alpha below 1.  Returned
    is what the labels of all groups become, each by itself.  Those of a group are solved for
    together: the last bits do not depend on other groups.
    """
    system = -alpha * similarity
    system[np.diag_indices_from(system)] += 1.0
    factors = lu_factor(system, overwrite_a=True)
    found: list[Floats] = []
    for seeds in filter(len, groups):
        both = np.maximum(lu_solve(factors, np.hstack(seeds)), 0.0)
        found += np.hsplit(both, np.cumsum([one.shape[1] for one in seeds])[:-1])
    return found


def unreached(similarity: Floats, labeled: Bools) -> Bools:
    """Which nodes hang together with no labeled one."""
    count, component = connected_components(csr_matrix(similarity > 0), directed=False)
    reached = np.zeros(count, dtype=bool)
    reached[component[labeled]] = True
    missed: Bools = ~reached[component]
    return missed


class Embedding(NamedTuple):
    """Eigenvalues, the largest first, and nodes (k, d) in their space, of length 1.

    The largest entry of each eigenvector is positive.
    """

    values: Floats
    vectors: Floats


def embed(similarity: Floats, n_dimensions: int, regularization: float) -> Embedding:
    """Embed nodes spectrally (Ng, Jordan & Weiss 2002), with a weak tie between all nodes.

    The graph is normalized, so that nodes of few rows are not drowned by the ties.
    ``regularization`` is the sum of the ties of a node, in units of the mean degree (Amini et al.
    2013): without it small groups that hang by a thread take the eigenvectors.
    """
    tied = similarity + regularization * similarity.sum() / len(similarity) ** 2
    values, vectors = eigh(
        normalized(tied, loops=True),
        subset_by_index=[len(similarity) - n_dimensions, len(similarity) - 1],
    )
    values, vectors = values[::-1], vectors[:, ::-1]
    peak = vectors[np.abs(vectors).argmax(axis=0), np.arange(n_dimensions)]
    vectors = vectors * np.where(peak < 0, -1.0, 1.0)
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return Embedding(values, np.divide(vectors, length, out=vectors.copy(), where=length > 0))


def carrier(similarity: Floats, alpha: float) -> Floats:
    """Return ``(I - alpha S)^(-1)``: how much of a constraint at one node reaches another one.

    The graph S is :func:`normalized`; ``alpha`` is how far constraints are propagated.
    """
    return inv(np.eye(len(similarity)) - alpha * similarity, overwrite_a=True)


def propagate_pairs(pairs: Floats, carried_by: Floats) -> Floats:
    """Propagate constraints between nodes to all nodes (E2CP; Lu & Peng 2013).

    ``pairs`` are symmetric: positive where nodes are to stay together, negative where apart;
    ``carried_by`` is the :func:`carrier` of the graph.  The largest absolute value returned is 1.
    """
    used = np.flatnonzero(pairs.any(axis=1))
    carried = carried_by[:, used] @ (pairs[np.ix_(used, used)] @ carried_by[used])
    peak = np.abs(carried).max(initial=0.0)
    return carried / peak if peak > 0 else carried


def bend(similarity: Floats, carried: Floats, strength: float) -> Floats:
    """Bend a normalized graph by propagated constraints, times a strength in [0, 1].

    Returned are similarities in [0, 1], not normalized: nearer to 1 for nodes tied by the
    constraints, nearer to 0 for those kept apart.
    """
    weights = similarity / similarity.max()
    bent = np.where(carried >= 0, 1 - weights, weights)
    bent *= carried
    bent *= strength
    bent += weights
    return (bent + bent.T) / 2
