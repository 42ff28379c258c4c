"""Opening data: from whatever holds the rows to bound groups of blocks.

:class:`~daskclust.engine.handle.Rows` is what estimators see of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import dask
import dask.array as da
import numpy as np
import psutil
from dask.base import get_scheduler
from dask.system import CPU_COUNT
from numpy.typing import NDArray

from daskclust._warnings import warn
from daskclust.engine.blocks import (
    Block,
    Group,
    Prepare,
    collect_rows,
    in_row_order,
    joined_ranges,
    over_blocks,
)
from daskclust.engine.executors import (
    ClusterExecutor,
    Executor,
    GraphExecutor,
    LocalExecutor,
    ThreadExecutor,
    bind_group,
    cpu_threads,
)
from daskclust.engine.graphs import CutGraph, cut
from daskclust.engine.handle import Ledger, Rows
from daskclust.engine.placement import by_location, deal_out
from daskclust.exceptions import ChunkError, PerformanceWarning
from daskclust.kernels.nearest.assign import SEGMENT
from daskclust.reduction import Reduction, RowBlock

__all__ = ["BoundRows", "Rows", "is_dask", "open_blank", "open_rows", "unwrap", "working_dtype"]

T = TypeVar("T")

#: Values below which a second thread costs more than it saves.
_THREADING_SIZE = 2**18
#: Groups a thread, for input that is read on the way: evens out slow reads.
_LAZY_GROUPS = 2


def is_dask(X: Any) -> bool:
    """Whether X is a Dask array."""
    return isinstance(X, da.Array)


def unwrap(X: Any) -> Any:
    """Return the array of a Dask DataFrame or Series, or of an xarray object."""
    if hasattr(X, "to_dask_array"):
        return X.to_dask_array()
    if hasattr(X, "dims") and hasattr(X, "data"):
        return X.data
    return X


class BoundRows(Rows):
    """Row blocks of a data set, bound to where their passes run."""

    def __init__(
        self,
        executor: Executor,
        prepare: Prepare,
        lengths: tuple[int, ...],
        n_features: int,
        ledger: Ledger | None = None,
        room: float = np.inf,
    ) -> None:
        self._executor = executor
        self._prepare = prepare
        self.lengths = lengths
        self.n_rows = sum(lengths)
        self.n_features = n_features
        self.ledger = Ledger() if ledger is None else ledger
        self._room = room

    @property
    def dtype(self) -> np.dtype[Any]:
        """Precision of the distance work."""
        return self._prepare.dtype

    def can_keep(self, bytes_a_row: int) -> bool:
        """Whether so much may be kept for each row between passes.

        Two generations exist while one follows from the other.  Data much larger
        than memory leave no room for that; what is not kept is worked out again.
        """
        return 2 * bytes_a_row * self.n_rows <= self._room

    def scan(self, reduction: Reduction, state: Any, carry: Any) -> tuple[Any, Any]:
        """Make one pass with what each block kept from the last; return (result, carry)."""
        self.ledger.passes += 1
        log = self.ledger.log
        known = None if log is None else log.recall(reduction, state)
        if known is not None:
            return reduction.finalize(known, state), None
        partial, kept = self._executor.reduce(self._prepare, reduction, state, carry)
        if log is not None:
            log.note(reduction, state, partial)
        return reduction.finalize(partial, state), kept

    def map(self, name: str, function: Callable[[RowBlock], NDArray[Any]]) -> NDArray[Any]:
        """Make one pass and return one result a row, in row order.

        For rows that the client holds anyway; results as long as lazy data stay with
        the workers (:func:`daskclust.engine.map_rows`).

        Parameters
        ----------
        name : str
            Appears in Dask keys.
        function : callable(rows) -> ndarray
            One result a row of a :class:`RowBlock`; picklable.
        """
        self.ledger.passes += 1
        return in_row_order(self._executor.map(name, over_blocks, self._prepare, function))

    def take(self, rows: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Fetch rows by (sorted, unique) global number: values and weights.

        One pass that reads only the chunks concerned (all of them where blocks
        share costly tasks); cost of the client: ``len(rows) x p``.
        """
        self.ledger.passes += 1
        parts = self._executor.map("take", collect_rows, self._prepare, rows)
        parts = [part for part in parts if len(part[0])]
        if not parts:
            return np.empty((0, self.n_features), self.dtype), np.empty(0)
        numbers = np.concatenate([part[0] for part in parts])
        order = np.argsort(numbers, kind="stable")
        values = np.concatenate([part[1] for part in parts])[order]
        return values, np.concatenate([part[2] for part in parts])[order]

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """Blocks that a partial pass may pick: first row of each and the row after its last.

        Chunks of Dask input; a NumPy array is cut at multiples of ``SEGMENT`` rows.
        """
        if len(self.lengths) > 1:
            ends = np.cumsum(self.lengths).tolist()
            return list(zip([0, *ends[:-1]], ends, strict=True))
        starts = range(0, self.n_rows, SEGMENT)
        return [(start, min(start + SEGMENT, self.n_rows)) for start in starts]

    def only(self, blocks: Sequence[int]) -> Rows:
        """Return a view of some :attr:`blocks`, whose passes touch nothing else.

        For mini-batches: ``rows.only([3, 17]).reduce(reduction, state)`` sums over
        these two blocks.  Rows keep their numbers; passes are counted with those of
        the whole.  What blocks carry belongs to the view, not to the whole.

        Parameters
        ----------
        blocks : sequence of int
            Positions in :attr:`blocks`, at least one; order and repetition do not
            matter.

        Raises
        ------
        ValueError
            For no block, or one that is not there.
        """
        wanted = sorted({int(block) for block in blocks})
        known = self.blocks
        if not wanted or wanted[0] < 0 or wanted[-1] >= len(known):
            raise ValueError(
                f"blocks={list(blocks)}; expected at least one number in [0, {len(known)}), the "
                "positions of blocks in Rows.blocks."
            )
        ranges = joined_ranges([known[block] for block in wanted])
        lengths = tuple(known[block][1] - known[block][0] for block in wanted)
        executor = self._executor.only(ranges)
        return BoundRows(executor, self._prepare, lengths, self.n_features, self.ledger, self._room)

    def excluding(self, rows: NDArray[np.int64]) -> Rows:
        """Return the same data with some (sorted, unique) rows left out of sums."""
        if not len(rows):
            return self
        executor = self._executor.excluding(np.asarray(rows, dtype=np.int64))
        return BoundRows(
            executor, self._prepare, self.lengths, self.n_features, self.ledger, self._room
        )

    def transformed(self, transform: Any) -> Rows:
        """Return the same data with each block passed through ``transform``.

        One that changes the number of columns says so by ``n_columns``.
        """
        prepare = replace(self._prepare, transform=transform)
        n_features = getattr(transform, "n_columns", self.n_features)
        return BoundRows(self._executor, prepare, self.lengths, n_features, self.ledger, self._room)


