"""From counts and labeled rows to a posterior: labels travel, the ridge joins in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust.prototypes.graph import normalized, spread, unreached
from daskclust.prototypes.labeled import LabelPlan
from daskclust.prototypes.left_out import balance, spread_left_out, weighed
from daskclust.prototypes.posterior import (
    Balance,
    NodeShares,
    Posterior,
    SpacePosterior,
    shares,
)
from daskclust.prototypes.references import References, best_share
from daskclust.prototypes.ridge import fit_ridge
from daskclust.prototypes.row_nodes import RowNodes
from daskclust.prototypes.state import GraphCounts, PrototypeProblem, PrototypeState

__all__ = ["SpreadLabels", "SpreadingProblem", "spread_labels", "with_references"]

Float = NDArray[np.float64]

#: Labeled rows by which the share of the nearest ones is chosen, at most.
_TRIED = 4096


@dataclass(frozen=True)
class SpreadingProblem(PrototypeProblem):
    """The labeled rows, with what any fit on prototypes needs.

    Parameters
    ----------
    plan : LabelPlan
    nodes_of : RowNodes
        Labeled rows that are nodes.
    seeds : ndarray of shape (k, c)
        Weights of the classes of these nodes.
    """

    plan: LabelPlan
    nodes_of: RowNodes
    seeds: Float


class SpreadLabels(NamedTuple):
    """What labels have become.

    Attributes
    ----------
    posterior : Posterior
    missed_nodes : list of int
        Nodes of each graph that no label reaches: sets of prototypes, view by view.
    missed_rows : list of float
        Weight of the rows that lie between these.
    """

    posterior: Posterior
    missed_nodes: list[int]
    missed_rows: list[float]


def _travel(
    counts: GraphCounts, seeds: Float, n_prototypes: int, alpha: float
) -> tuple[Float, NDArray[np.bool_], Float]:
    """Shares of the classes at the nodes, which nodes no label reaches, and shares left out.

    The last are those of the labeled nodes by the labels of the others.
    """
    graph = normalized(counts.near)
    if counts.adjacent is not None:
        graph = normalized(graph + normalized(counts.adjacent))
    counted = counts.classes
    if not counted.size:
        counted = np.zeros((n_prototypes, seeds.shape[1]))
    given = np.concatenate([counted, seeds])
    lost = unreached(graph, given.sum(axis=1) > 0)
    given = weighed(given, given.sum(axis=0))
    own = np.eye(len(graph), len(seeds), -n_prototypes)
    reached = spread(graph, np.hstack([given, own]), alpha)
    travelled, reached = shares(reached[:, : seeds.shape[1]]), reached[:, seeds.shape[1] :]
    travelled[lost] = 1.0 / travelled.shape[1]
    return travelled, lost, spread_left_out(reached[n_prototypes:], seeds)


def spread_labels(
    problem: SpreadingProblem, state: PrototypeState, alpha: float, n_neighbors: int
) -> SpreadLabels:
    """Let labels travel in each space, and weigh the kernel ridge beside them.

    Parameters
    ----------
    problem : SpreadingProblem
    state : PrototypeState
        With counts.
    alpha : float
    n_neighbors : int
        Nodes of which a row takes its classes.
    """
    seeds = problem.seeds
    graphs, missed, missed_rows, by_spread = [], [], [], []
    parts = zip(problem.nodes(state), problem.counts(state), state.sizes.tolist(), strict=True)
    for nodes, counts, size in parts:
        travelled, lost, left_out = _travel(counts, seeds, size, alpha)
        graphs.append(NodeShares(nodes, size, travelled))
        by_spread.append(left_out)
        missed.append(int(lost.sum()))
        missed_rows.append(float(counts.near[lost].sum() / 2))
    found, by_ridge = [], []
    n_sets = problem.n_sets
    for v, space in enumerate(problem.spaces(state.space)[::n_sets]):
        own = tuple(graphs[v * n_sets : (v + 1) * n_sets])
        points = own[0].nodes[own[0].n_prototypes :]
        ridge, scores = fit_ridge(points, shares(seeds), problem.nodes_of.weight)
        by_ridge.append(shares(scores))
        found.append(SpacePosterior(space, own, ridge, Balance()))
    if problem.plan.others is None:
        by_spread = [
            np.mean(by_spread[v : v + n_sets], axis=0) for v in range(0, len(graphs), n_sets)
        ]
        joined = balance(by_spread, by_ridge, seeds)
        found = [replace(one, balance=joined) for one in found]
    return SpreadLabels(Posterior(tuple(found), n_neighbors), missed, missed_rows)


def with_references(posterior: Posterior, plan: LabelPlan) -> Posterior:
    """Let the nearest labeled rows vote, where there are more labels than nodes."""
    if plan.others is None:
        return posterior
    assert plan.x is not None
    assert plan.weights is not None
    rows = RowNodes(plan.x, plan.weights.sum(axis=1))
    known = shares(rows.sums(plan.weights))
    spaces = [
        replace(
            one,
            references=References.build(one.space(rows.x), known, one.nodes[: one.n_prototypes]),
        )
        for one in posterior.spaces
    ]
    posterior = replace(posterior, spaces=tuple(spaces))
    share = _choose_share(posterior, rows, known, rows.node[plan.is_node])
    return replace(posterior, neighbor_share=share)


def _choose_share(
    posterior: Posterior, rows: RowNodes, known: Float, nodes: NDArray[np.intp]
) -> float:
    """Choose the share of the nearest labeled rows by those that are no nodes."""
    others = np.ones(len(rows.x), bool)
    others[nodes] = False
    tried = np.flatnonzero(others)
    tried = tried[:: -(-len(tried) // _TRIED) or 1]
    if not len(tried):
        return 0.0
    graph, neighbors = np.zeros((2, len(tried), known.shape[1]))
    for one in posterior.spaces:
        z = one.space(rows.x[tried])
        assert one.references is not None
        place = np.argsort(one.references.order)
        graph += one.graph(z, posterior.n_neighbors)
        neighbors += shares(one.neighbors(z, place[tried]))
    n = len(posterior.spaces)
    return best_share(graph / n, neighbors / n, known[tried])
