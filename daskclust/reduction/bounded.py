"""The assignment pass that scores only rows which the moves of the centers may have changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust.kernels.nearest.assign import (
    SEGMENT,
    BlockStatistics,
    accumulate,
    no_statistics,
)
from daskclust.kernels.nearest.bounds import Past, RowState, accumulate_bounded, no_state
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
    """

    sets: CenterSets
    pasts: tuple[Past, ...]
    names: tuple[int, ...]
    number: int
    fit: str
    trial: bool = False


class BoundedStatistics(NamedTuple):
    """What a bounded assignment pass returns.

    Attributes
    ----------
    clusters : ClusterStatistics
        Those of the plain pass, bit for bit.
    work : ndarray of shape (r, 3), uint64
        For each set: rows that bounds were asked of, those scored against all centers, and
        distances to single centers.
    """

    clusters: ClusterStatistics
    work: NDArray[np.uint64]


class _Kept(NamedTuple):
    """What a block keeps of its newest pass: number, kind, and the state of the rows by set."""

    number: int
    trial: bool
    rows: dict[int, RowState]

    def before(self, state: BoundedSets) -> dict[int, RowState]:
        """Return the states from which a pass goes on: of the pass before, for all its rows."""
        # A trial leaves most rows alone, and what was known of them is not of the last pass then.
        stale = state.trial and not self.trial
        return {} if stale or self.number != state.number - 1 else self.rows


def _fields(state: BoundedSets) -> Mapping[str, Field]:
    r = len(state.sets.centers)
    return {**ASSIGN.fields(state.sets), "work": Field((r, 3), "count", np.uint64)}


def _pieces(rows: RowBlock, ends: NDArray[np.int64], trial: bool) -> Iterator[tuple[slice, bool]]:
    """Cut segments into runs that are asked of bounds and runs that are not."""
    if not trial:
        yield slice(0, len(ends)), True
        return
    begins = np.concatenate([[0], ends[:-1]])
    tried = rows.numbers(begins) // SEGMENT % _TRIED == 0
    cuts = [0, *(np.flatnonzero(tried[1:] != tried[:-1]) + 1).tolist(), len(ends)]
    for low, high in pairwise(cuts):
        yield slice(low, high), bool(tried[low])


def _one_set(
    rows: RowBlock, state: BoundedSets, r: int, kept: RowState, work: NDArray[np.uint64]
) -> BlockStatistics:
    centers, shift = state.sets.centers[r], state.sets.shift
    stats = no_statistics(*centers.shape)
    if not len(rows.x):
        return stats
    ends = rows.segments()
    for at, bounded in _pieces(rows, ends, state.trial):
        begin = 0 if at.start == 0 else int(ends[at.start - 1])
        part = slice(begin, int(ends[at.stop - 1]))
        x, segments = rows.x[part], ends[at] - begin
        weight = None if rows.weight is None else rows.weight[part]
        if not bounded:
            accumulate(x, centers, weight=weight, shift=shift, segments=segments, into=stats)
            continue
        _, scored, measured = accumulate_bounded(
            x,
            centers,
            state.pasts[r],
            kept.part(part),
            state.number,
            weight=weight,
            shift=shift,
            segments=segments,
            into=stats,
        )
        work += np.array([len(x), scored, measured], np.uint64)
    return stats


def _block(rows: RowBlock, state: BoundedSets, kept: _Kept | None) -> tuple[Partial, _Kept]:
    n = len(rows.x)
    known = {} if kept is None else kept.before(state)
    states = {name: known.get(name) or no_state(n) for name in state.names}
    work = np.zeros((len(state.names), 3), np.uint64)
    parts = [_one_set(rows, state, r, states[name], work[r]) for r, name in enumerate(state.names)]
    stats = np.stack([np.stack([s.hi for s in parts]), np.stack([s.lo for s in parts])])
    return {"stats": stats, "work": work}, _Kept(state.number, state.trial, states)


def _finalize(partial: Partial, state: BoundedSets) -> BoundedStatistics:
    return BoundedStatistics(ASSIGN.finalize(partial, state.sets), partial["work"])


def _fit_of(state: BoundedSets) -> str:
    return state.fit


#: As ``ASSIGN``, bit for bit; blocks keep bounds of their rows.
BOUNDED_ASSIGN = Reduction("bounded-assign", _fields, _block, _finalize, keeps=_fit_of)
