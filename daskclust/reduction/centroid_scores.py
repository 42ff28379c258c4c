"""The pass behind centroid-based scores: how rows lie about their own and the next center."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from daskclust._types import Bools, Floats, Ints
from daskclust.kernels.compensated import sum_terms
from daskclust.kernels.moments import own_and_other
from daskclust.kernels.nearest.assign import nearest
from daskclust.reduction.contract import Field, Partial, Reduction, RowBlock

_NO_ROW = np.iinfo(np.int64).max


@dataclass(frozen=True)
class SpreadRequest:
    """Ask how rows lie about centers.

    `centers` (k, p). `labels` (k,), int64: label that each center stands for, sorted; the last
    column of the rows then holds their labels.  When omitted, each row belongs to its nearest
    center. `ignored`: label of rows that are left out. `feature_weights` (p,): of the squared
    distance.
    """

    centers: Floats
    labels: Ints | None = None
    ignored: int | None = None
    feature_weights: Floats | None = None


class Spread(NamedTuple):
    """The result of the pass; arrays of shape (k,), float64."""

    weights: Floats
    rows: Floats
    distances: Floats
    squares: Floats
    silhouettes: Floats
    silhouette_squares: Floats
    stray_row: int | None

    def of(self, clusters: Bools) -> Spread:
        """Return the same of some clusters only."""
        kept = {name: part[clusters] for name, part in self._asdict().items() if name in _SUMS}
        return self._replace(**kept)


_SUMS = Spread._fields[:-1]


def split_labels(rows: RowBlock) -> tuple[RowBlock, Ints]:
    """Take apart rows whose last column holds their labels."""
    x = np.ascontiguousarray(rows.x[:, :-1])
    return RowBlock(x, rows.weight, rows.runs), rows.x[:, -1].astype(np.int64)


def _fields(state: SpreadRequest) -> Mapping[str, Field]:
    return {
        "spread": Field((2, len(_SUMS), len(state.centers))),
        "stray": Field((), "min", np.int64),
    }


def _block(rows: RowBlock, state: SpreadRequest) -> Partial:
    k = len(state.centers)
    partial = {name: field.identity() for name, field in _fields(state).items()}
    if state.labels is None:
        index: Ints = nearest(rows.x, state.centers, feature_weights=state.feature_weights)[
            0
        ].astype(np.int64)
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
    # Without another center there is no silhouette.
    score[~np.isfinite(b)] = 0.0
    values = np.stack([np.ones(len(a)), np.zeros(len(a)), a, own, score, score**2])
    # Values in a row of weight 0 must not matter, NaN included.
    values = np.where(weight > 0, values, 0.0) * weight
    # A small weight says what a row counts, not that there is less than a row.
    values[1] = np.where(weight > 0, np.maximum(weight, 1.0), 0.0)
    terms = [
        np.stack([np.bincount(index[s], v[s], k).astype(np.float64) for v in values])
        for s in rows.slices()
    ]
    partial["spread"] = sum_terms(terms)
    return partial


def _finalize(partial: Partial, state: SpreadRequest) -> Spread:
    row = int(partial["stray"])
    sums = dict(zip(_SUMS, partial["spread"][0], strict=True))
    return Spread(**sums, stray_row=None if row == _NO_ROW else row)


#: Distances and silhouettes of all rows about given centers, by cluster.
SPREAD = Reduction("spread", _fields, _block, _finalize)
