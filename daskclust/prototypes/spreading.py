"""From counts and labeled rows to a posterior: labels travel, the ridge joins in, both settle."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Bools, Floats
from daskclust.prototypes.graph import normalized, spread, unreached
from daskclust.prototypes.labeled import LabelPlan
from daskclust.prototypes.left_out import balance, spread_left_out, weighed
from daskclust.prototypes.posterior import (
    Balance,
    NodeShares,
    Posterior,
    SpacePosterior,
    shares,
    sharpened,
)
from daskclust.prototypes.references import References, best_share
from daskclust.prototypes.ridge import fit_ridge
from daskclust.prototypes.row_nodes import RowNodes
from daskclust.prototypes.state import GraphCounts, PrototypeProblem, PrototypeState

__all__ = ["SpreadLabels", "SpreadingProblem", "settle", "spread_labels", "with_references"]


#: How far what is known of the nodes travels, once spreading and ridge are joined.
#: Shares are raised to a power before: a node that is sure weighs more than one that is not.
_SETTLING, _SURER = 0.5, 1.5
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
    seeds: Floats


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


class _Travelled(NamedTuple):
    """Labels that have travelled along one graph.

    Attributes
    ----------
    shares : ndarray of shape (k, c)
        Of the classes at the nodes.
    lost : ndarray of shape (k,), bool
        Nodes that no label reaches.
    lost_rows : float
        Weight of the rows that lie between these.
    left_out : ndarray of shape (m, c)
        Shares at the labeled nodes by the labels of the others.
    """

    shares: Floats
    lost: Bools
    lost_rows: float
    left_out: Floats


def _graph(counts: GraphCounts) -> Floats:
    """Return the normalized graph of one set of prototypes."""
    graph = normalized(counts.near)
    if counts.adjacent is not None:
        graph = normalized(graph + normalized(counts.adjacent))
    return graph


def _travel(counts: GraphCounts, seeds: Floats, n_prototypes: int, alpha: float) -> _Travelled:
    graph, counted = _graph(counts), counts.classes
    if not counted.size:
        counted = np.zeros((n_prototypes, seeds.shape[1]))
    given = np.concatenate([counted, seeds])
    lost = unreached(graph, given.sum(axis=1) > 0)
    given = weighed(given, given.sum(axis=0))
    own = np.eye(len(graph), len(seeds), -n_prototypes)
    reached = spread(graph, np.hstack([given, own]), alpha)
    travelled, reached = shares(reached[:, : seeds.shape[1]]), reached[:, seeds.shape[1] :]
    travelled[lost] = 1.0 / travelled.shape[1]
    return _Travelled(
        travelled,
        lost,
        float(counts.near[lost].sum() / 2),
        spread_left_out(reached[n_prototypes:], seeds),
    )


def settle(graph: Floats, found: Floats, seeds: Floats) -> Floats:
    """Let what is known of the nodes travel a short way: neighbors that agree prevail.

    Parameters
    ----------
    graph : ndarray of shape (k, k)
        Normalized.
    found : ndarray of shape (k, c)
        Shares of the classes at the nodes.
    seeds : ndarray of shape (m, c)
        Weights of the classes at the last nodes, whose labels are known.
    """
    given = found.copy()
    given[len(found) - len(seeds) :] = shares(seeds)
    return shares(spread(graph, given, _SETTLING))


def spread_labels(
    problem: SpreadingProblem, state: PrototypeState, alpha: float, n_neighbors: int
) -> SpreadLabels:
    """Let labels travel in each space, join the kernel ridge at the nodes, and settle.

    Parameters
    ----------
    problem : SpreadingProblem
    state : PrototypeState
        With counts.
    alpha : float
    n_neighbors : int
        Nodes of which a row takes its classes.
    """
    seeds, n_sets = problem.seeds, problem.n_sets
    sizes, nodes = state.sizes.tolist(), problem.nodes(state)
    # Graphs are made twice, and never all at a time.
    travelled = [
        _travel(counts, seeds, size, alpha)
        for counts, size in zip(problem.counts(state), sizes, strict=True)
    ]
    firsts = range(0, len(nodes), n_sets)
    labeled = [nodes[first][sizes[first] :] for first in firsts]
    fitted = [fit_ridge(own, shares(seeds), problem.nodes_of.weight) for own in labeled]
    joined = Balance()
    if problem.plan.others is None:
        by_spread = [
            np.mean([one.left_out for one in travelled[first : first + n_sets]], axis=0)
            for first in firsts
        ]
        joined = balance(by_spread, [shares(left_out) for _, left_out in fitted], seeds)
    graphs = []
    for g, counts in enumerate(problem.counts(state)):
        ridge, _ = fitted[g // n_sets]
        both = joined(travelled[g].shares, ridge(nodes[g]))
        # What no label reaches stays as doubtful as it is.
        sure = np.where(travelled[g].lost[:, None], both, sharpened(both, _SURER))
        settled = settle(_graph(counts), sure, seeds)
        graphs.append(NodeShares(nodes[g], sizes[g], travelled[g].shares, settled))
    found = tuple(
        SpacePosterior(space, tuple(graphs[first : first + n_sets]), ridge, joined)
        for space, first, (ridge, _) in zip(
            problem.spaces(state.space)[::n_sets], firsts, fitted, strict=True
        )
    )
    return SpreadLabels(
        Posterior(found, n_neighbors),
        [int(one.lost.sum()) for one in travelled],
        [one.lost_rows for one in travelled],
    )


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
    posterior: Posterior, rows: RowNodes, known: Floats, nodes: NDArray[np.intp]
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
