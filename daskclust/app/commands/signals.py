"""Ctrl-C, SIGTERM and SIGHUP: one way out of a command, in bounded time.

A signal raises :class:`Stopped` in the main thread, so that every context cleans
up behind itself; what takes longer than a few seconds is cut short.  A signal that
is ignored when the command starts stays ignored: ``nohup`` asks for that, and a
shell's background job ignores Ctrl-C (SIGTERM reaches it).
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import FrameType

from daskclust.core.storage.atomic_write import remove_locks

#: Seconds from a signal to the end without cleaning up; people are promised five.
_PATIENCE = 3.25
_WORDS = {"SIGINT": "interrupted", "SIGTERM": "terminated", "SIGHUP": "hung up"}
#: Signals that a terminal sends to all processes of a command, its workers included.
_OF_TERMINALS = {getattr(signal, name) for name in ("SIGINT", "SIGHUP") if hasattr(signal, name)}


class Stopped(KeyboardInterrupt):
    """A signal asked the command to end; `code` is 128 and the number of the signal."""

    def __init__(self, signum: int) -> None:
        self.signum = signum
        self.code = 128 + signum
        self.word = _WORDS.get(signal.Signals(signum).name, "stopped")
        super().__init__(self.word)


class _State:
    """What is known of signals to this process, in which one command runs at a time."""

    def __init__(self) -> None:
        self.received: int | None = None
        self.deferring = 0
        self.watchdog: threading.Timer | None = None
        self.lock = threading.Lock()
        self.words: list[Callable[[], None]] = []

    def begin(self) -> None:
        """Forget the signals of an earlier command."""
        self.received = self.watchdog = None


_state = _State()


def asked_to_end() -> Stopped | None:
    """Return the end that a signal asked the present command for; None if there was none."""
    return None if _state.received is None else Stopped(_state.received)


def _on_signal(signum: int, frame: FrameType | None) -> None:
    if _state.received is not None:  # already on the way out
        return
    _state.received = signum
    _watch(signum)
    if not _state.deferring:
        raise Stopped(signum)


def _watch(signum: int) -> None:
    """Begin to count the seconds, once."""
    with _state.lock:
        if _state.watchdog is None:
            _state.watchdog = threading.Timer(_PATIENCE, _end, [signum])
            _state.watchdog.daemon = True
            _state.watchdog.start()


@contextmanager
def _noticed_at_once(signals: Collection[int]) -> Iterator[None]:
    """Count from the moment of a signal, not from when the main thread comes to handle it.

    That may be seconds later, on a busy machine or inside a library's long call.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def listen() -> None:
        while numbers := os.read(reading, 64):
            for number in numbers:
                if number in signals:
                    _watch(number)
        os.close(reading)

    threading.Thread(target=listen, name="daskclust-signals", daemon=True).start()
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        # The end of the pipe ends the thread.
        os.close(writing)


def _end(signum: int) -> None:
    """End this process and all that it started: cleaning up takes too long."""
    for say in _state.words:
        with contextlib.suppress(Exception):
            say()
    with contextlib.suppress(Exception):
        import psutil

        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                child.kill()
    with contextlib.suppress(Exception):
        remove_locks()
    stop = Stopped(signum)
    with contextlib.suppress(Exception):
        print(f"daskclust: {stop.word}", file=sys.stderr, flush=True)
    os._exit(stop.code)


@contextmanager
def handled(*, is_program: bool) -> Iterator[None]:
    """Let signals raise :class:`Stopped` in the main thread.

    With `is_program` the process ends afterwards: the limit of time holds until it has ended.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {}
    for name in _WORDS:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, _on_signal)
    _state.begin()
    try:
        # Windows takes sockets only.
        with contextlib.nullcontext() if os.name == "nt" else _noticed_at_once(set(before)):
            yield
    finally:
        stopped = _state.received is not None
        if _state.watchdog is not None and not is_program:
            _state.watchdog.cancel()
        if not (stopped and is_program):
            for number, handler in before.items():
                signal.signal(number, handler)
            _state.received = None


@contextmanager
def deferred() -> Iterator[None]:
    """Act on signals at the end only, as while a cluster starts or stops.

    Half of a start or a stop would leave processes behind.  Processes that are
    started inside are not reached by Ctrl-C and hang-ups of the terminal, now and
    later: workers end when they are told to.
    """
    if threading.current_thread() is not threading.main_thread() or os.name == "nt":
        yield
        return
    from multiprocessing import resource_tracker

    # It would unblock the signals again if it were started inside.
    resource_tracker.ensure_running()
    # Threads and processes inherit which signals are blocked, not how they are handled.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _OF_TERMINALS)
    already = _state.received
    _state.deferring += 1
    try:
        yield
    finally:
        _state.deferring -= 1
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if already is None and _state.received is not None and not _state.deferring:
            raise Stopped(_state.received)


@contextmanager
def last_words(say: Callable[[], None]) -> Iterator[None]:
    """Have `say` called if cleaning up inside takes too long and the process just ends."""
    _state.words.append(say)
    try:
        yield
    finally:
        _state.words.remove(say)
