"""Opening data: from whatever holds the rows to bound groups of blocks.

:class:`Rows` is what estimators see of the engine: the shape of the data, the
passes over them, and a count of those passes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, TypeVar

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from daskclust.engine.binding import bind, is_dask, working_dtype
from daskclust.engine.blocks import Block, Group, Prepare, collect_rows, over_blocks
from daskclust.engine.executors import Executor, ThreadExecutor, cpu_threads
from daskclust.engine.placement import share_out
from daskclust.reduction import Reduction

__all__ = ["OPENING", "Rows", "is_dask", "open_blank", "open_rows", "unwrap", "working_dtype"]

T = TypeVar("T")

#: Where fits share their passes: what :func:`open_rows` gives them for the shared data (None for
#: other data).
OPENING: ContextVar[Callable[[Any], Rows | None] | None] = ContextVar(
    "daskclust_opening", default=None
)

#: Values below which a second thread costs more than it saves.
_THREADING_SIZE = 2**18


def unwrap(X: Any) -> Any:
    """Return the array of a Dask DataFrame or Series, or of an xarray object."""
    if hasattr(X, "to_dask_array"):
        return X.to_dask_array()
    if hasattr(X, "dims") and hasattr(X, "data"):
        return X.data
    return X


class Rows:
    """Row blocks of a data set, and the passes over them.

    Attributes
    ----------
    lengths : tuple of int
        Rows of each chunk, empty chunks included.
    n_rows, n_features : int
    dtype : numpy.dtype
        In which distances are worked out: float32 or float64.
    """

    def __init__(
        self,
        executor: Executor,
        prepare: Prepare,
        lengths: tuple[int, ...],
        n_features: int,
        passes: list[int] | None = None,
        room: float = np.inf,
    ) -> None:
        self._executor = executor
        self._prepare = prepare
        self.lengths = lengths
        self.n_rows = sum(lengths)
        self.n_features = n_features
        self._passes = [0] if passes is None else passes
        self._room = room

    @property
    def dtype(self) -> np.dtype[Any]:
        """Precision of the distance work."""
        return self._prepare.dtype

    @property
    def passes(self) -> int:
        """Passes over the data so far."""
        return self._passes[0]

    def can_keep(self, bytes_a_row: int) -> bool:
        """Whether so much may be kept for each row between passes.

        Two generations exist while one follows from the other.  Data much larger
        than memory leave no room for that; what is not kept is worked out again.
        """
        return 2 * bytes_a_row * self.n_rows <= self._room

    def reduce(self, reduction: Reduction, state: Any) -> Any:
        """Make one pass and return the finalized result."""
        return self.scan(reduction, state, None)[0]

    def scan(self, reduction: Reduction, state: Any, carry: Any) -> tuple[Any, Any]:
        """Make one pass with what each block kept from the last; return (result, carry)."""
        self._passes[0] += 1
        partial, kept = self._executor.reduce(self._prepare, reduction, state, carry)
        return reduction.finalize(partial, state), kept

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
        self._passes[0] += 1
        found: list[T] = self._executor.map(name, over_blocks, self._prepare, function, arguments)
        return found

    def take(self, rows: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Fetch rows by (sorted, unique) global number: values and weights.

        One pass that reads only the chunks concerned (all of them where blocks
        share costly tasks); cost of the client: ``len(rows) x p``.
        """
        self._passes[0] += 1
        parts = self._executor.map("take", collect_rows, self._prepare, rows)
        parts = [part for part in parts if len(part[0])]
        if not parts:
            return np.empty((0, self.n_features), self.dtype), np.empty(0)
        numbers = np.concatenate([part[0] for part in parts])
        order = np.argsort(numbers, kind="stable")
        values = np.concatenate([part[1] for part in parts])[order]
        return values, np.concatenate([part[2] for part in parts])[order]

    def excluding(self, rows: NDArray[np.int64]) -> Rows:
        """Return the same data with some (sorted, unique) rows left out of sums."""
        if not len(rows):
            return self
        executor = self._executor.excluding(np.asarray(rows, dtype=np.int64))
        return Rows(
            executor, self._prepare, self.lengths, self.n_features, self._passes, self._room
        )

    def transformed(self, transform: Any) -> Rows:
        """Return the same data with each block passed through ``transform``."""
        prepare = replace(self._prepare, transform=transform)
        return Rows(
            self._executor, prepare, self.lengths, self.n_features, self._passes, self._room
        )


def _open_numpy(
    X: NDArray[Any], weight: NDArray[np.float64] | None, size: int | None = None
) -> Rows:
    n, p = X.shape
    prepare = Prepare(working_dtype(X.dtype))
    block = Block(0, n, X, weight)
    n_threads = cpu_threads() if (X.size if size is None else size) >= _THREADING_SIZE else 1
    groups = share_out([block], n_threads) if n_threads > 1 else [Group([block])]
    return Rows(ThreadExecutor(groups), prepare, (n,), p)


def _open_dask(X: Any, weight: Any) -> Rows:
    bound = bind(X, weight)
    prepare = Prepare(working_dtype(X.dtype))
    return Rows(bound.executor, prepare, bound.lengths, X.shape[1], room=bound.room)


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
    shared = OPENING.get()
    if shared is not None and sample_weight is None:
        opened = shared(X)
        if opened is not None:
            return opened
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
        rows = _open_dask(da.zeros((n, 0), chunks=(like.lengths, (0,)), dtype=like.dtype), None)
    else:
        rows = _open_numpy(np.empty((n, 0), like.dtype), None, n * p)
    rows.n_features = p
    return rows, da.zeros((n, p), chunks=(like.lengths, (p,)), dtype=like.dtype)
