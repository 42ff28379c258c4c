"""Which bands of a cube are used: named by number or wavelength, and as its files say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daskclust._choices import without_mask
from daskclust._types import Bools, Floats
from daskclust.cube.formats.found import BAD_BANDS
from daskclust.cube.formats.wavelengths import truth_values

_WAVE = r"(\d+(?:\.\d*)?)\s*(nm|um)?"
_WAVES = re.compile(rf"{_WAVE}\s*-\s*{_WAVE}|{_WAVE}", re.IGNORECASE)
#: No cube has so many: a slip of the key must not be taken for a number of a band.
_MOST_BANDS = 1_000_000


@dataclass(frozen=True)
class BandRange:
    """Bands from `first` to `last`, both included: numbers, or wavelengths in nm."""

    first: float
    last: float
    by_wavelength: bool = False


def parse_bands(text: str) -> tuple[BandRange, ...]:
    """Read a list of bands, separated by commas: numbers and ranges of numbers or wavelengths.

    >>> parse_bands("0-2")
    (BandRange(first=0, last=2, by_wavelength=False),)
    >>> parse_bands("0.4um-450nm")
    (BandRange(first=400.0, last=450.0, by_wavelength=True),)
    """
    return tuple(_range(part.strip()) for part in text.split(","))


def as_ranges(numbers: ArrayLike) -> str:
    """Write ascending numbers as a list with ranges.

    Examples
    --------
    >>> as_ranges([1, 2, 3, 7])
    '1-3,7'
    """
    values = np.asarray(numbers)
    parts = np.split(values, np.flatnonzero(np.diff(values) != 1) + 1)
    return ",".join(f"{p[0]}-{p[-1]}" if len(p) > 1 else f"{p[0]}" for p in parts)


def _range(part: str) -> BandRange:
    found = _WAVES.fullmatch(part)
    if found is None:
        raise ValueError(f"{part!r} is no band and no range of bands, as in 3, 3-7 or 400nm-450nm")
    first, unit, last, last_unit, only, only_unit = found.groups()
    if only is not None:
        first, unit, last, last_unit = only, only_unit, only, only_unit
    unit, last_unit = unit or last_unit, last_unit or unit
    if unit is None:
        if "." in part:
            raise ValueError(f"{part!r} is no band and no range of bands; wavelengths need a unit")
        low: float = int(first)
        high: float = int(last)
        if high >= _MOST_BANDS:
            raise ValueError(f"{part!r}: no cube has {_MOST_BANDS} bands")
    else:
        low, high = _nm(first, unit), _nm(last, last_unit)
    if high < low:
        raise ValueError(f"{part!r} ends before it begins; expected as in 3-7")
    return BandRange(low, high, unit is not None)


def _nm(number: str, unit: str) -> float:
    return round(float(number) * (1.0 if unit.lower() == "nm" else 1e3), 6)


def stated_bad_bands(attributes: Mapping[str, Any], n_bands: int) -> Bools | None:
    """Bands that the files call bad: ``bad_bands``, or ENVI's ``bbl`` (1 where good)."""
    for name, bad_if in ((BAD_BANDS, True), ("bbl", False)):
        if attributes.get(name) is not None:
            found = truth_values(attributes[name], n_bands)
            if found is not None:
                return found == bad_if
    return None


def kept_bands(
    bad_bands: ArrayLike | str | None,
    n_bands: int,
    attributes: Mapping[str, Any],
    wavelengths: Floats | None,
) -> NDArray[np.intp] | None:
    """Return the numbers of the bands that are not bad; None for all.

    `bad_bands` is ``"auto"`` (as the attributes say), a list as :func:`parse_bands` reads it, truth
    values or numbers; `wavelengths` are in nm.
    """
    keep = np.ones(n_bands, dtype=bool)
    if bad_bands is None:
        return None
    if isinstance(bad_bands, str) and bad_bands == "auto":
        stated = stated_bad_bands(attributes, n_bands)
        if stated is None or not stated.any():
            return None
        keep = ~stated
        if not keep.any():
            raise ValueError(
                f"The file calls all {n_bands} bands bad; say which are, by bad_bands= "
                "(--bad-bands), or None (none) for no band."
            )
        return np.flatnonzero(keep)
    if isinstance(bad_bands, str):
        for item in parse_bands(bad_bands):
            keep[_members(item, n_bands, wavelengths)] = False
    else:
        bad = np.asarray(without_mask(bad_bands, "bad_bands"))
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


def chosen_bands(bands: ArrayLike, n_bands: int) -> NDArray[np.intp] | None:
    """Return the bands asked for, ascending; None for all."""
    found = np.asarray(without_mask(bands, "bands"))
    if (
        found.ndim != 1
        or found.dtype.kind not in "iu"
        or not len(found)
        or found.min() < 0
        or found.max() >= n_bands
        or (np.diff(found.astype(np.int64)) <= 0).any()
    ):
        raise ValueError(
            f"bands={bands!r}; expected ascending band numbers from 0 to {n_bands - 1}."
        )
    return None if len(found) == n_bands else found.astype(np.intp)


def _members(item: BandRange, n_bands: int, wavelengths: Floats | None) -> NDArray[np.intp]:
    if not item.by_wavelength:
        if item.last >= n_bands:
            raise ValueError(
                f"bad_bands names the band {item.last}; expected band numbers below {n_bands}."
            )
        return np.arange(int(item.first), int(item.last) + 1)
    shown = f"{item.first:g}nm-{item.last:g}nm"
    if wavelengths is None:
        raise ValueError(
            f"bad_bands names the wavelengths {shown}, but the cube states none; use the numbers "
            "of the bands."
        )
    found = np.flatnonzero((wavelengths >= item.first) & (wavelengths <= item.last))
    if not len(found):
        raise ValueError(
            f"bad_bands names the wavelengths {shown}, where the cube has no band; it has "
            f"{wavelengths.min():g} to {wavelengths.max():g} nm."
        )
    return found
