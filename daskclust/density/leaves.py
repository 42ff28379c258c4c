"""Leaves of a tree: the rows themselves if they are few, or prototypes of all rows.

The initial prototypes are rows drawn with probability proportional to their weight.  A few
iterations of Lloyd's algorithm move them.  The last iteration also computes the weight, the mean
and the sum of squares of the rows of each prototype.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import check_is_fitted

from daskclust.core.array_types import Array, Floats, Ints
from daskclust.core.engine import Rows, is_dask, map_rows, working_dtype
from daskclust.core.estimator.base import warn_few_distinct
from daskclust.core.estimator.fit_loop import (
    DataAlone,
    FirstPass,
    FitPredict,
    OpenData,
    Step,
    draw_seeds,
)
from daskclust.core.estimator.parameters import Interval, check_value
from daskclust.core.estimator.row_functions import CheckedRows
from daskclust.core.estimator.transforms import METRICS, Metric
from daskclust.core.estimator.validation import Data, check_integer, check_rows
from daskclust.core.kernels.nearest.assign import nearest
from daskclust.core.persistence.mixin import OF_CLASSES, Saveable
from daskclust.core.persistence.schema import Array as Stored
from daskclust.core.persistence.schema import Entry, Number, OneOf, Plain
from daskclust.core.reduction import ASSIGN, CenterSets
from daskclust.core.warn import warn
from daskclust.exceptions import ConstraintWarning

#: Rows whose Euclidean distances equal another metric, or have the same order.
SCALINGS: Mapping[str, str] = {
    **dict.fromkeys(("euclidean", "l2", "minkowski"), "X itself: leave metric out"),
    "sqeuclidean": "X itself (distances are in the same order): leave metric out",
    "cosine": "sklearn.preprocessing.normalize(X) (distances are in the same order)",
    "correlation": "sklearn.preprocessing.normalize(X - X.mean(axis=1, keepdims=True)) (distances "
    "are in the same order)",
    "seuclidean": "X / X.std(axis=0, ddof=1)",
    "mahalanobis": "X @ numpy.linalg.cholesky(numpy.linalg.inv(numpy.cov(X.T)))",
    "hellinger": "numpy.sqrt(X / X.sum(axis=1, keepdims=True) / 2)",
    "haversine": "numpy.column_stack([cos(lat) * cos(lon), cos(lat) * sin(lon), sin(lat)]) "
    "(distances are in the same order)",
}


def advice_on_metric(metric: Any) -> str:
    """Return a sentence on how to scale rows so that Euclidean distances replace a metric."""
    rows = SCALINGS.get(metric) if isinstance(metric, str) else None
    if rows is None:
        supported = ", ".join(sorted(SCALINGS))
        return f"A scaling is known for {supported}, not for metric={metric!r}."
    return f"Rows to pass in place of metric={metric!r}: {rows}."


def explain_metric(init: Callable[..., None]) -> Callable[..., None]:
    """Add an error to a constructor that explains how to replace scikit-learn's ``metric``."""

    @functools.wraps(init)
    def checked_init(self: Any, *args: Any, **params: Any) -> None:
        if "metric" in params:
            raise TypeError(
                f"{type(self).__name__} has no parameter metric: it compares rows by Euclidean "
                f"distances. Scale the rows instead. {advice_on_metric(params['metric'])}"
            )
        init(self, *args, **params)

    return checked_init


@dataclass(frozen=True)
class Leaves:
    """Means, weights and sums of squared distances to the mean of the rows of each leaf."""

    centers: Annotated[Floats, "f m p"]
    weights: Annotated[Floats, "f m"]
    squares: Annotated[Floats, "f m"]

    @classmethod
    def of_rows(cls, values: Array, weights: Floats) -> Leaves:
        """Return one leaf per row."""
        return cls(np.asarray(values, np.float64), weights, np.zeros(len(values)))

    def repeated(self, times: Ints) -> Leaves:
        """Repeat each leaf, and distribute its weight among the copies."""
        arrays = (self.centers, self.weights / times, self.squares / times)
        return Leaves(*(np.repeat(array, times, axis=0) for array in arrays))

    def distinct(self) -> tuple[Leaves, Ints]:
        """Join equal leaves and sort them; return them and the new number of each leaf."""
        centers, leaf_of_row = np.unique(self.centers, axis=0, return_inverse=True)
        leaf_of_row = leaf_of_row.reshape(-1)
        weights = np.asarray(np.bincount(leaf_of_row, self.weights), np.float64)
        return Leaves(centers, weights, np.zeros(len(centers))), leaf_of_row

    def with_rows(self) -> Leaves:
        """Return the leaves with a positive weight."""
        has_rows = self.weights > 0
        return Leaves(self.centers[has_rows], self.weights[has_rows], self.squares[has_rows])

    def joined(self, other: Leaves) -> Leaves:
        """Return these leaves, followed by other leaves."""
        return Leaves(
            np.concatenate([self.centers, other.centers]),
            np.concatenate([self.weights, other.weights]),
            np.concatenate([self.squares, other.squares]),
        )


