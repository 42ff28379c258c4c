"""Assignment passes of a fit: plain ones, or ones that skip rows whose cluster cannot change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from daskclust.engine import Rows
from daskclust.kernels.nearest.bounds import Past, bytes_a_row, past_of
from daskclust.reduction import ASSIGN, CenterSets, ClusterStatistics
from daskclust.reduction.bounded import BOUNDED_ASSIGN, BoundedSets

__all__ = ["ALGORITHMS", "Algorithm", "AssignmentPasses"]

Algorithm = Literal["auto", "lloyd", "bounds"]
#: How rows are assigned: the same result.
ALGORITHMS = get_args(Algorithm)

#: Passes that are looked back on, in a trial and else, and the numbers that this may come to.
_TRIAL_PASSES, _PASSES, _NUMBERS = 8, 24, 2**17

# Nanoseconds, only their ratios count (measured on an AVX-512 Xeon): of a product in the scores
# of a row, by bytes of a value; of asking a row's bounds; of a distance to a single center; of
# noting the scores of a row.
_PRODUCT = {4: 0.0145, 8: 0.029}
_ASK, _MEASURE, _NOTE = 8.0, 15.0, 50.0
#: What bounds may take, as a share of the scores, to begin with them and to go on.
_BEGIN, _GO_ON = 0.85, 1.0
#: Plain passes before the first trial: centers move far in these, and a fit that ends with them
#: needs no more kernels than these.
_PATIENCE = 5
#: Passes in a row in which bounds must pay, before they are asked of all rows.
_PROVEN = 2


class AssignmentPasses:
    """The assignment passes over some rows.

    Parameters
    ----------
    rows : Rows
    algorithm : {"auto", "lloyd", "bounds"}
        ``"auto"`` tries bounds on one segment in 32 after five passes, if there are so
        many centers that bounds could save time.  If they do, they are used for all rows;
        if they no longer do, they are dropped. ``"bounds"`` uses bounds in every pass, if
        there is enough memory.

    Notes
    -----
    Statistics equal those of ``ASSIGN`` bit for bit.  The client holds the centers of up
    to 24 passes.  With each pass it sends up to 24 numbers for each center.
    """

    def __init__(self, rows: Rows, algorithm: Algorithm = "auto") -> None:
        self._rows = rows
        self._algorithm = algorithm
        self._fit = uuid4().hex
        self._number = 0
        self._made = 0
        self._before: dict[int, list[NDArray[np.float64]]] = {}
        self._asking = algorithm == "bounds"
        self._paid = 0
        self._is_first = True

    def assign(self, sets: CenterSets, names: Sequence[int]) -> ClusterStatistics:
        """Make a pass.

        Parameters
        ----------
        sets : CenterSets
        names : sequence of int
            Names of the sets; a restart has the same name in each pass.
        """
        self._made += 1
        if not self._may_bound(sets):
            self._before.clear()
            found: ClusterStatistics = self._rows.reduce(ASSIGN, sets)
            return found
        self._number += 1
        state = BoundedSets(
            sets,
            tuple(self._past(name, sets.centers[r]) for r, name in enumerate(names)),
            tuple(int(name) for name in names),
            self._number,
            self._fit,
            not self._asking,
        )
        clusters, work = self._rows.reduce(BOUNDED_ASSIGN, state)
        self._before = {
            name: [*self._before.get(name, ()), sets.centers[r].copy()]
            for r, name in enumerate(state.names)
        }
        if self._algorithm == "auto":
            self._weigh(work.sum(axis=0).tolist(), sets)
        return clusters

    def _may_bound(self, sets: CenterSets) -> bool:
        r, k, _ = sets.centers.shape
        if self._algorithm == "lloyd" or sets.missing or k < 2:
            return False
        if any(sets.weights(i) is not None for i in range(r)):
            return False
        if self._algorithm == "auto" and (
            self._made <= _PATIENCE or _BEGIN * self._scores(sets) < _ASK + _MEASURE
        ):
            return False
        return self._rows.can_remember(r * bytes_a_row())

    def _scores(self, sets: CenterSets) -> float:
        _, k, p = sets.centers.shape
        return _PRODUCT[self._rows.dtype.itemsize] * k * p

    def _past(self, name: int, centers: NDArray[np.float64]) -> Past:
        """Look back; passes beyond the limit are forgotten."""
        most = min(_PASSES if self._asking else _TRIAL_PASSES, max(2, _NUMBERS // len(centers)))
        before = self._before.setdefault(name, [])
        del before[:-most]
        return past_of(centers, before, self._number - len(before))

    def _weigh(self, work: Sequence[int], sets: CenterSets) -> None:
        """Begin or end to ask all rows, by what bounds cost in this pass."""
        n_rows, n_scored, n_measured = work
        if not n_rows or self._is_first:
            # The first pass of its kind only begins to know the rows.
            self._is_first = False
            return
        full = self._scores(sets)
        share = (_ASK + (n_measured * _MEASURE + n_scored * (full + _NOTE)) / n_rows) / full
        if self._asking:
            if share > _GO_ON:
                self._asking, self._is_first = False, True
            return
        self._paid = self._paid + 1 if share < _BEGIN else 0
        if self._paid == _PROVEN:
            self._asking, self._paid, self._is_first = True, 0, True
