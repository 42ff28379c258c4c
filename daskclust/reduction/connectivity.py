"""How nodes hang together: a pass that counts which of them are near the same rows.

A row counts for each pair of its nearest nodes.  How many different pairs there are is
decided by the data, so counts are kept as sorted keys and not as a matrix of fixed size
(:mod:`daskclust.kernels.pair_counts`).  Counts of rows are whole numbers: exact, however
blocks are cut and in whatever order they are merged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Array, Floats
from daskclust.kernels.nearest.several import nearest_several
from daskclust.kernels.pair_counts import PairCounts, count_near, merge_counts
from daskclust.reduction.contract import Field, Merge, Partial, Reduction, RowBlock
from daskclust.reduction.survey import RowLabels


@dataclass(frozen=True)
class ConnectivityCounts:
    """Counts, for each space.

    `near`: rows by pairs of their nearest nodes. `classes` (spaces, n_prototypes, n_classes):
    weights of labeled rows by their nearest prototype.
    """

    near: tuple[PairCounts, ...]
    classes: Floats


@dataclass(frozen=True)
class Connectivity:
    """The request of a count; travels to the workers.

    `spaces`: in which rows are compared with nodes.  A space that follows itself, for another set
    of nodes, is worked out once. `nodes` (k, q): in each space. `n_near`: nearest nodes of a row
    that count as connected, 2 or more. `n_prototypes`: nodes, out of the first, to which labels are
    counted. `labels`: labeled rows that are no nodes.
    """

    spaces: tuple[Callable[[Array], Floats], ...]
    nodes: tuple[Floats, ...]
    n_near: int
    n_prototypes: int = 0
    labels: RowLabels | None = None

    def identity(self) -> ConnectivityCounts:
        n_classes = 0 if self.labels is None else self.labels.n_classes
        return ConnectivityCounts(
            tuple(merge_counts([]) for _ in self.spaces),
            np.zeros((len(self.spaces), self.n_prototypes, n_classes)),
        )

    def count(self, rows: RowBlock) -> tuple[ConnectivityCounts, NDArray[np.int32]]:
        """Count the rows of a block; also return their nearest nodes, (spaces, n)."""
        found = self.identity()
        near: list[PairCounts] = []
        z = np.empty((0, 0))
        first = np.empty((len(self.spaces), len(rows.x)), np.int32)
        for v, (space, nodes) in enumerate(zip(self.spaces, self.nodes, strict=True)):
            if v == 0 or space is not self.spaces[v - 1]:
                z = space(rows.x)
            indices, _ = nearest_several(z, nodes, min(self.n_near, len(nodes)))
            first[v] = indices[:, 0]
            near.append(count_near(indices, rows.weight, len(nodes)))
            if self.labels is not None:
                self._count_labels(found.classes[v], rows, z, nodes)
        return ConnectivityCounts(tuple(near), found.classes), first

    def _count_labels(self, counts: Floats, rows: RowBlock, z: Floats, nodes: Floats) -> None:
        assert self.labels is not None
        for places, codes in self.labels.by_chunk(rows):
            if len(places):
                own, _ = nearest_several(z[places], nodes[: self.n_prototypes], 1)
                weight = 1.0 if rows.weight is None else rows.weight[places]
                np.add.at(counts, (own[:, 0], codes), weight)


def merge_connectivity(parts: Sequence[ConnectivityCounts]) -> ConnectivityCounts:
    """Add counts; there is at least one part."""
    near = tuple(merge_counts(space) for space in zip(*(part.near for part in parts), strict=True))
    return ConnectivityCounts(near, sum(part.classes for part in parts[1:]) + parts[0].classes)


#: Record of a pair of nodes and its weight.
PAIRS = np.dtype([("key", np.int64), ("count", np.float64)])


def packed(counts: PairCounts) -> Array:
    """Return counts as records, which merge."""
    records = np.empty(len(counts.keys), PAIRS)
    records["key"], records["count"] = counts
    return records


def unpacked(records: Array) -> PairCounts:
    """Return what :func:`packed` was given."""
    return PairCounts(np.ascontiguousarray(records["key"]), np.ascontiguousarray(records["count"]))


def _add_pairs(a: Array, b: Array) -> Array:
    return packed(merge_counts([unpacked(a), unpacked(b)]))


#: At most as many records as there are pairs of nodes.
PAIR_COUNTS = Merge("pair counts", np.empty, _add_pairs)


def _fields(state: Connectivity) -> Mapping[str, Field]:
    near = {f"near{v}": Field((None,), PAIR_COUNTS, PAIRS) for v in range(len(state.spaces))}
    return {**near, "classes": Field((2, *state.identity().classes.shape))}


def _block(rows: RowBlock, state: Connectivity) -> Partial:
    counts, _ = state.count(rows)
    near = {f"near{v}": packed(pairs) for v, pairs in enumerate(counts.near)}
    return {**near, "classes": np.stack([counts.classes, np.zeros_like(counts.classes)])}


def _finalize(partial: Partial, state: Connectivity) -> ConnectivityCounts:
    near = tuple(unpacked(partial[f"near{v}"]) for v in range(len(state.spaces)))
    return ConnectivityCounts(near, partial["classes"].sum(axis=0))


#: Rows by pairs of their nearest nodes, and labeled rows by their nearest prototype.
CONNECTIVITY = Reduction("connectivity", _fields, _block, _finalize)
