"""Target grid of a mosaic, and the place of its tiles on the grid."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from daskclust.core.array_types import Floats, Ints
from daskclust.scenes.coordinate_systems import is_geographic, move, transformer
from daskclust.scenes.mosaic_tiles import Tile, edges

#: Maximum number of pixels of the target grid.
_MOST_PIXELS = 10**11
#: Tolerance in pixels below which two grids are the same.
ALIGNED = 1e-3
#: Number of rows and columns of the units in which positions and values are computed.  Units do not
#: depend on blocks, and therefore the last bits do not depend on them, either.
UNIT = 512
#: Number of positions per row and column of a unit that are transformed to another system.
#: Polynomials through them are exact to rounding for projections on a unit.
_NODES = 12
#: Maximum error in pixels of the polynomials at some pixels of the unit.
_POLYNOMIAL_ERROR = 1e-7
#: Pixels whose position is less than this before the next pixel of a tile belong to the next one.
#: Grids of a multiple of the resolution have centers on such edges.
_EDGE = 1e-6


def _for_systems(tiles: Sequence[Tile], work: Callable[[str, list[Tile]], Floats]) -> Floats:
    """Do work for all tiles of each coordinate system together; return one row per tile."""
    systems = np.array([tile.crs for tile in tiles])
    out = []
    order = []
    for system in dict.fromkeys(systems.tolist()):
        members = np.flatnonzero(systems == system)
        out.append(work(system, [tiles[i] for i in members.tolist()]))
        order.append(members)
    return np.asarray(np.concatenate(out)[np.argsort(np.concatenate(order))])


def bounds_of_tiles(tiles: Sequence[Tile], transform: Any, crs: str) -> Floats:
    """Return columns and rows (left, top, right, bottom) of each tile on a grid, shape (tiles, 4).

    They are infinite for tiles of which some points have no coordinates in the system.
    """

    def bounds(system: str, members: list[Tile]) -> Floats:
        columns, rows = edges()
        corners = [
            tile.affine @ (columns * tile.shape[1], rows * tile.shape[0]) for tile in members
        ]
        x, y = move(np.array(corners)[:, 0], np.array(corners)[:, 1], system, crs)
        columns, rows = ~transform @ (x, y)
        out = np.stack(
            [columns.min(axis=1), rows.min(axis=1), columns.max(axis=1), rows.max(axis=1)], axis=1
        )
        out[~np.isfinite(out).all(axis=1)] = -np.inf, -np.inf, np.inf, np.inf
        return np.asarray(out)

    return _for_systems(tiles, bounds)


def tiles_of_points(tiles: Sequence[Tile], x: Floats, y: Floats, crs: str) -> Ints:
    """Return the number of the first tile that contains each point, else of the nearest tile."""
    nearest = np.full(len(x), np.inf)
    out = np.zeros(len(x), np.int64)
    places = {system: move(x, y, crs, system) for system in {tile.crs for tile in tiles}}
    for number, tile in enumerate(tiles):
        # Pixels of the tile between the point and the border, 0 inside of the tile.
        columns, rows = ~tile.affine @ places[tile.crs]
        height, width = tile.shape
        beyond = [np.abs(columns - width / 2) - width / 2, np.abs(rows - height / 2) - height / 2]
        distance = np.maximum(np.max(beyond, axis=0), 0)
        is_nearer = distance < nearest
        out[is_nearer], nearest[is_nearer] = number, distance[is_nearer]
    return out


def steps_of_tiles(tiles: Sequence[Tile], transform: Any, crs: str) -> Floats:
    """Return how many pixels of each tile a column and a row of the grid cover, shape (tiles, 2).

    They are measured in the center of each tile, so that they are the same for all blocks.
    """

    def steps(system: str, members: list[Tile]) -> Floats:
        centers = [tile.affine @ (tile.shape[1] / 2, tile.shape[0] / 2) for tile in members]
        columns, rows = ~transform @ move(
            np.array(centers)[:, 0], np.array(centers)[:, 1], system, crs
        )
        moves = 0.5 * np.array([[-1.0, 1.0, 0.0, 0.0], [0.0, 0.0, -1.0, 1.0]])
        x, y = transform @ (columns[:, None] + moves[0], rows[:, None] + moves[1])
        x, y = move(x, y, crs, system)
        out = np.ones((len(members), 2))
        for i, tile in enumerate(members):
            columns, rows = ~tile.affine @ (x[i], y[i])
            sizes = np.hypot(np.diff(columns)[::2], np.diff(rows)[::2])
            out[i] = sizes if np.isfinite(sizes).all() else 1.0
        return out

    return _for_systems(tiles, steps)


def units(part: range, size: int) -> list[range]:
    """Return the units of an axis that overlap with a part of it."""
    starts = range(part.start // UNIT * UNIT, part.stop, UNIT)
    return [range(start, min(start + UNIT, size)) for start in starts]


@lru_cache(maxsize=1)
def _polynomials(size: int) -> tuple[Floats, Floats, Ints]:
    """Return nodes in a unit, values at its pixels of polynomials that are 1 at a node, and checks.

    Checks are some pixels of the unit.
    """
    from scipy.interpolate import BarycentricInterpolator

    nodes = -np.cos((np.arange(_NODES) + 0.5) * np.pi / _NODES)
    pixels = (np.arange(size) + 0.5) / size * 2 - 1
    values = BarycentricInterpolator(nodes, np.eye(_NODES))(pixels)
    return (nodes + 1) * size / 2, values, np.linspace(0, size - 1, 6).astype(np.int64)


def nearest_pixels(
    tile: Tile, transform: Any, crs: str, rows: range, columns: range
) -> tuple[Ints, Ints]:
    """Return row and column of the pixel of a tile that is nearest to each pixel of a grid.

    They may be outside of the tile.  Coordinates are transformed at a few nodes of each unit, and
    for all pixels if polynomials through the nodes are not exact.
    """
    nodes, values, checks = _polynomials(UNIT)
    out = np.empty((2, len(rows), len(columns)), np.int32)

    def exact(x: Any, y: Any) -> Any:
        x, y = transform @ np.meshgrid(x, y)
        x, y = ~tile.affine @ move(x, y, crs, tile.crs)
        return np.stack([y, x])

    for top in range(rows.start // UNIT * UNIT, rows.stop, UNIT):
        for left in range(columns.start // UNIT * UNIT, columns.stop, UNIT):
            positions = values @ exact(left + nodes, top + nodes) @ values.T
            error = positions[:, checks[:, None], checks] - exact(
                left + checks + 0.5, top + checks + 0.5
            )
            if not np.abs(error).max() < _POLYNOMIAL_ERROR:
                pixels = np.arange(UNIT) + 0.5
                positions = exact(left + pixels, top + pixels)
                positions[~np.isfinite(positions)] = -1  # outside
            y = slice(max(rows.start, top), min(rows.stop, top + UNIT))
            x = slice(max(columns.start, left), min(columns.stop, left + UNIT))
            part = positions[:, y.start - top : y.stop - top, x.start - left : x.stop - left]
            part += _EDGE
            # Conversion to integers is floor, because negative positions are outside.
            part.clip(-1, 2**31 - 1, out=part)
            part[part < 0] = -1
            out[
                :,
                y.start - rows.start : y.stop - rows.start,
                x.start - columns.start : x.stop - columns.start,
            ] = part
    return out[0], out[1]


def shift_of_tile(
    tile: Tile, transform: Any, crs: str, shape: tuple[int, int]
) -> tuple[int, int] | None:
    """Return column and row of a tile at the first pixel of a grid, None if not aligned."""
    if transformer(tile.crs, crs) is not None:
        return None
    shift = ~tile.affine @ transform
    # Pixels must stay aligned from one end of the grid to the other.
    if max(map(abs, (shift.a - 1, shift.b, shift.d, shift.e - 1))) * max(shape) > ALIGNED:
        return None
    x, y = round(shift.c), round(shift.f)
    return (x, y) if max(abs(shift.c - x), abs(shift.f - y)) < ALIGNED else None


def _north_up(tile: Tile) -> Any:
    """Return the transform of a tile whose rows run from north to south."""
    from affine import Affine

    a, b, left, d, e, top = tile.transform
    if b or d:
        raise ValueError(
            f"The tile {tile.shown!r}, which defines the target grid, must have rows and columns "
            "along x and y, got a rotated grid. Pass crs= and resolution=, or like=."
        )
    height, width = tile.shape
    left, top = min(left, left + a * width), max(top, top + e * height)
    return Affine(abs(a), 0.0, left, 0.0, -abs(e), top)


def target_grid(
    tiles: Sequence[Tile], like: Any, crs: Any, resolution: Any, region: Any
) -> tuple[Any, str, tuple[int, int]]:
    """Return transform, coordinate system and shape of the target grid."""
    from affine import Affine
    from rasterio.crs import CRS

    if like is not None:
        if crs is not None or resolution is not None or region is not None:
            raise ValueError(
                "like must be the only argument that defines the grid, got also crs, resolution or "
                "region. Omit them."
            )
        grid = _grid_of(like)
        return grid.transform, CRS.from_user_input(str(grid.crs)).to_wkt(), tuple(grid.shape)
    pixels: Counter[tuple[str, float, float]] = Counter()
    for tile in tiles:
        pixels[tile.crs, tile.transform[0], tile.transform[4]] += math.prod(tile.shape)
    system = (
        max(pixels, key=lambda key: (pixels[key], key))[0]
        if crs is None
        else CRS.from_user_input(crs).to_wkt()
    )
    # Files may write one coordinate system in different words.
    of_system = [key for key in pixels if transformer(key[0], system) is None]
    if resolution is not None:
        steps = np.broadcast_to(np.asarray(resolution, float), 2)
        if not (np.isfinite(steps).all() and (steps > 0).all()):
            raise ValueError(f"resolution must be positive, got {resolution!r}.")
        transform = Affine(float(steps[0]), 0.0, 0.0, 0.0, -float(steps[1]), 0.0)
    elif of_system:
        common = max(of_system, key=lambda key: (pixels[key], key))
        transform = _north_up(
            next(t for t in tiles if (t.crs, t.transform[0], t.transform[4]) == common)
        )
    else:
        raise ValueError(
            f"resolution must be given with crs={crs!r}, because no tile has this coordinate "
            "system."
        )
    bounds = bounds_of_tiles(tiles, transform, system)
    has_bounds = np.asarray(np.isfinite(bounds).all(axis=1))
    known = bounds[has_bounds]
    if not len(known):
        raise ValueError("The tiles must have coordinates in the target system, got none.")
    if is_geographic(system):
        spans = (known[:, 2] - known[:, 0]) * transform.a
        if (spans > 180.0).any():
            tile = tiles[int(np.flatnonzero(has_bounds)[np.argmax(spans)])]
            raise ValueError(
                f"The target grid must not cross the antimeridian, got {tile.shown!r}, which does. "
                "Pass a projected coordinate system as crs=."
            )
    left, top = known[:, :2].min(axis=0)
    right, bottom = known[:, 2:].max(axis=0)
    if region is not None:
        left, top, right, bottom = _within(region, transform, (left, top, right, bottom))
    # Corners within the tolerance of a pixel are corners of that pixel.
    columns = math.floor(left + ALIGNED), math.ceil(right - ALIGNED)
    rows = math.floor(top + ALIGNED), math.ceil(bottom - ALIGNED)
    shape = max(rows[1] - rows[0], 1), max(columns[1] - columns[0], 1)
    if math.prod(shape) > _MOST_PIXELS:
        raise ValueError(
            f"The target grid must have at most {_MOST_PIXELS:.0e} pixels, got {shape[0]} x "
            f"{shape[1]} = {math.prod(shape):.1e}. Pass a coarser resolution or a smaller region."
        )
    return transform @ Affine.translation(columns[0], rows[0]), system, shape


def _within(region: Any, transform: Any, covered: tuple[float, ...]) -> tuple[float, ...]:
    """Return a region (left, bottom, right, top) of coordinates in pixels."""
    bounds = np.asarray(region, float).ravel()
    if bounds.shape != (4,) or not (bounds[0] < bounds[2] and bounds[1] < bounds[3]):
        raise ValueError(f"region must be (left, bottom, right, top), got {region!r}.")
    left, top = ~transform @ (bounds[0], bounds[3])
    right, bottom = ~transform @ (bounds[2], bounds[1])
    if left >= covered[2] or right <= covered[0] or top >= covered[3] or bottom <= covered[1]:
        corners = transform @ covered[:2], transform @ covered[2:]
        (west, north), (east, south) = corners
        raise ValueError(
            f"region must overlap with the tiles, whose bounds are ({west:g}, {south:g}, "
            f"{east:g}, {north:g}) in the target system, got {region!r}."
        )
    return left, top, right, bottom


def _grid_of(like: Any) -> Any:
    from odc.geo.geobox import GeoBox

    if isinstance(like, GeoBox):
        return like
    if hasattr(like, "geobox"):
        return like.geobox
    if isinstance(like, str | os.PathLike):
        import rasterio

        with rasterio.open(like) as file:
            return GeoBox.from_rio(file)
    import odc.geo.xr  # noqa: F401

    grid = like.odc.geobox
    if grid is None:
        raise ValueError("like must have coordinates and a coordinate system, got neither.")
    return grid
