"""Meanings of stored numbers: CF attributes, the same on every route.

``scale_factor`` and ``add_offset`` make samples of stored numbers; ``_FillValue``,
``missing_value``, ``nodata`` and ``valid_range`` are about stored numbers; ``_Unsigned``
says of which sign these are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Array, Bools, Floats
from daskclust.storage.stores import decode_fill_value

__all__ = ["NODATA_ATTRIBUTES", "PLAIN", "Meaning", "meaning_of", "nodata_values"]

NODATA_ATTRIBUTES = ("_FillValue", "missing_value", "nodata")


@dataclass(frozen=True)
class Meaning:
    """How stored numbers are read.

    `dtype` is the one whose bits the stored numbers are, where it is not theirs. A sample is
    ``stored * scale + offset``, both of shape (1,) or (stored bands,), or None where trivial; where
    `curved`, it is ``sign(stored) (stored / 127.5)^2`` (AlphaEarth). `low` and `high` are the valid
    stored numbers, both included.
    """

    dtype: np.dtype[Any] | None = None
    scale: Floats | None = None
    offset: Floats | None = None
    low: float | None = None
    high: float | None = None
    curved: bool = False

    @property
    def has_range(self) -> bool:
        """Whether numbers outside a range mean "no data"."""
        return self.low is not None or self.high is not None

    @property
    def is_scaled(self) -> bool:
        """Whether samples are other numbers than those stored."""
        return self.curved or self.scale is not None

    def view(self, values: Array) -> Array:
        """Return stored numbers with the sign that is meant."""
        if self.dtype is None or values.dtype == self.dtype:
            return values
        return np.ascontiguousarray(values).view(self.dtype)

    def outside(self, values: Array) -> Bools | None:
        """Which of `values` lie outside the valid range; None where there is none."""
        found: Bools | None = None
        if self.low is not None:
            found = values < self.low
        if self.high is not None:
            above = values > self.high
            found = above if found is None else found | above
        return found

    def scaled(self, rows: Array, bands: NDArray[np.intp] | None) -> Array:
        """Make samples (n, bands kept) of stored numbers, in float64."""
        if self.curved:
            wide = rows.astype(np.float64)
            wide /= 127.5
            wide *= np.abs(wide)
            return wide
        if self.scale is None:
            return rows
        assert self.offset is not None
        scale, offset = (
            part if bands is None or len(part) == 1 else part[bands]
            for part in (self.scale, self.offset)
        )
        out = rows.astype(np.float64)
        out *= scale
        out += offset
        return out

    def described(self) -> dict[str, Any]:
        """Return the scaling as JSON values: one number, or one a stored band."""
        if self.curved:
            return {"quantization": "alphaearth"}
        if self.scale is None or self.offset is None:
            return {}
        parts = {"scale_factor": self.scale, "add_offset": self.offset}
        return {
            key: part.tolist() if len(set(part.tolist())) > 1 else float(part[0])
            for key, part in parts.items()
        }


#: Of numbers that are what they are.
PLAIN = Meaning()


def meaning_of(
    attributes: Mapping[str, Any], dtype: np.dtype[Any], n_bands: int, title: str
) -> Meaning:
    """Read what the attributes of an array say of its numbers.

    >>> found = meaning_of({"scale_factor": 0.5, "valid_min": 0}, np.dtype("int16"), 2, "a")
    >>> found.scaled(np.array([[1, 2]]), None).tolist(), found.low, found.high
    ([[0.5, 1.0]], 0, None)
    """
    meant = _signed_as_meant(attributes, dtype)
    read = dtype if meant is None else meant
    scale = _per_band(attributes, "scale_factor", 1.0, n_bands, title)
    offset = _per_band(attributes, "add_offset", 0.0, n_bands, title)
    low, high = _range(attributes, read, title)
    if (scale == 0).any():
        raise ValueError(f"{title} has a scale_factor of 0, which makes all values the same.")
    if (scale == 1).all() and (offset == 0).all():
        return Meaning(meant, None, None, low, high)
    if dtype.kind == "b":
        raise ValueError(f"{title} stores truth values with a scale_factor; expected numbers.")
    return Meaning(meant, scale, offset, low, high)


def _signed_as_meant(attributes: Mapping[str, Any], dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    said = str(attributes.get("_Unsigned", "")).lower()
    if said == "true" and dtype.kind == "i":
        return np.dtype(f"{dtype.byteorder}u{dtype.itemsize}")
    if said == "false" and dtype.kind == "u":
        return np.dtype(f"{dtype.byteorder}i{dtype.itemsize}")
    return None


def _per_band(
    attributes: Mapping[str, Any], name: str, neutral: float, n_bands: int, title: str
) -> Floats:
    value = attributes.get(name)
    if value is None:
        return np.array([neutral])
    try:
        found = np.atleast_1d(np.asarray(value, dtype=np.float64))
    except (TypeError, ValueError):
        found = np.empty((0,))
    if found.shape not in ((1,), (n_bands,)) or not np.isfinite(found).all():
        raise ValueError(
            f"{title} has {name} = {value!r}; expected a finite number, or one for each of the "
            f"{n_bands} bands."
        )
    return found


def _range(
    attributes: Mapping[str, Any], dtype: np.dtype[Any], title: str
) -> tuple[float | None, float | None]:
    ends: tuple[Any, Any] = attributes.get("valid_min"), attributes.get("valid_max")
    both = attributes.get("valid_range")
    if both is not None:
        parts = both.replace(",", " ").split() if isinstance(both, str) else both
        parts = np.atleast_1d(np.asarray(parts)).tolist()
        if len(parts) != 2:
            raise ValueError(f"{title} has valid_range = {both!r}; expected two numbers.")
        ends = parts[0], parts[1]
    low, high = (None if end is None else _unsigned(decode_fill_value(end), dtype) for end in ends)
    if low is not None and high is not None and low > high:
        raise ValueError(
            f"{title} has a valid range from {low} to {high}; expected the smaller one first."
        )
    return low, high


def nodata_values(
    attributes: Mapping[str, Any], dtype: np.dtype[Any], nodata: float | str | None
) -> tuple[float, ...]:
    """Values that mean "no data" and that the dtype can hold, NaN left out."""
    if nodata == "auto":
        stated = (attributes.get(name) for name in NODATA_ATTRIBUTES)
        values = [
            _unsigned(decode_fill_value(one), dtype)
            for value in stated
            if value is not None
            for one in _each(value)
        ]
    elif nodata is None:
        values = []
    elif isinstance(nodata, str):
        raise ValueError(f"nodata={nodata!r}; expected a number, None or 'auto'.")
    else:
        values = [nodata]
    return tuple(dict.fromkeys(value for value in values if _can_hold(dtype, value)))


def _each(value: Any) -> list[Any]:
    """CF allows several values in missing_value."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    return list(value) if isinstance(value, list | tuple) else [value]


def _unsigned(value: float, dtype: np.dtype[Any]) -> float:
    """Read a negative fill value of unsigned numbers as NetCDF means it: by its bits."""
    if dtype.kind != "u" or not -(2.0 ** (8 * dtype.itemsize - 1)) <= value < 0:
        return value
    return int(value) + 2 ** (8 * dtype.itemsize) if value == int(value) else value


def _can_hold(dtype: np.dtype[Any], value: float) -> bool:
    if math.isnan(value) or dtype.kind == "b":
        return False
    if dtype.kind == "f":
        # By rounding, not by the limit: -3.4028235e38 is a common spelling of float32's lowest.
        with np.errstate(over="ignore"):
            return math.isinf(value) or bool(np.isfinite(dtype.type(value)))
    limits = np.iinfo(dtype)
    return math.isfinite(value) and value == int(value) and limits.min <= value <= limits.max
