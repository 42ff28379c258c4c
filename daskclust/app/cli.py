"""The command ``daskclust``.

Each command has a parser in ``commands/parsers.py``, and a module with a function
``_run``, which takes the options and returns the exit code.
Progress goes to stderr, results to stdout.  Exit codes: 0 done, 1 failed, 2
wrong usage; 130, 143 and 129 ended by Ctrl-C, SIGTERM and SIGHUP.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import re
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

from daskclust.app.commands.requests import UsageError
from daskclust.core.storage.redact import redact
from daskclust.exceptions import DaskclustError

__all__ = ["main"]

FAILED, USAGE, INTERRUPTED = 1, 2, 130

#: Modules of ``daskclust.app.commands`` by their name, with the line of ``daskclust --help``.
COMMANDS = {
    "demo": "cluster a synthetic hyperspectral scene, from Zarr to Zarr",
    "fit": "cluster the pixels of a cube, or the rows of a table",
    "predict": "label the pixels of a cube, or the rows of a table, with a saved model",
    "explain": "describe each cluster of a saved model",
    "rename": "rename or merge the classes of a saved model",
    "compare": "compare two label maps",
    "inspect": "describe a cube, a table, a label map or a model",
    "doctor": "check versions, memory, threads and data access on all machines",
    "suggest": "suggest pixels to label next",
    "label": "label pixels in a browser, and write a map",
}

#: Errors of data, files and clusters, which are printed in one line.
_EXPECTED = (DaskclustError, OSError, ValueError, KeyError, ImportError, MemoryError)
#: Libraries that read data and run tasks. Their errors report problems of stores and clusters.
_LIBRARIES = set(
    "aiohttp azure botocore distributed fsspec gcsfs google s3fs ssl urllib3 yarl zarr".split()
)
#: Explanations of errors whose own text does not help, by the name of their class.
_HINTS = {
    "KilledWorker": "Workers died, probably because memory was insufficient. See --dry-run, and "
    "use smaller --chunks, or fewer and larger workers.",
    **dict.fromkeys(
        ("CancelledError", "FutureCancelledError", "FuturesCancelledError"),
        "The cluster was closed or the connection to its scheduler was lost.",
    ),
    "CommClosedError": "The connection to the scheduler was lost.",
}


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """Return a parser with the flags of the command that the arguments name."""
    from daskclust._version import __version__
    from daskclust.app.commands.console import Parser, did_you_mean

    parser = Parser(prog="daskclust", description="Distributed clustering on Dask.")
    parser.add_argument("--version", action="version", version=f"daskclust {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    if arguments and not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
        parser.error(
            f"COMMAND must be one of {', '.join(COMMANDS)}, got {arguments[0]!r}."
            f"{did_you_mean(arguments[0], COMMANDS)}"
        )
    named = next((word for word in arguments if word in COMMANDS), None)
    for name, text in COMMANDS.items():
        if name == named:
            _add_parser(commands, name)
        else:
            commands.add_parser(name, help=text)
    return parser


def _add_parser(commands: Any, name: str) -> argparse.ArgumentParser:
    from daskclust.app.commands import parsers

    getattr(parsers, f"add_{name}")(commands)
    parser: argparse.ArgumentParser = commands.choices[name]
    parser.set_defaults(command=name, parser=parser)
    return parser


def command_parser(name: str) -> argparse.ArgumentParser:
    """Return the parser of one command."""
    from daskclust.app.commands.console import Parser

    return _add_parser(Parser(prog="daskclust").add_subparsers(), name)


def _options(arguments: Sequence[str], is_program: bool) -> argparse.Namespace:
    """Parse the arguments, and report contradictions before a command is imported.

    If the command line runs as a program, missing files are reported, too.
    """
    from daskclust.app.commands.contradictions import contradiction, missing_file

    options = _parser(arguments).parse_args(arguments)
    options.arguments = list(arguments[1:])
    if problem := contradiction(arguments):
        options.parser.error(redact(problem))
    if is_program and (path := missing_file(arguments)):
        raise FileNotFoundError(
            f"The file {redact(os.path.abspath(path))!r} does not exist. Use the path of an "
            f"existing file."
        )
    return options


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP, which end a command as Ctrl-C does; `code` is the exit code."""

    def __init__(self, number: int) -> None:
        self.code = 128 + number
        super().__init__({"SIGTERM": "terminated"}.get(signal.Signals(number).name, "hung up"))


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated(number)


