"""Names of classes that are probably one class, misspelt."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from itertools import combinations

from daskclust.core.warn import warn
from daskclust.exceptions import DaskclustWarning

#: Letters of the shortest names among which one letter is a slip.
_LETTERS = 5
#: Pairs that a warning lists.
_LISTED = 5


def similar_names(names: Iterable[str]) -> list[tuple[str, str]]:
    """Return pairs of different names that differ by case, accents or spaces, or by one letter.

    By a letter only if both names have five letters or more.

    >>> similar_names(["Grunland", "Grünland", "C3", "C4", "maize", "Maise", "field 1", "field 2"])
    [('Grunland', 'Grünland'), ('Maise', 'maize')]
    """
    ordered = sorted(set(names))
    plain = {name: _plain(name) for name in ordered}
    # Texts one letter apart have a text in common that is one letter shorter, or are it.
    near = defaultdict[str, list[str]](list)
    for name, text in plain.items():
        for key in {text, *(text[:at] + text[at + 1 :] for at in range(len(text)))}:
            near[key].append(name)
    pairs = {pair for group in near.values() for pair in combinations(group, 2)}
    return sorted(pair for pair in pairs if _are_near(*map(plain.__getitem__, pair)))


def text_of_similar(names: Iterable[str]) -> str:
    """Return a sentence on similar names; "" if no two are similar."""
    pairs = similar_names(names)
    if not pairs:
        return ""
    shown = ", ".join(f"{one!r} and {other!r}" for one, other in pairs[:_LISTED])
    more = f" and {len(pairs) - _LISTED} more pairs" if len(pairs) > _LISTED else ""
    return (
        f"Names of classes are nearly the same: {shown}{more}. They are taken for different "
        "classes. Correct the names if they mean one class."
    )


def warn_of_similar(names: Iterable[str]) -> None:
    """Warn of names that are probably one class, misspelt."""
    text = text_of_similar(names)
    if text:
        warn(text, DaskclustWarning)


def _plain(name: str) -> str:
    """Return a name without case, accents and spaces."""
    parts = unicodedata.normalize("NFKD", name.casefold())
    return "".join(part for part in parts if not (unicodedata.combining(part) or part.isspace()))


def _are_near(one: str, other: str) -> bool:
    if one == other:
        return True
    if min(sum(part.isalpha() for part in text) for text in (one, other)) < _LETTERS:
        return False
    short, long = sorted((one, other), key=len)
    at = next((i for i, part in enumerate(short) if part != long[i]), len(short))
    if not long[at].isalpha():
        return False
    if len(short) < len(long):
        return short[at:] == long[at + 1 :]
    return short[at].isalpha() and short[at + 1 :] == long[at + 1 :]
