"""What estimators see of data: their shape, the passes over them, a count of the passes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust.engine.identity import content_hash
from daskclust.engine.start_log import StartLog
from daskclust.reduction import Reduction, RowBlock

__all__ = ["Ledger", "Rows"]


@dataclass
class Ledger:
    """What all views of the same data share: the count of passes, and where they are kept.

    Attributes
    ----------
    passes : int
    log : StartLog, optional
        Keeps the passes that are made, and answers those that an earlier process made.
    """

    passes: int = 0
    log: StartLog | None = None


class Rows(ABC):
    """A handle to the rows of a data set.

    Attributes
    ----------
    lengths : tuple of int
        Rows of each chunk, empty chunks included.
    n_rows, n_features : int
    ledger : Ledger
    """

    ledger: Ledger
    lengths: tuple[int, ...]
    n_rows: int
    n_features: int

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """Precision of the distance work: float32 or float64."""

    @property
    def dashboard(self) -> str | None:
        """Address of the dashboard of the cluster that makes the passes, if there is one."""
        return None

    @property
    def passes(self) -> int:
        """Passes over the data so far, by all views of them."""
        return self.ledger.passes

    @passes.setter
    def passes(self, count: int) -> None:
        self.ledger.passes = count

    @property
    def log(self) -> StartLog | None:
        """What keeps the passes at present, if anything."""
        return self.ledger.log

    @contextmanager
    def logged(self, log: StartLog | None) -> Iterator[None]:
        """Keep the passes of all views of these data, and answer those that are kept.

        Reductions only: what else passes bring home is as long as the data decide.
        """
        before, self.ledger.log = self.ledger.log, log
        try:
            yield
        finally:
            self.ledger.log = before

    def kept(
        self,
        question: Any,
        make: Callable[[], dict[str, NDArray[Any]]],
        shapes: Mapping[str, tuple[int, ...]],
    ) -> dict[str, NDArray[Any]]:
        """Return arrays that take long to make: those of an earlier process, if it kept them.

        Parameters
        ----------
        question : object
            All that the arrays depend on, beside the rows; equal for equal arrays.
        make : callable() -> dict of str to ndarray
            Called where they are not kept.
        shapes : mapping of str to tuple of int
            Of all arrays, which are float64.
        """
        log = self.ledger.log
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

    def reduce(self, reduction: Reduction, state: Any) -> Any:
        """Make one pass and return the finalized result."""
        return self.scan(reduction, state, None)[0]

    @abstractmethod
    def scan(self, reduction: Reduction, state: Any, carry: Any) -> tuple[Any, Any]:
        """Make one pass with what each block kept from the last; return (result, carry).

        A carry only saves work.  It is None where nothing is kept, and where the answer
        is that of an earlier process.
        """

    @abstractmethod
    def only(self, blocks: Sequence[int]) -> Rows:
        """Return some of the blocks, for passes over a part of the data."""

    @abstractmethod
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

    @abstractmethod
    def take(self, rows: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Fetch rows by (sorted, unique) global number: values and weights."""

    @abstractmethod
    def excluding(self, rows: NDArray[np.int64]) -> Rows:
        """Return the same data with some (sorted, unique) rows left out of sums."""

    @abstractmethod
    def transformed(self, transform: Any) -> Rows:
        """Return the same data with each block passed through ``transform``, if any."""
