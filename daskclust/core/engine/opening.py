"""Open input data: turn arrays into groups of blocks that are bound to workers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import uuid4

import dask
import dask.array as da
import numpy as np
import psutil
from dask.system import CPU_COUNT

from daskclust.config import check_settings
from daskclust.core.array_types import Floats
from daskclust.core.engine.blocks import (
    Block,
    Group,
    LazyChunk,
    joined_ranges,
    share_out,
    sparse_block,
    tile_bytes,
)
from daskclust.core.engine.graph_partition import ArrayGraph, cut, graph_behind
from daskclust.core.engine.memory import (
    MemoryPlan,
    bytes_at_once,
    check_blocks,
    free_memory,
    largest_read,
    measure,
    planned,
)
from daskclust.core.engine.private_api import (
    Packed,
    retry,
    scheduler_of,
    sending_once,
    submit_graph,
    task,
)
from daskclust.core.engine.resilient_tasks import (
    Slot,
    Task,
    WorkerSlots,
    arrive,
    by_location,
    deal_out,
    discard,
    gather_futures,
)
from daskclust.core.engine.rows import (
    ClusterExecutor,
    Executor,
    GraphExecutor,
    LocalExecutor,
    OpenRows,
    Rows,
    ThreadExecutor,
    bind_group,
)
from daskclust.core.engine.threads import cpu_threads, threads_pay
from daskclust.core.kernels.sparse import is_sparse
from daskclust.core.storage.retry import Retries
from daskclust.core.warn import warn
from daskclust.exceptions import ChunkError, PerformanceWarning

#: Number of groups per thread for input that is read in each pass.  More than one group balances
#: slow reads.
_LAZY_GROUPS = 2
#: Maximum bytes of persisted chunks that one task reads, and minimum number of such tasks per
#: thread. Each task costs client and scheduler one or two milliseconds.
_PACK_BYTES = 2**24
_PACKS = 16


def is_dask(X: Any) -> bool:
    return isinstance(X, da.Array)


def number_type(kind: Any) -> np.dtype[Any] | None:
    """Return the NumPy type of a column, with NaN for missing values; None if not numeric."""
    if not isinstance(kind, np.dtype):
        from pandas.api.types import is_bool_dtype, is_numeric_dtype

        if not (is_numeric_dtype(kind) or is_bool_dtype(kind)):
            return None
        kind = getattr(kind, "numpy_dtype", kind)
        if not isinstance(kind, np.dtype) or kind.kind not in "iufb":
            return np.dtype(np.float64)  # decimals
    return kind if kind.kind in "iufb" else None


def unwrap(X: Any) -> Any:
    if hasattr(X, "to_dask_array"):
        kinds = list(X.dtypes) if X.ndim == 2 else []  # a Series has columns, too
        plain = all(isinstance(kind, np.dtype) for kind in kinds)
        if not plain or len({kind.kind == "b" for kind in kinds}) > 1:
            # pandas would convert such columns to objects.
            numbers = [number_type(kind) for kind in kinds]
            if all(number is not None for number in numbers):
                X = X.astype(np.result_type(np.float32, *numbers))
        return X.to_dask_array()
    if hasattr(X, "dims") and hasattr(X, "data"):
        return X.data
    return X


def fetch_chunks(array: Any, what: str) -> list[Any]:
    """Compute small chunks along the first axis; `what` names the array in messages."""
    get, client = scheduler_of(array)
    behind = graph_behind(array)
    graph = behind.whole()
    if client is None:
        return list(get(graph, behind.keys))
    return gather_futures(client, what, submit_graph(client, graph, behind.keys))


def _block_length(block: Any) -> Any:
    return np.array([[block.shape[0]]], dtype=np.int64)


def _counted_rows(X: Any) -> tuple[int, ...]:
    warn(
        f"X has chunks of unknown length (shape {X.shape}), so an additional pass counted its "
        "rows. Use X.compute_chunk_sizes() once, or ddf.to_dask_array(lengths=True).",
        PerformanceWarning,
    )
    counts = X.map_blocks(
        _block_length,
        dtype=np.dtype(np.int64),
        chunks=((1,) * X.numblocks[0], (1,)),
        meta=np.empty((0, 0), np.int64),
    )
    return tuple(int(n[0, 0]) for n in fetch_chunks(counts, "the count of rows"))


def _stored_bytes(block: Any, start: int) -> Any:
    return np.array([[sparse_block(block, start).nbytes]], dtype=np.int64)


def _row_bytes(X: Any, lengths: tuple[int, ...], behind: ArrayGraph) -> float:
    """Return the bytes of a row; for sparse rows, the mean of the first block of the most rows.

    The number of stored values is not in the metadata, so this block is read in addition.
    """
    most = max(lengths, default=0)
    if not is_sparse(X) or not most:
        return float(X.shape[1] * X.dtype.itemsize)
    number = lengths.index(most)
    start = sum(lengths[:number])
    if behind.values is not None:
        return float(_stored_bytes(behind.values[number], start)[0, 0] / most)
    n_bytes = X.blocks[number].map_blocks(
        partial(_stored_bytes, start=start),
        dtype=np.dtype(np.int64),
        chunks=((1,), (1,)),
        meta=np.empty((0, 0), np.int64),
    )
    return float(fetch_chunks(n_bytes, "the measuring of a block")[0][0, 0] / most)


def _aligned_weight(weight: Any, lengths: tuple[int, ...]) -> Any:
    if not is_dask(weight):
        return da.from_array(np.ascontiguousarray(weight, dtype=np.float64), chunks=(lengths,))
    if not np.isnan(weight.chunks[0]).any():
        return weight.rechunk((lengths,))
    if weight.numblocks[0] != len(lengths):
        raise ChunkError(
            f"sample_weight must have the same number of chunks as X ({len(lengths)}), got "
            f"{weight.numblocks[0]} chunks of unknown length. Use "
            "sample_weight.compute_chunk_sizes(), or the same chunks for both."
        )
    # Assume the lengths of X. They are compared with the actual lengths when blocks are loaded.
    return weight.map_blocks(np.asanyarray, dtype=weight.dtype, chunks=(lengths,))


def _is_persisted(n_bytes: float, keepable: float, every_pass_sends: bool) -> bool:
    setting = dask.config.get("daskclust.persist")
    if isinstance(setting, bool):
        return setting
    return not every_pass_sends and n_bytes <= keepable


@dataclass(frozen=True)
class Forecast:
    """Needs of passes on planned workers: number of `tasks`, and `peak` bytes of one worker."""

    is_persisted: bool
    tasks: int
    peak: int
    fits: bool


def forecast(
    shape: tuple[int, int],
    dtype: np.dtype[Any],
    *,
    block_rows: int,
    n_blocks: int,
    read: int,
    n_workers: int,
    limit: float,
    task: int = 0,
) -> Forecast:
    """Return what :func:`open_rows` would decide for workers of one thread and `limit` bytes."""
    n_bytes = float(shape[0]) * shape[1] * dtype.itemsize
    free = min(n_workers * limit, psutil.virtual_memory().available)
    is_persisted = _is_persisted(n_bytes, spare_memory(free), False)
    worker = planned(limit, n_bytes / n_workers if is_persisted else 0)
    tile = tile_bytes(dtype, block_rows, shape[1])
    need, _ = bytes_at_once(block_rows, shape[1] * dtype.itemsize, tile, read)
    need = max(need, task)
    fits = need <= worker.free
    return Forecast(is_persisted, min(n_blocks, _LAZY_GROUPS * n_workers), worker.used + need, fits)


def spare_memory(free: float | None = None) -> float:
    """Return the bytes that a fit may keep between passes; by default, `free` is measured here."""
    free = float(psutil.virtual_memory().available) if free is None else free
    return float(dask.config.get("daskclust.persist-fraction")) * free


def _bind_local(
    blocks: list[Block],
    behind: ArrayGraph,
    weight: ArrayGraph | None,
    get: Any,
    persist: bool,
    sparse: bool,
) -> Executor:
    def compute(graph: Mapping[Any, Any], keys: Sequence[Any]) -> list[Any]:
        return list(get(dict(graph), list(keys)))

    chunk_values = compute(behind.whole(), behind.keys) if persist else behind.values
    in_memory = chunk_values is not None
    if chunk_values is not None and sparse:
        # Check once; slices of the checked blocks are views.
        chunk_values = [
            sparse_block(x, block.start) for x, block in zip(chunk_values, blocks, strict=True)
        ]
    chunks: Sequence[Any] | None = chunk_values if in_memory else cut(behind, compute)
    weights: Sequence[Any] | None = [None] * len(blocks)
    if weight is not None:
        in_memory = in_memory and weight.values is not None
        weights = cut(weight, compute) if weight.values is None else weight.values
    if chunks is None or weights is None:
        return _whole_graph(blocks, behind, weight, get, None)
    # Chunks that are computed once for this fit are computed again for its labels.
    blocks = [
        replace(block, x=x, weight=w, computed=persist)
        for block, x, w in zip(blocks, chunks, weights, strict=True)
    ]
    n_workers = dask.config.get("num_workers", None) or CPU_COUNT
    if in_memory:
        return LocalExecutor(share_out(blocks, n_workers), get)
    groups = deal_out(blocks, _LAZY_GROUPS * n_workers)
    return LocalExecutor([Group(members) for members in groups], get)


def _whole_graph(
    blocks: list[Block], behind: ArrayGraph, weight: ArrayGraph | None, get: Any, client: Any
) -> GraphExecutor:
    graph, weight_keys = behind.whole(), None
    if weight is not None:
        graph.update(weight.whole())
        weight_keys = weight.keys
    return GraphExecutor(blocks, behind.keys, weight_keys, graph, get, client)


def _pack(blocks: list[Block], row_bytes: float, n_threads: int) -> list[list[int]]:
    """Return runs of consecutive block numbers; one task reads and keeps the blocks of a run."""
    n_bytes = sum(block.size for block in blocks) * row_bytes
    limit = min(_PACK_BYTES, n_bytes / (_PACKS * max(1, n_threads)))
    packs: list[list[int]] = []
    left = 0.0
    for number, block in enumerate(blocks):
        left -= block.size * row_bytes
        if left < 0 or not packs:
            packs.append([])
            left = limit - block.size * row_bytes
        packs[-1].append(number)
    return packs


def _load_pack(chunks: list[Any]) -> list[Any]:
    return [chunk.load() if isinstance(chunk, LazyChunk) else chunk for chunk in chunks]


def _persisted_packs(chunks: Sequence[Any], packs: list[list[int]], client: Any) -> list[Any]:
    token = uuid4().hex
    graph = {
        (f"daskclust-pack-{token}", i): task(partial(_load_pack, [chunks[j] for j in pack]))
        for i, pack in enumerate(packs)
    }
    with sending_once():
        return submit_graph(client, graph, list(graph))


def _bind_cluster(
    X: Any,
    blocks: list[Block],
    behind: ArrayGraph,
    weight: ArrayGraph | None,
    row_bytes: float,
    client: Any,
) -> tuple[Executor, float]:
    def compute(graph: Mapping[Any, Any], keys: Sequence[Any]) -> list[Any]:
        return gather_futures(client, "the binding of the data", submit_graph(client, graph, keys))

    threads, workers = measure(client)
    keepable = spare_memory(free_memory(workers))

    packs = [[i] for i in range(len(blocks))]
    futures, chunks = behind.futures, None
    n_bytes = row_bytes * sum(block.size for block in blocks)
    if futures is None and (behind.values is not None or _is_persisted(n_bytes, keepable, False)):
        # The client's data go to the workers once, not in every pass.
        joined_packs = _pack(blocks, row_bytes, sum(threads.values()))
        if 2 * len(joined_packs) <= len(packs):
            chunks = cut(behind, compute) if behind.values is None else behind.values
        if chunks is None:
            futures = submit_graph(client, behind.whole(), behind.keys)
        else:
            packs, futures = joined_packs, _persisted_packs(chunks, joined_packs, client)
    elif futures is None:
        chunks = cut(behind, compute)
    weights: list[Any] | None = None
    if weight is not None:
        with sending_once():
            # Weights are small, so they are always persisted.
            weights = weight.futures or submit_graph(client, weight.whole(), weight.keys)
    largest = max((block.size for block in blocks), default=0)
    # Only the stored values of sparse rows are converted.
    stored_share = row_bytes / (X.shape[1] * X.dtype.itemsize) if X.shape[1] else 0.0
    tile = math.ceil(tile_bytes(X.dtype, largest, X.shape[1]) * stored_share)
    if futures is None and chunks is None:
        keyed_weight = weight
        if weights is not None:
            keys = [("daskclust-weight-" + uuid4().hex, i) for i in range(len(weights))]
            keyed_weight = ArrayGraph(keys, dict(zip(keys, weights, strict=True)))
        read = largest_read([behind.graph])
        check_blocks(workers, largest, row_bytes, tile, len(blocks), read)
        return _whole_graph(blocks, behind, keyed_weight, client.get, client), keepable

    chunk_values: list[Any] = futures or list(chunks or ())
    if futures is not None:
        try:
            _wait_for_chunks(client, futures)
        except BaseException:
            if behind.futures is None:
                discard(client, futures)
            raise
        packed_blocks = [
            Block(blocks[pack[0]].start, sum(blocks[i].size for i in pack), None) for pack in packs
        ]
        assigned = by_location(packed_blocks, futures, client.who_has(futures), threads)
    else:
        addresses: list[str | None] = [a for a, n in threads.items() for _ in range(n)] or [None]
        dealt = deal_out(blocks, _LAZY_GROUPS * len(addresses))
        assigned = [(addresses[i % len(addresses)], members) for i, members in enumerate(dealt)]
        read = largest_read([chunk.graph for chunk in chunk_values])
        check_blocks(workers, largest, row_bytes, tile, len(assigned), read)

    position = {blocks[pack[0]].start: i for i, pack in enumerate(packs)}
    groups, ranges = [], []
    for worker, members in assigned:
        pack_numbers = [position[block.start] for block in members]
        block_numbers = [i for number in pack_numbers for i in packs[number]]
        own_blocks = [blocks[i] for i in block_numbers]
        values = [chunk_values[i] for i in pack_numbers]
        own_weights = None if weights is None else [weights[i] for i in block_numbers]
        slot = Slot(sum(block.size for block in members), worker)
        bind = Task("bind", bind_group, (own_blocks, values, own_weights), slot)
        if futures is None:
            bind = Task(
                "bind", Packed(partial(bind_group, own_blocks, values)), (own_weights,), slot
            )
        groups.append(bind.submit(client))
        ranges.append(joined_ranges([(b.start, b.start + b.size) for b in members]))
    worker_slots = WorkerSlots(client, [group.slot for group in groups if group.slot], threads)
    # The memory of persisted blocks is included in the used memory.
    block = 0 if futures is not None else math.ceil(largest * row_bytes)
    plan = MemoryPlan(workers, len(groups), block)
    return ClusterExecutor(worker_slots, groups, ranges, plan), keepable


def _wait_for_chunks(client: Any, futures: list[Any]) -> None:
    """Wait until a cluster has computed the chunks; retry chunks whose tasks failed."""
    failed: list[Any] = []

    def wait() -> None:
        if failed:
            retry(client, failed)
        failed[:] = arrive(client, "the reading of the data", futures)
        if failed:
            failed[0].result()

    # The timeout applies to single requests, not to reading all the data.
    retries = replace(Retries.configured(), timeout=None)
    retries.attempts()(wait)


def _open_local(X: Any, weight: Floats | None, side_by_side: bool) -> OpenRows:
    n, p = X.shape
    sparse = is_sparse(X)
    groups = [Group([Block(0, n, sparse_block(X, 0) if sparse else X, weight)])]
    if side_by_side and cpu_threads() > 1:
        groups = share_out(groups[0].blocks, cpu_threads())
    return OpenRows(ThreadExecutor(groups), X.dtype, (n,), p, spare_memory(), sparse=sparse)


def open_rows(X: Any, sample_weight: Any = None, *, n_clusters: int | None = None) -> Rows:
    """Open data and bind them to the threads or workers that run passes; values are not checked.

    Threads of this process read NumPy arrays and SciPy matrices; with `n_clusters`, smaller arrays
    use several threads.  Dask arrays use the user's scheduler.  Blocks in memory form one group
    per worker thread.  A lazy array is persisted for the fit if it takes at most
    ``daskclust.persist-fraction`` of the free memory.  Otherwise each pass reads it, one block per
    thread at a time.  The memory of lazy sparse blocks is estimated from one block, which is read
    for this purpose.
    """
    check_settings()
    if not is_dask(X):
        n, p = X.shape
        return _open_local(X, sample_weight, threads_pay(n, p, n_clusters))
    if X.numblocks[1] > 1:
        size = float(X.shape[0]) * X.shape[1] * X.dtype.itemsize
        warn(
            f"X has {X.numblocks[1]} chunks along the features (axis 1). daskclust needs 1 and "
            f"rechunked X, which moves about {size / 2**20:.0f} MiB. "
            "Use X = X.rechunk({1: -1}) before persisting.",
            PerformanceWarning,
        )
        X = X.rechunk({1: -1})
    get, client = scheduler_of(X)
    lengths = X.chunks[0] if not np.isnan(X.chunks[0]).any() else _counted_rows(X)
    lengths = tuple(int(n) for n in lengths)
    ends = np.cumsum(lengths).tolist()
    blocks = [Block(end - n, n, None) for end, n in zip(ends, lengths, strict=True) if n]
    behind, weight = graph_behind(X), None
    row_bytes = _row_bytes(X, lengths, behind)
    if sample_weight is not None:
        weight = graph_behind(_aligned_weight(sample_weight, lengths))
    if len(blocks) < len(lengths):
        nonempty = [i for i, n in enumerate(lengths) if n]
        behind = behind.only(nonempty)
        weight = None if weight is None else weight.only(nonempty)
    executor: Executor
    if client is not None:
        executor, keepable = _bind_cluster(X, blocks, behind, weight, row_bytes, client)
    else:
        # Other processes would receive the values again in every pass.
        sends = get is not dask.threaded.get
        keepable = spare_memory()
        n_bytes = row_bytes * sum(lengths)
        persist = behind.values is None and _is_persisted(n_bytes, keepable, sends)
        executor = _bind_local(blocks, behind, weight, get, persist, is_sparse(X))
    return OpenRows(executor, X.dtype, lengths, X.shape[1], keepable, sparse=is_sparse(X))


def open_blank(X: Any, like: Rows) -> tuple[Rows, Any]:
    """Return rows with the chunks of X but no columns, for synthetic data, and lazy zeros."""
    n, p = like.n_rows, like.n_features
    if is_dask(X):
        blank = open_rows(da.zeros((n, 0), chunks=(like.lengths, (0,)), dtype=like.dtype))
    else:
        blank = _open_local(np.empty((n, 0), like.dtype), None, threads_pay(n, p))
    blank.n_features = p
    return blank, da.zeros((n, p), chunks=(like.lengths, (p,)), dtype=like.dtype)
