"""Passes that count the rows that connect nodes, and summarize the rows around each node.

The number of connected pairs depends on the data, so counts are stored by sorted keys.  Counts are
whole numbers.  So they are exact for any chunks and any order of merging.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Bools, Floats, Ints
from daskclust.core.kernels.compensated import sum_terms
from daskclust.core.kernels.moments import first_nonfinite
from daskclust.core.kernels.nearest.k_nearest import merge_nearest, nearest_several
from daskclust.core.kernels.pair_counts import PairCounts, count_near, merge_counts
from daskclust.core.kernels.rng import race_keys, row_uniforms, smallest
from daskclust.core.reduction.contract import Field, Merge, Partial, Reduction, RowBlock, top_dtype

#: Indices of the nearest nodes of each row, and squared distances, both (n, count).
Neighbors = tuple[NDArray[np.int32], Floats]


def nearest_in_sets(
    z: Floats, prototypes: Sequence[Floats], shared: Floats, count: int
) -> Iterator[Neighbors]:
    """Yield the ``count`` nearest nodes of the rows ``z`` in each of several sets.

    The nodes of a set are its ``prototypes`` (k, q), followed by the ``shared`` nodes (m, q) of all
    sets.
    """
    of_shared = nearest_several(z, shared, min(count, len(shared))) if len(shared) else None
    for prototypes_of_set in prototypes:
        of_set = nearest_several(z, prototypes_of_set, min(count, len(prototypes_of_set)))
        if of_shared is not None:
            of_set = merge_nearest(of_set, of_shared, len(prototypes_of_set), count)
        yield of_set


#: Counts of rows by pairs of their nearest nodes, for each set.
Connections = tuple[PairCounts, ...]
#: Stream of random numbers for the rows that are counted.
_COUNTED = 2


@dataclass(frozen=True)
class Connectivity:
    """State of the pass that counts rows by pairs of their ``n_near`` nearest nodes.

    There may be several sets of ``nodes``, and ``spaces`` has the space of each set.  The last
    ``n_shared`` nodes are equal in sets of the same space; the other nodes are prototypes.
    Consecutive sets of the same space share its evaluation and the search in the shared nodes.
    ``own`` are ascending numbers of rows that are nodes, and the numbers of these nodes.
    ``fraction`` of the rows, or of small tiles of a cube, are drawn by ``seed`` and counted.
    """

    spaces: tuple[Callable[[Array], Floats], ...]
    nodes: tuple[Floats, ...]
    n_near: int
    own: tuple[Ints, Ints] | None = None
    n_shared: int = 0
    fraction: float = 1.0
    seed: int = 0

    def drawn(self, start: int, size: int) -> Bools:
        """Return a mask of the drawn rows or tiles among ``size`` ones from ``start`` on."""
        if self.fraction >= 1:
            return np.ones(size, bool)
        return row_uniforms(self.seed, _COUNTED, start, size) <= self.fraction

    def count(self, rows: RowBlock) -> tuple[Connections, NDArray[np.int32]]:
        """Count all rows of a block.  Return the counts and the nearest nodes (sets, n)."""
        near: list[PairCounts] = []
        nearest_nodes = np.empty((len(self.nodes), len(rows.x)), np.int32)
        for _, group in groupby(range(len(self.nodes)), key=lambda i: id(self.spaces[i])):
            sets = list(group)
            z = self.spaces[sets[0]](rows.x)
            prototypes = [self.nodes[i][: len(self.nodes[i]) - self.n_shared] for i in sets]
            shared = self.nodes[sets[0]][len(prototypes[0]) :]
            neighbors = nearest_in_sets(z, prototypes, shared, self.n_near)
            for i, (indices, _) in zip(sets, neighbors, strict=True):
                near.append(count_near(indices, rows.weight, len(self.nodes[i])))
                nearest_nodes[i] = indices[:, 0]
        self._place_own(nearest_nodes, rows)
        return tuple(near), nearest_nodes

    def _place_own(self, nearest_nodes: NDArray[np.int32], rows: RowBlock) -> None:
        """Assign rows that are nodes to themselves, in place, also if there are equal nodes."""
        if self.own is None:
            return
        numbers, nodes = self.own
        for (start, size), chunk in zip(rows.runs, rows.slices(), strict=True):
            low, high = np.searchsorted(numbers, [start, start + size])
            nearest_nodes[:, chunk][:, numbers[low:high] - start] = nodes[low:high]


def merge_connections(parts: Sequence[Connections]) -> Connections:
    return tuple(map(merge_counts, zip(*parts, strict=True)))


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


#: Merge of pair counts, with at most as many records as there are pairs of nodes.
PAIR_COUNTS = Merge("pair counts", np.empty, _add_pairs)


def _fields(state: Connectivity) -> Mapping[str, Field]:
    return {f"near{i}": Field((None,), PAIR_COUNTS, PAIRS) for i in range(len(state.nodes))}


def _block(rows: RowBlock, state: Connectivity) -> Partial:
    if state.fraction < 1:
        drawn = np.concatenate([state.drawn(*run) for run in rows.runs])
        weight = None if rows.weight is None else rows.weight[drawn]
        rows = RowBlock(rows.x[drawn], weight, ())
    return {f"near{i}": packed(pairs) for i, pairs in enumerate(state.count(rows)[0])}


def _finalize(partial: Partial, state: Connectivity) -> Connections:
    return tuple(unpacked(partial[f"near{i}"]) for i in range(len(state.nodes)))


#: Rows by pairs of their nearest nodes.
CONNECTIVITY = Reduction("connectivity", _fields, _block, _finalize)


#: Number of units of an uncertainty of 1.  Uncertainties are rounded to whole units, so that sums
#: are exact.
_UNITS = 2**20
#: Maximum squared distance of two points that count as the same row, in spaces of variance 1.  It
#: allows for the rounding of single precision.
SAME = 1e-9
#: Stream of random numbers for rows that are drawn from all cells.
_ANYWHERE = 1


@dataclass(frozen=True)
class CellRequest:
    """State of the pass that describes the cells of ``nodes`` (k, q) in a space.

    A row cannot be chosen in three cases: its number is in ``known`` (ascending), it equals one of
    the ``labeled`` points (l, q), or its weight is 0.

    ``uncertainty(x)`` returns columns in [0, 1], of shape (n, n_columns).  The first column is the
    uncertainty of each row; without a function it is 1 for all rows.  ``n_anywhere`` rows are drawn
    from all cells.  The pass returns the coordinates of the rows ``skipped`` (ascending numbers).
    """

    space: Callable[[Array], Floats]
    nodes: Floats
    known: Ints
    labeled: Floats
    uncertainty: Callable[[Array], Floats] | None = None
    n_columns: int = 1
    n_anywhere: int = 0
    seed: int = 0
    skipped: Ints = field(default_factory=lambda: np.empty(0, np.int64))


class CellTable(NamedTuple):
    """Description of the cells.  A cell contains the rows nearest to one node.

    ``counts`` (k,) are sums of weights, and ``uncertainties`` (k, d) weighted sums of the columns
    of ``CellRequest.uncertainty``.  ``medoids`` (k,) are the rows nearest to the nodes, and
    ``drawn`` (k,) are rows drawn by their uncertainty; -1 if no row of a cell can be chosen.
    ``anywhere`` are rows drawn from all cells.  ``is_row`` (l,) is True for labeled points that
    equal a row.  ``n_free`` is the number of rows that can be chosen, and ``skipped`` (s, q) are
    the coordinates of the skipped rows.
    """

    counts: Floats
    uncertainties: Floats
    near: PairCounts
    medoids: Ints
    drawn: Ints
    anywhere: Ints
    anywhere_cells: Ints
    is_row: Bools
    n_free: float
    skipped: Floats


_ROW, _ROW_AND_CELL = top_dtype(0), top_dtype(1)


def _cell_fields(state: CellRequest) -> Mapping[str, Field]:
    k = len(state.nodes)
    return {
        # Sums of whole numbers below 2**53 are exact.
        "sums": Field((2, k, 1 + state.n_columns)),
        "near": Field((None,), PAIR_COUNTS, PAIRS),
        "medoids": Field((k, 1), "top", _ROW),
        "drawn": Field((k, 1), "top", _ROW),
        "anywhere": Field((state.n_anywhere,), "top", _ROW_AND_CELL),
        "is_row": Field((len(state.labeled),), "max", np.int8),
        "free": Field((2, 1)),
        # Each row is in one block, so each sum has one term.
        "skipped": Field((2, len(state.skipped), state.nodes.shape[1])),
    }


def _first_of_cells(keys: Floats, cells: NDArray[np.int32], numbers: Ints, k: int) -> Array:
    """Return the record with the smallest finite key, or row number, of each cell."""
    records = Field((k, 1), "top", _ROW).identity()
    order = np.lexsort((numbers, keys, cells))
    first = order[np.diff(cells[order], prepend=-1) > 0]
    first = first[keys[first] < np.inf]
    records["key"][cells[first], 0] = keys[first]
    records["row"][cells[first], 0] = numbers[first]
    return records


def _cell_sums(cells: NDArray[np.int32], uncertainties: Floats, weight: Floats, k: int) -> Floats:
    columns = (np.ones(len(cells)), *uncertainties.T)
    sums = [np.bincount(cells, column * weight, k) for column in columns]
    return np.column_stack(sums).astype(np.float64)


def _cell_block(rows: RowBlock, state: CellRequest) -> Partial:
    row, column = first_nonfinite(rows.x)
    if row >= 0:
        number = int(rows.numbers(np.array([row]))[0])
        raise ValueError(
            f"X must contain finite values, got {rows.x[row, column]} at row {number}, column "
            f"{column}. Remove such rows."
        )
    k, n = len(state.nodes), len(rows.x)
    weight = np.ones(n) if rows.weight is None else rows.weight
    numbers = rows.numbers(np.arange(n))
    z = state.space(rows.x)
    indices, distances = nearest_several(z, state.nodes, min(2, k))
    cells = indices[:, 0]
    uncertainties = np.ones((n, 1)) if state.uncertainty is None else state.uncertainty(rows.x)
    units = np.rint(uncertainties * _UNITS)
    # Chunks are summed separately, because sums of fractional weights depend on their order.
    sums = sum_terms([_cell_sums(cells[s], units[s], weight[s], k) for s in rows.slices()])
    free = (weight > 0) & ~np.isin(numbers, state.known)
    is_row = np.zeros(len(state.labeled), np.int8)
    if len(state.labeled) and n:
        point, squared = nearest_several(z, state.labeled, 1)
        is_labeled = (squared[:, 0] <= SAME) & (weight > 0)
        is_row[point[is_labeled, 0]] = 1
        free &= ~is_labeled
    skipped = np.zeros((2, len(state.skipped), state.nodes.shape[1]))
    in_block = np.isin(numbers, state.skipped)
    skipped[0, np.searchsorted(state.skipped, numbers[in_block])] = z[in_block]
    race = race_keys(rows.uniforms(state.seed, 0), units[:, 0] / _UNITS)
    anywhere = Field((state.n_anywhere,), "top", _ROW_AND_CELL).identity()
    keys = np.where(free, rows.uniforms(state.seed, _ANYWHERE), np.inf)
    drawn = smallest(keys, state.n_anywhere)
    anywhere["key"][: len(drawn)] = keys[drawn]
    anywhere["row"][: len(drawn)] = numbers[drawn]
    anywhere["x"][: len(drawn), 0] = cells[drawn]
    return {
        "sums": sums,
        "near": packed(count_near(indices, rows.weight, k)),
        "medoids": _first_of_cells(np.where(free, distances[:, 0], np.inf), cells, numbers, k),
        "drawn": _first_of_cells(np.where(free, race, np.inf), cells, numbers, k),
        "anywhere": anywhere,
        "is_row": is_row,
        "free": np.array([[float(free.sum())], [0.0]]),
        "skipped": skipped,
    }


def _cell_finalize(partial: Partial, state: CellRequest) -> CellTable:
    sums = partial["sums"].sum(axis=0)
    anywhere = partial["anywhere"]
    anywhere = anywhere[anywhere["row"] >= 0]
    return CellTable(
        sums[:, 0],
        sums[:, 1:] / _UNITS,
        unpacked(partial["near"]),
        partial["medoids"]["row"][:, 0],
        partial["drawn"]["row"][:, 0],
        anywhere["row"].copy(),
        anywhere["x"][:, 0].astype(np.int64),
        partial["is_row"] > 0,
        float(partial["free"].sum()),
        partial["skipped"].sum(axis=0),
    )


#: For each cell: weight, uncertainty, edges to other cells, and rows to suggest.
CELLS = Reduction("cells", _cell_fields, _cell_block, _cell_finalize)
