"""Parameters that are one of a few words say so in their types, which editors complete."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Iterator
from typing import Any

import pytest

import daskclust
from daskclust.core.persistence.models import registry
from daskclust.selection import choose_n_clusters

_ENTRY = re.compile(r"^ +(\w[\w, ]*) : (\{.*?\}.*)$", re.MULTILINE)


def words_of(kind: Any) -> set[str]:
    """Words that a type hint names."""
    if typing.get_origin(kind) is typing.Literal:
        return {word for word in typing.get_args(kind) if isinstance(word, str)}
    return {word for part in typing.get_args(kind) for word in words_of(part)}


def documented(thing: Any) -> Iterator[tuple[str, set[str]]]:
    """Parameters of a class or function whose docstring names words in braces."""
    text = re.sub(r"\\\n", "", inspect.getdoc(thing) or "").split("\nReturns\n")[0]
    text = re.sub(r"(\{[^}\n]*),\n", r"\1, ", text)
    # The first lines of entries lie at the margin of the docstring.
    for names, kind in _ENTRY.findall(re.sub(r"^(?=\w)", " ", text, flags=re.MULTILINE)):
        braces = re.search(r"\{([^}]*)\}", kind)
        words = set(re.findall(r'"([^"]+)"', braces.group(1) if braces else ""))
        if words:
            yield from ((name.strip(), words) for name in names.split(","))


THINGS = [*registry().values(), daskclust.open_cube, choose_n_clusters]


@pytest.mark.parametrize("thing", THINGS, ids=lambda thing: thing.__name__)
def test_choices_are_literals(thing: Any) -> None:
    function = thing.__init__ if inspect.isclass(thing) else thing
    hints = typing.get_type_hints(function)
    for name, words in documented(thing):
        if name in inspect.signature(function).parameters:
            assert words <= words_of(hints[name]), name


def test_the_docstrings_are_read() -> None:
    found = dict(documented(daskclust.KMeans))
    assert found["missing"] == {"error", "partial"}
    assert "robin" in found["init"]
    assert "stability" in dict(documented(choose_n_clusters))["criterion"]
