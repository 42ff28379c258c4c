"""The transform of an image by the coordinates of its pixels, and by what attributes state.

A transform is ``(a, b, c, d, e, f)`` with ``x = a col + b row + c`` and ``y = d col + e row + f``,
of pixel corners.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskclust.core.array_types import Floats

Transform = tuple[float, ...]

#: Fraction of a pixel by which two statements of a position may differ, in addition to rounding.
TOLERANCE = 1e-3
#: Maximum difference of a single step as a fraction of the step, also for coarse rounding.
_UNEVEN = 0.25
#: Minimum difference of steps, as a fraction, that shows that coordinates were rounded.
_ROUNDED = 1e-6


_REMEDY = (
    "Select adjacent pixels or every nth one, or interpolate to a regular grid (interp in xarray)"
)


class PlacingError(ValueError):
    """Coordinates are not those of a regular grid."""


@dataclass(frozen=True)
class Placed:
    """Transform of an image, None if it is not known.

    `slack` is the error, in pixels, that the rounding of the coordinates explains.
    """

    transform: Transform | None
    slack: float = 0.0


@dataclass(frozen=True)
class Axis:
    """Pixels along one axis: the outer edge of the first one, and their size.

    `rounding` is the error of a position that the rounding of the coordinates explains.
    """

    edge: float
    step: float
    rounding: float = 0.0


@dataclass(frozen=True)
class Line:
    """A coordinate along one axis: centers of pixels.

    `factor` converts it to the unit of the coordinate system, None if it is in a unit that cannot
    be converted. `size` is the size of a pixel, if it is stated. `unit` is ``"pixel"`` if the
    coordinate counts pixels.
    """

    name: str
    values: Any
    unit: str = ""
    factor: float | None = 1.0
    size: float | None = None


def rounding_of(values: Any) -> float:
    """Return the largest error of coordinates that were rounded to their precision.

    That precision is single if the values are uneven single-precision numbers in a double array.

    >>> rounding_of(np.array([10.0, 20.0, 30.0])) < 1e-14
    True
    >>> degrees = (120 + 9e-5 * np.arange(9)).astype(np.float32)
    >>> rounding_of(degrees) == rounding_of(degrees.astype(np.float64)) > 3e-6
    True
    """
    if values.dtype.kind != "f" or not np.isfinite(values).all():
        return 0.0
    kind = values.dtype
    if kind == np.float64 and (values.astype(np.float32) == values).all():
        steps = np.diff(values)
        if len(steps) and np.ptp(steps) > _ROUNDED * np.abs(steps).max():
            kind = np.dtype(np.float32)
    return float(np.spacing(np.abs(values).max().astype(kind)) / 2)


def agrees(axis: Axis, values: Any, factor: float = 1.0) -> bool:
    """Return True if all coordinates lie at the centers of pixels, but for their rounding.

    >>> agrees(Axis(0.0, 10.0), np.array([5.0, 15.0])), agrees(Axis(0.0, 10.0), np.array([0.0]))
    (True, False)
    """
    centers = axis.edge + axis.step * (np.arange(len(values)) + 0.5)
    allowed = TOLERANCE * abs(axis.step) + abs(factor) * rounding_of(values)
    # NaN is not within any distance.
    return bool((np.abs(factor * values.astype(np.float64) - centers) <= allowed).all())


def axis_of(line: Line, size: float | None = None) -> Axis | None:
    """Return the axis of a coordinate; None if a single value does not tell the pixel size.

    `size` is the step that is stated elsewhere: it is used if the coordinate does not contradict
    it.

    >>> found = axis_of(Line("x", np.array([5.0, 15.0, 25.0])))
    >>> found.edge, found.step
    (0.0, 10.0)
    """
    if line.factor is None:
        raise PlacingError(
            f"coordinate {line.name!r} is in {line.unit}, which cannot be converted to the unit of "
            "its coordinate system. Assign coordinates in that unit, or correct the attribute units"
        )
    rounding = abs(line.factor) * rounding_of(line.values)
    values = line.factor * line.values.astype(np.float64)
    if not np.isfinite(values).all():
        raise PlacingError(
            f"coordinate {line.name!r} has values that are not finite. Assign a position to each "
            "pixel"
        )
    last = len(values) - 1
    middle, step = (values[0] + values[-1]) / 2, size
    if last:
        step, steps = (values[-1] - values[0]) / last, np.diff(values)
        off = np.abs(middle + step * (np.arange(last + 1) - last / 2) - values).max()
        coarse = np.abs(steps - step).max() > _UNEVEN * abs(step)
        if step == 0 or coarse or off > TOLERANCE * abs(step) + 2 * rounding:
            raise PlacingError(
                f"coordinate {line.name!r} must have equal steps, got {steps.min():.10g} to "
                f"{steps.max():.10g}. {_REMEDY}"
            )
        stated = step if size is None else np.copysign(size, step)
        if abs(stated - step) * last <= TOLERANCE * abs(step) + 2 * rounding:
            step = stated
    if not step:
        return None
    return Axis(float(middle - step * (last + 1) / 2), float(step), rounding)


def placed_by_lines(y: Line | None, x: Line | None, stated: Sequence[Transform]) -> Placed:
    """Return the position of an image from its coordinates along y and x; one may be missing.

    A transform that agrees with the coordinates is used as it is stated.

    Raises
    ------
    PlacingError
        The coordinates are not those of a regular grid.

    Examples
    --------
    >>> y, x = Line("y", np.array([-5.0, -15.0])), Line("x", np.array([55.0, 65.0]))
    >>> placed_by_lines(y, x, [(10.0, 0.0, 0.0, 0.0, -10.0, 0.0)]).transform
    (10.0, 0.0, 50.0, 0.0, -10.0, 0.0)
    """
    if y is not None and x is not None and stated and _count_pixels(y, x, stated[0]):
        if y.values[0] or x.values[0]:
            raise PlacingError(
                f"coordinates {y.name!r} and {x.name!r} count pixels, from {y.values[0]} and "
                f"{x.values[0]} on, where the attributes state other positions. Assign positions, "
                "or remove the coordinates"
            )
        return Placed(stated[0])
    if "pixel" in {line.unit for line in (y, x) if line is not None}:
        # Turned grids of odc-geo.
        inner = _joined([_axis(y, [Axis(0.0, 1.0)]), _axis(x, [Axis(0.0, 1.0)])])
        assert inner.transform is not None
        return Placed(composed(stated[0], inner.transform) if stated else None)
    straight = [one for one in stated if one[1] == one[3] == 0]
    if stated and not straight:
        raise PlacingError(
            "its transform turns it, but it has coordinates along its sides. Remove the transform "
            "or the coordinates"
        )
    return _joined(
        [
            _axis(y, [Axis(one[5], one[4]) for one in straight]),
            _axis(x, [Axis(one[2], one[0]) for one in straight]),
        ]
    )


def _count_pixels(y: Line, x: Line, stated: Transform) -> bool:
    """Return True if coordinates count rows and columns rather than state positions.

    They are consecutive whole numbers, lie no nearer to the stated positions than to 0, and are no
    centers of pixels of the stated grid.
    """
    for line in (y, x):
        is_whole = line.values == np.round(line.values)
        if not (is_whole.all() and (np.diff(line.values) == 1).all()):
            return False
    a, b, left, d, e, top = stated
    first = np.array([x.values[0], y.values[0]], np.float64)
    position = np.linalg.solve([[a, b], [d, e]], first - [left, top]) - 0.5
    is_center = (
        np.abs(position - np.round(position)).max() <= TOLERANCE and position.min() > -TOLERANCE
    )
    return bool(np.abs(first).max() <= np.abs(position).max()) and not is_center


def _axis(line: Line | None, stated: Sequence[Axis]) -> Axis | None:
    """Return the stated axis that agrees with a coordinate, or else that of the coordinate."""
    if line is None:
        return stated[0] if stated else None
    # In the unit of the coordinate system, if it does not agree as it is.
    for factor in dict.fromkeys((1.0, line.factor or 1.0)):
        for axis in stated:
            if agrees(axis, line.values, factor):
                return axis
    return axis_of(line, stated[0].step if stated else line.size)


def _joined(axes: Sequence[Axis | None]) -> Placed:
    y, x = axes
    if y is None or x is None:
        return Placed(None)
    slack = max(axis.rounding / abs(axis.step) for axis in (y, x))
    return Placed((x.step, 0.0, x.edge, 0.0, y.step, y.edge), slack)


def placed_by_planes(x: Any, y: Any, stated: Transform | None) -> Placed:
    """Place a turned image by coordinates of shape (rows, columns).

    Only the first and last row and the first column are read. A single row or column takes
    the step along the other axis from the stated transform.

    >>> down, across = np.mgrid[:2, :3] + 0.5
    >>> placed_by_planes(4 * across + 3 * down, 7 - 3 * across + 4 * down, None).transform
    (4.0, 3.0, 0.0, -3.0, 4.0, 7.0)
    """
    rows, columns = x.shape
    numbers: list[float] = []
    for number, values in enumerate((x, y)):
        edges = [np.asarray(values[index]) for index in (0, -1, (slice(None), 0))]
        rounding = max(map(rounding_of, edges))
        top, bottom, left = (edge.astype(np.float64) for edge in edges)
        across, down = (None, None) if stated is None else stated[3 * number : 3 * number + 2]
        if columns > 1:
            across = (top[-1] - top[0]) / (columns - 1)
        if rows > 1:
            down = (left[-1] - left[0]) / (rows - 1)
        if across is None or down is None:
            return Placed(None)
        lines = (
            (top, across * np.arange(columns)),
            (bottom, across * np.arange(columns) + down * (rows - 1)),
            (left, down * np.arange(rows)),
        )
        allowed = TOLERANCE * np.hypot(across, down) + 2 * rounding
        if any(not (np.abs(top[0] + line - edge) <= allowed).all() for edge, line in lines):
            raise PlacingError(f"its two-dimensional coordinates have unequal steps. {_REMEDY}")
        numbers += [float(across), float(down), float(top[0] - (across + down) / 2)]
    if numbers[0] * numbers[4] == numbers[1] * numbers[3]:
        raise PlacingError(f"its two-dimensional coordinates span no area. {_REMEDY}")
    return Placed(tuple(numbers))


def distance(one: Transform, other: Transform, shape: tuple[int, int]) -> float:
    """Return the largest shift of the corners of an image between transforms, in pixels of `one`.

    >>> distance((10, 0, 5, 0, -10, 0), (10, 0, 0, 0, -10, 0), (2, 2))
    0.5
    """
    rows, columns = shape
    corners = np.array([(0, 0, 1), (columns, 0, 1), (0, rows, 1), (columns, rows, 1)]).T
    mine, theirs = _matrix(one)[:2], _matrix(other)[:2]
    shifts = np.linalg.solve(mine[:, :2], (theirs - mine) @ corners)
    return float(np.abs(shifts).max())


def composed(outer: Transform, inner: Transform) -> Transform:
    """Return the transform that applies `inner` first.

    >>> composed((10, 0, 500, 0, -10, 90), (1, 0, 5, 0, 1, 3))
    (10.0, 0.0, 550.0, 0.0, -10.0, 60.0)
    """
    return tuple(float(part) for part in (_matrix(outer) @ _matrix(inner))[:2].ravel())


def _matrix(transform: Transform) -> Floats:
    return np.vstack([np.reshape(np.asarray(transform, np.float64), (2, 3)), [0.0, 0.0, 1.0]])
