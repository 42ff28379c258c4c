"""Labels that travel along the graphs of prototypes, and a classifier beside them.

Spread labels are joined with a kernel ridge, and settled; what comes of it is weighed against
a classifier by labels that are left out of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.base import clone

from daskclust.core.array_types import Array, Bools, Floats, Ints
from daskclust.core.kernels.blas import one_blas_thread
from daskclust.core.kernels.nearest.k_nearest import nearest_several
from daskclust.semisupervised.classifiers import (
    CHOOSING_POINTS,
    LANDMARKS,
    Both,
    References,
    TreesAndLinear,
    best_share,
    choose_kernels,
    fit_ridge,
    mixed,
    shares,
    surely,
    teach,
)
from daskclust.semisupervised.feature_views import Space
from daskclust.semisupervised.graph import normalized, spread_and_loops, spread_seeds, unreached
from daskclust.semisupervised.node_labels import LabelPlan, RowNodes, chosen
from daskclust.semisupervised.predict import (
    LEAST,
    MOST,
    Balance,
    NodeShares,
    Posterior,
    SpacePosterior,
    sharpened,
)
from daskclust.semisupervised.problem import GraphCounts, PrototypeProblem, PrototypeState, split

#: Folds, and digits of a weight: the last bits of a loss must not show.
_FOLDS, _WEIGHT_DIGITS = 4, 4
#: How much weights are drawn to where they begin, each by the square of its distance: up to so many
#: labels a class, whose losses say little of the rows, and where there are many.
_DRAWN, _DRAWN_BY_MANY, _FEW = 8.0, 1.0, 8
#: Share of what labels left out say, beyond chance, from which the graph is trusted wholly.
_TRUSTED = 0.5
#: Labels of a class that say too little of it when one of them is left out.
_PAIR = 2
#: That of the graph less so above 1: who is surer of the same classes errs no more often.
_DRAWN_UP = 0.5
#: Sum of the weights, at least: without any, all rows would be of the first class.
_IN_DOUBT = 0.05
#: Labeled rows that teach the classifier, and rows that are left out, at most.
TAUGHT, _TRIED = 10_000, 4096
#: Trees that are grown without a fold of the labels: at least, and for each class.  The log loss of
#: few trees says too little of many classes.
FOLD_TREES, FOLD_TREES_A_CLASS = 25, 4
#: Share of the weights below which a part has no say.
_NO_SAY = 0.1


@dataclass(frozen=True)
class Fold:
    """Labels that are left out together: of the fetched rows, and of the different ones."""

    rows: Bools
    points: Bools


@dataclass(frozen=True)
class Mixture:
    """How much of either part there is; the graph alone where no labels could be left out.

    ``weights`` are those of the spread labels and of the classifier, ``linear_share`` that of the
    linear functions within a classifier of two parts; ``losses`` the mean log loss of the labels
    left out, by ``"spread"``, ``"classifier"`` and ``"mixture"``.
    """

    weights: Floats = field(default_factory=lambda: np.array([1.0, 0.0]))
    linear_share: float = 0.0
    losses: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("spread", "classifier", "mixture"), float("nan"))
    )


class Lesson:
    """Labeled rows that teach a classifier, and folds of them.

    ``points`` are the different rows, ``known`` (k, c) shares of the classes of each; ``folds`` are
    empty where fewer than two classes have two different rows.  ``n_labels`` rows were given, and
    ``n_taught`` teach.
    """

    def __init__(self, plan: LabelPlan, classifier: Any, seed: int) -> None:
        self._x, self._classifier = plan.x, classifier
        self._classes, self._codes = plan.labels.classes, plan.codes
        self._weight = plan.weights.sum(axis=1)
        self.points = RowNodes(plan.x, self._weight)
        self.known = shares(self.points.sums(plan.weights))
        # In an order of their values: row numbers of pixels depend on the chunks.
        self._taught = np.lexsort((self._weight, self._codes, self.points.node))
        if len(plan.codes) > TAUGHT:
            drawn = chosen(self._codes[self._taught], len(self._classes), TAUGHT, seed)
            self._taught = self._taught[drawn]
        self.n_labels = len(plan.labels.rows)
        self.n_taught = len(self._taught)
        number = self._deal(seed)
        self.folds = [
            Fold(number[self.points.node] == f, number == f) for f in range(number.max() + 1)
        ]

    def _deal(self, seed: int) -> Ints:
        """Deal the points out to folds, each class evenly; -1 where a point always stays."""
        codes = self.known.argmax(axis=1)
        counts = np.bincount(codes, minlength=self.known.shape[1])
        number = np.full(len(codes), -1)
        if np.count_nonzero(counts > 1) < 2:
            return number
        tried = counts[codes] > 1
        if len(codes) > _TRIED:
            tried &= chosen(codes, self.known.shape[1], _TRIED, seed)
        order = np.random.default_rng(seed).permutation(np.flatnonzero(tried))
        order = order[np.argsort(codes[order], kind="stable")]
        number[order] = np.arange(len(order)) % _FOLDS
        return number

    def teach(self, without: Fold | None = None, like: Any = None) -> tuple[Any, Any]:
        """Fit a copy of the classifier; without a fold, fewer trees of the default suffice."""
        kept = self._taught if without is None else self._taught[~without.rows[self._taught]]
        labels = self._x[kept], self._codes[kept], self._weight[kept]
        classifier = self._classifier
        if without is not None and type(classifier) is TreesAndLinear:
            trees = max(FOLD_TREES, FOLD_TREES_A_CLASS * len(self._classes))
            trees = min(trees, classifier.n_estimators)
            classifier = clone(classifier).set_params(n_estimators=trees)
        return teach(classifier, *labels, self._classes, like)

    def weigh(self, without: Sequence[Posterior], fitted: Any) -> Mixture:
        """Weigh all parts by what they say of each fold, taught by the labels of the others.

        ``without`` are posteriors by these labels, ``fitted`` the classifier of all labels.
        """
        # Trees ask for one feature after another, of which they need many rows.
        n, p = self._x.shape
        linear_share = p / (n + p)
        if not self.folds:
            return Mixture(linear_share=linear_share)
        found: list[tuple[Floats, ...]] = []
        for fold, one in zip(self.folds, without, strict=True):
            x = self.points.x[fold.points]
            spread = one(x, np.flatnonzero(fold.points))
            learned = self.teach(fold, fitted)[1]
            if isinstance(learned, Both):
                found.append((spread, learned.trees.predict_proba(x), learned.by_linear(x)))
            else:
                found.append((spread, learned.predict_proba(x)))
        left_out = np.concatenate([np.flatnonzero(fold.points) for fold in self.folds])
        weight = self.points.weight[left_out]
        weight = weight / weight.mean()
        parts = [np.concatenate(part) for part in zip(*found, strict=True)]
        gaps = float(weight @ np.isnan(self.points.x[left_out]).any(axis=1)) / len(weight)
        return mix(parts, self.known[left_out], weight, linear_share, gaps)


def mix(
    parts: Sequence[Floats],
    known: Floats,
    weight: Floats,
    linear_share: float = 0.0,
    gaps: float = 0.0,
) -> Mixture:
    """Choose the weights that make labels left out the most likely, drawn to where they begin.

    ``parts`` are probabilities of labeled rows, each without its label: of the spread labels and
    the classifier, or its trees and linear functions; ``known`` the shares of their classes.
    Weights begin with the graph as far as it foretells these labels better than chance does, all of
    them or those of classes of more than two labels.  The rest is the classifier's, of it
    ``linear_share`` that of the linear functions; of rows that miss values, whose share is
    ``gaps``, the graph alone knows what lies beside them.  The log loss is convex in the weights,
    and so is what draws them.
    """
    n_classes = np.count_nonzero(known.sum(axis=0))
    a_class = len(known) / n_classes
    most = float(np.clip(_DRAWN * (_FEW / a_class) ** 2, _DRAWN_BY_MANY, _DRAWN))

    def loss(weights: Floats, logs: Floats, weight: Floats) -> tuple[float, Floats]:
        joint = np.tensordot(weights, logs, 1)
        joint -= joint.max(axis=1, keepdims=True)
        joint -= np.log(np.exp(joint).sum(axis=1, keepdims=True))
        slopes = np.einsum("ij,mij->mi", np.exp(joint) - known, logs) @ weight
        return -float(weight @ (known * joint).sum(axis=1)), slopes

    def said(weights: list[float], parts: Sequence[Floats], weight: Floats = weight) -> float:
        logs = np.log([surely(part) for part in parts])
        return loss(np.array(weights), logs, weight)[0] / float(weight.sum())

    spread = said([1.0], parts[:1])
    # A class of two labels keeps one: where it lies in two places, no part foretells the other.
    told = weight * (known @ known.sum(axis=0) > _PAIR)
    best = min(spread, said([1.0], parts[:1], told)) if told.any() else spread
    foretold = 1 - best / np.log(n_classes)
    trust = float(np.clip(foretold / _TRUSTED, 0, 1)) ** 2
    trust += gaps * (1 - trust)
    within = [1 - linear_share, linear_share][: len(parts) - 1]
    begin = np.array([trust, *((1 - trust) * share / sum(within) for share in within)])
    logs = np.log([surely(part) for part in parts])

    def drawn(weights: Floats) -> tuple[float, Floats]:
        value, slopes = loss(weights, logs, weight)
        # Above 1 the graph is drawn no more than there, and a little.
        above = max(weights[0] - 1, 0.0)
        apart = weights - begin
        apart[0] -= above
        value += most * float(apart @ apart) + 2 * most * apart[0] * above + _DRAWN_UP * above**2
        slopes += 2 * most * apart
        slopes[0] += 2 * _DRAWN_UP * above
        return value, slopes

    found = minimize(
        drawn,
        begin,
        jac=True,
        bounds=[(0, None)] * len(parts),
        options={"ftol": 1e-14, "gtol": 1e-9},
    )
    # Where no part foretells anything, classes are those of the graph alone, in doubt.
    best = found.x if found.x.sum() > _IN_DOUBT else _IN_DOUBT * np.eye(len(parts))[0]
    others = best[1:]
    weights = np.round([best[0], others.sum()], _WEIGHT_DIGITS)
    classifier = parts[-1]
    if len(parts) > 2:
        if weights[1] > 0:
            linear_share = round(float(others[1] / others.sum()), _WEIGHT_DIGITS)
        classifier = mixed((1 - linear_share, linear_share), *parts[1:])
    losses = {
        "spread": spread,
        "classifier": said([1.0], [classifier]),
        "mixture": said(weights.tolist(), [parts[0], classifier]),
    }
    return Mixture(
        weights, linear_share, {name: round(one, _WEIGHT_DIGITS) for name, one in losses.items()}
    )


def advice(mixture: Mixture, several: bool, n_labels: int, n_taught: int) -> str:
    """Say which part knows more, and which rows to label next.

    ``several``: the classifier is trees and linear functions, as far as these have a say.
    """
    spread, other = mixture.weights.tolist()
    name = "trees and linear functions" if several else "the classifier"
    if several and not _NO_SAY <= mixture.linear_share <= 1 - _NO_SAY:
        name = "trees" if mixture.linear_share < _NO_SAY else "linear functions"
    losses, upper = mixture.losses, name[0].upper() + name[1:]
    know, add, were = ("know", "add", "were") if several else ("knows", "adds", "was")
    if np.isnan(losses["mixture"]):
        return (
            f"Too few labels to weigh {name}: give two or more different rows of each of two "
            "classes."
        )
    share = other / (spread + other) if spread + other > 0 else 0.0
    if share < _NO_SAY:
        said = f"Spread labels know all that {name} {know}: label rows where the margin is small"
    elif share > 1 / 2:
        said = f"{upper} {know} more here: label rows far from the labeled ones"
    else:
        said = f"Spread labels know more here, and {name} {add} to it: label rows of small margin"
    said += (
        f" (weights {spread:.2f} and {other:.2f}; log loss of labels left out: spread "
        f"{losses['spread']:.3f}, {name} {losses['classifier']:.3f}, both {losses['mixture']:.3f})."
    )
    if n_taught < n_labels:
        said += f" {upper} {were} taught by {n_taught} of {n_labels} labels."
    return said


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
    """
    mean = totals.mean(axis=-1, keepdims=True)
    least = np.maximum(totals, _RARE * mean)
    return np.divide(given, least, out=np.zeros_like(given), where=totals > 0)


