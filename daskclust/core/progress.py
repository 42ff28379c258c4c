"""Progress of long computations: listeners of iterations, a tqdm bar, and lines in logs."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any, TextIO

from daskclust.config import setting
from daskclust.core.storage.redact import redact

logger = logging.getLogger("daskclust")

#: Seconds before a fit shows its progress.
_DELAY = 2.0
#: Minimum seconds between two log lines about iterations, and about passes inside iterations.
_ITERATION_PAUSE, _PASS_PAUSE = 2.0, 30.0


def _in_notebook() -> bool:
    module = sys.modules.get("IPython")
    shell = None if module is None else module.get_ipython()
    return type(shell).__name__ == "ZMQInteractiveShell"


class Progress:
    """Display of the running task: a bar on terminals and in notebooks, lines in logs.

    `stream` is standard error by default.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._is_live = _in_notebook() or self._stream.isatty()
        self._name, self._speed = "", ""
        self._bar: Any = None
        self._record: Mapping[str, Any] = {}
        self._rows: int | None = None
        self._last = 0.0
        self._options: dict[str, Any] = {}

    @contextmanager
    def task(
        self, name: str, *, rows: int | None = None, after: float = 0.0, **options: Any
    ) -> Iterator[None]:
        """Show a task while it runs, and its duration at the end.

        `rows` is the number of rows that a pass reads; with it, iterations show the rows per
        second.  The display starts after `after` seconds.  Options: ``total``, the maximum number
        of iterations; ``passes()``, which returns the number of passes so far; ``link()``, which
        returns the address of the dashboard or None.
        """
        self._name, self._rows, self._options = name, rows, options
        self._record, self._speed = {}, ""
        start = self._last = time.perf_counter()
        compiling: Any = contextlib.nullcontext()
        if self._is_live:
            # The command line shows its help without an import of Numba.
            from tqdm.auto import tqdm

            from daskclust.core.kernels.compiling import noticing

            compiling = noticing(self._say_compiling)

            self._bar = tqdm(
                desc=f"{name} ...",
                bar_format="{desc} {elapsed}",
                file=None if _in_notebook() else self._stream,
                delay=after,
                miniters=1,
                leave=False,
                dynamic_ncols=True,
            )
        elif not after:
            self.show(f"{name} ...")
        token = _current.set(self)
        try:
            with compiling:
                yield
        finally:
            _current.reset(token)
            if self._bar is not None:
                self._bar.close()
                self._bar = None
        seconds = time.perf_counter() - start
        if seconds >= after:
            summary = f"{self._summary()}, " if after else ""
            self.say(f"{name}: {summary}{seconds:.1f} s")

    def _say_compiling(self) -> None:
        self.say("Compiling kernels, once per machine. Later fits start faster.")

    def iteration(self, record: Mapping[str, Any]) -> None:
        """Show a record of a fit's history."""
        # The time of a record does not include passes before the first iteration.  Some
        # iterations, such as those on a graph of a sample, do not make a pass.
        passes = record["passes"] - self._record.get("passes", record["passes"])
        self._record, self._speed = record, ""
        if self._rows is not None and record["seconds"] > 0 and passes > 0:
            self._speed = f"{self._rows * passes / record['seconds']:.3g} rows/s"
        self._show_if(_ITERATION_PAUSE, f"{self._name}: {self._summary()}")

    def begin_pass(self, name: str, number: int) -> None:
        """Show the start of a pass; in logs less often if iterations are shown."""
        summary = self._summary() if self._bar is not None else f"pass {number} ({name})"
        self._show_if(_PASS_PAUSE if self._record else _ITERATION_PAUSE, f"{self._name}: {summary}")

    def advance(self, what: str, done: int, total: int, seconds: float) -> None:
        """Show how many tasks of a computation are done, and the expected time of the others.

        The lines of a log get rarer.
        """
        is_iterating = self._bar is not None and bool(self._record)
        work = self._summary() if is_iterating else what.removeprefix("the ")
        text = f"{self._name}: {work}, {done} of {total} tasks"
        if 0 < done < total:
            text += f", about {_rounded(seconds * (total - done) / done)} left"
        self._show_if(min(_PASS_PAUSE, max(_ITERATION_PAUSE, seconds / 4)), text)

    def _show_if(self, pause: float, text: str) -> None:
        """Update the bar, or write a line if the last one is at least `pause` seconds old."""
        time_now = time.perf_counter()
        if self._bar is not None:
            link = self._options.get("link")
            if (
                link is not None
                and time_now - self._last >= _DELAY
                and (address := link()) is not None
            ):
                # The address is known only after the data are opened.
                del self._options["link"]
                self.say(f"Dashboard: {address}")
            self._bar.set_description_str(f"{redact(text)},", refresh=False)
            self._bar.update()
        elif time_now - self._last >= pause:
            self._last = time_now
            self.show(text)

    def _summary(self) -> str:
        record, parts = self._record, []
        if record:
            total = self._options.get("total")
            total_text = "" if total is None else f"/{total}"
            parts += [f"round {record['round']}"] if "round" in record else []
            parts += [f"iteration {record['iteration']}{total_text}"]
            parts += [f"objective {record['objective']:.6g}"]
        count = self._options["passes"]() if "passes" in self._options else record.get("passes")
        return ", ".join(filter(None, [*parts, f"pass {count}" if count else "", self._speed]))

    def say(self, text: str) -> None:
        """Write a permanent line."""
        # Lines of a log need a time stamp.
        stamp = "" if self._is_live else f"{datetime.now().astimezone():%Y-%m-%dT%H:%M:%S%z} "
        # A closed terminal must not end a fit.
        with contextlib.suppress(OSError, ValueError):
            if self._is_live:
                from tqdm.auto import tqdm

                tqdm.write(redact(text), file=None if _in_notebook() else self._stream)
            else:
                self._stream.write(f"{stamp}{redact(text)}\n")
            self._stream.flush()

    def show(self, text: str) -> None:
        """Write a line; on terminals and in notebooks the next line replaces it."""
        if self._bar is not None:
            self._bar.set_description_str(redact(text))
        else:
            self.say(text)


