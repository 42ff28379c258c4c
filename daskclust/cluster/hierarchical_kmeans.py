"""K-means of k-means, for very many clusters: tasks see the rows of one parent each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from daskclust.cluster.kmeans import KMeans
from daskclust.cluster.lloyd import LloydProblem, LloydState
from daskclust.core.array_types import Array as AnyArray
from daskclust.core.array_types import Floats, Ints
from daskclust.core.engine import (
    PART,
    Grouping,
    Rows,
    as_matrix,
    group_rows,
    map_independent,
    map_rows,
    open_rows,
    row_record,
    working_dtype,
)
from daskclust.core.estimator.base import BaseClusterer, warn_few_distinct
from daskclust.core.estimator.fit_loop import (
    DataAlone,
    FirstPass,
    OpenData,
    Step,
    best_restart,
    fit,
    row_labels,
    settled,
)
from daskclust.core.estimator.row_functions import check_block, check_squares
from daskclust.core.estimator.transforms import Metric
from daskclust.core.estimator.validation import (
    Data,
    check_choice,
    check_enough_rows,
    check_integer,
    check_real,
    check_rows,
    check_weight,
)
from daskclust.core.kernels.nearest.assign import SEGMENT, label_sums
from daskclust.core.kernels.nearest.k_nearest import CenterTree, nearest_leaf
from daskclust.core.persistence.schema import Array, Number
from daskclust.core.reduction import Survey
from daskclust.core.reduction.assign import LEAF_STATISTICS, LeafQuery
from daskclust.core.storage.shuffle_files import GroupedRows, Spill
from daskclust.core.warn import warn

#: Parents whose parts are clustered between two checkpoints at least, and steps of a level at most.
_BATCH, _STEPS = 64, 16
#: Tasks of a refinement at most: each writes for all of them.
_SPANS = 128
#: Steps of float32 that a leaf is wide at least.
_FINE = 8
#: Rounds in which leaves that are too large are divided.
_ROUNDS = 24
#: Number of empty leaves that a warning names.
_NAMED = 100


def choose_parents(n_clusters: int) -> int:
    """Return the number of parents for so many leaves: a quarter of the square root.

    A row is compared with ``m`` parents and ``k / m`` children, which is least, ``2 sqrt(k)``, for
    ``m = sqrt(k)``.  A quarter as many parents take twice the multiplications, and lose a third.

    >>> choose_parents(2000), choose_parents(100_000)
    (11, 79)
    """
    return max(1, round(np.sqrt(n_clusters) / 4))


def give_out(total: int, mass: Floats, most: Ints) -> Ints:
    """Give out children in proportion to masses: one or more each, and at most so many.

    Their sum is ``total``, or as near to it as the bounds allow.

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
        left = int(total - sizes.sum())
        free = np.flatnonzero(sizes < most if left > 0 else sizes > 1)
        if not len(free):
            break
        owed = wanted[free] - sizes[free]
        first = np.argsort(-owed if left > 0 else owed, kind="stable")[: abs(left)]
        sizes[free[first]] += np.sign(left)
    return sizes


@dataclass(frozen=True)
class HierarchyState(LloydState):
    """A fit of two or more levels; of the first what :class:`LloydState` says.

    `phase` (1,): 0 while that moves, then the number of what was done since. `sizes`: children of
    each center so far, and `nodes` (t, p): centers below the first level so far, both level after
    level. `leaf_counts` (k,), `leaf_inertia`: of the last measurement.
    """

    phase: Annotated[Ints, "i one"]
    sizes: Annotated[Ints, "i parents"]
    nodes: Annotated[NDArray[np.float32], "f4 nodes p"]
    leaf_counts: Annotated[Floats, "f counted"]
    leaf_inertia: Annotated[float, "f"]

    @property
    def top(self) -> LloydState:
        """The parents."""
        return LloydState(**{each.name: getattr(self, each.name) for each in fields(LloydState)})

    @property
    def tree(self) -> CenterTree:
        """All levels so far; the last may lack centers."""
        return CenterTree.of(self.centers[0], self.sizes, self.nodes)

    def with_leaves(self, leaves: Sequence[AnyArray], sizes: Ints) -> HierarchyState:
        """Return the state with other centers of the last level, so many of each parent."""
        tree = self.tree
        above = (self.nodes[: len(self.nodes) - len(tree.leaves)], *leaves)
        sizes = np.concatenate([self.sizes[: len(self.sizes) - len(tree.levels[-2])], sizes])
        return replace(self, nodes=np.concatenate(above), sizes=sizes)


