"""The values of a label map: classes by their own codes, names and colors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from daskclust.colors import NOISE_COLOR, Legend
from daskclust.persistence.origin import (
    class_names_of,
    clusters_are_classes,
    merged_classes_of,
)


def legend_of(
    model: Any, names: Mapping[int, str] | None = None, colors: Mapping[int, str] | None = None
) -> Legend:
    """Return the map values, names and colors of a fitted model's labels.

    For a classifier, and for clusters that are classes, the values are the codes of the classes (0,
    1, ... if classes are text). Clusters of the same class share a value. Clusters without a class
    get values above the largest code. For all other estimators the values are the numbers of the
    clusters; noise, where there may be any, follows them. `names` and `colors` are by class code,
    or by cluster number if clusters are not classes; the model remembers those that are missing.
    Classes that were merged share a value.

    >>> import numpy as np
    >>> import daskclust
    >>> y = ([0, 2], [3, 7])
    >>> model = daskclust.SemiSupervisedKMeans(2).fit(np.array([[0.0], [1], [9]]), y)
    >>> legend = legend_of(model, {3: "water", 7: "wheat"})
    >>> legend.encode(model.labels_).tolist(), legend.names
    ([3, 3, 7], ('water', 'wheat'))
    """
    remembered = class_names_of(model)
    names, colors = {**remembered[0], **(names or {})}, {**remembered[1], **(colors or {})}
    return _merged(_whole_legend_of(model, names, colors), merged_classes_of(model))


def _merged(legend: Legend, into: Mapping[int, int]) -> Legend:
    """Give some values of a legend to others."""
    if not into:
        return legend
    kept = [at for at, code in enumerate(legend.codes) if code not in into]
    values = np.array(legend.codes) if legend.values is None else legend.values
    return replace(
        legend,
        codes=tuple(legend.codes[at] for at in kept),
        names=tuple(legend.names[at] for at in kept),
        colors=tuple(legend.colors[at] for at in kept),
        keys=values if legend.keys is None else legend.keys,
        values=np.array([into.get(value, value) for value in values.tolist()]),
        classes=legend.classes - into.keys(),
    )


def _whole_legend_of(model: Any, names: Mapping[int, str], colors: Mapping[int, str]) -> Legend:
    if not clusters_are_classes(model):
        k = n_clusters_of(model)
        if getattr(model, "_finds_noise", False):
            # A class of its own, after the clusters: -1 in a map is a pixel without data.
            legend = Legend.of(range(k + 1), {k: "noise", **names}, {k: NOISE_COLOR, **colors})
            legend = legend.of_labels(np.arange(-1, k), np.append(k, np.arange(k)))
            legend = replace(legend, noise=k)
        else:
            legend = Legend.of(range(k), names, colors)
        return replace(legend, classes=frozenset(names) & frozenset(legend.codes))
    classes, owners = model.classes_, getattr(model, "cluster_classes_", None)
    is_text = classes.dtype.kind not in "iub"
    codes = np.arange(len(classes)) if is_text else classes.astype(np.int64)
    known = {int(c): str(v) for c, v in zip(codes, classes, strict=True)} if is_text else {}
    known |= {int(code): str(name) for code, name in names.items()}
    if owners is None:
        legend = Legend.of(codes.tolist(), known, colors, kind="class")
        legend = replace(legend, classes=frozenset(legend.codes), codes_are_given=not is_text)
        return legend.of_labels(classes, codes) if is_text else legend
    owners = np.asarray(owners)
    values = np.zeros(len(owners), dtype=np.int64)
    free = owners < 0
    values[~free] = codes[owners[~free]]
    values[free] = (codes.max() if len(codes) else -1) + 1 + np.arange(free.sum())
    for code in values[free].tolist():
        known.setdefault(code, f"cluster_{code}")
    legend = Legend.of(np.unique(values).tolist(), known, colors, kind="class")
    said = frozenset(codes.tolist())
    legend = replace(legend, classes=said, codes_are_given=not is_text)
    return legend.of_labels(np.arange(len(values)), values)


def n_clusters_of(model: Any) -> int:
    """Return the number of clusters that a fitted model has found."""
    for name in ("cluster_centers_", "means_"):
        centers = getattr(model, name, None)
        if centers is not None:
            return len(centers)
    found = getattr(model, "n_clusters_", None)
    if found is None:
        found = model.n_clusters if hasattr(model, "n_clusters") else len(model.classes_)
    return int(found)
