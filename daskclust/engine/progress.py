"""Telling whoever wants to know how a fit goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

__all__ = ["announce", "on_iteration"]

logger = logging.getLogger("daskclust")

Listener = Callable[[Mapping[str, Any]], None]
_listeners: ContextVar[tuple[Listener, ...]] = ContextVar("daskclust_listeners", default=())


@contextmanager
def on_iteration(listener: Listener) -> Iterator[None]:
    """Call ``listener`` with each record of ``history_`` while fits run in this context.

    Parameters
    ----------
    listener : callable(record)
        ``record`` is a mapping with ``iteration``, ``objective``,
        ``center_shift``, ``moved``, ``seconds`` and ``passes``.

    Examples
    --------
    >>> import numpy as np, daskclust
    >>> seen = []
    >>> X = np.array([[0.0], [1.0], [10.0], [11.0]])
    >>> with daskclust.on_iteration(seen.append):
    ...     model = daskclust.KMeans(2, random_state=0).fit(X)
    >>> len(seen) == model.n_iter_
    True
    """
    token = _listeners.set((*_listeners.get(), listener))
    try:
        yield
    finally:
        _listeners.reset(token)


def announce(estimator: str, record: Mapping[str, Any]) -> None:
    """Log a record and hand it to the listeners."""
    logger.info(
        "%s iteration %d: objective %.6g, center shift %.3g, %d passes, %.3f s",
        estimator,
        record["iteration"],
        record["objective"],
        record["center_shift"],
        record["passes"],
        record["seconds"],
    )
    for listener in _listeners.get():
        listener(record)
