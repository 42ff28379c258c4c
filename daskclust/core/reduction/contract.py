"""The part that distributed algorithms are made of: the :class:`Reduction`.

Its laws are tested for every instance: ``identity`` is neutral, ``combine`` is associative, the
result does not depend on where blocks are cut (empty blocks included), an integer weight equals
repetition, and inputs are never written to.
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
    """A rule by which two arrays become one: a commutative monoid, up to rounding.

    :func:`daskclust.testing.check_merge_laws` tests what is asked of it.

    Parameters
    ----------
    name : str
        For messages.
    identity : callable(shape, dtype) -> ndarray
        The neutral element.  An axis whose length the data decide is 0 long.
    combine : callable(a, b) -> ndarray
        Associative and commutative; writes to neither.  A function of a module, so
        that it can be pickled.

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
    """Record of a chosen row: its key, its global number (-1 = none) and its values."""
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
    both = np.concatenate([a, b], axis=-1)
    order = np.lexsort((both["row"], both["key"]), axis=-1)[..., : a.shape[-1]]
    chosen: Array = np.take_along_axis(both, order, axis=-1)
    return chosen


#: Unevaluated pairs ``hi + lo``, so the first axis is 2 long: the total does not depend on the
#: order of merging.
SUM = Merge("sum", np.zeros, add_stacked)
#: Unsigned integers, summed modulo their range.
COUNT = Merge("count", np.zeros, np.add)
#: Rows weight, mean and squared deviations.
MOMENTS = Merge("moments", np.zeros, merge_moments)
MIN = Merge("min", _highest, np.minimum)
MAX = Merge("max", _lowest, np.maximum)
#: Records of :func:`top_dtype` along the last axis: those of smallest key stay, ties by row number,
#: as many as the first has.
TOP = Merge("top", _no_rows, _top)

#: Kinds that may be given by name.
MERGES = {merge.name: merge for merge in (SUM, COUNT, MOMENTS, MIN, MAX, TOP)}


Partial = dict[str, Array]
State = Any


class RowBlock(NamedTuple):
    """Rows as the kernels see them: one chunk, or several tiny ones joined.

    Attributes
    ----------
    x : ndarray of shape (n, p), float32 or float64, C-contiguous
    weight : ndarray of shape (n,), float64, or None
        Row weights; ``None`` means 1 for all.
    runs : tuple of (start, size)
        Global number of the first row and length of each chunk.
    """

    x: Array
    weight: Floats | None
    runs: tuple[tuple[int, int], ...]

    def numbers(self, local: NDArray[np.intp]) -> Ints:
        """Global numbers of rows given by their place in this block."""
        starts = np.array([start for start, _ in self.runs], dtype=np.int64)
        offsets = np.cumsum([0] + [size for _, size in self.runs])
        run = np.searchsorted(offsets, local, side="right") - 1
        return starts[run] + (local - offsets[run])

    def slices(self) -> list[slice]:
        """Places of the chunks, for sums that shall not show how chunks were joined."""
        ends = np.cumsum([0] + [size for _, size in self.runs]).tolist()
        return [slice(start, stop) for start, stop in pairwise(ends)]

    def uniforms(self, seed: int, round_: int) -> Floats:
        """Draw a uniform number for each row (:func:`daskclust.core.kernels.rng.row_uniforms`)."""
        parts = [row_uniforms(seed, round_, start, size) for start, size in self.runs]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def segments(self) -> Ints:
        """Where plain sums end: chunks, cut at multiples of ``SEGMENT`` rows, however grouped."""
        ends, offset = [], 0
        for start, size in self.runs:
            first = SEGMENT - start % SEGMENT
            ends.append(np.append(np.arange(first, size, SEGMENT), size) + offset)
            offset += size
        return np.concatenate(ends).astype(np.int64)


