"""Semi-supervised classification: labels are spread along a graph of prototypes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import ClassifierMixin, is_classifier
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import check_is_fitted

from daskclust.core.array_types import Floats
from daskclust.core.engine import Derived, compute, is_dask, map_rows
from daskclust.core.estimator.fit_loop import OpenData, fit
from daskclust.core.estimator.parameters import (
    COMMON,
    COUNT,
    Constraints,
    Interval,
    Like,
    StrOptions,
)
from daskclust.core.estimator.partial_labels import PartialLabels, read_labels
from daskclust.core.estimator.row_functions import CheckedRows
from daskclust.core.estimator.validation import (
    Data,
    Views,
    fetched,
    labels_for,
    weights_for,
)
from daskclust.core.persistence.schema import Classes, Entry, Plain
from daskclust.core.warn import warn
from daskclust.exceptions import ConstraintError, ConstraintWarning
from daskclust.semisupervised.base import BasePrototypes
from daskclust.semisupervised.classifiers import TreesAndLinearParts, as_classifier, takes_missing
from daskclust.semisupervised.feature_views import (
    VIEWS,
    Space,
    check_views,
    choose_views,
    views_take_missing,
)
from daskclust.semisupervised.node_labels import RowNodes, plan_labels, take_rows
from daskclust.semisupervised.predict import POSTERIOR, ClassOf, Posterior, margins
from daskclust.semisupervised.problem import PrototypeState, count_prototypes
from daskclust.semisupervised.spreading import (
    Mixture,
    SpreadingProblem,
    Training,
    advice,
    spread_labels,
)

__all__ = ["LabelSpreading"]

#: Number of nearest nodes that a row connects with each other.
CONNECTED = 2
#: Maximum number of sets of prototypes in each view, and of prototypes in all its sets.
_SETS, _MAX_PROTOTYPES = 6, 2400


def count_sets(n_prototypes: int) -> int:
    """Return the number of sets of prototypes in each view.

    >>> count_sets(400), count_sets(1000), count_sets(5000)
    (6, 2, 1)
    """
    return int(np.clip(_MAX_PROTOTYPES // n_prototypes, 1, _SETS))


class LabelSpreading(ClassifierMixin, BasePrototypes):
    """Label spreading on prototypes, for few labels on data of any size.

    Use it when a few rows have labels, from one to thousands per class, and all rows need a class.
    A few hundred prototypes, the centers of a k-means with many clusters, represent the rows.
    Prototypes and labeled rows are the nodes of a graph.  Each row connects its two nearest nodes
    [1]_.  In images, adjacent pixels also connect their nearest nodes.  Labels are spread along the
    graph [2]_, and a row gets the class probabilities of its nearest nodes.  A classifier is also
    fitted to the labeled rows, and cross-validation chooses the weights of both.

    Parameters
    ----------
    n_prototypes : int, default=400
        Maximum number of prototypes in each of up to six sets; at most a tenth of the rows.
    views : {"auto", "raw", "standard", "angle", "whitened", "mean", "mixture", "pckid"} or \
