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
    fill_histograms,
    label_counts,
    label_places,
    merged_order,
    own_squared,
    smallest_of_each,
    value_moments,
)

#: Labels that are further apart are sorted, not counted.
_FAR = 2**16


#: Labels of all rows, or a function that labels the rows of a chunk, by the number of its first
#: row, and says how far they are from their centers, squared.
LabelsOfRows = Ints | Callable[[Array, int], tuple[Array, Floats]] | None
#: Labels of a block and squared distances, as far as these are known.
_Labeled = tuple[Array, Floats | None]


@dataclass(frozen=True)
class LabelSampleRequest:
    """Ask for the moments of each label, and for a sample of the rows.

    A `share` of the rows is drawn, and of each label at least `each`. Labels are in one more, last
    column, or `of_rows`: those of all rows, or ``of_rows(x, start)``, carried to the second pass.
    """

    n_features: int
    seed: int
    share: float
    each: int
    ignored: int | None = None
    of_rows: LabelsOfRows = None


class LabelSample(NamedTuple):
    """The result of the first pass, for the m labels that occur, sorted.

    `moments` (3, m, p): weight, mean and squared deviations of the values that are there. `bounds`
    (2, m, p), `missing` (m, p). `rows` of the sample (``label``, ``key``, ``row``, ``x``), drawn
    whatever their label up to a key of `share`. `held`: labels that blocks keep.
    """

    labels: Ints
    weights: Floats
    moments: Floats
    bounds: Floats
    missing: Floats
    rows: Array
    share: float
    held: Any = None


def _facts_dtype(p: int) -> np.dtype:
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


def _merge_facts(a: Array, b: Array) -> Array:
    if not len(a) or not len(b):
        return b if not len(a) else a
    labels = np.union1d(a["label"], b["label"])
    out: Any = np.zeros(len(labels), a.dtype)
    out["label"] = labels
    out["bounds"] = np.array([np.inf, -np.inf])[:, None]
    for part in (a, b):
        at = np.searchsorted(labels, part["label"])
        joined = merge_moments(
            out["moments"][at].transpose(1, 0, 2), part["moments"].transpose(1, 0, 2)
        )
        out["moments"][at] = joined.transpose(1, 0, 2)
        out["weight"][at] += part["weight"]
        out["missing"][at] += part["missing"]
        low, high = out["bounds"][at].transpose(1, 0, 2)
        out["bounds"][at] = np.stack(
            [np.minimum(low, part["bounds"][:, 0]), np.maximum(high, part["bounds"][:, 1])], axis=1
        )
    return out


def _merge_samples(a: Array, b: Array, *, share: float, each: int) -> Array:
    if not len(a) or not len(b):
        return b if not len(a) else a
    labels, keys, rows = (np.concatenate([a[name], b[name]]) for name in ("label", "key", "row"))
    kept = merged_order(labels, keys, rows, len(a), share, each)
    # Rows are wide: they are moved once.
    out, first = np.empty(len(kept), a.dtype), kept < len(a)
    out[first], out[~first] = a[kept[first]], b[kept[~first] - len(a)]
    return out


_FACTS = Merge("facts by label", np.zeros, _merge_facts)


def _sample_fields(state: LabelSampleRequest) -> Mapping[str, Field]:
    p = state.n_features
    keep = partial(_merge_samples, share=state.share, each=state.each)
    return {
        "facts": Field((None,), _FACTS, _facts_dtype(p)),
        "sample": Field((None,), Merge("sample by label", np.zeros, keep), _sample_dtype(p)),
    }


def _split(
    rows: RowBlock, of_rows: LabelsOfRows, held: _Labeled | None
) -> tuple[RowBlock, _Labeled]:
    """Take apart rows whose last column holds their labels, without a copy of the rest."""
    if of_rows is None:
        return rows._replace(x=rows.x[:, :-1]), (rows.x[:, -1].astype(np.int64), None)
    if held is not None:
        return rows, held
    if not callable(of_rows):
        parts = [of_rows[start : start + size] for start, size in rows.runs]
        return rows, (np.concatenate(parts), None)
    found = [
        of_rows(rows.x[part], start)
        for (start, _), part in zip(rows.runs, rows.slices(), strict=True)
    ]
    if len(found) == 1:
        return rows, found[0]
    labels, squared = zip(*found, strict=True)
    return rows, (np.concatenate(labels), np.concatenate(squared))


