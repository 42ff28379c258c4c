"""The assignment pass that scores only rows which the moves of the centers may have changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Floats, Ints
from daskclust.kernels.nearest.assign import (
    SEGMENT,
    BlockStatistics,
    accumulate,
    no_statistics,
)
from daskclust.kernels.nearest.bounds import (
    CellState,
    Past,
    RowState,
    Work,
    accumulate_bounded,
    no_cells,
    no_state,
)
from daskclust.reduction.assign import ASSIGN, CenterSets, ClusterStatistics
from daskclust.reduction.contract import Field, Partial, Reduction, RowBlock

__all__ = ["BOUNDED_ASSIGN", "BoundedSets", "BoundedStatistics"]

#: One segment of so many is tried, by global row number.
_TRIED = 32


@dataclass(frozen=True)
class BoundedSets:
    """Centers that are tried side by side, and where they were before.

    Parameters
    ----------
    sets : CenterSets
        Without feature weights, nothing missing.
    pasts : tuple of Past
        Of each set.
    names : tuple of int
        Of each set: the same in each pass of a fit.
    number : int
        Of this pass.
    fit : str
        Whose passes these are: what was kept for another fit is not looked at.
    trial : bool
        Whether bounds are only tried, on one segment of 32.
    measured : bool
        Whether the inertia is that of the plain pass to the last bit, for which all rows are
        read.
    """

    sets: CenterSets
    pasts: tuple[Past, ...]
    names: tuple[int, ...]
    number: int
    fit: str
    trial: bool = False
    measured: bool = True


class BoundedStatistics(NamedTuple):
    """What a bounded assignment pass returns.

    Attributes
    ----------
    clusters : ClusterStatistics
        Those of the plain pass, bit for bit; inertia only if it is measured, and else to
        rounding.
    work : ndarray of shape (r, 4), uint64
        For each set: rows that bounds were asked of, those scored against all centers,
        comparisons with eight centers, and rows that changed their cluster.
    """

    clusters: ClusterStatistics
    work: NDArray[np.uint64]


@dataclass
class _KeptSet:
    """What a block keeps of a set: its rows, and where sums are kept, these and the centers."""

    rows: RowState
    cells: CellState | None = None
    before: tuple[BlockStatistics, Floats] | None = None


class _Kept(NamedTuple):
    """What a block keeps of its newest pass: number, kind, and the state of each set."""

    number: int
    trial: bool
    sets: dict[int, _KeptSet]

    def before(self, state: BoundedSets) -> dict[int, _KeptSet]:
        """Return the states from which a pass goes on: of the pass before, for all its rows."""
        # A trial leaves most rows alone, and what was known of them is not of the last pass then.
        stale = state.trial and not self.trial
        return {} if stale or self.number != state.number - 1 else self.sets


def _fields(state: BoundedSets) -> Mapping[str, Field]:
    r = len(state.sets.centers)
    return {**ASSIGN.fields(state.sets), "work": Field((r, 4), "count", np.uint64)}


def _pieces(rows: RowBlock, ends: Ints) -> Iterator[tuple[slice, bool]]:
    """Cut segments into runs that are tried and runs that are not."""
    begins = np.concatenate([[0], ends[:-1]])
    tried = rows.numbers(begins) // SEGMENT % _TRIED == 0
    cuts = [0, *(np.flatnonzero(tried[1:] != tried[:-1]) + 1).tolist(), len(ends)]
    for low, high in pairwise(cuts):
        yield slice(low, high), bool(tried[low])


def _tried(
    rows: RowBlock, state: BoundedSets, r: int, kept: _KeptSet, work: NDArray[np.uint64]
) -> BlockStatistics:
    """Make a trial of one set."""
    centers, shift = state.sets.centers[r], state.sets.shift
    stats, ends = no_statistics(*centers.shape), rows.segments()
    for at, bounded in _pieces(rows, ends):
        begin = 0 if at.start == 0 else int(ends[at.start - 1])
        part = slice(begin, int(ends[at.stop - 1]))
        x, segments = rows.x[part], ends[at] - begin
        weight = None if rows.weight is None else rows.weight[part]
        if not bounded:
            accumulate(x, centers, weight=weight, shift=shift, segments=segments, into=stats)
            continue
        _, did = accumulate_bounded(
            x,
            centers,
            state.pasts[r],
            kept.rows.part(part),
            state.number,
            weight=weight,
            shift=shift,
            segments=segments,
            into=stats,
        )
        work += _work(len(x), did)
    return stats


def _work(n: int, did: Work) -> NDArray[np.uint64]:
    return np.array([n, did.scored, did.compared, did.changed], np.uint64)


def _one_set(
    rows: RowBlock, state: BoundedSets, r: int, kept: _KeptSet, work: NDArray[np.uint64]
) -> BlockStatistics:
    centers = state.sets.centers[r]
    if not len(rows.x):
        return no_statistics(*centers.shape)
    if state.trial:
        return _tried(rows, state, r, kept, work)
    ends = rows.segments()
    if kept.before is None:
        kept.cells = no_cells(ends, *centers.shape)
        kept.before = no_statistics(*centers.shape), centers
    stats, did = accumulate_bounded(
        rows.x,
        centers,
        state.pasts[r],
        kept.rows,
        state.number,
        weight=rows.weight,
        shift=state.sets.shift,
        segments=ends,
        cells=kept.cells,
        before=None if kept.cells is None else kept.before,
        measured=state.measured,
    )
    kept.before = stats, centers.copy()
    work += _work(len(rows.x), did)
    return stats


def _block(rows: RowBlock, state: BoundedSets, kept: _Kept | None) -> tuple[Partial, _Kept]:
    n = len(rows.x)
    known = {} if kept is None else kept.before(state)
    sets = {name: known.get(name) or _KeptSet(no_state(n)) for name in state.names}
    work = np.zeros((len(state.names), 4), np.uint64)
    parts = [_one_set(rows, state, r, sets[name], work[r]) for r, name in enumerate(state.names)]
    stats = np.stack([np.stack([s.hi for s in parts]), np.stack([s.lo for s in parts])])
    return {"stats": stats, "work": work}, _Kept(state.number, state.trial, sets)


def _finalize(partial: Partial, state: BoundedSets) -> BoundedStatistics:
    return BoundedStatistics(ASSIGN.finalize(partial, state.sets), partial["work"])


def _fit_of(state: BoundedSets) -> str:
    return state.fit


#: As ``ASSIGN``; blocks keep bounds and sums of their rows.
BOUNDED_ASSIGN = Reduction("bounded-assign", _fields, _block, _finalize, keeps=_fit_of)
