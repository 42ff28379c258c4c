"""Images as rows of pixels, block by block, and back; lazy, in both of Dask's array modes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from daskclust.core.storage.stored_array import MOST_CHUNKS


@dataclass(frozen=True)
class BlockGrid:
    """Blocks (rows, columns) of an image, numbered row by row; the last ones may be smaller.

    >>> grid = BlockGrid((5, 4), (2, 3))
    >>> grid.count, grid.region(3)
    (6, (slice(2, 4, None), slice(3, 4, None)))
    >>> grid.pixels
    (6, 2, 6, 2, 3, 1)
    """

    shape: tuple[int, int]
    block: tuple[int, int]
    numblocks: tuple[int, int] = field(init=False, repr=False, compare=False)
    count: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        down, across = (-(-n // size) for n, size in zip(self.shape, self.block, strict=True))
        vars(self).update(numblocks=(down, across), count=down * across)
        if self.count > MOST_CHUNKS:
            raise ValueError(
                f"An image of {self.shape[0]} x {self.shape[1]} pixels has {self.count} blocks of "
                f"{self.block[0]} x {self.block[1]}; at most {MOST_CHUNKS} can be handled. Are its "
                "metadata damaged? If not, pass larger chunks=."
            )

    @property
    def chunks(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        rows, cols = (
            tuple(min(step, size - start) for start in range(0, size, step))
            for size, step in zip(self.shape, self.block, strict=True)
        )
        return rows, cols

    @property
    def pixels(self) -> tuple[int, ...]:
        rows, cols = self.chunks
        return tuple(height * width for height in rows for width in cols)

    def pixels_of(self, number: int) -> int:
        rows, cols = self.region(number)
        return (rows.stop - rows.start) * (cols.stop - cols.start)

    def region(self, number: int) -> tuple[slice, slice]:
        axes = zip(divmod(number, self.numblocks[1]), self.block, self.shape, strict=True)
        rows, cols = (slice(i * n, min((i + 1) * n, size)) for i, n, size in axes)
        return rows, cols


def _strips(grid: BlockGrid) -> Iterator[tuple[int, int]]:
    """Return the first block, and the block after the last, of each row of blocks."""
    return pairwise(range(0, grid.count + 1, grid.numblocks[1]))


def _as_rows(chunks: list[NDArray[Any]]) -> NDArray[Any]:
    (block,) = chunks  # the only one down
    return block.reshape(-1, *block.shape[2:])


def flatten(image: NDArray[Any] | da.Array, grid: BlockGrid) -> da.Array:
    """Return an image, or a cube (y, x, band), as rows of pixels, one chunk per block."""
    if isinstance(image, np.ndarray):
        shape = -1, *image.shape[2:]
        parts = [image[grid.region(number)].reshape(shape) for number in range(grid.count)]
        chunks = (grid.pixels, *((size,) for size in image.shape[2:]))
        join = np.ma.concatenate if np.ma.isMaskedArray(image) else np.concatenate
        return da.from_array(join(parts), chunks=chunks)
    cut = image.rechunk((*grid.chunks, *(-1 for _ in image.shape[2:])))
    rows = []
    bounds = pairwise(accumulate(grid.chunks[0], initial=0))
    for (first, last), (start, stop) in zip(_strips(grid), bounds, strict=True):
        rows.append(
            da.blockwise(
                _as_rows,
                "xb"[: cut.ndim - 1],
                cut[start:stop],
                "yxb"[: cut.ndim],
                adjust_chunks={"x": grid.pixels[first:last]},
                # There is one chunk along y; concatenating the list would copy it.
                concatenate=False,
                dtype=cut.dtype,
                meta=cut._meta.reshape((0,) * (cut.ndim - 1)),
            )
        )
    return da.concatenate(rows)


def merged_in_tree(lines: da.Array, merge: Any, per_task: int, **options: Any) -> da.Array:
    """Merge lines in order into one line; a task merges at most `per_task` lines."""
    while True:
        lines = lines.rechunk({0: per_task})
        lines = lines.map_blocks(
            merge,
            chunks=((1,) * lines.numblocks[0], *lines.chunks[1:]),
            dtype=lines.dtype,
            meta=lines._meta,
            **options,
        )
        if lines.numblocks[0] == 1:
            return lines


def _fold(pixels: NDArray[Any], *, height: int) -> NDArray[Any]:
    return pixels.reshape(height, -1, *pixels.shape[1:])


def unflatten(flat: da.Array, grid: BlockGrid) -> da.Array:
    """Undo :func:`flatten`.

    `flat` contains all pixels of each block, also masked ones, because slicing a Dask array drops
    empty chunks, which valid pixels may have.
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
                chunks=((height,), grid.chunks[1], *flat.chunks[1:]),
                meta=np.empty((0,) * (flat.ndim + 1), flat.dtype),
            )
        )
    return da.concatenate(strips, axis=0)
