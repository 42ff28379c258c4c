"""Pairs of rows worth a question."""

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

#: How far neighborhoods reach along the graph.
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
    """Suggest pairs of rows of which it would help to know whether they belong together.

    The rows are represented by prototypes, and each prototype by the row nearest to it.  Where
    nothing is known, all pairs among a few heavy points far from each other are asked
    (*Explore* of [1]_). Then must-linked groups that are known to differ are neighborhoods;
    each further point is compared with the one it most probably belongs to, at the row of it
    that is farthest away (so that must-links join what no distance would), and, if the answer
    is no, with the next one in the following batch.  Points come in turn from two lists: those
    farthest from all that were asked (the min-max criterion of [2]_), and those whose
    neighborhood is the most uncertain by the questions it takes to resolve it (NPU [3]_), both
    by their mass.

    Parameters
    ----------
    X : array-like, dask.array.Array, DataFrame, xarray.DataArray or Cube of shape (n_rows, p)
        Complete, without NaN; of a cube its `samples`.
    n : int
        How many pairs.
    must_link, cannot_link : array-like of shape (m, 2), int, optional
        Answers so far, as global row numbers.
    exclude : array-like or dask.array.Array of shape (n_rows,), bool, or row numbers, optional
        Rows that must not occur in a suggested pair, see :func:`suggest_labels`.
    random_state : int, RandomState, Generator or None, default=None
        An int gives the same result for any chunks, scheduler and number of workers.

    Returns
    -------
    ndarray of shape (n, 2), int64
        Global row numbers, the lower one first, in the order in which to ask; no pair twice,
        and none whose answer follows from those given.

    Raises
    ------
    ValueError
        For more pairs than there are to be asked, NaN or infinity in X, and `exclude` that
        cannot be used.
    ConstraintError
        For pairs that cannot be used.

    See Also
    --------
    suggest_labels : Where the classes can be named, which says more an answer.

    Notes
    -----
    :class:`PCKMeans` and :class:`PCSKMeans` gain by asked pairs over as many random ones;
    :class:`SpectralClustering` carries links along the data by itself: it gained on two of three
    tables, and lost a little on one (``tests/benchmarks/asking_pairs.py``).  A batch uses what is
    known before it, not its own answers: of small batches each question is worth more.

    *Passes*: 1 that reads the chunks of constrained rows, if any; 1 that draws a sample of
    65 536 rows for the prototypes; 1 that finds the rows around each.  *On the client*: the
    sample, the constrained rows, and with k prototypes (at most 2000) O(k^3) time and
    matrices of ``8 k^2`` bytes.

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
    most = n_rows * (n_rows - 1) // 2
    if n > most:
        raise ValueError(f"n={n} pairs are asked for; {n_rows} rows have {most}. Ask for fewer.")
    known = PairwiseConstraints.from_fit_arguments(
        n_rows, pairs_for(X, must_link, "must_link"), pairs_for(X, cannot_link, "cannot_link")
    )
    known.warn_of_contradictions()
    cells = find_cells(data, known.rows, int(n), seed)
    z, askable = np.empty((0, cells.nodes.shape[1])), np.empty(0, bool)
    if len(known.rows):
        values, weight = data.rows.take(known.rows)
        z, askable = cells.space(values), weight > 0
    cannot = ~known.pair_is_must_link
    answers = Answers.of(known.component, known.pair_left[cannot], known.pair_right[cannot])
    asked = _Asked(cells, known.rows, z, cells.place(z), answers, askable)
    found = _distinct_pairs(asked, _pairs(asked, int(n)), int(n))
    if len(found) < n:
        raise ValueError(
            f"n={n} pairs are asked for, but among the rows that stand for the data only "
            f"{len(found)} have an answer that is not known. Ask for fewer."
        )
    return np.sort(found, axis=1)


@dataclass(frozen=True)
class _Asked:
    """Points that were asked about: row numbers (m,), ascending, coordinates (m, q), and cells.

    Those that are `askable` may be in further questions.
    """

    cells: Cells
    rows: Ints
    z: Floats
    places: NDArray[np.intp]
    answers: Answers
    askable: Bools

    def members(self, component: int) -> NDArray[np.intp]:
        """Positions of the points of a component."""
        return np.flatnonzero(self.answers.component == component)

    def farthest_member(self, component: int, point: Floats) -> int:
        """Row of a component that is farthest from a point: such a link says the most.

        Out of the rows that may be asked about; -1 where a component has none.
        """
        members = self.members(component)
        members = members[self.askable[members]]
        if not len(members):
            return -1
        return int(self.rows[members[((self.z[members] - point) ** 2).sum(axis=1).argmax()]])

    def shares(self) -> Floats:
        """Probabilities of the neighborhoods in each cell."""
        k = len(self.cells.nodes)
        seeds = np.zeros((k, len(self.answers.neighborhoods)))
        for column, component in enumerate(self.answers.neighborhoods):
            members = self.places[self.members(component)]
            np.add.at(seeds[:, column], members, 1.0 / len(members))
        graph = normalized(self.cells.table.near.matrix(k))
        return shares(spread_seeds(graph, _ALPHA, [seeds])[0])


def _pairs(asked: _Asked, n: int) -> Iterator[tuple[int, int]]:
    """Pairs in the order of their worth; some may be known or come twice."""
    table, nodes = asked.cells.table, asked.cells.nodes
    mass = np.where(table.medoids >= 0, table.counts, 0.0)
    if len(asked.answers.neighborhoods) < 2:
        # The first point is a known one.
        far = spread_out(nodes, mass, asked.z, n + 1)
        first = [int(row) for row in asked.rows[asked.askable][:1]]
        points = [*first, *(int(row) for row in table.medoids[far])]
        wanted = first_pairs(min(n, len(points) * (len(points) - 1) // 2))
        yield from ((points[a], points[b]) for a, b in wanted)
    else:
        yield from _of_neighborhoods(asked, mass, n)
    # Data of a few rows: whatever is left.
    medoids = table.medoids[table.medoids >= 0]
    rest = np.unique(np.concatenate([asked.rows[asked.askable], medoids, table.anywhere]))
    yield from ((int(a), int(b)) for i, a in enumerate(rest) for b in rest[i + 1 :])


def _of_neighborhoods(asked: _Asked, mass: Floats, n: int) -> Iterator[tuple[int, int]]:
    nodes, table, answers = asked.cells.nodes, asked.cells.table, asked.answers
    probable = asked.shares()
    far = spread_out(nodes, mass, asked.z, n)
    unsure = spread_out(nodes, mass * normalized_uncertainty(probable), asked.z, n)
    members = (asked.members(component) for component in answers.undecided)
    undecided = [at[asked.askable[at]][0] for at in members if asked.askable[at].any()]
    # Those whom the fewest neighborhoods are left for first.
    left = [
        int((~answers.apart[answers.component[at], answers.neighborhoods]).sum())
        for at in undecided
    ]
    begun = [undecided[i] for i in np.argsort(left, kind="stable")]
    points = [
        (int(asked.rows[at]), int(asked.places[at]), asked.z[at], int(answers.component[at]))
        for at in begun
    ]
    fresh = [cell for both in zip_longest(far, unsure) for cell in both if cell is not None]
    new = [(int(table.medoids[cell]), int(cell), nodes[cell], -1) for cell in dict.fromkeys(fresh)]
    # Half of a batch goes on with points that were begun, half explores.
    split = min(len(points), max(n // 2, n - len(new)))
    queue = points[:split] + new + points[split:]
    for turn in range(probable.shape[1]):
        for row, cell, point, component in queue:
            order = np.argsort(-probable[cell], kind="stable")
            if component >= 0:
                order = order[~answers.apart[component, answers.neighborhoods[order]]]
            if turn < len(order):
                yield row, asked.farthest_member(int(answers.neighborhoods[order[turn]]), point)


def _distinct_pairs(asked: _Asked, pairs: Iterator[tuple[int, int]], n: int) -> Ints:
    """Return the first n pairs that are not known and not the same as an earlier one."""
    place = {int(row): at for at, row in enumerate(asked.rows)}
    seen: dict[tuple[int, int], None] = {}
    for one, other in pairs:
        pair = (min(one, other), max(one, other))
        both_known = one in place and other in place
        known = both_known and asked.answers.knows(place[one], place[other])
        if one != other and min(pair) >= 0 and not known:
            seen.setdefault(pair)
        if len(seen) == n:
            break
    return np.array(list(seen), np.int64).reshape(-1, 2)
