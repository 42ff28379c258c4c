"""The docstrings of the estimators, for the terminal."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from daskclust.commands.parser import Parser

__all__ = ["NEEDED", "Described", "page_of", "parameters_of", "summary_of"]

_SECTION = re.compile(r"^Parameters\n-+\n(.*?)(?=^\w[^\n]*\n-+\n|\Z)", re.MULTILINE | re.DOTALL)
_ENTRY = re.compile(r"(\w+(?:, \w+)*) ?: ?(.*)")
_DEFAULT = re.compile(r",? ?default ?= ?.*$")
#: A description that stands elsewhere.
_ELSEWHERE = re.compile(r"As in :class:`(?:daskclust\.)?(\w+)`\.")
#: Numbers without a useful default: they have to be given.
NEEDED = ("n_clusters", "n_components")
#: Flags of another name, and those that are explained with the command.
_NO_FLAG = ("random_state", "checkpoint")


@dataclass(frozen=True)
class Described:
    """The type of a parameter, without the default, and its text as one paragraph."""

    kind: str
    text: str


def summary_of(kind: type) -> str:
    """Return the first sentence about a class."""
    return _plain((inspect.getdoc(kind) or "").partition("\n\n")[0])


def parameters_of(kind: type, others: Mapping[str, type]) -> dict[str, Described]:
    """Return what a class's docstring says about its parameters.

    `others` are the classes that "As in :class:`Name`" leads to.

    >>> import daskclust
    >>> parameters_of(daskclust.KMeans, {})["max_iter"]
    Described(kind='int', text='Maximum number of iterations.')
    """
    found: dict[str, Described] = {}
    for names, head, body in _entries(kind):
        there = _ELSEWHERE.fullmatch(body)
        other = None if there is None else others.get(there[1])
        elsewhere = {} if other in (None, kind) else parameters_of(other, others)
        for name in names:
            text = elsewhere[name].text if name in elsewhere else _plain(body)
            found[name] = Described(_plain(_DEFAULT.sub("", head)), text)
    return found


def _entries(kind: type) -> list[tuple[list[str], str, str]]:
    """Return names, type and description of each entry under "Parameters"."""
    section = _SECTION.search(inspect.getdoc(kind) or "")
    found: list[tuple[list[str], str, list[str]]] = []
    for line in (section[1] if section else "").splitlines():
        entry = None if line.startswith(" ") else _ENTRY.fullmatch(line)
        if entry is not None:
            found.append((entry[1].split(", "), entry[2], []))
        elif found:
            found[-1][2].append(line.strip())
    texts = [" ".join(filter(None, body)) for _, _, body in found]
    for at in reversed(range(len(texts) - 1)):
        # Entries in a row share the words below the last one.
        texts[at] = texts[at] or texts[at + 1]
    return [(names, head, text) for (names, head, _), text in zip(found, texts, strict=True)]


def _plain(text: str) -> str:
    """Return reStructuredText as it reads aloud.

    Examples
    --------
    >>> _plain("As ``init`` of :class:`daskclust.KMeans` [1]_ says.")
    'As init of KMeans says.'
    """
    text = re.sub(r":\w+:`(?:[\w.]*\.)?(\w+)`", r"\1", text)
    text = re.sub(r" ?\[\d+\]_", "", text)
    return " ".join(text.replace("``", "").split())


def page_of(word: str, kind: Any, others: Mapping[str, type]) -> str:
    """Return the help about one estimator: what it is, and its parameters as flags.

    `word` is its name on the command line, `others` all estimators by the name of their class.
    """
    parser = Parser(
        prog="daskclust fit",
        usage=f"%(prog)s CUBE --estimator {word} [parameters] [other options]",
        description=f"{kind.__name__}: {summary_of(kind)}",
        epilog="Values are numbers, words or JSON. --seed fixes all random draws. All other "
        "options: daskclust fit --help",
        add_help=False,
        formatter_class=partial(argparse.HelpFormatter, max_help_position=8),
    )
    group = parser.add_argument_group(f"parameters of {kind.__name__}")
    described = parameters_of(kind, others)
    defaults = kind().get_params(deep=False)
    # In the order of the docstring, the important ones first.
    for name in sorted(defaults, key=list(inspect.signature(kind).parameters).index):
        if name in _NO_FLAG:
            continue
        default = "none, it is needed" if name in NEEDED else defaults[name]
        said = described.get(name, Described("", ""))
        about = f"{said.kind}; " if said.kind else ""
        group.add_argument(
            "--" + name.replace("_", "-"),
            metavar="VALUE",
            help=f"{said.text} ({about}default: {default})".replace("%", "%%"),
        )
    return parser.format_help()
