"""Parallel operations that do not reduce over all rows: graphs, tasks, grouping, row results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import dask
import dask.array as da
import numpy as np
from dask.base import tokenize
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Bools, Floats, Ints
from daskclust.core.engine.blocks import (
    Group,
    Prepare,
    as_matrix,
    check_shape,
    check_vector,
    sparse_block,
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
from daskclust.core.engine.resilient_tasks import Task, arrive, gather, gather_futures
from daskclust.core.engine.rows import OpenRows, Rows
from daskclust.core.engine.threads import showing_tasks, side_by_side, threads_pay
from daskclust.core.engine.unchanged import check_same, joined
from daskclust.core.kernels.sparse import is_sparse

if TYPE_CHECKING:  # imports Zarr
    from daskclust.core.storage.shuffle_files import GroupedRows


def _called(function: Callable[[Any, Any], Any], item: Any, shared: Any) -> Any:
    return function(shared, item)


def map_independent(
    like: Any, name: str, function: Callable[[Any, Any], Any], shared: Any, items: Sequence[Any]
) -> list[Any]:
    """Compute ``function(shared, item)`` for each item, in order, where the passes of `like` run.

    `function` must be pure and picklable; `shared` is sent once to each worker.
    """
    if not is_dask(like):
        return side_by_side([partial(function, shared, item) for item in items])
    get, client = scheduler_of(like)
    if client is None:
        token = uuid4().hex
        shared_key = f"daskclust-{name}-shared-{token}"
        graph: dict[Any, Any] = {shared_key: task(partial(itself, shared))}
        keys = [(f"daskclust-{name}-{token}", i) for i in range(len(items))]
        for key, item in zip(keys, items, strict=True):
            graph[key] = task(partial(_called, function, item), shared_key)
        return list(get(graph, keys))
    with sending_once():
        # A task that returns `shared`, unlike scattered data, can run again if its worker is lost.
        sent = Task(f"{name}-shared", itself, (shared,)).submit(client)
    tasks = [Task(name, function, (sent, item)).submit(client) for item in items]
    return gather(client, f"the tasks {name!r}", tasks)


def compute(what: str, *collections: Any) -> tuple[Any, ...]:
    _, client = scheduler_of(collections[0])
    if client is None:
        with showing_tasks(what):
            return tuple(dask.compute(*collections))
    # A graph contains large functions once.
    with sending_once():
        return compute_by(
            lambda futures: gather_futures(client, what, futures), client, collections
        )


def start_on_workers(*collections: Any) -> tuple[Any, ...]:
    """Let a cluster begin to compute lazy arrays together, as one graph.

    Return arrays whose chunks are futures; without a cluster, the arrays themselves.
    """
    if not collections or scheduler_of(collections[0])[1] is None:
        return collections
    with sending_once():
        started: tuple[Any, ...] = dask.persist(*collections)
    return started


def keep_on_workers(what: str, *collections: Any) -> tuple[Any, ...]:
    """Compute lazy arrays together; return arrays whose chunks are in the memory of the workers.

    Without a cluster, the chunks are in the memory of this process.
    """
    _, client = scheduler_of(collections[0])
    if client is None:
        return tuple(dask.persist(*collections))
    from distributed import futures_of

    persisted = start_on_workers(*collections)
    for failed in arrive(client, what, futures_of(persisted)):
        failed.result()
    return persisted


#: Approximate size of a part in bytes. A task that writes a part holds two more copies of it.
PART = 2**26


class Grouping(NamedTuple):
    """Rows by group: records of :func:`row_record` in `store`, whose `parts` are in row order."""

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
    """Write the blocks of a group; return part names, counts, weights and totals of blocks."""
    parts: list[int] = []
    totals: list[Array] = []
    counts, weights = np.zeros(n_groups, np.int64), np.zeros(n_groups)
    for block in group.blocks:
        loaded = block.fetch(prepare)
        width = max(1, store.dtype.itemsize // 4)
        ends = [high for _, high in tiles_of(loaded.start, loaded.size, width)]
        low = 0
        for high in ends:
            if high < loaded.size and (high - low) * store.dtype.itemsize < PART:
                continue
            piece = loaded.part(low, high)
            records = np.empty(piece.size, store.dtype)
            records["row"] = np.arange(piece.start, piece.start + piece.size)
            records["x"] = piece.x
            groups, n_done = np.empty(piece.size, np.int64), 0
            for rows in piece.tiles(prepare):
                tile = slice(n_done, n_done := n_done + len(rows.x))
                groups[tile] = groups_of(rows.x)
                records["weight"][tile] = 1.0 if rows.weight is None else rows.weight
            in_group = (records["weight"] > 0) & (groups >= 0)
            if not in_group.all():
                records, groups = records[in_group], groups[in_group]
            store.write(piece.start, groups, records)
            parts.append(piece.start)
            counts += np.bincount(groups, minlength=n_groups)
            weights += np.bincount(groups, records["weight"], n_groups)
            low = high
        block.append_totals(loaded, totals)
    return parts, counts, weights, totals


def group_rows(
    rows: Rows, store: GroupedRows, groups_of: Callable[[Array], Ints], n_groups: int
) -> Grouping:
    """Write all rows of positive weight to a store, by group, in one pass; group -1 is dropped.

    The pass writes ``n (p itemsize + 16)`` bytes.  A part has about 64 MiB, or is one block.
    """
    if not isinstance(rows, OpenRows):
        raise TypeError("Rows that fits share cannot be grouped; fit this estimator separately.")
    rows.passes += 1
    results = rows._executor.map("group", _put, rows._prepare, store, groups_of, n_groups)
    rows.compare(joined([record for *_, totals in results for record in totals]))
    parts = sorted(part for names, *_ in results for part in names)
    counts, weights = np.zeros(n_groups, np.int64), np.zeros(n_groups)
    for _, group_counts, group_weights, _ in results:
        counts += group_counts
        weights += group_weights
    return Grouping(store, tuple(parts), counts, weights)


#: Number of rows of an in-memory array that a thread processes at a time.
_ROWS = 2**16
#: Size of a function in bytes from which the graph contains it only once.
_LARGE = 2**20


@dataclass(frozen=True)
class _Patch:
    """Results of some rows of a chunk, compressed because the graph contains them.

    `n_rows` is -1 if unknown.  `rows` are packed bits of the chunk's rows, or row numbers.
    `totals` are the totals of the chunk at its first read.
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
    """Split (row, value) pairs by chunk; a length of -1 is unknown."""
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
    """Apply a function to rows, tile by tile if they are stored in a smaller type."""
    if x.dtype.itemsize >= working_dtype(x.dtype).itemsize:
        return function(x, start)
    out: Any = None
    for low, high in tiles_of(start, len(x), x.shape[1]):
        results = function(x[low:high], start + low)
        if out is None:
            out = np.empty((len(x), *results.shape[1:]), results.dtype)
        out[low:high] = results
    return function(x, start) if out is None else out