def balanced_loss(found: Floats, seeds: Floats) -> float:
    """Mean log loss over the classes; classes of a single label do not count.

    Shares of each labeled node are found without the node itself.
    """
    totals = seeds.sum(axis=0)
    counted = np.where(seeds < totals, seeds / np.maximum(totals, 1e-300), 0.0)
    if not counted.any():
        return 0.0
    sure = (1 - _DOUBT) * found + _DOUBT / seeds.shape[1]
    return float(-(counted * np.log(sure)).sum() / counted.sum())


def balance(spread: Sequence[Floats], ridge: Sequence[Floats], seeds: Floats) -> Balance:
    """Decide how spreading and ridge are joined, by the shares of each label by the others.

    Each is raised to the power that makes the labels the most likely; which of them then foretells
    these better weighs more.
    """
    powers, losses = [], []
    for left_out in (spread, ridge):
        tried = [
            np.mean([balanced_loss(sharpened(own, power), seeds) for own in left_out])
            for power in _POWERS
        ]
        best = int(np.argmin(np.round(tried, _DIGITS)))
        powers.append(_POWERS[best])
        losses.append(float(tried[best]))
    lean = np.clip(np.sqrt(len(seeds)) * (losses[0] - losses[1]), -_FAR, _FAR)
    # Rounded: the last bits of a loss must not show.
    share = round(float(np.clip(_EVEN * np.exp(lean), LEAST, MOST)), 6)
    return Balance(share, *powers)


