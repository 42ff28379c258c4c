"""Label maps of another grid, brought to that of a cube: each pixel takes the nearest label."""

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

#: Integer value of places outside the map.
_OUTSIDE = -1
#: Places along each side of a block by which its window in the map is found.
_LOOKED_AT = 17


#: Value of pixels without a label in an image of floats, which no class has.
_MISSING = int(np.iinfo(np.int64).min)


def with_codes(name: str, image: Image) -> Image:
    """Return an image of labels as integers where they are floats; NaN means no label.

    Lazy, so that other values than whole numbers are an error when they are computed.

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
    found = np.where(missing, 0, values)
    wrong = (found != np.floor(found)) | (np.abs(found) >= 2.0**63)
    if wrong.any():
        raise ValueError(
            f"{name} must contain whole numbers, and NaN where no class is known, got dtype "
            f"{values.dtype} with {found[wrong][0]}. Convert it to codes, or pass a map of labels."
        )
    return np.where(missing, _MISSING, found.astype(np.int64))


def resampled(
    name: str,
    image: Image,
    grid: PixelGrid,
    chunks: tuple[tuple[int, ...], tuple[int, ...]],
    *,
    to: str = "the cube",
) -> Image:
    """Resample an image of codes to another grid: each pixel gets the value at its center.

    Pixels that the image does not reach are -1 (False). `chunks` are the blocks of the result.
    Messages call the other grid `to`.

    Lazy.  A block reads the part of the map below it.  The client transforms some hundred
    points a block.
    """
    values = image.values if isinstance(image.values, da.Array) else da.from_array(image.values)
    if values.dtype.kind not in "iub":
        raise no_codes(name, values.dtype)
    own = pixel_grid(image.position, values.shape)
    for which, one in ((name, own), (to, grid)):
        if one.crs is None or one.transform == IDENTITY:
            raise ValueError(
                f"{which} must have a coordinate system and positions to resample {name} to the "
                f"grid of {to}, but one of them is missing. Assign both, for example with "
                "rioxarray's write_crs and write_transform."
            )
    fill = False if values.dtype.kind == "b" else _OUTSIDE
    dtype = np.dtype(bool if values.dtype.kind == "b" else np.int64)
    rows = np.concatenate([[0], np.cumsum(chunks[0])]).tolist()
    columns = np.concatenate([[0], np.cumsum(chunks[1])]).tolist()
    found, reached = [], False
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
        found.append(strip)
    if not reached:
        raise ValueError(
            f"{name} and {to} have no pixel in common: {name} spans {_bounds(own)} in "
            f"{own.crs_name}, {to} {_bounds(grid)} in {grid.crs_name}."
        )
    nodata = tuple({*image.nodata, *(() if fill is False else (_OUTSIDE,))})
    return replace(image, values=da.block(found), nodata=nodata, position=NOWHERE)


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
            "The coordinate systems of the map and the cube bend too much against each other "
            "inside a block; reproject the map first, for example with gdalwarp."
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
        np.linspace(top, bottom, _LOOKED_AT), np.linspace(left, right, _LOOKED_AT), indexing="ij"
    )
    rows, columns = _places(y.ravel(), x.ravel(), grid, own)
    found: list[int] = []
    for places, size in ((rows, own.shape[0]), (columns, own.shape[1])):
        low, high = int(places.min()), int(places.max())
        more = 2 + (high - low) // 50
        low, high = max(0, low - more), min(size, high + more + 1)
        if low >= high:
            return None
        found += [low, high]
    return found[0], found[1], found[2], found[3]


def _bounds(grid: PixelGrid) -> list[float]:
    height, width = grid.shape
    x, y = grid.positions(np.array([0, width]), np.array([0, height]))
    return [round(float(value), 3) for value in (min(x), min(y), max(x), max(y))]


#: Value of pixels without a class.
_NONE = -1


def join_labels(
    sources: Sequence[tuple[str, Image]], chunks: Any, unlabeled: Sequence[int] = ()
) -> Image:
    """Join label maps of one image, with names for messages; lazy, -1 where no source has a class.

    Sources with names of classes are joined by name, sources of codes by code; `unlabeled` values
    mean no class in maps of codes, besides their nodata. Sources that give a pixel different
    classes are an error when the result is computed.

    >>> one = Image(np.array([[7, -1]])), Image(np.array([[-1, 8]]), (-1,))
    >>> joined = join_labels([("a", one[0]), ("b", one[1])], ((1,), (2,)), (-1,))
    >>> joined.values.compute().tolist()
    [[7, 8]]
    """
    named = [name for name, image in sources if image.meanings is not None]
    plain = [name for name, image in sources if image.meanings is None]
    if named and plain:
        raise ValueError(
            f"{named[0]} names its classes and {plain[0]} has codes without names; so the codes "
            f"cannot be compared. Use codes in all of them, or give the map names "
            "(attributes flag_values and flag_meanings)."
        )
    texts = dict(enumerate(sorted({t for _, i in sources for t in (i.meanings or {}).values()})))
    codes = {text: code for code, text in texts.items()}
    parts = []
    for _, image in sources:
        none = [*image.nodata, *(() if image.by_name else unlabeled), _NONE]
        table = None
        if image.meanings is not None:
            known = {value: text for value, text in image.meanings.items() if value not in none}
            table = (np.array(list(known), np.int64), np.array([codes[t] for t in known.values()]))
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
    meanings, by_name = texts if named else None, bool(named)
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
    found = values.astype(np.int64)
    missing = np.isin(values, none)
    if table is not None:
        given, codes = table
        order = np.argsort(given)
        at = np.searchsorted(given[order], found).clip(0, max(len(given) - 1, 0))
        has = given[order][at] == found if len(given) else np.zeros(found.shape, bool)
        strange = ~has & ~missing
        if strange.any():
            raise ValueError(
                f"A label map holds {found[strange][0]}, which its flag_meanings do not name; "
                "name all classes, or declare it as nodata."
            )
        found = np.where(has, codes[order][at] if len(given) else found, _NONE)
    return np.where(missing, _NONE, found)


def _joined(*parts: Ints, names: list[str], texts: dict[int, str], block_info: Any = None) -> Ints:
    out = parts[0].copy()
    owner = np.zeros(out.shape, np.int64)
    for number, part in enumerate(parts[1:], start=1):
        wrong = (part != _NONE) & (out != _NONE) & (part != out)
        if wrong.any():
            line, column = (int(axis[0]) for axis in np.nonzero(wrong))
            first, second = (
                texts.get(int(code), str(code)) for code in (out[line, column], part[line, column])
            )
            (top, _), (left, _) = block_info[0]["array-location"]
            raise ValueError(
                f"Each pixel must have one class, got for the pixel (row {top + line}, column "
                f"{left + column}) {first!r} in {names[owner[line, column]]} and {second!r} in "
                f"{names[number]}. Correct one of the sources."
            )
        fresh = (out == _NONE) & (part != _NONE)
        out[fresh], owner[fresh] = part[fresh], number
    return out
