"""Rules for clusters: thresholds of a small tree, and how faithful it is."""

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

#: Leaves for each cluster, and the fewest.
_LEAVES, _FEWEST = 2, 4
#: Sampled rows by features by clusters, up to which rules are told unasked: ten seconds, or minutes
#: where clusters overlap and the tree is deep.
_UNASKED = 10**9


class Interval(NamedTuple):
    """The values of a feature in a leaf: above `low`, at most `high`; infinite where unbounded."""

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
    """One leaf of the tree.

    Attributes
    ----------
    cluster : str
        Name of the cluster that the leaf stands for.
    intervals : list of named tuples (feature, low, high, or_missing)
        All of which hold in the leaf: ``low < value <= high``, of values in single precision.
    rows : int
        Rows in the leaf.
    precision : float
        Share of them that are of the cluster.
    """

    cluster: str
    intervals: list[Interval]
    rows: int
    precision: float

    @property
    def conditions(self) -> list[str]:
        """The intervals in words, with thresholds rounded to six digits."""
        return [*map(str, self.intervals)]

    def __str__(self) -> str:
        return " and ".join(self.conditions) or "always"


@dataclass(frozen=True, repr=False)
class Rules:
    """A tree of thresholds that tells clusters apart, and its fidelity.

    Attributes
    ----------
    rules : list of Rule
        One a leaf; those of one cluster together, the largest first.
    names : list of str
        Of the clusters.
    counts : ndarray of shape (k, k), int64
        Rows of each cluster to which the rules give each cluster.
    tree : sklearn.tree.DecisionTreeClassifier
    things : str
        What rows are: ``"rows"``, or ``"pixels"`` of a scene.
    shown : frozenset of str, or None
        Names of the clusters whose rules are shown; None for all.
    """

    rules: list[Rule]
    names: list[str]
    counts: Ints
    tree: Any
    things: str = "rows"
    shown: frozenset[str] | None = None

    @property
    def recalls(self) -> Floats:
        """Share of the rows of each cluster that its rules find."""
        return np.asarray(self.counts.diagonal() / self.counts.sum(axis=1))

    @property
    def fidelity(self) -> float:
        """Share of all rows to which the rules give their cluster."""
        return float(self.counts.trace() / self.counts.sum())

    @property
    def without_rule(self) -> list[tuple[str, str, float]]:
        """Clusters without a rule, whose rules take most of their rows, and the share of these."""
        absent = np.flatnonzero(self.counts.sum(axis=0) == 0)
        most, sizes = self.counts.argmax(axis=1), self.counts.sum(axis=1)
        return [
            (self.names[c], self.names[most[c]], float(self.counts[c, most[c]] / sizes[c]))
            for c in absent.tolist()
        ]

    def __repr__(self) -> str:
        return f"Rules of {len(self.rules)} leaves, fidelity {self.fidelity:.3f}"

    def __str__(self) -> str:
        things = self.things
        lines = [f"fidelity {self.fidelity:.3f} over all {things}"]
        lines += [
            f"{rule.cluster}: {rule} ({rule.rows} {things}, {rule.precision:.1%} of them right)"
            for rule in self.rules
        ]
        return "\n".join([*lines, *self._absences()])

    def _absences(self) -> list[str]:
        """Say of each cluster without a rule why, and where its rows are."""
        why = f"by the drawn {self.things} none of the {len(self.rules)} leaves holds more of it"
        return [
            f"{name}: no rule, as {why} than of another cluster; {share:.1%} of its {self.things} "
            f"follow the rules of {other}"
            for name, other, share in self.without_rule
            if self.shown is None or name in self.shown
        ]

    def to_frame(self) -> Any:
        """Return one line for each rule, and for each cluster without one.

        Returns
        -------
        pandas.DataFrame
            Columns ``cluster``, ``rule``, ``rows`` and ``precision``; of a cluster without a rule,
            ``rule`` and ``precision`` are missing.
        """
        import pandas

        told: list[tuple[str, str | None, int, float]]
        told = [(rule.cluster, str(rule), rule.rows, rule.precision) for rule in self.rules]
        told += [(name, None, 0, np.nan) for name, *_ in self.without_rule]
        return pandas.DataFrame(told, columns=["cluster", "rule", "rows", "precision"])

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
        head = f"<th>Cluster</th><th>Rule</th><th>{self.things.capitalize()}</th><th>Right</th>"
        return (
            f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"
            f"<p>The rules give {self.fidelity:.1%} of all {self.things} their cluster.</p>"
            + "".join(f"<p>{escape(text)}.</p>" for text in self._absences())
        )


