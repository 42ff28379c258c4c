"""The loop that every iterative fit shares, and the listeners that it calls."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import dask

from daskclust._progress import advance, showing
from daskclust.engine.checkpoint import Checkpoint, Fitted
from daskclust.engine.rows import Rows
from daskclust.exceptions import CheckpointError, ClusterError, ReadError

S = TypeVar("S")

logger = logging.getLogger("daskclust")

Listener = Callable[[Mapping[str, Any]], None]
_listeners: ContextVar[tuple[Listener, ...]] = ContextVar("daskclust_listeners", default=())


@dataclass(frozen=True)
class Step(Generic[S]):
    """The result of one iteration.

    The next iteration starts from `state`. `objective` is that of the assignment just made, before
    centers moved; `center_shift` is by the estimator's measure. `moved` is the number of rows that
    changed their cluster, if known; `extra` are more entries of the record, JSON values.
    """

    state: S
    objective: float
    center_shift: float
    finished: bool
    moved: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


def iterate(
    rows: Rows,
    start: Callable[[], S],
    step: Callable[[S], Step[S]],
    *,
    kind: type[S],
    max_iter: int,
    name: str,
    checkpoint: Checkpoint | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Fitted[S]:
    """Iterate ``step`` from ``start`` until it is finished or ``max_iter`` is reached.

    Manages what every fit shares: the state, the records of ``history_``, the count of
    passes, progress, and the checkpoint (written after every pass of the start and after
    every iteration, and read before anything is computed).  An error that ends a fit
    names the checkpoint that holds it.

    `start` makes the first state, unless a checkpoint is continued; `step` is one iteration, of any
    number of passes. `sizes` are lengths of axes that a stored state must have, by their names in
    the annotations of ``kind``; p is always the number of features, n the number of rows.
    """
    # A loop inside a start is kept in the record of the start, as a whole.
    log = rows.pass_record.log
    keeper = checkpoint if checkpoint is not None or log is None else log.keeper(name)
    known = {"n": rows.n_rows, "p": rows.n_features, **(sizes or {})}
    history: list[dict[str, Any]] = []
    finished = False
    try:
        with rows.logged(None):
            stored = None if keeper is None else keeper.load(kind, known)
            if stored is None:
                with rows.logged(keeper.start_log() if isinstance(keeper, Checkpoint) else None):
                    state = start()
                if keeper is not None:
                    keeper.save(state, history, finished=False, passes=rows.passes)
            else:
                state, history, finished = stored.state, stored.history, stored.finished
                # The passes of this process so far only looked at the data again.
                rows.passes = max(rows.passes, stored.passes)
            while not finished and len(history) < max_iter:
                began = time.perf_counter()
                done = step(state)
                state, finished = done.state, done.finished
                record = {
                    "iteration": len(history) + 1,
                    "objective": float(done.objective),
                    "center_shift": float(done.center_shift),
                    "moved": done.moved,
                    "seconds": time.perf_counter() - began,
                    "passes": rows.passes,
                    **done.extra,
                }
                history.append(record)
                if keeper is not None:
                    keeper.save(state, history, finished=finished, passes=rows.passes)
                _announce(name, record)
    except CheckpointError:
        raise
    except BaseException as error:
        if checkpoint is None or not checkpoint.written:
            raise
        kept = (
            f"The fit is kept in {str(checkpoint.path)!r}: the same fit with the same data and "
            "checkpoint goes on from there."
        )
        if isinstance(error, ClusterError | ReadError):
            # Nobody's fault, and the way to go on: part of the message.
            raise type(error)(f"{error} {kept}") from error
        error.add_note(kept)
        raise
    if checkpoint is not None:
        checkpoint.close()
    return Fitted(state, history, finished, rows.passes)


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
    Without a listener, a fit that takes longer than two seconds shows a progress bar on a
    terminal or in a notebook, with the address of the dashboard.  Logs contain no bar.
    The setting ``daskclust.progress: false`` of Dask's configuration switches it off.

    *Cancelling.* Ctrl-C (in a notebook: interrupt the kernel) ends a fit, and so does any
    exception that a listener raises.  The estimator is as it was before ``fit``.  A
    ``checkpoint`` keeps the last iteration; the same fit continues from there.  A file
    that was being written does not exist, or is as it was before.  On a cluster, waiting
    tasks of the pass are canceled; workers are free when their running tasks have ended.

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
    """Show the progress while an estimator is fitted, unless there is a listener.

    `rows` gives the number of passes and the address of the dashboard.
    """
    if _listeners.get() or not dask.config.get("daskclust.progress"):
        yield
        return

    def passes() -> int:
        opened = rows()
        return 0 if opened is None else opened.passes

    def dashboard() -> str | None:
        opened = rows()
        return None if opened is None else opened.dashboard

    total = getattr(estimator, "max_iter", None)
    most = int(total) if isinstance(total, int) else None
    with showing(type(estimator).__name__, most, passes, dashboard):
        yield


def _announce(estimator: str, record: Mapping[str, Any]) -> None:
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
