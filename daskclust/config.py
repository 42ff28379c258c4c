"""Defaults of settings, and checks of settings and string options.

Settings are the namespace ``daskclust`` of Dask's configuration.  ``daskclust.yaml`` lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import dask.config
import yaml
from dask.utils import parse_timedelta

__all__ = ["check_choice", "check_settings", "load_defaults", "setting", "without_mask"]


def load_defaults() -> None:
    """Register the defaults of the package; settings of the user take precedence."""
    path = Path(__file__).with_name("daskclust.yaml")
    defaults = yaml.safe_load(path.read_text())
    dask.config.update_defaults(defaults)


def setting(name: str) -> Any:
    """Return the current value of the setting ``daskclust.<name>``.

    >>> setting("persist")
    'auto'
    """
    return dask.config.get(f"daskclust.{name}")


def check_settings() -> None:
    """Raise ValueError for invalid settings, before any computation.

    >>> with dask.config.set({"daskclust.persist": "maybe"}):
    ...     check_settings()
    Traceback (most recent call last):
        ...
    ValueError: daskclust.persist must be 'auto' (if the data fit), True (always) or ..., got ...
    """
    for name, (expected, is_valid) in _VALID.items():
        value = dask.config.get(f"daskclust.{name}", None)
        try:
            valid = is_valid(value)
        except (TypeError, ValueError, AttributeError, KeyError, OverflowError):
            valid = False
        if not valid:
            raise ValueError(f"daskclust.{name} must be {expected}, got {value!r}.")


def _is_count(low: int) -> Callable[[Any], bool]:
    return lambda value: not isinstance(value, bool) and int(value) == float(value) >= low


_TIME: tuple[str, Callable[[Any], bool]] = (
    "a time above 0, such as '2 minutes', or null for no limit",
    lambda value: value is None or float(parse_timedelta(value)) > 0,
)
#: Valid values of each setting: a description and a test.
_VALID: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "persist": (
        "'auto' (if the data fit), True (always) or False (never)",
        lambda value: isinstance(value, bool) or value == "auto",
    ),
    "persist-fraction": ("a number from 0 to 1", lambda value: 0 <= float(value) <= 1),
    "num-threads": (
        "a whole number of 1 or more, or null for the usable cores",
        lambda value: value is None or _is_count(1)(value),
    ),
    "init-rows": ("a whole number of 1 or more", _is_count(1)),
    "worker-timeout": _TIME,
    "read-retries": ("a whole number of 0 or more", _is_count(0)),
    "read-backoff": (
        "a time of 0 or more, such as '100 ms'",
        lambda value: float(parse_timedelta(value)) >= 0,
    ),
    "read-timeout": _TIME,
}


def check_choice(value: Any, name: str, choices: Sequence[str]) -> None:
    """Raise ValueError unless ``value`` is one of the strings."""
    # The type is checked first, because arrays compare their elements.
    if not isinstance(value, str | None) or value not in choices:
        options = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} must be one of {options}, got {value!r}.")


def without_mask(values: Any, name: str) -> Any:
    """Return the values of a parameter; raise ValueError if a value is masked."""
    # NumPy is imported here, because this module is loaded with the package and must be fast.
    import numpy as np

    if np.ma.is_masked(values):
        index = tuple(np.argwhere(np.ma.getmaskarray(values))[0].tolist())
        raise ValueError(f"{name} must not contain masked values, got one at {index}.")
    return values