def _check_totals(patch: _Patch, *blocks: NDArray[Any]) -> None:
    if patch.totals is None:
        return
    (x,) = blocks
    dtype = working_dtype(x.dtype)
    bounds = tiles_of(patch.start, len(x), x.shape[1])
    check_same(patch.totals, (as_matrix(x[low:high], dtype) for low, high in bounds))


def _labels_of(
    x: Any, function: Callable[..., Any], patch: _Patch, width: int, sparse: bool = False
) -> Any:
    if sparse:
        x = sparse_block(x, patch.start)
    check_shape(x, patch.start, width, None if patch.n_rows < 0 else patch.n_rows)
    _check_totals(patch, x)
    out = _by_tiles(x, patch.start, function)
    patch.put(out)
    return out


@dataclass(frozen=True)
class Derived:
    """A function of rows whose first step, an evaluation, other functions share.

    `evaluate(x, start)` returns an array of one line per row, and has a `token`: functions with
    equal tokens return equal values.  `derive(values)` returns one result per row.
    """

    evaluate: Any
    derive: Callable[[Any], Any]

    @property
    def nbytes(self) -> int:
        return int(self.evaluate.nbytes)

    def __call__(self, x: NDArray[Any], start: int) -> Any:
        return self.derive(self.evaluate(x, start))


def _derived_of(
    values: NDArray[Any], *x: NDArray[Any], function: Callable[..., Any], patch: _Patch
) -> Any:
    _check_totals(patch, *x)
    out = function(values)
    patch.put(out)
    return out


def _labels_by(
    x: list[NDArray[Any]],
    patch: NDArray[Any],
    function: Callable[..., Any],
    width: int,
    sparse: bool,
) -> Any:
    return _labels_of(x[0], function, patch[0], width, sparse)


