"""Pairwise constraints as a user states them, checked and indexed by the rows they touch.

:class:`PairwiseConstraints` takes must-links, cannot-links and partial labels in global row
numbers, refuses what cannot be meant, finds contradictions, and keeps what the kernels need: the
*constrained* rows and the pairs in local numbering, that is, positions among these rows.  Partial
labels imply a pair for every two labeled rows; those are never listed.
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

#: Rows of a chain that are named before its middle is left out.
_CHAIN_ROWS = 12


def _fetched(values: ArrayLike, name: str) -> Any:
    values = fetched(values, name)
    if np.ma.is_masked(values):
        # NumPy would go on with what is below the mask.
        raise ConstraintError(
            f"{name} is a masked array with masked values; expected all of them. Leave such pairs "
            "out."
        )
    return values


def _integers(values: ArrayLike, name: str) -> Ints:
    """``values`` as int64, whatever their shape."""
    values = _fetched(values, name)
    try:
        array = np.asarray(values)
    except ValueError as error:  # ragged
        raise ConstraintError(f"{name} is not an array of integers: {error}") from error
    if array.size == 0:
        return array.astype(np.int64)
    if array.ndim == 0 and array.dtype.kind == "O":  # a set, a generator
        raise ConstraintError(
            f"{name} is of type {type(values).__name__}; expected an array of integers. "
            f"Pass list({name})."
        )
    if array.dtype.kind == "O" and all(isinstance(v, int | np.integer) for v in array.flat):
        array = np.array(array.tolist())
    kind = array.dtype.kind
    if kind == "b":
        raise ConstraintError(
            f"{name} has dtype bool; expected row numbers as integers. For a mask, pass "
            "numpy.flatnonzero(mask)."
        )
    if kind == "f":
        remedy = (
            f"The values are whole numbers: pass {name}.astype(numpy.int64)."
            if np.isfinite(array).all() and (array == np.floor(array)).all()
            else "Some values are not whole numbers."
        )
        raise ConstraintError(f"{name} has dtype {array.dtype}; expected integers. {remedy}")
    if kind not in "iu":
        raise ConstraintError(
            f"{name} has dtype {array.dtype}; expected row numbers as integers, or index labels if "
            "X is a pandas DataFrame."
        )
    if kind == "u" and int(array.max()) > np.iinfo(np.int64).max:
        raise ConstraintError(f"{name} holds {int(array.max())}; expected values below 2**63.")
    return array.astype(np.int64)


def check_pairs(pairs: ArrayLike | None, name: str, n_rows: int) -> Ints:
    """Pairs of ``name`` as an int64 (m, 2) array of row numbers in [0, n_rows)."""
    array = _integers([] if pairs is None else pairs, name)
    if array.shape == (0,):
        array = array.reshape(0, 2)
    if array.ndim != 2 or array.shape[1] != 2:
        raise ConstraintError(
            f"{name} has shape {array.shape}; expected (m, 2), one pair of row numbers a line."
        )
    outside = ((array < 0) | (array >= n_rows)).any(axis=1)
    if outside.any():
        at = int(np.argmax(outside))
        i, j = array[at].tolist()
        raise ConstraintError(
            f"{name}[{at}] = ({i}, {j}) is out of range; expected row numbers in [0, {n_rows}). "
            "Row numbers count from 0 over all of X."
        )
    selves = array[:, 0] == array[:, 1]
    if selves.any():
        at = int(np.argmax(selves))
        row = array[at, 0]
        raise ConstraintError(
            f"{name}[{at}] = ({row}, {row}) links row {row} to itself; expected two different "
            "rows. Remove that pair."
        )
    return array


def check_weight(weight: float | ArrayLike | None, name: str, n_pairs: int) -> Floats:
    """Weights of ``name``, one a pair: finite and not negative."""
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
            f"{name} is not numeric ({error}); expected a number or one number a pair."
        ) from error
    if array.ndim > 1 or (array.ndim == 1 and array.size != n_pairs):
        raise ConstraintError(
            f"{name} has shape {array.shape}; expected a number or shape ({n_pairs},), one weight "
            f"for each of the {n_pairs} pairs."
        )
    wrong = ~(np.isfinite(array) & (array >= 0))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise ConstraintError(
            f"{name}{f'[{at}]' * array.ndim} = {float(array.flat[at])}; expected finite weights "
            ">= 0. A weight of 0 switches a pair off; for constraints that must hold use COPKMeans."
        )
    return np.full(n_pairs, array) if array.ndim == 0 else array


def must_link_components(
    rows: Ints, left: Ints, right: Ints, kinds: Bools, classes: Ints, values: Array
) -> tuple[Ints, int, str]:
    """Join constrained rows by their must-links and labels, and find what contradicts that.

    Arguments and results (`component`, the number of contradictions, the first of them in words)
    are those of :class:`PairwiseConstraints`.
    """
    # The rows and, after them, one node a class: a star around it, not a clique, has L edges
    # instead of L^2 / 2.
    m, n_classes = rows.size, values.size
    labeled = np.flatnonzero(classes >= 0)
    start = np.concatenate([left[kinds], labeled])
    end = np.concatenate([right[kinds], m + classes[labeled]])
    # Entries of repeated pairs add up: floats cannot wrap round to 0, "no edge".
    graph = csr_array((np.ones(start.size), (start, end)), shape=(m + n_classes, m + n_classes))
    count, component = connected_components(graph, directed=False)
    # The last assignment counts: the smallest node of each.
    first = np.empty(count, dtype=np.int64)
    first[component[::-1]] = np.arange(component.size)[::-1]
    component = np.argsort(np.argsort(first))[component]
    inside = np.flatnonzero(~kinds & (component[left] == component[right]))
    # Two classes in one component: rows of different classes are must-linked.
    _, first, inverse = np.unique(component[m:], return_index=True, return_inverse=True)
    merged = np.flatnonzero(first[inverse] != np.arange(n_classes))
    words = ""
    if merged.size:
        other, here = int(first[inverse[merged[0]]]), int(merged[0])
        path = _shortest_path(graph, m + other, m + here)
        # Up to the next class node: the piece between two neighboring classes is pure must-links.
        chain = path[1 : next(at for at in range(1, len(path)) if path[at] >= m)]
        ends = (f"{rows[at]} is labeled {values[classes[at]]}" for at in (chain[0], chain[-1]))
        words = f"{_describe(chain, rows, values)}, but {' and '.join(ends)}"
    elif inside.size:
        a, b = int(left[inside[0]]), int(right[inside[0]])
        chain = _shortest_path(graph, a, b)
        words = f"{_describe(chain, rows, values)}, {rows[a]}-{rows[b]} cannot-linked"
    return component[:m], int(inside.size + merged.size), words


def _shortest_path(graph: csr_array, start: int, end: int) -> list[int]:
    """Nodes from ``start`` to ``end``, which are connected, by breadth-first search."""
    _, before = breadth_first_order(graph, start, directed=False, return_predecessors=True)
    path = [end]
    while path[-1] != start:
        path.append(int(before[path[-1]]))
    return path[::-1]


def _describe(path: list[int], rows: Ints, values: Array) -> str:
    """``0-5-9 must-linked`` for a path of rows; class nodes read ``5 and 9 both labeled 2``."""
    parts: list[str] = []
    names: list[str] = []  # of the chain at the end of the path so far
    for at, node in enumerate([*path, rows.size]):
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
        if at < len(path):
            before, after = rows[path[at - 1]], rows[path[at + 1]]
            parts.append(f"{before} and {after} both labeled {values[node - rows.size]}")
    return ", ".join(parts)


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
    pool = _PairPool.of(read_labels(y, np.inf).without_negative())
    sizes = {
        "must": int(pool.must_ends[-1]) if kind != "cannot" else 0,
        "cannot": int(pool.cannot_ends[-1]) if kind != "must" else 0,
    }
    if n_pairs is None:
        _check_listable(sum(sizes.values()))
        must, cannot = (
            listed(np.arange(sizes[name], dtype=np.int64))
            for name, listed in (("must", pool.must), ("cannot", pool.cannot))
        )
        return must[np.lexsort(must.T[::-1])], cannot[np.lexsort(cannot.T[::-1])]

    count_all = _count(n_pairs)
    cannots = {"both": count_all // 2, "must": 0, "cannot": count_all}[kind]
    wanted = {"must": count_all - cannots, "cannot": cannots}
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
    must = pool.must(_distinct_pairs(rng, sizes["must"], wanted["must"]))
    cannot = pool.cannot(_distinct_pairs(rng, sizes["cannot"], wanted["cannot"]))
    return must, cannot


def _count(n_pairs: int) -> int:
    """Return ``n_pairs`` as an int, NumPy's integers included."""
    is_count = isinstance(n_pairs, int | np.integer) and not isinstance(n_pairs, bool)
    if not is_count or n_pairs < 0:
        raise ValueError(f"n_pairs={n_pairs!r}; expected an integer >= 0, or None for all pairs.")
    return int(n_pairs)


