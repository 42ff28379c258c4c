"""Refinement of a hierarchy: each leaf moves to the mean of its nearest rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust.cluster.level_sizes import MAX_SPANS
from daskclust.core.array_types import Ints
from daskclust.core.engine import Grouping, as_matrix
from daskclust.core.estimator.transforms import Metric
from daskclust.core.kernels.nearest.assign import SEGMENT, label_sums
from daskclust.core.kernels.nearest.k_nearest import CenterTree, nearest_leaf
from daskclust.core.storage.shuffle_files import GroupedRows


@dataclass(frozen=True)
class Refinement:
    """Data shared by the tasks of one refinement pass."""

    grouping: Grouping
    sums: GroupedRows
    tree: CenterTree
    n_probe: int | None
    metric: Metric
    dtype: np.dtype[Any]

    @property
    def bounds(self) -> Ints:
        """First parent of each task, and the number of parents."""
        m = len(self.tree.starts[-1]) - 1
        return np.linspace(0, m, min(m, MAX_SPANS) + 1).astype(np.int64)

    def assign(self, span: int) -> float:
        """Sum the rows of some parents by nearest leaf; return the inertia of these rows."""
        p = self.tree.leaves.shape[1]
        # Position of each leaf in the sums, or -1.
        position = np.full(len(self.tree.leaves), -1, np.int64)
        leaf_numbers, sums, weights = np.empty(0, np.int64), np.empty((0, p)), np.empty(0)
        inertia = 0.0
        for parent in range(*self.bounds[span : span + 2]):
            x, weight = self.grouping.read(parent)
            for start in range(0, len(x), SEGMENT):
                tile = slice(start, start + SEGMENT)
                z = self.metric(as_matrix(x[tile], self.dtype))
                labels, squared = nearest_leaf(z, self.tree, self.n_probe)
                inertia += float(weight[tile] @ squared)
                leaves, index = np.unique(labels, return_inverse=True)
                new_leaves = leaves[position[leaves] < 0]
                if len(new_leaves):
                    position[new_leaves] = len(leaf_numbers) + np.arange(len(new_leaves))
                    leaf_numbers = np.concatenate([leaf_numbers, new_leaves])
                    sums = np.concatenate([sums, np.zeros((len(new_leaves), p))])
                    weights = np.concatenate([weights, np.zeros(len(new_leaves))])
                tile_sums, tile_weights = label_sums(z, weight[tile], index, len(leaves))
                sums[position[leaves]] += tile_sums
                weights[position[leaves]] += tile_weights
        records = np.empty(len(leaf_numbers), self.sums.dtype)
        records["leaf"], records["weight"], records["sum"] = leaf_numbers, weights, sums
        starts = self.tree.starts[-1][self.bounds]
        self.sums.write(span, np.searchsorted(starts, leaf_numbers, side="right") - 1, records)
        return inertia

    def mean(self, span: int) -> NDArray[np.float32]:
        """Return the children of some parents: the mean of the rows of each child."""
        first, last = self.tree.starts[-1][self.bounds[span : span + 2]].tolist()
        centers = self.tree.leaves[first:last].astype(np.float64)
        records = self.sums.read(range(len(self.bounds) - 1), span)
        sums, weights = np.zeros_like(centers), np.zeros(len(centers))
        # Records are in the order of the spans, so sums do not depend on the order of writing.
        np.add.at(sums, records["leaf"] - first, records["sum"])
        np.add.at(weights, records["leaf"] - first, records["weight"])
        has_rows = weights > 0
        centers[has_rows] = self.metric.project(sums[has_rows] / weights[has_rows, None])
        return centers.astype(np.float32)
