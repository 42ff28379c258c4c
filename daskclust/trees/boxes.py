"""Rows sorted into boxes of space, clusters of each box, and clusters joined across boxes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from daskclust._types import Array, Bools, Floats, Ints
from daskclust.engine import Rows, Step, map_independent
from daskclust.kernels.density_cells import BoxTree, cluster_box, grow_boxes
from daskclust.reduction.contract import Field, Partial, Reduction, RowBlock
from daskclust.storage.grouped import GroupedRows, TemporaryFolder

#: Rows of one box, at most, its margin included: some 2.5 GB in one task.
_MOST_ROWS = 2**24
#: Cluster of a row within its box, and whether it is a core row.
_NAMED = np.dtype([("row", np.int64), ("cluster", np.int32), ("core", np.bool_)])


# Sorting


@dataclass(frozen=True)
class Sharing:
    """How rows are shared out among boxes; travels to the workers.

    Parameters
    ----------
    margin : float
        Around a box.
    """

    tree: BoxTree
    margin: float
    store: GroupedRows


def _share_fields(state: Sharing) -> Mapping[str, Field]:
    return {"counts": Field((len(state.tree),), "count", np.int64)}


def _share_block(rows: RowBlock, state: Sharing) -> Partial:
    counts = np.zeros(len(state.tree), np.int64)
    for (start, _), run in zip(rows.runs, rows.slices(), strict=True):
        x = rows.x[run]
        places, boxes = state.tree.share(x, state.margin)
        records = np.empty(len(places), state.store.dtype)
        records["row"], records["x"] = places + start, x[places]
        if rows.weight is not None and "weight" in (state.store.dtype.names or ()):
            records["weight"] = rows.weight[run][places]
        if len(x):
            state.store.write(start, boxes, records)
        counts += np.bincount(boxes, minlength=len(counts))
    return {"counts": counts}


def _share_result(partial: Partial, state: Sharing) -> Ints:
    return np.asarray(partial["counts"])


#: Writes each row to the boxes that it is in or near, one part a chunk; returns (boxes,) counts.
SHARE_OUT = Reduction("share-out", _share_fields, _share_block, _share_result)


# Clustering


@dataclass(frozen=True)
class _BoxTask:
    """Common to the clustering of all boxes; travels to the workers."""

    tree: BoxTree
    rows: GroupedRows
    named: GroupedRows
    starts: Ints
    origin: Floats
    eps: float
    min_samples: float


class _BoxResult(NamedTuple):
    """The part of a box's clusters that the client joins."""

    founders: Ints
    cells: Ints
    owners: Ints


def _cluster(task: _BoxTask, box: int) -> _BoxResult:
    found = task.rows.read(task.starts.tolist(), box)
    p = found["x"].shape[1]
    low, high = (faces[box] for faces in task.tree.faces(p))
    weight = found["weight"] if "weight" in (found.dtype.names or ()) else None
    clusters = cluster_box(
        found["x"], found["row"], weight, low, high, task.origin, task.eps, task.min_samples
    )
    records = np.empty(len(clusters.rows), _NAMED)
    records["row"] = found["row"][clusters.rows]
    records["cluster"], records["core"] = clusters.clusters, clusters.core
    parts = np.searchsorted(task.starts, records["row"], side="right") - 1
    task.named.write(box, task.starts[parts], records)
    return _BoxResult(clusters.founders, clusters.cells, clusters.owners)


def _joined(results: list[_BoxResult]) -> Ints:
    """Return the number of each box's clusters, by the first core row of what they are part of."""
    sizes = [len(result.founders) for result in results]
    first = np.cumsum([0, *sizes])
    n = int(first[-1])
    if not n:
        return np.empty(0, np.int64)
    cells = np.concatenate([result.cells for result in results])
    nodes = np.concatenate([r.owners + at for r, at in zip(results, first, strict=False)])
    found, cell = np.unique(cells, axis=0, return_inverse=True)
    size = n + len(found)
    edges = coo_array((np.ones(len(nodes)), (nodes, n + cell.ravel())), shape=(size, size))
    _, parts = connected_components(edges, directed=False)
    least = np.full(size, np.iinfo(np.int64).max)
    np.minimum.at(least, parts[:n], np.concatenate([result.founders for result in results]))
    rank = np.empty(size, np.int64)
    rank[np.argsort(least, kind="stable")] = np.arange(size)
    return np.asarray(rank[parts[:n]])


@dataclass(frozen=True)
class BoxesState:
    """State of a fit; arrays are there from the step on that makes them.

    Attributes
    ----------
    axis, at, left, right
        Of :class:`~daskclust.kernels.density_cells.BoxTree`.
    starts : ndarray of shape (c,), int64, optional
        First row of each chunk of sorted rows.
    first : ndarray of shape (boxes,), int64, optional
        Number of clusters in the boxes before each.
    numbers : ndarray of shape (k,), int64, optional
        Cluster of the data of each cluster of a box.
    """

    shapes: ClassVar[Mapping[str, str]] = {
        "axis": "i t",
        "at": "f t",
        "left": "i t",
        "right": "i t",
        "starts": "? i c",
        "first": "? i boxes",
        "numbers": "? i k",
    }

    axis: Ints
    at: Floats
    left: Ints
    right: Ints
    starts: Ints | None = None
    first: Ints | None = None
    numbers: Ints | None = None

    @property
    def tree(self) -> BoxTree:
        """The boxes."""
        return BoxTree(self.axis, self.at, self.left, self.right)