def _kept(found: _Labeled, of_rows: LabelsOfRows) -> _Labeled | None:
    return found if callable(of_rows) else None


def _occurring(labels: Ints) -> Ints:
    low, high = (int(labels.min()), int(labels.max())) if len(labels) else (0, _FAR)
    if high - low >= _FAR:
        return np.unique(labels)
    return np.flatnonzero(label_counts(labels, low, high)) + low


def _places(labels: Ints, known: Ints) -> Array:
    """Places of labels among known, sorted ones, int32; -1 for others."""
    if not len(known):
        return np.full(len(labels), -1, np.int32)
    if known[-1] - known[0] >= _FAR:
        index = np.minimum(np.searchsorted(known, labels), len(known) - 1)
        return np.where(known[index] == labels, index, -1).astype(np.int32)
    return label_places(labels, known)


def _check_finite(rows: RowBlock, x: Array, index: Ints) -> None:
    wrong = np.isinf(x) & (index >= 0)[:, None]
    if rows.weight is not None:
        wrong &= (rows.weight > 0)[:, None]
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        number = int(rows.numbers(np.array([row]))[0])
        raise ValueError(
            f"Input X contains {x[row, column]} at row {number}, column {column}; profiles need "
            "finite values, NaN where one is missing. Mask it."
        )


def _drawn(rows: RowBlock, index: Ints, k: int, state: LabelSampleRequest) -> tuple[Ints, Floats]:
    """Places and keys of rows that may be among those drawn: all of them, and few others."""
    counts = label_counts(index, -1, k - 1)[1:]
    # Twice as many as are wanted, mostly enough of each label; else all of it.
    limits = np.append(np.maximum(2.0 * state.each / np.maximum(counts, 1), state.share), -1.0)
    near, keys = low_draws(state.seed, rows.runs, index, limits)
    short = np.bincount(index[near], minlength=k) < np.minimum(counts, state.each)
    if short.any():
        limits[:-1][short] = 1.0
        near, keys = low_draws(state.seed, rows.runs, index, limits)
    return near, keys


def _sample_block(
    rows: RowBlock, state: LabelSampleRequest, held: _Labeled | None
) -> tuple[Partial, _Labeled | None]:
    p = state.n_features
    whole, labeled = _split(rows, state.of_rows, held)
    labels = labeled[0]
    counting = np.ones(len(labels), bool) if rows.weight is None else rows.weight > 0
    if state.ignored is not None:
        counting &= labels != state.ignored
    every = bool(counting.all())
    found = _occurring(labels if every else labels[counting])
    index = _places(labels, found)
    if not every:
        index[~counting] = -1
    fields = _sample_fields(state)
    facts = fields["facts"].identity()
    for part in rows.slices():
        own = None if rows.weight is None else rows.weight[part]
        weight, moments, bounds, missing = value_moments(
            rows.x[part], index[part], own, len(found), n_features=p
        )
        made = np.zeros(len(found), _facts_dtype(p))
        made["label"] = found
        made["moments"], made["bounds"] = moments.transpose(1, 0, 2), bounds.transpose(1, 0, 2)
        made["weight"], made["missing"] = weight, missing
        if not np.isfinite(moments).all() or np.isinf(bounds[:, moments[0] > 0]).any():
            _check_finite(rows, whole.x, index)
            raise ValueError(
                "X has values whose squares overflow. Mask such values if they stand for missing "
                "data, else rescale X."
            )
        facts = _merge_facts(facts, made[made["weight"] > 0])
    chosen, keys = _drawn(rows, index, len(found), state)
    # Rows are drawn in their order: equal keys stay in it.
    order = np.lexsort((keys, labels[chosen]))
    chosen, keys = chosen[order], keys[order]
    kept = merged_order(labels[chosen], keys, chosen, len(chosen), state.share, state.each)
    chosen = chosen[kept]
    sample = np.empty(len(chosen), _sample_dtype(p))
    sample["label"], sample["key"] = labels[chosen], keys[kept]
    sample["row"] = rows.numbers(chosen)
    sample["x"] = whole.x[chosen]
    return {"facts": facts, "sample": sample}, _kept(labeled, state.of_rows)


