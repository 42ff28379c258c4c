"""Work beside the passes: graphs, tasks without the data, and rows put by groups into a store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple
from uuid import uuid4

import dask
import numpy as np

from daskclust._types import Array, Floats, Ints
from daskclust.engine.binding import is_dask
from daskclust.engine.blocks import Group, Prepare, tiles_of
from daskclust.engine.dask_surface import (
    client_behind,
    compute_by,
    itself,
    scheduler_of,
    sending_once,
    task,
)
from daskclust.engine.rows import OpenRows, Rows
from daskclust.engine.tasks import Task, gather, gather_futures
from daskclust.engine.threads import side_by_side
from daskclust.storage.grouped import GroupedRows


def _called(function: Callable[[Any, Any], Any], item: Any, shared: Any) -> Any:
    return function(shared, item)


def map_independent(
    like: Any, name: str, function: Callable[[Any, Any], Any], shared: Any, items: Sequence[Any]
) -> list[Any]:
    """Compute ``function(shared, item)`` of each item, in order, where the data's passes run.

    With NumPy data (`like`) the tasks run on threads of this process, with Dask on the active
    scheduler. `function` is pure and picklable; `shared` is sent to each worker once; one task for
    each of the small `items`.
    """
    if not is_dask(like):
        return side_by_side([partial(function, shared, item) for item in items])
    get = scheduler_of(like)
    client = client_behind(get)
    if client is None:
        token = uuid4().hex
        held = f"daskclust-{name}-shared-{token}"
        graph: dict[Any, Any] = {held: task(partial(itself, shared))}
        keys = [(f"daskclust-{name}-{token}", i) for i in range(len(items))]
        for key, item in zip(keys, items, strict=True):
            graph[key] = task(partial(_called, function, item), held)
        return list(get(graph, keys))
    with sending_once():
        # A task that returns it, not scattered data: it is there again after a worker is lost.
        sent = Task(f"{name}-shared", itself, (shared,)).submit(client)
    tasks = [Task(name, function, (sent, item)).submit(client) for item in items]
    return gather(client, f"the tasks {name!r}", tasks)


def compute(what: str, *collections: Any) -> tuple[Any, ...]:
    """Compute collections on the user's scheduler, and give up where a cluster has no workers.

    `what` names the result in messages. No workers for ``daskclust.worker-timeout``, workers that
    die repeatedly and a scheduler that cannot be reached are a ClusterError.

    >>> import dask.array as da
    >>> total, = compute("the sum", da.ones(4, chunks=2).sum())
    >>> float(total)
    4.0
    """
    client = client_behind(scheduler_of(collections[0]))
    if client is None:
        return tuple(dask.compute(*collections))
    return compute_by(lambda futures: gather_futures(client, what, futures), client, collections)


#: Bytes of a part, about: of so many rows there are two more copies while they are written.
_PART = 2**26


class Grouping(NamedTuple):
    """Rows by their groups.

    Records of `store` have the fields ``row`` (global number), ``weight`` and ``x`` (as stored);
    its `parts` are to be read in this order, that of rows.
    """

    store: GroupedRows
    parts: tuple[int, ...]
    counts: Ints
    weights: Floats

    def read(self, group: int) -> tuple[Array, Floats]:
        """Return the rows of a group as they are stored, in row order, and their weights."""
        records = self.store.read(self.parts, group)
        return np.ascontiguousarray(records["x"]), np.ascontiguousarray(records["weight"])


def row_record(dtype: np.dtype[Any], n_columns: int) -> np.dtype[Any]:
    """Return the type of a record of a row."""
    return np.dtype([("row", "i8"), ("weight", "f8"), ("x", dtype, (n_columns,))])


def _put(
    group: Group,
    prepare: Prepare,
    store: GroupedRows,
    groups_of: Callable[[Array], Ints],
    n_groups: int,
) -> tuple[list[int], Ints, Floats]:
    """Write the blocks of a group; return the names of the parts, counts and weights."""
    parts: list[int] = []
    counts, weights = np.zeros(n_groups, np.int64), np.zeros(n_groups)
    for block in group.blocks:
        held = block.fetch(prepare)
        width = max(1, store.dtype.itemsize // 4)
        ends = [high for _, high in tiles_of(held.start, held.size, width)]
        low = 0
        for high in ends:
            if high < held.size and (high - low) * store.dtype.itemsize < _PART:
                continue
            piece = held.part(low, high)
            groups = np.concatenate(
                [np.asarray(groups_of(rows.x), np.int64) for rows in piece.tiles(prepare)]
            )
            records = np.empty(piece.size, store.dtype)
            records["row"] = np.arange(piece.start, piece.start + piece.size)
            records["weight"] = 1.0 if piece.weight is None else piece.weight
            records["x"] = piece.x
            there = (records["weight"] > 0) & (groups >= 0)
            if not there.all():
                records, groups = records[there], groups[there]
            store.write(piece.start, groups, records)
            parts.append(piece.start)
            counts += np.bincount(groups, minlength=n_groups)
            weights += np.bincount(groups, records["weight"], n_groups)
            low = high
    return parts, counts, weights


def group_rows(
    rows: Rows, store: GroupedRows, groups_of: Callable[[Array], Ints], n_groups: int
) -> Grouping:
    """Make one pass that puts all rows of positive weight into a store, by groups.

    `rows` are not shared with another fit; `store` is one of :func:`row_record`. `groups_of` is
    picklable, and returns -1 for rows that are left out.

    Writes ``n (p itemsize + 16)`` bytes once.  A part is about 64 MiB, or a block.
    """
    if not isinstance(rows, OpenRows):
        raise TypeError("rows that fits share cannot be grouped; fit this estimator by itself.")
    rows.passes += 1
    found = rows._executor.map("group", _put, rows._prepare, store, groups_of, n_groups)
    parts = sorted(part for names, _, _ in found for part in names)
    counts, weights = np.zeros(n_groups, np.int64), np.zeros(n_groups)
    for _, more, weight in found:
        counts += more
        weights += weight
    return Grouping(store, tuple(parts), counts, weights)
