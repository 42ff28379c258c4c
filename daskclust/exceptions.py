"""Errors and warnings of daskclust.

Every error derives from :class:`DaskclustError` and from the nearest builtin, so
``except ValueError`` keeps working.  A message states the value, the expectation
and the remedy.
"""

from __future__ import annotations

import pickle

__all__ = [
    "CheckpointError",
    "ChunkError",
    "ClusterError",
    "ConstraintError",
    "ConstraintWarning",
    "DaskclustError",
    "DaskclustWarning",
    "MemoryPlanError",
    "MissingValuesWarning",
    "ModelFormatError",
    "PerformanceWarning",
    "PrecisionWarning",
    "QuantizationWarning",
    "ReadError",
    "StoreError",
]


class DaskclustError(Exception):
    """Base class of the errors that daskclust raises."""


class ConstraintError(DaskclustError, ValueError):
    """Pairwise constraints or partial labels that cannot be used."""


class ChunkError(DaskclustError, ValueError):
    """A Dask array whose chunks cannot be used."""


class CheckpointError(DaskclustError, RuntimeError):
    """A checkpoint that is damaged or belongs to other data or parameters."""


class ModelFormatError(DaskclustError, ValueError):
    """A saved model that is damaged, of a newer format, or not written by daskclust."""


class MemoryPlanError(DaskclustError, MemoryError):
    """A computation that needs more memory than it may use."""


class ClusterError(DaskclustError, RuntimeError):
    """A Dask cluster that has no workers, whose workers die, or that cannot be reached.

    A fit waits for workers for at most ``daskclust.worker-timeout`` (10 minutes by
    default).  While it waits, it emits notices; see :func:`daskclust.core.engine.on_notice`.
    The message names the checkpoint, if there is one.
    """


class ReadError(DaskclustError, OSError):
    """A chunk that cannot be read, even after several retries.

    ``daskclust.read-retries`` is the number of retries of a read (7 by default).  The
    first pause is ``daskclust.read-backoff`` (100 ms).  Each further pause is twice as long.
    The message names the chunk and the store; ``__cause__`` is the last error.
    """

    def __init__(self, message: str, cause: BaseException | None = None) -> None:
        # A single argument: with two arguments, OSError uses the first one as its error number.
        super().__init__(message)
        self.__cause__ = cause

    def __reduce__(self) -> tuple[type[ReadError], tuple[str, BaseException | None]]:
        """Keep the cause when the error is pickled; plain pickling drops it."""
        cause = self.__cause__
        try:
            # Errors of GDAL can be pickled, but not unpickled.
            pickle.loads(pickle.dumps(cause))
        except Exception:  # the cause may be any exception
            cause = None
        return type(self), (str(self), cause)


class StoreError(DaskclustError, OSError):
    """A store that a process cannot reach or write to, or that lacks blocks.

    Workers read and write without the client, so every worker must reach every store under
    the same path.  Zarr raises no error for a missing chunk: it returns fill values.
    """


class DaskclustWarning(UserWarning):
    """Base class of the warnings that daskclust emits."""


class ConstraintWarning(DaskclustWarning):
    """Constraints that are valid but probably not intended."""


class MissingValuesWarning(DaskclustWarning):
    """Rows in which all values are missing."""


class PerformanceWarning(DaskclustWarning):
    """A computation that is correct but slower than necessary."""


class PrecisionWarning(DaskclustWarning):
    """Data so far from 0, relative to their spread, that float64 loses precision."""


class QuantizationWarning(DaskclustWarning):
    """Integers of one byte without scale metadata that are used as physical values."""
