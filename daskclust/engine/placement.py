"""Which worker goes over which blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from daskclust.engine.blocks import Block

__all__ = ["by_location", "deal_out", "resettle"]


def deal_out(blocks: list[Block], n_groups: int) -> list[list[Block]]:
    """Return runs of consecutive blocks of about equal rows."""
    ends = np.cumsum([block.size for block in blocks])
    share = ends[-1] / n_groups if len(ends) else 1.0
    which = np.minimum((ends - 1) // max(share, 1.0), n_groups - 1).astype(int)
    return [[blocks[i] for i in np.flatnonzero(which == group)] for group in np.unique(which)]


class Load(Protocol):
    """Work of a worker in proportion to its rows."""

    @property
    def size(self) -> int:
        """Rows."""


class Movable(Load, Protocol):
    """A load that knows its worker."""

    worker: str | None


L = TypeVar("L", bound=Load)
M = TypeVar("M", bound=Movable)


def even_out(at: dict[Any, list[L]], threads: Mapping[str, int]) -> None:
    """Move blocks from workers that hold more rows a thread to those that hold fewer.

    Every pass waits for the slowest worker, so what is moved once is soon repaid; no
    block is moved that would not leave the fuller of two workers less full.

    Examples
    --------
    >>> held = {"a": [Block(10 * i, 10, None) for i in range(4)], "b": []}
    >>> even_out(held, {"a": 1, "b": 1})
    >>> [[block.start for block in blocks] for blocks in held.values()]
    [[0, 10], [30, 20]]
    """
    workers = [worker for worker, count in threads.items() if count > 0]
    load = {w: sum(block.size for block in at.get(w, ())) / threads[w] for w in workers}
    while workers:
        full, free = max(workers, key=load.__getitem__), min(workers, key=load.__getitem__)
        size = at[full][-1].size if at.get(full) else 0
        after = load[free] + size / threads[free]
        if size == 0 or after >= load[full]:
            return
        at.setdefault(free, []).append(at[full].pop())
        load[full] -= size / threads[full]
        load[free] = after


def resettle(slots: Sequence[M], threads: Mapping[str, int]) -> None:
    """Move slots to the workers that are there now, evenly; what can stay, stays.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> slots = [SimpleNamespace(size=5, worker=worker) for worker in ("gone", "a", "a")]
    >>> resettle(slots, {"a": 1, "b": 2})
    >>> [slot.worker for slot in slots]
    ['b', 'a', 'b']
    """
    threads = {worker: count for worker, count in threads.items() if count > 0}
    if not threads:
        return
    at: dict[Any, list[M]] = {worker: [] for worker in threads}
    load = dict.fromkeys(threads, 0.0)
    homeless = []
    for slot in slots:
        if slot.worker is not None and slot.worker in at:
            at[slot.worker].append(slot)
            load[slot.worker] += slot.size / threads[slot.worker]
        else:
            homeless.append(slot)
    for slot in homeless:
        free = min(load, key=load.__getitem__)
        at[free].append(slot)
        load[free] += slot.size / threads[free]
    even_out(at, threads)
    for worker, here in at.items():
        for slot in here:
            slot.worker = worker


def by_location(
    blocks: list[Block],
    futures: list[Any],
    who_has: Mapping[Any, Any],
    threads: Mapping[str, int],
) -> list[tuple[str | None, list[Block]]]:
    """Group blocks by the worker that holds them, one group a thread, in row order."""
    at: dict[Any, list[Block]] = {}
    for block, future in zip(blocks, futures, strict=True):
        holders = who_has.get(future.key) or [None]
        at.setdefault(next(iter(holders)), []).append(block)
    even_out(at, threads)
    parts: list[tuple[str | None, list[Block]]] = []
    for worker, here in at.items():
        n_groups = threads.get(worker, 1) if worker is not None else 1
        here = sorted(here, key=lambda block: block.start)
        parts.extend((worker, part) for part in deal_out(here, max(1, n_groups)))
    return sorted(parts, key=lambda part: part[1][0].start)
