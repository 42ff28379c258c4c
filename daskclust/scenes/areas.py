"""Areas of the classes of a map, in one pass over its blocks."""

from __future__ import annotations

import csv
import io
import math
import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, overload

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Floats, Ints
from daskclust.core.engine import compute
from daskclust.core.storage.atomic_write import new_path, remove_stale
from daskclust.core.storage.outputs import exists_already
from daskclust.scenes._georeference import IDENTITY, PixelGrid
from daskclust.scenes.coordinate_systems import known_system, system_name, to_degrees
from daskclust.scenes.formats.format_detection import needs_extra

#: Maximum ratio of the range of codes to their number for counting instead of sorting.
_FEW = 4
#: Maximum distortion of a projection, as a fraction, that is ignored.
_DISTORTION = 0.01
#: Number of points per block and axis at which the distortion of a projection is computed.
_NODES = 33


@dataclass(frozen=True)
class ClassArea:
    """Pixels and area of one class of a map.

    `share` is the fraction of the pixels with a class, NaN without such pixels. `square_meters` is
    None for a map without a coordinate system.
    """

    code: int
    name: str
    color: str
    pixels: int
    share: float
    square_meters: float | None

    @property
    def square_kilometers(self) -> float | None:
        """Area in km2."""
        return None if self.square_meters is None else self.square_meters / 1e6


