"""Suggest pairs of rows for must-links and cannot-links."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Bools, Floats, Ints
from daskclust.core.constraints import PairwiseConstraints
from daskclust.core.estimator.fit_loop import draw_seeds
from daskclust.core.estimator.validation import check_integer, pairs_for
from daskclust.semisupervised.active_learning import (
    Answers,
    Cells,
    find_cells,
    first_pairs,
    normalized_uncertainty,
    open_for_questions,
    spread_out,
)
from daskclust.semisupervised.graph import normalized, spread_seeds
from daskclust.semisupervised.predict import shares

#: Spreading factor of neighborhoods on the graph, in (0, 1).  Larger values spread farther.
_ALPHA = 0.9


def suggest_pairs(
    X: Any,
    n: int,
    *,
    must_link: Any = None,
    cannot_link: Any = None,
    exclude: Any = None,
    random_state: Any = None,
) -> Ints:
    """Suggest pairs of rows whose answers, must-link or cannot-link, would help most.

    Use it if a person can compare two rows, but cannot name their classes.

    Prototypes represent the rows.  The row nearest to a prototype is called its point.  Without
    known pairs, all pairs among a few large and distant points are suggested (*Explore* of [1]_).
    Later, *neighborhoods* are groups of must-linked rows with cannot-links between the groups.
    Each suggested pair consists of a new point and a row of its most probable neighborhood.  This
    is the farthest row of the neighborhood, because a must-link with it is most informative.  If
    the answer is a cannot-link, the next batch suggests the next neighborhood for the point.

    New points come alternately from two lists.  The first list has the points farthest from all
    rows in known pairs (the min-max criterion of [2]_).  The second list has the points with the
    most uncertain neighborhood, relative to the expected number of questions (NPU [3]_).  Both
    lists prefer points that represent many rows.

    Parameters
    ----------
    X : array-like, dask.array.Array, DataFrame, xarray.DataArray or Cube of shape (n_rows, p)
        Rows without NaN; for a cube its `samples`.
    n : int
        Number of pairs.
    must_link, cannot_link : array-like of shape (m, 2), int, optional
        Known pairs, as global row numbers.
    exclude : array-like or dask.array.Array of shape (n_rows,), bool, or row numbers, optional
        Rows that must not occur in a suggested pair, see :func:`suggest_labels`.
    random_state : int, RandomState, Generator or None, default=None
        An int gives the same result for any chunks, scheduler and number of workers.

    Returns
    -------
    ndarray of shape (n, 2), int64
        Pairs of row numbers, most important first; the lower number of a pair is first.  Pairs are
        distinct, and known pairs do not imply their answers.

    Raises
    ------
    ValueError
        If n is larger than the number of available pairs; for NaN or infinity in X, and an invalid
        `exclude`.
    ConstraintError
        For invalid pairs.

    See Also
    --------
    suggest_labels : Suggest rows to label; a label is more informative than a pair.

    Notes
    -----
    For :class:`PCKMeans` and :class:`PCSKMeans`, suggested pairs are more useful than random pairs.
    For :class:`SpectralClustering` the difference is small.  Each batch uses the earlier answers,
    so small batches are more useful.

    *Passes*: 1 over the chunks of constrained rows, if any; 1 to draw a sample of 65 536 rows for
    the prototypes; 1 to assign the rows.  *On the client*: the sample, the constrained rows, and
    for k prototypes (at most 2000) O(k^3) time and matrices of ``8 k^2`` bytes.

    References
    ----------
    .. [1] Basu, S., Banerjee, A., Mooney, R. (2004). Active semi-supervision for pairwise
       constrained clustering. SDM.
    .. [2] Mallapragada, P., Jin, R., Jain, A. (2008). Active query selection for
       semi-supervised clustering. ICPR.
    .. [3] Xiong, S., Azimi, J., Fern, X. (2014). Active learning of constraints for
       semi-supervised clustering. IEEE TKDE 26.

    Examples
    --------
    >>> import numpy as np
    >>> from daskclust.selection import suggest_pairs
    >>> X = np.repeat([[0.0], [5.0], [9.0]], [50, 30, 20], axis=0)
    >>> X += np.random.default_rng(0).random(X.shape) / 10
    >>> pairs = suggest_pairs(X, 3, random_state=0)
    >>> np.sort(X[pairs, 0].round(), axis=1).tolist()
    [[0.0, 9.0], [0.0, 5.0], [5.0, 9.0]]
    """
    check_integer(n, "n", 1)
    (seed,) = draw_seeds(random_state, 1)
    data = open_for_questions(X, None, exclude)
    n_rows = data.rows.n_rows
    n_pairs = n_rows * (n_rows - 1) // 2
    if n > n_pairs:
        raise ValueError(
            f"n must be at most {n_pairs}, the number of pairs of {n_rows} rows, got {n}."
        )
    constraints = PairwiseConstraints.from_fit_arguments(
        n_rows, pairs_for(X, must_link, "must_link"), pairs_for(X, cannot_link, "cannot_link")
    )
    constraints.warn_of_contradictions()
    cells = find_cells(data, constraints.rows, int(n), seed)
    z, askable = np.empty((0, cells.nodes.shape[1])), np.empty(0, bool)
    if len(constraints.rows):
        values, weight = data.rows.take(constraints.rows)
        z, askable = cells.space(values), weight > 0
    cannot = ~constraints.pair_is_must_link
    answers = Answers.of(
        constraints.component, constraints.pair_left[cannot], constraints.pair_right[cannot]
    )
    points = _KnownPoints(cells, constraints.rows, z, cells.cells_of(z), answers, askable)
    suggested = _distinct_pairs(points, _pairs(points, int(n)), int(n))
    if len(suggested) < n:
        raise ValueError(
            f"n must be at most {len(suggested)}, the number of pairs of representative rows whose "
            f"relation is unknown, got {n}. Use a smaller n."
        )
    return np.sort(suggested, axis=1)


@dataclass(frozen=True)
class _KnownPoints:
    """Rows of known pairs: ascending numbers ``rows`` (m,), and coordinates ``z`` (m, q).

    Only rows that are ``askable`` may occur in further pairs.
    """

    cells: Cells
    rows: Ints
    z: Floats
    cell_of_point: NDArray[np.intp]
    answers: Answers
    askable: Bools

    def members(self, component: int) -> NDArray[np.intp]:
        """Return the positions of the points of a component."""
        return np.flatnonzero(self.answers.component == component)

    def farthest_member(self, component: int, point: Floats) -> int:
        """Return the askable row of a component that is farthest from a point, or -1 if none is."""
        members = self.members(component)
        members = members[self.askable[members]]
        if not len(members):
            return -1
        return int(self.rows[members[((self.z[members] - point) ** 2).sum(axis=1).argmax()]])

    def probabilities(self) -> Floats:
        """Return the probabilities of the neighborhoods in each cell."""
        k = len(self.cells.nodes)
        seeds = np.zeros((k, len(self.answers.neighborhoods)))
        for column, component in enumerate(self.answers.neighborhoods):
            members = self.cell_of_point[self.members(component)]
            np.add.at(seeds[:, column], members, 1.0 / len(members))
        graph = normalized(self.cells.table.near.matrix(k))
        return shares(spread_seeds(graph, _ALPHA, [seeds])[0])


def _pairs(known: _KnownPoints, n: int) -> Iterator[tuple[int, int]]:
    """Yield pairs, most useful first.  Pairs may be repeated, or known already."""
    table, nodes = known.cells.table, known.cells.nodes
    mass = np.where(table.medoids >= 0, table.counts, 0.0)
    if len(known.answers.neighborhoods) < 2:
        # The first point is a known row.
        far = spread_out(nodes, mass, known.z, n + 1)
        first = [int(row) for row in known.rows[known.askable][:1]]
        points = [*first, *(int(row) for row in table.medoids[far])]
        chosen = first_pairs(min(n, len(points) * (len(points) - 1) // 2))
        yield from ((points[a], points[b]) for a, b in chosen)
    else:
        yield from _pairs_with_neighborhoods(known, mass, n)
    # For data with few rows, add all remaining pairs.
    medoids = table.medoids[table.medoids >= 0]
    rest = np.unique(np.concatenate([known.rows[known.askable], medoids, table.anywhere]))
    yield from ((int(a), int(b)) for i, a in enumerate(rest) for b in rest[i + 1 :])


def _pairs_with_neighborhoods(
    known: _KnownPoints, mass: Floats, n: int
) -> Iterator[tuple[int, int]]:
    nodes, table, answers = known.cells.nodes, known.cells.table, known.answers
    probable = known.probabilities()
    far = spread_out(nodes, mass, known.z, n)
    unsure = spread_out(nodes, mass * normalized_uncertainty(probable), known.z, n)
    members = (known.members(component) for component in answers.undecided)
    undecided = [index[known.askable[index]][0] for index in members if known.askable[index].any()]
    # Components with the fewest possible neighborhoods come first.
    n_possible = [
        int((~answers.apart[answers.component[index], answers.neighborhoods]).sum())
        for index in undecided
    ]
    undecided_by_choice = [undecided[i] for i in np.argsort(n_possible, kind="stable")]
    points = [
        (
            int(known.rows[index]),
            int(known.cell_of_point[index]),
            known.z[index],
            int(answers.component[index]),
        )
        for index in undecided_by_choice
    ]
    new_cells = [cell for pair in zip_longest(far, unsure) for cell in pair if cell is not None]
    new_points = [
        (int(table.medoids[cell]), int(cell), nodes[cell], -1) for cell in dict.fromkeys(new_cells)
    ]
    # Half of a batch continues with undecided points, the other half adds new ones.
    split = min(len(points), max(n // 2, n - len(new_points)))
    queue = points[:split] + new_points + points[split:]
    for rank in range(probable.shape[1]):
        for row, cell, point, component in queue:
            order = np.argsort(-probable[cell], kind="stable")
            if component >= 0:
                order = order[~answers.apart[component, answers.neighborhoods[order]]]
            if rank < len(order):
                yield row, known.farthest_member(int(answers.neighborhoods[order[rank]]), point)


def _distinct_pairs(points: _KnownPoints, pairs: Iterator[tuple[int, int]], n: int) -> Ints:
    position = {int(row): i for i, row in enumerate(points.rows)}
    distinct: dict[tuple[int, int], None] = {}
    for a, b in pairs:
        pair = (min(a, b), max(a, b))
        are_points = a in position and b in position
        is_known = are_points and points.answers.knows(position[a], position[b])
        if a != b and min(pair) >= 0 and not is_known:
            distinct.setdefault(pair)
        if len(distinct) == n:
            break
    return np.array(list(distinct), np.int64).reshape(-1, 2)
