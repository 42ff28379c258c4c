"""Labels that are kept apart from a fit, to judge it: whole fields, or groups of rows."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from daskclust._types import Array, Bools, Ints
from daskclust.engine import compute

#: Rows that the baselines learn from at most, and trees of the forest.
_MOST_ROWS, _TREES = 100_000, 100


def add_hold_out_arguments(group: Any) -> None:
    group.add_argument(
        "--hold-out",
        type=_share,
        metavar="SHARE",
        help="keep this share of the labels apart, as whole fields (touching pixels of a class) or "
        "--groups, and tell the accuracy on them",
    )
    group.add_argument(
        "--baseline", action="store_true", help="tell that of 1-NN and a random forest, too"
    )


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from error
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1, as in 0.3")
    return value


def check_hold_out(options: argparse.Namespace, has_labels: bool) -> None:
    for flag, needs in (("baseline", options.hold_out), ("groups", options.hold_out)):
        if getattr(options, flag) and needs is None:
            options.parser.error(f"--{flag} is about the labels kept apart; give --hold-out 0.3")
    if options.hold_out is not None and not has_labels:
        options.parser.error(
            "--hold-out keeps a part of the labels apart, and the fit learns from none; give "
            "--labels, or of a table --label-column, and an estimator that takes them"
        )


@dataclass(frozen=True)
class HoldOut:
    """Labels divided in two: `y` for the fit, `rows` and `labels` kept apart.

    `unit` is what was kept whole: `n_groups` of them, `n_held` apart. Classes of one group
    (`alone`) go to the fit whole.
    """

    y: tuple[Ints, Array]
    rows: Ints
    labels: Array
    unit: str
    n_groups: int
    n_held: int
    alone: list[str]

    def judged(self, model: Any, job: Any, legend: Any, *, baseline: bool, seed: int) -> Any:
        """Say how well the fit, and others, tell what was kept apart, as JSON values."""
        from daskclust.metrics import accuracy_report, clustering_accuracy

        found: dict[str, Any] = {
            "unit": self.unit,
            "groups": self.n_groups,
            "groups_held_out": self.n_held,
            "rows": len(self.rows),
            "not_held_out": self.alone,
        }
        (labels,) = compute("the labels kept apart", model.labels_[self.rows])
        codes = np.asarray(legend.encode(labels))
        if not legend.classes:
            _, known = np.unique(self.labels, return_inverse=True)
            found["best_matching_accuracy"] = clustering_accuracy(known, codes)
        else:
            truth = self._named(self.labels, legend)
            report = accuracy_report(truth, np.array([legend.by_code[c] for c in codes.tolist()]))
            found |= {
                "accuracy": report.overall,
                "accuracy_interval": report.overall_interval.tolist(),
                "kappa": None if np.isnan(report.kappa) else report.kappa,
                "by_class": [
                    {"class": name, **{k: None if v != v else v for k, v in line.items()}}
                    for name, line in report.to_frame().iloc[:, :5].to_dict(orient="index").items()
                ],
            }
        if baseline:
            found["baselines"] = self._baselines(job.samples, seed)
        return found

    @staticmethod
    def _named(labels: Array, legend: Any) -> Array:
        if labels.dtype.kind not in "iub":
            return labels.astype(str)
        return np.array([legend.by_code.get(code, str(code)) for code in labels.tolist()])

    def _baselines(self, samples: Any, seed: int) -> dict[str, Any]:
        from sklearn.ensemble import RandomForestClassifier
        from sklearn.impute import SimpleImputer
        from sklearn.neighbors import KNeighborsClassifier
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        rng = np.random.default_rng(seed)
        mine, labels = self.y
        if len(mine) > _MOST_ROWS:
            kept = np.sort(rng.choice(len(mine), _MOST_ROWS, replace=False))
            mine, labels = mine[kept], labels[kept]
        theirs, known = self.rows, self.labels
        if len(theirs) > _MOST_ROWS:
            kept = np.sort(rng.choice(len(theirs), _MOST_ROWS, replace=False))
            theirs, known = theirs[kept], known[kept]
        X, held = compute("the rows of the labels", samples[mine], samples[theirs])
        X, held = (np.asarray(part, dtype=np.float64) for part in (X, held))
        fill = SimpleImputer(keep_empty_features=True)
        found: dict[str, Any] = {"rows_learned_from": len(mine), "rows": len(theirs)}
        for name, model in (
            ("1-NN, standardized", make_pipeline(fill, StandardScaler(), KNeighborsClassifier(1))),
            (
                f"random forest, {_TREES} trees",
                make_pipeline(fill, RandomForestClassifier(_TREES, random_state=seed)),
            ),
        ):
            found[name] = float(model.fit(X, labels).score(held, known))
        return found


def hold_out(
    rows: Ints, labels: Array, groups: Ints, share: float, *, unit: str, seed: int
) -> HoldOut:
    """Keep a share of the groups of each class apart, at least one; one stays at least.

    >>> labels, groups = np.array(["a", "a", "a", "a", "b"]), np.array([0, 0, 1, 1, 2])
    >>> kept = hold_out(np.arange(5), labels, groups, 0.5, unit="fields", seed=0)
    >>> len(kept.rows), kept.n_held, kept.alone
    (2, 1, ['b'])
    """
    rng = np.random.default_rng(seed)
    held: Bools = np.zeros(len(rows), bool)
    alone, n_held = [], 0
    for label in np.unique(labels):
        mine = np.flatnonzero(labels == label)
        own = np.unique(groups[mine])
        if len(own) < 2:
            alone.append(str(label))
            continue
        count = int(np.clip(round(share * len(own)), 1, len(own) - 1))
        chosen = rng.choice(own, count, replace=False)
        held[mine[np.isin(groups[mine], chosen)]] = True
    # A group of several classes goes as a whole.
    held = np.isin(groups, groups[held])
    left = set(np.unique(labels[~held]).tolist())
    gone = sorted(set(np.unique(labels).tolist()) - left)
    if gone:
        raise ValueError(
            f"--hold-out leaves no label of {gone[0]!r} to learn from, since its {unit} hold other "
            "classes, too; expected groups of one class, or a smaller share."
        )
    if not held.any():
        raise ValueError(
            f"Each class has labels in one of the {unit} only, so --hold-out can keep none whole; "
            "label two at least of a class."
        )
    n_held = len(np.unique(groups[held]))
    return HoldOut(
        (rows[~held], labels[~held]),
        rows[held],
        labels[held],
        unit,
        len(np.unique(groups)),
        n_held,
        alone,
    )


def fields_of(lines: Ints, columns: Ints, labels: Array) -> Ints:
    """Return the field of each labeled pixel: pixels of one class that touch, corners included.

    >>> fields_of(np.array([0, 1, 1, 5]), np.array([0, 1, 2, 5]), np.array([3, 3, 4, 3])).tolist()
    [0, 0, 1, 2]
    """
    width = int(columns.max()) + 3
    keys = (lines + 1) * width + columns + 1
    order = np.argsort(keys)
    ordered = keys[order]
    ends = []
    for step in (1, width - 1, width, width + 1):
        at = np.minimum(np.searchsorted(ordered, keys + step), len(keys) - 1)
        near = order[at]
        touch = np.flatnonzero((keys[near] == keys + step) & (labels[near] == labels))
        ends.append(np.stack([touch, near[touch]]))
    first, second = np.concatenate(ends, axis=1)
    links = coo_array((np.ones(len(first), bool), (first, second)), shape=(len(keys),) * 2)
    found: Ints = connected_components(links, directed=False)[1].astype(np.int64)
    return found
