"""Errors and warnings of daskclust.

Every error derives from :class:`DaskclustError` and from the nearest builtin, so
``except ValueError`` keeps working.  A message states the value, what was
expected, and the remedy.
"""

from __future__ import annotations

__all__ = [
    "CheckpointError",
    "ChunkError",
    "ConstraintError",
    "ConstraintWarning",
    "DaskclustError",
    "DaskclustWarning",
    "MemoryPlanError",
    "ModelFormatError",
    "PerformanceWarning",
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


class StoreError(DaskclustError, OSError):
    """A store that some processes do not see, or in which written blocks are missing."""


class DaskclustWarning(UserWarning):
    """Base class of the warnings daskclust emits by itself."""


class ConstraintWarning(DaskclustWarning):
    """Constraints that are usable but probably not what was meant."""


class PerformanceWarning(DaskclustWarning):
    """A computation that is right but slower than it needs to be."""
