"""Metadata of a stored cube: its array, its axes, and its nodata values."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from daskclust.colors import Legend
from daskclust.core.array_types import Array, Bools, Floats
from daskclust.core.storage.stored_array import StoredArray
from daskclust.core.storage.stores import decode_fill_value
from daskclust.core.warn import warn
from daskclust.exceptions import PerformanceWarning
from daskclust.scenes.bands import in_nm
from daskclust.scenes.formats.format_detection import NODATA_OF_BANDS

_COLOR = re.compile("#[0-9a-fA-F]{6}")
_DIMENSIONS = ("y", "x", "band")
_DIMS = 'dims=("y", "x", "band"), on the command line --dims y,x,band'
_ALIASES = {
    "y": {"y", "lat", "latitude", "row", "rows", "line", "lines", "northing", "downtrack"},
    "x": {"x", "lon", "longitude", "col", "cols", "column", "columns", "easting", "crosstrack"},
    "band": {
        "band",
        "bands",
        "channel",
        "channels",
        "wavelength",
        "wavelengths",
        "wl",
        "time",  # an image time series: dates are its features
    },
}
# Maximum bytes of a block.  Dask's `array.chunk-size` is not used, because blocks define the row
# numbers, which must not depend on the configuration.
_BLOCK_BYTES = 256 * 2**20


def role_of(name: object) -> str | None:
    """Return "y", "x" or "band", by the name of a dimension; None for any other name."""
    return next((role for role in _DIMENSIONS if str(name).lower() in _ALIASES[role]), None)


def dimension_names(array: zarr.Array) -> tuple[str, ...] | None:
    """Return names of dimensions of a Zarr array: of version 3, or of version 2 by xarray."""
    names = getattr(array.metadata, "dimension_names", None)
    if names is None:
        names = array.attrs.get("_ARRAY_DIMENSIONS")
    if not isinstance(names, list | tuple) or any(name is None for name in names):
        return None
    return tuple(map(str, names))


def attributes_of(array: zarr.Array) -> dict[str, Any]:
    """Return the attributes of an array; xarray's version 2 keeps nodata in the metadata."""
    attributes = dict(array.attrs)
    if (
        array.metadata.zarr_format == 2
        and "_ARRAY_DIMENSIONS" in attributes
        and not any(name in attributes for name in NODATA_ATTRIBUTES)
        and array.metadata.fill_value is not None
    ):
        # zarr returns 0 if the metadata contain null.
        attributes["_FillValue"] = array.metadata.fill_value
    return attributes


def find_dimensions(
    names: Sequence[str] | None, title: str, shape: tuple[int, ...]
) -> tuple[tuple[int, int, int], tuple[str, str]]:
    """Return the axes of y, x and band, and the names of y and x."""
    if isinstance(names, str):
        raise ValueError(
            f"dims must be three names in stored order, such as {_DIMS}, got {names!r}."
        )
    if names is None:
        raise ValueError(
            f"{title} of shape {shape} has no names of its dimensions, so their order cannot be "
            f"guessed. Pass it, for example {_DIMS}."
        )
    axes: dict[str, int] = {}
    for axis, name in enumerate(names):
        role = role_of(name)
        if role is not None:
            axes.setdefault(role, axis)
    if len(names) != 3 or len(axes) != 3:
        aliases = "; ".join(f"{role}: {', '.join(sorted(_ALIASES[role]))}" for role in _DIMENSIONS)
        raise ValueError(
            f"Dimensions {tuple(names)!r} are not one each of y, x and band (known names: "
            f"{aliases}). Pass their roles in stored order, for example {_DIMS}."
        )
    order = axes["y"], axes["x"], axes["band"]
    return order, (str(names[order[0]]), str(names[order[1]]))


