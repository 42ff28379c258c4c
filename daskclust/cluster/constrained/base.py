"""What the estimators that take pairwise constraints share: ``fit`` from end to end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from daskclust._warnings import warn
from daskclust.cluster.constrained.iteration import PassProblem
from daskclust.cluster.constrained.neighborhoods import covered_clusters, uncovered
from daskclust.cluster.constrained.rows import TouchedRows
from daskclust.constraints import PairwiseConstraints
from daskclust.engine import map_rows
from daskclust.estimator.base import BaseClusterer
from daskclust.estimator.data import Data
from daskclust.estimator.fitting import FirstPass, OpenData, fit
from daskclust.estimator.parameters import check_choice, check_integer, check_real
from daskclust.estimator.partial_labels import read_labels
from daskclust.estimator.restarts import draw_seeds
from daskclust.estimator.spaces import EUCLIDEAN
from daskclust.exceptions import ConstraintWarning
from daskclust.persistence.schema import Entry, Number
from daskclust.reduction import Survey
from daskclust.starts.deterministic import note_start
from daskclust.starts.given import check_given_centers, given_centers
from daskclust.starts.sampled import (
    STRING_INITS,
    n_survey_picks,
    sample_centers,
)

__all__ = ["GivenConstraints", "PairwiseClusterer"]

Float = NDArray[np.float64]
#: Of the k-means|| start: enough for a start that is refined anyway.
_OVERSAMPLING, _ROUNDS = 2.0, 5


#: Starts from the must-link neighborhoods, and how centers are sampled that these do not provide.
_COVERING = {
    "auto": "k-means||",
    "neighborhoods": "k-means||",
    "ss-k-means||": "k-means||",
    "ss-k-means++": "k-means++",
}


class GivenConstraints(NamedTuple):
    """Constraints as ``fit`` was given them."""

    y: Any = None
    must_link: Any = None
    cannot_link: Any = None
    must_link_weight: Any = None
    cannot_link_weight: Any = None
    #: Whether rows have weights: those of weight 0 are absent, and so are their constraints.
    weighted: bool = False

    def read(self, n_rows: int) -> PairwiseConstraints:
        """Check them against the number of rows, and index them."""
        labels = read_labels(self.y, n_rows)
        return PairwiseConstraints.from_fit_arguments(
            n_rows,
            self.must_link,
            self.cannot_link,
            self.must_link_weight,
            self.cannot_link_weight,
            (labels.rows, labels.codes),
        )


@dataclass(frozen=True)
class _Iterated:
    """A constrained fit as the template sees it."""

    estimator: Any
    data: OpenData
    problem: PassProblem
    touched: TouchedRows

    @property
    def kind(self) -> Any:
        return self.problem.kind

    @property
    def max_iter(self) -> int:
        return self.problem.max_passes

    def begin(self) -> Any:
        return self.kind.begin(self.estimator._start(self.data, self.touched), len(self.touched))

    def step(self, state: Any) -> Any:
        return self.problem.step(state)

    @property
    def sizes(self) -> Mapping[str, int]:
        return {"t": len(self.touched)}

    def identity(self) -> Mapping[str, Any]:
        return {"constraints": self.touched.constraints.digest()}


class PairwiseClusterer(BaseClusterer):
    """Base of the clusterers in which rows may be constrained.

    A subclass states its parameters, makes the :class:`PassProblem` that is
    iterated (:meth:`_problem`), and takes its attributes from the last state
    (:meth:`_take`).
    """

    _saved_state: ClassVar[Mapping[str, Entry]] = {
        "inertia_": Number(low=0),
        "objective_": Number(),
    }

    #: Starts by name.
    _inits: ClassVar[tuple[str, ...]] = (*_COVERING, *STRING_INITS)

    # --- what a subclass says ------------------------------------------------------------------

    def _iteration(self, data: OpenData, touched: TouchedRows) -> PassProblem:
        """Return what is iterated."""
        raise NotImplementedError

    def _take(self, problem: Any, state: Any, history: list[dict[str, Any]]) -> None:
        """Set the attributes that not all estimators have."""
        self.constraint_violations_ = problem.touched.constraints.violations(state.labels)
        self.objective_ = float(history[-1]["objective"])

    def _box2(self, survey: Survey) -> Float:
        """Squared sides of the box that bounds a cannot-link's price."""
        box2: Float = (survey.high - survey.low) ** 2
        return box2

    def _check_parameters(self) -> None:
        check_integer(self.n_clusters, "n_clusters", 1)
        check_integer(self.max_iter, "max_iter", 1)
        check_real(self.tol, "tol", 0)
        if isinstance(self.init, str):
            check_choice(self.init, "init", self._inits)

    # --- the fit -------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        must_link: Any = None,
        cannot_link: Any = None,
        must_link_weight: Any = None,
        cannot_link_weight: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Find the clusters.

        Parameters
        ----------
        X : array-like, dask.array.Array, DataFrame or xarray.DataArray of shape (n, p)
            Rows to cluster.
        y : array-like or dask.array.Array of shape (n,), or (rows, labels), optional
            Partial labels, integers (or whole floats), -1 = none; or global row
            numbers and their labels.  Two labeled rows are must-linked when
            their labels agree, else cannot-linked; labels are not names of clusters.
        must_link, cannot_link : array-like of shape (m, 2), int, optional
            Pairs of global row numbers.  A repeated pair counts repeatedly.
        must_link_weight, cannot_link_weight : float or array-like of shape (m,), optional
            Weights of the pairs, 1 by default, 0 for none; a single number
            holds for the pairs that labels imply, too.
        sample_weight : array-like or dask.array.Array of shape (n,), optional
            Weights of the rows: an integer weight equals repetition, 0 absence.

        Returns
        -------
        self
        """
        given = GivenConstraints(y, must_link, cannot_link, must_link_weight, cannot_link_weight)
        return self._fit(X, given, sample_weight)

    def _fit(self, X: Any, given: GivenConstraints, sample_weight: Any) -> Self:
        return fit(self, X, sample_weight, **given._asdict())

    def _check_features(self, n_features: int) -> None:
        check_given_centers(self.init, self.n_clusters, n_features)

    def _read(self, data: Data, **given: Any) -> PairwiseConstraints:
        given["weighted"] = data.weight is not None
        return self._read_constraints(GivenConstraints(**given), int(data.n_rows))

    def _first_pass(self, data: Data, read: PairwiseConstraints) -> FirstPass:
        # Which start is taken may depend on the labels; the pick costs nothing.
        n_picks = max(1, n_survey_picks(self.init, self.n_clusters, data.X.shape[0]))
        return FirstPass(draw_seeds(self.random_state, 1), n_picks)

    def _problem(self, data: OpenData, read: PairwiseConstraints) -> _Iterated:
        touched = self._touch(data, read)
        return _Iterated(self, data, self._iteration(data, touched), touched)

    def _read_constraints(self, given: GivenConstraints, n_rows: int) -> PairwiseConstraints:
        """Check constraints as far as that needs no row."""
        self._check_n_clusters(n_rows)
        constraints = given.read(n_rows)
        self._check_constraints(constraints, given)
        n_groups = constraints.n_groups
        if n_groups < self.n_clusters:
            warn(
                f"The must-links and labels leave {n_groups} group(s) of rows that are to stay "
                f"together, fewer than n_clusters={self.n_clusters}. Use n_clusters={n_groups} or "
                "less, or remove must-links.",
                ConstraintWarning,
            )
        return constraints

    def _check_constraints(self, constraints: PairwiseConstraints, given: GivenConstraints) -> None:
        """Complain of constraints that cannot all hold."""
        constraints.complain(hard=False)
        if constraints.n_classes > self.n_clusters:
            warn(
                f"y has {constraints.n_classes} classes, which are to be in different clusters; "
                f"n_clusters={self.n_clusters}: some of the cannot-links between them will be "
                f"violated. Use n_clusters={constraints.n_classes} or more, or fewer classes.",
                ConstraintWarning,
            )

    def _touch(self, data: OpenData, constraints: PairwiseConstraints) -> TouchedRows:
        """Fetch the constrained rows."""
        return TouchedRows.fetch(
            data.rows, constraints, self._box2(data.survey), getattr(self, "penalty", "distance")
        )

    def _start(self, data: OpenData, touched: TouchedRows) -> Float:
        k, rows = self.n_clusters, data.rows
        if not isinstance(self.init, str):
            return given_centers(self.init, data.X, k, rows.n_features, data.seeds)[0]
        init, known = self.init, None
        if init in _COVERING:
            found = covered_clusters(touched, k, agreeing=init != "neighborhoods")
            init, known = _COVERING[init], found.centroids
            rows = uncovered(rows, found, k - len(known))
        return sample_centers(
            rows,
            data.survey,
            init,
            k,
            data.seeds,
            oversampling_factor=_OVERSAMPLING,
            init_rounds=_ROUNDS,
            shift=data.survey.mean,
            fixed=known,
        ).centers[0]

    def _finish(
        self, data: OpenData, problem: _Iterated, state: Any, history: list[dict[str, Any]]
    ) -> None:
        note_start(history, self.init, data.rows.n_rows, self.n_clusters)
        constraints = problem.touched.constraints
        self._metric = EUCLIDEAN
        self._centers = self.cluster_centers_ = state.centers
        self.history_ = history
        self.n_iter_ = len(history)
        self.inertia_ = float(history[-1]["inertia"])
        self._take(problem.problem, state, history)
        problem.problem.warn(state, history[-1])
        function = self._row_function(data.rows.dtype)
        if not state.settled:
            # Cut off: labels are those of the last pass, before the centers moved.
            w = state.assignment_weights
            function = function.with_centers(
                state.assignment_centers, None if (w == 1).all() else w
            )
        self.labels_ = map_rows(
            data.X,
            function,
            dtype=np.int32,
            lengths=data.rows.lengths,
            patch=(constraints.rows, state.labels.astype(np.int32)),
        )
