"""From counts and labeled rows to a posterior: labels travel, the ridge joins in, both settle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Array, Bools, Floats
from daskclust.kernels.blas import one_blas_thread
from daskclust.kernels.nearest.several import nearest_several
from daskclust.prototypes.graph import Spreader, normalized, unreached
from daskclust.prototypes.labeled import LabelPlan, RowNodes
from daskclust.prototypes.learners import References, best_share, fit_again, fit_ridge
from daskclust.prototypes.mixing import Fold
from daskclust.prototypes.posterior import (
    LEAST,
    MOST,
    Balance,
    NodeShares,
    Posterior,
    SpacePosterior,
    shares,
    sharpened,
)
from daskclust.prototypes.state import GraphCounts, PrototypeProblem, PrototypeState
from daskclust.prototypes.views import Space

#: Weight of the ridge where nothing speaks for either.
_EVEN = 0.7
#: Share of the mean number of labels, below which a class counts for less than others.
_RARE = 0.5
#: Powers that are tried.
_POWERS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
#: Digits of a loss: its last bits must not show.
_DIGITS = 9
#: How much of a probability is left to doubt.
_DOUBT = 0.02
#: Exponents beyond which a weight is at its bound anyway.
_FAR = 20.0


def weighed(given: Floats, totals: Floats) -> Floats:
    """Return what labels give, so that classes count alike, but very rare ones less.

    A class with less than half the mean number of labels counts in proportion to them: else
    its one label would outweigh the many beside it.

    Parameters
    ----------
    given : ndarray of shape (k, c)
    totals : ndarray of shape (c,) or (k, c)
        Weight of the labels of each class.

    Examples
    --------
    >>> weighed(np.array([[4.0, 3.0]]), np.array([4.0, 3.0]))
    array([[1., 1.]])
    >>> weighed(np.array([[19.0, 1.0]]), np.array([19.0, 1.0]))
    array([[1. , 0.2]])
    """
    mean = totals.mean(axis=-1, keepdims=True)
    least = np.maximum(totals, _RARE * mean)
    return np.divide(given, least, out=np.zeros_like(given), where=totals > 0)


def spread_left_out(reached: Floats, loops: Floats, seeds: Floats, totals: Floats) -> Floats:
    """Shares of the classes at each labeled node, by the labels of the other nodes.

    Parameters
    ----------
    reached : ndarray of shape (m, c)
        What reaches the nodes of all labels.
    loops : ndarray of shape (m,)
        What comes back to a node of its own label.
    seeds : ndarray of shape (m, c)
        Weights of the labels.
    totals : ndarray of shape (c,)
        The same of all nodes.

    Examples
    --------
    >>> reached = np.array([[1.0, 0.5], [0.5, 1.0]])
    >>> spread_left_out(reached, np.ones(2), np.eye(2), np.ones(2))
    array([[0., 1.],
           [1., 0.]])
    """
    others = np.maximum(reached - loops[:, None] * seeds, 0.0)
    # Without the node itself, its class has fewer labels to be shared by.
    return shares(weighed(others, totals - seeds))


def balanced_loss(found: Floats, seeds: Floats) -> float:
    """Mean log loss over the classes; classes of a single label do not count.

    Parameters
    ----------
    found : ndarray of shape (m, c)
        Shares of the classes, without the node itself.
    seeds : ndarray of shape (m, c)
        Weights of the labels.

    Examples
    --------
    >>> round(balanced_loss(np.full((4, 2), 0.5), np.eye(2)[[0, 0, 1, 1]]), 4)
    0.6931
    """
    totals = seeds.sum(axis=0)
    counted = np.where(seeds < totals, seeds / np.maximum(totals, 1e-300), 0.0)
    if not counted.any():
        return 0.0
    sure = (1 - _DOUBT) * found + _DOUBT / seeds.shape[1]
    return float(-(counted * np.log(sure)).sum() / counted.sum())


def ridge_share(spread_loss: float, ridge_loss: float, n_labels: int) -> float:
    """Return the weight of the ridge beside the spreading, whose weight is 1.

    Examples
    --------
    >>> ridge_share(0.5, 0.5, 100), ridge_share(0.2, 0.9, 100), ridge_share(0.9, 0.2, 100)
    (0.7, 0.35, 1.2)
    """
    lean = np.clip(np.sqrt(n_labels) * (spread_loss - ridge_loss), -_FAR, _FAR)
    # Rounded: the last bits of a loss must not show.
    return round(float(np.clip(_EVEN * np.exp(lean), LEAST, MOST)), 6)


def best_power(left_out: Sequence[Floats], seeds: Floats) -> tuple[float, float]:
    """Return the power of shares that makes labels the most likely, and its loss.

    Parameters
    ----------
    left_out : sequence of ndarray of shape (m, c)
        Shares of the classes of each label by the others, in each view.
    seeds : ndarray of shape (m, c)

    Examples
    --------
    >>> timid = np.array([[0.6, 0.4], [0.6, 0.4], [0.4, 0.6], [0.4, 0.6]])
    >>> best_power([timid], np.eye(2)[[0, 0, 1, 1]])[0]
    6.0
    >>> best_power([timid], np.eye(2)[[0, 1, 0, 1]])[0]
    1.0
    """
    losses = [
        np.mean([balanced_loss(sharpened(own, power), seeds) for own in left_out])
        for power in _POWERS
    ]
    best = int(np.argmin(np.round(losses, _DIGITS)))
    return _POWERS[best], float(losses[best])


def balance(spread: Sequence[Floats], ridge: Sequence[Floats], seeds: Floats) -> Balance:
    """Decide how spreading and ridge are joined.

    Parameters
    ----------
    spread, ridge : sequence of ndarray of shape (m, c)
        Shares of the classes of each label by the others, in each view.
    seeds : ndarray of shape (m, c)
    """
    spread_power, by_spread = best_power(spread, seeds)
    ridge_power, by_ridge = best_power(ridge, seeds)
    share = ridge_share(by_spread, by_ridge, len(seeds))
    return Balance(share, spread_power, ridge_power)


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
    nodes_of : RowNodes
        Labeled rows that are nodes.
    seeds : ndarray of shape (k, c)
        Weights of the classes of these nodes.
    """

    plan: LabelPlan
    nodes_of: RowNodes
    seeds: Floats


