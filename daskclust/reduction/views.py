"""Transformations of a block of rows before a reduction sees it.

A view is a pure function of a :class:`RowBlock`.  Its ``key`` says which views are
the same, so that many fits which share a pass make each only once.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from daskclust._types import Array, Floats, Ints
from daskclust.kernels.rng import permuted_rows, uniform_rows
from daskclust.reduction.contract import RowBlock

__all__ = ["PermutedColumns", "Subsampled", "Transformed", "UniformBox", "View", "WithoutRows"]


class View(Protocol):
    """The interface of views."""

    @property
    def key(self) -> Hashable:
        """Equal for views that do the same."""

    def __call__(self, rows: RowBlock) -> RowBlock:
        """Return the rows to be seen instead."""


def digest(value: Any) -> str:
    """Name a picklable value by its content."""
    return hashlib.blake2b(pickle.dumps(value), digest_size=16).hexdigest()


@dataclass(frozen=True)
class Transformed:
    """Rows in another space."""

    function: Any
    key: Hashable = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", ("transformed", digest(self.function)))

    def __call__(self, rows: RowBlock) -> RowBlock:
        """Return the rows transformed."""
        return rows._replace(x=self.function(rows.x))


@dataclass(frozen=True)
class WithoutRows:
    """Some rows, by (sorted, global) number, given weight 0."""

    rows: Ints
    key: Hashable = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", ("without", digest(self.rows)))

    def __call__(self, rows: RowBlock) -> RowBlock:
        """Return the rows with new weights."""
        weight = None
        offset = 0
        for start, size in rows.runs:
            first, last = np.searchsorted(self.rows, [start, start + size])
            if last > first:
                if weight is None:
                    weight = np.ones(len(rows.x)) if rows.weight is None else rows.weight.copy()
                weight[self.rows[first:last] - start + offset] = 0.0
            offset += size
        return rows if weight is None else rows._replace(weight=weight)


@dataclass(frozen=True)
class Subsampled:
    """Some of the rows, drawn by their number; the others have weight 0.

    Parameters
    ----------
    share : float
        Probability of each row.
    seed, number : int
        Of the draw.
    """

    share: float
    seed: int
    number: int

    @property
    def key(self) -> Hashable:
        """Equal for the same draw."""
        return "subsampled", self.share, self.seed, self.number

    def __call__(self, rows: RowBlock) -> RowBlock:
        """Return the rows with new weights."""
        kept = rows.uniforms(self.seed, self.number) <= self.share
        weight = kept.astype(np.float64)
        return rows._replace(weight=weight if rows.weight is None else weight * rows.weight)


@dataclass(frozen=True)
class PermutedColumns:
    """Reference data of Witten & Tibshirani: each column permuted on its own.

    Parameters
    ----------
    pool : ndarray of shape (p, m)
        Rows of the data, or a sample of them, transposed.
    """

    pool: Array = field(repr=False)
    seed: int
    number: int

    @property
    def key(self) -> Hashable:
        """Equal for the same permutation."""
        return "permuted", id(self.pool), self.seed, self.number

    def __call__(self, rows: RowBlock) -> RowBlock:
        """Return rows of the same numbers; their values do not matter."""
        parts = [permuted_rows(self.pool, self.seed, self.number, *run) for run in rows.runs]
        return rows._replace(x=np.concatenate(parts))


@dataclass(frozen=True)
class UniformBox:
    """Reference data of Tibshirani, Walther & Hastie: uniform over the range of each column.

    Parameters
    ----------
    low, high : ndarray of shape (p,), float64
    dtype : float32 or float64
    """

    low: Floats
    high: Floats
    dtype: Any
    seed: int
    number: int

    @property
    def key(self) -> Hashable:
        """Equal for the same draw."""
        return "uniform", id(self.low), self.seed, self.number

    def __call__(self, rows: RowBlock) -> RowBlock:
        """Return rows of the same numbers; their values do not matter."""
        parts = [
            uniform_rows(self.low, self.high, self.dtype, self.seed, self.number, *run)
            for run in rows.runs
        ]
        return rows._replace(x=np.concatenate(parts))
