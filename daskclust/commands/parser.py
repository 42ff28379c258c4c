"""Parsers that name what was probably meant, and stop at the command that was misused."""

from __future__ import annotations

import argparse
import difflib
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from daskclust.storage.urls import redact

__all__ = ["Parser", "did_you_mean", "one_of"]

#: Flags by the names of what they mean in Python.
_OTHER_NAMES = {"--random-state": "--seed", "--random_state": "--seed"}
#: Likeness from which a word is taken for a slip of the pen.
_LIKE = 0.6


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a sentence with the most similar of the known words, or an empty text.

    >>> did_you_mean("--cluster", ["--n-clusters", "--chunks"])
    ' Did you mean --n-clusters?'
    >>> did_you_mean("--zebra", ["--n-clusters"])
    ''
    """
    words = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower(), words, n=1, cutoff=_LIKE)
    return f" Did you mean {words[found[0]]}?" if found else ""


def one_of(*choices: str) -> Callable[[str], str]:
    """Return a reader of one of some words, for ``argparse``.

    Examples
    --------
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


class Parser(argparse.ArgumentParser):
    """A parser that rejects abbreviations and suggests the nearest flag.

    The parser of the command refuses unknown arguments, with its usage and the nearest flag.
    `help_for` is called where the arguments hold ``--help``: it returns a page of its own, or None
    for the usual one.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **options})
        self.help_for: Callable[[Sequence[str]], str | None] = _usual_help

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse, and refuse what is unknown."""
        given = list(args or ())
        if {"-h", "--help"}.intersection(given):
            page = self.help_for(given)
            if page is not None:
                print(page, end="")
                self.exit(0)
        # Shells expand what stands alone, not what follows an equals sign.
        given = [_expanded(word) for word in given] if args is not None else given
        given = self._bare(given)
        found, unknown = super().parse_known_args(given if args is not None else args, namespace)
        if unknown:
            self.refuse(unknown)
        return found, []

    def _bare(self, given: list[str]) -> list[str]:
        """Write out flags without their number: what follows may be a scene."""
        optional = {
            name: action
            for action in self._actions
            for name in action.option_strings
            if action.nargs == "?" and callable(action.type)
        }
        found = list(given)
        for i, word in enumerate(given):
            if word in optional and not _reads(optional[word].type, given[i + 1 : i + 2]):
                found[i] = f"{word}={optional[word].const}"
        return found

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """End the program because of arguments that no one expects."""
        flags = [word.split("=")[0] for word in unknown if word.startswith("-")]
        hint = ""
        if flags:
            known = self.flags()
            meant = _OTHER_NAMES.get(flags[0])
            hint = f" Did you mean {meant}?" if meant in known else did_you_mean(flags[0], known)
        if not flags:
            hint = " Give all files side by side, before or behind the options."
        self.error(f"unrecognized arguments: {' '.join(unknown)}.{hint}")

    def error(self, message: str) -> NoReturn:
        """End the program with the usage and a line without the credentials of URLs."""
        super().error(redact(message))

    def flags(self) -> list[str]:
        """Return all flags."""
        return [name for action in self._actions for name in action.option_strings]


def _expanded(word: str) -> str:
    flag, mark, path = word.partition("=")
    is_home = mark and flag.startswith("--") and path.startswith("~")
    return f"{flag}={os.path.expanduser(path)}" if is_home else word


def _reads(read: Any, words: Sequence[str]) -> bool:
    """Whether there is a word that a flag takes."""
    try:
        return bool([read(word) for word in words])
    except (ValueError, argparse.ArgumentTypeError):
        return False


def _usual_help(_: Sequence[str]) -> str | None:
    return None
