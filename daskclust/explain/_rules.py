"""Rules for clusters: thresholds of a small decision tree, and its fidelity."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any, NamedTuple

import numpy as np
from sklearn.tree import DecisionTreeClassifier

from daskclust.core.array_types import Array, Bools, Floats, Ints
from daskclust.core.engine import as_matrix, map_rows, open_label_pairs
from daskclust.core.estimator.validation import check_integer
from daskclust.core.reduction.label_tables import CONTINGENCY
from daskclust.core.warn import warn
from daskclust.exceptions import PerformanceWarning
from daskclust.explain._labeled_rows import Labeled, open_labeled
from daskclust.explain._profiles import Profiles, profiles_of, sample_labeled
from daskclust.explain.profile_reductions import LabelSample

#: Number of leaves per cluster, and minimum number of leaves.
_LEAVES_PER_CLUSTER, _MIN_LEAVES = 2, 4
#: Maximum product of sampled rows, features and clusters for which `explained` computes rules.  At
#: the maximum they take about ten seconds, or minutes for a deep tree of clusters that overlap.
_MAX_AUTOMATIC = 10**9


class Interval(NamedTuple):
    """Interval of a feature in a leaf: values above `low` and at most `high`."""

    feature: str
    low: float
    high: float
    or_missing: bool

    def __str__(self) -> str:
        name, low, high = self.feature, self.low, self.high
        if np.isfinite(low) and np.isfinite(high):
            text = f"{low:.6g} < {name} <= {high:.6g}"
        else:
            text = f"{name} <= {high:.6g}" if np.isfinite(high) else f"{name} > {low:.6g}"
        return f"({text} or {name} missing)" if self.or_missing else text


@dataclass(frozen=True)
class Rule:
    """Rule of one leaf of the tree.

    Attributes
    ----------
    cluster : str
        Name of the cluster that the leaf predicts.
    intervals : list of named tuples (feature, low, high, or_missing)
        Conditions of the leaf: ``low < value <= high``, for values in float32.
    rows : int
        Number of rows in the leaf.
    precision : float
        Fraction of these rows that belong to the cluster.
    """

    cluster: str
    intervals: list[Interval]
    rows: int
    precision: float

    @property
    def conditions(self) -> list[str]:
        """Conditions as text, with thresholds rounded to six digits."""
        return [*map(str, self.intervals)]

    def __str__(self) -> str:
        return " and ".join(self.conditions) or "always"


@dataclass(frozen=True, repr=False)
class Rules:
    """Decision rules that separate the clusters, and their fidelity.

    Attributes
    ----------
    rules : list of Rule
        One rule per leaf, ordered by cluster and number of rows.
    names : list of str
        Names of the clusters.
    counts : ndarray of shape (k, k), int64
        Number of rows by cluster (row) and by the cluster that the rules predict (column).
    tree : sklearn.tree.DecisionTreeClassifier
        The fitted tree.
    things : str
        Word for the rows in texts: ``"rows"``, or ``"pixels"`` for a scene.
    shown : frozenset of str, or None
        Names of the clusters whose rules are shown; None means all.
    """

    rules: list[Rule]
    names: list[str]
    counts: Ints
    tree: Any
    things: str = "rows"
    shown: frozenset[str] | None = None

    @property
    def recalls(self) -> Floats:
        """Fraction of the rows of each cluster that the rules assign to this cluster."""
        return np.asarray(self.counts.diagonal() / self.counts.sum(axis=1))

    @property
    def fidelity(self) -> float:
        """Fraction of all rows that the rules assign to their cluster."""
        return float(self.counts.trace() / self.counts.sum())

    @property
    def without_rule(self) -> list[tuple[str, str, float]]:
        """Clusters without a rule: name, most frequent prediction and its fraction."""
        unpredicted = np.flatnonzero(self.counts.sum(axis=0) == 0)
        predicted, sizes = self.counts.argmax(axis=1), self.counts.sum(axis=1)
        return [
            (
                self.names[c],
                self.names[predicted[c]],
                float(self.counts[c, predicted[c]] / sizes[c]),
            )
            for c in unpredicted.tolist()
        ]

    def __repr__(self) -> str:
        return f"Rules of {len(self.rules)} leaves, fidelity {self.fidelity:.3f}"

    def __str__(self) -> str:
        things = self.things
        lines = [f"fidelity {self.fidelity:.3f} over all {things}"]
        lines += [
            f"{rule.cluster}: {rule} ({rule.rows} {things}, precision {rule.precision:.1%})"
            for rule in self.rules
        ]
        return "\n".join([*lines, *self._missing_rules()])

    def _missing_rules(self) -> list[str]:
        why = f"in the sampled {self.things} it is not the largest cluster of any of the "
        return [
            f"{name}: no rule, because {why}{len(self.rules)} leaves; {share:.1%} of its "
            f"{self.things} follow the rules of {predicted_name}"
            for name, predicted_name, share in self.without_rule
            if self.shown is None or name in self.shown
        ]

    def to_frame(self) -> Any:
        """Return a table with a line for each rule, and for each cluster without a rule.

        Returns
        -------
        pandas.DataFrame
            Columns ``cluster``, ``rule``, ``rows`` and ``precision``.  For a cluster without a
            rule, ``rule`` and ``precision`` are missing.
        """
        import pandas

        lines: list[tuple[str, str | None, int, float]]
        lines = [(rule.cluster, str(rule), rule.rows, rule.precision) for rule in self.rules]
        lines += [(name, None, 0, np.nan) for name, *_ in self.without_rule]
        return pandas.DataFrame(lines, columns=["cluster", "rule", "rows", "precision"])

    def of(self, names: Collection[str]) -> Rules:
        """Return the rules of some clusters."""
        return replace(
            self,
            rules=[rule for rule in self.rules if rule.cluster in names],
            shown=frozenset(names),
        )

    def _repr_html_(self) -> str:
        right = ' style="text-align:right"'
        lines = "".join(
            f"<tr><td>{escape(rule.cluster)}</td><td style='text-align:left'>{escape(str(rule))}"
            f"</td><td{right}>{rule.rows:,}</td><td{right}>{rule.precision:.1%}</td></tr>"
            for rule in self.rules
        )
        head = f"<th>Cluster</th><th>Rule</th><th>{self.things.capitalize()}</th><th>Precision</th>"
        return (
            f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"
            f"<p>The rules predict the cluster of {self.fidelity:.1%} of all {self.things}.</p>"
            + "".join(f"<p>{escape(text)}.</p>" for text in self._missing_rules())
        )


class Split(NamedTuple):
    """Split on the path to a leaf.

    The path takes the values up to the threshold if `is_below`, else the values above it.  It takes
    missing values if `takes_missing`.
    """

    feature: int
    threshold: float
    is_below: bool
    takes_missing: bool


@dataclass(frozen=True)
class _Leaves:
    """Function that returns the number of the leaf of each row."""

    tree: Any
    leaves: Ints
    dtype: np.dtype[Any]

    def __call__(self, x: Array, start: int) -> Ints:
        nodes = self.tree.apply(as_matrix(x, self.dtype).astype(np.float32))
        return np.searchsorted(self.leaves, nodes).astype(np.int64)


def rules(model: Any, X: Any, y: Any = None, max_leaves: int | None = None) -> Rules:
    """Return decision rules that separate the clusters, and their fidelity.

    Use them to describe clusters by a few thresholds of features.

    Parameters
    ----------
    model : fitted estimator, or None
        Model whose ``predict`` returns the clusters.
    X : array-like, dask.array.Array, DataFrame, xarray.DataArray or Cube of shape (n, p)
        Rows.
    y : array-like or dask.array.Array of shape (n,), optional
        Labels that replace the predictions of the model, as in :func:`profiles`: whole numbers (for
        NumPy also text), -1 for rows to ignore.
    max_leaves : int, optional
        Maximum number of leaves, at least 2.  Default: twice the number of clusters.

    Returns
    -------
    Rules

    Raises
    ------
    ValueError
        For fewer than 2 clusters or leaves, and without model and y.

    Warns
    -----
    DaskclustWarning
        If most rows are outside the range of the data of the fit.

    Notes
    -----
    *Passes*: 2.  The first pass draws rows, and scikit-learn fits a tree to them.  The weight of a
    drawn row is the number of rows that it represents.  The second pass counts the rows that the
    tree assigns to their cluster.  Both passes predict the labels of a lazy X.

    A leaf predicts the largest cluster among its sampled rows.  A cluster that overlaps with larger
    clusters may therefore have no rule.  The result names such clusters.  More leaves may help.

    *Cost*: each level of the tree takes time proportional to the product of sampled rows, features
    and clusters, which is minutes for a thousand clusters of embeddings.

    Examples
    --------
    >>> import numpy as np
    >>> import daskclust
    >>> from daskclust.explain import rules
    >>> X = np.array([[0.0, 5.0], [1.0, 5.0], [9.0, 5.0], [10.0, 5.0]])
    >>> model = daskclust.KMeans(n_clusters=2, random_state=0).fit(X)
    >>> result = rules(model, X)
    >>> result.fidelity, sorted(str(rule) for rule in result.rules)
    (1.0, ['x0 <= 5', 'x0 > 5'])
    """
    if np.ndim(y) == 0 and y is not None:
        raise TypeError(f"y must be one label per row, got {y!r}. Use max_leaves={y!r} for leaves.")
    data = open_labeled(model, X, y, store_labels=True)
    if max_leaves is not None:
        check_integer(max_leaves, "max_leaves", 2)
    return rules_of(data, sample_labeled(data), max_leaves)


def rules_of(data: Labeled, sample: LabelSample, max_leaves: int | None = None) -> Rules:
    """Fit the tree to a sample, and count the rows that it assigns to their cluster."""
    k = len(sample.labels)
    if k < 2:
        raise ValueError("X must have rows of at least 2 clusters for rules, got rows of 1.")
    n_leaves = (
        max(_LEAVES_PER_CLUSTER * k, _MIN_LEAVES)
        if max_leaves is None
        else min(max_leaves, len(sample.rows))
    )
    tree = DecisionTreeClassifier(max_leaf_nodes=n_leaves, random_state=0)
    index = np.searchsorted(sample.labels, sample.rows["label"])
    # Weight of a sampled row: number of rows of its label divided by the number of sampled rows.
    weights = np.asarray(sample.weights / np.bincount(index, minlength=k))[index]
    tree.fit(sample.rows["x"], index, sample_weight=weights)
    leaves = np.flatnonzero(tree.tree_.children_left < 0)
    leaf_of_row = map_rows(
        data.X, _Leaves(tree, leaves, data.rows.dtype), dtype=np.int64, name="leaves"
    )
    table = open_label_pairs(leaf_of_row, data.labels, masked=True).reduce(CONTINGENCY, None)
    table = table[np.isin(table[:, 1], sample.labels)]  # drop rows to ignore
    counts = np.zeros((len(leaves), k), np.int64)
    counts[table[:, 0], np.searchsorted(sample.labels, table[:, 1])] = table[:, 2]
    names = [data.name(int(label)) for label in sample.labels]
    has_missing = sample.missing.sum(axis=0) > 0
    things = "rows" if data.cube is None else "pixels"
    return _rules_of_tree(tree, leaves, counts, names, data.features, has_missing, things)


def _rules_of_tree(
    tree: Any,
    leaves: Ints,
    counts: Ints,
    names: list[str],
    features: list[str],
    has_missing: Bools,
    things: str,
) -> Rules:
    paths = _paths(tree.tree_)
    chosen = tree.tree_.value[leaves, 0].argmax(axis=1)
    correct = counts[np.arange(len(leaves)), chosen]
    sizes = counts.sum(axis=1)
    leaf_rules = []
    for i, leaf in enumerate(leaves):
        intervals = _intervals(paths[int(leaf)], features, has_missing)
        precision = float(correct[i] / sizes[i]) if sizes[i] else float("nan")
        leaf_rules.append(Rule(names[chosen[i]], intervals, int(sizes[i]), precision))
    order = sorted(range(len(leaf_rules)), key=lambda i: (int(chosen[i]), -leaf_rules[i].rows))
    confusion = np.zeros((len(names), len(names)), np.int64)
    np.add.at(confusion.T, chosen, counts)
    return Rules([leaf_rules[i] for i in order], names, confusion, tree, things)


def _paths(tree: Any) -> dict[int, list[Split]]:
    paths: dict[int, list[Split]] = {}
    stack: list[tuple[int, list[Split]]] = [(0, [])]
    while stack:
        node, path = stack.pop()
        left, right = int(tree.children_left[node]), int(tree.children_right[node])
        if left < 0:
            paths[node] = path
            continue
        feature, threshold = int(tree.feature[node]), float(tree.threshold[node])
        missing_go_left = bool(tree.missing_go_to_left[node])
        stack.append((left, [*path, Split(feature, threshold, True, missing_go_left)]))
        stack.append((right, [*path, Split(feature, threshold, False, not missing_go_left)]))
    return paths


def _intervals(path: list[Split], features: list[str], has_missing: Bools) -> list[Interval]:
    """Combine the splits of each feature to one interval."""
    bounds: dict[int, tuple[float, float]] = {}
    with_missing: dict[int, bool] = {}
    for step in path:
        low, high = bounds.get(step.feature, (-np.inf, np.inf))
        if step.is_below:
            bounds[step.feature] = (low, min(high, step.threshold))
        else:
            bounds[step.feature] = (max(low, step.threshold), high)
        with_missing[step.feature] = with_missing.get(step.feature, True) and step.takes_missing
    return [
        Interval(features[number], low, high, bool(has_missing[number] and with_missing[number]))
        for number, (low, high) in bounds.items()
    ]


def explained(
    model: Any,
    X: Any,
    features: Sequence[str] | None = None,
    labels: Any = None,
    *,
    are_vectors: bool = False,
) -> tuple[Profiles, Rules | str]:
    """Return profiles and rules together, in three passes.

    `labels` replace the predictions of the model for X.  A text with the reason replaces the rules
    of a single cluster, of vectors, and of data for which rules take too long.  In the last case
    the text is also a warning.
    """
    data = open_labeled(model, X, features=features, predicted=labels)
    sample = sample_labeled(data)
    k, (n, p) = len(sample.labels), sample.rows["x"].shape
    result: Rules | str
    if k < 2:
        result = "Rules were skipped, because they need at least 2 clusters."
    elif are_vectors:
        result = "Rules were skipped, because single values of vectors have no meaning."
    elif k * n * p > _MAX_AUTOMATIC:
        result = (
            f"Rules of {k} clusters were skipped: a tree of {n} sampled rows and {p} features "
            "would take minutes. Use daskclust.explain.rules(model, X, max_leaves=...) to grow it."
        )
        warn(result, PerformanceWarning)
    else:
        result = rules_of(data, sample)
    return replace(profiles_of(data, sample), are_vectors=are_vectors), result
