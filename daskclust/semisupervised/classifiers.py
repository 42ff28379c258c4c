"""Classifiers of scikit-learn, fitted to the labeled rows, and the parts that predict.

Trees and linear functions are copied from the fitted classifier to arrays.  These arrays predict
after the fit as well as after loading, so that a model contains no pickle and predicts equal bits.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn import config_context
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter

from daskclust.core.array_types import Array, Bools, Floats, Ints
from daskclust.core.kernels.blas import one_blas_thread
from daskclust.core.persistence.schema import Array as Stored
from daskclust.core.persistence.schema import Entry, Fields, Number, OneOf
from daskclust.core.warn import warn
from daskclust.exceptions import ConstraintWarning, ModelFormatError
from daskclust.semisupervised.tree_kernels import leaf_shares

#: Lower bound of a probability in a product, so that no part alone excludes a class.
_LEAST = 0.001
#: Number of trees of the default classifier, and minimum number of features tried at a split.
_TREES, _TRIED_FEATURES = 100, 16
#: Largest number of single precision, in which trees compare values.
_LARGEST = float(np.finfo(np.float32).max)
#: Number of rows that linear functions evaluate at a time.
_SLICE = 2048
#: Distance beyond the labeled rows to which features of linear functions are clipped, as a fraction
#: of the range of the labeled rows.
_BEYOND = 0.5


def shares(scores: Floats) -> Floats:
    """Scale rows to a sum of 1; rows of zeros get equal values."""
    total = scores.sum(axis=1, keepdims=True)
    even = np.full_like(scores, 1.0 / max(scores.shape[1], 1))
    return np.divide(scores, total, out=even, where=total > 0)


def bounded(probabilities: Floats) -> Floats:
    """Replace very small probabilities by a lower bound."""
    return np.maximum(probabilities, min(_LEAST, 0.1 / probabilities.shape[1]))


def mixed(weights: tuple[float, float], spread: Floats, classifier: Floats) -> Floats:
    """Return probabilities proportional to the product of powers of both probabilities."""
    of_spread, of_classifier = weights
    return shares(bounded(spread) ** of_spread * bounded(classifier) ** of_classifier)


class TreesAndLinear(ExtraTreesClassifier):
    """Extremely randomized trees and a logistic regression, mixed by their logarithms.

    ``linear_share_`` is the weight of the regression ``linear_``, and ``1 - linear_share_`` is the
    weight of the trees.
    """

    linear_share_: float = 0.5

    def fit(self, X: Any, y: Any, sample_weight: Any = None, folds: Any = None) -> Self:
        """Fit the trees and the regression.

        Each fold has the same number of trees, which do not use the rows of the fold.  So the trees
        of a fold predict its rows as if they were new, without further trees.  ``folds`` (n,) are
        the numbers of the folds, -1 for rows that all trees use.
        """
        if folds is None or folds.max() < 0:
            super().fit(X, y, sample_weight)
        else:
            weight = np.ones(len(X)) if sample_weight is None else sample_weight
            self.set_params(warm_start=True)
            # Checking the parameters of each tree would take longer than fitting it to few rows.
            with config_context(skip_parameter_validation=True):
                for fold, stop in enumerate(fold_ends(self.n_estimators, folds.max() + 1)):
                    # Rows of weight 0 are not used, and their classes remain.
                    self.set_params(n_estimators=stop)
                    super().fit(X, y, np.where(folds == fold, 0.0, weight))
            self.set_params(warm_start=False)
        self.linear_ = ClippedLinear.fit(X, y, sample_weight)
        return self

    def predict_proba(self, X: Any) -> Floats:
        """Return the mixed probabilities."""
        weights = (1 - self.linear_share_, self.linear_share_)
        return mixed(weights, super().predict_proba(X), self.linear_.predict_proba(X))


def fold_ends(n_trees: int, n_folds: int) -> list[int]:
    """Return the numbers of trees up to and including each fold.

    >>> fold_ends(100, 8)
    [12, 25, 37, 50, 62, 75, 87, 100]
    """
    return [n_trees * (fold + 1) // n_folds for fold in range(n_folds)]


@dataclass(frozen=True)
class ClippedLinear:
    """A logistic regression of standardized features.

    It replaces missing values by the means ``fill`` of the columns, and clips values far beyond the
    labeled rows to ``low`` and ``high``: a feature with a small range in few rows says little about
    rows far outside this range.
    """

    pipeline: Pipeline
    fill: Floats
    low: Floats
    high: Floats

    @classmethod
    def fit(cls, X: Any, y: Any, sample_weight: Any = None) -> Self:
        # Convergence to the last digits is not needed.
        with (
            one_blas_thread(),
            config_context(skip_parameter_validation=True),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore", ConvergenceWarning)
            scaler = StandardScaler().fit(X, sample_weight=sample_weight)
            scaler.mean_ = np.nan_to_num(scaler.mean_)
            scaler.scale_ = np.where(scaler.scale_ > 0, scaler.scale_, 1.0)
            filled = np.where(np.isnan(X), scaler.mean_, X)
            low, high = filled.min(axis=0), filled.max(axis=0)
            beyond = _BEYOND * (high - low)
            linear = LogisticRegression().fit(scaler.transform(filled), y, sample_weight)
        return cls(
            Pipeline([("scaler", scaler), ("linear", linear)]),
            scaler.mean_,
            np.maximum(low - beyond, -_LARGEST),
            np.minimum(high + beyond, _LARGEST),
        )

    def predict_proba(self, X: Any) -> Floats:
        filled = np.where(np.isnan(X), self.fill, X)
        return self.pipeline.predict_proba(np.clip(filled, self.low, self.high))


class FittedClassifier(Protocol):
    """The parts of a fitted classifier that predict; they are sent to the workers."""

    def predict_proba(self, X: Array) -> Floats:
        """Return the probabilities of the model's classes, (n, c)."""


