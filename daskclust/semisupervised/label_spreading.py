"""Semi-supervised classification: few labels travel along the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import ClassifierMixin, is_classifier
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import check_is_fitted

from daskclust.core.array_types import Floats
from daskclust.core.engine import compute, is_dask, map_rows
from daskclust.core.estimator.fit_loop import OpenData, fit
from daskclust.core.estimator.partial_labels import PartialLabels, read_labels
from daskclust.core.estimator.row_functions import CheckedRows
from daskclust.core.estimator.validation import (
    Data,
    Views,
    check_integer,
    check_real,
    fetched,
    labels_for,
)
from daskclust.core.persistence.schema import Classes, Entry, Plain
from daskclust.core.warn import warn
from daskclust.exceptions import ConstraintError, ConstraintWarning
from daskclust.semisupervised.base import BasePrototypes
from daskclust.semisupervised.classifiers import Both, as_classifier, takes_missing
from daskclust.semisupervised.feature_views import Space, check_views, takes_gaps, views_of_gaps
from daskclust.semisupervised.node_labels import RowNodes, plan_labels, take_rows
from daskclust.semisupervised.predict import (
    OUTPUTS,
    STORED_POSTERIOR,
    Evaluation,
    Nearness,
    OneOutput,
    Posterior,
    check_stored,
    restore_posterior,
    store_posterior,
)
from daskclust.semisupervised.problem import PrototypeState, count_prototypes
from daskclust.semisupervised.spreading import (
    Lesson,
    Mixture,
    SpreadingProblem,
    advice,
    spread_labels,
    with_references,
)

#: Nearest nodes of a row that count as connected.
CONNECTED = 2
#: Sets of prototypes in each view, and prototypes of all its sets at most.
_SETS, _MOST_PROTOTYPES = 6, 2400


def count_sets(n_prototypes: int) -> int:
    """Return the number of sets of prototypes in each view.

    >>> count_sets(400), count_sets(1000), count_sets(5000)
    (6, 2, 1)
    """
    return int(np.clip(_MOST_PROTOTYPES // n_prototypes, 1, _SETS))


class LabelSpreading(ClassifierMixin, BasePrototypes):
    """Label spreading on prototypes: few labels travel along data of any size.

    The rows are represented by a few hundred prototypes, the centers of a k-means with many
    clusters.  Prototypes and labeled rows are the nodes of a graph.  One pass counts its edges:
    each row connects its two nearest nodes [1]_, and in images each pair of adjacent pixels
    connects the nodes nearest to them.  Labels are spread along this graph [2]_, and the result
    is combined at the nodes with a kernel ridge regression on the labeled rows.  The weight of
    the regression (within bounds), that of each of its kernels, for which axes of small variance
    are stretched more or less, and how sharp both probabilities are, are chosen by leaving out
    each label once.  The combined
    probabilities are spread along the graph again, a short way, so that neighbors that agree
    prevail.  A row gets the class probabilities of its nearest nodes; the better the regression
    predicts the labels left out, the more of its own value at the row is added.  Up to six sets of
    prototypes from different starts are averaged, since a single set depends on its start.

    A classifier that is taught by the labeled rows stands beside the graph: the more labels
    there are, the more it knows.  The logarithms of both probabilities are added up with weights
    that make labels left out in four folds the most likely.  They are drawn to the graph alone
    where it foretells these labels better than chance or rows miss values, and to the classifier
    where not.  So one estimator serves from three labels to ten thousand.

    Parameters
    ----------
    n_prototypes : int, default=400
        Maximum number of prototypes in each set.  A set has at most a tenth of the rows as
        prototypes; for 100 to 500 rows the limit is 50 instead, and at most a fourth of the rows.
        Each view has six sets of up to 400 prototypes.  With more prototypes per set there are
        fewer sets, with at most 2400 prototypes in all, and at least one set.
    views : {"auto", "raw", "standard", "angle", "whitened", "mean", "mixture", "pckid"} or \
