"""What the estimators that take pairwise constraints share: ``fit`` from end to end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from daskclust._warnings import warn
from daskclust.cluster.constrained.iteration import PassProblem
from daskclust.cluster.constrained.neighborhoods import covered_clusters, uncovered
from daskclust.cluster.constrained.rows import TouchedRows, partial_labels
from daskclust.constraints import PairwiseConstraints
from daskclust.engine import iterate, map_rows
from daskclust.estimator.base import EUCLIDEAN, BaseClusterer, OpenData
from daskclust.estimator.parameters import (
    check_choice,
    check_init_array,
    check_integer,
    check_real,
)
from daskclust.exceptions import ConstraintWarning
from daskclust.persistence.schema import Entry, Number
from daskclust.reduction import Survey
from daskclust.starts.deterministic import note_start
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
        return PairwiseConstraints.from_fit_arguments(
            n_rows,
            self.must_link,
            self.cannot_link,
            self.must_link_weight,
            self.cannot_link_weight,
            partial_labels(self.y, n_rows),
        )


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

    def _problem(self, data: OpenData, touched: TouchedRows) -> PassProblem:
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
        self._check_parameters()
        X, weight = self._check_data(X, sample_weight)
        given = given._replace(weighted=weight is not None)
        self._check_features(X.shape[1])
        if not isinstance(self.init, str) and not callable(self.init):
            check_init_array(self.init, self.n_clusters, X.shape[1])
        # Before the first pass, which may take long, wherever the number of rows is known.
        constraints = None if np.isnan(X.shape[0]) else self._read(given, X.shape[0])
        data = self._open(
            X,
            weight,
            n_restarts=1,
            # Which start is taken may depend on the labels; the pick costs nothing.
            n_picks=max(1, n_survey_picks(self.init, self.n_clusters, X.shape[0])),
            metric=EUCLIDEAN,
        )
        if constraints is None:
            constraints = self._read(given, data.rows.n_rows)
        touched = self._touch(data, constraints)
        problem = self._problem(data, touched)
        fitted = iterate(
            data.rows,
            lambda: problem.kind.begin(self._start(data, touched), len(touched)),
            problem.step,
            kind=problem.kind,
            max_iter=problem.max_passes,
            name=type(self).__name__,
            checkpoint=self._checkpoint(data, more={"constraints": touched.constraints.digest()}),
            sizes={"t": len(touched)},
        )
        note_start(fitted.history, self.init, data.rows.n_rows, self.n_clusters)
        self._finish(data, problem, fitted.state, fitted.history)
        return self

    def _check_features(self, p: int) -> None:
        """Check parameters that depend on the number of features."""

    def _read(self, given: GivenConstraints, n_rows: int) -> PairwiseConstraints:
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
            given = self.init
            if callable(self.init):
                given = self.init(data.X, k, np.random.RandomState(data.seeds[0] % 2**32))
            return check_init_array(given, k, rows.n_features)
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
        self, data: OpenData, problem: PassProblem, state: Any, history: list[dict[str, Any]]
    ) -> None:
        constraints = problem.touched.constraints
        self._metric = EUCLIDEAN
        self._centers = self.cluster_centers_ = state.centers
        self.history_ = history
        self.n_iter_ = len(history)
        self.inertia_ = float(history[-1]["inertia"])
        self._take(problem, state, history)
        problem.warn(state, history[-1])
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