class Part(NamedTuple):
    """Divides the rows of one parent."""

    parent: int
    n_children: int
    seed: int


@dataclass(frozen=True)
class _Refinement:
    """One pass of means: what tasks share."""

    grouping: Grouping
    sums: GroupedRows
    tree: CenterTree
    n_probe: int | None
    metric: Metric
    dtype: np.dtype[Any]

    @property
    def bounds(self) -> Ints:
        """Parents of each task: the rows of those from one bound to the next."""
        m = len(self.tree.starts[-1]) - 1
        return np.linspace(0, m, min(m, _SPANS) + 1).astype(np.int64)

    def assign(self, span: int) -> float:
        """Sum the rows of some parents by the leaves they are nearest to; return their inertia."""
        p = self.tree.leaves.shape[1]
        # Where the sums of a leaf are: only some leaves have any.
        places = np.full(len(self.tree.leaves), -1, np.int64)
        met, sums, weights = np.empty(0, np.int64), np.empty((0, p)), np.empty(0)
        inertia = 0.0
        for parent in range(*self.bounds[span : span + 2]):
            x, weight = self.grouping.read(parent)
            for low in range(0, len(x), SEGMENT):
                tile = slice(low, low + SEGMENT)
                z = self.metric(as_matrix(x[tile], self.dtype))
                labels, squared = nearest_leaf(z, self.tree, self.n_probe)
                inertia += float(weight[tile] @ squared)
                leaves, index = np.unique(labels, return_inverse=True)
                new = leaves[places[leaves] < 0]
                if len(new):
                    places[new] = len(met) + np.arange(len(new))
                    met = np.concatenate([met, new])
                    sums = np.concatenate([sums, np.zeros((len(new), p))])
                    weights = np.concatenate([weights, np.zeros(len(new))])
                more, weight_more = label_sums(z, weight[tile], index, len(leaves))
                sums[places[leaves]] += more
                weights[places[leaves]] += weight_more
        records = np.empty(len(met), self.sums.dtype)
        records["leaf"], records["weight"], records["sum"] = met, weights, sums
        starts = self.tree.starts[-1][self.bounds]
        self.sums.write(span, np.searchsorted(starts, met, side="right") - 1, records)
        return inertia

    def mean(self, span: int) -> NDArray[np.float32]:
        """Return the children of some parents, each the mean of all its rows."""
        first, last = self.tree.starts[-1][self.bounds[span : span + 2]].tolist()
        centers = self.tree.leaves[first:last].astype(np.float64)
        records = self.sums.read(range(len(self.bounds) - 1), span)
        sums, weights = np.zeros_like(centers), np.zeros(len(centers))
        # In the order of the spans: the sums are the same in any order of writing.
        np.add.at(sums, records["leaf"] - first, records["sum"])
        np.add.at(weights, records["leaf"] - first, records["weight"])
        filled = weights > 0
        centers[filled] = self.metric.project(sums[filled] / weights[filled, None])
        return centers.astype(np.float32)


def _fit_part(shared: tuple[KMeans, Grouping], part: Part) -> tuple[NDArray[np.float32], float]:
    """Cluster the rows of one parent."""
    model, grouping = shared
    x, weight = grouping.read(part.parent)
    model = clone(model).set_params(n_clusters=part.n_children, random_state=part.seed)
    state = settled(model, Data(x, None if (weight == 1).all() else weight))
    best = best_restart(state.inertia)
    return state.centers[best].astype(np.float32), float(state.inertia[best])


def _check_steps(survey: Survey, k: int) -> None:
    """Refuse rows of double precision that k leaves of single precision cannot tell apart."""
    size = np.maximum(np.abs(survey.low), np.abs(survey.high))
    column, spread = int(np.argmax(size)), float(np.sqrt(survey.variance.max()))
    # About the width of a leaf.
    width = spread * k ** (-1 / len(size))
    kind = np.finfo(np.float32)
    if 0 < width < max(_FINE * kind.eps * size[column], kind.tiny) or size[column] > kind.max:
        raise ValueError(
            f"Column {column} of X has values up to {size[column]:.3g} in size, and the standard "
            f"deviation of columns is {spread:.3g} at most: {k} leaves of float32 would be too "
            "coarse. Subtract the mean of each column, or rescale X."
        )


