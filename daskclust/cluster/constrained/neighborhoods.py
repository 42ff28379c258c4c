"""Starts from pairwise constraints: clusters that must-links cover, and sampling for the rest."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from daskclust._types import Floats, Ints
from daskclust.cluster.constrained.rows import ConstrainedRows
from daskclust.engine import Rows
from daskclust.kernels.constraints.neighborhoods import agreeing_components
from daskclust.kernels.nearest.assign import direct_distances, label_sums
from daskclust.kernels.nearest.observed_few import observed_distances, observed_label_sums

__all__ = ["Neighborhoods", "agreeing_groups", "choose_neighborhoods", "rows_to_sample"]


class Neighborhoods(NamedTuple):
    """Rows that belong together.

    Attributes
    ----------
    centroids : ndarray of shape (h, p), float64
        Largest first, ties by their smallest row; NaN for a feature that no row has.
    weights : ndarray of shape (h,), float64
        Rows of each.
    rows : ndarray of shape (m,), int64
        Global numbers of all their rows, ascending.
    """

    centroids: Floats
    weights: Floats
    rows: Ints

    @classmethod
    def of(cls, constrained: ConstrainedRows, group: Ints) -> Neighborhoods:
        """Return the groups of more than one row, and those with a label.

        Parameters
        ----------
        constrained : ConstrainedRows
        group : ndarray of shape (m,), int64
            Number of each constrained row's group, in the order of their smallest row.
        """
        labeled = constrained.constraints.classes >= 0
        used = np.flatnonzero((np.bincount(group)[group] > 1) | labeled)
        if not len(used):
            p = constrained.x.shape[1]
            return cls(np.empty((0, p)), np.empty(0), np.empty(0, dtype=np.int64))
        _, number = np.unique(group[used], return_inverse=True)
        kept = constrained.x[used], constrained.weight[used], number, int(number.max()) + 1
        if constrained.are_complete:
            sums, weights = label_sums(*kept)
            centroids = sums / weights[:, None]
        else:
            sums, masses, weights = observed_label_sums(*kept)
            centroids = np.divide(sums, masses, out=np.full_like(sums, np.nan), where=masses > 0)
        order = np.argsort(-weights, kind="stable")
        return cls(centroids[order], weights[order], constrained.constraints.rows[used])


def agreeing_groups(constrained: ConstrainedRows) -> Ints:
    """Group must-linked rows, and rows of one label, but none that may not be together.

    Where constraints contradict each other, must-links would join neighborhoods
    that cannot-links tell apart, in the end all into one.  So the must-links are
    joined one after another, heavy ones first, then short ones, and each that would
    do so is passed over.

    Returns
    -------
    ndarray of shape (m,), int64
        Number of each constrained row's group, in the order of their smallest row.
    """
    c = constrained.constraints
    if not c.n_contradictions:
        return c.component
    must = np.flatnonzero(c.pair_is_must_link)
    left, right = c.pair_left[must], c.pair_right[must]
    lengths = constrained.pair_lengths(left, right, np.ones(constrained.x.shape[1]))
    low, high = np.minimum(left, right), np.maximum(left, right)
    order = np.lexsort((high, low, lengths, -c.pair_weight[must]))
    # Rows of one label come before all pairs: each with the next of its class.
    labeled = np.flatnonzero(c.classes >= 0)
    labeled = labeled[np.argsort(c.classes[labeled], kind="stable")]
    same = c.classes[labeled[1:]] == c.classes[labeled[:-1]]
    left = np.concatenate([labeled[:-1][same], left[order]])
    right = np.concatenate([labeled[1:][same], right[order]])
    cannot = np.flatnonzero(~c.pair_is_must_link)
    foes = np.column_stack([c.pair_left[cannot], c.pair_right[cannot]])
    return agreeing_components(left, right, foes, c.classes)


def choose_neighborhoods(constrained: ConstrainedRows, k: int, *, agreeing: bool) -> Neighborhoods:
    """Choose at most k neighborhoods: the largest, then weighted farthest-first.

    The "Seeding" of the PCSKM paper: the next maximizes the least
    ``|c - c'| sqrt(n n')`` to those chosen.

    Parameters
    ----------
    constrained : ConstrainedRows
    k : int
    agreeing : bool
        Whether neighborhoods are :func:`agreeing_groups`; else they are the
        components of the must-links, as the paper has them.

    Returns
    -------
    Neighborhoods
        Those chosen, in order of choice, and the rows of all.
    """
    group = agreeing_groups(constrained) if agreeing else constrained.constraints.component
    found = Neighborhoods.of(constrained, group)
    centroids, weights = found.centroids, found.weights
    measure = direct_distances if constrained.are_complete else observed_distances
    chosen: list[int] = []
    least = np.full(len(centroids), np.inf)
    while len(chosen) < min(k, len(centroids)):
        # They come largest first, so the first of all that are infinitely far is the largest.
        new = int(np.argmax(least))
        length = np.sqrt(measure(centroids, centroids[new : new + 1], None)[:, 0])
        least = np.minimum(least, length * np.sqrt(weights * weights[new]))
        chosen.append(new)
        least[chosen] = -1.0
    return Neighborhoods(centroids[chosen], weights[chosen], found.rows)


def rows_to_sample(rows: Rows, found: Neighborhoods, n_missing: int) -> Rows:
    """Return the rows from which the centers that are missing are drawn.

    Those outside the neighborhoods, which lie in clusters that have their center
    already; all, where there are not enough others.
    """
    if not n_missing or rows.n_rows - len(found.rows) < n_missing:
        return rows
    return rows.excluding(found.rows)
