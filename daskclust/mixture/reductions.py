"""Passes of Gaussian mixtures: an EM iteration, initial posteriors, and the likelihood."""

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
    accumulate_initial,
    accumulate_mixtures,
    add_gram,
    features,
    posteriors,
)

#: First random stream for random posteriors.  The first pass uses stream 0.
_DRAWS = 1


@dataclass(frozen=True)
class MixtureStack:
    """Models evaluated in one pass; `shift` (p,) is a point near the center of the data."""

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
    block = accumulate_mixtures(
        rows.x, state.mixtures, weight=rows.weight, shift=state.shift, segments=rows.segments()
    )
    return {"sums": block.sums, "likelihood": block.likelihood}


def _mean_likelihood(partial: Partial, state: MixtureStack) -> Floats:
    likelihood = partial["likelihood"][0]
    with np.errstate(invalid="ignore", divide="ignore"):
        return likelihood[:-1] / likelihood[-1]


def _expectation_finalize(partial: Partial, state: MixtureStack) -> ExpectationSums:
    return ExpectationSums(partial["sums"][0], _mean_likelihood(partial, state))


#: Sums of an EM iteration, which determine the next parameters.
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
    """State of the pass that computes sums over initial posteriors.

    For each of r restarts, a row has posterior 1 for its nearest center among `centers` (r, K, p).
    With `seeds` (r), posteriors are random.  `fill` (p,) replaces missing values in distances.  For
    diagonal covariances it is also the shift of the sums.
    """

    centers: Floats
    fill: Floats
    full: bool
    seeds: tuple[int, ...] = ()


def _initial_fields(state: InitialPosteriors) -> Mapping[str, Field]:
    r, k, p = state.centers.shape
    return {"sums": Field((2, r, k, 3 * p + 1 + (p * p if state.full else 0)))}


def _initial_resp(rows: RowBlock, state: InitialPosteriors, r: int) -> Floats:
    k = state.centers.shape[1]
    if state.seeds:
        resp = np.stack([rows.uniforms(state.seeds[r], _DRAWS + c) for c in range(k)])
        return np.asarray(resp / resp.sum(axis=0))
    filled = np.where(np.isnan(rows.x), state.fill.astype(rows.x.dtype), rows.x)
    labels = nearest(np.ascontiguousarray(filled), state.centers[r])[0]
    return (labels == np.arange(k)[:, None]).astype(np.float64)


def _initial_block(rows: RowBlock, state: InitialPosteriors) -> Partial:
    segments = rows.segments()
    sums = [
        accumulate_initial(
            rows.x,
            _initial_resp(rows, state, r),
            centers,
            state.fill,
            full=state.full,
            weight=rows.weight,
            segments=segments,
        )
        for r, centers in enumerate(state.centers)
    ]
    return {"sums": np.stack(sums, axis=1)}


def _sums_finalize(partial: Partial, state: Any) -> Floats:
    return np.asarray(partial["sums"][0])


#: Sums over initial posteriors, which determine the initial parameters.
INITIAL_SUMS = Reduction("initial-sums", _initial_fields, _initial_block, _sums_finalize)


@dataclass(frozen=True)
class GramRequest:
    """Request for the Gram matrix (D, D) of the posteriors, or for its product with a basis."""

    mixtures: Mixtures
    shift: Floats
    basis: Floats | None
    dtype: Any


def _gram_fields(state: GramRequest) -> Mapping[str, Field]:
    d = len(state.mixtures.weights)
    return {"sums": Field((2, d, d if state.basis is None else state.basis.shape[1]))}


def _stored_gram_block(
    rows: RowBlock, state: GramRequest, carry: Array | None
) -> tuple[Partial, Array]:
    stored = features(rows.x, state.mixtures, state.shift, state.dtype) if carry is None else carry
    return _gram_block(rows, state, stored), stored


def _gram_block(rows: RowBlock, state: GramRequest, stored: Array | None = None) -> Partial:
    return {
        "sums": add_gram(
            rows.x,
            state.mixtures,
            state.shift,
            state.basis,
            weight=rows.weight,
            segments=rows.segments(),
            dtype=state.dtype,
            stored=stored,
        )
    }


#: Gram matrix of the posteriors, or its product with a basis.  Posteriors are not stored.
GRAM = Reduction("gram", _gram_fields, _gram_block, _sums_finalize)
#: Same result as `GRAM`.  Each block stores its posteriors between passes.
GRAM_STORED = Reduction(
    "gram-stored", _gram_fields, _stored_gram_block, _sums_finalize, carries=True
)