def choose_block(
    shape: tuple[int, int, int],
    stored: tuple[int, int],
    dtype: np.dtype[Any],
    chunks: tuple[int, int] | None,
) -> tuple[int, int]:
    """Return rows and columns of a block of a cube (y, x, band), given the stored chunks."""
    height, width, n_bands = shape
    if chunks is not None:
        if len(chunks) != 2 or any(int(size) != size or size < 1 for size in chunks):
            raise ValueError(
                f"chunks must be two positive integers, (rows, columns), got {chunks!r}."
            )
        return min(int(chunks[0]), height), min(int(chunks[1]), width)
    rows, cols = min(stored[0], height), min(stored[1], width)
    pixel = n_bands * dtype.itemsize
    first = rows, cols
    while rows * cols * pixel > _BLOCK_BYTES and rows * cols > 1:
        rows, cols = (-(-rows // 2), cols) if rows >= cols else (rows, -(-cols // 2))
    if (rows, cols) != first:
        warn(
            f"A block of {first[0]} x {first[1]} pixels with all {n_bands} bands takes "
            f"{first[0] * first[1] * pixel / 2**20:.0f} MiB; dividing it into {rows} x {cols}, so "
            "that each stored chunk is read several times. Rechunk the store to smaller "
            "chunks in y and x with all bands together, or pass chunks=.",
            PerformanceWarning,
        )
    return rows, cols


def find_wavelengths(candidates: Iterable[tuple[Any, Any]], n_bands: int) -> Floats | None:
    """Return band centers in nm from the first candidate with one number per band, or None."""
    for values, units in candidates:
        if getattr(values, "ndim", 1) != 1:
            continue
        if isinstance(values, zarr.Array):
            values = StoredArray(values).read(...)
        centers = in_nm(values, units, n_bands)
        if centers is not None:
            return centers
    return None


def given_wavelengths(values: Any, n_bands: int) -> Floats:
    """Return band centers in nm from the argument: of all bands, or of the first and last band."""
    centers = in_nm(values, None, n_bands)
    ends = in_nm(values, None, 2)
    if centers is None and ends is not None:
        centers = np.linspace(ends[0], ends[1], n_bands)
    if centers is None or not np.isfinite(centers).all():
        raise ValueError(
            f"wavelengths must be {n_bands} positive numbers in nm or micrometers, one for each "
            f"stored band, or two: of the first and the last band, got {np.size(values)} values."
        )
    return centers


def label_dtype(dtype: np.dtype[Any], n_clusters: int | None) -> np.dtype[Any]:
    """Return int16 if it is sufficient for all values, else int32."""
    limit = np.iinfo(np.int16).max
    is_small = np.can_cast(dtype, np.int16) if n_clusters is None else n_clusters - 1 <= limit
    return np.dtype(np.int16 if is_small else np.int32)


#: Meanings of the labels of a map: names by number, or of the labels 0, 1, ...
Names = Mapping[int, str] | Sequence[str]


def as_names(names: Names | None) -> dict[int, str]:
    """Return names by number.

    >>> as_names(["water"]), as_names({7: "wheat"}), as_names(None)
    ({0: 'water'}, {7: 'wheat'}, {})
    """
    if names is None:
        return {}
    pairs = names.items() if isinstance(names, Mapping) else enumerate(names)
    return {int(code): str(name) for code, name in pairs}


def flags(
    codes: Iterable[int], names: Names | None, colors: Mapping[int, str] | None = None
) -> dict[str, Any]:
    """Return attributes with the names of labels, in the form of CF and unchanged."""
    aliases = as_names(names)
    legend = Legend.of(codes, aliases, colors)
    attributes: dict[str, Any] = {
        "flag_values": list(legend.codes),
        # CF separates meanings by blanks, hence none inside.
        "flag_meanings": " ".join("_".join(name.split()) or "_" for name in legend.names),
        "flag_colors": " ".join(legend.colors),
    }
    if aliases:
        attributes["class_names"] = {str(code): name for code, name in legend.by_code.items()}
    return attributes


def read_meanings(attributes: Mapping[str, Any]) -> dict[int, str] | None:
    """Return the names of labels by number, from attributes of :func:`flags` or CF."""
    names = attributes.get("class_names")
    try:
        if isinstance(names, str):
            # In formats whose attributes cannot be mappings.
            names = json.loads(names)
        if isinstance(names, Mapping) and names:
            return {int(code): str(name) for code, name in names.items()}
        meanings, numbers = attributes.get("flag_meanings"), _flag_values(attributes)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None
    if numbers is None or not isinstance(meanings, str):
        return None
    words = meanings.split()
    return dict(zip(numbers, words, strict=True)) if len(words) == len(numbers) else None


def read_colors(attributes: Mapping[str, Any]) -> dict[int, str]:
    """Return the colors of labels by number, as ``#rrggbb``; black means no data."""
    colors = attributes.get("flag_colors")
    try:
        if isinstance(colors, Mapping):  # a color table
            pairs = {int(k): "#{:02x}{:02x}{:02x}".format(*color) for k, color in colors.items()}
        elif isinstance(colors, str):
            words, numbers = colors.split(), _flag_values(attributes) or []
            pairs = dict(zip(numbers, words, strict=True))
        else:
            return {}
    except (TypeError, ValueError, OverflowError, IndexError):
        return {}
    return {k: c.lower() for k, c in pairs.items() if _COLOR.fullmatch(c) and c != "#000000"}


def _flag_values(attributes: Mapping[str, Any]) -> list[int] | None:
    values = attributes.get("flag_values")
    if values is None:
        return None
    if isinstance(values, str):
        # Lists in tags, as rasterio or GDAL write them.
        values = values.strip("[]{}").replace(",", " ").split()
    # One class may be written as a number, not a list.
    return [int(value) for value in np.atleast_1d(np.asarray(values)).tolist()]


NODATA_ATTRIBUTES = ("_FillValue", "missing_value", "nodata")


@dataclass(frozen=True)
class Meaning:
    """Decoding of stored numbers.

    `dtype` is the type by which stored bits are interpreted, if it differs from the stored type. A
    sample is ``stored * scale + offset``. Both have shape (1,) or (stored bands,), or are None if
    trivial. If `curved`, a sample is ``sign(stored) (stored / 127.5)^2`` (AlphaEarth). `low` and
    `high` are the smallest and the largest valid stored number.
    """

    dtype: np.dtype[Any] | None = None
    scale: Floats | None = None
    offset: Floats | None = None
    low: float | None = None
    high: float | None = None
    curved: bool = False

    @property
    def has_range(self) -> bool:
        """True if numbers outside a range mean "no data"."""
        return self.low is not None or self.high is not None

    @property
    def is_scaled(self) -> bool:
        """True if samples differ from the stored numbers."""
        return self.curved or self.scale is not None

    def view(self, values: Array) -> Array:
        """Return stored numbers with the stated sign."""
        if self.dtype is None or values.dtype == self.dtype:
            return values
        return np.ascontiguousarray(values).view(self.dtype)

    def outside(self, values: Array) -> Bools | None:
        """Return a mask of values outside the valid range, or None without a range."""
        is_outside: Bools | None = None if self.low is None else values < self.low
        if self.high is not None:
            above = values > self.high
            is_outside = above if is_outside is None else is_outside | above
        return is_outside

    def scaled(self, rows: Array, bands: NDArray[np.intp] | None) -> Array:
        """Return samples (n, bands kept) of stored numbers, in float64."""
        if self.curved:
            wide = rows.astype(np.float64)
            wide /= 127.5
            wide *= np.abs(wide)
            return wide
        if self.scale is None:
            return rows
        assert self.offset is not None
        scale, offset = (
            values if bands is None or len(values) == 1 else values[bands]
            for values in (self.scale, self.offset)
        )
        out = rows.astype(np.float64)
        out *= scale
        out += offset
        return out

    def described(self) -> dict[str, Any]:
        """Return the scaling as JSON values: one number, or one per stored band."""
        if self.curved:
            return {"quantization": "alphaearth"}
        if self.scale is None or self.offset is None:
            return {}
        parts = {"scale_factor": self.scale.tolist(), "add_offset": self.offset.tolist()}
        return {key: part if len(set(part)) > 1 else part[0] for key, part in parts.items()}


#: Meaning of numbers that are stored as samples, and attributes that state another meaning.
PLAIN = Meaning()
_OF_NUMBERS = {
    "_Unsigned",
    "scale_factor",
    "add_offset",
    "valid_min",
    "valid_max",
    "valid_range",
}


def meaning_of(
    attributes: Mapping[str, Any], dtype: np.dtype[Any], n_bands: int, title: str
) -> Meaning:
    """Read the meaning of stored numbers from attributes.

    >>> meaning = meaning_of({"scale_factor": 0.5, "valid_min": 0}, np.dtype("int16"), 2, "a")
    >>> meaning.scaled(np.array([[1, 2]]), None).tolist(), meaning.low, meaning.high
    ([[0.5, 1.0]], 0, None)
    """
    if attributes.keys().isdisjoint(_OF_NUMBERS):
        return PLAIN
    unsigned = str(attributes.get("_Unsigned", "")).lower()
    sign = {("true", "i"): "u", ("false", "u"): "i"}.get((unsigned, dtype.kind))
    stated_dtype = None if sign is None else np.dtype(f"{dtype.byteorder}{sign}{dtype.itemsize}")
    value_dtype = dtype if stated_dtype is None else stated_dtype
    scale = _per_band(attributes, "scale_factor", 1.0, n_bands, title)
    offset = _per_band(attributes, "add_offset", 0.0, n_bands, title)
    low, high = _range(attributes, value_dtype, title)
    if (scale == 0).any():
        raise ValueError(f"{title} has a scale_factor of 0, which makes all values the same.")
    if (scale == 1).all() and (offset == 0).all():
        return Meaning(stated_dtype, None, None, low, high)
    if dtype.kind == "b":
        raise ValueError(f"{title} must contain numbers if it has a scale_factor, got dtype bool.")
    return Meaning(stated_dtype, scale, offset, low, high)


def _per_band(
    attributes: Mapping[str, Any], name: str, neutral: float, n_bands: int, title: str
) -> Floats:
    value = attributes.get(name)
    if value is None:
        return np.array([neutral])
    try:
        values = np.atleast_1d(np.asarray(value, dtype=np.float64))
    except (TypeError, ValueError):
        values = np.empty((0,))
    if values.shape not in ((1,), (n_bands,)) or not np.isfinite(values).all():
        raise ValueError(
            f"{title} must have a finite {name}, or one for each of the {n_bands} bands, "
            f"got {value!r}."
        )
    return values


def _range(
    attributes: Mapping[str, Any], dtype: np.dtype[Any], title: str
) -> tuple[float | None, float | None]:
    ends: tuple[Any, Any] = attributes.get("valid_min"), attributes.get("valid_max")
    valid_range = attributes.get("valid_range")
    if valid_range is not None:
        limits = (
            valid_range.replace(",", " ").split() if isinstance(valid_range, str) else valid_range
        )
        limits = np.atleast_1d(np.asarray(limits)).tolist()
        if len(limits) != 2:
            raise ValueError(
                f"{title} must have a valid_range of two numbers, got {valid_range!r}."
            )
        ends = limits[0], limits[1]
    low, high = (None if end is None else decode_fill_value(end, dtype) for end in ends)
    if low is not None and high is not None and low > high:
        raise ValueError(
            f"{title} must have a valid range with the smaller number first, got {low} to {high}."
        )
    return low, high


def nodata_values(
    attributes: Mapping[str, Any], dtype: np.dtype[Any], nodata: float | str | None
) -> tuple[float, ...]:
    """Return the values that mean "no data", without NaN and values outside the dtype."""
    if nodata == "auto":
        stated = (attributes.get(name) for name in NODATA_ATTRIBUTES)
        values = [
            decode_fill_value(item, dtype)
            for value in stated
            if value is not None
            # CF allows several values in missing_value.
            for item in (value if np.ndim(value) else [value])
        ]
    elif nodata is None:
        values = []
    elif isinstance(nodata, str):
        raise ValueError(f"nodata must be a number, None or 'auto', got {nodata!r}.")
    else:
        values = [nodata]
    return tuple(dict.fromkeys(value for value in values if _can_hold(dtype, value)))


def with_nodata_of_bands(
    attributes: Mapping[str, Any], nodata: Any, n_bands: int
) -> dict[str, Any]:
    """Return attributes that state one nodata value per band, None for a band without it.

    >>> with_nodata_of_bands({"nodata": 0}, [9, None], 2)
    {'nodata_of_bands': [[9.0], []]}
    """
    try:
        values = [[] if value is None else [float(value)] for value in nodata]
    except (TypeError, ValueError):
        values = []
    if len(values) != n_bands:
        raise ValueError(
            f"nodata must be one number, or a number or None for each of {n_bands} bands, got "
            f"{nodata!r}."
        )
    out = {name: value for name, value in attributes.items() if name not in NODATA_ATTRIBUTES}
    return {**out, NODATA_OF_BANDS: values}


def nodata_of_bands(
    attributes: Mapping[str, Any], dtype: np.dtype[Any], nodata: float | str | None
) -> tuple[tuple[float, ...], ...]:
    """Return the values that mean "no data" in one stored band, per band; () if not stated.

    >>> nodata_of_bands({"nodata_of_bands": [[9], []]}, np.dtype("uint8"), "auto")
    ((9,), ())
    """
    stated = attributes.get(NODATA_OF_BANDS)
    if stated is None or nodata != "auto":
        return ()
    return tuple(nodata_values({"missing_value": own}, dtype, "auto") for own in stated)


def _can_hold(dtype: np.dtype[Any], value: float) -> bool:
    if math.isnan(value) or dtype.kind == "b":
        return False
    if dtype.kind == "f":
        # Round instead of comparing with the limit: -3.4028235e38 often means float32's minimum.
        with np.errstate(over="ignore"):
            return math.isinf(value) or bool(np.isfinite(dtype.type(value)))
    limits = np.iinfo(dtype)
    return math.isfinite(value) and value == int(value) and limits.min <= value <= limits.max