def _map_array(
    X: Any, function: Callable[..., Any], dtype: np.dtype[Any], n_columns: int | None
) -> NDArray[Any]:
    if is_sparse(X):
        X = sparse_block(X, 0)
    if not threads_pay(*X.shape):
        whole: NDArray[Any] = _by_tiles(X, 0, function)
        return whole
    out = np.empty((len(X),) if n_columns is None else (len(X), n_columns), dtype)

    def put(start: int) -> None:
        # A few rows at a time: results exist twice until they are copied.
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
    """Apply a function to the rows of every block; the result is lazy if X is, with its chunks.

    ``function(x, start)`` returns one result per row and must be picklable; it gets
    :class:`~daskclust.core.kernels.sparse.SparseRows` if the blocks of X are sparse.  ``start`` is
    the first row of the block (0 if `lengths` are unknown).  A function with a large ``nbytes`` is
    in the graph only once.  Results of :class:`Derived` functions that are computed together share
    the tasks of the evaluation.  `patch` contains sorted global row numbers, and results that
    replace the results of `function`.  `like` is the data that a fit has read: if X has changed
    since then, ChunkError is raised.
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
        stored = X.chunks[0]
        unknown = bool(np.isnan(stored).any())
        lengths = (-1,) * len(stored) if unknown else tuple(int(n) for n in stored)
    if patch is None:
        patch = (np.empty(0, np.int64), np.empty(0, dtype))
    patches = _patches(lengths, *patch)
    if like is not None and min(lengths, default=0) >= 0:
        stored = like.pass_record.first_totals.of_chunks(lengths)
        patches = [replace(own, totals=record) for own, record in zip(patches, stored, strict=True)]
    if hasattr(X, "expr"):
        return _blockwise(X, patches, function, dtype, n_columns, name)
    layer_name = f"daskclust-{name}-{uuid4().hex}"
    chunks = (X.chunks[0],) if n_columns is None else (X.chunks[0], (n_columns,))
    if not isinstance(function, Derived):
        layer = _layer(X, layer_name, patches, function, len(chunks))
        return on_top_of(X, layer_name, layer, chunks, dtype)
    # The name is the same for all functions that share the evaluation, and so are its tasks.
    shared_name = f"daskclust-evaluation-{tokenize(X.name, lengths, function.evaluate.token)}"
    plain = [replace(own, rows=own.rows[:0], values=own.values[:0], totals=None) for own in patches]
    layer = _layer(X, shared_name, plain, function.evaluate, 2)
    shared = on_top_of(X, shared_name, layer, (X.chunks[0], (1,)), np.float64)
    layer = {}
    for i, own in enumerate(patches):
        derive = partial(_derived_of, function=function.derive, patch=own)
        read = () if own.totals is None else ((X.name, i, 0),)
        layer[(layer_name, i, *(0,) * (len(chunks) - 1))] = task(derive, (shared_name, i, 0), *read)
    return on_top_of(shared, layer_name, layer, chunks, dtype, X)


def _layer(
    X: Any, name: str, patches: Sequence[_Patch], function: Any, n_dimensions: int
) -> dict[Any, Any]:
    """Return the tasks that apply a function to each chunk of X."""
    # The patch is inside the task, so the task has a single input, the read, and Dask fuses them.
    label = partial(_labels_of, width=X.shape[1], sparse=is_sparse(X))
    extra_keys: tuple[str, ...] = ()
    layer: dict[Any, Any] = {}
    if getattr(function, "nbytes", 0) < _LARGE:
        label = partial(label, function=function)
    else:
        extra_keys = (f"{name}-function",)
        layer[extra_keys[0]] = task(partial(itself, function))
    last = (0,) * (n_dimensions - 1)
    for i, own in enumerate(patches):
        layer[(name, i, *last)] = task(partial(label, patch=own), (X.name, i, 0), *extra_keys)
    return layer


def make_rows(
    lengths: tuple[int, ...],
    function: Callable[[NDArray[Any], int], NDArray[Any]],
    *,
    dtype: Any,
    name: str,
) -> da.Array:
    """Return lazy results of a function that needs only row numbers; its blocks have no columns."""
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
    """Apply a function to the rows of an expression array, for which no graph can be built."""
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
        sparse=is_sparse(X),
        new_axes=new_axes or None,
        align_arrays=False,
        # The single chunk of columns is in a list.
        concatenate=False,
        dtype=dtype,
        meta=np.empty((0,) * len(out_index), dtype),
        # A prefix, not a name: expression arrays with a fixed name are not lowered.
        token=f"daskclust-{name}",
    )


def _pairs_of(
    x: list[NDArray[Any]],
    x_bounds: NDArray[Any],
    y: list[NDArray[Any]],
    y_bounds: NDArray[Any],
    function: Callable[..., Any],
    widths: tuple[int, int],
) -> Any:
    for block, bounds, width in ((x[0], x_bounds[0], widths[0]), (y[0], y_bounds[0], widths[1])):
        start, n = bounds
        check_shape(block, start, width, n)
    return function(x[0], y[0])


def _chunk_bounds(X: Any) -> da.Array:
    """Return (first row, number of rows) per chunk, in chunks of one; unknown numbers are None."""
    table = np.empty(X.numblocks[0], dtype=object)
    start = 0
    for i, n in enumerate(X.chunks[0]):
        n_rows = None if np.isnan(n) else int(n)
        table[i] = (start, n_rows)
        start += n_rows or 0
    return da.from_array(table, chunks=1, name=f"daskclust-bounds-{uuid4().hex}")


def pair_rows(
    X: Any, Y: Any, function: Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]
) -> Any:
    """Apply a function to each pair of blocks; return (n, m) float64, lazy if X or Y is."""
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
        _chunk_bounds(X),
        "i",
        Y,
        "jb",
        _chunk_bounds(Y),
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
    # One object per chunk, because its number of labels is not known in advance.
    out = np.empty(1, dtype=object)
    n = len(labels)
    rows = np.arange(n)
    if np.ma.isMaskedArray(labels):
        # A masked value is not a label, even if the array below the mask has one.
        rows = rows[~np.ma.getmaskarray(labels)]
        labels = labels.compressed()
    positions, values = pick(np.asarray(labels))
    out[0] = (n, rows[positions], values)
    return out


def labeled_rows(
    y: Any, pick: Callable[[NDArray[Any]], tuple[NDArray[Any], NDArray[Any]]]
) -> tuple[Ints, NDArray[Any], int]:
    """Return the row numbers and labels of the labeled rows of a Dask array, and its length.

    ``pick(labels)`` returns the positions of the labeled rows in a chunk, and their labels.
    """
    picked = y.map_blocks(
        _labeled,
        pick=pick,
        dtype=object,
        chunks=((1,) * y.numblocks[0],),
        meta=np.empty(0, object),
        token="daskclust-labeled",
    )
    labeled = [chunk[0] for chunk in fetch_chunks(picked, "the reading of y")]
    lengths = [length for length, _, _ in labeled]
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    rows = [positions + start for (_, positions, _), start in zip(labeled, starts, strict=False)]
    labels = [values for _, _, values in labeled]
    return np.concatenate(rows), np.concatenate(labels), int(starts[-1])


def _decided(groups: Ints, x: Array, decide: Callable[[Array], Bools]) -> Bools:
    out = np.empty(len(x), bool)
    order = np.argsort(groups, kind="stable")
    ends = np.flatnonzero(np.diff(groups[order], prepend=-1, append=-1))
    positions = [order[first:last] for first, last in pairwise(ends)]

    def put(rows: Ints) -> None:
        out[rows] = decide(x[rows])

    side_by_side([partial(put, rows) for rows in positions])
    return out


def _split(x: Array, groups: Ints, n_parts: int) -> list[tuple[Ints, Ints, Array]]:
    part_numbers = groups % n_parts
    positions = [np.flatnonzero(part_numbers == part) for part in range(n_parts)]
    return [(rows, groups[rows], x[rows]) for rows in positions]


def _decide_part(
    blocks: Sequence[tuple[Ints, Ints, Array]], decide: Callable[[Array], Bools]
) -> list[tuple[Ints, Bools]]:
    groups = np.concatenate([groups for _, groups, _ in blocks])
    decisions = _decided(groups, np.concatenate([x for _, _, x in blocks]), decide)
    ends = np.cumsum([len(positions) for positions, _, _ in blocks])[:-1]
    return [(b[0], decided) for b, decided in zip(blocks, np.split(decisions, ends), strict=True)]


def _joined(n_rows: int, decided: Sequence[tuple[Ints, Bools]]) -> Bools:
    out = np.empty(n_rows, bool)
    for positions, decisions in decided:
        out[positions] = decisions
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
    """Decide on each row by the rows of its group; the result is lazy if X is, with its chunks.

    ``group(x, start)`` returns groups of rows; ``decide(x)`` returns a bool for each row of a
    group.  The groups are distributed over `n_parts` tasks.  Each task holds the rows of its
    groups.
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