@dataclass(frozen=True, repr=False)
class Trees:
    """Decision trees as arrays, see :func:`daskclust.semisupervised.tree_kernels.leaf_shares`."""

    roots: NDArray[np.int32]
    children: NDArray[np.int32]
    features: NDArray[np.int32]
    thresholds: NDArray[np.float32]
    missing_go_left: Bools
    shares: Floats

    @classmethod
    def of(cls, classifier: Any, columns: Ints, n_classes: int) -> Trees:
        """Copy the fitted trees of a classifier of scikit-learn."""
        trees = [estimator.tree_ for estimator in getattr(classifier, "estimators_", [classifier])]
        sizes = [tree.node_count for tree in trees]
        starts = np.cumsum([0, *sizes[:-1]])
        left = np.concatenate([tree.children_left for tree in trees])
        is_leaf = left < 0
        leaves = np.concatenate([tree.value[:, 0] for tree in trees])[is_leaf]
        # Most leaves have one class.  All leaves of one class refer to the same row of shares.
        number = leaves.argmax(axis=1)
        is_mixed = np.count_nonzero(leaves, axis=1) > 1
        number[is_mixed] = len(columns) + np.arange(np.count_nonzero(is_mixed))
        distinct = np.concatenate([np.eye(len(columns)), leaves[is_mixed]])
        shares = np.zeros((len(distinct), n_classes))
        shares[:, columns] = distinct / distinct.sum(axis=1, keepdims=True)
        children = np.column_stack([left, np.concatenate([tree.children_right for tree in trees])])
        children += np.repeat(starts, sizes)[:, None]
        children[is_leaf] = number[:, None]
        thresholds = np.concatenate([tree.threshold for tree in trees])
        single = thresholds.astype(np.float32)
        # The largest float32 number that is at most the threshold gives the same decisions.
        above = single.astype(np.float64) > thresholds
        single[above] = np.nextafter(single[above], np.float32(-np.inf))
        features = np.concatenate([tree.feature for tree in trees])
        return cls(
            starts.astype(np.int32),
            children.astype(np.int32),
            np.where(is_leaf, -1, features).astype(np.int32),
            np.where(is_leaf, np.float32(0), single),
            np.concatenate([tree.missing_go_to_left for tree in trees]).astype(bool),
            shares,
        )

    def of_fold(self, fold: int, n_folds: int) -> Trees:
        """Return the trees that do not use the rows of this fold."""
        ends = [0, *fold_ends(len(self.roots), n_folds)]
        return replace(self, roots=self.roots[ends[fold] : ends[fold + 1]])

    def predict_proba(self, X: Array) -> Floats:
        nodes = (self.children, self.features, self.thresholds, self.missing_go_left, self.shares)
        return leaf_shares(np.asarray(X), self.roots, *nodes)

    def check(self) -> None:
        """Raise ValueError unless each path ends in a leaf of the same tree."""
        inner, positions = self.features >= 0, np.arange(len(self.features))
        ends = np.append(self.roots[1:], len(positions))
        if self.roots[0] != 0 or (ends <= self.roots).any():
            raise ValueError("the roots of the trees must start at 0 and ascend")
        stop = np.repeat(ends, ends - self.roots)[:, None]
        if self.children.shape[1] != 2:
            raise ValueError("the nodes of the trees must have 2 children")
        children = self.children[inner]
        # Children come after their parents, in the same tree.
        if ((children <= positions[inner, None]) | (children >= stop[inner])).any():
            raise ValueError("the children of the trees must come after their parents")
        if (self.children[~inner] >= len(self.shares)).any():
            raise ValueError("the leaves of the trees must have shares")