def _parents_of(tree: CenterTree, n_probe: int | None, x: AnyArray) -> Ints:
    return nearest_leaf(x, tree, n_probe)[0].astype(np.int64)


def _crowded(tree: CenterTree, n_probe: int | None, places: Ints, x: AnyArray) -> Ints:
    """Return the place of each row's leaf among those that are divided, -1 for others."""
    return places[nearest_leaf(x, tree, n_probe)[0]]


@dataclass(frozen=True)
class HierarchyProblem(DataAlone):
    """K-means of k-means.

    `X`: says where tasks run. `top`: that of the first level; its rows are in the metric's space.
    `totals`: centers of each level. `most`: rows of a leaf at most.
    """

    kind: ClassVar[type[HierarchyState]] = HierarchyState

    X: Any
    top: LloydProblem
    totals: tuple[int, ...]
    n_probe: int | None
    refine: int
    most: int | None
    model: KMeans
    spill: Spill
    seed: int
    _held: dict[int, Grouping] = field(default_factory=dict)

    @property
    def rows(self) -> Rows:
        """The rows, in the metric's space."""
        return self.top.rows

    @property
    def max_iter(self) -> int:
        """Steps at most: of the first level, of parts, refinements, and two more."""
        return self.top.max_iter + (_STEPS + 1) * len(self.totals) + self.refine + 2

    @property
    def sizes(self) -> Mapping[str, int]:
        """One number says what has been done."""
        return {"one": 1}

    def begin(self) -> HierarchyState:
        """Find the start of the parents."""
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
        """Move the first level; then cluster some parts, refine all leaves, or measure them."""
        phase = int(state.phase[0])
        if phase == 0:
            step = self.top.step(state.top)
            over = step.finished or int(step.state.n_iter[0]) >= self.top.max_iter
            moved = replace(state, **vars(step.state), phase=np.array([int(over)]))
            return Step(moved, step.objective, step.center_shift, False)
        tree = state.tree
        is_whole = not tree.starts or len(tree.leaves) == tree.starts[-1][-1]
        if len(tree.levels) < len(self.totals) or not is_whole:
            return self._cluster(state, len(tree.levels) - (not is_whole))
        done = replace(state, phase=state.phase + 1)
        return self._refine(done) if phase <= self.refine else self._measure(done)

    def _groups(self, state: HierarchyState, depth: int) -> Grouping:
        """Return the rows by the centers of a level, put there when they are first wanted."""
        if depth not in self._held:
            self._held.clear()
            stored = np.dtype(self.X.dtype) if self.X.dtype.kind in "fiu" else self.rows.dtype
            store = self.spill.store(row_record(stored, int(self.X.shape[1])))
            tree = state.tree
            groups_of = partial(_parents_of, tree.upto(depth), self.n_probe)
            n_groups = len(tree.levels[depth - 1])
            self._held[depth] = group_rows(self.rows, store, groups_of, n_groups)
            if len(tree.levels) > depth:
                # The process before has counted this pass.
                self.rows.passes -= 1
        return self._held[depth]

    def _cluster(self, state: HierarchyState, depth: int) -> Step[HierarchyState]:
        """Find children of some centers of a level."""
        grouping = self._groups(state, depth)
        if len(state.tree.levels) == depth:
            sizes = give_out(self.totals[depth], grouping.weights, grouping.counts)
            state = replace(state, sizes=np.concatenate([state.sizes, sizes]))
        tree = state.tree
        above, starts = tree.levels[depth - 1], tree.starts[depth - 1]
        sizes, m = np.diff(starts), len(above)
        first = int(np.searchsorted(starts, len(tree.leaves), side="right")) - 1
        batch = range(first, min(first + max(_BATCH, -(-m // _STEPS)), m))
        seeds = np.random.SeedSequence(self.seed).generate_state(len(state.sizes))[-m:]
        # A parent without rows is its own child.
        parts = [
            Part(at, int(sizes[at]), int(seeds[at])) for at in batch if grouping.counts[at] > 0
        ]
        found = self._fit_parts(grouping, parts)
        children = {part.parent: own for part, (own, _) in zip(parts, found, strict=True)}
        own = [children.get(at, above[at : at + 1].astype(np.float32)) for at in batch]
        return Step(
            replace(state, nodes=np.concatenate([state.nodes, *own])),
            objective=float(sum(inertia for _, inertia in found)),
            center_shift=0.0,
            finished=False,
        )

    def _fit_parts(
        self, grouping: Grouping, parts: Sequence[Part]
    ) -> list[tuple[NDArray[np.float32], float]]:
        return map_independent(self.X, "parts", _fit_part, (self.model, grouping), parts)

    def _refine(self, state: HierarchyState) -> Step[HierarchyState]:
        tree = state.tree
        record = np.dtype(
            [("leaf", "i8"), ("weight", "f8"), ("sum", "f8", (tree.leaves.shape[1],))]
        )
        with Spill(self.spill.base) as spill:
            shared = _Refinement(
                self._groups(state, len(tree.levels) - 1),
                spill.store(record),
                tree,
                self.n_probe,
                self.top.metric,
                self.rows.dtype,
            )
            spans = range(len(shared.bounds) - 1)
            inertia = map_independent(self.X, "assign-leaves", _Refinement.assign, shared, spans)
            means = map_independent(self.X, "mean-leaves", _Refinement.mean, shared, spans)
        leaves = np.concatenate(means)
        shift = np.sqrt(((leaves.astype(np.float64) - tree.leaves) ** 2).sum())
        return Step(
            state.with_leaves([leaves], np.diff(tree.starts[-1])),
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
            if len(divided.nodes) == len(state.nodes):
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
            store = spill.store(self._groups(state, len(tree.levels) - 1).store.dtype)
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
        parents = np.searchsorted(tree.starts[-1], large, side="right") - 1
        pieces: list[AnyArray] = []
        sizes, done = np.diff(tree.starts[-1]), 0
        for leaf, parent, own in zip(large.tolist(), parents.tolist(), children, strict=True):
            if len(own) < 2:
                continue
            pieces += [tree.leaves[done:leaf], own]
            sizes[parent] += len(own) - 1
            done = leaf + 1
        return state.with_leaves([*pieces, tree.leaves[done:]], sizes)


MetricName = Literal["euclidean", "cosine", "sam"]
#: Leaves from which an integer `n_clusters` gets a level of parents.
_TWO_LEVELS = 1000


def totals_of(n_clusters: Any) -> tuple[int, ...]:
    """Return the centers of each level that are asked for; two levels at least.

    >>> totals_of(20), totals_of(2000), totals_of((5, 20, 20))
    ((20, 20), (11, 2000), (5, 100, 2000))
    """
    if isinstance(n_clusters, tuple | list):
        totals = np.cumprod(n_clusters, dtype=object).tolist()
    else:
        k = int(n_clusters)
        totals = [k if k < _TWO_LEVELS else choose_parents(k), k]
    return tuple(map(int, totals if len(totals) > 1 else 2 * totals))


def passes_of_levels(params: Mapping[str, Any]) -> int:
    """Return the passes over all rows at most, after those of the first level.

    One for each further level, and one that counts the rows of the leaves: of leaves that are too
    large again after each division, which is a pass, too.
    """
    totals = totals_of(params["n_clusters"])
    divides = params.get("max_cluster_size") is not None
    if totals[0] == totals[-1] and not divides:
        return 0
    return len(totals) + 2 * _ROUNDS * divides


def bytes_of_levels(
    params: Mapping[str, Any], shape: tuple[int, int], dtype: np.dtype[Any], block_rows: int
) -> tuple[int, int]:
    """Return the bytes that levels put into temporary files, and those of their largest task.

    Parents are taken to have twice as many rows as on average, and rows, which are stored as
    `dtype`, to meet the leaves of `n_probe` parents.
    """
    (n, p), totals = shape, totals_of(params["n_clusters"])
    divides = params.get("max_cluster_size") is not None
    if totals[0] == totals[-1] and not divides:
        return 0, 0
    k, m = totals[-1], totals[-2]
    record, values = row_record(dtype, p).itemsize, p * dtype.itemsize
    # Records are sorted before they are written; a parent's are read, and a start copies some.
    written = 2 * block_rows * values + 2 * min(PART, block_rows * record)
    rows = min(n, -(-2 * n // totals[0]))
    parent = rows * values + max(rows * record, 8 * p * min(rows, 10 * -(-k // m)))
    # Sums of leaves, once more while they grow, beside all leaves.
    probe = m if params["n_probe"] == "all" else min(m, int(params["n_probe"]))
    met = min(k, -(-m // min(m, _SPANS)) * probe * -(-k // m))
    refined = parent + 2 * met * p * 8 if params["refine"] else 0
    sums = min(n, probe * k) * row_record(np.dtype(np.float64), p).itemsize
    spill = n * record * (1 + divides) + (sums if params["refine"] else 0)
    return spill, max(written, parent, refined) + 4 * k * p


@dataclass(frozen=True)
class LeafFunction:
    """Handles a block's rows in ``predict``; travels to workers, once."""

    tree: CenterTree
    n_probe: int | None
    metric: Metric
    dtype: np.dtype[Any]
    #: Of the columns, for messages.
    names: Any = None

    @property
    def nbytes(self) -> int:
        """Bytes of the centers."""
        return sum(int(centers.nbytes) for centers in self.tree.levels)

    def __call__(self, x: NDArray[Any], start: int) -> NDArray[Any]:
        """Leaves of the rows."""
        x = as_matrix(x, self.dtype)
        z = self.metric(x)
        labels, squared = nearest_leaf(z, self.tree, self.n_probe)
        if not np.isfinite(squared).all():
            # A value that is not finite makes such a distance: else none is looked at twice.
            check_block(x, start, missing=False, names=self.names)
            check_squares(squared, start)
        return self.metric.break_ties(z, labels)


class HierarchicalKMeans(BaseClusterer):
    """K-means of k-means: a thousand to a million clusters, of rows that fit no memory.

    The first level is :class:`KMeans`. One pass puts the rows of each of its clusters, the
    *parents*, together in temporary files; the rows of each parent are then clustered by
    themselves, one task each, to the next level: the *leaves*, or parents again.  Refinement
    passes compare each row with the leaves of its nearest parents, and move the leaves to the
    means of all their rows.

    Parameters
    ----------
    n_clusters : int or tuple of int, default=8
        Leaves k, or clusters of each level: ``(m, c, ...)`` is of m centers with c children each
        on average, and so on.  m c children are given out in proportion to the weights of the
        parents, one or more to each, and no more than it has rows.  With an integer from 1000 on
        there are two levels, with ``sqrt(k) / 4`` parents; below, and with ``(k, 1)``, it is
        ``KMeans(k)`` to the last bit.  See the notes for three levels.
    n_probe : int or "all", default=4
        Nearest parents of each level with whose children a row is compared.  ``"all"``: it is
        compared with every leaf.
    refine : int, default=1
        Refinement passes.
    metric : {"euclidean", "cosine", "sam"}, default="euclidean"
        As in :class:`KMeans`.
    max_iter : int, default=25
        Iterations of each level at most.
    tol : float, default=1e-4
        As in :class:`KMeans`.
    max_cluster_size : int, default=None
        Rows (their weight) of a leaf at most.  In the end leaves with more are divided, for
        which there may be more than k of them; rows that are all the same cannot be.
    spill : path-like or str, default=None
        Folder or URL for the rows by parents, that all workers reach under the same name.
        Default: the folder of the checkpoint, else Dask's ``temporary-directory``, else that of
        the system.  It is removed in the end, also after an error.
    random_state : int, RandomState, Generator or None, default=None
        An int gives the same result for any chunks, scheduler and number of workers.
    checkpoint : path-like, default=None
        See :class:`KMeans`: written after each iteration of the first level, each 64 parts (each
        16th of a level that has more than 1024) and each refinement.  Where a fit goes on, one
        pass puts the rows by parents again.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (k, p), float32
        Leaves; those of one parent follow one another.
    parents_ : ndarray of shape (k,), int64
        Parent of each leaf, of the level above.
    level_centers_ : list of ndarray
        Centers of each level, root first: float64, the others float32.
    labels_ : ndarray or dask.array.Array of shape (n,), int32
        Leaf of each row, see :meth:`predict`.
    counts_ : ndarray of shape (k,), float64
        Weight of the rows of each leaf (of one level see :class:`KMeans`).  A row of zeros under
        ``"cosine"`` has label 0 and weight 0, as in :class:`KMeans`.
    empty_leaves_ : ndarray, int64
        Numbers of the leaves without rows, as where X has fewer distinct rows than leaves.
    inertia_ : float
        Weighted sum of squared distances of the rows to their leaves.
    n_iter_ : int
        Iterations of the first level.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (p,)
        Where X has names.
    history_ : list of dict
        See :class:`KMeans`: records of the first level, of some parts each (``objective`` is
        their inertia), of refinements (the inertia of the rows before the leaves moved), and of
        the last measurement.

    Raises
    ------
    ValueError
        For NaN or infinity in X, fewer rows than clusters, float64 values too large, too small or
        too far from 0 beside their spread for leaves of float32, and parameters out of range.
    OSError
        The folder for the rows cannot be made, which is told before any pass, is full, or some
        workers do not reach it.
    CheckpointError
        See :class:`KMeans`.

    Warns
    -----
    ConvergenceWarning
        If some leaves are empty, or equal to others.

    See Also
    --------
    KMeans : One level, exact.

    Notes
    -----
    *Passes*: those of ``KMeans(m)``, one for each further level that writes ``n (p itemsize +
    16)`` bytes in place of those before, and one in the end.  Parts and refinements read what was
    written instead.  *Multiplications* of an iteration: ``n p m`` of the first level and ``n p k /
    m`` of the parts, in place of ``n p k``; a refinement makes ``n p (m + n_probe k / m)``.
    *Memory*: the client holds O(k p); a worker thread the rows of one parent, a block, and the
    centers.

    *Levels*: of 60 742 text vectors (p = 256, 25 iterations) two levels took as much processor time
    as one at k = 500, 0.69 times at 1000, half at 2000 and 0.40 times at 4000, and ended 2.6, .9,
    1.4 and 2.3 % above it.  Fewer parents cost more and lose less: at k = 2000, 11 and 22 ended 1.4
    and 2.7 % above one level; with ``n_probe="all"`` and five refinements .7 and 1.3 %, in 0.8 of
    its time (means of five seeds).  The more levels, the fewer multiplications: at k = 1e6 an
    iteration compares a row with 4250 centers on two levels, and with 300 where
    ``n_clusters=(100, 100, 100)``.  An integer never chooses three, since their loss adds up: ``(5,
    20, 20)`` ended 4.7 % above one level, 2.2 % with ``"all"`` and five refinements (two seeds).

    References
    ----------
    .. [1] Nister, D., Stewenius, H. (2006). Scalable recognition with a vocabulary tree. CVPR.

    Examples
    --------
    >>> import numpy as np, daskclust
    >>> X = np.array([[0.0], [1.0], [10.0], [12.0], [50.0], [55.0]], np.float16)
    >>> model = daskclust.HierarchicalKMeans((2, 2), random_state=0).fit(X)
    >>> model.parents_.tolist(), sorted(model.cluster_centers_.ravel().tolist())
    ([0, 0, 0, 1], [0.5, 10.0, 12.0, 52.5])
    """

    _saved_state: ClassVar[Mapping[str, Any]] = {
        "inertia_": Number(low=0),
        "counts_": Array("k", low=0),
        "_centers": None,
        "_above": Array("s p"),
        "_sizes": Array("s", kind="i", low=1),
        "_n_top": Number(int, low=1),
    }
    _resumes_with: ClassVar[tuple[str, ...]] = ("spill",)
    _synonyms = {"metric": {"sam": "cosine"}}  # noqa: RUF012

    def __init__(
        self,
        n_clusters: Any = 8,
        *,
        n_probe: Any = 4,
        refine: int = 1,
        metric: MetricName = "euclidean",
        max_iter: int = 25,
        tol: float = 1e-4,
        max_cluster_size: int | None = None,
        spill: Any = None,
        random_state: Any = None,
        checkpoint: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_probe = n_probe
        self.refine = refine
        self.metric = metric
        self.max_iter = max_iter
        self.tol = tol
        self.max_cluster_size = max_cluster_size
        self.spill = spill
        self.random_state = random_state
        self.checkpoint = checkpoint

    # Set by fit: centers of all levels but the leaves, in the space in which rows are compared,
    # level after level; of them, those of the first; and the children of each.
    _above: Floats
    _n_top: int
    _sizes: Ints

    def _check_parameters(self) -> None:
        levels = self.n_clusters if isinstance(self.n_clusters, tuple | list) else [self.n_clusters]
        if not levels:
            raise ValueError(
                f"n_clusters={self.n_clusters!r}; expected an integer, or clusters of each level "
                "under one of the level before on average: (1000, 100), say."
            )
        for level in levels:
            check_integer(level, "n_clusters", 1)
        if self.n_probe != "all":
            if isinstance(self.n_probe, str):
                check_choice(self.n_probe, "n_probe", ("all",))
            check_integer(self.n_probe, "n_probe", 1)
        check_integer(self.refine, "refine", 0)
        check_integer(self.max_iter, "max_iter", 1)
        check_real(self.tol, "tol", 0)
        check_choice(self.metric, "metric", get_args(MetricName))
        if self.max_cluster_size is not None:
            check_integer(self.max_cluster_size, "max_cluster_size", 1)

    @property
    def _totals(self) -> tuple[int, ...]:
        return totals_of(self.n_clusters)

    @property
    def _is_one_level(self) -> bool:
        """Whether the fit is that of the first level, and needs no rows by parents."""
        return self._totals[0] == self._totals[-1] and self.max_cluster_size is None

    @property
    def _probe(self) -> int | None:
        return None if self.n_probe == "all" else int(self.n_probe)

    def _kmeans(self, k: int, seed: Any) -> KMeans:
        return KMeans(
            k, max_iter=self.max_iter, tol=self.tol, metric=self.metric, random_state=seed
        )

    def fit(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> Self:
        """Find the clusters.

        Parameters
        ----------
        X : array-like, dask.array.Array, DataFrame or xarray.DataArray of shape (n, p)
            Rows to cluster.
        y : ignored
        sample_weight : array-like or dask.array.Array of shape (n,), optional
            Weights of the rows: an integer weight equals repetition, 0 absence.

        Returns
        -------
        self
        """
        with Spill(self._spill_base()) as spill:
            return fit(self, X, sample_weight, spill=spill)

    def _spill_base(self) -> Any:
        if self.spill is not None:
            return self.spill
        path = getattr(self.checkpoint, "path", self.checkpoint)
        return None if path is None else Path(path).absolute().parent

    def _read(self, data: Data, spill: Spill | None = None) -> Spill:
        check_enough_rows(data, self._totals[-1])
        if spill is None:
            raise TypeError(
                "HierarchicalKMeans shares no passes with other fits, as grids of "
                "daskclust.selection do. Give them KMeans, on some of the rows where there are "
                "many, or compare inertia_ of single fits."
            )
        if not self._is_one_level:
            spill.check()
        return spill

    def _first_pass(self, data: Data, read: Spill) -> FirstPass:
        return self._kmeans(self._totals[0], self.random_state)._first_pass(data, None)

    def _problem(self, data: OpenData, read: Spill) -> LloydProblem | HierarchyProblem:
        totals = self._totals
        if data.rows.dtype == np.float64:
            _check_steps(data.survey, totals[-1])
        top = self._kmeans(totals[0], None)._problem(data, None)
        if self._is_one_level:
            return top
        return HierarchyProblem(
            data.X,
            top,
            totals,
            self._probe,
            int(self.refine),
            None if self.max_cluster_size is None else int(self.max_cluster_size),
            self._kmeans(1, None),
            read,
            data.seeds[0],
        )

    def _finish(
        self,
        data: OpenData,
        problem: LloydProblem | HierarchyProblem,
        state: Any,
        history: list[dict[str, Any]],
    ) -> None:
        if isinstance(problem, LloydProblem):
            state = problem.settle(state)
            best = best_restart(state.inertia)
            self._metric = problem.metric
            self.counts_, self.inertia_ = state.counts[best], float(state.inertia[best])
            self._above = top = state.centers[best]
            self._sizes = np.ones(len(top), np.int64)
            self.cluster_centers_ = top.astype(np.float32)
        else:
            best = 0
            self._metric = problem.top.metric
            self.counts_, self.inertia_ = state.leaf_counts, float(state.leaf_inertia)
            top, *between, self.cluster_centers_ = state.tree.levels
            self._above, self._sizes = np.concatenate([top, *between]), state.sizes
        self._n_top = len(top)
        self.n_iter_ = int(state.n_iter[best])
        self.history_ = history
        distinct = len(np.unique(self.cluster_centers_, axis=0))
        warn_few_distinct(distinct, max(len(self.cluster_centers_), self._totals[-1]))
        empty = self.empty_leaves_
        if len(empty):
            more = ", ..." if len(empty) > _NAMED else ""
            warn(
                f"{len(empty)} of {len(self.counts_)} leaves are empty: "
                f"{', '.join(map(str, empty[:_NAMED].tolist()))}{more} (empty_leaves_). No row has "
                "these labels. Use fewer clusters, or leave these centers out.",
                ConvergenceWarning,
            )
        self.labels_ = row_labels(data, self._leaf_function(data.rows.dtype))

    @property
    def empty_leaves_(self) -> Ints:
        """Numbers of the leaves without rows."""
        check_is_fitted(self)
        return np.flatnonzero(self.counts_ <= 0)

    @property
    def _is_flat(self) -> bool:
        return len(self._above) == len(self.cluster_centers_) == self._n_top

    @property
    def _centers(self) -> AnyArray:  # type: ignore[override]
        """Leaves, in the space in which rows are compared."""
        return self._above if self._is_flat else self.cluster_centers_

    def _tree(self) -> CenterTree:
        top, between = np.split(self._above, [self._n_top])
        nodes = np.concatenate([between.astype(np.float32), self.cluster_centers_])
        return CenterTree.of(top, self._sizes, nodes)

    @property
    def level_centers_(self) -> list[AnyArray]:
        """Centers of each level, root first."""
        check_is_fitted(self)
        return list(self._tree().levels)

    @property
    def parents_(self) -> Ints:
        """Parent of each leaf."""
        check_is_fitted(self)
        sizes = np.diff(self._tree().starts[-1])
        return np.repeat(np.arange(len(sizes)), sizes)

    def _leaf_function(self, dtype: Any, depth: int = 0) -> LeafFunction:
        """Handle rows by the first levels, or by all."""
        tree = CenterTree((self._above[: self._n_top],), ()) if self._is_flat else self._tree()
        names = getattr(self, "feature_names_in_", None)
        centers = tree.upto(depth or len(tree.levels))
        return LeafFunction(centers, self._probe, self._metric, dtype, names)

    def predict(self, X: Any, level: int = -1) -> Any:
        """Nearest leaf of each row, among those of its nearest parents.

        Parameters
        ----------
        X : array-like or dask.array.Array of shape (n_samples, n_features)
        level : int, default=-1
            Number of the level: 0 for the first, -1 for leaves.

        Returns
        -------
        labels : ndarray or dask.array.Array of shape (n_samples,), int32
            Lazy, and chunked like X, for a Dask array: values of X are checked
            when it is computed.

        Raises
        ------
        ValueError
            For NaN and infinity, another number of features, and another level.
        """
        check_is_fitted(self)
        n_levels = len(self.level_centers_)
        if not isinstance(level, int | np.integer) or level not in range(-n_levels, n_levels):
            raise ValueError(
                f"level={level!r}; expected 0 (the first) to {n_levels - 1}, or -1 (leaves)."
            )
        X = check_rows(self, X, reset=False)
        function = self._leaf_function(working_dtype(X.dtype), level % n_levels + 1)
        return map_rows(X, function, dtype=np.int32, name="predict")

    def _inertia(self, X: Any, sample_weight: Any) -> float:
        rows = open_rows(X, check_weight(sample_weight, X)).transformed(
            None if self._metric.is_identity else self._metric
        )
        function = self._leaf_function(rows.dtype)
        found = rows.reduce(LEAF_STATISTICS, LeafQuery(function.tree, function.n_probe))
        if not np.isfinite(found.inertia.sum()):
            # Says where.
            self._assigned(X, sample_weight)
        return float(found.inertia.sum())

    def _check_sizes(self) -> None:
        k, bound = len(self.cluster_centers_), self.max_cluster_size
        levels, left = [self._n_top], self._sizes
        while len(left):
            m = int(left[: levels[-1]].sum())
            left = left[levels[-1] :]
            levels.append(m)
        if levels[-1] != k or sum(levels[:-1]) != len(self._above):
            raise ValueError("the numbers of children are not those of the centers of any levels")
        totals = self._totals
        # One level has the same again below.
        totals = totals if totals[0] < totals[-1] or bound is not None else totals[:2]
        # Rows of no weight may leave fewer centers, a bound of their sizes more leaves.
        most = (*totals[:-1], max(totals[-1], k if bound is not None else 0))
        if [levels[0], len(levels)] != [totals[0], len(totals)] or (np.array(levels) > most).any():
            raise ValueError(
                f"n_clusters={self.n_clusters!r} are {', '.join(map(str, totals))} centers of the "
                f"levels, but the fit has {', '.join(map(str, levels))}"
            )
        # Too few rows for the leaves: each is one of them, but for rounding.
        squares = np.linalg.norm(self.cluster_centers_.astype(np.float64), axis=1) ** 2
        rounding = 64 * np.finfo(np.float32).eps ** 2 * float(self.counts_ @ squares)
        if k < totals[-1] and self.inertia_ > rounding:
            raise ValueError(
                f"n_clusters={self.n_clusters!r} are {totals[-1]} leaves, but the fit has {k}; "
                f"they are not the rows, whose inertia is {self.inertia_:.6g}"
            )
