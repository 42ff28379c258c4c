"""Label maps resampled to the grid of a cube (nearest pixel), and joined label maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Floats, Ints
from daskclust.scenes._georeference import IDENTITY, NOWHERE, PixelGrid, pixel_grid
from daskclust.scenes._open_array import Image
from daskclust.scenes.coordinate_systems import move
from daskclust.scenes.formats.format_detection import needs_extra
from daskclust.scenes.formats.vector import no_codes

#: Integer value of pixels outside the map.
_OUTSIDE = -1
#: Number of points along each side of a block from which its window in the map is computed.
_WINDOW_POINTS = 17


#: Code of pixels without a label in an image of floats; no class has this code.
_MISSING = int(np.iinfo(np.int64).min)


def with_codes(name: str, image: Image) -> Image:
    """Return an image of labels with floats as integers; NaN means no label.

    Lazy; values that are not integers raise an error when they are computed.

    >>> image = with_codes("label_map", Image(np.array([[2.0, np.nan]])))
    >>> image.values.tolist() == [[2, image.nodata[0]]]
    True
    """
    values = image.values
    if values.dtype.kind != "f":
        return image
    none = np.array([float(value) for value in image.nodata])
    if isinstance(values, da.Array):
        meta = np.empty((0, 0), np.int64)
        codes = da.map_blocks(partial(_whole, name=name, none=none), values, meta=meta)
    else:
        codes = _whole(values, name, none)
    kept = tuple(value for value in image.nodata if abs(value) < 2**63)
    return replace(image, values=codes, nodata=(*kept, _MISSING))


def _whole(values: Array, name: str, none: Floats) -> Ints:
    missing = np.isnan(values) | np.isin(values, none)
    codes = np.where(missing, 0, values)
    wrong = (codes != np.floor(codes)) | (np.abs(codes) >= 2.0**63)
    if wrong.any():
        raise ValueError(
            f"{name} must contain whole numbers, and NaN where no class is known, got dtype "
            f"{values.dtype} with {codes[wrong][0]}. Convert it to codes, or pass a map of labels."
        )
    return np.where(missing, _MISSING, codes.astype(np.int64))


def resampled(
    name: str,
    image: Image,
    grid: PixelGrid,
    chunks: tuple[tuple[int, ...], tuple[int, ...]],
    *,
    to: str = "the cube",
) -> Image:
    """Resample an image of codes to another grid: each pixel gets the value at its center.

    Pixels outside the image are -1 (False). `chunks` are the blocks of the result. `to` names the
    other grid in messages.

    Lazy.  A block reads only its window of the map.  The client transforms some hundred points per
    block.
    """
    values = image.values if isinstance(image.values, da.Array) else da.from_array(image.values)
    if values.dtype.kind not in "iub":
        raise no_codes(name, values.dtype)
    own = pixel_grid(image.position, values.shape)
    for which_image, pixel_grid_of in ((name, own), (to, grid)):
        if pixel_grid_of.crs is None or pixel_grid_of.transform == IDENTITY:
            raise ValueError(
                f"{which_image} must have a coordinate system and positions to resample {name} to "
                f"the grid of {to}, but one of them is missing. Assign both, for example with "
                "rioxarray's write_crs and write_transform."
            )
    fill = False if values.dtype.kind == "b" else _OUTSIDE
    dtype = np.dtype(bool if values.dtype.kind == "b" else np.int64)
    rows = np.concatenate([[0], np.cumsum(chunks[0])]).tolist()
    columns = np.concatenate([[0], np.cumsum(chunks[1])]).tolist()
    strips, reached = [], False
    for top, bottom in pairwise(rows):
        strip = []
        for left, right in pairwise(columns):
            block, shape = (top, bottom, left, right), (bottom - top, right - left)
            window = _window(block, grid, own)
            if window is None:
                strip.append(da.full(shape, fill, dtype=dtype, chunks=shape))
                continue
            reached = True
            first, last, west, east = window
            strip.append(
                da.map_blocks(
                    _pick,
                    values[first:last, west:east].rechunk(-1),
                    block=block,
                    corner=(first, west),
                    grid=grid,
                    own=own,
                    fill=fill,
                    chunks=((shape[0],), (shape[1],)),
                    meta=np.empty((0, 0), dtype),
                )
            )
        strips.append(strip)
    if not reached:
        raise ValueError(
            f"{name} and {to} have no pixel in common: {name} spans {_bounds(own)} in "
            f"{own.crs_name}, {to} {_bounds(grid)} in {grid.crs_name}."
        )
    nodata = tuple({*image.nodata, *(() if fill is False else (_OUTSIDE,))})
    return replace(image, values=da.block(strips), nodata=nodata, position=NOWHERE)


def _pick(
    part: NDArray[Any],
    *,
    block: tuple[int, int, int, int],
    corner: tuple[int, int],
    grid: PixelGrid,
    own: PixelGrid,
    fill: int,
) -> NDArray[Any]:
    """Look up every pixel of one block in its window of the map."""
    if part.dtype == np.uint64 and part.max(initial=0) > np.iinfo(np.int64).max:
        raise ValueError(f"The map must contain labels below 2**63, got {part.max()}.")
    top, bottom, left, right = block
    y, x = np.mgrid[top:bottom, left:right]
    rows, columns = _places(y.ravel() + 0.5, x.ravel() + 0.5, grid, own)
    inside = (rows >= 0) & (rows < own.shape[0]) & (columns >= 0) & (columns < own.shape[1])
    rows, columns = rows[inside] - corner[0], columns[inside] - corner[1]
    reach = (rows >= 0) & (rows < part.shape[0]) & (columns >= 0) & (columns < part.shape[1])
    if not reach.all():
        raise ValueError(
            "The map must be reprojected first, for example with gdalwarp: its coordinate system "
            "is too distorted relative to the cube inside a block."
        )
    out = np.full(inside.shape, fill, dtype=bool if part.dtype.kind == "b" else np.int64)
    out[inside] = part[rows, columns]
    return out.reshape(y.shape)


def _places(y: Floats, x: Floats, grid: PixelGrid, own: PixelGrid) -> tuple[Ints, Ints]:
    """Return rows and columns of the map at positions in the cube; -1 outside the map."""
    east, north = grid.positions(x, y)
    assert own.crs is not None
    assert grid.crs is not None
    with needs_extra("Another coordinate system"):
        east, north = move(east, north, grid.crs, own.crs)
    columns, rows = own.places(east, north)
    places = np.stack([rows, columns])
    places[:, ~np.isfinite(places).all(axis=0)] = -1
    rows, columns = np.floor(places).astype(np.int64)
    return rows, columns


def _window(
    block: tuple[int, int, int, int], grid: PixelGrid, own: PixelGrid
) -> tuple[int, int, int, int] | None:
    """Return rows and columns of the map that a block needs, with a margin; None outside."""
    top, bottom, left, right = block
    y, x = np.meshgrid(
        np.linspace(top, bottom, _WINDOW_POINTS),
        np.linspace(left, right, _WINDOW_POINTS),
        indexing="ij",
    )
    rows, columns = _places(y.ravel(), x.ravel(), grid, own)
    window: list[int] = []
    for places, size in ((rows, own.shape[0]), (columns, own.shape[1])):
        low, high = int(places.min()), int(places.max())
        margin = 2 + (high - low) // 50
        low, high = max(0, low - margin), min(size, high + margin + 1)
        if low >= high:
            return None
        window += [low, high]
    return window[0], window[1], window[2], window[3]


def _bounds(grid: PixelGrid) -> list[float]:
    height, width = grid.shape
    x, y = grid.positions(np.array([0, width]), np.array([0, height]))
    return [round(float(value), 3) for value in (min(x), min(y), max(x), max(y))]


#: Value of pixels without a class.
_NONE = -1


def join_labels(
    sources: Sequence[tuple[str, Image]], chunks: Any, unlabeled: Sequence[int] = ()
) -> Image:
    """Join label maps of one image lazily; -1 means that no source has a class.

    `sources` are pairs of a name for messages and an image. Sources with class names are joined by
    name, other sources by code. `unlabeled` values mean no class in maps of codes, in addition to
    nodata. If sources contradict each other at a pixel, computing the result raises an error.

    >>> one = Image(np.array([[7, -1]])), Image(np.array([[-1, 8]]), (-1,))
    >>> joined = join_labels([("a", one[0]), ("b", one[1])], ((1,), (2,)), (-1,))
    >>> joined.values.compute().tolist()
    [[7, 8]]
    """
    with_names = [name for name, image in sources if image.meanings is not None]
    without_names = [name for name, image in sources if image.meanings is None]
    if with_names and without_names:
        raise ValueError(
            f"{with_names[0]} names its classes and {without_names[0]} has codes without names, so "
            f"the codes cannot be compared. Use codes in all of them, or give the map names "
            "(attributes flag_values and flag_meanings)."
        )
    texts = dict(enumerate(sorted({t for _, i in sources for t in (i.meanings or {}).values()})))
    codes = {text: code for code, text in texts.items()}
    parts = []
    for _, image in sources:
        none = [*image.nodata, *(() if image.by_name else unlabeled), _NONE]
        table = None
        if image.meanings is not None:
            meanings_kept = {
                value: text for value, text in image.meanings.items() if value not in none
            }
            table = (
                np.array(list(meanings_kept), np.int64),
                np.array([codes[t] for t in meanings_kept.values()]),
            )
        values = da.asarray(image.values).rechunk(chunks)
        parts.append(
            da.map_blocks(
                _known,
                values,
                none=np.array(none),
                table=table,
                meta=np.empty((0, 0), np.int64),
            )
        )
    joined = da.map_blocks(
        _joined,
        *parts,
        names=[name for name, _ in sources],
        texts=texts,
        meta=np.empty((0, 0), np.int64),
    )
    stated = {
        code if image.meanings is None else codes[image.meanings[code]]
        for _, image in sources
        for code in image.stated
    }
    meanings, by_name = texts if with_names else None, bool(with_names)
    return Image(
        joined,
        (_NONE,),
        meanings=meanings,
        stated=tuple(sorted(stated)),
        by_name=by_name,
        features=tuple(features for _, image in sources for features in image.features),
    )


def _known(values: Array, *, none: Array, table: Any) -> Ints:
    """Return the codes of one block, with -1 for no class."""
    codes_found = values.astype(np.int64)
    missing = np.isin(values, none)
    if table is not None:
        stated, codes = table
        order = np.argsort(stated)
        positions = np.searchsorted(stated[order], codes_found).clip(0, max(len(stated) - 1, 0))
        is_stated = (
            stated[order][positions] == codes_found
            if len(stated)
            else np.zeros(codes_found.shape, bool)
        )
        unknown = ~is_stated & ~missing
        if unknown.any():
            raise ValueError(
                f"A label map contains the code {codes_found[unknown][0]}, which its flag_meanings "
                "do not name; name all classes, or declare it as nodata."
            )
        codes_found = np.where(
            is_stated, codes[order][positions] if len(stated) else codes_found, _NONE
        )
    return np.where(missing, _NONE, codes_found)


def _joined(*parts: Ints, names: list[str], texts: dict[int, str], block_info: Any = None) -> Ints:
    out = parts[0].copy()
    source_of = np.zeros(out.shape, np.int64)
    for number, values in enumerate(parts[1:], start=1):
        wrong = (values != _NONE) & (out != _NONE) & (values != out)
        if wrong.any():
            line, column = (int(axis[0]) for axis in np.nonzero(wrong))
            first, second = (
                texts.get(int(code), str(code))
                for code in (out[line, column], values[line, column])
            )
            (top, _), (left, _) = block_info[0]["array-location"]
            raise ValueError(
                f"Each pixel must have one class, got for the pixel (row {top + line}, column "
                f"{left + column}) {first!r} in {names[source_of[line, column]]} and {second!r} in "
                f"{names[number]}. Correct one of the sources."
            )
        is_new = (out == _NONE) & (values != _NONE)
        out[is_new], source_of[is_new] = values[is_new], number
    return out
