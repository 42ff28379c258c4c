"""Constraints as a user states them: refused where they cannot be meant, or contradict themselves.

The closure of must-links is iterative: a chain of a million rows is one component like any
other.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from daskclust._types import Array, Bools, Floats, Ints
from daskclust.exceptions import ConstraintError

#: Rows of a chain that are named before its middle is left out.
_CHAIN_ROWS = 12


def _refuse_mask(values: ArrayLike, name: str) -> None:
    if np.ma.is_masked(values):
        # NumPy would go on with what is below the mask.
        raise ConstraintError(
            f"{name} is a masked array with masked values; expected all of them. Leave such pairs "
            "out."
        )


def _integers(values: ArrayLike, name: str) -> Ints:
    """``values`` as int64, whatever their shape."""
    _refuse_mask(values, name)
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
        raise ConstraintError(f"{name} has dtype {array.dtype}; expected row numbers as integers.")
    if kind == "u" and int(array.max()) > np.iinfo(np.int64).max:
        raise ConstraintError(f"{name} holds {int(array.max())}; expected values below 2**63.")
    return array.astype(np.int64)


def check_pairs(pairs: ArrayLike | None, name: str, n_rows: int) -> Ints:
    """Pairs of ``name`` as an int64 (m, 2) array of row numbers in [0, n_rows)."""
    if pairs is None:
        return np.empty((0, 2), dtype=np.int64)
    array = _integers(pairs, name)
    if array.size == 0 and (array.ndim == 1 or array.shape[1:] == (2,)):
        return np.empty((0, 2), dtype=np.int64)
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
        row = int(array[at, 0])
        raise ConstraintError(
            f"{name}[{at}] = ({row}, {row}) links row {row} to itself; expected two different "
            "rows. Remove that pair."
        )
    return array


def check_weight(weight: float | ArrayLike | None, name: str, n_pairs: int) -> Floats:
    """Weights of ``name``, one a pair: finite and not negative."""
    if weight is None:
        return np.ones(n_pairs)
    _refuse_mask(weight, name)
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
        where = "" if array.ndim == 0 else f"[{int(np.argmax(wrong))}]"
        value = float(array) if array.ndim == 0 else float(array[int(np.argmax(wrong))])
        raise ConstraintError(
            f"{name}{where} = {value}; expected finite weights >= 0. "
            "A weight of 0 switches a pair off; for constraints that must hold use COPKMeans."
        )
    return np.full(n_pairs, float(array)) if array.ndim == 0 else array


def scalar_or_one(weight: float | ArrayLike | None) -> float:
    """Weight of implied pairs: a scalar weight, and 1 where weights are per explicit pair."""
    if weight is None or np.ndim(weight) > 0:
        return 1.0
    return float(np.asarray(weight, dtype=np.float64))


def must_link_graph(left: Ints, right: Ints, classes: Ints, n_classes: int) -> csr_array:
    """Must-links as a graph of the m constrained rows and, after them, one node a class.

    A class is a star around its node, not a clique: L edges instead of L^2 / 2.
    """
    m = classes.size
    labeled = np.flatnonzero(classes >= 0)
    start = np.concatenate([left, labeled])
    end = np.concatenate([right, m + classes[labeled]])
    size = m + n_classes
    # Entries of repeated pairs add up: floats cannot wrap round to 0, "no edge".
    return csr_array((np.ones(start.size), (start, end)), shape=(size, size))


def components(graph: csr_array) -> Ints:
    """Component of each node of a :func:`must_link_graph`, in the order of their smallest node."""
    count, component = connected_components(graph, directed=False)
    # The last assignment counts: the smallest node of each.
    first = np.empty(count, dtype=np.int64)
    first[component[::-1]] = np.arange(component.size)[::-1]
    rank = np.empty(count, dtype=np.int64)
    rank[np.argsort(first)] = np.arange(count)
    found: Ints = rank[component]
    return found


def contradictions(
    graph: csr_array,
    component: Ints,
    rows: Ints,
    left: Ints,
    right: Ints,
    kinds: Bools,
    classes: Ints,
    values: Array,
) -> tuple[int, str]:
    """Count the contradictions, and put the first of them into words.

    `graph`: of :func:`must_link_graph`. `component`: of :func:`components`. `rows`, `left`,
    `right`, `kinds`, `classes`, `values`: see :class:`PairwiseConstraints`.
    """
    m, n_classes = rows.size, values.size
    inside = np.flatnonzero(~kinds & (component[left] == component[right]))
    # Two classes in one component: rows of different classes are must-linked.
    _, first, inverse = np.unique(component[m:], return_index=True, return_inverse=True)
    merged = np.flatnonzero(first[inverse] != np.arange(n_classes))
    count = int(inside.size + merged.size)
    if merged.size:
        other, here = int(first[inverse[merged[0]]]), int(merged[0])
        return count, _class_chain(graph, m + other, m + here, rows, classes, values)
    if inside.size:
        a, b = int(left[inside[0]]), int(right[inside[0]])
        chain = _describe(_shortest_path(graph, a, b), rows, values)
        return count, f"{chain}, {rows[a]}-{rows[b]} cannot-linked"
    return 0, ""


def _shortest_path(graph: csr_array, start: int, end: int) -> list[int]:
    """Nodes from ``start`` to ``end``, which are connected, by breadth-first search."""
    _, before = breadth_first_order(graph, start, directed=False, return_predecessors=True)
    path = [end]
    while path[-1] != start:
        path.append(int(before[path[-1]]))
    return path[::-1]


def _class_chain(
    graph: csr_array, start: int, end: int, rows: Ints, classes: Ints, values: Array
) -> str:
    """Words for a must-link chain between rows of two classes."""
    m = rows.size
    path = _shortest_path(graph, start, end)
    # Up to the next class node: the piece between two neighboring classes is pure must-links.
    stop = next(at for at in range(1, len(path)) if path[at] >= m)
    chain = path[1:stop]
    a, b = chain[0], chain[-1]
    return (
        f"{_describe(chain, rows, values)}, but {rows[a]} is labeled {values[classes[a]]} "
        f"and {rows[b]} is labeled {values[classes[b]]}"
    )


def _describe(path: list[int], rows: Ints, values: Array) -> str:
    """``0-5-9 must-linked`` for a path of rows; class nodes read ``5 and 9 both labeled 2``."""
    m = rows.size
    parts: list[str] = []
    chain: list[int] = []
    for at, node in enumerate(path):
        if node < m:
            chain.append(int(rows[node]))
            continue
        if len(chain) > 1:
            parts.append(f"{_elide(chain)} must-linked")
        chain = []
        before, after = int(rows[path[at - 1]]), int(rows[path[at + 1]])
        parts.append(f"{before} and {after} both labeled {values[node - m]}")
    if len(chain) > 1:
        parts.append(f"{_elide(chain)} must-linked")
    return ", ".join(parts)


def _elide(chain: list[int]) -> str:
    """Row numbers joined by dashes; the middle of a long chain is counted only."""
    names = [str(row) for row in chain]
    if len(names) <= _CHAIN_ROWS:
        return "-".join(names)
    half = _CHAIN_ROWS // 2
    hidden = len(names) - 2 * half
    return "-".join([*names[:half], f"...({hidden} more)...", *names[-half:]])
