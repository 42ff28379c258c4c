"""Pixels of a cube to label: their rows, positions and spectra."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskclust.core.array_types import Array, Floats, Ints
from daskclust.scenes._cube import Cube


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


def questions_of(cube: Cube, rows: Ints) -> Questions:
    """Return the pixels of distinct rows, in any order.

    Cost: one pass over the blocks with these rows.

    >>> from daskclust import open_cube
    >>> image = np.arange(12.0).reshape(2, 3, 2)
    >>> questions = questions_of(open_cube(image, dims=("y", "x", "band")), np.array([5, 1]))
    >>> questions.lines.tolist(), questions.columns.tolist(), questions.spectra.tolist()
    ([1, 0], [2, 1], [[10.0, 11.0], [2.0, 3.0]])
    """
    rows = np.asarray(rows, np.int64)
    if len(rows) and not 0 <= rows.min() <= rows.max() < cube.n_valid:
        raise ValueError(
            f"rows must be in [0, {cube.n_valid}), the valid pixels, got {rows.min()} to "
            f"{rows.max()}."
        )
    numbers, spectra = cube.find_pixels(rows)
    lines, columns = np.divmod(numbers, cube.shape[1])
    grid = cube.pixel_grid
    x, y = grid.positions(columns + 0.5, lines + 0.5)
    if cube.wavelengths is None:
        names = cube.band_names or [f"band_{number}" for number in cube.bands.tolist()]
    else:
        names = [f"{length:.6g} nm" for length in cube.wavelengths.tolist()]
    return Questions(rows, lines, columns, x, y, grid.crs, spectra, names)
