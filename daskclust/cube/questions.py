"""Rows of a cube that a person should label: their pixels and spectra."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from daskclust._types import Array, Bools, Floats, Ints
from daskclust.cube._reading import CubeSource, Scaling, one_object
from daskclust.cube.formats.points import points_image
from daskclust.engine import compute


@dataclass(frozen=True)
class Questions:
    """Pixels to label, in order.

    `rows` are row numbers in the cube's `samples`; `lines` and `columns` count from 0. `x` and `y`
    are centers of the pixels in the scene's coordinate system, or columns and lines without one.
    `spectra` (n, bands) are stored values, with scale factor and offset applied; `bands` are their
    wavelengths, if known.
    """

    rows: Ints
    lines: Ints
    columns: Ints
    x: Floats
    y: Floats
    crs: str | None
    spectra: Array
    bands: list[str]


def _block_pixels(
    ids: Ints,
    wanted: NDArray[np.object_],
    excluded: Bools | None = None,
    *,
    source: CubeSource,
    scaling: Scaling | None,
) -> NDArray[np.object_]:
    """Places and values of some of the valid pixels of a block, by their number."""
    number = int(ids[0])
    valid, values = source.pixels(number, excluded)
    inside = np.flatnonzero(valid)[wanted[0]]
    down, across = source.grid.region(number)
    lines, columns = np.divmod(inside, across.stop - across.start)
    places = (lines + down.start) * source.grid.shape[1] + columns + across.start
    return one_object((places, None if scaling is None else scaling(values[inside])))


def _find_pixels(cube: Any, rows: Ints, scaling: Scaling | None) -> tuple[Ints, Any]:
    """Places of rows in the image (``y * width + x``), and their values if scaled; one pass."""
    starts = np.cumsum((0, *cube.block_counts))
    order = np.argsort(rows, kind="stable")
    bounds = np.searchsorted(rows[order], starts)
    table = np.empty(cube.blocks.count, dtype=object)
    for i in range(len(table)):
        table[i] = rows[order[bounds[i] : bounds[i + 1]]] - starts[i]
    found = cube._per_block(
        _block_pixels,
        da.from_array(table, chunks=1),
        sizes=(1,) * len(table),
        dtype=object,
        token="daskclust-questions",
        scaling=scaling,
    )
    places = np.empty(len(rows), np.int64)
    values = None if scaling is None else np.empty((len(rows), cube.shape[2]), scaling.dtype)
    concerned = np.flatnonzero(np.diff(bounds))
    if len(concerned):
        parts = compute("the reading of pixels", found.blocks[concerned])[0]
        places[order] = np.concatenate([own for own, _ in parts])
        if values is not None:
            values[order] = np.concatenate([own for _, own in parts])
    return places, values


def places_of_rows(cube: Any, rows: Ints) -> Ints:
    """Return the places ``y * width + x`` of rows in the image.

    Notes
    -----
    Nothing is read where no pixel is masked; else the blocks that hold these rows.

    Examples
    --------
    >>> from daskclust import open_cube
    >>> cube = open_cube(np.zeros((2, 4, 1)), dims=("y", "x", "band"), chunks=(2, 2))
    >>> places_of_rows(cube, np.arange(8)).tolist()
    [0, 1, 4, 5, 2, 3, 6, 7]
    """
    if cube.n_masked:
        return _find_pixels(cube, rows, None)[0]
    starts = np.cumsum((0, *cube.block_counts))
    number = np.searchsorted(starts, rows, side="right") - 1
    grid = cube.blocks
    i, j = np.divmod(number, grid.numblocks[1])
    y, x = np.divmod(rows - starts[number], np.array(grid.chunks[1])[j])
    places: Ints = (y + i * grid.block[0]) * grid.shape[1] + x + j * grid.block[1]
    return places


def questions_of(cube: Any, rows: Ints) -> Questions:
    """Find the pixels of some rows, each once, in any order.

    Cost: one pass that reads only the blocks that hold these rows.

    >>> from daskclust import open_cube
    >>> image = np.arange(12.0).reshape(2, 3, 2)
    >>> found = questions_of(open_cube(image, dims=("y", "x", "band")), np.array([5, 1]))
    >>> found.lines.tolist(), found.columns.tolist(), found.spectra.tolist()
    ([1, 0], [2, 1], [[10.0, 11.0], [2.0, 3.0]])
    """
    rows = np.asarray(rows, np.int64)
    if len(rows) and not 0 <= rows.min() <= rows.max() < cube.n_valid:
        raise ValueError(
            f"Rows {rows.min()} to {rows.max()} are asked for; expected numbers in "
            f"[0, {cube.n_valid}), the valid pixels."
        )
    plain = Scaling("none", cube.sample_scaling.dtype)
    places, spectra = _find_pixels(cube, rows, plain)
    lines, columns = np.divmod(places, cube.shape[1])
    grid = cube.pixel_grid
    a, b, c, d, e, f = grid.transform
    east, south = columns + 0.5, lines + 0.5
    if cube.wavelengths is None:
        names = [f"band_{number}" for number in cube.bands.tolist()]
    else:
        names = [f"{length:.6g} nm" for length in cube.wavelengths.tolist()]
    return Questions(
        rows,
        lines,
        columns,
        a * east + b * south + c,
        d * east + e * south + f,
        grid.crs,
        spectra,
        names,
    )


def rows_of_pixels(cube: Any, lines: Ints, columns: Ints) -> Ints:
    """Return the rows of some pixels, ascending; masked pixels have no row."""
    height, width, _ = cube.shape
    inside = (lines >= 0) & (lines < height) & (columns >= 0) & (columns < width)
    if not inside.all():
        at = int(np.argmin(inside))
        raise ValueError(
            f"The pixel (row {lines[at]}, column {columns[at]}) lies outside the image of "
            f"{height} x {width} pixels."
        )
    found: Ints = cube.rows_of(
        points_image(lines, columns, np.zeros(len(lines), np.int64), cube.chunks)
    )[0]
    return found
