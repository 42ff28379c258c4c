"""What a distributed algorithm is made of: the :class:`Reduction`.

Every algorithm of the package is the same loop: broadcast a small state, map a
pure function over row blocks, merge fixed-size partial statistics, finalize.  A
reduction names these pieces; the engine runs them.  It obeys laws that are
tested for every instance: ``identity`` is neutral, ``combine`` is associative,
the result does not depend on where blocks are cut (empty blocks included), an
integer weight equals repetition, and inputs are never written to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust.kernels.compensated import add_pairs
from daskclust.kernels.moments import merge_moments
from daskclust.kernels.nearest.assign import SEGMENT
from daskclust.kernels.rng import row_uniforms

__all__ = ["Field", "Partial", "Reduction", "RowBlock", "smallest_keys", "top_dtype"]

Partial = dict[str, NDArray[Any]]
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

    x: NDArray[Any]
    weight: NDArray[np.float64] | None
    runs: tuple[tuple[int, int], ...]

    def numbers(self, local: NDArray[np.intp]) -> NDArray[np.int64]:
        """Global numbers of rows given by their place in this block."""
        starts = np.array([start for start, _ in self.runs], dtype=np.int64)
        offsets = np.cumsum([0] + [size for _, size in self.runs])
        run = np.searchsorted(offsets, local, side="right") - 1
        return starts[run] + (local - offsets[run])

    def slices(self) -> list[slice]:
        """Places of the chunks, for sums that shall not show how chunks were joined."""
        ends = np.cumsum([0] + [size for _, size in self.runs]).tolist()
        return [slice(start, stop) for start, stop in pairwise(ends)]

    def uniforms(self, seed: int, round_: int) -> NDArray[np.float64]:
        """Draw a uniform number for each row (:func:`daskclust.kernels.rng.row_uniforms`)."""
        parts = [row_uniforms(seed, round_, start, size) for start, size in self.runs]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def segments(self) -> NDArray[np.int64]:
        """Where plain sums end: chunks, cut at multiples of ``SEGMENT`` global rows.

        So sums depend on the chunks alone, not on how they were grouped.
        """
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
    shape : tuple of int
    merge : {"sum", "count", "moments", "min", "max", "top"}
        ``"sum"``: unevaluated pairs ``hi + lo``, so ``shape[0]`` is 2 and the
        total does not depend on the order of merging.  ``"count"``: unsigned
        integers, summed modulo their range.  ``"moments"``: rows weight, mean and
        squared deviations.  ``"top"``: records of
        :func:`top_dtype`, of which the smallest keys stay.
    dtype : dtype, default=float64
    """

    shape: tuple[int, ...]
    merge: Literal["sum", "count", "moments", "min", "max", "top"] = "sum"
    dtype: Any = np.float64

    @property
    def nbytes(self) -> int:
        """Bytes of one array of this field."""
        return int(np.prod(self.shape)) * np.dtype(self.dtype).itemsize

    def identity(self) -> NDArray[Any]:
        """Return the neutral element of the merge."""
        if self.merge == "top":
            empty = np.zeros(self.shape, self.dtype)
            empty["key"] = np.inf
            empty["row"] = -1
            return empty
        if self.merge in ("sum", "count", "moments"):
            return np.zeros(self.shape, self.dtype)
        kind = np.dtype(self.dtype)
        low, high = (
            (-np.inf, np.inf) if kind.kind == "f" else (np.iinfo(kind).min, np.iinfo(kind).max)
        )
        return np.full(self.shape, high if self.merge == "min" else low, kind)

    def combine(self, a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
        """Merge two arrays of this field."""
        if self.merge == "sum":
            return np.stack(add_pairs((a[0], a[1]), (b[0], b[1])))
        if self.merge == "count":
            return a + b
        if self.merge == "moments":
            return merge_moments(a, b)
        if self.merge == "min":
            return np.minimum(a, b)
        if self.merge == "max":
            return np.maximum(a, b)
        return smallest_keys(np.concatenate([a, b], axis=-1), self.shape[-1])


def top_dtype(p: int) -> np.dtype:
    """Record of a chosen row: its key, its global number (-1 = none) and its values.

    Examples
    --------
    >>> top_dtype(3).names
    ('key', 'row', 'x')
    """
    return np.dtype([("key", np.float64), ("row", np.int64), ("x", np.float64, (p,))])


def smallest_keys(records: NDArray[Any], count: int) -> NDArray[Any]:
    """Return the ``count`` records of smallest key, ties by row number, along the last axis.

    Parameters
    ----------
    records : structured ndarray of shape (..., m)
        Of :func:`top_dtype`.
    count : int
        At most m.
    """
    if not len(records):
        return records[..., :count]
    if records.ndim == 1:
        order = np.lexsort((records["row"], records["key"]))[:count]
        return records[order]
    return np.stack([smallest_keys(part, count) for part in records])


def _partial_only(block: Callable[..., Any], rows: RowBlock, state: State) -> Partial:
    made: Partial = block(rows, state, None)[0]
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
        beforehand.
    block : callable(rows, state) or callable(rows, state, carry)
        Partial of one :class:`RowBlock`.  A reduction with ``carries`` takes the
        block's carry (``None`` at first) and returns ``(partial, carry)``.
    finalize : callable(partial, state) -> Any
        What the merged partial means.
    carries : bool, default=False
        Whether each block keeps an array of its own length between passes.  A
        carry is a cache of what could be computed again, never new information.
    """

    name: str
    fields: Callable[[State], Mapping[str, Field]]
    block: Callable[..., Any]
    finalize: Callable[[Partial, State], Any]
    carries: bool = False

    def identity(self, state: State) -> Partial:
        """Return the partial of no rows at all."""
        return {name: field.identity() for name, field in self.fields(state).items()}

    def combine(self, a: Partial, b: Partial, state: State) -> Partial:
        """Merge two partials; associative, and exact to the last bits in any order."""
        # Infinities and overflow are found by the check of the values, not by NumPy's warnings.
        with np.errstate(invalid="ignore", over="ignore"):
            return {name: f.combine(a[name], b[name]) for name, f in self.fields(state).items()}

    def without_carry(self) -> Reduction:
        """Return the same reduction for data too long to keep anything for each row."""
        return replace(self, carries=False, block=partial(_partial_only, self.block))

    def nbytes(self, state: State) -> int:
        """Bytes of one partial: what each task sends."""
        return sum(field.nbytes for field in self.fields(state).values())
