"""The first pass over any data: is it usable, where does it lie, which rows to start from.

Where NaN means missing it finds the same of what is observed; a block without missing values takes
the very same way, so that data without any give the same to the last bit.
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
from daskclust.core.reduction.assign import ClusterStatistics
from daskclust.core.reduction.contract import Field, Partial, Reduction, RowBlock, top_dtype

NO_ROW = np.iinfo(np.int64).max


@dataclass(frozen=True)
class RowLabels:
    """Classes, in [0, n_classes), of rows by global number, ascending and distinct."""

    rows: Ints
    codes: NDArray[np.int32]
    n_classes: int

    def by_chunk(self, rows: RowBlock) -> list[tuple[Ints, NDArray[np.int32]]]:
        """Places in the block, and codes, of the labeled rows of each of its chunks."""
        found, offset = [], 0
        for start, size in rows.runs:
            first, last = np.searchsorted(self.rows, [start, start + size])
            found.append((self.rows[first:last] - (start - offset), self.codes[first:last]))
            offset += size
        return found


@dataclass(frozen=True)
class ClassStatistics:
    """Moments of the labeled rows: (n_classes,), `mean` and `masses` (n_classes, p).

    `mean` is 0 for a class without weight, `scatter` the weighted squared distances to it;
    `masses` are weights of the values of each feature, None where nothing is missing.
    """

    weight: Floats
    mean: Floats
    scatter: Floats
    first_weightless: int | None = None
    masses: Floats | None = None

    def filled(self, values: Floats) -> Floats:
        """Return the means, with these values where a class has none."""
        return self.mean if self.masses is None else np.where(self.masses > 0, self.mean, values)

    def joined(self, stats: ClusterStatistics, centers: Floats) -> ClusterStatistics:
        """Return statistics, of rows assigned by centers (r, k, p), with class c in cluster c."""
        n = len(self.weight)
        sums, counts, inertia = stats.sums.copy(), stats.counts.copy(), stats.inertia.copy()
        counts[:, :n] += self.weight
        own = self.weight[:, None] if self.masses is None else self.masses
        sums[:, :n] += own * self.mean
        squares = (self.mean - centers[:, :n]) ** 2
        if self.masses is None:
            inertia[:, :n] += self.scatter + self.weight * squares.sum(axis=-1)
        else:
            inertia[:, :n] += self.scatter + (self.masses * squares).sum(axis=-1)
        masses = stats.masses
        if masses is not None:
            masses = masses.copy()
            masses[:, :n] += own
        return ClusterStatistics(sums, counts, inertia, masses)


def add_classes(
    partial: Partial,
    rows: RowBlock,
    weight: Floats | None,
    labels: RowLabels | None,
    *,
    empty: Bools | None = None,
) -> None:
    """Add a block's labeled rows to a partial, in place; `empty` ones are absent as of weight 0."""
    if labels is None:
        return
    absent = empty
    if weight is not None:
        absent = weight == 0 if empty is None else empty | (weight == 0)
    for places, codes in labels.by_chunk(rows):
        if not len(places):
            continue
        found = class_moments(
            rows.x, places, codes, weight, labels.n_classes, missing=empty is not None
        )
        sums = partial["class_sums"]
        partial["class_sums"] = add_stacked(sums, np.stack([found.hi, found.lo]))
        partial["class_moments"] = merge_moments(partial["class_moments"], found.moments)
        if absent is not None:
            first = np.min(rows.numbers(places[absent[places]]), initial=NO_ROW)
            partial["first_weightless"] = np.minimum(partial["first_weightless"], first)


#: Weights between which neither their inverses nor their sums leave the range of float64.
LIGHTEST, HEAVIEST = 1e-140, 1e140
#: Squares of larger values, summed over rows and features, may overflow.
LARGEST_VALUE = 1e140
#: Logarithm of the largest product of a weight and a squared value.
LOG_LARGEST = float(np.log(1e300))


