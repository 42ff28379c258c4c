"""Moments and histograms of every feature by label, over the values that are there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Array, Bools, Floats, Ints
from daskclust.kernels.compiling import compiled

__all__ = ["Bins", "choose_bins", "fill_histograms", "value_moments"]

#: Cells by which the search for a bin begins.
_CELLS = 4096
#: Edges are moved to the ends of cells where they stay this different, and are no few.
_ALIKE, _FEW = 0.8, 256
#: Rows that are worked on at a time.
_TILE = 512
#: Share of the bins that follow the quantiles of single labels.
_OF_LABELS = 0.25


@compiled()
def _moments(
    x: Any, index: Any, weights: Any, weighted: Any, moments: Any, bounds: Any, missing: Any
) -> None:  # pragma: no cover
    for i in range(x.shape[0]):
        c, w = index[i], weights[i] if weighted else 1.0
        if c < 0 or w == 0.0:
            continue
        for j in range(x.shape[1]):
            v = np.float64(x[i, j])
            if v != v:
                missing[c, j] += w
                continue
            if moments[0, c, j] == 0.0:
                # Squares about a row of the label keep their digits whatever the offset.
                moments[3, c, j] = v
            gap = v - moments[3, c, j]
            moments[0, c, j] += w
            moments[1, c, j] += w * gap
            moments[2, c, j] += w * gap * gap
            bounds[0, c, j] = min(bounds[0, c, j], v)
            bounds[1, c, j] = max(bounds[1, c, j], v)


def value_moments(
    x: Array, index: Ints, weight: Floats | None, k: int
) -> tuple[Floats, Floats, Floats]:
    """Moments, range and number of missing values of each feature, by label.

    Parameters
    ----------
    x : ndarray of shape (n, p)
        NaN where a value is missing.
    index : ndarray of shape (n,), int64
        Below k; negative for rows that do not count.
    weight : ndarray of shape (n,), float64, optional
    k : int

    Returns
    -------
    moments : ndarray of shape (3, k, p)
        Weight, mean and squared deviations of the values that are there.
    bounds : ndarray of shape (2, k, p)
        Least and largest value; infinite where there is none.
    missing : ndarray of shape (k, p)
        Weight of the missing values.

    Examples
    --------
    >>> import numpy as np
    >>> moments, bounds, missing = value_moments(
    ...     np.array([[1.0], [3.0], [np.nan]]), np.array([0, 0, 0]), None, 1
    ... )
    >>> moments.ravel().tolist(), bounds.ravel().tolist(), missing.ravel().tolist()
    ([2.0, 2.0, 2.0], [1.0, 3.0], [1.0])
    """
    p = x.shape[1]
    found, missing = np.zeros((4, k, p)), np.zeros((k, p))
    bounds = np.stack([np.full((k, p), np.inf), np.full((k, p), -np.inf)])
    weights = np.empty(0) if weight is None else weight
    _moments(
        x,
        np.ascontiguousarray(index),
        weights,
        weight is not None,
        found,
        bounds,
        missing,
    )
    total, sums, squares, origin = found
    # Infinities are refused by the range, once all rows are known.
    with np.errstate(invalid="ignore", over="ignore"):
        shift = np.divide(sums, total, out=np.zeros_like(sums), where=total > 0)
        deviation = np.maximum(squares - sums * shift, 0.0)
    return np.stack([total, origin + shift, deviation]), bounds, missing


@dataclass(frozen=True)
class Bins:
    """Bins of each feature: bin b holds the values in ``(edges[b - 1], edges[b]]``.

    Attributes
    ----------
    edges : ndarray of shape (p, m)
        Ascending, in the type of the values; infinite behind the last of a feature.
    low, scale : ndarray of shape (p,), float64
        Value v lies in cell ``(v - low) * scale`` of a grid of equal cells.
    starts, stops : ndarray of shape (p, cells), int32
        First and last bin of the values of each cell; the same where edges were moved to the
        ends of cells, so that nothing is left to search.
    """

    edges: Array
    low: Floats
    scale: Floats
    starts: NDArray[np.int32]
    stops: NDArray[np.int32]

    @property
    def count(self) -> int:
        """Bins of a feature."""
        return self.edges.shape[1] + 1

    def single(self, feature: int) -> Bools:
        """Which bins of a feature can hold one value only."""
        edges = self.edges[feature]
        out = np.zeros(self.count, bool)
        with np.errstate(invalid="ignore", over="ignore"):
            out[1:-1] = np.nextafter(edges[:-1], np.inf, dtype=edges.dtype) == edges[1:]
        return out & np.isfinite(np.append(edges, np.inf))


def _edges(values: Array, parts: list[Array], most: int) -> Array:
    """Choose edges for a feature from sampled values, of all rows and of each label."""
    below = values.dtype.type(-np.inf)
    distinct = np.unique(np.concatenate([values, *parts]))
    if 2 * len(distinct) <= most:
        # Each value alone, so that ties are seen as ties.
        return np.unique(np.concatenate([distinct, np.nextafter(distinct, below)]))

    def spread(ordered: Array, count: int) -> Array:
        at = np.linspace(0, len(ordered) - 1, min(count, len(ordered))).round().astype(np.int64)
        return ordered[at]

    each = int(most * _OF_LABELS) // max(len(parts), 1)
    of_labels = [spread(np.sort(part), each) for part in parts if len(part) and each]
    fine = np.unique(np.concatenate([*of_labels, values[:0]]))
    # A value that many rows share has a bin of its own.
    rough = spread(np.sort(values), (most - len(fine)) // 2 * 2)
    kept, times = np.unique(rough, return_counts=True)
    heavy = kept[times > 1]
    edges = np.unique(np.concatenate([fine, kept, np.nextafter(heavy, below)]))
    return edges if len(edges) <= most else np.unique(spread(edges, most))


def choose_bins(x: Array, labels: Ints, uniform: Bools, most: int) -> Bins:
    """Choose bins that hold about the same number of rows, from a sample.

    Parameters
    ----------
    x : ndarray of shape (m, p), float32 or float64
        The sample, in the type of the data; NaN where a value is missing.
    labels : ndarray of shape (m,), int64
    uniform : ndarray of shape (m,), bool
        Rows drawn whatever their label; the others are there for small clusters.
    most : int
        Bins of a feature, at least 4.

    Examples
    --------
    >>> import numpy as np
    >>> bins = choose_bins(np.array([[0.0], [0.0], [2.0]]), np.zeros(3, int), np.ones(3, bool), 8)
    >>> bins.count, bins.single(0).tolist()
    (5, [False, True, False, True, False])
    """
    p = x.shape[1]
    order = np.argsort(labels, kind="stable")
    ends = np.flatnonzero(np.diff(labels[order])) + 1
    members = np.split(order, ends)
    found = []
    for j in range(p):
        column = x[:, j]
        there = ~np.isnan(column)
        parts = [column[own[there[own]]] for own in members]
        found.append(_edges(column[there & uniform], parts, most - 1))
    edges = np.full((p, max(len(e) for e in found)), np.inf, x.dtype)
    low, scale = np.zeros(p), np.zeros(p)
    starts, stops = np.zeros((2, p, _CELLS), np.int32)
    for j, own in enumerate(found):
        edges[j, : len(own)] = own
        if len(own):
            low[j], width = float(own[0]), float(own[-1]) - float(own[0])
            with np.errstate(over="ignore", divide="ignore"):
                found_scale = np.float64(_CELLS) / width if width > 0 else 0.0
            scale[j] = found_scale if np.isfinite(found_scale) else 0.0
            cells = _cells(own.astype(np.float64), low[j], scale[j])
            starts[j] = np.searchsorted(cells, np.arange(_CELLS))
            stops[j] = np.searchsorted(cells, np.arange(_CELLS), side="right")
            ends = np.unique(cells)
            if len(ends) > _ALIKE * len(cells) and len(own) > _FEW:
                edges[j], starts[j] = np.inf, np.searchsorted(ends, np.arange(_CELLS))
                edges[j, : len(ends)] = low[j] + (ends + 1.0) / scale[j]
                stops[j] = starts[j]
    return Bins(edges, low, scale, starts, stops)


def _cells(values: Floats, low: float, scale: float) -> Ints:
    """Cells of values, computed as :func:`_fill` computes them."""
    return np.clip((values - low) * scale, 0.0, _CELLS - 1.0).astype(np.int64)


@compiled()
def _fill(
    x: Any,
    index: Any,
    weights: Any,
    weighted: Any,
    edges: Any,
    low: Any,
    scale: Any,
    starts: Any,
    stops: Any,
    out: Any,
) -> None:  # pragma: no cover
    last = np.float64(starts.shape[1] - 1)
    # A few rows at a time, feature by feature: what a feature needs stays in the cache.
    for begin in range(0, x.shape[0], _TILE):
        end = min(begin + _TILE, x.shape[0])
        for j in range(x.shape[1]):
            firsts, lasts = starts[j], stops[j]
            origin, factor, own, counts = low[j], scale[j], edges[j], out[j]
            for i in range(begin, end):
                c = index[i]
                v = x[i, j]
                if c < 0 or v != v:
                    continue
                place = (np.float64(v) - origin) * factor
                place = 0.0 if place < 0.0 else place
                cell = np.int64(last if place > last else place)
                first, stop = firsts[cell], lasts[cell]
                # The first edge that is not below the value.
                while first < stop:
                    middle = (first + stop) >> 1
                    if own[middle] < v:
                        first = middle + 1
                    else:
                        stop = middle
                counts[c, first] += weights[i] if weighted else 1.0


def fill_histograms(x: Array, index: Ints, weight: Floats | None, k: int, bins: Bins) -> Floats:
    """Count the values of each feature by label and bin.

    Parameters
    ----------
    x, index, weight, k
        See :func:`value_moments`.
    bins : Bins

    Returns
    -------
    ndarray of shape (p, k, bins.count), float64

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([[0.0], [0.0], [2.0]])
    >>> bins = choose_bins(x, np.zeros(3, int), np.ones(3, bool), 8)
    >>> fill_histograms(x, np.array([0, 1, 1]), None, 2, bins)[0]
    array([[0., 1., 0., 0., 0.],
           [0., 1., 0., 1., 0.]])
    """
    out = np.zeros((x.shape[1], k, bins.count))
    weights = np.empty(0) if weight is None else weight
    _fill(
        x,
        np.ascontiguousarray(index),
        weights,
        weight is not None,
        bins.edges,
        bins.low,
        bins.scale,
        bins.starts,
        bins.stops,
        out,
    )
    return out
