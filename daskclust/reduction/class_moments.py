"""Labeled rows in a pass: where they are, and the moments of each class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Bools, Floats, Ints
from daskclust.kernels.compensated import add_pairs
from daskclust.kernels.moments import ClassMoments, class_moments, merge_moments
from daskclust.reduction.assign import ClusterStatistics
from daskclust.reduction.contract import Field, Partial, RowBlock

__all__ = [
    "ClassStatistics",
    "RowLabels",
    "add_classes",
    "class_fields",
    "class_statistics",
]

_NO_ROW = np.iinfo(np.int64).max


@dataclass(frozen=True)
class RowLabels:
    """Labels of some rows.

    Parameters
    ----------
    rows : ndarray of shape (m,), int64
        Global numbers of the labeled rows, ascending and distinct.
    codes : ndarray of shape (m,), int32
        Their classes, in [0, n_classes).
    """

    rows: Ints
    codes: NDArray[np.int32]
    n_classes: int

    def by_chunk(self, rows: RowBlock) -> list[tuple[Ints, NDArray[np.int32]]]:
        """Places in the block, and codes, of the labeled rows of each of its chunks."""
        found, offset = [], 0
        for start, size in rows.runs:
            first, last = np.searchsorted(self.rows, [start, start + size])
            found.append((self.rows[first:last] - (start - offset), self.codes[first:last]))
            offset += size
        return found


@dataclass(frozen=True)
class ClassStatistics:
    """Moments of the labeled rows, by class.

    Attributes
    ----------
    weight : ndarray of shape (n_classes,), float64
    mean : ndarray of shape (n_classes, p), float64
        0 for a class without weight.
    scatter : ndarray of shape (n_classes,), float64
        Weighted squared distances of the rows to the mean.
    first_weightless : int, or None
        First labeled row of weight 0.
    masses : ndarray of shape (n_classes, p), float64, or None
        Weight of the values of each feature; None where nothing is missing.
    """

    weight: Floats
    mean: Floats
    scatter: Floats
    first_weightless: int | None = None
    masses: Floats | None = None

    def filled(self, values: Floats) -> Floats:
        """Return the means, with these values where a class has none."""
        return self.mean if self.masses is None else np.where(self.masses > 0, self.mean, values)

    def joined(self, stats: ClusterStatistics, centers: Floats) -> ClusterStatistics:
        """Return statistics of clusters with the rows of class c added to cluster c.

        Parameters
        ----------
        stats : ClusterStatistics
            Of the other rows.
        centers : ndarray of shape (r, k, p), float64
            By which those were assigned.
        """
        n = len(self.weight)
        sums, counts, inertia = stats.sums.copy(), stats.counts.copy(), stats.inertia.copy()
        counts[:, :n] += self.weight
        own = self.weight[:, None] if self.masses is None else self.masses
        sums[:, :n] += own * self.mean
        gaps = (self.mean - centers[:, :n]) ** 2
        if self.masses is None:
            inertia[:, :n] += self.scatter + self.weight * gaps.sum(axis=-1)
        else:
            inertia[:, :n] += self.scatter + (self.masses * gaps).sum(axis=-1)
        masses = stats.masses
        if masses is not None:
            masses = masses.copy()
            masses[:, :n] += own
        return ClusterStatistics(sums, counts, inertia, masses)


def class_fields(labels: RowLabels | None, p: int, *, missing: bool = False) -> Mapping[str, Field]:
    """Fields of a partial that holds the moments of each class, and masses where values miss."""
    n = 0 if labels is None else labels.n_classes
    return _fields_of(n, p, 2 * p + 1 if missing else p + 1)


@lru_cache
def _fields_of(n: int, p: int, n_sums: int) -> Mapping[str, Field]:
    return {
        "class_sums": Field((2, n, n_sums)),
        "class_moments": Field((3, n, p), "moments"),
        "first_weightless": Field((), "min", np.int64),
    }


def add_classes(
    partial: Partial,
    rows: RowBlock,
    weight: Floats | None,
    labels: RowLabels | None,
    *,
    moments: Callable[..., ClassMoments] = class_moments,
    empty: Bools | None = None,
) -> None:
    """Add a block's labeled rows to a partial with :func:`class_fields`, in place.

    Parameters
    ----------
    partial, rows, weight, labels
    moments : callable(x, places, codes, weight, n_classes)
        The kernel.
    empty : ndarray of shape (n,), bool, optional
        Rows without any value: absent, as those of weight 0.
    """
    if labels is None:
        return
    absent = empty
    if weight is not None:
        absent = weight == 0 if empty is None else empty | (weight == 0)
    for places, codes in labels.by_chunk(rows):
        if not len(places):
            continue
        found = moments(rows.x, places, codes, weight, labels.n_classes)
        sums = partial["class_sums"]
        partial["class_sums"] = np.stack(add_pairs((sums[0], sums[1]), (found.hi, found.lo)))
        partial["class_moments"] = merge_moments(partial["class_moments"], found.moments)
        if absent is not None:
            first = np.min(rows.numbers(places[absent[places]]), initial=_NO_ROW)
            partial["first_weightless"] = np.minimum(partial["first_weightless"], first)


def class_statistics(partial: Partial) -> ClassStatistics:
    """Statistics of the classes from a merged partial."""
    sums, moments = partial["class_sums"][0], partial["class_moments"]
    p = moments.shape[-1]
    # Between the sums and the weight of the rows: nothing, or the weight of each feature's values.
    sums, masses, weight = sums[:, :p], sums[:, p:-1], sums[:, -1]
    complete = bool((masses == weight[:, None]).all())
    observed = masses if masses.shape[1] else weight[:, None]
    first = int(partial["first_weightless"])
    return ClassStatistics(
        weight=weight,
        mean=np.divide(sums, observed, out=np.zeros_like(sums), where=observed > 0),
        scatter=moments[2].sum(axis=1),
        first_weightless=None if first == _NO_ROW else first,
        masses=None if complete else masses,
    )
