"""Kernels for maps of labels: replacement of small regions, and smoothing of posteriors.

A region smaller than `least` pixels becomes its largest neighbor; where that is small itself, what
becomes of it; and stays as it is where the walk ends nowhere.  Of neighbors of one size the one
that is met first counts, line by line.  So does ``gdal_sieve`` with four neighbors.
A block settles what its own pixels settle.  Regions at its border, and small ones with several
neighbors of which one is at the border, are *open*: these are merged with those of other blocks.

Posteriors are smoothed where spectra are alike, by mean-field sweeps of a Potts model.
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

#: A region without a neighbor stays.
_STAYS = -3


@dataclass(frozen=True)
class OpenRegions:
    """The part of a block, from ``place`` on, that other blocks have to know: its open regions.

    ``best`` (4, b), of those with settled neighbors: their number, the size of the largest such
    neighbor, where they meet, and the open region that it becomes, or -1; ``becomes`` (b,) the code
    that it becomes otherwise.  ``meets`` (3, c): small open regions, others that they touch, and
    where.  ``edges``: those along the first and the last line and column; -1 for none.
    """

    place: tuple[int, int]
    codes: Ints
    sizes: Ints
    best: Ints
    becomes: Ints
    meets: Ints
    edges: tuple[Ints, Ints, Ints, Ints]


@dataclass(frozen=True)
class BlockRegions:
    """A block's map, negative for no region; the region that each becomes, or -3; the open ones."""

    codes: Ints
    ends: Ints
    opened: Ints


@compiled()
def _numbered(codes: Array) -> tuple[Ints, Ints]:
    """Return the region of each pixel, -1 for none, and the sizes; regions as they are met."""
    height, width = codes.shape
    parent = np.arange(height * width)
    for i in range(height):
        for j in range(width):
            if codes[i, j] < 0:
                continue
            at = i * width + j
            if j > 0 and codes[i, j - 1] == codes[i, j]:
                one, other = find_root(parent, at), find_root(parent, at - 1)
                parent[max(one, other)] = min(one, other)
            if i > 0 and codes[i - 1, j] == codes[i, j]:
                one, other = find_root(parent, at), find_root(parent, at - width)
                parent[max(one, other)] = min(one, other)
    regions = np.full((height, width), -1, np.int64)
    sizes = np.zeros(height * width, np.int64)
    n = 0
    for i in range(height):
        for j in range(width):
            if codes[i, j] < 0:
                continue
            at = i * width + j
            root = find_root(parent, at)
            # A root is the first pixel of its region.
            if root == at:
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
    """Fill in small regions, what they touch, and where; or only count where there is no room."""
    height, width = regions.shape
    n = 0
    for i in range(height):
        for side in range(2):
            for j in range(side, width):
                if side == 0 and i == 0:
                    continue
                one = regions[i, j]
                other = regions[i - 1, j] if side == 0 else regions[i, j - 1]
                if one < 0 or other < 0 or one == other:
                    continue
                at = _meeting(top + i, left + j, side, across)
                for a, b in ((one, other), (other, one)):
                    if sizes[a] < least:
                        if n < out.shape[1]:
                            out[0, n], out[1, n], out[2, n] = a, b, at
                        n += 1
    return n


@compiled()
def _meeting(line: int, column: int, side: int, across: int) -> int:
    """Return when a pixel meets that above (side 0) or on the left (1)."""
    return (line * across + column) * 2 + side


@compiled()
def _settled(follows: Array, value: Array) -> Ints:
    """Return the value at the end of each chain; -3 where it goes round in a circle."""
    out, state = value.copy(), np.zeros(len(follows), np.int8)
    chain = np.empty(len(follows), np.int64)
    for start in range(len(follows)):
        at, n = start, 0
        while follows[at] >= 0 and state[at] == 0:
            state[at] = 1
            chain[n] = at
            n += 1
            at = follows[at]
        end = _STAYS if state[at] == 1 else out[at]
        for i in range(n):
            out[chain[i]], state[chain[i]] = end, 2
    return out


