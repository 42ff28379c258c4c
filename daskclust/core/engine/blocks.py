"""Blocks of rows, groups of blocks, and the work of a task on a group, without a scheduler."""

from __future__ import annotations

import platform
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import dask
import numpy as np
from dask.sizeof import sizeof
from numpy.typing import NDArray
from scipy.sparse import issparse

from daskclust import _version
from daskclust.core.array_types import Array, Floats, Ints
from daskclust.core.engine.unchanged import Tally, joined
from daskclust.core.kernels.buffers import converted
from daskclust.core.kernels.nearest.assign import SEGMENT
from daskclust.core.reduction import Partial, Reduction, RowBlock
from daskclust.core.reduction.row_views import in_space
from daskclust.core.storage.retry import NEVER_AGAIN, Retries, read
from daskclust.core.storage.stored_array import Seen
from daskclust.exceptions import ChunkError, ClusterError

#: Kinds of types that are numbers, or may hold such (objects).
_NUMBERS = "fiubO"

#: Blocks of fewer rows are joined with their neighbors, up to so many rows.
_TINY = 512
_JOINED = 4096

#: Values of a tile: rows that are stored in another type are converted so many at a time.
_TILE = 2**20


def working_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the precision for distances: float32 where it holds the input exactly.

    >>> working_dtype(np.dtype(np.int8)), working_dtype(np.dtype(np.int32))
    (dtype('float32'), dtype('float64'))
    """
    if dtype.kind == "f" and dtype.itemsize <= 4:
        return np.dtype(np.float32)
    if dtype.kind in "iu" and dtype.itemsize <= 2:
        return np.dtype(np.float32)
    return np.dtype(np.float64)


def tile_bytes(dtype: np.dtype[Any], n_rows: int, n_columns: int) -> int:
    """Bytes of the largest tile of a block; 0 where rows are worked on as they are."""
    worked = working_dtype(dtype)
    return 0 if worked == dtype else worked.itemsize * n_columns * min(n_rows, _step(n_columns))


def _step(n_columns: int) -> int:
    return SEGMENT * max(1, _TILE // (SEGMENT * max(1, n_columns)))


def tiles_of(start: int, size: int, n_columns: int) -> Iterator[tuple[int, int]]:
    """Yield local bounds of tiles, which end at multiples of ``SEGMENT`` global rows.

    >>> list(tiles_of(4000, 5000, 768))
    [(0, 96), (96, 4192), (4192, 5000)]
    """
    step = _step(n_columns)
    low = 0
    while low < size:
        high = min(size, low + step - (start + low) % step)
        yield low, high
        low = high


@dataclass(frozen=True)
class LazyChunk:
    """A chunk that is computed when it is wanted, and again where a failure may pass.

    Schedulers do not see the keys of its graph: a group of a thousand chunks is one task, which
    holds one chunk at a time.
    """

    graph: Mapping[Any, Any]
    key: Any
    retries: Retries = NEVER_AGAIN
    #: What it reads, as far as that is known, as the client saw it.
    seen: tuple[Seen, ...] = ()

    def load(self) -> Any:
        return read(self._compute, self.key, self.graph, self.retries)

    def load_with(self, names: Sequence[Any], *values: Any) -> Any:
        """Compute the chunk from values that its graph lacks."""
        return replace(self, graph={**self.graph, **dict(zip(names, values, strict=True))}).load()

    def _compute(self) -> Any:
        for one in self.seen:
            one.check()
        return dask.get(self.graph, self.key)


def as_matrix(x: Any, dtype: np.dtype[Any]) -> Array:
    """Return a chunk as a C-contiguous matrix; masked values become NaN.

    >>> as_matrix(np.ma.masked_equal([[1, 2]], 2), np.dtype(np.float32))
    array([[ 1., nan]], dtype=float32)
    """
    if type(x) is not np.ndarray:
        _check_dense(x)
        if np.ma.is_masked(x):
            x = np.ma.filled(x.astype(dtype), np.nan)
    if x.dtype.kind not in _NUMBERS:
        raise ChunkError(
            f"A block has dtype {x.dtype}; its metadata promised real numbers. Use "
            "X.astype('float64') if its values are numbers."
        )
    if x.dtype == dtype or x.dtype.kind == "O":
        return np.ascontiguousarray(x, dtype=dtype)
    return converted(x, dtype)


def _check_dense(x: Any) -> None:
    if issparse(x):
        raise TypeError(
            f"A block is a SciPy sparse matrix ({type(x).__name__}); expected dense rows. Use "
            "X.map_blocks(lambda block: block.toarray()), or fewer features."
        )
    if not hasattr(x, "dtype"):
        raise ChunkError(
            f"A block is a {type(x).__name__}; its metadata promised an array. Use "
            "X.map_blocks(numpy.asarray)."
        )


def check_shape(x: Any, start: int, n_columns: int | None, n_rows: int | None = None) -> None:
    """Refuse a block of another shape than the metadata promised: kernels trust the width."""
    if type(x) is not np.ndarray:
        _check_dense(x)
    if n_columns is not None and np.shape(x)[1:] != (n_columns,):
        raise ChunkError(
            f"The block at row {start} has shape {np.shape(x)}; its metadata promised {n_columns} "
            "columns. A function given to map_blocks that changes the columns must say so: "
            "map_blocks(f, chunks=(X.chunks[0], (n_columns,)))."
        )
    if n_rows is not None and len(x) != n_rows:
        raise ChunkError(
            f"A block at row {start} has {len(x)} rows; its metadata promised {n_rows}. The data "
            "changed while they were read, or a function given to map_blocks changes the number "
            "of rows."
        )


def check_vector(values: Any, what: str) -> None:
    if np.ndim(values) != 1:
        raise ChunkError(
            f"A block of {what} has shape {np.shape(values)}; its metadata promised one value a "
            "row, shape (n,)."
        )


@dataclass(frozen=True)
class Prepare:
    """Turns a chunk into the rows that kernels take.

    `transform` is for metrics that are Euclidean in another space; `version` is the client's.
    """

    dtype: np.dtype[Any]
    transform: Any = None
    n_columns: int | None = None
    version: str = _version.__version__

    def __call__(
        self, x: Any, weight: Floats | None, runs: tuple[tuple[int, int], ...] = ()
    ) -> RowBlock:
        if self.version != _version.__version__:
            raise ClusterError(
                f"The worker on {platform.node()} has daskclust {_version.__version__}, the client "
                f"{self.version}: sums of two versions do not fit each other. Install the same "
                "version everywhere (daskclust doctor compares them)."
            )
        rows = RowBlock(as_matrix(x, self.dtype), weight, runs)
        return rows if self.transform is None else in_space(rows, self.transform)


@dataclass(frozen=True)
class Block:
    """A block of rows: values, or how to get them; `skip` are local rows left out of sums.

    The values of one that is `computed` may be computed again, as those of lazy chunks always are.
    `tally` adds up what is read, `totals` are those of values that are held.
    """

    start: int
    size: int
    x: Any
    weight: Any = None
    skip: NDArray[np.intp] | None = None
    computed: bool = False
    tally: Tally | None = field(default=None, compare=False)
    totals: Array | None = field(default=None, compare=False)

    @property
    def is_lazy(self) -> bool:
        return isinstance(self.x, LazyChunk) or isinstance(self.weight, LazyChunk)

    def fetch(self, prepare: Prepare) -> Block:
        x = self.x.load() if isinstance(self.x, LazyChunk) else self.x
        check_shape(x, self.start, prepare.n_columns, self.size)
        weight = self.weight.load() if isinstance(self.weight, LazyChunk) else self.weight
        if weight is not None:
            check_vector(weight, "sample_weight")
            if np.ma.is_masked(weight):
                # Refused by the first pass, as what is below the mask is not.
                weight = np.ma.filled(weight.astype(np.float64), np.nan)
            try:
                weight = np.ascontiguousarray(weight, dtype=np.float64)
            except (TypeError, ValueError) as error:
                raise ChunkError(
                    f"The block of sample_weight at row {self.start} holds values that are no "
                    f"numbers ({error}). Use fillna(0) where weights are missing."
                ) from error
            self._check_weights(weight)
        tally = None
        if self.is_lazy or (self.computed and self.totals is None):
            tally = Tally(self.start, self.size, weight)
        if self.skip is not None and len(self.skip):
            weight = np.ones(self.size) if weight is None else weight.copy()
            weight[self.skip] = 0.0
        return Block(self.start, self.size, x, weight, tally=tally)

    def _matrices(self, prepare: Prepare) -> Iterator[tuple[int, int, Array]]:
        """Yield bounds and values of tiles, of one where nothing is converted, and tally them."""
        alike = self.x.dtype == prepare.dtype
        bounds = [(0, self.size)] if alike else tiles_of(self.start, self.size, self.x.shape[1])
        for low, high in bounds:
            x = as_matrix(self.x[low:high], prepare.dtype)
            if self.tally is not None:
                self.tally.add(x)
            yield low, high, x

    def tiles(self, prepare: Prepare) -> Iterator[RowBlock]:
        """Yield the rows as kernels take them: a tile at a time where they are converted."""
        for low, high, x in self._matrices(prepare):
            weight = None if self.weight is None else self.weight[low:high]
            yield prepare(x, weight, ((self.start + low, high - low),))

    def count_rest(self, prepare: Prepare) -> None:
        """Tally the values without any work on the rows."""
        if self.tally is not None:
            for _ in self._matrices(prepare):
                pass

    def note(self, read: Block, totals: list[Array]) -> None:
        """Add the totals of this block, which was fetched and read, to those of others."""
        if read.tally is not None:
            if not self.is_lazy:
                # Once for each time that its values are computed.
                vars(self)["totals"] = read.tally.record
            totals.append(read.tally.record)
        elif self.totals is not None:
            totals.append(self.totals)

    def _check_weights(self, weight: Any) -> None:
        if len(weight) != self.size:
            raise ValueError(
                f"A block at row {self.start} has {self.size} rows and {len(weight)} weights. "
                "Give one weight a row, in chunks cut like X."
            )

    def part(self, low: int, high: int) -> Block:
        if (low, high) == (0, self.size):
            return self
        # A cut would hide rows too many from those who load the block.
        check_shape(self.x, self.start, None, self.size)
        skip, weight = self.skip, self.weight
        if skip is not None:
            skip = skip[np.searchsorted(skip, low) : np.searchsorted(skip, high)] - low
        if weight is not None:
            self._check_weights(weight)
            weight = weight[low:high]
        part = Block(self.start + low, high - low, self.x[low:high], weight, skip, self.computed)
        return part if self.tally is None else replace(part, tally=self.tally)


@dataclass(frozen=True)
class Group:
    blocks: list[Block] = field(default_factory=list)

    def excluding(self, rows: Ints) -> Group:
        blocks = []
        for block in self.blocks:
            first, last = np.searchsorted(rows, [block.start, block.start + block.size])
            blocks.append(replace(block, skip=(rows[first:last] - block.start).astype(np.intp)))
        return Group(blocks)

    def only(self, ranges: Sequence[Range]) -> Group:
        """Return the rows in some (sorted, disjoint) ranges, which hold lazy blocks as a whole."""
        blocks = []
        for block in self.blocks:
            end = block.start + block.size
            for start, stop in ranges:
                low, high = max(start, block.start), min(stop, end)
                if low < high:
                    blocks.append(block.part(low - block.start, high - block.start))
        return Group(blocks)

    def load(self, prepare: Prepare, totals: list[Array]) -> Iterator[RowBlock]:
        """Yield blocks in order, tiny neighbors joined; a lazy one is read ahead.

        The totals of those that may be computed again are appended to `totals`.
        """
        return _join_tiny(self._load_each(prepare, totals))

    def _load_each(self, prepare: Prepare, totals: list[Array]) -> Iterator[RowBlock]:
        if len(self.blocks) < 2 or not any(isinstance(b.x, LazyChunk) for b in self.blocks):
            for block in self.blocks:
                read = block.fetch(prepare)
                yield from read.tiles(prepare)
                block.note(read, totals)
            return
        with ThreadPoolExecutor(1, "daskclust-read-ahead") as reader:
            coming = [reader.submit(self.blocks[0].fetch, prepare)]
            for at, block in enumerate(self.blocks):
                read = coming.pop().result()
                if at + 1 < len(self.blocks):
                    coming.append(reader.submit(self.blocks[at + 1].fetch, prepare))
                yield from read.tiles(prepare)
                block.note(read, totals)
                del read


# Little: what the worker holds anyway must not be counted, or spilled, twice.
sizeof.register(Group, lambda group: 1000)


def _join_tiny(blocks: Iterator[RowBlock]) -> Iterator[RowBlock]:
    """Join runs of tiny blocks: a kernel call costs as much as a hundred rows."""
    held: list[RowBlock] = []
    n_held = 0
    for rows in blocks:
        n = len(rows.x)
        if held and (n >= _TINY or n_held >= _JOINED):
            yield _concatenate(held)
            held, n_held = [], 0
        if n >= _TINY:
            yield rows
        else:
            held.append(rows)
            n_held += n
    if held:
        yield _concatenate(held)


def _concatenate(held: list[RowBlock]) -> RowBlock:
    if len(held) == 1:
        return held[0]
    weight = None
    if any(rows.weight is not None for rows in held):
        weight = np.concatenate([np.ones(len(r.x)) if r.weight is None else r.weight for r in held])
    runs = tuple(run for rows in held for run in rows.runs)
    return RowBlock(np.concatenate([rows.x for rows in held]), weight, runs)


#: The name in partials, beside the fields of a reduction, of the totals of blocks that were read.
READ = "totals of blocks"


def fold(
    group: Group, prepare: Prepare, reduction: Reduction, state: Any, carry: Any = None
) -> tuple[Partial, list[Any] | None]:
    partial = reduction.identity(state)
    kept: list[Any] = []
    totals: list[Array] = []
    for position, rows in enumerate(group.load(prepare, totals)):
        held = None if carry is None else carry[position]
        partial, held = reduction.step(partial, rows, state, held)
        kept.append(held)
    return {**partial, READ: joined(totals)}, kept if reduction.carries else None


def merge(reduction: Reduction, state: Any, partials: Sequence[Partial]) -> Partial:
    """Merge partials in the order given; a pass over no rows has none."""
    if not partials:
        return reduction.identity(state)
    merged = reduce(lambda a, b: reduction.combine(a, b, state), partials)
    return {**merged, READ: joined([partial[READ] for partial in partials])}


def collect_rows(group: Group, prepare: Prepare, rows: Ints) -> tuple[Ints, Array, Floats, Array]:
    """Return numbers, values and weights of the wanted rows, and totals of the blocks read."""
    found, values, weights = [], [], []
    totals: list[Array] = []
    for block in group.blocks:
        first, last = np.searchsorted(rows, [block.start, block.start + block.size])
        if first == last:
            # Chunks without a wanted row are not even read.
            continue
        wanted = rows[first:last]
        loaded, at = replace(block, skip=None).fetch(prepare), wanted - block.start
        loaded.count_rest(prepare)
        block.note(loaded, totals)
        found.append(wanted)
        held = prepare(loaded.x[at], None if loaded.weight is None else loaded.weight[at])
        values.append(held.x)
        weights.append(np.ones(len(at)) if held.weight is None else held.weight)
    if not found:
        return rows[:0], np.empty((0, 0)), np.empty(0), joined(totals)
    return (
        np.concatenate(found),
        np.concatenate(values),
        np.concatenate(weights),
        joined(totals),
    )


def over_blocks(
    group: Group, prepare: Prepare, function: Callable[[RowBlock], Array]
) -> list[tuple[int, Array]]:
    """Return the first row of each of a group's chunks, and the results of its rows."""
    found = []
    for rows in group.load(prepare, []):
        results = function(rows)
        starts = [start for start, _ in rows.runs]
        found += [(s, results[at]) for s, at in zip(starts, rows.slices(), strict=True)]
    return found


#: Rows from the first to the one before the second.
Range = tuple[int, int]


def joined_ranges(ranges: Sequence[Range]) -> list[Range]:
    """Join sorted ranges of rows that touch.

    >>> joined_ranges([(0, 4), (4, 6), (9, 12)])
    [(0, 6), (9, 12)]
    """
    joined: list[Range] = []
    for start, stop in ranges:
        if joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    return joined


def overlap(ranges: Sequence[Range], others: Sequence[Range]) -> bool:
    """Whether any row is in both; ranges are sorted and disjoint.

    >>> overlap([(0, 4), (9, 12)], [(4, 9)]), overlap([(0, 4)], [(3, 5)])
    (False, True)
    """
    stops = [stop for _, stop in others]
    for start, stop in ranges:
        at = bisect_right(stops, start)
        if at < len(others) and others[at][0] < stop:
            return True
    return False


def share_out(blocks: list[Block], n_groups: int) -> list[Group]:
    """Cut in-memory blocks into groups of about equal rows, where no sum shows it: at segments."""
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
            groups[-1].append(block.part(done, done + take))
            done += take
    return [Group(part) for part in groups if part]
