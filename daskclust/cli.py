"""The command ``daskclust``.

Each command is a module with a function ``add_command(commands)``, which adds a
parser whose default ``run`` takes the options and returns the exit code.
Progress goes to stderr, results to stdout.  Exit codes: 0 done, 1 failed, 2
wrong usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from daskclust.exceptions import DaskclustError

__all__ = ["main"]

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

_COMMANDS = (
    "daskclust.commands.demo",
    "daskclust.commands.fit",
    "daskclust.commands.predict",
    "daskclust.commands.inspect",
    "daskclust.commands.doctor",
    "daskclust.commands.bench",
)

#: What data, files and clusters may do to a command: one line says it all.
_EXPECTED = (DaskclustError, OSError, ValueError, KeyError, ImportError, MemoryError)
_KILLED = (
    "Workers died, most likely of memory: see --dry-run, use smaller --chunks or fewer and larger "
    "workers."
)


def _parser() -> argparse.ArgumentParser:
    from daskclust import __version__

    parser = argparse.ArgumentParser(
        prog="daskclust", description="Distributed clustering on Dask.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"daskclust {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in _COMMANDS:
        importlib.import_module(name).add_command(commands)
    return parser


def _show_warning(message: Any, *_: Any, **__: Any) -> None:
    """Show a warning as one line: where in the library it arose helps nobody here."""
    print(f"daskclust: warning: {message}", file=sys.stderr)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments; those of the process by default.

    Returns
    -------
    int
        Exit code.
    """
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        return _run(list(sys.argv[1:] if argv is None else argv))


def _run(arguments: list[str]) -> int:
    try:
        options = _parser().parse_args(arguments)
        options.arguments = arguments[1:]
        return int(options.run(options))
    except SystemExit as stop:  # argparse has printed help, the version or what is wrong
        return stop.code if isinstance(stop.code, int) else USAGE
    except KeyboardInterrupt:
        # Coroutines that nobody will await now are complained of when this function ends.
        warnings.simplefilter("ignore")
        print("daskclust: interrupted", file=sys.stderr)
        return INTERRUPTED
    except _EXPECTED as error:
        print(f"daskclust: error: {_one_line(error)}", file=sys.stderr)
        return FAILED
    except Exception as error:
        if type(error).__name__ != "KilledWorker":  # not imported for its name alone
            raise
        print(f"daskclust: error: {_one_line(error)} {_KILLED}", file=sys.stderr)
        return FAILED


def _one_line(error: BaseException) -> str:
    # The text of a KeyError is the repr of its message.
    text = error.args[0] if isinstance(error, KeyError) and error.args else error
    return " ".join(str(text).split()) or type(error).__name__


if __name__ == "__main__":
    sys.exit(main())