class Step(NamedTuple):
    """A split on the way to a leaf: whether it takes values up to the threshold, missing ones."""

    feature: int
    threshold: float
    is_below: bool
    takes_gaps: bool


@dataclass(frozen=True)
class _Leaves:
    """Number of the leaf of each row; travels to the workers."""

    tree: Any
    leaves: Ints
    dtype: np.dtype[Any]

    def __call__(self, x: Array, start: int) -> Ints:
        found = self.tree.apply(as_matrix(x, self.dtype).astype(np.float32))
        return np.searchsorted(self.leaves, found).astype(np.int64)


def rules(model: Any, X: Any, y: Any = None, max_leaves: int | None = None) -> Rules:
    """Find thresholds that tell the clusters apart, and how faithful they are.

    Parameters
    ----------
    model : fitted estimator, or None
        Whose ``predict`` gives the clusters.
    X : array-like, dask.array.Array, DataFrame, xarray.DataArray or Cube of shape (n, p)
    y : array-like or dask.array.Array of shape (n,), optional
        Labels that are told apart in place of those of the model, as in :func:`profiles`: whole
        numbers (for NumPy also text), -1 for rows that are left out.
    max_leaves : int, optional
        Leaves of the tree at most, at least 2; twice the number of clusters when omitted.

    Returns
    -------
    Rules

    Raises
    ------
    ValueError
        For fewer than 2 clusters, fewer leaves than 2, and if there is neither a model nor y.

    Warns
    -----
    DaskclustWarning
        If most rows lie outside the range of the data that the model was fitted on.

    Notes
    -----
    *Passes*: 2; the first draws rows, from which scikit-learn grows the tree, each weighted by
    the rows it stands for; the second counts over all rows how often the tree is right.  Labels of
    a lazy X are predicted in both.

    A leaf stands for the cluster of most of its drawn rows, so that a cluster that overlaps with
    larger ones may have none; the result says so. More leaves may find it a rule.

    *Cost*: scikit-learn weighs each threshold by all clusters, so that each level of the tree takes
    sampled rows by features by clusters: minutes for a thousand clusters of embeddings.

    Examples
    --------
    >>> import numpy as np
    >>> import daskclust
    >>> from daskclust.explain import rules
    >>> X = np.array([[0.0, 5.0], [1.0, 5.0], [9.0, 5.0], [10.0, 5.0]])
    >>> model = daskclust.KMeans(n_clusters=2, random_state=0).fit(X)
    >>> found = rules(model, X)
    >>> found.fidelity, sorted(str(rule) for rule in found.rules)
    (1.0, ['x0 <= 5', 'x0 > 5'])
    """
    if np.ndim(y) == 0 and y is not None:
        raise TypeError(f"y must be one label per row, got {y!r}. Use max_leaves={y!r} for leaves.")
    data = open_labeled(model, X, y, keep=True)
    if max_leaves is not None:
        check_integer(max_leaves, "max_leaves", 2)
    return rules_of(data, sample_labeled(data), max_leaves)


def rules_of(data: Labeled, sample: LabelSample, max_leaves: int | None = None) -> Rules:
    """Grow the tree on a sample, and count over all rows how often it is right."""
    k = len(sample.labels)
    if k < 2:
        raise ValueError("X holds rows of one cluster only; rules tell at least 2 apart.")
    most = max(_LEAVES * k, _FEWEST) if max_leaves is None else min(max_leaves, len(sample.rows))
    tree = DecisionTreeClassifier(max_leaf_nodes=most, random_state=0)
    index = np.searchsorted(sample.labels, sample.rows["label"])
    # Rows that each sampled row stands for: the rows of its label by those drawn of it.
    weights = np.asarray(sample.weights / np.bincount(index, minlength=k))[index]
    tree.fit(sample.rows["x"], index, sample_weight=weights)
    leaves = np.flatnonzero(tree.tree_.children_left < 0)
    of_rows = map_rows(
        data.X, _Leaves(tree, leaves, data.rows.dtype), dtype=np.int64, name="leaves"
    )
    table = open_label_pairs(of_rows, data.labels, masked=True).reduce(CONTINGENCY, None)
    table = table[np.isin(table[:, 1], sample.labels)]  # rows that y leaves out have no rules
    counts = np.zeros((len(leaves), k), np.int64)
    counts[table[:, 0], np.searchsorted(sample.labels, table[:, 1])] = table[:, 2]
    names = [data.name(int(label)) for label in sample.labels]
    gapped = sample.missing.sum(axis=0) > 0
    things = "rows" if data.cube is None else "pixels"
    return _read(tree, leaves, counts, names, data.features, gapped, things)


