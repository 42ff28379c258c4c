"""Arguments that are one of a few words, refused with one wording for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["check_choice"]


def check_choice(value: Any, name: str, choices: Sequence[str]) -> None:
    """Raise ValueError unless ``value`` is one of the strings."""
    if value not in choices:
        options = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name}={value!r} is not known; it must be one of {options}.")
