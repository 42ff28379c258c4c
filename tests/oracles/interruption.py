"""Fits that are cut off after an iteration, as by a crash."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["Interruption", "interrupt_at"]


class Interruption(Exception):
    """Stands in for a crash."""


def interrupt_at(iteration: int) -> Callable[[Any], None]:
    """Return a listener of :func:`daskclust.on_iteration` that raises."""

    def listen(record: Any) -> None:
        if record["iteration"] == iteration:
            raise Interruption

    return listen