def working_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the precision for distances: float32 where it holds the input exactly."""
    if dtype.kind == "f" and dtype.itemsize <= 4:
        return np.dtype(np.float32)
    if dtype.kind in "iu" and dtype.itemsize <= 2:
        return np.dtype(np.float32)
    return np.dtype(np.float64)


def _blocks(lengths: tuple[int, ...]) -> list[Block]:
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(int)
    return [Block(int(s), int(n), None) for s, n in zip(starts, lengths, strict=True)]


def _share_out(blocks: list[Block], n_groups: int) -> list[Group]:
    """Cut in-memory blocks into groups of about equal rows, at segment boundaries.

    Cutting there leaves every sum as it was, to the last bit.
    """
    total = sum(block.size for block in blocks)
    # Nearest ends of segments to equal shares; global row numbers, as the blocks are all rows.
    ends = [round(total * g / n_groups / SEGMENT) * SEGMENT for g in range(1, n_groups)]
    groups: list[list[Block]] = [[]]
    for block in blocks:
        done = 0
        while done < block.size:
            at = block.start + done
            while len(groups) <= len(ends) and at >= ends[len(groups) - 1]:
                groups.append([])
            stop = ends[len(groups) - 1] if len(groups) <= len(ends) else total
            take = min(stop - at, block.size - done)
            part = slice(done, done + take)
            weight = None if block.weight is None else block.weight[part]
            groups[-1].append(Block(at, take, block.x[part], weight))
            done += take
    return [Group(part) for part in groups if part]


def _open_numpy(
    X: NDArray[Any], weight: NDArray[np.float64] | None, size: int | None = None
) -> BoundRows:
    n, p = X.shape
    prepare = Prepare(working_dtype(X.dtype), n_columns=p)
    block = Block(0, n, X, weight)
    n_threads = cpu_threads() if (X.size if size is None else size) >= _THREADING_SIZE else 1
    groups = _share_out([block], n_threads) if n_threads > 1 else [Group([block])]
    return BoundRows(ThreadExecutor(groups), prepare, (n,), p)


def client_of(get: Any) -> Any:
    """Return the distributed client behind a scheduler's ``get``, if there is one."""
    owner = getattr(get, "__self__", None)
    return owner if hasattr(owner, "who_has") else None


def _free_memory(client: Any) -> float:
    if client is None:
        return float(psutil.virtual_memory().available)
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    return float(sum(max(0, w["memory_limit"] - w["metrics"]["memory"]) for w in workers))


def _n_bytes(X: Any) -> float:
    """Return the size of an array; NaN where its length is not known."""
    # Expression arrays have no `nbytes`.
    return float(X.shape[0]) * X.shape[1] * X.dtype.itemsize


