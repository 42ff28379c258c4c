"""Semi-supervised classification: few labels travel along the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import check_is_fitted

from daskclust._warnings import warn
from daskclust.engine import as_matrix, compute, is_dask, map_rows
from daskclust.estimator.base import output_dtype
from daskclust.estimator.data import Data
from daskclust.estimator.fitting import OpenData, fit
from daskclust.estimator.inputs import as_cube, check_rows
from daskclust.estimator.parameters import check_integer, check_real
from daskclust.estimator.partial_labels import PartialLabels, read_labels
from daskclust.estimator.values import nonfinite_message
from daskclust.exceptions import ConstraintError, ConstraintWarning
from daskclust.kernels.moments import first_nonfinite
from daskclust.persistence.schema import Array, Classes, Entry, Number
from daskclust.prototypes.base import BasePrototypes, RowNodes, take_rows
from daskclust.prototypes.graph import normalized, spread, unreached
from daskclust.prototypes.labeled import LabelPlan, plan_labels
from daskclust.prototypes.left_out import (
    RIDGE_SHARE,
    balanced_loss,
    ridge_share,
    spread_left_out,
)
from daskclust.prototypes.posterior import Posterior, SpacePosterior, shares
from daskclust.prototypes.references import References, best_share
from daskclust.prototypes.ridge import KernelRidge, fit_ridge
from daskclust.prototypes.state import GraphCounts, PrototypeProblem, PrototypeState, split
from daskclust.prototypes.views import check_views

__all__ = ["LabelSpreading"]

Float = NDArray[np.float64]

#: Nearest nodes of a row that count as connected.
_CONNECTED = 2
#: Labeled rows by which the share of the nearest ones is chosen, at most.
_TRIED = 4096


class _Read(NamedTuple):
    """What ``fit`` was given besides X."""

    labels: PartialLabels
    cube: Any
    weight: Any
    views: tuple[str, ...]


@dataclass(frozen=True)
class _Problem(PrototypeProblem):
    """The labeled rows, with what any fit on prototypes needs.

    Parameters
    ----------
    plan : LabelPlan
    nodes_of : RowNodes
        Labeled rows that are nodes.
    seeds : ndarray of shape (k, c)
        Weights of the classes of these nodes.
    """

    plan: LabelPlan
    nodes_of: RowNodes
    seeds: Float


@dataclass(frozen=True)
class _Answer:
    """What becomes of the rows of a block; travels to the workers."""

    posterior: Posterior
    dtype: np.dtype[Any]
    kind: str
    classes: NDArray[Any] | None = None

    def __call__(self, x: NDArray[Any], start: int) -> NDArray[Any]:
        """Classes, probabilities or margins of the rows."""
        x = as_matrix(x, self.dtype)
        row, column = first_nonfinite(x)
        if row >= 0:
            raise ValueError(nonfinite_message(bool(np.isnan(x[row, column])), start + row, column))
        found = self.posterior(x)
        if self.kind == "probabilities":
            return found
        if self.kind == "margin":
            if found.shape[1] == 1:
                return np.ones(len(found))
            best = np.partition(found, found.shape[1] - 2, axis=1)[:, -2:]
            margin: Float = best[:, 1] - best[:, 0]
            return margin
        assert self.classes is not None
        return np.asarray(self.classes[found.argmax(axis=1)])


class LabelSpreading(ClassifierMixin, BasePrototypes):
    """Label spreading on prototypes: few labels travel along data of any size.

    Rows are summed up by a few hundred prototypes.  One pass counts how these hang
    together: two are connected by each row whose two nearest nodes they are [1]_, and in
    images by each two adjacent pixels that lie nearest to them.  Labels travel along this
    graph [2]_, and are joined with a kernel ridge regression on the labeled rows; a row is
    given what its nearest nodes have.  How much the regression counts is decided by leaving
    out each label once, within bounds.

    Parameters
    ----------
    n_prototypes : int, default=400
        Prototypes in each view; no more than a tenth of the rows.
    views : {"auto", "raw", "standard", "angle", "whitened"} or tuple of str, default="auto"
        Spaces in which rows are compared; each has its own prototypes, and all count
        alike.  ``"raw"``: as they are.  ``"standard"``: features by their standard
        deviation, or a quarter of their range where that is more (up to three standard
        deviations).  ``"angle"``: rows of length 1.  ``"whitened"``: as ``"angle"``, with
        the noise of the image made (softly) white, for a :class:`daskclust.Cube` only.
        Each is turned to 30 principal components at most.  ``"auto"`` is
        ``("raw", "angle", "whitened")`` for a cube and ``("standard",)`` else.
    alpha : float in [0, 1), default=0.9
        How far labels travel: 0 is not at all.
    n_neighbors : int, default=3
        Nearest nodes of which a row takes its labels.
    max_iter : int, default=15
        Iterations of k-means, for the prototypes.
    random_state : int, RandomState, Generator or None, default=None
        An int fixes the result whatever the chunks, the scheduler and the number of
        workers.
    checkpoint : path-like, default=None
        File that holds the prototypes, and then the counts; a fit started again with the
        same data, labels and parameters continues from it.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,), int64 or text
        Labels in ascending order.
    labels_ : ndarray or dask.array.Array of shape (n,)
        Class of each row, out of ``classes_``; labeled rows keep their label.  Lazy, and
        chunked like X, for Dask input.
    prototypes_ : ndarray of shape (m, p), float64
        Prototypes of all views, one view after another: rows of the data's kind, in the
        views ``"angle"`` and ``"whitened"`` directions of length near 1.
    n_iter_ : int
        Iterations of k-means.
    n_features_in_, feature_names_in_
        As in scikit-learn.
    history_ : list of dict
        One record, with ``objective`` (number of connected pairs of nodes), ``passes``,
        ``seconds``, ``nodes`` (of each view), ``unreached_nodes`` and ``unreached_rows``
        (that no label reaches, of each view), ``ridge_share`` and ``neighbor_share`` (of the
        kernel ridge, and of the nearest labeled rows).

    Raises
    ------
    ConstraintError
        For no labels at all, rows out of range or labeled twice, another number of labels
        than rows, and labels that are neither whole numbers nor text.
    ValueError
        For NaN or infinity in X (naming the first), and parameters out of range.
    CheckpointError
        If the checkpoint is broken or belongs to other data, labels or parameters.

    Warns
    -----
    ConstraintWarning
        If labeled rows have sample weight 0, and if parts of the graph hold no label:
        their rows are decided by the kernel ridge alone, with a margin that is small.

    See Also
    --------
    SpectralClustering : Without labels, or with constraints between pairs.
    SemiSupervisedKMeans : Where each class is one compact cluster.

    Notes
    -----
    *Passes*: 1 to check the data, 1 that draws a sample of 65 536 rows (64 a prototype if
    that is more) of which views and prototypes are made, 1 that reads the chunks with
    labeled rows, and 1 that counts, for all views.  A cube with masked pixels takes one
    more, to count them.  *Memory* of a worker thread: one block, its views, and the
    different pairs of nodes it connects.  *On the client*: the sample, and with m nodes
    (prototypes and labeled rows, at most three times ``n_prototypes``) O(m^3) time and
    some matrices of ``8 m^2`` bytes; never anything of length n.

    *More labels than nodes*: up to ``2 n_prototypes`` different labeled rows are nodes of
    their own, chosen evenly among the classes; others are counted to their nearest
    prototype.  A sample of up to ``n_prototypes^2 / 2`` of them then also votes by its
    nearest neighbors, with the share that makes the labels of this sample the most likely
    when each is left out.  So with a label on every row this is as good as a
    nearest-neighbor classifier on that sample.

    A class may have a single label.  Equal rows with different labels are one node that
    has each class by its share.  ``sample_weight`` weighs the rows in the graph and the
    labels; a weight of 0 is absence.

    References
    ----------
    .. [1] Tasdemir, K., Merenyi, E. (2009). Exploiting data topology in visualization and
       clustering of self-organizing maps. IEEE Transactions on Neural Networks 20.
    .. [2] Zhou, D. et al. (2004). Learning with local and global consistency. NIPS.

    Examples
    --------
    >>> import numpy as np
    >>> import daskclust
    >>> angle = np.linspace(0, np.pi, 300)
    >>> moon = np.column_stack([np.cos(angle), np.sin(angle)])
    >>> X = np.concatenate([moon, [1.0, 0.4] - moon])
    >>> y = ([0, 300], ["upper", "lower"])
    >>> model = daskclust.LabelSpreading(random_state=0).fit(X, y)
    >>> bool((model.labels_ == np.repeat(["upper", "lower"], 300)).all())
    True
    """

    #: Of partial labels.
    _uses_labels: ClassVar[bool] = True

    _saved_state: ClassVar[Mapping[str, Entry]] = {
        "classes_": Classes(),
        "_nodes": Array("t", "q"),
        "_node_shares": Array("t", "c", low=0),
        "_n_prototypes": Array("v", kind="i", low=1),
        "_n_labeled": Number(int, low=0),
        "_ridge_widths": Array("v", low=0),
        "_ridge_weights": Array("v", "l", "c"),
        "_reference_points": Array("v", "r", "q", optional=True),
        "_reference_shares": Array("r", "c", low=0, optional=True),
        "_ridge_share": Number(low=0),
        "_neighbor_share": Number(low=0),
    }

    def __init__(
        self,
        n_prototypes: int = 400,
        *,
        views: Any = "auto",
        alpha: float = 0.9,
        n_neighbors: int = 3,
        max_iter: int = 15,
        random_state: Any = None,
        checkpoint: Any = None,
    ) -> None:
        self.n_prototypes = n_prototypes
        self.views = views
        self.alpha = alpha
        self.n_neighbors = n_neighbors
        self.max_iter = max_iter
        self.random_state = random_state
        self.checkpoint = checkpoint

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_integer(self.max_iter, "max_iter", 1)
        check_real(self.alpha, "alpha", 0, maximum=1)
        if self.alpha == 1:
            raise ValueError("alpha == 1, must be < 1: labels would travel without end.")

    def fit(self, X: Any, y: Any, *, sample_weight: Any = None) -> Self:
        """Let labels travel.

        Parameters
        ----------
        X : array-like, dask.array.Array, DataFrame, xarray.DataArray or Cube
            Rows, of shape (n, p); of a cube its `samples`.
        y : array-like or dask.array.Array of shape (n,), or (rows, labels)
            Partial labels: integers, whole floats, or text; -1 (or a mask, and among text
            also None or what pandas has for a missing value) where there is none.  Or
            global row numbers and their labels, as :meth:`daskclust.Cube.rows_of` makes
            of a map.
        sample_weight : array-like or dask.array.Array of shape (n,), optional
            Weights of the rows, 0 for absence.

        Returns
        -------
        self
        """
        return fit(self, X, sample_weight, y=y, cube=as_cube(X))

    def _read(self, data: Data, y: Any = None, cube: Any = None) -> _Read:
        views = check_views(self.views, is_cube=cube is not None)
        if y is None:
            raise ConstraintError(
                "LabelSpreading requires y to be passed, but the target y is None. Give labels, "
                "-1 where there is none, or use SpectralClustering or KMeans without."
            )
        if len(getattr(y, "shape", ())) == 2:
            warn(
                "A column-vector y was passed when a 1d array was expected. Use y.ravel().",
                DataConversionWarning,
            )
        labels = read_labels(y, data.n_rows)
        if not len(labels.rows):
            raise ConstraintError(
                "y has no label; expected at least one row with a class. Use SpectralClustering "
                "or KMeans where there are no labels."
            )
        return _Read(labels, cube, data.weight, views)

    def _problem(self, data: OpenData, read: _Read) -> _Problem:
        plan = plan_labels(read.labels, int(self.n_prototypes), data.seeds[0])
        x, weight = take_rows(data.rows, plan.rows)
        plan, x, weight = plan.present(x, weight)
        nodes = RowNodes(x[plan.is_node], weight[plan.is_node])
        n_classes = len(read.labels.classes)
        one_hot = np.eye(n_classes)[plan.codes] * weight[:, None]
        return _Problem(
            rows=data.rows,
            cube=read.cube,
            weight=read.weight,
            views=read.views,
            joined=False,
            n_prototypes=self._count_prototypes(data.rows.n_rows, 2),
            n_near=_CONNECTED,
            lloyd_iter=int(self.max_iter),
            seed=data.seeds[0],
            extra=nodes.x,
            labels=plan.others,
            known={"labels": read.labels.digest()},
            plan=replace(plan, x=x, weights=one_hot, labels=read.labels),
            nodes_of=nodes,
            seeds=nodes.sums(one_hot[plan.is_node]),
        )

    def _finish(
        self,
        data: OpenData,
        problem: _Problem,
        state: PrototypeState,
        history: list[dict[str, Any]],
    ) -> None:
        spaces = problem.spaces(state.space)
        found, missed, missed_rows, losses = [], [], [], []
        seeds = problem.seeds
        parts = zip(spaces, problem.nodes(state), problem.counts(state), state.sizes, strict=True)
        for space, nodes, counts, size in parts:
            travelled, lost, left_out = self._travel(counts, seeds, int(size))
            ridge, scores = fit_ridge(nodes[size:], shares(seeds), problem.nodes_of.weight)
            found.append(SpacePosterior(space, nodes, int(size), travelled, ridge, RIDGE_SHARE))
            losses.append([balanced_loss(left_out, seeds), balanced_loss(shares(scores), seeds)])
            missed.append(int(lost.sum()))
            missed_rows.append(float(counts.near[lost].sum() / 2))
        if problem.plan.others is None:
            by_graph, by_ridge = np.mean(losses, axis=0)
            share = ridge_share(by_graph, by_ridge, len(seeds))
            found = [replace(one, ridge_share=share) for one in found]
        labels = problem.plan.labels
        assert labels is not None
        self.classes_ = labels.classes
        self._keep_spaces(state, spaces)
        self._keep_posterior(found, problem.plan)
        self.history_ = [
            *history[:-1],
            {
                **history[-1],
                "passes": history[-1]["passes"] + problem.cube_passes,
                "nodes": [len(one.nodes) for one in found],
                "unreached_nodes": missed,
                "unreached_rows": missed_rows,
                "ridge_share": self._ridge_share,
                "neighbor_share": self._neighbor_share,
            },
        ]
        if any(missed_rows):
            worst = int(np.argmax(missed_rows))
            warn(
                f"No label reaches {missed[worst]} of {len(found[worst].nodes)} nodes in view "
                f"{problem.views[worst]!r} (about {missed_rows[worst]:.0f} rows): they are not "
                "connected with any labeled row. These rows are decided by their distance to the "
                "labeled ones alone; look at their margin, or label some of them.",
                ConstraintWarning,
            )
        self.labels_ = map_rows(
            data.X,
            self._answer(data.rows.dtype, "labels"),
            dtype=self.classes_.dtype,
            lengths=data.rows.lengths,
            patch=(labels.rows, labels.classes[labels.codes]),
        )

    def _travel(
        self, counts: GraphCounts, seeds: Float, n_prototypes: int
    ) -> tuple[Float, NDArray[np.bool_], Float]:
        """Shares of the classes at the nodes, which nodes no label reaches, and shares left out.

        The last are those of the labeled nodes by the labels of the others.
        """
        graph = normalized(counts.near)
        if counts.adjacent is not None:
            graph = normalized(graph + normalized(counts.adjacent))
        counted = counts.classes
        if not counted.size:
            counted = np.zeros((n_prototypes, seeds.shape[1]))
        given = np.concatenate([counted, seeds])
        lost = unreached(graph, given.sum(axis=1) > 0)
        totals = given.sum(axis=0)
        # Classes count alike, however many labels they have.
        given = np.divide(given, totals, out=np.zeros_like(given), where=totals > 0)
        own = np.eye(len(graph), len(seeds), -n_prototypes)
        reached = spread(graph, np.hstack([given, own]), float(self.alpha))
        travelled, reached = shares(reached[:, : seeds.shape[1]]), reached[:, seeds.shape[1] :]
        travelled[lost] = 1.0 / travelled.shape[1]
        return travelled, lost, spread_left_out(reached[n_prototypes:], seeds)

    def _keep_posterior(self, spaces: list[SpacePosterior], plan: LabelPlan) -> None:
        self._nodes = np.concatenate([one.nodes for one in spaces])
        self._node_shares = np.concatenate([one.node_shares for one in spaces])
        self._n_prototypes = np.array([one.n_prototypes for one in spaces])
        self._n_labeled = len(spaces[0].nodes) - spaces[0].n_prototypes
        self._ridge_widths = np.array([one.ridge.width for one in spaces])
        self._ridge_weights = np.stack([one.ridge.weights for one in spaces])
        self._ridge_share = spaces[0].ridge_share
        self._neighbor_share = 0.0
        for name in ("_reference_points", "_reference_shares"):
            if hasattr(self, name):
                delattr(self, name)
        if plan.others is None:
            return
        assert plan.x is not None
        assert plan.weights is not None
        rows = RowNodes(plan.x, plan.weights.sum(axis=1))
        self._reference_shares = shares(rows.sums(plan.weights))
        self._reference_points = np.stack([one.space(rows.x) for one in spaces])
        self._neighbor_share = self._choose_share(rows, rows.node[plan.is_node])

    def _choose_share(self, rows: RowNodes, nodes: NDArray[np.intp]) -> float:
        """Choose the share of the nearest labeled rows by those that are no nodes."""
        others = np.ones(len(rows.x), bool)
        others[nodes] = False
        tried = np.flatnonzero(others)
        tried = tried[:: -(-len(tried) // _TRIED) or 1]
        if not len(tried):
            return 0.0
        known = self._reference_shares[tried]
        graph, neighbors = np.zeros_like(known), np.zeros_like(known)
        for one in self._posterior().spaces:
            z = one.space(rows.x[tried])
            assert one.references is not None
            place = np.argsort(one.references.order)
            graph += one.graph(z, int(self.n_neighbors))
            neighbors += shares(one.neighbors(z, place[tried]))
        n = len(self._n_prototypes)
        return best_share(graph / n, neighbors / n, known)

    def _posterior(self) -> Posterior:
        """Return the row function of the fitted model."""
        sizes = self._n_prototypes + self._n_labeled
        parts = zip(
            self._space.alone(),
            split(self._nodes, sizes),
            split(self._node_shares, sizes),
            self._n_prototypes.tolist(),
            self._ridge_widths.tolist(),
            self._ridge_weights,
            strict=True,
        )
        spaces = []
        for v, (space, nodes, node_shares, size, width, weights) in enumerate(parts):
            references = None
            if hasattr(self, "_reference_points"):
                references = References.build(
                    self._reference_points[v], self._reference_shares, nodes[:size]
                )
            ridge = KernelRidge(nodes[size:], width, weights)
            spaces.append(
                SpacePosterior(
                    space, nodes, size, node_shares, ridge, self._ridge_share, references
                )
            )
        return Posterior(tuple(spaces), int(self.n_neighbors), self._neighbor_share)

    def _answer(self, dtype: Any, kind: str) -> _Answer:
        return _Answer(self._posterior(), np.dtype(dtype), kind, self.classes_)

    def _map(self, X: Any, kind: str, dtype: Any, n_columns: int | None = None) -> Any:
        check_is_fitted(self)
        X = check_rows(self, X, reset=False)
        answer = self._answer(output_dtype(X), kind)
        return map_rows(X, answer, dtype=dtype, n_columns=n_columns, name=kind)

    def fit_predict(self, X: Any, y: Any, **params: Any) -> Any:
        """Fit and return ``labels_``."""
        return self.fit(X, y, **params).labels_

    def predict(self, X: Any) -> Any:
        """Most probable class of each row.

        Parameters
        ----------
        X : array-like, dask.array.Array or Cube of shape (n_samples, n_features)

        Returns
        -------
        labels : ndarray or dask.array.Array of shape (n_samples,)
            Out of ``classes_``; ties go to the first.  Lazy, and chunked like X, for a
            Dask array or a cube.

        Raises
        ------
        ValueError
            For NaN or infinity, and another number of features.
        """
        check_is_fitted(self)
        return self._map(X, "labels", self.classes_.dtype)

    def predict_proba(self, X: Any) -> Any:
        """Probability of each class, for each row.

        Parameters
        ----------
        X : array-like, dask.array.Array or Cube of shape (n_samples, n_features)

        Returns
        -------
        probabilities : ndarray or dask.array.Array of shape (n_samples, n_classes), float64
            In the order of ``classes_``.
        """
        check_is_fitted(self)
        return self._map(X, "probabilities", np.float64, len(self.classes_))

    def margin(self, X: Any) -> Any:
        """Probability of the best class less that of the second best, for each row.

        Parameters
        ----------
        X : array-like, dask.array.Array or Cube of shape (n_samples, n_features)

        Returns
        -------
        margin : ndarray or dask.array.Array of shape (n_samples,), float64
            Near 0 where the class is uncertain; 1 for all rows if there is one class.
        """
        return self._map(X, "margin", np.float64)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of the rows whose class is predicted rightly.

        Parameters
        ----------
        X : array-like, dask.array.Array or Cube of shape (n_samples, n_features)
        y : array-like or dask.array.Array of shape (n_samples,), or (rows, labels)
            True classes, as for ``fit``; rows without one do not count.
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        float
        """
        check_is_fitted(self)
        predicted = self.predict(X)
        n = predicted.shape[0]
        if np.isnan(n):
            predicted = predicted.compute_chunk_sizes()
            n = predicted.shape[0]
        labels = read_labels(y, n)
        found = predicted[labels.rows]
        found = compute("the labels of rows", found)[0] if is_dask(found) else found
        right = found == labels.classes[labels.codes]
        weight = None if sample_weight is None else np.asarray(sample_weight)[labels.rows]
        return float(np.average(right, weights=weight))

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn what this estimator takes."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = False
        return tags
