"""Blocks of rows, groups of blocks, and the work of one task on a group, without a scheduler."""

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
from daskclust.core.kernels.sparse import SparseRows, concatenated
from daskclust.core.reduction import Partial, Reduction, RowBlock
from daskclust.core.reduction.row_views import in_space
from daskclust.core.storage.retry import NEVER_AGAIN, Retries, read
from daskclust.core.storage.stored_array import Seen
from daskclust.exceptions import ChunkError, ClusterError

#: Kinds of NumPy types that are numbers, or may contain numbers (objects).
_NUMBERS = "fiubO"

#: Blocks with fewer rows than the first number are joined with their neighbors, up to the second.
_TINY = 512
_JOINED = 4096

#: Maximum number of values in a tile. Rows of another type are converted tile by tile.
_TILE = 2**20


def working_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the precision of distances: float32 if it represents all inputs, else float64.

    >>> working_dtype(np.dtype(np.int8)), working_dtype(np.dtype(np.int32))
    (dtype('float32'), dtype('float64'))
    """
    if dtype.kind == "f" and dtype.itemsize <= 4:
        return np.dtype(np.float32)
    if dtype.kind in "iu" and dtype.itemsize <= 2:
        return np.dtype(np.float32)
    return np.dtype(np.float64)


def tile_bytes(dtype: np.dtype[Any], n_rows: int, n_columns: int) -> int:
    """Return the bytes of the largest tile of a block; 0 if rows are not converted."""
    worked = working_dtype(dtype)
    return 0 if worked == dtype else worked.itemsize * n_columns * min(n_rows, _step(n_columns))


def _step(n_columns: int) -> int:
    return SEGMENT * max(1, _TILE // (SEGMENT * max(1, n_columns)))


def tiles_of(start: int, size: int, n_columns: int) -> Iterator[tuple[int, int]]:
    """Yield local bounds of tiles.  Tiles end at multiples of ``SEGMENT`` global rows.

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
    """A chunk that is computed on demand, and again after a temporary failure.

    Schedulers do not see the keys of its graph.  A group of a thousand chunks is one task,
    which has one chunk in memory at a time.
    """

    graph: Mapping[Any, Any]
    key: Any
    retries: Retries = NEVER_AGAIN
    #: Fingerprints of the sources that the chunk reads, as the client saw them, if known.
    seen: tuple[Seen, ...] = ()

    def load(self) -> Any:
        return read(self._compute, self.key, self.graph, self.retries)

    def load_with(self, names: Sequence[Any], *values: Any) -> Any:
        """Compute the chunk from values that its graph lacks."""
        return replace(self, graph={**self.graph, **dict(zip(names, values, strict=True))}).load()

    def _compute(self) -> Any:
        for source in self.seen:
            source.check()
        return dask.get(self.graph, self.key)


def _check_numbers(dtype: np.dtype[Any]) -> None:
    if dtype.kind not in _NUMBERS:
        raise ChunkError(
            f"A block must contain real numbers, as its metadata state, got dtype {dtype}. Use "
            "X.astype('float64') if its values are numbers."
        )


def as_matrix(x: Any, dtype: np.dtype[Any]) -> Any:
    """Return a chunk as a C-contiguous matrix; masked values become NaN, sparse rows stay sparse.

    >>> as_matrix(np.ma.masked_equal([[1, 2]], 2), np.dtype(np.float32))
    array([[ 1., nan]], dtype=float32)
    """
    if isinstance(x, SparseRows):
        _check_numbers(x.dtype)
        return x.astype(dtype)
    if type(x) is not np.ndarray:
        _check_dense(x)
        if np.ma.is_masked(x):
            x = np.ma.filled(x.astype(dtype), np.nan)
    _check_numbers(x.dtype)
    if x.dtype == dtype or x.dtype.kind == "O":
        return np.ascontiguousarray(x, dtype=dtype)
    return converted(x, dtype)


def _check_dense(x: Any) -> None:
    if issparse(x):
        raise TypeError(
            "A block must be a dense array, as its metadata state, got a SciPy sparse matrix "
            f"({type(x).__name__}). Use map_blocks(..., meta=scipy.sparse.csr_array((0, 0))) for "
            "an estimator that takes sparse rows, otherwise "
            "X.map_blocks(lambda block: block.toarray())."
        )
    if not hasattr(x, "dtype"):
        raise ChunkError(
            f"A block must be an array, as its metadata state, got {type(x).__name__}. Use "
            "X.map_blocks(numpy.asarray)."
        )