tuple of str, default="auto"
        Scaled copies of the rows, each with its own prototypes and equal weight.

        - ``"auto"``: ``("raw", "angle", "whitened")`` for a cube, else ``("standard",)``.  If
          values are missing (NaN), ``("mean", "mixture", "pckid")``.
        - ``"raw"``: no scaling.
        - ``"standard"``: each feature divided by its standard deviation, or by a quarter of its
          range if that is more (up to three standard deviations).
        - ``"angle"``: rows scaled to length 1.
        - ``"whitened"``: as ``"angle"``, with almost white noise; only for a
          :class:`daskclust.Cube`.
        - ``"mean"``, ``"mixture"``, ``"pckid"``: for missing values, see the user guide.
    alpha : float in [0, 1), default=0.9
        Weight of the neighbors when labels are spread; 0 does not spread labels.
    n_neighbors : int, default=3
        Number of nearest nodes whose class probabilities a row gets.
    max_iter : int, default=15
        Maximum number of k-means iterations for the prototypes.
    classifier : "trees", classifier or None, default="trees"
        Extremely randomized trees with a logistic regression, any classifier of scikit-learn that
        has ``predict_proba``, or None for the spread labels alone.
    random_state : int, RandomState, Generator or None, default=None
        An int gives the same result for any chunks, scheduler and number of workers.
    checkpoint : path-like, default=None
        File from which a repeated fit with the same data, labels and parameters resumes.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,), int64 or str
        Labels in ascending order.
    labels_ : ndarray or dask.array.Array of shape (n,)
        Class of each row; labeled rows keep their label.  Lazy, and chunked like X, for Dask input.
    prototypes_ : ndarray of shape (m, p), float64
        Prototypes of all sets of all views.
    classifier_ : classifier or None
        Classifier fitted to the labeled rows; None without one, or with a single class.
    mixing_weights_ : ndarray of shape (2,), float64
        Weights of the spread labels and of the classifier.
    left_out_log_loss_ : dict of str to float
        Mean log loss of left-out labels, by ``"spread"``, ``"classifier"`` and ``"mixture"``.
    n_iter_ : int
        Maximum number of k-means iterations of all sets.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (p,)
        Names of the columns, if X has names.
    history_ : list of dict
        One record; its entries are described in the user guide.

    Raises
    ------
    ConstraintError
        For no labels at all, and for rows or labels that cannot be used.
    ValueError
        For infinity, or NaN if a view or the classifier does not take it; for invalid parameters.

    See Also
    --------
    SpectralClustering : Without labels, or with pairs of rows as constraints.
    SemiSupervisedKMeans : If each class is one compact cluster.

    Notes
    -----
    The user guide ("Prototype graphs") describes details, passes, memory and warnings.

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

    #: y contains partial labels.
    _uses_labels: ClassVar[bool] = True

    _saved_state: ClassVar[Mapping[str, Entry]] = {
        "classes_": Classes(),
        "left_out_log_loss_": Plain(dict),
        "_posterior": POSTERIOR,
    }
    #: A checkpoint does not depend on the classifier.
    _resumes_with: ClassVar[tuple[str, ...]] = ("classifier",)

    _parameter_constraints: ClassVar[Constraints] = {
        "n_prototypes": [COUNT],
        "views": [tuple, list, StrOptions("auto", *VIEWS)],
        "alpha": [Interval(Real, 0, 1)],
        "n_neighbors": [COUNT],
        "max_iter": [COUNT],
        "classifier": [Like("a classifier", "get_params"), StrOptions("trees"), None],
        **COMMON,
    }

    def __init__(
        self,
        n_prototypes: int = 400,
        *,
        views: Views = "auto",
        alpha: float = 0.9,
        n_neighbors: int = 3,
        max_iter: int = 15,
        classifier: Any = "trees",
        random_state: Any = None,
        checkpoint: Any = None,
    ) -> None:
        self.n_prototypes = n_prototypes
        self.views: Any = views
        self.alpha = alpha
        self.n_neighbors = n_neighbors
        self.max_iter = max_iter
        self.classifier = classifier
        self.random_state = random_state
        self.checkpoint = checkpoint

    @property
    def transduction_(self) -> Any:
        """The attribute ``labels_``, by its name in scikit-learn."""
        return self.labels_

    def _check_parameters(self) -> None:
        super()._check_parameters()
        classifier = self.classifier
        if classifier is None or (isinstance(classifier, str) and classifier == "trees"):
            return
        is_estimator = hasattr(classifier, "__sklearn_tags__")
        if isinstance(classifier, str | type) or not is_estimator or not is_classifier(classifier):
            raise ValueError(
                "classifier must be 'trees', a classifier of scikit-learn (an object, not its "
                f"class), or None, got {classifier!r}."
            )
        if not hasattr(classifier, "predict_proba"):
            raise ValueError(
                f"classifier must have predict_proba, got {classifier!r}. Use 'trees', or "
                "sklearn.calibration.CalibratedClassifierCV(...)."
            )

    def fit(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> Self:
        """Fit the model to partially labeled rows.

        Parameters
        ----------
        X : array-like, dask.array.Array, DataFrame, xarray.DataArray or Cube
            Rows, of shape (n, p); the samples of a cube.
        y : array-like or dask.array.Array of shape (n,), or (rows, labels)
            Partial labels, as in :meth:`SemiSupervisedKMeans.fit`.  None raises an error.
            At most 10 000 labels are used; if there are more, they are drawn evenly from the
            classes.  The other labeled rows keep their label in ``labels_``.
        sample_weight : array-like or dask.array.Array of shape (n,), optional
            Weights of the rows; rows of weight 0 are ignored.
            Cubes also accept an image (y, x) and ``"area"``; see
            :meth:`daskclust.Cube.row_weights`.

        Returns
        -------
        self
        """
        return fit(self, X, sample_weight, y=y)

    def _read(self, data: Data, y: Any = None) -> tuple[PartialLabels, tuple[str, ...]]:
        views = check_views(self.views, is_cube=data.cube is not None)
        if y is None:
            raise ConstraintError(
                "LabelSpreading requires y to be passed, but the target y is None. Use fit(X, y) "
                "with -1 or NaN for unlabeled rows, y=(rows, labels), or --labels. For data "
                "without labels use SpectralClustering or KMeans."
            )
        if len(getattr(y, "shape", ())) == 2:
            warn(
                "A column-vector y was passed when a 1d array was expected. Use y.ravel().",
                DataConversionWarning,
            )
        labels = read_labels(y, data.n_rows)
        if not len(labels.rows):
            raise ConstraintError(
                "y must have at least one label, got only unlabeled rows. For data without labels "
                "use SpectralClustering or KMeans."
            )
        return labels, views

    def _problem(
        self, data: OpenData, read: tuple[PartialLabels, tuple[str, ...]]
    ) -> SpreadingProblem:
        labels, views = read
        positions = None if data.cube is None else data.cube.places_of_rows
        plan = plan_labels(labels, int(self.n_prototypes), data.seeds[0], positions)
        x, weight = take_rows(data.rows, plan.rows)
        plan, x, weight = plan.present(x, weight)
        nodes = RowNodes(x[plan.is_node], weight[plan.is_node])
        n_prototypes = count_prototypes(int(self.n_prototypes), data.rows.n_rows)
        used = choose_views(self.views, views, data.survey, joined=False)
        if self.classifier is not None and views_take_missing(used):
            classifier = as_classifier(self.classifier, 0, data.rows.n_features)
            if not takes_missing(classifier):
                raise ValueError(
                    f"X may have missing values with views={used}, and classifier="
                    f"{self.classifier!r} does not take NaN. Use classifier='trees', one after an "
                    "imputer (sklearn.pipeline.make_pipeline), or None."
                )
        one_hot = np.eye(len(labels.classes))[plan.codes] * weight[:, None]
        return SpreadingProblem(
            rows=data.rows,
            cube=data.cube,
            weight=data.weight,
            views=used,
            n_sets=count_sets(n_prototypes),
            n_prototypes=n_prototypes,
            n_near=CONNECTED,
            lloyd_iter=int(self.max_iter),
            seed=data.seeds[0],
            extra=nodes.x,
            known=lambda: {"labels": labels.digest()},
            plan=replace(plan, x=x, weights=one_hot, labels=labels),
            nodes_of=nodes,
            seeds=nodes.sums(one_hot[plan.is_node]),
        )

    def _finish(
        self,
        data: OpenData,
        problem: SpreadingProblem,
        state: PrototypeState,
        history: list[dict[str, Any]],
    ) -> None:
        labels = problem.plan.labels
        self.classes_ = labels.classes
        training = None
        if self.classifier is not None and len(np.unique(problem.plan.codes)) > 1:
            classifier = as_classifier(self.classifier, problem.seed, data.rows.n_features)
            training = Training(problem.plan, classifier, problem.seed)
        folds = () if training is None else training.folds
        spread = spread_labels(problem, state, float(self.alpha), int(self.n_neighbors), folds)
        facts = self._add_classifier(spread.posteriors[0], spread.posteriors[1:], training)
        self._set_fitted(
            problem,
            state,
            problem.prototypes(state),
            history,
            unreached_nodes=spread.unreached_nodes,
            unreached_rows=spread.unreached_rows,
            **facts,
        )
        unreached = np.reshape(spread.unreached_rows, (len(problem.views), problem.n_sets))
        # The sets have different components, so labels need to reach all nodes of one set only.
        if unreached.min(axis=1).any():
            self._warn_of_unreached(
                problem.views, spread.unreached_nodes, unreached, float(data.survey.weight)
            )
        self.labels_ = map_rows(
            data.X,
            Derived(
                CheckedRows(self._posterior, data.rows.dtype, views_take_missing(problem.views)),
                ClassOf(self.classes_),
            ),
            dtype=self.classes_.dtype,
            lengths=data.rows.lengths,
            patch=(labels.rows, labels.classes[labels.codes]),
            like=data.rows,
        )

    def _add_classifier(
        self, posterior: Posterior, without: list[Posterior], training: Training | None
    ) -> dict[str, Any]:
        """Set the posterior with the classifier; return facts about it for the history."""
        self._classifier: Any = None
        self._posterior = posterior
        if training is None:
            self.left_out_log_loss_ = Mixture().losses
            return {}
        self._classifier, parts = training.fit()
        mixture = training.weigh(without, parts)
        has_several = isinstance(parts, TreesAndLinearParts)
        if has_several:
            self._classifier.linear_share_ = mixture.linear_share
            parts = replace(parts, linear_share=mixture.linear_share)
        self._posterior = replace(posterior, classifier=parts, weights=mixture.weights)
        self.left_out_log_loss_ = mixture.losses
        return {
            "mixing_weights": mixture.weights.tolist(),
            "left_out_log_loss": mixture.losses,
            "advice": advice(mixture, has_several, training.n_labels, training.n_rows),
        }

    def _warn_of_unreached(
        self, views: tuple[str, ...], nodes: list[int], rows: Floats, weight: float
    ) -> None:
        """Warn about components without a labeled node in all sets of a view.

        ``nodes`` and ``rows`` (views, sets) are numbers of nodes and rows that no label reaches.
        """
        view = int(np.argmax(rows.min(axis=1)))
        in_view = int(np.argmin(rows[view]))
        graph = view * rows.shape[1] + in_view
        n_rows = float(rows[view, in_view])
        if len(views) > 1 and not rows.all():
            consequence = "Other views decide about them"
        elif self.classifier is None:
            consequence = "Their class is arbitrary, and their margin is 0"
        else:
            consequence = "The classifier alone decides about them"
        warn(
            f"No label reaches {nodes[graph]} of {self.history_[-1]['nodes'][graph]} nodes in "
            f"view {views[view]!r} (about {n_rows:.0f} rows, {n_rows / weight:.1%} of the data): "
            f"these nodes are not connected with any labeled row. {consequence}. Label some of "
            "these rows.",
            ConstraintWarning,
        )

    def _check_sizes(self) -> None:
        self._posterior.check(self.n_features_in_, len(self.classes_))

    @property
    def classifier_(self) -> Any:
        """Fitted classifier; for a loaded model its parts, which predict the same."""
        check_is_fitted(self)
        return vars(self).get("_classifier", self._posterior.classifier)

    @property
    def mixing_weights_(self) -> Floats:
        """Weights of the spread labels and of the classifier."""
        check_is_fitted(self)
        return self._posterior.weights

    @property
    def _space(self) -> Space:
        return self._posterior.space

    def _nodes_of_views(self) -> list[tuple[Space, Floats]]:
        return [(view.space, view.graphs[0].nodes) for view in self._posterior.views]

    def _derived(
        self,
        X: Any,
        name: str,
        dtype: Any,
        derive: Callable[..., Any],
        n_columns: int | None = None,
    ) -> Any:
        return self._map(X, self._posterior, dtype, name, n_columns, derive)

    def predict(self, X: Any) -> Any:
        """Predict the most probable class of each row.

        Parameters
        ----------
        X : array-like, dask.array.Array or Cube of shape (n_samples, n_features)

        Returns
        -------
        labels : ndarray or dask.array.Array of shape (n_samples,)
            Elements of ``classes_``, the first one in case of ties.  Lazy, and chunked like X, for
            a Dask array or a cube.

        Raises
        ------
        ValueError
            For NaN or infinity, and a wrong number of features.

        Notes
        -----
        Lazy results of :meth:`predict`, :meth:`predict_proba` and :meth:`margin` for the same X
        share the evaluation of each block if they are computed or written together, as with
        ``dask.compute(model.predict(X), model.margin(X))``; so does ``labels_`` for the rows of
        the fit.
        """
        check_is_fitted(self)
        return self._derived(X, "labels", self.classes_.dtype, ClassOf(self.classes_))

    def predict_proba(self, X: Any) -> Any:
        """Compute the probability of each class, for each row.

        Parameters
        ----------
        X : array-like, dask.array.Array or Cube of shape (n_samples, n_features)

        Returns
        -------
        probabilities : ndarray or dask.array.Array of shape (n_samples, n_classes), float64
            In the order of ``classes_``.
        """
        check_is_fitted(self)
        return self._derived(X, "probabilities", float, np.asarray, len(self.classes_))

    def margin(self, X: Any) -> Any:
        """Compute the difference of the two largest class probabilities of each row.

        Parameters
        ----------
        X : array-like, dask.array.Array or Cube of shape (n_samples, n_features)

        Returns
        -------
        margin : ndarray or dask.array.Array of shape (n_samples,), float64
            Near 0 for uncertain classes; 1 for all rows if there is one class.
        """
        check_is_fitted(self)
        return self._derived(X, "margin", float, margins)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Compute the accuracy on the labeled rows.

        Parameters
        ----------
        X : array-like, dask.array.Array or Cube of shape (n_samples, n_features)
        y : array-like or dask.array.Array of shape (n_samples,), or (rows, labels)
            True classes, as for ``fit``; unlabeled rows are ignored.
        sample_weight : array-like of shape (n_samples,), optional
            Cubes also accept an image (y, x) and ``"area"``; see
            :meth:`daskclust.Cube.row_weights`.

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
        labels = read_labels(labels_for(X, y)[0], n)
        predicted = predicted[labels.rows]
        if is_dask(predicted):
            (predicted,) = compute("the labels of rows", predicted)
        is_correct = predicted == labels.classes[labels.codes]
        weight = weights_for(X, sample_weight)
        if weight is not None:
            weight = np.asarray(fetched(weight, "sample_weight"))[labels.rows]
        return float(np.average(is_correct, weights=weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = False
        if self.classifier is not None and not isinstance(self.classifier, str):
            tags.input_tags.allow_nan &= takes_missing(self.classifier)
        return tags
