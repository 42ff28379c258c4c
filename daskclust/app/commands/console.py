"""Functions of all commands: connection to a cluster, progress on stderr, types of arguments."""

from __future__ import annotations

import argparse
import difflib
import json
import logging
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from daskclust.app.commands.requests import ClusterOptions
from daskclust.core.progress import Progress
from daskclust.core.storage.redact import redact

#: Flags of the command line, by the parameter of an estimator that users may write instead.
_OTHER_NAMES = {"--random-state": "--seed", "--random_state": "--seed"}
#: Minimum similarity of a word and its suggested correction, from 0 to 1.
_LIKE = 0.6


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a sentence with the most similar of the known words, or an empty text.

    >>> did_you_mean("--cluster", ["--n-clusters", "--chunks"])
    ' Did you mean --n-clusters?'
    >>> did_you_mean("--zebra", ["--n-clusters"])
    ''
    """
    words = {name.lower(): name for name in known}
    # For --truth-column the suggestion is --truth, although --output-column is more similar.
    prefixes = [name for name in words if name.startswith("--") and word.startswith(f"{name}-")]
    close = partial(difflib.get_close_matches, word.lower(), words, n=1)
    matches = close(cutoff=0.9) or sorted(prefixes, key=len)[-1:] or close(cutoff=_LIKE)
    return f" Did you mean {words[matches[0]]}?" if matches else ""


def one_of(*choices: str) -> Callable[[str], str]:
    """Return a type for ``argparse`` that accepts only the given words.

    >>> one_of("mask", "nan")("nan")
    'nan'
    """

    def read(text: str) -> str:
        if text not in choices:
            shown = ", ".join(map(repr, choices))
            raise argparse.ArgumentTypeError(
                f"invalid choice: {text!r} (choose from {shown}).{did_you_mean(text, choices)}"
            )
        return text

    return read


def print_results(
    options: argparse.Namespace, results: dict[str, Any], as_text: Callable[[Any], list[str]]
) -> int:
    """Print the results as JSON or as text; return the exit code."""
    # Imported here, so that parsing arguments does not import NumPy and Zarr.
    from daskclust.core.storage.outputs import json_text

    print(json_text(results, indent=2) if options.json else "\n".join(as_text(results)))
    return 0


def ending(results: Mapping[str, Any]) -> list[str]:
    files = ", ".join(results["outputs"].values())
    return [f"Time      {results['seconds']:.1f} s", *([f"Written   {files}"] if files else [])]


class Parser(argparse.ArgumentParser):
    """A parser that rejects abbreviations and suggests the nearest flag.

    For unknown arguments it prints the usage and the nearest flag. If the arguments contain
    ``--help``, `help_for` is called with them. It returns a help page, or None for the page of
    argparse.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **options})
        self.help_for: Callable[[Sequence[str]], str | None] = lambda _: None

    @property
    def actions(self) -> Sequence[argparse.Action]:
        """All arguments; argparse has no public list of them."""
        return self._actions

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        arguments = list(args or ())
        if {"-h", "--help"}.intersection(arguments):
            page = self.help_for(arguments)
            if page is not None:
                print(page, end="")
                self.exit(0)
        # Shells expand ~ at the start of a word, but not after an equals sign.
        for i, word in enumerate(arguments):
            flag, _, path = word.partition("=")
            if flag.startswith("--") and path.startswith("~"):
                arguments[i] = f"{flag}={os.path.expanduser(path)}"
        # A flag with an optional number would take the next word, which may be a scene. If the
        # next word is not a number, the default is written after the flag.
        optional: dict[str, Any] = {
            name: action
            for action in self.actions
            for name in action.option_strings
            if action.nargs == "?" and callable(action.type)
        }
        for i, word in enumerate(arguments):
            if word in optional:
                try:
                    optional[word].type(arguments[i + 1])
                except (IndexError, ValueError, argparse.ArgumentTypeError):
                    arguments[i] = f"{word}={optional[word].const}"
        parsed, unknown = super().parse_known_args(arguments, namespace)
        if unknown:
            self.refuse(unknown)
        for action in self.actions:
            value = getattr(parsed, action.dest, None)
            words = value if isinstance(value, list) else [value]
            # An unset variable of a script gives an empty word.  As a path, it would mean the
            # current folder.
            is_empty = any(isinstance(word, str) and not word.strip() for word in words)
            if action.metavar != "TEXT" and value != action.default and is_empty:
                self.error(f"{'/'.join(action.option_strings) or action.metavar} is empty")
        return parsed, []

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """End the program with the unknown flags or words, and the nearest of the known flags."""
        flags = [word.split("=")[0] for word in unknown if word.startswith("-")]
        hint = " List all files together, before or after the options."
        if flags:
            known = [name for action in self.actions for name in action.option_strings]
            our_name = _OTHER_NAMES.get(flags[0])
            hint = (
                f" Did you mean {our_name}?" if our_name in known else did_you_mean(flags[0], known)
            )
        self.error(f"unrecognized arguments: {' '.join(flags or unknown)}.{hint}")

    def error(self, message: str) -> NoReturn:
        """End the program with the usage and the message, without credentials of URLs."""
        super().error(redact(message))


#: Advice on connections by TLS.
_TLS = (
    "For tls://, set the certificates in Dask's configuration, distributed.comm.tls (ca-file and "
    "client)."
)