def sparse_block(x: Any, start: int) -> SparseRows:
    """Return a chunk of an array whose metadata state sparse blocks."""
    if isinstance(x, SparseRows):
        return x
    if not issparse(x):
        raise ChunkError(
            f"The block at row {start} must be a SciPy sparse matrix, as its metadata state, got "
            f"{type(x).__name__}. Use map_blocks(..., meta=numpy.empty((0, 0)))."
        )
    try:
        return SparseRows.of(x)
    except ValueError as error:
        raise ChunkError(f"The block at row {start} is not a valid matrix: {error}.") from error


def check_shape(x: Any, start: int, n_columns: int | None, n_rows: int | None = None) -> None:
    """Raise ChunkError if the shape of a block differs from its metadata: kernels rely on it."""
    if type(x) is not np.ndarray and not isinstance(x, SparseRows):
        _check_dense(x)
    if n_columns is not None and x.shape[1:] != (n_columns,):
        raise ChunkError(
            f"The block at row {start} must have {n_columns} columns, as its metadata state, got "
            f"shape {x.shape}. If a function in map_blocks changes the columns, declare it: "
            "map_blocks(f, chunks=(X.chunks[0], (n_columns,)))."
        )
    if n_rows is not None and len(x) != n_rows:
        raise ChunkError(
            f"The block at row {start} must have {n_rows} rows, as its metadata state, got "
            f"{len(x)}. Either the data changed while they were read, or a function in map_blocks "
            "changes the number of rows."
        )


def check_vector(values: Any, what: str) -> None:
    if np.ndim(values) != 1:
        raise ChunkError(
            f"A block of {what} must have one value per row, shape (n,), as its metadata state, "
            f"got shape {np.shape(values)}."
        )


@dataclass(frozen=True)
class Prepare:
    """Convert a chunk to the rows that kernels take.

    `transform` maps the rows to another space, in which the metric is Euclidean.  `version` is the
    version of daskclust on the client.
    """

    dtype: np.dtype[Any]
    transform: Any = None
    n_columns: int | None = None
    #: True if the chunks are SciPy matrices.
    sparse: bool = False
    version: str = _version.__version__

    def __call__(
        self, x: Any, weight: Floats | None, runs: tuple[tuple[int, int], ...] = ()
    ) -> RowBlock:
        if self.version != _version.__version__:
            raise ClusterError(
                f"Workers must have daskclust {self.version} like the client, got "
                f"{_version.__version__} on {platform.node()}: results of two versions cannot be "
                "added. Install the same version everywhere (daskclust doctor compares them)."
            )
        rows = RowBlock(as_matrix(x, self.dtype), weight, runs)
        return rows if self.transform is None else in_space(rows, self.transform)


