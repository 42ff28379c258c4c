"""How long work goes on: who is told of iterations, and a line that moves where it can."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any, TextIO

from daskclust.config import setting
from daskclust.storage.urls import redact

logger = logging.getLogger("daskclust")

#: Seconds that a fit takes before anything is shown, and between two looks.
_DELAY, _PAUSE = 2.0, 0.5
#: Seconds between two lines about iterations where no line moves.
_QUIET = 2.0
#: and about passes that iterations are told of.
_SELDOM = 30.0


class _Stream:
    """A terminal, where a line replaces the last one; or a file, which keeps all of them."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self.is_live = stream, stream.isatty()

    def show(self, text: str) -> None:
        if not self.is_live:
            self._write(self._line(text))
            return
        width = shutil.get_terminal_size().columns - 1
        self._write(f"\r\033[K{redact(text)[:width]}")

    def say(self, text: str) -> None:
        self.clear()
        self._write(self._line(text))

    def _line(self, text: str) -> str:
        # The log of a job has to say when the last sign of life was.
        stamp = "" if self.is_live else f"{datetime.now().astimezone():%Y-%m-%dT%H:%M:%S%z} "
        return f"{stamp}{redact(text)}\n"

    def clear(self) -> None:
        if self.is_live:
            self._write("\r\033[K")

    def _write(self, text: str) -> None:
        # A terminal that was closed is no reason to lose a fit, nor its checkpoint.
        with contextlib.suppress(OSError):
            self._stream.write(text)
            self._stream.flush()


class _Notebook:
    """The output of a cell; empty in the end, so that notebooks that are kept show nothing."""

    is_live = True

    def __init__(self) -> None:
        self._kept: list[str] = []
        self._place: Any = None

    def show(self, text: str) -> None:
        self._put("\n".join([*self._kept, redact(text)]))

    def say(self, text: str) -> None:
        # Later output is shown below it.
        self._kept.append(redact(text))
        self.clear()

    def clear(self) -> None:
        if self._place is not None:
            self._put("")

    def _put(self, text: str) -> None:
        from IPython.display import display

        if self._place is None:
            self._place = display({"text/plain": text}, raw=True, display_id=True)
        else:
            self._place.update({"text/plain": text}, raw=True)


