"""Transformations of a block of rows before a reduction sees it."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from daskclust.core.array_types import Array, Floats, Ints
from daskclust.core.kernels.nearest.assign import SEGMENT
from daskclust.core.kernels.rng import permuted_rows, uniform_rows
from daskclust.core.reduction.contract import Field, Partial, Reduction, RowBlock


class View(Protocol):
    """A pure function of a block; fits that share a pass make those of the same `key` once."""

    @property
    def key(self) -> Hashable: ...

    def __call__(self, rows: RowBlock) -> RowBlock: ...


def digest(value: Any) -> str:
    """Name a picklable value by its content."""
    return hashlib.blake2b(pickle.dumps(value), digest_size=16).hexdigest()


def in_space(rows: RowBlock, function: Callable[[Array], Array]) -> RowBlock:
    """Return rows in another space; those that have no place in it get weight 0."""
    moved = rows._replace(x=function(rows.x))
    absent = getattr(function, "absent", None)
    if absent is None:
        return moved
    left_out = absent(moved.x)
    if not left_out.any():
        return moved
    return moved._replace(weight=np.where(left_out, 0.0, 1 if rows.weight is None else rows.weight))


@dataclass(frozen=True)
class Transformed:
    function: Any
    key: Hashable = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", ("transformed", digest(self.function)))

    def __call__(self, rows: RowBlock) -> RowBlock:
        return in_space(rows, self.function)


@dataclass(frozen=True)
class WithoutRows:
    """Some rows, by (sorted, global) number, given weight 0."""

    rows: Ints
    key: Hashable = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", ("without", digest(self.rows)))

    def __call__(self, rows: RowBlock) -> RowBlock:
        weight = None
        offset = 0
        for start, size in rows.runs:
            first, last = np.searchsorted(self.rows, [start, start + size])
            if last > first:
                if weight is None:
                    weight = np.ones(len(rows.x)) if rows.weight is None else rows.weight.copy()
                weight[self.rows[first:last] - start + offset] = 0.0
            offset += size
        return rows if weight is None else rows._replace(weight=weight)


@dataclass(frozen=True)
class Subsampled:
    """Rows drawn by their number with probability `share`; the others have weight 0."""

    share: float
    seed: int
    number: int

    @property
    def key(self) -> Hashable:
        return "subsampled", self.share, self.seed, self.number

    def __call__(self, rows: RowBlock) -> RowBlock:
        kept = rows.uniforms(self.seed, self.number) <= self.share
        weight = kept.astype(np.float64)
        return rows._replace(weight=weight if rows.weight is None else weight * rows.weight)


@dataclass(frozen=True)
class PermutedColumns:
    """Reference data of Witten & Tibshirani: columns of a `pool` (p, m) of rows, permuted."""

    pool: Array = field(repr=False)
    seed: int
    number: int

    @property
    def key(self) -> Hashable:
        return "permuted", id(self.pool), self.seed, self.number

    def __call__(self, rows: RowBlock) -> RowBlock:
        parts = [permuted_rows(self.pool, self.seed, self.number, *run) for run in rows.runs]
        return rows._replace(x=np.concatenate(parts))


@dataclass(frozen=True)
class UniformBox:
    """Reference data of Tibshirani, Walther & Hastie: uniform over the range of each column."""

    low: Floats
    high: Floats
    dtype: Any
    seed: int
    number: int

    @property
    def key(self) -> Hashable:
        return "uniform", id(self.low), self.seed, self.number

    def __call__(self, rows: RowBlock) -> RowBlock:
        parts = [
            uniform_rows(self.low, self.high, self.dtype, self.seed, self.number, *run)
            for run in rows.runs
        ]
        return rows._replace(x=np.concatenate(parts))


#: Rows for which views are made at a time: what a view may take of memory.
_PORTION = 8 * SEGMENT


@dataclass(frozen=True)
class Request:
    """One of the reductions, without carry, that share a pass; `views` one after another."""

    reduction: Reduction
    state: Any
    views: tuple[View, ...] = ()

    @property
    def seen(self) -> Hashable:
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
