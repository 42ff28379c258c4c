"""Pairwise constraints as arguments of ``fit``, checked and indexed by their rows.

:class:`PairwiseConstraints` takes must-links, cannot-links and partial labels with global row
numbers.  It rejects invalid pairs, finds contradictions, and stores what the kernels need: the
*constrained* rows, and the pairs in local numbers, which are positions among these rows.  Partial
labels imply a pair for every two labeled rows; the implied pairs are never listed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from daskclust.core.array_types import Array, Bools, Floats, Ints
from daskclust.core.estimator.partial_labels import NO_LABELS, PartialLabels, read_labels
from daskclust.core.estimator.validation import as_labels, fetched
from daskclust.core.kernels.pairs import pair_contradictions, violated_pairs
from daskclust.core.warn import warn
from daskclust.exceptions import ConstraintError, ConstraintWarning

#: Maximum number of rows of a chain in a message; the middle of longer chains is omitted.
_CHAIN_ROWS = 12


def _fetched(values: ArrayLike, name: str) -> Any:
    values = fetched(values, name)
    if np.ma.is_masked(values):
        # NumPy would ignore the mask and use the hidden values.
        raise ConstraintError(f"{name} must not contain masked values. Remove the masked pairs.")
    return values


def _integers(values: ArrayLike, name: str) -> Ints:
    """Return ``values`` of any shape as int64."""
    values = _fetched(values, name)
    try:
        array = np.asarray(values)
    except ValueError as error:  # ragged
        raise ConstraintError(f"{name} must be an array of integers: {error}") from error
    if array.size == 0:
        return array.astype(np.int64)
    if array.ndim == 0 and array.dtype.kind == "O":  # a set, a generator
        raise ConstraintError(
            f"{name} must be an array of integers, got {type(values).__name__}. Use list({name})."
        )
    if array.dtype.kind == "O" and all(isinstance(v, int | np.integer) for v in array.flat):
        array = np.array(array.tolist())
    kind = array.dtype.kind
    if kind == "b":
        raise ConstraintError(
            f"{name} must contain row numbers as integers, got dtype bool. For a mask, use "
            "numpy.flatnonzero(mask)."
        )
    if kind == "f":
        remedy = (
            f"The values are integers: use {name}.astype(numpy.int64)."
            if np.isfinite(array).all() and (array == np.floor(array)).all()
            else "Some values are not integers."
        )
        raise ConstraintError(f"{name} must contain integers, got dtype {array.dtype}. {remedy}")
    if kind not in "iu":
        raise ConstraintError(
            f"{name} must contain row numbers as integers, or index labels if X is a pandas "
            f"DataFrame, got dtype {array.dtype}."
        )
    if kind == "u" and int(array.max()) > np.iinfo(np.int64).max:
        raise ConstraintError(f"{name} must contain integers below 2**63, got {int(array.max())}.")
    return array.astype(np.int64)


def check_pairs(pairs: ArrayLike | None, name: str, n_rows: int) -> Ints:
    """Return pairs as an int64 (m, 2) array of row numbers in [0, n_rows)."""
    array = _integers([] if pairs is None else pairs, name)
    if array.shape == (0,):
        array = array.reshape(0, 2)
    if array.ndim != 2 or array.shape[1] != 2:
        raise ConstraintError(
            f"{name} must have shape (m, 2), one pair of row numbers per line, got {array.shape}."
        )
    outside = ((array < 0) | (array >= n_rows)).any(axis=1)
    if outside.any():
        position = int(np.argmax(outside))
        i, j = array[position].tolist()
        raise ConstraintError(
            f"{name} must contain row numbers in [0, {n_rows}), got ({i}, {j}) at position "
            f"{position}. Row numbers count from 0 over all of X."
        )
    selves = array[:, 0] == array[:, 1]
    if selves.any():
        position = int(np.argmax(selves))
        row = array[position, 0]
        raise ConstraintError(
            f"{name} must contain pairs of different rows, got ({row}, {row}) at position "
            f"{position}. Remove this pair."
        )
    return array


def check_weight(weight: float | ArrayLike | None, name: str, n_pairs: int) -> Floats:
    """Return the weights of pairs, one per pair: finite and not negative."""
    if weight is None:
        return np.ones(n_pairs)
    weight = _fetched(weight, name)
    try:
        array = np.asarray(weight)
        if array.dtype.kind not in "iuf":
            raise TypeError(f"dtype {array.dtype}")
        array = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ConstraintError(
            f"{name} must be a number, or one number per pair, got {error}."
        ) from error
    if array.ndim > 1 or (array.ndim == 1 and array.size != n_pairs):
        raise ConstraintError(
            f"{name} must be a number or have shape ({n_pairs},), one weight per pair, got shape "
            f"{array.shape}."
        )
    wrong = ~(np.isfinite(array) & (array >= 0))
    if wrong.any():
        position = int(np.argmax(wrong))
        raise ConstraintError(
            f"{name}{f'[{position}]' * array.ndim} must be finite and >= 0, got "
            f"{float(array.flat[position])}. A weight of 0 disables a pair. For constraints that "
            "must hold, use COPKMeans."
        )
    return np.full(n_pairs, array) if array.ndim == 0 else array


def must_link_components(
    rows: Ints, left: Ints, right: Ints, kinds: Bools, classes: Ints, values: Array
) -> tuple[Ints, int, str]:
    """Connect constrained rows by their must-links and labels, and find contradictions.

    Arguments are those of :class:`PairwiseConstraints`.  Return `component`, the number of
    contradictions, and a description of the first one.
    """
    # Nodes are the rows, followed by one node per class.  Edges to the class node need L edges,
    # while edges between all rows of a class would need L^2 / 2.
    m, n_classes = rows.size, values.size
    labeled = np.flatnonzero(classes >= 0)
    start = np.concatenate([left[kinds], labeled])
    end = np.concatenate([right[kinds], m + classes[labeled]])
    # Entries of repeated pairs add up.  Integers could overflow to 0, which means "no edge".
    graph = csr_array((np.ones(start.size), (start, end)), shape=(m + n_classes, m + n_classes))
    count, component = connected_components(graph, directed=False)
    # The smallest node of each component.  Nodes are assigned in descending order, so the smallest
    # node is assigned last.
    first = np.empty(count, dtype=np.int64)
    first[component[::-1]] = np.arange(component.size)[::-1]
    component = np.argsort(np.argsort(first))[component]
    inside = np.flatnonzero(~kinds & (component[left] == component[right]))
    # Two classes in one component: rows of different classes are must-linked.
    _, first, inverse = np.unique(component[m:], return_index=True, return_inverse=True)
    merged = np.flatnonzero(first[inverse] != np.arange(n_classes))
    description = ""
    if merged.size:
        first_class, merged_class = int(first[inverse[merged[0]]]), int(merged[0])
        path = _shortest_path(graph, m + first_class, m + merged_class)
        # Up to the next class node: the rows between two class nodes are connected by must-links
        # only.
        chain = path[1 : next(at for at in range(1, len(path)) if path[at] >= m)]
        ends = (f"{rows[at]} is labeled {values[classes[at]]}" for at in (chain[0], chain[-1]))
        description = f"{_describe(chain, rows, values)}, but {' and '.join(ends)}"
    elif inside.size:
        a, b = int(left[inside[0]]), int(right[inside[0]])
        chain = _shortest_path(graph, a, b)
        description = f"{_describe(chain, rows, values)}, {rows[a]}-{rows[b]} cannot-linked"
    return component[:m], int(inside.size + merged.size), description


def _shortest_path(graph: csr_array, start: int, end: int) -> list[int]:
    """Return the nodes of a shortest path between two connected nodes."""
    _, before = breadth_first_order(graph, start, directed=False, return_predecessors=True)
    path = [end]
    while path[-1] != start:
        path.append(int(before[path[-1]]))
    return path[::-1]


def _describe(path: list[int], rows: Ints, values: Array) -> str:
    """Format a path, such as ``0-5-9 must-linked``, or ``5 and 9 both labeled 2`` for a class."""
    parts: list[str] = []
    names: list[str] = []  # of the current chain
    for i, node in enumerate([*path, rows.size]):
        if node < rows.size:
            names.append(str(rows[node]))
            continue
        if len(names) > _CHAIN_ROWS:
            half = _CHAIN_ROWS // 2
            hidden = f"...({len(names) - 2 * half} more)..."
            names = [*names[:half], hidden, *names[-half:]]
        if len(names) > 1:
            parts.append(f"{'-'.join(names)} must-linked")
        names = []
        if i < len(path):
            before, after = rows[path[i - 1]], rows[path[i + 1]]
            parts.append(f"{before} and {after} both labeled {values[node - rows.size]}")
    return ", ".join(parts)


#: Maximum number of listed pairs (16 bytes per pair).
_MAX_LISTED = 50_000_000


def pairs_from_labels(
    y: Any,
    *,
    n_pairs: int | None = None,
    kind: Literal["both", "must", "cannot"] = "both",
    random_state: int | np.random.Generator | np.random.RandomState | None = None,
) -> tuple[Ints, Ints]:
    """Return the must-links and cannot-links that labels imply: all, or a random sample.

    Parameters
    ----------
    y : array-like or dask.array.Array of shape (n,), or (rows, labels)
        Partial labels: integers, integer floats, or strings; -1 or a mask means no label.
    n_pairs : int, optional
        Number of pairs to draw, uniformly and without repetition; None for all pairs.
        With ``kind="both"``, half of them are must-links and half are cannot-links; an
        odd pair is a must-link.
    kind : {"both", "must", "cannot"}, default="both"
        Kind of the pairs.
    random_state : int, Generator, RandomState or None
        Seed of the sample.

    Returns
    -------
    must_link, cannot_link : int64 arrays of shape (m, 2)
        Pairs (i, j) of row numbers with i < j.  One array is empty unless
        ``kind="both"``.  A sample is in random order, so its first pairs are a smaller
        sample.  All pairs are in ascending order.

    Notes
    -----
    The cost is O(n log n + n_pairs log n_pairs).  Pairs are drawn by their number, so
    the set of all pairs is never listed.  To use *all* labels, pass ``y`` to ``fit``,
    which needs no pairs.

    Examples
    --------
    >>> must_link, cannot_link = pairs_from_labels([0, 0, 1, -1])
    >>> must_link.tolist(), cannot_link.tolist()
    ([[0, 1]], [[0, 2], [1, 2]])
    """
    if kind not in ("both", "must", "cannot"):
        raise ValueError(f"kind must be 'both', 'must' or 'cannot', got {kind!r}.")
    y = as_labels(y)
    pool = _PairPool.of(read_labels(y, np.inf).without_negative())
    sizes = {
        "must": int(pool.must_ends[-1]) if kind != "cannot" else 0,
        "cannot": int(pool.cannot_ends[-1]) if kind != "must" else 0,
    }
    if n_pairs is None:
        _check_listable(sum(sizes.values()))
        must, cannot = (
            pairs_of(np.arange(sizes[name], dtype=np.int64))
            for name, pairs_of in (("must", pool.must), ("cannot", pool.cannot))
        )
        return must[np.lexsort(must.T[::-1])], cannot[np.lexsort(cannot.T[::-1])]

    count_all = _count(n_pairs)
    cannots = {"both": count_all // 2, "must": 0, "cannot": count_all}[kind]
    wanted = {"must": count_all - cannots, "cannot": cannots}
    for name, count in wanted.items():
        if count > sizes[name]:
            raise ConstraintError(
                f"n_pairs must be at most the number of implied pairs: n_pairs={n_pairs} with "
                f"kind={kind!r} needs {count} {name}-links, got {sizes[name]}. Use fewer pairs or "
                "more labels."
            )
    _check_listable(count_all)
    rng = (
        np.random.default_rng(random_state.randint(2**31, size=4))
        if isinstance(random_state, np.random.RandomState)
        else np.random.default_rng(random_state)
    )
    must = pool.must(_distinct_pairs(rng, sizes["must"], wanted["must"]))
    cannot = pool.cannot(_distinct_pairs(rng, sizes["cannot"], wanted["cannot"]))
    return must, cannot


def _count(n_pairs: int) -> int:
    """Return ``n_pairs`` as an int; NumPy integers are allowed."""
    is_count = isinstance(n_pairs, int | np.integer) and not isinstance(n_pairs, bool)
    if not is_count or n_pairs < 0:
        raise ValueError(
            f"n_pairs must be an integer >= 0, or None for all pairs, got {n_pairs!r}."
        )
    return int(n_pairs)


def _check_listable(count: int) -> None:
    if count > _MAX_LISTED:
        raise ConstraintError(
            f"At most {_MAX_LISTED} pairs can be listed, got {count}. Draw a sample with "
            "n_pairs=..., or pass y to fit, which uses all implied pairs without listing them."
        )


def _distinct_pairs(rng: np.random.Generator, pool: int, count: int) -> Ints:
    """Draw distinct numbers in [0, pool), uniformly, in random order; O(count log count)."""
    if 2 * count > pool:
        return rng.permutation(pool)[:count].astype(np.int64)
    drawn = np.empty(0, dtype=np.int64)
    while drawn.size < count:
        # At most half of the pool is drawn, so a few rounds suffice.  The first occurrences of the
        # numbers are uniform and in random order.
        missing = count - drawn.size
        fresh = rng.integers(pool, size=missing + missing // 2 + 16, dtype=np.int64)
        drawn = np.concatenate([drawn, fresh])
        _, first = np.unique(drawn, return_index=True)
        drawn = drawn[np.sort(first)]
    return drawn[:count]


@dataclass(frozen=True, eq=False)
class _PairPool:
    """All pairs of labeled rows, with a number for each pair, but without a list.

    Rows are sorted by class.  Class c has the positions ``starts[c]:starts[c + 1]`` of
    :attr:`rows`.
    """

    rows: Ints
    starts: Ints
    must_ends: Ints  # (n_classes + 1,) number of must-links of the classes before c
    cannot_ends: (
        Ints  # (n_classes + 1,) number of cannot-links of the classes before c with later classes
    )

    @classmethod
    def of(cls, labels: PartialLabels) -> _PairPool:
        rows = labels.rows[np.argsort(labels.codes, kind="stable")].astype(np.int64)
        sizes = np.bincount(labels.codes, minlength=labels.n_classes)
        starts = np.cumsum([0, *sizes])
        later = rows.size - starts[1:]
        return cls(
            rows, starts, np.cumsum([0, *sizes * (sizes - 1) // 2]), np.cumsum([0, *sizes * later])
        )

    def must(self, rank: Ints) -> Ints:
        """Return the must-links with the given numbers."""
        c = np.searchsorted(self.must_ends, rank, side="right") - 1
        within = rank - self.must_ends[c]
        # Pair b (b - 1) / 2 + a joins members a < b; rounding may change the root by one.
        b = ((1.0 + np.sqrt(1.0 + 8.0 * within)) / 2.0).astype(np.int64)
        b -= b * (b - 1) // 2 > within
        b += b * (b + 1) // 2 <= within
        a = within - b * (b - 1) // 2
        return self._pairs(self.starts[c] + a, self.starts[c] + b)

    def cannot(self, rank: Ints) -> Ints:
        """Return the cannot-links with the given numbers."""
        c = np.searchsorted(self.cannot_ends, rank, side="right") - 1
        within = rank - self.cannot_ends[c]
        later = self.rows.size - self.starts[c + 1]
        return self._pairs(self.starts[c] + within // later, self.starts[c + 1] + within % later)

    def _pairs(self, a: Ints, b: Ints) -> Ints:
        pairs = np.stack([self.rows[a], self.rows[b]], axis=1)
        pairs.sort(axis=1)
        return pairs


#: Fields of :meth:`PairwiseConstraints.contradicting`.
_CONTRADICTING_DTYPE = [
    ("i", np.int64),
    ("j", np.int64),
    ("kind", "U11"),
    ("weight", np.float64),
    ("cost", np.float64),
    ("violated", np.bool_),
]


def pairs_by_row(left: Ints, right: Ints, must: Bools, n_rows: int) -> dict[str, Any]:
    """Return the fields of :class:`PairwiseConstraints` that list the pairs of each row."""
    ends = np.concatenate([left, right])
    # Stable sorting keeps the order of the pairs of a row, so sums of costs are reproducible.
    order = np.argsort(ends, kind="stable")
    indptr = np.zeros(n_rows + 1, dtype=np.int64)
    np.cumsum(np.bincount(ends, minlength=n_rows), out=indptr[1:])
    pair_index = np.tile(np.arange(len(left), dtype=np.int64), 2)[order]
    return {
        "indptr": indptr,
        "neighbors": np.concatenate([right, left])[order].astype(np.int64),
        "pair_index": pair_index,
        "is_must_link": must[pair_index],
    }


@dataclass(frozen=True, eq=False)
class PairwiseConstraints:
    """Checked constraints, indexed by their rows.

    Created by :meth:`from_fit_arguments`.  "Local" row numbers are positions in
    :attr:`rows`.  Repeated pairs count repeatedly.  A pair in both sets stays in both sets.  A pair
    of weight 0 is removed.

    `rows` (m,) are the global numbers of the rows in a pair or with a label, ascending.
    `pair_left` and `pair_right` (n_pairs,) are local row numbers of the explicit pairs, must-links
    first, in the given order, like their kinds and weights.  Each pair is also listed by row: the
    pairs of local row i are the entries ``indptr[i]:indptr[i + 1]`` of `neighbors` (the other
    rows), `pair_index` and `is_must_link`.

    `classes` (m,) are label codes, -1 without a label, and `class_values` the labels, ascending.
    Implied pairs have the scalar weight if a scalar was given, otherwise 1.  `component` (m,) is
    the must-link component, numbered by its smallest row.  Rows of one class are in one component,
    and a row without must-links has its own component.  Contradictions are cannot-links inside a
    component, and additional classes in a component; `contradiction` describes the first one.
    """

    n_rows: int
    rows: Ints
    pair_left: Ints
    pair_right: Ints
    pair_is_must_link: Bools
    pair_weight: Floats
    indptr: Ints
    neighbors: Ints
    pair_index: Ints
    is_must_link: Bools
    classes: Ints
    class_values: Array
    implied_must_link_weight: float
    implied_cannot_link_weight: float
    component: Ints
    n_contradictions: int
    contradiction: str

    @classmethod
    def from_fit_arguments(
        cls,
        n_rows: int,
        must_link: ArrayLike | None = None,
        cannot_link: ArrayLike | None = None,
        must_link_weight: float | ArrayLike | None = None,
        cannot_link_weight: float | ArrayLike | None = None,
        y: Any = None,
    ) -> PairwiseConstraints:
        """Check and index the constraints of ``fit``; contradictions raise no error here.

        Pairs (m, 2) contain global row numbers.  A scalar weight applies to all pairs of a kind,
        including implied pairs; an array has one weight per pair.

        The cost is O(n_pairs log n_pairs + n_labeled log n_labeled).
        """
        must = check_pairs(must_link, "must_link", n_rows)
        cannot = check_pairs(cannot_link, "cannot_link", n_rows)
        weights = np.concatenate(
            [
                check_weight(must_link_weight, "must_link_weight", len(must)),
                check_weight(cannot_link_weight, "cannot_link_weight", len(cannot)),
            ]
        )
        labels = NO_LABELS if y is None else read_labels(y, n_rows).without_negative()
        # A weight of 0 disables a pair.
        used = weights > 0
        kinds = np.arange(len(weights)) < len(must)
        return cls._indexed(
            int(n_rows),
            np.concatenate([must, cannot])[used],
            kinds[used],
            weights[used],
            labels.rows,
            labels.codes.astype(np.int64),
            labels.classes,
            implied=[
                # An array of weights belongs to the explicit pairs; implied pairs then have weight
                # 1.
                1.0 if weight is None or np.ndim(weight) else float(np.asarray(weight, float))
                for weight in (must_link_weight, cannot_link_weight)
            ],
        )

    def warn_of_contradictions(self) -> None:
        """Warn with the first chain if constraints that may be violated contradict."""
        if self.n_contradictions:
            warn(
                f"{self._contradictions()} At least one constraint will be violated; remove the "
                "wrong ones.",
                ConstraintWarning,
            )

    def refuse_contradictions(self) -> None:
        """Raise ConstraintError with the first chain if constraints that must hold contradict."""
        if self.n_contradictions:
            raise ConstraintError(
                f"{self._contradictions()} No clustering satisfies them. Remove one of these pairs "
                "or labels, or use PCKMeans, which may violate constraints."
            )

    def _contradictions(self) -> str:
        count = self.n_contradictions
        more = "" if count == 1 else f" ({count} contradictions in all.)"
        return f"The constraints contradict each other: {self.contradiction}.{more}"

    @classmethod
    def _indexed(
        cls,
        n_rows: int,
        pairs: Ints,
        kinds: Bools,
        weights: Floats,
        label_rows: Ints,
        codes: Ints,
        values: Array,
        *,
        implied: Sequence[float],
    ) -> PairwiseConstraints:
        """Index checked constraints; ``values[codes]`` are the labels."""
        # Distinct rows; numpy.unique takes ten times as long for millions of rows.
        rows = np.sort(np.concatenate([pairs.ravel(), label_rows]))
        rows = rows[np.diff(rows, prepend=rows[:1] - 1) != 0]
        left, right = np.searchsorted(rows, pairs[:, 0]), np.searchsorted(rows, pairs[:, 1])
        classes = np.full(rows.size, -1, dtype=np.int64)
        classes[np.searchsorted(rows, label_rows)] = codes

        component, count, contradiction = must_link_components(
            rows, left, right, kinds, classes, values
        )
        return cls(
            n_rows=n_rows,
            rows=rows,
            pair_left=left.astype(np.int64),
            pair_right=right.astype(np.int64),
            pair_is_must_link=kinds,
            pair_weight=weights,
            **pairs_by_row(left, right, kinds, rows.size),
            classes=classes,
            class_values=values,
            implied_must_link_weight=implied[0],
            implied_cannot_link_weight=implied[1],
            component=component,
            n_contradictions=count,
            contradiction=contradiction,
        )

    def without(self, absent: Bools) -> PairwiseConstraints:
        """Return the constraints without some rows.

        `absent` (m,) is True for constrained rows to remove, with all their pairs and labels.
        """
        used = ~(absent[self.pair_left] | absent[self.pair_right])
        labeled = np.flatnonzero((self.classes >= 0) & ~absent)
        present, codes = np.unique(self.classes[labeled], return_inverse=True)
        pairs = np.stack([self.pair_left[used], self.pair_right[used]], axis=1)
        return self._indexed(
            self.n_rows,
            self.rows[pairs],
            self.pair_is_must_link[used],
            self.pair_weight[used],
            self.rows[labeled],
            codes,
            self.class_values[present],
            implied=(self.implied_must_link_weight, self.implied_cannot_link_weight),
        )

    @property
    def n_pairs(self) -> int:
        """Number of explicit pairs, including repeated ones."""
        return int(self.pair_left.size)

    @property
    def n_classes(self) -> int:
        """Number of classes among the partial labels."""
        return int(self.class_values.size)

    @property
    def n_groups(self) -> int:
        """Number of groups of must-linked rows, including single rows."""
        components = int(self.component.max(initial=-1)) + 1
        return self.n_rows - len(self.rows) + components

    def units(self) -> Ints:
        """Return a number for each pair (n_pairs,), equal for pairs that can imply each other.

        All must-links of one component have one number, and so do all cannot-links between the same
        two components.  Numbers of must-links come first.
        """
        ends = np.stack([self.component[self.pair_left], self.component[self.pair_right]], axis=1)
        ends.sort(axis=1)
        # A cannot-link inside a component has the number of the must-links that it contradicts.
        between = (ends[:, 0] != ends[:, 1]).astype(np.int64)
        keys = np.column_stack([between, ends])
        return np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)

    def folds(self, n_folds: int, seed: int) -> Ints:
        """Return the fold of each pair (n_pairs,); no pair follows from the pairs of other folds.

        The :meth:`units` are assigned to folds in random order, large ones first, must-links before
        cannot-links, so that folds have about equal numbers of both kinds.
        """
        unit = self.units()
        sizes = np.bincount(unit)
        between = np.zeros(len(sizes), bool)
        between[unit] = self.component[self.pair_left] != self.component[self.pair_right]
        order = np.random.default_rng(seed).permutation(len(sizes))
        order = order[np.lexsort((-sizes[order], between[order]))]
        fold = np.empty(len(sizes), np.int64)
        fold[order] = np.arange(len(sizes)) % n_folds
        return fold[unit]

    def digest(self) -> str:
        """Return a hash of everything that affects the result, equal on all machines."""
        hasher = hashlib.sha256(b"daskclust.PairwiseConstraints.1")
        for array in (
            np.array([self.n_rows], dtype=np.int64),
            self.rows,
            self.pair_left,
            self.pair_right,
            self.pair_is_must_link,
            self.pair_weight,
            self.classes,
            self.class_values,
            np.array([self.implied_must_link_weight, self.implied_cannot_link_weight]),
        ):
            # Hash the length first, so that values cannot move from one array to the next
            # unnoticed.
            hasher.update(f"{array.dtype.kind}{array.size};".encode())
            hasher.update(array.astype(array.dtype.newbyteorder("<")).tobytes())
        return hasher.hexdigest()

    def contradicting(self, labels: Ints, distances: Floats) -> np.recarray[Any, Any]:
        """Return the explicit pairs that contradict the clusters, sorted by decreasing cost.

        `labels` (m,) are the clusters of :attr:`rows`, and `distances` (m, k) the distances of
        these rows to the centers.  The result contains the pairs that the labels violate, and the
        pairs with a positive cost (:func:`pair_contradictions`).  Pairs of equal cost keep their
        order, must-links first.
        """
        ends = self.pair_left, self.pair_right
        costs = pair_contradictions(distances, *ends, self.pair_is_must_link)
        broken = violated_pairs(labels, *ends, self.pair_is_must_link)
        listed = np.flatnonzero(broken | (costs > 0))
        listed = listed[np.argsort(-costs[listed], kind="stable")]
        records = np.empty(listed.size, dtype=_CONTRADICTING_DTYPE)
        records["i"], records["j"] = (self.rows[end[listed]] for end in ends)
        records["kind"] = np.where(self.pair_is_must_link[listed], "must-link", "cannot-link")
        records["weight"] = self.pair_weight[listed]
        records["cost"] = costs[listed]
        records["violated"] = broken[listed]
        return records.view(np.recarray)
