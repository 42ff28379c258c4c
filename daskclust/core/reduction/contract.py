"""The building block of distributed algorithms: the :class:`Reduction`.

Tests check these laws for every instance.  ``identity`` is neutral, and ``combine`` is associative.
The result does not depend on the blocks, which may be empty.  An integer weight is equivalent to
repeating a row.  Inputs are never modified.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Floats, Ints
from daskclust.core.kernels.compensated import add_stacked
from daskclust.core.kernels.moments import merge_moments
from daskclust.core.kernels.nearest.assign import SEGMENT
from daskclust.core.kernels.rng import row_uniforms


@dataclass(frozen=True)
class Merge:
    """Rule that merges two arrays to one: a commutative monoid, up to rounding.

    :func:`daskclust.testing.check_merge_laws` tests these laws.

    Parameters
    ----------
    name : str
        Name of the merge, for messages.
    identity : callable(shape, dtype) -> ndarray
        The neutral element.  An axis whose length depends on the data has length 0.
    combine : callable(a, b) -> ndarray
        Associative and commutative function that does not modify its arguments.  It must be a
        function of a module, so that it can be pickled.

    Examples
    --------
    >>> import numpy as np
    >>> product = Merge("product", np.ones, np.multiply)
    >>> product.combine(product.identity((2,), float), np.array([2.0, 3.0]))
    array([2., 3.])
    """

    name: str
    identity: Callable[[tuple[int, ...], Any], Array]
    combine: Callable[[Array, Array], Array]


def top_dtype(p: int) -> np.dtype:
    """Return the record type of a chosen row: key, global number (-1 = none) and values."""
    return np.dtype([("key", np.float64), ("row", np.int64), ("x", np.float64, (p,))])


def _highest(shape: tuple[int, ...], dtype: Any) -> Array:
    kind = np.dtype(dtype)
    return np.full(shape, np.inf if kind.kind == "f" else np.iinfo(kind).max, kind)


def _lowest(shape: tuple[int, ...], dtype: Any) -> Array:
    kind = np.dtype(dtype)
    return np.full(shape, -np.inf if kind.kind == "f" else np.iinfo(kind).min, kind)


def _no_rows(shape: tuple[int, ...], dtype: Any) -> Array:
    empty = np.zeros(shape, dtype)
    empty["key"] = np.inf
    empty["row"] = -1
    return empty


def _top(a: Array, b: Array) -> Array:
    records = np.concatenate([a, b], axis=-1)
    order = np.lexsort((records["row"], records["key"]), axis=-1)[..., : a.shape[-1]]
    chosen: Array = np.take_along_axis(records, order, axis=-1)
    return chosen


#: Sums as pairs ``hi + lo`` along the first axis, which has length 2.  So totals do not depend on
#: the order of merging.
SUM = Merge("sum", np.zeros, add_stacked)
#: Unsigned integers, summed modulo their range.
COUNT = Merge("count", np.zeros, np.add)
#: Weight, mean and sum of squared deviations.
MOMENTS = Merge("moments", np.zeros, merge_moments)
MIN = Merge("min", _highest, np.minimum)
MAX = Merge("max", _lowest, np.maximum)
#: Records of :func:`top_dtype` along the last axis.  The result has as many records as the first
#: array, with the smallest keys and, for equal keys, the smallest row numbers.
TOP = Merge("top", _no_rows, _top)

#: Merges that can be selected by name.
MERGES = {merge.name: merge for merge in (SUM, COUNT, MOMENTS, MIN, MAX, TOP)}


Partial = dict[str, Array]
State = Any


class RowBlock(NamedTuple):
    """Rows in the form that kernels require: one chunk, or several tiny chunks that were joined.

    Attributes
    ----------
    x : ndarray of shape (n, p), float32 or float64, C-contiguous
        Or :class:`~daskclust.core.kernels.sparse.SparseRows`, for estimators that take them.
    weight : ndarray of shape (n,), float64, or None
        Row weights; ``None`` means weight 1 for all rows.
    runs : tuple of (start, size)
        Global number of the first row, and length, of each chunk.
    """

    x: Array
    weight: Floats | None
    runs: tuple[tuple[int, int], ...]

    def numbers(self, local: NDArray[np.intp]) -> Ints:
        """Return the global numbers of rows, given by their positions in this block."""
        starts = np.array([start for start, _ in self.runs], dtype=np.int64)
        offsets = np.cumsum([0] + [size for _, size in self.runs])
        run = np.searchsorted(offsets, local, side="right") - 1
        return starts[run] + (local - offsets[run])

    def slices(self) -> list[slice]:
        """Return the slices of the chunks, for sums that must not depend on joining chunks."""
        ends = np.cumsum([0] + [size for _, size in self.runs]).tolist()
        return [slice(start, stop) for start, stop in pairwise(ends)]

    def uniforms(self, seed: int, round_: int) -> Floats:
        """Draw a uniform number for each row (:func:`daskclust.core.kernels.rng.row_uniforms`)."""
        draws = [row_uniforms(seed, round_, start, size) for start, size in self.runs]
        return draws[0] if len(draws) == 1 else np.concatenate(draws)

    def segments(self) -> Ints:
        """Return the ends of segments, whose sums are not compensated.

        Segments end at ends of chunks and at multiples of ``SEGMENT`` rows.
        """
        ends, offset = [], 0
        for start, size in self.runs:
            first = SEGMENT - start % SEGMENT
            ends.append(np.append(np.arange(first, size, SEGMENT), size) + offset)
            offset += size
        return np.concatenate(ends).astype(np.int64)


@dataclass(frozen=True)
class Field:
    """Array of a partial: its shape, its type, and the rule by which two such arrays merge.

    Parameters
    ----------
    shape : tuple of int or None
        ``None`` for the first axis means that its length depends on the data, as in a table
        of labels.  The declaration of such a field states the maximum length.
    merge : Merge or {"sum", "count", "moments", "min", "max", "top"}
        Names select instances of :mod:`daskclust.core.reduction.contract`; any other
        :class:`~daskclust.core.reduction.contract.Merge` is also valid.
    dtype : dtype, default=float64

    Raises
    ------
    ValueError
        For an unknown name.
    """

    shape: tuple[int | None, ...]
    merge: Merge | str = "sum"
    dtype: Any = np.float64
    #: Rule that merges two arrays of this field.
    rule: Merge = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        rule = MERGES.get(self.merge) if isinstance(self.merge, str) else self.merge
        if rule is None:
            raise ValueError(
                f"merge must be a Merge or one of {sorted(MERGES)}, got {self.merge!r}."
            )
        vars(self).update(rule=rule)

    @property
    def is_fixed(self) -> bool:
        """True if the size does not depend on the data."""
        return None not in self.shape

    @property
    def nbytes(self) -> int:
        """Bytes of one array of this field; 0 if the size depends on the data."""
        return int(np.prod(self._least_shape)) * np.dtype(self.dtype).itemsize

    @property
    def _least_shape(self) -> tuple[int, ...]:
        return tuple(0 if size is None else size for size in self.shape)

    def identity(self) -> Array:
        """Return the neutral element of the merge."""
        return self.rule.identity(self._least_shape, self.dtype)

    def combine(self, a: Array, b: Array) -> Array:
        """Merge two arrays of this field."""
        return self.rule.combine(a, b)


def _partial_only(
    block: Callable[..., Any], rows: RowBlock, state: State, *before: Partial
) -> Partial:
    partial_result: Partial = block(rows, state, *before, None)[0]
    return partial_result


@dataclass(frozen=True)
class Reduction:
    """Map-reduce over blocks of rows, described by data.

    Parameters
    ----------
    name : str
        Part of the Dask keys (``daskclust-<name>``), which the dashboard shows.
    fields : callable(state) -> {str: Field}
        Shapes and merges of a partial.  They depend only on the state, so the memory is known
        in advance (except for fields whose size depends on the data).
    block : callable(rows, state[, before][, cache])
        Return the partial of one :class:`RowBlock`.  If ``sequential``, it gets the partial of
        the previous blocks.  If ``carries``, its last argument is the cache of the block (``None``
        at first), and it returns ``(partial, cache)``.
    finalize : callable(partial, state) -> Any
        Return the result of the merged partial.
    carries : bool, default=False
        If True, each block stores an array of its length between passes.  It is a cache of values
        that can be computed again.
    sequential : bool, default=False
        If True, a block is processed with the result of the previous blocks of its group:
        ``block`` gets their partial, and returns a new partial that includes its rows.  This is
        for algorithms that depend on the order of rows, and for algorithms that skip rows because
        of earlier rows.  Groups are merged as usual.  The result must not depend on the groups:
        the laws hold for states that contain all that a group needs to know about other groups.
    """

    name: str
    fields: Callable[[State], Mapping[str, Field]]
    block: Callable[..., Any]
    finalize: Callable[[Partial, State], Any]
    carries: bool = False
    sequential: bool = False

    def identity(self, state: State) -> Partial:
        """Return the partial of an empty set of rows."""
        return {name: field.identity() for name, field in self.fields(state).items()}

    def add(self, before: Partial, rows: RowBlock, state: State) -> Partial:
        """Return the partial of the previous blocks and one more block, without a cache."""
        return self.step(before, rows, state)[0]

    def step(
        self, before: Partial, rows: RowBlock, state: State, cache: Any = None
    ) -> tuple[Partial, Any]:
        """Return the partial of the previous and one more block, and the cache of that block."""
        previous = (before,) if self.sequential else ()
        if self.carries:
            block_partial, cache = self.block(rows, state, *previous, cache)
        else:
            block_partial, cache = self.block(rows, state, *previous), None
        return (
            block_partial if self.sequential else self.combine(before, block_partial, state)
        ), cache

    def combine(self, a: Partial, b: Partial, state: State) -> Partial:
        """Merge two partials; associative, and exact to the last bits in any order."""
        # The check of the values reports infinities and overflow, not NumPy's warnings.
        with np.errstate(invalid="ignore", over="ignore"):
            return {name: f.combine(a[name], b[name]) for name, f in self.fields(state).items()}

    def without_carry(self) -> Reduction:
        """Return the same reduction without caches, for data whose caches would not fit."""
        return replace(self, carries=False, block=partial(_partial_only, self.block))

    def nbytes(self, state: State) -> int:
        """Return the bytes of one partial that a task sends, without fields of variable size."""
        return sum(field.nbytes for field in self.fields(state).values())
