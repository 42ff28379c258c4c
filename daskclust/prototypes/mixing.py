"""The weights of spread labels and of a classifier beside them, chosen by labels left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

from daskclust._types import Bools, Floats, Ints
from daskclust.prototypes.labeled import LabelPlan, RowNodes, chosen
from daskclust.prototypes.learners import teach
from daskclust.prototypes.posterior import shares, surely

#: Folds, and digits of a weight: the last bits of a loss must not show.
_FOLDS, _DIGITS = 4, 4
#: How much weights are drawn to the graph alone, each by the square of its distance.  That of
#: the graph less so upwards: who is surer of the same classes errs no more often.
_DRAWN, _DRAWN_UP = 8.0, 0.5
#: Labeled rows that teach the classifier, and rows that are left out, at most.
TAUGHT, _TRIED = 10_000, 4096
#: Share of the weights below which a part has no say.
_NO_SAY = 0.1


@dataclass(frozen=True)
class Fold:
    """Labels that are left out together.

    Attributes
    ----------
    rows : ndarray of shape (m,), bool
        Out of the fetched rows.
    points : ndarray of shape (m,), bool
        Out of the different ones.
    """

    rows: Bools
    points: Bools


@dataclass(frozen=True)
class Mixture:
    """How much of either part there is.

    Attributes
    ----------
    weights : ndarray of shape (2,)
        Of the spread labels and of the classifier.
    losses : dict of str to float
        Mean log loss of the labels left out, by ``"spread"``, ``"classifier"`` and
        ``"mixture"``; NaN where none could be left out.
    """

    weights: Floats
    losses: dict[str, float]

    @classmethod
    def untried(cls) -> Mixture:
        """Return the graph alone."""
        names = ("spread", "classifier", "mixture")
        return cls(np.array([1.0, 0.0]), dict.fromkeys(names, float("nan")))


class Lesson:
    """Labeled rows that teach a classifier, and folds of them.

    Parameters
    ----------
    plan : LabelPlan
        With the values of the rows.
    classifier : object
        Of scikit-learn; not fitted.

    Attributes
    ----------
    points : RowNodes
        The different rows.
    known : ndarray of shape (k, c)
        Shares of the classes of each.
    folds : list of Fold
        Empty where fewer than two classes have two different rows.
    n_labels, n_taught : int
        Labeled rows that were given, and those that teach.
    """

    def __init__(self, plan: LabelPlan, classifier: Any, seed: int) -> None:
        assert plan.x is not None
        assert plan.weights is not None
        assert plan.labels is not None
        self._x, self._classifier = plan.x, classifier
        self._classes, self._codes = plan.labels.classes, plan.codes
        self._weight = plan.weights.sum(axis=1)
        self.points = RowNodes(plan.x, self._weight)
        self.known = shares(self.points.sums(plan.weights))
        # In an order of their values: row numbers of pixels depend on the chunks.
        self._taught = np.lexsort((self._weight, self._codes, self.points.node))
        if len(plan.codes) > TAUGHT:
            drawn = chosen(self._codes[self._taught], len(self._classes), TAUGHT, seed)
            self._taught = self._taught[drawn]
        self.n_labels = len(plan.labels.rows)
        self.n_taught = len(self._taught)
        number = self._deal(seed)
        self.folds = [
            Fold(number[self.points.node] == f, number == f) for f in range(number.max() + 1)
        ]

    def _deal(self, seed: int) -> Ints:
        """Deal the points out to folds, each class evenly; -1 where a point always stays."""
        codes = self.known.argmax(axis=1)
        counts = np.bincount(codes, minlength=self.known.shape[1])
        number = np.full(len(codes), -1)
        if np.count_nonzero(counts > 1) < 2:
            return number
        tried = counts[codes] > 1
        if len(codes) > _TRIED:
            tried &= chosen(codes, self.known.shape[1], _TRIED, seed)
        order = np.random.default_rng(seed).permutation(np.flatnonzero(tried))
        order = order[np.argsort(codes[order], kind="stable")]
        number[order] = np.arange(len(order)) % _FOLDS
        return number

    def teach(self, without: Fold | None = None) -> tuple[Any, Any]:
        """Return the classifier fitted to the rows, but for a fold, and what it has learned."""
        kept = self._taught if without is None else self._taught[~without.rows[self._taught]]
        return teach(
            self._classifier,
            self._x[kept],
            self._codes[kept],
            self._weight[kept],
            self._classes,
        )

    def weigh(self, spread: list[Floats], learned: list[Any]) -> Mixture:
        """Weigh both parts by what they say of the folds.

        Parameters
        ----------
        spread : list of ndarray of shape (m, c)
            Probabilities of the points of each fold, by the labels of the others.
        learned : list of Learned
            What the classifier has learned without each fold.
        """
        parts = [
            one.predict_proba(self.points.x[fold.points])
            for one, fold in zip(learned, self.folds, strict=True)
        ]
        left_out = np.concatenate([np.flatnonzero(fold.points) for fold in self.folds])
        weight = self.points.weight[left_out]
        return mix(
            np.concatenate(spread),
            np.concatenate(parts),
            self.known[left_out],
            weight / weight.mean(),
        )


def mix(spread: Floats, classifier: Floats, known: Floats, weight: Floats) -> Mixture:
    """Choose the weights that make labels left out the most likely, drawn to the graph alone.

    Parameters
    ----------
    spread, classifier : ndarray of shape (m, c)
        Probabilities of the classes of labeled rows, each without its label.
    known : ndarray of shape (m, c)
        Shares of the classes.
    weight : ndarray of shape (m,)
        1 on average.

    Notes
    -----
    The log loss is convex in the weights, and so is the square of their distance to (1, 0).

    Examples
    --------
    >>> right, even, ones = np.eye(2)[[0, 1] * 20], np.full((40, 2), 0.5), np.ones(40)
    >>> float(mix(right, even, right, ones).weights[1])
    0.0
    >>> bool(mix(even, right, right, ones).weights[1] > 0.5)
    True
    """
    parts = np.stack([np.log(surely(spread)), np.log(surely(classifier))])

    def loss(weights: Floats) -> tuple[float, Floats]:
        logs = np.tensordot(weights, parts, 1)
        logs -= logs.max(axis=1, keepdims=True)
        logs -= np.log(np.exp(logs).sum(axis=1, keepdims=True))
        slopes = np.einsum("ij,mij->mi", np.exp(logs) - known, parts) @ weight
        return -float(weight @ (known * logs).sum(axis=1)), slopes

    def drawn(weights: Floats) -> tuple[float, Floats]:
        value, slopes = loss(weights)
        apart = weights - np.array([1.0, 0.0])
        pull = np.array([_DRAWN_UP if apart[0] > 0 else _DRAWN, _DRAWN])
        return value + float(pull @ apart**2), slopes + 2 * pull * apart

    found = minimize(
        drawn, [1.0, 0.0], jac=True, bounds=[(0, None)] * 2, options={"ftol": 1e-14, "gtol": 1e-9}
    )
    weights = np.round(found.x, _DIGITS)
    losses = {
        name: round(loss(np.asarray(w))[0] / len(known), _DIGITS)
        for name, w in (("spread", [1.0, 0.0]), ("classifier", [0.0, 1.0]), ("mixture", weights))
    }
    return Mixture(weights, losses)


def advice(mixture: Mixture, name: str, n_labels: int, n_taught: int) -> str:
    """Say which part knows more, and which rows to label next.

    Parameters
    ----------
    name : str
        "trees", or how else to call the classifier.
    n_labels, n_taught : int
        Labeled rows that were given, and those that taught the classifier.

    Examples
    --------
    >>> advice(Mixture.untried(), "trees", 2, 2)
    'Too few labels to weigh trees: give two or more of each of two classes.'
    """
    spread, other = mixture.weights.tolist()
    losses, upper = mixture.losses, name[0].upper() + name[1:]
    know, add, were = ("know", "add", "were") if name == "trees" else ("knows", "adds", "was")
    if np.isnan(losses["mixture"]):
        return f"Too few labels to weigh {name}: give two or more of each of two classes."
    share = other / (spread + other) if spread + other > 0 else 0.0
    if share < _NO_SAY:
        said = f"Spread labels know all that {name} {know}: label rows where the margin is small"
    elif share > 1 / 2:
        said = f"{upper} {know} more here: label rows far from the labeled ones"
    else:
        said = f"Spread labels know more here, and {name} {add} to it: label rows of small margin"
    said += (
        f" (weights {spread:.2f} and {other:.2f}; log loss of labels left out: spread "
        f"{losses['spread']:.3f}, {name} {losses['classifier']:.3f}, both {losses['mixture']:.3f})."
    )
    if n_taught < n_labels:
        said += f" {upper} {were} taught by {n_taught} of {n_labels} labels."
    return said
