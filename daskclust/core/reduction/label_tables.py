"""Passes whose partials are tables of labels, or of pairs of labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from daskclust.core.array_types import Array, Bools, Floats, Ints
from daskclust.core.kernels.compensated import sum_terms
from daskclust.core.kernels.moments import (
    LabelMoments,
    first_nonfinite,
    label_moments,
    merge_label_moments,
    own_and_other,
)
from daskclust.core.kernels.nearest.assign import nearest
from daskclust.core.kernels.pair_counts import count_label_pairs, merge_label_pairs
from daskclust.core.kernels.sparse import SparseRows, dense, split_last
from daskclust.core.reduction.contract import Field, Merge, Partial, Reduction, RowBlock
from daskclust.core.reduction.survey import HEAVIEST, LARGEST_VALUE, LIGHTEST, LOG_LARGEST, NO_ROW

Labeler = Callable[[Array], Array]


@dataclass(frozen=True)
class AgreementRequest:
    """State of the pass that computes contingency tables of labels in [0, n_labels)."""

    reference: Labeler
    others: tuple[Labeler, ...]
    n_labels: int


def _fields(state: AgreementRequest) -> Mapping[str, Field]:
    return {"tables": Field((2, len(state.others), state.n_labels, state.n_labels))}


def _block(rows: RowBlock, state: AgreementRequest) -> Partial:
    k = state.n_labels
    if not len(rows.x):
        return {"tables": np.zeros((2, len(state.others), k, k))}
    reference_labels = state.reference(rows.x).astype(np.int64)
    pairs = [reference_labels * k + labeler(rows.x) for labeler in state.others]
    weight = np.ones(len(rows.x)) if rows.weight is None else rows.weight
    # Chunks are summed separately, so that sums do not depend on joining chunks.
    tables = [
        np.array(
            [np.bincount(pair_codes[chunk], weight[chunk], k * k) for pair_codes in pairs],
            dtype=np.float64,
        )
        for chunk in rows.slices()
    ]
    return {"tables": sum_terms([table.reshape(-1, k, k) for table in tables])}


def _finalize(partial: Partial, state: AgreementRequest) -> Floats:
    tables: Floats = partial["tables"].sum(axis=0)
    return tables


#: Weight of the rows by reference label (rows of the table) and other label (columns).
AGREEMENT = Reduction("agreement", _fields, _block, _finalize)


_COUNTS = Merge("counts", np.empty, merge_label_pairs)


def _count_fields(state: None) -> Mapping[str, Field]:
    return {"table": Field((None, 3), _COUNTS, np.int64)}


def _count(rows: RowBlock, state: None) -> Partial:
    pairs = rows.x[:, :2]
    if rows.weight is not None:
        if (rows.weight != np.floor(rows.weight)).any():
            raise ValueError("Weights of label pairs must be integers, because pairs are counted.")
        pairs = np.repeat(pairs, rows.weight.astype(np.int64), axis=0)
    return {"table": count_label_pairs(*np.ascontiguousarray(pairs.T).astype(np.int64))}


def _table(partial: Partial, state: None) -> Ints:
    return partial["table"]


#: Number of occurrences of each pair of labels, from rows that are pairs.
CONTINGENCY = Reduction("contingency", _count_fields, _count, _table)


@dataclass(frozen=True)
class LabelMomentsRequest:
    """State of the pass for weight, mean and spread of each label, which is the last column."""

    n_features: int
    ignored: int | None = None


def _moments_dtype(p: int) -> np.dtype:
    """Return the record type of a label, with the fields of :class:`LabelMoments`."""
    return np.dtype(
        [
            ("label", np.int64),
            ("weight", np.float64),
            ("mean", np.float64, (p,)),
            ("square", np.float64),
            ("rows", np.float64),
        ]
    )


def _packed(moments: LabelMoments) -> Array:
    records = np.empty(len(moments.labels), _moments_dtype(moments.means.shape[1]))
    for name, values in zip(records.dtype.names or (), moments, strict=True):
        records[name] = values
    return records


def _unpacked(records: Array) -> LabelMoments:
    return LabelMoments(*(records[name] for name in records.dtype.names or ()))


def _add_moments(a: Array, b: Array) -> Array:
    return _packed(merge_label_moments([_unpacked(a), _unpacked(b)]))


_LABEL_MOMENTS = Merge("label moments", np.empty, _add_moments)


def _moments_fields(state: LabelMomentsRequest) -> Mapping[str, Field]:
    return {"moments": Field((None,), _LABEL_MOMENTS, _moments_dtype(state.n_features))}


def _counting_rows(rows: RowBlock, labels: Ints, ignored: int | None) -> Bools:
    """Return a mask of the rows that count; raise ValueError for the first invalid weight."""
    keep = np.ones(len(labels), bool) if ignored is None else labels != ignored
    if rows.weight is not None:
        w = rows.weight
        wrong = keep & ~((w == 0) | ((w >= LIGHTEST) & (w <= HEAVIEST)))
        if wrong.any():
            row = int(rows.numbers(np.flatnonzero(wrong)[:1])[0])
            raise ValueError(
                f"sample_weight must be finite, non-negative and not too small or large to be "
                f"summed, but the weight of row {row} is not. Divide the weights by their mean."
            )
        keep &= rows.weight > 0
    return keep


def _check_sizes(x: Any, weight: Floats | None) -> None:
    values = x.data if isinstance(x, SparseRows) else x
    if not values.size:
        return
    largest = float(max(values.max(), -values.min()))
    heaviest = 1.0 if weight is None else float(weight.max())
    # Logarithms, because the product would overflow.
    if largest > LARGEST_VALUE or (
        largest > 0 and np.log(heaviest) + 2 * np.log(largest) > LOG_LARGEST
    ):
        raise ValueError(
            f"X has absolute values up to {largest:.3g}, with weights up to {heaviest:.3g}; "
            "squared distances overflow. Mask such values if they stand for missing data, or "
            "rescale X."
        )


def _moments(rows: RowBlock, state: LabelMomentsRequest) -> Partial:
    labeled, labels = split_labels(rows)
    keep = _counting_rows(labeled, labels, state.ignored)
    x, weight, slices = labeled.x, labeled.weight, rows.slices()
    local = np.arange(len(labels))
    if not keep.all():
        local = np.flatnonzero(keep)
        x, labels = x[local], labels[local]
        weight = None if weight is None else weight[local]
        ends = [(chunk.start, chunk.stop) for chunk in slices]
        slices = [slice(*np.searchsorted(local, end)) for end in ends]
    row, column = first_nonfinite(x)
    if row >= 0:
        number, value = int(rows.numbers(local[[row]])[0]), dense(x[row : row + 1])[0, column]
        raise ValueError(
            f"X must contain finite values, got {value} at row {number}, column {column}. "
            "Label such rows -1 and use ignore_masked=True to exclude them."
        )
    _check_sizes(x, weight)
    merged: LabelMoments | None = None
    for chunk in slices:
        if chunk.stop > chunk.start:
            chunk_weight = None if weight is None else weight[chunk]
            chunk_moments = label_moments(x[chunk], labels[chunk], chunk_weight)
            merged = (
                chunk_moments if merged is None else merge_label_moments([merged, chunk_moments])
            )
    if merged is None:
        return {"moments": np.empty(0, _moments_dtype(state.n_features))}
    return {"moments": _packed(merged)}


def _finalize_moments(partial: Partial, state: LabelMomentsRequest) -> LabelMoments:
    return _unpacked(partial["moments"])


#: Weight, mean and spread of the rows of each label.
LABEL_MOMENTS = Reduction("label-moments", _moments_fields, _moments, _finalize_moments)


@dataclass(frozen=True)
class SpreadRequest:
    """State of the pass that measures the spread of rows around their centers.

    `labels` (k,) are the sorted labels of the centers, and the last column of the rows has the
    labels of the rows.  Without `labels`, the center of a row is the nearest center.
    """

    centers: Floats
    labels: Ints | None = None
    ignored: int | None = None
    feature_weights: Floats | None = None


class Spread(NamedTuple):
    """Spread of each cluster: arrays of shape (k,), float64."""

    weights: Floats
    rows: Floats
    distances: Floats
    squares: Floats
    silhouettes: Floats
    silhouette_squares: Floats
    stray_row: int | None

    def of(self, clusters: Bools) -> Spread:
        selected = {
            name: values[clusters] for name, values in self._asdict().items() if name in _SUMS
        }
        return self._replace(**selected)


_SUMS = Spread._fields[:-1]


def split_labels(rows: RowBlock) -> tuple[RowBlock, Ints]:
    x, labels = split_last(rows.x)
    return RowBlock(x, rows.weight, rows.runs), labels


def _score_fields(state: SpreadRequest) -> Mapping[str, Field]:
    return {
        "spread": Field((2, len(_SUMS), len(state.centers))),
        "stray": Field((), "min", np.int64),
    }


def _score_block(rows: RowBlock, state: SpreadRequest) -> Partial:
    k = len(state.centers)
    partial = {name: field.identity() for name, field in _score_fields(state).items()}
    if state.labels is None:
        assigned, _ = nearest(rows.x, state.centers, feature_weights=state.feature_weights)
        index: Ints = assigned.astype(np.int64)
        known = np.ones(len(index), bool)
    else:
        rows, labels = split_labels(rows)
        index = np.minimum(np.searchsorted(state.labels, labels), k - 1)
        known = state.labels[index] == labels
        stray = ~known if state.ignored is None else ~known & (labels != state.ignored)
        if rows.weight is not None:
            stray &= rows.weight != 0
        if stray.any():
            partial["stray"] = rows.numbers(np.flatnonzero(stray)[:1])[0].reshape(())
        if state.ignored is not None:
            known &= labels != state.ignored
    weight = known.astype(np.float64)
    if rows.weight is not None:
        weight = np.where(known, rows.weight, 0.0)
    own, other = own_and_other(rows.x, state.centers, index, state.feature_weights)
    a, b = np.sqrt(own), np.sqrt(other)
    larger = np.maximum(a, b)
    with np.errstate(invalid="ignore"):
        score = np.divide(b - a, larger, out=np.zeros(len(a)), where=larger > 0)
    # With a single center there is no silhouette.
    score[~np.isfinite(b)] = 0.0
    values = np.stack([np.ones(len(a)), np.zeros(len(a)), a, own, score, score**2])
    # Values of rows of weight 0 must not matter, including NaN.
    values = np.where(weight > 0, values, 0.0) * weight
    # A weight below 1 still counts as one row.
    values[1] = np.where(weight > 0, np.maximum(weight, 1.0), 0.0)
    terms = [
        np.stack([np.bincount(index[s], v[s], k).astype(np.float64) for v in values])
        for s in rows.slices()
    ]
    partial["spread"] = sum_terms(terms)
    return partial


def _score_finalize(partial: Partial, state: SpreadRequest) -> Spread:
    row = int(partial["stray"])
    sums = dict(zip(_SUMS, partial["spread"][0], strict=True))
    return Spread(**sums, stray_row=None if row == NO_ROW else row)


#: Distances and silhouettes of all rows about given centers, by cluster.
SPREAD = Reduction("spread", _score_fields, _score_block, _score_finalize)