@dataclass(frozen=True)
class SurveyRequest:
    """Ask for the survey, `n_picks` rows for each seed, drawn by weight, and moments of classes.

    Labeled rows are not drawn. To hash rows takes about half as long again where they are in
    memory: for what must know the data again.
    """

    n_features: int
    seeds: tuple[int, ...] = ()
    n_picks: int = 0
    labels: RowLabels | None = None
    hashed: bool = False


@dataclass(frozen=True)
class Survey:
    """The result of the first pass; columns are weighted, so that rows of weight 0 do not count.

    `idle` (p,): largest absolute values over rows of weight 0, which get labels, too; -inf without
    any. `first_bad`: row and column of the first NaN or infinity. `bad_weight_row`: first row whose
    weight is NaN, negative, or neither 0 nor between :data:`LIGHTEST` and :data:`HEAVIEST`. `picks`
    (n_seeds, n_picks): the drawn rows, ``row == -1`` for none. `hash`, where it was asked for.
    `n_incomplete`: rows that miss values, where they may.
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
    rows: RowBlock, keys: Floats, count: int, places: NDArray[np.intp] | None = None
) -> Array:
    """Return records (count,) of the rows of smallest finite key in a block, padded with none.

    `keys` are of the rows in `places` (ascending), or of all.
    """
    chosen = smallest(keys, count)
    out: Array = Field((count,), "top", top_dtype(rows.x.shape[1])).identity()
    out["key"][: len(chosen)] = keys[chosen]
    if places is not None:
        chosen = places[chosen]
    out["row"][: len(chosen)] = rows.numbers(chosen)
    out["x"][: len(chosen)] = rows.x[chosen]
    return out


@functools.lru_cache
def _fields_of(
    p: int, picks: tuple[int, int], n_classes: int, hashed: bool, missing: bool
) -> Mapping[str, Field]:
    of_gaps = {
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
        # Row and column packed into one integer would overflow: smallest row, then its column.
        "bad": Field((1,), "top", top_dtype(1)),
        "bad_weight": Field((), "min", np.int64),
        "picks": Field(picks, "top", top_dtype(p)),
        # The moments of each class, and masses of its values where some are missing.
        "class_sums": Field((2, n_classes, 2 * p + 1 if missing else p + 1)),
        "class_moments": Field((3, n_classes, p), "moments"),
        "first_weightless": Field((), "min", np.int64),
        **(of_gaps if missing else {}),
    }


def usable_weight(rows: RowBlock, partial: Partial) -> Floats | None:
    """Return the weights, 0 for invalid ones; the partial is told, and of values of weight 0."""
    weight = rows.weight
    if weight is None:
        return None
    # NaN compares to nothing.
    usable = (weight == 0) | ((weight >= LIGHTEST) & (weight <= HEAVIEST))
    if not usable.all():
        partial["bad_weight"] = rows.numbers(np.flatnonzero(~usable)[:1])[0].reshape(())
        weight = np.where(usable, weight, 0.0)
    if not weight.all():
        sizes = np.abs(rows.x[weight == 0]).astype(np.float64)
        partial["idle"] = np.fmax.reduce(sizes, axis=0, initial=0.0)
    return weight


def note_bad(partial: Partial, rows: RowBlock, row: int, code: int) -> None:
    partial["bad"]["row"] = rows.numbers(np.array([row]))
    partial["bad"]["key"] = partial["bad"]["row"]
    partial["bad"]["x"] = code


def draw_picks(partial: Partial, rows: RowBlock, state: SurveyRequest, mass: Floats) -> None:
    """Draw the rows to start from, with probability proportional to their mass; no labeled ones."""
    if state.labels is not None:
        mass = mass.copy()
        for places, _ in state.labels.by_chunk(rows):
            mass[places] = 0.0
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
    found = block_moments(x, weight, rows.segments())
    partial["sums"] = np.stack([found.hi, found.lo])
    partial["moments"] = found.moments
    partial["low"], partial["high"] = found.low, found.high
    if not found.finite:
        row, column = first_nonfinite(x)
        # NaN or infinity, by the sign of the column number.
        note_bad(partial, rows, row, -column - 1 if np.isnan(x[row, column]) else column + 1)
        return partial
    if state.hashed:
        partial["hash"] = np.array([row_hash(x, rows.weight, rows.runs)])
    add_classes(partial, rows, weight, state.labels)
    if state.n_picks:
        draw_picks(partial, rows, state, np.ones(len(x)) if weight is None else weight)
    return partial


@dataclass(frozen=True)
class PartialSurvey(Survey):
    """The result of the first pass, over the values that are there, of `observed` weight (p,).

    Rows may be incomplete (those of weight 0 included), or wholly unobserved; `informed` and
    `n_informed` are weight, and number of positive weight, of the others.
    """

    observed: Floats
    n_unobserved: int
    first_unobserved: int | None
    informed: float
    n_informed: int


_partial_fields = functools.partial(_fields, missing=True)


def _partial_block(rows: RowBlock, state: SurveyRequest) -> Partial:
    # Chunk by chunk: which chunks were joined does not show in the way that each of them takes.
    chunks = [
        RowBlock(rows.x[at], None if rows.weight is None else rows.weight[at], (run,))
        for at, run in zip(rows.slices(), rows.runs, strict=True)
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
    incomplete, gone = missing > 0, missing == p
    found = block_moments(x, weight, rows.segments(), missing=bool(incomplete.any()))
    sums = np.stack([found.hi, found.lo])
    if not incomplete.any():
        masses = np.repeat(sums[:, p:], p, axis=1)
        sums = np.concatenate([sums[:, :p], masses, sums[:, p:], np.zeros((2, 1))], axis=1)
    mass = np.ones(len(x)) if weight is None else weight
    # The weight of the rows that are somewhere, in the place of their number.
    sums[:, -1] = sums[:, -2] if not gone.any() else (mass[~gone].sum(), 0.0)
    partial["sums"], partial["moments"] = sums, found.moments
    partial["low"], partial["high"] = found.low, found.high
    partial["rows"] = np.array([incomplete.sum(), gone.sum(), (~gone & (mass > 0)).sum()])
    if gone.any():
        first = rows.numbers(np.flatnonzero(gone)[:1])[0]
        partial["first_unobserved"] = np.asarray(first).reshape(())
    add_classes(partial, rows, weight, state.labels, empty=gone)
    if state.n_picks:
        draw_picks(partial, rows, state, np.where(gone, 0.0, mass))
    return partial


def _finalize(partial: Partial, state: SurveyRequest) -> Survey:
    p, with_gaps = state.n_features, "rows" in partial
    # Between the sums and the weight of the rows: nothing, or the weight of each feature's values.
    sums, (weight, _, squares) = partial["sums"][0], partial["moments"]
    observed, total = (sums[p : 2 * p], sums[2 * p]) if with_gaps else (sums[p:], sums[p])
    with np.errstate(invalid="ignore", divide="ignore"):
        mean, variance = sums[:p] / observed, squares / weight
    class_sums, masses, mass = np.split(partial["class_sums"][0], [p, -1], axis=1)
    of_values = masses if with_gaps else mass
    bad, weightless = partial["bad"][0], int(partial["bad_weight"])
    first = int(partial["first_weightless"])
    # The number of the column, from 1; negative for NaN.
    code = int(bad["x"][0])
    found: dict[str, Any] = {
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
    if not with_gaps:
        return Survey(**found)
    n_incomplete, n_unobserved, n_informed = partial["rows"].tolist()
    first = int(partial["first_unobserved"])
    return PartialSurvey(
        **found,
        observed=observed,
        n_incomplete=n_incomplete,
        n_unobserved=n_unobserved,
        first_unobserved=None if first == NO_ROW else first,
        informed=float(sums[2 * p + 1]),
        n_informed=n_informed,
    )


#: Whether all values are there, and where they lie.
SURVEY = Reduction("survey", _fields, _block, _finalize)
#: Observed values of the columns, rows to start from, and the classes of labeled rows.
PARTIAL_SURVEY = Reduction("partial-survey", _partial_fields, _partial_block, _finalize)