@dataclass(frozen=True, repr=False)
class Linear:
    """Probabilities proportional to the exponentials of linear functions of the features."""

    weights: Floats
    offsets: Floats
    columns: Ints
    n_classes: int

    @classmethod
    def of(cls, classifier: Any, columns: Ints, n_classes: int) -> Linear:
        """Copy a fitted linear classifier of scikit-learn, with or without a scaler."""
        last = classifier[-1] if isinstance(classifier, Pipeline) else classifier
        weights, offsets = np.asarray(last.coef_, float), np.asarray(last.intercept_, float)
        if last is not classifier:
            scaler = classifier[0]
            if scaler.with_std:
                weights = weights / scaler.scale_
            if scaler.with_mean:
                offsets = offsets - weights @ scaler.mean_
        if len(weights) == 1:
            # One function separates two classes.
            weights = np.concatenate([np.zeros_like(weights), weights])
            offsets = np.concatenate([[0.0], offsets])
        return cls(weights, offsets, columns, n_classes)

    def predict_proba(self, X: Array) -> Floats:
        probabilities = np.zeros((len(X), self.n_classes))
        scores = np.asarray(X, np.float64) @ self.weights.T + self.offsets
        probabilities[:, self.columns] = softmax(scores, axis=1)
        return probabilities

    def check(self) -> None:
        """Raise ValueError if two functions are for the same class."""
        if len(np.unique(self.columns)) < len(self.columns):
            raise ValueError("the linear functions of the classifier must have different classes")


@dataclass(frozen=True, repr=False)
class TreesAndLinearParts:
    """The parts of a fitted :class:`TreesAndLinear`."""

    trees: Trees
    linear: Linear
    fill: Floats
    low: Floats
    high: Floats
    linear_share: float

    def predict_proba(self, X: Array) -> Floats:
        if self.linear_share == 0:
            return self.trees.predict_proba(X)
        if self.linear_share == 1:
            return self.by_linear(X)
        weights = (1 - self.linear_share, self.linear_share)
        return mixed(weights, self.trees.predict_proba(X), self.by_linear(X))

    def with_linear(self, fitted: ClippedLinear, classes: Array) -> TreesAndLinearParts:
        """Return the parts with other linear functions."""
        columns = np.searchsorted(classes, fitted.pipeline.classes_).astype(np.int64)
        linear = Linear.of(fitted.pipeline, columns, len(classes))
        return replace(self, linear=linear, fill=fitted.fill, low=fitted.low, high=fitted.high)

    def by_linear(self, X: Array) -> Floats:
        """Return the probabilities of the linear functions."""
        probabilities = np.empty((len(X), self.linear.n_classes))
        with one_blas_thread():
            for start in range(0, len(X), _SLICE):
                part = slice(start, start + _SLICE)
                filled = np.where(np.isnan(X[part]), self.fill, X[part])
                clipped = np.clip(filled, self.low, self.high)
                probabilities[part] = self.linear.predict_proba(clipped)
        return probabilities

    def check(self) -> None:
        """Raise ValueError if a part is invalid."""
        if self.linear_share > 1:
            raise ValueError("the share of the linear functions must be at most 1")
        self.trees.check()
        self.linear.check()


@dataclass(frozen=True)
class OtherClassifier:
    """A fitted classifier without known parts."""

    classifier: Any
    columns: Ints
    n_classes: int

    def predict_proba(self, X: Array) -> Floats:
        probabilities = self.classifier.predict_proba(X)
        is_finite = np.isfinite(probabilities).all(axis=1)
        if not is_finite.all():
            row = int(np.argmin(is_finite))
            raise ValueError(
                f"Probabilities of classifier={self.classifier!r} must be finite, got "
                f"{probabilities[row]} for the row {X[row]}. Scale the features, or use 'trees'."
            )
        of_all_classes = np.zeros((len(X), self.n_classes))
        of_all_classes[:, self.columns] = probabilities
        return of_all_classes

    def check(self) -> None:
        """Accept any classifier."""


@dataclass(frozen=True)
class _SavedClassifier(OneOf):
    """Entry of the parts of a classifier; refuses classifiers without known parts."""

    def store(self, name: str, value: Any) -> tuple[Any, Any]:
        if isinstance(value, OtherClassifier):
            raise ModelFormatError(
                f"classifier={value.classifier!r} cannot be saved, because a model contains no "
                "pickle and the parts of this class are unknown. Use classifier='trees', trees or "
                "forests, LogisticRegression or LinearDiscriminantAnalysis of scikit-learn (the "
                "latter two also after a StandardScaler), or None."
            )
        return super().store(name, value)


