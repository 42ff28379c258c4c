"""What estimators see of data: their shape, the passes over them, a count of the passes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from daskclust.reduction import Reduction

__all__ = ["Rows"]

T = TypeVar("T")


class Rows(ABC):
    """A handle to the rows of a data set; it has no state of its own.

    Attributes
    ----------
    lengths : tuple of int
        Rows of each chunk, empty chunks included.
    n_rows, n_features : int
    """

    lengths: tuple[int, ...]
    n_rows: int
    n_features: int

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """Precision of the distance work: float32 or float64."""

    @property
    @abstractmethod
    def passes(self) -> int:
        """Passes over the data so far."""

    @abstractmethod
    def can_keep(self, bytes_a_row: int) -> bool:
        """Whether so much may be kept for each row between passes."""

    def reduce(self, reduction: Reduction, state: Any) -> Any:
        """Make one pass and return the finalized result."""
        return self.scan(reduction, state, None)[0]

    @abstractmethod
    def scan(self, reduction: Reduction, state: Any, carry: Any) -> tuple[Any, Any]:
        """Make one pass with what each block kept from the last; return (result, carry)."""

    @abstractmethod
    def collect(self, name: str, function: Callable[..., T], *arguments: Any) -> list[T]:
        """Make one pass and return what ``function`` makes of each group of blocks.

        For partials whose size the data decide; anything else is a `reduce`.

        Parameters
        ----------
        name : str
            Appears in Dask keys.
        function : callable(blocks, *arguments)
            Of an iterator of :class:`RowBlock`, in row order; picklable.
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
