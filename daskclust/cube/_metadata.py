"""A store's metadata of a cube: its array, its axes, its values that mean nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import zarr

from daskclust._types import Floats
from daskclust._warnings import warn
from daskclust.colors import Legend
from daskclust.cube._values import NODATA_ATTRIBUTES
from daskclust.cube.formats.wavelengths import in_nm
from daskclust.exceptions import PerformanceWarning
from daskclust.storage.seen import values_of

__all__ = [
    "WAVELENGTH_NAMES",
    "Names",
    "as_names",
    "attributes_of",
    "choose_block",
    "dimension_names",
    "find_dimensions",
    "find_wavelengths",
    "flags",
    "label_dtype",
    "read_colors",
    "read_meanings",
    "role_of",
]

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
WAVELENGTH_NAMES = ("wavelength", "wavelengths", "center_wavelength", "center_wavelengths")
# A limit of its own rather than dask's `array.chunk-size`: blocks define the row
# numbers, which must not change with the configuration.
_BLOCK_BYTES = 256 * 2**20


def role_of(name: object) -> str | None:
    """Return "y", "x" or "band", by the name of a dimension; None for any other name."""
    return next((role for role in _DIMENSIONS if str(name).lower() in _ALIASES[role]), None)


def dimension_names(array: zarr.Array) -> tuple[str, ...] | None:
    """Names of the dimensions of an array in Zarr, of version 3 or as xarray writes them in 2."""
    names = getattr(array.metadata, "dimension_names", None)
    if names is None:
        names = array.attrs.get("_ARRAY_DIMENSIONS")
    if not isinstance(names, list | tuple) or any(name is None for name in names):
        return None
    return tuple(map(str, names))


def attributes_of(array: zarr.Array) -> dict[str, Any]:
    """Return the attributes of an array; xarray's version 2 keeps nodata in the metadata."""
    found = dict(array.attrs)
    if (
        array.metadata.zarr_format == 2
        and "_ARRAY_DIMENSIONS" in found
        and not any(name in found for name in NODATA_ATTRIBUTES)
        and array.metadata.fill_value is not None
    ):
        # zarr gives 0 where the metadata say null.
        found["_FillValue"] = array.metadata.fill_value
    return found


def find_dimensions(
    names: Sequence[str] | None, title: str, shape: tuple[int, ...]
) -> tuple[tuple[int, int, int], tuple[str, str]]:
    """Axes of y, x and band, and the names of the first two."""
    if isinstance(names, str):
        raise ValueError(f"dims={names!r} is one name; expected three in stored order: {_DIMS}.")
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
        known = "; ".join(f"{role}: {', '.join(sorted(_ALIASES[role]))}" for role in _DIMENSIONS)
        raise ValueError(
            f"Dimensions {tuple(names)!r} are not one each of y, x and band (known names: "
            f"{known}). Pass their roles in stored order, for example {_DIMS}."
        )
    order = axes["y"], axes["x"], axes["band"]
    return order, (str(names[order[0]]), str(names[order[1]]))


def choose_block(
    shape: tuple[int, int, int],
    stored: tuple[int, int],
    dtype: np.dtype[Any],
    chunks: tuple[int, int] | None,
) -> tuple[int, int]:
    """Rows and columns of a block of a cube (y, x, band), given those of the stored chunks."""
    height, width, n_bands = shape
    if chunks is not None:
        if len(chunks) != 2 or any(int(size) != size or size < 1 for size in chunks):
            raise ValueError(f"chunks={chunks!r}; expected two positive integers, (rows, columns).")
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
    """Band centers in nm: the first of the (values, units) that has a number for each band."""
    for values, units in candidates:
        if getattr(values, "ndim", 1) != 1:
            continue
        if isinstance(values, zarr.Array):
            values = values_of(values)
        found = in_nm(values, units, n_bands)
        if found is not None:
            return found
    return None


def label_dtype(dtype: np.dtype[Any], n_clusters: int | None) -> np.dtype[Any]:
    """int16 where that is known to suffice, else int32."""
    if n_clusters is None:
        small = np.can_cast(dtype, np.int16)
    else:
        small = n_clusters - 1 <= np.iinfo(np.int16).max
    return np.dtype(np.int16 if small else np.int32)


#: Meanings of the labels of a map: names by number, or of the labels 0, 1, ...
Names = Mapping[int, str] | Sequence[str]


def as_names(names: Names | None) -> dict[int, str]:
    """Return names by number.

    Examples
    --------
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
    """Return the attributes that tell what labels mean, by CF and as they were given."""
    given = as_names(names)
    legend = Legend.of(codes, given, colors)
    found: dict[str, Any] = {
        "flag_values": list(legend.codes),
        # CF separates meanings by blanks, hence none inside.
        "flag_meanings": " ".join("_".join(name.split()) or "_" for name in legend.names),
        "flag_colors": " ".join(legend.colors),
    }
    if given:
        found["class_names"] = {str(code): name for code, name in legend.by_code.items()}
    return found


def read_meanings(attributes: Mapping[str, Any]) -> dict[int, str] | None:
    """Return the names of labels by number, from what `flags` writes or CF says."""
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
    found = attributes.get("flag_colors")
    try:
        if isinstance(found, Mapping):  # a color table
            pairs = {int(k): "#{:02x}{:02x}{:02x}".format(*color) for k, color in found.items()}
        elif isinstance(found, str):
            words, numbers = found.split(), _flag_values(attributes) or []
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
