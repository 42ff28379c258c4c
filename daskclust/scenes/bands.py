"""Wavelengths of bands, and selection of bands by number, wavelength or metadata."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daskclust.config import without_mask
from daskclust.core.array_types import Bools, Floats
from daskclust.scenes.formats.format_detection import BAD_BANDS

_MICROMETERS = (
    "um",
    "\N{MICRO SIGN}m",
    "\N{GREEK SMALL LETTER MU}m",
    "micron",
    "microns",
    "micrometer",
    "micrometers",
    "micrometre",
    "micrometres",
)
_NM = ("nm", "nanometer", "nanometers", "nanometre", "nanometres")
_IN_NM = {
    **dict.fromkeys(_MICROMETERS, 1e3),
    **dict.fromkeys(_NM, 1.0),
    **dict.fromkeys(("m", "meter", "meters", "metre", "metres"), 1e9),
    **dict.fromkeys(("mm", "millimeter", "millimeters", "millimetre", "millimetres"), 1e6),
    **dict.fromkeys(("cm", "centimeter", "centimeters", "centimetre", "centimetres"), 1e7),
    **dict.fromkeys(("angstrom", "angstroms", "\N{LATIN CAPITAL LETTER A WITH RING ABOVE}"), 0.1),
}
#: Speed of light in m/s, and numerators by which frequencies and wavenumbers become nm.
_LIGHT = 299_792_458.0
_OVER_NM = {
    **dict.fromkeys(("wavenumber", "wavenumbers", "cm-1", "1/cm", "cm^-1"), 1e7),
    "thz": _LIGHT / 1e3,
    "ghz": _LIGHT,
    "mhz": _LIGHT * 1e3,
    "hz": _LIGHT * 1e9,
}
#: Units that mean that no unit is stated.
_UNSTATED = ("", "none", "unknown", "n/a", "undefined", "1")
#: Band centers without a unit below this number are micrometers, because no sensor has such short
#: wavelengths in nm.
_FEWEST_NM = 100.0


#: A number with its unit in a description, without meters, which are sizes of pixels.
_STATED = re.compile(
    rf"(?<![\w.])(\d+(?:\.\d+)?)\s*({'|'.join(sorted((*_MICROMETERS, *_NM), key=len)[::-1])})\b",
    re.IGNORECASE,
)


def in_descriptions(texts: Sequence[str | None]) -> Floats | None:
    """Return band centers in nm from descriptions of bands; None unless each states one center.

    >>> in_descriptions(["418.24 nm", "Band 2 (0.49 um)"]).tolist()
    [418.24, 490.0]
    >>> in_descriptions(["blue", "490 nm"]) is None, in_descriptions(["400 nm to 500 nm"]) is None
    (True, True)
    """
    centers = []
    for text in texts:
        stated = _STATED.findall(text or "")
        if len(stated) != 1:
            return None
        number, unit = stated[0]
        centers.append(float(number) * _IN_NM[unit.lower()])
    return np.array(centers) if centers and min(centers) > 0 else None


def numbers(value: Any) -> Floats | None:
    """Read numbers from a sequence, or from text with commas and braces.

    >>> numbers("{0.40, 0.41}").tolist(), numbers([1, 2]).tolist(), numbers("red, nir")
    ([0.4, 0.41], [1.0, 2.0], None)
    """
    if isinstance(value, str):
        value = value.strip().strip("{}[]()").split(",")
    try:
        values = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return values if values.ndim == 1 else None


def in_nm(values: Any, unit: Any, n_bands: int) -> Floats | None:
    """Return band centers in nm; None unless `values` are one positive number per band.

    Without `unit`, numbers are nm, or micrometers if they are too small for nm.

    >>> in_nm("{0.5,0.6}", "Micrometers", 2).tolist()
    [500.0, 600.0]
    >>> in_nm([0.5, 2.4], None, 2).tolist()
    [500.0, 2400.0]
    >>> in_nm([1, 2, 3], "nm", 2) is None, in_nm([1, 2], "Index", 2) is None
    (True, True)
    >>> in_nm([4000, 10_000], "Wavenumber", 2).tolist()
    [2500.0, 1000.0]
    """
    centers = numbers(values)
    if centers is None or centers.shape != (n_bands,) or not (centers > 0).all():
        return None
    unit_name = "" if unit is None else str(unit).strip().lower()
    if unit_name in _OVER_NM:
        # Frequencies and wavenumbers are inversely proportional to wavelengths.
        return np.round(_OVER_NM[unit_name] / centers, 6)
    if unit_name in _UNSTATED:
        factor = 1e3 if centers.max() < _FEWEST_NM else 1.0
    elif unit_name in _IN_NM:
        factor = _IN_NM[unit_name]
    else:
        return None
    # Round, so that 0.4 um is 400 nm and not 400.00000000000006.
    return np.round(centers * factor, 6)


def truth_values(value: Any, n_bands: int) -> Bools | None:
    """Return one boolean per band, or None if `value` does not contain them.

    >>> truth_values("{1, 0, 1}", 3).tolist()
    [True, False, True]
    """
    flags = numbers(value)
    if flags is None or flags.shape != (n_bands,) or not np.isin(flags, (0, 1)).all():
        return None
    return flags.astype(bool)


_WAVE = r"(\d+(?:\.\d*)?)\s*(nm|um)?"
_WAVES = re.compile(rf"{_WAVE}\s*-\s*{_WAVE}|{_WAVE}", re.IGNORECASE)
#: Upper bound of band numbers, so that a mistyped number is an error.
_MAX_BANDS = 1_000_000


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
    return tuple(_range(item.strip()) for item in text.split(","))


def as_ranges(numbers: ArrayLike) -> str:
    """Write ascending numbers as a list with ranges.

    >>> as_ranges([1, 2, 3, 7])
    '1-3,7'
    """
    values = np.asarray(numbers)
    runs = np.split(values, np.flatnonzero(np.diff(values) != 1) + 1)
    return ",".join(f"{p[0]}-{p[-1]}" if len(p) > 1 else f"{p[0]}" for p in runs)


def _range(text: str) -> BandRange:
    match = _WAVES.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text!r} must be a band or a range of bands, as in 3, 3-7 or 400nm-450nm"
        )
    first, unit, last, last_unit, only, only_unit = match.groups()
    if only is not None:
        first, unit, last, last_unit = only, only_unit, only, only_unit
    unit, last_unit = unit or last_unit, last_unit or unit
    if unit is None:
        if "." in text:
            raise ValueError(
                f"{text!r} must be a band or a range of bands; wavelengths need a unit"
            )
        low: float = int(first)
        high: float = int(last)
        if high >= _MAX_BANDS:
            raise ValueError(f"a band number must be below {_MAX_BANDS}, got {text!r}")
    else:
        low, high = _nm(first, unit), _nm(last, last_unit)
    if high < low:
        raise ValueError(f"a range of bands must begin with its lower end, as in 3-7, got {text!r}")
    return BandRange(low, high, unit is not None)


def _nm(number: str, unit: str) -> float:
    return round(float(number) * (1.0 if unit.lower() == "nm" else 1e3), 6)


def kept_bands(
    bad_bands: ArrayLike | str | None,
    n_bands: int,
    attributes: Mapping[str, Any],
    wavelengths: Floats | None,
) -> NDArray[np.intp] | None:
    """Return the numbers of the bands that are not bad; None for all.

    `bad_bands` is ``"auto"`` (use the attributes), text for :func:`parse_bands`, booleans or
    numbers. `wavelengths` are in nm.
    """
    keep = np.ones(n_bands, dtype=bool)
    if bad_bands is None:
        return None
    if isinstance(bad_bands, str) and bad_bands == "auto":
        for name, good in ((BAD_BANDS, False), ("bbl", True)):
            # ENVI's `bbl` is 1 where a band is good.
            flags = truth_values(attributes[name], n_bands) if name in attributes else None
            if flags is not None:
                keep = flags == good
                break
        if not keep.any():
            raise ValueError(
                f"The file marks all {n_bands} bands as bad. Pass the bad bands as bad_bands= "
                f"(--bad-bands), or None (none) to use all bands."
            )
    elif isinstance(bad_bands, str):
        for item in parse_bands(bad_bands):
            keep[_members(item, n_bands, wavelengths)] = False
    else:
        bad = np.asarray(without_mask(bad_bands, "bad_bands"))
        if bad.dtype == bool:
            if bad.shape != (n_bands,):
                raise ValueError(
                    f"bad_bands must have shape ({n_bands},) if it is boolean, got {bad.shape}."
                )
            keep = ~bad
        elif bad.size:
            if bad.dtype.kind not in "iu" or bad.min() < -n_bands or bad.max() >= n_bands:
                raise ValueError(
                    f"bad_bands must be booleans or band numbers below {n_bands}, got "
                    f"{bad_bands!r}."
                )
            if len(np.unique(bad)) < bad.size:
                # Flags of 0 and 1 would be taken for the bands 0 and 1.
                raise ValueError(
                    "bad_bands must contain each band number once, or booleans, one per band, True "
                    f"where the band is bad, got {bad_bands!r}."
                )
            keep[bad] = False
    if not keep.any():
        raise ValueError(f"bad_bands drops all {n_bands} bands; keep at least one.")
    return None if keep.all() else np.flatnonzero(keep)


def chosen_bands(bands: ArrayLike, n_bands: int) -> NDArray[np.intp] | None:
    """Return the requested bands in ascending order; None for all bands."""
    numbers = np.asarray(without_mask(bands, "bands"))
    if (
        numbers.ndim != 1
        or numbers.dtype.kind not in "iu"
        or not len(numbers)
        or (np.diff(numbers.astype(np.int64), prepend=-1, append=n_bands) <= 0).any()
    ):
        raise ValueError(
            f"bands must be ascending band numbers from 0 to {n_bands - 1}, got {bands!r}."
        )
    return None if len(numbers) == n_bands else numbers.astype(np.intp)


def _members(item: BandRange, n_bands: int, wavelengths: Floats | None) -> NDArray[np.intp]:
    if not item.by_wavelength:
        if item.last >= n_bands:
            raise ValueError(
                f"bad_bands must contain band numbers below {n_bands}, got {item.last}."
            )
        return np.arange(int(item.first), int(item.last) + 1)
    shown = f"{item.first:g}nm-{item.last:g}nm"
    if wavelengths is None:
        raise ValueError(
            f"bad_bands names the wavelengths {shown}, but the cube states none; use the numbers "
            "of the bands."
        )
    numbers = np.flatnonzero((wavelengths >= item.first) & (wavelengths <= item.last))
    if not len(numbers):
        raise ValueError(
            f"bad_bands names the wavelengths {shown}, where the cube has no band; it has "
            f"{wavelengths.min():g} to {wavelengths.max():g} nm."
        )
    return numbers


def name_of_samples(attributes: Mapping[str, Any], kind: str) -> str:
    """Return a name, with the unit, of samples of a cube with some attributes and scaling.

    >>> attributes = {"long_name": "surface_reflectance", "units": "%"}
    >>> name_of_samples(attributes, "none"), name_of_samples(attributes, "unit")
    ('surface reflectance (%)', "share of the spectrum's length")
    """
    if kind != "none":
        return {
            "unit": "share of the spectrum's length",
            "standard": "standard deviations from the band's mean",
            "whitened": "whitened share of the spectrum's length",
        }[kind]
    keys = ("long_name", "standard_name")
    name = next((attributes[key] for key in keys if key in attributes), "value")
    unit, shown = attributes.get("units"), str(name).replace("_", " ")
    has_unit = isinstance(unit, str) and unit.strip() not in ("", "1")
    return f"{shown} ({unit})" if has_unit else shown
