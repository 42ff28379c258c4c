"""Learners from the labeled rows alone: kernel ridge, nearest rows, and a classifier.

What a classifier of scikit-learn has learned is taken out of it, where its parts are known (trees,
linear functions of the features): rows are judged by these, in the fit as after loading, so that
a model needs no pickle and predicts the same bits wherever it is.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import (
    LinAlgError,
    cho_factor,
    cho_solve,
    cholesky,
    eigh,
    solve_triangular,
    svd,
)
from scipy.special import softmax
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
from daskclust.core.kernels.nearest.k_nearest import nearest_in_cells, nearest_several
from daskclust.core.persistence.schema import Array as Stored
from daskclust.core.persistence.schema import Entry, Fields, Number, OneOf
from daskclust.core.warn import warn
from daskclust.exceptions import ConstraintWarning, ModelFormatError
from daskclust.semisupervised.gaussian_kernel import gaussians
from daskclust.semisupervised.near_nodes import weighted_values
from daskclust.semisupervised.tree_kernels import leaf_shares

#: Squared widths, as multiples of the median squared distance, and ridges that are tried.
_WIDTHS = 2.0 ** np.arange(-5, 3)
_RIDGES = 10.0 ** np.arange(-4, 2)
#: What any two points have in common, however far they are from each other, beside the bump of
#: height 1: rows that are far from all labels look like a class that is spread out.
_LEVEL = 0.75
#: Powers of the deviation along the axes by which these are divided: of 0 the space is as it is, of
#: 1 all axes count alike.  A variance below that share of the mean is taken to be noise.
_POWERS, _NOISE = (0.0, 0.5, 1.0), 1e-3
#: Errors that differ by less, relatively, are the same: the first ridge counts.
_RELATIVE_GAIN = 1e-9
#: Maximum number of landmarks of a ridge, of labeled points by which kernels are chosen, and of
#: these points times kernels.
LANDMARKS, CHOOSING_POINTS, _MOST_BUMPS = 800, 256, 800
#: Added to the diagonal of the kernel of the landmarks.
_SOFTNESS = 1e-6
#: Rows that are compared with bumps at a time.
_SLAB = 256
#: Mean squared errors below are not told apart; kernels that are so much less likely than the best
#: one are left out.
_LEAST_ERROR, _NO_SHARE = 1e-12, 0.01


def squared_distances(a: Array, b: Array) -> Floats:
    """Squared distances of all rows of a to all rows of b, by a matrix product."""
    squares = (a * a).sum(axis=1)[:, None] - 2.0 * (a @ b.T) + (b * b).sum(axis=1)
    found: Floats = np.maximum(squares, 0.0)
    return found


class Tried(NamedTuple):
    """A kernel with its ridge, and its share among several."""

    width: float
    axes: Floats
    ridge: float
    share: float = 1.0


@dataclass(frozen=True)
class KernelRidge:
    """Scores of classes as sums of Gaussian bumps ``level + exp(-d^2 / width)`` of points.

    Of m kernels, each with a width and with factors that stretch the axes of the space before
    distances are measured; ``weights`` (m, l, c) are those of the bumps, times the share of each.
    """

    points: Floats
    widths: Floats
    weights: Floats
    axes: Floats
    level: float = _LEVEL

    def __call__(self, z: Floats) -> Floats:
        """Scores of rows, in [0, 1]: the same far from every labeled row."""
        scores = np.zeros((len(z), self.weights.shape[2]))
        products = np.empty((min(_SLAB, len(z)), len(self.points)))
        for width, weights, axes in zip(self.widths, self.weights, self.axes, strict=True):
            unit = axes / np.sqrt(width)
            points = self.points * unit
            turned, squares = np.ascontiguousarray(points.T), (points * points).sum(axis=1)
            for start in range(0, len(z), _SLAB):
                own = slice(start, start + _SLAB)
                rows = z[own] * unit
                bumps = np.matmul(rows, turned, out=products[: len(rows)])
                gaussians(bumps, (rows * rows).sum(axis=1), squares)
                scores[own] += bumps @ weights
        scores += self.level * self.weights.sum(axis=(0, 1))
        return np.clip(scores, 0.0, 1.0, out=scores)


def _bumps(distances: Floats, width: float) -> Floats:
    """Turn squared distances into bumps, in place."""
    distances /= -width
    return np.exp(distances, out=distances)


def fit_ridge(
    kernels: Sequence[Tried], points: Floats, targets: Floats, weight: Floats, landmarks: Bools
) -> tuple[KernelRidge, Floats]:
    """Fit scores to labeled points, different from each other; O(l m^2) for m landmarks.

    ``landmarks`` (l,) are the points with a bump (Nystroem's method); where all are, this is
    kernel ridge regression.  Also return scores of each point without it.
    """
    root = np.sqrt(weight / weight.mean())[:, None]
    weights, left_out = [], np.zeros_like(targets)
    for width, axes, ridge, share in kernels:
        own = points * axes
        kernel = _bumps(squared_distances(own, own[landmarks]), width) + _LEVEL
        solved, others = _solve_ridge(kernel, root, targets, ridge, landmarks)
        weights.append(share * solved)
        left_out += share * others
    widths, axes = (np.array([one[i] for one in kernels]) for i in (0, 1))
    fitted = KernelRidge(points[landmarks], widths, np.array(weights), axes)
    return fitted, np.clip(left_out, 0.0, 1.0)


def _solve_ridge(
    kernel: Floats, root: Floats, targets: Floats, ridge: float, landmarks: Bools
) -> tuple[Floats, Floats]:
    """Return weights of the landmarks (m, c), and scores of each point without it (l, c)."""
    if landmarks.all():
        system = root * kernel * root.T
        system[np.diag_indices_from(system)] += ridge
        inverse = cho_solve(cho_factor(system), np.eye(len(system)))
        solved = inverse @ (root * targets)
        return root * solved, targets - solved / np.diag(inverse)[:, None] / root
    own = kernel[landmarks]
    # Landmarks that are near each other would have large weights of different signs.
    own[np.diag_indices_from(own)] += _SOFTNESS
    factor = cholesky(own, lower=True)
    features = root * solve_triangular(factor, kernel.T, lower=True).T
    system = features.T @ features
    system[np.diag_indices_from(system)] += ridge
    inner = cholesky(system, lower=True)
    given = cho_solve((inner, True), features.T @ (root * targets))
    lever = (solve_triangular(inner, features.T, lower=True) ** 2).sum(axis=0)[:, None]
    fitted = features @ given / root
    weights = solve_triangular(factor, given, lower=True, trans="T")
    return weights, (fitted - lever * targets) / np.maximum(1 - lever, _RELATIVE_GAIN)


def choose_kernels(
    points: Floats, targets: Floats, weight: Floats, variances: Floats
) -> list[Tried]:
    """Choose kernels and ridges by the squared error on points left out; O(m^3).

    ``variances`` are those of all rows along the axes: what tells classes apart may lie along one
    of small variance.  A kernel, of one width and one power that stretches the axes, has its best
    ridge, and a share as its error is likely: few points hardly tell kernels apart, and the best
    of many errors would be so by chance; of many points, few kernels are left.  One decomposition
    a kernel gives the errors of all ridges.
    """
    root = np.sqrt(weight / weight.mean())[:, None]
    noise = _NOISE * variances.mean() or 1.0
    tried, errors = [], []
    # Where variances are alike, so are the powers.
    for power in _POWERS if np.ptp(variances) > 0 else _POWERS[:1]:
        axes = (variances + noise) ** (-power / 2)
        own = points * axes
        distances = squared_distances(own, own)
        apart = distances[np.triu_indices(len(points), 1)]
        apart = apart[apart > 0]
        unit = float(np.median(apart)) if len(apart) else 1.0
        for width in (_WIDTHS * unit).tolist():
            kernel = _bumps(distances.copy(), width) + _LEVEL
            values, vectors = eigh(root * kernel * root.T)
            turned, squares = vectors.T @ (root * targets), vectors**2
            best = np.inf
            for ridge in _RIDGES.tolist():
                inverse = 1.0 / (np.maximum(values, 0.0) + ridge)
                left_out = vectors @ (inverse[:, None] * turned) / (squares @ inverse)[:, None]
                error = float((left_out**2).mean())
                if error < best * (1 - _RELATIVE_GAIN):
                    best, found = error, Tried(width, axes, ridge)
            tried.append(found)
            errors.append(best)
    sizes = np.maximum(errors, _LEAST_ERROR)
    # Gaussian errors of two classes a point: of more, the classes do not err on their own.
    likely = (sizes / sizes.min()) ** -len(points)
    most = max(_MOST_BUMPS // len(points), 1)
    least = np.sort(likely)[::-1][min(most, len(likely)) - 1]
    likely[likely < max(_NO_SHARE, least)] = 0.0
    shares = (likely / likely.sum()).tolist()
    return [one._replace(share=share) for one, share in zip(tried, shares, strict=True) if share]


#: Labeled neighbors that vote, and cells in which they are looked for.
_VOTERS, _CELLS = 5, 8
#: Shares that are tried, and how much of a probability is left to doubt.
_SHARES = np.linspace(0.0, 1.0, 11)
_DOUBT = 0.02


@dataclass(frozen=True)
class References:
    """Labeled points, sorted by their nearest prototype: ``starts[i]:starts[i + 1]``.

    ``order`` is the number of each point before they were sorted.
    """

    points: Floats
    starts: Ints
    shares: Floats
    order: NDArray[np.intp]

    @classmethod
    def build(cls, points: Floats, shares: Floats, prototypes: Floats) -> References:
        """Sort points by cell."""
        cell = nearest_several(points, prototypes, 1)[0][:, 0]
        order = np.argsort(cell, kind="stable")
        starts = np.searchsorted(cell[order], np.arange(len(prototypes) + 1)).astype(np.int64)
        return cls(points[order], starts, shares[order], order)

    def unsorted(self) -> tuple[Floats, Floats]:
        """Return points and shares as they were given to :meth:`build`."""
        place = np.argsort(self.order)
        return self.points[place], self.shares[place]

    def posterior(self, z: Floats, prototypes: Floats, own: Ints | None = None) -> Floats:
        """Shares of the classes among the nearest labeled points of each row.

        Rows without labeled points in the cells around them get zeros.  The point that a row is
        itself, ``own``, does not vote.
        """
        cells, _ = nearest_several(z, prototypes, min(_CELLS, len(prototypes)))
        indices, distances = nearest_in_cells(z, self.points, self.starts, cells, _VOTERS + 1, own)
        return weighted_values(distances, indices, self.shares)


def best_share(graph: Floats, neighbors: Floats, classes: Floats) -> float:
    """Return the share of the nearest neighbors that makes known classes the most likely."""
    even = _DOUBT / classes.shape[1]
    losses = []
    for share in _SHARES:
        mixed = (1 - share) * graph + share * neighbors
        losses.append(-(classes * np.log((1 - _DOUBT) * mixed + even)).sum())
    return float(_SHARES[int(np.argmin(np.round(losses, 9)))])


#: Probability that either part of a mixture leaves to any class.
_LEAST = 0.001


def shares(scores: Floats) -> Floats:
    """Return rows scaled to a sum of 1; even shares where all scores are 0."""
    total = scores.sum(axis=1, keepdims=True)
    even = np.full_like(scores, 1.0 / max(scores.shape[1], 1))
    return np.divide(scores, total, out=even, where=total > 0)


def surely(found: Floats) -> Floats:
    """Return probabilities without any that is next to nothing: no part rules a class out."""
    least = min(_LEAST, 0.1 / found.shape[1])
    return np.maximum(found, least)


def mixed(weights: tuple[float, float], spread: Floats, classifier: Floats) -> Floats:
    """Return probabilities in proportion to the product of powers of both parts."""
    one, other = weights
    return shares(surely(spread) ** one * surely(classifier) ** other)


#: Trees of the default, and features that are tried at a split, at least (or all).
_TREES, _TRIED = 100, 16
_LARGEST = float(np.finfo(np.float32).max)


#: Rows that linear functions judge at a time.
_SLICE = 2048
#: Length of a principal axis beside the longest, up to which rows are flat along it.
_FLAT = 1e-7
#: Into how many parts few rows are dealt, and how often: that many times, while fewer rows than
#: that have been left out.
_DEALT, _DEALS, _LEFT_OUT = 4, 4, 400
#: How far beyond the values of labeled rows linear functions go on, as a share of their range.
_BEYOND = 0.5


class RankedTrees(ExtraTreesClassifier):
    """Extremely randomized trees that draw thresholds among the ranks of the values.

    So neither the scale of a feature nor its few far values decide where it is split.  Rows are
    judged by their values: each threshold is put back between the two that it parts.
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Grow trees on ranks; NaN stays missing."""
        single = np.asarray(X, np.float32)
        values = [np.unique(column[~np.isnan(column)]) for column in single.T]
        ranks = np.column_stack(
            [np.searchsorted(own, column) for own, column in zip(values, single.T, strict=True)]
        )
        super().fit(np.where(np.isnan(single), np.nan, ranks), y, sample_weight)
        sizes = np.array([len(own) for own in values])
        starts, flat = np.cumsum(sizes) - sizes, np.concatenate(values).astype(np.float64)
        for tree in (one.tree_ for one in self.estimators_):
            inner = tree.feature >= 0
            feature, rank = tree.feature[inner], tree.threshold[inner]
            low = rank.astype(np.intp)
            high = np.minimum(low + 1, sizes[feature] - 1)
            below, above = flat[starts[feature] + low], flat[starts[feature] + high]
            found = below + (rank - low) * (above - below)
            # Never the value above itself.
            tree.threshold[inner] = np.maximum(
                below, np.minimum(found, np.nextafter(above, -np.inf))
            )
        return self


def _shrunk(z: Floats, weight: Floats, least: Floats) -> Floats:
    """Covariance of rows, drawn to its diagonal as far as Ledoit and Wolf (2004) choose.

    Deviations of at most `least` (features,) are of rounding, and count as none.
    """
    n, p = weight.sum(), z.shape[1]
    apart = z - weight @ z / n
    scale = np.sqrt(weight @ apart**2 / n)
    scale[scale <= least] = 0.0
    apart = np.divide(apart, scale, out=np.zeros_like(apart), where=scale > 0)
    found: Floats = (weight * apart.T) @ apart / n
    mean = np.trace(found) / p
    distance = ((found - mean * np.eye(p)) ** 2).sum()
    noise = (weight @ (apart**2).sum(axis=1) ** 2 / n - (found**2).sum()) / n
    share = np.clip(noise / distance, 0.0, 1.0) if distance > 0 else 0.0
    found *= 1 - share
    found[np.diag_indices(p)] += share * mean
    return found * np.outer(scale, scale)


def discriminant(x: Floats, codes: Ints, weight: Floats) -> tuple[Floats, Floats] | None:
    """Weights and offsets of linear functions that tell apart Gaussian classes of one shape.

    The covariance of each class is shrunk in the principal axes of all rows.  None where it is
    singular, as where no class has two different rows, and where all rows are equal.
    """
    center = weight @ x / weight.sum()
    _, lengths, axes = svd(np.sqrt(weight)[:, None] * (x - center), full_matrices=False)
    long = lengths > _FLAT * lengths[0]
    axes, least = axes[long], _FLAT * lengths[long] / np.sqrt(weight.sum())
    if not len(axes):
        return None
    z = (x - center) @ axes.T
    own = [(z[codes == c], weight[codes == c]) for c in range(codes.max() + 1)]
    priors = np.array([w.sum() for _, w in own]) / weight.sum()
    means = np.array([w @ rows / w.sum() for rows, w in own])
    within = sum(prior * _shrunk(*one, least) for prior, one in zip(priors, own, strict=True))
    try:
        solved = cho_solve(cho_factor(within), means.T).T
    except LinAlgError:
        return None
    weights: Floats = solved @ axes
    return weights, np.log(priors) - (means * solved).sum(axis=1) / 2 - weights @ center


def reach(x: Floats) -> tuple[Floats, Floats]:
    """Least and largest values that linear functions of such rows are asked about.

    What few rows hardly show in a feature says nothing of a row that is far off in it.
    """
    low, high = x.min(axis=0), x.max(axis=0)
    beyond = _BEYOND * (high - low)
    return np.maximum(low - beyond, -_LARGEST), np.minimum(high + beyond, _LARGEST)


def discriminant_leads(x: Floats, codes: Ints, weight: Floats) -> bool:
    """Whether few rows are better told apart by the discriminant than by a regression.

    It knows how features go together, which counts where rows are fewer than features and it
    foretells those that are left out better.
    """
    if weight.sum() >= x.shape[1]:
        return False
    counts, rng = np.bincount(codes), np.random.default_rng(0)
    turns, losses = np.concatenate([np.arange(c) for c in counts]), np.zeros(2)
    # Of few rows, one deal would decide by chance.
    for _ in range(min(_DEALS, -(-_LEFT_OUT // len(x)))):
        order = rng.permutation(len(codes))
        # Rows of each class are dealt out in turn; the only row of a class is never left out.
        turn = np.empty_like(codes)
        turn[order[np.argsort(codes[order], kind="stable")]] = turns
        turn = np.where(counts[codes] > 1, turn % _DEALT, -1)
        for part in np.unique(turn[turn >= 0]):
            out = turn == part
            kept, own = ~out, codes[out]
            regression = LogisticRegression().fit(x[kept], codes[kept], weight[kept])
            other = as_sure(regression, x[kept], codes[kept], weight[kept]) or regression
            for i, one in enumerate((regression, other)):
                found = surely(one.predict_proba(np.clip(x[out], *reach(x[kept]))))
                losses[i] -= weight[out] @ np.log(found[np.arange(len(own)), own])
    return bool(losses[1] < losses[0])


def as_sure(
    fitted: LogisticRegression, x: Floats, codes: Ints, weight: Floats
) -> LogisticRegression | None:
    """Return the discriminant as a regression whose scores are as large; its own are too sure."""
    found = discriminant(x, codes, weight)
    if found is None:
        return None
    weights, offsets = found
    scores = fitted.decision_function(x)
    if len(weights) == 2:
        weights, offsets = weights[1:] - weights[:1], offsets[1:] - offsets[:1]
        own = (x @ weights.T + offsets)[:, 0]
    else:
        own = x @ weights.T + offsets
        own -= own.mean(axis=1, keepdims=True)
        scores = scores - scores.mean(axis=1, keepdims=True)
    said = (own**2).sum()
    # It says nothing where classes have one mean and are as frequent.
    size = np.sqrt((scores**2).sum() / said) if said > 0 else 0.0
    other = copy(fitted)
    other.coef_, other.intercept_ = size * weights, size * offsets
    return other


class TreesAndLinear(RankedTrees):
    """Ranked trees, and a linear classifier beside them, which few rows suffice for.

    Logarithms of both probabilities are added up; ``linear_share_`` is the weight of the linear
    one, 1 less it that of the trees.  Missing values are means of the columns for the linear one,
    and far values those of :func:`reach`: a logistic regression, or the discriminant
    (``discriminant_``, chosen by a fit where it is None).
    """

    linear_share_: float = 0.5
    discriminant_: bool | None = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Grow the trees, and fit linear functions to standardized features."""
        super().fit(X, y, sample_weight)
        missing = np.isnan(X)
        weight = np.ones(len(X)) if sample_weight is None else sample_weight
        present = weight @ ~missing
        sums = weight @ np.where(missing, 0.0, X)
        self.fill_ = np.divide(sums, present, out=np.zeros_like(sums), where=present > 0)
        scaler, linear = StandardScaler(), LogisticRegression()
        # In a few labels there is no last digit that could matter.
        with one_blas_thread(), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            filled = np.where(missing, self.fill_, X)
            self.low_, self.high_ = reach(filled)
            scaled = scaler.fit(filled, y, weight).transform(filled)
            linear.fit(scaled, y, weight)
            codes = np.searchsorted(self.classes_, y)
            if self.discriminant_ is None:
                self.discriminant_ = discriminant_leads(scaled, codes, weight)
            if self.discriminant_:
                linear = as_sure(linear, scaled, codes, weight) or linear
        self.linear_ = Pipeline([("scaler", scaler), ("linear", linear)])
        return self

    def predict_proba(self, X: Any) -> Floats:
        """Probabilities of both."""
        by_trees = super().predict_proba(X)
        filled = np.where(np.isnan(X), self.fill_, X)
        by_linear = self.linear_.predict_proba(np.clip(filled, self.low_, self.high_))
        return mixed((1 - self.linear_share_, self.linear_share_), by_trees, by_linear)


class Learned(Protocol):
    """A fitted classifier; travels to the workers."""

    def predict_proba(self, X: Array) -> Floats:
        """Return the probabilities of the model's classes, (n, c)."""


@dataclass(frozen=True, repr=False)
class Trees:
    """Decision trees, see :func:`daskclust.semisupervised.tree_kernels.leaf_shares`."""

    roots: NDArray[np.int32]
    children: NDArray[np.int32]
    features: NDArray[np.int32]
    thresholds: NDArray[np.float32]
    gaps_left: Bools
    shares: Floats

    @classmethod
    def of(cls, classifier: Any, columns: Ints, n_classes: int) -> Trees:
        """Take fitted trees of scikit-learn apart."""
        trees = [one.tree_ for one in getattr(classifier, "estimators_", [classifier])]
        sizes = [tree.node_count for tree in trees]
        starts = np.cumsum([0, *sizes[:-1]])
        own = np.concatenate([tree.children_left for tree in trees])
        is_leaf = own < 0
        found = np.concatenate([tree.value[:, 0] for tree in trees])[is_leaf]
        # Most leaves are of one class: the same few shares, again and again.
        table, number = np.unique(found, axis=0, return_inverse=True)
        shares = np.zeros((len(table), n_classes))
        shares[:, columns] = table / table.sum(axis=1, keepdims=True)
        shift = np.repeat(starts, sizes)
        children = np.column_stack([own, np.concatenate([tree.children_right for tree in trees])])
        children += shift[:, None]
        children[is_leaf] = number.reshape(-1, 1)
        thresholds = np.concatenate([tree.threshold for tree in trees])
        single = thresholds.astype(np.float32)
        # The largest number of single precision that is not above: the same rows go left.
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

    def predict_proba(self, X: Array) -> Floats:
        parts = (self.children, self.features, self.thresholds, self.gaps_left, self.shares)
        return leaf_shares(np.asarray(X), self.roots, *parts)

    def check(self) -> None:
        """Raise ValueError for what is no tree: a walk must end, and within the arrays."""
        inner, places = self.features >= 0, np.arange(len(self.features))
        ends = np.append(self.roots[1:], len(places))
        if self.roots[0] != 0 or (ends <= self.roots).any():
            raise ValueError("the trees of its classifier do not follow each other")
        stop = np.repeat(ends, ends - self.roots)[:, None]
        if self.children.shape[1] != 2:
            raise ValueError("the trees of its classifier have branches that are not two")
        left = self.children[inner]
        # Children come after their parents, in the same tree.
        if ((left <= places[inner, None]) | (left >= stop[inner])).any():
            raise ValueError("the trees of its classifier have branches that lead nowhere")
        if (self.children[~inner] >= len(self.shares)).any():
            raise ValueError("the trees of its classifier have leaves without shares")


@dataclass(frozen=True, repr=False)
class Linear:
    """Probabilities in proportion to the exponentials of linear functions of the features."""

    weights: Floats
    offsets: Floats
    columns: Ints
    n_classes: int

    @classmethod
    def of(cls, classifier: Any, columns: Ints, n_classes: int) -> Linear:
        """Take a fitted linear classifier of scikit-learn apart, behind a scaler or not."""
        last = classifier[-1] if isinstance(classifier, Pipeline) else classifier
        weights, offsets = np.asarray(last.coef_, float), np.asarray(last.intercept_, float)
        if last is not classifier:
            scaler = classifier[0]
            if scaler.with_std:
                weights = weights / scaler.scale_
            if scaler.with_mean:
                offsets = offsets - weights @ scaler.mean_
        if len(weights) == 1:
            # One function tells two classes apart.
            weights = np.concatenate([np.zeros_like(weights), weights])
            offsets = np.concatenate([[0.0], offsets])
        return cls(weights, offsets, columns, n_classes)

    def predict_proba(self, X: Array) -> Floats:
        found = np.zeros((len(X), self.n_classes))
        scores = np.asarray(X, np.float64) @ self.weights.T + self.offsets
        found[:, self.columns] = softmax(scores, axis=1)
        return found

    def check(self) -> None:
        """Raise ValueError where two functions are of one class."""
        if len(np.unique(self.columns)) < len(self.columns):
            raise ValueError("its linear classifier has a class twice")


@dataclass(frozen=True, repr=False)
class Both:
    """What :class:`TreesAndLinear` has learned."""

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
        by_trees, weights = self.trees.predict_proba(X), (1 - self.linear_share, self.linear_share)
        return mixed(weights, by_trees, self.by_linear(X))

    def by_linear(self, X: Array) -> Floats:
        """Return the probabilities of the linear functions."""
        found = np.empty((len(X), self.linear.n_classes))
        with one_blas_thread():
            for start in range(0, len(X), _SLICE):
                part = slice(start, start + _SLICE)
                filled = np.where(np.isnan(X[part]), self.fill, X[part])
                found[part] = self.linear.predict_proba(np.clip(filled, self.low, self.high))
        return found

    def check(self) -> None:
        """Raise ValueError where one of both is none, or the share is beyond 1."""
        if self.linear_share > 1:
            raise ValueError("its linear classifier has a share above 1")
        self.trees.check()
        self.linear.check()


@dataclass(frozen=True)
class Foreign:
    """Any other classifier, as it is."""

    classifier: Any
    columns: Ints
    n_classes: int

    def predict_proba(self, X: Array) -> Floats:
        found = self.classifier.predict_proba(X)
        if not np.isfinite(found).all():
            row = int(np.argmin(np.isfinite(found).all(axis=1)))
            raise ValueError(
                f"classifier={self.classifier!r} gives {found[row]} as the probabilities of the "
                f"row {X[row]}; expected numbers. Scale the features, or use 'trees'."
            )
        placed = np.zeros((len(X), self.n_classes))
        placed[:, self.columns] = found
        return placed


@dataclass(frozen=True)
class _Kept(OneOf):
    """Of a model: what is known by its parts; anything else is refused with the reason."""

    def store(self, name: str, value: Any) -> tuple[Any, Any]:
        if isinstance(value, Foreign):
            raise ModelFormatError(
                f"classifier={value.classifier!r} cannot be saved: a model holds no pickle, and "
                "the parts of this class are not known. Use classifier='trees', trees or forests, "
                "LogisticRegression or LinearDiscriminantAnalysis of scikit-learn (the latter "
                "two also behind a StandardScaler), or None."
            )
        return super().store(name, value)


_TREES_KEPT = Fields(
    {
        "children": Stored("branches two", kind="i", low=0),
        "roots": Stored("trees", kind="i", low=0, below="branches"),
        "features": Stored("branches", kind="i", low=-1, below="p"),
        "thresholds": Stored("branches", high=_LARGEST),
        "gaps_left": Stored("branches", kind="b"),
        "shares": Stored("leaves c", low=0),
    }
)
_LINEAR_KEPT = Fields(
    {
        "weights": Stored("functions p"),
        "offsets": Stored("functions"),
        "columns": Stored("functions", kind="i", low=0, below="c"),
        "n_classes": Number(int, low=1, dim="c"),
    }
)
_BOTH_KEPT = Fields(
    {
        "trees": OneOf({Trees: _TREES_KEPT}),
        "linear": OneOf({Linear: _LINEAR_KEPT}),
        "fill": Stored("p"),
        "low": Stored("p"),
        "high": Stored("p"),
        "linear_share": Number(low=0),
    }
)
#: How :data:`Learned` is kept in a model of c classes and p features.
CLASSIFIER: Entry = _Kept(
    {Trees: _TREES_KEPT, Linear: _LINEAR_KEPT, Both: _BOTH_KEPT}, optional=True
)


def as_classifier(classifier: Any, seed: int, n_features: int) -> Any:
    """Return a classifier that is not fitted, and whose random states all have a seed."""
    if isinstance(classifier, str):
        # Of few features most splits need a certain one; many say the same.
        tried = min(n_features, max(_TRIED, int(n_features**0.5)))
        return TreesAndLinear(_TREES, max_features=tried, random_state=seed % 2**32)
    own = clone(classifier)
    states = {
        name: seed % 2**32
        for name, value in own.get_params().items()
        if value is None and name.rpartition("__")[2] == "random_state"
    }
    return own.set_params(**states)


def takes_missing(classifier: Any) -> bool:
    return bool(get_tags(classifier).input_tags.allow_nan)


def teach(
    classifier: Any,
    x: Array,
    codes: NDArray[Any],
    weight: Floats,
    classes: Array,
    like: Any = None,
) -> tuple[Any, Learned]:
    """Fit a copy of a classifier to labeled rows; also return what rows are judged by.

    ``codes`` are places in ``classes``, two or more different ones.  Linear functions are of the
    kind of those of ``like``.
    """
    fitted = clone(classifier)
    if type(fitted) is TreesAndLinear and like is not None:
        fitted.discriminant_ = like.discriminant_
    options: dict[str, Any] = {}
    if (weight != weight[0]).any():
        if has_fit_parameter(fitted, "sample_weight"):
            options["sample_weight"] = weight
        else:
            warn(
                f"classifier={classifier!r} takes no sample_weight: labeled rows count alike in "
                "it. Use one that does, such as 'trees'.",
                ConstraintWarning,
            )
    is_trees = type(fitted) in _OF_TREES
    try:
        fitted.fit(np.clip(x, -_LARGEST, _LARGEST) if is_trees else x, classes[codes], **options)
    except ValueError as error:
        fewest = int(np.unique(codes, return_counts=True)[1].min())
        raise ValueError(
            f"classifier={classifier!r} cannot be fitted to {len(x)} labeled rows, {fewest} of the "
            f"smallest class ({error}). Labels are left out by folds: give more of each class, or "
            "use 'trees'."
        ) from error
    columns = np.searchsorted(classes, fitted.classes_).astype(np.int64)
    if is_trees:
        trees = Trees.of(fitted, columns, len(classes))
        if type(fitted) is not TreesAndLinear:
            return fitted, trees
        linear = Linear.of(fitted.linear_, columns, len(classes))
        limits = fitted.low_, fitted.high_
        return fitted, Both(trees, linear, fitted.fill_, *limits, fitted.linear_share_)
    if _is_linear(fitted):
        return fitted, Linear.of(fitted, columns, len(classes))
    return fitted, Foreign(fitted, columns, len(classes))


#: Classifiers whose parts are trees.
_OF_TREES = (
    TreesAndLinear,
    RankedTrees,
    ExtraTreesClassifier,
    RandomForestClassifier,
    DecisionTreeClassifier,
    ExtraTreeClassifier,
)


def _is_linear(classifier: Any) -> bool:
    """Whether probabilities are known to be in proportion to exponentials of linear functions."""
    if type(classifier) is Pipeline:
        return (
            len(classifier) == 2
            and type(classifier[0]) is StandardScaler
            and _is_linear(classifier[1])
        )
    if type(classifier) is LogisticRegression:
        # Some of its variants have a sigmoid a class.
        several = len(classifier.classes_) > 2
        kind = getattr(classifier, "multi_class", "deprecated")
        one_by_one = classifier.solver == "liblinear" or kind == "ovr"
        return not one_by_one if several else kind != "multinomial"
    return type(classifier) is LinearDiscriminantAnalysis
