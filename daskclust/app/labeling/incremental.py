"""Repeated label spreading on the graph of a sample, which does not depend on labels."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Floats, Ints
from daskclust.core.estimator.fit_loop import draw_seeds
from daskclust.core.kernels.nearest.k_nearest import nearest_several
from daskclust.core.kernels.pair_counts import PairCounts, count_edges, count_near
from daskclust.semisupervised.active_learning import QuestionData
from daskclust.semisupervised.feature_views import check_views
from daskclust.semisupervised.label_spreading import CONNECTED, LabelSpreading, count_sets
from daskclust.semisupervised.node_labels import LabelPlan, RowNodes
from daskclust.semisupervised.predict import Posterior
from daskclust.semisupervised.problem import PrototypeState, count_prototypes
from daskclust.semisupervised.spreading import (
    Fold,
    SpreadingProblem,
    exponent_of_graph,
    spread_labels,
)

#: Number of folds of the labels from which the certainty of the map is estimated.
_FOLDS = 4


@dataclass(frozen=True)
class _Nearest:
    """The nearest nodes of rows, and their squared distances."""

    nodes: NDArray[np.int32]
    distances: Floats

    @classmethod
    def of(cls, z: Floats, nodes: Floats, count: int) -> _Nearest:
        return cls(*nearest_several(z, nodes, min(count, len(nodes))))

    def with_further(self, further: _Nearest, first: int) -> NDArray[np.int32]:
        """Return the nearest nodes among these and `further` nodes, numbered from `first`.

        The number of nodes per row is unchanged. At equal distances, these nodes come first.
        """
        nearest = self.nodes.copy()
        closer = np.flatnonzero(further.distances[:, 0] < self.distances[:, -1])
        distances = np.hstack([self.distances[closer], further.distances[closer]])
        nodes = np.hstack([self.nodes[closer], further.nodes[closer] + np.int32(first)])
        order = np.argsort(distances, axis=1, kind="stable")[:, : nearest.shape[1]]
        nearest[closer] = np.take_along_axis(nodes, order, axis=1)
        return nearest


@dataclass(frozen=True)
class _ViewedRows:
    """Rows in each view, and the prototypes of each set that are near to them."""

    views: list[Floats]
    near: list[_Nearest]


@dataclass(frozen=True)
class SampleGraph:
    """Prototypes and sampled rows, which do not depend on labels.

    Labels are spread like :class:`LabelSpreading` without a classifier, on a graph that is counted
    on the sample.  ``problem`` has no labels, and ``state`` no counts.  ``pairs`` are both ends of
    pairs of adjacent pixels; empty for a table.
    """

    problem: SpreadingProblem
    state: PrototypeState
    model: LabelSpreading
    rows: _ViewedRows
    pairs: tuple[_ViewedRows, ...]

    @classmethod
    def of(cls, data: QuestionData, random_state: int) -> SampleGraph:
        """Find prototypes like :class:`LabelSpreading` with its default parameters; one pass."""
        model = LabelSpreading(random_state=random_state)
        (seed,) = draw_seeds(random_state, 1)
        n_prototypes = count_prototypes(model.n_prototypes, data.rows.n_rows)
        no_rows = np.empty((0, data.rows.n_features))
        problem = SpreadingProblem(
            rows=data.rows,
            cube=data.cube,
            views=check_views("auto", is_cube=data.cube is not None),
            n_sets=count_sets(n_prototypes),
            n_prototypes=n_prototypes,
            n_near=CONNECTED,
            lloyd_iter=int(model.max_iter),
            seed=seed,
            extra=no_rows,
            plan=_plan(no_rows, np.empty((0, 0))),
            nodes_of=RowNodes(no_rows, np.empty(0)),
            seeds=np.empty((0, 0)),
        )
        state = problem.begin()
        sample, n_sets = problem.sample, problem.n_sets
        spaces = problem.spaces(state)[::n_sets]

        def in_views(x: Array, count: int) -> _ViewedRows:
            views = [space(x) for space in spaces]
            sets = enumerate(problem.prototypes(state))
            return _ViewedRows(
                views, [_Nearest.of(views[g // n_sets], own, count) for g, own in sets]
            )

        pairs = tuple(in_views(x, 1) for x in sample.neighbors or ())
        return cls(problem, state, model, in_views(sample.x, CONNECTED), pairs)

    def spread(self, x: Array, codes: Ints, n_classes: int) -> Posterior:
        """Spread the labels of some rows; `codes` are classes in [0, n_classes).

        Held-out labels determine how certain the probabilities are.

        O(s (k + m)^3 + n m) time, for s sets of k prototypes, m labels and a sample of n rows.
        """
        nodes = RowNodes(x, np.ones(len(x)))
        weights = np.eye(n_classes)[codes]
        problem = replace(
            self.problem,
            extra=nodes.x,
            nodes_of=nodes,
            seeds=nodes.sums(weights),
            plan=_plan(x, weights),
        )
        alpha, n_neighbors = float(self.model.alpha), int(self.model.n_neighbors)
        folds = _folds(codes)
        spread = spread_labels(problem, self._counted(problem), alpha, n_neighbors, folds)
        posterior, *fold_posteriors = spread.posteriors
        if not folds:
            return posterior
        left_out = [
            own.by_graph(x[fold.rows]) for own, fold in zip(fold_posteriors, folds, strict=True)
        ]
        truth = weights[np.concatenate([np.flatnonzero(fold.rows) for fold in folds])]
        exponent = exponent_of_graph(np.concatenate(left_out), truth)
        return replace(posterior, weights=np.array([exponent, 0.0]))

    def _counted(self, problem: SpreadingProblem) -> PrototypeState:
        """Count the edges between nodes in the sample."""
        n_sets = problem.n_sets
        labeled = [space(problem.extra) for space in problem.spaces(self.state)[::n_sets]]

        def near(in_views: _ViewedRows, count: int) -> list[NDArray[np.int32]]:
            further = [
                _Nearest.of(z, own, count) for z, own in zip(in_views.views, labeled, strict=True)
            ]
            return [
                own.with_further(further[g // n_sets], int(self.state.sizes[g]))
                for g, own in enumerate(in_views.near)
            ]

        sizes = self.state.sizes + len(problem.extra)
        rows = zip(near(self.rows, CONNECTED), sizes, strict=True)
        near_counts = [count_near(nodes, None, int(k)) for nodes, k in rows]
        adjacent: list[PairCounts] = []
        if self.pairs:
            ends = zip(*(near(in_views, 1) for in_views in self.pairs), sizes, strict=True)
            adjacent = [count_edges(a[:, 0], b[:, 0], int(k)) for a, b, k in ends]
        return self.state.with_counts(near_counts, adjacent)


def _folds(codes: Ints) -> list[Fold]:
    """Divide labels into folds, if two classes have two labels; single labels are in no fold."""
    counts = np.bincount(codes)
    if np.count_nonzero(counts > 1) < 2:
        return []
    order = np.argsort(codes, kind="stable")
    order = order[counts[codes[order]] > 1]
    number = np.full(len(codes), -1)
    number[order] = np.arange(len(order)) % _FOLDS
    return [Fold(number == f, number == f) for f in range(_FOLDS)]


def _plan(x: Array, weights: Floats) -> LabelPlan:
    """Return the plan for labeled rows that are all nodes, with the weights of their classes."""
    numbers = np.arange(len(x))
    is_node = np.ones(len(x), bool)
    return LabelPlan(numbers, numbers.astype(np.int32), is_node, x, weights)
