"""The rows around each node: their number, their doubt, and the one to ask."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Array, Bools, Floats, Ints
from daskclust.kernels.compensated import sum_terms
from daskclust.kernels.moments import first_nonfinite
from daskclust.kernels.nearest.several import nearest_several
from daskclust.kernels.pair_counts import PairCounts, count_near
from daskclust.kernels.rng import race_keys, smallest
from daskclust.reduction.connectivity import PAIR_COUNTS, PAIRS, packed, unpacked
from daskclust.reduction.contract import Field, Partial, Reduction, RowBlock, top_dtype

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
    """Ask for the cells of nodes.

    ``space(x) -> z``: in which rows are compared. `nodes` (k, q). `known` (m,), int64: rows that
    are not to be found, ascending. `labeled` (l, q): points; rows that lie on one are not to be
    found either. ``doubt(x) -> ndarray of shape (n, d)``: numbers of each row in [0, 1]; the first
    says how doubtful it is.  Without it all rows are alike. `n_doubts`: columns of the doubts.
    `n_anywhere`: rows that are drawn wherever they lie. `vain` (v,), int64: rows whose place is
    asked for, ascending.
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

    `counts` (k,): weight of the rows. `doubts` (k, d): weighted sums. `near`: rows by their two
    nearest nodes. `medoids` (k,), int64: row nearest to the node, -1 where there is none to be
    found. `drawn` (k,), int64: row of the cell drawn by its doubt. `anywhere` (m,), int64: rows
    drawn evenly, and the cell of each. `anywhere_cells` (m,), int64. `met` (l,), bool: which
    labeled points are rows. `n_free`: rows that may be found. `vain` (v, q): places of the rows
    that were asked for.
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


def _fields(state: CellRequest) -> Mapping[str, Field]:
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


def _sums(cells: NDArray[np.int32], parts: Floats, weight: Floats, k: int) -> Floats:
    """Weight and doubts of each cell, (k, 1 + d)."""
    columns = (np.ones(len(cells)), *parts.T)
    found = [np.bincount(cells, column * weight, k) for column in columns]
    return np.column_stack(found).astype(np.float64)


def _block(rows: RowBlock, state: CellRequest) -> Partial:
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
    sums = sum_terms([_sums(cells[at], parts[at], weight[at], k) for at in rows.slices()])
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


def _finalize(partial: Partial, state: CellRequest) -> CellTable:
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
CELLS = Reduction("cells", _fields, _block, _finalize)
