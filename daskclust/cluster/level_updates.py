"""Updates of the leaves of a fitted hierarchy: sums of new rows, division of large leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from daskclust.cluster.kmeans import KMeans
from daskclust.core.array_types import Array, Floats, Ints
from daskclust.core.engine import (
    Grouping,
    Rows,
    as_matrix,
    group_rows,
    row_record,
    working_dtype,
)
from daskclust.core.estimator.fit_loop import best_restart, settled
from daskclust.core.estimator.validation import Data
from daskclust.core.kernels.compensated import add_pairs
from daskclust.core.kernels.nearest.assign import label_sums, nearest
from daskclust.core.kernels.nearest.k_nearest import nearest_leaf
from daskclust.core.reduction import Field, Merge, Partial, Reduction, RowBlock
from daskclust.core.reduction.assign import LeafQuery
from daskclust.core.storage.shuffle_files import Spill

#: Maximum relative rounding error of the weight of a part of a leaf.
_ROUNDING = 1e-9


class LeafSums(NamedTuple):
    """Sums (m, p) and weights (m,) of the leaves that have rows, and the inertia of the rows."""

    leaves: Ints
    sums: Floats
    counts: Floats
    inertia: float


def _record(p: int) -> np.dtype[Any]:
    """Return the record type of a leaf: pairs of sums, of weight and of squared distances."""
    return np.dtype([("leaf", "i8"), ("hi", "f8", (p + 2,)), ("lo", "f8", (p + 2,))])


def _add_tables(a: Array, b: Array) -> Array:
    leaves = np.union1d(a["leaf"], b["leaf"])
    out = np.zeros(len(leaves), a.dtype)
    out["leaf"] = leaves
    for table in (a, b):
        positions = np.searchsorted(leaves, table["leaf"])
        total = add_pairs((out["hi"][positions], out["lo"][positions]), (table["hi"], table["lo"]))
        out["hi"][positions], out["lo"][positions] = total
    return out


_LEAVES = Merge("leaf sums", np.empty, _add_tables)


def _fields(state: LeafQuery) -> Mapping[str, Field]:
    return {"leaves": Field((None,), _LEAVES, _record(state.tree.leaves.shape[1]))}


def _table(x: Array, weight: Floats, labels: Array, squared: Floats) -> Array:
    # A row with NaN has no nearest leaf. Its distance is NaN, and the caller reports the row.
    leaves, index = np.unique(np.maximum(labels, 0), return_inverse=True)
    sums, counts = label_sums(x, weight, index, len(leaves))
    table = np.zeros(len(leaves), _record(x.shape[1]))
    inertia = np.bincount(index, weight * squared, len(leaves))
    table["leaf"], table["hi"] = leaves, np.column_stack([sums, counts, inertia])
    return table


def _block(rows: RowBlock, state: LeafQuery) -> Partial:
    x, weight = rows.x, rows.weight
    labels, squared = nearest_leaf(x, state.tree, state.n_probe)
    tables = [np.empty(0, _record(x.shape[1]))]
    # Chunks are summed separately, so that sums do not depend on joining chunks.
    for chunk in rows.slices():
        positions = np.arange(chunk.start, chunk.stop)
        if weight is not None:
            positions = positions[weight[chunk] > 0]
        chunk_weight = np.ones(len(positions)) if weight is None else weight[positions]
        tables.append(_table(x[positions], chunk_weight, labels[positions], squared[positions]))
    # The caller reports infinite values, so suppress NumPy's warnings.
    with np.errstate(invalid="ignore", over="ignore"):
        return {"leaves": reduce(_add_tables, tables)}


def _finalize(result: Partial, state: LeafQuery) -> LeafSums:
    table, p = result["leaves"], state.tree.leaves.shape[1]
    totals = table["hi"] + table["lo"]
    return LeafSums(table["leaf"], totals[:, :p], totals[:, p], float(totals[:, p + 1].sum()))


#: Sums of rows by nearest leaf, for the leaves that have rows.
LEAF_SUMS = Reduction("leaf-sums", _fields, _block, _finalize)


class LargeLeaf(NamedTuple):
    """Task that divides a leaf: position among the large leaves, mean, weight and seed."""

    position: int
    mean: Floats
    weight: float
    seed: int


def stored_record(X: Any, rows: Rows) -> np.dtype[Any]:
    """Return the record type of rows of X in temporary files."""
    dtype = np.dtype(X.dtype) if X.dtype.kind in "fiu" else rows.dtype
    return row_record(dtype, int(X.shape[1]))


def group_leaves(X: Any, rows: Rows, query: LeafQuery, large: Ints, spill: Spill) -> Grouping:
    """Write the rows of some leaves to temporary files, in one pass."""
    position = np.full(len(query.tree.leaves), -1, np.int64)
    position[large] = np.arange(len(large))
    store = spill.store(stored_record(X, rows))
    return group_rows(rows, store, partial(_large_leaf_of, query, position), len(large))


def _large_leaf_of(query: LeafQuery, position: Ints, x: Array) -> Ints:
    """Return the position of each row's leaf among the large leaves, -1 for other leaves."""
    return position[nearest_leaf(x, query.tree, query.n_probe)[0]]


def divide_leaf(shared: tuple[Grouping, KMeans, int], task: LargeLeaf) -> tuple[Floats, Floats]:
    """Return the centers and weights of the parts of a large leaf."""
    grouping, model, max_size = shared
    x, weight = grouping.read(task.position)
    x = as_matrix(x, working_dtype(x.dtype))
    # Weight of the leaf, relative to the weight of its new rows.
    scale = task.weight / weight.sum()
    parts, means, weights = [np.arange(len(x))], [], []
    while parts:
        part = parts.pop()
        total = scale * weight[part].sum()
        n_parts = min(len(part), int(np.ceil(total / max_size - _ROUNDING)))
        if n_parts > 1:
            part_model = clone(model).set_params(n_clusters=n_parts, random_state=task.seed)
            state = settled(part_model, Data(x[part], weight[part]))
            labels = nearest(x[part], state.centers[best_restart(state.inertia)])[0]
            distinct = np.unique(labels)
            if len(distinct) > 1:
                # The last part of the list is the next one.
                parts += [part[labels == label] for label in distinct[::-1]]
                continue
        means.append(np.average(x[part], axis=0, weights=weight[part]))
        weights.append(total)
    deviations = np.array(means) - np.average(x, axis=0, weights=weight)
    return task.mean + deviations, np.array(weights)


class Insertion(NamedTuple):
    """Numbers of the leaves after a division.

    `previous` is the previous number of each leaf, `parts` are the numbers of the parts of divided
    leaves, and `sizes` are the numbers of leaves of the parents.
    """

    previous: Ints
    parts: Ints
    sizes: Ints

    @classmethod
    def of(cls, divided: Ints, n_parts: Sequence[int], starts: Ints) -> Insertion:
        """Replace leaves by parts; `starts` are the first leaf of each parent, and the number."""
        n_leaves = np.ones(int(starts[-1]), np.int64)
        n_leaves[divided] = n_parts
        previous = np.repeat(np.arange(len(n_leaves)), n_leaves)
        parts = np.flatnonzero(np.isin(previous, divided))
        return cls(previous, parts, np.add.reduceat(n_leaves, starts[:-1]))

    def put(self, values: Array, new: Sequence[Array]) -> Array:
        """Return the values of all leaves from previous values and new values of the parts."""
        out = values[self.previous]
        out[self.parts] = np.concatenate(new)
        return out
