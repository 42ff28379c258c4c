"""Work that is no pass: graphs, tasks without the data, rows put by groups, results of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple
from uuid import uuid4

import dask
import dask.array as da
import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Bools, Floats, Ints
from daskclust.core.engine.blocks import (
    Group,
    Prepare,
    as_matrix,
    check_shape,
    check_vector,
    tiles_of,
    working_dtype,
)
from daskclust.core.engine.graph_partition import read_again
from daskclust.core.engine.opening import fetch_chunks, is_dask
from daskclust.core.engine.private_api import (
    compute_by,
    itself,
    on_top_of,
    scheduler_of,
    sending_once,
    task,
)
from daskclust.core.engine.resilient_tasks import Task, gather, gather_futures
from daskclust.core.engine.rows import OpenRows, Rows
from daskclust.core.engine.threads import side_by_side, threads_pay
from daskclust.core.engine.unchanged import check_same, joined
from daskclust.core.storage.shuffle_files import GroupedRows


def _called(function: Callable[[Any, Any], Any], item: Any, shared: Any) -> Any:
    return function(shared, item)


def map_independent(
    like: Any, name: str, function: Callable[[Any, Any], Any], shared: Any, items: Sequence[Any]
) -> list[Any]:
    """Compute ``function(shared, item)`` of each item, in order, where the passes of `like` run.

    `function` is pure and picklable; `shared` is sent to each worker once.
    """
    if not is_dask(like):
        return side_by_side([partial(function, shared, item) for item in items])
    get, client = scheduler_of(like)
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
    _, client = scheduler_of(collections[0])
    if client is None:
        return tuple(dask.compute(*collections))
    return compute_by(lambda futures: gather_futures(client, what, futures), client, collections)


#: Bytes of a part, about: of so many rows there are two more copies while they are written.
PART = 2**26


class Grouping(NamedTuple):
    """Rows by their groups: :func:`row_record` in `store`, whose `parts` are in order of rows."""

    store: GroupedRows
    parts: tuple[int, ...]
    counts: Ints
    weights: Floats

    def read(self, group: int) -> tuple[Array, Floats]:
        records = self.store.read(self.parts, group)
        return np.ascontiguousarray(records["x"]), np.ascontiguousarray(records["weight"])


def row_record(dtype: np.dtype[Any], n_columns: int) -> np.dtype[Any]:
    return np.dtype([("row", "i8"), ("weight", "f8"), ("x", dtype, (n_columns,))])


def _put(
    group: Group,
    prepare: Prepare,
    store: GroupedRows,
    groups_of: Callable[[Array], Ints],
    n_groups: int,
) -> tuple[list[int], Ints, Floats, list[Array]]:
    """Write the blocks of a group; return names of parts, counts, weights, and totals of blocks."""
    parts: list[int] = []
    totals: list[Array] = []
    counts, weights = np.zeros(n_groups, np.int64), np.zeros(n_groups)
    for block in group.blocks:
        held = block.fetch(prepare)
        width = max(1, store.dtype.itemsize // 4)
        ends = [high for _, high in tiles_of(held.start, held.size, width)]
        low = 0
        for high in ends:
            if high < held.size and (high - low) * store.dtype.itemsize < PART:
                continue
            piece = held.part(low, high)
            records = np.empty(piece.size, store.dtype)
            records["row"] = np.arange(piece.start, piece.start + piece.size)
            records["x"] = piece.x
            groups, done = np.empty(piece.size, np.int64), 0
            for rows in piece.tiles(prepare):
                tile = slice(done, done := done + len(rows.x))
                groups[tile] = groups_of(rows.x)
                records["weight"][tile] = 1.0 if rows.weight is None else rows.weight
            there = (records["weight"] > 0) & (groups >= 0)
            if not there.all():
                records, groups = records[there], groups[there]
            store.write(piece.start, groups, records)
            parts.append(piece.start)
            counts += np.bincount(groups, minlength=n_groups)
            weights += np.bincount(groups, records["weight"], n_groups)
            low = high
        block.note(held, totals)
    return parts, counts, weights, totals


def group_rows(
    rows: Rows, store: GroupedRows, groups_of: Callable[[Array], Ints], n_groups: int
) -> Grouping:
    """Make one pass that puts all rows of positive weight into a store, by groups, -1 for none.

    Writes ``n (p itemsize + 16)`` bytes once.  A part is about 64 MiB, or a block.
    """
    if not isinstance(rows, OpenRows):
        raise TypeError("rows that fits share cannot be grouped; fit this estimator by itself.")
    rows.passes += 1
    found = rows._executor.map("group", _put, rows._prepare, store, groups_of, n_groups)
    rows.compare(joined([one for *_, totals in found for one in totals]))
    parts = sorted(part for names, *_ in found for part in names)
    counts, weights = np.zeros(n_groups, np.int64), np.zeros(n_groups)
    for _, more, weight, _ in found:
        counts += more
        weights += weight
    return Grouping(store, tuple(parts), counts, weights)


#: Rows of an array in memory that a thread works on at a time.
_ROWS = 2**16
#: Bytes of a function from which on it is in a graph once.
_LARGE = 2**20


@dataclass(frozen=True)
class _Patch:
    """Results of some rows of a chunk, as small as they can be: they travel inside the graph.

    `n_rows` is -1 if unknown. `rows` are packed bits of the chunk's rows, or their numbers.
    `totals` are those of the chunk when it was read first.
    """

    start: int
    rows: NDArray[Any]
    values: NDArray[Any]
    n_rows: int
    totals: Array | None = None

    def put(self, out: NDArray[Any]) -> None:
        if not len(self.values):
            return
        if self.rows.dtype == np.uint32:
            out[self.rows] = self.values
        else:
            out[np.unpackbits(self.rows, count=self.n_rows).astype(bool)] = self.values


def _patches(lengths: tuple[int, ...], rows: Ints, values: NDArray[Any]) -> list[_Patch]:
    """Cut (row, value) pairs by chunk; a length of -1 is one that is not known."""
    starts = np.concatenate([[0], np.cumsum(np.maximum(lengths, 0))]).astype(np.int64)
    patches = []
    for start, n, (first, last) in zip(
        starts.tolist(), lengths, pairwise(np.searchsorted(rows, starts)), strict=False
    ):
        local, small = rows[first:last] - start, values[first:last]
        if small.dtype.kind in "iu" and len(small):
            low, high = np.min_scalar_type(small.min()), np.min_scalar_type(small.max())
            small = small.astype(np.promote_types(low, high))
        if n < 0 or n >= 32 * len(local):
            packed = local.astype(np.uint32)
        else:
            mask = np.zeros(n, dtype=bool)
            mask[local] = True
            packed = np.packbits(mask)
        patches.append(_Patch(start, packed, small, n))
    return patches


def _by_tiles(x: NDArray[Any], start: int, function: Callable[..., Any]) -> Any:
    """Apply a function to rows; to a tile at a time where they are stored in a smaller type."""
    if x.dtype.itemsize >= working_dtype(x.dtype).itemsize:
        return function(x, start)
    out: Any = None
    for low, high in tiles_of(start, len(x), x.shape[1]):
        found = function(x[low:high], start + low)
        if out is None:
            out = np.empty((len(x), *found.shape[1:]), found.dtype)
        out[low:high] = found
    return function(x, start) if out is None else out


def _labels_of(x: NDArray[Any], function: Callable[..., Any], patch: _Patch, width: int) -> Any:
    check_shape(x, patch.start, width, None if patch.n_rows < 0 else patch.n_rows)
    if patch.totals is not None:
        dtype = working_dtype(x.dtype)
        bounds = tiles_of(patch.start, len(x), x.shape[1])
        check_same(patch.totals, (as_matrix(x[low:high], dtype) for low, high in bounds))
    out = _by_tiles(x, patch.start, function)
    patch.put(out)
    return out


def _labels_by(
    x: list[NDArray[Any]], patch: NDArray[Any], function: Callable[..., Any], width: int
) -> Any:
    return _labels_of(x[0], function, patch[0], width)


def _map_array(
    X: Any, function: Callable[..., Any], dtype: np.dtype[Any], n_columns: int | None
) -> NDArray[Any]:
    if not threads_pay(*X.shape):
        whole: NDArray[Any] = _by_tiles(X, 0, function)
        return whole
    out = np.empty((len(X),) if n_columns is None else (len(X), n_columns), dtype)

    def put(start: int) -> None:
        # Of a few rows at a time: what is not put yet is held beside the result.
        rows = slice(start, start + _ROWS)
        np.copyto(out[rows], _by_tiles(X[rows], start, function), casting="equiv")

    side_by_side([partial(put, start) for start in range(0, len(X), _ROWS)])
    return out


def map_rows(
    X: Any,
    function: Callable[[NDArray[Any], int], NDArray[Any]],
    *,
    dtype: Any,
    n_columns: int | None = None,
    lengths: tuple[int, ...] | None = None,
    patch: tuple[Ints, NDArray[Any]] | None = None,
    like: Rows | None = None,
    name: str = "labels",
) -> Any:
    """Apply a function to the rows of every block; lazy for a Dask array, chunked like X.

    ``function(x, start)`` returns one result a row and is picklable; ``start`` is the block's first
    row (0 if `lengths` are unknown). One that says by ``nbytes`` that it is large is in the graph
    once. `patch`: sorted global row numbers, and results that replace those of `function`. `like`
    are the rows of X as a fit has read them: other values in X are an error.
    """
    if not is_dask(X):
        out = _map_array(X, function, np.dtype(dtype), n_columns)
        if patch is not None:
            out[patch[0]] = patch[1]
        return out
    if X.numblocks[1] > 1:
        X = X.rechunk({1: -1})
    X = read_again(X)
    dtype = np.dtype(dtype)
    if lengths is None:
        known = X.chunks[0]
        unknown = bool(np.isnan(known).any())
        lengths = (-1,) * len(known) if unknown else tuple(int(n) for n in known)
    if patch is None:
        patch = (np.empty(0, np.int64), np.empty(0, dtype))
    patches = _patches(lengths, *patch)
    if like is not None and min(lengths, default=0) >= 0:
        known = like.pass_record.first_totals.of_chunks(lengths)
        patches = [replace(own, totals=one) for own, one in zip(patches, known, strict=True)]
    if hasattr(X, "expr"):
        return _blockwise(X, patches, function, dtype, n_columns, name)
    # A patch inside its task, not beside it: then tasks have one input, the read, and are
    # fused with it.
    names = f"daskclust-{name}-{uuid4().hex}"
    last = () if n_columns is None else (0,)
    label = partial(_labels_of, width=X.shape[1])
    beside: tuple[str, ...] = ()
    layer: dict[Any, Any] = {}
    if getattr(function, "nbytes", 0) < _LARGE:
        label = partial(label, function=function)
    else:
        beside = (f"{names}-function",)
        layer[beside[0]] = task(partial(itself, function))
    for i, own in enumerate(patches):
        layer[(names, i, *last)] = task(partial(label, patch=own), (X.name, i, 0), *beside)
    chunks = (X.chunks[0],) if n_columns is None else (X.chunks[0], (n_columns,))
    return on_top_of(X, names, layer, chunks, dtype)


def make_rows(
    lengths: tuple[int, ...],
    function: Callable[[NDArray[Any], int], NDArray[Any]],
    *,
    dtype: Any,
    name: str,
) -> da.Array:
    """Return lazy results of rows without values: `function` gets blocks of no columns."""
    blank = da.zeros((sum(lengths), 0), chunks=(lengths, (0,)))
    return map_rows(blank, function, dtype=dtype, name=name)


def _blockwise(
    X: Any,
    patches: list[_Patch],
    function: Callable[..., Any],
    dtype: np.dtype[Any],
    n_columns: int | None,
    name: str,
) -> Any:
    """Apply a function to the rows of an array of expressions, which takes no graphs."""
    table = np.empty(len(patches), dtype=object)
    table[:] = patches
    out_index, new_axes = ("i", {}) if n_columns is None else ("ik", {"k": n_columns})
    return da.blockwise(
        _labels_by,
        out_index,
        X,
        "ij",
        da.from_array(table, chunks=1, name=f"daskclust-patches-{uuid4().hex}"),
        "i",
        function=function,
        width=X.shape[1],
        new_axes=new_axes or None,
        align_arrays=False,
        # The columns are one chunk: in a list, of any shape.
        concatenate=False,
        dtype=dtype,
        meta=np.empty((0,) * len(out_index), dtype),
        # A prefix, not a name: expression arrays are not lowered under a fixed name.
        token=f"daskclust-{name}",
    )


def _pairs_of(
    x: list[NDArray[Any]],
    x_place: NDArray[Any],
    y: list[NDArray[Any]],
    y_place: NDArray[Any],
    function: Callable[..., Any],
    widths: tuple[int, int],
) -> Any:
    for block, place, width in ((x[0], x_place[0], widths[0]), (y[0], y_place[0], widths[1])):
        start, n = place
        check_shape(block, start, width, n)
    return function(x[0], y[0])


def _places(X: Any) -> da.Array:
    """Return one (first row, rows) a chunk, in chunks of one; rows are None where unknown."""
    table = np.empty(X.numblocks[0], dtype=object)
    start = 0
    for i, n in enumerate(X.chunks[0]):
        known = None if np.isnan(n) else int(n)
        table[i] = (start, known)
        start += known or 0
    return da.from_array(table, chunks=1, name=f"daskclust-places-{uuid4().hex}")


def pair_rows(
    X: Any, Y: Any, function: Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]
) -> Any:
    """Apply a function to each pair of blocks; (n, m) float64, lazy if X or Y is."""
    if not (is_dask(X) or is_dask(Y)):
        return function(X, Y)
    X, Y = (
        read_again(A.rechunk({1: -1})) if is_dask(A) else da.from_array(A, chunks=A.shape)
        for A in (X, Y)
    )
    return da.blockwise(
        _pairs_of,
        "ij",
        X,
        "ia",
        _places(X),
        "i",
        Y,
        "jb",
        _places(Y),
        "j",
        function=function,
        widths=(X.shape[1], Y.shape[1]),
        align_arrays=False,
        concatenate=False,
        dtype=np.dtype(np.float64),
        meta=np.empty((0, 0)),
        token="daskclust-kernel",
    )


def _labeled(labels: NDArray[Any], pick: Callable[..., Any]) -> NDArray[Any]:
    check_vector(labels, "y")
    # One object a chunk: how many labels there are is not known beforehand.
    out = np.empty(1, dtype=object)
    n = len(labels)
    rows = np.arange(n)
    if np.ma.isMaskedArray(labels):
        # A masked value has no label, whatever lies below the mask.
        rows = rows[~np.ma.getmaskarray(labels)]
        labels = labels.compressed()
    places, values = pick(np.asarray(labels))
    out[0] = (n, rows[places], values)
    return out


def labeled_rows(
    y: Any, pick: Callable[[NDArray[Any]], tuple[NDArray[Any], NDArray[Any]]]
) -> tuple[Ints, NDArray[Any], int]:
    """Return the numbers and labels of the labeled rows of a Dask array, and its length.

    ``pick(labels)`` returns the positions of the labeled rows in a chunk, and their labels.
    """
    found = y.map_blocks(
        _labeled,
        pick=pick,
        dtype=object,
        chunks=((1,) * y.numblocks[0],),
        meta=np.empty(0, object),
        token="daskclust-labeled",
    )
    parts = [part[0] for part in fetch_chunks(found, "the reading of y")]
    lengths = [length for length, _, _ in parts]
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    rows = [places + start for (_, places, _), start in zip(parts, starts, strict=False)]
    labels = [values for _, _, values in parts]
    return np.concatenate(rows), np.concatenate(labels), int(starts[-1])


def _decided(groups: Ints, x: Array, decide: Callable[[Array], Bools]) -> Bools:
    out = np.empty(len(x), bool)
    order = np.argsort(groups, kind="stable")
    ends = np.flatnonzero(np.diff(groups[order], prepend=-1, append=-1))
    places = [order[first:last] for first, last in pairwise(ends)]

    def put(at: Ints) -> None:
        out[at] = decide(x[at])

    side_by_side([partial(put, at) for at in places])
    return out


def _split(x: Array, groups: Ints, n_parts: int) -> list[tuple[Ints, Ints, Array]]:
    parts = groups % n_parts
    places = [np.flatnonzero(parts == part) for part in range(n_parts)]
    return [(at, groups[at], x[at]) for at in places]


def _decide_part(
    blocks: Sequence[tuple[Ints, Ints, Array]], decide: Callable[[Array], Bools]
) -> list[tuple[Ints, Bools]]:
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

    ``group(x, start)`` returns groups of rows, ``decide(x)`` a bool for each row of a group.
    Groups are shared out among `n_parts` tasks, each of which holds the rows of its groups.
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