class AreaTable(Sequence[ClassArea]):
    """The classes of a map with their areas; made by :func:`daskclust.scenes.area_table`.

    A sequence of :class:`ClassArea`, by ascending code.

    Attributes
    ----------
    unclassified : int
        Pixels without a class.
    method : str
        Description of the computation of the areas.
    """

    def __init__(self, classes: Sequence[ClassArea], *, unclassified: int, method: str) -> None:
        self._classes = tuple(classes)
        self.unclassified = unclassified
        self.method = method

    def __len__(self) -> int:
        return len(self._classes)

    @overload
    def __getitem__(self, index: int) -> ClassArea: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ClassArea]: ...
    def __getitem__(self, index: int | slice) -> ClassArea | Sequence[ClassArea]:
        return self._classes[index]

    def __repr__(self) -> str:
        rows = [("code", "name", "pixels", "share", "km2")]
        for row_area in self:
            area, share = row_area.square_kilometers, f"{100 * row_area.share:.2f} %"
            shown = "-" if area is None else f"{area:.6g}"
            rows.append((str(row_area.code), row_area.name, str(row_area.pixels), share, shown))
        widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
        line = "  ".join(f"{{:{'><>>>'[i]}{width}}}" for i, width in enumerate(widths))
        lines = [line.format(*row).rstrip() for row in rows]
        return "\n".join([*lines, f"({self.method}; {self.unclassified} pixels without a class)"])

    def records(self) -> list[dict[str, Any]]:
        """Return one dict per class: ``code, name, color, pixels, share``, and both areas.

        Examples
        --------
        >>> from daskclust.scenes import area_table
        >>> area_table(np.array([[0, 1], [1, -1]])).records()[1]["pixels"]
        2
        """
        return [{**asdict(row), "square_kilometers": row.square_kilometers} for row in self]

    def to_frame(self) -> Any:
        """Return a ``pandas.DataFrame`` of :meth:`records`, indexed by code.

        Raises
        ------
        ImportError
            pandas is not installed.
        """
        with needs_extra("A DataFrame of areas"):
            import pandas
        return pandas.DataFrame(self.records()).set_index("code")

    def to_csv(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write :meth:`records` as CSV (UTF-8), atomically.

        Raises
        ------
        FileExistsError
            The file exists and `overwrite` is False.
        """
        target = Path(path)

        def check() -> None:
            if target.exists() and not overwrite:
                raise exists_already(target)

        check()
        names = ("code", "name", "color", "pixels", "share", "square_meters", "square_kilometers")
        out = io.StringIO(newline="")
        writer = csv.DictWriter(out, names)
        writer.writeheader()
        writer.writerows(self.records())
        with new_path(target, check=check) as partial:
            partial.write_bytes(out.getvalue().encode())
        remove_stale(target)
        return target


def areas_of(label_map: Any) -> AreaTable:
    """Return the areas of a `LabelMap`; see :func:`daskclust.scenes.area_table`."""
    values = label_map.values
    rule = _rule_of(label_map.grid)
    counted = da.map_blocks(
        _block_areas,
        values,
        rule=rule,
        chunks=tuple((1,) * count for count in values.numblocks),
        meta=np.empty((0, 0), object),
    )
    (blocks,) = compute("the measuring of areas", counted)
    pixels: Counter[int] = Counter()
    areas = defaultdict[int, list[float]](list)
    for codes, counts, covered in blocks.ravel():
        for code, count, area in zip(
            *map(np.ndarray.tolist, (codes, counts, covered)), strict=True
        ):
            pixels[code] += count
            areas[code].append(area)
    unclassified = pixels.pop(-1, 0)
    total = pixels.total()
    classes = [
        ClassArea(
            code=code,
            name=label_map.name_of(code),
            color=label_map.color_of(code),
            pixels=pixels[code],
            share=pixels[code] / total if total else math.nan,
            square_meters=rule.total(pixels[code], areas[code]),
        )
        for code in sorted({*label_map.names, *pixels})
    ]
    return AreaTable(classes, unclassified=unclassified, method=rule.method)


@dataclass(frozen=True)
class _Rule:
    """Rule for the area of a pixel.

    `constant` is the area of every pixel in square meters. `grid` is set if the area depends on
    the position of the pixel. Without both, areas are not known.
    """

    method: str
    constant: float | None = None
    grid: PixelGrid | None = None

    def total(self, pixels: int, areas: Sequence[float]) -> float | None:
        if self.grid is not None:
            return math.fsum(areas)
        return None if self.constant is None else pixels * self.constant


def _rule_of(grid: PixelGrid) -> _Rule:
    if grid.crs is None or grid.transform == IDENTITY:
        return _Rule("no areas: the map has no coordinate system or transform")
    crs = _crs(grid.crs)
    name = system_name(crs)
    if crs.is_geographic:
        return _Rule(f"on the ellipsoid, by latitude; {name}", grid=grid)
    if not crs.is_projected:
        return _Rule(f"no areas in the coordinate system {name}")
    flat, scale = _flat_area(grid, crs)
    if not np.isfinite(scale).all() or np.abs(scale - 1).max() > _DISTORTION:
        return _Rule(f"on the ellipsoid, pixel by pixel; {name}", grid=grid)
    return _Rule(f"pixels of {flat:.10g} m2; {name}", constant=flat)


def _flat_area(grid: PixelGrid, crs: Any) -> tuple[float, Floats]:
    """Return the area of a pixel of a projected grid, and its ratio to 25 areas on the ground."""
    factor = crs.axis_info[0].unit_conversion_factor if crs.axis_info else 1.0
    a, b, _, d, e, _ = grid.transform
    flat = abs(a * e - b * d) * factor**2
    rows, cols = (np.linspace(0.5, size - 0.5, 5) for size in grid.shape)
    return flat, flat / _on_ground(grid, rows[:, None], cols[None, :])


def line_weights(grid: PixelGrid) -> Floats | None:
    """Return the area of a pixel of each line, divided by the mean; None for a projected grid.

    The area is computed on a sphere.

    >>> grid = PixelGrid((2, 4), (90.0, 0.0, -180.0, 0.0, -60.0, 60.0), "EPSG:4326")
    >>> line_weights(grid)
    array([1., 1.])
    """
    if grid.crs is None or grid.transform == IDENTITY:
        lacking = "coordinate system" if grid.crs is None else "position"
        raise ValueError(
            f"Weights by area require a cube with a {lacking}, got none. Add it, for "
            "example with rio.write_crs and rio.write_transform, or pass an image (y, x) of "
            "weights."
        )
    crs = _crs(grid.crs)
    if not (crs.is_geographic or crs.is_projected):
        raise ValueError(
            "Weights by area require a geographic or projected coordinate system, got "
            f"{system_name(crs)}. Pass an image (y, x) of weights."
        )
    _, b, _, d, step, top = grid.transform
    if b != 0 or d != 0:
        raise ValueError(
            "Weights by area require lines along x, got a rotated grid. Pass an image (y, x) of "
            "weights."
        )
    if crs.is_projected:
        _, scale = _flat_area(grid, crs)
        if not scale.max() <= (1 + _DISTORTION) * scale.min():
            raise ValueError(
                f"Weights by area require pixels of equal area, got {system_name(crs)}, in which "
                f"areas differ by a factor of {scale.max() / scale.min():.3g}. Reproject to an "
                "equal-area system, or pass an image (y, x) of weights."
            )
        return None
    to_radians = crs.axis_info[0].unit_conversion_factor
    latitudes = (top + step * np.arange(grid.shape[0] + 1)) * to_radians
    # Pixels beyond the poles have the area 0.
    heights = np.abs(np.diff(np.sin(np.clip(latitudes, -np.pi / 2, np.pi / 2))))
    if not heights.any():
        raise ValueError(
            "The latitudes of the cube must be between -90 and 90 degrees, got "
            f"{np.degrees(latitudes[0]):g} to {np.degrees(latitudes[-1]):g}. Correct its transform."
        )
    return np.asarray(heights / heights.mean())


@lru_cache(maxsize=8)
def _crs(text: str) -> Any:
    with needs_extra("An area"):
        import pyproj  # noqa: F401
    crs = known_system(text)
    if crs is None:
        raise ValueError(
            f"pyproj does not know the coordinate system {text[:80]!r} of the map, which "
            "areas need. Give the map another coordinate system."
        )
    return crs.to_2d()


def _on_ground(grid: PixelGrid, rows: Floats, cols: Floats) -> Floats:
    """Return the areas of pixels on the ellipsoid in square meters, from steps to their borders."""
    assert grid.crs is not None
    turn, crs = to_degrees(grid.crs).transform, _crs(grid.crs)

    def degrees(down: float, across: float) -> Floats:
        x, y = np.broadcast_arrays(*grid.positions(cols + across, rows + down))
        return np.radians(np.asarray(turn(x, y)))

    down = degrees(0.5, 0.0) - degrees(-0.5, 0.0)
    across = degrees(0.0, 0.5) - degrees(0.0, -0.5)
    # A step over the date line.
    for step in (down, across):
        step[0] = np.remainder(step[0] + np.pi, 2 * np.pi) - np.pi
    turned = np.abs(down[0] * across[1] - down[1] * across[0])
    return turned * _by_angle(crs, degrees(0.0, 0.0)[1])


def _by_angle(crs: Any, latitude: Floats) -> Floats:
    """Return the square meters of a square radian: the product of both radii of curvature."""
    flat = 1 / crs.ellipsoid.inverse_flattening if crs.ellipsoid.inverse_flattening else 0.0
    e2 = flat * (2 - flat)
    inside = 1 - e2 * np.sin(latitude) ** 2
    area = crs.ellipsoid.semi_major_metre**2 * (1 - e2) * np.cos(latitude) / inside**2
    # Pixels beyond the poles have the area 0.
    return np.asarray(np.maximum(area, 0.0))


def _pixel_areas(grid: PixelGrid, rows: slice, cols: slice) -> Floats:
    """Return square meters of the pixels of a block, in a shape that broadcasts to the block."""
    assert grid.crs is not None
    y = np.arange(rows.start, rows.stop) + 0.5
    x = np.arange(cols.start, cols.stop) + 0.5
    if not _crs(grid.crs).is_geographic:
        return _interpolated(grid, y, x)
    _, _, _, turned, _, _ = grid.transform
    # Without a rotation, all pixels of a line have the same latitude.
    return _on_ground(grid, y[:, None], x[None, :] if turned else x[None, :1])


def _interpolated(grid: PixelGrid, y: Floats, x: Floats) -> Floats:
    """Return the areas of all pixels of a block, interpolated between a few nodes."""
    rows = np.linspace(y[0], y[-1], min(_NODES, len(y)))
    cols = np.linspace(x[0], x[-1], min(_NODES, len(x)))
    nodes = _on_ground(grid, rows[:, None], cols[None, :])
    down = np.stack([np.interp(y, rows, line) for line in nodes.T], axis=1)
    return np.stack([np.interp(x, cols, line) for line in down])


def indices_of_codes(values: Array) -> tuple[Ints, Ints]:
    """Return ascending codes that include all values, and the index of each value.

    >>> indices_of_codes(np.array([[3, 5], [3, 3]]))
    (array([3, 4, 5]), array([0, 2, 0, 0]))
    """
    flat = values.ravel()
    low, high = int(flat.min()), int(flat.max())
    if high - low > _FEW * flat.size:
        return np.unique(flat, return_inverse=True)
    return np.arange(low, high + 1), flat.astype(np.int64) - low


def _block_areas(block: Array, *, rule: _Rule, block_info: Any = None) -> NDArray[np.object_]:
    """Return codes of one block, pixel counts, and areas if these depend on the position."""
    out = np.empty((1, 1), dtype=object)
    codes, indices = indices_of_codes(block)
    counts = np.bincount(indices, minlength=len(codes))
    covered: Any = np.zeros(len(codes))
    if rule.grid is not None:
        rows, cols = (slice(*bounds) for bounds in block_info[0]["array-location"])
        weights = np.broadcast_to(_pixel_areas(rule.grid, rows, cols), block.shape)
        covered = np.bincount(indices, weights.ravel(), minlength=len(codes))
    occurs = counts > 0
    out[0, 0] = codes[occurs], counts[occurs], covered[occurs]
    return out
