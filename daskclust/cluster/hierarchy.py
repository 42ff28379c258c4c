"""K-means of k-means: what is iterated, and the tasks that each see the rows of one parent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Array, Bools, Floats, Ints
from daskclust.cluster.lloyd import LloydProblem, LloydState
from daskclust.engine import (
    Grouping,
    Rows,
    Step,
    as_matrix,
    group_rows,
    map_independent,
    row_record,
)
from daskclust.estimator.fitting import DataAlone
from daskclust.estimator.spaces import Metric
from daskclust.kernels.nearest.assign import SEGMENT, label_sums, nearest
from daskclust.kernels.nearest.several import CenterTree, nearest_leaf
from daskclust.reduction.assign import LEAF_STATISTICS, LeafQuery
from daskclust.storage.grouped import GroupedRows, remove_remains, temporary_folder

__all__ = ["HierarchyProblem", "HierarchyState", "Spill", "choose_parents", "give_out"]

#: Parents whose parts are clustered between two checkpoints.
_BATCH = 64
#: Rounds in which leaves that are too large are divided.
_ROUNDS = 24


def choose_parents(n_clusters: int) -> int:
    """Return the number of parents for so many leaves: a quarter of the square root.

    A row is compared with ``m`` parents and ``k / m`` children, which is least, ``2 sqrt(k)``, for
    ``m = sqrt(k)``.  A quarter as many parents take twice the multiplications, and lose a third.

    Examples
    --------
    >>> choose_parents(2000), choose_parents(100_000)
    (11, 79)
    """
    return max(1, round(np.sqrt(n_clusters) / 4))


def give_out(total: int, mass: Floats, most: Ints) -> Ints:
    """Give out children in proportion to masses: one or more each, and at most so many.

    Their sum is ``total``, or as near to it as the bounds allow.

    Examples
    --------
    >>> give_out(6, np.array([1.0, 2.0, 9.0]), np.array([9, 9, 9]))
    array([1, 1, 4])
    >>> give_out(6, np.array([1.0, 2.0, 9.0]), np.array([1, 9, 3]))
    array([1, 2, 3])
    """
    most = np.maximum(most, 1)
    # Rounded, so that sums of weights in another order change nothing.
    wanted = np.round(total * mass / mass.sum(), 6)
    sizes = np.clip(np.floor(wanted).astype(np.int64), 1, most)
    while sizes.sum() != total:
        gap = int(total - sizes.sum())
        free = np.flatnonzero(sizes < most if gap > 0 else sizes > 1)
        if not len(free):
            break
        owed = wanted[free] - sizes[free]
        first = np.argsort(-owed if gap > 0 else owed, kind="stable")[: abs(gap)]
        sizes[free[first]] += np.sign(gap)
    return sizes


class Spill:
    """A folder for rows, made when it is first needed, and gone when all is over."""

    def __init__(self, base: Any) -> None:
        self.base = base
        self._stack = ExitStack()

    def __enter__(self) -> Spill:
        """Remove what killed fits left there: this one may need no folder of its own."""
        remove_remains(self.base)
        return self

    def __exit__(self, *error: object) -> None:
        """Remove the folders."""
        self._stack.close()

    def store(self, record: np.dtype[Any]) -> GroupedRows:
        """Return a new store in a folder of its own."""
        return GroupedRows(self._stack.enter_context(temporary_folder(self.base)), record)


@dataclass(frozen=True)
class HierarchyState:
    """A fit of two levels.

    `centers`, `inertia`, `converged`, `settled`, `n_iter`, `counts`, `before`: of the parents, see
    :class:`LloydState`. `phase` (1,), int64: 0 while parents move, then the number of what was done
    since. `sizes` (m,), int64: children of each parent; 0 before they are given out. `leaves` (k,
    p), float32: so far. `leaf_counts` (k,). `leaf_inertia`: both of the last measurement.
    """

    shapes: ClassVar[Mapping[str, str]] = {
        **{name: shape.replace("k", "m") for name, shape in LloydState.shapes.items()},
        "phase": "i one",
        "sizes": "i m",
        "leaves": "f leaves p",
        "leaf_counts": "f counted",
        "leaf_inertia": "f",
    }

    centers: Floats
    inertia: Floats
    converged: Bools
    settled: Bools
    n_iter: Ints
    counts: Floats
    before: Floats
    phase: Ints
    sizes: Ints
    leaves: NDArray[np.float32]
    leaf_counts: Floats
    leaf_inertia: float

    @property
    def top(self) -> LloydState:
        """The parents."""
        return LloydState(**{name: getattr(self, name) for name in LloydState.shapes})

    def with_top(self, top: LloydState, phase: int) -> HierarchyState:
        """Return the state with other parents."""
        changed = {name: getattr(top, name) for name in LloydState.shapes}
        return replace(self, **changed, phase=np.array([phase]))

    @property
    def tree(self) -> CenterTree:
        """Both levels."""
        starts = np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)
        return CenterTree(self.centers[0], self.leaves, starts)


class Part(NamedTuple):
    """Divides the rows of one parent."""

    parent: int
    n_children: int
    seed: int


class Fitter:
    """How the rows of a part are clustered; travels to workers.

    ``fit(x, weight, k, seed) -> (centers, inertia)``.
    """

    def __init__(self, fit: Callable[..., tuple[Floats, float]]) -> None:
        self.fit = fit

    def __call__(self, grouping: Grouping, part: Part) -> tuple[NDArray[np.float32], float]:
        """Cluster the rows of one parent."""
        x, weight = grouping.read(part.parent)
        centers, inertia = self.fit(x, weight, part.n_children, part.seed)
        return centers.astype(np.float32), inertia


@dataclass(frozen=True)
class _Refinement:
    """One pass of means: what tasks share."""

    grouping: Grouping
    sums: GroupedRows
    tree: CenterTree
    n_probe: int | None
    metric: Metric
    dtype: np.dtype[Any]

    def assign(self, parent: int) -> float:
        """Sum the rows of one parent by the leaves they are nearest to; return their inertia."""
        x, weight = self.grouping.read(parent)
        if not len(x):
            self.sums.write(parent, np.empty(0, np.int64), np.empty(0, self.sums.dtype))
            return 0.0
        labels = np.empty(len(x), np.int64)
        inertia = 0.0
        tiles = [slice(low, low + SEGMENT) for low in range(0, len(x), SEGMENT)]
        for tile in tiles:
            z = self.metric(as_matrix(x[tile], self.dtype))
            labels[tile], squared = nearest_leaf(z, self.tree, self.n_probe)
            inertia += float(weight[tile] @ squared)
        leaves, places = np.unique(labels, return_inverse=True)
        records = np.zeros(len(leaves), self.sums.dtype)
        records["leaf"] = leaves
        for tile in tiles:
            z = self.metric(as_matrix(x[tile], self.dtype))
            sums, weights = label_sums(z, weight[tile], places[tile], len(leaves))
            records["sum"] += sums
            records["weight"] += weights
        parents = np.searchsorted(self.tree.starts, leaves, side="right") - 1
        self.sums.write(parent, parents, records)
        return inertia

    def mean(self, parent: int) -> NDArray[np.float32]:
        """Return the children of one parent, each the mean of all its rows."""
        first, last = (int(at) for at in self.tree.starts[parent : parent + 2])
        centers = self.tree.leaves[first:last].astype(np.float64)
        records = self.sums.read(range(len(self.tree.parents)), parent)
        sums, weights = np.zeros_like(centers), np.zeros(len(centers))
        # In the order of the parts: the sums are the same in any order of writing.
        np.add.at(sums, records["leaf"] - first, records["sum"])
        np.add.at(weights, records["leaf"] - first, records["weight"])
        filled = weights > 0
        centers[filled] = self.metric.project(sums[filled] / weights[filled, None])
        return centers.astype(np.float32)


def _assigned(shared: _Refinement, parent: int) -> float:
    return shared.assign(parent)


def _mean(shared: _Refinement, parent: int) -> NDArray[np.float32]:
    return shared.mean(parent)


def _fitted(shared: tuple[Fitter, Grouping], part: Part) -> tuple[NDArray[np.float32], float]:
    fitter, grouping = shared
    return fitter(grouping, part)


def _parents_of(centers: Floats, x: Array) -> Ints:
    return nearest(x, centers)[0].astype(np.int64)


def _crowded(tree: CenterTree, n_probe: int | None, places: Ints, x: Array) -> Ints:
    """Return the place of each row's leaf among those that are divided, -1 for others."""
    return places[nearest_leaf(x, tree, n_probe)[0]]


