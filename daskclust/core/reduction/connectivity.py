"""How nodes hang together, by rows that are near the same ones; and the rows around each node.

Counts of rows by pairs of their nearest nodes are sorted keys, as the data decide how many there
are.  They are whole numbers: exact, however blocks are cut and merged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Bools, Floats, Ints
from daskclust.core.kernels.compensated import sum_terms
from daskclust.core.kernels.moments import first_nonfinite
from daskclust.core.kernels.nearest.k_nearest import merge_nearest, nearest_several
from daskclust.core.kernels.pair_counts import PairCounts, count_near, merge_counts
from daskclust.core.kernels.rng import race_keys, smallest
from daskclust.core.reduction.contract import Field, Merge, Partial, Reduction, RowBlock, top_dtype
from daskclust.core.reduction.survey import RowLabels


@dataclass(frozen=True)
class ConnectivityCounts:
    """For each space, rows by pairs of their nearest nodes, and weights of labeled rows by class.

    `classes`: by their nearest prototype, (spaces, n_prototypes, n_classes).
    """

    near: tuple[PairCounts, ...]
    classes: Floats


@dataclass(frozen=True)
class Connectivity:
    """Ask for counts of rows by their `n_near` nearest nodes (k, q) in each space; by 1, for none.

    A space that follows itself, for another set of nodes, is worked out once. `labels`, of rows
    that are no nodes, are counted to the first `n_prototypes` nodes. `own` are rows (ascending)
    that are nodes themselves, and these nodes: of equal rows each is its own.  The last `n_shared`
    nodes of all sets of a space are the same.
    """

    spaces: tuple[Callable[[Array], Floats], ...]
    nodes: tuple[Floats, ...]
    n_near: int
    n_prototypes: int = 0
    labels: RowLabels | None = None
    own: tuple[Ints, Ints] | None = None
    n_shared: int = 0

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
        shared = np.empty((0, 0), np.int32), z
        first = np.empty((len(self.spaces), len(rows.x)), np.int32)
        for v, (space, nodes) in enumerate(zip(self.spaces, self.nodes, strict=True)):
            if v == 0 or space is not self.spaces[v - 1]:
                z = space(rows.x)
                shared = self._nearest(z, nodes[len(nodes) - self.n_shared :])
            size = len(nodes) - self.n_shared
            nearest = self._nearest(z, nodes[:size])
            if self.n_shared:
                nearest = merge_nearest(nearest, shared, size, self.n_near)
            indices = nearest[0]
            first[v] = indices[:, 0]
            self._place_own(first[v], rows)
            near.append(count_near(indices, rows.weight, len(nodes)))
            if self.labels is not None:
                self._count_labels(found.classes[v], rows, z, nodes)
        return ConnectivityCounts(tuple(near), found.classes), first

    def _nearest(self, z: Floats, nodes: Floats) -> tuple[NDArray[np.int32], Floats]:
        if not len(nodes):
            return np.empty((len(z), 0), np.int32), np.empty((len(z), 0))
        return nearest_several(z, nodes, min(self.n_near, len(nodes)))

    def _place_own(self, first: NDArray[np.int32], rows: RowBlock) -> None:
        """Give the rows that are nodes their own node, in place."""
        if self.own is None:
            return
        numbers, nodes = self.own
        for (start, size), at in zip(rows.runs, rows.slices(), strict=True):
            low, high = np.searchsorted(numbers, [start, start + size])
            first[at][numbers[low:high] - start] = nodes[low:high]

    def _count_labels(self, counts: Floats, rows: RowBlock, z: Floats, nodes: Floats) -> None:
        assert self.labels is not None
        for places, codes in self.labels.by_chunk(rows):
            if len(places):
                own, _ = nearest_several(z[places], nodes[: self.n_prototypes], 1)
                weight = 1.0 if rows.weight is None else rows.weight[places]
                np.add.at(counts, (own[:, 0], codes), weight)


def merge_connectivity(parts: Sequence[ConnectivityCounts]) -> ConnectivityCounts:
    near = tuple(merge_counts(space) for space in zip(*(part.near for part in parts), strict=True))
    return ConnectivityCounts(near, sum(part.classes for part in parts[1:]) + parts[0].classes)


#: Record of a pair of nodes and its weight.
PAIRS = np.dtype([("key", np.int64), ("count", np.float64)])


def packed(counts: PairCounts) -> Array:
    records = np.empty(len(counts.keys), PAIRS)
    records["key"], records["count"] = counts
    return records


def unpacked(records: Array) -> PairCounts:
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


#: Parts into which a row's doubt is divided: whole numbers of them add up exactly, whatever
#: the blocks.
PARTS = 2**20
#: Squared distances up to which two points are the same row, in spaces of variance 1: what
#: single precision leaves.
SAME = 1e-9
#: A draw of its own, for rows anywhere.
_ANYWHERE = 1


@dataclass(frozen=True)
class CellRequest:
    """Ask for the cells of `nodes` (k, q) in a space.

    Rows that are `known` (ascending), or lie on `labeled` points (l, q), are not to be found, nor
    are rows of weight 0.
    ``doubt(x)`` (n, n_doubts) in [0, 1] says first how doubtful rows are; without it all are alike.
    `n_anywhere` rows are drawn wherever they lie; places of the rows `vain` (ascending) are told.
    """

    space: Callable[[Array], Floats]
    nodes: Floats
    known: Ints
    labeled: Floats
    doubt: Callable[[Array], Floats] | None = None
    n_doubts: int = 1
    n_anywhere: int = 0
    seed: int = 0
    vain: Ints = field(default_factory=lambda: np.empty(0, np.int64))


class CellTable(NamedTuple):
    """The cells, each of the rows nearest to a node.

    `counts` (k,) are weights and `doubts` (k, d) weighted sums. `medoids` (k,) are rows nearest to
    the nodes and `drawn` (k,) rows by doubt, -1 for none; `met` (l,): labeled points that are rows;
    `n_free`: rows that may be found; `vain` (v, q): places.
    """

    counts: Floats
    doubts: Floats
    near: PairCounts
    medoids: Ints
    drawn: Ints
    anywhere: Ints
    anywhere_cells: Ints
    met: Bools
    n_free: float
    vain: Floats


_RECORD, _PLACED = top_dtype(0), top_dtype(1)


def _cell_fields(state: CellRequest) -> Mapping[str, Field]:
    k = len(state.nodes)
    return {
        # Whole numbers below 2**53: their sums are exact.
        "sums": Field((2, k, 1 + state.n_doubts)),
        "near": Field((None,), PAIR_COUNTS, PAIRS),
        "medoids": Field((k, 1), "top", _RECORD),
        "drawn": Field((k, 1), "top", _RECORD),
        "anywhere": Field((state.n_anywhere,), "top", _PLACED),
        "met": Field((len(state.labeled),), "max", np.int8),
        "free": Field((2, 1)),
        # Each row is in one block: sums of one term.
        "vain": Field((2, len(state.vain), state.nodes.shape[1])),
    }


def _first_of_cells(keys: Floats, cells: NDArray[np.int32], numbers: Ints, k: int) -> Array:
    """Record of the smallest key of each cell, ties by row number."""
    out = Field((k, 1), "top", _RECORD).identity()
    order = np.lexsort((numbers, keys, cells))
    first = order[np.diff(cells[order], prepend=-1) > 0]
    first = first[keys[first] < np.inf]
    out["key"][cells[first], 0] = keys[first]
    out["row"][cells[first], 0] = numbers[first]
    return out


def _cell_sums(cells: NDArray[np.int32], parts: Floats, weight: Floats, k: int) -> Floats:
    columns = (np.ones(len(cells)), *parts.T)
    found = [np.bincount(cells, column * weight, k) for column in columns]
    return np.column_stack(found).astype(np.float64)


def _cell_block(rows: RowBlock, state: CellRequest) -> Partial:
    row, column = first_nonfinite(rows.x)
    if row >= 0:
        number = int(rows.numbers(np.array([row]))[0])
        raise ValueError(
            f"X holds {rows.x[row, column]} at row {number}, column {column}; expected finite "
            "values. Leave such rows out."
        )
    k, n = len(state.nodes), len(rows.x)
    weight = np.ones(n) if rows.weight is None else rows.weight
    numbers = rows.numbers(np.arange(n))
    z = state.space(rows.x)
    indices, distances = nearest_several(z, state.nodes, min(2, k))
    cells = indices[:, 0]
    doubts = np.ones((n, 1)) if state.doubt is None else state.doubt(rows.x)
    parts = np.rint(doubts * PARTS)
    # Chunk by chunk, so that sums of uneven weights do not show which chunks were joined.
    sums = sum_terms([_cell_sums(cells[at], parts[at], weight[at], k) for at in rows.slices()])
    free = (weight > 0) & ~np.isin(numbers, state.known)
    met = np.zeros(len(state.labeled), np.int8)
    if len(state.labeled) and n:
        at, apart = nearest_several(z, state.labeled, 1)
        on = (apart[:, 0] <= SAME) & (weight > 0)
        met[at[on, 0]] = 1
        free &= ~on
    vain = np.zeros((2, len(state.vain), state.nodes.shape[1]))
    here = np.isin(numbers, state.vain)
    vain[0, np.searchsorted(state.vain, numbers[here])] = z[here]
    uniforms = rows.uniforms(state.seed, 0)
    doubt = parts[:, 0] / PARTS
    blank = Field((state.n_anywhere,), "top", _PLACED).identity()
    keys = np.where(free, rows.uniforms(state.seed, _ANYWHERE), np.inf)
    chosen = smallest(keys, state.n_anywhere)
    blank["key"][: len(chosen)] = keys[chosen]
    blank["row"][: len(chosen)] = numbers[chosen]
    blank["x"][: len(chosen), 0] = cells[chosen]
    return {
        "sums": sums,
        "near": packed(count_near(indices, rows.weight, k)),
        "medoids": _first_of_cells(np.where(free, distances[:, 0], np.inf), cells, numbers, k),
        "drawn": _first_of_cells(
            np.where(free, race_keys(uniforms, doubt), np.inf), cells, numbers, k
        ),
        "anywhere": blank,
        "met": met,
        "free": np.array([[float(free.sum())], [0.0]]),
        "vain": vain,
    }


def _cell_finalize(partial: Partial, state: CellRequest) -> CellTable:
    sums = partial["sums"].sum(axis=0)
    anywhere = partial["anywhere"]
    anywhere = anywhere[anywhere["row"] >= 0]
    return CellTable(
        sums[:, 0],
        sums[:, 1:] / PARTS,
        unpacked(partial["near"]),
        partial["medoids"]["row"][:, 0],
        partial["drawn"]["row"][:, 0],
        anywhere["row"].copy(),
        anywhere["x"][:, 0].astype(np.int64),
        partial["met"] > 0,
        float(partial["free"].sum()),
        partial["vain"].sum(axis=0),
    )


#: Rows around each node: weight, doubt, links to other nodes, and rows that stand for them.
CELLS = Reduction("cells", _cell_fields, _cell_block, _cell_finalize)