def number(
    is_valid: Callable[[Any], bool], otherwise: str, read: Callable[[str], Any] = float
) -> Callable[[str], Any]:
    """Return a type for ``argparse`` that reads valid numbers.

    `otherwise` is the end of the message about other numbers.

    >>> number(lambda value: value > 0, "is not positive")("0.5")
    0.5
    """

    def reader(text: str) -> Any:
        try:
            value = read(text)
        except ValueError as error:
            kind = "whole number" if read is int else "number"
            raise argparse.ArgumentTypeError(f"{text!r} is not a {kind}") from error
        if not is_valid(value):
            raise argparse.ArgumentTypeError(f"{text} {otherwise}")
        return value

    return reader


natural = number(lambda value: value >= 1, "is less than 1", int)
seed = number(lambda value: value >= 0, "is less than 0", int)


def counted(number: int, noun: str) -> str:
    """Return a number and a noun, in the plural if necessary.

    >>> counted(1, "worker"), counted(2, "worker")
    ('1 worker', '2 workers')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def local_workers(options: ClusterOptions, useful: int) -> int:
    """Return the number of workers of a local cluster: as requested, or up to one per core."""
    from dask.system import CPU_COUNT

    return int(options.local or max(1, min(CPU_COUNT, useful)))


@contextmanager
def open_client(options: ClusterOptions, useful_workers: int, progress: Progress) -> Iterator[Any]:
    """Yield a client of the requested cluster.

    A local cluster has processes of one thread each: the number of ``--local``, or at most
    `useful_workers`. It is closed at the end of the context, also after an error. A cluster of the
    user is left running. If no worker connects within ``daskclust.worker-timeout``, ClusterError
    is raised.
    """
    import dask
    from distributed import Client, LocalCluster

    from daskclust.core.engine import await_workers, on_notice

    # Messages about workers that end do not help the user: errors of tasks and of the connection
    # are raised here.  After Ctrl-C, asyncio would print all unfinished tasks.
    for name in ("asyncio", *logging.root.manager.loggerDict):
        # Each logger of distributed sets its level itself.
        if name.split(".")[0] in ("asyncio", "distributed"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
    if options.scheduler is not None or options.scheduler_file is not None:
        with _connect(options) as client, on_notice(progress.say):
            await_workers(client)
            yield client
        return
    with ExitStack() as stack:
        with warnings.catch_warnings(), _signals_of_terminals_blocked():
            # If the usual port is in use, the dashboard uses another one, and the link shows it.
            warnings.filterwarnings("ignore", "Port .* is already in use", UserWarning)
            cluster = stack.enter_context(
                LocalCluster(
                    n_workers=local_workers(options, useful_workers),
                    threads_per_worker=1,
                    memory_limit=options.memory_limit or "auto",
                    processes=True,
                    dashboard_address="127.0.0.1:8787",
                    silence_logs=logging.CRITICAL,
                )
            )
        # A cluster does not restart a worker that is lost for more than 15 s.  A fit would then
        # wait for this worker forever, so the timeout is raised.
        stack.enter_context(dask.config.set({"distributed.deploy.lost-worker-timeout": "7 days"}))
        client = stack.enter_context(Client(cluster, set_as_default=True))
        stack.enter_context(on_notice(progress.say))
        await_workers(client)
        yield client


@contextmanager
def _signals_of_terminals_blocked() -> Iterator[None]:
    """Block Ctrl-C and hang-ups, also in processes that start inside; the cluster ends them."""
    if os.name == "nt" or threading.current_thread() is not threading.main_thread():
        yield
        return
    from multiprocessing import resource_tracker

    # The resource tracker unblocks the signals when it starts, so it must start before.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _connect(options: ClusterOptions) -> Any:
    from distributed import Client, Security
    from distributed.comm import resolve_address

    if options.scheduler is not None:
        shown, target = redact(options.scheduler), {"address": options.scheduler}
    else:
        file = Path(str(options.scheduler_file))
        shown = str(file)
        if not file.is_file():
            # The client would wait for the file forever.
            raise FileNotFoundError(
                f"The scheduler file {shown!r} does not exist. Start the scheduler with "
                f"--scheduler-file first."
            )
        target = {"scheduler_file": shown}
    try:
        # These errors are raised before a client is created.  A client with an unknown protocol
        # or without certificates takes a minute to close.
        if options.scheduler is not None:
            resolve_address(options.scheduler)
            address = options.scheduler
        else:
            address = str(json.loads(file.read_text())["address"])
        certificates = Security().get_connection_args("client")["ssl_context"]
        if address.startswith("tls://") and certificates is None:
            raise ConnectionError(
                f"{shown!r} accepts only connections by TLS, which need certificates. {_TLS}"
            )
        # A client that cannot connect remains the default client, and later computations of this
        # process would wait for it forever.  So the first attempt uses another client.
        with Client(**target, set_as_default=False):
            pass
        return Client(**target, set_as_default=True)
    except OSError:
        raise
    except ValueError as error:
        raise ConnectionError(f"{shown!r} is not an address of a scheduler: {error}") from error
    except Exception as error:  # TLS and scheduler files raise errors of many types
        raise ConnectionError(
            f"The connection to {shown!r} failed: {error or type(error).__name__}. {_TLS}"
        ) from error