class Progress:
    """Says which piece of work is under way, and how far it is; on standard error by default."""

    def __init__(self, output: Any = None) -> None:
        stream = sys.stderr if output is None else output
        self._output = stream if isinstance(stream, _Notebook) else _Stream(stream)
        self._name, self._speed = "", ""
        self._record: Mapping[str, Any] = {}
        self._rows: int | None = None
        self._began = self._last = 0.0
        self._options: dict[str, Any] = {}
        #: Lines of two threads must not be mixed.
        self._turn = threading.Lock()

    @contextmanager
    def task(
        self, name: str, *, rows: int | None = None, after: float = 0.0, **options: Any
    ) -> Iterator[None]:
        """Announce a piece of work, and at its end how long it took.

        With the number of rows that a pass reads, iterations tell how many that is a second.
        Nothing is shown for `after` seconds.  Options: ``total``, the maximum number of
        iterations; ``passes()``, which counts those so far; ``link()``, which returns the
        address of the dashboard or None.
        """
        self._name, self._rows, self._options = name, rows, options
        self._record, self._speed = {}, ""
        began = self._began = self._last = time.perf_counter()
        if not after:
            self.show(f"{name} ...")
        token = _current.set(self)
        try:
            with self._moving(after):
                yield
        except BaseException:
            with self._turn:
                self._output.clear()
            raise
        finally:
            _current.reset(token)
        seconds = time.perf_counter() - began
        if seconds >= after:
            said = f"{self._said()}, " if after else ""
            self.say(f"{name}: {said}{seconds:.1f} s")

    @contextmanager
    def _moving(self, after: float) -> Iterator[None]:
        """Draw the line again and again, from a thread of its own."""
        ended = threading.Event()

        def run() -> None:
            pause = after or _PAUSE
            while not ended.wait(pause):
                pause = _PAUSE
                try:
                    self._draw()
                except Exception:  # a broken terminal is no reason to lose a fit
                    return

        thread = threading.Thread(target=run, name="daskclust-progress", daemon=True)
        if self._output.is_live:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            if self._output.is_live:
                thread.join()

    def _draw(self) -> None:
        link = self._options.get("link")
        found = None if link is None else link()
        if found is not None:
            # Where the passes run is known when the data are open.
            del self._options["link"]
            self.say(f"Dashboard: {found}")
        seconds = f"{time.perf_counter() - self._began:.0f} s"
        said = self._said()
        self.show(f"{self._name}: {said}, {seconds}" if said else f"{self._name} ... {seconds}")

    def iteration(self, record: Mapping[str, Any]) -> None:
        """Show a record of a fit's history."""
        # Passes before the first iteration took time that its record does not hold, and some
        # iterations make none: over a graph of a sample.
        passes = record["passes"] - self._record.get("passes", record["passes"])
        self._record, self._speed = record, ""
        if self._rows is not None and record["seconds"] > 0 and passes > 0:
            self._speed = f"{self._rows * passes / record['seconds']:.3g} rows/s"
        now = time.perf_counter()
        if "passes" not in self._options and (self._output.is_live or now - self._last >= _QUIET):
            self._last = now
            self.show(f"{self._name}: {self._said()}")

    def begin_pass(self, name: str, number: int) -> None:
        """Write a line about a pass; where iterations tell of passes already, seldom."""
        now = time.perf_counter()
        if self._output.is_live or now - self._last < (_SELDOM if self._record else _QUIET):
            return
        self._last = now
        self.show(f"{self._name}: pass {number} ({name})")

    def _said(self) -> str:
        record, parts = self._record, []
        if record:
            total = self._options.get("total")
            most = "" if total is None else f"/{total}"
            parts += [f"round {record['round']}"] if "round" in record else []
            parts += [f"iteration {record['iteration']}{most}"]
            parts += [f"objective {record['objective']:.6g}"]
        count = self._options["passes"]() if "passes" in self._options else record.get("passes")
        return ", ".join(filter(None, [*parts, f"pass {count}" if count else "", self._speed]))

    def say(self, text: str) -> None:
        """Write a line that stays."""
        with self._turn:
            self._output.say(text)

    def show(self, text: str) -> None:
        """Write a line that the next one replaces where lines move."""
        with self._turn:
            self._output.show(text)


Listener = Callable[[Mapping[str, Any]], None]
_listeners: ContextVar[tuple[Listener, ...]] = ContextVar("daskclust_listeners", default=())
#: Fits that share their passes run side by side: the first one shows itself.
_one = threading.Lock()
#: The innermost piece of work.
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


def announce(name: str, record: Mapping[str, Any]) -> None:
    """Log a record of a fit's history, and hand it to the listeners."""
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
    """Count a pass over the data, and tell whatever is shown that it begins."""
    record.passes += 1
    progress = _current.get()
    if progress is not None:
        progress.begin_pass(name, record.passes)


@contextmanager
def without_passes() -> Iterator[None]:
    """Show no passes over rows that are only a part of the data."""
    token = _current.set(None)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def showing_progress(estimator: Any, rows: Callable[[], Any]) -> Iterator[None]:
    """Show how far a fit is that takes more than two seconds; see :meth:`Progress.task`.

    `rows` gives the rows, which know the passes so far and the dashboard, or None before they are
    open.  Nothing is shown where there are listeners, as inside of another fit that is shown;
    where no line can move; and in continuous integration (the variable ``CI``).
    """
    output: Any = None
    if setting("progress") and not os.environ.get("CI") and not _listeners.get():
        module = sys.modules.get("IPython")
        shell = None if module is None else module.get_ipython()
        if type(shell).__name__ == "ZMQInteractiveShell":
            output = _Notebook()
        else:
            # There may be no stream, or a closed one.
            with contextlib.suppress(AttributeError, ValueError):
                output = sys.stderr if sys.stderr.isatty() else None
    if output is None or not _one.acquire(blocking=False):
        yield
        return

    progress, most = Progress(output), getattr(estimator, "max_iter", None)
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
        _one.release()
