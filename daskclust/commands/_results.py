"""The results of a fit, in numbers and as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dask.array as da
import numpy as np

from daskclust.colors import Legend
from daskclust.report.legend import n_clusters_of
from daskclust.report.summary import (
    NothingInCommonError,
    agreement_of,
    compare_classes,
)

__all__ = [
    "agreements",
    "agreements_as_text",
    "agreements_in",
    "classes_as_text",
    "fit_as_text",
    "numbers_of",
]


def numbers_of(model: Any) -> dict[str, Any]:
    """Return what a fit has found, as far as it is a number."""
    found: dict[str, Any] = {"n_clusters": n_clusters_of(model)}
    names = ("n_iter_", "inertia_", "objective_", "lower_bound_", "converged_")
    for name in names:
        value = getattr(model, name, None)
        if isinstance(value, bool | int | float | np.generic):
            found[name.rstrip("_")] = value.item() if isinstance(value, np.generic) else value
    history = getattr(model, "history_", None)
    if history:
        found["passes"] = history[-1].get("passes")
        found["fit_seconds"] = sum(record.get("seconds") or 0.0 for record in history)
        for name in ("mixing_weights", "left_out_log_loss", "advice"):
            # No number where too few labels are given: JSON has no NaN.
            value = history[-1].get(name)
            if value is not None and not (isinstance(value, dict) and _unknown(value)):
                found[name] = value
    weights = getattr(model, "feature_weights_", None)
    if weights is not None:
        found["features_used"] = int((weights > 0).sum())
    violations = getattr(model, "constraint_violations_", None)
    if violations is not None:
        found["violations"] = len(violations)
    return found


def _unknown(values: Mapping[str, float]) -> bool:
    return any(np.isnan(value) for value in values.values())


def agreements(
    maps: Mapping[str, tuple[Any, Any]],
    found: da.Array,
    grid: Any,
    legend: Legend,
    *,
    are_used: bool,
) -> dict[str, Any]:
    """Compare labels with the known classes.

    `maps` holds, of ``labels`` and ``truth`` as far as they were given, codes (-1 for none) and
    what tells their names. Where `are_used`, the fit used the partial labels: these rows are no
    test of it. With a `grid`, all are images of it.
    """
    scores: dict[str, Any] = {}
    used = None
    for name in ("labels", "truth"):
        if name not in maps:
            continue
        known, opened = maps[name]
        if name == "labels":
            used = known if are_used else None
        elif used is not None:
            known = da.where(used >= 0, -1, known)
        try:
            compared = agreement_of(found, known, grid)
        except NothingInCommonError:
            # Everything known was told to the fit, or lies where there are no data.
            continue
        compare_classes(compared, legend, opened)
        compared["used_by_fit"] = name == "labels" and are_used
        scores[f"agreement_with_{name}"] = compared
    return scores


def agreements_in(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what :func:`agreements` has found, by what was compared with."""
    keys = {name: f"agreement_with_{name}" for name in ("truth", "labels")}
    return {name: found[key] for name, key in keys.items() if key in found}


def classes_as_text(found: Mapping[str, Any]) -> list[str]:
    """Write the pixels of each cluster, or a line for each class that has a name of its own."""
    if "sizes" not in found:
        return []
    classes = found["classes"]
    if all(item["name"] == f"cluster_{item['code']}" for item in classes):
        return ["Sizes     " + " ".join(map(str, found["sizes"]))]
    width = max(len(item["name"]) for item in classes)
    heads = ["Classes", *[""] * (len(classes) - 1)]
    return [
        f"{head:<10}{item['code']:>3}  {item['name']:<{width}}  "
        + (f"{item['rows']:>9} rows" if "rows" in item else f"{item['pixels']:>9} pixels")
        + (f"  {item['square_meters'] / 1e6:>10.4g} km2" if "square_meters" in item else "")
        for head, item in zip(heads, classes, strict=True)
    ]


def _accuracy(scores: Mapping[str, Any]) -> str:
    """Write the accuracy, by what it is."""
    if scores["compared_by"] is None:
        return ""
    if scores["compared_by"] == "matching":
        found = scores["best_matching_accuracy"]
        return f", best matching of clusters to classes {found:.3f}"
    low, high = scores["accuracy_interval"]
    kappa = "" if scores["kappa"] is None else f", kappa {scores['kappa']:.3f}"
    return (
        f", accuracy by {scores['compared_by']} {scores['accuracy']:.3f} "
        f"({low:.3f} to {high:.3f}){kappa}"
    )