@dataclass(frozen=True)
class LeavesProblem(DataAlone):
    """Computation of the leaves of a tree.  ``rows`` are scaled by ``metric``.

    ``drawn`` are the sorted numbers of the drawn rows.  ``n_lloyd`` is the number of passes that
    move the prototypes.  It is 0 if rows are the leaves; then all rows with a weight are drawn.
    ``own`` are the sorted numbers of rows that must be leaves.  ``read`` are the other arguments of
    ``fit``.  A fit resumes only if the values ``facts`` are those in the checkpoint.
    """

    kind: ClassVar[type[Leaves]] = Leaves

    rows: Rows
    drawn: Ints
    metric: Metric
    n_lloyd: int
    own: Ints
    read: Any
    facts: Mapping[str, Any]

    @property
    def max_iter(self) -> int:
        return self.n_lloyd

    def identity(self) -> Mapping[str, Any]:
        return dict(self.facts)

    def begin(self) -> Leaves:
        return Leaves.of_rows(*self.rows.take(self.drawn))

    def step(self, state: Leaves) -> Step[Leaves]:
        """Move each prototype to the mean of its rows."""
        rows = self.rows.excluding(self.own)
        sums = rows.reduce(ASSIGN, CenterSets(state.centers[None]))
        means = self.metric.project(sums.of(0).means(state.centers))
        shifts = ((means - state.centers) ** 2).sum(axis=1)
        # If the mean was projected onto the sphere, this is an upper bound.
        squares = np.maximum(sums.inertia[0] - sums.counts[0] * shifts, 0.0)
        return Step(
            Leaves(means, sums.counts[0], squares),
            objective=float(sums.inertia.sum()),
            center_shift=float(shifts.sum()),
            finished=False,
        )

    def leaves(self, state: Leaves) -> Leaves:
        """Return the leaves of the last state, followed by the rows that must be leaves."""
        leaves = state.with_rows()
        if self.n_lloyd == 0 or not len(self.own):
            return leaves
        return leaves.joined(Leaves.of_rows(*self.rows.take(self.own)))

    def rows_of_leaves(self, state: Leaves) -> tuple[Ints, Ints]:
        """Return the sorted numbers of rows that are leaves, and the leaf of each of them."""
        n = int((state.weights > 0).sum())
        if self.n_lloyd == 0:
            return self.drawn[state.weights > 0], np.arange(n)
        return self.own, np.arange(n, n + len(self.own))


@dataclass(frozen=True)
class NearestLeaf:
    """Function that maps the rows of a block by their nearest leaves.

    ``compute`` maps leaf numbers and distances, in the precision of the rows, to the result.
    Without it, the result is the number of the leaf.
    """

    centers: Floats
    metric: Metric
    compute: Any = None

    def __call__(self, x: Array) -> Array:
        leaves, squared = nearest(self.metric(x), self.centers)
        return leaves if self.compute is None else self.compute(leaves, np.sqrt(squared))


class Cut(NamedTuple):
    """Cut of a tree into ``n_clusters`` clusters.

    ``height`` is the height of the next merge, which leaves ``n_clusters - 1`` clusters;
    ``smallest`` is the weight of the smallest cluster.
    """

    n_clusters: int
    height: float
    smallest: float


def codes_of_leaves(leaves: Array, distances: Floats | None = None, *, codes: Array) -> Array:
    """Return the element of ``codes`` for the nearest leaf of each row."""
    return codes[leaves]