tuple of str, default="auto"
        Spaces in which rows are compared; each has its own prototypes, and all count
        alike.  ``"raw"``: as they are.  ``"standard"``: features by their standard
        deviation, or a quarter of their range where that is more (up to three standard
        deviations). ``"angle"``: rows of length 1. ``"whitened"``: as ``"angle"``, after the
        noise of the bands was made nearly equal and uncorrelated, for a :class:`daskclust.Cube`
        only.  Each is turned to 30 principal components at most.  ``"auto"`` is
        ``("raw", "angle", "whitened")`` for a cube and ``("standard",)`` else.  Where values
        are missing (NaN), it is ``("mean", "mixture", "pckid")``: the means of the columns in
        their place, conditional means under a mixture of 8 diagonal components, and 15
        coordinates of the kernel of :class:`PCKID` (Q = 10, G = 15); all trained on the sample.
    alpha : float in [0, 1), default=0.9
        How far labels spread along the graph, from 0 (not at all) to nearly 1.
    n_neighbors : int, default=3
        Number of nearest nodes whose class probabilities a row gets.
    max_iter : int, default=15
        Iterations of k-means, for the prototypes.
    classifier : "trees", classifier or None, default="trees"
        What is beside the graph: 100 extremely randomized trees
        (:class:`sklearn.ensemble.ExtraTreesClassifier`) whose thresholds are drawn among the
        ranks of the values, so that no far value and no scale matters, and linear functions of
        the standardized features, for which fewer labels suffice, mixed by the labels left out;
        a classifier of scikit-learn with ``predict_proba``, of which a copy is fitted; or
        nothing.  The functions are those of :class:`sklearn.linear_model.LogisticRegression`.
        With fewer labels than features they are those of a linear discriminant, its covariances
        shrunk in the principal axes of the labeled rows, if it predicts labels left out better.
        The classifier sees the features as they are in X; to the linear functions a missing
        value is the mean of the labeled rows, and a value far beyond theirs is half their range
        beyond.  At most 10 000 labeled rows teach it, drawn evenly among the classes.
    random_state : int, RandomState, Generator or None, default=None
        Also of the classifier, where that has none of its own.  With an int the result does
        not depend on the chunks, the scheduler or the number of workers.
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
        Prototypes of all sets of all views, one after another: rows of the data's kind, in the
        views ``"angle"`` and ``"whitened"`` directions of length near 1; NaN in ``"pckid"``.
    classifier_ : classifier or None
        Fitted to the labeled rows; None without one, and where there is one class.  By default
        the trees, with the linear functions in its ``linear_`` and their share in
        ``linear_share_``; ``predict_proba`` is that of both.  Of a loaded model its parts, whose
        ``predict_proba`` gives the same.
    mixing_weights_ : ndarray of shape (2,), float64
        Of the spread labels and of the classifier; (1, 0) is the graph alone.
    left_out_log_loss_ : dict of str to float
        Mean log loss of the labels left out, by ``"spread"``, ``"classifier"`` and
        ``"mixture"``.  NaN without a classifier, and where no label can be left out: two or
        more rows of each of two classes are needed.
    n_iter_ : int
        Iterations of k-means.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (p,)
        Names of the columns, where X has names.
    history_ : list of dict
        One record, with ``objective`` (number of connected pairs of nodes), ``passes``,
        ``seconds``, ``nodes`` (of each set, view by view), ``unreached_nodes`` and
        ``unreached_rows`` (that no label reaches, likewise), ``ridge_share`` and
        ``neighbor_share`` (of the kernel ridge, and of the nearest labeled rows); with a
        classifier also ``mixing_weights``, ``left_out_log_loss``, and ``advice``, a sentence
        that says which part knows more and which rows to label next.

    Raises
    ------
    ConstraintError
        For no labels at all, rows out of range or labeled twice, another number of labels
        than rows, and labels that are neither whole numbers nor text.
    ValueError
        For NaN or infinity in X (naming the first), parameters out of range, a classifier
        without ``predict_proba``, and one that takes no NaN where X may have some.
    CheckpointError
        If the checkpoint is broken or belongs to other data, labels or parameters.

    Warns
    -----
    ConstraintWarning
        If labeled rows have sample weight 0, and if parts of the graph hold no label in any
        set of a view. The warning says how many rows these parts have. Rows that no label
        reaches in any view get equal probabilities from the graph. Then the classifier alone
        decides about them; without one their class is arbitrary, and their margin is 0.

    See Also
    --------
    SpectralClustering : Without labels, or with pairs of rows as constraints.
    SemiSupervisedKMeans : Where each class is one compact cluster.

    Notes
    -----
    *Passes*: 1 to check the data, 1 that draws a sample of 65 536 rows (64 a prototype if that is
    more) of which views and prototypes are made, 1 that reads the chunks with labeled rows, and 1
    that counts, for all views.  A cube with masked pixels takes one more.  *Memory* of a worker
    thread: one block, its views, and the different pairs of nodes it connects.  *On the client*:
    the sample; for each set of prototypes O(m^3) time with m nodes (prototypes and labeled rows, at
    most three times ``n_prototypes``); and some matrices of ``8 m^2`` bytes, those of one set at a
    time.  Never anything of length n.

    *More labels than nodes*: up to ``2 n_prototypes`` different labeled rows are nodes of their
    own, chosen evenly among the classes; others are counted to their nearest prototype.  A sample
    of up to ``n_prototypes^2 / 2`` of them then also votes by its nearest neighbors, with the share
    that makes the labels of this sample the most likely when each is left out.

    A class may have a single label.  Equal rows with different labels are one node that has each
    class by its share.  ``sample_weight`` weighs the rows in the graph and the labels.

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

    #: Whether y holds partial labels.
    _uses_labels: ClassVar[bool] = True

    _saved_state: ClassVar[Mapping[str, Entry]] = {
        "classes_": Classes(),
        "left_out_log_loss_": Plain(dict),
        **STORED_POSTERIOR,
    }
    #: A checkpoint is the same with another classifier.
    _resumes_with: ClassVar[tuple[str, ...]] = ("classifier",)

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

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_integer(self.n_prototypes, "n_prototypes", 1)
        check_integer(self.max_iter, "max_iter", 1)
        check_real(self.alpha, "alpha", 0, maximum=1)
        if self.alpha == 1:
            raise ValueError("alpha == 1, must be < 1: with 1 the spreading has no end.")
        one = self.classifier
        if one is None or (isinstance(one, str) and one == "trees"):
            return
        known = not isinstance(one, str | type) and hasattr(one, "__sklearn_tags__")
        if not (known and is_classifier(one)):
            raise ValueError(
                f"classifier={one!r} is no classifier that is known; expected 'trees', a "
                "classifier of scikit-learn (an object, not its class), or None."
            )
        if not hasattr(one, "predict_proba"):
            raise ValueError(
                f"classifier={one!r} has no predict_proba, which the mixture with the spread "
                "labels needs; use 'trees', or wrap it: "
                "sklearn.calibration.CalibratedClassifierCV(...)."
            )

    def fit(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> Self:
        """Let labels travel.

        Parameters
        ----------
        X : array-like, dask.array.Array, DataFrame, xarray.DataArray or Cube
            Rows, of shape (n, p); of a cube its `samples`.
        y : array-like or dask.array.Array of shape (n,), or (rows, labels)
            Partial labels, as :meth:`SemiSupervisedKMeans.fit` takes them.  Required: the default
            None is an error that says so.
        sample_weight : array-like or dask.array.Array of shape (n,), optional
            Weights of the rows, 0 for absence.

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
                "with -1 or NaN where there is no label, y=(rows, labels), or --labels. Without "
                "any label use SpectralClustering or KMeans."
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
        return labels, views

    def _problem(
        self, data: OpenData, read: tuple[PartialLabels, tuple[str, ...]]
    ) -> SpreadingProblem:
        labels, views = read
        places = None if data.cube is None else data.cube.places_of_rows
        plan = plan_labels(labels, int(self.n_prototypes), data.seeds[0], places)
        x, weight = take_rows(data.rows, plan.rows)
        plan, x, weight = plan.present(x, weight)
        nodes = RowNodes(x[plan.is_node], weight[plan.is_node])
        n_classes = len(labels.classes)
        n_prototypes = count_prototypes(int(self.n_prototypes), data.rows.n_rows)
        used = views_of_gaps(self.views, views, data.survey, joined=False)
        if self.classifier is not None and takes_gaps(used):
            classifier = as_classifier(self.classifier, 0, data.rows.n_features)
            if not takes_missing(classifier):
                raise ValueError(
                    f"X may miss values with views={used}, and classifier={self.classifier!r} "
                    "does not take NaN; use classifier='trees', one behind an imputer "
                    "(sklearn.pipeline.make_pipeline), or None."
                )
        one_hot = np.eye(n_classes)[plan.codes] * weight[:, None]
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
            labels=plan.others,
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
        lesson = None
        if self.classifier is not None and len(np.unique(problem.plan.codes)) > 1:
            classifier = as_classifier(self.classifier, problem.seed, data.rows.n_features)
            lesson = Lesson(problem.plan, classifier, problem.seed)
        folds = () if lesson is None else lesson.folds
        found = spread_labels(problem, state, float(self.alpha), int(self.n_neighbors), folds)
        posteriors = found.posteriors
        if problem.plan.others is not None:
            posteriors = with_references(posteriors, problem.plan)
        posterior, said = self._mix(posteriors[0], posteriors[1:], lesson)
        stored = store_posterior(posterior)
        for name in STORED_POSTERIOR:
            # Leftovers of an earlier fit are not this model's.
            self.__dict__.pop(name, None)
        self.__dict__.update(stored)
        self._keep(
            problem,
            state,
            problem.prototypes(state),
            history,
            unreached_nodes=found.missed_nodes,
            unreached_rows=found.missed_rows,
            ridge_share=posterior.spaces[0].balance.ridge_share,
            neighbor_share=posterior.neighbor_share,
            **said,
        )
        missed = np.reshape(found.missed_rows, (len(problem.views), problem.n_sets))
        # Where cells are cut otherwise, what hung by a thread is reached.
        if missed.min(axis=1).any():
            self._warn_of_unreached(
                problem.views, found.missed_nodes, missed, float(data.survey.weight)
            )
        self.labels_ = map_rows(
            data.X,
            CheckedRows(
                OneOutput(Evaluation(posterior, self.classes_, ("labels",))),
                data.rows.dtype,
                takes_gaps(problem.views),
            ),
            dtype=self.classes_.dtype,
            lengths=data.rows.lengths,
            patch=(labels.rows, labels.classes[labels.codes]),
            like=data.rows,
        )

    def _mix(
        self, posterior: Posterior, without: list[Posterior], lesson: Lesson | None
    ) -> tuple[Posterior, dict[str, Any]]:
        """Put the classifier beside the graph; also return what to say of it."""
        self._fitted, learned, mixture = None, None, Mixture()
        if lesson is not None:
            self._fitted, learned = lesson.teach()
            mixture = lesson.weigh(without, self._fitted)
            if isinstance(learned, Both):
                self._fitted.linear_share_ = mixture.linear_share
                learned = replace(learned, linear_share=mixture.linear_share)
        self.left_out_log_loss_ = mixture.losses
        spread, other = mixture.weights.tolist()
        mixed = replace(posterior, classifier=learned, weights=(spread, other))
        if lesson is None:
            return mixed, {}
        several = isinstance(learned, Both)
        return mixed, {
            "mixing_weights": mixture.weights.tolist(),
            "left_out_log_loss": mixture.losses,
            "advice": advice(mixture, several, lesson.n_labels, lesson.n_taught),
        }

    def _warn_of_unreached(
        self, views: tuple[str, ...], nodes: list[int], missed: Floats, weight: float
    ) -> None:
        """Warn of what hangs together with no label in any set of a view."""
        view = int(np.argmax(missed.min(axis=1)))
        number = int(np.argmin(missed[view]))
        worst = view * missed.shape[1] + number
        rows = float(missed[view, number])
        if len(views) > 1 and not missed.all():
            decided = "Other views decide about them"
        elif self.classifier is None:
            decided = "Their class is arbitrary, and their margin is 0"
        else:
            decided = "The classifier alone decides about them"
        warn(
            f"No label reaches {nodes[worst]} of {self.history_[-1]['nodes'][worst]} nodes in "
            f"view {views[view]!r} (about {rows:.0f} rows, {rows / weight:.1%} of the data): these "
            f"nodes are not connected with any labeled row. {decided}. Label some of these rows.",
            ConstraintWarning,
        )

    def _check_sizes(self) -> None:
        super()._check_sizes()
        check_stored(vars(self), len(self._units), len(self.classes_))

    @property
    def classifier_(self) -> Any:
        """Classifier beside the graph; of a loaded model its parts, which predict the same."""
        check_is_fitted(self)
        return vars(self).get("_fitted", vars(self).get("_classifier"))

    def _posterior(self) -> Posterior:
        return restore_posterior(vars(self), self._space, int(self.n_neighbors))

    def _nodes_of_views(self) -> list[tuple[Space, Floats]]:
        return [(one.space, one.graphs[0].nodes) for one in self._posterior().spaces]

    def _evaluation(self, names: tuple[str, ...]) -> Evaluation:
        nearness = Nearness(self._nodes_of_views()) if "scores" in names else None
        return Evaluation(self._posterior(), self.classes_, names, nearness)

    def _evaluate_one(self, X: Any, name: str) -> Any:
        check_is_fitted(self)
        evaluation = self._evaluation((name,))
        dtype = evaluation.dtype[name]
        n_columns = dtype.shape[0] if dtype.shape else None
        return self._map(X, OneOutput(evaluation), dtype.base, name, n_columns)

    def evaluate(self, X: Any, outputs: Sequence[str] = ("labels", "margin")) -> dict[str, Any]:
        """Several outputs of each row from one evaluation of its class probabilities.

        Parameters
        ----------
        X : array-like, dask.array.Array or Cube of shape (n_samples, n_features)
        outputs : sequence of str, default=("labels", "margin")
            Names of the outputs:

            - ``"labels"``: see :meth:`predict`
            - ``"margin"``: see :meth:`margin`
            - ``"probabilities"``: see :meth:`predict_proba`
            - ``"scores"``: see :meth:`score_samples`

        Returns
        -------
        outputs : dict of str to ndarray or dask.array.Array
            One array for each name.  For a Dask array or a cube the arrays are lazy and share the
            tasks that evaluate a block: compute or store them together, as with
            ``dask.compute(*outputs.values())``.

        Raises
        ------
        ValueError
            For other names, and see ``predict``.

        Examples
        --------
        >>> import numpy as np
        >>> import daskclust
        >>> X = np.array([[0.0], [0.1], [1.0], [1.1]])
        >>> model = daskclust.LabelSpreading(random_state=0).fit(X, ([0, 3], ["low", "high"]))
        >>> found = model.evaluate(X, ("labels", "probabilities"))
        >>> found["labels"].tolist(), found["probabilities"].shape
        (['low', 'low', 'high', 'high'], (4, 2))
        """
        check_is_fitted(self)
        names = [outputs] if isinstance(outputs, str) else list(np.atleast_1d(outputs))
        if not names or any(name not in OUTPUTS or names.count(name) > 1 for name in names):
            raise ValueError(f"outputs must be different names of {OUTPUTS}, got {outputs!r}.")
        evaluation = self._evaluation(tuple(names))
        records = self._map(X, evaluation, evaluation.dtype, "outputs")
        return {name: records[name] for name in names}

    def predict(self, X: Any) -> Any:
        """Most probable class of each row.

        Parameters
        ----------
        X : array-like, dask.array.Array or Cube of shape (n_samples, n_features)

        Returns
        -------
        labels : ndarray or dask.array.Array of shape (n_samples,)
            Out of ``classes_``; ties go to the first.  Lazy, and chunked like X, for a Dask array
            or a cube.

        Raises
        ------
        ValueError
            For NaN or infinity, and another number of features.
        """
        check_is_fitted(self)
        return self._evaluate_one(X, "labels")

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
        return self._evaluate_one(X, "probabilities")

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
        check_is_fitted(self)
        return self._evaluate_one(X, "margin")

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
        labels = read_labels(labels_for(X, y)[0], n)
        found = predicted[labels.rows]
        found = compute("the labels of rows", found)[0] if is_dask(found) else found
        right = found == labels.classes[labels.codes]
        weight = sample_weight
        if weight is not None:
            weight = np.asarray(fetched(weight, "sample_weight"))[labels.rows]
        return float(np.average(right, weights=weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = False
        if self.classifier is not None and not isinstance(self.classifier, str):
            tags.input_tags.allow_nan &= takes_missing(self.classifier)
        return tags
