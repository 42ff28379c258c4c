"""Telling people what they should know while a fit goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["notify", "on_notice"]

logger = logging.getLogger("daskclust")

_readers: ContextVar[tuple[Callable[[str], None], ...]] = ContextVar(
    "daskclust_readers", default=()
)


@contextmanager
def on_notice(reader: Callable[[str], None]) -> Iterator[None]:
    """Call ``reader`` with what people should know while fits run in this context.

    Such as that a cluster has no workers.  Where nobody reads, it is logged as a warning.

    Parameters
    ----------
    reader : callable(text)

    Examples
    --------
    >>> seen = []
    >>> with on_notice(seen.append):
    ...     notify("Waiting")
    >>> seen
    ['Waiting']
    """
    token = _readers.set((*_readers.get(), reader))
    try:
        yield
    finally:
        _readers.reset(token)


def notify(text: str) -> None:
    """Log a sentence and hand it to the readers."""
    readers = _readers.get()
    logger.log(logging.INFO if readers else logging.WARNING, "%s", text)
    for reader in readers:
        reader(text)
