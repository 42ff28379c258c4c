"""Spread labels along the graphs of prototypes, and weigh the result against a classifier.

Cross-validation on the labels chooses the weights of the spread labels and of the classifier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from daskclust.core.array_types import Array, Bools, Floats, Ints
from daskclust.core.kernels.blas import one_blas_thread
from daskclust.core.kernels.nearest.k_nearest import nearest_several
from daskclust.semisupervised.classifiers import (
    ClippedLinear,
    TreesAndLinear,
    TreesAndLinearParts,
    bounded,
    fit_classifier,
    mixed,
    shares,
)
from daskclust.semisupervised.graph import normalized, spread_seeds, unreached
from daskclust.semisupervised.node_labels import LabelPlan, RowNodes, draw_evenly
from daskclust.semisupervised.predict import LabelGraph, Posterior, ViewPosterior
from daskclust.semisupervised.problem import GraphCounts, PrototypeProblem, PrototypeState

#: Number of folds of the default classifier, whose trees are distributed over the folds, and of
#: other classifiers, which are fitted once more for each fold.
_FOLDS_OF_TREES, _FOLDS = 8, 4
#: Number of votes that are distributed evenly over the classes and added to the votes of the trees
#: of a fold, because few trees are too certain.
_EVEN_TREES = 4
#: Number of decimals of a weight, because the last bits of a loss depend on the processor.
_WEIGHT_DECIMALS = 4
#: Penalty of the squared distance of the weights from their initial values: with up to ``_FEW``
#: labels per class, whose losses are uncertain, and with many labels.
_PENALTY, _PENALTY_OF_MANY, _FEW = 8.0, 1.0, 8
#: Penalty of the squared excess of the weight of the graph over 1.
_PENALTY_ABOVE_1 = 0.5
#: Minimum skill of the graph for the initial weight 1.  Skill is the relative decrease of the log
#: loss of left-out labels compared with equal probabilities.
_TRUSTED = 0.5
#: Maximum number of labels of a class whose left-out labels do not lower the skill.
_PAIR = 2
#: Exponents of the spread labels that are tried without a classifier.
_EXPONENTS = np.linspace(1.0, 5.0, 17)
#: Minimum sum of the weights.  Without any weight all rows would get the first class.
_MIN_WEIGHT = 0.05
#: Maximum number of labeled rows that are left out.
_LEFT_OUT_ROWS = 4096
#: Fraction of the weights below which the advice does not mention a part.
_NEGLIGIBLE = 0.1
#: Fraction of the mean number of labels per class below which the labels of a class weigh less.
_RARE = 0.5


@dataclass(frozen=True)
class Fold:
    """Labels that are left out together: masks of the fetched rows, and of the distinct rows."""

    rows: Bools
    points: Bools


@dataclass(frozen=True)
class Mixture:
    """Weights of the parts of the posterior; by default, only the graph has a weight.

    ``weights`` are those of the spread labels and of the classifier.  ``linear_share`` is the
    weight of the linear functions in the default classifier.  ``losses`` are mean log losses of the
    left-out labels.
    """

    weights: Floats = field(default_factory=lambda: np.array([1.0, 0.0]))
    linear_share: float = 0.0
    losses: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("spread", "classifier", "mixture"), float("nan"))
    )


class Training:
    """Labeled rows that train the classifier, with folds for cross-validation.

    ``points`` are the distinct rows, ``known`` (k, c) the shares of their classes.  ``folds`` is
    empty unless two classes have two distinct rows.  ``n_labels`` is the number of labels of the
    fit, and ``n_rows`` the number of rows that train the classifier.
    """

    def __init__(self, plan: LabelPlan, classifier: Any, seed: int) -> None:
        self._x, self._classifier = plan.x, classifier
        self._classes, self._codes = plan.labels.classes, plan.codes
        self._weight = plan.weights.sum(axis=1)
        self.points = RowNodes(plan.x, self._weight)
        self.known = shares(self.points.sums(plan.weights))
        # Sorted by value, because row numbers of pixels depend on the chunks.
        self._order = np.lexsort((self._weight, self._codes, self.points.node))
        self.n_labels = len(plan.labels.rows)
        self.n_rows = len(plan.rows)
        number = self._fold_numbers(seed)
        self._fold = number[self.points.node]
        self.folds = [Fold(self._fold == f, number == f) for f in range(number.max() + 1)]

    def _fold_numbers(self, seed: int) -> Ints:
        """Return the fold of each point, with even classes; -1 if a point is never left out."""
        codes = self.known.argmax(axis=1)
        counts = np.bincount(codes, minlength=self.known.shape[1])
        number = np.full(len(codes), -1)
        if np.count_nonzero(counts > 1) < 2:
            return number
        may_be_left_out = counts[codes] > 1
        if len(codes) > _LEFT_OUT_ROWS:
            may_be_left_out &= draw_evenly(codes, self.known.shape[1], _LEFT_OUT_ROWS, seed)
        order = np.random.default_rng(seed).permutation(np.flatnonzero(may_be_left_out))
        order = order[np.argsort(codes[order], kind="stable")]
        n_folds = _FOLDS_OF_TREES if type(self._classifier) is TreesAndLinear else _FOLDS
        number[order] = np.arange(len(order)) % n_folds
        return number

    def fit(self, without: Fold | None = None) -> tuple[Any, Any]:
        """Fit a copy of the classifier, to all labeled rows or without a fold."""
        rows = self._rows(without)
        return fit_classifier(
            self._classifier,
            self._x[rows],
            self._codes[rows],
            self._weight[rows],
            self._classes,
            self._fold[rows],
        )

    def _rows(self, without: Fold | None) -> Ints:
        return self._order if without is None else self._order[~without.rows[self._order]]

    def _parts_of_fold(self, f: int, fitted: Any, x: Array) -> tuple[Floats, ...]:
        """Return the probabilities of rows ``x`` of a fold by the parts of the classifier."""
        if not isinstance(fitted, TreesAndLinearParts):
            return (self.fit(self.folds[f])[1].predict_proba(x),)
        rows = self._rows(self.folds[f])
        labels = self._classes[self._codes[rows]]
        linear = ClippedLinear.fit(self._x[rows], labels, self._weight[rows])
        trees = fitted.trees.of_fold(f, len(self.folds))
        votes = len(trees.roots) * trees.predict_proba(x) + _EVEN_TREES / len(self._classes)
        return shares(votes), fitted.with_linear(linear, self._classes).by_linear(x)

    def weigh(self, without: Sequence[Posterior], fitted: Any) -> Mixture:
        """Choose the weights of all parts by left-out labels.

        ``without`` are the posteriors without the labels of each fold, and ``fitted`` the parts of
        the classifier of all labels.
        """
        # Trees use one feature at a time, so they need many rows per feature.
        n, p = self._x.shape
        linear_share = p / (n + p)
        if not self.folds:
            return Mixture(linear_share=linear_share)
        parts_of_folds: list[tuple[Floats, ...]] = []
        for f, (fold, posterior) in enumerate(zip(self.folds, without, strict=True)):
            x = self.points.x[fold.points]
            parts_of_folds.append((posterior.by_graph(x), *self._parts_of_fold(f, fitted, x)))
        left_out = np.concatenate([np.flatnonzero(fold.points) for fold in self.folds])
        weight = self.points.weight[left_out]
        weight = weight / weight.mean()
        incomplete = np.isnan(self.points.x[left_out]).any(axis=1)
        return mix(
            [np.concatenate(part) for part in zip(*parts_of_folds, strict=True)],
            self.known[left_out],
            weight,
            linear_share,
            float(weight @ incomplete) / len(weight),
        )


def mix(
    parts: Sequence[Floats],
    known: Floats,
    weight: Floats,
    linear_share: float = 0.0,
    incomplete: float = 0.0,
) -> Mixture:
    """Choose the weights that minimize the penalized log loss of left-out labels.

    ``parts`` are probabilities of labeled rows without their labels: by the spread labels, and by
    the classifier or its trees and linear functions.  ``known`` are the shares of their classes.
    The initial weight of the graph grows with its skill on these labels, and with the share
    ``incomplete`` of rows with missing values.  The initial weights sum to 1.  The penalized log
    loss is convex in the weights.
    """
    logs = np.log([bounded(part) for part in parts])
    n_classes = np.count_nonzero(known.sum(axis=0))
    labels_per_class = len(known) / n_classes
    penalty = float(np.clip(_PENALTY * (_FEW / labels_per_class) ** 2, _PENALTY_OF_MANY, _PENALTY))
    spread_loss = _mean_loss(np.ones(1), logs[:1], known, weight)
    # If one of two labels of a class is left out, the other label may be in another region.  Then
    # the left-out label cannot be predicted.
    judged = weight * (known @ known.sum(axis=0) > _PAIR)
    best = spread_loss
    if judged.any():
        best = min(best, _mean_loss(np.ones(1), logs[:1], known, judged))
    skill = 1 - best / np.log(n_classes)
    trust = float(np.clip(skill / _TRUSTED, 0, 1)) ** 2
    trust += incomplete * (1 - trust)
    within = np.array([1 - linear_share, linear_share][: len(parts) - 1])
    initial = np.append(trust, (1 - trust) * within / within.sum())
    result = minimize(
        _penalized_loss,
        initial,
        args=(logs, known, weight, initial, penalty),
        jac=True,
        bounds=[(0, None)] * len(parts),
        options={"ftol": 1e-14, "gtol": 1e-9},
    )
    chosen = result.x
    if chosen.sum() <= _MIN_WEIGHT:
        # No part predicts any label: the classes of the graph remain, with a small margin.
        chosen = _MIN_WEIGHT * np.eye(len(parts))[0]
    weights = np.round([chosen[0], chosen[1:].sum()], _WEIGHT_DECIMALS)
    classifier = parts[-1]
    if len(parts) > 2:
        if weights[1] > 0:
            linear_share = round(float(chosen[2] / chosen[1:].sum()), _WEIGHT_DECIMALS)
        classifier = mixed((1 - linear_share, linear_share), *parts[1:])
    mixture_logs = np.log([bounded(parts[0]), bounded(classifier)])
    losses = {
        "spread": spread_loss,
        "classifier": _mean_loss(np.ones(1), mixture_logs[1:], known, weight),
        "mixture": _mean_loss(weights, mixture_logs, known, weight),
    }
    return Mixture(
        weights,
        linear_share,
        {name: round(loss, _WEIGHT_DECIMALS) for name, loss in losses.items()},
    )


def exponent_of_graph(spread: Floats, known: Floats) -> float:
    """Return the exponent that makes the spread labels predict left-out labels best.

    Spread labels are less certain than the agreement of the labels shows.  ``spread`` (n, c) are
    the probabilities of rows without their labels, ``known`` (n, c) the shares of their classes.
    """
    logs, weight = np.log(bounded(spread))[None], np.ones(len(spread))
    losses = [
        _log_loss(np.array([exponent]), logs, known, weight)[0]
        + _PENALTY_ABOVE_1 * max(exponent - 1.0, 0.0) ** 2
        for exponent in _EXPONENTS
    ]
    return float(_EXPONENTS[int(np.argmin(np.round(losses, _WEIGHT_DECIMALS)))])


def _log_loss(weights: Floats, logs: Floats, known: Floats, weight: Floats) -> tuple[float, Floats]:
    """Return the log loss of the mixture, and its derivatives by the weights."""
    joint = np.tensordot(weights, logs, 1)
    joint -= joint.max(axis=1, keepdims=True)
    joint -= np.log(np.exp(joint).sum(axis=1, keepdims=True))
    slopes = np.einsum("ij,mij->mi", np.exp(joint) - known, logs) @ weight
    return -float(weight @ (known * joint).sum(axis=1)), slopes


def _mean_loss(weights: Floats, logs: Floats, known: Floats, weight: Floats) -> float:
    return _log_loss(weights, logs, known, weight)[0] / float(weight.sum())


def _penalized_loss(
    weights: Floats, logs: Floats, known: Floats, weight: Floats, initial: Floats, penalty: float
) -> tuple[float, Floats]:
    """Add the penalty of the distance from the initial weights to the log loss.

    For the weight of the graph, the penalty is linear above 1, plus a small square.
    """
    value, slopes = _log_loss(weights, logs, known, weight)
    above = max(weights[0] - 1, 0.0)
    distance = weights - initial
    distance[0] -= above
    value += penalty * float(distance @ distance) + 2 * penalty * distance[0] * above
    value += _PENALTY_ABOVE_1 * above**2
    slopes += 2 * penalty * distance
    slopes[0] += 2 * _PENALTY_ABOVE_1 * above
    return value, slopes


def advice(mixture: Mixture, several: bool, n_labels: int, n_rows: int) -> str:
    """Describe which part predicts better, and which rows to label next.

    ``several`` is True for the default classifier, which has trees and linear functions.
    """
    spread, other = mixture.weights.tolist()
    name = "trees and linear functions" if several else "the classifier"
    if several and not _NEGLIGIBLE <= mixture.linear_share <= 1 - _NEGLIGIBLE:
        name = "trees" if mixture.linear_share < _NEGLIGIBLE else "linear functions"
    losses, capitalized = mixture.losses, name[0].upper() + name[1:]
    predict, improve, were = (
        ("predict", "improve", "were") if several else ("predicts", "improves", "was")
    )
    if np.isnan(losses["mixture"]):
        return (
            f"Too few labels to weigh {name}: add labels until two classes have two different rows "
            "each."
        )
    share = other / (spread + other) if spread + other > 0 else 0.0
    if share < _NEGLIGIBLE:
        text = f"{capitalized} {improve} the spread labels little: label rows with a small margin"
    elif share > 1 / 2:
        text = f"{capitalized} {predict} better than the spread labels: label rows far from labels"
    else:
        text = f"{capitalized} {improve} the spread labels: label rows with a small margin"
    text += (
        f" (weights {spread:.2f} and {other:.2f}; log loss of left-out labels: spread "
        f"{losses['spread']:.3f}, {name} {losses['classifier']:.3f}, both {losses['mixture']:.3f})."
    )
    if n_rows < n_labels:
        text += f" {capitalized} {were} trained by {n_rows} of {n_labels} labels."
    return text


@dataclass(frozen=True, kw_only=True)
class SpreadingProblem(PrototypeProblem):
    """A problem with labeled rows as further nodes.

    ``seeds`` (k, c) are the weights of the classes at these nodes.
    """

    plan: LabelPlan
    nodes_of: RowNodes
    seeds: Floats


class SpreadLabels(NamedTuple):
    """Posteriors by all labels, and without each fold.

    ``unreached_nodes`` are numbers of nodes that no label reaches in each graph, view by view, and
    ``unreached_rows`` the weight of the rows between them.
    """

    posteriors: list[Posterior]
    unreached_nodes: list[int]
    unreached_rows: list[float]


@dataclass(frozen=True)
class _Labels:
    """Labels of the fit, with or without the labels of a fold.

    ``is_node`` (k,) are the labeled nodes that remain, and ``seeds`` (k, c) the weights of their
    classes.  ``is_used`` (m,) is False for rows of the fold, among labeled rows that are not nodes.
    """

    is_node: Bools
    seeds: Floats
    is_used: Bools

    @classmethod
    def of(cls, problem: SpreadingProblem, fold: Fold | None) -> _Labels:
        plan, is_node = problem.plan, np.ones(len(problem.seeds), bool)
        others = ~plan.is_node
        if fold is None:
            return cls(is_node, problem.seeds, np.ones(np.count_nonzero(others), bool))
        is_node[problem.nodes_of.node[fold.rows[plan.is_node]]] = False
        return cls(is_node, problem.seeds * is_node[:, None], ~fold.rows[others])

    def at_nodes(self, prototype: Array, weights: Floats, n_prototypes: int) -> Floats:
        """Return the weights of the classes at all nodes (prototypes first).

        ``prototype`` (m,) are the nearest prototypes of labeled rows that are not nodes, and
        ``weights`` (m, c) the weights of their classes.
        """
        classes = np.zeros((n_prototypes, self.seeds.shape[1]))
        np.add.at(classes, prototype[self.is_used], weights[self.is_used])
        return np.concatenate([classes, self.seeds])


def graph_of(counts: GraphCounts) -> Floats:
    """Return the normalized graph of one set of nodes."""
    graph = normalized(counts.near.matrix(counts.n_nodes))
    if counts.adjacent is not None:
        graph = normalized(graph + normalized(counts.adjacent.matrix(counts.n_nodes)))
    return graph


def balance_classes(scores: Floats, totals: Floats) -> Floats:
    """Divide the scores of each class by the weight of its labels, so that weights are equal.

    The divisor is at least half the mean weight of a class.  Otherwise, a single label would
    outweigh many labels of other classes next to it.
    """
    divisor = np.maximum(totals, _RARE * totals.mean())
    return np.divide(scores, divisor, out=np.zeros_like(scores), where=totals > 0)


@one_blas_thread()
def spread_labels(
    problem: SpreadingProblem,
    state: PrototypeState,
    alpha: float,
    n_neighbors: int,
    folds: Sequence[Fold] = (),
) -> SpreadLabels:
    """Spread the labels along the graph of each set of prototypes, with and without each fold.

    The state must have counts.  One BLAS thread is used, because threads would wait for each other
    in many small systems.
    """
    plan = problem.plan
    others, weights = plan.x[~plan.is_node], plan.weights[~plan.is_node]
    versions = [_Labels.of(problem, fold) for fold in (None, *folds)]
    spaces, nodes, sizes = problem.spaces(state), problem.nodes(state), state.sizes.tolist()
    graphs: list[list[LabelGraph]] = [[] for _ in versions]
    unreached_nodes, unreached_rows = [], []
    for g, counts in enumerate(problem.counts(state)):
        graph = graph_of(counts)
        nearest = nearest_several(spaces[g](others), nodes[g][: sizes[g]], 1)[0][:, 0]
        labels = [own.at_nodes(nearest, weights, sizes[g]) for own in versions]
        missed = unreached(graph, labels[0].sum(axis=1) > 0)
        scores = spread_seeds(graph, alpha, labels[:1], labels[1:])
        for i, (own, seeds) in enumerate(zip(versions, labels, strict=True)):
            probabilities = shares(balance_classes(scores[i], seeds.sum(axis=0)))
            # `unreached` is determined with all labels only, so it does not depend on folds.
            missed_now = missed if i == 0 else np.zeros_like(missed)
            probabilities[missed_now] = 1.0 / probabilities.shape[1]
            used = np.concatenate([np.ones(sizes[g], bool), own.is_node])
            graphs[i].append(
                LabelGraph(nodes[g][used], sizes[g], probabilities[used], missed_now[used])
            )
        unreached_nodes.append(int(missed.sum()))
        missed_rows = counts.near.degrees(counts.n_nodes)[missed].sum() / 2
        unreached_rows.append(float(missed_rows / problem.fraction))
    firsts = range(0, len(nodes), problem.n_sets)
    posteriors = [
        Posterior(
            problem.seeds.shape[1],
            n_neighbors,
            tuple(ViewPosterior(spaces[f], tuple(own[f : f + problem.n_sets])) for f in firsts),
            None,
            np.array([1.0, 0.0]),
            len(plan.labels.rows) > int(plan.is_node.sum()),
        )
        for own in graphs
    ]
    return SpreadLabels(posteriors, unreached_nodes, unreached_rows)
