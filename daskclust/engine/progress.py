"""Telling whoever wants to know how a fit goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from daskclust.engine.bars import advance, showing

if TYPE_CHECKING:
    from daskclust.engine.handle import Rows

__all__ = ["announce", "notify", "on_iteration", "on_notice", "showing_progress"]

logger = logging.getLogger("daskclust")

Listener = Callable[[Mapping[str, Any]], None]
_listeners: ContextVar[tuple[Listener, ...]] = ContextVar("daskclust_listeners", default=())
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


@contextmanager
def on_iteration(listener: Listener) -> Iterator[None]:
    """Call ``listener`` with each record of ``history_`` while fits run in this context.

    Parameters
    ----------
    listener : callable(record)
        ``record`` is a mapping with ``iteration``, ``objective``,
        ``center_shift``, ``moved``, ``seconds`` and ``passes``.

    Notes
    -----
    Where nobody listens, a fit that takes longer than two seconds shows a bar on a terminal
    or in a notebook, with the address of the dashboard; never in logs. The setting
    ``daskclust.progress: false`` of Dask's configuration switches it off.

    *Cancelling.* Ctrl-C (in a notebook: interrupt the kernel) ends a fit where it is, and so
    does any exception that a listener raises.  The estimator is what it was before ``fit``;
    a ``checkpoint`` keeps the last iteration, from which the same fit goes on; a target that
    was being written is absent, or what it was before.  On a cluster, the tasks of the pass
    are given up, and workers are free for others when those that run have ended.

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


@contextmanager
def showing_progress(estimator: Any, rows: Callable[[], Rows | None]) -> Iterator[None]:
    """Show a bar while an estimator is fitted, where nobody listens.

    Parameters
    ----------
    estimator
        Its ``max_iter``, if it has one, is the length of the bar.
    rows : callable() -> Rows or None
        For the count of passes, and the dashboard.
    """
    if _listeners.get():
        yield
        return

    def of_rows(name: str, otherwise: Any) -> Any:
        opened = rows()
        return otherwise if opened is None else getattr(opened, name)

    total = getattr(estimator, "max_iter", None)
    with showing(
        type(estimator).__name__,
        int(total) if isinstance(total, int) else None,
        lambda: of_rows("passes", 0),
        lambda: of_rows("dashboard", None),
    ):
        yield


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
    listeners = _listeners.get()
    if not listeners:
        advance(record)
    for listener in listeners:
        listener(record)
