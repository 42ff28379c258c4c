"""Arguments that are one of a few words, or all there: refused with one wording for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def check_choice(value: Any, name: str, choices: Sequence[str]) -> None:
    """Raise ValueError unless ``value`` is one of the strings."""
    # Arrays and matrices compare their elements.
    if not isinstance(value, str | None) or value not in choices:
        options = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name}={value!r} is not known; it must be one of {options}.")


def without_mask(values: Any, name: str) -> Any:
    """Return the values of a parameter, unless some are masked: none may be left out."""
    if np.ma.is_masked(values):
        at = tuple(np.argwhere(np.ma.getmaskarray(values))[0].tolist())
        raise ValueError(f"{name} is masked at {at}; expected all of its values.")
    return values