def _firsts(keys: Ints) -> Bools:
    return np.r_[True, keys[1:] != keys[:-1]] if len(keys) else np.empty(0, bool)


def _largest(who: Ints, size: Ints, at: Ints) -> Ints:
    """Return the contact of each region with its largest neighbor, that met first among equals."""
    order = np.lexsort((at, -size, who))
    return order[_firsts(who[order])]


def regions_of(
    codes: Ints, least: int, place: tuple[int, int], across: int
) -> tuple[BlockRegions, OpenRegions]:
    """Find the regions of a block at a place in an image, and settle what it can."""
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
    where = (regions, sizes, least, *place, across)
    contacts = np.empty((3, _contacts(*where, none)), np.int64)
    _contacts(*where, contacts)
    who, other, at = contacts
    # Small regions inside: what they become is known where all that they touch is inside, too, or
    # if they touch only one region.
    low, high = np.full(n, n), np.full(n, -1)
    np.minimum.at(low, who, other)
    np.maximum.at(high, who, other)
    touches = np.zeros(n, bool)
    touches[who[is_open[other]]] = True
    is_open |= touches & (low != high)
    # An inner region that has become open may still be a settled size to others.
    follows, value = np.full(n, -1), np.arange(n)
    chosen = _largest(who, sizes[other], at)
    follows[who[chosen]] = other[chosen]
    follows[is_open] = -1
    value[(sizes < least) & ~is_open & (follows < 0)] = _STAYS
    ends = _settled(follows, value)
    # The message.
    opened = np.flatnonzero(is_open)
    number = np.full(n + 1, -1)
    number[opened] = np.arange(len(opened))
    mine = is_open[who]
    who, other, at = who[mine], other[mine], at[mine]
    to_open = is_open[other]
    inner = np.flatnonzero(~to_open)
    chosen = inner[_largest(who[inner], sizes[other[inner]], at[inner])]
    end = ends[other[chosen]]
    becomes = np.where(end >= 0, of_region[end], _STAYS)
    best = np.stack(
        [number[who[chosen]], sizes[other[chosen]], at[chosen], number[np.where(end < 0, n, end)]]
    )
    order = np.flatnonzero(to_open)
    order = order[np.lexsort((at[order], other[order], who[order]))]
    order = order[_firsts(who[order] * n + other[order])]
    meets = np.stack([number[who[order]], number[other[order]], at[order]])
    # The last element of `number` stands for pixels without a region.
    edges = (number[sides[0]], number[sides[1]], number[sides[2]], number[sides[3]])
    return (
        BlockRegions(codes, ends, opened),
        OpenRegions(place, of_region[opened], sizes[opened], best, becomes, meets, edges),
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
    """Return the code that each open region of each block, row by row, becomes, or -3."""
    offsets = np.cumsum([0, *(len(block.codes) for block in blocks)])
    total = int(offsets[-1])
    codes = np.concatenate([block.codes for block in blocks])
    # Edges of blocks, one against the other: region, region, when they meet.
    pairs: list[Ints] = []
    for number, block in enumerate(blocks):
        (top, left), offset = block.place, offsets[number]
        if number >= numblocks[1]:
            above = blocks[number - numblocks[1]].edges[1], offsets[number - numblocks[1]]
            columns = left + np.arange(len(block.edges[0]))
            when = _meeting(top, columns, 0, across)
            pairs.append(_pairs(block.edges[0], offset, *above, when))
        if number % numblocks[1]:
            beside = blocks[number - 1].edges[3], offsets[number - 1]
            lines = top + np.arange(len(block.edges[2]))
            when = _meeting(lines, left, 1, across)
            pairs.append(_pairs(block.edges[2], offset, *beside, when))
    between = np.concatenate([np.empty((3, 0), np.int64), *pairs], axis=1)
    same = codes[between[0]] == codes[between[1]]
    parent = np.arange(total)
    _unite(between[0, same], between[1, same], parent)
    sizes = np.zeros(total, np.int64)
    np.add.at(sizes, parent, np.concatenate([block.sizes for block in blocks]))
    # Contacts of the merged regions: among themselves, and with what blocks have settled.
    between = between[:, ~same]
    own = [
        block.meets + np.array([[offset], [offset], [0]])
        for block, offset in zip(blocks, offsets[:-1], strict=True)
    ]
    meets = np.concatenate([between, between[[1, 0, 2]], *own], axis=1)
    one, other = parent[meets[0]], parent[meets[1]]
    apart = one != other
    one, other, at = one[apart], other[apart], meets[2, apart]
    best = np.concatenate(
        [
            np.stack(
                [part[0] + offset, part[1], part[2], np.where(part[3] < 0, -1, part[3] + offset)]
            )
            for part, offset in zip((block.best for block in blocks), offsets[:-1], strict=True)
        ],
        axis=1,
    )
    who = np.concatenate([one, parent[best[0]]])
    size = np.concatenate([sizes[other], best[1]])
    when = np.concatenate([at, best[2]])
    target = np.concatenate([other, np.where(best[3] < 0, -1, parent[best[3]])])
    code = np.concatenate([np.full(len(one), _STAYS), *(block.becomes for block in blocks)])
    chosen = _largest(who, size, when)
    follows, value = np.full(total, -1), np.full(total, _STAYS)
    follows[who[chosen]], value[who[chosen]] = target[chosen], code[chosen]
    large = sizes >= least
    follows[large], value[large] = -1, codes[large]
    verdict = _settled(follows, value)[parent]
    return np.split(verdict, offsets[1:-1])


def _pairs(one: Ints, offset: int, other: Ints, other_offset: int, when: Ints) -> Ints:
    both = (one >= 0) & (other >= 0)
    return np.stack([one[both] + offset, other[both] + other_offset, when[both]])


def replaced(block: BlockRegions, verdict: Ints) -> Ints:
    """Return the map of a block with its small regions replaced; verdicts from `merge_open`."""
    regions, sizes = _numbered(block.codes)
    inside = regions >= 0
    own = np.empty(len(sizes), np.int64)
    own[regions[inside]] = block.codes[inside]
    final = own.copy()
    final[block.opened] = np.where(verdict == _STAYS, own[block.opened], verdict)
    stays = np.zeros(len(sizes), bool)
    stays[block.opened] = verdict == _STAYS
    goes = block.ends >= 0
    goes[goes] = ~stays[block.ends[goes]]
    out = block.codes.copy()
    out[inside] = np.where(goes, final[block.ends], own)[regions[inside]]
    return out


#: Codes of pixels that are not rows, and of rows without a label.
MASKED, NONE = -2, -1
#: Number of sweeps over all pixels.  Each updates even positions, then odd positions.
_SWEEPS = 10
#: Maximum distance, in pixels, at which a pixel can change another pixel.
REACH = 2 * _SWEEPS
#: A posterior counts for no less: no class is out of the question.
_FLOOR = 0.001


@compiled()
def squared_gaps(one: Array, other: Array) -> Array:
    """Return squared distances of pairs of rows, over bands of both scaled up to all, or NaN."""
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
    """Return exp(-gap / scale) of each pixel's spectrum to those on the right and below.

    Spectra and ``valid`` have the line below and the column on the right, where there are such.
    ``scale`` is twice the median of the squared gaps; 0 makes all pixels alike.  The result of
    shape (height, width, 2) is 0 where one of both is no row, or there is no such pixel.
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
    """Return the best class of each pixel after the sweeps, and before: (height, width, 2).

    Posteriors (height, width, k) are NaN where there is no row, negative where it has no label.
    ``odd`` is the parity of the place of the first pixel in the image.
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
