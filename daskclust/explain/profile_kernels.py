"""Moments and histograms of every feature by label, over the values that are there."""

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

#: Cells by which the search for a bin begins.
_CELLS = 4096
#: Edges are moved to the ends of cells where these are no few, and where the error of an AUC stays
#: below the one, or grows by the other at most.
_FEW, _SMALL_ERROR, _GROWTH = 16, 1.2e-3, 1.3
#: Values whose cells are found at a time, and rows at most.
_TILE, _TILE_ROWS = 2**18, 4096
#: Cells in a line of the cache; the first of four cells, and its bits.
_LINE, _LOW, _BITS = 32, np.uint64(0xFFFF), np.uint64(16)
#: Rows that are counted at a time, and most of a label in numbers of two bytes, which stay in a
#: nearer cache.
_PART, _MOST_COUNTED = 15 * 2**12, 2**16 - 1
#: Numbers of a vector, by which moments are padded.
_PADDED = 8
#: Bytes of the rows that are put in the order of their labels: they stay in the second-level cache
#: beside those that come next.
_SORTED = 3 * 2**17
#: Share of the bins that follow the quantiles of single labels.
_OF_LABELS = 0.25


def _handed(x: Array, index: Ints, weight: Floats | None) -> tuple[Array, Array, Floats]:
    """Rows, labels and weights as kernels take them: of one type each, but for the precision."""
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
                # Squares about a row of the label keep their digits whatever the offset.
                moments[3, c, j] = v
            gap = v - moments[3, c, j]
            moments[0, c, j] += w
            moments[1, c, j] += w * gap
            moments[2, c, j] += w * gap * gap
            bounds[0, c, j] = min(bounds[0, c, j], v)
            bounds[1, c, j] = max(bounds[1, c, j], v)


@compiled(counted=False)
def _complete_moments(x, index, sizes, facts, order, ends):  # pragma: no cover
    """Compute the moments of rows that count alike and lack nothing; else sums are not finite."""
    for begin in range(0, x.shape[0], order.size):
        count = min(order.size, x.shape[0] - begin)
        # Rows of a label one after another: its moments stay in registers.
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
                # Squares about a row of the label keep their digits whatever the offset.
                for j in range(x.shape[1]):
                    facts[c, j] = np.float64(x[order[first], j])
            sizes[c] += stop - first
            add_moments(x, order, first, stop, facts, c, begin + count)