#: How far what is known of the nodes travels, once spreading and ridge are joined.
#: Shares are raised to a power before: a node that is sure weighs more than one that is not.
_SETTLING, _SURER = 0.5, 1.5
#: Labeled rows by which the share of the nearest ones is chosen, at most.
_TRIED_REFERENCES = 4096


@dataclass(frozen=True, kw_only=True)
class SpreadingProblem(PrototypeProblem):
    """The labeled rows that are nodes, with what any fit on prototypes needs.

    ``seeds`` (k, c) are the weights of the classes of these nodes.
    """

    plan: LabelPlan
    nodes_of: RowNodes
    seeds: Floats


class SpreadLabels(NamedTuple):
    """Labels after spreading.

    ``posteriors`` are by all labels, and without each fold. ``missed_nodes`` are nodes of each
    graph, view by view, that no label reaches, ``missed_rows`` the weight of the rows between them.
    """

    posteriors: list[Posterior]
    missed_nodes: list[int]
    missed_rows: list[float]


class _Travelled(NamedTuple):
    """Labels that have travelled along one graph: all of them, and without each fold.

    ``shares`` (k, c) are those of all nodes, ``left_out`` (m, c) those at the labeled nodes by the
    labels of the others. ``lost`` (k,) are nodes that no label reaches, ``lost_rows`` the weight of
    the rows between these.
    """

    shares: list[Floats]
    left_out: list[Floats]
    lost: Bools
    lost_rows: float