@contextlib.contextmanager
def _signals_raise() -> Iterator[None]:
    """Make SIGTERM and SIGHUP raise in the main thread, unless they are ignored (``nohup``)."""
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        numbers = [getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP")]
        for number in filter(None, numbers):
            if signal.getsignal(number) is not signal.SIG_IGN:
                handlers[number] = signal.signal(number, _terminate)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line, by default the arguments of the process; return the exit code."""
    is_program = argv is None
    arguments = list(sys.argv[1:] if argv is None else argv)
    if is_program:
        _open_streams()
    try:
        with _signals_raise(), warnings.catch_warnings():
            # Print one line, without the source code line.
            warnings.showwarning = lambda message, *_, **__: _tell(f"warning: {redact(message)}")
            code = _run(arguments, is_program)
            return _flush(code) if is_program else code
    except KeyboardInterrupt as stop:
        # At the end of the program, Python would warn about coroutines that were not awaited.
        warnings.simplefilter("ignore")
        _tell(str(stop) or "interrupted")
        return stop.code if isinstance(stop, Terminated) else INTERRUPTED


def _open_streams() -> None:
    """Open standard streams that are closed: outputs opened next would take their numbers."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # `os.open` takes the lowest free number. Child processes inherit it.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))
    if isinstance(sys.stdout, io.TextIOWrapper):
        # The program must not fail if the terminal cannot show a name.
        sys.stdout.reconfigure(errors="backslashreplace")


def _flush(code: int) -> int:
    """Flush the results; return FAILED if they cannot be written."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _tell(f"error: results cannot be written to standard output ({error.strerror}).")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return code


def _run(arguments: list[str], is_program: bool) -> int:
    try:
        options = _options(arguments, is_program)
        # This import takes seconds.
        command = importlib.import_module(f"daskclust.app.commands.{options.command}")
        try:
            return int(command._run(options))
        except UsageError as error:
            options.parser.error(str(error))
            return USAGE
    except SystemExit as stop:  # argparse has printed help, the version or what is wrong
        return stop.code if isinstance(stop.code, int) else USAGE
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # CancelledError is a BaseException
        if (interrupt := _interrupt_behind(error)) is not None:
            raise interrupt from error
        if not _is_expected(error):
            if not is_program:
                raise
            print(redact(traceback.format_exc()), file=sys.stderr)
        _tell(f"error: {_one_line(error)}")
        return FAILED


def _interrupt_behind(error: BaseException) -> KeyboardInterrupt | None:
    """Return the interrupt that a library has turned into another error."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__cause__ or cause.__context__
    return cause


def _is_expected(error: BaseException) -> bool:
    kind = type(error)
    is_of_library = kind.__module__.split(".")[0] in _LIBRARIES
    return isinstance(error, _EXPECTED) or kind.__name__ in _HINTS or is_of_library


def _one_line(error: BaseException) -> str:
    # The text of a KeyError is the repr of its message.
    text = error.args[0] if isinstance(error, KeyError) and error.args else error
    line = " ".join(redact(text).split()) or type(error).__name__
    # A sentence of a library inside our sentence has its own period: remove one of the two.
    line = re.sub(r"(?<=[^\s./])\.(?:\.|;)(?=\s|$)", lambda two: two[0][-1], line)
    hint = _HINTS.get(type(error).__name__)
    return line if hint is None else f"{line.rstrip('.')}. {hint}"


def _tell(text: str) -> None:
    with contextlib.suppress(OSError):  # a terminal that is gone
        print(f"daskclust: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