def _check_listable(count: int) -> None:
    if count > _MAX_LISTED:
        raise ConstraintError(
            f"{count} pairs would be listed; expected at most {_MAX_LISTED}. Draw a sample with "
            "n_pairs=..., or give y to fit, which uses all implied pairs without listing them."
        )


def _distinct_pairs(rng: np.random.Generator, pool: int, count: int) -> Ints:
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
        rows = labels.rows[np.argsort(labels.codes, kind="stable")].astype(np.int64)
        sizes = np.bincount(labels.codes, minlength=labels.n_classes)
        starts = np.cumsum([0, *sizes])
        later = rows.size - starts[1:]
        return cls(
            rows, starts, np.cumsum([0, *sizes * (sizes - 1) // 2]), np.cumsum([0, *sizes * later])
        )

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
    # Stable: the pairs of a row stay in the order given, so sums of costs are repeatable.
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
    """Checked constraints, indexed by the rows they touch.

    Made by :meth:`from_fit_arguments`.  "Local" row numbers are positions in
    :attr:`rows`.  Repeated pairs are kept and count repeatedly; a pair in both
    sets is kept in both; a pair of weight 0 is dropped.

    `rows` (m,) are the global numbers of the rows in a pair or with a label, ascending.
    `pair_left`, `pair_right` (n_pairs,) are local ends of the explicit pairs, must-links first, in
    the order given; so are their kinds and weights. Doubled pairs are kept by rows: those of local
    row i are the entries ``indptr[i]:indptr[i + 1]`` of `neighbors` (the other ends), `pair_index`
    and `is_must_link`. `classes` (m,) are codes of labels, -1 without one, and `class_values` the
    labels, ascending; pairs that they imply have the scalar weight given, else 1. `component` (m,)
    is the must-link component, numbered by the smallest row: rows of one class are in one, through
    their label, and a row without a must-link is in one of its own. Contradictions are cannot-links
    inside a component, and further classes in one; `contradiction` is the first one in words.
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
        """Check and index the constraints given to ``fit``; contradictions are not refused here.

        Pairs (m, 2) are of global row numbers. A weight is that of all pairs of a kind, also of
        those that labels imply, or one a pair.

        Cost O(n_pairs log n_pairs + n_labeled log n_labeled).
        """
        must = check_pairs(must_link, "must_link", n_rows)
        cannot = check_pairs(cannot_link, "cannot_link", n_rows)
        weights = np.concatenate(
            [
                check_weight(must_link_weight, "must_link_weight", len(must)),
                check_weight(cannot_link_weight, "cannot_link_weight", len(cannot)),
            ]
        )
        given = NO_LABELS if y is None else read_labels(y, n_rows).without_negative()
        # A weight of 0 switches a pair off: as if it had not been given.
        kept = weights > 0
        kinds = np.arange(len(weights)) < len(must)
        return cls._indexed(
            int(n_rows),
            np.concatenate([must, cannot])[kept],
            kinds[kept],
            weights[kept],
            given.rows,
            given.codes.astype(np.int64),
            given.classes,
            implied=[
                # Where weights are those of explicit pairs, implied ones have none of their own.
                1.0 if weight is None or np.ndim(weight) else float(np.asarray(weight, float))
                for weight in (must_link_weight, cannot_link_weight)
            ],
        )

    def warn_of_contradictions(self) -> None:
        """Warn, naming the first chain, where constraints that may be violated contradict."""
        if self.n_contradictions:
            warn(
                f"{self._contradictions()} At least one of them will be violated; remove the "
                "wrong ones.",
                ConstraintWarning,
            )

    def refuse_contradictions(self) -> None:
        """Raise, naming the first chain, where constraints that must hold contradict."""
        if self.n_contradictions:
            raise ConstraintError(
                f"{self._contradictions()} No clustering satisfies them; remove one of the pairs "
                "or labels named, or use PCKMeans, which may violate constraints."
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
        # Distinct; the hash table of numpy.unique takes ten times as long for millions.
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
        """Return the constraints of the other rows.

        `absent` (m,), bool: touched rows that are left out, with all their pairs and labels.
        """
        kept = ~(absent[self.pair_left] | absent[self.pair_right])
        labeled = np.flatnonzero((self.classes >= 0) & ~absent)
        present, codes = np.unique(self.classes[labeled], return_inverse=True)
        pairs = np.stack([self.pair_left[kept], self.pair_right[kept]], axis=1)
        return self._indexed(
            self.n_rows,
            self.rows[pairs],
            self.pair_is_must_link[kept],
            self.pair_weight[kept],
            self.rows[labeled],
            codes,
            self.class_values[present],
            implied=(self.implied_must_link_weight, self.implied_cannot_link_weight),
        )

    @property
    def n_pairs(self) -> int:
        """Number of explicit pairs, repeats counted."""
        return int(self.pair_left.size)

    @property
    def n_classes(self) -> int:
        """Number of classes among the partial labels."""
        return int(self.class_values.size)

    @property
    def n_groups(self) -> int:
        """Number of groups of rows that must-links join, single rows included."""
        components = int(self.component.max(initial=-1)) + 1
        return self.n_rows - len(self.rows) + components

    def units(self) -> Ints:
        """Return a number for each pair (n_pairs,), equal for pairs that can imply each other.

        Must-links of one component have one number, and so do all cannot-links between the same
        two components.  Numbers of must-links come first.
        """
        ends = np.stack([self.component[self.pair_left], self.component[self.pair_right]], axis=1)
        ends.sort(axis=1)
        # A cannot-link inside a component goes with the must-links that it contradicts.
        between = (ends[:, 0] != ends[:, 1]).astype(np.int64)
        keys = np.column_stack([between, ends])
        return np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)

    def folds(self, n_folds: int, seed: int) -> Ints:
        """Return the fold of each pair (n_pairs,); no pair follows from the pairs of other folds.

        The :meth:`units` are dealt in random order, large ones first, must-links before
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
        """Hash of everything that bears on the result, the same on every machine."""
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
            # The length comes first, or values could move from one array to the next unseen.
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
