"""Pixels by their place in the image, whatever the blocks; and the noise between neighbors."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from daskclust._types import Bools, Ints
from daskclust.cube._reading import CubeSource
from daskclust.cube._scaling import Scaling
from daskclust.cube.layout import BlockGrid
from daskclust.engine import compute
from daskclust.kernels.blas import one_blas_thread
from daskclust.kernels.projection import noise_whitening
from daskclust.kernels.rng import draw_numbers

__all__ = ["one_object", "sample_pixels", "take_pixels", "whitened"]

#: Pixels whose neighbors to the right and below are looked at for the noise of an image.
NEIGHBOR_PIXELS = 2**14


def one_object(value: Any) -> NDArray[np.object_]:
    """Wrap a value of any size for a chunk of one: its length is not known beforehand."""
    out = np.empty(1, dtype=object)
    out[0] = value
    return out


def _objects(values: list[Any]) -> da.Array:
    table = np.empty(len(values), dtype=object)
    table[:] = values
    return da.from_array(table, chunks=1)


def _block_pixels(
    ids: Ints,
    wanted: NDArray[np.object_],
    excluded: Bools | None = None,
    *,
    source: CubeSource,
    scaling: Scaling,
    make: Callable[[NDArray[Any]], NDArray[Any]] | None,
) -> NDArray[np.object_]:
    places: Ints = wanted[0]
    valid, values = source.pixels(int(ids[0]), excluded)
    kept = np.flatnonzero(valid[places])
    found = scaling(values[places[kept]])
    return one_object((kept, found if make is None else make(found)))


def _by_block(places: Ints, grid: BlockGrid) -> tuple[NDArray[Any], list[Any]]:
    """Order the places by block, and return each block's own, counted inside it."""
    y, x = np.divmod(places, grid.shape[1])
    i, j = y // grid.block[0], x // grid.block[1]
    number = i * grid.numblocks[1] + j
    widths = np.array(grid.chunks[1])[j]
    inside = (y - i * grid.block[0]) * widths + (x - j * grid.block[1])
    order = np.argsort(number, kind="stable")
    bounds = np.searchsorted(number[order], np.arange(grid.count + 1))
    return order, [inside[order[a:b]] for a, b in pairwise(bounds)]


def take_pixels(
    cube: Any,
    places: Ints,
    scaling: Scaling | None = None,
    make: Callable[[NDArray[Any]], NDArray[Any]] | None = None,
) -> tuple[NDArray[np.intp], NDArray[Any]]:
    """Fetch some pixels by their place in the image: ``y * width + x``, each once.

    There is at least one place.  Returns which of them hold a valid pixel, ascending, and these
    pixels as in `samples`, or what ``make(x)`` makes of those of a block, where they lie; `scaling`
    is that of the cube by default.

    One pass that reads only the blocks concerned.
    """
    order, inside = _by_block(places, cube._grid)
    pixels = cube._per_block(
        _block_pixels,
        _objects(inside),
        sizes=(1,) * cube._grid.count,
        dtype=object,
        token="daskclust-pixels",
        scaling=cube._survey.scaling if scaling is None else scaling,
        make=make,
    )
    bounds = np.cumsum([0] + [len(part) for part in inside])
    concerned = np.flatnonzero(np.diff(bounds))
    (found,) = compute("the reading of pixels", pixels.blocks[concerned])
    starts = bounds[concerned]
    kept = np.concatenate(
        [order[start + own] for start, (own, _) in zip(starts, found, strict=True)]
    )
    values = np.concatenate([values for _, values in found])
    ascending = np.argsort(kept)
    return kept[ascending], values[ascending]


def sample_pixels(
    cube: Any, count: int, n_valid: int, seed: int, scaling: Scaling | None = None
) -> tuple[NDArray[Any], tuple[NDArray[Any], NDArray[Any]]]:
    """Draw valid pixels, and pairs of adjacent ones, by their place in the image; one pass.

    About `count` of them, and of up to 16 384 of these the pixels to the right and below.
    """
    height, width = cube._grid.shape
    total = height * width
    # Of an image that is mostly masked, more places, for as many pixels.
    wanted = draw_numbers(total, -(-count * total // max(n_valid, 1)), seed)
    some = wanted[draw_numbers(len(wanted), NEIGHBOR_PIXELS, seed + 1)]
    right = some[some % width < width - 1]
    below = some[some < total - width]
    places = np.unique(np.concatenate([wanted, right + 1, below + width]))
    kept, values = take_pixels(cube, places, scaling)
    valid = np.append(places[kept], -1)

    def at(pixels: Ints) -> tuple[NDArray[np.intp], Bools]:
        found = np.searchsorted(valid[:-1], pixels)
        return found, valid[found] == pixels

    one, other = [], []
    for first, second in ((right, right + 1), (below, below + width)):
        (a, has_a), (b, has_b) = at(first), at(second)
        both = has_a & has_b
        one.append(values[a[both]])
        other.append(values[b[both]])
    drawn, has = at(wanted)
    return values[drawn[has]], (np.concatenate(one), np.concatenate(other))


def whitened(cube: Any, n_valid: int, plain: Scaling) -> Scaling:
    """Return the scaling that makes the noise of the cube's directions soft white; one pass."""
    _, (one, other) = sample_pixels(cube, NEIGHBOR_PIXELS, n_valid, 0, plain)
    with one_blas_thread():
        matrix = noise_whitening(one, other)
    return Scaling("whitened", plain.dtype, matrix=matrix)
