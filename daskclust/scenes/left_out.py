"""Labels that no row takes: on pixels without data, masked ones, and outside of the scene."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from daskclust.core.array_types import Bools, Ints
from daskclust.scenes.formats.vector import Features

#: Features that a message lists.
_LISTED = 10


#: Numbers that occur in a block, and of each the pixels that are labeled, valid and masked.
Counted = tuple[Ints, Ints, Ints, Ints]


def counted(numbers: Ints, valid: Bools, masked: Bools) -> Counted:
    """Count the labeled pixels of a block by a number, such as that of their feature.

    >>> valid, masked = np.array([True, False, True]), np.array([False, True, False])
    >>> [part.tolist() for part in counted(np.array([5, 5, 2]), valid, masked)]
    [[2, 5], [1, 2], [1, 1], [0, 1]]
    """
    found, places, labeled = np.unique(numbers, return_inverse=True, return_counts=True)
    size = len(found)
    one, other = (np.bincount(places[chosen], minlength=size) for chosen in (valid, masked))
    return found, labeled, one, other


@dataclass(frozen=True)
class Taken:
    """Labeled pixels by a number, and how many of them are valid or masked; others have no data."""

    labeled: Ints
    valid: Ints
    masked: Ints

    @classmethod
    def total(cls, parts: Sequence[Counted], size: int) -> Taken:
        """Sum the counts of blocks, by numbers in ``[0, size)``."""
        sums = np.zeros((3, size), np.int64)
        for numbers, *counts in parts:
            sums[:, numbers] += counts
        return cls(*sums)


def text_of(pixels: Taken, sources: Sequence[tuple[Features, Taken]]) -> str:
    """Return what was left out, and why; "" where all labels were taken.

    `pixels` are the counts of all sources together, of one number.

    >>> one = Taken(np.array([7]), np.array([4]), np.array([1]))
    >>> text_of(one, [])
    '3 of 7 labeled pixels are left out: 2 have no data and 1 is masked.'
    """
    labeled, valid, masked = (
        int(part[0]) for part in (pixels.labeled, pixels.valid, pixels.masked)
    )
    empty = labeled - valid - masked
    out = []
    if valid < labeled:
        why = [
            f"{count} {words[count != 1]}"
            for count, words in (
                (empty, ("has no data", "have no data")),
                (masked, ("is masked", "are masked")),
            )
            if count
        ]
        out.append(
            f"{labeled - valid} of {labeled} labeled pixels are left out: {' and '.join(why)}."
        )
    for features, taken in sources:
        out += _of_features(features, taken)
    return " ".join(out)


def _of_features(features: Features, taken: Taken) -> list[str]:
    """Return which features lost pixels, and why."""
    numbers = np.arange(len(features.classes))
    outside, beyond = (np.isin(numbers, some) for some in (features.outside, features.beyond))
    lost = (taken.labeled > 0) & (taken.valid == 0)
    # Other features of the same class may cover these pixels.
    small = np.isin(numbers, features.usable) & (taken.labeled == 0) & ~outside
    kinds = {
        "without data": lost & (taken.masked == 0),
        "masked, or without data": lost & (taken.masked > 0),
        "outside of the scene": outside,
        "without the center of a pixel of their own": small,
        "in part masked, or without data": (taken.valid < taken.labeled) & ~lost,
        "in part outside of the scene": beyond,
    }
    told = [
        f"{kind}: {_listed(features, chosen)}" for kind, chosen in kinds.items() if chosen.any()
    ]
    return [f"Of {len(numbers)} features of {features.source}, {'; '.join(told)}."] if told else []


def _listed(features: Features, chosen: Bools) -> str:
    numbers = np.flatnonzero(chosen).tolist()
    shown = ", ".join(f"{at} ({features.classes[at]})" for at in numbers[:_LISTED])
    return shown + (f" and {len(numbers) - _LISTED} more" if len(numbers) > _LISTED else "")
