"""What a fit has found, in numbers and as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dask.array as da
import numpy as np

from daskclust.report.legend import Legend, n_clusters_of
from daskclust.report.summary import NothingInCommonError, agreement_of, as_classes

__all__ = ["agreements", "classes_as_text", "fit_as_text", "numbers_of"]


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
    weights = getattr(model, "feature_weights_", None)
    if weights is not None:
        found["features_used"] = int((weights > 0).sum())
    violations = getattr(model, "constraint_violations_", None)
    if violations is not None:
        found["violations"] = len(violations)
    return found


def agreements(
    maps: Mapping[str, Any],
    image: da.Array,
    grid: Any,
    legend: Legend,
    *,
    unlabeled: tuple[int, ...],
    are_used: bool,
) -> dict[str, Any]:
    """Compare a label map with the known classes.

    Parameters
    ----------
    maps : mapping of str to Image
        ``labels`` and ``truth``, as far as they were given.
    image : dask.array.Array of shape (y, x)
        The label map, -1 for none.
    grid : BlockGrid
        Of the cube.
    legend : Legend
        Of the label map.
    unlabeled : tuple of int
        Values that mean no class.
    are_used : bool
        Whether the fit used the partial labels: these pixels are no test of it.
    """
    found: dict[str, Any] = {}
    named = legend.by_code
    used = None
    for name, opened in maps.items():
        known = as_classes(opened.values, (*unlabeled, *opened.nodata))
        if name == "labels":
            used = known if are_used else None
        elif used is not None:
            known = da.where(used >= 0, -1, known)
        try:
            scores = agreement_of(image, known, grid)
        except NothingInCommonError:
            # Everything known was told to the fit, or lies where there are no data.
            continue
        scores["cluster_names"] = [named.get(value, str(value)) for value in scores["clusters"]]
        if opened.meanings is not None:
            scores["class_names"] = [
                opened.meanings.get(value, str(value)) for value in scores["classes"]
            ]
        scores["used_by_fit"] = name == "labels" and are_used
        found[f"agreement_with_{name}"] = scores
    return found


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
    lines += classes_as_text(found)
    for name in ("truth", "labels"):
        scores = found.get(f"agreement_with_{name}")
        if scores:
            lines.append(
                f"{name.capitalize():<10}ARI {scores['ari']:.3f}, NMI {scores['nmi']:.3f}, "
                f"pairwise F {scores['pairwise_f']:.3f}, accuracy {scores['accuracy']:.3f} on "
                f"{scores['pixels']} pixels"
                # A score on what was learned says nothing about the rest of the map.
                + (" that the fit learned from" if scores.get("used_by_fit") else "")
            )
    lines.append(f"Time      {found['seconds']:.1f} s")
    if found["outputs"]:
        lines.append("Written   " + ", ".join(found["outputs"].values()))
    return "\n".join(lines)
