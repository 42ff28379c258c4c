"""Images as rows of pixels, block by block, and back; lazy, in both of Dask's array modes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import Any

import dask.array as da
import numpy as np
import zarr
from numpy.typing import NDArray

from daskclust._blocks import BlockGrid

__all__ = ["flatten", "unflatten"]


def _strips(grid: BlockGrid) -> Iterator[tuple[int, int]]:
    """Blocks of each row of blocks: first and one past the last."""
    across = grid.numblocks[1]
    return pairwise(range(0, grid.count + 1, across))


def flatten(image: Any, grid: BlockGrid) -> da.Array:
    """Turn an image into rows of pixels, block by block; 1-d, one chunk a block."""
    if isinstance(image, np.ndarray):
        parts = [image[grid.region(number)].ravel() for number in range(grid.count)]
        return da.from_array(np.concatenate(parts), chunks=(grid.pixels,))
    if isinstance(image, zarr.Array):
        image = da.from_zarr(image, chunks=grid.chunks)
    image = image.rechunk(grid.chunks)
    rows = []
    bounds = pairwise(accumulate(grid.chunks[0], initial=0))
    for (first, last), (start, stop) in zip(_strips(grid), bounds, strict=True):
        rows.append(
            da.map_blocks(
                np.ravel,
                image[start:stop],
                drop_axis=0,
                chunks=(grid.pixels[first:last],),
                dtype=image.dtype,
                meta=np.empty(0, dtype=image.dtype),
            )
        )
    return da.concatenate(rows)


def _fold(pixels: NDArray[Any], *, height: int) -> NDArray[Any]:
    return pixels.reshape(height, -1)


def unflatten(flat: da.Array, grid: BlockGrid) -> da.Array:
    """Undo :func:`flatten`.

    `flat` holds all pixels of each block, masked or not: slicing a Dask array
    drops chunks of length zero, which blocks of valid pixels may have.
    """
    ends = [0, *accumulate(grid.pixels)]
    strips = []
    for height, (first, last) in zip(grid.chunks[0], _strips(grid), strict=True):
        strips.append(
            da.map_blocks(
                _fold,
                flat[ends[first] : ends[last]],
                height=height,
                new_axis=0,
                chunks=((height,), grid.chunks[1]),
                dtype=flat.dtype,
                meta=np.empty((0, 0), dtype=flat.dtype),
            )
        )
    return da.concatenate(strips, axis=0)
