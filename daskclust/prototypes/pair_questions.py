"""Which pairs to ask about: neighborhoods known so far, and points that belong to none yet.

Components of must-links that are cannot-linked to each other are *neighborhoods*: groups of
which it is known that they differ (Basu, Banerjee & Mooney 2004).  Other components are
*undecided*: they were compared with some neighborhoods, but not yet placed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskclust._types import Bools, Floats, Ints

__all__ = ["Answers", "expected_questions", "first_pairs", "normalized_uncertainty"]


@dataclass(frozen=True)
class Answers:
    """What is known of the points that were asked about.

    Attributes
    ----------
    component : ndarray of shape (m,), int64
        Of must-links, numbered 0, 1, ...
    apart : ndarray of shape (c, c), bool
        Components with a cannot-link between them.
    neighborhoods : ndarray of int64
        Components that are all apart from each other, the largest first.
    """

    component: Ints
    apart: Bools
    neighborhoods: Ints

    @classmethod
    def of(cls, component: Ints, left: Ints, right: Ints) -> Answers:
        """Find the neighborhoods.

        Parameters
        ----------
        component : ndarray of shape (m,), int64
        left, right : ndarray of int64
            Ends of the cannot-links, as positions in ``component``.

        Examples
        --------
        >>> known = Answers.of(np.array([0, 0, 1, 2]), np.array([0, 1]), np.array([2, 3]))
        >>> known.neighborhoods.tolist(), known.undecided.tolist()
        ([0, 1], [2])
        """
        count = int(component.max(initial=-1)) + 1
        apart = np.zeros((count, count), bool)
        a, b = component[left], component[right]
        apart[a, b] = apart[b, a] = True
        np.fill_diagonal(apart, False)
        sizes = np.bincount(component, minlength=count)
        chosen: list[int] = []
        for one in np.argsort(-sizes, kind="stable"):
            if apart[one, chosen].all():
                chosen.append(int(one))
        return cls(component, apart, np.array(chosen, np.int64))

    @property
    def undecided(self) -> Ints:
        """Components that are in no neighborhood."""
        count = len(self.apart)
        return np.setdiff1d(np.arange(count), self.neighborhoods)

    def knows(self, one: int, other: int) -> bool:
        """Whether two points are known to be together or apart."""
        a, b = self.component[one], self.component[other]
        return bool(a == b or self.apart[a, b])


def expected_questions(shares: Floats) -> Floats:
    """How many questions place a point, if the most probable neighborhood is asked first.

    Parameters
    ----------
    shares : ndarray of shape (n, l)

    Examples
    --------
    >>> expected_questions(np.array([[1.0, 0.0], [0.5, 0.5]]))
    array([1. , 1.5])
    """
    order = -np.sort(-shares, axis=1)
    found: Floats = order @ np.arange(1.0, shares.shape[1] + 1)
    return found


def normalized_uncertainty(shares: Floats) -> Floats:
    """Entropy by the number of questions that it takes to resolve it (NPU; Xiong et al. 2014).

    Parameters
    ----------
    shares : ndarray of shape (n, l)
        Of the neighborhoods.

    Examples
    --------
    >>> normalized_uncertainty(np.array([[1.0, 0.0], [0.5, 0.5]])).round(3)
    array([0.   , 0.462])
    """
    safe = np.where(shares > 0, shares, 1.0)
    entropy = 0.0 - (shares * np.log(safe)).sum(axis=1)  # never -0
    return np.asarray(entropy / expected_questions(shares))


def first_pairs(count: int) -> list[tuple[int, int]]:
    """Pairs of the first points, where nothing is known: all among as few as possible.

    Examples
    --------
    >>> first_pairs(4)
    [(0, 1), (0, 2), (1, 2), (0, 3)]
    """
    found: list[tuple[int, int]] = []
    later = 1
    while len(found) < count:
        found += [(earlier, later) for earlier in range(later)]
        later += 1
    return found[:count]
