"""The two passes behind profiles of clusters: moments and a sample, then histograms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from daskclust.core.array_types import Array, Floats, Ints
from daskclust.core.kernels.moments import merge_moments
from daskclust.core.kernels.nearest.assign import SEGMENT
from daskclust.core.kernels.rng import low_draws
from daskclust.core.reduction.contract import Field, Merge, Partial, Reduction, RowBlock, top_dtype
from daskclust.explain.profile_kernels import (
    Bins,
    distances_to_centers,
    fill_histograms,
    label_counts,
    label_positions,
    merged_order,
    smallest_of_each,
    value_moments,
)

#: Range of labels (largest minus smallest) from which they are sorted instead of counted.
_WIDE_RANGE = 2**16


#: Labels of all rows, or a function of a chunk and its first row number.  The function returns
#: labels and squared distances to the centers.
RowLabels = Ints | Callable[[Array, int], tuple[Array, Floats]] | None
#: Labels of a block, and squared distances if they were computed.
_Labeled = tuple[Array, Floats | None]


@dataclass(frozen=True)
class LabelSampleRequest:
    """State of the pass that computes the moments of each label and draws a sample of the rows.

    The sample contains the fraction `share` of the rows, and at least `n_per_label` rows of each
    label.  Labels are the last column of the rows, or `row_labels` (see :data:`RowLabels`).  Blocks
    store computed labels for the second pass.
    """

    n_features: int
    seed: int
    share: float
    n_per_label: int
    ignored: int | None = None
    row_labels: RowLabels = None


class LabelSample(NamedTuple):
    """Result of the first pass, for the m labels that occur, sorted.

    `moments` (3, m, p) are weight, mean and sum of squared deviations of the observed values.
    `bounds` (2, m, p) are minimum and maximum, and `missing` (m, p) is the weight of missing
    values.  `rows` is the sample (``label``, ``key``, ``row``, ``x``).  Its rows with a key of at
    most `share` are a uniform sample of all rows.  `label_cache` contains the labels of blocks.
    """

    labels: Ints
    weights: Floats
    moments: Floats
    bounds: Floats
    missing: Floats
    rows: Array
    share: float
    label_cache: Any = None


def _statistics_dtype(p: int) -> np.dtype:
    return np.dtype(
        [
            ("label", np.int64),
            ("weight", np.float64),
            ("moments", np.float64, (3, p)),
            ("bounds", np.float64, (2, p)),
            ("missing", np.float64, (p,)),
        ]
    )


def _sample_dtype(p: int) -> np.dtype:
    return np.dtype([("label", np.int64), *top_dtype(p).descr[:2], ("x", np.float64, (p,))])


def _merge_statistics(a: Array, b: Array) -> Array:
    if not len(a) or not len(b):
        return b if not len(a) else a
    labels = np.union1d(a["label"], b["label"])
    out: Any = np.zeros(len(labels), a.dtype)
    out["label"] = labels
    out["bounds"] = np.array([np.inf, -np.inf])[:, None]
    for statistics in (a, b):
        index = np.searchsorted(labels, statistics["label"])
        joined = merge_moments(
            out["moments"][index].transpose(1, 0, 2), statistics["moments"].transpose(1, 0, 2)
        )
        out["moments"][index] = joined.transpose(1, 0, 2)
        out["weight"][index] += statistics["weight"]
        out["missing"][index] += statistics["missing"]
        low, high = out["bounds"][index].transpose(1, 0, 2)
        out["bounds"][index] = np.stack(
            [
                np.minimum(low, statistics["bounds"][:, 0]),
                np.maximum(high, statistics["bounds"][:, 1]),
            ],
            axis=1,
        )
    return out


def _merge_samples(a: Array, b: Array, *, share: float, n_per_label: int) -> Array:
    if not len(a) or not len(b):
        return b if not len(a) else a
    labels, keys, rows = (np.concatenate([a[name], b[name]]) for name in ("label", "key", "row"))
    order = merged_order(labels, keys, rows, len(a), share, n_per_label)
    # Rows are wide, so copy them only once.
    out, first = np.empty(len(order), a.dtype), order < len(a)
    out[first], out[~first] = a[order[first]], b[order[~first] - len(a)]
    return out


_STATISTICS = Merge("statistics by label", np.zeros, _merge_statistics)


def _sample_fields(state: LabelSampleRequest) -> Mapping[str, Field]:
    p = state.n_features
    merge = partial(_merge_samples, share=state.share, n_per_label=state.n_per_label)
    return {
        "statistics": Field((None,), _STATISTICS, _statistics_dtype(p)),
        "sample": Field((None,), Merge("sample by label", np.zeros, merge), _sample_dtype(p)),
    }


def _split(
    rows: RowBlock, row_labels: RowLabels, stored: _Labeled | None
) -> tuple[RowBlock, _Labeled]:
    """Separate the labels from the rows, without copying the rows."""
    if row_labels is None:
        return rows._replace(x=rows.x[:, :-1]), (rows.x[:, -1].astype(np.int64), None)
    if stored is not None:
        return rows, stored
    if not callable(row_labels):
        chunks = [row_labels[start : start + size] for start, size in rows.runs]
        return rows, (np.concatenate(chunks), None)
    results = [
        row_labels(rows.x[chunk], start)
        for (start, _), chunk in zip(rows.runs, rows.slices(), strict=True)
    ]
    if len(results) == 1:
        return rows, results[0]
    labels, squared = zip(*results, strict=True)
    return rows, (np.concatenate(labels), np.concatenate(squared))


def _to_store(labeled: _Labeled, row_labels: RowLabels) -> _Labeled | None:
    return labeled if callable(row_labels) else None


def _occurring(labels: Ints) -> Ints:
    low, high = (int(labels.min()), int(labels.max())) if len(labels) else (0, _WIDE_RANGE)
    if high - low >= _WIDE_RANGE:
        return np.unique(labels)
    return np.flatnonzero(label_counts(labels, low, high)) + low


def _positions(labels: Ints, sorted_labels: Ints) -> Array:
    """Return positions of labels in a sorted array of labels (int32), or -1."""
    if not len(sorted_labels):
        return np.full(len(labels), -1, np.int32)
    if sorted_labels[-1] - sorted_labels[0] >= _WIDE_RANGE:
        index = np.minimum(np.searchsorted(sorted_labels, labels), len(sorted_labels) - 1)
        return np.where(sorted_labels[index] == labels, index, -1).astype(np.int32)
    return label_positions(labels, sorted_labels)


def _check_finite(rows: RowBlock, x: Array, index: Ints) -> None:
    wrong = np.isinf(x) & (index >= 0)[:, None]
    if rows.weight is not None:
        wrong &= (rows.weight > 0)[:, None]
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        number = int(rows.numbers(np.array([row]))[0])
        raise ValueError(
            f"X must be finite or NaN, got {x[row, column]} at row {number}, column {column}. "
            "Replace it by NaN if the value is missing."
        )


def _candidates(
    rows: RowBlock, index: Ints, k: int, state: LabelSampleRequest
) -> tuple[Ints, Floats]:
    counts = label_counts(index, -1, k - 1)[1:]
    # Draw twice the required number of rows of a label.  If they are too few, use all its rows.
    limits = np.append(
        np.maximum(2.0 * state.n_per_label / np.maximum(counts, 1), state.share), -1.0
    )
    candidates, keys = low_draws(state.seed, rows.runs, index, limits)
    short = np.bincount(index[candidates], minlength=k) < np.minimum(counts, state.n_per_label)
    if short.any():
        limits[:-1][short] = 1.0
        candidates, keys = low_draws(state.seed, rows.runs, index, limits)
    return candidates, keys


def _sample_block(
    rows: RowBlock, state: LabelSampleRequest, stored: _Labeled | None
) -> tuple[Partial, _Labeled | None]:
    p = state.n_features
    features, labeled = _split(rows, state.row_labels, stored)
    labels = labeled[0]
    is_counted = np.ones(len(labels), bool) if rows.weight is None else rows.weight > 0
    if state.ignored is not None:
        is_counted &= labels != state.ignored
    all_count = bool(is_counted.all())
    occurring = _occurring(labels if all_count else labels[is_counted])
    index = _positions(labels, occurring)
    if not all_count:
        index[~is_counted] = -1
    fields = _sample_fields(state)
    statistics = fields["statistics"].identity()
    for chunk in rows.slices():
        chunk_weight = None if rows.weight is None else rows.weight[chunk]
        weight, moments, bounds, missing = value_moments(
            rows.x[chunk], index[chunk], chunk_weight, len(occurring), n_features=p
        )
        chunk_statistics = np.zeros(len(occurring), _statistics_dtype(p))
        chunk_statistics["label"] = occurring
        chunk_statistics["moments"], chunk_statistics["bounds"] = (
            moments.transpose(1, 0, 2),
            bounds.transpose(1, 0, 2),
        )
        chunk_statistics["weight"], chunk_statistics["missing"] = weight, missing
        if not np.isfinite(moments).all() or np.isinf(bounds[:, moments[0] > 0]).any():
            _check_finite(rows, features.x, index)
            raise ValueError(
                "X must have values whose squares are finite, got larger values. Replace them by "
                "NaN if they stand for missing values, else rescale X."
            )
        statistics = _merge_statistics(statistics, chunk_statistics[chunk_statistics["weight"] > 0])
    chosen, keys = _candidates(rows, index, len(occurring), state)
    # The sort is stable, so rows with equal keys stay in row order.
    order = np.lexsort((keys, labels[chosen]))
    chosen, keys = chosen[order], keys[order]
    drawn = merged_order(labels[chosen], keys, chosen, len(chosen), state.share, state.n_per_label)
    chosen = chosen[drawn]
    sample = np.empty(len(chosen), _sample_dtype(p))
    sample["label"], sample["key"] = labels[chosen], keys[drawn]
    sample["row"] = rows.numbers(chosen)
    sample["x"] = features.x[chosen]
    return {"statistics": statistics, "sample": sample}, _to_store(labeled, state.row_labels)


def _sample_finalize(partial: Partial, state: LabelSampleRequest) -> LabelSample:
    statistics = partial["statistics"]
    return LabelSample(
        statistics["label"],
        statistics["weight"],
        statistics["moments"].transpose(1, 0, 2),
        statistics["bounds"].transpose(1, 0, 2),
        statistics["missing"],
        partial["sample"],
        state.share,
    )


#: Moments and ranges of each label that occurs, and a sample of its rows.
LABEL_SAMPLE = Reduction(
    "label-sample", _sample_fields, _sample_block, _sample_finalize, carries=True
)


@dataclass(frozen=True)
class CenterDistances:
    """Centers of the clusters, and how distances to them are measured.

    `centers` (k, q) are in the space to which `metric` maps rows, and NaN if they are unknown.
    `weights` (q,) are factors of squared differences.  `is_of_labels` is True if the model used
    the same distances for the labels.
    """

    centers: Floats
    weights: Floats | None = None
    metric: Callable[[Array], Array] | None = None
    is_of_labels: bool = False

    def squared(self, x: Array, index: Ints, n_features: int) -> Floats:
        """Return squared distances of rows to their centers, computed from observed values."""
        if self.metric is None:
            return distances_to_centers(x, index, self.centers, self.weights)
        out = np.empty(len(x))
        for start in range(0, len(x), SEGMENT):
            segment = slice(start, start + SEGMENT)
            z = np.ascontiguousarray(self.metric(x[segment, :n_features]))
            out[segment] = distances_to_centers(z, index[segment], self.centers, self.weights)
        return out


@dataclass(frozen=True)
class HistogramsRequest:
    """State of the pass that computes histograms and the rows nearest to centers.

    Weights must be whole numbers, and `total` is an upper bound of their sum.
    """

    labels: Ints
    bins: Bins
    center_distances: CenterDistances
    n_nearest: int
    total: float
    row_labels: RowLabels = None


class Histograms(NamedTuple):
    """Histograms (p, k, bins), and distance (``key``) and number (``row``) of the nearest rows."""

    counts: Floats
    nearest: Array


def _zeros(shape: tuple[int, ...], dtype: Any) -> Array:
    return np.broadcast_to(np.zeros((), dtype), shape)


def _add(a: Array, b: Array) -> Array:
    # Histograms are large.  Strides of 0 mark empty histograms, which need not be added.
    if not any(a.strides):
        return b
    return a + b if any(b.strides) else a


#: Sum of whole numbers, which is exact in any order.
_SUM_OF_COUNTS = Merge("tally", _zeros, _add)


def _count_dtype(state: HistogramsRequest) -> Any:
    # A histogram is added for each block, so a smaller type saves time.
    return np.uint32 if state.total < 2**32 else np.float64


def _histogram_fields(state: HistogramsRequest) -> Mapping[str, Field]:
    k, p = len(state.labels), len(state.bins.edges)
    return {
        "counts": Field((p, k, state.bins.count), _SUM_OF_COUNTS, _count_dtype(state)),
        "nearest": Field((k, state.n_nearest), "top", top_dtype(0)),
    }


def _histogram_block(
    rows: RowBlock, state: HistogramsRequest, stored: _Labeled | None
) -> tuple[Partial, _Labeled | None]:
    k = len(state.labels)
    features, labeled = _split(rows, state.row_labels, stored)
    labels, squared = labeled
    index = _positions(labels, state.labels)
    if rows.weight is not None:
        index[rows.weight <= 0] = -1
    nearest = _histogram_fields(state)["nearest"].identity()
    if squared is None or not state.center_distances.is_of_labels:
        squared = state.center_distances.squared(rows.x, index, features.x.shape[1])
    positions = smallest_of_each(squared, index, k, state.n_nearest)
    present = positions >= 0
    nearest["key"][present] = squared[positions[present]]
    nearest["row"][present] = rows.numbers(positions[present])
    counts = fill_histograms(rows.x, index, rows.weight, k, state.bins, _count_dtype(state))
    return {"counts": counts, "nearest": nearest}, _to_store(labeled, state.row_labels)


def _histogram_finalize(partial: Partial, state: HistogramsRequest) -> Histograms:
    nearest: Any = partial["nearest"].copy()
    nearest["key"] = np.sqrt(nearest["key"])
    return Histograms(partial["counts"].astype(np.float64), nearest)


#: Histograms of every feature by label, and the rows nearest to each center.
LABEL_HISTOGRAMS = Reduction(
    "label-histograms",
    _histogram_fields,
    _histogram_block,
    _histogram_finalize,
    carries=True,
)
