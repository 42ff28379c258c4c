"""Rows of a cube that a person should label: their pixels and spectra."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from daskclust._types import Array, Bools, Floats, Ints
from daskclust.cube._pixels import one_object
from daskclust.cube._reading import CubeSource
from daskclust.cube._scaling import Scaling
from daskclust.cube.formats.points import points_image
from daskclust.engine import compute

__all__ = ["Questions", "questions_of", "rows_of_pixels"]


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
    scaling: Scaling,
) -> NDArray[np.object_]:
    """Places and values of some of the valid pixels of a block, by their number."""
    numbers: Ints = wanted[0]
    number = int(ids[0])
    if not len(numbers):
        return one_object((numbers, numbers, np.empty((0, source.n_bands), scaling.dtype)))
    valid, values = source.pixels(number, excluded)
    places = np.flatnonzero(valid)[numbers]
    down, across = source.grid.region(number)
    lines, columns = np.divmod(places, across.stop - across.start)
    return one_object((lines + down.start, columns + across.start, scaling(values[places])))


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
    starts = np.cumsum((0, *cube.block_counts))
    order = np.argsort(rows, kind="stable")
    bounds = np.searchsorted(rows[order], starts)
    table = np.empty(cube.blocks.count, dtype=object)
    for i in range(len(table)):
        table[i] = rows[order[bounds[i] : bounds[i + 1]]] - starts[i]
    plain = Scaling("none", cube.sample_scaling.dtype)
    found = cube._per_block(
        _block_pixels,
        da.from_array(table, chunks=1),
        sizes=(1,) * len(table),
        dtype=object,
        token="daskclust-questions",
        scaling=plain,
    )
    concerned = np.flatnonzero(np.diff(bounds))
    some = found.blocks[concerned]
    parts = compute("the reading of pixels", some)[0] if len(concerned) else []
    lines, columns = np.empty((2, len(rows)), np.int64)
    spectra = np.empty((len(rows), cube.shape[2]), plain.dtype)
    if len(concerned):
        lines[order], columns[order] = (np.concatenate([p[i] for p in parts]) for i in (0, 1))
        spectra[order] = np.concatenate([p[2] for p in parts])
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