def _keep(X: Any, weight: Any, get: Any, client: Any) -> Any:
    """Persist a lazy array for the time of the fit where it fits comfortably."""
    if dask.config.get("daskclust.persist") != "auto" or not _n_bytes(X) < np.inf:
        return X
    if client is None and get is not dask.threaded.get:
        # Other processes would be sent the values again in every pass.
        return X
    fraction = float(dask.config.get("daskclust.persist-fraction"))
    if _n_bytes(X) > fraction * _free_memory(client):
        return X
    return X.persist()


def keep_in_memory(X: Any) -> Any:
    """Persist a Dask array where it fits comfortably, and return it.

    Parameters
    ----------
    X : ndarray or dask.array.Array of shape (n, p)
        Returned as it is, where it is no Dask array or too large.
    """
    if not is_dask(X):
        return X
    get = get_scheduler(collections=[X])
    return _keep(X, None, get, client_of(get))


def _check_layout(X: Any) -> Any:
    if X.numblocks[1] > 1:
        warn(
            f"X has {X.numblocks[1]} chunks along the features (axis 1); daskclust needs 1 and "
            f"rechunked it, which moves about {_n_bytes(X) / 2**20:.0f} MiB. "
            "Use X = X.rechunk({1: -1}) before persisting.",
            PerformanceWarning,
        )
        X = X.rechunk({1: -1})
    return X


def _one(block: NDArray[Any]) -> NDArray[np.int64]:
    return np.array([[len(block)]], dtype=np.int64)


def _row_lengths(X: Any) -> tuple[int, ...]:
    lengths = X.chunks[0]
    if not np.isnan(lengths).any():
        return tuple(int(n) for n in lengths)
    warn(
        f"X has chunks of unknown length (shape {X.shape}); counting its rows took a pass over "
        "the data. Use X.compute_chunk_sizes() once, or ddf.to_dask_array(lengths=True).",
        PerformanceWarning,
    )
    counts = X.map_blocks(
        _one,
        dtype=np.dtype(np.int64),
        chunks=((1,) * len(lengths), (1,)),
        meta=np.empty((0, 0), np.int64),
    )
    return tuple(int(n) for n in counts.compute().ravel())


def _aligned_weight(weight: Any, lengths: tuple[int, ...]) -> Any:
    if not is_dask(weight):
        return da.from_array(np.ascontiguousarray(weight, dtype=np.float64), chunks=(lengths,))
    if not np.isnan(weight.chunks[0]).any():
        return weight.rechunk((lengths,))
    if weight.numblocks[0] != len(lengths):
        raise ChunkError(
            f"sample_weight has {weight.numblocks[0]} chunks of unknown length; X has "
            f"{len(lengths)} chunks. Use sample_weight.compute_chunk_sizes(), or cut both alike."
        )
    # Of the same table as X, presumably: blocks are compared when they are loaded.
    return weight.map_blocks(np.asarray, dtype=weight.dtype, chunks=(lengths,))


def _open_dask(X: Any, weight: Any) -> BoundRows:
    X = _check_layout(X)
    get = get_scheduler(collections=[X])
    client = client_of(get)
    X = _keep(X, weight, get, client)
    lengths = _row_lengths(X)
    prepare = Prepare(working_dtype(X.dtype), n_columns=X.shape[1])
    if weight is not None:
        weight = _aligned_weight(weight, lengths)
    if client is None:
        executor: Executor = _bind_local(X, weight, lengths, get)
    else:
        executor = _bind_cluster(X, weight, lengths, client)
    fraction = float(dask.config.get("daskclust.persist-fraction"))
    return BoundRows(executor, prepare, lengths, X.shape[1], room=fraction * _free_memory(client))


def _present(lengths: tuple[int, ...]) -> list[int]:
    return [i for i, n in enumerate(lengths) if n]


def _bind_local(X: Any, weight: Any, lengths: tuple[int, ...], get: Any) -> Executor:
    def compute(graph: Mapping[Any, Any], keys: list[Any]) -> list[Any]:
        return list(get(graph, keys))

    pieces = cut(X, compute)
    weights = None if weight is None else cut(weight, compute)
    if pieces.chunks is None or (weights is not None and weights.chunks is None):
        return _whole_graph(pieces, weights, lengths, get, None)
    blocks = [
        replace(
            block,
            x=pieces.chunks[i],
            weight=None if weights is None else weights.chunks[i],  # type: ignore[index]
        )
        for i, block in enumerate(_blocks(lengths))
        if block.size
    ]
    n_workers = dask.config.get("num_workers", None) or CPU_COUNT
    if pieces.in_memory and (weights is None or weights.in_memory):
        return LocalExecutor(_share_out(blocks, n_workers), get)
    groups = deal_out(blocks, _LAZY_GROUPS * n_workers)
    return LocalExecutor([Group(part) for part in groups], get)


