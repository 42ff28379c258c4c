"""Kernels of profiles: moments and histograms of the observed values, by feature and label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Bools, Floats, Ints
from daskclust.core.kernels.compiling import compiled, read_only
from daskclust.core.kernels.nearest.row_loops import add_moments, row_distance

#: Number of cells of equal width per feature, which speed up the search for a bin.
_CELLS = 4096
#: Edges are moved to the ends of cells, so that no search is needed, under two conditions.  There
#: are at least `_MIN_EDGES` edges.  And the error of an AUC is at most `_SMALL_ERROR`, or grows at
#: most by the factor `_GROWTH`.
_MIN_EDGES, _SMALL_ERROR, _GROWTH = 16, 1.2e-3, 1.3
#: Maximum number of values and rows whose cells are computed together.
_TILE, _TILE_ROWS = 2**18, 4096
#: Number of cells per cache line.  Four cells are read as one number: mask and bits of a cell.
_LINE_CELLS, _CELL_MASK, _CELL_BITS = 32, np.uint64(0xFFFF), np.uint64(16)
#: Number of rows that are counted together, and maximum count per label.  Counts of two bytes stay
#: in the first-level cache.
_COUNTED_ROWS, _MAX_COUNT = 15 * 2**12, 2**16 - 1
#: Moments are padded to a multiple of this number of features, for vector instructions.
_VECTOR = 8
#: Bytes of the rows that are sorted by label together.  Two batches fit the second-level cache.
_SORTED_BYTES = 3 * 2**17
#: Fraction of the bins whose edges are quantiles of single labels.
_LABEL_BINS = 0.25


def _kernel_arguments(x: Array, index: Ints, weight: Floats | None) -> tuple[Array, Array, Floats]:
    weights = np.empty(0) if weight is None else weight
    labels = np.ascontiguousarray(index, np.int32)
    return read_only(x), read_only(labels), read_only(weights)


@compiled()
def _moments(x, index, weights, weighted, sizes, moments, bounds, missing):  # pragma: no cover
    for i in range(x.shape[0]):
        c, w = index[i], weights[i] if weighted else 1.0
        if c < 0 or w == 0.0:
            continue
        sizes[c] += w
        for j in range(missing.shape[1]):
            v = np.float64(x[i, j])
            if v != v:
                missing[c, j] += w
                continue
            if moments[0, c, j] == 0.0:
                # Squares are relative to a row of the label, which keeps them accurate.
                moments[3, c, j] = v
            gap = v - moments[3, c, j]
            moments[0, c, j] += w
            moments[1, c, j] += w * gap
            moments[2, c, j] += w * gap * gap
            bounds[0, c, j] = min(bounds[0, c, j], v)
            bounds[1, c, j] = max(bounds[1, c, j], v)


@compiled(counted=False)
def _complete_moments(x, index, sizes, statistics, order, ends):  # pragma: no cover
    """Compute moments of unweighted rows.  Missing values make the sums NaN."""
    for begin in range(0, x.shape[0], order.size):
        count = min(order.size, x.shape[0] - begin)
        # Visit rows label by label, so that the moments of a label stay in registers.
        ends[:] = 0
        for i in range(count):
            ends[index[begin + i] + 2] += 1
        for c in range(1, ends.size):
            ends[c] += ends[c - 1]
        for i in range(count):
            c = index[begin + i] + 1
            order[ends[c]] = begin + i
            ends[c] += 1
        for c in range(sizes.size):
            first, stop = ends[c], ends[c + 1]
            if first == stop:
                continue
            if sizes[c] == 0.0:
                # Squares are relative to a row of the label, which keeps them accurate.
                for j in range(x.shape[1]):
                    statistics[c, j] = np.float64(x[order[first], j])
            sizes[c] += stop - first
            add_moments(x, order, first, stop, statistics, c, begin + count)


def value_moments(
    x: Array, index: Ints, weight: Floats | None, k: int, n_features: int | None = None
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return moments, range and missing values of each feature, by label in [0, k).

    Rows with other labels and columns after ``n_features`` are ignored.  The results are:

    - the weight of the rows (k,);
    - weight, mean and sum of squared deviations of the values (3, k, p);
    - minimum and maximum (2, k, p), infinite without values;
    - the weight of the missing values (k, p).
    """
    p = x.shape[1] if n_features is None else n_features
    x, index, weights = _kernel_arguments(x, index, weight)
    sizes, missing = np.zeros(k), np.zeros((k, p))
    if weight is None:
        width = -(-x.shape[1] // _VECTOR) * _VECTOR
        padded = np.zeros((k, 5, width))
        padded[:, 3:] = np.array([np.inf, -np.inf])[:, None]
        rows = int(np.clip(_SORTED_BYTES // max(x.itemsize * x.shape[1], 1), 32, 4096))
        order, ends = np.empty(rows, np.int64), np.empty(k + 2, np.int64)
        _complete_moments(x, index, sizes, padded.reshape(k, 5 * width), order, ends)
        statistics = padded.transpose(1, 0, 2)[..., :p]
        (origin, sums, squares), bounds = statistics[:3], statistics[3:]
        total = np.repeat(sizes[:, None], p, axis=1)
    if weight is not None or not np.isfinite(sums).all():
        totals = np.zeros((4, k, p))
        bounds = np.stack([np.full((k, p), np.inf), np.full((k, p), -np.inf)])
        sizes[:] = 0.0
        _moments(x, index, weights, weight is not None, sizes, totals, bounds, missing)
        total, sums, squares, origin = totals
    # Infinite values are found by the caller, in the range.
    with np.errstate(invalid="ignore", over="ignore"):
        shift = np.divide(sums, total, out=np.zeros_like(total), where=total > 0)
        deviation = np.maximum(squares - sums * shift, 0.0)
    return sizes, np.stack([total, origin + shift, deviation]), np.array(bounds), missing


@dataclass(frozen=True)
class Bins:
    """Bins of each feature: bin b contains the values in ``(edges[b - 1], edges[b]]``.

    ``edges`` (p, m) ascend, and infinity pads the shorter rows.  Cells of equal width speed up the
    search: value v is in cell ``(v - low) * scale``, and ``starts`` and ``stops`` (p, cells) are
    the first and last bin of each cell.  ``plain`` (p,) is True if each cell has one bin, so that
    no search is needed.  The last cell is for missing values.
    """

    edges: Array
    low: Floats
    scale: Floats
    starts: NDArray[np.uint16]
    stops: NDArray[np.uint16]
    plain: Bools

    @property
    def count(self) -> int:
        return self.edges.shape[1] + 1

    def single(self) -> Bools:
        """Return a mask (p, bins) of the bins that can contain only one value."""
        edges = self.edges
        out = np.zeros((len(edges), self.count), bool)
        with np.errstate(invalid="ignore", over="ignore"):
            out[:, 1:-1] = np.nextafter(edges[:, :-1], np.inf, dtype=edges.dtype) == edges[:, 1:]
        out[:, :-1] &= np.isfinite(edges)
        out[:, -1] = False
        return out


@lru_cache(maxsize=256)
def _ranks(n: int, count: int) -> Ints:
    return np.linspace(0, n - 1, min(count, n)).round().astype(np.int64)


def _ascending(columns: Array) -> list[Array]:
    columns = np.sort(columns, axis=1)
    n_values = columns.shape[1] - np.isnan(columns).sum(axis=1)
    return [line[:count] for line, count in zip(columns, n_values, strict=True)]


def _pick_evenly(ordered: Array, count: int) -> Array:
    return ordered[_ranks(len(ordered), count)]


def _pick_evenly_by_row(columns: Array, count: int) -> Array | list[Array]:
    columns = np.sort(columns, axis=1)
    if np.isnan(columns[:, -1:]).any():
        return [_pick_evenly(line, count) for line in _ascending(columns)]
    return columns[:, _ranks(columns.shape[1], count)]


def _distinct(ordered: Array) -> Array:
    first = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def _edges(sampled: Array, label_values: Array, values: Array, max_edges: int) -> Array:
    """Choose edges from sorted sampled values, quantiles of labels, and all values."""
    below, distinct = sampled.dtype.type(-np.inf), _distinct(sampled)
    if 2 * len(distinct) <= max_edges:
        distinct = np.unique(values[~np.isnan(values)])
    if 2 * len(distinct) <= max_edges:
        # Each value has its own bin, so that ties are exact.
        return np.unique(np.concatenate([distinct, np.nextafter(distinct, below)]))
    label_values = _distinct(np.sort(label_values))
    # A value of many rows gets its own bin.
    picked = _pick_evenly(sampled, (max_edges - len(label_values)) // 2 * 2)
    frequent = _distinct(picked[1:][picked[1:] == picked[:-1]])
    edges = _distinct(
        np.sort(np.concatenate([label_values, picked, np.nextafter(frequent, below)]))
    )
    return edges if len(edges) <= max_edges else _distinct(_pick_evenly(edges, max_edges))


def choose_bins(x: Array, labels: Ints, uniform: Bools, max_bins: int) -> Bins:
    """Choose at most ``max_bins`` bins per feature, with about equal numbers of sampled rows.

    ``uniform`` is True for rows that were drawn with equal probability.  Other rows were added for
    small labels.
    """
    p = x.shape[1]
    # Sort rows by label, and make the values of a feature contiguous.
    order = np.argsort(labels, kind="stable")
    names, label_index = np.unique(labels[order], return_inverse=True)
    first = np.searchsorted(label_index, np.arange(len(names) + 1))
    columns, uniform = np.ascontiguousarray(x[order].T), uniform[order]
    sampled = _ascending(columns[:, uniform])
    n_per_label = int((max_bins - 1) * _LABEL_BINS) // max(len(names), 1)
    values_by_label = [
        _pick_evenly_by_row(columns[:, i:j], n_per_label) for i, j in pairwise(first)
    ]
    label_values = (
        [np.concatenate([values[j] for values in values_by_label]) for j in range(p)]
        if values_by_label
        else columns
    )
    chosen = [
        _edges(*feature_edges, max_bins - 1)
        for feature_edges in zip(sampled, label_values, columns, strict=True)
    ]
    # Errors are estimated from a quarter of the sample, and all rows added for small labels.
    tested = np.flatnonzero(~uniform | (order % 4 == 0))
    edges = np.full((p, max(len(e) for e in chosen)), np.inf, x.dtype)
    low, scale, plain = np.zeros(p), np.zeros(p), np.zeros(p, bool)
    for j, feature_edges in enumerate(chosen):
        edges[j, : len(feature_edges)] = feature_edges
        if len(feature_edges):
            low[j], width = (
                float(feature_edges[0]),
                float(feature_edges[-1]) - float(feature_edges[0]),
            )
            with np.errstate(over="ignore", divide="ignore"):
                cells_per_unit = np.float64(_CELLS) / width if width > 0 else 0.0
            scale[j] = cells_per_unit if np.isfinite(cells_per_unit) else 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        is_single = np.diff(edges, axis=1, prepend=-np.inf) <= np.spacing(np.abs(edges))
    # First and last bin of each cell; a last cell is for missing values.
    starts, stops = np.zeros((2, p, _CELLS + 1), np.uint16)
    starts[:, -1] = stops[:, -1] = edges.shape[1] + 1
    grid = edges, low, scale, starts, stops, plain
    lengths = np.array([len(feature_edges) for feature_edges in chosen])
    _move_edges(
        grid,
        lengths,
        is_single,
        np.ascontiguousarray(columns[:, tested]),
        label_index[tested],
        len(names),
    )
    return Bins(*grid)


@compiled()
def _move_edges(grid, lengths, is_single, columns, label_index, n_labels):  # pragma: no cover
    """Compute the bins of all cells.  Move edges to the ends of cells if the error is small."""
    edges, low, scale, starts, stops, plain = grid
    p, n_cells, n = starts.shape[0], starts.shape[1] - 1, label_index.size
    inside, moved = np.empty(n_cells, np.int64), np.empty(n_cells, np.int64)
    bins, counts = np.empty(n, np.int64), np.empty(edges.shape[1] + 1)
    table = np.empty((n_labels, counts.size))
    for j in range(p):
        inside[:] = 0
        for e in range(lengths[j]):
            inside[_cell(edges[j, e], low[j], scale[j])] += 1
        first = n_moved = 0
        for cell in range(n_cells):
            starts[j, cell], moved[cell] = first, n_moved
            first += inside[cell]
            n_moved += inside[cell] > 0
            stops[j, cell] = first
        if lengths[j] <= _MIN_EDGES or scale[j] == 0.0:
            continue
        counts[:] = 1.0
        for i in range(n):
            v = columns[j, i]
            bins[i] = moved[_cell(v, low[j], scale[j])] if v == v else -1
        error = _auc_error(bins, label_index, counts, table)
        if error > _SMALL_ERROR:
            for i in range(n):
                v = columns[j, i]
                if v == v:
                    cell = _cell(v, low[j], scale[j])
                    bins[i] = starts[j, cell]
                    while bins[i] < stops[j, cell] and edges[j, bins[i]] < v:
                        bins[i] += 1
            for e in range(lengths[j]):
                counts[e] = 0.0 if is_single[j, e] else 1.0
            if error > _GROWTH * _auc_error(bins, label_index, counts, table):
                continue
        plain[j] = True
        edges[j] = np.inf
        for cell in range(n_cells):
            starts[j, cell] = stops[j, cell] = moved[cell]
            if inside[cell]:
                edges[j, moved[cell]] = low[j] + (cell + 1.0) / scale[j]


@compiled()
def _cell(value, low, scale):  # pragma: no cover
    """Return the cell of a value, as :func:`_fill` computes it."""
    return np.int64(min(max((np.float64(value) - low) * scale, 0.0), _CELLS - 1.0))


@compiled()
def _auc_error(bins, label_index, counts, table):  # pragma: no cover
    """Estimate the largest error of an AUC: half the fraction of pairs of rows in one bin.

    A row in bin b counts ``counts[b]``.  Rows with a negative bin are ignored.
    """
    sizes, totals = np.zeros(table.shape[0]), np.zeros(table.shape[1])
    n, worst = 0, 0.0
    table[:] = 0.0
    for i in range(bins.size):
        b = bins[i]
        if b >= 0:
            table[label_index[i], b] += counts[b]
            totals[b] += counts[b]
            sizes[label_index[i]] += 1.0
            n += 1
    for c in range(sizes.size):
        pairs = 0.0
        for b in range(totals.size):
            pairs += table[c, b] * totals[b]
        worst = max(worst, pairs / max(sizes[c], 1.0))
    return worst / max(n, 1) / 2.0


@compiled()
def _distances(x, index, centers, weights, p, out):  # pragma: no cover
    for i in range(x.shape[0]):
        c = index[i]
        if c < 0:
            out[i] = np.inf
            continue
        total = row_distance(x, i, centers, c, weights, 1.0, (), ())
        if total != total:
            total, n_observed = 0.0, 0
            for j in range(p):
                gap = np.float64(x[i, j]) - centers[c, j]
                square = gap * gap * weights[j]
                if square == square:
                    total += square
                    n_observed += 1
            total = total * p / n_observed if n_observed else np.inf
        out[i] = total


def distances_to_centers(x: Array, index: Ints, centers: Floats, weights: Floats | None) -> Floats:
    """Return squared distances of rows to their centers, computed from observed values.

    The distance of a row without values is infinite.
    """
    p, n_extra = centers.shape[1], x.shape[1] - centers.shape[1]
    factors = np.ones(p) if weights is None else np.asarray(weights, np.float64)
    x, index, _ = _kernel_arguments(x, index, None)
    out = np.empty(len(x))
    padded_centers = np.pad(np.asarray(centers, np.float64), ((0, 0), (0, n_extra)))
    _distances(x, index, padded_centers, np.pad(factors, (0, n_extra)), p, out)
    return out


@compiled(counted=False)
def _fill(x, index, weights, weighted, grid, buffers, out):  # pragma: no cover
    edges, low, scale, starts, stops, plain = grid
    cells, fours, rows, ends = buffers
    p, n_cells = starts.shape[0], starts.shape[1] - 1
    last, missing = np.float64(n_cells - 1), np.int16(n_cells)
    width, ignored, count_one = out.shape[2], out.shape[1] - 1, np.uint16(1)
    # Compute the cells of a tile row by row, then count by feature and label: counts stay in cache.
    for begin in range(0, x.shape[0], cells.shape[0]):
        end = min(begin + cells.shape[0], x.shape[0])
        ends[:] = 0
        for i in range(begin, end):
            ends[(ignored if index[i] < 0 else index[i]) + 2] += 1
        for c in range(1, ends.size):
            ends[c] += ends[c - 1]
        for i in range(begin, end):
            c = (ignored if index[i] < 0 else index[i]) + 1
            position = ends[c]
            ends[c] += 1
            rows[position] = i
            for j in range(p):
                v = np.float64(x[i, j])
                cell_number = min(max((v - low[j]) * scale[j], 0.0), last)
                cells[position, j] = np.int16(cell_number) if v == v else missing
        done = -1
        for j in range(p):
            if j <= done:
                continue
            firsts, counts = starts[j], out[j].reshape(-1)
            if not weighted and j % 4 == 0 and j + 3 < p and plain[j : j + 4].all():
                # Cells of four features are read at once.
                done = j + 3
                firsts1, counts1 = starts[j + 1], out[j + 1].reshape(-1)
                firsts2, counts2 = starts[j + 2], out[j + 2].reshape(-1)
                firsts3, counts3 = starts[j + 3], out[j + 3].reshape(-1)
                for c in range(ignored + 1):
                    base = c * width
                    label_counts_, label_counts1 = counts[base:], counts1[base:]
                    label_counts2, label_counts3 = counts2[base:], counts3[base:]
                    for position in range(ends[c], ends[c + 1]):
                        four = fours[position, j // 4]
                        label_counts_[firsts[four & _CELL_MASK]] += count_one
                        label_counts1[firsts1[(four >> _CELL_BITS) & _CELL_MASK]] += count_one
                        label_counts2[
                            firsts2[(four >> (_CELL_BITS + _CELL_BITS)) & _CELL_MASK]
                        ] += count_one
                        label_counts3[firsts3[four >> (_CELL_BITS + _CELL_BITS + _CELL_BITS)]] += (
                            count_one
                        )
                continue
            lasts, limits = stops[j], edges[j]
            for c in range(ignored + 1):
                label_counts_ = counts[c * width :]
                for position in range(ends[c], ends[c + 1]):
                    cell = np.uint16(cells[position, j])
                    first, stop = np.int64(firsts[cell]), np.int64(lasts[cell])
                    if first < stop:
                        v = x[rows[position], j]
                        # Find the first edge that is not below the value.
                        while first < stop:
                            middle = (first + stop) >> 1
                            if limits[middle] < v:
                                first = middle + 1
                            else:
                                stop = middle
                    label_counts_[first] += weights[rows[position]] if weighted else count_one


@compiled()
def _move_counts(counts, total):  # pragma: no cover
    for i in range(len(counts)):
        total[i] += counts[i]
        counts[i] = 0


def fill_histograms(
    x: Array, index: Ints, weight: Floats | None, k: int, bins: Bins, dtype: Any = np.float64
) -> Array:
    """Count the values of each feature by label and bin, as (p, k, bins.count)."""
    p, n_bins = len(bins.edges), bins.count
    # There is an additional label for ignored rows, and an additional bin for missing values.
    shape = p, k + 1, n_bins + 1
    counts = np.zeros(shape, np.uint16 if weight is None else np.float64)
    out = counts
    grid = bins.edges, bins.low, bins.scale, bins.starts, bins.stops, bins.plain
    x, index, weights = _kernel_arguments(x, index, weight)
    weighted = weight is not None
    rows = int(np.clip(_TILE // max(p, 1), 64, _TILE_ROWS))
    # Rows of cells fill cache lines.  The byte order is fixed, because four cells are read as one
    # number.
    cells = np.zeros((rows, -(-p // _LINE_CELLS) * _LINE_CELLS), "<i2")
    buffers = cells, cells.view("<u8"), np.empty(rows, np.int64), np.empty(k + 3, np.int64)
    counted = np.zeros(k + 1, np.int64)
    for start in range(0, len(x), _COUNTED_ROWS):
        batch = slice(start, start + _COUNTED_ROWS)
        new_counts = label_counts(index[batch], -1, k - 1)
        if not weighted and (counted + new_counts).max() > _MAX_COUNT:
            out = np.zeros(shape, dtype) if out is counts else out
            _move_counts(counts.reshape(-1), out.reshape(-1))
            counted[:] = 0
        counted += new_counts
        _fill(
            x[batch],
            index[batch],
            weights[batch],
            weighted,
            grid,
            buffers,
            counts,
        )
    if out is not counts:
        _move_counts(counts.reshape(-1), out.reshape(-1))
    return out[:, :k, :n_bins].astype(dtype)


@compiled()
def _areas(counts, single, areas, errors):  # pragma: no cover
    p, k, n_bins = counts.shape
    for j in range(p):
        totals = np.zeros(n_bins)
        for c in range(k):
            totals += counts[j, c]
        for c in range(k):
            size = below = area = error = 0.0
            for b in range(n_bins):
                inside = counts[j, c, b]
                rest = totals[b] - inside
                area += inside * (below + rest / 2)
                error += 0.0 if single[j, b] else inside * rest
                size += inside
                below += rest
            pairs = size * below
            if pairs > 0:
                areas[c, j], errors[c, j] = area / pairs, error / 2 / pairs


def rank_areas(counts: Floats, single: Bools) -> tuple[Floats, Floats]:
    """Return the AUC of each label against the rest, and its maximum error: (k, p), possibly NaN.

    ``counts`` are (p, k, bins).  ``single`` (p, bins) marks bins whose rows have the same value.
    """
    areas, errors = np.full((2, counts.shape[1], counts.shape[0]), np.nan)
    _areas(counts, single, areas, errors)
    return areas, errors


@compiled()
def _quantiles(counts, edges, single, bounds, levels, out):  # pragma: no cover
    p, k, n_bins = counts.shape
    for j in range(p):
        for c in range(k):
            sizes, low, high = counts[j, c], bounds[0, c, j], bounds[1, c, j]
            total = sizes.sum()
            if total <= 0.0:
                continue
            # Compute the values at the lower ranks, then those at the upper ranks.
            for side in range(2):
                b, before = 0, 0.0
                for q in range(levels.size):
                    exact = levels[q] * max(total - 1.0, 0.0)
                    rank = np.ceil(exact) if side else np.floor(exact)
                    while b < n_bins - 1 and before + sizes[b] <= rank:
                        before += sizes[b]
                        b += 1
                    if rank <= 0.0:
                        value = low
                    elif rank >= total - 1.0:
                        value = high
                    else:
                        value = high if b == n_bins - 1 else min(edges[j, b], high)
                        if not single[j, b] and sizes[b] > 0.0:
                            start = max(edges[j, b - 1], low) if b else low
                            fraction = min(max((rank - before + 0.5) / sizes[b], 0.0), 1.0)
                            value = start + fraction * (value - start)
                    if side:
                        out[c, j, q] += (exact - np.floor(exact)) * (value - out[c, j, q])
                    else:
                        out[c, j, q] = value


def histogram_quantiles(
    counts: Floats, bins: Bins, bounds: Floats, levels: Sequence[float]
) -> Floats:
    """Return interpolated quantiles (k, p, levels); NaN without values or with a single bin."""
    out = np.full((counts.shape[1], counts.shape[0], len(levels)), np.nan)
    if bins.count > 1:
        edges = bins.edges.astype(np.float64)
        _quantiles(
            counts, edges, bins.single(), np.ascontiguousarray(bounds), np.array(levels), out
        )
    return out


@compiled()
def _smallest(keys, index, best, positions):  # pragma: no cover
    count = best.shape[1]
    for i in range(keys.shape[0]):
        c, key = index[i], keys[i]
        if c < 0 or not key < best[c, count - 1]:
            continue
        j = count - 1
        while j > 0 and key < best[c, j - 1]:
            best[c, j], positions[c, j] = best[c, j - 1], positions[c, j - 1]
            j -= 1
        best[c, j], positions[c, j] = key, i


def smallest_of_each(keys: Floats, index: Ints, k: int, count: int) -> Ints:
    """Return positions (k, count) of the rows with the smallest finite keys of each label.

    Rows with equal keys are in row order.  Labels with fewer rows have -1 at the end.

    >>> smallest_of_each(np.array([2.0, 1.0, 1.0, 0.0]), np.array([0, 0, 0, 1]), 2, 2).tolist()
    [[1, 2], [3, -1]]
    """
    best, positions = np.full((k, count), np.inf), np.full((k, count), -1)
    _smallest(keys, index, best, positions)
    return positions


@compiled()
def _merge(labels, keys, rows, n_first, share, n_per_label, out):  # pragma: no cover
    i, j, count, rank, last = 0, n_first, 0, 0, -1
    while i < n_first or j < labels.size:
        if i == n_first or j == labels.size:
            first = i < n_first
        elif labels[i] != labels[j]:
            first = labels[i] < labels[j]
        else:
            first = keys[i] < keys[j] or (keys[i] == keys[j] and rows[i] < rows[j])
        position = i if first else j
        i, j = i + first, j + (not first)
        rank = rank + 1 if last >= 0 and labels[position] == labels[last] else 0
        last = position
        if rank < n_per_label or keys[position] <= share:
            out[count] = position
            count += 1
    return count


def merged_order(
    labels: Ints, keys: Floats, rows: Ints, n_first: int, share: float, n_per_label: int
) -> Ints:
    """Merge two samples that are sorted by label, key and row number.

    The first ``n_first`` rows are the first sample.  Return the positions, in sorted order, of the
    rows with keys of at most ``share``, and of the ``n_per_label`` rows with the smallest keys of
    each label.
    """
    out = np.empty(len(labels), np.int64)
    return out[: _merge(labels, keys, rows, n_first, share, n_per_label, out)]


@compiled()
def _count(labels, low, counts):  # pragma: no cover
    for i in range(labels.size):
        counts[np.int64(labels[i]) - low] += 1


def label_counts(labels: Ints, low: int, high: int) -> Ints:
    counts = np.zeros(high - low + 1, np.int64)
    _count(labels, low, counts)
    return counts


@compiled()
def _number(labels, low, table, index):  # pragma: no cover
    for i in range(labels.size):
        position = np.int64(labels[i]) - low
        index[i] = table[position] if 0 <= position < table.size else -1


def label_positions(labels: Ints, sorted_labels: Ints) -> Array:
    """Return positions of labels in a sorted array of labels with a small range (int32), or -1."""
    table = np.full(int(sorted_labels[-1] - sorted_labels[0]) + 1, -1)
    table[sorted_labels - sorted_labels[0]] = np.arange(len(sorted_labels))
    index = np.empty(len(labels), np.int32)
    _number(labels, int(sorted_labels[0]), table, index)
    return index