@dataclass(frozen=True)
class _Labels:
    """All labels, or those that are not in a fold: the labeled nodes ``kept``, and their ``seeds``.

    ``x`` are rows of the fold that are no nodes, ``weights`` those of their classes.
    """

    kept: Bools
    seeds: Floats
    x: Array
    weights: Floats

    @classmethod
    def of(cls, problem: SpreadingProblem, fold: Fold | None) -> _Labels:
        plan, kept = problem.plan, np.ones(len(problem.seeds), bool)
        if fold is None:
            return cls(kept, problem.seeds, plan.x[:0], plan.weights[:0])
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
    graph = normalized(counts.near.matrix(counts.n_nodes))
    if counts.adjacent is not None:
        graph = normalized(graph + normalized(counts.adjacent.matrix(counts.n_nodes)))
    return graph


def _travel(
    counts: GraphCounts, labels: Sequence[tuple[Floats, Floats]], n_prototypes: int, alpha: float
) -> _Travelled:
    """Let labels travel: what was counted to prototypes, and the seeds of the labeled nodes."""
    seeds = labels[0][1]
    graph, nothing = _graph(counts), np.zeros((n_prototypes, seeds.shape[1]))
    # Labels at all nodes.
    given = [np.concatenate([counted if counted.size else nothing, own]) for counted, own in labels]
    lost = unreached(graph, given[0].sum(axis=1) > 0)
    (reached, *further), loops = spread_and_loops(graph, alpha, len(seeds), given[:1], given[1:])
    found, left_out = [], []
    for at_nodes, scores, (_, seeds) in zip(given, (reached, *further), labels, strict=True):
        totals, kept = at_nodes.sum(axis=0), seeds.sum(axis=1) > 0
        others = scores[n_prototypes:][kept] - loops[kept][:, None] * seeds[kept]
        # Nodes that no label reaches have no scores: even shares.  Without the node itself, its
        # class has fewer labels to be shared by.
        found.append(shares(weighed(scores, totals)))
        left_out.append(shares(weighed(np.maximum(others, 0.0), totals - seeds[kept])))
    found[0][lost] = 1.0 / found[0].shape[1]
    lost_rows = float(counts.near.degrees(counts.n_nodes)[lost].sum() / 2)
    return _Travelled(found, left_out, lost, lost_rows)


