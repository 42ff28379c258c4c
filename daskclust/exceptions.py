"""Errors and warnings of daskclust.

Every error derives from :class:`DaskclustError` and from the nearest builtin, so
``except ValueError`` keeps working.  A message states the value, what was
expected, and the remedy.
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
    "ModelFormatError",
    "PerformanceWarning",
    "PrecisionWarning",
    "ReadError",
    "StoreError",
]


class DaskclustError(Exception):
    """Base class of the errors daskclust raises by itself."""


class ConstraintError(DaskclustError, ValueError):
    """Pairwise constraints or partial labels that cannot be used."""


class ChunkError(DaskclustError, ValueError):
    """A Dask array whose chunks cannot be used as they are."""


class CheckpointError(DaskclustError, RuntimeError):
    """A checkpoint that is broken, or belongs to other data or parameters."""


class ModelFormatError(DaskclustError, ValueError):
    """A saved model that is broken, foreign, or of a newer format."""


class MemoryPlanError(DaskclustError, MemoryError):
    """A computation that cannot fit the memory it may use."""


class ClusterError(DaskclustError, RuntimeError):
    """A cluster that cannot go on: without workers, with workers that die, or out of reach.

    A fit waits for workers as long as ``daskclust.worker-timeout`` says (10 minutes by
    default), and tells :func:`daskclust.engine.on_notice` so.  The message names the
    checkpoint, if there is one.
    """


class ReadError(DaskclustError, OSError):
    """A chunk that cannot be read, however often it is tried.

    As often as ``daskclust.read-retries`` says (7 by default), with pauses that begin at
    ``daskclust.read-backoff`` (100 ms) and double.  The message names chunk and store;
    ``__cause__`` is the last error.
    """

    def __init__(self, message: str, cause: BaseException | None = None) -> None:
        # One argument: with two, an OSError takes the first for its number.
        super().__init__(message)
        self.__cause__ = cause

    def __reduce__(self) -> tuple[type[ReadError], tuple[str, BaseException | None]]:
        """Take the cause along to another process, which pickle alone does not."""
        cause = self.__cause__
        try:
            pickle.dumps(cause)
        except Exception:  # an error of a foreign library need not travel
            cause = None
        return type(self), (str(self), cause)


class StoreError(DaskclustError, OSError):
    """A store that some processes do not see, that cannot be written to, or that lacks blocks.

    Workers read and write by themselves, so each must reach every store under the
    same path; Zarr alone would answer with fill values.
    """


class DaskclustWarning(UserWarning):
    """Base class of the warnings daskclust emits by itself."""


class ConstraintWarning(DaskclustWarning):
    """Constraints that are usable but probably not what was meant."""


class MissingValuesWarning(DaskclustWarning):
    """Rows have no value at all, so that nothing can be said of them."""


class PerformanceWarning(DaskclustWarning):
    """A computation that is right but slower than it needs to be."""


class PrecisionWarning(DaskclustWarning):
    """Data whose offset is so large that float64 hardly holds their spread."""