class TreeEstimator(FitPredict, Saveable, ClusterMixin, BaseEstimator):
    """Base class of the estimators that compute a tree of leaves."""

    _saved_state: ClassVar[Mapping[str, Entry]] = {
        "n_iter_": Number(int, low=0),
        "history_": Plain(list, records=True),
        "n_clusters_": Number(int, low=0),
        "leaf_weights_": Stored("m", low=0.0),
        "_leaves": Stored("m q"),
        "_metric": OneOf(METRICS),
    }
    #: Number of passes that move prototypes.
    _n_lloyd: ClassVar[int]

    n_prototypes: int
    random_state: Any
    checkpoint: Any
    _leaves: Floats
    _metric: Metric

    def _first_pass(self, data: Data, read: Any) -> FirstPass:
        # Draw one row more than n_prototypes, to find out if there are more rows than prototypes.
        n_picks = min(int(self.n_prototypes) + 1, int(data.rows.n_rows))
        return FirstPass(draw_seeds(self.random_state, 1), n_picks)

    def _find_leaves(
        self, data: OpenData, metric: Metric, fixed_rows: Ints, read: Any = None, **facts: Any
    ) -> LeavesProblem:
        """Draw the leaves.  ``fixed_rows`` are numbers of rows that must be leaves."""
        picks = data.survey.picks[0]
        picks = np.sort(picks[picks["row"] >= 0], order=["key", "row"])
        drawn = np.sort(picks["row"][: self.n_prototypes]).astype(np.int64)
        rows_are_leaves = len(picks) <= self.n_prototypes
        if not rows_are_leaves:
            drawn = drawn[~np.isin(drawn, fixed_rows)]
        rows = data.rows if metric.is_identity else data.rows.transformed(metric)
        return LeavesProblem(
            rows, drawn, metric, 0 if rows_are_leaves else self._n_lloyd, fixed_rows, read, facts
        )

    def _store_leaves(
        self, problem: LeavesProblem, leaves: Leaves, history: list[dict[str, Any]]
    ) -> None:
        self.history_ = history
        self.n_iter_ = len(history)
        self.leaf_weights_ = leaves.weights
        self._leaves, self._metric = leaves.centers, problem.metric

    def _map(
        self,
        X: Any,
        compute: Any,
        dtype: Any,
        name: str,
        lengths: tuple[int, ...] | None = None,
        patch: tuple[Ints, Array] | None = None,
        like: Rows | None = None,
    ) -> Any:
        nearest_leaf = NearestLeaf(self._leaves, self._metric, compute)
        names = getattr(self, "feature_names_in_", None)
        row_function = CheckedRows(nearest_leaf, working_dtype(X.dtype), names=names)
        return map_rows(
            X, row_function, dtype=dtype, lengths=lengths, patch=patch, like=like, name=name
        )

    def _checked(self, X: Any) -> Any:
        check_is_fitted(self)
        return check_rows(self, X, reset=False)

    def _map_leaves(
        self, data: OpenData, problem: LeavesProblem, row_leaves: tuple[Ints, Ints]
    ) -> None:
        patch = row_leaves[0], row_leaves[1].astype(np.int32)
        self._row_leaves = self._map(
            data.X, None, np.int32, "leaves", data.rows.lengths, patch, data.rows
        )

    def _label_rows(self, codes: Ints) -> None:
        """Set ``labels_`` of the rows of the fit, unless the model was loaded from a file."""
        leaves = self.__dict__.get("_row_leaves")
        self.__dict__.pop("labels_", None)
        if leaves is not None:
            leaf_codes = codes.astype(np.int32)
            if is_dask(leaves):
                self.labels_ = leaves.map_blocks(
                    functools.partial(codes_of_leaves, codes=leaf_codes), dtype=np.int32
                )
            else:
                self.labels_ = leaf_codes[leaves]

    def _check_n_clusters(self, n_clusters: int) -> None:
        check_integer(n_clusters, "n_clusters", 1)
        if n_clusters > self.n_prototypes:
            raise ValueError(
                f"n_prototypes must be at least n_clusters={n_clusters}, got "
                f"{self.n_prototypes}. Raise n_prototypes or lower n_clusters."
            )

    def _check_n_leaves(self, n_clusters: int) -> None:
        check_integer(n_clusters, "n_clusters", 1)
        m = len(self.leaf_weights_)
        if n_clusters > m:
            raise ValueError(
                f"n_clusters must be at most {m}, the number of leaves, got {n_clusters}. "
                "Lower n_clusters."
            )

    def _count_cut(self, n_clusters: int, n_distinct: int) -> int:
        """Return the number of clusters of a cut; warn if there are too few distinct leaves."""
        m = len(self.leaf_weights_)
        if n_clusters > m:
            warn(
                f"n_clusters={n_clusters} is larger than the number of leaves, {m}: each leaf is "
                f"a cluster. Use n_clusters={m} or less, or raise n_prototypes.",
                ConstraintWarning,
            )
            n_clusters = m
        # Equal rows merge at height 0.  A cut between them would be arbitrary.
        warn_few_distinct(min(n_distinct, n_clusters), n_clusters)
        return n_clusters

    def _copied(self, **params: Any) -> Self:
        """Return a copy for another cut, with new parameters and without names of classes."""
        copy = object.__new__(type(self))
        copy.__dict__.update({name: v for name, v in vars(self).items() if name not in OF_CLASSES})
        copy.__dict__.update(params)
        return copy

    def _label_function(self) -> Any:
        """Return the ``compute`` of a :class:`NearestLeaf` that computes labels."""
        raise NotImplementedError

    def predict(self, X: Any) -> Any:
        """Predict the cluster of each row from its nearest leaf.

        Parameters
        ----------
        X : array-like, dask.array.Array or Cube of shape (n_samples, n_features)

        Returns
        -------
        labels : ndarray or dask.array.Array of shape (n_samples,), int32
            -1 for noise, if the estimator has noise.  Lazy, and chunked like X, for Dask input:
            values of X are checked when the labels are computed.

        Raises
        ------
        ValueError
            If X has NaN, infinity or another number of features.
        """
        X = self._checked(X)
        return self._map(X, self._label_function(), np.int32, "predict")


#: A number of rows, or a fraction of all rows.
ROWS = (Interval(Integral, 2), Interval(Real, 0, 1, closed="neither"))


def count_rows(value: Any, weight: float, name: str) -> float:
    """Return a number of rows from an integer of at least 2, or from a fraction of all rows."""
    check_value(value, name, *ROWS)
    return float(value) if value >= 2 else max(2.0, math.ceil(float(value) * weight))
