"""Pairs drawn from labels, without listing the pool they are drawn from."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from daskclust._types import Ints
from daskclust.estimator.inputs import as_labels
from daskclust.estimator.partial_labels import PartialLabels, read_labels
from daskclust.exceptions import ConstraintError

__all__ = ["pairs_from_labels"]

#: Most pairs that are listed (16 bytes a pair).
_MAX_LISTED = 50_000_000


def pairs_from_labels(
    y: Any,
    *,
    n_pairs: int | None = None,
    kind: Literal["both", "must", "cannot"] = "both",
    random_state: int | np.random.Generator | np.random.RandomState | None = None,
) -> tuple[Ints, Ints]:
    """Must-links and cannot-links that labels imply: all of them, or a random sample.

    Parameters
    ----------
    y : array-like or dask.array.Array of shape (n,), or (rows, labels)
        Partial labels: integers, whole floats, or text; -1, or a mask, = none.
    n_pairs : int, optional
        Number of pairs to draw, uniformly and without repeats; None = all pairs.
        With ``kind="both"`` half of them are must-links and half cannot-links (the
        must-links get the odd one), as in the experiments of the PCSKM paper.
    kind : {"both", "must", "cannot"}
        Which pairs.
    random_state : int, Generator, RandomState or None
        Determines the sample.

    Returns
    -------
    must_link, cannot_link : int64 arrays of shape (m, 2)
        Pairs (i, j) of row numbers, i < j; one array is empty unless
        ``kind="both"``.  A sample comes in random order, so any leading part of it
        is a sample as well; all pairs come in ascending order.

    Notes
    -----
    Cost O(n log n + n_pairs log n_pairs): pairs are drawn by rank, the pool is
    never listed.  To use *all* labels give ``y`` to ``fit`` instead, which needs no
    pairs at all.

    Examples
    --------
    >>> must_link, cannot_link = pairs_from_labels([0, 0, 1, -1])
    >>> must_link.tolist(), cannot_link.tolist()
    ([[0, 1]], [[0, 2], [1, 2]])
    """
    if kind not in ("both", "must", "cannot"):
        raise ValueError(f"kind={kind!r}; expected 'both', 'must' or 'cannot'.")
    y = as_labels(y)
    pool = _PairPool.of(
        read_labels(y, np.inf if isinstance(y, tuple) else y.shape[0]).without_negative()
    )
    sizes = {
        "must": pool.n_must if kind != "cannot" else 0,
        "cannot": pool.n_cannot if kind != "must" else 0,
    }
    if n_pairs is None:
        _check_listable(sum(sizes.values()))
        must = pool.must(np.arange(sizes["must"], dtype=np.int64))
        cannot = pool.cannot(np.arange(sizes["cannot"], dtype=np.int64))
        return _ascending(must), _ascending(cannot)

    count_all = _count(n_pairs)
    wanted = {"must": 0, "cannot": 0}
    if kind == "both":
        wanted["must"], wanted["cannot"] = count_all - count_all // 2, count_all // 2
    else:
        wanted[kind] = count_all
    for name, count in wanted.items():
        if count > sizes[name]:
            raise ConstraintError(
                f"n_pairs={n_pairs} with kind={kind!r} needs {count} {name}-links, but the labels "
                f"imply {sizes[name]}. Ask for fewer pairs or give more labels."
            )
    _check_listable(count_all)
    rng = (
        np.random.default_rng(random_state.randint(2**31, size=4))
        if isinstance(random_state, np.random.RandomState)
        else np.random.default_rng(random_state)
    )
    must = pool.must(_distinct(rng, sizes["must"], wanted["must"]))
    cannot = pool.cannot(_distinct(rng, sizes["cannot"], wanted["cannot"]))
    return must, cannot


def _count(n_pairs: int) -> int:
    """Return ``n_pairs`` as an int, NumPy's integers included."""
    try:
        count = -1 if isinstance(n_pairs, bool) else operator.index(n_pairs)
    except TypeError:
        count = -1
    if count < 0:
        raise ValueError(f"n_pairs={n_pairs!r}; expected an integer >= 0, or None for all pairs.")
    return count


def _check_listable(count: int) -> None:
    if count > _MAX_LISTED:
        raise ConstraintError(
            f"{count} pairs would be listed; expected at most {_MAX_LISTED}. Draw a sample with "
            "n_pairs=..., or give y to fit, which uses all implied pairs without listing them."
        )


def _distinct(rng: np.random.Generator, pool: int, count: int) -> Ints:
    """``count`` distinct numbers of [0, pool), uniform and in random order, O(count log count)."""
    if 2 * count > pool:
        return rng.permutation(pool)[:count].astype(np.int64)
    drawn = np.empty(0, dtype=np.int64)
    while drawn.size < count:
        # At most half of the pool is taken, so a few rounds suffice.  Keeping first occurrences
        # in their order leaves the numbers uniform and in random order.
        missing = count - drawn.size
        fresh = rng.integers(pool, size=missing + missing // 2 + 16, dtype=np.int64)
        drawn = np.concatenate([drawn, fresh])
        _, first = np.unique(drawn, return_index=True)
        drawn = drawn[np.sort(first)]
    return drawn[:count]


def _ascending(pairs: Ints) -> Ints:
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]


@dataclass(frozen=True, eq=False)
class _PairPool:
    """All pairs of labeled rows, numbered without listing them.

    Rows are sorted by class; class c holds the positions
    ``starts[c]:starts[c + 1]`` of :attr:`rows`.
    """

    rows: Ints
    starts: Ints
    must_ends: Ints  # (n_classes + 1,) must-links of the classes before c
    cannot_ends: Ints  # (n_classes + 1,) cannot-links of the classes before c with later ones

    @classmethod
    def of(cls, labels: PartialLabels) -> _PairPool:
        rows = labels.rows[np.argsort(labels.codes, kind="stable")]
        sizes = np.bincount(labels.codes, minlength=labels.n_classes)
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        must = sizes * (sizes - 1) // 2
        cannot = sizes * (rows.size - starts[1:])
        return cls(
            rows.astype(np.int64),
            starts,
            np.concatenate([[0], np.cumsum(must)]).astype(np.int64),
            np.concatenate([[0], np.cumsum(cannot)]).astype(np.int64),
        )

    @property
    def n_must(self) -> int:
        return int(self.must_ends[-1])

    @property
    def n_cannot(self) -> int:
        return int(self.cannot_ends[-1])

    def must(self, rank: Ints) -> Ints:
        """Must-links of the given numbers."""
        c = np.searchsorted(self.must_ends, rank, side="right") - 1
        within = rank - self.must_ends[c]
        # Pair number b (b - 1) / 2 + a joins members a < b; the root may be one off by rounding.
        b = ((1.0 + np.sqrt(1.0 + 8.0 * within)) / 2.0).astype(np.int64)
        b -= b * (b - 1) // 2 > within
        b += b * (b + 1) // 2 <= within
        a = within - b * (b - 1) // 2
        return self._pairs(self.starts[c] + a, self.starts[c] + b)

    def cannot(self, rank: Ints) -> Ints:
        """Cannot-links of the given numbers."""
        c = np.searchsorted(self.cannot_ends, rank, side="right") - 1
        within = rank - self.cannot_ends[c]
        later = self.rows.size - self.starts[c + 1]
        return self._pairs(self.starts[c] + within // later, self.starts[c + 1] + within % later)

    def _pairs(self, a: Ints, b: Ints) -> Ints:
        pairs = np.stack([self.rows[a], self.rows[b]], axis=1)
        pairs.sort(axis=1)
        return pairs