@dataclass(frozen=True)
class BoxesProblem:
    """The sorting of rows into boxes, and the clustering of the boxes.

    Parameters
    ----------
    X : ndarray or dask.array.Array
        Where the tasks run follows from it.
    sample : ndarray of shape (s, p), float64
        Rows by which space is cut.
    rows_a_box : float
        Rows of the sample in a box, at most.
    origin : ndarray of shape (p,), float64
    record : numpy.dtype
        Of a sorted row: ``row``, ``x`` and, where there are any, ``weight``.
    """

    kind: ClassVar[type[BoxesState]] = BoxesState
    max_iter: ClassVar[int] = 2

    X: Any
    rows: Rows
    sample: Floats
    rows_a_box: float
    origin: Floats
    eps: float
    min_samples: float
    record: np.dtype[Any]
    folder: TemporaryFolder

    @property
    def sizes(self) -> Mapping[str, int]:
        """Columns of the rows, which a metric may have changed."""
        return {"p": self.rows.n_features}

    def identity(self) -> Mapping[str, Any]:
        """Return nothing: data and parameters are all."""
        return {}

    def begin(self) -> BoxesState:
        """Cut space."""
        tree = grow_boxes(self.sample, self.rows_a_box, 4.0 * self.eps)
        return BoxesState(tree.axis, tree.at, tree.left, tree.right)

    @property
    def _sorted(self) -> GroupedRows:
        return GroupedRows(self.folder.make("rows"), self.record)

    def step(self, state: BoxesState) -> Step[BoxesState]:
        """Sort the rows, or cluster the boxes of sorted rows."""
        if state.starts is None:
            state, fullest = self._sort(state)
            return Step(state, objective=float(fullest), center_shift=0.0, finished=False)
        if not self.folder.has("rows"):
            state, _ = self._sort(state)  # of a fit that went on without its folder
        state = self._cluster(state)
        n_clusters = 0 if state.numbers is None else int(state.numbers.max(initial=-1)) + 1
        return Step(state, objective=float(n_clusters), center_shift=0.0, finished=True)

    def _sort(self, state: BoxesState) -> tuple[BoxesState, int]:
        margin = 2.0 * self.eps * (1.0 + 1e-8) + 16.0 * float(np.spacing(np.abs(self.sample).max()))
        self.folder.drop("rows")
        counts = self.rows.reduce(SHARE_OUT, Sharing(state.tree, margin, self._sorted))
        fullest = int(counts.max())
        if fullest > _MOST_ROWS:
            raise ValueError(
                f"{fullest} of {self.rows.n_rows} rows lie in one box of some eps={self.eps:g}; "
                f"expected at most {_MOST_ROWS}, which one task can hold. Lower eps: most rows "
                "would be one cluster. Or cluster a sample of the rows."
            )
        return replace(state, starts=np.array(self._sorted.parts())), fullest

    def _cluster(self, state: BoxesState) -> BoxesState:
        assert state.starts is not None
        task = _BoxTask(
            state.tree,
            self._sorted,
            GroupedRows(self.folder.make("named"), _NAMED),
            state.starts,
            self.origin,
            self.eps,
            self.min_samples,
        )
        boxes = range(len(state.tree))
        results = map_independent(self.X, "boxes", _cluster, task, boxes)
        sizes = [len(result.founders) for result in results]
        first = np.cumsum([0, *sizes[:-1]])
        self.folder.drop("rows")
        return replace(state, first=first, numbers=_joined(results))

    def clusters(self, state: BoxesState) -> RowClusters:
        """Return the clusters of the rows of a finished fit."""
        if not self.folder.has("named"):
            state = self._cluster(self._sort(state)[0])
        assert state.starts is not None
        assert state.first is not None
        assert state.numbers is not None
        store = GroupedRows(self.folder.make("named"), _NAMED)
        return RowClusters(self.folder, store, state.starts, state.first, state.numbers)


@dataclass(frozen=True)
class RowClusters:
    """Clusters of rows, as they lie in the folder; travels to the workers.

    Parameters
    ----------
    folder : TemporaryFolder
        Is there as long as this.
    store : GroupedRows
        One part a box, one group a chunk of the rows.
    starts : ndarray of shape (c,), int64
        First rows of these chunks.
    first : ndarray of shape (boxes,), int64
    numbers : ndarray of shape (c,), int64
    """

    folder: TemporaryFolder
    store: GroupedRows
    starts: Ints
    first: Ints
    numbers: Ints

    @property
    def n_clusters(self) -> int:
        """Clusters of the data."""
        return int(self.numbers.max(initial=-1)) + 1

    def _put(self, part: int, start: int, labels: Array, core: Bools) -> None:
        """Write what is known of the rows of one part to where they belong."""
        for box, first in enumerate(self.first.tolist()):
            named = self.store.read([box], part)
            places = named["row"] - start
            here = (places >= 0) & (places < len(labels))
            places = places[here]
            numbers = self.numbers[first + named["cluster"][here]]
            # A border row is named for each cluster: it belongs to the first.
            np.minimum.at(labels, places, numbers.astype(labels.dtype))
            core[places] |= named["core"][here]

    def of_block(self, start: int, size: int) -> tuple[Array, Bools]:
        """Return labels, and which are core rows, of a run of rows."""
        labels, core = np.full(size, np.iinfo(np.int32).max, np.int32), np.zeros(size, bool)
        met = slice(*np.searchsorted(self.starts, [start, start + size - 1], side="right") - [1, 0])
        for part in self.starts[met].tolist():
            self._put(part, start, labels, core)
        labels[labels == np.iinfo(np.int32).max] = -1
        return labels, core

    def whole(self, n_rows: int) -> tuple[Array, Bools]:
        """Return labels and core rows of all rows."""
        return self.of_block(0, n_rows)
