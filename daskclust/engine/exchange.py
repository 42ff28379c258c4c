"""Decisions about rows that need the other rows of their group, wherever these lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any
from uuid import uuid4

import dask
import dask.array as da
import numpy as np
from numpy.typing import NDArray

from daskclust._types import Array, Bools, Ints
from daskclust.engine.lazy import map_rows
from daskclust.engine.rows import is_dask
from daskclust.engine.threads import side_by_side

__all__ = ["decide_within_groups"]


def _decided(groups: Ints, x: Array, decide: Callable[[Array], Bools]) -> Bools:
    """Decide about rows, given in their order, each group by itself."""
    out = np.empty(len(x), bool)
    order = np.argsort(groups, kind="stable")
    ends = np.flatnonzero(np.diff(groups[order], prepend=-1, append=-1))
    places = [order[first:last] for first, last in pairwise(ends)]

    def put(at: Ints) -> None:
        out[at] = decide(x[at])

    side_by_side([partial(put, at) for at in places])
    return out


def _split(x: Array, groups: Ints, n_parts: int) -> list[tuple[Ints, Ints, Array]]:
    """Return the places, groups and values of a block's rows, by the parts of their groups."""
    parts = groups % n_parts
    places = [np.flatnonzero(parts == part) for part in range(n_parts)]
    return [(at, groups[at], x[at]) for at in places]


def _decide_part(
    blocks: Sequence[tuple[Ints, Ints, Array]], decide: Callable[[Array], Bools]
) -> list[tuple[Ints, Bools]]:
    """Decide about the rows of some groups; return what was decided, by blocks."""
    groups = np.concatenate([groups for _, groups, _ in blocks])
    found = _decided(groups, np.concatenate([x for _, _, x in blocks]), decide)
    ends = np.cumsum([len(places) for places, _, _ in blocks])[:-1]
    return [(b[0], part) for b, part in zip(blocks, np.split(found, ends), strict=True)]


def _joined(n_rows: int, parts: Sequence[tuple[Ints, Bools]]) -> Bools:
    out = np.empty(n_rows, bool)
    for places, found in parts:
        out[places] = found
    return out


def decide_within_groups(
    X: Any,
    group: Callable[[NDArray[Any], int], Ints],
    decide: Callable[[Array], Bools],
    *,
    lengths: tuple[int, ...],
    n_parts: int,
    name: str,
) -> Any:
    """Decide about each row by the rows of its group; lazy for a Dask array, chunked like X.

    ``group(x, start)`` returns the group of each row of a block, and ``decide(x)`` a bool for each
    row of one group, in their order; both are picklable. Groups are shared out among `n_parts`
    tasks, each of which holds the rows of its groups: each row goes to one task.
    """
    labels = map_rows(X, group, dtype=np.int32, lengths=lengths, name=name)
    if not is_dask(X):
        return _decided(labels, X, decide)
    if X.numblocks[1] > 1:
        X = X.rechunk({1: -1})
    token = uuid4().hex
    split = dask.delayed(_split, nout=n_parts)
    blocks = [
        split(x, y, n_parts, dask_key_name=f"daskclust-{name}-split-{token}-{i}")
        for i, (x, y) in enumerate(
            zip(X.to_delayed().ravel(), labels.to_delayed().ravel(), strict=True)
        )
    ]
    whole = dask.delayed(_decide_part, nout=len(blocks))
    parts = [whole([block[part] for block in blocks], decide) for part in range(n_parts)]
    joined = dask.delayed(_joined)
    chunks = [
        da.from_delayed(joined(n, [part[i] for part in parts]), (n,), meta=np.empty(0, bool))
        for i, n in enumerate(lengths)
    ]
    return da.concatenate(chunks)
