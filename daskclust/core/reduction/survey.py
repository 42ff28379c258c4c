"""First pass over the data: checks of values, ranges, moments, and drawn rows.

If NaN is a missing value, the statistics use the observed values.  A block without missing values
is processed in the same way in both cases, so complete data give equal bits.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Bools, Floats, Ints
from daskclust.core.kernels.compensated import add_stacked
from daskclust.core.kernels.missing_values import find_gaps, row_hash
from daskclust.core.kernels.moments import (
    block_moments,
    class_moments,
    first_nonfinite,
    merge_moments,
)
from daskclust.core.kernels.rng import race_keys, smallest
from daskclust.core.kernels.sparse import dense, largest_values
from daskclust.core.reduction.assign import ClusterStatistics
from daskclust.core.reduction.contract import Field, Partial, Reduction, RowBlock, top_dtype

#: Row number that means no row.
NO_ROW = np.iinfo(np.int64).max


@dataclass(frozen=True)
class RowLabels:
    """Class codes in [0, n_classes) of rows, given by ascending and distinct global numbers."""

    rows: Ints
    codes: NDArray[np.int32]
    n_classes: int

    def by_chunk(self, rows: RowBlock) -> list[tuple[Ints, NDArray[np.int32]]]:
        """Return positions in the block, and codes, of the labeled rows of each chunk."""
        labeled, offset = [], 0
        for start, size in rows.runs:
            first, last = np.searchsorted(self.rows, [start, start + size])
            labeled.append((self.rows[first:last] - (start - offset), self.codes[first:last]))
            offset += size
        return labeled


@dataclass(frozen=True)
class ClassStatistics:
    """Weight, mean and scatter of the labeled rows of each class.

    `weight` and `scatter` are (n_classes,), `mean` and `masses` (n_classes, p).  `mean` is 0 for a
    class without weight.  `scatter` is the sum of weighted squared distances to the mean.  `masses`
    are the weights of the values of each feature, None if no value is missing.
    """

    weight: Floats
    mean: Floats
    scatter: Floats
    first_weightless: int | None = None
    masses: Floats | None = None

    def filled(self, values: Floats) -> Floats:
        """Return the means of the classes, with `values` for missing means."""
        return self.mean if self.masses is None else np.where(self.masses > 0, self.mean, values)

    def joined(self, stats: ClusterStatistics, centers: Floats) -> ClusterStatistics:
        """Add the rows of class c to the statistics of cluster c, for centers (r, k, p)."""
        n = len(self.weight)
        sums, counts, inertia = stats.sums.copy(), stats.counts.copy(), stats.inertia.copy()
        counts[:, :n] += self.weight
        value_weight = self.weight[:, None] if self.masses is None else self.masses
        sums[:, :n] += value_weight * self.mean
        squares = (self.mean - centers[:, :n]) ** 2
        if self.masses is None:
            inertia[:, :n] += self.scatter + self.weight * squares.sum(axis=-1)
        else:
            inertia[:, :n] += self.scatter + (self.masses * squares).sum(axis=-1)
        masses = stats.masses
        if masses is not None:
            masses = masses.copy()
            masses[:, :n] += value_weight
        return ClusterStatistics(sums, counts, inertia, masses)


def add_classes(
    partial: Partial,
    rows: RowBlock,
    weight: Floats | None,
    labels: RowLabels | None,
    *,
    empty: Bools | None = None,
) -> None:
    """Add the labeled rows of a block to a partial, in place; `empty` rows have weight 0."""
    if labels is None:
        return
    absent = empty
    if weight is not None:
        absent = weight == 0 if empty is None else empty | (weight == 0)
    for positions, codes in labels.by_chunk(rows):
        if not len(positions):
            continue
        statistics = class_moments(
            rows.x, positions, codes, weight, labels.n_classes, missing=empty is not None
        )
        sums = partial["class_sums"]
        partial["class_sums"] = add_stacked(sums, np.stack([statistics.hi, statistics.lo]))
        partial["class_moments"] = merge_moments(partial["class_moments"], statistics.moments)
        if absent is not None:
            first = np.min(rows.numbers(positions[absent[positions]]), initial=NO_ROW)
            partial["first_weightless"] = np.minimum(partial["first_weightless"], first)


#: Range of weights whose inverses and sums do not overflow float64.
LIGHTEST, HEAVIEST = 1e-140, 1e140
#: Maximum magnitude of a value. Sums of squares of larger values may overflow.
LARGEST_VALUE = 1e140
#: Logarithm of the maximum product of a weight and a squared value.
LOG_LARGEST = float(np.log(1e300))


@dataclass(frozen=True)
class SurveyRequest:
    """State of the first pass.

    `n_picks` rows are drawn by weight for each seed, but not labeled rows.  Moments of the classes
    are computed from `labels`.  With `hashed`, a hash identifies the data later.  For rows in
    memory, it takes half as long as the rest of the pass.
    """

    n_features: int
    seeds: tuple[int, ...] = ()
    n_picks: int = 0
    labels: RowLabels | None = None
    hashed: bool = False


@dataclass(frozen=True)
class Survey:
    """Result of the first pass.  Statistics are weighted, so rows of weight 0 do not count.

    `idle` (p,) are the largest absolute values of rows of weight 0, because these rows get labels,
    too; -inf without such rows.  `first_bad` is row and column of the first NaN or infinity.
    `bad_weight_row` is the first row whose weight is NaN, negative, or neither 0 nor between
    :data:`LIGHTEST` and :data:`HEAVIEST`.  `picks` (n_seeds, n_picks) are the drawn rows, ``row ==
    -1`` for none.  `hash` is None if it was not requested.  `n_incomplete` is the number of rows
    with missing values.
    """

    weight: float
    mean: Floats
    variance: Floats
    low: Floats
    high: Floats
    idle: Floats
    first_bad: tuple[int, int] | None
    bad_is_nan: bool
    bad_weight_row: int | None
    picks: Array
    classes: ClassStatistics
    hash: int | None
    n_incomplete: int = field(default=0, kw_only=True)


def pick_rows(
    rows: RowBlock, keys: Floats, count: int, positions: NDArray[np.intp] | None = None
) -> Array:
    """Return records (count,) of the rows with the smallest finite keys, and empty records.

    `keys` belong to the rows at `positions` (ascending), or to all rows.
    """
    chosen = smallest(keys, count)
    out: Array = Field((count,), "top", top_dtype(rows.x.shape[1])).identity()
    out["key"][: len(chosen)] = keys[chosen]
    if positions is not None:
        chosen = positions[chosen]
    out["row"][: len(chosen)] = rows.numbers(chosen)
    out["x"][: len(chosen)] = dense(rows.x[chosen])
    return out


@functools.lru_cache
def _fields_of(
    p: int, picks: tuple[int, int], n_classes: int, hashed: bool, missing: bool
) -> Mapping[str, Field]:
    missing_fields = {
        "rows": Field((3,), "count", np.int64),
        "first_unobserved": Field((), "min", np.int64),
    }
    return {
        **({"hash": Field((1,), "count", np.uint64)} if hashed else {}),
        "sums": Field((2, 2 * p + 2 if missing else p + 1)),
        "moments": Field((3, p), "moments"),
        "low": Field((p,), "min"),
        "high": Field((p,), "max"),
        "idle": Field((p,), "max"),
        # Row and column packed into one integer would overflow, so the key is the row.
        "bad": Field((1,), "top", top_dtype(1)),
        "bad_weight": Field((), "min", np.int64),
        "picks": Field(picks, "top", top_dtype(p)),
        # The moments of each class, and the weights of its values if some are missing.
        "class_sums": Field((2, n_classes, 2 * p + 1 if missing else p + 1)),
        "class_moments": Field((3, n_classes, p), "moments"),
        "first_weightless": Field((), "min", np.int64),
        **(missing_fields if missing else {}),
    }


def usable_weight(rows: RowBlock, partial: Partial) -> Floats | None:
    """Return the weights, with 0 for invalid weights; write findings into the partial."""
    weight = rows.weight
    if weight is None:
        return None
    # Comparisons with NaN are False.
    usable = (weight == 0) | ((weight >= LIGHTEST) & (weight <= HEAVIEST))
    if not usable.all():
        partial["bad_weight"] = rows.numbers(np.flatnonzero(~usable)[:1])[0].reshape(())
        weight = np.where(usable, weight, 0.0)
    if not weight.all():
        partial["idle"] = largest_values(rows.x[weight == 0])
    return weight


def note_bad(partial: Partial, rows: RowBlock, row: int, code: int) -> None:
    partial["bad"]["row"] = rows.numbers(np.array([row]))
    partial["bad"]["key"] = partial["bad"]["row"]
    partial["bad"]["x"] = code


def draw_picks(partial: Partial, rows: RowBlock, state: SurveyRequest, mass: Floats) -> None:
    """Draw rows with probability proportional to their mass; labeled rows are not drawn."""
    if state.labels is not None:
        mass = mass.copy()
        for positions, _ in state.labels.by_chunk(rows):
            mass[positions] = 0.0
    for r, seed in enumerate(state.seeds):
        keys = race_keys(rows.uniforms(seed, 0), mass)
        partial["picks"][r] = pick_rows(rows, keys, state.n_picks)


def _fields(state: SurveyRequest, missing: bool = False) -> Mapping[str, Field]:
    n_classes = 0 if state.labels is None else state.labels.n_classes
    picks = len(state.seeds), state.n_picks
    return _fields_of(state.n_features, picks, n_classes, state.hashed, missing)


def _block(rows: RowBlock, state: SurveyRequest) -> Partial:
    x = rows.x
    partial = {name: field.identity() for name, field in _fields(state).items()}
    weight = usable_weight(rows, partial)
    statistics = block_moments(x, weight, rows.segments())
    partial["sums"] = np.stack([statistics.hi, statistics.lo])
    partial["moments"] = statistics.moments
    partial["low"], partial["high"] = statistics.low, statistics.high
    if not statistics.finite:
        row, column = first_nonfinite(x)
        # The sign of the column number distinguishes NaN and infinity.
        is_nan = np.isnan(dense(x[row : row + 1])[0, column])
        note_bad(partial, rows, row, -column - 1 if is_nan else column + 1)
        return partial
    if state.hashed:
        partial["hash"] = np.array([row_hash(x, rows.weight, rows.runs)])
    add_classes(partial, rows, weight, state.labels)
    if state.n_picks:
        draw_picks(partial, rows, state, np.ones(len(x)) if weight is None else weight)
    return partial


@dataclass(frozen=True)
class PartialSurvey(Survey):
    """Result of the first pass over the observed values, whose weight is `observed` (p,).

    Rows may have missing values or no values.  `informed` is the weight of
    the rows with values, and `n_informed` the number of these rows with positive weight.
    """

    observed: Floats
    n_unobserved: int
    first_unobserved: int | None
    informed: float
    n_informed: int


_partial_fields = functools.partial(_fields, missing=True)


def _partial_block(rows: RowBlock, state: SurveyRequest) -> Partial:
    # Chunk by chunk, so that the result does not depend on how chunks were joined.
    chunks = [
        RowBlock(
            rows.x[chunk_slice], None if rows.weight is None else rows.weight[chunk_slice], (run,)
        )
        for chunk_slice, run in zip(rows.slices(), rows.runs, strict=True)
    ]
    parts = [_partial_chunk(chunk, state) for chunk in chunks]
    return functools.reduce(lambda a, b: PARTIAL_SURVEY.combine(a, b, state), parts)


def _partial_chunk(rows: RowBlock, state: SurveyRequest) -> Partial:
    x, p = rows.x, state.n_features
    partial = {name: field.identity() for name, field in _partial_fields(state).items()}
    weight = usable_weight(rows, partial)
    missing, row, column = find_gaps(x)
    if row >= 0:
        note_bad(partial, rows, row, column + 1)
        return partial
    if state.hashed:
        partial["hash"] = np.array([row_hash(x, rows.weight, rows.runs)])
    incomplete, unobserved = missing > 0, missing == p
    statistics = block_moments(x, weight, rows.segments(), missing=bool(incomplete.any()))
    sums = np.stack([statistics.hi, statistics.lo])
    if not incomplete.any():
        masses = np.repeat(sums[:, p:], p, axis=1)
        sums = np.concatenate([sums[:, :p], masses, sums[:, p:], np.zeros((2, 1))], axis=1)
    mass = np.ones(len(x)) if weight is None else weight
    # The weight of the rows with values replaces the last sum.
    sums[:, -1] = sums[:, -2] if not unobserved.any() else (mass[~unobserved].sum(), 0.0)
    partial["sums"], partial["moments"] = sums, statistics.moments
    partial["low"], partial["high"] = statistics.low, statistics.high
    partial["rows"] = np.array(
        [incomplete.sum(), unobserved.sum(), (~unobserved & (mass > 0)).sum()]
    )
    if unobserved.any():
        first = rows.numbers(np.flatnonzero(unobserved)[:1])[0]
        partial["first_unobserved"] = np.asarray(first).reshape(())
    add_classes(partial, rows, weight, state.labels, empty=unobserved)
    if state.n_picks:
        draw_picks(partial, rows, state, np.where(unobserved, 0.0, mass))
    return partial


def _finalize(partial: Partial, state: SurveyRequest) -> Survey:
    p, has_missing = state.n_features, "rows" in partial
    # The sums of each feature are followed by the weight of the rows; with missing values, the
    # weight of each feature's values comes in between.
    sums, (weight, _, squares) = partial["sums"][0], partial["moments"]
    observed, total = (sums[p : 2 * p], sums[2 * p]) if has_missing else (sums[p:], sums[p])
    with np.errstate(invalid="ignore", divide="ignore"):
        mean, variance = sums[:p] / observed, squares / weight
    class_sums, masses, mass = np.split(partial["class_sums"][0], [p, -1], axis=1)
    of_values = masses if has_missing else mass
    bad, weightless = partial["bad"][0], int(partial["bad_weight"])
    first = int(partial["first_weightless"])
    # The number of the column, counted from 1; negative for NaN.
    code = int(bad["x"][0])
    results: dict[str, Any] = {
        "weight": float(total),
        "mean": mean,
        "variance": variance,
        "low": partial["low"],
        "high": partial["high"],
        "idle": partial["idle"],
        "first_bad": None if bad["row"] < 0 else (int(bad["row"]), abs(code) - 1),
        "bad_is_nan": code < 0,
        "bad_weight_row": None if weightless == NO_ROW else weightless,
        "picks": partial["picks"],
        "classes": ClassStatistics(
            weight=mass[:, 0],
            mean=np.divide(
                class_sums, of_values, out=np.zeros_like(class_sums), where=of_values > 0
            ),
            scatter=partial["class_moments"][2].sum(axis=1),
            first_weightless=None if first == NO_ROW else first,
            masses=None if (masses == mass).all() else masses,
        ),
        "hash": int(partial["hash"][0]) if "hash" in partial else None,
    }
    if not has_missing:
        return Survey(**results)
    n_incomplete, n_unobserved, n_informed = partial["rows"].tolist()
    first = int(partial["first_unobserved"])
    return PartialSurvey(
        **results,
        observed=observed,
        n_incomplete=n_incomplete,
        n_unobserved=n_unobserved,
        first_unobserved=None if first == NO_ROW else first,
        informed=float(sums[2 * p + 1]),
        n_informed=n_informed,
    )


#: Check of the values, and their range; for complete rows.
SURVEY = Reduction("survey", _fields, _block, _finalize)
#: Check and range of the observed values, initial rows, and the classes of labeled rows.
PARTIAL_SURVEY = Reduction("partial-survey", _partial_fields, _partial_block, _finalize)
