"""The rows of a data set as estimators see them: a handle through which passes are made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust._progress import begin_pass
from daskclust._types import Floats, Ints
from daskclust.engine.blocks import (
    Prepare,
    collect_rows,
    in_row_order,
    joined_ranges,
    over_blocks,
    working_dtype,
)
from daskclust.engine.checkpoint import StartLog, content_hash
from daskclust.engine.executors import Executor
from daskclust.kernels.nearest.assign import SEGMENT
from daskclust.reduction import Reduction, RowBlock


@dataclass
class PassRecord:
    """Count and log of the passes over the same data, shared by all views of them.

    ``log`` keeps the passes that are made, and answers those that an earlier process made.
    """

    passes: int = 0
    log: StartLog | None = None


@dataclass
class Carry:
    """What blocks keep from one pass for the next, where it lies: it only saves work.

    None where nothing is kept, and where the answer was that of an earlier process.
    """

    held: Any = None


class Rows(ABC):
    """A handle to the rows of a data set.

    `lengths` are the rows of each chunk, empty ones included.
    """

    pass_record: PassRecord
    lengths: tuple[int, ...]
    n_rows: int
    n_features: int
    #: Precision of the distance work: float32 or float64.
    dtype: np.dtype[Any]

    @property
    def dashboard(self) -> str | None:
        """Address of the dashboard of the cluster that makes the passes, if there is one."""
        return None

    @property
    def passes(self) -> int:
        """Passes over the data so far, by all views of them."""
        return self.pass_record.passes

    @passes.setter
    def passes(self, count: int) -> None:
        self.pass_record.passes = count

    @contextmanager
    def logged(self, log: StartLog | None) -> Iterator[None]:
        """Keep the passes of all views of these data, and answer those that are kept.

        Reductions only: what else passes bring home is as long as the data decide.
        """
        before, self.pass_record.log = self.pass_record.log, log
        try:
            yield
        finally:
            self.pass_record.log = before

    def kept(
        self,
        question: Any,
        make: Callable[[], dict[str, NDArray[Any]]],
        shapes: Mapping[str, tuple[int | None, ...]],
    ) -> dict[str, NDArray[Any]]:
        """Return arrays that take long to make: those of an earlier process, if it kept them.

        `question` is all that the arrays depend on beside the rows. `shapes` are those of all
        arrays, which are float64, with None for a length that the data decide.
        """
        log = self.pass_record.log
        if log is None:
            return make()
        name = content_hash(question)
        found = log.recall_stage(name, shapes)
        if found is None:
            found = make()
            log.note_stage(name, found)
        return found

    @abstractmethod
    def can_keep(self, bytes_a_row: int) -> bool:
        """Whether so much may be kept for each row between passes."""

    @abstractmethod
    def reduce(self, reduction: Reduction, state: Any, carry: Carry | None = None) -> Any:
        """Make one pass and return the finalized result.

        `carry`: where the reduction carries: what blocks kept from the last pass, and from this.
        """

    @abstractmethod
    def only(self, blocks: Sequence[int]) -> Rows:
        """Return some of the blocks, for passes over a part of the data."""

    @abstractmethod
    def map(self, name: str, function: Callable[[RowBlock], NDArray[Any]]) -> NDArray[Any]:
        """Make one pass and return one result a row, in row order.

        For rows that the client holds anyway; results as long as lazy data stay with
        the workers (:func:`daskclust.engine.map_rows`).
        """

    @abstractmethod
    def take(self, rows: Ints) -> tuple[NDArray[Any], Floats]:
        """Fetch rows by (sorted, unique) global number: values and weights."""

    @abstractmethod
    def excluding(self, rows: Ints) -> Rows:
        """Return the same data with some (sorted, unique) rows left out of sums."""

    @abstractmethod
    def transformed(self, transform: Any) -> Rows:
        """Return the same data with each block passed through ``transform``, if any.

        One that changes the number of columns says so by ``n_columns``.
        """


class OpenRows(Rows):
    """Row blocks of a data set, bound to where their passes run."""

    def __init__(
        self,
        executor: Executor,
        dtype: np.dtype[Any],
        lengths: tuple[int, ...],
        n_features: int,
        keepable: float = np.inf,
    ) -> None:
        self._executor = executor
        self._prepare = Prepare(working_dtype(dtype), n_columns=n_features)
        self.lengths = lengths
        self.n_rows = sum(lengths)
        self.n_features = n_features
        self.dtype = self._prepare.dtype
        self.pass_record = PassRecord()
        self._keepable = keepable

    @property
    def dashboard(self) -> str | None:
        client = getattr(self._executor, "client", None)
        return None if client is None else client.dashboard_link

    def can_keep(self, bytes_a_row: int) -> bool:
        # Two generations exist while one follows from the other.  Data much larger
        # than memory leave no memory for that; what is not kept is worked out again.
        return 2 * bytes_a_row * self.n_rows <= self._keepable

    def _begin(self, name: str) -> None:
        self.pass_record.passes += 1
        begin_pass(name, self.pass_record.passes)

    def reduce(self, reduction: Reduction, state: Any, carry: Carry | None = None) -> Any:
        carry = Carry() if carry is None else carry
        self._begin(reduction.name)
        log = self.pass_record.log
        known = None if log is None else log.recall(reduction, state)
        if known is not None:
            carry.held = None
            return reduction.finalize(known, state)
        partial, carry.held = self._executor.reduce(self._prepare, reduction, state, carry.held)
        if log is not None:
            log.note(reduction, state, partial)
        return reduction.finalize(partial, state)

    def map(self, name: str, function: Callable[[RowBlock], NDArray[Any]]) -> NDArray[Any]:
        self._begin(name)
        return in_row_order(self._executor.map(name, over_blocks, self._prepare, function))

    def take(self, rows: Ints) -> tuple[NDArray[Any], Floats]:
        """Fetch rows by (sorted, unique) global number: values and weights.

        One pass that reads only the chunks concerned (all of them where blocks
        share costly tasks); cost of the client: ``len(rows) x p``.
        """
        self._begin("take")
        parts = self._executor.map("take", collect_rows, self._prepare, rows)
        parts = [part for part in parts if len(part[0])]
        if not parts:
            return np.empty((0, self.n_features), self.dtype), np.empty(0)
        numbers, values, weights = (
            np.concatenate(of_parts) for of_parts in zip(*parts, strict=True)
        )
        # Groups of arrays in memory follow one another: nothing to move.
        if (numbers[1:] < numbers[:-1]).any():
            order = np.argsort(numbers, kind="stable")
            values, weights = values[order], weights[order]
        return values, weights

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

        `blocks` are positions in :attr:`blocks`, at least one; order and repetition do not matter.
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
        return self._view(_executor=executor, lengths=lengths, n_rows=sum(lengths))

    def excluding(self, rows: Ints) -> Rows:
        if not len(rows):
            return self
        return self._view(_executor=self._executor.excluding(np.asarray(rows, dtype=np.int64)))

    def transformed(self, transform: Any) -> Rows:
        prepare = replace(self._prepare, transform=transform)
        n_features = getattr(transform, "n_columns", self.n_features)
        return self._view(_prepare=prepare, n_features=n_features)

    def _view(self, **changes: Any) -> OpenRows:
        view = copy(self)
        vars(view).update(changes)
        return view
