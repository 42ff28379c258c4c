"""Kernels for maps of labels: replacement of small regions, and smoothing of posteriors.

A region of fewer than `least` pixels gets the code of its largest neighbor.  If this neighbor is
small too, the region gets the new code of the neighbor; in a cycle, it keeps its code.  Among
neighbors of equal size, the first one that is met line by line counts, as in ``gdal_sieve`` with
four neighbors.  A block decides about regions that only its pixels determine.  Regions at its
border, and small regions with several neighbors of which one is at the border, are *open*: they
are merged with the open regions of other blocks.

Posteriors of similar neighbors are smoothed by mean-field sweeps of a Potts model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Bools, Ints
from daskclust.core.kernels.compiling import compiled
from daskclust.core.kernels.linkage import find_root

#: Code of a region that keeps its code.
_STAYS = -3


@dataclass(frozen=True)
class OpenRegions:
    """The open regions of a block, which other blocks need; ``corner`` is its first pixel.

    ``best`` (4, b) describes open regions with decided neighbors: the number of the region, the
    size of its largest such neighbor, where they meet, and the open region that the neighbor joins,
    or -1; then ``becomes`` (b,) is the code of the neighbor.  ``meets`` (3, c) are small open
    regions, other regions that they touch, and where.  ``edges`` are the open regions along the
    first and the last line and column; -1 for none.
    """

    corner: tuple[int, int]
    codes: Ints
    sizes: Ints
    best: Ints
    becomes: Ints
    meets: Ints
    edges: tuple[Ints, Ints, Ints, Ints]


@dataclass(frozen=True)
class BlockRegions:
    """Codes of a block (negative: no region), the end of each region (-3: none), open regions."""

    codes: Ints
    ends: Ints
    opened: Ints


@compiled()
def _numbered(codes: Array) -> tuple[Ints, Ints]:
    """Return the region of each pixel (-1: none) and the sizes; regions are numbered in order."""
    height, width = codes.shape
    parent = np.arange(height * width)
    for i in range(height):
        for j in range(width):
            if codes[i, j] < 0:
                continue
            pixel = i * width + j
            if j > 0 and codes[i, j - 1] == codes[i, j]:
                first, second = find_root(parent, pixel), find_root(parent, pixel - 1)
                parent[max(first, second)] = min(first, second)
            if i > 0 and codes[i - 1, j] == codes[i, j]:
                first, second = find_root(parent, pixel), find_root(parent, pixel - width)
                parent[max(first, second)] = min(first, second)
    regions = np.full((height, width), -1, np.int64)
    sizes = np.zeros(height * width, np.int64)
    n = 0
    for i in range(height):
        for j in range(width):
            if codes[i, j] < 0:
                continue
            pixel = i * width + j
            root = find_root(parent, pixel)
            # A root is the first pixel of its region.
            if root == pixel:
                regions[i, j] = n
                n += 1
            else:
                regions[i, j] = regions[root // width, root % width]
            sizes[regions[i, j]] += 1
    return regions, sizes[:n].copy()


@compiled()
def _contacts(
    regions: Array, sizes: Array, least: int, top: int, left: int, across: int, out: Array
) -> int:
    """Write small regions, their neighbors, and where they meet to `out`; return their number."""
    height, width = regions.shape
    n = 0
    for i in range(height):
        for side in range(2):
            for j in range(side, width):
                if side == 0 and i == 0:
                    continue
                region = regions[i, j]
                neighbor = regions[i - 1, j] if side == 0 else regions[i, j - 1]
                if region < 0 or neighbor < 0 or region == neighbor:
                    continue
                meeting = _meeting(top + i, left + j, side, across)
                for a, b in ((region, neighbor), (neighbor, region)):
                    if sizes[a] < least:
                        if n < out.shape[1]:
                            out[0, n], out[1, n], out[2, n] = a, b, meeting
                        n += 1
    return n


@compiled()
def _meeting(line: int, column: int, side: int, across: int) -> int:
    """Return the position in the scan at which a pixel meets its upper (0) or left neighbor (1)."""
    return (line * across + column) * 2 + side


@compiled()
def _settled(follows: Array, value: Array) -> Ints:
    """Return the value at the end of each chain; -3 for cycles."""
    out, state = value.copy(), np.zeros(len(follows), np.int8)
    chain = np.empty(len(follows), np.int64)
    for start in range(len(follows)):
        region, n = start, 0
        while follows[region] >= 0 and state[region] == 0:
            state[region] = 1
            chain[n] = region
            n += 1
            region = follows[region]
        end = _STAYS if state[region] == 1 else out[region]
        for i in range(n):
            out[chain[i]], state[chain[i]] = end, 2
    return out


def _firsts(keys: Ints) -> Bools:
    return np.r_[True, keys[1:] != keys[:-1]] if len(keys) else np.empty(0, bool)


def _largest(regions: Ints, sizes: Ints, meetings: Ints) -> Ints:
    """Return the contact of each region with its largest neighbor, the first one among equals."""
    order = np.lexsort((meetings, -sizes, regions))
    return order[_firsts(regions[order])]


def regions_of(
    codes: Ints, least: int, corner: tuple[int, int], across: int
) -> tuple[BlockRegions, OpenRegions]:
    """Find the regions of the block at `corner` in an image, and decide about inner regions."""
    regions, sizes = _numbered(codes)
    n = len(sizes)
    of_region = np.empty(n, np.int64)
    inside = regions >= 0
    of_region[regions[inside]] = codes[inside]
    sides = (regions[0], regions[-1], regions[:, 0], regions[:, -1])
    is_open = np.zeros(n, bool)
    for side in sides:
        is_open[side[side >= 0]] = True
    none = np.empty((3, 0), np.int64)
    where = (regions, sizes, least, *corner, across)
    contacts = np.empty((3, _contacts(*where, none)), np.int64)
    _contacts(*where, contacts)
    small, other, at = contacts
    # The block decides about a small inner region if all its neighbors are inner regions, or if it
    # has only one neighbor.
    low, high = np.full(n, n), np.full(n, -1)
    np.minimum.at(low, small, other)
    np.maximum.at(high, small, other)
    touches = np.zeros(n, bool)
    touches[small[is_open[other]]] = True
    is_open |= touches & (low != high)
    # A region that becomes open here still has a known size for its neighbors.
    follows, value = np.full(n, -1), np.arange(n)
    chosen = _largest(small, sizes[other], at)
    follows[small[chosen]] = other[chosen]
    follows[is_open] = -1
    value[(sizes < least) & ~is_open & (follows < 0)] = _STAYS
    ends = _settled(follows, value)
    # The open regions, for other blocks.
    opened = np.flatnonzero(is_open)
    number = np.full(n + 1, -1)
    number[opened] = np.arange(len(opened))
    of_open = is_open[small]
    small, other, at = small[of_open], other[of_open], at[of_open]
    to_open = is_open[other]
    inner = np.flatnonzero(~to_open)
    chosen = inner[_largest(small[inner], sizes[other[inner]], at[inner])]
    end = ends[other[chosen]]
    becomes = np.where(end >= 0, of_region[end], _STAYS)
    best = np.stack(
        [number[small[chosen]], sizes[other[chosen]], at[chosen], number[np.where(end < 0, n, end)]]
    )
    order = np.flatnonzero(to_open)
    order = order[np.lexsort((at[order], other[order], small[order]))]
    order = order[_firsts(small[order] * n + other[order])]
    meets = np.stack([number[small[order]], number[other[order]], at[order]])
    # The last element of `number` stands for pixels without a region.
    edges = (number[sides[0]], number[sides[1]], number[sides[2]], number[sides[3]])
    return (
        BlockRegions(codes, ends, opened),
        OpenRegions(corner, of_region[opened], sizes[opened], best, becomes, meets, edges),
    )


@compiled()
def _unite(one: Array, other: Array, parent: Array) -> None:
    for i in range(len(one)):
        a, b = find_root(parent, one[i]), find_root(parent, other[i])
        parent[max(a, b)] = min(a, b)
    for i in range(len(parent)):
        parent[i] = find_root(parent, i)


def merge_open(
    blocks: Sequence[OpenRegions], numblocks: tuple[int, int], least: int, across: int
) -> list[Ints]:
    """Return the new code of each open region of each block, row by row, or -3."""
    offsets = np.cumsum([0, *(len(block.codes) for block in blocks)])
    total = int(offsets[-1])
    codes = np.concatenate([block.codes for block in blocks])
    # Pairs of regions at the edges of two blocks, and where they meet.
    pairs: list[Ints] = []
    for number, block in enumerate(blocks):
        (top, left), offset = block.corner, offsets[number]
        if number >= numblocks[1]:
            above = blocks[number - numblocks[1]].edges[1], offsets[number - numblocks[1]]
            columns = left + np.arange(len(block.edges[0]))
            meeting = _meeting(top, columns, 0, across)
            pairs.append(_pairs(block.edges[0], offset, *above, meeting))
        if number % numblocks[1]:
            to_the_left = blocks[number - 1].edges[3], offsets[number - 1]
            lines = top + np.arange(len(block.edges[2]))
            meeting = _meeting(lines, left, 1, across)
            pairs.append(_pairs(block.edges[2], offset, *to_the_left, meeting))
    between = np.concatenate([np.empty((3, 0), np.int64), *pairs], axis=1)
    same = codes[between[0]] == codes[between[1]]
    parent = np.arange(total)
    _unite(between[0, same], between[1, same], parent)
    sizes = np.zeros(total, np.int64)
    np.add.at(sizes, parent, np.concatenate([block.sizes for block in blocks]))
    # Contacts of the merged regions: with each other, and with decided regions.
    between = between[:, ~same]
    of_blocks = [
        block.meets + np.array([[offset], [offset], [0]])
        for block, offset in zip(blocks, offsets[:-1], strict=True)
    ]
    meets = np.concatenate([between, between[[1, 0, 2]], *of_blocks], axis=1)
    one, other = parent[meets[0]], parent[meets[1]]
    differ = one != other
    one, other, at = one[differ], other[differ], meets[2, differ]
    best = np.concatenate(
        [
            np.stack(
                [
                    best_of_block[0] + offset,
                    best_of_block[1],
                    best_of_block[2],
                    np.where(best_of_block[3] < 0, -1, best_of_block[3] + offset),
                ]
            )
            for best_of_block, offset in zip(
                (block.best for block in blocks), offsets[:-1], strict=True
            )
        ],
        axis=1,
    )
    regions = np.concatenate([one, parent[best[0]]])
    size = np.concatenate([sizes[other], best[1]])
    meeting = np.concatenate([at, best[2]])
    target = np.concatenate([other, np.where(best[3] < 0, -1, parent[best[3]])])
    code = np.concatenate([np.full(len(one), _STAYS), *(block.becomes for block in blocks)])
    chosen = _largest(regions, size, meeting)
    follows, value = np.full(total, -1), np.full(total, _STAYS)
    follows[regions[chosen]], value[regions[chosen]] = target[chosen], code[chosen]
    large = sizes >= least
    follows[large], value[large] = -1, codes[large]
    decision = _settled(follows, value)[parent]
    return np.split(decision, offsets[1:-1])


def _pairs(one: Ints, offset: int, other: Ints, other_offset: int, when: Ints) -> Ints:
    both = (one >= 0) & (other >= 0)
    return np.stack([one[both] + offset, other[both] + other_offset, when[both]])


def replaced(block: BlockRegions, verdict: Ints) -> Ints:
    """Return the codes of a block with small regions replaced; `verdict` is of `merge_open`."""
    regions, sizes = _numbered(block.codes)
    inside = regions >= 0
    codes_of_regions = np.empty(len(sizes), np.int64)
    codes_of_regions[regions[inside]] = block.codes[inside]
    final = codes_of_regions.copy()
    final[block.opened] = np.where(verdict == _STAYS, codes_of_regions[block.opened], verdict)
    stays = np.zeros(len(sizes), bool)
    stays[block.opened] = verdict == _STAYS
    is_replaced = block.ends >= 0
    is_replaced[is_replaced] = ~stays[block.ends[is_replaced]]
    out = block.codes.copy()
    out[inside] = np.where(is_replaced, final[block.ends], codes_of_regions)[regions[inside]]
    return out


#: Codes of pixels that are not rows, and of rows without a label.
MASKED, NONE = -2, -1
#: Number of sweeps over all pixels.  Each updates even positions, then odd positions.
_SWEEPS = 10
#: Maximum distance, in pixels, at which a pixel can change another pixel.
REACH = 2 * _SWEEPS
#: Lower bound of posteriors, so that each class remains possible.
_FLOOR = 0.001


@compiled()
def squared_gaps(one: Array, other: Array) -> Array:
    """Return squared distances of pairs of rows, from common bands scaled up to all, or NaN."""
    n, p = one.shape
    out = np.empty(n, np.float64)
    for i in range(n):
        out[i] = _gap(one[i], other[i], p)
    return out


@compiled()
def _gap(one: Array, other: Array, p: int) -> float:
    total, seen = 0.0, 0
    for f in range(p):
        gap = np.float64(one[f]) - np.float64(other[f])
        if not math.isnan(gap):
            total += gap * gap
            seen += 1
    return total * (p / seen) if seen else math.nan


@compiled()
def affinities(spectra: Array, valid: Array, height: int, width: int, scale: float) -> Array:
    """Return exp(-gap / scale) of each pixel and its right and lower neighbor: (height, width, 2).

    Spectra and ``valid`` include the line below and the column on the right, if they exist.
    ``scale`` is twice the median of the squared gaps; with 0 all pixels are similar.  The result is
    0 if the pixel or its neighbor is not a row, or the neighbor does not exist.
    """
    rows, cols, p = spectra.shape
    out = np.zeros((height, width, 2), np.float32)
    for i in range(height):
        for j in range(width):
            if not valid[i, j]:
                continue
            for side in range(2):
                y, x = (i, j + 1) if side == 0 else (i + 1, j)
                if y >= rows or x >= cols or not valid[y, x]:
                    continue
                gap = _gap(spectra[i, j], spectra[y, x], p)
                if not math.isnan(gap):
                    out[i, j, side] = math.exp(-gap / scale) if scale > 0 else 1.0
    return out


@compiled()
def swept(shares: Array, alike: Array, strength: float, odd: int) -> NDArray[np.int32]:
    """Return the best class of each pixel after and before the sweeps: (height, width, 2).

    Posteriors (height, width, k) are NaN without a row, and negative for a row without a label.
    ``odd`` is the parity of the position of the first pixel in the image.
    """
    height, width, k = shares.shape
    out = np.empty((height, width, 2), np.int32)
    q, energy = np.zeros((height, width, k), np.float32), np.empty(k)
    for i in range(height):
        for j in range(width):
            first = shares[i, j, 0]
            if not first >= 0:
                out[i, j, :] = MASKED if math.isnan(first) else NONE
                continue
            out[i, j, :] = np.argmax(shares[i, j])
            total = 0.0
            for c in range(k):
                total += max(shares[i, j, c], _FLOOR)
            for c in range(k):
                q[i, j, c] = max(shares[i, j, c], _FLOOR) / total
    for step in range(2 * _SWEEPS):
        for i in range(height):
            for j in range((i + odd + step) % 2, width, 2):
                if out[i, j, 0] < 0:
                    continue
                for c in range(k):
                    energy[c] = 0.0
                # Above, left, right, below; neighbors that are not rows do not count.
                if i > 0:
                    for c in range(k):
                        energy[c] += alike[i - 1, j, 1] * q[i - 1, j, c]
                if j > 0:
                    for c in range(k):
                        energy[c] += alike[i, j - 1, 0] * q[i, j - 1, c]
                if j < width - 1:
                    for c in range(k):
                        energy[c] += alike[i, j, 0] * q[i, j + 1, c]
                if i < height - 1:
                    for c in range(k):
                        energy[c] += alike[i, j, 1] * q[i + 1, j, c]
                highest, best = -math.inf, 0
                for c in range(k):
                    energy[c] = math.log(max(shares[i, j, c], _FLOOR)) + strength * energy[c]
                    if energy[c] > highest:
                        highest, best = energy[c], c
                total = 0.0
                for c in range(k):
                    energy[c] = math.exp(energy[c] - highest)
                    total += energy[c]
                for c in range(k):
                    q[i, j, c] = energy[c] / total
                out[i, j, 0] = best
    return out