def _whole_graph(
    pieces: CutGraph, weights: CutGraph | None, lengths: tuple[int, ...], get: Any, client: Any
) -> GraphExecutor:
    graph = dict(pieces.graph)
    if weights is not None:
        graph.update(weights.graph)
    present = _present(lengths)
    blocks = _blocks(lengths)
    return GraphExecutor(
        [blocks[i] for i in present],
        [pieces.keys[i] for i in present],
        None if weights is None else [weights.keys[i] for i in present],
        graph,
        get,
        client,
    )


def _persist_weight(weight: Any, client: Any) -> Any:
    # Weights of the client's own memory travel once, as long as they are: no large graph
    # is sent again in every pass, which is what distributed would warn of.
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": 2**60}):
        return client.persist(weight)


def _bind_cluster(X: Any, weight: Any, lengths: tuple[int, ...], client: Any) -> Executor:
    from distributed import wait

    def compute(graph: Mapping[Any, Any], keys: list[Any]) -> list[Any]:
        return list(client.get(graph, keys))

    pieces = cut(X, compute)
    if pieces.in_memory:
        # The client's own memory: goes to the workers once, not in every pass.
        X = client.persist(X)
        pieces = cut(X, compute)
    present = _present(lengths)
    blocks = [block for block in _blocks(lengths) if block.size]
    weight_futures = None
    if weight is not None:
        weights = cut(_persist_weight(weight, client), compute)
        weight_futures = [weights.futures[i] for i in present]  # type: ignore[index]
    if pieces.chunks is None and pieces.futures is None:
        return _whole_graph(
            pieces, None if weight is None else weights, lengths, client.get, client
        )

    threads = client.nthreads()
    chunks: list[Any]
    if pieces.chunks is None:
        chunks = [pieces.futures[i] for i in present]  # type: ignore[index]
        wait(chunks)
        parts = by_location(blocks, chunks, client.who_has(chunks), threads)
    else:
        chunks = [pieces.chunks[i] for i in present]
        addresses = [address for address, n in threads.items() for _ in range(n)]
        dealt = deal_out(blocks, _LAZY_GROUPS * len(addresses))
        parts = [(addresses[i % len(addresses)], part) for i, part in enumerate(dealt)]

    executor = ClusterExecutor(client, [], [], [])
    position = {block.start: i for i, block in enumerate(blocks)}
    for worker, part in parts:
        at = [position[block.start] for block in part]
        executor.groups.append(
            executor.submit(
                "bind",
                bind_group,
                part,
                [chunks[i] for i in at],
                None if weight_futures is None else [weight_futures[i] for i in at],
                worker=worker,
            )
        )
        executor.workers.append(worker)
        executor.ranges.append(joined_ranges([(b.start, b.start + b.size) for b in part]))
    return executor


def open_rows(X: Any, sample_weight: Any = None) -> Rows:
    """Bind data to where their passes will run.

    Parameters
    ----------
    X : ndarray or dask.array.Array of shape (n, p)
        Checked for type and dimensions, not for its values.
    sample_weight : ndarray or dask.array.Array of shape (n,), optional

    Returns
    -------
    Rows

    Notes
    -----
    NumPy arrays run on threads of this process without Dask.  Dask arrays run on
    the user's scheduler: blocks that are in memory are bound into one group a
    worker thread; a lazy array is kept in memory for the fit if it takes no more
    than ``daskclust.persist-fraction`` of what is free, and is otherwise read
    again in every pass, one block a thread at a time.
    """
    if is_dask(X):
        return _open_dask(X, sample_weight)
    return _open_numpy(X, sample_weight)


def open_blank(X: Any, like: Rows) -> tuple[Rows, Any]:
    """Bind as many rows as X has without their values, for fits of made-up data.

    Parameters
    ----------
    X : ndarray or dask.array.Array of shape (n, p)
    like : Rows
        The bound rows of X.

    Returns
    -------
    rows : Rows
        Cut like X.  Blocks have no columns, so nothing is read and nothing held.
    stand_in : dask.array.Array of shape (n, p)
        What a fit is handed as X: lazy, so that labels nobody wants are not made.
    """
    n, p = like.n_rows, like.n_features
    if is_dask(X):
        blank = _open_dask(da.zeros((n, 0), chunks=(like.lengths, (0,)), dtype=like.dtype), None)
    else:
        blank = _open_numpy(np.empty((n, 0), like.dtype), None, n * p)
    rows = BoundRows(blank._executor, blank._prepare, blank.lengths, p, room=blank._room)
    return rows, da.zeros((n, p), chunks=(like.lengths, (p,)), dtype=like.dtype)