@dataclass(frozen=True)
class Block:
    """A block of rows; `x` and `weight` are arrays or lazy chunks.

    `skip`: local rows excluded from sums. `computed`: True if the values in memory are results
    that Dask may compute again. `tally`: sums of the values that are read. `totals`: these sums for
    values in memory.
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
        if prepare.sparse:
            x = sparse_block(x, self.start)
        check_shape(x, self.start, prepare.n_columns, self.size)
        weight = self.weight.load() if isinstance(self.weight, LazyChunk) else self.weight
        if weight is not None:
            check_vector(weight, "sample_weight")
            if np.ma.is_masked(weight):
                # Masked weights become NaN, for which the first pass raises an error.
                weight = np.ma.filled(weight.astype(np.float64), np.nan)
            try:
                weight = np.ascontiguousarray(weight, dtype=np.float64)
            except (TypeError, ValueError) as error:
                raise ChunkError(
                    f"The block of sample_weight at row {self.start} must contain numbers "
                    f"({error}). Use fillna(0) for missing weights."
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
        """Yield bounds and values of tiles and tally them; unconverted rows are a single tile."""
        is_ready = self.x.dtype == prepare.dtype
        bounds = [(0, self.size)] if is_ready else tiles_of(self.start, self.size, self.x.shape[1])
        for low, high in bounds:
            x = as_matrix(self.x[low:high], prepare.dtype)
            if self.tally is not None:
                self.tally.add(x)
            yield low, high, x

    def tiles(self, prepare: Prepare) -> Iterator[RowBlock]:
        """Yield the rows as kernels take them, one tile at a time if they are converted."""
        for low, high, x in self._matrices(prepare):
            weight = None if self.weight is None else self.weight[low:high]
            yield prepare(x, weight, ((self.start + low, high - low),))

    def count_rest(self, prepare: Prepare) -> None:
        """Tally the values of rows that are not used."""
        if self.tally is not None:
            for _ in self._matrices(prepare):
                pass

    def append_totals(self, loaded: Block, totals: list[Array]) -> None:
        """Append the totals of this block, after it was fetched and read, to `totals`."""
        if loaded.tally is not None:
            if not self.is_lazy:
                # The values in memory are added up once per computation of these values.
                vars(self)["totals"] = loaded.tally.record
            totals.append(loaded.tally.record)
        elif self.totals is not None:
            totals.append(self.totals)

    def _check_weights(self, weight: Any) -> None:
        if len(weight) != self.size:
            raise ValueError(
                f"The block at row {self.start} must have one weight per row, got {self.size} rows "
                f"and {len(weight)} weights. Use the same chunks for X and sample_weight."
            )

    def part(self, low: int, high: int) -> Block:
        if (low, high) == (0, self.size):
            return self
        # Slicing would hide that a loaded block has too many rows.
        check_shape(self.x, self.start, None, self.size)
        skip, weight = self.skip, self.weight
        if skip is not None:
            skip = skip[np.searchsorted(skip, low) : np.searchsorted(skip, high)] - low
        if weight is not None:
            self._check_weights(weight)
            weight = weight[low:high]
        rows = Block(self.start + low, high - low, self.x[low:high], weight, skip, self.computed)
        return rows if self.tally is None else replace(rows, tally=self.tally)


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
        """Return the rows in sorted, disjoint ranges; a lazy block is never cut."""
        blocks = []
        for block in self.blocks:
            end = block.start + block.size
            for start, stop in ranges:
                low, high = max(start, block.start), min(stop, end)
                if low < high:
                    blocks.append(block.part(low - block.start, high - block.start))
        return Group(blocks)

    def load(self, prepare: Prepare, totals: list[Array]) -> Iterator[RowBlock]:
        """Yield blocks in order.  Tiny neighbors are joined, and lazy blocks are read ahead.

        The totals of blocks that may be computed again are appended to `totals`.
        """
        return _join_tiny(self._load_each(prepare, totals))

    def _load_each(self, prepare: Prepare, totals: list[Array]) -> Iterator[RowBlock]:
        if len(self.blocks) < 2 or not any(isinstance(b.x, LazyChunk) for b in self.blocks):
            for block in self.blocks:
                loaded = block.fetch(prepare)
                yield from loaded.tiles(prepare)
                block.append_totals(loaded, totals)
            return
        with ThreadPoolExecutor(1, "daskclust-read-ahead") as reader:
            reads = [reader.submit(self.blocks[0].fetch, prepare)]
            for i, block in enumerate(self.blocks):
                loaded = reads.pop().result()
                if i + 1 < len(self.blocks):
                    reads.append(reader.submit(self.blocks[i + 1].fetch, prepare))
                yield from loaded.tiles(prepare)
                block.append_totals(loaded, totals)
                del loaded


# Report a small size, because Dask already counts the arrays of the blocks.
sizeof.register(Group, lambda group: 1000)


def _join_tiny(blocks: Iterator[RowBlock]) -> Iterator[RowBlock]:
    """Join consecutive tiny blocks, because a kernel call costs as much as 100 rows."""
    tiny: list[RowBlock] = []
    n_tiny = 0
    for rows in blocks:
        n_rows = len(rows.x)
        if tiny and (n_rows >= _TINY or n_tiny >= _JOINED):
            yield _concatenate(tiny)
            tiny, n_tiny = [], 0
        if n_rows >= _TINY:
            yield rows
        else:
            tiny.append(rows)
            n_tiny += n_rows
    if tiny:
        yield _concatenate(tiny)


def _concatenate(tiny: list[RowBlock]) -> RowBlock:
    if len(tiny) == 1:
        return tiny[0]
    weight = None
    if any(rows.weight is not None for rows in tiny):
        weight = np.concatenate([np.ones(len(r.x)) if r.weight is None else r.weight for r in tiny])
    runs = tuple(run for rows in tiny for run in rows.runs)
    return RowBlock(concatenated([rows.x for rows in tiny]), weight, runs)


#: Key of a partial, in addition to the fields of the reduction: the totals of blocks read.
READ = "totals of blocks"


def fold(
    group: Group, prepare: Prepare, reduction: Reduction, state: Any, carry: Any = None
) -> tuple[Partial, list[Any] | None]:
    partial = reduction.identity(state)
    block_carries: list[Any] = []
    totals: list[Array] = []
    for position, rows in enumerate(group.load(prepare, totals)):
        block_carry = None if carry is None else carry[position]
        partial, block_carry = reduction.step(partial, rows, state, block_carry)
        block_carries.append(block_carry)
    return {**partial, READ: joined(totals)}, block_carries if reduction.carries else None


def merge(reduction: Reduction, state: Any, partials: Sequence[Partial]) -> Partial:
    """Merge partials in the given order; without partials, return the identity."""
    if not partials:
        return reduction.identity(state)
    merged = reduce(lambda a, b: reduction.combine(a, b, state), partials)
    return {**merged, READ: joined([partial[READ] for partial in partials])}


def collect_rows(group: Group, prepare: Prepare, rows: Ints) -> tuple[Ints, Any, Floats, Array]:
    """Return numbers, values and weights of the wanted rows, and the totals of the blocks read."""
    numbers, values, weights = [], [], []
    totals: list[Array] = []
    for block in group.blocks:
        first, last = np.searchsorted(rows, [block.start, block.start + block.size])
        if first == last:
            continue
        wanted = rows[first:last]
        loaded, local = replace(block, skip=None).fetch(prepare), wanted - block.start
        loaded.count_rest(prepare)
        block.append_totals(loaded, totals)
        numbers.append(wanted)
        prepared = prepare(loaded.x[local], None if loaded.weight is None else loaded.weight[local])
        values.append(prepared.x)
        weights.append(np.ones(len(local)) if prepared.weight is None else prepared.weight)
    if not numbers:
        return rows[:0], np.empty((0, 0)), np.empty(0), joined(totals)
    return (
        np.concatenate(numbers),
        concatenated(values),
        np.concatenate(weights),
        joined(totals),
    )


def over_blocks(
    group: Group, prepare: Prepare, function: Callable[[RowBlock], Array]
) -> list[tuple[int, Array]]:
    """Return the first row and the results of each chunk of a group."""
    pairs = []
    for rows in group.load(prepare, []):
        results = function(rows)
        starts = [start for start, _ in rows.runs]
        pairs += [(s, results[bounds]) for s, bounds in zip(starts, rows.slices(), strict=True)]
    return pairs


#: First row, and the row after the last one.
Range = tuple[int, int]


def joined_ranges(ranges: Sequence[Range]) -> list[Range]:
    """Join sorted ranges of rows that touch each other.

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
    """Return True if a row is in both lists of ranges, which are sorted and disjoint.

    >>> overlap([(0, 4), (9, 12)], [(4, 9)]), overlap([(0, 4)], [(3, 5)])
    (False, True)
    """
    stops = [stop for _, stop in others]
    for start, stop in ranges:
        i = bisect_right(stops, start)
        if i < len(others) and others[i][0] < stop:
            return True
    return False


def share_out(blocks: list[Block], n_groups: int) -> list[Group]:
    """Cut in-memory blocks into groups of about equal size, at multiples of ``SEGMENT`` rows."""
    total = sum(block.size for block in blocks)
    # Equal shares end at multiples of SEGMENT. Their ends are global row numbers, because the
    # blocks contain all rows.
    ends = [round(total * g / n_groups / SEGMENT) * SEGMENT for g in range(1, n_groups)]
    groups: list[list[Block]] = [[]]
    for block in blocks:
        n_taken = 0
        while n_taken < block.size:
            first = block.start + n_taken
            while len(groups) <= len(ends) and first >= ends[len(groups) - 1]:
                groups.append([])
            stop = ends[len(groups) - 1] if len(groups) <= len(ends) else total
            n_rows = min(stop - first, block.size - n_taken)
            groups[-1].append(block.part(n_taken, n_taken + n_rows))
            n_taken += n_rows
    return [Group(part) for part in groups if part]
