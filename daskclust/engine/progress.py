"""Notices to the user while a fit runs."""

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
    """Call ``reader`` with each notice of the fits that run in this context.

    A notice says, for example, that the cluster has no workers.  Without a reader,
    notices are logged as warnings.

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
    """Log a notice and pass it to the readers."""
    readers = _readers.get()
    logger.log(logging.INFO if readers else logging.WARNING, "%s", text)
    for reader in readers:
        reader(text)
