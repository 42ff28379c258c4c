"""The plain kernels: what the emitted ones compute, a number at a time.

They are the oracle of :mod:`daskclust.kernels.nearest._row_loops` and
:mod:`daskclust.kernels.nearest._tiles`, with the same names and arguments, and
take their place where ``DASKCLUST_KERNELS=plain``
(:mod:`daskclust.kernels.compiling`).

A distance is defined here to the last bit.  Feature j goes to partial sum
``j mod 8``, each in float64 with one rounding a feature (fused multiply-add), and
the partial sums are added in halves: 4 + 4, 2 + 2, 1 + 1.

Imports Numba, and the C library's ``fma``.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from daskclust._types import Array, Floats, Ints
from daskclust.kernels.compensated import flush

__all__ = [
    "WIDTH",
    "add_row",
    "add_row_observed",
    "add_row_observed_weighted",
    "add_row_weighted",
    "all_direct",
    "cost_of_tile",
    "lower_tile",
    "row_distance",
    "row_distance_observed",
    "row_distance_weighted",
    "scan",
    "sweeps",
]

_LANES = 8

# Numba has no fused multiply-add of scalars; C has had one since 1999 ("ucrtbase": Windows).
_fma = ctypes.CDLL(ctypes.util.find_library("m") or "ucrtbase").fma
_fma.argtypes = (ctypes.c_double, ctypes.c_double, ctypes.c_double)
_fma.restype = ctypes.c_double


# Not cached: Numba's cache holds no pointers to C functions.
@njit(nogil=True)
def _distance(
    x: Any,
    i: Any,
    centers: Any,
    k: Any,
    weights: Any,
    weighted: bool,
    scale: Any,
    sums: Any,
    observed: bool,
) -> float:
    """Squared distance of a row to a center; with ``sums``, the row is added to its sums.

    When ``observed``, over what is there, and ``scale`` is added to the masses behind the sums.
    """
    partial = np.zeros(_LANES)
    p = x.shape[1]
    for j in range(p):
        value = np.float64(x[i, j])
        gap = value - centers[k, j]
        if observed and gap != gap:
            continue
        if sums.size:
            sums[k, j] = _fma(scale, value, sums[k, j])
            if observed:
                sums[k, p + j] += scale
        scaled = gap * weights[j] if weighted else gap
        partial[j % _LANES] = _fma(scaled, gap, partial[j % _LANES])
    for half in (4, 2, 1):
        for lane in range(half):
            partial[lane] += partial[lane + half]
    return partial[0]


def _make_row_distances(weighted: bool, observed: bool) -> tuple[Any, Any]:
    """Make what measures row i to center k, and what adds ``scale`` times the row, too."""

    @njit(nogil=True)
    def measure(x, i, centers, k, weights, scale, sums):
        none = np.empty((0, 0))
        return _distance(x, i, centers, k, weights, weighted, scale, none, observed)

    @njit(nogil=True)
    def add(x, i, centers, k, weights, scale, sums):
        return _distance(x, i, centers, k, weights, weighted, scale, sums, observed)

    return measure, add


row_distance, add_row = _make_row_distances(False, False)
row_distance_weighted, add_row_weighted = _make_row_distances(True, False)
row_distance_observed, add_row_observed_weighted = _make_row_distances(True, True)
_, add_row_observed = _make_row_distances(False, True)


@njit(nogil=True)
def _all_direct(x: Any, centers: Any, weights: Any, weighted: bool, out: Any) -> None:
    unused = np.empty((0, 0))
    for i in range(x.shape[0]):
        for c in range(centers.shape[0]):
            out[i, c] = _distance(x, i, centers, c, weights, weighted, 1.0, unused, False)


@njit(nogil=True)
def _is_somewhere(x: Any, i: int, weights: Any, weighted: bool) -> bool:
    """Whether a row has a value of positive weight, or all of them."""
    some, complete = False, True
    for j in range(x.shape[1]):
        has = x[i, j] == x[i, j]
        some |= has and (not weighted or weights[j] > 0)
        complete &= has
    return some or complete


@njit(nogil=True)
def _scan(
    x: Any,
    row_weights: Any,
    centers: Any,
    weights: Any,
    weighted: bool,
    ends: Any,
    stats: Any,
    labels: Any,
    distances: Any,
    observed: bool,
) -> None:
    hi, lo = stats
    k, p = centers.shape
    sums, totals = np.zeros((k, 2 * p if observed else p)), np.zeros((k, 2))
    unused = np.empty((0, 0))
    segment = 0
    for i in range(x.shape[0]):
        nearest, label = np.inf, 0
        for c in range(k):
            squared = _distance(x, i, centers, c, weights, weighted, 1.0, unused, observed)
            if squared < nearest:  # ties go to the lowest center
                nearest, label = squared, c
        some = not observed or _is_somewhere(x, i, weights, weighted)
        if hi.size and some:
            w = row_weights[i] if row_weights.size else 1.0
            squared = _distance(x, i, centers, label, weights, weighted, w, sums, observed)
            totals[label, 0] += w
            totals[label, 1] += w * squared
        if labels.size:
            labels[i], distances[i] = label if some else -1, nearest if some else 0.0
        while segment < ends.size and i + 1 == ends[segment]:
            segment += 1
            if hi.size:
                flush(hi, lo, sums, totals)


_NO_FLOATS = np.empty(0)


def scan(
    x: Array,
    row_weights: Floats,
    centers: Floats,
    feature_weights: Floats | None,
    shift: Floats | None,
    ends: Ints,
    stats: Any,
    labels: NDArray[np.int32],
    distances: Floats,
    *,
    observed: bool = False,
) -> None:
    """One sweep over a block, as :func:`daskclust.kernels.nearest._tiles.scan`.

    There are no scores here, hence no use for ``shift``.
    """
    weighted = feature_weights is not None
    weights = _NO_FLOATS if feature_weights is None else feature_weights
    sums = tuple(stats)
    _scan(x, row_weights, centers, weights, weighted, ends, sums, labels, distances, observed)


def sweeps(
    x: Array, row_weights: Floats, centers: Floats, shift: Floats, stats: Any
) -> Callable[[], None]:
    """As :func:`daskclust.kernels.nearest._tiles.sweeps`."""
    ends, labels, distances = np.array([len(x)]), np.empty(0, np.int32), np.empty(0)

    def sweep() -> None:
        for part in stats:
            part.fill(0.0)
        scan(x, row_weights, centers, None, shift, ends, stats, labels, distances)

    return sweep


def all_direct(x: Array, centers: Floats, feature_weights: Floats | None, out: Floats) -> None:
    """Fill ``out`` with the squared distances of all rows to all centers."""
    weights = _NO_FLOATS if feature_weights is None else feature_weights
    _all_direct(x, centers, weights, feature_weights is not None, out)


#: Points of a tile.
WIDTH = 128


@njit(nogil=True)
def _cost_of_tile(
    points: Any, t: int, tries: Any, c: int, mass: Any, old: Any, lowering: bool
) -> float:
    total = 0.0
    for i in range(WIDTH):
        squared = np.float32(0.0)
        for j in range(points.shape[1]):
            gap = points[t, j, i] - tries[c, j]
            squared += gap * gap
        kept = min(squared, old[t, i])
        if lowering:
            old[t, i] = kept
        total += np.float64(kept) * mass[t, i]
    return total


@njit(nogil=True)
def cost_of_tile(points: Any, t: int, tries: Any, c: int, mass: Any, old: Any) -> float:
    """As the emitted kernel does; nothing is written."""
    return _cost_of_tile(points, t, tries, c, mass, old, False)


@njit(nogil=True)
def lower_tile(points: Any, t: int, tries: Any, c: int, mass: Any, old: Any) -> float:
    """As :func:`cost_of_tile`; the smaller distances take the place of the old ones."""
    return _cost_of_tile(points, t, tries, c, mass, old, True)