_TREES_FIELDS = Fields(
    {
        "children": Stored("branches two", kind="i", low=0),
        "roots": Stored("trees", kind="i", low=0, below="branches"),
        "features": Stored("branches", kind="i", low=-1, below="p"),
        "thresholds": Stored("branches", high=_LARGEST),
        "missing_go_left": Stored("branches", kind="b"),
        "shares": Stored("leaves c", low=0),
    }
)
_LINEAR_FIELDS = Fields(
    {
        "weights": Stored("functions p"),
        "offsets": Stored("functions"),
        "columns": Stored("functions", kind="i", low=0, below="c"),
        "n_classes": Number(int, low=1, dim="c"),
    }
)
_TREES_AND_LINEAR_FIELDS = Fields(
    {
        "trees": OneOf({Trees: _TREES_FIELDS}),
        "linear": OneOf({Linear: _LINEAR_FIELDS}),
        "fill": Stored("p"),
        "low": Stored("p"),
        "high": Stored("p"),
        "linear_share": Number(low=0),
    }
)
#: Entry of a :class:`FittedClassifier` or None, for c classes and p features.
CLASSIFIER: Entry = _SavedClassifier(
    {Trees: _TREES_FIELDS, Linear: _LINEAR_FIELDS, TreesAndLinearParts: _TREES_AND_LINEAR_FIELDS},
    optional=True,
)


def as_classifier(classifier: Any, seed: int, n_features: int) -> Any:
    """Return a classifier that is not fitted, with a seed for all its random states."""
    if isinstance(classifier, str):
        # A split that tries few features often misses the important features.
        max_features = min(n_features, max(_TRIED_FEATURES, int(n_features**0.5)))
        return TreesAndLinear(_TREES, max_features=max_features, random_state=seed % 2**32)
    own = clone(classifier)
    states = {
        name: seed % 2**32
        for name, value in own.get_params().items()
        if value is None and name.rpartition("__")[2] == "random_state"
    }
    return own.set_params(**states)


def takes_missing(classifier: Any) -> bool:
    return bool(get_tags(classifier).input_tags.allow_nan)


def fit_classifier(
    classifier: Any,
    x: Array,
    codes: NDArray[Any],
    weight: Floats,
    classes: Array,
    folds: Ints | None = None,
) -> tuple[Any, Any]:
    """Fit a copy of a classifier to labeled rows; also return its parts that predict.

    ``codes`` are indices of ``classes``, two or more different ones.  ``folds`` are for
    :class:`TreesAndLinear` only.
    """
    fitted = clone(classifier)
    options: dict[str, Any] = {}
    if (weight != weight[0]).any():
        if has_fit_parameter(fitted, "sample_weight"):
            options["sample_weight"] = weight
        else:
            warn(
                f"classifier={classifier!r} does not support sample_weight, so all labeled rows "
                "have the same weight in its fit. Use another classifier, such as 'trees'.",
                ConstraintWarning,
            )
    has_trees = type(fitted) in _OF_TREES
    if type(fitted) is TreesAndLinear:
        options["folds"] = folds
    try:
        fitted.fit(np.clip(x, -_LARGEST, _LARGEST) if has_trees else x, classes[codes], **options)
    except ValueError as error:
        smallest = int(np.unique(codes, return_counts=True)[1].min())
        raise ValueError(
            f"classifier={classifier!r} cannot be fitted to {len(x)} labeled rows with {smallest} "
            f"of the smallest class ({error}). Cross-validation leaves out some labels: add labels "
            "of each class, or use 'trees'."
        ) from error
    columns = np.searchsorted(classes, fitted.classes_).astype(np.int64)
    if type(fitted) is TreesAndLinear:
        return fitted, TreesAndLinearParts(
            Trees.of(fitted, columns, len(classes)),
            Linear.of(fitted.linear_.pipeline, columns, len(classes)),
            fitted.linear_.fill,
            fitted.linear_.low,
            fitted.linear_.high,
            fitted.linear_share_,
        )
    if has_trees:
        return fitted, Trees.of(fitted, columns, len(classes))
    if _is_linear(fitted):
        return fitted, Linear.of(fitted, columns, len(classes))
    return fitted, OtherClassifier(fitted, columns, len(classes))


#: Classifiers whose parts are trees.
_OF_TREES = (
    TreesAndLinear,
    ExtraTreesClassifier,
    RandomForestClassifier,
    DecisionTreeClassifier,
    ExtraTreeClassifier,
)


def _is_linear(classifier: Any) -> bool:
    """Return True if probabilities are known to be a softmax of linear functions."""
    if type(classifier) is Pipeline:
        is_scaled = len(classifier) == 2 and type(classifier[0]) is StandardScaler
        return is_scaled and _is_linear(classifier[1])
    if type(classifier) is LogisticRegression:
        # Some variants have one sigmoid per class.
        multi_class = getattr(classifier, "multi_class", "deprecated")
        if len(classifier.classes_) > 2:
            return classifier.solver != "liblinear" and multi_class != "ovr"
        return multi_class != "multinomial"
    return type(classifier) is LinearDiscriminantAnalysis