@dataclass(frozen=True)
class Field:
    """One array of a partial: its shape, its type and how two of them merge.

    Parameters
    ----------
    shape : tuple of int or None
        ``None`` for the first axis: the data decide how long it is, as in a table of
        the labels that occur.  The declaration of such a field states its bound.
    merge : Merge or {"sum", "count", "moments", "min", "max", "top"}
        Names stand for the instances of :mod:`daskclust.core.reduction.contract`; any other
        :class:`~daskclust.core.reduction.contract.Merge` will do as well.
    dtype : dtype, default=float64

    Raises
    ------
    ValueError
        For a name that stands for no merge.
    """

    shape: tuple[int | None, ...]
    merge: Merge | str = "sum"
    dtype: Any = np.float64
    #: How two arrays of this field merge.
    rule: Merge = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        rule = MERGES.get(self.merge) if isinstance(self.merge, str) else self.merge
        if rule is None:
            raise ValueError(
                f"merge={self.merge!r} stands for no merge; expected a Merge or one of "
                f"{sorted(MERGES)}."
            )
        vars(self).update(rule=rule)

    @property
    def is_fixed(self) -> bool:
        """Whether the size is known before the data are seen."""
        return None not in self.shape

    @property
    def nbytes(self) -> int:
        """Bytes of one array of this field; 0 where the data decide."""
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
    made: Partial = block(rows, state, *before, None)[0]
    return made


@dataclass(frozen=True)
class Reduction:
    """A map-reduce over row blocks, as data.

    Parameters
    ----------
    name : str
        Appears in Dask keys (``daskclust-<name>``), hence on the dashboard.
    fields : callable(state) -> {str: Field}
        Shapes and merges of a partial; fixed by the state, so memory is known
        beforehand (but for fields whose size the data decide).
    block : callable(rows, state[, before][, held])
        Partial of one :class:`RowBlock`.  One that is ``sequential`` takes the partial of
        the blocks before it.  One that ``carries`` takes last what the block held (``None`` at
        first), and returns ``(partial, held)``.
    finalize : callable(partial, state) -> Any
        What the merged partial means.
    carries : bool, default=False
        Whether each block keeps an array of its own length between passes.  A
        carry is a cache of what could be computed again, never new information.
    sequential : bool, default=False
        Whether a block is worked through in the light of the blocks before it in its
        group: ``block`` is handed their partial and returns it with its own rows
        added, writing to nothing.  For algorithms that go by row order, and for those that
        need not look at rows that others have beaten; groups are merged as ever.  How rows
        are grouped must not show in a result that is used: the laws hold for states that
        already tell a group what it needs to know of the others.
    """

    name: str
    fields: Callable[[State], Mapping[str, Field]]
    block: Callable[..., Any]
    finalize: Callable[[Partial, State], Any]
    carries: bool = False
    sequential: bool = False

    def identity(self, state: State) -> Partial:
        """Return the partial of no rows at all."""
        return {name: field.identity() for name, field in self.fields(state).items()}

    def add(self, before: Partial, rows: RowBlock, state: State) -> Partial:
        """Return the partial of the blocks so far with that of one more block; no carry."""
        return self.step(before, rows, state)[0]

    def step(
        self, before: Partial, rows: RowBlock, state: State, held: Any = None
    ) -> tuple[Partial, Any]:
        """Return the partial of the blocks so far with one more, and what that block holds."""
        ahead = (before,) if self.sequential else ()
        if self.carries:
            made, held = self.block(rows, state, *ahead, held)
        else:
            made, held = self.block(rows, state, *ahead), None
        return (made if self.sequential else self.combine(before, made, state)), held

    def combine(self, a: Partial, b: Partial, state: State) -> Partial:
        """Merge two partials; associative, and exact to the last bits in any order."""
        # Infinities and overflow are found by the check of the values, not by NumPy's warnings.
        with np.errstate(invalid="ignore", over="ignore"):
            return {name: f.combine(a[name], b[name]) for name, f in self.fields(state).items()}

    def without_carry(self) -> Reduction:
        """Return the same reduction for data too long to keep anything for each row."""
        return replace(self, carries=False, block=partial(_partial_only, self.block))

    def nbytes(self, state: State) -> int:
        """Bytes of one partial, fields whose size the data decide apart: what each task sends."""
        return sum(field.nbytes for field in self.fields(state).values())