def agreements_as_text(found: Mapping[str, Any]) -> list[str]:
    """Write the agreement with known classes, and accuracies class by class."""
    lines = []
    for name in ("truth", "labels"):
        scores = found.get(f"agreement_with_{name}")
        if not scores:
            continue
        unit = "rows" if "rows" in found else "pixels"
        lines.append(
            f"{name.capitalize():<10}ARI {scores['ari']:.3f}, NMI {scores['nmi']:.3f}, "
            f"pairwise F {scores['pairwise_f']:.3f}{_accuracy(scores)} on "
            f"{scores['pixels']} {unit}"
            # A score on what was learned says nothing about the rest of the map.
            + (" that the fit learned from" if scores.get("used_by_fit") else "")
        )
        if "by_class" in scores and not scores.get("used_by_fit"):
            lines += _by_class_as_text(scores["by_class"])
    return lines


def held_out_as_text(found: Mapping[str, Any]) -> list[str]:
    """Write how well the fit tells labels that it has not seen, and how well others do."""
    scores = found.get("held_out")
    if scores is None:
        return []
    named = "accuracy" in scores
    value = scores["accuracy" if named else "best_matching_accuracy"]
    what = "accuracy" if named else "best matching of clusters to classes"
    span = "({:.3f} to {:.3f})".format(*scores["accuracy_interval"]) if named else ""
    lines = [
        f"Held out  {what} {value:.3f} {span} on {scores['rows']} labels of "
        f"{scores['groups_held_out']} of {scores['groups']} {scores['unit']}"
    ]
    if scores["not_held_out"]:
        lines.append(f"{'':<10}not judged, of one group only: {', '.join(scores['not_held_out'])}")
    if "by_class" in scores:
        lines += _by_class_as_text(scores["by_class"])
    others = scores.get("baselines", {})
    for name, other in others.items():
        if not name.startswith("rows"):
            lines.append(f"{'':<10}{name}: {other:.3f} on {others['rows']} of the same labels")
    return [*lines, f"{'':<10}To use all labels, fit again without --hold-out."]


def _by_class_as_text(items: list[dict[str, Any]]) -> list[str]:
    width = max(5, *(len(item["class"]) for item in items))
    head = f"{'':<10}{'class':<{width}}  {'known':>9}  {'found':>9}  producer's  user's     F1"
    shown = [
        {
            key: "-" if item[key] is None else f"{item[key]:.3f}"
            for key in ("producers", "users", "f1")
        }
        for item in items
    ]
    return [
        head,
        *(
            f"{'':<10}{item['class']:<{width}}  {item['truth']:>9}  {item['labels']:>9}  "
            f"{text['producers']:>10}  {text['users']:>6}  {text['f1']:>5}"
            for item, text in zip(items, shown, strict=True)
        ),
    ]


def fit_as_text(found: Mapping[str, Any]) -> str:
    """Write the results of a fit for people."""
    lines = [
        f"Rows      {found['rows']} clustered by {len(found['columns'])} columns"
        if "rows" in found
        else f"Pixels    {found['pixels']['valid']} clustered, {found['pixels']['masked']} masked",
        f"Fit       {found['estimator']}, {found['n_clusters']} clusters, "
        f"{found.get('n_iter', '?')} iterations, {found.get('passes', '?')} passes",
    ]
    for key, label in (
        ("inertia", "Inertia"),
        ("objective", "Objective"),
        ("lower_bound", "Bound"),
        ("features_used", "Bands"),
        ("violations", "Violated"),
    ):
        if key in found:
            value = found[key]
            unit = {"features_used": " with weight", "violations": " pairs"}.get(key, "")
            lines.append(
                f"{label:<10}{value:.6g}{unit}"
                if isinstance(value, float)
                else f"{label:<10}{value}{unit}"
            )
    if "advice" in found:
        lines.append(f"Labels    {found['advice']}")
    lines += classes_as_text(found)
    lines += agreements_as_text(found)
    lines += held_out_as_text(found)
    lines.append(f"Time      {found['seconds']:.1f} s")
    if found["outputs"]:
        lines.append("Written   " + ", ".join(found["outputs"].values()))
    return "\n".join(lines)
