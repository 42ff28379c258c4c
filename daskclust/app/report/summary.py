"""Summary of a map for a report: legend, sizes, agreement with known classes, picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from daskclust.colors import NOISE_COLOR, Legend, name_of, positions_of_names
from daskclust.core.array_types import Ints
from daskclust.core.engine import compute
from daskclust.core.persistence import mixin
from daskclust.core.warn import warn
from daskclust.exceptions import DaskclustWarning
from daskclust.scenes import LabelMap, area_table
from daskclust.scenes.block_grid import BlockGrid, flatten
from daskclust.scenes.label_map import signed_codes


def legend_of(model: Any, names: Mapping[int, str] | None = None) -> Legend:
    """Return the map values, names and colors of a fitted model's labels.

    For a classifier, and for clusters that are classes, the values are the codes of the classes (0,
    1, ... if classes are text). Clusters of the same class, and merged classes, share a value.
    Clusters without a class get values above the largest code. For all other estimators the values
    are the numbers of the clusters, followed by noise if the estimator finds noise. `names` are by
    class code, or by cluster number if clusters are not classes. Missing names, and colors, are
    taken from the model.

    >>> import numpy as np
    >>> import daskclust
    >>> y = ([0, 2], [3, 7])
    >>> model = daskclust.SemiSupervisedKMeans(2).fit(np.array([[0.0], [1], [9]]), y)
    >>> legend = legend_of(model, {3: "water", 7: "wheat"})
    >>> legend.encode(model.labels_).tolist(), legend.names
    ([3, 3, 7], ('water', 'wheat'))
    """
    stored_names, colors = mixin.class_names_of(model)
    legend = _whole_legend_of(model, {**stored_names, **(names or {})}, colors)
    return _merged(legend, mixin.merged_classes_of(model))


def _merged(legend: Legend, merged_into: Mapping[int, int]) -> Legend:
    """Replace some values of a legend by the values that they are merged into."""
    if not merged_into:
        return legend
    unmerged = [i for i, code in enumerate(legend.codes) if code not in merged_into]
    values = np.array(legend.codes) if legend.values is None else legend.values
    return replace(
        legend,
        codes=tuple(legend.codes[i] for i in unmerged),
        names=tuple(legend.names[i] for i in unmerged),
        colors=tuple(legend.colors[i] for i in unmerged),
        keys=values if legend.keys is None else legend.keys,
        values=np.array([merged_into.get(value, value) for value in values.tolist()]),
        classes=legend.classes - merged_into.keys(),
    )


def _whole_legend_of(model: Any, names: Mapping[int, str], colors: Mapping[int, str]) -> Legend:
    if not mixin.clusters_are_classes(model):
        k = n_clusters_of(model)
        if getattr(model, "_finds_noise", False):
            # Noise is a value after the clusters, because -1 in a map is a pixel without data.
            legend = Legend.of(range(k + 1), {k: "noise", **names}, {k: NOISE_COLOR, **colors})
            legend = legend.of_labels(np.arange(-1, k), np.append(k, np.arange(k)))
            legend = replace(legend, noise=k)
        else:
            legend = Legend.of(range(k), names, colors)
        return replace(legend, classes=frozenset(names) & frozenset(legend.codes))
    classes, class_of_cluster = model.classes_, getattr(model, "cluster_classes_", None)
    is_text = classes.dtype.kind not in "iub"
    codes = np.arange(len(classes)) if is_text else classes.astype(np.int64)
    names_by_code = {int(c): str(v) for c, v in zip(codes, classes, strict=True)} if is_text else {}
    names_by_code |= {int(code): str(name) for code, name in names.items()}
    if class_of_cluster is None:
        legend = Legend.of(codes.tolist(), names_by_code, colors, kind="class")
        legend = replace(legend, classes=frozenset(legend.codes), codes_are_given=not is_text)
        return legend.of_labels(classes, codes) if is_text else legend
    class_of_cluster = np.asarray(class_of_cluster)
    values = np.zeros(len(class_of_cluster), dtype=np.int64)
    without_class = class_of_cluster < 0
    values[~without_class] = codes[class_of_cluster[~without_class]]
    values[without_class] = (codes.max() if len(codes) else -1) + 1 + np.arange(without_class.sum())
    for code in values[without_class].tolist():
        names_by_code.setdefault(code, name_of(code, kind="cluster"))
    legend = Legend.of(np.unique(values).tolist(), names_by_code, colors, kind="class")
    legend = replace(legend, classes=frozenset(codes.tolist()), codes_are_given=not is_text)
    return legend.of_labels(np.arange(len(values)), values)


def n_clusters_of(model: Any) -> int:
    """Return the number of clusters that a fitted model has found."""
    # Spectral clustering has one eigenvalue per cluster, or fewer if there are fewer nodes.
    for name in ("cluster_centers_", "means_", "eigenvalues_"):
        centers = getattr(model, name, None)
        if centers is not None:
            return len(centers)
    count = getattr(model, "n_clusters_", getattr(model, "n_clusters", None))
    return len(model.classes_) if count is None else int(count)


def singles_advice(sizes: Any) -> str:
    """Return advice if most clusters have one row, else an empty text.

    >>> singles_advice([9, 1, 1])[:40]
    '2 of 3 clusters have one row: these rows'
    """
    single, k = int(np.sum(np.asarray(sizes) == 1)), len(sizes)
    if k < 3 or single <= k / 2:
        return ""
    return (
        f"{single:,} of {k:,} clusters have one row: these rows are outliers, or there are too "
        'many clusters. Ask for fewer; use metric="cosine" for vectors of different lengths, or '
        "HDBSCAN, which calls outliers noise."
    )


#: Maximum number of pixels along the longer side of the small map.
_SIDE = 2500


class NothingInCommonError(ValueError):
    """Raised if no row has both a known class and a cluster."""


@dataclass(frozen=True)
class MapSummary:
    """Statistics and a preview of a label map.

    `sizes` are the numbers of pixels per code. `preview` contains every ``step``-th pixel, as an
    index of the codes, or -1 without data. `values` are the margins of these pixels, NaN if
    missing. `known` are the codes of their known classes, -1 if unknown. `square_meters` are the
    areas of the codes; None without a coordinate system. `before` are sizes and areas before
    smoothing.
    """

    sizes: Ints
    preview: NDArray[Any]
    step: int
    values: NDArray[np.float32] | None = None
    square_meters: tuple[float, ...] | None = None
    before: tuple[Ints, tuple[float, ...] | None] | None = None
    known: NDArray[Any] | None = None


def _count(block: NDArray[Any], codes: Ints) -> Ints:
    positions = _positions(block[block >= 0].ravel(), codes)
    return np.bincount(positions[positions >= 0], minlength=len(codes))[None, None].astype(np.int64)


def _positions(labels: NDArray[Any], codes: Ints) -> Ints:
    """Return positions of labels in ascending codes, -1 for labels that are not a code."""
    at = np.searchsorted(codes, labels)
    at[at == len(codes)] = 0
    return np.where(codes[at] == labels, at, -1)


def summarize(
    image: da.Array,
    codes: Sequence[int],
    *,
    values: Any = None,
    known: Any = None,
    cube: Any = None,
) -> MapSummary:
    """Count the pixels of each code and reduce the map, in one pass; -1 means no label.

    `values` and `known` classes are reduced too. With a `cube` that has a coordinate system,
    another pass adds up areas.
    """
    order = np.asarray(codes, dtype=np.int64)
    counts = da.map_blocks(
        _count,
        image,
        codes=order,
        new_axis=2,
        chunks=((1,) * image.numblocks[0], (1,) * image.numblocks[1], (len(order),)),
        meta=np.empty((0, 0, 0), np.int64),
    )
    step = max(1, -(-max(image.shape) // _SIDE))
    layers = [layer for layer in (values, known) if layer is not None]
    small = [layer[::step, ::step] for layer in (image, *layers)]
    sizes, preview, *small_layers = compute(
        "the summary of the map", counts.sum(axis=(0, 1)), *small
    )
    margins = None if values is None else np.asarray(small_layers[0], dtype=np.float32)
    areas = None
    if cube is not None and cube.georeference.crs_text() is not None:
        _, areas = pixels_and_areas(image, codes, cube)
    known_preview = None if known is None else np.asarray(small_layers[-1])
    return MapSummary(
        sizes, _positions(np.asarray(preview), order), step, margins, areas, known=known_preview
    )


def pixels_and_areas(
    image: da.Array, codes: Sequence[int], cube: Any
) -> tuple[Ints, tuple[float, ...] | None]:
    """Return pixels and areas of the codes (None without a coordinate system), in one pass."""
    position = cube.georeference
    try:
        table = area_table(LabelMap(image, position=position))
    except ImportError:  # without pyproj there are only counts
        table = area_table(LabelMap(image))
    sizes_by_code = {row.code: (row.pixels, row.square_meters) for row in table}
    counts, areas = zip(*(sizes_by_code.get(code, (0, 0.0)) for code in codes), strict=True)
    sizes = np.array(counts, np.int64)
    has_areas = position.crs_text() is not None and None not in areas
    return sizes, tuple(float(area or 0.0) for area in areas) if has_areas else None


def area_unit(square_meters: Any) -> tuple[float, str]:
    """Return the size in square meters and the name of a unit for areas; "" without areas."""
    if square_meters is None:
        return 1.0, ""
    return (1e6, "km\N{SUPERSCRIPT TWO}") if np.sum(square_meters) >= 1e8 else (1e4, "ha")


def known_classes(opened: Any, unlabeled: Sequence[int]) -> da.Array:
    """Return the values of an opened map of classes, with -1 for pixels without a class."""
    none = () if opened.by_name else tuple(unlabeled)
    return signed_codes(da.asarray(opened.values), (*none, *opened.nodata))


def agreement_of(
    labels: da.Array, known: da.Array, grid: BlockGrid | None = None, opened: Any = None
) -> dict[str, Any]:
    """Count the rows of each known class in each cluster or predicted class.

    A row without a known class has ``known`` -1. With a `grid`, both arrays are images on it. If
    the `opened` image has polygons, rows are also counted per polygon.

    Returns scores that do not need names, the number of compared ``pixels``, and the confusion
    matrix: ``classes``, ``clusters`` and ``counts``. With polygons, ``by_unit`` contains records of
    polygon, index of the class, index of the cluster, and number of rows. Raises
    NothingInCommonError if no row has both.
    """
    from daskclust.metrics import contingency_table, scores_of_table

    # One vector holds the polygon and the class of a pixel: both are below 2**31.
    units, base = getattr(opened, "units", None), 2**31
    if units is not None:
        known = da.where(known >= 0, units.astype(np.int64) * base + known, -1)
    if grid is not None:
        known, labels = flatten(known, grid), flatten(labels, grid)
    table = contingency_table(known, labels)
    table = table[(table[:, :2] >= 0).all(axis=1)]
    unit_numbers = None
    if units is not None:
        unit_numbers, table[:, 0] = np.divmod(table[:, 0], base)
    if not len(table):
        raise NothingInCommonError("No row has both a known class and a cluster to compare.")
    classes, rows = np.unique(table[:, 0], return_inverse=True)
    clusters, columns = np.unique(table[:, 1], return_inverse=True)
    counts = np.zeros((len(classes), len(clusters)), dtype=np.int64)
    np.add.at(counts, (rows, columns), table[:, 2])
    if unit_numbers is not None:
        records = np.column_stack([unit_numbers, rows, columns, table[:, 2]])
        at = np.nonzero(counts)
        table = np.column_stack([classes[at[0]], clusters[at[1]], counts[at]])
    scores = scores_of_table(table)
    return {
        **({} if unit_numbers is None else {"by_unit": records}),
        **{name: scores[name] for name in ("ari", "nmi", "pairwise_f")},
        "pixels": int(counts.sum()),
        "classes": classes.tolist(),
        "clusters": clusters.tolist(),
        "counts": counts.tolist(),
    }


def compare_classes(
    scores: dict[str, Any], legend: Legend, truth: Any, *, warns: bool = False
) -> None:
    """Match classes of the map and the truth, and add the accuracy to :func:`agreement_of`.

    Adds ``cluster_names``, ``class_names`` and ``compared_by``, which is

    - ``"name"`` if both sides have names, or ``"code"`` if both have codes. Then ``accuracy`` is
      the fraction of correct pixels, with ``accuracy_interval``, ``independent_units`` (the number
      of polygons; None without polygons), ``kappa``, and ``by_class``, a list with ``producers``,
      ``users`` and ``f1`` per class.
    - ``"matching"`` if clusters have no names. Then ``best_matching_accuracy`` is the fraction of
      correct pixels under the best one-to-one matching of clusters and classes.
    - None if neither is possible.

    ``matched`` are the indices of the clusters of the classes, or -1. Pixels of a class that the
    map does not contain count as wrong. A warning is shown if map and truth have no common class,
    and with `warns` also if there are few polygons.

    >>> from types import SimpleNamespace
    >>> legend = Legend((0, 1), ("water", "wheat"), ("", ""), classes=frozenset([0, 1]))
    >>> counts = {"classes": [0, 1], "clusters": [0, 1], "counts": [[0, 5], [5, 0]]}
    >>> exchanged = SimpleNamespace(meanings={0: "wheat", 1: "water"}, by_name=True)
    >>> compare_classes(counts, legend, exchanged)
    >>> counts["accuracy"], counts["compared_by"]
    (1.0, 'name')
    >>> compare_classes(counts, legend, SimpleNamespace(meanings=None, by_name=False))
    >>> counts["accuracy"], counts["compared_by"]
    (0.0, 'code')
    """
    from daskclust.metrics import warn_of_few_units

    codes, clusters = scores["classes"], scores["clusters"]
    counts, by_unit = np.asarray(scores["counts"]), scores.pop("by_unit", None)
    scores["cluster_names"] = [legend.by_code.get(code, str(code)) for code in clusters]
    meanings = truth.meanings
    names = codes
    if meanings is not None:
        names = scores["class_names"] = [name_of(code, meanings) for code in codes]
    for score in ("accuracy", "best_matching_accuracy"):
        scores.pop(score, None)
    if not legend.classes:
        # Noise has no class, so it counts as wrong.
        without_noise = np.flatnonzero([code != legend.noise for code in clusters])
        rows, columns = linear_sum_assignment(counts[:, without_noise], maximize=True)
        columns = without_noise[columns]
        scores["compared_by"], score = "matching", "best_matching_accuracy"
    else:
        score = "accuracy"
        class_names = {code: legend.by_code[code] for code in legend.classes}
        by_name = meanings is not None and not all(
            name == name_of(code) for code, name in class_names.items()
        )
        if by_name:
            positions = positions_of_names(list(class_names.values()), names)
            right_codes = [None if at < 0 else list(class_names)[at] for at in positions]
        else:
            right_codes = [code if code in class_names else None for code in codes]
        is_comparable = (by_name or (legend.codes_are_given and not truth.by_name)) and any(
            code is not None for code in right_codes
        )
        scores["compared_by"] = ("name" if by_name else "code") if is_comparable else None
        if not is_comparable:
            warn(
                f"The known classes are {names[:10]}, the classes of the map "
                f"{sorted(class_names.values())[:10]}: without a common name, accuracy cannot be "
                "computed. Use the same names, or codes, in both.",
                DaskclustWarning,
            )
            right_codes = [None] * len(codes)
        pairs = [(i, clusters.index(c)) for i, c in enumerate(right_codes) if c in clusters]
        rows, columns = np.array(pairs, dtype=np.intp).reshape(-1, 2).T
    matched = np.full(len(codes), -1)
    matched[rows] = columns
    scores["matched"] = matched.tolist()
    if scores["compared_by"] is not None:
        scores[score] = float(counts[rows, columns].sum() / max(1, counts.sum()))
    for name in ("accuracy_interval", "independent_units", "kappa", "by_class"):
        scores.pop(name, None)
    if score == "accuracy" and scores["compared_by"] is not None:
        names = names if meanings is not None else [name_of(code, legend.by_code) for code in codes]
        scores.update(_by_class(counts, matched, names, scores["cluster_names"], by_unit))
        if warns:
            warn_of_few_units(scores["independent_units"])


def _by_class(
    counts: Ints,
    matched: Ints,
    classes: Sequence[str],
    clusters: Sequence[str],
    by_unit: Ints | None,
) -> dict[str, Any]:
    """Accuracy of each class, from a table whose columns are matched with its rows."""
    from daskclust.metrics import accuracy_of_counts

    others = sorted(set(range(counts.shape[1])) - set(matched.tolist()))
    names = [*classes, *(clusters[i] for i in others)]
    square = np.zeros((len(names), len(names)), np.int64)
    square[: len(counts), len(counts) :] = counts[:, others]
    has_match = np.flatnonzero(matched >= 0)
    square[: len(counts), has_match] = counts[:, matched[has_match]]
    if by_unit is not None:
        column = np.empty(counts.shape[1], np.int64)
        column[others] = len(counts) + np.arange(len(others))
        column[matched[has_match]] = has_match
        by_unit = np.column_stack([by_unit[:, :2], column[by_unit[:, 2]], by_unit[:, 3]])
    report = accuracy_of_counts(square, names, by_unit=by_unit)
    lines = zip(
        names,
        square.sum(axis=1).tolist(),
        square.sum(axis=0).tolist(),
        *(_numbers(values) for values in (report.producers, report.users, report.f1)),
        strict=True,
    )
    keys = ("class", "truth", "labels", "producers", "users", "f1")
    return {
        "accuracy_interval": report.overall_interval.tolist(),
        "independent_units": report.n_units,
        "kappa": _numbers(np.array([report.kappa]))[0],
        "by_class": [dict(zip(keys, line, strict=True)) for line in lines],
    }


def _numbers(values: NDArray[Any]) -> list[float | None]:
    """Return numbers for JSON, which has no NaN."""
    return [None if np.isnan(value) else float(value) for value in values]
