"""Passes of Gaussian mixtures: an EM iteration, its start, and the likelihood."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from daskclust.core.array_types import Array, Floats
from daskclust.core.kernels.compensated import add_plain
from daskclust.core.kernels.nearest.assign import nearest
from daskclust.core.reduction.contract import Field, Partial, Reduction, RowBlock
from daskclust.mixture.densities import Mixtures
from daskclust.mixture.expectation import (
    accumulate_mixtures,
    accumulate_start,
    add_gram,
    features,
    posteriors,
)

#: The first of the rounds in which random posteriors are drawn; 0 belongs to the first pass.
_DRAWS = 1


@dataclass(frozen=True)
class MixtureStack:
    """Models that are worked on side by side in one pass; `shift` (p,): a point amid the data."""

    mixtures: Mixtures
    shift: Floats


class ExpectationSums(NamedTuple):
    """Sums (D, s) of :func:`accumulate_mixtures`, and the mean log-likelihood of a row (m,)."""

    sums: Floats
    likelihood: Floats


def _expectation_fields(state: MixtureStack) -> Mapping[str, Field]:
    mixtures = state.mixtures
    return {
        "sums": Field((2, len(mixtures.weights), mixtures.n_statistics)),
        "likelihood": Field((2, len(mixtures.sizes) + 1)),
    }


def _expectation_block(rows: RowBlock, state: MixtureStack) -> Partial:
    made = accumulate_mixtures(
        rows.x, state.mixtures, weight=rows.weight, shift=state.shift, segments=rows.segments()
    )
    return {"sums": made.sums, "likelihood": made.likelihood}


def _mean_likelihood(partial: Partial, state: MixtureStack) -> Floats:
    fit = partial["likelihood"][0]
    with np.errstate(invalid="ignore", divide="ignore"):
        return fit[:-1] / fit[-1]


def _expectation_finalize(partial: Partial, state: MixtureStack) -> ExpectationSums:
    return ExpectationSums(partial["sums"][0], _mean_likelihood(partial, state))


#: One iteration of EM: posteriors of every row, and what the next parameters follow from.
EXPECTATION = Reduction(
    "expectation", _expectation_fields, _expectation_block, _expectation_finalize
)


def _likelihood_fields(state: MixtureStack) -> Mapping[str, Field]:
    return {"likelihood": Field((2, len(state.mixtures.sizes) + 1))}


def _likelihood_block(rows: RowBlock, state: MixtureStack) -> Partial:
    total = posteriors(rows.x, state.mixtures, state.shift)[1]
    weight = np.ones(len(rows.x)) if rows.weight is None else rows.weight
    terms = np.concatenate([total, np.ones((1, len(rows.x)))]) * weight
    sums, start = np.zeros((2, len(terms))), 0
    for stop in rows.segments():
        add_plain(sums[0], sums[1], terms[:, start:stop].sum(axis=1))
        start = stop
    return {"likelihood": sums}


#: Mean log-likelihood of a row under each model.
LIKELIHOOD = Reduction("likelihood", _likelihood_fields, _likelihood_block, _mean_likelihood)


@dataclass(frozen=True)
class InitialPosteriors:
    """Posteriors to start from: hard ones by the nearest of `centers` (r, K, p), or of `seeds` (r).

    `fill` (p,) stands for missing values when distances are measured, and is the shift of sums for
    diagonal covariances.
    """

    centers: Floats
    fill: Floats
    full: bool
    seeds: tuple[int, ...] = ()


def _initial_fields(state: InitialPosteriors) -> Mapping[str, Field]:
    r, k, p = state.centers.shape
    return {"sums": Field((2, r, k, 3 * p + 1 + (p * p if state.full else 0)))}


def _shares(rows: RowBlock, state: InitialPosteriors, r: int) -> Floats:
    k = state.centers.shape[1]
    if state.seeds:
        shares = np.stack([rows.uniforms(state.seeds[r], _DRAWS + c) for c in range(k)])
        return np.asarray(shares / shares.sum(axis=0))
    filled = np.where(np.isnan(rows.x), state.fill.astype(rows.x.dtype), rows.x)
    labels = nearest(np.ascontiguousarray(filled), state.centers[r])[0]
    return (labels == np.arange(k)[:, None]).astype(np.float64)


def _initial_block(rows: RowBlock, state: InitialPosteriors) -> Partial:
    segments = rows.segments()
    parts = [
        accumulate_start(
            rows.x,
            _shares(rows, state, r),
            centers,
            state.fill,
            full=state.full,
            weight=rows.weight,
            segments=segments,
        )
        for r, centers in enumerate(state.centers)
    ]
    return {"sums": np.stack(parts, axis=1)}


def _sums_finalize(partial: Partial, state: Any) -> Floats:
    return np.asarray(partial["sums"][0])


#: Sums over given posteriors, from which the first parameters follow.
INITIAL_SUMS = Reduction("initial-sums", _initial_fields, _initial_block, _sums_finalize)


@dataclass(frozen=True)
class GramRequest:
    """Ask for the Gram matrix (D, D) of the posteriors under an ensemble, times a basis if any."""

    mixtures: Mixtures
    shift: Floats
    basis: Floats | None
    dtype: Any


def _fields(state: GramRequest) -> Mapping[str, Field]:
    d = len(state.mixtures.weights)
    return {"sums": Field((2, d, d if state.basis is None else state.basis.shape[1]))}


def _block(rows: RowBlock, state: GramRequest, carry: Array | None) -> tuple[Partial, Array]:
    kept = features(rows.x, state.mixtures, state.shift, state.dtype) if carry is None else carry
    return _sums(rows, state, kept), kept


def _sums(rows: RowBlock, state: GramRequest, kept: Array | None = None) -> Partial:
    return {
        "sums": add_gram(
            rows.x,
            state.mixtures,
            state.shift,
            state.basis,
            weight=rows.weight,
            segments=rows.segments(),
            dtype=state.dtype,
            kept=kept,
        )
    }


#: Gram matrix of the posteriors, times a basis; nothing is kept between passes.
GRAM = Reduction("gram", _fields, _sums, _sums_finalize)
#: The same, with each block's posteriors kept from pass to pass.
GRAM_KEPT = Reduction("gram-kept", _fields, _block, _sums_finalize, carries=True)
