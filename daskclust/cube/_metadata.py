"""What a store says about a cube: which array, which axis, which values mean nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import zarr
from numpy.typing import ArrayLike, NDArray

from daskclust._warnings import warn
from daskclust.exceptions import PerformanceWarning
from daskclust.storage.stores import decode_fill_value

__all__ = [
    "NODATA_ATTRIBUTES",
    "WAVELENGTH_NAMES",
    "check_choice",
    "check_signs",
    "choose_block",
    "dimension_names",
    "find_dimensions",
    "find_variable",
    "find_wavelengths",
    "flags",
    "kept_bands",
    "label_dtype",
    "nodata_values",
    "role_of",
]

_DIMENSIONS = ("y", "x", "band")
_ALIASES = {
    "y": {"y", "lat", "latitude", "row", "rows", "line", "lines", "northing"},
    "x": {"x", "lon", "longitude", "col", "cols", "column", "columns", "easting"},
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
NODATA_ATTRIBUTES = ("_FillValue", "missing_value", "nodata")
WAVELENGTH_NAMES = ("wavelength", "wavelengths", "center_wavelength", "center_wavelengths")
_MICROMETERS = ("um", "\N{MICRO SIGN}m", "\N{GREEK SMALL LETTER MU}m", "micron", "microns")
_IN_NM = {
    **dict.fromkeys((*_MICROMETERS, "micrometer", "micrometers", "micrometer", "micrometers"), 1e3),
    **dict.fromkeys(("m", "meter", "metre"), 1e9),
}
# A limit of its own rather than dask's `array.chunk-size`: blocks define the row
# numbers, which must not change with somebody's configuration.
_BLOCK_BYTES = 256 * 2**20


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name}={value!r}; expected one of {', '.join(map(repr, choices))}.")


def find_variable(node: zarr.Group | zarr.Array, variable: str | None) -> zarr.Array:
    if isinstance(node, zarr.Array):
        if variable is not None:
            raise ValueError(
                f"variable={variable!r}, but the store is a single array; leave variable out."
            )
        array = node
    elif variable is not None:
        found = node.get(variable)
        if not isinstance(found, zarr.Array):
            raise KeyError(
                f"No array {variable!r} in the store; it has {sorted(node.array_keys())}."
            )
        array = found
    else:
        candidates = {name: item for name, item in node.arrays() if item.ndim == 3}
        if len(candidates) != 1:
            raise ValueError(
                f"The store has {len(candidates)} three-dimensional arrays "
                f"({sorted(candidates)}) among {sorted(node.array_keys())}; "
                "pass variable= to say which is the cube."
            )
        array = next(iter(candidates.values()))
    if array.ndim != 3:
        raise ValueError(
            f"The array {array.path!r} has shape {array.shape}; expected three dimensions, "
            "y, x and band."
        )
    if array.dtype.kind not in "iufb":
        raise ValueError(f"The array {array.path!r} has dtype {array.dtype}; expected numbers.")
    if 0 in array.shape:
        raise ValueError(f"The array {array.path!r} has shape {array.shape}; expected pixels.")
    return array


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


def find_dimensions(
    names: Sequence[str] | None, title: str, shape: tuple[int, ...]
) -> tuple[tuple[int, int, int], tuple[str, str]]:
    """Axes of y, x and band, and the names of the first two."""
    if names is None or isinstance(names, str):
        raise ValueError(
            f"{title} of shape {shape} names its dimensions {names!r}; the order cannot be "
            'guessed. Pass it, for example dims=("y", "x", "band").'
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
            f'{known}). Pass their roles in stored order, for example dims=("y", "x", "band").'
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


def kept_bands(bad_bands: ArrayLike | None, n_bands: int) -> NDArray[np.intp] | None:
    if bad_bands is None:
        return None
    bad = np.asarray(bad_bands)
    keep = np.ones(n_bands, dtype=bool)
    if bad.dtype == bool:
        if bad.shape != (n_bands,):
            raise ValueError(f"bad_bands has shape {bad.shape}; expected ({n_bands},).")
        keep = ~bad
    elif bad.size:
        if bad.dtype.kind not in "iu" or bad.min() < -n_bands or bad.max() >= n_bands:
            raise ValueError(
                f"bad_bands={bad_bands!r}; expected booleans or band numbers below {n_bands}."
            )
        keep[bad] = False
    if not keep.any():
        raise ValueError(f"bad_bands drops all {n_bands} bands; keep at least one.")
    return None if keep.all() else np.flatnonzero(keep)


def nodata_values(
    attributes: Mapping[str, Any], dtype: np.dtype[Any], nodata: float | str | None
) -> tuple[float, ...]:
    """Values that mean "no data" and that the stored dtype can hold, NaN left out."""
    if nodata == "auto":
        stated = (attributes.get(name) for name in NODATA_ATTRIBUTES)
        values = [
            _unsigned(decode_fill_value(value), dtype) for value in stated if value is not None
        ]
    elif nodata is None:
        values = []
    elif isinstance(nodata, str):
        raise ValueError(f"nodata={nodata!r}; expected a number, None or 'auto'.")
    else:
        values = [nodata]
    return tuple(dict.fromkeys(value for value in values if _can_hold(dtype, value)))


def _unsigned(value: float, dtype: np.dtype[Any]) -> float:
    """Read a negative fill value of unsigned numbers as NetCDF means it: by its bits."""
    if dtype.kind != "u" or not -(2.0 ** (8 * dtype.itemsize - 1)) <= value < 0:
        return value
    return int(value) + 2 ** (8 * dtype.itemsize) if value == int(value) else value


def check_signs(attributes: Mapping[str, Any], dtype: np.dtype[Any], title: str) -> None:
    """Refuse signed numbers that are meant as unsigned: as stored they would be wrong."""
    if dtype.kind == "i" and str(attributes.get("_Unsigned", "")).lower() == "true":
        raise ValueError(
            f"{title} stores {dtype} with _Unsigned = true, so half of its numbers mean others. "
            "Open it with xarray, which converts them, and pass the DataArray."
        )


def _can_hold(dtype: np.dtype[Any], value: float) -> bool:
    if math.isnan(value) or dtype.kind == "b":
        return False
    if dtype.kind == "f":
        # By rounding, not by the limit: -3.4028235e38 is a common spelling of float32's lowest.
        with np.errstate(over="ignore"):
            return math.isinf(value) or bool(np.isfinite(dtype.type(value)))
    limits = np.iinfo(dtype)
    return math.isfinite(value) and value == int(value) and limits.min <= value <= limits.max


def find_wavelengths(
    candidates: Iterable[tuple[Any, Any]], n_bands: int
) -> NDArray[np.float64] | None:
    """Band centers in nm: the first of the (values, units) that has a number for each band."""
    for values, units in candidates:
        if isinstance(values, list | tuple):
            values = np.asarray(values)
        if getattr(values, "shape", None) == (n_bands,) and values.dtype.kind in "iuf":
            centers = np.asarray(values[...], dtype=np.float64)
            return centers * _IN_NM.get(str(units).strip().lower(), 1.0)
    return None


def label_dtype(dtype: np.dtype[Any], n_clusters: int | None) -> np.dtype[Any]:
    """int16 where that is known to suffice, else int32."""
    if n_clusters is None:
        small = np.can_cast(dtype, np.int16)
    else:
        small = n_clusters - 1 <= np.iinfo(np.int16).max
    return np.dtype(np.int16 if small else np.int32)


def flags(codes: Iterable[int], names: Sequence[str] | None) -> dict[str, Any]:
    given = [] if names is None else [str(name) for name in names]
    values = [int(code) for code in codes]
    meanings = [given[k] if k < len(given) else f"cluster_{k}" for k in values]
    return {
        "flag_values": values,
        # CF separates meanings by blanks, hence none inside.
        "flag_meanings": " ".join("_".join(meaning.split()) for meaning in meanings),
    }