def _rounded(seconds: float) -> str:
    """Write a duration without precision that a forecast does not have.

    >>> _rounded(47.3), _rounded(400), _rounded(9000)
    ('47 s', '7 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


Listener = Callable[[Mapping[str, Any]], None]
_listeners: ContextVar[tuple[Listener, ...]] = ContextVar("daskclust_listeners", default=())
#: Lock of the fit that is shown: of fits that share passes, only one is shown.
_display_lock = threading.Lock()
#: Display of the innermost running task.
_current: ContextVar[Progress | None] = ContextVar("daskclust_work", default=None)


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
    exception that a listener raises.  The estimator is unchanged.  A
    ``checkpoint`` contains the last iteration, and the same fit resumes from there.  A file
    that was being written does not exist, or has its old content.  On a cluster, waiting
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


def announce(name: str, record: Mapping[str, Any]) -> None:
    """Log a record of a fit's history, and pass it to the listeners."""
    logger.info(
        "%s iteration %d: objective %.6g, center shift %.3g, %d passes, %.3f s",
        name,
        record["iteration"],
        record["objective"],
        record["center_shift"],
        record["passes"],
        record["seconds"],
    )
    for listener in _listeners.get():
        listener(record)


def begin_pass(name: str, record: Any) -> None:
    """Count a pass over the data, and show its start."""
    record.passes += 1
    progress = _current.get()
    if progress is not None:
        progress.begin_pass(name, record.passes)


def is_shown() -> bool:
    """Return True if the progress of this context is shown."""
    return _current.get() is not None


def advance(what: str, done: int, total: int, seconds: float) -> None:
    """Show the finished tasks of a computation that has run for some seconds."""
    progress = _current.get()
    if progress is not None:
        progress.advance(what, done, total, seconds)


@contextmanager
def without_passes() -> Iterator[None]:
    """Hide passes over a subset of the rows."""
    token = _current.set(None)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def showing_progress(estimator: Any, rows: Callable[[], Any]) -> Iterator[None]:
    """Show the progress of a fit that takes more than two seconds; see :meth:`Progress.task`.

    `rows()` returns the rows, which count the passes and know the dashboard, or None before the
    data are opened.  A fit is not shown if there are listeners, for example inside another fit that
    is shown; if the output is not a terminal or a notebook; and in continuous integration (the
    environment variable ``CI``).
    """
    is_shown = False
    if setting("progress") and not os.environ.get("CI") and not _listeners.get():
        # The stream may be missing or closed.
        with contextlib.suppress(AttributeError, ValueError):
            is_shown = _in_notebook() or sys.stderr.isatty()
    if not is_shown or not _display_lock.acquire(blocking=False):
        yield
        return

    progress, most = Progress(), getattr(estimator, "max_iter", None)
    token = _listeners.set((progress.iteration,))
    try:
        with progress.task(
            type(estimator).__name__,
            after=_DELAY,
            total=most if isinstance(most, int) else None,
            passes=lambda: getattr(rows(), "passes", 0),
            link=lambda: getattr(rows(), "dashboard", None),
        ):
            yield
    finally:
        _listeners.reset(token)
        _display_lock.release()
