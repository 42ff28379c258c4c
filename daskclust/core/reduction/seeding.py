"""Passes that find initial centers: D^2 sampling, with or without oversampling, and farthest-first.

Sampling is an exponential race on the mass ``w D^2``: the rows with the smallest keys
``e / (w D^2)`` are a weighted sample without replacement, so a round needs no total in advance.
Distances to the nearest candidate can only decrease, so keys can only increase.  Therefore the key
of an old distance is a lower bound of the current key.  Rows are compared with the newest
candidates only if their bound is smaller than the keys of the leading rows of the previous blocks.
A cache of each block has the squared distance of each row, and the number of candidates that it
has been compared with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Floats
from daskclust.core.kernels.compensated import sum_terms
from daskclust.core.kernels.draws import approach
from daskclust.core.kernels.nearest.assign import nearest
from daskclust.core.kernels.rng import race_keys
from daskclust.core.reduction.contract import (
    TOP,
    Field,
    Partial,
    Reduction,
    RowBlock,
    top_dtype,
)
from daskclust.core.reduction.survey import pick_rows

#: Number of bytes per row and restart in the cache between rounds.
CARRY_BYTES = 12
#: A quantile of the keys is estimated from every n-th key, with a margin of this number of keys.
_EVERY, _SPARE = 16, 4
#: Minimum number of leading rows that are compared together.
_BATCH = 256
#: Offset of the random stream for weighing candidates.
_WEIGHING = 2**32


@dataclass(frozen=True)
class CandidateRound:
    """One round of D^2 sampling: `n_picks` new rows for each restart.

    `candidates` (m_r, p) of each restart are in the order in which they were drawn.  `shift` and
    `missing` are as in :class:`~daskclust.core.reduction.assign.CenterSets`.
    """

    candidates: tuple[Floats, ...]
    seeds: tuple[int, ...]
    round: int
    n_picks: int
    shift: Floats | None = None
    missing: bool = False


class _Carry(NamedTuple):
    """Squared distance of each row to the nearest of the first ``seen`` candidates."""

    distance: Floats
    seen: NDArray[np.int32]


class _Race:
    def __init__(
        self, rows: RowBlock, state: CandidateRound, r: int, before: _Carry | None
    ) -> None:
        self._x, self._weight = rows.x, rows.weight
        self._candidates = state.candidates[r]
        self._uniforms = rows.uniforms(state.seeds[r], state.round)
        self._space: dict[str, Any] = {"shift": state.shift, "missing": state.missing}
        if before is None:
            distance = nearest(rows.x, self._candidates[:1], **self._space)[1]
            self.carry = _Carry(distance, np.ones(len(rows.x), dtype=np.int32))
        else:
            self.carry = _Carry(before.distance.copy(), before.seen.copy())

    def _keys(self, positions: Any) -> Floats:
        mass = self.carry.distance[positions]
        if self._weight is not None:
            mass = mass * self._weight[positions]
        return race_keys(self._uniforms[positions], mass)

    def _overtake(self, positions: NDArray[np.intp], keys: Floats) -> None:
        approach(self._x, self._candidates, positions, *self.carry, **self._space)
        keys[positions] = self._keys(positions)

    def run(self, ahead: Floats) -> tuple[NDArray[np.intp], Floats]:
        """Return positions and exact keys of all rows that can be among the first.

        ``ahead`` are the ascending keys of the leading rows so far.  Its length is the number of
        rows to draw, and missing rows have infinite keys.
        """
        count = len(ahead)
        keys = self._keys(slice(None))
        # Rows with the smallest bounds come first, then batches of rows that may still beat them.
        limit = min(ahead[-1], _low_quantile(keys, 2 * count))
        batch = np.flatnonzero((keys <= limit) & (keys < np.inf))
        self._overtake(batch, keys)
        best = np.sort(np.concatenate([ahead, keys[batch]]))[:count]
        waiting = np.flatnonzero((keys <= best[-1]) & (keys < np.inf))
        waiting = waiting[self.carry.seen[waiting] < len(self._candidates)]
        waiting = waiting[np.argsort(keys[waiting], kind="stable")]
        size = max(2 * count, _BATCH)
        while len(waiting):
            batch, waiting = waiting[:size], waiting[size:]
            self._overtake(batch, keys)
            best = np.sort(np.concatenate([best, keys[batch]]))[:count]
            waiting = waiting[: np.searchsorted(keys[waiting], best[-1], side="right")]
            size *= 2
        front = np.flatnonzero((keys <= best[-1]) & (keys < np.inf))
        return front, keys[front]


def _low_quantile(keys: Floats, count: int) -> float:
    """Return a bound such that about ``count`` keys, or a few more, are smaller."""
    sampled_keys = keys[::_EVERY]
    position = -(-count // _EVERY) + _SPARE
    return (
        float(np.partition(sampled_keys, position)[position])
        if position < len(sampled_keys)
        else np.inf
    )


def _round_fields(state: CandidateRound) -> Mapping[str, Field]:
    r, p = len(state.seeds), state.candidates[0].shape[1]
    return {"picks": Field((r, state.n_picks), "top", top_dtype(p))}


def _round_block(
    rows: RowBlock, state: CandidateRound, before: Partial, carry: list[_Carry] | None
) -> tuple[Partial, list[_Carry]]:
    picks, carries = before["picks"].copy(), []
    for r in range(len(state.seeds)):
        race = _Race(rows, state, r, None if carry is None else carry[r])
        front, keys = race.run(picks["key"][r])
        drawn = pick_rows(rows, keys, min(len(front), state.n_picks), front)
        if len(drawn):
            picks[r] = TOP.combine(picks[r], drawn)
        carries.append(race.carry)
    return {"picks": picks}, carries


def _round_finalize(partial: Partial, state: CandidateRound) -> Array:
    return partial["picks"]


#: Rows drawn by ``w D^2``: records of shape (r, n_picks) in the order of the draw, ``row == -1``
#: if no mass was left.
CANDIDATES = Reduction(
    "candidates", _round_fields, _round_block, _round_finalize, carries=True, sequential=True
)


@dataclass(frozen=True)
class Attraction:
    """State of the pass for the weight of the rows nearest to each candidate (m_r, p).

    With a `rate`, a row of weight w is used with probability ``min(1, rate w)`` and represents the
    unused rows, so the expected sums are exact.  The rate is a power of two, so that sums of equal
    weights have no rounding errors.
    """

    candidates: tuple[Floats, ...]
    seeds: tuple[int, ...]
    rate: float | None = None
    shift: Floats | None = None
    missing: bool = False


def _attraction_fields(state: Attraction) -> Mapping[str, Field]:
    max_candidates = max(len(c) for c in state.candidates)
    return {"mass": Field((2, len(state.seeds), max_candidates))}


def _attraction_block(rows: RowBlock, state: Attraction) -> Partial:
    partial = {name: field.identity() for name, field in _attraction_fields(state).items()}
    weight = np.ones(len(rows.x)) if rows.weight is None else rows.weight
    probability = (weight > 0).astype(np.float64)
    if state.rate is not None:
        probability = np.minimum(probability, state.rate * weight)
    max_candidates = partial["mass"].shape[-1]
    for r, (candidates, seed) in enumerate(zip(state.candidates, state.seeds, strict=True)):
        used = probability > 0
        if state.rate is not None:
            used &= rows.uniforms(seed, _WEIGHING) <= probability
        mass, owner = np.zeros(len(probability)), np.zeros(len(probability), dtype=np.int32)
        mass[used] = weight[used] / probability[used]
        used_rows, missing = rows.x[used], state.missing
        owner[used] = nearest(used_rows, candidates, shift=state.shift, missing=missing)[0]
        # Rows without observed values have no nearest candidate.
        mass[owner < 0], owner[owner < 0] = 0.0, 0
        partial["mass"][:, r] = sum_terms(
            np.bincount(owner[s], weights=mass[s], minlength=max_candidates).astype(np.float64)
            for s in rows.slices()
        )
    return partial


def _attraction_finalize(partial: Partial, state: Attraction) -> list[Floats]:
    return [partial["mass"][0, r, : len(c)] for r, c in enumerate(state.candidates)]


#: Weight of the rows nearest to each candidate: an array of shape (m_r,) for each restart.
ATTRACTED = Reduction("attracted", _attraction_fields, _attraction_block, _attraction_finalize)


#: Number of bytes per row in the cache between passes.
FARTHEST_FIRST_BYTES = 8


@dataclass(frozen=True)
class FarthestFirst:
    """State of the pass that finds the row farthest from all points (m, p).

    Points are in the order of their choice, so rows are compared only with the newest points.
    """

    points: Floats
    shift: Floats | None = None
    missing: bool = False


def _farthest_fields(state: FarthestFirst) -> Mapping[str, Field]:
    return {"row": Field((1,), "top", top_dtype(state.points.shape[1]))}


class _Farthest(NamedTuple):
    """Squared distance of each row to the nearest of the first ``seen`` points."""

    distance: Floats
    seen: int


def _farthest_block(
    rows: RowBlock, state: FarthestFirst, carry: _Farthest | None
) -> tuple[Partial, _Farthest]:
    seen = 0 if carry is None else carry.seen
    distances = np.full(len(rows.x), np.inf) if carry is None else carry.distance
    if seen < len(state.points):
        unseen, missing = state.points[seen:], state.missing
        distances_to_new = nearest(rows.x, unseen, shift=state.shift, missing=missing)[1]
        distances = np.minimum(distances, distances_to_new)
    # A row on a chosen point cannot be chosen; a row of weight 0 is ignored.
    usable = distances > 0
    if rows.weight is not None:
        usable &= rows.weight > 0
    keys = np.where(usable, -distances, np.inf)
    return {"row": pick_rows(rows, keys, 1)}, _Farthest(distances, len(state.points))


def _farthest_finalize(partial: Partial, state: FarthestFirst) -> Array:
    record = partial["row"]
    return record[record["row"] >= 0]


#: Record of the row farthest from its nearest point (ties by row number), or no record.
FARTHEST_FIRST = Reduction(
    "farthest-first", _farthest_fields, _farthest_block, _farthest_finalize, carries=True
)
