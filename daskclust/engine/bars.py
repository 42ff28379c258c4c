"""A bar that shows how a long fit goes on, on terminals and in notebooks only."""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import dask

__all__ = ["advance", "showing"]

#: Seconds that a fit takes before anything is shown, and between two looks.
_DELAY, _PAUSE = 2.0, 0.5
_FORMAT = "{desc}: {n_fmt}/{total_fmt} iterations |{bar}| {elapsed}{postfix}"
_OPEN_FORMAT = "{desc}: {n_fmt} iterations, {elapsed}{postfix}"


class _Bar:
    """Shows itself after a while, from a thread of its own.

    Parameters
    ----------
    name : str
        Of the estimator.
    total : int or None
        Maximum number of iterations.
    passes : callable() -> int
    link : callable() -> str or None
        Address of the dashboard.
    """

    def __init__(
        self,
        name: str,
        total: int | None,
        passes: Callable[[], int],
        link: Callable[[], str | None],
    ) -> None:
        self._name, self._total = name, total
        self._passes, self._link = passes, link
        self._objective: float | None = None
        self._iteration = 0
        self._bar: Any = None
        self._linked = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="daskclust-bar", daemon=True)
        self._thread.start()

    def note(self, record: Mapping[str, Any]) -> None:
        self._iteration, self._objective = record["iteration"], record["objective"]

    def close(self, *, done: bool) -> None:
        self._ended.set()
        self._thread.join()
        if self._bar is not None:
            if done and self._total is not None:
                # Converged: there is nothing more to come.
                self._bar.total = max(1, self._iteration)
            self._draw()
            self._bar.close()

    def _run(self) -> None:
        pause = _DELAY
        while not self._ended.wait(pause):
            pause = _PAUSE
            try:
                self._draw()
            except Exception:  # a broken terminal is no reason to lose a fit
                return

    def _draw(self) -> None:
        if self._bar is None:
            self._bar = self._open()
        if not self._linked:
            # Where the passes run is known when the data are open.
            link = self._link()
            if link is not None:
                self._linked = True
                self._bar.write(f"Dashboard: {link}", file=sys.stderr)
        self._bar.n = self._iteration
        passes = self._passes()
        said = f", {passes} pass{'' if passes == 1 else 'es'}"
        if self._objective is not None:
            said += f", objective {self._objective:.6g}"
        self._bar.set_postfix_str(said.removeprefix(", "), refresh=False)
        self._bar.refresh()

    def _open(self) -> Any:
        with warnings.catch_warnings():
            # Without ipywidgets, a notebook shows the bar as text.
            warnings.simplefilter("ignore")
            from tqdm.auto import tqdm

            bar = tqdm(
                total=self._total,
                desc=self._name,
                bar_format=_OPEN_FORMAT if self._total is None else _FORMAT,
                file=sys.stderr,
                dynamic_ncols=True,
            )
        bar.start_t = time.time() - _DELAY
        return bar


#: Fits that share their passes run side by side: the first one shows itself.
_one = threading.Lock()
_shown: ContextVar[_Bar | None] = ContextVar("daskclust_bar", default=None)


@contextmanager
def showing(
    name: str,
    total: int | None,
    passes: Callable[[], int],
    link: Callable[[], str | None],
) -> Iterator[None]:
    """Show a bar while a fit runs that takes more than two seconds.

    Parameters
    ----------
    name : str
        Of the estimator.
    total : int or None
        Maximum number of iterations.
    passes : callable() -> int
        Counts the passes so far.
    link : callable() -> str or None
        Returns the address of the dashboard.

    Notes
    -----
    Nothing is shown where ``daskclust.progress`` is false, on anything but a terminal or a
    notebook, in continuous integration (the variable ``CI``), and inside of another fit.
    """
    if _shown.get() is not None or not _wanted() or not _one.acquire(blocking=False):
        yield
        return
    bar = _Bar(name, total, passes, link)
    token = _shown.set(bar)
    done = False
    try:
        yield
        done = True
    finally:
        _shown.reset(token)
        try:
            bar.close(done=done)
        finally:
            _one.release()


def advance(record: Mapping[str, Any]) -> None:
    """Tell the bar of this fit, if it has one, of an iteration."""
    bar = _shown.get()
    if bar is not None:
        bar.note(record)


def _wanted() -> bool:
    if not dask.config.get("daskclust.progress") or os.environ.get("CI"):
        return False
    return _in_notebook() or _on_terminal()


def _on_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # none, or closed
        return False


def _in_notebook() -> bool:
    module = sys.modules.get("IPython")
    shell = None if module is None else module.get_ipython()
    return type(shell).__name__ == "ZMQInteractiveShell"