def settle(graph: Floats, labels: Sequence[tuple[Floats, Floats]]) -> list[Floats]:
    """Let what is known of the nodes travel a short way: neighbors that agree prevail.

    ``labels`` are shares of all nodes, and weights (m, c) of the classes at the last nodes, whose
    labels are known; 0 where not.  The first of the results does not depend on the others.
    """
    given = []
    for own, seeds in labels:
        known = seeds.sum(axis=1) > 0
        given.append(own.copy())
        given[-1][len(own) - len(seeds) :][known] = shares(seeds[known])
    return [shares(one) for one in spread_seeds(graph, _SETTLING, given[:1], given[1:])]


@one_blas_thread()
def spread_labels(
    problem: SpreadingProblem,
    state: PrototypeState,
    alpha: float,
    n_neighbors: int,
    folds: Sequence[Fold] = (),
) -> SpreadLabels:
    """Let labels travel in each space, join the kernel ridge at the nodes, and settle.

    The state has counts.  A row takes its classes of ``n_neighbors`` nodes.  One BLAS thread: in
    many small systems several would wait for each other.
    """
    n_sets, sizes = problem.n_sets, state.sizes.tolist()
    spaces, nodes = problem.spaces(state), problem.nodes(state)
    # All labels, then those without each fold, here and in all that follows.
    parts = [_Labels.of(problem, fold) for fold in (None, *folds)]
    # Graphs are made twice, and never all at a time.
    travelled = []
    for g, counts in enumerate(problem.counts(state)):
        own, space, size = counts.classes, spaces[g], sizes[g]
        given = [(part.counted(own, space, nodes[g][:size]), part.seeds) for part in parts]
        travelled.append(_travel(counts, given, size, alpha))
    firsts = range(0, len(nodes), n_sets)
    known, weight = shares(problem.seeds), problem.nodes_of.weight
    prototypes = split(state.prototypes, np.add.reduceat(state.sizes, firsts))
    codes, n_classes = known.argmax(axis=1), known.shape[1]
    landmarks, choosing = (
        chosen(codes, n_classes, min(count, len(codes)), problem.seed)
        for count in (LANDMARKS, CHOOSING_POINTS)
    )
    # Of each space, ridges and what they say of each labeled node by the others.
    ridges = []
    for first, around in zip(firsts, prototypes, strict=True):
        labeled = nodes[first][sizes[first] :]
        kernels = choose_kernels(
            labeled[choosing], known[choosing], weight[choosing], around.var(axis=0)
        )
        masks = [(part.kept, landmarks[part.kept]) for part in parts]
        ridges.append(
            [fit_ridge(kernels, labeled[at], known[at], weight[at], own) for at, own in masks]
        )
    # Labels of a fold have no say in how the others are joined.
    joins = []
    for i, part in enumerate(parts):
        left_out = [one.left_out[i] for one in travelled]
        by_spread = [np.mean(left_out[first : first + n_sets], axis=0) for first in firsts]
        by_ridge = [shares(of_space[i][1]) for of_space in ridges]
        joins.append(balance(by_spread, by_ridge, part.seeds[part.kept]))
    graphs: list[list[NodeShares]] = [[] for _ in parts]
    for g, counts in enumerate(problem.counts(state)):
        one, own = travelled[g], nodes[g]
        both = [
            join(spread, ridge(own))
            for join, spread, (ridge, _) in zip(joins, one.shares, ridges[g // n_sets], strict=True)
        ]
        sure = [sharpened(found, _SURER) for found in both]
        # Nodes that no label reaches stay as doubtful as they are.
        sure[0][one.lost] = both[0][one.lost]
        settled = settle(_graph(counts), [*zip(sure, (part.seeds for part in parts), strict=True)])
        for i, part in enumerate(parts):
            kept = np.concatenate([np.ones(sizes[g], bool), part.kept])
            # Without a fold more nodes may be unreached: what is left out must not tell which.
            missed = one.lost[kept] if i == 0 else np.zeros(int(kept.sum()), bool)
            found = NodeShares(own[kept], sizes[g], one.shares[i][kept], settled[i][kept], missed)
            graphs[i].append(found)
    posteriors = []
    for i, join in enumerate(joins):
        in_spaces = [
            SpacePosterior(spaces[first], tuple(graphs[i][first : first + n_sets]), own[i][0], join)
            for first, own in zip(firsts, ridges, strict=True)
        ]
        posteriors.append(Posterior(tuple(in_spaces), n_neighbors))
    lost = [int(one.lost.sum()) for one in travelled]
    return SpreadLabels(posteriors, lost, [one.lost_rows for one in travelled])


def with_references(posteriors: Sequence[Posterior], plan: LabelPlan) -> list[Posterior]:
    """Let the nearest labeled rows vote, for where there are more labels than nodes.

    In posteriors without a fold they vote as in the first one, that of all labels.
    """
    rows = RowNodes(plan.x, plan.weights.sum(axis=1))
    known = shares(rows.sums(plan.weights))
    found = []
    for one in posteriors[0].spaces:
        first = one.graphs[0]
        prototypes = first.nodes[: first.n_prototypes]
        found.append(References.build(one.space(rows.x), known, prototypes))
    beside = []
    for posterior in posteriors:
        pairs = zip(posterior.spaces, found, strict=True)
        spaces = tuple(replace(one, references=own) for one, own in pairs)
        beside.append(replace(posterior, spaces=spaces))
    share = _choose_share(beside[0], rows, known, rows.node[plan.is_node])
    return [replace(posterior, neighbor_share=share) for posterior in beside]


def _choose_share(
    posterior: Posterior, rows: RowNodes, known: Floats, nodes: NDArray[np.intp]
) -> float:
    """Choose the share of the nearest labeled rows by those that are no nodes."""
    others = np.ones(len(rows.x), bool)
    others[nodes] = False
    tried = np.flatnonzero(others)
    tried = tried[:: -(-len(tried) // _TRIED_REFERENCES) or 1]
    if not len(tried):
        return 0.0
    graph, neighbors = np.zeros((2, len(tried), known.shape[1]))
    for one in posterior.spaces:
        z = one.space(rows.x[tried])
        graph += one.graph(z, posterior.n_neighbors)[0]
        neighbors += shares(one.neighbors(z, tried))
    n = len(posterior.spaces)
    return best_share(graph / n, neighbors / n, known[tried])