class SpreadLabels(NamedTuple):
    """Labels after spreading.

    Attributes
    ----------
    missed_nodes : list of int
        Nodes of each graph that no label reaches: sets of prototypes, view by view.
    missed_rows : list of float
        Weight of the rows that lie between these.
    without : list of Posterior
        By the labels that are not in each fold.
    """

    posterior: Posterior
    missed_nodes: list[int]
    missed_rows: list[float]
    without: list[Posterior]


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
    without : list of ndarray of shape (k, c)
        Shares by the labels that are not in each fold.
    """

    shares: Floats
    lost: Bools
    lost_rows: float
    left_out: Floats
    without: list[Floats]


@dataclass(frozen=True)
class _Rest:
    """The labels that are not in a fold.

    Attributes
    ----------
    kept : ndarray of shape (m,), bool
        Labeled nodes.
    seeds : ndarray of shape (m, c)
        Of these; 0 of the others.
    x : ndarray of shape (r, p)
        Rows of the fold that are no nodes.
    weights : ndarray of shape (r, c)
        Of their classes.
    """

    kept: Bools
    seeds: Floats
    x: Array
    weights: Floats

    @classmethod
    def of(cls, problem: SpreadingProblem, fold: Fold) -> _Rest:
        plan = problem.plan
        assert plan.x is not None
        assert plan.weights is not None
        kept = np.ones(len(problem.seeds), bool)
        kept[problem.nodes_of.node[fold.rows[plan.is_node]]] = False
        others = fold.rows & ~plan.is_node
        seeds = problem.seeds * kept[:, None]
        return cls(kept, seeds, plan.x[others], plan.weights[others])

    def counted(self, classes: Floats, space: Space, prototypes: Floats) -> Floats:
        """Take the fold off what was counted to prototypes."""
        if not len(self.x):
            return classes
        own, _ = nearest_several(space(self.x), prototypes, 1)
        found = classes.copy()
        np.subtract.at(found, own[:, 0], self.weights)
        return np.maximum(found, 0.0)


def _graph(counts: GraphCounts) -> Floats:
    """Return the normalized graph of one set of prototypes."""
    graph = normalized(counts.near)
    if counts.adjacent is not None:
        graph = normalized(graph + normalized(counts.adjacent))
    return graph


def _given(counted: Floats, seeds: Floats, n_prototypes: int) -> Floats:
    """Labels at all nodes."""
    if not counted.size:
        counted = np.zeros((n_prototypes, seeds.shape[1]))
    return np.concatenate([counted, seeds])


def _travel(
    counts: GraphCounts,
    seeds: Floats,
    n_prototypes: int,
    alpha: float,
    without: Sequence[tuple[Floats, Floats]],
) -> _Travelled:
    graph = _graph(counts)
    given = _given(counts.classes, seeds, n_prototypes)
    lost = unreached(graph, given.sum(axis=1) > 0)
    own = np.eye(len(graph), len(seeds), -n_prototypes)
    spread = Spreader(graph, alpha)
    reached, back = spread.of_all([given, own])
    totals = given.sum(axis=0)
    travelled = shares(weighed(reached, totals))
    travelled[lost] = 1.0 / travelled.shape[1]
    rest = [_given(*one, n_prototypes) for one in without]
    return _Travelled(
        travelled,
        lost,
        float(counts.near[lost].sum() / 2),
        spread_left_out(reached[n_prototypes:], np.diag(back[n_prototypes:]), seeds, totals),
        # Nodes that no label reaches have no scores: even shares.
        [shares(one) for one in spread.of_all([weighed(one, one.sum(axis=0)) for one in rest])],
    )


def settle(
    graph: Floats, found: Floats, seeds: Floats, without: Sequence[tuple[Floats, Floats]] = ()
) -> list[Floats]:
    """Let what is known of the nodes travel a short way: neighbors that agree prevail.

    Parameters
    ----------
    graph : ndarray of shape (k, k)
        Normalized.
    found : ndarray of shape (k, c)
        Shares of the classes at the nodes.
    seeds : ndarray of shape (m, c)
        Weights of the classes at the last nodes, whose labels are known; 0 where not.
    without : sequence of (ndarray, ndarray)
        The same without each fold.

    Returns
    -------
    list of ndarray of shape (k, c)
        Shares, by all labels and without each fold.
    """
    travels = Spreader(graph, _SETTLING)
    given = [_fixed(found, seeds), *(_fixed(*one) for one in without)]
    return [shares(one) for one in (travels(given[0]), *travels.of_all(given[1:]))]


def _fixed(found: Floats, seeds: Floats) -> Floats:
    """Put what is known of the last nodes in its place."""
    given = found.copy()
    known = seeds.sum(axis=1) > 0
    given[len(found) - len(seeds) :][known] = shares(seeds[known])
    return given


@one_blas_thread()
def spread_labels(
    problem: SpreadingProblem,
    state: PrototypeState,
    alpha: float,
    n_neighbors: int,
    folds: Sequence[Fold] = (),
) -> SpreadLabels:
    """Let labels travel in each space, join the kernel ridge at the nodes, and settle.

    Parameters
    ----------
    state : PrototypeState
        With counts.
    n_neighbors : int
        Nodes of which a row takes its classes.
    folds : sequence of Fold
        Labels to leave out, one fold at a time.
    """
    seeds, n_sets = problem.seeds, problem.n_sets
    sizes, nodes = state.sizes.tolist(), problem.nodes(state)
    rests = [_Rest.of(problem, fold) for fold in folds]
    spaces = problem.spaces(state.space)
    # Graphs are made twice, and never all at a time.
    travelled = []
    for g, counts in enumerate(problem.counts(state)):
        size = sizes[g]
        without = [
            (rest.counted(counts.classes, spaces[g], nodes[g][:size]), rest.seeds) for rest in rests
        ]
        travelled.append(_travel(counts, seeds, size, alpha, without))
    firsts = range(0, len(nodes), n_sets)
    labeled = [nodes[first][sizes[first] :] for first in firsts]
    known, weight = shares(seeds), problem.nodes_of.weight
    fitted = [fit_ridge(own, known, weight) for own in labeled]
    # A ridge for each fold, in each space.
    again = [
        [fit_again(ridge, own[r.kept], known[r.kept], weight[r.kept]) for r in rests]
        for own, (ridge, _) in zip(labeled, fitted, strict=True)
    ]
    by_spread = [
        np.mean([one.left_out for one in travelled[first : first + n_sets]], axis=0)
        for first in firsts
    ]
    joined = balance(by_spread, [shares(left_out) for _, left_out in fitted], seeds)
    graphs: list[list[NodeShares]] = [[] for _ in range(1 + len(rests))]
    for g, counts in enumerate(problem.counts(state)):
        one, own = travelled[g], nodes[g]
        # Nodes that no label reaches stay as doubtful as they are.
        both = joined(one.shares, fitted[g // n_sets][0](own))
        sure = np.where(one.lost[:, None], both, sharpened(both, _SURER))
        without = [
            (sharpened(joined(spread, ridge(own)), _SURER), rest.seeds)
            for spread, ridge, rest in zip(one.without, again[g // n_sets], rests, strict=True)
        ]
        settled = settle(_graph(counts), sure, seeds, without)
        graphs[0].append(NodeShares(own, sizes[g], one.shares, settled[0]))
        for f, rest in enumerate(rests):
            kept = np.concatenate([np.ones(sizes[g], bool), rest.kept])
            shared, after = one.without[f][kept], settled[1 + f][kept]
            graphs[1 + f].append(NodeShares(own[kept], sizes[g], shared, after))
    ridges = [[ridge for ridge, _ in fitted], *zip(*again, strict=True)]
    posteriors = [
        Posterior(
            tuple(
                SpacePosterior(spaces[first], tuple(own[first : first + n_sets]), ridge, joined)
                for first, ridge in zip(firsts, some, strict=True)
            ),
            n_neighbors,
        )
        for own, some in zip(graphs, ridges, strict=True)
    ]
    return SpreadLabels(
        posteriors[0],
        [int(one.lost.sum()) for one in travelled],
        [one.lost_rows for one in travelled],
        posteriors[1:],
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


def as_beside(fold: Posterior, posterior: Posterior) -> Posterior:
    """Let the nearest labeled rows vote in a fold as in the posterior of all labels."""
    pairs = zip(fold.spaces, posterior.spaces, strict=True)
    return replace(
        fold,
        spaces=tuple(replace(one, references=whole.references) for one, whole in pairs),
        neighbor_share=posterior.neighbor_share,
    )


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
        graph += one.graph(z, posterior.n_neighbors)
        neighbors += shares(one.neighbors(z, tried))
    n = len(posterior.spaces)
    return best_share(graph / n, neighbors / n, known[tried])
