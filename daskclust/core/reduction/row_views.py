"""Transformations of a block of rows before a reduction."""

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
    """Pure function of a block.  Fits that share a pass compute views with equal keys only once."""

    @property
    def key(self) -> Hashable: ...

    def __call__(self, rows: RowBlock) -> RowBlock: ...


def digest(value: Any) -> str:
    """Return a hash of a picklable value."""
    return hashlib.blake2b(pickle.dumps(value), digest_size=16).hexdigest()


def in_space(rows: RowBlock, function: Callable[[Array], Array]) -> RowBlock:
    """Transform rows to another space.  Rows that cannot be transformed get weight 0."""
    transformed = rows._replace(x=function(rows.x))
    absent = getattr(function, "absent", None)
    if absent is None:
        return transformed
    is_absent = absent(transformed.x)
    if not is_absent.any():
        return transformed
    return transformed._replace(
        weight=np.where(is_absent, 0.0, 1 if rows.weight is None else rows.weight)
    )


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
    """View in which the `rows` (sorted global numbers) have weight 0."""

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
    """View of a random sample, with probability `share`.  Other rows have weight 0."""

    share: float
    seed: int
    number: int

    @property
    def key(self) -> Hashable:
        return "subsampled", self.share, self.seed, self.number

    def __call__(self, rows: RowBlock) -> RowBlock:
        drawn = rows.uniforms(self.seed, self.number) <= self.share
        weight = drawn.astype(np.float64)
        return rows._replace(weight=weight if rows.weight is None else weight * rows.weight)


@dataclass(frozen=True)
class PermutedColumns:
    """Reference data of Witten & Tibshirani: permuted columns of a `pool` (p, m) of rows."""

    pool: Array = field(repr=False)
    seed: int
    number: int

    @property
    def key(self) -> Hashable:
        return "permuted", id(self.pool), self.seed, self.number

    def __call__(self, rows: RowBlock) -> RowBlock:
        columns = [permuted_rows(self.pool, self.seed, self.number, *run) for run in rows.runs]
        return rows._replace(x=np.concatenate(columns))


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
        draws = [
            uniform_rows(self.low, self.high, self.dtype, self.seed, self.number, *run)
            for run in rows.runs
        ]
        return rows._replace(x=np.concatenate(draws))


#: Maximum number of rows for which views are computed together.  It limits the memory.
_PORTION = 8 * SEGMENT


@dataclass(frozen=True)
class Request:
    """Reduction that shares a pass with other reductions, after its `views` are applied."""

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
    """Split a block at multiples of ``SEGMENT`` global rows, so that sums do not change."""
    if len(rows.x) <= _PORTION:
        yield rows
        return
    ends = rows.segments()
    first = 0
    for i, end in enumerate(ends.tolist()):
        next_end = ends[i + 1] if i + 1 < len(ends) else np.inf
        if next_end - first > _PORTION:
            yield _part(rows, first, end)
            first = end


def _part(rows: RowBlock, first: int, end: int) -> RowBlock:
    runs, offset = [], 0
    for start, size in rows.runs:
        low, high = max(first - offset, 0), min(end - offset, size)
        if low < high:
            runs.append((start + low, high - low))
        offset += size
    weight = None if rows.weight is None else rows.weight[first:end]
    return RowBlock(rows.x[first:end], weight, tuple(runs))


def _own(partial: Partial, i: int, request: Request) -> Partial:
    names = request.reduction.fields(request.state)
    return {name: partial[f"{i}.{name}"] for name in names}


def _block(rows: RowBlock, state: tuple[Request, ...], before: Partial) -> Partial:
    by_views: dict[Hashable, list[int]] = {}
    for i, request in enumerate(state):
        by_views.setdefault(request.seen, []).append(i)
    previous = [_own(before, i, request) for i, request in enumerate(state)]
    partials = [
        own if request.reduction.sequential else request.reduction.identity(request.state)
        for own, request in zip(previous, state, strict=True)
    ]
    for members in by_views.values():
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
                # Without views, the block is not split, and no merge is needed.
                partials[i] = part if seen is rows else reduction.combine(partials[i], part, inner)
    for i, request in enumerate(state):
        if not request.reduction.sequential:
            partials[i] = request.reduction.combine(previous[i], partials[i], request.state)
    return {f"{i}.{name}": a for i, p in enumerate(partials) for name, a in p.items()}


def _finalize(partial: Partial, state: tuple[Request, ...]) -> list[Any]:
    return [
        request.reduction.finalize(_own(partial, i, request), request.state)
        for i, request in enumerate(state)
    ]


#: Several reductions of the same blocks in one pass.  Some may be sequential.
BATCH = Reduction("batch", _fields, _block, _finalize, sequential=True)