def value_moments(
    x: Array, index: Ints, weight: Floats | None, k: int, n_features: int | None = None
) -> tuple[Floats, Floats, Floats, Floats]:
    """Moments, range and missing values of each feature, by labels in [0, k), others left out.

    Columns beyond ``n_features`` do not count: a slice would not be contiguous.  Returned are the
    weight of the rows (k,); weight, mean and squared deviations (3, k, p) of the values; least and
    largest value (2, k, p), infinite for none; the weight of the missing values (k, p).
    """
    p = x.shape[1] if n_features is None else n_features
    x, index, weights = _handed(x, index, weight)
    sizes, missing = np.zeros(k), np.zeros((k, p))
    if weight is None:
        width = -(-x.shape[1] // _PADDED) * _PADDED
        parts = np.zeros((k, 5, width))
        parts[:, 3:] = np.array([np.inf, -np.inf])[:, None]
        rows = int(np.clip(_SORTED // max(x.itemsize * x.shape[1], 1), 32, 4096))
        order, ends = np.empty(rows, np.int64), np.empty(k + 2, np.int64)
        _complete_moments(x, index, sizes, parts.reshape(k, 5 * width), order, ends)
        facts = parts.transpose(1, 0, 2)[..., :p]
        (origin, sums, squares), bounds = facts[:3], facts[3:]
        total = np.repeat(sizes[:, None], p, axis=1)
    if weight is not None or not np.isfinite(sums).all():
        found = np.zeros((4, k, p))
        bounds = np.stack([np.full((k, p), np.inf), np.full((k, p), -np.inf)])
        sizes[:] = 0.0
        _moments(x, index, weights, weight is not None, sizes, found, bounds, missing)
        total, sums, squares, origin = found
    # Infinities are refused by the range, once all rows are known.
    with np.errstate(invalid="ignore", over="ignore"):
        shift = np.divide(sums, total, out=np.zeros_like(total), where=total > 0)
        deviation = np.maximum(squares - sums * shift, 0.0)
    return sizes, np.stack([total, origin + shift, deviation]), np.array(bounds), missing


@dataclass(frozen=True)
class Bins:
    """Bins of each feature: bin b holds the values in ``(edges[b - 1], edges[b]]``.

    ``edges`` (p, m) ascend, infinite behind the last of a feature.  Value v lies in cell
    ``(v - low) * scale`` of a grid of equal cells, and ``starts`` and ``stops`` (p, cells) are the
    first and last bin of the values of each cell.  ``plain`` (p,): edges were moved to the ends of
    cells, so that nothing is left to search.  A last cell leads to the bin of what is missing.
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
        """Which bins of each feature can hold one value only: an array (p, bins)."""
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
    """Sort each line; what is missing is left out."""
    columns = np.sort(columns, axis=1)
    there = columns.shape[1] - np.isnan(columns).sum(axis=1)
    return [line[:count] for line, count in zip(columns, there, strict=True)]


def _spread(ordered: Array, count: int) -> Array:
    return ordered[_ranks(len(ordered), count)]


def _spreads(columns: Array, count: int) -> Array | list[Array]:
    columns = np.sort(columns, axis=1)
    if np.isnan(columns[:, -1:]).any():
        return [_spread(line, count) for line in _ascending(columns)]
    return columns[:, _ranks(columns.shape[1], count)]


def _distinct(ordered: Array) -> Array:
    first = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def _edges(drawn: Array, fine: Array, values: Array, most: int) -> Array:
    """Choose edges from sorted drawn values, ``fine`` ones of labels, and all of the sample."""
    below, distinct = drawn.dtype.type(-np.inf), _distinct(drawn)
    if 2 * len(distinct) <= most:
        distinct = np.unique(values[~np.isnan(values)])
    if 2 * len(distinct) <= most:
        # Each value alone, so that ties are seen as ties.
        return np.unique(np.concatenate([distinct, np.nextafter(distinct, below)]))
    fine = _distinct(np.sort(fine))
    # A value that many rows share has a bin of its own.
    rough = _spread(drawn, (most - len(fine)) // 2 * 2)
    heavy = _distinct(rough[1:][rough[1:] == rough[:-1]])
    edges = _distinct(np.sort(np.concatenate([fine, rough, np.nextafter(heavy, below)])))
    return edges if len(edges) <= most else _distinct(_spread(edges, most))


def choose_bins(x: Array, labels: Ints, uniform: Bools, most: int) -> Bins:
    """Choose up to ``most`` bins of about as many rows by a sample, ``uniform`` in part."""
    p = x.shape[1]
    # Feature by feature, the rows of each label together.
    order = np.argsort(labels, kind="stable")
    found, place = np.unique(labels[order], return_inverse=True)
    first = np.searchsorted(place, np.arange(len(found) + 1))
    columns, uniform = np.ascontiguousarray(x[order].T), uniform[order]
    drawn = _ascending(columns[:, uniform])
    each = int((most - 1) * _OF_LABELS) // max(len(found), 1)
    parts = [_spreads(columns[:, i:j], each) for i, j in pairwise(first)]
    fine = [np.concatenate([part[j] for part in parts]) for j in range(p)] if parts else columns
    chosen = [_edges(*own, most - 1) for own in zip(drawn, fine, columns, strict=True)]
    # A part of the sample, with all of small clusters, tells what moved edges would hide.
    told = np.flatnonzero(~uniform | (order % 4 == 0))
    edges = np.full((p, max(len(e) for e in chosen)), np.inf, x.dtype)
    low, scale, plain = np.zeros(p), np.zeros(p), np.zeros(p, bool)
    for j, own in enumerate(chosen):
        edges[j, : len(own)] = own
        if len(own):
            low[j], width = float(own[0]), float(own[-1]) - float(own[0])
            with np.errstate(over="ignore", divide="ignore"):
                found_scale = np.float64(_CELLS) / width if width > 0 else 0.0
            scale[j] = found_scale if np.isfinite(found_scale) else 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        alone = np.diff(edges, axis=1, prepend=-np.inf) <= np.spacing(np.abs(edges))
    # Bins of the cells; a last one is for what is missing.
    starts, stops = np.zeros((2, p, _CELLS + 1), np.uint16)
    starts[:, -1] = stops[:, -1] = edges.shape[1] + 1
    grid = edges, low, scale, starts, stops, plain
    lengths = np.array([len(own) for own in chosen])
    _move_edges(
        grid, lengths, alone, np.ascontiguousarray(columns[:, told]), place[told], len(found)
    )
    return Bins(*grid)


@compiled()
def _move_edges(grid, lengths, alone, columns, owners, n_labels):  # pragma: no cover
    """Find the bins of all cells, and move edges to the ends of cells where this hides little."""
    edges, low, scale, starts, stops, plain = grid
    p, n_cells, n = starts.shape[0], starts.shape[1] - 1, owners.size
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
        if lengths[j] <= _FEW or scale[j] == 0.0:
            continue
        counts[:] = 1.0
        for i in range(n):
            v = columns[j, i]
            bins[i] = moved[_cell(v, low[j], scale[j])] if v == v else -1
        hidden = _hidden(bins, owners, counts, table)
        if hidden > _SMALL_ERROR:
            for i in range(n):
                v = columns[j, i]
                if v == v:
                    cell = _cell(v, low[j], scale[j])
                    bins[i] = starts[j, cell]
                    while bins[i] < stops[j, cell] and edges[j, bins[i]] < v:
                        bins[i] += 1
            for e in range(lengths[j]):
                counts[e] = 0.0 if alone[j, e] else 1.0
            if hidden > _GROWTH * _hidden(bins, owners, counts, table):
                continue
        plain[j] = True
        edges[j] = np.inf
        for cell in range(n_cells):
            starts[j, cell] = stops[j, cell] = moved[cell]
            if inside[cell]:
                edges[j, moved[cell]] = low[j] + (cell + 1.0) / scale[j]


@compiled()
def _cell(value, low, scale):  # pragma: no cover
    """Cell of a value, computed as :func:`_fill` computes it."""
    return np.int64(min(max((np.float64(value) - low) * scale, 0.0), _CELLS - 1.0))


@compiled()
def _hidden(bins, owners, counts, table):  # pragma: no cover
    """Estimate the largest error of an AUC: half the pairs of a row and any other in one bin.

    A row in bin b counts ``counts[b]``; what is in none, of negative number, is left out.
    """
    sizes, totals = np.zeros(table.shape[0]), np.zeros(table.shape[1])
    n, worst = 0, 0.0
    table[:] = 0.0
    for i in range(bins.size):
        b = bins[i]
        if b >= 0:
            table[owners[i], b] += counts[b]
            totals[b] += counts[b]
            sizes[owners[i]] += 1.0
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
            total, seen = 0.0, 0
            for j in range(p):
                gap = np.float64(x[i, j]) - centers[c, j]
                square = gap * gap * weights[j]
                if square == square:
                    total += square
                    seen += 1
            total = total * p / seen if seen else np.inf
        out[i] = total


def own_squared(x: Array, index: Ints, centers: Floats, weights: Floats | None) -> Floats:
    """Squared distances of rows to their own centers, over what they observe; infinite for none."""
    p, more = centers.shape[1], x.shape[1] - centers.shape[1]
    given = np.ones(p) if weights is None else np.asarray(weights, np.float64)
    x, index, _ = _handed(x, index, None)
    out = np.empty(len(x))
    wide = np.pad(np.asarray(centers, np.float64), ((0, 0), (0, more)))
    _distances(x, index, wide, np.pad(given, (0, more)), p, out)
    return out


@compiled(counted=False)
def _fill(x, index, weights, weighted, grid, held, out):  # pragma: no cover
    edges, low, scale, starts, stops, plain = grid
    cells, fours, rows, ends = held
    p, n_cells = starts.shape[0], starts.shape[1] - 1
    last, nothing = np.float64(n_cells - 1), np.int16(n_cells)
    width, others, one = out.shape[2], out.shape[1] - 1, np.uint16(1)
    # Cells of a few rows first, row by row; then feature by feature and label by label, so that
    # what these need stays in the cache.
    for begin in range(0, x.shape[0], cells.shape[0]):
        end = min(begin + cells.shape[0], x.shape[0])
        ends[:] = 0
        for i in range(begin, end):
            ends[(others if index[i] < 0 else index[i]) + 2] += 1
        for c in range(1, ends.size):
            ends[c] += ends[c - 1]
        for i in range(begin, end):
            c = (others if index[i] < 0 else index[i]) + 1
            at = ends[c]
            ends[c] += 1
            rows[at] = i
            for j in range(p):
                v = np.float64(x[i, j])
                place = min(max((v - low[j]) * scale[j], 0.0), last)
                cells[at, j] = np.int16(place) if v == v else nothing
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
                for c in range(others + 1):
                    base = c * width
                    own, own1 = counts[base:], counts1[base:]
                    own2, own3 = counts2[base:], counts3[base:]
                    for at in range(ends[c], ends[c + 1]):
                        four = fours[at, j // 4]
                        own[firsts[four & _LOW]] += one
                        own1[firsts1[(four >> _BITS) & _LOW]] += one
                        own2[firsts2[(four >> (_BITS + _BITS)) & _LOW]] += one
                        own3[firsts3[four >> (_BITS + _BITS + _BITS)]] += one
                continue
            lasts, limits = stops[j], edges[j]
            for c in range(others + 1):
                own = counts[c * width :]
                for at in range(ends[c], ends[c + 1]):
                    cell = np.uint16(cells[at, j])
                    first, stop = np.int64(firsts[cell]), np.int64(lasts[cell])
                    if first < stop:
                        v = x[rows[at], j]
                        # The first edge that is not below the value.
                        while first < stop:
                            middle = (first + stop) >> 1
                            if limits[middle] < v:
                                first = middle + 1
                            else:
                                stop = middle
                    own[first] += weights[rows[at]] if weighted else one


@compiled()
def _move(counts, total):  # pragma: no cover
    for i in range(len(counts)):
        total[i] += counts[i]
        counts[i] = 0


def fill_histograms(
    x: Array, index: Ints, weight: Floats | None, k: int, bins: Bins, dtype: Any = np.float64
) -> Array:
    """Count the values of each feature by label and bin, as (p, k, bins.count)."""
    p, n_bins = len(bins.edges), bins.count
    # One more label for rows that do not count, one more bin for what is missing.
    shape = p, k + 1, n_bins + 1
    counts = np.zeros(shape, np.uint16 if weight is None else np.float64)
    out = counts
    grid = bins.edges, bins.low, bins.scale, bins.starts, bins.stops, bins.plain
    x, index, weights = _handed(x, index, weight)
    weighted = weight is not None
    rows = int(np.clip(_TILE // max(p, 1), 64, _TILE_ROWS))
    # Whole lines of the cache; cells of four features in the order of the bytes of any machine.
    cells = np.zeros((rows, -(-p // _LINE) * _LINE), "<i2")
    held = cells, cells.view("<u8"), np.empty(rows, np.int64), np.empty(k + 3, np.int64)
    counted = np.zeros(k + 1, np.int64)
    for start in range(0, len(x), _PART):
        part = slice(start, start + _PART)
        more = label_counts(index[part], -1, k - 1)
        if not weighted and (counted + more).max() > _MOST_COUNTED:
            out = np.zeros(shape, dtype) if out is counts else out
            _move(counts.reshape(-1), out.reshape(-1))
            counted[:] = 0
        counted += more
        _fill(x[part], index[part], weights[part], weighted, grid, held, counts)
    if out is not counts:
        _move(counts.reshape(-1), out.reshape(-1))
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
                own = counts[j, c, b]
                rest = totals[b] - own
                area += own * (below + rest / 2)
                error += 0.0 if single[j, b] else own * rest
                size += own
                below += rest
            pairs = size * below
            if pairs > 0:
                areas[c, j], errors[c, j] = area / pairs, error / 2 / pairs


def rank_areas(counts: Floats, single: Bools) -> tuple[Floats, Floats]:
    """AUC of each label against the rest, and how far off it may be, (k, p), NaN for nothing.

    ``counts`` (p, k, bins); what is in a bin of one value, ``single`` (p, bins), is tied.
    """
    areas, errors = np.full((2, counts.shape[1], counts.shape[0]), np.nan)
    _areas(counts, single, areas, errors)
    return areas, errors


@compiled()
def _quantiles(counts, edges, single, bounds, shares, out):  # pragma: no cover
    p, k, n_bins = counts.shape
    for j in range(p):
        for c in range(k):
            own, low, high = counts[j, c], bounds[0, c, j], bounds[1, c, j]
            total = own.sum()
            if total <= 0.0:
                continue
            # The values of the ranks below, then of those above.
            for side in range(2):
                b, before = 0, 0.0
                for q in range(shares.size):
                    exact = shares[q] * max(total - 1.0, 0.0)
                    rank = np.ceil(exact) if side else np.floor(exact)
                    while b < n_bins - 1 and before + own[b] <= rank:
                        before += own[b]
                        b += 1
                    if rank <= 0.0:
                        found = low
                    elif rank >= total - 1.0:
                        found = high
                    else:
                        found = high if b == n_bins - 1 else min(edges[j, b], high)
                        if not single[j, b] and own[b] > 0.0:
                            left = max(edges[j, b - 1], low) if b else low
                            part = min(max((rank - before + 0.5) / own[b], 0.0), 1.0)
                            found = left + part * (found - left)
                    if side:
                        out[c, j, q] += (exact - np.floor(exact)) * (found - out[c, j, q])
                    else:
                        out[c, j, q] = found


def histogram_quantiles(
    counts: Floats, bins: Bins, bounds: Floats, shares: Sequence[float]
) -> Floats:
    """Quantiles (k, p, shares) between values of the nearest ranks; NaN for no value or one bin."""
    out = np.full((counts.shape[1], counts.shape[0], len(shares)), np.nan)
    if bins.count > 1:
        edges = bins.edges.astype(np.float64)
        _quantiles(
            counts, edges, bins.single(), np.ascontiguousarray(bounds), np.array(shares), out
        )
    return out


@compiled()
def _smallest(keys, index, best, places):  # pragma: no cover
    count = best.shape[1]
    for i in range(keys.shape[0]):
        c, key = index[i], keys[i]
        if c < 0 or not key < best[c, count - 1]:
            continue
        j = count - 1
        while j > 0 and key < best[c, j - 1]:
            best[c, j], places[c, j] = best[c, j - 1], places[c, j - 1]
            j -= 1
        best[c, j], places[c, j] = key, i


def smallest_of_each(keys: Floats, index: Ints, k: int, count: int) -> Ints:
    """Places (k, count) of the rows of smallest finite key of each label, earlier first; -1: none.

    >>> smallest_of_each(np.array([2.0, 1.0, 1.0, 0.0]), np.array([0, 0, 0, 1]), 2, 2).tolist()
    [[1, 2], [3, -1]]
    """
    best, places = np.full((k, count), np.inf), np.full((k, count), -1)
    _smallest(keys, index, best, places)
    return places


@compiled()
def _merge(labels, keys, rows, n_first, share, each, kept):  # pragma: no cover
    i, j, count, rank, last = 0, n_first, 0, 0, -1
    while i < n_first or j < labels.size:
        if i == n_first or j == labels.size:
            first = i < n_first
        elif labels[i] != labels[j]:
            first = labels[i] < labels[j]
        else:
            first = keys[i] < keys[j] or (keys[i] == keys[j] and rows[i] < rows[j])
        at = i if first else j
        i, j = i + first, j + (not first)
        rank = rank + 1 if last >= 0 and labels[at] == labels[last] else 0
        last = at
        if rank < each or keys[at] <= share:
            kept[count] = at
            count += 1
    return count


def merged_order(
    labels: Ints, keys: Floats, rows: Ints, n_first: int, share: float, each: int
) -> Ints:
    """Merge two samples, ``n_first`` rows and the others, each by label, key and number.

    Kept are rows of keys of at most ``share``, and of each label those of ``each`` smallest keys.
    """
    kept = np.empty(len(labels), np.int64)
    return kept[: _merge(labels, keys, rows, n_first, share, each, kept)]


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
        at = np.int64(labels[i]) - low
        index[i] = table[at] if 0 <= at < table.size else -1


def label_places(labels: Ints, known: Ints) -> Array:
    """Places of labels among known ones, which are sorted and lie close, int32; -1 for others."""
    table = np.full(int(known[-1] - known[0]) + 1, -1)
    table[known - known[0]] = np.arange(len(known))
    index = np.empty(len(labels), np.int32)
    _number(labels, int(known[0]), table, index)
    return index
