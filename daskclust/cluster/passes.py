"""Assignment passes of a fit: plain ones, or ones that skip rows whose cluster cannot change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args
from uuid import uuid4

import numpy as np

from daskclust._types import Floats
from daskclust.engine import Rows
from daskclust.kernels.nearest.assign import SEGMENT
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
# of a row, by bytes of a value; of summing a row, and a value of it; of asking a row's bounds; of
# comparing it with eight centers, and a value of it; of noting the scores of a row.
_PRODUCT = {4: 0.0145, 8: 0.029}
_SUM, _SUM_EACH = 15.0, 0.3
_ASK, _COMPARE, _COMPARE_EACH, _NOTE = 5.0, 15.0, 0.3, 60.0
#: What bounds may take, as a share of a plain pass, to begin with them and to go on.
_BEGIN, _GO_ON = 0.85, 1.0
#: Plain passes before the first trial: centers move far in these, and a fit that ends with them
#: needs no more kernels than these.
_PATIENCE = 5
#: Nanoseconds of a plain pass, below which it is not worth the kernels either.
_LEAST = 5e6
#: Passes in a row in which bounds must pay, before they are asked of all rows.
_PROVEN = 2


class AssignmentPasses:
    """The assignment passes over some rows.

    Parameters
    ----------
    rows : Rows
    algorithm : {"auto", "lloyd", "bounds"}
        ``"auto"`` tries bounds on one segment in 32 after five passes, if a pass takes long
        enough.  If they save time, they are used for all rows; if they no longer do, they
        are dropped.  ``"bounds"`` uses bounds in every pass, if there is enough memory.

    Attributes
    ----------
    measured : bool
        Whether the inertia of the last pass was measured.

    Notes
    -----
    Statistics equal those of ``ASSIGN`` bit for bit, inertia only if it is measured.  The
    client holds the centers of up to 24 passes.  With each pass it sends up to 24 numbers for
    each center.
    """

    def __init__(self, rows: Rows, algorithm: Algorithm = "auto") -> None:
        self._rows = rows
        self._algorithm = algorithm
        self._fit = uuid4().hex
        self._number = 0
        self._made = 0
        self._before: dict[int, list[Floats]] = {}
        self._asking = algorithm == "bounds"
        self._paid = 0
        self._is_first = True
        self.measured = True

    def assign(
        self, sets: CenterSets, names: Sequence[int], measured: bool = True
    ) -> ClusterStatistics:
        """Make a pass.

        Parameters
        ----------
        sets : CenterSets
        names : sequence of int
            Names of the sets; a restart has the same name in each pass.
        measured : bool, default=True
            Whether inertia must be measured, for which all rows are read.  Else it may follow
            from that of the pass before, off by some units in the last place.
        """
        self._made += 1
        self.measured = True
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
            measured,
        )
        self.measured = measured or not self._asking
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
            self._made <= _PATIENCE or self._plain(sets) * self._rows.n_rows < _LEAST
        ):
            return False
        return self._rows.can_remember(r * bytes_a_row(*sets.centers.shape[1:]))

    def _scores(self, sets: CenterSets) -> float:
        _, k, p = sets.centers.shape
        return _PRODUCT[self._rows.dtype.itemsize] * k * p

    def _sum(self, sets: CenterSets) -> float:
        return _SUM + _SUM_EACH * sets.centers.shape[2]

    def _plain(self, sets: CenterSets) -> float:
        """Return what a plain pass costs for a row."""
        return self._scores(sets) + self._sum(sets)

    def _past(self, name: int, centers: Floats) -> Past:
        """Look back; passes beyond the limit are forgotten."""
        most = min(_PASSES if self._asking else _TRIAL_PASSES, max(2, _NUMBERS // len(centers)))
        before = self._before.setdefault(name, [])
        del before[:-most]
        return past_of(centers, before, self._number - len(before), most)

    def _weigh(self, work: Sequence[int], sets: CenterSets) -> None:
        """Begin or end to ask all rows, by what bounds cost in this pass."""
        n_rows, n_scored, n_compared, n_changed = work
        if not n_rows or self._is_first:
            # The first pass of its kind only begins to know the rows.
            self._is_first = False
            return
        plain, (_, k, p) = self._plain(sets), sets.centers.shape
        scored = n_scored / n_rows * (plain + _NOTE)
        compared = n_compared / n_rows * (_COMPARE + _COMPARE_EACH * p)
        # A row that changes its cluster has two clusters of its segment summed anew.
        unchanged = float(np.exp(-2.0 * n_changed / n_rows * SEGMENT / k))
        summed = (1.0 - unchanged) * self._sum(sets)
        share = (_ASK + scored + compared + summed) / plain
        if self._asking:
            if share > _GO_ON:
                self._asking, self._is_first = False, True
            return
        self._paid = self._paid + 1 if share < _BEGIN else 0
        if self._paid == _PROVEN:
            self._asking, self._paid, self._is_first = True, 0, True
