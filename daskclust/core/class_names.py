"""Find class names that are probably misspellings of one class."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from itertools import combinations

from daskclust.core.warn import warn
from daskclust.exceptions import DaskclustWarning

#: Minimum number of letters of two names that differ by one letter to be reported.
_LETTERS = 5
#: Maximum number of pairs that a warning lists.
_LISTED = 5


def similar_names(names: Iterable[str]) -> list[tuple[str, str]]:
    """Return pairs of names that differ by case, accents or spaces, or by one letter.

    One letter counts only if both names have at least five letters.

    >>> similar_names(["Grunland", "Grünland", "C3", "C4", "maize", "Maise", "field 1", "field 2"])
    [('Grunland', 'Grünland'), ('Maise', 'maize')]
    """
    ordered = sorted(set(names))
    plain = {name: _plain(name) for name in ordered}
    # If two texts differ by one letter, removing one letter from one or both makes them equal.
    near = defaultdict[str, list[str]](list)
    for name, text in plain.items():
        for key in {text, *(text[:i] + text[i + 1 :] for i in range(len(text)))}:
            near[key].append(name)
    pairs = {pair for group in near.values() for pair in combinations(group, 2)}
    return sorted(pair for pair in pairs if _are_near(*map(plain.__getitem__, pair)))


def text_of_similar(names: Iterable[str]) -> str:
    """Return a sentence about similar names, or "" if there are none."""
    pairs = similar_names(names)
    if not pairs:
        return ""
    shown = ", ".join(f"{first!r} and {second!r}" for first, second in pairs[:_LISTED])
    more = f" and {len(pairs) - _LISTED} more pairs" if len(pairs) > _LISTED else ""
    return (
        f"Some class names are nearly the same: {shown}{more}. They are treated as different "
        "classes. Correct the names if they mean the same class."
    )


def warn_of_similar(names: Iterable[str]) -> None:
    """Warn about names that are probably misspellings of one class."""
    text = text_of_similar(names)
    if text:
        warn(text, DaskclustWarning)


def _plain(name: str) -> str:
    """Return a name without case, accents and spaces."""
    parts = unicodedata.normalize("NFKD", name.casefold())
    return "".join(part for part in parts if not (unicodedata.combining(part) or part.isspace()))


def _are_near(first: str, second: str) -> bool:
    if first == second:
        return True
    if min(sum(part.isalpha() for part in text) for text in (first, second)) < _LETTERS:
        return False
    short, long = sorted((first, second), key=len)
    position = next((i for i, part in enumerate(short) if part != long[i]), len(short))
    if not long[position].isalpha():
        return False
    if len(short) < len(long):
        return short[position:] == long[position + 1 :]
    return short[position].isalpha() and short[position + 1 :] == long[position + 1 :]
