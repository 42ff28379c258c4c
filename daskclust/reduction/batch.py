"""Many reductions in one pass: each block is read once and seen through many views."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskclust.kernels.nearest.assign import SEGMENT
from daskclust.reduction.contract import Field, Partial, Reduction, RowBlock
from daskclust.reduction.views import View

__all__ = ["BATCH", "Request"]

#: Rows for which views are made at a time: what a view may take of memory.
_PORTION = 8 * SEGMENT


@dataclass(frozen=True)
class Request:
    """One of the reductions that share a pass.

    Parameters
    ----------
    reduction : Reduction
        Without carry.
    views : tuple of View
        Applied one after another.
    """

    reduction: Reduction
    state: Any
    views: tuple[View, ...] = ()

    @property
    def seen(self) -> Hashable:
        """Equal for requests that see the same rows."""
        return tuple(view.key for view in self.views)


def _fields(state: tuple[Request, ...]) -> Mapping[str, Field]:
    return {
        f"{i}.{name}": field
        for i, request in enumerate(state)
        for name, field in request.reduction.fields(request.state).items()
    }


def _portions(rows: RowBlock) -> Iterator[RowBlock]:
    """Cut a block at multiples of ``SEGMENT`` global rows, where sums do not show it."""
    if len(rows.x) <= _PORTION:
        yield rows
        return
    ends = rows.segments()
    begin = 0
    for at, end in enumerate(ends.tolist()):
        following = ends[at + 1] if at + 1 < len(ends) else np.inf
        if following - begin > _PORTION:
            yield _part(rows, begin, end)
            begin = end


def _part(rows: RowBlock, begin: int, end: int) -> RowBlock:
    runs, offset = [], 0
    for start, size in rows.runs:
        low, high = max(begin - offset, 0), min(end - offset, size)
        if low < high:
            runs.append((start + low, high - low))
        offset += size
    weight = None if rows.weight is None else rows.weight[begin:end]
    return RowBlock(rows.x[begin:end], weight, tuple(runs))


def _own(partial: Partial, i: int, request: Request) -> Partial:
    names = request.reduction.fields(request.state)
    return {name: partial[f"{i}.{name}"] for name in names}


def _block(rows: RowBlock, state: tuple[Request, ...], before: Partial) -> Partial:
    alike: dict[Hashable, list[int]] = {}
    for i, request in enumerate(state):
        alike.setdefault(request.seen, []).append(i)
    known = [_own(before, i, request) for i, request in enumerate(state)]
    partials = [
        own if request.reduction.sequential else request.reduction.identity(request.state)
        for own, request in zip(known, state, strict=True)
    ]
    for members in alike.values():
        views = state[members[0]].views
        for portion in _portions(rows) if views else [rows]:
            seen = portion
            for view in views:
                seen = view(seen)
            for i in members:
                reduction, inner = state[i].reduction, state[i].state
                if reduction.sequential:
                    partials[i] = reduction.add(partials[i], seen, inner)
                    continue
                part = reduction.block(seen, inner)
                # As a block of its own: nothing is merged with nothing.
                partials[i] = part if seen is rows else reduction.combine(partials[i], part, inner)
    for i, request in enumerate(state):
        if not request.reduction.sequential:
            partials[i] = request.reduction.combine(known[i], partials[i], request.state)
    return {f"{i}.{name}": a for i, p in enumerate(partials) for name, a in p.items()}


def _finalize(partial: Partial, state: tuple[Request, ...]) -> list[Any]:
    return [
        request.reduction.finalize(_own(partial, i, request), request.state)
        for i, request in enumerate(state)
    ]


#: Several reductions of the same blocks, as one pass; some may be sequential.
BATCH = Reduction("batch", _fields, _block, _finalize, sequential=True)
