"""The steps of a fit in levels: parents, their children, refinements, and large leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from daskclust.cluster.kmeans import KMeans
from daskclust.cluster.level_refinement import Refinement
from daskclust.cluster.level_sizes import MAX_ROUNDS, distribute_children
from daskclust.cluster.level_updates import Insertion, group_leaves, stored_record
from daskclust.cluster.lloyd import LloydProblem, LloydState
from daskclust.core.array_types import Array as AnyArray
from daskclust.core.array_types import Floats, Ints
from daskclust.core.engine import Grouping, Rows, group_rows, map_independent
from daskclust.core.estimator.fit_loop import DataAlone, Step, best_restart, settled
from daskclust.core.estimator.validation import Data
from daskclust.core.kernels.nearest.k_nearest import CenterTree, nearest_leaf
from daskclust.core.reduction.assign import LEAF_STATISTICS, LeafQuery
from daskclust.core.storage.shuffle_files import Spill

#: Minimum number of parents clustered between two checkpoints; maximum number of steps per level.
_BATCH, _STEPS = 64, 16


@dataclass(frozen=True)
class HierarchyState(LloydState):
    """State of a fit with two or more levels; the first level is a :class:`LloydState`.

    - `phase` (1,): 0 while the first level moves, then the number of completed later steps.
    - `sizes`: number of children of each completed center, ordered by level.
    - `nodes` (t, p): completed centers below the first level, ordered by level.
    - `leaf_counts` (k,), `leaf_inertia`: weights and inertia of the leaves at the last count.
    """

    phase: Annotated[Ints, "i one"]
    sizes: Annotated[Ints, "i parents"]
    nodes: Annotated[NDArray[np.float32], "f4 nodes p"]
    leaf_counts: Annotated[Floats, "f counted"]
    leaf_inertia: Annotated[float, "f"]

    @property
    def top(self) -> LloydState:
        """State of the first level."""
        return LloydState(**{item.name: getattr(self, item.name) for item in fields(LloydState)})

    @property
    def tree(self) -> CenterTree:
        """Completed levels, and the last level, which may be incomplete."""
        return CenterTree.of(self.centers[0], self.sizes, self.nodes)

    def with_leaves(self, leaves: AnyArray, sizes: Ints) -> HierarchyState:
        """Replace the centers of the last level; `sizes` is the number of children per parent."""
        tree = self.tree
        above = self.nodes[: len(self.nodes) - len(tree.leaves)]
        sizes = np.concatenate([self.sizes[: len(self.sizes) - len(tree.levels[-2])], sizes])
        return replace(self, nodes=np.concatenate([above, leaves]), sizes=sizes)


class ParentTask(NamedTuple):
    """Task that clusters the rows of one parent."""

    parent: int
    n_children: int
    seed: int


@dataclass(frozen=True)
class HierarchyProblem(DataAlone):
    """Fit of k-means in levels.

    Tasks run on the workers that hold `X`.  `top` is the problem of the first level, and its rows
    are transformed by the metric.  `totals` are the numbers of centers of the levels, and
    `max_size` is the maximum number of rows of a leaf.
    """

    kind: ClassVar[type[HierarchyState]] = HierarchyState

    X: Any
    top: LloydProblem
    totals: tuple[int, ...]
    n_probe: int | None
    refine: int
    max_size: int | None
    model: KMeans
    spill: Spill
    seed: int
    _groupings: dict[int, Grouping] = field(default_factory=dict)

    @property
    def rows(self) -> Rows:
        """Rows transformed by the metric."""
        return self.top.rows

    @property
    def max_iter(self) -> int:
        """Maximum number of steps: first level, later levels, refinements, and two more."""
        return self.top.max_iter + (_STEPS + 1) * len(self.totals) + self.refine + 2

    @property
    def sizes(self) -> Mapping[str, int]:
        """Sizes of axes for the checkpoint: the phase is one number."""
        return {"one": 1}

    def begin(self) -> HierarchyState:
        """Initialize the parents."""
        top = self.top.begin()
        p = top.centers.shape[-1]
        return HierarchyState(
            **vars(top),
            phase=np.zeros(1, np.int64),
            sizes=np.empty(0, np.int64),
            nodes=np.empty((0, p), np.float32),
            leaf_counts=np.empty(0),
            leaf_inertia=np.inf,
        )

    def step(self, state: HierarchyState) -> Step[HierarchyState]:
        """Run an iteration of the first level, or cluster parents, refine leaves, or count rows."""
        phase = int(state.phase[0])
        if phase == 0:
            step = self.top.step(state.top)
            is_over = step.finished or int(step.state.n_iter[0]) >= self.top.max_iter
            new_state = replace(state, **vars(step.state), phase=np.array([int(is_over)]))
            return Step(new_state, step.objective, step.center_shift, False)
        tree = state.tree
        is_complete = not tree.starts or len(tree.leaves) == tree.starts[-1][-1]
        if len(tree.levels) < len(self.totals) or not is_complete:
            return self._cluster(state, len(tree.levels) - (not is_complete))
        next_state = replace(state, phase=state.phase + 1)
        return self._refine(next_state) if phase <= self.refine else self._count_rows(next_state)

    def _groups(self, state: HierarchyState, depth: int) -> Grouping:
        """Return the rows grouped by the centers of a level; the first call writes them."""
        if depth not in self._groupings:
            self._groupings.clear()
            store = self.spill.store(stored_record(self.X, self.rows))
            tree = state.tree
            groups_of = partial(_parents_of, tree.upto(depth), self.n_probe)
            n_groups = len(tree.levels[depth - 1])
            self._groupings[depth] = group_rows(self.rows, store, groups_of, n_groups)
            if len(tree.levels) > depth:
                # A fit that resumes has counted this pass before.
                self.rows.passes -= 1
        return self._groupings[depth]

    def _cluster(self, state: HierarchyState, depth: int) -> Step[HierarchyState]:
        grouping = self._groups(state, depth)
        if len(state.tree.levels) == depth:
            sizes = distribute_children(self.totals[depth], grouping.weights, grouping.counts)
            state = replace(state, sizes=np.concatenate([state.sizes, sizes]))
        tree = state.tree
        above, starts = tree.levels[depth - 1], tree.starts[depth - 1]
        sizes, m = np.diff(starts), len(above)
        first = int(np.searchsorted(starts, len(tree.leaves), side="right")) - 1
        batch = range(first, min(first + max(_BATCH, -(-m // _STEPS)), m))
        seeds = np.random.SeedSequence(self.seed).generate_state(len(state.sizes))[-m:]
        # A parent without rows is its own child.
        tasks = [
            ParentTask(node, int(sizes[node]), int(seeds[node]))
            for node in batch
            if grouping.counts[node] > 0
        ]
        results = self._fit_parents(grouping, tasks)
        children = {
            task.parent: new_nodes for task, (new_nodes, _) in zip(tasks, results, strict=True)
        }
        new_nodes = [
            children.get(node, above[node : node + 1].astype(np.float32)) for node in batch
        ]
        return Step(
            replace(state, nodes=np.concatenate([state.nodes, *new_nodes])),
            objective=float(sum(inertia for _, inertia in results)),
            center_shift=0.0,
            finished=False,
        )

    def _fit_parents(
        self, grouping: Grouping, tasks: Sequence[ParentTask]
    ) -> list[tuple[NDArray[np.float32], float]]:
        return map_independent(self.X, "parts", _fit_children, (self.model, grouping), tasks)

    def _refine(self, state: HierarchyState) -> Step[HierarchyState]:
        tree = state.tree
        record = np.dtype(
            [("leaf", "i8"), ("weight", "f8"), ("sum", "f8", (tree.leaves.shape[1],))]
        )
        with Spill(self.spill.base) as spill:
            shared = Refinement(
                self._groups(state, len(tree.levels) - 1),
                spill.store(record),
                tree,
                self.n_probe,
                self.top.metric,
                self.rows.dtype,
            )
            spans = range(len(shared.bounds) - 1)
            inertia = map_independent(self.X, "assign-leaves", Refinement.assign, shared, spans)
            means = map_independent(self.X, "mean-leaves", Refinement.mean, shared, spans)
        leaves = np.concatenate(means)
        shift = np.sqrt(((leaves.astype(np.float64) - tree.leaves) ** 2).sum())
        return Step(
            state.with_leaves(leaves, np.diff(tree.starts[-1])),
            objective=float(np.sum(inertia)),
            center_shift=float(shift),
            finished=False,
        )

    def _count_rows(self, state: HierarchyState) -> Step[HierarchyState]:
        for round_ in range(MAX_ROUNDS + 1):
            statistics = self.rows.reduce(LEAF_STATISTICS, LeafQuery(state.tree, self.n_probe))
            large = statistics.counts > (np.inf if self.max_size is None else self.max_size)
            if not large.any() or round_ == MAX_ROUNDS:
                break
            divided = self._divide(state, np.flatnonzero(large), statistics.counts, round_)
            if len(divided.nodes) == len(state.nodes):
                break
            state = divided
        inertia = float(statistics.inertia.sum())
        return Step(
            replace(state, leaf_counts=statistics.counts, leaf_inertia=inertia),
            objective=inertia,
            center_shift=0.0,
            finished=True,
        )

    def _divide(
        self, state: HierarchyState, large: Ints, counts: Floats, round_: int
    ) -> HierarchyState:
        assert self.max_size is not None
        tree = state.tree
        with Spill(self.spill.base) as spill:
            query = LeafQuery(tree, self.n_probe)
            grouping = group_leaves(self.X, self.rows, query, large, spill)
            n_children = np.minimum(
                grouping.counts, np.ceil(counts[large] / self.max_size).astype(int)
            )
            seeds = np.random.SeedSequence([self.seed, round_]).generate_state(len(large))
            tasks = [
                ParentTask(index, max(1, int(k)), int(seed))
                for index, (k, seed) in enumerate(zip(n_children, seeds, strict=True))
            ]
            results = self._fit_parents(grouping, tasks)
        # Leaves of equal rows cannot be divided.
        children = [np.unique(centers, axis=0) for centers, _ in results]
        divided = [index for index, centers in enumerate(children) if len(centers) > 1]
        if not divided:
            return state
        children = [children[index] for index in divided]
        inserted = Insertion.of(large[divided], list(map(len, children)), tree.starts[-1])
        return state.with_leaves(inserted.put(tree.leaves, children), inserted.sizes)


def _fit_children(
    shared: tuple[KMeans, Grouping], task: ParentTask
) -> tuple[NDArray[np.float32], float]:
    model, grouping = shared
    x, weight = grouping.read(task.parent)
    model = clone(model).set_params(n_clusters=task.n_children, random_state=task.seed)
    state = settled(model, Data(x, None if (weight == 1).all() else weight))
    best = best_restart(state.inertia)
    return state.centers[best].astype(np.float32), float(state.inertia[best])


def _parents_of(tree: CenterTree, n_probe: int | None, x: AnyArray) -> Ints:
    return nearest_leaf(x, tree, n_probe)[0].astype(np.int64)