def _read(
    tree: Any,
    leaves: Ints,
    counts: Ints,
    names: list[str],
    features: list[str],
    gapped: Bools,
    things: str,
) -> Rules:
    paths = _paths(tree.tree_)
    chosen = tree.tree_.value[leaves, 0].argmax(axis=1)
    right = counts[np.arange(len(leaves)), chosen]
    sizes = counts.sum(axis=1)
    found = []
    for i, leaf in enumerate(leaves):
        intervals = _intervals(paths[int(leaf)], features, gapped)
        precision = float(right[i] / sizes[i]) if sizes[i] else float("nan")
        found.append(Rule(names[chosen[i]], intervals, int(sizes[i]), precision))
    order = sorted(range(len(found)), key=lambda i: (int(chosen[i]), -found[i].rows))
    given = np.zeros((len(names), len(names)), np.int64)
    np.add.at(given.T, chosen, counts)
    return Rules([found[i] for i in order], names, given, tree, things)


def _paths(tree: Any) -> dict[int, list[Step]]:
    """Find the steps to each leaf."""
    paths: dict[int, list[Step]] = {}
    stack: list[tuple[int, list[Step]]] = [(0, [])]
    while stack:
        node, path = stack.pop()
        left, right = int(tree.children_left[node]), int(tree.children_right[node])
        if left < 0:
            paths[node] = path
            continue
        feature, threshold = int(tree.feature[node]), float(tree.threshold[node])
        gaps = bool(tree.missing_go_to_left[node])
        stack.append((left, [*path, Step(feature, threshold, True, gaps)]))
        stack.append((right, [*path, Step(feature, threshold, False, not gaps)]))
    return paths


def _intervals(path: list[Step], features: list[str], gapped: Bools) -> list[Interval]:
    """Join the steps of each feature to one interval."""
    bounds: dict[int, tuple[float, float]] = {}
    with_gaps: dict[int, bool] = {}
    for step in path:
        low, high = bounds.get(step.feature, (-np.inf, np.inf))
        if step.is_below:
            bounds[step.feature] = (low, min(high, step.threshold))
        else:
            bounds[step.feature] = (max(low, step.threshold), high)
        with_gaps[step.feature] = with_gaps.get(step.feature, True) and step.takes_gaps
    return [
        Interval(features[at], low, high, bool(gapped[at] and with_gaps[at]))
        for at, (low, high) in bounds.items()
    ]


def explained(
    model: Any,
    X: Any,
    features: Sequence[str] | None = None,
    labels: Any = None,
    *,
    are_vectors: bool = False,
) -> tuple[Profiles, Rules | str]:
    """Find profiles and rules together, in three passes.

    `labels` are those of the model for X, where they are not what it predicts.  In the place of
    rules is said why there are none: of one cluster, of vectors, whose single values mean nothing,
    and, with a warning, where they take long.
    """
    data = open_labeled(model, X, features=features, found=labels)
    sample = sample_labeled(data)
    k, (n, p) = len(sample.labels), sample.rows["x"].shape
    told: Rules | str
    if k < 2:
        told = "There are no rules, which tell at least 2 clusters apart."
    elif are_vectors:
        told = "There are no rules, since single values of vectors mean nothing."
    elif k * n * p > _UNASKED:
        told = (
            f"Rules of {k} clusters are left out: a tree of {n} sampled rows and {p} features "
            "would take minutes. Use daskclust.explain.rules(model, X, max_leaves=...) to grow it."
        )
        warn(told, PerformanceWarning)
    else:
        told = rules_of(data, sample)
    return replace(profiles_of(data, sample), are_vectors=are_vectors), told