@dataclass(frozen=True)
class HierarchyProblem(DataAlone):
    """K-means of k-means.

    `X`: says where tasks run. `top`: that of the parents; its rows are in the metric's space.
    `most`: rows of a leaf at most.
    """

    kind: ClassVar[type[HierarchyState]] = HierarchyState

    X: Any
    top: LloydProblem
    n_leaves: int
    n_probe: int | None
    refine: int
    most: int | None
    fitter: Fitter
    spill: Spill
    seed: int
    _held: dict[str, Grouping] = field(default_factory=dict)

    @property
    def rows(self) -> Rows:
        """The rows, in the metric's space."""
        return self.top.rows

    @property
    def n_batches(self) -> int:
        """Steps in which parts are clustered."""
        return -(-self.n_leaves // _BATCH)

    @property
    def max_iter(self) -> int:
        """Steps at most."""
        return self.top.max_iter + self.n_batches + self.refine + 2

    @property
    def sizes(self) -> Mapping[str, int]:
        """Columns of the rows in the metric's space."""
        return {**self.top.sizes, "one": 1}

    def begin(self) -> HierarchyState:
        """Find the start of the parents."""
        top = self.top.begin()
        _, m, p = top.centers.shape
        state = HierarchyState(
            **{name: getattr(top, name) for name in LloydState.shapes},
            phase=np.zeros(1, np.int64),
            sizes=np.zeros(m, np.int64),
            leaves=np.empty((0, p), np.float32),
            leaf_counts=np.empty(0),
            leaf_inertia=np.inf,
        )
        return state

    def step(self, state: HierarchyState) -> Step[HierarchyState]:
        """Move the parents; then cluster some parts, refine all leaves, or measure them."""
        phase = int(state.phase[0])
        if phase == 0:
            step = self.top.step(state.top)
            over = step.finished or int(step.state.n_iter[0]) >= self.top.max_iter
            return Step(
                state.with_top(step.state, int(over)), step.objective, step.center_shift, False
            )
        done = replace(state, phase=state.phase + 1)
        if not state.sizes.any() or len(state.leaves) < state.sizes.sum():
            return self._cluster(replace(done, phase=state.phase))
        if phase <= self.refine:
            return self._refine(done)
        return self._measure(done)

    def _groups(self, state: HierarchyState) -> Grouping:
        """Return the rows by their parents, put there when they are first wanted."""
        if "rows" not in self._held:
            stored = np.dtype(self.X.dtype) if self.X.dtype.kind in "fiu" else self.rows.dtype
            store = self.spill.store(row_record(stored, int(self.X.shape[1])))
            centers = state.centers[0]
            groups_of = partial(_parents_of, centers)
            self._held["rows"] = group_rows(self.rows, store, groups_of, len(centers))
            if state.sizes.any():
                # The process before has counted this pass.
                self.rows.passes -= 1
        return self._held["rows"]

    def _cluster(self, state: HierarchyState) -> Step[HierarchyState]:
        grouping = self._groups(state)
        if not state.sizes.any():
            sizes = give_out(self.n_leaves, grouping.weights, grouping.counts)
            state = replace(state, sizes=sizes)
        ends = np.cumsum(state.sizes)
        first = int(np.searchsorted(ends, len(state.leaves), side="right"))
        batch = range(first, min(first + _BATCH, len(ends)))
        seeds = np.random.SeedSequence(self.seed).generate_state(len(ends))
        # A parent without rows is its own child.
        parts = [
            Part(m, int(state.sizes[m]), int(seeds[m])) for m in batch if grouping.counts[m] > 0
        ]
        found = dict(
            zip([part.parent for part in parts], self._fit_parts(grouping, parts), strict=True)
        )
        own = [
            found[m][0] if m in found else state.centers[0][m : m + 1].astype(np.float32)
            for m in batch
        ]
        return Step(
            replace(state, leaves=np.concatenate([state.leaves, *own])),
            objective=float(sum(inertia for _, inertia in found.values())),
            center_shift=0.0,
            finished=False,
        )

    def _fit_parts(
        self, grouping: Grouping, parts: Sequence[Part]
    ) -> list[tuple[NDArray[np.float32], float]]:
        return map_independent(self.X, "parts", _fitted, (self.fitter, grouping), parts)

    def _refine(self, state: HierarchyState) -> Step[HierarchyState]:
        tree = state.tree
        record = np.dtype(
            [("leaf", "i8"), ("weight", "f8"), ("sum", "f8", (tree.leaves.shape[1],))]
        )
        with Spill(self.spill.base) as spill:
            shared = _Refinement(
                self._groups(state),
                spill.store(record),
                tree,
                self.n_probe,
                self.top.metric,
                self.rows.dtype,
            )
            parents = range(len(tree.parents))
            inertia = map_independent(self.X, "assign-leaves", _assigned, shared, parents)
            means = map_independent(self.X, "mean-leaves", _mean, shared, parents)
        leaves = np.concatenate(means)
        shift = np.sqrt(((leaves.astype(np.float64) - tree.leaves) ** 2).sum())
        return Step(
            replace(state, leaves=leaves),
            objective=float(np.sum(inertia)),
            center_shift=float(shift),
            finished=False,
        )

    def _measure(self, state: HierarchyState) -> Step[HierarchyState]:
        """Count the rows of the leaves, and divide those that are too large."""
        for round_ in range(_ROUNDS + 1):
            found = self.rows.reduce(LEAF_STATISTICS, LeafQuery(state.tree, self.n_probe))
            large = found.counts > (np.inf if self.most is None else self.most)
            if not large.any() or round_ == _ROUNDS:
                break
            divided = self._divide(state, np.flatnonzero(large), found.counts, round_)
            if len(divided.leaves) == len(state.leaves):
                break
            state = divided
        inertia = float(found.inertia.sum())
        return Step(
            replace(state, leaf_counts=found.counts, leaf_inertia=inertia),
            objective=inertia,
            center_shift=0.0,
            finished=True,
        )

    def _divide(
        self, state: HierarchyState, large: Ints, counts: Floats, round_: int
    ) -> HierarchyState:
        """Cluster the rows of leaves that have too many, each by itself."""
        assert self.most is not None
        tree = state.tree
        places = np.full(len(tree.leaves), -1, np.int64)
        places[large] = np.arange(len(large))
        with Spill(self.spill.base) as spill:
            store = spill.store(self._groups(state).store.dtype)
            groups_of = partial(_crowded, tree, self.n_probe, places)
            grouping = group_rows(self.rows, store, groups_of, len(large))
            wanted = np.minimum(grouping.counts, np.ceil(counts[large] / self.most).astype(int))
            seeds = np.random.SeedSequence([self.seed, round_]).generate_state(len(large))
            parts = [
                Part(at, max(1, int(k)), int(seed))
                for at, (k, seed) in enumerate(zip(wanted, seeds, strict=True))
            ]
            found = self._fit_parts(grouping, parts)
        # Rows that are all the same cannot be divided.
        children = [np.unique(centers, axis=0) for centers, _ in found]
        parents = np.searchsorted(tree.starts, large, side="right") - 1
        pieces: list[NDArray[np.float32]] = []
        sizes, done = state.sizes.copy(), 0
        for leaf, parent, own in zip(large.tolist(), parents.tolist(), children, strict=True):
            if len(own) < 2:
                continue
            pieces += [tree.leaves[done:leaf], own]
            sizes[parent] += len(own) - 1
            done = leaf + 1
        return replace(state, leaves=np.concatenate([*pieces, tree.leaves[done:]]), sizes=sizes)