def _sample_finalize(partial: Partial, state: LabelSampleRequest) -> LabelSample:
    facts = partial["facts"]
    return LabelSample(
        facts["label"],
        facts["weight"],
        facts["moments"].transpose(1, 0, 2),
        facts["bounds"].transpose(1, 0, 2),
        facts["missing"],
        partial["sample"],
        state.share,
    )


#: Moments, ranges and a sample of the rows of each label that occurs.
LABEL_SAMPLE = Reduction(
    "label-sample", _sample_fields, _sample_block, _sample_finalize, carries=True
)


@dataclass(frozen=True)
class Place:
    """Where clusters lie in the space of the `metric`: `centers` (k, q), NaN for none.

    `weights` (q,) are of the squared distance; `is_of_labels`: labels were found by the same.
    """

    centers: Floats
    weights: Floats | None = None
    metric: Callable[[Array], Array] | None = None
    is_of_labels: bool = False

    def squared(self, x: Array, index: Ints, n_features: int) -> Floats:
        """Squared distances of rows to their own centers, over what they observe of features."""
        if self.metric is None:
            return own_squared(x, index, self.centers, self.weights)
        out = np.empty(len(x))
        for start in range(0, len(x), SEGMENT):
            part = slice(start, start + SEGMENT)
            z = np.ascontiguousarray(self.metric(x[part, :n_features]))
            out[part] = own_squared(z, index[part], self.centers, self.weights)
        return out


@dataclass(frozen=True)
class HistogramsRequest:
    """Ask for the histograms of each of `labels` (sorted), and for its rows nearest to its center.

    Weights are whole numbers, `total` at least that of all rows.
    """

    labels: Ints
    bins: Bins
    place: Place
    n_nearest: int
    total: float
    of_rows: LabelsOfRows = None


class Histograms(NamedTuple):
    """`counts` (p, k, bins); `nearest` (k, n_nearest): distance (``key``) and number (``row``)."""

    counts: Floats
    nearest: Array


def _nothing(shape: tuple[int, ...], dtype: Any) -> Array:
    return np.broadcast_to(np.zeros((), dtype), shape)


def _add(a: Array, b: Array) -> Array:
    # Histograms are long: a sum with nothing, which has no strides, is spared.
    if not any(a.strides):
        return b
    return a + b if any(b.strides) else a


#: Weights of rows: whole numbers are summed exactly in any order.
_TALLY = Merge("tally", _nothing, _add)


def _count_dtype(state: HistogramsRequest) -> Any:
    # Half as long where they suffice: histograms are added for each block.
    return np.uint32 if state.total < 2**32 else np.float64


def _histogram_fields(state: HistogramsRequest) -> Mapping[str, Field]:
    k, p = len(state.labels), len(state.bins.edges)
    return {
        "counts": Field((p, k, state.bins.count), _TALLY, _count_dtype(state)),
        "nearest": Field((k, state.n_nearest), "top", top_dtype(0)),
    }


def _histogram_block(
    rows: RowBlock, state: HistogramsRequest, held: _Labeled | None
) -> tuple[Partial, _Labeled | None]:
    k = len(state.labels)
    whole, labeled = _split(rows, state.of_rows, held)
    labels, squared = labeled
    index = _places(labels, state.labels)
    if rows.weight is not None:
        index[rows.weight <= 0] = -1
    nearest = _histogram_fields(state)["nearest"].identity()
    if squared is None or not state.place.is_of_labels:
        squared = state.place.squared(rows.x, index, whole.x.shape[1])
    places = smallest_of_each(squared, index, k, state.n_nearest)
    there = places >= 0
    nearest["key"][there] = squared[places[there]]
    nearest["row"][there] = rows.numbers(places[there])
    counts = fill_histograms(rows.x, index, rows.weight, k, state.bins, _count_dtype(state))
    return {"counts": counts, "nearest": nearest}, _kept(labeled, state.of_rows)


def _histogram_finalize(partial: Partial, state: HistogramsRequest) -> Histograms:
    nearest: Any = partial["nearest"].copy()
    nearest["key"] = np.sqrt(nearest["key"])
    return Histograms(partial["counts"].astype(np.float64), nearest)


#: Histograms of every feature by label, and the rows nearest to the center of each.
LABEL_HISTOGRAMS = Reduction(
    "label-histograms",
    _histogram_fields,
    _histogram_block,
    _histogram_finalize,
    carries=True,
)
