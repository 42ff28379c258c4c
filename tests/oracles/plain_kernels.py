"""Scalar loops that compute what the emitted kernels compute, with the same names and arguments.

They are the oracle of ``row_loops.py`` and ``_tiles.py`` in ``core/kernels/nearest``.

A distance is defined here to the last bit.  Feature j goes to partial sum ``j mod 8``, each in
float64 with one rounding a feature (fused multiply-add), and the partial sums are added in halves:
4 + 4, 2 + 2, 1 + 1.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Floats, Ints
from daskclust.core.kernels.compensated import flush

__all__ = ["WIDTH", "add_moments", "cost_of_tile", "row_distance", "sweeper"]

_LANES = 8

# Numba has no fused multiply-add of scalars; C has had one since 1999 ("ucrtbase": Windows).
_fma = ctypes.CDLL(ctypes.util.find_library("m") or "ucrtbase").fma
_fma.argtypes = (ctypes.c_double, ctypes.c_double, ctypes.c_double)
_fma.restype = ctypes.c_double


# Not cached: Numba's cache holds no pointers to C functions.
@njit(nogil=True)
def row_distance(
    x: Any, i: Any, centers: Any, k: Any, weights: Any, scale: Any, sums: Any, gaps: Any
) -> float:
    parts = np.zeros(_LANES)
    p = x.shape[1]
    for j in range(p):
        value = np.float64(x[i, j])
        gap = value - centers[k, j]
        scaled = gap
        if len(gaps) > 0:
            if gap != gap:
                continue
        if len(sums) > 0:
            sums[k, j] = _fma(scale, value, sums[k, j])
            if len(gaps) > 0:
                sums[k, p + j] += scale
        if len(weights) > 0:
            scaled = gap * weights[j]
        parts[j % _LANES] = _fma(scaled, gap, parts[j % _LANES])
    for half in (4, 2, 1):
        for lane in range(half):
            parts[lane] += parts[lane + half]
    return parts[0]


@njit(nogil=True)
def add_moments(x: Any, order: Any, first: int, stop: int, facts: Any, c: int, ahead: int) -> None:
    """Add the rows ``order[first:stop]`` to the moments and ranges of a label.

    Parts of ``facts[c]``, each at least as wide as a row: origin, sums of the values less the
    origin and of their squares, smallest and largest value.  Nothing is asked for ``ahead``.
    """
    step = facts.shape[1] // 5
    for at in range(first, stop):
        for j in range(x.shape[1]):
            value = np.float64(x[order[at], j])
            gap = value - facts[c, j]
            facts[c, step + j] += gap
            facts[c, 2 * step + j] += gap * gap
            facts[c, 3 * step + j] = min(facts[c, 3 * step + j], value)
            facts[c, 4 * step + j] = max(facts[c, 4 * step + j], value)


@njit(nogil=True)
def _is_somewhere(x: Any, i: int, weights: Any) -> bool:
    """Whether a row has a value of positive weight, or all of them."""
    some, complete = False, True
    for j in range(x.shape[1]):
        has, weight = x[i, j] == x[i, j], 1.0
        if len(weights) > 0:
            weight = weights[j]
        some |= has and weight > 0
        complete &= has
    return some or complete


@njit(nogil=True)
def _scan(x, row_weights, centers, weights, ends, out, gaps):
    (hi, lo), labels, distances = out
    k, p = centers.shape
    sums, totals = np.zeros((k, 2 * p if len(gaps) > 0 else p)), np.zeros((k, 2))
    segment = 0
    for i in range(x.shape[0]):
        nearest, label = np.inf, 0
        for c in range(k):
            squared = row_distance(x, i, centers, c, weights, 1.0, (), gaps)
            if squared < nearest:  # ties go to the lowest center
                nearest, label = squared, c
        some = len(gaps) == 0 or _is_somewhere(x, i, weights)
        if hi.size and some:
            w = row_weights[i] if row_weights.size else 1.0
            squared = row_distance(x, i, centers, label, weights, w, sums, gaps)
            totals[label, 0] += w
            totals[label, 1] += w * squared
        if labels.size:
            labels[i], distances[i] = label if some else -1, nearest if some else squared
        while segment < ends.size and i + 1 == ends[segment]:
            segment += 1
            if hi.size:
                flush(hi, lo, sums, totals, 2 if len(gaps) > 0 else 1)


def sweeper(
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
) -> Callable[[], None]:
    """As `sweeper` of ``core/kernels/nearest/_tiles.py``; without scores ``shift`` has no use."""
    weights = () if feature_weights is None else feature_weights
    out, gaps = (tuple(stats), labels, distances), (True,) if observed else ()
    return partial(_scan, x, row_weights, centers, weights, ends, out, gaps)


#: Points of a tile.
WIDTH = 128


@njit(nogil=True)
def cost_of_tile(points: Any, t: int, tries: Any, c: int, mass: Any, old: Any, into: Any) -> float:
    total = 0.0
    for i in range(WIDTH):
        squared = np.float32(0.0)
        for j in range(points.shape[1]):
            gap = points[t, j, i] - tries[c, j]
            squared += gap * gap
        kept = min(squared, old[t, i])
        if len(into) > 0:
            into[t, i] = kept
        total += np.float64(kept) * mass[t, i]
    return total
