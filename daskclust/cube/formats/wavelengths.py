"""Numbers of bands as files write them: wavelengths with units, lists of good or bad bands."""

from __future__ import annotations

from typing import Any

import numpy as np

from daskclust._types import Bools, Floats

__all__ = ["in_nm", "numbers", "truth_values"]

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
}
#: Band centers below this are micrometers, where no unit is stated: no sensor is that far in the
#: ultraviolet.
_FEWEST_NM = 100.0


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
    """Band centers in nm, or None where `values` is not one positive number a band.

    Parameters
    ----------
    values : sequence or str
    unit : str or None
        None: nm, or micrometers where the numbers can be nothing else.
    n_bands : int

    Examples
    --------
    >>> in_nm("{0.5,0.6}", "Micrometers", 2).tolist()
    [500.0, 600.0]
    >>> in_nm([0.5, 2.4], None, 2).tolist()
    [500.0, 2400.0]
    >>> in_nm([1, 2, 3], "nm", 2) is None
    True
    """
    found = numbers(values)
    if found is None or found.shape != (n_bands,) or not (found > 0).all():
        return None
    factor = _IN_NM.get(str(unit).strip().lower())
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
