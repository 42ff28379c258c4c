"""Passes that find starting centres: oversampled and sequential D^2 sampling.

Each row keeps the squared distance to its nearest candidate and which candidate
that is, aligned with the blocks, so that a round measures the new candidates
only.  Sampling is an exponential race on the mass ``w D^2``: the winners are a
weighted sample without replacement, so a round needs no total beforehand and
one pass both measures the last round's candidates and draws the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust.kernels.assign import nearest
from daskclust.kernels.compensated import sum_terms
from daskclust.kernels.sampling import race_keys
from daskclust.reduction.contract import Field, Partial, Reduction, RowBlock, top_dtype
from daskclust.reduction.survey import pick_rows

__all__ = ["CANDIDATES", "CARRY_BYTES", "CandidateRound", "RoundResult"]

Float = NDArray[np.float64]


@dataclass(frozen=True)
class CandidateRound:
    """One round of D^2 sampling, for all restarts at once.

    Parameters
    ----------
    fresh : tuple of ndarray of shape (m_r, p), float64
        Candidates of each restart that no row has been measured against.
    known : tuple of int
        How many candidates each restart had before.
    seeds : tuple of int
        Seed of each restart.
    round : int
        Number of the round: rows draw anew in each.
    n_picks : int
        Rows to draw for each restart.
    weigh : bool
        Whether to sum the weight that each candidate attracts.
    shift : ndarray of shape (p,), float64, optional
    """

    fresh: tuple[Float, ...]
    known: tuple[int, ...]
    seeds: tuple[int, ...]
    round: int
    n_picks: int
    weigh: bool = False
    shift: Float | None = None


class RoundResult(NamedTuple):
    """What a round brought home.

    Attributes
    ----------
    picks : structured ndarray of shape (r, n_picks)
        Drawn rows, in order of their draw; ``row == -1`` where mass ran out.
    potential : ndarray of shape (r,), float64
        Sum of ``w D^2`` over all rows, before the draw.
    mass : list of ndarray, float64
        Weight attracted by each candidate of each restart (empty unless asked).
    """

    picks: NDArray[Any]
    potential: Float
    mass: list[Float]


class _Carry(NamedTuple):
    distance: Float
    owner: NDArray[np.int32]


#: Bytes that a row and restart keep between rounds.
CARRY_BYTES = 12


def _n_candidates(state: CandidateRound) -> int:
    return max(k + len(f) for k, f in zip(state.known, state.fresh, strict=True))


def _fields(state: CandidateRound) -> Mapping[str, Field]:
    r, p = len(state.seeds), state.fresh[0].shape[1]
    return {
        "picks": Field((r, state.n_picks), "top", top_dtype(p)),
        "potential": Field((2, r)),
        "mass": Field((2, r, _n_candidates(state) if state.weigh else 0)),
    }


def _measure(rows: RowBlock, state: CandidateRound, r: int, before: _Carry | None) -> _Carry:
    fresh = state.fresh[r]
    if before is not None and not len(fresh):
        return before
    labels, distances = nearest(rows.x, fresh, shift=state.shift)
    labels += state.known[r]
    if before is None:
        return _Carry(distances, labels)
    closer = distances < before.distance
    return _Carry(
        np.where(closer, distances, before.distance), np.where(closer, labels, before.owner)
    )


def _block(
    rows: RowBlock, state: CandidateRound, carry: list[_Carry] | None
) -> tuple[Partial, list[_Carry]]:
    partial = {name: field.identity() for name, field in _fields(state).items()}
    kept = []
    chunks = rows.slices()
    for r, seed in enumerate(state.seeds):
        now = _measure(rows, state, r, None if carry is None else carry[r])
        kept.append(now)
        mass = now.distance if rows.weight is None else now.distance * rows.weight
        partial["potential"][:, r] = sum_terms(mass[s].sum() for s in chunks)
        if state.n_picks:
            keys = race_keys(rows.uniforms(seed, state.round), mass)
            partial["picks"][r] = pick_rows(rows, keys, state.n_picks)
        if state.weigh:
            attracted = [
                np.bincount(
                    now.owner[s],
                    weights=None if rows.weight is None else rows.weight[s],
                    minlength=partial["mass"].shape[-1],
                ).astype(np.float64)
                for s in chunks
            ]
            partial["mass"][:, r] = sum_terms(attracted)
    return partial, kept


def _finalize(partial: Partial, state: CandidateRound) -> RoundResult:
    mass = []
    if state.weigh:
        mass = [
            partial["mass"][0, r, : known + len(fresh)]
            for r, (known, fresh) in enumerate(zip(state.known, state.fresh, strict=True))
        ]
    return RoundResult(partial["picks"], partial["potential"][0], mass)


CANDIDATES = Reduction("candidates", _fields, _block, _finalize, carries=True)
