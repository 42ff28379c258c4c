"""Numbers of bands as files write them: wavelengths with units, lists of good or bad bands."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from daskclust._types import Bools, Floats

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
#: Light in a vacuum, and what is divided by a frequency or a wavenumber.
_LIGHT = 299_792_458.0
_OVER_NM = {
    **dict.fromkeys(("wavenumber", "wavenumbers", "cm-1", "1/cm", "cm^-1"), 1e7),
    "thz": _LIGHT / 1e3,
    "ghz": _LIGHT,
    "mhz": _LIGHT * 1e3,
    "hz": _LIGHT * 1e9,
}
#: Texts that mean no unit.
_UNSTATED = ("", "none", "unknown", "n/a", "undefined", "1")
#: Band centers below this are micrometers, where no unit is stated: no sensor is that far in the
#: ultraviolet.
_FEWEST_NM = 100.0


#: A number with its unit in a description; meters would be those of the pixels.
_STATED = re.compile(
    rf"(?<![\w.])(\d+(?:\.\d+)?)\s*({'|'.join(sorted((*_MICROMETERS, *_NM), key=len)[::-1])})\b",
    re.IGNORECASE,
)


def in_descriptions(texts: Sequence[str | None]) -> Floats | None:
    """Band centers in nm out of descriptions of bands; None unless each states one.

    Examples
    --------
    >>> in_descriptions(["418.24 nm", "Band 2 (0.49 um)"]).tolist()
    [418.24, 490.0]
    >>> in_descriptions(["blue", "490 nm"]) is None, in_descriptions(["400 nm to 500 nm"]) is None
    (True, True)
    """
    found = []
    for text in texts:
        stated = _STATED.findall(text or "")
        if len(stated) != 1:
            return None
        number, unit = stated[0]
        found.append(float(number) * _IN_NM[unit.lower()])
    return np.array(found) if found and min(found) > 0 else None


def numbers(value: Any) -> Floats | None:
    """Read numbers from a sequence, or from text with commas and braces.

    Examples
    --------
    >>> numbers("{0.40, 0.41}").tolist(), numbers([1, 2]).tolist(), numbers("red, nir")
    ([0.4, 0.41], [1.0, 2.0], None)
    """
    if isinstance(value, str):
        value = value.strip().strip("{}[]()").split(",")
    try:
        found = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return found if found.ndim == 1 else None


def in_nm(values: Any, unit: Any, n_bands: int) -> Floats | None:
    """Return band centers in nm; None unless `values` are one positive number a band.

    Without `unit`: nm, or micrometers where the numbers can be nothing else.

    >>> in_nm("{0.5,0.6}", "Micrometers", 2).tolist()
    [500.0, 600.0]
    >>> in_nm([0.5, 2.4], None, 2).tolist()
    [500.0, 2400.0]
    >>> in_nm([1, 2, 3], "nm", 2) is None, in_nm([1, 2], "Index", 2) is None
    (True, True)
    >>> in_nm([4000, 10_000], "Wavenumber", 2).tolist()
    [2500.0, 1000.0]
    """
    found = numbers(values)
    if found is None or found.shape != (n_bands,) or not (found > 0).all():
        return None
    said = "" if unit is None else str(unit).strip().lower()
    if said in _OVER_NM:
        # Frequencies and wavenumbers: the larger, the shorter the wave.
        return np.round(_OVER_NM[said] / found, 6)
    factor = _IN_NM.get(said)
    if factor is None and said not in _UNSTATED:
        return None
    if factor is None:
        factor = 1e3 if found.max() < _FEWEST_NM else 1.0
    # To the precision of the file: 0.4 um is 400 nm, not 400.00000000000006.
    return np.round(found * factor, 6)


def truth_values(value: Any, n_bands: int) -> Bools | None:
    """One truth value a band, or None.

    Examples
    --------
    >>> truth_values("{1, 0, 1}", 3).tolist()
    [True, False, True]
    """
    found = numbers(value)
    if found is None or found.shape != (n_bands,) or not np.isin(found, (0, 1)).all():
        return None
    return found.astype(bool)
